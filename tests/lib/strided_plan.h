/*
 * Plans by hand for tests of tapes: of GPT-2 on a card that nobody has, cut after every so many nodes.
 */
#ifndef TESTS_LIB_STRIDED_PLAN_H
#define TESTS_LIB_STRIDED_PLAN_H

#include "atom/graph/models.h"
#include "codegen/lower.h"
#include "tests/lib/wire_bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static inline graph *fused(const graph_config *config, int64_t B, int64_t T)
{
    graph *plain = NULL, *g = NULL;
    assert_int_equal(graph_gpt2_build(config, ATOM_BF16, B, T, &plain), ATOM_OK);
    assert_int_equal(graph_fuse(plain, &g), ATOM_OK);
    graph_close(&plain);
    return g;
}

/* Cuts in front of every `stride`-th node that may be cut at. */
static inline part_plan *strided_plan(const graph *g, const part_profile *profile, int stride,
                                      uint32_t C)
{
    int32_t cuts[256];
    uint32_t n = 0;
    int seen = 0;
    for (int32_t c = 1; c < (int32_t)g->n_nodes && n < 256; c++) {
        if (graph_can_cut(g, c) && ++seen % stride == 0)
            cuts[n++] = c;
    }
    part_plan *plan = NULL;
    assert_int_equal(part_plan_open(g, profile, n + 1, &plan), ATOM_OK);
    plan->micro_batches = C;
    plan->clip = true;
    plan->cut_bytes = 0;
    for (uint32_t k = 0; k <= n; k++) {
        part_sub_model *s = &plan->sub_models[k];
        s->first_node = k ? cuts[k - 1] : 0;
        s->last_node = k < n ? cuts[k] : (int32_t)g->n_nodes;
        s->param_bytes = wire_bytes_of(g, s->first_node, s->last_node);
        plan->cut_bytes += k ? graph_boundary_bytes(g, s->first_node) : 0;
    }
    return plan;
}

static inline part_device card(double flops, double link)
{
    return (part_device){.name = "a card",
                         .isa = "none",
                         .modelled = true,
                         .cores = 8,
                         .device_bytes = 1ull << 34,
                         .host_bytes = 1ull << 40,
                         .flops_fp32 = flops,
                         .flops_bf16 = flops,
                         .device_bytes_per_second = 1e12,
                         .h2d_bytes_per_second = link,
                         .d2h_bytes_per_second = link,
                         .h2d_both_bytes_per_second = link,
                         .d2h_both_bytes_per_second = link,
                         .host_bytes_per_second = 1e12,
                         .adamw_params_per_second = 1e11};
}

static inline part_verdict judge(const graph *g, const part_profile *profile, part_plan *plan,
                                 uint32_t devices)
{
    gen_judge j = {.g = g, .profile = profile};
    part_verdict v;
    plan->devices = devices;
    assert_int_equal(gen_judge_plan(&j, plan, &v), ATOM_OK);
    return v;
}

#endif
