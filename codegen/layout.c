/*
 * Owns the memory layout of a lowered plan. One idea: every byte has a region with a name before
 * anything runs; neighbours in the double-ended rings can be on the device together, no others
 * need to be. Refuses heuristics: what to place where is the plan's decision.
 */
#include "codegen/layout.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t gen_slot_offset(const gen_layout *layout, uint32_t k, int32_t param)
{
    const gen_visit *v = &layout->visits[k];
    const graph_param *p = &layout->g->params[param];
    if (param >= v->first_param && param < v->last_param)
        return p->frozen ? v->own_bytes + (p->offset - v->frozen_offset) * layout->wire_bytes_each
                         : (p->offset - v->own_offset) * layout->wire_bytes_each;
    for (uint32_t e = 0; e < v->n_extras; e++) {
        if (v->extras[e].param == param)
            return v->extras[e].slot_offset;
    }
    ATOM_UNREACHABLE("parameter is not used by this sub-model");
}

uint32_t gen_share(const gen_layout *layout, uint32_t d)
{
    uint32_t more = layout->C % layout->D; /* devices with one more than the others */
    return layout->C / layout->D * d + (d < more ? d : more);
}

/* --- what each sub-model owns, borrows and exchanges ----------------------------------------- */

static uint64_t param_end(const graph_param *p)
{
    return p->offset +
           (p->elements + GRAPH_PARAM_ALIGN - 1) / GRAPH_PARAM_ALIGN * GRAPH_PARAM_ALIGN;
}

static bool visit_has_extra(const gen_visit *v, int32_t param)
{
    for (uint32_t e = 0; e < v->n_extras; e++) {
        if (v->extras[e].param == param)
            return true;
    }
    return false;
}

/* Appends at `next`, which is where the visit before this one ended. */
static gen_extra *add_extras(const gen_layout *layout, gen_visit *v, const part_sub_model *s,
                             gen_extra *next)
{
    v->extras = next;
    for (int32_t i = s->first_node; i < s->last_node; i++) {
        const graph_node *node = &layout->g->nodes[i];
        for (int p = 0; p < node->n_params; p++) {
            int32_t id = node->params[p];
            if (id >= v->first_param || visit_has_extra(v, id))
                continue;
            v->extras[v->n_extras++] = (gen_extra){id, v->slot_bytes};
            v->slot_bytes += atom_align(layout->g->params[id].elements * layout->wire_bytes_each);
        }
    }
    return v->extras + v->n_extras;
}

static void boundary_fill(const graph *g, int32_t cut, gen_boundary *b)
{
    *b = (gen_boundary){0};
    if (cut <= 0 || cut >= (int32_t)g->n_nodes)
        return;
    b->n = graph_boundary(g, cut, b->ids, GRAPH_BOUNDARY_MAX);
    ATOM_ASSERT(b->n <= GRAPH_BOUNDARY_MAX);
    for (uint32_t t = 0; t < b->n; t++) {
        b->offset[t] = b->bytes;
        b->bytes += atom_align(graph_tensor_bytes(g, b->ids[t]));
    }
}

/* The extents of the owned parameters, trained and frozen: each follows on without a gap. */
static void fill_extents(const gen_layout *layout, gen_visit *v)
{
    const graph *g = layout->g;
    v->own_offset = g->trained_extent;
    v->frozen_offset = g->param_extent;
    for (int32_t p = v->first_param; p < v->last_param; p++) {
        const graph_param *param = &g->params[p];
        uint64_t *offset = param->frozen ? &v->frozen_offset : &v->own_offset;
        uint64_t *bytes = param->frozen ? &v->frozen_bytes : &v->own_bytes;
        *offset = param->offset < *offset ? param->offset : *offset;
        *bytes = (param_end(param) - *offset) * layout->wire_bytes_each;
        v->last_trained += !param->frozen;
    }
}

