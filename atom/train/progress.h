/*
 * The progress of a run for people: one line on stderr, redrawn on a terminal.
 *
 * Thread: the caller's. Errors: none; a line that cannot be written is lost.
 */
#ifndef ATOM_TRAIN_PROGRESS_H
#define ATOM_TRAIN_PROGRESS_H

#include "atom/train/metrics.h"
#include "atom/train/trainer.h"

#include <stdbool.h>
#include <stdio.h>

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
/* What a trainer reports: a step, or the loss of the validation split. device_bytes: of the plan. */
void train_progress_report(train_progress *p, const train_report *report, uint64_t device_bytes);
/* A line of its own, above the redrawn one: "saved checkpoint-100". */
void train_progress_note(train_progress *p, const char *fmt, ...) ATOM_PRINTF(2, 3);
/* Ends the terminal's line. */
void train_progress_end(train_progress *p);
/* The text of one step, without line end; for the terminal at most `columns` wide. */
char *train_progress_text(const train_progress *p, const train_step_metrics *step, int columns,
                          char *buf, size_t bytes);

#endif
