/*
 * What owners, delegates and members sign beside the agreement's messages, by a fuzzer that has all of
 * their keys: admissions, delegations, invites, tickets, manifests, contacts and evidence. Their
 * fields are changed, they are signed again, written, read and judged. An oracle that looks at the
 * fields alone says who may be welcome; everything that is read must be within its limits.
 */
#include "atom/base/mem.h"
#include "gossip/agree/wire.h"
#include "gossip/directory/contact.h"
#include "gossip/member/evidence.h"
#include "gossip/pool/manifest.h"
#include "gossip/sum/mix.h"
#include "gossip/trust/seals.h"
#include "gossip/trust/ticket.h"
#include "tests/fuzz/forge_fields.h"

#include "atom/base/assert.h"

#include <sodium.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OWNER, DELEGATE, MEMBER, STRANGER, HOSTS };
static const uint64_t NOW = 2000000;
static const uint8_t POOL[GSP_POOL_BYTES] = {7, 7};

static gsp_identity host[HOSTS];
static forge_fields fields;

static void bytes32(void *at)
{
    forge_hash(&fields, at);
}

static void change_some(forge_script *s)
{
    for (uint32_t k = forge_draw(s, 4); k > 0 && fields.n; k--)
        forge_change(&fields, s);
    fields.n = 0;
}

static const gsp_identity *signer_of(forge_script *s, uint32_t usual)
{
    return &host[forge_draw(s, 8) ? usual : forge_draw(s, HOSTS)];
}

static bool is_host(const uint8_t *key, uint32_t i)
{
    return memcmp(key, host[i].public_key, GSP_PUBLIC_BYTES) == 0;
}

static bool in_time(uint64_t issued_s, uint64_t expires_s)
{
    return issued_s <= NOW + GSP_SKEW_SECONDS && expires_s >= NOW - GSP_SKEW_SECONDS;
}

/* ---- who is let in ---- */

static gsp_delegation a_delegation(forge_script *s)
{
    gsp_delegation d = {.issued_s = NOW - 100, .expires_s = NOW + 100};
    memcpy(d.pool, POOL, sizeof d.pool);
    memcpy(d.delegate, host[DELEGATE].public_key, sizeof d.delegate);
    bytes32(d.pool);
    bytes32(d.delegate);
    FORGE_NUMBER_OF(&fields, d.issued_s);
    FORGE_NUMBER_OF(&fields, d.expires_s);
    change_some(s);
    gsp_delegation_sign(&d, signer_of(s, OWNER));
    return d;
}

static gsp_refusal judge(const void *credential, size_t bytes, gsp_role *role)
{
    return gsp_credential_check(credential, bytes, POOL, host[OWNER].public_key,
                                host[MEMBER].public_key, NOW, role);
}

static void try_admission(forge_script *s)
{
    uint8_t shown[GSP_ADMISSION_BYTES + GSP_DELEGATION_BYTES];
    gsp_role role;
    bool delegated = forge_draw(s, 2);
    gsp_admission a = {.manifest = 1, .issued_s = NOW - 100, .expires_s = NOW + 100};
    gsp_delegation d = a_delegation(s);
    memcpy(a.pool, POOL, sizeof a.pool);
    memcpy(a.member, host[MEMBER].public_key, sizeof a.member);
    bytes32(a.pool);
    bytes32(a.member);
    FORGE_NUMBER_OF(&fields, a.manifest);
    FORGE_NUMBER_OF(&fields, a.issued_s);
    FORGE_NUMBER_OF(&fields, a.expires_s);
    change_some(s);
    gsp_admission_sign(&a, signer_of(s, delegated ? DELEGATE : OWNER));
    gsp_admission_encode(&a, shown);
    gsp_delegation_encode(&d, shown + GSP_ADMISSION_BYTES);
    size_t n = GSP_ADMISSION_BYTES + (delegated ? GSP_DELEGATION_BYTES : 0);
    if (judge(shown, n, &role) != GSP_WELCOME)
        return;
    ATOM_ASSERT(memcmp(a.pool, POOL, sizeof a.pool) == 0 && is_host(a.member, MEMBER));
    ATOM_ASSERT(in_time(a.issued_s, a.expires_s));
    ATOM_ASSERT(role == GSP_MEMBER);
    if (!is_host(a.issuer, OWNER))
        ATOM_ASSERT(delegated && memcmp(d.delegate, a.issuer, sizeof d.delegate) == 0 &&
                    memcmp(d.pool, POOL, sizeof d.pool) == 0 && in_time(d.issued_s, d.expires_s));
}

