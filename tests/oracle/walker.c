/*
 * Owns the meaning of a training step, in the plainest form: every tensor has its own buffer, every
 * node is called in order, backward in reverse. Refuses to be clever about memory.
 */
#include "tests/oracle/walker.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <math.h>
#include <string.h>

static bool is_late(const graph_node *node)
{
    return atom_op_get(node->op)->flags & ATOM_OP_LATE;
}

static bool is_terminal(const graph_node *node)
{
    return atom_op_get(node->op)->flags & ATOM_OP_TERMINAL;
}

static int64_t last_dim(const graph *g, int32_t tensor)
{
    return g->tensors[tensor].dims[g->tensors[tensor].rank - 1];
}

static void node_dims(const graph *g, const graph_node *node, int64_t dim[KRN_DIM_MAX])
{
    int64_t B = g->micro_batch, T = g->sequence, N = B * T;
    int64_t width = last_dim(g, atom_op_get(node->op)->ins ? node->in[0] : node->out[0]);
    const graph_param *w = node->n_params ? &g->params[node->params[0]] : NULL;
    memset(dim, 0, KRN_DIM_MAX * sizeof *dim);
    dim[0] = N;
    dim[1] = width;
    switch (node->op) {
    case ATOM_OP_embed:
        dim[0] = B;
        dim[1] = T;
        dim[2] = w->dims[1];
        dim[3] = w->dims[0];
        break;
    case ATOM_OP_attention:
        dim[0] = B;
        dim[1] = T;
        dim[2] = node->heads;
        dim[4] = node->kv_heads ? node->kv_heads : node->heads;
        dim[3] = width / (node->heads + 2 * dim[4]);
        dim[5] = node->window;
        break;
    case ATOM_OP_rope:
        dim[0] = B;
        dim[1] = T;
        dim[2] = node->heads;
        dim[4] = node->kv_heads ? node->kv_heads : node->heads;
        dim[3] = width / (node->heads + 2 * dim[4]);
        break;
    case ATOM_OP_headnorm:
        dim[1] = node->heads;
        dim[3] = node->kv_heads ? node->kv_heads : node->heads;
        dim[2] = width / (node->heads + 2 * dim[3]);
        break;
    case ATOM_OP_lora:
        dim[2] = w->dims[1];
        dim[3] = w->dims[0];
        dim[4] = node->first;
        break;
    case ATOM_OP_rownorm:
        dim[0] = width;
        dim[1] = w->dims[1];
        dim[2] = g->params[node->params[1]].dims[0];
        dim[3] = node->first;
        break;
    case ATOM_OP_dora:
        dim[2] = w->dims[0];
        dim[3] = node->first;
        break;
    case ATOM_OP_swiglu:
    case ATOM_OP_geglu:
        dim[1] = width / 2;
        break;
    case ATOM_OP_compress:
        dim[2] = node->codec;
        break;
    case ATOM_OP_maxout:
        dim[1] = width / node->window;
        dim[2] = node->window;
        break;
    case ATOM_OP_linear:
    case ATOM_OP_linear_gelu:
    case ATOM_OP_classifier:
        dim[2] = w->dims[0];
        break;
    case ATOM_OP_dropout:
    case ATOM_OP_gelu:
    case ATOM_OP_gelu_erf:
    case ATOM_OP_relu:
    case ATOM_OP_relu2:
    case ATOM_OP_silu:
    case ATOM_OP_scale:
    case ATOM_OP_add:
    case ATOM_OP_dropout_add:
        dim[0] = N * width;
        dim[1] = 0;
        break;
    case ATOM_OP_layernorm:
    case ATOM_OP_rmsnorm:
    case ATOM_OP_cross_entropy:
        break;
    case ATOM_OP_N:
        ATOM_ASSERT(!"an op");
    }
}

static void *wire_at(const walker *w, int32_t param)
{
    return (char *)w->wire + w->g->params[param].offset * atom_dtype_bytes(w->g->dtype);
}

static krn_args args_of(const walker *w, const graph_node *node)
{
    krn_args args = {.eps = node->eps,
                     .p = node->p,
                     .rng = node->rng,
                     .rope = node->rope,
                     .scale = node->scale,
                     .lift = node->lift,
                     .cap = node->cap};
    node_dims(w->g, node, args.dim);
    return args;
}

static void call(walker *w, krn_fn fn, const krn_step *step, const krn_args *args)
{
    krn_ctx cx = {.threads = w->threads,
                  .workspace = w->workspace,
                  .workspace_bytes = w->workspace_bytes,
                  .step = step};
    ATOM_ASSERT(fn);
    fn(&cx, args);
}

