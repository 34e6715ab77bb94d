/*
 * Owns what one fragment and live weights owe each other. One idea: a new version is current at once and
 * waits, as a difference, until the masters stand still; a second one adds to the first. Refuses to
 * read live: what was copied out of it is the anchor's business.
 */
#include "atom/pool/fragment.h"

#include "atom/base/mem.h"

#include <string.h>
#include <unistd.h>

void pool_fragment_close(pool_fragment *f)
{
    atom_free(f->anchor);
    atom_free(f->momentum);
    pool_floats_close(&f->merge);
    pool_floats_close(&f->pass);
    if (f->file >= 0)
        close(f->file);
    f->file = -1;
}

pool_floats pool_fragment_anchor(const pool_fragment *f)
{
    return f->anchor ? (pool_floats){.at = f->anchor} : pool_file_anchor(f->file);
}

bool pool_fragment_waits(const pool_fragment *f)
{
    return f->replace || f->merge || f->slices.stride;
}

void pool_fragment_forget(pool_fragment *f)
{
    pool_floats_close(&f->merge);
    pool_floats_close(&f->pass);
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

/* One piece of it. */
static atom_status pass_piece(const pool_fragment *f, double mix, uint64_t at, uint64_t n,
                              float *live, float *room, uint64_t *written)
{
    const pool_floats anchor = pool_fragment_anchor(f);
    const float *from;
    if (f->replace) {
        ATOM_TRY(pool_floats_look(&anchor, at, n, room, &from));
        memcpy(live, from, n * sizeof *live);
        return ATOM_OK;
    }
    if (f->pass) {
        ATOM_TRY(pool_floats_look(f->pass, at, n, room, &from));
        for (uint64_t i = 0; i < n; i++)
            live[i] += from[i];
    }
    if (!f->slices.stride)
        return ATOM_OK;
    ATOM_TRY(pool_floats_look(&anchor, at, n, room, &from));
    *written += pool_slices_write(&f->slices, from, at, n, (float)mix, live);
    return ATOM_OK;
}

atom_status pool_fragment_pass(const pool_fragment *f, double mix, uint64_t at, uint64_t n,
                               float *live, pool_room room, uint64_t *written)
{
    *written = 0;
    if (!f->passing || (!f->replace && !f->pass && !f->slices.stride))
        return ATOM_OK;
    for (uint64_t done = 0, some; done < n; done += some) {
        some = !room.at || n - done < room.floats ? n - done : room.floats;
        ATOM_TRY(pass_piece(f, mix, at + done, some, live + done, room.at, written));
    }
    return ATOM_OK;
}

/* Of an anchor that turned meanwhile live may have some of both: it is taken once more. */
void pool_fragment_pass_end(pool_fragment *f)
{
    if (!f->passing)
        return;
    pool_floats_close(&f->pass);
    f->passing = false;
    f->merged = f->passed;
    if (f->version != f->passed)
        return;
    f->replace = false;
    f->slices.stride = 0;
}

void pool_fragment_pass_fail(pool_fragment *f)
{
    if (!f->passing)
        return;
    pool_floats_close(&f->pass);
    f->passing = false;
}

atom_status pool_fragment_owe(pool_fragment *f, pool_floats **merge, pool_room room)
{
    if (!f->merge) {
        f->merge = *merge;
        *merge = NULL;
        return ATOM_OK;
    }
    /* the trainer has not taken the one before */
    float *second = room.at ? room.at + room.floats : NULL;
    for (uint64_t at = 0, some; at < f->n; at += some) {
        const float *more, *has;
        some = !room.at || f->n - at < room.floats ? f->n - at : room.floats;
        ATOM_TRY(pool_floats_look(*merge, at, some, room.at, &more));
        ATOM_TRY(pool_floats_look(f->merge, at, some, second, &has));
        float *sum = pool_floats_place(f->merge, at, second);
        for (uint64_t i = 0; i < some; i++)
            sum[i] = has[i] + more[i];
        ATOM_TRY(pool_floats_put(f->merge, at, some, sum));
    }
    return ATOM_OK;
}

static void swap_floats(float **a, float **b)
{
    float *x = *a;
    *a = *b;
    *b = x;
}

static void turned(pool_fragment *f, const pool_header *header)
{
    f->version = header->version;
    f->hash = header->anchor;
    f->slot ^= 1;
}

void pool_fragment_turn(pool_fragment *f, const pool_header *header, float **anchor,
                        float **momentum)
{
    swap_floats(&f->anchor, anchor);
    swap_floats(&f->momentum, momentum);
    turned(f, header);
}

void pool_fragment_turn_file(pool_fragment *f, const pool_header *header, int file)
{
    if (f->file >= 0)
        close(f->file);
    f->file = file;
    turned(f, header);
}
