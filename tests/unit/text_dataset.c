/* Shards and their order: every kind of damage has its message, every window comes
 * once per epoch. */
#include "atom/base/mem.h"
#include "atom/text/dataset.h"
#include "atom/text/shard.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

static void put_u32(char *at, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        at[i] = (char)(v >> (8 * i));
}

/* Tokens 0, 1, 2 ... modulo vocab, so that a token tells its place. Through the writer. */
static void write_synced(const char *dir, const char *split, uint32_t vocab, uint32_t tokens,
                         uint32_t shard_tokens)
{
    text_shard_writer *w = NULL;
    assert_int_equal(text_shard_writer_open(dir, split, vocab, shard_tokens, &w), ATOM_OK);
    for (uint32_t i = 0; i < tokens; i++) {
        uint32_t id = i % vocab;
        assert_int_equal(text_shard_writer_put(w, &id, 1), ATOM_OK);
    }
    assert_int_equal(text_shard_writer_end(w), ATOM_OK);
    assert_int_equal(text_shard_writer_tokens(w), tokens);
    text_shard_writer_close(&w);
}

/* The same files without the writer and its fsync, which is slow. */
static void write_split(const char *dir, const char *split, uint32_t vocab, uint32_t tokens,
                        uint32_t shard_tokens)
{
    bool wide = vocab > 65536;
    for (uint32_t i = 0, shard = 0; i < tokens; shard++) {
        uint32_t n = shard_tokens && shard_tokens < tokens - i ? shard_tokens : tokens - i;
        char path[640];
        snprintf(path, sizeof path, "%s/%s_%06u.bin", dir, split, shard);
        char *data = calloc(1, 1024 + 4 * (size_t)n);
        put_u32(data, wide ? 20240801 : 20240520);
        put_u32(data + 4, wide ? 7 : 1);
        put_u32(data + 8, n);
        for (uint32_t k = 0; k < n; k++, i++) {
            char id[4];
            put_u32(id, i % vocab);
            memcpy(data + 1024 + k * (wide ? 4 : 2), id, wide ? 4 : 2);
        }
        uint64_t hash = 0xcbf29ce484222325u;
        for (uint32_t k = 0; k < n * (wide ? 4 : 2); k++)
            hash = (hash ^ (uint8_t)data[1024 + k]) * 0x100000001b3u;
        put_u32(data + 12, (uint32_t)hash);
        put_u32(data + 16, (uint32_t)(hash >> 32));
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(data, 1024 + n * (wide ? 4u : 2u), 1, f), 1);
        fclose(f);
        free(data);
    }
}

static void writer_and_test_agree(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        scratch s;
        scratch_open(&s);
        write_split(s.dir, "train", k ? 70000 : 60000, 700001, 300000);
        write_synced(s.dir, "val", k ? 70000 : 60000, 700001, 300000);
        for (int i = 0; i < 3; i++) {
            char name[32], *a = NULL, *b = NULL;
            uint64_t a_bytes, b_bytes;
            snprintf(name, sizeof name, "train_%06d.bin", i);
            assert_int_equal(atom_file_read(scratch_path(&s, name), 1 << 22, &a, &a_bytes),
                             ATOM_OK);
            snprintf(name, sizeof name, "val_%06d.bin", i);
            assert_int_equal(atom_file_read(scratch_path(&s, name), 1 << 22, &b, &b_bytes),
                             ATOM_OK);
            assert_int_equal(a_bytes, b_bytes);
            assert_memory_equal(a, b, a_bytes);
            atom_free(a);
            atom_free(b);
        }
        scratch_close(&s);
    }
}