static void node_forward(walker *w, const graph_node *node, const krn_step *step)
{
    const atom_op_info *row = atom_op_get(node->op);
    krn_args args = args_of(w, node);
    int at = 0;
    for (int i = 0; i < row->ins; i++)
        args.buf[at++] = w->tensor[node->in[i]];
    for (int i = 0; i < row->params_max; i++)
        args.buf[at++] = i < node->n_params ? wire_at(w, node->params[i]) : NULL;
    args.buf[at++] = w->tensor[node->out[0]];
    for (int i = 0; i < row->saved; i++)
        args.buf[at++] = w->tensor[node->saved[i]];
    call(w, w->table->fwd[node->op], step, &args);
}

/* d_out: the gradient of its output, or NULL for terminal nodes. */
static void node_backward(walker *w, int32_t n, const krn_step *step, void *d_out)
{
    const graph_node *node = &w->g->nodes[n];
    const atom_op_info *row = atom_op_get(node->op);
    krn_args args = args_of(w, node);
    int at = 0;
    for (int i = 0; i < row->ins; i++, at++) {
        if (row->keeps & (i ? ATOM_KEEP_IN1 : ATOM_KEEP_IN0))
            args.buf[at] = w->tensor[node->in[i]];
    }
    for (int i = 0; i < row->params_max; i++)
        args.buf[at++] = i < node->n_params ? wire_at(w, node->params[i]) : NULL;
    if ((row->keeps & ATOM_KEEP_OUT) || is_terminal(node))
        args.buf[at] = w->tensor[node->out[0]];
    at++;
    for (int i = 0; i < row->saved; i++)
        args.buf[at++] = w->tensor[node->saved[i]];
    args.buf[at++] = d_out;
    for (int i = 0; i < row->ins; i++, at++) {
        graph_grad mode = graph_grad_mode(w->g, n, i);
        if (mode == GRAPH_GRAD_NONE)
            continue;
        args.buf[at] = w->d_tensor[node->in[i]];
        if (mode == GRAPH_GRAD_ADD)
            args.flags |= i ? KRN_ADD_D_IN1 : KRN_ADD_D_IN0;
    }
    for (int i = 0; i < row->params_max; i++) {
        const graph_param *p = i < node->n_params ? &w->g->params[node->params[i]] : NULL;
        args.buf[at++] = p && !p->frozen ? w->grad + p->offset : NULL;
    }
    call(w, w->table->bwd[node->op], step, &args);
}

void walker_forward(walker *w, const krn_step *step, const int32_t *tokens, const int32_t *targets)
{
    size_t bytes = (size_t)(w->g->micro_batch * w->g->sequence) * 4;
    memcpy(w->tensor[w->g->tokens], tokens, bytes);
    memcpy(w->tensor[w->g->targets], targets, bytes);
    for (uint32_t n = 0; n < w->g->n_nodes; n++)
        node_forward(w, &w->g->nodes[n], step);
}

static void micro_batch(walker *w, const krn_step *step, float *losses)
{
    const graph *g = w->g;
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        if (!is_terminal(&g->nodes[n]))
            node_forward(w, &g->nodes[n], step);
    }
    for (int32_t n = (int32_t)g->n_nodes - 1; n >= 0; n--) {
        const graph_node *node = &g->nodes[n];
        void *d_out = is_terminal(node) ? NULL : w->d_tensor[node->out[0]];
        if (!graph_node_backward(g, n))
            continue;
        if (!is_late(node))
            node_backward(w, n, step, d_out);
        else
            memcpy(w->late[step->micro_batch], d_out, graph_tensor_bytes(g, node->out[0]));
    }
    memcpy(losses, w->tensor[g->loss], (size_t)(g->micro_batch * g->sequence) * 4);
}

