/*
 * A lowered plan with memory, streams and code: what turns a batch into a step. Where nothing is trained
 * (graph_set_forward) it can only evaluate, and has neither state nor gradients. It owns the
 * optimizer's clock: with clipping, the updates of step s run at the start of step s + 1
 * (docs/design/engine.md#the-optimizer), and whoever wants to see the weights drains first.
 */
#ifndef ATOM_TRAIN_ENGINE_H
#define ATOM_TRAIN_ENGINE_H

#include "atom/file/vector.h"
#include "atom/plan/source.h"
#include "atom/plan/wire.h"
#include "atom/plan/workbench.h"
#include "atom/train/ahead.h"
#include "atom/train/config.h"
#include "codegen/lower.h"
#include "swap/cow.h"

typedef struct train_engine_config {
    plan_workbench *bench;
    const part_plan *plan;
    const part_profile *profile;
    int32_t execute; /* train_execute */
    double adam_beta1, adam_beta2, adam_epsilon, weight_decay, max_grad_norm;
    double muon_momentum; /* where the graph has GRAPH_MUON */
    uint64_t seed;
    bool apart; /* the documents of a sample do not see each other; fill train_engine_starts */
    /* With a plan that keeps the optimizer's state on disk: */
    const char *store; /* its file; NULL: the engine will not step (dry run) */
    store_kind store_kind;
    train_update_ahead update_ahead; /* auto: where it is faster is for the caller to say */
    /* Called before a tape that commits `step`, whose batch has that many targets (0: it ran
     * already): what must be on disk by then. May be NULL. */
    atom_status (*before_commit)(void *ctx, uint32_t step, int64_t targets);
    /* Called on the optimizer's stream before the first and after the last update of `step`: in
     * between, and only there, the state changes. May be NULL. */
    void (*on_updates)(void *ctx, uint32_t step, bool begin);
    /* In between, with the state on disk: each block of master weights before (they may be changed)
     * and after its update, as elements [first, first + n). May be NULL. */
    void (*on_block)(void *ctx, uint64_t first, uint64_t n, float *masters, bool begin);
    void *ctx;
    uint64_t spare_bytes; /* at most, for snapshots of a state in memory (part_spare_bytes) */
} train_engine_config;

struct train_engine;
typedef struct train_part {
    struct train_engine *engine;
    swap_state part;
} train_part;

typedef struct train_engine {
    train_engine_config c;
    plan_files files;   /* their windows, as the plan counts them */
    file_source source; /* of what fills it */
    file_sink sink;     /* of what is saved of it */
    gen_lowered *low;
    uint32_t n_devices;
    dev *devices[SWAP_DEVICES_MAX];
    swap_exec *exec;
    void *module;          /* gen_module, or NULL */
    const char *execute;   /* "generated" or "interpreted" */
    char why[256];         /* why auto fell back to the interpreter; "" if it did not */
    uint32_t pending_step; /* step whose update has not run; 0: none */
    double pending_rate;   /* its learning rate */
    bool rest;             /* of its updates some ran ahead, and were right */
    bool in_slots; /* what the last evaluation left on the device, where nothing is trained */
    train_ahead ahead;
    swap_disk *disk;                  /* NULL: the state is in the slab */
    swap_cow *cow;                    /* NULL: the state is on disk */
    uint64_t spare_bytes, spare_peak; /* its memory: planned, and what snapshots took so far */
    train_part parts[SWAP_STATE_N];
    plan_wire wire;
    uint64_t init_seed;
    int32_t *starts; /* i32[C,B,T] where documents are apart, else NULL */
} train_engine;

ATOM_MUST atom_status train_engine_open(const train_engine_config *config, train_engine **out);
void train_engine_close(train_engine **e);

/* Host memory: what the plan says (all regions, and the windows of files), and the most there was.
 * Spare memory of snapshots is beside both: spare_bytes, spare_peak. */
uint64_t train_engine_host_bytes(const train_engine *e);
uint64_t train_engine_host_peak(const train_engine *e);

/* The canonical vectors of what is trained, in memory or on disk. Change them only when nothing is
 * pending; then sync. */
file_vector train_engine_vector(train_engine *e, swap_state part);
/* All weights: masters, and behind them what is frozen, as the wire copy has it. Where nothing is trained,
 * ask for them again before they are changed after an evaluation. */
file_vector train_engine_weights(train_engine *e);
/* The master weights themselves; NULL when they are on disk. */
float *train_engine_masters(train_engine *e);
/* First weights, and moments of zero. */
ATOM_MUST atom_status train_engine_init(train_engine *e, uint64_t seed);
/* The state will be put anew: what was committed is forgotten. */
ATOM_MUST atom_status train_engine_replace(train_engine *e);
/* Rounds master to the wire copy. After loading or initialising. */
ATOM_MUST atom_status train_engine_sync(train_engine *e);

/* For the engine's own files: a place in the host's memory, and the length of one micro-batch's
 * starts. */
char *train_engine_slab(train_engine *e, uint64_t offset);
uint64_t train_engine_starts_n(const train_engine *e);

/* Where micro-batch i of the next step goes: i32[B,T] each. */
void train_engine_batch(train_engine *e, uint32_t i, int32_t **tokens, int32_t **targets);

/* Where the documents of micro-batch i begin, i32[B,T] (krn_step.starts); NULL: not apart. */
int32_t *train_engine_starts(train_engine *e, uint32_t i);

typedef struct train_step_result {
    double loss; /* mean over target tokens */
    double grad_norm;
    double seconds;
    int64_t targets;
    const swap_tape *tape; /* what ran; spans of the executor are of it */
} train_step_result;

/* Forward, backward and (when its time comes) update of step `step`, from the batch places. */
ATOM_MUST atom_status train_engine_step(train_engine *e, uint32_t step, double learning_rate,
                                        train_step_result *result);
/*
 * A gradient that somebody else will use (a pool's): forward and backward over the batch places,
 * whose first is micro-batch `first` of `step`; the first n of them are run, and the others must have
 * no target. Adds the sum over their targets, not the mean, to sum[trained extent]. The plan must be
 * one for clipping, and nothing pending; the state stays as it is. result: as of a step, with the
 * norm of what was added.
 */
ATOM_MUST atom_status train_engine_gradient(train_engine *e, uint32_t step, uint32_t first,
                                            uint32_t n, float *sum, train_step_result *result);
/* Random numbers of later steps are drawn by this seed. */
void train_engine_reseed(train_engine *e, uint64_t seed);
/* Runs pending updates; afterwards master, m, v and the wire copy are those of the last step. */
ATOM_MUST atom_status train_engine_drain(train_engine *e);
/* Forward of the first n of the batch places, as one pass through the sub-models; drained first. The
 * places behind them are not looked at. */
ATOM_MUST atom_status train_engine_eval(train_engine *e, uint32_t n);
/* The losses of the last run in micro-batches [first, past), added in their order, and how many
 * targets they are of. */
double train_engine_loss(train_engine *e, uint32_t first, uint32_t past, int64_t *targets);
/* What micro-batch i's tokens lost in the last run: f32[B,T], 0 where there is no target. */
const float *train_engine_losses(train_engine *e, uint32_t i);

#endif
