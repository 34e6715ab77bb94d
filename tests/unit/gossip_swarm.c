/*
 * The download's schedule by itself, one rule after the other: what is asked of whom, in which
 * order, and what an answer, a silence or a lie changes.
 */
#include "gossip/swarm/swarm.h"

#include "atom/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { DONORS = 3, SETS = 3, ASKS_MAX = 64, PIECE = 1000 };
static const uint64_t MS = 1000000;

typedef struct world {
    gsp_swarm_config config;
    gsp_swarm *s;
    void *memory;
    gsp_swarm_ask ask[ASKS_MAX];
    uint32_t n;
    bool full; /* nothing can be sent */
    uint64_t now;
} world;

static const uint32_t PIECES[SETS] = {10, 5, 70};

static const gsp_swarm_config USUAL = {
    .n_donors = DONORS,
    .n_sets = SETS,
    .n_pieces = PIECES,
    .piece_bytes = PIECE,
    .window_first = 4,
    .window_min = 2,
    .window_max = 16,
    .run_max = 8,
    .offers_all = true,
    .silent_ns = 8000000000,
    .deny_ns = 5000000000,
};

static void open_world(world *w, const gsp_swarm_config *config)
{
    *w = (world){.config = *config, .now = 1};
    w->memory = atom_alloc(1, gsp_swarm_bytes(config));
    assert_non_null(w->memory);
    w->s = gsp_swarm_open(&w->config, w->memory);
}

static uint32_t up(world *w, char letter)
{
    uint8_t name[GSP_SWARM_NAME_BYTES];
    memset(name, letter, sizeof name);
    return gsp_swarm_up(w->s, name);
}

static bool take(void *context, const gsp_swarm_ask *ask)
{
    world *w = context;
    assert_true(w->n < ASKS_MAX);
    w->ask[w->n++] = *ask;
    return !w->full;
}

/* A turn so much later; what it asks is in ask[0 .. n). */
static void turn(world *w, uint64_t later_ns)
{
    w->now += later_ns;
    w->n = 0;
    gsp_swarm_turn(w->s, w->now, take, w);
}

static void came(world *w, uint32_t donor, uint32_t set, uint32_t piece, gsp_swarm_verdict verdict)
{
    gsp_swarm_came(w->s, w->now, donor, set, piece, PIECE, verdict);
}

static void is_ask(const world *w, uint32_t k, uint32_t donor, uint32_t set, uint32_t first,
                   uint32_t n)
{
    assert_true(k < w->n);
    assert_int_equal(w->ask[k].donor, donor);
    assert_int_equal(w->ask[k].set, set);
    assert_int_equal(w->ask[k].first, first);
    assert_int_equal(w->ask[k].n, n);
}

static void asks_up_to_the_window(void **unused)
{
    (void)unused;
    world w;
    open_world(&w, &USUAL);
    uint32_t a = up(&w, 'a');
    turn(&w, MS);
    assert_int_equal(w.n, 0); /* no set is open */
    gsp_swarm_begin(w.s, 0, 0);
    turn(&w, MS);
    assert_int_equal(w.n, 1);
    is_ask(&w, 0, a, 0, 0, 4);
    assert_int_equal(w.ask[0].name[0], 'a');
    turn(&w, MS);
    assert_int_equal(w.n, 0);
    came(&w, a, 0, 2, GSP_SWARM_GOOD);
    assert_false(gsp_swarm_asked(w.s, a, 0, 2));
    assert_true(gsp_swarm_asked(w.s, a, 0, 3));
    turn(&w, MS);
    is_ask(&w, 0, a, 0, 4, 1);
    atom_free(w.memory);
}

