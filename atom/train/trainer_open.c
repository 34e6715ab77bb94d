/*
 * Owns everything before the first step and after the last: model, data, profile, plan, memory,
 * code, weights or checkpoint, outputs. One idea: refuse early, before anything expensive and
 * before anything is touched. Refuses to step.
 */
#include "atom/train/trainer_inner.h"

#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The data's tokenizer goes into checkpoints, also where it has the model's tokens but other steps or fewer tokens. */
static atom_status check_tokenizers(trainer *t)
{
    const char *model = t->bench->model.dir, *data = t->config->data;
    bool alike = true;
    ATOM_TRY(plan_vocab_check(model, data, &alike));
    if (!alike)
        trainer_note(t,
                     "note: %s/tokenizer.json differs from that of %s, with the same tokens; "
                     "checkpoints get the data's, and not the model's tokenizer_config.json and "
                     "chat template",
                     data, model);
    return ATOM_OK;
}

static atom_status open_model(trainer *t)
{
    const train_config *c = t->config;
    if (trainer_is_shared(t) && c->moments_dtype == ATOM_BF16)
        return atom_fail(ATOM_E_USAGE,
                         "moments_dtype: with sync: gradients or dense_steps the pool itself "
                         "keeps the moments, in fp32; leave moments_dtype out");
    plan_workbench_config bench = {.model = c->model,
                                   .micro_batch = c->micro_batch_size,
                                   .sequence = c->sequence_len,
                                   .dtype = c->dtype,
                                   .moments = (atom_dtype)c->moments_dtype,
                                   .optimizer = (graph_optimizer)c->optimizer,
                                   .device = c->device,
                                   .devices = c->devices,
                                   .dropout = c->dropout,
                                   .vocab_size = t->vocab.padded,
                                   .threads = c->threads,
                                   .link_bandwidth = c->link_bandwidth,
                                   .adapter = c->adapter,
                                   .trains = true,
                                   .lora = c->lora,
                                   .compress_boundaries =
                                       t->compress_boundaries[0] ? t->compress_boundaries : NULL,
                                   .compress_at = t->compress_at[0] ? t->compress_at : NULL};
    ATOM_TRY(plan_workbench_open(&bench, &t->bench));
    if (c->devices > 1 && t->bench->card < 0 && !c->device_memory && !c->plan)
        return atom_fail(ATOM_E_USAGE,
                         "devices: without device_memory the CPU uses the weights in place and "
                         "is one device; set device_memory, or leave devices out");
    if (t->vocab.tokens && t->bench->model.config.vocab_size < (int64_t)t->vocab.tokens)
        return atom_fail(ATOM_E_USAGE,
                         "the tokenizer of %s has %u tokens, but the model only %lld; prepare "
                         "the data with the model's tokenizer, or raise vocab_size in its "
                         "config.json",
                         c->data, t->vocab.tokens, (long long)t->bench->model.config.vocab_size);
    if (c->init == TRAIN_INIT_RANDOM || !t->bench->model.has_weights)
        return ATOM_OK;
    return check_tokenizers(t);
}

static atom_status open_data(trainer *t)
{
    const train_config *c = t->config;
    uint32_t vocab = (uint32_t)t->bench->model.config.vocab_size;
    uint32_t T = (uint32_t)t->bench->g->sequence;
    ATOM_TRY(text_shards_open(c->data, TEXT_TRAIN, vocab, &t->train));
    text_shards_warn(t->train);
    ATOM_TRY(text_shards_verify(t->train, false));
    ATOM_TRY(text_sampler_make(t->train, T, (uint64_t)c->seed, &t->sampler));
    const uint64_t rest = text_shards_rest(t->train, T);
    if (rest)
        trainer_note(t,
                     "note: the last %" PRIu64 " of %" PRIu64 " tokens do not fill a sequence of "
                     "%u and are never learned; a sequence_len of N leaves out fewer than N",
                     rest, text_shards_tokens(t->train), T);
    if (c->eval_steps > 0) {
        if (!text_shards_exist(c->data, TEXT_VAL)) {
            trainer_note(t, "note: %s has no validation split%s; eval_steps is ignored", c->data,
                         text_shards_counted(c->data, TEXT_VAL)
                             ? ", although its dataset.json counts one: copy val_*.bin, too"
                             : "");
            return ATOM_OK;
        }
        ATOM_TRY(text_shards_open(c->data, TEXT_VAL, vocab, &t->val));
        text_shards_warn(t->val);
        ATOM_TRY(text_shards_verify(t->val, false));
        if (text_shards_windows(t->val, T) == 0) {
            trainer_note(
                t,
                "note: the validation split is shorter than one window of %u tokens; eval_steps is "
                "ignored",
                T);
            text_shards_close(&t->val);
        }
    }
    return ATOM_OK;
}

