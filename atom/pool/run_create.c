/*
 * Owns the making of a pool: from a run's configuration to a manifest, its files and a first
 * member. One idea: what is in run.yml is what everybody will do, so all that was decided goes into
 * it or into the manifest's settings. Refuses a directory that holds a pool or a run.
 */
#include "atom/pool/run_inner.h"
#include "atom/pool/run_text.h"

#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool was_said(const opt_parsed *parsed, const char *name)
{
    return parsed->origin[opt_find(&pool_options, name)] != OPT_FROM_DEFAULT;
}

/* A run's configuration in two: its section `pool:`, and the rest. */
static atom_status read_parts(const char *path, char **pool_text, char **run_text)
{
    char *text = NULL;
    uint64_t bytes;
    if (!atom_path_exists(path))
        return atom_fail(ATOM_E_USAGE, "there is no configuration file %s", path);
    ATOM_TRY(atom_file_read(path, OPT_FILE_BYTES_MAX, &text, &bytes));
    atom_status st = pool_settings_split(path, text, bytes, pool_text, run_text);
    atom_free(text);
    return st;
}

atom_status pool_create_dir(const char *config, char **dir)
{
    char *pool_text = NULL, *run_text = NULL;
    train_config c;
    opt_parsed parsed;
    *dir = NULL;
    ATOM_TRY(train_config_defaults(&c));
    atom_status st = read_parts(config, &pool_text, &run_text);
    if (st == ATOM_OK)
        st = opt_peek_text(&train_command, config, run_text, strlen(run_text), &c, &parsed);
    if (st == ATOM_OK) {
        *dir = c.output_dir;
        c.output_dir = NULL;
    }
    train_config_free(&c);
    atom_free(pool_text);
    atom_free(run_text);
    return st;
}

/* The section `pool:` and what was said beside it; *pool_text and *run_text are the file in two. */
static atom_status read_settings(pool_run *r, const pool_create *create, pool_said *said,
                                 char **pool_text, char **run_text)
{
    opt_parsed parsed;
    ATOM_TRY(read_parts(create->config, pool_text, run_text));
    ATOM_TRY(opt_defaults(&pool_options, &r->settings, &parsed));
    ATOM_TRY(opt_read_text(&pool_options, create->config, *pool_text, strlen(*pool_text),
                           &r->settings, &parsed));
    ATOM_TRY(pool_options_set(&pool_options, create->settings, create->n_settings, &r->settings,
                              &parsed));
    pool_settings_fill(&r->settings, &parsed);
    *said = (pool_said){.sync_steps = was_said(&parsed, "sync_steps"),
                        .codec = was_said(&parsed, "codec"),
                        .due_seconds = was_said(&parsed, "due_seconds")};
    return pool_settings_check(&r->settings, &parsed, create->config, *pool_text);
}

/* Muon's part of the step that this member makes of summed gradients, matrix by matrix. */
static double matrices_seconds(const pool_run *r)
{
    const graph *g = trainer_workbench(r->t)->g;
    const part_device *d = &trainer_profile(r->t)->device;
    bool on_card = r->products && d->ortho_flops_per_second > 0;
    double seconds = 0;
    for (uint32_t p = 0; p < g->n_params; p++) {
        int64_t rows[GRAPH_MATRICES_MAX], cols = g->params[p].dims[1];
        uint32_t n = graph_matrices(g, (int32_t)p, rows);
        for (uint32_t i = 0; i < n; i++) {
            uint64_t elements = (uint64_t)(rows[i] * cols);
            double bytes = (double)elements * sizeof(float);
            seconds += !on_card
                           ? part_muon_seconds(d, rows[i], cols)
                           : part_ortho_seconds(d, rows[i], cols) +
                                 bytes / d->h2d_bytes_per_second + bytes / d->d2h_bytes_per_second +
                                 part_muon_begin_seconds(d, elements, 4, 4) +
                                 part_muon_end_seconds(d, elements, 4);
        }
    }
    return seconds;
}

/* This host's plan in two: updates that nothing hides, and the rest, which micro-batches share evenly
 * (atom/plan/place_costs.h). */
