/*
 * Questions in JSONL: every shape is read, what is wrong is refused with its file and line, limits;
 * whole files, packed ones too; want of memory.
 */
#include "atom/text/choices.h"

#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <zlib.h>

#include <cmocka.h>

/* "context|answer|*right|answer", or the error. */
static void show(const text_question *q, char *out, size_t bytes)
{
    size_t at = (size_t)snprintf(out, bytes, "%.*s", (int)q->context.bytes, q->context.text);
    for (uint32_t i = 0; i < q->n; i++)
        at += (size_t)snprintf(out + at, bytes - at, "|%s%.*s", i == q->answer ? "*" : "",
                               (int)q->choices[i].bytes, q->choices[i].text);
}

static const char *read_line(const char *line, size_t flags)
{
    static char out[1000];
    text_question q = {.n = 77};
    json_t *root = json_loads(line, flags, NULL);
    if (!root)
        fail_msg("%s is no JSON", line);
    if (text_question_read(root, "f", 7, &q) != ATOM_OK) {
        assert_int_equal(q.n, 77);
        snprintf(out, sizeof out, "%s", atom_fail_message());
    } else {
        assert_string_equal(q.name, "f");
        assert_int_equal(q.line, 7);
        show(&q, out, sizeof out);
    }
    json_decref(root);
    return out;
}

typedef struct line_case {
    const char *line, *want;
} line_case;

static void check_cases(const line_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (int reals = 0; reals < 2; reals++) {
            const char *got = read_line(cases[i].line, reals ? JSON_DECODE_INT_AS_REAL : 0);
            if (strcmp(got, cases[i].want) != 0)
                fail_msg("%s gave %s, not %s", cases[i].line, got, cases[i].want);
        }
    }
}

static void shapes(void **state)
{
    static const line_case cases[] = {
        {"{\"ctx\": \"c\", \"endings\": [\"a\", \"b\", \"d\"], \"label\": 2, \"ind\": 9}",
         "c|a|b|*d"},
        {"{\"ctx\": \"\", \"endings\": [\" a\", \"b\"], \"label\": \"1\"}", "| a|*b"},
        {"{\"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": 0}", "q|*a|b"},
        {"{\"context\": \"\", \"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": 0}",
         "q|*a|b"},
        {"{\"prompt\": \"p\", \"choices\": [\"a\", \"b\"], \"answer\": \"B\"}", "p|a|*b"},
        {"{\"prompt\": \"\", \"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": \"1\"}",
         "q|a|*b"},
        {"{\"question\": \"q\", \"choices\": {\"text\": [\"a\", \"b\", \"c\"], \"label\": [\"1\", "
         "\"2\", \"3\"]}, \"answerKey\": \"3\"}",
         "q|a|b|*c"},
        {"{\"question\": \"q\", \"choices\": {\"text\": [\"a\", \"b\"], \"label\": [\"A\", "
         "\"B\"]}, \"answerKey\": \"A\"}",
         "q|*a|b"},
        {"{\"question\": \"q\", \"choices\": [\"0\", \"1\"], \"answer\": \"1\"}", "q|0|*1"},
        {"{\"question\": \"q\", \"choices\": [\"1\", \"0\"], \"answer\": 1}", "q|1|*0"},
        {"{\"goal\": \"g\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": 1}", "g|a|*b"},
        {"{\"goal\": \"g\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": \"0\"}", "g|*a|b"},
        {"{\"goal\": \"g\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": 1, \"answer\": \"B\"}",
         "g|a|*b"},
        {"{\"goal\": \"g\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": 1, \"answer\": \"b\"}",
         "g|a|*b"},
        {"{\"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": 1, \"label\": "
         "\"physics\"}",
         "q|a|*b"},
    };
    (void)state;
    check_cases(cases, sizeof cases / sizeof *cases);
}

#define ABOUT(key)                                                                                 \
    "f:7: there is a \"" key                                                                       \
    "\" beside the question, which would not be asked with it; write both "                        \
    "into \"question\", as the model should read them, and leave out \"" key "\""
#define GENERAL(answer) "{\"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": " answer "}"
#define ARC(label, key)                                                                            \
    "{\"question\": \"q\", \"choices\": {\"text\": [\"a\", \"b\"], \"label\": " label "}" key "}"
