/* Templates in Jinja: what they print, where each byte of it comes from, what is refused and with
 * which line, and that nothing runs or grows without end. (tests/oracle/jinja_oracle.py compares
 * the text of many more with Jinja2.) */
#include "atom/base/mem.h"
#include "atom/text/jinja/jinja.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const text_jinja_message chat[] = {
    {.role = "user", .text = "say <end>", .bytes = 9},
    {.role = "assistant", .text = "yes", .bytes = 3},
};

/* The text of a template over chat; or its error. with: ' ' for the template's bytes, the number of
 * the message for others, below the text; G where inside of generation. */
static const char *render(const char *source, char *with)
{
    static char out[4000];
    text_jinja *t = NULL;
    text_jinja_scratch s = {0};
    jinja_text text = {0};
    json_t *names = json_pack("{s:s}", "bos_token", "<s>");
    const text_jinja_input in = {
        .messages = chat, .messages_n = 2, .names = names, .now = 1767323045};
    atom_status st = text_jinja_open(source, strlen(source), "t", &t);
    if (st == ATOM_OK)
        st = text_jinja_render(t, &s, &in, &text);
    assert_true(st == ATOM_OK || st == ATOM_E_FORMAT);
    if (st == ATOM_OK)
        snprintf(out, sizeof out, "%.*s", (int)text.n, text.n ? text.at : "");
    else
        snprintf(out, sizeof out, "%s", atom_fail_message());
    for (size_t i = 0; with && i < text.n; i++, with[i] = 0)
        with[i] = text.marks[i] & JINJA_ANSWER  ? 'G'
                  : text.marks[i] & JINJA_GIVEN ? (char)('0' + (text.marks[i] & JINJA_MESSAGE))
                                                : ' ';
    text_jinja_close(&t);
    text_jinja_scratch_fini(&s);
    json_decref(names);
    return out;
}

