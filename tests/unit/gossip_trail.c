/*
 * The chain that a member keeps (trail.h): that a kill at any moment leaves a chain and a state that
 * belong together, that the owner's reset makes it short, that a full one ends nobody, and that what
 * was checked of another's is not checked again.
 */
#include "gossip/member/node_inner.h"
#include "gossip/member/trail_file.h"
#include "tests/lib/gossip_chain.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static scratch place;
static gsp_node node; /* of which only the chain is used */

/* ---- on disk ---- */

/* The state at the end of a trail whose last step is its newest certificate. */
static gsp_saved state_of(const gsp_trail *t)
{
    gsp_saved s = {.genesis = genesis};
    gsp_step step;
    for (uint32_t i = 0; i < t->n; i++) {
        gsp_trail_read(t, i, &step);
        if (step.is_genesis) {
            s.genesis = step.as.genesis;
            s.has_certificate = false;
            continue;
        }
        const gsp_head *h = &step.as.link.head;
        s.has_certificate = true;
        s.certificate.proposal = (gsp_proposal){
            .lineage = h->lineage, .version = h->version, .next = h->next, .made = h->made};
    }
    return s;
}

static bool same_trail(const gsp_trail *a, const gsp_trail *b)
{
    return a->n == b->n && gsp_hash_equal(&a->step[a->n - 1].id, &b->step[b->n - 1].id);
}

static void assert_recalled(const gsp_saved *saved, const gsp_trail *right)
{
    gsp_trail t;
    bool leads;
    gsp_trail_open(&t, &terms);
    test_must(gsp_trail_recall(&t, place.dir, saved, &leads));
    assert_true(leads);
    assert_true(same_trail(&t, right));
    gsp_trail_close(&t);
}

/* A move to another lineage, killed after each of its writes: the chain of the state on disk is
 * found, and found again when the member is restarted once more. */
static void a_kill_leaves_chain_and_state_together(void **unused)
{
    (void)unused;
    gsp_trail before, after;
    begin();
    history(&before, 5);
    history(&after, 5);
    add(&after, fork_of(&after, &after.end.roster, 0));
    gsp_roster next = after.end.roster;
    next.n--;
    add(&after, link_to(&after, 11, &next, 60, 7));
    const gsp_saved old = state_of(&before), new = state_of(&after);
    for (unsigned killed = 0; killed < 4; killed++) {
        scratch_open(&place);
        test_must(gsp_trail_save(&before, place.dir, 0));
        if (killed > 0)
            test_must(gsp_trail_save_next(&after, place.dir));
        if (killed > 2)
            test_must(gsp_trail_turn(place.dir));
        for (unsigned again = 0; again < 2; again++)
            assert_recalled(killed > 1 ? &new : &old, killed > 1 ? &after : &before);
        assert_false(atom_path_exists(scratch_path(&place, "chain.next")));
        scratch_close(&place);
    }
    gsp_trail_close(&before);
    gsp_trail_close(&after);
}

/* ---- its length ---- */

static void a_reset_makes_it_short(void **unused)
{
    (void)unused;
    gsp_trail mine, theirs, old;
    bool leads;
    begin();
    history(&mine, 5);
    history(&old, 5);
    history(&theirs, 7);
    add(&mine, reset_of(&mine, 1));
    assert_int_equal(mine.n, 2);
    gsp_step reset;
    gsp_trail_read(&mine, 1, &reset);
    add(&theirs, reset); /* whatever was there before */
    assert_int_equal(theirs.n, 2);
    gsp_roster two = mine.end.roster;
    put(&two, member(3, 1));
    add(&theirs, link_to(&theirs, 12, &two, 60, 1));
    gsp_match match;
    gsp_trail_match(&mine, NULL, &theirs, &match);
    assert_int_equal(gsp_match_judge(&match, terms.trust, (gsp_plight){0}), GSP_GO);
    gsp_trail_match(&old, NULL, &theirs, &match);
    assert_int_equal(gsp_match_judge(&match, terms.trust, (gsp_plight){0}), GSP_GO);
    gsp_step bad = reset; /* only the owner's word stands by itself */
    bad.as.genesis.reset = 2;
    assert_true(refused(&mine, bad));
    bad = reset_of(&mine, 2);
    bad.as.genesis.version++;
    assert_true(refused(&mine, bad));
    scratch_open(&place);
    test_must(gsp_trail_save(&theirs, place.dir, 0));
    const gsp_saved saved = state_of(&theirs);
    gsp_trail t;
    gsp_trail_open(&t, &terms);
    test_must(gsp_trail_recall(&t, place.dir, &saved, &leads));
    assert_true(leads && same_trail(&t, &theirs));
    scratch_close(&place);
    gsp_trail_close(&t);
    gsp_trail_close(&mine);
    gsp_trail_close(&old);
    gsp_trail_close(&theirs);
}

