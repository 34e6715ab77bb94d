/*
 * Bounded little-endian readers and writers. A reader never reads past its end: it turns bad, gives
 * zeros from then on, and the caller checks once with atom_reader_ok().
 */
#ifndef ATOM_BASE_BYTES_H
#define ATOM_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct atom_reader {
    const uint8_t *at;
    const uint8_t *end;
    bool bad;
} atom_reader;

static inline atom_reader atom_reader_make(const void *data, size_t bytes)
{
    return (atom_reader){.at = data, .end = (const uint8_t *)data + bytes, .bad = false};
}

static inline bool atom_reader_ok(const atom_reader *r)
{
    return !r->bad;
}

static inline size_t atom_reader_left(const atom_reader *r)
{
    return (size_t)(r->end - r->at);
}

/* Copies n bytes out, or zeros them and turns bad. */
static inline void atom_read_bytes(atom_reader *r, void *out, size_t n)
{
    if (r->bad || atom_reader_left(r) < n) {
        r->bad = true;
        memset(out, 0, n);
        return;
    }
    memcpy(out, r->at, n);
    r->at += n;
}

static inline uint64_t atom_read_uint(atom_reader *r, unsigned n)
{
    uint8_t b[8] = {0};
    uint64_t v = 0;
    atom_read_bytes(r, b, n);
    for (unsigned i = 0; i < n; i++)
        v |= (uint64_t)b[i] << (8 * i);
    return v;
}

static inline uint8_t atom_read_u8(atom_reader *r)
{
    return (uint8_t)atom_read_uint(r, 1);
}
static inline uint16_t atom_read_u16(atom_reader *r)
{
    return (uint16_t)atom_read_uint(r, 2);
}
static inline uint32_t atom_read_u32(atom_reader *r)
{
    return (uint32_t)atom_read_uint(r, 4);
}
static inline uint64_t atom_read_u64(atom_reader *r)
{
    return atom_read_uint(r, 8);
}

typedef struct atom_writer {
    uint8_t *at;
    uint8_t *end;
    bool bad; /* something did not fit */
} atom_writer;

static inline atom_writer atom_writer_make(void *data, size_t bytes)
{
    return (atom_writer){.at = data, .end = (uint8_t *)data + bytes, .bad = false};
}

static inline void atom_write_bytes(atom_writer *w, const void *data, size_t n)
{
    if (w->bad || (size_t)(w->end - w->at) < n) {
        w->bad = true;
        return;
    }
    memcpy(w->at, data, n);
    w->at += n;
}

static inline void atom_write_uint(atom_writer *w, uint64_t v, unsigned n)
{
    uint8_t b[8];
    for (unsigned i = 0; i < n; i++)
        b[i] = (uint8_t)(v >> (8 * i));
    atom_write_bytes(w, b, n);
}

#endif
