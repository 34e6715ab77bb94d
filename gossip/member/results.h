/*
 * The bytes of results on disk: what a vote promises to have (agree.h: "a record names results"),
 * and what members that lag behind can still get. One file per version, results.V, of entries:
 *
 *   u32 magic, u32 part, u64 version, u64 bytes, 32 bytes hash, 8 bytes check of these, data
 *
 * Data is written as it comes in, so that a vote, which syncs it, waits for little. A torn tail is
 * cut off when the file is opened. Data is not checked here: the caller that reads it knows its
 * hash.
 *
 * Thread: one at a time. Errors: those of the disk.
 */
#ifndef GOSSIP_MEMBER_RESULTS_H
#define GOSSIP_MEMBER_RESULTS_H

#include "gossip/agree/types.h"

#include "atom/base/status.h"

typedef struct gsp_results gsp_results;

/* Opens the directory, which exists, and reads which results are there. keep: how many versions;
 * older files are removed. */
ATOM_MUST atom_status gsp_results_open(const char *directory, uint32_t keep, gsp_results **out);
/* NULL is fine. */
void gsp_results_close(gsp_results **results);

/* Adds a result, unless it is there. Removes versions that are `keep` or more older. */
ATOM_MUST atom_status gsp_results_put(gsp_results *results, uint64_t version, uint32_t part,
                                      const gsp_hash *hash, const void *data, uint64_t bytes);
/* What was put of this version is on disk when it returns. */
ATOM_MUST atom_status gsp_results_sync(gsp_results *results, uint64_t version);
/* Whether it was put under this very version. */
bool gsp_results_has(const gsp_results *results, uint64_t version, uint32_t part,
                     const gsp_hash *hash);
/* False: not there, under no version. */
ATOM_MUST bool gsp_results_find(const gsp_results *results, uint32_t part, const gsp_hash *hash,
                                uint64_t *bytes);
/* Reads what find found into out[bytes]. Not checked. */
ATOM_MUST atom_status gsp_results_read(const gsp_results *results, uint32_t part,
                                       const gsp_hash *hash, void *out);

#endif
