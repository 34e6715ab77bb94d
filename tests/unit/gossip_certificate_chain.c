/*
 * Whom a member follows when lineages meet (certificate_chain.h): chains that are forged in every way a liar
 * can think of, from now, from an old roster, from outside, alone and with others; and the honest
 * ones that must still win, so that a pool comes together again.
 */
#include "gossip/agree/agree_inner.h"
#include "gossip/member/inquiry.h"
#include "tests/lib/gossip_chain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static gsp_choice meets(const gsp_trail *mine, const gsp_trail *theirs, gsp_plight plight)
{
    gsp_match match;
    gsp_trail_match(mine, NULL, theirs, &match);
    return gsp_match_judge(&match, terms.trust, plight);
}

static const gsp_plight WELL, WAITS = {.waits = true}, GAVE_UP = {.waits = true, .gave_up = true};

/* ---- what cannot be shown ---- */

static void a_step_needs_those_before_it(void **unused)
{
    (void)unused;
    gsp_trail t;
    begin();
    history(&t, 5);
    gsp_roster all = t.end.roster, own = roster_of(7, 1), more = all;
    assert_false(refused(&t, link_to(&t, 20, &all, 60, 7)));
    assert_true(refused(&t, link_to(&t, 20, &all, 60, 3)));  /* no quorum */
    assert_true(refused(&t, link_to(&t, 10, &all, 60, 31))); /* not later */
    assert_true(refused(&t, link_to(&t, 20, &all, 40, 31))); /* tokens shrink */
    gsp_step forged = link_to(&t, 20, &own, 1ull << 60, 31);
    for (uint32_t k = 0; k < 5; k++)
        memset(forged.as.link.vote[k].seal, (int)k + 3, GSP_SEAL_BYTES); /* random seals */
    assert_true(refused(&t, forged));
    forged = link_to(&t, 20, &all, 60, 7);
    forged.as.link.head.next = own; /* what was voted for is something else */
    assert_true(refused(&t, forged));
    for (unsigned i = 5; i < 11; i++)
        put(&more, member(i, 1));
    assert_true(refused(&t, link_to(&t, 20, &more, 60, 31))); /* six join a roster of five */
    forged = link_to(&t, 20, &all, 60, 31);
    forged.as.link.head.since = 9; /* a change of the roster in between was left out */
    vote(&forged.as.link, &all, 31);
    assert_true(refused(&t, forged));
    gsp_trail_close(&t);
}

static void a_fork_is_signed_by_all_who_begin_it(void **unused)
{
    (void)unused;
    gsp_trail t;
    begin();
    history(&t, 5);
    gsp_roster two = roster_of(1, 2);
    gsp_step step = fork_of(&t, &two, 1);
    assert_false(refused(&t, step));
    for (int k = 0; k < 8; k++) {
        gsp_step bad = step;
        gsp_genesis *g = &bad.as.genesis;
        g->consent[0][k == 0 ? 5 : 6] ^= k < 1;
        g->consent[1][7] ^= k == 0;
        g->seal[3] ^= k == 1;
        g->version -= k == 2;
        g->previous.byte[0] ^= k == 3;
        g->tokens += (uint64_t)(k == 4) << 60;
        g->parent.byte[0] ^= k == 5;
        g->generation += k == 6;
        g->reset += k == 7;
        assert_true(refused(&t, bad));
    }
    gsp_step reset = fork_of(&t, NULL, 1); /* by somebody who is not the owner */
    reset.as.genesis.reset = 1;
    gsp_order_seal(&seals[1], &reset.as.genesis);
    assert_true(refused(&t, reset));
    gsp_trail_close(&t);
}

/* Whoever hands on the certificate where a chain ends may have put other votes on it. */
static void a_certificate_is_shown_with_its_own_votes(void **unused)
{
    (void)unused;
    static gsp_certificate right, bad;
    gsp_trail t;
    begin();
    history(&t, 5);
    gsp_roster all = t.end.roster, four = roster_of(0, 4);
    for (unsigned changes = 0; changes < 2; changes++) {
        gsp_chain_link link = {.ballot = 1};
        right = (gsp_certificate){.ballot = 1};
        right.proposal = (gsp_proposal){.lineage = t.end.lineage,
                                        .version = 20,
                                        .tokens = 60,
                                        .samples = 60,
                                        .next = changes ? four : all,
                                        .since = t.end.made,
                                        .made = changes ? 20 : t.end.made};
        gsp_head_of(&seals[0], &right.proposal, &link.head);
        vote(&link, &all, 7);
        right.n_votes = link.n_votes;
        memcpy(right.vote, link.vote, sizeof right.vote);
        assert_true(gsp_chain_shows(&terms, &t.end, &right)); /* after where the chain ends */
        gsp_step step = {.as.link = link};
        add(&t, step);
        for (unsigned k = 0; k < 6; k++) {
            bad = right;
            bad.vote[1].seal[9] ^= k == 1;
            bad.ballot += k == 2;
            bad.n_votes -= k == 3 ? 1 : k == 4 ? 3 : 0;
            bad.vote[1].member = k == 5 ? 3 : 1;
            assert_int_equal(gsp_chain_shows(&terms, &t.end, &bad), k == 0);
        }
        gsp_trail_cut(&t, t.n - 1);
    }
    gsp_trail_close(&t);
}