/* Returns where the extras of the next visit begin. */
static gen_extra *fill_visit(gen_layout *layout, uint32_t k, gen_extra *extras)
{
    const graph *g = layout->g;
    const part_sub_model *s = &layout->plan->sub_models[k];
    gen_visit *v = &layout->visits[k];
    v->first_param = v->last_param = -1;
    for (int32_t p = 0; p < (int32_t)g->n_params; p++) {
        if (g->params[p].first_node < s->first_node || g->params[p].first_node >= s->last_node)
            continue;
        if (v->first_param < 0)
            v->first_param = p;
        v->last_param = p + 1;
    }
    if (v->first_param < 0) /* owns nothing: an empty range where the next one starts */
        v->first_param = v->last_param = k ? layout->visits[k - 1].last_param : 0;
    v->first_trained = v->last_trained = k ? layout->visits[k - 1].last_trained : 0;
    fill_extents(layout, v);
    v->slot_bytes = atom_align(v->own_bytes + v->frozen_bytes);
    boundary_fill(g, s->first_node, &v->x);
    boundary_fill(g, s->last_node, &v->y);
    return add_extras(layout, v, s, extras);
}

/* Accumulators are spaced like the canonical vector, so that a run of them is rounded at once. */
static void place_grads(gen_layout *layout)
{
    const graph *g = layout->g;
    for (uint32_t k = 0; k < layout->n; k++) {
        gen_visit *v = &layout->visits[k];
        for (int32_t p = v->first_param; p < v->last_param; p++) {
            if (g->params[p].frozen)
                continue;
            uint64_t *total = g->params[p].shared ? &layout->shared_bytes : &v->grads.bytes;
            layout->grad_offset[p] = *total;
            *total += (param_end(&g->params[p]) - g->params[p].offset) * 4;
        }
    }
}

static void find_late(gen_layout *layout)
{
    const graph *g = layout->g;
    layout->late_node = -1;
    for (int32_t i = 0; i < (int32_t)g->n_nodes; i++) {
        if (!(atom_op_get(g->nodes[i].op)->flags & ATOM_OP_LATE) || !graph_node_backward(g, i))
            continue;
        layout->late_node = i;
        layout->late.bytes = atom_align(graph_tensor_bytes(g, g->nodes[i].out[0]));
        for (uint32_t k = 0; k < layout->n; k++) {
            const part_sub_model *s = &layout->plan->sub_models[k];
            layout->visits[k].has_late |= i >= s->first_node && i < s->last_node;
        }
        return;
    }
}

/* --- regions --------------------------------------------------------------------------------- */

enum { REGIONS_MAX = 32 };

/* Appends a region to its space and returns where it begins; an empty one is not listed. */
static uint64_t region(gen_lowered *out, swap_space space, const char *name, uint64_t bytes)
{
    uint64_t *total = space == SWAP_DEVICE ? &out->device_bytes : &out->host_bytes;
    uint64_t offset = *total;
    bytes = atom_align(bytes);
    if (bytes == 0)
        return offset;
    ATOM_ASSERT(out->n_regions < REGIONS_MAX);
    swap_region *r = &out->regions[out->n_regions++];
    snprintf(r->name, sizeof r->name, "%s", name);
    r->space = space;
    r->offset = offset;
    r->bytes = bytes;
    *total += bytes;
    return offset;
}

/* The same on the device, as a range. */
static swap_range device_region(gen_layout *layout, const char *name, uint64_t bytes)
{
    uint64_t offset = region(layout->out, SWAP_DEVICE, name, bytes);
    return (swap_range){SWAP_DEVICE, offset, bytes};
}

/* Even sub-models from the bottom, odd ones from the top; alone: the bottom. */
static uint64_t ring_offset(uint64_t base, uint64_t ring_bytes, uint32_t k, uint64_t bytes)
{
    return k % 2 == 0 ? base : base + ring_bytes - bytes;
}

