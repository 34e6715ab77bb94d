/* metrics.jsonl: one valid object per line, resume, full disks; the progress line. */
#include "atom/train/metrics.h"
#include "atom/train/progress.h"

#include "atom/base/log.h"
#include "tests/scratch.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

static int64_t disk_left = INT64_MAX;

ssize_t write(int fd, const void *data, size_t bytes)
{
    if (fd > 2) {
        if (disk_left == 0) {
            errno = ENOSPC;
            return -1;
        }
        if ((int64_t)bytes > disk_left)
            bytes = (size_t)disk_left;
        disk_left -= (int64_t)bytes;
    }
    return syscall(SYS_write, fd, data, bytes);
}

static train_step_metrics step_at(int64_t step)
{
    return (train_step_metrics){.step = step,
                                .loss = 10.0 / (double)step,
                                .grad_norm = 0.1,
                                .learning_rate = 3e-4,
                                .seconds = 0.5,
                                .step_tokens = 1024,
                                .tokens = 1024 * (uint64_t)step,
                                .mfu = 0.25,
                                .device_bytes = 3u << 30,
                                .host_bytes = 5ull << 30};
}

/* Line `i` (from 0) of a file, parsed; NULL past the end. */
static json_t *line_at(const char *path, int i)
{
    char line[2048];
    json_t *root = NULL;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (i-- == 0) {
            json_error_t error;
            assert_int_equal(line[strlen(line) - 1], '\n');
            root = json_loads(line, JSON_REJECT_DUPLICATES, &error);
            if (!root)
                fail_msg("%s: %s", line, error.text);
        }
    }
    fclose(f);
    return root;
}

static double number(const json_t *root, const char *key)
{
    assert_true(json_is_number(json_object_get(root, key)));
    return json_number_value(json_object_get(root, key));
}

static void write_steps(train_metrics *m, int64_t first, int64_t last)
{
    for (int64_t i = first; i <= last; i++) {
        train_step_metrics s = step_at(i);
        train_eval_metrics e = {.step = i, .loss = 2.5, .tokens = 77, .seconds = 1};
        assert_int_equal(train_metrics_step(m, &s), ATOM_OK);
        if (i % 5 == 0)
            assert_int_equal(train_metrics_eval(m, &e), ATOM_OK);
    }
}

static void lines(void **state)
{
    scratch s;
    train_metrics *m = NULL;
    (void)state;
    const char *path = scratch_path(scratch_open(&s), "metrics.jsonl");
    assert_int_equal(train_metrics_open(path, 0, &m), ATOM_OK);
    write_steps(m, 1, 5);
    train_step_metrics odd = step_at(6);
    odd.loss = NAN;
    odd.grad_norm = INFINITY;
    odd.mfu = -1;
    assert_int_equal(train_metrics_step(m, &odd), ATOM_OK);
    assert_int_equal(train_metrics_sync(m), ATOM_OK);
    train_metrics_close(&m);
    json_t *line = line_at(path, 2);
    assert_int_equal(json_integer_value(json_object_get(line, "step")), 3);
    assert_true(number(line, "loss") == 10.0 / 3);
    assert_true(number(line, "grad_norm") == 0.1);
    assert_true(number(line, "learning_rate") == 3e-4);
    assert_true(number(line, "tokens_per_second") == 2048);
    assert_true(number(line, "seconds") == 0.5);
    assert_true(number(line, "mfu") == 0.25);
    assert_string_equal(json_string_value(json_object_get(line, "split")), "train");
    json_decref(line);
    line = line_at(path, 5);
    assert_string_equal(json_string_value(json_object_get(line, "split")), "val");
    assert_true(number(line, "loss") == 2.5);
    json_decref(line);
    line = line_at(path, 6);
    assert_true(json_is_null(json_object_get(line, "loss")));
    assert_string_equal(json_string_value(json_object_get(line, "nonfinite")), "loss nan");
    assert_null(json_object_get(line, "mfu"));
    json_decref(line);
    assert_null(line_at(path, 7));
    scratch_close(&s);
}

