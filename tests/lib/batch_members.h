/*
 * Five members of a batch of gradients mode, and the versions that some of them contribute to: leases are the
 * product's own.
 */
#ifndef TESTS_LIB_BATCH_MEMBERS_H
#define TESTS_LIB_BATCH_MEMBERS_H

#include "atom/base/mem.h"
#include "atom/pool/batch.h"
#include "gossip/sum/quant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { C = 37, MEMBERS = 5, SAMPLES = 3, FLOATS = 3 * GSP_INT8_BLOCK, PARTS = 3 };

static uint32_t list[C];

static inline gsp_roster everybody(void)
{
    gsp_roster roster = {.n = MEMBERS};
    for (uint32_t i = 0; i < MEMBERS; i++)
        roster.member[i].key.byte[0] = (uint8_t)(i + 1);
    return roster;
}

static inline uint32_t lease_of(const pool_batch *b, uint32_t i)
{
    gsp_roster roster = everybody();
    return pool_batch_lease(b, &roster, i, list);
}

/* What the batch knows of a key; zeros: nothing. */
static inline pool_share share_of(const pool_batch *b, uint8_t key)
{
    pool_share none = {.share = 0};
    for (uint32_t i = 0; i < b->n_shares; i++)
        if (b->share[i].key.byte[0] == key)
            return b->share[i];
    return none;
}

/* All members are known. */
static inline void know(pool_batch *b)
{
    gsp_roster roster = everybody();
    b->n_shares = MEMBERS;
    for (uint32_t i = 0; i < MEMBERS; i++)
        b->share[i] = (pool_share){.key = roster.member[i].key, .share = POOL_SHARE_BEFORE};
}

static inline pool_batch fresh(void)
{
    pool_batch b = {.n = C, .micro_batch = SAMPLES, .max_samples = 10 * C * SAMPLES};
    pool_batch_begin(&b);
    return b;
}

/* Members of `bits` bring their leases, in every part. */
static inline gsp_proposal *version_of(const pool_batch *b, uint32_t bits)
{
    gsp_proposal *c = atom_alloc(1, sizeof *c);
    c->n_parts = PARTS;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        uint32_t n = lease_of(b, i);
        if (!(bits >> i & 1) || n == 0)
            continue;
        uint32_t k = c->n_contributors++;
        c->contributor[k].member = (uint8_t)i;
        c->contributor[k].samples = n * SAMPLES;
        for (uint32_t part = 0; part < PARTS; part++) {
            c->part[part].included |= 1u << k;
            c->part[part].weight += 100 * n;
        }
    }
    return c;
}

static inline pool_verdict judge(const pool_batch *b, const gsp_proposal *c, uint64_t came)
{
    static pool_verdict v;
    gsp_roster roster = everybody();
    pool_batch_judge(b, c, &roster, FLOATS, came, list, &v);
    return v;
}

/* A version to which those of `bits` bring what they were leased. */
static inline void go_on(pool_batch *b, uint32_t bits)
{
    gsp_roster roster = everybody();
    gsp_proposal *c = version_of(b, bits);
    pool_verdict v = judge(b, c, FLOATS);
    c->next = roster;
    pool_batch_shares(b, &roster, c, &v);
    pool_batch_add(b, &v);
    if (b->n_open == 0) {
        pool_batch_begin(b);
        b->steps++;
    }
    atom_free(c);
}

#endif
