/*
 * Owns the question whether a backend can run a graph. One idea: it is asked before anything is
 * laid out, so that a missing kernel is a sentence and not a crash. Refuses a graph by the first
 * node that has no kernel.
 */
#include "codegen/lower.h"

#include <stdio.h>

static atom_status lacks(const graph_node *node, const krn_table *table, const char *what)
{
    return atom_fail(ATOM_E_UNSUPPORTED,
                     "node \"%s\": op %s%s is not available on %s yet; use another device",
                     node->name, atom_op_get(node->op)->name, what, table->backend);
}

/* D of attention: of a token come H query heads, K key heads, K value heads. */
static int64_t head_dim(const graph *g, const graph_node *n)
{
    const graph_tensor *qkv = &g->tensors[n->in[0]];
    int64_t K = n->kv_heads ? n->kv_heads : n->heads;
    return qkv->dims[qkv->rank - 1] / (n->heads + 2 * K);
}

static const char *wide_text(const krn_table *table, char text[64])
{
    snprintf(text, 64, " with heads wider than %lld", (long long)table->head_dim_max);
    return text;
}

atom_status gen_supports(const graph *g, const krn_table *table)
{
    char text[64];
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const graph_node *n = &g->nodes[i];
        bool grouped = n->op == ATOM_OP_attention && n->kv_heads && n->kv_heads < n->heads;
        bool terminal = atom_op_get(n->op)->flags & ATOM_OP_TERMINAL;
        if (!table->bwd[n->op] || (!terminal && !table->fwd[n->op]))
            return lacks(n, table, "");
        if (grouped && !(table->can & KRN_CAN_GROUPED))
            return lacks(n, table, " with fewer key heads than heads");
        if (n->op == ATOM_OP_attention && n->window && n->window < g->sequence &&
            !(table->can & KRN_CAN_WINDOW))
            return lacks(n, table, " with a window (sliding_window, shorter than sequence_len)");
        if (n->op == ATOM_OP_attention && table->head_dim_max &&
            head_dim(g, n) > table->head_dim_max)
            return lacks(n, table, wide_text(table, text));
        if (n->op == ATOM_OP_embed && n->n_params == 1 && !(table->can & KRN_CAN_NO_PLACES))
            return lacks(n, table, " without positions");
    }
    return ATOM_OK;
}
