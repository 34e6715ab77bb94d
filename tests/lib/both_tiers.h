/*
 * Tests of what a member holds run twice: with anchors in memory, and on disk.
 */
#ifndef TESTS_LIB_BOTH_TIERS_H
#define TESTS_LIB_BOTH_TIERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { PIECE = 1000 }; /* floats: several of a fragment */

static bool anchors_on_disk;

static inline int both_tiers_run(const struct CMUnitTest *tests, size_t n, CMFixtureFunction before,
                                 CMFixtureFunction after)
{
    anchors_on_disk = false;
    int failed = _cmocka_run_group_tests("in memory", tests, n, before, after);
    anchors_on_disk = true;
    return failed + _cmocka_run_group_tests("on disk", tests, n, before, after);
}
#define both_tiers(tests, before, after)                                                           \
    both_tiers_run(tests, sizeof tests / sizeof *tests, before, after)

#endif
