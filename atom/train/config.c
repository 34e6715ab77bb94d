/*
 * Owns the keys of `atom train`: names, defaults, ranges and their words, in one table. One idea: a
 * user of another trainer finds the names they know (docs/design/files.md#names-and-defaults), and
 * a wrong key never passes. Refuses to open anything: whether a path leads somewhere is the
 * trainer's question.
 */
#include "atom/train/config.h"

#include "atom/plan/rows.h"
#include "atom/train/ahead.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define AT(member) .offset = offsetof(train_config, member)

static const opt_choice presets[] = {{"pretrain", TRAIN_PRETRAIN}, {"sft", TRAIN_SFT}, {0}};
static const opt_choice inits[] = {{"auto", TRAIN_INIT_AUTO}, {"random", TRAIN_INIT_RANDOM}, {0}};
static const opt_choice schedulers[] = {{"constant", TRAIN_CONSTANT},
                                        {"linear", TRAIN_LINEAR},
                                        {"cosine", TRAIN_COSINE},
                                        {"wsd", TRAIN_WSD},
                                        {0}};
static const opt_choice reports[] = {
    {"none", TRAIN_REPORT_NONE}, {"tensorboard", TRAIN_REPORT_TENSORBOARD}, {0}};
static const opt_choice aheads[] = {
    {"auto", TRAIN_AHEAD_AUTO}, {"never", TRAIN_AHEAD_NEVER}, {"always", TRAIN_AHEAD_ALWAYS}, {0}};
static const opt_choice executes[] = {{"auto", TRAIN_EXECUTE_AUTO},
                                      {"generated", TRAIN_EXECUTE_GENERATED},
                                      {"interpreted", TRAIN_EXECUTE_INTERPRETED},
                                      {0}};
static const opt_choice stores[] = {{"auto", STORE_AUTO},
                                    {"io_uring", STORE_URING},
                                    {"libaio", STORE_AIO},
                                    {"threads", STORE_THREADS},
                                    {0}};
static const opt_choice packings[] = {{"auto", TRAIN_PACKING_AUTO},
                                      {"across", TRAIN_PACKING_ACROSS},
                                      {"apart", TRAIN_PACKING_APART},
                                      {0}};
static const opt_choice codecs[] = {{"none", 0},         {"int8", 0},     {"int4", 0},
                                    {"int2", 0},         {"topk:0.1", 0}, {"randomk:0.1", 0},
                                    {"bottleneck:8", 0}, {"maxout:8", 0}, {0}};
static const opt_choice resumes[] = {{"auto", 0}, {"none", 0}, {0}};

static const char *const model_names[] = {"base_model", "model_name_or_path", NULL};
static const char *const batch_names[] = {"per_device_train_batch_size", "local_batch_size",
                                          "batch_size", NULL};
static const char *const sequence_names[] = {"seq_len", "cutoff_len", "block_size",
                                             "max_seq_length", NULL};
static const char *const packing_names[] = {"sample_packing", NULL};
static const char *const step_names[] = {"steps", "max_iters", NULL};
static const char *const epoch_names[] = {"epochs", "num_epochs", NULL};
static const char *const optimizer_names[] = {"optim", NULL};
static const char *const rate_names[] = {"lr", NULL};
static const char *const scheduler_names[] = {"lr_scheduler_type", NULL};
static const char *const min_names[] = {"cosine_min_lr_ratio", "min_lr_factor", NULL};
static const char *const clip_names[] = {"grad_clip", "max_norm", NULL};
static const char *const save_dtype_names[] = {"export_dtype", "save_precision", NULL};
static const char *const keep_names[] = {"keep_latest_k", NULL};
static const char *const overwrite_names[] = {"overwrite_output_dir", NULL};
static const char *const beta1_names[] = {"beta1", NULL};
static const char *const beta2_names[] = {"beta2", NULL};

/* OPT_SHARED: a pool may decide it for those who join. That is what is trained and how; never what
 * names a path, a device, a limit or anything else of one host. */