static void format_is_llm_c(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    char *data = NULL;
    uint64_t bytes = 0;
    write_synced(s.dir, "train", 50257, 3, 0);
    assert_int_equal(atom_file_read(scratch_path(&s, "train_000000.bin"), 4096, &data, &bytes),
                     ATOM_OK);
    assert_int_equal(bytes, 1024 + 6);
    static const uint8_t head[] = {0x88, 0xd8, 0x34, 0x01, 1,    0,    0,    0,    3,    0, 0,
                                   0,    0xfe, 0x7a, 0x6d, 0xd3, 0xf1, 0x1c, 0xf1, 0x37, 0};
    assert_memory_equal(data, head, sizeof head);
    assert_memory_equal(data + 1024, "\0\0\1\0\2\0", 6);
    assert_true(text_shard_is(data, 4));
    assert_false(text_shard_is(data, 3));
    assert_false(text_shard_is(data + 1, 4));
    atom_free(data);
    write_synced(s.dir, "train", 65536, 3, 0); /* the last narrow one */
    text_shard_info info = {0};
    assert_int_equal(text_shard_probe(scratch_path(&s, "train_000000.bin"), &info), ATOM_OK);
    assert_int_equal(info.token_bytes, 2);
    write_synced(s.dir, "val", 65537, 3, 0);
    assert_int_equal(atom_file_read(scratch_path(&s, "val_000000.bin"), 4096, &data, &bytes),
                     ATOM_OK);
    assert_int_equal(bytes, 1024 + 12);
    static const uint8_t wide[] = {0xa1, 0xd9, 0x34, 0x01, 7,    0,    0,    0,    3,    0, 0,
                                   0,    0x96, 0x93, 0x8c, 0xbe, 0xe1, 0x41, 0x62, 0x75, 0};
    assert_memory_equal(data, wide, sizeof wide);
    assert_memory_equal(data + 1024, "\0\0\0\0\1\0\0\0\2\0\0\0", 12);
    atom_free(data);
    scratch_close(&s);
}

static void stream_over_shards(void **state)
{
    (void)state;
    for (uint32_t wide = 0; wide < 2; wide++) {
        uint32_t vocab = wide ? 70000 : 60000, tokens = 100003;
        scratch s;
        scratch_open(&s);
        text_shards *shards = NULL;
        write_split(s.dir, "train", vocab, tokens, 7919);
        assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, vocab, &shards), ATOM_OK);
        assert_int_equal(text_shards_tokens(shards), tokens);
        assert_int_equal(text_shards_count(shards), 13);
        assert_int_equal(text_shards_token_bytes(shards), wide ? 4 : 2);
        static int32_t out[100003];
        for (uint32_t first = 0; first < tokens; first += 7001)
            for (uint32_t n = 0; n <= tokens - first; n += 1 + n * 3) {
                assert_int_equal(text_shards_read(shards, first, n, out), ATOM_OK);
                for (uint32_t i = 0; i < n; i++)
                    assert_int_equal(out[i], (first + i) % vocab);
            }
        text_shards_close(&shards);
        scratch_close(&s);
    }
}

static void windows_and_targets(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    text_shards *shards = NULL;
    write_split(s.dir, "val", 1000, 100, 33);
    assert_int_equal(text_shards_open(s.dir, TEXT_VAL, 1000, &shards), ATOM_OK);
    for (uint32_t t = 1; t < 100; t++) {
        uint64_t windows = text_shards_windows(shards, t);
        assert_int_equal(windows, 99 / t);
        assert_int_equal(text_shards_rest(shards, t), 99 % t > 5 ? 99 % t : 0);
        int32_t tokens[99], targets[99];
        assert_int_equal(text_windows_read(shards, t, 0, (uint32_t)windows, tokens, targets),
                         ATOM_OK);
        for (uint32_t i = 0; i < windows * t; i++) {
            assert_int_equal(tokens[i], i);
            assert_int_equal(targets[i], i + 1);
        }
    }
    assert_int_equal(text_shards_windows(shards, 100), 0);
    assert_int_equal(text_shards_rest(shards, 100), 0); /* which is refused */
    text_sampler sampler;
    assert_int_equal(text_sampler_make(shards, 100, 1, &sampler), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "sequence_len"));
    text_shards_close(&shards);
    scratch_close(&s);
}

/* Every epoch is a permutation; another epoch and another seed are another one. */
/* Documents of 1 .. 9 tokens begin with token 7, but those of `odd` with another or with 7 inside;
 * the writer cuts shards anywhere. */
static uint32_t write_documents(const char *dir, uint32_t shard_tokens, bool odd, uint8_t *begins)
{
    text_shard_writer *w = NULL;
    uint32_t n = 0;
    assert_int_equal(text_shard_writer_open(dir, "train", 100, shard_tokens, &w), ATOM_OK);
    for (uint32_t d = 0; d < 60; d++) {
        text_shard_writer_begin(w, 7);
        for (uint32_t i = 0; i <= d * 5 % 9; i++) {
            bool strange = odd && d % 4 == 3;
            uint32_t id = (i == 0) != (strange && i < 2) ? 7 : 10 + i;
            assert_int_equal(text_shard_writer_put(w, &id, 1), ATOM_OK);
            begins[n++] = i == 0;
        }
    }
    assert_int_equal(text_shard_writer_end(w), ATOM_OK);
    text_shard_writer_close(&w);
    return n;
}

