/*
 * Owns the choice of how a model file is read. One idea: the store's queues where a disk has to
 * work and the plan has counted their memory, the page cache where it need not. Refuses to fail
 * where only the fast way is refused: a machine without queues reads the plain way.
 */
#include "atom/plan/source.h"

#include "atom/base/mem.h"
#include "partition/plan.h"
#include "swap/stream.h"
#include "swap/writer.h"

#include <stdatomic.h>
#include <stddef.h>

_Static_assert((int)SWAP_STREAM_BYTES <= (int)PART_WINDOW_BYTES, "one file that is read");
_Static_assert(2 * (int)SWAP_WRITER_BYTES <= (int)PART_WINDOW_BYTES, "two that are written");
_Static_assert((int)PLAN_SOURCE_FILE_MIN / 8 <= (int)PART_WINDOW_ELEMENTS_MIN,
               "moments of models without windows are small files");

/* One open file, and what it takes of the windows. */
typedef struct window {
    plan_files *files; /* NULL: nobody counts */
    uint64_t bytes;
    swap_stream *stream;
    swap_writer *writer;
} window;

static bool take(plan_files *files, uint64_t bytes)
{
    if (!files)
        return true;
    uint64_t now = atomic_fetch_add(&files->now, bytes) + bytes;
    if (now > files->most) {
        atomic_fetch_sub(&files->now, bytes);
        return false;
    }
    uint64_t peak = atomic_load(&files->peak);
    while (now > peak && !atomic_compare_exchange_weak(&files->peak, &peak, now))
        ;
    return true;
}

/* NULL: there is no room. */
static window *window_open(plan_files *files, uint64_t bytes)
{
    if (!take(files, bytes))
        return NULL;
    window *w = atom_alloc(1, sizeof *w);
    if (w)
        *w = (window){.files = files, .bytes = bytes};
    else if (files)
        atomic_fetch_sub(&files->now, bytes);
    return w;
}

static void window_close(void *opened)
{
    window *w = opened;
    swap_stream_close(&w->stream);
    swap_writer_close(&w->writer);
    if (w->files)
        atomic_fetch_sub(&w->files->now, w->bytes);
    atom_free(w);
}

static atom_status source_open(void *ctx, const char *path, int fd, uint64_t bytes, void **reader)
{
    plan_files *files = ctx;
    swap_file_config config = {
        .path = path, .fd = fd, .bytes = bytes, .kind = files ? files->kind : STORE_AUTO};
    *reader = NULL;
    if (bytes < PLAN_SOURCE_FILE_MIN || swap_stream_is_cached(fd, bytes))
        return ATOM_OK;
    window *w = window_open(files, SWAP_STREAM_BYTES);
    if (w && swap_stream_open(&config, &w->stream) == ATOM_OK)
        *reader = w;
    else if (w)
        window_close(w);
    return ATOM_OK;
}

static atom_status source_view(void *reader, uint64_t offset, uint64_t most, const void **at,
                               uint64_t *n)
{
    return swap_stream_view(((window *)reader)->stream, offset, most, at, n);
}

file_source plan_file_source(plan_files *files)
{
    return (file_source){files, source_open, source_view, window_close};
}

static atom_status sink_open(void *ctx, const char *path, int fd, uint64_t bytes, void **writer)
{
    plan_files *files = ctx;
    swap_file_config config = {
        .path = path, .fd = fd, .bytes = bytes, .kind = files ? files->kind : STORE_AUTO};
    *writer = NULL;
    if (bytes < PLAN_SOURCE_FILE_MIN)
        return ATOM_OK;
    window *w = window_open(files, SWAP_WRITER_BYTES);
    if (w && swap_writer_open(&config, &w->writer) == ATOM_OK)
        *writer = w;
    else if (w)
        window_close(w);
    return ATOM_OK;
}

static atom_status sink_write(void *writer, const void *data, uint64_t bytes)
{
    return swap_writer_put(((window *)writer)->writer, data, bytes);
}

static atom_status sink_finish(void *writer)
{
    return swap_writer_finish(((window *)writer)->writer);
}

file_sink plan_file_sink(plan_files *files)
{
    return (file_sink){files, sink_open, sink_write, sink_finish, window_close};
}
