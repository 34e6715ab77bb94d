/* Two exports to one place at once: the second says so, and neither writes into what the other makes. */
#include "atom/base/files.h"
#include "atom/export/export.h"
#include "tests/lib/model_dir.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct fixture {
    scratch s;
    char model[640], output[640];
    model_dir m;
} fixture;

static void fixture_open(fixture *f, const char *output)
{
    scratch_open(&f->s);
    snprintf(f->model, sizeof f->model, "%s", scratch_path(&f->s, "model"));
    snprintf(f->output, sizeof f->output, "%s", scratch_path(&f->s, output));
    assert_int_equal(atom_dir_make(f->model), ATOM_OK);
    f->m = model_dir_of(f->model,
                        &(graph_config){.name = "tiny",
                                        .vocab_size = 320,
                                        .positions = 16,
                                        .width = 16,
                                        .layers = 1,
                                        .heads = 2,
                                        .inner = 64,
                                        .epsilon = 1e-5f,
                                        .init_std = 0.3f},
                        3);
    model_dir_save(&f->m);
}

static void fixture_close(fixture *f)
{
    model_dir_close(&f->m);
    scratch_close(&f->s);
}

static void is_refused(const fixture *f, atom_status st)
{
    assert_int_equal(st, ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "is being written by another process"));
    assert_false(atom_path_exists(f->output));
}

static void a_directory(void **state)
{
    (void)state;
    fixture f;
    int lock = -1;
    int64_t holder;
    fixture_open(&f, "hf");
    char temporary[700], theirs[720];
    snprintf(temporary, sizeof temporary, "%s.atom-tmp", f.output);
    snprintf(theirs, sizeof theirs, "%s/theirs", temporary);
    assert_int_equal(atom_dir_make(temporary), ATOM_OK);
    assert_int_equal(atom_file_write(theirs, "x", 1), ATOM_OK);
    assert_int_equal(atom_dir_lock(temporary, &lock, &holder), ATOM_OK);
    assert_true(lock >= 0);
    is_refused(&f, export_hf(f.model, NULL, ATOM_F32, 1 << 30, f.output));
    assert_true(atom_path_exists(theirs));
    close(lock); /* it has died: what it left goes */
    assert_int_equal(export_hf(f.model, NULL, ATOM_F32, 1 << 30, f.output), ATOM_OK);
    assert_false(atom_path_exists(temporary));
    snprintf(theirs, sizeof theirs, "%s/theirs", f.output);
    assert_false(atom_path_exists(theirs));
    fixture_close(&f);
}

static atom_status export_file(const fixture *f, bool gguf)
{
    return gguf ? export_gguf(f->model, NULL, FILE_GGUF_F16, f->output, false)
                : export_llmc(f->model, NULL, ATOM_F32, f->output, false);
}

static void a_file(void **state)
{
    (void)state;
    for (int gguf = 0; gguf < 2; gguf++) {
        fixture f;
        int fd = -1;
        fixture_open(&f, gguf ? "x.gguf" : "x.bin");
        char temporary[700], *text = NULL;
        uint64_t bytes;
        snprintf(temporary, sizeof temporary, "%s.tmp", f.output);
        assert_int_equal(atom_temporary_open(temporary, 0, &fd), ATOM_OK);
        assert_int_equal(write(fd, "theirs", 6), 6);
        is_refused(&f, export_file(&f, gguf));
        assert_int_equal(atom_file_read(temporary, 99, &text, &bytes), ATOM_OK);
        assert_string_equal(text, "theirs");
        atom_free(text);
        close(fd);
        assert_int_equal(export_file(&f, gguf), ATOM_OK);
        assert_false(atom_path_exists(temporary));
        fixture_close(&f);
    }
}

