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
    uint32_t reader[DEV_STREAM_N];
} piece;

typedef struct history {
    piece *pieces;
    size_t n, room;
} history;

typedef struct clock {
    uint32_t seen[DEV_STREAM_N]; /* index + 1 of the latest instruction that happened before */
} clock;

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

static atom_status insert_piece(history *h, size_t at, piece p)
{
    ATOM_TRY(atom_grow(&h->pieces, h->n, &h->room, sizeof *h->pieces));
    memmove(&h->pieces[at + 1], &h->pieces[at], (h->n - at) * sizeof *h->pieces);
    h->pieces[at] = p;
    h->n++;
    return ATOM_OK;
}

/* Makes [lo, hi) a run of whole pieces; returns the index of the first. */
static atom_status isolate(history *h, uint64_t lo, uint64_t hi, size_t *first)
{
    size_t at = first_piece_past(h, lo);
    *first = at;
    if (at < h->n && h->pieces[at].lo < lo) {
        piece left = h->pieces[at];
        left.hi = lo;
        h->pieces[at].lo = lo;
        ATOM_TRY(insert_piece(h, at, left));
        *first = ++at;
    }
    for (uint64_t done = lo; done < hi; at++) {
        uint64_t next = at < h->n ? h->pieces[at].lo : UINT64_MAX;
        if (next > done) {
            piece fresh = {.lo = done, .hi = next < hi ? next : hi};
            ATOM_TRY(insert_piece(h, at, fresh));
        } else if (h->pieces[at].hi > hi) {
            piece left = h->pieces[at];
            left.hi = hi;
            h->pieces[at].lo = hi;
            ATOM_TRY(insert_piece(h, at, left));
        }
        done = h->pieces[at].hi;
    }
    return ATOM_OK;
}

static void need(uint32_t needs[DEV_STREAM_N], const swap_tape *tape, uint32_t who)
{
    if (who == NOBODY)
        return;
    uint32_t *slot = &needs[tape->instrs[who - 1].stream];
    if (who > *slot)
        *slot = who;
}

static atom_status collect_needs(const swap_tape *tape, uint32_t index,
                                 history spaces[SWAP_SPACE_N], uint32_t needs[DEV_STREAM_N])
{
    const swap_instr *in = &tape->instrs[index];
    size_t first;
    for (uint32_t r = 0; r < in->n_reads; r++) {
        history *h = &spaces[in->reads[r].space];
        uint64_t hi = in->reads[r].offset + in->reads[r].bytes;
        ATOM_TRY(isolate(h, in->reads[r].offset, hi, &first));
        for (size_t p = first; p < h->n && h->pieces[p].lo < hi; p++) {
            need(needs, tape, h->pieces[p].writer);
            h->pieces[p].reader[in->stream] = index + 1;
        }
    }
    for (uint32_t w = 0; w < in->n_writes; w++) {
        history *h = &spaces[in->writes[w].space];
        uint64_t hi = in->writes[w].offset + in->writes[w].bytes;
        ATOM_TRY(isolate(h, in->writes[w].offset, hi, &first));
        for (size_t p = first; p < h->n && h->pieces[p].lo < hi; p++) {
            if (h->pieces[p].writer != index + 1)
                need(needs, tape, h->pieces[p].writer);
            for (int s = 0; s < DEV_STREAM_N; s++) {
                if (h->pieces[p].reader[s] != index + 1)
                    need(needs, tape, h->pieces[p].reader[s]);
                h->pieces[p].reader[s] = NOBODY;
            }
            h->pieces[p].writer = index + 1;
        }
    }
    return ATOM_OK;
}

static void merge(clock *into, const clock *from)
{
    for (int s = 0; s < DEV_STREAM_N; s++) {
        if (from->seen[s] > into->seen[s])
            into->seen[s] = from->seen[s];
    }
}

/* Turns needs into waits, latest first, so that what one wait implies is not waited for again. */
static void add_waits(swap_instr *in, uint32_t index, uint32_t needs[DEV_STREAM_N], clock *clocks,
                      clock *now)
{
    for (;;) {
        int best = -1;
        for (int s = 0; s < DEV_STREAM_N; s++) {
            if (s != (int)in->stream && needs[s] > now->seen[s] &&
                (best < 0 || needs[s] > needs[best]))
                best = s;
        }
        if (best < 0)
            break;
        in->waits[in->n_waits++] = needs[best] - 1;
        merge(now, &clocks[needs[best] - 1]);
    }
    now->seen[in->stream] = index + 1;
    clocks[index] = *now;
}

atom_status swap_tape_link(swap_tape *tape)
{
    history spaces[SWAP_SPACE_N] = {{0}};
    clock latest[DEV_STREAM_N] = {{{0}}};
    atom_status st = ATOM_OK;
    clock *clocks = atom_alloc(tape->n ? tape->n : 1, sizeof *clocks);
    if (!clocks)
        return atom_fail_memory("a tape's clocks", tape->n * sizeof *clocks);
    for (uint32_t i = 0; i < tape->n; i++) {
        swap_instr *in = &tape->instrs[i];
        uint32_t needs[DEV_STREAM_N] = {0};
        in->n_waits = 0;
        ATOM_TRY_CLEAN(collect_needs(tape, i, spaces, needs));
        add_waits(in, i, needs, clocks, &latest[in->stream]);
    }
cleanup:
    for (int s = 0; s < SWAP_SPACE_N; s++)
        atom_free(spaces[s].pieces);
    atom_free(clocks);
    return st;
}
