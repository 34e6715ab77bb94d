/*
 * Owns the predicate and the price of two neighbouring sub-models. One idea: in layer-major order
 * only neighbours meet (one computes while the other is loaded or spilled), so memory, hiding and
 * time are sums and maxima over pairs, and dynamic programming over pairs is exact. Refuses to look
 * further.
 */
#include "partition/model.h"

static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t copy_ps(uint64_t bytes, double bytes_per_second, double latency_seconds)
{
    if (bytes == 0)
        return 0;
    return (int64_t)(((double)bytes / bytes_per_second + latency_seconds) * 1e12 + 0.5);
}

/* The same for parameters that cross in pieces, as codegen cuts them. */
static int64_t pieces_ps(uint64_t bytes, double bytes_per_second, double latency_seconds,
                         uint32_t pieces)
{
    return copy_ps(bytes, bytes_per_second, latency_seconds * pieces);
}

/* Pieces that a range is fetched in, beside the visit in front of it. */
static uint32_t load_pieces(const part_device *d, const part_setting *s, const part_range *r)
{
    const uint32_t own = part_pieces(d, r->slot_bytes);
    const uint32_t beside = part_pieces_beside(d, r->slot_bytes, s->micro_batches);
    return own > beside ? own : beside;
}

/* And that its gradients leave in: beside the visit behind it where boundaries leave, too. */
static uint32_t spill_pieces(const part_device *d, const part_setting *s, const part_range *r)
{
    if (!s->clip)
        return part_pieces(d, r->slot_bytes);
    return s->boundaries == PART_ON_HOST ? part_pieces_beside(d, r->own_bytes, s->micro_batches)
                                         : 1;
}

/* What crosses the link in each direction where Muon's products are made behind it. */
static uint64_t ortho_bytes(const part_model *m, const part_range *r)
{
    return m->ortho ? r->muon_elements * atom_dtype_bytes(m->g->dtype) : 0;
}

/* A device of its own copies out of the host's memory while the host updates there. */
static int64_t update_waits(const part_model *m, const part_range *r)
{
    const part_device *d = &m->profile->device;
    double seconds = (double)(r->slot_bytes + 2 * ortho_bytes(m, r)) / d->host_bytes_per_second;
    return d->unified || !graph_trains(m->g) ? 0 : (int64_t)(seconds * 1e12 + 0.5);
}

double part_disk_seconds(const part_device *d, double bytes)
{
    part_disk disk = part_device_disk(d);
    double in = bytes / disk.read_both, out = bytes / disk.write_both;
    return in > out ? in : out;
}

/* The optimizer's work on a range; through the disk, what is slower of the two. */
static int64_t update_ps(const part_model *m, const part_range *r)
{
    const part_device *d = &m->profile->device;
    int64_t work =
        copy_ps(r->own_elements - r->muon_elements, d->adamw_params_per_second, 0) + r->muon_ps;
    if (!m->disk)
        return work;
    double bytes = (double)part_state_bytes(m, r->own_elements, r->muon_elements);
    int64_t disk = (int64_t)(part_disk_seconds(d, bytes) * 1e12);
    return disk > work ? disk : work;
}

/* What one micro-batch touches on its way through a range in forward; see part_warm_share(). */
static uint64_t touched_bytes(const part_range *r)
{
    return r->slot_bytes + r->kept_bytes + r->scratch_bytes + r->x_bytes + r->y_bytes;
}

/* Of a range: backward of sums that hand their gradients on, and by how much less that would take warm. */
typedef struct handed {
    int64_t ps, gain_ps;
} handed;

/* Of all sums that hand their gradients on in [first, last), were they in a range without cuts. */
static handed handed_on(const part_model *m, int32_t first, int32_t last)
{
    return (handed){m->handed_ps[last] - m->handed_ps[first],
                    m->handed_gain_ps[last] - m->handed_gain_ps[first]};
}

/* Without those that have a term of an earlier range: it ends there, as all terms of such sums do. */
static handed handed_here(const part_model *m, const part_range *r)
{
    handed all = handed_on(m, r->first, r->last);
    const part_cross *in = m->cross + m->cross_at[r->first];
    const uint32_t n = m->cross_at[r->first + 1] - m->cross_at[r->first];
    for (uint32_t c = 0; c < n; c++) {
        int32_t reader = in[c].last_use;
        bool counted = reader >= r->last;
        for (uint32_t d = 0; d < c; d++)
            counted = counted || in[d].last_use == reader;
        if (counted)
            continue;
        handed one = handed_on(m, reader, reader + 1);
        all.ps -= one.ps;
        all.gain_ps -= one.gain_ps;
    }
    return all;
}

/* Fills in what is computed: all micro-batches, of which the first is cold and the others are warm as far
 * as the shares say. */
static void compute(const part_model *m, const part_setting *s, const part_range *r,
                    uint32_t fwd_share, uint32_t bwd_share, handed sums, part_times *t)
{
    const bool repeats = s->keep == PART_RECOMPUTE || s->keep == PART_KEEP_SOME;
    const int64_t C = s->micro_batches, again = repeats ? r->again_ps : 0;
    const int64_t again_gain = repeats ? r->again_gain_ps : 0;
    const int64_t fwd = m->fwd_gain_ps[r->last] - m->fwd_gain_ps[r->first];
    const int64_t bwd_ps = r->bwd_ps - sums.ps;
    const int64_t bwd = m->bwd_gain_ps[r->last] - m->bwd_gain_ps[r->first] - sums.gain_ps;
    const int64_t fwd_gain = fwd * fwd_share / PART_WARM_ALL;
    const int64_t bwd_gain = (bwd + again_gain) * bwd_share / PART_WARM_ALL;
    const int64_t turn_gain = (bwd + r->again_gain_ps) * bwd_share / PART_WARM_ALL;
    t->fwd = C * r->fwd_ps - (C - 1) * fwd_gain + r->ortho_ps;
    t->bwd = C * (bwd_ps + again) - (C - 1) * bwd_gain;
    t->turn = C * (bwd_ps + r->again_ps) - (C - 1) * turn_gain + r->ortho_ps;
    if (!graph_trains(m->g))
        t->turn = t->fwd;
}