/* What a link leads to is replaced, and what is not a file stays what it is. */
static void what_is_not_a_file(void **state)
{
    (void)state;
    fixture f;
    struct stat s;
    fixture_open(&f, "x.gguf");
    char target[640], fifo[640];
    snprintf(target, sizeof target, "%s", scratch_path(&f.s, "target.gguf"));
    snprintf(fifo, sizeof fifo, "%s", scratch_path(&f.s, "fifo"));
    scratch_write(&f.s, "target.gguf", "old", 3);
    assert_int_equal(symlink("target.gguf", f.output), 0);
    assert_int_equal(export_gguf(f.model, NULL, FILE_GGUF_F16, f.output, true), ATOM_OK);
    assert_int_equal(lstat(f.output, &s), 0);
    assert_true(S_ISLNK(s.st_mode));
    assert_int_equal(stat(target, &s), 0);
    assert_true(s.st_size > 3);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(export_gguf(f.model, NULL, FILE_GGUF_F16, fifo, true), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "is not an ordinary file"));
    assert_int_equal(export_llmc(f.model, NULL, ATOM_F32, fifo, true), ATOM_E_USAGE);
    assert_int_equal(lstat(fifo, &s), 0);
    assert_true(S_ISFIFO(s.st_mode));
    fixture_close(&f);
}

static atom_status fill_halfway(void *context, const char *dir)
{
    (void)context;
    char path[800];
    snprintf(path, sizeof path, "%s/half", dir);
    assert_int_equal(atom_file_write(path, "x", 1), ATOM_OK);
    return atom_fail(ATOM_E_RESOURCE, "no room");
}

/* context: how often it was asked, or NULL. */
static atom_status fill_whole(void *context, const char *dir)
{
    if (context)
        ++*(int *)context;
    (void)fill_halfway(context, dir);
    return ATOM_OK;
}

/* An empty directory is given way to by what is complete, and by nothing else. */
static void an_empty_directory(void **state)
{
    (void)state;
    fixture f;
    struct stat before, after;
    fixture_open(&f, "hf");
    char inside[800], temporary[700];
    snprintf(inside, sizeof inside, "%s/half", f.output);
    snprintf(temporary, sizeof temporary, "%s.atom-tmp", f.output);
    assert_int_equal(mkdir(f.output, 0705), 0);
    assert_int_equal(stat(f.output, &before), 0);
    assert_int_equal(export_directory(f.output, fill_halfway, NULL), ATOM_E_RESOURCE);
    assert_int_equal(stat(f.output, &after), 0);
    assert_true(before.st_ino == after.st_ino);
    assert_false(atom_path_exists(inside) || atom_path_exists(temporary));
    assert_int_equal(export_directory(f.output, fill_whole, NULL), ATOM_OK);
    assert_true(atom_path_exists(inside));
    assert_int_equal(export_directory(f.output, fill_whole, NULL), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "already exists"));
    assert_true(atom_path_exists(inside));
    fixture_close(&f);
}

/* Where nothing could take its place in the end, nothing is written: it may be hours of writing. */
static void refused_before_it_is_written(void **state)
{
    (void)state;
    fixture f;
    int asked = 0;
    fixture_open(&f, "hf");
    char used[640], empty[640], temporary[700];
    snprintf(used, sizeof used, "%s", scratch_path(&f.s, "used"));
    snprintf(empty, sizeof empty, "%s", scratch_path(&f.s, "empty"));
    assert_int_equal(mkdir(used, 0700), 0);
    scratch_write(&f.s, "used/x", "x", 1);
    assert_int_equal(mkdir(empty, 0700), 0);
    assert_int_equal(symlink("empty", scratch_path(&f.s, "link")), 0);
    assert_int_equal(symlink("nowhere", scratch_path(&f.s, "loose")), 0);
    scratch_write(&f.s, "file", "x", 1);
    static const char *const names[] = {"used", "link", "loose", "file"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(f.output, sizeof f.output, "%s", scratch_path(&f.s, names[i]));
        snprintf(temporary, sizeof temporary, "%s.atom-tmp", f.output);
        assert_int_equal(export_directory(f.output, fill_whole, &asked), ATOM_E_USAGE);
        assert_non_null(strstr(atom_fail_message(), "already exists"));
        assert_int_equal(asked, 0);
        assert_false(atom_path_exists(temporary));
    }
    assert_int_equal(export_directory(empty, fill_whole, &asked), ATOM_OK);
    assert_int_equal(asked, 1);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_directory), cmocka_unit_test(a_file),
                                       cmocka_unit_test(what_is_not_a_file),
                                       cmocka_unit_test(an_empty_directory),
                                       cmocka_unit_test(refused_before_it_is_written)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
