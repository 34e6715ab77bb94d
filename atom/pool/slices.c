/*
 * Owns how averages are written over live weights (`--sync slices`: Presser, Swarm Training,
 * section 3, step 2c). One idea: what is to be written is the anchor itself, so nothing is kept of
 * it but which parts; they are written where the masters stand still. Refuses to write over steps
 * that nobody has read: parts without this member's contribution are moved, not written, and those
 * with nobody else's stay as they are.
 */
#include "atom/pool/anchor_inner.h"

#include <string.h>

uint64_t pool_part_stride(const gsp_proposal *c, uint64_t n)
{
    uint64_t n_parts = c->n_parts ? c->n_parts : 1, stride = (n + n_parts - 1) / n_parts;
    return (stride + GSP_INT8_BLOCK - 1) / GSP_INT8_BLOCK * GSP_INT8_BLOCK;
}

/* There is never one to be written already: while there is, nothing is copied out of f. */
void pool_slices_note(pool_anchor *p, pool_fragment *f, const gsp_proposal *c, uint32_t mine)
{
    f->over_stride = pool_part_stride(c, f->n);
    f->over_samples = p->sent_samples;
    memset(f->over, 0, sizeof f->over);
    for (uint32_t k = 0; k < c->n_parts && k < GSP_PARTS_MAX; k++)
        if ((c->part[k].included & mine) && c->part[k].included != mine)
            f->over[k / 32] |= 1u << k % 32;
}

void pool_slices_write(pool_anchor *p, pool_fragment *f, float *to)
{
    float mix = (float)p->c.mix;
    uint64_t written = 0;
    for (uint64_t k = 0, at = 0; k < GSP_PARTS_MAX && at < f->n; k++, at += f->over_stride) {
        uint64_t end = f->n - at < f->over_stride ? f->n : at + f->over_stride;
        if (!(f->over[k / 32] >> k % 32 & 1))
            continue;
        written += end - at;
        if (mix == 0)
            memcpy(to + at, f->anchor + at, (end - at) * sizeof *to);
        for (uint64_t i = at; mix != 0 && i < end; i++)
            to[i] = f->anchor[i] + mix * (to[i] - f->anchor[i]);
    }
    double share = (double)written / (double)p->c.n_floats;
    p->status.lost_samples += (1 - p->c.mix) * share * (double)(p->samples - f->over_samples);
}
