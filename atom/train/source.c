/*
 * Owns the choice of how a model file is read. One idea: the store's queues where a disk has to
 * work, the page cache where it need not. Refuses to fail where only the fast way is refused: a
 * machine without queues reads the plain way.
 */
#include "atom/train/source.h"

#include "swap/stream.h"
#include "swap/writer.h"

#include <stddef.h>

static atom_status source_open(const void *ctx, const char *path, int fd, uint64_t bytes,
                               void **reader)
{
    const store_kind *kind = ctx;
    swap_stream_config config = {
        .path = path, .fd = fd, .bytes = bytes, .kind = kind ? *kind : STORE_AUTO};
    swap_stream *s = NULL;
    *reader = NULL;
    if (bytes < TRAIN_SOURCE_FILE_MIN || swap_stream_is_cached(fd, bytes))
        return ATOM_OK;
    if (swap_stream_open(&config, &s) == ATOM_OK)
        *reader = s;
    return ATOM_OK;
}

static atom_status source_view(void *reader, uint64_t offset, uint64_t most, const void **at,
                               uint64_t *n)
{
    return swap_stream_view(reader, offset, most, at, n);
}

static void source_close(void *reader)
{
    swap_stream *s = reader;
    swap_stream_close(&s);
}

file_source train_file_source(const store_kind *kind)
{
    return (file_source){kind, source_open, source_view, source_close};
}

static atom_status sink_open(const void *ctx, const char *path, int fd, uint64_t bytes,
                             void **writer)
{
    const store_kind *kind = ctx;
    swap_writer_config config = {
        .path = path, .fd = fd, .bytes = bytes, .kind = kind ? *kind : STORE_AUTO};
    swap_writer *w = NULL;
    *writer = NULL;
    if (bytes >= TRAIN_SOURCE_FILE_MIN && swap_writer_open(&config, &w) == ATOM_OK)
        *writer = w;
    return ATOM_OK;
}

static atom_status sink_write(void *writer, const void *data, uint64_t bytes)
{
    return swap_writer_put(writer, data, bytes);
}

static atom_status sink_finish(void *writer)
{
    return swap_writer_finish(writer);
}

static void sink_close(void *writer)
{
    swap_writer *w = writer;
    swap_writer_close(&w);
}

file_sink train_file_sink(const store_kind *kind)
{
    return (file_sink){kind, sink_open, sink_write, sink_finish, sink_close};
}
