/*
 * Turns of pools on one box (atom/host/schedule.h), in virtual time: shares of what was really
 * computed, whatever fails; where a turn may end; who is backed off; how it all stops.
 */
#include "atom/base/rng.h"
#include "atom/host/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static host_action say(host_schedule *s, host_event_kind kind, double now)
{
    return host_schedule_step(s, &(host_event){.kind = kind, .now = now});
}

static host_action ended(host_schedule *s, host_end end, double now)
{
    return host_schedule_step(s, &(host_event){.kind = HOST_EXITED, .now = now, .end = end});
}

static host_schedule made(double slice_s, const double *shares, uint32_t n)
{
    host_turn turns[HOST_POOLS_MAX] = {0};
    host_rules rules = host_rules_usual;
    host_schedule s;
    rules.slice_s = slice_s;
    for (uint32_t i = 0; i < n; i++)
        turns[i] = (host_turn){.level = -1, .share = shares[i], .allowed = true};
    host_schedule_begin(&s, &rules, turns, n, 0);
    return s;
}

/* Two pools; the first computes from second 10 on. */
static host_schedule at_work(double slice_s)
{
    host_schedule s = made(slice_s, (double[]){1, 1}, 2);
    assert_int_equal(say(&s, HOST_TICK, 0), HOST_DO_START);
    assert_int_equal(s.running, 0);
    assert_int_equal(s.asked, 0); /* to end */
    assert_int_equal(say(&s, HOST_COMPUTES, 10), HOST_DO_NOTHING);
    return s;
}

/* ---- shares ---- */

typedef struct box {
    host_schedule s;
    uint64_t seed, drawn;
    double now, computes_at, ends_at, fails_at, certified_at;
    bool computes, fails;
} box;

static double draw(box *b, double least, double most)
{
    const atom_rng_key key = {.seed = b->seed};
    return least + (most - least) * atom_rng_uniform(atom_rng_u32(key, b->drawn++));
}

static void obey(box *b, host_action action)
{
    if (action == HOST_DO_START) {
        b->computes = false;
        b->ends_at = INFINITY;
        b->computes_at = b->now + draw(b, 1, 30);
        b->fails_at = b->fails && draw(b, 0, 1) < 0.3 ? b->now + draw(b, 1, 900) : INFINITY;
    } else if (action != HOST_DO_NOTHING) {
        b->ends_at = b->now + draw(b, 1, 20);
    }
}

/* What a box sees in one second. */
static void live(box *b)
{
    host_schedule *s = &b->s;
    b->now += 1;
    if (s->running >= 0 && b->now >= b->fails_at) {
        obey(b, ended(s, HOST_END_FAILED, b->now));
    } else if (s->running >= 0 && b->now >= b->ends_at) {
        obey(b, ended(s, HOST_END_ASKED, b->now));
    } else if (s->running >= 0 && !b->computes && b->now >= b->computes_at) {
        b->computes = true;
        b->certified_at = b->now + 20;
        obey(b, say(s, HOST_COMPUTES, b->now));
    } else if (b->computes && b->now >= b->certified_at) {
        b->certified_at = b->now + draw(b, 10, 40);
        obey(b, say(s, HOST_CERTIFIED, b->now));
    }
    obey(b, say(s, HOST_TICK, b->now));
}

static void check_shares(const double *shares, uint32_t n, bool fails, uint64_t seed)
{
    box b = {.s = made(0, shares, n), .fails = fails, .seed = seed};
    double all = 0, share = 0;
    b.computes_at = b.ends_at = b.fails_at = INFINITY;
    while (b.now < 10 * 86400.0)
        live(&b);
    for (uint32_t i = 0; i < n; i++) {
        all += b.s.turn[i].computed_s;
        share += shares[i];
    }
    assert_true(all > 0.8 * b.now); /* the box computes most of the time */
    if (fails)
        assert_true(b.s.n_failures > 50);
    for (uint32_t i = 0; i < n; i++) {
        double got = b.s.turn[i].computed_s / all, due = shares[i] / share;
        if (fabs(got - due) > 0.03 * due)
            fail_msg("pool %u got %.4f of what was computed, its share is %.4f", i, got, due);
    }
}

static void test_shares(void **state)
{
    (void)state;
    check_shares((double[]){2, 1}, 2, false, 1);
    check_shares((double[]){1, 1, 1}, 3, false, 2);
    check_shares((double[]){5, 3, 1, 0.5}, 4, false, 3);
}

