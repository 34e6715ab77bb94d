/*
 * TensorBoard event files: scalars by tag and step, as `tensorboard --logdir` reads them.
 *
 * One file per run and start, events.out.tfevents.<seconds>.<host>.<pid>, of TFRecords (length,
 * masked CRC-32C of it, data, masked CRC-32C of that) that hold Event messages of protobuf.
 * Source: tensorflow/core/util/event.proto, core/lib/io/record_writer.
 *
 * Ownership: what open returns, close frees. Thread: the trainer's. Errors: ATOM_E_RESOURCE for a
 * full disk, ATOM_E_RUNTIME for other I/O.
 */
#ifndef ATOM_TRAIN_EVENTS_H
#define ATOM_TRAIN_EVENTS_H

#include "atom/base/status.h"

#include <stdint.h>

typedef struct train_events train_events;
typedef struct train_scalar {
    const char *tag; /* "train/loss" */
    double value;
} train_scalar;

enum { TRAIN_SCALARS_MAX = 16 };

/* A new file in dir, which exists. */
ATOM_MUST atom_status train_events_open(const char *dir, train_events **out);
/* n scalars of one step, as one event. */
ATOM_MUST atom_status train_events_add(train_events *e, int64_t step, const train_scalar *scalars,
                                       uint32_t n);
/* NULL-safe, clears the pointer. */
void train_events_close(train_events **e);

#endif
