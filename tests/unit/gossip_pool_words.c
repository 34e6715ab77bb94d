/* The words of life: each kind there and back, nothing that is cut, long or says too much. */
#include "gossip/pool/words.h"
#include "tests/lib/gossip_contact.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static uint8_t wire[GSP_WORD_HEAD_BYTES + GSP_WORD_CHUNK_BYTES + 1];

static size_t pack(const gsp_word *m)
{
    size_t n = gsp_word_encode(m, wire);
    if (m->body_bytes)
        memcpy(wire + n, m->body, m->body_bytes);
    return n + m->body_bytes;
}

static void there_and_back(void **state)
{
    (void)state;
    static uint8_t body[GSP_WORD_CHUNK_BYTES];
    memset(body, 7, sizeof body);
    for (gsp_word_kind kind = GSP_WORD_HELLO; kind < GSP_WORD_N; kind++) {
        gsp_word m = {.kind = kind}, back;
        if (kind == GSP_WORD_HELLO) {
            m.number = 3;
            strcpy(m.name, "a host");
            m.seen = test_address("192.0.2.7:4400");
        } else if (kind == GSP_WORD_ASK_ADMISSION || kind == GSP_WORD_ADMISSION) {
            m.key[3] = 1;
            m.refusal = kind == GSP_WORD_ADMISSION ? GSP_WORD_AWAY : 0;
            m.credential_bytes = 200;
            memset(m.credential, 5, 200);
        } else if (kind == GSP_WORD_MANIFEST) {
            m.psk[0] = 9;
            m.body = body;
            m.body_bytes = 1000;
        } else if (kind == GSP_WORD_ASK_FILE) {
            m.hash.byte[0] = 2;
            m.offset = 1 << 20;
            m.bytes = 1000;
        } else if (kind == GSP_WORD_FILE) {
            m.hash.byte[0] = 2;
            m.offset = (uint64_t)1 << 40;
            m.of_bytes = m.offset + sizeof body;
            m.body = body;
            m.body_bytes = sizeof body;
        } else if (kind == GSP_WORD_ASK_NOTE || kind == GSP_WORD_NOTE) {
            m.hash.byte[31] = 4;
            m.body = kind == GSP_WORD_NOTE ? body : NULL;
            m.body_bytes = kind == GSP_WORD_NOTE ? 900 : 0;
        } else if (kind >= GSP_WORD_ASK_PIECES && kind <= GSP_WORD_NO_PIECE) {
            m.hash.byte[0] = 2;
            m.piece = GSP_PIECES_MAX - 1;
            m.n_pieces = kind == GSP_WORD_ASK_PIECES ? GSP_WORD_PIECES_MAX : 0;
            if (kind == GSP_WORD_PIECE) {
                m.n_path = GSP_STATE_PATH_MAX;
                m.path[GSP_STATE_PATH_MAX - 1].byte[31] = 3;
                m.body = body;
                m.body_bytes = sizeof body;
            }
        }
        size_t bytes = pack(&m);
        assert_true(gsp_word_decode(wire, bytes, &back));
        assert_int_equal(back.body_bytes, m.body_bytes);
        assert_true(m.body_bytes == 0 || memcmp(back.body, m.body, m.body_bytes) == 0);
        back.body = m.body;
        assert_memory_equal(&m, &back, sizeof m);
        for (size_t n = 0; n + m.body_bytes < bytes; n++)
            assert_false(gsp_word_decode(wire, n, &back));
        if (kind != GSP_WORD_MANIFEST && kind != GSP_WORD_FILE && kind != GSP_WORD_NOTE &&
            kind != GSP_WORD_PIECE)
            assert_false(gsp_word_decode(wire, bytes + 1, &back));
    }
}

