/*
 * Owns a store's lanes: ranges that were asked for, and the requests of them that are in flight.
 * One idea: requests are cut off the oldest unfinished range as long as the queue has room; what
 * comes back short is sent again from where it stopped. Refuses to order ranges: they may overtake
 * each other.
 */
#include "swap/store_inner.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <errno.h>

typedef struct range {
    char *buffer;
    uint64_t offset, bytes;
    uint64_t sent, done;
    bool write;
} range;

struct store_lane {
    store *store;
    store_queue *queue;
    uint32_t in_flight;
    uint32_t free_ios;
    store_io *io;      /* [depth] */
    store_io **unused; /* [depth], the first free_ios */
    store_io **done;   /* [depth], scratch of a reap */
    range ring[STORE_RANGES_MAX];
    uint64_t first, next; /* ranges that may be unfinished: tickets first .. next-1 */
    bool dead;
};

static range *range_of(store_lane *l, uint64_t ticket)
{
    return &l->ring[ticket % STORE_RANGES_MAX];
}

static void lane_free(store_lane *l)
{
    l->store->engine->close(l->queue);
    atom_free(l->io);
    atom_free((void *)l->unused);
    atom_free((void *)l->done);
    atom_free(l);
}

atom_status store_lane_open(store *s, store_lane **out)
{
    store_lane *l = atom_alloc(1, sizeof *l);
    if (!l)
        return atom_fail_memory("a lane of the store", sizeof *l);
    l->store = s;
    l->io = atom_alloc(s->depth, sizeof *l->io);
    l->unused = atom_alloc(s->depth, sizeof(store_io *));
    l->done = atom_alloc(s->depth, sizeof(store_io *));
    if (!l->io || !l->unused || !l->done) {
        lane_free(l);
        return atom_fail_memory("a lane of the store", s->depth * sizeof *l->io);
    }
    for (uint32_t i = 0; i < s->depth; i++)
        l->unused[i] = &l->io[i];
    l->free_ios = s->depth;
    store_queue_config config = {s->fd, s->depth, s->ring, s->ring_bytes};
    atom_status st = s->engine->open(&config, &l->queue);
    if (st != ATOM_OK) {
        lane_free(l);
        return st;
    }
    if (s->engine->registered)
        s->registered = s->engine->registered(l->queue);
    *out = l;
    return ATOM_OK;
}

static void send(store_lane *l, store_io *io)
{
    l->in_flight++;
    l->store->engine->submit(l->queue, io);
}

/* Fills the queue. */
static void pump(store_lane *l)
{
    for (uint64_t t = l->first; t < l->next; t++) {
        range *r = range_of(l, t);
        while (r->sent < r->bytes && l->free_ios > 0) {
            uint64_t left = r->bytes - r->sent, chunk = l->store->chunk_bytes;
            store_io *io = l->unused[--l->free_ios];
            *io = (store_io){.buffer = r->buffer + r->sent,
                             .offset = STORE_DATA_AT + r->offset + r->sent,
                             .bytes = (uint32_t)(left < chunk ? left : chunk),
                             .write = r->write,
                             .range = t};
            r->sent += io->bytes;
            send(l, io);
        }
    }
}

/* A request came back. Short transfers end on a block or are repeated from the last whole one. */
static atom_status finish(store_lane *l, store_io *io)
{
    l->in_flight--;
    bool again = io->result == -EINTR || io->result == -EAGAIN;
    if (!again && io->result <= 0) {
        l->unused[l->free_ios++] = io;
        return store_fail(l->store, io->write, io->offset, io->result);
    }
    uint32_t moved = again ? 0 : (uint32_t)io->result / STORE_ALIGN * STORE_ALIGN;
    if (!again && moved == 0) { /* less than a block: the file or the disk ends here */
        l->unused[l->free_ios++] = io;
        return store_fail(l->store, io->write, io->offset, io->write ? -ENOSPC : 0);
    }
    range_of(l, io->range)->done += moved;
    if (moved == io->bytes) {
        l->unused[l->free_ios++] = io;
        return ATOM_OK;
    }
    io->buffer += moved;
    io->offset += moved;
    io->bytes -= moved;
    send(l, io);
    return ATOM_OK;
}

/* Waits for one request at least. The first failure is kept; the rest is still collected. */
static atom_status step(store_lane *l)
{
    uint32_t n = 0;
    atom_status st = l->store->engine->reap(l->queue, l->done, l->store->depth, &n);
    for (uint32_t i = 0; i < n; i++) {
        if (st == ATOM_OK)
            st = finish(l, l->done[i]);
        else {
            l->in_flight--;
            l->unused[l->free_ios++] = l->done[i];
        }
    }
    return st;
}

static atom_status die(store_lane *l, atom_status st)
{
    l->dead = true;
    return st;
}

static atom_status check_dead(const store_lane *l)
{
    return l->dead ? atom_fail(ATOM_E_DEAD, "%s: an earlier read or write failed", l->store->path)
                   : ATOM_OK;
}

/* Ranges in front that are done make room for new ones. */
static void retire(store_lane *l)
{
    while (l->first < l->next && range_of(l, l->first)->done == range_of(l, l->first)->bytes)
        l->first++;
}

static atom_status start(store_lane *l, bool write, char *buffer, uint64_t offset, uint64_t bytes,
                         uint64_t *ticket)
{
    const store *s = l->store;
    ATOM_ASSERT(offset % STORE_ALIGN == 0 && bytes % STORE_ALIGN == 0 &&
                (uintptr_t)buffer % STORE_ALIGN == 0);
    ATOM_ASSERT(bytes <= s->bytes && offset <= s->bytes - bytes);
    atom_status st = check_dead(l);
    while (st == ATOM_OK && l->next - l->first == STORE_RANGES_MAX) {
        st = step(l);
        pump(l);
        retire(l);
    }
    if (st != ATOM_OK)
        return die(l, st);
    *range_of(l, l->next) =
        (range){.buffer = buffer, .offset = offset, .bytes = bytes, .write = write};
    *ticket = l->next++;
    pump(l);
    st = s->engine->flush(l->queue);
    return st == ATOM_OK ? st : die(l, st);
}

atom_status store_read(store_lane *lane, void *buffer, uint64_t offset, uint64_t bytes,
                       uint64_t *ticket)
{
    return start(lane, false, buffer, offset, bytes, ticket);
}

atom_status store_write(store_lane *lane, const void *buffer, uint64_t offset, uint64_t bytes,
                        uint64_t *ticket)
{
    return start(lane, true, (char *)(uintptr_t)buffer, offset, bytes, ticket);
}

atom_status store_wait(store_lane *l, uint64_t ticket)
{
    ATOM_ASSERT(ticket < l->next);
    atom_status st = check_dead(l);
    retire(l);
    while (st == ATOM_OK && l->first <= ticket) {
        st = step(l);
        pump(l);
        retire(l);
    }
    return st == ATOM_OK ? st : die(l, st);
}

void store_lane_close(store_lane **lane)
{
    if (!*lane)
        return;
    store_lane *l = *lane;
    l->next = l->first; /* nothing more is sent, what is in flight is collected */
    while (l->in_flight > 0) {
        uint32_t n = 0;
        if (l->store->engine->reap(l->queue, l->done, l->store->depth, &n) != ATOM_OK)
            break;
        l->in_flight -= n;
    }
    lane_free(l);
    *lane = NULL;
}
