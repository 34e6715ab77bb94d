/*
 * How long members had a link over which they were asked for something, since they last gave some of it.
 * Time without a link does not count, so whoever is away is not late; what was counted over earlier links
 * stays, so whoever breaks its links gains no more by that than the time between two looks each. Over a new
 * link nobody was asked yet: what is on its way when a link ends is lost. Links have numbers, so that one that
 * ended and came back between two looks is known as a new one.
 *
 * Pure: the clock is an argument. Thread: any. Errors: none.
 */
#ifndef GOSSIP_MEMBER_PATIENCE_H
#define GOSSIP_MEMBER_PATIENCE_H

#include "gossip/agree/types.h"

typedef struct gsp_patience {
    uint64_t looked_ns;             /* 0: not yet */
    uint64_t link[GSP_MEMBERS_MAX]; /* numbers: at the last look; 0: none */
    uint32_t asked;                 /* bits: over the link that they have */
    uint64_t had_ns[GSP_MEMBERS_MAX];
    uint64_t gave[GSP_MEMBERS_MAX]; /* bits: pieces that came from it */
} gsp_patience;

/* The number of the link that each of them has now (gsp_friend.link); 0: none. To be told several times a
 * second. */
void gsp_patience_look(gsp_patience *patience, const uint64_t link[GSP_MEMBERS_MAX],
                       uint64_t now_ns);
/* Those that have a link and were not asked over it: to be asked at once. */
uint32_t gsp_patience_unasked(const gsp_patience *patience);
void gsp_patience_asked(gsp_patience *patience, uint32_t i);
/* A piece came from member i itself: it answers, so its time begins anew. The same piece again is no
 * news, so nobody gains time without an end. True: it was news. */
bool gsp_patience_piece(gsp_patience *patience, uint32_t i, uint32_t sequence);
/* Those that were asked for so long in all since they last gave a piece, and have a link now. */
uint32_t gsp_patience_late(const gsp_patience *patience, uint64_t within_ns);

#endif
