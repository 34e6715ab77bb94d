/*
 * The analytic model of memory and time that the search works with: facts about ranges of nodes,
 * and what two neighbouring ranges need together. Internal to partition.
 *
 * It follows codegen's layout and tape region by region; what it cannot know (fragmentation of
 * scratch, workspace of kernels that are not here) the exact evaluation of a finished plan corrects
 * (search.c). Times are whole picoseconds, so that sums do not depend on their order and ties are
 * ties.
 *
 * Source: ATOM III-C, III-D (Figure 13); docs/design/engine.md#layer-major-order, #memory,
 * #the-search.
 */
#ifndef PARTITION_MODEL_H
#define PARTITION_MODEL_H

#include "partition/plan.h"

enum { PART_RMQ_LEVELS = 21 };

/* Facts of nodes [first, last), for one micro-batch. */
typedef struct part_range {
    int32_t first, last;
    uint64_t slot_bytes; /* wire parameters: owned ones and borrowed shared ones */
    uint64_t own_bytes;  /* trained wire parameters it owns (first use here): what it spills */
    uint64_t grad_bytes; /* fp32 accumulators of owned, unshared parameters */
    uint64_t kept_bytes; /* what its backward reads of its forward */
    uint64_t held_bytes, sent_bytes; /* of that: held on the device and on the host, where a plan
                                        keeps only some (part_range_hold) */
    uint64_t scratch_bytes;          /* most transient bytes alive at once */
    uint64_t x_bytes, y_bytes;       /* boundaries in front and behind */
    uint64_t own_elements;
    uint64_t muon_elements; /* of those: what Muon updates */
    int64_t muon_ps;        /* and for how long, on the host */
    int64_t ortho_ps;       /* and on the device, if that makes the products */
    int64_t fwd_ps;         /* forward */
    int64_t again_ps;       /* the part of forward that backward needs repeated; no terminal op */
    int64_t bwd_ps;
    int64_t again_gain_ps; /* by how much less that part of forward takes warm */
} part_range;

/* What a node adds to a range, whatever the range. */
typedef struct part_node_facts {
    uint64_t own_bytes, frozen_bytes, grad_bytes, own_elements, muon_elements;
    int64_t fwd_ps, bwd_ps, muon_ps, ortho_ps;
    uint32_t kept_first, kept_last; /* of part_model.kept */
    /* The node before that uses the same shared parameter, or -1. */
    int32_t prev_use[GRAPH_PARAM_MAX];
} part_node_facts;

/* A tensor that backward reads, filed under its first reader. */
typedef struct part_kept {
    int32_t reader, producer, tensor;
    uint64_t bytes;
} part_kept;

typedef struct part_cross {
    int32_t producer, last_use;
    uint64_t bytes;
} part_cross;

/* What holding needs to know of a node in the range that is looked at (hold.c). */
typedef struct part_mark {
    bool out_kept;  /* its output is read by backward */
    bool any_kept;  /* anything that it makes is */
    bool again;     /* backward repeats it */
    uint8_t hold;   /* in a root: a part_hold, for some.c */
    int32_t group;  /* of what is repeated for the same tensors, or -1; see part_groups() */
    uint64_t bytes; /* of what it makes and backward reads; in a root, of its whole group */
    int64_t ps;     /* in a root: to compute the group again */
} part_mark;

