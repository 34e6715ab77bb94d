/*
 * Owns the way of Muon's matrices to the device and back. One idea: momentum and weights stay on the
 * host, and only what Newton-Schulz turns into a step crosses the link, at the gradient's place in
 * the wire copy; the host begins the matrices of the next sub-model while the device multiplies
 * those of this one. Refuses to say when sub-models are updated: tape.c does.
 *
 * Source: docs/design/engine.md#the-optimizer.
 */
#include "codegen/tape_inner.h"

/* --- the host's first part ------------------------------------------------------------------- */

bool gen_has_matrices(const gen_writer *w, const swap_instr *in)
{
    for (int32_t p = in->first_param; p < in->last_param; p++) {
        if (w->layout->out->params[p].n_matrices)
            return true;
    }
    return false;
}

static atom_status begin_piece(gen_writer *w, swap_instr *piece)
{
    const swap_host_layout *h = &w->layout->out->layout;
    const uint64_t n = piece->last_element - piece->first_element;
    const uint64_t moment = atom_dtype_bytes(h->moments);
    if (!gen_has_matrices(w, piece))
        return ATOM_OK;
    piece->code = SWAP_BEGIN;
    swap_instr_writes(
        piece, gen_wire_range(w->layout, piece->first_element, n * w->layout->wire_bytes_each));
    swap_instr_writes(piece,
                      (swap_range){SWAP_HOST, h->m + piece->first_element * moment, n * moment});
    swap_instr_writes(piece, (swap_range){SWAP_HOST, h->muon, w->layout->muon_bytes});
    return gen_write(w, piece);
}

/* --- the products ---------------------------------------------------------------------------- */

/* Elements [first, past), one matrix of parameter p. */
static atom_status multiply(gen_writer *w, int32_t k, int32_t p, uint64_t first, uint64_t past)
{
    const gen_layout *layout = w->layout;
    swap_range host = gen_wire_range(layout, first, (past - first) * layout->wire_bytes_each);
    swap_range place = {
        SWAP_DEVICE, layout->matrices.offset + w->matrix++ % 2 * layout->matrix_bytes, host.bytes};
    swap_accesses room;
    swap_instr in = gen_instr(&room, SWAP_ORTHO, DEV_COMPUTE, k, -1);
    in.src = place;
    in.dst = layout->ortho;
    in.first_param = p;
    in.last_param = p + 1;
    in.first_element = first;
    in.last_element = past;
    swap_instr_writes(&in, in.src);
    swap_instr_writes(&in, in.dst);
    ATOM_TRY(gen_write_copy(w, SWAP_RAISE, DEV_H2D, k, -1, place, host));
    ATOM_TRY(gen_write(w, &in));
    return gen_write_copy(w, SWAP_LOWER, DEV_D2H, k, -1, host, place);
}

atom_status gen_write_products(gen_writer *w, int32_t k, uint64_t first, uint64_t past)
{
    const gen_lowered *out = w->layout->out;
    uint32_t p = swap_param_at(out->params, out->n_params, first);
    for (; p < out->n_params && out->params[p].offset < past; p++) {
        const swap_param *param = &out->params[p];
        uint64_t at = param->offset, next;
        for (uint8_t i = 0; i < param->n_matrices; i++, at = next) {
            next = at + (uint64_t)(param->rows[i] * param->cols);
            if (at >= first && next <= past)
                ATOM_TRY(multiply(w, k, (int32_t)p, at, next));
        }
    }
    return ATOM_OK;
}

/* --- the host's second part ------------------------------------------------------------------ */

static atom_status end_piece(gen_writer *w, swap_instr *piece)
{
    piece->begun = gen_has_matrices(w, piece);
    return gen_write_piece(w, piece);
}

atom_status gen_write_muon(gen_writer *w, uint32_t k)
{
    const gen_visit *v = &w->layout->visits[k];
    uint64_t past = v->own_offset + v->own_bytes / w->layout->wire_bytes_each;
    if (k == 0)
        ATOM_TRY(gen_each_piece(w, 0, begin_piece));
    if (k + 1 < w->layout->n)
        ATOM_TRY(gen_each_piece(w, k + 1, begin_piece));
    if (v->first_trained < v->last_trained)
        ATOM_TRY(gen_write_products(w, (int32_t)k, v->own_offset, past));
    return gen_each_piece(w, k, end_piece);
}
