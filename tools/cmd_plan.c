/*
 * atom plan: the best plan for a model on a device, for people or as JSON. One idea: a plan needs a
 * graph and a profile, and both may come from a file, from this machine, or from a description of a
 * machine that is not here. Refuses to train.
 */
#include "tools/pool_plan.h"
#include "tools/progress.h"
#include "tools/show.h"
#include "tools/what_if.h"

#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

typedef struct plan_values {
    char *profile;
    char *model;
    char *device_spec;
    int64_t micro_batch_size;
    int64_t sequence_len;
    int32_t dtype, moments_dtype, optimizer;
    int64_t devices;
    uint64_t device_memory, host_memory;
    int32_t optimizer_state;
    char *store_dir;
    int64_t gradient_accumulation_steps;
    int32_t recompute, updates;
    bool clip;
    bool what_if;
    file_lora_keys lora;
    char *output;
    char *pool, *picture;
    bool json;
} plan_values;

#define AT(member) .offset = offsetof(plan_values, member)

/* clang-format off */
static const opt_spec specs[] = {
    {.name = "profile", .type = OPT_TEXT, AT(profile), .value = "FILE", .group = "What and where",
     .help = "A profile made by 'atom profile'; it also decides model, device, dtype and lengths."},
    {.name = "pool", .type = OPT_TEXT, AT(pool), .value = "FILE",
     .help = "With --model: a YAML file that describes hosts and the links between them. Says "
             "which way of training together is best, what limits it, and what one more host or "
             "faster connections would gain."},
    PLAN_ROW_MODEL(.help = "Without --profile: a preset, a model directory, a GGUF file, a .pt2 of "
                         "torch.export or a config.json."),
    PLAN_ROW_DEVICE_SPEC(.help = "With --model: plan for a described device, which need not be "
                                 "in this machine: rtx-4090, h100 and more (a wrong name lists "
                                 "them all), or a JSON file like those in presets/devices/. "
                                 "Default: this machine, measured once and cached."),
    PLAN_ROW_MICRO_BATCH_SIZE(.help = "With --model: sequences per micro-batch."),
    PLAN_ROW_SEQUENCE_LEN(.fallback = "auto", .flags = OPT_AUTO,
        .help = "With --model: tokens per sequence. auto: the most that the model supports, but "
                "at most 2048."),
    PLAN_ROW_DTYPE(.help = "With --model. auto: bf16 if the device supports it natively, else "
                           "fp32."),
    PLAN_ROW_MOMENTS_DTYPE(.help = "With --model: the type of Adam's moments. bf16 saves 4 bytes "
                                   "per parameter."),
    PLAN_ROW_OPTIMIZER(.help = "With --model: what trains the hidden matrices, as in 'atom "
                               "train'."),
    PLAN_ROW_DEVICES(.help = "Number of such devices in one machine; they share the "
                             "micro-batches of a step."),
    PLAN_ROW_DEVICE_MEMORY(.group = "Limits",
        .help = "Limit for all memory used on the device (on each, if there are several). auto: "
                "all of its memory; on the CPU no limit, so nothing is swapped."),
    PLAN_ROW_HOST_MEMORY(.help = "Limit for host memory. auto: what the device's host has."),
    PLAN_ROW_OPTIMIZER_STATE(.help = "Where master weights and Adam moments are kept. auto: in "
                                     "memory if they fit, else on disk."),
    {.name = "store_dir", .type = OPT_TEXT, AT(store_dir), .value = "DIR",
     .help = "Measure the disk of this directory, for a state on disk. Without it an ordinary "
             "NVMe drive is assumed."},
    PLAN_ROW_GRADIENT_ACCUMULATION_STEPS(.fallback = "auto", .flags = OPT_AUTO,
        .help = "Micro-batches per step. auto: the recommended number."),
    PLAN_ROW_RECOMPUTE(.help = "Whether sub-models compute their forward pass again before their "
                               "backward pass. auto: whichever is faster."),
    PLAN_ROW_UPDATES(.help = "Where AdamW runs, as in 'atom train'. auto: on the card, if that holds the "
                             "whole state. Pools need it on the host."),
    {.name = "clip", .type = OPT_FLAG, AT(clip), .fallback = "true",
     .help = "Assume that gradients will be clipped, so that updates wait for the norm; use "
             "--no-clip if you train with max_grad_norm 0."},
    CLI_LORA_ROWS(lora),
    {.name = "what_if", .type = OPT_FLAG, AT(what_if), .fallback = "false", .group = "Output",
     .help = "Print one screen instead: whether it fits, predicted tokens/s, what limits it, and "
             "what one change (micro-batches, bf16 moments, optimizer, memory, disk) would gain; "
             "each change is planned."},
    {.name = "picture", .type = OPT_TEXT, AT(picture), .value = "FILE.svg",
     .help = "With --pool: also draw the hosts, the links between them, and stages."},
    {.name = "output", .type = OPT_TEXT, AT(output), .value = "FILE", .letter = 'o',
     .help = "Write the plan to this file, for 'atom train --plan FILE'."},
    PLAN_ROW_JSON(.help = "Print the plan to stdout as one JSON object."),
};
/* clang-format on */

