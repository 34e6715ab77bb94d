/*
 * pool.json of a checkpoint: which version of each fragment is in its live weights
 * (docs/design/pool.md#what-a-member-holds). A value, its text, and back. Thread: any.
 */
#ifndef ATOM_POOL_POOL_JSON_H
#define ATOM_POOL_POOL_JSON_H

#include "atom/base/status.h"
#include "gossip/agree/types.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct pool_mark {
    gsp_hash lineage;
    uint64_t applied, samples_included;
    bool own_steps; /* after steps of summed gradients, steps of its own are in live */
    uint32_t n_fragments;
    uint64_t version[GSP_FRAGMENTS_MAX], tokens_included[GSP_FRAGMENTS_MAX];
    gsp_hash anchor[GSP_FRAGMENTS_MAX]; /* zeros: live is not of that version alone */
} pool_mark;

/* Free with atom_free; NULL for want of memory. */
char *pool_json_text(const pool_mark *marks);
/* ATOM_E_FORMAT for anything that pool_json_text does not write. */
ATOM_MUST atom_status pool_json_parse(const char *path, const char *text, size_t bytes,
                                      pool_mark *out);

#endif
