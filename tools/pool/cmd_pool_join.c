/*
 * atom pool join: takes part in a pool, by its ticket or by what is left from last time. One idea:
 * manifest and small files come first; whether this host can do it is known before anything large
 * is fetched. Refuses data whose tokens are not the pool's.
 */
#include "tools/pool/cmd_pool_train.h"

#include <sodium.h>
#include <string.h>

typedef struct join_values {
    char *data, *model, *output_dir, *device, *name;
    char *device_memory, *threads, *moments_dtype;
    int64_t max_steps;
    double patience;
    bool json, quiet, own_data;
    pool_host host;
} join_values;

#define AT(member) .offset = offsetof(join_values, member)

static const opt_spec specs[] = {
    {.name = "data",
     .type = OPT_TEXT,
     AT(data),
     .value = "DIR",
     .help = "The pool's data set, where this host has it already: it is used from there. "
             "Default: fetched from the members into DIR/data. In a pool whose members bring their "
             "own: a directory made by `atom data prepare` with the pool's tokenizer, needed the "
             "first time."},
    {.name = "own_data",
     .type = OPT_FLAG,
     AT(own_data),
     .help = "--data is other data than the pool's, in a pool that allows it."},
    {.name = "model",
     .type = OPT_TEXT,
     AT(model),
     .value = "DIR|FILE",
     .help = "In a pool that trains adapters (LoRA): a copy of the model that they are for. Needed "
             "the first time."},
    {.name = "output_dir",
     .type = OPT_TEXT,
     AT(output_dir),
     .fallback = "pool-run",
     .value = "DIR",
     .letter = 'o',
     .help = "Checkpoints, metrics, and in DIR/pool the membership."},
    {.name = "device",
     .type = OPT_TEXT,
     AT(device),
     .value = "auto|cpu|cuda[:N]",
     .help = "What computes."},
    {.name = "device_memory",
     .type = OPT_TEXT,
     AT(device_memory),
     .value = "SIZE",
     .help = "Cap on the device's memory; less than the model needs means swapping."},
    {.name = "moments_dtype",
     .type = OPT_TEXT,
     AT(moments_dtype),
     .value = "fp32|bf16",
     .help = "What Adam's moments are kept in on this host. bf16: 4 bytes less for each parameter. "
             "Not with sync: gradients."},
    {.name = "threads", .type = OPT_TEXT, AT(threads), .value = "N", .help = "CPU threads."},
    {.name = "max_steps",
     .type = OPT_INT,
     AT(max_steps),
     .min = 0,
     .max = 1e12,
     .help = "Leave after this many steps; 0: when the pool is done."},
    {.name = "name",
     .type = OPT_TEXT,
     AT(name),
     .value = "TEXT",
     .help = "What others see beside the key. Default: the host's name."},
    {.name = "patience",
     .type = OPT_NUMBER,
     AT(patience),
     .fallback = "0",
     .min = 0,
     .max = 1e9,
     .value = "SECONDS",
     .help = "Give up when nobody answers for so long; 0: never."},
    PLAN_ROW_JSON(.help = "One JSON object on stdout."),
    {.name = "quiet", .type = OPT_FLAG, AT(quiet), .help = "No progress."},
    POOL_HOST_SPECS(join_values, host),
};

static const opt_command options = {
    .name = "pool join",
    .summary = "train along in a pool",
    .description =
        "With a ticket: joins. Without: comes back to the pool of DIR. Every member draws its "
        "samples in an order of its own, keyed by its identity. Weights and data come from the "
        "members. What is fetched can be resumed; disk and memory are checked before.",
    .examples = "atom pool join TICKET -o run\n"
                "# with the data set from here\n"
                "atom pool join TICKET --data tokens -o run\n"
                "# come back after a signal, a crash or a reboot\n"
                "atom pool join -o run\n",
    .positional = "[TICKET]",
    .positional_max = 1,
    OPT_TABLE(specs, join_values),
};

