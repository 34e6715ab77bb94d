/* The option engine: spellings, types, ranges, precedence, strict YAML, texts, no memory. */
#include "atom/options/options.h"

#include "atom/base/log.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct values {
    bool json, loud;
    int64_t count, width;
    double rate, share;
    uint64_t memory, link;
    char *text, *other;
    int32_t dtype;
    opt_list input;
} values;

static const opt_choice dtypes[] = {{"fp32", 5}, {"bf16", -1}, {0}};
static const char *const rate_names[] = {"lr", NULL};
#define AT(member) .offset = offsetof(values, member)
static const opt_spec specs[] = {
    {.name = "json", .type = OPT_FLAG, AT(json), .flags = OPT_CLI_ONLY, .help = "One object."},
    {.name = "loud", .type = OPT_FLAG, AT(loud), .fallback = "true", .help = "Noise."},
    {.name = "count",
     .type = OPT_INT,
     AT(count),
     .fallback = "7",
     .min = 1,
     .max = 100,
     .letter = 'c',
     .help = "How many."},
    {.name = "width", .type = OPT_INT, AT(width), .fallback = "auto", .flags = OPT_AUTO},
    {.name = "rate", .type = OPT_NUMBER, AT(rate), .fallback = "3e-4", .aliases = rate_names},
    {.name = "share", .type = OPT_NUMBER, AT(share), .min = 0, .max = 1, .flags = OPT_BELOW_MAX},
    {.name = "device_memory",
     .type = OPT_SIZE,
     AT(memory),
     .fallback = "auto",
     .flags = OPT_AUTO,
     .help = "Cap."},
    {.name = "link_bandwidth", .type = OPT_RATE, AT(link)},
    {.name = "text",
     .type = OPT_TEXT,
     AT(text),
     .value = "FILE",
     .fallback = "x.json",
     .letter = 'o'},
    {.name = "other", .type = OPT_TEXT, AT(other), .group = "More"},
    {.name = "dtype", .type = OPT_CHOICE, AT(dtype), .choices = dtypes, .fallback = "fp32"},
    {.name = "input", .type = OPT_LIST, AT(input), .value = "FILE..."},
};
static const opt_command command = {.name = "try",
                                    .summary = "try things",
                                    .description = "First.\nSecond.\n  file:   # as it stands\n",
                                    .examples = "atom try\n",
                                    .positional = "[CONFIG.yml]",
                                    .positional_max = 1,
                                    .config_file = true,
                                    OPT_TABLE(specs, values)};

static atom_status parse(values *v, opt_parsed *parsed, const char *words)
{
    char copy[512], *argv[32], *save = NULL;
    int argc = 0;
    snprintf(copy, sizeof copy, "%.511s", words);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    return opt_parse(&command, argc, argv, v, parsed);
}

static void defaults(void **state)
{
    values v;
    opt_parsed parsed;
    (void)state;
    assert_int_equal(parse(&v, &parsed, ""), ATOM_OK);
    assert_false(v.json);
    assert_true(v.loud);
    assert_int_equal(v.count, 7);
    assert_int_equal(v.width, -1);
    assert_true(v.rate == 3e-4);
    assert_int_equal(v.memory, 0);
    assert_string_equal(v.text, "x.json");
    assert_null(v.other);
    assert_int_equal(v.input.n, 0);
    opt_free(&command, &v);
}

static void spellings(void **state)
{
    values v;
    opt_parsed parsed;
    (void)state;
    assert_int_equal(parse(&v, &parsed,
                           "--device-memory 8GiB --link_bandwidth=2GB/s -c 9 -o y --json --no-loud "
                           "--lr 1e-3 --dtype bf16 --input a b --width=-3 --input c --other -"),
                     ATOM_OK);
    assert_int_equal(v.memory, 8ull << 30);
    assert_int_equal(v.link, 2000000000);
    assert_int_equal(v.count, 9);
    assert_string_equal(v.text, "y");
    assert_true(v.json);
    assert_false(v.loud);
    assert_true(v.rate == 1e-3);
    assert_int_equal(v.dtype, -1);
    assert_int_equal(v.input.n, 3);
    assert_string_equal(v.input.items[2], "c");
    assert_int_equal(v.width, -3);
    assert_string_equal(v.other, "-");
    assert_true(opt_given(&command, &parsed, "rate"));
    assert_false(opt_given(&command, &parsed, "share"));
    opt_free(&command, &v);
    assert_int_equal(parse(&v, &parsed, "--json false --loud true --device_memory=auto"), ATOM_OK);
    assert_false(v.json);
    assert_true(v.loud);
    opt_free(&command, &v);
    assert_int_equal(parse(&v, &parsed, "--rate 1e-45"), ATOM_OK);
    assert_true((float)v.rate > 0);
    opt_free(&command, &v);
    assert_int_equal(parse(&v, &parsed, "--rate 0e-400"), ATOM_OK);
    assert_true(v.rate == 0);
    opt_free(&command, &v);
    assert_int_equal(parse(&v, &parsed, "--count 5 -h --nonsense"), ATOM_OK);
    assert_true(parsed.help);
    opt_free(&command, &v);
}

