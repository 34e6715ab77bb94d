/*
 * Owns how far a pool of parameters is, and its end: when all steps are made, each fragment is averaged
 * once more, so that what members did since its last average is in the model that the pool leaves. One
 * idea: these are ordinary versions; what differs is that live weights stand still meanwhile, and that a
 * contribution is such that the outer step makes of the contributions the average of live weights.
 * Refuses to wait for anybody: the versions have their deadlines, and whoever runs the member says when
 * it is enough (pool_anchor_give_up). docs/design/pool.md#the-last-average.
 */
#include "atom/pool/anchor_inner.h"
#include "atom/pool/gradients.h"

#include "atom/base/mem.h"

/* The lock is held: of the whole pool, with what this member has not brought yet. */
static uint64_t samples_of_pool(const pool_anchor *p)
{
    if (p->g && !p->c.dense_samples)
        return pool_gradients_samples(p);
    bool own = !p->g || pool_gradients_own(p);
    return p->certified_samples + (own ? p->samples - p->samples_included : 0);
}

double pool_end_rate(void *context, const train_schedule *schedule)
{
    pool_anchor *p = context;
    pthread_mutex_lock(&p->lock);
    int64_t step = (int64_t)(samples_of_pool(p) / p->c.batch) + 1;
    double warm = 1;
    if (p->steps < p->rewarm_to && p->c.rewarm_steps > 0)
        warm = 1 - (double)(p->rewarm_to - p->steps - 1) / (double)p->c.rewarm_steps;
    pthread_mutex_unlock(&p->lock);
    return warm * train_schedule_rate(schedule, step);
}

/* ---- how far ---- */

/* The lock is held: all steps of the pool are made. */
static bool is_over(const pool_anchor *p)
{
    return p->c.max_samples > 0 && samples_of_pool(p) >= p->c.max_samples;
}

/* The lock is held: steps that nobody but this member knows of are counted, and nobody is there to know. */
static bool waits(const pool_anchor *p)
{
    return p->alone && !pool_anchor_sums(p) && !pool_anchor_agreed(p) &&
           p->samples > p->samples_included && is_over(p);
}

/* The lock is held: fragments whose newest version lacks some of this member's steps. */
static uint32_t lacking(const pool_anchor *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->c.n_fragments; i++)
        n += p->tokens > p->fragment[i].tokens_included;
    return n;
}

static bool live_has_all(const pool_anchor *p)
{
    for (uint32_t i = 0; i < p->c.n_fragments; i++)
        if (pool_fragment_waits(&p->fragment[i]))
            return false;
    return true;
}

void pool_end_certified(pool_anchor *p)
{
    if (!pool_anchor_agreed(p))
        p->last = 0;
    else if (p->last == 0)
        p->last = p->applied + p->c.n_fragments;
}

/* The lock is held. */
static bool is_done(const pool_anchor *p)
{
    if (p->g && !p->c.dense_samples)
        return is_over(p);
    return pool_anchor_agreed(p) && (p->applied >= p->last || p->given_up);
}

/* The lock is held: sums are over, and the trainer may not have what they made. It takes that first, also
 * where the run has ended meanwhile: else its last checkpoint would have the weights of another time. */
static bool lacks_common(const pool_anchor *p)
{
    return p->g && !pool_anchor_sums(p) && !pool_gradients_own(p);
}

/* The lock is held. Where the disk has failed it stands until the member has told it. */
static bool stands(const pool_anchor *p)
{
    if (pool_anchor_sums(p) || lacks_common(p) || !is_over(p) || p->given_up)
        return false;
    return !p->last || p->applied < p->last || !live_has_all(p);
}

bool pool_end_stands(void *context)
{
    pool_anchor *p = context;
    pthread_mutex_lock(&p->lock);
    bool yes = stands(p) && !(p->c.max_steps > 0 && p->steps >= p->c.max_steps);
    pthread_mutex_unlock(&p->lock);
    return yes;
}

/* What the member asks: whoever rests brings nothing, and hastens nobody. */
bool pool_end_hastens(void *context)
{
    pool_anchor *p = context;
    pthread_mutex_lock(&p->lock);
    bool yes = p->running && stands(p);
    pthread_mutex_unlock(&p->lock);
    return yes;
}

bool pool_end_done(void *context)
{
    pool_anchor *p = context;
    pthread_mutex_lock(&p->lock);
    bool over = is_over(p) && !lacks_common(p) && !stands(p);
    over |= p->c.max_steps > 0 && p->steps >= p->c.max_steps;
    if (pool_anchor_sums(p))
        over = over && pool_gradients_over(p);
    pthread_mutex_unlock(&p->lock);
    return over;
}

