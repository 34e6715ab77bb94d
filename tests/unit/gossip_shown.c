/*
 * What a question for certificates costs whoever is asked: each one goes to each key once for
 * nothing, and is repeated so many times in a minute, whatever the key asks for.
 */
#include "tests/lib/agree_hosts.h"

/* How many of the questions of this host were answered by host 0. */
static uint32_t given_to(uint32_t host, uint32_t n_questions, uint64_t version, uint64_t every_ms)
{
    uint32_t before = count(0, GSP_DO_CERTIFICATE, 0, version);
    for (uint32_t k = 0; k < n_questions; k++) {
        gsp_message m = from_host(host, GSP_ASK, 0);
        m.as.ask.version = version;
        w.now_ns += every_ms * MS;
        step(0, (gsp_event){.kind = GSP_ON_MESSAGE, .message = &m});
    }
    return count(0, GSP_DO_CERTIFICATE, 0, version) - before;
}

/* Each key has each certificate once for nothing, and so many repetitions in a minute; a question
 * for what is kept no more is a question for the newest one. */
static void certificates_are_repeated_so_often(void **state)
{
    (void)state;
    open_pool(3);
    run_ms(40000);
    w.now_ns += 60000 * MS - w.now_ns % (60000 * MS);
    const gsp_agree *a = &w.agree[0];
    uint64_t newest = a->certified;
    assert_true(newest >= 5 + GSP_REPLAY_MAX);
    assert_int_equal(a->stats.unanswered, 0);
    assert_int_equal(given_to(1, 200, newest, 100), 1 + GSP_REPEATS_MAX);
    assert_int_equal(a->stats.unanswered, 199 - GSP_REPEATS_MAX);
    assert_int_equal(given_to(1, 20, newest - 1, 100), 0); /* an older one is a repetition, too */
    assert_int_equal(given_to(1, 20, 1, 100), 0);
    assert_int_equal(given_to(2, 20, 1, 100), 20); /* others still have their answers */
    w.now_ns += 60000 * MS;
    assert_int_equal(given_to(1, 200, newest, 100), GSP_REPEATS_MAX);
    uint64_t unanswered = a->stats.unanswered;
    run_ms(4000);
    assert_true(a->certified > newest); /* what is new is given at once */
    assert_int_equal(given_to(1, 2, a->certified, 100), 1);
    assert_int_equal(a->stats.unanswered, unanswered + 1);
    close_pool();
}

/* Within one second a key has fewer still, whatever it asks for. */
static void a_burst_is_cut_off(void **state)
{
    (void)state;
    open_pool(3);
    run_ms(40000);
    w.now_ns += 60000 * MS - w.now_ns % (60000 * MS);
    assert_int_equal(given_to(1, 200, w.agree[0].certified, 1), GSP_ANSWERS_PER_S);
    close_pool();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certificates_are_repeated_so_often),
        cmocka_unit_test(a_burst_is_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
