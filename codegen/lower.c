/*
 * Owns lowering as a whole: layout, call lists, tapes, in this order. One idea: each step needs only
 * what the one before it made. Refuses plans that do not fit the graph, and tables that lack an
 * operator.
 */
#include "codegen/layout.h"

#include "atom/base/mem.h"

static atom_status check_plan(const graph *g, const part_plan *plan)
{
    const uint64_t align = swap_block_align(g->moments);
    ATOM_TRY(part_plan_check(plan, g));
    if (plan->in_place && plan->n_sub_models != 1)
        return atom_fail(ATOM_E_USAGE, "an in-place plan has one sub-model");
    if (!graph_trains(g) && (plan->disk || plan->update_on_device || plan->ortho_on_device))
        return atom_fail(ATOM_E_USAGE, "where nothing is trained, a plan has no optimizer");
    if (plan->disk &&
        (plan->ring_blocks < 2 || plan->block_elements == 0 || plan->block_elements % align))
        return atom_fail(ATOM_E_USAGE,
                         "a plan that keeps the state on disk needs a ring of at least two blocks, "
                         "each of a multiple of %llu elements",
                         (unsigned long long)align);
    if (plan->micro_batches == 0)
        return atom_fail(ATOM_E_USAGE, "a plan needs at least one micro-batch");
    return ATOM_OK;
}

/* The largest workspace of a node: what the table asks for, or what the profile noted. */
static uint64_t workspace_bytes(const gen_layout *layout, const part_profile *profile,
                                const krn_table *table)
{
    uint64_t most = layout->out->program->workspace_bytes;
    for (uint32_t i = 0; i < layout->g->n_nodes; i++) {
        uint64_t bytes = profile && !table ? profile->nodes[i].workspace_bytes : 0;
        most = bytes > most ? bytes : most;
        for (int back = 0; table && table->workspace && back <= (int)graph_trains(layout->g);
             back++) {
            bytes = gen_node_workspace(layout->g, (int32_t)i, back, table);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static atom_status lower(const graph *g, const part_plan *plan, const part_profile *profile,
                         const krn_table *table, unsigned kinds, gen_lowered **out)
{
    atom_status st;
    gen_lowered *low = NULL;
    gen_layout layout = {.g = g,
                         .plan = plan,
                         .C = plan->micro_batches,
                         .D = plan->devices,
                         .n = plan->n_sub_models};
    ATOM_TRY_CLEAN(check_plan(g, plan));
    if (table)
        ATOM_TRY_CLEAN(gen_supports(g, table));
    if (table && plan->update_on_device && !table->update)
        return atom_fail(ATOM_E_UNSUPPORTED, "the plan updates on the device, %s does not",
                         table->backend);
    if (table && plan->ortho_on_device && !table->ortho)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "the plan makes Muon's products on the device, %s "
                         "does not",
                         table->backend);
    low = atom_alloc(1, sizeof *low);
    if (!low)
        return atom_fail_memory("a lowered plan", sizeof *low);
    layout.out = low;
    low->n_devices = plan->devices;
    layout.wire_bytes_each = atom_dtype_bytes(g->dtype);
    layout.most = (layout.C + layout.D - 1) / layout.D;
    ATOM_TRY_CLEAN(gen_layout_fill(&layout));
    ATOM_TRY_CLEAN(gen_calls_build(&layout));
    layout.workspace.bytes = workspace_bytes(&layout, profile, table);
    gen_layout_place(&layout);
    ATOM_TRY_CLEAN(gen_tapes_build(&layout, profile, kinds));
    *out = low;
    low = NULL;
cleanup:
    atom_free(layout.grad_offset);
    atom_free(layout.extras);
    atom_free(layout.visits);
    gen_lowered_close(&low);
    return st;
}

atom_status gen_lower(const graph *g, const part_plan *plan, const part_profile *profile,
                      const krn_table *table, gen_lowered **out)
{
    return lower(g, plan, profile, table, (1u << SWAP_TAPE_N) - 1, out);
}

atom_status gen_lower_steps(const graph *g, const part_plan *plan, const part_profile *profile,
                            const krn_table *table, gen_lowered **out)
{
    return lower(g, plan, profile, table,
                 1u << SWAP_TAPE_TRAIN | 1u << SWAP_TAPE_AGAIN | 1u << SWAP_TAPE_EVAL_NEXT, out);
}

atom_status gen_lower_memory(const graph *g, const part_plan *plan, const part_profile *profile,
                             const krn_table *table, gen_lowered **out)
{
    return lower(g, plan, profile, table, 0, out);
}

void gen_lowered_close(gen_lowered **lowered)
{
    gen_lowered *low = *lowered;
    if (!low)
        return;
    for (int t = 0; t < SWAP_TAPE_N; t++)
        swap_tape_close(&low->tapes[t]);
    swap_program_close(&low->program);
    atom_free(low->params);
    atom_free(low->blocks);
    atom_free(low->regions);
    atom_free(low);
    *lowered = NULL;
}

swap_exec_config gen_exec_config(const gen_lowered *low)
{
    return (swap_exec_config){.program = low->program,
                              .n_devices = low->n_devices,
                              .params = low->params,
                              .n_params = low->n_params,
                              .layout = low->layout,
                              .device_bytes = low->device_bytes,
                              .host_bytes = low->host_bytes,
                              .workspace = low->workspace,
                              .instrs_max = low->instrs_max};
}
