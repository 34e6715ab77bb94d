/*
 * Owns the waits between the streams of a tape. One idea: remember, for every piece of memory, who
 * wrote it last and who has read it since on each stream; an instruction must follow exactly those.
 * Vector clocks then drop what stream order or another wait already implies. Refuses to know what
 * an instruction does: its ranges say all.
 */
#include "swap/tape.h"

#include "atom/base/mem.h"

#include <string.h>

enum { NOBODY = 0 }; /* instruction indices are stored plus one */

/* A piece of memory with one history. Pieces of a space are disjoint and sorted. */
typedef struct piece {
    uint64_t lo, hi;
    uint32_t writer;
} piece;

typedef struct history {
    piece *pieces;
    uint32_t *readers; /* [n][lanes]: who has read a piece since its last write */
    size_t n, room, readers_room;
} history;

typedef struct linking {
    swap_tape *tape;
    uint32_t lanes;
    history arenas[SWAP_DEVICES_MAX], host, disk;
    uint32_t *clocks; /* [n][lanes]: index + 1 of the latest instruction of a lane that happened
                         before */
    uint32_t latest[SWAP_LANES_MAX][SWAP_LANES_MAX]; /* the same at the end of each lane so far */
} linking;

static uint32_t lane_of(const swap_instr *in)
{
    return swap_lane(in->device, in->stream);
}

static history *history_of(linking *l, const swap_instr *in, swap_space space)
{
    return space == SWAP_DEVICE ? &l->arenas[in->device] : space == SWAP_HOST ? &l->host : &l->disk;
}

static size_t first_piece_past(const history *h, uint64_t lo)
{
    size_t a = 0, b = h->n;
    while (a < b) {
        size_t mid = (a + b) / 2;
        if (h->pieces[mid].hi <= lo)
            a = mid + 1;
        else
            b = mid;
    }
    return a;
}

/* readers: of the new piece; NULL: nobody. */
static atom_status insert_piece(const linking *l, history *h, size_t at, piece p,
                                const uint32_t *readers)
{
    uint32_t copy[SWAP_LANES_MAX] = {NOBODY};
    size_t each = l->lanes * sizeof *copy;
    if (readers)
        memcpy(copy, readers, each);
    ATOM_TRY(atom_grow(&h->pieces, h->n, &h->room, sizeof *h->pieces));
    ATOM_TRY(atom_grow(&h->readers, h->n, &h->readers_room, each));
    memmove(&h->pieces[at + 1], &h->pieces[at], (h->n - at) * sizeof *h->pieces);
    uint32_t *place = &h->readers[at * l->lanes];
    memmove(place + l->lanes, place, (h->n - at) * each);
    memcpy(place, copy, each);
    h->pieces[at] = p;
    h->n++;
    return ATOM_OK;
}

/* Cuts piece `at` at an address inside of it; both halves keep its history. */
static atom_status cut_piece(const linking *l, history *h, size_t at, uint64_t where)
{
    piece left = h->pieces[at];
    left.hi = where;
    h->pieces[at].lo = where;
    return insert_piece(l, h, at, left, &h->readers[at * l->lanes]);
}

/* Makes [lo, hi) a run of whole pieces; returns the index of the first. */
static atom_status isolate(const linking *l, history *h, uint64_t lo, uint64_t hi, size_t *first)
{
    size_t at = first_piece_past(h, lo);
    *first = at;
    if (at < h->n && h->pieces[at].lo < lo) {
        ATOM_TRY(cut_piece(l, h, at, lo));
        *first = ++at;
    }
    for (uint64_t done = lo; done < hi; at++) {
        uint64_t next = at < h->n ? h->pieces[at].lo : UINT64_MAX;
        if (next > done) {
            piece fresh = {.lo = done, .hi = next < hi ? next : hi};
            ATOM_TRY(insert_piece(l, h, at, fresh, NULL));
        } else if (h->pieces[at].hi > hi) {
            ATOM_TRY(cut_piece(l, h, at, hi));
        }
        done = h->pieces[at].hi;
    }
    return ATOM_OK;
}

