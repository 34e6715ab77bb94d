/*
 * Owns large blocks of host memory. One idea: touch every page once, in parallel, when the block is
 * taken, because a page that the hypervisor must bring in costs ten microseconds and would
 * otherwise cost them in the middle of a step. Refuses what the machine does not have, before
 * touching it: the kernel would promise it and kill us later.
 */
#include "kernels/cpu/device_cpu.h"

#include "atom/base/machine.h"
#include "atom/base/mem.h"

#include <sys/mman.h>

enum { PAGE_BYTES = 4096 };
static const uint64_t CHUNK_BYTES = (uint64_t)4 << 20;

typedef struct touch {
    volatile uint8_t *at;
    uint64_t bytes;
} touch;

static void touch_chunk(void *ctx, uint32_t index, uint32_t worker)
{
    (void)worker;
    const touch *t = ctx;
    uint64_t from = index * CHUNK_BYTES;
    uint64_t to = t->bytes - from < CHUNK_BYTES ? t->bytes : from + CHUNK_BYTES;
    for (uint64_t i = from; i < to; i += PAGE_BYTES)
        t->at[i] = 0;
}

atom_status cpu_slab_take(atom_threads *threads, const char *what, uint64_t bytes, void **out)
{
    uint64_t has = atom_host_available_bytes();
    if (bytes > has)
        return atom_fail(ATOM_E_RESOURCE,
                         "%s: %llu bytes are needed, but this machine has only %llu free; "
                         "%llu are missing",
                         what, (unsigned long long)bytes, (unsigned long long)has,
                         (unsigned long long)(bytes - has));
    void *slab = atom_pages_take(bytes);
    if (!slab)
        return atom_fail_memory(what, bytes);
    /* Fewer page faults and TLB misses; a refusal changes nothing. */
    (void)madvise(slab, bytes, MADV_HUGEPAGE);
    touch t = {slab, bytes};
    atom_parallel(threads, (uint32_t)((bytes + CHUNK_BYTES - 1) / CHUNK_BYTES), touch_chunk, &t);
    *out = slab;
    return ATOM_OK;
}

void cpu_slab_give(void *slab, uint64_t bytes)
{
    atom_pages_give(slab, bytes);
}
