/*
 * Owns what a run goes on from: whether a checkpoint belongs to this run, and what changes from here. One
 * idea: what would make another model of it is refused, and what else is different is said.
 */
#include "atom/train/trainer_inner.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- is it a checkpoint of this model? ---- */

/* The first key that has another value in the checkpoint. */
static atom_status compare(const char *path, const json_t *theirs, const json_t *ours)
{
    const char *key;
    json_t *value;
    atom_status st = ATOM_OK;
    const bool weights = file_weights_exist(path); /* else it only describes a state on disk */
    json_object_foreach((json_t *)(uintptr_t)ours, key, value)
    {
        const json_t *other = json_object_get(theirs, key);
        if (st != ATOM_OK || json_equal(value, other))
            continue;
        char *is = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        char *was = other ? json_dumps(other, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
        st = atom_fail(ATOM_E_USAGE,
                       "%s is %s of another model: its %s is %s, but this run's is %s; name the "
                       "model that it was made with, or start a new run %s %s",
                       path, weights ? "a checkpoint" : "the state on disk", key,
                       was ? was : "not there", is ? is : "another",
                       weights ? "from it with --model" : "in another",
                       weights ? path : "output_dir");
        free(is);
        free(was);
    }
    return st;
}

/* The same of somebody's own model. */
static atom_status compare_own(const char *path, const graph_config *theirs,
                               const graph_config *ours)
{
    char where[GRAPH_WHERE_MAX] = "model_type";
    const bool weights = file_weights_exist(path);
    if (theirs->own)
        ATOM_TRY(graph_own_compare(theirs->own, ours->own, where));
    if (!where[0])
        return ATOM_OK;
    return atom_fail(ATOM_E_USAGE,
                     "%s is %s of another model: %s is not the same in this run's; name the model "
                     "that it was made with, or start a new run %s %s",
                     path, weights ? "a checkpoint" : "the state on disk", where,
                     weights ? "from it with --model" : "in another",
                     weights ? path : "output_dir");
}

static void note_number(const trainer *t, const char *key, double was, double is)
{
    if (isfinite(was) && fabs(was - is) > 0)
        trainer_note(t, "resume: %s is %g from here; it was %g", key, is, was);
}

/* Dropout may change from run to run. */
static void note_dropout(const trainer *t, graph_config *saved, const graph_config *config)
{
    const struct {
        const char *key;
        float *was;
        float is;
    } keys[] = {{"dropout of embeddings", &saved->embd_pdrop, config->embd_pdrop},
                {"dropout of attention", &saved->attn_pdrop, config->attn_pdrop},
                {"dropout of residuals", &saved->resid_pdrop, config->resid_pdrop}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        note_number(t, keys[i].key, (double)*keys[i].was, (double)keys[i].is);
        *keys[i].was = keys[i].is;
    }
}

static atom_status check_model(const trainer *t, const char *path)
{
    const graph_config *config = &t->bench->model.config;
    graph_config saved = {0};
    char *file = atom_path_join(path, "config.json"), *source = NULL, *was = NULL, *is = NULL;
    json_t *theirs = NULL, *ours = NULL;
    atom_status st;
    if (!file)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    if (!atom_path_exists(file))
        goto cleanup; /* loading says what is missing */
    ATOM_TRY_CLEAN(file_config_read(file, &saved, &source));
    if (config->own) {
        st = compare_own(path, &saved, config);
        goto cleanup;
    }
    memcpy(saved.name, config->name, sizeof saved.name);
    note_dropout(t, &saved, config);
    ATOM_TRY_CLEAN(file_config_text(&saved, NULL, NULL, &was));
    ATOM_TRY_CLEAN(file_config_text(config, NULL, NULL, &is));
    theirs = json_loads(was, 0, NULL);
    ours = json_loads(is, 0, NULL);
    st = compare(path, theirs, ours);
cleanup:
    json_decref(theirs);
    json_decref(ours);
    graph_config_free(&saved);
    atom_free(source);
    atom_free(was);
    atom_free(is);
    atom_free(file);
    return st;
}

/* Adapters that go on over other weights than they were learnt over. */
static void note_base(const trainer *t, const char *saved, const char *ours)
{
    char was[PATH_MAX], is[PATH_MAX];
    if (saved && ours && realpath(saved, was) && realpath(ours, is) && strcmp(was, is) != 0)
        trainer_note(t, "resume: the model under the adapters is %s from here; it was %s", is, was);
}

static atom_status check_lora(const trainer *t, const char *path)
{
    const file_lora *ours = &t->bench->lora;
    file_lora saved = {0};
    atom_status st = file_lora_read(path, &saved);
    bool same_rank = saved.rank == ours->rank; /* else loading says so */
    if (st == ATOM_OK && same_rank && !file_lora_alike(&saved, ours))
        st = atom_fail(ATOM_E_USAGE,
                       "%s was trained with lora_alpha %g%s%s, but this run has %g%s%s, which "
                       "would scale what was learned differently; give the same lora_alpha, "
                       "lora_alpha_pattern, use_rslora and use_dora",
                       path, saved.alpha, saved.rslora ? " and use_rslora" : "",
                       saved.dora ? " and use_dora" : "", ours->alpha,
                       ours->rslora ? " and use_rslora" : "", ours->dora ? " and use_dora" : "");
    if (st == ATOM_OK && !file_lora_saves_alike(&saved, ours))
        st = atom_fail(ATOM_E_USAGE,
                       "%s was trained with other lora_modules_to_save than this run has; give "
                       "those in its adapter_config.json",
                       path);
    if (st == ATOM_OK) {
        note_number(t, "lora_dropout", saved.dropout, ours->dropout);
        note_base(t, saved.base, ours->base);
    }
    file_lora_free(&saved);
    return st;
}

/* Names decide which checkpoint is the newest, and which ones are deleted. */
static atom_status check_name(const char *path, int64_t step)
{
    int64_t name = train_checkpoint_step(path);
    if (name < 0 || name == step)
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT,
                     "%s is called the checkpoint of step %" PRId64 ", but its atom_state.json "
                     "says step %" PRId64 "; if it was renamed or copied, call it "
                     "checkpoint-%" PRId64 " again, or anything without a number",
                     path, name, step, step);
}

