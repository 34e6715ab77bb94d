/*
 * What is right: which votes are a quorum, which lineage wins, which proposals a voter may vote
 * for, and what a state must look like that is taken over.
 */
#include "tests/lib/agree_hosts.h"

static const gsp_changes nothing;

static void any_two_quorums_share_a_member(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 8; n++)
        for (uint32_t a = 0; a < 1u << n; a++)
            for (uint32_t b = 0; b < 1u << n; b++)
                if (gsp_quorum(GSP_FRIENDS, n, a) && gsp_quorum(GSP_FRIENDS, n, b))
                    assert_true(a & b);
    assert_true(gsp_quorum(GSP_FRIENDS, 1, 1));
    assert_true(gsp_quorum(GSP_FRIENDS, 2, 1));
    assert_false(gsp_quorum(GSP_FRIENDS, 2, 2));
    assert_true(gsp_quorum(GSP_FRIENDS, 4, 3));
    assert_false(gsp_quorum(GSP_FRIENDS, 4, 6));
    assert_true(gsp_quorum(GSP_FRIENDS, 32, 0xffff));
    assert_false(gsp_quorum(GSP_FRIENDS, 32, 0xffff0000));
}

static void quorums_of_strangers_share_an_honest_member(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 8; n++) {
        uint32_t liars = gsp_liars_max(GSP_STRANGERS, n), honest = ((1u << n) - 1) >> liars;
        assert_true(3 * liars < n);
        assert_true(3 * (liars + 1) >= n);
        assert_true(gsp_quorum(GSP_STRANGERS, n, honest)); /* liars that are silent stop nothing */
        for (uint32_t a = 0; a < 1u << n; a++)
            for (uint32_t b = 0; b < 1u << n; b++)
                if (gsp_quorum(GSP_STRANGERS, n, a) && gsp_quorum(GSP_STRANGERS, n, b))
                    assert_true((uint32_t)__builtin_popcount(a & b) > liars);
    }
}

static void my_own_contribution_is_what_i_froze(void **state)
{
    (void)state;
    open_pool(3);
    gsp_agree *a = &w.agree[0];
    gsp_proposal p = {.lineage = a->lineage,
                      .version = 6,
                      .previous = a->previous,
                      .n_parts = 3,
                      .n_contributors = 1,
                      .next = *gsp_agree_roster(a)};
    p.contributor[0] =
        (gsp_contributor){.member = 0, .root = {{5}}, .tokens = 4, .samples = 4, .weight = 4};
    p.part[0] = (gsp_part){.hash = {{6}}, .included = 1, .weight = 4};
    p.tokens = 1004;
    p.samples = 4;
    assert_non_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0)); /* nobody signed the part */
    sign_parts(a, &p);
    assert_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    a->frozen = GSP_FROZEN; /* after a restart, anew */
    a->contribution = (gsp_contribution){.root = {{7}}, .tokens = 9, .samples = 9};
    assert_non_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    close_pool();
}

static void a_voter_checks_everything(void **state)
{
    (void)state;
    open_pool(3);
    const gsp_agree *a = &w.agree[1];
    gsp_proposal right = {.lineage = a->lineage,
                          .version = 6,
                          .previous = a->previous,
                          .tokens = 1000,
                          .n_parts = 3,
                          .next = *gsp_agree_roster(a)},
                 p;
    assert_null(gsp_proposal_wrong(a, &right, &nothing, 7, 0));
    p = right, p.version = 7;
    assert_non_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    p = right, p.tokens = 1001;
    assert_non_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    p = right, p.part[1].weight = 1;
    assert_non_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    p = right, p.n_parts = 2;
    assert_non_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    p = right, p.next.n = 0;
    assert_non_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    p = right, p.next.n = 2; /* taken off without a reason */
    assert_non_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    p = right, p.next.member[0] = member(2), p.next.member[2] = member(0);
    assert_non_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    p = right, p.missed[2] = 1; /* it did promise */
    assert_non_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    p = right, p.n_contributors = 1; /* brings nothing */
    assert_non_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    p = right, p.against[1] = 1; /* it has not leant */
    assert_non_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    close_pool();
}