typedef struct part_model {
    const graph *g;
    const part_profile *profile;
    uint32_t n_points;      /* places where one may cut, 0 and n_nodes included */
    int32_t *points;        /* n_points, ascending */
    part_node_facts *nodes; /* n_nodes */
    /* n_nodes + 1: by how much less all nodes in front of node i take warm. There are so many ranges that
     * they do not say it themselves. */
    int64_t *fwd_gain_ps, *bwd_gain_ps;
    int64_t *handed_ps, *handed_gain_ps; /* likewise: backward of sums that hand their gradients
                                            on where their terms are made in the same range */
    uint64_t *boundary_bytes;            /* n_nodes + 1: bytes that cross in front of node i */
    uint64_t *peak[PART_RMQ_LEVELS];     /* range maxima of live bytes */
    uint32_t n_levels;
    part_kept *kept;       /* tensors by the first node whose backward reads them */
    part_cross *cross;     /* tensors by cut that they cross */
    uint32_t *cross_at;    /* n_nodes + 2: cross[cross_at[i]] .. crosses in front of node i */
    int32_t *skips;        /* nodes that backward of [.., i) need not repeat, by i, descending */
    int64_t *skip_ps;      /* their forward, with all in front of them in their list, */
    int64_t *skip_gain_ps; /* and by how much less that takes warm */
    uint32_t *skip_at;     /* n_nodes + 2 */
    part_mark *marks;      /* n_nodes: scratch of hold.c */
    uint64_t shared_bytes, late_bytes, norm_bytes, micro_batch_bytes, workspace_bytes;
    uint64_t extent_elements;  /* of the canonical vector */
    uint64_t trained_elements; /* of the optimizer's state */
    uint64_t muon_elements;    /* of those: what has no second moment */
    uint64_t muon_bytes;       /* of host memory for the largest of Muon's matrices */
    double muon_seconds;       /* of updates of all of them, on the host */
    bool ortho;                /* plans make Muon's products on the device: */
    uint64_t ortho_bytes;      /* what that takes there, */
    double ortho_seconds;      /* and for how long */
    double in_both, out_both;  /* bytes per second, to the device and to the host, while both run */
    bool disk;  /* plans keep the optimizer's state on disk, in blocks through a ring */
    bool ahead; /* then, and with clipping, updates may run ahead */
    bool over;  /* then gradients of boundaries have no place of their own (part_plan) */
    uint32_t ring_blocks;
    uint64_t block_elements, block_bytes, n_blocks; /* as asked for; of the largest; how many */
} part_model;

/* Borrows the graph and the profile, which must match and outlive it. */
ATOM_MUST atom_status part_model_open(const graph *g, const part_profile *profile,
                                      part_model **out);
void part_model_close(part_model **model);
/* Plans of this model keep the optimizer's state on disk. How it is cut depends on the parameters
 * alone, so that a state outlives its plan. */
void part_model_use_disk(part_model *model);
/* Plans of this model make Muon's products on the device, which must have a rate for them. */
void part_model_use_ortho(part_model *model);
/* Is a step of so many micro-batches (0: of a few) shorter that way? The host updates beside forward,
 * and only what forward does not hide is waited for; the device cannot compute anything else
 * meanwhile. */
bool part_ortho_pays(const part_model *model, uint32_t micro_batches);

/* An empty range at `first`, and the range with one more node. scratch_bytes, y_bytes and again_ps
 * are filled in by part_range_finish(), which needs the end. */
part_range part_range_begin(const part_model *m, int32_t first);
void part_range_extend(const part_model *m, part_range *r);
void part_range_finish(const part_model *m, part_range *r);
part_range part_range_make(const part_model *m, int32_t first, int32_t last);

/* For a sub-model that keeps some: takes what `holds` of its nodes says off what is repeated, and
 * fills in held_bytes and sent_bytes. */
void part_range_hold(const part_model *m, const uint8_t *holds, part_range *r);

/*
 * Fills in the marks of [first, last): which nodes are repeated together. A group is what is repeated
 * for the sake of some tensors that backward reads and for no others, so a group that is held whole
 * saves its time whatever else is held. Its root is the node i with marks[i].group == i.
 */
void part_groups(const part_model *m, int32_t first, int32_t last);
/* The root of the group that node i of that range is in. */
int32_t part_group_root(const part_model *m, int32_t i);

/* What is decided around the cuts. */
typedef struct part_setting {
    uint32_t micro_batches; /* C */
    part_keep keep; /* of all sub-models but the last; PART_KEEP_DEVICE comes later (fit.c) */
    part_place boundaries;
    bool clip;
    bool forward;      /* nothing is trained: no boundary is kept for backward, or has a gradient */
    int64_t cut_price; /* ps per KiB of a cut's boundary, to make cuts rare; 0: none */
} part_setting;

