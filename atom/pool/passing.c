/*
 * Owns one pass over the trainer's master weights: what it takes of the anchor and what is copied out
 * of it. One idea: masters in memory are a block that has all of them; masters on disk come by in
 * many, between which the member goes on, and whatever became another version meanwhile is done anew
 * in the next pass. Refuses to bring a copy of two versions.
 */
#include "atom/pool/anchor_inner.h"

#include <math.h>
#include <string.h>

/* Floats that [first, first + n) of the vector and a fragment have in common: *at of the fragment's,
 * *from of the range's. */
static uint64_t common(const pool_fragment *f, uint64_t first, uint64_t n, uint64_t *at,
                       uint64_t *from)
{
    uint64_t begin = first > f->first ? first : f->first;
    uint64_t end = first + n < f->first + f->n ? first + n : f->first + f->n;
    *at = begin - f->first;
    *from = begin - first;
    return end > begin ? end - begin : 0;
}

bool pool_pass_begin(pool_anchor *p)
{
    bool any = false;
    for (uint32_t k = 0; k < p->c.n_fragments; k++) {
        pool_fragment *f = &p->fragment[k];
        bool waits = pool_fragment_waits(f);
        if (!f->left && waits)
            continue;
        any |= waits;
        p->status.merged += waits;
        pool_fragment_pass_begin(f);
    }
    return any;
}

void pool_pass_take(pool_anchor *p, uint64_t first, uint64_t n, float *live)
{
    for (uint32_t k = 0; k < p->c.n_fragments; k++) {
        const pool_fragment *f = &p->fragment[k];
        uint64_t at, from, some = common(f, first, n, &at, &from);
        uint64_t floats = some ? pool_fragment_pass(f, p->c.mix, at, some, live + from) : 0;
        double share = (double)floats / (double)p->c.n_floats;
        if (floats)
            p->status.lost_samples +=
                (1 - p->c.mix) * share * (double)(p->samples - f->slices.samples);
    }
}

void pool_pass_end(pool_anchor *p)
{
    for (uint32_t k = 0; k < p->c.n_fragments; k++)
        pool_fragment_pass_end(&p->fragment[k]);
}

/* ---- copy-out ---- */

void pool_copy_begin(pool_anchor *p)
{
    p->copying = p->ask == POOL_ASKED && p->running ? p->asked : 0;
    p->square = 0;
}

/* Still what was asked for: no version came meanwhile. */
static bool is_wanted(const pool_anchor *p)
{
    return p->copying && p->ask == POOL_ASKED && p->copying == p->asked;
}

void pool_pass_copy(pool_anchor *p, uint64_t first, uint64_t n, const float *live)
{
    const pool_fragment *f = &p->fragment[p->ask_version % p->c.n_fragments];
    uint64_t at, from, some = common(f, first, n, &at, &from);
    if (!some || !is_wanted(p))
        return;
    if (p->sent)
        memcpy(p->sent + at, live + from, some * sizeof *live);
    for (uint64_t i = 0; i < some; i++) {
        float x = f->anchor[at + i] - live[from + i];
        p->x[at + i] = x;
        p->square += (double)x * (double)x;
    }
}

bool pool_copy_end(pool_anchor *p)
{
    const pool_fragment *f = &p->fragment[p->ask_version % p->c.n_fragments];
    bool whole = is_wanted(p) && !pool_fragment_waits(f);
    p->copying = 0;
    if (!whole) /* after the next updates */
        return false;
    p->sent_samples = p->samples;
    p->sent_tokens = p->tokens;
    p->x_samples = p->samples - p->samples_included;
    p->x_tokens = p->tokens - f->tokens_included;
    p->ask = p->x_tokens && isfinite(p->square) ? POOL_ASK_READY : POOL_ASK_EMPTY;
    p->status.delta_norm = sqrt(p->square);
    p->status.copied++;
    return true;
}
