/*
 * atom pool create: makes a pool of a run and trains as its first member. One idea: what is in
 * run.yml is what everybody will do; the ticket that it prints is all that others need. Refuses a
 * directory that holds a pool or a run.
 */
#include "tools/pool/cmd_pool_train.h"

typedef struct create_values {
    char *config, *model, *data, *output_dir, *device, *devices, *name, *sync_steps, *fragments,
        *codec, *sync, *fork_seconds, *min_peers;
    int64_t max_steps, invite_count;
    double invite_days;
    bool json, quiet, plain, dry_run;
    pool_host host;
} create_values;

#define AT(member) .offset = offsetof(create_values, member)

/* clang-format off */
static const opt_spec specs[] = {
    {.name = "config", .type = OPT_TEXT, AT(config), .value = "FILE", .flags = OPT_REQUIRED,
     .help = "The run: a configuration file of atom train. Its section `pool:` may say how to "
             "average; its keys are listed below."},
    {.name = "output_dir", .type = OPT_TEXT, AT(output_dir), .value = "DIR", .letter = 'o',
     .help = "Where checkpoints, metrics and the membership (in DIR/pool) are written; keep a "
             "copy of DIR/pool/identity. Default: the configuration's. Only --dry-run does without."},
    {.name = "name", .type = OPT_TEXT, AT(name), .value = "TEXT", .help = "Name of the pool."},
    PLAN_ROW_MODEL(.group = "Overrides", .help = "In place of the configuration's."),
    {.name = "data", .type = OPT_TEXT, AT(data), .value = "DIR",
     .help = "In place of the configuration's."},
    {.name = "device", .type = OPT_TEXT, AT(device), .value = "auto|cpu|cuda[:N]",
     .help = "In place of the configuration's."},
    {.name = "devices", .type = OPT_TEXT, AT(devices), .value = "N",
     .help = "Number of devices of this host that train together. In place of the "
             "configuration's; those who join choose their own."},
    {.name = "sync", .type = OPT_TEXT, AT(sync), .value = "parameters|slices|gradients",
     .help = "What is averaged. parameters: weights, with an outer step; slices: slices of the "
             "weights, which replace those being trained; gradients: the gradients of each step."},
    {.name = "sync_steps", .type = OPT_TEXT, AT(sync_steps), .value = "N",
     .help = "H: steps that a member makes before the same weights are averaged again."},
    {.name = "fragments", .type = OPT_TEXT, AT(fragments), .value = "N",
     .help = "F: into how many pieces the weights are divided; the pieces are averaged in turn."},
    {.name = "codec", .type = OPT_TEXT, AT(codec), .value = "fp32|bf16|int8",
     .help = "How what members send is encoded."},
    {.name = "fork_seconds", .type = OPT_TEXT, AT(fork_seconds), .value = "SECONDS",
     .help = "T_fork: members that have not reached a quorum for this long go on by themselves."},
    {.name = "min_peers", .type = OPT_TEXT, AT(min_peers), .value = "N",
     .help = "Training begins when the pool has this many members."},
    {.name = "max_steps", .type = OPT_INT, AT(max_steps), .min = 0, .max = 1e12,
     .help = "Stop after this many steps of this member; the number of steps of the whole pool "
             "is in the configuration."},
    {.name = "invite_count", .type = OPT_INT, AT(invite_count), .fallback = "16", .min = 1,
     .max = 100000, .help = "How many hosts may join with the ticket."},
    {.name = "invite_days", .type = OPT_NUMBER, AT(invite_days), .fallback = "7", .min = 0.01,
     .max = 3650, .help = "How many days the ticket is valid; atom pool invite makes more "
                          "tickets."},
    {.name = "plain", .type = OPT_FLAG, AT(plain),
     .help = "No encryption and no admission control; only for a trusted local network."},
    {.name = "dry_run", .type = OPT_FLAG, AT(dry_run),
     .help = "Print how members would average, why, and with which alternatives; create nothing."},
    PLAN_ROW_JSON(.help = "Print two JSON objects to stdout: the ticket at once and the summary "
                          "at the end."),
    {.name = "quiet", .type = OPT_FLAG, AT(quiet), .help = "No progress."},
    POOL_HOST_NAME_SPEC(create_values, host, "host_name"),
    POOL_HOST_SPECS(create_values, host),
};
/* clang-format on */

