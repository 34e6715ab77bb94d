/*
 * Who comes late: a pool of three goes further than anybody keeps results for, then others join.
 * They get anchor and momentum from all at once, and end with the same bits; a donor that sends
 * wrong bytes, one that signs wrong roots, one that dies midway, a joiner that is killed midway and
 * a member that slept too long change nothing but who is asked.
 */
#include "tests/lib/gossip_joining.h"

static void a_joiner_gets_the_state(void **unused)
{
    (void)unused;
    three_go_ahead();
    assert_int_equal(hosts[1].n_adopted, 1); /* only the founder had it from the start */
    host_open(&hosts[3]);
    until(4, hosts[0].applied + 3);
    assert_int_equal(hosts[3].n_adopted, 1);
    unsigned donors = 0;
    for (unsigned i = 0; i < 3; i++)
        donors += hosts[i].status.state_sent_bytes > 0;
    assert_true(donors >= 2);
    assert_equal_states();
    pool_close();
}

static void a_member_that_slept_gets_it_too(void **unused)
{
    (void)unused;
    three_go_ahead();
    host_open(&hosts[3]);
    until(4, hosts[0].applied + 2);
    unsigned before = hosts[3].n_adopted;
    host_close(&hosts[3]); /* and its memory stays */
    until(3, hosts[0].applied + GSP_REPLAY_MAX + 4);
    host_open(&hosts[3]);
    until(4, hosts[0].applied + 2);
    assert_int_equal(hosts[3].n_adopted, before + 1);
    assert_equal_states();
    pool_close();
}

static void lied_to(lie how)
{
    three_go_ahead();
    hosts[1].lie = how;
    host_close(&hosts[1]); /* comes back as a liar */
    hosts[1].n_read = 0;
    host_open(&hosts[1]);
    until(3, hosts[0].applied + 1);
    host_open(&hosts[3]);
    until(4, hosts[0].applied + 2);
    assert_true(how != WRONG_BYTES || hosts[3].status.state_wrong > 0);
    assert_equal_states();
    pool_close();
}

static void a_donor_lies(void **unused)
{
    (void)unused;
    lied_to(WRONG_BYTES);
    lied_to(WRONG_ROOTS);
}

static bool half_way(void)
{
    const gsp_node_status *s = &hosts[3].status;
    return s->state_all_bytes && 2 * s->state_bytes > s->state_all_bytes;
}

static void a_donor_dies_midway(void **unused)
{
    (void)unused;
    three_go_ahead();
    host_open(&hosts[3]);
    assert_true(run(false, half_way));
    assert_int_equal(hosts[3].n_adopted, 0);
    host_close(&hosts[1]);
    assert_true(hosts[3].node != NULL);
    until(3, hosts[0].applied + 2);
    assert_int_equal(hosts[3].n_adopted, 1);
    assert_equal_states();
    pool_close();
}

static void a_joiner_dies_midway(void **unused)
{
    (void)unused;
    three_go_ahead();
    host_open(&hosts[3]);
    assert_true(run(false, half_way));
    uint64_t here = hosts[3].status.state_bytes, sent = 0, after = 0;
    for (unsigned i = 0; i < 3; i++)
        sent += hosts[i].status.state_sent_bytes;
    host_close(&hosts[3]);
    host_open(&hosts[3]);
    until(4, hosts[0].applied + 2);
    for (unsigned i = 0; i < 3; i++)
        after += hosts[i].status.state_sent_bytes;
    uint64_t all = (uint64_t)FRAGMENTS * 2 * FLOATS * sizeof(float);
    assert_true(after - sent <= all - here + all / 4); /* what was here was not fetched again */
    assert_int_equal(hosts[3].n_adopted, 1);
    assert_equal_states();
    pool_close();
}

static bool begun(void)
{
    return hosts[3].status.state_bytes > 0;
}

static uint64_t sent_by_all(uint64_t *kept)
{
    uint64_t sent = 0;
    *kept = 0;
    for (unsigned i = 0; i < 3; i++) {
        sent += hosts[i].status.state_sent_bytes;
        *kept += hosts[i].status.state_kept_bytes;
    }
    return sent;
}

/* Whether the joiner got the old state whole, and then what was certified since. */
static bool what_was_is_kept(void)
{
    uint64_t kept, before, all = (uint64_t)FRAGMENTS * 2 * FLOATS * sizeof(float);
    three_go_ahead();
    before = sent_by_all(&kept);
    host_open(&hosts[3]);
    assert_true(run(false, begun));
    hosts[3].pauses = true; /* and every fragment changes */
    until(3, hosts[0].applied + FRAGMENTS);
    hosts[3].pauses = false;
    assert_true(run(false, all_at_rest));
    uint64_t sent = sent_by_all(&kept) - before;
    until(4, hosts[0].applied + 1);
    assert_equal_states();
    bool once = hosts[3].n_adopted == 1;
    pool_close();
    return once && kept > 0 && sent <= all + all / 8;
}

/* A fragment that changes before its donor has hashed it again cannot be kept and is fetched anew:
 * seldom does the joiner come just then. */
static void what_was_is_kept_for_who_fetches(void **unused)
{
    (void)unused;
    int tries = 1;
    while (!what_was_is_kept())
        assert_true(tries++ < 3);
}

/* Two that slept ask each other, too: what they know is old, and they know it. */
static void two_that_slept_wake_together(void **unused)
{
    (void)unused;
    three_go_ahead();
    host_open(&hosts[3]);
    host_open(&hosts[4]);
    until(5, hosts[0].applied + 2);
    host_close(&hosts[3]);
    host_close(&hosts[4]);
    until(3, hosts[0].applied + GSP_REPLAY_MAX + 4);
    host_open(&hosts[3]);
    host_open(&hosts[4]);
    until(5, hosts[0].applied + 2);
    assert_equal_states();
    pool_close();
}

static void rounds_go_on_meanwhile(void **unused)
{
    (void)unused;
    three_go_ahead();
    pause_ns = 60000000; /* fragments move on while they are fetched */
    host_open(&hosts[3]);
    host_open(&hosts[4]);
    until(5, hosts[0].applied + 2);
    assert_equal_states();
    pool_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_joiner_gets_the_state),
        cmocka_unit_test(a_member_that_slept_gets_it_too),
        cmocka_unit_test(a_donor_lies),
        cmocka_unit_test(a_donor_dies_midway),
        cmocka_unit_test(a_joiner_dies_midway),
        cmocka_unit_test(what_was_is_kept_for_who_fetches),
        cmocka_unit_test(two_that_slept_wake_together),
        cmocka_unit_test(rounds_go_on_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
