/*
 * A batch of gradients mode alone: leases cover what is open once, whoever is there; a version whose
 * parts or leases are torn is void; what the state says comes back; who is late is leased less.
 */
#include "tests/lib/batch_members.h"

static void leases_cover_what_is_open_once(void **state)
{
    (void)state;
    pool_batch b = fresh();
    for (unsigned round = 0; round < 2; round++) {
        uint8_t seen[C] = {0};
        uint32_t all = 0;
        for (uint32_t i = 0; i < MEMBERS; i++) {
            uint32_t n = lease_of(&b, i);
            for (uint32_t k = 0; k < n; k++)
                seen[list[k]]++;
            all += n;
        }
        assert_int_equal(all, b.n_open);
        for (uint32_t i = 0; i < C; i++)
            assert_int_equal(seen[i], b.open[i / 32] >> i % 32 & 1);
        assert_int_equal(lease_of(&b, MEMBERS), 0);
        gsp_proposal *c = version_of(&b, 0x13); /* three of five bring theirs */
        pool_verdict v = judge(&b, c, FLOATS);
        assert_true(v.whole);
        pool_batch_add(&b, &v);
        atom_free(c);
    }
    b.steps = 10; /* the run is over */
    assert_int_equal(lease_of(&b, 0), 0);
}

static void only_those_who_brought_are_asked_again(void **state)
{
    (void)state;
    pool_batch b = fresh();
    know(&b);
    b.share[1].brought = b.share[2].brought = 1;
    assert_int_equal(lease_of(&b, 0), 0);
    assert_int_equal(lease_of(&b, 1) + lease_of(&b, 2), C);
    b.share[1].key.byte[0] = b.share[2].key.byte[0] = 99; /* they left: everybody is asked */
    assert_true(lease_of(&b, 0) > 0);
}

static void torn_versions_are_void(void **state)
{
    (void)state;
    pool_batch b = fresh();
    gsp_proposal *c = version_of(&b, 0x1f);
    pool_verdict v = judge(&b, c, FLOATS);
    assert_true(v.whole);
    assert_int_equal(v.n_done, C);
    assert_int_equal(v.tokens, 100 * C);
    assert_false(judge(&b, c, FLOATS - 1).whole); /* a part did not come */
    c->part[1].included &= ~4u;
    v = judge(&b, c, FLOATS);
    assert_false(v.whole);
    assert_int_equal(v.everywhere, 0x1b);
    assert_int_equal(v.anywhere, 0x1f);
    c->part[1].included |= 4u;
    c->contributor[3].samples--; /* not its whole lease */
    v = judge(&b, c, FLOATS);
    assert_false(v.whole);
    assert_int_equal(v.everywhere, 0x17);
    gsp_roster roster = everybody();
    c->next = (gsp_roster){.n = 2, .member = {roster.member[4], roster.member[3]}};
    pool_batch_shares(&b, &roster, c, &v);
    assert_int_equal(share_of(&b, 5).brought, 1);
    assert_int_equal(share_of(&b, 4).brought, 0);
    assert_int_equal(share_of(&b, 1).brought, 0); /* it did, and is no member any more */
    atom_free(c);
}

static pool_batch clipped(void)
{
    pool_batch b = fresh();
    b.robust = true;
    return b;
}

/* Everybody has a voice, however slow; what is clipped may be torn, but not be that of a minority; and
 * nobody makes up for what does not come. */
