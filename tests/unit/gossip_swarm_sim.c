/*
 * A joiner and its donors in virtual time: donors of rates far apart, questions that get lost, donors
 * that die and come back, fall silent, lie, or do not have what they are asked for. Whatever happens,
 * every piece comes once and right, nobody who lied is asked again, windows hold; where nothing
 * happens, it takes little longer than all bytes at all rates together.
 *
 * A seed decides everything; a run that fails prints its seed, and ATOM_TEST_SEED=N runs that one.
 */
#include "gossip/swarm/swarm.h"

#include "atom/base/mem.h"
#include "tests/lib/sanitized.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    DONORS_MAX = 9,
    SETS_MAX = 4,
    PIECES_MAX = 400,
    MAIL_MAX = 4096,
    GUARD_BYTES = 64,
    SEEDS = SANITIZED ? 70 : 200,
};
static const uint64_t SECOND = 1000000000u, TICK = 10000000u, HOUR = 3600000000000u;
static const uint32_t PIECE = 256 * 1024;

/* What is on its way: a question to a donor, or an answer of one. */
typedef struct mail {
    uint64_t at;
    bool answer;
    uint32_t life; /* of the donor's link: mail of an earlier one is lost with it */
    uint32_t donor, set, first, n;
    gsp_swarm_verdict verdict;
} mail;

typedef struct donor {
    uint8_t name[GSP_SWARM_NAME_BYTES];
    uint32_t number, life;
    uint64_t rate, delay_ns, free_ns; /* bytes per second; one way; when it has sent what it owes */
    uint64_t dies_ns, back_ns, silent_ns, speaks_ns; /* 0: never */
    uint32_t lies_percent, loss_percent, lacks;      /* lacks: bits of sets */
    bool up, caught;
    uint64_t lack_ns[SETS_MAX]; /* when it denied a set */
} donor;

typedef struct world {
    uint64_t seed, random, now, done_ns, bytes;
    gsp_swarm_config config;
    uint32_t n_pieces[SETS_MAX], n_donors, n_mail;
    gsp_swarm *s;
    uint8_t *memory;
    size_t memory_bytes;
    donor donor[DONORS_MAX];
    mail mail[MAIL_MAX];
    uint8_t here[SETS_MAX][PIECES_MAX];
    uint32_t left, came, n_asks;
    uint64_t digest; /* of all questions */
    const char *wrong;
} world;

static uint64_t draw(world *w, uint64_t n)
{
    w->random += 0x9e3779b97f4a7c15u;
    uint64_t z = w->random;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % n;
}

static bool chance(world *w, uint32_t percent)
{
    return draw(w, 100) < percent;
}

static void must(world *w, bool right, const char *what)
{
    if (!right && !w->wrong)
        w->wrong = what;
}

/* ---- how it begins ---- */

/* The three that are in use: a state, a data set, a small file. */
static gsp_swarm_config style(world *w)
{
    static const gsp_swarm_config use[3] = {
        {.window_first = 4,
         .window_min = 2,
         .window_max = 32,
         .run_max = 1,
         .silent_ns = 8000000000u},
        {.window_first = 4,
         .window_min = 4,
         .window_max = 64,
         .run_max = 64,
         .offers_all = true,
         .silent_ns = 8000000000u,
         .deny_ns = 5000000000u,
         .late_ns = 400000000u},
        {.window_first = 4,
         .window_min = 4,
         .window_max = 16,
         .run_max = 1,
         .offers_all = true,
         .silent_ns = 15000000000u,
         .aside_ns = 15000000000u,
         .late_ns = 4000000000u},
    };
    return use[draw(w, 3)];
}

