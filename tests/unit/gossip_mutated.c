/*
 * Every kind of signed message and text, with real keys, changed in its bytes ten thousand times
 * without signing it again: none is accepted as something else than it was. Fields that no signature
 * covers (heads, rates: the link says whose they are) are not counted.
 */
#include "atom/base/mem.h"
#include "atom/base/rng.h"
#include "gossip/agree/claim.h"
#include "gossip/agree/wire.h"
#include "gossip/member/transfer.h"
#include "gossip/pool/manifest.h"
#include "gossip/trust/seals.h"
#include "gossip/trust/ticket.h"
#include "tests/lib/gossip_contact.h"
#include "tests/lib/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum { MUTATIONS = SANITIZED ? 500 : 10000, ROOM = 128 * 1024, PARTS = 2, MEMBERS = 3 };
static const uint64_t NOW = 1000000;

static test_pool P;
static gsp_message m, back;
static gsp_seals seals[MEMBERS];
static gsp_member who[MEMBERS];
static gsp_roster roster;
static gsp_hash lineage;
static gsp_genesis genesis;
static gsp_proposal proposal;
static uint8_t original[ROOM], mutated[ROOM], again[ROOM];

/* What a receiver does with bytes: true where it believes them and they say something else than the
 * original did. */
typedef bool judge_kind(const uint8_t *data, size_t bytes);

/* ---- mutations ---- */

static size_t draw(atom_rng_key key, uint64_t *at, size_t below)
{
    return below ? atom_rng_u32(key, (*at)++) % below : 0;
}

/* From one to four changes behind the first `keep` bytes. */
static size_t mutate(uint32_t number, size_t keep, size_t bytes)
{
    const atom_rng_key key = {.seed = number, .node = 0x6d757461u};
    uint64_t at = 0;
    memcpy(mutated, original, bytes);
    for (size_t k = 1 + draw(key, &at, 4); k > 0; k--) {
        size_t i = keep + draw(key, &at, bytes - keep), n = 1 + draw(key, &at, 8);
        switch (draw(key, &at, 6)) {
        case 0:
            mutated[i] ^= (uint8_t)(1u << draw(key, &at, 8));
            break;
        case 1:
            mutated[i] = (uint8_t)draw(key, &at, 256);
            break;
        case 2:
            mutated[i] = (uint8_t)(mutated[i] + (draw(key, &at, 2) ? 1 : 255));
            break;
        case 3: /* a copy of other bytes */
            memmove(mutated + i, mutated + keep + draw(key, &at, bytes - keep - 8),
                    n < bytes - i ? n : bytes - i);
            break;
        case 4: /* less */
            n = n < bytes - i ? n : bytes - i;
            memmove(mutated + i, mutated + i + n, bytes - i - n);
            bytes -= n < bytes - keep - 16 ? n : 0;
            break;
        default: /* more */
            memmove(mutated + i + n, mutated + i, bytes - i);
            bytes += n;
        }
    }
    return bytes;
}

static void none_is_accepted(const char *name, size_t keep, size_t bytes, judge_kind *judge)
{
    uint32_t accepted = 0;
    assert_true(bytes > keep + 16 && bytes + 64 < ROOM);
    for (uint32_t k = 0; k < MUTATIONS; k++) {
        size_t n = mutate(k, keep, bytes);
        bool same = n == bytes && memcmp(mutated, original, n) == 0;
        accepted += !same && judge(mutated, n);
    }
    if (accepted)
        printf("%s: %u of %d accepted\n", name, accepted, MUTATIONS);
    assert_int_equal(accepted, 0);
}

/* ---- the agreement ---- */

static gsp_statement say(gsp_statement_kind kind, uint32_t i, uint32_t ballot,
                         const gsp_hash *subject)
{
    gsp_statement s = {.kind = (uint8_t)kind,
                       .lineage = lineage,
                       .version = kind == GSP_SAYS_LEAVE ? 0 : proposal.version,
                       .ballot = ballot,
                       .signer = who[i]};
    if (subject)
        s.subject = *subject;
    gsp_statement_seal(&seals[i], &s);
    return s;
}

