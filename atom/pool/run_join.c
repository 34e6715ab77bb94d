/*
 * Owns the joining of a pool, by its ticket or by what is left from last time. One idea: manifest
 * and small files come first; whether this host can do it is known before anything large is
 * fetched. Refuses a directory that holds another run, data whose tokens are not the pool's, and a
 * pool that asks for more than a pool may.
 */
#include "atom/pool/asks.h"
#include "atom/pool/run_inner.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/text/tokenizer.h"
#include "gossip/trust/seals.h"

#include <stdio.h>
#include <string.h>

/* Membership, by the ticket or from the disk. */
static atom_status enter(pool_run *r, const pool_host *box, const pool_join *join)
{
    char *place = pool_run_path(r, "");
    gsp_pool_host host;
    atom_status st;
    if (!place)
        return atom_fail_memory("a path", 256);
    ATOM_TRY_CLEAN(pool_host_place(box, place, &host));
    ATOM_TRY_CLEAN(gsp_pool_check_rights(place));
    if (!join->ticket && !gsp_pool_exists(place))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE,
                                 "%s holds no pool to come back to; to join one, give its "
                                 "ticket: atom pool join TICKET -o %s",
                                 r->dir, r->dir));
    if (!gsp_pool_exists(place))
        ATOM_TRY_CLEAN(pool_run_check_unused(r));
    if (join->ticket)
        ATOM_TRY_CLEAN(gsp_pool_join(&host, join->ticket, join->patience_s, r->hooks.watch,
                                     r->hooks.ctx, &r->life));
    else
        ATOM_TRY_CLEAN(gsp_pool_open(&host, &r->life));
    if (box) /* it is a member: only now is there something to come back to */
        ATOM_TRY_CLEAN(pool_host_keep(r->dir, box));
cleanup:
    atom_free(place);
    return st;
}

/* How the pool is going, as far as the directory has told by now: it is for people alone. */
static atom_status say_directory(const pool_run *r)
{
    char text[GSP_HEARTBEATS_TEXT_BYTES];
    gsp_pool_status *s = atom_alloc(1, sizeof *s);
    if (!s)
        return atom_fail_memory("a status", sizeof *s);
    gsp_pool_read_status(r->life, s);
    if (*gsp_heartbeats_text(&s->directory, text))
        pool_note(&r->hooks, "pool: %s", text);
    atom_free(s);
    return ATOM_OK;
}

/* All that a pool asks, before one byte of its files is fetched. */
static atom_status check_manifest(pool_run *r, const pool_run_config *c)
{
    const gsp_manifest *m = gsp_pool_manifest(r->life);
    char *local = atom_path_join(r->dir, "local.yml");
    if (!local)
        return atom_fail_memory("a path", 256);
    /* Who was here before may have said where the data lies. */
    bool with_data = !pool_option_of(c->train, c->n_train, "data") && !atom_path_exists(local);
    atom_free(local);
    ATOM_TRY(pool_asks_files(m));
    ATOM_TRY(pool_asks_settings(m, &r->settings));
    return pool_run_check_manifest_disk(r, m, with_data);
}

static atom_status check_tokenizer(const pool_run *r, const char *path)
{
    text_tokenizer *ours = NULL, *theirs = NULL;
    char *own = atom_path_join(r->config.data, "tokenizer.json");
    atom_status st = ATOM_OK;
    if (!own)
        return atom_fail_memory("a path", 256);
    if (!path || !atom_path_exists(own))
        goto cleanup;
    ATOM_TRY_CLEAN(text_tokenizer_load(own, &ours));
    ATOM_TRY_CLEAN(text_tokenizer_load(path, &theirs));
    if (!text_tokenizer_equal(ours, theirs))
        st = atom_fail(ATOM_E_USAGE,
                       "%s was prepared with another tokenizer than the pool's; prepare it again "
                       "with --tokenizer %s",
                       r->config.data, path);
cleanup:
    text_tokenizer_close(&ours);
    text_tokenizer_close(&theirs);
    atom_free(own);
    return st;
}

static atom_status read_template(const char *path, char **text, uint64_t *bytes)
{
    *text = NULL;
    return path && atom_path_exists(path) ? atom_file_read(path, 1 << 21, text, bytes) : ATOM_OK;
}

/* Chats are made with one template, the pool's: whoever brings chats of another one, or brings chats
 * where the pool has none, would teach the model something else than the others. Texts have none. */
