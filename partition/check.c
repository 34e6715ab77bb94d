/*
 * Owns the proof that a plan is legal for a graph. One idea: everything that can be recomputed from
 * the graph is recomputed here, by loops over parameters and tensors and without a line of the
 * search's code. Refuses to judge speed or memory: the null device does that.
 */
#include "partition/plan.h"

#include <math.h>
#include <string.h>

/* Does a node of [first, last) use the parameter? */
static bool used_in(const graph *g, int32_t param, int32_t first, int32_t last)
{
    for (int32_t i = first; i < last; i++)
        for (int p = 0; p < g->nodes[i].n_params; p++)
            if (g->nodes[i].params[p] == param)
                return true;
    return false;
}

static uint64_t param_bytes(const graph *g, const part_sub_model *s)
{
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < g->n_params; p++) {
        const graph_param *param = &g->params[p];
        uint64_t room = (param->elements + GRAPH_PARAM_ALIGN - 1) / GRAPH_PARAM_ALIGN;
        /* First and last user bound the search; a shared parameter may skip what lies between. */
        if (param->last_node >= s->first_node && param->first_node < s->last_node &&
            used_in(g, (int32_t)p, s->first_node, s->last_node))
            bytes += room * GRAPH_PARAM_ALIGN * atom_dtype_bytes(g->dtype);
    }
    return bytes;
}

/* What is said of where optimizers run and what is kept where. */
static atom_status check_places(const part_plan *plan)
{
    if (plan->optimizer == GRAPH_MUON && plan->update_on_device)
        return atom_fail(ATOM_E_USAGE,
                         "the plan is for optimizer: muon, which updates on the host, but it "
                         "keeps the state on the device; make a new plan");
    if (plan->ortho_on_device && (plan->optimizer != GRAPH_MUON || plan->in_place || !plan->clip))
        return atom_fail(
            ATOM_E_USAGE,
            "the plan makes Muon's products on the device; that takes optimizer: muon, "
            "clipping, and weights that are not used in place");
    if (plan->over_boundaries && !plan->disk)
        return atom_fail(ATOM_E_USAGE, "the plan has over_boundaries, which only a plan with the "
                                       "optimizer's state on disk has");
    return ATOM_OK;
}

atom_status part_plan_check_alone(const part_plan *plan)
{
    ATOM_TRY(check_places(plan));
    if (plan->micro_batches < 1 || plan->n_sub_models < 1)
        return atom_fail(ATOM_E_USAGE, "the plan has %u micro-batches and %u sub-models",
                         plan->micro_batches, plan->n_sub_models);
    if (plan->devices < 1 || plan->devices > PART_DEVICES_MAX ||
        plan->devices > plan->micro_batches)
        return atom_fail(ATOM_E_USAGE,
                         "the plan shares %u micro-batches between %u devices; that takes at most "
                         "%d devices, and a micro-batch for each",
                         plan->micro_batches, plan->devices, PART_DEVICES_MAX);
    if (plan->devices > 1 && (plan->in_place || plan->update_on_device))
        return atom_fail(ATOM_E_USAGE,
                         "the plan is for %u devices, which cannot compute in place "
                         "or keep the optimizer's state; plan again",
                         plan->devices);
    if ((unsigned)plan->boundaries > PART_ON_HOST || (unsigned)plan->bound >= PART_BOUND_N)
        return atom_fail(ATOM_E_USAGE, "the plan has a choice that does not exist");
    if (plan->in_place && plan->n_sub_models != 1)
        return atom_fail(ATOM_E_USAGE, "the plan is in place but has %u sub-models",
                         plan->n_sub_models);
    if (plan->update_on_device &&
        (plan->n_sub_models != 1 || plan->in_place || plan->disk || !plan->clip))
        return atom_fail(ATOM_E_USAGE, "the plan updates on the device; that takes one sub-model "
                                       "that is all there, and clipping");
    if (!(plan->predicted_step_seconds >= 0) || !isfinite(plan->predicted_step_seconds) ||
        !(plan->predicted_compute_seconds >= 0) || !isfinite(plan->predicted_compute_seconds))
        return atom_fail(ATOM_E_USAGE, "the plan predicts %g s per step, %g s of them computing",
                         plan->predicted_step_seconds, plan->predicted_compute_seconds);
    if (plan->device_budget_bytes && plan->device_peak_bytes > plan->device_budget_bytes)
        return atom_fail(ATOM_E_USAGE, "the plan needs %llu bytes of its device budget of %llu",
                         (unsigned long long)plan->device_peak_bytes,
                         (unsigned long long)plan->device_budget_bytes);
    if (plan->host_budget_bytes && plan->host_peak_bytes > plan->host_budget_bytes)
        return atom_fail(ATOM_E_USAGE, "the plan needs %llu bytes of its host budget of %llu",
                         (unsigned long long)plan->host_peak_bytes,
                         (unsigned long long)plan->host_budget_bytes);
    return ATOM_OK;
}

