/*
 * A model as a graph on a device, and what can be asked of it before any weight is read: how long
 * its nodes take there (profile) and how it is best cut and moved (plan). Profile, plan, train and
 * eval all begin here.
 *
 *   plan_workbench   the model's graph, with the kernels that would run it
 *   train_profile_*   measured rates and times; cached for this machine, graph and build
 *   train_plan_*      the search for the fastest plan within the memory there is
 *
 * Thread: one caller. Errors: status.h; the message says which key, file or device and what to do.
 */
#ifndef ATOM_PLAN_WORKBENCH_H
#define ATOM_PLAN_WORKBENCH_H

#include "atom/base/threads.h"
#include "atom/file/hfdir.h"
#include "atom/file/peft.h"
#include "kernels/kernels.h"
#include "partition/plan.h"
#include "swap/store.h"

/* What a run computes in, as a user says it. */
typedef enum plan_dtype { PLAN_DTYPE_AUTO, PLAN_DTYPE_FP32, PLAN_DTYPE_BF16 } plan_dtype;
/* auto: bf16 where the device computes in it natively. */
atom_dtype plan_dtype_settle(int32_t dtype, bool native_bf16);

/* What a plan is free to decide, and what it is told. */
typedef enum plan_recompute {
    PLAN_RECOMPUTE_FREE = -1,
    PLAN_RECOMPUTE_NEVER,
    PLAN_RECOMPUTE_ALWAYS
} plan_recompute;
typedef enum plan_state {
    PLAN_STATE_FREE = -1, /* in memory where it fits */
    PLAN_STATE_IN_MEMORY,
    PLAN_STATE_ON_DISK
} plan_state;
typedef enum plan_updates { PLAN_UPDATES_FREE, PLAN_UPDATES_ON_HOST } plan_updates;

typedef struct plan_workbench_config {
    const char *model;   /* preset, directory, config.json */
    int64_t micro_batch; /* B */
    int64_t sequence;    /* T; -1: the model's positions */
    int32_t dtype;       /* plan_dtype; auto: bf16 where the device has it natively, else fp32 */
    atom_dtype moments;  /* what Adam's moments are kept in; 0: ATOM_F32 */
    graph_optimizer optimizer; /* of the hidden matrices; 0: GRAPH_ADAMW */
    const char *device;        /* "auto", "cpu", "cuda[:N]"; NULL: cpu */
    int64_t devices;           /* that work together: cards N, N + 1, ..; 0: 1 */
    double dropout;            /* -1: as the model says */
    int64_t vocab_size; /* presets only: replaces the preset's (plan_vocab.padded); 0: as it says */
    int64_t threads;    /* -1: all cores */
    uint64_t link_bandwidth; /* bytes/s per direction; 0: not throttled */
    const char *adapter;     /* directory of a LoRA adapter of the model, or NULL */
    /* What is trained of a LoRA run: lora.rank 0 without an adapter is the whole model, and with
     * one that adapter. Not trained: the adapter is merged where weights are read. */
    bool trains;
    bool forward; /* only losses are computed: nothing is trained (graph_set_forward) */
    file_lora_keys lora;
    /* A codec on boundaries between blocks (graph_compress), or bottlenecks there that are learnt
     * (graph_bottleneck): its text, NULL or "none": none, and after how many blocks, "2,4"; to be left
     * out without a codec. */
    const char *compress_boundaries, *compress_at;
} plan_workbench_config;

enum { PLAN_AT_BYTES = 256 };

/* Keys of LoRA without an effect are refused: those that are not at their default where there is no
 * rank to go with them, or where an adapter (NULL: none) brings its own. */
ATOM_MUST atom_status plan_lora_check(const char *adapter, const file_lora_keys *keys);

/* Does the text of a codec mean bottlenecks, which are a part of the model? */
bool plan_boundaries_learn(const char *codec);

/* What crosses the boundaries of a model that is trained with a codec on them. */
typedef struct plan_boundaries {
    char text[ATOM_CODEC_TEXT_BYTES]; /* "int4", "bottleneck:8", "maxout:8" */
    atom_codec codec;                 /* not of bottlenecks: then none */
    int64_t width;                    /* of bottlenecks; 0: there are none */
    bool maxout;                      /* of bottlenecks: their kind */
    bool added;                       /* bottlenecks: the model that was named has none yet */
    uint32_t n, blocks;               /* boundaries; blocks of the model */
    int32_t after[GRAPH_BOTTLENECKS_MAX];
    uint64_t token_bytes;      /* of all of them, in one direction */
    uint64_t token_bytes_bf16; /* the same without a codec */
    char at[PLAN_AT_BYTES];    /* "2,4" */
} plan_boundaries;

/* What profiling asks of the machine; NULL: the machine itself. For tests. */
typedef struct plan_machine {
    double (*seconds)(void *ctx); /* a clock */
    double (*load)(void *ctx);    /* tasks that want to run, for each core */
    void *ctx;
} plan_machine;

