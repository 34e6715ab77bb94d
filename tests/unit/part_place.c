/*
 * partition/place: the search against a naive implementation that tries everything, the limits, the
 * same answer twice, and one clear line for bad input.
 */
#include "partition/place/inner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 6 };

typedef struct world {
    place_problem p;
    place_layer layers[LAYERS];
    place_kind kinds[3];
    place_host hosts[64];
    double seconds[3][LAYERS], delay[64 * 64], rate[64 * 64], up[64], down[64];
} world;

static uint64_t state;
static double uniform(double low, double high)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(state >> 11) / 9007199254740992.0;
}

static void make(world *w, uint64_t seed, uint32_t n, uint32_t layers, uint32_t kinds)
{
    memset(w, 0, sizeof *w);
    state = seed;
    for (uint32_t i = 0; i < layers; i++)
        w->layers[i] = (place_layer){(uint64_t)uniform(1e6, 1e7), (uint64_t)uniform(1e5, 2e6)};
    for (uint32_t k = 0; k < kinds; k++) {
        for (uint32_t i = 0; i < layers; i++)
            w->seconds[k][i] = uniform(0.05, 0.5);
        w->kinds[k] = (place_kind){.layer_seconds = w->seconds[k],
                                   .update_elements_per_second = uniform(1e7, 1e9),
                                   .host_bytes = (uint64_t)uniform(2e8, 2e9),
                                   .whole = k != 2,
                                   .whole_why = "16 GiB are missing",
                                   .whole_micro_seconds = uniform(0.5, 3),
                                   .whole_update_seconds = uniform(0, 0.2)};
        snprintf(w->kinds[k].name, PLACE_NAME_BYTES, "kind%u", k);
    }
    for (uint32_t i = 0; i < n; i++) {
        w->hosts[i].kind = i % kinds;
        snprintf(w->hosts[i].name, PLACE_NAME_BYTES, "host%u", i);
        for (uint32_t j = 0; j < n; j++) {
            w->delay[i * n + j] = uniform(0, 0.1);
            w->rate[i * n + j] = uniform(1e6, 2e7);
        }
        w->up[i] = uniform(1e6, 1e7);
        w->down[i] = uniform(1e6, 1e8);
    }
    w->p = (place_problem){.layers = w->layers,
                           .kinds = w->kinds,
                           .hosts = w->hosts,
                           .n_layers = layers,
                           .n_kinds = kinds,
                           .n_hosts = n,
                           .delay = w->delay,
                           .rate = w->rate,
                           .micro_tokens = 1000,
                           .micro_batches = 13,
                           .sync_bytes = 1,
                           .state_bytes = 12,
                           .wire_bytes = 2,
                           .paper = seed % 2 == 0};
    if (seed % 3 == 0) {
        w->p.up = w->up;
        w->p.down = w->down;
    }
}

/* --- the naive one ---------------------------------------------------------------------------- */

static double naive_pair(const place_problem *p, uint32_t a, uint32_t b, double bytes)
{
    uint32_t n = p->n_hosts;
    return p->delay[a * n + b] + bytes / p->rate[a * n + b] + p->delay[b * n + a] +
           bytes / p->rate[b * n + a];
}

static double naive_match(const place_problem *p, const uint16_t *a, const uint16_t *b, uint32_t n,
                          double bytes, uint32_t at, uint32_t taken)
{
    double best = at == n ? 0 : INFINITY;
    for (uint32_t j = 0; j < n && at < n; j++)
        if (!(taken >> j & 1))
            best = fmin(best, fmax(naive_pair(p, a[at], b[j], bytes),
                                   naive_match(p, a, b, n, bytes, at + 1, taken | 1u << j)));
    return best;
}

