/*
 * Owns who is banned here, and the evidence that two statements of one member are. Its one idea: a
 * ban is about somebody who takes part, so keys that nobody admitted never get near the table, and
 * what a sender's evidence costs others is charged to the sender. It refuses to ban without a
 * proof, and to forget the ban of a member that is still there.
 */
#include "gossip/agree/agree_inner.h"

enum { FORGIVE_S = 600 }; /* after so long one unit of what a peer has cost is forgotten */

bool gsp_people_banned(const gsp_agree *a, const gsp_key *key)
{
    for (uint32_t i = 0; i < a->n_banned; i++)
        if (gsp_key_compare(&a->banned[i], key) == 0)
            return true;
    return false;
}

bool gsp_people_concerns(const gsp_agree *a, const gsp_key *key)
{
    if (gsp_roster_find_key(gsp_agree_roster(a), key) != GSP_NOBODY ||
        gsp_roster_find_key(&a->audits.roster, key) != GSP_NOBODY)
        return true;
    for (uint32_t k = 0; k < a->n_waiting; k++) /* they showed an admission, or would not wait */
        if (gsp_key_compare(&a->waiting[k].who.key, key) == 0)
            return true;
    return false;
}

void gsp_people_ban(gsp_agree *a, const gsp_key *key)
{
    uint32_t i = gsp_roster_find_key(gsp_agree_roster(a), key), oldest = 0;
    if (gsp_people_banned(a, key) || gsp_key_compare(key, &a->self.key) == 0)
        return;
    if (a->n_banned == GSP_BANNED_MAX) {
        while (gsp_people_concerns(a, &a->banned[oldest]) && oldest + 1 < a->n_banned)
            oldest++;
        a->n_banned--;
        memmove(&a->banned[oldest], &a->banned[oldest + 1],
                (a->n_banned - oldest) * sizeof a->banned[0]);
    }
    a->banned[a->n_banned++] = *key;
    a->stats.bans++;
    if (i != GSP_NOBODY)
        a->left |= 1u << i;
}

/* ---- what evidence costs ---- */

void gsp_people_blame(gsp_agree *a, const gsp_key *key, uint32_t cost)
{
    gsp_peer *p = gsp_people_find(a, key);
    if (!p || p->cost > GSP_COST_MAX)
        return;
    if (p->cost == 0)
        p->cost_ns = a->now_ns;
    p->cost += cost;
}

bool gsp_people_heeded(gsp_agree *a, const gsp_key *key)
{
    gsp_peer *p = gsp_people_find(a, key);
    if (!p)
        return false;
    uint64_t over = (a->now_ns - p->cost_ns) / (FORGIVE_S * 1000000000ull);
    if (p->cost && over) {
        p->cost -= over < p->cost ? (uint32_t)over : p->cost;
        p->cost_ns = a->now_ns;
    }
    return p->cost <= GSP_COST_MAX;
}

void gsp_people_accuse(gsp_agree *a, const gsp_statement *first, const gsp_statement *second)
{
    const gsp_key *key = &first->signer.key;
    if (gsp_people_banned(a, key) || gsp_key_compare(key, &a->self.key) == 0 ||
        !gsp_statements_convict(&a->seals, first, second))
        return;
    gsp_evidence evidence = {.first = *first, .second = *second};
    gsp_people_ban(a, &evidence.first.signer.key);
    uint32_t i = gsp_roster_find_key(gsp_agree_roster(a), &evidence.first.signer.key);
    if (i != GSP_NOBODY)
        a->gone[i] = (gsp_exit){.first = evidence.first, .second = evidence.second};
    a->stats.evidence++;
    gsp_message *m = gsp_agree_compose(a, GSP_EVIDENCE, 0);
    m->version = 0;
    m->as.evidence = evidence;
    gsp_agree_say(a, GSP_TO_ALL, m);
}

void gsp_people_evidence(gsp_agree *a, const gsp_message *m)
{
    const gsp_evidence *e = &m->as.evidence;
    const gsp_key about = e->first.signer.key;
    if (!gsp_people_concerns(a, &about) || gsp_people_banned(a, &about) ||
        gsp_key_compare(&about, &a->self.key) == 0 || !gsp_people_heeded(a, &m->from.key))
        return;
    gsp_people_accuse(a, &e->first, &e->second);
    if (gsp_people_banned(a, &about))
        return;
    a->stats.refused++;
    gsp_people_blame(a, &m->from.key, GSP_COST_FALSE);
}
