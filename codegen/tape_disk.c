/*
 * Owns the traffic of the disk tier. One idea: a block comes into a slot, is updated there and goes
 * out of it as the next generation; only the order of blocks differs from tape to tape. Refuses to
 * say when the state is whole: it commits behind the last block, wherever that is.
 */
#include "codegen/tape_inner.h"

/* Trained parameters that have elements in [first, last) of the canonical vector. */
static void params_between(const gen_lowered *low, uint64_t first, uint64_t last, int32_t *from,
                           int32_t *to)
{
    const swap_param *params = low->params;
    *from = *to = 0;
    while (*from < (int32_t)low->n_params && params[*from].offset + params[*from].elements <= first)
        ++*from;
    *to = *from;
    while (*to < (int32_t)low->n_params && params[*to].offset < last)
        ++*to;
}

/*
 * The blocks of the disk tier come and go by slots. The last of them are a ring that most blocks
 * pass through; the others hold the first blocks for good, which are the first that a step updates
 * and that forward waits for: they are never read again, and written when the disk has time, which
 * with clipping is during backward.
 */
enum { RING_WORKS = 4 }; /* one comes, one is at work, one goes, one is where they are uneven */

static uint64_t held_of(uint64_t ring, uint64_t n)
{
    return ring >= n ? n : ring > RING_WORKS ? ring - RING_WORKS : 0;
}

static uint64_t held_blocks(const gen_layout *layout)
{
    return held_of(layout->plan->ring_blocks, swap_blocks_n(layout->out->layout.blocks));
}

uint64_t gen_disk_read_bytes(const gen_lowered *low, const part_plan *plan)
{
    const uint64_t n = swap_blocks_n(low->layout.blocks);
    uint64_t bytes = 0;
    for (uint64_t i = held_of(plan->ring_blocks, n); i < n; i++)
        bytes += swap_block_bytes(low->layout.blocks, i);
    return bytes;
}

/* Where block i is when it is held, or else the turn-th that passes through the ring. */
static swap_range slot_of(const gen_layout *layout, uint64_t i, uint64_t turn)
{
    const swap_host_layout *h = &layout->out->layout;
    uint64_t held = held_blocks(layout), ring = layout->plan->ring_blocks;
    uint64_t slot = i < held ? i : held + turn % (ring - held);
    return (swap_range){SWAP_HOST, h->ring + slot * swap_block_room(h->blocks),
                        swap_block_bytes(h->blocks, i)};
}

/* Where all pass through in their order. */
static swap_range block_slot(const gen_layout *layout, uint64_t i)
{
    return slot_of(layout, i, i - held_blocks(layout));
}

static swap_range block_disk(const gen_layout *layout, uint64_t i)
{
    const swap_blocks *b = &layout->out->layout.blocks;
    return (swap_range){SWAP_DISK, swap_block_offset(*b, i), swap_block_bytes(*b, i)};
}

static atom_status emit_load(gen_writer *w, uint64_t i, swap_range slot)
{
    return gen_write_copy(w, SWAP_LOAD, DEV_LOAD, -1, -1, slot, block_disk(w->layout, i));
}

static atom_status emit_store(gen_writer *w, uint64_t i, swap_range slot)
{
    return gen_write_copy(w, SWAP_STORE, DEV_STORE, -1, -1, block_disk(w->layout, i), slot);
}

atom_status gen_write_loads(gen_writer *w, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++)
        ATOM_TRY(emit_load(w, i, block_slot(w->layout, i)));
    return ATOM_OK;
}

static atom_status emit_stores(gen_writer *w, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++)
        ATOM_TRY(emit_store(w, i, block_slot(w->layout, i)));
    return ATOM_OK;
}

/* Those of the ring only where all updates are at the beginning of a step: the step before has
 * loaded them. */
uint64_t gen_ready_blocks(const gen_writer *w)
{
    uint64_t n = swap_blocks_n(w->layout->out->layout.blocks), ring = w->layout->plan->ring_blocks;
    uint64_t ready = w->layout->plan->clip && !w->ahead ? ring : held_blocks(w->layout);
    return ready < n ? ready : n;
}

