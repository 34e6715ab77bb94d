/*
 * Owns files on their way out past the page cache. One idea: a ring of chunks, of which one is
 * being filled and the others are in flight; a chunk is waited for when its turn comes again.
 * Refuses file systems without direct writes: their page cache does the same.
 */
#include "swap/writer.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "swap/store_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct chunk {
    store_io io;
    bool flying;
} chunk;

struct swap_writer {
    char *path;
    int fd;
    uint64_t bytes, put; /* of the file; so far */
    uint32_t chunk_bytes, depth;
    const store_engine *engine;
    store_queue *queue;
    char *ring;
    uint64_t ring_bytes;
    chunk *chunks;
    store_io **done;
    atom_status failed;
    int code; /* of the first failure; 0: none */
    uint64_t code_at;
};

static int open_direct(const char *path, int fd)
{
    struct stat a, b;
    int again = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_DIRECT);
    if (again < 0)
        return -1;
    if (fstat(fd, &a) == 0 && fstat(again, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev)
        return again;
    (void)close(again);
    return -1;
}

atom_status swap_writer_open(const swap_writer_config *config, swap_writer **out)
{
    atom_status st;
    ATOM_ASSERT(config->depth <= STORE_DEPTH_MAX && config->chunk_bytes % STORE_ALIGN == 0);
    swap_writer *w = atom_alloc(1, sizeof *w);
    if (!w)
        return atom_fail_memory("writing a file", sizeof *w);
    w->chunk_bytes = config->chunk_bytes ? config->chunk_bytes : STORE_CHUNK_BYTES;
    w->depth = config->depth ? config->depth : SWAP_WRITER_DEPTH;
    w->bytes = config->bytes;
    w->ring_bytes = atom_align((uint64_t)w->chunk_bytes * w->depth);
    w->fd = open_direct(config->path, config->fd);
    if (w->fd < 0) {
        st = atom_fail(ATOM_E_UNSUPPORTED, "%s: no direct writes here", config->path);
        goto cleanup;
    }
    w->path = atom_strdup(config->path);
    w->chunks = atom_alloc(w->depth, sizeof *w->chunks);
    w->done = atom_alloc(w->depth, sizeof(store_io *));
    w->ring = atom_pages_take(w->ring_bytes);
    if (!w->path || !w->chunks || !w->done || !w->ring) {
        st = atom_fail_memory("writing a file", w->ring_bytes);
        goto cleanup;
    }
    store_queue_config queue = {w->fd, w->depth, w->ring, w->ring_bytes};
    w->engine = config->engine;
    ATOM_TRY_CLEAN(store_queue_open(config->kind, true, &queue, &w->engine, &w->queue));
    *out = w;
    return ATOM_OK;
cleanup:
    swap_writer_close(&w);
    return st;
}

static void send(swap_writer *w, chunk *c)
{
    c->flying = true;
    w->engine->submit(w->queue, &c->io);
}

/* A request came back: done, failed, or to be continued from its last whole block. */
static void finish_io(swap_writer *w, store_io *io)
{
    chunk *c = &w->chunks[io->range];
    bool again = io->result == -EINTR || io->result == -EAGAIN;
    uint32_t moved = again || io->result < 0 ? 0 : (uint32_t)io->result / STORE_ALIGN * STORE_ALIGN;
    c->flying = false;
    if (moved >= io->bytes)
        return;
    if (!again && moved == 0) { /* less than a block: the disk ends here */
        w->code_at = w->code ? w->code_at : io->offset;
        w->code = w->code ? w->code : io->result < 0 ? (int)-io->result : ENOSPC;
        return;
    }
    io->buffer += moved;
    io->offset += moved;
    io->bytes -= moved;
    send(w, c);
}

static atom_status fail_io(swap_writer *w)
{
    if (w->code == ENOSPC || w->code == EDQUOT || w->code == EFBIG)
        w->failed = atom_fail(ATOM_E_RESOURCE,
                              "cannot write %s: %s at byte %llu; free some space or choose another "
                              "directory",
                              w->path, strerror(w->code), (unsigned long long)w->code_at);
    else
        w->failed = atom_fail_errno(w->code, "cannot write %s at byte %llu", w->path,
                                    (unsigned long long)w->code_at);
    return w->failed;
}