/* An id says nothing of the owner's signature, of which there can be two for one order: each chain goes
 * on from its own. */
static void one_order_signed_twice(void **unused)
{
    (void)unused;
    gsp_trail mine, theirs;
    gsp_match match;
    begin();
    history(&mine, 5);
    gsp_step reset = reset_of(&mine, 1);
    gsp_trail_open(&theirs, &terms);
    test_must(gsp_trail_copy(&theirs, &mine));
    add(&mine, reset);
    reset.as.genesis.order.seal[0] ^= 1;
    test_must(gsp_trail_add(&theirs, &reset, true));
    assert_true(same_trail(&mine, &theirs));
    gsp_step fork = fork_of(&theirs, &theirs.end.roster, 0);
    test_must(gsp_trail_add(&theirs, &fork, true));
    gsp_trail_match(&mine, NULL, &theirs, &match);
    assert_int_equal(match.theirs.chain.generation, theirs.end.generation);
    assert_true(match.theirs.forked && !match.mine.forked);
    gsp_trail_close(&mine);
    gsp_trail_close(&theirs);
}

/* 1 comes and goes until no step has room. The votes are not looked at, so they are not made. */
static void fill(gsp_trail *t)
{
    gsp_roster one = roster_of(0, 1), two = roster_of(0, 2);
    gsp_step step = {.is_genesis = true, .as.genesis = genesis};
    gsp_trail_open(t, &terms);
    add(t, step);
    for (uint64_t v = 1; !gsp_trail_is_full(t); v++) {
        step = (gsp_step){.as.link = {.ballot = 1, .n_votes = v % 2 ? 1 : 2}};
        step.as.link.vote[0].member = 0;
        step.as.link.vote[1].member = 1;
        step.as.link.head = (gsp_head){.lineage = t->end.lineage,
                                       .version = v,
                                       .tokens = v,
                                       .next = v % 2 ? two : one,
                                       .since = t->end.made,
                                       .made = v};
        test_must(gsp_trail_add(t, &step, true));
    }
}

static gsp_certificate change_after(const gsp_trail *t, uint64_t version, const gsp_roster *next)
{
    return (gsp_certificate){.ballot = 1,
                             .n_votes = 2,
                             .vote = {{.member = 0}, {.member = 1}},
                             .proposal = {.lineage = t->end.lineage,
                                          .version = version,
                                          .tokens = version,
                                          .next = *next,
                                          .since = t->end.made,
                                          .made = version}};
}

static void a_full_one_ends_nobody(void **unused)
{
    (void)unused;
    static gsp_certificate c;
    gsp_roster three = roster_of(0, 3);
    begin();
    scratch_open(&place);
    memset(&node, 0, sizeof node);
    node.config.directory = place.dir;
    node.config.genesis = node.saved.genesis = genesis;
    fill(&node.trail);
    uint32_t n = node.trail.n;
    assert_true(n > 60000 && n <= GSP_CHAIN_STEPS_MAX);
    test_must(gsp_trail_save(&node.trail, place.dir, 0));
    for (uint64_t v = 1; v < 4; v++) {
        c = change_after(&node.trail, 100000 + v, &three);
        test_must(gsp_node_chain_certify(&node, &c));
        assert_int_equal(node.trail.n, n);
        assert_true(node.chain_full);
    }
    gsp_step step = fork_of(&node.trail, NULL, 0);
    test_must(gsp_node_chain_found(&node, &step.as.genesis));
    assert_int_equal(node.trail.n, n);
    step = reset_of(&node.trail, 1); /* and the owner makes room */
    test_must(gsp_node_chain_found(&node, &step.as.genesis));
    test_must(gsp_node_chain_turned(&node));
    assert_int_equal(node.trail.n, 2);
    assert_false(gsp_trail_is_full(&node.trail));
    gsp_trail_close(&node.trail);
    test_must(gsp_node_chain_found(&node, &step.as.genesis)); /* from a chain that is lost */
    assert_int_equal(node.trail.n, 2);
    gsp_trail_close(&node.trail);
    scratch_close(&place);
}