static const opt_command options = {
    .name = "pool create",
    .summary = "make a pool of a run, print its ticket, and train as its first member",
    .description =
        "Anybody who has the ticket can join with `atom pool join`, so keep it secret. Each "
        "member trains on the data in its own order, and the weights are averaged piece by piece "
        "meanwhile. max_steps of the configuration counts the steps of all members together. "
        "After Ctrl-C or another signal it saves and leaves for now; `atom pool join -o DIR` "
        "brings it back and needs only DIR.",
    .examples = "# a minimal run.yml; 'atom help train' lists all keys\n"
                "#   model: gpt2-124m\n"
                "#   data: data\n"
                "#   max_steps: 100000\n"
                "#   pool:\n"
                "#     sync_steps: 20\n"
                "atom pool create --config run.yml -o run\n"
                "# what it would choose for this model and connection, and why\n"
                "atom pool create --config run.yml --max-upload 20 --dry-run\n"
                "# only on this machine\n"
                "atom pool create --config run.yml --listen 127.0.0.1:4400 --no-directory -o "
                "run\n",
    OPT_TABLE(specs, create_values),
    .section = &pool_options,
    .section_title = "Keys of the section `pool:` in the configuration",
};

static json_t *case_json(const pool_case *c)
{
    return json_pack("{s:s, s:I, s:o, s:o, s:o, s:b}", "codec", gsp_codec_name((gsp_codec)c->codec),
                     "sync_steps", (json_int_t)c->sync_steps, "sync_seconds",
                     cli_real(c->sync_seconds), "steps_seconds", cli_real(c->steps_seconds),
                     "waits", cli_real(c->waits), "chosen", (int)c->chosen);
}

static json_t *way_json(const pool_way *way)
{
    return json_pack("{s:o, s:s}", "tokens_per_second", cli_real(way->tokens_per_s), "bound",
                     place_bound_names[way->bound]);
}

/* Null where this host's speed is not known. */
static json_t *ways_json(const pool_ways *ways)
{
    if (!ways->known)
        return json_null();
    return json_pack("{s:i, s:o, s:o, s:o, s:o, s:s}", "members", (int)ways->members,
                     "alone_tokens_per_second", cli_real(ways->alone), "step_tokens",
                     cli_real(ways->step_tokens), "gradients", way_json(&ways->gradients),
                     "parameters", way_json(&ways->weights), "recommended",
                     place_mode_names[ways->recommended]);
}

static json_t *room_json(const pool_run *run)
{
    pool_run_room r;
    pool_run_read_room(run, &r);
    return json_pack("{s:I, s:I, s:I, s:I, s:b}", "host_bytes", (json_int_t)r.host_bytes,
                     "least_host_bytes", (json_int_t)r.least_host_bytes, "disk_bytes",
                     (json_int_t)r.disk_bytes, "joiner_bytes", (json_int_t)r.joiner_bytes,
                     "anchor_on_disk", (int)r.on_disk);
}

static void print_room(const pool_run *run)
{
    pool_run_room r;
    char host[24], least[24], disk[24], joiner[24];
    pool_run_read_room(run, &r);
    cli_print("\n"
              "in addition to training the pool takes %s of host memory",
              atom_size_text(r.host_bytes, host));
    if (r.least_host_bytes < r.host_bytes)
        cli_print(", or %s with its anchor (the weights last agreed on) on disk",
                  atom_size_text(r.least_host_bytes, least));
    cli_print("%s, and %s of disk; a newcomer downloads %s\n",
              r.on_disk ? ", as this host would do" : "", atom_size_text(r.disk_bytes, disk),
              atom_size_text(r.joiner_bytes, joiner));
}

/* Null where nobody measured it, or where sums make the steps of one trainer. */
static json_t *expects_json(const pool_learns *e)
{
    if (!e->known)
        return json_null();
    return json_pack("{s:o, s:o, s:o}", "behind", cli_real(e->behind), "low", cli_real(e->low),
                     "high", cli_real(e->high));
}

/* What becomes of an average. */
static void print_outer(const pool_settings *s)
{
    if (s->sync != POOL_SYNC_PARAMETERS)
        return;
    if (s->outer_learning_rate == 1 && s->outer_momentum == 0)
        cli_print("an average is the plain mean of the members\n");
    else
        cli_print("an average makes an outer step with rate %g and momentum %g\n",
                  s->outer_learning_rate, s->outer_momentum);
}

