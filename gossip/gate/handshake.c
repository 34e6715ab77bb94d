/*
 * Owns the four messages of the gate's handshake. Its one idea: a running hash of every byte sent,
 * mixed with the pre-shared key and a fresh Diffie-Hellman product, keys what follows, and both
 * identities sign it; so nobody without the ticket gets past message 1, and nobody in the middle
 * can splice. It refuses to answer a stranger, to trust a length, and to hold a secret longer than
 * it is needed.
 */
#include "gossip/gate/handshake.h"

#include "atom/base/assert.h"
#include "atom/base/bytes.h"
#include "atom/base/entropy.h"

#include <sodium.h>
#include <string.h>

enum {
    FIRST_PLAIN = 48,
    PROOF_PLAIN = GSP_SEALED_PROOF_BYTES - 16,
    SIGNED_FROM = 32 + GSP_SIGNATURE_BYTES, /* a proof is key, signature, then what is signed */
    STATEMENT_BYTES = 64 + 32 + PROOF_PLAIN - SIGNED_FROM,
};
/* Which message comes next. The second has two parts; after a refusal the other part is missing. */
enum { AWAITS_FIRST, AWAITS_SECOND, AWAITS_SECOND_PROOF, AWAITS_THIRD, AWAITS_VERDICT };
static const char NAME[32] = "atom gate handshake 1";

_Static_assert(FIRST_PLAIN + 24 + 16 == GSP_SEALED_FIRST_BYTES, "message 1");
_Static_assert(crypto_aead_xchacha20poly1305_ietf_NPUBBYTES == 24, "nonce");

/* hash = H(hash, data) */
static void mix(gsp_handshake *h, const void *data, size_t bytes)
{
    crypto_generichash_state s;
    crypto_generichash_init(&s, NULL, 0, sizeof h->hash);
    crypto_generichash_update(&s, h->hash, sizeof h->hash);
    crypto_generichash_update(&s, data, bytes);
    crypto_generichash_final(&s, h->hash, sizeof h->hash);
}

/* One key for each place a key is used at. */
static void derive(const uint8_t from[64], uint64_t which, uint8_t out[32])
{
    uint8_t label[8] = {(uint8_t)which};
    crypto_generichash(out, 32, label, sizeof label, from, 64);
}

static void begin(gsp_handshake *h, const gsp_handshake_config *config, const gsp_hello *hello,
                  uint64_t now_s)
{
    memset(h, 0, sizeof *h);
    h->config = config;
    h->hello = *hello;
    h->now_s = now_s;
    memcpy(h->hash, NAME, sizeof NAME);
    memcpy(h->hash + sizeof NAME, config->pool, GSP_POOL_BYTES);
}

/* A one-time nonce is enough: each of these keys seals exactly one message. */
static void seal(gsp_handshake *h, uint64_t which, const uint8_t *plain, size_t bytes)
{
    static const uint8_t nonce[24];
    uint8_t key[32], *out = h->out + h->out_bytes;
    derive(h->chain, which, key);
    crypto_aead_xchacha20poly1305_ietf_encrypt(out, NULL, plain, bytes, h->hash, sizeof h->hash,
                                               NULL, nonce, key);
    h->out_bytes += bytes + 16;
    mix(h, out, bytes + 16);
    sodium_memzero(key, sizeof key);
}

static bool unseal(gsp_handshake *h, uint64_t which, const uint8_t *sealed, size_t bytes,
                   uint8_t *plain)
{
    static const uint8_t nonce[24];
    uint8_t key[32];
    derive(h->chain, which, key);
    bool right = crypto_aead_xchacha20poly1305_ietf_decrypt(
                     plain, NULL, NULL, sealed, bytes, h->hash, sizeof h->hash, nonce, key) == 0;
    sodium_memzero(key, sizeof key);
    if (right)
        mix(h, sealed, bytes);
    return right;
}

/* Messages 1 and 2a: a random nonce under a key that only the pre-shared key and the direction fix,
 * over (number, version, time, ephemeral key). */
