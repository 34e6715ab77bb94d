/*
 * Owns the way of results into the work. Its one idea: what was given is remembered by its hash, so
 * nothing is given twice and every change of mind is one call. It refuses to apply anything that no
 * quorum has voted for.
 */
#include "gossip/member/apply.h"

#include <string.h>

enum { APPLY_PARTS = 8 };

void gsp_apply_open(gsp_apply *a, const gsp_terms *terms, const gsp_work *work, gsp_mix *mix)
{
    *a = (gsp_apply){.terms = terms, .work = work, .mix = mix};
}

/* The floats of a result, perhaps in the mix's memory; NULL: it does not decode. */
static const float *result_floats(gsp_apply *a, const gsp_blob *b, uint64_t n)
{
    const float *x = (const float *)(const void *)b->data;
    if (a->terms->codec == GSP_CODEC_FP32 && gsp_all_finite(x, n))
        return x;
    return gsp_decode(a->terms->codec, b->data, b->bytes, a->mix->sum, n) ? a->mix->sum : NULL;
}

static void forget(gsp_apply *a)
{
    a->version = 0;
    memset(a->given, 0, sizeof a->given);
    memset(a->useless, 0, sizeof a->useless);
}

void gsp_apply_take_back(gsp_apply *a)
{
    uint64_t first;
    for (uint32_t p = 0; a->version && p < a->terms->n_parts; p++)
        if (!gsp_hash_none(&a->given[p])) {
            uint64_t n = gsp_terms_floats(a->terms, a->version, p, &first);
            a->work->part(a->work->context, a->version, first, NULL, n);
        }
    forget(a);
}

/* What was given for another version than this one is taken back. */
static void give_for(gsp_apply *a, uint64_t version)
{
    if (a->version == version)
        return;
    gsp_apply_take_back(a);
    a->version = version;
}

/* b NULL: the part stays as it is. So does one whose result does not decode: an owner that lied,
 * and a quorum that believed it, change nothing, and that for everybody alike. */
static void give(gsp_apply *a, uint32_t part, const gsp_blob *b)
{
    const gsp_hash none = {{0}};
    uint64_t first, n = gsp_terms_floats(a->terms, a->version, part, &first);
    const float *x = b ? result_floats(a, b, n) : NULL;
    if (x || !gsp_hash_none(&a->given[part]))
        a->work->part(a->work->context, a->version, first, x, n);
    a->given[part] = b ? b->root : none;
    a->useless[part] = !x;
}

bool gsp_apply_early(gsp_apply *a, const gsp_agree *agree, const gsp_recent *held)
{
    const gsp_round *r = &agree->round;
    uint64_t version = agree->certified + 1;
    if (!a->work->early || r->ballot == 0 || agree->applied != agree->certified)
        return false;
    for (uint32_t p = 0; p < r->begin.n_parts; p++) {
        const gsp_hash *hash = &r->known[p].hash;
        bool done = a->version == version && gsp_hash_equal(hash, &a->given[p]);
        const gsp_blob *b = gsp_hash_none(hash) || done ? NULL : gsp_recent_fresh(held, p, hash);
        if (!b || !b->whole)
            continue;
        give_for(a, version);
        give(a, p, b);
        return true;
    }
    return false;
}

void gsp_apply_begin(gsp_apply *a)
{
    a->on = true;
    a->next = 0;
}

/* mine: the index of my contribution, or GSP_NOBODY. */
static atom_status apply_one(gsp_apply *a, const gsp_proposal *p, uint32_t part, gsp_recent *held,
                             gsp_freezing *freezing, uint32_t mine)
{
    const gsp_hash *hash = &p->part[part].hash;
    bool unchanged = gsp_hash_none(hash);
    bool done = gsp_hash_equal(hash, &a->given[part]); /* both may be zero */
    const gsp_blob *b = done || unchanged ? NULL : gsp_recent_find(held, part, hash);
    if (!b && !done && !unchanged)
        return atom_fail(ATOM_E_RUNTIME, "version %llu: the result of part %u is gone",
                         (unsigned long long)p->version, part);
    if (!done)
        give(a, part, b);
    if (mine != GSP_NOBODY && (p->part[part].included >> mine & 1) && !a->useless[part] &&
        !unchanged)
        gsp_freezing_included(freezing, part);
    return ATOM_OK;
}

atom_status gsp_apply_some(gsp_apply *a, const gsp_proposal *p, gsp_recent *held,
                           gsp_freezing *freezing, bool *done)
{
    uint32_t mine = gsp_freezing_find(freezing, p);
    *done = false;
    give_for(a, p->version);
    for (uint32_t k = 0; k < APPLY_PARTS && a->next < p->n_parts; k++)
        ATOM_TRY(apply_one(a, p, a->next++, held, freezing, mine));
    if (a->next < p->n_parts)
        return ATOM_OK;
    *done = true;
    a->on = false;
    forget(a);
    return ATOM_OK;
}
