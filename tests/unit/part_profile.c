/* Profiles and device specs: alike nodes are timed once, files read back exactly and strictly. */
#include "partition/json.h"
#include "tests/unit/part_common.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

typedef struct timer {
    uint32_t calls;
    bool fails;
} timer;

static atom_status time_node(void *ctx, const graph *g, int32_t node, part_node_cost *cost)
{
    timer *t = ctx;
    t->calls++;
    if (t->fails && t->calls == 3)
        return atom_fail(ATOM_E_RUNTIME, "the device went away");
    *cost = (part_node_cost){.fwd_seconds = 0.1 * (double)t->calls,
                             .bwd_seconds = (double)graph_node_flops(g, node, true) / 3e11,
                             .workspace_bytes = (uint64_t)node};
    return ATOM_OK;
}

static void times_alike_nodes_once(void **state)
{
    (void)state;
    timer small = {0}, large = {0}, broken = {.fails = true};
    part_device device = spec("rtx-4090");
    part_profile *profile = NULL;
    graph *two = tiny_gpt2(2), *five = tiny_gpt2(5);
    assert_int_equal(part_profile_measure(two, &device, time_node, &small, &profile), ATOM_OK);
    part_profile_close(&profile);
    assert_int_equal(part_profile_measure(five, &device, time_node, &large, &profile), ATOM_OK);
    assert_int_equal(small.calls, large.calls);
    for (uint32_t i = 0; i < five->n_nodes; i++) {
        assert_string_equal(profile->nodes[i].name, five->nodes[i].name);
        assert_true(profile->nodes[i].fwd_seconds > 0);
        assert_int_equal(profile->nodes[i].param_bytes, graph_node_param_bytes(five, (int32_t)i));
        for (uint32_t j = 0; j < i; j++)
            if (graph_node_class(five, (int32_t)i) == graph_node_class(five, (int32_t)j))
                assert_true(profile->nodes[i].fwd_seconds == profile->nodes[j].fwd_seconds);
    }
    assert_int_equal(part_profile_matches(profile, five), ATOM_OK);
    assert_int_equal(part_profile_matches(profile, two), ATOM_E_USAGE);
    part_profile_close(&profile);
    assert_int_equal(part_profile_measure(five, &device, time_node, &broken, &profile),
                     ATOM_E_RUNTIME);
    assert_null(profile);
    graph_close(&two);
    graph_close(&five);
}

static void models_a_roofline(void **state)
{
    (void)state;
    part_device device = spec("rtx-4090");
    graph *g = fused_preset("gpt2-124m", ATOM_BF16, 4, 1024);
    part_profile *profile = NULL;
    double forward = 0, flops = 0;
    assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const part_node_cost *n = &profile->nodes[i];
        assert_true(n->fwd_seconds >= device.launch_seconds);
        assert_true(n->fwd_seconds >=
                    graph_node_flops(g, (int32_t)i, false) / device.peak_flops_bf16);
        forward += n->fwd_seconds;
        flops += graph_node_flops(g, (int32_t)i, false);
    }
    /* Slower than the peak, faster than a hundredth of it. */
    assert_true(forward > flops / device.peak_flops_bf16);
    assert_true(forward < 100 * flops / device.peak_flops_bf16);
    assert_true(profile->device.adamw_params_per_second > 1e9);
    part_profile_close(&profile);
    graph_close(&g);
}

/* Attention takes its share of the products' rate where a spec says one, and another where it does not; in fp32 all. */
static void models_attention_apart(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        atom_dtype dtype;
        double share;
    } cases[] = {{"h200", ATOM_BF16, 0.30}, {"rtx-4090", ATOM_BF16, 0.6}, {"h200", ATOM_F32, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        graph *g = fused_preset("gpt2-124m", cases[i].dtype, 8, 1024);
        part_profile *profile = modelled(g, cases[i].device);
        const part_device *d = &profile->device;
        double rate = cases[i].dtype == ATOM_BF16 ? d->flops_bf16 : d->flops_fp32;
        for (uint32_t n = 0; n < g->n_nodes; n++) {
            if (g->nodes[n].op != ATOM_OP_attention)
                continue;
            double seconds = profile->nodes[n].fwd_seconds - d->launch_seconds;
            double want = graph_node_flops(g, (int32_t)n, false) / (rate * cases[i].share);
            assert_true(fabs(seconds / want - 1) < 1e-6);
        }
        part_profile_close(&profile);
        graph_close(&g);
    }
}