static atom_status check_header(const part_plan *plan, const graph *g)
{
    bool shape = strcmp(plan->model, g->name) == 0 && plan->dtype == g->dtype &&
                 plan->micro_batch == g->micro_batch && plan->sequence == g->sequence;
    const uint64_t hash = graph_hash(g); /* prints all of it, and a search checks many plans */
    if (shape && plan->moments != g->moments)
        return atom_fail(ATOM_E_USAGE,
                         "the plan is for moments in %s, not in %s; make a new plan, or use "
                         "--moments-dtype %s",
                         atom_dtype_name(plan->moments), atom_dtype_name(g->moments),
                         atom_dtype_name(plan->moments));
    if (shape && plan->optimizer != g->optimizer)
        return atom_fail(ATOM_E_USAGE,
                         "the plan is for optimizer: %s, not for %s; make a new plan, or use "
                         "--optimizer %s",
                         part_optimizer_names[plan->optimizer], part_optimizer_names[g->optimizer],
                         part_optimizer_names[plan->optimizer]);
    if (shape && plan->graph_hash != hash)
        return atom_fail(
            ATOM_E_USAGE,
            "the plan is for another %s than this one (its layers, widths, vocabulary, "
            "dropout, adapters or codecs differ); plan again with this model",
            g->name);
    if (plan->graph_hash != hash || plan->dtype != g->dtype ||
        plan->micro_batch != g->micro_batch || plan->sequence != g->sequence)
        return atom_fail(
            ATOM_E_USAGE,
            "the plan is for %s in %s with micro-batches of %lld x %lld tokens, not for "
            "this %s in %s with %lld x %lld; plan again",
            plan->model, atom_dtype_name(plan->dtype), (long long)plan->micro_batch,
            (long long)plan->sequence, g->name, atom_dtype_name(g->dtype),
            (long long)g->micro_batch, (long long)g->sequence);
    return ATOM_OK;
}

static atom_status check_sub_model(const part_plan *plan, const graph *g, uint32_t k)
{
    const part_sub_model *s = &plan->sub_models[k];
    int32_t first = k ? plan->sub_models[k - 1].last_node : 0;
    if (s->first_node != first)
        return atom_fail(ATOM_E_USAGE, "sub-model %u starts at node %d, expected %d", k,
                         s->first_node, first);
    if (s->last_node <= first || s->last_node > (int32_t)g->n_nodes)
        return atom_fail(ATOM_E_USAGE, "sub-model %u covers nodes %d .. %d of %u", k, first,
                         s->last_node - 1, g->n_nodes);
    if (k && !graph_can_cut(g, first))
        return atom_fail(ATOM_E_USAGE, "the model cannot be cut in front of node %d (%s)", first,
                         g->nodes[first].name);
    if ((unsigned)s->keep > PART_KEEP_SOME)
        return atom_fail(ATOM_E_USAGE, "sub-model %u has a choice that does not exist", k);
    if (s->param_bytes != param_bytes(g, s))
        return atom_fail(ATOM_E_USAGE, "sub-model %u says %llu parameter bytes, it has %llu", k,
                         (unsigned long long)s->param_bytes, (unsigned long long)param_bytes(g, s));
    return ATOM_OK;
}

