/*
 * Owns the judgement of whole plans by the model. One idea: memory is the sum of codegen's regions,
 * time is one walk over the visits with four clocks (compute, to the device, to the host,
 * optimizer). Refuses to be the last word: where an exact evaluation is given, choose.c asks that.
 */
#include "partition/model.h"

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static double max_f64(double a, double b)
{
    return a > b ? a : b;
}

uint64_t part_window_bytes(const graph *g)
{
    return g->param_extent >= PART_WINDOW_ELEMENTS_MIN ? PART_WINDOW_BYTES : 0;
}

uint64_t part_spare_bytes(const part_plan *plan, uint64_t trained)
{
    uint64_t state = trained * atom_state_bytes(plan->moments);
    uint64_t budget = plan->host_budget_bytes;
    uint64_t left = budget > plan->host_peak_bytes ? budget - plan->host_peak_bytes : 0;
    if (plan->disk) /* a snapshot keeps a generation */
        return 0;
    if (!budget)
        return state / 8;
    return left / 2 < state ? left / 2 : state;
}

uint64_t part_host_base_bytes(const part_model *m, uint32_t micro_batches)
{
    uint64_t wire = atom_dtype_bytes(m->g->dtype);
    uint64_t state = m->disk ? m->block_bytes * m->ring_blocks
                             : part_state_bytes(m, m->trained_elements, m->muon_elements);
    return m->extent_elements * wire + state + m->micro_batch_bytes * micro_batches +
           m->norm_bytes + m->muon_bytes + part_window_bytes(m->g);
}

/* The range of sub-model k, with what it holds. */
static part_range range_of(const part_model *m, const part_plan *plan, uint32_t k)
{
    const part_sub_model *s = &plan->sub_models[k];
    part_range r = part_range_make(m, s->first_node, s->last_node);
    if (s->keep == PART_KEEP_SOME)
        part_range_hold(m, plan->holds, &r);
    return r;
}

/* --- memory: region by region, as codegen lays it out --- */

static void add_boundaries(const part_plan *plan, const part_model *m, part_verdict *v)
{
    uint64_t C = plan->micro_batches, total = 0, ring = 0, widest = 0;
    const bool host = plan->boundaries == PART_ON_HOST;
    uint64_t late = host && plan->n_sub_models > 1 ? 2 : C;
    for (uint32_t k = 1; k < plan->n_sub_models; k++) {
        const part_sub_model *s = &plan->sub_models[k];
        uint64_t x = m->boundary_bytes[s->first_node];
        uint64_t y = m->boundary_bytes[s->last_node];
        total += x;
        widest = max_u64(widest, x);
        ring = max_u64(ring, x + y);
    }
    v->device_peak_bytes += late * m->late_bytes;
    if (!graph_trains(m->g)) {
        v->device_peak_bytes += (host ? 2 : C) * ring;
        v->host_peak_bytes += host ? C * widest : 0; /* layout.c, place_stashes() */
    } else if (host) {
        v->device_peak_bytes += 4 * ring;
        v->host_peak_bytes += (plan->disk && !plan->over_boundaries ? 2 : 1) * C *
                              total; /* layout.c, place_stashes() */
        v->host_peak_bytes += plan->n_sub_models > 1 ? C * m->late_bytes : 0;
    } else {
        v->device_peak_bytes += C * total + C * ring;
    }
}

static void add_memory(const part_model *m, const part_plan *plan, part_verdict *v)
{
    uint64_t C = plan->micro_batches, ring = 0, own = 0, grads = 0, spill = 0, kept = 0, act = 0;
    uint64_t staging = 0;
    part_range next = {0};
    bool next_resident = false;
    for (uint32_t k = plan->n_sub_models; k-- > 0;) {
        const part_sub_model *s = &plan->sub_models[k];
        part_range r = range_of(m, plan, k);
        bool last = k + 1 == plan->n_sub_models;
        part_keep keep = last ? PART_RECOMPUTE : s->keep;
        if (s->resident)
            own += r.slot_bytes;
        else
            ring = max_u64(ring, r.slot_bytes + (next_resident ? 0 : next.slot_bytes));
        grads = max_u64(grads, r.grad_bytes);
        spill = max_u64(spill, r.own_bytes + next.own_bytes);
        act = max_u64(act, r.scratch_bytes);
        if (keep == PART_KEEP_DEVICE)
            own += C * r.kept_bytes;
        else
            kept = max_u64(kept, (r.kept_bytes - r.held_bytes - r.sent_bytes) *
                                     (keep == PART_KEEP_HOST ? 2 : 1));
        own += C * r.held_bytes;
        staging = max_u64(staging, 2 * r.sent_bytes);
        v->host_peak_bytes += C * (keep == PART_KEEP_HOST ? r.kept_bytes : r.sent_bytes);
        next = r;
        next_resident = s->resident;
    }
    v->device_peak_bytes += grads + kept + staging + act + m->shared_bytes + m->norm_bytes +
                            m->workspace_bytes + C * m->micro_batch_bytes + m->ortho_bytes;
    if (!plan->in_place)
        v->device_peak_bytes += ring + own + spill;
    v->host_peak_bytes += part_host_base_bytes(m, plan->micro_batches);
    add_boundaries(plan, m, v);
}

