/*
 * A pool's weights for other programs, read from a member's own disk, whether it runs or not.
 * Thread: any.
 */
#ifndef ATOM_POOL_EXPORT_H
#define ATOM_POOL_EXPORT_H

#include "atom/base/dtype.h"
#include "atom/base/status.h"
#include "gossip/agree/types.h"

/*
 * The weights that a pool has certified, as a Hugging Face directory: of every fragment the newest
 * that is whole. place: a member's pool directory (manifest.json, files, anchor); it may run
 * meanwhile. The vector passes through a nameless file beside output, so memory is needed for one
 * fragment only. dtype ATOM_DTYPE_N: F32, as the anchor is.
 * Errors  ATOM_E_USAGE  no pool there, no weights yet (a joiner that has not fetched them), output
 *         exists; ATOM_E_FORMAT  damaged; as export_directory
 */
typedef struct pool_exported {
    uint64_t version; /* the newest that is in */
    gsp_hash anchor;  /* as pool_anchor_status says it */
} pool_exported;
ATOM_MUST atom_status pool_export(const char *place, atom_dtype dtype, uint64_t shard_bytes,
                                  const char *output, pool_exported *said);

#endif
