/*
 * Counted host memory. Everything atom allocates outside pinned slabs goes through here, so that
 * the memory report is true and so that tests can make the n-th allocation fail.
 *
 * Thread: all functions may be called from any thread.
 */
#ifndef ATOM_BASE_MEM_H
#define ATOM_BASE_MEM_H

#include "atom/base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Every device and host buffer of the runtime starts at a multiple of this
 * many bytes (docs/design/engine.md#the-same-bits). */
enum { ATOM_ALIGN_BYTES = 256 };

/* Rounds up to the next multiple of ATOM_ALIGN_BYTES. */
static inline uint64_t atom_align(uint64_t bytes)
{
    return (bytes + ATOM_ALIGN_BYTES - 1) & ~(uint64_t)(ATOM_ALIGN_BYTES - 1);
}

/* Zeroed memory; NULL when there is none (or the countdown struck). Freed with atom_free. */
ATOM_MUST void *atom_alloc(size_t count, size_t size_bytes);
/* Like realloc of count*size; the tail is not zeroed; the old block survives failure. */
ATOM_MUST void *atom_realloc(void *block, size_t count, size_t size_bytes);
ATOM_MUST char *atom_strdup(const char *text);
/* Copies exactly `bytes` bytes and adds a NUL. */
ATOM_MUST char *atom_strndup(const char *text, size_t bytes);
/* printf into a fresh string; NULL when there is no memory. */
ATOM_MUST char *atom_format(const char *fmt, ...) ATOM_PRINTF(1, 2);
void atom_free(void *block);

/* Whole pages, ATOM_ALIGN_BYTES aligned, zero; for slabs. Release with the same size. */
ATOM_MUST void *atom_pages_take(uint64_t bytes);
void atom_pages_give(void *block, uint64_t bytes);

/* The usual failure of the above, with a message saying what for and how much. */
ATOM_MUST atom_status atom_fail_memory(const char *what, uint64_t bytes);

/* Makes room for one more element. items: address of the pointer to the elements, of any type. They
 * grow by doubling, and stay valid on failure. */
ATOM_MUST atom_status atom_grow(void *items, size_t count, size_t *capacity, size_t size_bytes);

typedef struct atom_mem_stats {
    uint64_t live_bytes;
    uint64_t peak_bytes;
    uint64_t live_blocks;
} atom_mem_stats;
atom_mem_stats atom_mem_read(void);

/* Tests: the n-th allocation from now fails, and each one after it (n = 0: never). */
void atom_mem_fail_after(uint64_t n);

#endif