static void order_of_sets(void **unused)
{
    (void)unused;
    world w;
    open_world(&w, &USUAL);
    uint32_t a = up(&w, 'a');
    gsp_swarm_begin(w.s, 0, 3);
    gsp_swarm_begin(w.s, 1, 9);
    gsp_swarm_begin(w.s, 2, 9);
    gsp_swarm_here(w.s, 1, 2, true);
    turn(&w, MS); /* the higher rank, then the lower number; runs end at what is here */
    assert_int_equal(w.n, 2);
    is_ask(&w, 0, a, 1, 0, 2);
    is_ask(&w, 1, a, 1, 3, 2);
    gsp_swarm_end(w.s, 1); /* what was asked of it is forgotten */
    turn(&w, MS);
    is_ask(&w, 0, a, 2, 0, 4);
    assert_false(gsp_swarm_is_open(w.s, 1));
    gsp_swarm_begin(w.s, 0, 99);
    gsp_swarm_reach(w.s, 0, 1);
    came(&w, a, 2, 0, GSP_SWARM_GOOD);
    came(&w, a, 2, 1, GSP_SWARM_GOOD);
    turn(&w, MS);
    is_ask(&w, 0, a, 0, 0, 1);
    is_ask(&w, 1, a, 2, 4, 1);
    atom_free(w.memory);
}

static void window_follows_the_rate(void **unused)
{
    (void)unused;
    world w;
    open_world(&w, &USUAL);
    uint32_t a = up(&w, 'a');
    gsp_swarm_begin(w.s, 2, 0);
    turn(&w, MS);
    w.now += 200 * MS;
    came(&w, a, 2, 0, GSP_SWARM_GOOD);
    came(&w, a, 2, 1, GSP_SWARM_GOOD);
    came(&w, a, 2, 2, GSP_SWARM_GOOD);
    w.now += 50 * MS;
    came(&w, a, 2, 3, GSP_SWARM_GOOD); /* four in a quarter of a second: sixteen in one */
    turn(&w, 0);
    is_ask(&w, 0, a, 2, 4, 8); /* half a second's, and window_min: ten, in runs of eight */
    is_ask(&w, 1, a, 2, 12, 2);
    assert_int_equal(w.n, 2);
    gsp_swarm_down(w.s, a);
    assert_int_equal(up(&w, 'a'), a);
    turn(&w, MS); /* a new link is learnt anew */
    is_ask(&w, 0, a, 2, 4, 4);
    assert_int_equal(w.n, 1);
    atom_free(w.memory);
}

static void in_turn(void **unused)
{
    (void)unused;
    world w;
    gsp_swarm_config config = USUAL;
    config.run_max = 1;
    open_world(&w, &config);
    for (char c = 'a'; c < 'a' + DONORS; c++)
        assert_int_equal(up(&w, c), c - 'a');
    assert_int_equal(up(&w, 'z'), GSP_SWARM_NOBODY);
    gsp_swarm_begin(w.s, 0, 0);
    turn(&w, MS);
    assert_int_equal(w.n, 10);
    for (uint32_t k = 0; k < w.n; k++)
        is_ask(&w, k, k % DONORS, 0, k, 1);
    gsp_swarm_down(w.s, 1);
    assert_int_equal(up(&w, 'z'), 1); /* its place is free */
    assert_int_equal(gsp_swarm_name(w.s, 1)[0], 'z');
    turn(&w, MS); /* what the other owed is asked of all that have room */
    assert_int_equal(w.n, 3);
    is_ask(&w, 0, 1, 0, 1, 1);
    is_ask(&w, 1, 2, 0, 4, 1);
    is_ask(&w, 2, 1, 0, 7, 1);
    gsp_swarm_end(w.s, 0);
    gsp_swarm_begin(w.s, 0, 0);
    turn(&w, MS); /* another is first in each turn */
    is_ask(&w, 0, 2, 0, 0, 1);
    is_ask(&w, 1, 0, 0, 1, 1);
    atom_free(w.memory);
}

static void link_that_is_full(void **unused)
{
    (void)unused;
    world w;
    open_world(&w, &USUAL);
    uint32_t a = up(&w, 'a');
    gsp_swarm_begin(w.s, 0, 0);
    w.full = true;
    turn(&w, MS);
    assert_int_equal(w.n, 1);
    assert_false(gsp_swarm_asked(w.s, a, 0, 0));
    w.full = false;
    turn(&w, MS);
    is_ask(&w, 0, a, 0, 0, 4);
    atom_free(w.memory);
}

