/*
 * One version's parts at one member: what goes to whom, when a part is reduced and with whose
 * contributions, what an owner's word must add up to.
 */
#include "gossip/agree/round.h"

#include <math.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SELF = 1, LOG_MAX = 64 };

static struct {
    uint32_t n_sent, n_reduced;
    struct {
        uint32_t part, member, included;
    } sent[LOG_MAX], reduced[LOG_MAX];
} done;

static void sink(void *context, gsp_round_do what, uint32_t part, uint32_t member,
                 uint32_t included)
{
    (void)context;
    uint32_t *n = what == GSP_ROUND_SEND ? &done.n_sent : &done.n_reduced;
    assert_true(*n < LOG_MAX);
    uint32_t k = (*n)++;
    if (what == GSP_ROUND_SEND)
        done.sent[k].part = part, done.sent[k].member = member;
    else
        done.reduced[k].part = part, done.reduced[k].included = included;
}

static gsp_hash root_of(uint32_t member)
{
    return (gsp_hash){.byte = {(uint8_t)(member + 1), 7}};
}

/* Members 0, 1, 2 contribute; part k belongs to member k. */
static gsp_begin begin_of_three(void)
{
    gsp_begin b = {.collect_ns = 100, .n_contributors = 3, .n_parts = 3};
    for (uint8_t i = 0; i < 3; i++) {
        b.contributor[i] = (gsp_contributor){.member = i, .root = root_of(i), .tokens = 10};
        b.owner[i] = i;
    }
    gsp_weigh(b.contributor, 3);
    return b;
}

static gsp_round started(uint32_t ballot)
{
    gsp_round r;
    gsp_begin b = begin_of_three();
    gsp_hash mine = root_of(SELF);
    memset(&done, 0, sizeof done);
    gsp_round_open(&r, GSP_FRIENDS, 7, SELF);
    gsp_round_frozen(&r, &mine, sink, NULL);
    gsp_round_begin(&r, ballot, &b, 1000, sink, NULL);
    return r;
}

static void arrive(gsp_round *r, uint32_t part, uint32_t member)
{
    gsp_hash root = root_of(member);
    gsp_round_arrived(r, part, member, &root, sink, NULL);
}

static void a_part_is_reduced_once_when_all_are_there(void **state)
{
    (void)state;
    gsp_round r = started(1);
    assert_int_equal(done.n_sent, 3); /* one part to each owner, me included */
    arrive(&r, 1, 0);
    arrive(&r, 1, 1);
    assert_int_equal(done.n_reduced, 0);
    arrive(&r, 0, 2); /* not mine */
    assert_int_equal(done.n_reduced, 0);
    arrive(&r, 1, 2);
    arrive(&r, 1, 2);
    assert_int_equal(done.n_reduced, 1);
    assert_int_equal(done.reduced[0].part, 1);
    assert_int_equal(done.reduced[0].included, 7);
}

static void who_is_late_or_gone_is_left_out(void **state)
{
    (void)state;
    gsp_round r = started(1);
    arrive(&r, 1, 0);
    gsp_round_tick(&r, 1100, sink, NULL);
    assert_int_equal(done.n_reduced, 0); /* one of three decides nothing */
    arrive(&r, 1, 1);
    gsp_round_tick(&r, 1099, sink, NULL);
    assert_int_equal(done.n_reduced, 0);
    gsp_round_tick(&r, 1100, sink, NULL);
    assert_int_equal(done.n_reduced, 1);
    assert_int_equal(done.reduced[0].included, 3);

    r = started(1);
    arrive(&r, 1, 0);
    arrive(&r, 1, 1);
    gsp_round_gone(&r, 2, sink, NULL);
    assert_int_equal(done.n_reduced, 1);
    assert_int_equal(done.reduced[0].included, 3);
}

