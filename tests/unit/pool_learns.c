/*
 * What own steps are expected to cost, beside every point that was measured or published
 * (docs/measurements/2026-11-24-own-steps.md and those after it); and nothing where there is none near.
 */
#include "atom/pool/learns.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

typedef struct point {
    double millions;
    uint32_t members;
    int64_t steps;
    double percent;
    double dense;
} point;

static const point by_adamw[] = {
    {0.446, 2, 5, 2.1, 0},  {0.446, 2, 20, 2.0, 0}, {0.446, 2, 50, 2.7, 0}, {0.446, 4, 5, 4.7, 0},
    {0.446, 4, 20, 6.4, 0}, {0.446, 8, 20, 7.4, 0}, {0.44, 4, 10, 4.1, 0},  {2.9, 8, 20, 8.5, 0},
    {35, 8, 30, 3.9, 0},    {90, 8, 30, 3.1, 0},    {180, 8, 30, 2.3, 0},   {550, 8, 30, 1.7, 0},
    {2400, 8, 30, 1.1, 0},  {35, 4, 30, 2.0, 0},    {2400, 4, 30, 0.3, 0},  {35, 2, 30, 0.7, 0}};
static const point by_muon[] = {
    {0.446, 8, 20, 12.1, 0},    {0.446, 8, 50, 15.4, 0},     {0.44, 4, 10, 5.4, 0},
    {0.446, 8, 20, 7.4, 0.1},   {0.446, 2, 20, 6.1, 0.1},    {0.446, 4, 20, 9.5, 0.1},
    {0.446, 8, 20, 12.3, 0.1},  {2.89, 8, 20, 16.9, 0.1},    {2.89, 8, 20, 18.2, 0.1},
    {2.89, 8, 5, 14.9, 0.1},    {0.446, 2, 20, 5.5, 0.1},    {0.446, 4, 20, 5.3, 0.1},
    {0.446, 8, 20, 8.7, 0.1},   {0.446, 16, 20, 11.2, 0.1},  {0.446, 4, 100, 9.6, 0.1},
    {0.446, 8, 100, 15.3, 0.1}, {0.446, 2, 100, 6.1, 0.1},   {0.446, 8, 5, 8.8, 0.1},
    {0.446, 16, 5, 9.0, 0.1},   {0.446, 16, 100, 17.2, 0.1}, {0.446, 8, 20, 6.1, 0.1},
    {0.446, 8, 20, 8.2, 0.1}};
static const point by_muon_plain[] = {{0.446, 4, 20, 5.8, 0.1}, {0.446, 8, 20, 11.3, 0.1},
                                      {0.446, 4, 5, 2.9, 0.1},  {0.446, 4, 10, 4.0, 0.1},
                                      {0.446, 8, 5, 7.5, 0.1},  {0.446, 8, 5, 4.3, 0.1},
                                      {0.446, 8, 5, 3.9, 0.1}};

static pool_learns expect_of(const point *p, bool muon, bool momentum)
{
    const pool_learns_facts f = {.floats = (uint64_t)(p->millions * 1e6),
                                 .members = p->members,
                                 .sync_steps = p->steps,
                                 .muon = muon,
                                 .momentum = momentum,
                                 .dense = p->dense};
    return pool_learns_expect(&f);
}

static pool_learns expect(double millions, uint32_t members, int64_t steps, bool muon, double dense)
{
    return expect_of(&(point){millions, members, steps, 0, dense}, muon, false);
}

static void each_point(const point *points, size_t n, bool muon, bool momentum)
{
    for (size_t i = 0; i < n; i++) {
        const point *p = &points[i];
        pool_learns e = expect_of(p, muon, momentum && p->dense > 0);
        assert_true(e.known);
        print_message(
            "%s %g M, %u members, H %lld, %g dense: %.2f %%, expected %.2f (%.2f to %.2f)\n",
            muon ? "Muon" : "AdamW", p->millions, p->members, (long long)p->steps, p->dense,
            p->percent, 100 * e.behind, 100 * e.low, 100 * e.high);
        assert_true(p->percent > 100 * e.low && p->percent < 100 * e.high);
    }
}

