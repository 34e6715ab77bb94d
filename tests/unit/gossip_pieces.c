/*
 * Files in pieces without a network: every piece proves itself and no other, in any order; a
 * download goes on after anything that a crash may leave; a file that was written to is noticed.
 */
#include "gossip/member/pieces.h"

#include "gossip/trust/identity.h"
#include "tests/lib/gossip_pool.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { BYTES = 5 * GSP_PIECE_BYTES + 1234, PIECES = 6 };

typedef struct place {
    scratch s;
    char file[700], tree[700], aside[700], other_tree[700];
    uint64_t bytes;
    gsp_hash root;
} place;

static uint8_t data[BYTES], buffer[GSP_PIECE_BYTES];

static void begin(place *p)
{
    scratch_open(&p->s);
    snprintf(p->file, sizeof p->file, "%s", scratch_path(&p->s, "0.bin"));
    snprintf(p->tree, sizeof p->tree, "%s", scratch_path(&p->s, "tree"));
    snprintf(p->aside, sizeof p->aside, "%s", scratch_path(&p->s, ".0.bin.part"));
    snprintf(p->other_tree, sizeof p->other_tree, "%s", scratch_path(&p->s, "tree2"));
    for (uint32_t i = 0; i < BYTES; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 24);
    scratch_write(&p->s, "0.bin", data, BYTES);
    test_must(gsp_pieces_make(p->file, p->tree, &p->bytes, &p->root));
    assert_int_equal(p->bytes, BYTES);
}

/* One piece from a whole file into one on its way in. */
static bool carry(gsp_pieces *from, gsp_pieces *to, uint32_t k)
{
    gsp_hash path[GSP_STATE_PATH_MAX];
    uint32_t n_path = 0;
    bool good = false;
    assert_true(gsp_pieces_read(from, k, buffer, path, &n_path));
    test_must(gsp_pieces_put(to, k, buffer, gsp_piece_length(BYTES, k), path, n_path, &good));
    return good;
}

static void comes_in_any_order(void **unused)
{
    (void)unused;
    static const uint32_t order[PIECES] = {5, 0, 3, 1, 4, 2};
    place p;
    gsp_pieces *from = NULL, *to = NULL;
    char *text = NULL;
    uint64_t bytes;
    bool there, same;
    begin(&p);
    test_must(gsp_pieces_open(p.file, p.tree, p.bytes, &p.root, &from));
    test_must(gsp_pieces_begin(p.aside, p.other_tree, p.bytes, &p.root, &to));
    assert_true(gsp_pieces_recheck(to, 0));
    for (uint32_t i = 0; i < PIECES; i++) {
        assert_false(gsp_pieces_has(to, order[i]));
        assert_true(carry(from, to, order[i]));
        assert_true(carry(from, to, order[i])); /* twice is once */
        assert_true(gsp_pieces_has(to, order[i]));
        assert_int_equal(gsp_pieces_here(to), i + 1);
    }
    test_must(gsp_pieces_finish(to, scratch_path(&p.s, "1.bin")));
    gsp_pieces_close(&to);
    test_must(atom_file_read(scratch_path(&p.s, "1.bin"), BYTES, &text, &bytes));
    assert_int_equal(bytes, BYTES);
    assert_memory_equal(text, data, BYTES);
    atom_free(text);
    /* And it can be given from there. */
    test_must(gsp_pieces_check(scratch_path(&p.s, "1.bin"), p.other_tree, p.bytes, &p.root, &there,
                               &same));
    assert_true(there && same);
    test_must(gsp_pieces_open(scratch_path(&p.s, "1.bin"), p.other_tree, p.bytes, &p.root, &to));
    gsp_pieces_close(&to);
    gsp_pieces_close(&from);
    scratch_close(&p.s);
}

