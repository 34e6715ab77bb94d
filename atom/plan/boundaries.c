/*
 * Owns the words for codecs on boundaries and what they come to. One idea: both keys say one thing,
 * so neither passes without the other; and a bottleneck has weights, so a model that has bottlenecks
 * keeps them. Refuses lists that leave doubt about where a boundary is.
 */
#include "atom/plan/boundaries.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char BOTTLENECK[] = "bottleneck", MAXOUT[] = "maxout";

/* "2,4" */
static atom_status parse_at(const char *at, plan_boundaries *b)
{
    const char *p = at;
    for (b->n = 0; b->n < GRAPH_BOTTLENECKS_MAX && strlen(at) < PLAN_AT_BYTES;) {
        char *end;
        long blocks = strtol(p, &end, 10);
        if (end == p || blocks < 1 || blocks > 1000000 || (*end && *end != ','))
            break;
        b->after[b->n++] = (int32_t)blocks;
        if (!*end) {
            snprintf(b->at, sizeof b->at, "%s", at);
            return ATOM_OK;
        }
        p = end + 1;
    }
    return atom_fail(ATOM_E_USAGE,
                     "at: '%s' is not a list of up to %d boundaries; give the numbers of the "
                     "blocks after which they are, separated by commas: 2,4",
                     at, GRAPH_BOTTLENECKS_MAX);
}

static bool is_called(const char *codec, const char *name)
{
    size_t n = strlen(name);
    return strncmp(codec, name, n) == 0 && (codec[n] == ':' || !codec[n]);
}

bool plan_boundaries_learn(const char *codec)
{
    return is_called(codec, BOTTLENECK) || is_called(codec, MAXOUT);
}

/* "maxout:8": of each 8 values the largest. */
static atom_status parse_maxout(const char *text, int64_t C, plan_boundaries *b)
{
    const char *number = text + strlen(MAXOUT) + (text[strlen(MAXOUT)] == ':');
    char *end = NULL;
    long long window = *number >= '0' && *number <= '9' ? strtoll(number, &end, 10) : 0;
    if (!end || *end || window < 2 || window > C || C % window != 0 ||
        strlen(text) >= sizeof b->text)
        return atom_fail(ATOM_E_USAGE,
                         "compress_boundaries: '%.64s' is not a maxout; say of how many values "
                         "the largest is kept: a whole number of at least 2 that divides the "
                         "model's width, %lld; for example maxout:2",
                         text, (long long)C);
    b->maxout = true;
    b->width = C / window;
    snprintf(b->text, sizeof b->text, "%s", text);
    return ATOM_OK;
}

/* "bottleneck:8": an eighth of the width, rounded, and at least one value. */
static atom_status parse_bottleneck(const char *text, int64_t C, plan_boundaries *b)
{
    const char *ratio = text + strlen(BOTTLENECK) + 1;
    char *end = NULL;
    double times = text[strlen(BOTTLENECK)] ? strtod(ratio, &end) : 0;
    if (!end || end == ratio || *end || !(times > 1 && times <= (double)C) ||
        strlen(text) >= sizeof b->text)
        return atom_fail(ATOM_E_USAGE,
                         "compress_boundaries: '%.64s' is not a bottleneck; say how many times "
                         "narrower than the model it is: more than 1 and at most %lld here; for "
                         "example bottleneck:8",
                         text, (long long)C);
    b->width = llround((double)C / times);
    snprintf(b->text, sizeof b->text, "%s", text);
    if (b->width >= C)
        return atom_fail(ATOM_E_USAGE,
                         "compress_boundaries: '%s' would make nothing narrower: %lld values of "
                         "%lld would be sent",
                         text, (long long)b->width, (long long)C);
    return ATOM_OK;
}

static atom_status parse_codec(const plan_workbench_config *config, int64_t C, plan_boundaries *b)
{
    const char *text = config->compress_boundaries ? config->compress_boundaries : "none";
    if (is_called(text, MAXOUT)) {
        ATOM_TRY(parse_maxout(text, C, b));
    } else if (is_called(text, BOTTLENECK)) {
        ATOM_TRY(parse_bottleneck(text, C, b));
    } else {
        atom_status st = atom_codec_parse(text, &b->codec);
        if (st != ATOM_OK)
            return atom_fail_in(
                st, "compress_boundaries takes bottleneck:RATIO, maxout:K, or a codec: ");
        if (b->codec.kind != ATOM_CODEC_NONE)
            atom_codec_text(b->codec, b->text);
    }
    if (!b->text[0])
        return config->compress_at
                   ? atom_fail(ATOM_E_USAGE,
                               "at has no effect without compress_boundaries, because nothing "
                               "would be compressed there; give compress_boundaries, or leave at "
                               "out")
                   : ATOM_OK;
    if (config->compress_at)
        return parse_at(config->compress_at, b);
    return atom_fail(ATOM_E_USAGE,
                     "compress_boundaries needs at, the numbers of the blocks after which the "
                     "boundaries are, for example at: 2,4");
}

