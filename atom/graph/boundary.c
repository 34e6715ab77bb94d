/*
 * Owns what crosses a cut. One idea: a tensor crosses exactly when it is produced before the cut
 * and its last forward use is not; saved tensors have no forward use, so they never cross. Refuses
 * cuts with nothing or with too much crossing.
 */
#include "atom/graph/graph.h"

#include "atom/base/mem.h"

static bool crosses(const graph_tensor *t, int32_t cut)
{
    return t->producer != GRAPH_NONE && t->producer < cut && t->last_use >= cut;
}

uint32_t graph_boundary(const graph *g, int32_t cut, int32_t *ids, uint32_t max)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        if (!crosses(&g->tensors[i], cut))
            continue;
        if (n < max)
            ids[n] = (int32_t)i;
        n++;
    }
    return n;
}

bool graph_can_cut(const graph *g, int32_t cut)
{
    if (cut < 1 || cut >= (int32_t)g->n_nodes)
        return false;
    uint32_t n = graph_boundary(g, cut, NULL, 0);
    return n >= 1 && n <= GRAPH_BOUNDARY_MAX;
}

uint64_t graph_boundary_bytes(const graph *g, int32_t cut)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (crosses(&g->tensors[i], cut))
            bytes += atom_align(graph_tensor_bytes(g, (int32_t)i));
    return bytes;
}
