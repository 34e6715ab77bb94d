/*
 * Who goes on when the proposer of a ballot is gone: the next one, within seconds and not when the
 * ballot's time is over, whatever the ballot had come to. The same where it has merely given up.
 */
#include "tests/lib/agree_hosts.h"

typedef enum loss { DIES, HANGS_UP, IS_BANNED, LOSSES } loss;

/* The proposer is gone for the others. Whoever is banned goes on and is not heeded. */
static void lose(loss what, uint32_t proposer)
{
    gsp_event e = {.kind = what == IS_BANNED ? GSP_ON_PROVEN : GSP_ON_DOWN,
                   .peer = member(proposer).key};
    w.off[proposer] |= what == DIES;
    for (uint32_t i = 0; what != DIES && i < HOSTS; i++)
        if (i != proposer)
            step(i, e);
    w.off[proposer] |= what == HANGS_UP;
    pump();
}

/* Virtual time from the loss to the certificate, where the ballot has come to the message `reached`
 * and no further, since none of the kind `dropped` has arrived. */
static uint64_t waited_ms(loss what, gsp_message_kind reached, gsp_message_kind dropped)
{
    open_pool(4);
    for (uint32_t i = 0; i < HOSTS; i++)
        w.agree[i].rules.round_ns = 120000 * MS;
    uint32_t proposer = first_proposer(), other = (proposer + 1) % HOSTS;
    w.dropped = dropped;
    for (uint32_t t = 0; t < 80 && !count(proposer, GSP_DO_SEND, reached, 6); t++)
        run_ms(STEP_MS);
    assert_true(count(proposer, GSP_DO_SEND, reached, 6));
    assert_int_equal(w.agree[other].certified, 5);
    uint64_t from = w.now_ns;
    w.dropped = 0;
    lose(what, proposer);
    while (w.agree[other].certified == 5 && w.now_ns < from + 300000 * MS)
        run_ms(STEP_MS);
    close_pool();
    return (w.now_ns - from) / MS;
}

/* Who is heard no more is counted as dead after rules.dead_ns, 4 s; whose link ends, and who is
 * banned, at once. The ballot itself would have 120 s. */
static void the_next_one_goes_on(void **state)
{
    (void)state;
    static const struct {
        gsp_message_kind reached, dropped;
    } stage[] = {{GSP_PREPARE, GSP_PROMISE},
                 {GSP_BEGIN, GSP_REDUCED},
                 {GSP_PROPOSE, GSP_ECHO},
                 {GSP_PROPOSE, GSP_VOTE}};
    for (loss what = DIES; what < LOSSES; what++)
        for (uint32_t k = 0; k < sizeof stage / sizeof stage[0]; k++)
            assert_true(waited_ms(what, stage[k].reached, stage[k].dropped) <=
                        (what == DIES ? 6000u : 2000u));
}

/* Of n members, 0 and 1 are there; 1 proposes first, and is no quorum without 0. */
static void open_two_of(uint32_t n)
{
    open_pool(n);
    w.off[2] = true;
    rules.round_ns = 120000 * MS;
    do {
        saved.certificate.proposal.tokens++;
        open_host(0, &saved);
        open_host(1, &saved);
    } while (first_proposer() != 1);
}

/* A newcomer has not seen how short this pool's rounds are, so it gives a ballot 120 s, while the
 * other one, which is no quorum without it, has long gone on to the next ballots. The one that failed
 * costs what the pool gives a ballot, not what the newcomer would give it. */
static void a_newcomer_does_not_wait_for_a_ballot_that_is_over(void **state)
{
    (void)state;
    open_two_of(2);
    gsp_agree *newcomer = &w.agree[0], *old = &w.agree[1];
    for (uint32_t k = 0; k < 3; k++)
        old->duration_ns[old->n_durations++] = 1000 * MS;
    w.dropped = GSP_PROMISE;
    for (uint32_t t = 0; t < 80 && old->view < 2; t++)
        run_ms(STEP_MS);
    assert_int_equal(old->view, 2);
    assert_int_equal(newcomer->view, 1);
    uint64_t from = w.now_ns;
    w.dropped = 0;
    while (old->certified == 5 && w.now_ns < from + 300000 * MS)
        run_ms(STEP_MS);
    assert_int_equal(old->certified, 6);
    assert_true((w.now_ns - from) / MS <= 3 * gsp_view_timeout_ns(old, 2) / MS);
    close_pool();
}

/* Whoever has said goodbye may still be needed for the quorum that lets it go, so it is asked again
 * like everybody else when the first question is lost. The ballot itself would have 120 s. */
static void a_member_that_leaves_is_asked_again(void **state)
{
    (void)state;
    static const gsp_message_kind lost[] = {GSP_PREPARE, GSP_BEGIN, GSP_PROPOSE, GSP_ECHO};
    for (uint32_t k = 0; k < sizeof lost / sizeof lost[0]; k++) {
        open_two_of(3);
        gsp_agree *stays = &w.agree[1];
        run_ms(1000); /* both have heard of each other */
        w.dropped = lost[k];
        step(0, (gsp_event){.kind = GSP_ON_LEAVE});
        pump();
        for (uint32_t t = 0; t < 40 && !count(1, GSP_DO_SEND, lost[k], 6); t++)
            run_ms(STEP_MS);
        assert_true(count(1, GSP_DO_SEND, lost[k], 6));
        uint64_t from = w.now_ns;
        w.dropped = 0;
        while (stays->certified == 5 && w.now_ns < from + 300000 * MS)
            run_ms(STEP_MS);
        assert_int_equal(stays->certified, 6);
        assert_int_equal(gsp_roster_find(gsp_agree_roster(stays), &w.agree[0].self), GSP_NOBODY);
        assert_true((w.now_ns - from) / MS <= 3000);
        close_pool();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_that_leaves_is_asked_again),
        cmocka_unit_test(a_newcomer_does_not_wait_for_a_ballot_that_is_over),
        cmocka_unit_test(the_next_one_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
