/* Data preparation: what goes in comes out, whatever the threads; errors say where; nothing is
 * lost. */
#include "atom/base/mem.h"
#include "atom/text/dataset.h"
#include "atom/text/prepare.h"
#include "atom/text/tokenizer.h"
#include "tests/lib/count_jansson.h"
#include "tests/lib/random_text.h"
#include "tests/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

/* A copy of a path that outlives scratch_path's own; the last twelve stay. */
static const char *stay(const char *path)
{
    static char kept[12][700];
    static unsigned turn;
    char *copy = kept[turn++ % 12];
    snprintf(copy, sizeof kept[0], "%s", path);
    return copy;
}

static text_prepare_options options_for(const char *const *inputs, uint32_t n,
                                        const char *tokenizer, const char *out)
{
    return (text_prepare_options){.inputs = inputs,
                                  .inputs_n = n,
                                  .tokenizer = tokenizer,
                                  .output_dir = out,
                                  .val_fraction = 0.1};
}

static void must(atom_status st)
{
    if (st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
}

/* All of a split as text, end-of-text tokens shown as "|". */
static char *read_split(const char *dir, text_split split, size_t *bytes)
{
    text_tokenizer *t = NULL;
    text_shards *s = NULL;
    char path[700], *text = NULL;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    must(text_tokenizer_load(path, &t));
    must(text_shards_open(dir, split, text_tokenizer_vocab(t), &s));
    uint32_t n = (uint32_t)text_shards_tokens(s);
    uint32_t *ids = calloc(n + 1, sizeof *ids);
    must(text_shards_read(s, 0, n, (int32_t *)ids));
    size_t capacity = 0, at = 0;
    char *all = NULL;
    for (uint32_t i = 0, start = 0; i <= n; i++) {
        if (i < n && ids[i] != text_tokenizer_end(t))
            continue;
        must(text_decode(t, ids + start, i - start, false, &text, bytes));
        capacity = at + *bytes + 2;
        all = realloc(all, capacity);
        memcpy(all + at, text, *bytes);
        at += *bytes;
        if (i < n)
            all[at++] = '|';
        all[at] = 0;
        atom_free(text);
        start = i + 1;
    }
    free(ids);
    text_shards_close(&s);
    text_tokenizer_close(&t);
    *bytes = at;
    return all;
}

static void expect_split(const char *dir, text_split split, const char *want)
{
    size_t n;
    char *got = read_split(dir, split, &n);
    assert_string_equal(got, want);
    free(got);
}

static uint32_t count_entries(const char *dir)
{
    uint32_t n = 0;
    DIR *list = opendir(dir);
    while (list && readdir(list))
        n++;
    if (list)
        closedir(list);
    return n ? n - 2 : 0;
}

static void one_document_has_a_tail(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    char text[2000] = "", want[2000];
    for (int i = 0; i < 100; i++)
        sprintf(text + strlen(text), "line %02d\n", i);
    const char *in[] = {stay(scratch_write(&s, "a.txt", text, strlen(text)))};
    text_prepare_options o = options_for(in, 1, "bytes", stay(scratch_path(&s, "d")));
    text_prepare_report r;
    must(text_prepare(&o, &r));
    /* 801 tokens, a tail of 80, cut before the next newline: after line 90 */
    assert_int_equal(r.val_split, TEXT_VAL_TAIL);
    assert_int_equal(r.train.tokens, 1 + 727);
    assert_int_equal(r.val.tokens, 1 + 73);
    assert_int_equal(r.train.documents, 1);
    assert_int_equal(r.val.documents, 1);
    assert_int_equal(r.vocab, 257);
    assert_int_equal(r.text_bytes, 800);
    snprintf(want, sizeof want, "|%.727s", text);
    expect_split(o.output_dir, TEXT_TRAIN, want);
    snprintf(want, sizeof want, "|%s", text + 727);
    expect_split(o.output_dir, TEXT_VAL, want);
    assert_int_equal(count_entries(o.output_dir), 4);
    text_summary sum;
    must(text_inspect(o.output_dir, &sum));
    assert_int_equal(sum.train.tokens, 728);
    assert_int_equal(sum.val.tokens, 74);
    assert_int_equal(sum.train.documents + sum.val.documents, 2);
    assert_int_equal(sum.vocab, 257);
    assert_int_equal(sum.end_of_text, 256);
    assert_int_equal(sum.id_max, 256);
    assert_int_equal(sum.token_bytes, 2);
    assert_string_equal(sum.tokenizer, "bytes");
    assert_true(sum.bytes_per_token == 1.0);
    assert_int_equal(strlen(sum.preview), 200);
    assert_memory_equal(sum.preview, text, 200);
    scratch_close(&s);
}

static void few_documents_cut_at_a_boundary(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    const char *lines =
        "{\"text\": \"one one one one one one\"}\n\n{\"text\": \"two \\u00e9\\u0000\\n\", "
        "\"id\": 123456789012345678901234567890}\n{\"text\": \"\"}\r\n"
        "{\"text\": \"<|endoftext|>\", \"x\": [1]}";
    const char *in[] = {stay(scratch_write(&s, "a.jsonl", lines, strlen(lines))),
                        stay(scratch_write(&s, "b.txt", "end", 3)),
                        stay(scratch_write(&s, "c.txt", "", 0))};
    text_prepare_options o = options_for(in, 3, "bytes", stay(scratch_path(&s, "d")));
    o.val_fraction = 0.1;
    text_prepare_report r;
    must(text_prepare(&o, &r));
    assert_int_equal(r.val_split, TEXT_VAL_TAIL);
    size_t n;
    char *got = read_split(o.output_dir, TEXT_TRAIN, &n);
    static const char want[] = "|one one one one one one|two \u00e9\0\n|<|endoftext|>";
    assert_int_equal(n, sizeof want - 1);
    assert_memory_equal(got, want, n);
    free(got);
    expect_split(o.output_dir, TEXT_VAL, "|end");
    assert_int_equal(r.train.documents, 3);
    assert_int_equal(r.val.documents, 1);
    scratch_close(&s);
}

static void many_documents_are_kept_whole(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    FILE *f = fopen(scratch_path(&s, "a.jsonl"), "w");
    for (int i = 0; i < 200; i++)
        fprintf(f, "{\"text\": \"document %d\"}\n", i);
    fclose(f);
    const char *in[] = {stay(scratch_path(&s, "a.jsonl"))};
    text_prepare_options o = options_for(in, 1, "bytes", stay(scratch_path(&s, "d")));
    text_prepare_report r;
    must(text_prepare(&o, &r));
    assert_int_equal(r.val_split, TEXT_VAL_DOCUMENTS);
    assert_int_equal(r.val.documents, 20);
    assert_int_equal(r.train.documents, 180);
    size_t n;
    char *train = read_split(o.output_dir, TEXT_TRAIN, &n),
         *val = read_split(o.output_dir, TEXT_VAL, &n);
    for (int i = 0, in_val = 0; i < 200; i++) {
        char want[40];
        snprintf(want, sizeof want, "|document %d|", i);
        char *end_train = atom_format("%s|", train), *end_val = atom_format("%s|", val);
        int here = strstr(end_train, want) != NULL, there = strstr(end_val, want) != NULL;
        assert_int_equal(here + there, 1);
        in_val += there;
        if (i % 10 == 9) /* spread evenly: one of each ten */
            assert_int_equal(in_val, i / 10 + 1);
        atom_free(end_train);
        atom_free(end_val);
    }
    free(train);
    free(val);
    o.val_fraction = 0;
    o.force = true;
    must(text_prepare(&o, &r));
    assert_int_equal(r.val_split, TEXT_VAL_NONE);
    assert_int_equal(r.train.documents, 200);
    assert_false(text_shards_exist(o.output_dir, TEXT_VAL)); /* the old ones are gone */
    scratch_close(&s);
}

/* More files than one batch of blocks: each is a document, none is lost or doubled. */
static void many_files(void **state)
{
    (void)state;
    enum { FILES = 75 };
    scratch s;
    scratch_open(&s);
    static char paths[FILES][700];
    const char *in[FILES];
    char name[40], text[40];
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%d.txt", i);
        snprintf(text, sizeof text, "file %d", i);
        snprintf(paths[i], sizeof paths[i], "%s", scratch_write(&s, name, text, strlen(text)));
        in[i] = paths[i];
    }
    text_prepare_options o = options_for(in, FILES, "bytes", stay(scratch_path(&s, "d")));
    text_prepare_report r;
    must(text_prepare(&o, &r));
    assert_int_equal(r.train.documents + r.val.documents, FILES);
    assert_true(r.val.documents == 7 || r.val.documents == 8);
    size_t n;
    char *train = read_split(o.output_dir, TEXT_TRAIN, &n);
    char *val = read_split(o.output_dir, TEXT_VAL, &n);
    const char *at[2] = {train, val};
    for (int i = 0; i < FILES; i++) { /* each split keeps the order */
        snprintf(text, sizeof text, "|file %d", i);
        int k = strncmp(at[0], text, strlen(text)) != 0;
        assert_int_equal(strncmp(at[k], text, strlen(text)), 0);
        at[k] += strlen(text);
    }
    assert_true(*at[0] == 0 && *at[1] == 0);
    free(train);
    free(val);
    scratch_close(&s);
}

