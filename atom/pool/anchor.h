/*
 * What a trainer holds of a pool (docs/design/pool.md#what-is-averaged, #what-a-member-holds): the
 * anchor and its outer momentum, in fragments, in memory and on disk; and the seam between a run
 * that never waits and a member that averages (gossip/member/node.h, whose gsp_work this is).
 *
 *   version v concerns fragment v % n_fragments, a range of the canonical vector (file/vector.h)
 *   copy-out   delta = anchor - live, where the masters stand still after an update
 *   outer      momentum = mu momentum + delta;  anchor -= lr (delta + mu momentum)   (Nesterov; the
 *              average of the members' deltas is `delta`), as in Streaming DiLoCo (2501.18512)
 *   merge      live += (1 - mix) (anchor - live at copy-out), before the next update, which rounds
 *              the wire copy anew; where this member's contribution was not included, live moves as
 *              the anchor did and keeps its own steps for the next time
 *   end        all steps are made: live stands still, each fragment has one more version, and its
 *              anchor becomes the average of live (ending.c)
 *
 * Slices (`--sync slices`; Presser, Swarm Training, section 3): a session's parameters are read,
 * averaged and written back, a slice of the model at a time, again and again, while it trains. What
 * training did to that slice meanwhile is lost (footnote 2 there); Adam's moments are left alone
 * (the 5.8 GB of a 1.5B model are its parameters). A slice is any subset; Presser's is a layer,
 * ours a fragment, which is about that. So
 *
 *   outer      anchor -= delta: the average of the members' weights. There is no momentum, neither
 *              in memory nor on disk nor for joiners
 *   write      live = anchor + mix (live - anchor), in the parts that this member's contribution is
 *              in together with another's; without its own, live moves as the anchor did, so steps
 *              that nobody read are not lost; alone it goes on undisturbed
 *
 * All members compute the outer step with the same operations in the same order (no contraction),
 * so equal averages give equal bits. Adam's moments stay private.
 *
 * With on_disk anchor and momentum stay in those files, and so does what is made of them: a piece of a
 * fragment is read where it is needed. Of a version x alone is in memory. The bits are the same.
 *
 * On disk, in one directory: fragment-F.0 and fragment-F.1 in turn, each with its epoch, version,
 * lineage and hash; a restart takes for every fragment the newest that is not newer than what the
 * member remembers as applied. An epoch is a state that was fetched whole.
 *
 * Threads: pool_anchor_work's functions on the member's thread; those of the seam on the trainer's
 * (copy-out and merge on the optimizer's stream, while the trainer's thread waits for its step);
 * the rest from one thread before both, pool_anchor_read_status from any.
 */
#ifndef ATOM_POOL_ANCHOR_H
#define ATOM_POOL_ANCHOR_H

#include "atom/file/vector.h"
#include "atom/pool/batch.h"
#include "atom/train/trainer.h"
#include "gossip/member/node.h"
#include "kernels/kernels.h"
#include "swap/exec.h"

typedef struct pool_anchor pool_anchor;

/* The last two are no choices of their own: parameters after steps with summed gradients (dense_samples);
 * gradients with delayed updates. */
typedef enum pool_sync {
    POOL_SYNC_PARAMETERS,
    POOL_SYNC_GRADIENTS,
    POOL_SYNC_SLICES,
    POOL_SYNC_DENSE_FIRST,
    POOL_SYNC_DELAYED
} pool_sync;

/*
 * What makes a step of the members' gradients (`--sync gradients`,
 * docs/design/pool.md#what-is-averaged, #agreement; ATOM III-E). Then there is one fragment, live
 * is the anchor, and a version adds what its contributors brought:
 *
 *   batch k   micro-batches k C .. k C + C - 1 of the run's sample order, C = micro_batches
 *   lease     those of them that are not summed yet, in runs of equal length (+- 1), by rank among
 *             the members of R(v) that brought something to v - 1, or among all where the batch is
 *             fresh or nobody did. It follows from certificates alone: nobody hands it out
 *   brings    the mean gradient of its lease in fp32, weight: its target tokens
 *   version   sum += tokens x average; tokens += ...; its contributors' micro-batches are done.
 *             Void, and everybody brings its own again, where the parts differ in contributors
 *   step      when all C are done: gradient = sum / tokens, clipped by its norm, AdamW; with Muon
 *             its matrices by that (kernels.h fixes its bits on every machine)
 *
 * Delayed (`delayed_updates`; SWARM's delayed parameter updates): members compute batch k + 1 while batch
 * k is summed. So the gradient of a batch is taken at the weights before the newest step, always: batch
 * 0 and batch 1 at those of the beginning, batch k at those that batch k - 2 left. What is still open of
 * a batch when somebody died is taken there, too. These weights are in the agreed state as well.
 *
 * So a step is of exactly C micro-batches whoever comes, goes or dies, and one trainer that makes
 * the same batches alone learns the same up to rounding. All members compute it with the same
 * operations on the same bits. Moments, sum and what is done are in the agreed state.
 */