static void make_donor(world *w, uint32_t i, bool faults)
{
    donor *o = &w->donor[i];
    memset(o->name, (int)('a' + i), sizeof o->name);
    o->rate = (uint64_t)PIECE << draw(w, 7); /* from 256 KiB to 16 MiB a second */
    o->delay_ns = (1 + draw(w, 80)) * 1000000;
    if (!faults || i == 0) /* one is honest, always there, and has everything */
        return;
    o->loss_percent = chance(w, 30) ? 1 + (uint32_t)draw(w, 20) : 0;
    o->lies_percent = chance(w, 20) ? 1 + (uint32_t)draw(w, 100) : 0;
    if (chance(w, 30))
        o->dies_ns = 1 + draw(w, 20) * SECOND;
    if (o->dies_ns && chance(w, 60))
        o->back_ns = o->dies_ns + 1 + draw(w, 10) * SECOND;
    if (chance(w, 20))
        o->silent_ns = 1 + draw(w, 10) * SECOND;
    if (o->silent_ns && chance(w, 50))
        o->speaks_ns = o->silent_ns + draw(w, 30) * SECOND;
    if (chance(w, 30))
        o->lacks = (uint32_t)draw(w, 1u << SETS_MAX);
}

static void link_up(world *w, donor *o)
{
    o->number = gsp_swarm_up(w->s, o->name);
    o->up = true;
    o->life++;
    memset(o->lack_ns, 0, sizeof o->lack_ns);
    must(w, o->number < w->n_donors, "there is room for every donor");
    for (uint32_t k = 0; !w->config.offers_all && k < w->config.n_sets; k++)
        gsp_swarm_offer(w->s, o->number, k, true);
}

static void begin(world *w, uint64_t seed, bool faults)
{
    memset(w, 0, sizeof *w);
    w->seed = w->random = seed;
    w->now = SECOND;
    w->config = style(w);
    w->config.piece_bytes = PIECE;
    w->config.n_donors = w->n_donors = 1 + (uint32_t)draw(w, DONORS_MAX);
    w->config.n_sets = 1 + (uint32_t)draw(w, SETS_MAX);
    w->config.n_pieces = w->n_pieces;
    for (uint32_t k = 0; k < w->config.n_sets; k++)
        w->n_pieces[k] = (uint32_t)draw(w, PIECES_MAX + 1);
    w->memory_bytes = gsp_swarm_bytes(&w->config);
    w->memory = atom_alloc(1, w->memory_bytes + GUARD_BYTES);
    assert_non_null(w->memory);
    memset(w->memory + w->memory_bytes, 0xa5, GUARD_BYTES);
    w->s = gsp_swarm_open(&w->config, w->memory);
    for (uint32_t k = 0; k < w->config.n_sets; k++) {
        gsp_swarm_begin(w->s, k, draw(w, 3));
        for (uint32_t p = 0; p < w->n_pieces[k]; p++) { /* a former run left some */
            w->here[k][p] = chance(w, 5);
            gsp_swarm_here(w->s, k, p, w->here[k][p]);
            w->left += !w->here[k][p];
        }
    }
    w->bytes = (uint64_t)w->left * PIECE;
    for (uint32_t i = 0; i < w->n_donors; i++) {
        make_donor(w, i, faults);
        link_up(w, &w->donor[i]);
    }
}

/* ---- the network ---- */

static void post(world *w, mail m)
{
    m.life = w->donor[m.donor].life;
    must(w, w->n_mail < MAIL_MAX, "what is in flight is bounded");
    if (w->n_mail < MAIL_MAX)
        w->mail[w->n_mail++] = m;
}

static donor *by_number(world *w, uint32_t number)
{
    for (uint32_t i = 0; i < w->n_donors; i++)
        if (w->donor[i].number == number)
            return &w->donor[i];
    return NULL;
}

/* Other donors that this piece was asked of and that still owe it, as the swarm sees it. */
static uint32_t others_owe(const world *w, const donor *o, uint32_t set, uint32_t piece)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n_donors; i++)
        n += &w->donor[i] != o && gsp_swarm_asked(w->s, w->donor[i].number, set, piece);
    return n;
}

