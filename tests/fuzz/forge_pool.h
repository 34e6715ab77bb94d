/*
 * A pool of real machines of the agreement in one process, with the seals of forge_seals.h: what
 * they do is answered at once, with sums over a few real floats. Every message passes the wire's
 * encoder and decoder. After every step of an honest machine an oracle that shares no code with it
 * says whether what it took on was allowed (forge_oracle.h).
 */
#ifndef TESTS_FUZZ_FORGE_POOL_H
#define TESTS_FUZZ_FORGE_POOL_H

#include "atom/base/assert.h"
#include "gossip/agree/agree_inner.h"
#include "gossip/agree/wire.h"
#include "gossip/sum/mix.h"
#include "tests/fuzz/forge_driver.h"
#include "tests/fuzz/forge_oracle_state.h"

#include <stdlib.h>

enum {
    FORGE_HOSTS = 8,
    FORGE_QUEUE = 4096,
    FORGE_PARTS = 3,
    FORGE_FLOATS = 2,     /* of a part */
    FORGE_STEPS = 20000,  /* of one input: more means that machines feed each other for ever */
    FORGE_ACTIONS = 2000, /* of one step */
};
static const uint64_t FORGE_MS = 1000000u;

typedef struct forge_item {
    uint32_t to;
    gsp_event event;
    gsp_message *message;
} forge_item;

typedef struct forge_pool {
    gsp_agree agree[FORGE_HOSTS];
    gsp_rules rules;
    gsp_saved saved; /* what they began with */
    gsp_mix mix;
    gsp_key key[FORGE_HOSTS];
    uint32_t n, n_admitted; /* hosts; how many of them have an admission, members first */
    uint32_t honest;        /* bits of the hosts that the oracle watches */
    bool many_keys;         /* the fuzzer has the honest hosts' keys, too */
    uint32_t dropped;       /* bits: messages of these kinds do not arrive */
    uint32_t head, tail, steps, actions;
    uint64_t now_ns;
    gsp_verdict verdict; /* of audits; OPEN: what the sum says */
    uint32_t withholds;  /* bits of hosts that give nobody what they contributed */
    uint32_t lies;       /* bits of hosts whose sums are false */
    forge_driver driver; /* of host 0 */
    forge_item queue[FORGE_QUEUE];
} forge_pool;

static forge_pool forge;

static inline bool forge_admitted(const gsp_key *key)
{
    return key->byte[0] >= 1 && key->byte[0] <= forge.n_admitted;
}

static inline bool forge_admits(void *context, const gsp_key *key, const gsp_shown *shown,
                                uint64_t now_ns)
{
    (void)context, (void)shown, (void)now_ns;
    return forge_admitted(key);
}

static inline void forge_push(uint32_t to, const gsp_event *event, const gsp_message *message)
{
    if (to >= forge.n || forge.tail - forge.head >= FORGE_QUEUE)
        return; /* a full queue loses messages, as links do */
    forge_item *item = &forge.queue[forge.tail++ % FORGE_QUEUE];
    *item = (forge_item){.to = to, .event = *event};
    if (message) {
        size_t bytes = gsp_message_bytes(message->kind); /* and not a byte more to look at */
        item->message = malloc(bytes);
        ATOM_ASSERT(item->message);
        memcpy(item->message, message, bytes);
    }
}

/* A part of a member's contribution, so that its sum is a function of what was contributed. */
static inline void forge_floats(const gsp_hash *root, uint32_t part, float *out)
{
    for (uint32_t k = 0; k < FORGE_FLOATS; k++)
        out[k] = (float)root->byte[0] + (float)(part * FORGE_FLOATS + k) / 8;
}