typedef struct pool_update {
    train_schedule schedule;
    double beta1, beta2, epsilon, weight_decay, max_grad_norm; /* the last 0: not clipped */
    double muon_momentum;                                      /* of params with matrices */
    uint32_t micro_batches;                                    /* C, of all members together */
    uint64_t micro_batch;                                      /* samples */
    uint64_t schedule_batch; /* samples of a step of the schedule; 0: of one of these */
    bool delayed;
    bool robust;    /* pool_batch.robust */
    bool returns;   /* pool_batch.returns */
    bool passes_on; /* pool_batch.passes_on */
    const swap_param *params; /* borrowed, while a member runs */
    uint32_t n_params;
    const krn_host_table *host; /* what computes; borrowed likewise */
    atom_threads *threads;
    train_products *products; /* what makes Muon's products; NULL: host does. Borrowed likewise */
} pool_update;

/* What a run's configuration says, for a batch of C micro-batches; borrows from the trainer. */
void pool_update_of(const trainer *t, uint32_t micro_batches, pool_update *out);

typedef struct pool_anchor_config {
    const char *directory; /* of the fragments' files; made if needed; copied */
    gsp_key self;
    uint64_t n_floats; /* of the canonical vector */
    uint32_t n_fragments;
    double outer_learning_rate, outer_momentum, mix;
    /* The schedule: a pool trains max_samples in all, batch of them are one step of it. */
    uint64_t batch, max_samples, tokens_per_sample; /* 0: not known */
    uint64_t round_samples;    /* of one member, from one average of a fragment to the next */
    int64_t max_steps;         /* of this member, in this process; 0: as long as the pool */
    int64_t rewarm_steps;      /* of a member whose moments start at zero in a pool that trains */
    const pool_update *update; /* gradients are summed; NULL: parameters. Copied */
    /* With update: gradients are summed until so many samples are certified, then parameters are
     * averaged (docs/design/pool.md#dense-steps). 0: gradients to the end. */
    uint64_t dense_samples;
    bool slices;  /* parameters' averages are written over live; outer_* are of no meaning */
    bool on_disk; /* anchor and momentum are not held in memory; not with dense_samples */
    uint64_t piece_floats; /* that are read from it at once; 0: POOL_PIECE_FLOATS */
} pool_anchor_config;

/* How many fragments a vector has when `wanted` are asked for: none is shorter than a block. */
uint32_t pool_fragments(uint64_t n_floats, uint32_t wanted);
/* Floats [*first, *first + n) of the vector are fragment f; returns n. */
uint64_t pool_fragment_range(uint64_t n_floats, uint32_t n_fragments, uint32_t f, uint64_t *first);
/* Host memory that it takes beside the trainer and the member, and what it keeps on disk. */
uint64_t pool_anchor_host_bytes(uint64_t n_floats, uint32_t n_fragments, pool_sync sync,
                                bool on_disk);
uint64_t pool_anchor_disk_bytes(uint64_t n_floats, uint32_t n_fragments, pool_sync sync,
                                bool on_disk);
/* Floats of the longest fragment. */
uint64_t pool_longest(uint64_t n_floats, uint32_t n_fragments);
/* What a joiner fetches, nearly. */
uint64_t pool_anchor_state_bytes(uint64_t n_floats, pool_sync sync);
/* A hash over the vector by fragments: what the manifest says of the genesis anchor. */
ATOM_MUST atom_status pool_anchor_hash(file_vector weights, uint64_t n_floats, uint32_t n_fragments,
                                       gsp_hash *out);

/* Errors  ATOM_E_RESOURCE  memory, disk; ATOM_E_USAGE  numbers out of bounds */
ATOM_MUST atom_status pool_anchor_open(const pool_anchor_config *config, pool_anchor **out);
void pool_anchor_close(pool_anchor **pool);

