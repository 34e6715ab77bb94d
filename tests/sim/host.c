/*
 * Owns one member's driver: its clock, its disk, its bytes. Its one idea: the disk is a barrier in
 * time; what the machine orders behind it is kept until the write is done, and is lost when the
 * host stops or the disk fails. It refuses to help the machine beyond what agree.h asks of a
 * driver.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

uint64_t sim_short(const gsp_hash *hash)
{
    uint64_t x;
    memcpy(&x, hash->byte, sizeof x);
    return x;
}

static uint64_t mix(uint64_t x, uint64_t y)
{
    x = (x ^ y) * 0x9fb21c651e98df25u;
    return x ^ x >> 32;
}

void sim_hash(void *context, const void *data, size_t bytes, gsp_hash *out)
{
    (void)context;
    uint64_t a = 0x243f6a8885a308d3u ^ bytes, b = 0x13198a2e03707344u, x;
    const uint8_t *at = data;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        memcpy(&x, at, 8);
        a = mix(a, x);
        b = mix(b, x + a);
    }
    x = 0;
    memcpy(&x, at, bytes);
    a = mix(a, x);
    b = mix(b, x + a);
    for (uint32_t k = 0; k < 4; k++) {
        a = mix(a, b + k);
        memcpy(out->byte + 8 * k, &a, 8);
    }
}

/* A seal is a hash with the signer's key: nobody in this process seals for another. */
static void seal_with(const gsp_key *key, const void *data, size_t bytes, uint8_t *out)
{
    gsp_hash hash[2];
    sim_hash(NULL, data, bytes, &hash[0]);
    for (uint32_t k = 0; k < GSP_KEY_BYTES; k++)
        hash[0].byte[k] ^= key->byte[k];
    sim_hash(NULL, &hash[0], sizeof hash[0], &hash[1]);
    memcpy(out, hash[1].byte, GSP_HASH_BYTES);
    memcpy(out + GSP_HASH_BYTES, hash[1].byte, GSP_HASH_BYTES);
}

static void seal(void *context, const void *data, size_t bytes, uint8_t out[GSP_SEAL_BYTES])
{
    sim_host *h = context;
    seal_with(&h->self.key, data, bytes, out);
}

static bool verify(void *context, const gsp_key *key, const void *data, size_t bytes,
                   const uint8_t given[GSP_SEAL_BYTES])
{
    (void)context;
    uint8_t right[GSP_SEAL_BYTES];
    seal_with(key, data, bytes, right);
    return memcmp(right, given, sizeof right) == 0;
}

gsp_seals sim_seals(sim_host *host)
{
    return (gsp_seals){.context = host, .hash = sim_hash, .seal = seal, .verify = verify};
}

uint64_t sim_host_tokens(const sim_world *w, const sim_host *h)
{
    return (uint64_t)((double)(w->now_ns - h->born_ns) * h->tokens_per_ns);
}

/* ---- results ---- */

static bool holds(const sim_host *h, uint64_t hash)
{
    for (uint32_t k = 0; k < SIM_RESULTS_MAX && k < h->n_results; k++)
        if (h->result[k].hash == hash)
            return true;
    return false;
}

static void hold(sim_host *h, uint64_t hash, uint64_t version)
{
    if (holds(h, hash))
        return;
    uint32_t at = h->n_results++ % SIM_RESULTS_MAX;
    h->result[at].hash = hash;
    h->result[at].version = version;
    h->result[at].durable = false;
}

static void make_durable(sim_host *h, const gsp_proposal *p)
{
    for (uint32_t i = 0; i < p->n_parts; i++)
        for (uint32_t k = 0; k < SIM_RESULTS_MAX && k < h->n_results; k++)
            if (h->result[k].hash == sim_short(&p->part[i].hash))
                h->result[k].durable = true;
}

static void forget_memory(sim_host *h)
{
    uint32_t n = h->n_results < SIM_RESULTS_MAX ? h->n_results : SIM_RESULTS_MAX, kept = 0;
    for (uint32_t k = 0; k < n; k++)
        if (h->result[k].durable)
            h->result[kept++] = h->result[k];
    h->n_results = kept;
}

/* ---- start and stop ---- */

void sim_host_stop(sim_world *w, uint32_t i)
{
    sim_host *h = w->host[i];
    h->running = false;
    h->boot++;
    h->barrier_ns = 0;
    forget_memory(h);
}

