/*
 * Owns what is believed of a state that comes from others: the tree over its chunks, what members
 * sign about it, and the choice among what they say. Its one idea: roots are counted per fragment
 * and version, so that members that are a version apart still vouch for the same bits. It refuses
 * to believe anybody but a quorum of the roster that a checked chain leads to.
 */
#include "gossip/member/transfer.h"

#include "atom/base/assert.h"
#include "atom/base/bytes.h"
#include "atom/base/mem.h"
#include "gossip/sum/merkle.h"
#include "gossip/trust/sign.h"

#include <string.h>

/* ---- the tree ---- */

uint64_t gsp_tree_nodes(uint32_t n)
{
    uint64_t all = n;
    for (; n > 1; n = (n + 1) / 2)
        all += (n + 1) / 2;
    return all;
}

atom_status gsp_tree_open(gsp_tree *tree, uint32_t n)
{
    ATOM_ASSERT(n <= GSP_CHUNKS_MAX);
    gsp_hash *node = atom_alloc(gsp_tree_nodes(n) + 1, sizeof *node);
    if (!node)
        return atom_fail_memory("the hashes of a state", gsp_tree_nodes(n) * sizeof *node);
    tree->n = n;
    tree->node = node;
    return ATOM_OK;
}

void gsp_tree_close(gsp_tree *tree)
{
    atom_free(tree->node);
    *tree = (gsp_tree){0};
}

void gsp_tree_build(gsp_tree *tree)
{
    gsp_hash *level = tree->node;
    for (uint32_t n = tree->n; n > 1; n = (n + 1) / 2) {
        gsp_hash *above = level + n;
        for (uint32_t i = 0; i < n; i += 2) {
            if (i + 1 < n)
                gsp_merkle_join(&level[i], &level[i + 1], &above[i / 2]);
            else
                above[i / 2] = level[i];
        }
        level = above;
    }
}

gsp_hash gsp_tree_root(const gsp_tree *tree)
{
    return tree->n ? tree->node[gsp_tree_nodes(tree->n) - 1] : (gsp_hash){{0}};
}

uint32_t gsp_tree_path(const gsp_tree *tree, uint32_t leaf, gsp_hash path[GSP_STATE_PATH_MAX])
{
    const gsp_hash *level = tree->node;
    uint32_t steps = 0;
    ATOM_ASSERT(leaf < tree->n);
    for (uint32_t n = tree->n; n > 1; n = (n + 1) / 2, leaf /= 2) {
        if ((leaf ^ 1) < n)
            path[steps++] = level[leaf ^ 1];
        level += n;
    }
    return steps;
}

bool gsp_tree_check(const gsp_hash *root, uint64_t n, uint32_t at, const gsp_hash *leaf,
                    const gsp_hash *path, uint32_t n_path)
{
    return n >= 1 && n <= GSP_CHUNKS_MAX && at < n && n_path <= GSP_STATE_PATH_MAX &&
           gsp_merkle_climbs(root, (uint32_t)n, at, leaf, path, n_path);
}

/* ---- what is signed ---- */

uint64_t gsp_state_version(uint64_t v, uint32_t fragment, uint32_t n_fragments)
{
    uint64_t back = (v % n_fragments + n_fragments - fragment) % n_fragments;
    return back <= v ? v - back : 0;
}

static uint64_t version_of(const gsp_state_roots *r)
{
    return r->has_certificate ? r->certificate.proposal.version : r->genesis.version;
}

enum { ROOTS_TEXT_MAX = 8 + 3 * 32 + 8 + 8 + 4 + GSP_FRAGMENTS_MAX * 48 };

