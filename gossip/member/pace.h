/*
 * How fast a member sends to each peer whose rate it knows, and what it learns of its own link.
 *
 * A peer that waits for more gets more, so that all are served at the same moment: a part is summed
 * when its slowest contribution is here, and flows that are left to themselves leave a receiver's
 * link now idle, now overrun. In sum a member asks for what its link carries and not for more: then
 * no queue stands in front of the link, in which everybody's round trips grow, and with them the
 * time that TCP takes to get going in the next round.
 *
 * A link on which nothing waits takes nothing, so it is not in the sum, and its pace is an equal part
 * of the whole. It must not be a small one: TCP spaces what it sends by the pace of before, and BBR
 * learns it for the link's own, so that a link that was asked for little takes seconds to forget it.
 *
 * Thread: the member's. Errors: none.
 */
#ifndef GOSSIP_MEMBER_PACE_H
#define GOSSIP_MEMBER_PACE_H

#include "gossip/member/donor.h"
#include "gossip/member/friends.h"
#include "gossip/member/meter.h"

typedef struct gsp_pace {
    gsp_rates said;   /* what the user said of the link; 0: it is learnt */
    uint64_t turn_ns; /* of the last turn; 0: the next one is due */
    gsp_meter up, down;
    uint64_t metered_ns, told_version;
} gsp_pace;

/* Asks the links for new paces, every 50 ms, when turn_ns was set to 0, and when something waits for
 * a link on which nothing waited. */
void gsp_pace_turn(gsp_pace *pace, gsp_friends *friends, const gsp_donor *donor,
                   const gsp_terms *terms);
/* Learns what the link carries, and with every version what others are told of it. */
void gsp_pace_learn(gsp_pace *pace, const gsp_friends *friends, const gsp_donor *donor,
                    gsp_rates *told);

#endif
