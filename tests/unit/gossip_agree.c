/*
 * The agreement's key rules, one by one: members in one process, a driver that answers at once and
 * keeps a list of what was done in which order. What happens under faults is tests/sim's.
 */
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
    uint32_t promised, voted; /* PERSIST */
    gsp_hash root;            /* PROMISE */
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
} w;

/* ---- cheap seals ---- */

static void hash(void *context, const void *data, size_t bytes, gsp_hash *out)
{
    (void)context;
    uint64_t x = 0xcbf29ce484222325u ^ bytes;
    for (size_t k = 0; k < bytes; k++)
        x = (x ^ ((const uint8_t *)data)[k]) * 0x100000001b3u;
    for (size_t k = 0; k < sizeof out->byte; k++, x = x * 0x9e3779b97f4a7c15u + 1)
        out->byte[k] = (uint8_t)(x >> 56);
}

static void seal_as(const gsp_key *key, const void *data, size_t bytes, uint8_t *out)
{
    gsp_hash h;
    hash(NULL, data, bytes, &h);
    for (size_t k = 0; k < GSP_SEAL_BYTES; k++)
        out[k] = h.byte[k % 32] ^ key->byte[0];
}

static void seal(void *context, const void *data, size_t bytes, uint8_t out[GSP_SEAL_BYTES])
{
    seal_as(&((gsp_agree *)context)->self.key, data, bytes, out);
}

static bool verify(void *context, const gsp_key *key, const void *data, size_t bytes,
                   const uint8_t given[GSP_SEAL_BYTES])
{
    (void)context;
    uint8_t right[GSP_SEAL_BYTES];
    seal_as(key, data, bytes, right);
    return memcmp(right, given, sizeof right) == 0;
}

static gsp_seals seals_of(uint32_t host)
{
    return (gsp_seals){.context = &w.agree[host], .hash = hash, .seal = seal, .verify = verify};
}

/* ---- driver ---- */

static gsp_member member(uint32_t i)
{
    return (gsp_member){.key = {{(uint8_t)(i + 1)}}, .incarnation = 1};
}

static void push(uint32_t to, const gsp_event *event, const gsp_message *message)
{
    if (w.off[to])
        return;
    assert_true(w.tail - w.head < QUEUE_MAX);
    uint32_t at = w.tail++ % QUEUE_MAX;
    w.queue[at].to = to;
    w.queue[at].event = *event;
    w.queue[at].message = NULL;
    if (message) {
        w.queue[at].message = calloc(1, sizeof *message);
        memcpy(w.queue[at].message, message, gsp_message_bytes(message->kind));
    }
}

static void send_message(uint32_t from, const gsp_action *a)
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

static void note(uint32_t host, const gsp_action *a)
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
        if (l->said == GSP_BEGIN)
            l->attempt = a->message->as.begin.attempt;
    }
    if (a->record) {
        l->promised = a->record->promised;
        l->voted = a->record->voted;
        l->version = a->record->version;
    }
}

static void sink(void *context, const gsp_action *a)
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

static void step(uint32_t host, gsp_event e)
{
    e.now_ns = w.now_ns;
    gsp_agree_step(&w.agree[host], &e, sink, &w.agree[host]);
}

static void pump(void)
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

static void run_ms(uint64_t ms)
{
    for (uint64_t until = w.now_ns + ms * MS; w.now_ns < until;) {
        w.now_ns += STEP_MS * MS;
        for (uint32_t i = 0; i < HOSTS; i++)
            if (!w.off[i])
                step(i, (gsp_event){.kind = GSP_ON_TICK});
        pump();
    }
}

static void tell(uint32_t to, const gsp_message *m)
{
    step(to, (gsp_event){.kind = GSP_ON_MESSAGE, .message = m});
    pump();
}

/* ---- a pool of n, at version 5; the other hosts are off ---- */

static gsp_rules rules;
static gsp_saved saved;

static void open_host(uint32_t i, const gsp_saved *from)
{
    gsp_seals seals = seals_of(i);
    gsp_member self = member(i);
    gsp_rates rates = {1000, 1000, true};
    gsp_agree_open(&w.agree[i], &rules, &seals, &self, &rates, from, w.now_ns);
}

static void open_pool(uint32_t n)
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