/* Three bring something, with weights by the rule; the third leans by `lean` in both parts. */
static gsp_proposal three_bring(gsp_agree *a, int8_t lean)
{
    gsp_proposal p = {.lineage = a->lineage,
                      .version = 6,
                      .previous = a->previous,
                      .n_contributors = 3,
                      .n_parts = 3,
                      .next = *gsp_agree_roster(a)};
    for (uint8_t i = 0; i < 3; i++)
        p.contributor[i] =
            (gsp_contributor){.member = i, .root = {{5}}, .tokens = 10, .samples = 10};
    gsp_proposal_weigh(&a->rules, &a->certificate.proposal, p.contributor, 3);
    for (uint8_t k = 0; k < 2; k++)
        p.part[k] = (gsp_part){.hash = {{6}},
                               .included = 7,
                               .weight = gsp_included_weight(p.contributor, 3, 7),
                               .lean = {20, 30, lean}};
    gsp_proposal_totals(&a->rules, &a->certificate.proposal, &p, &p.tokens, &p.samples);
    gsp_rules_next(a, 7, 0, &p);
    sign_parts(a, &p);
    return p;
}

static void who_leans_backwards_loses_weight(void **state)
{
    (void)state;
    open_pool(3);
    gsp_agree *a = &w.agree[1];
    uint8_t *against = a->certificate.proposal.against;
    a->rules.against_rounds = 2;
    gsp_proposal p = three_bring(a, -5);
    assert_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    assert_int_equal(p.against[2], 1);
    assert_int_equal(p.contributor[2].weight, 10);
    assert_int_equal(p.tokens, 1030);
    p.part[0].lean[1]++; /* the proposer changes an owner's word */
    assert_non_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    p.part[0].lean[1]--;
    p.against[2] = 0; /* a friend forgets it */
    assert_non_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    against[2] = 2;
    p = three_bring(a, -5);
    assert_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    assert_int_equal(p.against[2], 3);
    assert_int_equal(p.contributor[2].weight, 0);
    assert_int_equal(p.tokens, 1020); /* and moves the schedule no further */
    p.contributor[2].weight = 10;
    assert_non_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    p = three_bring(a, 1); /* forward again */
    assert_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    assert_int_equal(p.against[2], 0);
    assert_int_equal(p.contributor[2].weight, 0);
    assert_true(gsp_agree_mutes(a, 2) && !gsp_agree_mutes(a, 1) && !gsp_agree_mutes(a, GSP_NOBODY));
    against[1] = 2; /* most lean backwards: then nobody can say who is wrong */
    assert_false(gsp_agree_mutes(a, 2));
    p = three_bring(a, -5);
    assert_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    assert_int_equal(p.contributor[2].weight, 10);
    close_pool();
}

static uint64_t ten_each(void *context, uint64_t version, uint32_t n, uint32_t i)
{
    (void)context;
    return version == 6 && i < n ? 10 : UINT64_MAX;
}

/* The last one of four has a sixteenth of it all. */
static uint64_t few_for_the_last(void *context, uint64_t version, uint32_t n, uint32_t i)
{
    (void)context;
    (void)version;
    (void)n;
    return i < 3 ? 30 : 6;
}

/* Host 0 looks; members 0, 1 and so on have brought theirs. Whether the version is due after ms. */
static bool due_after(uint32_t n_done, uint64_t ms)
{
    gsp_agree *a = &w.agree[0];
    a->now_ns = a->certified_ns + ms * MS;
    a->samples = n_done > 0 ? 11 : 0;
    memset(a->peer, 0, sizeof a->peer);
    for (uint32_t i = 1; i < gsp_agree_roster(a)->n; i++)
        a->peer[i] = (gsp_peer){.who = member(i),
                                .up = true,
                                .known = true,
                                .heard_ns = a->now_ns,
                                .lineage = a->lineage,
                                .certified = a->certified,
                                .samples = i < n_done ? 11 : 0};
    gsp_view_tick(a);
    bool due = a->view != 0;
    a->view = 0;
    return due;
}

static void who_is_late_is_waited_for_a_quarter_as_long_again(void **state)
{
    (void)state;
    open_pool(3);
    gsp_agree *a = &w.agree[0];
    uint64_t beats = a->rules.heartbeat_ns / MS;
    a->rules.summed = true;
    a->rules.time_due_ns = 1000000 * MS;
    assert_false(due_after(1, 1000)); /* nobody knows of leases */
    assert_false(due_after(2, 100000));
    a->rules.lease = ten_each;
    assert_false(due_after(1, 100000)); /* a third of what was leased decides nothing */
    assert_false(due_after(2, 200000));
    assert_false(due_after(2, 249999 + beats));
    assert_true(due_after(2, 250000 + beats));
    a->half_ns = 0;
    assert_true(due_after(3, 300000)); /* everybody: at once */
    assert_int_equal(a->n_leased, 3);
    a->rules.robust = true;
    a->half_ns = 0;
    assert_false(due_after(2, 400000));
    assert_false(due_after(2, 900000)); /* a clipped sum of two thirds would count for nothing */
    assert_true(due_after(3, 900001));
    close_pool();
}

