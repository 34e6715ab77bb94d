/*
 * The loss of a saved model over a data set: against the plain forward pass, window by window; the
 * same bits through a device budget, and as the trainer's own evaluation has them, in the memory that
 * weights take alone; several micro-batches in a pass; partial batches, splits, refusals.
 */
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/generate/evaluate.h"
#include "atom/generate/evaluator.h"
#include "atom/plan/device.h"
#include "atom/text/dataset.h"
#include "atom/text/shard.h"
#include "atom/train/checkpoint.h"
#include "tests/lib/gpt2_forward.h"
#include "tests/lib/model_dir.h"
#include "tests/scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { T = 10, VAL_TOKENS = 88, TRAIN_TOKENS = 61 }; /* 8 windows and rest; 6 windows */

typedef struct world {
    scratch s;
    model_dir m;
    uint32_t val[VAL_TOKENS], train[TRAIN_TOKENS];
    char data[600];
} world;

static void write_split(const world *w, const char *split, uint32_t *ids, size_t n, uint32_t salt)
{
    text_shard_writer *out;
    for (size_t i = 0; i < n; i++)
        ids[i] = ((uint32_t)i * 2654435761u + salt) >> 24;
    assert_int_equal(text_shard_writer_open(w->data, split, 257, 0, &out), ATOM_OK);
    assert_int_equal(text_shard_writer_put(out, ids, n), ATOM_OK);
    assert_int_equal(text_shard_writer_end(out), ATOM_OK);
    text_shard_writer_close(&out);
}

static void world_open(world *w)
{
    scratch_open(&w->s);
    snprintf(w->data, sizeof w->data, "%s/data", w->s.dir);
    assert_int_equal(atom_dir_make(w->data), ATOM_OK);
    write_split(w, "val", w->val, VAL_TOKENS, 1);
    write_split(w, "train", w->train, TRAIN_TOKENS, 77);
    w->m = model_dir_make(w->s.dir, 16, 2);
    model_dir_save(&w->m);
}

static void world_close(world *w)
{
    model_dir_close(&w->m);
    scratch_close(&w->s);
}

static double plain_loss(const world *w, const uint32_t *ids, int64_t windows)
{
    gpt2_forward f = gpt2_forward_open(&w->m.config, ATOM_F32, T, w->m.params);
    double sum = 0;
    for (int64_t i = 0; i < windows; i++) {
        int32_t tokens[T], targets[T];
        for (int64_t t = 0; t < T; t++) {
            tokens[t] = (int32_t)ids[i * T + t];
            targets[t] = (int32_t)ids[i * T + t + 1];
        }
        sum += gpt2_forward_loss(&f, tokens, targets);
    }
    gpt2_forward_close(&f);
    return sum / (double)(windows * T);
}

static eval_request request_of(const world *w, int64_t B)
{
    return (eval_request){.model = w->s.dir,
                          .data = w->data,
                          .micro_batch = B,
                          .sequence = T,
                          .dtype = PLAN_DTYPE_FP32,
                          .threads = 2};
}

