/* Zip archives and .pt2 files that are not what they should be, and want of memory. The good ones
 * meet PyTorch's own numbers in tests/pt2. */
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/file/hfdir.h"
#include "atom/file/pt2.h"
#include "atom/file/pt2_inner.h"
#include "atom/file/sums.h"
#include "atom/file/zip.h"
#include "tests/scratch.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct archive {
    uint8_t bytes[1 << 19];
    size_t used, directory;
} archive;

static void put(archive *a, uint64_t x, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        a->bytes[a->used++] = (uint8_t)(i < 8 ? x >> (8 * i) : 0);
}

static void put_text(archive *a, const char *text)
{
    memcpy(a->bytes + a->used, text, strlen(text));
    a->used += strlen(text);
}

/* What can be wrong with an entry. */
typedef struct entry {
    const char *name, *data, *local; /* local: its name in front of the data; NULL: the same */
    unsigned flags, method, more;    /* more: bytes that the entry claims and does not have */
    unsigned elsewhere;              /* bytes that only the directory counts */
    uint32_t sum;
} entry;

/* Bytes of an entry's contents: encrypted, it has 12 in front that are none. */
static size_t plain_bytes(const entry *e)
{
    return strlen(e->data) + e->more - (e->flags & 1 ? 12 : 0);
}

static void build(archive *a, const entry *e, size_t n)
{
    size_t at[8];
    memset(a, 0, sizeof *a);
    for (size_t i = 0; i < n; i++) {
        const char *name = e[i].local ? e[i].local : e[i].name;
        at[i] = a->used;
        put(a, 0x04034b50, 4);
        put(a, 0, 2);
        put(a, e[i].flags, 2);
        put(a, e[i].method, 2);
        put(a, 0, 4);
        put(a, e[i].sum, 4);
        put(a, strlen(e[i].data) + e[i].more, 4);
        put(a, plain_bytes(&e[i]), 4);
        put(a, strlen(name), 2);
        put(a, 0, 2);
        put_text(a, name);
        put_text(a, e[i].data);
    }
    a->directory = a->used;
    for (size_t i = 0; i < n; i++) {
        put(a, 0x02014b50, 4);
        put(a, 0, 4);
        put(a, e[i].flags, 2);
        put(a, e[i].method, 2);
        put(a, 0, 4);
        put(a, e[i].sum, 4);
        put(a, strlen(e[i].data) + e[i].more + e[i].elsewhere, 4);
        put(a, plain_bytes(&e[i]) + e[i].elsewhere, 4);
        put(a, strlen(e[i].name), 2);
        put(a, 0, 12);
        put(a, at[i], 4);
        put_text(a, e[i].name);
    }
    size_t bytes = a->used - a->directory;
    put(a, 0x06054b50, 4);
    put(a, 0, 4);
    put(a, n, 2);
    put(a, n, 2);
    put(a, bytes, 4);
    put(a, a->directory, 4);
    put(a, 0, 2);
}

static scratch place;

static int open_place(void **state)
{
    (void)state;
    scratch_open(&place);
    return 0;
}

static int close_place(void **state)
{
    (void)state;
    scratch_close(&place);
    return 0;
}

static void write_archive(const char *path, const archive *a)
{
    assert_int_equal(atom_file_write(path, a->bytes, a->used), ATOM_OK);
}

static void refused(const entry *e, size_t n, atom_status status, const char *why)
{
    const char *path = scratch_path(&place, "bad.pt2");
    archive *a = atom_alloc(1, sizeof *a);
    file_zip *z = NULL;
    build(a, e, n);
    write_archive(path, a);
    assert_int_equal(file_zip_open(path, &z), status);
    assert_null(z);
    assert_non_null(strstr(atom_fail_message(), why));
    assert_non_null(strstr(atom_fail_message(), "bad.pt2"));
    atom_free(a);
}

