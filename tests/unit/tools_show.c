/*
 * The tables that people read, word for word, of objects that are made here: numbers with their units,
 * profiles, plans of every kind and memory maps. Runs of blanks count as one.
 */
#include "tools/show.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* --- what is printed ------------------------------------------------------------------------------ */

static FILE *out;
static char *text;
static size_t bytes;

static void begin(void)
{
    out = stdout;
    stdout = open_memstream(&text, &bytes);
    assert_non_null(stdout);
}

/* Without blanks that repeat or begin a line. */
static void squeeze(char *at)
{
    char *to = at;
    for (char before = '\n'; *at; at++) {
        if (*at == ' ' && (before == ' ' || before == '\n'))
            continue;
        before = *to++ = *at;
    }
    *to = 0;
}

static void printed(const char *wanted)
{
    fclose(stdout);
    stdout = out;
    squeeze(text);
    assert_string_equal(text, wanted);
    free(text);
}

/* --- numbers -------------------------------------------------------------------------------------- */

typedef struct number {
    double value;
    const char *text;
} number;

static void counts(void **state)
{
    static const number cases[] = {{0, "0"},
                                   {999, "999"},
                                   {1000, "1.00 k"},
                                   {9990, "9.99 k"},
                                   {10000, "10.0 k"},
                                   {1234567, "1.23 M"},
                                   {99.9e6, "99.9 M"},
                                   {100e6, "100 M"},
                                   {2.5e9, "2.50 G"},
                                   {2.5e12, "2.50 T"},
                                   {2.5e15, "2.50 P"},
                                   {2.5e18, "2500 P"},
                                   {-25000, "-25.00 k"},
                                   {999499, "999 k"},
                                   {999500, "1.00 M"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(cli_count(cases[i].value), cases[i].text);
}

static void times(void **state)
{
    static const number seconds[] = {{INFINITY, "?"},    {0, "0 us"},        {12e-6, "12 us"},
                                     {999e-6, "999 us"}, {1e-3, "1 ms"},     {0.34, "340 ms"},
                                     {1, "1.00 s"},      {99.99, "99.99 s"}, {100, "100 s"},
                                     {12345, "12345 s"}, {0.9996, "1.00 s"}, {0.9996e-3, "1 ms"},
                                     {0.999, "999 ms"}},
                        lasts[] = {
                            {NAN, "?"},           {-1, "?"},           {0, "0 s"},
                            {99.4, "99 s"},       {99.5, "2 min"},     {5969, "99 min"},
                            {5970, "1 h 39 min"}, {7200, "2 h 0 min"}, {172799, "47 h 59 min"},
                            {172800, "2 days"},   {864000, "10 days"}};
    (void)state;
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++)
        assert_string_equal(cli_seconds(seconds[i].value), seconds[i].text);
    for (size_t i = 0; i < sizeof lasts / sizeof *lasts; i++)
        assert_string_equal(cli_duration(lasts[i].value), lasts[i].text);
}

/* As many texts as one call may have, none over another. */
static void several_texts_at_once(void **state)
{
    const char *made[16];
    char wanted[16];
    (void)state;
    for (int i = 0; i < 16; i++)
        made[i] = cli_size((uint64_t)i);
    for (int i = 0; i < 16; i++) {
        snprintf(wanted, sizeof wanted, "%d B", i);
        assert_string_equal(made[i], wanted);
    }
}

static void words(void **state)
{
    (void)state;
    assert_true(cli_is_warning("warning: x") && cli_is_warning("note: x"));
    assert_true(cli_is_warning("resume: x"));
    assert_false(cli_is_warning("noted: x"));
    assert_false(cli_is_warning("saved x"));
    begin();
    assert_int_equal(cli_put_text("{}", NULL), ATOM_OK);
    assert_int_equal(cli_put_text("{}\n", NULL), ATOM_OK);
    assert_int_equal(cli_put_text("", NULL), ATOM_OK);
    assert_int_equal(cli_print_json(json_pack("{s:o,s:o}", "a", cli_real(NAN), "b", cli_real(0.1))),
                     ATOM_OK);
    printed("{}\n{}\n\n{\"a\":null,\"b\":0.10000000000000001}\n");
    assert_int_equal(cli_print_json(NULL), ATOM_E_RESOURCE);
}

/* --- profiles ------------------------------------------------------------------------------------- */

static part_node_cost node(const char *name, double ms)
{
    part_node_cost n = {.fwd_seconds = ms * 1e-3,
                        .bwd_seconds = ms * 2e-3,
                        .fwd_gain_seconds = ms * 0.25e-3,
                        .bwd_gain_seconds = ms * 0.5e-3,
                        .param_bytes = 1024,
                        .output_bytes = 512};
    snprintf(n.name, sizeof n.name, "%s", name);
    return n;
}

static void a_profile(void **state)
{
    part_node_cost nodes[] = {node("wte", 1), node("h.0.attn.2x", 2), node("h.11.attn.2x", 4),
                              node("h.0.mlp", 8)};
    part_profile p = {.model = "m",
                      .dtype = ATOM_BF16,
                      .micro_batch = 2,
                      .sequence = 64,
                      .n_nodes = 4,
                      .nodes = nodes,
                      .device = {.name = "card",
                                 .modelled = true,
                                 .isa = "sm_90",
                                 .device_bytes = 1 << 30,
                                 .host_bytes = 2ull << 30,
                                 .flops_fp32 = 1e12,
                                 .flops_bf16 = 2e12,
                                 .device_bytes_per_second = 1e11,
                                 .h2d_bytes_per_second = 1e10,
                                 .h2d_both_bytes_per_second = 8e9,
                                 .d2h_bytes_per_second = 9e9,
                                 .d2h_both_bytes_per_second = 7e9,
                                 .host_bytes_per_second = 2e10,
                                 .adamw_params_per_second = 1e9,
                                 .muon_flops_per_second = 5e10,
                                 .ortho_flops_per_second = 6e10,
                                 .cache_bytes = 1 << 20}};
    (void)state;
    begin();
    show_profile(&p);
    printed("m, bf16, micro-batch 2 x 64 tokens, 4 nodes\n"
            "device card (modelled), sm_90\n"
            "device memory 1.0 GiB\n"
            "host memory 2.0 GiB\n"
            "matmul 2.00 TFLOP/s in bf16\n"
            "device memory rate 100 GB/s\n"
            "host to device 10.0 GB/s\n"
            "with the other way 8.00 GB/s\n"
            "device to host 9.00 GB/s\n"
            "with the other way 7.00 GB/s\n"
            "host memory rate 20.0 GB/s\n"
            "last-level cache 1.0 MiB\n"
            "AdamW on the host 1.00 G parameters/s\n"
            "Muon on the host 50.0 GFLOP/s\n"
            "its products on card 60.0 GFLOP/s\n"
            "node times forward backward parameters output\n"
            "wte 1 1 ms 2 ms 1.0 KiB 512 B\n"
            "h.*.attn.*x 2 2 ms 4 ms 1.0 KiB 512 B\n"
            "h.*.mlp 1 8 ms 16 ms 1.0 KiB 512 B\n"
            "all nodes, one micro-batch: 15 ms forward, 30 ms backward\n"
            "with warm caches: 11.2 ms forward, 22.5 ms backward\n");
    p.dtype = ATOM_F32;
    p.n_nodes = 1;
    p.device = (part_device){.name = "box", .host_bytes = 1 << 20, .flops_fp32 = 1e12};
    begin();
    show_profile(&p);
    printed("m, fp32, micro-batch 2 x 64 tokens, 1 nodes\n"
            "device box\n"
            "host memory 1.0 MiB\n"
            "matmul 1.00 TFLOP/s in fp32\n"
            "AdamW on the host 0 parameters/s\n"
            "node times forward backward parameters output\n"
            "wte 1 1 ms 2 ms 1.0 KiB 512 B\n"
            "all nodes, one micro-batch: 1 ms forward, 2 ms backward\n");
}

/* --- plans ---------------------------------------------------------------------------------------- */

static part_plan small_plan(part_sub_model *sub_models, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        sub_models[k] = (part_sub_model){.first_node = (int32_t)(2 * k),
                                         .last_node = (int32_t)(2 * k + 2),
                                         .param_bytes = 1024 * (k + 1),
                                         .keep = (part_keep)(k % 4),
                                         .resident = k == 1};
    return (part_plan){.model = "m",
                       .device = "card",
                       .dtype = ATOM_BF16,
                       .micro_batch = 2,
                       .sequence = 64,
                       .micro_batches = 4,
                       .devices = 1,
                       .n_sub_models = n,
                       .sub_models = sub_models,
                       .boundaries = PART_ON_HOST,
                       .recommended_micro_batches = 8,
                       .recommended_tokens_per_second = 960,
                       .most_tokens_per_second = 1000,
                       .predicted_step_seconds = 0.5,
                       .predicted_compute_seconds = 0.125,
                       .least_step_seconds = 0.4,
                       .bound = PART_BOUND_LINK,
                       .device_peak_bytes = 1 << 20,
                       .device_budget_bytes = 2 << 20,
                       .host_peak_bytes = 3 << 20,
                       .host_budget_bytes = 4 << 20,
                       .cut_bytes = 4096};
}

#define HEAD "# nodes parameters slot activations\n"

static void a_swapped_plan(void **state)
{
    part_sub_model sub_models[5];
    part_plan p = small_plan(sub_models, 5);
    (void)state;
    begin();
    show_plan(&p, NULL);
    printed("m, bf16, micro-batch 2 x 64 tokens, on card\n" HEAD
            "0 0 .. 1 1.0 KiB swapped recomputed\n"
            "1 2 .. 3 2.0 KiB stays kept on the device\n"
            "2 4 .. 5 3.0 KiB swapped stashed on the host\n"
            "3 6 .. 7 4.0 KiB swapped some kept\n"
            "4 8 .. 9 5.0 KiB swapped one micro-batch at a time\n"
            "predicted step 500 ms for 512 tokens: 1.02 k tokens/s\n"
            "compute alone 125 ms (25 % of the step)\n"
            "bound by link\n"
            "estimated the step is too long to simulate; no plan can take less than 400 ms, so\n"
            "this one is at most 25.0 % slower than the best\n"
            "micro-batches 4; 8 is the smallest number that reaches 95 % of the best speed: about\n"
            "960 of 1.00 k tokens/s\n"
            "device memory 1.0 MiB of a budget of 2.0 MiB\n"
            "host memory 3.0 MiB of 4.0 MiB\n"
            "cuts 4, 4.0 KiB cross them per micro-batch, kept on the host\n");
}

/* On several devices, with Muon, the state on disk, updates that run ahead, and more rows than a
 * screen has. */
static void a_large_plan(void **state)
{
    enum { N = 30 };
    part_sub_model sub_models[N];
    part_plan p = small_plan(sub_models, N);
    (void)state;
    p.moments = ATOM_BF16;
    p.optimizer = GRAPH_MUON;
    p.muon_seconds = 0.02;
    p.ortho_on_device = true;
    p.devices = 2;
    p.simulated = true;
    p.predicted_ahead_seconds = 0.25;
    p.disk = true;
    p.block_elements = 1024;
    p.ring_blocks = 3;
    p.boundaries = PART_ON_DEVICE;
    p.device_budget_bytes = p.host_budget_bytes = 0;
    begin();
    show_plan(&p, NULL);
    fclose(stdout);
    stdout = out;
    squeeze(text);
    assert_non_null(strstr(text, "m, bf16 with muon and bf16 moments, micro-batch"));
    assert_non_null(strstr(text,
                           "\n11 22 .. 23 12.0 KiB swapped some kept\n... 6 more ...\n18 36 .. "
                           "37 19.0 KiB swapped stashed on the host\n"));
    assert_non_null(strstr(text, "\n29 58 .. 59 30.0 KiB swapped one micro-batch at a time\n"));
    const char *rest = strstr(text, "predicted step");
    assert_non_null(rest);
    assert_string_equal(
        rest, "predicted step 500 ms for 512 tokens: 1.02 k tokens/s, where a gradient is clipped\n"
              "250 ms while none is clipped, because updates run ahead: 2.05 k tokens/s\n"
              "compute alone 125 ms (25 % of the step)\n"
              "bound by link\n"
              "Muon 20 ms on the device, whatever the number of micro-batches\n"
              "micro-batches 4, shared by 2 devices; 8 or more are recommended\n"
              "device memory 1.0 MiB, on each device\n"
              "host memory 3.0 MiB\n"
              "optimizer state on disk, in blocks of up to 8.0 KiB; 3 of them in host memory\n"
              "cuts 29, 4.0 KiB cross them per micro-batch, kept on the device\n");
    free(text);
}

/* With the model nodes have names, and what is held of them is counted by kind; all of a small plan is shown. */
static void a_plan_with_its_model(void **state)
{
    enum { N = 24 };
    part_sub_model sub_models[N];
    static graph_node nodes[2 * N];
    uint8_t holds[2 * N] = {[0] = PART_HOLD_HOST,
                            [2] = PART_HOLD_HOST,
                            [1] = PART_HOLD_DEVICE,
                            [5] = PART_HOLD_DEVICE,
                            [4] = PART_HOLD_DEVICE};
    part_plan p = small_plan(sub_models, N);
    graph g = {.nodes = nodes, .n_nodes = 2 * N};
    (void)state;
    for (uint32_t i = 0; i < 2 * N; i++)
        snprintf(nodes[i].name, sizeof nodes[i].name, i % 2 ? "h.%u.mlp2" : "h.%u.attn", i / 2);
    p.holds = holds;
    p.update_on_device = true;
    begin();
    show_plan(&p, &g);
    fclose(stdout);
    stdout = out;
    squeeze(text);
    assert_non_null(strstr(text, "\n0 h.0.attn .. h.0.mlp2 1.0 KiB stays recomputed\n"));
    assert_non_null(strstr(text, "\n23 h.23.attn .. h.23.mlp2 24.0 KiB stays one micro-batch"));
    assert_null(strstr(text, "more"));
    assert_non_null(
        strstr(text, "\nkept on device 2 h.*.mlp2, 1 h.*.attn\nkept on host 2 h.*.attn\n"));
    free(text);
}

static void a_plan_in_place(void **state)
{
    part_sub_model sub_models[1];
    part_plan p = small_plan(sub_models, 1);
    (void)state;
    p.in_place = true;
    p.most_tokens_per_second = 0;
    p.simulated = true;
    p.moments = ATOM_BF16;
    begin();
    show_plan(&p, NULL);
    printed("m, bf16 with bf16 moments, micro-batch 2 x 64 tokens, on card\n" HEAD
            "0 0 .. 1 1.0 KiB in place one micro-batch at a time\n"
            "predicted step 500 ms for 512 tokens: 1.02 k tokens/s\n"
            "compute alone 125 ms (25 % of the step)\n"
            "bound by link\n"
            "micro-batches 4; nothing has to be loaded, so any number is fine\n"
            "device memory 1.0 MiB of a budget of 2.0 MiB\n"
            "host memory 3.0 MiB of 4.0 MiB\n");
}

static void a_memory_map(void **state)
{
    swap_region regions[] = {{"slots", SWAP_DEVICE, 0, 1024},
                             {"nothing", SWAP_DEVICE, 1024, 0},
                             {"master", SWAP_HOST, 0, 3072},
                             {"moments", SWAP_HOST, 3072, 1024}};
    gen_lowered low = {.regions = regions,
                       .n_regions = 4,
                       .device_bytes = 2048,
                       .host_bytes = 4096,
                       .layout = {.trained = 1000}};
    part_plan plan = {.devices = 1, .moments = ATOM_F32};
    (void)state;
    begin();
    show_memory(&low, &plan);
    printed("memory map\n"
            "device: 2.0 KiB\n"
            "slots 1.0 KiB 50 %\n"
            "host: 4.0 KiB\n"
            "master 3.0 KiB 75 %\n"
            "moments 1.0 KiB 25 %\n"
            "spare for snapshots 1.5 KiB in addition, while a checkpoint is written\n");
    plan = (part_plan){
        .devices = 2, .disk = true, .in_place = true, .host_peak_bytes = 4096 + PART_WINDOW_BYTES};
    low.device_bytes = 0;
    begin();
    show_memory(&low, &plan);
    printed("memory map\nhost: 4.0 KiB\nmaster 3.0 KiB 75 %\nmoments 1.0 KiB 25 %\n"
            "window 16.0 MiB in addition, while large files are read and written\n");
    plan.host_peak_bytes = 0;
    low.device_bytes = 1024;
    low.n_regions = 1;
    begin();
    show_memory(&low, &plan);
    printed("memory map\neach device: 1.0 KiB\nslots 1.0 KiB 100 %\nhost: 4.0 KiB\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts),
        cmocka_unit_test(times),
        cmocka_unit_test(several_texts_at_once),
        cmocka_unit_test(words),
        cmocka_unit_test(a_profile),
        cmocka_unit_test(a_swapped_plan),
        cmocka_unit_test(a_large_plan),
        cmocka_unit_test(a_plan_with_its_model),
        cmocka_unit_test(a_plan_in_place),
        cmocka_unit_test(a_memory_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
