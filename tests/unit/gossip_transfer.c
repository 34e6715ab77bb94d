/*
 * The parts of a transfer that need no members: trees of any size and their proofs; whom a joiner
 * believes, with liars in the minority, in rosters of their own, and after a restart; files of what
 * has come, cut and damaged anywhere.
 */
#include "gossip/member/transfer.h"

#include "gossip/agree/signed.h"
#include "gossip/sum/merkle.h"
#include "gossip/trust/seals.h"
#include "tests/lib/gossip_pool.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { PEERS = 7, FRAGMENTS = 3 };

static test_pool pool;
static gsp_seals seals[PEERS];
static gsp_witness *witness[PEERS];
static uint64_t n_floats[FRAGMENTS] = {1000, 300000, 0};

/* ---- trees ---- */

static void trees_prove_every_leaf(void **unused)
{
    (void)unused;
    for (uint32_t n = 1; n < 700; n += n < 20 ? 1 : 61) {
        gsp_tree t;
        gsp_hash path[GSP_STATE_PATH_MAX], other = {{1}};
        test_must(gsp_tree_open(&t, n));
        for (uint32_t k = 0; k < n; k++)
            gsp_merkle_leaf(k, &k, sizeof k, &t.node[k]);
        gsp_tree_build(&t);
        gsp_hash root = gsp_tree_root(&t), same;
        if (n <= GSP_PARTS_MAX) { /* the same tree as for parts */
            gsp_merkle_root(t.node, n, &same);
            assert_memory_equal(&root, &same, sizeof root);
        }
        for (uint32_t k = 0; k < n; k++) {
            uint32_t steps = gsp_tree_path(&t, k, path);
            assert_true(gsp_tree_check(&root, n, k, &t.node[k], path, steps));
            assert_false(gsp_tree_check(&root, n, k, &other, path, steps));
            assert_false(
                gsp_tree_check(&root, n, n > 1 ? (k + 1) % n : 1, &t.node[k], path, steps));
            assert_false(gsp_tree_check(&root, n, k, &t.node[k], path, steps + 1));
            if (steps) {
                assert_false(gsp_tree_check(&root, n, k, &t.node[k], path, steps - 1));
                path[steps - 1].byte[7] ^= 1;
                assert_false(gsp_tree_check(&root, n, k, &t.node[k], path, steps));
            }
        }
        assert_false(gsp_tree_check(&root, 0, 0, &root, path, 0));
        assert_false(gsp_tree_check(&root, UINT64_MAX, 0, &root, path, 0));
        gsp_tree_close(&t);
    }
    assert_int_equal(gsp_chunks(0), 0);
    assert_int_equal(gsp_chunks(GSP_CHUNK_FLOATS), 1);
    assert_int_equal(gsp_chunk_floats(GSP_CHUNK_FLOATS + 3, 1), 3);
}

static void versions_belong_to_fragments(void **unused)
{
    (void)unused;
    for (uint64_t v = 0; v < 40; v++)
        for (uint32_t n = 1; n < 9; n++)
            for (uint32_t f = 0; f < n; f++) {
                uint64_t right = 0;
                for (uint64_t w = 1; w <= v; w++)
                    right = w % n == f ? w : right;
                assert_int_equal(gsp_state_version(v, f, n), right);
            }
}

/* ---- whom to believe ---- */

static gsp_genesis genesis;
static gsp_state_roots roots;

static gsp_member member(unsigned i)
{
    gsp_member m = {.incarnation = 1};
    memcpy(m.key.byte, pool.member[i].public_key, sizeof m.key.byte);
    return m;
}

static void roster_of(gsp_roster *r, unsigned first, unsigned n)
{
    memset(r, 0, sizeof *r);
    for (unsigned i = first; i < first + n; i++) {
        gsp_member m = member(i);
        uint32_t at = r->n++;
        for (; at > 0 && gsp_key_compare(&r->member[at - 1].key, &m.key) > 0; at--)
            r->member[at] = r->member[at - 1];
        r->member[at] = m;
    }
}

static bool nobody_votes;

/* Signed by all of its own roster, as if that had been the voters' too. */
static void vote_all(gsp_certificate *c)
{
    const gsp_roster *voters = &c->proposal.next;
    gsp_statement vote = {.kind = GSP_SAYS_VOTE,
                          .lineage = c->proposal.lineage,
                          .version = c->proposal.version,
                          .ballot = c->ballot = 1};
    gsp_proposal_hash(&seals[0], &c->proposal, &vote.subject);
    c->n_votes = nobody_votes ? 0 : voters->n;
    for (uint32_t k = 0; k < c->n_votes; k++) {
        uint32_t i = 0;
        while (memcmp(pool.member[i].public_key, voters->member[k].key.byte, GSP_KEY_BYTES) != 0)
            i++;
        vote.signer = voters->member[k];
        gsp_statement_seal(&seals[i], &vote);
        c->vote[k].member = (uint8_t)k;
        memcpy(c->vote[k].seal, vote.seal, sizeof vote.seal);
    }
}