static void silence(void **unused)
{
    (void)unused;
    world w;
    gsp_swarm_config config = USUAL;
    config.aside_ns = 3000 * MS;
    open_world(&w, &config);
    uint32_t a = up(&w, 'a'), b;
    gsp_swarm_begin(w.s, 1, 0);
    turn(&w, MS);
    is_ask(&w, 0, a, 1, 0, 4);
    b = up(&w, 'b');
    turn(&w, 7900 * MS);
    is_ask(&w, 0, b, 1, 4, 1);
    turn(&w, 101 * MS);
    assert_false(gsp_swarm_asked(w.s, a, 1, 0));
    is_ask(&w, 0, b, 1, 0, 3);
    assert_int_equal(w.n, 1);
    came(&w, a, 1, 0, GSP_SWARM_GOOD); /* late, and as good as any */
    gsp_swarm_down(w.s, b);
    turn(&w, 2998 * MS);
    assert_int_equal(w.n, 0); /* still aside */
    turn(&w, 2 * MS);
    is_ask(&w, 0, a, 1, 1, 2);
    assert_int_equal(w.n, 1);
    atom_free(w.memory);
}

static void silence_shrinks_the_window(void **unused)
{
    (void)unused;
    world w;
    open_world(&w, &USUAL);
    uint32_t a = up(&w, 'a');
    gsp_swarm_begin(w.s, 0, 0);
    turn(&w, MS);
    is_ask(&w, 0, a, 0, 0, 4);
    turn(&w, 8001 * MS); /* nobody else is there: it is asked again, for less */
    is_ask(&w, 0, a, 0, 0, 2);
    assert_int_equal(w.n, 1);
    atom_free(w.memory);
}

static void liar(void **unused)
{
    (void)unused;
    world w;
    open_world(&w, &USUAL);
    uint32_t a = up(&w, 'a'), b;
    gsp_swarm_status status;
    gsp_swarm_begin(w.s, 1, 0);
    turn(&w, MS);
    came(&w, a, 1, 0, GSP_SWARM_GOOD);
    came(&w, a, 1, 1, GSP_SWARM_WRONG);
    assert_true(gsp_swarm_is_barred(w.s, a));
    assert_false(gsp_swarm_reachable(w.s, 1));
    gsp_swarm_down(w.s, a);
    assert_int_equal(up(&w, 'a'), a);
    assert_false(gsp_swarm_is_up(w.s, a));
    turn(&w, 20000 * MS);
    assert_int_equal(w.n, 0);
    b = up(&w, 'b');
    assert_true(b != a);
    assert_true(up(&w, 'c') != a && up(&w, 'd') == GSP_SWARM_NOBODY); /* it keeps its place */
    gsp_swarm_down(w.s, gsp_swarm_find(w.s, (const uint8_t *)"cccccccccccccccccccccccccccccccc"));
    turn(&w, MS);
    is_ask(&w, 0, b, 1, 1, 4);
    came(&w, b, 1, 1, GSP_SWARM_GOOD);
    came(&w, b, 1, 1, GSP_SWARM_GOOD);
    gsp_swarm_look(w.s, w.now, &status);
    assert_int_equal(status.came, 2);
    assert_int_equal(status.again, 1);
    assert_int_equal(status.wrong, 1);
    assert_int_equal(status.givers, 2);
    assert_int_equal(status.giving, 1);
    gsp_swarm_look(w.s, w.now + 2001 * MS, &status);
    assert_int_equal(status.giving, 0);
    atom_free(w.memory);
}

/* Liars that come and go under ever new names take nobody's place but their own. */
static void liars_leave_room(void **unused)
{
    (void)unused;
    world w;
    open_world(&w, &USUAL);
    uint32_t honest = up(&w, 'a');
    gsp_swarm_begin(w.s, 1, 0);
    for (char name = 'b'; name < 'z'; name++) {
        uint32_t bad = up(&w, name);
        assert_true(bad != GSP_SWARM_NOBODY && bad != honest);
        assert_true(gsp_swarm_is_up(w.s, bad) && !gsp_swarm_is_barred(w.s, bad));
        came(&w, bad, 1, 0, GSP_SWARM_WRONG);
        assert_int_equal(up(&w, name), bad); /* while it is linked it stays barred */
        assert_true(gsp_swarm_is_barred(w.s, bad) && !gsp_swarm_is_up(w.s, bad));
        gsp_swarm_down(w.s, bad);
    }
    assert_int_equal(up(&w, 'a'), honest);
    assert_true(gsp_swarm_is_up(w.s, honest));
    atom_free(w.memory);
}

