/*
 * Owns facts about ranges of nodes. One idea: everything that a range needs is a sum over its nodes
 * of numbers that depend on where it starts, plus a correction for where it ends; so a table of all
 * ranges costs one addition per entry. Refuses to decide anything.
 */
#include "partition/model.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <math.h>
#include <string.h>

static int64_t to_ps(double seconds)
{
    return (int64_t)(seconds * 1e12 + 0.5);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static uint64_t param_extent(const graph_param *p)
{
    return (p->elements + GRAPH_PARAM_ALIGN - 1) / GRAPH_PARAM_ALIGN * GRAPH_PARAM_ALIGN;
}

static uint64_t tensor_bytes(const graph *g, int32_t tensor)
{
    return atom_align(graph_tensor_bytes(g, tensor));
}

/* --- nodes --- */

/* Scratch for one matrix, as kernels.h has it. */
static uint64_t muon_space(int64_t rows, int64_t cols)
{
    int64_t s = rows < cols ? rows : cols, l = rows < cols ? cols : rows;
    int64_t line = (s + 15) / 16 * 16 + 16;
    return (uint64_t)(2 * l * line + 2 * line * line) * 4 + (uint64_t)rows * 8;
}

static uint64_t ortho_space(int64_t rows, int64_t cols)
{
    uint64_t s = (uint64_t)(rows < cols ? rows : cols), l = (uint64_t)(rows < cols ? cols : rows);
    return 2 * atom_align(2 * s * l) + 2 * atom_align(2 * s * s);
}

static void fill_matrices(part_model *m, int32_t p, part_node_facts *n)
{
    const graph_param *param = &m->g->params[p];
    int64_t rows[GRAPH_MATRICES_MAX];
    uint32_t count = graph_matrices(m->g, p, rows);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes = muon_space(rows[i], param->dims[1]);
        m->muon_bytes = bytes > m->muon_bytes ? bytes : m->muon_bytes;
        double seconds = part_muon_seconds(&m->profile->device, rows[i], param->dims[1]);
        m->muon_seconds += seconds;
        n->muon_ps += to_ps(seconds);
    }
    n->muon_elements += count ? param_extent(param) : 0;
    m->muon_elements += count ? param_extent(param) : 0;
}

static void fill_params(part_model *m)
{
    const graph *g = m->g;
    uint64_t wire = atom_dtype_bytes(g->dtype);
    for (uint32_t p = 0; p < g->n_params; p++) {
        const graph_param *param = &g->params[p];
        part_node_facts *n = &m->nodes[param->first_node];
        uint64_t extent = param_extent(param);
        m->extent_elements += extent;
        if (param->frozen) {
            n->frozen_bytes += extent * wire;
            continue;
        }
        n->own_bytes += extent * wire;
        n->own_elements += extent;
        fill_matrices(m, (int32_t)p, n);
        if (param->shared)
            m->shared_bytes += extent * 4;
        else
            n->grad_bytes += extent * 4;
        m->trained_elements += extent;
        m->norm_bytes += (param->elements + 65535) / 65536 * 8; /* one f64 per chunk (kernels.h) */
    }
}

static int32_t use_before(const graph *g, int32_t param, int32_t node)
{
    for (int32_t i = node; i-- > g->params[param].first_node;)
        for (int p = 0; p < g->nodes[i].n_params; p++)
            if (g->nodes[i].params[p] == param)
                return i;
    return GRAPH_NONE;
}