static eval_result evaluate(eval_request r)
{
    eval_result result = {0};
    if (eval_loss(&r, &result) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_true(result.seconds >= 0);
    return result;
}

static void close_to(double a, double b)
{
    assert_true(fabs(a - b) <= 2e-6 * fabs(b));
}

static void test_equals_forward(void **state)
{
    world w;
    eval_result got;
    (void)state;
    world_open(&w);
    for (int64_t B = 1; B <= 11; B += 2) { /* 3, 5, 7: a partial batch; 9, 11: larger than all */
        got = evaluate(request_of(&w, B));
        assert_int_equal(got.tokens, 8 * T);
        close_to(got.loss, plain_loss(&w, w.val, 8));
    }
    eval_request r = request_of(&w, 3);
    r.split = "train";
    got = evaluate(r);
    assert_int_equal(got.tokens, 6 * T);
    close_to(got.loss, plain_loss(&w, w.train, 6));
    r.split = "val";
    r.batches = 2;
    got = evaluate(r);
    assert_int_equal(got.tokens, 6 * T);
    close_to(got.loss, plain_loss(&w, w.val, 6));
    r.batches = 1;
    assert_int_equal(evaluate(r).tokens, 3 * T);
    r.batches = 100;
    assert_int_equal(evaluate(r).tokens, 8 * T);
    world_close(&w);
}

/* A checkpoint says how it was trained, unless somebody asks for something else. */
static void test_packing_is_the_runs(void **state)
{
    static const train_state trained = {.step = 1, .packing = "apart"};
    world w;
    char path[640];
    text_tokenizer *bytes = NULL;
    (void)state;
    world_open(&w);
    snprintf(path, sizeof path, "%s/tokenizer.json", w.data);
    assert_int_equal(text_tokenizer_bytes(&bytes), ATOM_OK);
    assert_int_equal(text_tokenizer_save(bytes, path), ATOM_OK);
    text_tokenizer_close(&bytes);
    eval_request r = request_of(&w, 2);
    assert_false(evaluate(r).apart);
    assert_int_equal(train_state_write(w.s.dir, "atom_state.json", &trained), ATOM_OK);
    assert_true(evaluate(r).apart);
    r.packing = TRAIN_PACKING_ACROSS;
    assert_false(evaluate(r).apart);
    world_close(&w);
}

static void test_budgets(void **state)
{
    world w;
    int opened = 0;
    (void)state;
    world_open(&w);
    eval_request r = request_of(&w, 3);
    double want = evaluate(r).loss;
    for (uint64_t kib = 200; kib <= 3200; kib *= 2) {
        eval_result got;
        r.device_memory = kib << 10;
        atom_status st = eval_loss(&r, &got);
        assert_true(st == ATOM_OK || st == ATOM_E_RESOURCE);
        if (st != ATOM_OK)
            continue;
        opened++;
        assert_true(got.loss == want);
    }
    assert_true(opened > 0);
    r.dtype = PLAN_DTYPE_BF16;
    r.device_memory = 0;
    assert_true(fabs(evaluate(r).loss - want) < 0.1);
    world_close(&w);
}

/* --- beside the trainer's own evaluation ------------------------------------------------------- */

static plan_workbench_config bench_of(const world *w, int32_t dtype)
{
    return (plan_workbench_config){.model = w->s.dir,
                                   .micro_batch = 3,
                                   .sequence = T,
                                   .dtype = dtype,
                                   .dropout = 0,
                                   .threads = 2};
}

/* Micro-batch m of the next pass: the windows that begin with ids. */
static void fill(train_engine *e, uint32_t m, const uint32_t *ids)
{
    int32_t *tokens, *targets;
    train_engine_batch(e, m, &tokens, &targets);
    for (int64_t i = 0; i < 3 * T; i++) {
        tokens[i] = (int32_t)ids[i];
        targets[i] = (int32_t)ids[i + 1];
    }
}

/* What a trainer has that reads those weights, with master weights, moments and gradients. */
static uint64_t trainers_losses(const world *w, int32_t dtype, const uint32_t *ids,
                                float losses[3 * T])
{
    const plan_workbench_config config = bench_of(w, dtype);
    plan_workbench *bench = NULL;
    part_profile *profile = NULL;
    part_plan *plan = NULL;
    train_engine *e = NULL;
    int64_t n;
    assert_int_equal(plan_workbench_open(&config, &bench), ATOM_OK);
    part_device device = plan_device_guess(bench);
    assert_int_equal(part_profile_model(bench->g, &device, &profile), ATOM_OK);
    assert_int_equal(part_plan_open(bench->g, profile, 1, &plan), ATOM_OK);
    plan->micro_batches = 1;
    plan->in_place = true;
    plan->sub_models[0].last_node = (int32_t)bench->g->n_nodes;
    plan->sub_models[0].param_bytes = bench->g->param_extent * atom_dtype_bytes(bench->g->dtype);
    const train_engine_config run = {
        .bench = bench, .plan = plan, .profile = profile, .execute = TRAIN_EXECUTE_INTERPRETED};
    if (train_engine_open(&run, &e) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_int_equal(
        file_merged_read(&bench->model, bench->g, train_engine_vector(e, SWAP_STATE_MASTER)),
        ATOM_OK);
    assert_int_equal(train_engine_sync(e), ATOM_OK);
    fill(e, 0, ids);
    assert_int_equal(train_engine_eval(e, 1), ATOM_OK);
    train_engine_loss(e, 0, 1, &n);
    assert_int_equal(n, 3 * T);
    memcpy(losses, train_engine_losses(e, 0), 3 * T * sizeof *losses);
    uint64_t bytes = train_engine_host_bytes(e);
    train_engine_close(&e);
    part_plan_close(&plan);
    part_profile_close(&profile);
    plan_workbench_close(&bench);
    return bytes;
}

static bool has_region(const train_engine *e, const char *name)
{
    for (uint32_t i = 0; i < e->low->n_regions; i++)
        if (strcmp(e->low->regions[i].name, name) == 0)
            return true;
    return false;
}

static void test_is_the_trainers(void **state)
{
    static const char *const none[] = {"master weights",
                                       "Adam m",
                                       "Adam v",
                                       "gradients (fp32)",
                                       "shared gradients (fp32)",
                                       "spill ring",
                                       "boundary gradients",
                                       "recompute set"};
    const uint64_t budgets[] = {0, 600 << 10, 1 << 20, 3 << 20};
    world w;
    (void)state;
    world_open(&w);
    for (int i = 0; i < 8; i++) {
        const int32_t dtype = i % 2 ? PLAN_DTYPE_BF16 : PLAN_DTYPE_FP32;
        const plan_workbench_config config = bench_of(&w, dtype);
        float want[3 * T];
        eval_model e = {0};
        uint64_t trainers = trainers_losses(&w, dtype, w.val, want);
        assert_int_equal(eval_model_open(&e, &config), ATOM_OK);
        if (eval_model_load(&e, budgets[i / 2], false, 1) != ATOM_OK)
            fail_msg("%s", atom_fail_message());
        assert_int_equal(e.plan->micro_batches, 1);
        fill(e.engine, 0, w.val);
        assert_int_equal(train_engine_eval(e.engine, 1), ATOM_OK);
        assert_memory_equal(train_engine_losses(e.engine, 0), want, sizeof want);
        const uint64_t wire = e.bench->g->param_extent * atom_dtype_bytes(e.bench->g->dtype);
        const uint64_t rest = 4096; /* tokens, targets and losses of 3 x 10 tokens */
        assert_true(train_engine_host_bytes(e.engine) <= wire + rest);
        assert_true(train_engine_host_peak(e.engine) <= wire + rest);
        assert_true(trainers >= wire + 12 * e.bench->g->param_extent);
        for (size_t k = 0; k < sizeof none / sizeof *none; k++)
            assert_false(has_region(e.engine, none[k]));
        assert_true(has_region(e.engine, "wire copy"));
        eval_model_close(&e);
    }
    world_close(&w);
}

/* --- several micro-batches in a pass ------------------------------------------------------------- */

static uint64_t fetched_bytes(const swap_tape *tape)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < tape->n; i++)
        bytes += tape->instrs[i].code == SWAP_FETCH ? tape->instrs[i].dst.bytes : 0;
    return bytes;
}

