/*
 * Owns what other threads see of a membership and leave behind for it: the snapshot, the control
 * socket's answers, the trainer's numbers and what it should do. Its one idea: the pool's thread
 * copies what it knows a few times a second; nobody else looks at its things. It refuses to make a
 * reader wait for the network.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "gossip/member/node_look.h"

#include <jansson.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum { ORDER_SECONDS = 10 };

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

/* A joiner has no manifest at first. */
static uint64_t samples_of(const gsp_pool *p, uint64_t tokens)
{
    uint64_t each = p->door.manifest->tokens_per_sample;
    return each ? tokens / each : 0;
}

static void show_self(gsp_pool *p, gsp_pool_status *s)
{
    gsp_pool_peer *me = peer_of(s, p->door.identity.public_key);
    me->self = me->up = true;
    memcpy(me->name, p->name, sizeof me->name);
    me->tokens = gsp_pool_own_tokens(p);
    me->samples = samples_of(p, me->tokens);
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

/* Nobody trains for nothing without hearing of it. */
static void tell_muted(gsp_pool *p, bool muted)
{
    if (muted && !p->muted)
        atom_log(
            ATOM_LOG_WARN,
            "what this host brings to the pool counts for nothing from now on, because it leads "
            "away from what the others bring; it counts again when it leads where theirs does. "
            "If that does not happen, look for wrong data or a memory that makes errors");
    if (!muted && p->muted)
        atom_log(ATOM_LOG_INFO, "what this host brings to the pool counts again");
    p->muted = muted;
}

static void show_member(gsp_pool *p, gsp_pool_status *s)
{
    const gsp_agree *a = gsp_node_look(p->node);
    const gsp_roster *roster = gsp_agree_roster(a);
    gsp_pool_peer *me = &s->peer[0];
    me->certified = a->certified;
    me->applied = a->applied;
    me->rests = a->rests;
    for (uint32_t i = 0; i < roster->n; i++) {
        gsp_pool_peer *x = peer_of(s, roster->member[i].key.byte);
        if (x)
            x->on_roster = true;
        if (x)
            x->muted = gsp_agree_mutes(a, i);
    }
    tell_muted(p, me->muted);
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
        x->samples = samples_of(p, k->tokens_live);
        x->rates = k->rates;
        x->rests = k->rests;
        x->heard_s = a->now_ns > k->heard_ns ? 1e-9 * (double)(a->now_ns - k->heard_ns) : 0;
    }
    gsp_node_read_status(p->node, &s->member);
    peer_of(s, p->door.identity.public_key)->rates = s->member.rates;
    /* The certificate's tokens are weights, which count once per fragment. */
    s->samples = a->certificate.proposal.samples;
    s->tokens = s->samples * p->door.manifest->tokens_per_sample;
}

/* Of those that are shown, and of those that are not here. */
static void show_credits(const gsp_pool *p, gsp_pool_status *s)
{
    double all = (double)gsp_credits_samples(&p->credits);
    for (uint32_t i = 0; i < s->n_peers; i++) {
        const gsp_credit *c = gsp_credits_find(&p->credits, s->peer[i].key);
        s->peer[i].brought = c ? c->samples : 0;
        s->peer[i].share = c && all > 0 ? (double)c->samples / all : 0;
    }
}

uint64_t gsp_pool_own_tokens(const gsp_pool *p)
{
    const gsp_credit *c = gsp_credits_find(&p->credits, p->door.identity.public_key);
    if (p->summed)
        return c ? c->samples * p->door.manifest->tokens_per_sample : 0;
    return p->credits.tokens + atomic_load(&p->tokens);
}

