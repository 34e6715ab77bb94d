/*
 * atom bench: rates of this machine, each beside the ceiling that was measured in the same run,
 * because shared machines drift. One idea: a rate without its ceiling says nothing. Refuses to
 * compare with numbers of another day.
 */
#include "tools/bench/bench.h"

#include "gossip/sum/quant.h"
#include "kernels/cuda_load.h"

#include <stdio.h>
#include <string.h>

static const char *const whats[] = {"adamw",  "allreduce", "codec", "copy", "disk",
                                    "matmul", "plan",      "train", NULL};
static const opt_choice only_names[] = {
    {"both", BENCH_BOTH}, {"resident", BENCH_RESIDENT}, {"capped", BENCH_CAPPED}, {0}};
static const opt_choice codecs[] = {
    {"fp32", GSP_CODEC_FP32}, {"bf16", GSP_CODEC_BF16}, {"int8", GSP_CODEC_INT8}, {0}};
static const opt_choice transports[] = {{"gate", BENCH_GATE}, {"plain", BENCH_PLAIN}, {0}};

#define AT(member) .offset = offsetof(bench_values, member)

/* clang-format off */
static const opt_spec specs[] = {
    PLAN_ROW_DTYPE(.help = "auto: bf16 if the processor supports it natively, else fp32."),
    PLAN_ROW_MOMENTS_DTYPE(.help = "adamw, train: the type of Adam's moments."),
    PLAN_ROW_THREADS(.help = "auto: all cores."),
    {.name = "rounds", .type = OPT_INT, AT(rounds), .fallback = "auto", .min = 1, .max = 10000,
     .flags = OPT_AUTO,
     .help = "How often each thing is measured; the median counts. auto: 9; allreduce: 3, after "
             "one round to warm up."},
    {.name = "params", .type = OPT_INT, AT(params), .fallback = "64000000", .min = 1000,
     .max = 1e12, .group = "adamw", .help = "Number of parameters to update."},
    {.name = "bytes", .type = OPT_SIZE, AT(bytes), .fallback = "256MiB", .min = 4096, .max = 0x1p40,
     .group = "copy, disk, codec and allreduce",
     .help = "Size of one copy, of the file, or of the fp32 vector."},
    {.name = "dir", .type = OPT_TEXT, AT(dir), .fallback = ".", .value = "DIR",
     .help = "disk: where to put the file during the test."},
    PLAN_ROW_MODEL(.fallback = "gpt2-124m", .group = "matmul, plan and train",
        .help = "The model: its linear layers are measured (matmul), it is planned (plan; "
                "default: every preset), or trained from random weights on random tokens (train)."),
    PLAN_ROW_MICRO_BATCH_SIZE(.help = "Sequences per micro-batch."),
    PLAN_ROW_SEQUENCE_LEN(.fallback = "256", .help = "Tokens per sequence."),
    PLAN_ROW_GRADIENT_ACCUMULATION_STEPS(.fallback = "1", .help = "train: micro-batches per step."),
    {.name = "device", .type = OPT_TEXT, AT(device), .fallback = "cpu", .value = "cpu|cuda[:N]",
     .help = "copy and train: the device that computes."},
    {.name = "steps", .type = OPT_INT, AT(steps), .fallback = "5", .min = 2, .max = 1e6,
     .help = "train: steps per run."},
    PLAN_ROW_DEVICE_MEMORY(.help = "train: also train with this limit of device memory, and say "
                                   "what swapping costs."),
    {.name = "only", .type = OPT_CHOICE, AT(only), .fallback = "both", .choices = only_names,
     .help = "train: do only one of the two runs, for a model that is larger than the device."},
    PLAN_ROW_RECOMPUTE(.help = "train: as in 'atom train'."),
    PLAN_ROW_OPTIMIZER_STATE(.help = "train: as in 'atom train'. memory: fails if it does not "
                                     "fit."),
    PLAN_ROW_UPDATES(.help = "train: as in 'atom train'."),
    PLAN_ROW_OPTIMIZER(.help = "train: as in 'atom train'."),
    PLAN_ROW_LINK_BANDWIDTH(.help = "copy and train: slow the link down to this rate."),
    {.name = "trace", .type = OPT_TEXT, AT(trace), .value = "FILE",
     .help = "train: as in 'atom train'; of the swapped run, where there are two."},
    {.name = "peers", .type = OPT_INT, AT(peers), .fallback = "8", .min = 2, .max = 32,
     .group = "allreduce", .help = "Number of members; each is a process in its own network "
                                   "namespace."},
    {.name = "codec", .type = OPT_CHOICE, AT(codec), .fallback = "fp32", .choices = codecs,
     .help = "What travels."},
    {.name = "rate", .type = OPT_NUMBER, AT(rate), .fallback = "auto", .min = 0.1, .max = 1e6,
     .flags = OPT_AUTO, .value = "MBIT",
     .help = "Rate of every peer's link, up and down. auto: as fast as possible."},
    {.name = "slow", .type = OPT_NUMBER, AT(slow), .fallback = "auto", .min = 0.1, .max = 1e6,
     .flags = OPT_AUTO, .value = "MBIT", .help = "Another rate for the last peer's link."},
    {.name = "rtt", .type = OPT_NUMBER, AT(rtt), .fallback = "auto", .min = 0.1, .max = 10000,
     .flags = OPT_AUTO, .value = "MS",
     .help = "Round trip time between peers; needs a kernel that can delay packets."},
    {.name = "transport", .type = OPT_CHOICE, AT(transport), .fallback = "gate",
     .choices = transports, .help = "plain: nanomsg without encryption, to see what the gate "
                                    "costs."},
    {.name = "streams", .type = OPT_INT, AT(streams), .fallback = "auto", .min = 1, .max = 16,
     .flags = OPT_AUTO,
     .help = "Data streams between each pair of peers. auto: 2; 1 if four or more peers share a "
             "link."},
    {.name = "strangers", .type = OPT_INT, AT(strangers), .fallback = "auto", .min = 1,
     .max = 100000, .flags = OPT_AUTO,
     .help = "In every second round, a host without a ticket opens this many connections per "
             "second, which send garbage, are slow, or close at once. Needs the gate. auto: none."},
    {.name = "addresses", .type = OPT_TEXT, AT(addresses), .value = "HOST:PORT,...",
     .help = "Run one peer here and the others on other hosts, where the same command runs with "
             "another --self. Numeric addresses; give the same list everywhere. --rate then says "
             "how fast the links are."},
    {.name = "self", .type = OPT_INT, AT(self), .fallback = "auto", .min = 0, .max = 31,
     .flags = OPT_AUTO, .help = "With --addresses: which of them is this host, counted from 0."},
    {.name = "secret", .type = OPT_TEXT, AT(secret), .value = "WORDS",
     .help = "With --addresses: a secret that all hosts of the test share."},
    PLAN_ROW_JSON(.help = "One JSON object on stdout."),
};
/* clang-format on */