/* Does the backward of a node of the sub-model read the tensor? */
static bool read_back(const graph *g, const part_sub_model *s, int32_t tensor)
{
    for (int32_t i = s->first_node; i < s->last_node; i++) {
        const atom_op_info *info = atom_op_get(g->nodes[i].op);
        unsigned keeps = graph_node_keeps(g, i);
        if ((info->flags & ATOM_OP_LATE) || !graph_node_backward(g, i))
            continue;
        for (int j = 0; j < info->ins; j++)
            if (g->nodes[i].in[j] == tensor && (keeps & (j ? ATOM_KEEP_IN1 : ATOM_KEEP_IN0)))
                return true;
        if ((keeps & ATOM_KEEP_OUT) && g->nodes[i].out[0] == tensor)
            return true;
        for (int j = 0; j < info->saved; j++)
            if (g->nodes[i].saved[j] == tensor)
                return true;
    }
    return false;
}

bool part_can_hold(const graph *g, const part_sub_model *s, int32_t node)
{
    const graph_node *n = &g->nodes[node];
    const atom_op_info *info = atom_op_get(n->op);
    bool any = !(info->flags & ATOM_OP_TERMINAL) && read_back(g, s, n->out[0]);
    for (int j = 0; j < info->saved && !(info->flags & ATOM_OP_TERMINAL); j++)
        any = any || read_back(g, s, n->saved[j]);
    return any;
}

static atom_status check_holds(const part_plan *plan, const graph *g, uint32_t k)
{
    const part_sub_model *s = &plan->sub_models[k];
    bool some = s->keep == PART_KEEP_SOME, any = false;
    if (some && (k + 1 == plan->n_sub_models || !plan->holds))
        return atom_fail(ATOM_E_USAGE, "sub-model %u keeps some of its nodes, but %s", k,
                         plan->holds ? "the last one keeps nothing" : "none is named");
    for (int32_t i = s->first_node; plan->holds && i < s->last_node; i++) {
        if (plan->holds[i] > PART_HOLD_HOST || (plan->holds[i] && !some))
            return atom_fail(ATOM_E_USAGE, "node %d is kept in a way that does not exist", i);
        if (plan->holds[i] && !part_can_hold(g, s, i))
            return atom_fail(ATOM_E_USAGE,
                             "sub-model %u keeps node %d (%s), of which its backward reads nothing",
                             k, i, g->nodes[i].name);
        any |= plan->holds[i] != PART_AGAIN;
    }
    if (some && !any)
        return atom_fail(ATOM_E_USAGE, "sub-model %u keeps some of its nodes, but none is named",
                         k);
    return ATOM_OK;
}

static atom_status check_totals(const part_plan *plan, const graph *g)
{
    uint64_t cut_bytes = 0;
    for (uint32_t k = 1; k < plan->n_sub_models; k++)
        cut_bytes += graph_boundary_bytes(g, plan->sub_models[k].first_node);
    if (cut_bytes != plan->cut_bytes)
        return atom_fail(ATOM_E_USAGE, "the plan says %llu bytes are cut, they are %llu",
                         (unsigned long long)plan->cut_bytes, (unsigned long long)cut_bytes);
    return ATOM_OK;
}

atom_status part_plan_check(const part_plan *plan, const graph *g)
{
    ATOM_TRY(check_header(plan, g));
    ATOM_TRY(part_plan_check_alone(plan));
    for (uint32_t k = 0; k < plan->n_sub_models; k++)
        ATOM_TRY(check_sub_model(plan, g, k));
    int32_t end = plan->sub_models[plan->n_sub_models - 1].last_node;
    if (end != (int32_t)g->n_nodes)
        return atom_fail(ATOM_E_USAGE, "the plan ends at node %d, the graph has %u nodes", end - 1,
                         g->n_nodes);
    for (uint32_t k = 0; k < plan->n_sub_models; k++)
        ATOM_TRY(check_holds(plan, g, k));
    return check_totals(plan, g);
}
