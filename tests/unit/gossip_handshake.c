/* The handshake and the records as bytes: who gets in, who does not, and 10,000 damaged attempts of
 * each kind, none of which does. */
#include "gossip/gate/gate_record.h"
#include "gossip/gate/handshake.h"
#include "tests/lib/gossip_pool.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct pair {
    gsp_handshake_config dialler, acceptor;
    gsp_handshake d, a;
    const uint8_t *expect; /* the key that is dialled; NULL: any */
    uint64_t now_d, now_a;
} pair;

static test_pool pool;

static void pair_make(pair *p)
{
    memset(p, 0, sizeof *p);
    p->dialler = test_member(&pool, 0);
    p->acceptor = test_member(&pool, 1);
    p->expect = pool.member[1].public_key;
    p->now_d = p->now_a = test_now_s();
}

/* Damages message `which` (1..4), byte at, with mask; which 0: none. In small pieces if asked. */
static void run(pair *p, int which, size_t at, uint8_t mask, size_t piece)
{
    gsp_hello hd = {.stream = 1, .n_streams = 3, .port = 7, .boot = 11, .link = 13};
    gsp_hello ha = {.port = 8, .boot = 12};
    test_must(gsp_handshake_dial(&p->d, &p->dialler, &hd, p->expect, p->now_d));
    gsp_handshake_accept(&p->a, &p->acceptor, &ha, p->now_a);
    gsp_handshake *from = &p->d, *to = &p->a;
    for (int m = 1; m <= 4 && from->out_bytes; m++) {
        uint8_t wire[GSP_HANDSHAKE_BYTES_MAX];
        size_t n = from->out_bytes, used;
        memcpy(wire, from->out, n);
        gsp_handshake_sent(from);
        if (m == which)
            wire[at % n] ^= mask;
        for (size_t i = 0; i < n && to->state == GSP_HANDSHAKE_GOES_ON; i += used) {
            size_t size = n - i < piece ? n - i : piece;
            if (gsp_handshake_feed(to, wire + i, size, &used) != GSP_HANDSHAKE_GOES_ON)
                break;
            assert_true(used > 0);
        }
        gsp_handshake *swap = from;
        from = to;
        to = swap;
    }
}

static void members_meet(void **state)
{
    (void)state;
    for (size_t piece = 1; piece <= 1000; piece = piece * 3 + 1) {
        pair p;
        pair_make(&p);
        if (piece > 100)
            p.expect = NULL; /* bootstrap */
        run(&p, 0, 0, 0, piece);
        assert_int_equal(p.d.state, GSP_HANDSHAKE_DONE);
        assert_int_equal(p.a.state, GSP_HANDSHAKE_DONE);
        assert_memory_equal(p.d.key_send, p.a.key_receive, 32);
        assert_memory_equal(p.a.key_send, p.d.key_receive, 32);
        assert_memory_not_equal(p.a.key_send, p.d.key_send, 32);
        assert_memory_equal(p.d.peer_key, pool.member[1].public_key, 32);
        assert_memory_equal(p.a.peer_key, pool.member[0].public_key, 32);
        assert_int_equal(p.a.peer_hello.link, 13);
        assert_int_equal(p.a.peer_hello.stream, 1);
        assert_int_equal(p.a.peer_hello.n_streams, 3);
        assert_int_equal(p.d.peer_hello.port, 8);
        assert_int_equal(p.d.peer_hello.boot, 12);
        assert_int_equal(p.d.peer_role, GSP_MEMBER);
        pair again;
        pair_make(&again);
        run(&again, 0, 0, 0, 1000);
        assert_memory_not_equal(again.d.key_send, p.d.key_send, 32); /* fresh each time */
    }
}

static void refused(pair *p, gsp_refusal by_dialler, gsp_refusal by_acceptor)
{
    run(p, 0, 0, 0, 1000);
    assert_int_equal(p->d.refusal, by_dialler);
    assert_int_equal(p->a.refusal, by_acceptor);
    assert_int_not_equal(p->d.state, GSP_HANDSHAKE_DONE);
    assert_int_not_equal(p->a.state, GSP_HANDSHAKE_DONE);
}