static void fill_nodes(part_model *m)
{
    const graph *g = m->g;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const graph_node *node = &g->nodes[i];
        const part_node_cost *c = &m->profile->nodes[i];
        part_node_facts *n = &m->nodes[i];
        n->fwd_ps = to_ps(c->fwd_seconds);
        n->bwd_ps = to_ps(c->bwd_seconds);
        m->fwd_gain_ps[i + 1] = m->fwd_gain_ps[i] + smaller(to_ps(c->fwd_gain_seconds), n->fwd_ps);
        m->bwd_gain_ps[i + 1] = m->bwd_gain_ps[i] + smaller(to_ps(c->bwd_gain_seconds), n->bwd_ps);
        int owner;
        const bool handed = graph_hands_on(g, (int32_t)i, &owner);
        m->handed_ps[i + 1] = m->handed_ps[i] + (handed ? n->bwd_ps : 0);
        m->handed_gain_ps[i + 1] =
            m->handed_gain_ps[i] + (handed ? m->bwd_gain_ps[i + 1] - m->bwd_gain_ps[i] : 0);
        if (c->workspace_bytes > m->workspace_bytes)
            m->workspace_bytes = c->workspace_bytes;
        for (int p = 0; p < node->n_params; p++)
            n->prev_use[p] = use_before(g, node->params[p], (int32_t)i);
        if ((atom_op_get(node->op)->flags & ATOM_OP_LATE) && graph_node_backward(g, (int32_t)i))
            m->late_bytes = tensor_bytes(g, node->out[0]);
    }
    uint64_t tokens = (uint64_t)(g->micro_batch * g->sequence) * 4;
    m->micro_batch_bytes = 3 * atom_align(tokens); /* tokens, targets, losses */
    m->workspace_bytes = atom_align(m->workspace_bytes);
    m->norm_bytes = atom_align(m->norm_bytes);
    m->muon_bytes = atom_align(m->muon_bytes);
}

/* --- tensors --- */

/* The first node in forward order whose backward reads the tensor, or -1. */
static int32_t first_reader(const graph *g, int32_t tensor, int32_t producer)
{
    const graph_node *made = &g->nodes[producer];
    const atom_op_info *info = atom_op_get(made->op);
    if (!(info->flags & ATOM_OP_LATE) && graph_node_backward(g, producer)) {
        for (int s = 0; s < info->saved; s++)
            if (made->saved[s] == tensor)
                return producer;
        if ((info->keeps & ATOM_KEEP_OUT) && made->out[0] == tensor)
            return producer;
    }
    for (int32_t i = producer + 1; i <= g->tensors[tensor].last_use; i++) {
        info = atom_op_get(g->nodes[i].op);
        if (info->flags & ATOM_OP_LATE)
            continue;
        for (int j = 0; j < info->ins; j++)
            if (g->nodes[i].in[j] == tensor &&
                (graph_node_keeps(g, i) & (j ? ATOM_KEEP_IN1 : ATOM_KEEP_IN0)))
                return i;
    }
    return GRAPH_NONE;
}

/* Files kept tensors by reader: a counting sort over nodes. */
static atom_status fill_kept(part_model *m)
{
    const graph *g = m->g;
    uint32_t total = 0;
    part_kept *found = atom_alloc(g->n_tensors, sizeof *found);
    m->kept = atom_alloc(g->n_tensors, sizeof *m->kept);
    if (!found || !m->kept) {
        atom_free(found);
        return atom_fail_memory("the partition model", g->n_tensors * sizeof *found);
    }
    for (int32_t t = 0; t < (int32_t)g->n_tensors; t++) {
        int32_t producer = g->tensors[t].producer;
        int32_t reader = producer < 0 ? GRAPH_NONE : first_reader(g, t, producer);
        if (reader < 0 || t == g->loss)
            continue;
        found[total++] = (part_kept){reader, producer, t, tensor_bytes(g, t)};
        m->nodes[reader].kept_last++;
    }
    for (uint32_t i = 0, at = 0; i < g->n_nodes; i++) {
        at += m->nodes[i].kept_last;
        m->nodes[i].kept_first = m->nodes[i].kept_last = at; /* filled backwards */
    }
    for (uint32_t i = 0; i < total; i++)
        m->kept[--m->nodes[found[i].reader].kept_first] = found[i];
    atom_free(found);
    return ATOM_OK;
}

