/*
 * A member's chain (trail.h) on disk, in its directory:
 *
 *   chain      8 bytes "atomchn3", then entries: u32 size, 16 bytes BLAKE2b of the entry's place and
 *              its step, the step (wire.h)
 *
 *   chain.next the same, of a state that others gave: written before that state is, and renamed to
 *              `chain` after it
 *
 * A step is appended and fsynced before the state that follows from it is durable, so the file may
 * be ahead of the state by what a crash cut off, and is cut back. Where a crash fell into a move,
 * one of the two files leads to the state that is on disk. What is torn or damaged ends a file
 * there. A chain that does not lead to the state is as good as none: others have it.
 *
 * Thread: the member's. Errors: the disk's.
 */
#ifndef GOSSIP_MEMBER_TRAIL_FILE_H
#define GOSSIP_MEMBER_TRAIL_FILE_H

#include "gossip/member/trail.h"

#include <stddef.h>

/* Reads steps into an open, empty trail, up to the first that is not whole or does not follow.
 * Returns how many of the bytes were good. */
ATOM_MUST size_t gsp_trail_parse(gsp_trail *trail, const void *data, size_t bytes);
/* The file of the directory; none: the trail stays empty. What is not whole is dropped from the file,
 * too, and a warning says how much was good. */
ATOM_MUST atom_status gsp_trail_load(gsp_trail *trail, const char *directory);
/* Reads the chain that led to `saved` into an open trail, and makes the directory's files agree with
 * it. *leads false: there is none, and the trail is empty. */
ATOM_MUST atom_status gsp_trail_recall(gsp_trail *trail, const char *directory,
                                       const gsp_saved *saved, bool *leads);
/* Writes what the file lacks, if it holds the first `n` steps (n 0: all of it anew). On disk when it
 * returns. */
ATOM_MUST atom_status gsp_trail_save(const gsp_trail *trail, const char *directory, uint32_t n);
/* Before the state that the trail leads to is written, and after. On disk when they return. */
ATOM_MUST atom_status gsp_trail_save_next(const gsp_trail *trail, const char *directory);
ATOM_MUST atom_status gsp_trail_turn(const char *directory);

#endif
