/*
 * Owns what brings parameters to a device. One idea: each device fetches for itself, one visit
 * ahead, in as many pieces as the visit before it has micro-batches, or more where few are large;
 * what is still in its slot is not fetched again. Refuses to know when a slot is free: ranges say
 * that.
 */
#include "codegen/tape_inner.h"

#include "atom/base/mem.h"

static bool ranges_meet(swap_range a, swap_range b)
{
    return a.space == b.space && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

/* What bytes [lo, hi) of the slot have of an extent that begins at byte `at` of it. */
static atom_status fetch_part(gen_writer *w, uint32_t k, uint64_t lo, uint64_t hi, uint64_t at,
                              uint64_t first_element, uint64_t bytes)
{
    uint64_t slot = w->layout->visits[k].slot.offset;
    lo = lo > at ? lo : at;
    hi = hi < at + bytes ? hi : at + bytes;
    if (lo >= hi)
        return ATOM_OK;
    swap_range src = gen_wire_range(w->layout, first_element, hi - lo);
    src.offset += lo - at;
    return gen_write_copy(w, SWAP_FETCH, DEV_H2D, (int32_t)k, -1,
                          (swap_range){SWAP_DEVICE, slot + lo, hi - lo}, src);
}

/* Piece j of n of the fetch of sub-model k; the last piece brings the shared extras. */
static atom_status fetch_piece(gen_writer *w, uint32_t k, uint32_t j, uint32_t n)
{
    const gen_visit *v = &w->layout->visits[k];
    uint64_t all = v->own_bytes + v->frozen_bytes, step = atom_align((all + n - 1) / n);
    uint64_t lo = step * j, hi = lo + step < all ? lo + step : all;
    ATOM_TRY(fetch_part(w, k, lo, hi, 0, v->own_offset, v->own_bytes));
    ATOM_TRY(fetch_part(w, k, lo, hi, v->own_bytes, v->frozen_offset, v->frozen_bytes));
    for (uint32_t e = 0; j + 1 == n && e < v->n_extras; e++) {
        const graph_param *p = &w->layout->g->params[v->extras[e].param];
        uint64_t bytes = p->elements * w->layout->wire_bytes_each;
        swap_range dst = {SWAP_DEVICE, v->slot.offset + v->extras[e].slot_offset, bytes};
        ATOM_TRY(gen_write_copy(w, SWAP_FETCH, DEV_H2D, (int32_t)k, -1, dst,
                                gen_wire_range(w->layout, p->offset, bytes)));
    }
    return ATOM_OK;
}

void gen_fetch_done(gen_writer *w, uint32_t k)
{
    bool *valid = w->fetches[w->device].valid;
    for (uint32_t other = 0; other < w->layout->n; other++) {
        if (ranges_meet(w->layout->visits[other].slot, w->layout->visits[k].slot))
            valid[other] = false;
    }
    valid[k] = true;
}

void gen_fetch_begin(gen_writer *w, int32_t k)
{
    gen_fetches *f = &w->fetches[w->device];
    bool needed = k >= 0 && k < (int32_t)w->layout->n && !f->valid[k] && !w->layout->plan->in_place;
    f->pending = needed ? k : -1;
    f->fetched = 0;
}

atom_status gen_fetch_continue(gen_writer *w, uint32_t upto, uint32_t n)
{
    gen_fetches *f = &w->fetches[w->device];
    if (f->pending < 0)
        return ATOM_OK;
    const uint32_t k = (uint32_t)f->pending;
    const gen_visit *v = &w->layout->visits[k];
    const uint32_t own = gen_pieces(w, k);
    const uint32_t beside = gen_pieces_beside(w, v->own_bytes + v->frozen_bytes, n);
    const uint32_t pieces = own > beside ? own : beside;
    while (f->fetched < (uint64_t)upto * pieces / n + ((uint64_t)upto * pieces % n != 0))
        ATOM_TRY(fetch_piece(w, k, f->fetched++, pieces));
    if (f->fetched >= pieces) {
        gen_fetch_done(w, (uint32_t)f->pending);
        f->pending = -1;
    }
    return ATOM_OK;
}

atom_status gen_fetch_now(gen_writer *w, uint32_t k)
{
    gen_fetch_begin(w, (int32_t)k);
    return gen_fetch_continue(w, 1, 1);
}