static atom_status show_advice(const pool_show *show)
{
    const pool_settings *s = pool_run_settings(show->run);
    const pool_advice *a = pool_run_advice(show->run);
    const trainer *t = pool_run_trainer(show->run);
    if (show->json) {
        json_t *why = json_array(), *cases = json_array();
        for (uint32_t i = 0; i < a->n_why; i++)
            json_array_append_new(why, json_string(a->why[i]));
        for (uint32_t i = 0; i < a->n_cases; i++)
            json_array_append_new(cases, case_json(&a->cases[i]));
        return cli_print_json(json_pack(
            "{s:I, s:s, s:I, s:o, s:o, s:o, s:b, s:b, s:o, s:o, s:I, s:i, s:o, s:o, s:o, s:o}",
            "sync_steps", (json_int_t)s->sync_steps, "codec", gsp_codec_name((gsp_codec)s->codec),
            "fragments", (json_int_t)s->fragments, "outer_learning_rate",
            cli_real(s->outer_learning_rate), "outer_momentum", cli_real(s->outer_momentum),
            "due_seconds", cli_real(s->due_seconds), "hidden", (int)a->hidden, "rate_assumed",
            (int)a->assumed, "why", why, "alternatives", cases, "parameters",
            (json_int_t)trainer_floats(t), "devices", (int)trainer_plan(t)->devices, "step_seconds",
            cli_real(trainer_plan(t)->predicted_step_seconds), "ways", ways_json(&a->ways),
            "expected_loss", expects_json(&a->expects), "room", room_json(show->run)));
    }
    for (uint32_t i = 0; i < a->n_why; i++)
        cli_print("%s\n", a->why[i]);
    if (trainer_plan(t)->devices > 1)
        cli_print("this host's times are those of %u devices, which share each step\n",
                  trainer_plan(t)->devices);
    cli_print("F = %lld pieces, averaged in turn; T = %s\n", (long long)s->fragments,
              cli_seconds(s->due_seconds));
    print_outer(s);
    cli_print("\n");
    cli_print("  codec      H      sync   H steps   waits\n");
    for (uint32_t i = 0; i < a->n_cases; i++) {
        const pool_case *c = &a->cases[i];
        cli_print("%s %-6s %5lld  %8s", c->chosen ? "*" : " ", gsp_codec_name((gsp_codec)c->codec),
                  (long long)c->sync_steps, cli_seconds(c->sync_seconds));
        cli_print("  %8s   %4.0f %%\n", cli_seconds(c->steps_seconds), 100 * c->waits);
    }
    print_room(show->run);
    cli_print("\n"
              "sync: time to send all weights once. waits: %s\n",
              s->sync == POOL_SYNC_GRADIENTS
                  ? "share of the time in which the trainer waits for the link"
                  : "share of the time in which weights that are due wait for the link; training "
                    "goes on meanwhile");
    return ATOM_OK;
}

static atom_status show_ticket(const pool_show *show, const create_values *v)
{
    const char *ticket = pool_run_ticket(show->run);
    if (show->json)
        ATOM_TRY(cli_print_json(json_pack("{s:s, s:i, s:s}", "ticket", ticket, "port",
                                          (int)pool_run_port(show->run), "output_dir", show->dir)));
    else
        cli_print("to join, others run `atom pool join -` and paste this ticket:\n"
                  "\n"
                  "  %s\n"
                  "\n",
                  ticket);
    if (!show->json && !v->plain)
        cli_print(
            "it admits %lld hosts within %g days; whoever has it can join, so keep it secret\n",
            (long long)v->invite_count, v->invite_days);
    (void)fflush(stdout);
    return ATOM_OK;
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    create_values *v = values;
    if (!v->output_dir)
        ATOM_TRY(pool_create_dir(v->config, &v->output_dir));
    if (!v->output_dir && !v->dry_run)
        return atom_fail(ATOM_E_USAGE,
                         "'pool create' needs --output-dir DIR, or the key output_dir in %s",
                         v->config);
    const pool_option train[] = {
        {"model", v->model}, {"data", v->data}, {"device", v->device}, {"devices", v->devices}};
    const pool_option settings[] = {
        {"sync", v->sync},   {"sync_steps", v->sync_steps},     {"fragments", v->fragments},
        {"codec", v->codec}, {"fork_seconds", v->fork_seconds}, {"min_peers", v->min_peers}};
    pool_show show = {.dir = v->output_dir ? v->output_dir : ".",
                      .json = v->json,
                      .quiet = v->quiet,
                      .max_steps = v->max_steps};
    const pool_hooks hooks = pool_show_hooks(&show);
    const pool_run_config config = {.dir = show.dir,
                                    .host = &v->host,
                                    .max_steps = v->max_steps,
                                    .train = train,
                                    .n_train = sizeof train / sizeof *train,
                                    .hooks = &hooks};
    const pool_create create = {.config = v->config,
                                .name = v->name,
                                .settings = settings,
                                .n_settings = sizeof settings / sizeof *settings,
                                .plain = v->plain,
                                .invite_count = v->invite_count,
                                .invite_days = v->invite_days,
                                .dry_run = v->dry_run};
    atom_status st;
    if (v->host.listen.n == 0) /* somebody must be reachable, and the first is alone */
        ATOM_TRY(opt_set(&options, (uint32_t)opt_find(&options, "listen"), "*:4400", v));
    if (!v->dry_run)
        ATOM_TRY(pool_host_recall(show.dir, &options, parsed, &v->host));
    cli_signals_catch();
    ATOM_TRY_CLEAN(pool_run_create(&config, &create, &show.run));
    cli_progress_end();
    if (v->dry_run) {
        st = show_advice(&show);
        goto cleanup;
    }
    ATOM_TRY_CLEAN(show_ticket(&show, v));
    ATOM_TRY_CLEAN(pool_show_train(&show));
cleanup:
    pool_show_close(&show);
    return st;
}

const cli_command cli_pool_create = {&options, run};
