/*
 * A vector of floats in memory or in a file, so that a pool does not have to keep all its vectors in
 * memory (docs/design/pool.md#what-a-member-holds). It is used in pieces: memory is read in place, a
 * file through a buffer for one piece that the caller provides.
 *
 *   look    floats that are there
 *   place   where floats are to be made, which put then writes
 *
 * Ownership: what open gives is closed by close; its file has no name and disappears with the process.
 * Values made by others borrow memory or file. Thread: one that writes, or any that read.
 * Errors: those of the disk, ATOM_E_RESOURCE if it is full; memory does not fail.
 */
#ifndef ATOM_POOL_FLOATS_H
#define ATOM_POOL_FLOATS_H

#include "atom/base/status.h"
#include "gossip/agree/types.h"

typedef struct pool_floats {
    float *at; /* in memory; NULL: in a file */
    int fd;
    uint64_t offset; /* bytes of the file before them */
} pool_floats;

enum { POOL_PIECE_FLOATS = 1 << 18 }; /* 1 MiB */

/* n floats, zero. directory: of the file; NULL: they lie in memory. */
ATOM_MUST atom_status pool_floats_open(const char *directory, uint64_t n, pool_floats **out);
/* NULL is fine; sets *floats to NULL. */
void pool_floats_close(pool_floats **floats);

/* Floats [first, first + n), where they lie or in room[n]. */
ATOM_MUST atom_status pool_floats_look(const pool_floats *x, uint64_t first, uint64_t n,
                                       float *room, const float **out);
/* Where floats from `first` on are to be made: in their place, or in room. */
float *pool_floats_place(const pool_floats *x, uint64_t first, float *room);
/* Nothing is done where `from` is their place. */
ATOM_MUST atom_status pool_floats_put(const pool_floats *x, uint64_t first, uint64_t n,
                                      const float *from);
/* The disk may begin to write, or to read, them; nobody waits for it. */
void pool_floats_begin_write(const pool_floats *x, uint64_t first, uint64_t n);
void pool_floats_begin_read(const pool_floats *x, uint64_t first, uint64_t n);
/* Of the first n; room[piece]. */
ATOM_MUST atom_status pool_floats_hash_of(const pool_floats *x, uint64_t n, float *room,
                                          uint64_t piece, gsp_hash *out);

#endif
