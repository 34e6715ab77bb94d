/* The keys of atom train: the contract's names, defaults, aliases, what spans several keys;
 * schedule. */
#include "atom/train/config.h"

#include "atom/base/log.h"
#include "atom/text/shard.h"
#include "atom/train/epochs.h"
#include "atom/train/schedule.h"
#include "tests/scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static atom_status parse(train_config *c, opt_parsed *parsed, const char *words)
{
    char copy[1024], *argv[64], *save = NULL;
    int argc = 0;
    snprintf(copy, sizeof copy, "%.1023s", words);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    return train_config_parse(argc, argv, c, parsed);
}

/* Every key that other programs may pass. */
static void contract(void **state)
{
    static const char *const keys[] = {"model",
                                       "data",
                                       "output_dir",
                                       "device",
                                       "device_memory",
                                       "host_memory",
                                       "link_bandwidth",
                                       "dtype",
                                       "micro_batch_size",
                                       "gradient_accumulation_steps",
                                       "sequence_len",
                                       "max_steps",
                                       "learning_rate",
                                       "lr_scheduler",
                                       "min_lr_ratio",
                                       "warmup_steps",
                                       "weight_decay",
                                       "adam_beta1",
                                       "adam_beta2",
                                       "adam_epsilon",
                                       "max_grad_norm",
                                       "dropout",
                                       "seed",
                                       "eval_steps",
                                       "eval_batches",
                                       "logging_steps",
                                       "save_steps",
                                       "save_total_limit",
                                       "resume_from_checkpoint",
                                       "plan",
                                       "profile",
                                       "recompute",
                                       "execute",
                                       "trace",
                                       "threads",
                                       "overwrite"};
    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        int32_t row = opt_find(&train_command, keys[i]);
        if (row < 0 || strcmp(train_command.specs[row].name, keys[i]) != 0)
            fail_msg("no key %s", keys[i]);
        assert_non_null(train_command.specs[row].help);
        assert_int_equal(train_command.specs[row].flags & OPT_CLI_ONLY, 0);
    }
}

/* No two rows share a name, an alias or a letter. */
static void unambiguous(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < train_command.n_specs; i++) {
        const opt_spec *spec = &train_command.specs[i];
        assert_int_equal(opt_find(&train_command, spec->name), (int32_t)i);
        for (const char *const *alias = spec->aliases; alias && *alias; alias++)
            assert_int_equal(opt_find(&train_command, *alias), (int32_t)i);
        for (uint32_t j = 0; j < i; j++)
            assert_true(!spec->letter || spec->letter != train_command.specs[j].letter);
    }
}

static void defaults(void **state)
{
    train_config c;
    opt_parsed parsed;
    (void)state;
    assert_int_equal(parse(&c, &parsed, "--data d -o out"), ATOM_OK);
    assert_string_equal(c.model, "gpt2-124m");
    assert_string_equal(c.output_dir, "out");
    assert_string_equal(c.device, "auto");
    assert_string_equal(c.resume_from_checkpoint, "none");
    assert_true(c.learning_rate == 3e-4 && c.adam_beta1 == 0.9 && c.adam_beta2 == 0.95);
    assert_true(c.adam_epsilon == 1e-8 && c.weight_decay == 0.1 && c.max_grad_norm == 1);
    assert_true(c.dropout == -1 && c.min_lr_ratio == -1);
    assert_int_equal(c.lr_scheduler, TRAIN_COSINE);
    assert_int_equal(c.dtype, PLAN_DTYPE_AUTO);
    assert_int_equal(c.execute, TRAIN_EXECUTE_AUTO);
    assert_int_equal(c.recompute, -1);
    assert_int_equal(c.threads, -1);
    assert_int_equal(c.device_memory, 0);
    assert_int_equal(c.sequence_len, -1);
    assert_int_equal(train_config_warmup(&c), 20);
    assert_null(c.plan);
    train_config_free(&c);
    assert_int_equal(train_config_defaults(&c), ATOM_OK);
    assert_null(c.data);
    train_config_free(&c);
}