static const opt_command options = {
    .name = "bench",
    .summary = "measure speeds and compare them with the best possible: adamw, allreduce, codec, "
               "copy, disk, matmul, plan, train",
    .description =
        "adamw: AdamW on the host, compared with a STREAM triad.\n"
        "allreduce: members of a pool average a vector over links of limited speed, compared "
        "with what the links allow.\n"
        "codec: what a member of a pool does with bytes (encode, sum, hash, encrypt) and how "
        "long each codec of 'atom train --compress-boundaries' takes to encode and decode, "
        "compared with a memory copy; also how many cores 1 Gbit/s needs.\n"
        "copy: copies between host and device, compared with a plain memory copy.\n"
        "disk: the store for state on disk, with each interface of the kernel, compared with "
        "fio.\n"
        "matmul: the linear layers of a model, compared with the processor's raw multiply-add "
        "rate.\n"
        "plan: how long 'atom plan' takes for many combinations of models, devices, dtypes, "
        "micro-batches and budgets; names the slowest. With --model: all combinations for that "
        "model, one per line.\n"
        "train: whole steps, compared with the time of their matmuls alone; with --device-memory "
        "also swapped steps, compared with resident ones.",
    .examples = "atom bench adamw\n"
                "atom bench allreduce --peers 8 --bytes 64MiB --rate 100\n"
                "# on the second of two hosts; the other one: --self 0\n"
                "atom bench allreduce --addresses 192.0.2.1:4400,192.0.2.2:4400 --self 1 "
                "--secret 'three odd words'\n"
                "atom bench disk --dir /mnt/nvme --bytes 8GiB\n"
                "atom bench train --model gpt2-124m --device-memory 512MiB\n",
    .positional = "adamw|allreduce|codec|copy|disk|matmul|plan|train",
    .positional_min = 1,
    .positional_max = 1,
    OPT_TABLE(specs, bench_values),
};

