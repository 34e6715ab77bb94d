/* The text form: it comes back as it was, and damaged text is refused with its line,
 * never a crash. */
#include "atom/base/mem.h"
#include "tests/lib/random_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static graph *build(const random_gpt2 *r, atom_dtype dtype, bool fuse)
{
    graph *g = NULL, *fused = NULL;
    assert_int_equal(graph_model_build(&r->config, dtype, r->B, r->T, &g), ATOM_OK);
    if (!fuse)
        return g;
    assert_int_equal(graph_fuse(g, &fused), ATOM_OK);
    graph_close(&g);
    return fused;
}

/* Every field of two graphs, floats by their bits (all structs are made from zeroed memory). */
static void assert_same(const graph *a, const graph *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->moments, b->moments);
    assert_int_equal(a->optimizer, b->optimizer);
    assert_int_equal(a->micro_batch, b->micro_batch);
    assert_int_equal(a->sequence, b->sequence);
    assert_int_equal(a->n_tensors, b->n_tensors);
    assert_int_equal(a->n_params, b->n_params);
    assert_int_equal(a->n_nodes, b->n_nodes);
    assert_int_equal(a->param_elements, b->param_elements);
    assert_int_equal(a->param_extent, b->param_extent);
    assert_int_equal(a->tokens, b->tokens);
    assert_int_equal(a->targets, b->targets);
    assert_int_equal(a->loss, b->loss);
    for (uint32_t i = 0; i < a->n_tensors; i++) {
        const graph_tensor *x = &a->tensors[i], *y = &b->tensors[i];
        assert_string_equal(x->name, y->name);
        assert_memory_equal(x->dims, y->dims, sizeof x->dims);
        assert_true(x->kind == y->kind && x->rank == y->rank && x->needs_grad == y->needs_grad &&
                    x->kept == y->kept && x->producer == y->producer && x->last_use == y->last_use);
    }
    for (uint32_t i = 0; i < a->n_params; i++) {
        const graph_param *x = &a->params[i], *y = &b->params[i];
        assert_string_equal(x->name, y->name);
        assert_memory_equal(x->dims, y->dims, sizeof x->dims);
        assert_memory_equal(&x->init_std, &y->init_std, sizeof(float));
        assert_true(x->rank == y->rank && x->decay == y->decay && x->shared == y->shared &&
                    x->init == y->init && x->elements == y->elements && x->offset == y->offset &&
                    x->first_node == y->first_node && x->last_node == y->last_node);
    }
    for (uint32_t i = 0; i < a->n_nodes; i++) {
        const graph_node *x = &a->nodes[i], *y = &b->nodes[i];
        assert_string_equal(x->name, y->name);
        assert_memory_equal(&x->eps, &y->eps, sizeof(float));
        assert_memory_equal(&x->p, &y->p, sizeof(float));
        assert_memory_equal(&x->rope, &y->rope, sizeof x->rope);
        assert_memory_equal(x->in, y->in, sizeof x->in);
        assert_memory_equal(x->params, y->params, sizeof x->params);
        assert_memory_equal(x->out, y->out, sizeof x->out);
        assert_memory_equal(x->saved, y->saved, sizeof x->saved);
        assert_true(x->op == y->op && x->n_params == y->n_params && x->heads == y->heads &&
                    x->rng == y->rng);
    }
}

static void comes_back(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        random_gpt2 r = random_model_make(seed);
        graph *g = build(&r, seed % 2 ? ATOM_BF16 : ATOM_F32, seed % 4 < 2), *back = NULL;
        graph_set_moments(g, seed % 3 ? ATOM_F32 : ATOM_BF16);
        graph_set_optimizer(g, seed % 5 < 2 ? GRAPH_MUON : GRAPH_ADAMW);
        char *text = NULL, *again = NULL;
        assert_int_equal(graph_print(g, &text), ATOM_OK);
        if (graph_parse(text, strlen(text), &back) != ATOM_OK)
            fail_msg("seed %d: %s", (int)seed, atom_fail_message());
        assert_same(g, back);
        assert_int_equal(graph_hash(g), graph_hash(back));
        assert_int_equal(graph_print(back, &again), ATOM_OK);
        assert_string_equal(text, again);
        atom_free(text);
        atom_free(again);
        graph_close(&g);
        graph_close(&back);
    }
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

