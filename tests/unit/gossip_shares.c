/*
 * Shares of a butterfly and Merkle proofs: the optimum against a search, whole parts, and proofs
 * that hold for one leaf of one tree only.
 */
#include "gossip/member/shares.h"
#include "gossip/sum/merkle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static uint64_t state = 3;
static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static void random_cell(uint32_t n, gsp_rates *rates, bool *able)
{
    for (uint32_t i = 0; i < n; i++) {
        rates[i] = (gsp_rates){.up_bytes_per_s = 1000 + draw(100000),
                               .down_bytes_per_s = 1000 + draw(100000),
                               .accepts = draw(5) > 0};
        able[i] = rates[i].accepts;
    }
    able[draw(n)] = true;
}

/* No move of a little share from one owner to another makes it faster. */
static void water_filling_is_the_optimum(void **unused)
{
    (void)unused;
    for (int round = 0; round < 300; round++) {
        uint32_t n = 3 + draw(30);
        gsp_rates rates[GSP_MEMBERS_MAX];
        bool able[GSP_MEMBERS_MAX];
        double share[GSP_MEMBERS_MAX], sum = 0.0;
        random_cell(n, rates, able);
        assert_true(gsp_shares_fill(rates, able, n, share));
        for (uint32_t i = 0; i < n; i++) {
            assert_true(share[i] >= 0.0 && (able[i] || share[i] <= 0.0));
            sum += share[i];
        }
        assert_true(fabs(sum - 1.0) < 1e-9);
        double best = gsp_shares_seconds(rates, n, share, 1e6);
        for (int move = 0; move < 60; move++) {
            uint32_t from = draw(n), to = draw(n);
            double bit = share[from] * (1 + draw(100)) / 100.0;
            if (!able[to] || from == to)
                continue;
            share[from] -= bit;
            share[to] += bit;
            assert_true(gsp_shares_seconds(rates, n, share, 1e6) >= best * (1 - 1e-9));
            share[to] -= bit;
            share[from] += bit;
        }
    }
}

/* Seven at 100 and one at 12.5 Mbit/s: the slow one owns nothing, and sets the pace. */
static void a_slow_peer_owns_nothing(void **unused)
{
    (void)unused;
    gsp_rates rates[8];
    bool able[8];
    double share[8];
    for (int i = 0; i < 8; i++) {
        uint64_t rate = i == 3 ? 1562500 : 12500000;
        rates[i] = (gsp_rates){rate, rate, true};
        able[i] = true;
    }
    assert_true(gsp_shares_fill(rates, able, 8, share));
    assert_true(share[3] <= 0.0);
    assert_true(fabs(share[0] - 1.0 / 7) < 1e-9);
    assert_true(fabs(gsp_shares_seconds(rates, 8, share, 64e6) - 64e6 / 1562500) < 1e-6);
}

static void nobody_able_is_said(void **unused)
{
    (void)unused;
    gsp_rates rates[4] = {{0}};
    bool able[4] = {false};
    double share[4];
    uint8_t owner[10];
    assert_false(gsp_shares_fill(rates, able, 4, share));
    gsp_shares_assign(NULL, rates, able, 4, 10, owner);
    for (int i = 0; i < 10; i++)
        assert_int_equal(owner[i], GSP_NOBODY);
    able[2] = true; /* rates unknown */
    gsp_shares_assign(NULL, rates, able, 4, 10, owner);
    for (int i = 0; i < 10; i++)
        assert_int_equal(owner[i], 2);
}

static void whole_parts_follow_shares(void **unused)
{
    (void)unused;
    for (int round = 0; round < 200; round++) {
        uint32_t n = 1 + draw(32), parts = 1 + draw(GSP_PARTS_MAX), count[GSP_MEMBERS_MAX] = {0};
        gsp_rates rates[GSP_MEMBERS_MAX];
        bool able[GSP_MEMBERS_MAX];
        double share[GSP_MEMBERS_MAX];
        uint8_t owner[GSP_PARTS_MAX], again[GSP_PARTS_MAX];
        random_cell(n, rates, able);
        assert_true(gsp_shares_fill(rates, able, n, share));
        gsp_shares_assign(NULL, rates, able, n, parts, owner);
        gsp_shares_assign(NULL, rates, able, n, parts, again);
        assert_memory_equal(owner, again, parts);
        for (uint32_t p = 0; p < parts; p++) {
            assert_true(owner[p] < n && able[owner[p]]);
            count[owner[p]]++;
        }
        for (uint32_t i = 0; i < n; i++)
            assert_true(fabs(count[i] - share[i] * parts) < 1.0 + 1e-9);
    }
}

