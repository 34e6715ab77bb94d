/*
 * A source delivers the bytes of large files that are read from front to back, and a sink accepts
 * those of files that are written in that way; their implementation keeps the disk busy meanwhile.
 * A file without a source is read with pread, and without a sink written with write.
 *
 * open() may refuse any file by leaving *reader NULL; that file is then read with pread. view()
 * gives, at *at, the bytes from `offset` on, at least one and at most `most`; they belong to the
 * reader and are valid until the next call. Any order of offsets works; ascending ones are fast.
 *
 * A sink may leave *writer NULL in the same way. write() appends. When finish() returns, everything
 * is in the file, which has the length that open() was told, but is not durable yet: the caller
 * does the fsync.
 *
 * Ownership: ctx is the maker's and must outlive all readers; fd stays the caller's, open until
 * close(). Thread: a reader is used by one at a time. Errors: those of read(2) and write(2),
 * by file; ATOM_E_RESOURCE where there is no room.
 */
#ifndef ATOM_FILE_SOURCE_H
#define ATOM_FILE_SOURCE_H

#include "atom/base/status.h"

#include <stdint.h>

typedef struct file_source {
    void *ctx;
    atom_status (*open)(void *ctx, const char *path, int fd, uint64_t bytes, void **reader);
    atom_status (*view)(void *reader, uint64_t offset, uint64_t most, const void **at, uint64_t *n);
    void (*close)(void *reader);
} file_source;

/* A copy of `bytes` bytes from `offset` on, which must lie in the file. */
ATOM_MUST atom_status file_source_read(const file_source *source, void *reader, uint64_t offset,
                                       uint64_t bytes, void *out);

typedef struct file_sink {
    void *ctx;
    atom_status (*open)(void *ctx, const char *path, int fd, uint64_t bytes, void **writer);
    atom_status (*write)(void *writer, const void *data, uint64_t bytes);
    atom_status (*finish)(void *writer);
    void (*close)(void *writer);
} file_sink;

#endif
