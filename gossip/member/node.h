/*
 * One member of a pool, running: the agreement (agree.h), the data of its rounds, its links (net.h)
 * and its memory on disk (votes.h, results.h), driven by the real clock. It averages ranges of
 * floats and knows nothing of what they mean. (A gsp_member, in types.h, is the name of one: a key
 * and an incarnation.)
 *
 * Version v concerns fragment v % n_fragments, a range of n_floats[] floats, cut into rules.n_parts
 * parts of equal length (a multiple of GSP_INT8_BLOCK; the last ones shorter or empty). In a round
 * the member
 *
 *   freezes   asks its work for a contribution, encodes and hashes it (freezing.h)
 *   sends     its parts to their owners (friends.h, pace.h)
 *   reduces   the parts that it owns (inputs.h, mix.h), and sends the results to all
 *   votes     once it holds all results, and they are on disk (recent_results.h, votes.h)
 *   applies   them to its work (apply.h), once a quorum has voted
 *
 * and in between it checks what others reduced (audit_cases.h, ban_files.h), gives its state to joiners
 * (donor.h, lease.h), or fetches one (fetch.h).
 *
 * On the wire (wire.h): messages of the agreement travel on CONTROL; parts and results as PIECEs of
 * at most GSP_BLOB_PIECE_BYTES on BULK. Contributions go first: the results of early parts then
 * fill the time until the last part is reduced. Nothing is sent that a link's queue has no room
 * for; nothing is taken that no round wants.
 *
 * Memory: contributions to the parts that it owns (about one fragment, encoded, when shares are
 * equal); the results of a version, whose memory those of the next one take over one by one; and
 * what freezing.h and audit_cases.h say.
 *
 * Thread: one, for all calls; `work` is called on it.
 */
#ifndef GOSSIP_MEMBER_NODE_H
#define GOSSIP_MEMBER_NODE_H

#include "gossip/agree/agree.h"
#include "gossip/member/ban_files.h"
#include "gossip/member/work.h"
#include "gossip/net/net.h"
#include "gossip/sum/quant.h"
#include "gossip/trust/sign.h"

typedef struct gsp_node_config {
    gsp_net *net; /* used, not taken */
    const gsp_identity *identity;
    const char *directory; /* its memory; of this member alone; copied */
    gsp_rules rules;       /* `context` and functions as in agree.h */
    gsp_rates rates;       /* what was said of the link; 0: learnt from what it carries (meter.h) */
    gsp_genesis genesis;   /* of the pool: where a member without memory starts */
    /* The work's state is that of genesis, as the creator's is. False: a member without memory
     * gets the state from others. Without meaning for a work without state. */
    bool holds_genesis;
    uint32_t n_fragments;
    uint64_t n_floats[GSP_FRAGMENTS_MAX];
    gsp_codec codec;
    bool passes_on; /* gsp_rules.passes_on */
    bool robust; /* parts are combined by robust.h, and contributors lean; else the plain sum. All
                    members alike: an owner's work can be repeated */
    bool drifts; /* gsp_rules.drifts */
    uint32_t results_kept; /* versions on disk; 0: GSP_REPLAY_MAX */
    gsp_work work;
    /*
     * Hears of everything that is not the member's own business: links UP and DOWN (of all peers;
     * those of guests are told here only), REFUSED dials, messages from guests, and messages whose
     * first byte is not GSP_TYPES_VERSION (0x80 and above are free for the layer above). True: it
     * took the message's event->data, and gives it back with gsp_net_free. It may send and dial; of
     * gsp_node_* it may call only what reads. NULL: nobody is interested.
     */
    bool (*other)(void *context, gsp_net_event *event);
    void *other_context;
} gsp_node_config;

typedef struct gsp_node_status {
    uint64_t certified, applied;
    uint32_t n_roster, n_links;
    bool is_member;
    bool lacks_quorum; /* it is a member, and too few of the roster are here to certify anything */
    /* Nobody else was on a roster since this member went on by itself, after version alone_from: others
     * may have gone on without it. Not after the owner's reset, which all others follow. */
    bool alone;
    uint64_t alone_from;
    gsp_hash lineage, newest; /* newest: hash of the newest certificate's proposal */
    uint64_t refused;         /* messages and pieces that were wrong */
    uint64_t unanswered;      /* questions of members that had asked too often */
    uint64_t pulled;          /* results that were asked for because they did not come */
    uint64_t repeated_bytes;  /* of pieces that were here already */
    /* Of the newest round that brought something, from its freeze on: the contribution is encoded
     * and hashed; BEGIN is here; the last part of mine is reduced; the last result is here; it is
     * applied. */
    uint64_t frozen_ns, begun_ns, reduced_ns, held_ns, round_ns;
    uint64_t compute_ns; /* CPU: encoding, hashing, reducing, applying */
    /* A state on its way in: bytes that are here and checked, of all; all is 0 when none is, or
     * when it is not known yet which one. */
    uint64_t state_bytes, state_all_bytes;
    bool state_found;             /* one is on its way, and its chain was checked */
    uint64_t state_samples;       /* certified with it, as its chain proves; 0: not known */
    uint64_t state_fetched;       /* states adopted since open */
    uint64_t state_wrong;         /* chunks and roots that were not what they claimed to be */
    uint64_t state_sent_bytes;    /* of mine, to others */
    uint64_t state_kept_bytes;    /* of these: as a fragment was before the newest version */
    uint64_t audits, audits_open; /* parts of others looked into; of these: bytes not to be had */
    uint64_t false_claims;        /* accusations of others that were not true */
    uint32_t n_bans;              /* since open; the newest: */
    gsp_ban ban[GSP_BANS_SHOWN];  /* n_bans % GSP_BANS_SHOWN is the next place */
    gsp_rates rates;              /* as others are told: said, learnt (meter.h), or unknown */
} gsp_node_status;

typedef struct gsp_node gsp_node;

/*
 * Opens the member's memory and starts. Links are the caller's wish: gsp_net_dial.
 * Errors  those of gsp_votes_open and gsp_results_open; ATOM_E_RESOURCE  memory
 */
ATOM_MUST atom_status gsp_node_open(const gsp_node_config *config, gsp_node **out);
/* NULL is fine; sets *node to NULL. Does not say goodbye (gsp_node_leave and turns do). */
void gsp_node_close(gsp_node **node);

/*
 * Does what is to be done, waits at most timeout_ns for something to do, and returns. To be called
 * all the time.
 * Errors  of the disk, the memory or the work: the member is dead and can only be closed; a new one
 *         opens from what is on disk
 */
ATOM_MUST atom_status gsp_node_turn(gsp_node *node, uint64_t timeout_ns);

/* Samples since the newest certificate (unused where work.ready tells them), and tokens in all, for
 * heartbeats. */
void gsp_node_report(gsp_node *node, uint64_t samples, uint64_t tokens);
/* Asks to be off the roster with the next certificate. */
void gsp_node_leave(gsp_node *node);
/*
 * The owner's word: a new lineage from the version that this member holds, with itself alone on the
 * roster; the others follow it and ask to be let in again.
 *
 * Errors: ATOM_E_USAGE where this member is not the owner's, has no state yet or is applying a
 *         version; nothing has changed then
 */
ATOM_MUST atom_status gsp_node_reset(gsp_node *node);
/* Is a version certified and not applied here yet? */
bool gsp_node_is_applying(const gsp_node *node);

void gsp_node_read_status(const gsp_node *node, gsp_node_status *status);
/* Plain words (gsp_agree_explain). */
const char *gsp_node_explain(const gsp_node *node, char *text, size_t bytes);

#endif