static atom_status check_template(const pool_run *r, const char *path)
{
    char *own = atom_path_join(r->config.data, "chat_template.jinja"), *ours = NULL, *theirs = NULL;
    uint64_t ours_n = 0, theirs_n = 0;
    atom_status st = ATOM_OK;
    if (!own)
        return atom_fail_memory("a path", 256);
    ATOM_TRY_CLEAN(read_template(own, &ours, &ours_n));
    ATOM_TRY_CLEAN(read_template(path, &theirs, &theirs_n));
    if (!ours || (theirs && ours_n == theirs_n && memcmp(ours, theirs, ours_n) == 0))
        goto cleanup;
    st = theirs ? atom_fail(ATOM_E_USAGE,
                            "the chats of %s were made with another chat template than the pool's; "
                            "prepare them again with a copy of %s beside their tokenizer.json",
                            r->config.data, path)
                : atom_fail(ATOM_E_USAGE,
                            "%s holds chats that were made with a chat template, but the pool has "
                            "none; only a pool whose creator has one can train on chats",
                            r->config.data);
cleanup:
    atom_free(own);
    atom_free(ours);
    atom_free(theirs);
    return st;
}

/* The small files that make a pool one of trainers. */
typedef struct small_files {
    char *run, *config, *buffers, *tokenizer, *template; /* paths; the last three may be NULL */
    char *run_text;
} small_files;

static atom_status fetch(pool_run *r, const char *name, char **path)
{
    if (!gsp_manifest_find(gsp_pool_manifest(r->life), name))
        return ATOM_OK;
    return gsp_pool_fetch(r->life, name, r->data.patience_s, r->hooks.watch, r->hooks.ctx, path);
}

static atom_status fetch_small(pool_run *r, small_files *s)
{
    uint64_t bytes;
    ATOM_TRY(fetch(r, "run.yml", &s->run));
    ATOM_TRY(fetch(r, "config.json", &s->config));
    ATOM_TRY(fetch(r, "buffers.safetensors", &s->buffers)); /* found beside config.json */
    ATOM_TRY(fetch(r, "tokenizer.json", &s->tokenizer));
    ATOM_TRY(fetch(r, "chat_template.jinja", &s->template));
    if (!s->run || !s->config)
        return atom_fail(ATOM_E_FORMAT, "the pool has no run.yml or no config.json, so it does "
                                        "not train a model");
    ATOM_TRY(pool_asks_config(s->config));
    return atom_file_read(s->run, OPT_FILE_BYTES_MAX, &s->run_text, &bytes);
}

static void free_small(small_files *s)
{
    atom_free(s->run);
    atom_free(s->config);
    atom_free(s->buffers);
    atom_free(s->tokenizer);
    atom_free(s->template);
    atom_free(s->run_text);
}

/* Which model: the pool's, with its weights; under adapters this host's own, which is what
 * local.yml says where it is not said now. *model: to be named, or NULL. */
static atom_status choose_model(const pool_run *r, const char *said, const char *fetched,
                                const char **model)
{
    char *local = atom_path_join(r->dir, "local.yml");
    bool known = local && atom_path_exists(local);
    atom_free(local);
    *model = r->settings.base_hash ? said : fetched;
    if (r->settings.base_hash && !said && !known)
        return atom_fail(ATOM_E_USAGE,
                         "this pool trains adapters (LoRA) for a model that you need to have; "
                         "name its directory with --model (the pool's run.yml and config.json "
                         "say which model it is)");
    if (!r->settings.base_hash && said)
        return atom_fail(ATOM_E_USAGE, "--model: this pool trains all weights, and the members "
                                       "send them; leave out the option");
    return ATOM_OK;
}

/* From the pool's run.yml, what was chosen here before, and what is said now. */
static atom_status configure(pool_run *r, const pool_run_config *c, const pool_join *join,
                             const small_files *small)
{
    enum { OPTIONS_MAX = 64 };
    pool_option options[OPTIONS_MAX + 2];
    const gsp_manifest *m = gsp_pool_manifest(r->life);
    const char *data = pool_option_of(c->train, c->n_train, "data"), *model;
    for (uint32_t i = 0; i < m->n_files; i++)
        r->data.named |= m->file[i].later;
    r->data.either = r->settings.data == POOL_DATA_EITHER;
    r->data.dir = atom_path_join(r->dir, "data");
    if (!r->data.dir)
        return atom_fail_memory("a path", 256);
    if (c->n_train > OPTIONS_MAX)
        return atom_fail(ATOM_E_USAGE, "at most %d options", OPTIONS_MAX);
    ATOM_TRY(choose_model(r, pool_option_of(c->train, c->n_train, "model"), small->config, &model));
    if (c->n_train)
        memcpy(options, c->train, c->n_train * sizeof *options);
    options[c->n_train] = (pool_option){"model", model};
    options[c->n_train + 1] = (pool_option){"resume_from_checkpoint", "auto"};
    ATOM_TRY(pool_run_configure(r, small->run, small->run_text, options, c->n_train + 2));
    ATOM_TRY(pool_dataset_choose(&r->data, r->life, r->config.data, join->own_data, !data));
    ATOM_TRY(check_tokenizer(r, small->tokenizer));
    return check_template(r, small->template);
}

