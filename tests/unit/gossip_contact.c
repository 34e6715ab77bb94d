/* Contacts: what was signed comes back; nothing else is believed. */
#include "tests/lib/gossip_contact.h"

#include "atom/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static test_pool P;

static gsp_contact_verdict judge(gsp_contact *c, bool sign)
{
    gsp_handshake_config me = test_member(&P, 1);
    if (sign)
        gsp_contact_sign(c, P.pool, &P.member[0]);
    return gsp_contact_judge(c, &me, test_now_s());
}

static void there_and_back(void **state)
{
    (void)state;
    gsp_handshake_config me = test_member(&P, 1);
    gsp_contact c = test_contact(&P, 0, 5), back;
    uint8_t body[GSP_CONTACT_BODY_BYTES_MAX], sealed[GSP_CONTACT_SEALED_BYTES_MAX];
    size_t bytes = gsp_contact_encode(&c, body);
    assert_true(gsp_contact_decode(body, bytes, &back));
    assert_memory_equal(&c, &back, sizeof c);
    for (size_t cut = 0; cut < bytes; cut++)
        assert_false(gsp_contact_decode(body, cut, &back));
    size_t n = gsp_contact_seal(&c, P.psk, sealed);
    assert_in_range(n, 100, 600); /* an ordinary member's goes in one packet */
    memset(&back, 0, sizeof back);
    assert_int_equal(gsp_contact_open(sealed, n, &me, test_now_s(), &back), GSP_CONTACT_GOOD);
    assert_memory_equal(&c, &back, sizeof c);
    me.psk[0][0] ^= 1;
    assert_int_equal(gsp_contact_open(sealed, n, &me, test_now_s(), &back), GSP_CONTACT_NOISE);
    me.n_psks = 2; /* the key before the last still opens */
    memcpy(me.psk[1], P.psk, sizeof P.psk);
    assert_int_equal(gsp_contact_open(sealed, n, &me, test_now_s(), &back), GSP_CONTACT_GOOD);
    gsp_handshake_config self = test_member(&P, 0);
    assert_int_equal(gsp_contact_open(sealed, n, &self, test_now_s(), &back), GSP_CONTACT_SELF);
}

/* As many addresses as there is room for, each with a port, and nothing behind the signature. */
static void has_one_form(void **state)
{
    (void)state;
    gsp_contact c = test_contact(&P, 0, 5), back;
    uint8_t body[GSP_CONTACT_BODY_BYTES_MAX + 1] = {0};
    c.n_addresses = GSP_CONTACT_ADDRESSES_MAX;
    for (uint32_t i = 0; i < c.n_addresses; i++)
        c.address[i] = test_loopback((uint16_t)(i + 1));
    size_t n = gsp_contact_encode(&c, body);
    assert_true(gsp_contact_decode(body, n, &back));
    assert_memory_equal(&c, &back, sizeof c);
    assert_false(gsp_contact_decode(body, n + 1, &back));
    body[0]++; /* a newer layout */
    assert_false(gsp_contact_decode(body, n, &back));
    c.address[3].port = 0;
    n = gsp_contact_encode(&c, body);
    assert_false(gsp_contact_decode(body, n, &back));
}

static void age_is_checked(void **state)
{
    (void)state;
    uint64_t now = test_now_s();
    const struct {
        uint64_t issued, expires;
        gsp_contact_verdict verdict;
    } cases[] = {
        {now - 100, now + 100, GSP_CONTACT_GOOD},  {now + 290, now + 600, GSP_CONTACT_GOOD},
        {now + 400, now + 600, GSP_CONTACT_OLD},   {now - 800, now - 290, GSP_CONTACT_GOOD},
        {now - 800, now - 400, GSP_CONTACT_OLD},   {now, now + 3700, GSP_CONTACT_OLD},
        {now, now + 3600, GSP_CONTACT_GOOD},       {now, now + 3601, GSP_CONTACT_OLD},
        {now + 200, now + 100, GSP_CONTACT_OLD},   {0, UINT64_MAX, GSP_CONTACT_OLD},
        {UINT64_MAX, UINT64_MAX, GSP_CONTACT_OLD},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gsp_contact c = test_contact(&P, 0, 1);
        c.issued_s = cases[i].issued;
        c.expires_s = cases[i].expires;
        assert_int_equal(judge(&c, true), cases[i].verdict);
    }
}

