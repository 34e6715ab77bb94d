/*
 * What a run reports about itself: metrics.jsonl, one JSON object per line and step.
 *
 * Ownership: what open returns, close frees. Thread: the trainer's. Errors: ATOM_E_RESOURCE for a
 * full disk, ATOM_E_RUNTIME for other I/O; of a line that failed nothing is in the file, and the next one
 * may be tried. Source: docs/design/files.md#metrics.
 */
#ifndef ATOM_TRAIN_METRICS_H
#define ATOM_TRAIN_METRICS_H

#include "atom/base/status.h"
#include "atom/graph/models.h"

#include <stdint.h>

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

typedef struct train_metrics train_metrics;

/* The step in its first line; 0: there is none. */
int64_t train_metrics_first(const char *path);
/*
 * Opens path for appending. keep_step: the step that the run resumes after; lines beyond it, and a
 * last line that a crash cut short, are removed. 0: starts empty.
 */
ATOM_MUST atom_status train_metrics_open(const char *path, int64_t keep_step, train_metrics **out);
/* Was this step validated before the run was resumed? Then *loss is what it gave. */
bool train_metrics_validated(const train_metrics *m, int64_t step, double *loss);
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

#endif
