/*
 * Owns which members withhold what they contributed, and how a roster goes on without them and
 * without those that are banned. Its one idea: whoever answers anybody honest gives the auditor its
 * bytes, so a contributor is counted only by members that asked it themselves; and a member is off
 * the roster once more promises name it than can be lies, which everybody sees alike. It refuses to
 * believe a complaint or to let one member's complaints keep all others busy, to count a member that
 * is away or whose bytes may be too old to be kept, and to ask for what no certificate names.
 */
#include "gossip/agree/agree_inner.h"

enum { EXCUSES = 2 }; /* lost memories of one key, before they count as withholding */
static const uint64_t MINUTE_NS = 60000000000u;

uint64_t gsp_withheld_patience_ns(const gsp_agree *a)
{
    uint64_t half = gsp_view_timeout_ns(a, 1) / 2;
    return half > a->rules.dead_ns ? half : a->rules.dead_ns;
}

/* ---- what certificates name ---- */

void gsp_withheld_note(gsp_agree *a, const gsp_roster *roster)
{
    const gsp_proposal *p = &a->certificate.proposal;
    gsp_named *n = &a->withholding.named[p->version % GSP_REPLAY_MAX];
    n->version = p->version;
    n->roster = *roster;
    n->n_contributors = p->n_contributors;
    memcpy(n->contributor, p->contributor, sizeof n->contributor);
}

const gsp_named *gsp_withheld_find(const gsp_agree *a, uint64_t version)
{
    const gsp_named *n = &a->withholding.named[version % GSP_REPLAY_MAX];
    return version != 0 && n->version == version ? n : NULL;
}

const gsp_member *gsp_withheld_maker(const gsp_named *n, uint32_t i)
{
    uint32_t member = i < n->n_contributors ? n->contributor[i].member : GSP_NOBODY;
    return member < n->roster.n ? &n->roster.member[member] : NULL;
}

/* A version that somebody honest has certified: as many members say so as are not all liars. */
static uint64_t newest(const gsp_agree *a)
{
    const gsp_roster *roster = gsp_agree_roster(a);
    uint32_t liars = gsp_liars_max(a->rules.trust, roster->n), n = 0;
    uint64_t highest[GSP_MEMBERS_MAX + 1];
    for (uint32_t i = 0; i < roster->n; i++) {
        const gsp_peer *p = gsp_people_look(a, &roster->member[i].key);
        if (!p || !gsp_people_alive(a, i) || !gsp_hash_equal(&p->lineage, &a->lineage))
            continue;
        uint32_t at = n++;
        for (; at > 0 && highest[at - 1] < p->certified; at--)
            highest[at] = highest[at - 1];
        highest[at] = p->certified;
    }
    return n > liars && highest[liars] > a->certified ? highest[liars] : a->certified;
}

/* ---- the table ---- */

static bool fresh(const gsp_agree *a, const gsp_withheld *row)
{
    return a->now_ns - row->at_ns < a->rules.withheld_ns;
}

static gsp_withheld *counted(gsp_agree *a, const gsp_key *key)
{
    gsp_withholding *x = &a->withholding;
    for (uint32_t k = 0; k < x->n; k++)
        if (!x->row[k].excused && fresh(a, &x->row[k]) && gsp_key_compare(&x->row[k].key, key) == 0)
            return &x->row[k];
    return NULL;
}

static void add(gsp_agree *a, const gsp_withheld *row)
{
    gsp_withholding *x = &a->withholding;
    if (x->n == GSP_WITHHELD_MAX)
        memmove(&x->row[0], &x->row[1], --x->n * sizeof x->row[0]);
    x->row[x->n++] = *row;
}

static void forget(gsp_agree *a, const gsp_key *key, uint64_t version)
{
    gsp_withholding *x = &a->withholding;
    for (uint32_t k = x->n; k-- > 0;) {
        if (x->row[k].version != version || gsp_key_compare(&x->row[k].key, key) != 0)
            continue;
        x->n--;
        memmove(&x->row[k], &x->row[k + 1], (x->n - k) * sizeof x->row[0]);
    }
}

/* An incarnation that is over took its memory along: whether that is forgiven, as it is for a few of
 * a key. *known: it was before. */