void walker_gradients(walker *w, const krn_step *step, int32_t *tokens, int32_t *targets,
                      float *losses)
{
    const graph *g = w->g;
    size_t n = (size_t)(g->micro_batch * g->sequence);
    krn_step s = *step;
    const int32_t *starts = step->starts;
    memset(w->grad, 0, g->param_extent * sizeof(float));
    for (s.micro_batch = 0; s.micro_batch < w->C; s.micro_batch++) {
        memcpy(w->tensor[g->tokens], tokens + s.micro_batch * n, n * 4);
        memcpy(w->tensor[g->targets], targets + s.micro_batch * n, n * 4);
        s.starts = starts ? starts + s.micro_batch * n : NULL;
        micro_batch(w, &s, losses + s.micro_batch * n);
    }
    for (s.micro_batch = 0; s.micro_batch < w->C; s.micro_batch++) {
        memcpy(w->tensor[g->tokens], tokens + s.micro_batch * n, n * 4);
        s.starts = starts ? starts + s.micro_batch * n : NULL;
        for (uint32_t i = 0; i < g->n_nodes; i++) {
            if (is_late(&g->nodes[i]) && graph_node_backward(g, (int32_t)i))
                node_backward(w, (int32_t)i, &s, w->late[s.micro_batch]);
        }
    }
}

/* All matrices of parameter p; false: it has none. */
static bool update_matrices(walker *w, int32_t p, const krn_muon_step *muon, float scale)
{
    const graph_param *param = &w->g->params[p];
    uint32_t each = atom_dtype_bytes(w->g->dtype);
    int64_t rows[GRAPH_MATRICES_MAX], cols = param->dims[1];
    uint32_t n = graph_matrices(w->g, p, rows);
    uint64_t at = param->offset;
    for (uint32_t i = 0; i < n; i++) {
        void *space = atom_pages_take(krn_muon_space(rows[i], cols));
        krn_muon_step s = *muon;
        ATOM_ASSERT(space);
        s.scale = scale;
        s.decay = param->decay ? muon->decay : 0;
        s.first = at;
        w->host->muon(w->threads, &s, w->g->dtype, (char *)w->wire + at * each, w->master + at,
                      (char *)w->m + at * atom_dtype_bytes(muon->moments), rows[i], cols, space);
        atom_pages_give(space, krn_muon_space(rows[i], cols));
        at += (uint64_t)(rows[i] * cols);
    }
    return n > 0;
}

double walker_update(walker *w, const krn_adamw_step *update, const krn_muon_step *muon,
                     float max_grad_norm)
{
    const graph *g = w->g;
    uint32_t each = atom_dtype_bytes(g->dtype), moment = atom_dtype_bytes(update->moments);
    krn_ctx cx = {.threads = w->threads};
    double sum = 0;
    for (uint32_t p = 0; p < g->n_params; p++) {
        const graph_param *param = &g->params[p];
        if (param->frozen)
            continue;
        void *to = (char *)w->wire_grad + param->offset * each;
        w->table->round(&cx, to, w->grad + param->offset, param->elements);
        w->table->sumsq(&cx, w->sums, to, param->elements);
        for (uint64_t c = 0; c < krn_norm_chunks(param->elements); c++)
            sum += w->sums[c];
    }
    double norm = sqrt(sum), scale = (double)max_grad_norm / (norm + 1e-6);
    for (uint32_t p = 0; p < g->n_params; p++) {
        const graph_param *param = &g->params[p];
        if (param->frozen)
            continue;
        uint64_t at = param->offset;
        char *wire = (char *)w->wire + at * each;
        krn_adamw_step s = *update;
        s.scale = max_grad_norm > 0 && scale < 1 ? (float)scale : 1.0f;
        s.decay = param->decay ? update->decay : 0.0f;
        s.first = at;
        memcpy(wire, (char *)w->wire_grad + at * each, param->elements * each);
        if (update_matrices(w, (int32_t)p, muon, s.scale))
            continue;
        w->host->adamw(w->threads, &s, g->dtype, wire, w->master + at, (char *)w->m + at * moment,
                       (char *)w->v + at * moment, param->elements);
    }
    return norm;
}

void walker_sync_wire(walker *w)
{
    krn_ctx cx = {.threads = w->threads};
    w->table->round(&cx, w->wire, w->master, w->g->param_extent);
}

void walker_read(const walker *w, int32_t id, float *out)
{
    uint64_t n = graph_tensor_elements(w->g, id);
    for (uint64_t i = 0; i < n; i++)
        out[i] = w->g->dtype == ATOM_F32 ? ((float *)w->tensor[id])[i]
                                         : atom_bf16_to_f32(((atom_bf16 *)w->tensor[id])[i]);
}

krn_adamw_step walker_adamw_step(uint32_t step, double lr, double beta1, double beta2, double eps,
                                 double decay)
{
    return (krn_adamw_step){.scale = 1,
                            .beta1 = (float)beta1,
                            .one_minus_beta1 = (float)(1 - beta1),
                            .beta2 = (float)beta2,
                            .one_minus_beta2 = (float)(1 - beta2),
                            .inv_bias1 = (float)(1 / (1 - pow(beta1, step))),
                            .inv_sqrt_bias2 = (float)(1 / sqrt(1 - pow(beta2, step))),
                            .eps = (float)eps,
                            .lr = (float)lr,
                            .decay = (float)decay};
}

