/*
 * A file written from front to back past the page cache, with many writes in flight: the store's
 * queues for checkpoints, so that saving one neither copies it through the kernel's memory nor
 * pushes other files out of it.
 *
 * The length is known beforehand. The last block is padded on its way and the file cut to its
 * length at the end.
 *
 * Ownership: fd stays the caller's; what is put is copied. Thread: one at a time. Errors:
 * ATOM_E_UNSUPPORTED where the file system has no O_DIRECT; ATOM_E_RESOURCE when the disk is full,
 * ATOM_E_RUNTIME when it fails to write, at the next put() or at finish(); sticky.
 */
#ifndef SWAP_WRITER_H
#define SWAP_WRITER_H

#include "swap/file_ring.h"

typedef struct swap_writer swap_writer;

/* BYTES: of one that was told neither chunk_bytes nor depth, as with streams. */
enum { SWAP_WRITER_DEPTH = 8, SWAP_WRITER_BYTES = SWAP_WRITER_DEPTH * STORE_CHUNK_BYTES };

ATOM_MUST atom_status swap_writer_open(const swap_file_config *config, swap_writer **out);
ATOM_MUST atom_status swap_writer_put(swap_writer *w, const void *data, uint64_t bytes);
/* Everything was put; now it is in the file. Not durable: fsync(fd). */
ATOM_MUST atom_status swap_writer_finish(swap_writer *w);
/* Waits for what is in flight. NULL-safe, clears the pointer. */
void swap_writer_close(swap_writer **w);

#endif