static void test_shares_where_processes_fail(void **state)
{
    (void)state;
    for (uint64_t seed = 10; seed < 13; seed++) {
        check_shares((double[]){2, 1}, 2, true, seed);
        check_shares((double[]){4, 2, 1}, 3, true, seed);
    }
}

/* What a pool missed lately it catches up on; what it missed long ago is forgotten. */
static void test_catches_up(void **state)
{
    (void)state;
    box b = {.s = made(0, (double[]){1, 1}, 2), .seed = 4};
    b.computes_at = b.ends_at = b.fails_at = INFINITY;
    b.s.turn[0].allowed = false;
    while (b.now < 4 * 3600)
        live(&b);
    assert_true(b.s.turn[0].computed_s == 0);
    double alone = b.s.turn[1].computed_s;
    b.s.turn[0].allowed = true;
    while (b.now < 8.5 * 3600)
        live(&b);
    assert_true(b.s.turn[0].computed_s > 0.9 * alone);

    host_schedule s = made(0, (double[]){1, 1}, 2);
    s.turn[1].level = 40 * 86400.0;
    host_schedule_age(&s, 20 * 86400.0);
    assert_true(s.turn[1].level < 60);
}

static void test_new_pool_begins_like_the_others(void **state)
{
    (void)state;
    host_turn turns[3] = {{.level = 900, .share = 1, .allowed = true},
                          {.level = 700, .share = 1, .allowed = true},
                          {.level = -1, .share = 5, .allowed = true}};
    host_schedule s;
    host_schedule_begin(&s, &host_rules_usual, turns, 3, 100);
    assert_true(s.turn[2].level == 700);
}

/* ---- a turn ---- */

static void test_a_turn_ends_behind_a_version(void **state)
{
    (void)state;
    host_schedule s = at_work(100);
    assert_int_equal(say(&s, HOST_CERTIFIED, 50), HOST_DO_NOTHING); /* not due yet */
    assert_int_equal(say(&s, HOST_TICK, 109), HOST_DO_NOTHING);
    assert_int_equal(s.phase, HOST_COMPUTING);
    assert_int_equal(say(&s, HOST_TICK, 111), HOST_DO_NOTHING);
    assert_int_equal(s.phase, HOST_FINISHING);
    assert_int_equal(say(&s, HOST_TICK, 150), HOST_DO_NOTHING);
    assert_int_equal(say(&s, HOST_CERTIFIED, 160), HOST_DO_LEAVE);
    assert_int_equal(say(&s, HOST_TICK, 165), HOST_DO_NOTHING);
    assert_int_equal(ended(&s, HOST_END_ASKED, 166), HOST_DO_START);
    assert_int_equal(s.running, 1);
    assert_true(fabs(s.turn[0].switch_s - 16) < 1e-9); /* 10 to begin, 6 to end */
    assert_true(fabs(s.turn[0].first_round_s - 40) < 1e-9);
    assert_true(fabs(s.turn[0].computed_s - 150) < 1e-9);
    assert_true(s.turn[1].computed_s == 0);
}

static void test_no_version_comes(void **state)
{
    (void)state;
    host_schedule s = at_work(100);
    (void)say(&s, HOST_TICK, 120);
    assert_int_equal(say(&s, HOST_TICK, 120 + s.rules.certify_wait_s - 1), HOST_DO_NOTHING);
    assert_int_equal(say(&s, HOST_TICK, 120 + s.rules.certify_wait_s), HOST_DO_LEAVE);
}

/* Nobody else has a turn to come: the process goes on, and is not started anew. */
static void test_alone_it_goes_on(void **state)
{
    (void)state;
    host_schedule s = at_work(100);
    s.turn[1].allowed = false;
    assert_int_equal(say(&s, HOST_TICK, 500), HOST_DO_NOTHING);
    assert_int_equal(s.phase, HOST_COMPUTING);
    s.turn[1].allowed = true;
    (void)say(&s, HOST_TICK, 510);
    assert_int_equal(s.phase, HOST_FINISHING);
    s.turn[1].over = true; /* meanwhile */
    (void)say(&s, HOST_TICK, 511);
    assert_int_equal(s.phase, HOST_COMPUTING);
    s.turn[0].allowed = false; /* its hours end, even if nobody else may */
    (void)say(&s, HOST_TICK, 520);
    assert_int_equal(say(&s, HOST_CERTIFIED, 521), HOST_DO_LEAVE);
    assert_int_equal(ended(&s, HOST_END_ASKED, 522), HOST_DO_NOTHING);
    assert_int_equal(s.phase, HOST_IDLE);
}