/* clang-format off */
static const opt_spec specs[] = {
    PLAN_ROW_MODEL(.fallback = "gpt2-124m", .aliases = model_names, .group = "Model and data",
        .help = "A model directory, a GGUF file or a .pt2 of torch.export (training starts from its "
                "weights), or a preset name or a config.json (training starts from random weights)."),
    {.name = "data", .type = OPT_TEXT, AT(data), .value = "DIR", .flags = OPT_REQUIRED,
     .help = "Directory made by 'atom data prepare', with train_*.bin, val_*.bin and "
             "tokenizer.json."},
    {.name = "output_dir", .type = OPT_TEXT, AT(output_dir), .value = "DIR", .letter = 'o',
     .flags = OPT_REQUIRED, .help = "Where checkpoint-<step>/ and metrics.jsonl are written."},
    {.name = "resume_from_checkpoint", .type = OPT_TEXT, AT(resume_from_checkpoint),
     .fallback = "none", .value = "DIR|auto|none", .choices = resumes,
     .help = "Continue from this checkpoint; auto: from the newest one in output_dir, or from "
             "the beginning if there is none."},
    {.name = "init", .type = OPT_CHOICE, AT(init), .fallback = "auto", .choices = inits,
     .help = "Where the first weights come from. auto: from the model directory or file, which "
             "must contain them; for a preset or a bare config.json, random numbers. random: "
             "random numbers, even if the directory contains weights."},
    {.name = "overwrite", .type = OPT_FLAG, AT(overwrite), .aliases = overwrite_names,
     .flags = OPT_NO_PRINT,
     .help = "Use an output_dir that already contains a run, and delete that run. Cannot be "
             "combined with resume_from_checkpoint; if one of them is in CONFIG.yml and the other "
             "on the command line, the command line wins."},

    PLAN_ROW_DEVICE(.group = "Machine", .help = "The device that computes."),
    PLAN_ROW_DEVICES(.help = "Number of devices of one kind in this machine that train together: "
                             "cuda:N and the next ones. Each computes some of the micro-batches "
                             "of a step. The result is that of one device, bit for bit. The CPU "
                             "can act as several devices; device_memory then applies to each."),
    PLAN_ROW_DEVICE_MEMORY(.help = "Limit for all memory used on the device. If it is less than "
                                   "the model needs, the model is swapped. auto: the device's "
                                   "memory; on the CPU no limit."),
    PLAN_ROW_HOST_MEMORY(.help = "Limit for host memory. auto: what is available."),
    PLAN_ROW_OPTIMIZER_STATE(.help = "Where master weights and Adam moments are kept, 12 bytes "
                                     "per parameter (8 with moments_dtype bf16). auto: in memory "
                                     "if they fit, else on disk, which has room for three copies. "
                                     "On disk the state is safe after every step, even if the "
                                     "run is killed."),
    {.name = "store_dir", .type = OPT_TEXT, AT(store_dir), .value = "DIR",
     .help = "Directory for the optimizer's state on disk, best on a fast local drive. It holds the "
             "state of one run. Default: output_dir."},
    {.name = "store", .type = OPT_CHOICE, AT(store), .fallback = "auto", .choices = stores,
     .help = "How that disk is read and written. auto: the first of these that works here."},
    PLAN_ROW_LINK_BANDWIDTH(.help = "Slow copies between host and device down to this rate in "
                                    "each direction, to imitate a slower link. "
                                    "On the CPU it has an effect only with device_memory. auto: full "
                                    "speed."),
    PLAN_ROW_THREADS(.help = "Compute threads. auto: all cores. The result does not depend on it."),
    PLAN_ROW_DTYPE(.flags = OPT_SHARED,
                   .help = "Type of activations, of matrix products and of the weights that are "
                           "sent to the device; master weights are always fp32. auto: bf16 if "
                           "the device supports it natively, else fp32."),

    PLAN_ROW_MICRO_BATCH_SIZE(.aliases = batch_names, .group = "Batch and length",
        .flags = OPT_SHARED, .help = "Sequences per micro-batch."),
    PLAN_ROW_GRADIENT_ACCUMULATION_STEPS(.fallback = "8", .flags = OPT_SHARED,
        .help = "Micro-batches per step. The more there are, the more of the swapping is hidden; "
                "'atom plan' recommends a number."),
    PLAN_ROW_SEQUENCE_LEN(.fallback = "auto", .aliases = sequence_names,
        .flags = OPT_AUTO | OPT_SHARED,
        .help = "Tokens per sequence. auto: the most that the model supports, but at most 2048."),
    {.name = "packing", .type = OPT_CHOICE, AT(packing), .fallback = "auto", .choices = packings,
     .aliases = packing_names,
     .flags = OPT_SHARED,
     .help = "Several documents follow each other in a sequence. across: attention also sees the "
             "documents before, as is usual when a model is trained from scratch. apart: each "
             "document sees only itself, and its positions count from its own start. auto: apart "
             "with preset sft, else across."},
    {.name = "max_steps", .type = OPT_INT, AT(max_steps), .fallback = "1000", .min = 1, .max = 1e9,
     .aliases = step_names, .flags = OPT_SHARED, .help = "Steps to train; steps count from 1."},
    {.name = "num_train_epochs", .type = OPT_NUMBER, AT(num_train_epochs), .fallback = "0",
     .min = 0, .max = 1e6, .aliases = epoch_names,
     .help = "Passes over the training data, instead of max_steps; rounded down to whole steps. "
             "May be a fraction. 0: max_steps decides."},

    {.name = "preset", .type = OPT_CHOICE, AT(preset), .fallback = "pretrain", .choices = presets,
     .group = "Optimizer",
     .flags = OPT_SHARED,
     .help = "A set of defaults. sft is for fine-tuning a trained model on chats: learning_rate "
             "2e-5, weight_decay 0, adam_beta2 0.999, warmup 3 %."},
    PLAN_ROW_OPTIMIZER(.flags = OPT_SHARED, .aliases = optimizer_names,
        .help = "What trains the weights of hidden linear layers. muon makes the step of each "
                "matrix orthogonal (q, k, v, gate and up are separate matrices) and scales it so "
                "that you can keep AdamW's learning_rate and weight_decay. Everything else is "
                "always trained by AdamW. With LoRA, A and B of each adapter are a matrix each."),
    {.name = "muon_momentum", .type = OPT_NUMBER, AT(muon_momentum), .fallback = "0.95", .min = 0,
     .max = 1, .flags = OPT_BELOW_MAX | OPT_SHARED,
     .help = "With optimizer muon: its Nesterov momentum."},
    {.name = "learning_rate", .type = OPT_NUMBER, AT(learning_rate), .fallback = "3e-4", .min = 0,
     .max = 10, .aliases = rate_names, .flags = OPT_SHARED, .help = "Peak learning rate."},
    {.name = "lr_scheduler", .type = OPT_CHOICE, AT(lr_scheduler), .fallback = "cosine",
     .choices = schedulers, .aliases = scheduler_names,
     .flags = OPT_SHARED,
     .help = "How the learning rate changes after warmup. wsd: first constant, then decay."},
    {.name = "min_lr_ratio", .type = OPT_NUMBER, AT(min_lr_ratio), .fallback = "auto", .min = 0,
     .max = 1, .flags = OPT_AUTO | OPT_SHARED, .aliases = min_names,
     .help = "The learning rate at the end, as a fraction of learning_rate. auto: 0.1 for "
             "cosine, 0 for linear and wsd. The last step has exactly this rate, so with 0 it changes "
             "nothing."},
    {.name = "decay_ratio", .type = OPT_NUMBER, AT(decay_ratio), .fallback = "0.2", .min = 0,
     .max = 1,
     .flags = OPT_SHARED,
     .help = "With wsd: the last part of max_steps, in which the learning rate falls linearly. "
             "Before that it is constant, so a run can be made longer."},
    {.name = "warmup_steps", .type = OPT_INT, AT(warmup_steps), .fallback = "auto", .min = 0,
     .max = 1e9, .flags = OPT_AUTO | OPT_SHARED,
     .help = "Steps of linear warmup, the first at learning_rate / warmup_steps. auto: 2 % of "
             "max_steps, 3 % with preset sft."},
    {.name = "weight_decay", .type = OPT_NUMBER, AT(weight_decay), .fallback = "0.1", .min = 0,
     .max = 10, .flags = OPT_SHARED,
     .help = "Decoupled weight decay, for tensors with two or more dimensions."},
    {.name = "adam_beta1", .type = OPT_NUMBER, AT(adam_beta1), .fallback = "0.9", .min = 0,
     .max = 1, .flags = OPT_BELOW_MAX | OPT_SHARED, .aliases = beta1_names,
     .help = "Decay of the first moment."},
    {.name = "adam_beta2", .type = OPT_NUMBER, AT(adam_beta2), .fallback = "0.95", .min = 0,
     .max = 1, .flags = OPT_BELOW_MAX | OPT_SHARED, .aliases = beta2_names,
     .help = "Decay of the second moment."},
    {.name = "adam_epsilon", .type = OPT_NUMBER, AT(adam_epsilon), .fallback = "1e-8", .min = 0,
     .max = 1, .flags = OPT_ABOVE_MIN | OPT_SHARED,
     .help = "Added to the square root of the second moment."},
    PLAN_ROW_MOMENTS_DTYPE(.help = "Type of Adam's two moments. bf16 saves 4 bytes per "
                                   "parameter, in host memory or on disk and in checkpoints. "
                                   "They are rounded at random, by the seed, so runs still "
                                   "repeat bit for bit."),
    {.name = "max_grad_norm", .type = OPT_NUMBER, AT(max_grad_norm), .fallback = "1.0", .min = 0,
     .max = 1e9, .aliases = clip_names,
     .flags = OPT_SHARED,
     .help = "Gradients with a larger global norm are clipped to this. 0: no clipping."},
    {.name = "dropout", .type = OPT_NUMBER, AT(dropout), .fallback = "auto", .min = 0, .max = 1,
     .flags = OPT_AUTO | OPT_BELOW_MAX | OPT_SHARED,
     .help = "Dropout probability everywhere in the model. auto: what its configuration says "
             "(presets: 0)."},
    PLAN_ROWS_LORA(lora,
        "Train LoRA adapters of this rank, and leave the model itself as it is. Checkpoints are "
        "PEFT directories. auto: no adapters, the whole model is trained.",
        "Linear layers that get an adapter: the ends of their names, separated by commas "
        "(q_proj,v_proj), or a regular expression for whole names. all-linear: all except the "
        "head."),
    {.name = "adapter", .type = OPT_TEXT, AT(adapter), .value = "DIR",
     .help = "A PEFT directory with a LoRA adapter for the model; training continues from it."},
    {.name = "compress_boundaries", .type = OPT_TEXT, AT(compress_boundaries), .value = "CODEC",
     .choices = codecs,
     .help = "Train as if the model were cut into stages on separate hosts: after the blocks "
             "that 'at' names, activations and their gradients pass through this codec. "
             "topk:SHARE and randomk:SHARE send that share of the values. They leave no trace in "
             "the saved weights. bottleneck:RATIO and maxout:K are learned and become part of "
             "the model: bottleneck is two linear layers, between which the values are RATIO "
             "times narrower; maxout sends the largest of every K values, between two layer "
             "norms, and a linear layer widens them again. A resumed run keeps its codec; none "
             "removes it, except bottleneck and maxout."},
    {.name = "at", .type = OPT_TEXT, AT(at), .value = "BLOCKS",
     .flags = OPT_COMMAS,
     .help = "Where compress_boundaries applies: numbers of blocks, separated by commas. 2,4: "
             "after the second block and after the fourth."},
    PLAN_ROW_SEED(.flags = OPT_SHARED, .help = "Determines the initial weights, the order of the "
                                               "data, and dropout."),

    {.name = "logging_steps", .type = OPT_INT, AT(logging_steps), .fallback = "1", .min = 1,
     .max = 1e9, .group = "Log, evaluate, save",
     .help = "Print a line every so many steps; on a terminal one line is kept up to date "
             "instead. metrics.jsonl has all steps."},
    {.name = "report_to", .type = OPT_CHOICE, AT(report_to), .fallback = "none", .choices = reports,
     .help = "tensorboard: also write event files to output_dir, for `tensorboard --logdir`."},
    {.name = "eval_steps", .type = OPT_INT, AT(eval_steps), .fallback = "100", .min = 0, .max = 1e9,
     .help = "Compute the validation loss every so many steps and at the end. 0: never."},
    {.name = "eval_batches", .type = OPT_INT, AT(eval_batches), .fallback = "20", .min = 1,
     .max = 1e9, .help = "Micro-batches per validation."},
    {.name = "save_steps", .type = OPT_INT, AT(save_steps), .fallback = "500", .min = 0, .max = 1e9,
     .help = "Save a checkpoint every so many steps. 0: only at the end. The last step is always "
             "saved."},
    {.name = "save_total_limit", .type = OPT_INT, AT(save_total_limit), .fallback = "3", .min = 0,
     .max = 1e6, .aliases = keep_names,
     .help = "Keep this many of the run's newest checkpoints and delete older ones. 0: keep all."},
    {.name = "save_rate", .type = OPT_RATE, AT(save_rate), .fallback = "auto", .min = 1 << 20,
     .max = 0x1p62, .flags = OPT_AUTO,
     .help = "Limit for how fast a checkpoint is written while training goes on and no step "
             "waits for it. auto: no limit; with the optimizer's state on disk, what that leaves "
             "of the disk's speed."},
    {.name = "save_dtype", .type = OPT_CHOICE, AT(save_dtype), .fallback = "fp32",
     .choices = plan_stored_dtypes, .aliases = save_dtype_names,
     .help = "Type of the weights in checkpoints. bf16: half the size; the exact weights are "
             "saved with the moments, so resuming loses nothing. Adapters are always fp32."},

    {.name = "plan", .type = OPT_TEXT, AT(plan), .value = "FILE", .group = "Plan and execution",
     .help = "Plan made by 'atom plan'. Default: find one and cache it."},
    {.name = "profile", .type = OPT_TEXT, AT(profile), .value = "FILE",
     .help = "Profile made by 'atom profile'. Default: measure and cache it."},
    PLAN_ROW_RECOMPUTE(.help = "Whether sub-models compute their forward pass again before their "
                               "backward pass, instead of keeping activations. auto: the plan "
                               "decides."),
    PLAN_ROW_UPDATES(.help = "Where AdamW runs. auto: on a CUDA card, if it can hold the whole "
                             "model with its state and is faster; else on the host. With "
                             "optimizer: muon, whether a card may make its matrix products."),
    {.name = "update_ahead", .type = OPT_CHOICE, AT(update_ahead), .fallback = "auto",
     .choices = aheads,
     .help = "With the optimizer's state on disk: whether weights are updated during the "
             "backward pass, before the gradient's norm is known. If the gradient then has to be "
             "clipped, the step is run again; the result is the same, bit for bit. auto: if that "
             "is faster, and as long as no gradient comes near max_grad_norm."},
    {.name = "execute", .type = OPT_CHOICE, AT(execute), .fallback = "auto", .choices = executes,
     .help = "Run generated C code or the interpreter; the result is the same, bit for bit. "
             "auto: generated, if a compiler is installed."},
    {.name = "trace", .type = OPT_TEXT, AT(trace), .value = "FILE",
     .help = "Write every instruction with its stream, start and end to FILE, for Perfetto or "
             "chrome://tracing."},

    PLAN_ROW_JSON(.flags = OPT_CLI_ONLY, .group = "Output",
        .help = "At the end print a summary to stdout as one JSON object."),
    {.name = "quiet", .type = OPT_FLAG, AT(quiet), .letter = 'q', .flags = OPT_CLI_ONLY,
     .help = "No progress lines."},
    {.name = "dry_run", .type = OPT_FLAG, AT(dry_run), .letter = 'n', .flags = OPT_CLI_ONLY,
     .help = "Check everything and print the plan, but do not train."},
    {.name = "print_config", .type = OPT_FLAG, AT(print_config), .flags = OPT_CLI_ONLY,
     .help = "Print the configuration and where each value comes from, and stop."},
};
/* clang-format on */