static gsp_refusal ban(void *ctx, const uint8_t *key, const uint8_t *issuer, const gsp_hello *hello)
{
    (void)issuer;
    (void)hello;
    return memcmp(ctx, key, 32) == 0 ? GSP_REFUSED_BANNED : GSP_WELCOME;
}

static void the_wrong_ones_are_told_or_not(void **state)
{
    (void)state;
    pair p;
    pair_make(&p); /* another ticket: not a byte in answer */
    p.dialler.psk[0][0] ^= 1;
    refused(&p, GSP_WELCOME, GSP_REFUSED_HANDSHAKE);
    assert_true(p.a.stranger);
    assert_int_equal(p.a.out_bytes, 0);
    pair_make(&p); /* another pool with the same key */
    p.dialler.pool[0] ^= 1;
    refused(&p, GSP_WELCOME, GSP_REFUSED_HANDSHAKE);
    assert_int_equal(p.a.out_bytes, 0);
    pair_make(&p); /* clocks */
    p.now_d -= 400;
    refused(&p, GSP_REFUSED_CLOCK, GSP_REFUSED_CLOCK);
    pair_make(&p); /* no admission */
    p.dialler.credential_bytes = 0;
    refused(&p, GSP_REFUSED_CREDENTIAL, GSP_REFUSED_CREDENTIAL);
    pair_make(&p); /* somebody else's admission */
    p.dialler.self = &pool.member[5];
    refused(&p, GSP_REFUSED_CREDENTIAL, GSP_REFUSED_CREDENTIAL);
    pair_make(&p); /* the acceptor has none: the dialler turns away */
    p.acceptor.credential_bytes = 0;
    refused(&p, GSP_REFUSED_CREDENTIAL, GSP_WELCOME);
    pair_make(&p); /* another member answers than was dialled */
    p.expect = pool.member[9].public_key;
    refused(&p, GSP_REFUSED_KEY, GSP_WELCOME);
    pair_make(&p); /* ourselves */
    p.acceptor = p.dialler;
    p.expect = NULL;
    refused(&p, GSP_REFUSED_SELF, GSP_WELCOME);
    gsp_identity thief = pool.member[0]; /* shows a member's key and admission, lacks its secret */
    memcpy(thief.secret_key, pool.member[5].secret_key, sizeof thief.secret_key);
    pair_make(&p);
    p.dialler.self = &thief;
    refused(&p, GSP_WELCOME, GSP_REFUSED_HANDSHAKE);
    pair_make(&p);
    thief = pool.member[1];
    memcpy(thief.secret_key, pool.member[5].secret_key, sizeof thief.secret_key);
    p.acceptor.self = &thief;
    refused(&p, GSP_REFUSED_HANDSHAKE, GSP_WELCOME);
    pair_make(&p); /* banned */
    p.acceptor.may_enter = ban;
    p.acceptor.ctx = pool.member[0].public_key;
    refused(&p, GSP_REFUSED_BANNED, GSP_REFUSED_BANNED);
    pair_make(&p); /* who is not banned needs an admission all the same */
    p.acceptor.may_enter = ban;
    p.acceptor.ctx = pool.member[5].public_key;
    p.dialler.credential_bytes = 0;
    refused(&p, GSP_REFUSED_CREDENTIAL, GSP_REFUSED_CREDENTIAL);
}

/* Clocks may differ by five minutes in either direction, and by no second more. */
static void clocks_differ_by_five_minutes(void **state)
{
    (void)state;
    for (int apart = -301; apart <= 301; apart++) {
        if (apart > -300 && apart < 300)
            continue;
        pair p;
        pair_make(&p);
        p.now_a = p.now_d + (uint64_t)(int64_t)apart;
        if (apart < -300 || apart > 300) {
            refused(&p, GSP_REFUSED_CLOCK, GSP_REFUSED_CLOCK);
            continue;
        }
        run(&p, 0, 0, 0, 1000);
        assert_int_equal(p.d.state, GSP_HANDSHAKE_DONE);
        assert_int_equal(p.a.state, GSP_HANDSHAKE_DONE);
    }
}

