/*
 * One member's anchor without a network, for the unit tests of atom/pool: live weights that are
 * trained a little, rounds of a pool of one, and the certificates that a member would bring.
 */
#ifndef TESTS_LIB_POOL_SIDE_H
#define TESTS_LIB_POOL_SIDE_H

#include "atom/pool/anchor.h"
#include "gossip/trust/seals.h"
#include "tests/lib/both_tiers.h"
#include "tests/scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { N = 128 * 100 + 77, F = 3, PARTS = 4 };

typedef struct side {
    scratch s;
    bool on_disk;          /* its anchor */
    uint8_t key;           /* its bytes; 0: 7 */
    uint64_t pool_samples; /* that the pool trains in all; 0: 400 */
    pool_anchor *pool;
    train_seam seam;
    gsp_work work;
    float *live;
    uint64_t samples;
} side;

static inline void must(atom_status st)
{
    if (st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
}

static inline pool_anchor_config config_of(const side *a, double lr, double mu, double mix)
{
    pool_anchor_config c = {.directory = a->s.dir,
                            .n_floats = N,
                            .n_fragments = F,
                            .outer_learning_rate = lr,
                            .outer_momentum = mu,
                            .mix = mix,
                            .batch = 4,
                            .tokens_per_sample = 16,
                            .max_samples = a->pool_samples ? a->pool_samples : 400,
                            .round_samples = 8,
                            .rewarm_steps = 10,
                            .on_disk = a->on_disk,
                            .piece_floats = PIECE};
    memset(c.self.byte, a->key ? a->key : 7, sizeof c.self.byte);
    return c;
}

static inline void reopen(side *a, double lr, double mu, double mix)
{
    pool_anchor_config c = config_of(a, lr, mu, mix);
    pool_anchor_close(&a->pool);
    must(pool_anchor_open(&c, &a->pool));
    a->seam = pool_anchor_seam(a->pool);
    pool_anchor_work(a->pool, &a->work);
}

static inline float noise(uint64_t k, uint32_t salt)
{
    uint32_t x = (uint32_t)k * 2654435761u + salt * 40503u;
    x ^= x >> 15;
    x *= 2246822519u;
    return (float)(x >> 8) * 0x1p-24f - 0.5f;
}

static inline void side_open(side *a, double lr, double mu, double mix)
{
    memset(a, 0, sizeof *a);
    a->on_disk = anchors_on_disk;
    scratch_open(&a->s);
    a->live = atom_alloc(N, sizeof *a->live);
    for (uint64_t i = 0; i < N; i++)
        a->live[i] = noise(i, 1);
    reopen(a, lr, mu, mix);
}

static inline void side_close(side *a)
{
    pool_anchor_close(&a->pool);
    atom_free(a->live);
    scratch_close(&a->s);
}

static inline void begin(side *a)
{
    must(pool_anchor_begin(a->pool, file_vector_memory(a->live)));
    must(pool_anchor_attach(a->pool, file_vector_memory(a->live), NULL, a->samples,
                            a->samples * 16));
    pool_anchor_running(a->pool, true);
}

/* A step of training: everything moves a little, between what the seam does. */
static inline void step(side *a, uint32_t salt)
{
    a->seam.before_updates(a->seam.ctx, a->live, NULL);
    for (uint64_t i = 0; i < N; i++)
        a->live[i] += 0x1p-7f * noise(i, salt);
    a->samples += 4;
    a->seam.stepped(a->seam.ctx, a->samples, a->samples * 16);
    a->seam.after_updates(a->seam.ctx, a->live);
}

/* The certificate of a version of which I am the only member. */
static inline void certificate_make(gsp_certificate *c, uint64_t version, uint64_t samples,
                                    bool included)
{
    memset(c, 0, sizeof *c);
    gsp_proposal *p = &c->proposal;
    p->version = version;
    p->samples = samples;
    p->n_parts = PARTS;
    p->n_contributors = 1;
    for (int k = 0; k < PARTS; k++)
        p->part[k].included = included ? 1 : 0;
    p->next.n = 1;
    memset(p->next.member[0].key.byte, 7, GSP_KEY_BYTES);
}

/* As a member does that hears of results early: one part comes otherwise first, one is taken back,
 * and nothing of that may be left in the end. */
static inline uint64_t give_parts(side *a, uint64_t version, const float *average)
{
    const gsp_work *w = &a->work;
    uint64_t first, n = pool_fragment_range(N, F, (uint32_t)(version % F), &first);
    uint64_t stride = (n + PARTS - 1) / PARTS;
    stride = (stride + GSP_INT8_BLOCK - 1) / GSP_INT8_BLOCK * GSP_INT8_BLOCK;
    for (uint64_t at = 0; at < n; at += stride) {
        uint64_t some = n - at < stride ? n - at : stride;
        w->part(w->context, version, at, average, some);
        if (at / stride % 2)
            w->part(w->context, version, at, NULL, some);
    }
    for (uint64_t at = 0; at < n; at += stride)
        w->part(w->context, version, at, average + at, n - at < stride ? n - at : stride);
    return first;
}

static inline const float *contribution(side *a, uint64_t version, uint64_t *tokens,
                                        uint64_t *samples)
{
    const float *x = NULL;
    assert_int_equal(a->work.freeze(a->work.context, version, &x, tokens, samples),
                     GSP_FREEZE_LATER);
    step(a, (uint32_t)version);
    assert_int_equal(a->work.freeze(a->work.context, version, &x, tokens, samples),
                     GSP_FREEZE_READY);
    return x;
}

/* One version of a pool of one. */
static inline void round_alone(side *a, uint64_t version)
{
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    uint64_t tokens, samples;
    const float *x = contribution(a, version, &tokens, &samples);
    static const gsp_hash none;
    give_parts(a, version, x);
    certificate_make(c, version, a->samples, true);
    must(a->work.apply(a->work.context, c, &none));
    atom_free(c);
}

#endif