static void refuses_a_dtype_the_device_lacks(void **state)
{
    (void)state;
    part_device device = spec("gtx-1080-ti");
    graph *g = fused_preset("gpt2-124m", ATOM_BF16, 1, 128);
    part_profile *profile = NULL;
    assert_int_equal(part_profile_model(g, &device, &profile), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "--dtype fp32"));
    device.h2d_bytes_per_second = 0;
    assert_int_equal(part_profile_open(g, &device, &profile), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "h2d_bytes_per_second"));
    assert_null(profile);
    graph_close(&g);
}

static void ships_specs(void **state)
{
    (void)state;
    const char *const *names = part_device_names();
    const char *wanted[] = {"rtx-5090",   "rtx-5060-ti-16gb",
                            "rtx-4090",   "rtx-4060-ti-16gb",
                            "rtx-3090",   "rtx-pro-6000",
                            "l40s",       "a100",
                            "h100",       "h200",
                            "v100",       "gtx-1080",
                            "gtx-1080-ti"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        bool there = false;
        for (const char *const *n = names; *n; n++)
            there |= strcmp(*n, wanted[i]) == 0;
        assert_true(there);
        assert_non_null(part_device_text(wanted[i]));
        part_device d = spec(wanted[i]);
        assert_true(d.modelled && !d.unified);
        assert_true(d.device_bytes > (uint64_t)7 << 30 && d.device_bytes < (uint64_t)140 << 30);
        assert_true(d.flops_bf16 == 0 || d.flops_bf16 > d.flops_fp32); /* before Ampere: none */
        assert_true(d.device_bytes_per_second > d.host_bytes_per_second);
        assert_true(d.h2d_bytes_per_second > d.h2d_both_bytes_per_second);
        assert_true(d.flops_fp32 < d.peak_flops_fp32);
    }
    part_device d;
    assert_int_equal(part_device_spec("rtx-4080", &d), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(),
                           "file \"rtx-4080\" (did you mean \"rtx-4090\"?); built in: a100, "));
}

static char *swap_text(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    assert_non_null(at);
    char *out = atom_format("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    assert_non_null(out);
    return out;
}

/* Of a described card, as its kernel takes it: f32 logits of some rows, and their gradient in act of a whole
 * number of times as many (kernels/cuda/loss.cu). */
static void models_the_classifiers_scratch(void **state)
{
    (void)state;
    static const struct {
        int64_t vocab, tokens;
        atom_dtype dtype;
        uint64_t logit_rows, d_rows, ld;
    } cases[] = {
        {50257, 4096, ATOM_BF16, 512, 2048, 50304},  {50257, 4096, ATOM_F32, 512, 1024, 50304},
        {128256, 4096, ATOM_BF16, 192, 768, 128256}, {128256, 256, ATOM_BF16, 192, 256, 128256},
        {262144, 4096, ATOM_F32, 128, 128, 262144},  {257, 4096, ATOM_BF16, 512, 2048, 320},
        {50257, 100, ATOM_BF16, 100, 100, 50304}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        graph_config config = {.name = "tiny",
                               .vocab_size = cases[i].vocab,
                               .positions = 4096,
                               .width = 24,
                               .layers = 1,
                               .heads = 2,
                               .inner = 96,
                               .epsilon = 1e-5f,
                               .init_std = 0.02f};
        graph *g = fused_gpt2(&config, cases[i].dtype, 1, cases[i].tokens);
        part_profile *profile = modelled(g, "h100");
        uint64_t taken = 0, each = atom_dtype_bytes(cases[i].dtype);
        for (uint32_t k = 0; k < g->n_nodes; k++)
            taken += profile->nodes[k].workspace_bytes;
        assert_int_equal(taken, cases[i].ld * (cases[i].logit_rows * 4 + cases[i].d_rows * each));
        part_profile_close(&profile);
        graph_close(&g);
    }
}

static void reads_specs_strictly(void **state)
{
    (void)state;
    static const char *const wrong[][3] = {
        {"\"atom_device\": 1", "\"atom_device\": 2", "reads 1"},
        {"\"atom_device\": 1", "\"atom_divice\": 1", "not a file of this kind"},
        {"\"cores\"", "\"corse\"", "figures.cores: missing"},
        {"\"figures\": {", "\"figures\": {\"speed\": 1, ", "figures.speed: unknown key"},
        {"\"figures\": {", "\"figures\": {\"atention_fraction\": {}, ",
         "figures.atention_fraction: unknown key; did you mean \"attention_fraction\"?"},
        {"\"value\": 1008e9", "\"value\": \"fast\"", "expected a number"},
        {"\"value\": 1008e9", "\"value\": -1", "is not in"},
        {"\"value\": 1008e9", "\"value\": 1008",
         "figures.peak_device_bytes_per_second.value: 1008 is too little for any device; it counts "
         "bytes a second"},
        {"\"value\": 31.508e9", "\"value\": 31508", "it counts bytes a second"},
        {"\"value\": 165.2e12", "\"value\": 165.2", "it counts operations a second"},
        {"\"value\": 25769803776", "\"value\": 24", "device_bytes.value: 24 is too little"},
        {"\"value\": 1008e9, \"source\"", "\"value\": 1008e9, \"sauce\"", "source: missing"},
        {"\"value\": 25769803776", "\"value\": 805306368", "reserved_bytes leaves nothing"},
        {"\"figures\": {", "\"figures\": [", ":5:"},
        {"\"name\": \"NVIDIA", "\"name\": \"\\u0007NVIDIA", "printable"},
    };
    const char *text = part_device_text("rtx-4090");
    part_device d = {.cores = 77};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *bad = swap_text(text, wrong[i][0], wrong[i][1]);
        assert_int_equal(part_device_parse("my.json", bad, strlen(bad), &d), ATOM_E_FORMAT);
        if (!strstr(atom_fail_message(), wrong[i][2]) || !strstr(atom_fail_message(), "my.json"))
            fail_msg("%zu: %s", i, atom_fail_message());
        assert_int_equal(d.cores, 77); /* untouched */
        atom_free(bad);
    }
}