void sim_host_boot(sim_world *w, uint32_t i, bool lost)
{
    sim_host *h = w->host[i];
    if (h->running || h->gone)
        return;
    if (lost && h->started)
        h->self.incarnation++;
    if (!h->started)
        h->born_ns = w->now_ns;
    h->started = h->running = true;
    h->boot++;
    h->base = sim_host_tokens(w, h);
    h->tick_ns = 0;
    for (uint32_t k = 0; k < SIM_REPLAYS;
         k++) { /* a new link's nonces forbid what the old one carried */
        free(h->old[k]);
        h->old[k] = NULL;
    }
    gsp_seals seals = sim_seals(h);
    uint64_t local = (uint64_t)((double)w->now_ns * h->drift) + h->offset_ns;
    gsp_agree_open(&h->agree, &w->rules, &seals, &h->self, &h->rates, lost ? NULL : &h->disk,
                   local);
    sim_trace(w, "host %u starts as incarnation %llu%s", i, (unsigned long long)h->self.incarnation,
              lost ? " with nothing" : "");
    for (uint32_t k = 0; k < w->n_hosts; k++) {
        if (k == i || !w->linked[i][k] || !w->host[k]->running || w->cut[i][k] || w->cut[k][i])
            continue;
        for (int side = 0; side < 2; side++) {
            sim_item *item = sim_push(w, SIM_EVENT, side ? i : k, w->now_ns + sim_delay(w));
            item->event.kind = GSP_ON_UP;
            item->event.peer = w->host[side ? k : i]->self.key;
        }
    }
    gsp_event tick = {.kind = GSP_ON_TICK};
    sim_host_step(w, i, &tick);
}

/* ---- actions ---- */

static void later(sim_world *w, uint32_t to, uint64_t delay, const gsp_event *event)
{
    sim_push(w, SIM_EVENT, to, w->now_ns + delay)->event = *event;
}

static void transmit(sim_world *w, sim_host *h, uint32_t to, const gsp_message *m)
{
    if (h->hostility == SIM_HONEST || !sim_hostile_send(w, h, to, m))
        sim_message(w, h->index, to, m);
}

static void send_to(sim_world *w, sim_host *h, const gsp_action *action, const gsp_message *m)
{
    sim_check_heard(w, m); /* a liar may show later what it signed and did not say */
    if (h->hostility == SIM_HONEST)
        sim_check_said(w, h->index, m);
    if (action->to == GSP_TO_ONE) {
        transmit(w, h, sim_host_of(w, &action->peer), m);
        return;
    }
    const gsp_roster *roster = gsp_agree_roster(&h->agree);
    for (uint32_t i = 0; action->to == GSP_TO_ROSTER && i < roster->n; i++) {
        uint32_t to = sim_host_of(w, &roster->member[i].key);
        if (to != h->index)
            transmit(w, h, to, m);
    }
    for (uint32_t to = 0; action->to == GSP_TO_ALL && to < w->n_hosts; to++)
        if (to != h->index && w->linked[h->index][to])
            transmit(w, h, to, m);
}

static void send_result(sim_world *w, sim_host *h, const gsp_action *action, const gsp_message *m)
{
    const gsp_roster *roster = gsp_agree_roster(&h->agree);
    send_to(w, h, action, m);
    for (uint32_t i = 0; i < roster->n; i++) {
        uint32_t to = sim_host_of(w, &roster->member[i].key);
        if (to == h->index || !sim_reaches(w, h->index, to) || sim_chance(&w->random, w->loss))
            continue;
        gsp_event held = {.kind = GSP_ON_HELD,
                          .version = action->version,
                          .part = action->part,
                          .hash = action->hash};
        later(w, to, sim_delay(w) + h->slow_ns, &held);
    }
}

static void freeze(sim_world *w, sim_host *h, uint64_t version)
{
    uint32_t f = version % SIM_FRAGMENTS;
    uint64_t to = sim_host_tokens(w, h);
    uint64_t from = h->mark[f] > h->base ? h->mark[f] : h->base;
    gsp_event event = {.kind = GSP_ON_FROZEN, .version = version};
    if (to > from && !h->follower) {
        uint64_t id[6] = {h->index, h->self.incarnation, version, from, to, h->boot};
        event.contribution.tokens = to - from;
        event.contribution.samples = (to - from + 7) / 8;
        sim_hash(NULL, id, sizeof id, &event.contribution.root);
        sim_check_frozen(w, h->index, &event.contribution, from, to);
    }
    later(w, h->index, 5 * SIM_MS + sim_below(&w->random, 50 * SIM_MS), &event);
}

