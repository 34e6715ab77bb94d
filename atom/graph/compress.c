/*
 * Owns what stands on boundaries between blocks as a rewrite: codecs, and bottlenecks that are
 * learnt, which narrow what crosses by a linear layer or by maxout. One idea: a model can be handed
 * from host to host exactly where one tensor crosses, so a cut is found by counting what crosses,
 * not by names, and works for every family and for one's own models. Refuses cuts that are not
 * between two blocks, and widths that narrow nothing.
 */
#include "atom/graph/build.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct cutting {
    const graph *from;
    graph *to;
    atom_codec codec; /* of what is put at each cut, or */
    int64_t width;    /* the width of a bottleneck; 0: the codec */
    bool maxout;      /* the bottleneck narrows by maxout, not by a linear layer */
    const int32_t *after;
    uint32_t n;
    int32_t *cut;  /* [n] nodes of `from` in front of which it stands, ascending */
    int32_t *sent; /* [n] tensors of `from` that cross there */
    int32_t *own;  /* [n] parameters of `to`: a bottleneck's first; the others are behind */
    int32_t *tensor, *param; /* by id of `from`: its id in `to` */
    uint32_t rng;            /* of the next node that is put: behind all of `from` */
} cutting;

static int32_t blocks_of(const graph *g)
{
    int32_t blocks = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        blocks += g->nodes[i].op == ATOM_OP_attention;
    return blocks;
}

/* Node of the attention of block `index`, from 0. */
static int32_t attention_at(const graph *g, int32_t index)
{
    int32_t i = 0;
    for (; index > 0 || g->nodes[i].op != ATOM_OP_attention; i++)
        index -= g->nodes[i].op == ATOM_OP_attention;
    return i;
}

static atom_status find_cut(const graph *g, int32_t after, int32_t *cut, int32_t *sent)
{
    int32_t first = attention_at(g, after - 1), tensor;
    for (int32_t at = attention_at(g, after); at > first; at--) {
        if (graph_boundary(g, at, &tensor, 1) != 1 || g->tensors[tensor].kind != GRAPH_ACT)
            continue;
        *cut = at;
        *sent = tensor;
        return ATOM_OK;
    }
    return atom_fail(ATOM_E_USAGE,
                     "%s cannot be cut after block %d: more than one tensor crosses everywhere up "
                     "to the next attention",
                     g->name, after);
}

static atom_status find_cuts(cutting *c)
{
    int32_t blocks = blocks_of(c->from);
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->after[i] < 1 || c->after[i] >= blocks)
            return atom_fail(ATOM_E_USAGE,
                             "there is no boundary after %d blocks of %s: it has %d, and a "
                             "boundary lies between two of them",
                             c->after[i], c->from->name, blocks);
        if (i > 0 && c->after[i] <= c->after[i - 1])
            return atom_fail(ATOM_E_USAGE,
                             "boundaries must be in ascending order, each once; %d follows %d",
                             c->after[i], c->after[i - 1]);
        ATOM_TRY(find_cut(c->from, c->after[i], &c->cut[i], &c->sent[i]));
    }
    return ATOM_OK;
}

static atom_status check_width(const cutting *c)
{
    for (uint32_t i = 0; i < c->n && c->width; i++) {
        int64_t C = c->from->tensors[c->sent[i]].dims[2];
        if (c->width < 1 || c->width >= C)
            return atom_fail(ATOM_E_USAGE,
                             "a bottleneck of %lld values makes nothing narrower: %lld values "
                             "cross the boundary after %d blocks of %s",
                             (long long)c->width, (long long)C, c->after[i], c->from->name);
        if (c->maxout && C % c->width != 0)
            return atom_fail(ATOM_E_USAGE,
                             "maxout cannot leave %lld values of the %lld that cross the boundary "
                             "after %d blocks of %s: the first number must divide the second",
                             (long long)c->width, (long long)C, c->after[i], c->from->name);
    }
    return ATOM_OK;
}

/* --- parameters ------------------------------------------------------------------------------- */

static const char BOUNDARY[] = "boundary.";
static const char *const LINEAR[] = {".down.weight", ".up.weight", NULL};
static const char *const MAXOUT[] = {".ln_1.weight", ".ln_1.bias", ".ln_2.weight",
                                     ".ln_2.bias",   ".up.weight", NULL};

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

bool graph_is_bottleneck(const graph_param *p)
{
    bool is = false;
    for (int i = 0; LINEAR[i]; i++)
        is |= ends_with(p->name, LINEAR[i]);
    for (int i = 0; MAXOUT[i]; i++)
        is |= ends_with(p->name, MAXOUT[i]);
    return is && strncmp(p->name, BOUNDARY, strlen(BOUNDARY)) == 0;
}

