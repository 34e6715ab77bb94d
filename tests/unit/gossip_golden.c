/*
 * Bytes that other builds expect of us, and that are on people's disks: what is hashed and signed
 * of an agreement, credentials, a ticket, a manifest, and a whole handshake with known keys. Their
 * hashes are written down here; a change that is meant is a new version of the format, and adds a
 * value rather than replacing one.
 */
#include "atom/base/mem.h"
#include "gossip/gate/handshake.h"
#include "gossip/pool/manifest.h"
#include "gossip/trust/seals.h"
#include "tests/lib/gossip_pool.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { NOW_S = 1700000000 };

static test_pool pool;

/* The program's entropy (tests/CMakeLists.txt): the same bytes in every run. */
atom_status __wrap_atom_entropy(void *out, size_t bytes);
static uint64_t drawn;
atom_status __wrap_atom_entropy(void *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        drawn = drawn * 6364136223846793005u + 1442695040888963407u;
        ((uint8_t *)out)[i] = (uint8_t)(drawn >> 56);
    }
    return ATOM_OK;
}

static void expect(const char *what, const void *data, size_t bytes, uint64_t expected)
{
    uint8_t digest[32];
    uint64_t found = 0;
    crypto_generichash(digest, sizeof digest, data, bytes, NULL, 0);
    for (int k = 0; k < 8; k++)
        found = found << 8 | digest[k];
    if (found != expected)
        print_message("%s: 0x%016llxu\n", what, (unsigned long long)found);
    assert_true(found == expected);
}

/* Something else in every byte, from a number. */
static gsp_hash some(uint8_t number)
{
    gsp_hash hash;
    for (size_t i = 0; i < sizeof hash.byte; i++)
        hash.byte[i] = (uint8_t)(number * 31 + i * 7 + 1);
    return hash;
}

static gsp_member member(uint8_t i)
{
    gsp_member m = {.incarnation = 3u + i};
    memcpy(m.key.byte, pool.member[i].public_key, sizeof m.key.byte);
    return m;
}

static void fill_proposal(gsp_proposal *p)
{
    *p = (gsp_proposal){.lineage = some(1),
                        .version = 0x0102030405060708u,
                        .previous = some(2),
                        .tokens = 1234567,
                        .samples = 89,
                        .n_contributors = 3,
                        .n_parts = 2,
                        .next = {.n = 2, .member = {member(0), member(1)}},
                        .missed = {1, 2},
                        .against = {3, 4}};
    for (uint8_t i = 0; i < 3; i++)
        p->contributor[i] = (gsp_contributor){
            .member = i, .root = some(10 + i), .tokens = 100u + i, .samples = 7, .weight = 90u + i};
    p->part[0] = (gsp_part){.hash = some(20),
                            .included = 5,
                            .weight = 182,
                            .norm = 0.75f,
                            .lean = {[0] = -20, [2] = 30},
                            .owner = 1};
    memset(p->part[0].seal, 9, sizeof p->part[0].seal);
}

static void the_agreement_hashes_and_signs_the_same_bytes(void **state)
{
    (void)state;
    static gsp_proposal p;
    gsp_seals seals = gsp_seals_real(&pool.member[0]);
    gsp_hash hash;
    fill_proposal(&p);
    gsp_proposal_hash(&seals, &p, &hash);
    expect("proposal", &hash, sizeof hash, 0xd2ac2bfebd293974u);
    gsp_part_hash(&seals, 17, &p.part[0], &hash);
    expect("part", &hash, sizeof hash, 0x04f88e6ad209f1bau);
    gsp_contributors_hash(&seals, p.contributor, 3, &hash);
    expect("contributors", &hash, sizeof hash, 0x623077fbae01668fu);
    gsp_contribution brought = {.root = some(4), .tokens = 5, .samples = 6};
    gsp_contribution_hash(&seals, &brought, &hash);
    expect("contribution", &hash, sizeof hash, 0x4097062ce6a6fb7bu);

    gsp_statement s = {.kind = GSP_SAYS_PROMISE,
                       .lineage = some(1),
                       .version = 8,
                       .ballot = 7,
                       .voted = 5,
                       .subject = some(2),
                       .root = some(3),
                       .signer = member(0)};
    gsp_statement_seal(&seals, &s);
    assert_true(gsp_statement_verify(&seals, &s));
    expect("statement", s.seal, sizeof s.seal, 0x235f87a4370224f0u);

    gsp_genesis g = {.pool = some(1),
                     .cell = 2,
                     .reset = 3,
                     .generation = 4,
                     .parent = some(5),
                     .version = 6,
                     .previous = some(7),
                     .anchor = some(8),
                     .tokens = 9,
                     .samples = 8,
                     .founder = member(0),
                     .n_barred = 1,
                     .barred = {{member(1).key, 7}}};
    gsp_order_seal(&seals, &g);
    expect("order", g.order.seal, sizeof g.order.seal, 0xd97501a0cdd805f6u);
    gsp_genesis_hash(&seals, &g, &hash);
    expect("genesis", &hash, sizeof hash, 0x2e7482f5ec712ef8u);
}

