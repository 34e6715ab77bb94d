/*
 * Owns the means of stream and writer. One idea: the file is the caller's, but what is read or
 * written past the page cache needs a descriptor of its own. Refuses a path that has become another
 * file.
 */
#include "swap/file_ring.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* The same file once more, for direct requests; -1: it is another one by now, or cannot. */
static int open_direct(const char *path, int flags, int fd)
{
    struct stat a, b;
    int again = open(path, flags | O_CLOEXEC | O_DIRECT);
    if (again < 0)
        return -1;
    if (fstat(fd, &a) == 0 && fstat(again, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev)
        return again;
    (void)close(again);
    return -1;
}

atom_status swap_file_ring_open(const swap_file_config *config, int flags, uint32_t depth,
                                swap_file_ring *r)
{
    ATOM_ASSERT(config->depth <= STORE_DEPTH_MAX && config->chunk_bytes % STORE_ALIGN == 0);
    int fd = open_direct(config->path, flags, config->fd);
    *r = (swap_file_ring){.direct = fd >= 0, .engine = config->engine};
    r->fd = r->direct ? fd : config->fd;
    r->chunk_bytes = config->chunk_bytes ? config->chunk_bytes : STORE_CHUNK_BYTES;
    r->depth = config->depth ? config->depth : depth;
    r->memory_bytes = atom_align((uint64_t)r->chunk_bytes * r->depth);
    r->path = atom_strdup(config->path);
    r->done = atom_alloc(r->depth, sizeof(store_io *));
    r->memory = atom_pages_take(r->memory_bytes);
    if (!r->path || !r->done || !r->memory)
        return atom_fail_memory("reading or writing a file", r->memory_bytes);
    store_queue_config queue = {r->fd, r->depth, r->memory, r->memory_bytes};
    return store_queue_open(config->kind, r->direct, &queue, &r->engine, &r->queue);
}

void swap_file_ring_close(swap_file_ring *r)
{
    if (r->queue)
        r->engine->close(r->queue);
    if (r->direct)
        (void)close(r->fd);
    if (r->memory)
        atom_pages_give(r->memory, r->memory_bytes);
    atom_free((void *)r->done);
    atom_free(r->path);
    *r = (swap_file_ring){0};
}