/* The seed of a member: its data order and dropout are its own; the founder keeps the run's. */
static void own_seed(pool_run *r)
{
    uint8_t text[GSP_PUBLIC_BYTES + 8], hash[8];
    uint64_t seed = 0;
    if (gsp_pool_is_founder(r->life) || r->settings.sync == POOL_SYNC_GRADIENTS)
        return; /* with gradients there is one order, and a place in it for everybody */
    memcpy(text, gsp_pool_key(r->life), GSP_PUBLIC_BYTES);
    for (int i = 0; i < 8; i++)
        text[GSP_PUBLIC_BYTES + i] = (uint8_t)((uint64_t)r->config.seed >> 8 * i);
    uint8_t full[crypto_generichash_BYTES];
    crypto_generichash(full, sizeof full, text, sizeof text, NULL, 0);
    memcpy(hash, full, sizeof hash);
    for (int i = 0; i < 8; i++)
        seed |= (uint64_t)hash[i] << 8 * i;
    r->config.seed = (int64_t)(seed >> 2);
}

static atom_status check_tokenizer(const pool_run *r, const char *path)
{
    text_tokenizer *ours = NULL, *theirs = NULL;
    char *own = atom_path_join(r->config.data, "tokenizer.json");
    atom_status st = own ? ATOM_OK : atom_fail_memory("a path", 256);
    if (st == ATOM_OK && path && atom_path_exists(own)) {
        ATOM_TRY_CLEAN(text_tokenizer_load(own, &ours));
        ATOM_TRY_CLEAN(text_tokenizer_load(path, &theirs));
        if (!text_tokenizer_equal(ours, theirs))
            st = atom_fail(ATOM_E_USAGE,
                           "%s was prepared with another tokenizer than the pool's; prepare it "
                           "again with --tokenizer %s",
                           r->config.data, path);
    }
cleanup:
    text_tokenizer_close(&ours);
    text_tokenizer_close(&theirs);
    atom_free(own);
    return st;
}

static atom_status fetch(pool_run *r, const char *name, char **path)
{
    *path = NULL;
    if (!gsp_manifest_find(gsp_pool_manifest(r->life), name))
        return ATOM_OK;
    return gsp_pool_fetch(r->life, name, pool_run_watch, r, path);
}

/* Which model: the pool's, with its weights; under adapters this host's own, which is what
 * local.yml says where it is not said now. *model: to be named, or NULL. */
static atom_status choose_model(const pool_run *r, const join_values *v, char *fetched,
                                char **model)
{
    char *local = atom_format("%s/local.yml", r->dir);
    bool known = local && atom_path_exists(local);
    atom_free(local);
    *model = r->settings.base_hash ? v->model : fetched;
    if (r->settings.base_hash && !v->model && !known)
        return atom_fail(ATOM_E_USAGE,
                         "this pool trains adapters (LoRA) of a model that you need to have: name "
                         "its directory with --model; the pool's run.yml and config.json say which "
                         "it is");
    if (!r->settings.base_hash && v->model)
        return atom_fail(ATOM_E_USAGE,
                         "--model: this pool trains all weights, and they come from its members; "
                         "leave the option away");
    return ATOM_OK;
}

