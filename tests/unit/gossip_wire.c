/*
 * Messages as bytes: every kind with random content comes back equal, every cut is refused, and
 * damage is either refused or is another message that encodes to those very bytes.
 */
#include "gossip/agree/wire.h"
#include "tests/lib/random_messages.h"
#include "tests/lib/sanitized.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BODY_MAX = 40, ROUNDS = SANITIZED ? 20 : 200, DAMAGED = SANITIZED ? 1000 : 3000, STEP = 13 };
static gsp_message one, two;
static uint8_t wire[GSP_WIRE_BYTES_MAX + BODY_MAX], back[GSP_WIRE_BYTES_MAX];

/* Bytes follow. */
static bool heads(unsigned kind)
{
    return kind == GSP_PIECE || kind == GSP_STATE_CHUNK;
}

/* Encodes `one` with a body behind a PIECE; returns all bytes. */
static size_t encode(uint32_t body)
{
    size_t bytes = gsp_wire_encode(&one, wire, GSP_WIRE_BYTES_MAX);
    assert_true(bytes >= GSP_WIRE_HEAD_BYTES);
    if (!heads(one.kind))
        return bytes;
    assert_true(bytes % 8 == 0);
    assert_true(one.kind == GSP_STATE_CHUNK || bytes <= GSP_WIRE_PIECE_BYTES_MAX);
    fill(wire + bytes, body);
    return bytes + body;
}

static bool decode(const void *data, size_t bytes, const void **body, size_t *body_bytes)
{
    memset(&two, 0, sizeof two);
    return gsp_wire_decode(data, bytes, &one.from.key, &two, body, body_bytes);
}

static void every_kind_comes_back(void **unused)
{
    (void)unused;
    const void *rest;
    size_t rest_bytes;
    for (int round = 0; round < ROUNDS; round++)
        for (unsigned kind = GSP_HEARTBEAT; kind < GSP_MESSAGE_N; kind++) {
            uint32_t body = draw(BODY_MAX + 1);
            make(&one, (gsp_message_kind)kind, body);
            size_t bytes = encode(body);
            assert_true(decode(wire, bytes, &rest, &rest_bytes));
            assert_memory_equal(&one, &two, gsp_message_bytes((gsp_message_kind)kind));
            if (heads(kind))
                assert_true(rest == wire + bytes - body && rest_bytes == body);
            else
                assert_true(rest == NULL && rest_bytes == 0);
            assert_true(gsp_wire_encode(&two, back, sizeof back) == bytes - rest_bytes);
            assert_memory_equal(wire, back, bytes - rest_bytes);
        }
}

/* A sanitizer sees every cut near the ends, and each place of the fields of long lists. */
static size_t next_cut(size_t cut, size_t bytes)
{
    bool middle = SANITIZED && cut >= 700 && cut + STEP + 100 < bytes;
    return cut + (middle ? STEP : 1);
}

static void cuts_and_tails_are_refused(void **unused)
{
    (void)unused;
    const void *rest;
    size_t rest_bytes;
    for (unsigned kind = GSP_HEARTBEAT; kind < GSP_MESSAGE_N; kind++) {
        make(&one, (gsp_message_kind)kind, 5);
        size_t bytes = encode(5);
        for (size_t cut = 0; cut < bytes; cut = next_cut(cut, bytes)) {
            uint8_t *exact = malloc(cut + 1); /* a sanitizer sees one byte too many */
            assert_non_null(exact);
            memcpy(exact, wire, cut);
            assert_false(decode(exact, cut, &rest, &rest_bytes));
            free(exact);
            if (cut < bytes - (heads(kind) ? 5 : 0))
                assert_true(gsp_wire_encode(&one, back, cut) == 0);
        }
        wire[bytes] = 0;
        assert_false(decode(wire, bytes + 1, &rest, &rest_bytes));
        if (heads(kind))
            assert_false(decode(wire, bytes, NULL, NULL));
    }
}

static void damage_is_refused_or_is_canonical(void **unused)
{
    (void)unused;
    const void *rest;
    size_t rest_bytes, refused = 0, other = 0;
    for (int round = 0; round < DAMAGED; round++) {
        make(&one, (gsp_message_kind)(GSP_HEARTBEAT + draw(GSP_MESSAGE_N - 1)), 8);
        size_t bytes = encode(8);
        for (uint32_t k = draw(4) + 1; k > 0; k--)
            wire[draw(2) ? draw((uint32_t)bytes) : draw(160) % bytes] ^= (uint8_t)(1 + draw(255));
        if (!decode(wire, bytes, &rest, &rest_bytes)) {
            refused++;
            continue;
        }
        other++;
        assert_true(gsp_wire_encode(&two, back, sizeof back) == bytes - rest_bytes);
        assert_memory_equal(wire, back, bytes - rest_bytes);
    }
    assert_true(refused > DAMAGED / 20 && other > DAMAGED / 20);
}