/* Water-filling by bisection over the end: shares that fill it must sum to 1. */
static double naive_shared(const double *rate, uint32_t n, double bytes)
{
    double low = 0, high = 0;
    for (uint32_t i = 0; i < n; i++)
        low = fmax(low, bytes / rate[i]);
    if (n == 2)
        return low;
    for (high = low * 4 + 1; high - low > 1e-13 * high;) {
        double t = (low + high) / 2, sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += fmax(0, (t * rate[i] / bytes - 1) / (n - 2));
        if (sum >= 1)
            high = t;
        else
            low = t;
    }
    return high;
}

static double naive_sync(const place_problem *p, const uint16_t *h, uint32_t n, double bytes)
{
    double worst = 0, rate[8], delay = 0;
    for (uint32_t i = 0; i < n; i++) {
        double sum = 0, turn = 0;
        for (uint32_t j = 0; j < n; j++) {
            if (i == j)
                continue;
            uint32_t out = h[i] * p->n_hosts + h[j], in = h[j] * p->n_hosts + h[i];
            double both = (p->delay[out] + p->delay[in]) / 2;
            double slow = p->rate[out] < p->rate[in] ? p->rate[out] : p->rate[in];
            sum += 2 * (both + bytes / (n * slow));
            turn += 1 / slow;
            delay = fmax(delay, both);
        }
        worst = fmax(worst, sum);
        rate[i] = p->up ? fmin(p->up[h[i]], p->down[h[i]]) : (n - 1) / turn;
    }
    if (n == 1)
        return 0;
    return p->paper ? worst : 10 * delay + naive_shared(rate, n, bytes) / 0.92;
}

static double naive_elements(const place_problem *p, uint32_t a, uint32_t b)
{
    double sum = 0;
    for (uint32_t i = a; i < b; i++)
        sum += (double)p->layers[i].elements;
    return sum;
}

static double naive_stage(const place_problem *p, const uint16_t *h, uint32_t d, uint32_t a,
                          uint32_t b)
{
    double slowest = 0;
    for (uint32_t g = 0; g < d; g++) {
        const place_kind *k = &p->kinds[p->hosts[h[g]].kind];
        double own = 0;
        for (uint32_t i = a; i < b; i++)
            own += k->layer_seconds[i];
        if (naive_elements(p, a, b) * (p->state_bytes + 2 * p->wire_bytes) > (double)k->host_bytes)
            return INFINITY;
        slowest = fmax(slowest, own);
    }
    return slowest;
}

/* All divisions of the layers: the one whose slowest stage is quickest. */
static double naive_cuts(const place_problem *p, const uint16_t *h, uint32_t stages, uint32_t d,
                         uint32_t s, uint32_t from, uint32_t *now, uint32_t *best, double so_far,
                         double least)
{
    if (s == stages) {
        if (from == p->n_layers && so_far < least) {
            memcpy(best, now, (stages + 1) * sizeof *best);
            best[stages] = p->n_layers;
            return so_far;
        }
        return least;
    }
    now[s] = from;
    for (uint32_t to = from + 1; to <= p->n_layers; to++)
        least = naive_cuts(p, h, stages, d, s + 1, to, now, best,
                           fmax(so_far, naive_stage(p, h + s * d, d, from, to)), least);
    return least;
}

static double naive_price(const place_problem *p, const uint16_t *h, uint32_t stages, uint32_t d)
{
    uint32_t now[LAYERS + 1], cut[LAYERS + 1];
    double fill = 0, path = 0, slot = 0, groups = 0, update = 0;
    uint32_t m = (p->micro_batches + d - 1) / d;
    if (!isfinite(naive_cuts(p, h, stages, d, 0, 0, now, cut, 0, INFINITY)))
        return INFINITY;
    for (uint32_t s = 0; s < stages; s++) {
        double own = naive_stage(p, h + s * d, d, cut[s], cut[s + 1]), edge = 0;
        double elements = naive_elements(p, cut[s], cut[s + 1]);
        if (s + 1 < stages)
            edge = naive_match(p, h + s * d, h + (s + 1) * d, d,
                               (double)p->layers[cut[s + 1]].boundary_bytes, 0, 0);
        fill += own;
        path += edge;
        slot = fmax(slot, fmax(own, edge));
        groups = fmax(groups, naive_sync(p, h + s * d, d, elements * p->sync_bytes));
        for (uint32_t g = 0; g < d; g++)
            update =
                fmax(update,
                     elements / p->kinds[p->hosts[h[s * d + g]].kind].update_elements_per_second);
    }
    return fill + path + (m - 1) * slot + groups + update;
}

