/*
 * Owns the way of fp32 accumulators through several devices. One idea: what a step sums is one chain
 * over ascending micro-batches, so where a device's share begins it takes over what the device
 * before it has, to the bit, and the last one rounds once (docs/design/engine.md#several-devices).
 * Refuses to add two sums: that would be another order.
 */
#include "codegen/tape_inner.h"

static bool touches(const gen_writer *w, uint32_t k, uint32_t lists, swap_base base)
{
    const swap_sub_model *s = &w->layout->out->program->sub_models[k];
    for (int l = 0; l < SWAP_LIST_N; l++) {
        const swap_calls *calls = &s->list[l];
        for (uint32_t c = 0; (lists & 1u << l) && c < calls->n; c++) {
            for (int b = 0; b < calls->calls[c].n_buf; b++) {
                if (calls->calls[c].buf[b].base == base)
                    return true;
            }
        }
    }
    return false;
}

enum { BACK = 1u << SWAP_LIST_KEEP | 1u << SWAP_LIST_BWD, LATE = 1u << SWAP_LIST_LATE };

bool gen_sums_meet(const gen_writer *w, uint32_t k)
{
    return w->layout->D > 1 && touches(w, k, BACK, SWAP_BASE_SHARED) &&
           touches(w, k, LATE, SWAP_BASE_SHARED);
}

void gen_sums_begin(gen_writer *w)
{
    w->shared = (gen_sums){w->layout->shared, w->layout->shared_hand, GEN_SUMS_NOWHERE};
}

void gen_sums_visit(gen_writer *w, uint32_t k)
{
    const gen_visit *v = &w->layout->visits[k];
    w->grads = (gen_sums){v->grads, v->hand, GEN_SUMS_NOWHERE};
}

/* From the device that has them to the slab. */
static atom_status hand(gen_writer *w, gen_sums *sums, uint32_t k)
{
    uint32_t here = w->device;
    w->device = (uint32_t)sums->holder;
    atom_status st =
        gen_write_copy(w, SWAP_HAND, DEV_D2H, (int32_t)k, -1,
                       (swap_range){SWAP_HOST, sums->hand, sums->range.bytes}, sums->range);
    w->device = here;
    sums->holder = GEN_SUMS_ON_THE_WAY;
    return st;
}

static atom_status clear(gen_writer *w, const gen_sums *sums, uint32_t k)
{
    swap_accesses room;
    swap_instr in = gen_instr(&room, SWAP_CLEAR, DEV_COMPUTE, (int32_t)k, -1);
    in.dst = sums->range;
    swap_instr_writes(&in, in.dst);
    return gen_write(w, &in);
}

static atom_status bring(gen_writer *w, gen_sums *sums, uint32_t k)
{
    if (sums->range.bytes == 0 || sums->holder == (int32_t)w->device)
        return ATOM_OK;
    if (sums->holder >= 0)
        ATOM_TRY(hand(w, sums, k));
    if (sums->holder == GEN_SUMS_NOWHERE)
        ATOM_TRY(clear(w, sums, k));
    else
        ATOM_TRY(gen_write_copy(w, SWAP_TAKE, DEV_H2D, (int32_t)k, -1, sums->range,
                                (swap_range){SWAP_HOST, sums->hand, sums->range.bytes}));
    sums->holder = (int32_t)w->device;
    return ATOM_OK;
}

/* Each device hands its visit's sums on through a place of its own. */
static atom_status bring_grads(gen_writer *w, uint32_t k)
{
    if (w->device > 0)
        w->grads.hand = w->layout->visits[k].hand + (w->device - 1) * w->layout->hand_bytes;
    return bring(w, &w->grads, k);
}

atom_status gen_sums_bring(gen_writer *w, uint32_t k, uint32_t lists)
{
    if (w->layout->D == 1)
        return ATOM_OK;
    if (touches(w, k, lists, SWAP_BASE_GRAD))
        ATOM_TRY(bring_grads(w, k));
    return touches(w, k, lists, SWAP_BASE_SHARED) ? bring(w, &w->shared, k) : ATOM_OK;
}

atom_status gen_sums_end(gen_writer *w, uint32_t k)
{
    const gen_visit *v = &w->layout->visits[k];
    if (w->layout->D == 1)
        return ATOM_OK;
    ATOM_TRY(bring_grads(w, k));
    for (int32_t p = v->first_param; p < v->last_param; p++) {
        if (w->layout->g->params[p].shared && !w->layout->g->params[p].frozen)
            return bring(w, &w->shared, k);
    }
    return ATOM_OK;
}

atom_status gen_sums_home(gen_writer *w, uint32_t k)
{
    bool again = false;
    for (uint32_t j = 0; w->shared.holder > 0 && j < k; j++)
        again = again || touches(w, j, BACK | LATE, SWAP_BASE_SHARED);
    return again ? hand(w, &w->shared, k) : ATOM_OK;
}
