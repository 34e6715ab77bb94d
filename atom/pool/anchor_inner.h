/*
 * What the files of the pool's seam share: anchor.c holds the state and does the trainer's side,
 * versions.c the member's, outer.c its arithmetic, gradients.c both sides of gradients mode. What they do with one fragment, a
 * batch, slices or marks is in parts of their own, which know nothing of this. Internal to atom/pool.
 */
#ifndef ATOM_POOL_ANCHOR_INNER_H
#define ATOM_POOL_ANCHOR_INNER_H

#include "atom/pool/anchor.h"
#include "atom/pool/fragment.h"
#include "atom/pool/ranges.h"
#include "atom/pool/store.h"

#include <pthread.h>

typedef enum pool_ask {
    POOL_ASK_NONE,
    POOL_ASKED,
    POOL_ASK_COPIED, /* live is copied out; the member makes a contribution of it */
    POOL_ASK_READY,
    POOL_ASK_EMPTY
} pool_ask;

struct pool_anchor {
    pool_anchor_config c;
    struct pool_gradients *g; /* gradients.c; NULL: parameters are averaged */
    pool_store store;
    uint64_t longest; /* fragment */

    pthread_mutex_t lock; /* of everything down to the member's part */
    bool ready, running, alone;
    uint32_t awaits; /* with so many on the roster it runs, before the trainer has looked; 0: no */
    bool given_up; /* the run ends without the versions that are left */
    uint64_t last; /* version with which it ends; 0: that all steps are made is not agreed */
    gsp_hash lineage;
    uint64_t applied;
    pool_fragment fragment[GSP_FRAGMENTS_MAX];
    pool_ask ask;
    uint64_t ask_version, asked; /* asked: counts the times */
    float *x;                    /* of ask_version when READY: the delta */
    pool_floats *sent; /* live at copy-out; NULL with slices, whose live lies in x until READY */
    uint64_t x_samples, x_tokens, sent_samples, sent_tokens;
    bool x_last;              /* x is for one of the last versions */
    uint64_t copying;         /* what asked was when a copy-out began; 0: there is none */
    uint64_t made;            /* floats of x that are the delta */
    double square;            /* of them */
    uint64_t pass_ns;         /* this pass over the masters took so long already */
    uint64_t samples, tokens; /* of the run */
    uint64_t samples_included, certified_samples;
    int64_t steps;     /* of this process */
    int64_t rewarm_to; /* steps of this process: the rate grows until then */
    pool_anchor_status status;
    atom_status broken; /* the disk failed: the member ends with its next version, and live is the
                           anchor's again when the run comes back */
    char why[512];
    float *pass_room;  /* of the trainer, a piece; NULL: the anchor is in memory */
    float *stand_room; /* of the trainer, a piece of live that stands still; NULL: it has not yet */

    /* The member's thread alone. */
    gsp_roster roster;                /* R(applied + 1) */
    uint64_t epoch, staged;           /* version being applied; 0: none */
    float *new_anchor, *new_momentum; /* in memory, or: */
    int next;                         /* pool_next_open's file; -1: none */
    pool_room room;                   /* for POOL_ROOMS pieces */
    pool_ranges ranges;               /* of the version being applied */
    pool_incoming incoming;           /* of the state being fetched */
    uint64_t epoch_highest;
};

enum { POOL_ROOMS = 4 };

/* Gradients are summed now, or from the next version on. The lock is held, or it is the member's thread. */
static inline bool pool_anchor_sums(const pool_anchor *p)
{
    return p->g && (!p->c.dense_samples || p->certified_samples < p->c.dense_samples);
}

/* It brings nothing, and nobody waits for it. The lock is held, by the member's thread. */
static inline bool pool_anchor_rests(const pool_anchor *p)
{
    return !p->running && (p->awaits == 0 || p->roster.n < p->awaits);
}

/* Certificates say that all steps of the pool are made. The lock is held. */
static inline bool pool_anchor_agreed(const pool_anchor *p)
{
    return p->c.max_samples > 0 && p->certified_samples >= p->c.max_samples && !pool_anchor_sums(p);
}

/* tier.c. Notes the failure that atom_fail told; the lock is held. */
void pool_anchor_break(pool_anchor *p, atom_status st);
/* What was made, and is in the other slot's file, becomes the fragment's; the lock is held. */
void pool_anchor_turn(pool_anchor *p, pool_fragment *f, const pool_header *header);
void pool_anchor_drop_next(pool_anchor *p);

/* outer.c. The arithmetic of a version, on the member's thread, in pieces. */
/* Some floats of x become the delta; *whole: all are. */
ATOM_MUST atom_status pool_outer_subtract(pool_anchor *p, bool *whole);
/* The version being made gets floats [first, first + n) of what follows from their average. */
ATOM_MUST atom_status pool_outer_part(pool_anchor *p, const pool_fragment *f, uint64_t first,
                                      uint64_t n, const float *average);
/* What no part came for stays as it was. */
ATOM_MUST atom_status pool_outer_gaps(pool_anchor *p, const pool_fragment *f);
/* What live has to move by: see anchor.h. mine: bit of my contribution in each part's `included`, or
 * 0. *merge NULL: by nothing. */
ATOM_MUST atom_status pool_outer_merge(pool_anchor *p, const gsp_proposal *c, uint32_t mine,
                                       pool_floats **merge);

/* passing.c; the lock is held. What fragments owe live is taken, and what was asked for is copied out,
 * in a pass over all masters, whole or in blocks: begin, before and after for each, end. */
/* true: something is taken. */
bool pool_pass_begin(pool_anchor *p);
/* Of floats [first, first + n) of the vector, which live has alone. */
void pool_pass_take(pool_anchor *p, uint64_t first, uint64_t n, float *live);
/* A copy-out begins where one is asked for. stands: live weights change no more. */
void pool_copy_begin(pool_anchor *p, bool stands);
void pool_pass_copy(pool_anchor *p, uint64_t first, uint64_t n, const float *live);
void pool_pass_end(pool_anchor *p);
/* True: there is a contribution now. False: it has to be copied out again. */
bool pool_copy_end(pool_anchor *p);

/* ending.c. The lock is held: a version, or a whole state, is the member's now. */
void pool_end_certified(pool_anchor *p);
/* The lock is held: fills in how far the pool is. */
void pool_end_status(const pool_anchor *p, pool_anchor_status *out);
/* gsp_work.hastens, and what a train_seam has of it; ctx is the anchor. */
bool pool_end_hastens(void *ctx);
bool pool_end_stands(void *ctx);
bool pool_end_done(void *ctx);
double pool_end_rate(void *ctx, const train_schedule *schedule);
ATOM_MUST atom_status pool_end_stand(void *ctx, file_vector live, bool *changed);

/* versions.c */
uint64_t pool_applied_of(const gsp_saved *saved);
void pool_lineage_of(const gsp_saved *saved, gsp_hash *out);
/* The anchor is what the member remembers; the lock is held, or nobody else is there yet. */
void pool_anchor_remember(pool_anchor *p, const gsp_saved *saved);

#endif