static void need(uint32_t *needs, const swap_tape *tape, uint32_t who)
{
    if (who == NOBODY)
        return;
    uint32_t *slot = &needs[lane_of(&tape->instrs[who - 1])];
    if (who > *slot)
        *slot = who;
}

static void write_piece(const linking *l, history *h, size_t p, uint32_t who, uint32_t *needs)
{
    uint32_t *readers = &h->readers[p * l->lanes];
    if (h->pieces[p].writer != who)
        need(needs, l->tape, h->pieces[p].writer);
    for (uint32_t s = 0; s < l->lanes; s++) {
        if (readers[s] != who)
            need(needs, l->tape, readers[s]);
        readers[s] = NOBODY;
    }
    h->pieces[p].writer = who;
}

static atom_status collect_needs(linking *l, uint32_t index, uint32_t *needs)
{
    const swap_instr *in = &l->tape->instrs[index];
    size_t first;
    for (uint32_t r = 0; r < in->n_reads; r++) {
        history *h = history_of(l, in, in->reads[r].space);
        uint64_t hi = in->reads[r].offset + in->reads[r].bytes;
        ATOM_TRY(isolate(l, h, in->reads[r].offset, hi, &first));
        for (size_t p = first; p < h->n && h->pieces[p].lo < hi; p++) {
            need(needs, l->tape, h->pieces[p].writer);
            h->readers[p * l->lanes + lane_of(in)] = index + 1;
        }
    }
    for (uint32_t w = 0; w < in->n_writes; w++) {
        history *h = history_of(l, in, in->writes[w].space);
        uint64_t hi = in->writes[w].offset + in->writes[w].bytes;
        ATOM_TRY(isolate(l, h, in->writes[w].offset, hi, &first));
        for (size_t p = first; p < h->n && h->pieces[p].lo < hi; p++)
            write_piece(l, h, p, index + 1, needs);
    }
    return ATOM_OK;
}

/* Turns needs into waits, latest first, so that what one wait implies is not waited for again. */
static atom_status add_waits(linking *l, uint32_t index, const uint32_t *needs)
{
    uint32_t lane = lane_of(&l->tape->instrs[index]), *now = l->latest[lane];
    uint32_t waits[SWAP_LANES_MAX], n = 0;
    for (;;) {
        uint32_t best = NOBODY;
        for (uint32_t s = 0; s < l->lanes; s++) {
            if (s != lane && needs[s] > now[s] && needs[s] > best)
                best = needs[s];
        }
        if (best == NOBODY)
            break;
        const uint32_t *then = &l->clocks[(size_t)(best - 1) * l->lanes];
        waits[n++] = best - 1;
        for (uint32_t s = 0; s < l->lanes; s++)
            now[s] = now[s] > then[s] ? now[s] : then[s];
    }
    now[lane] = index + 1;
    memcpy(&l->clocks[(size_t)index * l->lanes], now, l->lanes * sizeof *now);
    return swap_tape_wait(l->tape, index, waits, n);
}

static void forget(history *h)
{
    atom_free(h->pieces);
    atom_free(h->readers);
}

atom_status swap_tape_link(swap_tape *tape)
{
    linking l = {.tape = tape, .lanes = swap_lanes(tape->n_devices)};
    atom_status st = ATOM_OK;
    l.clocks = atom_alloc((size_t)tape->n * l.lanes + 1, sizeof *l.clocks);
    if (!l.clocks)
        return atom_fail_memory("a tape's clocks", tape->n * l.lanes * sizeof *l.clocks);
    for (uint32_t i = 0; i < tape->n; i++) {
        uint32_t needs[SWAP_LANES_MAX] = {NOBODY};
        ATOM_TRY_CLEAN(collect_needs(&l, i, needs));
        ATOM_TRY_CLEAN(add_waits(&l, i, needs));
    }
cleanup:
    for (uint32_t d = 0; d < tape->n_devices; d++)
        forget(&l.arenas[d]);
    forget(&l.host);
    forget(&l.disk);
    atom_free(l.clocks);
    return st;
}