static void close_pool(void)
{
    for (; w.head != w.tail; w.head++)
        free(w.queue[w.head % QUEUE_MAX].message);
}

static uint32_t count(uint32_t host, gsp_action_kind kind, gsp_message_kind said, uint64_t version)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < w.n_log; k++)
        n += w.log[k].host == host && w.log[k].kind == kind && w.log[k].version == version &&
             (kind != GSP_DO_SEND || w.log[k].said == said);
    return n;
}

static gsp_message from_host(uint32_t i, gsp_message_kind kind, uint32_t ballot)
{
    const gsp_agree *a = &w.agree[0];
    return (gsp_message){.kind = kind,
                         .from = member(i),
                         .lineage = a->lineage,
                         .version = ballot ? a->certified + 1 : a->certified,
                         .ballot = ballot};
}

static uint32_t first_proposer(void)
{
    return gsp_agree_proposer(&w.agree[0], 1);
}

/* ---- tests ---- */

static void any_two_quorums_share_a_member(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 8; n++)
        for (uint32_t a = 0; a < 1u << n; a++)
            for (uint32_t b = 0; b < 1u << n; b++)
                if (gsp_quorum(n, a) && gsp_quorum(n, b))
                    assert_true(a & b);
    assert_true(gsp_quorum(1, 1));
    assert_true(gsp_quorum(2, 1));
    assert_false(gsp_quorum(2, 2));
    assert_true(gsp_quorum(4, 3));
    assert_false(gsp_quorum(4, 6));
    assert_true(gsp_quorum(32, 0xffff));
    assert_false(gsp_quorum(32, 0xffff0000));
}

static void lineages_have_one_order(void **state)
{
    (void)state;
    gsp_standing a = {.lineage = {{1}}, .tokens = 10}, b = {.lineage = {{2}}, .tokens = 10};
    assert_true(gsp_lineage_beats(&a, &b)); /* the lower hash */
    b.generation = 1;
    assert_true(gsp_lineage_beats(&b, &a)); /* a fork against its parent */
    a.tokens = 11;
    assert_true(gsp_lineage_beats(&a, &b)); /* more tokens */
    b.live = true, b.n_votes = 5, a.n_votes = 1, a.tokens = UINT64_MAX;
    assert_false(gsp_lineage_beats(&a, &b)); /* a lone liar's tokens */
    a.reset = 1;
    assert_true(gsp_lineage_beats(&a, &b));   /* the owner's word */
    for (uint32_t k = 0; k < 1u << 12; k++) { /* never both, never neither */
        gsp_standing x = {.lineage = {{1}},
                          .reset = k & 1,
                          .generation = k >> 1 & 1,
                          .tokens = k >> 2 & 1,
                          .n_votes = k >> 3 & 3,
                          .live = k >> 5 & 1};
        gsp_standing y = {.lineage = {{2}},
                          .reset = k >> 6 & 1,
                          .generation = k >> 7 & 1,
                          .tokens = k >> 8 & 1,
                          .n_votes = k >> 9 & 3,
                          .live = k >> 11 & 1};
        assert_true(gsp_lineage_beats(&x, &y) != gsp_lineage_beats(&y, &x));
    }
}

static void versions_follow_each_other(void **state)
{
    (void)state;
    open_pool(3);
    run_ms(30000);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(w.agree[i].applied >= 9);
        assert_memory_equal(&w.agree[i].previous, &w.agree[0].previous, sizeof(gsp_hash));
        assert_int_equal(w.agree[i].stats.refused, 0);
    }
    const gsp_proposal *p = &w.agree[0].certificate.proposal;
    assert_int_equal(p->n_contributors, 3);
    assert_int_equal(p->tokens, 1000 + (p->version - 5) * (10 + 11 + 12));
    close_pool();
}

static void nothing_is_said_before_it_is_on_disk(void **state)
{
    (void)state;
    open_pool(3);
    run_ms(12000);
    uint32_t words = 0;
    for (uint32_t k = 0; k < w.n_log; k++) {
        const line *l = &w.log[k];
        if (l->kind != GSP_DO_SEND || (l->said != GSP_PROMISE && l->said != GSP_VOTE))
            continue;
        bool written = false;
        for (uint32_t j = 0; j < k; j++)
            written = written || (w.log[j].host == l->host && w.log[j].kind == GSP_DO_PERSIST &&
                                  w.log[j].version == l->version &&
                                  (l->said == GSP_VOTE ? w.log[j].voted == l->ballot
                                                       : w.log[j].promised == l->ballot));
        assert_true(written);
        words++;
    }
    assert_true(words >= 8);
    close_pool();
}

