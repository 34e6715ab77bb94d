/*
 * Members that cannot show any more what led to their state: they still come together, and the
 * owner's reset brings them together whatever was lost.
 */
#include "tests/lib/gossip_joining.h"

/* A round that all of them leave when they are closed is over soon after they come back. */
static void three_go_ahead_quickly(void)
{
    round_ns = 3 * 1000000000ull;
    three_go_ahead();
}

static bool has_forked(void)
{
    return !gsp_hash_equal(&hosts[1].status.lineage, &hosts[3].status.lineage);
}

static void lose_chain(const host *h)
{
    char name[30];
    snprintf(name, sizeof name, "host%u/chain", h->i);
    assert_int_equal(unlink(scratch_path(&place, name)), 0);
}

/* A member alone in a lineage of its own, that cannot show what led there nor ask anybody for it,
 * comes to the others like somebody new. */
static void a_lost_chain_keeps_nobody_away(void **unused)
{
    (void)unused;
    three_go_ahead_quickly();
    host_open(&hosts[3]);
    until(4, hosts[0].applied + 1);
    for (unsigned i = 0; i < 4; i++)
        host_close(&hosts[i]);
    fork_ns = 50000000;
    host_open(&hosts[3]);
    assert_true(run(false, has_forked));
    host_close(&hosts[3]);
    lose_chain(&hosts[3]);
    for (unsigned i = 0; i < 4; i++) {
        fork_ns = i == 3 ? 500000000 : 0;
        host_open(&hosts[i]);
    }
    fork_ns = 0;
    until(4, hosts[0].applied + 2);
    assert_equal_states();
    /* What it had alone is of no use to anybody: nobody even began to fetch it. */
    assert_int_equal(hosts[3].n_read, 0);
    for (unsigned i = 0; i < 3; i++)
        assert_false(hosts[i].status.state_found);
    pool_close();
}

static bool begun_anew(void)
{
    for (unsigned i = 1; i < 3; i++)
        if (!gsp_hash_equal(&hosts[i].status.lineage, &hosts[0].status.lineage))
            return false;
    return hosts[0].status.n_roster == 3;
}

/* The owner's reset needs no chain: neither the owner's nor that of those who follow it. */
static void a_reset_brings_all_together(void **unused)
{
    (void)unused;
    three_go_ahead_quickly();
    for (unsigned i = 0; i < 3; i++) {
        host_close(&hosts[i]);
        lose_chain(&hosts[i]);
    }
    for (unsigned i = 0; i < 3; i++)
        host_open(&hosts[i]);
    until(3, hosts[0].applied + 1);
    test_must(gsp_node_reset(hosts[0].node));
    assert_true(run(true, begun_anew));
    until(3, hosts[0].applied + 1);
    host_open(&hosts[3]); /* and somebody new can be shown what led there */
    until(4, hosts[0].applied + 1);
    assert_equal_states();
    pool_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_chain_keeps_nobody_away),
        cmocka_unit_test(a_reset_brings_all_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
