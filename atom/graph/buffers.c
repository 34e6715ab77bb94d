/*
 * Owns the table of a model's buffers: what its files hold beside parameters, and nobody trains. One
 * idea: it may be large, so the graphs of one model hold it together. Refuses to know what types its
 * numbers have: atom/file does.
 */
#include "atom/graph/graph.h"

#include "atom/base/mem.h"

#include <stdlib.h>
#include <string.h>

atom_status graph_buffers_make(uint32_t n, graph_buffers **out)
{
    graph_buffers *b = atom_alloc(1, sizeof *b + n * sizeof b->all[0]);
    if (!b)
        return atom_fail_memory("a table of buffers", n * sizeof b->all[0]);
    atomic_init(&b->holders, 1);
    b->n = n;
    *out = b;
    return ATOM_OK;
}

void graph_buffers_release(graph_buffers **ref)
{
    graph_buffers *b = *ref;
    *ref = NULL;
    if (!b || atomic_fetch_sub(&b->holders, 1) > 1)
        return;
    for (uint32_t i = 0; i < b->n; i++)
        atom_free(b->all[i].data);
    atom_free(b);
}

void graph_set_buffers(graph *g, graph_buffers *b)
{
    if (b)
        atomic_fetch_add(&b->holders, 1);
    graph_buffers_release(&g->buffers);
    g->buffers = b;
}

uint64_t graph_buffers_bytes(const graph *g)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; g->buffers && i < g->buffers->n; i++)
        bytes += g->buffers->all[i].bytes;
    return bytes;
}

static int to_name(const void *key, const void *row)
{
    return strcmp(key, ((const graph_buffer *)row)->name);
}

const graph_buffer *graph_find_buffer(const graph *g, const char *name)
{
    const graph_buffers *b = g->buffers;
    return b ? bsearch(name, b->all, b->n, sizeof b->all[0], to_name) : NULL;
}