static void test_a_turn_is_long_beside_a_switch(void **state)
{
    (void)state;
    host_schedule s = made(0, (double[]){1, 1}, 2);
    assert_true(host_schedule_slice(&s, 0) == 600);
    s.turn[1].switch_s = 60;
    assert_true(host_schedule_slice(&s, 0) == 1200);
    s.turn[0].first_round_s = 1000;
    assert_true(host_schedule_slice(&s, 0) == 3000);
    assert_true(host_schedule_slice(&s, 1) == 1200);
    s.rules.slice_s = 7;
    assert_true(host_schedule_slice(&s, 0) == 7);
}

/* ---- what goes wrong ---- */

static void test_failures_back_off(void **state)
{
    (void)state;
    host_schedule s = made(100, (double[]){1, 1}, 2);
    double now = 0, wait = 0;
    s.turn[1].allowed = false;
    assert_int_equal(say(&s, HOST_TICK, now), HOST_DO_START);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(ended(&s, HOST_END_FAILED, now), HOST_DO_NOTHING);
        wait = s.turn[0].not_before - now;
        assert_true(wait == fmin(30 * exp2(i), 3600));
        assert_int_equal(say(&s, HOST_TICK, now + wait - 1), HOST_DO_NOTHING);
        now += wait;
        assert_int_equal(say(&s, HOST_TICK, now), HOST_DO_START);
    }
    assert_int_equal(s.n_failures, 12);
    (void)say(&s, HOST_COMPUTES, now);
    (void)say(&s, HOST_CERTIFIED, now + 20);
    assert_int_equal(s.turn[0].failures, 0);
    s.turn[1].allowed = true;
    assert_int_equal(ended(&s, HOST_END_FAILED, now + 30), HOST_DO_START); /* the other, at once */
    assert_int_equal(s.running, 1);
}

static void test_what_is_over_stays_over(void **state)
{
    (void)state;
    host_schedule s = at_work(100);
    assert_true(host_schedule_due(&s, 1) == 0.5);
    assert_int_equal(ended(&s, HOST_END_OVER, 50), HOST_DO_START);
    assert_int_equal(s.running, 1);
    assert_true(host_schedule_due(&s, 1) == 1);
    (void)say(&s, HOST_COMPUTES, 60);
    assert_int_equal(say(&s, HOST_TICK, 900), HOST_DO_NOTHING); /* there is nobody to change to */
    assert_int_equal(s.phase, HOST_COMPUTING);
    assert_int_equal(ended(&s, HOST_END_OVER, 901), HOST_DO_NOTHING);
    assert_int_equal(say(&s, HOST_TICK, 9999), HOST_DO_NOTHING);
}

static void test_who_rests_does_not_hold_others_up(void **state)
{
    (void)state;
    host_schedule s = at_work(100);
    (void)say(&s, HOST_RESTS, 20);
    double used = s.turn[0].computed_s;
    assert_int_equal(say(&s, HOST_TICK, 20 + s.rules.rest_patience_s - 1), HOST_DO_NOTHING);
    assert_true(s.turn[0].computed_s == used); /* rest is no work */
    assert_int_equal(say(&s, HOST_TICK, 20 + s.rules.rest_patience_s), HOST_DO_LEAVE);
    assert_int_equal(ended(&s, HOST_END_ASKED, 85), HOST_DO_START);
    assert_int_equal(s.running, 1);
    assert_true(s.turn[0].not_before > 85);
    assert_int_equal(s.n_failures, 0);

    s = at_work(100); /* alone it may rest as long as it likes */
    s.turn[1].over = true;
    (void)say(&s, HOST_RESTS, 20);
    assert_int_equal(say(&s, HOST_TICK, 9999), HOST_DO_NOTHING);
    (void)say(&s, HOST_COMPUTES, 10000);
    assert_int_equal(s.phase, HOST_COMPUTING);
}

