/* graph_parse on any bytes: refuses, or gives a graph whose text comes back and that fuses. */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "atom/graph/graph.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_at(const graph *g)
{
    char *text = NULL, *again = NULL;
    graph *back = NULL, *fused = NULL;
    if (graph_print(g, &text) == ATOM_OK) {
        ATOM_ASSERT(graph_parse(text, strlen(text), &back) == ATOM_OK);
        ATOM_ASSERT(graph_print(back, &again) == ATOM_OK && strcmp(text, again) == 0);
        ATOM_ASSERT(graph_hash(g) == graph_hash(back));
    }
    /* may fail in one way: a fused node's saved tensor "x.u" meets a node of that name */
    if (graph_fuse(g, &fused) != ATOM_OK) {
        ATOM_ASSERT(strstr(atom_fail_message(), "are named"));
        fused = back;
        back = NULL;
    }
    ATOM_ASSERT(fused->param_extent == g->param_extent && fused->n_nodes <= g->n_nodes);
    for (uint32_t n = 0; n < fused->n_nodes && n < 64; n++) {
        ATOM_ASSERT(graph_node_flops(fused, (int32_t)n, true) >= 0);
        ATOM_ASSERT(graph_boundary_bytes(fused, (int32_t)n) < (uint64_t)1 << 62);
    }
    atom_free(text);
    atom_free(again);
    graph_close(&back);
    graph_close(&fused);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    graph *g = NULL;
    if (graph_parse((const char *)data, size, &g) == ATOM_OK)
        look_at(g);
    else
        ATOM_ASSERT(!g && atom_fail_message()[0] != '\0');
    graph_close(&g);
    ATOM_ASSERT(atom_mem_read().live_blocks == 0);
    return 0;
}
