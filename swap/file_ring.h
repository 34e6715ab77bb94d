/*
 * What stream (reading) and writer share: a file opened once more past the page cache, a queue to
 * the kernel, and a ring of chunks in memory that requests move. Internal to swap but for the
 * config.
 */
#ifndef SWAP_FILE_RING_H
#define SWAP_FILE_RING_H

#include "swap/store_engine.h"

typedef struct swap_file_config {
    const char *path; /* for messages, and to open the file again with O_DIRECT */
    int fd;
    uint64_t bytes; /* of the file: what there is, or what will be put in all */
    store_kind kind;
    uint32_t chunk_bytes;              /* 0: STORE_CHUNK_BYTES; a multiple of STORE_ALIGN */
    uint32_t depth;                    /* chunks of memory; 0: the default of what is opened */
    const struct store_engine *engine; /* tests; NULL: by kind */
} swap_file_config;

typedef struct swap_file_ring {
    char *path;
    int fd;      /* the ring's own where it is direct, else the caller's */
    bool direct; /* past the page cache */
    uint32_t chunk_bytes, depth;
    const store_engine *engine;
    store_queue *queue;
    char *memory; /* depth chunks */
    uint64_t memory_bytes;
    store_io **done; /* room for depth requests that came back */
} swap_file_ring;

/* flags: O_RDONLY or O_WRONLY, and what else open() needs. Where the file system has no O_DIRECT, or
 * the path has become another file, the caller's descriptor is used. *out must be closed even on
 * failure. */
ATOM_MUST atom_status swap_file_ring_open(const swap_file_config *config, int flags, uint32_t depth,
                                          swap_file_ring *out);
/* Nothing is in flight. */
void swap_file_ring_close(swap_file_ring *ring);

static inline char *swap_file_ring_chunk(const swap_file_ring *ring, uint64_t chunk)
{
    return ring->memory + chunk % ring->depth * ring->chunk_bytes;
}

#endif
