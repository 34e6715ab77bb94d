/*
 * Who brings the bytes of large files that are read from front to back: somebody who keeps the disk
 * busy with what comes next. A file without one is read with pread, as always.
 *
 * open() may refuse any file by leaving *reader NULL: that file is read the plain way. view() gives
 * the bytes from `offset` on, at most `most` of them and at least one, at *at: the reader's until
 * the next call. Any order of offsets works; ascending ones are fast.
 *
 * Ownership: ctx is the maker's and must outlive all readers; fd stays the caller's, open until
 * close(). Thread: a reader is used by one at a time. Errors: those of read(2), by file.
 */
#ifndef ATOM_FILE_SOURCE_H
#define ATOM_FILE_SOURCE_H

#include "atom/base/status.h"

#include <stdint.h>

typedef struct file_source {
    const void *ctx;
    atom_status (*open)(const void *ctx, const char *path, int fd, uint64_t bytes, void **reader);
    atom_status (*view)(void *reader, uint64_t offset, uint64_t most, const void **at, uint64_t *n);
    void (*close)(void *reader);
} file_source;

#endif