static void open_pool(void)
{
    test_must(gsp_crypto_start());
    test_pool_make(&P, 7);
    roster.n = MEMBERS;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        seals[i] = gsp_seals_real(&P.member[i]);
        memcpy(who[i].key.byte, P.member[i].public_key, GSP_KEY_BYTES);
        who[i].incarnation = 1;
        roster.member[i] = who[i];
    }
    genesis = (gsp_genesis){.pool = {{9}}, .generation = 1, .version = 4, .founder = who[1]};
    gsp_genesis_hash(&seals[1], &genesis, &lineage);
    seals[1].seal(seals[1].context, lineage.byte, sizeof lineage.byte, genesis.seal);
    gsp_proposal *p = &proposal;
    *p = (gsp_proposal){.lineage = lineage, .version = 5, .previous = {{4}}, .tokens = 60};
    p->samples = 60;
    p->n_contributors = MEMBERS;
    p->n_parts = PARTS;
    p->next = roster;
    for (uint32_t i = 0; i < MEMBERS; i++)
        p->contributor[i] = (gsp_contributor){(uint8_t)i, {{(uint8_t)(i + 1)}}, 20, 20, 20};
    gsp_hash contributors;
    gsp_contributors_hash(&seals[0], p->contributor, MEMBERS, &contributors);
    for (uint32_t k = 0; k < PARTS; k++) {
        gsp_statement said;
        p->part[k] = (gsp_part){.hash = {{5, (uint8_t)k}}, .included = 7, .weight = 60, .norm = 2};
        p->part[k].owner = (uint8_t)k;
        gsp_reduced_statement(&seals[k], &lineage, 5, k, &p->part[k], &contributors, &who[k],
                              &said);
        gsp_statement_seal(&seals[k], &said);
        memcpy(p->part[k].seal, said.seal, sizeof said.seal);
    }
}

/* Everything of a message that its receiver does not know from the link or take as advice. */
static void clear_unsigned(gsp_message *x)
{
    if (x->kind == GSP_PROMISE)
        x->as.promise.contribution.rates = (gsp_rates){0};
    if (x->kind == GSP_JOIN)
        x->as.join.rates = (gsp_rates){0};
    if (x->kind == GSP_REDUCED) { /* taken from the statement and the sender */
        x->as.reduced.part.owner = 0;
        memset(x->as.reduced.part.seal, 0, GSP_SEAL_BYTES);
    }
    if (x->kind == GSP_ACCUSE)
        x->as.accuse.claim.part.owner = 0;
    if (x->kind == GSP_STATE_ROOTS) { /* a first lineage is known by its id, in the manifest */
        memset(x->as.roots.genesis.seal, 0, GSP_SEAL_BYTES);
        memset(x->as.roots.genesis.order.seal, 0, GSP_SEAL_BYTES);
    }
}

static bool sealed(const gsp_statement *s)
{
    return gsp_statement_verify(&seals[0], s);
}

static bool all_sealed(const gsp_statement *s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!sealed(&s[i]))
            return false;
    return n > 0;
}

static bool right_propose(const gsp_propose *p)
{
    gsp_hash hash;
    gsp_proposal_hash(&seals[0], &p->proposal, &hash);
    return gsp_hash_equal(&hash, &p->statement.subject) && sealed(&p->statement) &&
           all_sealed(p->promise, p->n_promises) && all_sealed(p->proof.echo, p->proof.n);
}

static bool right_promise(const gsp_promise *p)
{
    gsp_hash hash;
    gsp_contribution_hash(&seals[0], &p->contribution, &hash);
    return !p->has_proposal && gsp_hash_equal(&hash, &p->statement.root) && sealed(&p->statement);
}

static bool right_reduced(const gsp_reduced *r)
{
    gsp_hash hash;
    gsp_part_hash(&seals[0], r->statement.item, &r->part, &hash);
    return gsp_hash_equal(&hash, &r->statement.subject) && sealed(&r->statement);
}

