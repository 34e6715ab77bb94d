/*
 * The decoder against the plain forward pass over the whole text, for random models and random ways
 * to cut the text into feeds; through a device budget against in place, bit for bit; want of
 * memory.
 */
#include "atom/generate/decode.h"

#include "atom/train/init.h"
#include "tests/lib/gpt2_forward.h"
#include "tests/lib/random_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

enum { TEXT_MAX = 400 };

typedef struct model {
    graph_config config;
    graph *g;
    void *params;
    atom_threads *threads;
    int32_t text[TEXT_MAX];
} model;

static model *model_open(const graph_config *config, atom_dtype dtype, uint64_t seed)
{
    model *m = atom_alloc(1, sizeof *m);
    graph *plain = NULL;
    assert_non_null(m);
    m->config = *config;
    m->config.embd_pdrop = m->config.attn_pdrop = m->config.resid_pdrop = 0;
    assert_int_equal(graph_model_build(&m->config, dtype, 1, 1, &plain), ATOM_OK);
    assert_int_equal(graph_fuse(plain, &m->g), ATOM_OK);
    graph_close(&plain);
    uint64_t n = m->g->param_extent;
    float *wide = atom_alloc(n, sizeof *wide);
    m->params = atom_alloc(n, atom_dtype_bytes(dtype));
    train_init_weights(m->g, seed, wide);
    for (uint64_t i = 0; i < n; i++) {
        if (dtype == ATOM_F32)
            ((float *)m->params)[i] = wide[i];
        else
            ((atom_bf16 *)m->params)[i] = atom_f32_to_bf16(wide[i]);
    }
    atom_free(wide);
    assert_int_equal(atom_threads_open(2, &m->threads), ATOM_OK);
    for (int64_t i = 0; i < TEXT_MAX; i++)
        m->text[i] =
            (int32_t)random_gpt2_draw(seed, (uint64_t)(1000 + i), 0, config->vocab_size - 1);
    return m;
}

static void model_close(model *m)
{
    atom_threads_close(&m->threads);
    graph_close(&m->g);
    atom_free(m->params);
    atom_free(m);
}

static atom_status open_decoder(const model *m, uint64_t budget, int64_t room, dev **device,
                                generate_decoder **d)
{
    dev_cpu_config config = {.budget_bytes = budget};
    assert_int_equal(dev_cpu_open(&config, m->threads, device), ATOM_OK);
    generate_decoder_config c = {.g = m->g,
                                 .table = krn_cpu_table(m->g->dtype),
                                 .decode = krn_cpu_decode_table(m->g->dtype),
                                 .threads = m->threads,
                                 .device = *device,
                                 .params = m->params,
                                 .room = room};
    *d = NULL;
    atom_status st = generate_decoder_open(&c, d);
    if (st != ATOM_OK)
        dev_close(device);
    return st;
}

static void close_decoder(dev **device, generate_decoder **d)
{
    generate_decoder_close(d);
    assert_null(*d);
    assert_int_equal((*device)->used_bytes, 0);
    dev_close(device);
}

/* ||a - b|| / ||b|| of one row of logits; b in act. */
static double distance(const model *m, const float *a, const void *b, int64_t row)
{
    double diff = 0, norm = 0;
    int64_t V = m->config.vocab_size;
    for (int64_t i = 0; i < V; i++) {
        int64_t at = row * V + i;
        double y = m->g->dtype == ATOM_F32 ? (double)((const float *)b)[at]
                                           : (double)atom_bf16_to_f32(((const atom_bf16 *)b)[at]);
        diff += ((double)a[i] - y) * ((double)a[i] - y);
        norm += y * y;
    }
    return sqrt(diff / norm);
}

/* Feeds `n` tokens in random pieces, compares the logits after each with the whole text's. */
static double worst_distance(const model *m, generate_decoder *d, const void *want, int64_t n,
                             uint64_t seed)
{
    double worst = 0;
    for (int64_t at = 0, turn = 0; at < n; turn++) {
        bool single = random_gpt2_draw(seed, (uint64_t)(50 + turn), 0, 2) != 0;
        int64_t some = single ? 1 : random_gpt2_draw(seed, (uint64_t)(80 + turn), 1, n - at);
        assert_int_equal(generate_decoder_feed(d, m->text + at, some), ATOM_OK);
        at += some;
        assert_int_equal(generate_decoder_past(d), at);
        double one = distance(m, generate_decoder_logits(d), want, at - 1);
        worst = one > worst ? one : worst;
    }
    return worst;
}

