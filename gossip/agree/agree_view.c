/*
 * Owns time in a version: when the next one is due, which ballot is on, who proposes in it, and how
 * long it may take. Its one idea: a ballot that does not end is followed by the next one, whose
 * proposer is the next member, so that no member can hold up the others for longer than a timeout.
 * It refuses to judge what anybody says: it only counts who is there and how long they take.
 */
#include "gossip/agree/agree_inner.h"

enum {
    SHARE = 8,     /* the first ballot's time / the least patience with a few who are late */
    PATIENCE = 16, /* beside that: so many times what the others need */
    TRAVELS = 6,   /* the first ballot's least time / a fragment's way there and back */
};

/* ---- who proposes, and for how long ---- */

uint32_t gsp_view_proposer(const gsp_agree *a, uint32_t ballot)
{
    uint32_t seed;
    memcpy(&seed, a->previous.byte, sizeof seed);
    uint32_t n = gsp_agree_roster(a)->n;
    return n ? (uint32_t)(((uint64_t)seed + ballot) % n) : GSP_NOBODY;
}

static uint64_t median_of(uint64_t *x, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        uint64_t v = x[i];
        uint32_t at = i;
        for (; at > 0 && x[at - 1] > v; at--)
            x[at] = x[at - 1];
        x[at] = v;
    }
    return x[n / 2];
}

uint64_t gsp_view_patience_ns(const gsp_agree *a, uint64_t others_ns)
{
    uint64_t least = a->rules.round_ns / SHARE;
    least = least > a->rules.dead_ns ? least : a->rules.dead_ns;
    return least +
           PATIENCE * (others_ns < a->rules.round_max_ns ? others_ns : a->rules.round_max_ns);
}

static const gsp_rates *rates_of(const gsp_agree *a, uint32_t i)
{
    const gsp_peer *p = gsp_people_look(a, &gsp_agree_roster(a)->member[i].key);
    return i == a->self_i ? &a->rates : p ? &p->rates : NULL;
}

uint64_t gsp_view_travel_ns(const gsp_agree *a)
{
    uint32_t n = gsp_agree_roster(a)->n, spare = gsp_liars_max(a->rules.trust, n), known = 0;
    uint64_t slowest[GSP_MEMBERS_MAX + 1];
    for (uint32_t i = 0; i < n; i++) {
        const gsp_rates *r = rates_of(a, i);
        uint64_t rate = !r                                        ? 0
                        : r->up_bytes_per_s < r->down_bytes_per_s ? r->up_bytes_per_s
                                                                  : r->down_bytes_per_s;
        if (rate == 0)
            continue;
        uint32_t at = known++;
        for (; at > 0 && slowest[at - 1] > rate; at--)
            slowest[at] = slowest[at - 1];
        slowest[at] = rate;
    }
    if (known <= spare || a->rules.fragment_bytes == 0)
        return 0;
    double seconds = 2.0 * (double)a->rules.fragment_bytes / (double)slowest[spare];
    return seconds < 1e-3 ? 1000000 : (uint64_t)(1e9 * (seconds < 1e6 ? seconds : 1e6));
}

/* Doubles per ballot; starts at 2 x median + 4 x MAD of the rounds seen, no higher and no lower than
 * what the members' links need (docs/design/pool.md#ballots). */
uint64_t gsp_view_timeout_ns(const gsp_agree *a, uint32_t ballot)
{
    uint64_t base = a->rules.round_ns, x[GSP_DURATIONS_MAX];
    uint32_t n = a->n_durations < GSP_DURATIONS_MAX ? a->n_durations : GSP_DURATIONS_MAX;
    if (n >= 3) {
        memcpy(x, a->duration_ns, n * sizeof *x);
        uint64_t median = median_of(x, n);
        for (uint32_t i = 0; i < n; i++)
            x[i] = x[i] > median ? x[i] - median : median - x[i];
        base = 2 * median + 4 * median_of(x, n);
    }
    uint64_t travel = gsp_view_travel_ns(a), most = SHARE * gsp_view_patience_ns(a, travel);
    base = base < TRAVELS * travel ? TRAVELS * travel : base;
    base = base < a->rules.round_min_ns ? a->rules.round_min_ns : base;
    base = base > a->rules.round_max_ns ? a->rules.round_max_ns : base;
    base = travel && base > most ? most : base;
    uint32_t doublings = ballot > 1 ? ballot - 1 : 0;
    return base << (doublings < 4 ? doublings : 4);
}

/* ---- when a version is due ---- */

enum {
    JOIN_BEATS = 10, /* since the last certificate, before one is made for a joiner alone */
    REST_BEATS = 1,  /* the same, before one is made because those who were leased something rest */
    LATE_BEATS = 1   /* at least, that members wait for those who are not done */
};

