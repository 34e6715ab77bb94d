/*
 * What a proposal must be by itself, and what its proposer must show: that nobody was left out, that
 * a part is the sum of enough contributions, that nobody brings more than it can.
 */
#include "tests/lib/agree_hosts.h"

static const gsp_changes nothing;

/* Weights, sums, totals, roster and seals by the rules, of contributors and included that are there. */
static void add_up(const gsp_agree *a, gsp_proposal *p)
{
    const gsp_proposal *before = &a->certificate.proposal;
    uint32_t all = (1u << gsp_agree_roster(a)->n) - 1;
    gsp_proposal_weigh(&a->rules, before, p->contributor, p->n_contributors);
    for (uint32_t k = 0; k < p->n_parts; k++)
        p->part[k].weight =
            gsp_included_weight(p->contributor, p->n_contributors, p->part[k].included);
    gsp_proposal_totals(&a->rules, before, p, &p->tokens, &p->samples);
    gsp_rules_next(a, all, 0, p);
    sign_parts(a, p);
}

/* All n bring 10 tokens of 10 samples; the first part is the sum of all. */
static gsp_proposal all_bring(const gsp_agree *a)
{
    gsp_proposal p = {.lineage = a->lineage,
                      .version = 6,
                      .previous = a->previous,
                      .n_contributors = gsp_agree_roster(a)->n,
                      .n_parts = 3};
    for (uint8_t i = 0; i < p.n_contributors; i++)
        p.contributor[i] =
            (gsp_contributor){.member = i, .root = {{5, i}}, .tokens = 10, .samples = 10};
    p.part[0] = (gsp_part){.hash = {{6}}, .included = (1u << p.n_contributors) - 1};
    add_up(a, &p);
    return p;
}

static const char *wrong(const gsp_agree *a, const gsp_proposal *p)
{
    return gsp_proposal_invalid(&a->rules, &a->seals, &a->certificate.proposal, p, NULL);
}

/* ---- contributions ---- */

static void tokens_are_believed_within_samples(void **state)
{
    (void)state;
    static const gsp_proposal before;
    gsp_rules r;
    gsp_agree_defaults(&r);
    r.tokens_per_sample = 8;
    r.samples_max = 100;
    assert_null(gsp_contribution_wrong(&r, 80, 10));
    assert_null(gsp_contribution_wrong(&r, 1, 100));
    assert_non_null(gsp_contribution_wrong(&r, 81, 10));
    assert_non_null(gsp_contribution_wrong(&r, 1, 101));
    assert_non_null(gsp_contribution_wrong(&r, 0, 1));
    assert_non_null(gsp_contribution_wrong(&r, 1, 0));
    r.tokens_per_sample = r.samples_max = UINT64_MAX;
    assert_non_null(gsp_contribution_wrong(&r, GSP_TOKENS_MAX + 1, 1));
    assert_non_null(gsp_contribution_wrong(&r, 1, GSP_TOKENS_MAX + 1));
    assert_null(gsp_contribution_wrong(&r, GSP_TOKENS_MAX, GSP_TOKENS_MAX));

    r.tokens_per_sample = 8, r.samples_max = 100;
    gsp_contribution c = {.root = {{1}}, .tokens = 5000, .samples = 1000};
    gsp_contribution_clip(&r, &before, &c); /* an honest member says no more than is believed */
    assert_int_equal(c.samples, 100);
    assert_int_equal(c.tokens, 800);
    c.samples = 0;
    gsp_contribution_clip(&r, &before, &c);
    assert_true(gsp_hash_none(&c.root));
    assert_true(c.samples == 0 && c.tokens == 0);
}

static void a_certificate_with_too_many_tokens_is_refused(void **state)
{
    (void)state;
    open_pool(3);
    gsp_agree *a = &w.agree[1];
    a->rules.tokens_per_sample = 2;
    a->rules.samples_max = 1000;
    gsp_proposal p = all_bring(a);
    assert_null(wrong(a, &p));
    p.contributor[2].tokens = 21;
    add_up(a, &p);
    assert_non_null(wrong(a, &p));
    p.contributor[2].tokens = 20;
    add_up(a, &p);
    assert_null(wrong(a, &p));
    p.contributor[2].samples = 1001;
    add_up(a, &p);
    assert_non_null(wrong(a, &p));
    close_pool();
}