static atom_status fill_crossings(part_model *m)
{
    const graph *g = m->g;
    atom_status st = ATOM_OK;
    size_t room = 0;
    uint32_t n = 0;
    int32_t *ids = atom_alloc(g->n_tensors, sizeof *ids);
    m->cross_at = atom_alloc((size_t)g->n_nodes + 2, sizeof *m->cross_at);
    m->boundary_bytes = atom_alloc((size_t)g->n_nodes + 1, sizeof *m->boundary_bytes);
    m->points = atom_alloc((size_t)g->n_nodes + 1, sizeof *m->points);
    if (!ids || !m->cross_at || !m->boundary_bytes || !m->points)
        ATOM_TRY_CLEAN(atom_fail_memory("the partition model", g->n_tensors * sizeof *ids));
    for (uint32_t i = 0; i <= g->n_nodes; i++) {
        uint32_t crossing =
            i && i < g->n_nodes ? graph_boundary(g, (int32_t)i, ids, g->n_tensors) : 0;
        m->cross_at[i] = n;
        for (uint32_t c = 0; c < crossing; c++) {
            const graph_tensor *t = &g->tensors[ids[c]];
            ATOM_TRY_CLEAN(atom_grow(&m->cross, n, &room, sizeof *m->cross));
            m->cross[n++] = (part_cross){t->producer, t->last_use, tensor_bytes(g, ids[c])};
            m->boundary_bytes[i] += tensor_bytes(g, ids[c]);
        }
        if (i == 0 || i == g->n_nodes || (crossing >= 1 && crossing <= GRAPH_BOUNDARY_MAX))
            m->points[m->n_points++] = (int32_t)i;
    }
    m->cross_at[g->n_nodes + 1] = n;
cleanup:
    atom_free(ids);
    return st;
}

/* --- transient bytes --- */

/* Live bytes at each node: values from producer to last use in forward, which is also where their
 * gradients live in backward; statistics only at their node. Then maxima of 2^l nodes. */
static atom_status fill_peaks(part_model *m)
{
    const graph *g = m->g;
    for (uint32_t l = 0; l < PART_RMQ_LEVELS && (1u << l) <= g->n_nodes; l++) {
        m->peak[l] = atom_alloc(g->n_nodes, sizeof **m->peak);
        if (!m->peak[l])
            return atom_fail_memory("the partition model", g->n_nodes * sizeof **m->peak);
        m->n_levels++;
    }
    for (int32_t t = 0; t < (int32_t)g->n_tensors; t++) {
        const graph_tensor *tensor = &g->tensors[t];
        if (tensor->producer < 0 || t == g->loss)
            continue;
        int32_t end = tensor->last_use > tensor->producer ? tensor->last_use : tensor->producer;
        for (int32_t i = tensor->producer; i <= end; i++)
            m->peak[0][i] += tensor_bytes(g, t);
    }
    for (uint32_t l = 1; l < m->n_levels; l++) {
        uint32_t half = 1u << (l - 1);
        for (uint32_t i = 0; i + 2 * half <= g->n_nodes; i++) {
            uint64_t a = m->peak[l - 1][i], b = m->peak[l - 1][i + half];
            m->peak[l][i] = a > b ? a : b;
        }
    }
    return ATOM_OK;
}

/* Largest of live[first .. last). */
static uint64_t live_peak(const part_model *m, int32_t first, int32_t last)
{
    uint32_t level = 31 - (uint32_t)__builtin_clz((uint32_t)(last - first));
    uint64_t a = m->peak[level][first], b = m->peak[level][last - (1 << level)];
    return a > b ? a : b;
}

/*
 * Most transient bytes alive at once in [first, last). Tensors that come in or go out live
 * elsewhere, so they are taken off where they are alive: between those points live bytes are
 * compared as they are.
 */
static uint64_t scratch_bytes(const part_model *m, int32_t first, int32_t last)
{
    int32_t stops[2 * GRAPH_BOUNDARY_MAX + 2];
    uint32_t n = 0;
    const part_cross *in = m->cross + m->cross_at[first], *out = m->cross + m->cross_at[last];
    uint32_t n_in = m->cross_at[first + 1] - m->cross_at[first];
    uint32_t n_out = m->cross_at[last + 1] - m->cross_at[last];
    uint64_t most = 0;
    if (n_in > GRAPH_BOUNDARY_MAX || n_out > GRAPH_BOUNDARY_MAX)
        return live_peak(m, first, last);
    stops[n++] = first;
    for (uint32_t c = 0; c < n_in; c++)
        if (in[c].last_use + 1 < last)
            stops[n++] = in[c].last_use + 1;
    for (uint32_t c = 0; c < n_out; c++)
        if (out[c].producer > first)
            stops[n++] = out[c].producer;
    for (uint32_t a = 0; a < n; a++) {
        int32_t begin = stops[a], end = last;
        uint64_t elsewhere = 0;
        for (uint32_t b = 0; b < n; b++)
            if (stops[b] > begin && stops[b] < end)
                end = stops[b];
        for (uint32_t c = 0; c < n_in; c++)
            elsewhere += in[c].last_use >= begin ? in[c].bytes : 0;
        for (uint32_t c = 0; c < n_out; c++)
            elsewhere += out[c].producer >= first && out[c].producer <= begin ? out[c].bytes : 0;
        uint64_t here = live_peak(m, begin, end) - elsewhere;
        most = here > most ? here : most;
    }
    return most;
}