static bool right(const gsp_message *x)
{
    switch (x->kind) {
    case GSP_PROMISE:
        return right_promise(&x->as.promise);
    case GSP_REDUCED:
        return right_reduced(&x->as.reduced);
    case GSP_PROPOSE:
        return right_propose(&x->as.propose);
    case GSP_ECHO:
    case GSP_VOTE:
        return sealed(&x->as.vote.statement);
    case GSP_CERTIFY:
        return gsp_certificate_check(&seals[0], GSP_FRIENDS, &roster, &proposal.previous,
                                     &x->as.certify.certificate);
    case GSP_LEAVE:
        return sealed(&x->as.leave.statement);
    case GSP_JOIN:
        return sealed(&x->as.join.entry.wish);
    case GSP_EVIDENCE:
        return gsp_statements_convict(&seals[0], &x->as.evidence.first, &x->as.evidence.second);
    case GSP_ACCUSE:
        return !gsp_claim_wrong(&seals[0], &lineage, PARTS, &x->as.accuse.claim);
    case GSP_LINEAGE:
        return x->as.announce.genesis.reset > 0 && /* a first lineage is known by the manifest */
               !gsp_genesis_wrong(&seals[0], &who[1].key, &x->as.announce.genesis);
    case GSP_STATE_ROOTS:
        return gsp_roots_check(&x->as.roots, &seals[0], &who[2]);
    default:
        return false;
    }
}

static bool judge_message(const uint8_t *data, size_t bytes)
{
    if (!gsp_wire_decode(data, bytes, &who[2].key, &back, NULL, NULL) || back.kind != m.kind ||
        !right(&back))
        return false;
    clear_unsigned(&back);
    clear_unsigned(&m);
    size_t n = gsp_wire_encode(&back, again, sizeof again);
    size_t was = gsp_wire_encode(&m, mutated, sizeof mutated);
    return n != was || memcmp(again, mutated, n) != 0;
}

static void message_is_safe(const char *name)
{
    m.from = who[2];
    m.lineage = lineage;
    size_t n = gsp_wire_encode(&m, original, sizeof original);
    assert_true(n > 0);
    assert_true(gsp_wire_decode(original, n, &who[2].key, &back, NULL, NULL) && right(&back));
    none_is_accepted(name, GSP_WIRE_HEAD_BYTES, n, judge_message);
}

static void begin(gsp_message_kind kind)
{
    memset(&m, 0, sizeof m);
    m.kind = kind;
}

static void words_of_members(void **state)
{
    (void)state;
    gsp_hash hash, subject = {{8}}, other = {{9}};
    begin(GSP_VOTE);
    m.as.vote.statement = say(GSP_SAYS_VOTE, 2, 3, &subject);
    message_is_safe("vote");
    begin(GSP_ECHO);
    m.as.vote.statement = say(GSP_SAYS_ECHO, 2, 3, &subject);
    message_is_safe("echo");
    begin(GSP_LEAVE);
    m.as.leave.statement = say(GSP_SAYS_LEAVE, 2, 0, NULL);
    message_is_safe("leave");
    begin(GSP_JOIN);
    m.as.join.entry.wish = say(GSP_SAYS_JOIN, 2, 0, &subject);
    message_is_safe("join");
    begin(GSP_EVIDENCE);
    m.as.evidence.first = say(GSP_SAYS_VOTE, 2, 3, &subject);
    m.as.evidence.second = say(GSP_SAYS_VOTE, 2, 3, &other);
    message_is_safe("evidence");
    begin(GSP_PROMISE);
    gsp_promise *p = &m.as.promise;
    p->contribution = (gsp_contribution){.root = {{1}}, .tokens = 20, .samples = 20};
    gsp_contribution_hash(&seals[2], &p->contribution, &hash);
    p->statement = say(GSP_SAYS_PROMISE, 2, 3, NULL);
    p->statement.root = hash;
    gsp_statement_seal(&seals[2], &p->statement);
    message_is_safe("promise");
    begin(GSP_REDUCED);
    gsp_reduced *r = &m.as.reduced;
    r->part = proposal.part[1];
    gsp_contributors_hash(&seals[1], proposal.contributor, MEMBERS, &hash);
    gsp_reduced_statement(&seals[1], &lineage, 5, 1, &r->part, &hash, &who[1], &r->statement);
    message_is_safe("reduced");
}