static inline void forge_reduce(const gsp_contributor *contributor, uint32_t n, uint32_t part,
                                uint32_t included, gsp_part *made)
{
    float in[GSP_MEMBERS_MAX][FORGE_FLOATS], out[FORGE_FLOATS];
    const void *input[GSP_MEMBERS_MAX];
    atom_status st;
    ATOM_ASSERT(n <= GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        forge_floats(&contributor[i].root, part, in[i]);
        input[i] = in[i];
    }
    if (!gsp_mix_part(&forge.mix, part, contributor, n, input, included, FORGE_FLOATS, out, made,
                      &st))
        memset(made, 0, sizeof *made);
    ATOM_ASSERT(st == ATOM_OK);
}

static inline void forge_send(uint32_t from, const gsp_action *a)
{
    static uint8_t bytes[GSP_WIRE_BYTES_MAX];
    static gsp_message m;
    const gsp_event event = {.kind = GSP_ON_MESSAGE};
    size_t n = gsp_wire_encode(a->message, bytes, sizeof bytes);
    ATOM_ASSERT(n); /* an honest machine says nothing that cannot travel */
    if (forge.dropped >> a->message->kind & 1)
        return;
    ATOM_ASSERT(gsp_wire_decode(bytes, n, &forge.key[from], &m, NULL, NULL));
    for (uint32_t i = 0; i < forge.n; i++) {
        bool wanted = a->to == GSP_TO_ALL || gsp_key_compare(&forge.key[i], &a->peer) == 0;
        if (a->to == GSP_TO_ROSTER)
            wanted = gsp_roster_find_key(gsp_agree_roster(&forge.agree[from]), &forge.key[i]) !=
                     GSP_NOBODY;
        if (wanted && i != from)
            forge_push(i, &event, &m);
    }
}

static inline uint32_t forge_host(const gsp_key *key)
{
    return (uint32_t)key->byte[0] - 1;
}

static inline void forge_certify(uint32_t from, const gsp_action *a)
{
    static gsp_message m;
    const gsp_agree *me = &forge.agree[from];
    if (me->certified == 0 || me->certificate.n_votes == 0)
        return;
    memset(&m, 0, gsp_message_bytes(GSP_CERTIFY));
    m.kind = GSP_CERTIFY;
    m.from = me->self;
    m.lineage = me->lineage;
    m.version = me->certified;
    m.ballot = me->certificate.ballot;
    m.as.certify.certificate = me->certificate;
    forge_send(from, &(gsp_action){.to = GSP_TO_ONE, .peer = a->peer, .message = &m});
}

/* Of these contributions to a version the ones whose makers give nobody else anything. */
static inline uint32_t forge_lacks(uint32_t host, uint64_t version, uint32_t wanted)
{
    const gsp_named *named = gsp_withheld_find(&forge.agree[host], version);
    uint32_t bits = 0;
    for (uint32_t i = 0; named && i < named->n_contributors; i++) {
        const gsp_member *maker = gsp_withheld_maker(named, i);
        uint32_t who = maker ? forge_host(&maker->key) : host;
        if ((wanted >> i & 1) && who != host && who < forge.n && (forge.withholds >> who & 1))
            bits |= 1u << i;
    }
    return bits;
}

/* An audit: what is withheld is told to the others first, and the case stays open. */
static inline void forge_audit(uint32_t host, const gsp_claim *c)
{
    gsp_part made;
    gsp_event e = {.kind = GSP_ON_INPUTS,
                   .version = c->version,
                   .part = c->number,
                   .peer = forge.key[host],
                   .withheld = forge_lacks(host, c->version, c->part.included)};
    if (e.withheld)
        forge_push(host, &e, NULL);
    e.kind = GSP_ON_AUDITED;
    forge_reduce(c->contributor, c->n_contributors, c->number, c->part.included, &made);
    if (!e.withheld)
        e.verdict = forge.verdict ? forge.verdict : gsp_claim_judge(c, &made);
    forge_push(host, &e, NULL);
}