/* Of all samples, one in so many: whoever misses less is waited for with that much less patience. */
enum { LITTLE = 8 };
/* Of how long it took the first half, in 1024ths. */
enum { PATIENCE_LEAST = 128, PATIENCE_MOST = 358, DOUBT_VERSIONS = 16 };

static uint32_t peer_of(const gsp_agree *a, uint32_t i)
{
    uint32_t k = 0;
    while (
        k < GSP_PEERS_KNOWN_MAX &&
        !(a->peer[k].known && gsp_member_equal(&a->peer[k].who, &gsp_agree_roster(a)->member[i])))
        k++;
    return k;
}

/* What member i of the roster says that it brings: 0: nothing yet, 1: nothing, more: something. */
static uint64_t said(const gsp_agree *a, uint32_t i)
{
    uint32_t k = i == a->self_i ? GSP_PEERS_KNOWN_MAX : peer_of(a, i);
    const gsp_peer *p = k < GSP_PEERS_KNOWN_MAX ? &a->peer[k] : NULL;
    if (i == a->self_i)
        return a->samples;
    return p && p->certified == a->certified && gsp_hash_equal(&p->lineage, &a->lineage)
               ? p->samples
               : 0;
}

/* Where contributions are pieces of one sum: bits of the living members that are not done. */
static uint32_t not_done(const gsp_agree *a)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < gsp_agree_roster(a)->n; i++)
        if ((i == a->self_i || gsp_people_alive(a, i)) && said(a, i) == 0)
            bits |= 1u << i;
    return bits;
}

/* Bits of those that say they bring something. */
static uint32_t claimed(const gsp_agree *a)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < gsp_agree_roster(a)->n; i++)
        if ((i == a->self_i || gsp_people_alive(a, i)) && said(a, i) > 1)
            bits |= 1u << i;
    return bits;
}

/* Of those, whoever lately claimed something that no certificate showed. */
static uint32_t doubted(const gsp_agree *a)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < gsp_agree_roster(a)->n; i++) {
        uint32_t k = i == a->self_i ? GSP_PEERS_KNOWN_MAX : peer_of(a, i);
        if (k < GSP_PEERS_KNOWN_MAX && a->peer[k].doubted > a->certified)
            bits |= 1u << i;
    }
    return bits;
}

void gsp_view_doubt(gsp_agree *a, const gsp_proposal *p)
{
    uint32_t bits = a->claimed;
    for (uint32_t i = 0; i < p->n_contributors; i++)
        bits &= ~(1u << p->contributor[i].member);
    for (uint32_t i = 0; i < gsp_agree_roster(a)->n; i++) {
        uint32_t k = (bits >> i & 1) && i != a->self_i ? peer_of(a, i) : GSP_PEERS_KNOWN_MAX;
        if (k < GSP_PEERS_KNOWN_MAX)
            a->peer[k].doubted = p->version + DOUBT_VERSIONS;
    }
    a->claimed = 0;
}

/* Samples that members were leased: all of them, those that are believed to be done, and those of
 * members that are waited for. */
typedef struct leases {
    uint64_t all, done, missing;
    uint32_t n, n_done; /* members with a lease; of those, who is believed to be done */
} leases;

static leases look_at_leases(const gsp_agree *a)
{
    leases l = {0};
    uint32_t n = gsp_agree_roster(a)->n, believed = claimed(a) & ~doubted(a), waited = not_done(a);
    for (uint32_t i = 0; a->rules.lease && i < n; i++) {
        uint64_t lease = a->rules.lease(a->rules.lease_context, a->certified + 1, n, i);
        if (lease > GSP_TOKENS_MAX)
            return (leases){.n = l.n};
        l.all += lease;
        l.n += lease > 0;
        l.missing += waited >> i & 1 ? lease : 0;
        if (believed >> i & 1) {
            l.done += lease;
            l.n_done += lease > 0;
        }
    }
    return l;
}

/* Whether those who are done were leased half of all samples, at least, and are as many as a sum that
 * is clipped is made of. */
static bool half_brought(const gsp_agree *a, const leases *l)
{
    return l->done > 0 && 2 * l->done >= l->all &&
           (!a->rules.robust || 3 * l->n_done > 2 * gsp_agree_roster(a)->n);
}

uint64_t gsp_view_late_wait_ns(uint32_t patience, uint64_t missing, uint64_t all, uint64_t half_ns,
                               uint64_t heartbeat_ns)
{
    uint64_t little = all / LITTLE, parts = patience ? patience : GSP_PATIENCE_FIRST;
    if (missing < little)
        parts = parts * missing / little;
    return half_ns / 1024 * parts + LATE_BEATS * heartbeat_ns;
}

