/*
 * atom_liar: the program itself, but what it brings to rounds is a lie of the kind that ATOM_LIE
 * names. It is linked with --wrap=pool_anchor_open and pool_anchor_work, so that nothing in the product knows of it; what
 * hostile data does to a pool is measured with it (tools/pool-study --hostile).
 *
 *   flip    the change, or gradient, with the other sign
 *   x100    a hundred times it
 *   nan     not a number in every eighth place
 *   stale   the first change ever made, again and again
 *   random  noise of the change's norm
 */
#include "atom/base/mem.h"
#include "atom/pool/anchor.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A fragment of the vector as it goes out, and the first one that was brought. */
typedef struct fragment_lie {
    float *out;
    bool any;
} fragment_lie;

static struct {
    const char *kind;
    gsp_work inner;
    uint32_t n_fragments;
    uint64_t n_floats;
    fragment_lie fragment[GSP_FRAGMENTS_MAX];
    uint64_t random;
} liar;

atom_status __wrap_pool_anchor_open(const pool_anchor_config *config, pool_anchor **out);
atom_status __real_pool_anchor_open(const pool_anchor_config *config, pool_anchor **out);
void __wrap_pool_anchor_work(pool_anchor *pool, gsp_work *work);
void __real_pool_anchor_work(pool_anchor *pool, gsp_work *work);

/* Uniform in [-1, 1). */
static float noise(void)
{
    liar.random ^= liar.random << 13;
    liar.random ^= liar.random >> 7;
    liar.random ^= liar.random << 17;
    return (float)((double)(liar.random >> 11) * 0x1p-52 - 1);
}

static void lie(fragment_lie *f, const float *x, uint64_t n)
{
    double squares = 0;
    for (uint64_t i = 0; i < n; i++)
        squares += (double)x[i] * x[i];
    float scale = (float)sqrt(3 * squares / (double)n); /* of uniform noise with that norm */
    bool stale = strcmp(liar.kind, "stale") == 0;
    for (uint64_t i = 0; i < n && !(stale && f->any); i++)
        f->out[i] = strcmp(liar.kind, "flip") == 0     ? -x[i]
                    : strcmp(liar.kind, "x100") == 0   ? 100 * x[i]
                    : strcmp(liar.kind, "random") == 0 ? scale * noise()
                    : strcmp(liar.kind, "nan") == 0    ? (i % 8 ? x[i] : NAN)
                                                       : x[i];
    f->any = true;
}

static gsp_freeze freeze(void *context, uint64_t version, const float **x, uint64_t *tokens,
                         uint64_t *samples)
{
    gsp_freeze now = liar.inner.freeze(context, version, x, tokens, samples);
    uint32_t i = (uint32_t)(version % liar.n_fragments);
    fragment_lie *f = &liar.fragment[i];
    uint64_t first, n = pool_fragment_range(liar.n_floats, liar.n_fragments, i, &first);
    if (now != GSP_FREEZE_READY)
        return now;
    if (!f->out)
        f->out = atom_alloc(n, sizeof *f->out);
    if (!f->out)
        abort();
    lie(f, *x, n);
    *x = f->out;
    return now;
}

atom_status __wrap_pool_anchor_open(const pool_anchor_config *config, pool_anchor **out)
{
    liar.n_fragments = config->n_fragments;
    liar.n_floats = config->n_floats;
    return __real_pool_anchor_open(config, out);
}

void __wrap_pool_anchor_work(pool_anchor *pool, gsp_work *work)
{
    __real_pool_anchor_work(pool, work);
    liar.kind = getenv("ATOM_LIE");
    if (!liar.kind) {
        fputs("atom_liar: ATOM_LIE is not set\n", stderr);
        abort();
    }
    liar.inner = *work;
    liar.random = 88172645463325252ull;
    work->freeze = freeze;
}