/* While a new key spreads, members come with the one before to learn it; tickets are void at once. */
static void a_replaced_key_serves_members_only(void **state)
{
    (void)state;
    pair p;
    for (int old = 0; old < 2; old++)
        for (int guest = 0; guest < 2; guest++) {
            pair_make(&p);
            memcpy(p.acceptor.psk[1], p.acceptor.psk[0], GSP_PSK_BYTES);
            p.acceptor.psk[0][3] ^= 1;
            p.acceptor.n_psks = 2;
            if (!old)
                memcpy(p.dialler.psk[0], p.acceptor.psk[0], GSP_PSK_BYTES);
            if (guest) {
                gsp_invite invite = {
                    .id = {1}, .count = 5, .issued_s = p.now_a, .expires_s = p.now_a + 60};
                memcpy(invite.pool, pool.pool, sizeof invite.pool);
                gsp_invite_sign(&invite, &pool.owner);
                gsp_invite_encode(&invite, p.dialler.credential);
                p.dialler.credential_bytes = GSP_INVITE_BYTES;
            }
            if (old && guest) {
                refused(&p, GSP_REFUSED_EXPIRED, GSP_REFUSED_EXPIRED);
                assert_true(p.d.proven); /* the acceptor's own word */
                continue;
            }
            run(&p, 0, 0, 0, 1000);
            assert_int_equal(p.d.state, GSP_HANDSHAKE_DONE);
            assert_int_equal(p.a.state, GSP_HANDSHAKE_DONE);
            assert_int_equal(p.a.peer_role, guest ? GSP_GUEST : GSP_MEMBER);
            assert_int_equal(p.a.old_key, old);
        }
}

static void a_replay_gets_a_sealed_refusal_at_most(void **state)
{
    (void)state;
    pair p;
    gsp_replays *replays = calloc(1, sizeof *replays);
    gsp_hello hello = {0};
    size_t used;
    pair_make(&p);
    p.acceptor.replays = replays;
    test_must(gsp_handshake_dial(&p.d, &p.dialler, &hello, p.expect, p.now_d));
    for (int i = 0; i < 3; i++) {
        gsp_handshake_accept(&p.a, &p.acceptor, &hello, p.now_a);
        gsp_handshake_state s = gsp_handshake_feed(&p.a, p.d.out, p.d.out_bytes, &used);
        assert_int_equal(s, i ? GSP_HANDSHAKE_REFUSED : GSP_HANDSHAKE_GOES_ON);
        if (i)
            assert_int_equal(p.a.out_bytes, GSP_SEALED_FIRST_BYTES);
    }
    const pair first = p;
    for (int i = 0; i < 5; i++) { /* nor when others came since */
        pair_make(&p);
        p.acceptor.replays = replays;
        run(&p, 0, 0, 0, 1000);
        assert_int_equal(p.a.state, GSP_HANDSHAKE_DONE);
    }
    gsp_handshake_accept(&p.a, &p.acceptor, &hello, p.now_a);
    assert_int_equal(gsp_handshake_feed(&p.a, first.d.out, first.d.out_bytes, &used),
                     GSP_HANDSHAKE_REFUSED);
    assert_int_equal(p.a.refusal, GSP_REFUSED_CLOCK);
    free(replays);
}

/* Points of small order: whatever the other side's secret, the product is zero and known to all. */
static const uint8_t SMALL[][32] = {
    {0},
    {1},
    {0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3,
     0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32,
     0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00},
};

/* The first message of either side, sealed as a holder of the ticket seals it, but with a key of
 * its choice. before: the other side's first message, which the answer's seal covers; NULL: none. */
