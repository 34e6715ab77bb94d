/*
 * Owns the opening of a model that is only measured. One idea: forward alone is one sub-model where
 * it lies, or a plan that swaps, and both give the same losses; nothing is trained, so what is in host
 * memory is the wire copy, into which the files are read. Refuses to change the model.
 */
#include "atom/generate/evaluator.h"

#include "atom/plan/device.h"

atom_status eval_model_open(eval_model *e, const plan_workbench_config *config)
{
    plan_workbench_config forward = *config;
    forward.forward = true;
    ATOM_TRY(plan_workbench_open(&forward, &e->bench));
    if (!e->bench->model.has_weights)
        return atom_fail(
            ATOM_E_USAGE,
            "model '%s' has no weights to evaluate; name a checkpoint, a directory with "
            "config.json and model.safetensors",
            config->model);
    return ATOM_OK;
}

/* One sub-model, used where it lies. */
static atom_status plan_in_place(eval_model *e)
{
    const graph *g = e->bench->g;
    ATOM_TRY(part_plan_open(g, e->profile, 1, &e->plan));
    e->plan->micro_batches = 1;
    e->plan->in_place = true;
    e->plan->sub_models[0].last_node = (int32_t)g->n_nodes;
    e->plan->sub_models[0].param_bytes = g->param_extent * atom_dtype_bytes(g->dtype);
    return ATOM_OK;
}

atom_status eval_model_load(eval_model *e, uint64_t device_memory, bool apart)
{
    part_device device = plan_device_guess(e->bench);
    plan_request search = {.micro_batches = 1, .no_advice = true, .recompute = -1};
    train_engine_config config = {
        .bench = e->bench, .execute = TRAIN_EXECUTE_INTERPRETED, .apart = apart};
    ATOM_TRY(part_profile_model(e->bench->g, &device, &e->profile));
    search.device_memory =
        plan_device_limit(e->bench, 1, device_memory, device.device_bytes, "evaluation");
    if (device_memory == 0 && device.unified)
        ATOM_TRY(plan_in_place(e));
    else
        ATOM_TRY(plan_search(e->bench->g, e->profile, e->bench->table, &search, &e->plan, NULL));
    config.plan = e->plan;
    config.profile = e->profile;
    ATOM_TRY(train_engine_open(&config, &e->engine));
    file_vector weights = train_engine_weights(e->engine);
    weights.odd = &e->odd;
    return file_merged_read(&e->bench->model, e->bench->g, weights);
}

void eval_model_close(eval_model *e)
{
    train_engine_close(&e->engine);
    part_plan_close(&e->plan);
    part_profile_close(&e->profile);
    plan_workbench_close(&e->bench);
}
