/*
 * Owns the scoring of questions with answers to choose from. One idea: an answer is a row of tokens
 * whose context has no targets, so that the trainer's evaluation already computes its score, token
 * by token; rows are laid one after the other into micro-batches, whichever questions they belong to.
 * The file is read twice, for its longest row and to score, so that memory does not depend on its
 * length. Refuses to score what is not finite.
 */
#include "atom/generate/choices.h"

#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/export/export.h"
#include "atom/generate/evaluator.h"
#include "atom/text/choices.h"
#include "atom/text/tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SEQUENCE_STEP = 64 };

/* A question of which rows are in the batch, or will be. */
typedef struct asked {
    uint64_t line;
    uint32_t n, right;
    uint32_t scored; /* answers */
    uint32_t characters[TEXT_CHOICES_MAX];
    double scores[TEXT_CHOICES_MAX];
} asked;

/* Where the losses of an answer are in the batch. */
typedef struct placed {
    size_t question; /* in questions[] */
    uint32_t choice;
    uint32_t part;    /* micro-batch */
    int64_t first, n; /* in it */
} placed;

typedef struct scoring {
    const eval_choices_request *request;
    file_model model;
    text_tokenizer *tokenizer;
    text_encoder *encoder;
    text_ids context, answer; /* of the row at hand */
    char *spaced;             /* an answer behind its space */
    size_t spaced_n;
    int64_t longest, most; /* tokens of a row: seen; allowed */
    int64_t seen;          /* tokens of all rows */

    eval_model e;
    int32_t *tokens, *targets, *starts; /* i32[B,T], of the engine: of micro-batch `part` */
    uint32_t part;                      /* where the next row of tokens goes: micro-batch, */
    int64_t row, at;                    /* sample in it, place in that */
    asked *questions;
    size_t n_questions, questions_capacity;
    placed *rows;
    size_t n_rows, rows_capacity;

    int64_t of; /* questions in all */
    int64_t right, right_norm;
    eval_choices_result result;
    double begin;
} scoring;

/* --- tokens ----------------------------------------------------------------------------------- */

static atom_status encode_context(scoring *s, const text_question *q)
{
    s->context.n = 0;
    if (s->context.capacity == 0)
        ATOM_TRY(atom_grow(&s->context.ids, 0, &s->context.capacity, sizeof *s->context.ids));
    const uint32_t start = text_tokenizer_start(s->tokenizer);
    if (text_tokenizer_leads(s->tokenizer))
        s->context.ids[s->context.n++] = start;
    ATOM_TRY(text_encode(s->encoder, q->context.text, q->context.bytes, &s->context, NULL));
    if (s->context.n == 0)
        s->context.ids[s->context.n++] = start;
    return ATOM_OK;
}

/* The tokens of an answer, and how many of the context's fit in front of them. */
static atom_status encode_answer(scoring *s, const text_question *q, uint32_t choice, size_t *keep)
{
    const text_phrase *answer = &q->choices[choice];
    bool space = answer->text[0] != ' ';
    while (s->spaced_n < answer->bytes + 1)
        ATOM_TRY(atom_grow(&s->spaced, s->spaced_n, &s->spaced_n, 1));
    s->spaced[0] = ' ';
    memcpy(s->spaced + space, answer->text, answer->bytes);
    s->answer.n = 0;
    ATOM_TRY(text_encode_behind(s->encoder, s->spaced, answer->bytes + space, &s->answer));
    if (s->answer.n == 0)
        return atom_fail(ATOM_E_FORMAT, "%s:%llu: answer %u (counted from 0) has no tokens",
                         q->name, (unsigned long long)q->line, choice);
    if ((int64_t)s->answer.n > s->most)
        return atom_fail(ATOM_E_FORMAT,
                         "%s:%llu: answer %u (counted from 0) alone has %zu tokens, but a "
                         "sequence has only %lld; remove the line, or use a longer sequence_len "
                         "if the model supports it",
                         q->name, (unsigned long long)q->line, choice, s->answer.n,
                         (long long)s->most);
    *keep = (size_t)s->most + 1 - s->answer.n; /* the last token is a target only */
    if (*keep > s->context.n)
        *keep = s->context.n;
    return ATOM_OK;
}

/* First reading: what is wrong with the file, and its longest row. */
static atom_status measure_question(void *ctx, const text_question *q)
{
    scoring *s = ctx;
    atom_status st = encode_context(s, q);
    for (uint32_t i = 0; i < q->n && st == ATOM_OK; i++) {
        size_t keep = 0;
        st = encode_answer(s, q, i, &keep);
        int64_t n = (int64_t)(keep + s->answer.n) - 1;
        if (st == ATOM_OK && n > s->longest)
            s->longest = n;
        s->seen += n;
    }
    return st;
}

/* --- batches ---------------------------------------------------------------------------------- */