/* What the driver does for an action, at once. */
static inline void forge_answer(uint32_t host, const gsp_action *a)
{
    gsp_event e = {.version = a->version,
                   .ballot = a->ballot,
                   .part = a->part,
                   .included = a->included,
                   .hash = a->hash,
                   .root = a->hash,
                   .peer = forge.key[host]};
    gsp_part made;
    if (a->kind == GSP_DO_FREEZE) {
        e.kind = GSP_ON_FROZEN;
        e.contribution.tokens = e.contribution.samples = 10 + host;
        e.contribution.root = (gsp_hash){{(uint8_t)(host + 1), (uint8_t)a->version, 3}};
    } else if (a->kind == GSP_DO_PART) {
        e.kind = GSP_ON_ARRIVED;
        host = forge_host(&a->peer);
    } else if (a->kind == GSP_DO_REDUCE) {
        const gsp_begin *b = a->begin;
        forge_reduce(b->contributor, b->n_contributors, a->part, a->included, &made);
        if (gsp_hash_none(&made.hash))
            return;
        made.hash.byte[1] ^= (uint8_t)(forge.lies >> host & 1);
        e.kind = GSP_ON_REDUCED;
        e.included = made.included;
        e.hash = made.hash;
        e.norm = made.norm;
    } else if (a->kind == GSP_DO_PULL) { /* a peer that is asked has it */
        e.kind = GSP_ON_HELD;
    } else if (a->kind == GSP_DO_APPLY) {
        if (host == 0)
            forge_driver_apply(&forge.driver, a->certificate);
        e.kind = GSP_ON_APPLIED;
    } else if (a->kind == GSP_DO_FOUND && host == 0) {
        forge_driver_found(&forge.driver, a->genesis);
        return;
    } else if (a->kind == GSP_DO_AUDIT) {
        forge_audit(host, a->claim);
        return;
    } else if (a->kind == GSP_DO_INPUTS) {
        e.kind = GSP_ON_INPUTS;
        e.peer = a->peer;
        e.withheld = forge_lacks(host, a->version, a->included);
        e.included = a->included & ~e.withheld;
    } else {
        return;
    }
    forge_push(host, &e, NULL);
}

static inline void forge_sink(void *context, const gsp_action *a)
{
    uint32_t host = (uint32_t)((gsp_agree *)context - forge.agree);
    ATOM_ASSERT(++forge.actions < FORGE_ACTIONS);
    if (a->kind == GSP_DO_SEND || a->kind == GSP_DO_RESULT)
        forge_send(host, a);
    if (a->kind == GSP_DO_CERTIFICATE)
        forge_certify(host, a);
    else if (a->kind == GSP_DO_PERSIST) {
        static uint8_t bytes[GSP_WIRE_SAVED_BYTES_MAX];
        ATOM_ASSERT(gsp_wire_put_record(a->record, bytes, sizeof bytes)); /* it fits in its file */
    } else if (a->kind == GSP_DO_RESULT) {
        gsp_event e = {
            .kind = GSP_ON_HELD, .version = a->version, .part = a->part, .hash = a->hash};
        for (uint32_t i = 0; i < forge.n; i++)
            if (i != host)
                forge_push(i, &e, NULL);
    } else {
        forge_answer(host, a);
    }
}

/* It had been without a quorum for so long that it goes where a newcomer would go. */
static inline bool forge_gave_up(const gsp_agree *a)
{
    uint64_t since = a->quorum_ns > a->certified_ns ? a->quorum_ns : a->certified_ns;
    uint64_t most = 4 * a->rules.fork_ns;
    bool alone = gsp_agree_roster(a)->n == 1 && a->genesis.generation;
    bool forgotten = !gsp_agree_is_member(a) &&
                     forge.now_ns - a->certified_ns >= most + 4 * a->rules.time_due_ns;
    return alone || forgotten || forge.now_ns - since >= most ||
           (a->due_ns && forge.now_ns - a->due_ns >= most);
}

