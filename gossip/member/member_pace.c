/*
 * Owns how fast a member sends to each peer, where it knows its rate. Its one idea: whoever waits
 * for more gets more, so that all are served at the same moment; senders that share a receiver's
 * link then leave it neither idle nor overrun, which flows left to themselves do: a part is summed
 * when its slowest contribution is here. In sum it asks for what the link carries and not for more:
 * then no queue stands in front of it, in which everybody's round trips grow, and with them the
 * time that TCP takes to get going in the next round. It refuses to be exact.
 */
#include "gossip/member/node_inner.h"
#include "gossip/member/node_look.h"

#include "atom/base/clock.h"
#include "gossip/member/shares.h"

static const uint64_t PACE_NS = 50000000u, METER_NS = 20000000u;
/* Of a rate of payload; the rest is left to acknowledgements of what comes in, and to records. */
static const double FULL = 0.998;
static const uint64_t UNSEEN = 512 * 1024; /* on its way in buffers, of which nobody knows here */

static uint64_t waiting_in(const gsp_node *d, const gsp_queue *q)
{
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < q->n; k++) {
        const gsp_outgoing *o = &q->item[(q->first + k) % MEMBER_BULK_MAX];
        uint64_t whole = gsp_node_part_bytes(d, o->version, o->part);
        uint64_t sent = (uint64_t)o->sequence * GSP_MEMBER_PIECE_BYTES;
        bytes += whole > sent ? whole - sent : 0;
    }
    return bytes;
}

/* What everybody will get of parts that I have not summed yet. */
static uint64_t results_to_come(const gsp_node *d)
{
    const gsp_round *r = &d->agree.round;
    uint64_t bytes = 0;
    for (uint32_t p = 0; r->ballot && p < r->begin.n_parts; p++)
        if (r->begin.owner[p] == d->agree.self_i && gsp_hash_none(&r->known[p].hash))
            bytes += gsp_node_part_bytes(d, d->agree.certified + 1, p);
    return bytes;
}

/* Of a peer's own link, as it says; 0: unknown. */
static uint64_t rate_down(const gsp_node *d, const gsp_key *key)
{
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++)
        if (d->agree.peer[i].up && gsp_key_compare(&d->agree.peer[i].who.key, key) == 0)
            return d->agree.peer[i].rates.down_bytes_per_s;
    return 0;
}

void gsp_node_pace(gsp_node *d)
{
    const gsp_roster *roster = gsp_agree_roster(&d->agree);
    uint64_t now = atom_clock_ns(), up = d->config.rates.up_bytes_per_s;
    double left[GSP_NET_PEERS_MAX], most[GSP_NET_PEERS_MAX], pace[GSP_NET_PEERS_MAX];
    gsp_friend *to[GSP_NET_PEERS_MAX];
    uint64_t coming;
    uint32_t n = 0;
    if (up == 0 || !d->config.net->ops->pace || now - d->paced_ns < PACE_NS)
        return;
    d->paced_ns = now;
    coming = results_to_come(d);
    const bool busy = gsp_node_is_busy(d);
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        gsp_friend *f = &d->friends[i];
        if (!f->up || gsp_roster_find_key(roster, &f->key) == GSP_NOBODY)
            continue;
        uint64_t state = busy ? 0 : (uint64_t)f->n_wanted * GSP_CHUNK_BYTES; /* yields to rounds */
        uint64_t bytes =
            waiting_in(d, &f->contributions) + waiting_in(d, &f->results) + coming + state;
        double of_many = roster->n > 3 ? 2.0 / (roster->n - 1.0) : 1.0;
        to[n] = f;
        left[n] = (double)(bytes + UNSEEN);
        most[n++] = FULL * of_many * (double)rate_down(d, &f->key);
    }
    gsp_shares_pace(left, most, n, FULL * (double)up, pace);
    for (uint32_t i = 0; i < n; i++) {
        double least = (double)up / (4.0 * n); /* what comes next must not wait for long */
        uint64_t now_pace = (uint64_t)(pace[i] > least ? pace[i] : least);
        if (now_pace > to[i]->pace + to[i]->pace / 16 || now_pace + now_pace / 16 < to[i]->pace) {
            to[i]->pace = now_pace;
            gsp_net_pace(d->config.net, to[i]->key.byte, now_pace);
        }
    }
}

/* Is there more to send than the links take? */
static bool has_more(const gsp_node *d)
{
    bool more = false;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const gsp_friend *f = &d->friends[i];
        more |=
            f->up && (f->busy[GSP_NET_BULK] || f->contributions.n || f->results.n || f->n_wanted);
    }
    return more;
}

static uint64_t told(uint64_t said, const gsp_meter *meter, uint64_t before)
{
    uint64_t now = gsp_meter_told(said, gsp_meter_rate(meter));
    uint64_t apart = now > before ? now - before : before - now;
    return apart > before / 10 ? now : before; /* a tenth is no news */
}

void gsp_node_meter(gsp_node *d)
{
    uint64_t now = atom_clock_ns();
    gsp_net_stats stats;
    if (now - d->metered_ns < METER_NS)
        return;
    d->metered_ns = now;
    gsp_net_read_stats(d->config.net, &stats);
    gsp_meter_turn(&d->meter_up, now, stats.wire_bytes_sent, has_more(d));
    gsp_meter_turn(&d->meter_down, now, stats.wire_bytes_received, true);
    if (d->told_version == d->agree.certified)
        return; /* within a version a member says one thing */
    d->told_version = d->agree.certified;
    gsp_rates *rates = &d->agree.rates;
    rates->up_bytes_per_s =
        told(d->config.rates.up_bytes_per_s, &d->meter_up, rates->up_bytes_per_s);
    rates->down_bytes_per_s =
        told(d->config.rates.down_bytes_per_s, &d->meter_down, rates->down_bytes_per_s);
}
