/*
 * Whether what a lowered plan touches is where its memory map says. The hazard check orders any two
 * ranges that meet, so it is content with two things in one place as long as they take turns; here each
 * range of memory lies in one region, and regions do not meet.
 */
#ifndef TESTS_LIB_INSIDE_REGIONS_H
#define TESTS_LIB_INSIDE_REGIONS_H

#include "atom/base/status.h"
#include "codegen/lower.h"

#include <string.h>

static inline bool is_inside_region(const gen_lowered *low, swap_range r)
{
    for (uint32_t i = 0; i < low->n_regions; i++) {
        const swap_region *in = &low->regions[i];
        if (in->space == r.space && r.offset >= in->offset &&
            r.offset + r.bytes <= in->offset + in->bytes)
            return true;
    }
    return r.bytes == 0 || r.space == SWAP_DISK;
}

/* Whether it is in the region of that name. */
static inline bool is_inside(const gen_lowered *low, const char *name, swap_range r)
{
    for (uint32_t i = 0; i < low->n_regions; i++) {
        const swap_region *in = &low->regions[i];
        if (strcmp(in->name, name) == 0)
            return in->space == r.space && r.offset >= in->offset &&
                   r.offset + r.bytes <= in->offset + in->bytes;
    }
    return false;
}

static inline atom_status regions_apart(const gen_lowered *low)
{
    for (uint32_t i = 0; i < low->n_regions; i++) {
        const swap_region *a = &low->regions[i];
        if (a->offset + a->bytes > (a->space == SWAP_DEVICE ? low->device_bytes : low->host_bytes))
            return atom_fail(ATOM_E_RUNTIME, "the region \"%s\" ends outside of its memory",
                             a->name);
        for (uint32_t j = 0; j < i; j++) {
            const swap_region *b = &low->regions[j];
            if (a->space == b->space && a->offset < b->offset + b->bytes &&
                b->offset < a->offset + a->bytes)
                return atom_fail(ATOM_E_RUNTIME, "the regions \"%s\" and \"%s\" overlap", b->name,
                                 a->name);
        }
    }
    return ATOM_OK;
}

static inline atom_status inside_regions(const gen_lowered *low)
{
    ATOM_TRY(regions_apart(low));
    for (int t = 0; t < SWAP_TAPE_N; t++) {
        const swap_tape *tape = low->tapes[t];
        for (uint32_t i = 0; tape && i < tape->n; i++) {
            const swap_instr *in = &tape->instrs[i];
            for (uint32_t r = 0; r < in->n_reads + in->n_writes; r++) {
                swap_range range = r < in->n_reads ? in->reads[r] : in->writes[r - in->n_reads];
                if (!is_inside_region(low, range))
                    return atom_fail(
                        ATOM_E_RUNTIME,
                        "instruction %u (code %d) of tape %d touches %llu bytes at %llu of "
                        "space %d, which are in no region",
                        i, (int)in->code, t, (unsigned long long)range.bytes,
                        (unsigned long long)range.offset, (int)range.space);
            }
        }
    }
    return ATOM_OK;
}

#endif