static gsp_invite an_invite(const gsp_identity *issuer)
{
    gsp_invite invite = {
        .id = {3, 1, 4}, .count = 10, .issued_s = NOW_S, .expires_s = NOW_S + 3600};
    memcpy(invite.pool, pool.pool, sizeof invite.pool);
    gsp_invite_sign(&invite, issuer);
    return invite;
}

static gsp_delegation a_delegation(void)
{
    gsp_delegation d = {.issued_s = NOW_S, .expires_s = NOW_S + 7200};
    memcpy(d.pool, pool.pool, sizeof d.pool);
    memcpy(d.delegate, pool.member[0].public_key, sizeof d.delegate);
    gsp_delegation_sign(&d, &pool.owner);
    return d;
}

static gsp_admission an_admission(unsigned i)
{
    gsp_admission a = {.manifest = 2, .issued_s = NOW_S, .expires_s = NOW_S + 3600};
    memcpy(a.pool, pool.pool, sizeof a.pool);
    memcpy(a.member, pool.member[i].public_key, sizeof a.member);
    gsp_admission_sign(&a, &pool.owner);
    return a;
}

static void credentials_have_the_same_bytes(void **state)
{
    (void)state;
    uint8_t bytes[GSP_CREDENTIAL_BYTES_MAX];
    gsp_admission a = an_admission(4);
    gsp_delegation d = a_delegation();
    gsp_invite i = an_invite(&pool.owner);
    gsp_admission_encode(&a, bytes);
    expect("admission", bytes, GSP_ADMISSION_BYTES, 0xa09c6503e5e05d13u);
    gsp_delegation_encode(&d, bytes);
    expect("delegation", bytes, GSP_DELEGATION_BYTES, 0xde8318e148242e77u);
    gsp_invite_encode(&i, bytes);
    expect("invite", bytes, GSP_INVITE_BYTES, 0xe93d8cff9c7f40d3u);
}

static void a_ticket_has_the_same_text(void **state)
{
    (void)state;
    char text[GSP_TICKET_TEXT_BYTES];
    gsp_ticket t = {.manifest = 5, .n_hosts = 2, .has_invite = true, .has_delegation = true};
    memcpy(t.owner, pool.owner.public_key, sizeof t.owner);
    memcpy(t.pool, pool.pool, sizeof t.pool);
    memcpy(t.psk, pool.psk, sizeof t.psk);
    strcpy(t.hosts[0], "192.0.2.7:4400");
    strcpy(t.hosts[1], "train.example.org:4401");
    t.invite = an_invite(&pool.member[0]);
    t.delegation = a_delegation();
    test_must(gsp_ticket_text(&t, text));
    expect("ticket", text, strlen(text), 0x87944edf37ad0e7du);
}

