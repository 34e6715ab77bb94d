/* Contacts for tests: signed ones of the members of a test pool. */
#ifndef TESTS_LIB_GOSSIP_CONTACT_H
#define TESTS_LIB_GOSSIP_CONTACT_H

#include "gossip/directory/contact.h"
#include "tests/lib/gossip_pool.h"

/* Member i at 127.0.0.1:4400+i, good for half an hour. Change it, then sign it again. */
static inline gsp_contact test_contact(const test_pool *p, unsigned i, uint64_t sequence)
{
    gsp_handshake_config who = test_member(p, i);
    gsp_contact c = {.sequence = sequence,
                     .issued_s = test_now_s(),
                     .expires_s = test_now_s() + 1800,
                     .version = 7,
                     .samples = 1000,
                     .n_addresses = 1,
                     .credential_bytes = who.credential_bytes};
    memcpy(c.key, who.self->public_key, sizeof c.key);
    memcpy(c.credential, who.credential, sizeof c.credential);
    c.address[0] = test_loopback((uint16_t)(4400 + i));
    gsp_contact_sign(&c, p->pool, who.self);
    return c;
}

#endif
