/* What a pool may decide: a closed list of keys, files and numbers; whatever else its owner writes
 * is refused by name, and nothing is taken of it. */
#include "atom/pool/asks.h"
#include "atom/pool/run_text.h"

#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Every key that a pool may decide. A new one stands here because somebody thought about it. */
static const char *const LIST[] = {"dtype",
                                   "micro_batch_size",
                                   "gradient_accumulation_steps",
                                   "sequence_len",
                                   "packing",
                                   "max_steps",
                                   "preset",
                                   "optimizer",
                                   "muon_momentum",
                                   "learning_rate",
                                   "lr_scheduler",
                                   "min_lr_ratio",
                                   "decay_ratio",
                                   "warmup_steps",
                                   "weight_decay",
                                   "adam_beta1",
                                   "adam_beta2",
                                   "adam_epsilon",
                                   "max_grad_norm",
                                   "dropout",
                                   "lora_r",
                                   "lora_alpha",
                                   "lora_dropout",
                                   "lora_target_modules",
                                   "lora_rslora",
                                   "lora_dora",
                                   "lora_layers",
                                   "lora_modules_to_save",
                                   "lora_rank_pattern",
                                   "lora_alpha_pattern",
                                   "seed"};

static bool listed(const char *name)
{
    for (size_t i = 0; i < sizeof LIST / sizeof *LIST; i++)
        if (strcmp(LIST[i], name) == 0)
            return true;
    return false;
}

