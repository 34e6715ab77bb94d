/* Limits of control groups: versions 1 and 2, groups above, page cache, and nothing at all. */
#include "atom/base/cgroup.h"
#include "atom/base/files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char dir[64];

static void put(const char *group, const char *file, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s%s", dir, group);
    assert_int_equal(atom_dir_make(path), ATOM_OK);
    snprintf(path, sizeof path, "%s%s/%s", dir, group, file);
    assert_int_equal(atom_file_write(path, text, strlen(text)), ATOM_OK);
}

static uint64_t left(const char *self)
{
    char path[128];
    put("", "self", self);
    snprintf(path, sizeof path, "%s/self", dir);
    return atom_cgroup_left_bytes(dir, path);
}

static int make(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/atom-cgroup-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int clean(void **state)
{
    (void)state;
    return atom_dir_remove(dir) == ATOM_OK ? 0 : -1;
}

static void no_groups_no_limit(void **state)
{
    (void)state;
    assert_true(left("") == UINT64_MAX);
    assert_true(left("3:cpu:/a\n0::/\nrubbish\n:::\n5:memory\n") == UINT64_MAX);
    assert_true(atom_cgroup_left_bytes(dir, "/does/not/exist") == UINT64_MAX);
}

static void version_1(void **state)
{
    (void)state;
    put("/memory", "memory.limit_in_bytes", "9223372036854771712\n");
    put("/memory", "memory.usage_in_bytes", "1000000\n");
    put("/memory/a", "memory.limit_in_bytes", "600000\n");
    put("/memory/a", "memory.usage_in_bytes", "500000\n");
    put("/memory/a", "memory.stat", "cache 1\ntotal_inactive_file 100000\nrss 2\n");
    put("/memory/a/b", "memory.limit_in_bytes", "700000\n");
    put("/memory/a/b", "memory.usage_in_bytes", "100000\n");
    assert_true(left("4:cpu:/a\n2:memory:/a/b\n") == 200000); /* the group above has less */
    assert_true(left("2:memory:/elsewhere/c\n") == 9223372036854771712u - 1000000u);
}

static void version_2(void **state)
{
    (void)state;
    put("/unified/s", "memory.max", "max\n");
    put("/unified/s", "memory.current", "77\n");
    assert_true(left("0::/s\n") == UINT64_MAX);
    put("/t", "memory.max", "5000\n");
    put("/t", "memory.current", "6000\n");
    assert_true(left("0::/t\n") == 0);
    put("/t", "memory.stat", "anon 5\ninactive_file 4000\n");
    assert_true(left("0::/t\n") == 3000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_groups_no_limit, make, clean),
        cmocka_unit_test_setup_teardown(version_1, make, clean),
        cmocka_unit_test_setup_teardown(version_2, make, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
