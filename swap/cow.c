/*
 * Owns the state as it stood, range by range. One idea: a range stays where it always was until an
 * update is about to change it; from then on it is in spare memory, or it is no longer needed. The
 * update makes the copy itself, without the lock, and then waits for readers that began before.
 * Refuses to give what was released.
 */
#include "swap/cow.h"

#include "atom/base/assert.h"
#include "atom/base/clock.h"
#include "atom/base/mem.h"
#include "kernels/kernels.h"

#include <pthread.h>
#include <string.h>

enum { COW_EACH = 1 << 18, COW_RANGES_MIN = 64, COW_ALIGN = KRN_DRAW_ALIGN };

typedef enum range_place { RANGE_LIVE, RANGE_SPARE, RANGE_GONE } range_place;

typedef struct range {
    range_place place;
    uint32_t slot[2]; /* of spare memory, with RANGE_SPARE: for each half, where a slot is half */
    uint32_t readers; /* of the live elements, at this moment */
    uint64_t due;     /* elements that a reader may still ask for */
} range;

struct swap_cow {
    swap_cow_config c;
    uint64_t n_ranges; /* of a part */
    range *ranges;     /* [part][range] */
    char *spare;
    uint64_t slot_bytes; /* of `each` elements of the narrowest part */
    uint32_t *free;      /* slots */
    uint32_t n_slots, n_free;
    pthread_mutex_t lock; /* of all but the elements */
    pthread_cond_t moved;
    bool open;
    uint32_t n_waiting, n_short; /* threads that wait; of them, for spare memory */
    uint64_t used_bytes;         /* of spare memory */
    swap_cow_facts facts;
};

uint64_t swap_cow_each(uint64_t extent)
{
    uint64_t each = (extent / COW_RANGES_MIN + COW_ALIGN - 1) / COW_ALIGN * COW_ALIGN;
    return each < COW_ALIGN ? COW_ALIGN : each < COW_EACH ? each : COW_EACH;
}

/* Where element `first` of the canonical vector is in that part, or what is there comes after it. */
static uint64_t place_of(const swap_cow *cow, uint32_t part, uint64_t first)
{
    return part == SWAP_STATE_V ? swap_second_at(cow->c.params, cow->c.n_params, first) : first;
}

static uint64_t elements_of(const swap_cow *cow, uint32_t part, uint64_t i)
{
    uint64_t extent = place_of(cow, part, cow->c.extent), past = (i + 1) * cow->c.each;
    return past <= extent                ? cow->c.each
           : past - extent < cow->c.each ? extent - i * cow->c.each
                                         : 0;
}

static atom_dtype dtype_of(const swap_cow *cow, uint32_t part)
{
    return swap_state_dtype((swap_state)part, cow->c.moments);
}

/* Of range i of a part. */
static uint64_t bytes_of(const swap_cow *cow, uint32_t part, uint64_t i)
{
    return elements_of(cow, part, i) * atom_dtype_bytes(dtype_of(cow, part));
}

static const char *live_at(const swap_cow *cow, uint32_t part, uint64_t element)
{
    return (const char *)cow->c.parts[part] + element * atom_dtype_bytes(dtype_of(cow, part));
}

static range *range_at(const swap_cow *cow, uint32_t part, uint64_t i)
{
    return &cow->ranges[part * cow->n_ranges + i];
}

/* Slots of a range of that part: 1 or 2. */
static uint32_t slots_of(const swap_cow *cow, uint32_t part)
{
    return (uint32_t)(cow->c.each * atom_dtype_bytes(dtype_of(cow, part)) / cow->slot_bytes);
}

static char *slot_at(const swap_cow *cow, uint32_t slot)
{
    return cow->spare + slot * cow->slot_bytes;
}

/* --- life ------------------------------------------------------------------------------------ */

atom_status swap_cow_open(const swap_cow_config *config, swap_cow **out)
{
    swap_cow *cow = atom_alloc(1, sizeof *cow);
    if (!cow)
        return atom_fail_memory("snapshots", sizeof *cow);
    cow->c = *config;
    cow->c.each = config->each ? config->each : swap_cow_each(config->extent);
    cow->n_ranges = (config->extent + cow->c.each - 1) / cow->c.each;
    cow->slot_bytes = cow->c.each * atom_dtype_bytes(config->moments);
    uint64_t slots = config->spare_bytes / cow->slot_bytes;
    uint64_t most =
        cow->n_ranges * (slots_of(cow, SWAP_STATE_MASTER) + 2); /* more are never needed */
    if (config->spare_bytes >= config->extent * atom_state_bytes(config->moments))
        slots = most; /* a last range that is short leaves the rest of its slot untouched */
    cow->n_slots = (uint32_t)(slots < most ? slots : most);
    pthread_mutex_init(&cow->lock, NULL);
    pthread_cond_init(&cow->moved, NULL);
    cow->ranges = atom_alloc(cow->n_ranges * SWAP_STATE_N, sizeof *cow->ranges);
    cow->free = atom_alloc(cow->n_slots + 1, sizeof *cow->free);
    if (cow->n_slots)
        cow->spare = atom_pages_take(cow->n_slots * cow->slot_bytes);
    if (!cow->ranges || !cow->free || (cow->n_slots && !cow->spare)) {
        swap_cow_close(&cow);
        return atom_fail_memory("spare memory for snapshots", config->spare_bytes);
    }
    *out = cow;
    return ATOM_OK;
}

