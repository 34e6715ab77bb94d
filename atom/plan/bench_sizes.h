/*
 * How much memory the profiler's measurements of bandwidth pass over. Inner header of atom/plan.
 *
 * Units: bytes, parameters. Thread: any. Errors: none.
 */
#ifndef ATOM_PLAN_BENCH_SIZES_H
#define ATOM_PLAN_BENCH_SIZES_H

#include <stdint.h>

typedef struct plan_bench_sizes {
    uint64_t triad_bytes, adamw_params;
} plan_bench_sizes;

/*
 * cache_bytes: all last-level caches; 0: not known. available_bytes: memory that may be taken.
 * trained: parameters that the run will update, bytes_each of wire copy and state for each.
 */
plan_bench_sizes plan_bench_sizes_of(uint64_t cache_bytes, uint64_t available_bytes,
                                     uint64_t trained, uint32_t bytes_each);

#endif