static void odd_floats_come_back(void **state)
{
    (void)state;
    static const float values[] = {1e-5f, 0.1f, 0x1p-149f, 0x1.fffffep-1f, 0.5f, 0x1.abcdefp-130f};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        random_gpt2 r = random_gpt2_make(i);
        r.config.epsilon = r.config.init_std = r.config.attn_pdrop = values[i];
        graph *g = build(&r, ATOM_F32, true), *back = NULL;
        char *text = NULL;
        assert_int_equal(graph_print(g, &text), ATOM_OK);
        assert_int_equal(graph_parse(text, strlen(text), &back), ATOM_OK);
        assert_same(g, back);
        atom_free(text);
        graph_close(&g);
        graph_close(&back);
    }
}

static void hashes_differ(void **state)
{
    (void)state;
    uint64_t seen[64];
    for (int i = 0; i < 64; i++) {
        random_gpt2 r = random_gpt2_make((uint64_t)i / 4);
        strcpy(r.config.name, "same");
        graph *g = build(&r, i & 1 ? ATOM_BF16 : ATOM_F32, i & 2);
        seen[i] = graph_hash(g);
        for (int j = 0; j < i; j++)
            assert_true(seen[i] != seen[j]);
        graph_close(&g);
    }
}

#define HEAD "atom_graph 1\ngraph g dtype=fp32 B=2 T=3\n"
#define EMBED                                                                                      \
    "param wte dims=5,4 init=zero\nparam wpe dims=3,4 init=zero\n"                                 \
    "input tokens kind=i32 dims=2,3\ninput targets kind=i32 dims=2,3\n"                            \
    "node e op=embed in=tokens params=wte,wpe\n"
#define LOSS "node l op=classifier in=e,targets params=wte\n"

