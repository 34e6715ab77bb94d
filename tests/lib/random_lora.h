/*
 * LoRA on some of a random model's linears, on all or a part of their rows: a pure function of the
 * seed and the graph.
 */
#ifndef TESTS_LIB_RANDOM_LORA_H
#define TESTS_LIB_RANDOM_LORA_H

#include "atom/graph/graph.h"
#include "tests/lib/random_gpt2.h"

#include <stdio.h>

/* Replaces *g, which must be unfused. dora: half of all are DoRA. */
static inline atom_status random_lora(uint64_t seed, bool dora, graph **g)
{
    graph_target targets[64];
    uint32_t n = 0;
    graph *adapted = NULL;
    graph_lora_config c = {.rank = random_gpt2_draw(seed, 58, 1, 4),
                           .scale = (float)random_gpt2_draw(seed, 59, 1, 4) / 2,
                           .dropout = random_gpt2_draw(seed, 60, 0, 1) ? 0.2f : 0,
                           .dora = dora && random_gpt2_draw(seed, 61, 0, 1)};
    for (int32_t p = 0; p < (int32_t)(*g)->n_params && n < 62; p++) {
        const graph_param *w = &(*g)->params[p];
        const graph_node *node = &(*g)->nodes[w->first_node];
        bool drawn = random_gpt2_draw(seed, 100 + (uint32_t)p, 0, 2) > 0;
        if (node->op != ATOM_OP_linear || w->rank != 2 || w->shared || !(drawn || n == 0))
            continue;
        for (int part = 0; part < 2; part++) {
            int64_t half = w->dims[0] / 2;
            graph_target *t = &targets[n++];
            *t = (graph_target){.param = p,
                                .first = part ? half + 1 : 0,
                                .rows = part ? w->dims[0] - half - 1 : half};
            snprintf(t->name, sizeof t->name, "t%d.%d", p, part);
            if (t->rows < c.rank)
                n--;
        }
    }
    ATOM_TRY(graph_lora(*g, &c, targets, n, &adapted));
    graph_close(g);
    *g = adapted;
    return ATOM_OK;
}

#endif
