/*
 * Error feedback of int8 (docs/design/pool.md#codecs): what the encoding of a fragment's parts lost,
 * kept until the fragment's next contribution. A part has two places: what counts now, and what the
 * encoding in progress loses, which counts once that contribution was included.
 *
 * Memory: a float per float of all fragments and one more of the longest; on disk two parts, and two
 * floats per float in files without names. Both give the same bits. Nothing outlives the process.
 * Thread: the member's. Errors: ATOM_E_RESOURCE; on disk those of the disk.
 */
#ifndef GOSSIP_MEMBER_RESIDUALS_H
#define GOSSIP_MEMBER_RESIDUALS_H

#include "gossip/member/parts.h"

#include "atom/base/status.h"

typedef struct gsp_residuals {
    const gsp_terms *terms;
    const char *directory;         /* of files; borrowed; NULL: in memory */
    float *now[GSP_FRAGMENTS_MAX]; /* in memory; NULL: zeros, as of a fragment that is new */
    float *lost;                   /* in memory: of the fragment in progress; on disk: of a part */
    float *room;                   /* on disk: of a part */
    struct {
        int file; /* one more than its number; 0: there is none */
        uint32_t now[GSP_PARTS_MAX / 32], made[GSP_PARTS_MAX / 32]; /* bits: the second place */
    } disk[GSP_FRAGMENTS_MAX];
} gsp_residuals;

/* terms and directory stay where they are. */
void gsp_residuals_open(gsp_residuals *residuals, const gsp_terms *terms, const char *directory);
/* All of them are zero again. */
void gsp_residuals_forget(gsp_residuals *residuals);
void gsp_residuals_close(gsp_residuals *residuals);

/* A contribution to `version` will be encoded. */
ATOM_MUST atom_status gsp_residuals_begin(gsp_residuals *residuals, uint64_t version);
/* What counts now for a part, and where its encoding writes what it loses; then that is kept. */
ATOM_MUST atom_status gsp_residuals_look(gsp_residuals *residuals, uint64_t version, uint32_t part,
                                         const float **now, float **lost);
ATOM_MUST atom_status gsp_residuals_keep(gsp_residuals *residuals, uint64_t version, uint32_t part);
/* The newest encoding of the part was included. It may be said twice. */
void gsp_residuals_included(gsp_residuals *residuals, uint64_t version, uint32_t part);

#endif