#define NO_KEY "f:7: there is no string \"answerKey\" that says which answer is right"
#define NO_NAMES "f:7: \"choices.label\" is not a list of as many names as there are answers"
#define NO_SHAPE                                                                                   \
    "f:7: this is not a question: a line needs \"endings\" (HellaSwag), \"choices\", or \"sol1\" " \
    "and \"sol2\" "                                                                                \
    "(PIQA)"

static void wrong_lines(void **state)
{
    static const line_case cases[] = {
        {"{}", NO_SHAPE},
        {"{\"goal\": \"g\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": 1, \"image\": {\"path\": "
         "\"x\"}}",
         "f:7: there is \"image\" beside the text, but atom reads only text; remove the line"},
        {"[\"endings\"]", NO_SHAPE},
        {"{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": 0, \"answer\": 1}",
         "f:7: \"label\" says that answer 0 is right (counted from 0), but \"answer\" that answer "
         "1 is; "
         "leave out the wrong one"},
        {"{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": \"1\", \"answer\": \"a\"}",
         "f:7: \"label\" says that answer 1 is right (counted from 0), but \"answer\" that answer "
         "0 is; "
         "leave out the wrong one"},
        {"{\"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": \"A\", \"label\": 1}",
         "f:7: \"answer\" says that answer 0 is right (counted from 0), but \"label\" that answer "
         "1 is; "
         "leave out the wrong one"},
        {"{\"goal\": \"g\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": 1, \"answerKey\": \"A\"}",
         "f:7: \"label\" says that answer 1 is right (counted from 0), but \"answerKey\" that "
         "answer 0 "
         "is; leave out the wrong one"},
        {"{\"endings\": [\"a\", \"b\"], \"label\": 0}", "f:7: there is no \"ctx\""},
        {"{\"ctx\": 3, \"endings\": [\"a\", \"b\"], \"label\": 0}", "f:7: \"ctx\" is not a string"},
        {"{\"ctx\": \"c\", \"endings\": \"ab\", \"label\": 0}",
         "f:7: \"endings\" is not a list of strings"},
        {"{\"ctx\": \"c\", \"endings\": [\"a\"], \"label\": 0}",
         "f:7: \"endings\" has 1 answers; there must be 2 to 26"},
        {"{\"ctx\": \"c\", \"endings\": [\"a\", 4], \"label\": 0}",
         "f:7: answer 1 (counted from 0) is not a string"},
        {"{\"ctx\": \"c\", \"endings\": [\"\", \"b\"], \"label\": 0}",
         "f:7: answer 0 (counted from 0) is empty, so it has no score"},
        {"{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"]}",
         "f:7: there is no \"label\" that says which answer is right"},
        {"{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": \"\"}",
         "f:7: \"label\" is not the number of an answer, counted from 0"},
        {"{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": \"A\"}",
         "f:7: \"label\" is not the number of an answer, counted from 0"},
        {"{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": \"2\"}",
         "f:7: \"label\" is \"2\", but there are 2 answers, counted from 0"},
        {"{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": \"-1\"}",
         "f:7: \"label\" is not the number of an answer, counted from 0"},
        {"{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": \"4294967296\"}",
         "f:7: \"label\" is not the number of an answer, counted from 0"},
        {"{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": -1}",
         "f:7: \"label\" is -1, but the 2 answers are counted from 0"},
        {"{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": 2}",
         "f:7: \"label\" is 2, but the 2 answers are counted from 0"},
        {"{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": 0.5}",
         "f:7: \"label\" is 0.5, but the 2 answers are counted from 0"},
        {"{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": true}",
         "f:7: \"label\" is not the number of an answer, counted from 0"},
        {GENERAL("\"C\""),
         "f:7: \"answer\" is \"C\", but there are 2 answers, counted from 0 or \"A\""},
        {GENERAL("\"a\""), "f:7: \"answer\" is not the number of an answer, counted from 0, nor "
                           "its letter, from \"A\""},
        {GENERAL("null"), "f:7: \"answer\" is not the number of an answer, counted from 0, nor its "
                          "letter, from \"A\""},
        {"{\"question\": \"q\", \"choices\": [\"1\", \"0\"], \"answer\": \"1\"}",
         "f:7: \"answer\" is \"1\", which may mean answer 1 (counted from 0), or answer 0, whose "
         "text it is; write the number of the right one without quotes"},
        {"{\"question\": \"q\", \"choices\": [\"a\", \"b\", \"A\"], \"answer\": \"A\"}",
         "f:7: \"answer\" is \"A\", which may mean answer 0 (counted from 0), or answer 2, whose "
         "text it is; write the number of the right one without quotes"},
        {"{\"question\": \"q\", \"choices\": [\"a\", \"b\"]}",
         "f:7: there is no \"answer\" that says which answer is right"},
        {"{\"choices\": [\"a\", \"b\"], \"answer\": 0}", "f:7: there is no \"question\""},
        {"{\"passage\": \"p\", \"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": 0}",
         ABOUT("passage")},
        {"{\"support\": \"p\", \"prompt\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": 0}",
         ABOUT("support")},
        {"{\"hint\": \"p\", \"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": 0}",
         ABOUT("hint")},
        {"{\"prompt\": \"p\", \"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": 0}",
         "f:7: there are both a \"question\" and a \"prompt\", of which one would not be asked; "
         "write them "
         "into one"},
        {"{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": 0, \"question\": \"q\", "
         "\"choices\": "
         "[\"a\", \"b\"], \"answer\": 1}",
         "f:7: there are two questions in it: it has more than one of \"endings\", \"choices\" and "
         "\"sol1\"; leave out one of them"},
        {ARC("[\"A\", \"A\"]", ", \"answerKey\": \"A\""),
         "f:7: \"choices.label\" has \"A\", which \"answerKey\" names, twice"},
        {"{\"question\": \"q\", \"choices\": \"a\", \"answer\": 0}",
         "f:7: \"choices\" is not a list of strings"},
        {"{\"question\": \"q\", \"choices\": {}, \"answerKey\": \"A\"}",
         "f:7: \"choices.text\" is not a list of strings"},
        {ARC("[\"A\"]", ", \"answerKey\": \"A\""), NO_NAMES},
        {ARC("3", ", \"answerKey\": \"A\""), NO_NAMES},
        {ARC("[\"A\", \"B\"]", ""), NO_KEY},
        {ARC("[0, 1]", ", \"answerKey\": 1"), NO_KEY},
        {ARC("[0, 1]", ", \"answerKey\": \"1\""),
         "f:7: \"answerKey\" is \"1\", which is none of \"choices.label\""},
        {"{\"goal\": \"g\", \"sol1\": \"a\", \"label\": 0}",
         "f:7: there is no \"sol2\" beside \"sol1\""},
        {"{\"goal\": \"g\", \"sol1\": \"a\", \"sol2\": \"b\"}",
         "f:7: there is no \"label\" that says which answer is right"},
    };
    (void)state;
    check_cases(cases, sizeof cases / sizeof *cases);
}