static double naive_search(const place_problem *p, uint32_t stages, uint16_t *h, uint32_t at,
                           uint32_t taken)
{
    uint32_t d = p->n_hosts / stages;
    if (at == stages * d)
        return naive_price(p, h, stages, d);
    double best = INFINITY;
    for (uint32_t i = at % d ? h[at - 1] + 1u : 0; i < p->n_hosts; i++) {
        if (taken >> i & 1)
            continue;
        h[at] = (uint16_t)i;
        best = fmin(best, naive_search(p, stages, h, at + 1, taken | 1u << i));
    }
    return best;
}

/* A micro-batch at a time to whoever would end first. */
static double naive_gradients(const place_problem *p, uint32_t mask)
{
    double free_at[8] = {0}, end = 0, update = 0;
    uint16_t h[8];
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_hosts; i++)
        if (mask >> i & 1) {
            if (!p->kinds[p->hosts[i].kind].whole)
                return INFINITY;
            h[n++] = (uint16_t)i;
        }
    for (uint32_t m = 0; m < p->micro_batches; m++) {
        uint32_t who = 0;
        for (uint32_t i = 0; i < n; i++)
            if (free_at[i] + p->kinds[p->hosts[h[i]].kind].whole_micro_seconds <
                free_at[who] + p->kinds[p->hosts[h[who]].kind].whole_micro_seconds)
                who = i;
        free_at[who] += p->kinds[p->hosts[h[who]].kind].whole_micro_seconds;
    }
    for (uint32_t i = 0; i < n; i++) {
        end = fmax(end, free_at[i]);
        update = fmax(update, p->kinds[p->hosts[h[i]].kind].whole_update_seconds);
    }
    return end / (n > 1 ? 0.95 : 1) + update +
           naive_sync(p, h, n, naive_elements(p, 0, p->n_layers) * p->sync_bytes);
}

/* --- tests -------------------------------------------------------------------------------------- */

static world w;
static const place_search plain = {.seed = 1};

static void test_brute_force(void **unused)
{
    (void)unused;
    for (uint64_t seed = 0; seed < 200; seed++) {
        uint32_t n = seed % 20 == 7 ? 8 : 2 + (uint32_t)(seed % 6),
                 stages = 2 + (uint32_t)(seed % 3);
        uint16_t h[8];
        place_candidate got;
        make(&w, seed, n, 4 + (uint32_t)(seed % 3), 1 + (uint32_t)(seed / 2 % 3));
        stages = stages < n ? stages : n;
        double best = naive_search(&w.p, stages, h, 0, 0);
        assert_int_equal(place_stages(&w.p, stages, &plain, &got), ATOM_OK);
        assert_int_equal(got.possible, isfinite(best));
        if (got.possible && fabs(got.step_seconds - best) > 1e-9 * best)
            fail_msg("seed %llu: %.12g, not %.12g", (unsigned long long)seed, got.step_seconds,
                     best);
        if (got.possible)
            assert_true(fabs(got.step_seconds - got.compute_seconds - got.link_seconds -
                             got.optimizer_seconds - got.bubble_seconds) < 1e-9 * best);
    }
}

static void test_whole_brute_force(void **unused)
{
    (void)unused;
    for (uint64_t seed = 0; seed < 200; seed++) {
        uint32_t n = 1 + (uint32_t)(seed % 8);
        place_candidate got;
        double best = INFINITY;
        make(&w, seed, n, 4, 1 + (uint32_t)(seed % 3));
        w.p.sync_bytes = uniform(0.01, 1);
        for (uint32_t mask = 1; mask < 1u << n; mask++)
            best = fmin(best, naive_gradients(&w.p, mask));
        assert_int_equal(place_whole(&w.p, PLACE_GRADIENTS, &got), ATOM_OK);
        if (fabs(got.step_seconds - best) > 1e-9 * best)
            fail_msg("seed %llu: %.12g, not %.12g", (unsigned long long)seed, got.step_seconds,
                     best);
    }
}

