/* Chats: every shape is read, and masks take what is no answer out of the targets. */
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/text/dataset.h"
#include "atom/text/mask.h"
#include "atom/text/prepare.h"
#include "atom/text/shard.h"
#include "atom/text/template.h"
#include "tests/lib/count_jansson.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

static void must(atom_status st)
{
    if (st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
}

/* ---- shapes ---- */

/* "system:be kind|user:hi|assistant:hello", or "text:...", or the error. */
static const char *read_line(const char *line, text_format format)
{
    static char out[1000];
    text_chat c = {0};
    const json_t *text = NULL;
    json_t *root = json_loads(line, JSON_ALLOW_NUL, NULL);
    assert_non_null(root);
    out[0] = 0;
    if (text_chat_read(root, format, "f", 7, &c, &text) != ATOM_OK)
        snprintf(out, sizeof out, "%s", atom_fail_message());
    else if (text)
        snprintf(out, sizeof out, "text:%s", json_string_value(text));
    else
        for (size_t i = 0; i < c.n; i++)
            snprintf(out + strlen(out), sizeof out - strlen(out), "%s%s:%.*s", i ? "|" : "",
                     text_role_name(c.messages[i].role), (int)c.messages[i].bytes,
                     c.messages[i].text);
    text_chat_fini(&c);
    json_decref(root);
    return out;
}

static void shapes(void **state)
{
    (void)state;
    static const struct {
        const char *line, *want;
        text_format format;
    } cases[] = {
        {"{\"text\": \"x\"}", "text:x", TEXT_FORMAT_AUTO},
        {"{\"messages\": [{\"role\": \"developer\", \"content\": \"s\"}, {\"role\": \"user\", "
         "\"content\": \"\"}, {\"role\": \"assistant\", \"content\": \"a\"}]}",
         "system:s|user:|assistant:a", TEXT_FORMAT_AUTO},
        {"{\"system\": \"s\", \"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, "
         "{\"from\": \"gpt\", \"value\": \"a\"}, {\"from\": \"observation\", \"value\": \"o\"}]}",
         "system:s|user:q|assistant:a|tool:o", TEXT_FORMAT_AUTO},
        {"{\"instruction\": \"add\", \"input\": \"1 2\", \"output\": \"3\", \"history\": "
         "[[\"q\", \"a\"]], \"system\": \"\"}",
         "user:q|assistant:a|user:add\n1 2|assistant:3", TEXT_FORMAT_AUTO},
        {"{\"instruction\": \"add\", \"input\": \"\", \"output\": \"3\"}", "user:add|assistant:3",
         TEXT_FORMAT_AUTO},
        {"{\"instruction\": \"i\", \"output\": \"o\", \"text\": \"t\"}", "user:i|assistant:o",
         TEXT_FORMAT_ALPACA},
        {"{\"instruction\": \"i\", \"output\": \"o\", \"text\": \"t\"}", "text:t",
         TEXT_FORMAT_TEXT},
        {"{\"prompt\": \"p\", \"completion\": \"c\"}", "user:p|assistant:c", TEXT_FORMAT_AUTO},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [\"x\"]}, {\"role\": \"assistant\", "
         "\"content\": null, \"tool_calls\": [1]}], \"tools\": [1]}",
         "user:|assistant:", TEXT_FORMAT_AUTO},
        /* and what is wrong */
        {"{\"instruction\": \"i\", \"output\": \"o\", \"text\": \"t\"}",
         "f:7: the line has both \"text\" and \"instruction\"", TEXT_FORMAT_AUTO},
        {"{\"messages\": 3}", "f:7: its messages are not", TEXT_FORMAT_AUTO},
        {"{\"text\": \"x\"}", "f:7: it has no list", TEXT_FORMAT_MESSAGES},
        {"{\"messages\": []}", "f:7: the assistant says nothing", TEXT_FORMAT_AUTO},
        {"{\"messages\": [3]}", "f:7: messages[0] is not an object", TEXT_FORMAT_AUTO},
        {"{\"messages\": [{\"content\": \"x\"}]}", "f:7: messages[0] has no string \"role\"",
         TEXT_FORMAT_AUTO},
        {"{\"messages\": [{\"role\": \"elf\", \"content\": \"x\"}]}",
         "f:7: messages[0]: the role \"elf\"", TEXT_FORMAT_AUTO},
        {"{\"messages\": [{\"role\": \"user\", \"content\": null}]}",
         "f:7: messages[0] has no string \"content\"", TEXT_FORMAT_AUTO},
        {"{\"conversations\": [{\"from\": \"gpt\", \"value\": [\"x\"]}]}",
         "f:7: conversations[0] has no string \"value\"", TEXT_FORMAT_AUTO},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}",
         "f:7: the assistant says nothing", TEXT_FORMAT_AUTO},
        {"{\"messages\": [], \"tools\": 1}", "f:7: the \"tools\" are not a list", TEXT_FORMAT_AUTO},
        {"{\"conversations\": [{\"role\": \"user\", \"content\": \"x\"}]}",
         "f:7: conversations[0] has no string \"from\"", TEXT_FORMAT_AUTO},
        {"{\"instruction\": \"i\"}", "f:7: there is no \"output\"", TEXT_FORMAT_AUTO},
        {"{\"instruction\": \"i\", \"input\": 3, \"output\": \"o\"}",
         "f:7: the \"input\" is not a string", TEXT_FORMAT_AUTO},
        {"{\"instruction\": \"i\", \"history\": [[1]], \"output\": \"o\"}", "f:7: history[0]",
         TEXT_FORMAT_AUTO},
        {"{\"instruction\": 3}", "f:7: the \"instruction\" is not a string", TEXT_FORMAT_AUTO},
        {"{}", "f:7: there is no string \"text\"; it has no keys; a line must be",
         TEXT_FORMAT_AUTO},
        {"{\"Text\": \"a\", \"b\": 1}",
         "f:7: there is no string \"text\"; its keys are \"Text\", \"b\"; a line must be",
         TEXT_FORMAT_AUTO},
        {"{\"chosen\": \"a\", \"rejected\": \"b\"}", "f:7: \"chosen\"", TEXT_FORMAT_AUTO},
        {"[1]", "f:7: there is no string \"text\"; a line", TEXT_FORMAT_AUTO},
        {"{\"text\": null}", "f:7: there is no string \"text\", but it is null; a line must be",
         TEXT_FORMAT_AUTO},
        {"{\"text\": 5}", "f:7: there is no string \"text\", but it is a number; a line must be",
         TEXT_FORMAT_AUTO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = read_line(cases[i].line, cases[i].format);
        if (strncmp(got, cases[i].want, strlen(cases[i].want)) != 0)
            fail_msg("%s gave %s, not %s", cases[i].line, got, cases[i].want);
    }
}

