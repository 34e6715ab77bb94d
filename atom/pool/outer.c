/*
 * Owns the arithmetic of a version: the delta that is brought, the outer step over averages, and what
 * live moves by. One idea: all of it goes piece by piece, so that memory and disk are one code and give
 * the same bits. Refuses to say when it happens: versions.c does.
 */
#include "atom/pool/anchor_inner.h"
#include "atom/pool/gradients.h"

#include <string.h>

/* Floats of x that one call makes: the member has links to serve. */
enum { SUBTRACT_FLOATS = 1 << 22 };

static float *room(const pool_anchor *p, int k)
{
    return p->room.at ? p->room.at + (uint64_t)k * p->room.floats : NULL;
}

/* Of n floats, how many at once. */
static uint64_t piece_of(const pool_anchor *p, uint64_t n)
{
    return p->room.at && n > p->room.floats ? p->room.floats : n;
}

static pool_floats next_anchor(const pool_anchor *p)
{
    return p->new_anchor ? (pool_floats){.at = p->new_anchor} : pool_file_anchor(p->next);
}

static uint32_t number_of(const pool_anchor *p, const pool_fragment *f)
{
    return (uint32_t)(f - p->fragment);
}

/* What lies behind the anchor of the fragment, and of its next version. With slices nothing does;
 * behind moments it is where the sum was. */
static pool_floats momentum_of(const pool_anchor *p, const pool_fragment *f)
{
    if (p->g)
        return (pool_floats){.at = pool_gradients_momentum(p)};
    return f->momentum ? (pool_floats){.at = f->momentum}
                       : pool_file_outer(&p->store, number_of(p, f), f->file);
}

static pool_floats next_momentum(const pool_anchor *p, const pool_fragment *f)
{
    return p->new_momentum ? (pool_floats){.at = p->new_momentum}
                           : pool_file_outer(&p->store, number_of(p, f), p->next);
}

/* d becomes what the outer step makes of it a move by -d, as if it were a plain average: of any weighted
 * mean of such x it makes a move by -mean(d), because m is the same for all. */
static void undo_outer(const pool_anchor *p, const float *m, uint64_t n, float *d)
{
    double lr = p->c.outer_learning_rate, mu = p->c.outer_momentum;
    float scale = (float)(1 / (lr * (1 + mu))), back = (float)(mu * mu / (1 + mu));
    for (uint64_t i = 0; i < n; i++)
        d[i] = scale * d[i] - back * m[i];
}

atom_status pool_outer_subtract(pool_anchor *p, bool *whole)
{
    const pool_fragment *f = &p->fragment[p->ask_version % p->c.n_fragments];
    const pool_floats anchor = pool_fragment_anchor(f), momentum = momentum_of(p, f);
    bool plain = p->x_last && !p->c.slices && p->c.outer_learning_rate > 0;
    uint64_t end = p->made + SUBTRACT_FLOATS < f->n ? p->made + SUBTRACT_FLOATS : f->n;
    for (uint64_t some; p->made < end; p->made += some) {
        const float *a, *m, *live = p->x + p->made;
        float *x = p->x + p->made;
        some = piece_of(p, end - p->made);
        ATOM_TRY(pool_floats_look(&anchor, p->made, some, room(p, 0), &a));
        if (p->sent)
            ATOM_TRY(pool_floats_look(p->sent, p->made, some, room(p, 1), &live));
        for (uint64_t i = 0; i < some; i++) {
            x[i] = a[i] - live[i];
            p->square += (double)x[i] * (double)x[i];
        }
        if (!plain)
            continue;
        ATOM_TRY(pool_floats_look(&momentum, p->made, some, room(p, 2), &m));
        undo_outer(p, m, some, x);
    }
    *whole = p->made == f->n;
    return ATOM_OK;
}

/* ---- the version being made ---- */

static atom_status part_of_slices(pool_anchor *p, const pool_fragment *f, uint64_t first,
                                  uint64_t n, const float *x)
{
    const pool_floats anchor = pool_fragment_anchor(f), next = next_anchor(p);
    const float *was;
    ATOM_TRY(pool_floats_look(&anchor, first, n, room(p, 0), &was));
    float *a = pool_floats_place(&next, first, room(p, 1));
    for (uint64_t i = 0; i < n; i++)
        a[i] = was[i] - x[i];
    return pool_floats_put(&next, first, n, a);
}

