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
    int32_t dtype, moments_dtype, optimizer;
    char *device;
    char *device_spec;
    uint64_t link_bandwidth;
    int64_t threads;
    file_lora_keys lora;
    char *output;
    bool json;
} profile_values;

#define AT(member) .offset = offsetof(profile_values, member)

/* clang-format off */
static const opt_spec specs[] = {
    PLAN_ROW_MODEL(.flags = OPT_REQUIRED,
                   .help = "A preset, a model directory, a GGUF file, a .pt2 of torch.export or a "
                           "config.json."),
    {.name = "data", .type = OPT_TEXT, AT(data), .value = "DIR",
     .help = "For presets: use the vocabulary of this data set, as 'atom train' does."},
    PLAN_ROW_MICRO_BATCH_SIZE(.help = "Sequences per micro-batch."),
    PLAN_ROW_SEQUENCE_LEN(.fallback = "auto", .flags = OPT_AUTO,
        .help = "Tokens per sequence. auto: the most that the model supports, but at most 2048."),
    PLAN_ROW_DTYPE(.help = "auto: bf16 if the device supports it natively, else fp32."),
    PLAN_ROW_MOMENTS_DTYPE(.help = "The type of Adam's moments, as in 'atom train'."),
    PLAN_ROW_OPTIMIZER(.help = "What trains the hidden matrices, as in 'atom train'."),
    PLAN_ROW_DEVICE(.help = "The device to measure."),
    PLAN_ROW_DEVICE_SPEC(.help = "Instead of measuring, calculate the profile from the "
                                 "description of a device, which need not be in this machine: "
                                 "rtx-4090, h100 and more (a wrong name lists them all), or a "
                                 "JSON file like those in presets/devices/."),
    PLAN_ROW_LINK_BANDWIDTH(.help = "Slow copies down to this rate in each direction, as 'atom "
                                    "train' will. auto: full speed."),
    PLAN_ROW_THREADS(.help = "auto: all cores."),
    CLI_LORA_ROWS(lora),
    {.name = "output", .type = OPT_TEXT, AT(output), .value = "FILE", .letter = 'o',
     .help = "Write the profile to this file, for 'atom plan --profile FILE' and 'atom train "
             "--profile FILE'."},
    PLAN_ROW_JSON(.help = "Print the profile to stdout as one JSON object."),
};
/* clang-format on */

static const opt_command options = {
    .name = "profile",
    .summary = "measure a model's operators and the device's rates",
    .description =
        "Measures the forward and backward time of each distinct node (median), copies in both "
        "directions, alone and together, and AdamW on the host. Takes a few seconds to a minute; "
        "do not use the machine for other work meanwhile.\n"
        "Dropout is that of the model's configuration (presets: 0). 'atom train' with another "
        "--dropout refuses the profile; without --profile it measures what it needs.",
    .examples = "atom profile --model gpt2-124m --micro-batch-size 4 --sequence-len 256 -o "
                "profile.json\n"
                "# a card that this machine does not have\n"
                "atom profile --model gpt3-6.7b --device-spec rtx-4090 -o profile.json\n",
    OPT_TABLE(specs, profile_values),
};

static atom_status model_it(const profile_values *v, part_profile **out)
{
    part_device device;
    graph *g = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY(part_device_spec(v->device_spec, &device));
    atom_dtype dtype = plan_dtype_settle(v->dtype, device.flops_bf16 > 0);
    ATOM_TRY_CLEAN(cli_graph(v->model, dtype, v->micro_batch_size, v->sequence_len, &v->lora, &g));
    graph_set_moments(g, (atom_dtype)v->moments_dtype);
    graph_set_optimizer(g, (graph_optimizer)v->optimizer);
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
        .optimizer = (graph_optimizer)v->optimizer,
        .device = v->device,
        .dropout = -1,
        .trains = v->lora.r > 0,
        .lora = v->lora,
        .threads = v->threads,
        .link_bandwidth = v->link_bandwidth,
    };
    ATOM_TRY(plan_workbench_open(&config, &bench));
    st = plan_profile_measure(bench, cli_progress, NULL, out);
    cli_progress_end();
    if (st == ATOM_OK && bench->busy[0])
        atom_log(ATOM_LOG_WARN, "%s; measure again when it is idle", bench->busy);
    plan_workbench_close(&bench);
    return st;
}

/* What says how to measure has no place where nothing is measured. */
static atom_status check_spec(const profile_values *v, const opt_parsed *parsed)
{
    static const char *const unused[] = {"threads", "link_bandwidth"};
    if (!v->device_spec)
        return ATOM_OK;
    if (opt_given(&options, parsed, "device"))
        return atom_fail(ATOM_E_USAGE, "--device measures a device and --device-spec calculates "
                                       "from a description; give only one of them");
    if (v->data)
        return atom_fail(ATOM_E_USAGE,
                         "--data has no effect with --device-spec; for another vocabulary name a "
                         "config.json that has it as --model");
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
        if (opt_given(&options, parsed, unused[i]))
            return atom_fail(ATOM_E_USAGE,
                             "--%s would have no effect, because with --device-spec nothing is "
                             "measured; leave it out",
                             i == 0 ? "threads" : "link-bandwidth");
    return ATOM_OK;
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    const profile_values *v = values;
    part_profile *profile = NULL;
    char *text = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY(check_spec(v, parsed));
    if (v->output)
        ATOM_TRY_CLEAN(part_profile_check_place(v->output));
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
