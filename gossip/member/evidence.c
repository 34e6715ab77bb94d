/*
 * Owns the file of a proof. Its one idea: everything in it is either signed by the accused or
 * hashes to what the accused signed. It refuses anything else before it computes.
 */
#include "gossip/member/evidence.h"

#include "atom/base/bytes.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "gossip/agree/wire.h"
#include "gossip/sum/mix.h"
#include "gossip/trust/seals.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum { HASH_BYTES = 32 };
static const char MAGIC[] = "atomevi5", WORDS[] = "atomtwo1";

static size_t padded(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

atom_status gsp_evidence_write(const char *path, const gsp_genesis *genesis, const gsp_claim *claim,
                               const gsp_exhibit *exhibit)
{
    size_t room = 8 + 4 + GSP_WIRE_BYTES_MAX + HASH_BYTES;
    for (uint32_t i = 0; i < claim->n_contributors; i++)
        room += exhibit[i].data ? 32 + sizeof exhibit[i].path + exhibit[i].bytes : 0;
    uint8_t *file = atom_alloc(1, room), *head = atom_alloc(1, GSP_WIRE_BYTES_MAX);
    size_t n = head ? gsp_wire_put_claim(genesis, claim, head, GSP_WIRE_BYTES_MAX) : 0;
    atom_status st;
    if (!file || !head)
        ATOM_TRY_CLEAN(atom_fail_memory("evidence", room));
    if (n == 0)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT, "%s: the claim cannot be written", path));
    atom_writer w = atom_writer_make(file, room);
    atom_write_bytes(&w, MAGIC, 8);
    atom_write_uint(&w, n, 4);
    atom_write_bytes(&w, head, n);
    for (uint32_t i = 0; i < claim->n_contributors; i++) {
        if (!exhibit[i].data)
            continue;
        atom_write_uint(&w, exhibit[i].n_path, 4);
        atom_write_bytes(&w, exhibit[i].path, exhibit[i].n_path * sizeof exhibit[i].path[0]);
        atom_write_uint(&w, exhibit[i].bytes, 8);
        while ((w.at - file) % 8 != 0)
            atom_write_uint(&w, 0, 1);
        atom_write_bytes(&w, exhibit[i].data, exhibit[i].bytes);
    }
    size_t all = (size_t)(w.at - file);
    crypto_generichash(w.at, HASH_BYTES, file, all, NULL, 0);
    st = atom_file_write(path, file, all + HASH_BYTES);
cleanup:
    atom_free(file);
    atom_free(head);
    return st;
}

/* ---- reading ---- */

static atom_status wrong(const char *what)
{
    return atom_fail(ATOM_E_FORMAT, "this proves nothing: %s", what);
}

/* The claim and what it says about itself; *at: where the exhibits begin. */
static atom_status read_claim(const gsp_terms *terms, const uint8_t *data, size_t bytes,
                              gsp_finding *f, size_t *at)
{
    uint8_t check[HASH_BYTES];
    gsp_genesis genesis;
    gsp_seals seals = gsp_seals_real(NULL);
    if (bytes < 8 + 4 + HASH_BYTES || memcmp(data, MAGIC, 8) != 0)
        return wrong("it is not a file of evidence");
    crypto_generichash(check, sizeof check, data, bytes - HASH_BYTES, NULL, 0);
    if (memcmp(check, data + bytes - HASH_BYTES, HASH_BYTES) != 0)
        return wrong("the file is damaged");
    atom_reader r = atom_reader_make(data + 8, 4);
    size_t n = atom_read_u32(&r);
    if (n > bytes - 12 - HASH_BYTES || !gsp_wire_get_claim(data + 12, n, &genesis, &f->claim))
        return wrong("the claim cannot be read");
    if (!gsp_hash_equal(&genesis.pool, &terms->pool))
        return wrong("it is about another pool");
    gsp_genesis_hash(&seals, &genesis, &f->lineage);
    const char *why = gsp_claim_wrong(&seals, &f->lineage, terms->n_parts, &f->claim);
    *at = 12 + n;
    return why ? wrong(why) : ATOM_OK;
}

/* One contribution at *at: of the right length and under the root that the claim names. */
static bool read_exhibit(const gsp_terms *terms, const gsp_claim *claim, uint32_t i,
                         const uint8_t *data, size_t end, size_t *at, uint64_t part_bytes,
                         const void **input)
{
    gsp_hash path[GSP_MERKLE_PATH_MAX], leaf;
    atom_reader r = atom_reader_make(data + *at, end - *at);
    uint32_t n_path = atom_read_u32(&r);
    if (n_path > GSP_MERKLE_PATH_MAX)
        return false;
    atom_read_bytes(&r, path, n_path * sizeof path[0]);
    uint64_t n = atom_read_u64(&r);
    size_t from = padded(*at + 4 + n_path * sizeof path[0] + 8);
    if (!atom_reader_ok(&r) || n != part_bytes || from > end || n > end - from)
        return false;
    gsp_merkle_leaf(claim->number, data + from, n, &leaf);
    *input = data + from;
    *at = from + n;
    return gsp_merkle_check(&claim->contributor[i].root, terms->n_parts, claim->number, &leaf, path,
                            n_path);
}