static size_t roots_text(const gsp_state_roots *r, const gsp_seals *seals, const gsp_member *signer,
                         uint8_t out[ROOTS_TEXT_MAX])
{
    gsp_hash lineage, proposal = {{0}};
    atom_writer w = atom_writer_make(out, ROOTS_TEXT_MAX);
    gsp_genesis_hash(seals, &r->genesis, &lineage);
    if (r->has_certificate)
        gsp_proposal_hash(seals, &r->certificate.proposal, &proposal);
    atom_write_bytes(&w, "atom str", 8);
    atom_write_bytes(&w, lineage.byte, sizeof lineage.byte);
    atom_write_bytes(&w, signer->key.byte, sizeof signer->key.byte);
    atom_write_uint(&w, signer->incarnation, 8);
    atom_write_uint(&w, version_of(r), 8);
    atom_write_bytes(&w, proposal.byte, sizeof proposal.byte);
    atom_write_uint(&w, r->n_fragments, 4);
    for (uint32_t f = 0; f < r->n_fragments; f++) {
        atom_write_uint(&w, r->fragment[f].version, 8);
        atom_write_uint(&w, r->fragment[f].n_floats, 8);
        atom_write_bytes(&w, r->fragment[f].root.byte, GSP_HASH_BYTES);
    }
    ATOM_ASSERT(!w.bad);
    return (size_t)(w.at - out);
}

void gsp_roots_seal(gsp_state_roots *roots, const gsp_seals *seals, const gsp_member *signer,
                    const gsp_identity *identity)
{
    uint8_t text[ROOTS_TEXT_MAX];
    size_t bytes = roots_text(roots, seals, signer, text);
    gsp_sign(identity, GSP_FOR_STATE, text, bytes, roots->seal);
}

bool gsp_roots_check(const gsp_state_roots *r, const gsp_seals *seals, const gsp_member *signer)
{
    uint8_t text[ROOTS_TEXT_MAX];
    const gsp_proposal *p = &r->certificate.proposal;
    if (r->n_fragments == 0 || r->n_fragments > GSP_FRAGMENTS_MAX)
        return false;
    if (r->has_certificate) {
        gsp_hash lineage;
        gsp_genesis_hash(seals, &r->genesis, &lineage);
        if (!gsp_proposal_fits(p) || p->next.n == 0 || r->certificate.n_votes > GSP_MEMBERS_MAX ||
            p->version <= r->genesis.version || !gsp_hash_equal(&p->lineage, &lineage))
            return false;
    }
    for (uint32_t f = 0; f < r->n_fragments; f++)
        if (r->fragment[f].version != gsp_state_version(version_of(r), f, r->n_fragments) ||
            (r->fragment[f].n_floats == 0) != gsp_hash_none(&r->fragment[f].root))
            return false;
    size_t bytes = roots_text(r, seals, signer, text);
    return gsp_verify(signer->key.byte, GSP_FOR_STATE, text, bytes, r->seal);
}

/* ---- whom to believe ---- */

void gsp_witness_hear(gsp_witness *w, const gsp_seals *seals, const gsp_member *who,
                      const gsp_state_roots *roots)
{
    gsp_hash lineage;
    gsp_genesis_hash(seals, &roots->genesis, &lineage);
    if (!gsp_hash_equal(&lineage, &w->lineage) || !gsp_member_equal(who, &w->who))
        memset(w->n_said, 0, sizeof w->n_said);
    w->who = *who;
    w->lineage = lineage;
    w->newest = *roots;
    w->proposal = lineage;
    if (roots->has_certificate)
        gsp_proposal_hash(seals, &roots->certificate.proposal, &w->proposal);
    for (uint32_t f = 0; f < roots->n_fragments; f++) {
        const gsp_state_root *r = &roots->fragment[f];
        bool known = false;
        for (uint32_t k = 0; k < GSP_WITNESS_SAID_MAX && k < w->n_said[f]; k++)
            known |= w->said[f][k].version == r->version;
        if (known) /* the first word counts: an honest member says nothing else */
            continue;
        uint32_t k = w->n_said[f]++ % GSP_WITNESS_SAID_MAX;
        w->said[f][k].version = r->version;
        w->said[f][k].root = r->root;
    }
}

const gsp_hash *gsp_witness_said(const gsp_witness *w, uint32_t f, uint64_t version)
{
    for (uint32_t k = 0; k < GSP_WITNESS_SAID_MAX && k < w->n_said[f]; k++)
        if (w->said[f][k].version == version)
            return &w->said[f][k].root;
    return NULL;
}

static bool same_shape(const gsp_witness *w, const uint64_t *n_floats, uint32_t n_fragments)
{
    if (w->newest.n_fragments != n_fragments)
        return false;
    for (uint32_t f = 0; f < n_fragments; f++)
        if (w->newest.fragment[f].n_floats != n_floats[f])
            return false;
    return true;
}

