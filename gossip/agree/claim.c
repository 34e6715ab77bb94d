/*
 * Owns what a claim is and when it is a lie. Its one idea: the owner's seal covers the roots of
 * what it summed, so a claim and the bytes under those roots are all that a judge needs. It refuses
 * claims that state what no honest owner can, and claims that the owner did not sign.
 */
#include "gossip/agree/claim.h"

#include "gossip/agree/round.h"

#include <math.h>
#include <string.h>

/* What an honest owner checked of the BEGIN that it summed for (gsp_rules_begin_wrong). */
static const char *contributors_wrong(const gsp_claim *c)
{
    for (uint32_t i = 0; i < c->n_contributors; i++) {
        const gsp_contributor *k = &c->contributor[i];
        if (k->member >= GSP_MEMBERS_MAX || (i > 0 && k->member <= c->contributor[i - 1].member))
            return "contributors are not ascending members";
        if (gsp_hash_none(&k->root) || k->tokens == 0 || k->tokens > GSP_TOKENS_MAX ||
            k->samples > GSP_TOKENS_MAX || k->weight > k->tokens)
            return "a contribution without content, or beyond belief";
    }
    return NULL;
}

/* The contributors are right, so no sum of their weights wraps. */
static const char *part_wrong(const gsp_claim *c)
{
    const gsp_part *p = &c->part;
    uint32_t all = c->n_contributors >= 32 ? UINT32_MAX : (1u << c->n_contributors) - 1;
    if (p->included == 0 || (p->included & ~all) || gsp_hash_none(&p->hash))
        return "a part of nobody's contributions";
    if (p->weight == 0 ||
        p->weight != gsp_included_weight(c->contributor, c->n_contributors, p->included))
        return "weights that do not add up";
    if (!isfinite(p->norm) || signbit(p->norm))
        return "a norm that is not a number";
    for (uint32_t i = 0; i < GSP_MEMBERS_MAX; i++)
        if (!(p->included >> i & 1) && p->lean[i] != 0)
            return "a lean of a contribution that is not included";
    return NULL;
}

const char *gsp_claim_wrong(const gsp_seals *seals, const gsp_hash *lineage, uint32_t n_parts,
                            const gsp_claim *c)
{
    gsp_hash contributors;
    gsp_statement said;
    if (c->version == 0 || c->number >= n_parts || c->n_contributors == 0 ||
        c->n_contributors > GSP_MEMBERS_MAX || c->owner.incarnation == 0)
        return "numbers that cannot be";
    const char *wrong = contributors_wrong(c);
    if (!wrong)
        wrong = part_wrong(c);
    if (wrong)
        return wrong;
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
