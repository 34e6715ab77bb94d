/*
 * Members that withhold what they contributed: whoever answers anybody honest is counted by nobody,
 * a few false words remove nobody, and whoever answers nobody is off the roster and stays off.
 */
#include "gossip/agree/kept_out.h"
#include "tests/lib/agree_hosts.h"

static uint32_t n_asked, asked_bits;
static gsp_key asked_for;

static void watch(void *context, const gsp_action *a)
{
    if (a->kind == GSP_DO_INPUTS) {
        n_asked++;
        asked_bits = a->included;
        asked_for = a->peer;
        return;
    }
    sink(context, a);
}

static void hear(uint32_t host, gsp_event e)
{
    e.now_ns = w.now_ns;
    gsp_agree_step(&w.agree[host], &e, watch, &w.agree[host]);
}

/* Four members that have certified something of their own. */
static uint64_t open_four(void)
{
    open_pool(4);
    n_asked = asked_bits = 0;
    run_ms(9000);
    uint64_t version = w.agree[0].certified;
    assert_true(version > 5);
    assert_non_null(gsp_withheld_find(&w.agree[0], version));
    assert_int_equal(gsp_withheld_find(&w.agree[0], version)->n_contributors, 4);
    return version;
}

static void complain(uint32_t to, uint32_t from, uint64_t version, uint32_t part, uint32_t missing)
{
    gsp_message m = from_host(from, GSP_WITHHELD, 0);
    m.version = 0;
    m.as.withheld = (gsp_missing){.version = version, .part = part, .missing = missing};
    hear(to, (gsp_event){.kind = GSP_ON_MESSAGE, .message = &m});
    pump();
}

/* Host `who` asked contributor i of `version`, and got nothing. */
static void nothing_came(uint32_t who, uint64_t version, uint32_t i)
{
    hear(who, (gsp_event){.kind = GSP_ON_INPUTS,
                          .version = version,
                          .peer = member(3).key,
                          .withheld = 1u << i});
}

static void a_complaint_is_asked_after_and_not_believed(void **state)
{
    (void)state;
    uint64_t version = open_four();
    complain(0, 3, version, 1, 0xf);
    assert_int_equal(n_asked, 1);
    assert_int_equal(asked_bits, 2); /* not of me, and not of the one that complains */
    gsp_key from = member(3).key;
    assert_memory_equal(&asked_for, &from, sizeof from);
    assert_int_equal(gsp_withheld_bits(&w.agree[0]), 0);
    complain(0, 3, version, 2, 0xf);
    assert_int_equal(n_asked, 1); /* one at a time of each */
    complain(0, 1, version, 1, 4);
    assert_int_equal(n_asked, 2);
    w.now_ns += 60000 * MS;
    complain(0, 3, version + 1, 1, 4); /* nothing is certified yet */
    complain(0, 3, version, 9, 4);
    complain(0, 3, version, 1, 0x10);
    complain(0, 3, version, 1, 8); /* its own */
    assert_int_equal(n_asked, 2);
    close_pool();
}

/* All members ask because one complains, so that one has no more of it than an honest one needs. */
static void complaints_have_bounds(void **state)
{
    (void)state;
    uint64_t version = open_four(), all = 0;
    uint32_t n = 0;
    for (uint32_t k = 0; k < 100; k++) {
        complain(0, 3, version, k % 8, 0xf);
        w.now_ns += 5000 * MS;
        if (n_asked == n)
            continue;
        n = n_asked;
        assert_int_equal(__builtin_popcount(asked_bits), 1); /* as many as may lie, among four */
        all |= asked_bits;
    }
    assert_int_equal(n, GSP_COMPLAINTS_MAX);
    assert_int_equal(all, 6);      /* each had its turn */
    complain(0, 1, version, 1, 4); /* and the other members have theirs */
    assert_int_equal(n_asked, n + 1);
    close_pool();
}