const opt_command train_command = {
    .name = "train",
    .summary = "train a model through a memory budget",
    .description =
        "Trains on token shards with AdamW, or with Muon and AdamW. If the model does not fit in "
        "--device-memory, it is cut into sub-models that are swapped through the device while it "
        "computes; the result is the same, bit for bit. Without --plan, the machine is profiled, "
        "a plan is made, and both are cached.\n"
        "Every option can also be a key of CONFIG.yml; the command line wins. SIZE takes KiB, "
        "MiB, GiB (powers of two) and kB, MB, GB (powers of ten). The first Ctrl-C finishes the "
        "step and saves.",
    .examples = "# the whole model through 512 MiB of device memory\n"
                "atom train --data data/ -o run/ --device-memory 512MiB --max-steps 200\n"
                "# what 4-bit activations on two links between hosts would cost the model\n"
                "atom train --data data/ -o run/ --compress-boundaries int4 --at 4,8\n"
                "# continue where an earlier run stopped\n"
                "atom train config.yml --resume-from-checkpoint auto\n",
    .positional = "[CONFIG.yml]",
    .positional_max = 1,
    .config_file = true,
    OPT_TABLE(specs, train_config),
};

const char *train_config_optimizer(const train_config *config)
{
    return opt_choice_name(plan_optimizers, config->optimizer);
}

