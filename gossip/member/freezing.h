/*
 * A member's own contributions: the one to the version in progress, which the work is asked for and
 * which is encoded and hashed in slices, and the one to the version applied last, kept for members
 * that check what became of it (docs/design/pool.md#hostile-members).
 *
 * int8 keeps a residual per fragment (error feedback): what the encoding lost is added to the
 * fragment's next contribution. It changes only when the contribution was included.
 *
 * Memory: fp32 none, others one encoded fragment; with audits one more; int8 what residuals.h says.
 * Thread: the member's. Errors: ATOM_E_RESOURCE, those of the disk.
 */
#ifndef GOSSIP_MEMBER_FREEZING_H
#define GOSSIP_MEMBER_FREEZING_H

#include "gossip/member/residuals.h"
#include "gossip/member/work.h"

/* A contribution to the version applied last. */
typedef struct gsp_brought {
    uint64_t version; /* 0: none */
    gsp_hash root;
    uint8_t *encoded;
    gsp_hash leaf[GSP_PARTS_MAX];
} gsp_brought;

typedef struct gsp_freezing {
    const gsp_terms *terms;
    const gsp_work *work;
    bool on, done;
    bool later; /* the work was not ready; it is asked again */
    uint64_t version;
    uint32_t next;    /* part to encode */
    const float *x;   /* NULL: nothing is contributed */
    uint8_t *encoded; /* not fp32 */
    gsp_residuals residuals; /* int8 */
    gsp_contribution contribution;
    gsp_hash leaf[GSP_PARTS_MAX];
    uint64_t began_ns, took_ns; /* took: until everything was encoded and hashed */
    gsp_brought kept;
} gsp_freezing;

/* All three stay where they are until close. directory: where residuals are that lie on disk. */
void gsp_freezing_open(gsp_freezing *freezing, const gsp_terms *terms, const gsp_work *work,
                       const char *directory);
void gsp_freezing_close(gsp_freezing *freezing);

/* Asks the work for a contribution to `version`, which may answer that it needs time. */
ATOM_MUST atom_status gsp_freezing_begin(gsp_freezing *freezing, uint64_t version);
/*
 * Does some of it. `next` is the version in progress: a contribution that the work put off and that
 * another version overtook is given up. *done: the contribution is whole, from now on.
 */
ATOM_MUST atom_status gsp_freezing_some(gsp_freezing *freezing, uint64_t next,
                                        const gsp_rates *rates, bool *done);
/* Parts wait to be encoded now. */
bool gsp_freezing_is_busy(const gsp_freezing *freezing);

/* An encoded part of the contribution with this version and root; NULL: it is another, or not
 * whole. */
const uint8_t *gsp_freezing_part(const gsp_freezing *freezing, uint64_t version,
                                 const gsp_hash *root, uint32_t part);
/* A part of the contribution in progress or of the kept one, with its proof. False: of neither. */
ATOM_MUST bool gsp_freezing_exhibit(const gsp_freezing *freezing, uint64_t version,
                                    const gsp_hash *root, uint32_t part, gsp_exhibit *out);

/* The index of my contribution among the proposal's contributors, or GSP_NOBODY. */
uint32_t gsp_freezing_find(const gsp_freezing *freezing, const gsp_proposal *proposal);
/* My contribution to this part was included, and the part is applied: what its encoding lost is the
 * part's residual. */
void gsp_freezing_included(gsp_freezing *freezing, uint32_t part);
/* `version` is about to be applied, and with it the work's floats change: keeps my contribution to
 * it where `audited`, and forgets the one before it. */
void gsp_freezing_keep(gsp_freezing *freezing, uint64_t version, bool audited);
/* What encodings lost is not added to anything. */
void gsp_freezing_drop_lost(gsp_freezing *freezing);
/* The work has another state: contributions and residuals are worth nothing. */
void gsp_freezing_forget(gsp_freezing *freezing);

#endif