static void a_clipped_step_is_of_one_version(void **state)
{
    (void)state;
    pool_batch b = clipped();
    gsp_roster roster = everybody();
    know(&b);
    b.share[2].share = POOL_SHARE_MIN;
    b.share[3].muted = 1;
    assert_int_equal(lease_of(&b, 2), 1);
    assert_int_equal(lease_of(&b, 3), 1);
    assert_int_equal(lease_of(&b, 0) + lease_of(&b, 1) + lease_of(&b, 4), C - 2);
    gsp_proposal *c = version_of(&b, 0x17), *few = version_of(&b, 0x13);
    assert_false(judge(&b, few, FLOATS).whole); /* three of five are no two thirds */
    assert_false(judge(&b, c, FLOATS - 1).whole);
    pool_verdict v = judge(&b, c, FLOATS);
    assert_true(v.whole);
    assert_int_equal(v.n_done, C);
    c->next = roster;
    for (uint32_t k = 0; k < 4; k++)
        c->contributor[k].weight = k != 1;
    pool_batch_shares(&b, &roster, c, &v);
    assert_int_equal(share_of(&b, 2).muted, 1); /* it weighed nothing */
    assert_int_equal(share_of(&b, 4).muted, 1); /* it did not come */
    assert_int_equal(share_of(&b, 1).muted, 0);
    assert_int_equal(share_of(&b, 1).brought, 0);
    assert_true(share_of(&b, 1).share > POOL_SHARE_BEFORE);
    pool_batch_add(&b, &v);
    assert_int_equal(b.n_open, 0);
    atom_free(few);
    atom_free(c);
    b = clipped();
    c = version_of(&b, 0x1f);
    c->part[1].included &= ~4u;
    v = judge(&b, c, FLOATS);
    assert_true(v.whole); /* of its own members each part is a mean */
    assert_int_equal(v.everywhere, 0x1b);
    c->part[1].included &= ~8u;
    assert_false(judge(&b, c, FLOATS).whole);
    c->part[1].included = 0x1f;
    c->contributor[3].samples--;
    assert_false(judge(&b, c, FLOATS).whole);
    atom_free(c);
    b.n = 4; /* fewer than members: some have none */
    pool_batch_begin(&b);
    uint32_t all = 0;
    for (uint32_t i = 0; i < MEMBERS; i++)
        all += lease_of(&b, i);
    assert_int_equal(all, 4);
}

/* A plan that too few of those who are here have a part of is leased anew. */
static void a_clipped_plan_needs_its_members(void **state)
{
    (void)state;
    pool_batch b = clipped();
    b.delayed = true;
    know(&b);
    for (uint32_t i = 0; i < 4; i++)
        b.share[i].first = 9 * i, b.share[i].planned = 9;
    assert_int_equal(lease_of(&b, 0), 9);
    assert_int_equal(lease_of(&b, 4), 0);
    b.share[3].planned = 0;
    assert_true(lease_of(&b, 4) > 0);
}

static void the_state_comes_back(void **state)
{
    (void)state;
    static float words[1024];
    pool_batch b = fresh(), back = {.n = C, .micro_batch = SAMPLES}, other = {.n = C - 1};
    gsp_proposal *c = version_of(&b, 0x3);
    pool_verdict v = judge(&b, c, FLOATS);
    pool_batch_add(&b, &v);
    b.steps = (1ull << 33) + 7;
    know(&b);
    b.share[4] = (pool_share){.key = b.share[4].key, .share = 77, .hold = 5, .brought = 1};
    assert_true(pool_batch_words(C, false) <= sizeof words / sizeof *words);
    pool_batch_write(&b, words);
    assert_false(pool_batch_read(&other, words));
    assert_true(pool_batch_read(&back, words));
    assert_int_equal(back.steps, b.steps);
    assert_int_equal(back.tokens, b.tokens);
    assert_int_equal(back.n_shares, MEMBERS);
    assert_memory_equal(back.share, b.share, MEMBERS * sizeof *b.share);
    assert_int_equal(back.n_open, b.n_open);
    assert_memory_equal(back.open, b.open, sizeof b.open);
    assert_int_equal(pool_batch_samples(&back), pool_batch_samples(&b));
    static const pool_share wrong[] = {
        {.share = POOL_SHARE_MAX + 1}, /* no certificate leads there */
        {.share = POOL_SHARE_MIN - 1},
        {.share = 77, .hold = POOL_SHARE_HOLD + 1},
        {.share = 77, .brought = 2}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        b.share[4] = wrong[i];
        pool_batch_write(&b, words);
        assert_false(pool_batch_read(&back, words));
    }
    know(&b);
    b.share[3].muted = 1;
    pool_batch_write(&b, words);
    assert_false(pool_batch_read(&back, words)); /* of a pool whose sums are clipped */
    back.robust = true;
    assert_true(pool_batch_read(&back, words));
    assert_int_equal(back.share[3].muted, 1);
    back.robust = false;
    know(&b);
    pool_batch_write(&b, words);
    uint32_t many = POOL_SHARES_MAX + 1;
    memcpy(words + 6, &many, sizeof many);
    assert_false(pool_batch_read(&back, words));
    atom_free(c);
}

