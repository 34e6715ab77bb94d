/*
 * Owns the measuring of a saved model on a data set. One idea: it is the trainer's own evaluation:
 * the same graph, kernels and tape, over all windows of a split in their order, so that the number
 * is the one that training reports. Refuses to change the model.
 */
#include "atom/generate/evaluate.h"
#include "atom/generate/evaluator.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/text/dataset.h"
#include "atom/train/checkpoint.h"

#include <math.h>
#include <string.h>

typedef struct evaluation {
    const eval_request *request;
    eval_model e;
    text_shards *shards;
    uint64_t windows; /* to read */
    plan_vocab vocab;
    bool apart;
} evaluation;

static atom_status open_model(evaluation *v, int64_t micro_batch)
{
    const eval_request *r = v->request;
    plan_workbench_config config = {.model = r->model,
                                    .micro_batch = micro_batch,
                                    .sequence = r->sequence,
                                    .dtype = r->dtype,
                                    .device = r->device,
                                    .dropout = 0,
                                    .threads = r->threads,
                                    .link_bandwidth = r->link_bandwidth,
                                    .adapter = r->adapter};
    return eval_model_open(&v->e, &config);
}

/* Of the windows of the split those that were asked for. */
static void limit_windows(evaluation *v, const char *split)
{
    const uint64_t B = (uint64_t)v->e.bench->g->micro_batch, asked = (uint64_t)v->request->batches;
    const uint64_t all = (v->windows + B - 1) / B;
    if (asked > all)
        atom_log(ATOM_LOG_WARN,
                 "batches: %llu were asked for, but the %s split of %s has only %llu (%llu "
                 "sequences of %lld tokens, %llu in a micro-batch), and all of them are used",
                 (unsigned long long)asked, split, v->request->data, (unsigned long long)all,
                 (unsigned long long)v->windows, (long long)v->e.bench->g->sequence,
                 (unsigned long long)B);
    else if (asked > 0 && asked * B < v->windows)
        v->windows = asked * B;
}

/* What is left behind the last whole sequence, where that is much. */
static void note_rest(const evaluation *v, const char *split)
{
    const uint32_t T = (uint32_t)v->e.bench->g->sequence;
    const uint64_t rest = text_shards_rest(v->shards, T);
    if (rest)
        atom_log(ATOM_LOG_INFO,
                 "note: the last %llu of %llu tokens of the %s split do not fill a sequence of %u "
                 "and are not measured; a sequence_len of N leaves out fewer than N",
                 (unsigned long long)rest, (unsigned long long)text_shards_tokens(v->shards), split,
                 T);
}

static void note_packed(const evaluation *v)
{
    const uint32_t packed = text_shards_packed(v->shards), T = (uint32_t)v->e.bench->g->sequence;
    if (packed && T % packed)
        atom_log(ATOM_LOG_INFO,
                 "note: the data were packed into sequences of %u tokens, but sequence_len is %u, "
                 "which cuts them elsewhere; use a multiple of %u",
                 packed, T, packed);
}

static atom_status open_data(evaluation *v)
{
    const eval_request *r = v->request;
    const graph *g = v->e.bench->g;
    text_split split = TEXT_VAL;
    if (r->split && strcmp(r->split, text_split_name(TEXT_TRAIN)) == 0)
        split = TEXT_TRAIN;
    else if (r->split && strcmp(r->split, text_split_name(TEXT_VAL)) != 0)
        return atom_fail(ATOM_E_USAGE, "split: '%s' is unknown; use val or train", r->split);
    if (r->batches < 0)
        return atom_fail(ATOM_E_USAGE, "batches must be 0 (all) or more");
    if (v->e.bench->model.dir)
        ATOM_TRY(plan_vocab_check(v->e.bench->model.dir, r->data, NULL));
    ATOM_TRY(text_shards_open(r->data, split, (uint32_t)v->e.bench->model.config.vocab_size,
                              &v->shards));
    text_shards_warn(v->shards);
    ATOM_TRY(text_shards_verify(v->shards, false));
    v->windows = text_shards_windows(v->shards, (uint32_t)g->sequence);
    if (v->windows == 0)
        return atom_fail(
            ATOM_E_FORMAT,
            "%s: the %s split has only %llu tokens, too few for one sequence of %lld and its "
            "last target; use a smaller sequence_len",
            r->data, text_split_name(split), (unsigned long long)text_shards_tokens(v->shards),
            (long long)g->sequence);
    if (r->batches == 0)
        note_rest(v, text_split_name(split));
    limit_windows(v, text_split_name(split));
    note_packed(v);
    return ATOM_OK;
}

/* A checkpoint says how it was trained; another directory does not. */
static atom_status trained_apart(const eval_request *r, bool *apart)
{
    train_state state = {0};
    char *path = atom_path_join(r->adapter ? r->adapter : r->model, "atom_state.json");
    atom_status st = path ? ATOM_OK : atom_fail_memory("a path", 256);
    if (path && atom_path_exists(path))
        st = train_state_read(path, &state);
    *apart = strcmp(state.packing, "apart") == 0;
    atom_free(path);
    return st;
}