static inline void forge_step(uint32_t host, gsp_event e)
{
    gsp_agree *a = &forge.agree[host];
    if (++forge.steps > FORGE_STEPS)
        return;
    forge.actions = 0;
    e.now_ns = forge.now_ns;
    forge_before before = forge_look(a);
    bool gave_up = forge_gave_up(a);
    gsp_agree_step(a, &e, forge_sink, a);
    if (e.kind == GSP_ON_STATE) /* to host 0 only */
        forge_judge_state(a, &before, &forge.driver.trail, &forge.driver.disk,
                          &forge.driver.inquiry.theirs, gave_up, forge.many_keys);
    else if (forge.honest >> host & 1)
        forge_judge(a, &before, forge_admitted, forge.many_keys);
}

/* Takes the next event off the queue; the caller frees its message. False: there is none. */
static inline bool forge_next(forge_item *item)
{
    if (forge.head == forge.tail)
        return false;
    *item = forge.queue[forge.head++ % FORGE_QUEUE];
    item->event.message = item->message;
    return true;
}

static inline void forge_pump(void)
{
    forge_item item;
    while (forge_next(&item)) {
        forge_step(item.to, item.event);
        free(item.message);
    }
}

static inline void forge_tick(uint64_t ms)
{
    forge.now_ns += ms * FORGE_MS;
    for (uint32_t i = 0; i < forge.n; i++) {
        gsp_event e = {.kind = GSP_ON_TICK};
        if (forge.rules.summed)
            e.samples = 2;
        forge_step(i, e);
    }
}

/* The host loses what it has in memory, but for what it has applied, and comes back. */
static inline void forge_restart(uint32_t host)
{
    static gsp_saved saved;
    gsp_agree *a = &forge.agree[host];
    gsp_member self = {.key = forge.key[host], .incarnation = a->self.incarnation + 1};
    gsp_rates rates = {1000, 1000, true};
    gsp_seals seals = forge_seals(&forge.key[host]);
    if (a->applied != a->certified || gsp_hash_none(&a->lineage))
        return;
    memset(&saved, 0, sizeof saved);
    saved.genesis = a->genesis;
    saved.has_certificate = a->certified > a->genesis.version && a->certificate.n_votes > 0;
    if (saved.has_certificate)
        saved.certificate = a->certificate;
    gsp_agree_open(a, &forge.rules, &seals, &self, &rates, &saved, forge.now_ns);
    for (uint32_t i = 0; i < forge.n; i++) {
        forge_step(i, (gsp_event){.kind = GSP_ON_DOWN, .peer = self.key});
        forge_step(i, (gsp_event){.kind = GSP_ON_UP, .peer = self.key});
    }
}

static inline void forge_open(uint32_t members, uint32_t joiners, uint32_t strangers)
{
    memset(forge.agree, 0, sizeof forge.agree);
    memset(&forge.saved, 0, sizeof forge.saved);
    forge.n = members + joiners + strangers;
    forge.n_admitted = members + joiners;
    forge.head = forge.tail = forge.steps = forge.dropped = 0;
    forge.withholds = forge.lies = 0;
    forge.now_ns = 1000 * FORGE_MS;
    forge.verdict = GSP_VERDICT_OPEN;
    for (uint32_t i = 0; i < FORGE_HOSTS; i++)
        forge.key[i] = forge_member(i).key;
    gsp_proposal *p = &forge.saved.certificate.proposal;
    forge.saved.genesis.pool = (gsp_hash){{7}};
    p->tokens = 1000;
    p->samples = 1000;
    p->n_parts = FORGE_PARTS;
    forge_driver_open(&forge.driver, &forge.rules, members, &forge.saved);
    for (uint32_t i = 0; i < forge.n; i++) {
        gsp_member self = forge_member(i);
        gsp_rates rates = {1000, 1000, true};
        gsp_seals seals = forge_seals(&forge.key[i]);
        gsp_agree_open(&forge.agree[i], &forge.rules, &seals, &self, &rates, &forge.saved,
                       forge.now_ns);
    }
}

static inline void forge_close(void)
{
    forge_item item;
    while (forge_next(&item))
        free(item.message);
    forge_driver_close(&forge.driver);
}

#endif
