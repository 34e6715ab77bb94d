/*
 * Measurements that the profiler and `atom bench` share: host AdamW, memory bandwidth, copies. Each
 * takes the median of `rounds` passes, and what is compared is measured in turn in the same run,
 * because shared machines drift.
 *
 * Thread: blocks the caller; nothing else should run on the pool. Errors: ATOM_E_RESOURCE when
 * there is no memory for the arrays.
 */
#ifndef KERNELS_BENCH_H
#define KERNELS_BENCH_H

#include "kernels/device.h"

/* One kind of pass: its median time, the bytes it moves (reads plus writes), and their quotient; and
 * the fastest pass, from which the median is far only where the machine does something else. */
typedef struct krn_bench {
    uint64_t bytes;
    double seconds;
    double bytes_per_second;
    double fastest_seconds;
} krn_bench;

/*
 * STREAM triad, fp32, non-temporal stores, all threads: the ceiling of host memory. `bytes` in all
 * for the three arrays; several times the last-level cache, or it measures the cache. 12 bytes per
 * element.
 */
ATOM_MUST atom_status dev_bench_triad(atom_threads *threads, uint64_t bytes, uint32_t rounds,
                                      krn_bench *out);

/*
 * AdamW over n parameters beside a triad over as many bytes, in turn. bytes counts what moves: the
 * wire copy, master and both moments, each read and written: 32 per parameter in fp32, 28 in bf16,
 * 20 where moments are bf16 too.
 */
typedef struct krn_adamw_kinds {
    atom_dtype wire, moments;
} krn_adamw_kinds;
ATOM_MUST atom_status krn_bench_adamw(atom_threads *threads, const krn_host_table *table,
                                      krn_adamw_kinds kinds, uint64_t n, uint32_t rounds,
                                      krn_bench *adamw, krn_bench *triad);

/* Muon on one matrix with momentum in fp32; bytes counts nothing. */
ATOM_MUST atom_status krn_bench_muon(atom_threads *threads, const krn_host_table *table,
                                     atom_dtype wire, int64_t rows, int64_t cols, uint32_t rounds,
                                     krn_bench *out);

/*
 * Copies of `bytes` through the device's H2D and D2H streams: each direction alone, then both at
 * once. bytes counts the payload once. latency: one of many copies of 256 bytes in a row. memory: the
 * same payload copied by the whole pool in host memory, the ceiling of a CPU
 * device (0 where the device is not the host).
 */
typedef struct dev_copy_bench {
    krn_bench h2d, d2h, h2d_both, d2h_both, memory;
    double latency_seconds;
} dev_copy_bench;
ATOM_MUST atom_status dev_bench_copy(dev *d, atom_threads *threads, uint64_t bytes, uint32_t rounds,
                                     dev_copy_bench *out);

#endif