static void a_contribution_is_frozen_once(void **state)
{
    (void)state;
    open_pool(3);
    w.dropped = GSP_PROPOSE; /* no ballot ends */
    run_ms(60000);
    uint32_t promises = 0;
    gsp_hash root = {0};
    for (uint32_t k = 0; k < w.n_log; k++) {
        const line *l = &w.log[k];
        if (l->host != 2 || l->kind != GSP_DO_SEND || l->said != GSP_PROMISE || l->version != 6)
            continue;
        if (promises++)
            assert_memory_equal(&root, &l->root, sizeof root);
        root = l->root;
    }
    assert_true(promises >= 2);
    assert_int_equal(count(2, GSP_DO_FREEZE, 0, 6), 1);
    assert_int_equal(w.agree[2].certified, 5);
    w.dropped = 0;
    run_ms(60000);
    assert_true(w.agree[2].certified > 5);
    close_pool();
}

static void a_dead_owners_part_is_reassigned(void **state)
{
    (void)state;
    open_pool(3);
    uint32_t proposer = first_proposer(), dies = (proposer + 1) % 3;
    for (uint32_t k = 0; k < 40 && !count(proposer, GSP_DO_SEND, GSP_BEGIN, 6); k++) {
        w.dropped = GSP_REDUCED; /* the others' words are late */
        w.held_back = true;
        run_ms(STEP_MS);
    }
    assert_true(count(proposer, GSP_DO_SEND, GSP_BEGIN, 6));
    w.off[dies] = true;
    for (uint32_t i = 0; i < 3; i++)
        if (i != dies)
            step(i, (gsp_event){.kind = GSP_ON_DOWN, .peer = member(dies).key});
    w.dropped = 0;
    w.held_back = false;
    pump();
    run_ms(8000);
    uint32_t attempt = 0;
    for (uint32_t k = 0; k < w.n_log; k++)
        if (w.log[k].host == proposer && w.log[k].said == GSP_BEGIN && w.log[k].version == 6 &&
            w.log[k].attempt > attempt)
            attempt = w.log[k].attempt;
    assert_true(attempt >= 1);
    run_ms(30000);
    assert_true(w.agree[proposer].certified >= 6);
    close_pool();
}

static gsp_saved saved_of(uint32_t i)
{
    return (gsp_saved){.genesis = w.agree[i].genesis,
                       .has_certificate = true,
                       .certificate = w.agree[i].certificate,
                       .record = w.agree[i].record};
}

/* Dead and back before anybody's next tick. */
static void restart(uint32_t who, uint32_t n)
{
    gsp_saved again = saved_of(who);
    open_host(who, &again);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t up = 0; up < 2 && i != who; up++) {
            gsp_event e = {.kind = up ? GSP_ON_UP : GSP_ON_DOWN, .peer = member(who).key};
            step(i, e);
            e.peer = member(i).key;
            if (up)
                step(who, e);
        }
    for (uint32_t i = 0; i < n; i++) { /* a driver sends again what the link may have lost */
        const gsp_round *r = &w.agree[i].round;
        gsp_event e = {.kind = GSP_ON_ARRIVED, .version = r->version, .peer = member(i).key};
        e.root = r->root;
        for (e.part = 0; i != who && e.part < r->begin.n_parts; e.part++)
            if (r->sent[e.part] >> who & 1)
                push(who, &e, NULL);
    }
    pump();
}