static void check_documents(const char *dir, uint32_t n, const uint8_t *begins)
{
    enum { T = 13 };
    text_shards *s = NULL;
    text_sampler sampler;
    int32_t tokens[T], targets[T], starts[T], again[T];
    assert_int_equal(text_shards_open(dir, TEXT_TRAIN, 100, &s), ATOM_OK);
    assert_int_equal(text_shards_tokens(s), n);
    assert_int_equal(text_sampler_make(s, T, 5, &sampler), ATOM_OK);
    for (uint64_t sample = 0; sample < sampler.windows; sample++) {
        uint64_t window = text_sampler_window(&sampler, sample);
        int32_t want = 0;
        assert_int_equal(text_sampler_read(&sampler, sample, 1, tokens, targets), ATOM_OK);
        text_sampler_starts(&sampler, sample, 1, 7, tokens, starts);
        text_windows_starts(s, T, window, 1, 7, tokens, again);
        assert_memory_equal(starts, again, sizeof starts);
        for (int32_t t = 0; t < T; t++) {
            want = begins[window * T + (uint64_t)t] ? t : want;
            assert_int_equal(starts[t], want);
        }
    }
    text_shards_close(&s);
}

static void documents_begin(void **state)
{
    static const uint32_t shards[] = {0, 50, 64, 7};
    uint8_t begins[600];
    (void)state;
    for (size_t i = 0; i < 8; i++) {
        scratch s;
        const char *dir = scratch_open(&s)->dir;
        bool odd = i % 2;
        uint32_t n = write_documents(dir, shards[i / 2], odd, begins);
        /* a file is beside the shard only where it says more than the tokens */
        if (shards[i / 2] == 0)
            assert_int_equal(atom_path_exists(scratch_path(&s, "train_000000.begins")), odd);
        check_documents(dir, n, begins);
        if (shards[i / 2] == 0) {
            assert_int_equal(text_shard_cut(scratch_path(&s, "train_000000.bin"), 101), ATOM_OK);
            check_documents(dir, 101, begins);
        }
        scratch_close(&s);
    }
}

static void epochs_are_permutations(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    text_shards *shards = NULL;
    write_split(s.dir, "train", 65536, 5000, 0);
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 65536, &shards), ATOM_OK);
    for (uint32_t t = 1; t < 5000; t += 1 + t / 2) {
        text_sampler a, b;
        assert_int_equal(text_sampler_make(shards, t, 7, &a), ATOM_OK);
        assert_int_equal(text_sampler_make(shards, t, 8, &b), ATOM_OK);
        uint64_t windows = a.windows, same_epoch = 0, same_seed = 0, fixed = 0;
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            static uint8_t seen[5000];
            memset(seen, 0, sizeof seen);
            for (uint64_t i = 0; i < windows; i++) {
                uint64_t w = text_sampler_window(&a, epoch * windows + i);
                assert_true(w < windows && !seen[w]);
                seen[w] = 1;
                same_epoch += w == text_sampler_window(&a, (epoch + 1) * windows + i);
                same_seed += w == text_sampler_window(&b, epoch * windows + i);
                fixed += w == i;
            }
        }
        if (windows > 400) { /* about 3 in 3 epochs by chance */
            assert_true(same_epoch < 20);
            assert_true(same_seed < 20);
            assert_true(fixed < 20);
        }
    }
    text_shards_close(&shards);
    scratch_close(&s);
}

/* Neighbours must be torn apart: the mean distance of two draws from n is n/3. */
static void order_is_well_mixed(void **state)
{
    (void)state;
    text_sampler sampler = {.seed = 42, .windows = 100000, .sequence_len = 1, .half_bits = 9};
    double sum = 0;
    for (uint64_t i = 0; i + 1 < sampler.windows; i++) {
        double d =
            (double)text_sampler_window(&sampler, i) - (double)text_sampler_window(&sampler, i + 1);
        sum += d < 0 ? -d : d;
    }
    double mean = sum / (double)sampler.windows / (double)sampler.windows;
    assert_true(mean > 0.32 && mean < 0.35);
}

