/*
 * Owns low-rank adaptation as a rewrite. One idea: copy the graph node by node with every parameter
 * frozen but for those that are trained whole; behind a linear that targets name stand, target by target, a small linear down to the
 * rank and a lora node up from it, which takes over the linear's place for whoever comes next.
 * Refuses targets that are not rows of a linear's weight.
 */
#include "atom/graph/build.h"

#include "atom/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct adapting {
    const graph *from;
    const graph_lora_config *config;
    graph *to;
    int32_t *param, *tensor; /* by id of `from`: its id in `to` */
    uint32_t rng;            /* of the next node that draws: behind all of `from` */
} adapting;

static int64_t rank_of(const graph_lora_config *config, const graph_target *t)
{
    return t->rank ? t->rank : config->rank;
}

static atom_status targets_check(const graph *g, const graph_lora_config *config,
                                 const graph_target *targets, uint32_t n)
{
    if (n == 0)
        return atom_fail(ATOM_E_USAGE, "LoRA has no target: nothing would be trained");
    for (uint32_t i = 0; i < n; i++) {
        const graph_target *t = &targets[i];
        const graph_param *p = &g->params[t->param];
        if (p->shared || g->nodes[p->first_node].op != ATOM_OP_linear || p->rank != 2 ||
            t->first < 0 || t->rows < 1 || t->first + t->rows > p->dims[0])
            return atom_fail(ATOM_E_USAGE,
                             "%s cannot have a LoRA adapter, because it is not a separate linear "
                             "layer",
                             t->name);
        int64_t most = t->rows < p->dims[1] ? t->rows : p->dims[1];
        int64_t rank = rank_of(config, t);
        if (rank < 1 || rank > most)
            return atom_fail(ATOM_E_USAGE, "lora_r is %lld; %s takes 1 to %lld", (long long)rank,
                             t->name, (long long)most);
        if (config->trained && config->trained[t->param])
            return atom_fail(ATOM_E_USAGE,
                             "%s has an adapter and is trained whole; one of them has no effect",
                             t->name);
    }
    return ATOM_OK;
}

/* A name of the target's: "layers.0.mlp.up_proj" + ".lora_A.weight". */
static atom_status name_of(const graph_target *t, const char *suffix, char out[GRAPH_NAME_MAX])
{
    int n = snprintf(out, GRAPH_NAME_MAX, "%s%s", t->name, suffix);
    if (n < 0 || n >= GRAPH_NAME_MAX)
        return atom_fail(ATOM_E_FORMAT, "the name \"%s%s\" is longer than %d characters", t->name,
                         suffix, GRAPH_NAME_MAX - 1);
    return ATOM_OK;
}

static atom_status node_name(const graph_node *linear, const char *suffix, char out[GRAPH_NAME_MAX])
{
    int n = snprintf(out, GRAPH_NAME_MAX, "%s%s", linear->name, suffix);
    if (n < 0 || n >= GRAPH_NAME_MAX)
        return atom_fail(ATOM_E_FORMAT, "the name of node \"%s\" is too long", linear->name);
    return ATOM_OK;
}

static atom_status add_dropped(adapting *a, const graph_node *linear, int32_t x, int32_t *out)
{
    graph_node drop = {.op = ATOM_OP_dropout, .in = {x}, .p = a->config->dropout};
    *out = x;
    if (a->config->dropout == 0)
        return ATOM_OK;
    ATOM_TRY(node_name(linear, ".lora_dropout", drop.name));
    return graph_add_node_rng(a->to, &drop, a->rng++, out);
}

