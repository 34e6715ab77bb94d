/* GPT-NeoX as a graph: what the MLP reads, where dropout is, which GELU; and cuts between its blocks. */
#include "atom/base/mem.h"
#include "atom/graph/models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static graph_config small(void)
{
    graph_config c;
    graph_family_defaults(GRAPH_NEOX, &c);
    c.vocab_size = 20;
    c.positions = 16;
    c.width = 24;
    c.layers = 3;
    c.heads = c.kv_heads = 3;
    c.head_dim = 8;
    c.inner = 30;
    c.rope.width = 2;
    strcpy(c.name, "small");
    return c;
}

static graph *build(const graph_config *c)
{
    graph *g = NULL;
    if (graph_model_build(c, ATOM_F32, 2, 8, &g) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_int_equal(g->param_elements, graph_model_params(c));
    return g;
}

static const graph_node *node_of(const graph *g, const char *name)
{
    for (uint32_t n = 0; n < g->n_nodes; n++)
        if (strcmp(g->nodes[n].name, name) == 0)
            return &g->nodes[n];
    fail_msg("there is no node %s", name);
    return NULL;
}

/* Attention and MLP of layer 1 begin at what layer 0 left behind, or one at the other's sum. */
static void branches(void **state)
{
    (void)state;
    for (int parallel = 0; parallel < 2; parallel++) {
        graph_config c = small();
        c.parallel = parallel;
        graph *g = build(&c);
        const graph_node *before = node_of(g, "layers.0.add_2"),
                         *sum = node_of(g, "layers.1.add_1");
        assert_int_equal(node_of(g, "layers.1.input_layernorm")->in[0], before->out[0]);
        assert_int_equal(node_of(g, "layers.1.post_attention_layernorm")->in[0],
                         parallel ? before->out[0] : sum->out[0]);
        assert_int_equal(sum->in[1], before->out[0]);
        assert_int_equal(node_of(g, "layers.1.add_2")->in[1], sum->out[0]);
        const graph_node *rope = node_of(g, "layers.1.attention.rope");
        assert_true(rope->rope.width == 2 && rope->heads == 3 && rope->kv_heads == 0);
        assert_int_equal(node_of(g, "layers.1.mlp.act")->op, ATOM_OP_gelu_erf);
        graph_close(&g);
    }
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

static void dropouts_and_gelus(void **state)
{
    static const char *const drops[] = {"embed.drop", "layers.2.attention.drop",
                                        "layers.2.mlp.drop"};
    graph_config c = small();
    graph *fused = NULL;
    uint32_t n = 0;
    (void)state;
    c.embd_pdrop = c.resid_pdrop = 0.25f;
    c.attn_pdrop = 0.5f;
    c.tanh_gelu = true;
    graph *g = build(&c);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].op == ATOM_OP_dropout;
    assert_int_equal(n, 1 + 2 * c.layers);
    for (int i = 0; i < 3; i++)
        assert_true(node_of(g, drops[i])->p == 0.25f);
    assert_int_equal(node_of(g, "layers.2.add_1")->in[0],
                     node_of(g, "layers.2.attention.drop")->out[0]);
    assert_true(node_of(g, "layers.2.attention")->p == 0.5f);
    assert_int_equal(node_of(g, "layers.2.mlp.act")->op, ATOM_OP_gelu);
    assert_int_equal(graph_fuse(g, &fused), ATOM_OK);
    assert_int_equal(node_of(fused, "layers.2.mlp.dense_h_to_4h")->op, ATOM_OP_linear_gelu);
    graph_close(&fused);
    graph_close(&g);
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

/* attention_bias is of both products of the attention; those of the MLP have biases in any case. */
static void biases(void **state)
{
    (void)state;
    for (int bias = 0; bias < 2; bias++) {
        graph_config c = small();
        c.qkv_bias = c.o_bias = bias;
        c.embd_pdrop = 0.25f;
        graph *g = build(&c);
        assert_int_equal(node_of(g, "layers.1.attention.query_key_value")->n_params, 1 + bias);
        assert_int_equal(node_of(g, "layers.1.attention.dense")->n_params, 1 + bias);
        assert_int_equal(node_of(g, "layers.1.mlp.dense_h_to_4h")->n_params, 2);
        const graph_node *out = node_of(g, "layers.1.mlp.dense_4h_to_h");
        assert_int_equal(out->n_params, 2);
        assert_int_equal(g->params[out->params[0]].init, GRAPH_INIT_NORMAL);
        assert_true(node_of(g, "embed.drop")->p == 0.25f);
        graph_close(&g);
    }
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

/* Only the stream crosses between blocks, whatever is read twice within them. */
static void cuts_between_blocks(void **state)
{
    static const int32_t after[2] = {1, 2};
    (void)state;
    for (int parallel = 0; parallel < 2; parallel++) {
        graph_config c = small();
        c.parallel = parallel;
        c.untied = !parallel;
        graph *g = build(&c), *cut = NULL;
        assert_int_equal(graph_compress(g, (atom_codec){ATOM_CODEC_INT8, 1}, after, 2, &cut),
                         ATOM_OK);
        assert_int_equal(node_of(cut, "boundary.1")->op, ATOM_OP_compress);
        assert_int_equal(cut->n_nodes, g->n_nodes + 2);
        graph_close(&cut);
        graph_close(&g);
        c.bottlenecks = (graph_bottlenecks){.n = 1, .width = 4, .after = {2}};
        g = build(&c);
        assert_int_equal(node_of(g, "boundary.2.down")->op, ATOM_OP_linear);
        graph_close(&g);
    }
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(branches),
        cmocka_unit_test(biases),
        cmocka_unit_test(dropouts_and_gelus),
        cmocka_unit_test(cuts_between_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
