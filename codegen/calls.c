/*
 * Owns the call lists of sub-models: which kernels run, on which buffers. One idea: walk the nodes
 * of a range forward or backward; where a tensor lives follows from who needs it (boundary,
 * backward, nobody), and what only lives inside a list gets scratch by first fit over its lifetime.
 * Refuses to know where the bases are.
 *
 *   the value of t                               the gradient of t
 *     is a graph input            TOKENS/TARGETS   belongs to what came in    DX
 *     came in                     X                comes from a late node     LATE
 *     held (plan)                 HELD, SENT
 *     FWD:  goes out              Y                belongs to what goes out   DY (others add to it)
 *     KEEP: backward reads it     KEPT             else                       ACT
 *     else                        ACT
 *
 * Most sums whose terms are both made in the range have no backward: the terms have the sum's gradient
 * as theirs, in ACT or, where the sum goes out, in DY (graph_hands_on).
 */
#include "codegen/layout.h"
#include "codegen/scratch.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>

typedef struct builder {
    gen_layout *layout;
    const graph *g;
    uint32_t k;
    gen_visit *visit;
    int32_t first, last;
    swap_list list;
    swap_calls *calls;
    size_t room;
    gen_scratch act;
    uint64_t *kept_at;    /* per tensor: offset in its base if backward reads it, or NOT_KEPT */
    int32_t *same;        /* per tensor: whose gradient is its own, too; or NONE */
    uint8_t *needed;      /* per node: the KEEP list runs it */
    const uint8_t *holds; /* of the plan, if this sub-model keeps some; else NULL */
    bool full;            /* the KEEP list also produces Y (activations are kept, not recomputed) */
} builder;

static const uint64_t NOT_KEPT = UINT64_MAX;

/* --- where things are ------------------------------------------------------------------------ */

static bool made_here(const builder *b, int32_t tensor)
{
    int32_t producer = b->g->tensors[tensor].producer;
    return producer >= b->first && producer < b->last;
}

static bool in_boundary(const gen_boundary *boundary, int32_t tensor, uint64_t *offset)
{
    for (uint32_t i = 0; i < boundary->n; i++) {
        if (boundary->ids[i] == tensor) {
            *offset = boundary->offset[i];
            return true;
        }
    }
    return false;
}

static uint64_t aligned_bytes(const builder *b, int32_t tensor)
{
    return atom_align(graph_tensor_bytes(b->g, tensor));
}

/* Where the plan keeps what backward reads of this tensor, if its sub-model keeps only some. */
static swap_base kept_base(const builder *b, int32_t tensor)
{
    if (!b->holds)
        return SWAP_BASE_KEPT;
    uint8_t hold = b->holds[b->g->tensors[tensor].producer];
    return hold == PART_HOLD_DEVICE ? SWAP_BASE_HELD
           : hold == PART_HOLD_HOST ? SWAP_BASE_SENT
                                    : SWAP_BASE_KEPT;
}

/* Does forward leave the tensor for backward, which then need not compute it again? */
static bool is_held(const builder *b, int32_t tensor)
{
    return b->kept_at[tensor] != NOT_KEPT && kept_base(b, tensor) != SWAP_BASE_KEPT;
}

/* Where the value of a tensor is (or, for a producer, goes). */
static swap_ref value_ref(builder *b, int32_t tensor)
{
    uint64_t offset = 0;
    if (tensor == b->g->tokens)
        return (swap_ref){SWAP_BASE_TOKENS, 0};
    if (tensor == b->g->targets)
        return (swap_ref){SWAP_BASE_TARGETS, 0};
    if (tensor == b->g->loss)
        return (swap_ref){SWAP_BASE_LOSS, 0};
    if (!made_here(b, tensor)) {
        bool found = in_boundary(&b->visit->x, tensor, &offset);
        ATOM_ASSERT(found);
        return (swap_ref){SWAP_BASE_X, offset};
    }
    if ((b->list != SWAP_LIST_FWD && b->kept_at[tensor] != NOT_KEPT) || is_held(b, tensor))
        return (swap_ref){kept_base(b, tensor), b->kept_at[tensor]};
    bool out = b->list == SWAP_LIST_FWD || (b->list == SWAP_LIST_KEEP && b->full);
    if (out && in_boundary(&b->visit->y, tensor, &offset))
        return (swap_ref){SWAP_BASE_Y, offset};
    gen_live_block *block = gen_scratch_find(&b->act, tensor, false);
    if (!block)
        return (swap_ref){SWAP_BASE_ACT,
                          gen_scratch_take(&b->act, tensor, false, aligned_bytes(b, tensor))};
    return (swap_ref){SWAP_BASE_ACT, block->offset};
}