static void marks(void **state)
{
    static const struct {
        const char *source, *text, *marks;
    } cases[] = {
        {"<s>{{ messages[0].content }}<end>", "<s>say <end><end>", "   111111111     "},
        {"{{ messages[1].content|upper ~ '!' }}{{ messages[0].role[1:] }}", "YES!ser", "222    "},
        {"{{ messages[0].content.split(' ')|join('+') }}", "say+<end>", "111 11111"},
        {"{{ messages[1].content|replace('e', 'xx')|tojson }}", "\"yxxs\"", " 2  2 "},
        {"{% set x %}[{{ messages[1].content }}]{% endset %}{{ x|indent }}", "[yes]", " 222 "},
        {"{% macro m(a) %}({{ a }}){% endmacro %}{{ m(messages[0].content[:3]) }}", "(say)",
         " 111 "},
        {"{{ messages[1].content|list }}", "['y', 'e', 's']", "  2    2    2  "},
        {"a{% generation %}b{{ messages[1].content }}{% endgeneration %}c", "abyesc", " GGGG "},
        {"{% set g %}{% generation %}x{% endgeneration %}{% endset %}y{{ g }}", "yx", " G"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char with[4000] = "";
        assert_string_equal(render(cases[i].source, with), cases[i].text);
        assert_string_equal(with, cases[i].marks);
    }
}

/* Whole numbers as Python has them, up to their limits: -(2 ** 62) * 2 is the least. */
static void numbers(void **state)
{
    static const struct {
        const char *source, *text;
    } cases[] = {
        {"7 // 2", "3"},
        {"-7 // 2", "-4"},
        {"7 // -2", "-4"},
        {"-7 // -2", "3"},
        {"6 // -2", "-3"},
        {"-6 // 2", "-3"},
        {"0 // -5", "0"},
        {"7 // -1", "-7"},
        {"7 % 2", "1"},
        {"-7 % 2", "1"},
        {"7 % -2", "-1"},
        {"-7 % -2", "-1"},
        {"6 % -2", "0"},
        {"-6 % 4", "2"},
        {"0 % -5", "0"},
        {"7 % -1", "0"},
        {"(-(2 ** 62) * 2) % -1", "0"},
        {"(-(2 ** 62) * 2) // 1", "-9223372036854775808"},
        {"(-(2 ** 62) * 2 + 1) // -1", "9223372036854775807"},
        {"7.5 // 2", "3.0"},
        {"-7.5 // 2", "-4.0"},
        {"7.5 // -2", "-4.0"},
        {"6.0 // -2", "-3.0"},
        {"7.5 % -2", "-0.5"},
        {"-7.5 % 2", "0.5"},
        {"2 ** 3", "8"},
        {"2 ** -1", "0.5"},
        {"0 ** 0", "1"},
        {"0 ** 5", "0"},
        {"1 ** 999999999", "1"},
        {"(-1) ** 999999999", "-1"},
        {"(-1) ** 999999998", "1"},
        {"3.9|int", "3"},
        {"-3.9|abs|int", "3"},
        {"(-3.9)|int", "-3"},
        {"true|int", "1"},
        {"'9223372036854775807'|int", "9223372036854775807"},
        {"'-9223372036854775808'|int", "-9223372036854775808"},
        {"'9.1e18'|int", "9100000000000000000"},
        {"' 12 '|int", "12"},
        {"'12.7'|int", "12"},
        {"'twelve'|int", "0"},
        {"'twelve'|int(5)", "5"},
        {"'nan'|int(5)", "5"},
        {"none|int(5)", "5"},
        {"'12'|int(base=10)", "12"},
        {"'1.5'|float", "1.5"},
        {"'x'|float(2.5)", "2.5"},
        {"3|float", "3.0"},
        {"(-3)|abs", "3"},
        {"(-2.5)|abs", "2.5"},
        {"2.5|round", "2.0"},
        {"3.5|round", "4.0"},
        {"2.15|round(1, 'ceil')", "2.2"},
        {"2.15|round(1, 'floor')", "2.1"},
        {"7|round", "7"},
        {"'one two_2, three'|wordcount", "3"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[100];
        snprintf(source, sizeof source, "{{ %s }}", cases[i].source);
        const char *said = render(source, NULL);
        if (strcmp(said, cases[i].text) != 0)
            fail_msg("%s gave %s, not %s", cases[i].source, said, cases[i].text);
    }
}

/* Each begins with the template's name and the line. */
static void refusals(void **state)
{
    static const struct {
        const char *source, *error;
    } cases[] = {
        {"a\n{% include 'x' %}", "t, line 2: the tag 'include'"},
        {"{% extends 'x' %}", "t, line 1: the tag 'extends'"},
        {"\n\n{{ 1|urlize }}", "t, line 3: the filter 'urlize'"},
        {"{{ 1 is escaped }}", "t, line 1: the test 'escaped'"},
        {"{{ lipsum() }}", "t, line 1: the function 'lipsum'"},
        {"{{ 'a'.zfill(2) }}", "t, line 1: the method zfill"},
        {"{{ messages.append(1) }}", "t, line 1: the method append"},
        {"{{ x.__class__ }}", "t, line 1: 'x' is undefined"},
        {"{{ messages.__class__ }}", "t, line 1: '__class__': templates may not use names"},
        {"{% if true %}", "t, line 1: the template ends, but {% elif %} is missing"},
        {"{{ raise_exception('No ' ~ messages[0].role) }}",
         "t, line 1: the template refuses the chat: No user"},
        {"{{ 9223372036854775807 }}", "t, line 1: '9223372036854775807' is not a whole number"},
        {"{{ 4611686018427387904 }}", "t, line 1: '4611686018427387904' is not a whole number"},
        {"{{ 999999999999999999 * 99 }}", "t, line 1: a whole number of more than 64 bits"},
        {"{{ (-(2 ** 62) * 2) // -1 }}", "t, line 1: a whole number of more than 64 bits"},
        {"{{ 3 ** 40 }}", "t, line 1: a whole number of more than 64 bits"},
        {"{{ 1e19|int }}", "t, line 1: int: a whole number of more than 64 bits"},
        {"{{ (-1e19)|int }}", "t, line 1: int: a whole number of more than 64 bits"},
        {"{{ '9223372036854775808'|int }}", "t, line 1: int: a whole number of more than 64 bits"},
        {"{{ '1e999'|int }}", "t, line 1: int of an infinity"},
        {"{{ 0 ** -1 }}", "t, line 1: division by zero"},
        {"{{ 5 % 0 }}", "t, line 1: division by zero"},
        {"{{ 5 / 0 }}", "t, line 1: division by zero"},
        {"{{ 5.0 // 0 }}", "t, line 1: division by zero"},
        {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
         "t, line 1: it "},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "t, line 1: it is nested more than"},
        {"{{ 'aaaaaaaaaaaaaaaa' * 99999999 }}", "t, line 1: it needs more than 256 MiB"},
        {"{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}"
         "{% endfor %}",
         "t, line 1: it "},
        {"{% set x = 'a' * 1000000 %}{% for i in range(99) %}{{ x }}{% endfor %}",
         "t, line 1: it "},
        {"{{ '\xff' }}", "t, line 1: it is not UTF-8"},
    };
    char deep[3000];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *said = render(cases[i].source, NULL);
        if (strncmp(said, cases[i].error, strlen(cases[i].error)) != 0)
            fail_msg("%s gave %.200s, not %s", cases[i].source, said, cases[i].error);
    }
    for (size_t i = 0; i < 4; i++) {
        static const char *const openers[] = {"(", "[", "{1:", "not -"};
        strcpy(deep, "{{ ");
        while (strlen(deep) < 2990)
            strcat(deep, openers[i]);
        assert_non_null(strstr(render(deep, NULL), "t, line 1: "));
    }
}

