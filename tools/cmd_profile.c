/*
 * atom profile: time and bytes of every kind of node of a model, and the rates of the device,
 * measured here or modelled from a description. Refuses to plan: that is atom plan, which reads
 * what this writes.
 */
#include "tools/progress.h"
#include "tools/show.h"

#include <string.h>
#include <unistd.h>

typedef struct profile_values {
    char *model;
    char *data;
    int64_t micro_batch_size;
    int64_t sequence_len;
    int32_t dtype, moments_dtype;
    char *device;
    char *device_spec;
    uint64_t link_bandwidth;
    int64_t threads;
    cli_lora lora;
    char *output;
    bool json;
} profile_values;

static const char *const dtypes[] = {"auto", "fp32", "bf16", NULL};
static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
#define AT(member) .offset = offsetof(profile_values, member)

static const opt_spec specs[] = {
    {.name = "model",
     .type = OPT_TEXT,
     AT(model),
     .value = "PRESET|DIR|FILE",
     .flags = OPT_REQUIRED,
     .help = "A preset, a model directory or a config.json."},
    {.name = "data",
     .type = OPT_TEXT,
     AT(data),
     .value = "DIR",
     .help = "For presets: take the vocabulary of this data set, as 'atom train' does."},
    {.name = "micro_batch_size",
     .type = OPT_INT,
     AT(micro_batch_size),
     .fallback = "4",
     .min = 1,
     .max = 65536,
     .help = "Sequences per micro-batch."},
    {.name = "sequence_len",
     .type = OPT_INT,
     AT(sequence_len),
     .fallback = "auto",
     .min = 1,
     .max = 1 << 20,
     .flags = OPT_AUTO,
     .help = "Tokens per sequence. auto: the model's longest, at most 2048."},
    {.name = "dtype",
     .type = OPT_CHOICE,
     AT(dtype),
     .fallback = "auto",
     .choices = dtypes,
     .help = "auto: bf16 where the device has it natively, else fp32."},
    {.name = "moments_dtype",
     .type = OPT_CHOICE,
     AT(moments_dtype),
     .fallback = "fp32",
     .choices = cli_moments_dtypes,
     .help = "What Adam's moments are kept in, as 'atom train' will."},
    {.name = "device",
     .type = OPT_TEXT,
     AT(device),
     .fallback = "auto",
     .value = "auto|cpu|cuda[:N]",
     .choices = devices,
     .help = "What to measure."},
    {.name = "device_spec",
     .type = OPT_TEXT,
     AT(device_spec),
     .value = "NAME|FILE",
     .help = "Model a device that need not be here instead: rtx-4090, gtx-1080-ti, h100, or a "
             "JSON file like those in presets/devices/."},
    {.name = "link_bandwidth",
     .type = OPT_RATE,
     AT(link_bandwidth),
     .fallback = "auto",
     .min = 1,
     .max = 0x1p62,
     .flags = OPT_AUTO,
     .help = "Throttle copies, each direction, as 'atom train' will (CPU only). auto: no "
             "throttle."},
    {.name = "threads",
     .type = OPT_INT,
     AT(threads),
     .fallback = "auto",
     .min = 1,
     .max = 1024,
     .flags = OPT_AUTO,
     .help = "auto: all cores."},
    CLI_LORA_SPECS(lora),
    {.name = "output",
     .type = OPT_TEXT,
     AT(output),
     .value = "FILE",
     .letter = 'o',
     .help = "Write the profile, for 'atom plan --profile FILE' and 'atom train --profile FILE'."},
    {.name = "json",
     .type = OPT_FLAG,
     AT(json),
     .help = "The profile as one JSON object on stdout."},
};

static const opt_command options = {
    .name = "profile",
    .summary = "time a model's operators and the device's rates",
    .description =
        "Times forward and backward of each distinct node (median), copies in both "
        "directions alone and together, and AdamW on the host. Takes seconds to a minute; "
        "keep the machine quiet meanwhile.",
    .examples = "atom profile --model gpt2-124m --micro-batch-size 4 --sequence-len 256 -o "
                "profile.json\n"
                "# a card that is not here\n"
                "atom profile --model gpt3-6.7b --device-spec rtx-4090 -o profile.json\n",
    OPT_TABLE(specs, profile_values),
};

static atom_status model_it(const profile_values *v, part_profile **out)
{
    part_device device;
    graph *g = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY(part_device_spec(v->device_spec, &device));
    atom_dtype dtype = v->dtype == TRAIN_DTYPE_FP32                            ? ATOM_F32
                       : v->dtype == TRAIN_DTYPE_BF16 || device.flops_bf16 > 0 ? ATOM_BF16
                                                                               : ATOM_F32;
    ATOM_TRY_CLEAN(cli_graph(v->model, dtype, v->micro_batch_size, v->sequence_len, &v->lora, &g));
    graph_set_moments(g, (atom_dtype)v->moments_dtype);
    st = part_profile_model(g, &device, out);
cleanup:
    graph_close(&g);
    return st;
}

static atom_status measure_it(const profile_values *v, part_profile **out)
{
    plan_workbench *bench = NULL;
    plan_vocab vocab = {0};
    atom_status st = ATOM_OK;
    ATOM_TRY(v->data ? plan_vocab_read(v->data, &vocab) : ATOM_OK);
    const plan_workbench_config config = {
        .model = v->model,
        .vocab_size = vocab.padded,
        .micro_batch = v->micro_batch_size,
        .sequence = v->sequence_len,
        .dtype = v->dtype,
        .moments = (atom_dtype)v->moments_dtype,
        .device = v->device,
        .dropout = -1,
        .trains = v->lora.r > 0,
        .lora_rank = v->lora.r,
        .lora_alpha = v->lora.alpha,
        .lora_dropout = v->lora.dropout,
        .lora_targets = v->lora.targets,
        .threads = v->threads,
        .link_bandwidth = v->link_bandwidth,
    };
    ATOM_TRY(plan_workbench_open(&config, &bench));
    st = plan_profile_measure(bench, cli_progress, NULL, out);
    cli_progress_end();
    plan_workbench_close(&bench);
    return st;
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    const profile_values *v = values;
    part_profile *profile = NULL;
    char *text = NULL;
    atom_status st = ATOM_OK;
    if (v->device_spec && opt_given(&options, parsed, "device"))
        return atom_fail(ATOM_E_USAGE, "--device measures and --device-spec models; choose one");
    ATOM_TRY_CLEAN(v->device_spec ? model_it(v, &profile) : measure_it(v, &profile));
    if (v->output)
        ATOM_TRY_CLEAN(part_profile_write(profile, v->output));
    if (v->json) {
        ATOM_TRY_CLEAN(part_profile_json(profile, &text));
        ATOM_TRY_CLEAN(cli_put_text(text, NULL));
    } else {
        show_profile(profile);
    }
cleanup:
    atom_free(text);
    part_profile_close(&profile);
    return st;
}

const cli_command cli_profile = {&options, run};