/* Passes of so many micro-batches as there are, and of fewer; what is not run keeps its losses. */
static void passes_of(eval_model *e, const world *w, float want[2][3 * T])
{
    const uint32_t C = e->plan->micro_batches;
    float before[3 * T];
    int64_t n;
    double sum = 0;
    for (uint32_t m = 0; m < C; m++)
        fill(e->engine, m, w->val + (m + 1) % 2 * 3 * T);
    assert_int_equal(train_engine_eval(e->engine, C), ATOM_OK);
    memcpy(before, train_engine_losses(e->engine, C - 1), sizeof before);
    for (uint32_t m = 0; m < C; m++)
        fill(e->engine, m, w->val + m % 2 * 3 * T);
    assert_int_equal(train_engine_eval(e->engine, C - 1), ATOM_OK);
    assert_memory_equal(train_engine_losses(e->engine, C - 1), before, sizeof before);
    assert_int_equal(train_engine_eval(e->engine, C), ATOM_OK);
    for (uint32_t m = 0; m < C; m++) {
        assert_memory_equal(train_engine_losses(e->engine, m), want[m % 2], sizeof before);
        for (int i = 0; m < 2 && i < 3 * T; i++)
            sum += (double)want[m][i];
    }
    assert_true(train_engine_loss(e->engine, 0, 2, &n) == sum);
    assert_int_equal(n, 6 * T);
}

/* What is still on the device from the evaluation before is used, but not after weights have changed. */
static void one_after_the_other(eval_model *e, const world *w, float want[2][3 * T])
{
    float wrong[64] = {0};
    for (int half = 0; half < 2; half++) {
        fill(e->engine, 0, w->val + half * 3 * T);
        assert_int_equal(train_engine_eval(e->engine, 1), ATOM_OK);
        assert_memory_equal(train_engine_losses(e->engine, 0), want[half], sizeof want[half]);
    }
    file_vector weights = train_engine_weights(e->engine);
    assert_int_equal(weights.put(weights.ctx, 0, 64, wrong), ATOM_OK);
    assert_int_equal(train_engine_eval(e->engine, 1), ATOM_OK);
    assert_memory_not_equal(train_engine_losses(e->engine, 0), want[1], sizeof want[1]);
}