/* From a saved position the same batches follow, and the order itself must not change between
 * builds. */
static void position_resumes(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    text_shards *shards = NULL;
    text_sampler a, b;
    static int32_t tokens[2][40 * 16], targets[2][40 * 16];
    write_split(s.dir, "train", 65536, 16 * 25 + 1, 100);
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 65536, &shards), ATOM_OK);
    assert_int_equal(text_sampler_make(shards, 16, 1234, &a), ATOM_OK);
    assert_int_equal(a.windows, 25);
    assert_int_equal(text_sampler_read(&a, 13, 40, tokens[0], targets[0]), ATOM_OK);
    for (uint32_t i = 0; i < 40; i += 8) {
        assert_int_equal(text_sampler_make(shards, 16, 1234, &b), ATOM_OK);
        assert_int_equal(text_sampler_read(&b, 13 + i, 8, tokens[1] + i * 16, targets[1] + i * 16),
                         ATOM_OK);
    }
    assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
    assert_memory_equal(targets[0], targets[1], sizeof targets[0]);
    for (uint32_t i = 0; i < 40 * 16; i++) {
        assert_int_equal(targets[0][i], tokens[0][i] + 1);
        assert_int_equal(tokens[0][i] % 16, i % 16);
    }
    static const uint64_t recorded[8] = {8, 15, 6, 21, 1, 7, 11, 14};
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(text_sampler_window(&a, i), recorded[i]);
    text_shards_close(&shards);
    scratch_close(&s);
}

static void damage_is_named(void **state)
{
    (void)state;
    static const struct {
        size_t bytes; /* of the file; 0: as it was (1024 + 200) */
        size_t at;    /* of a uint32 that is changed */
        uint32_t value;
        const char *says;
    } cases[] = {
        {1024 + 199, 0, TEXT_SHARD_MAGIC_U16, "truncated"},
        {1024 + 201, 0, TEXT_SHARD_MAGIC_U16, "too long"},
        {1023, 0, TEXT_SHARD_MAGIC_U16, "too few"},
        {0, 0, 20240326, "not a token shard"},
        {0, 0, TEXT_SHARD_MAGIC_U32, "version 1"},
        {0, 4, 2, "version 2"},
        {0, 8, 101, "truncated"},
        {0, 8, 0xffffffffu, "truncated"},
        {0, 8, 99, "too long"},
    };
    scratch s;
    scratch_open(&s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        text_shards *shards = NULL;
        char *data = NULL;
        uint64_t bytes = 0;
        write_split(s.dir, "train", 1000, 100, 0);
        const char *path = scratch_path(&s, "train_000000.bin");
        assert_int_equal(atom_file_read(path, 4096, &data, &bytes), ATOM_OK);
        put_u32(data + cases[i].at, cases[i].value);
        scratch_write(&s, "train_000000.bin", data, cases[i].bytes ? cases[i].bytes : bytes);
        atom_free(data);
        assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 1000, &shards), ATOM_E_FORMAT);
        assert_null(shards);
        if (!strstr(atom_fail_message(), cases[i].says) || !strstr(atom_fail_message(), path))
            fail_msg("%zu: %s", i, atom_fail_message());
    }
    scratch_close(&s);
}

static void wrong_ids_are_named(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    text_shards *shards = NULL;
    int32_t out[100];
    write_split(s.dir, "train", 1000, 100, 60);
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 70, &shards), ATOM_OK);
    assert_int_equal(text_shards_read(shards, 0, 70, out), ATOM_OK);
    assert_int_equal(text_shards_read(shards, 0, 71, out), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "train_000001.bin: token 10 is 70"));
    text_shards_close(&shards);
    scratch_close(&s);
}

/* A file that loses its end while it is open is an error, not a crash. */
static void shrinking_file(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    text_shards *shards = NULL;
    int32_t out[100];
    write_split(s.dir, "train", 1000, 100, 0);
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 1000, &shards), ATOM_OK);
    assert_int_equal(text_shard_cut(scratch_path(&s, "train_000000.bin"), 50), ATOM_OK);
    assert_int_equal(text_shards_read(shards, 0, 50, out), ATOM_OK);
    assert_int_equal(text_shards_read(shards, 0, 100, out), ATOM_E_FORMAT);
    text_shards_close(&shards);
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 1000, &shards), ATOM_OK);
    assert_int_equal(text_shards_tokens(shards), 50);
    text_shards_close(&shards);
    scratch_close(&s);
}