/* --- what backward repeats --- */

/* Which nodes of [.., last) backward needs again: those that a kept tensor of a node in it comes
 * from. */
static void mark_needed(const part_model *m, int32_t last, uint8_t *needed)
{
    const graph *g = m->g;
    memset(needed, 0, g->n_nodes);
    for (int32_t i = last; i-- > 0;) {
        const graph_node *node = &g->nodes[i];
        const atom_op_info *info = atom_op_get(node->op);
        unsigned keeps = graph_node_keeps(g, i);
        bool late = (info->flags & ATOM_OP_LATE) || !graph_node_backward(g, i);
        bool terminal = info->flags & ATOM_OP_TERMINAL;
        if (!late && !terminal && (info->saved || (keeps & ATOM_KEEP_OUT)))
            needed[i] = 1;
        for (int j = 0; j < info->ins; j++) {
            int32_t producer = g->tensors[node->in[j]].producer;
            bool kept = !late && (keeps & (j ? ATOM_KEEP_IN1 : ATOM_KEEP_IN0));
            if (producer >= 0 && (kept || (needed[i] && !terminal)))
                needed[producer] = 1;
        }
        if (terminal)
            needed[i] = 0;
    }
}

static atom_status fill_skips(part_model *m)
{
    const graph *g = m->g;
    atom_status st = ATOM_OK;
    size_t room = 0, room_ps = 0, room_gain = 0;
    uint32_t n = 0;
    uint8_t *needed = atom_alloc(g->n_nodes, 1);
    m->skip_at = atom_alloc((size_t)g->n_nodes + 2, sizeof *m->skip_at);
    if (!needed || !m->skip_at)
        ATOM_TRY_CLEAN(atom_fail_memory("the partition model", g->n_nodes));
    for (uint32_t p = 0, last = 0; last <= g->n_nodes; last++) {
        m->skip_at[last] = n;
        if (p >= m->n_points || m->points[p] != (int32_t)last)
            continue;
        p++;
        mark_needed(m, (int32_t)last, needed);
        int64_t sum = 0, gain = 0;
        for (int32_t i = (int32_t)last; i-- > 0;) {
            if (needed[i])
                continue;
            ATOM_TRY_CLEAN(atom_grow(&m->skips, n, &room, sizeof *m->skips));
            ATOM_TRY_CLEAN(atom_grow(&m->skip_ps, n, &room_ps, sizeof *m->skip_ps));
            ATOM_TRY_CLEAN(atom_grow(&m->skip_gain_ps, n, &room_gain, sizeof *m->skip_gain_ps));
            sum += m->nodes[i].fwd_ps;
            gain += m->fwd_gain_ps[i + 1] - m->fwd_gain_ps[i];
            m->skip_ps[n] = sum;
            m->skip_gain_ps[n] = gain;
            m->skips[n++] = i;
        }
    }
    m->skip_at[g->n_nodes + 1] = n;
cleanup:
    atom_free(needed);
    return st;
}

/* --- the whole --- */

/* Copies in both directions share the link, and the host's memory, which may be the slower of the two: each
 * reads or writes it, and where the device has no memory of its own does both (codegen/cost.c). */
static void fill_rates(part_model *m)
{
    const part_device *d = &m->profile->device;
    const double in = d->h2d_bytes_per_second, out = d->d2h_bytes_per_second;
    const double each = (d->unified ? 2 : 1) / d->host_bytes_per_second;
    const double host = 1 / (fmin(1, in * each) + fmin(1, out * each));
    m->in_both = fmin(d->h2d_both_bytes_per_second, in * host);
    m->out_both = fmin(d->d2h_both_bytes_per_second, out * host);
}