static swap_ref grad_ref(builder *b, int32_t tensor)
{
    uint64_t offset = 0;
    tensor = b->same[tensor] == GRAPH_NONE ? tensor : b->same[tensor];
    if (in_boundary(&b->visit->x, tensor, &offset))
        return (swap_ref){SWAP_BASE_DX, offset};
    int32_t producer = b->g->tensors[tensor].producer;
    if (producer >= 0 && producer == b->layout->late_node)
        return (swap_ref){SWAP_BASE_LATE, 0};
    if (in_boundary(&b->visit->y, tensor, &offset))
        return (swap_ref){SWAP_BASE_DY, offset};
    gen_live_block *block = gen_scratch_find(&b->act, tensor, true);
    if (!block)
        return (swap_ref){SWAP_BASE_ACT,
                          gen_scratch_take(&b->act, tensor, true, aligned_bytes(b, tensor))};
    return (swap_ref){SWAP_BASE_ACT, block->offset};
}

static swap_ref param_ref(const builder *b, int32_t param)
{
    return (swap_ref){SWAP_BASE_PARAM, gen_slot_offset(b->layout, b->k, param)};
}

static swap_ref param_grad_ref(const builder *b, int32_t param)
{
    swap_base base = b->g->params[param].shared ? SWAP_BASE_SHARED : SWAP_BASE_GRAD;
    return (swap_ref){base, b->layout->grad_offset[param]};
}

/* --- calls ----------------------------------------------------------------------------------- */

static void node_dims(const graph *g, int32_t index, int64_t dim[KRN_DIM_MAX])
{
    const graph_node *node = &g->nodes[index];
    const graph_tensor *in = &g->tensors[atom_op_get(node->op)->ins ? node->in[0] : node->out[0]];
    const graph_param *w = node->n_params ? &g->params[node->params[0]] : NULL;
    int64_t elements = (int64_t)graph_tensor_elements(g, (int32_t)(in - g->tensors));
    int64_t width = in->dims[in->rank - 1], B = g->micro_batch, T = g->sequence;
    int64_t H = node->heads, K = node->kv_heads ? node->kv_heads : H;
    int64_t all[KRN_DIM_MAX] = {elements};
    const size_t each = sizeof all[0];
    switch (node->op) {
    case ATOM_OP_embed:
        memcpy(all, (int64_t[]){B, T, w->dims[1], w->dims[0]}, 4 * each);
        break;
    case ATOM_OP_layernorm:
    case ATOM_OP_rmsnorm:
    case ATOM_OP_cross_entropy:
    case ATOM_OP_compress:
        memcpy(all, (int64_t[]){elements / width, width, node->codec}, 3 * each);
        break;
    case ATOM_OP_linear:
    case ATOM_OP_linear_gelu:
    case ATOM_OP_classifier:
    case ATOM_OP_dora:
        memcpy(all, (int64_t[]){elements / width, width, w->dims[0], node->first}, 4 * each);
        break;
    case ATOM_OP_lora:
        memcpy(all, (int64_t[]){B * T, width, w->dims[1], w->dims[0], node->first}, 5 * each);
        break;
    case ATOM_OP_rownorm:
        memcpy(all, (int64_t[]){width, w->dims[1], g->params[node->params[1]].dims[0], node->first},
               4 * each);
        break;
    case ATOM_OP_attention:
    case ATOM_OP_rope:
        memcpy(all, (int64_t[]){B, T, H, width / (H + 2 * K), K, node->window}, 6 * each);
        break;
    case ATOM_OP_headnorm:
        memcpy(all, (int64_t[]){B * T, H, width / (H + 2 * K), K}, 4 * each);
        break;
    case ATOM_OP_maxout:
        memcpy(all, (int64_t[]){B * T, width / node->window, node->window}, 3 * each);
        break;
    case ATOM_OP_swiglu:
    case ATOM_OP_geglu:
        memcpy(all, (int64_t[]){B * T, width / 2}, 2 * each);
        break;
    default:
        break;
    }
    memcpy(dim, all, sizeof all);
}