static void who_is_gone_is_not_waited_for_until_it_sends(void **state)
{
    (void)state;
    gsp_round r = started(1);
    gsp_round_gone(&r, 2, sink, NULL); /* before anything is here */
    arrive(&r, 1, 0);
    assert_int_equal(done.n_reduced, 0);
    arrive(&r, 1, 1);
    assert_int_equal(done.n_reduced, 1);
    assert_int_equal(done.reduced[0].included, 3);

    r = started(1);
    gsp_round_gone(&r, 2, sink, NULL);
    arrive(&r, 0, 2); /* it is back */
    arrive(&r, 1, 0);
    arrive(&r, 1, 1);
    assert_int_equal(done.n_reduced, 0);
    arrive(&r, 1, 2);
    assert_int_equal(done.reduced[0].included, 7);
}

/* After a restart: the others were promised a contribution that is lost. */
static void what_i_lost_is_not_waited_for(void **state)
{
    (void)state;
    gsp_begin b = begin_of_three();
    gsp_round r;
    memset(&done, 0, sizeof done);
    gsp_round_open(&r, GSP_FRIENDS, 7, SELF);
    gsp_round_begin(&r, 1, &b, 1000, sink, NULL);
    for (uint32_t i = 0; i < 3; i++)
        if (i != SELF)
            arrive(&r, 1, i);
    assert_int_equal(done.n_reduced, 1);
    assert_int_equal(done.reduced[0].included, 7 & ~(1u << SELF));
}

static void a_new_ballot_asks_for_nothing_that_is_here(void **state)
{
    (void)state;
    gsp_round r = started(1);
    for (uint32_t i = 0; i < 3; i++)
        arrive(&r, 1, i);
    uint32_t sent = done.n_sent;
    gsp_begin b = begin_of_three();
    gsp_round_begin(&r, 2, &b, 2000, sink, NULL);
    assert_int_equal(done.n_sent, sent); /* the same owners have my parts */
    assert_int_equal(done.n_reduced, 2); /* at once, of what arrived in ballot 1 */
    gsp_round_begin(&r, 1, &b, 2000, sink, NULL);
    assert_int_equal(r.ballot, 2); /* older ones are over */
}

static void a_dead_owners_part_goes_to_the_next(void **state)
{
    (void)state;
    gsp_round r = started(1);
    gsp_begin b = begin_of_three();
    b.attempt = 1;
    b.owner[2] = SELF;
    for (uint32_t i = 0; i < 3; i++)
        arrive(&r, 2, i);
    assert_int_equal(done.n_reduced, 0);
    gsp_round_begin(&r, 1, &b, 1500, sink, NULL);
    assert_int_equal(done.n_reduced, 1);
    assert_int_equal(done.reduced[0].part, 2);
    gsp_part word = {.hash = {{9}}, .included = 7, .weight = 30};
    assert_false(gsp_round_known(&r, 2, 2, &word)); /* the old owner has no say any more */
    assert_true(gsp_round_known(&r, SELF, 2, &word));
}

static void another_root_is_another_contribution(void **state)
{
    (void)state;
    gsp_round r = started(1);
    gsp_hash other = {{0xee}};
    arrive(&r, 1, 0);
    arrive(&r, 1, 1);
    gsp_round_arrived(&r, 1, 2, &other, sink, NULL);
    assert_int_equal(done.n_reduced, 0);
    gsp_round_arrived(&r, GSP_PARTS_MAX, 2, &other, sink, NULL); /* numbers that a peer made up */
    gsp_round_arrived(&r, 1, GSP_MEMBERS_MAX, &other, sink, NULL);
    arrive(&r, 1, 2);
    assert_int_equal(done.n_reduced, 1);
}

