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
    atom_free((*tape)->instrs);
    atom_free(*tape);
    *tape = NULL;
}

atom_status swap_tape_add(swap_tape *tape, const swap_instr *instr)
{
    ATOM_TRY(atom_grow(&tape->instrs, tape->n, &tape->room, sizeof *tape->instrs));
    tape->instrs[tape->n++] = *instr;
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
