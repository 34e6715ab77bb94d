/*
 * A member's contributions to the newest versions, on disk, for members that check what became of
 * them (docs/design/pool.md#hostile-members). A member that cannot show what it brought counts as
 * withholding it, so a restart must not lose them. Files as in results.h, in a directory of their
 * own, the newest GSP_REPLAY_MAX versions; entries are named by the contribution's root.
 *
 * A contribution is written before anybody is told of it, in slices between two looks at the network, so
 * a member that is killed finds it again. It is not synced: the disk is asked to begin at once, and what
 * the last seconds before a power cut lose counts like any other that is not shown.
 *
 * Disk: GSP_REPLAY_MAX encoded fragments. Memory: one part, and the hashes of all that are there.
 * After a restart those are made again when somebody asks, and then not for a while: eight times as long
 * as it took, at most two seconds.
 * Thread: the member's. Errors: those of the disk; ATOM_E_RESOURCE.
 */
#ifndef GOSSIP_MEMBER_OWN_INPUTS_H
#define GOSSIP_MEMBER_OWN_INPUTS_H

#include "gossip/agree/agree.h"
#include "gossip/member/freezing.h"
#include "gossip/member/results.h"

/* The hashes of a contribution's parts. */
typedef struct gsp_own_inputs_tree {
    uint64_t version; /* 0: of none */
    gsp_hash root, leaf[GSP_PARTS_MAX];
} gsp_own_inputs_tree;

typedef struct gsp_own_inputs {
    const gsp_terms *terms;
    gsp_results *files; /* NULL: nothing is kept */
    uint64_t version;   /* being written */
    gsp_hash root;
    uint32_t next; /* part to write */
    uint8_t *shown;
    uint64_t rests_until_ns;                  /* until then no tree is made from the disk */
    gsp_own_inputs_tree tree[GSP_REPLAY_MAX]; /* by version % */
} gsp_own_inputs;

/* Opens DIRECTORY/brought. `terms` stays where it is. */
ATOM_MUST atom_status gsp_own_inputs_open(gsp_own_inputs *kept, const gsp_terms *terms,
                                          const char *directory);
void gsp_own_inputs_close(gsp_own_inputs *kept);

/* Writes some of the contribution in progress, which is whole. *more: not all of it is written. */
ATOM_MUST atom_status gsp_own_inputs_some(gsp_own_inputs *kept, const gsp_freezing *mine,
                                          bool *more);
/* A part that is here, with its proof, valid until the next call. False: it is not. */
ATOM_MUST bool gsp_own_inputs_exhibit(gsp_own_inputs *kept, uint64_t version, const gsp_hash *root,
                                      uint32_t part, gsp_exhibit *out);

#endif
