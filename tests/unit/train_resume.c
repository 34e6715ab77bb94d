/*
 * What a run goes on from: each key that differs from the checkpoint's is told, each exactly once, and
 * what would mix two runs is refused before anything is touched.
 */
#include "atom/base/files.h"
#include "atom/train/trainer.h"
#include "tests/lib/little_run.h"

#include <stdio.h>
#include <string.h>

static scratch place;
static char notes[4000];

static void note(void *ctx, const char *text)
{
    size_t used = strlen(notes);
    (void)ctx;
    snprintf(notes + used, sizeof notes - used, "%s\n", text);
}

static unsigned told(const char *words)
{
    unsigned n = 0;
    for (const char *at = notes; (at = strstr(at, words)); at += strlen(words))
        n++;
    return n;
}

static void put(train_config *c, const char *key, const char *value)
{
    int at = opt_find(&train_command, key);
    if (at < 0)
        fail_msg("no key %s", key);
    must(opt_set(&train_command, (uint32_t)at, value, c));
}

/* As many steps in place/out, a checkpoint of each. */
static void configure(train_config *c, const char *out, const char *steps)
{
    little_config(c, &place, out);
    put(c, "max_steps", steps);
    put(c, "save_steps", "1");
    put(c, "save_total_limit", "0");
    put(c, "eval_steps", "0");
    put(c, "sequence_len", "16");
}

static atom_status begin(const train_config *c, trainer **t)
{
    const train_hooks hooks = {.note = note};
    notes[0] = 0;
    return trainer_open(c, &hooks, t);
}

/* Two steps in place/run. */
static int open_place(void **state)
{
    train_config c;
    train_summary summary;
    trainer *t = NULL;
    (void)state;
    little_world(&place);
    configure(&c, "run", "2");
    must(begin(&c, &t));
    must(trainer_run(t, &summary));
    trainer_close(&t);
    train_config_free(&c);
    return 0;
}

static int close_place(void **state)
{
    (void)state;
    scratch_close(&place);
    return 0;
}

/* A dry run that goes on with it, and has other values for up to two keys. */
static void resumed(const char *const keys[4], const char *says, unsigned n)
{
    train_config c;
    trainer *t = NULL;
    configure(&c, "run", "4");
    put(&c, "resume_from_checkpoint", "auto");
    c.dry_run = true;
    for (int i = 0; i < 4 && keys[i]; i += 2)
        put(&c, keys[i], keys[i + 1]);
    must(begin(&c, &t));
    assert_int_equal(told("resumed from "), 1);
    if (told("resume: ") != n || (says && told(says) != 1))
        fail_msg("%s: not %u notes with %s:\n%s", keys[0] ? keys[0] : "nothing", n,
                 says ? says : "nothing", notes);
    trainer_close(&t);
    train_config_free(&c);
}

