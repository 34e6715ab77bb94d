/*
 * Owns the tests of the host loops, which have the same bits everywhere
 * (docs/design/engine.md#the-same-bits): AdamW, rounding to wire and sums of squares against ref,
 * over lengths around chunks and lanes, with zeros, subnormals and huge values; and ref's AdamW
 * itself against the textbook in f64.
 */
#include "tests/ops/checkop.h"

#include "atom/base/assert.h"
#include "kernels/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, ARRAYS = 4 }; /* wire, master, m, v */

static const uint64_t lengths[] = {1, 7, 16, 31, 1000, 65535, 65536, 65537, 150001};
enum { LENGTHS = sizeof lengths / sizeof lengths[0] };

static float special(uint64_t i, float usual)
{
    static const float values[] = {0.0f, -0.0f, 1e-42f, -3e-39f, 1e18f, 1.0f, -1.00390625f, 3e-20f};
    return i % 11 == 3 ? values[i / 11 % 8] : usual;
}

static float normal(uint32_t node, uint64_t i)
{
    atom_rng_key key = {.seed = 5, .node = node};
    return (float)atom_rng_normal(key, i);
}

/* Behind the counter's low word, and not at the start of a vector of any width. */
static const uint64_t FIRST = ((uint64_t)5 << 34) + 3 * KRN_DRAW_ALIGN;

static krn_adamw_step adamw_step(int step, float scale, float decay)
{
    double b1 = 0.9, b2 = 0.95;
    return (krn_adamw_step){.scale = scale,
                            .beta1 = (float)b1,
                            .one_minus_beta1 = (float)(1 - b1),
                            .beta2 = (float)b2,
                            .one_minus_beta2 = (float)(1 - b2),
                            .inv_bias1 = (float)(1 / (1 - pow(b1, step))),
                            .inv_sqrt_bias2 = (float)(1 / sqrt(1 - pow(b2, step))),
                            .eps = 1e-8f,
                            .lr = 3e-3f,
                            .decay = decay,
                            .rng = {.seed = 11, .step = (uint32_t)step, .node = KRN_RNG_MOMENTS},
                            .first = FIRST};
}

/* A fresh copy between guards of the same bytes before and after. */
typedef struct copy {
    uint8_t *block;
    size_t bytes;
} copy;
enum { GUARD = 256 };

static copy copy_new(const void *data, size_t bytes)
{
    copy c = {aligned_alloc(256, (bytes + 2 * GUARD + 255) & ~(size_t)255), bytes};
    ATOM_ASSERT(c.block);
    memset(c.block, 0xa5, (bytes + 2 * GUARD + 255) & ~(size_t)255);
    memcpy(c.block + GUARD, data, bytes);
    return c;
}

static bool copy_whole(const copy *c)
{
    for (int i = 0; i < GUARD; i++) {
        if (c->block[i] != 0xa5 || c->block[GUARD + c->bytes + (size_t)i] != 0xa5)
            return false;
    }
    return true;
}

/* Runs STEPS updates on copies of the state; gradients differ per step. Results go to out[]. */
static bool run_adamw(const krn_host_table *table, atom_threads *threads, krn_adamw_kinds kinds,
                      uint64_t n, float *const state[ARRAYS], copy out[ARRAYS])
{
    const atom_dtype of[ARRAYS] = {kinds.wire, ATOM_F32, kinds.moments, kinds.moments};
    const atom_dtype wire = kinds.wire;
    for (int i = 0; i < ARRAYS; i++) {
        out[i] = copy_new(state[i], n * atom_dtype_bytes(of[i]));
        for (uint64_t e = 0; e < n; e++)
            tensor_put(of[i], out[i].block + GUARD, (int64_t)e, (double)state[i][e]);
    }
    for (int step = 1; step <= STEPS; step++) {
        krn_adamw_step s = adamw_step(step, step == 2 ? 0.37f : 1.0f, step == 3 ? 0.0f : 0.1f);
        s.moments = kinds.moments;
        for (uint64_t i = 0; i < n; i++)
            tensor_put(wire, out[0].block + GUARD, (int64_t)i,
                       (double)special(i + (uint64_t)step, 0.1f * normal((uint32_t)step, i)));
        table->adamw(threads, &s, wire, out[0].block + GUARD, (float *)(out[1].block + GUARD),
                     out[2].block + GUARD, out[3].block + GUARD, n);
    }
    bool whole = true;
    for (int i = 0; i < ARRAYS; i++)
        whole &= copy_whole(&out[i]);
    return whole;
}