void gsp_pool_snapshot(gsp_pool *p)
{
    gsp_net_stats net;
    gsp_pool_status *s = atom_alloc(1, sizeof *s);
    char text[GSP_POOL_WHY_BYTES] = "";
    if (!s)
        return;
    gsp_net_read_stats(p->net, &net);
    show_self(p, s);
    show_links(p, s);
    if (p->node) {
        show_member(p, s);
        gsp_node_explain(p->node, text, sizeof text);
        if (gsp_hash_none(&gsp_node_look(p->node)->lineage) && !gsp_links_member(&p->links))
            gsp_seek_text(&p->seek, text, sizeof text); /* nobody is there to have the state */
    }
    show_credits(p, s);
    s->manifest = gsp_door_number(&p->door);
    s->up_s = atom_clock_seconds() - p->started_s;
    s->own_samples = p->summed ? atomic_load(&p->samples) : samples_of(p, atomic_load(&p->tokens));
    s->own_tokens = gsp_pool_own_tokens(p);
    s->bytes_out = net.wire_bytes_sent;
    s->bytes_in = net.wire_bytes_received;
    s->quota = p->month.quota;
    gsp_heartbeats_look(&p->book.beats, (uint64_t)atom_wall_seconds(), &s->directory);
    s->faults = net.strangers + net.records_refused + p->refusals + s->member.refused;
    s->stage = gsp_headline_read(&p->headline, s->text);
    if (s->stage == GSP_POOL_RUNNING && text[0] && p->leaving_ns == 0 &&
        !atomic_load(&p->door.shut))
        memcpy(s->text, text, sizeof s->text);
    pthread_mutex_lock(&p->lock);
    if (s->stage == GSP_POOL_RUNNING && p->rest[0]) {
        (void)snprintf(text, sizeof text, "%s; %.*s", p->rest,
                       (int)(sizeof text - sizeof p->rest - 2), s->text);
        memcpy(s->text, text, sizeof s->text);
    }
    s->n_rounds = p->status->n_rounds;
    memcpy(s->round, p->status->round, sizeof s->round);
    *p->status = *s;
    pthread_mutex_unlock(&p->lock);
    atom_free(s);
}

void gsp_pool_snapshot_step(gsp_pool *p)
{
    uint64_t now = atom_clock_ns();
    if (now < p->snapshot_ns)
        return;
    p->snapshot_ns = now + 250000000u;
    gsp_pool_snapshot(p);
}

/* ---- the trainer ---- */

void gsp_pool_report(gsp_pool *p, uint64_t samples, uint64_t tokens)
{
    atomic_store(&p->tokens, tokens);
    atomic_store(&p->samples, samples);
}

gsp_pool_wish gsp_pool_wishes(gsp_pool *p, char why[GSP_POOL_WHY_BYTES], atom_status *status)
{
    gsp_pool_wish wish = GSP_POOL_GO;
    const char *text = "";
    char resting[GSP_POOL_WHY_BYTES];
    pthread_mutex_lock(&p->lock);
    if (atomic_load(&p->ended) || atomic_load(&p->leave) || atomic_load(&p->asked_stop)) {
        wish = GSP_POOL_STOP;
        text = p->end != ATOM_OK        ? p->end_text
               : atomic_load(&p->leave) ? "this host leaves the pool"
                                        : "asked to stop";
    } else if (atomic_load(&p->paused)) {
        wish = GSP_POOL_PAUSE;
        text = "paused";
    } else if (atomic_load(&p->no_room)) {
        wish = GSP_POOL_REST;
        text = p->room_text;
    } else if (atomic_load(&p->door.shut)) {
        wish = GSP_POOL_REST;
        (void)gsp_headline_read(&p->headline, resting);
        text = resting;
    }
    if (why)
        snprintf(why, GSP_POOL_WHY_BYTES, "%s", text);
    if (status)
        *status = p->end;
    pthread_mutex_unlock(&p->lock);
    return wish;
}

void gsp_pool_say_rest(gsp_pool *p, const char *why)
{
    pthread_mutex_lock(&p->lock);
    snprintf(p->rest, sizeof p->rest, "%s", why);
    pthread_mutex_unlock(&p->lock);
}

atom_status gsp_pool_pause(gsp_pool *p, bool paused)
{
    atomic_store(&p->paused, paused);
    return gsp_pause_keep(p->directory, paused);
}

void gsp_pool_read_status(gsp_pool *p, gsp_pool_status *out)
{
    gsp_pool_wish wish = gsp_pool_wishes(p, NULL, NULL);
    char text[GSP_POOL_WHY_BYTES];
    pthread_mutex_lock(&p->lock);
    *out = *p->status;
    if (atomic_load(&p->no_room))
        memcpy(out->text, p->room_text, sizeof out->text);
    pthread_mutex_unlock(&p->lock);
    out->stage = gsp_headline_read(&p->headline, text);
    if (out->stage != GSP_POOL_RUNNING)
        memcpy(out->text, text, sizeof out->text);
    out->wish = wish;
}

/* ---- requests ---- */

static json_t *no(const char *why)
{
    return json_pack("{s:b, s:o}", "ok", 0, "error", gsp_pool_text_json(why));
}

/* At the owner those that it named, at a delegate itself. */
static json_t *delegates_json(gsp_pool *p)
{
    gsp_delegation list[GSP_DELEGATES_MAX];
    char who[GSP_PUBLIC_TEXT_BYTES];
    const uint64_t now_s = (uint64_t)atom_wall_seconds();
    const uint32_t n = gsp_door_read_delegations(&p->door, list);
    json_t *o = json_array();
    for (uint32_t i = 0; i < n; i++)
        if (now_s < list[i].expires_s)
            json_array_append_new(o, json_pack("{s:s, s:I}", "key",
                                               gsp_public_text(list[i].delegate, who), "until",
                                               (json_int_t)list[i].expires_s));
    return o;
}

