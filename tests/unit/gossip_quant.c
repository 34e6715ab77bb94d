/*
 * Codecs and the owner's sum: bounds, bits against loops written the slow way, error feedback, and
 * refusals of what no encoder writes.
 */
#include "gossip/sum/reduce.h"

#include "atom/base/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static uint64_t state = 1;
static float draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(state >> 11) / 9007199254740992.0 * 2.0 - 1.0);
}

static float *random_floats(uint64_t n, float scale)
{
    float *x = malloc((n + 1) * sizeof *x);
    for (uint64_t i = 0; i < n; i++)
        x[i] = draw() * scale * expf(4.0f * draw());
    return x;
}

static const uint64_t sizes[] = {0, 1, 2, 15, 16, 17, 4095, 4096, 4097, 3 * 4096 + 5};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void fp32_is_exact(void **unused)
{
    (void)unused;
    for (int s = 0; s < SIZES; s++) {
        uint64_t n = sizes[s];
        float *x = random_floats(n, 1.0f), *y = random_floats(n, 1.0f);
        void *out = malloc(4 * n + 4);
        gsp_encode(GSP_CODEC_FP32, x, n, NULL, out, NULL);
        assert_true(gsp_decode(GSP_CODEC_FP32, out, 4 * n, y, n));
        assert_memory_equal(x, y, n * 4);
        free(x);
        free(y);
        free(out);
    }
}

static void bf16_rounds_to_nearest_even(void **unused)
{
    (void)unused;
    enum { N = 70000 };
    float *x = random_floats(N, 1e3f), *y = malloc(N * 4);
    atom_bf16 *out = malloc(N * 2);
    gsp_encode(GSP_CODEC_BF16, x, N, NULL, out, NULL);
    assert_true(gsp_decode(GSP_CODEC_BF16, out, N * 2, y, N));
    for (int i = 0; i < N; i++) {
        assert_int_equal(out[i], atom_f32_to_bf16(x[i]));
        assert_true(fabsf(x[i] - y[i]) <= fabsf(x[i]) / 256.0f);
    }
    free(x);
    free(y);
    free(out);
}

/* The specification, an element at a time. */
static int8_t slow_int8(float x, float most)
{
    return (int8_t)nearbyintf(x * (127.0f / most));
}

static void int8_stays_in_its_bound(void **unused)
{
    (void)unused;
    for (int s = 0; s < SIZES; s++) {
        uint64_t n = sizes[s], blocks = (n + GSP_INT8_BLOCK - 1) / GSP_INT8_BLOCK;
        float *x = random_floats(n, 3.0f), *y = random_floats(n, 1.0f);
        uint64_t bytes = gsp_codec_bytes(GSP_CODEC_INT8, n);
        char *out = malloc(bytes + 4);
        assert_int_equal(bytes, n + 4 * blocks);
        gsp_encode(GSP_CODEC_INT8, x, n, NULL, out, NULL);
        assert_true(gsp_decode(GSP_CODEC_INT8, out, bytes, y, n));
        for (uint64_t b = 0; b < blocks; b++) {
            float most = 0.0f;
            uint64_t end = n < (b + 1) * GSP_INT8_BLOCK ? n : (b + 1) * GSP_INT8_BLOCK;
            for (uint64_t i = b * GSP_INT8_BLOCK; i < end; i++)
                most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
            for (uint64_t i = b * GSP_INT8_BLOCK; i < end; i++) {
                assert_int_equal((int8_t)out[4 * blocks + i], slow_int8(x[i], most));
                assert_true(fabsf(x[i] - y[i]) <= most / 127.0f * 0.5f * (1.0f + 0x1p-10f));
            }
        }
        free(x);
        free(y);
        free(out);
    }
}

static void zeros_and_tiny_blocks_are_zeros(void **unused)
{
    (void)unused;
    float x[100] = {0}, y[100];
    char out[104];
    for (int pass = 0; pass < 2; pass++) {
        memset(y, 0xff, sizeof y);
        gsp_encode(GSP_CODEC_INT8, x, 100, NULL, out, NULL);
        assert_true(gsp_decode(GSP_CODEC_INT8, out, 104, y, 100));
        for (int i = 0; i < 100; i++)
            assert_true(y[i] == 0.0f);
        x[7] = 1e-42f;
    }
}