/* --- memory: everything is 256-byte aligned -------------------------------------------------- */

static void *take(uint64_t bytes, bool *short_of)
{
    void *block = atom_pages_take(bytes ? bytes : 1);
    *short_of |= block == NULL;
    return block;
}

static void give(void *block, uint64_t bytes)
{
    if (block)
        atom_pages_give(block, bytes ? bytes : 1);
}

static uint64_t workspace_of(const walker *w)
{
    uint64_t most = 0;
    for (uint32_t n = 0; n < w->g->n_nodes; n++) {
        for (int backward = 0; backward < 2; backward++) {
            krn_args args = args_of(w, &w->g->nodes[n]);
            uint64_t bytes = w->table->workspace(w->g->nodes[n].op, backward, args.dim);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static uint64_t late_bytes(const graph *g)
{
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        if (is_late(&g->nodes[n]))
            return graph_tensor_bytes(g, g->nodes[n].out[0]);
    }
    return 0;
}

static bool take_tensors(walker *w)
{
    const graph *g = w->g;
    bool short_of = false;
    w->tensor = atom_alloc(g->n_tensors, sizeof(void *));
    w->d_tensor = atom_alloc(g->n_tensors, sizeof(void *));
    w->late = atom_alloc(w->C, sizeof(void *));
    if (!w->tensor || !w->d_tensor || !w->late)
        return false;
    for (uint32_t t = 0; t < g->n_tensors; t++) {
        w->tensor[t] = take(graph_tensor_bytes(g, (int32_t)t), &short_of);
        if (g->tensors[t].needs_grad)
            w->d_tensor[t] = take(graph_tensor_bytes(g, (int32_t)t), &short_of);
    }
    for (uint32_t i = 0; i < w->C; i++)
        w->late[i] = take(late_bytes(g), &short_of);
    return !short_of;
}

static bool take_vectors(walker *w)
{
    bool short_of = false;
    uint64_t n = w->g->param_extent, each = atom_dtype_bytes(w->g->dtype);
    w->grad = take(n * 4, &short_of);
    w->master = take(n * 4, &short_of);
    w->m = take(n * 4, &short_of);
    w->v = take(n * 4, &short_of);
    w->wire = take(n * each, &short_of);
    w->wire_grad = take(n * each, &short_of);
    w->sums = take(krn_norm_chunks(n) * sizeof(double), &short_of);
    w->workspace_bytes = workspace_of(w);
    w->workspace = take(w->workspace_bytes, &short_of);
    return !short_of;
}

atom_status walker_open(const graph *g, const krn_table *table, const krn_host_table *host,
                        atom_threads *threads, uint32_t C, walker **out)
{
    walker *w = atom_alloc(1, sizeof *w);
    if (!w)
        return atom_fail_memory("a walker", sizeof *w);
    *w = (walker){.g = g, .table = table, .host = host, .threads = threads, .C = C};
    if (!take_tensors(w) || !take_vectors(w)) {
        walker_close(&w);
        return atom_fail_memory("a walker's buffers", 0);
    }
    *out = w;
    return ATOM_OK;
}

void walker_close(walker **ref)
{
    walker *w = *ref;
    if (!w)
        return;
    const graph *g = w->g;
    uint64_t n = g->param_extent, each = atom_dtype_bytes(g->dtype);
    for (uint32_t t = 0; t < g->n_tensors && w->tensor && w->d_tensor; t++) {
        give(w->tensor[t], graph_tensor_bytes(g, (int32_t)t));
        give(w->d_tensor[t], graph_tensor_bytes(g, (int32_t)t));
    }
    for (uint32_t i = 0; i < w->C && w->late; i++)
        give(w->late[i], late_bytes(g));
    atom_free(w->tensor);
    atom_free(w->d_tensor);
    atom_free(w->late);
    give(w->grad, n * 4);
    give(w->master, n * 4);
    give(w->m, n * 4);
    give(w->v, n * 4);
    give(w->wire, n * each);
    give(w->wire_grad, n * each);
    give(w->sums, krn_norm_chunks(n) * sizeof(double));
    give(w->workspace, w->workspace_bytes);
    atom_free(w);
    *ref = NULL;
}
