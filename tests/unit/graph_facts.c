/* Derived facts: gradients, what is kept, cuts, classes, bytes and FLOPs; each against its
 * definition, worked out again here the slow way. */
#include "atom/base/mem.h"
#include "atom/graph/models.h"
#include "tests/lib/random_gpt2.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static graph *build(uint64_t seed, bool fuse)
{
    random_gpt2 r = random_gpt2_make(seed);
    graph *g = NULL, *fused = NULL;
    assert_int_equal(graph_gpt2_build(&r.config, ATOM_BF16, r.B, r.T, &g), ATOM_OK);
    if (!fuse)
        return g;
    assert_int_equal(graph_fuse(g, &fused), ATOM_OK);
    graph_close(&g);
    return fused;
}

static int32_t node_named(const graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (strcmp(g->nodes[i].name, name) == 0)
            return (int32_t)i;
    fail_msg("no node %s", name);
    return GRAPH_NONE;
}

static void one_writer_per_gradient(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        graph *g = build(seed, seed % 2);
        for (uint32_t t = 0; t < g->n_tensors; t++) {
            int uses = 0, writers = 0;
            graph_grad last = GRAPH_GRAD_NONE;
            for (uint32_t n = 0; n < g->n_nodes; n++)
                for (int i = 0; i < atom_op_get(g->nodes[n].op)->ins; i++)
                    if (g->nodes[n].in[i] == (int32_t)t) {
                        last = graph_grad_mode(g, (int32_t)n, i);
                        uses++;
                        writers += last == GRAPH_GRAD_WRITE;
                        assert_int_equal(g->tensors[t].needs_grad, last != GRAPH_GRAD_NONE);
                    }
            bool output = g->tensors[t].producer != GRAPH_NONE &&
                          g->nodes[g->tensors[t].producer].out[0] == (int32_t)t;
            assert_int_equal(g->tensors[t].needs_grad, output && (int32_t)t != g->loss);
            assert_int_equal(writers, g->tensors[t].needs_grad ? 1 : 0);
            assert_true(uses == 0 || last != GRAPH_GRAD_ADD); /* the last in order writes */
        }
        assert_int_equal(graph_grad_mode(g, 0, 0), GRAPH_GRAD_NONE); /* tokens */
        assert_int_equal(graph_grad_mode(g, 1, 1), GRAPH_GRAD_NONE); /* no such input */
        graph_close(&g);
    }
}

static void kept_follows_the_table(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        graph *g = build(seed, seed % 2);
        for (uint32_t t = 0; t < g->n_tensors; t++) {
            bool kept = false;
            for (uint32_t n = 0; n < g->n_nodes; n++) {
                const graph_node *node = &g->nodes[n];
                const atom_op_info *op = atom_op_get(node->op);
                kept |= node->in[0] == (int32_t)t && (op->keeps & ATOM_KEEP_IN0);
                kept |= node->in[1] == (int32_t)t && (op->keeps & ATOM_KEEP_IN1);
                kept |= node->out[0] == (int32_t)t && (op->keeps & ATOM_KEEP_OUT);
                kept |= node->saved[0] == (int32_t)t || node->saved[1] == (int32_t)t;
            }
            assert_int_equal(g->tensors[t].kept, kept);
        }
        /* by name, so that a wrong table shows too */
        assert_true(g->tensors[g->tokens].kept && g->tensors[g->targets].kept);
        assert_true(g->tensors[g->nodes[node_named(g, "h.0.attn")].out[0]].kept);
        assert_true(g->tensors[g->nodes[node_named(g, "h.0.attn.c_attn")].out[0]].kept);
        assert_true(g->tensors[g->nodes[node_named(g, "h.0.ln_1")].out[0]].kept);
        assert_false(g->tensors[g->nodes[node_named(g, "h.0.attn.c_proj")].out[0]].kept);
        assert_false(g->tensors[g->loss].kept);
        graph_close(&g);
    }
}

