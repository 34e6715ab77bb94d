/*
 * Owns the sizes of bandwidth measurements. One idea: what is smaller than the caches measures the
 * caches, so a measurement passes over four times as much, as STREAM asks; but never over more than the
 * run itself will have, since a small model's state does live in a cache. Refuses to take more than an
 * eighth of the memory that there is.
 */
#include "atom/plan/bench_sizes.h"

enum { CACHES = 4, SHARE = 8 };
static const uint64_t TRIAD_LEAST = 192u << 20, PARAMS_LEAST = 4u << 20;

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

plan_bench_sizes plan_bench_sizes_of(uint64_t cache_bytes, uint64_t available_bytes,
                                     uint64_t trained, uint32_t bytes_each)
{
    uint64_t bytes = smaller(CACHES * cache_bytes, trained * bytes_each);
    bytes = smaller(bytes, available_bytes / SHARE);
    plan_bench_sizes sizes = {.triad_bytes = bytes, .adamw_params = bytes / bytes_each};
    if (sizes.triad_bytes < TRIAD_LEAST)
        sizes.triad_bytes = TRIAD_LEAST;
    if (sizes.adamw_params < PARAMS_LEAST)
        sizes.adamw_params = PARAMS_LEAST;
    return sizes;
}
