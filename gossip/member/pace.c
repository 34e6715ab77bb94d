/*
 * Owns the pace of sending. Its one idea: whoever waits for more gets more. It refuses to be exact:
 * it works with what is queued, and what others said of their links.
 */
#include "gossip/member/pace.h"

#include "atom/base/clock.h"
#include "gossip/member/shares.h"

static const uint64_t PACE_NS = 50000000u, METER_NS = 20000000u;
/* Of a rate of payload; the rest is left to acknowledgements of what comes in, and to records. */
static const double FULL = 0.998;
/* Of all: what is shared equally, not by what waits. It goes to a link that is said to be slower, too:
 * what a peer says of its link is learnt from what came over it, and must be able to rise again. */
static const double EQUAL = 0.25;
static const uint64_t HIDDEN_MAX = 1024 * 1024; /* what the buffers of a link can hold */

static uint64_t waiting_in(const gsp_terms *terms, const gsp_queue *q)
{
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < q->n; k++) {
        const gsp_outgoing *o = &q->item[(q->first + k) % GSP_QUEUE_MAX];
        uint64_t whole = gsp_terms_bytes(terms, o->version, o->part);
        uint64_t sent = (uint64_t)o->sequence * GSP_BLOB_PIECE_BYTES;
        bytes += whole > sent ? whole - sent : 0;
    }
    return bytes;
}

/* What everybody will get of parts that I have not summed yet. */
static uint64_t results_to_come(const gsp_agree *agree, const gsp_terms *terms)
{
    const gsp_round *r = &agree->round;
    uint64_t bytes = 0;
    for (uint32_t p = 0; r->ballot && p < r->begin.n_parts; p++)
        if (r->begin.owner[p] == agree->self_i && gsp_hash_none(&r->known[p].hash))
            bytes += gsp_terms_bytes(terms, agree->certified + 1, p);
    return bytes;
}

/* Of a peer's own link, as it says; 0: unknown. */
static uint64_t rate_down(const gsp_agree *agree, const gsp_key *key)
{
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++)
        if (agree->peer[i].up && gsp_key_compare(&agree->peer[i].who.key, key) == 0)
            return agree->peer[i].rates.down_bytes_per_s;
    return 0;
}

/* What still lies in the buffers of a link, by the pace at which it has been emptied since the last
 * turn; the buffers themselves are not seen here. */
static uint64_t hidden_in(gsp_friend *f, uint64_t since_ns)
{
    double carried = (double)f->pace * 1e-9 * (double)since_ns;
    if (f->hidden > HIDDEN_MAX)
        f->hidden = HIDDEN_MAX;
    f->hidden = (double)f->hidden > carried ? f->hidden - (uint64_t)carried : 0;
    return f->hidden;
}

/* Something waits for a link on which nothing waited in the last turn. */
static bool woke(const gsp_friends *fs)
{
    bool any = false;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const gsp_friend *f = &fs->friend[i];
        any |= f->up && !f->waits && (f->contributions.n > 0 || f->results.n > 0);
    }
    return any;
}

/* A change of a sixteenth is none. */
static void ask_link(gsp_net *net, gsp_friend *to, uint64_t pace)
{
    if (pace <= to->pace + to->pace / 16 && pace + pace / 16 >= to->pace)
        return;
    to->pace = pace;
    gsp_net_pace(net, to->key.byte, pace);
}

/* Bytes that wait for peer i, here and in its link. */
static uint64_t waits_for(const gsp_pace *p, gsp_friends *fs, uint32_t i, const gsp_donor *donor,
                          const gsp_terms *terms, uint64_t now)
{
    gsp_friend *f = &fs->friend[i];
    uint64_t state = gsp_friends_is_busy(fs) ? 0 : gsp_donor_owes(donor, i); /* yields to rounds */
    uint64_t hidden = hidden_in(f, p->turn_ns ? now - p->turn_ns : 0);
    return waiting_in(terms, &f->contributions) + waiting_in(terms, &f->results) + state + hidden;
}

void gsp_pace_turn(gsp_pace *p, gsp_friends *fs, const gsp_donor *donor, const gsp_terms *terms)
{
    const gsp_agree *agree = fs->agree;
    const gsp_roster *roster = gsp_agree_roster(agree);
    uint64_t now = atom_clock_ns();
    const double up = FULL * (double)p->said.up_bytes_per_s;
    double left[GSP_NET_PEERS_MAX], most[GSP_NET_PEERS_MAX], pace[GSP_NET_PEERS_MAX];
    gsp_friend *to[GSP_NET_PEERS_MAX];
    uint32_t n = 0, all = 0;
    if (up <= 0 || !fs->net->ops->pace || (now - p->turn_ns < PACE_NS && !woke(fs)))
        return;
    const uint64_t coming = results_to_come(agree, terms);
    double of_many = roster->n > 3 ? 2.0 / (roster->n - 1.0) : 1.0;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        all += fs->friend[i].up && gsp_roster_find_key(roster, &fs->friend[i].key) != GSP_NOBODY;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        gsp_friend *f = &fs->friend[i];
        if (!f->up || gsp_roster_find_key(roster, &f->key) == GSP_NOBODY)
            continue;
        uint64_t bytes = coming + waits_for(p, fs, i, donor, terms, now);
        f->waits = bytes > 0;
        if (!f->waits) {
            ask_link(fs->net, f, (uint64_t)(up / all));
            continue;
        }
        to[n] = f;
        left[n] = (double)bytes;
        most[n++] = FULL * of_many * (double)rate_down(agree, &f->key);
    }
    p->turn_ns = now;
    gsp_shares_pace(left, most, n, (1 - EQUAL) * up, pace);
    for (uint32_t i = 0; i < n; i++) {
        double least = EQUAL * up / n, asked = pace[i] + least;
        double bound = most[i] > least ? most[i] : least;
        ask_link(fs->net, to[i], (uint64_t)(most[i] > 0 && asked > bound ? bound : asked));
    }
}

/* There is more to send than the links take. */
static bool has_more(const gsp_friends *fs, const gsp_donor *donor)
{
    bool more = false;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const gsp_friend *f = &fs->friend[i];
        more |= f->up && (f->busy[GSP_NET_BULK] || f->contributions.n || f->results.n ||
                          gsp_donor_owes(donor, i));
    }
    return more;
}

static uint64_t told_now(uint64_t said, const gsp_meter *meter, uint64_t before)
{
    uint64_t now = gsp_meter_told(said, gsp_meter_rate(meter));
    uint64_t apart = now > before ? now - before : before - now;
    return apart > before / 10 ? now : before; /* a tenth is no news */
}

void gsp_pace_learn(gsp_pace *p, const gsp_friends *fs, const gsp_donor *donor, gsp_rates *told)
{
    uint64_t now = atom_clock_ns();
    gsp_net_stats stats;
    if (now - p->metered_ns < METER_NS)
        return;
    p->metered_ns = now;
    gsp_net_read_stats(fs->net, &stats);
    gsp_meter_turn(&p->up, now, stats.wire_bytes_sent, has_more(fs, donor));
    gsp_meter_turn(&p->down, now, stats.wire_bytes_received, true);
    if (p->told_version == fs->agree->certified)
        return; /* within a version a member says one thing */
    p->told_version = fs->agree->certified;
    told->up_bytes_per_s = told_now(p->said.up_bytes_per_s, &p->up, told->up_bytes_per_s);
    told->down_bytes_per_s = told_now(p->said.down_bytes_per_s, &p->down, told->down_bytes_per_s);
}
