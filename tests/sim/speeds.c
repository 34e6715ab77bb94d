/*
 * Simulates leases by speed (docs/design/pool.md#leases-by-speed) where members are slow, each at its
 * own speed, and some of them lie about it: virtual time, one seed decides everything. Leases,
 * shares and patience are the product's; certificates are made here, as the agreement makes them.
 * One idea: what must hold is counted from the certificates, by code of its own. It refuses to
 * simulate messages: the other simulator does.
 *
 *   L1   every micro-batch of a step counts exactly once
 *   L2   a step is made within so many versions, and within so much time
 *   L3   an honest member that does two micro-batches a step does at least a quarter of what it does
 *        where the liars are honest
 *   L4   whoever withholds loses its share: time over ends fewer versions than one in ten steps
 *   L5   where sums are clipped: everybody has a lease, and each step is of leases of more than two thirds of
 *        all, brought to one version, so of more honest members than liars; of L1 that none counts twice
 *
 *   sim_speeds [--first SEED] [--seeds N] [--seconds S] [--role NAME] [--expect L1] [--clipped 1]
 *              [--before 1]    shares that do not return (share.h), as in pools from before 2026-11-26
 */
#include "atom/pool/batch.h"
#include "gossip/agree/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH_MAX = 128, STEPS = 160, WARM = 60, VERSIONS_MAX = 3, DOUBT = 16 };

typedef enum role {
    HONEST,
    OVER,       /* says at once that it is done, and brings when it is */
    WITHHOLDS,  /* the same, and never brings */
    UNDER,      /* is quick, and says nothing: it brings if somebody else makes the version wait */
    ALTERNATES, /* quick and honest for a while, then withholds for a while */
    HURRIES,    /* ends a version in its turns as soon as it is done itself */
    ROLES
} role;

static const char *const role_name[ROLES] = {"honest", "over",       "withholds",
                                             "under",  "alternates", "hurries"};

/* Which worlds are wanted. */
typedef struct wish {
    role role; /* of all liars; HONEST: any */
    bool clipped, before;
} wish;

typedef struct member {
    role role;
    double speed;
    double left_s; /* of its lease */
    uint32_t n, list[BATCH_MAX];
    uint64_t step, doubted; /* until this version its word is not believed (gsp_view_doubt) */
    double did;             /* micro-batches that counted, after the warm-up */
} member;

typedef struct world {
    uint64_t random;
    uint32_t n, patience;
    uint64_t versions;
    double heartbeat_s, due_s, jitter, now_s;
    pool_batch b;
    gsp_roster roster;
    member m[GSP_MEMBERS_MAX];
    gsp_proposal c;
    pool_verdict v;
    uint32_t scratch[BATCH_MAX], times[BATCH_MAX]; /* times: that each counted in this step */
    uint32_t stalls; /* versions that time alone ended, after the warm-up */
    char invariant[8], what[160];
} world;

static uint64_t draw(world *w)
{
    uint64_t z = w->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double part(world *w)
{
    return (double)(draw(w) >> 11) * 0x1p-53;
}

static void violate(world *w, const char *invariant, const char *what, double a, double b)
{
    if (w->invariant[0])
        return;
    snprintf(w->invariant, sizeof w->invariant, "%s", invariant);
    snprintf(w->what, sizeof w->what, "%s (%.3f, %.3f)", what, a, b);
}

/* As many liars as strangers survive; speeds over a factor of ten. The sum of the honest speeds is
 * what the pool can do. */
static void world_open(world *w, uint64_t seed, const wish *wanted, bool truthful)
{
    memset(w, 0, sizeof *w);
    w->b.robust = wanted->clipped;
    w->b.returns = w->b.passes_on = !wanted->before;
    w->random = seed * 0x2545f4914f6cdd1du + 11;
    w->n = 4 + (uint32_t)(draw(w) % 9);
    w->b.n = 3 * w->n + (uint32_t)(draw(w) % (BATCH_MAX - 3 * w->n));
    w->b.micro_batch = 2;
    w->heartbeat_s = 0.2 + part(w);
    w->jitter = 0.1 * part(w);
    w->due_s = 600;
    w->roster.n = w->n;
    uint32_t liars = gsp_liars_max(GSP_STRANGERS, w->n);
    for (uint32_t i = 0; i < w->n; i++) {
        role r = wanted->role ? wanted->role : (role)(1 + draw(w) % (ROLES - 1));
        w->m[i].speed = draw(w) % 3 ? 1 : 0.1 + 0.9 * part(w);
        w->m[i].role = i < liars && !truthful ? r : HONEST;
        w->m[i].speed = i < liars ? 1 : w->m[i].speed; /* a slow liar has less to give away */
        w->roster.member[i].key.byte[0] = (uint8_t)(i + 1);
    }
    pool_batch_begin(&w->b);
}

static bool withholds(const world *w, const member *m)
{
    return m->role == WITHHOLDS || (m->role == ALTERNATES && w->b.steps / 40 % 2 == 1);
}

/* A lease that is the same as before goes on; another one begins. */
static void take_leases(world *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        member *m = &w->m[i];
        uint32_t n = pool_batch_lease(&w->b, &w->roster, i, w->scratch);
        if (n == m->n && m->step == w->b.steps &&
            memcmp(m->list, w->scratch, n * sizeof *m->list) == 0)
            continue;
        memcpy(m->list, w->scratch, n * sizeof *m->list);
        m->n = n;
        m->step = w->b.steps;
        m->left_s = n / m->speed * (1 + w->jitter * (2 * part(w) - 1));
    }
}

