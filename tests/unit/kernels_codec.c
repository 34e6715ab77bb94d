/* Codecs on values: the error that the header promises, the bytes that are said, values that are
 * not finite, and the same places for whoever knows the seed. */
#include "kernels/kernels.h"
#include "kernels/ref/codec.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const atom_codec codecs[] = {
    {ATOM_CODEC_INT8, 1},    {ATOM_CODEC_INT4, 1},       {ATOM_CODEC_INT2, 1},
    {ATOM_CODEC_TOPK, 0.1f}, {ATOM_CODEC_TOPK, 0.01f},   {ATOM_CODEC_TOPK, 1},
    {ATOM_CODEC_RANDOMK, 1}, {ATOM_CODEC_RANDOMK, 0.3f},
};
enum { CODECS = sizeof codecs / sizeof *codecs, MOST = ATOM_CODEC_SPARSE_BLOCK };

/* Normal numbers of many sizes and offsets, some blocks with outliers, one of zeros, one tiny. */
static void fill(uint32_t trial, int64_t n, float *x)
{
    atom_rng_key key = {.seed = 11, .node = trial};
    static const double sizes[] = {1, 1e-3, 1e4, 1e-20, 1e30, 0, 1e-38, 1e-42};
    double size = sizes[trial % 8], offset = trial % 3 == 1 ? 50 * size : 0;
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)(offset + size * atom_rng_normal(key, (uint64_t)i));
        if (trial % 5 == 2 && i % 41 == 7)
            x[i] *= 60;
    }
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits & 0x7fffffffu;
}

/* As kernels/ref/codec.h says it. */
static void check_steps(atom_codec codec, const float *x, const float *y, int64_t n)
{
    double lo = (double)x[0], hi = lo, most = 0;
    for (int64_t i = 0; i < n; i++) {
        lo = fmin(lo, (double)x[i]);
        hi = fmax(hi, (double)x[i]);
        most = fmax(most, fabs((double)x[i]));
    }
    double step = (hi - lo) / ((1 << atom_codec_bits(codec.kind)) - 1);
    double bound = step * (0.5 + 0x1p-10) + 0x1p-23 * most;
    if (step <= (double)FLT_MIN * 1.001)
        bound = 255.3 * (double)FLT_MIN;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)x[i] - (double)y[i]) <= bound))
            fail_msg("%s: %g became %g, and the bound is %g", atom_codec_names[codec.kind],
                     (double)x[i], (double)y[i], bound);
}

static void check_chosen(atom_codec codec, const float *x, const float *y, int64_t n)
{
    int64_t kept = 0, zeros = 0;
    uint32_t least = UINT32_MAX, left = 0;
    for (int64_t i = 0; i < n; i++) {
        float sent = atom_bf16_to_f32(atom_f32_to_bf16(x[i]));
        bool is_sent = bits_of(y[i]) != 0;
        assert_true(!is_sent || bits_of(y[i]) == bits_of(sent));
        kept += is_sent;
        zeros += bits_of(sent) == 0;
        if (is_sent && bits_of(x[i]) < least)
            least = bits_of(x[i]);
        if (!is_sent && bits_of(x[i]) > left)
            left = bits_of(x[i]);
    }
    assert_true(kept <= atom_codec_kept(codec.share, n));
    assert_true(kept + zeros >= atom_codec_kept(codec.share, n));
    if (codec.kind == ATOM_CODEC_TOPK && kept > 0 && zeros == 0)
        assert_true(left <= least);
}

static void bounds_and_bytes(void **state)
{
    static const int64_t sizes[] = {1, 2, 3, 7, 31, 64, 127, 128};
    static float x[MOST], y[MOST];
    static uint32_t words[MOST];
    static uint8_t bytes[REF_CODEC_BYTES_MAX + 1];
    (void)state;
    for (uint32_t trial = 0; trial < 480; trial++) {
        atom_codec codec = codecs[trial % CODECS];
        bool steps = atom_codec_bits(codec.kind) != 0;
        int64_t n = sizes[trial / 8 % 8];
        if (!steps && trial / 64 % 2)
            n = MOST - n + 1;
        fill(trial / 8, n, x);
        for (int64_t i = 0; i < n; i++)
            words[i] = atom_rng_u32((atom_rng_key){.seed = trial}, (uint64_t)i);
        uint64_t said = atom_codec_row_bytes(codec, n);
        memset(bytes, 0xa5, sizeof bytes);
        assert_int_equal(ref_codec_encode(codec, x, n, words, bytes), said);
        assert_int_equal(bytes[said], 0xa5);
        ref_codec_decode(codec, bytes, n, words, y);
        if (steps)
            check_steps(codec, x, y, n);
        else
            check_chosen(codec, x, y, n);
    }
}

/* What has diverged must not look healthy at the other end. */
static void not_finite(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    float x[128], y[128];
    uint8_t bytes[REF_CODEC_BYTES_MAX];
    (void)state;
    for (int c = 0; codecs[c].kind <= ATOM_CODEC_TOPK && c < CODECS; c++)
        for (int b = 0; b < 3; b++) {
            bool seen = false;
            fill(0, 128, x);
            x[77] = bad[b];
            (void)ref_codec_encode(codecs[c], x, 128, NULL, bytes);
            ref_codec_decode(codecs[c], bytes, 128, NULL, y);
            for (int i = 0; i < 128; i++)
                seen |= !isfinite(y[i]);
            assert_true(seen);
        }
}

/* The operator with the CPU's kernels on a block of NaN, and with a range beyond f32. */
static void not_finite_on_the_cpu(void **state)
{
    static float x[256], y[256];
    krn_step step = {.seed = 1, .step = 1};
    krn_ctx cx = {.step = &step};
    (void)state;
    for (int kind = ATOM_CODEC_INT8; kind <= ATOM_CODEC_TOPK; kind++)
        for (int what = 0; what < 2; what++) {
            fill(0, 256, x);
            x[200] = what ? FLT_MAX : NAN;
            x[201] = what ? -FLT_MAX : 0;
            krn_args args = {.buf = {x, y}, .dim = {1, 256, kind}, .scale = 1};
            krn_cpu_table(ATOM_F32)->fwd[ATOM_OP_compress](&cx, &args);
            if (kind != ATOM_CODEC_TOPK) {
                for (int i = 0; i < 256; i++)
                    assert_int_equal(isnan(y[i]) != 0, i >= 128);
            } else {
                assert_true(!isfinite(y[200])); /* in bf16 the largest f32 is infinite */
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bounds_and_bytes),
                                       cmocka_unit_test(not_finite),
                                       cmocka_unit_test(not_finite_on_the_cpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