static void try_ticket(forge_script *s)
{
    char text[GSP_TICKET_TEXT_BYTES];
    uint8_t shown[GSP_CREDENTIAL_BYTES_MAX];
    gsp_ticket t = {.manifest = 1, .has_invite = true, .has_delegation = forge_draw(s, 2)}, back;
    gsp_invite *v = &t.invite;
    gsp_role role;
    memcpy(t.owner, host[OWNER].public_key, sizeof t.owner);
    memcpy(t.pool, POOL, sizeof t.pool);
    *v = (gsp_invite){.count = 5, .issued_s = NOW - 100, .expires_s = NOW + 100};
    memcpy(v->pool, POOL, sizeof v->pool);
    t.delegation = a_delegation(s);
    bytes32(t.owner);
    bytes32(t.pool);
    bytes32(v->pool);
    FORGE_NUMBER_OF(&fields, t.manifest);
    FORGE_NUMBER_OF(&fields, v->count);
    FORGE_NUMBER_OF(&fields, v->issued_s);
    FORGE_NUMBER_OF(&fields, v->expires_s);
    change_some(s);
    gsp_invite_sign(v, signer_of(s, t.has_delegation ? DELEGATE : OWNER));
    if (gsp_ticket_text(&t, text) != ATOM_OK)
        return;
    ATOM_ASSERT(gsp_ticket_parse(text, &back) == ATOM_OK);
    size_t n = gsp_ticket_credential(&back, shown);
    bool good = gsp_ticket_check(&back, NOW) == ATOM_OK;
    if (judge(shown, n, &role) != GSP_WELCOME)
        return;
    ATOM_ASSERT(role == GSP_GUEST && memcmp(v->pool, POOL, sizeof v->pool) == 0);
    ATOM_ASSERT(v->count > 0 && v->count <= GSP_INVITE_COUNT_MAX);
    ATOM_ASSERT(in_time(v->issued_s, v->expires_s));
    ATOM_ASSERT(good || !is_host(t.owner, OWNER) || v->expires_s <= NOW || v->issued_s > NOW);
}

static void try_contact(forge_script *s)
{
    uint8_t body[GSP_CONTACT_BODY_BYTES_MAX];
    gsp_handshake_config config = {.self = &host[OWNER], .n_psks = 1};
    gsp_admission a = {.manifest = 1, .issued_s = NOW - 100, .expires_s = NOW + 100};
    gsp_contact c = {.sequence = 3, .issued_s = NOW - 10, .expires_s = NOW + 1000}, back;
    memcpy(config.pool, POOL, sizeof config.pool);
    memcpy(config.owner, host[OWNER].public_key, sizeof config.owner);
    memcpy(a.pool, POOL, sizeof a.pool);
    memcpy(a.member, host[MEMBER].public_key, sizeof a.member);
    gsp_admission_sign(&a, &host[OWNER]);
    gsp_admission_encode(&a, c.credential);
    c.credential_bytes = GSP_ADMISSION_BYTES;
    c.n_addresses = forge_draw(s, GSP_CONTACT_ADDRESSES_MAX + 1);
    FORGE_NUMBER_OF(&fields, c.sequence);
    FORGE_NUMBER_OF(&fields, c.issued_s);
    FORGE_NUMBER_OF(&fields, c.expires_s);
    FORGE_NUMBER_OF(&fields, c.version);
    FORGE_NUMBER_OF(&fields, c.samples);
    FORGE_NUMBER_OF(&fields, c.directory_port);
    change_some(s);
    const gsp_identity *self = signer_of(s, MEMBER);
    memcpy(c.key, self->public_key, sizeof c.key);
    gsp_contact_sign(&c, POOL, self);
    size_t n = gsp_contact_encode(&c, body);
    if (!gsp_contact_decode(body, n, &back) ||
        gsp_contact_judge(&back, &config, NOW) != GSP_CONTACT_GOOD)
        return;
    ATOM_ASSERT(is_host(back.key, MEMBER) && in_time(back.issued_s, back.expires_s));
    ATOM_ASSERT(back.n_addresses <= GSP_CONTACT_ADDRESSES_MAX);
}

/* ---- the pool ---- */

