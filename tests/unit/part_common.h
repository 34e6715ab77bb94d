/* What the partition tests share: graphs, devices, and files in a directory of their own. */
#ifndef TESTS_UNIT_PART_COMMON_H
#define TESTS_UNIT_PART_COMMON_H

#include "atom/base/mem.h"
#include "atom/graph/models.h"
#include "partition/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A fused GPT-2 of any size. */
static inline graph *fused_gpt2(const graph_config *config, atom_dtype dtype, int64_t B, int64_t T)
{
    graph *plain = NULL, *fused = NULL;
    assert_int_equal(graph_gpt2_build(config, dtype, B, T, &plain), ATOM_OK);
    assert_int_equal(graph_fuse(plain, &fused), ATOM_OK);
    graph_close(&plain);
    return fused;
}

static inline graph *fused_preset(const char *name, atom_dtype dtype, int64_t B, int64_t T)
{
    graph_config config;
    assert_int_equal(graph_preset_get(name, &config), ATOM_OK);
    return fused_gpt2(&config, dtype, B, T);
}

static inline graph *tiny_gpt2(int64_t layers)
{
    graph_config config = {.name = "tiny",
                           .vocab_size = 97,
                           .positions = 16,
                           .width = 24,
                           .layers = layers,
                           .heads = 2,
                           .inner = 96,
                           .epsilon = 1e-5f,
                           .init_std = 0.02f};
    return fused_gpt2(&config, ATOM_F32, 2, 8);
}

static inline part_device spec(const char *name)
{
    part_device device;
    assert_int_equal(part_device_spec(name, &device), ATOM_OK);
    return device;
}

/* A profile of a device that is described. */
static inline part_profile *modelled(const graph *g, const char *device)
{
    part_device d = spec(device);
    part_profile *profile = NULL;
    assert_int_equal(part_profile_model(g, &d, &profile), ATOM_OK);
    return profile;
}

static inline part_plan *search_plan(const graph *g, const part_profile *profile,
                                     const part_request *request, part_search_stats *stats)
{
    part_plan *plan = NULL;
    if (part_search(g, profile, request, &plan, stats) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_int_equal(part_plan_check(plan, g), ATOM_OK);
    return plan;
}

#endif
