/*
 * Owns the contact's layout and the order of its checks. Its one idea: cheap before dear: a
 * stranger's bytes fail at the seal, damage at the layout, age before any signature is looked at.
 * It refuses to believe a contact because it came from a good place: only its own signatures count.
 */
#include "gossip/directory/contact.h"

#include "atom/base/assert.h"
#include "atom/base/bytes.h"

#include <sodium.h>
#include <string.h>

enum {
    LAYOUT = 1,
    NONCE_BYTES = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
    TAG_BYTES = crypto_aead_xchacha20poly1305_ietf_ABYTES,
};
_Static_assert(GSP_CONTACT_SEALED_BYTES_MAX == NONCE_BYTES + GSP_CONTACT_BODY_BYTES_MAX + TAG_BYTES,
               "nonce, body and tag");
_Static_assert(GSP_CONTACT_SEALED_BYTES_MAX <= 1024, "docs/design/pool.md#directory");

/* Everything but the signature. */
static void write_claims(atom_writer *w, const gsp_contact *c)
{
    atom_write_uint(w, LAYOUT, 1);
    atom_write_bytes(w, c->key, sizeof c->key);
    atom_write_uint(w, c->sequence, 8);
    atom_write_uint(w, c->issued_s, 8);
    atom_write_uint(w, c->expires_s, 8);
    atom_write_bytes(w, c->lineage, sizeof c->lineage);
    atom_write_uint(w, c->version, 8);
    atom_write_uint(w, c->samples, 8);
    atom_write_uint(w, c->directory_port, 2);
    atom_write_uint(w, c->n_addresses, 1);
    for (uint32_t i = 0; i < c->n_addresses; i++) {
        atom_write_bytes(w, c->address[i].ip, sizeof c->address[i].ip);
        atom_write_uint(w, c->address[i].port, 2);
    }
    atom_write_uint(w, c->credential_bytes, 2);
    atom_write_bytes(w, c->credential, c->credential_bytes);
}

/* What is signed: the pool, then the claims. A signature of one pool is nothing in another. */
static size_t statement(const gsp_contact *c, const uint8_t pool[GSP_POOL_BYTES],
                        uint8_t out[GSP_POOL_BYTES + GSP_CONTACT_BODY_BYTES_MAX])
{
    atom_writer w = atom_writer_make(out, GSP_POOL_BYTES + GSP_CONTACT_BODY_BYTES_MAX);
    atom_write_bytes(&w, pool, GSP_POOL_BYTES);
    write_claims(&w, c);
    ATOM_ASSERT(!w.bad);
    return (size_t)(w.at - out);
}

void gsp_contact_sign(gsp_contact *contact, const uint8_t pool[GSP_POOL_BYTES],
                      const gsp_identity *self)
{
    uint8_t message[GSP_POOL_BYTES + GSP_CONTACT_BODY_BYTES_MAX];
    ATOM_ASSERT(memcmp(contact->key, self->public_key, sizeof contact->key) == 0);
    ATOM_ASSERT(contact->n_addresses <= GSP_CONTACT_ADDRESSES_MAX &&
                contact->credential_bytes <= GSP_CREDENTIAL_BYTES_MAX);
    size_t bytes = statement(contact, pool, message);
    gsp_sign(self, GSP_FOR_DIRECTORY, message, bytes, contact->signature);
}

size_t gsp_contact_encode(const gsp_contact *contact, uint8_t out[GSP_CONTACT_BODY_BYTES_MAX])
{
    atom_writer w = atom_writer_make(out, GSP_CONTACT_BODY_BYTES_MAX);
    ATOM_ASSERT(contact->n_addresses <= GSP_CONTACT_ADDRESSES_MAX &&
                contact->credential_bytes <= GSP_CREDENTIAL_BYTES_MAX);
    write_claims(&w, contact);
    atom_write_bytes(&w, contact->signature, sizeof contact->signature);
    ATOM_ASSERT(!w.bad);
    return (size_t)(w.at - out);
}

bool gsp_contact_decode(const void *body, size_t bytes, gsp_contact *out)
{
    gsp_contact c = {0};
    atom_reader r = atom_reader_make(body, bytes);
    bool right = atom_read_u8(&r) == LAYOUT;
    atom_read_bytes(&r, c.key, sizeof c.key);
    c.sequence = atom_read_u64(&r);
    c.issued_s = atom_read_u64(&r);
    c.expires_s = atom_read_u64(&r);
    atom_read_bytes(&r, c.lineage, sizeof c.lineage);
    c.version = atom_read_u64(&r);
    c.samples = atom_read_u64(&r);
    c.directory_port = atom_read_u16(&r);
    c.n_addresses = atom_read_u8(&r);
    if (!right || c.n_addresses > GSP_CONTACT_ADDRESSES_MAX)
        return false;
    for (uint32_t i = 0; i < c.n_addresses; i++) {
        atom_read_bytes(&r, c.address[i].ip, sizeof c.address[i].ip);
        c.address[i].port = atom_read_u16(&r);
        if (c.address[i].port == 0)
            return false;
    }
    c.credential_bytes = atom_read_u16(&r);
    if (c.credential_bytes > GSP_CREDENTIAL_BYTES_MAX)
        return false;
    atom_read_bytes(&r, c.credential, c.credential_bytes);
    atom_read_bytes(&r, c.signature, sizeof c.signature);
    if (!atom_reader_ok(&r) || atom_reader_left(&r) != 0)
        return false;
    *out = c;
    return true;
}