/* Its step; and what one optimizer remembers means nothing to the other. Older checkpoints are
 * AdamW's. */
static atom_status check_state(const trainer *t, const char *path)
{
    const char *ours = train_config_optimizer(t->config);
    train_state saved = {0};
    char *file = atom_path_join(path, "atom_state.json");
    atom_status st;
    if (!file)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    if (!atom_path_exists(file))
        goto cleanup; /* loading says so */
    ATOM_TRY_CLEAN(train_state_read(file, &saved));
    ATOM_TRY_CLEAN(check_name(path, saved.step));
    const char *theirs = saved.optimizer[0] ? saved.optimizer : "adamw";
    if (strcmp(theirs, ours) != 0)
        st = atom_fail(ATOM_E_USAGE,
                       "%s was trained with optimizer: %s, but this run has %s, which cannot use "
                       "the other one's state; continue with --optimizer %s, or start a new run "
                       "from its weights with --model %s in another output_dir",
                       path, theirs, ours, theirs, path);
cleanup:
    atom_free(file);
    return st;
}

atom_status trainer_resume_check(const trainer *t, const char *path)
{
    if (!path || !atom_path_is_dir(path))
        return ATOM_OK; /* nothing to go on from, or loading says what is wrong */
    ATOM_TRY(check_state(t, path));
    ATOM_TRY(plan_vocab_check(path, t->config->data, NULL));
    if (file_lora_is_dir(path))
        return t->bench->base ? check_lora(t, path) : ATOM_OK;
    if (t->bench->base && file_weights_exist(path))
        return atom_fail(ATOM_E_USAGE,
                         "%s was trained whole, but this run trains adapters, which cannot "
                         "continue it; leave lora_r out, or start a new run of adapters for it "
                         "with --model %s in another output_dir",
                         path, path);
    return check_model(t, path);
}

static void note_word(const trainer *t, const char *key, const char *was, const char *is)
{
    if (was[0] && strcmp(was, is) != 0)
        trainer_note(t, "resume: %s is %s from here; it was %s", key, is, was);
}

/* Is it the data that the checkpoint saw? Where one of them does not say what its files contain, their
 * names and lengths are all that can be compared, which is said. */
