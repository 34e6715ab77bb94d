/*
 * Owns the places where a run lets somebody take part (train_seam): a pool sees and moves the
 * weights between two updates, says how fast to learn and when to stop. One idea: without a seam
 * every function here does what the trainer did without it, bit for bit. Refuses to wait: a run
 * that does is trainer_shared.c.
 */
#include "atom/train/trainer_inner.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"

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

void trainer_seam_stepped(const trainer *t)
{
    const train_seam *s = seam_of(t);
    if (s && s->stepped)
        s->stepped(s->ctx, (uint64_t)t->state.samples, (uint64_t)t->state.tokens_seen);
}

void trainer_seam_updates(trainer *t, bool begin)
{
    const train_seam *s = seam_of(t);
    const train_reader reader = trainer_snapshot_reader(t);
    if (s && begin && s->before_updates)
        s->before_updates(s->ctx, train_engine_masters(t->engine), &reader);
    if (s && !begin && s->after_updates)
        s->after_updates(s->ctx, train_engine_masters(t->engine));
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

uint64_t trainer_seam_host_bytes(const trainer *t)
{
    const train_seam *s = seam_of(t);
    return s ? (uint64_t)(s->host_bytes_per_float * (double)t->bench->g->trained_extent) : 0;
}

/* --- for who takes part ---------------------------------------------------------------------- */

file_vector trainer_weights(trainer *t)
{
    return train_engine_vector(t->engine, SWAP_STATE_MASTER);
}

uint64_t trainer_floats(const trainer *t)
{
    return t->bench->g->trained_extent; /* what is frozen is equal everywhere */
}

atom_status trainer_weights_changed(trainer *t)
{
    return train_engine_sync(t->engine);
}

atom_status trainer_describe(const trainer *t, const char *dir)
{
    return file_config_write(dir, &t->bench->model.config, t->bench->model.source, t->vocab.end);
}

trainer_place trainer_where(const trainer *t)
{
    return (trainer_place){.step = t->state.step,
                           .samples = (uint64_t)t->state.samples,
                           .tokens = (uint64_t)t->state.tokens_seen,
                           .sequence = (uint64_t)t->bench->g->sequence,
                           .data_hash = text_shards_hash(t->train),
                           .marks = t->marks};
}
