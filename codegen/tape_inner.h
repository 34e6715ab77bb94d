/*
 * What the files that write tapes share: tape.c orders a step, tape_disk.c moves the blocks of a
 * state that is on disk, and tape_write.c appends what both decide. Internal to codegen.
 */
#ifndef CODEGEN_TAPE_INNER_H
#define CODEGEN_TAPE_INNER_H

#include "codegen/layout.h"

typedef struct gen_writer {
    gen_layout *layout;
    const part_profile *profile;
    swap_tape *tape;
    bool *valid;      /* per sub-model: its slot holds its current parameters */
    uint32_t fetched; /* pieces of the pending fetch already written */
    int32_t pending;  /* sub-model being prefetched, or -1 */
    int32_t spilling; /* sub-model whose gradients still go to the host, or -1 */
    uint32_t spilled; /* pieces of it already written */
    bool ahead;       /* blocks are updated behind the backward that made their gradients */
    uint64_t undone;  /* disk tier: blocks [0, undone) wait for their update */
    uint64_t turn;    /* blocks that passed through the ring, where some are updated ahead */
} gen_writer;

/* --- tape_write.c ---------------------------------------------------------------------------- */

/* Appends the instruction, with its cost. */
ATOM_MUST atom_status gen_write(gen_writer *w, swap_instr *in);
swap_instr gen_instr(swap_code code, dev_stream_kind stream, int32_t k, int32_t i);
/* A copy of src to dst that reads and writes just these; nothing where src is empty. */
ATOM_MUST atom_status gen_write_copy(gen_writer *w, swap_code code, dev_stream_kind stream,
                                     int32_t k, int32_t i, swap_range dst, swap_range src);
swap_range gen_wire_range(const gen_layout *layout, uint64_t element, uint64_t bytes);
/* Partial sums of squares of trained parameters [first, last). */
swap_range gen_norm_range(const gen_writer *w, int32_t first, int32_t last, swap_space space);

/* --- tape_disk.c ----------------------------------------------------------------------------- */

/* Blocks [0, this) are in memory when the tape's first updates begin. */
uint64_t gen_ready_blocks(const gen_writer *w);
ATOM_MUST atom_status gen_write_loads(gen_writer *w, uint64_t from, uint64_t to);
/* Blocks [from, undone), and the commit when these are the last. */
ATOM_MUST atom_status gen_write_blocks(gen_writer *w, uint64_t from);

/* Can blocks of this plan be updated before the norm is known? */
bool gen_has_ahead(const gen_layout *layout);
/* Of what begins in sub-model k or behind it: those that are updated ahead. */
ATOM_MUST atom_status gen_write_ahead(gen_writer *w, uint32_t k);
/* All others, and the commit. */
ATOM_MUST atom_status gen_write_rest(gen_writer *w);

#endif