/* However many samples one claims, it moves the schedule like two of the others. */
static void nobody_makes_the_schedule_jump(void **state)
{
    (void)state;
    open_pool(3);
    gsp_agree *a = &w.agree[1];
    gsp_proposal p = all_bring(a);
    assert_int_equal(p.samples, 30);
    for (uint32_t i = 0; i < 3; i++)
        p.contributor[i].tokens = 1000;
    p.contributor[2].samples = (uint64_t)1 << 40;
    p.contributor[2].tokens = (uint64_t)1 << 40;
    add_up(a, &p);
    assert_int_equal(p.samples, 40);
    assert_int_equal(p.tokens, 5000);
    assert_null(wrong(a, &p));
    a->rules.summed = true; /* there each sample is leased, and counts exactly */
    p.contributor[2].samples = p.contributor[2].tokens = 70;
    add_up(a, &p);
    assert_int_equal(p.samples, 90);
    assert_int_equal(p.tokens, 3070);
    close_pool();
}

/* The totals before a version decide by which rules it counts, for all that take its certificate. */
static void sums_end_at_a_total(void **state)
{
    (void)state;
    open_pool(3);
    gsp_agree *a = &w.agree[1];
    gsp_proposal p = all_bring(a), *before = &a->certificate.proposal;
    const gsp_proposal first = p;
    a->rules.summed = true;
    a->rules.summed_samples = before->samples + 50;
    for (int k = 0; k < 2; k++, before->samples += 50) {
        bool sums = k == 0;
        p = first;
        for (uint32_t i = 0; i < 3; i++)
            p.contributor[i].tokens = i < 2 ? 1000 : 7000;
        p.contributor[2].samples = 70;
        add_up(a, &p);
        assert_int_equal(gsp_agree_sums(a), sums);
        assert_int_equal(p.contributor[2].weight, sums ? 7000 : 2000);
        assert_int_equal(p.samples, before->samples + (sums ? 90 : 40));
        assert_null(wrong(a, &p));
        p.contributor[2].weight = sums ? 2000 : 7000;
        assert_non_null(wrong(a, &p));
    }
    before->samples = a->rules.summed_samples - 1;
    assert_true(gsp_agree_sums(a));
    a->rules.summed = false;
    assert_false(gsp_agree_sums(a));
    close_pool();
}

/* Where pieces of a sum are clipped nobody's word counts: tokens are all that the samples have, and nobody
 * weighs more than two of the others. */
static void who_is_clipped_weighs_its_samples(void **state)
{
    (void)state;
    open_pool(3);
    gsp_agree *a = &w.agree[1];
    a->rules.summed = a->rules.robust = true;
    a->rules.tokens_per_sample = 2;
    a->rules.samples_max = 1000;
    gsp_contribution c = {.root = {{1}}, .tokens = 7, .samples = 70};
    gsp_contribution_clip(&a->rules, &a->certificate.proposal, &c);
    assert_int_equal(c.tokens, 140);
    gsp_proposal p = all_bring(a);
    assert_non_null(wrong(a, &p)); /* ten tokens of ten samples */
    for (uint32_t i = 0; i < 3; i++) {
        p.contributor[i].samples = i < 2 ? 10 : 70;
        p.contributor[i].tokens = 2 * p.contributor[i].samples;
    }
    add_up(a, &p);
    assert_null(wrong(a, &p));
    assert_int_equal(p.contributor[1].weight, 20);
    assert_int_equal(p.contributor[2].weight, 40);
    p.contributor[0].tokens--;
    add_up(a, &p);
    assert_non_null(wrong(a, &p));
    a->rules.robust = false;
    add_up(a, &p);
    assert_null(wrong(a, &p));
    close_pool();
}

static const gsp_rules clips = {.summed = true, .robust = true, .against_rounds = 8};

/* Seven lean so in both parts, each of `samples`; the counts that follow from `before`. */
static void lean_by(const gsp_rules *by, gsp_proposal *before, const int8_t lean[7],
                    uint64_t samples)
{
    gsp_proposal p = {.n_contributors = 7, .n_parts = 2};
    for (uint8_t i = 0; i < 7; i++) {
        p.contributor[i] = (gsp_contributor){.member = i, .samples = i == 5 ? samples : 32};
        for (uint32_t k = 0; k < 2; k++) {
            p.part[k].included = 127;
            p.part[k].lean[i] = lean[i];
        }
    }
    for (uint32_t i = 0; i < 7; i++)
        p.against[i] = gsp_proposal_against(by, before, &p, &before->next.member[i].key);
    memcpy(before->against, p.against, sizeof p.against);
}

static void lean_once(gsp_proposal *before, const int8_t lean[7], uint64_t samples)
{
    lean_by(&clips, before, lean, samples);
}