static uint64_t floats_of(const gsp_manifest *m)
{
    uint64_t n = 0;
    for (uint32_t f = 0; f < m->n_fragments; f++)
        n += m->n_floats[f];
    return n;
}

/* Whoever comes to a run that has ended learns it before the data set is fetched, which it would need for
 * nothing. */
static atom_status check_end(const pool_run *r)
{
    static const double PATIENCE_S = 10;
    uint64_t last = (uint64_t)(r->settings.batch * r->settings.steps), samples;
    if (!r->data.fetch || last == 0)
        return ATOM_OK;
    ATOM_TRY(gsp_pool_ask_samples(r->life, PATIENCE_S, r->hooks.watch, r->hooks.ctx, &samples));
    if (samples < last)
        return ATOM_OK;
    return atom_fail(
        ATOM_E_RUNTIME,
        "the run of this pool has ended: step %lld of %lld was made, so there is nothing left to "
        "train, and its data set was not fetched. A member can give you the model that it writes "
        "with atom pool export; or join with --data and a copy of the data set, and the last "
        "weights are fetched from the members that are still there",
        (long long)r->settings.steps, (long long)r->settings.steps);
}

/* How long a step is, is the pool's to say; that it holds up this host's limits is worth knowing. */
static void say_step(const pool_run *r)
{
    static const double LONG_SECONDS = 300;
    double seconds = trainer_plan(r->t)->predicted_step_seconds;
    char text[POOL_FIGURE_BYTES];
    if (seconds > LONG_SECONDS)
        pool_note(&r->hooks,
                  "a step of this pool takes about %s here; pausing, leaving and the hours of "
                  "--hours take effect between two steps",
                  pool_seconds_text(seconds, text));
}

/* A host that was admitted and then failed has its place. Who tries again elsewhere takes another. */
static atom_status say_place(const pool_run *r, const pool_join *join, atom_status st)
{
    char why[512];
    if (!r || !r->life || !join->ticket || st == ATOM_OK || st == ATOM_E_INTERRUPTED)
        return st;
    snprintf(why, sizeof why, "%s", atom_fail_message());
    return atom_fail(st,
                     "%s. To try again, name %s again with -o: a host that joins from a new "
                     "directory takes another place of the ticket",
                     why, r->dir);
}

atom_status pool_run_join(const pool_run_config *config, const pool_join *join, pool_run **out)
{
    pool_run *r = NULL;
    small_files small = {0};
    char rate[POOL_FIGURE_BYTES], with[32] = "";
    atom_status st;
    ATOM_TRY_CLEAN(pool_run_begin(config, &r));
    r->data.patience_s = join->patience_s;
    r->came_back = !join->ticket;
    ATOM_TRY_CLEAN(pool_run_check_made(r));
    ATOM_TRY_CLEAN(enter(r, config->host, join));
    ATOM_TRY_CLEAN(say_directory(r));
    const gsp_manifest *m = gsp_pool_manifest(r->life);
    ATOM_TRY_CLEAN(check_manifest(r, config));
    ATOM_TRY_CLEAN(fetch_small(r, &small));
    ATOM_TRY_CLEAN(configure(r, config, join, &small));
    if (!pool_run_sums(
            r)) /* where gradients are summed, all have one order, and a place in it each */
        r->config.seed = (int64_t)pool_run_own_seed(r);
    ATOM_TRY_CLEAN(check_end(r));
    pool_run_say_mode(r, floats_of(m));
    ATOM_TRY_CLEAN(pool_run_check_disk_early(r, floats_of(m)));
    ATOM_TRY_CLEAN(pool_run_open_trainer(r));
    say_step(r);
    double samples = (double)(r->config.micro_batch_size * r->config.gradient_accumulation_steps);
    const part_plan *plan = trainer_plan(r->t);
    if (plan->devices > 1)
        snprintf(with, sizeof with, " with %u devices", plan->devices);
    pool_note(&r->hooks, "this host alone would train %s tokens/s%s",
              pool_count_text(samples * (double)m->tokens_per_sample / plan->predicted_step_seconds,
                              rate),
              with);
    *out = r;
    r = NULL;
cleanup:
    free_small(&small);
    st = say_place(r, join, st);
    pool_run_close(&r);
    return st;
}
