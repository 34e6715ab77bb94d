/*
 * Whom a joiner tells that it is ready: every member, soon, since any of them may propose next, and
 * the next proposers at once; whom it asks for what it lacks; and that it may change its mind.
 */
#include "gossip/agree/agree_inner.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { BEATS = 3, JOINER = 200 };

static gsp_agree a;
static uint32_t heard; /* bits: members that heard JOIN */
static uint32_t asked; /* bits: members that were asked for bytes */
static uint32_t shown; /* certificates that the joiner was sent */
static gsp_wait told;  /* the newest place in the queue that anybody was told */

static void hash(void *context, const void *data, size_t bytes, gsp_hash *out)
{
    (void)context;
    memset(out, 0, sizeof *out);
    for (size_t k = 0; k < bytes; k++)
        out->byte[k % 32] = (uint8_t)(out->byte[k % 32] * 31 + ((const uint8_t *)data)[k] + 1);
}

static void seal(void *context, const void *data, size_t bytes, uint8_t out[GSP_SEAL_BYTES])
{
    (void)context, (void)data, (void)bytes;
    memset(out, 1, GSP_SEAL_BYTES);
}

static bool verify(void *context, const gsp_key *key, const void *data, size_t bytes,
                   const uint8_t given[GSP_SEAL_BYTES])
{
    (void)context, (void)key, (void)data, (void)bytes, (void)given;
    return true;
}

static gsp_member member(uint32_t i)
{
    return (gsp_member){.key = {{(uint8_t)(i + 1)}}, .incarnation = 1};
}

static void sink(void *context, const gsp_action *action)
{
    (void)context;
    if (action->kind == GSP_DO_SEND && action->message->kind == GSP_JOIN)
        heard |= 1u << (action->peer.byte[0] - 1);
    if (action->kind == GSP_DO_SEND && action->message->kind == GSP_WAIT)
        told = action->message->as.wait;
    shown += action->kind == GSP_DO_CERTIFICATE;
    if (action->kind == GSP_DO_PULL)
        asked |= 1u << (action->peer.byte[0] - 1);
}

/* Host `who` of a pool whose members are 0 to n - 1. */
static void open_host(uint32_t who, uint32_t n, uint64_t now_ns)
{
    static gsp_saved saved;
    gsp_rules rules;
    gsp_seals seals = {.hash = hash, .seal = seal, .verify = verify};
    gsp_member self = member(who);
    gsp_rates rates = {1000, 1000, true};
    gsp_agree_defaults(&rules);
    rules.n_parts = 3;
    rules.samples_due = UINT64_MAX;
    memset(&saved, 0, sizeof saved);
    saved.genesis.founder = member(0);
    saved.has_certificate = true;
    gsp_genesis_hash(&seals, &saved.genesis, &saved.certificate.proposal.lineage);
    saved.certificate.proposal.version = 5;
    saved.certificate.proposal.next.n = n;
    for (uint32_t i = 0; i < n; i++)
        saved.certificate.proposal.next.member[i] = member(i);
    gsp_agree_open(&a, &rules, &seals, &self, &rates, &saved, now_ns);
    for (uint32_t i = 0; i < n; i++) {
        gsp_key key = member(i).key;
        gsp_agree_step(&a, &(gsp_event){.kind = GSP_ON_UP, .now_ns = now_ns, .peer = key}, sink,
                       NULL);
    }
}

static void all_members_hear_of_a_joiner_soon(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= GSP_MEMBERS_MAX; n++)
        for (uint64_t start = 0; start < 70; start += 7) { /* wherever its count of beats begins */
            uint64_t now_ns = 1000000000000u + start;
            open_host(JOINER, n, now_ns);
            heard = 0;
            for (int beat = 0; beat < BEATS; beat++) {
                now_ns += a.rules.heartbeat_ns;
                gsp_agree_step(&a, &(gsp_event){.kind = GSP_ON_TICK, .now_ns = now_ns}, sink, NULL);
            }
            assert_int_equal(heard, n == 32 ? UINT32_MAX : (1u << n) - 1);
        }
}

