/* Codecs on boundaries: where they stand in every family, fused, unfused and adapted, that all else
 * stays as it was, and what is refused. */
#include "atom/base/mem.h"
#include "atom/graph/models.h"
#include "tests/lib/random_lora.h"
#include "tests/lib/random_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const atom_codec int4 = {ATOM_CODEC_INT4, 1};

static graph *build(uint64_t seed, int64_t layers, bool adapted, bool fused)
{
    random_gpt2 r = random_model_make(seed);
    graph *g = NULL, *f = NULL;
    r.config.layers = layers;
    if (r.config.window_layers >= layers)
        r.config.window_layers = 0;
    assert_int_equal(graph_model_build(&r.config, ATOM_BF16, r.B, r.T, &g), ATOM_OK);
    if (adapted)
        assert_int_equal(random_lora(seed, true, &g), ATOM_OK);
    if (!fused)
        return g;
    assert_int_equal(graph_fuse(g, &f), ATOM_OK);
    graph_close(&g);
    return f;
}

static bool of_block(const char *name, int block)
{
    char gpt2[16], llama[24];
    snprintf(gpt2, sizeof gpt2, "h.%d.", block);
    snprintf(llama, sizeof llama, "layers.%d.", block);
    return strncmp(name, gpt2, strlen(gpt2)) == 0 || strncmp(name, llama, strlen(llama)) == 0;
}

/* Between the last node of a block and the first of the next one, on what the first makes. */
static void check_boundary(const graph *c, int32_t at, int after)
{
    const graph_node *node = &c->nodes[at];
    char name[32];
    snprintf(name, sizeof name, "boundary.%d", after);
    assert_string_equal(node->name, name);
    assert_int_equal(node->op, ATOM_OP_compress);
    assert_int_equal(node->codec, ATOM_CODEC_INT4);
    assert_true(of_block(c->nodes[at - 1].name, after - 1));
    assert_true(of_block(c->nodes[at + 1].name, after));
    assert_int_equal(node->in[0], c->nodes[at - 1].out[0]);
    assert_int_equal(graph_boundary(c, at + 1, NULL, 0), 1);
    assert_int_equal(graph_grad_mode(c, at, 0),
                     c->tensors[node->in[0]].needs_grad ? GRAPH_GRAD_WRITE : GRAPH_GRAD_NONE);
}

/* All but the codecs is g, with the same random numbers; and no codec draws another node's. */
static void check_rest(const graph *g, const graph *c)
{
    uint32_t at = 0;
    assert_int_equal(c->n_params, g->n_params);
    assert_int_equal(c->param_extent, g->param_extent);
    assert_int_equal(c->trained_extent, g->trained_extent);
    for (uint32_t i = 0; i < g->n_params; i++) {
        assert_string_equal(c->params[i].name, g->params[i].name);
        assert_int_equal(c->params[i].offset, g->params[i].offset);
        assert_int_equal(c->params[i].frozen, g->params[i].frozen);
    }
    for (uint32_t i = 0; i < c->n_nodes; i++) {
        if (c->nodes[i].op == ATOM_OP_compress) {
            for (uint32_t k = 0; k < g->n_nodes; k++)
                assert_int_not_equal(c->nodes[i].rng, g->nodes[k].rng);
            continue;
        }
        assert_string_equal(c->nodes[i].name, g->nodes[at].name);
        assert_int_equal(c->nodes[i].rng, g->nodes[at++].rng);
    }
    assert_int_equal(at, g->n_nodes);
}