static const char *const *parts(const cutting *c)
{
    return c->maxout ? MAXOUT : LINEAR;
}

/* Weights are drawn so that values keep their size on the way through; norms begin with weights of
 * 1 and biases of 0. */
static atom_status add_own(cutting *c, uint32_t i, int k, int32_t *id)
{
    const char *end = parts(c)[k];
    int64_t C = c->from->tensors[c->sent[i]].dims[2], W = c->width, wide = k < 2 ? C : W;
    char name[GRAPH_NAME_MAX];
    snprintf(name, sizeof name, "%s%d%s", BOUNDARY, c->after[i], end);
    if (strncmp(end, ".ln", 3) == 0)
        return graph_add_param(c->to, name, 1, &wide, k % 2 ? GRAPH_INIT_ZERO : GRAPH_INIT_ONE, 0,
                               id);
    bool up = parts(c)[k + 1] == NULL;
    return graph_add_param(c->to, name, 2, up ? (int64_t[]){C, W} : (int64_t[]){W, C},
                           GRAPH_INIT_NORMAL, (float)sqrt(1.0 / (double)(up ? W : C)), id);
}

/* Parameters in the order of their first use, bottlenecks' where they stand. */
static atom_status add_params(cutting *c)
{
    const graph *g = c->from;
    uint32_t next = 0;
    for (uint32_t i = 0; i <= g->n_params; i++) {
        const graph_param *p = &g->params[i];
        for (; c->width && next < c->n && (i == g->n_params || p->first_node >= c->cut[next]);
             next++) {
            int32_t behind;
            for (int k = 0; parts(c)[k]; k++)
                ATOM_TRY(add_own(c, next, k, k == 0 ? &c->own[next] : &behind));
        }
        if (i == g->n_params)
            break;
        ATOM_TRY(
            graph_add_param(c->to, p->name, p->rank, p->dims, p->init, p->init_std, &c->param[i]));
        if (p->frozen)
            graph_freeze(c->to, c->param[i]);
    }
    return ATOM_OK;
}

/* What files of somebody's own model call a bottleneck's weight: as it is called here. */
static graph_stored stored_as(const graph *g, int32_t id)
{
    const graph_param *p = &g->params[id];
    graph_stored s = {.rank = p->rank, .param = id, .step = 1, .rows = p->dims[0]};
    memcpy(s.dims, p->dims, sizeof s.dims);
    snprintf(s.name, sizeof s.name, "%s", p->name);
    return s;
}

static atom_status set_stored(cutting *c)
{
    const graph *g = c->from;
    uint32_t each = 0;
    while (parts(c)[each])
        each++;
    uint32_t more = c->width && g->n_stored ? each * c->n : 0, n = g->n_stored + more;
    graph_stored *rows = atom_alloc(n ? n : 1, sizeof *rows);
    if (!rows)
        return atom_fail_memory("the names of tensors", (uint64_t)n * sizeof *rows);
    for (uint32_t i = 0; i < g->n_stored; i++) {
        rows[i] = g->stored[i];
        rows[i].param = c->param[g->stored[i].param];
    }
    for (uint32_t i = 0; i < more; i++)
        rows[g->n_stored + i] = stored_as(c->to, c->own[i / each] + (int32_t)(i % each));
    atom_status st = graph_set_stored(c->to, rows, n);
    graph_set_buffers(c->to, g->buffers);
    atom_free(rows);
    return st;
}

/* --- nodes ------------------------------------------------------------------------------------ */

static atom_status add_part(cutting *c, uint32_t i, const char *part, graph_node node)
{
    node.in[0] = c->tensor[c->sent[i]];
    snprintf(node.name, sizeof node.name, "%s%d.%s", BOUNDARY, c->after[i], part);
    return graph_add_node_rng(c->to, &node, c->rng++, &c->tensor[c->sent[i]]);
}

static graph_node linear(int32_t param)
{
    return (graph_node){.op = ATOM_OP_linear, .n_params = 1, .params = {param}};
}

static graph_node norm(int32_t param)
{
    return (graph_node){
        .op = ATOM_OP_layernorm, .n_params = 2, .params = {param, param + 1}, .eps = 1e-5f};
}