static void test_zip_reads_entries(void **state)
{
    const entry e[] = {{.name = "b/x", .data = "hello"}, {.name = "a", .data = ""}};
    const char *path = scratch_path(&place, "good.pt2");
    char *text = NULL, two[2];
    archive *a = atom_alloc(1, sizeof *a);
    file_zip *z = NULL;
    (void)state;
    build(a, e, 2);
    write_archive(path, a);
    assert_true(file_zip_is_file(path));
    assert_int_equal(file_zip_open(path, &z), ATOM_OK);
    assert_int_equal(z->n_entries, 2);
    const file_zip_entry *x = file_zip_find(z, "b/x");
    assert_non_null(x);
    assert_null(file_zip_find(z, "x"));
    assert_int_equal(file_zip_read(z, x, 1, 2, two), ATOM_OK);
    assert_memory_equal(two, "el", 2);
    assert_int_equal(file_zip_load(z, x, 5, &text), ATOM_OK);
    assert_string_equal(text, "hello");
    atom_free(text);
    assert_int_equal(file_zip_load(z, x, 4, &text), ATOM_E_FORMAT);
    file_zip_close(&z);
    atom_free(a);
}

/* By whichever way the bytes come, and only where anything has a checksum at all. */
static void test_zip_compares_checksums(void **state)
{
    const uint32_t right = file_sum_add(0, "hello", 5), world = file_sum_add(0, "world", 5);
    const struct {
        uint32_t sum, other;
        atom_status st;
    } cases[] = {{right, world, ATOM_OK},
                 {0, 0, ATOM_OK}, /* PyTorch was told to write none */
                 {right ^ 1, world, ATOM_E_FORMAT},
                 {0, world, ATOM_E_FORMAT}};
    const char *path = scratch_path(&place, "sums.pt2");
    archive *a = atom_alloc(1, sizeof *a);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const entry e[] = {{.name = "a", .data = "hello", .sum = cases[i].sum},
                           {.name = "b", .data = "world", .sum = cases[i].other}};
        char *text = NULL, some[5];
        file_zip *z = NULL;
        build(a, e, 2);
        write_archive(path, a);
        assert_int_equal(file_zip_open(path, &z), ATOM_OK);
        const file_zip_entry *x = file_zip_find(z, "a"), *y = file_zip_find(z, "b");
        for (int again = 0; again < 2; again++) {
            assert_int_equal(file_zip_read(z, y, 3, 2, some), ATOM_OK);
            assert_int_equal(file_zip_read(z, x, 1, 2, some), cases[i].st);
            if (cases[i].st != ATOM_OK)
                assert_non_null(strstr(atom_fail_message(), "sums.pt2: entry 'a' is damaged"));
            assert_int_equal(file_zip_read(z, x, 0, 5, some), cases[i].st);
            assert_int_equal(file_zip_load(z, x, 5, &text), cases[i].st);
            atom_free(text);
            text = NULL;
        }
        file_zip_close(&z);
    }
    atom_free(a);
}

/* An entry that is summed in pieces, and behind it one of no bytes, whose sum is 0: a byte far from what is read. */
static void test_zip_compares_all_of_an_entry(void **state)
{
    enum { BYTES = 300000 };
    const char *path = scratch_path(&place, "pieces.pt2");
    archive *a = atom_alloc(1, sizeof *a);
    char *data = atom_alloc(BYTES + 1, 1), some[5];
    (void)state;
    for (int i = 0; i < BYTES; i++)
        data[i] = (char)('a' + i % 23);
    const entry e[] = {{.name = "a", .data = data, .sum = file_sum_add(0, data, BYTES)},
                       {.name = "b", .data = ""}};
    for (int damaged = 0; damaged < 2; damaged++) {
        file_zip *z = NULL;
        build(a, e, 2);
        uint8_t *far = (uint8_t *)memmem(a->bytes, a->used, data, BYTES) + BYTES - 9;
        *far ^= damaged ? 4 : 0;
        write_archive(path, a);
        assert_int_equal(file_zip_open(path, &z), ATOM_OK);
        const file_zip_entry *x = file_zip_find(z, "a");
        assert_int_equal(file_zip_read(z, x, 0, 5, some), damaged ? ATOM_E_FORMAT : ATOM_OK);
        assert_int_equal(x->seen, !damaged); /* once is enough */
        file_zip_close(&z);
    }
    atom_free(data);
    atom_free(a);
}

