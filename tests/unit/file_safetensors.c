/* safetensors: golden bytes, order, every refusal, conversions, damage, full disks, no memory. */
#include "atom/file/safetensors.h"
#include "tests/lib/through.h"
#include "tests/scratch.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

/* The disk is full after this many more bytes; our own write() stands in for the C library's. */
static int64_t disk_left = INT64_MAX;
static bool disk_splits; /* writes are cut short at odd places */

ssize_t write(int fd, const void *data, size_t bytes)
{
    if (fd > 2) {
        if (disk_left == 0) {
            errno = ENOSPC;
            return -1;
        }
        if (disk_splits && bytes > 3)
            bytes = bytes / 2 + 1;
        if ((int64_t)bytes > disk_left)
            bytes = (size_t)disk_left;
        disk_left -= (int64_t)bytes;
    }
    return syscall(SYS_write, fd, data, bytes);
}

static void write_example(const char *path)
{
    static const uint8_t data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    file_st_writer *w = NULL;
    uint32_t i = 9;
    assert_int_equal(file_st_create(path, &w), ATOM_OK);
    assert_int_equal(file_st_declare(w, "w", FILE_BF16, 2, (uint64_t[]){2, 2}), ATOM_OK);
    assert_int_equal(file_st_begin(w), ATOM_OK);
    assert_true(file_st_next(w, &i));
    assert_int_equal(i, 0);
    assert_int_equal(file_st_write(w, data, 3), ATOM_OK);
    assert_int_equal(file_st_write(w, data + 3, 5), ATOM_OK);
    assert_false(file_st_next(w, &i));
    assert_int_equal(file_st_finish(w), ATOM_OK);
    file_st_writer_close(&w);
    assert_null(w);
}

/* docs/design/files.md#safetensors, byte for byte. */
static void golden(void **state)
{
    static const char expected[] =
        "\x58\0\0\0\0\0\0\0"
        "{\"__metadata__\":{\"format\":\"pt\"},\"w\":{\"dtype\":\"BF16\",\"shape\":[2,2],"
        "\"data_offsets\":[0,8]}}\1\2\3\4\5\6\7\10";
    scratch s;
    char *data = NULL;
    uint64_t bytes = 0;
    (void)state;
    const char *path = scratch_path(scratch_open(&s), "golden.safetensors");
    write_example(path);
    assert_int_equal(atom_file_read(path, 1000, &data, &bytes), ATOM_OK);
    assert_int_equal(bytes, 104);
    assert_memory_equal(data, expected, 104);
    atom_free(data);
    scratch_close(&s);
}

