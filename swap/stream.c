/*
 * Owns the reading of files that are not stores. One idea: a window of whole chunks, each a request
 * in flight or a buffer that is full, moves along the file; the reader looks straight into the
 * buffers. Refuses to fail for bytes that were not asked for.
 */
#include "swap/stream.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>

/* One chunk of the window. */
typedef struct slot {
    store_io io;
    uint32_t wanted, have; /* bytes of the chunk */
    bool flying;
    int64_t failed; /* 0, or what the kernel said; SHORT: the file ended early */
} slot;

enum { SHORT = 1, WINDOW_MIN = 2, SAMPLES = 16 };

struct swap_stream {
    swap_file_ring f;
    uint64_t bytes;
    uint32_t ahead;       /* chunks of the window now */
    uint64_t first, next; /* chunks first .. next-1 are here or in flight */
    slot *slots;
};

static slot *slot_of(swap_stream *s, uint64_t chunk)
{
    return &s->slots[chunk % s->f.depth];
}

atom_status swap_stream_open(const swap_file_config *config, swap_stream **out)
{
    atom_status st;
    swap_stream *s = atom_alloc(1, sizeof *s);
    if (!s)
        return atom_fail_memory("reading a file", sizeof *s);
    s->bytes = config->bytes;
    ATOM_TRY_CLEAN(swap_file_ring_open(config, O_RDONLY | O_NONBLOCK, STORE_DEPTH, &s->f));
    s->slots = atom_alloc(s->f.depth, sizeof *s->slots);
    if (!s->slots)
        ATOM_TRY_CLEAN(atom_fail_memory("reading a file", s->f.depth * sizeof *s->slots));
    *out = s;
    return ATOM_OK;
cleanup:
    swap_stream_close(&s);
    return st;
}

/* What is missing of a slot's chunk, in whole blocks. */
static void send(swap_stream *s, slot *t, uint64_t chunk)
{
    uint32_t at = t->have / STORE_ALIGN * STORE_ALIGN;
    uint32_t bytes = (t->wanted - at + STORE_ALIGN - 1) / STORE_ALIGN * STORE_ALIGN;
    t->have = at;
    t->flying = true;
    t->io = (store_io){.buffer = swap_file_ring_chunk(&s->f, chunk) + at,
                       .offset = chunk * s->f.chunk_bytes + at,
                       .bytes = bytes,
                       .range = chunk};
    s->f.engine->submit(s->f.queue, &t->io);
}

/* A request came back: the chunk is here, or the rest of it is asked for. */
static void finish(swap_stream *s, store_io *io)
{
    slot *t = slot_of(s, io->range);
    bool again = io->result == -EINTR || io->result == -EAGAIN;
    uint32_t before = t->have;
    t->flying = false;
    if (!again && io->result < 0)
        t->failed = io->result;
    else if (!again)
        t->have += (uint32_t)io->result;
    if (t->failed || t->have >= t->wanted)
        return;
    if (!again && t->have / STORE_ALIGN == before / STORE_ALIGN)
        t->failed = SHORT; /* less than a block, and not the end that we know of */
    else
        send(s, t, io->range);
}

/* Waits for one request at least. */
static atom_status reap(swap_stream *s)
{
    uint32_t n = 0;
    atom_status st = s->f.engine->reap(s->f.queue, s->f.done, s->f.depth, &n);
    for (uint32_t i = 0; i < n; i++)
        finish(s, s->f.done[i]);
    return st == ATOM_OK && n > 0 ? s->f.engine->flush(s->f.queue) : st;
}

static atom_status land(swap_stream *s, slot *t)
{
    while (t->flying)
        ATOM_TRY(reap(s));
    return ATOM_OK;
}

static atom_status fill_window(swap_stream *s)
{
    for (; s->next < s->first + s->ahead && s->next * s->f.chunk_bytes < s->bytes; s->next++) {
        slot *t = slot_of(s, s->next);
        uint64_t left = s->bytes - s->next * s->f.chunk_bytes;
        ATOM_TRY(land(s, t)); /* one that was skipped */
        *t = (slot){.wanted = (uint32_t)(left < s->f.chunk_bytes ? left : s->f.chunk_bytes)};
        send(s, t, s->next);
    }
    return s->f.engine->flush(s->f.queue);
}

/* The window begins with this chunk from now on. */
static void move_window(swap_stream *s, uint64_t chunk)
{
    if (chunk < s->first || chunk > s->next) {
        s->first = s->next = chunk;
        s->ahead = s->f.depth < WINDOW_MIN ? s->f.depth : WINDOW_MIN;
    } else if (chunk > s->first || s->ahead == 0) {
        s->first = chunk;
        s->ahead = s->ahead * 2 < s->f.depth ? s->ahead * 2 : s->f.depth;
    }
}

atom_status swap_stream_view(swap_stream *s, uint64_t offset, uint64_t most, const void **at,
                             uint64_t *n)
{
    ATOM_ASSERT(offset < s->bytes && most > 0);
    uint64_t chunk = offset / s->f.chunk_bytes, within = offset % s->f.chunk_bytes;
    if (s->ahead == 0)
        s->ahead = 1;
    move_window(s, chunk);
    ATOM_TRY(fill_window(s));
    slot *t = slot_of(s, chunk);
    ATOM_TRY(land(s, t));
    if (t->failed) { /* asked for again, it is tried again */
        int64_t failed = t->failed;
        s->next = s->first;
        if (failed == SHORT)
            return atom_fail(ATOM_E_FORMAT, "%s became shorter while it was read", s->f.path);
        return atom_fail_errno((int)-failed, "cannot read %s", s->f.path);
    }
    uint64_t here = t->wanted - within;
    *at = swap_file_ring_chunk(&s->f, chunk) + within;
    *n = most < here ? most : here;
    return ATOM_OK;
}

void swap_stream_close(swap_stream **ref)
{
    swap_stream *s = *ref;
    if (!s)
        return;
    for (uint32_t i = 0; s->slots && i < s->f.depth; i++) {
        if (land(s, &s->slots[i]) != ATOM_OK)
            break;
    }
    swap_file_ring_close(&s->f);
    atom_free(s->slots);
    atom_free(s);
    *ref = NULL;
}

bool swap_stream_direct(const swap_stream *s)
{
    return s->f.direct;
}

bool swap_stream_is_cached(int fd, uint64_t bytes)
{
    uint32_t hits = 0;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        char byte;
        struct iovec one = {&byte, 1};
        hits += preadv2(fd, &one, 1, (off_t)(bytes / SAMPLES * i), RWF_NOWAIT) == 1;
    }
    return hits >= SAMPLES - 2;
}