static void proposals_and_certificates(void **state)
{
    (void)state;
    gsp_hash hash;
    gsp_proposal_hash(&seals[0], &proposal, &hash);
    begin(GSP_PROPOSE);
    gsp_propose *p = &m.as.propose;
    p->proposal = proposal;
    p->statement = say(GSP_SAYS_PROPOSE, 2, 3, &hash);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        p->promise[p->n_promises++] = say(GSP_SAYS_PROMISE, i, 3, NULL);
        p->proof.echo[p->proof.n++] = say(GSP_SAYS_ECHO, i, 2, &hash);
    }
    message_is_safe("propose");
    begin(GSP_CERTIFY);
    gsp_certificate *c = &m.as.certify.certificate;
    c->proposal = proposal;
    c->ballot = 3;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        gsp_statement vote = say(GSP_SAYS_VOTE, i, 3, &hash);
        c->vote[c->n_votes].member = (uint8_t)i;
        memcpy(c->vote[c->n_votes++].seal, vote.seal, sizeof vote.seal);
    }
    /* Fewer votes are as good, as long as they are a quorum's: all three, and they cannot be
     * told apart from two. */
    c->n_votes = 2;
    memset(&c->vote[2], 0, sizeof c->vote[2]);
    message_is_safe("certify");
    begin(GSP_ACCUSE);
    gsp_certificate certificate = {.proposal = proposal};
    assert_true(gsp_claim_of(&certificate, &roster, 1, &m.as.accuse.claim));
    message_is_safe("accuse");
    begin(GSP_LINEAGE);
    gsp_genesis *g = &m.as.announce.genesis;
    *g = genesis;
    g->reset = 1;
    gsp_order_seal(&seals[1], g);
    gsp_genesis_hash(&seals[1], g, &hash);
    seals[1].seal(seals[1].context, hash.byte, sizeof hash.byte, g->seal);
    message_is_safe("lineage");
    begin(GSP_STATE_ROOTS);
    gsp_state_roots *r = &m.as.roots;
    r->genesis = genesis;
    r->genesis.generation = 0; /* the pool's first: its own seal says nothing */
    memset(r->genesis.seal, 0, sizeof r->genesis.seal);
    r->n_fragments = 2;
    for (uint32_t f = 0; f < 2; f++)
        r->fragment[f] = (gsp_state_root){gsp_state_version(4, f, 2), 100 + f, {{3, (uint8_t)f}}};
    gsp_roots_seal(r, &seals[2], &who[2], &P.member[2]);
    message_is_safe("state roots");
}

/* ---- texts and credentials of the pool ---- */

static gsp_manifest manifest, read_back;

static bool judge_manifest(const uint8_t *data, size_t bytes)
{
    char *text = NULL;
    if (gsp_manifest_parse((const char *)data, bytes, &read_back) != ATOM_OK)
        return false;
    test_must(gsp_manifest_text(&read_back, &text));
    bool other = strcmp(text, (const char *)original) != 0;
    atom_free(text);
    return other;
}

