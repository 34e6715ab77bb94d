/*
 * What is right: which votes are a quorum, which lineage wins, which proposals a voter may vote
 * for, and what a state must look like that is taken over.
 */
#include "tests/lib/agree_hosts.h"

static void any_two_quorums_share_a_member(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 8; n++)
        for (uint32_t a = 0; a < 1u << n; a++)
            for (uint32_t b = 0; b < 1u << n; b++)
                if (gsp_quorum(n, a) && gsp_quorum(n, b))
                    assert_true(a & b);
    assert_true(gsp_quorum(1, 1));
    assert_true(gsp_quorum(2, 1));
    assert_false(gsp_quorum(2, 2));
    assert_true(gsp_quorum(4, 3));
    assert_false(gsp_quorum(4, 6));
    assert_true(gsp_quorum(32, 0xffff));
    assert_false(gsp_quorum(32, 0xffff0000));
}

static void lineages_have_one_order(void **state)
{
    (void)state;
    gsp_standing a = {.lineage = {{1}}, .tokens = 10}, b = {.lineage = {{2}}, .tokens = 10};
    assert_true(gsp_lineage_beats(&a, &b)); /* the lower hash */
    b.generation = 1;
    assert_true(gsp_lineage_beats(&b, &a)); /* a fork against its parent */
    a.tokens = 11;
    assert_true(gsp_lineage_beats(&a, &b)); /* more tokens */
    b.live = true, b.n_votes = 5, a.n_votes = 1, a.tokens = UINT64_MAX;
    assert_false(gsp_lineage_beats(&a, &b)); /* a lone liar's tokens */
    a.reset = 1;
    assert_true(gsp_lineage_beats(&a, &b));   /* the owner's word */
    for (uint32_t k = 0; k < 1u << 12; k++) { /* never both, never neither */
        gsp_standing x = {.lineage = {{1}},
                          .reset = k & 1,
                          .generation = k >> 1 & 1,
                          .tokens = k >> 2 & 1,
                          .n_votes = k >> 3 & 3,
                          .live = k >> 5 & 1};
        gsp_standing y = {.lineage = {{2}},
                          .reset = k >> 6 & 1,
                          .generation = k >> 7 & 1,
                          .tokens = k >> 8 & 1,
                          .n_votes = k >> 9 & 3,
                          .live = k >> 11 & 1};
        assert_true(gsp_lineage_beats(&x, &y) != gsp_lineage_beats(&y, &x));
    }
}

/* Member 0 owns every part that changed, and signs for it. */
static void sign_parts(const gsp_agree *a, gsp_proposal *p)
{
    gsp_hash contributors;
    gsp_statement said;
    gsp_seals seals = seals_of(0);
    gsp_contributors_hash(&seals, p->contributor, p->n_contributors, &contributors);
    for (uint32_t k = 0; k < p->n_parts; k++) {
        if (p->part[k].included == 0)
            continue;
        gsp_reduced_statement(&seals, &p->lineage, p->version, k, &p->part[k], &contributors,
                              &gsp_agree_roster(a)->member[0], &said);
        gsp_statement_seal(&seals, &said);
        memcpy(p->part[k].seal, said.seal, sizeof said.seal);
    }
}

static void what_is_proposed_again_may_hold_my_older_contribution(void **state)
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
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false)); /* nobody signed the part */
    sign_parts(a, &p);
    assert_null(gsp_proposal_wrong(a, &p, 7, false));
    a->frozen = GSP_FROZEN; /* after a restart, anew */
    a->contribution = (gsp_contribution){.root = {{7}}, .tokens = 9, .samples = 9};
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    assert_null(gsp_proposal_wrong(a, &p, 7, true));
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
    assert_null(gsp_proposal_wrong(a, &right, 7, false));
    p = right, p.version = 7;
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = right, p.tokens = 1001;
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = right, p.part[1].weight = 1;
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = right, p.n_parts = 2;
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = right, p.next.n = 0;
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = right, p.next.n = 2; /* taken off without a reason */
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = right, p.next.member[0] = member(2), p.next.member[2] = member(0);
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = right, p.missed[2] = 1; /* it did promise */
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = right, p.n_contributors = 1; /* brings nothing */
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = right, p.against[1] = 1; /* it has not leant */
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
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
    gsp_rules_weigh(a, p.contributor, 3);
    for (uint8_t k = 0; k < 2; k++)
        p.part[k] = (gsp_part){.hash = {{6}},
                               .included = 7,
                               .weight = gsp_included_weight(p.contributor, 3, 7),
                               .lean = {20, 30, lean}};
    gsp_rules_totals(a, &p, &p.tokens, &p.samples);
    gsp_rules_next(a, 7, &p);
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
    assert_null(gsp_proposal_wrong(a, &p, 7, false));
    assert_int_equal(p.against[2], 1);
    assert_int_equal(p.contributor[2].weight, 10);
    assert_int_equal(p.tokens, 1030);
    p.part[0].lean[1]++; /* the proposer changes an owner's word */
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p.part[0].lean[1]--;
    p.against[2] = 0; /* a friend forgets it */
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    against[2] = 2;
    p = three_bring(a, -5);
    assert_null(gsp_proposal_wrong(a, &p, 7, false));
    assert_int_equal(p.against[2], 3);
    assert_int_equal(p.contributor[2].weight, 0);
    assert_int_equal(p.tokens, 1020); /* and moves the schedule no further */
    p.contributor[2].weight = 10;
    assert_non_null(gsp_proposal_wrong(a, &p, 7, false));
    p = three_bring(a, 1); /* forward again */
    assert_null(gsp_proposal_wrong(a, &p, 7, false));
    assert_int_equal(p.against[2], 0);
    assert_int_equal(p.contributor[2].weight, 0);
    against[1] = 2; /* most lean backwards: then nobody can say who is wrong */
    p = three_bring(a, -5);
    assert_null(gsp_proposal_wrong(a, &p, 7, false));
    assert_int_equal(p.contributor[2].weight, 10);
    close_pool();
}

static void a_state_beyond_its_limits_is_refused(void **state)
{
    (void)state;
    open_pool(2);
    gsp_saved *bad = calloc(1, sizeof *bad);
    *bad = saved;
    bad->certificate.proposal.version = 9;
    bad->certificate.proposal.n_contributors = GSP_MEMBERS_MAX + 1;
    step(0, (gsp_event){.kind = GSP_ON_STATE, .saved = bad});
    assert_int_equal(w.agree[0].certified, 5);
    bad->certificate.proposal.n_contributors = 0;
    bad->certificate.proposal.lineage.byte[0] ^= 1; /* not of the genesis beside it */
    step(0, (gsp_event){.kind = GSP_ON_STATE, .saved = bad});
    assert_int_equal(w.agree[0].certified, 5);
    bad->certificate.proposal.lineage.byte[0] ^= 1;
    step(0, (gsp_event){.kind = GSP_ON_STATE, .saved = bad});
    assert_int_equal(w.agree[0].certified, 9);
    free(bad);
    close_pool();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_two_quorums_share_a_member),
        cmocka_unit_test(lineages_have_one_order),
        cmocka_unit_test(what_is_proposed_again_may_hold_my_older_contribution),
        cmocka_unit_test(a_voter_checks_everything),
        cmocka_unit_test(who_leans_backwards_loses_weight),
        cmocka_unit_test(a_state_beyond_its_limits_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
