/*
 * A file read from its start to its end, unpacked on the way if it is gzip or zstd.
 */
#ifndef ATOM_TEXT_UNPACK_H
#define ATOM_TEXT_UNPACK_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct text_unpack text_unpack;

/*
 * What the file is, its first bytes say: gzip (RFC 1952, also several members), zstd (RFC 8878,
 * also several frames), or plain. ATOM_E_FORMAT if it is named .gz or .zst and is not packed so, and
 * for a pointer of Git LFS, whatever its name.
 * One thread at a time.
 */
ATOM_MUST atom_status text_unpack_open(const char *path, text_unpack **out);
/* The same for an open file; takes fd, also on error. */
ATOM_MUST atom_status text_unpack_take(int fd, const char *path, text_unpack **out);
void text_unpack_close(text_unpack **u);

/*
 * Up to `want` > 0 further bytes; *got is 0 at the end only. ATOM_E_FORMAT for a file that is
 * damaged, cut off, or goes on after its end; ATOM_E_UNSUPPORTED for zstd windows above 128 MiB.
 */
ATOM_MUST atom_status text_unpack_read(text_unpack *u, char *data, size_t want, size_t *got);
bool text_unpack_packed(const text_unpack *u); /* gzip or zstd */
/* Bytes of the file that have been used so far. */
uint64_t text_unpack_used(const text_unpack *u);

/* Length of the name without .gz or .zst: "a.jsonl.gz" is a.jsonl. */
size_t text_unpack_stem(const char *path);

#endif