atom_status part_model_open(const graph *g, const part_profile *profile, part_model **out)
{
    atom_status st = ATOM_OK;
    part_model *m = atom_alloc(1, sizeof *m);
    if (!m)
        return atom_fail_memory("the partition model", sizeof *m);
    m->g = g;
    m->profile = profile;
    m->nodes = atom_alloc(g->n_nodes, sizeof *m->nodes);
    m->marks = atom_alloc(g->n_nodes, sizeof *m->marks);
    m->fwd_gain_ps = atom_alloc((size_t)g->n_nodes + 1, sizeof *m->fwd_gain_ps);
    m->bwd_gain_ps = atom_alloc((size_t)g->n_nodes + 1, sizeof *m->bwd_gain_ps);
    m->handed_ps = atom_alloc((size_t)g->n_nodes + 1, sizeof *m->handed_ps);
    m->handed_gain_ps = atom_alloc((size_t)g->n_nodes + 1, sizeof *m->handed_gain_ps);
    if (!m->nodes || !m->marks || !m->fwd_gain_ps || !m->bwd_gain_ps || !m->handed_ps ||
        !m->handed_gain_ps)
        ATOM_TRY_CLEAN(atom_fail_memory("the partition model", g->n_nodes * sizeof *m->nodes));
    fill_rates(m);
    fill_params(m);
    fill_nodes(m);
    ATOM_TRY_CLEAN(fill_kept(m));
    ATOM_TRY_CLEAN(fill_crossings(m));
    ATOM_TRY_CLEAN(fill_peaks(m));
    ATOM_TRY_CLEAN(fill_skips(m));
    *out = m;
    return ATOM_OK;
cleanup:
    part_model_close(&m);
    return st;
}

/* Some dozens of blocks, large enough to be read at the disk's full rate, and few of them in
 * memory: one that arrives, one at work, one that leaves, and as many for where they are uneven. */
void part_model_use_disk(part_model *m)
{
    enum { BLOCKS = 64, ALIGN = 4096, SMALLEST = 4096, LARGEST = 1 << 20, RING = 6, SECTOR = 4096 };
    uint64_t each = (m->trained_elements / BLOCKS + ALIGN - 1) / ALIGN * ALIGN;
    uint64_t sector = SECTOR / atom_dtype_bytes(m->g->moments);
    uint64_t all = (m->trained_elements + sector - 1) / sector * sector;
    each = each < SMALLEST ? SMALLEST : each > LARGEST ? LARGEST : each;
    m->block_elements = each < all ? each : all;
    m->block_bytes = part_blocks_largest(m->g, m->block_elements, &m->n_blocks);
    uint64_t blocks = m->n_blocks;
    m->ring_blocks = blocks < 2 ? 2 : blocks > RING ? RING : (uint32_t)blocks;
    m->disk = true;
}

static void use_ortho(part_model *m, int32_t p, uint64_t *largest, uint64_t *space)
{
    const part_device *d = &m->profile->device;
    const graph_param *param = &m->g->params[p];
    const uint32_t wire = atom_dtype_bytes(m->g->dtype), moment = atom_dtype_bytes(m->g->moments);
    part_node_facts *n = &m->nodes[param->first_node];
    int64_t rows[GRAPH_MATRICES_MAX], cols = param->dims[1];
    uint32_t count = graph_matrices(m->g, p, rows);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t elements = (uint64_t)(rows[i] * cols);
        double host = part_muon_begin_seconds(d, elements, wire, moment) +
                      part_muon_end_seconds(d, elements, wire);
        double device = part_ortho_seconds(d, rows[i], cols);
        *largest = part_larger(*largest, atom_align(elements * wire));
        *space = part_larger(*space, ortho_space(rows[i], cols));
        m->muon_bytes = part_larger(m->muon_bytes, atom_align((uint64_t)rows[i] * 8));
        m->muon_seconds += host;
        m->ortho_seconds += device;
        n->muon_ps += to_ps(host);
        n->ortho_ps += to_ps(device);
    }
}

void part_model_use_ortho(part_model *m)
{
    uint64_t largest = 0, space = 0;
    m->ortho = true;
    m->muon_seconds = 0;
    m->muon_bytes = 0;
    for (uint32_t i = 0; i < m->g->n_nodes; i++)
        m->nodes[i].muon_ps = 0;
    for (uint32_t p = 0; p < m->g->n_params; p++) {
        if (!m->g->params[p].frozen)
            use_ortho(m, (int32_t)p, &largest, &space);
    }
    m->ortho_bytes = 2 * largest + space;
}