/* Times of a range under a setting: all C micro-batches, picoseconds. */
typedef struct part_times {
    int64_t fwd;
    int64_t bwd;  /* with what it repeats of forward */
    int64_t turn; /* the last sub-model's visit: forward and backward in one */
    int64_t load, load_both, spill, update;
    int64_t x_in, x_out; /* boundary in front, to the device and to the host; 0 if it stays */
    int64_t back_in;     /* what backward unstashes: X, dY and kept activations */
    int64_t y_out;       /* what forward stashes: Y and kept activations */
    int64_t y_back_out;  /* dY, which the neighbour behind stashes */
    int64_t bwd_one;     /* bwd of one micro-batch */
    int64_t least;       /* what a pair takes at least, whatever is next: fwd, bwd, and half of what
                            crosses behind for the first micro-batch */
    int64_t crossing;    /* what every pair with this range as the second waits for: a visit begins
                            when the first micro-batch of its boundary has gone out and come back;
                            half of that is done while the visit before it ends */
} part_times;
part_times part_range_times(const part_model *m, const part_setting *s, const part_range *r);
/* What computing takes at least, picoseconds, in fwd, bwd and turn, the rest 0: all micro-batches but
 * the first are warm. Of two ranges that follow each other it is never more than of both as one. */
part_times part_range_least(const part_model *m, const part_setting *s, const part_range *r);

/* Device bytes that do not depend on cuts (for more than one sub-model). */
uint64_t part_fixed_bytes(const part_model *m, const part_setting *s);
static inline uint64_t part_larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* How often the device has room for each of the boundaries of two neighbours. */
static inline uint64_t part_boundary_places(const part_setting *s)
{
    if (s->forward)
        return s->boundaries == PART_ON_HOST ? 2 : s->micro_batches;
    /* On the device every boundary of the plan has C places more; those of this pair are counted
     * here. */
    return s->boundaries == PART_ON_HOST ? 4 : 2 * (uint64_t)s->micro_batches;
}

/* Device bytes of two neighbours together, without fixed bytes and without boundaries of other
 * cuts; the predicate of Algorithm 1: fixed + pair <= capacity. `last`: next ends the
 * graph. */
static inline uint64_t part_pair_bytes(const part_setting *s, const part_range *cur,
                                       const part_range *next, bool last)
{
    uint64_t sets = s->keep == PART_KEEP_HOST ? 2 : 1;
    uint64_t kept = part_larger(cur->kept_bytes * sets, next->kept_bytes * (last ? 1 : sets));
    return cur->slot_bytes + next->slot_bytes + part_larger(cur->grad_bytes, next->grad_bytes) +
           cur->own_bytes + next->own_bytes + kept +
           part_larger(cur->scratch_bytes, next->scratch_bytes) +
           part_boundary_places(s) * (cur->x_bytes + next->x_bytes);
}

/* Of that, what never falls when next grows, as long as that does not end the graph: once it is too
 * much, longer ranges are too. */
static inline uint64_t part_pair_rising_bytes(const part_setting *s, const part_range *cur,
                                              const part_range *next)
{
    part_range low = *next;
    low.scratch_bytes = 0; /* may fall: what goes out of a range is not counted in it */
    return part_pair_bytes(s, cur, &low, false);
}

/* Is all that moves while the two compute hidden at this C (forward: the load of next; backward: the
 * load of cur and the spill of next)? */
bool part_pair_hides(const part_times *cur, const part_times *next, bool last);
/* Picoseconds: forward and backward of cur, and stalls between the two. first: what begins and ends
 * a step is added as well. */
int64_t part_pair_ps(const part_setting *s, const part_times *cur, const part_times *next,
                     bool first, bool last);
/* What of that does not depend on next: never more than part_pair_ps(). */
int64_t part_range_least_ps(const part_times *cur, bool first);
/* Picoseconds of the last sub-model's visit. */
int64_t part_turn_ps(const part_times *last);

/* Judges a whole plan by the model: memory, step time, bound (estimate.c). */
void part_estimate(const part_model *m, const part_plan *plan, part_verdict *verdict);
/* Bytes of the optimizer's state of so many elements, of which so many are Muon's. */
static inline uint64_t part_state_bytes(const part_model *m, uint64_t elements, uint64_t muon)
{
    return elements * atom_state_bytes(m->g->moments) - muon * atom_dtype_bytes(m->g->moments);
}
/* Seconds to read and write that many bytes of state, both at once. */
double part_disk_seconds(const part_device *d, double bytes);
/* Host bytes that every plan needs: master, moments, wire copy, tokens, windows of files
 * (estimate.c). */
uint64_t part_host_base_bytes(const part_model *m, uint32_t micro_batches);

#endif
