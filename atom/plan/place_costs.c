/*
 * Owns the way from a graph and a profile to the numbers of partition/place. One idea: nothing is
 * estimated a second time; nodes cost what the profile says, and a whole copy costs what its plan
 * says. Refuses a model without a place to cut, and profiles of another graph.
 */
#include "atom/plan/place_costs.h"

#include "atom/base/mem.h"
#include "swap/disk.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void plan_layers_close(plan_layers **layers)
{
    plan_layers *l = *layers;
    if (!l)
        return;
    atom_free(l->layers);
    atom_free(l->first_node);
    atom_free(l);
    *layers = NULL;
}

/* Parameters that nodes [first, last) use, each once. */
static uint64_t elements_of(const graph *g, int32_t first, int32_t last, bool *tied)
{
    uint64_t sum = 0;
    for (int32_t i = first; i < last; i++)
        for (int k = 0; k < g->nodes[i].n_params; k++) {
            int32_t param = g->nodes[i].params[k];
            bool before = false;
            for (int32_t j = first; j < i && !before; j++)
                for (int m = 0; m < g->nodes[j].n_params; m++)
                    before = before || g->nodes[j].params[m] == param;
            sum += before ? 0 : g->params[param].elements;
            *tied = *tied || g->params[param].first_node < first;
        }
    return sum;
}

static bool may_cut(const graph *g, int32_t cut, bool one_tensor)
{
    int32_t ids[GRAPH_BOUNDARY_MAX];
    return graph_can_cut(g, cut) &&
           (!one_tensor || graph_boundary(g, cut, ids, GRAPH_BOUNDARY_MAX) == 1);
}

/* Cuts such that every layer has a thousandth of the parameters or more: a norm in front of the head
 * is no layer. Returns the number of layers. */
static uint32_t cut_layers(const graph *g, bool one_tensor, int32_t *first)
{
    const uint64_t least = g->param_elements / 1000 + 1;
    uint32_t n = 0;
    bool ignored = false;
    first[0] = 0;
    for (int32_t cut = 1; cut < (int32_t)g->n_nodes; cut++)
        if (may_cut(g, cut, one_tensor) && elements_of(g, first[n], cut, &ignored) >= least)
            first[++n] = cut;
    if (n > 0 && elements_of(g, first[n], (int32_t)g->n_nodes, &ignored) < least)
        n--; /* the rest goes with the layer in front */
    first[++n] = (int32_t)g->n_nodes;
    return n;
}

/* Joins neighbours until there are few enough. */
static uint32_t thin(int32_t *first, uint32_t n)
{
    while (n > PLACE_LAYERS_MAX) {
        int32_t end = first[n];
        uint32_t kept = 0;
        for (uint32_t i = 0; i < n; i += 2)
            first[kept++] = first[i];
        first[kept] = end;
        n = kept;
    }
    return n;
}

atom_status plan_layers_open(const graph *g, plan_layers **out)
{
    plan_layers *l = atom_alloc(1, sizeof *l);
    atom_status st = ATOM_OK;
    if (!l)
        return atom_fail_memory("the layers of a model", sizeof *l);
    l->first_node = atom_alloc(g->n_nodes + 1u, sizeof *l->first_node);
    if (!l->first_node)
        ATOM_TRY_CLEAN(atom_fail_memory("the layers of a model", g->n_nodes * sizeof(int32_t)));
    l->n = cut_layers(g, true, l->first_node);
    if (l->n < 2)
        l->n = cut_layers(g, false, l->first_node);
    l->n = thin(l->first_node, l->n);
    l->layers = atom_alloc(l->n, sizeof *l->layers);
    if (!l->layers)
        ATOM_TRY_CLEAN(atom_fail_memory("the layers of a model", l->n * sizeof *l->layers));
    for (uint32_t i = 0; i < l->n; i++) {
        int32_t first = l->first_node[i];
        l->layers[i].elements = elements_of(g, first, l->first_node[i + 1], &l->tied);
        l->layers[i].boundary_bytes = i ? graph_boundary_bytes(g, first) : 0;
    }
    *out = l;
    l = NULL;
cleanup:
    plan_layers_close(&l);
    return st;
}

static double layer_seconds(const graph *g, const part_profile *profile, int32_t first,
                            int32_t last)
{
    double sum = 0;
    for (int32_t i = first; i < last; i++) {
        const part_node_cost *cost = &profile->nodes[i];
        bool loss = i + 1 == (int32_t)g->n_nodes; /* its backward includes its forward */
        sum += cost->bwd_seconds + (loss ? 0 : 2 * cost->fwd_seconds);
    }
    return sum;
}