static json_t *show(gsp_pool *p)
{
    gsp_pool_status *s = atom_alloc(1, sizeof *s);
    if (!s)
        return NULL;
    gsp_pool_read_status(p, s);
    /* Name and settings are the same in all manifests. */
    const gsp_pool_head head = {.trust = p->door.manifest->trust,
                                .name = p->door.manifest->name,
                                .settings = p->door.manifest->settings,
                                .key = p->door.identity.public_key,
                                .is_owner = gsp_door_is_owner(&p->door),
                                .port = p->reach.port};
    json_t *o = gsp_pool_status_json(s, &head);
    if (o && !p->door.plain) /* without encryption nobody is admitted */
        json_object_set_new(o, "delegates", delegates_json(p));
    atom_free(s);
    return o;
}

static json_t *order(gsp_pool *p, const gsp_control_order *wanted)
{
    gsp_control_order done;
    bool late = !gsp_control_orders_give(&p->errands, wanted, ORDER_SECONDS, &done);
    json_t *o = late                 ? no("the pool does not answer yet; try again")
                : done.st != ATOM_OK ? no(done.text)
                                     : json_pack("{s:b}", "ok", 1);
    if (o && !late && done.st == ATOM_OK && done.text[0])
        json_object_set_new(o, "ticket", json_string(done.text));
    if (o && !late && done.note[0])
        json_object_set_new(o, "note", gsp_pool_text_json(done.note));
    sodium_memzero(&done, sizeof done);
    return o;
}

/* What a member is to be done to: an order about the key that a request names, whole or its beginning. */
static json_t *order_about(gsp_pool *p, const json_t *request, gsp_control_order_kind kind)
{
    gsp_control_order o = {.kind = kind};
    const char *who = json_string_value(json_object_get(request, "key"));
    o.with_others = json_is_true(json_object_get(request, "whole_invite"));
    o.days = json_number_value(json_object_get(request, "days"));
    gsp_pool_status *s = atom_alloc(1, sizeof *s);
    uint32_t found = 0;
    size_t n = who ? strlen(who) : 0;
    if (!s || n == 0) {
        atom_free(s);
        return no("no member was named; give the beginning of its key, as atom pool status shows "
                  "it");
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
        return show(p);
    if (strcmp(what, "pause") == 0 || strcmp(what, "resume") == 0) {
        json_t *o = json_pack("{s:b}", "ok", 1);
        if (gsp_pool_pause(p, what[0] == 'p') != ATOM_OK) {
            char note[GSP_CONTROL_NOTE_BYTES];
            snprintf(note, sizeof note, "this is forgotten at a restart: %s", atom_fail_message());
            json_object_set_new(o, "note", gsp_pool_text_json(note));
        }
        return o;
    }
    if (strcmp(what, "leave") == 0 || strcmp(what, "stop") == 0) {
        atomic_store(what[0] == 'l' ? &p->leave : &p->asked_stop, true);
        return json_pack("{s:b}", "ok", 1);
    }
    if (strcmp(what, "ticket") == 0) {
        char text[GSP_TICKET_TEXT_BYTES];
        gsp_door_read_ticket(&p->door, text);
        json_t *o = text[0] ? json_pack("{s:b, s:s}", "ok", 1, "ticket", text)
                            : no("only the pool's owner and its delegates have tickets to give");
        sodium_memzero(text, sizeof text);
        return o;
    }
    if (strcmp(what, "ban") == 0)
        return order_about(p, request, GSP_CONTROL_ORDER_BAN);
    if (strcmp(what, "delegate") == 0)
        return order_about(p, request, GSP_CONTROL_ORDER_DELEGATE);
    gsp_control_order o = {.kind = GSP_CONTROL_ORDER_ROTATE};
    if (strcmp(what, "rotate") == 0)
        return order(p, &o);
    o.kind = GSP_CONTROL_ORDER_RESET;
    if (strcmp(what, "reset") == 0)
        return order(p, &o);
    if (strcmp(what, "invite") == 0) {
        const json_t *count = json_object_get(request, "count");
        json_int_t n = json_integer_value(count);
        o.kind = GSP_CONTROL_ORDER_INVITE;
        o.count = n > 0 && n <= UINT32_MAX ? (uint32_t)n : 0;
        o.days = json_number_value(json_object_get(request, "days"));
        return order(p, &o);
    }
    return no("no such request");
}

char *gsp_pool_answer(void *context, const char *request)
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
