/*
 * Owns the order of a step. One idea: write the step down as if it ran sequentially, one visit
 * after the other, every micro-batch of a visit before the next visit (layer-major,
 * docs/design/engine.md#layer-major-order); the ranges of each instruction then decide what may
 * overlap. Refuses to place memory or to add a wait by hand.
 */
#include "codegen/tape_inner.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <string.h>

/* The share of the device whose instructions are written: micro-batches [first, past). */
typedef struct share {
    uint32_t first, past;
} share;

static share share_of(const gen_writer *w)
{
    return (share){gen_share(w->layout, w->device), gen_share(w->layout, w->device + 1)};
}

/* --- compute --------------------------------------------------------------------------------- */

/* i: of the device's share. */
static void set_bases(const gen_layout *layout, swap_instr *in, uint32_t k, uint32_t i)
{
    const gen_visit *v = &layout->visits[k];
    const swap_host_layout *h = &layout->out->layout;
    uint64_t half = h->micro_batch_bytes / 2;
    uint64_t tokens = layout->tokens.offset + i * h->micro_batch_bytes;
    in->base[SWAP_BASE_PARAM] = v->slot;
    in->base[SWAP_BASE_GRAD] = v->grads;
    in->base[SWAP_BASE_SHARED] = layout->shared;
    in->base[SWAP_BASE_TOKENS] = (swap_range){SWAP_DEVICE, tokens, half};
    in->base[SWAP_BASE_TARGETS] = (swap_range){SWAP_DEVICE, tokens + half, half};
    in->base[SWAP_BASE_LOSS] =
        (swap_range){SWAP_DEVICE, layout->losses.offset + i * h->loss_bytes, h->loss_bytes};
    in->base[SWAP_BASE_KEPT] = gen_store_device(&v->kept, i);
    in->base[SWAP_BASE_HELD] = gen_store_device(&v->held, i);
    in->base[SWAP_BASE_SENT] = gen_store_device(&v->sent, i);
    in->base[SWAP_BASE_ACT] = layout->act;
    in->base[SWAP_BASE_LATE] = gen_store_device(&layout->late, i);
    if (k > 0) {
        in->base[SWAP_BASE_X] = gen_store_device(&v->x_store, i);
        in->base[SWAP_BASE_DX] = gen_store_device(&v->dx_store, i);
    }
    if (k + 1 < layout->n) {
        in->base[SWAP_BASE_Y] = gen_store_device(&layout->visits[k + 1].x_store, i);
        in->base[SWAP_BASE_DY] = gen_store_device(&layout->visits[k + 1].dx_store, i);
    }
}

static uint32_t bases_of(const swap_calls *calls)
{
    uint32_t used = 0;
    for (uint32_t c = 0; c < calls->n; c++) {
        for (int b = 0; b < calls->calls[c].n_buf; b++)
            used |= 1u << calls->calls[c].buf[b].base;
    }
    return used;
}

static atom_status emit_compute(gen_writer *w, swap_code code, uint32_t k, uint32_t i,
                                uint8_t lists, bool train)
{
    const uint32_t read_only = 1u << SWAP_BASE_PARAM | 1u << SWAP_BASE_TOKENS |
                               1u << SWAP_BASE_TARGETS | 1u << SWAP_BASE_X;
    swap_accesses room;
    swap_instr in = gen_instr(&room, code, DEV_COMPUTE, (int32_t)k, (int32_t)i);
    swap_range base[SWAP_BASE_N] = {{0}};
    uint32_t used = 0;
    in.base = base;
    in.lists = lists;
    in.train = train;
    set_bases(w->layout, &in, k, i - share_of(w).first);
    for (int l = 0; l < SWAP_LIST_N; l++) {
        if (lists & (1u << l))
            used |= bases_of(&w->layout->out->program->sub_models[k].list[l]);
    }
    for (int b = 1; b < SWAP_BASE_N; b++) {
        if (!(used & (1u << b)))
            in.base[b] = (swap_range){0};
        else if (read_only & (1u << b))
            swap_instr_reads(&in, in.base[b]);
        else
            swap_instr_writes(&in, in.base[b]);
    }
    swap_instr_writes(&in, w->layout->workspace);
    return gen_write(w, &in);
}

/* --- stores: what is stashed between visits -------------------------------------------------- */