uint64_t gen_node_workspace(const graph *g, int32_t node, int backward, const krn_table *table)
{
    int64_t dim[KRN_DIM_MAX];
    node_dims(g, node, dim);
    return table->workspace(g->nodes[node].op, backward, dim);
}

static atom_status add_call(builder *b, const swap_call *call)
{
    ATOM_TRY(atom_grow(&b->calls->calls, b->calls->n, &b->room, sizeof *call));
    b->calls->calls[b->calls->n++] = *call;
    return ATOM_OK;
}

static void put(swap_call *call, swap_ref ref, uint64_t bytes)
{
    call->buf[call->n_buf] = ref;
    call->bytes[call->n_buf++] = ref.base == SWAP_BASE_NONE ? 0 : bytes;
}

static void put_none(swap_call *call)
{
    put(call, (swap_ref){SWAP_BASE_NONE, 0}, 0);
}

static atom_status add_copy(builder *b, swap_ref dst, swap_ref src, int32_t tensor)
{
    swap_call call = {.op = ATOM_OP_N, .node = b->g->tensors[tensor].producer};
    uint64_t bytes = graph_tensor_bytes(b->g, tensor);
    snprintf(call.name, sizeof call.name, "copy %.40s", b->g->tensors[tensor].name);
    put(&call, dst, bytes);
    put(&call, src, bytes);
    call.dim[0] = (int64_t)bytes;
    return add_call(b, &call);
}

static swap_call begin_call(const builder *b, int32_t index, int backward)
{
    const graph_node *node = &b->g->nodes[index];
    swap_call call = {.op = node->op,
                      .backward = (uint8_t)backward,
                      .node = index,
                      .eps = node->eps,
                      .p = node->p,
                      .rng = node->rng,
                      .rope = node->rope,
                      .scale = node->scale,
                      .lift = node->lift,
                      .cap = node->cap};
    snprintf(call.name, sizeof call.name, "%.47s", node->name);
    node_dims(b->g, index, call.dim);
    return call;
}

static void put_params(const builder *b, swap_call *call, const graph_node *node, bool gradients)
{
    const atom_op_info *info = atom_op_get(node->op);
    for (int p = 0; p < info->params_max; p++) {
        int32_t id = p < node->n_params ? node->params[p] : GRAPH_NONE;
        if (id == GRAPH_NONE || (gradients && b->g->params[id].frozen)) {
            put_none(call);
            continue;
        }
        uint64_t each = gradients ? 4 : b->layout->wire_bytes_each;
        put(call, gradients ? param_grad_ref(b, id) : param_ref(b, id),
            b->g->params[id].elements * each);
    }
}

static void put_value(builder *b, swap_call *call, int32_t tensor)
{
    put(call, value_ref(b, tensor), graph_tensor_bytes(b->g, tensor));
}

/* Scratch values whose last reader in this list was `index` are free again. */
static void release_values(builder *b, int32_t index)
{
    for (uint32_t i = b->act.n; i-- > 0;) {
        gen_live_block *block = &b->act.blocks[i];
        if (!block->gradient && (b->g->tensors[block->tensor].last_use <= index))
            gen_scratch_give(&b->act, block->tensor, false);
    }
}

static atom_status add_forward(builder *b, int32_t index)
{
    const graph_node *node = &b->g->nodes[index];
    const atom_op_info *info = atom_op_get(node->op);
    swap_call call = begin_call(b, index, 0);
    uint64_t offset;
    for (int i = 0; i < info->ins; i++)
        put_value(b, &call, node->in[i]);
    put_params(b, &call, node, false);
    for (int o = 0; o < info->outs; o++)
        put_value(b, &call, node->out[o]);
    for (int s = 0; s < info->saved; s++)
        put_value(b, &call, node->saved[s]);
    atom_status st = add_call(b, &call);
    release_values(b, index);
    /* kept by backward and wanted outside: it is computed into KEPT, then copied out */
    int32_t out = node->out[0];
    bool kept = b->list == SWAP_LIST_KEEP && b->full && b->kept_at[out] != NOT_KEPT;
    bool held = b->list == SWAP_LIST_FWD && is_held(b, out);
    if (st == ATOM_OK && (kept || held) && in_boundary(&b->visit->y, out, &offset))
        st = add_copy(b, (swap_ref){SWAP_BASE_Y, offset}, value_ref(b, out), out);
    return st;
}

