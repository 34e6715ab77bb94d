/*
 * One trainer whose gradients are taken at the weights of `delay` steps before, in the plainest way: all
 * micro-batches of a step by the trainer, then clipping and AdamW written out here. Without a delay it has
 * to be what the trainer makes by itself; that is what this is checked by. Knows nothing of pools but the
 * numbers of an update. Thread: the trainer's.
 */
#ifndef ATOM_TESTS_DELAYED_ORACLE_H
#define ATOM_TESTS_DELAYED_ORACLE_H

#include "atom/base/mem.h"
#include "atom/pool/anchor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct delayed_oracle {
    pool_update u;
    train_seam seam;
    unsigned delay; /* 0 or 1 */
    uint64_t n, steps, last, tokens;
    float *weights, *before, *m, *v, *sum;
    uint32_t *list;
    bool whole;
} delayed_oracle;

static void delayed_oracle_update(delayed_oracle *o)
{
    const pool_update *u = &o->u;
    double square = 0, one = 1 / (double)o->tokens, t = (double)(o->steps + 1);
    double rate = train_schedule_rate(&u->schedule, (int64_t)o->steps + 1);
    for (uint64_t i = 0; i < o->n; i++)
        square += o->sum[i] * one * (o->sum[i] * one);
    double norm = sqrt(square), scale = norm > u->max_grad_norm ? u->max_grad_norm / norm : 1;
    memcpy(o->before, o->weights, o->n * sizeof(float));
    for (uint32_t k = 0; k < u->n_params; k++)
        for (uint64_t e = 0; e < u->params[k].elements; e++) {
            uint64_t i = u->params[k].offset + e;
            double g = o->sum[i] * one * scale, w = o->weights[i];
            double m = u->beta1 * o->m[i] + (1 - u->beta1) * g;
            double v = u->beta2 * o->v[i] + (1 - u->beta2) * g * g;
            double root = sqrt(v / (1 - pow(u->beta2, t)));
            w -= u->params[k].decay ? rate * u->weight_decay * w : 0;
            o->weights[i] = (float)(w - rate * (m / (1 - pow(u->beta1, t))) / (root + u->epsilon));
            o->m[i] = (float)m;
            o->v[i] = (float)v;
        }
    o->steps++;
}

static atom_status delayed_oracle_take(void *context, const file_vector state[3],
                                       const train_reader *reader, train_lease *out)
{
    delayed_oracle *o = context;
    if (!o->weights) {
        float **all[] = {&o->weights, &o->before, &o->m, &o->v, &o->sum};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            if (!(*all[k] = atom_alloc(o->n, sizeof(float))))
                abort();
        ATOM_TRY(state[0].get(state[0].ctx, 0, o->n, o->weights));
        memcpy(o->before, o->weights, o->n * sizeof(float));
    }
    if (o->whole)
        delayed_oracle_update(o);
    bool over = o->steps == o->last;
    if (reader)
        reader->leave(reader->ctx, 0, o->n);
    ATOM_TRY(state[0].put(state[0].ctx, 0, o->n, o->delay && !over ? o->before : o->weights));
    memset(o->sum, 0, o->n * sizeof(float));
    o->whole = false;
    uint64_t samples = o->steps * o->u.micro_batches * o->u.micro_batch;
    *out = (train_lease){.steps = o->steps,
                         .batch = o->steps,
                         .samples = samples,
                         .first_sample = samples,
                         .moved = true,
                         .n = over ? 0 : o->u.micro_batches,
                         .micro_batch = o->list,
                         .sum = o->sum};
    return ATOM_OK;
}

static bool delayed_oracle_current(void *context, const train_lease *lease)
{
    (void)context;
    (void)lease;
    return true;
}

static void delayed_oracle_bring(void *context, const train_lease *lease, uint64_t tokens)
{
    delayed_oracle *o = context;
    (void)lease;
    o->tokens = tokens;
    o->whole = true;
}

static bool delayed_oracle_done(void *context)
{
    const delayed_oracle *o = context;
    return o->steps == o->last;
}

/* `last` steps of `micro_batches`; the seam is what the trainer is opened with, delayed_oracle_follow what
 * is said afterwards. */
static void delayed_oracle_open(delayed_oracle *o, unsigned delay, uint64_t last)
{
    *o = (delayed_oracle){.delay = delay, .last = last};
    o->seam = (train_seam){.ctx = o,
                           .shared = true,
                           .host_bytes_per_float = 24,
                           .take = delayed_oracle_take,
                           .current = delayed_oracle_current,
                           .bring = delayed_oracle_bring,
                           .done = delayed_oracle_done};
}

static void delayed_oracle_follow(delayed_oracle *o, const trainer *t, uint32_t micro_batches)
{
    pool_update_of(t, micro_batches, &o->u);
    o->n = trainer_floats(t);
    o->list = atom_alloc(micro_batches, sizeof *o->list);
    for (uint32_t i = 0; o->list && i < micro_batches; i++)
        o->list[i] = i;
}

static void delayed_oracle_close(delayed_oracle *o)
{
    atom_free(o->weights);
    atom_free(o->before);
    atom_free(o->m);
    atom_free(o->v);
    atom_free(o->sum);
    atom_free(o->list);
}

#endif