/* Until that chunk may be filled again. */
static atom_status land(swap_writer *w, chunk *c)
{
    while (c->flying) {
        uint32_t n = 0;
        atom_status st = w->engine->reap(w->queue, w->done, w->depth, &n);
        for (uint32_t i = 0; i < n; i++)
            finish_io(w, w->done[i]);
        if (st == ATOM_OK)
            st = w->engine->flush(w->queue);
        if (st != ATOM_OK)
            return w->failed = st;
    }
    return w->code ? fail_io(w) : ATOM_OK;
}

/* The chunk that ends at what was put so far goes out; its last block is padded. */
static atom_status send_chunk(swap_writer *w)
{
    uint64_t i = (w->put - 1) / w->chunk_bytes, at = i * w->chunk_bytes, bytes = w->put - at;
    uint64_t whole = (bytes + STORE_ALIGN - 1) / STORE_ALIGN * STORE_ALIGN;
    uint32_t slot = (uint32_t)(i % w->depth);
    char *buffer = w->ring + (uint64_t)slot * w->chunk_bytes;
    memset(buffer + bytes, 0, whole - bytes);
    w->chunks[slot].io = (store_io){
        .buffer = buffer, .offset = at, .bytes = (uint32_t)whole, .write = true, .range = slot};
    send(w, &w->chunks[slot]);
    atom_status st = w->engine->flush(w->queue);
    return st == ATOM_OK ? st : (w->failed = st);
}

static atom_status dead(const swap_writer *w)
{
    return atom_fail(w->failed, "cannot write %s: an earlier write failed", w->path);
}

atom_status swap_writer_put(swap_writer *w, const void *data, uint64_t bytes)
{
    ATOM_ASSERT(bytes <= w->bytes - w->put);
    const char *from = data;
    atom_status st = w->failed ? dead(w) : ATOM_OK;
    while (bytes > 0 && st == ATOM_OK) {
        uint32_t slot = (uint32_t)(w->put / w->chunk_bytes % w->depth);
        uint64_t within = w->put % w->chunk_bytes, room = w->chunk_bytes - within;
        uint64_t some = bytes < room ? bytes : room;
        if (within == 0)
            ATOM_TRY(land(w, &w->chunks[slot]));
        memcpy(w->ring + (uint64_t)slot * w->chunk_bytes + within, from, some);
        w->put += some;
        from += some;
        bytes -= some;
        if (some == room)
            st = send_chunk(w);
    }
    return st;
}

atom_status swap_writer_finish(swap_writer *w)
{
    ATOM_ASSERT(w->put == w->bytes);
    atom_status st = w->failed ? dead(w) : ATOM_OK;
    if (st == ATOM_OK && w->put % w->chunk_bytes)
        st = send_chunk(w);
    for (uint32_t i = 0; i < w->depth && st == ATOM_OK; i++)
        st = land(w, &w->chunks[i]);
    if (st == ATOM_OK && ftruncate(w->fd, (off_t)w->bytes))
        st = w->failed = atom_fail_errno(errno, "cannot write %s", w->path);
    return st;
}

void swap_writer_close(swap_writer **ref)
{
    swap_writer *w = *ref;
    if (!w)
        return;
    for (uint32_t i = 0; w->queue && i < w->depth; i++) {
        while (w->chunks[i].flying && land(w, &w->chunks[i]) == ATOM_OK)
            ;
    }
    if (w->queue)
        w->engine->close(w->queue);
    if (w->fd >= 0)
        (void)close(w->fd);
    if (w->ring)
        atom_pages_give(w->ring, w->ring_bytes);
    atom_free(w->chunks);
    atom_free((void *)w->done);
    atom_free(w->path);
    atom_free(w);
    *ref = NULL;
}
