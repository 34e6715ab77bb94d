/*
 * Robust combination against attackers (docs/design/pool.md#hostile-members): what must hold for
 * any data, and how far 7 of 16 can pull. The reference is written from the header, in plain loops;
 * bits must be equal.
 */
#include "gossip/sum/robust.h"

#include "gossip/sum/reduce.h"

#include <math.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { N = 1003, MEMBERS = 16 };

typedef struct room {
    float x[GSP_MEMBERS_MAX][N], out[N], spare[N], truth[N];
    const float *rows[GSP_MEMBERS_MAX];
    uint64_t weight[GSP_MEMBERS_MAX];
    int8_t lean[GSP_MEMBERS_MAX];
    uint64_t seed;
} room;

static float noise(room *r)
{
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        r->seed = r->seed * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(r->seed >> 40) * 0x1p-24 - 0.5;
    }
    return (float)(sum * 1.7320508);
}

/* Honest members agree on a direction as workers after some steps do: cosine `alike` with it. */
static void honest(room *r, uint64_t seed, double alike)
{
    r->seed = seed;
    for (uint32_t j = 0; j < N; j++)
        r->truth[j] = noise(r);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        r->weight[i] = 900 + 13 * i;
        r->rows[i] = r->x[i];
        for (uint32_t j = 0; j < N; j++)
            r->x[i][j] =
                (float)(alike * (double)r->truth[j] + sqrt(1 - alike * alike) * (double)noise(r));
    }
}

static double cosine(const float *a, const float *b)
{
    double dot = 0;
    for (uint32_t j = 0; j < N; j++)
        dot += (double)a[j] * (double)b[j];
    return dot / (gsp_norm(a, N) * gsp_norm(b, N));
}

static void combine(room *r)
{
    gsp_robust_combine(r->rows, r->weight, MEMBERS, N, r->out, r->spare, r->lean);
}

/* ---- the reference ---- */

static double lanes(const float *x, float s, const float *c)
{
    double lane[16] = {0}, total = 0;
    for (uint32_t j = 0; j < N; j++) {
        float d = s * x[j];
        d = c ? d - c[j] : d;
        lane[j % 16] += (double)d * (double)d;
    }
    for (uint32_t j = 0; j < 16; j++)
        total += lane[j];
    return sqrt(total);
}

static double middle(const double *v, const uint64_t *weight)
{
    for (uint32_t i = 0; i < MEMBERS; i++) {
        uint32_t below = 0, equal = 0, all = 0;
        for (uint32_t k = 0; k < MEMBERS; k++) {
            all += weight[k] > 0;
            below += weight[k] > 0 && v[k] < v[i];
            equal += weight[k] > 0 && !(v[k] < v[i]) && !(v[k] > v[i]);
        }
        uint32_t at = (all - 1) / 2;
        if (weight[i] && below <= at && at < below + equal)
            return v[i];
    }
    return 0;
}

static void reference(const room *r, float *c)
{
    double length[MEMBERS], total = 0;
    float scale[MEMBERS], before[N];
    memset(c, 0, N * sizeof *c);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        length[i] = lanes(r->x[i], 1, NULL);
        total += (double)r->weight[i];
    }
    double m = middle(length, r->weight);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        scale[i] = length[i] > m ? (float)(m / length[i]) : 1.0f;
        float w = (float)((double)r->weight[i] / total * (double)scale[i]);
        for (uint32_t j = 0; r->weight[i] && j < N; j++)
            c[j] += w * r->x[i][j];
    }
    for (int pass = 0; pass < GSP_ROBUST_PASSES; pass++) {
        double far[MEMBERS];
        memcpy(before, c, sizeof before);
        for (uint32_t i = 0; i < MEMBERS; i++)
            far[i] = lanes(r->x[i], scale[i], before);
        double limit = middle(far, r->weight);
        for (uint32_t i = 0; i < MEMBERS; i++) {
            float s = far[i] > limit ? (float)(limit / far[i]) : 1.0f;
            float w = (float)((double)r->weight[i] / total * (double)s);
            for (uint32_t j = 0; r->weight[i] && j < N; j++)
                c[j] += w * (scale[i] * r->x[i][j] - before[j]);
        }
    }
}

