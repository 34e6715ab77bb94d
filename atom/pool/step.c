/*
 * Owns the step that members of a pool make of their summed gradient
 * (docs/design/pool.md#agreement, gradients mode). One idea: every member computes it for itself,
 * so every operation is one whose result IEEE 754 fixes: no function of a mathematical library,
 * sums in a fixed order. Refuses gradients that are not finite before anything was changed.
 */
#include "atom/pool/step.h"

#include "gossip/sum/reduce.h"

#include <math.h>

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
            uint64_t bytes = krn_muon_space(p->rows[i], p->cols);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

/* One parameter's matrices, one after the other. Its gradient lies where the kernel looks for the
 * wire copy, in fp32. */
static void step_matrices(const pool_update *u, const swap_param *p, const krn_adamw_step *all,
                          double rate, float *x, float *weights, float *m, void *space)
{
    const krn_muon_step step = {.scale = all->scale,
                                .momentum = (float)u->muon_momentum,
                                .lr = rate,
                                .decay = p->decay ? u->weight_decay : 0,
                                .moments = ATOM_F32};
    uint64_t at = p->offset;
    for (uint8_t i = 0; i < p->n_matrices; i++) {
        u->host->muon(u->threads, &step, ATOM_F32, x + at, weights + at, m + at, p->rows[i],
                      p->cols, space);
        at += (uint64_t)(p->rows[i] * p->cols);
    }
}

atom_status pool_step_make(const pool_update *u, uint64_t step, uint64_t n, float *x,
                           float *weights, float *m, float *v, void *space, double *grad_norm,
                           double *rate)
{
    uint64_t of = u->schedule_batch ? u->schedule_batch : 1;
    uint64_t each = u->schedule_batch ? u->micro_batches * u->micro_batch : 1;
    double norm = gsp_norm(x, n);
    double lr = train_schedule_rate(&u->schedule, (int64_t)((step - 1) * each / of) + 1);
    if (!isfinite(norm))
        return atom_fail(ATOM_E_DIVERGED,
                         "step %llu: the pool's gradient is not finite; nothing was updated. "
                         "Restart the pool from a checkpoint with a lower learning_rate",
                         (unsigned long long)step);
    krn_adamw_step s = scalars(u, step, norm, lr);
    for (uint32_t k = 0; k < u->n_params; k++) {
        const swap_param *p = &u->params[k];
        s.decay = p->decay ? (float)u->weight_decay : 0;
        if (p->n_matrices)
            step_matrices(u, p, &s, lr, x, weights, m, space);
        else
            u->host->adamw(u->threads, &s, ATOM_F32, x + p->offset, weights + p->offset,
                           m + p->offset, v + p->offset, p->elements);
    }
    *grad_norm = norm;
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