/* With its residual, what was sent over many rounds sums to what was meant. */
static void error_feedback_loses_nothing_for_good(void **unused)
{
    (void)unused;
    enum { N = 5000, ROUNDS = 200 };
    float *x = random_floats(N, 1.0f), *residual = calloc(N, 4), *y = malloc(N * 4);
    double *sent = calloc(N, sizeof *sent);
    uint64_t bytes = gsp_codec_bytes(GSP_CODEC_INT8, N);
    char *out = malloc(bytes);
    float most = 0.0f;
    for (int i = 0; i < N; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    for (int r = 0; r < ROUNDS; r++) {
        gsp_encode(GSP_CODEC_INT8, x, N, residual, out, residual);
        assert_true(gsp_decode(GSP_CODEC_INT8, out, bytes, y, N));
        for (int i = 0; i < N; i++)
            sent[i] += (double)y[i];
    }
    for (int i = 0; i < N; i++) /* one step of quantisation in all, not one per round */
        assert_true(fabs(sent[i] - (double)x[i] * ROUNDS) <= (double)most / 127.0 + 1e-3);
    free(x);
    free(residual);
    free(y);
    free(sent);
    free(out);
}

static void hostile_bytes_are_refused(void **unused)
{
    (void)unused;
    float bad[3] = {INFINITY, NAN, -INFINITY}, x[10];
    uint16_t wide[10] = {0};
    char block[14] = {0};
    for (int i = 0; i < 3; i++) {
        float in[10] = {0};
        in[9] = bad[i];
        assert_false(gsp_all_finite(in, 10));
        assert_false(gsp_decode(GSP_CODEC_FP32, in, 40, x, 10));
        memcpy(block, &bad[i], 4);
        assert_false(gsp_decode(GSP_CODEC_INT8, block, 14, x, 10));
        wide[3] = atom_f32_to_bf16(bad[i]);
        assert_false(gsp_decode(GSP_CODEC_BF16, wide, 20, x, 10));
    }
    float scale = -1.0f;
    memcpy(block, &scale, 4);
    assert_false(gsp_decode(GSP_CODEC_INT8, block, 14, x, 10));
    scale = 3e38f; /* times 127 is not finite */
    memcpy(block, &scale, 4);
    block[4] = 127;
    assert_false(gsp_decode(GSP_CODEC_INT8, block, 14, x, 10));
    assert_false(gsp_decode(GSP_CODEC_INT8, block, 13, x, 10));
    assert_false(gsp_decode(GSP_CODEC_FP32, x, 40, x, 1ull << 62));
    assert_false(gsp_decode((gsp_codec)99, x, 40, x, 10));
}

/* Key order, weights as shares of an integer total: the same bits as a plain loop. */
static void sums_have_the_bits_of_the_plain_loop(void **unused)
{
    (void)unused;
    enum { N = 9001, PEERS = 5 };
    const uint64_t weight[PEERS] = {1, 1000003, 77, 5000000000u, 12};
    uint64_t total = 0;
    float *x[PEERS], *sum = malloc(N * 4), *scratch = malloc(N * 4), *want = malloc(N * 4);
    for (int p = 0; p < PEERS; p++) {
        total += weight[p];
        x[p] = random_floats(N, 2.0f);
    }
    for (int p = 0; p < PEERS; p++) {
        assert_true(
            gsp_reduce_add(GSP_CODEC_FP32, x[p], N * 4, weight[p], total, p == 0, sum, scratch, N));
        float share = (float)((double)weight[p] / (double)total);
        for (int i = 0; i < N; i++) {
            volatile float product = share * x[p][i];
            want[i] = p ? want[i] + product : product;
        }
    }
    assert_memory_equal(sum, want, N * 4);
    x[2][8] = NAN; /* leaves no trace */
    assert_false(gsp_reduce_add(GSP_CODEC_FP32, x[2], N * 4, 1, total, false, sum, scratch, N));
    assert_memory_equal(sum, want, N * 4);
    /* everybody decodes what the owner sent to the floats that the owner has */
    char *out = malloc(gsp_codec_bytes(GSP_CODEC_INT8, N));
    double norm = 0.0;
    assert_true(gsp_reduce_finish(GSP_CODEC_INT8, sum, N, out, &norm));
    assert_true(gsp_decode(GSP_CODEC_INT8, out, gsp_codec_bytes(GSP_CODEC_INT8, N), scratch, N));
    assert_memory_equal(sum, scratch, N * 4);
    double squares = 0.0;
    for (int i = 0; i < N; i++)
        squares += (double)sum[i] * (double)sum[i];
    assert_true(fabs(norm - sqrt(squares)) < 1e-9 * norm);
    for (int p = 0; p < PEERS; p++)
        free(x[p]);
    free(sum);
    free(scratch);
    free(want);
    free(out);
}

static void names_go_both_ways(void **unused)
{
    (void)unused;
    gsp_codec codec;
    for (int i = 0; i < GSP_CODEC_N; i++) {
        assert_true(gsp_codec_parse(gsp_codec_name((gsp_codec)i), &codec));
        assert_int_equal(codec, i);
    }
    assert_false(gsp_codec_parse("int9", &codec));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fp32_is_exact),
                                       cmocka_unit_test(bf16_rounds_to_nearest_even),
                                       cmocka_unit_test(int8_stays_in_its_bound),
                                       cmocka_unit_test(zeros_and_tiny_blocks_are_zeros),
                                       cmocka_unit_test(error_feedback_loses_nothing_for_good),
                                       cmocka_unit_test(hostile_bytes_are_refused),
                                       cmocka_unit_test(sums_have_the_bits_of_the_plain_loop),
                                       cmocka_unit_test(names_go_both_ways)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