static void who_restarts_at_once_does_not_hold_up_the_others(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 3; k++) { /* the proposer, then another */
        open_pool(3);
        uint32_t proposer = first_proposer(), who = (proposer + k) % 3;
        w.held_back = true;
        w.dropped = GSP_REDUCED;
        for (uint32_t t = 0; t < 40 && !count(proposer, GSP_DO_SEND, GSP_BEGIN, 6); t++)
            run_ms(STEP_MS);
        assert_true(count(proposer, GSP_DO_SEND, GSP_BEGIN, 6));
        uint64_t began_ns = w.now_ns;
        restart(who, 3);
        w.held_back = false;
        w.dropped = 0;
        while (w.agree[(who + 1) % 3].certified == 5 && w.now_ns < began_ns + 60000 * MS)
            run_ms(STEP_MS);
        /* Without waiting for the ballot's time, which is 8 s here. */
        assert_true(w.now_ns - began_ns <= 3000 * MS);
        close_pool();
    }
}

/* A link that breaks and comes back ends no ballot. */
static void a_proposer_whose_link_broke_goes_on(void **state)
{
    (void)state;
    open_pool(3);
    uint32_t proposer = first_proposer();
    w.held_back = true;
    w.dropped = GSP_REDUCED;
    for (uint32_t t = 0; t < 40 && !count(proposer, GSP_DO_SEND, GSP_BEGIN, 6); t++)
        run_ms(STEP_MS);
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t up = 0; up < 2 && i != proposer; up++)
            step(i,
                 (gsp_event){.kind = up ? GSP_ON_UP : GSP_ON_DOWN, .peer = member(proposer).key});
    run_ms(3500);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(w.agree[i].view, 1);
    close_pool();
}

static gsp_key asked[8];
static uint32_t n_asked;

static void pull_sink(void *context, const gsp_action *a)
{
    (void)context;
    assert_int_equal(a->kind, GSP_DO_PULL);
    asked[n_asked++ % 8] = a->peer;
}

static void pull_thrice(gsp_agree *a)
{
    n_asked = 0;
    a->pull_turn = 0;
    a->sink = pull_sink;
    for (uint32_t k = 0; k < 3; k++) {
        a->pull_ns = 0;
        gsp_vote_pull(a);
    }
    a->sink = NULL;
    assert_int_equal(n_asked, 3);
}

/* What is proposed is fetched from who voted for it, and not from who has been silent. */
static void bytes_are_asked_for_where_they_are(void **state)
{
    (void)state;
    open_pool(4);
    run_ms(1500);
    gsp_agree *a = &w.agree[0];
    gsp_propose *p = &a->pending.as.propose;
    assert_int_equal(a->certified, 5);
    a->has_pending = true;
    a->pending.ballot = 2;
    a->record.voted = 0;
    memset(p, 0, sizeof *p);
    p->proposal.version = 6;
    p->proposal.n_parts = 1;
    p->proposal.part[0].hash = (gsp_hash){.byte = {9}};
    p->statement.subject = (gsp_hash){.byte = {5}};
    p->n_promises = 2;
    p->promise[0] = (gsp_statement){.signer = member(1), .kind = GSP_SAYS_PROMISE};
    p->promise[1] = (gsp_statement){
        .signer = member(2), .kind = GSP_SAYS_PROMISE, .voted = 1, .subject = {.byte = {5}}};
    pull_thrice(a);
    for (uint32_t k = 0; k < 3; k++)
        assert_int_equal(asked[k].byte[0], 3);
    p->n_promises = 0; /* nobody is known to have it: all but the silent */
    for (uint32_t i = 1; i < 4; i += 2) {
        gsp_key key = member(i).key;
        gsp_people_find(a, &key)->heard_ns = a->now_ns - a->rules.dead_ns;
    }
    pull_thrice(a);
    for (uint32_t k = 0; k < 3; k++)
        assert_int_equal(asked[k].byte[0], 3);
    close_pool();
}

static void people_come_and_go_at_certificates(void **state)
{
    (void)state;
    open_pool(3);
    w.off[3] = false; /* it holds the anchor, and asks */
    run_ms(2000);
    assert_true(w.agree[0].n_waiting == 1 || w.agree[1].n_waiting == 1);
    assert_int_equal(gsp_agree_roster(&w.agree[0])->n, 3);
    run_ms(10000);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(gsp_agree_roster(&w.agree[i])->n, 4);
        assert_true(gsp_agree_is_member(&w.agree[i]));
    }
    step(1, (gsp_event){.kind = GSP_ON_LEAVE});
    uint64_t before = w.agree[0].certified;
    run_ms(1000);
    if (w.agree[0].certified == before)
        assert_int_equal(gsp_agree_roster(&w.agree[0])->n, 4);
    run_ms(10000);
    assert_int_equal(gsp_agree_roster(&w.agree[0])->n, 3);
    assert_false(gsp_agree_is_member(&w.agree[1]));
    w.off[2] = true; /* silent for k rounds */
    run_ms(90000);
    assert_int_equal(gsp_agree_roster(&w.agree[0])->n, 2);
    close_pool();
}

