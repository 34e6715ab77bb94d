/*
 * A member that answers everything, and everything only just before its time is over: its promise,
 * its contribution, its results, its own ballots. It is never silent and never wrong, so nothing is
 * ever held against it. What is shown here is what it costs the others in each version, in virtual
 * time.
 */
#include "tests/lib/agree_hosts.h"

enum { LATE_MAX = 512, VERSIONS = 30 };

/* What the dripping host has ready and keeps back. */
typedef struct late {
    uint32_t to;
    gsp_event event;
    gsp_message *message;
} late;

static late kept[LATE_MAX];
static uint32_t n_kept, dripper;

static bool before(uint64_t until_ns)
{
    return until_ns != 0 && w.now_ns + STEP_MS * MS < until_ns;
}

/* The host that is waited for in the ballot under way, by what the others think. */
static uint32_t proposer_now(void)
{
    const gsp_agree *a = &w.agree[(dripper + 1) % HOSTS];
    return gsp_view_proposer(a, a->view ? a->view : 1);
}

/* There is still time for it. */
static bool may_wait(const late *x)
{
    const gsp_agree *to = &w.agree[x->to];
    uint32_t proposer = proposer_now();
    const gsp_agree *p = &w.agree[proposer];
    if (to->certified != w.agree[dripper].certified)
        return false; /* there is nothing to hold up */
    if (proposer == dripper)
        return x->message && before(to->view_until_ns ? to->view_until_ns - 1000 * MS : 0);
    if (x->event.kind == GSP_ON_ARRIVED)
        return to->round.ballot && before(to->round.began_ns + to->round.begin.collect_ns);
    uint64_t patience_ns = gsp_view_patience_ns(p, 0);
    if (p->phase == GSP_GATHER && before(p->phase_until_ns))
        return before(p->phase_ns + patience_ns);
    return p->phase == GSP_AVERAGE && before(p->phase_until_ns);
}

/* The host says the same again each heartbeat. */
static bool kept_already(uint32_t to, const gsp_event *event, const gsp_message *m)
{
    for (uint32_t k = 0; k < n_kept; k++) {
        const late *x = &kept[k];
        if (x->to != to || x->event.kind != event->kind || (m == NULL) != (x->message == NULL))
            continue;
        if (m ? m->kind == x->message->kind && m->version == x->message->version &&
                    m->ballot == x->message->ballot &&
                    (m->kind != GSP_REDUCED ||
                     m->as.reduced.statement.item == x->message->as.reduced.statement.item)
              : event->version == x->event.version && event->part == x->event.part &&
                    gsp_hash_equal(&event->hash, &x->event.hash))
            return true;
    }
    return false;
}

static void keep(uint32_t to, const gsp_event *event, const gsp_message *m)
{
    if (kept_already(to, event, m))
        return;
    assert_true(n_kept < LATE_MAX);
    kept[n_kept] = (late){.to = to, .event = *event};
    if (m) {
        kept[n_kept].message = calloc(1, gsp_message_bytes(m->kind));
        memcpy(kept[n_kept].message, m, gsp_message_bytes(m->kind));
    }
    n_kept++;
}

/* Lets go what cannot wait any more, in the order in which it was made. */
static void let_go(bool all)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < n_kept; k++) {
        if (!all && may_wait(&kept[k])) {
            kept[n++] = kept[k];
            continue;
        }
        push(kept[k].to, &kept[k].event, kept[k].message);
        free(kept[k].message);
    }
    n_kept = n;
}

static bool drips(gsp_message_kind kind)
{
    return kind == GSP_PROMISE || kind == GSP_REDUCED || kind == GSP_PREPARE || kind == GSP_BEGIN ||
           kind == GSP_PROPOSE;
}

/* The driver of that host: what others wait for is kept back, the rest is done at once. */
static void drip(void *context, const gsp_action *a)
{
    const gsp_event said = {.kind = GSP_ON_MESSAGE};
    gsp_event e = {.version = a->version,
                   .part = a->part,
                   .hash = a->hash,
                   .root = a->hash,
                   .peer = member(dripper).key};
    bool sends = (a->kind == GSP_DO_SEND || a->kind == GSP_DO_RESULT) && drips(a->message->kind);
    for (uint32_t i = 0; sends && i < HOSTS; i++) {
        gsp_key key = member(i).key;
        if (i == dripper || (a->to == GSP_TO_ONE && gsp_key_compare(&key, &a->peer) != 0))
            continue;
        keep(i, &said, a->message);
        e.kind = GSP_ON_HELD;
        if (a->kind == GSP_DO_RESULT)
            keep(i, &e, NULL);
    }
    if (sends)
        return;
    e.kind = GSP_ON_ARRIVED;
    if (a->kind == GSP_DO_PART)
        keep((uint32_t)a->peer.byte[0] - 1, &e, NULL);
    else
        sink(context, a);
}

static void hand_out(void)
{
    while (w.head != w.tail) {
        uint32_t at = w.head++ % QUEUE_MAX;
        gsp_event e = w.queue[at].event;
        uint32_t to = w.queue[at].to;
        e.message = w.queue[at].message;
        e.now_ns = w.now_ns;
        w.n_log = 0;
        gsp_agree_step(&w.agree[to], &e, to == dripper ? drip : sink, &w.agree[to]);
        free(w.queue[at].message);
    }
}

