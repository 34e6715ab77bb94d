/*
 * Owns whole copies, the two ways that atom trains in a pool, and the verdict. One idea: with
 * summed gradients a slow line costs everybody, so who takes part is a choice; with averaged
 * weights it does not. Refuses to recommend what atom cannot run.
 */
#include "partition/place/inner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const place_mode_names[PLACE_MODES] = {"gradients", "parameters", "stages"};
const char *const place_bound_names[PLACE_BOUNDS] = {"compute", "sync", "boundary", "optimizer",
                                                     "bubble"};

/* H, as `pool create` raises it (atom/pool/advice.h). */
static const uint32_t ladder[] = {20, 50, 100, 200, 500};
enum { RUNGS = sizeof ladder / sizeof *ladder };
/* What is left of the members' speed where work is leased by speed and all wait for the last: 0.97
 * for equal members, 0.93 for very unequal ones (docs/measurements/2026-11-23-speeds.md). */
static const double LEASES = 0.95;

typedef struct step {
    double seconds, compute, sync, update;
    uint32_t slow_line, slow_host, slow_update;
} step;

static const place_kind *kind_of(const place_problem *p, uint32_t host)
{
    return &p->kinds[p->hosts[host].kind];
}

static double total_elements(const place_problem *p)
{
    double sum = 0;
    for (uint32_t i = 0; i < p->n_layers; i++)
        sum += (double)p->layers[i].elements;
    return sum;
}

/* How many micro-batches all of them have done by then. */
static double done_by(const place_problem *p, const uint16_t *hosts, uint32_t n, double seconds)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += floor(seconds / kind_of(p, hosts[i])->whole_micro_seconds * (1 + 1e-12));
    return sum;
}

/* When the last of all micro-batches is done, each taken by whoever is free. */
static double compute_seconds(const place_problem *p, const uint16_t *hosts, uint32_t n)
{
    double rate = 0, low = 0, high, end = 0;
    for (uint32_t i = 0; i < n; i++)
        rate += 1 / kind_of(p, hosts[i])->whole_micro_seconds;
    high = (p->micro_batches + n) / rate * (1 + 1e-9);
    for (int i = 0; i < 100; i++) {
        double middle = (low + high) / 2;
        if (done_by(p, hosts, n, middle) >= p->micro_batches)
            high = middle;
        else
            low = middle;
    }
    for (uint32_t i = 0; i < n; i++) {
        double each = kind_of(p, hosts[i])->whole_micro_seconds;
        end = fmax(end, floor(high / each * (1 + 1e-12)) * each);
    }
    return end;
}

static step gradients_step(const place_problem *p, const place_types *types, const uint16_t *hosts,
                           uint32_t n)
{
    step s = {.compute = compute_seconds(p, hosts, n) / (n > 1 ? LEASES : 1),
              .slow_host = hosts[0]};
    s.sync =
        place_sync_seconds(p, types, hosts, n, total_elements(p) * p->sync_bytes, &s.slow_line);
    for (uint32_t i = 0; i < n; i++) {
        const place_kind *k = kind_of(p, hosts[i]);
        if (k->whole_update_seconds > s.update)
            s.slow_update = hosts[i];
        s.update = fmax(s.update, k->whole_update_seconds);
        if (k->whole_micro_seconds > kind_of(p, s.slow_host)->whole_micro_seconds)
            s.slow_host = hosts[i];
    }
    s.seconds = (p->delayed ? fmax(s.compute, s.sync) : s.compute + s.sync) + s.update;
    return s;
}

/* A set of hosts that was tried, and the best one. */
typedef struct sets {
    const place_problem *p;
    const place_types *types;
    uint16_t trial[PLACE_HOSTS_MAX], *best;
    uint32_t n_trial, n_best;
    double quickest;
} sets;

static bool keep_if_better(sets *s)
{
    double seconds = gradients_step(s->p, s->types, s->trial, s->n_trial).seconds;
    if (seconds >= s->quickest * (1 - 1e-12))
        return false;
    s->quickest = seconds;
    s->n_best = s->n_trial;
    memcpy(s->best, s->trial, s->n_trial * sizeof *s->best);
    return true;
}

static void try_every_set(sets *s, const uint16_t *all, uint32_t n)
{
    for (uint32_t mask = 1; mask < 1u << n; mask++) {
        s->n_trial = 0;
        for (uint32_t i = 0; i < n; i++)
            if (mask >> i & 1)
                s->trial[s->n_trial++] = all[i];
        (void)keep_if_better(s);
    }
}

/* Takes a host out of the trial, or all that are interchangeable with it. */
static void take_out(sets *s, uint32_t host, bool its_type)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->n_trial; i++) {
        uint32_t h = s->trial[i];
        if (its_type ? s->types->of[h] != s->types->of[host] : h != host)
            s->trial[kept++] = (uint16_t)h;
    }
    s->n_trial = kept;
}

