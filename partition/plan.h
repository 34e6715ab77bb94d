/*
 * A plan: where to cut the model, what is kept where, and what that will cost. partition/search
 * makes it, partition/check proves it legal, codegen lowers it. A plan never changes the mathematics
 * (docs/design/engine.md#the-same-bits).
 *
 * Source: ATOM III-C, III-D (Figure 13, Algorithm 1); docs/design/engine.md#layer-major-order,
 * #memory, #the-search.
 */
#ifndef PARTITION_PLAN_H
#define PARTITION_PLAN_H

#include "partition/profile.h"

/* What a sub-model other than the last does about the activations its backward needs. */
typedef enum part_keep {
    PART_RECOMPUTE,   /* forward again, from the stashed boundary */
    PART_KEEP_DEVICE, /* keep all micro-batches' activations on the device */
    PART_KEEP_HOST,   /* stash them to pinned host memory and bring them back */
    PART_KEEP_SOME    /* node by node: part_plan.holds says which are kept and where */
} part_keep;

/* With PART_KEEP_SOME: what happens to the part of a node's forward that backward reads. */
typedef enum part_hold {
    PART_AGAIN,       /* computed again */
    PART_HOLD_DEVICE, /* kept on the device, for all micro-batches */
    PART_HOLD_HOST    /* stashed to the host and brought back */
} part_hold;

typedef enum part_place { PART_ON_DEVICE, PART_ON_HOST } part_place;

typedef enum part_bound {
    PART_BOUND_COMPUTE, /* loading is hidden */
    PART_BOUND_LINK,
    PART_BOUND_OPTIMIZER,
    PART_BOUND_DISK,
    PART_BOUND_HOST_MEMORY,
    PART_BOUND_DEVICE_MEMORY,
    PART_BOUND_N
} part_bound;
extern const char *const part_bound_names[PART_BOUND_N]; /* "compute", "link", ... */
const char *part_bound_name(part_bound bound);
extern const char *const part_optimizer_names[2]; /* of graph_optimizer: "adamw", "muon" */

typedef struct part_sub_model {
    int32_t first_node, last_node; /* [first, last) */
    uint64_t param_bytes;          /* wire bytes it needs on the device, shared parameters included,
                                      each rounded up to GRAPH_PARAM_ALIGN elements */
    part_keep keep;                /* the last sub-model ignores it: its visit is a turn visit */
    bool resident;                 /* has its own slot: fetched once per step, not twice */
} part_sub_model;

enum { PART_DEVICES_MAX = 8 };

typedef struct part_plan {
    uint64_t graph_hash;
    char model[GRAPH_NAME_MAX];
    char device[64];
    atom_dtype dtype, moments; /* of the wire; of Adam's moments, in files where not fp32 */
    graph_optimizer optimizer; /* in files where not AdamW */
    int64_t micro_batch, sequence;
    uint32_t micro_batches; /* C; train refuses another (docs/design/engine.md#words) */
    uint32_t devices;       /* that share the micro-batches; in files where not 1 */
    bool in_place;          /* unified device without a budget: one sub-model, nothing is copied */
    bool clip;              /* updates wait for the global norm */
    part_place boundaries;  /* where stashed boundaries and their gradients live */
    bool update_on_device;  /* AdamW and its state are there too: one sub-model, with clip */
    /* Muon's products are made there, all else of it on the host; with clip. */
    bool ortho_on_device;
    bool disk; /* master weights and moments live on disk (docs/design/engine.md#state-on-disk) */
    /* With disk: gradients of stashed boundaries lie over these, as they always do without. */
    bool over_boundaries;
    uint32_t ring_blocks;    /* of them that are in host memory at once; with disk only */
    uint64_t block_elements; /* of the canonical vector; with disk only */
    uint32_t n_sub_models;
    part_sub_model *sub_models;
    uint8_t *holds; /* a part_hold per node up to the last; NULL: no sub-model keeps only some */
    uint64_t device_budget_bytes, host_budget_bytes; /* 0: none */

    /* predictions */
    /* The smallest C whose step gets PART_NEARLY_ALL of the tokens per second that any C gets; in
     * place 1. The model says both rates, for its best plans; 0: nothing moves, or nothing fits. */
    uint32_t recommended_micro_batches;
    double recommended_tokens_per_second, most_tokens_per_second;
    double predicted_step_seconds;
    double predicted_compute_seconds; /* lower bound: compute alone */
    double least_step_seconds;        /* no plan for this C can take less: compute with nothing
                                         repeated, updates and copies of all parameters, whichever
                                         takes longest; 0: unknown */
    double muon_seconds;              /* of a step: Muon's products where they are made, and on the
                                         host all of Muon; 0: nothing is trained by it */
    bool simulated;                   /* the step was run in virtual time; else it is the model's */
    double predicted_ahead_seconds;   /* of a step whose updates run ahead, as none is clipped; 0:
                                       unknown, or they cannot */
    part_bound bound;
    uint64_t device_peak_bytes, host_peak_bytes;
    uint64_t cut_bytes; /* sum of boundary bytes over the cuts, one micro-batch */
} part_plan;

