/*
 * Owns the step that members of a pool make of their summed gradient
 * (docs/design/pool.md#agreement, gradients mode). One idea: every member computes it for itself,
 * so every operation is one whose result IEEE 754 fixes: no function of a mathematical library,
 * sums in a fixed order, and it goes in pieces, whose length moves no bit. Refuses gradients that are
 * not finite before anything was changed.
 */
#include "atom/pool/step.h"

#include <math.h>
#include <string.h>

/* base^n by squaring. */
static double power(double base, uint64_t n)
{
    double out = 1;
    for (; n; n >>= 1, base *= base)
        if (n & 1)
            out *= base;
    return out;
}

static krn_adamw_step scalars(const pool_update *u, uint64_t step, double norm, double rate)
{
    double scale = 1;
    if (u->max_grad_norm > 0 && u->max_grad_norm < norm + 1e-6) /* as in torch's clip_grad_norm_ */
        scale = u->max_grad_norm / (norm + 1e-6);
    return (krn_adamw_step){.scale = (float)scale,
                            .beta1 = (float)u->beta1,
                            .one_minus_beta1 = (float)(1 - u->beta1),
                            .beta2 = (float)u->beta2,
                            .one_minus_beta2 = (float)(1 - u->beta2),
                            .inv_bias1 = (float)(1 / (1 - power(u->beta1, step))),
                            .inv_sqrt_bias2 = (float)(1 / sqrt(1 - power(u->beta2, step))),
                            .eps = (float)u->epsilon,
                            .lr = (float)rate};
}