/* Three megabytes in several blocks, with 1, 3 and no threads: the same files, and nothing lost. */
static void threads_do_not_matter(void **state)
{
    (void)state;
    enum { BYTES = 3 << 20 };
    static const char *const names[] = {"train_000000.bin", "val_000000.bin", "tokenizer.json",
                                        "dataset.json"};
    scratch s;
    scratch_open(&s);
    random_text r = {.seed = 31};
    char *text = malloc(BYTES + 16), *files[4] = {0};
    uint64_t bytes[4] = {0};
    size_t n = random_words(&r, text, BYTES / 2);
    n += random_utf8(&r, text + n, BYTES / 2 - 16);
    for (size_t i = 0; i < n; i++)
        text[i] = text[i] == '|' ? '/' : text[i];
    const char *in[] = {stay(scratch_write(&s, "a.txt", text, n))};
    char dir[600];
    for (uint32_t threads = 0; threads < 4; threads += threads == 1 ? 2 : 1) {
        text_prepare_report report;
        snprintf(dir, sizeof dir, "%s/d%u", s.dir, threads);
        text_prepare_options o = options_for(in, 1, "bpe:600", dir);
        if (threads)
            must(atom_threads_open(threads, &o.threads));
        must(text_prepare(&o, &report));
        assert_int_equal(report.vocab, 600);
        assert_int_equal(report.text_bytes, n);
        for (int i = 0; i < 4; i++) {
            char path[700], *data = NULL;
            uint64_t data_bytes;
            snprintf(path, sizeof path, "%s/%s", dir, names[i]);
            must(atom_file_read(path, 1 << 28, &data, &data_bytes));
            if (threads) {
                assert_int_equal(data_bytes, bytes[i]);
                assert_memory_equal(data, files[i], data_bytes);
                atom_free(data);
            } else {
                files[i] = data;
                bytes[i] = data_bytes;
            }
        }
        if (o.threads)
            atom_threads_close(&o.threads);
    }
    size_t a, b;
    char *train = read_split(dir, TEXT_TRAIN, &a), *val = read_split(dir, TEXT_VAL, &b);
    assert_int_equal(a + b, n + 2);
    assert_memory_equal(train + 1, text, a - 1);
    assert_memory_equal(val + 1, text + a - 1, b - 1);
    free(train);
    free(val);
    free(text);
    for (int i = 0; i < 4; i++)
        atom_free(files[i]);
    scratch_close(&s);
}

