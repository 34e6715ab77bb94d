/*
 * Logits of a model (of any family) in the plainest way: the unfused graph of one whole text, every
 * tensor with a buffer of its own, every node called in order on the scalar reference kernels. For
 * tests of what computes the same thing with less work.
 */
#ifndef TESTS_LIB_GPT2_FORWARD_H
#define TESTS_LIB_GPT2_FORWARD_H

#include "atom/base/mem.h"
#include "atom/graph/models.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct gpt2_forward {
    graph *g;
    const krn_table *table;
    void **tensors;
    const void *params; /* canonical vector in the graph's dtype; borrowed */
} gpt2_forward;

static inline void gpt2_forward_close(gpt2_forward *f)
{
    for (uint32_t i = 0; f->g && i < f->g->n_tensors; i++)
        atom_pages_give(f->tensors[i], atom_align(graph_tensor_bytes(f->g, (int32_t)i)));
    atom_free(f->tensors);
    graph_close(&f->g);
}

/* A text of T tokens. Aborts when there is no memory. */
static inline gpt2_forward gpt2_forward_open(const graph_config *config, atom_dtype dtype,
                                             int64_t T, const void *params)
{
    gpt2_forward f = {.table = krn_ref_table(dtype), .params = params};
    if (graph_model_build(config, dtype, 1, T, &f.g) != ATOM_OK)
        abort();
    f.tensors = atom_alloc(f.g->n_tensors, sizeof *f.tensors);
    for (uint32_t i = 0; f.tensors && i < f.g->n_tensors; i++) {
        f.tensors[i] = atom_pages_take(atom_align(graph_tensor_bytes(f.g, (int32_t)i)));
        if (!f.tensors[i])
            abort();
    }
    return f;
}

static inline void gpt2_forward_dims(const graph *g, const graph_node *node, int64_t *dim)
{
    const graph_tensor *in = &g->tensors[node->in[0]], *out = &g->tensors[node->out[0]];
    int64_t T = g->sequence, width = in->dims[in->rank - 1];
    int64_t H = node->heads, K = node->kv_heads ? node->kv_heads : H;
    switch (node->op) {
    case ATOM_OP_embed:
        dim[0] = 1;
        dim[1] = T;
        dim[2] = out->dims[2];
        dim[3] = g->params[node->params[0]].dims[0];
        break;
    case ATOM_OP_headnorm:
        dim[0] = T;
        dim[1] = H;
        dim[2] = width / (H + 2 * K);
        dim[3] = K;
        break;
    case ATOM_OP_swiglu:
    case ATOM_OP_geglu:
        dim[0] = T;
        dim[1] = width / 2;
        break;
    case ATOM_OP_layernorm:
    case ATOM_OP_rmsnorm:
        dim[0] = T;
        dim[1] = width;
        break;
    case ATOM_OP_linear:
        dim[0] = T;
        dim[1] = width;
        dim[2] = out->dims[2];
        break;
    case ATOM_OP_attention:
    case ATOM_OP_rope:
        dim[0] = 1;
        dim[1] = T;
        dim[2] = H;
        dim[3] = width / (H + 2 * K);
        dim[4] = K;
        dim[5] = node->window; /* 0 in rope */
        break;
    default:
        dim[0] = T * width;
    }
}

static inline void gpt2_forward_node(gpt2_forward *f, const graph_node *node)
{
    const atom_op_info *op = atom_op_get(node->op);
    krn_step step = {.train = 0};
    krn_args args = {.eps = node->eps,
                     .p = node->p,
                     .rng = node->rng,
                     .rope = node->rope,
                     .scale = node->scale,
                     .lift = node->lift,
                     .cap = node->cap};
    int b = 0;
    gpt2_forward_dims(f->g, node, args.dim);
    for (int i = 0; i < op->ins; i++)
        args.buf[b++] = f->tensors[node->in[i]];
    for (int i = 0; i < op->params_max; i++, b++) {
        if (i < node->n_params)
            args.buf[b] = (char *)(uintptr_t)f->params +
                          f->g->params[node->params[i]].offset * atom_dtype_bytes(f->g->dtype);
    }
    for (int i = 0; i < op->outs; i++)
        args.buf[b++] = f->tensors[node->out[i]];
    for (int i = 0; i < op->saved; i++)
        args.buf[b++] = f->tensors[node->saved[i]];
    uint64_t bytes = f->table->workspace(node->op, 0, args.dim);
    krn_ctx cx = {.step = &step, .workspace_bytes = bytes};
    cx.workspace = bytes ? atom_pages_take(bytes) : NULL;
    f->table->fwd[node->op](&cx, &args);
    if (bytes)
        atom_pages_give(cx.workspace, bytes);
}

/* All nodes but the loss. */
static inline void gpt2_forward_body(gpt2_forward *f, const int32_t *tokens)
{
    const graph *g = f->g;
    memcpy(f->tensors[g->tokens], tokens, (size_t)g->sequence * sizeof *tokens);
    for (uint32_t i = 0; i + 1 < g->n_nodes; i++)
        gpt2_forward_node(f, &g->nodes[i]);
}

/* act [T,V], valid until the next run; capped where the loss caps. */
static inline const void *gpt2_forward_logits(gpt2_forward *f, const int32_t *tokens)
{
    const graph *g = f->g;
    const graph_node *last = &g->nodes[g->n_nodes - 1];
    float *wide = f->tensors[last->in[0]];
    atom_bf16 *narrow = f->tensors[last->in[0]];
    gpt2_forward_body(f, tokens);
    for (uint64_t i = 0; i < graph_tensor_elements(g, last->in[0]) && last->cap > 0; i++) {
        float x = g->dtype == ATOM_F32 ? wide[i] : atom_bf16_to_f32(narrow[i]);
        x = last->cap * tanhf(x / last->cap);
        if (g->dtype == ATOM_F32)
            wide[i] = x;
        else
            narrow[i] = atom_f32_to_bf16(x);
    }
    return wide;
}

/* Sum of -log softmax(logits)[target] over the text, in double. */
static inline double gpt2_forward_loss(gpt2_forward *f, const int32_t *tokens,
                                       const int32_t *targets)
{
    const graph *g = f->g;
    gpt2_forward_body(f, tokens);
    memcpy(f->tensors[g->targets], targets, (size_t)g->sequence * sizeof *targets);
    const graph_node *last = &g->nodes[g->n_nodes - 1];
    krn_args args = {
        .buf = {f->tensors[last->in[0]], f->tensors[last->in[1]], f->tensors[last->out[0]]},
        .dim = {g->sequence, g->params[0].dims[0]},
        .cap = last->cap};
    uint64_t bytes = f->table->workspace(last->op, 0, args.dim) + 1;
    krn_ctx cx = {.workspace = atom_pages_take(bytes), .workspace_bytes = bytes};
    double sum = 0;
    f->table->fwd[last->op](&cx, &args);
    for (int64_t t = 0; t < g->sequence; t++)
        sum += (double)((const float *)f->tensors[last->out[0]])[t];
    atom_pages_give(cx.workspace, bytes);
    return sum;
}

#endif
