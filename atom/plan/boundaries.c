/*
 * Owns the words for codecs on boundaries and what they come to. One idea: both keys say one thing,
 * so neither passes without the other. Refuses lists that leave doubt about where a boundary is.
 */
#include "atom/plan/boundaries.h"

#include <stdlib.h>
#include <string.h>

enum { CUTS_MAX = 32 };

/* "2,4" */
static atom_status parse_at(const char *at, int32_t after[CUTS_MAX], uint32_t *n)
{
    const char *p = at;
    for (*n = 0; *n < CUTS_MAX && strlen(at) < PLAN_AT_BYTES;) {
        char *end;
        long blocks = strtol(p, &end, 10);
        if (end == p || blocks < 1 || blocks > 1000000 || (*end && *end != ','))
            break;
        after[(*n)++] = (int32_t)blocks;
        if (!*end)
            return ATOM_OK;
        p = end + 1;
    }
    return atom_fail(ATOM_E_USAGE,
                     "at: '%s' is no list of up to %d boundaries; name after how many blocks each "
                     "of them lies, with commas between: 2,4",
                     at, CUTS_MAX);
}

static void sum_up(const graph *g, plan_boundaries *out)
{
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const graph_node *node = &g->nodes[i];
        out->blocks += node->op == ATOM_OP_attention;
        if (node->op != ATOM_OP_compress)
            continue;
        int64_t width = g->tensors[node->out[0]].dims[2];
        out->token_bytes += atom_codec_row_bytes(out->codec, width);
        out->token_bytes_bf16 += 2 * (uint64_t)width;
    }
}

atom_status plan_boundaries_cut(const plan_workbench_config *config, graph **g,
                                plan_boundaries *out)
{
    plan_boundaries b = {.codec = {ATOM_CODEC_NONE, 1}};
    int32_t after[CUTS_MAX];
    graph *cut = NULL;
    *out = b;
    if (config->compress_boundaries)
        ATOM_TRY(atom_codec_parse(config->compress_boundaries, &b.codec));
    if (b.codec.kind == ATOM_CODEC_NONE && config->compress_at)
        return atom_fail(ATOM_E_USAGE, "at has no effect without compress_boundaries: nothing "
                                       "would be compressed there; name a codec, or leave at out");
    if (b.codec.kind == ATOM_CODEC_NONE)
        return ATOM_OK;
    if (!config->compress_at)
        return atom_fail(ATOM_E_USAGE,
                         "compress_boundaries needs at: after how many blocks each boundary lies, "
                         "for example at: 2,4");
    ATOM_TRY(parse_at(config->compress_at, after, &b.n));
    ATOM_TRY(graph_compress(*g, b.codec, after, b.n, &cut));
    graph_close(g);
    *g = cut;
    memcpy(b.at, config->compress_at, strlen(config->compress_at) + 1);
    sum_up(cut, &b);
    *out = b;
    return ATOM_OK;
}
