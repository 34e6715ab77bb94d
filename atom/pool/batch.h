/*
 * A batch of gradients mode (docs/design/pool.md#what-is-averaged): which micro-batches of a step are
 * summed, whose turn the others are, and what a certificate adds to it. All of it follows from the
 * agreed state, the roster and the certificate, so every member finds the same. Pure; the caller locks.
 */
#ifndef ATOM_POOL_BATCH_H
#define ATOM_POOL_BATCH_H

#include "atom/pool/share.h"
#include "gossip/agree/types.h"

enum { POOL_MICRO_BATCHES_MAX = 1 << 16, POOL_SHARES_MAX = 2 * GSP_MEMBERS_MAX };

typedef struct pool_batch {
    uint32_t n;           /* micro-batches of a step; this and the next five are the run's */
    uint64_t micro_batch; /* samples */
    uint64_t max_samples; /* of the run; 0: it has no end */
    /* The share of a member that stood still returns quickly, and newcomers have a whole one (share.h). */
    bool returns;
    /* If nobody brings anything to three versions in a row, shares do not count until the batch is made: all
     * are leased one micro-batch, and after each version that somebody contributed to twice as many. Of
     * fewer than there are members, these have turns of three versions without contributions. So
     * somebody who does not rest is asked soon, however small its share, and whoever comes back has to
     * wait for no more than what a slow one was leased last. */
    bool passes_on;
    /* Members compute the batch after this one, too, while this one is summed. What each has of it
     * follows from shares until something of this one is summed; then it stays planned, until something
     * of that batch is summed in its turn. */
    bool delayed;
    /* Sums are clipped (docs/design/pool.md#gradients-among-strangers): everybody on the roster has a
     * micro-batch at least, whoever is muted has no more, and one version makes a step. What it does not
     * bring is left out of it. */
    bool robust;
    uint64_t steps;  /* that are in the weights; this and the rest are the agreed state's */
    uint64_t tokens; /* of the sum */
    uint32_t n_open; /* micro-batches that are not in the sum */
    uint32_t empty;  /* passes_on: versions of this batch in a row that nobody contributed to, or from
                        three on since turns began */
    uint32_t grown;  /* ... versions that somebody contributed to since */
    /* By key: those on the roster of the newest certificate, then those that left it, the last first.
     * Of whoever is not among them nothing is known (pool_share_first). */
    uint32_t n_shares;
    pool_share share[POOL_SHARES_MAX];
    uint32_t open[POOL_MICRO_BATCHES_MAX / 32]; /* bits */
} pool_batch;

/* Nothing of it is summed yet. */
void pool_batch_begin(pool_batch *b);
/* Samples whose micro-batches are summed, of the whole run. */
uint64_t pool_batch_samples(const pool_batch *b);

/* How it stands in the agreed state: so many words of 32 bits, for batches of n micro-batches. */
uint64_t pool_batch_words(uint32_t n, bool delayed);
void pool_batch_write(const pool_batch *b, float *words);
/* Fills in what is the agreed state's. False: the words are not of batches of b->n, or not delayed as
 * those are. */
bool pool_batch_read(pool_batch *b, const float *words);

/* How many micro-batches member `index` of R(applied + 1) computes for the next version. Shares are
 * found by key, so a roster that a fork or a reset put together will do. */
uint32_t pool_batch_leased(const pool_batch *b, const gsp_roster *roster, uint32_t index);
/* As many, and which: listed in `list` (room for b->n). */
uint32_t pool_batch_lease(const pool_batch *b, const gsp_roster *roster, uint32_t index,
                          uint32_t *list);

/* Which micro-batches of the batch after this one it computes meanwhile; none without delayed. */
uint32_t pool_batch_ahead(const pool_batch *b, const gsp_roster *roster, uint32_t index,
                          uint32_t *list);

/* What a version is, by its certificate. */
typedef struct pool_verdict {
    uint32_t everywhere, anywhere; /* bits of contributors: in all parts, in some */
    uint64_t tokens;
    uint32_t n_done; /* micro-batches */
    uint32_t done[POOL_MICRO_BATCHES_MAX / 32];
    /* The same contributors everywhere, each with its lease. Robust: in every part leases of more than
     * two thirds of the roster; then all micro-batches are done with. */
    bool whole;
} pool_verdict;

/* roster: R(version). n_floats: of the fragment; came: floats whose parts came. list: scratch, room for b->n. */
void pool_batch_judge(const pool_batch *b, const gsp_proposal *c, const gsp_roster *roster,
                      uint64_t n_floats, uint64_t came, uint32_t *list, pool_verdict *v);
/* The micro-batches of a whole version are in the sum. */
void pool_batch_add(pool_batch *b, const pool_verdict *v);
/* What a version shows of speeds, by who brought its lease and who was late; roster: R(version).
 * Before pool_batch_add. */
void pool_batch_shares(pool_batch *b, const gsp_roster *roster, const gsp_proposal *c,
                       const pool_verdict *v);

#endif
