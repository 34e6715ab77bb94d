/*
 * Audits: others do an owner's sum again, and prove it when the owner lied
 * (docs/design/pool.md#hostile-members).
 *
 * What an owner says of a part (gsp_part, sealed) names the contributions that it summed by their
 * Merkle roots. So anybody who gets the bytes can check it, and nobody needs to be believed: if the
 * bytes hash to those roots and combining them (mix.h) gives another result, the owner lied. That
 * is all the evidence there is. A contribution that an owner left out proves nothing: it may not
 * have arrived.
 *
 * Who checks what: after every certificate each member draws parts of others by a secret of its own
 * (its seal over the certificate), so that all members together look at `audit_percent` of the
 * parts. An owner that lies in k parts of every version stays hidden for n versions with
 * probability (1 - audit_percent / 100)^(k n): at 25 percent and 10 versions that is 5.6 % for one
 * part and 0.3 % for two. The cost for a member, per version, is to fetch and to give about that
 * share of an encoded fragment.
 *
 * An owner whose inputs are withheld, its own or those of others, stays hidden no longer: whoever
 * withholds is off the roster (agree_withheld.c) as soon as a part was drawn and its makers had time
 * to answer twice, 3/4 of a ballot's timeout, in versions that take longer than that about two or
 * three after the one that was drawn.
 *
 * A member that finds a lie tells everybody (ACCUSE); every receiver fetches the same bytes and
 * decides for itself. A false accusation bans nobody, and its author is soon not listened to.
 *
 * Thread: any.
 */
#ifndef GOSSIP_AGREE_CLAIM_H
#define GOSSIP_AGREE_CLAIM_H

#include "gossip/agree/signed.h"

typedef enum gsp_verdict {
    GSP_VERDICT_OPEN,  /* the bytes could not be had, so nobody can tell */
    GSP_VERDICT_RIGHT, /* the owner's word is true */
    GSP_VERDICT_LIE,
} gsp_verdict;

/*
 * What is wrong with a claim itself. NULL: its owner said it, and nothing in it is more than an
 * honest owner can say: contributors ascending by member, each with a root, 1 to GSP_TOKENS_MAX
 * tokens and a weight of at most those; the part's weight is the sum of the included ones; a norm
 * that is a number; leans of the included alone. So whatever is computed from it stays in bounds.
 * Every user of claims asks this first: accusations, audits, files of evidence.
 *
 * Whether the owner is anybody is the caller's question: an accusation is looked into only if it
 * is on a roster that the member knows (agree_audit.c).
 */
const char *gsp_claim_wrong(const gsp_seals *seals, const gsp_hash *lineage, uint32_t n_parts,
                            const gsp_claim *claim);

/* Whether what the owner said is what was made of the same bytes. made: NULL if nothing can be. */
gsp_verdict gsp_claim_judge(const gsp_claim *claim, const gsp_part *made);

/* The claim behind part `number` of a certificate whose version had `roster`. False: that part is
 * unchanged, or its owner is not on the roster. */
ATOM_MUST bool gsp_claim_of(const gsp_certificate *certificate, const gsp_roster *roster,
                            uint32_t number, gsp_claim *out);

#endif
