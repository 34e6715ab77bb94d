/*
 * What members prove to each other with real signatures: that a vote was for something that was
 * proposed, and that a reset is the owner's.
 */
#include "gossip/agree/agree_inner.h"
#include "gossip/trust/identity.h"
#include "gossip/trust/seals.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { N = 3, PARTS = 3, VERSION = 6 };

typedef struct scene {
    gsp_identity identity[N];
    gsp_agree agree; /* member 0's */
    gsp_saved saved;
} scene;

static gsp_member member(const scene *s, uint32_t i)
{
    gsp_member m = {.incarnation = 1};
    memcpy(m.key.byte, s->identity[i].public_key, sizeof m.key.byte);
    return m;
}

static void open_scene(scene *s)
{
    gsp_rules rules;
    gsp_rates rates = {0};
    memset(s, 0, sizeof *s);
    for (uint32_t i = 0; i < N; i++) {
        uint8_t seed[GSP_SEED_BYTES] = {(uint8_t)(i + 1)};
        assert_int_equal(gsp_identity_from_seed(seed, &s->identity[i]), ATOM_OK);
    }
    for (uint32_t i = 0; i < N; i++) /* a roster ascends by key */
        for (uint32_t k = i + 1; k < N; k++) {
            gsp_member a = member(s, i), b = member(s, k);
            gsp_identity x = s->identity[i];
            if (gsp_key_compare(&a.key, &b.key) > 0) {
                s->identity[i] = s->identity[k];
                s->identity[k] = x;
            }
        }
    gsp_agree_defaults(&rules);
    rules.n_parts = PARTS;
    rules.owner = member(s, 0).key;
    gsp_seals seals = gsp_seals_real(&s->identity[0]);
    gsp_proposal *p = &s->saved.certificate.proposal;
    s->saved.genesis.founder = member(s, 0);
    s->saved.has_certificate = true;
    gsp_genesis_hash(&seals, &s->saved.genesis, &p->lineage);
    p->version = VERSION - 1;
    p->tokens = 1000;
    p->next.n = N;
    for (uint32_t i = 0; i < N; i++)
        p->next.member[i] = member(s, i);
    gsp_member self = member(s, 0);
    gsp_agree_open(&s->agree, &rules, &seals, &self, &rates, &s->saved, 1);
}

/* ---- votes ---- */

static gsp_statement says(scene *s, uint32_t i, gsp_statement_kind kind, uint32_t ballot,
                          uint32_t voted, const gsp_hash *subject)
{
    gsp_seals seals = gsp_seals_real(&s->identity[i]);
    gsp_statement out = {.kind = (uint8_t)kind,
                         .lineage = s->agree.lineage,
                         .version = VERSION,
                         .ballot = ballot,
                         .voted = voted,
                         .signer = member(s, i)};
    if (kind != GSP_SAYS_PROMISE || voted)
        out.subject = *subject;
    gsp_statement_seal(&seals, &out);
    return out;
}

/* A ballot that proposes something that changes nothing; member 1 tells of a vote. */
static void propose(scene *s, gsp_propose *out, uint32_t ballot, uint32_t voted,
                    const gsp_proof *proof)
{
    const gsp_agree *a = &s->agree;
    memset(out, 0, sizeof *out);
    out->proposal = (gsp_proposal){.lineage = a->lineage,
                                   .version = VERSION,
                                   .previous = a->previous,
                                   .tokens = 1000,
                                   .n_parts = PARTS};
    gsp_rules_next(a, 3, 0, &out->proposal);
    gsp_hash subject;
    gsp_proposal_hash(&a->seals, &out->proposal, &subject);
    out->statement = says(s, gsp_view_proposer(a, ballot), GSP_SAYS_PROPOSE, ballot, 0, &subject);
    out->n_promises = 2;
    out->promise[0] = says(s, 0, GSP_SAYS_PROMISE, ballot, 0, &subject);
    out->promise[1] = says(s, 1, GSP_SAYS_PROMISE, ballot, voted, &subject);
    if (proof)
        out->proof = *proof;
}

/* The echoes of members 0 and 2. */
static void echoed(scene *s, const gsp_propose *p, uint32_t ballot, gsp_proof *out)
{
    memset(out, 0, sizeof *out);
    out->n = 2;
    out->echo[0] = says(s, 0, GSP_SAYS_ECHO, ballot, 0, &p->statement.subject);
    out->echo[1] = says(s, 2, GSP_SAYS_ECHO, ballot, 0, &p->statement.subject);
}

static const char *wrong(const scene *s, const gsp_propose *p, uint32_t voted,
                         const gsp_proof *proof)
{
    return gsp_proof_wrong(&s->agree, &p->proposal, &p->statement.subject, voted, proof);
}

