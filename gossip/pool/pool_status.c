/*
 * Owns what is shown of a membership: the snapshot that other threads read, and its JSON for the
 * control socket. Its one idea: the pool's thread copies what it knows a few times a second;
 * nobody else looks at its things. It refuses to make a reader wait for the network.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"
#include "gossip/member/node_look.h"

#include <jansson.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const stages[] = {"seeking", "asking",  "reading", "fetching",
                                     "ready",   "running", "left",    "dead"};
static const char *const wishes[] = {"go", "pause", "rest", "stop"};

/* ---- the snapshot ---- */

static gsp_pool_peer *peer_of(gsp_pool_status *s, const uint8_t *key)
{
    for (uint32_t i = 0; i < s->n_peers; i++)
        if (memcmp(s->peer[i].key, key, GSP_PUBLIC_BYTES) == 0)
            return &s->peer[i];
    if (s->n_peers == GSP_POOL_SHOWN_MAX)
        return NULL;
    gsp_pool_peer *p = &s->peer[s->n_peers++];
    *p = (gsp_pool_peer){.heard_s = -1};
    memcpy(p->key, key, sizeof p->key);
    return p;
}

static void show_self(gsp_pool *p, gsp_pool_status *s)
{
    gsp_pool_peer *me = peer_of(s, p->identity.public_key);
    me->self = me->up = true;
    memcpy(me->name, p->name, sizeof me->name);
    me->samples = atomic_load(&p->samples);
    me->tokens = atomic_load(&p->tokens);
    me->rates = p->rates;
    me->heard_s = 0;
}

static void show_links(gsp_pool *p, gsp_pool_status *s)
{
    static const gsp_address nowhere;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const gsp_link *l = &p->links.link[i];
        gsp_pool_peer *x = l->up && !l->guest ? peer_of(s, l->key) : NULL;
        if (!x)
            continue;
        x->up = true;
        x->address = l->address;
        x->relayed = gsp_address_equal(&l->address, &nowhere);
        memcpy(x->name, l->name, sizeof x->name);
    }
}

static void show_member(gsp_pool *p, gsp_pool_status *s)
{
    const gsp_agree *a = gsp_node_look(p->driver);
    const gsp_roster *roster = gsp_agree_roster(a);
    gsp_pool_peer *me = &s->peer[0];
    me->certified = a->certified;
    me->applied = a->applied;
    for (uint32_t i = 0; i < roster->n; i++) {
        gsp_pool_peer *x = peer_of(s, roster->member[i].key.byte);
        if (x)
            x->on_roster = true;
    }
    for (uint32_t i = 0; i < a->n_waiting; i++) {
        gsp_pool_peer *x = peer_of(s, a->waiting[i].who.key.byte);
        if (x && !x->on_roster)
            x->waiting = true;
    }
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++) {
        const gsp_peer *k = &a->peer[i];
        gsp_pool_peer *x = k->known ? peer_of(s, k->who.key.byte) : NULL;
        if (!x)
            continue;
        x->certified = k->certified;
        x->applied = k->applied;
        x->tokens = k->tokens_live;
        x->samples = k->samples;
        x->rates = k->rates;
        x->heard_s = a->now_ns > k->heard_ns ? 1e-9 * (double)(a->now_ns - k->heard_ns) : 0;
    }
    gsp_node_read_status(p->driver, &s->member);
    peer_of(s, p->identity.public_key)->rates = s->member.rates;
    /* The certificate's tokens are weights, which count once per fragment. */
    s->samples = a->certificate.proposal.samples;
    s->tokens = s->samples * p->manifest->tokens_per_sample;
}

void life_snapshot(gsp_pool *p)
{
    gsp_net_stats net;
    gsp_pool_status *s = atom_alloc(1, sizeof *s);
    char text[GSP_POOL_WHY_BYTES] = "";
    if (!s)
        return;
    gsp_net_read_stats(p->net, &net);
    show_self(p, s);
    show_links(p, s);
    if (p->driver) {
        show_member(p, s);
        gsp_node_explain(p->driver, text, sizeof text);
    }
    s->manifest = p->has_manifest ? p->manifest->number : 0;
    s->up_s = atom_clock_seconds() - p->started_s;
    s->own_samples = atomic_load(&p->samples);
    s->own_tokens = atomic_load(&p->tokens);
    s->bytes_out = net.wire_bytes_sent;
    s->bytes_in = net.wire_bytes_received;
    s->quota = p->quota;
    s->faults = net.strangers + net.records_refused + p->refusals + s->member.refused;
    s->stage = gsp_headline_read(&p->headline, s->text);
    if (s->stage == GSP_POOL_RUNNING && text[0] && p->leaving_ns == 0 && !atomic_load(&p->rests))
        memcpy(s->text, text, sizeof s->text);
    pthread_mutex_lock(&p->lock);
    s->n_rounds = p->status->n_rounds;
    memcpy(s->round, p->status->round, sizeof s->round);
    *p->status = *s;
    pthread_mutex_unlock(&p->lock);
    atom_free(s);
}