static void what_changes_is_told(void **state)
{
    static const struct {
        const char *keys[4], *says;
        unsigned n;
    } cases[] = {
        {{NULL}, NULL, 0},
        {{"learning_rate", "0.5"}, "resume: learning_rate is 0.5 from here; it was ", 2},
        {{"weight_decay", "0.25"}, "resume: weight_decay is 0.25 from here; it was ", 1},
        {{"max_grad_norm", "2"}, "resume: max_grad_norm is 2 from here; it was 1\n", 1},
        {{"adam_beta1", "0.5"}, "resume: adam_beta1 is 0.5 from here; it was ", 1},
        {{"adam_beta2", "0.5"}, "resume: adam_beta2 is 0.5 from here; it was ", 1},
        {{"adam_epsilon", "0.125"}, "resume: adam_epsilon is 0.125 from here; it was ", 1},
        {{"lr_scheduler", "linear", "learning_rate", "1e-3"},
         "resume: lr_scheduler is linear from here; it was constant\n",
         3},
        {{"warmup_steps", "1"}, "resume: warmup_steps is 1 from here; it was 0\n", 1},
        {{"dtype", "bf16"}, "resume: dtype is bf16 from here; it was fp32\n", 1},
        {{"seed", "5"}, "resume: the seed changed; from here on ", 1},
        {{"micro_batch_size", "1"},
         "resume: a step has 1 x 2 sequences from here (micro_batch_size x "
         "gradient_accumulation_steps); it had 2 x 2\n",
         1},
        {{"gradient_accumulation_steps", "3"}, "resume: a step has 2 x 3 sequences from here", 1},
        {{"sequence_len", "8"}, "resume: sequence_len is 8 from here; it was 16, so", 1},
        {{"dropout", "0.25"}, "resume: dropout of attention is 0.25 from here; it was 0.1\n", 3},
        {{"moments_dtype", "bf16"},
         "resume: the checkpoint's moments are fp32, but from now on ",
         1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        resumed(cases[i].keys, cases[i].says, cases[i].n);
}

/* Nothing is left of it, and it says so. */
static void refused(train_config *c, atom_status status, const char *says)
{
    trainer *t = NULL;
    atom_status st = begin(c, &t);
    if (st != status || !strstr(atom_fail_message(), says))
        fail_msg("not %s: %s", says, st == ATOM_OK ? "it goes on" : atom_fail_message());
    assert_null(t);
    train_config_free(c);
}

/* configure, and go on with what lies at place/from. */
static void configure_resume(train_config *c, const char *out, const char *steps, const char *from)
{
    configure(c, out, steps);
    put(c, "resume_from_checkpoint", from ? scratch_path(&place, from) : "auto");
}

static void what_would_mix_is_refused(void **state)
{
    train_config c;
    (void)state;
    configure(&c, "run", "4");
    refused(&c, ATOM_E_USAGE, "already holds a run; continue it with");
    configure_resume(&c, "run", "4", "run/checkpoint-9");
    refused(&c, ATOM_E_USAGE, "there is no directory ");
    configure_resume(&c, "run", "4", "run/checkpoint-1");
    refused(&c, ATOM_E_USAGE, "up to step 2; continue in another output_dir");
    configure_resume(&c, "run", "2", NULL);
    refused(&c, ATOM_E_USAGE, "the checkpoint is at step 2 and max_steps is 2; raise max_steps");
    configure_resume(&c, "run", "4", NULL);
    put(&c, "optimizer", "muon");
    refused(&c, ATOM_E_USAGE, "was trained with optimizer: adamw, but this run has muon");
    configure(&c, "run", "4");
    c.overwrite = true;
    put(&c, "model", scratch_path(&place, "run/checkpoint-2"));
    refused(&c, ATOM_E_USAGE, "which --overwrite would empty");
    assert_true(atom_path_exists(scratch_path(&place, "run/checkpoint-2/model.safetensors")));

    must(atom_dir_make(scratch_path(&place, "theirs/checkpoint-3")));
    configure(&c, "theirs", "4");
    refused(&c, ATOM_E_USAGE, "contains checkpoint-3, which was not made by atom");
    configure_resume(&c, "theirs", "4", "run/checkpoint-2");
    refused(&c, ATOM_E_USAGE, "contains checkpoint-3, which was not made by atom");
    must(atom_dir_make(scratch_path(&place, "used")));
    scratch_write(&place, "used/metrics.jsonl", "", 0);
    configure_resume(&c, "used", "4", "run/checkpoint-2");
    refused(&c, ATOM_E_USAGE, "already holds another run than that of ");

    must(atom_dir_make(scratch_path(&place, "member/pool/keys")));
    scratch_write(&place, "member/pool/manifest.json", "{}", 2);
    configure(&c, "member", "4");
    refused(&c, ATOM_E_USAGE, "belongs to a member of a pool");
    configure(&c, "member/pool", "4");
    refused(&c, ATOM_E_USAGE, "belongs to a member of a pool");
}

/* Its own newest by its name, too; and an older one elsewhere. */
static void what_belongs_together_goes_on(void **state)
{
    static const struct {
        const char *out, *from, *says;
    } cases[] = {{"run", "run/checkpoint-2", "checkpoint-2 (step 2)"},
                 {"branch", "run/checkpoint-1", "checkpoint-1 (step 1)"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        train_config c;
        trainer *t = NULL;
        configure_resume(&c, cases[i].out, "4", cases[i].from);
        must(begin(&c, &t));
        assert_int_equal(told(cases[i].says), 1);
        trainer_close(&t);
        train_config_free(&c);
    }
}

static void a_checkpoint_of_another_model(void **state)
{
    static const char other[] =
        "{\"model_type\":\"gpt2\",\"vocab_size\":257,\"n_positions\":16,\"n_embd\":48,\"n_layer\":"
        "2,"
        "\"n_head\":4,\"resid_pdrop\":0.1,\"embd_pdrop\":0.1,\"attn_pdrop\":0.1}";
    train_config c;
    (void)state;
    scratch_write(&place, "other.json", other, sizeof other - 1);
    configure_resume(&c, "run", "4", NULL);
    put(&c, "model", scratch_path(&place, "other.json"));
    refused(&c, ATOM_E_USAGE,
            "is a checkpoint of another model: its n_head is 3, but this run's is 4;");
}

/* The number in its name decides which one is the newest. */
static void a_renamed_checkpoint(void **state)
{
    train_config c;
    char from[640];
    (void)state;
    must(atom_dir_make(scratch_path(&place, "renamed")));
    snprintf(from, sizeof from, "%s", scratch_path(&place, "run/checkpoint-1"));
    assert_int_equal(rename(from, scratch_path(&place, "renamed/checkpoint-5")), 0);
    configure_resume(&c, "renamed", "9", NULL);
    refused(&c, ATOM_E_FORMAT,
            "is called the checkpoint of step 5, but its atom_state.json says step 1;");
    assert_int_equal(rename(scratch_path(&place, "renamed/checkpoint-5"),
                            scratch_path(&place, "run/checkpoint-1")),
                     0);
}

/* 374 windows, of which 8 were seen. */
static void passes_over_the_data(void **state)
{
    train_config c;
    trainer *t = NULL;
    (void)state;
    configure_resume(&c, "run", "93", NULL);
    c.num_train_epochs = 1;
    c.dry_run = true;
    must(begin(&c, &t));
    trainer_close(&t);
    c.max_steps = 94; /* one more or less is how passes end */
    must(begin(&c, &t));
    trainer_close(&t);
    c.micro_batch_size = 1;
    c.max_steps = 187;
    refused(&c, ATOM_E_USAGE,
            "the run would end after 1.01 passes over the data instead of 1; give --max-steps 185");
    configure_resume(&c, "run", "4", NULL);
    c.num_train_epochs = 0.02;
    refused(&c, ATOM_E_USAGE, "are already 0.0214 passes over this data; raise num_train_epochs");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_changes_is_told),
        cmocka_unit_test(what_would_mix_is_refused),
        cmocka_unit_test(what_belongs_together_goes_on),
        cmocka_unit_test(a_checkpoint_of_another_model),
        cmocka_unit_test(a_renamed_checkpoint),
        cmocka_unit_test(passes_over_the_data),
    };
    return cmocka_run_group_tests(tests, open_place, close_place);
}
