/*
 * A batch of gradients mode alone: leases cover what is open once, whoever is there; a version whose
 * parts or leases are torn is void; what the state says comes back; who is late is leased less.
 */
#include "atom/base/mem.h"
#include "atom/pool/batch.h"
#include "gossip/sum/quant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { C = 37, MEMBERS = 5, SAMPLES = 3, FLOATS = 3 * GSP_INT8_BLOCK, PARTS = 3 };

static uint32_t list[C];

static pool_batch fresh(void)
{
    pool_batch b = {.n = C, .micro_batch = SAMPLES, .max_samples = 10 * C * SAMPLES};
    pool_batch_begin(&b);
    return b;
}

/* Members of `bits` bring their leases, in every part. */
static gsp_proposal *version_of(const pool_batch *b, uint32_t bits)
{
    gsp_proposal *c = atom_alloc(1, sizeof *c);
    c->n_parts = PARTS;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        uint32_t n = pool_batch_lease(b, MEMBERS, i, list);
        if (!(bits >> i & 1) || n == 0)
            continue;
        uint32_t k = c->n_contributors++;
        c->contributor[k].member = (uint8_t)i;
        c->contributor[k].samples = n * SAMPLES;
        for (uint32_t part = 0; part < PARTS; part++) {
            c->part[part].included |= 1u << k;
            c->part[part].weight += 100 * n;
        }
    }
    return c;
}

static pool_verdict judge(const pool_batch *b, const gsp_proposal *c, uint64_t came)
{
    static pool_verdict v;
    pool_batch_judge(b, c, MEMBERS, FLOATS, came, list, &v);
    return v;
}

static void leases_cover_what_is_open_once(void **state)
{
    (void)state;
    pool_batch b = fresh();
    for (unsigned round = 0; round < 2; round++) {
        uint8_t seen[C] = {0};
        uint32_t all = 0;
        for (uint32_t i = 0; i < MEMBERS; i++) {
            uint32_t n = pool_batch_lease(&b, MEMBERS, i, list);
            for (uint32_t k = 0; k < n; k++)
                seen[list[k]]++;
            all += n;
        }
        assert_int_equal(all, b.n_open);
        for (uint32_t i = 0; i < C; i++)
            assert_int_equal(seen[i], b.open[i / 32] >> i % 32 & 1);
        assert_int_equal(pool_batch_lease(&b, MEMBERS, MEMBERS, list), 0);
        gsp_proposal *c = version_of(&b, 0x13); /* three of five bring theirs */
        pool_verdict v = judge(&b, c, FLOATS);
        assert_true(v.whole);
        pool_batch_add(&b, &v);
        atom_free(c);
    }
    b.steps = 10; /* the run is over */
    assert_int_equal(pool_batch_lease(&b, MEMBERS, 0, list), 0);
}

static void only_those_who_brought_are_asked_again(void **state)
{
    (void)state;
    pool_batch b = fresh();
    b.brought = 0x6;
    assert_int_equal(pool_batch_lease(&b, MEMBERS, 0, list), 0);
    assert_int_equal(
        pool_batch_lease(&b, MEMBERS, 1, list) + pool_batch_lease(&b, MEMBERS, 2, list), C);
    b.brought = 1u << MEMBERS; /* that member left: everybody is asked */
    assert_true(pool_batch_lease(&b, MEMBERS, 0, list) > 0);
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
    gsp_roster roster = {.n = MEMBERS};
    for (uint32_t i = 0; i < MEMBERS; i++)
        roster.member[i].key.byte[0] = (uint8_t)(i + 1);
    c->next = (gsp_roster){.n = 2, .member = {roster.member[4], roster.member[3]}};
    assert_int_equal(pool_batch_brought(&roster, c, &v), 1); /* of the next roster, its first */
    atom_free(c);
}