void life_snapshot_step(gsp_pool *p)
{
    uint64_t now = atom_clock_ns();
    if (now < p->snapshot_ns)
        return;
    p->snapshot_ns = now + 250000000u;
    life_snapshot(p);
}

void gsp_pool_read_status(gsp_pool *p, gsp_pool_status *out)
{
    gsp_pool_wish wish = gsp_pool_wishes(p, NULL, NULL);
    char text[GSP_POOL_WHY_BYTES];
    pthread_mutex_lock(&p->lock);
    *out = *p->status;
    pthread_mutex_unlock(&p->lock);
    out->stage = gsp_headline_read(&p->headline, text);
    if (out->stage != GSP_POOL_RUNNING)
        memcpy(out->text, text, sizeof out->text);
    out->wish = wish;
}

/* ---- JSON ---- */

static json_t *key_json(const uint8_t *key)
{
    char text[GSP_PUBLIC_TEXT_BYTES];
    return json_string(gsp_public_text(key, text));
}

static json_t *hash_json(const gsp_hash *hash)
{
    char text[2 * GSP_HASH_BYTES + 1];
    sodium_bin2hex(text, sizeof text, hash->byte, sizeof hash->byte);
    return json_string(text);
}

static json_t *peer_json(const gsp_pool_peer *x)
{
    static const gsp_address nowhere;
    char at[GSP_ADDRESS_TEXT_BYTES];
    return json_pack(
        "{s:o, s:s, s:b, s:b, s:b, s:b, s:b, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:o}", "key",
        key_json(x->key), "name", x->name, "self", x->self, "up", x->up, "on_roster", x->on_roster,
        "waiting", x->waiting, "relayed", x->relayed, "address",
        gsp_address_equal(&x->address, &nowhere) ? json_null()
                                                 : json_string(gsp_address_text(&x->address, at)),
        "version", (json_int_t)x->certified, "applied", (json_int_t)x->applied, "samples",
        (json_int_t)x->samples, "tokens", (json_int_t)x->tokens, "up_bytes_per_s",
        (json_int_t)x->rates.up_bytes_per_s, "down_bytes_per_s",
        (json_int_t)x->rates.down_bytes_per_s, "accepts", x->rates.accepts, "heard_s",
        x->heard_s < 0 ? json_null() : json_real(x->heard_s));
}

static json_t *month_json(const gsp_quota *q)
{
    char text[160];
    return json_pack("{s:i, s:I, s:I, s:I, s:I, s:s}", "month", (int)q->month, "up_bytes",
                     (json_int_t)q->up, "up_max_bytes", (json_int_t)q->up_max, "down_bytes",
                     (json_int_t)q->down, "down_max_bytes", (json_int_t)q->down_max, "text",
                     gsp_quota_text(q, text, sizeof text));
}

static json_t *rounds_json(const gsp_pool_status *s)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < s->n_rounds; i++) {
        const gsp_pool_round *r = &s->round[i];
        json_array_append_new(
            list, json_pack("{s:I, s:i, s:i, s:I, s:I, s:f, s:f}", "version",
                            (json_int_t)r->version, "contributors", (int)r->n_contributors,
                            "roster", (int)r->n_roster, "tokens", (json_int_t)r->tokens, "samples",
                            (json_int_t)r->samples, "time", r->wall_s, "round_s", r->round_s));
    }
    return list;
}

static json_t *status_json(gsp_pool *p)
{
    gsp_pool_status *s = atom_alloc(1, sizeof *s);
    if (!s)
        return NULL;
    gsp_pool_read_status(p, s);
    json_t *peers = json_array();
    for (uint32_t i = 0; i < s->n_peers; i++)
        json_array_append_new(peers, peer_json(&s->peer[i]));
    json_t *o = json_pack("{s:b, s:s, s:s, s:s, s:s, s:s, s:o, s:b, s:i, s:i, s:f}", "ok", 1,
                          "name", p->manifest->name, "settings", p->manifest->settings, "state",
                          stages[s->stage], "text", s->text, "wish", wishes[s->wish], "key",
                          key_json(p->identity.public_key), "owner", gsp_pool_is_owner(p),
                          "manifest", (int)s->manifest, "port", (int)p->port, "up_s", s->up_s);
    json_t *more = json_pack(
        "{s:I, s:I, s:o, s:o, s:b, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}",
        "version", (json_int_t)s->member.certified, "applied", (json_int_t)s->member.applied,
        "lineage", hash_json(&s->member.lineage), "newest", hash_json(&s->member.newest),
        "is_member", s->member.is_member, "roster", (int)s->member.n_roster, "links",
        (int)s->member.n_links, "certified_tokens", (json_int_t)s->tokens, "certified_samples",
        (json_int_t)s->samples, "samples", (json_int_t)s->own_samples, "tokens",
        (json_int_t)s->own_tokens, "bytes_out", (json_int_t)s->bytes_out, "bytes_in",
        (json_int_t)s->bytes_in, "faults", (json_int_t)s->faults, "members", peers, "rounds",
        rounds_json(s));
    if (!o || !more || json_object_update(o, more) != 0) {
        json_decref(o);
        o = NULL;
    }
    json_decref(more);
    more = o ? json_pack("{s:o, s:o, s:I, s:I, s:I}", "month", month_json(&s->quota), "banned",
                         life_bans_json(&s->member), "audits", (json_int_t)s->member.audits,
                         "audits_open", (json_int_t)s->member.audits_open, "false_accusations",
                         (json_int_t)s->member.false_claims)
             : NULL;
    if (more)
        (void)json_object_update(o, more);
    json_decref(more);
    atom_free(s);
    return o;
}

