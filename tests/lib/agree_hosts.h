/*
 * Members of one pool in one process, for tests of the agreement: cheap seals, and a driver that
 * answers every action at once and keeps a list of who did what in which order. No links fail and
 * no time passes but by run_ms.
 */
#ifndef TESTS_LIB_AGREE_HOSTS_H
#define TESTS_LIB_AGREE_HOSTS_H

#include "gossip/agree/agree_inner.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { HOSTS = 4, QUEUE_MAX = 4096, LOG_MAX = 8192, STEP_MS = 250 };
#define MS 1000000ull

typedef struct line { /* of what a host did */
    uint32_t host;
    gsp_action_kind kind;
    gsp_message_kind said;
    uint64_t version;
    uint32_t ballot, attempt;
    uint32_t contributors;            /* BEGIN: bits of the roster */
    uint32_t promised, echoed, voted; /* PERSIST */
    gsp_hash root;                    /* PROMISE */
} line;

static struct {
    gsp_agree agree[HOSTS];
    bool off[HOSTS];
    struct {
        uint32_t to;
        gsp_event event;
        gsp_message *message;
    } queue[QUEUE_MAX];
    uint32_t head, tail, n_log, stepping;
    line log[LOG_MAX];
    uint64_t now_ns;
    gsp_message_kind dropped; /* messages of this kind do not arrive; 0: all do */
    bool held_back;           /* results do not arrive */
    uint32_t mute;            /* parts of this host's contribution do not arrive; 0: all do */
} w;

/* ---- cheap seals ---- */

static inline void hash(void *context, const void *data, size_t bytes, gsp_hash *out)
{
    (void)context;
    uint64_t x = 0xcbf29ce484222325u ^ bytes;
    for (size_t k = 0; k < bytes; k++)
        x = (x ^ ((const uint8_t *)data)[k]) * 0x100000001b3u;
    for (size_t k = 0; k < sizeof out->byte; k++, x = x * 0x9e3779b97f4a7c15u + 1)
        out->byte[k] = (uint8_t)(x >> 56);
}

static inline void seal_as(const gsp_key *key, const void *data, size_t bytes, uint8_t *out)
{
    gsp_hash h;
    hash(NULL, data, bytes, &h);
    for (size_t k = 0; k < GSP_SEAL_BYTES; k++)
        out[k] = h.byte[k % 32] ^ key->byte[0];
}

static inline void seal(void *context, const void *data, size_t bytes, uint8_t out[GSP_SEAL_BYTES])
{
    seal_as(&((gsp_agree *)context)->self.key, data, bytes, out);
}

static inline bool verify(void *context, const gsp_key *key, const void *data, size_t bytes,
                          const uint8_t given[GSP_SEAL_BYTES])
{
    (void)context;
    uint8_t right[GSP_SEAL_BYTES];
    seal_as(key, data, bytes, right);
    return memcmp(right, given, sizeof right) == 0;
}

static inline gsp_seals seals_of(uint32_t host)
{
    return (gsp_seals){.context = &w.agree[host], .hash = hash, .seal = seal, .verify = verify};
}

/* ---- driver ---- */

static inline gsp_member member(uint32_t i)
{
    return (gsp_member){.key = {{(uint8_t)(i + 1)}}, .incarnation = 1};
}

static inline void push(uint32_t to, const gsp_event *event, const gsp_message *message)
{
    if (w.off[to])
        return;
    assert_true(w.tail - w.head < QUEUE_MAX);
    uint32_t at = w.tail++ % QUEUE_MAX;
    w.queue[at].to = to;
    w.queue[at].event = *event;
    w.queue[at].message = NULL;
    if (message) {
        w.queue[at].message = calloc(1, gsp_message_bytes(message->kind));
        memcpy(w.queue[at].message, message, gsp_message_bytes(message->kind));
    }
}

static inline void send_message(uint32_t from, const gsp_action *a)
{
    gsp_event event = {.kind = GSP_ON_MESSAGE};
    for (uint32_t i = 0; a->message->kind != w.dropped && i < HOSTS; i++) {
        gsp_key key = member(i).key;
        bool wanted = a->to == GSP_TO_ALL || gsp_key_compare(&key, &a->peer) == 0;
        if (a->to == GSP_TO_ROSTER)
            wanted = gsp_roster_find_key(gsp_agree_roster(&w.agree[from]), &key) != GSP_NOBODY;
        if (wanted && i != from)
            push(i, &event, a->message);
    }
}

static inline void note(uint32_t host, const gsp_action *a)
{
    assert_true(w.n_log < LOG_MAX);
    line *l = &w.log[w.n_log++];
    *l = (line){.host = host, .kind = a->kind, .version = a->version};
    if (a->message) {
        l->said = a->message->kind;
        l->ballot = a->message->ballot;
        l->version = a->message->version;
        if (l->said == GSP_PROMISE)
            l->root = a->message->as.promise.contribution.root;
        if (l->said == GSP_BEGIN) {
            const gsp_begin *begin = &a->message->as.begin;
            l->attempt = begin->attempt;
            for (uint32_t i = 0; i < begin->n_contributors; i++)
                l->contributors |= 1u << begin->contributor[i].member;
        }
    }
    if (a->record) {
        l->promised = a->record->promised;
        l->echoed = a->record->echoed;
        l->voted = a->record->voted;
        l->version = a->record->version;
    }
}

