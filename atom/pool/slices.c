/*
 * Owns how averages are written over live weights (`--sync slices`: Presser, Swarm Training,
 * section 3, step 2c). One idea: what is to be written is the anchor itself, so nothing is kept of
 * it but which parts; they are written where the masters stand still. Refuses to write over steps
 * that nobody has read: parts without this member's contribution are moved, not written, and those
 * with nobody else's stay as they are.
 */
#include "atom/pool/slices.h"

#include "atom/pool/ranges.h"

#include <string.h>

/* There is never one to be written already: while there is, nothing is copied out of it. */
void pool_slices_note(pool_slices *s, const gsp_proposal *c, uint64_t n, uint32_t mine,
                      uint64_t samples)
{
    *s = (pool_slices){.stride = pool_part_stride(c, n), .samples = samples};
    for (uint32_t k = 0; k < c->n_parts && k < GSP_PARTS_MAX; k++)
        if ((c->part[k].included & mine) && c->part[k].included != mine)
            s->over[k / 32] |= 1u << k % 32;
}

uint64_t pool_slices_write(const pool_slices *s, const float *anchor, uint64_t first, uint64_t n,
                           float mix, float *to)
{
    uint64_t written = 0, end = first + n;
    for (uint64_t at = first, k, next; at < end; at = next) {
        k = at / s->stride;
        next = (k + 1) * s->stride < end ? (k + 1) * s->stride : end;
        if (k >= GSP_PARTS_MAX || !(s->over[k / 32] >> k % 32 & 1))
            continue;
        written += next - at;
        if (mix == 0)
            memcpy(to + (at - first), anchor + (at - first), (next - at) * sizeof *to);
        for (uint64_t i = at - first; mix != 0 && i < next - first; i++)
            to[i] = anchor[i] + mix * (to[i] - anchor[i]);
    }
    return written;
}