static void stands_between_blocks(void **state)
{
    static const int32_t after[] = {1, 3};
    (void)state;
    for (uint64_t seed = 0; seed < 96; seed++) {
        graph *g = build(seed, 4, seed % 4 == 1, seed % 5 != 0), *c = NULL, *again = NULL;
        char *text = NULL;
        int found = 0;
        graph_set_moments(g, seed % 2 ? ATOM_BF16 : ATOM_F32);
        graph_set_optimizer(g, seed % 3 ? GRAPH_ADAMW : GRAPH_MUON);
        assert_int_equal(graph_compress(g, int4, after, 2, &c), ATOM_OK);
        for (uint32_t i = 0; i < c->n_nodes; i++)
            if (c->nodes[i].op == ATOM_OP_compress)
                check_boundary(c, (int32_t)i, after[found++]);
        assert_int_equal(found, 2);
        assert_int_equal(c->moments, g->moments);
        assert_int_equal(c->optimizer, g->optimizer);
        assert_int_equal(c->packed, g->packed);
        check_rest(g, c);
        assert_int_equal(graph_print(c, &text), ATOM_OK);
        assert_int_equal(graph_parse(text, strlen(text), &again), ATOM_OK);
        assert_true(graph_hash(again) == graph_hash(c) && graph_hash(c) != graph_hash(g));
        atom_free(text);
        graph_close(&g);
        graph_close(&c);
        graph_close(&again);
    }
}

/* Other codecs and shares take other times, and are profiled apart. */
static void classes(void **state)
{
    static const atom_codec codecs[] = {
        {ATOM_CODEC_INT4, 1}, {ATOM_CODEC_TOPK, 0.1f}, {ATOM_CODEC_TOPK, 0.2f}};
    uint64_t class[3];
    int32_t after = 1;
    (void)state;
    for (int i = 0; i < 3; i++) {
        graph *g = build(1, 2, false, true), *c = NULL;
        assert_int_equal(graph_compress(g, codecs[i], &after, 1, &c), ATOM_OK);
        for (uint32_t n = 0; n < c->n_nodes; n++)
            if (c->nodes[n].op == ATOM_OP_compress)
                class[i] = graph_node_class(c, (int32_t)n);
        graph_close(&g);
        graph_close(&c);
    }
    assert_true(class[0] != class[1] && class[1] != class[2]);
}

static void refusals(void **state)
{
    static const struct {
        int32_t after[2];
        uint32_t n;
        const char *says;
    } bad[] = {{{0}, 1, "it has 3"},
               {{3}, 1, "between two of them"},
               {{-1}, 1, "it has 3"},
               {{2, 1}, 2, "1 follows 2"},
               {{1, 1}, 2, "ascending"}};
    graph *g = build(1, 3, false, true), *c = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(graph_compress(g, int4, bad[i].after, bad[i].n, &c), ATOM_E_USAGE);
        assert_non_null(strstr(atom_fail_message(), bad[i].says));
        assert_null(c);
    }
    graph_close(&g);
}

/* The attributes belong to the op, in texts of others too. */
static void bad_texts(void **state)
{
    static const struct {
        const char *line;
        atom_status st;
    } lines[] = {{"codec=topk scale=0x1p0", ATOM_OK},
                 {"codec=topk scale=0x1p-1", ATOM_OK},
                 {"codec=none scale=0x1p0", ATOM_E_FORMAT},
                 {"codec=int5 scale=0x1p0", ATOM_E_FORMAT},
                 {"scale=0x1p0", ATOM_E_FORMAT},
                 {"codec=int8", ATOM_E_FORMAT},
                 {"codec=int8 scale=0x1p-1", ATOM_E_FORMAT},
                 {"codec=topk scale=0x1p1", ATOM_E_FORMAT},
                 {"codec=int8 scale=0x1p0 p=0x1p-1", ATOM_E_FORMAT}};
    graph *g = build(1, 2, false, true), *c = NULL, *again = NULL;
    char *text = NULL, changed[1 << 16];
    int32_t after = 1;
    (void)state;
    assert_int_equal(graph_compress(g, int4, &after, 1, &c), ATOM_OK);
    assert_int_equal(graph_print(c, &text), ATOM_OK);
    char *end = strstr(text, " codec=int4"), *from = end;
    assert_non_null(end);
    while (strncmp(from, " scale=", 7) != 0)
        from--;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        snprintf(changed, sizeof changed, "%.*s %s%s", (int)(from - text), text, lines[i].line,
                 end + strlen(" codec=int4"));
        if (graph_parse(changed, strlen(changed), &again) != lines[i].st)
            fail_msg("%s: %s", lines[i].line, atom_fail_message());
        graph_close(&again);
    }
    atom_free(text);
    graph_close(&g);
    graph_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stands_between_blocks),
                                       cmocka_unit_test(classes), cmocka_unit_test(refusals),
                                       cmocka_unit_test(bad_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
