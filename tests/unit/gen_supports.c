/* A backend that lacks a kernel, or part of one, is refused by name. */
#include "codegen/lower.h"
#include "tests/lib/random_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void check(const graph *g, krn_table table, const char *about)
{
    atom_status st = gen_supports(g, &table);
    if (!about) {
        assert_int_equal(st, ATOM_OK);
        return;
    }
    assert_int_equal(st, ATOM_E_UNSUPPORTED);
    if (!strstr(atom_fail_message(), about))
        fail_msg("\"%s\" is not in: %s", about, atom_fail_message());
}

static void test_lacks(void **state)
{
    krn_table all = *krn_cpu_table(ATOM_F32), table;
    graph_config c;
    graph *g = NULL, *gpt2 = NULL;
    random_gpt2 r = random_gpt2_make(1);
    (void)state;
    graph_family_defaults(GRAPH_LLAMA, &c);
    c.width = 32;
    c.heads = 4;
    c.kv_heads = 2;
    c.head_dim = 8;
    c.layers = 1;
    c.inner = 16;
    c.vocab_size = 40;
    assert_int_equal(graph_model_build(&c, ATOM_F32, 1, 8, &g), ATOM_OK);
    assert_int_equal(graph_model_build(&r.config, ATOM_F32, r.B, r.T, &gpt2), ATOM_OK);
    check(g, all, NULL);
    check(g, (table = all, table.backend = "cuda", table.bwd[ATOM_OP_rope] = NULL, table),
          "op rope is not available on cuda yet");
    check(g, (table = all, table.fwd[ATOM_OP_swiglu] = NULL, table), "op swiglu");
    check(g, (table = all, table.can = KRN_CAN_NO_PLACES, table), "attention with fewer key heads");
    check(g, (table = all, table.can = KRN_CAN_GROUPED, table), "embed without positions");
    check(g, (table = all, table.head_dim_max = 8, table), NULL);
    check(g, (table = all, table.head_dim_max = 7, table), "with heads wider than 7");
    graph_close(&g);
    c.family = GRAPH_MISTRAL;
    c.window = 8; /* no shorter than the sequence: nobody needs to know */
    assert_int_equal(graph_model_build(&c, ATOM_F32, 1, 8, &g), ATOM_OK);
    check(g, (table = all, table.can &= ~(uint32_t)KRN_CAN_WINDOW, table), NULL);
    graph_close(&g);
    c.window = 7;
    assert_int_equal(graph_model_build(&c, ATOM_F32, 1, 8, &g), ATOM_OK);
    check(g, all, NULL);
    check(g, (table = all, table.can &= ~(uint32_t)KRN_CAN_WINDOW, table), "sliding_window");
    check(gpt2, (table = all, table.can = 0, table), NULL);
    graph_close(&g);
    graph_close(&gpt2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lacks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