/* A plan where the pool takes so much beside it; a refusal is an answer, in kind->whole_why. */
static atom_status plan_beside(const graph *g, const part_profile *profile,
                               const plan_host_limits *limits, uint64_t beside, int disk,
                               place_kind *kind, part_plan **plan)
{
    uint64_t host = kind->host_bytes;
    if (host <= beside) {
        snprintf(kind->whole_why, sizeof kind->whole_why,
                 "the pool alone, without training, takes %.1f GB of host memory, and only %.1f "
                 "GB may be used",
                 1e-9 * (double)beside, 1e-9 * (double)host);
        return ATOM_E_RESOURCE;
    }
    const plan_request request = {.devices = limits->devices,
                                  .device_memory = limits->device_memory,
                                  .host_memory = host - beside,
                                  .micro_batches = limits->micro_batches,
                                  .clip = true,
                                  .recompute = PLAN_RECOMPUTE_FREE,
                                  .disk = disk,
                                  .ahead = true};
    atom_status st = plan_search(g, profile, NULL, &request, plan, NULL);
    if (st == ATOM_E_RESOURCE) {
        snprintf(kind->whole_why, sizeof kind->whole_why, "%s", atom_fail_message());
        kind->whole_why[strcspn(kind->whole_why, ";")] = 0; /* then: options of one host alone */
    }
    return st;
}

/* What a plan says about a whole copy, from the fastest way on, as a member chooses (trainer_plan.c). */
static atom_status price_whole(const graph *g, const part_profile *profile,
                               const plan_host_limits *limits, place_kind *kind)
{
    part_plan *plan = NULL;
    double state = (double)graph_state_bytes(g);
    uint64_t least = limits->least_beside ? limits->least_beside : limits->host_beside;
    const struct {
        uint64_t beside;
        int disk;
        bool asked;
    } ways[] = {{limits->host_beside, PLAN_STATE_IN_MEMORY, true},
                {least, PLAN_STATE_IN_MEMORY, least != limits->host_beside},
                {least, PLAN_STATE_FREE, limits->disk > 0}};
    atom_status st = ATOM_E_RESOURCE;
    uint64_t beside = 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways && st == ATOM_E_RESOURCE; i++)
        if (ways[i].asked)
            st =
                plan_beside(g, profile, limits, beside = ways[i].beside, ways[i].disk, kind, &plan);
    if (st == ATOM_E_RESOURCE)
        return ATOM_OK;
    ATOM_TRY(st);
    if (plan->disk && SWAP_GENERATIONS * state > (double)limits->disk) {
        snprintf(kind->whole_why, sizeof kind->whole_why,
                 "the optimizer's state needs %.1f GB of disk, and only %.1f GB may be used",
                 1e-9 * SWAP_GENERATIONS * state, 1e-9 * (double)limits->disk);
    } else {
        double step = part_plan_seconds(plan), update = plan->predicted_compute_seconds;
        update = fmax(
            0, fmin((double)g->trained_extent / kind->update_elements_per_second, step - update));
        kind->whole = true;
        kind->whole_update_seconds = update;
        kind->whole_micro_seconds = (step - update) / plan->micro_batches;
        kind->whole_bytes = plan->host_peak_bytes + beside;
        kind->whole_why[0] = 0;
    }
    part_plan_close(&plan);
    return ATOM_OK;
}

atom_status plan_host_price(const graph *g, const part_profile *profile, const plan_layers *layers,
                            const plan_host_limits *limits, const char *name, plan_host_costs *out)
{
    const part_device *d = &profile->device;
    plan_host_costs c = {.layer_seconds = atom_alloc(layers->n, sizeof *c.layer_seconds)};
    part_disk disk = part_device_disk(d);
    atom_status st = ATOM_OK;
    if (!c.layer_seconds)
        return atom_fail_memory("the costs of a host", layers->n * sizeof(double));
    ATOM_TRY_CLEAN(part_profile_matches(profile, g));
    for (uint32_t i = 0; i < layers->n; i++)
        c.layer_seconds[i] =
            layer_seconds(g, profile, layers->first_node[i], layers->first_node[i + 1]);
    uint64_t device = limits->device_memory ? limits->device_memory : d->device_bytes;
    c.kind = (place_kind){
        .layer_seconds = c.layer_seconds,
        .update_elements_per_second = d->adamw_params_per_second,
        .load_bytes_per_second = d->unified ? 0 : d->h2d_bytes_per_second,
        .disk_bytes_per_second = limits->disk ? fmin(disk.read_both, disk.write_both) : 0,
        .device_bytes = d->unified ? 0 : device,
        .host_bytes = limits->host_memory ? limits->host_memory : d->host_bytes,
        .disk_bytes = limits->disk / SWAP_GENERATIONS,
    };
    snprintf(c.kind.name, sizeof c.kind.name, "%.60s", name);
    ATOM_TRY_CLEAN(price_whole(g, profile, limits, &c.kind));
    *out = c;
    c.layer_seconds = NULL;
cleanup:
    atom_free(c.layer_seconds);
    return st;
}

void plan_host_free(plan_host_costs *costs)
{
    atom_free(costs->layer_seconds);
    *costs = (plan_host_costs){0};
}
