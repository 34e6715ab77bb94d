/*
 * What the files of the agreement share; nobody else includes it, but its tests.
 *
 *   agree.c             events in, actions out
 *   agree_view.c        when a version is due, which ballot is on, who proposes
 *   agree_propose.c     a proposer's side of a ballot
 *   agree_vote.c        a voter's side, and certificates
 *   agree_people.c      peers, joiners, goodbyes, bans, lineages
 *   agree_audit.c       checking what owners say
 *   agree_rules.c       what a proposal must be
 *   agree_proof.c       what shows that something was proposed
 *   agree_invariants.c  what is always true of the state
 *
 * They call each other in a circle, because one member is proposer, voter and witness at once: its
 * own promise is a message to itself, and a vote may end a version, which begins the next one. All
 * of them work on the one struct gsp_agree, one event at a time.
 */
#ifndef GOSSIP_AGREE_AGREE_INNER_H
#define GOSSIP_AGREE_AGREE_INNER_H

#include "gossip/agree/agree.h"

#include <string.h>

/* agree.c */
void gsp_agree_act(gsp_agree *a, gsp_action action);
/* a->scratch with its header filled in and the body of `kind` zero. */
gsp_message *gsp_agree_compose(gsp_agree *a, gsp_message_kind kind, uint32_t ballot);
void gsp_agree_say(gsp_agree *a, gsp_to to, const gsp_message *message);
void gsp_agree_send(gsp_agree *a, const gsp_key *peer, const gsp_message *message);
void gsp_agree_persist(gsp_agree *a);
/* The version after the newest certificate begins: nothing is promised or voted in it yet. */
void gsp_agree_begin_version(gsp_agree *a);
/* Takes over a saved state; sets everything but rules, seals, peers and timers. */
void gsp_agree_settle(gsp_agree *a, const gsp_saved *saved);
gsp_round_sink gsp_agree_round_sink;

/* agree_view.c */
/* The member whose turn it is to propose in a ballot, or GSP_NOBODY in an empty roster. */
uint32_t gsp_view_proposer(const gsp_agree *a, uint32_t ballot);
/* How long a ballot may take. */
uint64_t gsp_view_timeout_ns(const gsp_agree *a, uint32_t ballot);
/* Whether the next version is wanted now. */
bool gsp_view_due(const gsp_agree *a);
/* From now on this ballot is on. */
void gsp_view_set(gsp_agree *a, uint32_t view);
void gsp_view_tick(gsp_agree *a);

/* agree_invariants.c */
/* What a step may only let grow, as it was before the step. */
typedef struct gsp_before {
    gsp_hash lineage, root; /* root: of my frozen contribution */
    uint64_t incarnation, now_ns, certified, applied;
    uint32_t promised, voted;
    gsp_frozen frozen;
} gsp_before;
/* Both assert what is always true of the machine's own state. */
gsp_before gsp_invariants_enter(const gsp_agree *a);
void gsp_invariants_leave(const gsp_agree *a, const gsp_before *before);

/* agree_propose.c */
void gsp_propose_start(gsp_agree *a);
void gsp_propose_promise(gsp_agree *a, uint32_t from, const gsp_promise *promise);
void gsp_propose_tick(gsp_agree *a);
void gsp_propose_part_known(gsp_agree *a);
void gsp_propose_give_up(gsp_agree *a);

/* agree_vote.c: `from` is the sender's place in the roster. */
void gsp_vote_prepare(gsp_agree *a, uint32_t from, uint32_t ballot, const gsp_hash *previous);
/* The contribution is frozen: sends the promise that waited for it. */
void gsp_vote_pay_promise(gsp_agree *a);
void gsp_vote_begin(gsp_agree *a, uint32_t from, uint32_t ballot, const gsp_begin *begin);
void gsp_vote_propose(gsp_agree *a, uint32_t from, const gsp_message *message);
/* Votes for what is pending, if it may and holds all results. */
void gsp_vote_try(gsp_agree *a);
void gsp_vote_count(gsp_agree *a, const gsp_statement *vote);
/* A quorum's votes for what is pending are a certificate. */
void gsp_vote_certify(gsp_agree *a);
/* Somebody else's certificate. */
void gsp_vote_certificate(gsp_agree *a, const gsp_message *message);
/* Applies the newest certificate once all its results are here. */
void gsp_vote_apply(gsp_agree *a);
/* Asks for results that a certificate or a proposal names and that are not here. */
void gsp_vote_pull(gsp_agree *a);

/* agree_audit.c */
/* The newest certificate is applied: draws which parts to check. */
void gsp_audit_choose(gsp_agree *a);
/* Begins the next check, if none is under way. */
void gsp_audit_next(gsp_agree *a);
void gsp_audit_accused(gsp_agree *a, const gsp_message *message);
void gsp_audit_done(gsp_agree *a, uint64_t version, uint32_t part, gsp_verdict verdict);
void gsp_audit_tick(gsp_agree *a);

