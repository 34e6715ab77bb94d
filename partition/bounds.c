/*
 * Owns what partitions take at least. One idea: what a partition computes, loads and spills in front
 * of a point does not depend on where it is cut, and how often it must be cut follows from the memory
 * that any two neighbours share; so a lower bound on all that comes in front of a point costs one
 * pass over the points. Refuses to look at ranges one by one.
 */
#include "partition/search.h"

#include "atom/base/mem.h"

/* --- whatever the cuts --- */

/* What all ranges in front of a point take together, each thing for itself. */
typedef struct sums {
    int64_t fwd, bwd, muon;
    uint64_t own_bytes, elements;
} sums;

static int64_t to_ps(double amount, double per_second)
{
    return amount > 0 ? (int64_t)(amount / per_second * 1e12) : 0;
}

/* What a partition takes at least before it reaches the point, however it is cut: forward no less
 * than computing, loading or updating, and backward no less than computing or spilling. Every range
 * rounds its copies by less than a picosecond, and there are no more ranges than points. */
static int64_t least_before(const part_model *m, const part_setting *setting, const sums *s)
{
    const part_device *d = &m->profile->device;
    int64_t load = to_ps((double)s->own_bytes, d->h2d_bytes_per_second);
    int64_t spill = to_ps((double)s->own_bytes, d->d2h_both_bytes_per_second);
    int64_t update = to_ps((double)s->elements, d->adamw_params_per_second) + s->muon;
    int64_t forward = load > s->fwd ? load : s->fwd, backward = spill > s->bwd ? spill : s->bwd;
    int64_t *where = setting->clip ? &forward : &backward;
    *where = update > *where ? update : *where;
    int64_t least = forward + backward - 4 * (int64_t)m->n_points;
    return least > 0 ? least : 0;
}

void part_bounds_fill(part_table *t, const part_setting *setting)
{
    sums s = {0};
    for (uint32_t i = 0; i < t->m->n_points; i++) {
        t->before[i] = least_before(t->m, setting, &s);
        t->compute[i] = s.fwd + s.bwd;
        if (t->row[i] == t->row[i + 1])
            continue;                                                /* no partition passes here */
        const part_range *r = &t->ranges[t->row[i]];                 /* up to the next point */
        const part_times least = part_range_least(t->m, setting, r); /* whatever it is a part of */
        s.fwd += least.fwd;
        s.bwd += least.bwd;
        s.muon += r->muon_ps;
        s.own_bytes += r->own_bytes;
        s.elements += r->own_elements - r->muon_elements;
    }
}

/* --- of the cuts --- */

uint64_t part_narrowest_bytes(const part_model *m)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 1; i + 1 < m->n_points; i++) {
        const uint64_t bytes = m->boundary_bytes[m->points[i]];
        least = bytes < least ? bytes : least;
    }
    return least < UINT64_MAX ? least : 0;
}

uint64_t part_crossing_bytes(const part_model *m, const part_setting *s)
{
    return part_boundary_places(s) * part_narrowest_bytes(m);
}

/* Device bytes that two neighbours between these points need together, wherever the cut between them
 * is: parameters and what is spilled add up, of accumulators there is the larger half. */
typedef struct window {
    const part_model *m;
    uint64_t *weight; /* of all nodes in front of a point; owned */
    uint64_t crosses; /* part_crossing_bytes() */
} window;

static void weigh(const window *w)
{
    const part_model *m = w->m;
    uint64_t sum = 0;
    int32_t node = 0;
    for (uint32_t i = 0; i < m->n_points; i++) {
        for (; node < m->points[i]; node++) {
            const part_node_facts *n = &m->nodes[node];
            sum += 2 * n->own_bytes + n->frozen_bytes + n->grad_bytes / 2;
        }
        w->weight[i] = sum;
    }
}

static uint64_t pair_bytes(const window *w, uint32_t i, uint32_t k)
{
    return w->weight[k] - w->weight[i] + w->crosses * (i ? 2 : 1);
}

/* What a cut costs at least, by what crosses it: as the last one, and with another one behind it. */
static void cost_of_cut(const part_model *m, const part_setting *s, uint32_t i, int64_t *last,
                        int64_t *passed)
{
    const uint64_t bytes = m->boundary_bytes[m->points[i]];
    const part_range r = {.x_bytes = bytes, .y_bytes = bytes};
    const part_times t = part_range_times(m, s, &r);
    const int64_t C = s->micro_batches;
    *last = s->cut_price * (int64_t)(bytes / 1024) + t.crossing +
            (t.back_in / 2 + t.y_back_out) / C / 2;
    *passed = *last + t.back_in / 2 / C / 2;
}

/*
 * The least that cuts up to point k cost, that one included: an even number of ranges in front of it
 * takes at least a cut in each window that two neighbours fit in (even[], which goes on behind k), and
 * an odd one has one range more.
 */
static int64_t cheapest(const window *w, uint32_t k, uint64_t room_bytes, const int64_t *passed,
                        const int64_t *even, int64_t *to_here)
{
    int64_t between = INT64_MAX, one = INT64_MAX, two = INT64_MAX;
    for (uint32_t i = k; i-- > 0;) {
        if (pair_bytes(w, i, k) > room_bytes && i > 0) {
            i = 1; /* only the first point is left, in front of which nothing crosses */
            continue;
        }
        if (pair_bytes(w, i, k) > room_bytes)
            break;
        if (even[i] < one)
            one = even[i];
        if (between < INT64_MAX && even[i] < INT64_MAX && even[i] + between < two)
            two = even[i] + between;
        if (passed[i] < between)
            between = passed[i];
    }
    *to_here = two;
    return one < two ? one : two;
}

atom_status part_bounds_cuts(const part_table *t, const part_setting *s, uint64_t room_bytes,
                             int64_t *cut, int64_t *cuts)
{
    const part_model *m = t->m;
    const uint32_t n = m->n_points;
    int64_t *passed = atom_alloc(2 * (size_t)n, sizeof *passed), *even = passed + n;
    window w = {
        .m = m, .weight = atom_alloc(n, sizeof *w.weight), .crosses = part_crossing_bytes(m, s)};
    if (!passed || !w.weight) {
        atom_free(passed);
        atom_free(w.weight);
        return atom_fail_memory("the partition search", n * sizeof *passed);
    }
    weigh(&w);
    cut[0] = cuts[0] = even[0] = 0;
    for (uint32_t i = 1; i < n; i++)
        cost_of_cut(m, s, i, &cut[i], &passed[i]);
    for (uint32_t i = 1; i < n; i++) {
        int64_t least = cheapest(&w, i, room_bytes, passed, even, &even[i]);
        cuts[i] = least < INT64_MAX ? least + cut[i] : INT64_MAX;
        even[i] = even[i] < INT64_MAX ? even[i] + passed[i] : INT64_MAX;
    }
    atom_free(passed);
    atom_free(w.weight);
    return ATOM_OK;
}