static void order_and_round_trip(void **state)
{
    static const struct {
        const char *name;
        file_dtype dtype;
        uint32_t rank;
        uint64_t dims[3];
        uint64_t bytes;
    } tensors[] = {
        {"b", FILE_F32, 2, {3, 5}, 60},    {"mask", FILE_BOOL, 1, {7}, 7},
        {"a", FILE_F32, 0, {0}, 4},        {"half", FILE_F16, 1, {3}, 6},
        {"empty", FILE_F32, 2, {0, 4}, 0}, {"\xc3\xa9\"\\\n", FILE_I64, 1, {1}, 8},
        {"none", FILE_U8, 1, {0}, 0},
    };
    static const uint32_t order[] = {5, 2, 0, 4, 3, 6, 1};
    enum { N = 7 };
    scratch s;
    file_st_writer *w = NULL;
    file_safetensors *f = NULL;
    uint8_t data[64], got[64];
    (void)state;
    const char *path = scratch_path(scratch_open(&s), "a.safetensors");
    disk_splits = true;
    assert_int_equal(file_st_create(path, &w), ATOM_OK);
    for (int i = 0; i < N; i++)
        assert_int_equal(
            file_st_declare(w, tensors[i].name, tensors[i].dtype, tensors[i].rank, tensors[i].dims),
            ATOM_OK);
    assert_int_equal(file_st_begin(w), ATOM_OK);
    for (uint32_t i, turn = 0; file_st_next(w, &i); turn++) {
        while (tensors[order[turn]].bytes == 0)
            turn++;
        assert_int_equal(i, order[turn]);
        memset(data, (int)i + 1, sizeof data);
        assert_int_equal(file_st_write(w, data, tensors[i].bytes), ATOM_OK);
    }
    assert_int_equal(file_st_finish(w), ATOM_OK);
    disk_splits = false;
    file_st_writer_close(&w);

    assert_int_equal(file_st_open(path, &f), ATOM_OK);
    assert_int_equal(f->n_tensors, N);
    assert_int_equal(f->header_bytes % 8, 0);
    assert_string_equal(file_st_metadata(f, "format"), "pt");
    assert_null(file_st_metadata(f, "nothing"));
    assert_null(file_st_find(f, "B"));
    for (uint32_t i = 0; i < N; i++) {
        const file_tensor *t = file_st_find(f, tensors[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, tensors[i].dtype);
        assert_int_equal(t->rank, tensors[i].rank);
        assert_int_equal(t->bytes, tensors[i].bytes);
        for (uint32_t d = 0; d < t->rank; d++)
            assert_int_equal(t->dims[d], tensors[i].dims[d]);
        assert_int_equal(file_st_read(f, t, 0, t->bytes, got), ATOM_OK);
        memset(data, (int)i + 1, sizeof data);
        assert_memory_equal(got, data, t->bytes);
    }
    file_st_close(&f);
    assert_null(f);
    scratch_close(&s);
}

static void converts(void **state)
{
    enum { N = 9001 }; /* more than one buffer */
    static uint16_t half[N];
    static float got[N];
    scratch s;
    file_st_writer *w = NULL;
    file_safetensors *f = NULL;
    uint32_t i;
    (void)state;
    const char *path = scratch_path(scratch_open(&s), "h.safetensors");
    for (int k = 0; k < N; k++)
        half[k] = (uint16_t)(k * 7);
    assert_int_equal(file_st_create(path, &w), ATOM_OK);
    file_st_into(w, &through_keep);
    assert_int_equal(file_st_declare(w, "bf", FILE_BF16, 1, (uint64_t[]){N}), ATOM_OK);
    assert_int_equal(file_st_declare(w, "fp", FILE_F16, 1, (uint64_t[]){N}), ATOM_OK);
    assert_int_equal(file_st_declare(w, "q", FILE_F8_E4M3, 1, (uint64_t[]){1}), ATOM_OK);
    assert_int_equal(file_st_declare(w, "i", FILE_I16, 1, (uint64_t[]){1}), ATOM_OK);
    assert_int_equal(file_st_begin(w), ATOM_OK);
    while (file_st_next(w, &i))
        assert_int_equal(file_st_write(w, half, i < 2 ? sizeof half : i == 2 ? 1 : 2), ATOM_OK);
    assert_int_equal(file_st_finish(w), ATOM_OK);
    assert_true(through_writes > 4 && through_finishes == 1);
    file_st_writer_close(&w);
    assert_int_equal(file_st_open(path, &f), ATOM_OK);
    for (int way = 0; way < 2; way++) {
        if (way)
            assert_int_equal(file_st_through(f, &through_pieces), ATOM_OK);
        assert_int_equal(file_st_read_f32(f, file_st_find(f, "bf"), 5, N - 5, got), ATOM_OK);
        for (int k = 5; k < N; k++) {
            float x = atom_bf16_to_f32(half[k]);
            assert_memory_equal(&got[k - 5], &x, 4);
        }
        assert_int_equal(file_st_read_f32(f, file_st_find(f, "fp"), 0, N, got), ATOM_OK);
        for (int k = 0; k < N; k++)
            assert_true(got[k] == atom_f16_to_f32(half[k]) || isnan(got[k]));
        assert_true(way == 0 || through_views > 0);
    }
    assert_int_equal(file_st_read_f32(f, file_st_find(f, "q"), 0, 1, got), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "quantised"));
    assert_int_equal(file_st_read_f32(f, file_st_find(f, "i"), 0, 1, got), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "tensor 'i' is I16"));
    file_st_close(&f);
    scratch_close(&s);
}