static atom_status stash(gen_writer *w, uint32_t k, uint32_t i, const gen_store *item)
{
    if (item->place != PART_ON_HOST || item->bytes == 0)
        return ATOM_OK;
    return gen_write_copy(w, SWAP_STASH, DEV_D2H, (int32_t)k, (int32_t)i, gen_store_host(item, i),
                          gen_store_device(item, i - share_of(w).first));
}

static atom_status unstash(gen_writer *w, uint32_t k, uint32_t i, const gen_store *item)
{
    if (item->place != PART_ON_HOST || item->bytes == 0)
        return ATOM_OK;
    return gen_write_copy(w, SWAP_UNSTASH, DEV_H2D, (int32_t)k, (int32_t)i,
                          gen_store_device(item, i - share_of(w).first), gen_store_host(item, i));
}

static const gen_store *x_store(const gen_writer *w, uint32_t k)
{
    return &w->layout->visits[k].x_store;
}

static const gen_store *dx_store(const gen_writer *w, uint32_t k)
{
    return &w->layout->visits[k].dx_store;
}

/* --- gradients leave ------------------------------------------------------------------------- */

/* The parameter from p on that is trained; v->last_param if there is none. */
static int32_t next_trained(const graph *g, const gen_visit *v, int32_t p)
{
    while (p < v->last_param && g->params[p].frozen)
        p++;
    return p;
}

/* Rounds maximal runs of trained parameters whose accumulators follow each other. */
static atom_status emit_rounds(gen_writer *w, uint32_t k)
{
    const graph *g = w->layout->g;
    const gen_visit *v = &w->layout->visits[k];
    uint32_t each = w->layout->wire_bytes_each;
    int32_t from = v->first_trained, to;
    for (int32_t a = next_trained(g, v, v->first_param), b; a < v->last_param; a = b, from = to) {
        const graph_param *last = &g->params[a];
        bool shared = last->shared;
        b = next_trained(g, v, a + 1);
        for (to = from + 1; b < v->last_param && g->params[b].shared == shared && !shared; to++) {
            last = &g->params[b];
            b = next_trained(g, v, b + 1);
        }
        uint64_t elements = last->offset + last->elements - g->params[a].offset;
        uint64_t base = shared ? w->layout->shared.offset : v->grads.offset;
        swap_accesses room;
        swap_instr in = gen_instr(&room, SWAP_ROUND, DEV_COMPUTE, (int32_t)k, -1);
        in.src = (swap_range){SWAP_DEVICE, base + w->layout->grad_offset[a], elements * 4};
        in.dst = (swap_range){v->spill.space,
                              v->spill.offset + (g->params[a].offset - v->own_offset) * each,
                              elements * each};
        in.first_param = from;
        in.last_param = to;
        in.norms = gen_norm_range(w, from, to, SWAP_DEVICE);
        swap_instr_writes(&in, in.src);
        swap_instr_writes(&in, in.dst);
        swap_instr_writes(&in, in.norms);
        ATOM_TRY(gen_write(w, &in));
    }
    return ATOM_OK;
}

/* --- the state on the device ------------------------------------------------------------------ */

/* Master, m or v: on the device, or in the slab. */
static swap_range state_range(const gen_writer *w, swap_state part, swap_space space)
{
    const swap_host_layout *h = &w->layout->out->layout;
    const uint64_t at[SWAP_STATE_N] = {h->master, h->m, h->v};
    uint64_t bytes = h->trained * atom_dtype_bytes(swap_state_dtype(part, h->moments));
    uint64_t place = w->layout->state.offset + swap_state_offset(part, h->moments, h->trained);
    return (swap_range){space, space == SWAP_HOST ? at[part] : place, bytes};
}

/* The first step fetches the state, every later one updates it. */
static atom_status emit_device_state(gen_writer *w, bool updates)
{
    const gen_visit *v = &w->layout->visits[0];
    if (updates) {
        swap_accesses room;
        swap_instr in = gen_update_instr(w, &room, DEV_COMPUTE, 0);
        swap_range base[SWAP_BASE_N] = {[SWAP_BASE_PARAM] = v->slot, [SWAP_BASE_GRAD] = v->spill};
        in.src = w->layout->state;
        in.base = base;
        swap_instr_writes(&in, in.src);
        swap_instr_writes(&in, v->slot);
        swap_instr_reads(&in, v->spill);
        gen_fetch_done(w, 0);
        return gen_write(w, &in);
    }
    for (int part = 0; part < SWAP_STATE_N; part++)
        ATOM_TRY(gen_write_copy(w, SWAP_FETCH, DEV_H2D, 0, -1,
                                state_range(w, (swap_state)part, SWAP_DEVICE),
                                state_range(w, (swap_state)part, SWAP_HOST)));
    return ATOM_OK;
}