/* What was asked for and this run does not use, or will miss. */
static void note_idle(trainer *t)
{
    const train_config *c = t->config;
    const struct {
        const char *key;
        bool set;
    } keys[] = {{"store_dir", c->store_dir != NULL},
                {"store", c->store != STORE_AUTO},
                {"update_ahead", c->update_ahead != TRAIN_AHEAD_AUTO}};
    for (size_t i = 0; !t->plan->disk && i < sizeof keys / sizeof *keys; i++)
        if (keys[i].set)
            trainer_note(t, "note: %s is not used, because the optimizer's state fits in memory%s",
                         keys[i].key,
                         c->plan ? "" : "; use optimizer_state: disk to put it on disk");
    if (c->link_bandwidth && t->plan->in_place)
        trainer_note(t, "note: link_bandwidth has no effect, because without device_memory the CPU "
                        "uses the weights in place and nothing is copied");
    if (c->recompute != PLAN_RECOMPUTE_FREE && t->plan->n_sub_models == 1)
        trainer_note(t, "note: recompute has no effect, because the whole model is one sub-model, "
                        "whose backward pass follows its forward pass");
    char *models = atom_path_join(t->bench->model.dir ? t->bench->model.dir : "", "tokenizer.json");
    if (!t->vocab.tokens && models && !(t->bench->model.dir && atom_path_exists(models)))
        trainer_note(t,
                     "warning: %s has no tokenizer.json, so the checkpoints will have none "
                     "either, but generate and chat need one; copy the one that the data was "
                     "made with into %s",
                     c->data, c->data);
    atom_free(models);
}

static atom_status choose_packing(trainer *t)
{
    const train_config *c = t->config;
    bool can = t->bench->table->can & KRN_CAN_APART, wanted = c->preset == TRAIN_SFT;
    if (c->packing == TRAIN_PACKING_APART && t->vocab.start < 0)
        return atom_fail(ATOM_E_USAGE,
                         "packing: 'apart' needs tokenizer.json in %s, to know where documents "
                         "begin; copy it there, or use packing: across",
                         c->data);
    t->apart = c->packing == TRAIN_PACKING_APART ||
               (c->packing == TRAIN_PACKING_AUTO && wanted && t->vocab.start >= 0 && can);
    if (c->packing == TRAIN_PACKING_AUTO && wanted && !t->apart)
        trainer_note(t, "packing is 'across', because %s",
                     can ? "the data has no tokenizer.json"
                         : "this device does not support 'apart' yet");
    if (c->packing == TRAIN_PACKING_AUTO && !wanted && text_shards_masked(t->train))
        trainer_note(t, "note: the data are chats or padded, and those that share a sequence will "
                        "see each other; --packing apart (or --preset sft) keeps them apart, "
                        "--packing across leaves it so without this note");
    return ATOM_OK;
}

/* Sequences are cut from the data as it lies. Of some of them: how many documents begin there, and how
 * many were cut by their beginnings? */