/* --- time --- */

typedef struct clocks {
    double compute, h2d, d2h, host;                     /* when each is free */
    double compute_busy, h2d_busy, d2h_busy, host_busy; /* how long each worked */
    double results; /* what a step ends with: losses and norms go */
} clocks;

static const double PS = 1e-12;

/* Work of `seconds` that may start at `ready`; returns its end. */
static double run(double *clock, double *busy, double ready, double seconds)
{
    *clock = max_f64(*clock, ready) + seconds;
    *busy += seconds;
    return *clock;
}

/* Clearing and rounding accumulators and their norm: bytes through device memory. */
static double gradient_seconds(const part_model *m, const part_range *r)
{
    const part_device *d = &m->profile->device;
    double wire = atom_dtype_bytes(m->g->dtype);
    double bytes = (double)r->own_elements * (8 + 2 * wire);
    return r->own_elements ? d->launch_seconds + bytes / d->device_bytes_per_second : 0;
}

/* What every step begins with: its tokens come. */
static double tokens_seconds(const part_model *m, const part_plan *plan)
{
    const part_device *d = &m->profile->device;
    double bytes = (double)m->micro_batch_bytes * plan->micro_batches;
    return d->copy_latency_seconds + bytes / d->h2d_bytes_per_second;
}

static part_times times_of(const part_model *m, const part_plan *plan, uint32_t k, part_range *r)
{
    const part_sub_model *s = &plan->sub_models[k];
    part_setting setting = {.micro_batches = plan->micro_batches,
                            .keep = s->keep,
                            .boundaries = plan->boundaries,
                            .clip = plan->clip};
    *r = range_of(m, plan, k);
    return part_range_times(m, &setting, r);
}

/* A visit: its copies run beside its compute; the first micro-batch waits for half of what crosses
 * to it (the other half, on average, is done while the visit before it ends). Returns its end. */
static double visit(clocks *c, double ready, int64_t compute, int64_t in, int64_t out,
                    int64_t first)
{
    double begin = max_f64(ready, c->compute) + 0.5 * (double)first * PS;
    double end = run(&c->compute, &c->compute_busy, begin, (double)compute * PS);
    double in_end = in ? run(&c->h2d, &c->h2d_busy, begin, (double)in * PS) : 0;
    double out_end = out ? run(&c->d2h, &c->d2h_busy, begin, (double)out * PS) : 0;
    c->compute = max_f64(end, max_f64(in_end, out_end));
    return c->compute;
}

/* A sub-model is loaded behind its update piece by piece, the last of PIECES when all is updated. */
static double load_behind(clocks *c, double updated, double update, double freed, double load)
{
    enum { PIECES = 8 };
    double first = updated - update * (PIECES - 1) / PIECES;
    double end = run(&c->h2d, &c->h2d_busy, max_f64(first, freed), load);
    c->h2d = max_f64(end, updated + load / PIECES);
    return c->h2d;
}

/* Forward of all but the last, each loaded while the one before computes: into the place of the one
 * before that, if it has none of its own, and after its own update. What an evaluation before this one
 * left is not loaded. */
static void forward(const part_model *m, const part_plan *plan, clocks *c, double *loaded)
{
    const double rest = 1.0 / 3; /* of the others' updates, where two thirds run ahead */
    const part_slots slots = part_plan_slots(plan);
    double updated = 0, freed = 0;
    for (uint32_t k = 0; k < plan->n_sub_models; k++) {
        const bool there = !graph_trains(m->g) && part_slots_keep(&slots, plan, k);
        part_range r;
        part_times t = times_of(m, plan, k, &r);
        double update = plan->clip ? (double)t.update * PS * (m->ahead && k ? rest : 1) : 0;
        if (plan->clip)
            updated = run(&c->host, &c->host_busy, 0, update);
        *loaded = updated;
        if (!plan->in_place && !there)
            *loaded = load_behind(c, updated, update, plan->sub_models[k].resident ? 0 : freed,
                                  (double)t.load * PS);
        freed = c->compute;
        if (k + 1 < plan->n_sub_models)
            visit(c, *loaded, t.fwd, t.x_in, t.y_out, 2 * t.crossing);
    }
}