static bool forgiven(const gsp_agree *a, const gsp_key *key, uint64_t incarnation, bool *known)
{
    const gsp_withholding *x = &a->withholding;
    uint32_t n = 0;
    *known = false;
    for (uint32_t k = 0; k < x->n; k++)
        if (x->row[k].excused && fresh(a, &x->row[k]) &&
            gsp_key_compare(&x->row[k].key, key) == 0) {
            n++;
            *known |= x->row[k].incarnation == incarnation;
        }
    return *known || n < EXCUSES;
}

/* Contributor i of a version did not give its bytes, though I asked it over a link. */
static void count(gsp_agree *a, const gsp_named *named, uint32_t i)
{
    const gsp_member *who = gsp_withheld_maker(named, i);
    const gsp_roster *roster = gsp_agree_roster(a);
    uint32_t at = who ? gsp_roster_find_key(roster, &who->key) : GSP_NOBODY;
    bool known;
    if (at == GSP_NOBODY || at == a->self_i || counted(a, &who->key) ||
        newest(a) > named->version + GSP_REPLAY_MAX - 2)
        return;
    gsp_withheld row = {.key = who->key,
                        .incarnation = who->incarnation,
                        .version = named->version,
                        .at_ns = a->now_ns};
    if (roster->member[at].incarnation != who->incarnation) {
        row.excused = forgiven(a, &who->key, who->incarnation, &known);
        if (known)
            return;
    }
    if (!row.excused && !gsp_people_answers(a, &roster->member[at]))
        return; /* away: it is silent, and that has a rule of its own */
    a->stats.withheld += !row.excused;
    add(a, &row);
}

/* It was counted before it said that it has another memory. */
static void excuse(gsp_agree *a, gsp_withheld *row)
{
    const gsp_peer *p = gsp_people_look(a, &row->key);
    bool known;
    if (!row->excused && p && p->who.incarnation > row->incarnation)
        row->excused = forgiven(a, &row->key, row->incarnation, &known);
}

uint32_t gsp_withheld_bits(gsp_agree *a)
{
    const gsp_roster *roster = gsp_agree_roster(a);
    gsp_withholding *x = &a->withholding;
    uint32_t bits = 0;
    for (uint32_t i = 0; i < roster->n; i++)
        bits |= gsp_people_banned(a, &roster->member[i].key) ? 1u << i : 0;
    bool counts = gsp_liars_max(a->rules.trust, roster->n) > 0; /* else one word would be enough */
    for (uint32_t k = 0; counts && k < x->n; k++) {
        uint32_t i = gsp_roster_find_key(roster, &x->row[k].key);
        excuse(a, &x->row[k]);
        if (i != GSP_NOBODY && !x->row[k].excused && fresh(a, &x->row[k]))
            bits |= 1u << i;
    }
    return bits;
}

/* ---- complaints ---- */

static uint32_t everything(const gsp_named *n)
{
    return n->n_contributors >= 32 ? UINT32_MAX : (1u << n->n_contributors) - 1;
}

/* Bits of the contributions that others than these two made. */
static uint32_t of_others(const gsp_named *n, uint32_t bits, const gsp_key *one, const gsp_key *two)
{
    for (uint32_t i = 0; i < n->n_contributors; i++) {
        const gsp_member *who = gsp_withheld_maker(n, i);
        if (!who || gsp_key_compare(&who->key, one) == 0 || gsp_key_compare(&who->key, two) == 0)
            bits &= ~(1u << i);
    }
    return bits & everything(n);
}

/* Of these at most n, from a place on that moves: complaints are repeated, so all have their turn. */
static uint32_t some_of(uint32_t bits, uint32_t n, uint32_t *turn)
{
    uint32_t some = 0;
    for (uint32_t k = 0; k < GSP_MEMBERS_MAX && n > 0; k++) {
        uint32_t i = *turn % GSP_MEMBERS_MAX;
        *turn = i + 1;
        if (!(bits >> i & 1))
            continue;
        some |= 1u << i;
        n--;
    }
    return some;
}

/* Which contributions are asked for because of this complaint about `bits` of a version; 0: none
 * now. Of one member one complaint is heard at a time and a few about each version, of each no more
 * contributions than may be withheld by liars, and not too many in a minute. */
