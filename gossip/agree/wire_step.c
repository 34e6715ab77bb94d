/*
 * Owns how the steps of a chain look as bytes: the start of a lineage, and a certificate without
 * what it did. Its one idea is that of wire.c, whose walk it uses. It refuses what wire.c refuses.
 */
#include "gossip/agree/wire_walk.h"

void gsp_walk_votes(walk *w, uint32_t *n, gsp_mark *x)
{
    uint32_t n_here = count(w, n, GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n_here; i++) {
        u8(w, &x[i].member);
        raw(w, x[i].seal, sizeof x[i].seal);
    }
}

static void roster(walk *w, gsp_roster *x)
{
    uint32_t n = count(w, &x->n, GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n; i++)
        member(w, &x->member[i]);
}

void gsp_walk_genesis(walk *w, gsp_genesis *x)
{
    hash(w, &x->pool);
    u32(w, &x->cell);
    u32(w, &x->reset);
    u32(w, &x->generation);
    hash(w, &x->parent);
    u64(w, &x->version);
    hash(w, &x->previous);
    hash(w, &x->anchor);
    u64(w, &x->tokens);
    u64(w, &x->samples);
    member(w, &x->founder);
    roster(w, &x->roster);
    barred(w, &x->n_barred, x->barred);
    hash(w, &x->order.parent);
    u64(w, &x->order.version);
    raw(w, x->order.seal, sizeof x->order.seal);
    raw(w, x->seal, sizeof x->seal);
    for (uint32_t i = 0; i < x->roster.n && i < GSP_MEMBERS_MAX; i++)
        raw(w, x->consent[i], sizeof x->consent[i]);
}

static void step(walk *w, gsp_step *x)
{
    gsp_head *h = &x->as.link.head;
    flag(w, &x->is_genesis);
    if (x->is_genesis) {
        gsp_walk_genesis(w, &x->as.genesis);
        return;
    }
    hash(w, &h->lineage);
    u64(w, &h->version);
    hash(w, &h->previous);
    u64(w, &h->tokens);
    u64(w, &h->samples);
    hash(w, &h->contents);
    roster(w, &h->next);
    u64(w, &h->since);
    u64(w, &h->made);
    u32(w, &x->as.link.ballot);
    gsp_walk_votes(w, &x->as.link.n_votes, x->as.link.vote);
}

void gsp_walk_chain(walk *w, gsp_chain_said *x)
{
    hash(w, &x->after);
    flag(w, &x->more);
    uint32_t n = count(w, &x->n, GSP_CHAIN_SAID_MAX);
    for (uint32_t i = 0; i < n; i++)
        step(w, &x->step[i]);
}

void gsp_walk_chain_ask(walk *w, gsp_chain_ask *x)
{
    uint32_t n = count(w, &x->n, GSP_LOCATOR_MAX);
    for (uint32_t i = 0; i < n; i++)
        hash(w, &x->known[i]);
}

size_t gsp_wire_put_step(const gsp_step *x, void *out, size_t room)
{
    walk w = writer(out, room);
    step(&w, (gsp_step *)(uintptr_t)x);
    return written(&w, out);
}

bool gsp_wire_get_step(const void *data, size_t bytes, gsp_step *out)
{
    walk w = reader(data, bytes);
    memset(out, 0, sizeof *out);
    step(&w, out);
    return ended(&w);
}
