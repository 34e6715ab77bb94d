/* Files of torch.save, made here byte by byte, both as zip and as before PyTorch 1.6: which numbers a tensor is, and
 * what is refused. That PyTorch's own files are read shows tests/oracle/torchfile_oracle.py. */
#include "atom/file/sums.h"
#include "atom/file/torchfile.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <unistd.h>

typedef struct bytes {
    uint8_t at[4096];
    size_t n;
} bytes;

static void put(bytes *b, const void *data, size_t n)
{
    assert_true(b->n + n <= sizeof b->at);
    memcpy(b->at + b->n, data, n);
    b->n += n;
}

#define PUT(b, text) put(b, text, sizeof text - 1)

static void put_uint(bytes *b, uint64_t x, size_t n)
{
    put(b, &x, n);
}

/* A text of a pickle. */
static void put_text(bytes *b, const char *text)
{
    PUT(b, "X");
    put_uint(b, strlen(text), 4);
    put(b, text, strlen(text));
}

static void put_number(bytes *b, uint64_t x)
{
    PUT(b, "K");
    put_uint(b, x, 1);
}

typedef struct tensor {
    const char *name;
    uint8_t offset, dims[2], strides[2];
    const char *key; /* of its storage; NULL: "0" */
} tensor;

/* The state_dict: tensors of one storage of so many numbers. old: as before 1.6. */
static void put_state(bytes *b, const tensor *t, size_t n, uint8_t elements, bool old)
{
    PUT(b, "\x80\x02}");
    for (size_t i = 0; i < n; i++) {
        put_text(b, t[i].name);
        PUT(b, "ctorch._utils\n_rebuild_tensor_v2\n((");
        put_text(b, "storage");
        PUT(b, "ctorch\nFloatStorage\n");
        put_text(b, t[i].key ? t[i].key : "0");
        put_text(b, "cpu");
        put_number(b, elements);
        if (old)
            PUT(b, "N");
        PUT(b, "tQ");
        put_number(b, t[i].offset);
        for (int k = 0; k < 2; k++) {
            put_number(b, k ? t[i].strides[0] : t[i].dims[0]);
            put_number(b, k ? t[i].strides[1] : t[i].dims[1]);
            PUT(b, "\x86");
        }
        PUT(b, "\x89}tRs");
    }
    PUT(b, ".");
}

/* first, first + 1, ... */
static void put_numbers(bytes *b, uint8_t first, uint8_t elements)
{
    for (uint8_t i = 0; i < elements; i++) {
        float x = (float)(first + i);
        put(b, &x, sizeof x);
    }
}

