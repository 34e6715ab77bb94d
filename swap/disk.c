/*
 * Owns the generations of the optimizer's state over a store, and the block of memory through which
 * others read or write one piecewise. One idea: three places, of which one is present, one may be
 * kept by a snapshot, and one is free to become the next. Refuses to decide when a step is over.
 */
#include "swap/disk.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <stdatomic.h>
#include <string.h>

/* A block of one generation in memory, and the lane that it comes and goes by. Its parts come when
 * they are asked for: reading all masters does not read all moments with them. */
typedef struct page {
    store_lane *lane;
    char *data;
    uint64_t block;
    uint32_t generation;
    uint32_t here, dirty; /* parts, by bits */
} page;

struct swap_disk {
    swap_blocks blocks;
    const swap_param *params;
    uint32_t n_params;
    uint64_t generation_bytes;
    store *store;
    store_lane *load, *save;
    uint32_t present, next;
    uint64_t step;
    page page;                  /* for get() and put() */
    bool renew, anew;           /* the next put() begins a new state; all of it is being put */
    uint64_t put[SWAP_STATE_N]; /* then: elements that were, of each part */
    swap_snapshot *snapshot;
    _Atomic(uint32_t) busy; /* blocks of the tape that move now */
};

struct swap_snapshot {
    swap_disk *disk;
    uint32_t generation; /* kept; never changes, so others may read it */
    page page;           /* the reader's */
};

/* The step and the generation it is in, as the store's one number. */
static uint64_t mark_of(uint64_t step, uint32_t generation)
{
    return step * SWAP_GENERATIONS + generation;
}

static uint64_t place(const swap_disk *d, uint32_t generation, uint64_t offset)
{
    return generation * d->generation_bytes + offset;
}

/* The first place that is free. */
static void choose_next(swap_disk *d)
{
    d->next = 0;
    while (d->next == d->present || (d->snapshot && d->next == d->snapshot->generation))
        d->next++;
}

/* --- pages ----------------------------------------------------------------------------------- */

static atom_status page_open(const swap_disk *d, page *p)
{
    uint64_t bytes = swap_block_room(d->blocks);
    p->data = atom_pages_take(bytes);
    if (!p->data)
        return atom_fail_memory("a block of the disk tier", bytes);
    return store_lane_open(d->store, &p->lane);
}

static void page_close(const swap_disk *d, page *p)
{
    store_lane_close(&p->lane);
    if (p->data)
        atom_pages_give(p->data, swap_block_room(d->blocks));
}

/* The parts whose bits are set, all at once. */
static atom_status page_move(const swap_disk *d, page *p, uint32_t parts, bool write)
{
    uint64_t ticket = 0, i = p->block;
    uint64_t at = place(d, p->generation, swap_block_offset(d->blocks, i));
    for (int k = 0; k < SWAP_STATE_N; k++) {
        swap_state part = (swap_state)k;
        uint64_t from = swap_block_part_offset(d->blocks, i, part);
        uint64_t bytes = swap_block_part(d->blocks, i, part) *
                         atom_dtype_bytes(swap_state_dtype(part, d->blocks.moments));
        if (!(parts & 1u << part))
            continue;
        if (write)
            ATOM_TRY(store_write(p->lane, p->data + from, at + from, bytes, &ticket));
        else
            ATOM_TRY(store_read(p->lane, p->data + from, at + from, bytes, &ticket));
    }
    return store_wait(p->lane, ticket);
}

static atom_status page_flush(const swap_disk *d, page *p)
{
    uint32_t parts = p->dirty;
    p->dirty = 0;
    return parts ? page_move(d, p, parts, true) : ATOM_OK;
}

static atom_status page_turn(const swap_disk *d, page *p, uint32_t generation, uint64_t block,
                             uint32_t part)
{
    if (!p->here || p->block != block || p->generation != generation) {
        atom_status st = page_flush(d, p);
        p->here = 0;
        ATOM_TRY(st);
        p->block = block;
        p->generation = generation;
    }
    if (p->here & part)
        return ATOM_OK;
    if (!(p == &d->page && d->anew)) /* a snapshot's thread does not look at anew */
        ATOM_TRY(page_move(d, p, part, false));
    p->here |= part;
    return ATOM_OK;
}

