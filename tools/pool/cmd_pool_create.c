/*
 * atom pool create: makes a pool of a run and trains as its first member. One idea: what is in
 * run.yml is what everybody will do; the ticket that it prints is all that others need. Refuses a
 * directory that holds a pool or a run.
 */
#include "tools/pool/cmd_pool_train.h"

#include <string.h>

typedef struct create_values {
    char *config, *model, *data, *output_dir, *device, *name, *sync_steps, *fragments, *codec,
        *sync, *fork_seconds, *min_peers;
    int64_t max_steps;
    bool json, quiet, plain, dry_run;
    pool_host host;
    pool_said said; /* not an option: which of the pool's settings were */
} create_values;

#define AT(member) .offset = offsetof(create_values, member)

static const opt_spec specs[] = {
    {.name = "config",
     .type = OPT_TEXT,
     AT(config),
     .value = "FILE",
     .flags = OPT_REQUIRED,
     .help =
         "The run: a configuration of atom train, in which `pool:` may say how to average "
         "(sync, sync_steps, fragments, codec, min_peers, robust, global_batch_size, due_seconds, "
         "fork_seconds, outer_learning_rate, outer_momentum, mix, rewarm_steps)."},
    {.name = "output_dir",
     .type = OPT_TEXT,
     AT(output_dir),
     .value = "DIR",
     .letter = 'o',
     .help = "Checkpoints, metrics, and in DIR/pool the membership; keep a copy of "
             "DIR/pool/identity. Required, but for --dry-run."},
    {.name = "name", .type = OPT_TEXT, AT(name), .value = "TEXT", .help = "Of the pool."},
    PLAN_ROW_MODEL(.help = "In place of the configuration's.", .group = "Overrides"),
    {.name = "data",
     .type = OPT_TEXT,
     AT(data),
     .value = "DIR",
     .help = "In place of the configuration's."},
    {.name = "device",
     .type = OPT_TEXT,
     AT(device),
     .value = "auto|cpu|cuda[:N]",
     .help = "In place of the configuration's."},
    {.name = "sync",
     .type = OPT_TEXT,
     AT(sync),
     .value = "parameters|slices|gradients",
     .help = "What is averaged: weights with an outer step; slices of them, written over what is "
             "trained; or gradients."},
    {.name = "sync_steps",
     .type = OPT_TEXT,
     AT(sync_steps),
     .value = "N",
     .help = "H: steps between two averagings of the same weights."},
    {.name = "fragments",
     .type = OPT_TEXT,
     AT(fragments),
     .value = "N",
     .help = "F: pieces that are averaged in turn."},
    {.name = "codec",
     .type = OPT_TEXT,
     AT(codec),
     .value = "fp32|bf16|int8",
     .help = "How changes travel."},
    {.name = "fork_seconds",
     .type = OPT_TEXT,
     AT(fork_seconds),
     .value = "SECONDS",
     .help = "T_fork: members that reach less than a quorum for so long go on by themselves."},
    {.name = "min_peers",
     .type = OPT_TEXT,
     AT(min_peers),
     .value = "N",
     .help = "Training begins when so many are members."},
    {.name = "max_steps",
     .type = OPT_INT,
     AT(max_steps),
     .min = 0,
     .max = 1e12,
     .help = "Of this member, in this process; the pool's are in the configuration."},
    {.name = "plain",
     .type = OPT_FLAG,
     AT(plain),
     .help = "No encryption, no admissions: for a trusted local network."},
    {.name = "dry_run",
     .type = OPT_FLAG,
     AT(dry_run),
     .help = "Say how members would average and why, with alternatives, and make nothing."},
    PLAN_ROW_JSON(.help = "On stdout two objects: the ticket at once, the summary at the end."),
    {.name = "quiet", .type = OPT_FLAG, AT(quiet), .help = "No progress."},
    POOL_HOST_SPECS(create_values, host),
};

static const opt_command options = {
    .name = "pool create",
    .summary = "make a pool of a run, print its ticket, and train as its first member",
    .description =
        "Everybody who is given the ticket can join with `atom pool join TICKET`. Members train "
        "on their own data order and average their weights piece by piece, while they train. "
        "max_steps of the configuration counts the steps of all members together. After a "
        "signal it saves and is away; `atom pool join -o DIR` comes back, from DIR alone.",
    .examples = "# what run.yml may say at the least; 'atom help train' has all keys\n"
                "#   model: gpt2-124m\n"
                "#   data: data\n"
                "#   max_steps: 100000\n"
                "#   pool:\n"
                "#     sync_steps: 20\n"
                "atom pool create --config run.yml -o run\n"
                "# what it would choose for this model and link, and why\n"
                "atom pool create --config run.yml --max-upload 20 --dry-run\n"
                "# only on this machine\n"
                "atom pool create --config run.yml --listen 127.0.0.1:4400 --no-directory -o run\n",
    OPT_TABLE(specs, create_values),
};

