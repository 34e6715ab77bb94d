/*
 * What a donor keeps of the past: the state of a fragment as it was before the newest version
 * changed it, for joiners that are in the middle of fetching it (docs/design/pool.md#joining). A
 * file `lease.F` in the member's directory; at most one former state of a fragment.
 *
 * Thread: the member's. Errors: without room on the disk there is no lease, and the joiner fetches
 * the fragment again.
 */
#ifndef GOSSIP_MEMBER_LEASE_H
#define GOSSIP_MEMBER_LEASE_H

#include "gossip/member/transfer.h"
#include "gossip/member/work.h"

typedef struct gsp_lease {
    bool on, copying;
    int fd;
    uint32_t copied; /* chunks */
    gsp_tree tree;
    uint64_t used_ns; /* when it was made, or read last */
} gsp_lease;

typedef struct gsp_leases {
    const char *directory;
    const gsp_work *work;
    gsp_lease lease[GSP_FRAGMENTS_MAX];
} gsp_leases;

/* Both stay where they are for as long as it is used. */
void gsp_leases_open(gsp_leases *leases, const char *directory, const gsp_work *work);
/* Their files go. */
void gsp_leases_close(gsp_leases *leases);

/*
 * The fragment, whose hashes are `tree`, is about to change: where somebody wants it, copies it,
 * some chunks a call, with room for one in chunk[]. *done false: call again before it changes. The
 * tree goes with the copy, and *tree is empty then. Errors: the work's.
 */
ATOM_MUST atom_status gsp_leases_copy(gsp_leases *leases, uint32_t fragment, gsp_tree *tree,
                                      bool wanted, float *chunk, bool *done);
/* The tree of the kept state with this root; NULL: it is not kept. */
const gsp_tree *gsp_leases_find(const gsp_leases *leases, uint32_t fragment, const gsp_hash *root);
/* Reads a chunk of n floats; false: the kept state is gone. */
bool gsp_leases_read(gsp_leases *leases, uint32_t fragment, uint32_t chunk, uint64_t n, float *out);
/* Nobody fetches any more. */
void gsp_leases_drop_all(gsp_leases *leases);

enum { GSP_LEASE_SECONDS = 30 }; /* after the last chunk that went to anybody */

#endif