/* ---- masks ---- */

static void masks_are_checked(void **state)
{
    (void)state;
    uint8_t bits[3] = {0xa5, 0x0f, 0x01}, *back = NULL;
    uint64_t hash, bytes;
    char *file = NULL;
    scratch s;
    scratch_open(&s);
    char path[700];
    snprintf(path, sizeof path, "%s", scratch_path(&s, "train_000000.mask"));
    must(text_mask_write(path, bits, 17));
    must(text_mask_read(path, 17, &back, &hash));
    assert_memory_equal(back, bits, 3);
    atom_free(back);
    assert_int_equal(text_mask_read(path, 18, &back, &hash), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "17 tokens, but its shard has 18"));
    must(atom_file_read(path, 1000, &file, &bytes));
    assert_int_equal(bytes, TEXT_MASK_HEADER_BYTES + 3);
    for (uint64_t i = 0; i < bytes; i++) { /* every byte matters */
        const uint8_t *at = NULL;
        file[i] ^= 4;
        assert_int_equal(text_mask_parse(file, bytes, 17, "m", &at, &hash), ATOM_E_FORMAT);
        assert_int_equal(text_mask_parse(file, i, 17, "m", &at, &hash), ATOM_E_FORMAT);
        file[i] ^= 4;
    }
    atom_free(file);
    scratch_close(&s);
}