/* A member leans with the others in most steps: what does not is noticed within a few steps where
 * gradients are clear, later where they are noise, and forgotten as quickly. */
static void who_falls_behind_is_counted(void **state)
{
    (void)state;
    gsp_proposal before = {.next = {.n = 7}};
    for (uint8_t i = 0; i < 7; i++)
        before.next.member[i].key.byte[0] = i + 1;
    for (int k = 0; k < 6; k++)
        lean_once(&before, (int8_t[]){80, 82, 79, 81, 80, 45, -80}, 32);
    for (int i = 0; i < 6; i++)
        assert_int_equal(before.against[i], 0); /* half of what others lean is enough */
    assert_int_equal(before.against[6], 72);    /* 8 x 8 costs the weight */
    for (int k = 0; k < 20; k++)
        lean_once(&before, (int8_t[]){80, 82, 79, 81, 80, 25, -80}, 32);
    assert_true(before.against[5] >= 30);     /* a third is too little, */
    assert_int_equal(before.against[6], 128); /* the count has an end, */
    for (int k = 0; k < 60; k++)
        lean_once(&before, (int8_t[]){80, 82, 79, 81, 80, 30, 80}, 8);
    assert_int_equal(before.against[5], 0); /* unless of a quarter of the samples, */
    assert_int_equal(before.against[6], 0); /* and who comes back is heard again */
    for (int k = 0; k < 6; k++)
        lean_once(&before, (int8_t[]){30, -20, 9, -25, 28, 20, -12}, 32);
    for (int i = 0; i < 7; i++)
        assert_true(before.against[i] < 24); /* noise */
    uint8_t kept[7];
    memcpy(kept, before.against, sizeof kept);
    lean_once(&before, (int8_t[]){-5, -6, -7, -5, 30, 30, 30},
              32); /* nobody can say who is wrong */
    assert_memory_equal(before.against, kept, sizeof kept);
}

/* Noise leans to both sides, and what is sent again and again leans forward a little: neither leans
 * backwards eight times in a row. */
static void own_work_that_falls_behind_is_counted_too(void **state)
{
    (void)state;
    static const gsp_rules row = {.robust = true, .against_rounds = 8},
                           drifts = {.robust = true, .drifts = true, .against_rounds = 8};
    gsp_proposal before = {.next = {.n = 7}}, long_ago = before;
    for (uint8_t i = 0; i < 7; i++)
        before.next.member[i].key.byte[0] = long_ago.next.member[i].key.byte[0] = i + 1;
    for (int k = 0; k < 30; k++) {
        int8_t lean[7] = {60, 58, 61, 59, 60, 5, k % 2 ? 1 : -1};
        lean_by(&row, &long_ago, lean, 32);
        lean_by(&drifts, &before, lean, 32);
    }
    assert_true(long_ago.against[5] == 0 && long_ago.against[6] <= 1);
    gsp_contributor brought[7];
    for (uint8_t i = 0; i < 7; i++)
        brought[i] = (gsp_contributor){.member = i, .tokens = 10, .samples = 10};
    gsp_proposal_weigh(&row, &long_ago, brought, 7);
    for (int i = 0; i < 7; i++)
        assert_int_equal(brought[i].weight, 10);
    gsp_proposal_weigh(&drifts, &before, brought, 7);
    for (int i = 0; i < 7; i++)
        assert_int_equal(brought[i].weight, i < 5 ? 10 : 0);
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(gsp_proposal_mutes(&drifts, &before, i), i >= 5);
    before.against[0] = 63; /* of eight steps behind, not of eight rounds */
    gsp_proposal_weigh(&drifts, &before, brought, 7);
    assert_int_equal(brought[0].weight, 10);
}

static uint64_t lease_of_ten(void *context, uint64_t version, uint32_t n, uint32_t i)
{
    (void)context, (void)n;
    return version == 6 && i != 2 ? 10 : 0;
}

static void nobody_brings_more_than_it_was_leased(void **state)
{
    (void)state;
    open_pool(3);
    gsp_agree *a = &w.agree[1];
    a->rules.lease = lease_of_ten;
    gsp_proposal p = all_bring(a);
    assert_non_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0)); /* the third was leased nothing */
    p.n_contributors = 2;
    memset(&p.contributor[2], 0, sizeof p.contributor[2]);
    p.part[0].included = 3;
    add_up(a, &p);
    assert_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    p.contributor[0].samples = 11;
    add_up(a, &p);
    assert_non_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    close_pool();
}

