/* Building by hand: what the builder's functions refuse when a program, not a text, is wrong. */
#include "atom/base/mem.h"
#include "atom/graph/graph.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* An open graph of B=2, T=3 with "e" = embed of width 6 in place. */
typedef struct fixture {
    graph *g;
    int32_t tokens, targets, wte, wpe, e;
} fixture;

static int begin(void **state)
{
    static fixture f;
    const int64_t ids[2] = {2, 3}, wte[2] = {11, 6}, wpe[2] = {4, 6};
    assert_int_equal(graph_open("hand", ATOM_F32, 2, 3, &f.g), ATOM_OK);
    assert_int_equal(graph_add_input(f.g, "tokens", GRAPH_I32, 2, ids, &f.tokens), ATOM_OK);
    assert_int_equal(graph_add_input(f.g, "targets", GRAPH_I32, 2, ids, &f.targets), ATOM_OK);
    assert_int_equal(graph_add_param(f.g, "wte", 2, wte, GRAPH_INIT_ZERO, 0, &f.wte), ATOM_OK);
    assert_int_equal(graph_add_param(f.g, "wpe", 2, wpe, GRAPH_INIT_ZERO, 0, &f.wpe), ATOM_OK);
    graph_node embed = {.name = "e",
                        .op = ATOM_OP_embed,
                        .n_params = 2,
                        .in = {f.tokens},
                        .params = {f.wte, f.wpe}};
    assert_int_equal(graph_add_node(f.g, &embed, &f.e), ATOM_OK);
    *state = &f;
    return 0;
}

static int end(void **state)
{
    fixture *f = *state;
    graph_close(&f->g);
    graph_close(&f->g); /* twice is harmless */
    assert_int_equal(atom_mem_read().live_blocks, 0);
    return 0;
}

static void refuses(fixture *f, graph_node node, const char *about)
{
    uint32_t nodes = f->g->n_nodes, tensors = f->g->n_tensors;
    int32_t out = -7;
    assert_int_equal(graph_add_node(f->g, &node, &out), ATOM_E_FORMAT);
    if (!strstr(atom_fail_message(), about))
        fail_msg("\"%s\" is not in: %s", about, atom_fail_message());
    assert_int_equal(out, -7); /* untouched, and so is the graph */
    assert_int_equal(f->g->n_nodes, nodes);
    assert_int_equal(f->g->n_tensors, tensors);
}