/* A great roster of which ten may lie: not all at once, not all of a minute at once. */
static void a_minute_of_complaints_has_bounds(void **state)
{
    (void)state;
    uint64_t version = open_four();
    gsp_agree *a = &w.agree[0];
    a->rules.trust = GSP_STRANGERS;
    a->certificate.proposal.next.n = 31;
    a->rules.dead_ns = 1 * MS; /* so that one may complain twice in a second */
    memset(a->duration_ns, 0, sizeof a->duration_ns);
    a->rules.round_ns = a->rules.round_min_ns = 100 * MS;
    for (uint32_t v = 0; v < GSP_REPLAY_MAX; v++) {
        gsp_named *named = &a->withholding.named[(version + v) % GSP_REPLAY_MAX];
        named->version = version - v;
        named->roster.n = named->n_contributors = 31;
        for (uint32_t i = 4; i < 31; i++) {
            named->roster.member[i].key.byte[0] = (uint8_t)(100 + i);
            named->contributor[i].member = (uint8_t)i;
        }
    }
    uint32_t asked = 0, before = 0;
    for (uint32_t k = 0; k < 80; k++) {
        gsp_message m = from_host(3, GSP_WITHHELD, 0);
        m.as.withheld = (gsp_missing){.version = version - k % 5, .missing = 0x7fffffff};
        n_asked = 0;
        w.now_ns += 500 * MS;
        gsp_event e = {.kind = GSP_ON_MESSAGE, .message = &m, .now_ns = w.now_ns};
        a->sink = watch;
        a->sink_context = a;
        a->now_ns = e.now_ns;
        gsp_withheld_heard(a, &m);
        asked += n_asked ? (uint32_t)__builtin_popcount(asked_bits) : 0;
        assert_true(asked - before <= 10);
        before = asked;
    }
    assert_int_equal(asked, GSP_COMPLAINED_MAX);
    close_pool();
}

static void bytes_end_the_count(void **state)
{
    (void)state;
    uint64_t version = open_four();
    gsp_agree *a = &w.agree[0];
    nothing_came(0, version, 2);
    assert_int_equal(gsp_withheld_bits(a), 4);
    hear(0, (gsp_event){
                .kind = GSP_ON_INPUTS, .version = version, .peer = member(3).key, .included = 4});
    assert_int_equal(gsp_withheld_bits(a), 0);
    nothing_came(0, version, 0); /* that is me */
    assert_int_equal(gsp_withheld_bits(a), 0);
    w.now_ns += 60000 * MS; /* it is not heard of: it is away, and that is another rule's */
    nothing_came(0, version, 2);
    assert_int_equal(gsp_withheld_bits(a), 0);
    close_pool();
}

static void what_is_too_old_to_be_kept_counts_for_nobody(void **state)
{
    (void)state;
    uint64_t version = open_four();
    while (w.agree[0].certified < version + GSP_REPLAY_MAX - 2)
        run_ms(STEP_MS);
    nothing_came(0, version + 1, 2);
    assert_int_equal(gsp_withheld_bits(&w.agree[0]), 4);
    close_pool();
    version = open_four();
    while (w.agree[0].certified < version + GSP_REPLAY_MAX - 1)
        run_ms(STEP_MS);
    nothing_came(0, version, 2);
    assert_int_equal(gsp_withheld_bits(&w.agree[0]), 0);
    close_pool();
}

static void one_word_removes_nobody_and_two_do(void **state)
{
    (void)state;
    uint64_t version = open_four();
    nothing_came(0, version, 2); /* a lie of host 0 among friends */
    run_ms(8000);
    assert_int_equal(gsp_agree_roster(&w.agree[1])->n, 4);
    version = w.agree[0].certified;
    nothing_came(1, version, 2);
    run_ms(8000);
    for (uint32_t i = 0; i < 4; i++) {
        const gsp_proposal *p = &w.agree[i].certificate.proposal;
        gsp_key key = member(2).key;
        assert_int_equal(p->next.n, 3);
        assert_int_equal(gsp_roster_find_key(&p->next, &key), GSP_NOBODY);
        assert_true(gsp_kept_out_left(p, &key));
    }
    run_ms(30000); /* it asks to be let in all the time */
    assert_int_equal(gsp_agree_roster(&w.agree[0])->n, 3);
    assert_true(w.agree[0].certified > version + 5);
    close_pool();
}

static void a_lost_memory_is_forgiven_twice(void **state)
{
    (void)state;
    uint64_t version = open_four();
    gsp_agree *a = &w.agree[0];
    for (uint64_t lost = 1; lost < 4; lost++) {
        gsp_named *named = &a->withholding.named[version % GSP_REPLAY_MAX];
        named->roster.member[2].incarnation = lost;
        a->certificate.proposal.next.member[2].incarnation = lost + 1;
        gsp_peer *p = gsp_people_find(a, &named->roster.member[2].key);
        p->who.incarnation = lost + 1;
        p->heard_ns = w.now_ns;
        for (uint64_t v = 0; v < 3; v++) /* all that it forgot is one thing */
            gsp_withheld_inputs(a, version, 0, 4);
        assert_int_equal(gsp_withheld_bits(a), lost < 3 ? 0 : 4);
    }
    close_pool();
}