/* From the pool's run.yml, what was chosen here before, and what is said now. */
static atom_status configure(pool_run *r, const join_values *v)
{
    const gsp_manifest *m = gsp_pool_manifest(r->life);
    static char keys[][24] = {"data",          "device", "device_memory",         "threads",
                              "moments_dtype", "model",  "resume_from_checkpoint"};
    static char automatic[] = "auto";
    char *model = NULL, *config = NULL, *run = NULL, *tokenizer = NULL, *text = NULL, *words[14];
    opt_parsed parsed;
    uint64_t bytes;
    atom_status st;
    int n = 0;
    ATOM_TRY_CLEAN(opt_defaults(&pool_options, &r->settings, &parsed));
    ATOM_TRY_CLEAN(opt_read_text(&pool_options, "the pool's settings", m->settings,
                                 strlen(m->settings), &r->settings, &parsed));
    ATOM_TRY_CLEAN(pool_settings_check(&r->settings, "the pool's settings", NULL));
    if (r->settings.batch < 1 || r->settings.fragments != (int64_t)m->n_fragments)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT, "the pool's settings contradict its manifest"));
    ATOM_TRY_CLEAN(fetch(r, "run.yml", &run));
    ATOM_TRY_CLEAN(fetch(r, "config.json", &config));
    ATOM_TRY_CLEAN(fetch(r, "tokenizer.json", &tokenizer));
    if (!run || !config)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT,
                                 "the pool has no run.yml or no config.json: it is not a "
                                 "pool of trainers"));
    r->has_data = false;
    for (uint32_t i = 0; i < m->n_files; i++)
        r->has_data |= m->file[i].later;
    r->data_dir = atom_path_join(r->dir, "data");
    if (!r->data_dir)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    ATOM_TRY_CLEAN(atom_file_read(run, 1 << 20, &text, &bytes));
    ATOM_TRY_CLEAN(choose_model(r, v, config, &model));
    char *const given[] = {v->data,          v->device, v->device_memory, v->threads,
                           v->moments_dtype, model,     automatic};
    for (int i = 0; i < 7; i++)
        if (given[i])
            words[n++] = keys[i], words[n++] = given[i];
    ATOM_TRY_CLEAN(pool_run_configure(r, run, text, words, n, true));
    ATOM_TRY_CLEAN(pool_data_choose(r, v->own_data, !v->data));
    ATOM_TRY_CLEAN(check_tokenizer(r, tokenizer));
    own_seed(r);
cleanup:
    atom_free(config);
    atom_free(run);
    atom_free(tokenizer);
    atom_free(text);
    return st;
}

static atom_status enter(pool_run *r, const join_values *v, const char *ticket)
{
    char *place = pool_run_path(r, "");
    gsp_pool_host host;
    atom_status st;
    if (!place)
        return atom_fail_memory("a path", 256);
    ATOM_TRY_CLEAN(pool_host_place(&v->host, v->name, place, &host));
    if (!ticket && !gsp_pool_exists(place))
        ATOM_TRY_CLEAN(
            atom_fail(ATOM_E_USAGE,
                      "%s holds no pool to come back to; name the ticket: atom pool join "
                      "TICKET -o %s",
                      r->dir, r->dir));
    ATOM_TRY_CLEAN(atom_dir_make(r->dir));
    if (ticket)
        st = gsp_pool_join(&host, ticket, v->patience, pool_run_watch, r, &r->life);
    else
        st = gsp_pool_open(&host, &r->life);
    cli_progress_end();
cleanup:
    atom_free(place);
    return st;
}

static uint64_t floats_of(const gsp_manifest *m)
{
    uint64_t n = 0;
    for (uint32_t f = 0; f < m->n_fragments; f++)
        n += m->n_floats[f];
    return n;
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    join_values *v = values;
    pool_run r = {
        .dir = v->output_dir, .json = v->json, .quiet = v->quiet, .max_steps = v->max_steps};
    atom_status st;
    r.patience = v->patience;
    cli_signals_catch();
    ATOM_TRY_CLEAN(pool_host_settle(r.dir, &options, parsed, &v->host));
    ATOM_TRY_CLEAN(pool_run_limit(&r, &v->host));
    r.down_bytes_per_s = (uint64_t)(v->host.down_mbit * 1e6 / 8);
    ATOM_TRY_CLEAN(enter(&r, v, parsed->n_positional ? parsed->positional[0] : NULL));
    const gsp_manifest *m = gsp_pool_manifest(r.life);
    ATOM_TRY_CLEAN(configure(&r, v));
    pool_run_say_mode(&r, floats_of(m));
    ATOM_TRY_CLEAN(pool_run_check_disk(&r, floats_of(m), m->n_fragments));
    ATOM_TRY_CLEAN(pool_run_open_trainer(&r));
    pool_run_note(
        &r, "this host would train %s tokens/s",
        cli_count((double)(r.config.micro_batch_size * r.config.gradient_accumulation_steps) *
                  (double)m->tokens_per_sample / trainer_plan(r.t)->predicted_step_seconds));
    ATOM_TRY_CLEAN(pool_run_train(&r, false));
cleanup:
    pool_run_close(&r);
    return st;
}

const cli_command cli_pool_join = {&options, run};
