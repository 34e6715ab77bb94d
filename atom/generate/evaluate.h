/*
 * The mean loss of a saved model over a data set (`atom eval --data`).
 *
 * Thread: one caller. Errors: status.h; the message says which file or option and what to do.
 */
#ifndef ATOM_GENERATE_EVALUATE_H
#define ATOM_GENERATE_EVALUATE_H

#include "atom/train/config.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct eval_request {
    const char *model, *data;               /* directory with weights; data set */
    const char *adapter;                    /* of the model, to merge into it, or NULL */
    const char *split;                      /* "val" (default), "train" */
    int64_t micro_batch, sequence, batches; /* batches 0: all */
    train_packing packing;                  /* auto: as the model's last run had it, else across */
    int32_t dtype;
    const char *device;
    uint64_t device_memory;
    uint64_t link_bandwidth; /* as plan_workbench_config has it */
    int64_t threads;
    /* NULL, or called before each pass over one or several micro-batches */
    void (*progress)(void *ctx, const char *what, uint32_t done, uint32_t total);
    void *ctx;
} eval_request;
typedef struct eval_result {
    double loss;
    int64_t tokens;
    double seconds;
    bool apart; /* documents of a sequence did not see each other */
} eval_result;
ATOM_MUST atom_status eval_loss(const eval_request *request, eval_result *result);

#endif
