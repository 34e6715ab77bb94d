/*
 * Rows of option tables (atom/options/options.h) that several commands have: what a model, a machine
 * and a plan are called. One idea: a name has one type, one range and one list of values, whichever
 * command it is given to; a command adds its own help, and its own default where it has one.
 *
 * A row fills the member of its name, through the AT(member) of its table:
 *
 *     PLAN_ROW_THREADS(.help = "auto: all cores."),
 */
#ifndef ATOM_PLAN_ROWS_H
#define ATOM_PLAN_ROWS_H

#include "atom/options/options.h"

/* What these words mean, in the tables of the fields' types. */
extern const opt_choice plan_dtypes[];        /* plan_dtype */
extern const opt_choice plan_stored_dtypes[]; /* atom_dtype: fp32, bf16 */
extern const opt_choice plan_saved_dtypes[];  /* atom_dtype: fp32, bf16, fp16 */
extern const opt_choice plan_optimizers[];    /* graph_optimizer: adamw, muon */
extern const opt_choice plan_recomputes[];    /* plan_recompute */
extern const opt_choice plan_states[];        /* plan_state */
extern const opt_choice plan_updates_where[]; /* plan_updates */
extern const opt_choice plan_devices[];       /* suggestions for --device */
/* Names that other trainers use. */
extern const char *const plan_lora_rank_names[], *const plan_lora_target_names[];
extern const char *const plan_lora_rslora_names[], *const plan_lora_dora_names[];
extern const char *const plan_lora_save_names[];
extern const char *const plan_lora_layer_names[];

/* --- the model ------------------------------------------------------------------------------- */

#define PLAN_ROW_SAVED_MODEL(...)                                                                  \
    {                                                                                              \
        .name = "model", .type = OPT_TEXT, AT(model), .value = "DIR", .flags = OPT_REQUIRED,       \
        __VA_ARGS__                                                                                \
    }
#define PLAN_ROW_MODEL(...)                                                                        \
    {                                                                                              \
        .name = "model", .type = OPT_TEXT, AT(model), .value = "PRESET|DIR|FILE", __VA_ARGS__      \
    }
#define PLAN_ROW_ADAPTER                                                                           \
    {                                                                                              \
        .name = "adapter", .type = OPT_TEXT, AT(adapter), .value = "DIR",                          \
        .help = "A PEFT directory with a LoRA adapter, which is merged into the model. If that "   \
                "directory names its model, you can also give it alone, as --model."               \
    }
#define PLAN_ROW_MICRO_BATCH_SIZE(...)                                                             \
    {                                                                                              \
        .name = "micro_batch_size", .type = OPT_INT, AT(micro_batch_size), .fallback = "4",        \
        .min = 1, .max = 65536, __VA_ARGS__                                                        \
    }
#define PLAN_ROW_GRADIENT_ACCUMULATION_STEPS(...)                                                  \
    {                                                                                              \
        .name = "gradient_accumulation_steps", .type = OPT_INT, AT(gradient_accumulation_steps),   \
        .min = 1, .max = 65536, __VA_ARGS__                                                        \
    }
#define PLAN_ROW_SEQUENCE_LEN(...)                                                                 \
    {                                                                                              \
        .name = "sequence_len", .type = OPT_INT, AT(sequence_len), .min = 1, .max = 1 << 20,       \
        __VA_ARGS__                                                                                \
    }
#define PLAN_ROW_DTYPE(...)                                                                        \
    {                                                                                              \
        .name = "dtype", .type = OPT_CHOICE, AT(dtype), .fallback = "auto",                        \
        .choices = plan_dtypes, __VA_ARGS__                                                        \
    }
#define PLAN_ROW_MOMENTS_DTYPE(...)                                                                \
    {                                                                                              \
        .name = "moments_dtype", .type = OPT_CHOICE, AT(moments_dtype), .fallback = "fp32",        \
        .choices = plan_stored_dtypes, __VA_ARGS__                                                 \
    }