static void a_vote_shows_what_a_quorum_echoed(void **unused)
{
    (void)unused;
    static scene s;
    static gsp_propose one, two;
    static gsp_proof right, p;
    open_scene(&s);
    propose(&s, &one, 1, 0, NULL);
    assert_null(gsp_proof_ballot_wrong(&s.agree, &one, 1));
    echoed(&s, &one, 1, &right);
    propose(&s, &two, 4, 1, &right);
    assert_null(gsp_proof_ballot_wrong(&s.agree, &two, 4));
    assert_null(wrong(&s, &one, 1, &right));
    assert_non_null(wrong(&s, &one, 2, &right)); /* another ballot */
    p = right, p.n = 0;
    assert_non_null(wrong(&s, &one, 1, &p));
    p = right, p.n = 1; /* no quorum */
    assert_non_null(wrong(&s, &one, 1, &p));
    p = right, p.echo[1] = p.echo[0]; /* one member twice */
    assert_non_null(wrong(&s, &one, 1, &p));
    p = right, p.echo[1].seal[0]++;
    assert_non_null(wrong(&s, &one, 1, &p));
    p = right, p.echo[1] = says(&s, 2, GSP_SAYS_VOTE, 1, 0, &one.statement.subject);
    assert_non_null(wrong(&s, &one, 1, &p));
    gsp_hash other = {{9}}; /* echoes of something else */
    p = right, p.echo[1] = says(&s, 2, GSP_SAYS_ECHO, 1, 0, &other);
    assert_non_null(wrong(&s, &one, 1, &p));
    p = right, p.echo[0].signer.incarnation++;
    assert_non_null(wrong(&s, &one, 1, &p));
    one.proposal.tokens++; /* what is echoed must be right by itself, too */
    gsp_proposal_hash(&s.agree.seals, &one.proposal, &one.statement.subject);
    echoed(&s, &one, 1, &p);
    assert_non_null(wrong(&s, &one, 1, &p));
    two.proof.n = 0; /* a ballot that tells of a vote and shows nothing */
    assert_non_null(gsp_proof_ballot_wrong(&s.agree, &two, 4));
    propose(&s, &one, 1, 0, &right); /* and one that shows what nobody told of */
    assert_non_null(gsp_proof_ballot_wrong(&s.agree, &one, 1));
}

/* A vote of an early ballot is proven by as little as one of the ballot before, however many ballots
 * lie between. */
static void a_proof_does_not_grow(void **unused)
{
    (void)unused;
    static scene s;
    static gsp_propose said;
    static gsp_proof proof;
    open_scene(&s);
    for (uint32_t ballot = 1; ballot <= 40; ballot++) {
        propose(&s, &said, ballot, ballot - 1, ballot > 1 ? &proof : NULL);
        assert_null(gsp_proof_ballot_wrong(&s.agree, &said, ballot));
        echoed(&s, &said, ballot, &proof);
        assert_null(wrong(&s, &said, ballot, &proof));
    }
}

/* ---- resets ---- */

static bool right(scene *s, const gsp_genesis *g, uint32_t founder)
{
    gsp_genesis whole = *g;
    gsp_seals seals = gsp_seals_real(&s->identity[founder]);
    gsp_hash id;
    whole.founder = member(s, founder);
    gsp_genesis_hash(&seals, &whole, &id);
    seals.seal(seals.context, id.byte, sizeof id.byte, whole.seal);
    return gsp_genesis_wrong(&seals, &s->agree.rules.owner, &whole) == NULL;
}

/* Member 0 is the owner. */
static void only_the_owner_orders_a_reset(void **unused)
{
    (void)unused;
    static scene s;
    open_scene(&s);
    gsp_seals owner = gsp_seals_real(&s.identity[0]), other = gsp_seals_real(&s.identity[1]);
    gsp_genesis g = {.pool = {{7}}, .generation = 3, .parent = {{5}}, .version = 9};
    assert_true(right(&s, &g, 1)); /* a fork */
    g.reset = 2;
    assert_false(right(&s, &g, 0)); /* nobody ordered it */
    gsp_order_seal(&other, &g);
    assert_false(right(&s, &g, 1));
    gsp_order_seal(&owner, &g);
    assert_true(right(&s, &g, 0));
    g.generation = 4;
    g.parent.byte[0] = 6;
    g.version = 12;
    assert_true(right(&s, &g, 1)); /* a fork of the reset */
    g.reset = 3;
    assert_false(right(&s, &g, 1)); /* an old order, used again */
    g.reset = 2;
    g.pool.byte[0]++;
    assert_false(right(&s, &g, 1)); /* for another pool */
    g.pool.byte[0]--;
    g.order.version++;
    assert_false(right(&s, &g, 1)); /* after another version */
    g.order.version--;
    assert_true(right(&s, &g, 1));
    g.generation = 0;
    assert_false(right(&s, &g, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_vote_shows_what_a_quorum_echoed),
        cmocka_unit_test(a_proof_does_not_grow),
        cmocka_unit_test(only_the_owner_orders_a_reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
