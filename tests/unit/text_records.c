/* Arrays of JSON and CSV: the records of a file are the same wherever blocks end, and what is wrong
 * is said with its record. */
#include "atom/text/records.h"

#include "atom/base/mem.h"
#include "atom/text/input.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* What the documents of a file are, with | behind each; or the error. */
typedef struct seen {
    char text[4000];
    size_t n;
} seen;

static atom_status see(void *ctx, const text_document *d)
{
    seen *s = ctx;
    for (size_t i = 0; i < d->messages_n; i++)
        s->n += (size_t)sprintf(s->text + s->n, "%s:%.*s;", text_role_name(d->messages[i].role),
                                (int)d->messages[i].bytes, d->messages[i].text);
    s->n += (size_t)sprintf(s->text + s->n, "%.*s|", (int)d->bytes, d->bytes ? d->text : "");
    return ATOM_OK;
}

static const char *read_file(const char *path, size_t block_bytes)
{
    static seen s;
    text_input *in = NULL;
    text_block b = {0};
    s.n = 0;
    s.text[0] = 0;
    atom_status st = text_input_open(&path, 1, block_bytes, &in);
    do {
        text_block_fini(&b);
        st = st == ATOM_OK ? text_input_next(in, &b) : st;
        st = st == ATOM_OK && b.data ? text_block_walk(&b, TEXT_FORMAT_AUTO, see, &s) : st;
    } while (st == ATOM_OK && b.data);
    text_block_fini(&b);
    text_input_close(&in);
    if (st != ATOM_OK)
        snprintf(s.text, sizeof s.text, "%s",
                 strrchr(atom_fail_message(), '/') ? strrchr(atom_fail_message(), '/') + 1 : "");
    return s.text;
}

/* In blocks of any size the same. */
static void expect(const char *name, const char *content, size_t bytes, const char *want)
{
    scratch s;
    scratch_open(&s);
    char path[700];
    snprintf(path, sizeof path, "%s", scratch_write(&s, name, content, bytes));
    for (size_t block = 1; block <= bytes + 2; block++) {
        const char *got = read_file(path, block);
        if (strncmp(got, want, strlen(want)) != 0 ||
            (want[0] && strchr(want, '|') && strcmp(got, want) != 0))
            fail_msg("%s in blocks of %zu: %s, not %s", content, block, got, want);
    }
    scratch_close(&s);
}
#define EXPECT(name, content, want) expect(name, content, sizeof content - 1, want)

