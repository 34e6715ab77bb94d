/*
 * What the files of atom bench share. Rates are medians; a ceiling is measured in the same run.
 */
#ifndef TOOLS_BENCH_BENCH_H
#define TOOLS_BENCH_BENCH_H

#include "tools/cli.h"

#include "kernels/bench.h"

typedef enum bench_transport { BENCH_GATE, BENCH_PLAIN } bench_transport;
typedef enum bench_only { BENCH_BOTH, BENCH_RESIDENT, BENCH_CAPPED } bench_only;

typedef struct bench_values {
    int32_t dtype; /* plan_dtype */
    int64_t threads, rounds, params;
    int32_t moments_dtype; /* atom_dtype */
    uint64_t bytes;
    char *model;
    char *device; /* copy and train: cpu, cuda[:N] */
    char *dir;    /* disk */
    char *trace;  /* train: file; NULL: none */
    int64_t micro_batch_size, sequence_len, gradient_accumulation_steps, steps;
    uint64_t device_memory, link_bandwidth;
    int32_t only;            /* train: bench_only */
    int32_t recompute;       /* plan_recompute */
    int32_t optimizer_state; /* plan_state */
    int32_t updates;         /* plan_updates */
    int32_t optimizer;       /* graph_optimizer */
    int64_t peers, streams;  /* allreduce, and below; rates in Mbit/s, rtt in ms, -1: none */
    int32_t codec;           /* gsp_codec */
    int32_t transport;       /* bench_transport */
    double rate, slow, rtt;
    int64_t strangers;        /* allreduce: connections per second; -1: none */
    char *addresses, *secret; /* allreduce: of hosts that each run one peer; NULL: all run here */
    int64_t self;             /* which of `addresses` is here; -1: not said */
    bool json;
} bench_values;

atom_dtype bench_dtype(const bench_values *v);
json_t *bench_rate(const krn_bench *b);

/* One node of each kind that multiplies matrices, and how often the graph has it. */
typedef struct bench_matmul {
    char name[GRAPH_NAME_MAX];
    uint32_t times;
    double fwd_flops, bwd_flops, fwd_seconds, bwd_seconds;
} bench_matmul;

enum { BENCH_MATMULS_MAX = 16 };

/* All matmuls of one micro-batch, as the profile timed them. */
typedef struct bench_matmuls {
    bench_matmul item[BENCH_MATMULS_MAX];
    uint32_t n;
    double flops, seconds; /* of all of them, times counted */
} bench_matmuls;
void bench_matmuls_gather(const graph *g, const part_profile *profile, bench_matmuls *out);

/* Raw multiply-add rate of all threads, FLOP/s, median of `rounds`: AVX for fp32, AMX for bf16. 0
 * where the processor has no such instruction. */
double bench_peak_flops(atom_threads *threads, atom_dtype dtype, uint32_t rounds);

ATOM_MUST atom_status bench_matmul_run(const bench_values *v);
ATOM_MUST atom_status bench_train_run(const bench_values *v);
ATOM_MUST atom_status bench_allreduce_run(const bench_values *v);
ATOM_MUST atom_status bench_codec_run(const bench_values *v);
ATOM_MUST atom_status bench_disk_run(const bench_values *v);
/* model_given: all rows of that model, else some of every preset. */
ATOM_MUST atom_status bench_plan_run(const bench_values *v, bool model_given);

#endif
