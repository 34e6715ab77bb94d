/*
 * Owns the two generations of the optimizer's state over a store, and one block of memory for who
 * reads or writes it piecewise. One idea: a generation is the parity of its step. Refuses to decide
 * when a step is over.
 */
#include "swap/disk.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <string.h>

struct swap_disk {
    swap_blocks blocks;
    uint64_t generation_bytes;
    store *store;
    store_lane *load, *save;
    char *page; /* one block, for get() and put() */
    uint64_t page_block, page_step;
    bool page_there, page_dirty;
};

static uint64_t at(const swap_disk *d, uint64_t step, uint64_t offset)
{
    return step % 2 * d->generation_bytes + offset;
}

atom_status swap_disk_open(const swap_disk_config *config, swap_disk **out)
{
    atom_status st;
    swap_disk *d = atom_alloc(1, sizeof *d);
    if (!d)
        return atom_fail_memory("the disk tier", sizeof *d);
    ATOM_ASSERT(config->blocks.each && config->blocks.each % SWAP_BLOCK_ALIGN == 0);
    d->blocks = config->blocks;
    d->generation_bytes = swap_blocks_bytes(d->blocks);
    store_config file = {.path = config->path,
                         .kind = config->kind,
                         .create = config->create,
                         .owner = config->run,
                         .bytes = 2 * d->generation_bytes,
                         .ring = config->ring,
                         .ring_bytes = config->ring_bytes,
                         .engine = config->engine};
    ATOM_TRY(store_open(&file, &d->store));
    ATOM_TRY(store_lane_open(d->store, &d->load));
    ATOM_TRY(store_lane_open(d->store, &d->save));
    d->page = atom_pages_take(swap_block_bytes(d->blocks, 0));
    if (!d->page) {
        st = atom_fail_memory("a block of the disk tier", swap_block_bytes(d->blocks, 0));
        goto fail;
    }
    *out = d;
    return ATOM_OK;
fail:
    swap_disk_close(&d);
    return st;
}

void swap_disk_close(swap_disk **disk)
{
    swap_disk *d = *disk;
    if (!d)
        return;
    store_lane_close(&d->load);
    store_lane_close(&d->save);
    store_close(&d->store);
    if (d->page)
        atom_pages_give(d->page, swap_block_bytes(d->blocks, 0));
    atom_free(d);
    *disk = NULL;
}

store_facts swap_disk_about(const swap_disk *d)
{
    return store_about(d->store);
}

atom_status swap_disk_load(swap_disk *d, uint64_t step, uint64_t offset, void *to, uint64_t bytes)
{
    uint64_t ticket = 0;
    atom_status st = store_read(d->load, to, at(d, step, offset), bytes, &ticket);
    return st == ATOM_OK ? store_wait(d->load, ticket) : st;
}

atom_status swap_disk_save(swap_disk *d, uint64_t step, uint64_t offset, const void *from,
                           uint64_t bytes)
{
    uint64_t ticket = 0;
    atom_status st = store_write(d->save, from, at(d, step, offset), bytes, &ticket);
    return st == ATOM_OK ? store_wait(d->save, ticket) : st;
}

atom_status swap_disk_commit(swap_disk *d, uint64_t step)
{
    return store_commit(d->store, step);
}

atom_status swap_disk_forget(swap_disk *d)
{
    d->page_there = d->page_dirty = false;
    return store_forget(d->store);
}

atom_status swap_disk_flush(swap_disk *d)
{
    if (!d->page_dirty)
        return ATOM_OK;
    d->page_dirty = false;
    return swap_disk_save(d, d->page_step, swap_block_offset(d->blocks, d->page_block), d->page,
                          swap_block_bytes(d->blocks, d->page_block));
}

/* Block i of `step` into the page. */
static atom_status turn_to(swap_disk *d, uint64_t step, uint64_t i)
{
    if (d->page_there && d->page_block == i && d->page_step == step)
        return ATOM_OK;
    atom_status st = swap_disk_flush(d);
    d->page_there = false;
    if (st == ATOM_OK)
        st = swap_disk_load(d, step, swap_block_offset(d->blocks, i), d->page,
                            swap_block_bytes(d->blocks, i));
    d->page_there = st == ATOM_OK;
    d->page_block = i;
    d->page_step = step;
    return st;
}

/* What of [first, first + n) is in the block of `first`: its floats in the page, and how many. */
static atom_status piece(swap_disk *d, uint64_t step, swap_state part, uint64_t first, uint64_t n,
                         float **floats, uint64_t *some)
{
    uint64_t i = first / d->blocks.each, from = first % d->blocks.each;
    uint64_t left = swap_block_elements(d->blocks, i) - from;
    atom_status st = turn_to(d, step, i);
    *floats = (float *)(void *)d->page + part * swap_block_part(d->blocks, i) + from;
    *some = n < left ? n : left;
    return st;
}

atom_status swap_disk_get(swap_disk *d, uint64_t step, swap_state part, uint64_t first, uint64_t n,
                          float *to)
{
    ATOM_ASSERT(first + n <= d->blocks.extent);
    for (uint64_t some; n > 0; first += some, to += some, n -= some) {
        float *floats;
        atom_status st = piece(d, step, part, first, n, &floats, &some);
        if (st != ATOM_OK)
            return st;
        memcpy(to, floats, some * 4);
    }
    return ATOM_OK;
}

atom_status swap_disk_put(swap_disk *d, uint64_t step, swap_state part, uint64_t first, uint64_t n,
                          const float *from)
{
    ATOM_ASSERT(first + n <= d->blocks.extent);
    for (uint64_t some; n > 0; first += some, from += some, n -= some) {
        float *floats;
        atom_status st = piece(d, step, part, first, n, &floats, &some);
        if (st != ATOM_OK)
            return st;
        memcpy(floats, from, some * 4);
        d->page_dirty = true;
    }
    return ATOM_OK;
}