atom_dtype bench_dtype(const bench_values *v)
{
    return plan_dtype_settle(v->dtype, __builtin_cpu_supports("avx512bf16"));
}

json_t *bench_rate(const krn_bench *b)
{
    return json_pack("{s:I, s:o, s:o}", "bytes", (json_int_t)b->bytes, "seconds",
                     cli_real(b->seconds), "bytes_per_second", cli_real(b->bytes_per_second));
}

static atom_status bench_adamw(const bench_values *v, atom_threads *threads)
{
    krn_bench adamw = {0}, triad = {0};
    const krn_adamw_kinds kinds = {bench_dtype(v), (atom_dtype)v->moments_dtype};
    ATOM_TRY(krn_bench_adamw(threads, krn_cpu_host_table(), kinds, (uint64_t)v->params,
                             (uint32_t)v->rounds, &adamw, &triad));
    double ratio = adamw.bytes_per_second / triad.bytes_per_second;
    double rate = (double)v->params / adamw.seconds;
    if (v->json)
        return cli_print_json(
            json_pack("{s:s, s:s, s:s, s:I, s:o, s:o, s:o, s:o}", "bench", "adamw", "dtype",
                      atom_dtype_name(kinds.wire), "moments_dtype", atom_dtype_name(kinds.moments),
                      "params", (json_int_t)v->params, "params_per_second", cli_real(rate), "rate",
                      bench_rate(&adamw), "ceiling", bench_rate(&triad), "ratio", cli_real(ratio)));
    cli_print("AdamW, %s parameters, wire copy in %s, moments in %s\n",
              cli_count((double)v->params), atom_dtype_name(kinds.wire),
              atom_dtype_name(kinds.moments));
    cli_print("  rate     %sB/s, %s parameters/s, %s\n", cli_count(adamw.bytes_per_second),
              cli_count(rate), cli_seconds(adamw.seconds));
    cli_print("  ceiling  %sB/s (STREAM triad, non-temporal)\n  ratio    %.2f\n",
              cli_count(triad.bytes_per_second), ratio);
    return ATOM_OK;
}

static atom_status bench_device_open(const bench_values *v, atom_threads *threads, dev **out)
{
    double rate = (double)v->link_bandwidth;
    if (strcmp(v->device, "cpu") == 0)
        return dev_cpu_open(&(dev_cpu_config){.link_bytes_per_second = rate}, threads, out);
    int card = 0, end = 0;
    if (strcmp(v->device, "cuda") != 0 &&
        (sscanf(v->device, "cuda:%d%n", &card, &end) != 1 || v->device[end]))
        return atom_fail(ATOM_E_USAGE, "device: '%s' is not a device; use cpu or cuda[:N]",
                         v->device);
    return dev_cuda_open(&(dev_cuda_config){.card = card, .link_bytes_per_second = rate}, threads,
                         out);
}

static atom_status bench_copy(const bench_values *v, atom_threads *threads)
{
    dev_copy_bench r = {0};
    dev *device = NULL;
    atom_status st = bench_device_open(v, threads, &device);
    if (st == ATOM_OK)
        st = dev_bench_copy(device, threads, v->bytes, (uint32_t)v->rounds, &r);
    dev_close(&device);
    ATOM_TRY(st);
    if (v->json)
        return cli_print_json(json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "bench", "copy",
                                        "h2d", bench_rate(&r.h2d), "d2h", bench_rate(&r.d2h),
                                        "h2d_both", bench_rate(&r.h2d_both), "d2h_both",
                                        bench_rate(&r.d2h_both), "ceiling", bench_rate(&r.memory),
                                        "latency_seconds", cli_real(r.latency_seconds)));
    cli_print("copies of %s\n", cli_size(v->bytes));
    cli_print("  host to device  %sB/s alone, %sB/s with the other way\n",
              cli_count(r.h2d.bytes_per_second), cli_count(r.h2d_both.bytes_per_second));
    cli_print("  device to host  %sB/s alone, %sB/s with the other way\n",
              cli_count(r.d2h.bytes_per_second), cli_count(r.d2h_both.bytes_per_second));
    cli_print("  ceiling         %sB/s (memory copy, all threads)\n  latency         %s\n",
              cli_count(r.memory.bytes_per_second), cli_seconds(r.latency_seconds));
    return ATOM_OK;
}