/* The archive's own comment comes last, as long as its end says. */
static void test_zip_with_a_comment(void **state)
{
    const entry e[] = {{.name = "a", .data = "hello"}};
    const char *path = scratch_path(&place, "comment.pt2");
    char *text = NULL;
    archive *a = atom_alloc(1, sizeof *a);
    file_zip *z = NULL;
    (void)state;
    for (unsigned said = 0; said < 9; said++) {
        build(a, e, 1);
        a->used -= 2;
        put(a, said, 2);
        put_text(a, "12345");
        write_archive(path, a);
        assert_int_equal(file_zip_open(path, &z), said == 5 ? ATOM_OK : ATOM_E_FORMAT);
        if (said != 5)
            continue;
        assert_int_equal(file_zip_load(z, file_zip_find(z, "a"), 5, &text), ATOM_OK);
        assert_string_equal(text, "hello");
        atom_free(text);
        int fd = open(path, O_RDONLY);
        uint64_t at = 0;
        assert_int_equal(file_zip_places(z, fd, a->used, &at), ATOM_OK);
        assert_memory_equal(a->bytes + at, "hello", 5);
        close(fd);
        file_zip_close(&z);
    }
    atom_free(a);
}

static void test_zip_refuses(void **state)
{
    (void)state;
    refused(&(entry){.name = "a", .data = "x", .method = 8}, 1, ATOM_E_UNSUPPORTED, "compressed");
    refused(&(entry){.name = "a", .data = "twelve bytesx", .flags = 1}, 1, ATOM_E_UNSUPPORTED,
            "encrypted");
    refused(&(entry){.name = "a", .data = "x", .local = "b"}, 1, ATOM_E_FORMAT, "inconsistent");
    refused(&(entry){.name = "a", .data = "x", .local = "ab"}, 1, ATOM_E_FORMAT, "inconsistent");
    refused(&(entry){.name = "a", .data = "x", .elsewhere = 1}, 1, ATOM_E_FORMAT,
            "not a complete zip");
    refused(&(entry){.name = "a", .data = "x", .more = 100}, 1, ATOM_E_FORMAT,
            "not a complete zip");
    refused(&(entry){.name = "", .data = "x"}, 1, ATOM_E_FORMAT, "an entry has no name");
    refused(&(entry){.name = "a", .data = "x", .local = "b"}, 1, ATOM_E_FORMAT,
            "copy it again, or repack it with zip -0");
    const entry twice[] = {{.name = "a", .data = "x"}, {.name = "a", .data = "y"}};
    refused(twice, 2, ATOM_E_FORMAT, "the same name");
    const entry over[] = {{.name = "a", .data = "xyz", .more = 1}, {.name = "b", .data = "y"}};
    refused(over, 2, ATOM_E_FORMAT, "overlap");
}

/* What libzip would read whole first is refused by what its end says. */
static void test_zip_refuses_large_directories(void **state)
{
    static const struct {
        uint64_t n, bytes;
        const char *why;
    } cases[] = {{2000000, 92000000, "2000000 entries are more than 262144"},
                 {2, (1 << 27) + 1, "a directory of 134217729 bytes is larger than 134217728"}};
    const entry e[] = {{.name = "a", .data = "hello"}};
    const char *path = scratch_path(&place, "large.pt2");
    archive *a = atom_alloc(1, sizeof *a);
    file_zip *z = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        build(a, e, 1);
        size_t end64 = a->used -= 22;
        put(a, 0x06064b50, 4);
        put(a, 44, 8);
        put(a, 0, 12);
        put(a, cases[i].n, 8);
        put(a, cases[i].n, 8);
        put(a, cases[i].bytes, 8);
        put(a, a->directory, 8);
        put(a, 0x07064b50, 4);
        put(a, 0, 4);
        put(a, end64, 8);
        put(a, 1, 4);
        put(a, 0x06054b50, 4);
        put(a, 0, 4);
        put(a, UINT64_MAX, 8);
        put(a, UINT64_MAX, 4);
        put(a, 0, 2);
        write_archive(path, a);
        assert_int_equal(file_zip_open(path, &z), ATOM_E_FORMAT);
        assert_null(z);
        assert_non_null(strstr(atom_fail_message(), cases[i].why));
    }
    atom_free(a);
}

/* Names are bytes, whatever code page they may be in. */
static void test_zip_keeps_names(void **state)
{
    const entry e[] = {{.name = "caf\x82", .data = "hello"}};
    const char *path = scratch_path(&place, "names.pt2");
    archive *a = atom_alloc(1, sizeof *a);
    file_zip *z = NULL;
    (void)state;
    build(a, e, 1);
    write_archive(path, a);
    assert_int_equal(file_zip_open(path, &z), ATOM_OK);
    assert_string_equal(z->entries[0].name, e[0].name);
    assert_null(file_zip_find(z, "caf\xc3\xa9")); /* what CP437 makes of it */
    file_zip_close(&z);
    atom_free(a);
}