uint32_t gsp_view_late_learn(uint32_t patience, bool late)
{
    patience = patience ? patience : GSP_PATIENCE_FIRST;
    patience = late ? patience + patience / 4 : patience - patience / 64;
    patience = patience < PATIENCE_LEAST ? PATIENCE_LEAST : patience;
    return patience > PATIENCE_MOST ? PATIENCE_MOST : patience;
}

static void look_at_half(gsp_agree *a)
{
    leases l = look_at_leases(a);
    if (half_brought(a, &l) && a->half_ns == 0)
        a->half_ns = a->now_ns;
    a->n_leased = l.n ? l.n : a->n_leased;
    a->claimed |= claimed(a);
}

/* Whether those who are done have waited for the others for long enough. A clipped sum loses what is
 * late, however little it is. */
static bool waited_enough(const gsp_agree *a)
{
    leases l = look_at_leases(a);
    if (!a->half_ns || !half_brought(a, &l))
        return false;
    uint64_t missing = a->rules.robust ? l.all : l.missing;
    return a->now_ns - a->half_ns >= gsp_view_late_wait_ns(a->patience, missing, l.all,
                                                           a->half_ns - a->certified_ns,
                                                           a->rules.heartbeat_ns);
}

static bool rests(const gsp_agree *a, uint32_t i)
{
    uint32_t k = i == a->self_i ? GSP_PEERS_KNOWN_MAX : peer_of(a, i);
    return i == a->self_i ? a->rests : k < GSP_PEERS_KNOWN_MAX && a->peer[k].rests;
}

bool gsp_agree_mutes(const gsp_agree *a, uint32_t i)
{
    const gsp_proposal *p = &a->certificate.proposal;
    uint32_t muted = 0;
    for (uint32_t k = 0; k < p->next.n; k++)
        muted += gsp_proposal_mutes(&a->rules, p, k);
    return i < p->next.n && 2 * muted < p->next.n && gsp_proposal_mutes(&a->rules, p, i);
}

bool gsp_view_too_few_work(const gsp_agree *a, uint32_t *resting, uint32_t *missing)
{
    uint32_t n = gsp_agree_roster(a)->n, work = 0, wanted = 2 * n / 3 + 1;
    *resting = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool here = i == a->self_i || gsp_people_alive(a, i);
        *resting += here && rests(a, i);
        work += here && !rests(a, i);
    }
    *missing = work < wanted ? wanted - work : 0;
    return a->rules.robust && gsp_agree_sums(a) && n > 1 && *resting && *missing;
}

/* Nobody brings anything, because all who were leased something rest, while somebody else does not.
 * After some versions without contributions what is open is leased to others (batch.h). */
static bool is_passed_on(const gsp_agree *a)
{
    uint32_t n = gsp_agree_roster(a)->n;
    bool leased = false, other = false;
    if (a->now_ns - a->certified_ns < REST_BEATS * a->rules.heartbeat_ns)
        return false; /* whatever they say, and however often they change it */
    for (uint32_t i = 0; i < n; i++) {
        if ((a->left >> i & 1) || (i != a->self_i && !gsp_people_alive(a, i)))
            continue;
        uint64_t lease = a->rules.lease(a->rules.lease_context, a->certified + 1, n, i);
        if (lease > GSP_TOKENS_MAX || said(a, i) != 1 || (lease > 0 && !rests(a, i)))
            return false;
        leased |= lease > 0;
        other |= lease == 0 && !rests(a, i);
    }
    return leased && other;
}

/* All living members are done, or the others have waited for the rest for long enough. */
static bool all_brought(const gsp_agree *a)
{
    const gsp_roster *roster = gsp_agree_roster(a);
    /* A clipped sum of too few would be void, and so would be the next one, as long as they rest. */
    bool enough =
        !a->rules.robust || gsp_included_enough(GSP_STRANGERS, roster->n, claimed(a) & ~doubted(a));
    bool something = (a->samples > 1 && enough) || gsp_rules_joiner_ready(a);
    if (not_done(a) != 0)
        return waited_enough(a);
    for (uint32_t i = 0; i < roster->n; i++) {
        if (i == a->self_i || (a->left >> i & 1))
            continue;
        /* A version without a silent one brings the roster without it closer. */
        something |= !gsp_people_alive(a, i) || (said(a, i) > 1 && enough);
    }
    return something || (a->rules.passes_on && is_passed_on(a));
}

/* Enough time has passed, somebody must be let go or in, or enough samples were processed since the
 * newest certificate, by me and by all members that have it too. */
