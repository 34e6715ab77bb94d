/* Owns initial weights. One idea: a weight is a pure function of (seed, parameter, element). */
#include "atom/train/init.h"

#include "atom/base/rng.h"

#include <string.h>

static void init_param(const graph_param *p, uint32_t index, uint64_t seed, float *at)
{
    atom_rng_key key = {.seed = seed, .step = 0, .micro_batch = 0, .node = index};
    for (uint64_t e = 0; e < p->elements; e++) {
        if (p->init == GRAPH_INIT_NORMAL)
            at[e] = (float)(atom_rng_normal(key, e) * (double)p->init_std);
        else
            at[e] = p->init == GRAPH_INIT_ONE ? 1.0f : 0.0f;
    }
}

void train_init_weights(const graph *g, uint64_t seed, float *master)
{
    memset(master, 0, g->param_extent * sizeof *master);
    for (uint32_t p = 0; p < g->n_params; p++)
        init_param(&g->params[p], p, seed, master + g->params[p].offset);
}
