/*
 * What the files of the agreement share: agree.c (events, timers), agree_propose.c (a proposer's
 * side), agree_vote.c (a voter's side, certificates), agree_people.c (peers, joins, leaves, bans,
 * lineages), agree_rules.c (what is right), agree_proof.c (what was proposed). Nobody else includes
 * it.
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
void gsp_agree_begin_version(gsp_agree *a);
/* Starts from a saved state; sets everything but rules, seals, peers and timers. */
void gsp_agree_settle(gsp_agree *a, const gsp_saved *saved);
gsp_round_sink gsp_agree_round_sink;

/* agree_view.c */
/* The member whose turn it is to propose in a ballot, or GSP_NOBODY in an empty roster. */
uint32_t gsp_view_proposer(const gsp_agree *a, uint32_t ballot);
uint64_t gsp_view_timeout_ns(const gsp_agree *a, uint32_t ballot);
bool gsp_view_due(const gsp_agree *a);
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

/* agree_vote.c */
void gsp_vote_prepare(gsp_agree *a, uint32_t from, uint32_t ballot, const gsp_hash *previous);
void gsp_vote_pay_promise(gsp_agree *a);
void gsp_vote_begin(gsp_agree *a, uint32_t from, uint32_t ballot, const gsp_begin *begin);
void gsp_vote_propose(gsp_agree *a, uint32_t from, const gsp_message *message);
void gsp_vote_try(gsp_agree *a);
void gsp_vote_count(gsp_agree *a, const gsp_statement *vote);
void gsp_vote_certify(gsp_agree *a);
void gsp_vote_certificate(gsp_agree *a, const gsp_message *message);
void gsp_vote_apply(gsp_agree *a);
void gsp_vote_pull(gsp_agree *a);

/* agree_audit.c */
/* C(certified) is applied: draws what to check. */
void gsp_audit_choose(gsp_agree *a);
void gsp_audit_next(gsp_agree *a);
void gsp_audit_accused(gsp_agree *a, const gsp_message *message);
void gsp_audit_done(gsp_agree *a, uint64_t version, uint32_t part, gsp_verdict verdict);
void gsp_audit_tick(gsp_agree *a);

/* agree_proof.c */
/* Promises for `ballot`: a quorum, each sealed, and the highest vote among them is for `subject`.
 * Returns their bits, 0 when something is wrong; *highest: that vote's ballot, 0: there is none. */
uint32_t gsp_proof_promises(const gsp_agree *a, const gsp_statement *promise, uint32_t n,
                            uint32_t ballot, const gsp_hash *subject, uint32_t *highest);
/*
 * Whether the proposal may be voted for, from `ballot` on, that the promises justify: the rules of
 * gsp_proposal_wrong, and each contributor signed for what it is said to have brought. Where a
 * promise tells of a vote, the proof counts instead. NULL or what is wrong.
 */
const char *gsp_proof_ballot_wrong(const gsp_agree *a, const gsp_propose *propose, uint32_t ballot);
/* Likewise of a vote in ballot `voted` for a proposal with the hash `subject`. */
const char *gsp_proof_wrong(const gsp_agree *a, const gsp_proposal *proposal,
                            const gsp_hash *subject, uint32_t voted, const gsp_proof *proof);
/* Who proposed something else in the ballot that I know a proposal of convicts itself. */
void gsp_proof_look(gsp_agree *a, const gsp_proof *proof);
/* The proof of a vote for what was proposed. */
void gsp_proof_of(const gsp_propose *propose, gsp_proof *out);

/* agree_people.c */
gsp_peer *gsp_people_find(gsp_agree *a, const gsp_key *key);
gsp_peer *gsp_people_add(gsp_agree *a, const gsp_key *key);
/* This very incarnation has been heard of late, in my lineage; or it is me. */
bool gsp_people_answers(const gsp_agree *a, const gsp_member *who);
/* Member i of the roster answers, as far as I know; I do. */
bool gsp_people_alive(const gsp_agree *a, uint32_t i);
uint32_t gsp_people_alive_bits(const gsp_agree *a);
/* Takes one from the peer's budget of answers; false: it asked enough for this second. */
bool gsp_people_may_answer(gsp_agree *a, const gsp_key *key);
bool gsp_people_banned(const gsp_agree *a, const gsp_key *key);
/* Off the roster with the next certificate, and never on it again. */
void gsp_people_ban(gsp_agree *a, const gsp_key *key);
void gsp_people_accuse(gsp_agree *a, const gsp_statement *first, const gsp_statement *second);
void gsp_people_heartbeat(gsp_agree *a, const gsp_message *message);
void gsp_people_join(gsp_agree *a, const gsp_message *message);
void gsp_people_leave(gsp_agree *a, const gsp_statement *statement);
void gsp_people_announce(gsp_agree *a, const gsp_genesis *genesis);
void gsp_people_ask(gsp_agree *a, const gsp_key *peer);
void gsp_people_want_state(gsp_agree *a, const gsp_key *peer, const gsp_hash *lineage);
void gsp_people_state(gsp_agree *a, const gsp_saved *saved);
void gsp_people_beat(gsp_agree *a);
/* The newest certificate is applied: a joiner says so to the next proposers. */
void gsp_people_applied(gsp_agree *a);
void gsp_people_tick(gsp_agree *a);
/* While there is no quorum: when I go on by myself. */
uint64_t gsp_people_fork_in_ns(const gsp_agree *a);
void gsp_people_reset(gsp_agree *a);

/* agree_rules.c */
/* Weights by tokens (gsp_weigh); none for who leant backwards in `against_rounds` contributions in
 * a row, as long as those are fewer than the others. */
void gsp_rules_weigh(const gsp_agree *a, gsp_contributor *contributor, uint32_t n);
/* Fills in next, missed and against of a proposal whose parts are filled in. */
/* Whether somebody waits who would enter with the next certificate. */
bool gsp_rules_joiner_ready(const gsp_agree *a);
void gsp_rules_next(const gsp_agree *a, uint32_t promised, gsp_proposal *proposal);
/* What a BEGIN must be; NULL or what is wrong. */
const char *gsp_rules_begin_wrong(const gsp_agree *a, const gsp_begin *begin);
/* Tokens and samples of the contributors that were included anywhere, added to C(v-1)'s; each up to
 * its weight, so that nobody moves the schedule further than it moves the anchor. */
void gsp_rules_totals(const gsp_agree *a, const gsp_proposal *proposal, uint64_t *tokens,
                      uint64_t *samples);

#endif
