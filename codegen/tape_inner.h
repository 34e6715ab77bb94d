/*
 * What the files that write tapes share: tape.c orders a step, tape_fetch.c brings parameters to a
 * device, tape_sums.c brings accumulators from one device to the next, tape_update.c updates a state
 * in memory, tape_muon.c brings Muon's matrices to the device and back, tape_disk.c moves the blocks
 * of a state that is on disk, and tape_write.c appends what all of them decide. Internal to codegen.
 */
#ifndef CODEGEN_TAPE_INNER_H
#define CODEGEN_TAPE_INNER_H

#include "codegen/layout.h"

/* The parameters of one device. */
typedef struct gen_fetches {
    bool *valid;      /* per sub-model: its slot holds its current parameters */
    uint32_t fetched; /* pieces of the pending fetch already written */
    int32_t pending;  /* sub-model being prefetched, or -1 */
} gen_fetches;

/* Accumulators that travel. With one device they stay, and nothing of this is looked at. */
enum { GEN_SUMS_NOWHERE = -1, GEN_SUMS_ON_THE_WAY = -2 };
typedef struct gen_sums {
    swap_range range; /* in every arena */
    uint64_t hand;    /* where they are on their way, in the slab */
    int32_t holder;   /* the device that has them, or nobody yet, or they are on the way */
} gen_sums;

typedef struct gen_writer {
    gen_layout *layout;
    const part_profile *profile;
    swap_tape *tape;
    uint32_t device; /* whose instructions are written, if its stream is one that each has */
    gen_fetches fetches[SWAP_DEVICES_MAX];
    gen_sums grads;        /* of the visit that runs */
    gen_sums shared;       /* of the step */
    int32_t spilling;      /* sub-model whose gradients still go to the host, or -1 */
    uint32_t spilled;      /* pieces of it already written, */
    uint32_t spill_pieces; /* of so many; 0: as many as are worth it beside the next visit */
    bool ahead;            /* blocks are updated behind the backward that made their gradients */
    uint32_t matrix;       /* matrices that passed through the pair of places */
    uint64_t undone;       /* disk tier: blocks [0, undone) wait for their update */
    uint64_t turn;         /* blocks that passed through the ring, where some are updated ahead */
    uint64_t begun, ended; /* blocks whose matrices are on their way to the device, or are back */
} gen_writer;

/* --- tape_write.c ---------------------------------------------------------------------------- */

/* Appends the instruction, with its cost. */
ATOM_MUST atom_status gen_write(gen_writer *w, swap_instr *in);
/* What it will read and write is noted in *room. */
swap_instr gen_instr(swap_accesses *room, swap_code code, dev_stream_kind stream, int32_t k,
                     int32_t i);
/* A copy of src to dst that reads and writes just these; nothing where src is empty. */
ATOM_MUST atom_status gen_write_copy(gen_writer *w, swap_code code, dev_stream_kind stream,
                                     int32_t k, int32_t i, swap_range dst, swap_range src);
swap_range gen_wire_range(const gen_layout *layout, uint64_t element, uint64_t bytes);
/* Partial sums of squares of trained parameters [first, last). */
swap_range gen_norm_range(const gen_writer *w, int32_t first, int32_t last, swap_space space);

/* --- tape_fetch.c ---------------------------------------------------------------------------- */

/* Sub-model k (there may be none) is what the device fetches next, if it has not got it. */
void gen_fetch_begin(gen_writer *w, int32_t k);
/* Of n parts of it those [.., upto); a part may be several pieces. */
ATOM_MUST atom_status gen_fetch_continue(gen_writer *w, uint32_t upto, uint32_t n);
/* All of it at once. */
ATOM_MUST atom_status gen_fetch_now(gen_writer *w, uint32_t k);
/* Its slot holds its current parameters, and whatever the slot meets no longer does. */
void gen_fetch_done(gen_writer *w, uint32_t k);