static const opt_command options = {
    .name = "plan",
    .summary = "cut a model so that it fits, and predict the step time",
    .description =
        "Prints the sub-models, the memory map, the predicted step time, what limits it, the "
        "recommended number of micro-batches and a timeline of one step. If nothing fits, it "
        "says how many bytes are missing (exit code 4).",
    .examples = "# will it fit my card?\n"
                "atom plan --model gpt2-1558m --device-spec rtx-4090 --device-memory 8GiB\n"
                "# this machine, from a measured profile\n"
                "atom plan --profile profile.json --device-memory 512MiB -o plan.json\n"
                "# what would one change gain?\n"
                "atom plan --model qwen2.5-7b --device-spec rtx-4090 --host-memory 64GiB "
                "--what-if\n"
                "# four friends with cards and home connections, described in pool.yml:\n"
                "#   hosts:\n"
                "#     - {name: friends, device: rtx-4090, host_memory: 64GiB, link: "
                "home-100-20, count: 4}\n"
                "atom plan --model qwen2.5-1.5b --pool pool.yml --picture pool.svg\n",
    OPT_TABLE(specs, plan_values),
};

/* A profile of this machine, measured or from the cache. */
static atom_status measure(const plan_values *v, graph **g, part_profile **profile)
{
    plan_workbench *bench = NULL;
    bool cached = false;
    const plan_workbench_config config = {
        .model = v->model,
        .micro_batch = v->micro_batch_size,
        .sequence = v->sequence_len,
        .dtype = v->dtype,
        .moments = (atom_dtype)v->moments_dtype,
        .optimizer = (graph_optimizer)v->optimizer,
        .device = "cpu",
        .dropout = -1,
        .trains = v->lora.r > 0,
        .lora = v->lora,
        .threads = -1,
    };
    atom_status st = ATOM_OK;
    ATOM_TRY(plan_workbench_open(&config, &bench));
    st = plan_profile_get(bench, NULL, cli_progress, NULL, profile, &cached);
    cli_progress_end();
    if (bench->news[0])
        atom_log(ATOM_LOG_INFO, "%s", bench->news);
    if (st == ATOM_OK)
        st = part_profile_graph(*profile, g);
    plan_workbench_close(&bench);
    return st;
}

/* What a profile has settled already. */
static atom_status check_beside_profile(const plan_values *v, const opt_parsed *parsed)
{
    static const char *const settled[] = {"model",
                                          "device_spec",
                                          "micro_batch_size",
                                          "sequence_len",
                                          "dtype",
                                          "moments_dtype",
                                          "optimizer",
                                          "lora_r",
                                          "lora_alpha",
                                          "lora_dropout",
                                          "lora_target_modules",
                                          "lora_rslora",
                                          "lora_dora",
                                          "lora_modules_to_save",
                                          "lora_layers",
                                          "lora_rank_pattern",
                                          "lora_alpha_pattern"};
    for (size_t i = 0; v->profile && i < sizeof settled / sizeof *settled; i++)
        if (opt_given(&options, parsed, settled[i]))
            return atom_fail(ATOM_E_USAGE,
                             "--profile %s already decides %s; leave it out, or give it to 'atom "
                             "profile' instead",
                             v->profile, settled[i]);
    return ATOM_OK;
}