static void reads_back_the_same_bits(void **state)
{
    (void)state;
    char path[] = "/tmp/atom_part_XXXXXX";
    char *first = NULL, *second = NULL;
    part_profile *back = NULL;
    graph *g = tiny_gpt2(3);
    part_profile *profile = modelled(g, "h100");
    profile->nodes[1].fwd_seconds = 1.0 / 3;
    profile->nodes[2].bwd_seconds = nextafter(1e-5, 1);
    profile->nodes[1].fwd_gain_seconds = 1.0 / 7;
    profile->nodes[2].bwd_gain_seconds = nextafter(1e-6, 1);
    profile->device.cache_bytes = 33554431;
    close(mkstemp(path));
    assert_int_equal(part_profile_write(profile, path), ATOM_OK);
    assert_int_equal(part_profile_read(path, &back), ATOM_OK);
    unlink(path);
    assert_int_equal(part_profile_matches(back, g), ATOM_OK);
    assert_memory_equal(&back->device, &profile->device, sizeof back->device);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        assert_memory_equal(&back->nodes[i], &profile->nodes[i], sizeof back->nodes[i]);
    assert_int_equal(part_profile_json(profile, &first), ATOM_OK);
    assert_int_equal(part_profile_json(back, &second), ATOM_OK);
    assert_string_equal(first, second);
    atom_free(first);
    atom_free(second);
    part_profile_close(&back);
    part_profile_close(&profile);
    graph_close(&g);
}

/* A profile from before there were gains: every micro-batch is cold, whatever the sub-model. */
static void reads_profiles_without_gains(void **state)
{
    (void)state;
    static const char *const keys[] = {"cache_bytes", "fwd_gain_seconds", "bwd_gain_seconds"};
    graph *g = tiny_gpt2(2);
    part_profile *profile = modelled(g, "h100"), *back = NULL;
    char *text = NULL;
    assert_int_equal(part_profile_json(profile, &text), ATOM_OK);
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        assert_null(strstr(text, keys[k])); /* it is written as it was before */
    if (part_profile_parse("old.json", text, strlen(text), &back) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_int_equal(part_profile_matches(back, g), ATOM_OK);
    assert_true(back->device.cache_bytes == 0);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        assert_true(back->nodes[i].fwd_gain_seconds == 0 && back->nodes[i].bwd_gain_seconds == 0);
        assert_true(back->nodes[i].fwd_seconds == profile->nodes[i].fwd_seconds);
    }
    assert_int_equal(part_warm_share(&back->device, 1), 0);
    atom_free(text);
    part_profile_close(&back);
    part_profile_close(&profile);
    graph_close(&g);
}