/* agree_proof.c */
/* Whether these are a quorum's promises for `ballot`, each sealed, of which the highest vote is for
 * `subject`. Returns their bits, 0 when something is wrong; *highest: that vote's ballot, or 0. */
uint32_t gsp_proof_promises(const gsp_agree *a, const gsp_statement *promise, uint32_t n,
                            uint32_t ballot, const gsp_hash *subject, uint32_t *highest);
/*
 * Whether the promises justify voting for the proposal from `ballot` on: it keeps the rules of
 * gsp_proposal_wrong, and each contributor signed for what it is said to have brought. If a promise
 * tells of a vote, the proof is judged instead. NULL, or what is wrong.
 */
const char *gsp_proof_ballot_wrong(const gsp_agree *a, const gsp_propose *propose, uint32_t ballot);
/* The same of a vote in ballot `voted` for a proposal with the hash `subject`. */
const char *gsp_proof_wrong(const gsp_agree *a, const gsp_proposal *proposal,
                            const gsp_hash *subject, uint32_t voted, const gsp_proof *proof);
/* A proposer that proposed two things in one ballot is convicted by a proof that shows one. */
void gsp_proof_look(gsp_agree *a, const gsp_proof *proof);
/* Makes the proof of a vote for what was proposed. */
void gsp_proof_of(const gsp_propose *propose, gsp_proof *out);

/* agree_people.c */
/* NULL: not known. */
gsp_peer *gsp_people_find(gsp_agree *a, const gsp_key *key);
/* Also makes room for a new one, in the place of the peer without a link that was heard least
 * recently. NULL: all have links. */
gsp_peer *gsp_people_add(gsp_agree *a, const gsp_key *key);
/* This very incarnation was heard lately, and in my lineage; or it is me. */
bool gsp_people_answers(const gsp_agree *a, const gsp_member *who);
/* Member i of the roster answers and has not said goodbye. */
bool gsp_people_alive(const gsp_agree *a, uint32_t i);
uint32_t gsp_people_alive_bits(const gsp_agree *a);
/* Takes one from the peer's budget of answers; false: it has asked enough in this second. */
bool gsp_people_may_answer(gsp_agree *a, const gsp_key *key);
bool gsp_people_banned(const gsp_agree *a, const gsp_key *key);
/* The key is off the roster with the next certificate, and not on it again. */
void gsp_people_ban(gsp_agree *a, const gsp_key *key);
/* Bans the signer, and tells everybody, if the two statements convict it. */
void gsp_people_accuse(gsp_agree *a, const gsp_statement *first, const gsp_statement *second);
void gsp_people_heartbeat(gsp_agree *a, const gsp_message *message);
void gsp_people_join(gsp_agree *a, const gsp_message *message);
void gsp_people_leave(gsp_agree *a, const gsp_statement *statement);
void gsp_people_announce(gsp_agree *a, const gsp_genesis *genesis);
/* Asks a peer for the next certificate. */
void gsp_people_ask(gsp_agree *a, const gsp_key *peer);
/* Asks a peer for the whole state of a lineage; gsp_people_state takes the answer. */
void gsp_people_want_state(gsp_agree *a, const gsp_key *peer, const gsp_hash *lineage);
void gsp_people_state(gsp_agree *a, const gsp_saved *saved);
void gsp_people_beat(gsp_agree *a);
/* The newest certificate is applied: a joiner tells the next proposers. */
void gsp_people_applied(gsp_agree *a);
void gsp_people_tick(gsp_agree *a);
/* While there is no quorum: how long until I go on by myself. */
uint64_t gsp_people_fork_in_ns(const gsp_agree *a);
void gsp_people_reset(gsp_agree *a);

/* agree_rules.c */
/* Fills in the weights: by tokens (gsp_weigh), and 0 for a member whose last `against_rounds`
 * contributions leant backwards, as long as those members are fewer than the others. */
void gsp_rules_weigh(const gsp_agree *a, gsp_contributor *contributor, uint32_t n);
/* Whether somebody waits who would enter with the next certificate. */
bool gsp_rules_joiner_ready(const gsp_agree *a);
/* Fills in next, missed and against of a proposal whose parts are filled in. */
void gsp_rules_next(const gsp_agree *a, uint32_t promised, gsp_proposal *proposal);
/* NULL, or what is wrong with a BEGIN. */
const char *gsp_rules_begin_wrong(const gsp_agree *a, const gsp_begin *begin);
/* C(v-1)'s totals, plus tokens and samples of the contributors that were included in any part; of
 * samples at most the weight: nobody moves the schedule further than it moves the anchor. */
void gsp_rules_totals(const gsp_agree *a, const gsp_proposal *proposal, uint64_t *tokens,
                      uint64_t *samples);

#endif