/* profile: of this graph, whose hash the plan takes. */
ATOM_MUST atom_status part_plan_open(const graph *g, const part_profile *profile,
                                     uint32_t n_sub_models, part_plan **out);
/* What plans are chosen by: of the two predictions of a step the smaller one that is known. */
static inline double part_plan_seconds(const part_plan *plan)
{
    double ahead = plan->predicted_ahead_seconds, step = plan->predicted_step_seconds;
    return ahead > 0 && ahead < step ? ahead : step;
}
#define PART_NEARLY_ALL 0.95
static inline double part_plan_tokens_per_second(const part_plan *plan)
{
    double tokens = (double)plan->micro_batches * (double)(plan->micro_batch * plan->sequence);
    double seconds = part_plan_seconds(plan);
    return seconds > 0 ? tokens / seconds : 0;
}
/* Would the recommended C train notably faster (by a tenth) than the plan's own? */
static inline bool part_plan_wants_more(const part_plan *plan)
{
    return plan->recommended_micro_batches > plan->micro_batches &&
           plan->recommended_tokens_per_second > 1.1 * part_plan_tokens_per_second(plan);
}
/* Makes room for holds, all PART_AGAIN; the sub-models must be filled in. */
ATOM_MUST atom_status part_plan_open_holds(part_plan *plan);
/* Would a sub-model keep something if it held this node of its range: does its backward read what the
 * node's forward makes? */
bool part_can_hold(const graph *g, const part_sub_model *s, int32_t node);
ATOM_MUST atom_status part_plan_copy(const part_plan *plan, part_plan **out);
void part_plan_close(part_plan **plan);

/*
 * What an evaluation leaves in its slots for the next one, where nothing is trained. Slots are those of
 * codegen/layout.c: resident sub-models have one of their own; of the others those with even numbers lie
 * at the bottom of a ring, those with odd ones at its top.
 */
typedef struct part_slots {
    uint64_t ring_bytes;
    uint64_t most_bytes[2]; /* of one sub-model at the bottom, and at the top */
    uint32_t n[2];          /* sub-models with parameters there */
} part_slots;
part_slots part_plan_slots(const part_plan *plan);
/* Is sub-model k still there? No other is where it was. */
bool part_slots_keep(const part_slots *slots, const part_plan *plan, uint32_t k);
/* Bytes of parameters that an evaluation after another one fetches. */
uint64_t part_plan_fetched_bytes(const part_plan *plan);

/* JSON, versioned ("atom_plan": 1). There, and only there, "last_node" is inclusive. Reading checks
 * types and ranges, and that the sub-models follow each other; part_plan_check does the rest. */
ATOM_MUST atom_status part_plan_write(const part_plan *plan, const char *path);
ATOM_MUST atom_status part_plan_read(const char *path, part_plan **out);
ATOM_MUST atom_status part_plan_json(const part_plan *plan, char **text);
/* Whether a plan may take this place (atom_file_check_place): what is asked for before the search. */
ATOM_MUST atom_status part_plan_check_place(const char *path);

/* check.c: structure only: ranges cover the graph once and in order, cuts are legal, numbers sane
 * and within the plan's own budgets. ATOM_E_USAGE says what is wrong. */
ATOM_MUST atom_status part_plan_check(const part_plan *plan, const graph *g);
/* The part of it that needs no graph: choices that exclude each other, and sizes beyond the budgets. */
ATOM_MUST atom_status part_plan_check_alone(const part_plan *plan);

