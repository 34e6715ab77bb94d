/*
 * Owns the measuring of a saved model on a data set. One idea: it is the trainer's own evaluation:
 * the same graph, kernels and tape, over all windows of a split in their order, so that the number
 * is the one that training reports. Refuses to change the model.
 */
#include "atom/train/device.h"
#include "atom/train/trainer.h"

#include "atom/base/env.h"
#include "atom/base/mem.h"
#include "atom/text/dataset.h"
#include "atom/train/engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct evaluation {
    const train_eval_request *request;
    train_workbench *bench;
    text_shards *shards;
    part_profile *profile;
    part_plan *plan;
    train_engine *engine;
    uint64_t windows; /* to read */
} evaluation;

static atom_status open_model(evaluation *v)
{
    const train_eval_request *r = v->request;
    train_bench_config config = {.model = r->model,
                                 .micro_batch = r->micro_batch,
                                 .sequence = r->sequence,
                                 .dtype = r->dtype,
                                 .device = r->device,
                                 .dropout = 0,
                                 .threads = r->threads,
                                 .adapter = r->adapter};
    atom_status st = train_workbench_open(&config, &v->bench);
    if (st == ATOM_OK && !v->bench->model.has_weights)
        st = atom_fail(ATOM_E_USAGE,
                       "model '%s' has no weights to evaluate; name a checkpoint, a directory with "
                       "config.json and model.safetensors",
                       r->model);
    return st;
}

static atom_status open_data(evaluation *v)
{
    const train_eval_request *r = v->request;
    const graph *g = v->bench->g;
    text_split split = TEXT_VAL;
    atom_status st;
    if (r->split && strcmp(r->split, text_split_name(TEXT_TRAIN)) == 0)
        split = TEXT_TRAIN;
    else if (r->split && strcmp(r->split, text_split_name(TEXT_VAL)) != 0)
        return atom_fail(ATOM_E_USAGE, "split: '%s' is not a split; use val or train", r->split);
    if (r->batches < 0)
        return atom_fail(ATOM_E_USAGE, "batches must be 0 (all) or more");
    ATOM_TRY(
        text_shards_open(r->data, split, (uint32_t)v->bench->model.config.vocab_size, &v->shards));
    v->windows = text_shards_windows(v->shards, (uint32_t)g->sequence);
    if (v->windows == 0)
        return atom_fail(
            ATOM_E_FORMAT,
            "%s: the %s split has %llu tokens, fewer than one sequence of %lld and its "
            "last target; use a smaller sequence_len",
            r->data, text_split_name(split), (unsigned long long)text_shards_tokens(v->shards),
            (long long)g->sequence);
    if (r->batches > 0 && (uint64_t)r->batches * (uint64_t)g->micro_batch < v->windows)
        v->windows = (uint64_t)r->batches * (uint64_t)g->micro_batch;
fail:
    return st;
}

/* One sub-model, used where it lies. */
static atom_status plan_in_place(evaluation *v)
{
    const graph *g = v->bench->g;
    atom_status st = part_plan_open(g, v->profile, 1, &v->plan);
    if (st != ATOM_OK)
        return st;
    v->plan->micro_batches = 1;
    v->plan->in_place = true;
    v->plan->sub_models[0].last_node = (int32_t)g->n_nodes;
    v->plan->sub_models[0].param_bytes = g->param_extent * atom_dtype_bytes(g->dtype);
    return ATOM_OK;
}

static atom_status open_engine(evaluation *v)
{
    const train_eval_request *r = v->request;
    part_device device = train_device_guess(v->bench);
    train_plan_request search = {
        .device_memory = r->device_memory, .micro_batches = 1, .recompute = -1};
    train_engine_config config = {.bench = v->bench,
                                  .execute = TRAIN_EXECUTE_INTERPRETED,
                                  .adam_beta1 = 0.9,
                                  .adam_beta2 = 0.95,
                                  .adam_epsilon = 1e-8};
    atom_status st;
    ATOM_TRY(part_profile_model(v->bench->g, &device, &v->profile));
    if (r->device_memory == 0 && device.unified)
        ATOM_TRY(plan_in_place(v));
    else
        ATOM_TRY(
            train_plan_search(v->bench->g, v->profile, v->bench->table, &search, &v->plan, NULL));
    config.plan = v->plan;
    config.profile = v->profile;
    ATOM_TRY(train_engine_open(&config, &v->engine));
    ATOM_TRY(file_merged_read(&v->bench->model, v->bench->g,
                              train_engine_vector(v->engine, SWAP_STATE_MASTER)));
    ATOM_TRY(train_engine_sync(v->engine));
fail:
    return st;
}

/* Windows first .. first + count, the rest of the batch without targets. */
static atom_status fill_batch(evaluation *v, uint64_t first, uint32_t count)
{
    const graph *g = v->bench->g;
    uint64_t T = (uint64_t)g->sequence, all = (uint64_t)g->micro_batch * T;
    int32_t *tokens, *targets;
    train_engine_batch(v->engine, 0, &tokens, &targets);
    for (uint64_t i = count * T; i < all; i++) {
        tokens[i] = 0;
        targets[i] = -1;
    }
    return text_windows_read(v->shards, (uint32_t)T, first, count, tokens, targets);
}

static atom_status run(evaluation *v, double *loss, int64_t *tokens)
{
    uint64_t B = (uint64_t)v->bench->g->micro_batch;
    double sum = 0;
    int64_t count = 0;
    for (uint64_t first = 0; first < v->windows; first += B) {
        double part = 0;
        int64_t targets = 0;
        uint64_t n = v->windows - first < B ? v->windows - first : B;
        atom_status st = fill_batch(v, first, (uint32_t)n);
        if (st == ATOM_OK)
            st = train_engine_eval(v->engine, &part, &targets);
        if (st != ATOM_OK)
            return st;
        sum += part;
        count += targets;
    }
    if (count == 0)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: no token counts: masks take all targets out; prepare the data with "
                         "--loss all",
                         v->request->data);
    *loss = sum / (double)count;
    *tokens = count;
    if (!isfinite(sum))
        return atom_fail(ATOM_E_DIVERGED,
                         "%s: the loss is not finite; the weights are damaged or the training "
                         "diverged",
                         v->request->model);
    return ATOM_OK;
}

atom_status train_evaluate(const train_eval_request *request, train_eval_result *result)
{
    evaluation v = {.request = request};
    double loss = 0, begin;
    int64_t tokens = 0;
    atom_status st;
    ATOM_TRY(open_model(&v));
    ATOM_TRY(open_data(&v));
    ATOM_TRY(open_engine(&v));
    begin = atom_clock_seconds();
    ATOM_TRY(run(&v, &loss, &tokens));
    *result = (train_eval_result){
        .loss = loss, .tokens = tokens, .seconds = atom_clock_seconds() - begin};
fail:
    train_engine_close(&v.engine);
    part_plan_close(&v.plan);
    part_profile_close(&v.profile);
    text_shards_close(&v.shards);
    train_workbench_close(&v.bench);
    return st;
}
