/* Fusion: what becomes of GPT-2, what keeps its random numbers, and where it must hold back. */
#include "atom/base/mem.h"
#include "atom/graph/models.h"
#include "tests/lib/random_gpt2.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void gpt2_block(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        atom_op op;
        uint32_t rng; /* the index in the unfused graph of the node that draws */
        float p;
    } want[] = {
        {"embed", ATOM_OP_embed, 0, 0},
        {"embed.drop", ATOM_OP_dropout, 1, 0.1f},
        {"h.0.ln_1", ATOM_OP_layernorm, 2, 0},
        {"h.0.attn.c_attn", ATOM_OP_linear, 3, 0},
        {"h.0.attn", ATOM_OP_attention, 4, 0.2f},
        {"h.0.attn.c_proj", ATOM_OP_linear, 5, 0},
        {"h.0.add_1", ATOM_OP_dropout_add, 6, 0.3f},
        {"h.0.ln_2", ATOM_OP_layernorm, 8, 0},
        {"h.0.mlp.c_fc", ATOM_OP_linear_gelu, 9, 0},
        {"h.0.mlp.c_proj", ATOM_OP_linear, 11, 0},
        {"h.0.add_2", ATOM_OP_dropout_add, 12, 0.3f},
        {"ln_f", ATOM_OP_layernorm, 14, 0},
        {"lm_head", ATOM_OP_classifier, 16, 0},
    };
    random_gpt2 r = random_gpt2_make(1);
    r.config.layers = 1;
    r.config.embd_pdrop = 0.1f;
    r.config.attn_pdrop = 0.2f;
    r.config.resid_pdrop = 0.3f;
    graph *g = NULL, *f = NULL;
    assert_int_equal(graph_gpt2_build(&r.config, ATOM_F32, r.B, r.T, &g), ATOM_OK);
    assert_int_equal(graph_fuse(g, &f), ATOM_OK);
    assert_int_equal(f->n_nodes, sizeof want / sizeof *want);
    for (uint32_t i = 0; i < f->n_nodes; i++) {
        assert_string_equal(f->nodes[i].name, want[i].name);
        assert_int_equal(f->nodes[i].op, want[i].op);
        assert_int_equal(f->nodes[i].rng, want[i].rng);
        assert_true(f->nodes[i].p == want[i].p);
    }
    /* add_1 = dropout(c_proj) + embed.drop; add_2 = dropout(mlp.c_proj) + add_1 */
    assert_int_equal(f->nodes[6].in[0], f->nodes[5].out[0]);
    assert_int_equal(f->nodes[6].in[1], f->nodes[1].out[0]);
    assert_int_equal(f->nodes[10].in[0], f->nodes[9].out[0]);
    assert_int_equal(f->nodes[10].in[1], f->nodes[6].out[0]);
    assert_int_equal(f->nodes[12].in[0], f->nodes[11].out[0]);
    assert_int_equal(f->nodes[12].in[1], f->targets);
    assert_int_equal(f->nodes[12].params[0], 0);
    assert_string_equal(f->tensors[f->nodes[8].saved[0]].name, "h.0.mlp.c_fc.u");
    assert_int_equal(f->loss, f->nodes[12].out[0]);
    graph_close(&g);
    graph_close(&f);
}

static void same_parameters(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        random_gpt2 r = random_gpt2_make(seed);
        graph *g = NULL, *f = NULL, *again = NULL;
        assert_int_equal(graph_gpt2_build(&r.config, ATOM_BF16, r.B, r.T, &g), ATOM_OK);
        assert_int_equal(graph_fuse(g, &f), ATOM_OK);
        assert_int_equal(g->n_params, f->n_params);
        assert_int_equal(g->param_extent, f->param_extent);
        for (uint32_t i = 0; i < g->n_params; i++) {
            assert_string_equal(g->params[i].name, f->params[i].name);
            assert_int_equal(g->params[i].offset, f->params[i].offset);
            assert_int_equal(g->params[i].elements, f->params[i].elements);
            assert_true(g->params[i].init_std == f->params[i].init_std);
            assert_int_equal(g->params[i].shared, f->params[i].shared);
        }
        /* what can be fused has been, and fusing again changes nothing */
        for (uint32_t i = 0; i < f->n_nodes; i++)
            assert_true(f->nodes[i].op != ATOM_OP_gelu && f->nodes[i].op != ATOM_OP_add &&
                        f->nodes[i].op != ATOM_OP_cross_entropy);
        assert_int_equal(graph_fuse(f, &again), ATOM_OK);
        assert_true(graph_hash(f) == graph_hash(again));
        assert_true(graph_hash(f) != graph_hash(g));
        graph_close(&g);
        graph_close(&f);
        graph_close(&again);
    }
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