/* The disk of a directory that is there is measured: 'atom train' would make one, a plan does not. */
static atom_status check_store_dir(const plan_values *v)
{
    if (!v->store_dir)
        return ATOM_OK;
    if (v->optimizer_state == PLAN_STATE_IN_MEMORY)
        return atom_fail(ATOM_E_USAGE, "store_dir would have no effect, because with "
                                       "optimizer_state memory nothing is kept on disk; leave it "
                                       "out");
    return atom_path_is_dir(v->store_dir)
               ? ATOM_OK
               : atom_fail(ATOM_E_USAGE,
                           "--store-dir %s: there is no such directory; create it, or name "
                           "another one on the same disk",
                           v->store_dir);
}

/* The graph and the profile that the options describe. */
static atom_status describe(const plan_values *v, graph **g, part_profile **profile)
{
    part_device device;
    atom_status st = ATOM_OK;
    if (v->profile) {
        ATOM_TRY(part_profile_read(v->profile, profile));
        st = part_profile_graph(*profile, g);
        return st == ATOM_OK ? st : atom_fail_in(st, "%s: ", v->profile);
    }
    if (!v->model)
        return atom_fail(ATOM_E_USAGE, "'plan' needs --profile FILE or --model PRESET (and "
                                       "--device-spec NAME if it is not for this machine)");
    if (!v->device_spec)
        return measure(v, g, profile);
    ATOM_TRY(part_device_spec(v->device_spec, &device));
    atom_dtype dtype = plan_dtype_settle(v->dtype, device.flops_bf16 > 0);
    ATOM_TRY(cli_graph(v->model, dtype, v->micro_batch_size, v->sequence_len, &v->lora, g));
    graph_set_moments(*g, (atom_dtype)v->moments_dtype);
    graph_set_optimizer(*g, (graph_optimizer)v->optimizer);
    return part_profile_model(*g, &device, profile);
}

/* What the description of a pool says, or what does not apply to one. */
static atom_status check_beside_pool(const opt_parsed *parsed)
{
    static const char *const theirs[] = {"profile",
                                         "device_spec",
                                         "device_memory",
                                         "host_memory",
                                         "store_dir",
                                         "optimizer_state",
                                         "recompute",
                                         "updates",
                                         "clip",
                                         "lora_r",
                                         "lora_alpha",
                                         "lora_dropout",
                                         "lora_target_modules",
                                         "lora_rslora",
                                         "lora_dora",
                                         "lora_modules_to_save",
                                         "lora_layers",
                                         "lora_rank_pattern",
                                         "lora_alpha_pattern",
                                         "what_if",
                                         "output",
                                         "gradient_accumulation_steps",
                                         "devices"};
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
        if (opt_given(&options, parsed, theirs[i]))
            return atom_fail(ATOM_E_USAGE,
                             "'%s' has no effect with --pool; leave it out (hosts and their "
                             "memory are described in the pool's file)",
                             theirs[i]);
    return ATOM_OK;
}

/* Everybody trains the same graph, so its dtype must suit every device. */
static atom_status plan_the_pool(const plan_values *v, const opt_parsed *parsed)
{
    plan_pool_file *file = NULL;
    graph *g = NULL;
    bool native = false;
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(check_beside_pool(parsed));
    if (!v->model)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE, "--pool needs --model PRESET|DIR|FILE, too"));
    if (v->optimizer != GRAPH_ADAMW)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE,
                                 "--optimizer: --pool predicts only steps of "
                                 "AdamW; leave it out (a step of muon takes longer)"));
    ATOM_TRY_CLEAN(plan_pool_file_read(v->pool, &file));
    ATOM_TRY_CLEAN(plan_pool_native_bf16(file, &native));
    ATOM_TRY_CLEAN(cli_graph(v->model, plan_dtype_settle(v->dtype, native), v->micro_batch_size,
                             v->sequence_len, &v->lora, &g));
    graph_set_moments(g, (atom_dtype)v->moments_dtype);
    ATOM_TRY_CLEAN(pool_plan_print(g, file, v->picture, v->json));