/* What member i answers at a version with a roster of `n` from `first`; salt: its anchor. */
static void answer(unsigned i, uint64_t version, unsigned first, unsigned n, uint8_t salt)
{
    gsp_member who = member(i);
    memset(&roots, 0, sizeof roots);
    roots.genesis = genesis;
    roots.has_certificate = version > 0;
    gsp_proposal *p = &roots.certificate.proposal;
    if (version) {
        gsp_genesis_hash(&seals[0], &genesis, &p->lineage);
        p->version = version;
        p->tokens = version;
        roster_of(&p->next, first, n);
        vote_all(&roots.certificate);
    }
    roots.n_fragments = FRAGMENTS;
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        roots.fragment[f].version = gsp_state_version(version, f, FRAGMENTS);
        roots.fragment[f].n_floats = n_floats[f];
        if (n_floats[f]) {
            memset(&roots.fragment[f].root, (int)roots.fragment[f].version + 1, GSP_HASH_BYTES);
            roots.fragment[f].root.byte[0] = salt;
        }
    }
    gsp_roots_seal(&roots, &seals[i], &who, &pool.member[i]);
    assert_true(gsp_roots_check(&roots, &seals[0], &who));
    gsp_witness_hear(witness[i], &seals[0], &who, &roots);
}

static void begin(void)
{
    test_must(gsp_crypto_start());
    test_pool_make(&pool, 3);
    memset(&genesis, 0, sizeof genesis);
    genesis.founder = member(0);
    for (unsigned i = 0; i < PEERS; i++) {
        seals[i] = gsp_seals_real(&pool.member[i]);
        witness[i] = atom_alloc(1, sizeof *witness[i]);
        assert_non_null(witness[i]);
    }
}

static void end(void)
{
    for (unsigned i = 0; i < PEERS; i++)
        atom_free(witness[i]);
}

static gsp_plan plan;

/* A chain that ends at a version, with a roster of n from `first`. */
static gsp_chain chain_to(uint64_t version, unsigned first, unsigned n)
{
    gsp_chain chain = {.n = 1, .version = version};
    gsp_genesis_hash(&seals[0], &genesis, &chain.lineage);
    chain.newest = chain.lineage;
    roster_of(&chain.roster, first, n);
    chain.voters = chain.roster;
    return chain;
}

static bool choose_by(unsigned n, const gsp_chain *chain)
{
    const gsp_chain_terms terms = {.seals = &seals[0], .trust = GSP_FRIENDS};
    for (unsigned i = 0; i < n; i++)
        gsp_witness_judge(witness[i], &terms, chain);
    gsp_plan_choose(&plan, &terms, chain, witness, n, n_floats, FRAGMENTS);
    return plan.found;
}

/* By a chain that ends at what witness 0 names now. */
static bool choose(unsigned n)
{
    const gsp_state_roots *r = &witness[0]->newest;
    gsp_chain chain = chain_to(0, 0, 1);
    chain.newest = witness[0]->proposal;
    if (r->has_certificate)
        chain.version = r->certificate.proposal.version;
    if (r->has_certificate)
        chain.roster = chain.voters = r->certificate.proposal.next;
    return choose_by(n, &chain);
}

static void a_quorum_is_believed(void **unused)
{
    (void)unused;
    begin();
    answer(0, 0, 0, 1, 1); /* nothing certified yet: the founder alone */
    assert_true(choose(1) && plan.version == 0 && !plan.saved.has_certificate);
    for (unsigned i = 0; i < 4; i++) {
        answer(i, 17, 0, 5, 1);
        assert_true(choose(i + 1) == (i >= 2)); /* three of five */
    }
    assert_int_equal(plan.version, 17);
    assert_int_equal(plan.fragment[0].version, 15);
    assert_int_equal(plan.fragment[1].version, 16);
    assert_int_equal(plan.signers, 4);
    end();
}

static void members_a_version_apart_vouch_for_the_same(void **unused)
{
    (void)unused;
    begin();
    answer(3, 16, 0, 4, 1);
    for (unsigned i = 0; i < 3; i++)
        answer(i, 17, 0, 4, 1);
    assert_true(choose(4) && plan.version == 17 && plan.signers == 3);
    answer(0, 18, 0, 4, 1);
    assert_false(choose(4)); /* of its newest fragment only one has told */
    answer(1, 18, 0, 4, 1);
    answer(2, 18, 0, 4, 1);
    assert_true(choose(4) && plan.version == 18);
    end();
}

