/*
 * Summed gradients among strangers learn: sixteen members, seven of which lie in every step, as the study of
 * averaged parameters had them (tests/pool/liar.c, docs/measurements/2026-11-21-convergence.md), against the
 * same pool without liars; three seeds. Without liars it learns what plain sums do, which are one
 * trainer's, and the lies are shown to be the end of those.
 */
#include "tests/lib/clipped_world.h"
#include "tests/lib/little_gpt2.h"
#include "tests/lib/sanitized.h"
#include "tests/scratch.h"

#include <stdio.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { MEMBERS = 16, B = 2, C = 64, T = 32, STEPS = 100, TOKENS = 400000, SYMBOLS = 64, NEXT = 8 };

static void must(atom_status st)
{
    if (st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
}

static uint32_t draw(uint64_t *x, uint32_t below)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return (uint32_t)((*x >> 32) % below);
}

/* A made-up language of bytes: each may be followed by a few, by the first of them most often. */
static void write_data(const char *dir)
{
    static uint8_t follows[SYMBOLS][NEXT];
    static uint32_t ids[TOKENS];
    uint64_t x = 88172645463325252ull;
    uint32_t at = 0;
    for (uint32_t i = 0; i < SYMBOLS * NEXT; i++)
        follows[i / NEXT][i % NEXT] = (uint8_t)draw(&x, SYMBOLS);
    for (uint32_t n = 0; n < TOKENS; n++) {
        uint32_t k = 0;
        while (k < NEXT - 1 && draw(&x, 2))
            k++;
        ids[n] = at = follows[at][k];
    }
    uint32_t some = TOKENS / 20;
    must(little_shards_write(dir, "train", SYMBOLS, ids, TOKENS - some));
    must(little_shards_write(dir, "val", SYMBOLS, ids + TOKENS - some, some));
}

static scratch place;
static char data[600], model[600];

static void configure(train_config *c, int64_t seed)
{
    must(train_config_defaults(c));
    atom_free(c->model);
    c->model = atom_strdup(model);
    c->data = atom_strdup(data);
    c->output_dir = atom_strdup(scratch_path(&place, "out"));
    c->overwrite = true;
    c->micro_batch_size = B;
    c->gradient_accumulation_steps = 4;
    c->sequence_len = T;
    c->max_steps = STEPS;
    c->learning_rate = 5e-3;
    c->warmup_steps = 10;
    c->max_grad_norm = 1;
    c->dropout = -1;
    c->dtype = PLAN_DTYPE_FP32;
    c->execute = TRAIN_EXECUTE_INTERPRETED;
    c->threads = 1;
    c->eval_steps = STEPS;
    c->eval_batches = 100;
    c->save_steps = 0;
    c->seed = seed;
    atom_free(c->device);
    c->device = atom_strdup("cpu");
}

/* The validation loss that such a pool ends with. */
static double learn(int64_t seed, bool robust, const clipped_lie lie[MEMBERS])
{
    clipped_world *w = atom_alloc(1, sizeof *w);
    train_config c;
    train_hooks hooks = {.seam = &w->seam};
    train_summary summary;
    trainer *t;
    configure(&c, seed);
    clipped_open(w, MEMBERS, robust, STEPS);
    memcpy(w->lie, lie, MEMBERS * sizeof *lie);
    must(trainer_open(&c, &hooks, &t));
    clipped_follow(w, t, C, T);
    must(trainer_run(t, &summary));
    double loss = summary.validation_loss;
    trainer_close(&t);
    clipped_close(w);
    train_config_free(&c);
    atom_free(w);
    return loss;
}

static const clipped_lie nobody[MEMBERS] = {HONEST};
static const clipped_lie seven[MEMBERS] = {[9] = FLIP, FLIP,  TIMES_100, NOT_A_NUMBER,
                                           STALE,      NOISE, NOISE};

/* A plain sum leaves out what is not a number, and asks others for it. */
static const clipped_lie numbers[MEMBERS] = {[9] = FLIP, FLIP,  TIMES_100, STALE,
                                             STALE,      NOISE, NOISE};

static void seven_liars_of_sixteen_cost_little(void **state)
{
    (void)state;
    if (SANITIZED)
        skip();
    for (int64_t seed = 1; seed <= 3; seed++) {
        double clean = learn(seed, true, nobody), lied = learn(seed, true, seven);
        print_message("seed %d: %.4f, with seven liars %.4f (%+.2f %%)\n", (int)seed, clean, lied,
                      100 * (lied / clean - 1));
        assert_true(lied < 1.01 * clean);
    }
}

static void without_liars_it_is_the_plain_sum(void **state)
{
    (void)state;
    if (SANITIZED)
        skip();
    double plain = learn(1, false, nobody), clean = learn(1, true, nobody);
    double lied = learn(1, false, numbers);
    print_message("plain sums %.4f, clipped %.4f (%+.2f %%), plain sums with seven liars %.4f\n",
                  plain, clean, 100 * (clean / plain - 1), lied);
    assert_true(clean < 1.005 * plain);
    assert_true(lied > 1.1 * plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seven_liars_of_sixteen_cost_little),
        cmocka_unit_test(without_liars_it_is_the_plain_sum),
    };
    scratch_open(&place);
    snprintf(data, sizeof data, "%s/data", place.dir);
    snprintf(model, sizeof model, "%s/config.json", place.dir);
    must(atom_dir_make(data));
    write_data(data);
    must(little_gpt2_write(model, SYMBOLS, T, 0));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_close(&place);
    return failed;
}