/* ---- parts ---- */

static void a_part_of_few_decides_nothing(void **state)
{
    (void)state;
    open_pool(4);
    gsp_agree *a = &w.agree[1];
    gsp_proposal p = all_bring(a);
    assert_null(wrong(a, &p));
    p.part[0].included = 1;
    add_up(a, &p);
    assert_non_null(wrong(a, &p));
    p.part[0].included = 7;
    add_up(a, &p);
    assert_null(wrong(a, &p));
    a->rules.trust = GSP_STRANGERS;
    assert_null(wrong(a, &p));
    p.part[0].included = 3;
    add_up(a, &p);
    assert_non_null(wrong(a, &p));
    close_pool();
}

/* ---- certificates from outside ---- */

/* A quorum voted for it, and yet it breaks the rules: nobody takes it. */
static gsp_message certify(const gsp_agree *a, const gsp_proposal *p)
{
    gsp_message m = from_host(0, GSP_CERTIFY, 0);
    gsp_certificate *c = &m.as.certify.certificate;
    m.version = 6;
    m.ballot = 1;
    c->proposal = *p;
    c->ballot = 1;
    for (uint8_t i = 0; i < gsp_agree_roster(a)->n; i++) {
        gsp_seals seals = seals_of(i);
        gsp_statement vote = {.kind = GSP_SAYS_VOTE,
                              .lineage = a->lineage,
                              .version = 6,
                              .ballot = 1,
                              .signer = member(i)};
        gsp_proposal_hash(&seals, p, &vote.subject);
        gsp_statement_seal(&seals, &vote);
        c->vote[c->n_votes].member = i;
        memcpy(c->vote[c->n_votes++].seal, vote.seal, sizeof vote.seal);
    }
    return m;
}

static void a_certificate_is_judged_like_a_proposal(void **state)
{
    (void)state;
    open_pool(3);
    gsp_agree *a = &w.agree[1];
    gsp_proposal right = all_bring(a), p;
    static gsp_message m;
    p = right, p.tokens += 5;
    m = certify(a, &p);
    tell(1, &m);
    p = right, p.contributor[1].weight += 5;
    m = certify(a, &p);
    tell(1, &m);
    p = right, p.part[0].seal[0] ^= 1;
    m = certify(a, &p);
    tell(1, &m);
    p = right, p.missed[1] = 2;
    m = certify(a, &p);
    tell(1, &m);
    p = right, p.against[1] = 2;
    m = certify(a, &p);
    tell(1, &m);
    p = right, p.next.n = 0;
    m = certify(a, &p);
    tell(1, &m);
    p = right, p.next.n = 7; /* three were there, and four come at once */
    for (uint32_t i = 3; i < 7; i++)
        p.next.member[i] = member(i + 10);
    m = certify(a, &p);
    tell(1, &m);
    assert_int_equal(a->certified, 5);
    assert_int_equal(a->stats.refused, 7);
    m = certify(a, &right);
    tell(1, &m);
    assert_int_equal(a->certified, 6);
    close_pool();
}

/* ---- leaving others out ---- */

static gsp_message sealed(gsp_message *m)
{
    gsp_seals seals = seals_of(m->from.key.byte[0] - 1u);
    gsp_propose *p = &m->as.propose;
    gsp_proposal_hash(&seals, &p->proposal, &p->statement.subject);
    gsp_statement_seal(&seals, &p->statement);
    return *m;
}

/* What the first proposer would have said, and nobody heard. */
static gsp_message first_proposal(uint32_t proposer)
{
    gsp_message m;
    w.dropped = GSP_PROPOSE;
    while (w.agree[proposer].phase != GSP_DECIDE && w.now_ns < 60000 * MS)
        run_ms(STEP_MS);
    assert_int_equal(w.agree[proposer].phase, GSP_DECIDE);
    w.dropped = 0;
    memcpy(&m, &w.agree[proposer].pending, sizeof m);
    return m;
}