const char *train_config_scheduler(const train_config *config)
{
    return opt_choice_name(schedulers, config->lr_scheduler);
}

int64_t train_config_warmup(const train_config *config)
{
    int64_t percent = config->preset == TRAIN_SFT ? 3 : 2;
    return config->warmup_steps >= 0 ? config->warmup_steps : config->max_steps * percent / 100;
}

double train_config_min_lr_ratio(const train_config *config)
{
    if (config->min_lr_ratio >= 0)
        return config->min_lr_ratio;
    return config->lr_scheduler == TRAIN_COSINE ? 0.1 : 0;
}

typedef struct idle_key {
    bool idle; /* nothing reads it, with the others as they are */
    bool set;  /* and it is not at its default */
    const char *key, *why;
} idle_key;

/* At its default, but by a word on the command line that says more than auto or none. A file may
 * hold the defaults of all keys: --print-config prints such a file. */
static bool is_said(const opt_parsed *parsed, const char *key)
{
    int32_t row = opt_find(&train_command, key);
    const char *fallback = train_command.specs[row].fallback;
    return parsed && parsed->origin[row] == OPT_FROM_COMMAND_LINE && fallback &&
           strcmp(fallback, "auto") != 0;
}

/* parsed: NULL where nobody knows who set what. */
static atom_status check_idle(const idle_key *keys, size_t n, const opt_parsed *parsed)
{
    for (size_t i = 0; i < n; i++)
        if (keys[i].idle && (keys[i].set || is_said(parsed, keys[i].key)))
            return atom_fail(ATOM_E_USAGE, "%s would have no effect: %s", keys[i].key, keys[i].why);
    return ATOM_OK;
}