static void values(void **state)
{
    train_config c;
    (void)state;
    assert_int_equal(
        parse(&c, NULL,
              "--data d --output-dir o --dtype bf16 --lr_scheduler_type linear --lr 1e-3 "
              "--batch-size 3 --seq_len 99 --grad-clip 0 --recompute always --execute "
              "interpreted --device-memory 300MiB --link-bandwidth 2GB/s --warmup-steps 0 "
              "--dropout 0.25 --threads 2 --adam_epsilon 1e-4 --steps 50"),
        ATOM_OK);
    assert_int_equal(c.dtype, PLAN_DTYPE_BF16);
    assert_int_equal(c.lr_scheduler, TRAIN_LINEAR);
    assert_true(c.learning_rate == 1e-3 && c.max_grad_norm == 0 && c.dropout == 0.25);
    assert_int_equal(c.micro_batch_size, 3);
    assert_int_equal(c.sequence_len, 99);
    assert_int_equal(c.recompute, PLAN_RECOMPUTE_ALWAYS);
    assert_int_equal(c.execute, TRAIN_EXECUTE_INTERPRETED);
    assert_int_equal(c.device_memory, 300u << 20);
    assert_int_equal(c.link_bandwidth, 2000000000);
    assert_int_equal(train_config_warmup(&c), 0);
    train_config_free(&c);
}

/* Epochs in place of steps; the command line wins over a file, and says one of them. */
static void epochs_or_steps(void **state)
{
    scratch s;
    train_config c;
    char *text = NULL, words[700];
    opt_parsed parsed;
    (void)state;
    scratch_open(&s);
    assert_int_equal(parse(&c, &parsed, "--data d -o o --epochs 2.5 --warmup-steps 5000"), ATOM_OK);
    assert_true(c.num_train_epochs == 2.5);
    assert_int_equal(opt_print(&train_command, &c, &parsed, true, &text), ATOM_OK);
    train_config_free(&c);
    scratch_write(&s, "c.yml", text, strlen(text));
    assert_int_equal(parse(&c, NULL, scratch_path(&s, "c.yml")), ATOM_OK);
    assert_true(c.num_train_epochs == 2.5);
    train_config_free(&c);
    snprintf(words, sizeof words, "%s --max-steps 7000", scratch_path(&s, "c.yml"));
    assert_int_equal(parse(&c, NULL, words), ATOM_OK);
    assert_true(c.num_train_epochs == 0 && c.max_steps == 7000);
    train_config_free(&c);
    assert_int_equal(parse(&c, NULL, "--data d -o o --epochs 1 --steps 9"), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "leave one of them out"));
    atom_free(text);
    scratch_close(&s);
}

/* sft changes what nobody has set, says so, and its print gives the same run. */
static void preset(void **state)
{
    scratch s;
    train_config c;
    opt_parsed parsed;
    char *text = NULL;
    (void)state;
    assert_int_equal(parse(&c, &parsed, "--data d -o o --preset sft --weight-decay 0.01"), ATOM_OK);
    assert_true(c.learning_rate == 2e-5 && c.adam_beta2 == 0.999 && c.weight_decay == 0.01);
    assert_int_equal(train_config_warmup(&c), 30);
    assert_int_equal(c.lr_scheduler, TRAIN_COSINE);
    assert_false(opt_given(&train_command, &parsed, "learning_rate"));
    assert_int_equal(opt_print(&train_command, &c, &parsed, true, &text), ATOM_OK);
    assert_non_null(strstr(text, "learning_rate: 2e-05  # preset"));
    assert_non_null(strstr(text, "weight_decay: 0.01  # command line"));
    train_config_free(&c);
    scratch_open(&s);
    assert_int_equal(parse(&c, &parsed, scratch_write(&s, "c.yml", text, strlen(text))), ATOM_OK);
    assert_true(c.learning_rate == 2e-5 && c.adam_beta2 == 0.999 && c.preset == TRAIN_SFT);
    train_config_free(&c);
    scratch_write(&s, "d.yml", "preset: sft\nlr: 1e-3\ndata: d\noutput_dir: o\n", 43);
    assert_int_equal(parse(&c, &parsed, scratch_path(&s, "d.yml")), ATOM_OK);
    assert_true(c.learning_rate == 1e-3 && c.weight_decay == 0);
    train_config_free(&c);
    assert_int_equal(parse(&c, NULL, "--data d -o o --preset dpo"), ATOM_E_USAGE);
    atom_free(text);
    scratch_close(&s);
}

