/*
 * Owns host memory that is not a pinned slab. One idea: every block carries its size in the bytes
 * before it, so that live and peak bytes are exact whatever allocator (jemalloc, glibc, ASan) is
 * underneath. Refuses to abort: running out is a status.
 */
#include "atom/base/mem.h"

#include "atom/base/assert.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The process has one heap, so it has one set of counters. */
static _Atomic uint64_t live_bytes, peak_bytes, live_blocks, fail_countdown;

typedef struct block_head {
    uint64_t bytes;
    uint64_t guard;
} block_head;

static const uint64_t GUARD = 0x61746f6d6d656d21u;

static int strikes(void)
{
    uint64_t n = atomic_load(&fail_countdown);
    if (n == 0)
        return 0;
    if (n == 1)
        return 1;
    atomic_store(&fail_countdown, n - 1);
    return 0;
}

static void count_up(uint64_t bytes)
{
    uint64_t now = atomic_fetch_add(&live_bytes, bytes) + bytes;
    uint64_t peak = atomic_load(&peak_bytes);
    while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now))
        ;
    atomic_fetch_add(&live_blocks, 1);
}

static void count_down(uint64_t bytes)
{
    atomic_fetch_sub(&live_bytes, bytes);
    atomic_fetch_sub(&live_blocks, 1);
}

void *atom_alloc(size_t count, size_t size_bytes)
{
    size_t bytes;
    if (strikes() || __builtin_mul_overflow(count, size_bytes, &bytes) ||
        bytes > SIZE_MAX - sizeof(block_head))
        return NULL;
    block_head *head = calloc(1, sizeof *head + bytes);
    if (!head)
        return NULL;
    head->bytes = bytes;
    head->guard = GUARD;
    count_up(bytes);
    return head + 1;
}

void *atom_realloc(void *block, size_t count, size_t size_bytes)
{
    size_t bytes;
    if (strikes() || __builtin_mul_overflow(count, size_bytes, &bytes) ||
        bytes > SIZE_MAX - sizeof(block_head))
        return NULL;
    block_head *head = block ? (block_head *)block - 1 : NULL;
    uint64_t old = head ? head->bytes : 0;
    ATOM_ASSERT(!head || head->guard == GUARD);
    block_head *grown = realloc(head, sizeof *head + bytes);
    if (!grown)
        return NULL;
    grown->bytes = bytes;
    grown->guard = GUARD;
    if (block)
        count_down(old);
    count_up(bytes);
    return grown + 1;
}

void atom_free(void *block)
{
    if (!block)
        return;
    block_head *head = (block_head *)block - 1;
    ATOM_ASSERT(head->guard == GUARD);
    head->guard = 0;
    count_down(head->bytes);
    free(head);
}

char *atom_strndup(const char *text, size_t bytes)
{
    char *copy = atom_alloc(bytes + 1, 1);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

char *atom_strdup(const char *text)
{
    return atom_strndup(text, strlen(text));
}

char *atom_format(const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = n < 0 ? NULL : atom_alloc((size_t)n + 1, 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}

enum { HUGE_FROM = 4 << 20 };

void *atom_pages_take(uint64_t bytes)
{
    if (strikes() || bytes == 0 || bytes > SIZE_MAX / 2)
        return NULL;
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        return NULL;
    /* disks and cards take large requests in few pieces then; a refusal changes nothing */
    if (bytes >= HUGE_FROM)
        (void)madvise(block, bytes, MADV_HUGEPAGE);
    count_up(bytes);
    return block;
}

void atom_pages_give(void *block, uint64_t bytes)
{
    if (!block)
        return;
    munmap(block, bytes);
    count_down(bytes);
}

atom_status atom_fail_memory(const char *what, uint64_t bytes)
{
    return atom_fail(ATOM_E_RESOURCE, "not enough memory for %s (%llu bytes)", what,
                     (unsigned long long)bytes);
}

atom_status atom_grow(void *items, size_t count, size_t *capacity, size_t size_bytes)
{
    if (count < *capacity)
        return ATOM_OK;
    size_t larger = *capacity ? *capacity * 2 : 16;
    void *grown;
    memcpy(&grown, items, sizeof grown);
    grown = atom_realloc(grown, larger, size_bytes);
    if (!grown)
        return atom_fail_memory("a growing list", (uint64_t)larger * size_bytes);
    memcpy(items, &grown, sizeof grown);
    *capacity = larger;
    return ATOM_OK;
}

atom_mem_stats atom_mem_read(void)
{
    return (atom_mem_stats){.live_bytes = atomic_load(&live_bytes),
                            .peak_bytes = atomic_load(&peak_bytes),
                            .live_blocks = atomic_load(&live_blocks)};
}

void atom_mem_fail_after(uint64_t n)
{
    atomic_store(&fail_countdown, n);
}