static void note_data(const trainer *t, const train_state *was, const train_state *now)
{
    bool contents = was->data_contents && now->data_contents;
    if (was->data_hash != now->data_hash || (contents && was->data_contents != now->data_contents))
        trainer_note(t, "resume: the data set changed since the checkpoint");
    else if (!contents)
        trainer_note(
            t,
            "resume: only the names and lengths of the data set's files were compared with "
            "those that the checkpoint was trained on, not what they contain, because %s",
            now->data_contents ? "the checkpoint was made by an older atom"
                               : "they were made by an older atom or by another program");
}

/* The schedule of a state; false: the checkpoint is of an older atom, which did not write it. */
static bool schedule_of(const train_state *s, train_config *c)
{
    static const struct {
        const char *name;
        int32_t kind; /* train_scheduler */
    } kinds[] = {{"constant", TRAIN_CONSTANT},
                 {"linear", TRAIN_LINEAR},
                 {"cosine", TRAIN_COSINE},
                 {"wsd", TRAIN_WSD}};
    bool known = false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(s->lr_scheduler, kinds[i].name) != 0)
            continue;
        c->lr_scheduler = kinds[i].kind;
        known = true;
    }
    c->learning_rate = s->learning_rate;
    c->min_lr_ratio = s->min_lr_ratio;
    c->decay_ratio = s->decay_ratio;
    c->max_steps = s->max_steps;
    c->num_train_epochs = 0;
    if (!known || !isfinite(s->learning_rate + s->min_lr_ratio + s->decay_ratio + s->warmup_steps))
        return false;
    c->warmup_steps = (int64_t)s->warmup_steps;
    return true;
}

/* A run that is made longer or shorter moves along another curve, often with a jump. */
static void note_schedule(const trainer *t, const train_state *now)
{
    const train_state *was = &t->state;
    train_config before = *t->config;
    before.max_steps = was->max_steps;
    /* auto, as it was: what follows from max_steps or lr_scheduler is said of these */
    double warmup = (double)train_config_warmup(&before);
    if (t->config->warmup_steps >= 0 || fabs(was->warmup_steps - warmup) > 0)
        note_number(t, "warmup_steps", was->warmup_steps, now->warmup_steps);
    if (t->config->min_lr_ratio >= 0 || strcmp(was->lr_scheduler, now->lr_scheduler) == 0)
        note_number(t, "min_lr_ratio", was->min_lr_ratio, now->min_lr_ratio);
    if (t->config->lr_scheduler == TRAIN_WSD)
        note_number(t, "decay_ratio", was->decay_ratio, now->decay_ratio);
    if (t->hooks.seam || was->max_steps == now->max_steps || !schedule_of(was, &before))
        return;
    const train_schedule old = train_schedule_make(&before);
    const train_schedule new = train_schedule_make(t->config);
    double rate = train_schedule_rate(&new, was->step + 1);
    double expected = train_schedule_rate(&old, was->step + 1);
    if (fabs(rate - expected) > 1e-9 * expected)
        trainer_note(t,
                     "resume: max_steps is %" PRId64 " now and was %" PRId64 ", so step %" PRId64
                     " has the learning rate %.3g instead of %.3g",
                     now->max_steps, was->max_steps, was->step + 1, rate, expected);
}

/* Passes over the data up to the checkpoint, and what this run would add to them. */
atom_status trainer_resume_epochs(const trainer *t, const char *path, bool ends)
{
    const train_config *c = t->config;
    const train_state *s = &t->state;
    if (!path || t->hooks.seam || !(c->num_train_epochs > 0) || s->sequence <= 0)
        return ATOM_OK;
    double before = (double)text_shards_windows(t->train, (uint32_t)s->sequence);
    double windows = (double)text_shards_windows(t->train, (uint32_t)t->bench->g->sequence);
    double batch = (double)c->micro_batch_size * (double)c->gradient_accumulation_steps;
    double done = before > 0 ? (double)s->samples / before : 0;
    double rest = floor((c->num_train_epochs - done) * windows / batch + 1e-6);
    double would = done + (double)(c->max_steps - s->step) * batch / windows;
    if (rest < 1 && ends)
        return ATOM_OK;
    if (rest < 1)
        return atom_fail(ATOM_E_USAGE,
                         "num_train_epochs: the %" PRId64 " steps up to %s are already %.3g passes "
                         "over this data; raise num_train_epochs to continue training",
                         s->step, path, done);
    if (fabs(rest - (double)(c->max_steps - s->step)) <= 1)
        return ATOM_OK;
    return atom_fail(ATOM_E_USAGE,
                     "num_train_epochs: up to %s the batch or the data was another, so the run "
                     "would end after %.3g passes over the data instead of %g; give --max-steps "
                     "%.0f instead of num_train_epochs",
                     path, would, c->num_train_epochs, (double)s->step + rest);
}

