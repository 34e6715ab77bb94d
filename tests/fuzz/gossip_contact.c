/* Any bytes as a contact: refused, or a body that comes back as itself. The seal is put on in a
 * second try, so that what is behind it is reached. */
#include "atom/base/assert.h"
#include "gossip/directory/contact.h"

#include <sodium.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static gsp_handshake_config who = {.pool = {2}, .owner = {3}, .psk = {{4}}, .n_psks = 1};
    static gsp_identity self;
    static const uint8_t seed[GSP_SEED_BYTES] = {5};
    uint8_t body[GSP_CONTACT_BODY_BYTES_MAX], sealed[GSP_CONTACT_SEALED_BYTES_MAX];
    gsp_contact c, back;
    ATOM_ASSERT(gsp_identity_from_seed(seed, &self) == ATOM_OK);
    who.self = &self;
    /* Nobody here has the owner's key: nothing may be good. */
    ATOM_ASSERT(gsp_contact_open(data, size, &who, 1000, &back) != GSP_CONTACT_GOOD);
    if (!gsp_contact_decode(data, size, &c))
        return 0;
    ATOM_ASSERT(gsp_contact_encode(&c, body) == size && memcmp(body, data, size) == 0);
    ATOM_ASSERT(gsp_contact_judge(&c, &who, 1000) != GSP_CONTACT_GOOD);
    size_t n = gsp_contact_seal(&c, who.psk[0], sealed);
    ATOM_ASSERT(gsp_contact_open(sealed, n, &who, 1000, &back) != GSP_CONTACT_NOISE);
    /* Signed by ourselves as somebody else would be: still not a member. */
    memcpy(c.key, self.public_key, sizeof c.key);
    gsp_contact_sign(&c, who.pool, &self);
    who.self = NULL;
    ATOM_ASSERT(gsp_contact_judge(&c, &who, c.issued_s) != GSP_CONTACT_FORGED);
    ATOM_ASSERT(gsp_contact_judge(&c, &who, c.issued_s) != GSP_CONTACT_GOOD);
    return 0;
}
