/*
 * Measures what a pool of unequal members makes of their speeds, in virtual time, by hand: the
 * product's own leases and shares (atom/pool/batch.h) and its own patience with who is late
 * (gsp_view_late_wait_ns), with clocks that only count. Beside it stand the rules of others on the
 * same speeds. One idea: a version is its leases, the moment when it is due, and who is done by
 * then, so no message has to be simulated. It refuses to say anything about networks: a round is a
 * given time, shown and taken out.
 *
 *   pool_measure_speeds [SPEED ...]        default: 1 1 0.5 0.1
 *   MICRO_BATCHES=48 SECONDS=1 (of a micro-batch at speed 1) ROUND=2 HEARTBEAT=1 STEPS=2000
 *   JITTER=0.05 (of each lease's time, either way) SEED=1 WARM=500 (steps before, until shares are
 *   found; a quarter of STEPS)
 *   STOP_EVERY=0 STOP_FOR=20 (seconds: the last member stands still so long, every so often)
 *   RETURNS=1 (0: shares of pools from before 2026-11-26)
 */
#include "atom/base/mem.h"
#include "atom/pool/batch.h"
#include "gossip/agree/agree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct setting {
    uint32_t n, micro_batches, steps, warm;
    double speed[GSP_MEMBERS_MAX], sum, each_s, round_s, heartbeat_s, jitter, stop_every_s,
        stop_for_s;
    uint64_t random;
    bool returns;
} setting;

typedef struct outcome {
    double wall_s, rounds_s, samples, lost_s, idle_s; /* lost: computed for nothing */
    uint64_t versions, late;
    double done[GSP_MEMBERS_MAX];
} outcome;

static double noise(setting *s)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return 1 + s->jitter * ((double)(s->random >> 11) * 0x1p-52 - 1);
}

/* How long work of so many seconds takes from that time on, where it stands still now and then. */
static double with_stops(const setting *s, double now_s, double work_s)
{
    double took = 0, until_stop;
    for (; s->stop_every_s > 0; work_s -= until_stop) {
        double at = fmod(now_s + took, s->stop_every_s);
        double still =
            at < s->stop_for_s && now_s + took >= s->stop_every_s ? s->stop_for_s - at : 0;
        took += still;
        until_stop = s->stop_every_s - (still > 0 ? s->stop_for_s : at);
        if (work_s <= until_stop)
            break;
        took += until_stop;
    }
    return took + work_s;
}

static double wanted(const char *name, double otherwise)
{
    const char *text = getenv(name);
    return text ? atof(text) : otherwise;
}

/* ---- atom ---- */

typedef struct world {
    pool_batch batch;
    gsp_roster roster;
    gsp_proposal *c;
    uint32_t *list;
    pool_verdict verdict;
    uint32_t patience;
} world;

/* Micro-batches that are done at that time; *next: when the next member is. */
static uint32_t done_at(const setting *s, const uint32_t *lease, const double *took, double at,
                        double *next)
{
    uint32_t done = 0;
    *next = 1e300;
    for (uint32_t i = 0; i < s->n; i++) {
        done += took[i] <= at ? lease[i] : 0;
        *next = lease[i] && took[i] > at && took[i] < *next ? took[i] : *next;
    }
    return done;
}

/* When the version is due after its begin: all are done, or the patience with the others ends. */
static double due_after(uint32_t patience, const setting *s, const uint32_t *lease,
                        const double *took)
{
    double at = 0, next = 0, half_at = 0;
    uint32_t all = 0, done = 0;
    for (uint32_t i = 0; i < s->n; i++)
        all += lease[i];
    for (;; at = next) {
        done = done_at(s, lease, took, at, &next);
        half_at = half_at == 0 && 2 * done >= all ? at : half_at;
        if (done == all)
            return at;
        if (half_at == 0)
            continue;
        uint64_t wait_ns = gsp_view_late_wait_ns(
            patience, all - done, all, (uint64_t)(1e9 * half_at), (uint64_t)(1e9 * s->heartbeat_s));
        double end = half_at + 1e-9 * (double)wait_ns; /* nearer, the less is missing */
        if (next > end)
            return at > end ? at : end;
    }
}