static void tokenizer_of_another_set(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    const char *in[] = {stay(scratch_write(&s, "a.txt", "abab abab abab abab\n", 20))};
    text_prepare_options o = options_for(in, 1, "bpe:260", stay(scratch_path(&s, "d")));
    text_prepare_report r;
    must(text_prepare(&o, &r));
    char path[600];
    snprintf(path, sizeof path, "%s/d/tokenizer.json", s.dir);
    o = options_for(in, 1, path, stay(scratch_path(&s, "e")));
    must(text_prepare(&o, &r));
    assert_int_equal(r.vocab, 260);
    assert_int_equal(r.vocab_asked, 260);
    o = options_for(in, 1, "bpe:9999", stay(scratch_path(&s, "f")));
    must(text_prepare(&o, &r));
    assert_true(r.vocab < r.vocab_asked && r.vocab_asked == 9999);
    scratch_close(&s);
}

static void errors_say_where(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *tokenizer, *says;
        double val;
        atom_status st;
    } cases[] = {
        {"a.txt", "x", "bpe:256", "257", 0.1, ATOM_E_USAGE},
        {"a.txt", "x", "bpe:", "number", 0.1, ATOM_E_USAGE},
        {"a.txt", "x", "bpe:12x", "number", 0.1, ATOM_E_USAGE},
        {"a.txt", "x", "word", "bytes, bpe:N", 0.1, ATOM_E_USAGE},
        {"a.txt", "x", "no/such.json", "no such file", 0.1, ATOM_E_FORMAT},
        {"a.txt", "x", "bytes", "val_fraction", 0.6, ATOM_E_USAGE},
        {"a.txt", "x", "bytes", "val_fraction", -0.1, ATOM_E_USAGE},
        {"a.pdf", "x", "bytes", "a.pdf: input must be .txt", 0.1, ATOM_E_USAGE},
        {"a.txt", "", "bytes", "no text", 0.1, ATOM_E_FORMAT},
        {"a.jsonl", "\n{\"text\":\"\"}\n", "bytes", "no text", 0.1, ATOM_E_FORMAT},
        {"a.txt", "one\ntwo \xff", "bytes", "a.txt:2: not UTF-8 at byte 8", 0.1, ATOM_E_FORMAT},
        {"a.txt", "one\ntwo \xc3", "bpe:300", "a.txt:2: not UTF-8 at byte 8", 0, ATOM_E_FORMAT},
        {"a.jsonl", "{\"text\":\"a\"}\n\n{\"text\":\"\xff\"}\n", "bytes",
         "a.jsonl:3: not UTF-8 at byte 23", 0.1, ATOM_E_FORMAT},
        {"a.jsonl", "{\"text\":\"a\"}\n{\"text\":\n", "bytes", "a.jsonl:2:", 0.1, ATOM_E_FORMAT},
        {"a.jsonl", "{\"text\":\"a\"}\n{\"text\":7}\n", "bytes",
         "a.jsonl:2: there is no string \"text\"", 0.1, ATOM_E_FORMAT},
        {"a.jsonl", "{\"texts\":\"a\"}\n", "bytes", "a.jsonl:1: there is no string", 0.1,
         ATOM_E_FORMAT},
        {"a.jsonl", "[\"text\"]\n", "bytes", "a.jsonl:1: there is no string", 0.1, ATOM_E_FORMAT},
        {"a.jsonl", "{\"text\":\"a\",\"text\":\"b\"}\n", "bytes", "duplicate", 0.1, ATOM_E_FORMAT},
        {"a.jsonl", "{\"text\":\"\\ud800\"}\n", "bytes", "a.jsonl:1:", 0.1, ATOM_E_FORMAT},
        {"a.jsonl", "{\"text\":\"a\"} {}\n", "bytes", "a.jsonl:1:", 0.1, ATOM_E_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scratch s;
        scratch_open(&s);
        const char *in[] = {
            stay(scratch_write(&s, cases[i].name, cases[i].text, strlen(cases[i].text)))};
        text_prepare_options o =
            options_for(in, 1, cases[i].tokenizer, stay(scratch_path(&s, "d")));
        o.val_fraction = cases[i].val;
        if (text_prepare(&o, NULL) != cases[i].st || !strstr(atom_fail_message(), cases[i].says))
            fail_msg("%zu: %s", i, atom_fail_message());
        assert_int_equal(count_entries(o.output_dir), 0);
        scratch_close(&s);
    }
    const char *missing[] = {"/nonexistent/a.txt"};
    text_prepare_options o = options_for(missing, 1, "bytes", "/nonexistent/d");
    assert_int_equal(text_prepare(&o, NULL), ATOM_E_FORMAT);
    o.inputs_n = 0;
    assert_int_equal(text_prepare(&o, NULL), ATOM_E_USAGE);
}