static pool_pace pace_of(const pool_run *r)
{
    const part_plan *plan = trainer_plan(r->t);
    const part_profile *profile = trainer_profile(r->t);
    const graph *g = trainer_workbench(r->t)->g;
    double step = plan->predicted_step_seconds, spare = step - plan->predicted_compute_seconds;
    if (!profile || profile->device.adamw_params_per_second <= 0)
        return (pool_pace){0};
    uint64_t matrices = graph_matrix_elements(g);
    double adamw =
        (double)(trainer_floats(r->t) - matrices) / profile->device.adamw_params_per_second;
    double update = fmax(0, fmin(adamw + plan->muon_seconds, spare));
    return (pool_pace){.micro_tokens = (double)(plan->micro_batch * plan->sequence),
                       .micro_seconds = (step - update) / plan->micro_batches,
                       .update_seconds = update,
                       .apart_seconds = matrices ? adamw + matrices_seconds(r) : update};
}

/* Chooses what nobody said, and says why. */
static atom_status advise(pool_run *r, const pool_host *host, const pool_said *said, bool notes)
{
    const pool_settings *s = &r->settings;
    int64_t own = r->config.micro_batch_size * r->config.gradient_accumulation_steps;
    double seconds = trainer_plan(r->t)->predicted_step_seconds;
    uint64_t sequence = trainer_where(r->t).sequence;
    uint32_t members = s->min_peers > 1 ? (uint32_t)s->min_peers : 0;
    pool_facts facts = {.floats = trainer_floats(r->t),
                        .step_tokens = (uint64_t)s->batch * sequence,
                        .tokens_per_s = seconds > 0 ? (double)own * (double)sequence / seconds : 0,
                        .up_bytes_per_s = host ? (uint64_t)(host->up_mbit * 1e6 / 8) : 0,
                        .down_bytes_per_s = host ? (uint64_t)(host->down_mbit * 1e6 / 8) : 0,
                        .members = members};
    if (s->sync == POOL_SYNC_GRADIENTS) /* each computes its share of the one batch */
        facts.step_tokens /= members ? members : 8;
    r->advice = atom_alloc(1, sizeof *r->advice);
    if (!r->advice)
        return atom_fail_memory("advice", sizeof *r->advice);
    pool_advise(s, said, &facts, r->advice);
    const pool_pace pace = pace_of(r);
    ATOM_TRY(pool_advise_ways(s, &facts, &pace, r->advice));
    const pool_learner learner = {.muon = r->config.optimizer == GRAPH_MUON,
                                  .adapters = r->config.lora.r > 0};
    pool_advise_loss(s, &facts, &learner, r->advice);
    pool_advice_follow(r->advice, &r->settings);
    for (uint32_t i = 0; i < r->advice->n_why && notes; i++)
        pool_note(&r->hooks, "%s", r->advice->why[i]);
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

static atom_status draft(pool_run *r, const pool_create *create, gsp_manifest *m)
{
    uint64_t n = trainer_floats(r->t), first;
    pool_settings *s = &r->settings;
    char *text = NULL;
    memset(m, 0, sizeof *m);
    m->plain = create->plain;
    m->n_fragments = pool_fragments(n, (uint32_t)s->fragments);
    s->fragments = m->n_fragments;
    const trainer_place place = trainer_where(r->t);
    s->data_hash = pool_run_sums(r) ? pool_data_hash(place.data_hash, place.data_contents) : 0;
    ATOM_TRY(note_base(r));
    if (create->name)
        snprintf(m->name, sizeof m->name, "%s", create->name);
    for (uint32_t f = 0; f < m->n_fragments; f++)
        m->n_floats[f] = pool_fragment_range(n, m->n_fragments, f, &first);
    m->codec = (gsp_codec)s->codec;
    m->trust = (gsp_trust)s->trust;
    m->robust = m->trust == GSP_STRANGERS;
    m->clips_sums = m->robust && pool_run_sums(r);
    /* Who learns from other texts than most may go another way for good reasons. */
    m->drifts = m->robust && !pool_run_sums(r) && s->data == POOL_DATA_SHARED;
    m->shares_return = m->passes_on = pool_run_sums(r);
    m->tokens_per_sample = trainer_where(r->t).sequence;
    uint64_t due = (uint64_t)(s->sync_steps * s->batch) / m->n_fragments;
    m->samples_due = due ? due : 1;
    m->time_due_s = s->due_seconds;
    m->fork_s = s->fork_seconds;
    m->heartbeat_s = s->heartbeat_seconds;
    ATOM_TRY(pool_anchor_hash(trainer_weights(r->t), n, m->n_fragments, &m->anchor));
    ATOM_TRY(opt_print(&pool_options, s, NULL, false, &text));
    bool fits = strlen(text) < sizeof m->settings;
    if (fits)
        strcpy(m->settings, text);
    atom_free(text);
    return fits ? ATOM_OK : atom_fail(ATOM_E_USAGE, "the pool's settings are too long");
}

/* run.yml and config.json of the pool, and the model's buffers, in `genesis`. */
static atom_status describe(const pool_run *r, const char *genesis, const char *run_path)
{
    char *shared = NULL, *text = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(atom_dir_make(genesis));
    ATOM_TRY_CLEAN(trainer_describe(r->t, genesis));
    ATOM_TRY_CLEAN(pool_run_text(&r->config, false, &shared));
    /* Where all make one sum, what is said of its precision is said to all. */
    const char *dtype = r->config.dtype == PLAN_DTYPE_BF16 ? "dtype: bf16\n" : "dtype: fp32\n";
    bool says = pool_run_sums(r) && r->config.dtype != PLAN_DTYPE_AUTO;
    text = atom_format("%s%s", shared, says ? dtype : "");
    if (!text)
        ATOM_TRY_CLEAN(atom_fail_memory("a configuration", strlen(shared)));
    ATOM_TRY_CLEAN(atom_file_write(run_path, text, strlen(text)));
    if (*r->withheld)
        pool_note(&r->hooks,
                  "the run.yml that others get does not contain %s, because each host decides "
                  "that for itself",
                  r->withheld);
    const char *plan = r->config.plan ? "plan" : "", *trace = r->config.trace ? "trace" : "";
    const char *both = *plan && *trace ? " and " : "";
    if (*plan || *trace)
        pool_note(&r->hooks,
                  "%s%s%s %s used by this process only; `atom pool join -o %s` comes back without "
                  "%s",
                  plan, both, trace, *both ? "are" : "is", r->dir, *both ? "them" : "it");
cleanup:
    atom_free(shared);
    atom_free(text);
    return st;
}

static atom_status make(pool_run *r, const pool_host *box, const pool_create *create)
{
    gsp_manifest *m = atom_alloc(1, sizeof *m);
    gsp_pool_file *files = atom_alloc(GSP_MANIFEST_FILES_MAX, sizeof *files);
    uint32_t n_files = 2;
    char *place = pool_run_path(r, ""), *genesis = atom_path_join(r->dir, "genesis");
    char *run = atom_path_join(r->dir, "genesis/run.yml");
    char *config = atom_path_join(r->dir, "genesis/config.json");
    char *buffers = atom_path_join(r->dir, "genesis/buffers.safetensors");
    char *tokenizer = atom_path_join(r->config.data, "tokenizer.json");
    char *template = atom_path_join(r->config.data, "chat_template.jinja");
    gsp_pool_host host;
    atom_status st;
    if (!m || !files || !place || !genesis || !run || !config || !buffers || !tokenizer ||
        !template)
        ATOM_TRY_CLEAN(atom_fail_memory("a pool", sizeof *m));
    ATOM_TRY_CLEAN(pool_host_place(box, place, &host));
    host.invite_count = (uint32_t)create->invite_count;
    host.invite_days = create->invite_days;
    ATOM_TRY_CLEAN(draft(r, create, m));
    pool_run_say_mode(r, trainer_floats(r->t));
    ATOM_TRY_CLEAN(pool_run_check_disk(r, r->t));
    ATOM_TRY_CLEAN(describe(r, genesis, run));
    ATOM_TRY_CLEAN(pool_run_is_making(r));
    files[0] = (gsp_pool_file){.name = "run.yml", .path = run};
    files[1] = (gsp_pool_file){.name = "config.json", .path = config};
    if (atom_path_exists(buffers))
        files[n_files++] = (gsp_pool_file){.name = "buffers.safetensors", .path = buffers};
    if (atom_path_exists(tokenizer))
        files[n_files++] = (gsp_pool_file){.name = "tokenizer.json", .path = tokenizer};
    if (atom_path_exists(template))
        files[n_files++] = (gsp_pool_file){.name = "chat_template.jinja", .path = template};
    bool shares = r->settings.data != POOL_DATA_OWN;
    if (shares)
        ATOM_TRY_CLEAN(pool_dataset_list(r->config.data, files, GSP_MANIFEST_FILES_MAX, &n_files));
    ATOM_TRY_CLEAN(gsp_pool_create(&host, m, files, n_files, &r->life));
    if (shares)
        ATOM_TRY_CLEAN(gsp_pool_data_look(r->life, r->config.data, r->hooks.watch, r->hooks.ctx,
                                          &r->data.found));
    if (box)
        ATOM_TRY_CLEAN(pool_host_keep(r->dir, box));
cleanup:
    if (files)
        pool_dataset_unlist(files, n_files);
    atom_free(files);
    atom_free(m);
    atom_free(place);
    atom_free(genesis);
    atom_free(run);
    atom_free(config);
    atom_free(buffers);
    atom_free(tokenizer);
    atom_free(template);
    return st;
}

/* In the manifest and on everybody's screen. */
static atom_status check_name(const char *name)
{
    size_t n = name ? strlen(name) : 0;
    bool good = n < GSP_MANIFEST_NAME_BYTES;
    for (size_t i = 0; i < n && good; i++)
        good = name[i] >= ' ' && name[i] <= '~';
    return good ? ATOM_OK
                : atom_fail(ATOM_E_USAGE,
                            "--name: a pool's name has at most %d letters, digits, spaces and "
                            "other characters of ASCII; '%.80s' has %zu bytes, or others",
                            GSP_MANIFEST_NAME_BYTES - 1, name, n);
}

/* Training would not begin with those whom the ticket admits. */
static void warn_of_invites(const pool_run *r, const pool_create *create)
{
    int64_t others = r->settings.min_peers - 1;
    if (others > create->invite_count)
        atom_log(ATOM_LOG_WARN,
                 "training begins with %lld members, and the ticket admits only %lld besides this "
                 "one; use --invite-count %lld, or make another ticket: atom pool invite %s "
                 "--count %lld",
                 (long long)r->settings.min_peers, (long long)create->invite_count,
                 (long long)others, r->dir, (long long)(others - create->invite_count));
}

/* No pool yet, and no run but one that run.yml names to go on from or to replace. */
static atom_status check_place(const pool_run *r)
{
    const char *resume = r->config.resume_from_checkpoint;
    bool named = r->config.overwrite || (resume && strcmp(resume, "none") != 0);
    return named ? ATOM_OK : pool_run_check_unused(r);
}

static atom_status check_no_pool(const pool_run *r)
{
    char *place = pool_run_path(r, "");
    if (!place)
        return atom_fail_memory("a path", 256);
    bool taken = gsp_pool_exists(place);
    atom_free(place);
    if (!taken)
        return ATOM_OK;
    return atom_fail(ATOM_E_USAGE,
                     "%s already holds a pool; continue with it by `atom pool join -o %s`", r->dir,
                     r->dir);
}

atom_status pool_run_create(const pool_run_config *config, const pool_create *create,
                            pool_run **out)
{
    pool_run *r = NULL;
    pool_run_before before;
    pool_said said;
    gsp_pool_host host;
    char *pool_text = NULL, *run_text = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(pool_run_begin(config, &r));
    r->genesis = true;
    ATOM_TRY_CLEAN(check_name(create->name));
    ATOM_TRY_CLEAN(check_no_pool(r)); /* a dry run refuses what the real one would */
    ATOM_TRY_CLEAN(read_settings(r, create, &said, &pool_text, &run_text));
    ATOM_TRY_CLEAN(pool_run_configure(r, create->config, run_text, config->train, config->n_train));
    ATOM_TRY_CLEAN(pool_settings_settle(&r->settings, &r->config, create->config, pool_text));
    ATOM_TRY_CLEAN(pool_host_place(config->host, r->dir, &host));
    ATOM_TRY_CLEAN(check_place(r));
    if (!create->plain)
        warn_of_invites(r, create);
    pool_run_look_before(r, &before);
    r->config.dry_run = create->dry_run;
    ATOM_TRY_CLEAN(pool_run_open_trainer(r));
    ATOM_TRY_CLEAN(advise(r, config->host, &said, !create->dry_run));
    if (!create->dry_run && (st = make(r, config->host, create)) != ATOM_OK)
        ATOM_TRY_CLEAN(pool_run_undo(r, &before, st));
    *out = r;
    r = NULL;
cleanup:
    pool_run_close(&r);
    atom_free(pool_text);
    atom_free(run_text);
    return st;
}
