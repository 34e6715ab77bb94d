/*
 * A donor's side of the transfer of state (donor.h, lease.h): the roots that it signs stand for the
 * chunks that it sends; a state that changed is still given as it was to a joiner that was told of
 * it; and what is not here any more is denied.
 */
#include "gossip/member/donor.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"
#include "gossip/trust/seals.h"
#include "tests/scratch.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { CHUNKS = 3, FLOATS = 2 * GSP_CHUNK_FLOATS + 10 };

static float *state_floats;
static gsp_message *message;
static gsp_hash told; /* the root that was told */
static uint32_t n_roots, n_chunks, n_none;
static scratch place;

static atom_status state_read(void *context, uint32_t fragment, uint64_t first, uint64_t n,
                              float *out)
{
    (void)context;
    assert_int_equal(fragment, 0);
    memcpy(out, state_floats + first, n * sizeof *out);
    return ATOM_OK;
}

/* Looks at every message that goes out; a chunk must prove itself under the root that was told. */
static gsp_net_sent look(gsp_net *net, const uint8_t *key, gsp_net_channel channel,
                         const void *head, size_t head_bytes, const void *body, size_t body_bytes)
{
    gsp_key from;
    const void *at;
    size_t bytes;
    (void)net;
    memcpy(from.byte, key, sizeof from.byte);
    uint8_t *all = atom_alloc(1, head_bytes + body_bytes);
    assert_non_null(all);
    memcpy(all, head, head_bytes);
    if (body_bytes)
        memcpy(all + head_bytes, body, body_bytes);
    assert_true(gsp_wire_decode(all, head_bytes + body_bytes, &from, message, &at, &bytes));
    if (message->kind == GSP_STATE_ROOTS) {
        told = message->as.roots.fragment[0].root;
        n_roots++;
    } else if (message->kind == GSP_STATE_CHUNK) {
        const gsp_state_chunk *c = &message->as.chunk;
        gsp_hash leaf;
        assert_int_equal(channel, GSP_NET_BULK);
        if (n_none == 0)
            assert_int_equal(c->chunk, n_chunks % CHUNKS);
        gsp_merkle_leaf(c->chunk, at, bytes, &leaf);
        assert_true(gsp_tree_check(&told, CHUNKS, c->chunk, &leaf, c->path, c->n_path));
        n_chunks++;
    } else {
        assert_int_equal(message->kind, GSP_STATE_NONE);
        n_none++;
    }
    atom_free(all);
    return GSP_NET_SENT;
}

static const gsp_net_ops ops = {.send = look};
static gsp_net net = {.ops = &ops};
static gsp_work averages;
static gsp_identity identity;
static gsp_seals seals;
static gsp_saved *saved;
static gsp_agree *agree;
static gsp_friends *friends;
static gsp_donor *donor;
static gsp_friend *joiner;

static void pull_all(const gsp_hash *root)
{
    memset(message, 0, sizeof *message);
    message->kind = GSP_STATE_PULL;
    message->as.state_pull = (gsp_state_pull){.root = *root, .n = CHUNKS};
    assert_true(gsp_donor_pulled(donor, joiner, message));
    assert_int_equal(gsp_donor_owes(donor, gsp_friends_index(friends, joiner)),
                     (uint64_t)CHUNKS * GSP_CHUNK_BYTES);
    for (bool more = true; more || gsp_donor_owes(donor, 0);)
        assert_int_equal(gsp_donor_pump(donor, &more), ATOM_OK);
}

static void ask_roots(void)
{
    const gsp_donor_word word = {.saved = saved, .seals = &seals, .identity = &identity};
    gsp_donor_asked(donor, joiner);
    for (bool more = true; more;)
        assert_int_equal(gsp_donor_work(donor, &word, &more), ATOM_OK);
}

static int setup(void **unused)
{
    static const uint8_t seed[32] = {3};
    static const gsp_key key = {{1}};
    (void)unused;
    scratch_open(&place);
    n_roots = n_chunks = n_none = 0;
    message = atom_alloc(1, sizeof *message);
    saved = atom_alloc(1, sizeof *saved);
    agree = atom_alloc(1, sizeof *agree);
    friends = atom_alloc(1, sizeof *friends);
    donor = atom_alloc(1, sizeof *donor);
    state_floats = atom_alloc(FLOATS, sizeof *state_floats);
    for (uint32_t k = 0; k < FLOATS; k++)
        state_floats[k] = (float)k;
    assert_int_equal(gsp_crypto_start(), ATOM_OK);
    assert_int_equal(gsp_identity_from_seed(seed, &identity), ATOM_OK);
    seals = gsp_seals_real(&identity);
    agree->self.incarnation = 1;
    memcpy(agree->self.key.byte, identity.public_key, sizeof agree->self.key.byte);
    agree->lineage.byte[0] = 1;
    averages = (gsp_work){.n_state = {FLOATS}, .state_read = state_read};
    gsp_friends_open(friends, &net, agree, GSP_CODEC_FP32);
    joiner = gsp_friends_up(friends, &key);
    assert_int_equal(gsp_donor_open(donor, friends, &averages, 1, place.dir), ATOM_OK);
    ask_roots();
    assert_int_equal(n_roots, 1);
    assert_true(gsp_roots_check(&message->as.roots, &seals, &agree->self));
    pull_all(&told);
    assert_int_equal(n_chunks, CHUNKS);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    gsp_donor_close(donor);
    gsp_friends_close(friends);
    atom_free(donor);
    atom_free(friends);
    atom_free(agree);
    atom_free(saved);
    atom_free(message);
    atom_free(state_floats);
    scratch_close(&place);
    return 0;
}