void sim_made(const gsp_hash *lineage, uint64_t version, uint32_t number,
              const gsp_contributor *contributor, uint32_t n_contributors, uint32_t included,
              gsp_part *out)
{
    uint64_t id[3] = {version, number, sim_short(lineage)};
    gsp_hash roots[GSP_MEMBERS_MAX + 1];
    uint32_t n = 0;
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < n_contributors; i++) {
        if (!(included >> i & 1))
            continue;
        roots[n++] = contributor[i].root;
        /* One in four of the members leans backwards: by its place, so that owners agree. */
        out->lean[i] = contributor[i].member % 4 == 1 ? -20 : 30;
    }
    memset(&roots[n], 0, sizeof roots[n]);
    memcpy(roots[n].byte, id, sizeof id);
    out->included = included;
    out->weight = gsp_included_weight(contributor, n_contributors, included);
    out->norm = (float)(n + number);
    sim_hash(NULL, roots, (n + 1) * sizeof roots[0], &out->hash);
}

static void reduce(sim_world *w, sim_host *h, const gsp_action *action, const gsp_begin *begin)
{
    gsp_part made;
    sim_made(&h->agree.lineage, action->version, action->part, begin->contributor,
             begin->n_contributors, action->included, &made);
    if (h->hostility == SIM_FALSIFIES)
        w->out->injected[SIM_FALSIFIED] += sim_hostile_part(w, h, begin, action->part, &made);
    gsp_event event = {.kind = GSP_ON_REDUCED,
                       .version = action->version,
                       .ballot = action->ballot,
                       .part = action->part,
                       .included = action->included,
                       .hash = made.hash,
                       .norm = made.norm};
    memcpy(event.lean, made.lean, sizeof event.lean);
    later(w, h->index, 5 * SIM_MS + sim_below(&w->random, 30 * SIM_MS), &event);
}

/* Are the contributions to be had: from who accuses, or from those who brought them and have not
 * gone on since. */
static bool evidence_there(const sim_world *w, const sim_host *h, const gsp_action *a)
{
    static const gsp_key nobody;
    uint32_t accuser = sim_host_of(w, &a->peer);
    if (gsp_key_compare(&a->peer, &nobody) != 0)
        return sim_reaches(w, h->index, accuser) && sim_reaches(w, accuser, h->index);
    for (uint32_t i = 0; i < a->claim->n_contributors; i++) {
        const sim_span *span = sim_check_span(w, &a->claim->contributor[i].root);
        if (!(a->claim->part.included >> i & 1) || (span && span->host == h->index))
            continue;
        if (!span || !sim_reaches(w, h->index, span->host) ||
            !sim_reaches(w, span->host, h->index) ||
            w->host[span->host]->agree.applied > a->claim->version)
            return false;
    }
    return true;
}

static void audit(sim_world *w, sim_host *h, const gsp_action *a)
{
    const gsp_claim *c = a->claim;
    gsp_part made;
    sim_made(&h->agree.lineage, c->version, c->number, c->contributor, c->n_contributors,
             c->part.included, &made);
    gsp_event event = {.kind = GSP_ON_AUDITED,
                       .version = c->version,
                       .part = c->number,
                       .verdict =
                           evidence_there(w, h, a) ? gsp_claim_judge(c, &made) : GSP_VERDICT_OPEN};
    later(w, h->index, 2 * sim_delay(w), &event);
}

static void apply(sim_world *w, sim_host *h, const gsp_certificate *c)
{
    const gsp_proposal *p = &c->proposal;
    uint64_t anchor = h->anchor;
    sim_check_certified(w, h->index, c);
    for (uint32_t k = 0; k < p->n_parts; k++) {
        if (gsp_hash_none(&p->part[k].hash))
            continue;
        if (!holds(h, sim_short(&p->part[k].hash)))
            sim_violate(w, "I2", "host %u applies version %llu without part %u", h->index,
                        (unsigned long long)p->version, k);
        anchor = mix(anchor, sim_short(&p->part[k].hash));
    }
    uint32_t anywhere = 0;
    for (uint32_t k = 0; k < p->n_parts; k++)
        anywhere |= p->part[k].included;
    for (uint32_t i = 0; i < p->n_contributors; i++) {
        const sim_span *span = sim_check_span(w, &p->contributor[i].root);
        if (span && span->host == h->index && (anywhere >> i & 1))
            h->mark[p->version % SIM_FRAGMENTS] = span->to;
    }
    h->anchor = anchor;
    make_durable(h, p);
    h->disk.has_certificate = true;
    h->disk.certificate = *c;
    sim_check_applied(w, h->index, c, anchor);
    gsp_event event = {.kind = GSP_ON_APPLIED, .version = p->version};
    later(w, h->index, w->disk_ns, &event);
}

