/*
 * The whole that owns a member's parts, for the files that put them together. Each file calls only
 * those above it:
 *
 *   node_trail.c  the chain that led here
 *   node_step.c   the agreement's events in, its actions out
 *   node_chain.c  the chains of others
 *   node_work.c   what takes long, in slices: freezing, reducing, applying, audits, a state
 *   node_net.c    what the network brings
 *   node.c        life: open, turns, status, close
 *
 * The parts know nothing of it. Nobody else includes it, but tests that look into a member.
 */
#ifndef GOSSIP_MEMBER_NODE_INNER_H
#define GOSSIP_MEMBER_NODE_INNER_H

#include "gossip/member/apply.h"
#include "gossip/member/audit_cases.h"
#include "gossip/member/donor.h"
#include "gossip/member/fetch.h"
#include "gossip/member/inputs.h"
#include "gossip/member/inquiry.h"
#include "gossip/member/node.h"
#include "gossip/member/pace.h"
#include "gossip/member/pulls.h"
#include "gossip/member/trail_file.h"
#include "gossip/member/votes.h"

/* What an owner said of a part whose bytes are not here yet. */
typedef struct gsp_said {
    uint32_t ballot; /* 0: nothing */
    gsp_member from;
    gsp_reduced reduced;
} gsp_said;

struct gsp_node {
    gsp_node_config config;
    char *directory; /* config's, which is its own */
    gsp_terms terms;
    gsp_agree agree;
    gsp_seals seals;
    gsp_votes *votes;
    gsp_saved saved; /* genesis and certificate of what is applied */
    uint64_t wall_ns, mono_ns;
    uint64_t tick_ns; /* the next tick; events may bring it forward, never put it off */
    uint64_t samples, tokens;
    uint64_t reported; /* samples, by gsp_node_report */
    bool sums;         /* of the version after the newest that was applied */
    atom_status dead;  /* why, else ATOM_OK */
    char why[256];
    bool stepping;
    bool changed;     /* what is waited for, since the last turn */
    bool adopting;    /* the machine is told of a state that is not on disk yet */
    uint64_t version; /* certified, as the parts below know it */
    gsp_hash lineage;

    gsp_friends friends;
    gsp_pace pace;
    gsp_pulls pulls;
    gsp_freezing freezing;
    bool untold; /* my contribution is whole but not all on disk, and nobody has heard of it */
    gsp_inputs inputs;
    gsp_blame blame;
    gsp_recent held;
    gsp_mix mix;
    gsp_apply apply;
    gsp_donor donor;
    gsp_audit_cases cases;
    gsp_own_inputs kept;
    gsp_questions questions;
    gsp_ban_files bans;
    gsp_fetch *fetch; /* NULL: no state is wanted */
    gsp_chain_terms chain_terms;
    gsp_trail trail;     /* that led to `saved`; empty: lost, or there is no state */
    gsp_trail hope;      /* that leads to what is fetched */
    gsp_inquiry inquiry; /* one at a time */
    bool inquiry_hopes;  /* it is compared with `hope` */
    bool chain_due;      /* the machine wants the chain of: */
    gsp_key chain_of;
    bool chain_waits;   /* the last question was not the machine's */
    bool chain_full;    /* and that was said */
    bool state_due;     /* the machine wants the state at the end of the chain that came */
    uint64_t mended_ns; /* when somebody was last asked for a lost chain */
    uint64_t mate_ns;   /* when there was last somebody to ask for it */
    uint32_t mend_turn;
    struct {
        uint64_t second;
        uint32_t n;
    } answered[GSP_NET_PEERS_MAX]; /* by index of the friend */
    gsp_fetch_counts fetched;

    struct {
        uint32_t ballot, included; /* ballot 0: nothing to do */
    } reduce[GSP_PARTS_MAX];
    uint32_t n_reduce;
    gsp_said said[GSP_PARTS_MAX];
    gsp_certificate *certificate[GSP_REPLAY_MAX]; /* by version % */
    uint32_t counted[GSP_REPLAY_MAX];             /* gsp_work.counted, of the same */
    gsp_node_status status;
    gsp_message incoming, delayed;
};

/* node_trail.c */
/* What led to the state that the member starts from; NULL: it has none. */
ATOM_MUST atom_status gsp_node_chain_open(gsp_node *node, const gsp_saved *saved);
void gsp_node_chain_close(gsp_node *node);
/* It has a state, and not the chain that led there. */
bool gsp_node_chain_is_lost(const gsp_node *node);
/* A member went on by itself without the owner's order, and nobody came to it since then. */
bool gsp_node_chain_is_alone(const gsp_node *node);
/* The chain grows by what was certified, and by a lineage that begins here; the state is written
 * after that. A chain that is full does not grow, which is said once. */
ATOM_MUST atom_status gsp_node_chain_certify(gsp_node *node, const gsp_certificate *certificate);
ATOM_MUST atom_status gsp_node_chain_found(gsp_node *node, const gsp_genesis *genesis);
/* A state has come, and is about to be judged by the chain that was checked. */
void gsp_node_chain_reach(gsp_node *node, const gsp_saved *saved);
/* The state that was fetched is mine: so is its chain. On disk when it returns, beside the one
 * before. */
ATOM_MUST atom_status gsp_node_chain_adopt(gsp_node *node);
/* The state of a chain that lies beside the one before is on disk, too. */
ATOM_MUST atom_status gsp_node_chain_turned(gsp_node *node);

/* node_step.c */
/* The member's own clock. */
uint64_t gsp_node_now(const gsp_node *node);
/* Ends the member, with the message of the failure that happened last. */
void gsp_node_die(gsp_node *node, atom_status why);
/* Tells the agreement of an event, and does what it orders. */
void gsp_node_step(gsp_node *node, gsp_event *event);

/* node_chain.c */
/* A CHAIN_ASK or a CHAIN came; the link is down. */
void gsp_node_chain_heard(gsp_node *node, gsp_friend *from, const gsp_message *message);
void gsp_node_chain_down(gsp_node *node, const gsp_key *key);
/* Asks whom there is to ask. */
void gsp_node_chain_turn(gsp_node *node);

/* node_work.c */
/* Does some of what is waiting: true when more is. */
bool gsp_node_work(gsp_node *node);
bool gsp_node_audit(gsp_node *node);
bool gsp_node_fetch(gsp_node *node);
/* CPU time of this thread. */
uint64_t gsp_node_cpu_ns(void);

/* node_net.c */
void gsp_node_up(gsp_node *node, const gsp_key *key);
void gsp_node_down(gsp_node *node, const gsp_key *key);
/* Takes one event of the network, and what it brought. */
void gsp_node_hear(gsp_node *node, gsp_net_event *event);
/* Sends what waits; true: more could be sent at once. */
bool gsp_node_pump(gsp_node *node);

#endif