part_times part_range_least(const part_model *m, const part_setting *s, const part_range *r)
{
    part_times t = {0};
    compute(m, s, r, PART_WARM_ALL, PART_WARM_ALL, handed_on(m, r->first, r->last), &t);
    return t;
}

part_times part_range_times(const part_model *m, const part_setting *s, const part_range *r)
{
    const part_device *d = &m->profile->device;
    const int64_t C = s->micro_batches;
    const double wait = d->copy_latency_seconds;
    bool host = s->boundaries == PART_ON_HOST, keep = s->keep == PART_KEEP_HOST;
    const uint64_t stashed = keep ? r->kept_bytes : r->sent_bytes;
    int64_t kept = C * copy_ps(stashed, d->d2h_bytes_per_second, wait);
    int64_t unkept = C * copy_ps(stashed, m->in_both, wait);
    int64_t x = host ? C * copy_ps(r->x_bytes, m->in_both, wait) : 0;
    const uint32_t loads = load_pieces(d, s, r), spills = spill_pieces(d, s, r);
    int64_t dy = host ? C * copy_ps(r->y_bytes, m->in_both, wait) : 0;
    part_times t = {
        .load = pieces_ps(r->slot_bytes, d->h2d_bytes_per_second, wait, loads) +
                copy_ps(ortho_bytes(m, r), m->in_both, wait),
        .load_both = pieces_ps(r->slot_bytes, m->in_both, wait, loads),
        .spill = pieces_ps(r->own_bytes, m->out_both, wait, spills),
        .update = update_ps(m, r) + update_waits(m, r),
        .x_in = host ? C * copy_ps(r->x_bytes, d->h2d_bytes_per_second, wait) : 0,
        .x_out = host ? C * copy_ps(r->x_bytes, m->out_both, wait) : 0,
        .back_in = x + dy + unkept,
        .y_back_out = host ? C * copy_ps(r->y_bytes, m->out_both, wait) : 0,
        .y_out = kept + copy_ps(ortho_bytes(m, r), m->out_both, wait) +
                 (host ? C * copy_ps(r->y_bytes, d->d2h_bytes_per_second, wait) : 0),
    };
    compute(m, s, r, part_warm_share(d, touched_bytes(r)),
            part_warm_share(d, touched_bytes(r) + r->grad_bytes), handed_here(m, r), &t);
    t.crossing = (t.x_in + t.x_out) / C / 2;
    if (!graph_trains(m->g)) /* nothing comes back */
        t.load_both = t.x_out = t.back_in = t.y_back_out = 0;
    t.bwd_one = t.bwd / C;
    t.least = t.fwd + t.bwd + (t.back_in + t.y_back_out) / C / 2;
    return t;
}

uint64_t part_fixed_bytes(const part_model *m, const part_setting *s)
{
    uint64_t late = s->boundaries == PART_ON_HOST ? 2 : s->micro_batches;
    return m->shared_bytes + m->norm_bytes + m->workspace_bytes + late * m->late_bytes +
           m->ortho_bytes + s->micro_batches * m->micro_batch_bytes;
}

bool part_pair_hides(const part_times *cur, const part_times *next, bool last)
{
    if (cur->fwd < next->load + cur->x_in || cur->fwd < cur->y_out ||
        cur->bwd < next->spill + cur->x_out)
        return false;
    return last ? next->turn >= next->x_in : next->bwd >= cur->load_both + next->back_in;
}

int64_t part_range_least_ps(const part_times *cur, bool first)
{
    int64_t total = cur->least;
    if (first)
        total += max_i64(0, cur->back_in - cur->bwd) + cur->spill + cur->update + cur->load;
    return total;
}

int64_t part_turn_ps(const part_times *last)
{
    return max_i64(last->turn, max_i64(last->x_in, last->x_out));
}

int64_t part_pair_ps(const part_setting *s, const part_times *cur, const part_times *next,
                     bool first, bool last)
{
    int64_t forward = max_i64(max_i64(cur->fwd, next->load + cur->x_in), cur->y_out);
    int64_t leaving = next->spill + cur->x_out;
    /* Updates run ahead of the fetches of the next step, or behind the spills of this one. */
    if (s->clip)
        forward = max_i64(forward, next->update);
    else
        leaving = max_i64(leaving, next->update);
    int64_t stalls = forward - cur->fwd + max_i64(0, leaving - cur->bwd);
    if (!last)
        stalls += max_i64(0, cur->load_both + next->back_in - next->bwd);
    /* What goes out behind a spill waits for it; two places of staging hide two micro-batches of
     * that. */
    stalls += next->crossing;
    if (s->boundaries == PART_ON_HOST)
        stalls += max_i64(0, next->spill - 2 * cur->bwd_one);
    return part_range_least_ps(cur, first) + stalls;
}
