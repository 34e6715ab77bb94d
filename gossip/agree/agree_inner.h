/*
 * What the files of the agreement share; nobody else includes it, but its tests.
 *
 *   agree.c             events in, actions out
 *   agree_view.c        when a version is due, which ballot is on, who proposes
 *   agree_propose.c     a proposer's side of a ballot
 *   agree_vote.c        a voter's side, and certificates
 *   agree_people.c      peers, joiners, goodbyes
 *   agree_lineage.c     which lineage to follow, and when to begin one
 *   agree_bans.c        who is banned, evidence, what it costs its sender
 *   agree_audit.c       checking what owners say
 *   agree_withheld.c    members that withhold what they contributed, and who must go
 *   agree_rules.c       what a proposal must be by my own view (by itself: proposal.h)
 *   agree_proof.c       what shows that something was proposed
 *   agree_changes.c     why a roster changes
 *   agree_invariants.c  what is always true of the state
 *
 * They call each other in a circle, because one member is proposer, voter and witness at once: its
 * own promise is a message to itself, and a vote may end a version, which begins the next one. All
 * of them work on the one struct gsp_agree, one event at a time.
 */
#ifndef GOSSIP_AGREE_AGREE_INNER_H
#define GOSSIP_AGREE_AGREE_INNER_H

#include "gossip/agree/agree.h"
#include "gossip/agree/proposal.h"

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
/* How long contributions and results travel: twice a fragment, by the lowest rate that a member
 * states, those aside that may be lies. 0: not known. */
uint64_t gsp_view_travel_ns(const gsp_agree *a);
/* How long to wait for as few members as may all be liars, where the others took `others_ns`. A
 * ballot has as much time as former ones took, so whoever always comes at its very end would get
 * ever more; what others need for the same thing is not its to stretch
 * (docs/design/pool.md#ballots). */
uint64_t gsp_view_patience_ns(const gsp_agree *a, uint64_t others_ns);
/* How long a ballot may take. */
uint64_t gsp_view_timeout_ns(const gsp_agree *a, uint32_t ballot);
/* A certificate came, and its roster is still this one: who had claimed to bring something and is not
 * in it is not believed for some versions where it says so (docs/design/pool.md#leases-by-speed). */
void gsp_view_doubt(gsp_agree *a, const gsp_proposal *proposal);
/* Whether the next version is wanted now. */
bool gsp_view_due(const gsp_agree *a);
/* So many members rest (resting) that no clipped sum has enough contributors for a step; missing: how
 * many more must go on. */
bool gsp_view_too_few_work(const gsp_agree *a, uint32_t *resting, uint32_t *missing);
/* From now on this ballot is on. */
void gsp_view_set(gsp_agree *a, uint32_t view);
void gsp_view_tick(gsp_agree *a);

