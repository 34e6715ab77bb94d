/*
 * Writes seeds that only today's encoders can make, so that they are of today's version: for
 * gossip_wire one message of each kind, a record and a saved state, short and longer; for
 * gossip_evidence a proven lie, a sum that is right, and two words of one member. They are a function
 * of the program alone: keys are made of fixed bytes.
 */
#include "gossip/member/evidence.h"
#include "gossip/sum/mix.h"
#include "gossip/trust/identity.h"
#include "gossip/trust/seals.h"
#include "tests/fuzz/evidence_terms.h"
#include "tests/lib/random_messages.h"

#include "atom/base/assert.h"
#include "atom/base/files.h"

#include <stdio.h>
#include <stdlib.h>

enum { BODY = 24, TWO = 2, PART = 1, FLOATS_MAX = 8192 };

static uint8_t out[1 + GSP_WIRE_SAVED_BYTES_MAX];

static void must(atom_status st)
{
    if (st == ATOM_OK)
        return;
    fprintf(stderr, "fuzz_message_seeds: %s\n", atom_fail_message());
    exit(1);
}

static const char *in_folder(const char *folder, const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* ---- messages: the first byte says which decoder (gossip_wire.c) ---- */

static void write_one(const char *folder, const char *name, uint8_t which, size_t bytes)
{
    ATOM_ASSERT(bytes);
    out[0] = which;
    must(atom_file_write(in_folder(folder, name), out, 1 + bytes));
}

static void write_message(const char *folder, gsp_message_kind kind)
{
    static gsp_message m;
    char name[64];
    do
        make(&m, kind, BODY);
    while ((kind == GSP_PROMISE && !m.as.promise.has_proposal) ||
           (kind == GSP_CHAIN && m.as.chain.n == 0) ||
           (kind == GSP_STATE_ROOTS && !m.as.roots.has_certificate));
    size_t bytes = gsp_wire_encode(&m, out + 1, GSP_WIRE_BYTES_MAX);
    if (kind == GSP_PIECE || kind == GSP_STATE_CHUNK) {
        fill(out + 1 + bytes, BODY);
        bytes += BODY;
    }
    snprintf(name, sizeof name, "kind-%02u-most-%u", (unsigned)kind, at_most);
    write_one(folder, name, 0, bytes);
}

static void write_messages(const char *folder)
{
    static gsp_saved saved;
    for (at_most = 2; at_most <= 6; at_most += 4) {
        char name[64];
        for (uint32_t kind = GSP_HEARTBEAT; kind < GSP_MESSAGE_N; kind++)
            write_message(folder, (gsp_message_kind)kind);
        do
            make_saved(&saved);
        while (!saved.has_certificate || !saved.record.echoed || !saved.record.voted);
        snprintf(name, sizeof name, "record-most-%u", at_most);
        write_one(folder, name, 1,
                  gsp_wire_put_record(&saved.record, out + 1, GSP_WIRE_SAVED_BYTES_MAX));
        snprintf(name, sizeof name, "saved-most-%u", at_most);
        write_one(folder, name, 2, gsp_wire_put_saved(&saved, out + 1, GSP_WIRE_SAVED_BYTES_MAX));
    }
}

/* ---- evidence, under the terms of gossip_evidence.c ---- */

static void sign(const gsp_identity *owner, const gsp_genesis *genesis, gsp_claim *c)
{
    const gsp_seals seals = gsp_seals_real(owner);
    gsp_hash lineage, contributors;
    gsp_statement said;
    gsp_genesis_hash(&seals, genesis, &lineage);
    gsp_contributors_hash(&seals, c->contributor, c->n_contributors, &contributors);
    gsp_reduced_statement(&seals, &lineage, c->version, c->number, &c->part, &contributors,
                          &c->owner, &said);
    gsp_statement_seal(&seals, &said);
    memcpy(c->part.seal, said.seal, sizeof said.seal);
}

static void write_sums(const char *folder, const gsp_identity *owner)
{
    static float x[TWO][FLOATS_MAX], sum[FLOATS_MAX];
    static gsp_claim c;
    const gsp_terms terms = evidence_terms(0);
    gsp_genesis genesis = {.pool = terms.pool, .founder.incarnation = 1};
    gsp_exhibit exhibit[TWO];
    const void *input[TWO] = {x[0], x[1]};
    gsp_mix mix;
    atom_status st;
    memcpy(genesis.founder.key.byte, owner->public_key, GSP_KEY_BYTES);
    c = (gsp_claim){.version = 5, .number = PART, .n_contributors = TWO, .owner = genesis.founder};
    uint64_t first, n = gsp_terms_floats(&terms, c.version, PART, &first);
    ATOM_ASSERT(n && n <= FLOATS_MAX);
    for (uint32_t i = 0; i < TWO; i++) {
        gsp_hash leaf[8] = {0};
        ATOM_ASSERT(terms.n_parts <= 8);
        for (uint32_t k = 0; k < n; k++)
            x[i][k] = (float)(k % 97) * (i ? -0.5f : 0.25f);
        exhibit[i] = (gsp_exhibit){.data = x[i], .bytes = gsp_codec_bytes(terms.codec, n)};
        gsp_merkle_leaf(PART, x[i], exhibit[i].bytes, &leaf[PART]);
        exhibit[i].n_path = gsp_merkle_path(leaf, terms.n_parts, PART, exhibit[i].path);
        c.contributor[i] = (gsp_contributor){
            .member = (uint8_t)i, .tokens = 10 + i, .samples = 1, .weight = 10 + i};
        gsp_merkle_root(leaf, terms.n_parts, &c.contributor[i].root);
    }
    must(gsp_mix_open(&mix, terms.codec, terms.robust, n));
    ATOM_ASSERT(gsp_mix_part(&mix, PART, c.contributor, TWO, input, 3, n, sum, &c.part, &st));
    gsp_mix_close(&mix);
    sign(owner, &genesis, &c);
    must(gsp_evidence_write(in_folder(folder, "right"), &genesis, &c, exhibit));
    c.part.norm += 1;
    sign(owner, &genesis, &c);
    must(gsp_evidence_write(in_folder(folder, "lie"), &genesis, &c, exhibit));
}

/* Two votes in one ballot. */
static void write_words(const char *folder, const gsp_identity *owner)
{
    const gsp_seals seals = gsp_seals_real(owner);
    gsp_statement vote = {
        .kind = GSP_SAYS_VOTE, .version = 5, .ballot = 2, .signer.incarnation = 1};
    gsp_evidence e;
    memcpy(vote.signer.key.byte, owner->public_key, GSP_KEY_BYTES);
    e.first = e.second = vote;
    e.first.subject.byte[0] = 1;
    e.second.subject.byte[0] = 2;
    gsp_statement_seal(&seals, &e.first);
    gsp_statement_seal(&seals, &e.second);
    must(gsp_evidence_write_words(in_folder(folder, "words"), &e));
}

int main(int argc, char **argv)
{
    static const uint8_t seed[GSP_SEED_BYTES] = {7};
    gsp_identity owner;
    if (argc != 3) {
        fprintf(stderr, "usage: fuzz_message_seeds FOLDER_OF_MESSAGES FOLDER_OF_EVIDENCE\n");
        return 2;
    }
    must(gsp_crypto_start());
    must(gsp_identity_from_seed(seed, &owner));
    must(atom_dir_make(argv[1]));
    must(atom_dir_make(argv[2]));
    write_messages(argv[1]);
    write_sums(argv[2], &owner);
    write_words(argv[2], &owner);
    gsp_identity_wipe(&owner);
    return 0;
}