/* As many answers as there are letters, and one more. */
static void limits(void **state)
{
    char line[1000];
    (void)state;
    for (int n = TEXT_CHOICES_MAX; n <= TEXT_CHOICES_MAX + 1; n++) {
        size_t at = (size_t)snprintf(line, sizeof line, "{\"prompt\": \"p\", \"choices\": [\"x\"");
        for (int i = 1; i < n; i++)
            at += (size_t)snprintf(line + at, sizeof line - at, ", \"%d\"", i);
        snprintf(line + at, sizeof line - at, "], \"answer\": \"Z\"}");
        const char *got = read_line(line, 0);
        if (n == TEXT_CHOICES_MAX)
            assert_non_null(strstr(got, "|24|*25"));
        else
            assert_string_equal(got, "f:7: \"choices\" has 27 answers; there must be 2 to 26");
    }
}

/* --- files --- */

typedef struct seen {
    char text[200];
    size_t at;
    uint64_t lines[4];
    uint64_t n;
} seen;

static atom_status collect(void *ctx, const text_question *q)
{
    seen *s = ctx;
    assert_true(s->n < 4);
    s->lines[s->n++] = q->line;
    show(q, s->text + s->at, sizeof s->text - s->at);
    s->at = strlen(s->text);
    return ATOM_OK;
}

static const char two[] = "\xef\xbb\xbf{\"ctx\": \"c\", \"endings\": [\"a\\u0000b\", \"b\"], "
                          "\"label\": 1}\r\n\n  \n"
                          "{\"goal\": \"\\u00e9\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": 0}";