static void arrays(void **state)
{
    (void)state;
    EXPECT("a.json", "[{\"text\": \"a\"}, {\"text\": \"b\"}]", "a|b|");
    EXPECT("a.json",
           "\xef\xbb\xbf\n [\r\n  {\n    \"text\": \"a,]\\\"}\\\\\",\n    \"x\": [1, {\"y\": 2}]\n"
           "  }\n,{\"prompt\": \"q\", \"completion\": \"[\"}\n]\n\n",
           "a,]\"}\\|user:q;assistant:[;|");
    EXPECT("a.json", "[]", "");
    EXPECT("a.json", " [ ] ", "");
    EXPECT("a.json", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n", "a|b|"); /* lines under that name */
    EXPECT("a.json", "{\n  \"text\": \"a\"\n}\n", "a.json:1: this object goes on in the next line");
    EXPECT("a.jsonl", "{\"text\": \"a\"}\n {\n\"text\": \"b\"}", "a.jsonl:2: this object goes on");
    EXPECT("a.jsonl", "[\n{\"text\": \"a\"}\n]", "a.jsonl:1: this array goes on in the next line");
    EXPECT("a.jsonl", "{\"text\": \"a\"", "a.jsonl:1:12: ");
    EXPECT("a.json", "[{\"text\": \"a\"}, {\"text\": 3}]",
           "a.json, element:2: there is no string \"text\"");
    EXPECT("a.json", "[{\"text\": \"a\"},, 3]",
           "a.json, element:2: there is nothing before its comma; remove the comma");
    EXPECT("a.json", "[{\"text\": \"a\"},]",
           "a.json, element:1: after it there is a comma before the end of the array; remove the "
           "comma");
    EXPECT("a.json", "[{\"text\": \"a\"},", "a.json, element:2: the JSON array has no end");
    EXPECT("a.json", "[{\"text\": \"a\"}", "a.json, element:1: the JSON array has no end");
    EXPECT("a.json", "[{\"text\": \"a\"}] x", "a.json, element:1: the file goes on after");
    EXPECT("a.json", "[{\"text\": \"a\"}][{\"text\": \"b\"}, 3]",
           "a.json, element:1: the file goes on");
    EXPECT("a.json", "[{\"text\": \"a\"} {\"text\": \"b\"}]", "a.json, element:1:");
    EXPECT("a.json", "[{\"text\": \"a\xff\"}]",
           "a.json, element:1: here or later it is not UTF-8: byte 12");
}

static void tables(void **state)
{
    (void)state;
    EXPECT("a.csv", "text\na\nb\n", "a|b|");
    EXPECT("a.csv", "\xef\xbb\xbftext,id\r\n\" a \n\"\"b\"\",\",1\r\n c ,2", " a \n\"b\",| c |");
    EXPECT("a.csv", "instruction,input,output\nadd,\"1\n2\",3\nsay,,\xc3\xa4\\\n",
           "user:add\n1\n2;assistant:3;|user:say;assistant:\xc3\xa4\\;|");
    EXPECT("a.csv", "text\n", "");
    EXPECT("a.csv", "\n\r\n\ntext\n\na\n", "a|");
    EXPECT("a.csv", "text,id\na,1\nb\n", "a.csv, row:2: it has 1 field, but the header has 2");
    EXPECT("a.csv", "text,id\na,1\nb,2,3\n", "a.csv, row:2: it has 3 fields");
    EXPECT("a.csv", "text\na\n\"b\n", "a.csv, row:2: a quote is in the wrong place");
    EXPECT("a.csv", "text\na\"b\"\n", "a.csv, row:1: a quote is in the wrong place");
    EXPECT("a.csv", "story\na\n", "a.csv, row:1: there is no string \"text\"");
    EXPECT("a.csv", "story,title\na,b\n",
           "a.csv, row:1: there is no string \"text\"; its keys are \"story\", \"title\"");
    EXPECT("a.csv", "text,id,text\na,1,b\n",
           "a.csv: two columns of the header are called \"text\"; rename one of them");
    EXPECT("a.csv", "text,,\n", "a.csv: two columns of the header have no name; name them");
    EXPECT("a.csv", "text;id\na;1\n",
           "a.csv: the header is one column, \"text;id\"; write the table with commas between "
           "columns");
    EXPECT("a.csv", "text\tid\na\t1\n", "a.csv: the header is one column, \"text\tid\"; write");
    EXPECT("a.csv", "text\na;1\n", "a;1|");
    EXPECT("a.csv", "text\n\xff\n", "a.csv, row:1: here or later it is not UTF-8: byte 5");
}

static void survives_want_of_memory(void **state)
{
    static const char *const files[][2] = {{"a.json", "[{\"text\": \"a\"}, {\"text\": \"b\"}]"},
                                           {"a.csv", "text,id\n\"a\"\"\",1\nb,2\n"}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        scratch s;
        char path[700];
        bool done = false;
        scratch_open(&s);
        snprintf(path, sizeof path, "%s",
                 scratch_write(&s, files[i][0], files[i][1], strlen(files[i][1])));
        for (uint64_t n = 1; !done; n++) {
            uint64_t before = atom_mem_read().live_blocks;
            atom_mem_fail_after(n);
            const char *got = read_file(path, 9);
            atom_mem_fail_after(0);
            done = strcmp(got, i ? "a\"|b|" : "a|b|") == 0;
            assert_int_equal(atom_mem_read().live_blocks, before);
        }
        scratch_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays),
        cmocka_unit_test(tables),
        cmocka_unit_test(survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