/* ---- nobody is taken over ---- */

/* A liar's own lineage: from the newest certificate, from any older one, with any number of members
 * that it invents or that stand with it from outside, and any tokens. */
static void a_liar_moves_nobody(void **unused)
{
    (void)unused;
    gsp_trail mine, theirs;
    begin();
    for (uint32_t cut = 1; cut <= 3; cut++) {
        for (unsigned friends = 0; friends < 3; friends++) {
            history(&mine, 5);
            history(&theirs, 5);
            gsp_trail_cut(&theirs, cut);
            gsp_roster some = roster_of(4, 1); /* the liar */
            for (unsigned k = 0; k < friends; k++)
                put(&some, member(6 + k, 1));
            unsigned founder = 4;
            if (friends) { /* of whom nobody was on the roster */
                assert_true(refused(&theirs, fork_of(&theirs, &some, founder)));
                gsp_trail_close(&mine);
                gsp_trail_close(&theirs);
                continue;
            }
            add(&theirs, fork_of(&theirs, NULL, founder));
            gsp_roster now = theirs.end.roster;
            add(&theirs, link_to(&theirs, 1000, &now, 1ull << 60, UINT32_MAX));
            assert_int_equal(meets(&mine, &theirs, WELL), GSP_STAY);
            assert_int_equal(meets(&mine, &theirs, WAITS), GSP_STAY);
            assert_int_equal(meets(&theirs, &mine, WELL), cut < 3 ? GSP_GO : GSP_STAY);
            add(&mine, link_to(&mine, 11, &mine.end.roster, 51, 7)); /* we went on meanwhile */
            assert_int_equal(meets(&mine, &theirs, GAVE_UP), GSP_STAY);
            assert_int_equal(meets(&theirs, &mine, WELL), GSP_GO);
            gsp_trail_close(&mine);
            gsp_trail_close(&theirs);
        }
    }
}

/* A key that was a quorum long ago signs another past. */
static void an_old_quorum_moves_nobody(void **unused)
{
    (void)unused;
    gsp_trail mine, theirs;
    begin();
    history(&mine, 5);
    history(&theirs, 5);
    gsp_trail_cut(&theirs, 1);
    gsp_roster pair = roster_of(0, 1);
    put(&pair, member(9, 1));
    add(&theirs, link_to(&theirs, 3, &pair, 1ull << 59, 1)); /* 0 alone was R(1) */
    add(&theirs, link_to(&theirs, 900, &theirs.end.roster, 1ull << 60, 3));
    assert_int_equal(meets(&mine, &theirs, WELL), GSP_DIVIDED);
    assert_int_equal(meets(&mine, &theirs, GAVE_UP), GSP_DIVIDED);
    gsp_trail_close(&mine);
    gsp_trail_close(&theirs);
}

static const gsp_plight NEW = {.newcomer = true};

/* Of seven, those who vote on both sides lie. Members stay where they are, and all who come follow
 * the same side: that of more, or else always the same one, from whichever they come. */
static void all_newcomers_follow_one_of_two_quorums(void **unused)
{
    (void)unused;
    gsp_trail a, b;
    begin();
    for (unsigned more = 0; more < 2; more++) {
        history(&a, 7);
        history(&b, 7);
        gsp_roster all = a.end.roster, six = all;
        six.n--;
        add(&a, link_to(&a, 11, &six, 60, 0xf));
        add(&b, link_to(&b, 13, &six, 1ull << 60, 0x78));
        if (more) /* a fifth voter of the seven */
            add(&a, link_to(&a, 30, &six, 70, 0x1e));
        for (unsigned turn = 0; turn < 2; turn++) {
            gsp_plight plight = turn ? NEW : WELL;
            gsp_choice to_b = meets(&a, &b, plight), to_a = meets(&b, &a, plight);
            assert_int_equal(to_a == GSP_GO, turn && to_b != GSP_GO);
            assert_true(to_a != GSP_STAY && to_b != GSP_STAY);
            assert_true(!more || to_b == GSP_DIVIDED);
        }
        add(&b, fork_of(&b, NULL, who(&b.end.roster.member[5].key))); /* nobody follows that */
        assert_int_equal(meets(&a, &b, NEW), GSP_DIVIDED);
        assert_int_equal(meets(&b, &a, NEW), GSP_GO);
        gsp_trail_close(&a);
        gsp_trail_close(&b);
    }
}