static void first_key(const gsp_handshake *h, const uint8_t psk[GSP_PSK_BYTES], bool by_dialler,
                      uint8_t out[32])
{
    uint8_t label[GSP_POOL_BYTES + 1];
    memcpy(label, h->config->pool, GSP_POOL_BYTES);
    label[GSP_POOL_BYTES] = by_dialler;
    crypto_generichash(out, 32, label, sizeof label, psk, GSP_PSK_BYTES);
}

static atom_status seal_first(gsp_handshake *h, uint16_t number)
{
    uint8_t plain[FIRST_PLAIN] = {0}, key[32], *out = h->out + h->out_bytes;
    uint8_t fresh[24 + 32];
    ATOM_TRY(atom_entropy(fresh, sizeof fresh));
    memcpy(out, fresh, 24);
    memcpy(h->secret, fresh + 24, 32);
    crypto_scalarmult_base(h->ephemeral, h->secret);
    atom_writer w = atom_writer_make(plain, sizeof plain);
    atom_write_uint(&w, number, 2);
    atom_write_uint(&w, GSP_HANDSHAKE_VERSION, 2);
    atom_write_uint(&w, h->now_s, 8);
    atom_write_bytes(&w, h->ephemeral, 32);
    first_key(h, h->psk, h->dialled, key);
    crypto_aead_xchacha20poly1305_ietf_encrypt(out + 24, NULL, plain, sizeof plain, h->hash,
                                               sizeof h->hash, NULL, out, key);
    h->out_bytes += GSP_SEALED_FIRST_BYTES;
    mix(h, out, GSP_SEALED_FIRST_BYTES);
    sodium_memzero(key, sizeof key);
    sodium_memzero(fresh, sizeof fresh);
    return ATOM_OK;
}

typedef struct first {
    uint16_t number, version;
    uint64_t time_s;
    uint8_t ephemeral[32];
} first;

static bool unseal_first(gsp_handshake *h, const uint8_t psk[GSP_PSK_BYTES], const uint8_t *in,
                         first *out)
{
    uint8_t plain[FIRST_PLAIN], key[32], rest[4];
    first_key(h, psk, !h->dialled, key);
    bool right = crypto_aead_xchacha20poly1305_ietf_decrypt(plain, NULL, NULL, in + 24,
                                                            GSP_SEALED_FIRST_BYTES - 24, h->hash,
                                                            sizeof h->hash, in, key) == 0;
    sodium_memzero(key, sizeof key);
    if (!right)
        return false;
    atom_reader r = atom_reader_make(plain, sizeof plain);
    out->number = atom_read_u16(&r);
    out->version = atom_read_u16(&r);
    out->time_s = atom_read_u64(&r);
    atom_read_bytes(&r, out->ephemeral, 32);
    atom_read_bytes(&r, rest, sizeof rest);
    mix(h, in, GSP_SEALED_FIRST_BYTES);
    return true;
}

/* chain = H(psk; e.e', hash); false for a degenerate key of the peer's. */
static bool agree(gsp_handshake *h, const uint8_t theirs[32])
{
    uint8_t product[32 + 64];
    bool right = crypto_scalarmult(product, h->secret, theirs) == 0;
    memcpy(product + 32, h->hash, sizeof h->hash);
    crypto_generichash(h->chain, sizeof h->chain, product, sizeof product, h->psk, sizeof h->psk);
    sodium_memzero(product, sizeof product);
    sodium_memzero(h->secret, sizeof h->secret);
    return right;
}

static gsp_purpose purpose(bool by_dialler)
{
    return by_dialler ? GSP_FOR_HANDSHAKE_DIAL : GSP_FOR_HANDSHAKE_ACCEPT;
}

