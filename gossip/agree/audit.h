/*
 * Audits: an owner's work is done again by others, and a lie is proven
 * (docs/design/pool.md#hostile-members).
 *
 * What an owner says of a part (gsp_part, sealed) names the contributions that it summed by their
 * Merkle roots, so its word can be checked by whoever gets the bytes, and nobody needs to be
 * believed: if they hash to those roots and their combination (mix.h) is another one, the owner
 * lied. That is the whole evidence. What an owner left out proves nothing: it may not have come.
 *
 * Who checks what: after every certificate each member draws parts of others by a secret of its
 * own (its seal over the certificate), so that all members together look at `audit_percent` of the
 * parts. An owner that lies in k parts of every version stays hidden for n versions with the chance
 * (1 - audit_percent / 100)^(k n): with 25 percent 5.6 % for one part and 10 versions, 0.3 % for
 * two. It costs a member about that share of a fragment, encoded, to fetch and to give, per
 * version.
 *
 * Whoever finds a lie says so (ACCUSE); whoever hears it fetches the same bytes and decides for
 * itself. An accusation that is not true bans nobody, and soon its author is not listened to.
 *
 * Thread: any.
 */
#ifndef GOSSIP_AGREE_AUDIT_H
#define GOSSIP_AGREE_AUDIT_H

#include "gossip/agree/lineage.h"

typedef enum gsp_verdict {
    GSP_VERDICT_OPEN,  /* the bytes could not be had */
    GSP_VERDICT_RIGHT, /* the owner's word is true */
    GSP_VERDICT_LIE,
} gsp_verdict;

/* What is wrong with a claim as such: counts, numbers, the owner's seal; NULL: the owner said it.
 */
const char *gsp_claim_wrong(const gsp_seals *seals, const gsp_hash *lineage, uint32_t n_parts,
                            const gsp_claim *claim);

/* Whether what the owner said is what comes out. made: NULL where nothing can come out. */
gsp_verdict gsp_claim_judge(const gsp_claim *claim, const gsp_part *made);

/* The claim behind part `number` of a certificate of a version whose roster was `roster`. False:
 * that part is unchanged, or has no owner. */
ATOM_MUST bool gsp_claim_of(const gsp_certificate *certificate, const gsp_roster *roster,
                            uint32_t number, gsp_claim *out);

#endif
