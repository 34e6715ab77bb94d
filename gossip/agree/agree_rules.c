/*
 * Owns what is right by this member's own view: rosters that follow from promises, who may enter and
 * who has left, my own contribution. Its one idea: the proposer and every voter run the same code on
 * the same facts. It refuses to trust a proposer's word for anything that can be recomputed; what a
 * proposal must be by itself is proposal.c's.
 */
#include "gossip/agree/agree_inner.h"

#include "gossip/agree/kept_out.h"

static uint32_t barred_versions(const gsp_agree *a)
{
    return gsp_kept_out_versions(a->rules.withheld_ns, a->rules.time_due_ns);
}

/* Nobody has banned it since it asked. What it shows was checked then. */
static bool may_enter(const gsp_agree *a, const gsp_waiting *w)
{
    if (gsp_people_banned(a, &w->who.key) ||
        gsp_kept_out_left(&a->certificate.proposal, &w->who.key))
        return false;
    return !a->rules.admits || a->rules.admits(a->rules.context, &w->who.key, NULL, a->now_ns);
}

/* For how many versions in a row member i of the roster has been silent, this one included. */
static uint32_t missed_now(const gsp_agree *a, uint32_t promised, uint32_t i)
{
    uint32_t before = a->certificate.proposal.missed[i];
    return promised >> i & 1 ? 0 : before < 255 ? before + 1 : 255;
}

static void insert(gsp_proposal *p, const gsp_member *who, uint32_t missed)
{
    uint32_t at = p->next.n;
    for (; at > 0 && gsp_key_compare(&p->next.member[at - 1].key, &who->key) > 0; at--) {
        p->next.member[at] = p->next.member[at - 1];
        p->missed[at] = p->missed[at - 1];
    }
    p->next.member[at] = *who;
    p->missed[at] = (uint8_t)missed;
    p->next.n++;
}

/* The joiner is heard as the incarnation that asked. */
static bool waits(const gsp_agree *a, const gsp_waiting *w)
{
    return gsp_people_answers(a, &w->who) && a->now_ns - w->heard_ns <= a->rules.dead_ns &&
           may_enter(a, w);
}

/* It asked in time: it holds the anchor of version v - 1. */
static bool ready(const gsp_agree *a, const gsp_waiting *w)
{
    return gsp_entry_is_now(a, &w->entry) && waits(a, w);
}

static bool has_place(const gsp_agree *a, const gsp_member *who)
{
    const gsp_roster *now = gsp_agree_roster(a);
    uint32_t i = gsp_roster_find_key(now, &who->key);
    return i == GSP_NOBODY ? now->n < GSP_MEMBERS_MAX
                           : who->incarnation > now->member[i].incarnation;
}

bool gsp_rules_joiner_ready(const gsp_agree *a)
{
    for (uint32_t k = 0; k < a->n_waiting; k++)
        if (has_place(a, &a->waiting[k].who) && ready(a, &a->waiting[k]))
            return true;
    return false;
}

bool gsp_rules_joiner_lags(const gsp_agree *a)
{
    for (uint32_t k = 0; k < a->n_waiting; k++) {
        const uint64_t version = a->waiting[k].entry.wish.version;
        if (version < a->certified && version + GSP_REPLAY_MAX >= a->certified &&
            has_place(a, &a->waiting[k].who) && waits(a, &a->waiting[k]))
            return true;
    }
    return false;
}

/* Members that left, or are convicted by their own words: others are shown that. A ban by an audit is
 * not to be shown in a message; promises name it, and it counts once enough members know. */
static uint32_t shown(const gsp_agree *a)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < gsp_agree_roster(a)->n; i++)
        bits |= (a->left >> i & 1) && a->gone[i].first.kind ? 1u << i : 0;
    return bits;
}