/* What comes out of ln_2 crosses. */
static atom_status add_maxout(cutting *c, uint32_t i)
{
    int64_t C = c->from->tensors[c->sent[i]].dims[2];
    graph_node maxout = {.op = ATOM_OP_maxout, .window = C / c->width};
    ATOM_TRY(add_part(c, i, "ln_1", norm(c->own[i])));
    ATOM_TRY(add_part(c, i, "maxout", maxout));
    ATOM_TRY(add_part(c, i, "ln_2", norm(c->own[i] + 2)));
    return add_part(c, i, "up", linear(c->own[i] + 4));
}

/* What stands at cut i; who reads what crossed there reads its output from here on. */
static atom_status add_boundary(cutting *c, uint32_t i)
{
    if (c->maxout)
        return add_maxout(c, i);
    if (c->width) {
        ATOM_TRY(add_part(c, i, "down", linear(c->own[i])));
        return add_part(c, i, "up", linear(c->own[i] + 1));
    }
    graph_node node = {.op = ATOM_OP_compress,
                       .in = {c->tensor[c->sent[i]]},
                       .scale = c->codec.share,
                       .codec = (int32_t)c->codec.kind};
    snprintf(node.name, sizeof node.name, "%s%d", BOUNDARY, c->after[i]);
    return graph_add_node_rng(c->to, &node, c->rng++, &c->tensor[c->sent[i]]);
}

static atom_status copy(cutting *c)
{
    const graph *g = c->from;
    uint32_t next = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const graph_tensor *t = &g->tensors[i];
        if (t->producer == GRAPH_NONE)
            ATOM_TRY(graph_add_input(c->to, t->name, t->kind, t->rank, t->dims, &c->tensor[i]));
    }
    for (uint32_t i = 0; i < g->n_nodes; i++)
        c->rng = g->nodes[i].rng >= c->rng ? g->nodes[i].rng + 1 : c->rng;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        graph_node node = g->nodes[i];
        for (; next < c->n && c->cut[next] == (int32_t)i; next++)
            ATOM_TRY(add_boundary(c, next));
        for (int k = 0; k < atom_op_get(node.op)->ins; k++)
            node.in[k] = c->tensor[node.in[k]];
        for (int k = 0; k < node.n_params; k++)
            node.params[k] = c->param[node.params[k]];
        ATOM_TRY(graph_add_node_rng(c->to, &node, node.rng, &c->tensor[g->nodes[i].out[0]]));
    }
    return ATOM_OK;
}

static atom_status cut_apart(cutting *c, graph **out)
{
    const graph *g = c->from;
    atom_status st;
    size_t n = c->n ? c->n : 1;
    c->cut = atom_alloc(n, sizeof *c->cut);
    c->sent = atom_alloc(n, sizeof *c->sent);
    c->own = atom_alloc(n, sizeof *c->own);
    c->tensor = atom_alloc(g->n_tensors, sizeof *c->tensor);
    c->param = atom_alloc(g->n_params, sizeof *c->param);
    if (!c->cut || !c->sent || !c->own || !c->tensor || !c->param)
        ATOM_TRY_CLEAN(atom_fail_memory("a graph", (uint64_t)g->n_tensors * sizeof *c->tensor));
    ATOM_TRY_CLEAN(find_cuts(c));
    ATOM_TRY_CLEAN(check_width(c));
    ATOM_TRY_CLEAN(graph_open(g->name, g->dtype, g->micro_batch, g->sequence, &c->to));
    graph_set_moments(c->to, g->moments);
    graph_set_optimizer(c->to, g->optimizer);
    graph_set_packed(c->to, g->packed);
    graph_set_tied_files(c->to, g->tied_files);
    ATOM_TRY_CLEAN(add_params(c));
    ATOM_TRY_CLEAN(copy(c));
    ATOM_TRY_CLEAN(set_stored(c));
    ATOM_TRY_CLEAN(graph_seal(c->to));
    *out = c->to;
    c->to = NULL;
cleanup:
    atom_free(c->cut);
    atom_free(c->sent);
    atom_free(c->own);
    atom_free(c->tensor);
    atom_free(c->param);
    graph_close(&c->to);
    return st;
}

atom_status graph_compress(const graph *g, atom_codec codec, const int32_t *after, uint32_t n,
                           graph **out)
{
    cutting c = {.from = g, .codec = codec, .after = after, .n = n};
    return cut_apart(&c, out);
}

atom_status graph_bottleneck(const graph *g, const graph_bottlenecks *b, graph **out)
{
    cutting c = {.from = g, .width = b->width, .maxout = b->maxout, .after = b->after, .n = b->n};
    ATOM_ASSERT(b->n > 0 && b->n <= GRAPH_BOTTLENECKS_MAX && b->width > 0);
    return cut_apart(&c, out);
}
