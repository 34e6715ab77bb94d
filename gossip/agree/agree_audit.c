/*
 * Owns which parts of others this member checks, whose accusations it looks into, and what follows
 * from a proof. Its one idea: one case at a time, accusations before its own choices, and every
 * verdict is this member's own. It refuses accusations of strangers, of what the accused did not
 * sign, and of accusers that were wrong too often.
 */
#include "gossip/agree/agree_inner.h"

#include <math.h>

/* ---- own choice ---- */

/* The chance with which I draw each part, so that at least one of the n - 1 members that do not own
 * it draws it with audit_percent. */
static double chance(const gsp_agree *a)
{
    double hidden = 1.0 - (double)a->rules.audit_percent / 100.0;
    uint32_t others = a->audits.roster.n > 1 ? a->audits.roster.n - 1 : 1;
    return hidden <= 0 ? 1.0 : 1.0 - pow(hidden, 1.0 / others);
}

void gsp_audit_choose(gsp_agree *a)
{
    gsp_audits *u = &a->audits;
    uint8_t text[8 + GSP_HASH_BYTES + GSP_SEAL_BYTES] = "auditing", number[GSP_HASH_BYTES + 4];
    gsp_hash seed, drawn;
    uint32_t n = 0, self = gsp_roster_find_key(&u->roster, &a->self.key);
    memset(u->todo, 0, sizeof u->todo);
    if (a->rules.audit_percent == 0 || self == GSP_NOBODY || u->version != a->certified)
        return;
    memcpy(text + 8, a->previous.byte, GSP_HASH_BYTES);
    a->seals.seal(a->seals.context, text, 8 + GSP_HASH_BYTES, text + 8 + GSP_HASH_BYTES);
    a->seals.hash(a->seals.context, text, sizeof text, &seed);
    double limit = chance(a) * 4294967296.0;
    for (uint32_t p = 0; p < a->certificate.proposal.n_parts && n < GSP_AUDITS_MAX; p++) {
        const gsp_part *part = &a->certificate.proposal.part[p];
        uint32_t x;
        if (gsp_hash_none(&part->hash) || part->owner == self)
            continue;
        memcpy(number, seed.byte, GSP_HASH_BYTES);
        memcpy(number + GSP_HASH_BYTES, &p, sizeof p);
        a->seals.hash(a->seals.context, number, sizeof number, &drawn);
        memcpy(&x, drawn.byte, sizeof x);
        if ((double)x >= limit)
            continue;
        u->todo[p / 64] |= 1ull << (p % 64);
        n++;
    }
    gsp_audit_next(a);
}

static bool own_choice(gsp_agree *a)
{
    gsp_audits *u = &a->audits;
    if (u->version != a->certified)
        return false; /* a newer version is certified: contributors soon forget this one */
    for (uint32_t p = 0; p < a->certificate.proposal.n_parts; p++) {
        if (!(u->todo[p / 64] >> (p % 64) & 1))
            continue;
        u->todo[p / 64] &= ~(1ull << (p % 64));
        if (gsp_claim_of(&a->certificate, &u->roster, p, &u->claim) &&
            !gsp_people_banned(a, &u->claim.owner.key)) {
            memset(&u->accuser, 0, sizeof u->accuser);
            u->accused = false;
            return true;
        }
    }
    return false;
}

static bool accusation(gsp_agree *a)
{
    gsp_audits *u = &a->audits;
    while (u->n_heard) {
        u->claim = u->heard[0].claim;
        u->accuser = u->heard[0].from;
        u->accused = true;
        u->n_heard--;
        memmove(&u->heard[0], &u->heard[1], u->n_heard * sizeof u->heard[0]);
        if (!gsp_people_banned(a, &u->claim.owner.key))
            return true;
    }
    return false;
}

void gsp_audit_next(gsp_agree *a)
{
    gsp_audits *u = &a->audits;
    if (u->on || (!accusation(a) && !own_choice(a)))
        return;
    u->on = true;
    a->stats.audits++;
    gsp_agree_act(a, (gsp_action){.kind = GSP_DO_AUDIT,
                                  .to = GSP_TO_ONE,
                                  .peer = u->accuser,
                                  .version = u->claim.version,
                                  .part = u->claim.number,
                                  .within_ns = gsp_withheld_patience_ns(a) / 2,
                                  .claim = &u->claim});
}

/* ---- accusations ---- */