/* Everything back to where checkpoints and evaluations look for it. */
static atom_status drain_device_state(gen_writer *w)
{
    const gen_visit *v = &w->layout->visits[0];
    swap_range own = {SWAP_DEVICE, v->slot.offset, v->own_bytes};
    ATOM_TRY(emit_device_state(w, true));
    ATOM_TRY(gen_write_copy(w, SWAP_SPILL, DEV_D2H, 0, -1,
                            gen_wire_range(w->layout, v->own_offset, v->own_bytes), own));
    for (int part = 0; part < SWAP_STATE_N; part++)
        ATOM_TRY(gen_write_copy(w, SWAP_SPILL, DEV_D2H, 0, -1,
                                state_range(w, (swap_state)part, SWAP_HOST),
                                state_range(w, (swap_state)part, SWAP_DEVICE)));
    return ATOM_OK;
}

/* Piece j of n of the spill of sub-model k: in pieces, so that the boundary gradients of the visit
 * that runs meanwhile need not queue behind all of it. */
static atom_status spill_piece(gen_writer *w, uint32_t k, uint32_t j, uint32_t n)
{
    const gen_visit *v = &w->layout->visits[k];
    uint64_t step = atom_align((v->own_bytes + n - 1) / n);
    uint64_t lo = step * j, hi = lo + step < v->own_bytes ? lo + step : v->own_bytes;
    if (lo >= hi)
        return ATOM_OK;
    swap_range src = {v->spill.space, v->spill.offset + lo, hi - lo};
    swap_range dst = gen_wire_range(w->layout, v->own_offset, v->own_bytes);
    dst.offset += lo;
    dst.bytes = hi - lo;
    return gen_write_copy(w, SWAP_SPILL, DEV_D2H, (int32_t)k, -1, dst, src);
}

/* As many of them as are due when `upto` of n micro-batches have run. */
static atom_status spill_continue(gen_writer *w, uint32_t upto, uint32_t n)
{
    if (w->spilling < 0)
        return ATOM_OK;
    const uint32_t k = (uint32_t)w->spilling;
    const uint32_t pieces =
        w->spill_pieces ? w->spill_pieces : gen_pieces_beside(w, w->layout->visits[k].own_bytes, n);
    while (w->spilled < (uint64_t)upto * pieces / n + ((uint64_t)upto * pieces % n != 0))
        ATOM_TRY(spill_piece(w, k, w->spilled++, pieces));
    if (w->spilled < pieces)
        return ATOM_OK;
    w->spilling = -1;
    return w->ahead ? gen_write_ahead(w, k) : ATOM_OK;
}

/* At once, or while the next visit runs: only there is something to queue behind it. Where an update
 * follows, in pieces, so that its first ones need not wait for the last of these. */
static atom_status spill_begin(gen_writer *w, uint32_t k)
{
    const part_plan *plan = w->layout->plan;
    bool later = k > 0 && plan->clip && plan->boundaries == PART_ON_HOST;
    w->spilling = (int32_t)k;
    w->spilled = 0;
    w->spill_pieces = later ? 0 : plan->clip ? 1 : gen_pieces(w, k);
    return later ? ATOM_OK : spill_continue(w, 1, 1);
}

/* Updates on the host, of what sub-model k owns. */
static atom_status update_sub_model(gen_writer *w, uint32_t k)
{
    const gen_visit *v = &w->layout->visits[k];
    const part_plan *plan = w->layout->plan;
    if (plan->ortho_on_device)
        return plan->disk ? gen_write_muon_blocks(w, k) : gen_write_muon(w, k);
    if (v->first_trained == v->last_trained)
        return ATOM_OK;
    if (!plan->disk)
        return gen_write_updates(w, k);
    /* what begins in this sub-model or behind it; forward nothing waits, so all at once */
    const swap_blocks b = w->layout->out->layout.blocks;
    return gen_write_blocks(w, plan->clip ? 0 : swap_block_from(b, v->own_offset));
}

