/*
 * Checkpoints that are written while training goes on, where more than updates changes the state:
 * somebody who takes part, steps made elsewhere, and a state on the device that evaluation brings
 * to the host; and with the state on disk. A checkpoint that nobody hurries is not written when the run is three steps further,
 * and is of its step to the bit, however little spare memory there is.
 */
#include "atom/base/files.h"
#include "atom/train/trainer.h"
#include "tests/lib/little_run.h"

#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SAVED = 4, LOOKED = 7, STEPS = 8 };

typedef enum setting { ALONE, PART, SHARED, DEVICE, DISK } setting;

typedef struct run {
    setting kind;
    scratch *place;
    char out[64];
    train_config config;
    train_seam seam;
    trainer *t;
    train_summary summary;
    uint64_t floats;
    unsigned turns, ends, merged; /* ends: after so many turns it is asked to stop */
    int64_t steps, jump;          /* jump: steps that come from elsewhere at once */
    bool was_there;               /* the checkpoint, when the run was at step LOOKED */
    float *piece;
} run;

static char *saved(run *r, int64_t step, const char *file)
{
    return atom_format("%s/%s/checkpoint-%d/%s", r->place->dir, r->out, (int)step, file);
}

/* --- who takes part -------------------------------------------------------------------------- */

static void before_updates(void *ctx, float *live, const train_reader *reader)
{
    run *r = ctx;
    uint64_t n = r->floats / 3, first = r->merged++ % 3 * n;
    if (reader)
        reader->leave(reader->ctx, first, n);
    for (uint64_t i = first; i < first + n; i++)
        live[i] += 1e-3f * (float)(i % 7);
}

static void stepped(void *ctx, uint64_t samples, uint64_t tokens)
{
    (void)samples;
    (void)tokens;
    ((run *)ctx)->steps++;
}

static bool done(void *ctx)
{
    run *r = ctx;
    return r->steps >= r->config.max_steps;
}

static char *marks(void *ctx)
{
    return atom_format("{\"merged\":%u}", ((run *)ctx)->merged);
}

/* A step that others made: every weight and moment is another. */
static atom_status take(void *ctx, const file_vector state[3], const train_reader *reader,
                        train_lease *out)
{
    run *r = ctx;
    r->steps += r->jump;
    *out = (train_lease){.moved = true, .steps = (uint64_t)r->steps};
    out->samples = out->first_sample = out->steps * 4;
    reader->leave(reader->ctx, 0, r->floats);
    for (unsigned part = 0; part < 3; part++) {
        for (uint64_t i = 0; i < r->floats; i++)
            r->piece[i] = 1e-3f * (float)(i % 11) + (float)r->steps + 100 * (float)part;
        ATOM_TRY(state[part].put(state[part].ctx, 0, r->floats, r->piece));
    }
    return ATOM_OK;
}

/* Asked between steps. */
static bool stop(void *ctx)
{
    run *r = ctx;
    if (++r->turns == LOOKED) {
        char *path = saved(r, SAVED, "model.safetensors");
        r->was_there = atom_path_exists(path);
        atom_free(path);
    }
    return r->turns == r->ends;
}

/* --- runs ------------------------------------------------------------------------------------ */

/* A plan of one sub-model whose updates are on the device, as a card would get. */
static void plan_for_device(run *r)
{
    part_plan *plan = NULL;
    trainer *t = NULL;
    train_hooks hooks = {.ctx = r};
    r->config.dry_run = true;
    must(trainer_open(&r->config, &hooks, &t));
    must(part_plan_copy(trainer_plan(t), &plan));
    trainer_close(&t);
    r->config.dry_run = false;
    plan->in_place = false;
    plan->update_on_device = true;
    plan->device_peak_bytes *= 8;
    must(part_plan_write(plan, scratch_path(r->place, "plan.json")));
    part_plan_close(&plan);
    set(&r->config.plan, scratch_path(r->place, "plan.json"));
    r->config.host_memory = 0; /* the plan has it, and a key beside it would be refused */
}

static void configure(run *r, scratch *place, setting kind, const char *out)
{
    memset(r, 0, sizeof *r);
    r->kind = kind;
    r->place = place;
    r->jump = 1;
    snprintf(r->out, sizeof r->out, "%s", out);
    train_config *c = &r->config;
    little_config(c, place, out);
    c->eval_steps = kind == DEVICE;
    c->eval_batches = 2;
    c->max_steps = STEPS;
    if (kind == DISK)
        c->optimizer_state = PLAN_STATE_ON_DISK;
    r->seam = (train_seam){.ctx = r, .stepped = stepped, .done = done, .marks = marks};
    if (kind == PART)
        r->seam.before_updates = before_updates;
    r->seam.shared = kind == SHARED;
    r->seam.take = take;
    if (kind == SHARED) /* steps are counted where they are made */
        r->seam.stepped = NULL;
}