static void what_may_not_be_is_not_written(void **unused)
{
    (void)unused;
    make(&one, GSP_REDUCED, 0);
    one.as.reduced.part.norm = -1.0f;
    assert_true(gsp_wire_encode(&one, wire, sizeof wire) == 0);
    one.as.reduced.part.norm = (float)(1.0 / (double)(one.ballot & 0u));
    assert_true(gsp_wire_encode(&one, wire, sizeof wire) == 0);
    make(&one, GSP_BEGIN, 0);
    one.as.begin.n_contributors = GSP_MEMBERS_MAX + 1;
    assert_true(gsp_wire_encode(&one, wire, sizeof wire) == 0);
    make(&one, GSP_ASK, 0);
    one.kind = GSP_MESSAGE_N;
    assert_true(gsp_wire_encode(&one, wire, sizeof wire) == 0);
    one.kind = GSP_ASK;
    size_t bytes = gsp_wire_encode(&one, wire, sizeof wire);
    wire[0]++; /* another version of types.h */
    assert_false(decode(wire, bytes, NULL, NULL));
}

static void files_come_back(void **unused)
{
    (void)unused;
    static gsp_saved saved, read;
    static uint8_t bytes[GSP_WIRE_SAVED_BYTES_MAX];
    for (int round = 0; round < 100; round++) {
        make_saved(&saved);
        size_t n = gsp_wire_put_saved(&saved, bytes, sizeof bytes);
        assert_true(n > 0 && gsp_wire_get_saved(bytes, n, &read));
        assert_memory_equal(&saved, &read, sizeof saved);
        assert_false(gsp_wire_get_saved(bytes, n - 1, &read));
        n = gsp_wire_put_record(&saved.record, bytes, sizeof bytes);
        assert_true(n > 0 && gsp_wire_get_record(bytes, n, &read.record));
        assert_memory_equal(&saved.record, &read.record, sizeof saved.record);
        assert_false(gsp_wire_get_record(bytes, n - 1, &read.record));
    }
}

/* Of four messages of each kind with the same content every time: what other builds of this version
 * of the protocol write and expect. A new layout is a new GSP_TYPES_VERSION, and new values here. */
static void every_kind_has_the_bytes_that_others_expect(void **unused)
{
    (void)unused;
    static const uint64_t expected[GSP_MESSAGE_N] = {
        [GSP_HEARTBEAT] = 0xfe418b9899b1470cu,   [GSP_PREPARE] = 0xe1e02ef9fec439ebu,
        [GSP_PROMISE] = 0x6fa9c209857f7576u,     [GSP_REFUSE] = 0xdae76775aae7c9aeu,
        [GSP_BEGIN] = 0xb34c80d12e279b60u,       [GSP_REDUCED] = 0x560dfb55114613c8u,
        [GSP_PROPOSE] = 0xddad570a52c929dfu,     [GSP_ECHO] = 0x3afea5910137e611u,
        [GSP_VOTE] = 0x31b680fb8dc71690u,        [GSP_CERTIFY] = 0x52cf0d7cbf08c0c1u,
        [GSP_ASK] = 0x58c522aa1c94de4bu,         [GSP_JOIN] = 0x5f0c19dee1c14c09u,
        [GSP_WAIT] = 0x5a7acc5174e6b4dau,        [GSP_LEAVE] = 0xcfb58354fcbf849du,
        [GSP_EVIDENCE] = 0xe41c18d602ba1808u,    [GSP_ACCUSE] = 0xeefdcd3ea2e35302u,
        [GSP_LINEAGE] = 0x09420410ff35dca3u,     [GSP_CONSENT] = 0x95a67f3cda9adde7u,
        [GSP_WITHHELD] = 0x2e521970639a64fau,    [GSP_PIECE] = 0xb0bbd28609a065bau,
        [GSP_PULL] = 0x51827c7b784becd1u,        [GSP_STATE_ASK] = 0x0989ec9fb2442b56u,
        [GSP_STATE_ROOTS] = 0x7c0826b9e74a96a7u, [GSP_STATE_PULL] = 0x1001f951e477bf6du,
        [GSP_STATE_NONE] = 0x85d9fa2874ba45ccu,  [GSP_STATE_CHUNK] = 0x2e8da370bc3ef707u,
        [GSP_CHAIN_ASK] = 0x2834dcd2191a760eu,   [GSP_CHAIN] = 0x3145212de938cf89u,
    };
    bool all_equal = true;
    for (unsigned kind = GSP_HEARTBEAT; kind < GSP_MESSAGE_N; kind++) {
        uint8_t digest[32];
        uint64_t found = 0;
        crypto_generichash_state all;
        crypto_generichash_init(&all, NULL, 0, sizeof digest);
        drawn = 1000 + kind;
        for (int round = 0; round < 4; round++) {
            make(&one, (gsp_message_kind)kind, 24);
            size_t bytes = gsp_wire_encode(&one, wire, sizeof wire);
            assert_true(bytes >= GSP_WIRE_HEAD_BYTES);
            crypto_generichash_update(&all, wire, bytes);
        }
        crypto_generichash_final(&all, digest, sizeof digest);
        for (int k = 0; k < 8; k++)
            found = found << 8 | digest[k];
        if (found != expected[kind])
            print_message("kind %u: 0x%016llxu\n", kind, (unsigned long long)found);
        all_equal &= found == expected[kind];
    }
    assert_true(all_equal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_comes_back),
        cmocka_unit_test(cuts_and_tails_are_refused),
        cmocka_unit_test(damage_is_refused_or_is_canonical),
        cmocka_unit_test(what_may_not_be_is_not_written),
        cmocka_unit_test(files_come_back),
        cmocka_unit_test(every_kind_has_the_bytes_that_others_expect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