cleanup:
    graph_close(&g);
    plan_pool_file_close(&file);
    return st;
}

static uint32_t columns(void)
{
    struct winsize size;
    if (ioctl(1, TIOCGWINSZ, &size) == 0 && size.ws_col >= 60)
        return size.ws_col < 200 ? size.ws_col : 200;
    return 100;
}

static atom_status show(const graph *g, const part_profile *profile, const part_plan *plan,
                        const part_search_stats *stats)
{
    gen_lowered *low = NULL;
    char *timeline = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(gen_lower_memory(g, plan, profile, NULL, &low));
    show_plan(plan, g);
    double all = (double)g->param_elements * atom_dtype_bytes(g->dtype);
    /* slots also hold room between parameters, and what two sub-models use is in both */
    double held = (double)low->largest_visit_bytes < all ? (double)low->largest_visit_bytes : all;
    cli_print("parameters        %s; at most %s of them (%.0f %%) on the device at once\n",
              cli_count((double)g->param_elements), cli_size((uint64_t)held), 100 * held / all);
    show_memory(low, plan);
    if (plan->simulated)
        ATOM_TRY_CLEAN(gen_timeline(g, plan, profile, NULL, columns(), &timeline));
    if (timeline)
        cli_print("timeline of one step\n%s", timeline);
    cli_print("searched          %llu states, %u plans simulated, %s\n",
              (unsigned long long)stats->states, stats->evaluated, cli_seconds(stats->seconds));
cleanup:
    atom_free(timeline);
    gen_lowered_close(&low);
    return st;
}

/* Described devices are cards; a measured one may also be the CPU, which has no memory of its own. */
static bool is_card(const part_device *device)
{
    return !device->unified && (device->modelled || strncmp(device->isa, "sm_", 3) == 0);
}

/* What a disk costs, and what these sub-models would take without one. */
static atom_status show_disk(const graph *g, const part_profile *profile, const part_plan *plan)
{
    gen_lowered *low = NULL;
    part_verdict roomy;
    part_disk disk = part_device_disk(&profile->device);
    ATOM_TRY(gen_lower_memory(g, plan, profile, NULL, &low));
    double written = (double)graph_state_bytes(g), step = part_plan_seconds(plan);
    double read =
        fmin((double)gen_disk_read_bytes(low, plan), written); /* blocks are whole sectors */
    gen_lowered_close(&low);
    ATOM_TRY(plan_judge_in_memory(g, profile, plan, &roomy));
    char in[32], out[32];
    cli_print("disk              %s read and %s written per step, %s written a day; %s while both "
              "run%s\n",
              atom_size_text((uint64_t)read, in), atom_size_text((uint64_t)written, out),
              cli_size((uint64_t)(step > 0 ? written * 86400 / step : 0)),
              cli_seconds(fmax(read / disk.read_both, written / disk.write_both)),
              disk.assumed ? " (assumed: 2 GB/s in, 1.5 GB/s out; --store-dir measures your disk)"
                           : "");
    cli_print("                  without it the same sub-models need %s of host memory",
              cli_size(roomy.host_peak_bytes));
    if (roomy.step_seconds > 0)
        cli_print(", and a step takes %s", cli_seconds(roomy.step_seconds));
    cli_print("\n");
    /* of what is kept in fp32 beside the weights, a half */
    const uint64_t all =
        plan->host_budget_bytes ? plan->host_budget_bytes : profile->device.host_bytes;
    const uint64_t saved = (graph_state_bytes(g) - 4 * g->trained_extent) / 2;
    if (g->moments == ATOM_F32 && roomy.host_peak_bytes > all &&
        roomy.host_peak_bytes - saved <= all)
        cli_print(
            "                  with --moments-dtype bf16 it needs no disk: %s of host memory\n",
            cli_size(roomy.host_peak_bytes - saved));
    return ATOM_OK;
}

