/*
 * Owns the independent proof that a linked tape is safe. One idea: happens-before is reachability
 * over stream order and waits; list every conflicting pair of byte ranges by a sweep over addresses
 * and ask for each whether the later instruction can be reached from the earlier one. Shares no
 * code with swap_tape_link() and refuses to mend anything.
 */
#include "swap/tape.h"

#include "atom/base/mem.h"

#include <stdlib.h>

typedef struct access {
    uint64_t lo, hi;
    uint32_t instr;
    uint8_t writes;
} access_range;

typedef struct proof {
    const swap_tape *tape;
    uint32_t lanes;
    uint32_t *reach; /* [n][lanes]: index + 1 of the last instruction of a lane known done */
} proof;

static uint32_t lane_of(const swap_instr *in)
{
    return swap_lane(in->device, in->stream);
}

static void compute_reach(proof *p)
{
    uint32_t last[SWAP_LANES_MAX] = {0};
    for (uint32_t i = 0; i < p->tape->n; i++) {
        const swap_instr *in = &p->tape->instrs[i];
        uint32_t *mine = &p->reach[(size_t)i * p->lanes];
        for (uint32_t w = 0; w <= in->n_waits; w++) {
            uint32_t before = w < in->n_waits ? in->waits[w] + 1 : last[lane_of(in)];
            if (before == 0)
                continue;
            const uint32_t *theirs = &p->reach[(size_t)(before - 1) * p->lanes];
            for (uint32_t s = 0; s < p->lanes; s++)
                mine[s] = mine[s] > theirs[s] ? mine[s] : theirs[s];
        }
        mine[lane_of(in)] = i + 1;
        last[lane_of(in)] = i + 1;
    }
}

static int by_address(const void *a, const void *b)
{
    const access_range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Of the arena of that device, or of a space that is there once. */
static size_t list_accesses(const swap_tape *tape, swap_space space, uint32_t device,
                            access_range *list)
{
    size_t n = 0;
    for (uint32_t i = 0; i < tape->n; i++) {
        const swap_instr *in = &tape->instrs[i];
        if (space == SWAP_DEVICE && in->device != device)
            continue;
        for (uint32_t r = 0; r < (uint32_t)in->n_reads + in->n_writes; r++) {
            int writes = r >= in->n_reads;
            swap_range range = writes ? in->writes[r - in->n_reads] : in->reads[r];
            if (range.space == space)
                list[n++] =
                    (access_range){range.offset, range.offset + range.bytes, i, (uint8_t)writes};
        }
    }
    qsort(list, n, sizeof *list, by_address);
    return n;
}

static atom_status check_pair(const proof *p, const access_range *a, const access_range *b)
{
    if (a->instr == b->instr || !(a->writes || b->writes))
        return ATOM_OK;
    uint32_t early = a->instr < b->instr ? a->instr : b->instr;
    uint32_t late = a->instr < b->instr ? b->instr : a->instr;
    const swap_instr *e = &p->tape->instrs[early], *l = &p->tape->instrs[late];
    if (p->reach[(size_t)late * p->lanes + lane_of(e)] > early)
        return ATOM_OK;
    return atom_fail(ATOM_E_RUNTIME,
                     "tape hazard: %u %s(%d,%d) and %u %s(%d,%d) touch the same bytes unordered",
                     early, swap_code_name(e->code), e->sub_model, e->micro_batch, late,
                     swap_code_name(l->code), l->sub_model, l->micro_batch);
}

static atom_status check_space(const proof *p, swap_space space, uint32_t device,
                               access_range *list)
{
    const uint64_t limits[SWAP_SPACE_N] = {p->tape->device_bytes, p->tape->host_bytes,
                                           p->tape->disk_bytes};
    uint64_t limit = limits[space];
    size_t n = list_accesses(p->tape, space, device, list);
    for (size_t i = 0; i < n; i++) {
        if (list[i].hi > limit || list[i].lo >= list[i].hi)
            return atom_fail(ATOM_E_RUNTIME, "tape hazard: instruction %u leaves its memory",
                             list[i].instr);
        for (size_t j = i + 1; j < n && list[j].lo < list[i].hi; j++) {
            ATOM_TRY(check_pair(p, &list[i], &list[j]));
        }
    }
    return ATOM_OK;
}

/* Waits are for what came before, and devices have the streams that are used. */
static atom_status check_order(const swap_tape *tape)
{
    for (uint32_t i = 0; i < tape->n; i++) {
        const swap_instr *in = &tape->instrs[i];
        if (in->device >= tape->n_devices || (in->device && !dev_stream_is_own(in->stream)))
            return atom_fail(ATOM_E_RUNTIME, "tape hazard: %u is on no stream of device %u", i,
                             in->device);
        for (uint32_t w = 0; w < in->n_waits; w++) {
            if (in->waits[w] >= i)
                return atom_fail(ATOM_E_RUNTIME, "tape hazard: %u waits for the later %u", i,
                                 in->waits[w]);
        }
    }
    return ATOM_OK;
}

atom_status swap_hazard_check(const swap_tape *tape)
{
    atom_status st;
    proof p = {.tape = tape, .lanes = swap_lanes(tape->n_devices)};
    access_range *list = NULL;
    size_t n = 0;
    for (uint32_t i = 0; i < tape->n; i++)
        n += (size_t)tape->instrs[i].n_reads + tape->instrs[i].n_writes;
    p.reach = atom_alloc((size_t)tape->n * p.lanes + 1, sizeof *p.reach);
    list = atom_alloc(n + 1, sizeof *list);
    if (!p.reach || !list)
        ATOM_TRY_CLEAN(atom_fail_memory("the hazard check", n * sizeof *list));
    ATOM_TRY_CLEAN(check_order(tape));
    compute_reach(&p);
    for (uint32_t d = 0; d < tape->n_devices; d++)
        ATOM_TRY_CLEAN(check_space(&p, SWAP_DEVICE, d, list));
    ATOM_TRY_CLEAN(check_space(&p, SWAP_HOST, 0, list));
    ATOM_TRY_CLEAN(check_space(&p, SWAP_DISK, 0, list));
cleanup:
    atom_free(p.reach);
    atom_free(list);
    return st;
}
