/*
 * A member's share of a batch: how certificates change it (docs/design/pool.md#leases-by-speed). All of
 * it follows from who was in time and who was late, so every member finds the same. Pure.
 */
#ifndef ATOM_POOL_SHARE_H
#define ATOM_POOL_SHARE_H

#include "gossip/agree/types.h"

enum {
    POOL_SHARE_MAX = 1 << 16,               /* of a batch, beside others' shares */
    POOL_SHARE_BEFORE = POOL_SHARE_MAX / 4, /* of a newcomer, where shares do not return */
    POOL_SHARE_MIN = POOL_SHARE_MAX / 1024,
    POOL_SHARE_HOLD = 64 /* versions in time that a share hardly grows, after a late one */
};

/*
 *            late once: a fifth less          in time with something
 *           +-------------+                +---------------------------+
 *           |             v                |                           v
 *           +----------- STEADY ------> STOPPED                    RETURNING ---+
 *                          ^  ^  late twice     |                      |  ^      | in time: twice as much
 *                          |  |  in a row       | 64 versions          |  +------+
 *                          |  +-----------------+                      |
 *                          +-------------------------------------------+
 *                                 as much as before, or late: half
 */
typedef enum pool_share_phase {
    POOL_SHARE_STEADY,
    POOL_SHARE_STOPPED, /* it was late twice in a row: it is asked for a quarter, then less still */
    POOL_SHARE_RETURNING, /* since then it was in time */
    POOL_SHARE_PHASES
} pool_share_phase;

/* What certificates have shown of a member. */
typedef struct pool_share {
    gsp_key key;
    uint32_t share;         /* what it gets of a batch beside others' shares */
    uint32_t hold;          /* 0 to POOL_SHARE_HOLD */
    pool_share_phase phase; /* STEADY where shares do not return */
    uint32_t proven;        /* the share before it stopped, which it returns to; 0: none */
    uint32_t brought;       /* 1: it brought something to the newest version; else 0 */
    uint32_t muted;         /* robust: 1: what it brought last weighed nothing; else 0 */
    /* Delayed updates: micro-batches [first, first + planned) of a batch are its own (pool_batch). */
    uint32_t first, planned;
} pool_share;

/* Of a member that nothing is known of. */
pool_share pool_share_first(const gsp_key *key, bool returns);
/* False: no certificate leads there. */
bool pool_share_valid(const pool_share *s, bool returns);

/* One version's news of a member that was asked for `leased` micro-batches, or could have been (0). */
typedef struct pool_share_news {
    uint32_t leased;
    bool late;    /* only with leased > 0 */
    bool delayed; /* leases are planned a batch ahead */
    bool returns; /* the rule of pools since 2026-11-26; before, a share never returned quickly */
} pool_share_news;

void pool_share_learn(pool_share *s, const pool_share_news *news);

#endif
