/*
 * Owns what one fragment and live weights owe each other. One idea: a new version is current at once and
 * waits, as a difference, until the masters stand still; a second one adds to the first. Refuses to
 * read live: what was copied out of it is the anchor's business.
 */
#include "atom/pool/fragment.h"

#include "atom/base/mem.h"

#include <string.h>

void pool_fragment_close(pool_fragment *f)
{
    atom_free(f->anchor);
    atom_free(f->momentum);
    atom_free(f->merge);
}

bool pool_fragment_waits(const pool_fragment *f)
{
    return f->replace || f->merge || f->slices.stride;
}

void pool_fragment_forget(pool_fragment *f)
{
    atom_free(f->merge);
    f->merge = NULL;
    f->replace = false;
    f->slices.stride = 0;
}

uint64_t pool_fragment_settle(pool_fragment *f, double mix, float *live)
{
    uint64_t written = 0;
    if (f->replace)
        memcpy(live, f->anchor, f->n * sizeof *live);
    else if (f->merge)
        for (uint64_t i = 0; i < f->n; i++)
            live[i] += f->merge[i];
    if (f->slices.stride && !f->replace)
        written = pool_slices_write(&f->slices, f->anchor, f->n, (float)mix, live);
    pool_fragment_forget(f);
    f->merged = f->version;
    return written;
}

void pool_fragment_owe(pool_fragment *f, float **merge)
{
    if (f->merge) { /* the trainer has not taken the one before */
        for (uint64_t i = 0; i < f->n; i++)
            f->merge[i] += (*merge)[i];
        return;
    }
    f->merge = *merge;
    *merge = NULL;
}

static void swap_floats(float **a, float **b)
{
    float *x = *a;
    *a = *b;
    *b = x;
}

void pool_fragment_turn(pool_fragment *f, const pool_header *header, float **anchor,
                        float **momentum)
{
    swap_floats(&f->anchor, anchor);
    swap_floats(&f->momentum, momentum);
    f->version = header->version;
    f->hash = header->anchor;
    f->slot ^= 1;
}