static bool was_said(const opt_parsed *parsed, const char *name)
{
    return parsed->origin[opt_find(&pool_options, name)] != OPT_FROM_DEFAULT;
}

static atom_status read_settings(pool_run *r, create_values *v, char **run_text)
{
    const char *const given[][2] = {
        {"sync", v->sync},   {"sync_steps", v->sync_steps},     {"fragments", v->fragments},
        {"codec", v->codec}, {"fork_seconds", v->fork_seconds}, {"min_peers", v->min_peers}};
    opt_parsed parsed;
    char *text = NULL, *pool = NULL;
    uint64_t bytes;
    atom_status st;
    if (!atom_path_exists(v->config))
        return atom_fail(ATOM_E_USAGE, "there is no configuration file %s", v->config);
    ATOM_TRY_CLEAN(atom_file_read(v->config, OPT_FILE_BYTES_MAX, &text, &bytes));
    ATOM_TRY_CLEAN(pool_settings_split(text, bytes, &pool, run_text));
    ATOM_TRY_CLEAN(opt_defaults(&pool_options, &r->settings, &parsed));
    ATOM_TRY_CLEAN(
        opt_read_text(&pool_options, v->config, pool, strlen(pool), &r->settings, &parsed));
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        if (!given[i][1])
            continue;
        uint32_t row = (uint32_t)opt_find(&pool_options, given[i][0]);
        st = opt_set(&pool_options, row, given[i][1], &r->settings);
        if (st != ATOM_OK)
            ATOM_TRY_CLEAN(atom_fail(st, "%s: %s", given[i][0], atom_fail_message()));
        parsed.origin[row] = OPT_FROM_COMMAND_LINE;
    }
    pool_settings_fill(&r->settings, &parsed);
    v->said = (pool_said){.sync_steps = was_said(&parsed, "sync_steps"),
                          .codec = was_said(&parsed, "codec"),
                          .due_seconds = was_said(&parsed, "due_seconds")};
    ATOM_TRY_CLEAN(pool_settings_check(&r->settings, v->config, pool));
cleanup:
    atom_free(text);
    atom_free(pool);
    return st;
}

/* Where all make one sum, what is said of its precision is said to all. */
static atom_status add_dtype(int32_t dtype, char **run_text)
{
    char *more =
        atom_format("%sdtype: %s\n", *run_text, dtype == PLAN_DTYPE_BF16 ? "bf16" : "fp32");
    if (!more)
        return atom_fail_memory("a configuration", strlen(*run_text));
    atom_free(*run_text);
    *run_text = more;
    return ATOM_OK;
}

/* Adapters mean nothing without the model that they were made for. */
static atom_status note_base(pool_run *r)
{
    char base[TRAIN_BASE_BYTES];
    if (!*trainer_base(r->t, base))
        return ATOM_OK;
    atom_free(r->settings.base_hash);
    r->settings.base_hash = atom_strdup(base);
    return r->settings.base_hash ? ATOM_OK : atom_fail_memory("a hash", sizeof base);
}

/* Everything that was decided goes into the manifest's settings and run.yml. */
static atom_status draft(pool_run *r, const create_values *v, gsp_manifest *m, char **run_text)
{
    uint64_t n = trainer_floats(r->t), first;
    pool_settings *s = &r->settings;
    char *text = NULL;
    atom_status st;
    memset(m, 0, sizeof *m);
    m->plain = v->plain;
    m->n_fragments = pool_fragments(n, (uint32_t)s->fragments);
    s->fragments = m->n_fragments;
    s->data_hash =
        s->sync == POOL_SYNC_GRADIENTS ? pool_data_hash(trainer_where(r->t).data_hash) : 0;
    ATOM_TRY_CLEAN(note_base(r));
    if (v->name)
        snprintf(m->name, sizeof m->name, "%s", v->name);
    for (uint32_t f = 0; f < m->n_fragments; f++)
        m->n_floats[f] = pool_fragment_range(n, m->n_fragments, f, &first);
    m->codec = (gsp_codec)s->codec;
    m->robust = s->robust;
    m->tokens_per_sample = trainer_where(r->t).sequence;
    uint64_t due = (uint64_t)(s->sync_steps * s->batch) / m->n_fragments;
    m->samples_due = due ? due : 1;
    m->time_due_s = s->due_seconds;
    m->fork_s = s->fork_seconds;
    m->heartbeat_s = s->heartbeat_seconds;
    ATOM_TRY_CLEAN(pool_anchor_hash(trainer_weights(r->t), n, m->n_fragments, &m->anchor));
    ATOM_TRY_CLEAN(opt_print(&pool_options, s, NULL, false, &text));
    if (strlen(text) >= sizeof m->settings)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE, "the pool's settings are too long"));
    strcpy(m->settings, text);
    ATOM_TRY_CLEAN(pool_run_text(&r->config, false, run_text));
    if (pool_run_sums(r) && r->config.dtype != PLAN_DTYPE_AUTO)
        ATOM_TRY_CLEAN(add_dtype(r->config.dtype, run_text));