static void test_bits(void **state)
{
    static room r;
    static float want[N];
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        honest(&r, seed, 0.1 + 0.015 * (double)seed);
        for (uint32_t j = 0; j < N; j++)
            r.x[seed % 16][j] *= 100;
        r.weight[(seed + 5) % 16] = 0;
        combine(&r);
        reference(&r, want);
        assert_memory_equal(r.out, want, sizeof want);
    }
}

/* ---- what it is for ---- */

static void test_few_are_taken_as_they_are(void **state)
{
    static room r;
    (void)state;
    honest(&r, 3, 0.5);
    for (uint32_t j = 0; j < N; j++)
        r.x[1][j] *= 50;
    gsp_robust_combine(r.rows, (uint64_t[]){1, 3}, 2, N, r.out, r.spare, r.lean);
    for (uint32_t j = 0; j < N; j++)
        assert_true(fabsf(r.out[j] - (0.25f * r.x[0][j] + 0.75f * r.x[1][j])) <=
                    1e-5f * (1 + fabsf(r.out[j])));
    gsp_robust_combine(r.rows, (uint64_t[]){7}, 1, N, r.out, r.spare, r.lean);
    assert_memory_equal(r.out, r.x[0], sizeof r.out);
    assert_int_equal(r.lean[0], 0);
}

static void test_a_clean_round_stays_near_the_mean(void **state)
{
    static room r;
    static float mean[N];
    (void)state;
    honest(&r, 11, 0.4);
    combine(&r);
    memset(mean, 0, sizeof mean);
    double total = 0;
    for (uint32_t i = 0; i < MEMBERS; i++)
        total += (double)r.weight[i];
    for (uint32_t i = 0; i < MEMBERS; i++)
        for (uint32_t j = 0; j < N; j++)
            mean[j] += (float)((double)r.weight[i] / total) * r.x[i][j];
    assert_true(cosine(r.out, mean) > 0.999);
    double size = gsp_norm(r.out, N) / gsp_norm(mean, N);
    assert_true(size > 0.95 && size < 1.05);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_true(r.lean[i] > 0);
}

/* 7 of 16 send the same wrong thing, of any size. */
static void attack(const char *name, float by, bool random, double alike, double floor)
{
    static room r;
    honest(&r, 17, alike);
    for (uint32_t i = 0; i < 7; i++)
        for (uint32_t j = 0; j < N; j++)
            r.x[2 * i][j] = random ? by * noise(&r) : by * r.x[2 * i][j];
    combine(&r);
    double along = cosine(r.out, r.truth);
    double clean = gsp_norm(r.truth, N);
    if (along < floor || gsp_norm(r.out, N) > 1.1 * clean)
        fail_msg("%s: cosine %.3f, norm %.3f of an honest one", name, along,
                 gsp_norm(r.out, N) / clean);
    for (uint32_t i = 0; i < MEMBERS && !random && by < 0; i++)
        assert_true((r.lean[i] < 0) == (i % 2 == 0 && i < 14));
}

static void test_attacks(void **state)
{
    (void)state;
    attack("x100", 100, false, 0.6, 0.9);
    attack("sign-flipped", -1, false, 0.6, 0.5);
    attack("sign-flipped x100", -100, false, 0.6, 0.5);
    attack("random x100", 100, true, 0.6, 0.8);
    attack("zero", 0, false, 0.6, 0.8);
}

static void test_who_leans_back_is_left_out(void **state)
{
    static room r;
    (void)state;
    honest(&r, 23, 0.3);
    for (uint32_t i = 0; i < 7; i++)
        for (uint32_t j = 0; j < N; j++)
            r.x[i][j] = -r.x[i][j];
    combine(&r);
    double before = cosine(r.out, r.truth);
    for (uint32_t i = 0; i < MEMBERS; i++)
        r.weight[i] = r.lean[i] < 0 ? 0 : r.weight[i];
    combine(&r);
    assert_true(cosine(r.out, r.truth) > before + 0.2);
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(r.weight[i], 0);
        assert_true(r.lean[i] < 0); /* it still leans, and could come back */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_few_are_taken_as_they_are),
        cmocka_unit_test(test_a_clean_round_stays_near_the_mean),
        cmocka_unit_test(test_attacks),
        cmocka_unit_test(test_who_leans_back_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
