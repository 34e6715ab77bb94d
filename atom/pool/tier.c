/*
 * Owns the turn from one version of a fragment to the next, in memory or on disk, and what is left to
 * do when the disk fails. One idea: the first failure is kept and told by the member's next version, on
 * its thread, wherever it happened. Refuses to go on with live weights that may lack a version.
 */
#include "atom/pool/anchor_inner.h"

#include <stdio.h>
#include <unistd.h>

void pool_anchor_drop_next(pool_anchor *p)
{
    if (p->next >= 0)
        close(p->next);
    p->next = -1;
}

void pool_anchor_turn(pool_anchor *p, pool_fragment *f, const pool_header *header)
{
    if (!p->c.on_disk) {
        float *same = f->momentum; /* it is made in place */
        pool_fragment_turn(f, header, &p->new_anchor, p->g ? &same : &p->new_momentum);
        return;
    }
    pool_fragment_turn_file(f, header, p->next);
    p->next = -1;
}

void pool_anchor_break(pool_anchor *p, atom_status st)
{
    if (p->broken != ATOM_OK)
        return;
    p->broken = st;
    snprintf(p->why, sizeof p->why, "%s", atom_fail_message());
}
