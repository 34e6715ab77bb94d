/*
 * Owns what the words of the shared option rows mean. One idea: a word stands beside its value, so
 * that nothing rests on the order of a list. Refuses anything but tables.
 */
#include "atom/plan/rows.h"

#include "atom/plan/workbench.h"

const opt_choice plan_dtypes[] = {
    {"auto", PLAN_DTYPE_AUTO}, {"fp32", PLAN_DTYPE_FP32}, {"bf16", PLAN_DTYPE_BF16}, {0}};
const opt_choice plan_stored_dtypes[] = {{"fp32", ATOM_F32}, {"bf16", ATOM_BF16}, {0}};
const opt_choice plan_saved_dtypes[] = {
    {"fp32", ATOM_F32}, {"bf16", ATOM_BF16}, {"fp16", ATOM_F16}, {0}};
const opt_choice plan_optimizers[] = {{"adamw", GRAPH_ADAMW}, {"muon", GRAPH_MUON}, {0}};
const opt_choice plan_recomputes[] = {{"auto", PLAN_RECOMPUTE_FREE},
                                      {"never", PLAN_RECOMPUTE_NEVER},
                                      {"always", PLAN_RECOMPUTE_ALWAYS},
                                      {0}};
const opt_choice plan_states[] = {
    {"auto", PLAN_STATE_FREE}, {"memory", PLAN_STATE_IN_MEMORY}, {"disk", PLAN_STATE_ON_DISK}, {0}};
const opt_choice plan_updates_where[] = {
    {"auto", PLAN_UPDATES_FREE}, {"host", PLAN_UPDATES_ON_HOST}, {0}};
const opt_choice plan_devices[] = {{"auto", 0}, {"cpu", 0}, {"cuda", 0}, {0}};
const char *const plan_lora_rank_names[] = {"lora_rank", NULL};
const char *const plan_lora_target_names[] = {"lora_target", NULL};
const char *const plan_lora_rslora_names[] = {"use_rslora", NULL};
const char *const plan_lora_dora_names[] = {"use_dora", NULL};
const char *const plan_lora_save_names[] = {"modules_to_save", NULL};
const char *const plan_lora_layer_names[] = {"layers_to_transform", NULL};
