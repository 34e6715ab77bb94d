/*
 * What store.c (the file) and store_lane.c (its queues) share.
 */
#ifndef SWAP_STORE_INNER_H
#define SWAP_STORE_INNER_H

#include "swap/store_engine.h"

/* Before the data: the head, then two commit records, each in a block of its own. */
enum { STORE_DATA_AT = 64 << 10 };

struct store {
    char *path;
    int fd;
    const store_engine *engine;
    bool direct, registered, made, lost;
    uint32_t depth, chunk_bytes;
    void *ring;
    uint64_t ring_bytes;
    uint64_t bytes, owner, committed, sequence;
    char *block; /* STORE_ALIGN bytes for head and commit records */
};

/* The status and message of a request that failed. `moved`: what the kernel said. */
ATOM_MUST atom_status store_fail(const store *s, bool write, uint64_t offset, int64_t moved);

#endif