static void make_old(bytes *b, const tensor *t, size_t n, uint8_t elements)
{
    PUT(b, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.");
    PUT(b, "\x80\x02}");
    put_text(b, "little_endian");
    PUT(b, "\x88s.");
    put_state(b, t, n, elements, true);
    PUT(b, "\x80\x02](");
    put_text(b, "0");
    if (t[n - 1].key)
        put_text(b, t[n - 1].key);
    PUT(b, "e.");
    for (int k = 0; k < (t[n - 1].key ? 2 : 1); k++) {
        put_uint(b, elements, 8);
        put_numbers(b, (uint8_t)(100 * k), elements);
    }
}

/* How checksums are written: not at all, in both headers, or as PyTorch does it, in the directory and behind the data. */
enum { NO_SUMS, SUMS, SUMS_BEHIND };

/* One stored entry: its local header, and its line of the directory. */
static void put_entry(bytes *b, bytes *directory, const char *name, const bytes *data, int sums)
{
    uint64_t at = b->n, sum = sums == NO_SUMS ? 0 : file_sum_add(0, data->at, data->n);
    for (int central = 0; central < 2; central++) {
        bytes *to = central ? directory : b;
        if (central)
            PUT(to, "PK\x01\x02\x14\0");
        else
            PUT(to, "PK\x03\x04");
        PUT(to, "\x14\0");
        put_uint(to, sums == SUMS_BEHIND ? 8 : 0, 2); /* flags */
        PUT(to, "\0\0\0\0\x21\0");                    /* stored, 1980 */
        put_uint(to, sums == SUMS_BEHIND && !central ? 0 : sum, 4);
        put_uint(to, sums == SUMS_BEHIND && !central ? 0 : data->n, 4);
        put_uint(to, sums == SUMS_BEHIND && !central ? 0 : data->n, 4);
        put_uint(to, strlen(name), 2);
        put_uint(to, 0, central ? 8 : 2); /* extra field, comment, disk, attributes */
        if (central) {
            put_uint(to, 0, 4);
            put_uint(to, at, 4);
        }
        put(to, name, strlen(name));
    }
    put(b, data->at, data->n);
    if (sums != SUMS_BEHIND)
        return;
    PUT(b, "PK\x07\x08");
    put_uint(b, sum, 4);
    put_uint(b, data->n, 4);
    put_uint(b, data->n, 4);
}

static void make_summed(bytes *b, const tensor *t, size_t n, uint8_t elements, const char *order,
                        uint8_t stored, int sums)
{
    bytes state = {.n = 0}, numbers = {.n = 0}, byte_order = {.n = 0}, directory = {.n = 0};
    put_state(&state, t, n, elements, false);
    put_numbers(&numbers, 0, stored);
    put(&byte_order, order, strlen(order));
    put_entry(b, &directory, "m/data.pkl", &state, sums);
    put_entry(b, &directory, "m/byteorder", &byte_order, sums);
    put_entry(b, &directory, "m/data/0", &numbers, sums);
    uint64_t at = b->n;
    put(b, directory.at, directory.n);
    PUT(b, "PK\x05\x06\0\0\0\0");
    put_uint(b, 3, 2);
    put_uint(b, 3, 2);
    put_uint(b, directory.n, 4);
    put_uint(b, at, 4);
    put_uint(b, 0, 2);
}

static void make_zip(bytes *b, const tensor *t, size_t n, uint8_t elements, const char *order,
                     uint8_t stored)
{
    make_summed(b, t, n, elements, order, stored, NO_SUMS);
}

static const tensor two[] = {{"a", 0, {2, 3}, {3, 1}, NULL}, {"b", 6, {1, 2}, {9, 1}, NULL}};

static void numbers_of_tensors(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    for (int old = 0; old < 2; old++) {
        bytes b = {.n = 0};
        file_safetensors *f = NULL;
        float x[6];
        if (old)
            make_old(&b, two, 2, 8);
        else
            make_zip(&b, two, 2, 8, "little", 8);
        atom_status st = file_torch_open(scratch_write(&s, "m.bin", b.at, b.n), &f);
        if (st != ATOM_OK)
            fail_msg("%s", atom_fail_message());
        assert_int_equal(f->n_tensors, 2);
        const file_tensor *a = file_st_find(f, "a"), *c = file_st_find(f, "b");
        assert_true(a && a->rank == 2 && a->dims[0] == 2 && a->dims[1] == 3);
        assert_int_equal(file_st_read_f32(f, a, 0, 6, x), ATOM_OK);
        for (int i = 0; i < 6; i++)
            assert_true(x[i] == (float)i);
        assert_non_null(c);
        assert_int_equal(file_st_read_f32(f, c, 0, 2, x), ATOM_OK);
        assert_true(x[0] == 6 && x[1] == 7);
        file_st_close(&f);
    }
    scratch_close(&s);
}

static void storages_behind_each_other(void **state)
{
    (void)state;
    const tensor apart[] = {two[0], {"c", 1, {1, 2}, {2, 1}, "1"}};
    scratch s;
    bytes b = {.n = 0};
    file_safetensors *f = NULL;
    float x[2];
    scratch_open(&s);
    make_old(&b, apart, 2, 8);
    assert_int_equal(file_torch_open(scratch_write(&s, "m.bin", b.at, b.n), &f), ATOM_OK);
    assert_int_equal(file_st_read_f32(f, file_st_find(f, "c"), 0, 2, x), ATOM_OK);
    assert_true(x[0] == 101 && x[1] == 102);
    file_st_close(&f);
    scratch_close(&s);
}

static void refused(scratch *s, const bytes *b, atom_status want, const char *says)
{
    file_safetensors *f = NULL;
    assert_int_equal(file_torch_open(scratch_write(s, "m.bin", b->at, b->n), &f), want);
    if (!strstr(atom_fail_message(), says) || !strstr(atom_fail_message(), "m.bin"))
        fail_msg("%s", atom_fail_message());
    assert_null(f);
}

static void what_is_refused(void **state)
{
    (void)state;
    static const struct {
        tensor t;
        atom_status want;
        const char *says;
    } cases[] = {
        {{"a", 0, {3, 2}, {1, 3}, NULL}, ATOM_E_UNSUPPORTED, "'a' is not contiguous"},
        {{"a", 3, {2, 3}, {3, 1}, NULL}, ATOM_E_FORMAT, "'a' lies outside its storage"},
        {{"a", 9, {1, 1}, {1, 1}, NULL}, ATOM_E_FORMAT, "'a' lies outside its storage"},
    };
    scratch s;
    scratch_open(&s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bytes zip = {.n = 0}, old = {.n = 0};
        make_zip(&zip, &cases[i].t, 1, 8, "little", 8);
        refused(&s, &zip, cases[i].want, cases[i].says);
        make_old(&old, &cases[i].t, 1, 8);
        refused(&s, &old, cases[i].want, cases[i].says);
    }
    bytes big = {.n = 0}, little = {.n = 0}, twice = {.n = 0};
    make_zip(&big, two, 2, 8, "big", 8);
    refused(&s, &big, ATOM_E_UNSUPPORTED, "big-endian");
    make_zip(&little, two, 2, 8, "little", 7);
    refused(&s, &little, ATOM_E_FORMAT, "storage 0 is missing or too short");
    make_zip(&twice, (const tensor[]){two[0], {"a", 6, {1, 2}, {2, 1}, NULL}}, 2, 8, "little", 8);
    refused(&s, &twice, ATOM_E_FORMAT, "'a': appears twice");
    scratch_close(&s);
}

/* Where these bytes begin in a file. */
static size_t find(const bytes *b, const void *what, size_t n)
{
    uint8_t *at = memmem(b->at, b->n, what, n);
    assert_non_null(at);
    return (size_t)(at - b->at);
}

/* A copy of the file with another byte at that place. */
static const char *changed(scratch *s, const bytes *b, size_t at)
{
    bytes other = *b;
    other.at[at] ^= 0x10;
    return scratch_write(s, "m.bin", other.at, other.n);
}

static void is_damage_of(const char *entry)
{
    if (!strstr(atom_fail_message(), entry) || !strstr(atom_fail_message(), "m.bin") ||
        !strstr(atom_fail_message(), "damaged"))
        fail_msg("%s", atom_fail_message());
}

/* A byte of the storage is another: whoever reads from it is told, at its end or, out of order, at once. */
static void damaged_storages(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    for (int sums = SUMS; sums <= SUMS_BEHIND; sums++) {
        bytes b = {.n = 0};
        float x[6], one = 1, seven = 7;
        file_safetensors *f = NULL;
        make_summed(&b, two, 2, 9, "little", 9, sums); /* the last number is of no tensor */
        for (int tail = 0; tail < 2; tail++) {
            size_t at = find(&b, tail ? &seven : &one, 4) + (tail ? 4 : 2);
            for (int order = 0; order < 2; order++) {
                assert_int_equal(file_torch_open(changed(&s, &b, at), &f), ATOM_OK);
                const file_tensor *t = file_st_find(f, order ? "b" : "a");
                assert_int_equal(file_st_read_f32(f, t, 0, 2, x), ATOM_E_FORMAT);
                is_damage_of("'m/data/0'");
                assert_int_equal(file_st_read_f32(f, t, 0, 2, x), ATOM_E_FORMAT); /* and stays */
                file_st_close(&f);
            }
        }
        bytes whole = {.n = 0};
        make_summed(&whole, two, 2, 8, "little", 8, sums);
        assert_int_equal(file_torch_open(changed(&s, &whole, find(&whole, &one, 4) + 2), &f),
                         ATOM_OK);
        assert_int_equal(file_st_read_f32(f, file_st_find(f, "a"), 0, 6, x), ATOM_OK);
        assert_int_equal(file_st_read_f32(f, file_st_find(f, "b"), 0, 2, x), ATOM_E_FORMAT);
        is_damage_of("'m/data/0'");
        file_st_close(&f);
        for (int again = 0; again < 2; again++) { /* what is whole is read in any order */
            assert_int_equal(file_torch_open(scratch_write(&s, "m.bin", whole.at, whole.n), &f),
                             ATOM_OK);
            for (int i = 0; i < 6; i++)
                assert_int_equal(
                    file_st_read_f32(f, file_st_find(f, (i + again) % 2 ? "a" : "b"), 0, 2, x),
                    ATOM_OK);
            file_st_close(&f);
        }
    }
    scratch_close(&s);
}

/* A run that is summed in pieces; what lies behind it is of no run. */
static void runs_of_many_pieces(void **state)
{
    enum { FIRST = 7, BYTES = 300000 };
    (void)state;
    scratch s;
    scratch_open(&s);
    uint8_t *data = atom_alloc(FIRST + BYTES + 1, 1);
    for (int i = 0; i < FIRST + BYTES; i++)
        data[i] = (uint8_t)(i * 31 >> 3);
    const char *path = scratch_write(&s, "m.bin", data, FIRST + BYTES + 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    for (uint32_t wrong = 0; wrong < 2; wrong++) {
        char name[] = "m/data/0";
        file_sum one = {.name = name,
                        .first = FIRST,
                        .bytes = BYTES,
                        .wanted = file_sum_add(0, data + FIRST, BYTES) + wrong};
        file_sums sums = {.all = &one, .n = 1};
        const uint64_t behind = FIRST + BYTES;
        assert_int_equal(file_sums_see(&sums, path, fd, behind, 1, data + behind), ATOM_OK);
        assert_int_equal(file_sums_see(&sums, path, fd, FIRST - 1, 1, data), ATOM_OK);
        assert_false(one.done);
        assert_int_equal(file_sums_see(&sums, path, fd, FIRST + 100, 10, data + FIRST + 100),
                         wrong ? ATOM_E_FORMAT : ATOM_OK);
        assert_int_equal(one.done, !wrong);
    }
    close(fd);
    atom_free(data);
    scratch_close(&s);
}

static void damaged_entries(void **state)
{
    (void)state;
    scratch s;
    bytes b = {.n = 0};
    file_safetensors *f = NULL;
    scratch_open(&s);
    make_summed(&b, two, 2, 8, "little", 8, SUMS_BEHIND);
    assert_int_equal(file_torch_open(changed(&s, &b, find(&b, "X\1\0\0\0a", 6) + 5), &f),
                     ATOM_E_FORMAT);
    is_damage_of("'m/data.pkl'");
    assert_int_equal(file_torch_open(changed(&s, &b, find(&b, "little", 6)), &f), ATOM_E_FORMAT);
    is_damage_of("'m/byteorder'");
    assert_null(f);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_tensors),         cmocka_unit_test(runs_of_many_pieces),
        cmocka_unit_test(damaged_storages),           cmocka_unit_test(damaged_entries),
        cmocka_unit_test(storages_behind_each_other), cmocka_unit_test(what_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