static void denied(void **unused)
{
    (void)unused;
    world w;
    open_world(&w, &USUAL);
    uint32_t a = up(&w, 'a');
    gsp_swarm_begin(w.s, 0, 1);
    gsp_swarm_begin(w.s, 1, 0);
    turn(&w, MS);
    came(&w, a, 0, 0, GSP_SWARM_DENIED); /* and what else it was asked for of that set */
    assert_false(gsp_swarm_asked(w.s, a, 0, 3));
    turn(&w, MS);
    is_ask(&w, 0, a, 1, 0, 4);
    assert_int_equal(w.n, 1);
    for (uint32_t k = 0; k < 4; k++)
        came(&w, a, 1, k, GSP_SWARM_GOOD);
    turn(&w, 4998 * MS);
    is_ask(&w, 0, a, 1, 4, 1);
    assert_int_equal(w.n, 1);
    turn(&w, 2 * MS);
    is_ask(&w, 0, a, 0, 0, 3);
    atom_free(w.memory);
}

static void offered(void **unused)
{
    (void)unused;
    world w;
    gsp_swarm_config config = USUAL;
    config.offers_all = false;
    config.deny_ns = 0;
    open_world(&w, &config);
    uint32_t a = up(&w, 'a');
    gsp_swarm_begin(w.s, 1, 0);
    turn(&w, MS);
    assert_int_equal(w.n, 0);
    assert_false(gsp_swarm_reachable(w.s, 1));
    gsp_swarm_offer(w.s, a, 1, true);
    assert_true(gsp_swarm_reachable(w.s, 1));
    turn(&w, MS);
    is_ask(&w, 0, a, 1, 0, 4);
    came(&w, a, 1, 0, GSP_SWARM_DENIED);
    turn(&w, 100000 * MS);
    assert_int_equal(w.n, 0); /* until it is offered again */
    gsp_swarm_offer(w.s, a, 1, true);
    turn(&w, MS);
    is_ask(&w, 0, a, 1, 0, 4);
    atom_free(w.memory);
}

static void late_pieces(void **unused)
{
    (void)unused;
    world w;
    gsp_swarm_config config = USUAL;
    config.late_ns = 400 * MS;
    open_world(&w, &config);
    uint32_t a = up(&w, 'a'), b;
    gsp_swarm_begin(w.s, 1, 0);
    turn(&w, MS);
    b = up(&w, 'b');
    turn(&w, 300 * MS);
    is_ask(&w, 0, b, 1, 4, 1);
    came(&w, b, 1, 4, GSP_SWARM_GOOD);
    turn(&w, 100 * MS);
    assert_int_equal(w.n, 0);
    turn(&w, 1);
    is_ask(&w, 0, b, 1, 0, 1); /* one at a time */
    assert_int_equal(w.n, 1);
    gsp_swarm_down(w.s, a);
    turn(&w, MS); /* b has piece 0 already; the others are free again */
    is_ask(&w, 0, b, 1, 1, 3);
    assert_int_equal(w.n, 1);
    for (uint32_t k = 0; k < 4; k++)
        came(&w, b, 1, k, GSP_SWARM_GOOD);
    turn(&w, MS);
    assert_int_equal(w.n, 0);
    gsp_swarm_here(w.s, 1, 0, false); /* the disk lost it */
    turn(&w, MS);
    is_ask(&w, 0, b, 1, 0, 1);
    atom_free(w.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asks_up_to_the_window),
        cmocka_unit_test(order_of_sets),
        cmocka_unit_test(window_follows_the_rate),
        cmocka_unit_test(in_turn),
        cmocka_unit_test(link_that_is_full),
        cmocka_unit_test(silence),
        cmocka_unit_test(silence_shrinks_the_window),
        cmocka_unit_test(liar),
        cmocka_unit_test(liars_leave_room),
        cmocka_unit_test(denied),
        cmocka_unit_test(offered),
        cmocka_unit_test(late_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
