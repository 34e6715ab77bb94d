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
    atom_free(f->pass);
}

bool pool_fragment_waits(const pool_fragment *f)
{
    return f->replace || f->merge || f->slices.stride;
}

static void drop(float **x)
{
    atom_free(*x);
    *x = NULL;
}

void pool_fragment_forget(pool_fragment *f)
{
    drop(&f->merge);
    drop(&f->pass);
    f->passing = false;
    f->replace = false;
    f->slices.stride = 0;
}

void pool_fragment_pass_begin(pool_fragment *f)
{
    f->passing = true;
    f->passed = f->version;
    f->pass = f->merge;
    f->merge = NULL;
}

uint64_t pool_fragment_pass(const pool_fragment *f, double mix, uint64_t at, uint64_t n,
                            float *live)
{
    if (!f->passing)
        return 0;
    if (f->replace) {
        memcpy(live, f->anchor + at, n * sizeof *live);
        return 0;
    }
    for (uint64_t i = 0; f->pass && i < n; i++)
        live[i] += f->pass[at + i];
    return f->slices.stride ? pool_slices_write(&f->slices, f->anchor, at, n, (float)mix, live) : 0;
}

/* Of an anchor that turned meanwhile live may have some of both: it is taken once more. */
void pool_fragment_pass_end(pool_fragment *f)
{
    if (!f->passing)
        return;
    drop(&f->pass);
    f->passing = false;
    f->merged = f->passed;
    if (f->version != f->passed)
        return;
    f->replace = false;
    f->slices.stride = 0;
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
