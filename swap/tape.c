/*
 * Owns tapes as lists of instructions: opening, appending, printing. Their waits are derived in
 * stream_waits.c and proven in hazard.c. Refuses to reorder anything.
 */
#include "swap/tape.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *swap_code_name(swap_code code)
{
    static const char *const names[SWAP_CODE_N] = {
        "UPLOAD", "FETCH", "FWD",   "BWD",   "LATE",  "STASH", "UNSTASH", "CLEAR",
        "HAND",   "TAKE",  "ROUND", "SPILL", "LOSS",  "CLIP",  "UPDATE",  "BEGIN",
        "RAISE",  "ORTHO", "LOWER", "LOAD",  "STORE", "COMMIT"};
    return code < SWAP_CODE_N ? names[code] : "?";
}

/* --- memory that stays where it is for as long as the tape lives ----------------------------- */

enum { CHUNK_BYTES = 32 << 10 };

struct swap_chunk {
    swap_chunk *before;
    size_t used;
    _Alignas(max_align_t) uint8_t bytes[CHUNK_BYTES];
};

/* At most a chunk. */
ATOM_MUST static atom_status take(swap_tape *tape, size_t bytes, void **at)
{
    swap_chunk *c = tape->chunks;
    const size_t each = (bytes + 7) / 8 * 8;
    if (!c || CHUNK_BYTES - c->used < each) {
        c = atom_alloc(1, sizeof *c);
        if (!c)
            return atom_fail_memory("a tape", sizeof *c);
        c->before = tape->chunks;
        tape->chunks = c;
    }
    *at = c->bytes + c->used;
    c->used += each;
    return ATOM_OK;
}

/* The tape's own copy of n things of that size; NULL where there are none. */
ATOM_MUST static atom_status copy(swap_tape *tape, const void *from, size_t n, size_t size_bytes,
                                  void *to)
{
    void *own = NULL;
    if (from && n > 0) {
        ATOM_TRY(take(tape, n * size_bytes, &own));
        memcpy(own, from, n * size_bytes);
    }
    memcpy(to, &own, sizeof own);
    return ATOM_OK;
}

/* --- lists of instructions --------------------------------------------------------------------- */

atom_status swap_tape_open(swap_tape_kind kind, uint32_t n_micro_batches, uint32_t n_devices,
                           swap_tape **out)
{
    ATOM_ASSERT(n_devices > 0 && n_devices <= SWAP_DEVICES_MAX);
    swap_tape *tape = atom_alloc(1, sizeof *tape);
    if (!tape)
        return atom_fail_memory("a tape", sizeof *tape);
    tape->kind = kind;
    tape->n_micro_batches = n_micro_batches;
    tape->n_devices = n_devices;
    *out = tape;
    return ATOM_OK;
}

void swap_tape_close(swap_tape **tape)
{
    if (!*tape)
        return;
    for (swap_chunk *c = (*tape)->chunks, *before; c; c = before) {
        before = c->before;
        atom_free(c);
    }
    atom_free((*tape)->instrs);
    atom_free(*tape);
    *tape = NULL;
}

atom_status swap_tape_add(swap_tape *tape, const swap_instr *instr)
{
    swap_instr own = *instr;
    own.waits = NULL;
    own.n_waits = 0;
    ATOM_TRY(atom_grow(&tape->instrs, tape->n, &tape->room, sizeof *tape->instrs));
    ATOM_TRY(copy(tape, instr->base, SWAP_BASE_N, sizeof *own.base, &own.base));
    ATOM_TRY(copy(tape, instr->reads, own.n_reads, sizeof *own.reads, &own.reads));
    ATOM_TRY(copy(tape, instr->writes, own.n_writes, sizeof *own.writes, &own.writes));
    tape->instrs[tape->n++] = own;
    return ATOM_OK;
}

atom_status swap_tape_wait(swap_tape *tape, uint32_t i, const uint32_t *waits, uint32_t n)
{
    swap_instr *in = &tape->instrs[i];
    ATOM_TRY(copy(tape, waits, n, sizeof *waits, &in->waits));
    in->n_waits = (uint8_t)n;
    return ATOM_OK;
}

void swap_instr_reads(swap_instr *instr, swap_range range)
{
    if (range.bytes == 0)
        return;
    ATOM_ASSERT(instr->n_reads < SWAP_RANGES_MAX);
    instr->reads[instr->n_reads++] = range;
}

void swap_instr_writes(swap_instr *instr, swap_range range)
{
    if (range.bytes == 0)
        return;
    ATOM_ASSERT(instr->n_writes < SWAP_RANGES_MAX);
    instr->writes[instr->n_writes++] = range;
}

static void print_instr(FILE *f, const swap_tape *tape, uint32_t i)
{
    static const char *const streams[DEV_STREAM_N] = {"compute", "h2d",  "d2h",
                                                      "host",    "load", "store"};
    static const char *const spaces[SWAP_SPACE_N] = {"dev", "host", "disk"};
    const swap_instr *in = &tape->instrs[i];
    fprintf(f, "%5u  %-7s  %-7s", i, streams[in->stream], swap_code_name(in->code));
    if (tape->n_devices > 1)
        fprintf(f, " @%u", in->device);
    fprintf(f, in->sub_model < 0 ? "   -" : " %3d", in->sub_model);
    fprintf(f, in->micro_batch < 0 ? "   -" : " %3d", in->micro_batch);
    fprintf(f, "  %9.3f ms", in->cost.seconds * 1e3);
    for (uint32_t r = 0; r < in->n_reads; r++)
        fprintf(f, " r:%s[%llu+%llu]", spaces[in->reads[r].space],
                (unsigned long long)in->reads[r].offset, (unsigned long long)in->reads[r].bytes);
    for (uint32_t w = 0; w < in->n_writes; w++)
        fprintf(f, " w:%s[%llu+%llu]", spaces[in->writes[w].space],
                (unsigned long long)in->writes[w].offset, (unsigned long long)in->writes[w].bytes);
    for (uint32_t w = 0; w < in->n_waits; w++)
        fprintf(f, " after:%u", in->waits[w]);
    fputc('\n', f);
}

atom_status swap_tape_print(const swap_tape *tape, char **text)
{
    char *buffer = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&buffer, &bytes);
    if (!f)
        return atom_fail_memory("a printed tape", 0);
    for (uint32_t i = 0; i < tape->n; i++)
        print_instr(f, tape, i);
    int bad = fclose(f);
    char *copy = bad ? NULL : atom_strndup(buffer, bytes);
    free(buffer);
    if (!copy)
        return atom_fail_memory("a printed tape", bytes);
    *text = copy;
    return ATOM_OK;
}
