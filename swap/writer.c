/*
 * Owns files on their way out past the page cache. One idea: a ring of chunks, of which one is
 * being filled and the others are in flight; a chunk is waited for when its turn comes again.
 * Refuses file systems without direct writes: their page cache does the same.
 */
#include "swap/writer.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

typedef struct chunk {
    store_io io;
    bool flying;
} chunk;

struct swap_writer {
    swap_file_ring f;
    uint64_t bytes, put; /* of the file; so far */
    chunk *chunks;
    atom_status failed;
    int code; /* of the first failure; 0: none */
    uint64_t code_at;
};

atom_status swap_writer_open(const swap_file_config *config, swap_writer **out)
{
    atom_status st;
    swap_writer *w = atom_alloc(1, sizeof *w);
    if (!w)
        return atom_fail_memory("writing a file", sizeof *w);
    w->bytes = config->bytes;
    ATOM_TRY_CLEAN(swap_file_ring_open(config, O_WRONLY | O_NOFOLLOW, SWAP_WRITER_DEPTH, &w->f));
    if (!w->f.direct)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_UNSUPPORTED, "%s: no direct writes here", config->path));
    w->chunks = atom_alloc(w->f.depth, sizeof *w->chunks);
    if (!w->chunks)
        ATOM_TRY_CLEAN(atom_fail_memory("writing a file", w->f.depth * sizeof *w->chunks));
    *out = w;
    return ATOM_OK;
cleanup:
    swap_writer_close(&w);
    return st;
}

static void send(swap_writer *w, chunk *c)
{
    c->flying = true;
    w->f.engine->submit(w->f.queue, &c->io);
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
                              w->f.path, strerror(w->code), (unsigned long long)w->code_at);
    else
        w->failed = atom_fail_errno(w->code, "cannot write %s at byte %llu", w->f.path,
                                    (unsigned long long)w->code_at);
    return w->failed;
}

/* Until that chunk may be filled again. */
static atom_status land(swap_writer *w, chunk *c)
{
    while (c->flying) {
        uint32_t n = 0;
        atom_status st = w->f.engine->reap(w->f.queue, w->f.done, w->f.depth, &n);
        for (uint32_t i = 0; i < n; i++)
            finish_io(w, w->f.done[i]);
        if (st == ATOM_OK)
            st = w->f.engine->flush(w->f.queue);
        if (st != ATOM_OK)
            return w->failed = st;
    }
    return w->code ? fail_io(w) : ATOM_OK;
}

/* The chunk that ends at what was put so far goes out; its last block is padded. */
static atom_status send_chunk(swap_writer *w)
{
    uint64_t i = (w->put - 1) / w->f.chunk_bytes, at = i * w->f.chunk_bytes, bytes = w->put - at;
    uint64_t whole = (bytes + STORE_ALIGN - 1) / STORE_ALIGN * STORE_ALIGN;
    uint32_t slot = (uint32_t)(i % w->f.depth);
    char *buffer = swap_file_ring_chunk(&w->f, i);
    memset(buffer + bytes, 0, whole - bytes);
    w->chunks[slot].io = (store_io){
        .buffer = buffer, .offset = at, .bytes = (uint32_t)whole, .write = true, .range = slot};
    send(w, &w->chunks[slot]);
    atom_status st = w->f.engine->flush(w->f.queue);
    return st == ATOM_OK ? st : (w->failed = st);
}

static atom_status dead(const swap_writer *w)
{
    return atom_fail(w->failed, "cannot write %s: an earlier write failed", w->f.path);
}

atom_status swap_writer_put(swap_writer *w, const void *data, uint64_t bytes)
{
    ATOM_ASSERT(bytes <= w->bytes - w->put);
    const char *from = data;
    atom_status st = w->failed ? dead(w) : ATOM_OK;
    while (bytes > 0 && st == ATOM_OK) {
        uint32_t slot = (uint32_t)(w->put / w->f.chunk_bytes % w->f.depth);
        uint64_t within = w->put % w->f.chunk_bytes, room = w->f.chunk_bytes - within;
        uint64_t some = bytes < room ? bytes : room;
        if (within == 0)
            ATOM_TRY(land(w, &w->chunks[slot]));
        memcpy(swap_file_ring_chunk(&w->f, slot) + within, from, some);
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
    if (st == ATOM_OK && w->put % w->f.chunk_bytes)
        st = send_chunk(w);
    for (uint32_t i = 0; i < w->f.depth && st == ATOM_OK; i++)
        st = land(w, &w->chunks[i]);
    if (st == ATOM_OK && ftruncate(w->f.fd, (off_t)w->bytes))
        st = w->failed = atom_fail_errno(errno, "cannot write %s", w->f.path);
    return st;
}

void swap_writer_close(swap_writer **ref)
{
    swap_writer *w = *ref;
    if (!w)
        return;
    for (uint32_t i = 0; w->chunks && i < w->f.depth; i++) {
        while (w->chunks[i].flying && land(w, &w->chunks[i]) == ATOM_OK)
            ;
    }
    swap_file_ring_close(&w->f);
    atom_free(w->chunks);
    atom_free(w);
    *ref = NULL;
}
