/*
 * Sampling: what the penalty, top-k, top-p and min-p keep, against a plain sort; counts of many draws against the
 * softmax; ties, edges, what is refused.
 */
#include "atom/generate/sample.h"

#include "atom/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { VOCAB_MAX = 400 };

/* Neither min-p nor a penalty. */
#define PLAIN(heat, k, p)                                                                          \
    {                                                                                              \
        .temperature = heat, .top_k = k, .top_p = p                                                \
    }

static float random_logit(uint64_t seed, uint64_t i, bool coarse)
{
    double x = 3 * atom_rng_normal((atom_rng_key){.seed = seed, .node = 7}, i);
    return (float)(coarse ? floor(x) : x);
}

static int by_rank(const void *a, const void *b)
{
    const generate_candidate *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1;
    return x->token < y->token ? -1 : 1;
}

static int by_token(const void *a, const void *b)
{
    const generate_candidate *x = a, *y = b;
    return x->token < y->token ? -1 : x->token > y->token;
}

/* Fills want[] with the tokens that should be kept, by sorting everything; returns how many.
 * `slack` becomes the distance of the cut from its threshold, to leave out cases that rounding
 * decides. */
static int64_t sorted_filter(const generate_sampling *s, const float *logits, int64_t V,
                             generate_candidate *want, double *slack)
{
    int64_t n = V, kept = 0;
    double total = 0, sum = 0;
    *slack = 1;
    for (int64_t i = 0; i < V; i++) {
        float x = logits[i], by = s->seen && s->seen[i] ? (float)s->penalty : 1;
        want[i] = (generate_candidate){x < 0 ? x * by : x / by, (int32_t)i};
    }
    qsort(want, (size_t)V, sizeof *want, by_rank);
    if (s->top_k > 0 && s->top_k < n)
        n = s->top_k;
    double top = (double)want[0].weight;
    for (int64_t i = 0; i < n; i++)
        total += exp(((double)want[i].weight - top) / s->temperature);
    while (kept < n) {
        sum += exp(((double)want[kept++].weight - top) / s->temperature) / total;
        if (s->top_p < 1 && fabs(sum - s->top_p) < *slack)
            *slack = fabs(sum - s->top_p);
        if (s->top_p < 1 && sum >= s->top_p)
            break;
    }
    for (int64_t i = kept; i-- > 0;) {
        double share = exp(((double)want[i].weight - top) / s->temperature);
        if (s->min_p > 0 && fabs(share - s->min_p) < *slack)
            *slack = fabs(share - s->min_p);
        if (share < s->min_p)
            kept = i;
    }
    return kept;
}

static void test_equals_sorting(void **state)
{
    (void)state;
    float logits[VOCAB_MAX];
    uint8_t seen[VOCAB_MAX];
    generate_candidate kept[VOCAB_MAX], want[VOCAB_MAX];
    int checked = 0;
    for (uint64_t seed = 0; seed < 600; seed++) {
        atom_rng_key key = {.seed = seed, .node = 9};
        int64_t V = 1 + atom_rng_u32(key, 0) % VOCAB_MAX, n, m;
        generate_sampling s = {
            .temperature = 0.3 + atom_rng_u32(key, 1) % 20 * 0.1,
            .top_k = atom_rng_u32(key, 2) % 3 ? atom_rng_u32(key, 3) % 60 : 0,
            .top_p = atom_rng_u32(key, 4) % 3 ? 0.001 + atom_rng_u32(key, 5) % 998 * 0.001 : 1,
            .min_p = atom_rng_u32(key, 6) % 3 ? 0 : atom_rng_u32(key, 7) % 100 * 0.01,
            .penalty = 0.5 + atom_rng_u32(key, 8) % 20 * 0.1,
            .seen = atom_rng_u32(key, 9) % 2 ? seen : NULL};
        double total, slack, sum = 0;
        for (int64_t i = 0; i < V; i++)
            logits[i] = random_logit(seed, (uint64_t)i, seed % 2);
        for (int64_t i = 0; i < V; i++)
            seen[i] = atom_rng_u32(key, 100 + (uint64_t)i) % 3 == 0;
        assert_int_equal(generate_sample_filter(&s, logits, NULL, V, kept, &n, &total), ATOM_OK);
        m = sorted_filter(&s, logits, V, want, &slack);
        if (slack < 1e-6)
            continue;
        checked++;
        assert_int_equal(n, m);
        for (int64_t i = 0; i < n; i++)
            sum += (double)kept[i].weight;
        assert_true(fabs(sum - total) <= 1e-12 * total);
        qsort(kept, (size_t)n, sizeof *kept, by_token);
        qsort(want, (size_t)n, sizeof *want, by_token);
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(kept[i].token, want[i].token);
    }
    assert_true(checked > 500);
}