static void little_is_waited_for_less(void **state)
{
    (void)state;
    uint64_t full = gsp_view_late_wait_ns(0, 12, 96, 1024000, 7);
    assert_int_equal(full, 256007);
    assert_int_equal(gsp_view_late_wait_ns(0, 96, 96, 1024000, 7),
                     full); /* and no more than that */
    assert_int_equal(gsp_view_late_wait_ns(0, 3, 96, 1024000, 7), 64007);
    assert_int_equal(gsp_view_late_wait_ns(0, 0, 96, 1024000, 7), 7);
    assert_int_equal(gsp_view_late_wait_ns(0, 1, 7, 1024000, 7),
                     full); /* an eighth of it is nothing */
    assert_true(gsp_view_late_wait_ns(358, (UINT64_C(1) << 50) - 1, UINT64_C(1) << 53, 1024000, 7) >
                357000);
    open_pool(4);
    gsp_agree *a = &w.agree[0];
    uint64_t beats = a->rules.heartbeat_ns / MS;
    a->rules.summed = true;
    a->rules.time_due_ns = 1000000 * MS;
    a->rules.lease = few_for_the_last;
    assert_false(due_after(3, 200000));
    assert_false(due_after(3, 224999 + beats)); /* half of a quarter */
    assert_true(due_after(3, 225000 + beats));
    a->rules.robust = true; /* what is late is lost */
    a->half_ns = 0;
    assert_false(due_after(3, 200000));
    assert_false(due_after(3, 249999 + beats));
    assert_true(due_after(3, 250000 + beats));
    close_pool();
}

static uint64_t all_of_the_first(void *context, uint64_t version, uint32_t n, uint32_t i)
{
    (void)context;
    (void)version;
    (void)n;
    return i == 0 ? 10 : 0;
}

/* Host 0 looks. Each member says that much, 1 being nothing, and rests or not (bits). */
static bool due_where(uint64_t mine, uint64_t others, uint32_t rests)
{
    gsp_agree *a = &w.agree[0];
    due_after(0, 1000);
    a->samples = mine;
    a->rests = rests & 1;
    for (uint32_t i = 1; i < gsp_agree_roster(a)->n; i++) {
        a->peer[i].samples = others;
        a->peer[i].rests = rests >> i & 1;
    }
    gsp_view_tick(a);
    bool due = a->view != 0;
    a->view = 0;
    return due;
}

static void what_those_who_rest_were_leased_is_passed_on(void **state)
{
    (void)state;
    open_pool(3);
    gsp_agree *a = &w.agree[0];
    assert_int_equal(a->self_i, 0);
    a->rules.summed = true;
    a->rules.time_due_ns = 1000000 * MS;
    a->rules.lease = all_of_the_first;
    assert_false(due_where(1, 1, 1)); /* pools from before wait */
    a->rules.passes_on = true;
    assert_true(due_where(1, 1, 1));
    assert_true(due_where(1, 1, 3));
    assert_false(due_where(1, 1, 7));  /* all rest: for whom? */
    assert_false(due_where(1, 1, 0));  /* who was leased it says nothing of a rest */
    a->rules.heartbeat_ns = 1001 * MS; /* no more than one such version in a heartbeat */
    assert_false(due_where(1, 1, 1));
    a->rules.heartbeat_ns = 1000 * MS;
    assert_true(due_where(1, 1, 1));
    assert_false(due_where(0, 1, 1)); /* it is being made */
    a->rules.lease = ten_each;
    assert_false(due_where(1, 1, 1)); /* nobody is left to be asked */
    a->rules.lease = few_for_the_last;
    assert_false(due_where(1, 1, 3));
    close_pool();
}