static void boundaries_by_definition(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        graph *g = build(seed, seed % 2);
        for (int32_t cut = 0; cut <= (int32_t)g->n_nodes; cut++) {
            int32_t want[64], got[64] = {0};
            uint32_t n = 0;
            uint64_t bytes = 0;
            for (uint32_t t = 0; t < g->n_tensors; t++) {
                bool used = false;
                for (uint32_t k = (uint32_t)cut; k < g->n_nodes; k++)
                    for (int i = 0; i < atom_op_get(g->nodes[k].op)->ins; i++)
                        used |= g->nodes[k].in[i] == (int32_t)t;
                if (g->tensors[t].producer == GRAPH_NONE || g->tensors[t].producer >= cut || !used)
                    continue;
                want[n++] = (int32_t)t;
                bytes += atom_align(graph_tensor_bytes(g, (int32_t)t));
            }
            assert_int_equal(graph_boundary(g, cut, got, 64), n);
            assert_memory_equal(got, want, n * sizeof *want);
            assert_int_equal(graph_boundary_bytes(g, cut), bytes);
            assert_int_equal(graph_can_cut(g, cut),
                             cut > 0 && cut < (int32_t)g->n_nodes && n >= 1 && n <= 4);
            int32_t one[2] = {-7, -7};
            assert_int_equal(graph_boundary(g, cut, one, 1), n); /* counts beyond max */
            assert_int_equal(one[1], -7);
        }
        graph_close(&g);
    }
}

static void block_edges_are_narrow(void **state)
{
    (void)state;
    for (int fuse = 0; fuse < 2; fuse++) {
        random_gpt2 r = random_gpt2_make(5);
        r.config.layers = 3;
        graph *g = NULL, *fused = NULL;
        assert_int_equal(graph_gpt2_build(&r.config, ATOM_F32, r.B, r.T, &g), ATOM_OK);
        if (fuse) {
            assert_int_equal(graph_fuse(g, &fused), ATOM_OK);
            graph_close(&g);
            g = fused;
        }
        static const char *const edges[] = {"h.0.ln_1", "h.1.ln_1", "h.2.ln_1", "ln_f"};
        for (int i = 0; i < 4; i++) {
            int32_t ids[4], cut = node_named(g, edges[i]);
            assert_int_equal(graph_boundary(g, cut, ids, 4), 1);
            const graph_tensor *t = &g->tensors[ids[0]];
            assert_int_equal(t->rank, 3);
            assert_true(t->dims[0] == r.B && t->dims[1] == r.T && t->dims[2] == r.config.width);
            assert_true(graph_can_cut(g, cut));
        }
        static const char *const inside[] = {"h.1.attn.c_attn", "h.1.attn", "h.1.attn.c_proj",
                                             "h.1.mlp.c_fc", "h.1.mlp.c_proj"};
        for (int i = 0; i < 5; i++) /* the branch and the residual stream */
            assert_int_equal(graph_boundary(g, node_named(g, inside[i]), NULL, 0), 2);
        graph_close(&g);
    }
}

static void bytes_and_flops(void **state)
{
    (void)state;
    graph_config c;
    graph *g = NULL, *fused = NULL;
    assert_int_equal(graph_preset_get("gpt2-124m", &c), ATOM_OK);
    assert_int_equal(graph_gpt2_build(&c, ATOM_BF16, 4, 256, &g), ATOM_OK);
    assert_int_equal(graph_fuse(g, &fused), ATOM_OK);
    double N = 4 * 256, C = 768, V = 50257;
    int32_t attn = node_named(fused, "h.3.attn"), qkv = node_named(fused, "h.3.attn.c_attn");
    assert_true(graph_node_flops(fused, qkv, false) == 2 * N * C * 3 * C);
    assert_true(graph_node_flops(fused, qkv, true) == 4 * N * C * 3 * C);
    assert_true(graph_node_flops(fused, attn, false) == 2.0 * 4 * 12 * 256 * 256 * 64);
    assert_true(graph_node_flops(fused, attn, true) == 5.0 * 4 * 12 * 256 * 256 * 64);
    int32_t head = node_named(fused, "lm_head");
    assert_true(graph_node_flops(fused, head, false) == 2 * N * C * V);
    assert_true(graph_node_flops(fused, head, true) == 6 * N * C * V);
    assert_true(graph_node_flops(fused, node_named(fused, "h.3.mlp.c_fc"), true) >
                4 * N * C * 4 * C);
    double total = 0, fused_total = 0, params = (double)g->param_elements - 1024 * C;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (int backward = 0; backward < 2; backward++) {
            assert_true(graph_node_flops(g, (int32_t)i, backward) > 0);
            total += graph_node_flops(g, (int32_t)i, backward);
        }
    for (uint32_t i = 0; i < fused->n_nodes; i++)
        for (int backward = 0; backward < 2; backward++)
            fused_total += graph_node_flops(fused, (int32_t)i, backward);
    /* six per parameter and token, and some percent for attention and the rest */
    assert_true(total > 6 * N * params && total < 6.4 * N * params);
    assert_true(fused_total > 6 * N * params && fused_total < 6.8 * N * params);

    assert_int_equal(graph_node_param_bytes(fused, qkv), 2 * (2304 * 768 + 2304));
    assert_int_equal(graph_node_param_bytes(fused, head), 2 * 50257 * 768);
    assert_int_equal(graph_node_param_bytes(fused, attn), 0);
    assert_int_equal(graph_tensor_bytes(fused, fused->nodes[qkv].out[0]), 2 * 4 * 256 * 2304);
    assert_int_equal(graph_tensor_bytes(fused, fused->nodes[attn].saved[0]), 4 * 4 * 12 * 256);
    assert_int_equal(graph_tensor_bytes(fused, fused->tokens), 4 * 4 * 256);
    assert_int_equal(graph_tensor_dtype(fused, fused->tokens), ATOM_I32);
    assert_int_equal(graph_tensor_dtype(fused, fused->loss), ATOM_F32);
    assert_int_equal(graph_tensor_dtype(fused, fused->nodes[attn].out[0]), ATOM_BF16);
    graph_close(&g);
    graph_close(&fused);
}

