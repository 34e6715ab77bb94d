/*
 * The bookkeeping of one round at one member (docs/design/pool.md#rounds, #sums): which part of my
 * contribution goes to whom, which contributions to the parts that I own have arrived, when to sum
 * what is there, which results are known. It moves no bytes itself: it tells a sink what to do. It
 * has no clock and no memory of its own, and it cannot fail.
 *
 * Contributions are known by (version, member, root), never by ballot, so neither a new ballot nor
 * a new owner asks for bytes that have already arrived.
 *
 * Thread: the caller's.
 */
#ifndef GOSSIP_AGREE_ROUND_H
#define GOSSIP_AGREE_ROUND_H

#include "gossip/agree/signed.h"

#define GSP_TOKENS_MAX ((uint64_t)1 << 48)
enum { GSP_HELD_MAX = 3 }; /* results remembered of one part: each ballot may have its own */

typedef struct gsp_round {
    gsp_trust trust;
    uint64_t version;
    uint32_t ballot; /* of `begin`; 0: none yet in this version */
    uint32_t self;   /* my index in R(version), or GSP_NOBODY */
    gsp_begin begin;
    gsp_hash contributors; /* gsp_contributors_hash of `begin`, set by the caller */
    uint64_t began_ns;
    gsp_hash root;                          /* of my frozen contribution; zero: none */
    uint32_t sent[GSP_PARTS_MAX];           /* bit i: my part was sent to member i */
    gsp_hash arrived_root[GSP_MEMBERS_MAX]; /* the contribution that `arrived` speaks of */
    uint32_t arrived[GSP_PARTS_MAX];        /* bit i: the part of member i is here, checked */
    uint32_t gone; /* bit i: member i is not waited for in this ballot, until something comes */
    uint8_t asked[GSP_PARTS_MAX];  /* 1: its sum was asked for in this ballot */
    gsp_part known[GSP_PARTS_MAX]; /* what the owner in this ballot said; hash zero: nothing yet */
    gsp_hash held[GSP_PARTS_MAX][GSP_HELD_MAX]; /* results whose bytes are here */
} gsp_round;

typedef enum gsp_round_do {
    GSP_ROUND_SEND,  /* send `part` of my contribution to `member` */
    GSP_ROUND_REDUCE /* sum `part` over `included` (bits of begin.contributor) */
} gsp_round_do;
typedef void gsp_round_sink(void *context, gsp_round_do what, uint32_t part, uint32_t member,
                            uint32_t included);

/* Starts a version with nothing: what arrived for another one is of no use. */
void gsp_round_open(gsp_round *round, gsp_trust trust, uint64_t version, uint32_t self);

/* A BEGIN that was checked. One of a lower ballot, or of an attempt that is not newer, is ignored.
 * A later attempt of the same ballot keeps the results of parts that stay with their owner; a later
 * ballot keeps only what has arrived. */
void gsp_round_begin(gsp_round *round, uint32_t ballot, const gsp_begin *begin, uint64_t now_ns,
                     gsp_round_sink *sink, void *context);
/* My contribution was frozen: sends what BEGIN wants of it. */
void gsp_round_frozen(gsp_round *round, const gsp_hash *root, gsp_round_sink *sink, void *context);
/* A part of a member's contribution is here and was checked against its root. */
void gsp_round_arrived(gsp_round *round, uint32_t part, uint32_t member, const gsp_hash *root,
                       gsp_round_sink *sink, void *context);
/* Once collecting has taken its time, sums my parts with what is there, where that is enough. */
void gsp_round_tick(gsp_round *round, uint64_t now_ns, gsp_round_sink *sink, void *context);
/* A contributor is gone: it is not waited for in this ballot, unless a part of it still comes. */
void gsp_round_gone(gsp_round *round, uint32_t member, gsp_round_sink *sink, void *context);

/* An owner says what the result of a part is. False: it is not the owner, or the numbers do not add
 * up. */
ATOM_MUST bool gsp_round_known(gsp_round *round, uint32_t owner, uint32_t part,
                               const gsp_part *result);
/* Whether the result of every part that has an owner is known. */
bool gsp_round_complete(const gsp_round *round);

/* The bytes of a result are here; of one part the newest GSP_HELD_MAX are remembered. */
void gsp_round_hold(gsp_round *round, uint32_t part, const gsp_hash *hash);
bool gsp_round_holds(const gsp_round *round, uint32_t part, const gsp_hash *hash);

/* The sum of the weights of the included contributors; exact. */
uint64_t gsp_included_weight(const gsp_contributor *contributor, uint32_t n, uint32_t included);
/* Whether a sum of the included ones of n contributors is a result: more than half of them, among
 * strangers more than two thirds. Else the part stays unchanged: an owner that leaves others out
 * decides nothing. */
bool gsp_included_enough(gsp_trust trust, uint32_t n, uint32_t included);
/* Of n <= GSP_MEMBERS_MAX numbers; the lower one of two in the middle. 0 where there are none. */
uint64_t gsp_lower_median(const uint64_t *x, uint32_t n);
/* Fills in weight = min(tokens, 2 x lower median) for all n contributors
 * (docs/design/pool.md#rounds): of two, none has more than twice the other's. Tokens are at most
 * GSP_TOKENS_MAX, so that no sum overflows. */
void gsp_weigh(gsp_contributor *contributor, uint32_t n);

/*
 * Hands out n_parts among n members in proportion to share[i] (any unit; 0: owns no part): what
 * rounding leaves over goes to the largest remainders, and each gets a run of neighbouring parts.
 * If all shares are 0, every owner is GSP_NOBODY.
 */
void gsp_assign(const uint64_t *share, uint32_t n, uint32_t n_parts, uint8_t *owner);

#endif