static void seal_first_with(const uint8_t ephemeral[32], bool by_dialler, const uint8_t *before,
                            uint64_t now_s, uint8_t out[GSP_SEALED_FIRST_BYTES])
{
    uint8_t plain[48] = {0}, hash[64] = "atom gate handshake 1", label[33], key[32];
    memcpy(hash + 32, pool.pool, 32);
    if (before) {
        crypto_generichash_state both;
        crypto_generichash_init(&both, NULL, 0, sizeof hash);
        crypto_generichash_update(&both, hash, sizeof hash);
        crypto_generichash_update(&both, before, GSP_SEALED_FIRST_BYTES);
        crypto_generichash_final(&both, hash, sizeof hash);
    }
    memcpy(label, pool.pool, 32);
    label[32] = by_dialler;
    plain[2] = GSP_HANDSHAKE_VERSION;
    for (int k = 0; k < 8; k++)
        plain[4 + k] = (uint8_t)(now_s >> (8 * k));
    memcpy(plain + 12, ephemeral, 32);
    crypto_generichash(key, sizeof key, label, sizeof label, pool.psk, sizeof pool.psk);
    memset(out, 5, 24);
    crypto_aead_xchacha20poly1305_ietf_encrypt(out + 24, NULL, plain, sizeof plain, hash,
                                               sizeof hash, NULL, out, key);
}

static void a_key_that_shares_nothing_is_refused(void **state)
{
    (void)state;
    const gsp_hello hello = {.n_streams = 1};
    uint8_t first[GSP_SEALED_FIRST_BYTES], honest[32], secret[32] = {77};
    size_t used;
    crypto_scalarmult_base(honest, secret);
    for (size_t i = 0; i <= sizeof SMALL / sizeof *SMALL; i++) {
        bool small = i < sizeof SMALL / sizeof *SMALL; /* else this test's own sealing is tried */
        const uint8_t *ephemeral = small ? SMALL[i] : honest;
        gsp_handshake_state wanted = small ? GSP_HANDSHAKE_REFUSED : GSP_HANDSHAKE_GOES_ON;
        pair p;
        pair_make(&p);
        gsp_handshake_accept(&p.a, &p.acceptor, &hello, p.now_a);
        seal_first_with(ephemeral, true, NULL, p.now_a, first);
        assert_int_equal(gsp_handshake_feed(&p.a, first, sizeof first, &used), wanted);
        assert_int_equal(p.a.out_bytes, small ? 0 : GSP_HANDSHAKE_BYTES_MAX); /* not a word */

        test_must(gsp_handshake_dial(&p.d, &p.dialler, &hello, p.expect, p.now_d));
        seal_first_with(ephemeral, false, p.d.out, p.now_d, first);
        gsp_handshake_sent(&p.d);
        assert_int_equal(gsp_handshake_feed(&p.d, first, sizeof first, &used), wanted);
        assert_int_equal(p.d.refusal, small ? GSP_REFUSED_HANDSHAKE : GSP_WELCOME);
        assert_int_equal(p.d.out_bytes, 0);
    }
}

/* Messages of one handshake played to another one: none fits. */
static void messages_do_not_fit_elsewhere(void **state)
{
    (void)state;
    pair p, q;
    gsp_hello hello = {.n_streams = 2};
    size_t used;
    uint8_t second[GSP_HANDSHAKE_BYTES_MAX], third[GSP_HANDSHAKE_BYTES_MAX];
    pair_make(&p);
    pair_make(&q);
    for (pair *x = &p;; x = &q) {
        test_must(gsp_handshake_dial(&x->d, &x->dialler, &hello, x->expect, x->now_d));
        gsp_handshake_accept(&x->a, &x->acceptor, &hello, x->now_a);
        assert_int_equal(gsp_handshake_feed(&x->a, x->d.out, x->d.out_bytes, &used),
                         GSP_HANDSHAKE_GOES_ON);
        gsp_handshake_sent(&x->d);
        memcpy(second, p.a.out, p.a.out_bytes);
        if (x == &q)
            break;
    }
    size_t n = p.a.out_bytes;
    assert_int_equal(gsp_handshake_feed(&q.d, second, n, &used), GSP_HANDSHAKE_REFUSED);
    for (size_t at = 0; at < n; at += used)
        assert_int_equal(gsp_handshake_feed(&p.d, second + at, n - at, &used),
                         GSP_HANDSHAKE_GOES_ON);
    size_t m = p.d.out_bytes;
    memcpy(third, p.d.out, m);
    gsp_handshake_sent(&q.a);
    assert_int_equal(gsp_handshake_feed(&q.a, third, m, &used), GSP_HANDSHAKE_REFUSED);
}