#define T(name, dtype, shape, offsets)                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *header;
    uint64_t data_bytes;
    const char *message; /* NULL: is accepted */
} headers[] = {
    {"{}", 0, NULL},
    {"{}   ", 0, NULL},
    {"{" T("a", "F32", "[2]", "[0,8]") "}", 8, NULL},
    {"{" T("b", "F32", "[2]", "[8,16]") "," T("a", "F32", "[]", "[4,8]") "," T("c", "U8", "[4]",
                                                                               "[0,4]") "}",
     16, NULL},
    {"{" T("a", "F32", "[0,9]", "[0,0]") "," T("b", "F4", "[2]", "[0,1]") "," T("z", "F32", "[0]",
                                                                                "[1,1]") "}",
     1, NULL},
    {"{\"__metadata__\":{\"a\":\"b\"}}", 0, NULL},
    {"{ ", 0, "not a JSON object"},
    {" {}", 0, "not a JSON object"},
    {"{}\n", 0, "not a JSON object"},
    {"{}{}", 0, "header byte"},
    {"[]", 0, "not a JSON object"},
    {"{}\t ", 0, "not a JSON object"},
    {"{\"a\":1}", 0, "tensor 'a': is not exactly"},
    {"{\"a\":{}}", 0, "is not exactly {dtype, shape, data_offsets}"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4],\"x\":1}}", 4,
     "is not exactly"},
    {"{" T("a", "F32", "[2]", "[0,8]") "," T("a", "F32", "[2]", "[8,16]") "}", 16, "duplicate"},
    {"{\"a\\u0000b\":1}", 0, "header byte"},
    {"{\"\xff\":1}", 0, "header byte"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "a value of __metadata__ is not a string"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
    {"{" T("a", "F33", "[2]", "[0,8]") "}", 8, "unknown dtype 'F33'"},
    {"{" T("a", "F32", "[2.0]", "[0,8]") "}", 8, "a dimension is not a whole number"},
    {"{" T("a", "F32", "[2e0]", "[0,8]") "}", 8, "a dimension is not a whole number"},
    {"{" T("a", "F32", "[-2]", "[0,8]") "}", 8, "a dimension is not a whole number"},
    {"{" T("a", "F32", "[\"2\"]", "[0,8]") "}", 8, "a dimension is not a whole number"},
    {"{" T("a", "F32", "[281474976710656]", "[0,8]") "}", 8, "a dimension is not a whole number"},
    {"{" T("a", "F32", "[99999999999999999999]", "[0,8]") "}", 8, "header byte"},
    {"{" T("a", "F32", "2", "[0,8]") "}", 8, "shape is not a list"},
    {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, "more than 8 dimensions"},
    {"{" T("a", "F32", "[281474976710655,281474976710655]", "[0,8]") "}", 8, "overflows"},
    {"{" T("a", "F32", "[281474976710655,65537]", "[0,8]") "}", 8, "overflows"},
    {"{" T("a", "F64", "[140737488355328,4096]", "[0,8]") "}", 8, "overflows"},
    {"{" T("a", "F4", "[3]", "[0,1]") "}", 1, "do not agree"},
    {"{" T("a", "F32", "[2]", "[0,7]") "}", 7, "do not agree"},
    {"{" T("a", "F32", "[2]", "[8,0]") "}", 8, "outside the file"},
    {"{" T("a", "F32", "[2]", "[0,8,9]") "}", 8, "data_offsets is not [begin, end]"},
    {"{" T("a", "F32", "[2]", "[0]") "}", 8, "data_offsets is not [begin, end]"},
    {"{" T("a", "F32", "[2]", "[-8,0]") "}", 8, "data_offsets is not [begin, end]"},
    {"{" T("a", "F32", "[2]", "[0,8]") "}", 7, "outside the file"},
    {"{" T("a", "F32", "[2]", "[0,8]") "}", 9, "1 bytes after the last tensor"},
    {"{" T("a", "F32", "[1]", "[4,8]") "}", 8, "has a hole before it"},
    {"{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[8,12]") "}", 12,
     "tensor 'b': has a hole"},
    {"{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[1]", "[4,8]") "}", 8,
     "tensor 'b': overlaps"},
    {"{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[2]", "[0,8]") "}", 8, "overlaps"},
    {"{}", 3, "3 bytes after"},
    {"{\"a\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}", 0,
     "not a list of tensors"},
};