static void manifests(void **state)
{
    (void)state;
    char *text = NULL;
    manifest = (gsp_manifest){.number = 1, .created_s = NOW, .n_fragments = 1, .n_floats = {1000}};
    manifest.tokens_per_sample = 128;
    manifest.codec = GSP_CODEC_INT8;
    manifest.anchor = (gsp_hash){{4}};
    memcpy(manifest.pool, P.pool, sizeof manifest.pool);
    memcpy(manifest.owner, P.owner.public_key, sizeof manifest.owner);
    memcpy(manifest.founder, P.member[0].public_key, sizeof manifest.founder);
    gsp_manifest_key_hash(P.psk, &manifest.key);
    snprintf(manifest.name, sizeof manifest.name, "a pool");
    test_must(gsp_manifest_complete(&manifest));
    gsp_manifest_sign(&manifest, &P.owner);
    test_must(gsp_manifest_text(&manifest, &text));
    size_t n = strlen(text);
    memset(original, 0, sizeof original);
    memcpy(original, text, n);
    atom_free(text);
    test_must(gsp_manifest_parse((const char *)original, n, &read_back));
    none_is_accepted("manifest", 0, n, judge_manifest);
}

static size_t shown_bytes;
static uint8_t shown[GSP_CREDENTIAL_BYTES_MAX];

/* Of an invite by a delegate the delegation, too. */
static bool judge_credential(const uint8_t *data, size_t bytes)
{
    gsp_role role;
    return gsp_credential_check(data, bytes, P.pool, P.owner.public_key, P.member[1].public_key,
                                NOW, &role) == GSP_WELCOME &&
           (bytes != shown_bytes || memcmp(data, shown, bytes) != 0);
}

static void credential_is_safe(const char *name)
{
    gsp_role role;
    assert_int_equal(gsp_credential_check(shown, shown_bytes, P.pool, P.owner.public_key,
                                          P.member[1].public_key, NOW, &role),
                     GSP_WELCOME);
    memcpy(original, shown, shown_bytes);
    none_is_accepted(name, 0, shown_bytes, judge_credential);
}

static void credentials(void **state)
{
    (void)state;
    gsp_admission a = {.manifest = 1, .issued_s = NOW - 10, .expires_s = NOW + 1000};
    memcpy(a.pool, P.pool, sizeof a.pool);
    memcpy(a.member, P.member[1].public_key, sizeof a.member);
    gsp_admission_sign(&a, &P.owner);
    gsp_admission_encode(&a, shown);
    shown_bytes = GSP_ADMISSION_BYTES;
    credential_is_safe("admission");

    gsp_ticket t = {.manifest = 1, .has_invite = true, .has_delegation = true};
    memcpy(t.owner, P.owner.public_key, sizeof t.owner);
    memcpy(t.pool, P.pool, sizeof t.pool);
    t.invite = (gsp_invite){.count = 2, .issued_s = NOW - 10, .expires_s = NOW + 1000};
    memcpy(t.invite.pool, P.pool, sizeof t.invite.pool);
    gsp_invite_sign(&t.invite, &P.member[2]);
    t.delegation = (gsp_delegation){.issued_s = NOW - 10, .expires_s = NOW + 1000};
    memcpy(t.delegation.pool, P.pool, sizeof t.delegation.pool);
    memcpy(t.delegation.delegate, P.member[2].public_key, GSP_PUBLIC_BYTES);
    gsp_delegation_sign(&t.delegation, &P.owner);
    shown_bytes = gsp_ticket_credential(&t, shown);
    assert_true(shown_bytes > 0);
    credential_is_safe("invite of a delegate");
}

static gsp_contact contact;
static gsp_handshake_config reader;

static bool judge_contact(const uint8_t *data, size_t bytes)
{
    gsp_contact c;
    return gsp_contact_decode(data, bytes, &c) &&
           gsp_contact_judge(&c, &reader, test_now_s()) == GSP_CONTACT_GOOD;
}

static void contacts(void **state)
{
    (void)state;
    contact = test_contact(&P, 1, 5);
    reader = test_member(&P, 2);
    size_t n = gsp_contact_encode(&contact, original);
    assert_true(judge_contact(original, n));
    none_is_accepted("contact", 0, n, judge_contact);
}

int main(void)
{
    open_pool();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_of_members), cmocka_unit_test(proposals_and_certificates),
        cmocka_unit_test(manifests),        cmocka_unit_test(credentials),
        cmocka_unit_test(contacts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
