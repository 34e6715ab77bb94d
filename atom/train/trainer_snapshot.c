/*
 * Owns checkpoints that are written while training goes on: with the optimizer's state on disk, a
 * snapshot keeps one generation of it, and a thread of its own makes a checkpoint of that. One
 * idea: asking is cheap; the snapshot is taken when the updates of the step have run, which with
 * clipping is during the step after it. Refuses to have two under way: who asks again waits for the
 * first.
 */
#include "atom/train/trainer_inner.h"

#include "atom/base/mem.h"

#include <pthread.h>
#include <stdatomic.h>
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
    swap_snapshot *snapshot; /* NULL: the updates have not run yet */
    snapshot_part parts[SWAP_STATE_N];
    pthread_t thread;
    atomic_bool done;
    atom_status status;
    char message[512];
    char *path;
};

static atom_status part_get(void *ctx, uint64_t first, uint64_t n, float *to)
{
    const snapshot_part *p = ctx;
    return swap_snapshot_get(p->snapshot, p->part, first, n, to);
}

static void *write_checkpoint(void *arg)
{
    trainer_snapshot *s = arg;
    s->status = train_checkpoint_save(s->output_dir, &s->c, s->limit, &s->path);
    if (s->status != ATOM_OK)
        snprintf(s->message, sizeof s->message, "%s", atom_fail_message());
    atomic_store(&s->done, true);
    return NULL;
}

static atom_status begin(trainer *t)
{
    trainer_snapshot *s = t->snapshot;
    file_vector *vectors[SWAP_STATE_N] = {&s->c.master, &s->c.m, &s->c.v};
    atom_status st = swap_snapshot_open(t->engine->disk, &s->snapshot);
    if (st != ATOM_OK)
        return st;
    for (int part = 0; part < SWAP_STATE_N; part++) {
        s->parts[part] = (snapshot_part){s->snapshot, (swap_state)part};
        *vectors[part] = (file_vector){&s->parts[part], part_get, NULL};
    }
    if (pthread_create(&s->thread, NULL, write_checkpoint, s)) {
        swap_snapshot_close(&s->snapshot);
        return atom_fail(ATOM_E_RESOURCE, "cannot start a thread to write a checkpoint");
    }
    return ATOM_OK;
}

/* The thread has ended, or will soon. */
static atom_status end(trainer *t)
{
    trainer_snapshot *s = t->snapshot;
    atom_status st = ATOM_OK;
    if (s->snapshot) {
        pthread_join(s->thread, NULL);
        swap_snapshot_close(&s->snapshot);
        st = s->status;
    }
    if (st != ATOM_OK) {
        st = atom_fail(st, "%s", s->message);
    } else if (s->path) {
        trainer_note(t, "saved %s", s->path);
        atom_free(t->summary.checkpoint);
        t->summary.checkpoint = s->path;
        s->path = NULL;
    }
    atom_free(s->path);
    atom_free(s);
    t->snapshot = NULL;
    return st;
}

atom_status trainer_snapshot_ask(trainer *t)
{
    atom_status st = trainer_snapshot_finish(t);
    if (st != ATOM_OK)
        return st;
    trainer_snapshot *s = atom_alloc(1, sizeof *s);
    if (!s)
        return atom_fail_memory("a snapshot", sizeof *s);
    s->c = trainer_checkpoint(t);
    s->output_dir = t->config->output_dir;
    s->limit = t->config->save_total_limit;
    t->snapshot = s;
    return trainer_snapshot_poll(t);
}

atom_status trainer_snapshot_poll(trainer *t)
{
    trainer_snapshot *s = t->snapshot;
    if (!s)
        return ATOM_OK;
    if (s->snapshot)
        return atomic_load(&s->done) ? end(t) : ATOM_OK;
    return (int64_t)swap_disk_about(t->engine->disk).step == s->c.state.step ? begin(t) : ATOM_OK;
}

atom_status trainer_snapshot_finish(trainer *t)
{
    return t->snapshot ? end(t) : ATOM_OK;
}
