/*
 * Owns the memory map of a decoder. One idea: all sizes follow from the graph, the room and
 * the chunk, so one block of device memory is laid out before any is taken; what the budget leaves
 * goes to parameters. Refuses a budget that cannot hold two slots, and says what would do.
 */
#include "atom/generate/decode_inner.h"

#include "atom/base/mem.h"
#include "atom/base/size.h"

#include <string.h>

/* A slot is at most this large, and at most this part of what is left for parameters: larger ones
 * hide no more, and cost memory that could keep parameters on the device. */
static const uint64_t SLOT_BYTES_MAX = (uint64_t)16 << 20;
enum { SLOT_PART = 8 };

static uint64_t place(uint64_t *top, uint64_t bytes)
{
    uint64_t at = *top;
    *top += atom_align(bytes);
    return at;
}

/* --- activations ------------------------------------------------------------------------------ */

typedef struct plan_block {
    uint64_t at, bytes;
    int32_t user; /* tensor, or GRAPH_NONE */
} plan_block;

typedef struct plan_blocks {
    plan_block *all;
    uint32_t n;
    uint64_t *top;
} plan_blocks;

/* The smallest free block that is large enough, or a new one. */
static void block_take(generate_decoder *d, plan_blocks *b, int32_t tensor)
{
    uint64_t bytes = atom_align((uint64_t)(decode_width(d, tensor) * d->chunk) *
                                atom_dtype_bytes(graph_tensor_dtype(d->c.g, tensor)));
    plan_block *best = NULL;
    for (uint32_t i = 0; i < b->n; i++) {
        plan_block *one = &b->all[i];
        if (one->user == GRAPH_NONE && one->bytes >= bytes && (!best || one->bytes < best->bytes))
            best = one;
    }
    if (!best) {
        best = &b->all[b->n++];
        *best = (plan_block){.at = place(b->top, bytes), .bytes = bytes};
    }
    best->user = tensor;
    d->tensor_at[tensor] = best->at;
}

static void block_give(plan_blocks *b, int32_t tensor)
{
    for (uint32_t i = 0; i < b->n; i++) {
        if (b->all[i].user == tensor)
            b->all[i].user = GRAPH_NONE;
    }
}

static atom_status place_tensors(generate_decoder *d, uint64_t *top)
{
    const graph *g = d->c.g;
    plan_blocks b = {.all = atom_alloc(g->n_tensors, sizeof *b.all), .top = top};
    if (!b.all)
        return atom_fail_memory("the activations' places", g->n_tensors * sizeof *b.all);
    for (uint32_t i = 0; i < g->n_tensors; i++)
        d->tensor_at[i] = DECODE_NOWHERE;
    for (int32_t i = 0; i < d->head; i++) {
        const graph_node *nd = &g->nodes[i];
        const atom_op_info *op = atom_op_get(nd->op);
        int saved = nd->op == ATOM_OP_attention ? 0 : op->saved;
        for (int o = 0; o < op->outs; o++)
            block_take(d, &b, nd->out[o]);
        for (int o = 0; o < saved; o++)
            block_take(d, &b, nd->saved[o]);
        for (int o = 0; o < saved; o++)
            block_give(&b, nd->saved[o]);
        for (int o = 0; o < op->ins; o++) {
            if (g->tensors[nd->in[o]].last_use == i)
                block_give(&b, nd->in[o]);
        }
    }
    atom_free(b.all);
    return ATOM_OK;
}