static void refused(void **state)
{
    static const char *const cases[][2] = {
        {"-o x", "'train' needs --data DIR"},
        {"--data d", "'train' needs --output-dir DIR"},
        {"--data d -o x --learing_rate 1", "did you mean '--learning-rate'?"},
        {"--data d -o x --warmup-steps 5 --max-steps 4",
         "warmup_steps (5) is more than max_steps (4)"},
        {"--data d -o x --lr-scheduler linear --max-steps 1", "nothing would be learned"},
        {"--data d -o x --lr-scheduler wsd --decay-ratio 1 --max-steps 1", "nothing would be"},
        {"--data d -o x --lr-scheduler wsd --decay-ratio 0.9 --warmup-steps 8 --max-steps 10",
         "still rise in some of them (warmup_steps 8)"},
        {"--data d -o x --dropout 1", "--dropout"},
        {"--data d -o x --adam-beta2 1", "--adam-beta2"},
        {"--data d -o x --micro-batch-size 0", "--micro-batch-size"},
        {"--data d -o x --device-memory 0", "--device-memory"},
        {"--data d -o x --threads 0", "--threads"},
        {"--data d -o x --dtype fp16", "'fp16' is none of: auto, fp32, bf16"},
        {"--data d -o o --lr-scheduler constant --min-lr-ratio 0.1",
         "min_lr_ratio would have no effect"},
        {"--data d -o o --decay-ratio 0.3", "only lr_scheduler wsd"},
        {"--data d -o o --optimizer-state memory --store-dir s", "store_dir would have no effect"},
        {"--data d -o o --optimizer-state memory --store threads", "store would have no effect"},
        {"--data d -o o --decay-ratio 0.2", "decay_ratio would have no effect"},
        {"--data d -o o --optimizer-state memory --update-ahead always",
         "update_ahead would have no effect"},
        {"--data d -o o --max-grad-norm 0 --update-ahead never", "max_grad_norm is 0"},
        {"--data d -o o --eval-steps 0 --eval-batches 20", "eval_batches would have no effect"},
        {"--data d -o o --save-steps 0 --save-rate 2MiB", "save_rate would have no effect"},
        {"--data d -o o --lr-scheduler wsd --decay-ratio 0 --min-lr-ratio 0.1",
         "min_lr_ratio would have no effect"},
        {"--data d -o o --dry-run --trace t", "trace would have no effect"},
        {"--data d -o o --seed 18446744073709551616", "18446744073709551616 is too large; it must "
                                                      "be at most 9007199254740992"},
        {"--data d -o o --seed 9007199254740993",
         "9007199254740993 is too large; it must be at most "
         "9007199254740992"},
        {"--data d -o o --seed -18446744073709551616", "is too small; it must be at least 0"},
        {"--data d -o o --link-bandwidth 1kB/s",
         "1kB/s is too small; it must be at least 1.0 MiB/s"},
        {"--data d -o o --save-rate 100", "100 is too small; it must be at least 1.0 MiB/s"},
        {"--data d -o o --plan p --host-memory 1GiB", "host_memory would have no effect"},
        {"--data d -o o --plan p --recompute always", "recompute would have no effect"},
        {"--data d -o o --plan p --optimizer-state disk", "optimizer_state would have no effect"},
        {"--data d -o o --plan p --updates host", "updates would have no effect"},
        {"--data d -o o --resume-from-checkpoint auto --overwrite",
         "overwrite deletes the run in output_dir, but resume_from_checkpoint (auto)"},
        {"--data d -o o --overwrite -n --resume-from-checkpoint dir", "(dir) continues a run"},
    };
    train_config c;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(parse(&c, NULL, cases[i][0]), ATOM_E_USAGE);
        if (!strstr(atom_fail_message(), cases[i][1]))
            fail_msg("%s: %s", cases[i][0], atom_fail_message());
        assert_null(c.model);
    }
}

static void from_file(void **state)
{
    static const char yaml[] = "data: corpus\noutput_dir: out\nmax_steps: 7\nseed: 3\n"
                               "resume_from_checkpoint: auto\n";
    scratch s;
    train_config c, again;
    opt_parsed parsed;
    char words[1024], *text = NULL;
    (void)state;
    const char *path = scratch_write(scratch_open(&s), "c.yml", yaml, sizeof yaml - 1);
    snprintf(words, sizeof words, "%s --seed 4", path);
    assert_int_equal(parse(&c, &parsed, words), ATOM_OK);
    assert_int_equal(c.max_steps, 7);
    assert_int_equal(c.seed, 4);
    assert_string_equal(c.resume_from_checkpoint, "auto");

    /* What --print-config says is a configuration that gives the same run. */
    assert_int_equal(opt_print(&train_command, &c, &parsed, true, &text), ATOM_OK);
    path = scratch_write(&s, "d.yml", text, strlen(text));
    assert_int_equal(parse(&again, NULL, path), ATOM_OK);
    assert_int_equal(again.seed, 4);
    assert_int_equal(again.warmup_steps, c.warmup_steps);
    assert_true(again.learning_rate == c.learning_rate && again.dropout == c.dropout);
    atom_free(text);
    train_config_free(&again);
    train_config_free(&c);
    scratch_close(&s);
}