#define PLAN_ROW_OPTIMIZER(...)                                                                    \
    {                                                                                              \
        .name = "optimizer", .type = OPT_CHOICE, AT(optimizer), .fallback = "adamw",               \
        .choices = plan_optimizers, __VA_ARGS__                                                    \
    }
/* Rows of the file_lora_keys that are the member `lora`. */
#define PLAN_ROW_LORA_TEXT_(named, member, ...)                                                    \
    {                                                                                              \
        .name = named, .type = OPT_TEXT, AT(member), .flags = OPT_SHARED | OPT_COMMAS, __VA_ARGS__ \
    }
#define PLAN_ROWS_LORA(lora, rank_help, targets_help)                                              \
    {.name = "lora_r",                                                                             \
     .type = OPT_INT,                                                                              \
     AT(lora.r),                                                                                   \
     .fallback = "auto",                                                                           \
     .min = 1,                                                                                     \
     .max = 65536,                                                                                 \
     .flags = OPT_AUTO | OPT_SHARED,                                                               \
     .aliases = plan_lora_rank_names,                                                              \
     .group = "LoRA",                                                                              \
     .help = rank_help},                                                                           \
        {.name = "lora_alpha",                                                                     \
         .type = OPT_NUMBER,                                                                       \
         AT(lora.alpha),                                                                           \
         .fallback = "auto",                                                                       \
         .min = 1e-6,                                                                              \
         .max = 1e6,                                                                               \
         .flags = OPT_AUTO | OPT_SHARED,                                                           \
         .help =                                                                                   \
             "The output of an adapter is scaled by lora_alpha / lora_r. auto: twice lora_r."},    \
        {.name = "lora_dropout",                                                                   \
         .type = OPT_NUMBER,                                                                       \
         AT(lora.dropout),                                                                         \
         .fallback = "0",                                                                          \
         .min = 0,                                                                                 \
         .max = 1,                                                                                 \
         .flags = OPT_BELOW_MAX | OPT_SHARED,                                                      \
         .help = "Dropout in front of the adapters."},                                             \
        {.name = "lora_target_modules",                                                            \
         .type = OPT_TEXT,                                                                         \
         AT(lora.targets),                                                                         \
         .fallback = "all-linear",                                                                 \
         .value = "NAMES|all-linear",                                                              \
         .aliases = plan_lora_target_names,                                                        \
         .flags = OPT_SHARED | OPT_COMMAS,                                                         \
         .help = targets_help},                                                                    \
        {.name = "lora_rslora",                                                                    \
         .type = OPT_FLAG,                                                                         \
         AT(lora.rslora),                                                                          \
         .fallback = "false",                                                                      \
         .aliases = plan_lora_rslora_names,                                                        \
         .flags = OPT_SHARED,                                                                      \
         .help = "Scale by lora_alpha / sqrt(lora_r), which suits large ranks."},                  \
        {.name = "lora_dora",                                                                      \
         .type = OPT_FLAG,                                                                         \
         AT(lora.dora),                                                                            \
         .fallback = "false",                                                                      \
         .aliases = plan_lora_dora_names,                                                          \
         .flags = OPT_SHARED,                                                                      \
         .help = "DoRA: train the length of each row of an adapted weight separately from its "    \
                 "direction."},                                                                    \
        PLAN_ROW_LORA_TEXT_("lora_modules_to_save", lora.save, .value = "NAMES",                   \
                            .aliases = plan_lora_save_names,                                       \
                            .help = "Layers that are trained completely, in addition to the "      \
                                    "adapters, by the end of their names: embed_tokens,lm_head."), \
        PLAN_ROW_LORA_TEXT_("lora_layers", lora.layers, .value = "0,2,8-15",                       \
                            .aliases = plan_lora_layer_names,                                      \
                            .help = "Only these blocks get adapters; blocks count from 0."),       \
        PLAN_ROW_LORA_TEXT_("lora_rank_pattern", lora.ranks, .value = "NAME=R,...",                \
                            .help = "Another rank for some layers: those whose names end with a "  \
                                    "name or regular expression: q_proj=64,mlp.*=8."),             \
        PLAN_ROW_LORA_TEXT_("lora_alpha_pattern", lora.alphas, .value = "NAME=ALPHA,...",          \
                            .help = "Another lora_alpha for some layers, in the same way.")