atom_status gsp_evidence_judge(const gsp_terms *terms, const void *data, size_t bytes,
                               gsp_finding *f)
{
    size_t at = 0;
    uint64_t first, n, part_bytes;
    const void *input[GSP_MEMBERS_MAX] = {0};
    gsp_mix mix = {0};
    atom_status st;
    void *out = NULL;
    memset(f, 0, sizeof *f);
    ATOM_TRY_CLEAN(read_claim(terms, data, bytes, f, &at));
    const gsp_claim *c = &f->claim;
    n = gsp_terms_floats(terms, c->version, c->number, &first);
    part_bytes = gsp_codec_bytes(terms->codec, n);
    for (uint32_t i = 0; i < c->n_contributors; i++)
        if ((c->part.included >> i & 1) &&
            !read_exhibit(terms, c, i, data, bytes - HASH_BYTES, &at, part_bytes, &input[i]))
            return wrong("a contribution is not the one that the claim names");
    if (at != bytes - HASH_BYTES)
        return wrong("it holds more than the claim names");
    ATOM_TRY_CLEAN(gsp_mix_open(&mix, terms->codec, terms->robust, n));
    out = atom_alloc(1, part_bytes ? part_bytes : 1);
    if (!out)
        ATOM_TRY_CLEAN(atom_fail_memory("a part", part_bytes));
    bool made = gsp_mix_part(&mix, c->number, c->contributor, c->n_contributors, input,
                             c->part.included, n, out, &f->made, &st);
    if (!made)
        memset(&f->made, 0, sizeof f->made);
    if (st == ATOM_OK)
        f->verdict = gsp_claim_judge(c, made ? &f->made : NULL);
cleanup:
    gsp_mix_close(&mix);
    atom_free(out);
    return st;
}

const char *gsp_claim_text(const gsp_claim *c, char *text, size_t bytes)
{
    snprintf(text, bytes,
             "its result of part %u of version %llu is not what the contributions that it names "
             "give",
             c->number, (unsigned long long)c->version);
    return text;
}

/* ---- two words ---- */

atom_status gsp_evidence_write_words(const char *path, const gsp_evidence *evidence)
{
    gsp_message *m = atom_alloc(1, sizeof *m);
    uint8_t file[8 + 1024 + HASH_BYTES];
    if (!m)
        return atom_fail_memory("evidence", sizeof *m);
    m->kind = GSP_EVIDENCE;
    m->as.evidence = *evidence;
    memcpy(file, WORDS, 8);
    size_t n = gsp_wire_encode(m, file + 8, 1024);
    atom_free(m);
    if (n == 0)
        return atom_fail(ATOM_E_FORMAT, "%s: the two statements cannot be written", path);
    crypto_generichash(file + 8 + n, HASH_BYTES, file, 8 + n, NULL, 0);
    return atom_file_write(path, file, 8 + n + HASH_BYTES);
}

bool gsp_evidence_is_words(const void *data, size_t bytes)
{
    return bytes >= 8 && memcmp(data, WORDS, 8) == 0;
}

atom_status gsp_evidence_judge_words(const void *data, size_t bytes, gsp_evidence *out)
{
    static const gsp_key nobody;
    uint8_t check[HASH_BYTES];
    const uint8_t *at = data;
    gsp_seals seals = gsp_seals_real(NULL);
    if (bytes < 8 + HASH_BYTES || !gsp_evidence_is_words(data, bytes))
        return wrong("it is not a file of evidence");
    crypto_generichash(check, sizeof check, at, bytes - HASH_BYTES, NULL, 0);
    if (memcmp(check, at + bytes - HASH_BYTES, HASH_BYTES) != 0)
        return wrong("the file is damaged");
    gsp_message *m = atom_alloc(1, sizeof *m);
    if (!m)
        return atom_fail_memory("evidence", sizeof *m);
    bool read = gsp_wire_decode(at + 8, bytes - 8 - HASH_BYTES, &nobody, m, NULL, NULL) &&
                m->kind == GSP_EVIDENCE;
    if (read)
        *out = m->as.evidence;
    atom_free(m);
    if (!read)
        return wrong("the two statements cannot be read");
    if (!gsp_statements_convict(&seals, &out->first, &out->second))
        return wrong("an honest member may have signed both");
    return ATOM_OK;
}

bool gsp_evidence_words_are_of(const gsp_genesis *genesis, const gsp_evidence *e)
{
    gsp_seals seals = gsp_seals_real(NULL);
    gsp_hash lineage;
    gsp_genesis_hash(&seals, genesis, &lineage);
    return gsp_hash_equal(&lineage, &e->first.lineage);
}

const char *gsp_words_text(const gsp_evidence *e, char *text, size_t bytes)
{
    bool denies = e->first.kind != e->second.kind;
    bool vote = e->first.kind == GSP_SAYS_VOTE;
    snprintf(text, bytes, "it signed %s in ballot %u of version %llu",
             denies ? "a promise that denies its vote"
             : vote ? "two votes"
                    : "two proposals",
             e->first.ballot, (unsigned long long)e->first.version);
    return text;
}