static void refused(void **state)
{
    (void)state;
    gsp_word m = {.kind = GSP_WORD_HELLO, .name = "x"}, back;
    size_t n = pack(&m);
    assert_true(gsp_word_decode(wire, n, &back));
    wire[7] = 0x1b; /* a terminal would obey */
    assert_false(gsp_word_decode(wire, n, &back));
    wire[7] = 'x';
    wire[20] = 'x'; /* behind the NUL */
    assert_false(gsp_word_decode(wire, n, &back));
    wire[20] = 0;
    for (size_t i = 0; i < 3; i++) {
        wire[i] ^= 0x40; /* mark, version, kind */
        assert_false(gsp_word_decode(wire, n, &back));
        wire[i] ^= 0x40;
    }
    m = (gsp_word){.kind = GSP_WORD_ASK_FILE, .bytes = GSP_WORD_CHUNK_BYTES + 1};
    assert_false(gsp_word_decode(wire, pack(&m), &back));
    m.bytes = 0;
    assert_false(gsp_word_decode(wire, pack(&m), &back));
    uint8_t one = 1;
    m = (gsp_word){
        .kind = GSP_WORD_FILE, .offset = 5, .of_bytes = 5, .body = &one, .body_bytes = 1};
    assert_false(gsp_word_decode(wire, pack(&m), &back)); /* behind its end */
    m.offset = UINT64_MAX;
    assert_false(gsp_word_decode(wire, pack(&m), &back));
    m = (gsp_word){.kind = GSP_WORD_ASK_PIECES, .n_pieces = GSP_WORD_PIECES_MAX + 1};
    assert_false(gsp_word_decode(wire, pack(&m), &back));
    m.n_pieces = 0;
    assert_false(gsp_word_decode(wire, pack(&m), &back));
    m = (gsp_word){.kind = GSP_WORD_ASK_PIECES, .n_pieces = 1, .piece = GSP_PIECES_MAX};
    assert_false(gsp_word_decode(wire, pack(&m), &back));
    m = (gsp_word){.kind = GSP_WORD_PIECE, .body = &one, .body_bytes = 1};
    size_t bytes = pack(&m);
    assert_true(gsp_word_decode(wire, bytes, &back));
    wire[bytes - 2] = GSP_STATE_PATH_MAX + 1; /* hashes of its proof */
    assert_false(gsp_word_decode(wire, bytes, &back));
    m = (gsp_word){.kind = GSP_WORD_MANIFEST};
    assert_false(gsp_word_decode(wire, pack(&m), &back)); /* no text */
}

static void contacts(void **state)
{
    (void)state;
    test_pool p;
    uint8_t body[4096];
    size_t used = 0, at = 0;
    gsp_contact c, back;
    test_pool_make(&p, 1);
    gsp_word m = {.kind = GSP_WORD_HELLO, .body = body}, heard;
    for (unsigned i = 0; i < 3; i++) {
        c = test_contact(&p, i, i + 1);
        used = gsp_word_add_contact(body, used, sizeof body, &c);
        m.n_contacts++;
    }
    m.body_bytes = used;
    size_t bytes = pack(&m);
    assert_true(gsp_word_decode(wire, bytes, &heard));
    for (unsigned i = 0; i < 3; i++) {
        assert_true(gsp_word_next_contact(&heard, &at, &back));
        assert_int_equal(back.sequence, i + 1);
        assert_memory_equal(back.key, p.member[i].public_key, 32);
    }
    assert_false(gsp_word_next_contact(&heard, &at, &back));
    assert_false(gsp_word_decode(wire, bytes - 1, &heard));
    m.n_contacts = 2; /* one more than it says */
    assert_false(gsp_word_decode(wire, pack(&m), &heard));
    m.n_contacts = 4;
    assert_false(gsp_word_decode(wire, pack(&m), &heard));
    /* No room: unchanged. */
    assert_int_equal(gsp_word_add_contact(body, sizeof body - 10, sizeof body, &c),
                     sizeof body - 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(refused),
        cmocka_unit_test(contacts),
    };
    test_must(gsp_crypto_start());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
