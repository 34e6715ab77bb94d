/*
 * What a run reports about itself: metrics.jsonl, one JSON object per line and step, and the progress
 * line on stderr.
 *
 * Ownership: what open returns, close frees. Thread: the trainer's. Errors: ATOM_E_RESOURCE for a
 * full disk, ATOM_E_RUNTIME for other I/O. Source: docs/design/files.md#metrics.
 */
#ifndef ATOM_TRAIN_METRICS_H
#define ATOM_TRAIN_METRICS_H

#include "atom/base/status.h"
#include "atom/graph/models.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct train_step_metrics {
    int64_t step;     /* from 1 */
    double loss;      /* mean over the step's target tokens */
    double grad_norm; /* before clipping */
    double learning_rate;
    double seconds;        /* the step without eval and save */
    uint64_t step_tokens;  /* target tokens of this step */
    uint64_t tokens;       /* of the run so far */
    double mfu;            /* 0 .. 1; negative: the device's peak is not known */
    uint64_t device_bytes; /* planned peak on the device */
    uint64_t host_bytes;
} train_step_metrics;

typedef struct train_eval_metrics {
    int64_t step;
    double loss;
    uint64_t tokens; /* targets that were evaluated */
    double seconds;
} train_eval_metrics;

/* --- metrics.jsonl --------------------------------------------------------------------------- */

typedef struct train_metrics train_metrics;

/*
 * Opens path for appending. keep_step: the step that the run resumes after; lines beyond it, and a
 * last line that a crash cut short, are removed. 0: starts empty.
 */
ATOM_MUST atom_status train_metrics_open(const char *path, int64_t keep_step, train_metrics **out);
/* {"step":3,"loss":2.5,"grad_norm":...,"learning_rate":...,"tokens_per_second":...,"seconds":...,
 *  "tokens":...,"mfu":...,"time":...,"split":"train"}. A number that is not finite becomes null,
 * and "nonfinite" names the first such key. */
ATOM_MUST atom_status train_metrics_step(train_metrics *m, const train_step_metrics *step);
/* {"step":3,"loss":2.5,"tokens":...,"seconds":...,"time":...,"split":"val"} */
ATOM_MUST atom_status train_metrics_eval(train_metrics *m, const train_eval_metrics *eval);
/* On stable storage; called before a checkpoint is renamed. */
ATOM_MUST atom_status train_metrics_sync(train_metrics *m);
void train_metrics_close(train_metrics **m);

/* The shortest decimal that reads back as the same double; "null" if not finite. Returns buf. */
char *train_number_text(double value, char buf[32]);

/* 6 N + 12 L C T per token, N without the position table (docs/design/files.md#metrics). */
double train_flops_per_token(const graph_config *config, int64_t sequence_len);
/* Negative when peak_flops is 0 (not known). */
double train_mfu(double flops_per_token, double tokens_per_second, double peak_flops);

/* --- progress -------------------------------------------------------------------------------- */

typedef struct train_progress {
    FILE *file;    /* stderr; NULL: quiet */
    bool terminal; /* one line that is redrawn, else plain lines */
    bool drawn;    /* the terminal's line holds our text */
    int64_t first_step, max_steps, logging_steps;
    int64_t seen;       /* steps since first_step */
    double ema_seconds; /* of a step; biased, see train_progress_rate */
    double ema_tokens;
    double started_seconds, drawn_seconds;
    double val_loss; /* latest; negative: none yet */
} train_progress;

/* terminal < 0: find out (isatty, TERM). first_step - 1 steps are done. max_steps 0: the end is not
 * known. */
train_progress train_progress_make(FILE *file, int terminal, int64_t first_step, int64_t max_steps,
                                   int64_t logging_steps);
/* Smoothed (0.95) tokens per second and seconds per step; 0 before the first step. */
double train_progress_tokens_per_second(const train_progress *p);
double train_progress_step_seconds(const train_progress *p);
void train_progress_step(train_progress *p, const train_step_metrics *step);
void train_progress_eval(train_progress *p, const train_eval_metrics *eval);
/* A line of its own, above the redrawn one: "saved checkpoint-100". */
void train_progress_note(train_progress *p, const char *fmt, ...) ATOM_PRINTF(2, 3);
/* Ends the terminal's line. */
void train_progress_end(train_progress *p);
/* The text of one step, without line end; for the terminal at most `columns` wide. */
char *train_progress_text(const train_progress *p, const train_step_metrics *step, int columns,
                          char *buf, size_t bytes);

#endif