static void free_copies(copy out[ARRAYS])
{
    for (int i = 0; i < ARRAYS; i++)
        free(out[i].block);
}

static void check_adamw(report *r, const krn_host_table *table, atom_threads *const threads[3],
                        krn_adamw_kinds kinds, uint64_t n)
{
    static const char *const names[ARRAYS] = {"wire", "master", "m", "v"};
    float *state[ARRAYS];
    for (int i = 0; i < ARRAYS; i++) {
        state[i] = calloc(n, sizeof(float));
        ATOM_ASSERT(state[i]);
        for (uint64_t e = 0; e < n && i; e++) {
            float x = special(e + (uint64_t)i, 0.3f * normal(20 + (uint32_t)i, e));
            state[i][e] = i == 3 ? fabsf(x) : x;
        }
    }
    copy want[ARRAYS], got[ARRAYS];
    (void)run_adamw(krn_ref_host_table(), NULL, kinds, n, state, want);
    for (int t = 0; t < 3; t++) {
        if (!run_adamw(table, threads[t], kinds, n, state, got))
            report_fail(r, NULL, false, "adamw %s n=%llu wrote outside",
                        atom_dtype_name(kinds.wire), (unsigned long long)n);
        for (int i = 0; i < ARRAYS; i++) {
            if (memcmp(want[i].block, got[i].block, want[i].bytes + 2 * GUARD) != 0)
                report_fail(r, NULL, false,
                            "adamw %s, moments %s, n=%llu, %d threads: %s differs from ref",
                            atom_dtype_name(kinds.wire), atom_dtype_name(kinds.moments),
                            (unsigned long long)n, t + 1, names[i]);
        }
        free_copies(got);
        r->checked++;
    }
    free_copies(want);
    for (int i = 0; i < ARRAYS; i++)
        free(state[i]);
}

/* Loshchilov and Hutter 2019, algorithm 2, in f64, against ref after three steps. */
static void check_textbook(report *r)
{
    enum { N = 500 };
    float wire[N], master[N], m[N] = {0}, v[N] = {0};
    double p[N], m64[N] = {0}, v64[N] = {0};
    for (int i = 0; i < N; i++)
        p[i] = (double)(master[i] = normal(50, (uint64_t)i));
    for (int step = 1; step <= STEPS; step++) {
        krn_adamw_step s = adamw_step(step, 0.5f, 0.1f);
        for (int i = 0; i < N; i++) {
            wire[i] = 0.1f * normal(50 + (uint32_t)step, (uint64_t)i);
            double g = 0.5 * (double)wire[i];
            m64[i] = 0.9 * m64[i] + 0.1 * g;
            v64[i] = 0.95 * v64[i] + 0.05 * g * g;
            double m_hat = m64[i] / (1 - pow(0.9, step)), v_hat = v64[i] / (1 - pow(0.95, step));
            p[i] -= 3e-3 * (m_hat / (sqrt(v_hat) + 1e-8) + 0.1 * p[i]);
        }
        krn_ref_host_table()->adamw(NULL, &s, ATOM_F32, wire, master, m, v, N);
    }
    for (int i = 0; i < N; i++) {
        if (fabs((double)master[i] - p[i]) > 1e-6 || wire[i] != master[i]) {
            report_fail(r, NULL, false, "ref adamw: element %d is %.9g, not %.9g", i,
                        (double)master[i], p[i]);
            return;
        }
    }
}

/* With beta2 = 0.999 the second moment moves by less than half of bf16's last place; rounded to
 * nearest it would stand still at about a quarter. Rounded at random it follows on average: so do
 * both, and neither depends on where in the vector an element is. */
static void check_bf16_moments_move(report *r)
{
    enum { N = 4096, ROUNDS = 3000 };
    static float wire[N], master[N];
    static atom_bf16 m[N], v[N];
    double sum_m = 0, sum_v = 0;
    memset(m, 0, sizeof m);
    memset(v, 0, sizeof v);
    for (int step = 1; step <= ROUNDS; step++) {
        krn_adamw_step s = adamw_step(step, 1.0f, 0.0f);
        s.beta1 = s.beta2 = 0.999f;
        s.one_minus_beta1 = s.one_minus_beta2 = 0.001f;
        s.moments = ATOM_BF16;
        for (int i = 0; i < N; i++)
            wire[i] = 1.0f;
        krn_ref_host_table()->adamw(NULL, &s, ATOM_F32, wire, master, m, v, N);
    }
    for (int i = 0; i < N; i++) {
        sum_m += (double)atom_bf16_to_f32(m[i]);
        sum_v += (double)atom_bf16_to_f32(v[i]);
    }
    double want = 1 - pow(0.999, ROUNDS);
    if (fabs(sum_m / N - want) > 2e-3 || fabs(sum_v / N - want) > 2e-3)
        report_fail(r, NULL, false, "bf16 moments: means %.6g and %.6g, not %.6g", sum_m / N,
                    sum_v / N, want);
    r->checked++;
}

