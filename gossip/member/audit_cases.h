/*
 * A member's side of audits (agree/claim.h): the case that it looks into, and the newest lie that
 * was proven here, kept for members that were told of it. A case is one part of one owner: the
 * contributions that the owner says it summed are fetched, and the sum is done again. What their
 * makers do not give within a time is told to the agreement, and from then on asked of everybody:
 * others ask for it, too (questions.h).
 *
 * The bytes of a case prove themselves by the roots in the owner's own claim, so they may come from
 * anybody.
 *
 * Thread: the member's. Errors: none; a case that cannot be decided stays open.
 */
#ifndef GOSSIP_MEMBER_AUDIT_CASES_H
#define GOSSIP_MEMBER_AUDIT_CASES_H

#include "gossip/member/freezing.h"
#include "gossip/member/friends.h"
#include "gossip/member/own_inputs.h"
#include "gossip/member/questions.h"
#include "gossip/sum/mix.h"

typedef struct gsp_audit_case {
    bool on, accused, hopeless; /* hopeless: more bytes than are held for it */
    gsp_claim claim;
    gsp_key accuser;
    gsp_blob *input[GSP_MEMBERS_MAX]; /* by contributor */
    uint64_t began_ns, asked_ns, within_ns;
    uint64_t news_ns, given_ns; /* when a piece came, and when one came from its maker */
    uint32_t turn, late;        /* late: bits of contributors, as the agreement was told */
    gsp_patience patience;
} gsp_audit_case;

typedef struct gsp_audit_cases {
    const gsp_terms *terms;
    const gsp_freezing *mine;       /* my own contributions */
    gsp_own_inputs *kept;           /* the older ones */
    const gsp_questions *questions; /* what others miss */
    gsp_friends *friends;
    gsp_mix *mix;
    gsp_audit_case open, proof;
} gsp_audit_cases;

/* The pointers stay as they are for as long as it is used. */
void gsp_audit_cases_open(gsp_audit_cases *cases, const gsp_terms *terms, const gsp_freezing *mine,
                          gsp_own_inputs *kept, const gsp_questions *questions,
                          gsp_friends *friends, gsp_mix *mix);
void gsp_audit_cases_close(gsp_audit_cases *cases);

/* A part of a contribution that is here: mine, one of the proof, or one that somebody misses. False:
 * it is not. Valid until the next call. */
ATOM_MUST bool gsp_audit_cases_exhibit(const gsp_audit_cases *cases, uint64_t version,
                                       const gsp_hash *root, uint32_t part, gsp_exhibit *out);

/* Looks into a claim; accuser zero: nobody accuses. A case that is still open is dropped.
 * within_ns: what is not here by then is told. */
void gsp_audit_cases_begin(gsp_audit_cases *cases, const gsp_claim *claim, const gsp_key *accuser,
                           uint64_t within_ns);
/* Where a piece of the case belongs; NULL: it is of no case, or here. */
gsp_blob **gsp_audit_cases_place(gsp_audit_cases *cases, const gsp_message *message);

/*
 * Fetches what is missing and, where `idle` (the round goes first), judges. True: *event is for the
 * agreement: INPUTS, or AUDITED, which gsp_audit_cases_end follows.
 */
ATOM_MUST bool gsp_audit_cases_work(gsp_audit_cases *cases, bool idle, gsp_event *event);
/* The bytes of the case that is decided, for evidence: exhibit[GSP_MEMBERS_MAX]. */
void gsp_audit_cases_exhibits(const gsp_audit_cases *cases, gsp_exhibit *exhibit);
/* Closes the case; one that was a lie is the proof from now on. */
void gsp_audit_cases_end(gsp_audit_cases *cases, gsp_verdict verdict);

#endif