/* An instruction on all of block i, which reads and writes what an update does. */
static swap_instr block_instr(gen_writer *w, swap_accesses *room, swap_code code, uint64_t i,
                              swap_range slot)
{
    const swap_host_layout *h = &w->layout->out->layout;
    uint32_t each = w->layout->wire_bytes_each;
    swap_instr in = gen_instr(room, code, DEV_HOST, -1, -1);
    in.src = slot;
    in.first_element = swap_block_first(h->blocks, i);
    in.last_element = in.first_element + swap_block_elements(h->blocks, i);
    params_between(w->layout->out, in.first_element, in.last_element, &in.first_param,
                   &in.last_param);
    swap_instr_writes(&in, slot);
    swap_instr_writes(&in, gen_wire_range(w->layout, in.first_element,
                                          (in.last_element - in.first_element) * each));
    if (w->layout->muon_bytes)
        swap_instr_writes(&in, (swap_range){SWAP_HOST, h->muon, w->layout->muon_bytes});
    return in;
}

static atom_status emit_block_update(gen_writer *w, uint64_t i, swap_range slot, bool ahead)
{
    swap_accesses room;
    swap_instr in = block_instr(w, &room, SWAP_UPDATE, i, slot);
    in.ahead = ahead;
    in.begun = w->layout->plan->ortho_on_device && gen_has_matrices(w, &in);
    if (!w->layout->plan->clip && in.first_param < in.last_param)
        swap_instr_reads(&in, gen_norm_range(w, in.first_param, in.last_param, SWAP_HOST));
    return gen_write(w, &in);
}

static atom_status emit_commit(gen_writer *w)
{
    const swap_host_layout *h = &w->layout->out->layout;
    swap_accesses room;
    swap_instr commit = gen_instr(&room, SWAP_COMMIT, DEV_STORE, -1, -1);
    swap_instr_writes(&commit, (swap_range){SWAP_DISK, 0, swap_blocks_bytes(h->blocks)});
    return gen_write(w, &commit);
}

atom_status gen_write_blocks(gen_writer *w, uint64_t from)
{
    uint64_t held = held_blocks(w->layout), ready = gen_ready_blocks(w);
    if (from >= w->undone)
        return ATOM_OK;
    for (uint64_t i = from; i < w->undone; i++) {
        if (i >= ready)
            ATOM_TRY(gen_write_loads(w, i, i + 1));
        ATOM_TRY(emit_block_update(w, i, block_slot(w->layout, i), false));
        if (i >= held)
            ATOM_TRY(emit_stores(w, i, i + 1));
    }
    ATOM_TRY(emit_stores(w, from, held < w->undone ? held : w->undone));
    w->undone = from;
    if (from > 0)
        return ATOM_OK;
    ATOM_TRY(emit_commit(w));
    if (w->tape->kind == SWAP_TAPE_TRAIN)
        ATOM_TRY(gen_write_loads(w, held, ready)); /* for the next step */
    return ATOM_OK;
}

/* --- with products on the device ---------------------------------------------------------------- */

/* Comes, and its matrices are begun. */
static atom_status begin_block(gen_writer *w, uint64_t i)
{
    swap_range slot = block_slot(w->layout, i);
    swap_accesses room;
    swap_instr in = block_instr(w, &room, SWAP_BEGIN, i, slot);
    if (i >= gen_ready_blocks(w))
        ATOM_TRY(emit_load(w, i, slot));
    return gen_has_matrices(w, &in) ? gen_write(w, &in) : ATOM_OK;
}

static atom_status end_block(gen_writer *w, uint64_t i)
{
    const swap_blocks b = w->layout->out->layout.blocks;
    swap_range slot = block_slot(w->layout, i);
    uint64_t first = swap_block_first(b, i);
    ATOM_TRY(gen_write_products(w, -1, first, first + swap_block_elements(b, i)));
    ATOM_TRY(emit_block_update(w, i, slot, false));
    return i >= held_blocks(w->layout) ? emit_store(w, i, slot) : ATOM_OK;
}

/* Past the last block that begins in sub-model k or in front of it. */
static uint64_t past_block(const gen_layout *layout, uint32_t k)
{
    do
        k++;
    while (k < layout->n && layout->visits[k].first_trained == layout->visits[k].last_trained);
    return k < layout->n ? swap_block_from(layout->out->layout.blocks, layout->visits[k].own_offset)
                         : swap_blocks_n(layout->out->layout.blocks);
}