static void refuses(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        file_safetensors *f = NULL;
        uint64_t n = strlen(headers[i].header);
        atom_status st =
            file_st_parse("x.st", headers[i].header, n, 8 + n + headers[i].data_bytes, &f);
        if (st != (headers[i].message ? ATOM_E_FORMAT : ATOM_OK))
            fail_msg("%s: status %s", headers[i].header, atom_status_name(st));
        if (headers[i].message && (!strstr(atom_fail_message(), headers[i].message) ||
                                   strncmp(atom_fail_message(), "x.st: ", 6) != 0))
            fail_msg("%s: %s", headers[i].header, atom_fail_message());
        assert_true(!headers[i].message || !f);
        file_st_close(&f);
    }
}

static void refuses_long_name(void **state)
{
    char header[1024], name[600];
    file_safetensors *f = NULL;
    (void)state;
    for (size_t bytes = 512; bytes <= 513; bytes++) {
        memset(name, 'n', bytes);
        name[bytes] = 0;
        snprintf(header, sizeof header,
                 "{\"%s\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", name);
        atom_status st = file_st_parse("x", header, strlen(header), 8 + strlen(header), &f);
        assert_int_equal(st, bytes == 512 ? ATOM_OK : ATOM_E_FORMAT);
        file_st_close(&f);
    }
}

static void refuses_files(void **state)
{
    static const struct {
        const char *data;
        size_t bytes;
        const char *message;
    } cases[] = {
        {"", 0, "shorter than 8 bytes"},
        {"\2\0\0\0\0\0\0", 7, "shorter than 8 bytes"},
        {"\0\0\0\0\0\0\0\0", 8, "longer than the file"},
        {"\1\0\0\0\0\0\0\0{", 9, "longer than the file"},
        {"\3\0\0\0\0\0\0\0{}", 10, "longer than the file"},
        {"\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "more than 100 MB"},
        {"\1\xe1\xf5\5\0\0\0\0{}", 10, "more than 100 MB"}, /* 100,000,001 */
    };
    scratch s;
    file_safetensors *f = NULL;
    (void)state;
    scratch_open(&s);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = scratch_write(&s, "x", cases[i].data, cases[i].bytes);
        assert_int_equal(file_st_open(path, &f), ATOM_E_FORMAT);
        if (!strstr(atom_fail_message(), cases[i].message) || !strstr(atom_fail_message(), path))
            fail_msg("%zu: %s", i, atom_fail_message());
    }
    assert_int_equal(file_st_open(s.dir, &f), ATOM_E_FORMAT);
    assert_int_equal(file_st_open(scratch_path(&s, "nothing"), &f), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "there is no file"));
    scratch_close(&s);
}

/* A file that shrinks after it was checked is an error, not a crash. */
static void shrinks(void **state)
{
    scratch s;
    file_safetensors *f = NULL;
    uint8_t got[8];
    (void)state;
    const char *path = scratch_path(scratch_open(&s), "x.safetensors");
    write_example(path);
    assert_int_equal(file_st_open(path, &f), ATOM_OK);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(file_st_read(f, &f->tensors[0], 0, 8, got), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "became shorter"));
    file_st_close(&f);
    scratch_close(&s);
}