/* What of [first, first + n) is in the block of `first`, and kept there or not: where in the page
 * (NULL: it is not kept), and how many. */
static atom_status page_piece(const swap_disk *d, page *p, uint32_t generation, swap_state part,
                              uint64_t first, uint64_t n, void **at, uint64_t *some)
{
    const swap_blocks b = d->blocks;
    uint64_t i = swap_block_of(b, first), from = first - swap_block_first(b, i);
    uint64_t left = swap_block_elements(b, i) - from;
    *at = NULL;
    *some = n < left ? n : left;
    if (part == SWAP_STATE_V && d->n_params) {
        uint32_t k = swap_param_at(d->params, d->n_params, first);
        left = k + 1 < d->n_params ? d->params[k + 1].offset - first : *some;
        *some = *some < left ? *some : left;
        if (d->params[k].n_matrices)
            return ATOM_OK;
        from = swap_second_at(d->params, d->n_params, first) - swap_block_second(b, i);
    }
    atom_status st = page_turn(d, p, generation, i, 1u << part);
    *at = p->data + swap_block_part_offset(b, i, part) +
          from * atom_dtype_bytes(swap_state_dtype(part, b.moments));
    return st;
}

static atom_status page_get(const swap_disk *d, page *p, uint32_t generation, swap_state part,
                            uint64_t first, uint64_t n, float *to)
{
    ATOM_ASSERT(first + n <= d->blocks.extent);
    for (uint64_t some; n > 0; first += some, to += some, n -= some) {
        void *at;
        ATOM_TRY(page_piece(d, p, generation, part, first, n, &at, &some));
        if (at)
            swap_state_read(swap_state_dtype(part, d->blocks.moments), at, some, to);
        else
            memset(to, 0, some * sizeof *to);
    }
    return ATOM_OK;
}

/* --- life ------------------------------------------------------------------------------------ */

atom_status swap_disk_open(const swap_disk_config *config, swap_disk **out)
{
    atom_status st;
    swap_disk *d = atom_alloc(1, sizeof *d);
    if (!d)
        return atom_fail_memory("the disk tier", sizeof *d);
    ATOM_ASSERT(config->blocks.each &&
                config->blocks.each % swap_block_align(config->blocks.moments) == 0);
    d->blocks = config->blocks;
    d->params = config->params;
    d->n_params = config->params ? config->n_params : 0;
    d->generation_bytes = swap_blocks_bytes(d->blocks);
    store_config file = {.path = config->path,
                         .kind = config->kind,
                         .create = config->create,
                         .owner = config->run,
                         .relative = config->relative,
                         .relation = config->relation,
                         .bytes = SWAP_GENERATIONS * d->generation_bytes,
                         .ring = config->ring,
                         .ring_bytes = config->ring_bytes,
                         .engine = config->engine};
    ATOM_TRY_CLEAN(store_open(&file, &d->store));
    ATOM_TRY_CLEAN(store_lane_open(d->store, &d->load));
    ATOM_TRY_CLEAN(store_lane_open(d->store, &d->save));
    ATOM_TRY_CLEAN(page_open(d, &d->page));
    uint64_t mark = store_about(d->store).committed;
    d->step = mark / SWAP_GENERATIONS;
    d->present = (uint32_t)(mark % SWAP_GENERATIONS);
    choose_next(d);
    *out = d;
    return ATOM_OK;
cleanup:
    swap_disk_close(&d);
    return st;
}

void swap_disk_close(swap_disk **disk)
{
    swap_disk *d = *disk;
    if (!d)
        return;
    ATOM_ASSERT(!d->snapshot);
    page_close(d, &d->page);
    store_lane_close(&d->load);
    store_lane_close(&d->save);
    store_close(&d->store);
    atom_free(d);
    *disk = NULL;
}

swap_disk_facts swap_disk_about(const swap_disk *d)
{
    return (swap_disk_facts){store_about(d->store), d->step, d->present, d->next};
}

/* --- the tape's blocks ----------------------------------------------------------------------- */

static atom_status finish_move(swap_disk *d, store_lane *lane, atom_status st, uint64_t ticket)
{
    if (st == ATOM_OK)
        st = store_wait(lane, ticket);
    atomic_fetch_sub(&d->busy, 1);
    return st;
}