static void must(atom_status st)
{
    if (st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
}

static void says(const char *word)
{
    if (!strstr(atom_fail_message(), word))
        fail_msg("'%s' is not in: %s", word, atom_fail_message());
    assert_null(strchr(atom_fail_message(), '\n'));
}

/* Something that names a file, a directory, a device or a share of a machine. */
static bool is_of_a_host(const opt_spec *s)
{
    static const char *const words[] = {"DIR",  "FILE",  "PRESET", "device",  "dir",      "memory",
                                        "rate", "store", "trace",  "threads", "bandwidth"};
    static const char *const not_those[] = {"learning_rate"};
    for (size_t i = 0; i < sizeof not_those / sizeof *not_those; i++)
        if (strcmp(not_those[i], s->name) == 0)
            return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if ((s->value && strstr(s->value, words[i])) || strstr(s->name, words[i]))
            return true;
    return s->type == OPT_SIZE || s->type == OPT_RATE || s->type == OPT_LIST ||
           (s->flags & (OPT_CLI_ONLY | OPT_NO_PRINT));
}

static void the_list_is_closed(void **state)
{
    uint32_t shared = 0;
    (void)state;
    assert_false(train_command.shared);
    for (uint32_t row = 0; row < train_command.n_specs; row++) {
        const opt_spec *s = &train_command.specs[row];
        if (opt_is_shared(&train_command, row) != listed(s->name))
            fail_msg("%s: the table and this list disagree", s->name);
        if (opt_is_shared(&train_command, row) && is_of_a_host(s))
            fail_msg("%s is of one host, and a pool decides it", s->name);
        shared += opt_is_shared(&train_command, row);
    }
    assert_int_equal(shared, sizeof LIST / sizeof *LIST);
}

/* The section `pool:` is the pool's throughout: so nothing of a host may come into it. */
static void settings_are_of_no_host(void **state)
{
    static const char *const rates[] = {"outer_learning_rate"};
    (void)state;
    for (uint32_t row = 0; row < pool_options.n_specs; row++) {
        const opt_spec *s = &pool_options.specs[row];
        bool hash = strcmp(s->name, "base_hash") == 0;    /* compared, never opened */
        bool share = strcmp(s->name, "dense_steps") == 0; /* read as a number */
        if (s->type == OPT_TEXT && !hash && !share)
            fail_msg("%s is a text: is it a path?", s->name);
        if (strcmp(s->name, rates[0]) != 0 && is_of_a_host(s))
            fail_msg("%s is of one host", s->name);
    }
}

static const char *sample(const opt_spec *s)
{
    switch (s->type) {
    case OPT_FLAG:
        return "true";
    case OPT_INT:
        return "1";
    case OPT_NUMBER:
        return "0.5";
    case OPT_SIZE:
    case OPT_RATE:
        return "1GB";
    case OPT_CHOICE:
        return s->choices[0].name;
    default:
        return "/nowhere/at/all";
    }
}

/* Every row and every alias of it, as the whole of a run.yml. */
static void each_key(void **state)
{
    (void)state;
    for (uint32_t row = 0; row < train_command.n_specs; row++) {
        const opt_spec *s = &train_command.specs[row];
        for (uint32_t alias = 0;; alias++) {
            const char *name = alias == 0 ? s->name : s->aliases ? s->aliases[alias - 1] : NULL;
            if (!name)
                break;
            train_config before, now;
            opt_parsed parsed;
            char text[200];
            must(train_config_defaults(&before));
            must(opt_defaults(&train_command, &now, &parsed));
            snprintf(text, sizeof text, "seed: 42\n%s: %s\n", name, sample(s));
            if (strcmp(s->name, "seed") == 0)
                snprintf(text, sizeof text, "%s: 42\n", name);
            atom_status st = pool_run_read("run.yml", text, &now, &parsed);
            if (listed(s->name)) {
                must(st);
                assert_int_equal(parsed.origin[row], OPT_FROM_FILE);
            } else {
                assert_int_equal(st, ATOM_E_FORMAT);
                says("run.yml:2:1");
                says(s->flags & OPT_CLI_ONLY ? name : s->name);
                says("only the pool's owner can correct");
                assert_int_equal(parsed.origin[row], OPT_FROM_DEFAULT);
                char *a = NULL, *b = NULL;
                must(opt_print(&train_command, &before, NULL, false, &a));
                must(opt_print(&train_command, &now, NULL, false, &b));
                assert_string_equal(a, b);
                atom_free(a);
                atom_free(b);
            }
            train_config_free(&before);
            train_config_free(&now);
        }
    }
}

static void not_a_configuration(void **state)
{
    static const char *const texts[] = {
        "nonsense: 1\n", "pool:\n  sync: slices\n", "seed: [1, 2]\n",    "seed: 1\nseed: 2\n",
        "seed: &a 1\n",  "learning_rate: nan\n",    "max_steps: 1e30\n", "{{{"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        train_config c;
        opt_parsed parsed;
        must(opt_defaults(&train_command, &c, &parsed));
        assert_int_equal(pool_run_read("run.yml", texts[i], &c, &parsed), ATOM_E_FORMAT);
        says("run.yml");
        train_config_free(&c);
    }
}

/* A creator's own file has all kinds of keys: what is published of it is the list, and reads back. */
static void what_is_published(void **state)
{
    static const char OWN[] = "model: /home/me/model\ndata: /home/me/data\ntrace: /home/me/t.json\n"
                              "threads: 3\ndevice_memory: 1GiB\npacking: apart\npreset: sft\n"
                              "num_train_epochs: 2\nmicro_batch_size: 7\nsave_steps: 5\n";
    train_config c, back;
    opt_parsed parsed;
    char *text = NULL, *keys = NULL;
    (void)state;
    must(opt_defaults(&train_command, &c, &parsed));
    must(opt_read_text(&train_command, "own.yml", OWN, strlen(OWN), &c, &parsed));
    must(pool_run_withheld(&parsed, &keys));
    assert_string_equal(keys, "model, data, device_memory, threads, save_steps, trace");
    must(pool_run_text(&c, false, &text));
    assert_null(strstr(text, "/home/me"));
    for (char *line = text, *next; *line; line = next) {
        char *colon = strchr(line, ':');
        assert_non_null(colon);
        next = strchr(colon, '\n') + 1;
        *colon = 0;
        assert_true(listed(line));
        *colon = ':';
    }
    must(opt_defaults(&train_command, &back, &parsed));
    must(pool_run_read("run.yml", text, &back, &parsed));
    assert_int_equal(back.micro_batch_size, 7);
    assert_int_equal(back.packing, TRAIN_PACKING_APART);
    assert_int_equal(back.preset, TRAIN_SFT);
    assert_null(back.data);
    assert_null(back.trace);
    atom_free(text);
    atom_free(keys);
    train_config_free(&c);
    train_config_free(&back);
}

/* A key of the creator's own file is the pool's, or kept for the member that comes back, or said by it
 * once: there is no other. */
static void no_key_is_forgotten(void **state)
{
    static const char *const once[] = {"model",
                                       "init",
                                       "adapter",
                                       "resume_from_checkpoint",
                                       "overwrite",        /* the first weights */
                                       "output_dir",       /* where the member comes back to */
                                       "num_train_epochs", /* published as steps */
                                       "compress_boundaries",
                                       "at",           /* refused in a pool */
                                       "update_ahead", /* no update of a pool runs ahead */
                                       "plan",
                                       "trace"}; /* a note says so */
    (void)state;
    for (uint32_t row = 0; row < train_command.n_specs; row++) {
        const opt_spec *s = &train_command.specs[row];
        char text[100];
        bool told = false;
        for (size_t i = 0; i < sizeof once / sizeof *once; i++)
            told = told || strcmp(s->name, once[i]) == 0;
        if (s->flags & OPT_CLI_ONLY)
            continue;
        snprintf(text, sizeof text, "%s: %s\n", s->name, sample(s));
        bool kept = pool_run_check_local("local.yml", text, false) == ATOM_OK;
        bool its = opt_is_shared(&train_command, row) && strcmp(s->name, "dtype") != 0;
        if (kept + told + its != 1)
            fail_msg("%s is %s", s->name,
                     kept + told + its > 0 ? "the pool's and the host's" : "forgotten");
    }
}

/* ---- the manifest ---- */

static void refuses_file(const char *name, uint64_t bytes, bool later)
{
    gsp_manifest *m = test_calloc(1, sizeof *m);
    m->n_files = 2;
    strcpy(m->file[0].name, "run.yml");
    snprintf(m->file[1].name, sizeof m->file[1].name, "%s", name);
    m->file[1].bytes = bytes;
    m->file[1].later = later;
    assert_int_equal(pool_asks_files(m), ATOM_E_FORMAT);
    says(name);
    says("owner");
    test_free(m);
}

static void files(void **state)
{
    static const char *const data[] = {"train_000000.bin",    "val_000000.bin", "train.bin",
                                       "fine_train_0001.bin", "train_0.mask",   "val_0.begins",
                                       "dataset.json"};
    gsp_manifest *m = test_calloc(1, sizeof *m);
    (void)state;
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
        snprintf(m->file[m->n_files].name, sizeof m->file[0].name, "%s", data[i]);
        m->file[m->n_files].bytes = 1ull << 37;
        m->file[m->n_files++].later = true;
    }
    strcpy(m->file[m->n_files].name, "tokenizer.json");
    m->file[m->n_files++].bytes = 1 << 28;
    must(pool_asks_files(m));
    assert_int_equal(pool_asks_small_bytes(m), 1 << 28);
    strcpy(m->file[m->n_files].name, "chat_template.jinja");
    m->file[m->n_files++].bytes = 1 << 21;
    must(pool_asks_files(m));
    assert_int_equal(pool_asks_data_bytes(m), 7ull << 37);
    test_free(m);
    refuses_file("authorized_keys", 10, false);
    refuses_file("authorized_keys", 10, true);
    refuses_file("model.safetensors", 10, false);
    refuses_file("tokenizer.json", 10, true);
    refuses_file("run.yml", 10, true);
    refuses_file("train_0.bin", 10, false);
    refuses_file("train_0.exe", 10, true);
    refuses_file("notes.mask", 10, true);
    refuses_file("x.dataset.json", 10, true);
    refuses_file("../_train_0.bin", 10, true);
    refuses_file("tokenizer.json", (1 << 28) + 1, false);
    refuses_file("config.json", 1ull << 50, false);
    refuses_file("buffers.safetensors", 1ull << 29, false);
    refuses_file("buffers.safetensors", 10, true);
    refuses_file("chat_template.jinja", 1 << 22, false);
    refuses_file("chat_template.jinja", 10, true);
}

