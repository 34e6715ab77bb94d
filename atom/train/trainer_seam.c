/*
 * Owns the places where a run lets somebody take part (train_seam): a pool sees and moves the
 * weights between two updates, says how fast to learn and when to stop. One idea: without a seam
 * every function here does what the trainer did without it, bit for bit. Refuses to wait: a run
 * that does is trainer_shared.c.
 */
#include "atom/train/trainer_inner.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/plan/device.h"

static const train_seam *seam_of(const trainer *t)
{
    return t->hooks.seam;
}

double trainer_seam_rate(const trainer *t, int64_t step)
{
    const train_seam *s = seam_of(t);
    return s && s->rate ? s->rate(s->ctx, &t->schedule) : train_schedule_rate(&t->schedule, step);
}

bool trainer_seam_done(const trainer *t)
{
    const train_seam *s = seam_of(t);
    return s && s->done ? s->done(s->ctx) : t->state.step >= t->config->max_steps;
}

bool trainer_seam_stands(const trainer *t)
{
    const train_seam *s = seam_of(t);
    return s && s->stands && s->stands(s->ctx);
}

void trainer_seam_stepped(const trainer *t)
{
    const train_seam *s = seam_of(t);
    if (s && s->stepped)
        s->stepped(s->ctx, (uint64_t)t->state.samples, (uint64_t)t->state.tokens_seen);
}

void trainer_seam_updates(trainer *t, const train_reader *reader, bool begin)
{
    const train_seam *s = seam_of(t);
    if (s && begin && s->before_updates)
        s->before_updates(s->ctx, train_engine_masters(t->engine), reader);
    if (s && !begin && s->after_updates)
        s->after_updates(s->ctx, train_engine_masters(t->engine));
}

void trainer_on_block(void *ctx, uint64_t first, uint64_t n, float *masters, bool begin)
{
    const trainer *t = ctx;
    const train_seam *s = seam_of(t);
    if (s && s->block)
        s->block(s->ctx, first, n, masters, begin);
}

char *trainer_seam_marks(const trainer *t)
{
    const train_seam *s = seam_of(t);
    return s && s->marks ? s->marks(s->ctx) : NULL;
}

atom_status trainer_seam_resume(trainer *t, const char *checkpoint)
{
    atom_status st = ATOM_OK;
    uint64_t bytes;
    char *path = seam_of(t) ? atom_path_join(checkpoint, "pool.json") : NULL;
    if (seam_of(t) && !path)
        st = atom_fail_memory("a path", 256);
    else if (path && atom_path_exists(path))
        st = atom_file_read(path, 1 << 20, &t->marks, &bytes);
    atom_free(path);
    return st;
}

uint64_t trainer_seam_host_bytes(const trainer *t, bool least)
{
    const train_seam *s = seam_of(t);
    double each = !s ? 0 : least ? s->least_bytes_per_float : s->host_bytes_per_float;
    return (uint64_t)(each * (double)t->bench->g->trained_extent);
}

bool trainer_stays_in_memory(const trainer *t)
{
    const train_seam *s = seam_of(t);
    return s && s->shared && s->least_bytes_per_float <= 0;
}

atom_status trainer_products_open(trainer *t, train_products **out)
{
    const krn_table *table;
    dev *device = NULL;
    atom_status st;
    *out = NULL;
    if (!t->products_bytes)
        return ATOM_OK;
    ATOM_TRY(plan_device_table(t->bench->card, ATOM_F32, &table));
    st = plan_device_open(t->bench, 0, t->products_bytes, &device);
    if (st == ATOM_OK)
        st = train_products_open(t->bench->g, &device, table, out);
    if (st != ATOM_E_RESOURCE)
        return st;
    trainer_note(t, "muon: the host makes the matrix products of the pool's steps: %s",
                 atom_fail_message());
    return ATOM_OK;
}

bool trainer_seam_on_disk(const trainer *t)
{
    return t->seam_on_disk;
}