/* hash, key, then hello and credential: what a proof's signature covers. */
static void statement(const gsp_handshake *h, const uint8_t *plain, uint8_t out[STATEMENT_BYTES])
{
    memcpy(out, h->hash, 64);
    memcpy(out + 64, plain, 32);
    memcpy(out + 96, plain + SIGNED_FROM, PROOF_PLAIN - SIGNED_FROM);
}

static void seal_proof(gsp_handshake *h, uint64_t which)
{
    uint8_t plain[PROOF_PLAIN] = {0}, said[STATEMENT_BYTES];
    const gsp_handshake_config *c = h->config;
    memcpy(plain, c->self->public_key, 32);
    atom_writer w = atom_writer_make(plain + SIGNED_FROM, sizeof plain - SIGNED_FROM);
    atom_write_uint(&w, h->hello.stream, 2);
    atom_write_uint(&w, h->hello.n_streams, 2);
    atom_write_uint(&w, h->hello.port, 2);
    atom_write_uint(&w, h->hello.boot, 8);
    atom_write_uint(&w, h->hello.link, 8);
    atom_write_uint(&w, 0, 8);
    atom_write_uint(&w, 0, 2);
    atom_write_bytes(&w, h->hello.target, sizeof h->hello.target);
    atom_write_uint(&w, c->credential_bytes, 2);
    atom_write_bytes(&w, c->credential, c->credential_bytes);
    ATOM_ASSERT(!w.bad);
    statement(h, plain, said);
    gsp_sign(c->self, purpose(h->dialled), said, sizeof said, plain + 32);
    seal(h, which, plain, sizeof plain);
}

static gsp_refusal unseal_proof(gsp_handshake *h, uint64_t which, const uint8_t *in)
{
    uint8_t plain[PROOF_PLAIN], said[STATEMENT_BYTES], hash[64], unused[10];
    memcpy(hash, h->hash, sizeof hash);
    if (!unseal(h, which, in, GSP_SEALED_PROOF_BYTES, plain))
        return GSP_REFUSED_HANDSHAKE;
    memcpy(said, hash, sizeof hash);
    memcpy(said + 64, plain, 32);
    memcpy(said + 96, plain + SIGNED_FROM, PROOF_PLAIN - SIGNED_FROM);
    if (!gsp_verify(plain, purpose(!h->dialled), said, sizeof said, plain + 32))
        return GSP_REFUSED_HANDSHAKE;
    atom_reader r = atom_reader_make(plain + SIGNED_FROM, sizeof plain - SIGNED_FROM);
    h->peer_hello.stream = atom_read_u16(&r);
    h->peer_hello.n_streams = atom_read_u16(&r);
    h->peer_hello.port = atom_read_u16(&r);
    h->peer_hello.boot = atom_read_u64(&r);
    h->peer_hello.link = atom_read_u64(&r);
    atom_read_bytes(&r, unused, sizeof unused);
    atom_read_bytes(&r, h->peer_hello.target, sizeof h->peer_hello.target);
    uint32_t bytes = atom_read_u16(&r);
    if (bytes > GSP_CREDENTIAL_BYTES_MAX)
        return GSP_REFUSED_CREDENTIAL;
    atom_read_bytes(&r, h->peer_credential, bytes);
    h->peer_credential_bytes = bytes;
    if (memcmp(plain, h->config->self->public_key, 32) == 0)
        return GSP_REFUSED_SELF;
    if (h->dialled && !h->any_peer && memcmp(plain, h->peer_key, 32) != 0)
        return GSP_REFUSED_KEY;
    memcpy(h->peer_key, plain, 32);
    gsp_refusal refusal =
        gsp_credential_check(h->peer_credential, bytes, h->config->pool, h->config->owner,
                             h->peer_key, h->now_s, &h->peer_role);
    if (refusal == GSP_WELCOME && h->old_key && h->peer_role == GSP_GUEST)
        refusal = GSP_REFUSED_EXPIRED; /* its ticket is from before the key was rotated */
    if (refusal == GSP_WELCOME && h->config->may_enter)
        refusal =
            h->config->may_enter(h->config->ctx, h->peer_key,
                                 gsp_credential_issuer(h->peer_credential, bytes), &h->peer_hello);
    return refusal;
}

