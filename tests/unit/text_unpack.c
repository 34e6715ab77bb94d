/* Packed inputs: the same bytes as unpacked, damage is told from an end, and prepare reads both. */
#include "atom/base/mem.h"
#include "atom/text/dataset.h"
#include "atom/text/input.h"
#include "atom/text/prepare.h"
#include "atom/text/unpack.h"
#include "tests/lib/random_text.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

enum { TEXT_BYTES = 700000 };

static void must(atom_status st)
{
    if (st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
}

static size_t pack_gzip(const char *text, size_t n, char *out, size_t room)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)text;
    z.avail_in = (uInt)n;
    z.next_out = (Bytef *)out;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t bytes = z.total_out;
    deflateEnd(&z);
    return bytes;
}

/* With a checksum, as the zstd program writes. */
static size_t pack_zstd(const char *text, size_t n, char *out, size_t room)
{
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    size_t bytes = ZSTD_compress2(c, out, room, text, n);
    ZSTD_freeCCtx(c);
    assert_false(ZSTD_isError(bytes));
    return bytes;
}

static const struct {
    const char *name;
    size_t (*pack)(const char *text, size_t n, char *out, size_t room);
} kinds[] = {{"a.txt.gz", pack_gzip}, {"a.txt.zst", pack_zstd}};

/* Reads all, in reads of `want`; *n is its length. */
static atom_status read_all(const char *path, size_t want, char *out, size_t *n)
{
    text_unpack *u = NULL;
    atom_status st = text_unpack_open(path, &u);
    *n = 0;
    for (size_t got = 1; st == ATOM_OK && got; *n += got)
        st = text_unpack_read(u, out + *n, want, &got);
    text_unpack_close(&u);
    return st;
}

static void packed_is_as_plain(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    random_text r = {.seed = 5};
    char *text = malloc(TEXT_BYTES + 16), *packed = malloc(2 * TEXT_BYTES);
    char *back = malloc(TEXT_BYTES + (1 << 20));
    size_t n = random_words(&r, text, TEXT_BYTES), got;
    for (size_t k = 0; k < 2; k++) {
        /* two members or frames, one of them empty, behind each other */
        size_t bytes = kinds[k].pack(text, n / 3, packed, 2 * TEXT_BYTES);
        bytes += kinds[k].pack(text, 0, packed + bytes, 2 * TEXT_BYTES - bytes);
        bytes += kinds[k].pack(text + n / 3, n - n / 3, packed + bytes, 2 * TEXT_BYTES - bytes);
        const char *path = scratch_write(&s, kinds[k].name, packed, bytes);
        for (size_t want = 1; want <= 1 << 20; want = want * 37 + 1) {
            must(read_all(path, want, back, &got));
            assert_int_equal(got, n);
            assert_memory_equal(back, text, n);
        }
        /* the first bytes decide, whatever the name says */
        must(read_all(scratch_write(&s, "plain-name", packed, bytes), 4096, back, &got));
        assert_int_equal(got, n);
    }
    must(read_all(scratch_write(&s, "b.txt", text, n), 4096, back, &got));
    assert_int_equal(got, n);
    assert_memory_equal(back, text, n);
    free(text);
    free(packed);
    free(back);
    scratch_close(&s);
}

/* Cut off anywhere, a changed byte, and something behind: an error that names the file. */
static void damage_is_told(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    random_text r = {.seed = 6};
    char text[3000], packed[4000], back[70000];
    size_t n = random_words(&r, text, 2900), got;
    for (size_t k = 0; k < 2; k++) {
        size_t bytes = kinds[k].pack(text, n, packed, sizeof packed - 40);
        for (size_t cut = 0; cut < bytes; cut += 1 + cut / 16) {
            const char *path = scratch_write(&s, kinds[k].name, packed, cut);
            assert_int_equal(read_all(path, 500, back, &got), ATOM_E_FORMAT);
            assert_non_null(strstr(atom_fail_message(), kinds[k].name));
        }
        size_t flipped = bytes / 2;
        packed[flipped] ^= 0x10;
        assert_int_equal(read_all(scratch_write(&s, kinds[k].name, packed, bytes), 500, back, &got),
                         ATOM_E_FORMAT);
        assert_non_null(strstr(atom_fail_message(), "damaged"));
        packed[flipped] ^= 0x10;
        for (size_t more = 1; more < 30; more++) {
            memset(packed + bytes, 'x', more);
            const char *path = scratch_write(&s, kinds[k].name, packed, bytes + more);
            assert_int_equal(read_all(path, 500, back, &got), ATOM_E_FORMAT);
        }
        const char *plain = scratch_write(&s, kinds[k].name, text, n);
        assert_int_equal(read_all(plain, 500, back, &got), ATOM_E_FORMAT);
        assert_non_null(strstr(atom_fail_message(), "named"));
    }
    scratch_close(&s);
}