static uint64_t ring_bytes_of_slots(const gen_layout *layout)
{
    uint64_t most = 0;
    for (uint32_t k = 0; k < layout->n; k++) {
        if (layout->plan->sub_models[k].resident)
            continue;
        uint64_t next = k + 1 < layout->n && !layout->plan->sub_models[k + 1].resident
                            ? layout->visits[k + 1].slot_bytes
                            : 0;
        most = max_u64(most, layout->visits[k].slot_bytes + next);
    }
    return most;
}

static void place_slots(gen_layout *layout)
{
    uint64_t ring = ring_bytes_of_slots(layout), own = 0;
    for (uint32_t k = 0; k < layout->n; k++)
        own += layout->plan->sub_models[k].resident ? layout->visits[k].slot_bytes : 0;
    uint64_t base = region(layout->out, SWAP_DEVICE, "parameter ring", ring);
    uint64_t own_base = region(layout->out, SWAP_DEVICE, "resident parameters", own);
    for (uint32_t k = 0; k < layout->n; k++) {
        gen_visit *v = &layout->visits[k];
        uint64_t at = ring_offset(base, atom_align(ring), k, v->slot_bytes);
        if (layout->plan->sub_models[k].resident) {
            at = own_base;
            own_base += v->slot_bytes;
        }
        v->slot = (swap_range){SWAP_DEVICE, at, v->slot_bytes};
    }
}

static void place_gradients(gen_layout *layout)
{
    uint64_t grads = 0, spill = 0;
    for (uint32_t k = 0; k < layout->n; k++) {
        uint64_t next = k + 1 < layout->n ? layout->visits[k + 1].own_bytes : 0;
        uint64_t behind =
            k + 1 < layout->n && layout->D > 1 ? layout->visits[k + 1].grads.bytes : 0;
        grads = max_u64(grads, layout->visits[k].grads.bytes + behind);
        spill = max_u64(spill, atom_align(layout->visits[k].own_bytes) + atom_align(next));
    }
    uint64_t base = region(layout->out, SWAP_DEVICE, "gradients (fp32)", grads);
    for (uint32_t k = 0; k < layout->n; k++) {
        layout->visits[k].grads.space = SWAP_DEVICE;
        layout->visits[k].grads.offset =
            layout->D > 1 ? ring_offset(base, grads, k, layout->visits[k].grads.bytes) : base;
        layout->visits[k].hand = ring_offset(0, grads, k, layout->visits[k].grads.bytes);
    }
    layout->hand_bytes = grads;
    layout->shared = device_region(layout, "shared gradients (fp32)", layout->shared_bytes);
    if (layout->plan->in_place)
        return;
    base = region(layout->out, SWAP_DEVICE, "spill ring", spill);
    for (uint32_t k = 0; k < layout->n; k++) {
        uint64_t bytes = layout->visits[k].own_bytes;
        layout->visits[k].spill =
            (swap_range){SWAP_DEVICE, ring_offset(base, spill, k, atom_align(bytes)), bytes};
    }
    uint64_t state = layout->plan->update_on_device
                         ? layout->g->trained_extent * atom_state_bytes(layout->g->moments)
                         : 0;
    layout->state = device_region(layout, "optimizer state", state);
    layout->matrices = device_region(layout, "Muon's matrices", 2 * layout->matrix_bytes);
    layout->ortho = device_region(layout, "Muon's products", layout->ortho.bytes);
}

/* On the device a store has either all C items or a pair for staging, which visits share. */
static void store_on_device(gen_store *s, uint64_t bytes, uint32_t items, uint64_t offset)
{
    s->bytes = bytes;
    s->place = PART_ON_DEVICE;
    s->device_items = items;
    s->device = offset;
}

/* The last sub-model's backward follows its forward: nothing is kept for it. */
static part_keep keep_of(const gen_layout *layout, uint32_t k)
{
    return k + 1 == layout->n ? PART_RECOMPUTE : layout->plan->sub_models[k].keep;
}

