/*
 * What a run says of its steps: to whoever listens, in metrics.jsonl and in its summary. The weights
 * are all zero, so that every loss is known: a model that knows nothing takes all tokens for equally
 * likely, and has no gradient that would teach it anything.
 */
#include "atom/base/files.h"
#include "atom/text/mask.h"
#include "atom/train/metrics.h"
#include "tests/lib/little_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEP_TOKENS = 2 * 2 * 16, STEPS = 6, WINDOWS = (6000 - 1) / 16, TOLD_MAX = 32 };

typedef struct run {
    scratch place;
    train_config config;
    train_seam seam;
    trainer *t;
    train_summary summary;
    train_report told[TOLD_MAX];
    unsigned told_n, turns, taken;
    unsigned interrupts; /* after so many turns; 0: never */
    uint64_t floats;
    float *sum;
    char notes[4000];
} run;

static void report(void *ctx, const train_report *r)
{
    run *a = ctx;
    assert_true(a->told_n < TOLD_MAX);
    a->told[a->told_n++] = *r;
}

static void note(void *ctx, const char *text)
{
    run *a = ctx;
    size_t used = strlen(a->notes);
    snprintf(a->notes + used, sizeof a->notes - used, "%s\n", text);
}

static bool stop(void *ctx)
{
    run *a = ctx;
    return ++a->turns == a->interrupts;
}

static void forget_all(run *a)
{
    file_vector weights = trainer_weights(a->t);
    a->floats = trainer_floats(a->t);
    a->sum = atom_alloc(a->floats, sizeof *a->sum);
    assert_non_null(a->sum);
    must(weights.put(weights.ctx, 0, a->floats, a->sum));
    must(trainer_weights_changed(a->t));
}

static void open_run(run *a)
{
    const train_hooks hooks = {.ctx = a,
                               .report = report,
                               .note = note,
                               .stop = stop,
                               .seam = a->seam.ctx ? &a->seam : NULL};
    a->told_n = a->turns = 0;
    a->notes[0] = 0;
    must(trainer_open(&a->config, &hooks, &a->t));
}

static void close_run(run *a)
{
    atom_free(a->sum);
    a->sum = NULL;
    trainer_close(&a->t);
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-5 * fabs(b)))
        fail_msg("%.9g is not %.9g", a, b);
}

/* How often metrics.jsonl says so. */
static unsigned written(run *a, const char *words)
{
    char *text = NULL;
    uint64_t bytes;
    unsigned n = 0;
    char *path = atom_path_join(a->config.output_dir, "metrics.jsonl");
    must(atom_file_read(path, 1 << 20, &text, &bytes));
    for (const char *at = text; (at = strstr(at, words)); at += strlen(words))
        n++;
    atom_free(text);
    atom_free(path);
    return n;
}

static void configure(run *a, const char *out)
{
    memset(a, 0, sizeof *a);
    little_world(&a->place);
    little_config(&a->config, &a->place, out);
    a->config.max_steps = STEPS;
    a->config.warmup_steps = 2;
    a->config.lr_scheduler = TRAIN_LINEAR;
    a->config.learning_rate = 1e-3;
    a->config.eval_steps = 3;
    a->config.save_steps = 4;
}