static void test_who_does_not_begin_is_put_back(void **state)
{
    (void)state;
    host_schedule s = made(100, (double[]){1, 1}, 2);
    (void)say(&s, HOST_TICK, 0);
    assert_int_equal(say(&s, HOST_TICK, s.rules.start_patience_s - 1), HOST_DO_NOTHING);
    assert_int_equal(say(&s, HOST_TICK, s.rules.start_patience_s), HOST_DO_LEAVE);
    assert_int_equal(ended(&s, HOST_END_ASKED, s.rules.start_patience_s + 1), HOST_DO_START);
    assert_int_equal(s.running, 1);
}

static void test_who_does_not_end_is_ended(void **state)
{
    (void)state;
    host_schedule s = at_work(100);
    (void)say(&s, HOST_TICK, 120);
    assert_int_equal(say(&s, HOST_CERTIFIED, 121), HOST_DO_LEAVE);
    double wait = s.rules.leave_patience_s;
    assert_int_equal(say(&s, HOST_TICK, 120 + wait), HOST_DO_NOTHING);
    assert_int_equal(say(&s, HOST_TICK, 121 + wait), HOST_DO_TERMINATE);
    assert_int_equal(say(&s, HOST_TICK, 121 + 2 * wait), HOST_DO_KILL);
    assert_int_equal(say(&s, HOST_TICK, 121 + 9 * wait), HOST_DO_NOTHING);
    assert_int_equal(s.running, 0);
}

static void test_stop(void **state)
{
    (void)state;
    host_schedule s = at_work(100);
    assert_int_equal(say(&s, HOST_STOP, 20), HOST_DO_TERMINATE);
    assert_int_equal(say(&s, HOST_STOP, 21), HOST_DO_NOTHING);
    assert_int_equal(say(&s, HOST_TICK, 22), HOST_DO_NOTHING);
    assert_int_equal(ended(&s, HOST_END_ASKED, 25), HOST_DO_NOTHING);
    assert_int_equal(s.phase, HOST_IDLE);
    assert_int_equal(say(&s, HOST_TICK, 26), HOST_DO_NOTHING);

    s = made(100, (double[]){1}, 1);
    assert_int_equal(say(&s, HOST_STOP, 1), HOST_DO_NOTHING);
    assert_int_equal(say(&s, HOST_TICK, 2), HOST_DO_NOTHING);
}

/* ---- what is carried over, and what is not ---- */

static void test_a_box_begins_anew(void **state)
{
    (void)state;
    host_turn turns[3] = {
        {.level = 0, .share = 1, .allowed = true, .failures = 5, .not_before = 1e9},
        {.level = 7, .share = 1, .allowed = true},
        {.level = -1, .share = 1, .allowed = true}};
    host_schedule s;
    host_schedule_begin(&s, &host_rules_usual, turns, 3, 100);
    assert_true(s.turn[2].level == 0); /* as the lowest of the others, who used nothing */
    assert_int_equal(say(&s, HOST_TICK, 100), HOST_DO_START);
    assert_int_equal(s.running, 0); /* nothing that went wrong before is held against it */
    (void)ended(&s, HOST_END_FAILED, 100);
    assert_true(s.turn[0].not_before == 100 + s.rules.retry_s);
}

static void test_the_dearest_switch_counts_for_all(void **state)
{
    (void)state;
    host_schedule s = made(0, (double[]){1, 1}, 2);
    s.turn[0].switch_s = 60;
    s.turn[1].switch_s = 40;
    assert_true(host_schedule_slice(&s, 1) == 1200);
    s.turn[0].over = true;
    assert_true(host_schedule_due(&s, 0) == 0);
}

/* Each turn is measured by itself: its first version, and what it costs to begin and to end. */
static void test_each_turn_is_measured(void **state)
{
    (void)state;
    host_schedule s = made(100, (double[]){1, 1}, 2);
    double now = 0;
    for (int turn = 0; turn < 3; turn++) { /* the first, the other, the first again */
        if (turn == 0)
            (void)say(&s, HOST_TICK, now);
        assert_int_equal(s.running, turn % 2);
        (void)say(&s, HOST_RESTS, now + 2);
        assert_int_equal(s.phase, HOST_RESTING);
        (void)say(&s, HOST_COMPUTES, now + 10);
        (void)say(&s, HOST_RESTS, now + 20); /* is not where it begins */
        (void)say(&s, HOST_COMPUTES, now + 25);
        (void)say(&s, HOST_CERTIFIED, now + (turn == 2 ? 80 : 50));
        now += 200 * (turn + 1); /* more than the other had */
        (void)say(&s, HOST_TICK, now);
        assert_int_equal(say(&s, HOST_CERTIFIED, now), HOST_DO_LEAVE);
        now += 5;
        assert_int_equal(ended(&s, HOST_END_ASKED, now), HOST_DO_START);
    }
    for (int i = 0; i < 2; i++) {
        assert_true(fabs(s.turn[i].switch_s - 15) < 1e-9);
        assert_true(s.turn[i].not_before == 0);
    }
    assert_true(fabs(s.turn[1].first_round_s - 40) < 1e-9);
    assert_true(fabs(s.turn[0].first_round_s - (40 + 0.3 * (70 - 40))) < 1e-9);
}