/* ---- and everybody comes together ---- */

static void whoever_is_behind_catches_up(void **unused)
{
    (void)unused;
    gsp_trail mine, theirs;
    begin();
    history(&mine, 5);
    history(&theirs, 5);
    gsp_roster four = roster_of(0, 4);
    add(&theirs, link_to(&theirs, 30, &four, 70, 7));
    assert_int_equal(meets(&mine, &theirs, WELL), GSP_GO);
    assert_int_equal(meets(&theirs, &mine, WELL), GSP_STAY);
    add(&mine, link_to(&mine, 20, &mine.end.roster, 60, 7)); /* one that changed nothing */
    assert_int_equal(meets(&mine, &theirs, WELL), GSP_GO);
    add(&mine, fork_of(&mine, &mine.end.roster, 0)); /* and the quorum went on without a fork */
    assert_int_equal(meets(&mine, &theirs, WELL), GSP_GO);
    assert_int_equal(meets(&theirs, &mine, WAITS), GSP_STAY);
    gsp_trail_close(&mine);
    gsp_trail_close(&theirs);
}

static void survivors_are_followed(void **unused)
{
    (void)unused;
    gsp_trail mine, two, three, lone;
    begin();
    history(&mine, 7);
    history(&two, 7);
    history(&three, 7);
    history(&lone, 7);
    gsp_roster a = roster_of(0, 2), b = roster_of(2, 3);
    add(&two, fork_of(&two, &a, 0));
    add(&two, link_to(&two, 11, &two.end.roster, 900, 3));
    add(&three, fork_of(&three, &b, 2));
    add(&three, link_to(&three, 11, &three.end.roster, 60, 7));
    add(&lone, fork_of(&lone, NULL, 6));
    add(&lone, link_to(&lone, 11, &lone.end.roster, 5000, 1));
    assert_int_equal(meets(&mine, &two, WELL), GSP_STAY); /* there may still be a quorum */
    assert_int_equal(meets(&mine, &two, WAITS), GSP_GO);
    assert_int_equal(meets(&two, &three, WELL), GSP_GO); /* more stand behind it */
    assert_int_equal(meets(&three, &two, WELL), GSP_STAY);
    assert_int_equal(meets(&three, &lone, WAITS), GSP_STAY);
    assert_int_equal(meets(&lone, &three, WELL), GSP_GO);
    assert_int_equal(meets(&mine, &lone, WAITS), GSP_STAY);
    assert_int_equal(meets(&mine, &lone, GAVE_UP), GSP_GO);
    gsp_match match; /* of seven strangers two may be hostile */
    gsp_trail_match(&mine, NULL, &three, &match);
    assert_int_equal(gsp_match_judge(&match, GSP_STRANGERS, WAITS), GSP_GO);
    gsp_trail_match(&mine, NULL, &two, &match);
    assert_int_equal(gsp_match_judge(&match, GSP_STRANGERS, WAITS), GSP_STAY);
    gsp_trail_close(&mine);
    gsp_trail_close(&two);
    gsp_trail_close(&three);
    gsp_trail_close(&lone);
}

/* Four of seven go on to version 11, and then one of them alone; the others fork from 10. */
static void whoever_went_on_alone_comes_back(void **unused)
{
    (void)unused;
    gsp_trail alone, others;
    begin();
    history(&alone, 7);
    history(&others, 7);
    add(&alone, link_to(&alone, 11, &alone.end.roster, 60, 15));
    add(&alone, fork_of(&alone, NULL, 0));
    add(&alone, link_to(&alone, 12, &alone.end.roster, 5000, 1));
    gsp_roster three = roster_of(4, 3);
    add(&others, fork_of(&others, &three, 4));
    add(&others, link_to(&others, 11, &others.end.roster, 55, 7));
    assert_int_equal(meets(&alone, &others, WELL), GSP_STAY);
    assert_int_equal(meets(&alone, &others, GAVE_UP), GSP_GO);
    assert_int_equal(meets(&others, &alone, WELL), GSP_STAY);
    assert_int_equal(meets(&others, &alone, GAVE_UP), GSP_STAY);
    gsp_trail_close(&alone);
    gsp_trail_close(&others);
}

/* The owner's reset with this number, at the end of the trail. */
static void reset_here(gsp_trail *t, uint32_t number)
{
    add(t, reset_of(t, number));
}

/* An owner that lost its disk does not know of its last reset, and orders that number again at
 * another place. All who followed either of them meet. */
