/*
 * Owns the opening of a model that is only measured. One idea: forward alone is one sub-model where
 * it lies, or a plan that swaps, and both give the same losses; nothing is trained, so what is in host
 * memory is the wire copy, into which the files are read. Refuses to change the model.
 */
#include "atom/generate/evaluator.h"

#include "atom/base/log.h"
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

enum { PASS_TOKENS = 32768, PASS_MOST = 64 };

uint32_t eval_pass_most(double hide_tokens, uint64_t each, uint64_t micro_batches)
{
    uint64_t hide = hide_tokens < PASS_TOKENS ? (uint64_t)hide_tokens : PASS_TOKENS;
    uint64_t n = (hide + each - 1) / each, room = PASS_TOKENS / each;
    n = n < room ? n : room;
    n = n < PASS_MOST ? n : PASS_MOST;
    n = n < micro_batches ? n : micro_batches;
    return n > 1 ? (uint32_t)n : 1;
}

/*
 * How many tokens hide the fetch of any sub-model. Of a bf16 parameter it takes 2 / h2d_bytes_per_second,
 * and computing takes 2 / flops_bf16 for each token; no card in presets/devices needs more than 18,300
 * tokens, whatever its kernels reach of its peak, and no processor computes more than CPU_FLOPS. A longer
 * pass would only say less often how far it is.
 */
static double hide_tokens(const eval_model *e)
{
    static const double CPU_FLOPS = 4e12;
    return e->bench->card < 0 ? CPU_FLOPS / e->profile->device.h2d_bytes_per_second : PASS_TOKENS;
}

/* Of the host's memory a plan takes that of the CPU's device, too. */
static bool host_holds(const eval_model *e, const part_plan *plan)
{
    uint64_t arena = e->bench->card < 0 ? plan->device_peak_bytes : 0;
    return plan->host_peak_bytes + arena <= plan_host_bytes();
}

/* What the link brings for each micro-batch, once the first pass is over: weights, and boundaries that lie
 * on the host. */
static double brought_bytes(const part_plan *plan)
{
    return (double)part_plan_fetched_bytes(plan) / plan->micro_batches +
           (double)(plan->boundaries == PART_ON_HOST ? plan->cut_bytes : 0);
}

bool eval_plan_is_better(const part_plan *plan, const part_plan *than)
{
    static const double MUCH = 1.02;
    double a = part_plan_seconds(plan) / plan->micro_batches;
    double b = part_plan_seconds(than) / than->micro_batches;
    return brought_bytes(plan) < brought_bytes(than) ? a <= b * MUCH : a * MUCH < b;
}

/* One plan for one micro-batch at a time; then those for as many in a pass as memory allows, half of
 * that, and so on. */
static atom_status choose_plan(eval_model *e, plan_request *search, uint64_t micro_batches)
{
    const graph *g = e->bench->g;
    const krn_table *table = e->bench->table;
    const uint64_t each = (uint64_t)(g->micro_batch * g->sequence);
    search->micro_batches = 1;
    ATOM_TRY(plan_search(g, e->profile, table, search, &e->plan, NULL));
    if (part_plan_fetched_bytes(e->plan) == 0)
        return ATOM_OK;
    for (uint32_t n = eval_pass_most(hide_tokens(e), each, micro_batches); n > 1; n = (n + 1) / 2) {
        part_plan *several = NULL, *best = e->plan;
        search->micro_batches = n;
        atom_status st = plan_search(g, e->profile, table, search, &several, NULL);
        if (st == ATOM_E_RESOURCE)
            continue;
        ATOM_TRY(st);
        bool better = host_holds(e, several) && eval_plan_is_better(several, best);
        e->plan = better ? several : best;
        part_plan_close(better ? &best : &several);
    }
    return ATOM_OK;
}

atom_status eval_model_load(eval_model *e, uint64_t device_memory, bool apart,
                            uint64_t micro_batches)
{
    part_device device = plan_device_guess(e->bench);
    plan_request search = {.no_advice = true, .recompute = -1};
    train_engine_config config = {
        .bench = e->bench, .execute = TRAIN_EXECUTE_INTERPRETED, .apart = apart};
    ATOM_TRY(part_profile_model(e->bench->g, &device, &e->profile));
    search.device_memory =
        plan_device_limit(e->bench, 1, device_memory, device.device_bytes, "evaluation");
    if (device_memory == 0 && device.unified)
        ATOM_TRY(plan_in_place(e));
    else
        ATOM_TRY(choose_plan(e, &search, micro_batches));
    if (e->plan->in_place && e->bench->config.link_bandwidth)
        atom_log(ATOM_LOG_WARN,
                 "link_bandwidth has no effect, because without device_memory the CPU "
                 "uses the weights where they are");
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