/* Those of `bits` bring their leases. */
static void certify(world *w, const setting *s, uint32_t bits)
{
    memset(w->c, 0, sizeof *w->c);
    w->c->n_parts = 1;
    w->c->next = w->roster;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t lease = pool_batch_leased(&w->batch, &w->roster, i), k = w->c->n_contributors;
        if (!(bits >> i & 1) || lease == 0)
            continue;
        w->c->contributor[k].member = (uint8_t)i;
        w->c->contributor[k].samples = lease;
        w->c->part[0].included |= 1u << k;
        w->c->n_contributors++;
    }
    pool_batch_judge(&w->batch, w->c, &w->roster, 1, 1, w->list, &w->verdict);
    pool_batch_shares(&w->batch, &w->roster, w->c, &w->verdict);
    pool_batch_add(&w->batch, &w->verdict);
    if (w->batch.n_open == 0) {
        pool_batch_begin(&w->batch);
        w->batch.steps++;
    }
}

static void version(world *w, setting *s, outcome *o)
{
    uint32_t lease[GSP_MEMBERS_MAX], bits = 0;
    double took[GSP_MEMBERS_MAX];
    for (uint32_t i = 0; i < s->n; i++) {
        lease[i] = pool_batch_leased(&w->batch, &w->roster, i);
        took[i] = lease[i] * s->each_s / s->speed[i] * noise(s);
    }
    took[s->n - 1] = with_stops(s, o->wall_s, took[s->n - 1]);
    double due = due_after(w->patience, s, lease, took);
    bool late = false;
    for (uint32_t i = 0; i < s->n; i++) {
        bool done = took[i] <= due;
        late |= !done;
        bits |= done ? 1u << i : 0;
        o->late += !done;
        o->done[i] += done ? lease[i] : 0;
        o->samples += done ? lease[i] : 0;
        o->lost_s += done ? 0 : due * s->speed[i];
        o->idle_s += done ? (due - took[i]) * s->speed[i] : 0;
    }
    certify(w, s, bits);
    w->patience = gsp_view_late_learn(w->patience, late);
    o->versions++;
    o->wall_s += due + s->round_s;
    o->rounds_s += s->round_s;
}

static outcome atom(setting s)
{
    outcome o = {0}, warm = {0};
    world *w = atom_alloc(1, sizeof *w);
    if (!w)
        abort();
    w->c = atom_alloc(1, sizeof *w->c);
    w->list = atom_alloc(s.micro_batches, sizeof *w->list);
    if (!w->c || !w->list)
        abort();
    w->batch.n = s.micro_batches;
    w->batch.micro_batch = 1;
    w->batch.returns = s.returns;
    w->roster.n = s.n;
    for (uint32_t i = 0; i < s.n; i++)
        w->roster.member[i].key.byte[0] = (uint8_t)(i + 1);
    pool_batch_begin(&w->batch);
    while (w->batch.steps < s.warm)
        version(w, &s, &warm);
    while (w->batch.steps < s.steps + s.warm)
        version(w, &s, &o);
    atom_free(w->c);
    atom_free(w->list);
    atom_free(w);
    return o;
}

/* ---- others ---- */

/* torchft: every replica computes its equal part, and all wait for the slowest of those that take
 * part: of the `first` fastest; the others are left out. */
static outcome equal_parts(setting s, uint32_t first)
{
    outcome o = {0};
    for (uint32_t step = 0; step < s.steps; step++) {
        double last = 0;
        for (uint32_t i = 0; i < first; i++) {
            double part = (double)s.micro_batches / first;
            double took = part * s.each_s / s.speed[i] * noise(&s);
            last = took > last ? took : last;
            o.done[i] += part;
        }
        o.samples += s.micro_batches;
        o.wall_s += last + s.round_s;
        o.rounds_s += s.round_s;
        o.versions++;
    }
    return o;
}