/* When the others believe that it is done. */
static double claims_at(const world *w, const member *m)
{
    if (m->role == OVER || withholds(w, m))
        return 0;
    return m->role == UNDER ? 1e300 : m->left_s;
}

/* What is claimed at that time by those who are believed: micro-batches, and members that have any.
 * *missing: micro-batches that nobody claims yet; *next: when the next member does. */
static void claimed_at(const world *w, double at, uint64_t *done, uint64_t *heads,
                       uint64_t *missing, double *next)
{
    *done = *heads = *missing = 0;
    *next = 1e300;
    for (uint32_t i = 0; i < w->n; i++) {
        const member *m = &w->m[i];
        double claims = claims_at(w, m);
        if (claims > at) {
            *missing += m->n;
            *next = m->n && claims < *next ? claims : *next;
        } else if (m->doubted < w->versions) {
            *done += m->n;
            *heads += m->n > 0;
        }
    }
}

/* When those who are done no longer wait for the others: agree_view.c's rule, by what members claim. */
static double waits_until(const world *w, uint64_t all)
{
    double at = 0, half_at = 1e300, next;
    uint64_t done, heads, missing;
    for (;; at = next) {
        claimed_at(w, at, &done, &heads, &missing, &next);
        bool enough = 2 * done >= all && (!w->b.robust || 3 * heads > 2 * w->n);
        half_at = enough && half_at > at ? at : half_at;
        if (missing == 0 || at > w->due_s)
            return at;
        if (!enough)
            continue;
        uint64_t wait_ns =
            gsp_view_late_wait_ns(w->patience, w->b.robust ? all : missing, all,
                                  (uint64_t)(1e9 * half_at), (uint64_t)(1e9 * w->heartbeat_s));
        double end = half_at + 1e-9 * (double)wait_ns;
        if (next > end)
            return at > end ? at : end;
    }
}

/* How long the version takes. */
static double lasts(world *w, uint32_t proposer)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < w->n; i++)
        all += w->m[i].n;
    double due = waits_until(w, all);
    if (w->m[proposer].role == HURRIES && w->m[proposer].n && w->m[proposer].left_s < due)
        return w->m[proposer].left_s;
    w->stalls += due > w->due_s && w->b.steps >= WARM;
    return due > w->due_s ? w->due_s : due;
}

/* Who brings its lease to a version that lasted so long. */
static bool brings(const world *w, const member *m, double lasted)
{
    return m->n > 0 && m->left_s <= lasted && !withholds(w, m);
}

static void count(world *w, member *m)
{
    for (uint32_t k = 0; k < m->n; k++)
        if (w->times[m->list[k]]++)
            violate(w, "L1", "a micro-batch counts twice", m->list[k], (double)w->b.steps);
    m->did += w->b.steps >= WARM ? m->n : 0;
}

static bool version(world *w)
{
    uint32_t proposer = (uint32_t)(draw(w) % w->n), n_leased = 0;
    take_leases(w);
    double lasted = lasts(w, proposer);
    w->versions++;
    memset(&w->c, 0, sizeof w->c);
    w->c.n_parts = 1;
    w->c.next = w->roster;
    for (uint32_t i = 0; i < w->n; i++) {
        member *m = &w->m[i];
        n_leased += m->n > 0;
        if (brings(w, m, lasted)) {
            uint32_t k = w->c.n_contributors++;
            w->c.contributor[k].member = (uint8_t)i;
            w->c.contributor[k].samples = m->n * w->b.micro_batch;
            w->c.contributor[k].weight = 1;
            w->c.part[0].included |= 1u << k;
        } else if (m->n > 0 && claims_at(w, m) < lasted) {
            m->doubted = w->versions + DOUBT;
        }
        double passed = lasted + w->heartbeat_s; /* computing goes on in a round */
        m->left_s = m->left_s > passed ? m->left_s - passed : 0;
    }
    w->now_s += lasted + w->heartbeat_s; /* a round */
    pool_batch_judge(&w->b, &w->c, &w->roster, 1, 1, w->scratch, &w->v);
    pool_batch_shares(&w->b, &w->roster, &w->c, &w->v);
    for (uint32_t k = 0; w->v.whole && k < w->c.n_contributors; k++)
        count(w, &w->m[w->c.contributor[k].member]);
    if (w->v.whole)
        pool_batch_add(&w->b, &w->v);
    w->patience = gsp_view_late_learn(w->patience, n_leased > w->c.n_contributors);
    if (w->b.n_open)
        return false;
    if (w->b.robust && (n_leased < w->n || 3 * w->c.n_contributors <= 2 * w->n))
        violate(w, "L5", "a step of too few", w->c.n_contributors, w->n);
    for (uint32_t k = 0; !w->b.robust && k < w->b.n; k++)
        if (w->times[k] != 1)
            violate(w, "L1", "a micro-batch is not in its step", k, (double)w->b.steps);
    memset(w->times, 0, sizeof w->times);
    pool_batch_begin(&w->b);
    w->b.steps++;
    return true;
}