static void turn(void)
{
    w.now_ns += STEP_MS * MS;
    for (uint32_t i = 0; i < HOSTS; i++)
        push(i, &(gsp_event){.kind = GSP_ON_TICK}, NULL);
    hand_out();
    let_go(false);
    hand_out();
}

typedef struct cost {
    uint64_t longest_ms, mean_ms; /* of a version, once it is due */
    uint64_t last_ms;             /* what the others would wait for in the next ballot */
    uint64_t contributed;         /* versions in which it is a contributor, of VERSIONS */
} cost;

/* VERSIONS versions of four members with links of 1,000 bytes a second, of which `who` drips and says
 * that its own link has another rate; HOSTS: none does. */
static cost measure(uint32_t who, uint64_t fragment_bytes, uint64_t claimed)
{
    cost c = {0};
    uint64_t all_ms = 0;
    open_pool(HOSTS);
    dripper = who;
    n_kept = 0;
    for (uint32_t i = 0; i < HOSTS; i++) {
        w.agree[i].rules.round_ns = 120000 * MS; /* as pools have it */
        w.agree[i].rules.fragment_bytes = fragment_bytes;
        w.agree[i].rules.n_parts = 2 * HOSTS;
        if (i == who)
            w.agree[i].rates.up_bytes_per_s = w.agree[i].rates.down_bytes_per_s = claimed;
    }
    const gsp_agree *a = &w.agree[0];
    for (uint64_t version = 6; version < 6 + VERSIONS; version++) {
        uint64_t due_ns = 0;
        for (; a->certified < version; turn())
            due_ns = due_ns ? due_ns : a->due_ns;
        uint64_t took_ms = due_ns ? (w.now_ns - due_ns) / MS : 0;
        c.longest_ms = took_ms > c.longest_ms ? took_ms : c.longest_ms;
        all_ms += took_ms;
        c.contributed += a->certificate.proposal.n_contributors == HOSTS;
    }
    c.mean_ms = all_ms / VERSIONS;
    c.last_ms = gsp_view_timeout_ns(a, 1) / MS;
    let_go(true);
    close_pool();
    return c;
}

static void show(const char *what, const cost *c)
{
    print_message("%s: a version takes %llu ms, at most %llu; the next ballot has %llu\n", what,
                  (unsigned long long)c->mean_ms, (unsigned long long)c->longest_ms,
                  (unsigned long long)c->last_ms);
}

/* The least patience is an eighth of the first ballot's 120 s. Without it each version took 42 minutes
 * after thirty of them, and 204 where the dripping member had a ballot of its own. */
static void a_small_fragment_costs_two_patiences(void **state)
{
    (void)state;
    cost calm = measure(HOSTS, 1, 1000), drips = measure(3, 1, 1000);
    show("nobody drips", &calm);
    show("one drips", &drips);
    assert_int_equal(calm.longest_ms, 0);
    assert_int_equal(drips.contributed, VERSIONS); /* whoever is slow is left out of nothing */
    assert_true(drips.mean_ms <= 60000 && drips.longest_ms <= 180000);
}

/* A fragment goes there and back in two seconds, and sixteen times that is waited for. */
static void a_large_one_costs_what_links_need(void **state)
{
    (void)state;
    static const uint64_t CLAIMED[] = {1000, 1, UINT64_MAX};
    for (uint32_t k = 0; k < 3; k++) {
        cost drips = measure(3, 1000, CLAIMED[k]);
        show("one drips", &drips);
        assert_true(drips.mean_ms <= 120000 && drips.longest_ms <= 320000);
    }
}

/* Rounds that moved hardly anything, or were cut short, are quick, and would teach that the next one
 * needs no time: contributions then came too late in every other version, for good. A ballot has six
 * times the two seconds that the links need, so contributions have three seconds for their one. */
static void a_quick_round_teaches_no_haste(void **state)
{
    (void)state;
    open_pool(HOSTS);
    gsp_agree *a = &w.agree[0];
    dripper = HOSTS;
    n_kept = 0;
    while (a->certified < 8) /* members have heard each other's rates */
        turn();
    a->n_durations = GSP_DURATIONS_MAX;
    for (uint32_t i = 0; i < GSP_DURATIONS_MAX; i++)
        a->duration_ns[i] = 100 * MS;
    a->rules.fragment_bytes = 1;
    uint64_t before_ms = gsp_view_timeout_ns(a, 1) / MS;
    a->rules.fragment_bytes = 1000;
    assert_int_equal(gsp_view_timeout_ns(a, 1) / MS, 12000);
    assert_true(before_ms < 12000);
    a->rules.fragment_bytes = 0; /* not known */
    assert_int_equal(gsp_view_timeout_ns(a, 1) / MS, before_ms);
    close_pool();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_fragment_costs_two_patiences),
        cmocka_unit_test(a_large_one_costs_what_links_need),
        cmocka_unit_test(a_quick_round_teaches_no_haste),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