static void place_kept(gen_layout *layout)
{
    uint64_t own = 0, shared = 0;
    for (uint32_t k = 0; k < layout->n; k++) {
        gen_visit *v = &layout->visits[k];
        part_keep keep = keep_of(layout, k);
        if (keep == PART_KEEP_DEVICE)
            own += v->kept_bytes * layout->most;
        else
            shared = max_u64(shared, v->kept_bytes * (keep == PART_KEEP_HOST ? 2 : 1));
    }
    uint64_t base = region(layout->out, SWAP_DEVICE, "recompute set", shared);
    uint64_t own_base = region(layout->out, SWAP_DEVICE, "kept activations", own);
    for (uint32_t k = 0; k < layout->n; k++) {
        gen_visit *v = &layout->visits[k];
        part_keep keep = keep_of(layout, k);
        if (keep == PART_KEEP_DEVICE) {
            store_on_device(&v->kept, v->kept_bytes, layout->most, own_base);
            own_base += v->kept_bytes * layout->most;
        } else {
            store_on_device(&v->kept, v->kept_bytes, keep == PART_KEEP_HOST ? 2 : 1, base);
            v->kept.place = keep == PART_KEEP_HOST ? PART_ON_HOST : PART_ON_DEVICE;
        }
    }
}

/* What sub-models hold that keep only some: all micro-batches on the device, or a pair of places on
 * the way to the host and back. */
static void place_holds(gen_layout *layout)
{
    uint64_t own = 0, staging = 0;
    for (uint32_t k = 0; k < layout->n; k++) {
        own += layout->visits[k].held_bytes * layout->most;
        staging = max_u64(staging, layout->visits[k].sent_bytes * 2);
    }
    uint64_t own_base = region(layout->out, SWAP_DEVICE, "held activations", own);
    uint64_t base = region(layout->out, SWAP_DEVICE, "held staging", staging);
    for (uint32_t k = 0; k < layout->n; k++) {
        gen_visit *v = &layout->visits[k];
        store_on_device(&v->held, v->held_bytes, layout->most, own_base);
        own_base += v->held_bytes * layout->most;
        store_on_device(&v->sent, v->sent_bytes, 2, base);
        v->sent.place = PART_ON_HOST;
    }
}

/* Of one micro-batch: the most bytes of two neighbouring boundaries. */
static uint64_t neighbours_bytes(const gen_layout *layout)
{
    uint64_t most = 0;
    for (uint32_t k = 1; k < layout->n; k++)
        most = max_u64(most, layout->visits[k].x.bytes + layout->visits[k].y.bytes);
    return most;
}

/* Boundaries that stay on the device: activations of every cut for the whole step; gradients
 * double-ended, since only neighbours are alive together. Activations, too, where no backward comes. */
static void place_boundaries_device(gen_layout *layout)
{
    const bool trains = graph_trains(layout->g);
    uint64_t total = 0, ring = neighbours_bytes(layout) * layout->most;
    for (uint32_t k = 1; k < layout->n; k++)
        total += layout->visits[k].x.bytes * layout->most;
    uint64_t x_base = region(layout->out, SWAP_DEVICE, "boundaries", trains ? total : ring);
    uint64_t dx_base = region(layout->out, SWAP_DEVICE, "boundary gradients", trains ? ring : 0);
    for (uint32_t k = 1; k < layout->n; k++) {
        gen_visit *v = &layout->visits[k];
        uint64_t bytes = v->x.bytes * layout->most;
        uint64_t ended = ring_offset(trains ? dx_base : x_base, ring, k, bytes);
        store_on_device(&v->x_store, v->x.bytes, layout->most, trains ? x_base : ended);
        if (trains)
            store_on_device(&v->dx_store, v->x.bytes, layout->most, ended);
        x_base += trains ? bytes : 0;
    }
}

/* Boundaries on the host: staging pairs on the device, double-ended by cut, so that what goes out
 * of a visit and what comes in do not wait for each other. */
