/*
 * The walk that reads or writes messages (wire.h), one field after the other, for the files that
 * name the fields: wire.c, and wire_step.c for chains. Nobody else includes it.
 */
#ifndef GOSSIP_AGREE_WIRE_WALK_H
#define GOSSIP_AGREE_WIRE_WALK_H

#include "gossip/agree/wire.h"

#include "atom/base/bytes.h"

#include <math.h>
#include <string.h>

typedef struct walk {
    bool writing, bad;
    atom_reader in;
    atom_writer out;
} walk;

static inline void raw(walk *w, void *x, size_t bytes)
{
    if (w->writing)
        atom_write_bytes(&w->out, x, bytes);
    else
        atom_read_bytes(&w->in, x, bytes);
}

static inline uint64_t number(walk *w, uint64_t x, unsigned bytes)
{
    if (!w->writing)
        return atom_read_uint(&w->in, bytes);
    atom_write_uint(&w->out, x, bytes);
    return x;
}

static inline void u8(walk *w, uint8_t *x)
{
    *x = (uint8_t)number(w, *x, 1);
}

static inline void i8(walk *w, int8_t *x)
{
    *x = (int8_t)number(w, (uint8_t)*x, 1);
}

static inline void u32(walk *w, uint32_t *x)
{
    *x = (uint32_t)number(w, *x, 4);
}

static inline void u64(walk *w, uint64_t *x)
{
    *x = number(w, *x, 8);
}

static inline void flag(walk *w, bool *x)
{
    uint64_t bit = number(w, *x, 1);
    w->bad = w->bad || bit > 1;
    *x = bit == 1;
}

/* Zeros that make room for alignment and for later. */
static inline void zeros(walk *w, unsigned bytes)
{
    w->bad = w->bad || number(w, 0, bytes) != 0;
}

/* How many follow; 0 when it is more than there may be. */
static inline uint32_t count(walk *w, uint32_t *n, uint32_t max)
{
    u32(w, n);
    if (*n <= max)
        return *n;
    w->bad = true;
    if (!w->writing)
        *n = 0;
    return 0;
}

static inline void real(walk *w, float *x)
{
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    u32(w, &bits);
    if (!w->writing)
        memcpy(x, &bits, sizeof bits);
    w->bad = w->bad || !isfinite(*x) || (bits & 0x80000000u);
}

static inline void hash(walk *w, gsp_hash *x)
{
    raw(w, x->byte, sizeof x->byte);
}

static inline void member(walk *w, gsp_member *x)
{
    raw(w, x->key.byte, sizeof x->key.byte);
    u64(w, &x->incarnation);
}

static inline walk writer(void *out, size_t room)
{
    return (walk){.writing = true, .out = atom_writer_make(out, room)};
}

static inline walk reader(const void *data, size_t bytes)
{
    return (walk){.in = atom_reader_make(data, bytes)};
}

static inline size_t written(const walk *w, const void *out)
{
    return w->bad || w->out.bad ? 0 : (size_t)(w->out.at - (const uint8_t *)out);
}

static inline bool ended(const walk *w)
{
    return !w->bad && atom_reader_ok(&w->in) && atom_reader_left(&w->in) == 0;
}

static inline void barred(walk *w, uint32_t *n, gsp_barred *x)
{
    uint32_t n_here = count(w, n, GSP_BARRED_MAX);
    for (uint32_t i = 0; i < n_here; i++) {
        raw(w, x[i].key.byte, sizeof x[i].key.byte);
        u32(w, &x[i].versions);
    }
}

/* wire_step.c */
void gsp_walk_votes(walk *w, uint32_t *n, gsp_mark *x);
void gsp_walk_genesis(walk *w, gsp_genesis *x);
void gsp_walk_chain(walk *w, gsp_chain_said *x);
void gsp_walk_chain_ask(walk *w, gsp_chain_ask *x);

#endif