static void put_d_inputs(builder *b, swap_call *call, int32_t index)
{
    const graph_node *node = &b->g->nodes[index];
    for (int i = 0; i < atom_op_get(node->op)->ins; i++) {
        graph_grad mode = graph_grad_mode(b->g, index, i);
        if (mode == GRAPH_GRAD_NONE) {
            put_none(call);
            continue;
        }
        if (mode == GRAPH_GRAD_ADD)
            call->flags |= i == 0 ? KRN_ADD_D_IN0 : KRN_ADD_D_IN1;
        put(call, grad_ref(b, node->in[i]), graph_tensor_bytes(b->g, node->in[i]));
    }
}

/* The gradient of a sum stays where it is, as that of its terms, if both are made here: the gradient of
 * what came in has its own place, which goes to the neighbour. Where the sum goes out, its gradient came
 * from the neighbour, and nobody else needs it any more. */
static bool hand_on(builder *b, int32_t index)
{
    const graph_node *node = &b->g->nodes[index];
    int owner = 0;
    uint64_t offset;
    if (!graph_hands_on(b->g, index, &owner) || !made_here(b, node->in[0]) ||
        !made_here(b, node->in[1]))
        return false;
    int32_t sum = node->out[0], own = node->in[owner], other = node->in[1 - owner];
    int32_t place = b->same[sum] == GRAPH_NONE ? sum : b->same[sum];
    if (in_boundary(&b->visit->y, place, &offset)) {
        b->same[own] = b->same[other] = place;
        return true;
    }
    gen_live_block *block = gen_scratch_find(&b->act, sum, true);
    ATOM_ASSERT(block && place == sum);
    block->tensor = own;
    b->same[other] = own;
    return true;
}

static atom_status add_backward(builder *b, int32_t index)
{
    const graph_node *node = &b->g->nodes[index];
    const atom_op_info *info = atom_op_get(node->op);
    unsigned keeps = graph_node_keeps(b->g, index);
    bool terminal = info->flags & ATOM_OP_TERMINAL;
    swap_call call = begin_call(b, index, 1);
    if (!graph_node_backward(b->g, index) || hand_on(b, index))
        return ATOM_OK;
    for (int i = 0; i < info->ins; i++) {
        if (keeps & (i == 0 ? ATOM_KEEP_IN0 : ATOM_KEEP_IN1))
            put_value(b, &call, node->in[i]);
        else
            put_none(&call);
    }
    put_params(b, &call, node, false);
    for (int o = 0; o < info->outs; o++) {
        if (terminal || (keeps & ATOM_KEEP_OUT))
            put_value(b, &call, node->out[o]);
        else
            put_none(&call);
    }
    for (int s = 0; s < info->saved; s++)
        put_value(b, &call, node->saved[s]);
    for (int o = 0; o < info->outs; o++) {
        if (terminal)
            put_none(&call);
        else
            put(&call, grad_ref(b, node->out[o]), graph_tensor_bytes(b->g, node->out[o]));
    }
    put_d_inputs(b, &call, index);
    put_params(b, &call, node, true);
    atom_status st = add_call(b, &call);
    for (int o = 0; o < info->outs; o++)
        gen_scratch_give(&b->act, node->out[o], true);
    return st;
}

/* --- lists ----------------------------------------------------------------------------------- */

static bool is_missing(const builder *b, int32_t tensor)
{
    return b->kept_at[tensor] != NOT_KEPT && !is_held(b, tensor);
}