static void accepts_the_smallest(void **state)
{
    (void)state;
    static const char text[] = "# a comment\n\n" HEAD EMBED "\r\n  " LOSS;
    graph *g = NULL;
    if (graph_parse(text, sizeof text - 1, &g) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_int_equal(g->n_nodes, 2);
    assert_true(g->params[0].shared && !g->params[1].shared);
    graph_close(&g);
}

static void says_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text, *line, *about;
    } cases[] = {
        {"", "ends before", ""},
        {"atom_graph 2\n", "line 1:", "version 1"},
        {"atom_graph 1\nparam w dims=3 init=zero\n", "line 2:", "graph line must come first"},
        {HEAD HEAD, "line 3:", "none of graph"},
        {HEAD "graph g dtype=fp32 B=2 T=3\n", "line 3:", "second graph line"},
        {"atom_graph 1\ngraph g dtype=fp64 B=2 T=3\n", "line 2:", "dtype=fp64"},
        {"atom_graph 1\ngraph g dtype=fp32 B=0 T=3\n", "line 2:", "at least 1"},
        {"atom_graph 1\ngraph g dtype=fp32 B=2\n", "line 2:", "\"T\" is missing"},
        {"atom_graph 1\ngraph g\x1b dtype=fp32 B=2 T=3\n", "line 2:", "characters other than"},
        {HEAD "param w dims=3,-1 init=zero\n", "line 3:", "\"-1\" is not a whole number"},
        {HEAD "param w dims=3,0 init=zero\n", "line 3:", "dimension 1 is 0"},
        {HEAD "param w dims=1,1,1,1,1 init=zero\n", "line 3:", "more than 4 dims"},
        {HEAD "param w dims=99999999999 init=zero\n", "line 3:", "not a whole number below"},
        {HEAD "param w dims=2147483647,2147483647 init=zero\n", "line 3:", "2^42 elements"},
        {HEAD "param w dims=3 init=normal\n", "line 3:", "\"std\" is missing"},
        {HEAD "param w dims=3 init=normal std=0.02\n", "line 3:", "not an exact float"},
        {HEAD "param w dims=3 init=normal std=0x1000001p0\n", "line 3:", "not an exact float"},
        {HEAD "param w dims=3 init=normal std=0x1p128\n", "line 3:", "not an exact float"},
        {HEAD "param w dims=3 init=normal std=0x1p-150\n", "line 3:", "not an exact float"},
        {HEAD "param w dims=3 init=zero std=0x1p0\n", "line 3:", "unless the initialisation"},
        {HEAD "param w dims=3 init=zero dims=3\n", "line 3:", "appears twice"},
        {HEAD "param w dims=3 init=zero color=red\n", "line 3:", "no key \"color\""},
        {HEAD "param w dims=3 init=zero\nparam w dims=3 init=zero\n", "line 4:", "defined twice"},
        {HEAD "param w dims=3 zero\n", "line 3:", "\"zero\" is not key=value"},
        {HEAD "param a,b dims=3 init=zero\n", "line 3:", "0x2c"},
        {HEAD "param\n", "line 3:", "is not a name"},
        {HEAD "node n op=swish in=tokens\n", "line 3:", "no such op"},
        {HEAD EMBED "node n op=gelu in=f\n", "line 8:", "nothing named \"f\""},
        {HEAD EMBED "node n op=gelu\n", "line 8:", "takes 1 inputs, not 0"},
        {HEAD EMBED "node n op=gelu in=tokens\n", "line 8:", "must be act[2,3,*]"},
        {HEAD EMBED "node n op=gelu in=e p=0x1p-1\n", "line 8:", "dropout probability"},
        {HEAD EMBED "node n op=dropout in=e p=0x1p0\n", "line 8:", "dropout probability"},
        {HEAD EMBED "node n op=add in=e,e\n", "line 8:", "same tensor"},
        {HEAD EMBED "node n op=attention in=e heads=1\n",
         "line 8:", "width 4 is not a whole multiple of 1 heads"},
        {HEAD EMBED "node n op=attention in=e\n", "line 8:", "heads is 0"},
        {HEAD EMBED "node n op=linear in=e params=wpe,wpe\n", "line 8:", "are the same"},
        {HEAD EMBED "node n op=linear in=e\n", "line 8:", "has 0 parameters"},
        {HEAD EMBED "node n op=gelu in=e,e,e\n", "line 8:", "more than 2 names"},
        {HEAD EMBED "node n op=gelu in=e a= b= c= d= f= g= h= i= j= k= l= m= n= o= p= q= r= s=\n",
         "line 8:", "more than 18 fields"},
        {HEAD EMBED "node n op=gelu in=e,\n", "line 8:", "nothing named \"\""},
        {HEAD EMBED "node e op=gelu in=e\n", "line 8:", "defined twice"},
        {HEAD EMBED "node n op=cross_entropy in=e,e\n", "line 8:", "same tensor"},
        {HEAD EMBED "node n op=cross_entropy in=tokens,e\n", "line 8:", "must be act"},
        {HEAD "input x kind=i32 dims=2,4\n" EMBED "node n op=cross_entropy in=e,x\n",
         "line 9:", "must be a graph input i32[2,3]"},
        {HEAD EMBED "param w dims=12,4 init=zero\nnode a op=linear in=e params=w\n"
                    "node n op=attention in=a heads=3\n",
         "line 10:", "width 12 is not a whole multiple of 3 heads"},
        {HEAD EMBED "param w dims=7,4 init=zero\nnode a op=linear in=e params=w\n"
                    "node n op=add in=a,e\n",
         "line 10:", "are 7 and 4 wide"},
        {HEAD EMBED "param w dims=7,5 init=zero\nnode a op=linear in=e params=w\n",
         "line 9:", "is [7,5], must be [*,4]"},
        {HEAD EMBED "param w dims=4 init=one\nparam b dims=5 init=one\n"
                    "node a op=layernorm in=e params=w,b eps=0x1p-9\n",
         "line 10:", "parameter 1, \"b\", is [5], must be [4]"},
        {HEAD EMBED "param w dims=4 init=one\nparam b dims=4 init=one\n"
                    "node a op=layernorm in=e params=w,b\n",
         "line 10:", "eps is 0"},
        {HEAD "param a dims=5,4 init=zero\nparam b dims=2,4 init=zero\n"
              "input t kind=i32 dims=2,3\nnode n op=embed in=t params=a,b\n",
         "line 6:", "2 positions are too few for a sequence of 3"},
        {HEAD EMBED "param w dims=4 init=one\nparam b dims=4 init=one\n"
                    "node a op=layernorm in=e params=w,b eps=0x1p-9\nnode n op=gelu in=a.mean\n",
         "line 11:", "nothing named \"a.mean\""},
        {HEAD EMBED "param w dims=4 init=one\nparam b dims=4 init=one\n"
                    "node a op=layernorm in=e params=w,b eps=0x1p-9\nnode a.mean op=gelu in=a\n"
                    "node l op=classifier in=a.mean,targets params=wte\n",
         "graph text: ", "two tensors are named \"a.mean\""},
        {HEAD EMBED "node n op=gelu in=e rng=4294967296\n", "line 8:", "rng=4294967296"},
        {HEAD EMBED, "graph text: ", "the last node is not a loss"},
        {HEAD EMBED "node n op=gelu in=e\n" LOSS, "graph text: ", "nobody uses"},
        {HEAD EMBED LOSS "node n op=gelu in=e\n", "graph text: ", "not the last node"},
        {HEAD "param x dims=5 init=one\n" EMBED LOSS, "graph text: ", "order of their first use"},
        {HEAD EMBED "param x dims=5 init=one\n" LOSS, "graph text: ", "no node uses"},
        {HEAD EMBED "input z kind=act dims=2,3,4\n" LOSS, "graph text: ", "neither the tokens"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        graph *g = NULL;
        atom_status st = graph_parse(cases[i].text, strlen(cases[i].text), &g);
        const char *message = atom_fail_message();
        if (st != ATOM_E_FORMAT || g || !strstr(message, cases[i].line) ||
            !strstr(message, cases[i].about))
            fail_msg("case %zu: status %d, message: %s", i, (int)st, message);
    }
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

/* Changes text in place, or shortens it; returns its new length. room > n. */
static size_t mutate(uint64_t seed, char *text, size_t n)
{
    int64_t times = random_gpt2_draw(seed, 0, 1, 4);
    for (int64_t k = 0; k < times; k++) {
        uint64_t i = (uint64_t)(k + 1) * 8;
        size_t at = (size_t)random_gpt2_draw(seed, i, 0, (int64_t)n - 1);
        size_t from = (size_t)random_gpt2_draw(seed, i + 1, 0, (int64_t)n - 1);
        size_t len = (size_t)random_gpt2_draw(seed, i + 2, 1, 12);
        switch (random_gpt2_draw(seed, i + 3, 0, 4)) {
        case 0:
            text[at] = (char)random_gpt2_draw(seed, i + 4, 0, 255);
            break;
        case 1:
            text[at] ^= (char)(1 << random_gpt2_draw(seed, i + 4, 0, 7));
            break;
        case 2: /* a piece of the text elsewhere */
            if (at + len <= n && from + len <= n)
                memmove(text + at, text + from, len);
            break;
        case 3: /* a piece left out */
            if (at + len < n) {
                memmove(text + at, text + at + len, n - at - len);
                n -= len;
            }
            break;
        default: /* a digit instead of a character */
            text[at] = (char)('0' + random_gpt2_draw(seed, i + 4, 0, 9));
        }
    }
    return random_gpt2_draw(seed, 1, 0, 9) == 0 ? n / 2 : n;
}

static void survives_mutation(void **state)
{
    (void)state;
    uint64_t accepted = 0, refused = 0;
    for (uint64_t seed = 0; seed < 4000; seed++) {
        random_gpt2 r = random_gpt2_make(seed / 100);
        r.config.layers = 1;
        graph *g = build(&r, ATOM_F32, seed / 100 % 2), *back = NULL;
        char *text = NULL, *again = NULL;
        assert_int_equal(graph_print(g, &text), ATOM_OK);
        graph_close(&g);
        size_t n = mutate(seed, text, strlen(text));
        /* an exact copy, so that the sanitizer sees a read past the end */
        char *exact = atom_alloc(n, 1);
        assert_non_null(exact);
        memcpy(exact, text, n);
        atom_status st = graph_parse(exact, n, &back);
        if (st == ATOM_OK) {
            accepted++;
            assert_int_equal(graph_print(back, &again), ATOM_OK);
            assert_int_equal(graph_parse(again, strlen(again), &g), ATOM_OK);
            assert_same(g, back);
            graph_close(&g);
            graph_close(&back);
            atom_free(again);
        } else {
            refused++;
            assert_int_equal(st, ATOM_E_FORMAT);
            assert_null(back);
            assert_non_null(strstr(atom_fail_message(), "graph text"));
        }
        atom_free(text);
        atom_free(exact);
    }
    if (accepted < 20 || refused < 1000) /* both sides must be tried */
        fail_msg("%d accepted, %d refused", (int)accepted, (int)refused);
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back),         cmocka_unit_test(odd_floats_come_back),
        cmocka_unit_test(hashes_differ),      cmocka_unit_test(accepts_the_smallest),
        cmocka_unit_test(says_what_is_wrong), cmocka_unit_test(survives_mutation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