void gsp_rules_next(const gsp_agree *a, uint32_t promised, uint32_t out, gsp_proposal *p)
{
    const gsp_roster *now = gsp_agree_roster(a);
    uint32_t gone = out | shown(a);
    gsp_roster replaced = {0};
    memset(&p->next, 0, sizeof p->next);
    memset(p->missed, 0, sizeof p->missed);
    memset(p->against, 0, sizeof p->against);
    uint32_t joined = 0;
    /* First those that come back with a new incarnation: each takes its own place. */
    for (uint32_t k = 0; k < a->n_waiting && replaced.n < GSP_MEMBERS_MAX; k++) {
        uint32_t i = gsp_roster_find_key(now, &a->waiting[k].who.key);
        if (i != GSP_NOBODY && !(out >> i & 1) && ready(a, &a->waiting[k]) &&
            a->waiting[k].who.incarnation > now->member[i].incarnation)
            replaced.member[replaced.n++] = a->waiting[k].who;
    }
    for (uint32_t i = 0; i < now->n; i++) {
        uint32_t back = gsp_roster_find_key(&replaced, &now->member[i].key);
        if (back != GSP_NOBODY)
            insert(p, &replaced.member[back], 0);
        else if (!(gone >> i & 1) && missed_now(a, promised, i) < a->rules.silent_rounds)
            insert(p, &now->member[i], missed_now(a, promised, i));
    }
    for (uint32_t k = 0; k < a->n_waiting && p->next.n < GSP_MEMBERS_MAX &&
                         joined < gsp_joiners_max(gsp_agree_roster(a));
         k++) {
        const gsp_waiting *w = &a->waiting[k];
        if (!ready(a, w) || gsp_roster_find_key(now, &w->who.key) != GSP_NOBODY)
            continue;
        insert(p, &w->who, 0);
        joined++;
    }
    if (p->next.n == 0) /* the last one cannot leave its own lineage */
        for (uint32_t i = 0; i < now->n; i++)
            insert(p, &now->member[i], missed_now(a, promised, i));
    gsp_kept_out_next(&a->certificate.proposal, out, barred_versions(a), p);
    for (uint32_t i = 0; i < p->next.n; i++)
        p->against[i] =
            gsp_proposal_against(&a->rules, &a->certificate.proposal, p, &p->next.member[i].key);
    p->since = a->certificate.proposal.made;
    p->made = gsp_roster_equal(now, &p->next) ? p->since : a->certified + 1;
}

const char *gsp_rules_brought_wrong(const gsp_agree *a, uint32_t i, uint64_t tokens,
                                    uint64_t samples)
{
    const gsp_rules *r = &a->rules;
    const char *wrong = gsp_brought_wrong(r, &a->certificate.proposal, tokens, samples);
    if (wrong || !r->lease)
        return wrong;
    uint64_t lease = r->lease(r->lease_context, a->certified + 1, gsp_agree_roster(a)->n, i);
    return lease == samples || lease == UINT64_MAX ? NULL : "other samples than were leased";
}

/* What each brings is what it was leased, and my own contribution is what I froze. */
static const char *brought_wrong(const gsp_agree *a, const gsp_contributor *c, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const char *wrong = gsp_rules_brought_wrong(a, c[i].member, c[i].tokens, c[i].samples);
        if (wrong)
            return wrong;
        if (c[i].member == a->self_i && a->frozen == GSP_FROZEN &&
            (!gsp_hash_equal(&c[i].root, &a->contribution.root) ||
             c[i].tokens != a->contribution.tokens || c[i].samples != a->contribution.samples))
            return "that is not what I contributed";
    }
    return NULL;
}

const char *gsp_rules_begin_wrong(const gsp_agree *a, const gsp_begin *b)
{
    if (!gsp_hash_equal(&b->previous, &a->previous))
        return "it follows another certificate";
    if (b->n_parts != a->rules.n_parts)
        return "another number of parts";
    for (uint32_t p = 0; p < b->n_parts; p++)
        if (b->owner[p] != GSP_NOBODY && b->owner[p] >= gsp_agree_roster(a)->n)
            return "an owner that is not a member";
    const char *wrong = gsp_contributors_wrong(&a->rules, &a->certificate.proposal, b->contributor,
                                               b->n_contributors);
    return wrong ? wrong : brought_wrong(a, b->contributor, b->n_contributors);
}

/* Every member of the roster is kept with the right count, or is gone for a reason that I know or am
 * shown. */
static const char *kept_wrong(const gsp_agree *a, const gsp_proposal *p, const gsp_changes *changes,
                              uint32_t promised, uint32_t out)
{
    const gsp_roster *now = gsp_agree_roster(a);
    uint32_t barred;
    if (gsp_kept_out_wrong(&a->certificate.proposal, barred_versions(a), p, &barred) ||
        barred != out)
        return "members that must go and stay, or go without a reason";
    for (uint32_t i = 0; i < now->n; i++) {
        uint32_t at = gsp_roster_find_key(&p->next, &now->member[i].key);
        uint32_t missed = missed_now(a, promised, i);
        if (at == GSP_NOBODY) {
            if (missed < a->rules.silent_rounds && !((a->left | out) >> i & 1) &&
                !gsp_changes_excuse(a, changes, i))
                return "a member taken off the roster without a reason";
        } else if (p->next.member[at].incarnation == now->member[i].incarnation &&
                   p->missed[at] != missed) {
            return "a count of silent rounds that is not right";
        }
    }
    return NULL;
}

const char *gsp_proposal_wrong(const gsp_agree *a, const gsp_proposal *p,
                               const gsp_changes *changes, uint32_t promised, uint32_t out)
{
    if (!gsp_hash_equal(&p->previous, &a->previous))
        return "it follows another certificate";
    const char *wrong =
        gsp_proposal_invalid(&a->rules, &a->seals, &a->certificate.proposal, p, &a->round);
    if (!wrong)
        wrong = brought_wrong(a, p->contributor, p->n_contributors);
    if (!wrong)
        wrong = gsp_changes_wrong(a, p, changes);
    return wrong ? wrong : kept_wrong(a, p, changes, promised, out);
}