static atom_status emit_gradients(gen_writer *w, uint32_t k)
{
    const gen_visit *v = &w->layout->visits[k];
    if (v->first_trained == v->last_trained)
        return ATOM_OK;
    ATOM_TRY(gen_sums_end(w, k));
    ATOM_TRY(emit_rounds(w, k));
    if (!w->layout->plan->clip)
        ATOM_TRY(gen_write_copy(w, SWAP_LOSS, DEV_D2H, (int32_t)k, -1,
                                gen_norm_range(w, v->first_trained, v->last_trained, SWAP_HOST),
                                gen_norm_range(w, v->first_trained, v->last_trained, SWAP_DEVICE)));
    if (!w->layout->plan->in_place && !w->layout->plan->update_on_device)
        ATOM_TRY(spill_begin(w, k));
    else if (w->ahead)
        ATOM_TRY(gen_write_ahead(w, k));
    return w->layout->plan->clip ? ATOM_OK : update_sub_model(w, k);
}

/* --- visits ---------------------------------------------------------------------------------- */

static atom_status forward_share(gen_writer *w, uint32_t k, bool train)
{
    const gen_visit *v = &w->layout->visits[k];
    const share s = share_of(w);
    bool last = k + 1 == w->layout->n;
    part_keep choice = last ? PART_RECOMPUTE : w->layout->plan->sub_models[k].keep;
    bool keep = train && (choice == PART_KEEP_DEVICE || choice == PART_KEEP_HOST);
    gen_fetch_begin(w, (int32_t)k + 1);
    for (uint32_t i = s.first; i < s.past; i++) {
        if (k > 0)
            ATOM_TRY(unstash(w, k, i, x_store(w, k)));
        ATOM_TRY(gen_fetch_continue(w, i - s.first + 1, s.past - s.first));
        ATOM_TRY(emit_compute(w, SWAP_FWD, k, i,
                              (uint8_t)(1u << (keep ? SWAP_LIST_KEEP : SWAP_LIST_FWD)), train));
        if (!last)
            ATOM_TRY(stash(w, k, i, x_store(w, k + 1)));
        if (keep)
            ATOM_TRY(stash(w, k, i, &v->kept));
        if (train)
            ATOM_TRY(stash(w, k, i, &v->sent));
    }
    return ATOM_OK;
}

static atom_status visit_forward(gen_writer *w, uint32_t k, bool train)
{
    for (w->device = 0; w->device < w->layout->D; w->device++)
        ATOM_TRY(forward_share(w, k, train));
    w->device = 0;
    return ATOM_OK;
}

static atom_status backward_share(gen_writer *w, uint32_t k)
{
    const gen_visit *v = &w->layout->visits[k];
    const share s = share_of(w);
    bool turn = k + 1 == w->layout->n, spills = w->device + 1 == w->layout->D;
    part_keep keep = turn ? PART_RECOMPUTE : w->layout->plan->sub_models[k].keep;
    bool again = keep == PART_RECOMPUTE || keep == PART_KEEP_SOME;
    uint8_t lists = (uint8_t)(1u << SWAP_LIST_BWD | (again ? 1u << SWAP_LIST_KEEP : 0));
    gen_fetch_begin(w, (int32_t)k - 1);
    for (uint32_t i = s.first; i < s.past; i++) {
        if (k > 0)
            ATOM_TRY(unstash(w, k, i, x_store(w, k)));
        if (!turn)
            ATOM_TRY(unstash(w, k, i, dx_store(w, k + 1)));
        if (keep == PART_KEEP_HOST)
            ATOM_TRY(unstash(w, k, i, &v->kept));
        ATOM_TRY(unstash(w, k, i, &v->sent));
        ATOM_TRY(gen_sums_bring(w, k, lists));
        ATOM_TRY(gen_fetch_continue(w, i - s.first + 1, s.past - s.first));
        ATOM_TRY(emit_compute(w, SWAP_BWD, k, i, lists, true));
        if (k > 0)
            ATOM_TRY(stash(w, k, i, dx_store(w, k)));
        if (v->has_late)
            ATOM_TRY(stash(w, k, i, &w->layout->late));
        if (spills)
            ATOM_TRY(spill_continue(w, i - s.first + 1, s.past - s.first));
    }
    return ATOM_OK;
}

