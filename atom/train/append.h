/*
 * A file that grows by whole pieces: what does not fit leaves nothing of itself behind, so the file can
 * be gone on with once there is room.
 *
 * Ownership: what open returns, close frees. Thread: one at a time. Errors: ATOM_E_RESOURCE for a full
 * disk, ATOM_E_RUNTIME for other I/O.
 */
#ifndef ATOM_TRAIN_APPEND_H
#define ATOM_TRAIN_APPEND_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct train_append {
    char *path;
    int fd;         /* -1: closed */
    uint64_t bytes; /* whole pieces so far */
    bool torn;      /* behind them is a part of one that could not be taken away yet */
} train_append;

/* Makes the file if needed, and keeps its first `keep` bytes. */
ATOM_MUST atom_status train_append_open(train_append *a, const char *path, uint64_t keep);
ATOM_MUST atom_status train_append_write(train_append *a, const void *data, size_t bytes);
/* On stable storage. */
ATOM_MUST atom_status train_append_sync(const train_append *a);
/* Half-opened and closed are fine. */
void train_append_close(train_append *a);

#endif