static void ten_thousand_damaged_handshakes(void **state)
{
    (void)state;
    pair p;
    unsigned tried[5] = {0};
    for (unsigned i = 0; i < 10000; i++) {
        int which = 1 + (int)(i % 4);
        pair_make(&p);
        run(&p, which, randombytes_random(), (uint8_t)(1 + randombytes_uniform(255)), 1000);
        tried[which]++;
        /* Only the verdict, message 4, comes after the acceptor is done. */
        assert_int_not_equal(p.d.state, GSP_HANDSHAKE_DONE);
        if (which < 4)
            assert_int_not_equal(p.a.state, GSP_HANDSHAKE_DONE);
    }
    assert_int_equal(tried[3], 2500);
}

static void records_open_in_order_only(void **state)
{
    (void)state;
    enum { N = 4, BYTES = 1000 };
    static uint8_t record[N][BYTES + GSP_RECORD_HEAD_BYTES + GSP_RECORD_TAG_BYTES],
        copy[sizeof record[0]];
    gsp_record_key seal = {.key = {1}}, open = seal;
    for (unsigned i = 0; i < N; i++) {
        memset(record[i] + GSP_RECORD_HEAD_BYTES, (int)i, BYTES);
        assert_int_equal(gsp_record_seal(&seal, record[i], BYTES), sizeof record[i]);
        assert_int_equal(gsp_record_length(record[i]), BYTES);
    }
    for (unsigned i = 0; i < N; i++) { /* another one in its place */
        for (unsigned j = 0; j < N; j++) {
            gsp_record_key k = open;
            memcpy(copy, record[j], sizeof copy);
            assert_int_equal(gsp_record_open(&k, copy, BYTES), i == j);
            if (i == j)
                assert_int_equal(copy[GSP_RECORD_HEAD_BYTES + BYTES - 1], i);
        }
        open.count++;
    }
    static const uint8_t zero[4], large[4] = {1, 0, 1, 0};
    assert_int_equal(gsp_record_length(zero), 0);
    assert_int_equal(gsp_record_length(large), 0);
    for (unsigned i = 0; i < 10000; i++) { /* damaged ones */
        gsp_record_key k = {.key = {1}};
        memcpy(copy, record[0], sizeof copy);
        copy[randombytes_uniform(sizeof copy)] ^= (uint8_t)(1 + randombytes_uniform(255));
        size_t n = gsp_record_length(copy);
        assert_false(n > 0 && n <= BYTES && gsp_record_open(&k, copy, n));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_meet),
        cmocka_unit_test(the_wrong_ones_are_told_or_not),
        cmocka_unit_test(clocks_differ_by_five_minutes),
        cmocka_unit_test(a_replaced_key_serves_members_only),
        cmocka_unit_test(a_replay_gets_a_sealed_refusal_at_most),
        cmocka_unit_test(a_key_that_shares_nothing_is_refused),
        cmocka_unit_test(messages_do_not_fit_elsewhere),
        cmocka_unit_test(ten_thousand_damaged_handshakes),
        cmocka_unit_test(records_open_in_order_only),
    };
    test_pool_make(&pool, 7);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
