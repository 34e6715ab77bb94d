/*
 * What an owner can be held to: a claim is looked at only if all that it states can be, and only if
 * its owner is somebody whom this member knows. Whoever signs nonsense, floods others with it, or
 * makes up keys, costs nobody more than itself.
 */
#include "tests/lib/agree_hosts.h"

#include "gossip/sum/mix.h"

#include <math.h>

enum { N_PARTS = 3, TWO = 2 };

static const gsp_hash LINEAGE = {{7}};

/* Signed by `signer`, whose seal is the test's own. */
static void sign(gsp_claim *c, const gsp_hash *lineage, const gsp_key *signer)
{
    gsp_agree as = {.self = {.key = *signer}};
    gsp_seals seals = {.context = &as, .hash = hash, .seal = seal, .verify = verify};
    gsp_hash contributors;
    gsp_statement said;
    gsp_contributors_hash(&seals, c->contributor, c->n_contributors & 31, &contributors);
    gsp_reduced_statement(&seals, lineage, c->version, c->number, &c->part, &contributors,
                          &c->owner, &said);
    gsp_statement_seal(&seals, &said);
    memcpy(c->part.seal, said.seal, sizeof said.seal);
}

static gsp_claim a_claim(gsp_member owner)
{
    gsp_claim c = {.version = 5, .owner = owner, .number = 1, .n_contributors = TWO};
    for (uint8_t i = 0; i < TWO; i++)
        c.contributor[i] = (gsp_contributor){
            .member = i, .root = {{(uint8_t)(i + 1)}}, .tokens = 10, .samples = 2, .weight = 10};
    c.part = (gsp_part){.hash = {{9}}, .included = 3, .weight = 20, .norm = 1, .lean = {5, -5}};
    return c;
}

static const char *wrong(gsp_claim c)
{
    gsp_seals seals = seals_of(0);
    sign(&c, &LINEAGE, &c.owner.key);
    return gsp_claim_wrong(&seals, &LINEAGE, N_PARTS, &c);
}

static void a_claim_states_what_can_be(void **state)
{
    (void)state;
    const gsp_claim right = a_claim(member(1));
    gsp_claim c = right;
    gsp_seals seals = seals_of(0);
    assert_null(wrong(right));
    assert_non_null(gsp_claim_wrong(&seals, &LINEAGE, N_PARTS, &right)); /* not signed */
    c.contributor[1].weight = 0, c.part.weight = 10;
    assert_null(wrong(c)); /* muted: it leant backwards */
    c = right, c.contributor[0].weight = UINT64_MAX, c.contributor[1].weight = 3, c.part.weight = 2;
    assert_non_null(wrong(c)); /* the sum wraps */
    c = right, c.contributor[0].weight = 11, c.part.weight = 21;
    assert_non_null(wrong(c)); /* more than its tokens */
    c = right, c.contributor[0].tokens = ((uint64_t)1 << 48) + 1;
    assert_non_null(wrong(c));
    c = right, c.contributor[0].tokens = 0, c.contributor[0].weight = 0, c.part.weight = 10;
    assert_non_null(wrong(c));
    c = right, c.contributor[1].samples = UINT64_MAX;
    assert_non_null(wrong(c));
    c = right, c.contributor[1].member = 0;
    assert_non_null(wrong(c)); /* twice the same */
    c = right, c.contributor[1].member = GSP_MEMBERS_MAX;
    assert_non_null(wrong(c));
    c = right, memset(&c.contributor[0].root, 0, sizeof c.contributor[0].root);
    assert_non_null(wrong(c));
    c = right, c.part.weight = 19;
    assert_non_null(wrong(c));
    c = right, c.contributor[0].weight = c.contributor[1].weight = 0, c.part.weight = 0;
    assert_non_null(wrong(c));
    c = right, c.part.norm = NAN;
    assert_non_null(wrong(c));
    c = right, c.part.norm = -1;
    assert_non_null(wrong(c));
    c = right, c.part.norm = INFINITY;
    assert_non_null(wrong(c));
    c = right, c.part.included = 1, c.part.weight = 10;
    assert_non_null(wrong(c)); /* a lean of somebody who is not included */
    c = right, c.part.included = 4;
    assert_non_null(wrong(c));
    c = right, c.number = N_PARTS;
    assert_non_null(wrong(c));
    c = right, c.version = 0;
    assert_non_null(wrong(c));
    c = right, c.n_contributors = 0;
    assert_non_null(wrong(c));
    c = right, c.n_contributors = GSP_MEMBERS_MAX + 1;
    assert_non_null(wrong(c));
    c = right, c.owner.incarnation = 0;
    assert_non_null(wrong(c));
    c = right, memset(&c.part.hash, 0, sizeof c.part.hash);
    assert_non_null(wrong(c));
}

/* A claim that was never checked reaches no assertion: nothing comes out. */
static void sums_refuse_weights_beyond_belief(void **state)
{
    (void)state;
    float a[GSP_INT8_BLOCK] = {1}, b[GSP_INT8_BLOCK] = {2}, out[GSP_INT8_BLOCK];
    const void *input[TWO] = {a, b};
    for (int robust = 0; robust < 2; robust++) {
        gsp_claim c = a_claim(member(1));
        gsp_mix mix;
        gsp_part made;
        atom_status st;
        assert_int_equal(gsp_mix_open(&mix, GSP_CODEC_FP32, robust, GSP_INT8_BLOCK), ATOM_OK);
        assert_true(
            gsp_mix_part(&mix, 1, c.contributor, TWO, input, 3, GSP_INT8_BLOCK, out, &made, &st));
        c.contributor[0].weight = UINT64_MAX, c.contributor[1].weight = 3;
        assert_false(
            gsp_mix_part(&mix, 1, c.contributor, TWO, input, 3, GSP_INT8_BLOCK, out, &made, &st));
        assert_int_equal(st, ATOM_OK);
        c.contributor[0].weight = UINT64_MAX, c.contributor[1].weight = 1;
        assert_false(
            gsp_mix_part(&mix, 1, c.contributor, TWO, input, 3, GSP_INT8_BLOCK, out, &made, &st));
        c.contributor[0].weight = c.contributor[1].weight = 0;
        assert_false(
            gsp_mix_part(&mix, 1, c.contributor, TWO, input, 3, GSP_INT8_BLOCK, out, &made, &st));
        gsp_mix_close(&mix);
    }
}