void swap_cow_close(swap_cow **ref)
{
    swap_cow *cow = *ref;
    if (!cow)
        return;
    ATOM_ASSERT(!cow->open);
    if (cow->spare)
        atom_pages_give(cow->spare, cow->n_slots * cow->slot_bytes);
    pthread_cond_destroy(&cow->moved);
    pthread_mutex_destroy(&cow->lock);
    atom_free(cow->free);
    atom_free(cow->ranges);
    atom_free(cow);
    *ref = NULL;
}

void swap_cow_begin(swap_cow *cow)
{
    pthread_mutex_lock(&cow->lock);
    ATOM_ASSERT(!cow->open);
    for (uint32_t part = 0; part < SWAP_STATE_N; part++) {
        for (uint64_t i = 0; i < cow->n_ranges; i++)
            *range_at(cow, part, i) =
                (range){.place = RANGE_LIVE, .due = elements_of(cow, part, i)};
    }
    for (uint32_t s = 0; s < cow->n_slots; s++)
        cow->free[s] = cow->n_slots - 1 - s; /* the first ones first: fewer pages are touched */
    cow->n_free = cow->n_slots;
    cow->used_bytes = 0;
    cow->facts = (swap_cow_facts){0};
    cow->open = true;
    pthread_mutex_unlock(&cow->lock);
}

void swap_cow_end(swap_cow *cow)
{
    pthread_mutex_lock(&cow->lock);
    cow->open = false;
    pthread_cond_broadcast(&cow->moved);
    pthread_mutex_unlock(&cow->lock);
}

/* --- reading --------------------------------------------------------------------------------- */

static void get_piece(swap_cow *cow, swap_state part, uint64_t first, uint64_t n, float *to)
{
    uint64_t i = first / cow->c.each;
    range *r = range_at(cow, part, i);
    pthread_mutex_lock(&cow->lock);
    ATOM_ASSERT(cow->open && r->place != RANGE_GONE);
    bool live = r->place == RANGE_LIVE;
    atom_dtype dtype = dtype_of(cow, part);
    uint64_t inside = first % cow->c.each * atom_dtype_bytes(dtype);
    const char *from =
        live ? live_at(cow, part, first)
             : slot_at(cow, r->slot[inside / cow->slot_bytes]) + inside % cow->slot_bytes;
    r->readers += live;
    pthread_mutex_unlock(&cow->lock);
    swap_state_read(dtype, from, n, to);
    if (!live)
        return;
    pthread_mutex_lock(&cow->lock);
    r->readers--;
    if (cow->n_waiting)
        pthread_cond_broadcast(&cow->moved);
    pthread_mutex_unlock(&cow->lock);
}

/* Of [first, first + n), what lies before the next multiple of `each`. */
static uint64_t before_next(uint64_t each, uint64_t first, uint64_t n)
{
    uint64_t room = each - first % each;
    return n < room ? n : room;
}

/* Of [first, first + n), what lies in the range of `first`. */
static uint64_t within(const swap_cow *cow, uint64_t first, uint64_t n)
{
    return before_next(cow->c.each, first, n);
}

void swap_cow_get(swap_cow *cow, swap_state part, uint64_t first, uint64_t n, float *to)
{
    ATOM_ASSERT(first + n <= cow->c.extent);
    ATOM_ASSERT(place_of(cow, part, first) + n == place_of(cow, part, first + n));
    first = place_of(cow, part, first);
    for (uint64_t some; n > 0; first += some, to += some, n -= some) {
        some = before_next(cow->c.each / slots_of(cow, part), first, n);
        get_piece(cow, part, first, some, to);
    }
}

static void forget(swap_cow *cow, uint32_t part, uint64_t i)
{
    range *r = range_at(cow, part, i);
    r->due = 0;
    if (r->place == RANGE_SPARE) {
        cow->used_bytes -= bytes_of(cow, part, i);
        for (uint32_t s = 0; s < slots_of(cow, part); s++)
            cow->free[cow->n_free++] = r->slot[s];
        r->place = RANGE_GONE;
    }
}