static atom_status late_share(gen_writer *w, uint32_t k)
{
    const share s = share_of(w);
    for (uint32_t i = s.first; w->layout->visits[k].has_late && i < s.past; i++) {
        ATOM_TRY(unstash(w, k, i, &w->layout->late));
        ATOM_TRY(gen_sums_bring(w, k, 1u << SWAP_LIST_LATE));
        ATOM_TRY(emit_compute(w, SWAP_LATE, k, i, 1u << SWAP_LIST_LATE, true));
    }
    return ATOM_OK;
}

static atom_status visit_backward(gen_writer *w, uint32_t k)
{
    const uint32_t D = w->layout->D;
    bool apart = gen_sums_meet(w, k);
    gen_sums_visit(w, k);
    for (w->device = 0; w->device < D; w->device++) {
        ATOM_TRY(backward_share(w, k));
        if (!apart)
            ATOM_TRY(late_share(w, k));
    }
    for (w->device = 0; apart && w->device < D; w->device++)
        ATOM_TRY(late_share(w, k));
    w->device = D - 1;
    ATOM_TRY(emit_gradients(w, k));
    w->device = 0;
    return gen_sums_home(w, k);
}

/* --- tapes ----------------------------------------------------------------------------------- */

static atom_status emit_upload(gen_writer *w)
{
    const swap_host_layout *h = &w->layout->out->layout;
    for (w->device = 0; w->device < w->layout->D; w->device++) {
        const share s = share_of(w);
        uint64_t bytes = (s.past - s.first) * h->micro_batch_bytes;
        swap_range src = {SWAP_HOST, h->tokens + s.first * h->micro_batch_bytes, bytes};
        swap_range dst = {SWAP_DEVICE, w->layout->tokens.offset, bytes};
        ATOM_TRY(gen_write_copy(w, SWAP_UPLOAD, DEV_H2D, -1, -1, dst, src));
    }
    w->device = 0;
    return ATOM_OK;
}

static atom_status emit_first_fetches(gen_writer *w)
{
    for (w->device = 0; w->device < w->layout->D; w->device++)
        ATOM_TRY(gen_fetch_now(w, 0));
    w->device = 0;
    return ATOM_OK;
}

static atom_status emit_losses(gen_writer *w)
{
    const swap_host_layout *h = &w->layout->out->layout;
    for (w->device = 0; w->device < w->layout->D; w->device++) {
        const share s = share_of(w);
        uint64_t bytes = (s.past - s.first) * h->loss_bytes;
        swap_range src = {SWAP_DEVICE, w->layout->losses.offset, bytes};
        swap_range dst = {SWAP_HOST, h->losses + s.first * h->loss_bytes, bytes};
        ATOM_TRY(gen_write_copy(w, SWAP_LOSS, DEV_D2H, -1, -1, dst, src));
    }
    w->device = 0;
    return ATOM_OK;
}

static atom_status emit_results(gen_writer *w, bool norms)
{
    const swap_host_layout *h = &w->layout->out->layout;
    ATOM_TRY(emit_losses(w));
    if (!norms)
        return ATOM_OK;
    swap_range host_norms = {SWAP_HOST, h->norms, w->layout->norms.bytes};
    w->device = w->layout->D - 1; /* which rounded */
    if (w->layout->plan->clip)
        ATOM_TRY(gen_write_copy(w, SWAP_LOSS, DEV_D2H, -1, -1, host_norms, w->layout->norms));
    w->device = 0;
    swap_accesses room;
    swap_instr clip = gen_instr(&room, SWAP_CLIP, DEV_HOST, -1, -1);
    swap_instr_reads(&clip, host_norms);
    return gen_write(w, &clip);
}