/* *y, whose bias is c or GRAPH_NONE, gets the lengths of its rows from the target's magnitudes. */
static atom_status add_magnitude(adapting *a, const graph_target *t, int32_t A, int32_t B,
                                 int32_t c, int32_t *y)
{
    graph_node norm = {.op = ATOM_OP_rownorm,
                       .n_params = 3,
                       .params = {a->param[t->param], A, B},
                       .scale = t->rank ? t->scale : a->config->scale,
                       .first = (int32_t)t->first};
    graph_node dora = {.op = ATOM_OP_dora,
                       .n_params = c == GRAPH_NONE ? 1 : 2,
                       .in = {*y},
                       .params = {0, c},
                       .first = (int32_t)t->first};
    ATOM_TRY(name_of(t, ".lora_norm", norm.name));
    ATOM_TRY(graph_add_node_rng(a->to, &norm, a->rng++, &dora.in[1]));
    ATOM_TRY(name_of(t, ".lora_magnitude_vector", dora.name));
    ATOM_TRY(graph_add_param(a->to, dora.name, 1, (int64_t[]){t->rows}, GRAPH_INIT_ONE, 0,
                             &dora.params[0]));
    return graph_add_node_rng(a->to, &dora, a->rng++, y);
}

/* *y, whose bias is c, becomes y with the target's part added. */
static atom_status add_target(adapting *a, const graph_target *t, int32_t x, int32_t c, int32_t *y)
{
    int64_t in = a->from->params[t->param].dims[1], rank = rank_of(a->config, t);
    graph_node down = {.op = ATOM_OP_linear, .n_params = 1, .in = {x}};
    graph_node up = {.op = ATOM_OP_lora,
                     .n_params = 1,
                     .scale = t->rank ? t->scale : a->config->scale,
                     .first = (int32_t)t->first};
    char name[GRAPH_NAME_MAX];
    ATOM_TRY(name_of(t, ".lora_A.weight", name));
    ATOM_TRY(graph_add_param(a->to, name, 2, (int64_t[]){rank, in}, GRAPH_INIT_UNIFORM,
                             (float)sqrt(1.0 / (3.0 * (double)in)), &down.params[0]));
    ATOM_TRY(name_of(t, ".lora_A", down.name));
    ATOM_TRY(graph_add_node_rng(a->to, &down, a->rng++, &up.in[1]));
    ATOM_TRY(name_of(t, ".lora_B.weight", name));
    ATOM_TRY(graph_add_param(a->to, name, 2, (int64_t[]){t->rows, rank}, GRAPH_INIT_ZERO, 0,
                             &up.params[0]));
    ATOM_TRY(name_of(t, ".lora_B", up.name));
    up.in[0] = *y;
    ATOM_TRY(graph_add_node_rng(a->to, &up, a->rng++, y));
    return a->config->dora ? add_magnitude(a, t, down.params[0], up.params[0], c, y) : ATOM_OK;
}

/* The linear's targets [at, end), which the x that it reads is the input of; *y becomes their output.
 * DoRA scales what a dropped x gives, and the rest of y stays as it is. */
static atom_status add_targets(adapting *a, const graph_node *linear, const graph_target *at,
                               const graph_target *end, int32_t *y)
{
    int32_t whole = a->tensor[linear->in[0]], x, z = *y;
    int32_t c = linear->n_params == 2 ? a->param[linear->params[1]] : GRAPH_NONE;
    bool apart = a->config->dora && a->config->dropout > 0;
    graph_node dropped = {
        .op = ATOM_OP_linear, .n_params = 1, .params = {a->param[linear->params[0]]}};
    graph_node less = {.op = ATOM_OP_scale, .scale = -1}, more = {.op = ATOM_OP_add, .in = {*y}};
    ATOM_TRY(add_dropped(a, linear, whole, &x));
    if (apart) {
        ATOM_TRY(node_name(linear, ".lora_dropped", dropped.name));
        ATOM_TRY(node_name(linear, ".lora_less", less.name));
        ATOM_TRY(node_name(linear, ".lora_more", more.name));
        dropped.in[0] = x;
        ATOM_TRY(graph_add_node_rng(a->to, &dropped, a->rng++, &less.in[0]));
        z = less.in[0];
    }
    for (; at < end; at++)
        ATOM_TRY(add_target(a, at, x, apart ? GRAPH_NONE : c, &z));
    if (apart) {
        graph_node sum = {.op = ATOM_OP_add, .in = {z}};
        ATOM_TRY(node_name(linear, ".lora_change", sum.name));
        ATOM_TRY(graph_add_node_rng(a->to, &less, a->rng++, &sum.in[1]));
        ATOM_TRY(graph_add_node_rng(a->to, &sum, a->rng++, &more.in[1]));
        ATOM_TRY(graph_add_node_rng(a->to, &more, a->rng++, &z));
    }
    *y = z;
    return ATOM_OK;
}