static void backward(const part_model *m, const part_plan *plan, clocks *c, double loaded)
{
    const int64_t C = plan->micro_batches;
    for (uint32_t k = plan->n_sub_models; k-- > 0;) {
        part_range r;
        part_times t = times_of(m, plan, k, &r);
        bool turn = k + 1 == plan->n_sub_models;
        double begin = max_f64(loaded, c->compute);
        int64_t compute = turn ? t.turn : t.bwd, in = turn ? t.x_in : t.back_in;
        int64_t first = turn ? 2 * t.crossing : (t.back_in + t.y_back_out) / C;
        double end = visit(c, loaded, compute, in, t.x_out, first);
        end = run(&c->compute, &c->compute_busy, end, gradient_seconds(m, &r));
        if (!plan->in_place)
            end = run(&c->d2h, &c->d2h_busy, end, (double)t.spill * PS);
        if (!plan->clip)
            run(&c->host, &c->host_busy, end, (double)t.update * PS);
        else if (m->ahead && k)
            run(&c->host, &c->host_busy, end, (double)t.update * PS * 2 / 3);
        /* The neighbour in front of the last one never left. */
        if (k > 0 && !turn && !plan->sub_models[k - 1].resident) {
            part_range front;
            part_times f = times_of(m, plan, k - 1, &front);
            loaded = run(&c->h2d, &c->h2d_busy, begin, (double)f.load_both * PS);
        }
    }
}

/* What shares cores cannot overlap: compute and updates use all of them, a copy at memory speed
 * one. */
static double core_seconds(const part_device *d, const clocks *c)
{
    double in = 2 * d->h2d_bytes_per_second / d->host_bytes_per_second;
    double out = 2 * d->d2h_bytes_per_second / d->host_bytes_per_second;
    double copies = (in < 1 ? in : 1) * c->h2d_busy + (out < 1 ? out : 1) * c->d2h_busy;
    return c->compute_busy + c->host_busy + copies / d->cores;
}

static part_bound bound_of(const part_model *m, const clocks *c, double step)
{
    const part_device *d = &m->profile->device;
    uint64_t bytes = part_state_bytes(m, m->trained_elements, m->muon_elements);
    double work = (double)(m->trained_elements - m->muon_elements) / d->adamw_params_per_second +
                  m->muon_seconds;
    bool disk = m->disk && part_disk_seconds(d, (double)bytes) > work;
    double link = max_f64(c->h2d_busy, c->d2h_busy);
    if (c->compute_busy >= 0.95 * step)
        return PART_BOUND_COMPUTE;
    if (link > c->compute_busy && link >= c->host_busy)
        return PART_BOUND_LINK;
    if (c->host_busy <= c->compute_busy)
        return PART_BOUND_COMPUTE;
    return disk ? PART_BOUND_DISK : PART_BOUND_OPTIMIZER;
}

/* One sub-model whose parameters and state stay: nothing is loaded, the update is computed. */
static void update_there(const part_model *m, part_verdict *v, const clocks *c)
{
    const part_device *d = &m->profile->device;
    double state = (double)atom_state_bytes(m->g->moments) * (double)m->trained_elements;
    double bytes = 2 * state + 4.0 * (double)m->trained_elements;
    double seconds = d->device_bytes_per_second > 0 ? bytes / d->device_bytes_per_second : 0;
    seconds += d->launch_seconds * m->g->n_params;
    v->device_peak_bytes += (uint64_t)state;
    v->compute_seconds = c->compute_busy + seconds;
    v->step_seconds = v->compute_seconds + c->results;
    v->h2d_seconds = v->d2h_seconds = v->host_seconds = 0;
    v->bound = PART_BOUND_COMPUTE;
}

void part_estimate(const part_model *m, const part_plan *plan, part_verdict *verdict)
{
    part_verdict v = {0};
    clocks c = {.results = m->profile->device.copy_latency_seconds};
    double loaded = 0;
    c.compute = c.h2d = tokens_seconds(m, plan);
    add_memory(m, plan, &v);
    forward(m, plan, &c, &loaded);
    backward(m, plan, &c, loaded);
    v.step_seconds = max_f64(max_f64(c.compute, c.h2d), max_f64(c.d2h + c.results, c.host));
    v.step_seconds = max_f64(v.step_seconds, c.compute + c.results);
    if (m->profile->device.unified)
        v.step_seconds = max_f64(v.step_seconds, core_seconds(&m->profile->device, &c));
    v.compute_seconds = c.compute_busy;
    v.h2d_seconds = c.h2d_busy;
    v.d2h_seconds = c.d2h_busy;
    v.host_seconds = c.host_busy;
    v.bound = bound_of(m, &c, v.step_seconds);
    if (plan->update_on_device)
        update_there(m, &v, &c);
    *verdict = v;
}
