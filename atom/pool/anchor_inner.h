/*
 * What the parts of the pool's seam share: anchor.c holds the state and does the trainer's side,
 * versions.c the member's, marks.c what checkpoints say. Internal to
 * atom/pool.
 */
#ifndef ATOM_POOL_ANCHOR_INNER_H
#define ATOM_POOL_ANCHOR_INNER_H

#include "atom/pool/anchor.h"
#include "atom/pool/ranges.h"
#include "atom/pool/store.h"

#include <pthread.h>

typedef enum pool_ask { POOL_ASK_NONE, POOL_ASKED, POOL_ASK_READY, POOL_ASK_EMPTY } pool_ask;

typedef struct pool_fragment {
    uint64_t first, n;
    float *anchor, *momentum;
    uint64_t version; /* that is in anchor */
    gsp_hash hash;    /* of anchor */
    uint32_t slot;    /* of its files: holds version */
    uint64_t merged;  /* version that is in live */
    float *merge;     /* to be added to live; NULL: nothing */
    bool replace;     /* live becomes the anchor instead */
    bool left;        /* nobody reads it in live: it may change */
    uint64_t tokens_included;
    /* Slices: parts of so many floats that the anchor is to be written over in live. */
    uint64_t over_stride; /* 0: none */
    uint32_t over[GSP_PARTS_MAX / 32];
    uint64_t over_samples; /* of the run, at the copy-out */
} pool_fragment;

typedef struct pool_gradients pool_gradients;

struct pool_anchor {
    pool_anchor_config c;
    pool_gradients *g; /* NULL: parameters are averaged */
    pool_store store;
    uint64_t longest; /* fragment */

    pthread_mutex_t lock; /* of everything down to the member's part */
    bool ready, running;
    gsp_hash lineage;
    uint64_t applied;
    pool_fragment fragment[GSP_FRAGMENTS_MAX];
    pool_ask ask;
    uint64_t ask_version;
    float *x, *sent; /* of ask_version when READY: the delta, and live at copy-out */
    uint64_t x_samples, x_tokens, sent_samples, sent_tokens;
    uint64_t samples, tokens; /* of the run */
    uint64_t samples_included, certified_samples;
    int64_t steps;     /* of this process */
    int64_t rewarm_to; /* steps of this process: the rate grows until then */
    pool_anchor_status status;

    /* The member's thread alone. */
    gsp_roster roster;      /* R(applied + 1) */
    uint64_t epoch, staged; /* version being applied; 0: none */
    float *new_anchor, *new_momentum;
    pool_ranges ranges; /* of the version being applied */
    int write_fd;       /* of the state being fetched; -1 */
    uint32_t write_fragment;
    uint64_t write_version[GSP_FRAGMENTS_MAX];
    uint64_t epoch_highest;
};

/* slices.c. The lock is held. */
/* The version in `c` is in f's anchor: notes where it has to be written over live. mine: as in
 * fill_merge. */
void pool_slices_note(pool_anchor *p, pool_fragment *f, const gsp_proposal *c, uint32_t mine);
/* Writes it. to: live, from f's first float. */
void pool_slices_write(pool_anchor *p, pool_fragment *f, float *to);
/* Floats of a part of a round over n floats: the last ones may be shorter, or empty. */
uint64_t pool_part_stride(const gsp_proposal *c, uint64_t n);

/* versions.c */
void pool_roster_of(const gsp_saved *saved, gsp_roster *out);
void pool_lineage_of(const gsp_saved *saved, gsp_hash *out);
uint64_t pool_certified(const pool_anchor *p, const gsp_proposal *c);

/*
 * gradients.c: the state of a sum, and what makes a step of it. Behind the fragment's m lie v,
 * the sum, and a few words that say which micro-batches it is of.
 */
typedef struct pool_batch {
    uint64_t steps;   /* that are in the weights */
    uint64_t tokens;  /* of the sum */
    uint32_t brought; /* members of R(applied + 1) that brought something to the newest version */
    uint32_t n_open;  /* micro-batches that are not in the sum */
    uint32_t open[POOL_MICRO_BATCHES_MAX / 32]; /* bits */
} pool_batch;

struct pool_gradients {
    pool_update u;
    pthread_cond_t moved;    /* with the pool's lock: something of the following changed */
    bool applying;           /* the weights are being changed */
    uint64_t changes, taken; /* of the weights; those that the trainer has */
    pool_batch batch;        /* as the state says */
    pool_batch next;         /* being made: the member's thread alone, as the three after it */
    double next_norm, next_rate;
    uint32_t done[POOL_MICRO_BATCHES_MAX / 32];
    uint32_t *list, *mine; /* room for a lease; the lease of x */
    uint32_t n_mine;
    uint64_t steps; /* that x is for */
    bool have;      /* x is whole */
    uint64_t x_tokens;
    double grad_norm, rate; /* of the newest step */
};

ATOM_MUST atom_status pool_gradients_open(pool_anchor *p);
void pool_gradients_close(pool_anchor *p);
/* Floats behind the n of the anchor. */
uint64_t pool_gradients_outer(const pool_gradients *g, uint64_t n);
/* What the state of step 0 has there. */
void pool_gradients_begin(pool_anchor *p);
/* The state was replaced: reads the batch from it. ATOM_E_FORMAT where that is of another run. */
ATOM_MUST atom_status pool_gradients_read(pool_anchor *p);
uint64_t pool_gradients_samples(const pool_anchor *p);
/* The lock is held. The run is at its end, and the trainer has its weights. */
bool pool_gradients_over(const pool_anchor *p);
/* All member's thread. */
uint64_t pool_gradients_ready(void *context, uint64_t version);
gsp_freeze pool_gradients_freeze(pool_anchor *p, uint64_t version, const float **x,
                                 uint64_t *tokens, uint64_t *samples);
void pool_gradients_part(pool_anchor *p, uint64_t first, const float *x, uint64_t n);
ATOM_MUST atom_status pool_gradients_apply(pool_anchor *p, const gsp_proposal *c);
/* While the state is replaced nobody takes it. */
void pool_gradients_hold(pool_anchor *p, bool hold);
void pool_gradients_seam(train_seam *seam);

/* marks.c: the lock is held. */
char *pool_marks_text(const pool_anchor *p);

#endif