typedef struct plan_workbench {
    file_model model;
    graph *g;       /* fused */
    graph *base;    /* a LoRA run: the model without adapters, whose names files have; or NULL */
    file_lora lora; /* a LoRA run: its settings */
    atom_threads *threads;
    const krn_table *table;
    const krn_host_table *host;
    int card;                     /* of CUDA; -1: the CPU computes */
    plan_boundaries boundaries;   /* n 0: none */
    plan_workbench_config config; /* texts are borrowed from the caller's config */
    plan_machine machine;
    char busy[160]; /* how it was seen that the machine was busy at the last profile; "": calm */
    char
        news[400]; /* why a kept profile was measured again, and what has changed; "": it was not */
} plan_workbench;

/* What the tokenizer of a data set says (DATA/tokenizer.json); without one tokens and padded are 0,
 * end and start -1. */
typedef struct plan_vocab {
    uint32_t tokens;
    int64_t padded;     /* what training gives a preset, so that the head's matrices have friendly
                         * sizes (plan_workbench_config.vocab_size) */
    int64_t end, start; /* of a text */
} plan_vocab;
ATOM_MUST atom_status plan_vocab_read(const char *data, plan_vocab *out);
/*
 * Was the data made with the tokenizer of the model in model_dir? Where one of them has no
 * tokenizer.json, or atom cannot read the model's, nothing is said. *alike (may be NULL): there is nothing to say,
 * or both give the same ids for every text.
 *
 * Errors: ATOM_E_USAGE where a token of both is another one in each
 */
ATOM_MUST atom_status plan_vocab_check(const char *model_dir, const char *data, bool *alike);

ATOM_MUST atom_status plan_workbench_open(const plan_workbench_config *config,
                                          plan_workbench **out);
void plan_workbench_close(plan_workbench **bench);

/* --- profile and plan ------------------------------------------------------------------------ */

/* progress: called with what is being timed; may be NULL. */
typedef void (*plan_progress_fn)(void *ctx, const char *what, uint32_t done, uint32_t total);

/* Times every class of alike nodes and the device's rates (seconds to a minute). Says in bench->busy
 * where that was disturbed. */
ATOM_MUST atom_status plan_profile_measure(plan_workbench *bench, plan_progress_fn progress,
                                           void *ctx, part_profile **out);
/* The same from the user's cache when this machine, graph and build were profiled before and no run spoke
 * against it; where one did, it is measured again and bench->news says what has changed. The machine's
 * rates are not measured again for another graph. A profile of a busy machine is used and not kept, with a
 * warning. *cached is optional. path: a profile to read instead, or NULL. */
ATOM_MUST atom_status plan_profile_get(plan_workbench *bench, const char *path,
                                       plan_progress_fn progress, void *ctx, part_profile **out,
                                       bool *cached);

/* Only what the cache has; false: nothing, or nothing that can be used. */
bool plan_profile_cached(const plan_workbench *bench, part_profile **out);
/* A run of so many steps took median_seconds, and predicted_seconds were promised from the cached profile.
 * true: they are a tenth or more apart, and the next plan_profile_get() measures again; at most twice
 * in a row, until a run agrees. false: it does not, or steps were too few or too short to tell. */
bool plan_profile_weigh(const plan_workbench *bench, double predicted_seconds,
                        double median_seconds, uint64_t steps);

typedef struct plan_request {
    uint32_t devices;       /* that share the micro-batches; 0: 1 */
    uint64_t device_memory; /* of each; 0: no budget */
    uint64_t host_memory;   /* 0: what is available */
    uint64_t host_hold;     /* up to which a plan on disk may hold blocks in memory; 0: none */
    uint32_t micro_batches; /* C; 0: recommend */
    bool no_advice;         /* with a C: the plan recommends no other, and is found sooner */
    bool no_needs;          /* a refusal need not say how much is enough, and comes sooner */
    bool clip;
    bool update_on_device; /* allowed where it fits and pays */
    bool ortho_on_device;  /* likewise: Muon's products */
    int recompute;         /* plan_recompute */
    int disk;              /* plan_state: where the optimizer keeps it */
    bool ahead;            /* then updates may run ahead of the clip factor */
} plan_request;

/* Reads and writes in dir for a second, less where g's state is small, as training would, and notes
 * the rates in *device. */
ATOM_MUST atom_status plan_disk_measure(const char *dir, store_kind kind, const graph *g,
                                        part_device *device);

/* plan_request.host_hold, where so much host memory was asked for (0: none) and there is so much; state: a
 * plan_state. Who sends the state to disk and says no more wants the memory for something else. */
static inline uint64_t plan_host_hold(uint64_t asked, uint64_t has, int state)
{
    return asked ? asked : state == PLAN_STATE_ON_DISK ? 0 : has / 4 * 3;
}

/* Search with the null device as judge. table: NULL for a device that is not here. For several
 * devices: cuts as they are best for the largest share alone, judged by the step of all; the
 * recommended number of micro-batches is for all, its rates are not said. */
ATOM_MUST atom_status plan_search(const graph *g, const part_profile *profile,
                                  const krn_table *table, const plan_request *request,
                                  part_plan **out, part_search_stats *stats);

/* What a plan with a disk would come to, its sub-models unchanged, if the optimizer's state were in host
 * memory, whatever its limits. */
ATOM_MUST atom_status plan_judge_in_memory(const graph *g, const part_profile *profile,
                                           const part_plan *plan, part_verdict *verdict);

#endif