/* agree_invariants.c */
/* What a step may only let grow, as it was before the step. */
typedef struct gsp_before {
    gsp_hash lineage, root; /* root: of my frozen contribution */
    uint64_t incarnation, now_ns, certified, applied;
    uint32_t promised, echoed, voted;
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
/* Echoes what is pending, if it may, and votes for it once a quorum has echoed it and all results
 * are here. */
void gsp_vote_try(gsp_agree *a);
/* Somebody's echo or vote. */
void gsp_vote_count(gsp_agree *a, const gsp_statement *statement);
/* Repeats my echo to those who have not voted. */
void gsp_vote_tick(gsp_agree *a);
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
void gsp_audit_done(gsp_agree *a, const gsp_event *event);
/* News of inputs, for an audit here or for somebody who complained. */
void gsp_audit_inputs(gsp_agree *a, const gsp_event *event);
void gsp_audit_tick(gsp_agree *a);

/* agree_withheld.c */
/* How long a member that has a link may take to give a part. */
uint64_t gsp_withheld_patience_ns(const gsp_agree *a);
/* The certificate is new, and `roster` is that of its version. */
void gsp_withheld_note(gsp_agree *a, const gsp_roster *roster);
/* Somebody lacks contributions. */
void gsp_withheld_heard(gsp_agree *a, const gsp_message *message);
/* I lack these contributions: says so to the roster. */
void gsp_withheld_said(gsp_agree *a, uint64_t version, uint32_t part, uint32_t missing);
/* Contributions that came, which ends their makers' count, and some that did not. */
void gsp_withheld_inputs(gsp_agree *a, uint64_t version, uint32_t came, uint32_t missing);
/* Bits of the roster: members that I count, or that are banned here. My promises name them. */
uint32_t gsp_withheld_bits(gsp_agree *a);
/* Bits of the roster: members that more of these promises name than can be lies. The roster after
 * a proposal made on them is without those. */
uint32_t gsp_withheld_out(const gsp_agree *a, const gsp_statement *promise, uint32_t n);

/* agree_proof.c */
/* Whether these are a quorum's promises for `ballot`, each sealed, of which the highest vote is for
 * `subject`. Returns their bits, 0 when something is wrong; *highest: that vote's ballot, or 0. */
uint32_t gsp_proof_promises(const gsp_agree *a, const gsp_statement *promise, uint32_t n,
                            uint32_t ballot, const gsp_hash *subject, uint32_t *highest);
/*
 * Whether the promises justify echoing the proposal in `ballot`: it keeps the rules of
 * gsp_proposal_wrong, and the contributors are those who promised to bring something. If a promise
 * tells of a vote, the proof is judged instead. NULL, or what is wrong.
 */
const char *gsp_proof_ballot_wrong(const gsp_agree *a, const gsp_propose *propose, uint32_t ballot);
/* Whether a quorum echoed the proposal, whose hash is `subject`, in ballot `voted`; and whether it
 * is right by itself. */
const char *gsp_proof_wrong(const gsp_agree *a, const gsp_proposal *proposal,
                            const gsp_hash *subject, uint32_t voted, const gsp_proof *proof);
/* Bits of those whose echo of this proposal in this ballot is here; appends them to *out, unless
 * that is NULL. */
uint32_t gsp_proof_make(const gsp_agree *a, uint32_t ballot, const gsp_hash *subject,
                        gsp_proof *out);

/* agree_changes.c */
/* NULL, or why a joiner may not be let in with this entry, whenever its wish was made. */
const char *gsp_entry_wrong(const gsp_agree *a, const gsp_member *who, const gsp_entry *entry);
/* It was made for the newest certificate: its author holds that version and wants to enter now. */
bool gsp_entry_is_now(const gsp_agree *a, const gsp_entry *entry);
/* The reasons for the next roster of a proposal made here. */
void gsp_changes_make(const gsp_agree *a, const gsp_proposal *p, gsp_changes *out);
/* NULL, or what is wrong with those that are new. */
const char *gsp_changes_wrong(const gsp_agree *a, const gsp_proposal *p, const gsp_changes *c);
/* Whether they show that member i of the roster left or is convicted. */
bool gsp_changes_excuse(const gsp_agree *a, const gsp_changes *c, uint32_t i);
/* I have not heard of all that left. */
void gsp_changes_learn(gsp_agree *a, const gsp_changes *c);

/* agree_people.c */
/* NULL: not known. */
gsp_peer *gsp_people_find(gsp_agree *a, const gsp_key *key);
const gsp_peer *gsp_people_look(const gsp_agree *a, const gsp_key *key);
/* Also makes room for a new one, in the place of the peer without a link that was heard least
 * recently. NULL: all have links. */
gsp_peer *gsp_people_add(gsp_agree *a, const gsp_key *key);
/* This very incarnation was heard lately, and in my lineage; or it is me. */
bool gsp_people_answers(const gsp_agree *a, const gsp_member *who);
/* Member i of the roster answers and has not said goodbye. */
bool gsp_people_alive(const gsp_agree *a, uint32_t i);
/* Member i answers. One that said goodbye is not waited for, but may still have to vote for the
 * certificate that lets it go. */
bool gsp_people_votes(const gsp_agree *a, uint32_t i);
uint32_t gsp_people_alive_bits(const gsp_agree *a);
/* Takes one from the peer's budget of answers; false: it has asked enough in this second. */
bool gsp_people_may_answer(gsp_agree *a, const gsp_key *key);
/* The peer lacks C(version), which is certified here: sends it, or the newest one where that is kept
 * no more, unless the peer has asked for it too often. */
void gsp_people_show(gsp_agree *a, const gsp_key *key, uint64_t version);
void gsp_people_heartbeat(gsp_agree *a, const gsp_message *message);
void gsp_people_join(gsp_agree *a, const gsp_message *message);
void gsp_people_leave(gsp_agree *a, const gsp_statement *statement);
/* Asks a peer for the next certificate. */
void gsp_people_ask(gsp_agree *a, const gsp_key *peer);
void gsp_people_beat(gsp_agree *a);
/* The newest certificate is applied: a joiner tells the next proposers. */
void gsp_people_applied(gsp_agree *a);
void gsp_people_tick(gsp_agree *a);

/* agree_lineage.c */
/* A heartbeat came: its sender may be where I should be. */
void gsp_follow_heard(gsp_agree *a, const gsp_peer *peer);
/* The peer is too far ahead in my lineage for certificates one by one. */
void gsp_follow_far(gsp_agree *a, const gsp_key *peer);
void gsp_follow_chain(gsp_agree *a, const gsp_key *peer, const gsp_match *match);
void gsp_follow_state(gsp_agree *a, const gsp_saved *saved, const gsp_match *match);
/* A genesis, announced or to be signed; a signature. */
void gsp_follow_announced(gsp_agree *a, const gsp_message *message);
void gsp_follow_consent(gsp_agree *a, const gsp_message *message);
void gsp_follow_tick(gsp_agree *a);
/* While there is no quorum: how long until I go on without one. */
uint64_t gsp_follow_fork_in_ns(const gsp_agree *a);
void gsp_follow_reset(gsp_agree *a);

/* agree_bans.c */
/* What a sender's evidence may cost before it is not listened to for a while. */
enum {
    GSP_COST_FALSE = 4, /* of what proves nothing, or that nobody signed */
    GSP_COST_OPEN = 1,  /* of what could not be checked, since nobody gave the bytes */
    GSP_COST_MAX = 8,
};
bool gsp_people_banned(const gsp_agree *a, const gsp_key *key);
/* Whether the key is on my roster, was on the one before, or waits with an admission: evidence
 * about others is not looked at. */
bool gsp_people_concerns(const gsp_agree *a, const gsp_key *key);
/* The key is off the roster with the next certificate, and not on it again. In a full table the
 * oldest ban of a key that does not concern anybody makes room. */
void gsp_people_ban(gsp_agree *a, const gsp_key *key);
/* Bans the signer, and tells everybody, if the two statements convict it. */
void gsp_people_accuse(gsp_agree *a, const gsp_statement *first, const gsp_statement *second);
/* Somebody else's EVIDENCE. */
void gsp_people_evidence(gsp_agree *a, const gsp_message *message);
void gsp_people_blame(gsp_agree *a, const gsp_key *key, uint32_t cost);
/* False: what the peer said before has cost too much. */
bool gsp_people_heeded(gsp_agree *a, const gsp_key *key);

/* agree_rules.c */
/* Whether somebody waits who would enter with the next certificate. */
bool gsp_rules_joiner_ready(const gsp_agree *a);
/* Whether somebody waits who would enter, but asked after one of the versions before: it follows, and has
 * not applied the newest one yet, or its next word is on its way. */
bool gsp_rules_joiner_lags(const gsp_agree *a);
/* Fills in next, missed and against of a proposal whose parts are filled in. out:
 * gsp_withheld_out. */
void gsp_rules_next(const gsp_agree *a, uint32_t promised, uint32_t out, gsp_proposal *proposal);
/* NULL, or why member i cannot bring that much to the version in progress. */
const char *gsp_rules_brought_wrong(const gsp_agree *a, uint32_t i, uint64_t tokens,
                                    uint64_t samples);
/* NULL, or what is wrong with a BEGIN. */
const char *gsp_rules_begin_wrong(const gsp_agree *a, const gsp_begin *begin);

#endif