/* Fuses a graph given as text below a common head, and compares the nodes' ops with a list. */
static graph *fuse_text(const char *nodes)
{
    char text[2048];
    snprintf(text, sizeof text,
             "atom_graph 1\ngraph g dtype=fp32 B=2 T=3\n"
             "param wte dims=5,4 init=zero\nparam wpe dims=3,4 init=zero\n"
             "input tokens kind=i32 dims=2,3\ninput targets kind=i32 dims=2,3\n"
             "node e op=embed in=tokens params=wte,wpe\n%s",
             nodes);
    graph *g = NULL, *f = NULL;
    if (graph_parse(text, strlen(text), &g) != ATOM_OK || graph_fuse(g, &f) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    graph_close(&g);
    return f;
}

static void assert_ops(const graph *g, const char *ops)
{
    char got[512] = "";
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        strcat(got, i ? " " : "");
        strcat(got, atom_op_get(g->nodes[i].op)->name);
    }
    assert_string_equal(got, ops);
}

#define END "node l op=classifier in=z,targets params=wte\n"

static void holds_back(void **state)
{
    (void)state;
    /* the pre-activation has a second user */
    graph *g = fuse_text("param w dims=4,4 init=zero\nnode a op=linear in=e params=w\n"
                         "node b op=gelu in=a\nnode z op=add in=a,b\n" END);
    assert_ops(g, "embed linear gelu dropout_add classifier");
    assert_true(g->nodes[3].p == 0 && g->nodes[3].rng == 3);
    graph_close(&g);

    /* the dropped tensor has a second user */
    g = fuse_text(
        "node d op=dropout in=e p=0x1p-1\nnode b op=gelu in=d\nnode z op=add in=d,b\n" END);
    assert_ops(g, "embed dropout gelu dropout_add classifier");
    graph_close(&g);

    /* x + dropout(x) */
    g = fuse_text("node d op=dropout in=e p=0x1p-1\nnode z op=add in=d,e\n" END);
    assert_ops(g, "embed dropout dropout_add classifier");
    assert_true(g->nodes[2].p == 0);
    graph_close(&g);

    /* a head with a bias is no classifier */
    g = fuse_text("param b dims=5 init=zero\nnode h op=linear in=e params=wte,b\n"
                  "node l op=cross_entropy in=h,targets\n");
    assert_ops(g, "embed linear cross_entropy");
    graph_close(&g);
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

static void either_side_of_an_add(void **state)
{
    (void)state;
    /* the residual comes first, and is made after the dropout */
    graph *g = fuse_text("node d op=dropout in=e p=0x1p-1 rng=77\nnode r op=gelu in=e\n"
                         "node z op=add in=r,d rng=78\n" END);
    assert_ops(g, "embed gelu dropout_add classifier");
    assert_int_equal(g->nodes[2].in[0], g->nodes[0].out[0]);
    assert_int_equal(g->nodes[2].in[1], g->nodes[1].out[0]);
    assert_true(g->nodes[2].p == 0.5f && g->nodes[2].rng == 77);
    graph_close(&g);

    /* both sides are dropped: one fuses, the other stays */
    g = fuse_text("node c op=dropout in=e p=0x1p-2 rng=5\nnode d op=dropout in=e p=0x1p-1 rng=6\n"
                  "node z op=add in=c,d\n" END);
    assert_ops(g, "embed dropout dropout_add classifier");
    assert_true(g->nodes[1].rng == 6 && g->nodes[2].rng == 5 && g->nodes[2].p == 0.25f);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_block),
        cmocka_unit_test(same_parameters),
        cmocka_unit_test(holds_back),
        cmocka_unit_test(either_side_of_an_add),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