static void leases_follow_what_certificates_show(void **state)
{
    (void)state;
    enum { STEPS = 400 };
    static const uint32_t speed[MEMBERS] = {20, 20, 10, 2, 0}; /* micro-batches while others wait */
    uint32_t done[MEMBERS] = {0}, most = 0;
    pool_batch b = {.n = C, .micro_batch = SAMPLES};
    pool_batch_begin(&b);
    while (b.steps < STEPS) {
        uint32_t bits = 0;
        for (uint32_t i = 0; i < MEMBERS; i++) {
            uint32_t n = lease_of(&b, i);
            bits |= n <= speed[i] ? 1u << i : 0;
            done[i] += b.steps >= STEPS / 2 && n <= speed[i] ? n : 0;
        }
        go_on(&b, bits);
    }
    for (uint32_t i = 0; i < MEMBERS; i++)
        most += done[i];
    assert_int_equal(most, STEPS / 2 * C); /* each one once */
    assert_true(done[0] * 3 > most && done[1] * 3 > most);
    assert_true(done[2] * 5 > most && done[2] * 100 < most * 27); /* nearly all that it can */
    assert_true(done[3] * 50 > most && done[3] * 12 < most);
    assert_int_equal(done[4], 0);
}

static void a_minority_says_nothing_about_speed(void **state)
{
    (void)state;
    pool_batch b = fresh();
    go_on(&b, 0x3); /* two of five, who were leased less than half */
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(share_of(&b, (uint8_t)(i + 1)).share, POOL_SHARE_BEFORE);
    b = fresh();
    b.max_samples = 0;
    go_on(&b, 0x7);
    assert_true(share_of(&b, 1).share > POOL_SHARE_BEFORE);
    uint32_t late = share_of(&b, 4).share;
    assert_true(late < POOL_SHARE_BEFORE && late > POOL_SHARE_BEFORE / 2);
    go_on(&b, 0x7); /* they were not asked for the rest, so they are not late again */
    assert_int_equal(share_of(&b, 4).share, late);
    go_on(&b, 0x7);
    assert_int_equal(share_of(&b, 4).share, late - late / 2); /* twice in a row: far too much */
    late = share_of(&b, 4).share;
    for (uint32_t k = 0; k < POOL_SHARE_HOLD; k++)
        go_on(&b, 0x1f);
    assert_true(share_of(&b, 4).share < late + late / 4); /* it stays below for a while */
    for (uint32_t k = 0; k < POOL_SHARE_HOLD; k++)
        go_on(&b, 0x1f);
    assert_true(share_of(&b, 4).share > 2 * late);
}

static void a_newcomer_has_a_whole_share(void **state)
{
    (void)state;
    pool_batch b = fresh();
    b.returns = true;
    go_on(&b, 0x1f);
    assert_int_equal(share_of(&b, 1).share, POOL_SHARE_MAX);
}