static void nothing_wrong_is_taken(void **unused)
{
    (void)unused;
    place p;
    gsp_pieces *from = NULL, *to = NULL;
    gsp_hash path[GSP_STATE_PATH_MAX];
    uint32_t n = 0;
    bool good = true;
    begin(&p);
    test_must(gsp_pieces_open(p.file, p.tree, p.bytes, &p.root, &from));
    test_must(gsp_pieces_begin(p.aside, p.other_tree, p.bytes, &p.root, &to));
    assert_true(gsp_pieces_read(from, 1, buffer, path, &n));
    buffer[77] ^= 1;
    test_must(gsp_pieces_put(to, 1, buffer, GSP_PIECE_BYTES, path, n, &good));
    assert_false(good);
    buffer[77] ^= 1;
    static const struct {
        uint32_t piece, bytes, less;
    } bad[] = {{0, GSP_PIECE_BYTES, 0},          {2, GSP_PIECE_BYTES, 0},
               {5, GSP_PIECE_BYTES, 0},          {PIECES, GSP_PIECE_BYTES, 0},
               {UINT32_MAX, GSP_PIECE_BYTES, 0}, {1, GSP_PIECE_BYTES - 1, 0},
               {1, GSP_PIECE_BYTES, 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        test_must(
            gsp_pieces_put(to, bad[i].piece, buffer, bad[i].bytes, path, n - bad[i].less, &good));
        assert_false(good);
    }
    path[0].byte[3] ^= 1;
    test_must(gsp_pieces_put(to, 1, buffer, GSP_PIECE_BYTES, path, n, &good));
    assert_false(good);
    assert_int_equal(gsp_pieces_here(to), 0);
    assert_false(gsp_pieces_read(from, PIECES, buffer, path, &n));
    gsp_pieces_close(&to);
    gsp_pieces_close(&from);
    scratch_close(&p.s);
}

static void goes_on_after_a_crash(void **unused)
{
    (void)unused;
    place p;
    gsp_pieces *from = NULL, *to = NULL;
    begin(&p);
    test_must(gsp_pieces_open(p.file, p.tree, p.bytes, &p.root, &from));
    test_must(gsp_pieces_begin(p.aside, p.other_tree, p.bytes, &p.root, &to));
    for (uint32_t k = 1; k < 5; k++)
        assert_true(carry(from, to, k));
    gsp_pieces_close(&to);
    /* The disk lost the middle of piece 2 and all from piece 4 on. */
    FILE *f = fopen(p.aside, "r+b");
    assert_non_null(f);
    fseek(f, 2 * GSP_PIECE_BYTES + 999, SEEK_SET);
    fputs("lost", f);
    fclose(f);
    assert_int_equal(truncate(p.aside, 4 * GSP_PIECE_BYTES + 10), 0);
    test_must(gsp_pieces_begin(p.aside, p.other_tree, p.bytes, &p.root, &to));
    assert_int_equal(gsp_pieces_here(to), 0);
    assert_false(gsp_pieces_has(to, 1)); /* not looked at yet */
    assert_false(gsp_pieces_recheck(to, 1));
    assert_int_equal(gsp_pieces_here(to), 1);
    assert_true(gsp_pieces_recheck(to, 100));
    for (uint32_t k = 0; k < PIECES; k++)
        assert_int_equal(gsp_pieces_has(to, k), k == 1 || k == 3);
    gsp_pieces_close(&to);
    /* Of another root: nothing of it counts. */
    gsp_hash other = p.root;
    other.byte[0] ^= 1;
    test_must(gsp_pieces_begin(p.aside, p.other_tree, p.bytes, &other, &to));
    assert_true(gsp_pieces_recheck(to, 100));
    assert_int_equal(gsp_pieces_here(to), 0);
    gsp_pieces_close(&to);
    gsp_pieces_close(&from);
    scratch_close(&p.s);
}

static void a_change_is_noticed(void **unused)
{
    (void)unused;
    place p;
    gsp_pieces *from = NULL;
    gsp_hash path[GSP_STATE_PATH_MAX];
    uint32_t n;
    bool there, same;
    struct stat before;
    begin(&p);
    assert_int_equal(stat(p.file, &before), 0);
    test_must(gsp_pieces_open(p.file, p.tree, p.bytes, &p.root, &from));
    data[3 * GSP_PIECE_BYTES] ^= 1;
    scratch_write(&p.s, "0.bin", data, BYTES);
    assert_true(gsp_pieces_read(from, 2, buffer, path, &n)); /* still right, and given */
    assert_false(gsp_pieces_read(from, 3, buffer, path, &n));
    gsp_pieces_close(&from);
    test_must(gsp_pieces_check(p.file, p.tree, p.bytes, &p.root, &there, &same));
    assert_true(there && !same);
    assert_int_equal(gsp_pieces_open(p.file, p.tree, p.bytes, &p.root, &from), ATOM_E_FORMAT);
    /* Back as it was, at another time: hashed again, and good. */
    data[3 * GSP_PIECE_BYTES] ^= 1;
    scratch_write(&p.s, "0.bin", data, BYTES);
    test_must(gsp_pieces_check(p.file, p.tree, p.bytes, &p.root, &there, &same));
    assert_true(there && same);
    /* A tree that was damaged is made again. */
    FILE *f = fopen(p.tree, "r+b");
    assert_non_null(f);
    fseek(f, -1, SEEK_END);
    fputc(9, f);
    fclose(f);
    assert_int_equal(gsp_pieces_open(p.file, p.tree, p.bytes, &p.root, &from), ATOM_E_FORMAT);
    test_must(gsp_pieces_check(p.file, p.tree, p.bytes, &p.root, &there, &same));
    assert_true(same);
    test_must(gsp_pieces_open(p.file, p.tree, p.bytes, &p.root, &from));
    gsp_pieces_close(&from);
    /* Shorter, gone, empty, a directory. */
    assert_int_equal(truncate(p.file, BYTES - 1), 0);
    test_must(gsp_pieces_check(p.file, p.tree, p.bytes, &p.root, &there, &same));
    assert_true(there && !same);
    unlink(p.file);
    test_must(gsp_pieces_check(p.file, p.tree, p.bytes, &p.root, &there, &same));
    assert_false(there || same);
    scratch_write(&p.s, "0.bin", data, 0);
    assert_int_equal(gsp_pieces_make(p.file, p.tree, &p.bytes, &p.root), ATOM_E_FORMAT);
    assert_int_equal(gsp_pieces_make(p.s.dir, p.tree, &p.bytes, &p.root), ATOM_E_FORMAT);
    scratch_close(&p.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_in_any_order),
        cmocka_unit_test(nothing_wrong_is_taken),
        cmocka_unit_test(goes_on_after_a_crash),
        cmocka_unit_test(a_change_is_noticed),
    };
    test_must(gsp_crypto_start());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