static void manifest_fields(gsp_manifest *m)
{
    bytes32(m->pool);
    bytes32(m->founder);
    bytes32(&m->key);
    bytes32(&m->anchor);
    FORGE_NUMBER_OF(&fields, m->number);
    FORGE_NUMBER_OF(&fields, m->created_s);
    FORGE_NUMBER_OF(&fields, m->n_fragments);
    FORGE_NUMBER_OF(&fields, m->n_floats[0]);
    FORGE_NUMBER_OF(&fields, m->n_floats[1]);
    FORGE_NUMBER_OF(&fields, m->tokens_per_sample);
    FORGE_NUMBER_OF(&fields, m->samples_due);
    FORGE_NUMBER_OF(&fields, m->silent_rounds);
    FORGE_NUMBER_OF(&fields, m->n_parts);
    FORGE_NUMBER_OF(&fields, m->n_files);
    FORGE_NUMBER_OF(&fields, m->file[0].bytes);
    FORGE_NUMBER_OF(&fields, m->file[0].name[0]);
    FORGE_NUMBER_OF(&fields, m->file[0].name[3]);
    FORGE_NUMBER_OF(&fields, m->n_banned);
}

static void try_manifest(forge_script *s)
{
    static gsp_manifest m, back;
    static const double times[] = {0, -1, 1e-9, 1, 1e9, 1e300, NAN, INFINITY};
    char *text = NULL;
    gsp_rules rules;
    gsp_genesis genesis;
    m = (gsp_manifest){.number = 1, .created_s = NOW, .n_fragments = 2, .n_floats = {1000, 9}};
    m.tokens_per_sample = 128;
    m.n_files = 1;
    m.file[0].bytes = 100;
    memcpy(m.file[0].name, "config.json", sizeof "config.json");
    memcpy(m.pool, POOL, sizeof m.pool);
    memcpy(m.owner, host[OWNER].public_key, sizeof m.owner);
    memcpy(m.founder, host[MEMBER].public_key, sizeof m.founder);
    if (gsp_manifest_complete(&m) != ATOM_OK)
        return;
    manifest_fields(&m);
    change_some(s);
    if (forge_draw(s, 4) == 0)
        m.round_s = times[forge_draw(s, 8)];
    if (forge_draw(s, 4) == 0)
        m.heartbeat_s = times[forge_draw(s, 8)];
    if (gsp_manifest_complete(&m) != ATOM_OK)
        return; /* what is out of bounds is refused before its signature is looked at */
    gsp_manifest_sign(&m, &host[OWNER]);
    if (gsp_manifest_text(&m, &text) != ATOM_OK)
        return;
    if (gsp_manifest_parse(text, strlen(text), &back) == ATOM_OK) {
        ATOM_ASSERT(gsp_manifest_verify(&back) && back.n_fragments >= 1);
        ATOM_ASSERT(back.n_parts >= 1 && back.n_parts <= GSP_PARTS_MAX);
        ATOM_ASSERT(isfinite(back.round_s) && back.round_s > 0 && back.heartbeat_s > 0);
        for (uint32_t i = 0; i < back.n_files; i++)
            ATOM_ASSERT(back.file[i].name[0] != '.' && !strchr(back.file[i].name, '/'));
        gsp_manifest_genesis(&back, &genesis);
        gsp_manifest_rules(&back, &rules);
        ATOM_ASSERT(rules.heartbeat_ns > 0 && rules.n_parts == back.n_parts);
    }
    atom_free(text);
}

/* ---- evidence ---- */

/* Puts the sum over the file behind it; returns all its bytes. */
static size_t close_file(uint8_t *file, size_t n)
{
    crypto_generichash(file + n, 32, file, n, NULL, 0);
    return n + 32;
}

static void try_words(forge_script *s)
{
    static gsp_message m;
    static uint8_t file[8 + 1024 + 32];
    gsp_evidence out;
    memset(&m, 0, sizeof m);
    m.kind = GSP_EVIDENCE;
    gsp_statement *said[2] = {&m.as.evidence.first, &m.as.evidence.second};
    for (uint32_t k = 0; k < 2; k++) {
        *said[k] = (gsp_statement){.kind = GSP_SAYS_VOTE, .version = 5, .ballot = 2};
        said[k]->subject = (gsp_hash){{(uint8_t)(k + 1)}};
        memcpy(said[k]->signer.key.byte, host[MEMBER].public_key, GSP_KEY_BYTES);
    }
    forge_message(&fields, &m);
    change_some(s);
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t i = forge_draw(s, 8) ? MEMBER : forge_draw(s, HOSTS);
        gsp_seals seals = gsp_seals_real(&host[i]);
        memcpy(said[k]->signer.key.byte, host[i].public_key, GSP_KEY_BYTES);
        gsp_statement_seal(&seals, said[k]);
    }
    memcpy(file, "atomtwo1", 8);
    size_t n = gsp_wire_encode(&m, file + 8, 1024);
    if (n == 0 || gsp_evidence_judge_words(file, close_file(file, 8 + n), &out) != ATOM_OK)
        return;
    ATOM_ASSERT(gsp_key_compare(&out.first.signer.key, &out.second.signer.key) == 0);
    ATOM_ASSERT(out.first.version == out.second.version);
    ATOM_ASSERT(out.first.kind != out.second.kind || out.first.ballot == out.second.ballot);
}

