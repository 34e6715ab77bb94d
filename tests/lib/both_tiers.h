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

#define both_tiers(tests, before, after)                                                           \
    ((anchors_on_disk = false, cmocka_run_group_tests_name("in memory", tests, before, after)) +   \
     (anchors_on_disk = true, cmocka_run_group_tests_name("on disk", tests, before, after)))

#endif