static void change_state(void)
{
    for (bool done = false; !done;)
        assert_int_equal(gsp_donor_changes(donor, 0, &done), ATOM_OK);
    for (uint32_t k = 0; k < FLOATS; k++)
        state_floats[k] += 1;
    gsp_donor_changed(donor, 0);
}

static void a_joiner_gets_the_state_that_it_was_told_of(void **unused)
{
    (void)unused;
    assert_int_equal(donor->kept_bytes, 0);
    change_state();
    pull_all(&told); /* each chunk is checked in look */
    assert_int_equal(n_chunks, 2 * CHUNKS);
    assert_int_equal(n_none, 0);
    assert_int_equal(donor->kept_bytes, FLOATS * sizeof(float));
    assert_int_equal(donor->sent_bytes, 2 * FLOATS * sizeof(float));
}

static void what_is_gone_is_denied(void **unused)
{
    (void)unused;
    donor->sent_ns = 0; /* nobody has fetched for long: nothing is kept */
    change_state();
    pull_all(&told);
    assert_int_equal(n_chunks, CHUNKS);
    assert_int_equal(n_none, CHUNKS);
}

/* A key has so many states in a few hours; another key has its own, and later it has more. */
static void one_key_does_not_take_for_ever(void **unused)
{
    static const gsp_key other = {{2}};
    (void)unused;
    gsp_tally *t = &donor->given;
    assert_true(gsp_tally_left(t, joiner->key.byte, atom_clock_ns()) >
                (GSP_STATES_GIVEN - 1) * FLOATS * sizeof(float));
    while (n_none == 0) {
        pull_all(&told);
        assert_true(n_chunks <= (t->each_max / sizeof(float) / FLOATS + 1) * CHUNKS);
    }
    assert_true(n_chunks >= GSP_STATES_GIVEN * CHUNKS);
    n_none = 0;
    n_chunks = CHUNKS;
    gsp_donor_down(donor, joiner); /* a new link is no new page */
    gsp_friends_down(joiner);
    joiner = gsp_friends_up(friends, &(gsp_key){{1}});
    pull_all(&told);
    assert_true(n_none > 0);
    gsp_donor_gave(donor, joiner, UINT64_MAX);
    assert_false(gsp_donor_may_give(donor, joiner));
    ask_roots();
    assert_int_equal(n_roots, 1); /* none since then */
    gsp_donor_down(donor, joiner);
    gsp_friends_down(joiner);
    joiner = gsp_friends_up(friends, &other);
    n_chunks = n_none = 0;
    assert_true(gsp_donor_may_give(donor, joiner));
    uint64_t left = gsp_tally_left(t, other.byte, atom_clock_ns());
    ask_roots();
    assert_int_equal(n_roots, 2);
    assert_true(gsp_tally_left(t, other.byte, atom_clock_ns()) < left); /* roots count, too */
    pull_all(&told);
    assert_int_equal(n_chunks, CHUNKS);
    assert_int_equal(n_none, 0);
}

/* While the fragment changes, a question for it waits: it is answered once it is clear what it is. */
static void a_fragment_in_flux_waits(void **unused)
{
    (void)unused;
    bool more;
    memset(message, 0, sizeof *message);
    message->as.state_pull = (gsp_state_pull){.root = told, .n = CHUNKS};
    assert_true(gsp_donor_pulled(donor, joiner, message));
    donor->flux = 0;
    assert_int_equal(gsp_donor_pump(donor, &more), ATOM_OK);
    assert_int_equal(n_chunks + n_none, CHUNKS);
    donor->flux = GSP_FRAGMENTS_MAX;
    while (gsp_donor_owes(donor, 0))
        assert_int_equal(gsp_donor_pump(donor, &more), ATOM_OK);
    assert_int_equal(n_chunks, 2 * CHUNKS);
}