static void resumes(void **state)
{
    scratch s;
    train_metrics *m = NULL;
    (void)state;
    const char *path = scratch_path(scratch_open(&s), "metrics.jsonl");
    assert_int_equal(train_metrics_open(path, 3, &m), ATOM_OK); /* nothing there yet */
    write_steps(m, 1, 7);
    train_metrics_close(&m);
    FILE *f = fopen(path, "a");
    fputs("{\"step\":8,\"lo", f); /* cut by a crash */
    fclose(f);
    assert_int_equal(train_metrics_open(path, 100, &m), ATOM_OK);
    train_metrics_close(&m);
    f = fopen(path, "a");
    fputs("{\"step\":8}", f); /* cut just before the line end */
    fclose(f);
    assert_int_equal(train_metrics_open(path, 100, &m), ATOM_OK);
    write_steps(m, 8, 8);
    train_metrics_close(&m);
    json_t *line = line_at(path, 8); /* 7 steps and an eval before it */
    assert_int_equal(json_integer_value(json_object_get(line, "step")), 8);
    json_decref(line);
    assert_int_equal(train_metrics_open(path, 5, &m), ATOM_OK);
    write_steps(m, 6, 6);
    train_metrics_close(&m);
    line = line_at(path, 5);
    assert_string_equal(json_string_value(json_object_get(line, "split")), "val");
    json_decref(line);
    line = line_at(path, 6);
    assert_int_equal(json_integer_value(json_object_get(line, "step")), 6);
    json_decref(line);
    assert_null(line_at(path, 7));
    assert_int_equal(train_metrics_open(path, 0, &m), ATOM_OK);
    train_metrics_close(&m);
    assert_null(line_at(path, 0));
    scratch_close(&s);
}

/* A line that does not fit leaves nothing of itself; the lines before it stay whole. */
static void disk_full(void **state)
{
    scratch s;
    train_metrics *m = NULL;
    train_step_metrics step = step_at(3);
    (void)state;
    const char *path = scratch_path(scratch_open(&s), "metrics.jsonl");
    assert_int_equal(train_metrics_open(path, 0, &m), ATOM_OK);
    write_steps(m, 1, 2);
    disk_left = 40;
    atom_status st = train_metrics_step(m, &step);
    disk_left = INT64_MAX;
    assert_int_equal(st, ATOM_E_RESOURCE);
    assert_non_null(strstr(atom_fail_message(), path));
    write_steps(m, 4, 4);
    train_metrics_close(&m);
    json_t *line = line_at(path, 2);
    assert_int_equal(json_integer_value(json_object_get(line, "step")), 4);
    json_decref(line);
    assert_int_equal(train_metrics_open(scratch_path(&s, "no/m"), 0, &m), ATOM_E_RUNTIME);
    scratch_close(&s);
}

static void no_memory(void **state)
{
    scratch s;
    train_metrics *m = NULL;
    (void)state;
    const char *path = scratch_path(scratch_open(&s), "metrics.jsonl");
    uint64_t before = atom_mem_read().live_blocks;
    for (uint64_t n = 1; n <= 3; n++) {
        atom_mem_fail_after(n);
        atom_status st = train_metrics_open(path, 0, &m);
        atom_mem_fail_after(0);
        assert_int_equal(st, n < 3 ? ATOM_E_RESOURCE : ATOM_OK);
        train_metrics_close(&m);
        assert_int_equal(atom_mem_read().live_blocks, before);
    }
    scratch_close(&s);
}

static void numbers(void **state)
{
    static const double values[] = {
        0, 1, 0.1, 1.0 / 3, 1e-300, 123456789012.0, -2.5e10, 0x1.fffffep-3};
    char buf[32];
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        assert_true(strtod(train_number_text(values[i], buf), NULL) == values[i]);
    assert_string_equal(train_number_text(0.1, buf), "0.1");
    assert_string_equal(train_number_text(-INFINITY, buf), "null");
    graph_config c = {0};
    assert_int_equal(graph_preset_get("gpt2-124m", &c), ATOM_OK);
    double flops = train_flops_per_token(&c, 1024);
    assert_true(flops == 6.0 * (124439808 - 1024 * 768) + 12.0 * 12 * 768 * 1024);
    assert_true(train_mfu(flops, 100, 0) < 0);
    assert_true(train_mfu(2e9, 100, 1e12) == 0.2);
}

/* All that went to `file`. */
static char *text_of(FILE *file, char *buf, size_t room)
{
    fflush(file);
    rewind(file);
    buf[fread(buf, 1, room - 1, file)] = 0;
    return buf;
}