static void every_point_is_between(void **unused)
{
    (void)unused;
    each_point(by_adamw, sizeof by_adamw / sizeof *by_adamw, false, false);
    each_point(by_muon, sizeof by_muon / sizeof *by_muon, true, true);
    each_point(by_muon_plain, sizeof by_muon_plain / sizeof *by_muon_plain, true, false);
}

static void it_grows_as_it_should(void **unused)
{
    (void)unused;
    for (int by = 0; by < 2; by++) {
        assert_true(expect(0.45, 8, 20, by, 0).behind > expect(0.45, 4, 20, by, 0).behind);
        assert_true(expect(0.45, 4, 50, by, 0).behind > expect(0.45, 4, 10, by, 0).behind);
        assert_true(expect(0.45, 8, 20, by, 0.1).behind < expect(0.45, 8, 20, by, 0).behind);
    }
    assert_true(expect(124, 8, 20, false, 0).behind < expect(3, 8, 20, false, 0).behind);
}

static void beyond_the_points_it_knows_nothing(void **unused)
{
    static const struct {
        double millions;
        uint32_t members;
        int64_t steps;
        bool muon;
        double dense;
    } none[] = {{0.1, 4, 20, false, 0},    {7000, 4, 20, false, 0},   {124, 1, 20, false, 0},
                {124, 16, 20, false, 0},   {124, 4, 1, false, 0},     {124, 4, 500, false, 0},
                {124, 4, 20, true, 0},     {0.45, 16, 20, true, 0},   {2.9, 2, 20, true, 0.1},
                {2.9, 8, 50, true, 0.1},   {2.9, 8, 20, true, 0},     {0.45, 4, 3, true, 0},
                {0.1, 4, 20, true, 0},     {124, 4, 20, false, 0.5},  {124, 4, 20, false, 0.01},
                {124, 9, 20, false, 0},    {124, 4, 51, false, 0},    {124, 4, 20, false, 0.21},
                {124, 9, 20, false, 0.1},  {124, 4, 51, false, 0.1},  {0.45, 9, 20, true, 0},
                {0.45, 4, 51, true, 0},    {0.45, 17, 20, true, 0.1}, {0.45, 3, 19, true, 0.1},
                {0.45, 4, 101, true, 0.1}, {0.45, 9, 5, true, 0.1},   {0.45, 3, 20, true, 0.1},
                {0.45, 4, 21, true, 0.1},  {2.9, 8, 5, true, 0.1}};
    (void)unused;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        pool_learns e =
            expect(none[i].millions, none[i].members, none[i].steps, none[i].muon, none[i].dense);
        assert_false(e.known);
        assert_non_null(e.why);
    }
}

static pool_learns with_momentum(uint32_t members, int64_t steps, bool muon, double dense)
{
    return expect_of(&(point){0.45, members, steps, 0, dense}, muon, true);
}

/* Many members lose as much with it, few lose far more. */
static void of_a_momentum_with_a_small_h_it_knows_little(void **unused)
{
    (void)unused;
    assert_true(with_momentum(8, 19, true, 0.1).known);
    assert_true(with_momentum(7, 20, true, 0.1).known);
    assert_false(with_momentum(7, 19, true, 0.1).known);
    assert_non_null(with_momentum(7, 19, true, 0.1).why);
    assert_true(with_momentum(8, 20, false, 0).known);
    assert_false(with_momentum(8, 19, false, 0).known);
    assert_false(with_momentum(8, 19, true, 0).known);
    assert_true(expect(0.45, 8, 19, false, 0).known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_point_is_between),
        cmocka_unit_test(it_grows_as_it_should),
        cmocka_unit_test(beyond_the_points_it_knows_nothing),
        cmocka_unit_test(of_a_momentum_with_a_small_h_it_knows_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