static gsp_handshake_state refuse(gsp_handshake *h, gsp_refusal refusal)
{
    h->refusal = refusal;
    h->state = GSP_HANDSHAKE_REFUSED;
    return h->state;
}

static gsp_handshake_state finish(gsp_handshake *h)
{
    uint8_t last[64];
    crypto_generichash(last, sizeof last, h->hash, sizeof h->hash, h->chain, sizeof h->chain);
    derive(last, h->dialled ? 1 : 2, h->key_send);
    derive(last, h->dialled ? 2 : 1, h->key_receive);
    sodium_memzero(last, sizeof last);
    sodium_memzero(h->chain, sizeof h->chain);
    sodium_memzero(h->psk, sizeof h->psk);
    h->state = GSP_HANDSHAKE_DONE;
    return h->state;
}

/* True once per first message. */
static bool fresh(gsp_replays *replays, const uint8_t *in)
{
    uint64_t mark;
    if (!replays)
        return true;
    memcpy(&mark, in, sizeof mark);
    for (uint32_t i = 0; i < GSP_REPLAYS_MAX; i++)
        if (replays->seen[i] == mark)
            return false;
    replays->seen[replays->next] = mark;
    replays->next = (replays->next + 1) % GSP_REPLAYS_MAX;
    return true;
}

/* Acceptor, message 1. */
static gsp_handshake_state take_first(gsp_handshake *h)
{
    first f;
    uint32_t which = 0;
    while (which < h->config->n_psks && !unseal_first(h, h->config->psk[which], h->in, &f))
        which++;
    if (which == h->config->n_psks) {
        h->stranger = true;
        return refuse(h, GSP_REFUSED_HANDSHAKE); /* and not a byte in answer */
    }
    memcpy(h->psk, h->config->psk[which], GSP_PSK_BYTES);
    h->old_key = which > 0;
    gsp_refusal refusal = GSP_WELCOME;
    uint64_t apart = f.time_s > h->now_s ? f.time_s - h->now_s : h->now_s - f.time_s;
    if (f.version != GSP_HANDSHAKE_VERSION)
        refusal = GSP_REFUSED_VERSION;
    else if (apart > GSP_SKEW_SECONDS || !fresh(h->config->replays, h->in))
        refusal = GSP_REFUSED_CLOCK;
    if (seal_first(h, (uint16_t)refusal) != ATOM_OK)
        return refuse(h, GSP_REFUSED_FULL);
    if (refusal != GSP_WELCOME)
        return refuse(h, refusal);
    if (!agree(h, f.ephemeral)) {
        h->out_bytes = 0;
        return refuse(h, GSP_REFUSED_HANDSHAKE);
    }
    seal_proof(h, 2);
    h->step = AWAITS_THIRD;
    return h->state;
}

/* Dialler, message 2. Its second half is missing after a refusal. */
static gsp_handshake_state take_second(gsp_handshake *h)
{
    first f;
    if (!unseal_first(h, h->psk, h->in, &f)) {
        h->stranger = true;
        return refuse(h, GSP_REFUSED_HANDSHAKE);
    }
    if (f.number != GSP_WELCOME)
        return refuse(h, f.number < GSP_REFUSAL_N ? (gsp_refusal)f.number : GSP_REFUSED_HANDSHAKE);
    if (f.version != GSP_HANDSHAKE_VERSION)
        return refuse(h, GSP_REFUSED_VERSION);
    if (!agree(h, f.ephemeral))
        return refuse(h, GSP_REFUSED_HANDSHAKE);
    h->step = AWAITS_SECOND_PROOF;
    return h->state;
}

static gsp_handshake_state take_second_proof(gsp_handshake *h)
{
    gsp_refusal refusal = unseal_proof(h, 2, h->in);
    if (refusal != GSP_WELCOME)
        return refuse(h, refusal);
    h->proven = true;
    seal_proof(h, 3);
    h->step = AWAITS_VERDICT;
    return h->state;
}