static void check_model(uint64_t seed, atom_dtype dtype, double limit)
{
    random_gpt2 r = random_model_make(seed);
    if (r.config.long_rope.original) /* one list of divisors at all lengths */
        r.config.long_rope.original = r.config.positions;
    model *m = model_open(&r.config, dtype, seed);
    gpt2_forward f = gpt2_forward_open(&m->config, dtype, r.T, m->params);
    const void *want = gpt2_forward_logits(&f, m->text);
    dev *device;
    generate_decoder *d;
    assert_int_equal(open_decoder(m, 0, r.T, &device, &d), ATOM_OK);
    for (uint64_t i = 0; i < 3; i++) { /* a used cache is as good as a new one */
        double worst = worst_distance(m, d, want, r.T, seed + i);
        if (!(worst <= limit))
            fail_msg("seed %llu: %g", (unsigned long long)seed, worst);
        generate_decoder_reset(d);
    }
    close_decoder(&device, &d);
    gpt2_forward_close(&f);
    model_close(m);
}

static void test_equals_forward(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        check_model(seed, ATOM_F32, 1e-5);
        check_model(seed, ATOM_BF16, 3e-2);
    }
}

static graph_config long_config(void)
{
    return (graph_config){.name = "long",
                          .vocab_size = 131,
                          .positions = 384,
                          .width = 32,
                          .layers = 2,
                          .heads = 2,
                          .inner = 64,
                          .epsilon = 1e-5f,
                          .init_std = 0.2f};
}

/* More than one chunk, more than one block of keys. */
static void check_long(graph_config config)
{
    model *m = model_open(&config, ATOM_F32, 5);
    gpt2_forward f = gpt2_forward_open(&m->config, ATOM_F32, 384, m->params);
    const void *want = gpt2_forward_logits(&f, m->text);
    dev *device;
    generate_decoder *d;
    assert_int_equal(open_decoder(m, 0, 384, &device, &d), ATOM_OK);
    assert_int_equal(generate_decoder_feed(d, m->text, 300), ATOM_OK);
    assert_true(distance(m, generate_decoder_logits(d), want, 299) < 1e-5);
    for (int64_t i = 300; i < 384; i++) {
        assert_int_equal(generate_decoder_feed(d, m->text + i, 1), ATOM_OK);
        assert_true(distance(m, generate_decoder_logits(d), want, i) < 1e-5);
    }
    close_decoder(&device, &d);
    gpt2_forward_close(&f);
    model_close(m);
}

static void test_long_text(void **state)
{
    graph_config c;
    (void)state;
    check_long(long_config());
    graph_family_defaults(GRAPH_QWEN3, &c);
    c.vocab_size = 131;
    c.positions = 384;
    c.width = 32;
    c.layers = 2;
    c.heads = 4;
    c.kv_heads = 2;
    c.head_dim = 12;
    c.inner = 60;
    c.init_std = 0.2f;
    check_long(c);
}

/* --- through the device ----------------------------------------------------------------------- */

static void feed_all(const model *m, generate_decoder *d, int64_t n, float *logits)
{
    int64_t V = m->config.vocab_size;
    assert_int_equal(generate_decoder_feed(d, m->text, n / 2), ATOM_OK);
    for (int64_t i = n / 2; i < n; i++) {
        assert_int_equal(generate_decoder_feed(d, m->text + i, 1), ATOM_OK);
        memcpy(logits + i * V, generate_decoder_logits(d), (size_t)V * sizeof *logits);
    }
}

typedef struct swap_counts {
    int most, some, none; /* decoders that kept little, something or all on the device */
} swap_counts;

static void check_budgets(const model *m, int64_t n, swap_counts *counts)
{
    int64_t V = m->config.vocab_size;
    float *want = atom_alloc((size_t)(n * V), sizeof *want);
    float *got = atom_alloc((size_t)(n * V), sizeof *got);
    dev *device;
    generate_decoder *d;
    uint64_t params = m->g->param_extent * atom_dtype_bytes(m->g->dtype);
    bool streamed = true;
    assert_int_equal(open_decoder(m, 0, n, &device, &d), ATOM_OK);
    feed_all(m, d, n, want);
    close_decoder(&device, &d);
    for (uint64_t budget = 4096; streamed; budget += budget / 7) {
        atom_status st = open_decoder(m, budget, n, &device, &d);
        if (st != ATOM_OK) {
            assert_int_equal(st, ATOM_E_RESOURCE);
            assert_non_null(strstr(atom_fail_message(), "device_memory"));
            continue;
        }
        generate_decoder_info info = generate_decoder_get_info(d);
        streamed = info.streamed_bytes > 0;
        counts->most += info.resident_bytes < info.streamed_bytes / 4;
        counts->some += streamed && info.resident_bytes > 0;
        counts->none += !streamed;
        assert_true(info.streamed_bytes + info.resident_bytes <= params);
        feed_all(m, d, n, got);
        assert_memory_equal(got, want, (size_t)(n * V) * sizeof *got);
        generate_decoder_reset(d); /* and again, with fetches under way */
        memset(got, 0, (size_t)(n * V) * sizeof *got);
        feed_all(m, d, n, got);
        assert_memory_equal(got, want, (size_t)(n * V) * sizeof *got);
        assert_true(device->peak_bytes <= budget);
        close_decoder(&device, &d);
    }
    atom_free(want);
    atom_free(got);
}

