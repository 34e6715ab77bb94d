/*
 * A file read from front to back with the disk always busy: the store's queues (io_uring, libaio,
 * threads) and direct reads, for model files, which are not ours and are not laid out in sectors.
 *
 * A window of chunks runs ahead of the reader. It begins small wherever the reader jumps to and
 * doubles with every chunk that is taken in turn, so that reading a file in pieces reads few bytes
 * in vain. Memory: the window at its widest.
 *
 * Ownership: fd stays the caller's and must stay open; what view() gives is the stream's until the
 * next call. Thread: one at a time. Errors: ATOM_E_RUNTIME when the disk fails, ATOM_E_FORMAT when
 * the file became shorter; both where the bytes are asked for, not when they are read ahead.
 */
#ifndef SWAP_STREAM_H
#define SWAP_STREAM_H

#include "swap/file_ring.h"

typedef struct swap_stream swap_stream;

/* Of a stream that was told neither chunk_bytes nor depth: its memory, a few KiB of lists aside. */
enum { SWAP_STREAM_BYTES = STORE_DEPTH * STORE_CHUNK_BYTES };

ATOM_MUST atom_status swap_stream_open(const swap_file_config *config, swap_stream **out);
/* At most `most` bytes from `offset` on, at least one; offset < bytes of the file. */
ATOM_MUST atom_status swap_stream_view(swap_stream *s, uint64_t offset, uint64_t most,
                                       const void **at, uint64_t *n);
/* Waits for what is in flight. NULL-safe, clears the pointer. */
void swap_stream_close(swap_stream **s);
bool swap_stream_direct(const swap_stream *s);
/* Is the file in the kernel's memory already, by samples? Then reading it the plain way is faster
 * than any disk. Starts no reading. */
bool swap_stream_is_cached(int fd, uint64_t bytes);

#endif