/* Hosts of three classes, who see others by class alone. */
static void make_classes(uint64_t seed, uint32_t n)
{
    make(&w, seed, n, 6, 2);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t a = i * 5 % 7 % 3;
        w.hosts[i].kind = a % 2;
        w.up[i] = w.up[n - 1] * (1 + a);
        w.down[i] = w.down[n - 1] * (3 - a);
        for (uint32_t j = 0; j < n; j++) {
            uint32_t b = j * 5 % 7 % 3;
            w.delay[i * n + j] = 0.01 * (1 + a) * (1 + b) + 0.003 * a;
            w.rate[i * n + j] = 1e6 * (5 + 3 * a + 2 * b) * (1 + (double)(seed % 5));
        }
    }
}

/* Interchangeable hosts are found, and priced as if each was looked at. */
static void test_classes_cost_what_hosts_cost(void **unused)
{
    (void)unused;
    static place_types types;
    uint32_t priced = 0;
    make(&w, 5, 8, 4, 1);
    place_types_find(&w.p, &types);
    assert_int_equal(types.n, 8);
    make_classes(5, 8);
    place_types_find(&w.p, &types);
    assert_int_equal(types.n, 3);
    w.delay[1 * 8 + 2] += 1e-3; /* host 1 and host 2 differ from their classes */
    place_types_find(&w.p, &types);
    assert_int_equal(types.n, 5);
    for (uint64_t seed = 0; seed < 200; seed++) {
        uint32_t n = 4 + (uint32_t)(seed % 5), stages = 2 + (uint32_t)(seed % 2);
        place_layout l = {.n_stages = stages, .n_groups = n / stages};
        place_candidate got;
        make_classes(seed, n);
        for (uint32_t i = 0; i < n; i++)
            l.host[i] = (uint16_t)((i * 3 + seed) % n % n);
        for (uint32_t i = 0; i < n && n % 3 == 0; i++)
            l.host[i] = (uint16_t)((i + seed) % n);
        double naive = naive_price(&w.p, l.host, stages, l.n_groups);
        assert_int_equal(place_price(&w.p, &l, &got), ATOM_OK);
        assert_int_equal(got.possible, isfinite(naive));
        if (got.possible && fabs(got.step_seconds - naive) > 1e-9 * naive)
            fail_msg("seed %llu: %.12g, not %.12g", (unsigned long long)seed, got.step_seconds,
                     naive);
        priced += got.possible;
    }
    assert_true(priced > 100);
}

/* Four lines so slow that leaving one of them out buys nothing, and all four much. */
static void test_a_class_of_slow_lines_is_left_out(void **unused)
{
    (void)unused;
    static place_candidate got;
    make(&w, 3, 12, 4, 1);
    for (uint32_t i = 0; i < 12; i++) {
        w.up[i] = w.down[i] = i % 3 ? 1e7 : 1e5;
        for (uint32_t j = 0; j < 12; j++) {
            w.delay[i * 12 + j] = 0.01;
            w.rate[i * 12 + j] = i % 3 && j % 3 ? 1e7 : 1e5;
        }
    }
    assert_int_equal(place_whole(&w.p, PLACE_GRADIENTS, &got), ATOM_OK);
    for (uint32_t i = 0; i < 12; i += 3)
        assert_int_equal(got.stage[i], PLACE_UNUSED);
    assert_true(got.n_used > 1);
    assert_true(got.sync_seconds > 0 && got.sync_seconds == got.link_seconds);
}