static atom_status part_of_nesterov(pool_anchor *p, const pool_fragment *f, uint64_t first,
                                    uint64_t n, const float *x)
{
    float lr = (float)p->c.outer_learning_rate, mu = (float)p->c.outer_momentum;
    const pool_floats anchor = pool_fragment_anchor(f), momentum = momentum_of(p, f);
    const pool_floats next_a = next_anchor(p), next_m = next_momentum(p, f);
    const float *was, *had;
    ATOM_TRY(pool_floats_look(&anchor, first, n, room(p, 0), &was));
    ATOM_TRY(pool_floats_look(&momentum, first, n, room(p, 1), &had));
    float *a = pool_floats_place(&next_a, first, room(p, 2));
    float *m = pool_floats_place(&next_m, first, room(p, 3));
    for (uint64_t i = 0; i < n; i++) {
        m[i] = mu * had[i] + x[i];
        a[i] = was[i] - lr * (x[i] + mu * m[i]);
    }
    ATOM_TRY(pool_floats_put(&next_a, first, n, a));
    return pool_floats_put(&next_m, first, n, m);
}

/* Always from the anchor that is, so that a part may come again. */
atom_status pool_outer_part(pool_anchor *p, const pool_fragment *f, uint64_t first, uint64_t n,
                            const float *average)
{
    for (uint64_t at = 0, some; at < n; at += some) {
        some = piece_of(p, n - at);
        ATOM_TRY(p->c.slices ? part_of_slices(p, f, first + at, some, average + at)
                             : part_of_nesterov(p, f, first + at, some, average + at));
    }
    const pool_floats next = next_anchor(p);
    pool_floats_begin_write(&next, first, n);
    return ATOM_OK;
}

static atom_status copy(const pool_anchor *p, const pool_floats *from, const pool_floats *to,
                        uint64_t first, uint64_t n)
{
    const float *x;
    for (uint64_t at = first, some; at < first + n; at += some) {
        some = piece_of(p, first + n - at);
        ATOM_TRY(pool_floats_look(from, at, some, room(p, 0), &x));
        ATOM_TRY(pool_floats_put(to, at, some, x));
    }
    return ATOM_OK;
}

atom_status pool_outer_gaps(pool_anchor *p, const pool_fragment *f)
{
    const pool_floats anchor = pool_fragment_anchor(f), next = next_anchor(p);
    const pool_floats momentum = momentum_of(p, f), next_m = next_momentum(p, f);
    for (uint64_t at = 0, end; at < f->n; at = end) {
        bool came = pool_ranges_at(&p->ranges, at, f->n, &end);
        if (came)
            continue;
        ATOM_TRY(copy(p, &anchor, &next, at, end - at));
        if (!p->c.slices)
            ATOM_TRY(copy(p, &momentum, &next_m, at, end - at));
    }
    return ATOM_OK;
}

/* ---- live ---- */

static atom_status merge_range(const pool_anchor *p, const pool_floats *from,
                               const pool_range *range, const pool_floats *merge)
{
    const pool_floats next = next_anchor(p);
    const float *is, *was;
    float keep = (float)(1 - p->c.mix);
    uint64_t end = range->first + range->n;
    for (uint64_t at = range->first, some; at < end; at += some) {
        some = piece_of(p, end - at);
        ATOM_TRY(pool_floats_look(&next, at, some, room(p, 0), &is));
        ATOM_TRY(pool_floats_look(from, at, some, room(p, 1), &was));
        float *to = pool_floats_place(merge, at, room(p, 2));
        for (uint64_t i = 0; i < some; i++)
            to[i] = keep * (is[i] - was[i]);
        ATOM_TRY(pool_floats_put(merge, at, some, to));
    }
    return ATOM_OK;
}

atom_status pool_outer_merge(pool_anchor *p, const gsp_proposal *c, uint32_t mine,
                             pool_floats **merge)
{
    const pool_fragment *f = &p->fragment[c->version % p->c.n_fragments];
    const pool_floats anchor = pool_fragment_anchor(f);
    uint64_t stride = pool_part_stride(c, f->n);
    atom_status st;
    *merge = NULL;
    for (uint32_t r = 0; r < p->ranges.n; r++) {
        uint64_t k = p->ranges.range[r].first / stride;
        bool in = k < c->n_parts && (c->part[k].included & mine);
        const pool_floats *from = in ? p->sent : &anchor;
        if (!from) /* slices: it is written over */
            continue;
        if (!*merge)
            ATOM_TRY_CLEAN(pool_floats_open(p->room.at ? p->store.directory : NULL, f->n, merge));
        ATOM_TRY_CLEAN(merge_range(p, from, &p->ranges.range[r], *merge));
    }
    st = ATOM_OK;
cleanup:
    if (st != ATOM_OK)
        pool_floats_close(merge);
    return st;
}