static void refused(void **state)
{
    static const char *const cases[][2] = {
        {"--cuont 3", "unknown option '--cuont' of 'try' (did you mean '--count'?)"},
        {"--zzzzzz", "unknown option '--zzzzzz' of 'try'; --help lists them"},
        {"--count x", "--count: 'x' is not a whole number"},
        {"--count 3x", "--count: '3x' is not a whole number"},
        {"--count 3.5", "--count: '3.5' is not a whole number"},
        {"--count 99999999999999999999",
         "--count: 99999999999999999999 is too large; it must be at most 100"},
        {"--count 0", "--count: 0 is too small; it must be at least 1"},
        {"--count 101", "--count: 101 is too large; it must be at most 100"},
        {"--count", "option '--count' needs a value"},
        {"--share 1", "--share: 1 is too large; it must be less than 1"},
        {"--share 0.9999999999",
         "--share: 0.9999999999 is too close to 1: in fp32 it would be that; write less"},
        {"--rate nan", "--rate: 'nan' is not a number"},
        {"--rate inf", "--rate: 'inf' is not a number"},
        {"--rate 1e-46", "--rate: 1e-46 is too small: in fp32 it would be 0; write 1e-45 or more"},
        {"--rate -1e-320", "--rate: -1e-320 is too small: in fp32"},
        {"--rate 1e-400", "--rate: 1e-400 is too small: in fp32"},
        {"--width=", "--width: '' is not a whole number (or auto)"},
        {"--device-memory 8GiBi", "--device-memory: '8GiBi' is not a size"},
        {"--link-bandwidth 8GB/h", "--link-bandwidth: '8GB/h' is not a rate"},
        {"--link-bandwidth 100Mb/s", "--link-bandwidth: '100Mb/s' may mean bits or bytes"},
        {"--link-bandwidth 16gb", "'16gb' may mean bits or bytes; write bytes with a large B"},
        {"--dtype bf61", "--dtype: 'bf61' is none of: fp32, bf16 (did you mean 'bf16'?)"},
        {"--json=maybe", "--json: 'maybe' is neither true nor false"},
        {"--input", "option '--input' needs a value"},
        {"--text --json", "option '--text' needs a value, but '--json' looks like the next option"},
        {"--other --no-loud", "option '--other' needs a value"},
        {"--other --lr=1", "option '--other' needs a value"},
        {"-o -c 5", "option '-o' needs a value, but '-c' looks like the next option"},
        {"--input --json", "option '--input' needs a value"},
        {"--input=", "--input: it is empty; name a file, or leave it out"},
        {"--text=", "--text: it is empty; name a file"},
        {"--text=run\n", "--text: the name of a file ends with a line end"},
        {"--text false", "--text: 'false' would be the name of a file; leave it out for none, or"},
        {"--input a None", "--input: 'None' would be the name of a file"},
        {"--text ${OUT}/x", "--text: '${OUT}/x': only a shell replaces the variable ${OUT} by"},
        {"--input a/$OUT", "only a shell replaces the variable $OUT by its value"},
        {"-x", "unknown option '-x'"},
        {"-co 3", "unknown option '-co'"},
        {"--no-count", "unknown option '--no-count'"},
        {"nowhere.yml", "there is no configuration file nowhere.yml"},
        {"a.yml b.yml", "'b.yml': unexpected argument"},
    };
    values v;
    opt_parsed parsed;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(parse(&v, &parsed, cases[i][0]), ATOM_E_USAGE);
        if (!strstr(atom_fail_message(), cases[i][1]))
            fail_msg("%s: %s", cases[i][0], atom_fail_message());
        assert_null(v.text);
    }
}