static uint32_t within_bounds(gsp_agree *a, gsp_complaints *c, uint64_t version, uint32_t bits)
{
    uint32_t most = gsp_liars_max(a->rules.trust, gsp_agree_roster(a)->n);
    if (c->last_ns && a->now_ns - c->last_ns < 2 * gsp_withheld_patience_ns(a))
        return 0;
    if (a->now_ns - c->minute_ns >= MINUTE_NS) {
        c->minute_ns = a->now_ns;
        c->asked = 0;
    }
    if (c->about[version % GSP_REPLAY_MAX].version != version) {
        c->about[version % GSP_REPLAY_MAX].version = version;
        c->about[version % GSP_REPLAY_MAX].n = 0;
    }
    if (c->about[version % GSP_REPLAY_MAX].n == GSP_COMPLAINTS_MAX ||
        c->asked == GSP_COMPLAINED_MAX)
        return 0;
    most = most > 1 ? most : 1;
    most = most < GSP_COMPLAINED_MAX - c->asked ? most : GSP_COMPLAINED_MAX - c->asked;
    uint32_t some = some_of(bits, most, &c->turn);
    c->asked += (uint32_t)__builtin_popcount(some);
    c->about[version % GSP_REPLAY_MAX].n++;
    c->last_ns = a->now_ns;
    return some;
}

void gsp_withheld_heard(gsp_agree *a, const gsp_message *m)
{
    const gsp_missing *x = &m->as.withheld;
    const gsp_named *named = gsp_withheld_find(a, x->version);
    gsp_peer *from = gsp_people_find(a, &m->from.key);
    if (!named || !from || !gsp_agree_is_member(a) || x->part >= a->rules.n_parts ||
        (x->missing & ~everything(named)) ||
        gsp_roster_find(gsp_agree_roster(a), &m->from) == GSP_NOBODY ||
        a->applied + GSP_REPLAY_MAX - 2 < x->version)
        return;
    uint32_t wanted = of_others(named, x->missing, &a->self.key, &m->from.key);
    wanted = wanted ? within_bounds(a, &from->complaints, x->version, wanted) : 0;
    if (wanted == 0)
        return;
    gsp_agree_act(a, (gsp_action){.kind = GSP_DO_INPUTS,
                                  .to = GSP_TO_ONE,
                                  .peer = m->from.key,
                                  .version = x->version,
                                  .part = x->part,
                                  .included = wanted,
                                  .within_ns = gsp_withheld_patience_ns(a)});
}

void gsp_withheld_said(gsp_agree *a, uint64_t version, uint32_t part, uint32_t missing)
{
    const gsp_named *named = gsp_withheld_find(a, version);
    if (!named || !gsp_agree_is_member(a))
        return;
    missing = of_others(named, missing, &a->self.key, &a->self.key);
    if (missing == 0)
        return;
    gsp_message *m = gsp_agree_compose(a, GSP_WITHHELD, 0);
    m->version = 0;
    m->as.withheld = (gsp_missing){.version = version, .part = part, .missing = missing};
    gsp_agree_say(a, GSP_TO_ROSTER, m);
}

void gsp_withheld_inputs(gsp_agree *a, uint64_t version, uint32_t came, uint32_t missing)
{
    const gsp_named *named = gsp_withheld_find(a, version);
    for (uint32_t i = 0; named && i < named->n_contributors; i++) {
        const gsp_member *who = gsp_withheld_maker(named, i);
        if (who && (came >> i & 1) &&
            gsp_roster_find_key(gsp_agree_roster(a), &who->key) != GSP_NOBODY)
            forget(a, &who->key, version);
        else if (missing >> i & 1)
            count(a, named, i);
    }
}

/* ---- what follows ---- */

uint32_t gsp_withheld_out(const gsp_agree *a, const gsp_statement *promise, uint32_t n)
{
    const gsp_roster *roster = gsp_agree_roster(a);
    uint32_t liars = gsp_liars_max(a->rules.trust, roster->n), out = 0;
    for (uint32_t i = 0; i < roster->n; i++) {
        uint32_t named = 0;
        for (uint32_t k = 0; k < n; k++)
            named += promise[k].item >> i & 1;
        out |= named > liars ? 1u << i : 0;
    }
    /* Where no quorum would be left, it is the network that withholds. */
    uint32_t all = roster->n >= 32 ? UINT32_MAX : (1u << roster->n) - 1;
    return gsp_quorum(a->rules.trust, roster->n, all & ~out) ? out : 0;
}