/* However many they are, and whatever they claim to have certified. */
static void nobody_else_is(void **unused)
{
    (void)unused;
    begin();
    for (unsigned i = 0; i < 3; i++)
        answer(i, 17, 0, 3, 1);
    for (unsigned i = 3; i < 7; i++)
        answer(i, 90, 3, 4, 9); /* a roster of their own, far ahead, in the same lineage */
    assert_true(choose(7) && plan.version == 17 && plan.fragment[1].root.byte[0] == 1);
    for (unsigned i = 3; i < 7; i++)
        answer(i, 17, 3, 4, 1); /* the right roots under a roster that is not */
    assert_true(choose(7) && plan.saved.certificate.proposal.next.n == 3);
    for (unsigned i = 3; i < 7; i++)
        answer(i, 17, 0, 3, 9); /* another anchor, the same certificate */
    assert_true(choose(7) && plan.fragment[1].root.byte[0] == 1 && plan.signers == 3);
    nobody_votes = true;
    for (unsigned i = 1; i < 3; i++)
        answer(i, 20, 0, 3, 1); /* what the chain does not lead to is not chosen */
    nobody_votes = false;
    assert_true(!choose(7) || plan.version == 17);
    gsp_chain foreign = chain_to(17, 0, 3);
    foreign.lineage.byte[0] ^= 1;
    assert_false(choose_by(7, &foreign));
    end();
}

/* Whoever changes its word, however often, is held to the first one; nor does that push out other versions. */
static void the_first_word_counts(void **unused)
{
    (void)unused;
    begin();
    answer(1, 16, 0, 3, 1);
    answer(1, 17, 0, 3, 1);
    for (uint8_t times = 0; times < 2 * GSP_WITNESS_SAID_MAX; times++) {
        answer(1, 17, 0, 3, (uint8_t)(9 + times));
        for (uint64_t version = 15; version <= 17; version++) {
            const gsp_hash *said =
                gsp_witness_said(witness[1], (uint32_t)(version % FRAGMENTS), version);
            assert_true(version % FRAGMENTS == 2 || (said && said->byte[0] == 1));
        }
    }
    assert_non_null(gsp_witness_said(witness[1], 1, 16));
    assert_int_equal(gsp_witness_said(witness[1], 1, 16)->byte[0], 1);
    end();
}

static void another_shape_is_not(void **unused)
{
    (void)unused;
    begin();
    for (unsigned i = 0; i < 3; i++) {
        n_floats[0] = i < 2 ? 999 : 1000;
        answer(i, 17, 0, 3, 1);
    }
    n_floats[0] = 1000;
    assert_false(choose(3));
    assert_int_equal(plan.answers, 1);
    end();
}

static void roots_are_checked(void **unused)
{
    (void)unused;
    begin();
    gsp_member who = member(1), other = member(2), older = {who.key, 2};
    answer(1, 17, 0, 3, 1);
    gsp_state_roots good = roots;
    assert_true(gsp_roots_check(&good, &seals[0], &who));
    assert_false(gsp_roots_check(&good, &seals[0], &other));
    assert_false(gsp_roots_check(&good, &seals[0], &older));
    for (int k = 0; k < 7; k++) {
        gsp_state_roots bad = good;
        bad.fragment[1].root.byte[3] ^= k == 0;
        bad.fragment[1].version += k == 1 ? 3 : 0;
        bad.n_fragments -= k == 2;
        bad.certificate.proposal.tokens += k == 3;
        bad.genesis.founder.incarnation += k == 4;
        bad.seal[9] ^= k == 5;
        bad.certificate.proposal.next.n = k == 6 ? 0 : bad.certificate.proposal.next.n;
        assert_false(gsp_roots_check(&bad, &seals[0], &who));
    }
    end();
}

/* ---- what has come ---- */

static float chunk[3][GSP_CHUNK_FLOATS], back[GSP_CHUNK_FLOATS];
static const uint64_t STAGED = 2 * GSP_CHUNK_FLOATS + 100;

static gsp_hash staged_root(gsp_hash leaf[3])
{
    gsp_hash root;
    for (uint32_t k = 0; k < 3; k++) {
        for (uint64_t i = 0; i < GSP_CHUNK_FLOATS; i++)
            chunk[k][i] = (float)(i * (k + 1));
        gsp_merkle_leaf(k, chunk[k], gsp_chunk_floats(STAGED, k) * sizeof(float), &leaf[k]);
    }
    gsp_merkle_root(leaf, 3, &root);
    return root;
}

static gsp_stage *stage_of(scratch *place, uint64_t version, const gsp_hash *root)
{
    gsp_stage *s = NULL;
    test_must(gsp_stage_open(place->dir, 5, version, root, STAGED, &s));
    while (!gsp_stage_recheck(s, 1))
        ;
    return s;
}

/* The file of fragment 5 begins as those of earlier versions of atom do: whoever brings atom up to date
 * goes on with it. */
