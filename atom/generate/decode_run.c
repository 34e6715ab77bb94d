/*
 * Owns the way from a node to its kernel during generation. One idea: a node does not care whether
 * its rows are a training batch or a few new tokens, so the graph is walked with other dims; only
 * what depends on place in the text (embedding, attention, the head's last row) is treated apart.
 * Refuses to know where parameters come from.
 */
#include "atom/generate/decode_inner.h"

#include "atom/base/assert.h"

#include <string.h>

void decode_dims(const generate_decoder *d, int32_t node, int64_t n, int64_t dim[KRN_DIM_MAX])
{
    const graph_node *nd = &d->c.g->nodes[node];
    int64_t width = decode_width(d, nd->in[0]), H = nd->heads, K = nd->kv_heads ? nd->kv_heads : H;
    int64_t all[KRN_DIM_MAX] = {n * width}; /* element-wise */
    switch (nd->op) {
    case ATOM_OP_embed:
        memcpy(all, (int64_t[]){1, n, d->C, decode_swaps(d) ? n : d->V}, 4 * sizeof all[0]);
        break;
    case ATOM_OP_layernorm:
    case ATOM_OP_rmsnorm:
        memcpy(all, (int64_t[]){n, width}, 2 * sizeof all[0]);
        break;
    case ATOM_OP_linear:
    case ATOM_OP_linear_gelu:
        memcpy(all, (int64_t[]){n, width, decode_width(d, nd->out[0])}, 3 * sizeof all[0]);
        break;
    case ATOM_OP_headnorm:
        memcpy(all, (int64_t[]){n, H, width / (H + 2 * K), K}, 4 * sizeof all[0]);
        break;
    case ATOM_OP_rope:
        memcpy(all, (int64_t[]){1, n, H, width / (H + 2 * K), K, d->past}, 6 * sizeof all[0]);
        break;
    case ATOM_OP_maxout:
        memcpy(all, (int64_t[]){n, width / nd->window, nd->window}, 3 * sizeof all[0]);
        break;
    case ATOM_OP_swiglu:
    case ATOM_OP_geglu:
        memcpy(all, (int64_t[]){n, width / 2}, 2 * sizeof all[0]);
        break;
    default:
        break;
    }
    memcpy(dim, all, sizeof all);
}

krn_fn decode_row_kernel(const generate_decoder *d, int32_t node)
{
    atom_op op = d->c.g->nodes[node].op;
    return op == ATOM_OP_linear        ? d->c.decode->linear
           : op == ATOM_OP_linear_gelu ? d->c.decode->linear_gelu
                                       : NULL;
}

static void *tensor(const generate_decoder *d, int32_t id)
{
    return d->tensor_at[id] == DECODE_NOWHERE ? NULL : d->arena + d->tensor_at[id];
}

/* A parameter's place; offset counts in elements from its start. */
static void *param(const decode_part *part, int32_t id, int64_t offset)
{
    const generate_decoder *d = part->d;
    uint64_t element = d->c.g->params[id].offset + (uint64_t)offset - part->offset;
    return (char *)(uintptr_t)part->at + decode_bytes(d, element);
}

static void run_attention(krn_ctx *cx, const generate_decoder *d, int32_t node)
{
    const graph_node *nd = &d->c.g->nodes[node];
    int64_t C = decode_width(d, nd->out[0]);
    char *keys = d->arena + d->keys_at[node];
    krn_attend a = {.qkv = tensor(d, nd->in[0]),
                    .keys = keys,
                    .values = keys + d->cache_bytes,
                    .y = tensor(d, nd->out[0]),
                    .N = d->n,
                    .past = d->past,
                    .room = krn_attend_room(d->c.room),
                    .H = nd->heads,
                    .D = C / nd->heads,
                    .K = nd->kv_heads,
                    .W = nd->window,
                    .scale = nd->scale,
                    .cap = nd->cap};
    d->c.decode->attend(cx, &a);
}

/* Logits of the last row. */
static void run_head(krn_ctx *cx, const decode_part *part)
{
    const generate_decoder *d = part->d;
    const graph *g = d->c.g;
    const graph_node *nd = &g->nodes[d->head];
    char *x = tensor(d, nd->in[0]);
    krn_args args = {.buf = {x + decode_bytes(d, (uint64_t)((d->n - 1) * d->C)),
                             param(part, nd->params[0], part->row * d->C), NULL,
                             d->arena + d->logits_at + (uint64_t)part->row * sizeof(float)},
                     .dim = {1, d->C, part->rows},
                     .cap = g->nodes[g->tensors[g->loss].producer].cap};
    d->c.decode->logits(cx, &args);
}

/* Swapping: the rows of this pass lie one after the other, and so tokens are 0, 1, ... */
static void embed_buffers(const decode_part *part, const graph_node *nd, krn_args *args)
{
    const generate_decoder *d = part->d;
    char *rows = d->arena + d->token_rows_at;
    args->buf[0] = d->arena + d->tokens_at;
    args->buf[1] = decode_swaps(d) ? rows : param(part, nd->params[0], 0);
    if (nd->n_params == 2)
        args->buf[2] = decode_swaps(d) ? rows + decode_bytes(d, (uint64_t)(d->chunk * d->C))
                                       : param(part, nd->params[1], d->past * d->C);
    args->buf[3] = tensor(d, nd->out[0]);
}

static void run_node(krn_ctx *cx, const decode_part *part, int32_t node)
{
    const generate_decoder *d = part->d;
    const graph_node *nd = &d->c.g->nodes[node];
    const atom_op_info *op = atom_op_get(nd->op);
    krn_fn fn = d->n == 1 && decode_row_kernel(d, node) ? decode_row_kernel(d, node)
                                                        : d->c.table->fwd[nd->op];
    krn_args args = {
        .eps = nd->eps, .rng = nd->rng, .rope = nd->rope, .scale = nd->scale, .lift = nd->lift};
    int b = 0;
    decode_dims(d, node, d->n, args.dim);
    if (nd->op == ATOM_OP_embed) {
        embed_buffers(part, nd, &args);
    } else {
        for (int i = 0; i < op->ins; i++)
            args.buf[b++] = tensor(d, nd->in[i]);
        for (int i = 0; i < op->params_max; i++, b++)
            args.buf[b] = i < nd->n_params ? param(part, nd->params[i], 0) : NULL;
        for (int i = 0; i < op->outs; i++)
            args.buf[b++] = tensor(d, nd->out[i]);
        for (int i = 0; i < op->saved; i++)
            args.buf[b++] = tensor(d, nd->saved[i]);
    }
    uint64_t need = d->c.table->workspace ? d->c.table->workspace(nd->op, 0, args.dim) : 0;
    ATOM_ASSERT(need <= cx->workspace_bytes);
    fn(cx, &args);
}

void decode_run(krn_ctx *cx, const decode_part *part)
{
    static const krn_step step = {.train = 0};
    const generate_decoder *d = part->d;
    cx->step = &step;
    cx->workspace = d->arena + d->workspace_at;
    cx->workspace_bytes = d->workspace_bytes;
    for (int32_t node = part->first; node < part->last; node++) {
        if (d->c.g->nodes[node].op == ATOM_OP_attention)
            run_attention(cx, d, node);
        else
            run_node(cx, part, node);
    }
    if (part->rows > 0)
        run_head(cx, part);
}
