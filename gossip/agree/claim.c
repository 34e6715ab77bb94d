/*
 * Owns what a claim is and when it is a lie. Its one idea: the owner's seal covers the roots of
 * what it summed, so a claim and the bytes under those roots are all that a judge needs. It refuses
 * claims that the owner did not sign.
 */
#include "gossip/agree/claim.h"

#include <string.h>

const char *gsp_claim_wrong(const gsp_seals *seals, const gsp_hash *lineage, uint32_t n_parts,
                            const gsp_claim *c)
{
    gsp_hash contributors;
    gsp_statement said;
    if (c->version == 0 || c->number >= n_parts || c->n_contributors == 0 ||
        c->n_contributors > GSP_MEMBERS_MAX)
        return "numbers that cannot be";
    uint32_t all = c->n_contributors >= 32 ? UINT32_MAX : (1u << c->n_contributors) - 1;
    if (c->part.included == 0 || (c->part.included & ~all) || gsp_hash_none(&c->part.hash))
        return "a part of nobody's contributions";
    gsp_contributors_hash(seals, c->contributor, c->n_contributors, &contributors);
    gsp_reduced_statement(seals, lineage, c->version, c->number, &c->part, &contributors, &c->owner,
                          &said);
    return gsp_statement_verify(seals, &said) ? NULL : "a part that its owner did not sign";
}

gsp_verdict gsp_claim_judge(const gsp_claim *c, const gsp_part *made)
{
    const gsp_part *said = &c->part;
    bool same = made && gsp_hash_equal(&said->hash, &made->hash) &&
                said->included == made->included && said->weight == made->weight &&
                memcmp(&said->norm, &made->norm, sizeof said->norm) == 0;
    for (uint32_t i = 0; same && i < GSP_MEMBERS_MAX; i++)
        same = !(said->included >> i & 1) || said->lean[i] == made->lean[i];
    return same ? GSP_VERDICT_RIGHT : GSP_VERDICT_LIE;
}

bool gsp_claim_of(const gsp_certificate *certificate, const gsp_roster *roster, uint32_t number,
                  gsp_claim *out)
{
    const gsp_proposal *p = &certificate->proposal;
    if (number >= p->n_parts || gsp_hash_none(&p->part[number].hash) ||
        p->part[number].owner >= roster->n)
        return false;
    memset(out, 0, sizeof *out);
    out->version = p->version;
    out->owner = roster->member[p->part[number].owner];
    out->number = number;
    out->part = p->part[number];
    out->n_contributors = p->n_contributors;
    memcpy(out->contributor, p->contributor, sizeof out->contributor);
    return true;
}