/* Values around ties of bf16 rounding, infinities and NaN among usual ones. */
static float round_value(uint64_t i)
{
    static const uint32_t bits[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff,
                                    0x7f800000, 0xff800000, 0x7fc00001, 0x7f800001,
                                    0x7f7fffff, 0x00000001, 0x80008000, 0x00018000};
    float f = normal(70, i);
    if (i % 5 == 0)
        memcpy(&f, &bits[i / 5 % 12], 4);
    return f;
}

static void check_round(report *r, krn_round_fn round, atom_dtype wire, atom_threads *threads,
                        uint64_t n)
{
    float *src = calloc(n, sizeof *src);
    ATOM_ASSERT(src);
    for (uint64_t i = 0; i < n; i++)
        src[i] = round_value(i);
    krn_ctx cx = {.threads = threads};
    size_t bytes = n * atom_dtype_bytes(wire);
    copy want = copy_new(src, bytes), got = copy_new(src, bytes), source = copy_new(src, n * 4);
    memset(got.block + GUARD, 0x11, bytes);
    krn_ref_host_table()->round[wire](&cx, want.block + GUARD, src, n);
    round(&cx, got.block + GUARD, (const float *)(source.block + GUARD), n);
    for (uint64_t i = 0; i < n && wire == ATOM_BF16; i++) {
        atom_bf16 x = atom_f32_to_bf16(src[i]);
        if (memcmp(want.block + GUARD + i * 2, &x, 2) != 0)
            report_fail(r, NULL, false, "ref round: element %llu", (unsigned long long)i);
    }
    if (memcmp(want.block, got.block, bytes + 2 * GUARD) != 0)
        report_fail(r, NULL, false, "round %s n=%llu differs from ref", atom_dtype_name(wire),
                    (unsigned long long)n);
    if (wire == ATOM_F32) {
        round(&cx, source.block + GUARD, (const float *)(source.block + GUARD), n);
        if (memcmp(want.block, source.block, bytes + 2 * GUARD) != 0)
            report_fail(r, NULL, false, "round fp32 in place n=%llu", (unsigned long long)n);
    }
    r->checked++;
    free(src);
    free(want.block);
    free(got.block);
    free(source.block);
}

static void check_sumsq(report *r, krn_sumsq_fn sumsq, atom_dtype wire, atom_threads *threads,
                        uint64_t n)
{
    enum { CHUNKS_MAX = 4 };
    double want[CHUNKS_MAX], got[CHUNKS_MAX], plain = 0, sum = 0;
    size_t bytes = n * atom_dtype_bytes(wire);
    uint64_t chunks = krn_norm_chunks(n);
    void *x = aligned_alloc(256, (bytes + 255) & ~(size_t)255);
    ATOM_ASSERT(x && chunks < CHUNKS_MAX);
    for (uint64_t i = 0; i < n; i++) {
        tensor_put(wire, x, (int64_t)i, (double)special(i, normal(90, i)));
        plain += pow(tensor_get(wire, x, (int64_t)i), 2);
    }
    krn_ctx cx = {.threads = threads};
    memset(got, 0xff, sizeof got);
    memset(want, 0xff, sizeof want);
    krn_ref_host_table()->sumsq[wire](&cx, want, x, n);
    sumsq(&cx, got, x, n);
    for (uint64_t i = 0; i < chunks; i++)
        sum += want[i];
    if (!(fabs(sum - plain) <= 1e-12 * plain))
        report_fail(r, NULL, false, "ref sumsq: %.17g, not %.17g", sum, plain);
    if (memcmp(want, got, sizeof want) != 0)
        report_fail(r, NULL, false, "sumsq %s n=%llu differs from ref", atom_dtype_name(wire),
                    (unsigned long long)n);
    /* A NaN or an infinity must not get lost: it stops the step. */
    tensor_put(wire, x, (int64_t)(n / 2), NAN);
    sumsq(&cx, got, x, n);
    if (!isnan(got[n / 2 / KRN_NORM_CHUNK]))
        report_fail(r, NULL, false, "sumsq %s loses a NaN", atom_dtype_name(wire));
    tensor_put(wire, x, (int64_t)(n / 2), -INFINITY);
    sumsq(&cx, got, x, n);
    if (!isinf(got[n / 2 / KRN_NORM_CHUNK]))
        report_fail(r, NULL, false, "sumsq %s loses an infinity", atom_dtype_name(wire));
    r->checked++;
    free(x);
}