/* While the device multiplies the matrices of one block the host begins those of the next. */
atom_status gen_write_muon_blocks(gen_writer *w, uint32_t k)
{
    const uint64_t n = swap_blocks_n(w->layout->out->layout.blocks),
                   past = past_block(w->layout, k);
    const uint64_t held = held_blocks(w->layout), before = w->ended;
    for (; w->ended < past; w->ended++) {
        for (; w->begun < n && w->begun < w->ended + 2; w->begun++)
            ATOM_TRY(begin_block(w, w->begun));
        ATOM_TRY(end_block(w, w->ended));
    }
    if (before == n || w->ended < n)
        return ATOM_OK;
    ATOM_TRY(emit_stores(w, 0, held));
    ATOM_TRY(emit_commit(w));
    if (w->tape->kind == SWAP_TAPE_TRAIN)
        ATOM_TRY(gen_write_loads(w, held, gen_ready_blocks(w))); /* for the next step */
    return ATOM_OK;
}

/* --- some ahead ------------------------------------------------------------------------------- */

/*
 * With clipping no update may be kept before the norm of the whole gradient is known. But mostly
 * nothing is clipped, so some blocks are updated as if it were so, while backward runs; they go to
 * the next generation, which is committed only if the guess was right (SWAP_TAPE_AHEAD). The others
 * wait, and are updated at the start of the next step.
 *
 * Which ones: a block can be updated from its backward to its next forward. Backward takes about
 * twice as long as forward, so two thirds of the disk's work is done ahead, evenly over the model:
 * then neither half of a step waits for the disk while the other leaves it idle. What the first
 * sub-model owns is not among them, since nothing would run beside it; nor are held blocks, whose
 * updates cost no reading and are needed first.
 */
typedef struct share {
    uint64_t first, past; /* of the blocks that could be */
    uint64_t n;           /* that many of them are, evenly spread */
} share;

/* The first block that begins in sub-model k or behind it. */
static uint64_t first_block(const gen_layout *layout, uint32_t k)
{
    return swap_block_from(layout->out->layout.blocks, layout->visits[k].own_offset);
}

static share share_of(const gen_layout *layout)
{
    uint64_t held = held_blocks(layout), n = swap_blocks_n(layout->out->layout.blocks);
    uint32_t k = 1;
    while (k < layout->n && layout->visits[k].first_trained == layout->visits[k].last_trained)
        k++;
    if (!layout->plan->disk || !layout->plan->clip || k >= layout->n || held >= n)
        return (share){0};
    if (layout->plan->ortho_on_device) /* products would wait for what was just spilled */
        return (share){0};
    share s = {.first = first_block(layout, k), .past = n};
    s.first = s.first > held ? s.first : held;
    if (s.first >= n)
        return (share){0};
    s.n = (2 * (n - held) + held + 1) / 3; /* a held one moves once, others twice */
    s.n = s.n < n - s.first ? s.n : n - s.first;
    return s;
}

static bool is_ahead(share s, uint64_t i)
{
    uint64_t of = s.past - s.first;
    return s.n && i >= s.first && (i - s.first + 1) * s.n / of > (i - s.first) * s.n / of;
}

bool gen_has_ahead(const gen_layout *layout)
{
    return share_of(layout).n > 0;
}

/* Through the ring, in its turn. */
static atom_status pass(gen_writer *w, uint64_t i, bool ahead)
{
    swap_range slot = slot_of(w->layout, i, w->turn++);
    ATOM_TRY(emit_load(w, i, slot));
    ATOM_TRY(emit_block_update(w, i, slot, ahead));
    return emit_store(w, i, slot);
}

atom_status gen_write_ahead(gen_writer *w, uint32_t k)
{
    share s = share_of(w->layout);
    uint64_t from = first_block(w->layout, k);
    for (uint64_t i = from; i < w->undone; i++) {
        if (is_ahead(s, i))
            ATOM_TRY(pass(w, i, true));
    }
    w->undone = from < w->undone ? from : w->undone;
    return ATOM_OK;
}

atom_status gen_write_rest(gen_writer *w)
{
    share s = share_of(w->layout);
    uint64_t held = held_blocks(w->layout), n = swap_blocks_n(w->layout->out->layout.blocks);
    for (uint64_t i = 0; i < n; i++) {
        if (i < held)
            ATOM_TRY(emit_block_update(w, i, block_slot(w->layout, i), false));
        else if (!is_ahead(s, i))
            ATOM_TRY(pass(w, i, false));
    }
    ATOM_TRY(emit_stores(w, 0, held));
    return emit_commit(w);
}
