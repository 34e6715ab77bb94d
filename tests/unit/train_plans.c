/*
 * Where a run's plan comes from: what others have is judged by this host's own measurement, what is made
 * here is offered, and a file that is for another run is refused.
 */
#include "atom/train/trainer.h"
#include "tests/lib/little_run.h"

#include <stdio.h>
#include <string.h>

enum { OTHERS_MAX = 12 };

typedef struct run {
    scratch place;
    train_config config;
    train_seam seam;
    train_plans plans;
    trainer *t;
    const char *who[OTHERS_MAX], *text[OTHERS_MAX]; /* of others */
    int others, looked;
    char *offered, *device_class;
    char notes[8000];
} run;

static void note(void *ctx, const char *text)
{
    run *a = ctx;
    size_t used = strlen(a->notes);
    snprintf(a->notes + used, sizeof a->notes - used, "%s\n", text);
}

static bool told(const run *a, const char *words)
{
    return strstr(a->notes, words) != NULL;
}

static void is_told(const run *a, const char *words)
{
    if (!told(a, words))
        fail_msg("not %s: %s", words, a->notes);
}

static atom_status ask(void *ctx, const char *device_class, train_plan_look look, void *look_ctx)
{
    run *a = ctx;
    bool enough = false;
    set(&a->device_class, device_class);
    for (a->looked = 0; a->looked < a->others && !enough; a->looked++)
        enough = look(look_ctx, a->who[a->looked], a->text[a->looked], strlen(a->text[a->looked]));
    return ATOM_OK;
}

static void offer(void *ctx, const char *device_class, const char *plan)
{
    run *a = ctx;
    if (a->plans.ask)
        assert_string_equal(device_class, a->device_class);
    assert_null(a->offered);
    a->offered = atom_strdup(plan);
}

static atom_status open_run(run *a)
{
    const train_hooks hooks = {.ctx = a,
                               .note = note,
                               .plans = a->plans.ctx ? &a->plans : NULL,
                               .seam = a->seam.ctx ? &a->seam : NULL};
    a->notes[0] = 0;
    atom_free(a->offered);
    a->offered = NULL;
    return trainer_open(&a->config, &hooks, &a->t);
}

/* A run of several sub-models that only looks for a plan. */
static void begin(run *a)
{
    memset(a, 0, sizeof *a);
    little_world(&a->place);
    little_config(&a->config, &a->place, "run");
    a->config.device_memory = 1700 << 10;
    a->config.dry_run = true;
    a->config.eval_steps = 0;
}

static void end(run *a)
{
    atom_free(a->offered);
    atom_free(a->device_class);
    train_config_free(&a->config);
    scratch_close(&a->place);
}

/* --- plans of others ------------------------------------------------------------------------------ */

static void nobody_has_one(void **state)
{
    run a;
    char *own = NULL;
    (void)state;
    begin(&a);
    a.plans = (train_plans){.ctx = &a, .ask = ask, .offer = offer};
    must(open_run(&a));
    is_told(&a, "plan: this host's own; no member of the pool has one");
    must(part_plan_json(trainer_plan(a.t), &own));
    assert_string_equal(a.offered, own);
    assert_string_not_equal(trainer_plan_origin(a.t), "pool");
    trainer_close(&a.t);
    a.plans.ask = NULL; /* who asks nobody says nothing of others */
    must(open_run(&a));
    assert_false(told(&a, "no member of the pool has one"));
    atom_free(own);
    must(part_plan_json(trainer_plan(a.t), &own));
    assert_string_equal(a.offered, own);
    is_told(&a, "profile: from the cache");
    assert_string_equal(trainer_plan_origin(a.t), "cache");
    trainer_close(&a.t);
    atom_free(own);
    end(&a);
}