static void a_joiner_does_not_wait_for_steps(void **state)
{
    (void)state;
    open_pool(3);
    for (uint32_t i = 0; i < 4; i++) /* nobody computes, and T is far away */
        w.agree[i].rules.time_due_ns = 3600 * 1000 * MS;
    run_ms(60000);
    assert_int_equal(w.agree[0].certified, 5);
    w.off[3] = false;
    run_ms(15000);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(gsp_agree_roster(&w.agree[i])->n, 4);
    run_ms(60000); /* and nothing follows from it */
    assert_true(w.agree[0].certified <= 7);
    close_pool();
}

static void a_restart_keeps_its_word(void **state)
{
    (void)state;
    open_pool(3);
    uint32_t other = (first_proposer() + 1) % 3;
    gsp_saved again = saved;
    again.record = (gsp_record){
        .self = member(other), .lineage = w.agree[0].lineage, .version = 6, .promised = 4};
    open_host(other, &again);
    gsp_message m = from_host(first_proposer(), GSP_PREPARE, 1);
    m.as.prepare.previous = w.agree[0].previous;
    tell(other, &m);
    assert_int_equal(count(other, GSP_DO_SEND, GSP_PROMISE, 6), 0);
    assert_int_equal(count(other, GSP_DO_SEND, GSP_REFUSE, 6), 1);
    assert_int_equal(w.agree[other].record.promised, 4);
    again.record.self.incarnation = 9; /* somebody else's record binds nobody */
    open_host(other, &again);
    assert_int_equal(w.agree[other].record.promised, 0);
    close_pool();
}

static void no_word_before_the_last_version_is_durable(void **state)
{
    (void)state;
    open_pool(3);
    uint32_t proposer = first_proposer(), other = (proposer + 1) % 3;
    w.agree[other].certified = 5, w.agree[other].applied = 4;
    gsp_message m = from_host(proposer, GSP_PREPARE, 1);
    m.as.prepare.previous = w.agree[0].previous;
    tell(other, &m);
    assert_int_equal(w.agree[other].record.promised, 0);
    w.agree[other].applied = 5;
    tell(other, &m);
    assert_int_equal(w.agree[other].record.promised, 1);
    close_pool();
}

static void no_ballot_leaves_no_room_for_later_ones(void **state)
{
    (void)state;
    open_pool(3);
    for (uint32_t ballot = UINT32_MAX - 2; ballot != 0; ballot++) {
        uint32_t proposer = gsp_agree_proposer(&w.agree[0], ballot), other = (proposer + 1) % 3;
        gsp_message m = from_host(proposer, GSP_PREPARE, ballot);
        m.as.prepare.previous = w.agree[0].previous;
        tell(other, &m);
        assert_int_equal(w.agree[other].record.promised, 0);
    }
    run_ms(20000);
    assert_true(w.agree[0].certified > 5);
    close_pool();
}

static void one_refusal_ends_no_ballot(void **state)
{
    (void)state;
    open_pool(4);
    w.dropped = GSP_PROMISE;
    run_ms(5000);
    uint32_t proposer = first_proposer();
    gsp_agree *a = &w.agree[proposer];
    assert_int_equal(a->phase, GSP_GATHER);
    uint32_t ballot = a->ballot;
    gsp_message m = from_host((proposer + 1) % 4, GSP_REFUSE, ballot);
    m.as.refuse.promised = ballot + 3;
    tell(proposer, &m);
    assert_int_equal(a->phase, GSP_GATHER);
    m.from = member((proposer + 2) % 4);
    tell(proposer, &m);
    m.from = member((proposer + 3) % 4);
    tell(proposer, &m); /* now no quorum is left */
    assert_int_equal(a->phase, GSP_IDLE);
    assert_int_equal(a->view, ballot + 3);
    close_pool();
}