/* Other trainers have lists and mappings where atom has commas. */
static void lists_in_a_file(void **state)
{
    static const char *const cases[][2] = {
        {"lora_target_modules: [q_proj, v_proj]\n",
         "lora_target_modules must be a plain value, not a "
         "list; write it in one text with commas: a,b"},
        {"at:\n- 1\n", "not a list; write it in one text with commas: a,b"},
        {"lora_rank_pattern: {q_proj: 4}\n",
         "not a mapping; write it in one text with commas: NAME=R"}};
    scratch s;
    train_config c;
    (void)state;
    scratch_open(&s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = scratch_write(&s, "c.yml", cases[i][0], strlen(cases[i][0]));
        assert_int_equal(parse(&c, NULL, path), ATOM_E_USAGE);
        assert_non_null(strstr(atom_fail_message(), cases[i][1]));
    }
    scratch_close(&s);
}

/* The old run goes, or goes on: the command line wins over a file, and nothing says both. */
static void overwrite_or_resume(void **state)
{
    static const struct {
        const char *yaml, *words, *resume; /* NULL: refused */
        bool overwrite;
    } cases[] = {{"resume_from_checkpoint: auto\n", "--overwrite", "none", true},
                 {"overwrite_output_dir: true\n", "--resume-from-checkpoint auto", "auto", false},
                 {"overwrite: true\n", "--resume-from-checkpoint none", "none", true},
                 {"resume_from_checkpoint: auto\n", "--no-overwrite", "auto", false},
                 {"overwrite: true\nresume_from_checkpoint: dir\n", "", NULL, false},
                 {"overwrite: true\n", "--overwrite --resume-from-checkpoint auto", NULL, false}};
    scratch s;
    train_config c;
    (void)state;
    scratch_open(&s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[1024];
        const char *path = scratch_write(&s, "c.yml", cases[i].yaml, strlen(cases[i].yaml));
        snprintf(words, sizeof words, "%s --data d -o o %s", path, cases[i].words);
        assert_int_equal(parse(&c, NULL, words), cases[i].resume ? ATOM_OK : ATOM_E_USAGE);
        if (!cases[i].resume)
            continue;
        assert_string_equal(c.resume_from_checkpoint, cases[i].resume);
        assert_int_equal(c.overwrite, cases[i].overwrite);
        train_config_free(&c);
    }
    assert_int_equal(train_config_defaults(&c), ATOM_OK);
    c.overwrite = true;
    assert_int_equal(train_config_check(&c), ATOM_OK);
    assert_int_equal(opt_set(&train_command,
                             (uint32_t)opt_find(&train_command, "resume_from_checkpoint"), "auto",
                             &c),
                     ATOM_OK);
    assert_int_equal(train_config_check(&c), ATOM_E_USAGE);
    train_config_free(&c);
    scratch_close(&s);
}

