/*
 * Owns the verdict "gradients or parameters" of pool create. One idea: partition/place is asked
 * about as many copies of this host as there will be members, so that this verdict and that of
 * atom plan --pool cannot differ. Refuses to price what nobody measured.
 */
#include "atom/pool/ways.h"

#include "atom/base/mem.h"
#include "gossip/sum/quant.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The matrices and lines of hosts that are all alike. */
typedef struct copies {
    place_host *hosts;
    double *delay, *rate, *line;
} copies;

static void close_copies(copies *c)
{
    atom_free(c->hosts);
    atom_free(c->delay);
    atom_free(c->rate);
    atom_free(c->line);
}

static atom_status open_copies(uint32_t n, double bytes_per_s, copies *c)
{
    size_t cells = (size_t)n * n;
    c->hosts = atom_alloc(n, sizeof *c->hosts);
    c->delay = atom_alloc(cells, sizeof *c->delay);
    c->rate = atom_alloc(cells, sizeof *c->rate);
    c->line = atom_alloc(n, sizeof *c->line);
    if (!c->hosts || !c->delay || !c->rate || !c->line)
        return atom_fail_memory("hosts of a pool", 2 * cells * sizeof(double));
    for (uint32_t i = 0; i < n; i++) {
        snprintf(c->hosts[i].name, sizeof c->hosts[i].name, "member %u", i + 1);
        c->line[i] = bytes_per_s;
    }
    for (size_t i = 0; i < cells; i++) {
        c->delay[i] = 2 * POOL_ASSUMED_DELAY;
        c->rate[i] = bytes_per_s;
    }
    return ATOM_OK;
}

static double bytes_each(int32_t codec, uint64_t floats)
{
    return (double)gsp_codec_bytes((gsp_codec)codec, floats) / (double)floats;
}

static atom_status price(place_problem *p, place_mode mode, double bytes, place_candidate *c)
{
    p->sync_bytes = bytes;
    return place_whole(p, mode, c);
}

atom_status pool_ways_price(const pool_ways_facts *f, pool_ways *out)
{
    uint32_t n = f->members < PLACE_HOSTS_MAX ? f->members : PLACE_HOSTS_MAX;
    double batches = f->micro_tokens > 0 ? ceil(f->step_tokens / f->micro_tokens) : 0;
    double no_layers = 0; /* whole copies have a price of their own */
    place_layer layer = {.elements = f->floats};
    place_kind kind = {.name = "this host",
                       .layer_seconds = &no_layers,
                       .update_elements_per_second = 1,
                       .whole = true,
                       .whole_micro_seconds = f->micro_seconds};
    copies c = {0};
    place_candidate sums, side, averages;
    atom_status st = ATOM_OK;
    memset(out, 0, sizeof *out);
    if (n < 2 || !f->floats || batches < 1 || batches > 1 << 24 || f->micro_seconds <= 0)
        return ATOM_OK;
    ATOM_TRY_CLEAN(open_copies(n, f->bytes_per_s, &c));
    place_problem p = {.layers = &layer,
                       .kinds = &kind,
                       .hosts = c.hosts,
                       .n_layers = 1,
                       .n_kinds = 1,
                       .n_hosts = n,
                       .delay = c.delay,
                       .rate = c.rate,
                       .up = c.line,
                       .down = c.line,
                       .micro_tokens = f->micro_tokens,
                       .micro_batches = (uint32_t)batches,
                       .everybody = true};
    kind.whole_update_seconds = f->update_seconds;
    ATOM_TRY_CLEAN(price(&p, PLACE_PARAMETERS, bytes_each(f->weights_codec, f->floats), &averages));
    kind.whole_update_seconds = f->apart_seconds;
    ATOM_TRY_CLEAN(price(&p, PLACE_GRADIENTS, bytes_each(f->gradients_codec, f->floats), &sums));
    p.delayed = true;
    ATOM_TRY_CLEAN(price(&p, PLACE_GRADIENTS, bytes_each(f->gradients_codec, f->floats), &side));
    const place_candidate *gradients = f->delayed ? &side : &sums;
    *out = (pool_ways){.known = true,
                       .members = n,
                       .alone = averages.tokens_per_second / n,
                       .gradients = {gradients->tokens_per_second, gradients->bound},
                       .weights = {averages.tokens_per_second, averages.bound},
                       .sums_seconds = sums.step_seconds,
                       .delayed_seconds = side.step_seconds,
                       .gradients_codec = f->gradients_codec,
                       .step_tokens = batches * f->micro_tokens,
                       .recommended = place_recommend(gradients, &averages)};
cleanup:
    close_copies(&c);
    return st;
}