static void a_manifest_has_the_same_text_and_signature(void **state)
{
    (void)state;
    gsp_manifest *m = test_calloc(1, sizeof *m);
    char *text = NULL;
    m->number = 4;
    m->created_s = NOW_S;
    memcpy(m->pool, pool.pool, sizeof m->pool);
    memcpy(m->owner, pool.owner.public_key, sizeof m->owner);
    memcpy(m->founder, pool.member[1].public_key, sizeof m->founder);
    gsp_manifest_key_hash(pool.psk, &m->key);
    strcpy(m->name, "a small pool");
    m->n_fragments = 2;
    m->n_floats[0] = 100;
    m->n_floats[1] = 1000000;
    m->codec = GSP_CODEC_INT8;
    m->anchor = some(6);
    m->tokens_per_sample = 1024;
    strcpy(m->settings, "mode: parameters\nH: 20\n");
    m->n_files = 1;
    strcpy(m->file[0].name, "shard_000.bin");
    m->file[0].bytes = (uint64_t)1 << 38;
    m->file[0].hash = some(7);
    m->file[0].later = true;
    m->samples_due = 512;
    m->time_due_s = 0.1 + 0.2;
    m->trust = GSP_STRANGERS;
    m->robust = true;
    m->n_banned = 1;
    memcpy(m->banned[0], pool.member[2].public_key, sizeof m->banned[0]);
    test_must(gsp_manifest_complete(m));
    gsp_manifest_sign(m, &pool.owner);
    expect("manifest's signature", m->signature, sizeof m->signature, 0x05cbb37245f28d55u);
    test_must(gsp_manifest_text(m, &text));
    expect("manifest's text", text, strlen(text), 0x4cb3a1ceaeab8a84u);
    atom_free(text);
    test_free(m);
}

static gsp_handshake_config config_of(unsigned i)
{
    gsp_handshake_config c = {.self = &pool.member[i], .n_psks = 1};
    gsp_admission a = an_admission(i);
    memcpy(c.pool, pool.pool, sizeof c.pool);
    memcpy(c.owner, pool.owner.public_key, sizeof c.owner);
    memcpy(c.psk[0], pool.psk, sizeof c.psk[0]);
    gsp_admission_encode(&a, c.credential);
    c.credential_bytes = GSP_ADMISSION_BYTES;
    return c;
}

static void a_handshake_has_the_same_transcript(void **state)
{
    (void)state;
    static gsp_handshake dialler, acceptor;
    gsp_handshake_config mine = config_of(0), theirs = config_of(1);
    gsp_hello hello = {.stream = 1, .n_streams = 3, .port = 7, .boot = 11, .link = 13};
    gsp_hello answer = {.port = 8, .boot = 12};
    uint8_t wire[4 * GSP_HANDSHAKE_BYTES_MAX], *at = wire;
    drawn = 42;
    test_must(gsp_handshake_dial(&dialler, &mine, &hello, pool.member[1].public_key, NOW_S + 9));
    gsp_handshake_accept(&acceptor, &theirs, &answer, NOW_S + 11);
    for (gsp_handshake *from = &dialler, *to = &acceptor; from->out_bytes;) {
        size_t used;
        memcpy(at, from->out, from->out_bytes);
        for (size_t k = 0, n = from->out_bytes; k < n; k += used)
            assert_int_not_equal(gsp_handshake_feed(to, at + k, n - k, &used),
                                 GSP_HANDSHAKE_REFUSED);
        at += from->out_bytes;
        gsp_handshake_sent(from);
        gsp_handshake *swap = from;
        from = to;
        to = swap;
    }
    assert_int_equal(dialler.state, GSP_HANDSHAKE_DONE);
    assert_int_equal(acceptor.state, GSP_HANDSHAKE_DONE);
    expect("handshake", wire, (size_t)(at - wire), 0xa9039aac9e8cb2d6u);
    expect("key to send", dialler.key_send, sizeof dialler.key_send, 0x1ec8a2427453395bu);
    expect("key to receive", dialler.key_receive, sizeof dialler.key_receive, 0xff003b827ca6d0a5u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_agreement_hashes_and_signs_the_same_bytes),
        cmocka_unit_test(credentials_have_the_same_bytes),
        cmocka_unit_test(a_ticket_has_the_same_text),
        cmocka_unit_test(a_manifest_has_the_same_text_and_signature),
        cmocka_unit_test(a_handshake_has_the_same_transcript),
    };
    test_pool_make(&pool, 7);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