/* Who was put back once is not put back for it again; who leaves because its hours end is not put back. */
static void test_only_who_holds_others_up_is_put_back(void **state)
{
    (void)state;
    host_schedule s = at_work(100);
    (void)say(&s, HOST_RESTS, 20);
    assert_int_equal(say(&s, HOST_TICK, 100), HOST_DO_LEAVE);
    assert_int_equal(ended(&s, HOST_END_ASKED, 101), HOST_DO_START);
    assert_int_equal(s.turn[0].failures, 1);
    (void)say(&s, HOST_COMPUTES, 110);
    (void)say(&s, HOST_TICK, 300);
    assert_int_equal(say(&s, HOST_CERTIFIED, 301), HOST_DO_LEAVE);
    assert_int_equal(ended(&s, HOST_END_ASKED, 302), HOST_DO_START);
    assert_int_equal(s.turn[1].failures, 0);
    assert_true(s.turn[1].not_before == 0);

    s = at_work(100);
    (void)say(&s, HOST_RESTS, 20);
    s.turn[0].allowed = false;
    assert_int_equal(say(&s, HOST_TICK, 21), HOST_DO_LEAVE);
    assert_int_equal(ended(&s, HOST_END_ASKED, 22), HOST_DO_START);
    assert_int_equal(s.turn[0].failures, 0);
    assert_true(s.turn[0].not_before == 0);
}

static void test_what_is_forced_measures_nothing(void **state)
{
    (void)state;
    host_schedule s = at_work(100);
    (void)say(&s, HOST_TICK, 120);
    assert_int_equal(say(&s, HOST_CERTIFIED, 121), HOST_DO_LEAVE);
    assert_int_equal(say(&s, HOST_TICK, 121 + s.rules.leave_patience_s), HOST_DO_TERMINATE);
    assert_int_equal(say(&s, HOST_STOP, 900), HOST_DO_NOTHING); /* it was told already */
    assert_int_equal(ended(&s, HOST_END_FAILED, 901), HOST_DO_NOTHING);
    assert_true(s.turn[0].switch_s == 0);
    assert_int_equal(s.n_failures, 0); /* it was the user who ended it */
    s = at_work(100);
    (void)say(&s, HOST_TICK, 120);
    (void)say(&s, HOST_CERTIFIED, 121);
    (void)say(&s, HOST_TICK, 121 + s.rules.leave_patience_s);
    assert_int_equal(ended(&s, HOST_END_ASKED, 800), HOST_DO_START);
    assert_true(s.turn[0].switch_s == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_box_begins_anew),
        cmocka_unit_test(test_the_dearest_switch_counts_for_all),
        cmocka_unit_test(test_each_turn_is_measured),
        cmocka_unit_test(test_only_who_holds_others_up_is_put_back),
        cmocka_unit_test(test_what_is_forced_measures_nothing),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_shares_where_processes_fail),
        cmocka_unit_test(test_catches_up),
        cmocka_unit_test(test_new_pool_begins_like_the_others),
        cmocka_unit_test(test_a_turn_ends_behind_a_version),
        cmocka_unit_test(test_no_version_comes),
        cmocka_unit_test(test_alone_it_goes_on),
        cmocka_unit_test(test_a_turn_is_long_beside_a_switch),
        cmocka_unit_test(test_failures_back_off),
        cmocka_unit_test(test_what_is_over_stays_over),
        cmocka_unit_test(test_who_rests_does_not_hold_others_up),
        cmocka_unit_test(test_who_does_not_begin_is_put_back),
        cmocka_unit_test(test_who_does_not_end_is_ended),
        cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