static void a_share_that_returns_comes_back_from_the_state(void **state)
{
    (void)state;
    static float words[1024];
    pool_batch b = fresh(), back = {.n = C, .micro_batch = SAMPLES, .returns = true};
    b.returns = true;
    know(&b);
    b.share[4].phase = POOL_SHARE_STOPPED;
    b.share[4].proven = POOL_SHARE_MAX;
    b.share[4].hold = 9;
    pool_batch_write(&b, words);
    assert_true(pool_batch_read(&back, words));
    assert_memory_equal(back.share, b.share, MEMBERS * sizeof *b.share);
    back.returns = false;
    assert_false(pool_batch_read(&back, words)); /* of a pool whose shares do not return */
    back.returns = true;
    static const pool_share wrong[] = {
        {.share = 77, .phase = POOL_SHARE_PHASES, .proven = 5, .hold = 5},
        {.share = 77, .phase = POOL_SHARE_STOPPED, .hold = 5},
        {.share = 77, .phase = POOL_SHARE_STOPPED, .proven = 5},
        {.share = 77, .proven = POOL_SHARE_MAX + 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        b.share[4] = wrong[i];
        pool_batch_write(&b, words);
        assert_false(pool_batch_read(&back, words));
    }
}

static void shares_stay_with_their_members(void **state)
{
    (void)state;
    pool_batch b = fresh();
    gsp_roster roster = everybody();
    know(&b);
    for (uint32_t i = 0; i < MEMBERS; i++)
        b.share[i].share = 32000 + i;
    gsp_proposal *c = version_of(&b, 0);
    pool_verdict v = judge(&b, c, FLOATS);
    c->next = (gsp_roster){.n = 3, .member = {roster.member[1], {{{99}}, 1}, roster.member[4]}};
    pool_batch_shares(&b, &roster, c, &v);
    assert_int_equal(b.share[0].share, 32001);
    assert_int_equal(b.share[1].share, POOL_SHARE_BEFORE); /* nothing is known of a newcomer */
    assert_int_equal(b.share[2].share, 32004);
    assert_int_equal(b.n_shares, MEMBERS + 1);
    roster = c->next;
    c->next = everybody(); /* those that had left are back */
    pool_batch_shares(&b, &roster, c, &v);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(b.share[i].share, 32000 + i);
    assert_int_equal(b.share[MEMBERS].key.byte[0], 99);
    atom_free(c);
}

/* As many members as there can be, again and again others: whoever left last is remembered. */
static void who_left_long_ago_is_forgotten(void **state)
{
    (void)state;
    pool_batch b = fresh();
    gsp_proposal *c = version_of(&b, 0);
    pool_verdict v = judge(&b, c, FLOATS);
    gsp_roster roster = {.n = 0};
    for (uint8_t turn = 0; turn < 5; turn++) {
        c->next.n = GSP_MEMBERS_MAX;
        for (uint8_t i = 0; i < GSP_MEMBERS_MAX; i++)
            c->next.member[i].key.byte[0] = (uint8_t)(turn * GSP_MEMBERS_MAX + i + 1);
        pool_batch_shares(&b, &roster, c, &v);
        roster = c->next;
    }
    assert_int_equal(b.n_shares, POOL_SHARES_MAX);
    assert_int_equal(share_of(&b, 4 * GSP_MEMBERS_MAX + 1).share, POOL_SHARE_BEFORE);
    assert_int_equal(share_of(&b, 3 * GSP_MEMBERS_MAX + 1).share, POOL_SHARE_BEFORE);
    assert_int_equal(share_of(&b, 2 * GSP_MEMBERS_MAX + 1).share, 0);
    atom_free(c);
}

/* A fork's or a reset's roster has other places; the state is that of the parent's. */
static void a_fork_leases_by_key(void **state)
{
    (void)state;
    pool_batch b = fresh();
    static const uint32_t share[MEMBERS] = {60000, 30000, 15000, 600, 600};
    gsp_roster roster = everybody(), fork = {.n = 3};
    know(&b);
    for (uint32_t i = 0; i < MEMBERS; i++)
        b.share[i].share = share[i];
    fork.member[0] = roster.member[3];
    fork.member[1] = roster.member[0];
    fork.member[2] = roster.member[1];
    for (uint32_t i = 0; i < fork.n; i++)
        fork.member[i].incarnation = 7;
    uint32_t slow = pool_batch_leased(&b, &fork, 0), fast = pool_batch_leased(&b, &fork, 1);
    assert_true(slow <= 1);
    assert_true(fast > C / 2);
    assert_int_equal(slow + fast + pool_batch_leased(&b, &fork, 2), C);
    b.share[0].brought = b.share[4].brought = 1; /* one of those who shall go on is there */
    assert_int_equal(pool_batch_leased(&b, &fork, 1), C);
    fork.member[1] = roster.member[2]; /* and now none of them: all are asked */
    assert_true(pool_batch_leased(&b, &fork, 2) > C / 2);
}

/* No certificate can show that a minority is quick: all wait, leases stay equal, nobody is blamed. */
static void a_slow_majority_is_waited_for(void **state)
{
    (void)state;
    enum { STEPS = 200 };
    pool_batch b = {.n = C, .micro_batch = SAMPLES};
    pool_batch_begin(&b);
    while (b.steps < STEPS)
        go_on(&b, 0x1f);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(share_of(&b, (uint8_t)(i + 1)).share, POOL_SHARE_MAX);
        assert_in_range(lease_of(&b, i), C / MEMBERS, C / MEMBERS + 1);
    }
    for (uint32_t k = 0; k < 64; k++) /* a proposer that hurries changes nothing */
        go_on(&b, 0x1);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(share_of(&b, (uint8_t)(i + 1)).share, POOL_SHARE_MAX);
}

