/*
 * A source that gives a few bytes at a time, mostly at odd addresses, and a sink that takes pieces
 * of any length: through both, files are read and written as if there were none. One of each is
 * open at a time. Include in tests only.
 */
#ifndef TESTS_THROUGH_H
#define TESTS_THROUGH_H

#include "atom/file/source.h"

#include <stdbool.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static char through_window[1000];
static int through_fd;
static uint32_t through_views, through_opened; /* opened: and not closed */

static inline atom_status through_open(void *ctx, const char *path, int fd, uint64_t bytes,
                                       void **reader)
{
    (void)ctx, (void)path, (void)bytes;
    assert_int_equal(through_opened++, 0);
    through_fd = fd;
    *reader = through_window;
    return ATOM_OK;
}

static inline atom_status through_view(void *reader, uint64_t offset, uint64_t most,
                                       const void **at, uint64_t *n)
{
    uint64_t skew = offset % 3 + ++through_views % 2;
    uint64_t some = 1 + (offset * 7 + through_views) % 900;
    char *to = (char *)reader + skew;
    some = some < most ? some : most;
    assert_int_equal(pread(through_fd, to, some, (off_t)offset), some);
    *at = to;
    *n = some;
    return ATOM_OK;
}

static inline void through_close(void *reader)
{
    assert_ptr_equal(reader, through_window);
    assert_int_equal(through_opened--, 1);
}

static const file_source through_pieces = {NULL, through_open, through_view, through_close};

static int through_sink;
static uint32_t through_writes, through_finishes;
static uint64_t through_bytes;

static inline atom_status through_begin(void *ctx, const char *path, int fd, uint64_t bytes,
                                        void **writer)
{
    (void)ctx, (void)path;
    through_sink = fd;
    through_bytes = bytes;
    *writer = &through_sink;
    return ATOM_OK;
}

static inline atom_status through_write(void *writer, const void *data, uint64_t bytes)
{
    assert_ptr_equal(writer, &through_sink);
    assert_int_equal(write(through_sink, data, bytes), bytes);
    through_bytes -= bytes;
    through_writes++;
    return ATOM_OK;
}

/* The file is as long as was said. */
static inline atom_status through_finish(void *writer)
{
    assert_ptr_equal(writer, &through_sink);
    assert_int_equal(through_bytes, 0);
    through_finishes++;
    return ATOM_OK;
}

static inline void through_end(void *writer)
{
    assert_ptr_equal(writer, &through_sink);
}

static const file_sink through_keep = {NULL, through_begin, through_write, through_finish,
                                       through_end};

#endif
