/*
 * Multiple-choice evaluation: which of several answers does a saved model find the most likely?
 *
 * The answer's tokens follow the context's. A space is put before an answer, unless it begins with
 * one. Context and answer are tokenised separately, with the model's own tokenizer, and no special
 * token is added, except if the context is empty: then the token that begins a document takes its
 * place. An answer's score is the sum of log p(token | all before) over its tokens, natural logarithm.
 *
 *   acc       the answer with the largest score is the right one (llm.c, lm-evaluation-harness)
 *   acc_norm  the same of score / characters of the answer as the file has it (Unicode code points,
 *             as in lm-evaluation-harness)
 *
 * If answers have the same score, the first one is taken. The standard error is that of a mean of n
 * values that are 0 or 1, sqrt(p (1 - p) / (n - 1)).
 *
 * A row that is longer than the sequence loses the beginning of its context. Several rows share a
 * sequence without seeing each other. So batch, sequence and the other questions change a score
 * only by rounding; the device's memory limit does not change a single bit.
 *
 * Ownership: texts of the request are borrowed for the call. Thread: one caller, who is called
 * back. Errors: ATOM_E_FORMAT with "file:line: what" (atom/text/choices.h), also for an answer that
 * is longer than the sequence; ATOM_E_USAGE for a model without weights, a file that is not JSONL;
 * ATOM_E_DIVERGED naming the question whose score is not finite.
 *
 * Sources: Gao 2021, "Multiple Choice Normalization in LM Evaluation"; Zellers et al. 2019.
 */
#ifndef ATOM_GENERATE_CHOICES_H
#define ATOM_GENERATE_CHOICES_H

#include "atom/base/status.h"

#include <stdint.h>

typedef struct eval_choices_result {
    double acc, acc_norm;
    double acc_stderr, acc_norm_stderr; /* NAN of a single question */
    int64_t questions;
    int64_t cut_contexts; /* questions whose context did not fit with each answer */
    int64_t tokens;       /* that the model read, padding not counted */
    int64_t sequence;     /* T */
    double seconds;       /* from the first row to the last, model loaded */
} eval_choices_result;

/* One question, scored. */
typedef struct eval_choices_answer {
    uint64_t line; /* of the file, from 1 */
    uint32_t n, right;
    uint32_t picked, picked_norm;
    const double *scores; /* [n] */
} eval_choices_answer;

typedef struct eval_choices_request {
    const char *model, *file; /* directory with weights and tokenizer; questions */
    const char *adapter;      /* of the model, to merge into it, or NULL */
    int64_t limit;            /* the first so many questions; 0: all */
    int64_t micro_batch;      /* B */
    int64_t sequence; /* T; -1: the longest row, in steps of 64, at most the model's longest */
    int32_t dtype;    /* plan_dtype */
    const char *device;
    uint64_t device_memory;  /* 0: all of the device */
    uint64_t link_bandwidth; /* as plan_workbench_config has it */
    int64_t threads;
    /* Both may be NULL. After each pass over one or several micro-batches, what there is so far, of
     * `questions`; and each question, in their order. */
    void (*progress)(void *ctx, const eval_choices_result *so_far, int64_t questions);
    void (*answered)(void *ctx, const eval_choices_answer *answer);
    void *ctx;
} eval_choices_request;

ATOM_MUST atom_status eval_choices(const eval_choices_request *request,
                                   eval_choices_result *result);

#endif