/* What a pass fetches does not depend on how many micro-batches are in it, and neither do losses. */
static void test_passes(void **state)
{
    const uint64_t budgets[] = {600 << 10, 680 << 10, 3 << 20}, batches[] = {1, 2, 7, 5000};
    uint32_t swapped = 0, hosts = 0, whole = 0;
    world w;
    (void)state;
    world_open(&w);
    for (int i = 0; i < 6; i++) {
        const int32_t dtype = i % 2 ? PLAN_DTYPE_BF16 : PLAN_DTYPE_FP32;
        plan_workbench_config config = bench_of(&w, dtype);
        const uint64_t link = i % 3 ? 2000000000u : 0; /* the slower it is, the longer a pass */
        float want[2][3 * T];
        uint64_t alone = 0;
        for (int half = 0; half < 2; half++)
            trainers_losses(&w, dtype, w.val + half * 3 * T, want[half]);
        config.link_bandwidth = link;
        for (int k = 0; k < 4; k++) {
            eval_model e = {0};
            assert_int_equal(eval_model_open(&e, &config), ATOM_OK);
            if (eval_model_load(&e, budgets[i / 2], false, batches[k]) != ATOM_OK)
                fail_msg("%s", atom_fail_message());
            const uint32_t C = e.plan->micro_batches, n = e.plan->n_sub_models;
            const bool stays = part_plan_fetched_bytes(e.plan) == 0; /* where it is once fetched */
            uint64_t bytes = fetched_bytes(e.engine->low->tapes[SWAP_TAPE_EVAL]);
            assert_true(C <= batches[k] && C <= (link ? 64 : 27) && (C > 1 || k < 3 || stays));
            const swap_tape *next = e.engine->low->tapes[SWAP_TAPE_EVAL_NEXT];
            assert_true(stays ? fetched_bytes(next) == 0 : fetched_bytes(next) <= bytes);
            whole += stays;
            alone = k == 0 ? bytes : alone;
            assert_true(bytes < 2 * alone); /* cuts may differ, and with them what is shared */
            swapped += n > 2 && C > 7;
            hosts += e.plan->boundaries == PART_ON_HOST;
            if (C > 1)
                passes_of(&e, &w, want);
            one_after_the_other(&e, &w, want);
            eval_model_close(&e);
        }
    }
    assert_true(swapped > 0 && hosts > 0 && whole > 0);
    world_close(&w);
}

/* What a plan is laid out for: a link that is slowed down, but never one that is faster for it. */
static void test_link(void **state)
{
    const uint64_t rates[] = {0, 1000000000u, 4500000000u, 100000000000u};
    part_device d[4];
    world w;
    (void)state;
    world_open(&w);
    for (int i = 0; i < 4; i++) {
        plan_workbench_config config = bench_of(&w, PLAN_DTYPE_FP32);
        eval_model e = {0};
        config.link_bandwidth = rates[i];
        assert_int_equal(eval_model_open(&e, &config), ATOM_OK);
        d[i] = plan_device_guess(e.bench);
        assert_true(d[i].h2d_both_bytes_per_second <= d[0].h2d_both_bytes_per_second);
        eval_model_close(&e);
    }
    assert_true(d[1].h2d_bytes_per_second == 1e9 && d[1].d2h_bytes_per_second == 1e9);
    assert_true(d[1].h2d_both_bytes_per_second == 1e9 && d[1].d2h_both_bytes_per_second == 1e9);
    assert_true(d[2].h2d_bytes_per_second == 4.5e9);
    assert_true(d[3].h2d_bytes_per_second == d[0].h2d_bytes_per_second);
    world_close(&w);
}

/* As many as hide fetches, but never more tokens than promised. */
static void test_pass(void **state)
{
    (void)state;
    assert_int_equal(eval_pass_most(800, 30, 5000), 27);
    assert_int_equal(eval_pass_most(800, 30, 5), 5);
    assert_int_equal(eval_pass_most(1e9, 1024, 5000), 32);
    assert_int_equal(eval_pass_most(1e9, 10, 5000), 64);
    assert_int_equal(eval_pass_most(1e9, 20000, 5000), 1);
    assert_int_equal(eval_pass_most(1e9, 12000, 5000), 2);
    assert_int_equal(eval_pass_most(1e9, 40000, 5000), 1);
    assert_int_equal(eval_pass_most(0.5, 30, 5000), 1);
}

