/*
 * What shows which roster decides now, and which of two lineages a member follows when they meet
 * (docs/design/pool.md#forks). A chain begins with the pool's first lineage, whose id everybody
 * knows, and each of its steps is shown by the roster before it:
 *
 *   link     a certificate's head, with the votes of a quorum of the roster
 *   genesis  a fork, signed by all who begin it, which continues exactly after the link before it;
 *            or the owner's reset, which the owner's signature shows, wherever it stands
 *
 * Kept are every genesis, each certificate that changed the roster, the one that a fork continues,
 * and the newest. The others between them were voted for by the same roster and need no link. Of
 * what lies before a reset only the first lineage is kept.
 *
 * A chain proves who decided, not that what they decided was right: that is what the votes stand
 * for. What somebody claims of tokens or versions without such steps decides nothing.
 *
 * Thread: any. Pure: no memory, no clock. No input makes it assert.
 */
#ifndef GOSSIP_AGREE_CERTIFICATE_CHAIN_H
#define GOSSIP_AGREE_CERTIFICATE_CHAIN_H

#include "gossip/agree/signed.h"

enum { GSP_CHAIN_STEPS_MAX = 65536 };

/* What everybody in the pool knows. */
typedef struct gsp_chain_terms {
    const gsp_seals *seals; /* used, not taken */
    gsp_trust trust;
    gsp_key owner;
    gsp_hash first; /* id of the first lineage */
} gsp_chain_terms;

/* Where a chain has led so far. All zero: to nothing yet. */
typedef struct gsp_chain {
    uint32_t n; /* steps */
    gsp_hash pool, lineage;
    uint32_t reset, generation;
    gsp_order order;
    uint64_t version, tokens, samples;
    gsp_hash newest;   /* id of the last link of this lineage; before the first: the lineage's id */
    gsp_roster voters; /* R(version), whose votes that link needs; n 0 before the first */
    gsp_roster roster; /* R(version + 1) */
    uint64_t made;     /* the version that put it together */
    bool still;        /* the last step changed nothing: only a fork or the end may follow */
} gsp_chain;

/* What a step is known by: gsp_head_hash, or gsp_genesis_hash. A certificate has one id, whoever's
 * votes are kept with it. */
void gsp_step_id(const gsp_seals *seals, const gsp_step *step, gsp_hash *out);
/* A certificate as a step. */
void gsp_chain_link_of(const gsp_seals *seals, const gsp_certificate *certificate,
                       gsp_chain_link *out);

/* Takes the next step; NULL, or what is wrong with it, and then the chain is as before. known: its
 * signatures were checked before, and are not looked at. */
ATOM_MUST const char *gsp_chain_take(const gsp_chain_terms *terms, gsp_chain *chain,
                                     const gsp_step *step, bool known);

/* Whether this is the certificate where the chain ends, or a later one by the same roster. Its own
 * votes are checked: an id says nothing of the votes that come with it. */
ATOM_MUST bool gsp_chain_shows(const gsp_chain_terms *terms, const gsp_chain *chain,
                               const gsp_certificate *certificate);

/* ---- two chains ---- */

/* What one of them has after the common part. */
typedef struct gsp_side {
    gsp_chain chain;       /* where it ends */
    bool reset;            /* there is a reset in it, and all of the following is of what comes
                              after the last one */
    gsp_roster common;     /* where the two part */
    uint32_t stood;        /* who of it voted for any of the steps, or began one: bits */
    uint32_t links;        /* of the common lineage, before its first fork */
    uint64_t first, reach; /* versions of the first and the last of them; 0: none */
    gsp_hash first_id;     /* of the first of them; reset: the lineage's that it began */
    bool still;            /* there is one, and it changed nothing */
    bool forked;           /* a fork follows them */
    gsp_roster before;     /* forked: the roster that it left */
    uint32_t behind; /* forked: who of that roster stand behind its newest certificate: bits */
} gsp_side;

/* Begins at the common part, then takes what follows it on both sides, in any order. */
typedef struct gsp_match {
    gsp_chain common;
    gsp_side mine, theirs;
} gsp_match;

void gsp_match_begin(gsp_match *match, const gsp_chain *common);
ATOM_MUST const char *gsp_match_take(const gsp_chain_terms *terms, gsp_side *side,
                                     const gsp_step *step, bool known);

typedef enum gsp_choice {
    GSP_STAY,
    GSP_GO,      /* to theirs */
    GSP_DIVIDED, /* two quorums of one roster signed two things: stay, and tell */
} gsp_choice;

/* How long I have been without a quorum. */
typedef struct gsp_plight {
    bool waits;    /* long enough to go with a minority */
    bool gave_up;  /* so long that I go where a newcomer would go */
    bool newcomer; /* I have no state yet, and what I compare with is only what I am fetching */
} gsp_plight;

/*
 * Which of the two to follow, in this order:
 *   - the owner's later reset wins, unless what follows it is a fork that nobody may follow;
 *   - of two resets with one number, which an owner orders that lost its disk, the one with the lower
 *     id wins likewise;
 *   - what a quorum of the common roster certified wins against what only a fork did, and more of
 *     it against less;
 *   - a fork is followed only if more of the roster that it left stand behind its newest
 *     certificate than may be hostile (gsp_liars_max), and from the lineage that it left only by a
 *     member that waits, or if they are a quorum of that roster;
 *   - of two forks the one that more stand behind wins, then more tokens, the later generation, the
 *     lower id.
 * Whoever gave up follows any fork rather than stay alone. Where two quorums of the common roster
 * signed two things, members stay; a newcomer goes to the side that more of the common roster stood
 * behind, then to that whose first step has the lower id: whichever of the two it met first.
 */
ATOM_MUST gsp_choice gsp_match_judge(const gsp_match *match, gsp_trust trust, gsp_plight plight);

#endif