/* Class after class, the slowest lines or the slowest computers first: many must go before it pays. */
static void leave_classes_out(sets *s, const uint16_t *all, uint32_t n, bool lines)
{
    memcpy(s->trial, all, n * sizeof *all);
    for (s->n_trial = n; s->n_trial > 1;) {
        step now = gradients_step(s->p, s->types, s->trial, s->n_trial);
        take_out(s, lines ? now.slow_line : now.slow_host, true);
        if (s->n_trial)
            (void)keep_if_better(s);
    }
}

/* Host after host, from the best set so far. */
static void leave_hosts_out(sets *s)
{
    for (bool better = true; better && s->n_best > 1;) {
        step now = gradients_step(s->p, s->types, s->best, s->n_best);
        const uint32_t out[2] = {now.slow_line, now.slow_host};
        better = false;
        for (int i = 0; i < 2 && !better; i++) {
            memcpy(s->trial, s->best, s->n_best * sizeof *s->best);
            s->n_trial = s->n_best;
            take_out(s, out[i], false);
            better = keep_if_better(s);
        }
    }
}

/* The quickest set out of `all`; best[] is filled, their number returned. */
static uint32_t choose_set(const place_problem *p, const place_types *types, const uint16_t *all,
                           uint32_t n, uint16_t *best)
{
    sets s = {.p = p, .types = types, .best = best, .quickest = INFINITY};
    memcpy(s.trial, all, n * sizeof *all);
    s.n_trial = n;
    (void)keep_if_better(&s);
    if (n <= PLACE_EXACT_HOSTS) {
        try_every_set(&s, all, n);
        return s.n_best;
    }
    leave_classes_out(&s, all, n, true);
    leave_classes_out(&s, all, n, false);
    leave_hosts_out(&s);
    return s.n_best;
}

static uint32_t those_that_can(const place_problem *p, uint16_t *hosts)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_hosts; i++)
        if (kind_of(p, i)->whole)
            hosts[n++] = (uint16_t)i;
    return n;
}

static void fill_gradients(const place_problem *p, const place_types *types, const uint16_t *hosts,
                           place_candidate *out)
{
    step s = gradients_step(p, types, hosts, out->n_used);
    double work = compute_seconds(p, hosts, out->n_used);
    out->sync_steps = 1;
    out->step_seconds = s.seconds;
    out->compute_seconds = s.compute;
    out->link_seconds = p->delayed ? fmax(s.sync - s.compute, 0) : s.sync;
    out->sync_seconds = s.sync;
    out->optimizer_seconds = s.update;
    out->tokens_per_second = p->micro_batches * p->micro_tokens / s.seconds;
    out->bound = s.sync > s.compute ? PLACE_BOUND_SYNC : PLACE_BOUND_COMPUTE;
    out->binds = s.sync > s.compute ? s.slow_line : s.slow_host;
    if (s.update > fmax(s.sync, s.compute)) {
        out->bound = PLACE_BOUND_OPTIMIZER;
        out->binds = s.slow_update;
    }
    for (uint32_t i = 0; i < out->n_used; i++) {
        const place_kind *k = kind_of(p, hosts[i]);
        double mine = floor(work / k->whole_micro_seconds * (1 + 1e-12));
        mine = fmin(mine * k->whole_micro_seconds, work);
        out->busy[hosts[i]] = (mine + k->whole_update_seconds) / s.seconds;
    }
}

/* Members train on while weights are averaged, so the step has no link in it. A member's own step
 * has its equal part of the batch. */
static void fill_parameters(const place_problem *p, const place_types *types, const uint16_t *hosts,
                            place_candidate *out)
{
    double each = fmax(1, floor((double)p->micro_batches / out->n_used)), rate = 0, compute = 0;
    uint32_t slow = hosts[0];
    for (uint32_t i = 0; i < out->n_used; i++) {
        const place_kind *k = kind_of(p, hosts[i]);
        double seconds = each * k->whole_micro_seconds + k->whole_update_seconds;
        rate += each * p->micro_tokens / seconds;
        compute += each * k->whole_micro_seconds / seconds / out->n_used;
        out->busy[hosts[i]] = 1;
        if (k->whole_micro_seconds > kind_of(p, slow)->whole_micro_seconds)
            slow = hosts[i];
    }
    out->tokens_per_second = rate;
    out->step_seconds = each * out->n_used * p->micro_tokens / rate;
    out->compute_seconds = out->step_seconds * compute;
    out->optimizer_seconds = out->step_seconds - out->compute_seconds;
    out->bound = compute >= 0.5 ? PLACE_BOUND_COMPUTE : PLACE_BOUND_OPTIMIZER;
    out->binds = slow;
    out->sync_seconds =
        place_sync_seconds(p, types, hosts, out->n_used, total_elements(p) * p->sync_bytes, NULL);
    for (uint32_t i = 0; i < RUNGS && !out->hidden; i++) {
        out->sync_steps = ladder[i];
        out->hidden = ladder[i] * out->step_seconds >= out->sync_seconds;
    }
}

