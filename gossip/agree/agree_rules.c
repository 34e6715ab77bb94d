/*
 * Owns what is right: rosters that follow from promises, weights that add up, proposals that a
 * voter may vote for. Its one idea: the proposer and every voter run the same code on the same
 * facts. It refuses to trust a proposer's word for anything that can be recomputed.
 */
#include "gossip/agree/agree_inner.h"

#include <math.h>

static bool may_enter(const gsp_agree *a, const gsp_member *who)
{
    if (gsp_people_banned(a, &who->key) || who->incarnation == 0)
        return false;
    return !a->rules.admitted || a->rules.admitted(a->rules.context, &who->key);
}

/* For how many versions in a row member i of the roster has been silent, this one included. */
static uint32_t missed_now(const gsp_agree *a, uint32_t promised, uint32_t i)
{
    uint32_t before = a->certificate.proposal.missed[i];
    return promised >> i & 1 ? 0 : before < 255 ? before + 1 : 255;
}

/* How many contributions of a key in a row have leant backwards, this version included. A member
 * that brings nothing keeps its count. */
static uint8_t against_now(const gsp_agree *a, const gsp_proposal *p, const gsp_key *key)
{
    uint32_t i = gsp_roster_find_key(gsp_agree_roster(a), key), c = 0;
    if (i == GSP_NOBODY)
        return 0;
    uint8_t before = a->certificate.proposal.against[i];
    while (c < p->n_contributors && p->contributor[c].member != i)
        c++;
    int32_t lean = 0;
    bool brought = false;
    for (uint32_t k = 0; c < p->n_contributors && k < p->n_parts; k++) {
        if (p->part[k].included >> c & 1) {
            lean += p->part[k].lean[c];
            brought = true;
        }
    }
    if (!brought)
        return before;
    return lean >= 0 ? 0 : before < 255 ? (uint8_t)(before + 1) : before;
}