/* ---- where the anchor comes from: one of the three, before the member starts ---- */

/* The creator: version 0 is `weights`, momentum is zero. On disk when it returns. */
ATOM_MUST atom_status pool_anchor_begin(pool_anchor *pool, file_vector weights);
/*
 * A restart: as the member remembers (gsp_votes_saved).
 * Errors  ATOM_E_FORMAT  the files are not there, damaged or older: fetch the state anew (forget
 *         the member's memory, gsp_votes_forget)
 */
ATOM_MUST atom_status pool_anchor_restore(pool_anchor *pool, const gsp_saved *saved);
/* A joiner: nothing; pool_anchor_ready says when the member has brought the state. */
bool pool_anchor_ready(pool_anchor *pool);

/* The member's side, its n_state filled in. */
void pool_anchor_work(pool_anchor *pool, gsp_work *work);

/* ---- the trainer's side ---- */

/*
 * Before the first step. live: master weights of the run (train_engine_sync afterwards).
 * marks: of the checkpoint that live comes from (pool_anchor_marks), or NULL. Fragments that are
 * not as the marks say become the anchor's; with NULL, all. samples, tokens: of the run so far.
 */
ATOM_MUST atom_status pool_anchor_attach(pool_anchor *pool, file_vector live, const char *marks,
                                         uint64_t samples, uint64_t tokens);
/* What the trainer calls (trainer.h); the pool must outlive the trainer. */
train_seam pool_anchor_seam(pool_anchor *pool);
/* Steps run (true) or stand (false: nothing is brought to rounds). */
void pool_anchor_running(pool_anchor *pool, bool running);
/* Steps stand until n members are on the roster, and run from then on, also before the trainer has looked: a
 * sum waits for it. Until the next pool_anchor_running(true); 0: they stand for another reason. */
void pool_anchor_awaits(pool_anchor *pool, uint32_t n);
/* Too few members are here to certify anything. Steps that this member makes by itself then do not end
 * the run: when all are made it waits (pool_anchor_status.waits) until others are here or it goes on
 * as a pool of its own. */
void pool_anchor_alone(pool_anchor *pool, bool alone);
/* The run ends now, although not each fragment was averaged once more after its last step
 * (docs/design/pool.md#the-last-average). */
void pool_anchor_give_up(pool_anchor *pool);

typedef struct pool_anchor_status {
    bool ready;
    uint64_t applied;           /* newest version in the anchor */
    uint64_t included, merged;  /* own contributions in the anchor; merges into live */
    uint64_t copied;            /* copy-outs */
    uint64_t certified_samples; /* of the pool */
    uint64_t own_samples;       /* not yet certified */
    uint64_t pool_step, max_steps; /* pool_step counts own_samples too */
    uint64_t certified_step;       /* this does not */
    /* The run is over: certificates say that all steps are made, and nothing is left to average, or the
     * member gave that up. What it counts alone ends nothing. */
    bool done;
    bool sums; /* the next step is made of gradients that are summed: by a quorum only */
    /* All steps are made, but those of own_samples are in no version, and it is alone. */
    bool waits;
    /* All steps are made, and no more are: each fragment is averaged once more. agreed: certificates say
     * so; then so many versions are left. */
    bool stands, agreed;
    uint64_t left_versions;
    /* Fragments whose newest version lacks some of this member's steps. */
    uint32_t lacking;
    double seam_seconds;      /* the optimizer's stream spent in copy-out and merge, in all */
    double delta_norm;        /* of the last copy-out */
    gsp_hash anchor;          /* over all fragments' anchors: equal on all that applied the same */
    uint64_t wait_longest_ns; /* the longest that one copy-out or merge took */
    uint64_t void_versions;   /* gradients: brought nothing because contributions were torn */
    double wait_seconds;      /* gradients: the trainer waited for the others, in all */
    double lost_samples;      /* slices: own samples whose steps were written over */
} pool_anchor_status;
/* anchor is hashed only where with_hash (it reads all of it). */
void pool_anchor_read_status(pool_anchor *pool, bool with_hash, pool_anchor_status *out);

/* Text of a checkpoint's pool.json: what of the pool is in the live weights now. atom_free.
 * Source: docs/design/pool.md#what-a-member-holds. */
char *pool_anchor_marks(pool_anchor *pool);

#endif