static void place_caches(generate_decoder *d, uint64_t *top)
{
    const graph *g = d->c.g;
    uint64_t before = *top;
    for (int32_t i = 0; i < d->head; i++) {
        const graph_node *nd = &g->nodes[i];
        if (nd->op != ATOM_OP_attention)
            continue;
        int64_t K = nd->kv_heads ? nd->kv_heads : nd->heads;
        int64_t width = decode_width(d, nd->out[0]) / nd->heads * K;
        d->cache_bytes =
            atom_align(decode_bytes(d, (uint64_t)(width * krn_attend_room(d->c.room))));
        d->keys_at[i] = place(top, 2 * d->cache_bytes);
    }
    d->caches_bytes = *top - before;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t node_workspace(const generate_decoder *d, int32_t node)
{
    const graph_node *nd = &d->c.g->nodes[node];
    const krn_table *table = d->c.table;
    int64_t dim[KRN_DIM_MAX];
    uint64_t bytes = 0;
    if (nd->op == ATOM_OP_attention)
        return d->c.decode->attend_workspace(d->c.threads, d->c.room,
                                             decode_width(d, nd->out[0]) / nd->heads);
    decode_dims(d, node, 1, dim);
    if (decode_row_kernel(d, node))
        bytes = d->c.decode->row_workspace(dim[1]);
    if (table->workspace) {
        bytes = larger(bytes, table->workspace(nd->op, 0, dim));
        decode_dims(d, node, d->chunk, dim);
        bytes = larger(bytes, table->workspace(nd->op, 0, dim));
    }
    return bytes;
}

/* Everything but parameters. */
static atom_status place_fixed(generate_decoder *d)
{
    uint64_t top = 0;
    ATOM_TRY(place_tensors(d, &top));
    place_caches(d, &top);
    d->tokens_at = place(&top, (uint64_t)d->chunk * sizeof(int32_t));
    if (decode_swaps(d))
        d->token_rows_at = place(&top, 2 * decode_bytes(d, (uint64_t)(d->chunk * d->C)));
    d->logits_at = place(&top, (uint64_t)d->V * sizeof(float));
    d->workspace_bytes = d->c.decode->row_workspace(d->C);
    for (int32_t i = 0; i < d->head; i++)
        d->workspace_bytes = larger(d->workspace_bytes, node_workspace(d, i));
    d->workspace_at = place(&top, d->workspace_bytes);
    d->arena_bytes = d->fixed_bytes = top;
    return ATOM_OK;
}

/* --- parameters ------------------------------------------------------------------------------- */

/* The range [*from, *to) of the canonical vector that a node needs; empty for the embedding. */
static void node_span(const generate_decoder *d, int32_t node, uint64_t *from, uint64_t *to)
{
    const graph_node *nd = &d->c.g->nodes[node];
    *from = UINT64_MAX;
    *to = 0;
    for (int i = 0; i < nd->n_params && node != d->embed; i++) {
        const graph_param *p = &d->c.g->params[nd->params[i]];
        uint64_t end = p->offset + p->elements;
        *from = p->offset < *from ? p->offset : *from;
        *to = end > *to ? end : *to;
    }
    if (*to == 0)
        *from = 0;
}

static uint64_t largest_node_bytes(const generate_decoder *d)
{
    uint64_t bytes = decode_bytes(d, (uint64_t)d->C), from, to;
    for (int32_t i = 0; i < d->head; i++) {
        node_span(d, i, &from, &to);
        bytes = larger(bytes, atom_align(decode_bytes(d, to - from)));
    }
    return bytes;
}

/* Consecutive nodes while their parameters fit a slot. */
static void cut_nodes(generate_decoder *d, uint64_t slot_bytes)
{
    decode_part *part = NULL;
    for (int32_t i = 0; i < d->head; i++) {
        uint64_t from, to;
        node_span(d, i, &from, &to);
        bool none = from == to;
        if (part && !none) {
            uint64_t first = part->elements ? part->offset : from;
            if (from < first || decode_bytes(d, to - first) > slot_bytes)
                part = NULL;
        }
        if (!part) {
            part = &d->parts[d->n_parts++];
            *part = (decode_part){.d = d, .first = i};
        }
        part->last = i + 1;
        if (none)
            continue;
        if (part->elements == 0)
            part->offset = from;
        part->elements = to - part->offset;
    }
}

static int64_t head_rows(const generate_decoder *d, uint64_t slot_bytes)
{
    int64_t rows = (int64_t)(slot_bytes / decode_bytes(d, (uint64_t)d->C));
    rows = rows < 64 ? rows : rows / 64 * 64;
    return rows < d->V ? rows : d->V;
}

static void cut_head(generate_decoder *d, uint64_t slot_bytes)
{
    const graph_param *w = &d->c.g->params[d->c.g->nodes[d->head].params[0]];
    int64_t step = head_rows(d, slot_bytes);
    for (int64_t row = 0; row < d->V; row += step) {
        int64_t rows = d->V - row < step ? d->V - row : step;
        d->parts[d->n_parts++] = (decode_part){.d = d,
                                               .row = row,
                                               .rows = rows,
                                               .offset = w->offset + (uint64_t)(row * d->C),
                                               .elements = (uint64_t)(rows * d->C)};
    }
}

static uint64_t part_bytes(const generate_decoder *d, uint32_t i)
{
    return atom_align(decode_bytes(d, d->parts[i].elements));
}

/* Gives places to the parts: all of them, or as many as fit beside the slots, spread evenly so that
 * copies hide behind the work of those that stay. */
static void place_parts(generate_decoder *d, uint64_t left)
{
    uint64_t total = 0, room, share, credit = 0;
    for (uint32_t i = 0; i < d->n_parts; i++)
        total += part_bytes(d, i);
    bool all = total <= left;
    if (!all) {
        d->slot_at[0] = place(&d->arena_bytes, d->slot_bytes);
        d->slot_at[1] = place(&d->arena_bytes, d->slot_bytes);
    }
    room = share = all ? total : left - 2 * d->slot_bytes;
    for (uint32_t i = 0; i < d->n_parts; i++) {
        uint64_t bytes = part_bytes(d, i);
        credit += (uint64_t)((double)bytes * (double)share / (double)total);
        d->parts[i].streamed = bytes && !all && (credit < bytes || room < bytes);
        if (d->parts[i].streamed)
            continue;
        credit -= credit < bytes ? credit : bytes;
        room -= bytes;
        d->resident_at[i] = place(&d->arena_bytes, bytes);
    }
}

static atom_status refuse(const generate_decoder *d, uint64_t budget, uint64_t slot_bytes)
{
    uint64_t need = d->fixed_bytes + 2 * slot_bytes;
    char a[24], b[24], c[24], e[24], f[24];
    return atom_fail(
        ATOM_E_RESOURCE,
        "device_memory: %s is too little to generate with this model; it needs %s, which is %llu "
        "bytes more (keys and values of %lld tokens %s, activations %s, two slots of %s for "
        "parameters); raise device_memory or lower max_tokens",
        atom_size_text(budget, a), atom_size_text(need, b), (unsigned long long)(need - budget),
        (long long)d->c.room, atom_size_text(d->caches_bytes, c),
        atom_size_text(d->fixed_bytes - d->caches_bytes, e), atom_size_text(slot_bytes, f));
}

static atom_status take_parts(generate_decoder *d, uint64_t n)
{
    d->parts = atom_alloc(n, sizeof *d->parts);
    d->resident_at = atom_alloc(n, sizeof *d->resident_at);
    if (!d->parts || !d->resident_at)
        return atom_fail_memory("the parts of a model", n * sizeof *d->parts);
    return ATOM_OK;
}

static atom_status place_params(generate_decoder *d)
{
    const dev *device = d->c.device;
    uint64_t least = atom_align(largest_node_bytes(d)), left;
    uint64_t free_bytes = device->budget_bytes - device->used_bytes;
    if (free_bytes < d->fixed_bytes + 2 * least)
        return refuse(d, free_bytes, least);
    left = free_bytes - d->fixed_bytes;
    d->slot_bytes = left / SLOT_PART < SLOT_BYTES_MAX ? left / SLOT_PART : SLOT_BYTES_MAX;
    d->slot_bytes = larger(d->slot_bytes / ATOM_ALIGN_BYTES * ATOM_ALIGN_BYTES, least);
    int64_t step = head_rows(d, d->slot_bytes);
    ATOM_TRY(take_parts(d, (uint64_t)d->head + (uint64_t)((d->V + step - 1) / step)));
    cut_nodes(d, d->slot_bytes);
    cut_head(d, d->slot_bytes);
    place_parts(d, left);
    return ATOM_OK;
}

atom_status decode_plan(generate_decoder *d)
{
    const graph *g = d->c.g;
    d->tensor_at = atom_alloc(g->n_tensors, sizeof *d->tensor_at);
    d->keys_at = atom_alloc(g->n_nodes, sizeof *d->keys_at);
    if (!d->tensor_at || !d->keys_at)
        return atom_fail_memory("the places of a model", g->n_tensors * 8);
    ATOM_TRY(place_fixed(d));
    if (decode_swaps(d))
        return place_params(d);
    ATOM_TRY(take_parts(d, 1));
    d->n_parts = 1;
    d->parts[0] = (decode_part){
        .d = d, .last = d->head, .rows = d->V, .elements = g->param_extent, .at = d->c.params};
    return ATOM_OK;
}