static atom_status choose_packing(evaluation *v)
{
    const eval_request *r = v->request;
    bool can = v->e.bench->table->can & KRN_CAN_APART;
    v->apart = r->packing == TRAIN_PACKING_APART;
    if (r->packing == TRAIN_PACKING_AUTO)
        ATOM_TRY(trained_apart(r, &v->apart));
    if (!v->apart)
        return ATOM_OK;
    ATOM_TRY(plan_vocab_read(r->data, &v->vocab));
    if (v->vocab.start >= 0 && can)
        return ATOM_OK;
    const char *why = can ? "the data has no tokenizer.json, which says how documents begin"
                          : "this device does not support 'apart' yet";
    if (r->packing == TRAIN_PACKING_APART)
        return atom_fail(ATOM_E_USAGE, "packing: 'apart' is not possible, because %s", why);
    atom_log(ATOM_LOG_INFO,
             "packing is 'across', although the model was trained 'apart', because %s", why);
    v->apart = false;
    return ATOM_OK;
}

/* Micro-batch i of the pass: windows first .. first + count, the rest of it without targets. */
static atom_status fill_batch(evaluation *v, uint32_t i, uint64_t first, uint32_t count)
{
    const graph *g = v->e.bench->g;
    uint64_t T = (uint64_t)g->sequence, all = (uint64_t)g->micro_batch * T;
    int32_t *tokens, *targets;
    train_engine_batch(v->e.engine, i, &tokens, &targets);
    for (uint64_t t = count * T; t < all; t++) {
        tokens[t] = 0;
        targets[t] = -1;
    }
    ATOM_TRY(text_windows_read(v->shards, (uint32_t)T, first, count, tokens, targets));
    if (!v->apart)
        return ATOM_OK;
    int32_t *starts = train_engine_starts(v->e.engine, i);
    memset(starts, 0, all * sizeof *starts);
    text_windows_starts(v->shards, (uint32_t)T, first, count, (uint32_t)v->vocab.start, tokens,
                        starts);
    return ATOM_OK;
}

/* Sequences that are not there are not computed. */
static atom_status shrink_batch(evaluation *v)
{
    if (v->windows >= (uint64_t)v->e.bench->g->micro_batch)
        return ATOM_OK;
    eval_model_close(&v->e);
    return open_model(v, (int64_t)v->windows);
}

static uint64_t micro_batches(const evaluation *v)
{
    const uint64_t B = (uint64_t)v->e.bench->g->micro_batch;
    return (v->windows + B - 1) / B;
}

/* Micro-batches [first, first + n) of the split. Each has a sum of its own, whatever passes it is in. */
static atom_status run_pass(evaluation *v, uint64_t first, uint32_t n, double *sum, int64_t *count)
{
    const uint64_t B = (uint64_t)v->e.bench->g->micro_batch;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t at = (first + i) * B, left = v->windows - at;
        ATOM_TRY(fill_batch(v, i, at, (uint32_t)(left < B ? left : B)));
    }
    ATOM_TRY(train_engine_eval(v->e.engine, n));
    for (uint32_t i = 0; i < n; i++) {
        int64_t targets;
        *sum += train_engine_loss(v->e.engine, i, i + 1, &targets);
        *count += targets;
    }
    return ATOM_OK;
}

static atom_status run(evaluation *v, double *loss, int64_t *tokens)
{
    const uint64_t all = micro_batches(v), most = v->e.plan->micro_batches;
    double sum = 0;
    int64_t count = 0;
    for (uint64_t first = 0; first < all; first += most) {
        uint64_t n = all - first < most ? all - first : most;
        if (v->request->progress)
            v->request->progress(v->request->ctx, "micro-batch", (uint32_t)first, (uint32_t)all);
        ATOM_TRY(run_pass(v, first, (uint32_t)n, &sum, &count));
    }
    const uint32_t T = (uint32_t)v->e.bench->g->sequence;
    if (count == 0 && v->windows < text_shards_windows(v->shards, T))
        return atom_fail(ATOM_E_USAGE,
                         "batches: the first %llu micro-batches of %s have no token to "
                         "measure, because the data's masks leave them out; use a larger --batches",
                         (unsigned long long)all, v->request->data);
    if (count == 0)
        return atom_fail(
            ATOM_E_FORMAT,
            "%s: the masks of the data leave no token to measure; prepare the data with --loss "
            "all",
            v->request->data);
    *loss = sum / (double)count;
    *tokens = count;
    if (isfinite(sum))
        return ATOM_OK;
    atom_status st =
        atom_fail(ATOM_E_DIVERGED,
                  "%s: the loss is not finite; the training diverged, or numbers "
                  "become too large%s",
                  v->request->model, v->e.bench->g->dtype == ATOM_BF16 ? "; try --dtype fp32" : "");
    return file_odd_explain(&v->e.odd, st, v->request->model);
}

atom_status eval_loss(const eval_request *request, eval_result *result)
{
    evaluation v = {.request = request};
    double loss = 0, begin;
    int64_t tokens = 0;
    atom_status st;
    ATOM_TRY_CLEAN(open_model(&v, request->micro_batch));
    ATOM_TRY_CLEAN(open_data(&v));
    ATOM_TRY_CLEAN(shrink_batch(&v));
    ATOM_TRY_CLEAN(choose_packing(&v));
    ATOM_TRY_CLEAN(eval_model_load(&v.e, request->device_memory, v.apart, micro_batches(&v)));
    begin = atom_clock_seconds();
    ATOM_TRY_CLEAN(run(&v, &loss, &tokens));
    *result = (eval_result){
        .loss = loss, .tokens = tokens, .seconds = atom_clock_seconds() - begin, .apart = v.apart};
cleanup:
    text_shards_close(&v.shards);
    eval_model_close(&v.e);
    return st;
}