static void refuses_settings(const char *text, const char *word)
{
    gsp_manifest *m = test_calloc(1, sizeof *m);
    pool_settings s;
    m->n_fragments = 8;
    snprintf(m->settings, sizeof m->settings, "%s", text);
    assert_int_equal(pool_asks_settings(m, &s), ATOM_E_FORMAT);
    says(word);
    says("owner");
    opt_free(&pool_options, &s);
    test_free(m);
}

static void settings(void **state)
{
    gsp_manifest *m = test_calloc(1, sizeof *m);
    pool_settings s;
    (void)state;
    m->n_fragments = 8;
    strcpy(m->settings, "batch: 8\nsteps: 100\n");
    must(pool_asks_settings(m, &s));
    opt_free(&pool_options, &s);
    test_free(m);
    refuses_settings("batch: 8\nsteps: 100\ntrace: /tmp/x\n", "trace");
    refuses_settings("batch: 8\nsteps: 100\nfragments: 4\n", "manifest");
    refuses_settings("batch: 0\nsteps: 100\n", "manifest");
    refuses_settings("batch: 8\n", "schedule");
    refuses_settings("batch: 1000000000\nsteps: 1000000000000\n", "schedule");
    refuses_settings(
        "batch: 8\nsteps: 100\nsync: slices\nouter_learning_rate: 1\nouter_momentum: 0.5\n",
        "momentum");
    refuses_settings("batch: 8\nsteps: 100\nmix: 2\n", "mix");
    refuses_settings("[", "settings");
}