static void run(world *w)
{
    double slowest = 1;
    for (uint32_t i = 0; i < w->n; i++)
        slowest = w->m[i].speed < slowest ? w->m[i].speed : slowest;
    while (w->b.steps < STEPS && !w->invariant[0]) {
        double began = w->now_s;
        uint32_t versions = 1;
        while (!version(w) && versions < VERSIONS_MAX * w->n)
            versions++;
        /* No step takes longer than the slowest would take with a whole batch, time once over, and
         * the versions that were ended in a hurry. */
        double bound = 2 * (w->b.n / slowest + w->due_s) + 4 * versions * w->heartbeat_s;
        if (versions >= VERSIONS_MAX * w->n || w->now_s - began > bound)
            violate(w, "L2", "a step takes too long", versions, w->now_s - began);
    }
    if (w->stalls > (STEPS - WARM) / 10)
        violate(w, "L4", "versions wait for members that withhold", w->stalls, (double)w->b.steps);
}

/* The same seed with honest members in the places of the liars says what there is to lose. */
static void look(world *w, uint64_t seed, const wish *wanted)
{
    static world truth;
    world_open(w, seed, wanted, false);
    run(w);
    if (w->invariant[0])
        return;
    world_open(&truth, seed, wanted, true);
    run(&truth);
    for (uint32_t i = 0; i < w->n; i++)
        if (w->m[i].role == HONEST && truth.m[i].did >= 2 * (STEPS - WARM) &&
            4 * w->m[i].did < truth.m[i].did)
            violate(w, "L3", "liars keep an honest member from its work", w->m[i].did,
                    truth.m[i].did);
    if (truth.invariant[0])
        violate(w, truth.invariant, "and nobody lies", 0, 0);
}

static role role_of(const char *name)
{
    for (int k = 1; k < ROLES; k++)
        if (strcmp(role_name[k], name) == 0)
            return (role)k;
    return HONEST;
}

int main(int argc, char **argv)
{
    static world w;
    uint64_t first = 1, seeds = 300, failed = 0, done = 0;
    double box_s = 1e9;
    const char *expect = NULL;
    wish wanted = {.role = HONEST};
    for (int k = 1; k < argc; k += 2) {
        const char *value = k + 1 < argc ? argv[k + 1] : "";
        if (strcmp(argv[k], "--first") == 0)
            first = strtoull(value, NULL, 0);
        else if (strcmp(argv[k], "--seeds") == 0)
            seeds = strtoull(value, NULL, 0);
        else if (strcmp(argv[k], "--seconds") == 0)
            box_s = strtod(value, NULL);
        else if (strcmp(argv[k], "--expect") == 0)
            expect = value;
        else if (strcmp(argv[k], "--role") == 0 && role_of(value))
            wanted.role = role_of(value);
        else if (strcmp(argv[k], "--clipped") == 0)
            wanted.clipped = atoi(value);
        else if (strcmp(argv[k], "--before") == 0)
            wanted.before = atoi(value);
        else
            return fprintf(stderr, "sim_speeds: unknown option %s\n", argv[k]), 2;
    }
    for (clock_t began = clock(); done < seeds; done++) {
        if ((double)(clock() - began) > box_s * CLOCKS_PER_SEC)
            break;
        look(&w, first + done, &wanted);
        if (!w.invariant[0])
            continue;
        failed++;
        printf("sim_speeds: seed %llu: %s: %s\n", (unsigned long long)(first + done), w.invariant,
               w.what);
        if (expect && strcmp(expect, w.invariant) == 0)
            return 0;
    }
    printf("sim_speeds: %llu seeds, %llu failed\n", (unsigned long long)done,
           (unsigned long long)failed);
    return expect ? 1 : failed != 0;
}
