/*
 * Owns the choice of the next token. One idea: nothing is sorted; quickselect puts the likeliest
 * tokens in front, once by count (top-k), once by weight (top-p), so that a vocabulary of 50,000
 * costs less than the model. Refuses to look at what is not a number.
 */
#include "atom/generate/sample.h"

#include "atom/base/rng.h"

#include <math.h>
#include <stdbool.h>

/* Does a rank before b? A total order: no two tokens are equal. */
static bool before(generate_candidate a, generate_candidate b)
{
    return a.weight > b.weight || (a.weight == b.weight && a.token < b.token);
}

static void swap(generate_candidate *a, generate_candidate *b)
{
    generate_candidate t = *a;
    *a = *b;
    *b = t;
}

static generate_candidate median(generate_candidate a, generate_candidate b, generate_candidate c)
{
    if (before(b, a))
        swap(&a, &b);
    if (before(c, b))
        swap(&b, &c);
    return before(b, a) ? a : b;
}

/* Reorders c[0..n), n >= 2: those before the pivot, then the rest; returns how many come first, 1
 * .. n-1. The pivot has others on both sides or is at the border, so both parts have members. */
static int64_t split(generate_candidate *c, int64_t n)
{
    generate_candidate pivot = median(c[0], c[n / 2], c[n - 1]);
    int64_t i = -1, j = n;
    for (;;) {
        do
            i++;
        while (before(c[i], pivot));
        do
            j--;
        while (before(pivot, c[j]));
        if (i >= j)
            return j + 1 < n ? j + 1 : n - 1;
        swap(&c[i], &c[j]);
    }
}

/* Puts the k likeliest of n in front. */
static void select_count(generate_candidate *c, int64_t n, int64_t k)
{
    while (k > 0 && k < n) {
        int64_t front = split(c, n);
        if (k < front) {
            n = front;
        } else {
            c += front;
            n -= front;
            k -= front;
        }
    }
}

static double sum_of(const generate_candidate *c, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)c[i].weight;
    return sum;
}

/* Puts the fewest likeliest in front that together weigh at least `weight`; returns how many. */
static int64_t select_weight(generate_candidate *c, int64_t n, double weight)
{
    int64_t taken = 0;
    while (n > 1) {
        int64_t front = split(c, n);
        double sum = sum_of(c, front);
        if (sum >= weight) {
            n = front;
        } else {
            weight -= sum;
            taken += front;
            c += front;
            n -= front;
        }
    }
    return taken + n;
}

static float penalised(const generate_sampling *s, float logit, int64_t token)
{
    if (!s->seen || !s->seen[token])
        return logit;
    return logit > 0 ? logit / (float)s->penalty : logit * (float)s->penalty;
}

/* Candidates with their logits, and where the likeliest is. */
static atom_status gather(const generate_sampling *s, const float *logits, const uint8_t *may,
                          int64_t V, generate_candidate *kept, int64_t *n, int64_t *best)
{
    *n = 0;
    *best = 0;
    for (int64_t i = 0; i < V; i++) {
        if (may && !may[i])
            continue;
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return atom_fail(ATOM_E_DIVERGED,
                             "the model's output is not finite (token %lld); its weights are "
                             "damaged or its training diverged",
                             (long long)i);
        if (logits[i] == -INFINITY)
            continue;
        kept[*n] = (generate_candidate){penalised(s, logits[i], i), (int32_t)i};
        if (kept[*n].weight > kept[*best].weight)
            *best = *n;
        (*n)++;
    }
    if (*n == 0)
        return atom_fail(ATOM_E_DIVERGED, "the model allows no token at all; its weights are "
                                          "damaged or its training diverged");
    return ATOM_OK;
}

atom_status generate_sample_filter(const generate_sampling *s, const float *logits,
                                   const uint8_t *may, int64_t V, generate_candidate *kept,
                                   int64_t *n, double *total)
{
    int64_t best;
    ATOM_TRY(gather(s, logits, may, V, kept, n, &best));
    float top = kept[best].weight;
    float inverse = s->temperature > 0 ? (float)(1.0 / s->temperature) : 0;
    if (!(s->temperature > 0) || !isfinite(inverse)) {
        kept[0] = (generate_candidate){1, kept[best].token};
        *n = 1;
        *total = 1;
        return ATOM_OK;
    }
    if (s->top_k > 0 && s->top_k < *n) {
        select_count(kept, *n, s->top_k);
        *n = s->top_k;
    }
    for (int64_t i = 0; i < *n; i++)
        kept[i].weight = expf((kept[i].weight - top) * inverse);
    *total = sum_of(kept, *n);
    if (s->top_p < 1) {
        *n = select_weight(kept, *n, s->top_p * *total);
        *total = sum_of(kept, *n);
    }
    if (s->min_p > 0) { /* the likeliest weighs 1 */
        int64_t left = 0;
        for (int64_t i = 0; i < *n; i++)
            if ((double)kept[i].weight >= s->min_p)
                kept[left++] = kept[i];
        *n = left;
        *total = sum_of(kept, *n);
    }
    return ATOM_OK;
}

int32_t generate_sample_draw(const generate_candidate *kept, int64_t n, double total, double u)
{
    double left = u * total;
    int64_t last = 0;
    for (int64_t i = 0; i < n; i++) {
        if (kept[i].weight > 0)
            last = i;
        left -= (double)kept[i].weight;
        if (left < 0)
            return kept[i].token;
    }
    return kept[last].token; /* rounding left a crumb */
}

atom_status generate_sample(const generate_sampling *s, const float *logits, const uint8_t *may,
                            int64_t V, generate_candidate *scratch, double u, int32_t *token)
{
    int64_t n;
    double total;
    ATOM_TRY(generate_sample_filter(s, logits, may, V, scratch, &n, &total));
    *token = generate_sample_draw(scratch, n, total, u);
    return ATOM_OK;
}

double generate_sample_uniform(uint64_t seed, uint64_t index)
{
    enum { SAMPLE_NODE = 0x73616d70 }; /* apart from every node of a graph */
    uint32_t word[4];
    atom_rng_block((atom_rng_key){.seed = seed, .node = SAMPLE_NODE}, index, word);
    return (double)(((uint64_t)(word[0] >> 5) << 26) | (word[1] >> 6)) * 0x1p-53;
}