static void bad_nodes(void **state)
{
    fixture *f = *state;
    graph_node gelu = {.name = "n", .op = ATOM_OP_gelu, .in = {f->e}}, n;
    refuses(f, (n = gelu, n.in[0] = 99, n), "node \"n\" (gelu): input 0 is not a tensor");
    refuses(f, (n = gelu, n.in[0] = -1, n), "not a tensor made before it");
    refuses(f, (n = gelu, n.in[0] = f->tokens, n), "is i32[2,3], must be act[2,3,*]");
    refuses(f, (n = gelu, n.name[0] = '\0', n), "no name");
    refuses(f, (n = gelu, n.name[0] = ' ', n), "0x20");
    refuses(f, (n = gelu, n.n_params = 1, n), "has 1 parameters");
    refuses(f, (n = gelu, n.eps = 0.5f, n), "eps");
    refuses(f, (n = gelu, n.p = 0.5f, n), "dropout probability");
    refuses(f, (n = gelu, n.heads = 2, n), "heads");
    refuses(f, (n = gelu, n.window = 2, n), "only attention takes one");
    refuses(f, (n = gelu, n.op = ATOM_OP_maxout, n), "maxout needs one of 2 or more");
    refuses(f, (n = gelu, n.op = ATOM_OP_maxout, n.window = 1, n), "maxout needs one of 2");
    refuses(f, (n = gelu, n.op = ATOM_OP_maxout, n.window = 4, n),
            "width 6 is not a whole multiple of window 4");
    refuses(f, (n = gelu, n.op = ATOM_OP_N, n), "unknown op");
    memset(gelu.name, 'x', 59);
    refuses(f, gelu, "longer than 58");
    graph_node linear = {.name = "n", .op = ATOM_OP_linear, .n_params = 1, .in = {f->e}};
    refuses(f, (n = linear, n.params[0] = 2, n), "parameter 0 does not exist");
    refuses(f, (n = linear, n.n_params = 3, n), "has 3 parameters");
    graph_node dropout = {.name = "n", .op = ATOM_OP_dropout, .in = {f->e}};
    refuses(f, (n = dropout, n.p = 1, n), "[0, 1)");
    refuses(f, (n = dropout, n.p = NAN, n), "[0, 1)");
    refuses(f, (n = dropout, n.p = -0.0f, n), "[0, 1)");
    graph_node attention = {.name = "n", .op = ATOM_OP_attention, .in = {f->e}};
    refuses(f, attention, "heads is 0");
    refuses(f, (n = attention, n.heads = 4, n),
            "width 6 is not a whole multiple of 4 heads and twice 4");
    refuses(f, (n = attention, n.heads = 3, n.kv_heads = 2, n), "kv_heads is 2 of 3");
    refuses(f, (n = attention, n.heads = 2, n.rope.theta = 1e4f, n), "other ops none");
    refuses(f, (n = gelu, n.name[0] = 'n', n.name[1] = 0, n.kv_heads = 1, n), "kv_heads");
    graph_node rope = {.name = "n", .op = ATOM_OP_rope, .in = {f->e}, .heads = 2};
    rope.rope = (atom_rope){.theta = 1e4f, .factor = 1};
    refuses(f, rope, "heads of 1 channels cannot be halved");
    refuses(f, (n = rope, n.rope.theta = 1, n), "theta > 1");
    refuses(f, (n = rope, n.rope.factor = 0, n), "factor > 0");
    refuses(f, (n = rope, n.rope.low = 1, n), "0 < low < high");
    refuses(f, (n = rope, n.rope.original = NAN, n), "0 < low < high");
    refuses(f, (n = rope, n.rope.width = 3, n), "an even width");
    refuses(f, (n = rope, n.rope.yarn = 1, n), "yarn with original > 0");
    refuses(f, (n = rope, n.rope.factor = 2, n.rope.divisors[0] = 1, n), "divisors above 0");
    refuses(f, (n = rope, n.rope.divisors[0] = 1, n.rope.divisors[2] = 1, n), "divisors above 0");
    refuses(f, (n = rope, n.heads = 1, n.rope.width = 4, n), "width=4, but heads have 2 channels");
    refuses(f, (n = rope, n.heads = 1, n.rope.divisors[0] = n.rope.divisors[1] = 1, n),
            "2 divisors, but 2 channels");
    refuses(f, (n = attention, n.heads = 2, n.rope.gain = 1, n), "other ops none");
    refuses(f, (n = rope, n.op = ATOM_OP_rmsnorm, n.n_params = 1, n), "norms take 0 < eps");
    int32_t a;
    attention.heads = 2;
    assert_int_equal(graph_add_node(f->g, &attention, &a), ATOM_OK);
    gelu = (graph_node){.name = "m", .op = ATOM_OP_gelu, .in = {f->g->nodes[1].saved[0]}};
    refuses(f, gelu, "saved for a backward pass");
}

static void bad_params_and_inputs(void **state)
{
    fixture *f = *state;
    const int64_t dims[4] = {2, 3, 4, 5}, zero[1] = {0}, huge[3] = {1 << 20, 1 << 20, 8};
    int32_t id = -7;
    graph *g = f->g;
    assert_int_equal(graph_add_param(g, "w", 0, dims, GRAPH_INIT_ONE, 0, &id), ATOM_E_FORMAT);
    assert_int_equal(graph_add_param(g, "w", 5, dims, GRAPH_INIT_ONE, 0, &id), ATOM_E_FORMAT);
    assert_int_equal(graph_add_param(g, "w", 1, zero, GRAPH_INIT_ONE, 0, &id), ATOM_E_FORMAT);
    assert_int_equal(graph_add_param(g, "w", 3, huge, GRAPH_INIT_ONE, 0, &id), ATOM_E_FORMAT);
    assert_int_equal(graph_add_param(g, "a b", 1, dims, GRAPH_INIT_ONE, 0, &id), ATOM_E_FORMAT);
    assert_int_equal(graph_add_param(g, "w", 1, dims, GRAPH_INIT_ONE, 1, &id), ATOM_E_FORMAT);
    assert_int_equal(graph_add_param(g, "w", 1, dims, GRAPH_INIT_NORMAL, NAN, &id), ATOM_E_FORMAT);
    assert_int_equal(graph_add_param(g, "w", 1, dims, (graph_init)9, 0, &id), ATOM_E_FORMAT);
    assert_int_equal(graph_add_input(g, "x", (graph_kind)9, 1, dims, &id), ATOM_E_FORMAT);
    assert_int_equal(graph_add_input(g, "", GRAPH_I32, 1, dims, &id), ATOM_E_FORMAT);
    assert_int_equal(graph_add_input(g, "x", GRAPH_I32, -1, dims, &id), ATOM_E_FORMAT);
    assert_int_equal(id, -7);
    assert_int_equal(g->n_params, 2);
    assert_int_equal(g->n_tensors, 3);
}

