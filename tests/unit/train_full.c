/*
 * Runs whose files find no room: what was computed is kept, and what could not be written is said. A
 * limit on the length of files stands for a full disk; tests/cli/test_full_disk.py has real ones.
 */
#include "atom/base/files.h"
#include "atom/train/trainer.h"
#include "tests/lib/little_run.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { STEPS = 8, FILE_BYTES = 1000 };

typedef struct run {
    scratch place;
    train_config config;
    train_summary summary;
    struct rlimit usual;
    unsigned turns, full_from, full_until; /* files are short after so many turns, for so long */
    bool has_room_at_last; /* and long again when the last checkpoint is tried again */
    bool gives_up;         /* somebody ends the wait for that */
    unsigned failed, metrics_failed, metrics_back, persists, saved;
} run;

static void limit_files(run *r, bool full)
{
    struct rlimit l = r->usual;
    l.rlim_cur = full ? FILE_BYTES : l.rlim_cur;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &l), 0);
}

/* Until the checkpoint of step 4, which is written while the run goes on, is there. */
static void wait_for_checkpoint(run *r)
{
    const char *path = scratch_path(&r->place, "out/checkpoint-4/atom_state.json");
    for (int k = 0; k < 3000 && !atom_path_exists(path); k++)
        usleep(10000);
}

static bool stop(void *ctx)
{
    run *r = ctx;
    r->turns++;
    if (r->turns == r->full_from && r->full_from > 4)
        wait_for_checkpoint(r);
    if (r->turns == r->full_from || r->turns == r->full_until)
        limit_files(r, r->turns == r->full_from);
    return r->gives_up && r->persists;
}

static void note(void *ctx, const char *text)
{
    run *r = ctx;
    r->failed += strstr(text, "was not saved") && strstr(text, "Training goes on");
    r->metrics_failed += strstr(text, "warning: cannot write") && strstr(text, "metrics.jsonl");
    r->metrics_back += strstr(text, "metrics.jsonl is written again") != NULL;
    r->saved += strncmp(text, "saved ", 6) == 0;
    if (!strstr(text, "tried again for"))
        return;
    r->persists++;
    if (r->has_room_at_last)
        limit_files(r, false);
}

static void begin(run *r, unsigned full_from)
{
    memset(r, 0, sizeof *r);
    little_world(&r->place);
    little_config(&r->config, &r->place, "out");
    r->config.max_steps = STEPS;
    r->config.save_steps = 2;
    r->config.save_total_limit = 0;
    r->full_from = full_from;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &r->usual), 0);
}

static atom_status go(run *r, double patience_s)
{
    trainer *t = NULL;
    train_hooks hooks = {.ctx = r, .stop = stop, .note = note, .save_patience_s = patience_s};
    must(trainer_open(&r->config, &hooks, &t));
    atom_status st = trainer_run(t, &r->summary);
    limit_files(r, false);
    assert_int_equal(r->summary.steps, STEPS); /* whatever was written of them */
    trainer_close(&t);
    return st;
}

static void end(run *r)
{
    train_config_free(&r->config);
    scratch_close(&r->place);
}

/* Names of checkpoints in the run's directory, whole or not. */
static unsigned checkpoints(run *r)
{
    unsigned n = 0;
    DIR *d = opendir(scratch_path(&r->place, "out"));
    for (struct dirent *e; d && (e = readdir(d));)
        n += strncmp(e->d_name, "checkpoint-", 11) == 0;
    if (d)
        closedir(d);
    return n;
}

static void a_run_goes_on_without_its_files(void **unused)
{
    (void)unused;
    run r;
    begin(&r, 1);
    assert_int_equal(go(&r, 0.5), ATOM_E_RESOURCE);
    const char *why = atom_fail_message();
    assert_non_null(strstr(why, "checkpoint of step 8 was not saved"));
    assert_non_null(strstr(why, "there is no checkpoint yet"));
    assert_non_null(strstr(why, "--resume-from-checkpoint auto"));
    assert_int_equal(r.failed, 3);
    assert_int_equal(r.metrics_failed, 1); /* once, not with every line */
    assert_int_equal(r.persists, 1);
    assert_int_equal(r.saved, 0);
    assert_int_equal(checkpoints(&r), 0); /* nothing half written is left */
    end(&r);
}

static void an_older_checkpoint_stays(void **unused)
{
    (void)unused;
    run r;
    char *newest = NULL;
    begin(&r, 5);
    assert_int_equal(go(&r, 0.5), ATOM_E_RESOURCE);
    assert_non_null(strstr(atom_fail_message(), "checkpoint-4 is whole"));
    assert_int_equal(checkpoints(&r), 2);
    must(train_checkpoint_newest(scratch_path(&r.place, "out"), &newest));
    assert_non_null(strstr(newest, "checkpoint-4"));
    atom_free(newest);
    /* And it is what the run goes on from. */
    trainer *t = NULL;
    set(&r.config.resume_from_checkpoint, "auto");
    must(trainer_open(&r.config, NULL, &t));
    assert_int_equal(trainer_where(t).step, 4);
    must(trainer_run(t, &r.summary));
    assert_int_equal(r.summary.steps, STEPS);
    trainer_close(&t);
    end(&r);
}

static void the_last_one_is_tried_again(void **unused)
{
    (void)unused;
    run r;
    begin(&r, 1);
    r.has_room_at_last = true;
    must(go(&r, 20));
    assert_int_equal(r.persists, 1);
    assert_int_equal(r.saved, 1);
    assert_int_equal(checkpoints(&r), 1);
    end(&r);
}

static void somebody_ends_the_wait(void **unused)
{
    (void)unused;
    run r;
    begin(&r, 1);
    r.gives_up = true;
    assert_int_equal(go(&r, 1e6), ATOM_E_RESOURCE);
    assert_int_equal(r.persists, 1);
    end(&r);
}

/* What could not be written is missing; nothing of it is between the lines that are there. */
static void metrics_are_gone_on_with(void **unused)
{
    (void)unused;
    run r;
    char *text = NULL;
    uint64_t bytes, lines = 0;
    begin(&r, 1);
    r.full_until = STEPS - 1;
    r.config.save_steps = 0;
    must(go(&r, 0.5));
    assert_int_equal(r.metrics_failed, 1);
    assert_int_equal(r.metrics_back, 1);
    must(atom_file_read(scratch_path(&r.place, "out/metrics.jsonl"), 1 << 20, &text, &bytes));
    for (char *line = text, *next; *line; line = next + 1, lines++) {
        next = strchr(line, '\n');
        assert_non_null(next);
        assert_true(line[0] == '{' && next[-1] == '}');
        assert_null(memchr(line + 1, '{', (size_t)(next - line) - 1));
    }
    assert_true(lines > 1 && lines < STEPS);
    assert_non_null(strstr(text, "{\"step\":8,"));
    atom_free(text);
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_goes_on_without_its_files),
        cmocka_unit_test(an_older_checkpoint_stays),
        cmocka_unit_test(the_last_one_is_tried_again),
        cmocka_unit_test(somebody_ends_the_wait),
        cmocka_unit_test(metrics_are_gone_on_with),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