static atom_status read_yaml(values *v, const char *text)
{
    opt_parsed parsed;
    assert_int_equal(opt_defaults(&command, v, &parsed), ATOM_OK);
    return opt_read_text(&command, "c.yml", text, strlen(text), v, &parsed);
}

static void yaml(void **state)
{
    values v;
    (void)state;
    assert_int_equal(read_yaml(&v, "# nothing\n"), ATOM_OK);
    opt_free(&command, &v);
    assert_int_equal(read_yaml(&v, ""), ATOM_OK);
    opt_free(&command, &v);
    assert_int_equal(read_yaml(&v, "---\ncount: 08\nrate: 1e-4  # as text\nother: no\nloud: off\n"
                                   "text: \"null\"\ninput: [a, 'b c']\ndevice_memory: 512 MiB\n"),
                     ATOM_OK);
    assert_int_equal(v.count, 8);
    assert_true(v.rate == 1e-4);
    assert_string_equal(v.other, "no");
    assert_string_equal(v.text, "null");
    assert_false(v.loud);
    assert_int_equal(v.input.n, 2);
    assert_string_equal(v.input.items[1], "b c");
    assert_int_equal(v.memory, 512u << 20);
    opt_free(&command, &v);
    assert_int_equal(read_yaml(&v, "\xef\xbb\xbf"
                                   "count: 5\r\nrate: 2\r\n"),
                     ATOM_OK);
    assert_int_equal(v.count, 5);
    opt_free(&command, &v);
    assert_int_equal(read_yaml(&v, "{\"count\": 3, \"lr\": 0.5, \"input\": \"one\"}"), ATOM_OK);
    assert_int_equal(v.count, 3);
    assert_true(v.rate == 0.5);
    assert_int_equal(v.input.n, 1);
    opt_free(&command, &v);
}

static void yaml_refused(void **state)
{
    static const char *const cases[][2] = {
        {"count: 1\ncuont: 3\n", "c.yml:2:1: unknown key 'cuont' (did you mean 'count'?)"},
        {"qqqqqqq: 3\n", "c.yml:1:1: unknown key 'qqqqqqq'; 'try --help' lists them"},
        {"device-memory: 3\n", "c.yml:1:1: unknown key 'device-memory' (did you mean"},
        {"count: 1\nrate: 1\ncount: 2\n", "c.yml:3:1: 'count' was already set in line 1"},
        {"rate: 1\nlr: 2\n", "c.yml:2:1: 'lr' was already set in line 1"},
        {"rate: &a 1\n", "c.yml:1:7: anchors"},
        {"rate: &a 1\ncount: *a\n", "anchors"},
        {"rate: *a\n", "c.yml:1:7: aliases"},
        {"rate: !!float 1\n", "c.yml:1:7: tags"},
        {"!!map {rate: 1}\n", "anchors and tags"},
        {"? [a]\n: 1\n", "c.yml:1:3: a key must be a plain value, not a list"},
        {"count: [1]\n", "c.yml:1:8: count must be a plain value, not a list"},
        {"count: {a: 1}\n", "c.yml:1:8: count must be a plain value, not a mapping"},
        {"input: [[a]]\n", "c.yml:1:9: input must be a plain value, not a list"},
        {"count:\n", "c.yml:1:7: 'count' has no value"},
        {"count: ~\n", "'count' has no value"},
        {"count: many\n", "c.yml:1:8: count: 'many' is not a whole number"},
        {"json: true\n", "c.yml:1:1: 'json' can only be given on the command line"},
        {"count: 1\n---\ncount: 2\n", "a second YAML document"},
        {"- a\n", "c.yml:1:1: expected `key: value` lines"},
        {"hello\n", "c.yml:1:1: expected `key: value` lines"},
        {"count: \"1\n", "not YAML"},
        {"other: \"a\\0b\"\n", "NUL"},
        {"count: 1\n\tx: 2\n", "not YAML"},
        {"other: \xff\n", "c.yml: byte 7"},
    };
    values v;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(read_yaml(&v, cases[i][0]), ATOM_E_USAGE);
        if (!strstr(atom_fail_message(), cases[i][1]))
            fail_msg("%s-> %s", cases[i][0], atom_fail_message());
        opt_free(&command, &v);
    }
}