/* The report of a step whose number is `step` over so many tokens; total: of the run. */
static void is_step(const run *a, const train_report *r, int64_t step, int64_t tokens,
                    int64_t total)
{
    const plan_workbench *bench = trainer_workbench(a->t);
    const part_device *device = &trainer_profile(a->t)->device;
    double flops = train_flops_per_token(&bench->model.config, bench->g->sequence);
    double mfu = train_mfu(flops, (double)tokens / r->seconds, device->peak_flops_fp32);
    assert_false(r->validation);
    assert_int_equal(r->step, step);
    assert_int_equal(r->max_steps, a->config.max_steps);
    near(r->loss, log(257));
    assert_int_equal(r->tokens_seen, total);
    if (r->seconds > 0) {
        near(r->tokens_per_second * r->seconds, (double)tokens);
        near(r->mfu, mfu > 0 ? mfu : 0);
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Steps and evaluations in their order; *seconds: of each step. */
static void are_the_steps(const run *a, double seconds[STEPS])
{
    const train_schedule schedule = train_schedule_make(&a->config);
    const train_report *r = a->told;
    assert_int_equal(a->told_n, STEPS + 2);
    for (int64_t step = 1; step <= STEPS; step++) {
        is_step(a, r, step, STEP_TOKENS, step * STEP_TOKENS);
        assert_true(r->learning_rate == train_schedule_rate(&schedule, step));
        assert_true(r->grad_norm == 0);
        seconds[step - 1] = r++->seconds;
        if (step % 3)
            continue;
        assert_true(r->validation);
        assert_int_equal(r->step, step);
        assert_int_equal(r->max_steps, STEPS);
        assert_int_equal(r->tokens_seen, step * STEP_TOKENS);
        near(r++->loss, log(257));
    }
}

static void is_the_summary(const run *a, double seconds[STEPS])
{
    const train_summary *s = &a->summary;
    const graph *g = trainer_workbench(a->t)->g;
    double sum = 0;
    for (int i = 0; i < STEPS; i++)
        sum += seconds[i];
    qsort(seconds + 1, STEPS - 1, sizeof *seconds, ascending);
    assert_int_equal(s->first_step, 1);
    assert_int_equal(s->steps, STEPS);
    near(s->first_loss, log(257));
    near(s->final_loss, log(257));
    near(s->validation_loss, log(257));
    near(s->seconds, sum);
    assert_true(s->median_step_seconds == seconds[1 + (STEPS - 1) / 2]); /* without the first */
    near(s->tokens_per_second * s->median_step_seconds, STEP_TOKENS);
    assert_int_equal(s->param_bytes, 4 * g->param_elements);
    assert_int_equal(s->model_state_bytes, (4 + 4 + 12) * g->param_elements);
    assert_int_equal(s->largest_visit_bytes, s->param_bytes);
    assert_int_equal(s->sub_models, 1);
    assert_int_equal(s->devices, 1);
    assert_false(s->interrupted);
    assert_string_equal(s->execute, "interpreted");
    assert_non_null(strstr(s->checkpoint, "/checkpoint-6"));
}

static void each_step_and_all_of_them(void **state)
{
    run a;
    double seconds[STEPS];
    char tokens[32];
    (void)state;
    configure(&a, "alone");
    a.config.eval_batches = 1000; /* more than there is: all windows, the last batch is not full */
    open_run(&a);
    forget_all(&a);
    must(trainer_run(a.t, &a.summary));
    are_the_steps(&a, seconds);
    is_the_summary(&a, seconds);
    assert_non_null(strstr(a.notes, "/checkpoint-4\n"));
    snprintf(tokens, sizeof tokens, "\"tokens\":%d,", WINDOWS * 16);
    assert_int_equal(written(&a, tokens), 2);
    assert_int_equal(written(&a, "\"split\":\"train\""), STEPS);
    assert_int_equal(written(&a, "\"tokens\":128,"), 1); /* of the second step */
    close_run(&a);

    /* Longer than it was to be: the rate of the next step is another. */
    a.config.max_steps = 8;
    a.config.eval_batches = 3;
    a.interrupts = 1;
    set(&a.config.resume_from_checkpoint, "auto");
    open_run(&a);
    assert_int_equal(trainer_run(a.t, &a.summary), ATOM_E_INTERRUPTED);
    assert_non_null(strstr(atom_fail_message(), "stopped after step 7;"));
    assert_non_null(strstr(a.notes, "resume: max_steps is 8 now and was 6, so step 7 has the "
                                    "learning rate 0.000167 instead of 0\n"));
    assert_int_equal(a.told_n, 1);
    is_step(&a, a.told, 7, STEP_TOKENS, 7 * STEP_TOKENS);
    assert_int_equal(a.summary.first_step, 7);
    assert_true(a.summary.interrupted);
    near(a.summary.first_loss, log(257));
    assert_true(isnan(a.summary.validation_loss));
    assert_true(a.summary.median_step_seconds == a.told[0].seconds);
    close_run(&a);
    a.interrupts = 0;
    open_run(&a);
    must(trainer_run(a.t, &a.summary));
    assert_int_equal(a.told_n, 2); /* the last step is evaluated, whatever eval_steps is */
    assert_true(a.told[1].validation);
    assert_int_equal(written(&a, "\"tokens\":96,"), 1);
    close_run(&a);
    train_config_free(&a.config);
    scratch_close(&a.place);
}

/* Tokens that are not learned are not counted, but computing them takes as long. */
static void work_is_not_learning(void **state)
{
    enum { TOKENS = 6000 };
    uint8_t bits[TOKENS / 8];
    run a;
    (void)state;
    configure(&a, "masked");
    memset(bits, 0x11, sizeof bits); /* one token in four */
    must(text_mask_write(scratch_path(&a.place, "data/train_000000.mask"), bits, TOKENS));
    a.config.eval_steps = 0;
    open_run(&a);
    forget_all(&a);
    part_device *device = (part_device *)(uintptr_t)&trainer_profile(a.t)->device;
    device->peak_flops_fp32 = 1e12; /* no CPU's is known */
    must(trainer_run(a.t, &a.summary));
    for (int i = 0; i < STEPS; i++) {
        const train_report *r = &a.told[i];
        near(r->tokens_per_second * r->seconds, STEP_TOKENS / 4);
        near(r->mfu,
             train_mfu(train_flops_per_token(&trainer_workbench(a.t)->model.config, 16),
                       STEP_TOKENS / r->seconds, trainer_profile(a.t)->device.peak_flops_fp32));
        assert_true(r->mfu > 0);
    }
    close_run(&a);
    train_config_free(&a.config);
    scratch_close(&a.place);
}

/* --- steps that many make ------------------------------------------------------------------------ */

static bool done(void *ctx)
{
    return ((run *)ctx)->turns == 5; /* of six; it is asked before it is counted */
}

/* Steps that others made before, two leases with a step between them, one whose weights are behind, then steps of others. */
static atom_status take(void *ctx, const file_vector state[3], const train_reader *reader,
                        train_lease *out)
{
    static const uint32_t first[] = {0, 1, 4}, second[] = {2, 3};
    static const train_lease leases[] = {
        {.steps = 3, .samples = 60, .moved = true},
        {.steps = 3, .samples = 60, .n = 3, .micro_batch = first},
        {.steps = 4,
         .samples = 80,
         .moved = true,
         .rate = 0.5,
         .grad_norm = 2.5,
         .n = 2,
         .micro_batch = second},
        {.steps = 9, .samples = 999, .moved = true, .behind = true},
        {.steps = 5, .samples = 100, .moved = true, .rate = 0.25, .grad_norm = 1.5},
        {.steps = 8, .samples = 160, .moved = true, .rate = 0.125, .grad_norm = 0.5},
        {.steps = 8, .samples = 160, .moved = true},
    };
    run *a = ctx;
    (void)state;
    (void)reader;
    assert_true(a->taken < sizeof leases / sizeof *leases);
    *out = leases[a->taken++];
    out->first_sample = out->samples;
    out->sum = a->sum;
    return ATOM_OK;
}

static bool current(void *ctx, const train_lease *lease)
{
    (void)ctx;
    (void)lease;
    return true;
}

static void bring(void *ctx, const train_lease *lease, uint64_t tokens)
{
    (void)ctx;
    assert_int_equal(tokens, lease->n * 2 * 16);
}

static void steps_that_others_make(void **state)
{
    static const struct {
        int64_t step, tokens, samples;
        double rate, norm;
    } wanted[] = {{4, 3 * 32, 80, 0.5, 2.5}, {5, 2 * 32, 100, 0.25, 1.5}, {8, 0, 160, 0.125, 0.5}};
    run a;
    (void)state;
    configure(&a, "shared");
    a.config.eval_steps = 0;
    a.config.save_steps = 0;
    a.seam = (train_seam){.ctx = &a,
                          .shared = true,
                          .done = done,
                          .take = take,
                          .current = current,
                          .bring = bring,
                          .least_bytes_per_float = 1,
                          .host_bytes_per_float = 1};
    open_run(&a);
    forget_all(&a);
    must(trainer_run(a.t, &a.summary));
    assert_int_equal(a.told_n, 3);
    for (unsigned i = 0; i < 3; i++) {
        const train_report *r = &a.told[i];
        is_step(&a, r, wanted[i].step, wanted[i].tokens, wanted[i].samples * 16);
        assert_true(r->learning_rate == wanted[i].rate);
        assert_true(r->grad_norm == wanted[i].norm);
    }
    assert_int_equal(a.summary.first_step, 4);
    assert_int_equal(a.summary.steps, 8);
    near(a.summary.tokens_per_second * a.summary.seconds, 5 * 32);
    near(a.summary.first_loss, log(257));
    near(a.summary.final_loss, log(257));
    close_run(&a);
    train_config_free(&a.config);
    scratch_close(&a.place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_step_and_all_of_them),
        cmocka_unit_test(work_is_not_learning),
        cmocka_unit_test(steps_that_others_make),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
