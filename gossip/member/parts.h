/*
 * The parts of contributions and results: how a pool cuts and encodes them (gsp_terms), and one of
 * them together with the hashes that prove it (gsp_exhibit).
 *
 * Lengths: gsp_part_cut (mix.h) decides. Part p of a fragment that lies encoded in one piece begins
 * at gsp_terms_offset.
 *
 * Thread: any. Errors: none.
 */
#ifndef GOSSIP_MEMBER_PARTS_H
#define GOSSIP_MEMBER_PARTS_H

#include "gossip/agree/types.h"
#include "gossip/sum/merkle.h"
#include "gossip/sum/quant.h"

/* What a pool's manifest says about parts. Version v concerns fragment v % n_fragments. */
typedef struct gsp_terms {
    gsp_hash pool;
    gsp_codec codec;
    bool robust;
    uint32_t n_parts, n_fragments;
    const uint64_t *n_floats; /* of each fragment */
} gsp_terms;

/* One contribution's part, as it was sent. */
typedef struct gsp_exhibit {
    const void *data; /* NULL: not included */
    uint64_t bytes;
    uint32_t n_path;
    gsp_hash path[GSP_MERKLE_PATH_MAX];
} gsp_exhibit;

static inline uint32_t gsp_terms_fragment(const gsp_terms *terms, uint64_t version)
{
    return (uint32_t)(version % terms->n_fragments);
}
/* Floats of a part; *first: where it begins in its fragment. */
uint64_t gsp_terms_floats(const gsp_terms *terms, uint64_t version, uint32_t part, uint64_t *first);
/* Floats of the longest part of any fragment. */
uint64_t gsp_terms_floats_max(const gsp_terms *terms);
/* Bytes of an encoded part. */
uint64_t gsp_terms_bytes(const gsp_terms *terms, uint64_t version, uint32_t part);
/* Where the part begins in its encoded fragment, in bytes; 0 for an empty one. */
uint64_t gsp_terms_offset(const gsp_terms *terms, uint64_t version, uint32_t part);
/* Bytes that hold all encoded parts of the fragment. */
uint64_t gsp_terms_all_bytes(const gsp_terms *terms, uint64_t version);

#endif