/* Sequences are numbered by their length, so another length is another division of the data. */
static void note_shape(const trainer *t)
{
    const train_state *s = &t->state;
    const graph *g = t->bench->g;
    if (s->sequence != g->sequence)
        trainer_note(t,
                     "resume: sequence_len is %" PRId64 " from here; it was %" PRId64 ", so the "
                     "data is divided and ordered anew, and text may come again that was already "
                     "learned",
                     g->sequence, s->sequence);
    if (s->micro_batch != g->micro_batch || s->micro_batches != t->plan->micro_batches)
        trainer_note(t,
                     "resume: a step has %" PRId64 " x %u sequences from here (micro_batch_size x "
                     "gradient_accumulation_steps); it had %" PRId64 " x %" PRId64,
                     g->micro_batch, t->plan->micro_batches, s->micro_batch, s->micro_batches);
}

/* The newest checkpoint is the newest that is whole: of one behind it that is not, somebody should hear. */
static void note_passed_over(const trainer *t)
{
    const char *dir = t->config->output_dir;
    char *name = trainer_resumes_newest(t->config) ? train_checkpoint_foreign(dir) : NULL;
    char *path = name ? atom_path_join(dir, name) : NULL;
    if (path && train_checkpoint_step(path) > t->state.step)
        trainer_note(t, "resume: %s has no atom_state.json and is passed over", path);
    atom_free(path);
    atom_free(name);
}

void trainer_resume_note(const trainer *t)
{
    train_state now = t->state;
    trainer_fill_state(t, &now);
    note_passed_over(t);
    if (t->config->init == TRAIN_INIT_RANDOM)
        trainer_note(t, "resume: init: random is not used, because the run continues with the "
                        "weights that it has");
    note_number(t, "learning_rate", t->state.learning_rate, now.learning_rate);
    note_number(t, "weight_decay", t->state.weight_decay, now.weight_decay);
    note_number(t, "max_grad_norm", t->state.max_grad_norm, now.max_grad_norm);
    note_number(t, "adam_beta1", t->state.adam_beta1, now.adam_beta1);
    note_number(t, "adam_beta2", t->state.adam_beta2, now.adam_beta2);
    note_number(t, "adam_epsilon", t->state.adam_epsilon, now.adam_epsilon);
    note_number(t, "muon_momentum", t->state.muon_momentum, now.muon_momentum);
    if (t->bench->base) { /* else config.json says it */
        note_number(t, "dropout of embeddings", t->state.embd_pdrop, now.embd_pdrop);
        note_number(t, "dropout of attention", t->state.attn_pdrop, now.attn_pdrop);
        note_number(t, "dropout of residuals", t->state.resid_pdrop, now.resid_pdrop);
        if (!isfinite(t->state.resid_pdrop) && t->config->dropout >= 0)
            trainer_note(t,
                         "resume: dropout of the model under the adapters is %g from here; this "
                         "checkpoint of an older atom does not say what it was",
                         t->config->dropout);
    }
    note_word(t, "lr_scheduler", t->state.lr_scheduler, now.lr_scheduler);
    note_schedule(t, &now);
    note_word(t, "dtype", t->state.dtype, now.dtype);
    note_word(t, "packing", t->state.packing, now.packing);
    trainer_boundaries_changed(t, &now);
    const train_state *s = &t->state;
    if (s->seed != (uint64_t)t->config->seed)
        trainer_note(t,
                     "resume: the seed changed; from here on the order of the data and dropout are "
                     "different");
    note_data(t, s, &now);
    note_shape(t);
}