/* What is evolved is never better than the best, and mostly it is the best. */
static void test_evolution(void **unused)
{
    (void)unused;
    uint32_t equal = 0;
    for (uint64_t seed = 0; seed < 30; seed++) {
        place_search evolve = {.seed = seed, .no_exact = true};
        place_candidate exact, got;
        make(&w, seed, 8, 5, 1);
        assert_int_equal(place_stages(&w.p, 2 + (uint32_t)(seed % 3), &plain, &exact), ATOM_OK);
        assert_int_equal(place_stages(&w.p, 2 + (uint32_t)(seed % 3), &evolve, &got), ATOM_OK);
        assert_true(got.step_seconds >= exact.step_seconds * (1 - 1e-12));
        assert_true(got.step_seconds <= exact.step_seconds * 1.1);
        equal += got.step_seconds <= exact.step_seconds * (1 + 1e-9);
    }
    if (equal < 20)
        fail_msg("%u of 30 are the best", equal);
}

static void test_64_hosts_twice(void **unused)
{
    (void)unused;
    static place_candidate one, two, random;
    const place_search none = {.seed = 1, .local = PLACE_LOCAL_NONE};
    make(&w, 4, 64, 6, 3);
    assert_int_equal(place_stages(&w.p, 4, &plain, &one), ATOM_OK);
    assert_int_equal(place_stages(&w.p, 4, &plain, &two), ATOM_OK);
    assert_int_equal(place_stages(&w.p, 4, &none, &random), ATOM_OK);
    assert_memory_equal(&one, &two, sizeof one);
    assert_true(one.step_seconds < random.step_seconds);
    uint32_t each[4] = {0};
    for (uint32_t h = 0; h < 64; h++)
        each[one.stage[h]]++;
    for (uint32_t s = 0; s < 4; s++)
        assert_int_equal(each[s], 16);
}

/* Eight places of eight hosts, named in no order: 64 hosts must not cost much more than when a stage
 * is a place. */