static void files(void **state)
{
    scratch s;
    char packed[1000];
    (void)state;
    scratch_open(&s);
    const char *plain = scratch_write(&s, "q.jsonl", two, sizeof two - 1);
    const char *gz = scratch_path(&s, "q.ndjson.gz");
    gzFile f = gzopen(gz, "wb");
    assert_int_equal(gzwrite(f, two, sizeof two - 1), sizeof two - 1);
    gzclose(f);
    for (int k = 0; k < 2; k++) {
        for (uint64_t limit = 0; limit <= 3; limit++) {
            seen got = {.n = 0};
            uint64_t n = 0, want = limit == 1 ? 1 : 2;
            assert_int_equal(text_questions_read(k ? gz : plain, limit, collect, &got, &n),
                             ATOM_OK);
            assert_int_equal(n, want);
            assert_int_equal(got.n, want);
            assert_int_equal(got.lines[0], 1);
            assert_int_equal(got.lines[1], want == 2 ? 4 : 0);
        }
    }
    /* what is behind the limit is not looked at */
    snprintf(packed, sizeof packed, "%s\n{\"ctx\"", two);
    const char *bad = scratch_write(&s, "bad.jsonl", packed, strlen(packed));
    seen got = {.n = 0};
    assert_int_equal(text_questions_read(bad, 2, collect, &got, NULL), ATOM_OK);
    got = (seen){.n = 0};
    assert_int_equal(text_questions_read(bad, 3, collect, &got, NULL), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "bad.jsonl:5:"));
    assert_int_equal(got.n, 2);
    scratch_close(&s);
}

static void refuse_file(scratch *s, const char *name, const char *text, atom_status want,
                        const char *word)
{
    seen got = {.n = 0};
    uint64_t n = 99;
    const char *path = text ? scratch_write(s, name, text, strlen(text)) : scratch_path(s, name);
    assert_int_equal(text_questions_read(path, 0, collect, &got, &n), want);
    assert_int_equal(n, 99);
    if (!strstr(atom_fail_message(), word) || !strstr(atom_fail_message(), name))
        fail_msg("'%s' does not say '%s' and '%s'", atom_fail_message(), name, word);
}

static atom_status give_up(void *ctx, const text_question *q)
{
    (void)ctx, (void)q;
    return atom_fail(ATOM_E_DIVERGED, "enough");
}

static void wrong_files(void **state)
{
    scratch s;
    (void)state;
    scratch_open(&s);
    refuse_file(&s, "none.jsonl", NULL, ATOM_E_FORMAT, "no such file");
    refuse_file(&s, "q.txt", two, ATOM_E_USAGE, "one JSON object per line");
    refuse_file(&s, "q.json", two, ATOM_E_USAGE, "one JSON object per line");
    refuse_file(&s, "empty.jsonl", "", ATOM_E_FORMAT, "no question");
    refuse_file(&s, "blank.jsonl", "\n \n", ATOM_E_FORMAT, "no question");
    refuse_file(&s, "not.jsonl", "\n{\"ctx\": \n", ATOM_E_FORMAT, "not.jsonl:2:");
    refuse_file(&s, "latin.jsonl", "\n\n\xe9\n", ATOM_E_FORMAT, "latin.jsonl:3: not UTF-8");
    refuse_file(&s, "not.jsonl.gz", two, ATOM_E_FORMAT, "gzip");
    const char *path = scratch_write(&s, "q.jsonl", two, sizeof two - 1);
    assert_int_equal(text_questions_read(path, 0, give_up, NULL, NULL), ATOM_E_DIVERGED);
    assert_string_equal(atom_fail_message(), "enough");
    scratch_close(&s);
}

/* Ours: jansson's own tells of a syntax error where it has none. */
static void want_of_memory(void **state)
{
    scratch s;
    int worked = 0;
    (void)state;
    scratch_open(&s);
    const char *path = scratch_write(&s, "q.jsonl", two, sizeof two - 1);
    uint64_t before = atom_mem_read().live_blocks;
    for (uint64_t n = 1; n < 40; n++) {
        seen got = {.n = 0};
        atom_mem_fail_after(n);
        atom_status st = text_questions_read(path, 0, collect, &got, NULL);
        atom_mem_fail_after(0);
        if (st != ATOM_OK && st != ATOM_E_RESOURCE)
            fail_msg("allocation %llu: %s", (unsigned long long)n, atom_fail_message());
        worked += st == ATOM_OK;
        assert_int_equal(atom_mem_read().live_blocks, before);
    }
    assert_true(worked > 0);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes), cmocka_unit_test(wrong_lines), cmocka_unit_test(limits),
        cmocka_unit_test(files),  cmocka_unit_test(wrong_files), cmocka_unit_test(want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