/* What the manifest says of the settings, for those who read no settings, is what they say. */
static void a_manifest_that_contradicts(void **state)
{
    static const char steps[] = "batch: 8\nsteps: 100\n";
    (void)state;
    for (int k = 0; k < 3; k++) {
        gsp_manifest *m = test_calloc(1, sizeof *m);
        pool_settings s;
        m->n_fragments = 8;
        m->clips_sums = k == 0;
        m->shares_return = k == 1;
        m->passes_on = k == 2;
        strcpy(m->settings, steps);
        assert_int_equal(pool_asks_settings(m, &s), ATOM_E_FORMAT);
        says("contradict its manifest");
        opt_free(&pool_options, &s);
        test_free(m);
    }
}

static void config_is_json(void **state)
{
    scratch place;
    (void)state;
    const char *path = scratch_path(scratch_open(&place), "config.json");
    assert_int_equal(pool_asks_config(path), ATOM_E_FORMAT);
    scratch_write(&place, "config.json", "GGUF\3\0\0\0", 8);
    assert_int_equal(pool_asks_config(path), ATOM_E_FORMAT);
    scratch_write(&place, "config.json", "PK\3\4", 4);
    assert_int_equal(pool_asks_config(path), ATOM_E_FORMAT);
    scratch_write(&place, "config.json", " \n{}", 4);
    must(pool_asks_config(path));
    scratch_close(&place);
}

int main(void)
{
    atom_log_set_level(ATOM_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_is_closed),
        cmocka_unit_test(settings_are_of_no_host),
        cmocka_unit_test(each_key),
        cmocka_unit_test(not_a_configuration),
        cmocka_unit_test(what_is_published),
        cmocka_unit_test(no_key_is_forgotten),
        cmocka_unit_test(files),
        cmocka_unit_test(settings),
        cmocka_unit_test(a_manifest_that_contradicts),
        cmocka_unit_test(config_is_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