static uint32_t count_classes(const graph *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        bool fresh = true;
        for (uint32_t j = 0; j < i && fresh; j++)
            fresh = graph_node_class(g, (int32_t)i) != graph_node_class(g, (int32_t)j);
        n += fresh;
    }
    return n;
}

static void alike_nodes_share_a_class(void **state)
{
    (void)state;
    graph_config c;
    graph *g = NULL, *fused = NULL;
    assert_int_equal(graph_preset_get("gpt3-175b", &c), ATOM_OK);
    assert_int_equal(graph_gpt2_build(&c, ATOM_BF16, 1, 2048, &g), ATOM_OK);
    assert_int_equal(graph_fuse(g, &fused), ATOM_OK);
    /* embed, ln_1 = ln_2 (their gradient adds), c_attn, attn, c_proj, add, c_fc, mlp.c_proj, ln_f
     * (its gradient writes), lm_head */
    assert_int_equal(count_classes(fused), 10);
    assert_true(graph_node_class(fused, node_named(fused, "h.7.mlp.c_fc")) ==
                graph_node_class(fused, node_named(fused, "h.90.mlp.c_fc")));
    assert_true(graph_node_class(fused, node_named(fused, "h.7.attn.c_attn")) !=
                graph_node_class(fused, node_named(fused, "h.7.attn.c_proj")));
    graph_close(&g);
    graph_close(&fused);
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

/* A graph that is only measured: the same places, and nothing of a backward. */
static void nothing_of_a_forward_is_trained(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        graph *g = build(seed, seed % 2), *was = build(seed, seed % 2);
        assert_true(graph_trains(g));
        graph_set_forward(g);
        assert_false(graph_trains(g));
        assert_int_equal(g->param_extent, was->param_extent);
        assert_int_equal(g->param_elements, was->param_elements);
        assert_true(g->trained_elements == 0 && graph_state_bytes(g) == 0);
        assert_true(graph_hash(g) != graph_hash(was)); /* plans are of one of them */
        for (uint32_t p = 0; p < g->n_params; p++)
            assert_true(g->params[p].frozen && g->params[p].offset == was->params[p].offset);
        for (uint32_t t = 0; t < g->n_tensors; t++)
            assert_false(g->tensors[t].needs_grad || g->tensors[t].kept);
        for (int32_t n = 0; n < (int32_t)g->n_nodes; n++) {
            assert_true(!graph_node_backward(g, n) && graph_node_keeps(g, n) == 0);
            assert_true(graph_node_flops(g, n, true) <= 0);
            assert_true(fabs(graph_node_flops(g, n, false) - graph_node_flops(was, n, false)) <= 0);
        }
        graph_close(&g);
        graph_close(&was);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_writer_per_gradient),
        cmocka_unit_test(kept_follows_the_table),
        cmocka_unit_test(boundaries_by_definition),
        cmocka_unit_test(block_edges_are_narrow),
        cmocka_unit_test(bytes_and_flops),
        cmocka_unit_test(alike_nodes_share_a_class),
        cmocka_unit_test(nothing_of_a_forward_is_trained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