/* Counts of 200,000 draws, each within 6 standard deviations of what softmax says. */
static void test_counts(void **state)
{
    enum { V = 6, DRAWS = 200000 };
    static const float logits[V] = {0.5f, -1, 2, 2, 0, -8};
    static const generate_sampling all[] = {PLAIN(1, 0, 1), PLAIN(0.5, 0, 1), PLAIN(2, 0, 1),
                                            PLAIN(1, 3, 1), PLAIN(1, 4, 0.9)};
    (void)state;
    for (size_t c = 0; c < sizeof all / sizeof all[0]; c++) {
        const generate_sampling *s = &all[c];
        generate_candidate scratch[V], want[V];
        double slack, total = 0, p[V] = {0};
        int64_t counts[V] = {0}, n = sorted_filter(s, logits, V, want, &slack);
        for (int64_t i = 0; i < n; i++)
            total += p[want[i].token] = exp((double)want[i].weight / s->temperature);
        for (uint64_t i = 0; i < DRAWS; i++) {
            int32_t token;
            double u = generate_sample_uniform(11 + c, i);
            assert_int_equal(generate_sample(s, logits, NULL, V, scratch, u, &token), ATOM_OK);
            counts[token]++;
        }
        for (int i = 0; i < V; i++) {
            double q = p[i] / total, mean = DRAWS * q;
            assert_true(fabs((double)counts[i] - mean) <= 6 * sqrt(mean * (1 - q)));
        }
    }
}

static int32_t pick(const generate_sampling *s, const float *logits, int64_t V, double u)
{
    generate_candidate scratch[VOCAB_MAX];
    int32_t token = -1;
    assert_int_equal(generate_sample(s, logits, NULL, V, scratch, u, &token), ATOM_OK);
    return token;
}

static void test_edges(void **state)
{
    static const float logits[] = {1, 3, -2, 3, 3, 0.5f};
    static const float equal[VOCAB_MAX] = {0};
    const double nearly_1 = 1 - 0x1p-53;
    generate_candidate kept[VOCAB_MAX];
    int64_t n;
    double total;
    (void)state;
    for (double u = 0; u < 1; u += 0.0625) {
        assert_int_equal(pick(&(generate_sampling)PLAIN(0, 0, 1), logits, 6, u),
                         1); /* greedy: lower id */
        assert_int_equal(pick(&(generate_sampling)PLAIN(1e-60, 0, 1), logits, 6, u), 1);
        assert_int_equal(pick(&(generate_sampling)PLAIN(1, 1, 1), logits, 6, u), 1);
        assert_int_equal(pick(&(generate_sampling)PLAIN(1, 0, 1e-9), logits, 6, u), 1);
        assert_int_equal(pick(&(generate_sampling)PLAIN(1, 5, 1e-9), equal, VOCAB_MAX, u), 0);
    }
    /* equal logits: the first k ids, and as many ids as p needs */
    generate_sampling k3 = PLAIN(1, 3, 1), half = PLAIN(1, 0, 0.5);
    assert_int_equal(generate_sample_filter(&k3, equal, NULL, VOCAB_MAX, kept, &n, &total),
                     ATOM_OK);
    assert_int_equal(n, 3);
    for (int i = 0; i < 3; i++)
        assert_in_range(kept[i].token, 0, 2);
    assert_int_equal(generate_sample_filter(&half, equal, NULL, VOCAB_MAX, kept, &n, &total),
                     ATOM_OK);
    assert_int_equal(n, VOCAB_MAX / 2);
    for (int i = 0; i < n; i++)
        assert_in_range(kept[i].token, 0, n - 1);
    /* k beyond the vocabulary; one token only; the ends of u */
    assert_int_equal(pick(&(generate_sampling)PLAIN(1, 1000, 1), logits, 1, nearly_1), 0);
    assert_int_equal(pick(&(generate_sampling)PLAIN(1, 0, 1), logits, 6, 0), 0);
    assert_int_equal(pick(&(generate_sampling)PLAIN(1, 0, 1), logits, 6, nearly_1), 5);
    /* what is too unlikely for a number never comes */
    assert_int_equal(pick(&(generate_sampling)PLAIN(1, 0, 1), (const float[]){-200, 0, -200}, 3, 0),
                     1);
}