/* Of C micro-batches, of which each takes so many seconds. Sub-models of 100 bytes, all fetched; the first
 * ones are resident. */
static part_plan plan_of(part_sub_model subs[5], uint32_t C, double seconds, uint32_t resident)
{
    for (uint32_t k = 0; k < 5; k++)
        subs[k] = (part_sub_model){.param_bytes = 100, .resident = k < resident};
    return (part_plan){.micro_batches = C,
                       .n_sub_models = 5,
                       .sub_models = subs,
                       .cut_bytes = 600,
                       .predicted_step_seconds = seconds * C};
}

/* Bytes for each micro-batch first; seconds, which are guessed, only where they differ by much. */
static void test_better(void **state)
{
    part_sub_model subs[2][5];
    (void)state;
    part_plan one = plan_of(subs[0], 1, 1, 0), two = plan_of(subs[1], 2, 1, 0);
    assert_true(eval_plan_is_better(&two, &one));
    assert_false(eval_plan_is_better(&one, &two));
    two = plan_of(subs[1], 2, 1.01, 0);
    assert_true(eval_plan_is_better(&two, &one));
    two = plan_of(subs[1], 2, 1.03, 0);
    assert_false(eval_plan_is_better(&two, &one));
    assert_true(eval_plan_is_better(&one, &two));
    one = plan_of(subs[0], 1, 1, 3); /* nothing is fetched: the last two have the ring */
    two = plan_of(subs[1], 2, 0.999, 2);
    assert_false(eval_plan_is_better(&two, &one));
    two = plan_of(subs[1], 2, 0.97, 2);
    assert_true(eval_plan_is_better(&two, &one));
    one = plan_of(subs[0], 1, 1, 0);
    part_plan four = plan_of(subs[1], 4, 0.999, 0);
    assert_true(eval_plan_is_better(&four, &one));
    four.boundaries = PART_ON_HOST; /* more than what is not fetched */
    assert_false(eval_plan_is_better(&four, &one));
}

static void refuse(eval_request r, atom_status want, const char *word)
{
    eval_result result = {.tokens = -5};
    assert_int_equal(eval_loss(&r, &result), want);
    if (!strstr(atom_fail_message(), word))
        fail_msg("'%s' does not say '%s'", atom_fail_message(), word);
    assert_int_equal(result.tokens, -5);
}

static void test_refuses(void **state)
{
    world w;
    (void)state;
    world_open(&w);
    eval_request r = request_of(&w, 2);
    r.split = "test";
    refuse(r, ATOM_E_USAGE, "split");
    r = request_of(&w, 2);
    r.batches = -1;
    refuse(r, ATOM_E_USAGE, "batches");
    r = request_of(&w, 2);
    r.sequence = 17;
    refuse(r, ATOM_E_USAGE, "positions");
    r = request_of(&w, 2);
    r.data = w.s.dir;
    refuse(r, ATOM_E_FORMAT, w.s.dir);
    r = request_of(&w, 2);
    r.model = "gpt2-124m";
    r.sequence = 8;
    refuse(r, ATOM_E_USAGE, "no weights");
    r = request_of(&w, 2);
    r.device_memory = 4096;
    refuse(r, ATOM_E_RESOURCE, "device");
    write_split(&w, "val", w.val, T, 1);
    refuse(request_of(&w, 2), ATOM_E_FORMAT, "sequence_len");
    model_dir_param(&w.m, "ln_f.weight")[0] = INFINITY;
    atom_log_set_level(ATOM_LOG_ERROR);
    model_dir_save(&w.m);
    write_split(&w, "val", w.val, VAL_TOKENS, 1);
    refuse(request_of(&w, 2), ATOM_E_DIVERGED, "finite");
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_forward), cmocka_unit_test(test_packing_is_the_runs),
        cmocka_unit_test(test_budgets),        cmocka_unit_test(test_is_the_trainers),
        cmocka_unit_test(test_passes),         cmocka_unit_test(test_link),
        cmocka_unit_test(test_pass),           cmocka_unit_test(test_better),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