void pool_anchor_alone(pool_anchor *p, bool alone)
{
    pthread_mutex_lock(&p->lock);
    p->alone = alone;
    pthread_mutex_unlock(&p->lock);
}

void pool_anchor_give_up(pool_anchor *p)
{
    pthread_mutex_lock(&p->lock);
    p->given_up = true;
    pthread_mutex_unlock(&p->lock);
}

void pool_end_status(const pool_anchor *p, pool_anchor_status *out)
{
    bool own = !p->g || pool_gradients_own(p); /* else every step is in a version */
    out->own_samples = own ? p->samples - p->samples_included : 0;
    out->lacking = own ? lacking(p) : 0;
    out->pool_step = samples_of_pool(p) / p->c.batch;
    out->certified_step = (samples_of_pool(p) - out->own_samples) / p->c.batch;
    out->max_steps = p->c.max_samples / p->c.batch;
    if (out->max_steps > 0 && out->pool_step > out->max_steps)
        out->pool_step = out->max_steps; /* the last steps of several members are one too many */
    if (out->max_steps > 0 && out->certified_step > out->max_steps)
        out->certified_step = out->max_steps;
    out->done = is_done(p);
    out->sums = pool_anchor_sums(p);
    out->waits = waits(p);
    out->stands = stands(p);
    out->agreed = pool_anchor_agreed(p);
    out->left_versions = p->last > p->applied ? p->last - p->applied : 0;
}

/* ---- live weights that stand still ---- */

/* What is done with a piece of live: it is at `live`, floats [first, first + n) of the vector. */
typedef void visit_fn(pool_anchor *p, uint64_t first, uint64_t n, float *live);

static void copy_piece(pool_anchor *p, uint64_t first, uint64_t n, float *live)
{
    pool_pass_copy(p, first, n, live);
}

/* Piece by piece, between which the member goes on. */
static atom_status each_piece(pool_anchor *p, const pool_fragment *f, file_vector live,
                              visit_fn *visit, bool changes)
{
    for (uint64_t at = 0, some; at < f->n; at += some) {
        some = f->n - at < POOL_PIECE_FLOATS ? f->n - at : POOL_PIECE_FLOATS;
        ATOM_TRY(live.get(live.ctx, f->first + at, some, p->stand_room));
        pthread_mutex_lock(&p->lock);
        visit(p, f->first + at, some, p->stand_room);
        pthread_mutex_unlock(&p->lock);
        if (changes)
            ATOM_TRY(live.put(live.ctx, f->first + at, some, p->stand_room));
    }
    return ATOM_OK;
}

/* Live takes what waits for it. */
static atom_status take_all(pool_anchor *p, file_vector live, bool *changed)
{
    bool takes[GSP_FRAGMENTS_MAX];
    atom_status st = ATOM_OK;
    pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < p->c.n_fragments; i++) {
        takes[i] = pool_fragment_waits(&p->fragment[i]);
        p->fragment[i].left = true; /* nobody reads live now */
    }
    *changed = pool_pass_begin(p);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->c.n_fragments && st == ATOM_OK; i++)
        if (takes[i])
            st = each_piece(p, &p->fragment[i], live, pool_pass_take, true);
    pthread_mutex_lock(&p->lock);
    if (st != ATOM_OK)
        pool_anchor_break(p, st);
    pool_pass_end(p);
    pthread_mutex_unlock(&p->lock);
    return st;
}

/* What was asked for is copied out. */
static atom_status copy_asked(pool_anchor *p, file_vector live)
{
    pthread_mutex_lock(&p->lock);
    pool_copy_begin(p, true);
    const pool_fragment *f = &p->fragment[p->ask_version % p->c.n_fragments];
    bool copies = p->copying && p->ask == POOL_ASKED && !pool_fragment_waits(f);
    pthread_mutex_unlock(&p->lock);
    atom_status st = copies ? each_piece(p, f, live, copy_piece, false) : ATOM_OK;
    pthread_mutex_lock(&p->lock);
    if (st != ATOM_OK || !copies)
        p->copying = 0;
    (void)pool_copy_end(p);
    pthread_mutex_unlock(&p->lock);
    return st;
}

atom_status pool_end_stand(void *context, file_vector live, bool *changed)
{
    pool_anchor *p = context;
    *changed = false;
    if (!p->stand_room && !(p->stand_room = atom_alloc(POOL_PIECE_FLOATS, sizeof(float))))
        return atom_fail_memory("a piece of the weights", POOL_PIECE_FLOATS * sizeof(float));
    ATOM_TRY(take_all(p, live, changed));
    return copy_asked(p, live);
}
