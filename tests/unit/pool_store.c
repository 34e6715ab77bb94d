/*
 * Fragments of an anchor on disk (store.h): a file that was changed at any byte is not taken for the one that was
 * written, nor is that of another model, and one that is being written is not whole.
 */
#include "atom/pool/store.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 100, OUTER = 60, HEAD = 4096 };
static scratch place;
static pool_store store;
static float anchor[N], momentum[OUTER];

static int setup(void **state)
{
    (void)state;
    scratch_open(&place);
    store = (pool_store){.directory = place.dir, .n = {N}, .outer = {OUTER}};
    pool_header h = {.epoch = 3, .version = 9, .n = N, .lineage.byte = {5}};
    for (int i = 0; i < N; i++)
        anchor[i] = (float)i;
    for (int i = 0; i < OUTER; i++)
        momentum[i] = (float)-i;
    assert_int_equal(pool_file_write(&store, 0, 1, &h, anchor, momentum), ATOM_OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    scratch_close(&place);
    return 0;
}

static void flip(long at)
{
    FILE *f = fopen(scratch_path(&place, "fragment-0.1"), "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1, f), byte ^ 1);
    assert_int_equal(fclose(f), 0);
}

/* What reading it says, with what is behind the anchor or without. */
static atom_status reads(bool all)
{
    float a[N], m[OUTER];
    pool_header h;
    assert_true(pool_file_header(&store, 0, 1, &h));
    atom_status st = pool_file_read(&store, 0, 1, &h, a, all ? m : NULL);
    if (st == ATOM_OK) {
        assert_memory_equal(a, anchor, sizeof a);
        if (all)
            assert_memory_equal(m, momentum, sizeof m);
    }
    return st;
}

static void what_was_changed_is_not_taken(void **state)
{
    (void)state;
    pool_header h;
    assert_int_equal(reads(true), ATOM_OK);
    assert_true(pool_file_header(&store, 0, 1, &h));
    assert_true(h.epoch == 3 && h.version == 9 && h.lineage.byte[0] == 5);
    assert_false(pool_file_header(&store, 0, 0, &h)); /* the other slot */
    for (long at = 0; at < 8 + 3 * 8 + 3 * 32 + 32; at++) {
        flip(at);
        assert_false(pool_file_header(&store, 0, 1, &h));
        flip(at);
    }
    flip(HEAD + 4 * N - 1);
    assert_int_equal(reads(true), ATOM_E_FORMAT);
    assert_int_equal(reads(false), ATOM_E_FORMAT);
    flip(HEAD + 4 * N - 1);
    flip(HEAD + 4 * (N + OUTER) - 1); /* behind the anchor: that alone is right */
    assert_int_equal(reads(true), ATOM_E_FORMAT);
    assert_int_equal(reads(false), ATOM_OK);
    flip(HEAD + 4 * (N + OUTER) - 1);
    assert_int_equal(reads(true), ATOM_OK);
    assert_int_equal(truncate(scratch_path(&place, "fragment-0.1"), HEAD + 4 * (N + OUTER) - 1), 0);
    assert_int_equal(reads(true), ATOM_E_FORMAT);
    store.n[0]++; /* the file is of another model */
    assert_false(pool_file_header(&store, 0, 1, &h));
}

static void what_comes_is_whole_at_its_end(void **state)
{
    (void)state;
    pool_incoming in = {.fd = -1};
    pool_header h = {.epoch = 4, .version = 10, .n = N};
    float a[N], m[OUTER];
    assert_int_equal(pool_incoming_put(&in, &store, 0, 1, 10, 0, N, anchor), ATOM_OK);
    assert_false(pool_file_header(&store, 0, 1, &h)); /* what was there is being written over */
    assert_int_equal(pool_incoming_put(&in, &store, 0, 1, 10, N, OUTER, momentum), ATOM_OK);
    pool_incoming_close(&in);
    assert_false(pool_file_header(&store, 0, 1, &h));
    h = (pool_header){.epoch = 4, .version = 10, .n = N};
    assert_int_equal(pool_file_seal(&store, 0, 1, &h, a, m), ATOM_OK);
    assert_memory_equal(m, momentum, sizeof m);
    assert_int_equal(reads(true), ATOM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_changed_is_not_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(what_comes_is_whole_at_its_end, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