static atom_status check_effects(const train_config *c, const opt_parsed *parsed)
{
    static const char settled[] = "the plan file already decides it; make a new plan with it, or "
                                  "leave it out",
                      memory[] = "with optimizer_state memory nothing is kept on disk; leave it "
                                 "out";
    bool muon = c->optimizer == GRAPH_MUON;
    bool in_memory = c->optimizer_state == PLAN_STATE_IN_MEMORY;
    const idle_key keys[] = {
        {c->lr_scheduler == TRAIN_CONSTANT, c->min_lr_ratio >= 0, "min_lr_ratio",
         "with lr_scheduler constant the rate stays at learning_rate to the end; leave it out"},
        {c->lr_scheduler != TRAIN_WSD, fabs(c->decay_ratio - 0.2) > 1e-12, "decay_ratio",
         "only lr_scheduler wsd uses it; leave it out"},
        {c->lr_scheduler == TRAIN_WSD && !(c->decay_ratio > 0), c->min_lr_ratio >= 0,
         "min_lr_ratio",
         "with decay_ratio 0 the rate stays at learning_rate to the end; leave one of them out"},
        {c->save_steps == 0, c->save_rate > 0, "save_rate",
         "with save_steps 0 no checkpoint is written while training goes on; leave it out, or set "
         "save_steps"},
        {c->eval_steps == 0, false,
         "eval_batches", /* of a file whose eval_steps the line sets to 0 */
         "eval_steps is 0, so nothing is evaluated; leave it out, or set eval_steps"},
        {in_memory, c->store != STORE_AUTO, "store", memory},
        {in_memory, c->store_dir != NULL, "store_dir", memory},
        {in_memory, c->update_ahead != TRAIN_AHEAD_AUTO, "update_ahead", memory},
        {!(c->max_grad_norm > 0), c->update_ahead != TRAIN_AHEAD_AUTO, "update_ahead",
         "max_grad_norm is 0, so no update waits for the norm; leave it out"},
        {c->dry_run, c->trace != NULL, "trace", "a dry run makes no steps to write; leave it out"},
        {(c->lora.r > 0 || c->adapter) && c->save_dtype != ATOM_F32, true, "save_dtype",
         "adapters are always saved in fp32; leave it out"},
        {!muon, fabs(c->muon_momentum - 0.95) > 1e-12, "muon_momentum",
         "only optimizer: muon uses it; leave it out"},
        {c->plan, c->host_memory, "host_memory", settled},
        {c->plan, c->recompute >= 0, "recompute", settled},
        {c->plan, c->optimizer_state != PLAN_STATE_FREE, "optimizer_state", settled},
        {c->plan, c->updates != PLAN_UPDATES_FREE, "updates", settled},
    };
    return check_idle(keys, sizeof keys / sizeof *keys, parsed);
}