/* Which tensors the backward of this range reads, and which nodes KEEP must run for them. */
static void mark_needed(builder *b)
{
    const graph *g = b->g;
    uint64_t at[SWAP_BASE_N] = {0}, offset;
    for (uint32_t t = 0; t < g->n_tensors; t++)
        b->kept_at[t] = NOT_KEPT;
    for (int32_t i = b->first; i < b->last; i++) {
        const graph_node *node = &g->nodes[i];
        const atom_op_info *info = atom_op_get(node->op);
        unsigned keeps = graph_node_keeps(g, i);
        if ((info->flags & ATOM_OP_LATE) || !graph_node_backward(g, i))
            continue;
        for (int j = 0; j < info->ins; j++) {
            if ((keeps & (j ? ATOM_KEEP_IN1 : ATOM_KEEP_IN0)) && made_here(b, node->in[j]))
                b->kept_at[node->in[j]] = 0;
        }
        if (keeps & ATOM_KEEP_OUT)
            b->kept_at[node->out[0]] = 0;
        for (int s = 0; s < info->saved; s++)
            b->kept_at[node->saved[s]] = 0;
    }
    for (uint32_t t = 0; t < g->n_tensors; t++) {
        if (b->kept_at[t] == NOT_KEPT)
            continue;
        swap_base base = kept_base(b, (int32_t)t);
        b->kept_at[t] = at[base];
        at[base] += aligned_bytes(b, (int32_t)t);
    }
    b->visit->kept_bytes = at[SWAP_BASE_KEPT];
    b->visit->held_bytes = at[SWAP_BASE_HELD];
    b->visit->sent_bytes = at[SWAP_BASE_SENT];
    memset(b->needed, 0, g->n_nodes);
    for (int32_t i = b->last; i-- > b->first;) {
        const graph_node *node = &g->nodes[i];
        const atom_op_info *info = atom_op_get(node->op);
        if (info->flags & ATOM_OP_TERMINAL)
            continue;
        bool want = b->needed[i] || is_missing(b, node->out[0]) ||
                    (b->full && in_boundary(&b->visit->y, node->out[0], &offset));
        for (int s = 0; s < info->saved; s++)
            want |= is_missing(b, node->saved[s]);
        b->needed[i] = want;
        for (int j = 0; want && j < info->ins; j++) {
            if (made_here(b, node->in[j]) && !is_held(b, node->in[j]))
                b->needed[g->tensors[node->in[j]].producer] = 1;
        }
    }
}

static void begin_list(builder *b, swap_list list)
{
    b->list = list;
    b->calls = &b->layout->out->program->sub_models[b->k].list[list];
    b->room = 0;
    b->act.n = 0;
    for (uint32_t t = 0; t < b->g->n_tensors; t++)
        b->same[t] = GRAPH_NONE;
}

/* Tensors that cross the whole range: their value or gradient is handed on. */
static atom_status pass_through(builder *b, swap_base to, swap_base from)
{
    for (uint32_t i = 0; i < b->visit->x.n; i++) {
        uint64_t x = b->visit->x.offset[i], y;
        if (!in_boundary(&b->visit->y, b->visit->x.ids[i], &y))
            continue;
        swap_ref dst = {to, to == SWAP_BASE_Y ? y : x}, src = {from, from == SWAP_BASE_DY ? y : x};
        ATOM_TRY(add_copy(b, dst, src, b->visit->x.ids[i]));
    }
    return ATOM_OK;
}

static atom_status build_forward(builder *b)
{
    begin_list(b, SWAP_LIST_FWD);
    ATOM_TRY(pass_through(b, SWAP_BASE_Y, SWAP_BASE_X));
    for (int32_t i = b->first; i < b->last; i++)
        ATOM_TRY(add_forward(b, i));
    return ATOM_OK;
}

/* The late node's gradient starts as what comes back from the range's end, if it crosses that. */
static atom_status begin_late(builder *b)
{
    uint64_t y;
    if (!b->visit->has_late)
        return ATOM_OK;
    int32_t out = b->g->nodes[b->layout->late_node].out[0];
    if (!in_boundary(&b->visit->y, out, &y))
        return ATOM_OK;
    return add_copy(b, (swap_ref){SWAP_BASE_LATE, 0}, (swap_ref){SWAP_BASE_DY, y}, out);
}