/* What each has of the next batch while one is summed is what it is leased of it in its turn, whatever
 * shares are by then: each once. Who dies in between leaves its part to those who brought theirs. */
static void the_next_batch_stays_as_it_was_planned(void **state)
{
    (void)state;
    enum { STEPS = 60 };
    static float words[2048];
    static uint32_t ahead[MEMBERS][C];
    uint32_t n_ahead[MEMBERS] = {0}, late = 0;
    gsp_roster roster = everybody();
    pool_batch b = {.n = C, .micro_batch = SAMPLES, .delayed = true};
    pool_batch back = {.n = C, .delayed = true}, plain = {.n = C};
    assert_true(pool_batch_words(C, true) <= sizeof words / sizeof *words);
    pool_batch_begin(&b);
    while (b.steps < STEPS) {
        bool first = b.n_open == C;
        for (uint32_t i = 0; first && b.steps > 0 && i < MEMBERS; i++) {
            assert_int_equal(lease_of(&b, i), n_ahead[i]);
            assert_memory_equal(list, ahead[i], n_ahead[i] * sizeof *list);
        }
        /* Member 4 never brings more than two in time, member 3 nothing at some steps. */
        uint32_t bits = 0x7 | (b.steps % 7 ? 8 : 0) | (lease_of(&b, 4) <= 2 ? 16 : 0), n = 0;
        late += !(bits & 16);
        for (uint32_t i = 0; first && i < MEMBERS; i++) {
            n_ahead[i] = pool_batch_ahead(&b, &roster, i, ahead[i]);
            for (uint32_t k = 0; k < n_ahead[i]; k++)
                assert_int_equal(ahead[i][k], n++);
        }
        assert_true(!first || n == C);
        go_on(&b, bits);
        for (uint32_t i = 0; b.n_open < C && i < MEMBERS; i++) {
            assert_int_equal(pool_batch_ahead(&b, &roster, i, list), n_ahead[i]);
            assert_memory_equal(list, ahead[i], n_ahead[i] * sizeof *list);
        }
        pool_batch_write(&b, words);
        assert_false(pool_batch_read(&plain, words));
        assert_true(pool_batch_read(&back, words));
        assert_memory_equal(back.share, b.share, b.n_shares * sizeof *b.share);
    }
    assert_in_range(late, 1, STEPS / 3);
    assert_true(share_of(&b, 5).share < share_of(&b, 1).share / 2);
    pool_batch_begin(&plain);
    pool_batch_write(&plain, words);
    assert_false(pool_batch_read(&back, words)); /* a state without delay */
    know(&b);
    b.share[0].planned = 2; /* and one of these is the next one's */
    b.share[1].first = 1;
    b.share[1].planned = 1;
    pool_batch_write(&b, words);
    assert_false(pool_batch_read(&back, words));
    b.share[1].first = C;
    pool_batch_write(&b, words);
    assert_false(pool_batch_read(&back, words));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leases_cover_what_is_open_once),
        cmocka_unit_test(only_those_who_brought_are_asked_again),
        cmocka_unit_test(torn_versions_are_void),
        cmocka_unit_test(a_clipped_step_is_of_one_version),
        cmocka_unit_test(a_clipped_plan_needs_its_members),
        cmocka_unit_test(the_state_comes_back),
        cmocka_unit_test(leases_follow_what_certificates_show),
        cmocka_unit_test(a_minority_says_nothing_about_speed),
        cmocka_unit_test(a_newcomer_has_a_whole_share),
        cmocka_unit_test(a_share_that_returns_comes_back_from_the_state),
        cmocka_unit_test(shares_stay_with_their_members),
        cmocka_unit_test(who_left_long_ago_is_forgotten),
        cmocka_unit_test(a_fork_leases_by_key),
        cmocka_unit_test(a_slow_majority_is_waited_for),
        cmocka_unit_test(the_next_batch_stays_as_it_was_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
