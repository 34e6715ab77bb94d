/*
 * Checksums of runs of a file's bytes: the entries of a zip archive that tensors lie in (torchfile.h). Whoever reads
 * from the file shows each piece here before it is used. A run that is read from front to back is summed as
 * it passes and compared at its end, which costs no reading; of any other, and of one whose end no tensor
 * has, all bytes are read for that, once, when the first of them is shown. A run of which nothing is read is not
 * compared.
 *
 * Ownership: file_sums_close. Thread: one at a time. Errors: ATOM_E_FORMAT names file and entry.
 * Source: CRC-32 of PKWARE APPNOTE 6.3; zlib.
 */
#ifndef ATOM_FILE_SUMS_H
#define ATOM_FILE_SUMS_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct file_sum {
    char *name;            /* of the entry */
    uint64_t first, bytes; /* where it lies in the file */
    uint32_t wanted;
    bool to_end; /* what is read of it reaches to its end */
    bool done;   /* compared, and right */
    uint64_t passed;
    uint32_t sum; /* of the first `passed` bytes */
} file_sum;

typedef struct file_sums {
    file_sum *all; /* ascending, apart from each other, each of at least one byte */
    size_t n;
} file_sums;

/* The CRC-32 of bytes that follow those whose sum this is; of the first, 0. */
uint32_t file_sum_add(uint32_t sum, const void *data, uint64_t bytes);
ATOM_MUST atom_status file_sum_differs(const char *path, const char *name);
/* Whoever reads these bytes reads all of them: a tensor. */
void file_sums_expect(file_sums *sums, uint64_t offset, uint64_t bytes);
/* These bytes were read from `offset` of the file, which is open as fd. They lie in at most one run. */
ATOM_MUST atom_status file_sums_see(file_sums *sums, const char *path, int fd, uint64_t offset,
                                    uint64_t bytes, const void *data);
/* NULL-safe; sets *sums to NULL. */
void file_sums_close(file_sums **sums);

#endif