void swap_cow_release(swap_cow *cow, swap_state part, uint64_t first, uint64_t n)
{
    uint64_t past = place_of(cow, part, first + n);
    pthread_mutex_lock(&cow->lock);
    first = place_of(cow, part, first);
    n = past - first;
    for (uint64_t some; n > 0; first += some, n -= some) {
        some = within(cow, first, n);
        range *r = range_at(cow, part, first / cow->c.each);
        ATOM_ASSERT(r->due >= some);
        r->due -= some;
        if (r->due == 0)
            forget(cow, part, first / cow->c.each);
    }
    pthread_cond_broadcast(&cow->moved);
    pthread_mutex_unlock(&cow->lock);
}

void swap_cow_release_all(swap_cow *cow, swap_state part)
{
    pthread_mutex_lock(&cow->lock);
    for (uint64_t i = 0; i < cow->n_ranges; i++)
        forget(cow, part, i);
    pthread_cond_broadcast(&cow->moved);
    pthread_mutex_unlock(&cow->lock);
}

/* --- before writing --------------------------------------------------------------------------- */

/* With the lock held; it is given away meanwhile. */
static void wait_for_move(swap_cow *cow, bool is_short)
{
    double begin = atom_clock_seconds();
    cow->n_waiting++;
    cow->n_short += is_short;
    pthread_cond_wait(&cow->moved, &cow->lock);
    cow->n_waiting--;
    cow->n_short -= is_short;
    cow->facts.waited_seconds += atom_clock_seconds() - begin;
}

/* With the lock held; it is given away while copying. Readers of the live elements may begin
 * meanwhile; the caller waits for them. */
static void copy_range(swap_cow *cow, uint32_t part, uint64_t i)
{
    range *r = range_at(cow, part, i);
    uint32_t slot[2] = {0}, slots = slots_of(cow, part);
    uint64_t bytes = bytes_of(cow, part, i);
    const char *from = live_at(cow, part, i * cow->c.each);
    for (uint32_t s = 0; s < slots; s++)
        slot[s] = cow->free[--cow->n_free];
    cow->used_bytes += bytes;
    if (cow->used_bytes > cow->facts.spare_peak_bytes)
        cow->facts.spare_peak_bytes = cow->used_bytes;
    pthread_mutex_unlock(&cow->lock);
    for (uint64_t at = 0, some; at < bytes; at += some) {
        some = before_next(cow->slot_bytes, at, bytes - at);
        memcpy(slot_at(cow, slot[at / cow->slot_bytes]), from + at, some);
    }
    pthread_mutex_lock(&cow->lock);
    cow->facts.copied_bytes += bytes;
    memcpy(r->slot, slot, sizeof slot);
    r->place = RANGE_SPARE;
    if (r->due == 0 || !cow->open) /* released while it was copied */
        forget(cow, part, i);
}

/* Returns once no reader needs the live elements of that range. */
static void make_safe(swap_cow *cow, uint32_t part, uint64_t i)
{
    range *r = range_at(cow, part, i);
    while (cow->open && r->place == RANGE_LIVE) {
        if (r->due == 0)
            r->place = RANGE_GONE;
        else if (cow->n_free >= slots_of(cow, part))
            copy_range(cow, part, i);
        else
            wait_for_move(cow, true);
    }
    while (cow->open && r->readers)
        wait_for_move(cow, false);
}

uint64_t swap_cow_before_write(swap_cow *cow, uint64_t first, uint64_t n)
{
    pthread_mutex_lock(&cow->lock);
    uint64_t some = cow->open ? within(cow, first, n) : n;
    for (uint32_t part = 0; part < SWAP_STATE_N; part++) {
        uint64_t from = place_of(cow, part, first), past = place_of(cow, part, first + some);
        for (uint64_t i = from / cow->c.each; cow->open && i * cow->c.each < past; i++)
            make_safe(cow, part, i);
    }
    pthread_mutex_unlock(&cow->lock);
    return some;
}

void swap_cow_leave(swap_cow *cow, uint64_t first, uint64_t n)
{
    for (uint64_t some; cow && n > 0; first += some, n -= some)
        some = swap_cow_before_write(cow, first, n);
}

bool swap_cow_is_short(swap_cow *cow)
{
    pthread_mutex_lock(&cow->lock);
    bool is_short = cow->n_short > 0;
    pthread_mutex_unlock(&cow->lock);
    return is_short;
}

swap_cow_facts swap_cow_about(swap_cow *cow)
{
    pthread_mutex_lock(&cow->lock);
    swap_cow_facts facts = cow->facts;
    pthread_mutex_unlock(&cow->lock);
    return facts;
}