/* ---- of others ---- */

static unsigned n_verified;

static bool counts(void *context, const gsp_key *key, const void *data, size_t bytes,
                   const uint8_t seal[GSP_SEAL_BYTES])
{
    n_verified++;
    return seals[0].verify(context, key, data, bytes, seal);
}

static gsp_inquiry_news hears(gsp_inquiry *q, const gsp_trail *mine, const gsp_trail *of,
                              bool spoiled)
{
    static gsp_chain_ask ask;
    static gsp_chain_said said;
    gsp_inquiry_ask(q, mine, &ask);
    gsp_trail_answer(of, NULL, &ask, &said);
    if (spoiled)
        said.step[said.n - 1].as.link.vote[0].seal[5] ^= 1;
    return gsp_inquiry_heard(q, mine, &said, 1);
}

/* A long chain, asked of a peer that goes away, of a liar that begins from the start or goes on
 * wrongly, and of another peer. */
static void a_talk_goes_on_where_another_ended(void **unused)
{
    (void)unused;
    gsp_trail mine, theirs, one;
    gsp_inquiry q = {0};
    begin();
    history(&mine, 5);
    history(&theirs, 5);
    for (uint64_t v = 11; v < 111; v++) {
        gsp_roster next = roster_of(0, v % 2 ? 4 : 5);
        add(&theirs, link_to(&theirs, v, &next, v + 50, 15));
    }
    gsp_seals counting = seals[0];
    gsp_chain_terms heard = terms;
    counting.verify = counts;
    heard.seals = &counting;
    mine.terms = &heard;
    n_verified = 0;
    for (unsigned k = 0; k < 4; k++) {
        gsp_key key = member(1 + k, 1).key;
        gsp_inquiry_begin(&q, &heard, &key, 1);
        gsp_inquiry_news news = GSP_INQUIRY_GOES;
        for (unsigned page = 0; page < 3 && k == 0; page++)
            assert_int_equal(hears(&q, &mine, &theirs, false), GSP_INQUIRY_GOES);
        if (k == 1) {
            assert_int_equal(hears(&q, &mine, &theirs, true), GSP_INQUIRY_WRONG);
        } else if (k == 2) { /* it knows only the beginning */
            history(&one, 3);
            news = hears(&q, &mine, &one, false);
            assert_int_equal(news, GSP_INQUIRY_WHOLE);
            gsp_trail_close(&one);
        }
        for (unsigned page = 0; k == 3 && news == GSP_INQUIRY_GOES; page++) {
            assert_true(page < 4);
            news = hears(&q, &mine, &theirs, false);
        }
        if (k == 3)
            assert_int_equal(q.theirs.n, theirs.n);
        gsp_inquiry_end(&q);
    }
    assert_true(n_verified <= 4 * 100 + 4); /* votes, each once, and what was spoiled */
    assert_int_equal(q.kept.n, 0);
    gsp_inquiry_close(&q);
    gsp_trail_close(&mine);
    gsp_trail_close(&theirs);
}

/* A peer that brings much may take its time; one that brings little may not hold up others. */
static void who_brings_little_is_not_waited_for(void **unused)
{
    (void)unused;
    const uint64_t second = 1000000000u;
    gsp_inquiry q = {.on = true, .heard_ns = 300 * second, .n_came = 4000};
    assert_false(gsp_inquiry_over(&q, 301 * second));
    q.n_came = 400;
    assert_true(gsp_inquiry_over(&q, 301 * second));
    q.began_ns = 290 * second;
    q.n_came = 0;
    assert_false(gsp_inquiry_over(&q, 301 * second));
    assert_true(gsp_inquiry_over(&q, 306 * second));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kill_leaves_chain_and_state_together),
        cmocka_unit_test(a_reset_makes_it_short),
        cmocka_unit_test(one_order_signed_twice),
        cmocka_unit_test(a_full_one_ends_nobody),
        cmocka_unit_test(a_talk_goes_on_where_another_ended),
        cmocka_unit_test(who_brings_little_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
