/* A pool for tests: an owner, n members with admissions, one pre-shared key. */
#ifndef TESTS_LIB_GOSSIP_POOL_H
#define TESTS_LIB_GOSSIP_POOL_H

#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "gossip/net/net_nanomsg.h"

#include <stdlib.h>
#include <string.h>

enum { TEST_MEMBERS_MAX = 34 };

typedef struct test_pool {
    gsp_identity owner, member[TEST_MEMBERS_MAX];
    uint8_t pool[GSP_POOL_BYTES], psk[GSP_PSK_BYTES];
} test_pool;

static inline void test_must(atom_status st)
{
    if (st != ATOM_OK) {
        atom_log(ATOM_LOG_ERROR, "%s", atom_fail_message());
        abort();
    }
}

static inline void test_pool_make(test_pool *p, uint8_t salt)
{
    uint8_t seed[32] = {salt, 1};
    memset(p, 0, sizeof *p);
    test_must(gsp_identity_from_seed(seed, &p->owner));
    memset(p->pool, salt + 1, sizeof p->pool);
    memset(p->psk, salt + 2, sizeof p->psk);
    for (unsigned i = 0; i < TEST_MEMBERS_MAX; i++) {
        seed[1] = 2;
        seed[2] = (uint8_t)i;
        test_must(gsp_identity_from_seed(seed, &p->member[i]));
    }
}

static inline uint64_t test_now_s(void)
{
    return (uint64_t)atom_wall_seconds();
}

/* The handshake's configuration of member i: admitted for an hour. */
static inline gsp_handshake_config test_member(const test_pool *p, unsigned i)
{
    gsp_handshake_config c = {.self = &p->member[i], .n_psks = 1};
    gsp_admission a = {.manifest = 1, .issued_s = test_now_s(), .expires_s = test_now_s() + 3600};
    memcpy(c.pool, p->pool, sizeof c.pool);
    memcpy(c.owner, p->owner.public_key, sizeof c.owner);
    memcpy(c.psk[0], p->psk, sizeof c.psk[0]);
    memcpy(a.pool, p->pool, sizeof a.pool);
    memcpy(a.member, p->member[i].public_key, sizeof a.member);
    gsp_admission_sign(&a, &p->owner);
    gsp_admission_encode(&a, c.credential);
    c.credential_bytes = GSP_ADMISSION_BYTES;
    return c;
}

static inline gsp_address test_address(const char *text)
{
    gsp_address a;
    test_must(gsp_address_parse(text, &a));
    return a;
}

static inline gsp_address test_loopback(uint16_t port)
{
    gsp_address a = test_address("127.0.0.1:1");
    a.port = port;
    return a;
}

#endif
