/*
 * Owns one pass over the trainer's master weights: what it takes of the anchor and what is copied out
 * of it. One idea: masters in memory are a block that has all of them; masters on disk come by in
 * many, between which the member goes on, and whatever became another version meanwhile is done anew
 * in the next pass. Refuses to bring a copy of two versions.
 */
#include "atom/pool/anchor_inner.h"

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
    const pool_room room = {p->pass_room, p->room.floats};
    for (uint32_t k = 0; k < p->c.n_fragments && p->broken == ATOM_OK; k++) {
        const pool_fragment *f = &p->fragment[k];
        uint64_t at, from, some = common(f, first, n, &at, &from), floats = 0;
        atom_status st =
            some ? pool_fragment_pass(f, p->c.mix, at, some, live + from, room, &floats) : ATOM_OK;
        if (st != ATOM_OK)
            pool_anchor_break(p, st);
        double share = (double)floats / (double)p->c.n_floats;
        if (floats)
            p->status.lost_samples +=
                (1 - p->c.mix) * share * (double)(p->samples - f->slices.samples);
    }
}

void pool_pass_end(pool_anchor *p)
{
    for (uint32_t k = 0; k < p->c.n_fragments; k++)
        if (p->broken == ATOM_OK)
            pool_fragment_pass_end(&p->fragment[k]);
        else
            pool_fragment_pass_fail(&p->fragment[k]);
}

/* ---- copy-out ---- */

void pool_copy_begin(pool_anchor *p, bool stands)
{
    bool early = !stands && pool_anchor_agreed(p); /* a step is still to come */
    p->copying = p->running && !early ? p->asked : 0;
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
    const pool_floats delta = {.at = p->x}, *to = p->sent ? p->sent : &delta;
    atom_status st = pool_floats_put(to, at, some, live + from);
    if (st != ATOM_OK)
        pool_anchor_break(p, st);
}

/*
 * For one of the last versions. Whoever brings one fragment after the other has no new samples, but a contribution has at least one, and
 * its tokens, which are its weight, are bounded by its samples. So everybody says one sample, and divides
 * tokens by the samples of a round: weights are in the same proportion as ever, and the totals grow by
 * a sample for each contribution.
 */
static void claim_last(pool_anchor *p)
{
    uint64_t each = p->c.round_samples ? p->c.round_samples : 1;
    if (p->x_tokens == 0)
        return;
    p->x_tokens = p->x_tokens < each ? 1 : p->x_tokens / each;
    p->x_samples = p->x_samples ? p->x_samples : 1;
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
    p->x_last = pool_anchor_agreed(p);
    if (p->x_last)
        claim_last(p);
    p->ask = POOL_ASK_COPIED;
    p->made = 0;
    p->square = 0;
    return true;
}