atom_status train_config_check_warmup(const train_config *c)
{
    long long warmup = c->warmup_steps, steps = c->max_steps;
    if (warmup > steps)
        return atom_fail(ATOM_E_USAGE,
                         "warmup_steps (%lld) is more than max_steps (%lld), so the learning rate "
                         "would never reach its peak; lower warmup_steps",
                         warmup, steps);
    long long decay = llround(c->decay_ratio * (double)steps);
    bool falls = c->lr_scheduler == TRAIN_LINEAR || (c->lr_scheduler == TRAIN_WSD && decay > 0);
    if (falls && steps == 1 && train_config_warmup(c) == 0 && !(train_config_min_lr_ratio(c) > 0))
        return atom_fail(ATOM_E_USAGE,
                         "with lr_scheduler %s the learning rate is 0 in the last step, which is "
                         "the only one, so nothing would be learned; use lr_scheduler constant",
                         train_config_scheduler(c));
    if (c->lr_scheduler != TRAIN_WSD || warmup <= steps - decay)
        return ATOM_OK;
    return atom_fail(ATOM_E_USAGE,
                     "with lr_scheduler wsd the learning rate falls during the last %lld of %lld "
                     "steps (decay_ratio %g), but it would still rise in some of them "
                     "(warmup_steps %lld) and then jump; lower warmup_steps or decay_ratio",
                     decay, steps, c->decay_ratio, warmup);
}