static atom_status note_cuts(const trainer *t)
{
    enum { LOOKED_AT = 256 };
    const uint32_t T = (uint32_t)t->bench->g->sequence, start = (uint32_t)t->vocab.start;
    const uint64_t windows = text_shards_windows(t->train, T);
    const uint64_t n = windows < LOOKED_AT ? windows : LOOKED_AT;
    uint64_t begun = 0, cut = 0;
    int32_t *tokens = atom_alloc(T, sizeof *tokens);
    uint8_t *begins = atom_alloc(T, 1);
    atom_status st = ATOM_OK;
    if (!tokens || !begins)
        ATOM_TRY_CLEAN(atom_fail_memory("a sequence", T * sizeof *tokens));
    for (uint64_t i = 0; t->apart && i < n; i++) {
        uint64_t first = windows / n * i * T;
        ATOM_TRY_CLEAN(text_shards_read(t->train, first, T, tokens));
        text_shards_begins(t->train, first, T, tokens, start, begins);
        cut += !begins[0];
        for (uint32_t k = 0; k < T; k++)
            begun += begins[k];
    }
    const uint32_t packed = text_shards_packed(t->train);
    if (packed && T % packed)
        trainer_note(
            t,
            "note: the data were packed into sequences of %u tokens, but sequence_len is %u, "
            "which cuts them elsewhere; use a multiple of %u, or prepare the data again",
            packed, T, packed);
    double share = begun > cut ? 100 * (double)cut / (double)begun : 100;
    if (cut && share >= 1)
        trainer_note(
            t,
            "about %.0f %% of the documents are cut by the end of a sequence of %u tokens, "
            "and what is behind the cut is learned without what stands before it; a larger "
            "sequence_len cuts fewer, and 'atom data prepare --sequence-len %u' cuts only those "
            "that are longer",
            share, T, T);
cleanup:
    atom_free(tokens);
    atom_free(begins);
    return st;
}

/* One run at a time writes output_dir. A directory that is not there yet is locked once it is. */
static atom_status lock_output(trainer *t)
{
    const char *dir = t->config->output_dir;
    int64_t pid;
    if (t->config->dry_run || t->lock_fd >= 0 || !atom_path_is_dir(dir))
        return ATOM_OK;
    ATOM_TRY(atom_dir_lock(dir, &t->lock_fd, &pid));
    if (t->lock_fd < 0 && pid)
        return atom_fail(ATOM_E_USAGE,
                         "output_dir %s: another run (process %" PRId64 ") is writing there; "
                         "choose another output_dir, or stop that run first (kill %" PRId64 ")",
                         dir, pid, pid);
    if (t->lock_fd < 0)
        return atom_fail(ATOM_E_USAGE,
                         "output_dir %s: another run is writing there; choose another "
                         "output_dir, or stop that run first",
                         dir);
    return ATOM_OK;
}

/* Random weights only where they were asked for: a directory is named for the weights in it. */
static atom_status check_start(const trainer *t)
{
    const file_model *m = &t->bench->model;
    if (m->kind != FILE_MODEL_DIR || m->has_weights || t->config->init == TRAIN_INIT_RANDOM ||
        t->bench->base)
        return ATOM_OK;
    return file_weights_missing(m->dir, "to start from random weights, say so with --init random");
}

static atom_status load(const char *resume, train_checkpoint *c)
{
    char why[768];
    atom_status st = train_checkpoint_load(resume, c);
    if (st != ATOM_E_FORMAT)
        return st;
    snprintf(why, sizeof why, "%s", atom_fail_message());
    return atom_fail(st, "%s. To go on from an older checkpoint, move %s away", why, resume);
}

static atom_status read_model(const trainer *t, file_vector master)
{
    const char *dir = t->bench->model.dir;
    if (!t->bench->model.has_weights || t->bench->base || t->config->init == TRAIN_INIT_RANDOM)
        return ATOM_OK;
    return t->bench->boundaries.added ? trainer_boundaries_read(t, dir, master)
                                      : file_weights_read_to(dir, t->bench->g, master);
}

static atom_status leave(void *ctx, uint64_t first, uint64_t n, const float *from)
{
    (void)ctx, (void)first, (void)n, (void)from;
    return ATOM_OK;
}

/* A state on disk is all that its run can go on from, so what is to take its place is read once before:
 * if it is damaged, nothing is lost. */
static atom_status try_start(trainer *t, const char *resume)
{
    const file_vector nowhere = {.put = leave};
    const bool writes = t->plan->disk || trainer_replaces_run(t->config);
    if (t->config->dry_run || !writes || !trainer_disk_left(t))
        return ATOM_OK;
    if (!resume)
        return read_model(t, nowhere);
    train_checkpoint c = trainer_checkpoint(t);
    c.master = c.m = c.v = nowhere;
    return load(resume, &c);
}

