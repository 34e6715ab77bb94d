/*
 * How long members had a link while something of theirs was awaited, since they last gave some of it.
 * Time without a link does not count, so whoever is away is not late, and whoever breaks its links
 * gains no time by that.
 *
 * Pure: the clock is an argument. Thread: any. Errors: none.
 */
#ifndef GOSSIP_MEMBER_PATIENCE_H
#define GOSSIP_MEMBER_PATIENCE_H

#include "gossip/agree/types.h"

typedef struct gsp_patience {
    uint64_t looked_ns; /* 0: not yet */
    uint32_t linked;    /* bits: at the last look */
    uint64_t had_ns[GSP_MEMBERS_MAX];
    uint64_t gave[GSP_MEMBERS_MAX]; /* bits: pieces that came from it */
} gsp_patience;

/* Which of them have a link now. To be told several times a second. */
void gsp_patience_look(gsp_patience *patience, uint32_t linked, uint64_t now_ns);
/* A piece came from member i itself: it answers, so its time begins anew. The same piece again is no
 * news, so nobody gains time without an end. True: it was news. */
bool gsp_patience_piece(gsp_patience *patience, uint32_t i, uint32_t sequence);
/* Those that have had a link for so long in all since they last gave a piece, and have one now. */
uint32_t gsp_patience_late(const gsp_patience *patience, uint64_t within_ns);

#endif