static void paces_end_together_below_their_bounds(void **unused)
{
    (void)unused;
    for (uint32_t round = 0; round < 2000; round++) {
        double left[16], most[16], pace[16], used = 0.0, bounds = 0.0;
        uint32_t n = 1 + draw(16);
        for (uint32_t i = 0; i < n; i++) {
            left[i] = 1.0 + draw(100000);
            most[i] = draw(2) ? 0.0 : 1.0 + draw(3000);
        }
        gsp_shares_pace(left, most, n, 10000.0, pace);
        double together = 0.0; /* seconds until those without a bound are done */
        for (uint32_t i = 0; i < n; i++) {
            bool full = most[i] > 0.0 && pace[i] >= most[i] * (1.0 - 1e-9);
            used += pace[i];
            bounds += most[i] > 0.0 ? most[i] : 1e300;
            if (full) {
                assert_true(pace[i] <= most[i] * (1.0 + 1e-9));
                continue;
            }
            if (together > 0.0)
                assert_true(fabs(left[i] / pace[i] - together) <= 1e-6 * together);
            together = left[i] / pace[i];
        }
        for (uint32_t i = 0; i < n && together > 0.0; i++) /* the bound ones could not keep up */
            assert_true(left[i] / pace[i] >= together * (1.0 - 1e-6));
        double whole = bounds < 10000.0 ? bounds : 10000.0;
        assert_true(fabs(used - whole) <= 1e-6 * whole);
    }
}

static void proofs_hold_for_their_leaf_only(void **unused)
{
    (void)unused;
    for (uint32_t n = 1; n <= GSP_PARTS_MAX; n += n < 20 ? 1 : 59) {
        gsp_hash leaf[GSP_PARTS_MAX], root, other, path[GSP_MERKLE_PATH_MAX];
        for (uint32_t i = 0; i < n; i++)
            gsp_merkle_leaf(i, "part", 4, &leaf[i]); /* same bytes, other number */
        gsp_merkle_root(leaf, n, &root);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t steps = gsp_merkle_path(leaf, n, i, path);
            assert_true(steps <= GSP_MERKLE_PATH_MAX);
            assert_true(gsp_merkle_check(&root, n, i, &leaf[i], path, steps));
            uint32_t j = (i + 1) % n;
            if (n > 1) {
                assert_false(gsp_merkle_check(&root, n, i, &leaf[j], path, steps));
                assert_false(gsp_merkle_check(&root, n, j, &leaf[j], path, steps));
            }
            assert_false(gsp_merkle_check(&root, n, i, &leaf[i], path, steps ? steps - 1 : 1));
            assert_false(gsp_merkle_check(&root, n, n + i, &leaf[i], path, steps));
            for (uint32_t s = 0; s < steps; s++) {
                path[s].byte[draw(32)] ^= (uint8_t)(1u << draw(8));
                assert_false(gsp_merkle_check(&root, n, i, &leaf[i], path, steps));
                (void)gsp_merkle_path(leaf, n, i, path);
            }
        }
        leaf[n / 2].byte[0] ^= 1;
        gsp_merkle_root(leaf, n, &other);
        assert_memory_not_equal(&root, &other, sizeof root);
    }
    gsp_hash any = {{0}};
    assert_false(gsp_merkle_check(&any, 0, 0, &any, &any, 0));
    assert_false(gsp_merkle_check(&any, GSP_PARTS_MAX + 1, 0, &any, &any, 0));
}

/* The lesser of a peer's two directions holds it up, whichever it is. */
static void the_lesser_direction_counts(void **unused)
{
    (void)unused;
    const gsp_rates rates[4] = {{.up_bytes_per_s = 100, .down_bytes_per_s = 9000},
                                {.up_bytes_per_s = 9000, .down_bytes_per_s = 100},
                                {.up_bytes_per_s = 9000, .down_bytes_per_s = 9000},
                                {.up_bytes_per_s = 9000, .down_bytes_per_s = 9000}};
    const bool able[4] = {true, true, true, true};
    double share[4];
    assert_true(gsp_shares_fill(rates, able, 4, share));
    assert_true(share[0] <= 0 && share[1] <= 0);
    assert_true(fabs(share[2] - 0.5) < 1e-9 && fabs(share[3] - 0.5) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(water_filling_is_the_optimum),
                                       cmocka_unit_test(a_slow_peer_owns_nothing),
                                       cmocka_unit_test(the_lesser_direction_counts),
                                       cmocka_unit_test(nobody_able_is_said),
                                       cmocka_unit_test(whole_parts_follow_shares),
                                       cmocka_unit_test(paces_end_together_below_their_bounds),
                                       cmocka_unit_test(proofs_hold_for_their_leaf_only)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
