/*
 * Owns the reading of files that are not stores. One idea: a window of whole chunks, each a request
 * in flight or a buffer that is full, moves along the file; the reader looks straight into the
 * buffers. Refuses to fail for bytes that were not asked for.
 */
#include "swap/stream.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "swap/store_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* One chunk of the window. */
typedef struct slot {
    store_io io;
    uint32_t wanted, have; /* bytes of the chunk */
    bool flying;
    int64_t failed; /* 0, or what the kernel said; SHORT: the file ended early */
} slot;

enum { SHORT = 1, WINDOW_MIN = 2, SAMPLES = 16 };

struct swap_stream {
    char *path;
    int fd; /* ours, where it reads past the page cache; else the caller's */
    bool direct;
    uint64_t bytes;
    uint32_t chunk, depth, ahead; /* ahead: chunks of the window now */
    uint64_t first, next;         /* chunks first .. next-1 are here or in flight */
    const store_engine *engine;
    store_queue *queue;
    char *ring;
    uint64_t ring_bytes;
    slot *slots;
    store_io **done;
};

static slot *slot_of(swap_stream *s, uint64_t chunk)
{
    return &s->slots[chunk % s->depth];
}

/* The same file once more, for direct reads; -1: it is another one by now, or cannot. */
static int open_direct(const char *path, int fd)
{
    struct stat a, b;
    int again = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
    if (again < 0)
        return -1;
    if (fstat(fd, &a) == 0 && fstat(again, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev)
        return again;
    (void)close(again);
    return -1;
}

atom_status swap_stream_open(const swap_stream_config *config, swap_stream **out)
{
    atom_status st;
    ATOM_ASSERT(config->depth <= STORE_DEPTH_MAX && config->chunk_bytes % STORE_ALIGN == 0);
    swap_stream *s = atom_alloc(1, sizeof *s);
    if (!s)
        return atom_fail_memory("reading a file", sizeof *s);
    s->chunk = config->chunk_bytes ? config->chunk_bytes : STORE_CHUNK_BYTES;
    s->depth = config->depth ? config->depth : STORE_DEPTH;
    s->bytes = config->bytes;
    s->ring_bytes = atom_align((uint64_t)s->chunk * s->depth);
    int fd = open_direct(config->path, config->fd);
    s->direct = fd >= 0;
    s->fd = s->direct ? fd : config->fd;
    s->path = atom_strdup(config->path);
    s->slots = atom_alloc(s->depth, sizeof *s->slots);
    s->done = atom_alloc(s->depth, sizeof(store_io *));
    s->ring = atom_pages_take(s->ring_bytes);
    if (!s->path || !s->slots || !s->done || !s->ring) {
        st = atom_fail_memory("reading a file", s->ring_bytes);
        goto cleanup;
    }
    store_queue_config queue = {s->fd, s->depth, s->ring, s->ring_bytes};
    s->engine = config->engine;
    ATOM_TRY_CLEAN(store_queue_open(config->kind, s->direct, &queue, &s->engine, &s->queue));
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
    t->io = (store_io){.buffer = s->ring + (chunk % s->depth) * s->chunk + at,
                       .offset = chunk * s->chunk + at,
                       .bytes = bytes,
                       .range = chunk};
    s->engine->submit(s->queue, &t->io);
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
    atom_status st = s->engine->reap(s->queue, s->done, s->depth, &n);
    for (uint32_t i = 0; i < n; i++)
        finish(s, s->done[i]);
    return st == ATOM_OK && n > 0 ? s->engine->flush(s->queue) : st;
}

static atom_status land(swap_stream *s, slot *t)
{
    atom_status st = ATOM_OK;
    while (st == ATOM_OK && t->flying)
        st = reap(s);
    return st;
}

static atom_status fill_window(swap_stream *s)
{
    for (; s->next < s->first + s->ahead && s->next * s->chunk < s->bytes; s->next++) {
        slot *t = slot_of(s, s->next);
        uint64_t left = s->bytes - s->next * s->chunk;
        ATOM_TRY(land(s, t)); /* one that was skipped */
        *t = (slot){.wanted = (uint32_t)(left < s->chunk ? left : s->chunk)};
        send(s, t, s->next);
    }
    return s->engine->flush(s->queue);
}

/* The window begins with this chunk from now on. */
static void move_window(swap_stream *s, uint64_t chunk)
{
    if (chunk < s->first || chunk > s->next) {
        s->first = s->next = chunk;
        s->ahead = s->depth < WINDOW_MIN ? s->depth : WINDOW_MIN;
    } else if (chunk > s->first || s->ahead == 0) {
        s->first = chunk;
        s->ahead = s->ahead * 2 < s->depth ? s->ahead * 2 : s->depth;
    }
}

atom_status swap_stream_view(swap_stream *s, uint64_t offset, uint64_t most, const void **at,
                             uint64_t *n)
{
    ATOM_ASSERT(offset < s->bytes && most > 0);
    uint64_t chunk = offset / s->chunk, within = offset % s->chunk;
    if (s->ahead == 0)
        s->ahead = 1;
    move_window(s, chunk);
    atom_status st = fill_window(s);
    slot *t = slot_of(s, chunk);
    if (st == ATOM_OK)
        st = land(s, t);
    if (st != ATOM_OK)
        return st;
    if (t->failed) { /* asked for again, it is tried again */
        int64_t failed = t->failed;
        s->next = s->first;
        if (failed == SHORT)
            return atom_fail(ATOM_E_FORMAT, "%s became shorter while it was read", s->path);
        return atom_fail_errno((int)-failed, "cannot read %s", s->path);
    }
    uint64_t here = t->wanted - within;
    *at = s->ring + (chunk % s->depth) * s->chunk + within;
    *n = most < here ? most : here;
    return ATOM_OK;
}

void swap_stream_close(swap_stream **ref)
{
    swap_stream *s = *ref;
    if (!s)
        return;
    for (uint32_t i = 0; s->queue && i < s->depth; i++) {
        if (land(s, &s->slots[i]) != ATOM_OK)
            break;
    }
    if (s->queue)
        s->engine->close(s->queue);
    if (s->direct)
        (void)close(s->fd);
    if (s->ring)
        atom_pages_give(s->ring, s->ring_bytes);
    atom_free(s->slots);
    atom_free((void *)s->done);
    atom_free(s->path);
    atom_free(s);
    *ref = NULL;
}

bool swap_stream_direct(const swap_stream *s)
{
    return s->direct;
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