/* The sealing key is not the handshake's: one key, one use. */
static void sealing_key(const uint8_t psk[GSP_PSK_BYTES], uint8_t out[32])
{
    static const char PURPOSE[] = "atom contact 1";
    crypto_generichash(out, 32, (const uint8_t *)PURPOSE, sizeof PURPOSE, psk, GSP_PSK_BYTES);
}

size_t gsp_contact_seal(const gsp_contact *contact, const uint8_t psk[GSP_PSK_BYTES],
                        uint8_t out[GSP_CONTACT_SEALED_BYTES_MAX])
{
    uint8_t body[GSP_CONTACT_BODY_BYTES_MAX], key[32];
    unsigned long long sealed = 0;
    size_t bytes = gsp_contact_encode(contact, body);
    sealing_key(psk, key);
    randombytes_buf(out, NONCE_BYTES);
    crypto_aead_xchacha20poly1305_ietf_encrypt(out + NONCE_BYTES, &sealed, body, bytes, NULL, 0,
                                               NULL, out, key);
    explicit_bzero(key, sizeof key);
    return NONCE_BYTES + (size_t)sealed;
}

static bool welcome(const gsp_contact *c, const gsp_handshake_config *config, uint64_t now_s)
{
    static const gsp_hello hello;
    gsp_role role = GSP_GUEST;
    if (gsp_credential_check(c->credential, c->credential_bytes, config->pool, config->owner,
                             c->key, now_s, &role) != GSP_WELCOME ||
        role == GSP_GUEST)
        return false;
    return !config->may_enter ||
           config->may_enter(config->ctx, c->key,
                             gsp_credential_issuer(c->credential, c->credential_bytes),
                             &hello) == GSP_WELCOME;
}

gsp_contact_verdict gsp_contact_judge(const gsp_contact *contact,
                                      const gsp_handshake_config *config, uint64_t now_s)
{
    uint8_t message[GSP_POOL_BYTES + GSP_CONTACT_BODY_BYTES_MAX];
    if (config->self && memcmp(contact->key, config->self->public_key, sizeof contact->key) == 0)
        return GSP_CONTACT_SELF;
    if (contact->issued_s > now_s + GSP_SKEW_SECONDS || contact->expires_s < contact->issued_s ||
        contact->expires_s - contact->issued_s > GSP_CONTACT_LIFE_SECONDS_MAX ||
        contact->expires_s + GSP_SKEW_SECONDS < now_s)
        return GSP_CONTACT_OLD;
    size_t bytes = statement(contact, config->pool, message);
    if (!gsp_verify(contact->key, GSP_FOR_DIRECTORY, message, bytes, contact->signature))
        return GSP_CONTACT_FORGED;
    return welcome(contact, config, now_s) ? GSP_CONTACT_GOOD : GSP_CONTACT_STRANGER;
}

gsp_contact_verdict gsp_contact_open(const void *sealed, size_t bytes,
                                     const gsp_handshake_config *config, uint64_t now_s,
                                     gsp_contact *out)
{
    const uint8_t *nonce = sealed;
    uint8_t body[GSP_CONTACT_BODY_BYTES_MAX], key[32];
    unsigned long long opened = 0;
    gsp_contact c;
    bool found = false;
    if (bytes < NONCE_BYTES + TAG_BYTES || bytes > GSP_CONTACT_SEALED_BYTES_MAX)
        return GSP_CONTACT_NOISE;
    for (uint32_t i = 0; i < config->n_psks && !found; i++) {
        sealing_key(config->psk[i], key);
        found = crypto_aead_xchacha20poly1305_ietf_decrypt(body, &opened, NULL, nonce + NONCE_BYTES,
                                                           bytes - NONCE_BYTES, NULL, 0, nonce,
                                                           key) == 0;
    }
    explicit_bzero(key, sizeof key);
    if (!found)
        return GSP_CONTACT_NOISE;
    if (!gsp_contact_decode(body, (size_t)opened, &c))
        return GSP_CONTACT_MALFORMED;
    gsp_contact_verdict verdict = gsp_contact_judge(&c, config, now_s);
    if (verdict == GSP_CONTACT_GOOD)
        *out = c;
    return verdict;
}