static void go(run *r)
{
    train_hooks hooks = {.ctx = r, .stop = stop};
    if (r->kind == PART || r->kind == SHARED)
        hooks.seam = &r->seam;
    if (r->kind == DEVICE)
        plan_for_device(r);
    must(trainer_open(&r->config, &hooks, &r->t));
    r->floats = trainer_floats(r->t);
    r->piece = atom_alloc(r->floats, sizeof *r->piece);
    atom_status st = trainer_run(r->t, &r->summary);
    if (r->ends)
        assert_int_equal(st, ATOM_E_INTERRUPTED);
    else
        must(st);
}

static void end(run *r)
{
    atom_free(r->piece);
    trainer_close(&r->t);
    train_config_free(&r->config);
}

static void same_checkpoint(run *a, run *b, int64_t step, bool pool)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors",
                                        "atom_state.json", "pool.json"};
    for (int i = 0; i < 3 + pool; i++) {
        char *one = saved(a, step, files[i]), *two = saved(b, step, files[i]), *x = NULL, *y = NULL;
        uint64_t n = 0, m = 0;
        must(atom_file_read(one, 1 << 24, &x, &n));
        must(atom_file_read(two, 1 << 24, &y, &m));
        assert_int_equal(n, m);
        if (memcmp(x, y, n) != 0)
            fail_msg("%s and %s differ", one, two);
        atom_free(one);
        atom_free(two);
        atom_free(x);
        atom_free(y);
    }
}

/* Against a run that is stopped at that step, whose last checkpoint is written while nothing
 * changes. */
static void a_checkpoint_is_of_its_step(setting kind)
{
    scratch place;
    run whole, free_run, tight;
    little_world(&place);
    configure(&whole, &place, kind, "whole");
    whole.ends = SAVED;
    go(&whole);
    configure(&free_run, &place, kind, "free");
    free_run.config.save_steps = SAVED;
    free_run.config.save_rate =
        1; /* bytes per second: it ends when the run does, or somebody waits */
    go(&free_run);
    assert_int_equal(free_run.turns, STEPS);
    assert_false(free_run.was_there);
    assert_true(free_run.summary.save_copied_bytes > 0);
    same_checkpoint(&free_run, &whole, SAVED, kind == PART || kind == SHARED);
    configure(&tight, &place, kind, "tight");
    tight.config.save_steps = SAVED;
    tight.config.save_rate = 1;
    tight.config.host_memory = free_run.summary.host_plan_bytes + 50000;
    go(&tight);
    assert_true(tight.summary.spare_bytes < free_run.summary.spare_bytes);
    same_checkpoint(&tight, &whole, SAVED, kind == PART || kind == SHARED);
    same_checkpoint(&tight, &free_run, STEPS, kind == PART || kind == SHARED);
    end(&whole);
    end(&free_run);
    end(&tight);
    scratch_close(&place);
}

static void while_updates_go_on(void **state)
{
    (void)state;
    a_checkpoint_is_of_its_step(ALONE);
}

static void while_somebody_takes_part(void **state)
{
    (void)state;
    a_checkpoint_is_of_its_step(PART);
}

static void while_steps_come_from_elsewhere(void **state)
{
    (void)state;
    a_checkpoint_is_of_its_step(SHARED);
}

static bool is_saved(run *r, int64_t step)
{
    char *path = saved(r, step, "model.safetensors");
    bool there = atom_path_exists(path);
    atom_free(path);
    return there;
}

/* Who catches up passes the steps that are to be saved without stopping at them. */
static void where_several_steps_come_at_once(void **state)
{
    (void)state;
    scratch place;
    run r;
    little_world(&place);
    configure(&r, &place, SHARED, "jumps");
    r.jump = 3;
    r.config.max_steps = 12;
    r.config.save_steps = 5;
    r.config.save_total_limit = 0;
    go(&r);
    assert_int_equal(r.turns, 4);
    assert_false(is_saved(&r, 3));
    assert_true(is_saved(&r, 6));
    assert_false(is_saved(&r, 9));
    assert_true(is_saved(&r, 12));
    end(&r);
    scratch_close(&place);
}

static void while_the_state_is_on_the_device(void **state)
{
    (void)state;
    a_checkpoint_is_of_its_step(DEVICE);
}

/* There nothing is copied: the snapshot keeps the generation of its step. */
static void while_the_state_is_on_disk(void **state)
{
    (void)state;
    scratch place;
    run whole, free_run;
    little_world(&place);
    configure(&whole, &place, DISK, "whole");
    whole.ends = SAVED;
    go(&whole);
    assert_true(trainer_plan(whole.t)->disk);
    configure(&free_run, &place, DISK, "free");
    free_run.config.save_steps = SAVED;
    free_run.config.save_rate = 1;
    go(&free_run);
    assert_int_equal(free_run.turns, STEPS);
    assert_false(free_run.was_there);
    assert_true(free_run.summary.save_copied_bytes == 0);
    same_checkpoint(&free_run, &whole, SAVED, false);
    end(&whole);
    end(&free_run);
    scratch_close(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(while_updates_go_on),
        cmocka_unit_test(while_somebody_takes_part),
        cmocka_unit_test(while_steps_come_from_elsewhere),
        cmocka_unit_test(where_several_steps_come_at_once),
        cmocka_unit_test(while_the_state_is_on_the_device),
        cmocka_unit_test(while_the_state_is_on_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