atom_status swap_disk_load(swap_disk *d, uint64_t offset, void *to, uint64_t bytes)
{
    uint64_t ticket = 0;
    atomic_fetch_add(&d->busy, 1);
    atom_status st = store_read(d->load, to, place(d, d->present, offset), bytes, &ticket);
    return finish_move(d, d->load, st, ticket);
}

atom_status swap_disk_save(swap_disk *d, uint64_t offset, const void *from, uint64_t bytes)
{
    uint64_t ticket = 0;
    atomic_fetch_add(&d->busy, 1);
    atom_status st = store_write(d->save, from, place(d, d->next, offset), bytes, &ticket);
    return finish_move(d, d->save, st, ticket);
}

bool swap_disk_is_busy(const swap_disk *d)
{
    return atomic_load(&((swap_disk *)(uintptr_t)d)->busy) > 0;
}

atom_status swap_disk_commit(swap_disk *d, uint64_t step)
{
    ATOM_TRY(store_commit(d->store, mark_of(step, d->next)));
    d->step = step;
    d->present = d->next;
    d->page.here = 0; /* the place of its generation may be written again */
    choose_next(d);
    return ATOM_OK;
}

atom_status swap_disk_forget(swap_disk *d)
{
    d->page.here = d->page.dirty = 0;
    d->step = 0;
    return store_forget(d->store);
}

/* --- pieces ---------------------------------------------------------------------------------- */

atom_status swap_disk_flush(swap_disk *d)
{
    d->anew = false;
    return page_flush(d, &d->page);
}

void swap_disk_renew(swap_disk *d)
{
    ATOM_ASSERT(d->step == 0);
    d->renew = true;
}

/* The first piece of a new state. */
static void begin_anew(swap_disk *d)
{
    d->renew = false;
    d->anew = true;
    d->page.here = d->page.dirty = 0;
    memset(d->put, 0, sizeof d->put);
    if (d->snapshot && d->snapshot->generation == d->present) {
        d->present = d->next;
        choose_next(d);
    }
}

atom_status swap_disk_get(swap_disk *d, swap_state part, uint64_t first, uint64_t n, float *to)
{
    return page_get(d, &d->page, d->present, part, first, n, to);
}

atom_status swap_disk_put(swap_disk *d, swap_state part, uint64_t first, uint64_t n,
                          const float *from)
{
    ATOM_ASSERT(first + n <= d->blocks.extent);
    if (d->renew)
        begin_anew(d);
    ATOM_ASSERT(!d->anew || d->put[part] == first);
    d->put[part] = first + n;
    for (uint64_t some; n > 0; first += some, from += some, n -= some) {
        void *at;
        ATOM_TRY(page_piece(d, &d->page, d->present, part, first, n, &at, &some));
        if (!at)
            continue;
        swap_state_write(swap_state_dtype(part, d->blocks.moments), at, from, some);
        d->page.dirty |= 1u << part;
    }
    return ATOM_OK;
}

/* --- snapshots ------------------------------------------------------------------------------- */

atom_status swap_snapshot_open(swap_disk *d, swap_snapshot **out)
{
    ATOM_ASSERT(!d->snapshot);
    swap_snapshot *s = atom_alloc(1, sizeof *s);
    if (!s)
        return atom_fail_memory("a snapshot", sizeof *s);
    s->disk = d;
    s->generation = d->present;
    d->snapshot = s;
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(swap_disk_flush(d));
    ATOM_TRY_CLEAN(page_open(d, &s->page));
    *out = s;
    return ATOM_OK;
cleanup:
    swap_snapshot_close(&s);
    return st;
}

atom_status swap_snapshot_get(swap_snapshot *s, swap_state part, uint64_t first, uint64_t n,
                              float *to)
{
    return page_get(s->disk, &s->page, s->generation, part, first, n, to);
}

void swap_snapshot_close(swap_snapshot **snapshot)
{
    swap_snapshot *s = *snapshot;
    if (!s)
        return;
    s->disk->snapshot = NULL;
    page_close(s->disk, &s->page);
    atom_free(s);
    *snapshot = NULL;
}