/* Every prefix of an archive is refused. */
static void test_zip_refuses_parts(void **state)
{
    const entry e[] = {{.name = "a", .data = "hello"}, {.name = "b", .data = "world"}};
    const char *path = scratch_path(&place, "part.pt2");
    archive *a = atom_alloc(1, sizeof *a);
    file_zip *z = NULL;
    (void)state;
    build(a, e, 2);
    for (size_t n = a->used; n-- > 0;) {
        a->used = n;
        write_archive(path, a);
        assert_int_equal(file_zip_open(path, &z), ATOM_E_FORMAT);
        assert_null(z);
    }
    atom_free(a);
}

static void test_pt2_needs_a_program(void **state)
{
    const entry none[] = {{.name = "a/data/x", .data = "1"}};
    const entry broken[] = {{.name = "a/models/m.json", .data = "{"},
                            {.name = "a/data/weights/m_weights_config.json", .data = "{}"}};
    const entry empty[] = {{.name = "a/models/m.json", .data = "{}"},
                           {.name = "a/data/weights/m_weights_config.json", .data = "{}"}};
    const struct {
        const entry *e;
        size_t n;
        const char *why;
    } cases[] = {
        {none, 1, "no models/*.json"}, {broken, 2, "m.json:1"}, {empty, 2, "no graph_module"}};
    const char *path = scratch_path(&place, "model.pt2");
    archive *a = atom_alloc(1, sizeof *a);
    file_model m;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        build(a, cases[i].e, cases[i].n);
        write_archive(path, a);
        assert_int_equal(file_model_resolve(path, &m), ATOM_E_FORMAT);
        assert_non_null(strstr(atom_fail_message(), cases[i].why));
    }
    atom_free(a);
}

/* The three parts of a product's columns, also as heads, are changed one without another; a part and the whole are not. */
static void test_views_overlap(void **state)
{
    (void)state;
    const int64_t sizes[] = {2, 5, 12}, heads[] = {2, 5, 2, 2};
    pt2_view whole, part[3], q;
    assert_true(pt2_view_packed(3, sizes, &whole));
    for (int i = 0; i < 3; i++) {
        part[i] = whole;
        assert_true(pt2_view_slice(&part[i], 2, 4 * i, 4 * i + 4, 1));
        assert_true(pt2_views_overlap(&part[i], &whole) && pt2_views_overlap(&whole, &part[i]));
    }
    assert_true(pt2_view_reshape(&part[0], 4, heads, &q));
    pt2_view_swap(&q, 1, 2);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++)
            assert_int_equal(pt2_views_overlap(&part[i], &part[k]), i == k);
    assert_true(pt2_views_overlap(&q, &part[0]));
    assert_false(pt2_views_overlap(&q, &part[1]) || pt2_views_overlap(&part[1], &q));
    pt2_view odd = whole, even = whole;
    assert_true(pt2_view_slice(&odd, 2, 1, 12, 2) && pt2_view_slice(&even, 2, 0, 12, 2));
    assert_false(pt2_views_overlap(&odd, &even));
    assert_true(pt2_views_overlap(&odd, &part[2]));
}

/* a & b is called __and__, and changes nothing. */
static void test_names_of_what_changes(void **state)
{
    static const struct {
        const char *target;
        bool changes;
    } cases[] = {{"torch.ops.aten.add_.Tensor", true},
                 {"torch.ops.aten.masked_fill_.Scalar", true},
                 {"torch.ops.aten.add.Tensor", false},
                 {"torch.ops.aten.__and__.Tensor", false},
                 {"torch.ops.aten._unsafe_view.default", false},
                 {"_operator.getitem", false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *node = json_pack("{s:s}", "target", cases[i].target);
        assert_int_equal(pt2_in_place(node), cases[i].changes);
        json_decref(node);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zip_reads_entries),
        cmocka_unit_test(test_names_of_what_changes),
        cmocka_unit_test(test_zip_compares_checksums),
        cmocka_unit_test(test_zip_compares_all_of_an_entry),
        cmocka_unit_test(test_zip_with_a_comment),
        cmocka_unit_test(test_zip_refuses),
        cmocka_unit_test(test_zip_refuses_large_directories),
        cmocka_unit_test(test_zip_keeps_names),
        cmocka_unit_test(test_zip_refuses_parts),
        cmocka_unit_test(test_pt2_needs_a_program),
        cmocka_unit_test(test_views_overlap),
    };
    return cmocka_run_group_tests(tests, open_place, close_place);
}