/* A penalty decides the likeliest, too; of all that min-p leaves, none is less likely than that share. */
static void test_penalty_and_min_p(void **state)
{
    static const float logits[] = {2, 1.5f, -1, -1.5f};
    static const uint8_t seen[] = {1, 0, 1, 0};
    generate_sampling s = PLAIN(0, 0, 1);
    generate_candidate kept[4];
    int64_t n;
    double total;
    (void)state;
    assert_int_equal(pick(&s, logits, 4, 0), 0);
    s.penalty = 2;
    assert_int_equal(pick(&s, logits, 4, 0), 0); /* nothing was seen */
    s.seen = seen;
    assert_int_equal(pick(&s, logits, 4, 0), 1);
    s.temperature = 1; /* 1, 1.5, -2, -1.5: shares of the likeliest are 0.61, 1, 0.030, 0.050 */
    s.min_p = 0.04;
    assert_int_equal(generate_sample_filter(&s, logits, NULL, 4, kept, &n, &total), ATOM_OK);
    assert_int_equal(n, 3);
    for (int i = 0; i < 3; i++)
        assert_int_not_equal(kept[i].token, 2);
    s.min_p = 1;
    assert_int_equal(generate_sample_filter(&s, logits, NULL, 4, kept, &n, &total), ATOM_OK);
    assert_int_equal(n, 1);
    assert_int_equal(kept[0].token, 1);
}

static void test_may(void **state)
{
    static const float logits[] = {9, 1, NAN, 2};
    static const uint8_t may[] = {0, 1, 0, 1};
    generate_sampling greedy = PLAIN(0, 0, 1), s = PLAIN(1, 0, 1);
    generate_candidate scratch[4];
    int32_t token;
    (void)state;
    assert_int_equal(generate_sample(&greedy, logits, may, 4, scratch, 0, &token), ATOM_OK);
    assert_int_equal(token, 3);
    for (double u = 0; u < 1; u += 0.01) {
        assert_int_equal(generate_sample(&s, logits, may, 4, scratch, u, &token), ATOM_OK);
        assert_true(token == 1 || token == 3);
    }
}

static void test_refuses(void **state)
{
    static const float bad[][3] = {
        {0, NAN, 1}, {INFINITY, 0, 0}, {-INFINITY, -INFINITY, -INFINITY}};
    static const float partly[3] = {-INFINITY, 0, -INFINITY};
    generate_sampling s = PLAIN(1, 2, 0.9);
    generate_candidate scratch[3];
    int32_t token = 77;
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(generate_sample(&s, bad[i], NULL, 3, scratch, 0.5, &token),
                         ATOM_E_DIVERGED);
        assert_int_equal(token, 77);
    }
    assert_int_equal(generate_sample(&s, partly, NULL, 3, scratch, 0.999, &token), ATOM_OK);
    assert_int_equal(token, 1);
}

static void test_uniform(void **state)
{
    double sum = 0, least = 1, most = 0;
    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        double u = generate_sample_uniform(3, i);
        assert_true(u >= 0 && u < 1);
        sum += u;
        least = u < least ? u : least;
        most = u > most ? u : most;
    }
    assert_true(fabs(sum / 20000 - 0.5) < 0.01 && least < 0.001 && most > 0.999);
    assert_true(generate_sample_uniform(3, 5) == generate_sample_uniform(3, 5));
    assert_true(generate_sample_uniform(3, 5) != generate_sample_uniform(4, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_sorting),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_penalty_and_min_p),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_may),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_uniform),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