uint64_t pool_step_space(const pool_update *u)
{
    uint64_t most = 0;
    for (uint32_t k = 0; k < u->n_params; k++) {
        const swap_param *p = &u->params[k];
        for (uint8_t i = 0; i < p->n_matrices; i++) {
            uint64_t bytes = u->products ? (uint64_t)p->rows[i] * sizeof(double)
                                         : krn_muon_space(p->rows[i], p->cols);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

uint64_t pool_step_matrix_floats(const pool_update *u)
{
    uint64_t most = 0;
    for (uint32_t k = 0; k < u->n_params; k++)
        for (uint8_t i = 0; i < u->params[k].n_matrices; i++) {
            uint64_t n = (uint64_t)(u->params[k].rows[i] * u->params[k].cols);
            most = n > most ? n : most;
        }
    return most;
}

/* A step under way. */
typedef struct stepping {
    const pool_update *u;
    const pool_floats *x, *before;
    const pool_step_vectors *from, *to;
    pool_room room;
    void *space;
    krn_adamw_step adamw;
    krn_muon_step muon;
} stepping;

/* Floats [at, at + n) of a vector, where the next version of them is made. */
static atom_status lift(const stepping *s, const pool_floats *from, const pool_floats *to, int k,
                        uint64_t at, uint64_t n, float **out)
{
    float *room = s->room.at ? s->room.at + (uint64_t)k * s->room.floats : NULL;
    const float *is;
    *out = pool_floats_place(to, at, room);
    ATOM_TRY(pool_floats_look(from, at, n, room, &is));
    if (is != *out)
        memcpy(*out, is, n * sizeof **out);
    return ATOM_OK;
}

static atom_status step_matrix(const stepping *s, int64_t rows, int64_t cols, float *x,
                               float *weights, float *m)
{
    const krn_host_table *host = s->u->host;
    if (!s->u->products) {
        host->muon(s->u->threads, &s->muon, ATOM_F32, x, weights, m, rows, cols, s->space);
        return ATOM_OK;
    }
    host->muon_begin(s->u->threads, &s->muon, ATOM_F32, x, m, rows, cols, s->space);
    ATOM_TRY(train_products_make(s->u->products, x, rows, cols));
    host->muon_end(s->u->threads, &s->muon, ATOM_F32, x, weights, rows, cols);
    return ATOM_OK;
}

/* What is made of a piece: nothing between parameters, where param is NULL; rows 0: by AdamW. */
static atom_status step_piece(const stepping *s, const swap_param *param, int64_t rows, uint64_t at,
                              uint64_t n)
{
    float *x = NULL, *weights, *m, *v;
    ATOM_TRY(lift(s, &s->from->weights, &s->to->weights, 1, at, n, &weights));
    ATOM_TRY(lift(s, &s->from->m, &s->to->m, 2, at, n, &m));
    ATOM_TRY(lift(s, &s->from->v, &s->to->v, 3, at, n, &v));
    if (param)
        ATOM_TRY(lift(s, s->x, s->x, 0, at, n, &x));
    if (s->before)
        ATOM_TRY(pool_floats_put(s->before, at, n, weights));
    if (rows)
        ATOM_TRY(step_matrix(s, rows, param->cols, x, weights, m));
    else if (param)
        s->u->host->adamw(s->u->threads, &s->adamw, ATOM_F32, x, weights, m, v, n);
    ATOM_TRY(pool_floats_put(&s->to->weights, at, n, weights));
    ATOM_TRY(pool_floats_put(&s->to->m, at, n, m));
    return pool_floats_put(&s->to->v, at, n, v);
}

/* As many of them as there is room for at once. */
static atom_status step_pieces(const stepping *s, const swap_param *param, uint64_t at, uint64_t n)
{
    for (uint64_t some; n > 0; at += some, n -= some) {
        some = s->room.at && n > s->room.floats ? s->room.floats : n;
        ATOM_TRY(step_piece(s, param, 0, at, some));
    }
    return ATOM_OK;
}

static atom_status step_param(stepping *s, const swap_param *param)
{
    uint64_t at = param->offset;
    s->adamw.decay = param->decay ? (float)s->u->weight_decay : 0;
    s->muon.decay = param->decay ? s->u->weight_decay : 0;
    if (!param->n_matrices)
        return step_pieces(s, param, at, param->elements);
    for (uint8_t i = 0; i < param->n_matrices; i++) {
        uint64_t n = (uint64_t)(param->rows[i] * param->cols);
        ATOM_TRY(step_piece(s, param, param->rows[i], at, n));
        at += n;
    }
    return ATOM_OK;
}

atom_status pool_step_make(const pool_update *u, uint64_t step, double norm, uint64_t n,
                           const pool_floats *x, const pool_step_vectors *from,
                           const pool_step_vectors *to, const pool_floats *before, pool_room room,
                           void *space, double *rate)
{
    uint64_t of = u->schedule_batch ? u->schedule_batch : 1, done = 0;
    uint64_t each = u->schedule_batch ? u->micro_batches * u->micro_batch : 1;
    double lr = train_schedule_rate(&u->schedule, (int64_t)((step - 1) * each / of) + 1);
    if (!isfinite(norm))
        return atom_fail(ATOM_E_DIVERGED,
                         "step %llu: the pool's gradient is not finite; nothing was updated. "
                         "Restart the pool from a checkpoint with a lower learning_rate",
                         (unsigned long long)step);
    stepping s = {.u = u,
                  .x = x,
                  .before = before,
                  .from = from,
                  .to = to,
                  .room = room,
                  .space = space,
                  .adamw = scalars(u, step, norm, lr),
                  .muon = {.momentum = (float)u->muon_momentum, .lr = lr, .moments = ATOM_F32}};
    s.muon.scale = s.adamw.scale;
    for (uint32_t k = 0; k < u->n_params; k++) {
        const swap_param *p = &u->params[k];
        ATOM_TRY(step_pieces(&s, NULL, done, p->offset - done));
        ATOM_TRY(step_param(&s, p));
        done = p->offset + p->elements;
    }
    ATOM_TRY(step_pieces(&s, NULL, done, n - done));
    *rate = lr;
    return ATOM_OK;
}

void pool_update_of(const trainer *t, uint32_t micro_batches, pool_update *out)
{
    const train_config *c = trainer_config(t);
    const plan_workbench *bench = trainer_workbench(t);
    const gen_lowered *low = trainer_lowered(t);
    *out = (pool_update){.schedule = train_schedule_make(c),
                         .beta1 = c->adam_beta1,
                         .beta2 = c->adam_beta2,
                         .epsilon = c->adam_epsilon,
                         .weight_decay = c->weight_decay,
                         .max_grad_norm = c->max_grad_norm,
                         .muon_momentum = c->muon_momentum,
                         .micro_batches = micro_batches,
                         .micro_batch = (uint64_t)bench->g->micro_batch,
                         .params = low->params,
                         .n_params = low->n_params,
                         .host = bench->host,
                         .threads = bench->threads};
}