static void is_headed(scratch *place, uint8_t version, const gsp_hash *root)
{
    char *file = NULL;
    uint64_t bytes;
    uint8_t head[32] = {'a', 't', 'o', 'm', 's', 't', 'g', '2', 5, 0, 0, 0, 3, 0, 0, 0, version};
    for (int i = 0; i < 8; i++)
        head[24 + i] = (uint8_t)((uint64_t)STAGED >> 8 * i);
    test_must(atom_file_read(scratch_path(place, "state.5"), 1 << 30, &file, &bytes));
    assert_true(bytes > 64);
    assert_memory_equal(file, head, sizeof head);
    assert_memory_equal(file + sizeof head, root->byte, sizeof root->byte);
    atom_free(file);
}

static void stages_go_on(void **unused)
{
    (void)unused;
    scratch place;
    gsp_hash leaf[3], root = staged_root(leaf), other = {{4}};
    test_must(gsp_crypto_start());
    scratch_open(&place);
    gsp_stage *s = stage_of(&place, 7, &root);
    assert_int_equal(gsp_stage_n(s), 3);
    test_must(gsp_stage_put(s, 2, &leaf[2], chunk[2]));
    test_must(gsp_stage_put(s, 0, &leaf[0], chunk[0]));
    gsp_stage_close(&s);
    s = stage_of(&place, 7, &root);
    assert_true(gsp_stage_here(s) == 2 && gsp_stage_has(s, 0) && !gsp_stage_has(s, 1));
    assert_false(gsp_stage_read(s, 1, back));
    test_must(gsp_stage_put(s, 1, &leaf[1], chunk[1]));
    for (uint32_t k = 0; k < 3; k++) {
        assert_true(gsp_stage_read(s, k, back));
        assert_memory_equal(back, chunk[k], gsp_chunk_floats(STAGED, k) * sizeof(float));
    }
    gsp_stage_close(&s);
    s = stage_of(&place, 7, &root);
    assert_int_equal(gsp_stage_here(s), 3);
    gsp_stage_close(&s);
    is_headed(&place, 7, &root);
    s = stage_of(&place, 8, &root); /* another version begins anew */
    assert_int_equal(gsp_stage_here(s), 0);
    gsp_stage_close(&s);
    s = stage_of(&place, 8, &other); /* as does another root; what is not its is thrown away */
    for (uint32_t k = 0; k < 3; k++)
        test_must(gsp_stage_put(s, k, &leaf[k], chunk[k]));
    assert_int_equal(gsp_stage_here(s), 0);
    gsp_stage_close(&s);
    gsp_stage_remove_all(place.dir);
    assert_int_not_equal(access(scratch_path(&place, "state.5"), F_OK), 0);
    scratch_close(&place);
}

static void damage_is_fetched_again(void **unused)
{
    (void)unused;
    scratch place;
    gsp_hash leaf[3], root = staged_root(leaf);
    scratch_open(&place);
    const char *path = scratch_path(&place, "state.5");
    for (int what = 0; what < 4; what++) {
        gsp_stage *s = stage_of(&place, 7, &root);
        for (uint32_t k = 0; k < 3; k++)
            test_must(gsp_stage_put(s, k, &leaf[k], chunk[k]));
        gsp_stage_close(&s);
        struct stat info;
        assert_int_equal(stat(path, &info), 0);
        FILE *f = fopen(path, "r+b");
        assert_non_null(f);
        long at[4] = {20, 96 + 40, 4096 + 12345, 0}; /* head, a leaf, data */
        if (what < 3) {
            fseek(f, at[what], SEEK_SET);
            int byte = fgetc(f);
            fseek(f, at[what], SEEK_SET);
            fputc(byte ^ 1, f);
        } else {
            assert_int_equal(ftruncate(fileno(f), (off_t)(4096 + GSP_CHUNK_BYTES + 7)), 0);
        }
        fclose(f);
        s = stage_of(&place, 7, &root);
        assert_int_equal(gsp_stage_here(s), what == 0 ? 0 : what == 3 ? 1 : 2);
        for (uint32_t k = 0; k < 3; k++)
            if (!gsp_stage_has(s, k))
                test_must(gsp_stage_put(s, k, &leaf[k], chunk[k]));
        assert_int_equal(gsp_stage_here(s), 3);
        gsp_stage_close(&s);
    }
    scratch_close(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees_prove_every_leaf),
        cmocka_unit_test(versions_belong_to_fragments),
        cmocka_unit_test(a_quorum_is_believed),
        cmocka_unit_test(members_a_version_apart_vouch_for_the_same),
        cmocka_unit_test(nobody_else_is),
        cmocka_unit_test(the_first_word_counts),
        cmocka_unit_test(another_shape_is_not),
        cmocka_unit_test(roots_are_checked),
        cmocka_unit_test(stages_go_on),
        cmocka_unit_test(damage_is_fetched_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
