/* Counted memory: exact counts, failures on demand, nothing lost on failure. */
#include "atom/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void counts_are_exact(void **state)
{
    (void)state;
    atom_mem_stats before = atom_mem_read();
    char *a = atom_alloc(10, 7);
    assert_non_null(a);
    for (int i = 0; i < 70; i++)
        assert_int_equal(a[i], 0);
    assert_int_equal(atom_mem_read().live_bytes, before.live_bytes + 70);
    memset(a, 'x', 70);
    a = atom_realloc(a, 100, 10);
    assert_non_null(a);
    assert_int_equal(a[69], 'x');
    assert_int_equal(atom_mem_read().live_bytes, before.live_bytes + 1000);
    assert_int_equal(atom_mem_read().live_blocks, before.live_blocks + 1);
    assert_true(atom_mem_read().peak_bytes >= before.live_bytes + 1000);
    atom_free(a);
    atom_free(NULL);
    assert_int_equal(atom_mem_read().live_bytes, before.live_bytes);
    assert_int_equal(atom_mem_read().live_blocks, before.live_blocks);
}

static void absurd_sizes_are_refused(void **state)
{
    (void)state;
    uint64_t blocks = atom_mem_read().live_blocks;
    assert_null(atom_alloc(SIZE_MAX, 2));
    assert_null(atom_alloc(SIZE_MAX, 1));
    assert_null(atom_realloc(NULL, SIZE_MAX / 2, 3));
    assert_null(atom_pages_take(0));
    assert_null(atom_pages_take(UINT64_MAX));
    assert_int_equal(atom_mem_read().live_blocks, blocks);
}

static void texts(void **state)
{
    (void)state;
    char *a = atom_format("%s-%d", "abc", 5);
    char *b = atom_strdup(a);
    char *c = atom_strndup(a, 3);
    assert_string_equal(b, "abc-5");
    assert_string_equal(c, "abc");
    atom_free(a);
    atom_free(b);
    atom_free(c);
}

static void pages_are_aligned_and_zero(void **state)
{
    (void)state;
    uint64_t live = atom_mem_read().live_bytes;
    unsigned char *pages = atom_pages_take(100000);
    assert_non_null(pages);
    assert_int_equal((uintptr_t)pages % ATOM_ALIGN_BYTES, 0);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(pages[i], 0);
    assert_int_equal(atom_mem_read().live_bytes, live + 100000);
    atom_pages_give(pages, 100000);
    assert_int_equal(atom_mem_read().live_bytes, live);
    assert_int_equal(atom_align(0), 0);
    assert_int_equal(atom_align(1), 256);
    assert_int_equal(atom_align(256), 256);
}

static void the_nth_allocation_fails(void **state)
{
    (void)state;
    atom_mem_fail_after(2);
    void *a = atom_alloc(1, 1);
    void *b = atom_alloc(1, 1);
    void *c = atom_alloc(1, 1);
    char *d = atom_format("x");
    void *e = atom_pages_take(4096);
    void *f = atom_realloc(a, 2, 1);
    atom_mem_fail_after(0);
    assert_non_null(a);
    assert_null(b);
    assert_null(c);
    assert_null(d);
    assert_null(e);
    assert_null(f); /* and a survives */
    atom_free(a);
}

static void lists_grow_and_survive_failure(void **state)
{
    (void)state;
    int *items = NULL;
    size_t room = 0;
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(atom_grow(&items, (size_t)i, &room, sizeof *items), ATOM_OK);
        items[i] = i;
    }
    atom_mem_fail_after(1);
    size_t full = room;
    atom_status st = atom_grow(&items, full, &room, sizeof *items);
    atom_mem_fail_after(0);
    assert_int_equal(st, ATOM_E_RESOURCE);
    assert_int_equal(room, full);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(items[i], i);
    atom_free(items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_exact),
        cmocka_unit_test(absurd_sizes_are_refused),
        cmocka_unit_test(texts),
        cmocka_unit_test(pages_are_aligned_and_zero),
        cmocka_unit_test(the_nth_allocation_fails),
        cmocka_unit_test(lists_grow_and_survive_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