static void place_boundaries_host(gen_layout *layout)
{
    uint64_t ring = neighbours_bytes(layout) * 2;
    uint64_t x_base = region(layout->out, SWAP_DEVICE, "boundary staging", ring);
    uint64_t dx_base = region(layout->out, SWAP_DEVICE, "boundary gradient staging",
                              graph_trains(layout->g) ? ring : 0);
    for (uint32_t k = 1; k < layout->n; k++) {
        gen_visit *v = &layout->visits[k];
        uint64_t pair = v->x.bytes * 2;
        store_on_device(&v->x_store, v->x.bytes, 2, ring_offset(x_base, ring, k, pair));
        if (graph_trains(layout->g))
            store_on_device(&v->dx_store, v->x.bytes, 2, ring_offset(dx_base, ring, k, pair));
        v->x_store.place = v->dx_store.place = PART_ON_HOST;
    }
}

static void place_small(gen_layout *layout)
{
    const graph *g = layout->g;
    uint64_t bt = (uint64_t)(g->micro_batch * g->sequence), act = 0;
    bool host = layout->plan->boundaries == PART_ON_HOST && layout->n > 1;
    for (uint32_t k = 0; k < layout->n; k++)
        act = max_u64(act, layout->visits[k].act_bytes);
    layout->act = device_region(layout, "scratch activations", act);
    uint32_t late_items = host ? 2 : layout->most;
    uint64_t base =
        region(layout->out, SWAP_DEVICE, "late gradients", layout->late.bytes * late_items);
    store_on_device(&layout->late, layout->late.bytes, late_items, base);
    layout->late.place = host ? PART_ON_HOST : PART_ON_DEVICE;
    swap_host_layout *h = &layout->out->layout;
    h->micro_batch_bytes = 2 * atom_align(bt * 4);
    h->loss_bytes = atom_align(bt * 4);
    layout->tokens = device_region(layout, "tokens", h->micro_batch_bytes * layout->most);
    layout->losses = device_region(layout, "losses", h->loss_bytes * layout->most);
    layout->norms = device_region(layout, "norms", h->norm_chunks * 8);
    layout->workspace = device_region(layout, "workspace", layout->workspace.bytes);
    layout->out->workspace = layout->workspace;
}

static void store_on_host(gen_store *s, uint64_t host, uint64_t stride)
{
    s->host = host;
    s->host_stride = stride;
}

static void place_host_store(gen_layout *layout, gen_store *s, uint64_t *total)
{
    if (s->place == PART_ON_HOST && s->bytes) {
        store_on_host(s, *total, s->bytes);
        *total += s->bytes * layout->C;
    }
}

/* The gradient of a boundary goes where the boundary was: backward of a micro-batch has brought that
 * back, for the last time, before it makes the gradient. With a state on disk it has a place of its
 * own where there is room: else the search would make more cuts, and they take it from held blocks.
 * Where no backward comes, each boundary of a micro-batch goes where the one before it was. */
static void place_stashes(gen_layout *layout)
{
    const bool trains = graph_trains(layout->g), host = layout->plan->boundaries == PART_ON_HOST;
    uint64_t base = layout->out->host_bytes, at = base, widest = 0;
    for (uint32_t k = 0; !trains && host && k < layout->n; k++)
        widest = max_u64(widest, layout->visits[k].x.bytes);
    at += widest * layout->C;
    for (uint32_t k = 0; k < layout->n; k++) {
        gen_visit *v = &layout->visits[k];
        place_host_store(layout, &v->kept, &at);
        place_host_store(layout, &v->sent, &at);
        if (trains)
            place_host_store(layout, &v->x_store, &at);
        else
            store_on_host(&v->x_store, base, widest);
        if (layout->plan->disk && !layout->plan->over_boundaries)
            place_host_store(layout, &v->dx_store, &at);
        else
            store_on_host(&v->dx_store, v->x_store.host, v->x_store.host_stride);
    }
    place_host_store(layout, &layout->late, &at);
    (void)region(layout->out, SWAP_HOST, "stashes", at - base);
}