static bool resumes_a_run(const train_config *config)
{
    const char *resume = config->resume_from_checkpoint;
    return resume && strcmp(resume, "none") != 0;
}

static atom_status check(const train_config *config, const opt_parsed *parsed)
{
    ATOM_TRY(check_effects(config, parsed));
    if (config->overwrite && resumes_a_run(config))
        return atom_fail(ATOM_E_USAGE,
                         "overwrite deletes the run in output_dir, but resume_from_checkpoint (%s) "
                         "continues a run; leave out one of the two",
                         config->resume_from_checkpoint);
    if (config->devices > config->gradient_accumulation_steps)
        return atom_fail(
            ATOM_E_USAGE,
            "devices: %lld devices share the micro-batches of a step, but there %s only %lld; "
            "raise gradient_accumulation_steps to %lld or more",
            (long long)config->devices, config->gradient_accumulation_steps == 1 ? "is" : "are",
            (long long)config->gradient_accumulation_steps, (long long)config->devices);
    return config->num_train_epochs > 0 ? ATOM_OK : train_config_check_warmup(config);
}

atom_status train_config_check(const train_config *config)
{
    return check(config, NULL);
}

atom_status train_config_defaults(train_config *config)
{
    opt_parsed parsed;
    return opt_defaults(&train_command, config, &parsed);
}

