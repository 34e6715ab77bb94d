/*
 * Owns the arithmetic of gradients mode: the sum that grows and the vectors that a step of it moves. One
 * idea: all of it goes piece by piece, from the version that is to the one that is made, which in memory
 * is the same place. Refuses to know batches and certificates: gradients.c does.
 */
#include "atom/pool/sums.h"

#include "gossip/sum/reduce.h"

#include <math.h>
#include <string.h>

pool_floats pool_sums_at(const pool_anchor *p, bool delayed, int fd, pool_sums_part part)
{
    const pool_fragment *f = &p->fragment[0];
    uint64_t vectors = (uint64_t)part;
    if (part == POOL_SUMS_WORDS && !delayed)
        vectors--;
    if (f->anchor)
        return (pool_floats){.at = vectors ? f->momentum + (vectors - 1) * f->n : f->anchor};
    pool_floats x = pool_file_anchor(fd);
    x.offset += vectors * f->n * sizeof(float);
    return x;
}

uint64_t pool_sums_room(const pool_update *u, uint64_t wanted)
{
    uint64_t matrix = pool_step_matrix_floats(u), least = wanted > matrix ? wanted : matrix;
    return (least + GSP_NORM_CHUNK - 1) / GSP_NORM_CHUNK * GSP_NORM_CHUNK;
}

/* In memory this is what is, too. */
static pool_floats made(const pool_anchor *p, const pool_sums_next *next, pool_sums_part part)
{
    return pool_sums_at(p, next->u->delayed, p->next, part);
}

static pool_floats present(const pool_anchor *p, const pool_sums_next *next, pool_sums_part part)
{
    return pool_sums_at(p, next->u->delayed, p->fragment[0].file, part);
}

/* Of n floats, how many at once: whole chunks of the norm (gsp_squares). */
static uint64_t piece_of(const pool_anchor *p, uint64_t n)
{
    return p->room.at && n > p->room.floats ? p->room.floats : n;
}

/* The sum with what came; where it becomes a step's gradient that takes the place of what came. */
static atom_status grow(pool_anchor *p, pool_sums_next *next)
{
    const pool_floats was = present(p, next, POOL_SUMS_SUM), sum = made(p, next, POOL_SUMS_SUM);
    const pool_floats *to = next->steps ? p->sent : &sum;
    float *room = p->room.at, *second = room ? room + p->room.floats : NULL;
    double squares = 0;
    for (uint64_t at = 0, some, n = p->fragment[0].n; at < n; at += some) {
        const float *had, *came;
        some = piece_of(p, n - at);
        ATOM_TRY(pool_floats_look(&was, at, some, room, &had));
        ATOM_TRY(pool_floats_look(p->sent, at, some, second, &came));
        float *x = pool_floats_place(to, at, second);
        for (uint64_t i = 0; i < some; i++)
            x[i] = had[i] + next->share * came[i];
        for (uint64_t i = 0; next->steps && i < some; i++)
            x[i] *= next->one;
        squares = gsp_squares(squares, x, some);
        ATOM_TRY(pool_floats_put(to, at, some, x));
    }
    next->norm = sqrt(squares);
    return ATOM_OK;
}

static atom_status copy(const pool_anchor *p, const pool_floats *from, const pool_floats *to)
{
    const float *x;
    for (uint64_t at = 0, some, n = p->fragment[0].n; at < n; at += some) {
        some = piece_of(p, n - at);
        ATOM_TRY(pool_floats_look(from, at, some, p->room.at, &x));
        ATOM_TRY(pool_floats_put(to, at, some, x));
    }
    return ATOM_OK;
}

/* A part that the version leaves as it is; in memory it is there. */
static atom_status keep(const pool_anchor *p, const pool_sums_next *next, pool_sums_part part)
{
    const pool_floats from = present(p, next, part), to = made(p, next, part);
    return to.at ? ATOM_OK : copy(p, &from, &to);
}

atom_status pool_sums_begin(const pool_anchor *p, int fd)
{
    const pool_floats weights = pool_sums_at(p, true, fd, POOL_SUMS_WEIGHTS);
    const pool_floats before = pool_sums_at(p, true, fd, POOL_SUMS_BEFORE);
    return copy(p, &weights, &before);
}

atom_status pool_sums_put(const pool_anchor *p, bool delayed, int fd, bool before,
                          const file_vector state[3])
{
    const float *x;
    for (int k = 0; k < (before ? 1 : 3); k++) {
        const pool_floats from =
            pool_sums_at(p, delayed, fd, before ? POOL_SUMS_BEFORE : (pool_sums_part)k);
        for (uint64_t at = 0, some, n = p->fragment[0].n; at < n; at += some) {
            some = piece_of(p, n - at);
            ATOM_TRY(pool_floats_look(&from, at, some, p->pass_room, &x));
            ATOM_TRY(state[k].put(state[k].ctx, at, some, x));
        }
    }
    return ATOM_OK;
}

static atom_status step(pool_anchor *p, pool_sums_next *next)
{
    pool_step_vectors from, to;
    const pool_floats before = made(p, next, POOL_SUMS_BEFORE), sum = made(p, next, POOL_SUMS_SUM);
    pool_floats *const f[] = {&from.weights, &from.m, &from.v}, *const t[] = {&to.weights, &to.m,
                                                                              &to.v};
    for (int k = 0; k < 3; k++) {
        *f[k] = present(p, next, (pool_sums_part)k);
        *t[k] = made(p, next, (pool_sums_part)k);
    }
    ATOM_TRY(pool_step_make(next->u, next->step, next->norm, p->fragment[0].n, p->sent, &from, &to,
                            next->u->delayed ? &before : NULL, p->room, next->space, &next->rate));
    if (sum.at) /* a new file has zeros there */
        memset(sum.at, 0, p->fragment[0].n * sizeof *sum.at);
    return ATOM_OK;
}

atom_status pool_sums_make(pool_anchor *p, pool_sums_next *next)
{
    if (next->whole)
        ATOM_TRY(grow(p, next));
    if (next->steps)
        return step(p, next);
    for (int part = 0; part < POOL_SUMS_WORDS; part++)
        if (!(part == POOL_SUMS_SUM && next->whole) &&
            !(part == POOL_SUMS_BEFORE && !next->u->delayed))
            ATOM_TRY(keep(p, next, (pool_sums_part)part));
    return ATOM_OK;
}