static void two_resets_with_one_number_are_one_in_the_end(void **unused)
{
    (void)unused;
    gsp_trail first, again, lone;
    begin();
    history(&first, 5);
    history(&again, 5);
    reset_here(&first, 1);
    gsp_roster alone = first.end.roster;
    add(&first, link_to(&first, 500, &alone, 900, 1));
    add(&again, link_to(&again, 12, &again.end.roster, 60, 31));
    reset_here(&again, 1);
    bool goes = meets(&first, &again, WELL) == GSP_GO;
    assert_int_equal(meets(goes ? &first : &again, goes ? &again : &first, WELL), GSP_GO);
    assert_int_equal(meets(goes ? &again : &first, goes ? &first : &again, WELL), GSP_STAY);
    history(&lone, 5);
    reset_here(&lone, 2);
    assert_int_equal(meets(&first, &lone, WELL), GSP_GO);
    assert_int_equal(meets(&lone, &again, WELL), GSP_STAY);
    gsp_trail_close(&first);
    gsp_trail_close(&again);
    gsp_trail_close(&lone);
}

static void the_owners_reset_wins(void **unused)
{
    (void)unused;
    gsp_trail mine, theirs;
    begin();
    history(&mine, 5);
    history(&theirs, 5);
    reset_here(&theirs, 1);
    add(&mine, link_to(&mine, 500, &mine.end.roster, 1ull << 50, 31));
    assert_int_equal(meets(&mine, &theirs, WELL), GSP_GO);
    assert_int_equal(meets(&theirs, &mine, WELL), GSP_STAY);
    gsp_step own = fork_of(&theirs, NULL, 4); /* whoever forks the reset leads nobody there */
    add(&theirs, own);
    add(&theirs, link_to(&theirs, 900, &theirs.end.roster, 1ull << 60, 1));
    assert_int_equal(meets(&mine, &theirs, WAITS), GSP_STAY);
    gsp_step old = fork_of(&theirs, NULL, 4); /* the order is worth nothing for another place */
    old.as.genesis.reset = 2;
    assert_true(refused(&theirs, old));
    gsp_trail_close(&mine);
    gsp_trail_close(&theirs);
}

/* ---- asking ---- */

static void long_chains_come_in_pieces(void **unused)
{
    (void)unused;
    gsp_trail mine, theirs;
    gsp_inquiry q = {0};
    static gsp_chain_ask ask;
    static gsp_chain_said said;
    begin();
    history(&mine, 5);
    history(&theirs, 5);
    for (uint64_t v = 11; v < 80; v++) { /* 5 leaves and comes back */
        gsp_roster next = roster_of(0, v % 2 ? 4 : 5);
        add(&theirs, link_to(&theirs, v, &next, v + 50, 15));
    }
    gsp_key key = member(1, 1).key;
    gsp_inquiry_begin(&q, &terms, &key, 0);
    gsp_inquiry_news news = GSP_INQUIRY_GOES;
    for (unsigned k = 0; news == GSP_INQUIRY_GOES; k++) {
        assert_true(k < 6);
        gsp_inquiry_ask(&q, &mine, &ask);
        gsp_trail_answer(&theirs, NULL, &ask, &said);
        assert_true(said.n <= GSP_CHAIN_SAID_MAX);
        news = gsp_inquiry_heard(&q, &mine, &said, 1);
    }
    assert_int_equal(news, GSP_INQUIRY_WHOLE);
    assert_int_equal(q.theirs.n, theirs.n);
    assert_memory_equal(&q.theirs.end, &theirs.end, sizeof theirs.end);
    said.more = true; /* no progress */
    said.n = 0;
    assert_int_equal(gsp_inquiry_heard(&q, &mine, &said, 1), GSP_INQUIRY_WRONG);
    assert_false(gsp_inquiry_over(&q, 1000000000u));
    assert_true(gsp_inquiry_over(&q, 121000000000u));
    gsp_inquiry_end(&q);
    gsp_trail_close(&mine);
    gsp_trail_close(&theirs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_needs_those_before_it),
        cmocka_unit_test(a_fork_is_signed_by_all_who_begin_it),
        cmocka_unit_test(a_certificate_is_shown_with_its_own_votes),
        cmocka_unit_test(a_liar_moves_nobody),
        cmocka_unit_test(an_old_quorum_moves_nobody),
        cmocka_unit_test(all_newcomers_follow_one_of_two_quorums),
        cmocka_unit_test(whoever_is_behind_catches_up),
        cmocka_unit_test(survivors_are_followed),
        cmocka_unit_test(whoever_went_on_alone_comes_back),
        cmocka_unit_test(the_owners_reset_wins),
        cmocka_unit_test(two_resets_with_one_number_are_one_in_the_end),
        cmocka_unit_test(long_chains_come_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
