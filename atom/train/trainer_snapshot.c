/*
 * Owns checkpoints that are written while training goes on, on a thread of their own. One idea:
 * between the last update of a step and the first of the next, the state stands still, and that is
 * nearly a whole step: the thread starts as soon as the updates of its step have run (with clipping
 * that is at the start of the step after it). With the state in memory, whatever is about to change
 * (by the next updates, a pool, a drain) before it was written is first copied to spare memory
 * (swap/cow.h); training waits only where that is full. With the state on disk nobody waits,
 * because the snapshot keeps its generation. The state is read no faster than save_rate, and from
 * disk preferably while the tape leaves the disk alone. A run goes on without a checkpoint that could not
 * be written. Refuses to have two under way: a second one waits for the first.
 */
#include "atom/train/trainer_inner.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Behind the disk tier's own work a piece waits at most this many times as long as pieces take. */
static const double PATIENCE = 3, NAP_S = 0.002;

typedef struct snapshot_part {
    trainer_snapshot *of;
    swap_state part;
} snapshot_part;

struct trainer_snapshot {
    train_checkpoint c; /* as it will be written */
    const char *output_dir;
    int64_t limit;
    swap_disk *disk;      /* where the state is; or */
    swap_cow *cow;        /* where it is in memory */
    char *marks;          /* c.pool */
    swap_snapshot *kept;  /* on disk, once the updates have run */
    uint64_t rate;        /* bytes per second; 0: no cap */
    uint64_t read_bytes;  /* so far */
    double began, turned; /* seconds: of the first piece, and when the last one was given */
    snapshot_part parts[SWAP_STATE_N];
    pthread_t thread;
    pthread_mutex_t lock; /* of the flags */
    pthread_cond_t moved;
    bool ready, dropped, done;
    double seconds;
    atom_status status;
    char message[512];
    char *path;
};

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

/* A step waits for memory that it holds, or the run's end for all of it. */
static bool is_urgent(trainer_snapshot *s)
{
    return read_flag(s, &s->dropped) || (s->cow && swap_cow_is_short(s->cow));
}

/* Before a piece is read: until its time has come. */
static void pace(trainer_snapshot *s, uint64_t bytes)
{
    double now = atom_clock_seconds();
    if (s->read_bytes == 0)
        s->began = s->turned = now;
    double due = s->rate ? s->began + (double)s->read_bytes / (double)s->rate : 0;
    double polite = now + PATIENCE * (now - s->turned);
    while ((now < due || (s->disk && now < polite && swap_disk_is_busy(s->disk))) &&
           !is_urgent(s)) {
        nanosleep(&(struct timespec){0, (long)(NAP_S * 1e9)}, NULL);
        now = atom_clock_seconds();
    }
    s->read_bytes += bytes;
    s->turned = now;
}

static atom_status part_get(void *ctx, uint64_t first, uint64_t n, float *to)
{
    const snapshot_part *p = ctx;
    pace(p->of, n * atom_dtype_bytes(swap_state_dtype(p->part, p->of->c.g->moments)));
    if (p->of->kept)
        return swap_snapshot_get(p->of->kept, p->part, first, n, to);
    swap_cow_get(p->of->cow, p->part, first, n, to);
    return ATOM_OK;
}

static void part_done(void *ctx, uint64_t first, uint64_t n)
{
    const snapshot_part *p = ctx;
    if (p->of->kept)
        return;
    if (n == UINT64_MAX)
        swap_cow_release_all(p->of->cow, p->part);
    else
        swap_cow_release(p->of->cow, p->part, first, n);
}

static void *write_checkpoint(void *arg)
{
    trainer_snapshot *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->ready && !s->dropped)
        pthread_cond_wait(&s->moved, &s->lock);
    bool go = s->ready;
    pthread_mutex_unlock(&s->lock);
    double begin = atom_clock_seconds();
    if (go)
        s->status = train_checkpoint_save(s->output_dir, &s->c, s->limit, &s->path);
    if (go && s->cow)
        swap_cow_end(s->cow);
    s->seconds = go ? atom_clock_seconds() - begin : 0;
    if (s->status != ATOM_OK)
        snprintf(s->message, sizeof s->message, "%s", atom_fail_message());
    raise_flag(s, &s->done);
    return NULL;
}