cleanup:
    atom_free(text);
    return st;
}

static atom_status make_pool(pool_run *r, const create_values *v)
{
    gsp_manifest *m = atom_alloc(1, sizeof *m);
    gsp_pool_file *files = atom_alloc(GSP_MANIFEST_FILES_MAX, sizeof *files);
    uint32_t n_files = 2;
    char *place = pool_run_path(r, ""), *genesis = atom_format("%s/genesis", r->dir);
    char *run = atom_format("%s/genesis/run.yml", r->dir);
    char *config = atom_format("%s/genesis/config.json", r->dir), *run_text = NULL;
    char *tokenizer = atom_path_join(r->config.data, "tokenizer.json");
    gsp_pool_host host;
    atom_status st;
    if (!m || !files || !place || !genesis || !run || !config || !tokenizer)
        ATOM_TRY_CLEAN(atom_fail_memory("a pool", sizeof *m));
    ATOM_TRY_CLEAN(pool_host_place(&v->host, NULL, place, &host));
    ATOM_TRY_CLEAN(draft(r, v, m, &run_text));
    pool_run_say_mode(r, trainer_floats(r->t));
    ATOM_TRY_CLEAN(pool_run_check_disk(r, trainer_floats(r->t), m->n_fragments));
    ATOM_TRY_CLEAN(atom_dir_make(genesis));
    ATOM_TRY_CLEAN(trainer_describe(r->t, genesis));
    ATOM_TRY_CLEAN(atom_file_write(run, run_text, strlen(run_text)));
    files[0] = (gsp_pool_file){.name = "run.yml", .path = run};
    files[1] = (gsp_pool_file){.name = "config.json", .path = config};
    if (atom_path_exists(tokenizer))
        files[n_files++] = (gsp_pool_file){.name = "tokenizer.json", .path = tokenizer};
    if (r->settings.data != POOL_DATA_OWN)
        ATOM_TRY_CLEAN(pool_data_list(r, files, GSP_MANIFEST_FILES_MAX, &n_files));
    ATOM_TRY_CLEAN(gsp_pool_create(&host, m, files, n_files, &r->life));
    ATOM_TRY_CLEAN(pool_data_offer(r));
cleanup:
    if (files)
        pool_data_free(files, n_files);
    atom_free(files);
    atom_free(m);
    atom_free(place);
    atom_free(genesis);
    atom_free(run);
    atom_free(config);
    atom_free(run_text);
    atom_free(tokenizer);
    return st;
}

/* ---- how to average ---- */

/* Chooses what nobody said, and says why. */
static void advise(pool_run *r, const create_values *v, pool_advice *a)
{
    const pool_settings *s = &r->settings;
    int64_t own = r->config.micro_batch_size * r->config.gradient_accumulation_steps;
    double seconds = trainer_plan(r->t)->predicted_step_seconds;
    uint64_t sequence = trainer_where(r->t).sequence;
    uint32_t members = s->min_peers > 1 ? (uint32_t)s->min_peers : 0;
    pool_facts facts = {.floats = trainer_floats(r->t),
                        .step_tokens = (uint64_t)s->batch * sequence,
                        .tokens_per_s = seconds > 0 ? (double)own * (double)sequence / seconds : 0,
                        .up_bytes_per_s = (uint64_t)(v->host.up_mbit * 1e6 / 8),
                        .down_bytes_per_s = (uint64_t)(v->host.down_mbit * 1e6 / 8),
                        .members = members};
    if (pool_run_sums(r)) /* each computes its share of the one batch */
        facts.step_tokens /= members ? members : 8;
    pool_advise(s, &v->said, &facts, a);
    pool_advice_follow(a, &r->settings);
    for (uint32_t i = 0; i < a->n_why && !v->dry_run; i++)
        pool_run_note(r, "%s", a->why[i]);
}

static json_t *case_json(const pool_case *c)
{
    return json_pack("{s:s, s:I, s:o, s:o, s:o, s:b}", "codec", gsp_codec_name((gsp_codec)c->codec),
                     "sync_steps", (json_int_t)c->sync_steps, "sync_seconds",
                     cli_real(c->sync_seconds), "steps_seconds", cli_real(c->steps_seconds),
                     "waits", cli_real(c->waits), "chosen", (int)c->chosen);
}

