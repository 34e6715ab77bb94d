/*
 * Owns what every instruction of a tape goes through: its device, its cost, and the ranges that it
 * reads and writes. Refuses to know an order: tape.c and tape_disk.c do.
 */
#include "codegen/tape_inner.h"

atom_status gen_write(gen_writer *w, swap_instr *in)
{
    in->device = dev_stream_is_own(in->stream) ? (uint8_t)w->device : 0;
    gen_cost_fill(w->layout, w->profile, in);
    return swap_tape_add(w->tape, in);
}

swap_instr gen_instr(swap_accesses *room, swap_code code, dev_stream_kind stream, int32_t k,
                     int32_t i)
{
    return (swap_instr){.code = code,
                        .stream = stream,
                        .sub_model = k,
                        .micro_batch = i,
                        .reads = room->reads,
                        .writes = room->writes};
}

atom_status gen_write_copy(gen_writer *w, swap_code code, dev_stream_kind stream, int32_t k,
                           int32_t i, swap_range dst, swap_range src)
{
    if (src.bytes == 0)
        return ATOM_OK;
    swap_accesses room;
    swap_instr in = gen_instr(&room, code, stream, k, i);
    in.src = src;
    in.dst = dst;
    swap_instr_reads(&in, src);
    swap_instr_writes(&in, dst);
    return gen_write(w, &in);
}

swap_range gen_wire_range(const gen_layout *layout, uint64_t element, uint64_t bytes)
{
    return (swap_range){SWAP_HOST, layout->out->layout.wire + element * layout->wire_bytes_each,
                        bytes};
}

swap_range gen_norm_range(const gen_writer *w, int32_t first, int32_t last, swap_space space)
{
    const gen_lowered *out = w->layout->out;
    uint64_t from = out->params[first].norm_chunk;
    uint64_t past =
        last < (int32_t)out->n_params ? out->params[last].norm_chunk : out->layout.norm_chunks;
    uint64_t base = space == SWAP_DEVICE ? w->layout->norms.offset : out->layout.norms;
    return (swap_range){space, base + from * 8, (past - from) * 8};
}
