/*
 * Owns the updates of a state in host memory. One idea: a large sub-model is updated in pieces, each
 * an instruction of its own, so that the fetch of the first ones need not wait for the last ones.
 * Refuses to say when: tape.c does, and blocks of a state on disk are tape_disk.c's.
 */
#include "codegen/tape_inner.h"

#include "atom/base/mem.h"

uint32_t gen_pieces(const gen_writer *w, uint32_t k)
{
    const gen_visit *v = &w->layout->visits[k];
    const part_device unknown = {0};
    if (w->layout->plan->in_place)
        return 1;
    return part_pieces(w->profile ? &w->profile->device : &unknown, v->own_bytes + v->frozen_bytes);
}

uint32_t gen_pieces_beside(const gen_writer *w, uint64_t bytes, uint32_t n)
{
    const part_device unknown = {0};
    return part_pieces_beside(w->profile ? &w->profile->device : &unknown, bytes, n);
}

static uint64_t past_own(const gen_writer *w, const gen_visit *v)
{
    return v->own_offset + v->own_bytes / w->layout->wire_bytes_each;
}

swap_instr gen_update_instr(const gen_writer *w, swap_accesses *room, dev_stream_kind stream,
                            uint32_t k)
{
    const gen_visit *v = &w->layout->visits[k];
    swap_instr in = gen_instr(room, SWAP_UPDATE, stream, (int32_t)k, -1);
    in.first_param = v->first_trained;
    in.last_param = v->last_trained;
    in.first_element = v->own_offset;
    in.last_element = past_own(w, v);
    return in;
}

/* Wire copy, master and moments of what the instruction updates. */
static void state_ranges(const gen_writer *w, swap_instr *in)
{
    const swap_host_layout *h = &w->layout->out->layout;
    const gen_lowered *out = w->layout->out;
    uint64_t first = in->first_element, past = in->last_element;
    uint32_t moment = atom_dtype_bytes(h->moments);
    const struct {
        uint64_t at, first, past;
        uint32_t each;
    } parts[SWAP_STATE_N] = {{h->master, first, past, 4},
                             {h->m, first, past, moment},
                             {h->v, swap_second_at(out->params, out->n_params, first),
                              swap_second_at(out->params, out->n_params, past), moment}};
    uint64_t bytes = (past - first) * w->layout->wire_bytes_each;
    swap_instr_writes(in, gen_wire_range(w->layout, first, bytes));
    for (int s = 0; s < SWAP_STATE_N; s++)
        swap_instr_writes(in, (swap_range){SWAP_HOST, parts[s].at + parts[s].first * parts[s].each,
                                           (parts[s].past - parts[s].first) * parts[s].each});
}

/* Leaves the first `least` elements of the update, and what must be updated with them: a parameter
 * of matrices is not divided. */
static void shorten(const gen_writer *w, swap_instr *in, uint64_t least)
{
    const swap_param *params = w->layout->out->params;
    uint64_t past = in->first_element + least;
    int32_t p = in->first_param;
    while (p < in->last_param && params[p].offset < past)
        p++;
    if (params[p - 1].n_matrices)
        past = p < in->last_param ? params[p].offset : in->last_element;
    in->last_param = p;
    in->last_element = past < in->last_element ? past : in->last_element;
}

atom_status gen_write_piece(gen_writer *w, swap_instr *in)
{
    state_ranges(w, in);
    if (w->layout->muon_bytes && !in->begun)
        swap_instr_writes(
            in, (swap_range){SWAP_HOST, w->layout->out->layout.muon, w->layout->muon_bytes});
    if (!w->layout->plan->clip)
        swap_instr_reads(in, gen_norm_range(w, in->first_param, in->last_param, SWAP_HOST));
    return gen_write(w, in);
}

atom_status gen_each_piece(gen_writer *w, uint32_t k, gen_piece_fn write)
{
    const gen_visit *v = &w->layout->visits[k];
    const swap_param *params = w->layout->out->params;
    const uint64_t past = past_own(w, v);
    const uint64_t least = atom_align((past - v->own_offset) / gen_pieces(w, k));
    int32_t p = v->first_trained;
    for (uint64_t at = v->own_offset; p < v->last_trained && at < past;) {
        swap_accesses room;
        swap_instr in = gen_update_instr(w, &room, DEV_HOST, k);
        while (p + 1 < v->last_trained && params[p + 1].offset <= at)
            p++;
        in.first_param = p;
        in.first_element = at;
        shorten(w, &in, least);
        at = in.last_element;
        ATOM_TRY(write(w, &in));
    }
    return ATOM_OK;
}

atom_status gen_write_updates(gen_writer *w, uint32_t k)
{
    return gen_each_piece(w, k, gen_write_piece);
}