bool gsp_view_due(const gsp_agree *a)
{
    const gsp_roster *roster = gsp_agree_roster(a);
    if (a->now_ns - a->certified_ns >= a->rules.time_due_ns)
        return true;
    /* A member that leaves waits for the certificate that lets it go. */
    if (a->left && a->left != (uint32_t)(((uint64_t)1 << roster->n) - 1))
        return true;
    if (gsp_agree_sums(a))
        return all_brought(a);
    /* Joiners do not wait for T either, where nobody computes. */
    if (a->now_ns - a->certified_ns >= JOIN_BEATS * a->rules.heartbeat_ns &&
        gsp_rules_joiner_ready(a))
        return true;
    uint64_t samples = a->samples;
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++) {
        const gsp_peer *p = &a->peer[i];
        if (p->known && p->up && p->certified == a->certified &&
            gsp_hash_equal(&p->lineage, &a->lineage) &&
            gsp_roster_find(roster, &p->who) != GSP_NOBODY)
            samples += p->samples < GSP_TOKENS_MAX ? p->samples : 0;
    }
    return samples >= a->rules.samples_due;
}

enum {
    LEND_BEATS = 3, /* since the last certificate, that joiners have for applying it */
    LEND_BURST = 8, /* so often at once */
    LEND_PART = 16, /* and later in one part of so many of the time */
};

/*
 * The version is due, and somebody follows the pool whose wish to enter is about a version before: where
 * versions are made faster than it applies them it would never name the newest one. So the next one waits a
 * little. That is none of slow versions, which leave it the time, and little of quick ones, however many
 * joiners never come so far.
 */
static bool lends_time(gsp_agree *a)
{
    const uint64_t beats = LEND_BEATS * a->rules.heartbeat_ns, part = a->rules.time_due_ns / 4;
    const uint64_t each = beats < part ? beats : part, passed = a->now_ns - a->lent_at_ns;
    const uint64_t back = passed / LEND_PART < a->lent_ns ? passed / LEND_PART : a->lent_ns;
    a->lent_at_ns = a->now_ns;
    a->lent_ns = a->lends ? a->lent_ns + passed : a->lent_ns - back;
    a->lends = (a->lends || a->lent_ns + each <= LEND_BURST * each) && !a->left &&
               a->now_ns - a->certified_ns < each && gsp_rules_joiner_lags(a);
    return a->lends;
}

/* ---- which ballot is on ---- */

void gsp_view_set(gsp_agree *a, uint32_t view)
{
    a->view = view;
    a->view_until_ns = a->now_ns + gsp_view_timeout_ns(a, view);
    a->doubt_ns = 0;
}

static uint32_t voters(const gsp_agree *a)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < gsp_agree_roster(a)->n; i++)
        bits |= gsp_people_votes(a, i) ? 1u << i : 0;
    return bits;
}

void gsp_view_tick(gsp_agree *a)
{
    bool quorum = gsp_quorum(a->rules.trust, gsp_agree_roster(a)->n, voters(a));
    if (quorum)
        a->quorum_ns = a->now_ns;
    if (gsp_agree_sums(a) && a->view == 0)
        look_at_half(a);
    if (!gsp_agree_is_member(a) || !quorum || (a->view == 0 && (!gsp_view_due(a) || lends_time(a))))
        return;
    if (a->due_ns == 0)
        a->due_ns = a->now_ns;
    if (a->view == 0)
        gsp_view_set(a, a->record.promised ? a->record.promised : 1);
    uint32_t proposer = gsp_view_proposer(a, a->view);
    uint64_t soon = a->now_ns + a->rules.heartbeat_ns / 2;
    if (!gsp_people_alive(a, proposer) && a->view_until_ns > soon)
        a->view_until_ns = soon;
    /* A proposer that restarted is back soon, but never goes on with its ballot. One whose link
     * merely broke repeats itself, which ends the doubt. */
    bool lost = a->doubt_ns && a->now_ns - a->doubt_ns >= 2 * a->rules.heartbeat_ns;
    if (proposer == a->self_i && a->view <= a->record.promised &&
        (a->phase == GSP_IDLE || a->ballot != a->view) && a->view_until_ns > soon)
        a->view_until_ns = soon; /* a ballot of mine from before a restart is not prepared twice */
    if (lost || a->now_ns >= a->view_until_ns) {
        gsp_propose_give_up(a);
        gsp_view_set(a, a->view + 1);
        proposer = gsp_view_proposer(a, a->view);
    }
    if (proposer == a->self_i && a->view > a->record.promised && a->phase == GSP_IDLE &&
        a->applied == a->certified)
        gsp_propose_start(a);
}