atom_status place_whole(const place_problem *p, place_mode mode, place_candidate *out)
{
    uint16_t all[PLACE_HOSTS_MAX], used[PLACE_HOSTS_MAX];
    place_types types;
    ATOM_TRY(place_check(p));
    place_types_find(p, &types);
    memset(out, 0, sizeof *out);
    memset(out->stage, 0xff, sizeof out->stage);
    memset(out->pipeline, 0xff, sizeof out->pipeline);
    out->mode = mode;
    out->n_stages = 1;
    out->binds = out->binds_to = PLACE_UNUSED;
    uint32_t n = those_that_can(p, all);
    if (n == 0) {
        snprintf(out->why, sizeof out->why, "no host can hold the whole model (%s: %.360s)",
                 p->hosts[0].name, kind_of(p, 0)->whole_why);
        return ATOM_OK;
    }
    out->possible = true;
    out->n_used = n;
    memcpy(used, all, sizeof used);
    if (mode == PLACE_GRADIENTS && !p->everybody)
        out->n_used = choose_set(p, &types, all, n, used);
    out->n_groups = out->n_used;
    out->first_layer[1] = p->n_layers;
    for (uint32_t i = 0; i < out->n_used; i++) {
        out->stage[used[i]] = 0;
        out->pipeline[used[i]] = (uint16_t)i;
        out->memory_bytes[used[i]] = kind_of(p, used[i])->whole_bytes;
    }
    if (mode == PLACE_GRADIENTS)
        fill_gradients(p, &types, used, out);
    else
        fill_parameters(p, &types, used, out);
    return ATOM_OK;
}

static void take_better(place_candidate *best, const place_candidate *trial, bool first)
{
    if (first || (trial->possible &&
                  (!best->possible || trial->tokens_per_second > best->tokens_per_second)))
        *best = *trial;
}

/* A short search of each number of stages, then a whole one of the two best. */
atom_status place_most(const place_problem *p, const place_search *search, place_candidate *out)
{
    place_candidate trial;
    place_search brief = *search;
    uint32_t first = 0, second = 0;
    double best[2] = {0};
    memset(out, 0, sizeof *out);
    out->mode = PLACE_STAGES;
    snprintf(out->why, sizeof out->why, "stages need two hosts and two layers");
    uint32_t most = p->n_hosts < p->n_layers ? p->n_hosts : p->n_layers;
    most = most < PLACE_STAGES_MAX ? most : PLACE_STAGES_MAX;
    brief.brief = true;
    for (uint32_t s = 2; s <= most; s += s < 8 ? 1 : s < 16 ? 2 : s < 32 ? 4 : 8) {
        ATOM_TRY(place_stages(p, s, &brief, &trial));
        take_better(out, &trial, s == 2);
        double rate = trial.possible ? trial.tokens_per_second : 0;
        if (rate > best[0]) {
            second = first;
            best[1] = best[0];
            first = s;
            best[0] = rate;
        } else if (rate > best[1]) {
            second = s;
            best[1] = rate;
        }
    }
    for (int i = 0; i < 2; i++) {
        uint32_t s = i ? second : first;
        if (!s || p->n_hosts <= PLACE_EXACT_HOSTS || search->brief)
            continue;
        ATOM_TRY(place_stages(p, s, search, &trial));
        take_better(out, &trial, false);
    }
    return ATOM_OK;
}

int32_t place_recommend(const place_candidate *gradients, const place_candidate *parameters)
{
    if (!gradients->possible)
        return parameters->possible ? PLACE_PARAMETERS : -1;
    if (!parameters->possible ||
        gradients->tokens_per_second >= PLACE_GRADIENTS_ENOUGH * parameters->tokens_per_second)
        return PLACE_GRADIENTS;
    return PLACE_PARAMETERS;
}

atom_status place_decide(const place_problem *p, const place_search *search, place_verdict *out)
{
    memset(out, 0, sizeof *out);
    ATOM_TRY(place_whole(p, PLACE_GRADIENTS, &out->gradients));
    ATOM_TRY(place_whole(p, PLACE_PARAMETERS, &out->parameters));
    ATOM_TRY(place_most(p, search, &out->stages));
    out->recommended = place_recommend(&out->gradients, &out->parameters);
    return ATOM_OK;
}
