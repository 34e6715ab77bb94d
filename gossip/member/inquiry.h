/*
 * Asking one peer for the chain that leads to where it is, and comparing it with one's own: a few
 * steps at a time, each checked when it comes. What was checked before the talk broke off is kept,
 * and the next talk goes on from there, whoever it is with.
 *
 * Thread: the member's.
 */
#ifndef GOSSIP_MEMBER_INQUIRY_H
#define GOSSIP_MEMBER_INQUIRY_H

#include "gossip/member/trail.h"

typedef struct gsp_inquiry {
    bool on;
    gsp_key of;
    uint64_t began_ns, heard_ns;
    uint32_t n_came;  /* steps */
    bool begun;       /* the first answer is here */
    gsp_hash last;    /* id of the newest step that came */
    uint32_t shared;  /* so many of the first steps are mine too */
    gsp_trail theirs; /* these, and what came */
    bool whole;       /* all of it did */
    gsp_trail kept;   /* of a talk that broke off */
    uint64_t kept_ns;
} gsp_inquiry;

typedef enum gsp_inquiry_news {
    GSP_INQUIRY_GOES,  /* ask again, for what follows `last` */
    GSP_INQUIRY_WHOLE, /* `theirs` is its chain */
    GSP_INQUIRY_WRONG, /* it is not one */
} gsp_inquiry_news;

void gsp_inquiry_begin(gsp_inquiry *inquiry, const gsp_chain_terms *terms, const gsp_key *of,
                       uint64_t now_ns);
/* What came of a chain is kept, unless it was whole. */
void gsp_inquiry_end(gsp_inquiry *inquiry);
/* Nothing is kept. All zero is fine. */
void gsp_inquiry_close(gsp_inquiry *inquiry);
/* What to say to the peer. mine: what is compared with. */
void gsp_inquiry_ask(const gsp_inquiry *inquiry, const gsp_trail *mine, gsp_chain_ask *out);
/* The peer answered. */
gsp_inquiry_news gsp_inquiry_heard(gsp_inquiry *inquiry, const gsp_trail *mine,
                                   const gsp_chain_said *said, uint64_t now_ns);
/* It takes too long, or brings too little for the time that it takes. */
bool gsp_inquiry_over(const gsp_inquiry *inquiry, uint64_t now_ns);

#endif