static gsp_refusal nobody_enters(void *ctx, const uint8_t *key, const uint8_t *issuer,
                                 const gsp_hello *hello)
{
    (void)ctx, (void)key, (void)issuer, (void)hello;
    return GSP_REFUSED_BANNED;
}

static void only_members_are_believed(void **state)
{
    (void)state;
    gsp_contact c = test_contact(&P, 0, 1);
    assert_int_equal(judge(&c, false), GSP_CONTACT_GOOD);
    c.address[0].port ^= 1;
    assert_int_equal(judge(&c, false), GSP_CONTACT_FORGED);
    c = test_contact(&P, 0, 1);
    c.credential_bytes = 0; /* only the owner shows none */
    assert_int_equal(judge(&c, true), GSP_CONTACT_STRANGER);
    c = test_contact(&P, 0, 1);
    gsp_contact other = test_contact(&P, 2, 1);
    memcpy(c.credential, other.credential, sizeof c.credential); /* a stolen admission */
    assert_int_equal(judge(&c, true), GSP_CONTACT_STRANGER);

    gsp_invite invite = {.id = {1}, .count = 5, .issued_s = test_now_s()}; /* a guest's */
    invite.expires_s = test_now_s() + 100;
    memcpy(invite.pool, P.pool, sizeof invite.pool);
    gsp_invite_sign(&invite, &P.owner);
    c = test_contact(&P, 0, 1);
    memset(c.credential, 0, sizeof c.credential);
    gsp_invite_encode(&invite, c.credential);
    c.credential_bytes = GSP_INVITE_BYTES;
    assert_int_equal(judge(&c, true), GSP_CONTACT_STRANGER);

    test_pool q; /* the same keys in another pool */
    test_pool_make(&q, 1);
    q.pool[0] ^= 1;
    gsp_handshake_config there = test_member(&q, 1);
    c = test_contact(&P, 0, 1);
    assert_int_equal(gsp_contact_judge(&c, &there, test_now_s()), GSP_CONTACT_FORGED);
    there = test_member(&P, 1);
    there.may_enter = nobody_enters;
    assert_int_equal(gsp_contact_judge(&c, &there, test_now_s()), GSP_CONTACT_STRANGER);
}

/* docs/design/pool.md#goals: of 10,000 forged, replayed or mutated records none is accepted. */
static void mutations_are_refused(void **state)
{
    (void)state;
    gsp_handshake_config me = test_member(&P, 1);
    gsp_contact c = test_contact(&P, 0, 1), back;
    uint8_t sealed[GSP_CONTACT_SEALED_BYTES_MAX], body[GSP_CONTACT_BODY_BYTES_MAX];
    size_t n = gsp_contact_seal(&c, P.psk, sealed), bytes = gsp_contact_encode(&c, body);
    uint32_t accepted = 0;
    for (uint32_t i = 0; i < 5000; i++) {
        uint32_t r = (uint32_t)(i * 2654435761u);
        size_t at = r % n;
        uint8_t bit = (uint8_t)(1 + r % 255);
        sealed[at] ^= bit;
        accepted += gsp_contact_open(sealed, n, &me, test_now_s(), &back) == GSP_CONTACT_GOOD;
        sealed[at] ^= bit;
        at = r % bytes; /* by somebody who holds the ticket: behind the seal */
        body[at] ^= bit;
        accepted += gsp_contact_decode(body, bytes, &back) &&
                    gsp_contact_judge(&back, &me, test_now_s()) == GSP_CONTACT_GOOD;
        body[at] ^= bit;
    }
    assert_int_equal(accepted, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),        cmocka_unit_test(has_one_form),
        cmocka_unit_test(age_is_checked),        cmocka_unit_test(only_members_are_believed),
        cmocka_unit_test(mutations_are_refused),
    };
    test_pool_make(&P, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