static void an_owners_word_must_add_up(void **state)
{
    (void)state;
    gsp_round r = started(1);
    gsp_part right = {.hash = {{9}}, .included = 5, .weight = 20, .norm = 1}, wrong;
    wrong = right, wrong.weight = 21;
    assert_false(gsp_round_known(&r, 0, 0, &wrong));
    wrong = right, wrong.included = 8; /* there is no fourth contributor */
    assert_false(gsp_round_known(&r, 0, 0, &wrong));
    wrong = right, wrong.included = 0, wrong.weight = 0;
    assert_false(gsp_round_known(&r, 0, 0, &wrong));
    wrong = right, wrong.included = 4, wrong.weight = 10; /* an owner leaves the others out */
    assert_false(gsp_round_known(&r, 0, 0, &wrong));
    wrong = right, wrong.norm = NAN;
    assert_false(gsp_round_known(&r, 0, 0, &wrong));
    assert_false(gsp_round_known(&r, 1, 0, &right)); /* not the owner */
    assert_false(gsp_round_known(&r, 0, 99, &right));
    assert_false(gsp_round_complete(&r));
    for (uint32_t k = 0; k < 3; k++)
        assert_true(gsp_round_known(&r, k, k, &right));
    assert_true(gsp_round_complete(&r));
}

static void a_result_has_more_than_half_of_the_contributors(void **state)
{
    (void)state;
    assert_true(gsp_included_enough(GSP_FRIENDS, 1, 1));
    assert_false(gsp_included_enough(GSP_FRIENDS, 2, 1)); /* no tie, whoever it is */
    assert_true(gsp_included_enough(GSP_FRIENDS, 3, 6));
    assert_false(gsp_included_enough(GSP_FRIENDS, 4, 3));
    assert_true(gsp_included_enough(GSP_STRANGERS, 1, 1));
    assert_false(gsp_included_enough(GSP_STRANGERS, 3, 6));
    assert_true(gsp_included_enough(GSP_STRANGERS, 4, 7));
    assert_false(gsp_included_enough(GSP_STRANGERS, 0, 0));
    assert_false(gsp_included_enough(GSP_FRIENDS, 0, 0));
}

static void weights_are_at_most_twice_the_median(void **state)
{
    (void)state;
    gsp_contributor c[4] = {{.tokens = 10}, {.tokens = 20}, {.tokens = 30}, {.tokens = 1u << 30}};
    gsp_weigh(c, 4);
    assert_int_equal(c[0].weight, 10);
    assert_int_equal(c[3].weight, 40);
    assert_int_equal(gsp_included_weight(c, 4, 0x9), 50);
    gsp_contributor two[2] = {{.tokens = 10}, {.tokens = 1u << 30}};
    gsp_weigh(two, 2); /* of two voices neither drowns the other */
    assert_int_equal(two[0].weight, 10);
    assert_int_equal(two[1].weight, 20);
    for (int i = 0; i < 4; i++)
        c[i].tokens = GSP_TOKENS_MAX;
    gsp_weigh(c, 4);
    assert_true(gsp_included_weight(c, 4, 0xf) == 4 * GSP_TOKENS_MAX); /* no overflow */
    gsp_weigh(c, 0);
}

static void parts_are_handed_out_by_share(void **state)
{
    (void)state;
    uint8_t owner[GSP_PARTS_MAX];
    uint64_t share[4] = {100, 0, 50, 50}, none[4] = {0};
    uint32_t count[4] = {0};
    gsp_assign(share, 4, 64, owner);
    for (uint32_t p = 0; p < 64; p++)
        count[owner[p]]++;
    assert_int_equal(count[0], 32);
    assert_int_equal(count[1], 0);
    assert_int_equal(count[2], 16);
    gsp_assign(none, 4, 64, owner);
    assert_int_equal(owner[0], GSP_NOBODY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_is_reduced_once_when_all_are_there),
        cmocka_unit_test(who_is_late_or_gone_is_left_out),
        cmocka_unit_test(who_is_gone_is_not_waited_for_until_it_sends),
        cmocka_unit_test(what_i_lost_is_not_waited_for),
        cmocka_unit_test(a_new_ballot_asks_for_nothing_that_is_here),
        cmocka_unit_test(a_dead_owners_part_goes_to_the_next),
        cmocka_unit_test(another_root_is_another_contribution),
        cmocka_unit_test(an_owners_word_must_add_up),
        cmocka_unit_test(a_result_has_more_than_half_of_the_contributors),
        cmocka_unit_test(weights_are_at_most_twice_the_median),
        cmocka_unit_test(parts_are_handed_out_by_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