static atom_status build_backward(builder *b)
{
    begin_list(b, SWAP_LIST_KEEP);
    if (b->full)
        ATOM_TRY(pass_through(b, SWAP_BASE_Y, SWAP_BASE_X));
    for (int32_t i = b->first; i < b->last; i++) {
        if (b->needed[i])
            ATOM_TRY(add_forward(b, i));
    }
    begin_list(b, SWAP_LIST_BWD);
    ATOM_TRY(pass_through(b, SWAP_BASE_DX, SWAP_BASE_DY));
    ATOM_TRY(begin_late(b));
    for (int32_t i = b->last; i-- > b->first;) {
        if (!(atom_op_get(b->g->nodes[i].op)->flags & ATOM_OP_LATE))
            ATOM_TRY(add_backward(b, i));
    }
    begin_list(b, SWAP_LIST_LATE);
    for (int32_t i = b->last; i-- > b->first;) {
        if (atom_op_get(b->g->nodes[i].op)->flags & ATOM_OP_LATE)
            ATOM_TRY(add_backward(b, i));
    }
    return ATOM_OK;
}

static void add_symbol(builder *b, swap_sub_model *out, int32_t param)
{
    const graph_param *p = &b->g->params[param];
    swap_symbol *s = &out->symbols[out->n_symbols++];
    snprintf(s->name, sizeof s->name, "%s", p->name);
    s->dims[0] = p->dims[0];
    s->dims[1] = p->rank > 1 ? p->dims[1] : 0;
    s->slot_bytes = gen_slot_offset(b->layout, b->k, param);
    s->grad_bytes = p->frozen ? SWAP_NO_GRAD : b->layout->grad_offset[param];
    s->shared = p->shared;
}

static atom_status build_symbols(builder *b, swap_sub_model *out)
{
    const gen_visit *v = b->visit;
    uint32_t n = (uint32_t)(v->last_param - v->first_param) + v->n_extras;
    out->symbols = atom_alloc(n ? n : 1, sizeof *out->symbols);
    if (!out->symbols)
        return atom_fail_memory("symbols", n * sizeof *out->symbols);
    for (int32_t p = v->first_param; p < v->last_param; p++)
        add_symbol(b, out, p);
    for (uint32_t e = 0; e < v->n_extras; e++)
        add_symbol(b, out, v->extras[e].param);
    return ATOM_OK;
}

static atom_status build_sub_model(builder *b, uint32_t k)
{
    const part_sub_model *s = &b->layout->plan->sub_models[k];
    swap_sub_model *out = &b->layout->out->program->sub_models[k];
    bool last = k + 1 == b->layout->n;
    b->k = k;
    b->visit = &b->layout->visits[k];
    b->first = s->first_node;
    b->last = s->last_node;
    b->full = !last && (s->keep == PART_KEEP_DEVICE || s->keep == PART_KEEP_HOST);
    b->holds = !last && s->keep == PART_KEEP_SOME ? b->layout->plan->holds : NULL;
    b->act.peak = 0;
    out->first_node = s->first_node;
    out->last_node = s->last_node;
    mark_needed(b);
    ATOM_TRY(build_symbols(b, out));
    ATOM_TRY(build_forward(b));
    if (graph_trains(b->g))
        ATOM_TRY(build_backward(b));
    b->visit->act_bytes = b->act.peak;
    return ATOM_OK;
}

atom_status gen_calls_build(gen_layout *layout)
{
    atom_status st = ATOM_OK;
    builder b = {.layout = layout, .g = layout->g};
    swap_program *program = atom_alloc(1, sizeof *program);
    b.kept_at = atom_alloc(layout->g->n_tensors, sizeof *b.kept_at);
    b.same = atom_alloc(layout->g->n_tensors, sizeof *b.same);
    b.needed = atom_alloc(layout->g->n_nodes, 1);
    layout->out->program = program;
    if (program)
        program->sub_models = atom_alloc(layout->n, sizeof *program->sub_models);
    if (!program || !program->sub_models || !b.kept_at || !b.same || !b.needed)
        ATOM_TRY_CLEAN(atom_fail_memory("call lists", layout->n * sizeof *program->sub_models));
    program->n_sub_models = layout->n;
    program->graph_hash = layout->plan->graph_hash; /* lower() has compared them */
    program->dtype = layout->g->dtype;
    snprintf(program->model, sizeof program->model, "%s", layout->g->name);
    for (uint32_t k = 0; k < layout->n; k++)
        ATOM_TRY_CLEAN(build_sub_model(&b, k));
cleanup:
    atom_free(b.kept_at);
    atom_free(b.same);
    atom_free(b.needed);
    return st;
}