/* A file that Git LFS did not fetch is no text of three lines, whatever its name promises. */
static void a_pointer_is_not_the_file(void **state)
{
    (void)state;
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\n"
                                  "oid sha256:0000000000000000000000000000000000000000000000000000"
                                  "000000000000\nsize 12345\n";
    static const char *const names[] = {"a.txt",  "a.jsonl",  "a.csv",
                                        "a.json", "a.txt.gz", "a.jsonl.zst"};
    char back[1000];
    scratch s;
    scratch_open(&s);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        size_t got;
        const char *path = scratch_write(&s, names[k], pointer, sizeof pointer - 1);
        assert_int_equal(read_all(path, 500, back, &got), ATOM_E_FORMAT);
        assert_non_null(strstr(atom_fail_message(), "is a Git LFS pointer"));
        assert_non_null(strstr(atom_fail_message(), names[k]));
    }
    scratch_close(&s);
}

/* The same data set from x.jsonl, x.jsonl.gz and x.jsonl.zst, and errors with the right line. */
static void prepare_reads_packed(void **state)
{
    (void)state;
    static const char *const names[] = {"a.jsonl", "a.jsonl.gz", "a.ndjson.zst"};
    scratch s;
    scratch_open(&s);
    char *lines = NULL, *packed = malloc(1 << 22);
    size_t n = 0;
    FILE *f = open_memstream(&lines, &n);
    for (int i = 0; i < 40000; i++)
        fprintf(f, "{\"text\": \"this is document number %d\"}\n", i);
    size_t good = (size_t)ftell(f);
    fprintf(f, "{\"text\": 7}\n");
    fclose(f);
    uint64_t hash = 0;
    char in[700], out[700];
    for (int k = 0; k < 3; k++) {
        for (int bad = 0; bad < 2; bad++) {
            size_t text_bytes = bad ? n : good, bytes = text_bytes;
            if (k)
                bytes = kinds[k - 1].pack(lines, text_bytes, packed, 1 << 22);
            snprintf(in, sizeof in, "%s", scratch_write(&s, names[k], k ? packed : lines, bytes));
            snprintf(out, sizeof out, "%s/%s-out", s.dir, names[k]);
            const char *inputs[] = {in};
            text_prepare_options o = {.inputs = inputs,
                                      .inputs_n = 1,
                                      .tokenizer = "bytes",
                                      .output_dir = out,
                                      .force = true};
            text_prepare_report report;
            atom_status st = text_prepare(&o, &report);
            if (bad) {
                assert_int_equal(st, ATOM_E_FORMAT);
                assert_non_null(strstr(atom_fail_message(), ":40001: "));
                continue;
            }
            must(st);
            assert_int_equal(report.train.documents, 40000);
            text_shards *shards = NULL;
            must(text_shards_open(out, TEXT_TRAIN, 257, &shards));
            hash = k ? hash : text_shards_hash(shards);
            assert_int_equal(text_shards_hash(shards), hash);
            text_shards_close(&shards);
        }
    }
    free(lines);
    free(packed);
    scratch_close(&s);
}

/* Zeros without end in a few kilobytes: one line that is too long, not the machine's memory. */
static void a_line_without_end(void **state)
{
    (void)state;
    enum { PIECE = 1 << 24, PIECES = 80 };
    scratch s;
    scratch_open(&s);
    char *zeros = calloc(PIECE, 1), *frame = malloc(1 << 20), *packed = malloc(1 << 20);
    size_t frame_bytes = pack_zstd(zeros, PIECE, frame, 1 << 20), n = 0;
    for (int i = 0; i < PIECES; i++, n += frame_bytes)
        memcpy(packed + n, frame, frame_bytes);
    const char *paths[] = {scratch_write(&s, "bomb.jsonl.zst", packed, n)};
    text_input *in = NULL;
    text_block b = {0};
    must(text_input_open(paths, 1, PIECE, &in));
    assert_int_equal(text_input_next(in, &b), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "a line's end"));
    text_input_close(&in);
    free(zeros);
    free(frame);
    free(packed);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_is_as_plain),        cmocka_unit_test(damage_is_told),
        cmocka_unit_test(a_pointer_is_not_the_file), cmocka_unit_test(prepare_reads_packed),
        cmocka_unit_test(a_line_without_end),
    };
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0); /* fsync is slow elsewhere */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