static void directories(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    text_shards *shards = NULL;
    assert_int_equal(text_shards_open("/nonexistent", TEXT_TRAIN, 10, &shards), ATOM_E_FORMAT);
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 10, &shards), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "atom data prepare"));
    assert_false(text_shards_exist(s.dir, TEXT_TRAIN));
    scratch_write(&s, "trainer.bin", "x", 1);
    scratch_write(&s, "constrain_0.bin", "x", 1);
    scratch_write(&s, "train_000000.bin.tmp", "x", 1);
    assert_false(text_shards_exist(s.dir, TEXT_TRAIN));
    write_split(s.dir, "wiki_train", 10, 5, 0); /* llm.c's own names */
    assert_true(text_shards_exist(s.dir, TEXT_TRAIN));
    assert_false(text_shards_exist(s.dir, TEXT_VAL));
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 10, &shards), ATOM_OK);
    uint64_t hash = text_shards_hash(shards);
    text_shards_close(&shards);
    write_split(s.dir, "wiki_train", 10, 6, 0);
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 10, &shards), ATOM_OK);
    assert_int_not_equal(text_shards_hash(shards), hash);
    text_shards_close(&shards);
    write_split(s.dir, "train", 70000, 5, 0); /* another width beside it */
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 10, &shards), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "do not mix"));
    scratch_close(&s);
}

static uint64_t contents_of(const char *dir)
{
    text_shards *shards = NULL;
    assert_int_equal(text_shards_open(dir, TEXT_TRAIN, 1000, &shards), ATOM_OK);
    uint64_t contents = text_shards_contents(shards);
    text_shards_close(&shards);
    return contents;
}

/* Two data sets of the same names and lengths differ; cut to where they begin to, they do not. */
static void contents_are_seen(void **state)
{
    (void)state;
    static uint32_t ids[600000]; /* more than the writer's buffer holds */
    uint64_t whole[3], cut[3];
    scratch s;
    for (int i = 0; i < 3; i++) {
        text_shard_writer *w = NULL;
        scratch_open(&s);
        memset(ids, 0, sizeof ids);
        ids[599999] = i == 1;
        ids[300000] = i == 2;
        assert_int_equal(text_shard_writer_open(s.dir, "train", 1000, 590000, &w), ATOM_OK);
        assert_int_equal(text_shard_writer_put(w, ids, 600000), ATOM_OK);
        assert_int_equal(text_shard_writer_end(w), ATOM_OK);
        text_shard_writer_close(&w);
        whole[i] = contents_of(s.dir);
        assert_int_equal(text_shard_cut(scratch_path(&s, "train_000001.bin"), 9999), ATOM_OK);
        cut[i] = contents_of(s.dir);
        /* as an older atom wrote it, or llm.c */
        FILE *f = fopen(scratch_path(&s, "train_000000.bin"), "r+be");
        assert_true(f && fseek(f, 12, SEEK_SET) == 0 && fwrite("\0\0\0\0\0\0\0", 8, 1, f) == 1);
        assert_int_equal(fclose(f), 0);
        assert_true(contents_of(s.dir) == 0);
        scratch_close(&s);
    }
    assert_true(whole[0] && whole[0] != whole[1] && whole[0] != whole[2] && whole[1] != whole[2]);
    assert_true(cut[0] && cut[0] != whole[0] && cut[0] == cut[1] && cut[0] != cut[2]);
}