static void say(gsp_message *m, uint64_t now_ns)
{
    m->from = member(JOINER);
    m->lineage = a.lineage;
    m->version = a.certified;
    gsp_agree_step(
        &a,
        &(gsp_event){.kind = GSP_ON_MESSAGE, .now_ns = now_ns, .peer = m->from.key, .message = m},
        sink, NULL);
}

static void who_leaves_before_it_was_let_in_is_not(void **state)
{
    (void)state;
    static gsp_message join, beat;
    uint64_t now_ns = 1000000000000u;
    open_host(0, 2, now_ns);
    gsp_key key = member(JOINER).key;
    gsp_agree_step(&a, &(gsp_event){.kind = GSP_ON_UP, .now_ns = now_ns, .peer = key}, sink, NULL);
    join = (gsp_message){.kind = GSP_JOIN};
    join.as.join.entry.wish = (gsp_statement){.kind = GSP_SAYS_JOIN,
                                              .lineage = a.lineage,
                                              .version = 5,
                                              .subject = a.previous,
                                              .signer = member(JOINER)};
    say(&join, now_ns + 1);
    assert_int_equal(a.n_waiting, 1);
    beat = (gsp_message){.kind = GSP_HEARTBEAT, .as.heartbeat = {.sequence = 1, .applied = 5}};
    say(&beat, now_ns + 2);
    assert_int_equal(a.n_waiting, 1);
    beat.as.heartbeat.sequence = 2;
    beat.as.heartbeat.health = GSP_HEALTH_LEAVING;
    say(&beat, now_ns + 3);
    assert_int_equal(a.n_waiting, 0);
}

/* What it says: a heartbeat, and that it has applied this version. */
static void beats_and_asks(uint64_t version, uint64_t now_ns)
{
    static gsp_message beat, join;
    beat = (gsp_message){.kind = GSP_HEARTBEAT,
                         .as.heartbeat = {.sequence = now_ns, .applied = version}};
    say(&beat, now_ns);
    join = (gsp_message){.kind = GSP_JOIN};
    join.as.join.entry.wish = (gsp_statement){.kind = GSP_SAYS_JOIN,
                                              .lineage = a.lineage,
                                              .version = version,
                                              .subject = a.previous,
                                              .signer = member(JOINER)};
    say(&join, now_ns);
}

/* Host 0, alone in a pool that has a version due whenever it is asked, and a joiner with a link. */
static uint64_t open_quick(void)
{
    uint64_t now_ns = 1000000000000u;
    open_host(0, 1, now_ns);
    gsp_key key = member(JOINER).key;
    gsp_agree_step(&a, &(gsp_event){.kind = GSP_ON_UP, .now_ns = now_ns, .peer = key}, sink, NULL);
    a.rules.samples_due = 1;
    return now_ns;
}

static bool is_proposed(uint64_t now_ns)
{
    gsp_agree_step(&a, &(gsp_event){.kind = GSP_ON_TICK, .now_ns = now_ns, .samples = 9}, sink,
                   NULL);
    return a.view != 0;
}

/* Another version was certified. */
static void again(uint64_t now_ns)
{
    gsp_propose_give_up(&a);
    a.certificate.proposal.version = a.applied = ++a.certified;
    gsp_agree_begin_version(&a);
    a.certified_ns = now_ns;
}

/* It asks more often in a second than it gets answers, because versions are quick. */
static void who_asks_often_gets_what_it_lacks(void **state)
{
    (void)state;
    static gsp_message ask;
    uint64_t now_ns = open_quick();
    for (int i = 0; i < 2 * GSP_ANSWERS_PER_S; i++)
        beats_and_asks(5, now_ns + (uint64_t)i + 1);
    ask = (gsp_message){.kind = GSP_ASK, .as.ask.version = 5};
    shown = 0;
    say(&ask, now_ns + 100);
    assert_int_equal(shown, 1);
}