/* hivemind: everybody computes as it can until all together have a target's number of samples; then
 * what each has is averaged. A micro-batch in the making then goes into the next step. */
static outcome until_target(setting s)
{
    outcome o = {0};
    double left[GSP_MEMBERS_MAX], have = 0;
    for (uint32_t i = 0; i < s.n; i++)
        left[i] = s.each_s / s.speed[i] * noise(&s);
    for (uint32_t step = 0; step < s.steps; step++, have = 0) {
        double spent = 0;
        while (have < s.micro_batches) {
            uint32_t next = 0;
            for (uint32_t i = 1; i < s.n; i++)
                next = left[i] < left[next] ? i : next;
            double dt = left[next];
            for (uint32_t i = 0; i < s.n; i++)
                left[i] -= dt;
            spent += dt;
            left[next] = s.each_s / s.speed[next] * noise(&s);
            o.done[next]++;
            have++;
        }
        o.samples += have;
        o.wall_s += spent + s.round_s;
        o.rounds_s += s.round_s;
        o.versions++;
    }
    return o;
}

/* ---- the table ---- */

static void show(const char *name, const setting *s, const outcome *o)
{
    double pace = o->samples * s->each_s, net = o->wall_s - o->rounds_s;
    printf("| %-44s | %.3f | %.3f | %.2f | %.3f | %.3f |", name, pace / net / s->sum,
           pace / o->wall_s / s->sum, (double)o->versions / s->steps, o->idle_s / net / s->sum,
           o->lost_s / net / s->sum);
    for (uint32_t i = 0; i < s->n; i++)
        printf(" %.3f", o->done[i] / o->samples);
    printf(" |\n");
}

int main(int argc, char **argv)
{
    setting s = {.n = 4,
                 .speed = {1, 1, 0.5, 0.1},
                 .micro_batches = (uint32_t)wanted("MICRO_BATCHES", 48),
                 .steps = (uint32_t)wanted("STEPS", 2000),
                 .each_s = wanted("SECONDS", 1),
                 .round_s = wanted("ROUND", 2),
                 .heartbeat_s = wanted("HEARTBEAT", 1),
                 .jitter = wanted("JITTER", 0.05),
                 .stop_every_s = wanted("STOP_EVERY", 0),
                 .stop_for_s = wanted("STOP_FOR", 20),
                 .returns = wanted("RETURNS", 1) != 0,
                 .random = (uint64_t)wanted("SEED", 1)};
    s.warm = (uint32_t)wanted("WARM", s.steps / 4);
    if (argc > 1)
        s.n = argc - 1 < GSP_MEMBERS_MAX ? (uint32_t)argc - 1 : GSP_MEMBERS_MAX;
    for (uint32_t i = 0; i < s.n; i++) {
        s.speed[i] = argc > 1 ? atof(argv[i + 1]) : s.speed[i];
        if (s.speed[i] <= 0 || (i > 0 && s.speed[i] > s.speed[i - 1]))
            return fprintf(stderr, "speeds are above 0, the fastest first\n"), 2;
        s.sum += s.speed[i];
    }
    printf(
        "| rule | of the sum, rounds taken out | with rounds | versions a step | waited | lost | "
        "shares of the work |\n|---|---|---|---|---|---|---|\n");
    outcome o = atom(s);
    show("atom: leases by speed", &s, &o);
    o = equal_parts(s, s.n);
    show("equal parts, all wait for the slowest", &s, &o);
    for (uint32_t k = s.n - 1; k > 0; k--) {
        char name[80];
        snprintf(name, sizeof name, "equal parts of the %u fastest", k);
        o = equal_parts(s, k);
        show(name, &s, &o);
    }
    o = until_target(s);
    show("own pace until the target is reached", &s, &o);
    return 0;
}