static bool take(void *context, const gsp_swarm_ask *ask)
{
    world *w = context;
    donor *o = by_number(w, ask->donor);
    uint32_t i = (uint32_t)(o - w->donor), owed = 0;
    w->n_asks++;
    w->digest =
        (w->digest ^ ask->donor ^ ask->set << 8 ^ (uint64_t)ask->first << 16) * 0x100000001b3u;
    must(w, o && o->up, "only those are asked that are there");
    must(w, !o->caught, "a donor that lied is not asked again");
    must(w, memcmp(o->name, ask->name, sizeof o->name) == 0, "a question names its donor");
    must(w, ask->n >= 1 && ask->n <= w->config.run_max, "a question is no longer than allowed");
    must(w, ask->set < w->config.n_sets && ask->first + ask->n <= w->n_pieces[ask->set],
         "only what there is is asked for");
    if (w->wrong)
        return true;
    for (uint32_t k = ask->first; k < ask->first + ask->n; k++) {
        must(w, !w->here[ask->set][k], "nothing is asked for that is here");
        must(w, w->config.late_ns || !others_owe(w, o, ask->set, k),
             "nothing is asked for that somebody else owes");
    }
    for (uint32_t s = 0; s < w->config.n_sets; s++)
        for (uint32_t k = 0; k < w->n_pieces[s]; k++)
            owed += gsp_swarm_asked(w->s, ask->donor, s, k);
    must(w, owed <= w->config.window_max, "no donor owes more than the largest window");
    must(w,
         !o->lack_ns[ask->set] ||
             (w->config.deny_ns && w->now - o->lack_ns[ask->set] > w->config.deny_ns),
         "a donor is not asked for what it denied");
    if (chance(w, 3))
        return false; /* its link is full */
    if (!chance(w, o->loss_percent))
        post(w, (mail){w->now + o->delay_ns, false, 0, i, ask->set, ask->first, ask->n, 0});
    return true;
}

/* A question arrives: the donor puts the pieces behind what it has to send already. */
static void asked(world *w, const mail *m)
{
    donor *o = &w->donor[m->donor];
    mail answer = *m;
    answer.answer = true;
    if (o->silent_ns && w->now >= o->silent_ns + SECOND &&
        (!o->speaks_ns || w->now < o->speaks_ns + SECOND))
        return;
    if (o->lacks >> m->set & 1) {
        answer.at = w->now + o->delay_ns;
        answer.verdict = GSP_SWARM_DENIED;
        post(w, answer);
        return;
    }
    for (uint32_t k = 0; k < m->n; k++) {
        o->free_ns = (o->free_ns > w->now ? o->free_ns : w->now) + PIECE * SECOND / o->rate;
        answer.at = o->free_ns + o->delay_ns;
        answer.first = m->first + k;
        answer.verdict = chance(w, o->lies_percent) ? GSP_SWARM_WRONG : GSP_SWARM_GOOD;
        post(w, answer);
    }
}

static void answered(world *w, const mail *m)
{
    donor *o = &w->donor[m->donor];
    uint8_t *here = &w->here[m->set][m->first];
    gsp_swarm_verdict verdict = m->verdict;
    if (o->caught)
        return; /* as the callers do */
    if (*here && verdict == GSP_SWARM_WRONG)
        verdict = GSP_SWARM_GOOD; /* nobody looks at it */
    gsp_swarm_came(w->s, w->now, o->number, m->set, m->first, PIECE, verdict);
    if (verdict == GSP_SWARM_WRONG)
        o->caught = true;
    if (verdict == GSP_SWARM_DENIED)
        o->lack_ns[m->set] = w->now;
    if (verdict == GSP_SWARM_GOOD && !*here) {
        *here = 1;
        w->came++;
        w->left--;
        w->done_ns = w->now;
    }
}

/* ---- time ---- */

static void fate(world *w, donor *o)
{
    if (o->dies_ns && o->up && w->now >= o->dies_ns + SECOND) {
        gsp_swarm_down(w->s, o->number);
        o->up = false;
        o->dies_ns = o->free_ns = 0;
        o->life++;
    }
    if (o->back_ns && !o->up && w->now >= o->back_ns + SECOND) {
        o->back_ns = 0;
        link_up(w, o);
    }
}