/* The root of a fragment's version that most of the roster signed; *bits: who. */
static void count_root(gsp_witness *const *w, uint32_t n, const gsp_roster *roster, uint32_t f,
                       uint64_t version, gsp_hash *root, uint32_t *bits)
{
    uint32_t most = 0;
    *bits = 0;
    for (uint32_t i = 0; i < n; i++) {
        const gsp_hash *mine = gsp_witness_said(w[i], f, version);
        uint32_t here = 0;
        for (uint32_t j = 0; mine && j < n; j++) {
            const gsp_hash *theirs = gsp_witness_said(w[j], f, version);
            uint32_t seat = gsp_roster_find(roster, &w[j]->who);
            if (theirs && gsp_hash_equal(mine, theirs) && seat != GSP_NOBODY)
                here |= 1u << seat;
        }
        uint32_t count = (uint32_t)__builtin_popcount(here);
        if (count > most) {
            most = count;
            *root = *mine;
            *bits = here;
        }
    }
}

void gsp_witness_judge(gsp_witness *w, const gsp_chain_terms *terms, const gsp_chain *chain)
{
    w->shown = gsp_hash_equal(&w->lineage, &chain->lineage) &&
               (w->newest.has_certificate ? gsp_chain_shows(terms, chain, &w->newest.certificate)
                                          : gsp_hash_equal(&chain->newest, &chain->lineage));
}

/* Tries the state that witness `of` names. */
static bool try_plan(gsp_plan *plan, gsp_trust trust, gsp_witness *const *w, uint32_t n,
                     const gsp_witness *of, uint32_t n_fragments)
{
    const gsp_state_roots *r = &of->newest;
    gsp_roster roster;
    uint32_t fewest = n;
    bool good = true;
    gsp_genesis_roster(&r->genesis, &roster);
    if (r->has_certificate)
        roster = r->certificate.proposal.next;
    for (uint32_t f = 0; f < n_fragments; f++) {
        uint32_t bits;
        uint64_t version = r->fragment[f].version;
        plan->fragment[f].version = version;
        count_root(w, n, &roster, f, version, &plan->fragment[f].root, &bits);
        uint32_t count = (uint32_t)__builtin_popcount(bits);
        good &= gsp_quorum(trust, roster.n, bits);
        fewest = count < fewest ? count : fewest;
    }
    plan->signers = fewest > plan->signers || good ? fewest : plan->signers;
    if (!good)
        return false;
    plan->found = true;
    plan->version = version_of(r);
    plan->saved.genesis = r->genesis;
    plan->saved.has_certificate = r->has_certificate;
    if (r->has_certificate)
        plan->saved.certificate = r->certificate;
    return true;
}

void gsp_plan_choose(gsp_plan *plan, const gsp_chain_terms *terms, const gsp_chain *chain,
                     gsp_witness *const *witness, uint32_t n, const uint64_t *n_floats,
                     uint32_t n_fragments)
{
    gsp_witness *of[GSP_PEERS_KNOWN_MAX];
    uint32_t n_of = 0;
    bool tried[GSP_PEERS_KNOWN_MAX] = {false};
    memset(plan, 0, sizeof *plan);
    plan->lineage = chain->lineage;
    for (uint32_t i = 0; i < n && n_of < GSP_PEERS_KNOWN_MAX; i++)
        if (witness[i] && gsp_hash_equal(&witness[i]->lineage, &chain->lineage) &&
            same_shape(witness[i], n_floats, n_fragments))
            of[n_of++] = witness[i];
    plan->answers = n_of;
    for (uint32_t tries = 0; tries < n_of; tries++) { /* the newest first */
        uint32_t best = GSP_PEERS_KNOWN_MAX;
        for (uint32_t i = 0; i < n_of; i++)
            if (!tried[i] && of[i]->shown &&
                (best == GSP_PEERS_KNOWN_MAX ||
                 version_of(&of[i]->newest) > version_of(&of[best]->newest)))
                best = i;
        if (best == GSP_PEERS_KNOWN_MAX ||
            try_plan(plan, terms->trust, of, n_of, of[best], n_fragments))
            return;
        for (uint32_t i = 0; i < n_of; i++)
            tried[i] |= gsp_hash_equal(&of[i]->proposal, &of[best]->proposal);
    }
}