static atom_status open_engine(trainer *t, const char *resume)
{
    const train_config *c = t->config;
    train_engine_config config = {.bench = t->bench,
                                  .plan = t->plan,
                                  .profile = t->profile,
                                  .execute = c->execute,
                                  .adam_beta1 = c->adam_beta1,
                                  .adam_beta2 = c->adam_beta2,
                                  .adam_epsilon = c->adam_epsilon,
                                  .weight_decay = c->weight_decay,
                                  .max_grad_norm = c->max_grad_norm,
                                  .muon_momentum = c->muon_momentum,
                                  .seed = (uint64_t)c->seed,
                                  .apart = t->apart,
                                  .store_kind = (store_kind)c->store,
                                  .update_ahead = (train_update_ahead)c->update_ahead,
                                  .before_commit = trainer_before_commit,
                                  .on_updates = trainer_on_updates,
                                  .on_block = trainer_on_block,
                                  .spare_bytes =
                                      part_spare_bytes(t->plan, t->bench->g->trained_extent),
                                  .ctx = t};
    char *path = NULL;
    atom_status st;
    if (!c->dry_run)
        ATOM_TRY_CLEAN(atom_dir_make(c->output_dir));
    ATOM_TRY_CLEAN(lock_output(t));
    if (t->plan->disk && !c->dry_run) {
        ATOM_TRY_CLEAN(atom_dir_make(trainer_store_dir(t)));
        ATOM_TRY_CLEAN(trainer_store_claim(t));
        ATOM_TRY_CLEAN(trainer_store_path(t, &path));
        config.store = path;
    }
    ATOM_TRY_CLEAN(try_start(t, resume));
    if (c->trace && !c->dry_run)
        ATOM_TRY_CLEAN(swap_trace_open(c->trace, t->plan->devices, &t->trace));
    if (trainer_replaces_run(c))
        trainer_store_replace(t);
    ATOM_TRY_CLEAN(train_engine_open(&config, &t->engine));
    if (t->engine->why[0])
        trainer_note(t, "execute: interpreted (%s)", t->engine->why);
    trainer_disk_note(t);
    ATOM_TRY_CLEAN(trainer_disk_ahead(t));
cleanup:
    atom_free(path);
    return st;
}

/* From a checkpoint, a model directory or random numbers, in place of what is there. */
static atom_status fill_weights(trainer *t, const char *resume)
{
    file_vector master = train_engine_vector(t->engine, SWAP_STATE_MASTER);
    master.odd = &t->odd;
    ATOM_TRY(train_engine_replace(t->engine));
    if (resume) {
        train_checkpoint c = trainer_checkpoint(t);
        ATOM_TRY(load(resume, &c));
        t->state = c.state;
        if (c.moments != t->bench->g->moments)
            trainer_note(t,
                         "resume: the checkpoint's moments are %s, but from now on they are kept "
                         "in %s (moments_dtype), so the result will not be bit for bit that of "
                         "an uninterrupted run",
                         atom_dtype_name(c.moments), atom_dtype_name(t->bench->g->moments));
        return ATOM_OK;
    }
    ATOM_TRY(check_start(t));
    ATOM_TRY(train_engine_init(t->engine, (uint64_t)t->config->seed));
    ATOM_TRY(trainer_lora_start(t));
    return read_model(t, master);
}

/* Is there a step to make behind t->state? A run that ended has a checkpoint of its last step; one that was
 * killed before it had comes to its end now, from the newer state on disk. */
static atom_status check_steps(const trainer *t, const char *from, bool on_disk)
{
    const int64_t step = t->state.step, last = t->config->max_steps;
    const bool ends = on_disk && step == last;
    if (t->hooks.seam)
        return ATOM_OK;
    ATOM_TRY(trainer_resume_epochs(t, from, ends));
    if (step < last || ends)
        return ATOM_OK;
    if (on_disk)
        return atom_fail(ATOM_E_USAGE,
                         "the optimizer's state on disk is at step %" PRId64 " and max_steps is "
                         "%" PRId64 "; --max-steps %" PRId64 " saves it as a checkpoint, and a "
                         "larger max_steps continues training",
                         step, last, step);
    return atom_fail(ATOM_E_USAGE,
                     "the checkpoint is at step %" PRId64 " and max_steps is %" PRId64 "; "
                     "raise max_steps to continue training",
                     step, last);
}