static void blame(gsp_agree *a, const gsp_key *accuser, uint32_t cost)
{
    a->stats.false_claims += cost == GSP_COST_FALSE;
    gsp_people_blame(a, accuser, cost);
}

void gsp_audit_accused(gsp_agree *a, const gsp_message *m)
{
    gsp_audits *u = &a->audits;
    const gsp_claim *c = &m->as.accuse.claim;
    if (!gsp_people_concerns(a, &c->owner.key) || gsp_people_banned(a, &c->owner.key) ||
        gsp_key_compare(&c->owner.key, &a->self.key) == 0 || c->version > a->certified)
        return;
    if (!gsp_people_heeded(a, &m->from.key))
        return;
    if (u->on && u->accused && gsp_key_compare(&u->accuser, &m->from.key) == 0)
        return;
    for (uint32_t k = 0; k < u->n_heard; k++)
        if (gsp_key_compare(&u->heard[k].from, &m->from.key) == 0)
            return; /* one of each at a time */
    if (u->n_heard == GSP_ACCUSED_MAX)
        return;
    if (gsp_claim_wrong(&a->seals, &a->lineage, a->rules.n_parts, c)) {
        a->stats.refused++;
        blame(a, &m->from.key, GSP_COST_FALSE);
        return;
    }
    u->heard[u->n_heard].claim = *c;
    u->heard[u->n_heard++].from = m->from.key;
    gsp_audit_next(a);
}

/* ---- proof ---- */

static void say(gsp_agree *a, gsp_to to, const gsp_claim *claim)
{
    gsp_message *m = gsp_agree_compose(a, GSP_ACCUSE, 0);
    m->version = 0;
    m->as.accuse.claim = *claim;
    gsp_agree_say(a, to, m);
}

static void proven(gsp_agree *a, const gsp_claim *claim)
{
    gsp_audits *u = &a->audits;
    if (gsp_key_compare(&claim->owner.key, &a->self.key) == 0 ||
        gsp_people_banned(a, &claim->owner.key))
        return;
    gsp_claim *kept = &u->proven[u->n_proven++ % GSP_PROVEN_MAX];
    *kept = *claim;
    a->stats.lies++;
    gsp_people_ban(a, &kept->owner.key);
    u->said_ns = a->now_ns;
    say(a, GSP_TO_ALL, kept);
}

/* This audit is under way by my own choice. */
static bool mine(const gsp_agree *a, const gsp_event *e)
{
    const gsp_audits *u = &a->audits;
    return u->on && !u->accused && u->claim.version == e->version && u->claim.number == e->part;
}

void gsp_audit_inputs(gsp_agree *a, const gsp_event *e)
{
    if (gsp_key_compare(&e->peer, &a->self.key) != 0)
        gsp_withheld_inputs(a, e->version, e->included, e->withheld);
    else if (mine(a, e)) /* what does not come from others either counts when the case ends */
        gsp_withheld_said(a, e->version, e->part, e->withheld & a->audits.claim.part.included);
}

void gsp_audit_done(gsp_agree *a, const gsp_event *e)
{
    gsp_audits *u = &a->audits;
    gsp_verdict verdict = e->verdict;
    if (!u->on || u->claim.version != e->version || u->claim.number != e->part)
        return;
    if (mine(a, e) && verdict == GSP_VERDICT_OPEN)
        gsp_withheld_inputs(a, e->version, 0, e->withheld & u->claim.part.included);
    u->on = false;
    if (verdict == GSP_VERDICT_LIE)
        proven(a, &u->claim);
    else if (u->accused)
        blame(a, &u->accuser, verdict == GSP_VERDICT_RIGHT ? GSP_COST_FALSE : GSP_COST_OPEN);
    a->stats.audits_open += verdict == GSP_VERDICT_OPEN;
    gsp_audit_next(a);
}

/* As long as a proven liar is on my roster, some member may not have heard of it. */
void gsp_audit_tick(gsp_agree *a)
{
    gsp_audits *u = &a->audits;
    uint32_t n = u->n_proven < GSP_PROVEN_MAX ? u->n_proven : GSP_PROVEN_MAX;
    if (n == 0 || a->now_ns - u->said_ns < 2 * a->rules.heartbeat_ns)
        return;
    u->said_ns = a->now_ns;
    for (uint32_t k = 0; k < n; k++)
        if (gsp_roster_find_key(gsp_agree_roster(a), &u->proven[k].owner.key) != GSP_NOBODY)
            say(a, GSP_TO_ROSTER, &u->proven[k]);
}
