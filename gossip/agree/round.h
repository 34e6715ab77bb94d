/*
 * One version's data movement at one member (docs/design/pool.md#rounds, #sums), without the data:
 * which part of my contribution goes to whom, which contributions of the parts I own have come,
 * when to reduce with what is there, which results are known. Pure: no clock, no memory of its own,
 * no failure.
 *
 * Contributions are known by (version, member, root), never by ballot: a new ballot, or a new
 * owner, never asks for bytes that an owner has.
 *
 * Thread: the caller's.
 */
#ifndef GOSSIP_AGREE_ROUND_H
#define GOSSIP_AGREE_ROUND_H

#include "gossip/agree/lineage.h"

#define GSP_TOKENS_MAX ((uint64_t)1 << 48)
enum {
    GSP_HELD_MAX = 3
}; /* results of one part kept in mind: different ballots reduce differently */

typedef struct gsp_round {
    uint64_t version;
    uint32_t ballot; /* of `begin`; 0: none yet in this version */
    uint32_t self;   /* my index in R(version), or GSP_NOBODY */
    gsp_begin begin;
    gsp_hash
        contributors; /* gsp_contributors_hash of `begin`; whoever calls gsp_round_begin sets it */
    uint64_t began_ns;
    gsp_hash root;                          /* my frozen contribution; zero: none */
    uint32_t sent[GSP_PARTS_MAX];           /* bit i: my part went to member i */
    gsp_hash arrived_root[GSP_MEMBERS_MAX]; /* whose parts `arrived` counts */
    uint32_t arrived[GSP_PARTS_MAX];        /* bit i: the part of member i is here and checked */
    uint32_t gone; /* bit i: member i is not waited for in this ballot, until something comes */
    uint8_t asked[GSP_PARTS_MAX];  /* 1: reduction asked for in this ballot */
    gsp_part known[GSP_PARTS_MAX]; /* what the owner of this ballot said; hash zero: not yet */
    gsp_hash held[GSP_PARTS_MAX][GSP_HELD_MAX]; /* results whose bytes are here */
} gsp_round;

typedef enum gsp_round_do {
    GSP_ROUND_SEND,  /* send `part` of my contribution to `member` */
    GSP_ROUND_REDUCE /* reduce `part` over `included` (bits of begin.contributor) */
} gsp_round_do;
typedef void gsp_round_sink(void *context, gsp_round_do what, uint32_t part, uint32_t member,
                            uint32_t included);

/* Forgets everything; what arrived for another version is worth nothing. */
void gsp_round_open(gsp_round *round, uint64_t version, uint32_t self);

/* A BEGIN of a ballot not below the last, already checked. Asks for sends and reductions. A later
 * attempt of the same ballot keeps what is known of parts that stay with their owner; a later
 * ballot keeps what arrived. */
void gsp_round_begin(gsp_round *round, uint32_t ballot, const gsp_begin *begin, uint64_t now_ns,
                     gsp_round_sink *sink, void *context);
/* My contribution was frozen: send what BEGIN wants of it. */
void gsp_round_frozen(gsp_round *round, const gsp_hash *root, gsp_round_sink *sink, void *context);
/* A part of a member's contribution is here, checked against its root. */
void gsp_round_arrived(gsp_round *round, uint32_t part, uint32_t member, const gsp_hash *root,
                       gsp_round_sink *sink, void *context);
/* A part of mine is overdue: reduce with what is there. */
void gsp_round_tick(gsp_round *round, uint64_t now_ns, gsp_round_sink *sink, void *context);
/* A contributor is gone: do not wait for it in this ballot, unless a part of it still comes. */
void gsp_round_gone(gsp_round *round, uint32_t member, gsp_round_sink *sink, void *context);

/* The owner's word on a part of this ballot. False: not its owner, or it does not add up. */
ATOM_MUST bool gsp_round_known(gsp_round *round, uint32_t owner, uint32_t part,
                               const gsp_part *result);
/* All parts that have an owner are known. */
bool gsp_round_complete(const gsp_round *round);

void gsp_round_hold(gsp_round *round, uint32_t part, const gsp_hash *hash);
bool gsp_round_holds(const gsp_round *round, uint32_t part, const gsp_hash *hash);

/* Sum of the weights of the included; exact. */
uint64_t gsp_included_weight(const gsp_contributor *contributor, uint32_t n, uint32_t included);
/* Fills in weight = min(tokens, 2 x median) for all n contributors (docs/design/pool.md#agreement, weights). Tokens are at
 * most GSP_TOKENS_MAX, so that no sum overflows. */
void gsp_weigh(gsp_contributor *contributor, uint32_t n);

/*
 * Hands out n_parts among members: in proportion to share[i] (any unit; 0: owns no part), largest
 * remainders first, runs of neighbouring parts. All shares 0: every owner is GSP_NOBODY.
 */
void gsp_assign(const uint64_t *share, uint32_t n, uint32_t n_parts, uint8_t *owner);

#endif