/* The steps that one rendering takes. */
static uint64_t steps_of(const char *source)
{
    text_jinja *t = NULL;
    text_jinja_scratch s = {0};
    jinja_text text = {0};
    const text_jinja_input in = {.messages = chat, .messages_n = 2};
    assert_int_equal(text_jinja_open(source, strlen(source), "t", &t), ATOM_OK);
    if (text_jinja_render(t, &s, &in, &text) != ATOM_OK)
        fail_msg("%s gave %s", source, atom_fail_message());
    uint64_t steps = s.heap.steps;
    text_jinja_close(&t);
    text_jinja_scratch_fini(&s);
    return steps;
}

/* Work that makes nothing is counted, too: else a loop over any of these would run for minutes and
 * meet no limit. t, u and b have 40,000 bytes, r has 40,000 items; x has 20,000 bytes that begin
 * as t does and are not in it. */
static void work_is_counted(void **state)
{
    static const struct {
        const char *what;
        uint64_t least; /* steps */
    } cases[] = {
        {"t.rfind(x)", 20000 * 300},
        {"x in t", 5000},
        {"t.find(x)", 5000},
        {"t.count(x)", 5000},
        {"t.rsplit(x)|length", 20000 * 300},
        {"t.rpartition(x)|length", 20000 * 300},
        {"t.replace(x, '')|length", 5000},
        {"t.split()|length", 10000},
        {"t.rsplit()|length", 10000},
        {"t.strip('bcdefghijklmnopqrstuvwxyza')|length", 40000},
        {"(t|trim('bca'))|length", 40000},
        {"b|trim", 10000},
        {"b.lstrip()", 10000},
        {"b|int", 10000},
        {"b|float", 10000},
        {"t < u", 600},
        {"[t, u]|sort|length", 600},
        {"t == u", 600},
        {"t.startswith(u)", 600},
        {"t.endswith((u, u, u))", 1800},
        {"t.removesuffix(u)|length", 600},
        {"t.removeprefix(u)|length", 600},
        {"t is lower", 10000},
        {"t.islower()", 10000},
        {"t.isalpha()", 10000},
        {"t.splitlines()|length", 10000},
        {"t|wordcount", 10000},
        {"t.format()|length", 10000},
        {"(t % ())|length", 10000},
        {"t[39999]", 10000},
        {"t[39999:]", 10000},
        {"r|sum", 40000},
        {"r|max", 40000},
        {"r|select|list|length", 40000},
        {"2.2250738585072011e-308", 100},
        {"2.5|round(15)", 100},
    };
    static const char begin[] =
        "{% set t = 'a' * 40000 %}{% set u = t ~ '' %}{% set x = 'a' * 19999 ~ 'b' %}"
        "{% set b = ' ' * 40000 %}{% set r = [0] * 40000 %}";
    uint64_t before = steps_of(begin);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[400];
        snprintf(source, sizeof source, "%s{{ %s }}", begin, cases[i].what);
        uint64_t steps = steps_of(source) - before;
        if (steps < cases[i].least)
            fail_msg("%s counts %llu steps", cases[i].what, (unsigned long long)steps);
    }
}

