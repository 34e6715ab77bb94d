/* Any bytes as a ticket, an address or a credential: refused, or text that comes back as itself.
 * The checksum is mended in a second try, so that what is behind it is reached. */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "gossip/gate/net_address.h"
#include "gossip/trust/ticket.h"

#include <sodium.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_text(const char *text)
{
    static gsp_ticket t, back;
    char again[GSP_TICKET_TEXT_BYTES], once_more[GSP_TICKET_TEXT_BYTES];
    if (gsp_ticket_parse(text, &t) != ATOM_OK)
        return;
    ATOM_ASSERT(gsp_ticket_text(&t, again) == ATOM_OK);
    ATOM_ASSERT(gsp_ticket_parse(again, &back) == ATOM_OK);
    ATOM_ASSERT(gsp_ticket_text(&back, once_more) == ATOM_OK);
    ATOM_ASSERT(strcmp(again, once_more) == 0);
    ATOM_ASSERT(gsp_ticket_check(&t, 1000) != ATOM_OK || !t.has_invite);
}

static void try_body(const uint8_t *data, size_t size)
{
    uint8_t body[1400], hash[32];
    char text[2 * sizeof body] = "atom1-";
    if (size > sizeof body - 4)
        size = sizeof body - 4;
    memcpy(body, data, size);
    crypto_generichash(hash, sizeof hash, body, size, (const uint8_t *)"atom ticket checksum", 20);
    memcpy(body + size, hash, 4);
    sodium_bin2base64(text + 6, sizeof text - 6, body, size + 4,
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    try_text(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t key[32] = {1}, pool[32] = {2}, owner[32] = {3};
    gsp_role role;
    gsp_invite invite;
    gsp_address address, back;
    char buf[GSP_ADDRESS_TEXT_BYTES];
    ATOM_ASSERT(gsp_crypto_start() == ATOM_OK);
    char *text = atom_strndup((const char *)data, size);
    ATOM_ASSERT(text);
    try_text(text);
    try_body(data, size);
    if (gsp_address_parse(text, &address) == ATOM_OK) {
        ATOM_ASSERT(gsp_address_parse(gsp_address_text(&address, buf), &back) == ATOM_OK);
        ATOM_ASSERT(gsp_address_equal(&address, &back));
    }
    /* Nobody has the owner's key here: nothing may be welcome. */
    ATOM_ASSERT(gsp_credential_check(data, size, pool, owner, key, 1000, &role) != GSP_WELCOME);
    if (gsp_credential_invite(data, size, &invite))
        ATOM_ASSERT(invite.count > 0 && invite.count <= GSP_INVITE_COUNT_MAX);
    const uint8_t *issuer = gsp_credential_issuer(data, size);
    ATOM_ASSERT(!issuer || (issuer >= data && issuer + GSP_PUBLIC_BYTES <= data + size));
    (void)gsp_credential_ends(data, (uint32_t)size);
    atom_free(text);
    return 0;
}