/* The one screen. searched: how the search ended; where nothing fits, that is still the answer. */
static atom_status answer(const plan_values *v, const graph *g, const part_profile *profile,
                          const plan_request *asked, const part_plan *plan, atom_status searched)
{
    char refused[1024];
    snprintf(refused, sizeof refused, "%s", atom_fail_message());
    ATOM_TRY(what_if_print(g, profile, asked, plan, refused, v->json));
    return searched == ATOM_OK ? ATOM_OK : atom_fail(searched, "%s", refused);
}

/* A limit is a cap, and this one caps nothing: the plan is for a device that has as much. */
static void warn_of_limit(const plan_values *v, const part_device *device)
{
    char asked[32], has[32];
    if (v->device_memory <= device->device_bytes || device->device_bytes == 0)
        return;
    atom_log(ATOM_LOG_WARN,
             "--device-memory %s is more than the %s of %s that a plan can use; this plan is for "
             "a device with that much memory",
             atom_size_text(v->device_memory, asked), atom_size_text(device->device_bytes, has),
             device->name);
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    const plan_values *v = values;
    graph *g = NULL;
    part_profile *profile = NULL;
    part_plan *plan = NULL;
    part_search_stats stats = {0};
    char *text = NULL;
    atom_status st = ATOM_OK;
    if (v->pool)
        return plan_the_pool(v, parsed);
    if (v->picture)
        return atom_fail(ATOM_E_USAGE, "--picture draws a pool, so it needs --pool FILE");
    ATOM_TRY_CLEAN(check_beside_profile(v, parsed));
    ATOM_TRY_CLEAN(check_store_dir(v));
    if (v->output)
        ATOM_TRY_CLEAN(part_plan_check_place(v->output));
    ATOM_TRY_CLEAN(describe(v, &g, &profile));
    const plan_request request = {
        .update_on_device = is_card(&profile->device) && v->updates == PLAN_UPDATES_FREE,
        .ortho_on_device = v->updates == PLAN_UPDATES_FREE,
        .devices = (uint32_t)v->devices,
        .device_memory = v->device_memory,
        .host_memory = v->host_memory,
        .host_hold = plan_host_hold(v->host_memory, profile->device.host_bytes, v->optimizer_state),
        .micro_batches =
            v->gradient_accumulation_steps < 0 ? 0 : (uint32_t)v->gradient_accumulation_steps,
        .clip = v->clip,
        .ahead = true,
        .recompute = v->recompute,
        .disk = v->optimizer_state,
    };
    if (v->store_dir)
        ATOM_TRY_CLEAN(plan_disk_measure(v->store_dir, STORE_AUTO, g, &profile->device));
    warn_of_limit(v, &profile->device);
    st = plan_search(g, profile, NULL, &request, &plan, &stats);
    if (st == ATOM_E_RESOURCE && v->what_if)
        ATOM_TRY_CLEAN(answer(v, g, profile, &request, NULL, st));
    if (st != ATOM_OK)
        goto cleanup;
    if (v->store_dir && !plan->disk)
        atom_log(ATOM_LOG_INFO,
                 "note: store_dir is not used, because the optimizer's state fits in memory; use "
                 "--optimizer-state disk to put it on disk");
    if (v->output)
        ATOM_TRY_CLEAN(part_plan_write(plan, v->output));
    if (v->what_if) {
        ATOM_TRY_CLEAN(answer(v, g, profile, &request, plan, ATOM_OK));
    } else if (v->json) {
        ATOM_TRY_CLEAN(part_plan_json(plan, &text));
        ATOM_TRY_CLEAN(cli_put_text(text, NULL));
    } else {
        ATOM_TRY_CLEAN(show(g, profile, plan, &stats));
        if (plan->disk)
            ATOM_TRY_CLEAN(show_disk(g, profile, plan));
    }
cleanup:
    atom_free(text);
    part_plan_close(&plan);
    part_profile_close(&profile);
    graph_close(&g);
    return st;
}

const cli_command cli_plan = {&options, run};