/* What each of them reads, but for --json. */
static const struct {
    const char *name, *reads;
} benches[] = {
    {"adamw", " dtype moments_dtype threads rounds params "},
    {"allreduce",
     " rounds bytes peers codec rate slow rtt transport streams strangers addresses self "
     "secret "},
    {"codec", " rounds bytes peers "},
    {"copy", " threads rounds bytes device link_bandwidth "},
    {"disk", " rounds bytes dir "},
    {"matmul", " dtype threads rounds model micro_batch_size sequence_len "},
    {"plan", " dtype model micro_batch_size "},
    {"train", " dtype moments_dtype threads model micro_batch_size sequence_len "
              "gradient_accumulation_steps device steps device_memory only recompute "
              "optimizer optimizer_state updates link_bandwidth trace "},
};

static atom_status check_options(const char *what, const opt_parsed *parsed)
{
    const char *reads = NULL;
    char word[64];
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++)
        if (strcmp(what, benches[i].name) == 0)
            reads = benches[i].reads;
    for (uint32_t i = 0; i < options.n_specs && reads; i++) {
        const char *name = options.specs[i].name;
        snprintf(word, sizeof word, " %s ", name);
        if (strcmp(name, "json") != 0 && opt_given(&options, parsed, name) && !strstr(reads, word))
            return atom_fail(ATOM_E_USAGE, "bench %s does not use %s; leave it out", what, name);
    }
    return ATOM_OK;
}

/* Options that say something only together with others, or only without. */
static atom_status check_together(const bench_values *v, const opt_parsed *parsed)
{
    const char *const of_hosts[] = {"self", "secret"};
    const bool hosts = opt_given(&options, parsed, "addresses");
    for (size_t i = 0; i < sizeof of_hosts / sizeof *of_hosts; i++)
        if (!hosts && opt_given(&options, parsed, of_hosts[i]))
            return atom_fail(ATOM_E_USAGE,
                             "--%s works only with --addresses, which names the hosts of the test; "
                             "without it all peers are on this host",
                             of_hosts[i]);
    if (hosts && opt_given(&options, parsed, "peers"))
        return atom_fail(ATOM_E_USAGE,
                         "--peers would have no effect, because --addresses names all "
                         "peers; leave it out");
    if (v->only == BENCH_RESIDENT && opt_given(&options, parsed, "device_memory"))
        return atom_fail(ATOM_E_USAGE, "--device-memory would have no effect with --only resident, "
                                       "which trains without a limit; leave one of them out");
    return ATOM_OK;
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    bench_values *v = values;
    const char *what = parsed->positional[0];
    atom_threads *threads = NULL;
    uint32_t n = v->threads > 0 ? (uint32_t)v->threads : atom_cores();
    atom_status st = ATOM_OK;
    ATOM_TRY(check_options(what, parsed));
    ATOM_TRY(check_together(v, parsed));
    if (strcmp(what, "allreduce") == 0)
        return bench_allreduce_run(v);
    v->rounds = v->rounds > 0 ? v->rounds : 9;
    if (strcmp(what, "codec") == 0)
        return bench_codec_run(v);
    if (strcmp(what, "train") == 0)
        return bench_train_run(v);
    if (strcmp(what, "plan") == 0)
        return bench_plan_run(v, opt_given(&options, parsed, "model"));
    if (strcmp(what, "matmul") == 0)
        return bench_matmul_run(v);
    if (strcmp(what, "disk") == 0)
        return bench_disk_run(v);
    ATOM_TRY_CLEAN(atom_threads_open(n, &threads));
    if (strcmp(what, "adamw") == 0) {
        st = bench_adamw(v, threads);
    } else if (strcmp(what, "copy") == 0) {
        st = bench_copy(v, threads);
    } else {
        const char *near = atom_did_you_mean(what, whats, 8);
        st = atom_fail(
            ATOM_E_USAGE,
            "there is no bench '%s', only adamw, allreduce, codec, copy, disk, matmul, plan and "
            "train%s%s%s",
            what, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
    }
cleanup:
    atom_threads_close(&threads);
    return st;
}

const cli_command cli_bench = {&options, run};