/* `before`, then a thousand names by `format`, then `behind`. */
static const char *with_names(const char *before, const char *format, const char *behind)
{
    static char out[40000];
    size_t n = (size_t)snprintf(out, sizeof out, "%s", before);
    for (int i = 0; i < 1000; i++)
        n += (size_t)snprintf(out + n, sizeof out - n, format, i);
    snprintf(out + n, sizeof out - n, "%s", behind);
    return out;
}

/* Names are looked for among those before them: a thousand cost half a million looks. */
static void names_are_counted(void **state)
{
    char name[400] = "{{ ";
    (void)state;
    assert_true(steps_of(with_names("", "{%% set a%d=1 %%}", "")) > 450000);
    assert_true(steps_of(with_names("{% macro m(", "a%d=1,", "z=1) %}{% endmacro %}{{ m() }}")) >
                450000);
    assert_true(steps_of(with_names("{{ '{}{}{}'.format(1,2,3,", "a%d=1,", "z=1) }}")) > 3000);
    memset(name + 3, 'a', 300);
    strcpy(name + 303, " }}");
    assert_non_null(strstr(render(name, NULL), "t, line 1: a name of more than 256 letters"));
}

/* A loop over such work ends. */
static void work_ends(void **state)
{
    static const char source[] = "{% set t = 'a' * 200000 %}{% set x = 'a' * 99999 ~ 'b' %}"
                                 "{% for i in range(1000) %}{{ t.rfind(x) }}{% endfor %}";
    (void)state;
    assert_non_null(strstr(render(source, NULL), "t, line 1: it takes more than 52428800 steps"));
}

/* Each allocation may fail, and nothing leaks. */
static void without_memory(void **state)
{
    static const char source[] =
        "{% macro f(a) %}{{ a|tojson }}{{ caller() }}{% endmacro %}{% for m in messages %}"
        "{% call f(m) %}{{ m.content|upper }}{% endcall %}{% endfor %}";
    uint64_t blocks = atom_mem_read().live_blocks;
    bool done = false;
    (void)state;
    for (uint64_t n = 1; !done; n++) {
        text_jinja *t = NULL;
        text_jinja_scratch s = {0};
        jinja_text text = {0};
        const text_jinja_input in = {.messages = chat, .messages_n = 2};
        atom_mem_fail_after(n);
        atom_status st = text_jinja_open(source, sizeof source - 1, "t", &t);
        if (st == ATOM_OK)
            st = text_jinja_render(t, &s, &in, &text);
        atom_mem_fail_after(0);
        done = st == ATOM_OK;
        assert_true(done || st == ATOM_E_RESOURCE);
        text_jinja_close(&t);
        text_jinja_scratch_fini(&s);
        assert_int_equal(atom_mem_read().live_blocks, blocks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks),
        cmocka_unit_test(numbers),
        cmocka_unit_test(refusals),
        cmocka_unit_test(work_is_counted),
        cmocka_unit_test(names_are_counted),
        cmocka_unit_test(work_ends),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