/*
 * blocks.c: where the canonical vector is cut into blocks of a state on disk, from the parameters
 * and the size that a plan asks for alone (docs/design/engine.md#state-on-disk): with AdamW every
 * so many elements; with Muon at the first place behind so many that is not inside of a matrix.
 *
 * A walk over the blocks in their order: {.g, .each}, the rest 0; then call next until it is false.
 */
typedef struct part_blocks {
    const graph *g;
    uint64_t each;       /* elements that are asked for */
    uint64_t first, end; /* the block: elements [first, end) of the trained ones */
    uint64_t seconds;    /* those of them that have a second moment: all but matrices */
    uint32_t param;      /* where the walk is */
} part_blocks;
bool part_blocks_next(part_blocks *walk);

/* What the largest of them takes, bytes: master, momentum and second moments, each in whole sectors.
 * *n: how many blocks there are. */
uint64_t part_blocks_largest(const graph *g, uint64_t each, uint64_t *n);

/* Host bytes beside what the plan lays out, which reading and writing model files may take: windows
 * of large files (swap/stream.h, swap/writer.h). The caller that opens one asks whether it still
 * fits, and else reads the plain way. 0 for models whose files are all small. */
enum { PART_WINDOW_BYTES = 16 << 20, PART_WINDOW_ELEMENTS_MIN = 8 << 20 };
uint64_t part_window_bytes(const graph *g);

/* Host bytes beside those that a plan needs, for snapshots of its state in memory (swap/cow.h):
 * half of what the budget leaves over, at most the state; where there is no budget, an eighth of
 * the state. trained: elements of the canonical vector that have a state. */
uint64_t part_spare_bytes(const part_plan *plan, uint64_t trained);

/* What evaluating a plan exactly says (codegen lays it out, the null device runs it). */
typedef struct part_verdict {
    uint64_t device_peak_bytes, host_peak_bytes;
    double step_seconds;    /* simulated, steady state; 0: too long for that, only memory is said */
    double ahead_seconds;   /* the same while updates run ahead; 0: they cannot */
    double compute_seconds; /* compute stream's busy time */
    double h2d_seconds, d2h_seconds, host_seconds; /* busy times */
    part_bound bound;
} part_verdict;
typedef atom_status (*part_evaluate_fn)(void *ctx, const part_plan *plan, part_verdict *verdict);

typedef struct part_request {
    /* 0: all of the device (no budget on a unified device: in place). */
    uint64_t device_budget_bytes;
    uint64_t host_budget_bytes; /* 0: what the profile's device says */
    uint64_t host_hold_bytes;   /* up to which a plan on disk may hold blocks of the state in memory
                                   that it need not; 0: it does not */
    uint32_t micro_batches;     /* C; 0: recommend one and use it */
    bool no_advice; /* with a C: no other is recommended, which takes most of a search */
    bool no_needs;  /* a refusal need not find out what would be enough, which takes most of it */
    bool clip;
    bool update_on_device; /* allowed where it fits and pays */
    bool ortho_on_device;  /* likewise */
    int recompute;         /* -1 free choice, 0 never, 1 always */
    int disk;              /* the optimizer's state on disk: -1 where it must, 0 never, 1 always */
    bool ahead; /* with clip and on disk: updates may run ahead (swap/tape.h), so judge by that */
    part_evaluate_fn evaluate;
    part_evaluate_fn weigh; /* the same for memory alone, which is quick; NULL: evaluate does it */
    void *evaluate_ctx;     /* of both */
} part_request;

typedef struct part_search_stats {
    uint64_t states;      /* (current, next) range pairs that were explored */
    uint32_t evaluated;   /* plans that were simulated */
    uint64_t needs_bytes; /* what a refusal asks for of the device; 0: it asks for something else */
    bool host_holds;      /* a refusal: and no plan that was looked at took too much of the host */
    double seconds;
} part_search_stats;

/*
 * passes.c: the best plan, or ATOM_E_RESOURCE with the bytes missing and what would make it fit.
 * Exact about cuts: dynamic programming over (current range, next range) explores the space of
 * Algorithm 1 under one predicate (search.h).
 */
ATOM_MUST atom_status part_search(const graph *g, const part_profile *profile,
                                  const part_request *request, part_plan **out,
                                  part_search_stats *stats);

#endif