/* A node of `from`, with its parameters where they are met first. */
static atom_status copy_node(adapting *a, int32_t index, int32_t *out)
{
    graph_node node = a->from->nodes[index];
    atom_status st = ATOM_OK;
    for (int i = 0; i < atom_op_get(node.op)->ins; i++)
        node.in[i] = a->tensor[node.in[i]];
    for (int i = 0; i < node.n_params && st == ATOM_OK; i++) {
        int32_t id = node.params[i];
        const graph_param *p = &a->from->params[id];
        if (a->param[id] == GRAPH_NONE) {
            st = graph_add_param(a->to, p->name, p->rank, p->dims, p->init, p->init_std,
                                 &a->param[id]);
            if (st == ATOM_OK && !(a->config->trained && a->config->trained[id]))
                graph_freeze(a->to, a->param[id]);
        }
        node.params[i] = a->param[id];
    }
    return st == ATOM_OK ? graph_add_node_rng(a->to, &node, node.rng, out) : st;
}

static atom_status adapt(adapting *a, const graph_target *targets, uint32_t n)
{
    const graph *g = a->from;
    atom_status st = ATOM_OK;
    for (uint32_t i = 0; i < g->n_params; i++)
        a->param[i] = GRAPH_NONE;
    for (uint32_t i = 0; i < g->n_tensors && st == ATOM_OK; i++) {
        const graph_tensor *t = &g->tensors[i];
        if (t->producer == GRAPH_NONE)
            st = graph_add_input(a->to, t->name, t->kind, t->rank, t->dims, &a->tensor[i]);
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < g->n_nodes && st == ATOM_OK; i++) {
        const graph_node *node = &g->nodes[i];
        uint32_t end = at;
        int32_t y = GRAPH_NONE;
        while (node->op == ATOM_OP_linear && end < n && targets[end].param == node->params[0])
            end++;
        st = copy_node(a, (int32_t)i, &y);
        if (st == ATOM_OK && end > at)
            st = add_targets(a, node, &targets[at], &targets[end], &y);
        a->tensor[node->out[0]] = y;
        at = end;
    }
    if (st == ATOM_OK && at != n)
        st = atom_fail(ATOM_E_USAGE,
                       "LoRA targets must be in ascending order without overlap; %s is not",
                       targets[at].name);
    return st;
}

atom_status graph_lora(const graph *g, const graph_lora_config *config, const graph_target *targets,
                       uint32_t n, graph **out)
{
    adapting a = {.from = g, .config = config, .rng = g->n_nodes};
    atom_status st;
    ATOM_TRY_CLEAN(targets_check(g, config, targets, n));
    a.param = atom_alloc(g->n_params, sizeof *a.param);
    a.tensor = atom_alloc(g->n_tensors, sizeof *a.tensor);
    if (!a.param || !a.tensor)
        ATOM_TRY_CLEAN(atom_fail_memory("adapting a graph", (uint64_t)g->n_tensors * 8));
    ATOM_TRY_CLEAN(graph_open(g->name, g->dtype, g->micro_batch, g->sequence, &a.to));
    graph_set_moments(a.to, g->moments);
    graph_set_optimizer(a.to, g->optimizer);
    graph_set_packed(a.to, g->packed);
    graph_set_tied_files(a.to, g->tied_files);
    ATOM_TRY_CLEAN(adapt(&a, targets, n));
    ATOM_TRY_CLEAN(graph_seal(a.to));
    *out = a.to;
    a.to = NULL;
cleanup:
    atom_free(a.param);
    atom_free(a.tensor);
    graph_close(&a.to);
    return st;
}