/* One pass must leave what round, then sumsq, then clearing leave. */
static void check_settle(report *r, const krn_table *table, atom_threads *threads, uint64_t n)
{
    enum { CHUNKS_MAX = 4 };
    double want[CHUNKS_MAX], got[CHUNKS_MAX];
    size_t bytes = n * atom_dtype_bytes(table->dtype);
    float *src = calloc(n, sizeof *src);
    ATOM_ASSERT(src && krn_norm_chunks(n) < CHUNKS_MAX);
    copy wire = copy_new(src, bytes), settled = copy_new(src, bytes), zero = copy_new(src, n * 4);
    for (uint64_t i = 0; i < n; i++)
        src[i] = (float)special(i, normal(95, i));
    copy grads = copy_new(src, n * 4);
    krn_ctx cx = {.threads = threads};
    memset(got, 0xff, sizeof got);
    memset(want, 0xff, sizeof want);
    table->round(&cx, wire.block + GUARD, src, n);
    table->sumsq(&cx, want, wire.block + GUARD, n);
    table->settle(&cx, settled.block + GUARD, (float *)(grads.block + GUARD), got, n);
    if (memcmp(wire.block, settled.block, bytes + 2 * GUARD) != 0)
        report_fail(r, NULL, false, "settle n=%llu rounds differently", (unsigned long long)n);
    if (memcmp(want, got, sizeof want) != 0)
        report_fail(r, NULL, false, "settle n=%llu sums differently", (unsigned long long)n);
    if (memcmp(grads.block, zero.block, n * 4 + 2 * GUARD) != 0)
        report_fail(r, NULL, false, "settle n=%llu does not clear", (unsigned long long)n);
    r->checked++;
    free(src);
    free(wire.block);
    free(settled.block);
    free(zero.block);
    free(grads.block);
}

typedef void (*pool_body)(report *r, const void *table, atom_threads *const threads[3]);

static void with_pools(report *r, const void *table, pool_body body)
{
    atom_threads *threads[3] = {NULL};
    for (uint32_t i = 0; i < 3; i++)
        ATOM_ASSERT(atom_threads_open(i + 1, &threads[i]) == ATOM_OK);
    body(r, table, threads);
    for (int i = 0; i < 3; i++)
        atom_threads_close(&threads[i]);
}

static void host_body(report *r, const void *arg, atom_threads *const threads[3])
{
    const krn_host_table *table = arg;
    for (int wire = ATOM_F32; wire <= ATOM_BF16; wire++) {
        for (size_t i = 0; i < LENGTHS; i++) {
            check_adamw(r, table, threads, (krn_adamw_kinds){(atom_dtype)wire, ATOM_F32},
                        lengths[i]);
            check_adamw(r, table, threads, (krn_adamw_kinds){(atom_dtype)wire, ATOM_BF16},
                        lengths[i]);
            for (int t = 0; t < 3; t++) {
                check_round(r, table->round[wire], (atom_dtype)wire, threads[t], lengths[i]);
                check_sumsq(r, table->sumsq[wire], (atom_dtype)wire, threads[t], lengths[i]);
            }
        }
    }
}

void check_host(report *r, const krn_host_table *table)
{
    check_textbook(r);
    check_bf16_moments_move(r);
    with_pools(r, table, host_body);
}

static void device_body(report *r, const void *arg, atom_threads *const threads[3])
{
    const krn_table *table = arg;
    for (size_t i = 0; i < LENGTHS; i++) {
        for (int t = 0; t < 3; t++) {
            check_round(r, table->round, table->dtype, threads[t], lengths[i]);
            check_sumsq(r, table->sumsq, table->dtype, threads[t], lengths[i]);
            check_settle(r, table, threads[t], lengths[i]);
        }
    }
}

void check_round_sumsq(report *r, const krn_table *table)
{
    if (table->round && table->sumsq && table->settle)
        with_pools(r, table, device_body);
    else if (table->dtype != ATOM_F64)
        report_fail(r, NULL, false, "the table has no round, sumsq or settle");
}
