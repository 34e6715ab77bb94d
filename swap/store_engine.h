/*
 * The interface between a store's lane and the kernel: a queue of aligned requests. There are three
 * implementations, and those that tests use to make disks fail.
 *
 * Thread: a queue belongs to one lane. Errors: open may refuse (ATOM_E_UNSUPPORTED: not on this
 * machine); a request's own failure is its `result`, as the kernel says it; only a broken queue
 * fails flush or reap.
 */
#ifndef SWAP_STORE_ENGINE_H
#define SWAP_STORE_ENGINE_H

#include "swap/store.h"

#include <stddef.h>

typedef struct store_queue store_queue;

/* One request. The lane owns it and fills it in; it must stay until it was reaped. */
typedef struct store_io {
    char *buffer;
    uint64_t offset; /* of the file */
    uint32_t bytes;
    bool write;
    int64_t result; /* bytes moved, or -errno */
    uint64_t range; /* the lane's */
} store_io;

typedef struct store_queue_config {
    int fd;
    uint32_t depth; /* requests in flight at most */
    void *ring;
    uint64_t ring_bytes;
} store_queue_config;

typedef struct store_engine {
    const char *name;
    atom_status (*open)(const store_queue_config *config, store_queue **out);
    /* Takes a request; it may wait for flush. */
    void (*submit)(store_queue *q, store_io *io);
    atom_status (*flush)(store_queue *q);
    /* Flushes, blocks until one is done, gives up to `max` that are. */
    atom_status (*reap)(store_queue *q, store_io **done, uint32_t max, uint32_t *n);
    bool (*registered)(const store_queue *q); /* NULL: never */
    /* Nothing is in flight. NULL-safe. */
    void (*close)(store_queue *q);
} store_engine;

extern const store_engine store_engine_uring, store_engine_aio, store_engine_threads;
/* A queue for a file that is no store: by *engine if there is one, else by kind, and *engine says
 * which it became. direct: the file was opened with O_DIRECT. */
ATOM_MUST atom_status store_queue_open(store_kind kind, bool direct,
                                       const store_queue_config *config,
                                       const store_engine **engine, store_queue **out);

#endif