static void falls_in_a_straight_line(void **state)
{
    (void)state;
    const uint64_t cache = 32 << 20;
    const part_device d = {.cache_bytes = cache};
    assert_int_equal(part_warm_share(&d, 0), PART_WARM_ALL);
    assert_int_equal(part_warm_share(&d, cache / 2), PART_WARM_ALL);
    assert_int_equal(part_warm_share(&d, cache), PART_WARM_ALL / 2);
    assert_int_equal(part_warm_share(&d, 3 * cache / 2 - cache / 1024), 1);
    assert_int_equal(part_warm_share(&d, 3 * cache / 2), 0);
    assert_int_equal(part_warm_share(&d, UINT64_MAX), 0);
    uint32_t before = PART_WARM_ALL;
    for (uint64_t bytes = cache / 2; bytes <= 2 * cache; bytes += cache / 1024) {
        uint32_t share = part_warm_share(&d, bytes);
        assert_true(share <= before && before - share <= 1);
        before = share;
    }
    assert_int_equal(part_warm_share(&(part_device){0}, 0), 0); /* nothing is known of the cache */
}

static void reads_profiles_strictly(void **state)
{
    (void)state;
    static const char *const wrong[][3] = {
        {"\"atom_profile\": 1", "\"atom_profile\": 1.5", "not a file of this kind"},
        {"\"graph_hash\": \"0x", "\"graph_hash\": \"xx", "hexadecimal"},
        {"\"dtype\": \"fp32\"", "\"dtype\": \"i32\"", "one of: fp32, bf16"},
        {"\"unified\": false", "\"unified\": 0", "device.unified: expected true or false"},
        {"\"cores\": ", "\"cores\": 1e", "device.cores"},
        {"\"fwd_seconds\": ", "\"fwd_seconds\": -", "nodes[0].fwd_seconds"},
        {"\"bwd_seconds\"", "\"fwd_gain_seconds\": 9, \"bwd_seconds\"",
         "nodes[0].fwd_gain_seconds: expected at most fwd_seconds"},
        {"\"bwd_seconds\"", "\"bwd_gain_seconds\": 9, \"bwd_seconds\"",
         "nodes[0].bwd_gain_seconds: expected at most bwd_seconds"},
        {"\"nodes\": [", "\"nodes\": [7, ", "nodes[0]: expected an object"},
        {"\"micro_batch\": 2", "\"micro_batch\": 0", "micro_batch: 0 is not in"},
        {"\"model\": ", "\"model\": \"x\", \"model\": ", "duplicate"},
    };
    char *text = NULL;
    part_profile *back = NULL;
    graph *g = tiny_gpt2(1);
    part_profile *profile = modelled(g, "h100");
    assert_int_equal(part_profile_json(profile, &text), ATOM_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *bad = swap_text(text, wrong[i][0], wrong[i][1]);
        assert_int_equal(part_profile_parse("p.json", bad, strlen(bad), &back), ATOM_E_FORMAT);
        if (!strstr(atom_fail_message(), wrong[i][2]) || !strstr(atom_fail_message(), "p.json"))
            fail_msg("%zu: %s", i, atom_fail_message());
        assert_null(back);
        atom_free(bad);
    }
    for (size_t n = 0; n + 2 < strlen(text); n += 7) {
        assert_int_equal(part_profile_parse("p.json", text, n, &back), ATOM_E_FORMAT);
        assert_null(back);
    }
    atom_free(text);
    part_profile_close(&profile);
    graph_close(&g);
}

static void survives_want_of_memory(void **state)
{
    (void)state;
    graph *g = tiny_gpt2(1);
    part_device device = spec("rtx-4090");
    char *text = NULL;
    part_profile *profile = NULL;
    uint64_t before = atom_mem_read().live_blocks;
    atom_status st = ATOM_E_RESOURCE;
    for (uint64_t n = 1; st != ATOM_OK; n++) {
        atom_mem_fail_after(n);
        st = part_profile_model(g, &device, &profile);
        if (st == ATOM_OK)
            st = part_profile_json(profile, &text);
        atom_mem_fail_after(0);
        if (st != ATOM_OK)
            assert_int_equal(st, ATOM_E_RESOURCE);
        atom_free(text);
        text = NULL;
        part_profile_close(&profile);
        assert_int_equal(atom_mem_read().live_blocks, before);
        assert_true(n < 1000);
    }
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_alike_nodes_once),
        cmocka_unit_test(models_a_roofline),
        cmocka_unit_test(models_attention_apart),
        cmocka_unit_test(refuses_a_dtype_the_device_lacks),
        cmocka_unit_test(ships_specs),
        cmocka_unit_test(models_the_classifiers_scratch),
        cmocka_unit_test(reads_specs_strictly),
        cmocka_unit_test(reads_back_the_same_bits),
        cmocka_unit_test(reads_profiles_without_gains),
        cmocka_unit_test(falls_in_a_straight_line),
        cmocka_unit_test(reads_profiles_strictly),
        cmocka_unit_test(survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