/* Member 0 owns every part that changed, and signs for it. */
static void sign_parts(const gsp_agree *a, gsp_proposal *p)
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

static void what_is_proposed_again_may_hold_my_older_contribution(void **state)
{
    (void)state;
    open_pool(3);
    gsp_agree *a = &w.agree[0];
    gsp_proposal p = {.lineage = a->lineage,
                      .version = 6,
                      .previous = a->previous,
                      .n_parts = 3,
                      .n_contributors = 1,
                      .next = *gsp_agree_roster(a)};
    p.contributor[0] =
        (gsp_contributor){.member = 0, .root = {{5}}, .tokens = 4, .samples = 4, .weight = 4};
    p.part[0] = (gsp_part){.hash = {{6}}, .included = 1, .weight = 4};
    p.tokens = 1004;
    p.samples = 4;
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false)); /* nobody signed the part */
    sign_parts(a, &p);
    assert_null(gsp_proposal_wrong(a, &p, 7, false));
    a->frozen = GSP_FROZEN; /* after a restart, anew */
    a->contribution = (gsp_contribution){.root = {{7}}, .tokens = 9, .samples = 9};
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    assert_null(gsp_proposal_wrong(a, &p, 7, true));
    close_pool();
}

static void a_voter_checks_everything(void **state)
{
    (void)state;
    open_pool(3);
    const gsp_agree *a = &w.agree[1];
    gsp_proposal right = {.lineage = a->lineage,
                          .version = 6,
                          .previous = a->previous,
                          .tokens = 1000,
                          .n_parts = 3,
                          .next = *gsp_agree_roster(a)},
                 p;
    assert_null(gsp_proposal_wrong(a, &right, 7, false));
    p = right, p.version = 7;
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = right, p.tokens = 1001;
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = right, p.part[1].weight = 1;
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = right, p.n_parts = 2;
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = right, p.next.n = 0;
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = right, p.next.n = 2; /* taken off without a reason */
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = right, p.next.member[0] = member(2), p.next.member[2] = member(0);
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = right, p.missed[2] = 1; /* it did promise */
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = right, p.n_contributors = 1; /* brings nothing */
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = right, p.against[1] = 1; /* it has not leant */
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    close_pool();
}

/* Three bring something, with weights by the rule; the third leans by `lean` in both parts. */
static gsp_proposal three_bring(gsp_agree *a, int8_t lean)
{
    gsp_proposal p = {.lineage = a->lineage,
                      .version = 6,
                      .previous = a->previous,
                      .n_contributors = 3,
                      .n_parts = 3,
                      .next = *gsp_agree_roster(a)};
    for (uint8_t i = 0; i < 3; i++)
        p.contributor[i] =
            (gsp_contributor){.member = i, .root = {{5}}, .tokens = 10, .samples = 10};
    gsp_rules_weigh(a, p.contributor, 3);
    for (uint8_t k = 0; k < 2; k++)
        p.part[k] = (gsp_part){.hash = {{6}},
                               .included = 7,
                               .weight = gsp_included_weight(p.contributor, 3, 7),
                               .lean = {20, 30, lean}};
    gsp_rules_totals(a, &p, &p.tokens, &p.samples);
    gsp_rules_next(a, 7, &p);
    sign_parts(a, &p);
    return p;
}

static void who_leans_backwards_loses_weight(void **state)
{
    (void)state;
    open_pool(3);
    gsp_agree *a = &w.agree[1];
    uint8_t *against = a->certificate.proposal.against;
    a->rules.against_rounds = 2;
    gsp_proposal p = three_bring(a, -5);
    assert_null(gsp_proposal_wrong(a, &p, 7, false));
    assert_int_equal(p.against[2], 1);
    assert_int_equal(p.contributor[2].weight, 10);
    assert_int_equal(p.tokens, 1030);
    p.part[0].lean[1]++; /* the proposer changes an owner's word */
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p.part[0].lean[1]--;
    p.against[2] = 0; /* a friend forgets it */
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    against[2] = 2;
    p = three_bring(a, -5);
    assert_null(gsp_proposal_wrong(a, &p, 7, false));
    assert_int_equal(p.against[2], 3);
    assert_int_equal(p.contributor[2].weight, 0);
    assert_int_equal(p.tokens, 1020); /* and moves the schedule no further */
    p.contributor[2].weight = 10;
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = three_bring(a, 1); /* forward again */
    assert_null(gsp_proposal_wrong(a, &p, 7, false));
    assert_int_equal(p.against[2], 0);
    assert_int_equal(p.contributor[2].weight, 0);
    against[1] = 2; /* most lean backwards: then nobody can say who is wrong */
    p = three_bring(a, -5);
    assert_null(gsp_proposal_wrong(a, &p, 7, false));
    assert_int_equal(p.contributor[2].weight, 10);
    close_pool();
}