/* ---- what a member looks into ---- */

static void accuse(uint32_t from, gsp_claim c)
{
    gsp_message m = from_host(from, GSP_ACCUSE, 0);
    m.version = 0;
    sign(&c, &w.agree[0].lineage, &c.owner.key);
    m.as.accuse.claim = c;
    tell(0, &m);
}

static void nobody_unknown_is_accused(void **state)
{
    (void)state;
    open_pool(4);
    run_ms(2000);
    accuse(1, a_claim((gsp_member){.key = {{0x77}}, .incarnation = 1}));
    assert_int_equal(w.agree[0].stats.audits, 0);
    assert_int_equal(count(0, GSP_DO_AUDIT, 0, 5), 0);
    gsp_claim c = a_claim(member(2));
    c.contributor[0].weight = UINT64_MAX, c.contributor[1].weight = 3, c.part.weight = 2;
    accuse(1, c);
    assert_int_equal(w.agree[0].stats.audits, 0);
    accuse(3, a_claim(member(2)));
    assert_int_equal(w.agree[0].stats.audits, 1);
    close_pool();
}

/* Two votes of one key in one ballot. */
static gsp_message two_votes(uint32_t from, const gsp_key *key, uint32_t ballot)
{
    gsp_agree as = {.self = {.key = *key}};
    gsp_seals seals = {.context = &as, .hash = hash, .seal = seal, .verify = verify};
    gsp_message m = from_host(from, GSP_EVIDENCE, 0);
    m.version = 0;
    m.as.evidence.first = (gsp_statement){.kind = GSP_SAYS_VOTE,
                                          .lineage = w.agree[0].lineage,
                                          .version = 6,
                                          .ballot = ballot,
                                          .subject = {{1}},
                                          .signer = {.key = *key, .incarnation = 1}};
    m.as.evidence.second = m.as.evidence.first;
    m.as.evidence.second.subject.byte[0] = 2;
    gsp_statement_seal(&seals, &m.as.evidence.first);
    gsp_statement_seal(&seals, &m.as.evidence.second);
    return m;
}

static void bans_are_of_members_and_stay(void **state)
{
    (void)state;
    open_pool(4);
    run_ms(2000);
    gsp_key liar = member(2).key;
    gsp_message m = two_votes(1, &liar, 1);
    tell(0, &m);
    assert_true(gsp_people_banned(&w.agree[0], &liar));
    assert_int_equal(w.agree[0].stats.evidence, 1);
    for (uint32_t k = 0; k < 1000; k++) {
        gsp_key key = {{0x80, (uint8_t)k, (uint8_t)(k >> 8)}};
        m = two_votes(1, &key, 1);
        w.now_ns += 100 * MS;
        tell(0, &m);
    }
    assert_int_equal(w.agree[0].stats.evidence, 1); /* nobody knows those keys */
    assert_true(gsp_people_banned(&w.agree[0], &liar));
    close_pool();
}

/* Signatures take time: a sender whose evidence proves nothing is soon not listened to. */
static void evidence_that_proves_nothing_costs_its_sender(void **state)
{
    (void)state;
    open_pool(4);
    run_ms(2000);
    gsp_key honest = member(2).key, liar = member(3).key;
    gsp_message m = two_votes(1, &honest, 1);
    m.as.evidence.second = m.as.evidence.first;
    for (uint32_t k = 0; k < 8; k++)
        tell(0, &m);
    assert_int_equal(w.agree[0].n_banned, 0);
    m = two_votes(1, &liar, 1);
    tell(0, &m);
    assert_int_equal(w.agree[0].n_banned, 0); /* it has said too much before */
    m = two_votes(2, &liar, 1);
    tell(0, &m);
    assert_true(gsp_people_banned(&w.agree[0], &liar));
    close_pool();
}

/* The table of bans is full of members of long ago: whoever is here now goes last. */
static void a_full_table_keeps_who_is_here(void **state)
{
    (void)state;
    open_pool(4);
    gsp_key liar = member(2).key;
    gsp_people_ban(&w.agree[0], &liar);
    for (uint32_t k = 0; k < 3 * GSP_BANNED_MAX; k++) {
        gsp_key key = {{0x80, (uint8_t)k, (uint8_t)(k >> 8)}};
        gsp_people_ban(&w.agree[0], &key);
        assert_true(gsp_people_banned(&w.agree[0], &key));
    }
    assert_true(gsp_people_banned(&w.agree[0], &liar));
    assert_true(w.agree[0].left >> 2 & 1);
    close_pool();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_claim_states_what_can_be),
        cmocka_unit_test(sums_refuse_weights_beyond_belief),
        cmocka_unit_test(nobody_unknown_is_accused),
        cmocka_unit_test(bans_are_of_members_and_stay),
        cmocka_unit_test(evidence_that_proves_nothing_costs_its_sender),
        cmocka_unit_test(a_full_table_keeps_who_is_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
