/*
 * Owns GPT-2 as a graph: the check of its configuration and the builder. One idea: one function per
 * part of a block, each adding its parameters just before the node that uses them, so that
 * canonical order (order of first use) needs no bookkeeping. Refuses configurations that GPT-2
 * cannot have.
 */
#include "atom/graph/build.h"
#include "atom/graph/models.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static atom_status check_probability(const char *key, float value)
{
    if (value >= 0 && value < 1)
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT, "%s is %g; it must be at least 0 and below 1", key,
                     (double)value);
}

atom_status graph_gpt2_check(const graph_config *c)
{
    ATOM_TRY(graph_check_range("vocab_size", c->vocab_size, GRAPH_VOCAB_MAX));
    ATOM_TRY(graph_check_range("n_positions", c->positions, GRAPH_POSITIONS_MAX));
    ATOM_TRY(graph_check_range("n_embd", c->width, GRAPH_WIDTH_MAX));
    ATOM_TRY(graph_check_range("n_layer", c->layers, GRAPH_LAYERS_MAX));
    ATOM_TRY(graph_check_range("n_head", c->heads, c->width));
    ATOM_TRY(graph_check_range("n_inner", c->inner, GRAPH_INNER_MAX));
    if (c->width % c->heads != 0)
        return atom_fail(ATOM_E_FORMAT, "n_embd %lld is not a multiple of n_head %lld",
                         (long long)c->width, (long long)c->heads);
    if (!(c->epsilon > 0 && c->epsilon < 1))
        return atom_fail(ATOM_E_FORMAT, "layer_norm_epsilon is %g; it must be between 0 and 1",
                         (double)c->epsilon);
    if (!(c->init_std >= 0 && c->init_std <= 1e3f))
        return atom_fail(ATOM_E_FORMAT, "initializer_range is %g; it must be in 0 .. 1000",
                         (double)c->init_std);
    ATOM_TRY(check_probability("embd_pdrop", c->embd_pdrop));
    ATOM_TRY(check_probability("attn_pdrop", c->attn_pdrop));
    ATOM_TRY(check_probability("resid_pdrop", c->resid_pdrop));
    return ATOM_OK;
}

uint64_t graph_gpt2_params(const graph_config *c)
{
    uint64_t V = (uint64_t)c->vocab_size, P = (uint64_t)c->positions, C = (uint64_t)c->width,
             L = (uint64_t)c->layers, F = (uint64_t)c->inner;
    uint64_t norms = 2 * 2 * C;
    uint64_t attention = 3 * C * C + 3 * C + C * C + C;
    uint64_t mlp = F * C + F + C * F + C;
    return V * C * (c->untied ? 2 : 1) + P * C + L * (norms + attention + mlp) + 2 * C;
}

typedef struct building {
    const graph_config *c;
    graph *g;
    float proj_std; /* of c_proj weights: GPT-2's 1/sqrt(number of residual layers) */
    int32_t wte;
} building;

/* "h.3." + part, or part alone for layer < 0. */
static void name_make(char name[GRAPH_NAME_MAX], int64_t layer, const char *part)
{
    if (layer < 0)
        snprintf(name, GRAPH_NAME_MAX, "%s", part);
    else
        snprintf(name, GRAPH_NAME_MAX, "h.%lld.%s", (long long)layer, part);
}

/* Adds node.name + suffix as the node's next parameter. */
static atom_status param_add(building *b, graph_node *node, const char *suffix, int rank,
                             int64_t d0, int64_t d1, graph_init init, float std)
{
    char name[GRAPH_NAME_MAX + 16];
    int64_t dims[2] = {d0, d1};
    snprintf(name, sizeof name, "%s%s", node->name, suffix);
    return graph_add_param(b->g, name, rank, dims, init, std, &node->params[node->n_params++]);
}

static atom_status add_norm(building *b, int64_t layer, const char *part, int32_t x, int32_t *y)
{
    graph_node node = {.op = ATOM_OP_layernorm, .in = {x}, .eps = b->c->epsilon};
    int64_t C = b->c->width;
    name_make(node.name, layer, part);
    ATOM_TRY(param_add(b, &node, ".weight", 1, C, 0, GRAPH_INIT_ONE, 0));
    ATOM_TRY(param_add(b, &node, ".bias", 1, C, 0, GRAPH_INIT_ZERO, 0));
    return graph_add_node(b->g, &node, y);
}

static atom_status add_linear(building *b, int64_t layer, const char *part, int64_t I, int64_t O,
                              float std, int32_t x, int32_t *y)
{
    graph_node node = {.op = ATOM_OP_linear, .in = {x}};
    name_make(node.name, layer, part);
    ATOM_TRY(param_add(b, &node, ".weight", 2, O, I, GRAPH_INIT_NORMAL, std));
    ATOM_TRY(param_add(b, &node, ".bias", 1, O, 0, GRAPH_INIT_ZERO, 0));
    return graph_add_node(b->g, &node, y);
}

/* Where p is 0 there is no node and *y is x. */
static atom_status add_dropout(building *b, int64_t layer, const char *part, float p, int32_t x,
                               int32_t *y)
{
    graph_node node = {.op = ATOM_OP_dropout, .in = {x}, .p = p};
    *y = x;
    if (!(p > 0))
        return ATOM_OK;
    name_make(node.name, layer, part);
    return graph_add_node(b->g, &node, y);
}