static void test_budgets(void **state)
{
    swap_counts counts = {0};
    (void)state;
    for (uint64_t seed = 3; seed <= 10; seed++) {
        random_gpt2 r = random_model_make(seed);
        r.config.layers += 3;
        r.config.positions = 24;
        model *m = model_open(&r.config, seed % 2 ? ATOM_F32 : ATOM_BF16, seed);
        check_budgets(m, 9, &counts);
        model_close(m);
    }
    assert_true(counts.most > 0 && counts.some > 0 && counts.none > 0);
}

/* Threads change nothing. */
static void test_threads(void **state)
{
    graph_config config = long_config();
    model *m = model_open(&config, ATOM_F32, 6);
    float *one = atom_alloc(20 * 131, sizeof *one), *four = atom_alloc(20 * 131, sizeof *four);
    dev *device;
    generate_decoder *d;
    (void)state;
    for (int i = 0; i < 2; i++) {
        atom_threads_close(&m->threads);
        assert_int_equal(atom_threads_open(i ? 4 : 1, &m->threads), ATOM_OK);
        assert_int_equal(open_decoder(m, 0, 20, &device, &d), ATOM_OK);
        feed_all(m, d, 20, i ? four : one);
        close_decoder(&device, &d);
    }
    assert_memory_equal(one, four, 20 * 131 * sizeof *one);
    atom_free(one);
    atom_free(four);
    model_close(m);
}

/* --- what goes wrong -------------------------------------------------------------------------- */

static void test_refuses_other_graphs(void **state)
{
    random_gpt2 r = random_gpt2_make(1);
    model *m = model_open(&r.config, ATOM_F32, 1);
    dev *device;
    generate_decoder *d;
    (void)state;
    graph_close(&m->g);
    assert_int_equal(graph_gpt2_build(&m->config, ATOM_F32, 1, 1, &m->g), ATOM_OK); /* unfused */
    assert_int_equal(open_decoder(m, 0, 1, &device, &d), ATOM_E_UNSUPPORTED);
    graph_close(&m->g);
    assert_int_equal(graph_gpt2_build(&m->config, ATOM_F32, 2, 1, &m->g), ATOM_OK);
    assert_int_equal(open_decoder(m, 0, 1, &device, &d), ATOM_E_UNSUPPORTED);
    model_close(m);
}

static void test_out_of_memory(void **state)
{
    random_gpt2 r = random_gpt2_make(2);
    model *m = model_open(&r.config, ATOM_F32, 2);
    (void)state;
    atom_threads_close(&m->threads); /* no workers: they free their own start-up blocks */
    assert_int_equal(atom_threads_open(1, &m->threads), ATOM_OK);
    for (int swaps = 0; swaps < 2; swaps++) {
        uint64_t live = atom_mem_read().live_bytes;
        atom_status st = ATOM_E_RESOURCE;
        for (uint64_t n = 1; st != ATOM_OK; n++) {
            dev_cpu_config config = {.budget_bytes = swaps ? 1 << 20 : 0};
            dev *device;
            generate_decoder *d = NULL;
            assert_int_equal(dev_cpu_open(&config, m->threads, &device), ATOM_OK);
            generate_decoder_config c = {.g = m->g,
                                         .table = krn_cpu_table(ATOM_F32),
                                         .decode = krn_cpu_decode_table(ATOM_F32),
                                         .threads = m->threads,
                                         .device = device,
                                         .params = m->params,
                                         .room = 1};
            atom_mem_fail_after(n);
            st = generate_decoder_open(&c, &d);
            atom_mem_fail_after(0);
            assert_true(st == ATOM_OK || st == ATOM_E_RESOURCE);
            assert_true((d != NULL) == (st == ATOM_OK));
            generate_decoder_close(&d);
            dev_close(&device);
            assert_int_equal(atom_mem_read().live_bytes, live);
            assert_true(n < 1000);
        }
    }
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_forward),
        cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_refuses_other_graphs),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