/* An error in a later block of a long file has the right line and byte. */
static void errors_in_later_blocks(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    for (int jsonl = 0; jsonl < 2; jsonl++) {
        char *text = NULL, want[200];
        size_t n = 0;
        FILE *f = open_memstream(&text, &n);
        for (int i = 1; i <= 50000; i++)
            fprintf(f,
                    jsonl ? "{\"text\": \"this is the line of number %d%s\"}\n"
                          : "a long line, number %d, of text to read%s\n",
                    i, i == 40000 ? "\xff" : "");
        fclose(f);
        size_t byte = (size_t)((char *)memchr(text, 0xff, n) - text);
        const char *in[] = {stay(scratch_write(&s, jsonl ? "a.jsonl" : "a.txt", text, n))};
        text_prepare_options o = options_for(in, 1, "bytes", stay(scratch_path(&s, "d")));
        assert_int_equal(text_prepare(&o, NULL), ATOM_E_FORMAT);
        snprintf(want, sizeof want, ":40000: not UTF-8 at byte %zu of", byte);
        if (!strstr(atom_fail_message(), want))
            fail_msg("%s, not %s", atom_fail_message(), want);
        free(text);
    }
    scratch_close(&s);
}

static void marks_are_not_text_and_utf16_is_refused(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    const char *in[] = {stay(scratch_write(&s, "a.txt", "\xef\xbb\xbfone\n", 7)),
                        stay(scratch_write(&s, "b.txt", "\xef\xbb\xbf", 3))};
    text_prepare_options o = options_for(in, 2, "bytes", stay(scratch_path(&s, "d")));
    o.val_fraction = 0;
    must(text_prepare(&o, NULL));
    expect_split(o.output_dir, TEXT_TRAIN, "|one\n");
    static const struct {
        char text[9];
        size_t bytes;
        const char *says, *convert;
    } wide[] = {{"\xff\xfeo\0n\0", 6, "this is UTF-16, and", "iconv -f UTF-16 "},
                {"\xfe\xff\0o\0n", 6, "this is UTF-16, and", "iconv -f UTF-16 "},
                {"o\0n\0e\0\n", 8, "every second byte is NUL, as in", "iconv -f UTF-16LE "},
                {"\0o\0n\0e\0\n", 8, "every second byte is NUL, as in", "iconv -f UTF-16BE "},
                {"a\0b", 3, "every second byte is NUL, as in", "or, if it is another text"}};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        in[0] = stay(scratch_write(&s, "wide.txt", wide[i].text, wide[i].bytes));
        o.output_dir = stay(scratch_path(&s, "wide"));
        assert_int_equal(text_prepare(&o, NULL), ATOM_E_FORMAT);
        assert_non_null(strstr(atom_fail_message(), wide[i].says));
        assert_non_null(strstr(atom_fail_message(), wide[i].convert));
    }
    scratch_close(&s);
}

