/*
 * Any bytes at any step of the handshake. The first byte says which side is attacked and how far a
 * real peer brings it first; the rest is fed in pieces. A peer that holds the ticket but not the
 * other's secrets (bit 3) may seal what it likes in message 1. Never done, never out of bounds.
 */
#include "atom/base/assert.h"
#include "gossip/gate/handshake.h"

#include <sodium.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static gsp_identity identity[3];
static gsp_handshake_config config[2];

static void start(void)
{
    static const uint8_t seed[3][32] = {{1}, {2}, {3}};
    if (config[0].self)
        return;
    for (int i = 0; i < 3; i++)
        ATOM_ASSERT(gsp_identity_from_seed(seed[i], &identity[i]) == ATOM_OK);
    for (int i = 0; i < 2; i++) {
        gsp_admission a = {.issued_s = 1000, .expires_s = 2000};
        memcpy(a.member, identity[i].public_key, 32);
        gsp_admission_sign(&a, &identity[2]);
        config[i].self = &identity[i];
        config[i].n_psks = 1;
        config[i].credential_bytes = GSP_ADMISSION_BYTES;
        memcpy(config[i].owner, identity[2].public_key, 32);
        gsp_admission_encode(&a, config[i].credential);
    }
}

static void feed(gsp_handshake *h, const uint8_t *data, size_t size)
{
    size_t used = 0;
    for (size_t at = 0; at < size; at += used) {
        size_t piece = 1 + data[at] % 97u * 8u;
        if (piece > size - at)
            piece = size - at;
        gsp_handshake_sent(h);
        if (gsp_handshake_feed(h, data + at, piece, &used) != GSP_HANDSHAKE_GOES_ON)
            break;
        ATOM_ASSERT(used > 0 && h->out_bytes <= GSP_HANDSHAKE_BYTES_MAX);
    }
    ATOM_ASSERT(h->state != GSP_HANDSHAKE_DONE);
}

/* Message 1 as a holder of the ticket would seal it, with any content. */
static size_t seal_first(const uint8_t *data, size_t size, uint8_t out[GSP_SEALED_FIRST_BYTES])
{
    uint8_t plain[48] = {0}, hash[64] = "atom gate handshake 1", label[33] = {0}, key[32];
    static const uint8_t psk[32];
    label[32] = 1;
    memcpy(plain, data, size < sizeof plain ? size : sizeof plain);
    crypto_generichash(key, sizeof key, label, sizeof label, psk, sizeof psk);
    memset(out, 5, 24);
    crypto_aead_xchacha20poly1305_ietf_encrypt(out + 24, NULL, plain, sizeof plain, hash,
                                               sizeof hash, NULL, out, key);
    return size < sizeof plain ? size : sizeof plain;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static gsp_handshake dialler, acceptor;
    const gsp_hello hello = {.n_streams = 2};
    uint8_t first[GSP_SEALED_FIRST_BYTES];
    size_t used;
    start();
    if (size == 0)
        return 0;
    uint8_t how = data[0];
    data++;
    size--;
    ATOM_ASSERT(gsp_handshake_dial(&dialler, &config[0], &hello,
                                   how & 4 ? identity[1].public_key : NULL, 1500) == ATOM_OK);
    gsp_handshake_accept(&acceptor, &config[1], &hello, 1500);
    if (how & 8) {
        size_t skip = seal_first(data, size, first);
        if (gsp_handshake_feed(&acceptor, first, sizeof first, &used) == GSP_HANDSHAKE_GOES_ON)
            feed(&acceptor, data + skip, size - skip);
        return 0;
    }
    if (how & 2) {
        ATOM_ASSERT(gsp_handshake_feed(&acceptor, dialler.out, dialler.out_bytes, &used) ==
                    GSP_HANDSHAKE_GOES_ON);
        gsp_handshake_sent(&dialler);
        if (how & 16) { /* the dialler has seen half of message 2 */
            ATOM_ASSERT(gsp_handshake_feed(&dialler, acceptor.out, acceptor.out_bytes, &used) ==
                        GSP_HANDSHAKE_GOES_ON);
        }
    }
    feed(how & 1 ? &dialler : &acceptor, data, size);
    return 0;
}
