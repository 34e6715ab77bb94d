/*
 * Owns what can be said of a run without changing it: to people, to whoever takes part, and to a
 * checkpoint. One idea: the trainer's other files ask here and not each other. Refuses to step.
 */
#include "atom/train/trainer_inner.h"

#include <stdarg.h>
#include <stdio.h>

void trainer_note(const trainer *t, const char *fmt, ...)
{
    char text[1200];
    va_list args;
    if (!t->hooks.note)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    t->hooks.note(t->hooks.ctx, text);
}

bool trainer_is_shared(const trainer *t)
{
    return t->hooks.seam && t->hooks.seam->shared;
}

atom_status trainer_muon_check(const trainer *t)
{
    const graph *g = t->bench->g;
    uint64_t matrices = graph_matrix_elements(g);
    if (g->optimizer != GRAPH_MUON)
        return ATOM_OK;
    if (!matrices)
        return atom_fail(ATOM_E_USAGE, "optimizer: this model has no hidden linear layers for "
                                       "muon to train; use optimizer: adamw");
    trainer_note(t, "Muon trains %llu of %llu parameters, AdamW the others",
                 (unsigned long long)matrices, (unsigned long long)g->trained_elements);
    return ATOM_OK;
}

void trainer_fill_state(const trainer *t, train_state *state)
{
    const train_config *c = t->config;
    const graph *g = t->bench->g;
    state->seed = (uint64_t)t->config->seed;
    state->data_hash = text_shards_hash(t->train);
    state->data_contents = text_shards_contents(t->train);
    state->micro_batch = g->micro_batch;
    state->sequence = g->sequence;
    state->micro_batches = t->plan->micro_batches;
    state->max_steps = c->max_steps;
    state->learning_rate = c->learning_rate;
    state->weight_decay = c->weight_decay;
    state->max_grad_norm = c->max_grad_norm;
    state->adam_beta1 = c->adam_beta1;
    state->adam_beta2 = c->adam_beta2;
    state->adam_epsilon = c->adam_epsilon;
    state->muon_momentum = c->muon_momentum;
    state->warmup_steps = (double)train_config_warmup(c);
    state->min_lr_ratio = train_config_min_lr_ratio(c);
    state->decay_ratio = c->decay_ratio;
    state->embd_pdrop = (double)t->bench->model.config.embd_pdrop;
    state->attn_pdrop = (double)t->bench->model.config.attn_pdrop;
    state->resid_pdrop = (double)t->bench->model.config.resid_pdrop;
    snprintf(state->lr_scheduler, sizeof state->lr_scheduler, "%s", train_config_scheduler(c));
    snprintf(state->optimizer, sizeof state->optimizer, "%s", train_config_optimizer(c));
    snprintf(state->dtype, sizeof state->dtype, "%s", atom_dtype_name(g->dtype));
    snprintf(state->packing, sizeof state->packing, "%s", t->apart ? "apart" : "across");
    snprintf(state->compress_boundaries, sizeof state->compress_boundaries, "%s",
             t->bench->boundaries.text);
    snprintf(state->at, sizeof state->at, "%s", t->bench->boundaries.at);
}

train_checkpoint trainer_checkpoint(trainer *t)
{
    train_checkpoint c = {.g = t->bench->g,
                          .config = &t->bench->model.config,
                          .source = t->bench->model.source,
                          .data = t->config->data,
                          .model_dir = t->bench->model.dir,
                          .ends = {t->vocab.start, t->vocab.end},
                          .dtype = t->bench->base ? ATOM_F32 : (atom_dtype)t->config->save_dtype,
                          .base = t->bench->base,
                          .lora = &t->bench->lora,
                          .state = t->state};
    if (t->engine) {
        c.master = train_engine_vector(t->engine, SWAP_STATE_MASTER);
        c.m = train_engine_vector(t->engine, SWAP_STATE_M);
        c.v = train_engine_vector(t->engine, SWAP_STATE_V);
    }
    return c;
}

const char *trainer_plan_origin(const trainer *t)
{
    return t->plan_origin ? t->plan_origin : "";
}

const train_config *trainer_config(const trainer *t)
{
    return t->config;
}

const plan_workbench *trainer_workbench(const trainer *t)
{
    return t->bench;
}

const part_plan *trainer_plan(const trainer *t)
{
    return t->plan;
}

const gen_lowered *trainer_lowered(const trainer *t)
{
    return t->engine->low;
}

const part_profile *trainer_profile(const trainer *t)
{
    return t->profile;
}

file_vector trainer_weights(trainer *t)
{
    return train_engine_vector(t->engine, SWAP_STATE_MASTER);
}

uint64_t trainer_floats(const trainer *t)
{
    return t->bench->g->trained_extent; /* what is frozen is equal everywhere */
}

atom_status trainer_weights_changed(trainer *t)
{
    return train_engine_sync(t->engine);
}

atom_status trainer_describe(const trainer *t, const char *dir)
{
    const file_model *m = &t->bench->model;
    const file_ends ends = {t->vocab.start, t->vocab.end};
    ATOM_TRY(file_config_write(dir, &m->config, m->source, &ends));
    return file_buffers_write(dir, &m->config);
}

uint64_t trainer_checkpoint_bytes(const trainer *t)
{
    const train_checkpoint c = {.g = t->bench->g,
                                .dtype =
                                    t->bench->base ? ATOM_F32 : (atom_dtype)t->config->save_dtype,
                                .base = t->bench->base}; /* there may be no engine yet */
    return train_checkpoint_bytes(&c);
}

bool trainer_is_saving(const trainer *t)
{
    return t->snapshot != NULL;
}

trainer_place trainer_where(const trainer *t)
{
    return (trainer_place){.step = t->state.step,
                           .samples = (uint64_t)t->state.samples,
                           .tokens = (uint64_t)t->state.tokens_seen,
                           .sequence = (uint64_t)t->bench->g->sequence,
                           .data_hash = text_shards_hash(t->train),
                           .data_contents = text_shards_contents(t->train),
                           .marks = t->marks};
}
