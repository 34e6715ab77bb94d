/*
 * Owns plans as objects. One idea: a plan is plain numbers that can be copied, compared and thrown
 * away. Refuses to decide anything: choose.c does.
 */
#include "partition/plan.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <string.h>

const char *const part_optimizer_names[2] = {[GRAPH_ADAMW] = "adamw", [GRAPH_MUON] = "muon"};

const char *const part_bound_names[PART_BOUND_N] = {
    [PART_BOUND_COMPUTE] = "compute",         [PART_BOUND_LINK] = "link",
    [PART_BOUND_OPTIMIZER] = "optimizer",     [PART_BOUND_DISK] = "disk",
    [PART_BOUND_HOST_MEMORY] = "host memory", [PART_BOUND_DEVICE_MEMORY] = "device memory",
};

const char *part_bound_name(part_bound bound)
{
    ATOM_ASSERT(bound < PART_BOUND_N);
    return part_bound_names[bound];
}

static part_plan *new_plan(uint32_t n_sub_models)
{
    part_plan *plan = atom_alloc(1, sizeof *plan);
    if (!plan)
        return NULL;
    plan->n_sub_models = n_sub_models;
    plan->sub_models = atom_alloc(n_sub_models, sizeof *plan->sub_models);
    if (!plan->sub_models)
        part_plan_close(&plan);
    return plan;
}

atom_status part_plan_open(const graph *g, const part_profile *profile, uint32_t n_sub_models,
                           part_plan **out)
{
    ATOM_ASSERT(n_sub_models >= 1);
    part_plan *plan = new_plan(n_sub_models);
    if (!plan)
        return atom_fail_memory("a plan", (uint64_t)n_sub_models * sizeof *plan->sub_models);
    plan->graph_hash = profile->graph_hash; /* it takes long to work out */
    memcpy(plan->model, g->name, sizeof plan->model);
    memcpy(plan->device, profile->device.name, sizeof plan->device);
    plan->dtype = g->dtype;
    plan->moments = g->moments;
    plan->optimizer = g->optimizer;
    plan->micro_batch = g->micro_batch;
    plan->sequence = g->sequence;
    plan->micro_batches = 1;
    plan->devices = 1;
    *out = plan;
    return ATOM_OK;
}

static uint32_t nodes_of(const part_plan *plan)
{
    return (uint32_t)plan->sub_models[plan->n_sub_models - 1].last_node;
}

atom_status part_plan_open_holds(part_plan *plan)
{
    ATOM_ASSERT(!plan->holds);
    plan->holds = atom_alloc(nodes_of(plan), sizeof *plan->holds);
    return plan->holds ? ATOM_OK : atom_fail_memory("a plan", nodes_of(plan));
}

atom_status part_plan_copy(const part_plan *plan, part_plan **out)
{
    part_plan *copy = new_plan(plan->n_sub_models);
    if (!copy)
        return atom_fail_memory("a plan", (uint64_t)plan->n_sub_models * sizeof *plan->sub_models);
    part_sub_model *rows = copy->sub_models;
    memcpy(rows, plan->sub_models, plan->n_sub_models * sizeof *rows);
    *copy = *plan;
    copy->sub_models = rows;
    copy->holds = NULL;
    if (plan->holds && part_plan_open_holds(copy) != ATOM_OK) {
        part_plan_close(&copy);
        return ATOM_E_RESOURCE;
    }
    if (plan->holds)
        memcpy(copy->holds, plan->holds, nodes_of(plan));
    *out = copy;
    return ATOM_OK;
}

void part_plan_close(part_plan **plan)
{
    if (!*plan)
        return;
    atom_free((*plan)->sub_models);
    atom_free((*plan)->holds);
    atom_free(*plan);
    *plan = NULL;
}

/* --- evaluations one after the other --- */

part_slots part_plan_slots(const part_plan *plan)
{
    part_slots s = {0};
    uint64_t before = 0; /* of the ring, what the sub-model in front has */
    for (uint32_t k = 0; k < plan->n_sub_models; k++) {
        uint64_t bytes = plan->sub_models[k].resident ? 0 : plan->sub_models[k].param_bytes;
        s.ring_bytes = before + bytes > s.ring_bytes ? before + bytes : s.ring_bytes;
        s.most_bytes[k % 2] = bytes > s.most_bytes[k % 2] ? bytes : s.most_bytes[k % 2];
        s.n[k % 2] += bytes > 0;
        before = bytes;
    }
    return s;
}

bool part_slots_keep(const part_slots *slots, const part_plan *plan, uint32_t k)
{
    const part_sub_model *sub = &plan->sub_models[k];
    if (plan->in_place || sub->resident || sub->param_bytes == 0)
        return true;
    return slots->n[k % 2] == 1 &&
           sub->param_bytes + slots->most_bytes[1 - k % 2] <= slots->ring_bytes;
}

uint64_t part_plan_fetched_bytes(const part_plan *plan)
{
    const part_slots slots = part_plan_slots(plan);
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < plan->n_sub_models; k++)
        bytes += part_slots_keep(&slots, plan, k) ? 0 : plan->sub_models[k].param_bytes;
    return bytes;
}
