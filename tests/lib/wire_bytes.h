/*
 * What the parameters of nodes [first, last) take as they are computed with, in bytes.
 */
#ifndef TESTS_LIB_WIRE_BYTES_H
#define TESTS_LIB_WIRE_BYTES_H

#include "atom/graph/graph.h"

static inline uint64_t wire_bytes_of(const graph *g, int32_t first, int32_t last)
{
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < g->n_params; p++) {
        bool used = false;
        for (int32_t i = first; i < last; i++) {
            for (int j = 0; j < g->nodes[i].n_params; j++)
                used |= g->nodes[i].params[j] == (int32_t)p;
        }
        uint64_t room = (g->params[p].elements + GRAPH_PARAM_ALIGN - 1) / GRAPH_PARAM_ALIGN;
        bytes += used ? room * GRAPH_PARAM_ALIGN * atom_dtype_bytes(g->dtype) : 0;
    }
    return bytes;
}

#endif