static void send_certificate(sim_world *w, sim_host *h, const gsp_action *action)
{
    uint64_t version = action->version;
    if (version + GSP_REPLAY_MAX <= h->agree.applied)
        version = h->agree.certified;
    const gsp_certificate *c = sim_check_certificate(w, &h->agree.lineage, version);
    if (!c)
        return;
    gsp_message *m = calloc(1, sizeof *m);
    if (!m)
        abort();
    m->kind = GSP_CERTIFY;
    m->from = h->self;
    m->lineage = h->agree.lineage;
    m->version = version;
    m->ballot = c->ballot;
    m->as.certify.certificate = *c;
    transmit(w, h, sim_host_of(w, &action->peer), m);
    free(m);
}

static void fresh_marks(sim_world *w, sim_host *h)
{
    for (uint32_t f = 0; f < SIM_FRAGMENTS; f++)
        h->mark[f] = sim_host_tokens(w, h);
}

static void do_now(sim_world *w, sim_host *h, const gsp_action *a)
{
    uint32_t peer = sim_host_of(w, &a->peer);
    gsp_event event = {.version = a->version,
                       .part = a->part,
                       .hash = a->hash,
                       .root = a->hash,
                       .peer = h->self.key};
    switch (a->kind) {
    case GSP_DO_SEND:
        send_to(w, h, a, a->message);
        break;
    case GSP_DO_CERTIFICATE:
        send_certificate(w, h, a);
        break;
    case GSP_DO_FREEZE:
        freeze(w, h, a->version);
        break;
    case GSP_DO_PART:
        event.kind = GSP_ON_ARRIVED;
        if (sim_reaches(w, h->index, peer))
            later(w, peer, 2 * sim_delay(w) + h->slow_ns, &event);
        break;
    case GSP_DO_REDUCE:
        reduce(w, h, a, a->begin);
        break;
    case GSP_DO_RESULT:
        send_result(w, h, a, a->message);
        break;
    case GSP_DO_PULL:
    case GSP_DO_STATE: {
        bool mine = a->kind == GSP_DO_PULL && holds(h, sim_short(&a->hash));
        sim_item *item = sim_push(w, a->kind == GSP_DO_PULL ? SIM_PULLED : SIM_ASKED,
                                  mine ? h->index : peer, w->now_ns + sim_delay(w));
        item->from = h->index;
        item->event = event;
        break;
    }
    case GSP_DO_APPLY:
        apply(w, h, a->certificate);
        break;
    case GSP_DO_AUDIT:
        audit(w, h, a);
        break;
    case GSP_DO_FOUND:
        sim_trace(w, "host %u founds a lineage after version %llu", h->index,
                  (unsigned long long)a->version);
        if (a->genesis->reset > w->ordered && h->index == 0)
            w->ordered = a->genesis->reset;
        h->disk.genesis = *a->genesis;
        h->disk.has_certificate = false;
        memset(&h->disk.record, 0, sizeof h->disk.record);
        h->self.incarnation = a->genesis->founder.incarnation;
        fresh_marks(w, h);
        sim_check_applied(w, h->index, NULL, h->anchor);
        break;
    case GSP_DO_PERSIST:
        break;
    }
}

static void *copy(const void *data, size_t bytes)
{
    if (!data)
        return NULL;
    void *to = malloc(bytes);
    if (!to)
        abort();
    return memcpy(to, data, bytes);
}

static void defer(sim_world *w, sim_host *h, const gsp_action *a)
{
    sim_deferred *d = calloc(1, sizeof *d);
    if (!d)
        abort();
    d->action = *a;
    d->message = copy(a->message, a->message ? gsp_message_bytes(a->message->kind) : 0);
    d->begin = copy(a->begin, sizeof *a->begin);
    d->certificate = copy(a->certificate, sizeof *a->certificate);
    if (a->genesis)
        d->genesis = *a->genesis;
    if (a->claim)
        d->claim = *a->claim;
    d->action.message = d->message;
    d->action.begin = d->begin;
    d->action.certificate = d->certificate;
    d->action.genesis = &d->genesis;
    d->action.claim = &d->claim;
    sim_push(w, SIM_DEFERRED, h->index, h->barrier_ns)->payload = d;
}