/* Between any device and the next one, sums of two neighbouring visits can be on their way. */
static void place_hands(gen_layout *layout)
{
    uint32_t pairs = layout->D - 1;
    if (pairs == 0)
        return;
    uint64_t at = region(layout->out, SWAP_HOST, "sums on their way", layout->hand_bytes * pairs);
    for (uint32_t k = 0; k < layout->n; k++)
        layout->visits[k].hand += at;
    layout->shared_hand =
        region(layout->out, SWAP_HOST, "shared sums on their way", layout->shared_bytes);
}

static void place_host(gen_layout *layout)
{
    swap_host_layout *h = &layout->out->layout;
    gen_lowered *out = layout->out;
    h->extent = layout->g->param_extent;
    h->trained = layout->g->trained_extent;
    h->moments = layout->g->moments;
    if (layout->plan->disk) {
        /* first, where the slab is aligned as the disk wants it */
        h->blocks.moments = h->moments;
        h->blocks.extent = h->trained;
        h->blocks.each = layout->plan->block_elements;
        h->ring_bytes = swap_block_room(h->blocks) * layout->plan->ring_blocks;
        h->ring = region(out, SWAP_HOST, "optimizer ring", h->ring_bytes);
    }
    h->wire = region(out, SWAP_HOST, "wire copy", h->extent * layout->wire_bytes_each);
    if (!layout->plan->disk) {
        h->master = region(out, SWAP_HOST, "master weights", h->trained * 4);
        uint64_t moment = h->trained * atom_dtype_bytes(h->moments);
        bool muon = layout->g->optimizer == GRAPH_MUON;
        h->m = region(out, SWAP_HOST, muon ? "momentum, Adam m" : "Adam m", moment);
        h->v = region(out, SWAP_HOST, "Adam v", h->seconds * atom_dtype_bytes(h->moments));
    }
    h->muon = region(out, SWAP_HOST, "Muon workspace", layout->muon_bytes);
    h->tokens = region(out, SWAP_HOST, "token staging", h->micro_batch_bytes * layout->C);
    h->losses = region(out, SWAP_HOST, "loss staging", h->loss_bytes * layout->C);
    h->norms = region(out, SWAP_HOST, "norm staging", h->norm_chunks * 8);
    place_stashes(layout);
    place_hands(layout);
    if (layout->plan->in_place) {
        for (uint32_t k = 0; k < layout->n; k++) {
            gen_visit *v = &layout->visits[k];
            uint64_t at = h->wire + v->own_offset * layout->wire_bytes_each;
            v->slot = (swap_range){SWAP_HOST, at, v->own_bytes + v->frozen_bytes};
            v->spill = (swap_range){SWAP_HOST, at, v->own_bytes};
        }
    }
}

static void find_largest_visit(gen_layout *layout)
{
    for (uint32_t k = 0; k < layout->n; k++) {
        uint64_t next = k + 1 < layout->n ? layout->visits[k + 1].slot_bytes : 0;
        uint64_t both = layout->visits[k].slot_bytes + next;
        layout->out->largest_visit_bytes = max_u64(layout->out->largest_visit_bytes, both);
    }
}

void gen_layout_place(gen_layout *layout)
{
    if (!layout->plan->in_place)
        place_slots(layout);
    place_gradients(layout);
    place_kept(layout);
    place_holds(layout);
    if (layout->plan->boundaries == PART_ON_HOST)
        place_boundaries_host(layout);
    else
        place_boundaries_device(layout);
    place_small(layout);
    place_host(layout);
    find_largest_visit(layout);
}