static void test_places_are_found(void **unused)
{
    (void)unused;
    place_candidate found, known;
    place_layout by_place = {.n_stages = 8, .n_groups = 8};
    const place_search search = {.seed = 1, .communication = true};
    make(&w, 4, 64, 6, 1);
    place_layer layers[8];
    double seconds[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (uint32_t i = 0; i < 8; i++)
        layers[i] = (place_layer){1000000, 10000};
    w.p.layers = layers;
    w.p.n_layers = 8;
    w.kinds[0].layer_seconds = seconds;
    for (uint32_t i = 0; i < 64; i++)
        for (uint32_t j = 0; j < 64; j++) {
            uint32_t a = i * 37 % 64 / 8, b = j * 37 % 64 / 8, apart = a > b ? a - b : b - a;
            w.delay[i * 64 + j] = 0.005 + 0.01 * apart;
            w.rate[i * 64 + j] = apart ? 2e7 / (1 + apart) : 1e8;
        }
    for (uint32_t i = 0; i < 64; i++)
        by_place.host[i * 37 % 64] = (uint16_t)i;
    assert_int_equal(place_price(&w.p, &by_place, &known), ATOM_OK);
    assert_int_equal(place_stages(&w.p, 8, &search, &found), ATOM_OK);
    if (found.communication_seconds > 1.1 * known.communication_seconds)
        fail_msg("%g s; by place it is %g s", found.communication_seconds,
                 known.communication_seconds);
}

static void test_verdict(void **unused)
{
    (void)unused;
    static place_verdict v;
    make(&w, 4, 6, 6, 1);
    w.p.micro_batches = 600;
    w.p.sync_bytes = 1e-6;
    assert_int_equal(place_decide(&w.p, &plain, &v), ATOM_OK);
    assert_int_equal(v.recommended, PLACE_GRADIENTS);
    w.p.sync_bytes = 4;
    assert_int_equal(place_decide(&w.p, &plain, &v), ATOM_OK);
    assert_int_equal(v.recommended, PLACE_PARAMETERS);
    assert_true(v.parameters.sync_steps >= 20 && v.stages.possible);
    w.kinds[0].whole = false;
    assert_int_equal(place_decide(&w.p, &plain, &v), ATOM_OK);
    assert_int_equal(v.recommended, -1);
    assert_non_null(strstr(v.gradients.why, "16 GiB are missing"));
}

/* Two members, each with half of a batch of 8, that take 4 * 1 + 0.5 and 4 * 2 + 1 seconds for it: 4000 / 4.5 + 4000 / 9
 * tokens a second, so 6 s for 8000, of which 8/9 is computing. */
static void test_what_averaging_members_make(void **unused)
{
    (void)unused;
    place_candidate got;
    make(&w, 4, 2, 6, 2);
    w.p.micro_batches = 8;
    w.kinds[0].whole_micro_seconds = 1;
    w.kinds[0].whole_update_seconds = 0.5;
    w.kinds[1].whole_micro_seconds = 2;
    w.kinds[1].whole_update_seconds = 1;
    assert_int_equal(place_whole(&w.p, PLACE_PARAMETERS, &got), ATOM_OK);
    assert_true(fabs(got.tokens_per_second - (4000 / 4.5 + 4000 / 9.0)) < 1e-9);
    assert_true(fabs(got.step_seconds - (6)) < 1e-9);
    assert_true(fabs(got.compute_seconds - (6 * 8 / 9.0)) < 1e-9);
    assert_true(fabs(got.optimizer_seconds - (6 / 9.0)) < 1e-9);
    assert_int_equal(got.bound, PLACE_BOUND_COMPUTE);
    assert_int_equal(got.binds, 1);
    assert_true(got.busy[0] == 1 && got.busy[1] == 1);
    w.kinds[0].whole_update_seconds = 5;
    w.kinds[1].whole_update_seconds = 10;
    assert_int_equal(place_whole(&w.p, PLACE_PARAMETERS, &got), ATOM_OK);
    assert_int_equal(got.bound, PLACE_BOUND_OPTIMIZER);
}

static void refused(const char *words)
{
    static place_verdict v;
    assert_int_equal(place_decide(&w.p, &plain, &v), ATOM_E_USAGE);
    if (!strstr(atom_fail_message(), words))
        fail_msg("\"%s\" does not say \"%s\"", atom_fail_message(), words);
    assert_null(strchr(atom_fail_message(), '\n'));
}

static void test_bad_input(void **unused)
{
    (void)unused;
    place_candidate got;
    make(&w, 4, 5, 6, 1);
    w.rate[1 * 5 + 3] = 0;
    refused("host1 and host3 are not connected");
    make(&w, 4, 5, 6, 1);
    w.rate[2 * 5 + 0] = 0;
    refused("host2 and host0 are not connected");
    make(&w, 3, 5, 6, 1);
    w.up[2] = 0;
    refused("host2 has a connection without bandwidth");
    make(&w, 4, 5, 6, 1);
    w.delay[7] = NAN;
    refused("host1 to host2: a delay");
    make(&w, 4, 5, 6, 1);
    w.seconds[0][2] = -1;
    refused("layer 2");
    make(&w, 4, 5, 6, 1);
    w.p.micro_batches = 0;
    refused("0 micro-batches");
    make(&w, 4, 5, 6, 1);
    assert_int_equal(place_stages(&w.p, 6, &plain, &got), ATOM_E_USAGE);
    w.kinds[0].host_bytes = 1000;
    assert_int_equal(place_stages(&w.p, 2, &plain, &got), ATOM_OK);
    assert_false(got.possible);
    assert_non_null(strstr(got.why, "no division of the layers fits"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_brute_force),
        cmocka_unit_test(test_whole_brute_force),
        cmocka_unit_test(test_classes_cost_what_hosts_cost),
        cmocka_unit_test(test_a_class_of_slow_lines_is_left_out),
        cmocka_unit_test(test_evolution),
        cmocka_unit_test(test_64_hosts_twice),
        cmocka_unit_test(test_verdict),
        cmocka_unit_test(test_what_averaging_members_make),
        cmocka_unit_test(test_places_are_found),
        cmocka_unit_test(test_bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
