/*
 * When to ask for a result that did not come by itself. Whoever takes part in a round gets results
 * unasked, and a proposal may be faster than their bytes; an owner that is still sending is given
 * time; then one peer after the other is asked, each with time to answer.
 *
 * Pure: the clock is an argument. Thread: the member's. Errors: none.
 */
#ifndef GOSSIP_MEMBER_PULLS_H
#define GOSSIP_MEMBER_PULLS_H

#include "gossip/agree/types.h"

typedef struct gsp_pulls {
    struct {
        uint64_t wanted_ns, asked_ns; /* 0: not yet */
        gsp_key from;                 /* who was asked last */
    } part[GSP_PARTS_MAX];
} gsp_pulls;

/* What is known when a part is wanted. Times: when that peer last sent bytes; 0: it has no link. */
typedef struct gsp_pull_case {
    bool takes_part;   /* I contributed to this version */
    uint64_t owner_ns; /* of the owner that said it has the result; 0 also: it did not say so */
    uint64_t last_ns;  /* of the peer that was asked last */
} gsp_pull_case;

/* The peer that was asked for this part last. */
const gsp_key *gsp_pulls_last(const gsp_pulls *pulls, uint32_t part);
/* A part's result is wanted; from NULL: nobody with a link has it. True: it is to be asked now. */
bool gsp_pulls_ask(gsp_pulls *pulls, uint32_t part, const gsp_key *from, const gsp_pull_case *facts,
                   uint64_t now_ns);
/* The part was asked of this peer, whatever the rules above say. */
void gsp_pulls_asked(gsp_pulls *pulls, uint32_t part, const gsp_key *from, uint64_t now_ns);
/* A version is over. */
void gsp_pulls_clear(gsp_pulls *pulls);

#endif