/* Whoever is silent too long, has no link, or follows another history is not heard here. */
static void who_is_heard(void **state)
{
    (void)state;
    static gsp_message beat;
    uint64_t now_ns = 1000000000000u;
    open_host(0, 2, now_ns);
    const gsp_member other = member(1), nobody = member(2);
    for (int wrong = 0; wrong < 2; wrong++) {
        beat = (gsp_message){.kind = GSP_HEARTBEAT,
                             .from = other,
                             .lineage = a.lineage,
                             .version = a.certified,
                             .as.heartbeat = {.sequence = now_ns + 1, .applied = 5}};
        beat.lineage.byte[3] ^= (uint8_t)wrong;
        gsp_agree_step(
            &a,
            &(gsp_event){
                .kind = GSP_ON_MESSAGE, .now_ns = ++now_ns, .peer = other.key, .message = &beat},
            sink, NULL);
        assert_int_equal(gsp_agree_hears(&a, &other.key), !wrong);
    }
    beat.lineage = a.lineage;
    beat.as.heartbeat.sequence = now_ns + 1;
    gsp_agree_step(
        &a,
        &(gsp_event){
            .kind = GSP_ON_MESSAGE, .now_ns = ++now_ns, .peer = other.key, .message = &beat},
        sink, NULL);
    assert_true(gsp_agree_hears(&a, &other.key));
    gsp_agree_step(&a, &(gsp_event){.kind = GSP_ON_DOWN, .now_ns = now_ns, .peer = other.key}, sink,
                   NULL);
    assert_false(gsp_agree_hears(&a, &other.key));
    gsp_agree_step(&a, &(gsp_event){.kind = GSP_ON_UP, .now_ns = now_ns, .peer = other.key}, sink,
                   NULL);
    assert_true(gsp_agree_hears(&a, &other.key));
    gsp_agree_step(&a, &(gsp_event){.kind = GSP_ON_TICK, .now_ns = now_ns + a.rules.dead_ns}, sink,
                   NULL);
    assert_true(gsp_agree_hears(&a, &other.key));
    gsp_agree_step(&a, &(gsp_event){.kind = GSP_ON_TICK, .now_ns = now_ns + a.rules.dead_ns + 1},
                   sink, NULL);
    assert_false(gsp_agree_hears(&a, &other.key));
    assert_false(gsp_agree_hears(&a, &nobody.key));
}

/* Whoever finds room is told so, and whoever does not, how many must find it before. */
static void joiners_are_told_their_place(void **state)
{
    (void)state;
    enum { MORE = 3 };
    static gsp_message join;
    for (uint32_t room = 0; room <= 2; room++) {
        uint64_t now_ns = 1000000000000u;
        open_host(0, GSP_MEMBERS_MAX - room, now_ns);
        for (uint32_t k = 0; k < MORE; k++) {
            const gsp_member who = member(JOINER + k);
            gsp_agree_step(&a, &(gsp_event){.kind = GSP_ON_UP, .now_ns = now_ns, .peer = who.key},
                           sink, NULL);
            join = (gsp_message){
                .kind = GSP_JOIN, .from = who, .lineage = a.lineage, .version = a.certified};
            join.as.join.entry.wish = (gsp_statement){.kind = GSP_SAYS_JOIN,
                                                      .lineage = a.lineage,
                                                      .version = a.certified,
                                                      .subject = a.previous,
                                                      .signer = who};
            told = (gsp_wait){.place = UINT32_MAX};
            gsp_agree_step(
                &a,
                &(gsp_event){
                    .kind = GSP_ON_MESSAGE, .now_ns = now_ns, .peer = who.key, .message = &join},
                sink, NULL);
            assert_int_equal(told.place, k < room ? 0 : k - room + 1);
            assert_int_equal(told.n_waiting, k + 1);
            assert_int_equal(told.n_members, GSP_MEMBERS_MAX - room);
        }
    }
}