static void precedence(void **state)
{
    scratch s;
    values v;
    opt_parsed parsed;
    char words[1024];
    (void)state;
    scratch_open(&s);
    const char *path = scratch_write(&s, "c.yml", "count: 3\nrate: 5\ninput: [q]\n", 27);
    snprintf(words, sizeof words, "--count 4 %s --input r s", path);
    assert_int_equal(parse(&v, &parsed, words), ATOM_OK);
    assert_int_equal(v.count, 4);
    assert_true(v.rate == 5);
    assert_int_equal(v.input.n, 2); /* the command line's list replaces the file's */
    opt_free(&command, &v);
    scratch_close(&s);
}

/* What is printed reads back as the same values. */
static void printed(void **state)
{
    values v, w;
    opt_parsed parsed;
    char *text = NULL, *again = NULL, *json = NULL;
    (void)state;
    assert_int_equal(parse(&v, &parsed,
                           "--rate 0.1 --count 9 --input a:b # --device-memory 1536MiB "
                           "--other -q --share 0.333333333333333314"),
                     ATOM_OK);
    assert_int_equal(opt_print(&command, &v, &parsed, true, &text), ATOM_OK);
    assert_non_null(strstr(text, "device_memory: 1536MiB  # command line\n"));
    assert_non_null(strstr(text, "rate: 0.1  # command line\n"));
    assert_non_null(strstr(text, "width: auto  # default\n"));
    assert_non_null(strstr(text, "\"a:b\""));
    assert_null(strstr(text, "\njson:"));
    assert_int_equal(read_yaml(&w, text), ATOM_OK);
    assert_int_equal(opt_print(&command, &w, NULL, false, &again), ATOM_OK);
    assert_true(w.share == v.share);
    assert_string_equal(w.other, "-q");
    assert_int_equal(opt_print_json(&command, &v, &json), ATOM_OK);
    assert_non_null(strstr(json, "\"dtype\":\"fp32\""));
    atom_free(text);
    atom_free(again);
    atom_free(json);
    opt_free(&command, &v);
    opt_free(&command, &w);
}

static void commands(void **state)
{
    static const opt_command prepare = {.name = "data prepare", .summary = "p"};
    static const opt_command inspect = {.name = "data inspect", .summary = "i"};
    static const opt_command *const all[] = {&command, &prepare, &inspect};
    const opt_command *found = NULL;
    int used = 0;
    (void)state;
    assert_int_equal(opt_find_command(all, 3, 3, (char *[]){"data", "inspect", "x"}, &found, &used),
                     ATOM_OK);
    assert_ptr_equal(found, &inspect);
    assert_int_equal(used, 2);
    assert_int_equal(opt_find_command(all, 3, 1, (char *[]){"try"}, &found, &used), ATOM_OK);
    assert_int_equal(used, 1);
    assert_int_equal(opt_find_command(all, 3, 1, (char *[]){"ry"}, &found, &used), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "did you mean 'try'?"));
    assert_int_equal(opt_find_command(all, 3, 1, (char *[]){"data"}, &found, &used), ATOM_E_USAGE);
    assert_string_equal(atom_fail_message(), "'data' needs one of: prepare, inspect");
    assert_int_equal(opt_find_command(all, 3, 2, (char *[]){"data", "prepaer"}, &found, &used),
                     ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "did you mean 'data prepare'?"));
    assert_int_equal(opt_find_command(all, 3, 0, NULL, &found, &used), ATOM_E_USAGE);
}

static void texts(void **state)
{
    static const opt_command *const all[] = {&command};
    char *text = NULL;
    (void)state;
    assert_int_equal(opt_help("atom", &command, &text), ATOM_OK);
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        char plain[64];
        snprintf(plain, sizeof plain, "--%s", specs[i].name);
        for (char *c = plain; *c; c++)
            *c = *c == '_' ? '-' : *c;
        assert_non_null(strstr(text, plain));
    }
    assert_non_null(strstr(text, "-c, --count N"));
    assert_non_null(strstr(text, "Second.\n  file:   # as it stands\n"));
    assert_non_null(strstr(text, "Range: 1 to 100. [7]"));
    atom_free(text);
    assert_int_equal(opt_help_all("atom", "trains", all, 1, &text), ATOM_OK);
    assert_non_null(strstr(text, "try things"));
    atom_free(text);
    assert_int_equal(opt_man("atom", "0.1.0", &command, &text), ATOM_OK);
    assert_non_null(strstr(text, ".TH ATOM-TRY 1"));
    assert_non_null(strstr(text, "\\-\\-device\\-memory"));
    atom_free(text);
    assert_int_equal(opt_completion_bash("atom", all, 1, &text), ATOM_OK);
    assert_non_null(strstr(text, "--link-bandwidth"));
    atom_free(text);
}