/* A writer in small files: masks where a token does not count, none elsewhere, -1 in windows. */
static void masked_windows(void **state)
{
    (void)state;
    enum { N = 100, PER_FILE = 30, T = 7 };
    scratch s;
    scratch_open(&s);
    text_shard_writer *w = NULL;
    text_shards *shards = NULL;
    uint32_t ids[N];
    uint8_t marks[N], read[N];
    for (uint32_t i = 0; i < N; i++) {
        ids[i] = i;
        marks[i] = i < 30 || (i >= 37 && i % 3 != 0);
    }
    must(text_shard_writer_open(s.dir, "train", 300, PER_FILE, &w));
    must(text_shard_writer_put_marked(w, ids, marks, 35));
    must(text_shard_writer_put_marked(w, ids + 35, marks + 35, N - 35));
    must(text_shard_writer_end(w));
    text_shard_writer_close(&w);
    assert_false(atom_path_exists(scratch_path(&s, "train_000000.mask")));
    assert_true(atom_path_exists(scratch_path(&s, "train_000001.mask")));
    must(text_shards_open(s.dir, TEXT_TRAIN, 300, &shards));
    assert_true(text_shards_masked(shards));
    uint64_t hash = text_shards_hash(shards);
    text_shards_marks(shards, 0, N, read);
    assert_memory_equal(read, marks, N);
    int32_t tokens[14 * T], targets[14 * T];
    must(text_windows_read(shards, T, 0, 14, tokens, targets));
    for (int i = 0; i < 14 * T; i++) {
        assert_int_equal(tokens[i], i);
        assert_int_equal(targets[i], marks[i + 1] ? i + 1 : -1);
    }
    text_shards_close(&shards);
    /* cut inside a byte of the mask */
    char path[700];
    snprintf(path, sizeof path, "%s", scratch_path(&s, "train_000003.bin"));
    must(text_shard_cut(path, 5));
    must(text_shards_open(s.dir, TEXT_TRAIN, 300, &shards));
    assert_int_equal(text_shards_tokens(shards), 95);
    assert_true(text_shards_hash(shards) != hash);
    text_shards_marks(shards, 0, 95, read);
    assert_memory_equal(read, marks, 95);
    text_shards_close(&shards);
    scratch_write(&s, "train_000002.mask", "atommask", 8);
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 300, &shards), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "train_000002.mask"));
    scratch_close(&s);
}

/* ---- prepare ---- */

/* All of a split as text, what counts in «». */
static void expect_split(const char *dir, text_split split, const char *want)
{
    text_tokenizer *t = NULL;
    text_shards *shards = NULL;
    must(text_tokenizer_bytes(&t));
    must(text_shards_open(dir, split, 257, &shards));
    uint32_t n = (uint32_t)text_shards_tokens(shards);
    int32_t *ids = calloc(n, sizeof *ids);
    uint8_t *marks = calloc(n, 1);
    must(text_shards_read(shards, 0, n, ids));
    text_shards_marks(shards, 0, n, marks);
    char *out = calloc(n + 1, 8);
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (marks[i] && (i == 0 || !marks[i - 1]))
            at += (size_t)sprintf(out + at, "«");
        out[at++] = ids[i] == 256 ? '|' : (char)ids[i];
        if (marks[i] && (i + 1 == n || !marks[i + 1]))
            at += (size_t)sprintf(out + at, "»");
    }
    assert_string_equal(out, want);
    free(out);
    free(ids);
    free(marks);
    text_shards_close(&shards);
    text_tokenizer_close(&t);
}