static atom_status add_residual(building *b, int64_t layer, const char *part, int32_t x, int32_t r,
                                int32_t *y)
{
    graph_node node = {.op = ATOM_OP_add, .in = {x, r}};
    name_make(node.name, layer, part);
    return graph_add_node(b->g, &node, y);
}

static atom_status add_attention(building *b, int64_t layer, int32_t x, int32_t *y)
{
    graph_node node = {
        .op = ATOM_OP_attention, .p = b->c->attn_pdrop, .heads = (int32_t)b->c->heads};
    int64_t C = b->c->width;
    int32_t a;
    ATOM_TRY(add_norm(b, layer, "ln_1", x, &a));
    ATOM_TRY(add_linear(b, layer, "attn.c_attn", C, 3 * C, b->c->init_std, a, &a));
    name_make(node.name, layer, "attn");
    node.in[0] = a;
    ATOM_TRY(graph_add_node(b->g, &node, &a));
    ATOM_TRY(add_linear(b, layer, "attn.c_proj", C, C, b->proj_std, a, &a));
    ATOM_TRY(add_dropout(b, layer, "attn.drop", b->c->resid_pdrop, a, &a));
    return add_residual(b, layer, "add_1", a, x, y);
}

static atom_status add_mlp(building *b, int64_t layer, int32_t x, int32_t *y)
{
    graph_node node = {.op = ATOM_OP_gelu};
    int64_t C = b->c->width, F = b->c->inner;
    int32_t a;
    ATOM_TRY(add_norm(b, layer, "ln_2", x, &a));
    ATOM_TRY(add_linear(b, layer, "mlp.c_fc", C, F, b->c->init_std, a, &a));
    name_make(node.name, layer, "mlp.gelu");
    node.in[0] = a;
    ATOM_TRY(graph_add_node(b->g, &node, &a));
    ATOM_TRY(add_linear(b, layer, "mlp.c_proj", F, C, b->proj_std, a, &a));
    ATOM_TRY(add_dropout(b, layer, "mlp.drop", b->c->resid_pdrop, a, &a));
    return add_residual(b, layer, "add_2", a, x, y);
}

static atom_status add_embedding(building *b, int32_t tokens, int32_t *y)
{
    graph_node node = {.name = "embed", .op = ATOM_OP_embed, .n_params = 2, .in = {tokens}};
    const graph_config *c = b->c;
    int64_t wte[2] = {c->vocab_size, c->width}, wpe[2] = {c->positions, c->width};
    ATOM_TRY(graph_add_param(b->g, "wte.weight", 2, wte, GRAPH_INIT_NORMAL, c->init_std, &b->wte));
    node.params[0] = b->wte;
    ATOM_TRY(graph_add_param(b->g, "wpe.weight", 2, wpe, GRAPH_INIT_NORMAL, c->init_std,
                             &node.params[1]));
    ATOM_TRY(graph_add_node(b->g, &node, y));
    return add_dropout(b, -1, "embed.drop", c->embd_pdrop, *y, y);
}

static atom_status add_head(building *b, int32_t x, int32_t targets)
{
    graph_node head = {.name = "lm_head", .op = ATOM_OP_linear, .n_params = 1, .params = {b->wte}};
    graph_node loss = {.name = "loss", .op = ATOM_OP_cross_entropy};
    int64_t dims[2] = {b->c->vocab_size, b->c->width};
    ATOM_TRY(add_norm(b, -1, "ln_f", x, &head.in[0]));
    if (b->c->untied)
        ATOM_TRY(graph_add_param(b->g, "lm_head.weight", 2, dims, GRAPH_INIT_NORMAL, b->c->init_std,
                                 &head.params[0]));
    ATOM_TRY(graph_add_node(b->g, &head, &loss.in[0]));
    loss.in[1] = targets;
    int32_t out;
    return graph_add_node(b->g, &loss, &out);
}

atom_status graph_gpt2_build(const graph_config *c, atom_dtype dtype, int64_t B, int64_t T,
                             graph **out)
{
    building b = {.c = c};
    atom_status st;
    ATOM_TRY_CLEAN(graph_gpt2_check(c));
    if (T > c->positions)
        return atom_fail(ATOM_E_USAGE,
                         "sequence_len is %lld but the model has %lld positions (n_positions); "
                         "shorten sequence_len",
                         (long long)T, (long long)c->positions);
    b.proj_std = (float)((double)c->init_std / sqrt(2.0 * (double)c->layers));
    ATOM_TRY_CLEAN(graph_open(c->name, dtype, B, T, &b.g));
    graph_set_tied_files(b.g, c->tied_files);
    int64_t dims[2] = {B, T};
    int32_t tokens, targets, x;
    ATOM_TRY_CLEAN(graph_add_input(b.g, "tokens", GRAPH_I32, 2, dims, &tokens));
    ATOM_TRY_CLEAN(graph_add_input(b.g, "targets", GRAPH_I32, 2, dims, &targets));
    ATOM_TRY_CLEAN(add_embedding(&b, tokens, &x));
    for (int64_t layer = 0; layer < c->layers; layer++) {
        ATOM_TRY_CLEAN(add_attention(&b, layer, x, &x));
        ATOM_TRY_CLEAN(add_mlp(&b, layer, x, &x));
    }
    ATOM_TRY_CLEAN(add_head(&b, x, targets));
    ATOM_TRY_CLEAN(graph_seal(b.g));
    *out = b.g;
    return ATOM_OK;
cleanup:
    graph_close(&b.g);
    return st;
}