/* Delivers the oldest mail that is due; false: none is. */
static bool deliver(world *w)
{
    uint32_t oldest = 0;
    for (uint32_t k = 1; k < w->n_mail; k++)
        if (w->mail[k].at < w->mail[oldest].at)
            oldest = k;
    if (w->n_mail == 0 || w->mail[oldest].at > w->now)
        return false;
    mail m = w->mail[oldest];
    w->mail[oldest] = w->mail[--w->n_mail];
    if (m.life != w->donor[m.donor].life || !w->donor[m.donor].up)
        return true; /* its link is no more */
    if (m.answer)
        answered(w, &m);
    else
        asked(w, &m);
    return true;
}

static void run(world *w)
{
    gsp_swarm_status status;
    while (w->left && !w->wrong && w->now < HOUR) {
        for (uint32_t i = 0; i < w->n_donors; i++)
            fate(w, &w->donor[i]);
        while (deliver(w))
            ;
        gsp_swarm_turn(w->s, w->now, take, w);
        w->now += TICK;
    }
    must(w, w->left == 0, "every piece comes");
    gsp_swarm_look(w->s, w->now, &status);
    must(w, status.came == w->came, "every piece counts once");
    for (uint32_t k = 0; k < GUARD_BYTES; k++)
        must(w, w->memory[w->memory_bytes + k] == 0xa5, "memory is bounded");
    for (uint32_t i = 0; i < w->n_donors; i++)
        must(w, gsp_swarm_is_barred(w->s, w->donor[i].number) == w->donor[i].caught,
             "those that lied are barred, and nobody else");
    atom_free(w->memory);
}

/* All bytes at all rates together, the rates being learnt meanwhile, and the slowest donor's last
 * window, which nobody else takes over where there is no end game. */
static void in_time(world *w)
{
    uint64_t rates = 0, slowest = UINT64_MAX, delay = 0;
    for (uint32_t i = 0; i < w->n_donors; i++) {
        rates += w->donor[i].rate;
        slowest = w->donor[i].rate < slowest ? w->donor[i].rate : slowest;
        delay = w->donor[i].delay_ns > delay ? w->donor[i].delay_ns : delay;
    }
    double best = (double)w->bytes / (double)rates;
    double took = 1e-9 * (double)(w->done_ns - SECOND);
    double last = w->config.late_ns
                      ? 1e-9 * (double)w->config.late_ns
                      : 0.5 + (double)w->config.window_first * PIECE / (double)slowest;
    double bound = 1.1 * best + last + 1 + 4e-9 * (double)delay;
    if (w->left == 0 && w->bytes && took > bound)
        w->wrong = "it takes little longer than all bytes at all rates together";
    if (getenv("ATOM_TEST_SEED"))
        printf("took %.2f s, best %.2f s, bound %.2f s, %u donors\n", took, best, bound,
               w->n_donors);
}

static void try_seeds(bool faults, void (*also)(world *w))
{
    const char *one = getenv("ATOM_TEST_SEED");
    uint64_t first = one ? strtoull(one, NULL, 0) : 1, n = one ? 1 : SEEDS;
    world *w = atom_alloc(1, sizeof *w);
    assert_non_null(w);
    for (uint64_t seed = first; seed < first + n; seed++) {
        begin(w, seed, faults);
        run(w);
        if (also && !w->wrong)
            also(w);
        if (w->wrong)
            fail_msg("seed %" PRIu64 " at %.2f s: %s does not hold", seed,
                     1e-9 * (double)(w->now - SECOND), w->wrong);
    }
    atom_free(w);
}

static void calm(void **unused)
{
    (void)unused;
    try_seeds(false, in_time);
}

static void storm(void **unused)
{
    (void)unused;
    try_seeds(true, NULL);
}

static void same_again(world *w)
{
    uint64_t digest = w->digest;
    uint32_t n_asks = w->n_asks;
    begin(w, w->seed, true);
    run(w);
    must(w, digest == w->digest && n_asks == w->n_asks, "the same inputs give the same questions");
}

static void deterministic(void **unused)
{
    (void)unused;
    try_seeds(true, same_again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calm),
        cmocka_unit_test(storm),
        cmocka_unit_test(deterministic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