static void clipped_sums_wait_for_enough_that_do_not_rest(void **state)
{
    (void)state;
    char text[256];
    open_pool(3);
    gsp_agree *a = &w.agree[0];
    a->rules.summed = a->rules.robust = true;
    a->rules.time_due_ns = 1000000 * MS;
    a->rules.lease = ten_each;
    assert_false(due_where(11, 1, 6)); /* a sum of mine alone would be void */
    assert_non_null(strstr(gsp_agree_explain(a, text, sizeof text),
                           "2 rest: among strangers a step needs more than two thirds of all, so "
                           "it waits for 2 more"));
    assert_true(due_where(11, 11, 0));
    a->peer[1].doubted = a->certified + 1; /* it claims to bring something, and does not */
    gsp_view_tick(a);
    assert_int_equal(a->view, 0);
    assert_null(strstr(gsp_agree_explain(a, text, sizeof text), "rest"));
    a->rules.robust = false;
    assert_true(due_where(11, 1, 6));
    assert_null(strstr(gsp_agree_explain(a, text, sizeof text), "rest"));
    close_pool();
}

static void who_claims_and_does_not_bring_is_not_believed(void **state)
{
    (void)state;
    open_pool(3);
    gsp_agree *a = &w.agree[0];
    a->rules.summed = true;
    a->rules.time_due_ns = 1000000 * MS;
    a->rules.lease = ten_each;
    assert_true(due_after(2, 1000) || due_after(2, 100000));
    assert_int_equal(a->claimed, 3);
    gsp_proposal p = {.version = a->certified + 1, .n_contributors = 1}; /* only mine */
    p.contributor[0].member = (uint8_t)a->self_i;
    gsp_view_doubt(a, &p);
    uint64_t until = 0;
    for (uint32_t k = 1; k < 3; k++)
        until = a->peer[k].doubted > until ? a->peer[k].doubted : until;
    assert_int_equal(until, a->certified + 17);
    assert_int_equal(a->claimed, 0);
    a->half_ns = 0;
    gsp_peer liar = a->peer[1];
    liar.doubted = until;
    a->now_ns += 1000 * MS;
    a->peer[1] = liar;
    gsp_view_tick(a);
    assert_int_equal(a->half_ns, 0); /* a third of the samples, and a word that is not believed */
    a->peer[1].doubted = a->certified;
    gsp_view_tick(a);
    assert_true(a->half_ns != 0);
    close_pool();
}

static void patience_is_learnt(void **state)
{
    (void)state;
    uint32_t patience = 0;
    assert_int_equal(gsp_view_late_wait_ns(0, 10, 10, 1024000, 7), 256007);
    for (int i = 0; i < 200; i++)
        patience = gsp_view_late_learn(patience, false);
    assert_int_equal(gsp_view_late_wait_ns(patience, 10, 10, 1024000, 0),
                     128000); /* nobody is late: an eighth */
    uint32_t before = patience;
    patience = gsp_view_late_learn(patience, true);
    assert_true(patience > before);
    for (int i = 0; i < 200; i++)
        patience = gsp_view_late_learn(patience, true);
    assert_true(gsp_view_late_wait_ns(patience, 10, 10, 1024000, 0) <
                512000); /* never for half as long */
    assert_true(gsp_view_late_wait_ns(patience, 10, 10, UINT64_MAX / 1024, 0) > 0);
    open_pool(3);
    gsp_agree *a = &w.agree[0];
    a->rules.summed = true;
    a->n_leased = 1; /* of three members, and one contributed */
    a->certificate.proposal.n_contributors = 1;
    gsp_agree_begin_version(a);
    assert_true(a->patience < GSP_PATIENCE_FIRST);
    a->n_leased = 2;
    a->patience = 0;
    gsp_agree_begin_version(a);
    assert_true(a->patience > GSP_PATIENCE_FIRST);
    a->n_leased = 2;
    a->patience = 0;
    a->certificate.proposal.n_contributors = 0; /* nobody was waited for */
    gsp_agree_begin_version(a);
    assert_int_equal(a->patience, 0);
    assert_int_equal(a->n_leased, 0);
    close_pool();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_two_quorums_share_a_member),
        cmocka_unit_test(quorums_of_strangers_share_an_honest_member),
        cmocka_unit_test(my_own_contribution_is_what_i_froze),
        cmocka_unit_test(a_voter_checks_everything),
        cmocka_unit_test(who_leans_backwards_loses_weight),
        cmocka_unit_test(who_is_late_is_waited_for_a_quarter_as_long_again),
        cmocka_unit_test(little_is_waited_for_less),
        cmocka_unit_test(what_those_who_rest_were_leased_is_passed_on),
        cmocka_unit_test(clipped_sums_wait_for_enough_that_do_not_rest),
        cmocka_unit_test(who_claims_and_does_not_bring_is_not_believed),
        cmocka_unit_test(patience_is_learnt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