/* A plan of this run; slow: with everything computed again and fetched twice. */
static char *make_plan(run *a, bool slow)
{
    part_plan *plan = NULL;
    char *text = NULL;
    must(open_run(a));
    must(part_plan_copy(trainer_plan(a->t), &plan));
    trainer_close(&a->t);
    for (uint32_t k = 0; slow && k + 1 < plan->n_sub_models; k++)
        plan->sub_models[k].keep = PART_RECOMPUTE;
    for (uint32_t k = 0; slow && k < plan->n_sub_models; k++)
        plan->sub_models[k].resident = false;
    if (slow) {
        atom_free(plan->holds);
        plan->holds = NULL;
    }
    plan->predicted_step_seconds = 1e-9; /* what a plan says of itself does not count */
    must(part_plan_json(plan, &text));
    part_plan_close(&plan);
    return text;
}

static void what_others_have_is_judged(void **state)
{
    run a;
    (void)state;
    begin(&a);
    a.plans = (train_plans){.ctx = &a, .ask = ask, .offer = offer};
    char *good = make_plan(&a, false), *slow = make_plan(&a, true);
    a.config.gradient_accumulation_steps = 3;
    char *other = make_plan(&a, false);
    a.config.gradient_accumulation_steps = 2;
    const char *const texts[] = {"no plan", other, slow, good, slow};
    const char *const names[] = {"ann", "bob", "cid", "dan", "eve"};
    a.others = 5;
    memcpy(a.text, texts, sizeof texts);
    memcpy(a.who, names, sizeof names);
    must(open_run(&a));
    assert_int_equal(a.looked, 5);
    is_told(&a, "plan: the one from ann is not used: ");
    assert_true(
        told(&a, "plan: the one from bob is not used: it is for 3 micro-batches per step, not 2"));
    is_told(&a, "plan: the one from cid is not used: measured here, a step takes ");
    is_told(&a, "plan: this host's own; the one from dan is just as fast here: ");
    assert_false(told(&a, "eve")); /* one is enough */
    assert_string_not_equal(trainer_plan_origin(a.t), "pool");
    trainer_close(&a.t);

    /* This host's own of last time ends the asking. */
    a.text[0] = good;
    a.who[0] = "";
    must(open_run(&a));
    assert_int_equal(a.looked, 1);
    is_told(&a, "the one from last time is just as fast here: ");
    trainer_close(&a.t);

    /* No more than eight are kept. */
    a.others = OTHERS_MAX;
    for (int i = 0; i < OTHERS_MAX; i++) {
        a.text[i] = "no plan";
        a.who[i] = i < 8 ? "early" : "late";
    }
    must(open_run(&a));
    assert_int_equal(a.looked, 9);
    is_told(&a, "the one from early is not used");
    assert_false(told(&a, "late"));
    trainer_close(&a.t);
    atom_free(good);
    atom_free(slow);
    atom_free(other);
    end(&a);
}

/* --- a plan in a file ----------------------------------------------------------------------------- */

static void refused(run *a, const char *says)
{
    assert_int_equal(open_run(a), ATOM_E_USAGE);
    if (!strstr(atom_fail_message(), says))
        fail_msg("not %s: %s", says, atom_fail_message());
    assert_null(a->t);
}

static void a_file_of_another_run(void **state)
{
    run a;
    part_plan *plan = NULL;
    (void)state;
    begin(&a);
    must(open_run(&a));
    must(part_plan_copy(trainer_plan(a.t), &plan));
    trainer_close(&a.t);
    assert_true(plan->n_sub_models > 1 && plan->clip && !plan->in_place);
    snprintf(plan->device, sizeof plan->device, "another card");
    set(&a.config.plan, scratch_path(&a.place, "plan.json"));
    must(part_plan_write(plan, a.config.plan));
    must(open_run(&a));
    assert_string_equal(trainer_plan_origin(a.t), "file");
    assert_int_equal(trainer_plan(a.t)->n_sub_models, plan->n_sub_models);
    assert_int_equal(trainer_plan(a.t)->device_budget_bytes, a.config.device_memory);
    is_told(&a, "note: the plan is for 'another card', but this is ");
    trainer_close(&a.t);

    a.config.gradient_accumulation_steps = 3;
    refused(&a,
            "is a plan for 2 micro-batches per step, but gradient_accumulation_steps is 3; make a "
            "new plan, or use 2");
    a.config.gradient_accumulation_steps = 2;
    a.config.devices = 2;
    refused(&a, "is a plan for 1 device, but devices is 2; make a new plan, or use 1");
    a.config.devices = 1;
    a.config.max_grad_norm = 0;
    refused(&a, "was made with clipping; make a new plan, or change max_grad_norm");
    a.config.max_grad_norm = 1;
    must(part_plan_write(plan, a.config.plan));
    must(open_run(&a));
    trainer_close(&a.t);
    part_plan_close(&plan);
    end(&a);
}