/* Before its weights take the place of what is there. path: NULL where the run begins. */
static atom_status check_checkpoint(trainer *t, const char *path)
{
    const train_state begun = t->state;
    char *state = path ? atom_path_join(path, "atom_state.json") : NULL;
    atom_status st = ATOM_OK;
    if (state && atom_path_exists(state) && train_state_read(state, &t->state) == ATOM_OK)
        st = check_steps(t, path, false); /* else loading says what is wrong with it */
    if (st != ATOM_OK && t->state.step >= t->config->max_steps)
        trainer_disk_ended(t);
    t->state = begun;
    atom_free(state);
    return st;
}

static atom_status load_weights(trainer *t)
{
    char *resume = NULL, *described = NULL;
    atom_status st;
    if (t->plan->disk && t->config->dry_run)
        return ATOM_OK; /* nothing steps, and there is no place for weights */
    ATOM_TRY_CLEAN(trainer_start_find(t, &resume));
    ATOM_TRY_CLEAN(trainer_lora_resume(t, resume));
    ATOM_TRY_CLEAN(trainer_resume_check(t, resume));
    bool on_disk = trainer_disk_resume(t, resume), fresh = !on_disk && !resume;
    t->from_disk = on_disk;
    if (on_disk && !resume) {
        described = trainer_disk_model(t);
        ATOM_TRY_CLEAN(trainer_lora_resume(t, described));
        ATOM_TRY_CLEAN(trainer_resume_check(t, described));
    }
    ATOM_TRY_CLEAN(on_disk ? check_steps(t, trainer_store_dir(t), true)
                           : check_checkpoint(t, resume));
    if (on_disk) {
        trainer_resume_note(t);
        trainer_note(t, "resumed from the optimizer's state on disk (step %" PRId64 ")",
                     t->state.step);
    } else {
        ATOM_TRY_CLEAN(fill_weights(t, resume));
        if (resume) {
            trainer_resume_note(t);
            trainer_note(t, "resumed from %s (step %" PRId64 ")", resume, t->state.step);
            ATOM_TRY_CLEAN(trainer_seam_resume(t, resume));
        }
    }
    ATOM_TRY_CLEAN(trainer_lora_base(t, fresh));
    ATOM_TRY_CLEAN(train_engine_sync(t->engine));
    ATOM_TRY_CLEAN(trainer_disk_describe(t));
cleanup:
    atom_free(described);
    atom_free(resume);
    return st;
}

static atom_status open_outputs(trainer *t)
{
    atom_status st;
    char *path = atom_path_join(t->config->output_dir, "metrics.jsonl");
    if (!path)
        return atom_fail_memory("a path", 256);
    ATOM_TRY_CLEAN(train_metrics_open(path, t->state.step, &t->metrics));
    if (t->config->report_to == TRAIN_REPORT_TENSORBOARD)
        ATOM_TRY_CLEAN(train_events_open(t->config->output_dir, &t->events));
cleanup:
    atom_free(path);
    return st;
}

static atom_status remove_old_run(const train_config *c)
{
    atom_status st = ATOM_OK;
    char *path = NULL;
    if (!trainer_replaces_run(c))
        return ATOM_OK;
    for (;;) {
        ATOM_TRY_CLEAN(train_checkpoint_newest(c->output_dir, &path));
        if (!path)
            return ATOM_OK;
        ATOM_TRY_CLEAN(atom_dir_remove(path));
        atom_free(path);
        path = NULL;
    }
cleanup:
    atom_free(path);
    return st;
}

static atom_status check_config(const train_config *c)
{
    if (!c->data)
        return atom_fail(ATOM_E_USAGE,
                         "data is missing; name a directory made by `atom data prepare`");
    if (!c->output_dir)
        return atom_fail(ATOM_E_USAGE,
                         "output_dir is missing; name a directory for the checkpoints");
    return train_config_check(c);
}