/* --- the machine ----------------------------------------------------------------------------- */

#define PLAN_ROW_DEVICE(...)                                                                       \
    {                                                                                              \
        .name = "device", .type = OPT_TEXT, AT(device), .fallback = "auto",                        \
        .value = "auto|cpu|cuda[:N]", .choices = plan_devices, __VA_ARGS__                         \
    }
#define PLAN_ROW_DEVICES(...)                                                                      \
    {                                                                                              \
        .name = "devices", .type = OPT_INT, AT(devices), .fallback = "1", .min = 1, .max = 8,      \
        __VA_ARGS__                                                                                \
    }
#define PLAN_ROW_DEVICE_SPEC(...)                                                                  \
    {                                                                                              \
        .name = "device_spec", .type = OPT_TEXT, AT(device_spec), .value = "NAME|FILE",            \
        __VA_ARGS__                                                                                \
    }
#define PLAN_ROW_AUTO_(named, kind, ...)                                                           \
    {                                                                                              \
        .name = #named, .type = kind, AT(named), .fallback = "auto", .min = 1, .flags = OPT_AUTO,  \
        __VA_ARGS__                                                                                \
    }
#define PLAN_ROW_DEVICE_MEMORY(...)                                                                \
    PLAN_ROW_AUTO_(device_memory, OPT_SIZE, .max = 0x1p62, __VA_ARGS__)
#define PLAN_ROW_HOST_MEMORY(...) PLAN_ROW_AUTO_(host_memory, OPT_SIZE, .max = 0x1p62, __VA_ARGS__)
#define PLAN_ROW_LINK_BANDWIDTH(...)                                                               \
    {                                                                                              \
        .name = "link_bandwidth", .type = OPT_RATE, AT(link_bandwidth), .fallback = "auto",        \
        .min = 1 << 20, .max = 0x1p62, .flags = OPT_AUTO, __VA_ARGS__                              \
    }
#define PLAN_ROW_THREADS(...) PLAN_ROW_AUTO_(threads, OPT_INT, .max = 1024, __VA_ARGS__)

/* --- the plan -------------------------------------------------------------------------------- */

#define PLAN_ROW_CHOICE_(named, table, ...)                                                        \
    {                                                                                              \
        .name = #named, .type = OPT_CHOICE, AT(named), .fallback = "auto", .choices = table,       \
        __VA_ARGS__                                                                                \
    }
#define PLAN_ROW_OPTIMIZER_STATE(...) PLAN_ROW_CHOICE_(optimizer_state, plan_states, __VA_ARGS__)
#define PLAN_ROW_RECOMPUTE(...) PLAN_ROW_CHOICE_(recompute, plan_recomputes, __VA_ARGS__)
#define PLAN_ROW_UPDATES(...) PLAN_ROW_CHOICE_(updates, plan_updates_where, __VA_ARGS__)

/* --- what else several commands have --------------------------------------------------------- */

#define PLAN_ROW_SEED(...)                                                                         \
    {                                                                                              \
        .name = "seed", .type = OPT_INT, AT(seed), .fallback = "42", .min = 0, .max = 0x1p53,      \
        __VA_ARGS__                                                                                \
    }
#define PLAN_ROW_MAX_SHARD_SIZE(...)                                                               \
    {                                                                                              \
        .name = "max_shard_size", .type = OPT_SIZE, AT(max_shard_size), .fallback = "5GB",         \
        .min = 1, .max = 0x1p62, __VA_ARGS__                                                       \
    }
#define PLAN_ROW_JSON(...)                                                                         \
    {                                                                                              \
        .name = "json", .type = OPT_FLAG, AT(json), __VA_ARGS__                                    \
    }

#endif