/* Rows go to this micro-batch of the batch from now on. */
static void begin_part(scoring *s, uint32_t part)
{
    const graph *g = s->e.bench->g;
    int64_t T = g->sequence, all = g->micro_batch * T;
    train_engine_batch(s->e.engine, part, &s->tokens, &s->targets);
    s->starts = train_engine_starts(s->e.engine, part);
    for (int64_t i = 0; i < all; i++) {
        s->tokens[i] = 0;
        s->targets[i] = -1;
        s->starts[i] = (int32_t)(i % T); /* padding sees only itself */
    }
    s->part = part;
    s->row = s->at = 0;
}

/* The first of the largest of scores[n], divided by lengths if there are any. */
static uint32_t pick(const double *scores, const uint32_t *lengths, uint32_t n)
{
    uint32_t best = 0;
    double most = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        double score = lengths ? scores[i] / lengths[i] : scores[i];
        if (score > most) {
            most = score;
            best = i;
        }
    }
    return best;
}

static void judge(scoring *s, const asked *q)
{
    const eval_choices_request *r = s->request;
    const eval_choices_answer answer = {.line = q->line,
                                        .n = q->n,
                                        .right = q->right,
                                        .picked = pick(q->scores, NULL, q->n),
                                        .picked_norm = pick(q->scores, q->characters, q->n),
                                        .scores = q->scores};
    s->right += answer.picked == q->right;
    s->right_norm += answer.picked_norm == q->right;
    s->result.questions++;
    if (r->answered)
        r->answered(r->ctx, &answer);
}

static void mean_of(int64_t right, int64_t n, double *mean, double *error)
{
    double p = (double)right / (double)n;
    *mean = p;
    *error = n > 1 ? sqrt(p * (1 - p) / (double)(n - 1)) : NAN;
}

static void sum_up(scoring *s)
{
    eval_choices_result *r = &s->result;
    r->seconds = atom_clock_seconds() - s->begin;
    if (r->questions == 0)
        return;
    mean_of(s->right, r->questions, &r->acc, &r->acc_stderr);
    mean_of(s->right_norm, r->questions, &r->acc_norm, &r->acc_norm_stderr);
}

/* Adds the losses of a row to its answer. */
static atom_status take_score(scoring *s, const placed *row)
{
    const float *losses = train_engine_losses(s->e.engine, row->part) + row->first;
    asked *q = &s->questions[row->question];
    double sum = 0;
    for (int64_t i = 0; i < row->n; i++)
        sum -= (double)losses[i];
    if (!isfinite(sum)) {
        char what[512];
        snprintf(what, sizeof what,
                 "%.400s:%llu: the score of answer %u (counted from 0) is not finite",
                 s->request->file, (unsigned long long)q->line, row->choice);
        atom_status st = atom_fail(ATOM_E_DIVERGED,
                                   "%s; the weights are damaged or the training diverged", what);
        return file_odd_explain(&s->e.odd, st, what);
    }
    q->scores[row->choice] = sum;
    q->scored++;
    return ATOM_OK;
}

/* Scores what is in the batch; the last question may wait for its other answers. */
static atom_status run_batch(scoring *s)
{
    size_t done = 0;
    if (s->n_rows == 0)
        return ATOM_OK;
    ATOM_TRY(train_engine_eval(s->e.engine, s->part + 1));
    for (size_t i = 0; i < s->n_rows; i++)
        ATOM_TRY(take_score(s, &s->rows[i]));
    for (; done < s->n_questions && s->questions[done].scored == s->questions[done].n; done++)
        judge(s, &s->questions[done]);
    memmove(s->questions, s->questions + done, (s->n_questions - done) * sizeof *s->questions);
    s->n_questions -= done;
    s->n_rows = 0;
    begin_part(s, 0);
    sum_up(s);
    if (s->request->progress)
        s->request->progress(s->request->ctx, &s->result, s->of);
    return ATOM_OK;
}

/* Room for n tokens that see no others: behind the last row, else in the next sample, else in the next
 * micro-batch, which may be of the next batch. */
static atom_status find_room(scoring *s, int64_t n)
{
    const graph *g = s->e.bench->g;
    if (s->at + n > g->sequence) {
        s->row++;
        s->at = 0;
    }
    if (s->row < g->micro_batch)
        return ATOM_OK;
    if (s->part + 1 == s->e.plan->micro_batches)
        return run_batch(s);
    begin_part(s, s->part + 1);
    return ATOM_OK;
}

/* The last `keep` tokens of the context, then the answer, which alone has targets. */
static atom_status place(scoring *s, uint32_t choice, size_t keep)
{
    const uint32_t *context = s->context.ids + s->context.n - keep;
    int64_t k = (int64_t)keep, m = (int64_t)s->answer.n, n = k + m - 1, first;
    ATOM_TRY(find_room(s, n));
    if (s->n_rows == s->rows_capacity)
        ATOM_TRY(atom_grow(&s->rows, s->n_rows, &s->rows_capacity, sizeof *s->rows));
    first = s->row * s->e.bench->g->sequence + s->at;
    for (int64_t i = 0; i < n; i++) {
        s->tokens[first + i] = (int32_t)(i < k ? context[i] : s->answer.ids[i - k]);
        if (i >= k - 1)
            s->targets[first + i] = (int32_t)s->answer.ids[i - k + 1];
        s->starts[first + i] = (int32_t)s->at;
    }
    s->rows[s->n_rows++] = (placed){.question = s->n_questions - 1,
                                    .choice = choice,
                                    .part = s->part,
                                    .first = first + k - 1,
                                    .n = m};
    s->at += n;
    s->result.tokens += n;
    return ATOM_OK;
}