static inline void sink(void *context, const gsp_action *a)
{
    uint32_t host = (uint32_t)((gsp_agree *)context - w.agree);
    gsp_event e = {.version = a->version,
                   .ballot = a->ballot,
                   .part = a->part,
                   .included = a->included,
                   .hash = a->hash,
                   .root = a->hash,
                   .peer = member(host).key};
    note(host, a);
    if (a->kind == GSP_DO_SEND) {
        send_message(host, a);
    } else if (a->kind == GSP_DO_FREEZE) {
        e.kind = GSP_ON_FROZEN;
        e.contribution.tokens = e.contribution.samples = 10 + host;
        e.contribution.root = (gsp_hash){.byte = {(uint8_t)(host + 1), (uint8_t)a->version, 3}};
        push(host, &e, NULL);
    } else if (a->kind == GSP_DO_PART) {
        e.kind = GSP_ON_ARRIVED;
        if (w.mute == 0 || host != w.mute)
            push((uint32_t)a->peer.byte[0] - 1, &e, NULL);
    } else if (a->kind == GSP_DO_REDUCE) {
        e.kind = GSP_ON_REDUCED;
        e.hash =
            (gsp_hash){.byte = {8, (uint8_t)a->version, (uint8_t)a->part, (uint8_t)a->included}};
        push(host, &e, NULL);
    } else if (a->kind == GSP_DO_RESULT) {
        send_message(host, a);
        e.kind = GSP_ON_HELD;
        for (uint32_t i = 0; !w.held_back && i < HOSTS; i++)
            if (i != host)
                push(i, &e, NULL);
    } else if (a->kind == GSP_DO_PULL) { /* whoever is asked has it */
        e.kind = GSP_ON_HELD;
        push(host, &e, NULL);
    } else if (a->kind == GSP_DO_APPLY) {
        e.kind = GSP_ON_APPLIED;
        push(host, &e, NULL);
    }
}

static inline void step(uint32_t host, gsp_event e)
{
    e.now_ns = w.now_ns;
    gsp_agree_step(&w.agree[host], &e, sink, &w.agree[host]);
}

static inline void pump(void)
{
    while (w.head != w.tail) {
        uint32_t at = w.head++ % QUEUE_MAX;
        gsp_event e = w.queue[at].event;
        e.message = w.queue[at].message;
        if (!w.off[w.queue[at].to])
            step(w.queue[at].to, e);
        free(w.queue[at].message);
    }
}

static inline void run_ms(uint64_t ms)
{
    for (uint64_t until = w.now_ns + ms * MS; w.now_ns < until;) {
        w.now_ns += STEP_MS * MS;
        for (uint32_t i = 0; i < HOSTS; i++)
            if (!w.off[i])
                step(i, (gsp_event){.kind = GSP_ON_TICK});
        pump();
    }
}

static inline void tell(uint32_t to, const gsp_message *m)
{
    step(to, (gsp_event){.kind = GSP_ON_MESSAGE, .message = m});
    pump();
}

/* ---- a pool of n, at version 5; the other hosts are off ---- */

static gsp_rules rules;
static gsp_saved saved;

static inline void open_host(uint32_t i, const gsp_saved *from)
{
    gsp_seals seals = seals_of(i);
    gsp_member self = member(i);
    gsp_rates rates = {1000, 1000, true};
    gsp_agree_open(&w.agree[i], &rules, &seals, &self, &rates, from, w.now_ns);
}

static inline void open_pool(uint32_t n)
{
    memset(&w, 0, sizeof w);
    memset(&saved, 0, sizeof saved);
    w.now_ns = 1000 * MS;
    gsp_agree_defaults(&rules);
    rules.time_due_ns = 3000 * MS;
    rules.samples_due = UINT64_MAX;
    rules.round_ns = 8000 * MS;
    rules.n_parts = 3;
    gsp_seals seals = seals_of(0);
    gsp_proposal *p = &saved.certificate.proposal;
    saved.genesis.founder = member(0);
    saved.has_certificate = true;
    gsp_genesis_hash(&seals, &saved.genesis, &p->lineage);
    p->version = 5;
    p->tokens = 1000;
    p->next.n = n;
    for (uint32_t i = 0; i < n; i++)
        p->next.member[i] = member(i);
    for (uint32_t i = 0; i < HOSTS; i++) {
        w.off[i] = i >= n;
        open_host(i, &saved);
    }
}

static inline void close_pool(void)
{
    for (; w.head != w.tail; w.head++)
        free(w.queue[w.head % QUEUE_MAX].message);
}

static inline uint32_t count(uint32_t host, gsp_action_kind kind, gsp_message_kind said,
                             uint64_t version)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < w.n_log; k++)
        n += w.log[k].host == host && w.log[k].kind == kind && w.log[k].version == version &&
             (kind != GSP_DO_SEND || w.log[k].said == said);
    return n;
}

static inline gsp_message from_host(uint32_t i, gsp_message_kind kind, uint32_t ballot)
{
    const gsp_agree *a = &w.agree[0];
    return (gsp_message){.kind = kind,
                         .from = member(i),
                         .lineage = a->lineage,
                         .version = ballot ? a->certified + 1 : a->certified,
                         .ballot = ballot};
}

static inline uint32_t first_proposer(void)
{
    return gsp_view_proposer(&w.agree[0], 1);
}

/* Member 0 owns every part that changed, and signs for it. */
static inline void sign_parts(const gsp_agree *a, gsp_proposal *p)
{
    gsp_hash contributors;
    gsp_statement said;
    gsp_seals seals = seals_of(0);
    gsp_contributors_hash(&seals, p->contributor, p->n_contributors, &contributors);
    for (uint32_t k = 0; k < p->n_parts; k++) {
        if (p->part[k].included == 0)
            continue;
        gsp_reduced_statement(&seals, &p->lineage, p->version, k, &p->part[k], &contributors,
                              &gsp_agree_roster(a)->member[0], &said);
        gsp_statement_seal(&seals, &said);
        memcpy(p->part[k].seal, said.seal, sizeof said.seal);
    }
}

#endif