/* The updates have run: the state on disk is kept from here on. */
static atom_status keep_generation(trainer *t, trainer_snapshot *s)
{
    ATOM_TRY(swap_snapshot_open(t->engine->disk, &s->kept));
    raise_flag(s, &s->ready);
    return ATOM_OK;
}

/* The same in memory. */
static void keep_ranges(trainer_snapshot *s)
{
    swap_cow_begin(s->cow);
    raise_flag(s, &s->ready);
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
    if (s->cow) {
        swap_cow_facts facts = swap_cow_about(s->cow);
        t->summary.save_waited_seconds += facts.waited_seconds;
        t->summary.save_copied_bytes += facts.copied_bytes;
        if (facts.spare_peak_bytes > t->engine->spare_peak)
            t->engine->spare_peak = facts.spare_peak_bytes;
    }
    t->summary.save_seconds += s->seconds;
    if (trainer_may_go_on(st)) {
        trainer_save_failed(t, s->message);
        st = ATOM_OK;
    } else if (st != ATOM_OK) {
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
    ATOM_TRY(trainer_snapshot_finish(t));
    if (t->plan->update_on_device) /* the state is not where it is read */
        ATOM_TRY(train_engine_drain(t->engine));
    trainer_snapshot *s = atom_alloc(1, sizeof *s);
    if (!s)
        return atom_fail_memory("a snapshot", sizeof *s);
    s->c = trainer_checkpoint(t);
    s->c.pool = s->marks = trainer_seam_marks(t);
    s->output_dir = t->config->output_dir;
    s->limit = t->config->save_total_limit;
    s->disk = t->engine->disk;
    s->cow = t->engine->cow;
    s->rate = t->config->save_rate;
    file_vector *vectors[SWAP_STATE_N] = {&s->c.master, &s->c.m, &s->c.v};
    for (int part = 0; part < SWAP_STATE_N; part++) {
        s->parts[part] = (snapshot_part){s, (swap_state)part};
        *vectors[part] = (file_vector){
            .ctx = &s->parts[part], .get = part_get, .done = part_done, .sink = &t->engine->sink};
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->moved, NULL);
    t->snapshot = s;
    if (!s->disk && t->engine->pending_step == 0)
        keep_ranges(s);
    if (pthread_create(&s->thread, NULL, write_checkpoint, s)) {
        if (s->ready)
            swap_cow_end(s->cow);
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
    bool stands = s->disk && (trainer_is_shared(t) || /* nobody here updates it */
                              (int64_t)swap_disk_about(t->engine->disk).step == s->c.state.step);
    if (stands && !s->kept)
        return keep_generation(t, s);
    return read_flag(s, &s->done) ? end(t) : ATOM_OK;
}

atom_status trainer_snapshot_finish(trainer *t)
{
    return t->snapshot ? end(t) : ATOM_OK;
}

/* How far the pool had come in the weights that the snapshot holds. */
static void mark(const trainer *t, trainer_snapshot *s)
{
    atom_free(s->marks);
    s->c.pool = s->marks = trainer_seam_marks(t);
}

static void snapshot_after_updates(const trainer *t, uint32_t step)
{
    trainer_snapshot *s = t->snapshot;
    if (!s || (int64_t)step != s->c.state.step)
        return;
    mark(t, s);
    if (!s->disk) /* else its generation is kept once it is committed */
        keep_ranges(s);
}

/* On disk everything is put anew, beside a generation that is kept. */
static void leave(void *ctx, uint64_t first, uint64_t n)
{
    const train_engine *e = ctx;
    if (e->disk)
        swap_disk_renew(e->disk);
    else
        swap_cow_leave(e->cow, first, n);
}

train_reader trainer_snapshot_reader(trainer *t)
{
    return (train_reader){t->engine, leave};
}

/* A pool changes weights before a step's updates do; its marks are of what stands after them. */
void trainer_on_updates(void *ctx, uint32_t step, bool begin)
{
    trainer *t = ctx;
    const train_reader reader = trainer_snapshot_reader(t);
    trainer_seam_updates(t, &reader, begin);
    if (!begin)
        snapshot_after_updates(t, step);
}