static void a_data_set_is_not_overwritten(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    const char *in[] = {stay(scratch_write(&s, "a.txt", "one\ntwo\n", 8)),
                        stay(scratch_write(&s, "b.txt", "three\nfour\n", 11)),
                        stay(scratch_write(&s, "bad.txt", "\xff", 1))};
    text_prepare_options o = options_for(in, 1, "bytes", stay(scratch_path(&s, "d")));
    o.val_fraction = 0;
    must(text_prepare(&o, NULL));
    scratch_write(&s, "d/notes.md", "mine", 4);
    o.inputs = in + 1;
    assert_int_equal(text_prepare(&o, NULL), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "--force"));
    expect_split(o.output_dir, TEXT_TRAIN, "|one\ntwo\n");
    o.force = true;
    o.inputs = in + 2; /* fails: the old one stays */
    assert_int_equal(text_prepare(&o, NULL), ATOM_E_FORMAT);
    expect_split(o.output_dir, TEXT_TRAIN, "|one\ntwo\n");
    assert_int_equal(count_entries(o.output_dir), 4);
    o.inputs = in + 1;
    must(text_prepare(&o, NULL));
    expect_split(o.output_dir, TEXT_TRAIN, "|three\nfour\n");
    assert_true(atom_path_exists(scratch_path(&s, "d/notes.md")));
    /* interrupted while moving: readers and prepare say so, and force repairs */
    must(atom_dir_make(scratch_path(&s, "d/.atom-moving")));
    text_shards *shards = NULL;
    assert_int_equal(text_shards_open(o.output_dir, TEXT_TRAIN, 257, &shards), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "interrupted"));
    o.force = false;
    assert_int_equal(text_prepare(&o, NULL), ATOM_E_FORMAT);
    o.force = true;
    must(text_prepare(&o, NULL));
    expect_split(o.output_dir, TEXT_TRAIN, "|three\nfour\n");
    /* killed while staging: the rest is cleared away */
    must(atom_dir_make(scratch_path(&s, "d/.atom-staging")));
    scratch_write(&s, "d/.atom-staging/train_000007.bin", "x", 1);
    expect_split(o.output_dir, TEXT_TRAIN, "|three\nfour\n");
    must(text_prepare(&o, NULL));
    assert_int_equal(count_entries(o.output_dir), 4);
    scratch_close(&s);
}