static void seal_wants_one_loss_at_the_end(void **state)
{
    fixture *f = *state;
    assert_int_equal(graph_seal(f->g), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "last node is not a loss"));
    graph_node loss = {.name = "l",
                       .op = ATOM_OP_classifier,
                       .n_params = 1,
                       .in = {f->e, f->targets},
                       .params = {f->wte}};
    int32_t out;
    assert_int_equal(graph_add_node(f->g, &loss, &out), ATOM_OK);
    assert_int_equal(graph_seal(f->g), ATOM_OK); /* a failed seal can be tried again */
    assert_true(f->g->sealed);
    assert_int_equal(f->g->tokens, f->tokens);
    assert_int_equal(f->g->targets, f->targets);
    assert_int_equal(f->g->loss, out);
    assert_int_equal(f->g->param_elements, 11 * 6 + 4 * 6);
    assert_int_equal(f->g->param_extent, 128 + 128);
    assert_true(f->g->params[0].shared);
}

static void seal_refuses_an_empty_graph(void **state)
{
    (void)state;
    graph *g = NULL;
    assert_int_equal(graph_open(NULL, ATOM_F32, 1, 1, &g), ATOM_OK);
    assert_string_equal(g->name, "graph");
    assert_int_equal(graph_seal(g), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "no nodes"));
    graph_close(&g);
}

/* One tensor with two users: the later one, in forward order, writes its gradient,
 * the other adds. */
static void two_uses_one_gradient(void **state)
{
    fixture *f = *state;
    graph_node a = {.name = "a", .op = ATOM_OP_gelu, .in = {f->e}};
    graph_node b = {.name = "b", .op = ATOM_OP_gelu, .in = {f->e}};
    graph_node s = {.name = "s", .op = ATOM_OP_add};
    graph_node l = {
        .name = "l", .op = ATOM_OP_classifier, .n_params = 1, .in = {0, f->targets}, .params = {0}};
    assert_int_equal(graph_add_node(f->g, &a, &s.in[0]), ATOM_OK);
    assert_int_equal(graph_add_node(f->g, &b, &s.in[1]), ATOM_OK);
    assert_int_equal(graph_add_node(f->g, &s, &l.in[0]), ATOM_OK);
    int32_t out;
    assert_int_equal(graph_add_node(f->g, &l, &out), ATOM_OK);
    assert_int_equal(graph_seal(f->g), ATOM_OK);
    assert_int_equal(graph_grad_mode(f->g, 1, 0), GRAPH_GRAD_ADD);
    assert_int_equal(graph_grad_mode(f->g, 2, 0), GRAPH_GRAD_WRITE);
    assert_int_equal(graph_grad_mode(f->g, 3, 0), GRAPH_GRAD_WRITE);
    assert_int_equal(graph_grad_mode(f->g, 3, 1), GRAPH_GRAD_WRITE);
    assert_int_equal(graph_grad_mode(f->g, 4, 1), GRAPH_GRAD_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bad_nodes, begin, end),
        cmocka_unit_test_setup_teardown(bad_params_and_inputs, begin, end),
        cmocka_unit_test_setup_teardown(seal_wants_one_loss_at_the_end, begin, end),
        cmocka_unit_test_setup_teardown(two_uses_one_gradient, begin, end),
        cmocka_unit_test(seal_refuses_an_empty_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