/* The defaults of preset sft, where neither file nor command line say otherwise. */
static atom_status apply_preset(train_config *config, opt_parsed *parsed)
{
    static const char *const sft[][2] = {
        {"learning_rate", "2e-5"}, {"weight_decay", "0"}, {"adam_beta2", "0.999"}};
    for (size_t i = 0; config->preset == TRAIN_SFT && i < sizeof sft / sizeof *sft; i++) {
        int32_t row = opt_find(&train_command, sft[i][0]);
        if (parsed->origin[row] != OPT_FROM_DEFAULT)
            continue;
        ATOM_TRY(opt_set(&train_command, (uint32_t)row, sft[i][1], config));
        parsed->origin[row] = OPT_FROM_PRESET;
    }
    return ATOM_OK;
}

/* How long: epochs, where both are in a file; but the command line wins over a file. */
static atom_status choose_length(train_config *config, const opt_parsed *parsed)
{
    const opt_origin *origin = parsed->origin;
    bool steps = origin[opt_find(&train_command, "max_steps")] == OPT_FROM_COMMAND_LINE;
    bool epochs = origin[opt_find(&train_command, "num_train_epochs")] == OPT_FROM_COMMAND_LINE;
    if (config->num_train_epochs > 0 && steps && epochs)
        return atom_fail(
            ATOM_E_USAGE,
            "--max-steps and --num-train-epochs both say how long to train; leave one of them out");
    if (steps && !epochs)
        config->num_train_epochs = 0;
    return ATOM_OK;
}

/* Whether the old run goes or goes on: where the file says one and the command line the other, the
 * command line wins. Both in one place are left for check to refuse. */
static atom_status choose_beginning(train_config *config, opt_parsed *parsed)
{
    int32_t row = opt_find(&train_command, "resume_from_checkpoint");
    bool resume = parsed->origin[row] == OPT_FROM_COMMAND_LINE;
    bool overwrite = parsed->origin[opt_find(&train_command, "overwrite")] == OPT_FROM_COMMAND_LINE;
    if (!config->overwrite || !resumes_a_run(config) || resume == overwrite)
        return ATOM_OK;
    if (resume) {
        config->overwrite = false;
        return ATOM_OK;
    }
    parsed->origin[row] = OPT_FROM_DEFAULT;
    return opt_set(&train_command, (uint32_t)row, "none", config);
}

atom_status train_config_settle(train_config *config, opt_parsed *parsed)
{
    ATOM_TRY(apply_preset(config, parsed));
    ATOM_TRY(choose_length(config, parsed));
    ATOM_TRY(choose_beginning(config, parsed));
    return check(config, parsed);
}

atom_status train_config_parse(int argc, char **argv, train_config *config, opt_parsed *parsed)
{
    opt_parsed mine;
    parsed = parsed ? parsed : &mine;
    ATOM_TRY(opt_parse(&train_command, argc, argv, config, parsed));
    if (parsed->help)
        return ATOM_OK;
    atom_status st = train_config_settle(config, parsed);
    if (st != ATOM_OK)
        train_config_free(config);
    return st;
}

void train_config_free(train_config *config)
{
    opt_free(&train_command, config);
}