/* train.bin and val.bin: uint16 and nothing else, unless they begin as llm.c's do. */
static void nanogpt_files(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    static const char raw[] = "\0\0\1\0\2\0\3\0\4\0\50\304"; /* 0 1 2 3 4 50216 */
    text_shards *shards = NULL;
    int32_t out[6];
    scratch_write(&s, "train.bin", raw, 12);
    scratch_write(&s, "val.bin", raw, 4);
    assert_true(text_shards_exist(s.dir, TEXT_TRAIN) && text_shards_exist(s.dir, TEXT_VAL));
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 50257, &shards), ATOM_OK);
    assert_int_equal(text_shards_tokens(shards), 6);
    assert_int_equal(text_shards_token_bytes(shards), 2);
    assert_int_equal(text_shards_read(shards, 1, 5, out), ATOM_OK);
    assert_true(out[0] == 1 && out[3] == 4 && out[4] == 50216);
    text_shards_close(&shards);
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 50216, &shards), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "train.bin: token 5 is 50216"));
    assert_non_null(strstr(atom_fail_message(), "uint16"));
    assert_int_equal(text_shard_cut(scratch_path(&s, "train.bin"), 2), ATOM_E_FORMAT);
    scratch_write(&s, "train.bin", raw, 11);
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 50257, &shards), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "odd"));
    /* llm.c's, by what it begins with, and then strictly */
    write_split(s.dir, "train", 1000, 100, 0);
    char *data = NULL, name[640];
    uint64_t bytes;
    snprintf(name, sizeof name, "%s", scratch_path(&s, "train_000000.bin"));
    assert_int_equal(atom_file_read(name, 4096, &data, &bytes), ATOM_OK);
    assert_int_equal(unlink(name), 0);
    scratch_write(&s, "train.bin", data, bytes);
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 1000, &shards), ATOM_OK);
    assert_int_equal(text_shards_tokens(shards), 100);
    text_shards_close(&shards);
    scratch_write(&s, "train.bin", data, bytes - 2);
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 1000, &shards), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "truncated"));
    /* numbers of 32 bits are not taken for twice as many of 16 */
    uint32_t wide[300];
    uint16_t halves[300];
    for (uint32_t i = 0; i < 300; i++)
        halves[i] = (uint16_t)(wide[i] = i * 331);
    scratch_write(&s, "train.bin", halves, sizeof halves);
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 128256, &shards), ATOM_OK);
    text_shards_close(&shards);
    scratch_write(&s, "train.bin", wide, sizeof wide);
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 128256, &shards), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "as in a file of uint32"));
    /* both kinds beside each other */
    scratch_write(&s, "train.bin", raw, 12);
    scratch_write(&s, "x_train.bin", data, bytes);
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 50257, &shards), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "do not mix"));
    atom_free(data);
    scratch_close(&s);
}

/* More shards than files that are kept open. */
static void many_shards(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    text_shards *shards = NULL;
    int32_t out[300];
    write_split(s.dir, "train", 65536, 300, 1);
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 65536, &shards), ATOM_OK);
    assert_int_equal(text_shards_read(shards, 0, 300, out), ATOM_OK);
    for (int i = 0; i < 300; i++)
        assert_int_equal(out[i], i);
    text_shards_close(&shards);
    scratch_close(&s);
}

static void survives_want_of_memory(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    write_split(s.dir, "train", 1000, 100, 5);
    bool done = false;
    for (uint64_t k = 1; !done; k++) {
        uint64_t before = atom_mem_read().live_blocks;
        text_shards *shards = NULL;
        text_shard_writer *w = NULL;
        atom_mem_fail_after(k);
        atom_status st = text_shards_open(s.dir, TEXT_TRAIN, 1000, &shards);
        if (st == ATOM_OK)
            st = text_shard_writer_open(s.dir, "val", 1000, 0, &w);
        atom_mem_fail_after(0);
        done = st == ATOM_OK;
        assert_true(done || st == ATOM_E_RESOURCE);
        text_shards_close(&shards);
        text_shard_writer_close(&w);
        assert_int_equal(atom_mem_read().live_blocks, before);
    }
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writer_and_test_agree), cmocka_unit_test(format_is_llm_c),
        cmocka_unit_test(stream_over_shards),    cmocka_unit_test(windows_and_targets),
        cmocka_unit_test(documents_begin),       cmocka_unit_test(epochs_are_permutations),
        cmocka_unit_test(order_is_well_mixed),   cmocka_unit_test(position_resumes),
        cmocka_unit_test(damage_is_named),       cmocka_unit_test(wrong_ids_are_named),
        cmocka_unit_test(shrinking_file),        cmocka_unit_test(directories),
        cmocka_unit_test(contents_are_seen),     cmocka_unit_test(nanogpt_files),
        cmocka_unit_test(many_shards),           cmocka_unit_test(survives_want_of_memory),
    };
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0); /* fsync is slow elsewhere */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