bool part_ortho_pays(const part_model *m, uint32_t micro_batches)
{
    const part_device *d = &m->profile->device;
    const uint32_t C = micro_batches ? micro_batches : 4;
    double forward = 0, ortho = 0;
    for (uint32_t i = 0; i < m->g->n_nodes; i++)
        forward += m->profile->nodes[i].fwd_seconds * C;
    for (uint32_t p = 0; p < m->g->n_params; p++) {
        int64_t rows[GRAPH_MATRICES_MAX];
        uint32_t n = m->g->params[p].frozen ? 0 : graph_matrices(m->g, (int32_t)p, rows);
        for (uint32_t i = 0; i < n; i++)
            ortho += part_ortho_seconds(d, rows[i], m->g->params[p].dims[1]);
    }
    double adamw = (double)(m->trained_elements - m->muon_elements) / d->adamw_params_per_second;
    return ortho < m->muon_seconds + adamw - forward;
}

void part_model_close(part_model **model)
{
    part_model *m = *model;
    if (!m)
        return;
    for (uint32_t l = 0; l < PART_RMQ_LEVELS; l++)
        atom_free(m->peak[l]);
    atom_free(m->points);
    atom_free(m->nodes);
    atom_free(m->fwd_gain_ps);
    atom_free(m->bwd_gain_ps);
    atom_free(m->handed_ps);
    atom_free(m->handed_gain_ps);
    atom_free(m->marks);
    atom_free(m->boundary_bytes);
    atom_free(m->kept);
    atom_free(m->cross);
    atom_free(m->cross_at);
    atom_free(m->skips);
    atom_free(m->skip_ps);
    atom_free(m->skip_gain_ps);
    atom_free(m->skip_at);
    atom_free(m);
    *model = NULL;
}

part_range part_range_begin(const part_model *m, int32_t first)
{
    return (part_range){.first = first, .last = first, .x_bytes = m->boundary_bytes[first]};
}

void part_range_extend(const part_model *m, part_range *r)
{
    const graph *g = m->g;
    const part_node_facts *n = &m->nodes[r->last];
    const graph_node *node = &g->nodes[r->last];
    r->own_bytes += n->own_bytes;
    r->slot_bytes += n->own_bytes + n->frozen_bytes;
    r->grad_bytes += n->grad_bytes;
    r->own_elements += n->own_elements;
    r->muon_elements += n->muon_elements;
    r->muon_ps += n->muon_ps;
    r->ortho_ps += n->ortho_ps;
    r->fwd_ps += n->fwd_ps;
    r->bwd_ps += n->bwd_ps;
    for (int p = 0; p < node->n_params; p++) {
        const graph_param *param = &g->params[node->params[p]];
        if (param->first_node < r->first && n->prev_use[p] < r->first)
            r->slot_bytes += param_extent(param) * atom_dtype_bytes(g->dtype);
    }
    for (uint32_t k = n->kept_first; k < n->kept_last; k++)
        if (m->kept[k].producer >= r->first)
            r->kept_bytes += m->kept[k].bytes;
    r->last++;
}

void part_range_finish(const part_model *m, part_range *r)
{
    ATOM_ASSERT(r->last > r->first);
    r->y_bytes = m->boundary_bytes[r->last];
    r->scratch_bytes = scratch_bytes(m, r->first, r->last);
    const uint32_t begin = m->skip_at[r->last];
    uint32_t low = begin, high = m->skip_at[r->last + 1];
    while (low < high) { /* behind the last of them that is in the range */
        uint32_t middle = low + (high - low) / 2;
        if (m->skips[middle] < r->first)
            high = middle;
        else
            low = middle + 1;
    }
    r->again_ps = r->fwd_ps - (low > begin ? m->skip_ps[low - 1] : 0);
    r->again_gain_ps = m->fwd_gain_ps[r->last] - m->fwd_gain_ps[r->first] -
                       (low > begin ? m->skip_gain_ps[low - 1] : 0);
}

part_range part_range_make(const part_model *m, int32_t first, int32_t last)
{
    part_range r = part_range_begin(m, first);
    while (r.last < last)
        part_range_extend(m, &r);
    part_range_finish(m, &r);
    return r;
}