static uint32_t dice(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

/* What is accepted after damage is still consistent: tensors tile the file. */
static void survives_mutations(void **state)
{
    static const char base[] =
        "{\"__metadata__\":{\"format\":\"pt\"}," T("h.0.w", "F32", "[2,3]", "[0,24]") "," T(
            "b", "BF16", "[4]", "[24,32]") "," T("c", "U8", "[0]", "[32,32]") "}   ";
    static const char alphabet[] = "{}[]\":,0123456789-.eE \\u\0\xff"
                                   "FtrueU";
    uint64_t seed = 1, accepted = 0;
    (void)state;
    for (int round = 0; round < 100000; round++) {
        char header[sizeof base];
        memcpy(header, base, sizeof base);
        uint64_t n = sizeof base - 1, file_bytes = 8 + n + 32;
        for (uint32_t k = dice(&seed) % 4; k--;)
            header[dice(&seed) % n] = alphabet[dice(&seed) % (sizeof alphabet - 1)];
        if (dice(&seed) % 8 == 0)
            n = dice(&seed) % (n + 1);
        if (dice(&seed) % 8 == 0)
            file_bytes = dice(&seed) % 400;
        file_safetensors *f = NULL;
        if (file_st_parse("m", header, n, file_bytes, &f) != ATOM_OK) {
            assert_null(f);
            continue;
        }
        uint64_t at = 8 + n;
        for (uint32_t i = 0; i < f->n_tensors; i++) {
            assert_int_equal(f->tensors[i].offset, at);
            at += f->tensors[i].bytes;
            assert_ptr_equal(file_st_find(f, f->tensors[i].name), &f->tensors[i]);
        }
        assert_int_equal(at, file_bytes);
        accepted++;
        file_st_close(&f);
    }
    assert_true(accepted > 1000 && accepted < 90000);
}

/* Writes two tensors in small pieces. */
static atom_status write_two(const char *path)
{
    static const float data[300];
    file_st_writer *w = NULL;
    uint32_t i;
    atom_status st = ATOM_OK;
    ATOM_TRY(file_st_create(path, &w));
    ATOM_TRY_CLEAN(file_st_declare(w, "a", FILE_F32, 2, (uint64_t[]){10, 30}));
    ATOM_TRY_CLEAN(file_st_declare(w, "b", FILE_F32, 1, (uint64_t[]){300}));
    ATOM_TRY_CLEAN(file_st_begin(w));
    while (file_st_next(w, &i))
        ATOM_TRY_CLEAN(file_st_write(w, data, 400));
    ATOM_TRY_CLEAN(file_st_finish(w));
cleanup:
    file_st_writer_close(&w);
    return st;
}

/* Wherever the disk fills up: exit code 4, a clear line, no temporary, the old file untouched. */
static void disk_full(void **state)
{
    scratch s;
    char *data = NULL;
    uint64_t bytes = 0;
    (void)state;
    scratch_open(&s);
    const char *path = scratch_write(&s, "x", "old", 3);
    const char *temporary = scratch_path(&s, "x.tmp");
    for (int64_t left = 0;; left += 97) {
        disk_left = left;
        atom_status st = write_two(path);
        disk_left = INT64_MAX;
        assert_false(atom_path_exists(temporary));
        if (st == ATOM_OK) {
            assert_true(left >= 2400);
            break;
        }
        assert_int_equal(st, ATOM_E_RESOURCE);
        assert_non_null(strstr(atom_fail_message(), path));
        assert_non_null(strstr(atom_fail_message(), "No space left"));
        assert_non_null(strstr(atom_fail_message(), "KiB"));
        assert_int_equal(atom_file_read(path, 100, &data, &bytes), ATOM_OK);
        assert_int_equal(bytes, 3);
        atom_free(data);
    }
    assert_int_equal(write_two(scratch_path(&s, "no/x")), ATOM_E_RUNTIME);
    scratch_close(&s);
}

/* A temporary that a dead run left behind is no obstacle; a link there is not followed. */
static void stale_temporary(void **state)
{
    scratch s;
    char *data = NULL;
    uint64_t bytes = 0;
    (void)state;
    scratch_open(&s);
    const char *victim = scratch_write(&s, "victim", "keep", 4);
    assert_int_equal(symlink(victim, scratch_path(&s, "x.tmp")), 0);
    assert_int_equal(write_two(scratch_path(&s, "x")), ATOM_OK);
    assert_int_equal(atom_file_read(victim, 100, &data, &bytes), ATOM_OK);
    assert_int_equal(bytes, 4);
    atom_free(data);
    scratch_close(&s);
}

static void no_memory(void **state)
{
    scratch s;
    (void)state;
    const char *path = scratch_path(scratch_open(&s), "x");
    uint64_t before = atom_mem_read().live_blocks;
    for (uint64_t n = 1;; n++) {
        file_safetensors *f = NULL;
        atom_mem_fail_after(n);
        atom_status st = write_two(path);
        if (st == ATOM_OK)
            st = file_st_open(path, &f);
        atom_mem_fail_after(0);
        file_st_close(&f);
        assert_int_equal(atom_mem_read().live_blocks, before);
        if (st == ATOM_OK) {
            assert_true(n > 8);
            break;
        }
        assert_int_equal(st, ATOM_E_RESOURCE);
    }
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(order_and_round_trip),
        cmocka_unit_test(converts),
        cmocka_unit_test(refuses),
        cmocka_unit_test(refuses_long_name),
        cmocka_unit_test(refuses_files),
        cmocka_unit_test(shrinks),
        cmocka_unit_test(survives_mutations),
        cmocka_unit_test(disk_full),
        cmocka_unit_test(stale_temporary),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
