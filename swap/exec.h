/*
 * The executor: runs tapes on a device. It obeys the tape and knows nothing of plans or graphs.
 *
 * One thread (the caller of swap_exec_run) issues instructions in tape order; the device's streams
 * run them beside each other, held back only by the tape's waits. On the null device the same code
 * runs in virtual time and is the cost model (docs/design/engine.md#the-tape).
 *
 * Memory: an arena on each device and one pinned host slab, all taken at open and never grown.
 * Thread: one caller at a time. Errors: a failed instruction makes the executor dead (ATOM_E_DEAD).
 */
#ifndef SWAP_EXEC_H
#define SWAP_EXEC_H

#include "swap/cow.h"
#include "swap/disk.h"
#include "swap/tape.h"

/* Where things are in the host slab, bytes. wire holds the whole canonical vector, master, m and v
 * its first `trained` elements: what lies behind is never updated. With a disk tier (blocks.each >
 * 0) there is a ring of slots of swap_block_room() instead of the last three. */
typedef struct swap_host_layout {
    uint64_t wire, master, m, v;
    atom_dtype moments;
    swap_blocks blocks;
    uint64_t ring, ring_bytes;
    uint64_t tokens;          /* C x (tokens i32[B,T], targets i32[B,T]): what UPLOAD reads */
    uint64_t losses;          /* C x f32[B,T] */
    uint64_t norms;           /* f64[norm_chunks] */
    uint64_t muon;            /* krn_muon_space() of the largest matrix, where there is one; where
                                 the device makes the products f64[most rows of a matrix] */
    uint64_t extent, trained; /* elements of the canonical vector; of master and m */
    uint64_t seconds;         /* of v, which has none for matrices (swap_second_at) */
    uint64_t norm_chunks;
    uint64_t micro_batch_bytes; /* of one (tokens, targets) pair, padded; targets start at half */
    uint64_t loss_bytes;        /* of one micro-batch's losses, padded */
} swap_host_layout;

/* What a step needs beyond the tape. */
typedef struct swap_step {
    uint64_t seed;
    uint32_t step;        /* counts from 1 */
    uint32_t micro_batch; /* number of the first one: of its random numbers */
    /* Micro-batches of the tape that are run; 0: all. The others must have no target: then they add
     * only zeros, and zeros change no sum, as none is ever -0. Their losses are not written. */
    uint32_t micro_batches;
    uint32_t update_step; /* whose updates run: `step`, or with clipping the one before */
    float loss_scale;     /* 1 / target tokens of the whole step */
    float max_grad_norm;  /* 0: no clipping */
    /* For the UPDATE instructions of this run. decay is the run's weight decay, for parameters that
     * have decay. scale is ignored: the executor keeps the clip factor of the step that made the
     * gradients. */
    krn_adamw_step update;
    krn_adamw_step ahead; /* the same for updates that run ahead, which are those of `step` */
    krn_muon_step muon, muon_ahead; /* as update and ahead, of matrices */
    const int32_t *starts; /* krn_step.starts of micro-batch 0, the others behind it; may be NULL */
    uint64_t starts_n;     /* elements of one micro-batch */
} swap_step;

typedef struct swap_result {
    double grad_norm; /* before clipping; NaN-safe: not finite fails the run with ATOM_E_DIVERGED */
    float scale;      /* clip factor; 1: not clipped */
    double seconds;   /* of the device's clock, from first issue to last completion */
} swap_result;

typedef struct swap_exec_config {
    uint32_t n_devices;             /* as the tapes are for */
    dev *devices[SWAP_DEVICES_MAX]; /* of one kind; host work runs on the first */
    atom_threads *threads;
    const krn_table *table;     /* NULL on the null device */
    const krn_host_table *host; /* NULL on the null device */
    const swap_program *program;
    const swap_compiled *compiled; /* n_sub_models entries, or NULL: interpret everything */
    const swap_param *params;
    uint32_t n_params;
    swap_host_layout layout;
    uint64_t device_bytes, host_bytes; /* of each arena, of the slab */
    swap_range workspace;              /* in each arena */
    uint32_t instrs_max;               /* longest tape that will be run */
    /* Called on the optimizer's stream before the first and after the last BEGIN or UPDATE of a tape
     * that is not ahead and not on the device, with the step whose updates they are. May be NULL. */
    void (*on_updates)(void *ctx, uint32_t step, bool begin);
    /* Of those UPDATEs each whose state came from disk, before and after it: elements [first, first +
     * n) of the master weights, which may be changed before. May be NULL. */
    void (*on_block)(void *ctx, uint64_t first, uint64_t n, float *masters, bool begin);
    void *ctx;
} swap_exec_config;

typedef struct swap_exec swap_exec;

/* Takes the arena and the slab from the device. Everything in config but the tables must outlive
 * it. */
ATOM_MUST atom_status swap_exec_open(const swap_exec_config *config, swap_exec **out);
void swap_exec_close(swap_exec **exec);

/* Runs one tape to its end and waits for it. With a CLIP instruction, *result has the norm. */
ATOM_MUST atom_status swap_exec_run(swap_exec *exec, const swap_tape *tape, const swap_step *step,
                                    swap_result *result);

/* What LOAD, STORE and COMMIT work on. Call it before the first tape that has them. Borrowed. */
void swap_exec_attach(swap_exec *exec, swap_disk *disk);

/* UPDATE tells this snapshot before it changes the state in the slab (swap/cow.h). Call it before
 * the first tape. Borrowed. */
void swap_exec_keep(swap_exec *exec, swap_cow *cow);

/* The host slab (never NULL on real devices). Valid until close; touch it only between runs. */
void *swap_exec_slab(swap_exec *exec);

typedef struct swap_span {
    uint64_t start_ns, end_ns; /* of the device's clock, relative to the run's start */
} swap_span;
/* Start and end of every instruction of the last run; n of the last tape. Borrowed. */
const swap_span *swap_exec_spans(const swap_exec *exec, uint32_t *n);

/* The host's time of the last run: of the caller, to issue the tape, and of the compute stream's
 * thread, to launch kernels (0 where kernels run on the host). */
typedef struct swap_host_time {
    double issue_seconds, launch_seconds;
} swap_host_time;
swap_host_time swap_exec_host_time(const swap_exec *exec);

/* What only the first device has is zero on the others. */
dev_stats swap_exec_stats(const swap_exec *exec, uint32_t device, dev_stream_kind stream);

/* trace.c: Chrome / Perfetto JSON. Begin writes the head, add appends one run, end closes it. */
typedef struct swap_trace swap_trace;
ATOM_MUST atom_status swap_trace_open(const char *path, uint32_t n_devices, swap_trace **out);
ATOM_MUST atom_status swap_trace_add(swap_trace *trace, const swap_tape *tape,
                                     const swap_span *spans, swap_host_time host, uint32_t step,
                                     double offset_seconds);
ATOM_MUST atom_status swap_trace_close(swap_trace **trace);

#endif