/* Keys of a section of the configuration stand in the help of the command, but for those that the program fills in. */
static void sections(void **state)
{
    static const opt_spec keys[] = {
        {.name = "sync_steps",
         .type = OPT_INT,
         .fallback = "20",
         .min = 1,
         .max = 99,
         .help = "H."},
        {.name = "late", .type = OPT_FLAG, .fallback = "false", .help = "Whether."},
        {.name = "hash", .type = OPT_INT, .flags = OPT_FILLED, .help = "Nobody's."},
    };
    static const opt_command section = {.name = "keys", OPT_TABLE(keys, values)};
    static const opt_command whole = {.name = "try",
                                      .summary = "try things",
                                      .section = &section,
                                      .section_title = "Keys below",
                                      OPT_TABLE(specs, values)};
    char *text = NULL;
    (void)state;
    assert_int_equal(opt_help("atom", &whole, &text), ATOM_OK);
    assert_non_null(strstr(text, "--input"));
    assert_non_null(strstr(text,
                           "\nKeys below:\n  sync_steps: N               H. Range: 1 to 99. [20]\n"
                           "  late: true|false            Whether. [false]\n"));
    assert_null(strstr(text, "hash"));
    atom_free(text);
    assert_int_equal(opt_man("atom", "0.1.0", &whole, &text), ATOM_OK);
    assert_non_null(strstr(text, ".SS Keys below\n.TP\n.B sync_steps: \\fIN\\fR\nH. Default: 20."));
    assert_null(strstr(text, "hash"));
    assert_non_null(strstr(text, "5 training diverged, 129, 130 or 143 after a signal."));
    atom_free(text);
}

/* bash agrees that it is bash, and completes. */
static void completes(void **state)
{
    static const opt_command *const all[] = {&command};
    scratch s;
    char *text = NULL, line[2048], got[256] = "";
    (void)state;
    scratch_open(&s);
    assert_int_equal(opt_completion_bash("atom", all, 1, &text), ATOM_OK);
    const char *path = scratch_write(&s, "completion", text, strlen(text));
    snprintf(line, sizeof line,
             "bash -c 'source %s; COMP_WORDS=(atom try --dtype b); COMP_CWORD=3; _atom; "
             "echo ${COMPREPLY[@]}; COMP_WORDS=(atom try --dev); COMP_CWORD=2; _atom; "
             "echo ${COMPREPLY[@]}'",
             path);
    FILE *f = popen(line, "r");
    assert_non_null(f);
    size_t n = fread(got, 1, sizeof got - 1, f);
    got[n] = 0;
    assert_int_equal(pclose(f), 0);
    assert_string_equal(got, "bf16\n--device-memory\n");
    atom_free(text);
    scratch_close(&s);
}

static void no_memory(void **state)
{
    values v;
    opt_parsed parsed;
    char *text = NULL;
    (void)state;
    uint64_t before = atom_mem_read().live_blocks;
    for (uint64_t n = 1;; n++) {
        atom_mem_fail_after(n);
        atom_status st = parse(&v, &parsed, "--text a --other b --input a b c");
        if (st == ATOM_OK)
            st = opt_help("atom", &command, &text);
        atom_mem_fail_after(0);
        bool done = st == ATOM_OK;
        assert_true(done || st == ATOM_E_RESOURCE);
        opt_free(&command, &v);
        if (done)
            atom_free(text);
        assert_int_equal(atom_mem_read().live_blocks, before);
        if (done) {
            assert_true(n > 5);
            return;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults), cmocka_unit_test(spellings),    cmocka_unit_test(refused),
        cmocka_unit_test(yaml),     cmocka_unit_test(yaml_refused), cmocka_unit_test(precedence),
        cmocka_unit_test(printed),  cmocka_unit_test(commands),     cmocka_unit_test(texts),
        cmocka_unit_test(sections), cmocka_unit_test(completes),    cmocka_unit_test(no_memory),
    };
    atom_log_set_level(ATOM_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