static void quick_versions_wait_for_a_joiner_that_lags(void **state)
{
    (void)state;
    uint64_t now_ns = open_quick();
    const uint64_t beat = a.rules.heartbeat_ns;
    assert_true(is_proposed(now_ns + 1)); /* for nobody */
    again(now_ns += beat);
    beats_and_asks(5, now_ns);
    assert_false(is_proposed(now_ns + 1) || gsp_rules_joiner_ready(&a));
    assert_false(is_proposed(now_ns + 2 * beat));
    beats_and_asks(6, now_ns + 2 * beat + 1); /* it has come so far: at once */
    assert_true(a.view != 0 && gsp_rules_joiner_ready(&a));
    again(now_ns += 9 * beat); /* no longer than three beats, */
    beats_and_asks(6, now_ns);
    assert_false(is_proposed(now_ns + 3 * beat - 1));
    assert_true(is_proposed(now_ns + 3 * beat));
    for (int v = 8; v <= 6 + GSP_REPLAY_MAX; v++)
        again(now_ns += beat);
    beats_and_asks(6, now_ns);
    assert_false(is_proposed(now_ns + 1));
    again(now_ns += beat); /* nor for one that has to fetch a state, */
    beats_and_asks(6, now_ns);
    assert_true(is_proposed(now_ns + 1));
    again(now_ns += 9 * beat); /* nor for a silent one, */
    beats_and_asks(a.certified - 1, now_ns - 5 * beat);
    assert_true(is_proposed(now_ns + 1));
    again(now_ns += beat); /* nor where the version has taken long */
    beats_and_asks(a.certified - 1, now_ns);
    a.certified_ns -= 3 * beat;
    assert_true(is_proposed(now_ns + 1));
    again(now_ns += beat); /* nor where somebody leaves, who waits for the next one, too */
    beats_and_asks(a.certified - 1, now_ns);
    a.left = 1;
    assert_true(is_proposed(now_ns + 1));
    a.left = 0;
    again(now_ns += beat);
    beats_and_asks(a.certified - 1, now_ns);
    a.rules.time_due_ns = 2 * beat; /* and a quarter of T at most */
    assert_false(is_proposed(now_ns + beat / 2 - 1));
    assert_true(is_proposed(now_ns + beat / 2));
}

/* Whoever never comes so far, on purpose or not, slows the others down by a sixteenth. */
static void a_joiner_that_always_lags_costs_little(void **state)
{
    (void)state;
    enum { VERSIONS = 20000, PER_BEAT = 5, BURST = 8 * 3 };
    uint64_t now_ns = open_quick(), lent = 0, began = now_ns;
    const uint64_t beat = a.rules.heartbeat_ns;
    for (int v = 0; v < VERSIONS; v++) {
        again(now_ns);
        beats_and_asks(a.certified - 1, now_ns += beat / PER_BEAT);
        for (; !is_proposed(now_ns + 1); now_ns += beat / 10, lent += beat / 10)
            beats_and_asks(a.certified - 1, now_ns);
    }
    assert_true(lent >= BURST * beat + (now_ns - began) / 32); /* what it may */
    assert_true(lent <= (BURST + 3) * beat + (now_ns - began) / 16);
}