typedef struct sink_of {
    sim_world *world;
    sim_host *host;
} sink_of;

static void sink(void *context, const gsp_action *a)
{
    sim_world *w = ((sink_of *)context)->world;
    sim_host *h = ((sink_of *)context)->host;
    h->actions++;
    if (a->kind == GSP_DO_PERSIST) {
        uint64_t from = h->barrier_ns > w->now_ns ? h->barrier_ns : w->now_ns;
        h->barrier_ns = from + 1 + sim_below(&w->random, w->disk_ns + 1);
        sim_item *item = sim_push(w, SIM_WRITTEN, h->index, h->barrier_ns);
        item->payload = copy(a->record, sizeof *a->record);
    } else if (h->barrier_ns >= w->now_ns && h->barrier_ns != 0) {
        defer(w, h, a);
    } else {
        do_now(w, h, a);
    }
}

void sim_host_step(sim_world *w, uint32_t i, gsp_event *event)
{
    sim_host *h = w->host[i];
    if (!h->running)
        return;
    event->now_ns = (uint64_t)((double)w->now_ns * h->drift) + h->offset_ns;
    event->tokens = sim_host_tokens(w, h);
    sink_of context = {w, h};
    if (h->hostility == SIM_LIES)
        sim_hostile_mind(h);
    h->actions = 0;
    uint64_t before = h->agree.certified;
    gsp_hash lineage = h->agree.lineage;
    gsp_agree_step(&h->agree, event, sink, &context);
    if (!gsp_hash_equal(&lineage, &h->agree.lineage) || before != h->agree.certified) {
        sim_trace(w, "host %u knows version %llu, a roster of %u", i,
                  (unsigned long long)h->agree.certified, gsp_agree_roster(&h->agree)->n);
        if (h->barrier_ns >= w->now_ns && h->barrier_ns != 0)
            sim_push(w, SIM_KNOWN, i, h->barrier_ns)->payload =
                copy(&h->agree.certificate, sizeof h->agree.certificate);
        else
            sim_check_certified(w, i, &h->agree.certificate);
    }
    sim_check_step(w, i);
    uint64_t wait = gsp_agree_deadline(&h->agree) - event->now_ns;
    uint64_t at = w->now_ns + (uint64_t)((double)wait / h->drift) + 1;
    if (h->tick_ns <= w->now_ns || at < h->tick_ns) {
        h->tick_ns = at;
        sim_push(w, SIM_TICK, i, at);
    }
}

/* ---- items ---- */

/* What may change something when it comes again, and rightly: who waits says so again, and who said
 * goodbye is on a roster that I have come back to from another lineage. */
static bool still_news(const sim_host *h, const gsp_message *old)
{
    return old->kind == GSP_JOIN ||
           (old->kind == GSP_LEAVE && gsp_hash_equal(&old->lineage, &h->agree.lineage) &&
            gsp_roster_find(gsp_agree_roster(&h->agree), &old->as.leave.statement.signer) !=
                GSP_NOBODY);
}

static void deliver(sim_world *w, sim_item *item)
{
    sim_host *h = w->host[item->host];
    gsp_message *m = item->payload;
    w->in_flight[item->from][item->host]--;
    if (!h->running || w->cut[item->from][item->host])
        return;
    uint64_t *newest = &w->arrived[item->from][item->host];
    w->out->injected[SIM_REORDERED] += item->order < *newest;
    *newest = item->order > *newest ? item->order : *newest;
    gsp_event event = {.kind = GSP_ON_MESSAGE, .message = m};
    bool keep = sim_chance(&w->random, 0.3);
    uint64_t digest = keep ? sim_check_digest(&h->agree) : 0;
    sim_host_step(w, item->host, &event);
    if (h->hostility != SIM_HONEST && h->hostility != SIM_REPLAYS_OLD)
        return;
    if (h->hostility == SIM_HONEST && h->old[h->n_old % SIM_REPLAYS] && h->running &&
        sim_chance(&w->random, 0.05)) {
        const gsp_message *old = h->old[sim_below(&w->random, SIM_REPLAYS)];
        if (old && !still_news(h, old)) {
            uint64_t before = sim_check_digest(&h->agree);
            w->out->injected[SIM_REPLAYED]++;
            gsp_event again = {.kind = GSP_ON_MESSAGE, .message = old};
            sim_host_step(w, item->host, &again);
            if (sim_check_digest(&h->agree) != before)
                sim_violate(w, "I7", "an old message of kind %d changes host %u", old->kind,
                            h->index);
        }
    }
    /* Only what had its effect: what came too early may still have it. */
    if (keep && digest != sim_check_digest(&h->agree)) {
        gsp_message **place = &h->old[h->n_old++ % SIM_REPLAYS];
        free(*place);
        *place = m;
        item->payload = NULL;
    }
}