/* ---- requests ---- */

static json_t *no(const char *why)
{
    return json_pack("{s:b, s:s}", "ok", 0, "error", why);
}

/* Leaves the order to the pool's thread, and waits for it. */
static json_t *order(gsp_pool *p, const pool_order *wanted)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    pthread_mutex_lock(&p->lock);
    p->order = *wanted;
    int late = 0;
    while (!p->order.done && late == 0)
        late = pthread_cond_timedwait(&p->answered, &p->lock, &until);
    pool_order done = p->order;
    p->order = (pool_order){0};
    pthread_mutex_unlock(&p->lock);
    json_t *o = late                 ? no("the pool is not running yet; try again")
                : done.st != ATOM_OK ? no(done.text)
                                     : json_pack("{s:b, s:s}", "ok", 1, "ticket", done.text);
    sodium_memzero(&done, sizeof done);
    return o;
}

static json_t *ban(gsp_pool *p, const json_t *request)
{
    pool_order o = {.kind = POOL_ORDER_BAN};
    const char *who = json_string_value(json_object_get(request, "key"));
    gsp_pool_status *s = atom_alloc(1, sizeof *s);
    uint32_t found = 0;
    size_t n = who ? strlen(who) : 0;
    if (!s || n == 0) {
        atom_free(s);
        return no("whom? give the key that atom pool status shows");
    }
    gsp_pool_read_status(p, s);
    for (uint32_t i = 0; i < s->n_peers; i++) {
        char text[GSP_PUBLIC_TEXT_BYTES];
        if (strncmp(gsp_public_text(s->peer[i].key, text), who, n) != 0)
            continue;
        found++;
        memcpy(o.key, s->peer[i].key, sizeof o.key);
    }
    atom_free(s);
    if (found > 1)
        return no("several members' keys begin like this; give more of it");
    if (found == 0 && gsp_public_parse(who, o.key) != ATOM_OK)
        return no("no member's key begins like this");
    return order(p, &o);
}

static json_t *answer(gsp_pool *p, const json_t *request)
{
    const char *what = json_string_value(json_object_get(request, "do"));
    if (!what)
        return no("a request is {\"do\": ...}");
    if (strcmp(what, "status") == 0)
        return status_json(p);
    if (strcmp(what, "pause") == 0 || strcmp(what, "resume") == 0) {
        gsp_pool_pause(p, what[0] == 'p');
        return json_pack("{s:b}", "ok", 1);
    }
    if (strcmp(what, "leave") == 0 || strcmp(what, "stop") == 0) {
        atomic_store(what[0] == 'l' ? &p->leave : &p->asked_stop, true);
        return json_pack("{s:b}", "ok", 1);
    }
    if (strcmp(what, "ticket") == 0) {
        pthread_mutex_lock(&p->lock);
        json_t *o = p->ticket[0] ? json_pack("{s:b, s:s}", "ok", 1, "ticket", p->ticket)
                                 : no("only the pool's owner has a ticket to give");
        pthread_mutex_unlock(&p->lock);
        return o;
    }
    if (strcmp(what, "ban") == 0)
        return ban(p, request);
    pool_order o = {.kind = POOL_ORDER_ROTATE};
    if (strcmp(what, "rotate") == 0)
        return order(p, &o);
    if (strcmp(what, "invite") == 0) {
        const json_t *count = json_object_get(request, "count");
        json_int_t n = json_integer_value(count);
        o.kind = POOL_ORDER_INVITE;
        o.count = n > 0 && n <= UINT32_MAX ? (uint32_t)n : 0;
        o.days = json_number_value(json_object_get(request, "days"));
        return order(p, &o);
    }
    return no("no such request");
}

char *life_answer(void *context, const char *request)
{
    json_error_t error;
    json_t *r = json_loads(request, JSON_REJECT_DUPLICATES, &error);
    json_t *o = r ? answer(context, r) : no("the request is not JSON");
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    char *copy = text ? atom_strdup(text) : NULL;
    json_decref(r);
    json_decref(o);
    free(text);
    return copy;
}
