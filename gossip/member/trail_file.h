/*
 * A member's chain (trail.h) on disk, in its directory:
 *
 *   chain      8 bytes "atomchn2", then entries: u32 size, 16 bytes BLAKE2b of the entry's place and
 *              its step, the step (wire.h)
 *
 * A step is appended and fsynced before the state that follows from it is durable, so the file may
 * be ahead of the state by what a crash cut off, and is cut back. What is torn or damaged ends it
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
/* Writes what the file lacks, if it holds the first `n` steps (n 0: all of it anew). On disk when it
 * returns. */
ATOM_MUST atom_status gsp_trail_save(const gsp_trail *trail, const char *directory, uint32_t n);

#endif