static void schedule(void **state)
{
    train_config c;
    (void)state;
    assert_int_equal(parse(&c, NULL, "--data d -o o --lr 2 --max-steps 110 --warmup-steps 10"),
                     ATOM_OK);
    train_schedule s = train_schedule_make(&c);
    assert_true(train_schedule_rate(&s, 1) == 0.2);
    assert_true(train_schedule_rate(&s, 9) == 1.8);
    assert_true(train_schedule_rate(&s, 10) == 2);
    assert_true(fabs(train_schedule_rate(&s, 60) - 1.1) < 1e-12);
    assert_true(fabs(train_schedule_rate(&s, 110) - 0.2) < 1e-12);
    assert_true(fabs(train_schedule_rate(&s, 500) - 0.2) < 1e-12);
    for (int64_t i = 10; i < 110; i++)
        assert_true(train_schedule_rate(&s, i) > train_schedule_rate(&s, i + 1));
    s.kind = TRAIN_CONSTANT;
    assert_true(train_schedule_rate(&s, 110) == 2);
    c.lr_scheduler = TRAIN_LINEAR;
    s = train_schedule_make(&c);
    assert_true(fabs(train_schedule_rate(&s, 60) - 1) < 1e-12);
    assert_true(fabs(train_schedule_rate(&s, 110)) < 1e-12);
    c.lr_scheduler = TRAIN_WSD;
    s = train_schedule_make(&c); /* falls from 88 to 110 */
    assert_true(train_schedule_rate(&s, 5) == 1);
    assert_true(train_schedule_rate(&s, 10) == 2 && train_schedule_rate(&s, 88) == 2);
    assert_true(fabs(train_schedule_rate(&s, 99) - 1) < 1e-12);
    assert_true(train_schedule_rate(&s, 110) == 0 && train_schedule_rate(&s, 500) == 0);
    c.lr_scheduler = TRAIN_LINEAR;
    c.min_lr_ratio = 0.5;
    c.warmup_steps = 0;
    s = train_schedule_make(&c);
    assert_true(train_schedule_rate(&s, 1) < 2);
    assert_true(fabs(train_schedule_rate(&s, 110) - 1) < 1e-12);
    c.warmup_steps = c.max_steps = 1;
    s = train_schedule_make(&c);
    assert_true(train_schedule_rate(&s, 1) == 2);
    train_config_free(&c);
}

/* Whoever trains on past the last step, a pool for instance, stays at the schedule's end. */
static void schedule_past_its_end(void **state)
{
    train_config c;
    (void)state;
    assert_int_equal(parse(&c, NULL, "--data d -o o --lr 2 --max-steps 110 --warmup-steps 10"),
                     ATOM_OK);
    for (c.lr_scheduler = TRAIN_CONSTANT; c.lr_scheduler <= TRAIN_WSD; c.lr_scheduler++) {
        for (c.min_lr_ratio = 0; c.min_lr_ratio < 1; c.min_lr_ratio += 0.25) {
            train_schedule s = train_schedule_make(&c);
            double end = c.lr_scheduler == TRAIN_CONSTANT ? 2 : 2 * c.min_lr_ratio;
            assert_true(fabs(train_schedule_rate(&s, 110) - end) < 1e-12);
            for (int64_t step = 111; step < 1000; step++)
                assert_true(train_schedule_rate(&s, step) == train_schedule_rate(&s, 110));
        }
    }
    train_config_free(&c);
}

/* Steps in place of epochs, of data whose tokenizer has more tokens than the preset says. */
static void epochs_become_steps(void **state)
{
    uint32_t ids[4097];
    scratch s;
    train_config c;
    text_shard_writer *w = NULL;
    char words[1024];
    (void)state;
    scratch_open(&s);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        ids[i] = 150000;
    assert_int_equal(text_shard_writer_open(s.dir, "train", 200000, 1 << 20, &w), ATOM_OK);
    assert_int_equal(text_shard_writer_put(w, ids, sizeof ids / sizeof *ids), ATOM_OK);
    assert_int_equal(text_shard_writer_end(w), ATOM_OK);
    text_shard_writer_close(&w);
    snprintf(words, sizeof words,
             "--data %s -o o --sequence-len 16 --num-train-epochs 1 --warmup-steps 8", s.dir);
    assert_int_equal(parse(&c, NULL, words), ATOM_OK);
    if (train_epochs_resolve(&c) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_int_equal(c.max_steps, 4096 / 16 / (4 * 8));
    c.warmup_steps = 9;
    assert_int_equal(train_epochs_resolve(&c), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "warmup_steps (9) is more than the 8 steps"));
    train_config_free(&c);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract),
        cmocka_unit_test(unambiguous),
        cmocka_unit_test(defaults),
        cmocka_unit_test(values),
        cmocka_unit_test(refused),
        cmocka_unit_test(from_file),
        cmocka_unit_test(lists_in_a_file),
        cmocka_unit_test(overwrite_or_resume),
        cmocka_unit_test(schedule),
        cmocka_unit_test(schedule_past_its_end),
        cmocka_unit_test(epochs_or_steps),
        cmocka_unit_test(preset),
        cmocka_unit_test(epochs_become_steps),
    };
    atom_log_set_level(ATOM_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