static void a_state_beyond_its_limits_is_refused(void **state)
{
    (void)state;
    open_pool(2);
    gsp_saved *bad = calloc(1, sizeof *bad);
    *bad = saved;
    bad->certificate.proposal.version = 9;
    bad->certificate.proposal.n_contributors = GSP_MEMBERS_MAX + 1;
    step(0, (gsp_event){.kind = GSP_ON_STATE, .saved = bad});
    assert_int_equal(w.agree[0].certified, 5);
    bad->certificate.proposal.n_contributors = 0;
    bad->certificate.proposal.lineage.byte[0] ^= 1; /* not of the genesis beside it */
    step(0, (gsp_event){.kind = GSP_ON_STATE, .saved = bad});
    assert_int_equal(w.agree[0].certified, 5);
    bad->certificate.proposal.lineage.byte[0] ^= 1;
    step(0, (gsp_event){.kind = GSP_ON_STATE, .saved = bad});
    assert_int_equal(w.agree[0].certified, 9);
    free(bad);
    close_pool();
}

/* Any bytes in any message: nothing asserts, and no word is given for them. */
static void garbage_changes_nothing(void **state)
{
    (void)state;
    uint64_t x = 88172645463325252u;
    gsp_message *m = malloc(sizeof *m);
    open_pool(3);
    run_ms(2000);
    for (uint32_t round = 0; round < 3000; round++) {
        for (size_t k = 0; k < sizeof *m / 8; k++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            memcpy((uint8_t *)m + 8 * k, &x, 8);
        }
        gsp_message head =
            from_host(1 + round % 2, (gsp_message_kind)(1 + round % 17), 1 + round % 3);
        memcpy(m, &head, offsetof(gsp_message, as));
        m->as.promise.has_proposal = round & 1;
        m->as.heartbeat.rates.accepts = 0;
        if (m->kind == GSP_PROMISE)
            m->as.promise.contribution.rates.accepts = 0;
        w.now_ns += 5 * MS;
        step(0, (gsp_event){.kind = GSP_ON_MESSAGE, .message = m});
        pump();
    }
    assert_int_equal(w.agree[0].certified, 5);
    assert_int_equal(w.agree[0].record.voted, 0);
    assert_int_equal(w.agree[0].n_banned, 0);
    free(m);
    close_pool();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_two_quorums_share_a_member),
        cmocka_unit_test(lineages_have_one_order),
        cmocka_unit_test(versions_follow_each_other),
        cmocka_unit_test(nothing_is_said_before_it_is_on_disk),
        cmocka_unit_test(a_contribution_is_frozen_once),
        cmocka_unit_test(a_dead_owners_part_is_reassigned),
        cmocka_unit_test(who_restarts_at_once_does_not_hold_up_the_others),
        cmocka_unit_test(a_proposer_whose_link_broke_goes_on),
        cmocka_unit_test(bytes_are_asked_for_where_they_are),
        cmocka_unit_test(people_come_and_go_at_certificates),
        cmocka_unit_test(a_joiner_does_not_wait_for_steps),
        cmocka_unit_test(a_restart_keeps_its_word),
        cmocka_unit_test(no_word_before_the_last_version_is_durable),
        cmocka_unit_test(no_ballot_leaves_no_room_for_later_ones),
        cmocka_unit_test(one_refusal_ends_no_ballot),
        cmocka_unit_test(what_is_proposed_again_may_hold_my_older_contribution),
        cmocka_unit_test(a_voter_checks_everything),
        cmocka_unit_test(who_leans_backwards_loses_weight),
        cmocka_unit_test(a_state_beyond_its_limits_is_refused),
        cmocka_unit_test(garbage_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
