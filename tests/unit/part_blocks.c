/* Where blocks of a state on disk end: by hand for a small model, and what holds for all of them. */
#include "atom/base/mem.h"
#include "partition/plan.h"
#include "tests/lib/random_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* An embedding, gate and up in one, a layer behind them, and a head. */
static const char TEXT[] = "atom_graph 1\n"
                           "graph g dtype=fp32 B=2 T=3 optimizer=muon\n"
                           "param e dims=11,40 init=zero\n" /* 0 .. 440, padded to 512 */
                           "param a dims=60,40 init=zero\n" /* 512 .. 2912, to 2944: two matrices */
                           "param b dims=40,30 init=zero\n" /* 2944 .. 4144, to 4224 */
                           "param h dims=11,40 init=zero\n" /* 4224 .. 4664, to 4736 */
                           "input tokens kind=i32 dims=2,3\n"
                           "input targets kind=i32 dims=2,3\n"
                           "node embed op=embed in=tokens params=e\n"
                           "node x op=linear in=embed params=a\n"
                           "node r op=swiglu in=x\n"
                           "node y op=linear in=r params=b\n"
                           "node head op=linear in=y params=h\n"
                           "node loss op=cross_entropy in=head,targets\n";

typedef struct row {
    uint64_t first, end, seconds;
} row;

static void check(const graph *g, uint64_t each, const row *want, uint32_t n)
{
    part_blocks w = {.g = g, .each = each};
    uint64_t blocks;
    for (uint32_t i = 0; i < n; i++) {
        assert_true(part_blocks_next(&w));
        assert_int_equal(w.first, want[i].first);
        assert_int_equal(w.end, want[i].end);
        assert_int_equal(w.seconds, want[i].seconds);
    }
    assert_false(part_blocks_next(&w));
    (void)part_blocks_largest(g, each, &blocks);
    assert_int_equal(blocks, n);
}

static void by_hand(void **state)
{
    (void)state;
    graph *g = NULL;
    uint64_t n;
    if (graph_parse(TEXT, strlen(TEXT), &g) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_int_equal(g->trained_extent, 4736);
    /* Two blocks that AdamW's part ends at once, the rest where a matrix ends. */
    check(g, 256,
          (row[]){{0, 256, 256},
                  {256, 512, 256},
                  {512, 1712, 0},
                  {1712, 2944, 0},
                  {2944, 4224, 0},
                  {4224, 4480, 256},
                  {4480, 4736, 256}},
          7);
    check(g, 384,
          (row[]){{0, 384, 384},
                  {384, 1712, 128},
                  {1712, 2944, 0},
                  {2944, 4224, 0},
                  {4224, 4608, 384},
                  {4608, 4736, 128}},
          6);
    check(g, 1 << 20, (row[]){{0, 4736, 1024}}, 1);
    /* Of sectors of 1024 floats: master and momentum of two, and no second moment. */
    assert_int_equal(part_blocks_largest(g, 256, &n), 2 * 1024 * 8);
    assert_int_equal(part_blocks_largest(g, 1 << 20, &n), 5 * 1024 * 8 + 1024 * 4);
    graph_set_optimizer(g, GRAPH_ADAMW);
    check(g, 1024,
          (row[]){{0, 1024, 1024},
                  {1024, 2048, 1024},
                  {2048, 3072, 1024},
                  {3072, 4096, 1024},
                  {4096, 4736, 640}},
          5);
    graph_close(&g);
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

/* Is that element the first of a matrix or of anything else that a block may begin with? */
static bool may_begin(const graph *g, uint64_t element)
{
    int64_t rows[GRAPH_MATRICES_MAX];
    for (uint32_t p = 0; p < g->n_params; p++) {
        const graph_param *param = &g->params[p];
        uint64_t at = param->offset, room = (param->elements + 127) / 128 * 128;
        if (param->frozen || element < at || element >= at + room)
            continue;
        uint32_t n = graph_matrices(g, (int32_t)p, rows);
        bool may = n == 0;
        for (uint32_t i = 0; i < n; at += (uint64_t)(rows[i++] * param->dims[1]))
            may |= at == element;
        return may;
    }
    return false;
}

static void of_any_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        random_gpt2 r = random_model_make(seed);
        graph *g = NULL;
        assert_int_equal(graph_model_build(&r.config, ATOM_F32, r.B, r.T, &g), ATOM_OK);
        graph_set_optimizer(g, GRAPH_MUON);
        for (uint64_t each = 128; each < 4 * g->trained_extent; each = each * 3 + 1) {
            uint64_t seconds = 0, matrices = 0, at = 0, n;
            part_blocks w = {.g = g, .each = each};
            while (part_blocks_next(&w)) {
                assert_int_equal(w.first, at);
                assert_true(may_begin(g, w.first));
                assert_true(w.end - w.first >= each || w.end == g->trained_extent);
                seconds += w.seconds;
                at = w.end;
            }
            assert_int_equal(at, g->trained_extent);
            for (uint32_t p = 0; p < g->n_params; p++)
                matrices += graph_matrices(g, (int32_t)p, (int64_t[GRAPH_MATRICES_MAX]){0})
                                ? (g->params[p].elements + 127) / 128 * 128
                                : 0;
            assert_int_equal(seconds, g->trained_extent - matrices);
            assert_true(part_blocks_largest(g, each, &n) > 0 && n >= 1);
        }
        graph_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),
        cmocka_unit_test(of_any_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