static atom_status show_advice(const pool_run *r, const pool_advice *a)
{
    const pool_settings *s = &r->settings;
    if (r->json) {
        json_t *why = json_array(), *cases = json_array();
        for (uint32_t i = 0; i < a->n_why; i++)
            json_array_append_new(why, json_string(a->why[i]));
        for (uint32_t i = 0; i < a->n_cases; i++)
            json_array_append_new(cases, case_json(&a->cases[i]));
        return cli_print_json(json_pack(
            "{s:I, s:s, s:I, s:o, s:b, s:b, s:o, s:o, s:I, s:o}", "sync_steps",
            (json_int_t)s->sync_steps, "codec", gsp_codec_name((gsp_codec)s->codec), "fragments",
            (json_int_t)s->fragments, "due_seconds", cli_real(s->due_seconds), "hidden",
            (int)a->hidden, "rate_assumed", (int)a->assumed, "why", why, "alternatives", cases,
            "parameters", (json_int_t)trainer_floats(r->t), "step_seconds",
            cli_real(trainer_plan(r->t)->predicted_step_seconds)));
    }
    for (uint32_t i = 0; i < a->n_why; i++)
        cli_print("%s\n", a->why[i]);
    cli_print("F = %lld pieces in turn, T = %s\n\n", (long long)s->fragments,
              cli_seconds(s->due_seconds));
    cli_print("  codec      H      sync   H steps   waits\n");
    for (uint32_t i = 0; i < a->n_cases; i++) {
        const pool_case *c = &a->cases[i];
        cli_print("%s %-6s %5lld  %8s", c->chosen ? "*" : " ", gsp_codec_name((gsp_codec)c->codec),
                  (long long)c->sync_steps, cli_seconds(c->sync_seconds));
        cli_print("  %8s   %4.0f %%\n", cli_seconds(c->steps_seconds), 100 * c->waits);
    }
    cli_print("\nsync: moving all weights once. waits: %s\n",
              pool_run_sums(r) ? "share of the time in which the trainer waits for the link"
                               : "share of the time in which what is due waits for the link; "
                                 "training goes on meanwhile");
    return ATOM_OK;
}

static atom_status show_ticket(const pool_run *r)
{
    const char *ticket = gsp_pool_ticket(r->life);
    if (r->json)
        return cli_print_json(json_pack("{s:s, s:i, s:s}", "ticket", ticket, "port",
                                        (int)gsp_pool_port(r->life), "output_dir", r->dir));
    cli_print("others join with: atom pool join %s\n", ticket);
    return ATOM_OK;
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    create_values *v = values;
    static char here[] = ".";
    if (!v->output_dir && !v->dry_run)
        return atom_fail(ATOM_E_USAGE, "'pool create' needs --output-dir");
    pool_run r = {.dir = v->output_dir ? v->output_dir : here,
                  .json = v->json,
                  .quiet = v->quiet,
                  .max_steps = v->max_steps};
    char *run_text = NULL, *place = pool_run_path(&r, "");
    static char model[] = "model", data[] = "data", device[] = "device";
    char *words[6];
    int n = 0;
    pool_advice advice;
    atom_status st;
    if (!place)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    if (!v->dry_run && gsp_pool_exists(place))
        ATOM_TRY_CLEAN(atom_fail(
            ATOM_E_USAGE, "%s already holds a pool; come back to it with `atom pool join -o %s`",
            r.dir, r.dir));
    ATOM_TRY_CLEAN(read_settings(&r, v, &run_text));
    if (v->model)
        words[n++] = model, words[n++] = v->model;
    if (v->data)
        words[n++] = data, words[n++] = v->data;
    if (v->device)
        words[n++] = device, words[n++] = v->device;
    ATOM_TRY_CLEAN(pool_run_configure(&r, v->config, run_text, words, n, false));
    ATOM_TRY_CLEAN(pool_settings_settle(&r.settings, &r.config));
    if (v->host.listen.n == 0) /* somebody must be reachable, and the first is alone */
        ATOM_TRY_CLEAN(opt_set(&options, (uint32_t)opt_find(&options, "listen"), "*:4400", v));
    if (!v->dry_run)
        ATOM_TRY_CLEAN(pool_host_settle(r.dir, &options, parsed, &v->host));
    ATOM_TRY_CLEAN(pool_run_limit(&r, &v->host));
    cli_signals_catch();
    r.config.dry_run = v->dry_run;
    ATOM_TRY_CLEAN(pool_run_open_trainer(&r));
    advise(&r, v, &advice);
    if (v->dry_run) {
        st = show_advice(&r, &advice);
        goto cleanup;
    }
    ATOM_TRY_CLEAN(make_pool(&r, v));
    ATOM_TRY_CLEAN(show_ticket(&r));
    (void)fflush(stdout);
    ATOM_TRY_CLEAN(pool_run_train(&r, true));
cleanup:
    pool_run_close(&r);
    atom_free(run_text);
    atom_free(place);
    return st;
}

const cli_command cli_pool_create = {&options, run};