static atom_status write_train(gen_writer *w, bool updates)
{
    uint32_t n = w->layout->n;
    ATOM_TRY(emit_upload(w));
    if (!updates && w->layout->plan->disk)
        ATOM_TRY(gen_write_loads(w, 0, gen_ready_blocks(w)));
    if (updates && w->ahead)
        ATOM_TRY(gen_write_rest(w));
    if (w->layout->plan->update_on_device)
        ATOM_TRY(emit_device_state(w, updates));
    bool here = updates && !w->ahead && !w->layout->plan->update_on_device;
    /* Products on the device share a stream with forward: each sub-model's just before they are
     * needed. */
    const uint32_t at_once = w->layout->plan->ortho_on_device && n > 2 ? 2 : n;
    for (uint32_t k = 0; here && k < at_once; k++)
        ATOM_TRY(update_sub_model(w, k));
    ATOM_TRY(emit_first_fetches(w));
    gen_sums_begin(w);
    for (uint32_t k = 0; k + 1 < n; k++) {
        ATOM_TRY(visit_forward(w, k, true));
        if (here && k + 2 < n && k + 2 >= at_once)
            ATOM_TRY(update_sub_model(w, k + 2));
    }
    for (uint32_t k = n; k-- > 0;)
        ATOM_TRY(visit_backward(w, k));
    return emit_results(w, true);
}

static atom_status write_eval(gen_writer *w)
{
    ATOM_TRY(emit_upload(w));
    ATOM_TRY(emit_first_fetches(w));
    for (uint32_t k = 0; k < w->layout->n; k++)
        ATOM_TRY(visit_forward(w, k, false));
    return emit_results(w, false);
}

static atom_status write_drain(gen_writer *w)
{
    if (w->layout->plan->update_on_device)
        return drain_device_state(w);
    if (w->ahead)
        return gen_write_rest(w);
    for (uint32_t k = 0; w->layout->plan->clip && k < w->layout->n; k++)
        ATOM_TRY(update_sub_model(w, k));
    return ATOM_OK;
}

static atom_status build_tape(gen_layout *layout, const part_profile *profile, swap_tape_kind kind)
{
    atom_status st;
    gen_writer w = {.layout = layout, .profile = profile, .spilling = -1};
    bool *valid = atom_alloc((size_t)layout->n * layout->D, sizeof *valid);
    if (!valid)
        return atom_fail_memory("a tape", layout->n);
    for (uint32_t d = 0; d < layout->D; d++)
        w.fetches[d] = (gen_fetches){.valid = valid + (size_t)d * layout->n, .pending = -1};
    w.ahead = swap_tape_is_ahead(kind);
    ATOM_TRY_CLEAN(
        swap_tape_open(kind, layout->C, layout->plan->devices, &layout->out->tapes[kind]));
    w.tape = layout->out->tapes[kind];
    w.tape->device_bytes = layout->out->device_bytes;
    w.tape->host_bytes = layout->out->host_bytes;
    w.tape->disk_bytes = swap_blocks_bytes(layout->out->layout.blocks);
    w.undone = swap_blocks_n(layout->out->layout.blocks);
    if (kind == SWAP_TAPE_EVAL_NEXT) { /* which slots are valid is what is left of the one before */
        ATOM_TRY_CLEAN(write_eval(&w));
        w.tape->n = 0;
    }
    if (kind == SWAP_TAPE_EVAL || kind == SWAP_TAPE_EVAL_NEXT)
        ATOM_TRY_CLEAN(write_eval(&w));
    else if (kind == SWAP_TAPE_DRAIN || kind == SWAP_TAPE_REST)
        ATOM_TRY_CLEAN(write_drain(&w));
    else
        ATOM_TRY_CLEAN(write_train(&w, (kind == SWAP_TAPE_TRAIN && layout->plan->clip) ||
                                           kind == SWAP_TAPE_AGAIN));
    ATOM_TRY_CLEAN(swap_tape_link(w.tape));
    if (w.tape->n > layout->out->instrs_max)
        layout->out->instrs_max = w.tape->n;
cleanup:
    atom_free(valid);
    return st;
}

atom_status gen_tapes_build(gen_layout *layout, const part_profile *profile, unsigned kinds)
{
    const unsigned next = 1u << SWAP_TAPE_EVAL_NEXT;
    kinds &= graph_trains(layout->g) ? ~next : 1u << SWAP_TAPE_EVAL | next;
    for (int kind = 0; kind < SWAP_TAPE_N; kind++) {
        if (!(kinds & 1u << kind))
            continue;
        if (!swap_tape_is_ahead((swap_tape_kind)kind) || gen_has_ahead(layout))
            ATOM_TRY(build_tape(layout, profile, (swap_tape_kind)kind));
    }
    return ATOM_OK;
}
