/*
 * Owns the form of records. Its one idea: the number of a record is its nonce and is never sent, so
 * order and wholeness of the stream are part of what is authenticated. It refuses to go past the
 * last nonce, which no stream lives to see.
 */
#include "gossip/gate/gate_record.h"

#include "atom/base/assert.h"

#include <sodium.h>
#include <string.h>

_Static_assert(GSP_RECORD_TAG_BYTES == crypto_aead_chacha20poly1305_ietf_ABYTES, "tag");

static void nonce_of(uint64_t count, uint8_t out[12])
{
    memset(out, 0, 12);
    for (unsigned i = 0; i < 8; i++)
        out[4 + i] = (uint8_t)(count >> (8 * i));
}

size_t gsp_record_seal(gsp_record_key *key, uint8_t *record, size_t n)
{
    uint8_t nonce[12], *body = record + GSP_RECORD_HEAD_BYTES;
    ATOM_ASSERT(n > 0 && n <= GSP_RECORD_BYTES_MAX && key->count < UINT64_MAX);
    for (unsigned i = 0; i < GSP_RECORD_HEAD_BYTES; i++)
        record[i] = (uint8_t)(n >> (8 * i));
    nonce_of(key->count++, nonce);
    crypto_aead_chacha20poly1305_ietf_encrypt(body, NULL, body, n, record, GSP_RECORD_HEAD_BYTES,
                                              NULL, nonce, key->key);
    return GSP_RECORD_HEAD_BYTES + n + GSP_RECORD_TAG_BYTES;
}

size_t gsp_record_length(const uint8_t head[GSP_RECORD_HEAD_BYTES])
{
    size_t n = 0;
    for (unsigned i = 0; i < GSP_RECORD_HEAD_BYTES; i++)
        n |= (size_t)head[i] << (8 * i);
    return n <= GSP_RECORD_BYTES_MAX ? n : 0;
}

bool gsp_record_open(gsp_record_key *key, uint8_t *record, size_t n)
{
    uint8_t nonce[12], *body = record + GSP_RECORD_HEAD_BYTES;
    if (n == 0 || n > GSP_RECORD_BYTES_MAX || key->count == UINT64_MAX)
        return false;
    nonce_of(key->count++, nonce);
    return crypto_aead_chacha20poly1305_ietf_decrypt(body, NULL, NULL, body,
                                                     n + GSP_RECORD_TAG_BYTES, record,
                                                     GSP_RECORD_HEAD_BYTES, nonce, key->key) == 0;
}