/* Acceptor, message 3; answers with the verdict whatever it is. */
static gsp_handshake_state take_third(gsp_handshake *h)
{
    gsp_refusal refusal = unseal_proof(h, 3, h->in);
    uint8_t verdict[16] = {(uint8_t)refusal};
    if (refusal == GSP_REFUSED_HANDSHAKE)
        return refuse(h, refusal);
    seal(h, 4, verdict, sizeof verdict);
    return refusal == GSP_WELCOME ? finish(h) : refuse(h, refusal);
}

static gsp_handshake_state take_verdict(gsp_handshake *h)
{
    uint8_t verdict[16];
    if (!unseal(h, 4, h->in, GSP_SEALED_VERDICT_BYTES, verdict))
        return refuse(h, GSP_REFUSED_HANDSHAKE);
    if (verdict[0] != GSP_WELCOME)
        return refuse(h,
                      verdict[0] < GSP_REFUSAL_N ? (gsp_refusal)verdict[0] : GSP_REFUSED_HANDSHAKE);
    return finish(h);
}

atom_status gsp_handshake_dial(gsp_handshake *h, const gsp_handshake_config *config,
                               const gsp_hello *hello, const uint8_t *peer, uint64_t now_s)
{
    begin(h, config, hello, now_s);
    h->dialled = true;
    h->any_peer = !peer;
    if (peer)
        memcpy(h->peer_key, peer, sizeof h->peer_key);
    ATOM_ASSERT(config->n_psks >= 1 && config->n_psks <= GSP_PSKS_MAX);
    memcpy(h->psk, config->psk[0], GSP_PSK_BYTES);
    h->step = AWAITS_SECOND;
    return seal_first(h, 0);
}

void gsp_handshake_accept(gsp_handshake *h, const gsp_handshake_config *config,
                          const gsp_hello *hello, uint64_t now_s)
{
    begin(h, config, hello, now_s);
    h->step = AWAITS_FIRST;
}

static size_t wanted(const gsp_handshake *h)
{
    switch (h->step) {
    case AWAITS_FIRST:
    case AWAITS_SECOND:
        return GSP_SEALED_FIRST_BYTES;
    case AWAITS_SECOND_PROOF:
    case AWAITS_THIRD:
        return GSP_SEALED_PROOF_BYTES;
    default:
        return GSP_SEALED_VERDICT_BYTES;
    }
}

static gsp_handshake_state take(gsp_handshake *h)
{
    switch (h->step) {
    case AWAITS_FIRST:
        return take_first(h);
    case AWAITS_SECOND:
        return take_second(h);
    case AWAITS_SECOND_PROOF:
        return take_second_proof(h);
    case AWAITS_THIRD:
        return take_third(h);
    default:
        return take_verdict(h);
    }
}

gsp_handshake_state gsp_handshake_feed(gsp_handshake *h, const void *data, size_t bytes,
                                       size_t *used)
{
    *used = 0;
    ATOM_ASSERT(h->out_bytes == 0 || h->state != GSP_HANDSHAKE_GOES_ON);
    if (h->state != GSP_HANDSHAKE_GOES_ON)
        return h->state;
    size_t want = wanted(h) - h->in_bytes;
    size_t n = bytes < want ? bytes : want;
    memcpy(h->in + h->in_bytes, data, n);
    h->in_bytes += n;
    *used = n;
    if (n < want)
        return h->state;
    h->in_bytes = 0;
    return take(h);
}

size_t gsp_handshake_wants(const gsp_handshake *h)
{
    return h->state == GSP_HANDSHAKE_GOES_ON ? wanted(h) - h->in_bytes : 0;
}

void gsp_handshake_sent(gsp_handshake *h)
{
    h->out_bytes = 0;
}

void gsp_handshake_wipe(gsp_handshake *h)
{
    sodium_memzero(h, sizeof *h);
}