/* Of UTF-8: bytes that begin one. */
static uint32_t characters_of(text_phrase phrase)
{
    uint32_t n = 0;
    for (size_t i = 0; i < phrase.bytes; i++)
        n += ((unsigned char)phrase.text[i] & 0xc0) != 0x80;
    return n;
}

/* Second reading. */
static atom_status score_question(void *ctx, const text_question *q)
{
    scoring *s = ctx;
    bool cut = false;
    ATOM_TRY(encode_context(s, q));
    if (s->n_questions == s->questions_capacity)
        ATOM_TRY(
            atom_grow(&s->questions, s->n_questions, &s->questions_capacity, sizeof *s->questions));
    s->questions[s->n_questions] = (asked){.line = q->line, .n = q->n, .right = q->answer};
    for (uint32_t i = 0; i < q->n; i++)
        s->questions[s->n_questions].characters[i] = characters_of(q->choices[i]);
    s->n_questions++;
    for (uint32_t i = 0; i < q->n; i++) {
        size_t keep = 0;
        ATOM_TRY(encode_answer(s, q, i, &keep));
        cut = cut || keep < s->context.n;
        ATOM_TRY(place(s, i, keep));
    }
    s->result.cut_contexts += cut;
    return ATOM_OK;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* What is needed to read the questions. */
static atom_status open_text(scoring *s)
{
    const eval_choices_request *r = s->request;
    if (r->limit < 0)
        return atom_fail(ATOM_E_USAGE, "limit must be 0 (all) or more");
    ATOM_TRY(file_model_resolve(r->model, &s->model));
    if (!s->model.has_weights)
        return atom_fail(ATOM_E_USAGE,
                         "model '%s' has no weights to evaluate; name a checkpoint, a directory "
                         "with config.json, model.safetensors and tokenizer.json",
                         r->model);
    if (r->adapter) {
        atom_free(s->model.adapter);
        s->model.adapter = atom_strdup(r->adapter);
        if (!s->model.adapter)
            return atom_fail_memory("a path", strlen(r->adapter));
    }
    s->most = s->model.config.positions;
    if (r->sequence > 0 && r->sequence < s->most)
        s->most = r->sequence;
    ATOM_TRY(import_model_tokenizer(&s->model, &s->tokenizer));
    return text_encoder_open(s->tokenizer, &s->encoder);
}

static atom_status open_model(scoring *s)
{
    const eval_choices_request *r = s->request;
    int64_t steps = (s->longest + SEQUENCE_STEP - 1) / SEQUENCE_STEP;
    int64_t usual = steps * SEQUENCE_STEP < s->most ? steps * SEQUENCE_STEP : s->most;
    plan_workbench_config config = {.model = r->model,
                                    .micro_batch = r->micro_batch,
                                    .sequence = r->sequence > 0 ? r->sequence : usual,
                                    .dtype = r->dtype,
                                    .device = r->device,
                                    .dropout = 0,
                                    .threads = r->threads,
                                    .link_bandwidth = r->link_bandwidth,
                                    .adapter = r->adapter};
    ATOM_TRY(eval_model_open(&s->e, &config));
    const graph *g = s->e.bench->g;
    int64_t each = g->micro_batch * g->sequence, batches = (s->seen + each - 1) / each;
    ATOM_TRY(eval_model_load(&s->e, r->device_memory, true, (uint64_t)batches));
    s->most = s->result.sequence = g->sequence;
    begin_part(s, 0);
    return ATOM_OK;
}

atom_status eval_choices(const eval_choices_request *request, eval_choices_result *result)
{
    scoring s = {.request = request};
    uint64_t limit = (uint64_t)request->limit, of = 0;
    atom_status st;
    ATOM_TRY_CLEAN(open_text(&s));
    ATOM_TRY_CLEAN(text_questions_read(request->file, limit, measure_question, &s, &of));
    s.of = (int64_t)of;
    if (limit > of)
        atom_log(ATOM_LOG_WARN, "limit: %s has only %llu question%s, and all of them are used",
                 request->file, (unsigned long long)of, of == 1 ? "" : "s");
    ATOM_TRY_CLEAN(open_model(&s));
    s.begin = atom_clock_seconds();
    ATOM_TRY_CLEAN(text_questions_read(request->file, limit, score_question, &s, NULL));
    ATOM_TRY_CLEAN(run_batch(&s));
    *result = s.result;
cleanup:
    eval_model_close(&s.e);
    text_encoder_close(&s.encoder);
    text_tokenizer_close(&s.tokenizer);
    text_ids_fini(&s.context);
    text_ids_fini(&s.answer);
    file_model_free(&s.model);
    atom_free(s.spaced);
    atom_free(s.questions);
    atom_free(s.rows);
    return st;
}