static void answer_state(sim_world *w, sim_item *item)
{
    sim_host *donor = w->host[item->host], *asker = w->host[item->from];
    if (!donor->has_disk || !sim_reaches(w, item->host, item->from))
        return;
    gsp_saved *saved = copy(&donor->disk, sizeof donor->disk);
    memset(&saved->record, 0, sizeof saved->record);
    if (donor->hostility != SIM_HONEST)
        w->out->injected[SIM_ORDERED] += sim_hostile_state(w, donor, saved);
    sim_item *back = sim_push(w, SIM_EVENT, asker->index, w->now_ns + 3 * sim_delay(w));
    back->payload = saved;
    back->version = donor->anchor;
    back->event.kind = GSP_ON_STATE;
}

static void take_event(sim_world *w, sim_item *item)
{
    sim_host *h = w->host[item->host];
    gsp_event *e = &item->event;
    if (e->kind == GSP_ON_REDUCED || e->kind == GSP_ON_HELD)
        hold(h, sim_short(&e->hash), e->version);
    if (e->kind != GSP_ON_STATE) {
        sim_host_step(w, item->host, e);
        return;
    }
    gsp_hash lineage = h->agree.lineage;
    uint64_t applied = h->agree.applied;
    e->saved = item->payload;
    sim_host_step(w, item->host, e);
    if (gsp_hash_equal(&lineage, &h->agree.lineage) && applied == h->agree.applied)
        return;
    h->disk = *e->saved;
    h->has_disk = true;
    h->anchor = item->version;
    h->self = h->agree.self;
    fresh_marks(w, h);
    sim_trace(w, "host %u takes over version %llu", h->index, (unsigned long long)h->agree.applied);
}

static void written(sim_world *w, sim_item *item)
{
    sim_host *h = w->host[item->host];
    const gsp_record *record = item->payload;
    if (h->disk_bad) {
        h->disk_bad = false;
        w->out->injected[SIM_DISK_FAILED]++;
        sim_trace(w, "host %u cannot write and stops", h->index);
        sim_host_stop(w, item->host);
        sim_push(w, SIM_START, item->host, w->now_ns + 5 * SIM_SECOND);
        return;
    }
    h->disk.record = *record;
    h->has_disk = true;
    if (record->voted)
        make_durable(h, &record->proposal);
}

void sim_host_take(sim_world *w, sim_item *item)
{
    sim_host *h = w->host[item->host];
    bool stale = item->boot != h->boot;
    switch (item->kind) {
    case SIM_DELIVER:
        deliver(w, item);
        break;
    case SIM_TICK:
        if (!stale && h->running && item->at_ns == h->tick_ns) {
            gsp_event tick = {.kind = GSP_ON_TICK};
            if (h->hostility != SIM_HONEST)
                sim_hostile_tick(w, h);
            sim_host_step(w, item->host, &tick);
        }
        break;
    case SIM_EVENT:
        if (!stale && h->running)
            take_event(w, item);
        break;
    case SIM_DEFERRED:
        if (!stale && h->running)
            do_now(w, h, &((sim_deferred *)item->payload)->action);
        break;
    case SIM_WRITTEN:
        if (!stale && h->running)
            written(w, item);
        break;
    case SIM_KNOWN:
        if (!stale && h->running)
            sim_check_certified(w, item->host, item->payload);
        break;
    case SIM_PULLED:
        if (h->running && holds(h, sim_short(&item->event.hash)) &&
            (item->from == item->host || sim_reaches(w, item->host, item->from))) {
            item->event.kind = GSP_ON_HELD;
            later(w, item->from, sim_delay(w), &item->event);
        }
        break;
    case SIM_ASKED:
        if (h->running)
            answer_state(w, item);
        break;
    case SIM_START:
        sim_host_boot(w, item->host, !h->has_disk);
        break;
    case SIM_FAULT:
        break;
    }
}
