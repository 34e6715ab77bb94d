/*
 * What a proposal must be, as far as it can be told from the proposal before it alone
 * (docs/design/pool.md#rules): contributors, weights, parts, totals, and that the next roster goes
 * on from this one. Proposers fill proposals in by these functions, voters check them, and so does
 * everybody that takes a certificate. What needs one's own view (promises, admissions, who left) is
 * agree_rules.c's.
 *
 * `before` is the proposal of C(v - 1), whose `next` is R(v); before a lineage's first certificate
 * it is made up from the genesis (agree.h).
 *
 * Thread: any. Errors: text that says what is wrong, or NULL. Nothing is allocated.
 */
#ifndef GOSSIP_AGREE_PROPOSAL_H
#define GOSSIP_AGREE_PROPOSAL_H

#include "gossip/agree/agree.h"

enum { GSP_AGAINST_EACH = 8 }; /* where gsp_rules_drifts: of gsp_rules.against_rounds */

/* Whether anybody may bring so much to one version: 1 <= samples <= rules->samples_max and
 * 1 <= tokens <= samples x rules->tokens_per_sample, both at most GSP_TOKENS_MAX. */
const char *gsp_contribution_wrong(const gsp_rules *rules, uint64_t tokens, uint64_t samples);
/* The same for a version after `before`. Where pieces of a sum are clipped, it has all tokens of its
 * samples: samples x rules->tokens_per_sample. */
const char *gsp_brought_wrong(const gsp_rules *rules, const gsp_proposal *before, uint64_t tokens,
                              uint64_t samples);
/* Takes away of an own contribution what nobody would believe. */
void gsp_contribution_clip(const gsp_rules *rules, const gsp_proposal *before,
                           gsp_contribution *contribution);

/* Fills in the weights of contributors that are indices into R(v): by tokens (gsp_weigh, or exactly
 * where they are summed and not clipped), and 0 for a member whose last `against_rounds` contributions leant
 * backwards, as long as those members are fewer than the others. */
void gsp_proposal_weigh(const gsp_rules *rules, const gsp_proposal *before,
                        gsp_contributor *contributor, uint32_t n);
/* Whether what member i of before->next brings next weighs nothing, unless most are like it. */
bool gsp_proposal_mutes(const gsp_rules *rules, const gsp_proposal *before, uint32_t i);
/*
 * Tokens and samples of the contributors that were included in any part: what a version adds to the
 * totals. Nobody moves the schedule further than it moves the anchor: tokens are weights, and samples
 * are at most twice the lower median of the contributors' (exactly theirs where they are summed), and
 * at most the weight. sums: gsp_rules_sums of the version.
 */
void gsp_proposal_adds(bool sums, const gsp_proposal *p, uint64_t *tokens, uint64_t *samples);
/* C(v-1)'s totals, and what this version adds. */
void gsp_proposal_totals(const gsp_rules *rules, const gsp_proposal *before, const gsp_proposal *p,
                         uint64_t *tokens, uint64_t *samples);
/* How many contributions of a key in a row have leant backwards, this version included. A member
 * that brings nothing keeps its count. Where pieces of a sum are clipped: how far it has fallen behind
 * the others by now, up to twice what costs its weight (against_rounds x GSP_AGAINST_EACH). */
uint8_t gsp_proposal_against(const gsp_rules *rules, const gsp_proposal *before,
                             const gsp_proposal *p, const gsp_key *key);
/* How many may enter with one version: as many as there are. A lone founder lets in more than one
 * at a time, or that one would be its only quorum. */
uint32_t gsp_joiners_max(const gsp_roster *roster);

/*
 * What is wrong with contributors of R(v) by themselves: order, bounds, weights.
 */
const char *gsp_contributors_wrong(const gsp_rules *rules, const gsp_proposal *before,
                                   const gsp_contributor *contributor, uint32_t n);
/*
 * What is wrong with a proposal that follows `before`, by itself. That `previous` is the hash of
 * `before` and that a quorum voted for it is gsp_certificate_check's. heard: a round of this version
 * whose words of owners were checked when they came, and need no second look; NULL: none.
 */
const char *gsp_proposal_invalid(const gsp_rules *rules, const gsp_seals *seals,
                                 const gsp_proposal *before, const gsp_proposal *p,
                                 const gsp_round *heard);

#endif
