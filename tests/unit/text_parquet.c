/*
 * Parquet's rows from a process that writes them: the same in blocks of any size, numbered, also as
 * questions; wherever reading stops, no process remains; want of memory; files that are no Parquet.
 */
#include "atom/text/parquet.h"

#include "atom/text/choices.h"
#include "atom/text/input.h"
#include "tests/scratch.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

static const char hollow[] = "PAR1--------PAR1"; /* passes for Parquet until somebody reads it */

typedef struct fake {
    scratch s;
    const char *path;
} fake;

/* A "Python" that runs these lines of the shell. */
static void fake_open(fake *f, const char *body)
{
    char script[4000];
    scratch_open(&f->s);
    int n = snprintf(script, sizeof script, "#!/bin/sh\n%s\n", body);
    const char *python = scratch_write(&f->s, "python", script, (size_t)n);
    assert_int_equal(chmod(python, S_IRWXU), 0);
    setenv("ATOM_PYTHON", python, 1);
    f->path = scratch_write(&f->s, "a.parquet", hollow, sizeof hollow - 1);
}

static void fake_close(fake *f)
{
    scratch_close(&f->s);
    errno = 0;
    assert_int_equal(waitpid(-1, NULL, 0), -1); /* we have no child, alive or dead */
    assert_int_equal(errno, ECHILD);
}

static atom_status add(void *ctx, const text_document *d)
{
    char *all = ctx;
    size_t n = strlen(all);
    snprintf(all + n, 1000 - n, "%llu:%.*s|", (unsigned long long)d->line, (int)d->bytes, d->text);
    return ATOM_OK;
}

/* What the rows of the file are; or the message, behind the last slash. */
static const char *read_all(const char *path, size_t block_bytes, size_t blocks)
{
    static char all[1000];
    text_input *in = NULL;
    text_block b = {0};
    uint64_t bytes = 0;
    all[0] = 0;
    atom_status st = text_input_open(&path, 1, block_bytes, &in);
    do {
        text_block_fini(&b);
        st = st == ATOM_OK ? text_input_next(in, &b) : st;
        bytes += b.file_bytes;
        st = st == ATOM_OK && b.data ? text_block_walk(&b, TEXT_FORMAT_AUTO, add, all) : st;
    } while (st == ATOM_OK && b.data && --blocks);
    if (st == ATOM_OK && all[0] && blocks)
        assert_int_equal(bytes, sizeof hollow - 1);
    text_block_fini(&b);
    text_input_close(&in);
    if (st != ATOM_OK)
        snprintf(all, sizeof all, "%s", strrchr(atom_fail_message(), '/') + 1);
    return all;
}

static void blocks_of_any_size(void **state)
{
    fake f;
    (void)state;
    fake_open(&f,
              "printf '3\\n{\"text\": \"a\"}\\n{\"text\": \"\"}\\n'; printf '{\"text\": \"bc\"}'");
    for (size_t block = 1; block < 60; block++)
        assert_string_equal(read_all(f.path, block, 1000), "1:a|3:bc|");
    assert_string_equal(read_all(f.path, 1, 1), "1:a|"); /* and no further */
    fake_close(&f);
    fake_open(&f, "echo 0");
    assert_string_equal(read_all(f.path, 1, 1000), "");
    fake_close(&f);
    fake_open(&f, "printf '2\\n{\"text\": \"a\"}\\n{\"text\": 3}\\n'");
    assert_non_null(
        strstr(read_all(f.path, 1, 1000), "a.parquet, row:2: there is no string \"text\""));
    fake_close(&f);
}

/* It has more to write than a pipe holds, or says nothing: it is ended, not waited for. */
static void stopping_early(void **state)
{
    fake f;
    (void)state;
    fake_open(&f, "echo 99; while :; do echo '{\"text\": \"a\"}'; done");
    assert_string_equal(read_all(f.path, 1, 2), "1:a|2:a|");
    fake_close(&f);
    /* A row of 16 bytes: blocks grow by doubling until they hold one. */
    fake_open(&f, "printf '2\\n{\"text\": \"abc\"}\\n'; exec sleep 1000");
    assert_string_equal(read_all(f.path, 1, 1), "1:abc|");
    fake_close(&f);
}