enum { FLOATS = 6 };

static size_t put_exhibits(const gsp_claim *c, uint8_t *file, size_t at, float x[][FLOATS])
{
    static const uint32_t no_path = 0;
    static const uint64_t bytes = sizeof x[0];
    for (uint32_t i = 0; i < c->n_contributors && i < 4; i++) {
        if (!(c->part.included >> i & 1))
            continue;
        memcpy(file + at, &no_path, 4);
        memcpy(file + at + 4, &bytes, 8);
        for (at += 12; at % 8; at++)
            file[at] = 0;
        memcpy(file + at, x[i], sizeof x[i]);
        at += sizeof x[i];
    }
    return at;
}

static void try_claim(forge_script *s)
{
    static uint8_t file[GSP_WIRE_BYTES_MAX + 1024] __attribute__((aligned(8)));
    static const uint64_t n_floats[1] = {FLOATS};
    static gsp_claim c;
    static gsp_finding finding;
    float x[4][FLOATS];
    gsp_genesis genesis = {.pool = {{9}}};
    gsp_terms terms = {.pool = genesis.pool, .n_parts = 1, .n_fragments = 1, .n_floats = n_floats};
    terms.robust = forge_draw(s, 2);
    memset(&c, 0, sizeof c);
    c = (gsp_claim){.version = 5, .n_contributors = 4};
    c.part = (gsp_part){.hash = {{1}}, .included = 15, .weight = 40, .norm = 1};
    memcpy(c.owner.key.byte, host[MEMBER].public_key, GSP_KEY_BYTES);
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t k = 0; k < FLOATS; k++)
            x[i][k] = (float)(i + k);
        x[i][forge_draw(s, FLOATS)] *= forge_draw(s, 8) ? 1 : INFINITY;
        gsp_hash leaf;
        gsp_merkle_leaf(0, x[i], sizeof x[i], &leaf);
        c.contributor[i] = (gsp_contributor){.member = (uint8_t)i, .tokens = 10, .samples = 10};
        c.contributor[i].weight = 10;
        gsp_merkle_root(&leaf, 1, &c.contributor[i].root);
    }
    forge_claim(&fields, &c);
    change_some(s);
    memcpy(c.owner.key.byte, host[MEMBER].public_key, GSP_KEY_BYTES);
    gsp_seals seals = gsp_seals_real(&host[MEMBER]);
    gsp_hash contributors, lineage;
    gsp_statement said;
    gsp_genesis_hash(&seals, &genesis, &lineage);
    gsp_contributors_hash(&seals, c.contributor, c.n_contributors, &contributors);
    gsp_reduced_statement(&seals, &lineage, c.version, c.number, &c.part, &contributors, &c.owner,
                          &said);
    gsp_statement_seal(&seals, &said);
    memcpy(c.part.seal, said.seal, sizeof said.seal);
    memcpy(file, "atomevi5", 8);
    size_t n = gsp_wire_put_claim(&genesis, &c, file + 12, GSP_WIRE_BYTES_MAX);
    if (n == 0)
        return;
    uint32_t head = (uint32_t)n;
    memcpy(file + 8, &head, 4);
    n = close_file(file, put_exhibits(&c, file, 12 + n, x));
    if (gsp_evidence_judge(&terms, file, n, &finding) == ATOM_OK)
        ATOM_ASSERT(finding.verdict == GSP_VERDICT_RIGHT || finding.verdict == GSP_VERDICT_LIE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    forge_script script = {data, size};
    for (uint32_t i = 0; i < HOSTS && !ready; i++) {
        const uint8_t seed[GSP_SEED_BYTES] = {(uint8_t)(i + 1)};
        ATOM_ASSERT(gsp_identity_from_seed(seed, &host[i]) == ATOM_OK);
    }
    ready = true;
    fields.n = 0;
    for (uint32_t k = 0; k < 16 && script.left; k++) {
        static void (*const tries[])(forge_script *) = {try_admission, try_ticket, try_contact,
                                                        try_manifest,  try_words,  try_claim};
        tries[forge_draw(&script, sizeof tries / sizeof *tries)](&script);
    }
    return 0;
}