static void prepare_chats(void **state)
{
    (void)state;
    static const char lines[] =
        "{\"prompt\": \"q\", \"completion\": \"one\"}\n{\"text\": \"a text\"}\n"
        "{\"instruction\": \"i\", \"output\": \"two\"}\n";
    scratch s;
    scratch_open(&s);
    char in[700], out[700];
    snprintf(in, sizeof in, "%s", scratch_write(&s, "a.jsonl", lines, sizeof lines - 1));
    snprintf(out, sizeof out, "%s", scratch_path(&s, "d"));
    const char *inputs[] = {in};
    text_prepare_options o = {
        .inputs = inputs,
        .inputs_n = 1,
        .tokenizer = "bytes",
        .output_dir = out,
        .template = {
            .name = "plain",
            .words = {.prefix = {[TEXT_USER] = "U:", [TEXT_ASSISTANT] = "A:"}, .suffix = " "}}};
    text_prepare_report r;
    must(text_prepare(&o, &r));
    expect_split(out, TEXT_TRAIN, "|U:q A:«one||a text»|U:i A:«two|»");
    assert_int_equal(r.chats, 2);
    assert_int_equal(r.targets, 4 + 7 + 4);
    assert_string_equal(r.template, "plain");
    o.force = true;
    o.loss_all = true;
    must(text_prepare(&o, &r));
    expect_split(out, TEXT_TRAIN, "«|U:q A:one||a text|U:i A:two|»");
    assert_false(atom_path_exists(scratch_path(&s, "d/train_000000.mask"))); /* the old one */
    o.loss_all = false;
    o.val_fraction = 0.4; /* the tail, with its marks */
    must(text_prepare(&o, &r));
    expect_split(out, TEXT_TRAIN, "|U:q A:«one||a text»");
    expect_split(out, TEXT_VAL, "|U:i A:«two|»");
    /* a template that refuses says where */
    o.template = (text_template_request){.name = "mistral"};
    static const char bad[] = "\n{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}]}\n";
    snprintf(in, sizeof in, "%s", scratch_write(&s, "a.jsonl", bad, sizeof bad - 1));
    assert_int_equal(text_prepare(&o, &r), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "a.jsonl:2: mistral, line 1: "));
    scratch_close(&s);
}

/* Fails at every allocation in turn: an error, nothing lost, nothing kept. */
static void survives_want_of_memory(void **state)
{
    (void)state;
    static const char lines[] =
        "{\"instruction\": \"i\", \"input\": \"x\", \"output\": \"two\"}\n{\"text\": \"t\"}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
        "\"content\": \"a\"}]}\n";
    scratch s;
    scratch_open(&s);
    char in[700], out[700];
    snprintf(in, sizeof in, "%s", scratch_write(&s, "a.jsonl", lines, sizeof lines - 1));
    snprintf(out, sizeof out, "%s", scratch_path(&s, "d"));
    const char *inputs[] = {in};
    bool done = false;
    for (uint64_t k = 1; !done; k += 1 + k / 16) {
        uint64_t before = atom_mem_read().live_blocks;
        text_prepare_options o = {.inputs = inputs,
                                  .inputs_n = 1,
                                  .tokenizer = "bytes",
                                  .output_dir = out,
                                  .template = {.name = "plain"},
                                  .val_fraction = 0.3,
                                  .force = true};
        atom_mem_fail_after(k);
        atom_status st = text_prepare(&o, NULL);
        atom_mem_fail_after(0);
        done = st == ATOM_OK;
        /* jansson's lexer takes want of memory for a wrong token */
        if (!done && st != ATOM_E_RESOURCE && st != ATOM_E_FORMAT)
            fail_msg("%llu: %s", (unsigned long long)k, atom_fail_message());
        assert_int_equal(atom_mem_read().live_blocks, before);
    }
    text_shards *shards = NULL;
    for (uint64_t k = 1, st = ATOM_E_RESOURCE; st != ATOM_OK; k++) {
        uint64_t before = atom_mem_read().live_blocks;
        atom_mem_fail_after(k);
        st = text_shards_open(out, TEXT_TRAIN, 257, &shards);
        atom_mem_fail_after(0);
        /* dataset.json is read, too; jansson's lexer again */
        assert_true(st == ATOM_OK || st == ATOM_E_RESOURCE || st == ATOM_E_FORMAT);
        assert_true(st == ATOM_OK || atom_mem_read().live_blocks == before);
    }
    text_shards_close(&shards);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(masks_are_checked),
        cmocka_unit_test(masked_windows),
        cmocka_unit_test(prepare_chats),
        cmocka_unit_test(survives_want_of_memory),
    };
    count_jansson();
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0); /* fsync is slow elsewhere */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