static void plain_lines(void **state)
{
    char buf[4096];
    FILE *f = tmpfile();
    (void)state;
    train_progress p = train_progress_make(f, -1, 1, 25, 10);
    assert_false(p.terminal);
    for (int64_t i = 1; i <= 25; i++) {
        train_step_metrics s = step_at(i);
        train_progress_step(&p, &s);
    }
    train_progress_end(&p);
    text_of(f, buf, sizeof buf);
    assert_null(strchr(buf, '\r'));
    assert_non_null(strstr(buf,
                           "step 1/25 loss 10.0000 norm 0.1 lr 0.0003 2.0k tok/s mfu 25.0% device "
                           "3.0 GiB host 5.0 GiB eta 0:12\n"));
    assert_non_null(strstr(buf, "step 10/25 "));
    assert_non_null(strstr(buf, "step 20/25 "));
    assert_non_null(strstr(buf, "step 25/25 "));
    assert_null(strstr(buf, "step 11/25 "));
    fclose(f);
}

static void terminal_line(void **state)
{
    char buf[4096];
    FILE *f = tmpfile();
    train_step_metrics s = step_at(10);
    const train_report e = {.step = 10, .loss = 3.25, .validation = true};
    (void)state;
    train_progress p = train_progress_make(f, 1, 10, 40, 1);
    train_progress_step(&p, &s);
    train_progress_report(&p, &e, 0);
    train_progress_note(&p, "saved %s", "checkpoint-10");
    s = step_at(40);
    train_progress_step(&p, &s);
    train_progress_end(&p);
    text_of(f, buf, sizeof buf);
    assert_non_null(strstr(buf, "\r 25% [##........] step 10/40 loss 1.0000 norm"));
    assert_non_null(strstr(buf, "\r\x1b[Kstep 10/40 val loss 3.2500\nsaved checkpoint-10\n"));
    assert_non_null(strstr(buf, "\r100% [##########] step 40/40 loss 0.2500 val 3.250 norm"));
    assert_int_equal(buf[strlen(buf) - 1], '\n');
    fclose(f);

    char text[512];
    train_progress endless = train_progress_make(NULL, 1, 1, 0, 1);
    train_progress_text(&endless, &s, 200, text, sizeof text);
    assert_non_null(strstr(text, "step 40 loss"));
    assert_null(strstr(text, "eta"));
    assert_null(strchr(text, '['));
    s = step_at(10); /* what goes first on a narrow terminal; the end is never cut off */
    assert_non_null(strstr(train_progress_text(&p, &s, 200, text, sizeof text), " host "));
    for (int columns = 70; columns < (int)strlen(text); columns++) {
        char narrow[512];
        train_progress_text(&p, &s, columns, narrow, sizeof narrow);
        assert_in_range(strlen(narrow), 1, columns);
        assert_non_null(strstr(narrow, " val 3.250 "));
        assert_non_null(strstr(narrow, " tok/s"));
        assert_string_equal(strrchr(narrow, 'e'), strrchr(text, 'e')); /* eta 0:15 */
        assert_null(strstr(narrow, " host "));
    }
    train_progress_text(&p, &s, 30, text, sizeof text);
    assert_int_equal(strlen(text), 30);
    p.file = NULL; /* quiet */
    train_progress_step(&p, &s);
    train_progress_note(&p, "nothing");
    train_progress_end(&p);
}

/* The bias of the average's start is taken out: a constant rate is shown from the first step on. */
static void smooth(void **state)
{
    train_progress p = train_progress_make(NULL, 0, 1, 100, 1);
    train_step_metrics s = step_at(1);
    (void)state;
    assert_true(train_progress_tokens_per_second(&p) == 0 && train_progress_step_seconds(&p) == 0);
    for (int i = 1; i <= 50; i++) {
        train_progress_step(&p, &s);
        assert_true(fabs(train_progress_tokens_per_second(&p) - 2048) < 1e-6);
        assert_true(fabs(train_progress_step_seconds(&p) - 0.5) < 1e-9);
    }
    s.seconds = 5; /* one slow step moves it a little */
    train_progress_step(&p, &s);
    assert_true(train_progress_step_seconds(&p) > 0.6 && train_progress_step_seconds(&p) < 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines),         cmocka_unit_test(resumes), cmocka_unit_test(disk_full),
        cmocka_unit_test(no_memory),     cmocka_unit_test(numbers), cmocka_unit_test(plain_lines),
        cmocka_unit_test(terminal_line), cmocka_unit_test(smooth),
    };
    atom_log_set_level(ATOM_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