void gsp_rules_weigh(const gsp_agree *a, gsp_contributor *contributor, uint32_t n)
{
    uint32_t limit = a->rules.against_rounds, backwards = 0;
    const uint8_t *against = a->certificate.proposal.against;
    gsp_weigh(contributor, n);
    for (uint32_t i = 0; a->rules.summed && i < n; i++)
        contributor[i].weight = contributor[i].tokens;
    for (uint32_t i = 0; limit && i < n; i++)
        backwards += against[contributor[i].member] >= limit;
    for (uint32_t i = 0; 2 * backwards < n && limit && i < n; i++)
        if (against[contributor[i].member] >= limit)
            contributor[i].weight = 0;
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

/* A lone founder lets in more than one at a time, or that one would be its only quorum. */
enum { JOINERS_MIN = 3 };

static uint32_t joiners_max(const gsp_agree *a)
{
    uint32_t n = gsp_agree_roster(a)->n;
    return n > JOINERS_MIN ? n : JOINERS_MIN;
}

/* The joiner holds the anchor of version v - 1, and is heard as the incarnation that asked. */
static bool ready(const gsp_agree *a, const gsp_waiting *w)
{
    return gsp_people_answers(a, &w->who) && w->applied >= a->certified &&
           a->now_ns - w->heard_ns <= a->rules.dead_ns && may_enter(a, &w->who);
}

bool gsp_rules_joiner_ready(const gsp_agree *a)
{
    const gsp_roster *now = gsp_agree_roster(a);
    for (uint32_t k = 0; k < a->n_waiting; k++) {
        const gsp_member *who = &a->waiting[k].who;
        uint32_t i = gsp_roster_find_key(now, &who->key);
        bool place = i == GSP_NOBODY ? now->n < GSP_MEMBERS_MAX
                                     : who->incarnation > now->member[i].incarnation;
        if (place && ready(a, &a->waiting[k]))
            return true;
    }
    return false;
}

void gsp_rules_next(const gsp_agree *a, uint32_t promised, gsp_proposal *p)
{
    const gsp_roster *now = gsp_agree_roster(a);
    gsp_roster replaced = {0};
    memset(&p->next, 0, sizeof p->next);
    memset(p->missed, 0, sizeof p->missed);
    memset(p->against, 0, sizeof p->against);
    uint32_t joined = 0;
    /* First those that come back with a new incarnation: each takes its own place. */
    for (uint32_t k = 0; k < a->n_waiting && replaced.n < GSP_MEMBERS_MAX; k++) {
        uint32_t i = gsp_roster_find_key(now, &a->waiting[k].who.key);
        if (i != GSP_NOBODY && ready(a, &a->waiting[k]) &&
            a->waiting[k].who.incarnation > now->member[i].incarnation)
            replaced.member[replaced.n++] = a->waiting[k].who;
    }
    for (uint32_t i = 0; i < now->n; i++) {
        uint32_t back = gsp_roster_find_key(&replaced, &now->member[i].key);
        if (back != GSP_NOBODY)
            insert(p, &replaced.member[back], 0);
        else if (!(a->left >> i & 1) && missed_now(a, promised, i) < a->rules.silent_rounds)
            insert(p, &now->member[i], missed_now(a, promised, i));
    }
    for (uint32_t k = 0; k < a->n_waiting && p->next.n < GSP_MEMBERS_MAX && joined < joiners_max(a);
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
    for (uint32_t i = 0; i < p->next.n; i++)
        p->against[i] = against_now(a, p, &p->next.member[i].key);
}

void gsp_rules_totals(const gsp_agree *a, const gsp_proposal *p, uint64_t *tokens,
                      uint64_t *samples)
{
    uint32_t anywhere = 0;
    for (uint32_t k = 0; k < p->n_parts; k++)
        anywhere |= p->part[k].included;
    *tokens = a->certificate.proposal.tokens;
    *samples = a->certificate.proposal.samples;
    for (uint32_t i = 0; i < p->n_contributors; i++) {
        if (anywhere >> i & 1) {
            const gsp_contributor *c = &p->contributor[i];
            *tokens += c->weight;
            *samples += c->samples < c->weight ? c->samples : c->weight;
        }
    }
}

/* Contributors are ascending members, weighed by the rule, and my own contribution is what I froze;
 * except where it is proposed again, for then it may be what I froze before a restart. */
static const char *contributors_wrong(const gsp_agree *a, const gsp_contributor *c, uint32_t n,
                                      bool again)
{
    gsp_contributor weighed[GSP_MEMBERS_MAX];
    if (n > gsp_agree_roster(a)->n)
        return "more contributors than members";
    for (uint32_t i = 0; i < n; i++) {
        if (c[i].member >= gsp_agree_roster(a)->n || (i > 0 && c[i].member <= c[i - 1].member))
            return "contributors are not ascending members";
        if (gsp_hash_none(&c[i].root) || c[i].tokens == 0 || c[i].tokens > GSP_TOKENS_MAX ||
            c[i].samples > GSP_TOKENS_MAX)
            return "a contribution without content, or beyond belief";
        if (!again && c[i].member == a->self_i && a->frozen == GSP_FROZEN &&
            (!gsp_hash_equal(&c[i].root, &a->contribution.root) ||
             c[i].tokens != a->contribution.tokens || c[i].samples != a->contribution.samples))
            return "that is not what I contributed";
        weighed[i] = c[i];
    }
    gsp_rules_weigh(a, weighed, n);
    for (uint32_t i = 0; i < n; i++)
        if (weighed[i].weight != c[i].weight)
            return "a weight that is not by the rule";
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
    return contributors_wrong(a, b->contributor, b->n_contributors, false);
}

/* The part's owner is a member and has sealed it. What I heard from the owner itself was checked
 * when it came, and needs no second look. */
static bool sealed(const gsp_agree *a, const gsp_proposal *p, uint32_t k,
                   const gsp_hash *contributors)
{
    const gsp_part *part = &p->part[k], *known = &a->round.known[k];
    gsp_statement said;
    if (part->owner >= gsp_agree_roster(a)->n)
        return false;
    if (part->owner == known->owner && memcmp(part->seal, known->seal, sizeof part->seal) == 0 &&
        gsp_hash_equal(contributors, &a->round.contributors)) {
        gsp_hash mine, theirs;
        gsp_part_hash(&a->seals, k, known, &mine);
        gsp_part_hash(&a->seals, k, part, &theirs);
        if (gsp_hash_equal(&mine, &theirs))
            return true;
    }
    gsp_reduced_statement(&a->seals, &p->lineage, p->version, k, part, contributors,
                          &gsp_agree_roster(a)->member[part->owner], &said);
    return gsp_statement_verify(&a->seals, &said);
}

static const char *parts_wrong(const gsp_agree *a, const gsp_proposal *p)
{
    gsp_hash contributors;
    gsp_contributors_hash(&a->seals, p->contributor, p->n_contributors, &contributors);
    if (p->n_parts != a->rules.n_parts)
        return "another number of parts";
    for (uint32_t k = 0; k < p->n_parts; k++) {
        const gsp_part *part = &p->part[k];
        if (gsp_hash_none(&part->hash)) {
            if (part->included != 0 || part->weight != 0 || part->norm != 0 || part->owner != 0)
                return "an unchanged part with content";
            continue; /* nobody is included, so no lean is looked at or hashed */
        }
        uint32_t all = p->n_contributors >= 32 ? UINT32_MAX : (1u << p->n_contributors) - 1;
        if (part->included == 0 || part->weight == 0 || (part->included & ~all))
            return "a part of nobody's contributions";
        for (uint32_t i = 0; i < GSP_MEMBERS_MAX; i++)
            if (!(part->included >> i & 1) && part->lean[i] != 0)
                return "a lean of somebody who is not included";
        if (part->weight != gsp_included_weight(p->contributor, p->n_contributors, part->included))
            return "weights that do not add up";
        if (!isfinite(part->norm) || part->norm < 0)
            return "a norm that is not a number";
        if (!sealed(a, p, k, &contributors))
            return "a part that its owner did not sign";
    }
    return NULL;
}

/* Every member of the roster is kept with the right count, or is gone for a reason that I can
 * see. */
static const char *kept_wrong(const gsp_agree *a, const gsp_proposal *p, uint32_t promised,
                              bool again)
{
    const gsp_roster *now = gsp_agree_roster(a);
    for (uint32_t i = 0; i < now->n; i++) {
        uint32_t at = gsp_roster_find_key(&p->next, &now->member[i].key);
        uint32_t missed = missed_now(a, promised, i);
        bool excused = (a->left >> i & 1) || again;
        if (at == GSP_NOBODY) {
            if (!excused && missed < a->rules.silent_rounds)
                return "a member taken off the roster without a reason";
        } else if (p->next.member[at].incarnation < now->member[i].incarnation) {
            return "a member put back to an older incarnation";
        } else if (p->next.member[at].incarnation > now->member[i].incarnation) {
            if (!may_enter(a, &p->next.member[at]))
                return "a joiner that may not enter";
        } else if (p->missed[at] != missed) {
            return "a count of silent rounds that is not right";
        }
    }
    return NULL;
}

static const char *roster_wrong(const gsp_agree *a, const gsp_proposal *p, uint32_t promised,
                                bool again)
{
    const gsp_roster *now = gsp_agree_roster(a);
    uint32_t joined = 0;
    if (p->next.n == 0 || p->next.n > GSP_MEMBERS_MAX)
        return "a roster of nobody, or too large";
    for (uint32_t i = 0; i < p->next.n; i++) {
        const gsp_member *who = &p->next.member[i];
        if (p->against[i] != against_now(a, p, &who->key))
            return "a count of backward contributions that is not right";
        if (i > 0 && gsp_key_compare(&p->next.member[i - 1].key, &who->key) >= 0)
            return "a roster out of order";
        if (gsp_roster_find_key(now, &who->key) != GSP_NOBODY)
            continue;
        joined++;
        if (!may_enter(a, who) || p->missed[i] != 0)
            return "a joiner that may not enter";
    }
    if (joined > joiners_max(a))
        return "too many joiners at once";
    return kept_wrong(a, p, promised, again);
}

const char *gsp_proposal_wrong(const gsp_agree *a, const gsp_proposal *p, uint32_t promised,
                               bool again)
{
    uint64_t tokens, samples;
    if (!gsp_hash_equal(&p->lineage, &a->lineage) || p->version != a->certified + 1 ||
        !gsp_hash_equal(&p->previous, &a->previous))
        return "it follows another certificate";
    const char *wrong = contributors_wrong(a, p->contributor, p->n_contributors, again);
    if (!wrong)
        wrong = parts_wrong(a, p);
    if (!wrong)
        wrong = roster_wrong(a, p, promised, again);
    if (wrong)
        return wrong;
    gsp_rules_totals(a, p, &tokens, &samples);
    if (p->tokens != tokens || p->samples != samples)
        return "totals that do not add up";
    return NULL;
}