/* The bottlenecks that a model came with. */
static plan_boundaries brought(const graph_config *model)
{
    const graph_bottlenecks *own = &model->bottlenecks;
    plan_boundaries b = {
        .codec = {ATOM_CODEC_NONE, 1}, .width = own->width, .maxout = own->maxout, .n = own->n};
    memcpy(b.after, own->after, sizeof b.after);
    snprintf(b.text, sizeof b.text, "%s:%.9g", own->maxout ? MAXOUT : BOTTLENECK,
             (double)model->width / (double)own->width);
    for (uint32_t i = 0, at = 0; i < b.n && at < sizeof b.at; i++)
        at += (uint32_t)snprintf(b.at + at, sizeof b.at - at, "%s%d", i ? "," : "", b.after[i]);
    return b;
}

static bool same(const plan_boundaries *a, const plan_boundaries *b)
{
    return a->width == b->width && a->maxout == b->maxout && a->n == b->n &&
           memcmp(a->after, b->after, a->n * sizeof *a->after) == 0;
}

atom_status plan_boundaries_choose(const plan_workbench_config *config, graph_config *model,
                                   plan_boundaries *out)
{
    plan_boundaries b = {.codec = {ATOM_CODEC_NONE, 1}};
    ATOM_TRY(parse_codec(config, model->width, &b));
    if (model->bottlenecks.n) {
        const plan_boundaries has = brought(model);
        if ((config->compress_boundaries || config->compress_at) && !same(&has, &b))
            return atom_fail(ATOM_E_USAGE,
                             "compress_boundaries: the model was trained with bottlenecks (%s) "
                             "of %lld values after %s blocks, and they are a part of it; leave "
                             "compress_boundaries and at out",
                             has.text, (long long)has.width, has.at);
        *out = has;
        return ATOM_OK;
    }
    if (b.width) {
        graph_bottlenecks made = {.n = b.n, .width = b.width, .maxout = b.maxout};
        memcpy(made.after, b.after, sizeof made.after);
        b.added = true;
        for (uint32_t i = 0; i < b.n; i++)
            if (b.after[i] >= model->layers || (i && b.after[i] <= b.after[i - 1]))
                return atom_fail(ATOM_E_USAGE,
                                 "at: '%s' does not fit a model of %lld blocks: boundaries can "
                                 "be after block 1 to %lld, in ascending order",
                                 b.at, (long long)model->layers, (long long)model->layers - 1);
        model->bottlenecks = made;
    }
    *out = b;
    return ATOM_OK;
}

/* Of a bottleneck, values cross as the run computes them. */
static void sum_up(const graph *g, plan_boundaries *b)
{
    b->blocks = 0;
    b->token_bytes = b->token_bytes_bf16 = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const graph_node *node = &g->nodes[i];
        int64_t C = g->tensors[node->in[0]].dims[2];
        b->blocks += node->op == ATOM_OP_attention;
        bool down =
            node->op == ATOM_OP_maxout ||
            (node->op == ATOM_OP_linear && graph_is_bottleneck(&g->params[node->params[0]]) &&
             g->params[node->params[0]].dims[0] < C);
        if (node->op != ATOM_OP_compress && !down)
            continue;
        b->token_bytes += down ? (uint64_t)b->width * atom_dtype_bytes(g->dtype)
                               : atom_codec_row_bytes(b->codec, C);
        b->token_bytes_bf16 += 2 * (uint64_t)C;
    }
}

atom_status plan_boundaries_cut(graph **g, plan_boundaries *b)
{
    graph *cut = NULL;
    if (b->n && !b->width) {
        ATOM_TRY(graph_compress(*g, b->codec, b->after, b->n, &cut));
        graph_close(g);
        *g = cut;
    }
    if (b->n)
        sum_up(*g, b);
    return ATOM_OK;
}