static void the_state_comes_back(void **state)
{
    (void)state;
    float words[96];
    pool_batch b = fresh(), back = {.n = C, .micro_batch = SAMPLES}, other = {.n = C - 1};
    gsp_proposal *c = version_of(&b, 0x3);
    pool_verdict v = judge(&b, c, FLOATS);
    pool_batch_add(&b, &v);
    b.steps = (1ull << 33) + 7;
    b.brought = 3;
    b.share[4] = 77;
    assert_true(pool_batch_words(C) <= sizeof words / sizeof *words);
    pool_batch_write(&b, words);
    assert_false(pool_batch_read(&other, words));
    assert_true(pool_batch_read(&back, words));
    assert_int_equal(back.steps, b.steps);
    assert_int_equal(back.tokens, b.tokens);
    assert_int_equal(back.brought, 3);
    assert_memory_equal(back.share, b.share, sizeof b.share);
    assert_int_equal(back.n_open, b.n_open);
    assert_memory_equal(back.open, b.open, sizeof b.open);
    b.share[4] = POOL_SHARE_MAX + 1; /* no certificate leads there */
    pool_batch_write(&b, words);
    assert_false(pool_batch_read(&back, words));
    assert_int_equal(pool_batch_samples(&back), pool_batch_samples(&b));
    atom_free(c);
}

static gsp_roster everybody(void)
{
    gsp_roster roster = {.n = MEMBERS};
    for (uint32_t i = 0; i < MEMBERS; i++)
        roster.member[i].key.byte[0] = (uint8_t)(i + 1);
    return roster;
}

/* A version to which those of `bits` bring what they were leased. */
static void go_on(pool_batch *b, uint32_t bits)
{
    gsp_roster roster = everybody();
    gsp_proposal *c = version_of(b, bits);
    pool_verdict v = judge(b, c, FLOATS);
    c->next = roster;
    pool_batch_shares(b, &roster, c, &v);
    b->brought = pool_batch_brought(&roster, c, &v);
    pool_batch_add(b, &v);
    if (b->n_open == 0) {
        pool_batch_begin(b);
        b->steps++;
    }
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
            uint32_t n = pool_batch_leased(&b, MEMBERS, i);
            bits |= n <= speed[i] ? 1u << i : 0;
            done[i] += b.steps >= STEPS / 2 && n <= speed[i] ? n : 0;
        }
        go_on(&b, bits);
    }
    for (uint32_t i = 0; i < MEMBERS; i++)
        most += done[i];
    assert_int_equal(most, STEPS / 2 * C); /* each one once */
    assert_true(done[0] * 20 > most * 7 && done[1] * 20 > most * 7);
    assert_true(done[2] * 10 > most && done[2] * 4 < most);
    assert_true(done[3] * 50 > most && done[3] * 12 < most);
    assert_int_equal(done[4], 0);
}

static void a_minority_says_nothing_about_speed(void **state)
{
    (void)state;
    pool_batch b = fresh();
    go_on(&b, 0x3); /* two of five, who were leased less than half */
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(b.share[i], POOL_SHARE_FIRST);
    b = fresh();
    go_on(&b, 0x7);
    assert_true(b.share[0] > POOL_SHARE_FIRST);
    assert_int_equal(b.share[3], POOL_SHARE_FIRST / 2);
    uint32_t late = b.share[3];
    go_on(&b, 0x7); /* they were not asked for the rest, so they are not late again */
    assert_int_equal(b.share[3], late);
}

static void shares_stay_with_their_members(void **state)
{
    (void)state;
    pool_batch b = fresh();
    gsp_roster roster = everybody();
    for (uint32_t i = 0; i < MEMBERS; i++)
        b.share[i] = 32000 + i;
    gsp_proposal *c = version_of(&b, 0);
    pool_verdict v = judge(&b, c, FLOATS);
    c->next = (gsp_roster){.n = 3, .member = {roster.member[1], {{{99}}, 1}, roster.member[4]}};
    pool_batch_shares(&b, &roster, c, &v);
    assert_int_equal(b.share[0], 32001);
    assert_int_equal(b.share[1], 0); /* nothing is known of a newcomer */
    assert_int_equal(b.share[2], 32004);
    assert_int_equal(b.share[3], 0);
    atom_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leases_cover_what_is_open_once),
        cmocka_unit_test(only_those_who_brought_are_asked_again),
        cmocka_unit_test(torn_versions_are_void),
        cmocka_unit_test(the_state_comes_back),
        cmocka_unit_test(leases_follow_what_certificates_show),
        cmocka_unit_test(a_minority_says_nothing_about_speed),
        cmocka_unit_test(shares_stay_with_their_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