static void one_prepare_at_a_time(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    const char *in[] = {stay(scratch_write(&s, "a.jsonl", "\xef\xbb\xbf{\"text\": \"x\"}", 16))};
    text_prepare_options o = options_for(in, 1, "bytes", stay(scratch_path(&s, "d")));
    must(atom_dir_make(o.output_dir));
    int other = open(o.output_dir, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(other, LOCK_EX), 0);
    assert_int_equal(text_prepare(&o, NULL), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "another"));
    close(other);
    o.val_fraction = 0;
    must(text_prepare(&o, NULL)); /* and the byte order mark is not text */
    expect_split(o.output_dir, TEXT_TRAIN, "|x");
    scratch_close(&s);
}

/* As on a full disk: the old data set survives, the status says resource. */
static void a_full_disk(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    char text[9000];
    memset(text, 'a', sizeof text);
    const char *in[] = {stay(scratch_write(&s, "a.txt", "one\n", 4)),
                        stay(scratch_write(&s, "b.txt", text, sizeof text))};
    text_prepare_options o = options_for(in, 1, "bytes", stay(scratch_path(&s, "d")));
    must(text_prepare(&o, NULL));
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 12000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    o.inputs = in + 1;
    o.force = true;
    atom_status st = text_prepare(&o, NULL);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(st, ATOM_E_RESOURCE);
    expect_split(o.output_dir, TEXT_TRAIN, "|one");
    assert_int_equal(count_entries(o.output_dir), 4);
    scratch_close(&s);
}

static void survives_want_of_memory(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    const char *lines = "{\"text\": \"one two one two one two\"}\n{\"text\": \"three one two\"}\n";
    const char *in[] = {stay(scratch_write(&s, "a.jsonl", lines, strlen(lines)))};
    const char *out = stay(scratch_path(&s, "d"));
    bool done = false;
    for (uint64_t k = 1; !done; k += 1 + k / 8) {
        uint64_t before = atom_mem_read().live_blocks;
        text_prepare_options o = options_for(in, 1, "bpe:262", out);
        o.force = true; /* what the failure before could not clear away */
        atom_mem_fail_after(k);
        atom_status st = text_prepare(&o, NULL);
        atom_mem_fail_after(0);
        done = st == ATOM_OK;
        /* jansson's lexer takes want of memory for a wrong token */
        if (!done && st != ATOM_E_RESOURCE && st != ATOM_E_FORMAT)
            fail_msg("%llu: %s", (unsigned long long)k, atom_fail_message());
        assert_int_equal(atom_mem_read().live_blocks, before);
    }
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_document_has_a_tail),
        cmocka_unit_test(few_documents_cut_at_a_boundary),
        cmocka_unit_test(many_documents_are_kept_whole),
        cmocka_unit_test(many_files),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(tokenizer_of_another_set),
        cmocka_unit_test(errors_say_where),
        cmocka_unit_test(errors_in_later_blocks),
        cmocka_unit_test(a_data_set_is_not_overwritten),
        cmocka_unit_test(marks_are_not_text_and_utf16_is_refused),
        cmocka_unit_test(one_prepare_at_a_time),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(survives_want_of_memory),
    };
    count_jansson();
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0); /* fsync is slow elsewhere */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