/* In a pool the state stays on the host, and with dense steps in its memory. */
static void a_file_and_a_pool(void **state)
{
    run a;
    part_plan *plan = NULL;
    (void)state;
    begin(&a);
    a.config.device_memory = 0;
    must(open_run(&a));
    must(part_plan_copy(trainer_plan(a.t), &plan));
    trainer_close(&a.t);
    set(&a.config.plan, scratch_path(&a.place, "plan.json"));
    plan->in_place = false;
    plan->update_on_device = true;
    plan->device_peak_bytes *= 8;
    must(part_plan_write(plan, a.config.plan));
    must(open_run(&a));
    trainer_close(&a.t);
    a.seam = (train_seam){.ctx = &a, .host_bytes_per_float = 1, .least_bytes_per_float = 1};
    refused(&a, "keeps the optimizer's state on the device, but in a pool it stays on the host");
    part_plan_close(&plan);

    a.seam = (train_seam){0};
    atom_free(a.config.plan);
    a.config.plan = NULL;
    a.config.optimizer_state = PLAN_STATE_ON_DISK;
    must(open_run(&a));
    must(part_plan_copy(trainer_plan(a.t), &plan));
    trainer_close(&a.t);
    assert_true(plan->disk);
    a.config.optimizer_state = PLAN_STATE_FREE;
    set(&a.config.plan, scratch_path(&a.place, "disk.json"));
    must(part_plan_write(plan, a.config.plan));
    part_plan_close(&plan);
    must(open_run(&a));
    assert_false(trainer_seam_on_disk(a.t));
    trainer_close(&a.t);
    a.seam = (train_seam){.ctx = &a, .host_bytes_per_float = 2, .least_bytes_per_float = 1};
    must(open_run(&a));
    assert_true(trainer_seam_on_disk(a.t)); /* what can be spared goes there, too */
    trainer_close(&a.t);
    a.seam = (train_seam){.ctx = &a, .host_bytes_per_float = 2, .shared = true};
    refused(&a,
            "keeps the optimizer's state on disk, but in a pool with dense_steps it stays in host "
            "memory; make a new plan");
    end(&a);
}

/* What a seam takes is not there for training. */
static void a_pool_takes_memory(void **state)
{
    run a;
    (void)state;
    begin(&a);
    a.config.device_memory = 0;
    a.config.host_memory = 64 << 20;
    must(open_run(&a));
    uint64_t all = trainer_plan(a.t)->host_budget_bytes, floats = trainer_floats(a.t);
    trainer_close(&a.t);
    a.seam = (train_seam){.ctx = &a, .host_bytes_per_float = 8};
    must(open_run(&a));
    assert_int_equal(trainer_plan(a.t)->host_budget_bytes, all - 8 * floats);
    assert_false(trainer_seam_on_disk(a.t));
    trainer_close(&a.t);
    a.seam.host_bytes_per_float = 10000;
    assert_int_equal(open_run(&a), ATOM_E_RESOURCE);
    assert_non_null(
        strstr(atom_fail_message(), "host memory: in addition to training, this host needs "));
    a.seam.host_bytes_per_float = ((double)a.config.host_memory - 1000) / (double)floats;
    a.config.optimizer_state = PLAN_STATE_IN_MEMORY;
    assert_int_equal(open_run(&a), ATOM_E_RESOURCE);
    assert_non_null(strstr(atom_fail_message(), "; in addition this host needs "));
    end(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_has_one),        cmocka_unit_test(what_others_have_is_judged),
        cmocka_unit_test(a_file_of_another_run), cmocka_unit_test(a_file_and_a_pool),
        cmocka_unit_test(a_pool_takes_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
