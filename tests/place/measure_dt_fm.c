/*
 * What partition/place makes of a network that tools/paper gives it, by hand. Owns nothing but the
 * reading of it. One idea: DT-FM's equation 1 alone, for 8 stages of 8 devices, by each local step,
 * and for arrangements that nobody searched. Refuses numbers that are missing.
 *
 *   stdin   n, bytes of a boundary, bytes of all gradients; then n x n delays (s), n x n rates (B/s)
 *   stdout  one JSON object: seconds of eq. 1 for each local step and seed, and of random layouts
 */
#include "partition/place/place.h"

#include "atom/base/clock.h"
#include "atom/base/rng.h"

#include <stdio.h>

enum { STAGES = 8, SEEDS = 3, RANDOM = 200 };

static bool read_matrix(double *m, uint32_t n)
{
    for (uint32_t i = 0; i < n * n; i++)
        if (scanf("%lf", &m[i]) != 1)
            return false;
    return true;
}

static atom_status price_random(const place_problem *p, uint64_t k, double *seconds)
{
    place_candidate c;
    place_layout l = {.n_stages = STAGES, .n_groups = p->n_hosts / STAGES};
    for (uint32_t i = 0; i < p->n_hosts; i++)
        l.host[i] = (uint16_t)i;
    for (uint32_t i = p->n_hosts; i > 1; i--) {
        uint32_t j = atom_rng_u32((atom_rng_key){.seed = k}, i) % i;
        uint16_t t = l.host[i - 1];
        l.host[i - 1] = l.host[j];
        l.host[j] = t;
    }
    ATOM_TRY(place_price(p, &l, &c));
    *seconds = c.communication_seconds;
    return ATOM_OK;
}

static atom_status measure(const place_problem *p)
{
    static const char *const names[] = {"both", "paper", "kernighan_lin"};
    place_candidate c;
    double sum = 0, one = 0;
    printf("{");
    for (int how = 0; how < 3; how++) {
        double begin = atom_clock_seconds();
        printf("\"%s\": [", names[how]);
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            const place_search search = {
                .seed = seed, .communication = true, .local = (place_local)how};
            ATOM_TRY(place_stages(p, STAGES, &search, &c));
            printf("%s%.6f", seed ? ", " : "", c.communication_seconds);
        }
        printf("], \"%s_took\": %.3f, ", names[how], (atom_clock_seconds() - begin) / SEEDS);
    }
    for (uint64_t k = 0; k < RANDOM; k++) {
        ATOM_TRY(price_random(p, k, &one));
        sum += one;
    }
    printf("\"random\": %.6f}\n", sum / RANDOM);
    return ATOM_OK;
}

int main(void)
{
    static double delay[PLACE_HOSTS_MAX * PLACE_HOSTS_MAX], rate[PLACE_HOSTS_MAX * PLACE_HOSTS_MAX];
    static place_host hosts[PLACE_HOSTS_MAX];
    place_layer layers[STAGES];
    double seconds[STAGES], boundary, gradients;
    uint32_t n;
    if (scanf("%u %lf %lf", &n, &boundary, &gradients) != 3 || n < STAGES || n > PLACE_HOSTS_MAX ||
        !read_matrix(delay, n) || !read_matrix(rate, n)) {
        fprintf(stderr, "measure_dt_fm: numbers are missing on standard input\n");
        return 2;
    }
    for (uint32_t i = 0; i < STAGES; i++) {
        layers[i] = (place_layer){(uint64_t)(gradients / STAGES), (uint64_t)boundary};
        seconds[i] = 1;
    }
    for (uint32_t i = 0; i < n; i++)
        snprintf(hosts[i].name, sizeof hosts[i].name, "device %u", i);
    const place_kind kind = {.name = "device",
                             .layer_seconds = seconds,
                             .update_elements_per_second = 1e9,
                             .host_bytes = (uint64_t)1 << 50};
    const place_problem p = {.layers = layers,
                             .kinds = &kind,
                             .hosts = hosts,
                             .n_layers = STAGES,
                             .n_kinds = 1,
                             .n_hosts = n,
                             .delay = delay,
                             .rate = rate,
                             .micro_tokens = 2048,
                             .micro_batches = 1024,
                             .sync_bytes = 1,
                             .state_bytes = 12,
                             .wire_bytes = 2,
                             .paper = true};
    if (measure(&p) == ATOM_OK)
        return 0;
    fprintf(stderr, "measure_dt_fm: %s\n", atom_fail_message());
    return 1;
}