/* A joiner that fetches and falls behind holds up the next version, a little and not for ever. */
static void a_joiner_that_falls_behind_is_waited_for(void **unused)
{
    (void)unused;
    const uint64_t ns = 1000000000u, begun = 1000 * ns;
    const gsp_hash gone = {{9}};
    agree->certified = 100;
    agree->certified_ns = begun;
    agree->rules.time_due_ns = 600 * ns;
    gsp_joiner *j = &donor->joiner[gsp_friends_index(friends, joiner)];
    j->fetch_ns = 0;
    assert_false(gsp_donor_holds(donor, begun)); /* nobody fetches */
    memset(message, 0, sizeof *message);
    message->version = 90;
    message->as.state_pull = (gsp_state_pull){.root = gone, .n = 1};
    assert_true(gsp_donor_pulled(donor, joiner, message));
    for (bool more = true; more || gsp_donor_owes(donor, 0);)
        assert_int_equal(gsp_donor_pump(donor, &more), ATOM_OK);
    assert_int_equal(n_none, 1);
    assert_false(gsp_donor_holds(donor, begun)); /* whoever only asks, for what there is not */
    pull_all(&told);
    const uint64_t behind[] = {97, 96, 69,
                               68}; /* by so much that it needs it, and not hopelessly */
    for (unsigned i = 0; i < 4; i++) {
        j->fetch_version = behind[i];
        assert_int_equal(gsp_donor_holds(donor, begun), i == 1 || i == 2);
    }
    j->fetch_version = 90;
    assert_true(gsp_donor_holds(donor, begun + 150 * ns));
    assert_false(gsp_donor_holds(donor, begun + 151 * ns)); /* a quarter of T */
    agree->peer[0] = (gsp_peer){.known = true, .who.key = joiner->key, .applied = 98};
    assert_true(gsp_donor_holds(donor, begun));
    agree->peer[0].applied = 99;
    assert_false(gsp_donor_holds(donor, begun)); /* it is here */
    agree->peer[0].known = false;
    joiner->up = false;
    assert_false(gsp_donor_holds(donor, begun));
    joiner->up = true;
    j->fetch_ns -= 6 * ns;
    assert_false(gsp_donor_holds(donor, begun)); /* it stopped */
    j->fetch_ns += 6 * ns;
    /* An hour in three for all keys together, and half of that for one, so that others are waited for, too. */
    static const uint8_t another[32] = {7}, third[32] = {8};
    assert_true(gsp_donor_holds(donor, begun));
    const uint64_t used = donor->held.all;
    donor->held_ns -= ns / 2;
    assert_true(gsp_donor_holds(donor, begun));
    assert_in_range(donor->held.all - used, ns / 2, ns);
    uint64_t left = gsp_tally_left(&donor->held, another, atom_clock_ns());
    assert_in_range(left, 1790 * ns, 1800 * ns);
    assert_true(gsp_tally_take(&donor->held, another, left, atom_clock_ns()));
    assert_true(gsp_donor_holds(donor, begun));
    left = gsp_tally_left(&donor->held, third, atom_clock_ns());
    assert_in_range(left, 1780 * ns, 1800 * ns);
    assert_true(gsp_tally_take(&donor->held, third, left, atom_clock_ns()));
    assert_false(gsp_donor_holds(donor, begun));
}

static void nonsense_is_refused_and_rounds_go_first(void **unused)
{
    (void)unused;
    const gsp_hash root = {{9}};
    bool more;
    memset(message, 0, sizeof *message);
    message->as.state_pull = (gsp_state_pull){.root = told, .first = CHUNKS, .n = 1};
    assert_false(gsp_donor_pulled(donor, joiner, message));
    message->as.state_pull = (gsp_state_pull){.root = told, .first = CHUNKS - 1, .n = 2};
    assert_false(
        gsp_donor_pulled(donor, joiner, message)); /* its end is behind that of the state */
    assert_int_equal(gsp_donor_owes(donor, gsp_friends_index(friends, joiner)), 0);
    for (unsigned i = 0; i < 40; i++) { /* it waits for so many and no more */
        message->as.state_pull = (gsp_state_pull){.root = told, .n = CHUNKS};
        assert_true(gsp_donor_pulled(donor, joiner, message));
    }
    assert_int_equal(gsp_donor_owes(donor, gsp_friends_index(friends, joiner)),
                     64ull * GSP_CHUNK_BYTES);
    gsp_donor_down(donor, joiner);
    message->as.state_pull = (gsp_state_pull){.root = told, .fragment = 1, .n = 1};
    assert_false(gsp_donor_pulled(donor, joiner, message));
    message->as.state_pull = (gsp_state_pull){.root = told, .n = 1};
    assert_true(gsp_donor_pulled(donor, joiner, message));
    gsp_friends_send_part(joiner, 1, 0, &root);
    assert_int_equal(gsp_donor_pump(donor, &more), ATOM_OK);
    assert_int_equal(n_chunks, CHUNKS); /* a part waits, and a chunk went out a moment ago */
    gsp_donor_down(donor, joiner);
    assert_int_equal(gsp_donor_owes(donor, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_joiner_gets_the_state_that_it_was_told_of, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_gone_is_denied, setup, teardown),
        cmocka_unit_test_setup_teardown(one_key_does_not_take_for_ever, setup, teardown),
        cmocka_unit_test_setup_teardown(a_fragment_in_flux_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(a_joiner_that_falls_behind_is_waited_for, setup, teardown),
        cmocka_unit_test_setup_teardown(nonsense_is_refused_and_rounds_go_first, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