/* What a run in which others take part cannot do. */
static atom_status check_seam(const trainer *t)
{
    const train_config *c = t->config;
    if (trainer_stays_in_memory(t) && c->optimizer_state == PLAN_STATE_ON_DISK)
        return atom_fail(
            ATOM_E_USAGE,
            "optimizer_state: in a pool with dense_steps it stays in memory; leave the key out, "
            "or create a pool without dense_steps, where it may be on disk");
    if (t->hooks.seam && c->update_ahead == TRAIN_AHEAD_ALWAYS)
        return atom_fail(ATOM_E_USAGE, "update_ahead: in a pool no update runs ahead of the clip "
                                       "factor; leave the key out");
    return ATOM_OK;
}

atom_status trainer_open(const train_config *config, const train_hooks *hooks, trainer **out)
{
    atom_status st;
    char *resume = NULL;
    trainer *t = atom_alloc(1, sizeof *t);
    if (!t)
        return atom_fail_memory("the trainer", sizeof *t);
    t->config = config;
    if (hooks)
        t->hooks = *hooks;
    t->state.loss = (double)NAN;
    t->lock_fd = -1;
    ATOM_TRY_CLEAN(check_config(config));
    ATOM_TRY_CLEAN(check_seam(t));
    ATOM_TRY_CLEAN(lock_output(t));
    ATOM_TRY_CLEAN(trainer_start_find(t, &resume)); /* refuse before the expensive part */
    if (config->trace && !config->dry_run)
        ATOM_TRY_CLEAN(atom_file_check_place(config->trace, "\"traceEvents\"", "a trace"));
    ATOM_TRY_CLEAN(trainer_boundaries_choose(t, resume));
    ATOM_TRY_CLEAN(plan_vocab_read(config->data, &t->vocab));
    ATOM_TRY_CLEAN(open_model(t));
    if (!config->resume_from_checkpoint || strcmp(config->resume_from_checkpoint, "none") == 0)
        ATOM_TRY_CLEAN(check_start(t)); /* else what it goes on from is known later */
    ATOM_TRY_CLEAN(trainer_lora_check(t));
    ATOM_TRY_CLEAN(trainer_muon_check(t));
    trainer_lora_note(t);
    trainer_boundaries_note(t);
    if (t->hooks.data) { /* a lack of memory shows before a long download */
        ATOM_TRY_CLEAN(trainer_open_plan(t));
        ATOM_TRY_CLEAN(t->hooks.data(t->hooks.ctx, t));
    }
    ATOM_TRY_CLEAN(open_data(t));
    ATOM_TRY_CLEAN(choose_packing(t));
    ATOM_TRY_CLEAN(note_cuts(t));
    if (!t->plan)
        ATOM_TRY_CLEAN(trainer_open_plan(t));
    note_idle(t);
    ATOM_TRY_CLEAN(open_engine(t, resume));
    ATOM_TRY_CLEAN(load_weights(t));
    if (!config->dry_run) {
        ATOM_TRY_CLEAN(remove_old_run(config));
        ATOM_TRY_CLEAN(open_outputs(t));
        trainer_note_room(t);
    }
    t->schedule = train_schedule_make(config);
    t->first_step = t->state.step + 1;
    atom_free(resume);
    *out = t;
    return ATOM_OK;
cleanup:
    atom_free(resume);
    trainer_disk_refused(t);
    trainer_close(&t);
    return st;
}

void trainer_close(trainer **t_ref)
{
    trainer *t = *t_ref;
    if (!t)
        return;
    if (t->trace && swap_trace_close(&t->trace) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    if (trainer_snapshot_finish(t) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    train_metrics_close(&t->metrics);
    train_events_close(&t->events);
    train_engine_close(&t->engine);
    part_plan_close(&t->plan);
    part_profile_close(&t->profile);
    text_shards_close(&t->train);
    text_shards_close(&t->val);
    plan_workbench_close(&t->bench);
    if (t->lock_fd >= 0)
        close(t->lock_fd);
    atom_free(t->step_seconds);
    atom_free(t->marks);
    atom_free(t->compress_boundaries);
    atom_free(t->compress_at);
    atom_free(t->summary.checkpoint);
    atom_free(t);
    *t_ref = NULL;
}