/* --- tape_update.c --------------------------------------------------------------------------- */

/* How many pieces of sub-model k's parameters are worth an instruction each. */
uint32_t gen_pieces(const gen_writer *w, uint32_t k);
/* And of so many bytes beside n micro-batches (part_pieces_beside). */
uint32_t gen_pieces_beside(const gen_writer *w, uint64_t bytes, uint32_t n);
/* An UPDATE of all that sub-model k owns; it reads and writes nothing yet. */
swap_instr gen_update_instr(const gen_writer *w, swap_accesses *room, dev_stream_kind stream,
                            uint32_t k);
/* Updates on the host of what sub-model k owns, with the state in memory. */
ATOM_MUST atom_status gen_write_updates(gen_writer *w, uint32_t k);
/* Calls `write` with an UPDATE of each piece of sub-model k, which reads and writes nothing yet. */
typedef atom_status (*gen_piece_fn)(gen_writer *w, swap_instr *in);
ATOM_MUST atom_status gen_each_piece(gen_writer *w, uint32_t k, gen_piece_fn write);
/* Appends the UPDATE of a piece. */
ATOM_MUST atom_status gen_write_piece(gen_writer *w, swap_instr *in);

/* --- tape_muon.c ----------------------------------------------------------------------------- */

/* The updates of sub-model k where the device makes Muon's products. Of all sub-models, in order. */
ATOM_MUST atom_status gen_write_muon(gen_writer *w, uint32_t k);
/* Are there matrices among the elements of that UPDATE, or of what becomes a BEGIN? */
bool gen_has_matrices(const gen_writer *w, const swap_instr *in);
/* The products of matrices in elements [first, past), for sub-model k or several (-1). */
ATOM_MUST atom_status gen_write_products(gen_writer *w, int32_t k, uint64_t first, uint64_t past);

/* --- tape_sums.c ----------------------------------------------------------------------------- */

/* The sums of a step begin, and those of one visit. */
void gen_sums_begin(gen_writer *w);
void gen_sums_visit(gen_writer *w, uint32_t k);
/* Before the device runs those lists of sub-model k: what they add to is there, or zero. */
ATOM_MUST atom_status gen_sums_bring(gen_writer *w, uint32_t k, uint32_t lists);
/* Before the device rounds what sub-model k owns. */
ATOM_MUST atom_status gen_sums_end(gen_writer *w, uint32_t k);
/* After sub-model k's visit on all devices: shared sums set out for the first one, if that will add
 * to them. */
ATOM_MUST atom_status gen_sums_home(gen_writer *w, uint32_t k);
/* Do forward and backward of sub-model k and the late nodes after them add to the same shared sums?
 * Then no late node may run before all devices' backward did. */
bool gen_sums_meet(const gen_writer *w, uint32_t k);

/* --- tape_disk.c ----------------------------------------------------------------------------- */

/* Blocks [0, this) are in memory when the tape's first updates begin. */
uint64_t gen_ready_blocks(const gen_writer *w);
ATOM_MUST atom_status gen_write_loads(gen_writer *w, uint64_t from, uint64_t to);
/* Blocks [from, undone), and the commit when these are the last. */
ATOM_MUST atom_status gen_write_blocks(gen_writer *w, uint64_t from);
/* Where the device makes Muon's products: blocks up to the last one that begins in sub-model k. Of all
 * sub-models, in order; behind the last one the commit. */
ATOM_MUST atom_status gen_write_muon_blocks(gen_writer *w, uint32_t k);

/* Can blocks of this plan be updated before the norm is known? */
bool gen_has_ahead(const gen_layout *layout);
/* Of what begins in sub-model k or behind it: those that are updated ahead. */
ATOM_MUST atom_status gen_write_ahead(gen_writer *w, uint32_t k);
/* All others, and the commit. */
ATOM_MUST atom_status gen_write_rest(gen_writer *w);

#endif