/* What Muon makes of a parameter, and room for the largest of its matrices. */
static void fill_matrices(gen_layout *layout, int32_t p, swap_param *param)
{
    const graph_param *from = &layout->g->params[p];
    param->n_matrices = (uint8_t)graph_matrices(layout->g, p, param->rows);
    param->cols = param->n_matrices ? from->dims[1] : 0;
    for (uint8_t i = 0; i < param->n_matrices; i++) {
        int64_t rows = param->rows[i], cols = param->cols;
        if (!layout->plan->ortho_on_device) {
            layout->muon_bytes = max_u64(layout->muon_bytes, krn_muon_space(rows, cols));
            continue;
        }
        uint64_t bytes = atom_align((uint64_t)(rows * cols) * layout->wire_bytes_each);
        layout->muon_bytes = max_u64(layout->muon_bytes, (uint64_t)rows * sizeof(double));
        layout->matrix_bytes = max_u64(layout->matrix_bytes, bytes);
        layout->ortho.bytes = max_u64(layout->ortho.bytes, krn_ortho_space(rows, cols));
    }
}

static atom_status fill_params(gen_layout *layout)
{
    const graph *g = layout->g;
    gen_lowered *out = layout->out;
    out->params = atom_alloc(g->n_params, sizeof *out->params);
    out->regions = atom_alloc(REGIONS_MAX, sizeof *out->regions);
    layout->grad_offset = atom_alloc(g->n_params, sizeof *layout->grad_offset);
    layout->visits = atom_alloc(layout->n, sizeof *layout->visits);
    if (!out->params || !out->regions || !layout->grad_offset || !layout->visits)
        return atom_fail_memory("a memory layout", g->n_params * sizeof *out->params);
    for (uint32_t p = 0; p < g->n_params; p++) {
        if (g->params[p].frozen)
            continue;
        out->params[out->n_params] = (swap_param){.offset = g->params[p].offset,
                                                  .elements = g->params[p].elements,
                                                  .norm_chunk = out->layout.norm_chunks,
                                                  .decay = g->params[p].decay};
        swap_param *param = &out->params[out->n_params++];
        fill_matrices(layout, (int32_t)p, param);
        param->second = out->layout.seconds;
        out->layout.seconds += param->n_matrices ? 0 : param_end(&g->params[p]) - param->offset;
        out->layout.norm_chunks += krn_norm_chunks(g->params[p].elements);
    }
    return ATOM_OK;
}

/* Blocks that none of Muon's matrices is cut by; AdamW's are all alike, and need no list. */
static atom_status fill_blocks(gen_layout *layout)
{
    gen_lowered *out = layout->out;
    swap_blocks *b = &out->layout.blocks;
    const atom_dtype moments = layout->g->moments;
    uint64_t i = 0, offset = 0, second = 0;
    part_blocks w = {.g = layout->g, .each = layout->plan->block_elements};
    if (!layout->plan->disk || layout->g->optimizer != GRAPH_MUON)
        return ATOM_OK;
    b->largest = part_blocks_largest(w.g, w.each, &b->n);
    out->blocks = atom_alloc(b->n + 1, sizeof *out->blocks);
    if (!out->blocks)
        return atom_fail_memory("the blocks of the state on disk", b->n * sizeof *out->blocks);
    for (; part_blocks_next(&w); second += w.seconds) {
        out->blocks[i++] = (swap_block){w.first, second, offset};
        offset += swap_block_size(moments, w.end - w.first, w.seconds);
    }
    out->blocks[i] = (swap_block){w.end, second, offset};
    b->list = out->blocks;
    return ATOM_OK;
}

atom_status gen_layout_fill(gen_layout *layout)
{
    ATOM_TRY(fill_params(layout));
    ATOM_TRY(fill_blocks(layout));
    uint64_t uses = 0; /* no visit has more extras than its nodes have parameters */
    for (uint32_t i = 0; i < layout->g->n_nodes; i++)
        uses += (uint64_t)layout->g->nodes[i].n_params;
    layout->extras = atom_alloc(uses, sizeof *layout->extras);
    if (uses && !layout->extras)
        return atom_fail_memory("the parameters that sub-models share",
                                uses * sizeof *layout->extras);
    gen_extra *next = layout->extras;
    for (uint32_t k = 0; k < layout->n; k++)
        next = fill_visit(layout, k, next);
    place_grads(layout);
    find_late(layout);
    return ATOM_OK;
}