/* Its friends may lose their majority: what they begin then keeps it out as before. */
static void a_fork_lets_nobody_in_again(void **state)
{
    (void)state;
    uint64_t version = open_four();
    gsp_agree *a = &w.agree[0];
    gsp_key key = member(2).key;
    nothing_came(0, version, 2);
    nothing_came(1, version, 2);
    run_ms(8000);
    assert_int_equal(gsp_agree_roster(a)->n, 3);
    uint32_t left = gsp_kept_out_left(&a->certificate.proposal, &key);
    assert_true(left > 0);
    gsp_hash before = a->lineage;
    w.off[1] = w.off[3] = true;
    a->rules.fork_ns = 2000 * MS;
    for (uint32_t k = 0; k < 1000 && gsp_hash_equal(&a->lineage, &before); k++) {
        left = gsp_kept_out_left(&a->certificate.proposal, &key);
        run_ms(STEP_MS);
    }
    assert_false(gsp_hash_equal(&a->lineage, &before));
    assert_int_equal(a->genesis.n_barred, 1);
    assert_int_equal(a->genesis.barred[0].versions, left);
    uint64_t forked = a->genesis.version;
    run_ms(20000); /* it is there, and asks to be let in */
    assert_true(a->certified > forked + 1);
    assert_int_equal(gsp_agree_roster(a)->n, 1);
    assert_int_equal(gsp_kept_out_left(&a->certificate.proposal, &key),
                     left - (a->certified - forked));
    /* Nobody begins a lineage while it is to stay out, and none begins without a signed list. */
    gsp_seals seals = seals_of(0);
    gsp_genesis g = a->genesis;
    assert_null(gsp_genesis_wrong(&seals, &a->rules.owner, &g));
    g.barred[0].versions--;
    assert_non_null(gsp_genesis_wrong(&seals, &a->rules.owner, &g));
    g = a->genesis;
    g.barred[0].key = g.founder.key;
    assert_non_null(gsp_genesis_wrong(&seals, &a->rules.owner, &g));
    close_pool();
}

/* ---- keys that stay out ---- */

static void a_key_stays_out_for_its_versions(void **state)
{
    (void)state;
    gsp_proposal before = {.next = {.n = 3, .member = {member(0), member(1), member(2)}}},
                 next = {0};
    uint32_t out;
    gsp_kept_out_next(&before, 2, 3, &next);
    next.next = (gsp_roster){.n = 2, .member = {member(0), member(2)}};
    assert_null(gsp_kept_out_wrong(&before, 3, &next, &out));
    assert_int_equal(out, 2);
    for (uint32_t left = 3; left > 1; left--) {
        before = next;
        memset(&next, 0, sizeof next);
        next.next = before.next;
        assert_int_equal(before.barred[0].versions, left);
        assert_non_null(gsp_kept_out_wrong(&before, 3, &next, &out)); /* forgotten too early */
        gsp_kept_out_next(&before, 0, 3, &next);
        assert_null(gsp_kept_out_wrong(&before, 3, &next, &out));
        assert_int_equal(out, 0);
        next.next.member[1] = member(1);
        assert_non_null(gsp_kept_out_wrong(&before, 3, &next, &out)); /* let in too early */
        next.next = before.next;
        next.barred[0].versions++;
        assert_non_null(gsp_kept_out_wrong(&before, 3, &next, &out));
        next.barred[0].versions--;
    }
    before = next;
    memset(&next, 0, sizeof next);
    next.next = (gsp_roster){.n = 3, .member = {member(0), member(1), member(2)}};
    assert_null(gsp_kept_out_wrong(&before, 3, &next, &out));
    next.n_barred = 1, next.barred[0].key = member(9).key, next.barred[0].versions = 3;
    assert_non_null(gsp_kept_out_wrong(&before, 3, &next, &out)); /* it was no member */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_complaint_is_asked_after_and_not_believed),
        cmocka_unit_test(complaints_have_bounds),
        cmocka_unit_test(a_minute_of_complaints_has_bounds),
        cmocka_unit_test(bytes_end_the_count),
        cmocka_unit_test(what_is_too_old_to_be_kept_counts_for_nobody),
        cmocka_unit_test(one_word_removes_nobody_and_two_do),
        cmocka_unit_test(a_lost_memory_is_forgiven_twice),
        cmocka_unit_test(a_fork_lets_nobody_in_again),
        cmocka_unit_test(a_key_stays_out_for_its_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