/* Version 6, with `n_parts` that changed, by the votes of the first `voters` of n members. */
static void certify(uint32_t n, uint32_t voters, uint32_t n_parts, uint64_t now_ns)
{
    static gsp_message m;
    m = (gsp_message){.kind = GSP_CERTIFY, .version = 6, .ballot = 1};
    gsp_certificate *c = &m.as.certify.certificate;
    gsp_proposal *p = &c->proposal;
    p->lineage = a.lineage;
    p->version = 6;
    p->previous = a.previous;
    p->n_parts = 3;
    if (n_parts) {
        p->n_contributors = 1;
        p->contributor[0] =
            (gsp_contributor){.root = {{5}}, .tokens = 1, .samples = 1, .weight = 1};
        p->tokens = a.certificate.proposal.tokens + 1;
        p->samples = a.certificate.proposal.samples + 1;
    }
    for (uint32_t k = 0; k < n_parts; k++)
        p->part[k] = (gsp_part){.hash = {{(uint8_t)(k + 1)}}, .included = 1, .weight = 1};
    p->next = *gsp_agree_roster(&a);
    c->ballot = 1;
    for (c->n_votes = 0; c->n_votes < voters; c->n_votes++)
        c->vote[c->n_votes].member = (uint8_t)c->n_votes;
    m.from = member(n - 1);
    m.lineage = a.lineage;
    heard = asked = 0;
    gsp_agree_step(
        &a,
        &(gsp_event){.kind = GSP_ON_MESSAGE, .now_ns = now_ns, .peer = m.from.key, .message = &m},
        sink, NULL);
}

static void who_proposes_next_hears_at_once_of_a_joiner_that_has_applied(void **state)
{
    (void)state;
    for (uint32_t n = 1; n < GSP_MEMBERS_MAX; n++) {
        uint64_t now_ns = 1000000000000u;
        open_host(JOINER, n, now_ns);
        certify(n, n, 0, now_ns + 1);
        assert_int_equal(a.certified, 6);
        assert_int_equal(heard, 0);
        gsp_agree_step(&a, &(gsp_event){.kind = GSP_ON_APPLIED, .now_ns = now_ns + 2, .version = 6},
                       sink, NULL);
        assert_int_equal(heard, 1u << gsp_view_proposer(&a, 1) | 1u << gsp_view_proposer(&a, 2));
    }
    /* Where there is no place, only heartbeats ask for one. */
    open_host(JOINER, GSP_MEMBERS_MAX, 1000000000000u);
    certify(GSP_MEMBERS_MAX, GSP_MEMBERS_MAX, 0, 1000000000001u);
    gsp_agree_step(&a, &(gsp_event){.kind = GSP_ON_APPLIED, .now_ns = 1000000000002u, .version = 6},
                   sink, NULL);
    assert_int_equal(a.applied, 6);
    assert_int_equal(heard, 0);
}

/* Nobody has said with a heartbeat that it has version 6. */
static void who_voted_is_asked_for_what_is_certified(void **state)
{
    (void)state;
    static gsp_message beat;
    uint64_t now_ns = 1000000000000u;
    open_host(JOINER, 5, now_ns);
    for (uint32_t i = 0; i < 5; i++) {
        beat = (gsp_message){.kind = GSP_HEARTBEAT,
                             .version = 4,
                             .from = member(i),
                             .lineage = a.lineage,
                             .as.heartbeat = {.sequence = 1, .applied = 4}};
        gsp_agree_step(&a, &(gsp_event){.kind = GSP_ON_MESSAGE, .now_ns = now_ns, .message = &beat},
                       sink, NULL);
    }
    certify(5, 3, 3, now_ns + 1);
    assert_int_equal(a.certified, 6);
    assert_int_not_equal(asked, 0);
    assert_int_equal(asked & ~7u, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_members_hear_of_a_joiner_soon),
        cmocka_unit_test(who_leaves_before_it_was_let_in_is_not),
        cmocka_unit_test(who_asks_often_gets_what_it_lacks),
        cmocka_unit_test(who_is_heard),
        cmocka_unit_test(joiners_are_told_their_place),
        cmocka_unit_test(quick_versions_wait_for_a_joiner_that_lags),
        cmocka_unit_test(a_joiner_that_always_lags_costs_little),
        cmocka_unit_test(who_proposes_next_hears_at_once_of_a_joiner_that_has_applied),
        cmocka_unit_test(who_voted_is_asked_for_what_is_certified),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