static atom_status ask(void *ctx, const text_question *q)
{
    char *all = ctx;
    size_t n = strlen(all);
    snprintf(all + n, 1000 - n, "%.*s%u|", (int)q->context.bytes, q->context.text, q->answer);
    return ATOM_OK;
}

static void questions(void **state)
{
    fake f;
    char all[1000] = "";
    uint64_t n = 0;
    (void)state;
    fake_open(
        &f,
        "echo 2; echo '{\"goal\": \"a\", \"sol1\": \"b\", \"sol2\": \"c\", \"label\": 1}'; echo "
        "'{\"ctx\": \"d\", \"endings\": [\"e\", \"f\"], \"label\": \"0\"}'");
    assert_int_equal(text_questions_read(f.path, 0, ask, all, &n), ATOM_OK);
    assert_string_equal(all, "a1|d0|");
    assert_int_equal(text_questions_read(f.path, 1, ask, all, &n), ATOM_OK);
    assert_int_equal(n, 1);
    fake_close(&f);
    fake_open(&f, "echo 1; echo '{\"goal\": \"a\", \"sol1\": \"b\"}'");
    assert_int_equal(text_questions_read(f.path, 0, ask, all, &n), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "a.parquet, row:1: there is no \"sol2\""));
    fake_close(&f);
}

/* The wait for it, its words and its version, whichever allocation fails. */
static void want_of_memory(void **state)
{
    fake f;
    int worked = 0;
    (void)state;
    fake_open(&f, "[ $# = 2 ] && echo 26.0.1 || printf '1\\n{\"text\": \"a\"}\\n'");
    uint64_t before = atom_mem_read().live_blocks;
    for (uint64_t k = 1; k < 40 && worked < 3; k++) {
        char version[32] = "?";
        text_input *in = NULL;
        text_block b = {0};
        atom_mem_fail_after(k);
        atom_status st = text_input_open((const char *const[]){f.path}, 1, 0, &in);
        st = st == ATOM_OK ? text_input_next(in, &b) : st;
        st = st == ATOM_OK ? text_parquet_version(version) : st;
        atom_mem_fail_after(0);
        assert_true(st == ATOM_OK || st == ATOM_E_RESOURCE);
        assert_string_equal(version, st == ATOM_OK ? "26.0.1" : "?");
        worked += st == ATOM_OK;
        text_block_fini(&b);
        text_input_close(&in);
        assert_int_equal(atom_mem_read().live_blocks, before);
    }
    assert_int_equal(worked, 3);
    fake_close(&f);
}

static void check(const char *content, size_t bytes, const char *want)
{
    scratch s;
    scratch_open(&s);
    const char *path = scratch_write(&s, "a.parquet", content, bytes);
    assert_int_equal(text_parquet_check(path, bytes), want ? ATOM_E_FORMAT : ATOM_OK);
    if (want && !strstr(atom_fail_message(), want))
        fail_msg("%s: not %s", atom_fail_message(), want);
    scratch_close(&s);
}

static void heads_and_tails(void **state)
{
    (void)state;
    check(hollow, sizeof hollow - 1, NULL);
    check("PARE----PARE", 12, NULL); /* encrypted: pyarrow says so */
    for (size_t n = 4; n < sizeof hollow - 1; n++)
        check(hollow, n, "is incomplete");
    check("PAR1PAR1PAR", 11, "is incomplete");
    check("PAR1", 3, "is incomplete");
    check("", 0, "is not Parquet");
    check("{\"text\": \"a\"}\n", 14, "is not Parquet");
    check("version https://git-lfs.github.com/spec/v1\n", 43, "LFS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_any_size), cmocka_unit_test(stopping_early),
        cmocka_unit_test(questions),          cmocka_unit_test(want_of_memory),
        cmocka_unit_test(heads_and_tails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
