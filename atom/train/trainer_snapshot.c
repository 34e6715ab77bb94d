/*
 * Owns checkpoints that are written while training goes on, on a thread of their own. One idea:
 * between the last update of a step and the first of the next, the state stands still, and that is
 * nearly a whole step: the thread starts as soon as the updates of its step have run (with clipping
 * that is at the start of the step after it). With the state in memory, the next updates wait for
 * what is not written by then; with the state on disk nobody waits, because a snapshot keeps its
 * generation. Refuses to have two under way: who asks again waits for the first.
 */
#include "atom/train/trainer_inner.h"

#include "atom/base/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct snapshot_part {
    swap_snapshot *snapshot;
    swap_state part;
} snapshot_part;

struct trainer_snapshot {
    train_checkpoint c; /* as it will be written */
    const char *output_dir;
    int64_t limit;
    bool on_disk;
    char *marks;         /* c.pool */
    swap_snapshot *kept; /* on disk, once the updates have run */
    snapshot_part parts[SWAP_STATE_N];
    pthread_t thread;
    pthread_mutex_t lock; /* of the flags */
    pthread_cond_t moved;
    bool ready, dropped, done;
    atom_status status;
    char message[512];
    char *path;
};

static atom_status part_get(void *ctx, uint64_t first, uint64_t n, float *to)
{
    const snapshot_part *p = ctx;
    return swap_snapshot_get(p->snapshot, p->part, first, n, to);
}

static void raise_flag(trainer_snapshot *s, bool *flag)
{
    pthread_mutex_lock(&s->lock);
    *flag = true;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->lock);
}

static bool read_flag(trainer_snapshot *s, const bool *flag)
{
    pthread_mutex_lock(&s->lock);
    bool up = *flag;
    pthread_mutex_unlock(&s->lock);
    return up;
}

static void *write_checkpoint(void *arg)
{
    trainer_snapshot *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->ready && !s->dropped)
        pthread_cond_wait(&s->moved, &s->lock);
    bool go = s->ready;
    pthread_mutex_unlock(&s->lock);
    if (go)
        s->status = train_checkpoint_save(s->output_dir, &s->c, s->limit, &s->path);
    if (s->status != ATOM_OK)
        snprintf(s->message, sizeof s->message, "%s", atom_fail_message());
    raise_flag(s, &s->done);
    return NULL;
}

/* The updates have run: the state on disk is kept from here on. */
static atom_status keep_generation(trainer *t, trainer_snapshot *s)
{
    file_vector *vectors[SWAP_STATE_N] = {&s->c.master, &s->c.m, &s->c.v};
    atom_status st = swap_snapshot_open(t->engine->disk, &s->kept);
    for (int part = 0; part < SWAP_STATE_N && st == ATOM_OK; part++) {
        s->parts[part] = (snapshot_part){s->kept, (swap_state)part};
        *vectors[part] =
            (file_vector){.ctx = &s->parts[part], .get = part_get, .sink = &t->engine->sink};
    }
    if (st == ATOM_OK)
        raise_flag(s, &s->ready);
    return st;
}

static void close_snapshot(trainer *t)
{
    trainer_snapshot *s = t->snapshot;
    swap_snapshot_close(&s->kept);
    pthread_cond_destroy(&s->moved);
    pthread_mutex_destroy(&s->lock);
    atom_free(s->path);
    atom_free(s->marks);
    atom_free(s);
    t->snapshot = NULL;
}

/* Waits for the thread, says what became of it. */
static atom_status end(trainer *t)
{
    trainer_snapshot *s = t->snapshot;
    atom_status st;
    raise_flag(s, &s->dropped);
    pthread_join(s->thread, NULL);
    st = s->status;
    if (st != ATOM_OK) {
        st = atom_fail(st, "%s", s->message);
    } else if (s->path) {
        trainer_note(t, "saved %s", s->path);
        atom_free(t->summary.checkpoint);
        t->summary.checkpoint = s->path;
        s->path = NULL;
    }
    close_snapshot(t);
    return st;
}

atom_status trainer_snapshot_ask(trainer *t)
{
    atom_status st = trainer_snapshot_finish(t);
    if (st == ATOM_OK && t->plan->update_on_device) /* the state is not where it is read */
        st = train_engine_drain(t->engine);
    if (st != ATOM_OK)
        return st;
    trainer_snapshot *s = atom_alloc(1, sizeof *s);
    if (!s)
        return atom_fail_memory("a snapshot", sizeof *s);
    s->c = trainer_checkpoint(t);
    s->c.pool = s->marks = trainer_seam_marks(t);
    s->output_dir = t->config->output_dir;
    s->limit = t->config->save_total_limit;
    s->on_disk = t->engine->disk != NULL;
    s->ready = !s->on_disk && t->engine->pending_step == 0;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->moved, NULL);
    t->snapshot = s;
    if (pthread_create(&s->thread, NULL, write_checkpoint, s)) {
        close_snapshot(t);
        return atom_fail(ATOM_E_RESOURCE, "cannot start a thread to write a checkpoint");
    }
    return trainer_snapshot_poll(t);
}

atom_status trainer_snapshot_poll(trainer *t)
{
    trainer_snapshot *s = t->snapshot;
    if (!s)
        return ATOM_OK;
    if (s->on_disk && !s->kept && (int64_t)swap_disk_about(t->engine->disk).step == s->c.state.step)
        return keep_generation(t, s);
    return read_flag(s, &s->done) ? end(t) : ATOM_OK;
}

atom_status trainer_snapshot_finish(trainer *t)
{
    return t->snapshot ? end(t) : ATOM_OK;
}

/* What of a pool is in the weights of the step that the snapshot is of. */
static void mark(const trainer *t, trainer_snapshot *s)
{
    atom_free(s->marks);
    s->c.pool = s->marks = trainer_seam_marks(t);
}

static void snapshot_on_updates(const trainer *t, uint32_t step, bool begin)
{
    trainer_snapshot *s = t->snapshot;
    if (!s || s->on_disk)
        return;
    if (!begin) {
        if ((int64_t)step == s->c.state.step) {
            mark(t, s);
            raise_flag(s, &s->ready);
        }
        return;
    }
    pthread_mutex_lock(&s->lock);
    while (s->ready && !s->done)
        pthread_cond_wait(&s->moved, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* Weights change only where no snapshot reads them any more, and are marked as they stand. */
void trainer_on_updates(void *ctx, uint32_t step, bool begin)
{
    trainer *t = ctx;
    if (!begin)
        trainer_seam_updates(t, false);
    snapshot_on_updates(t, step, begin);
    if (begin)
        trainer_seam_updates(t, true);
}