static void a_proposer_leaves_nobody_out(void **state)
{
    (void)state;
    static gsp_message right, m;
    open_pool(3);
    uint32_t proposer = first_proposer(), voter = (proposer + 1) % 3;
    right = first_proposal(proposer);
    assert_int_equal(right.as.propose.proposal.n_contributors, 3);
    m = right;
    gsp_proposal *p = &m.as.propose.proposal;
    p->n_contributors = 2; /* the third promised to bring something */
    memset(&p->contributor[2], 0, sizeof p->contributor[2]);
    for (uint32_t k = 0; k < p->n_parts; k++) {
        memset(&p->part[k], 0, sizeof p->part[k]);
    }
    add_up(&w.agree[voter], p);
    m = sealed(&m);
    assert_null(wrong(&w.agree[voter], p));
    assert_non_null(gsp_proof_ballot_wrong(&w.agree[voter], &m.as.propose, m.ballot));
    assert_null(gsp_proof_ballot_wrong(&w.agree[voter], &right.as.propose, right.ballot));
    uint64_t refused = w.agree[voter].stats.refused;
    tell(voter, &m);
    assert_int_equal(w.agree[voter].stats.refused, refused + 1);
    tell(voter, &right);
    run_ms(20000);
    assert_true(w.agree[voter].certified >= 6);
    close_pool();
}

/* Who brings what nobody believes has promised nothing, and holds up nobody. */
static void an_unbelievable_promise_is_none(void **state)
{
    (void)state;
    open_pool(3);
    for (uint32_t i = 0; i < 3; i++)
        w.agree[i].rules.samples_max = 11; /* the third brings 12, and says 11 */
    run_ms(20000);
    const gsp_proposal *p = &w.agree[0].certificate.proposal;
    assert_true(w.agree[0].certified >= 7);
    assert_int_equal(p->contributor[2].samples, 11);
    w.agree[2].rules.samples_max = UINT64_MAX; /* the third becomes a liar */
    uint64_t before = w.agree[0].certified, began_ns = w.now_ns;
    while (w.agree[0].certified < before + 6 && w.now_ns < began_ns + 90000 * MS)
        run_ms(STEP_MS);
    p = &w.agree[0].certificate.proposal;
    assert_int_equal(w.agree[0].certified, before + 6);
    assert_int_equal(p->n_contributors, 2);
    close_pool();
}

/* ---- as many silent strangers as are survived ---- */

/* One of four is away, whether or not it proposes or owns parts: versions go on. */
static void a_silent_stranger_stops_nothing(void **state)
{
    (void)state;
    for (uint32_t off = 0; off < 4; off++) {
        open_pool(4);
        for (uint32_t i = 0; i < 4; i++)
            w.agree[i].rules.trust = GSP_STRANGERS;
        run_ms(6000);
        uint64_t before = w.agree[(off + 1) % 4].certified;
        w.off[off] = true; /* it keeps its link, and says nothing */
        run_ms(60000);
        const gsp_proposal *p = &w.agree[(off + 1) % 4].certificate.proposal;
        assert_true(p->version >= before + 5);
        assert_int_equal(p->n_contributors, 3);
        for (uint32_t k = 0; k < p->n_parts; k++)
            assert_int_equal(p->part[k].included, 7); /* its parts went to others */
        close_pool();
    }
}

/* It promises, and then sends nothing of what it promised. */
static void a_contribution_that_never_comes_is_left_out(void **state)
{
    (void)state;
    open_pool(4);
    for (uint32_t i = 0; i < 4; i++)
        w.agree[i].rules.trust = GSP_STRANGERS;
    w.mute = 2;
    run_ms(60000);
    const gsp_proposal *p = &w.agree[0].certificate.proposal;
    assert_true(p->version >= 8);
    assert_int_equal(p->n_contributors, 4);
    uint32_t changed = 0;
    for (uint32_t k = 0; k < p->n_parts; k++) {
        changed += p->part[k].included != 0;
        if (p->part[k].owner != 2)
            assert_true(p->part[k].included == 0 || p->part[k].included == 11);
    }
    assert_true(changed >= 2);
    close_pool();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_believed_within_samples),
        cmocka_unit_test(a_certificate_with_too_many_tokens_is_refused),
        cmocka_unit_test(nobody_makes_the_schedule_jump),
        cmocka_unit_test(sums_end_at_a_total),
        cmocka_unit_test(who_is_clipped_weighs_its_samples),
        cmocka_unit_test(who_falls_behind_is_counted),
        cmocka_unit_test(own_work_that_falls_behind_is_counted_too),
        cmocka_unit_test(nobody_brings_more_than_it_was_leased),
        cmocka_unit_test(a_part_of_few_decides_nothing),
        cmocka_unit_test(a_certificate_is_judged_like_a_proposal),
        cmocka_unit_test(a_proposer_leaves_nobody_out),
        cmocka_unit_test(an_unbelievable_promise_is_none),
        cmocka_unit_test(a_silent_stranger_stops_nothing),
        cmocka_unit_test(a_contribution_that_never_comes_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
