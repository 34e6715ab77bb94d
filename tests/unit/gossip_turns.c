/*
 * Who goes on when the proposer of a ballot is gone: the next one, within seconds and not when the
 * ballot's time is over, whatever the ballot had come to.
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_one_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
