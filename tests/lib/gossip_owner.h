/*
 * A pool's owner and hosts with its ticket, each with a door in a directory of its own, that talk by calls: for
 * tests of who gets in.
 */
#ifndef TESTS_LIB_GOSSIP_OWNER_H
#define TESTS_LIB_GOSSIP_OWNER_H

#include "gossip/pool/door.h"
#include "tests/lib/gossip_pool.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const gsp_hosts HOSTS = {.n = 1, .host = {"192.0.2.7:4400"}};

/* A pool's owner in a directory of its own, with manifest 1 and a ticket for `count` hosts. */
typedef struct owner {
    scratch place;
    gsp_door door;
} owner;

static inline void owner_open(owner *o, uint32_t count)
{
    memset(o, 0, sizeof *o);
    test_must(gsp_door_open(&o->door, scratch_open(&o->place)->dir));
    gsp_door *d = &o->door;
    gsp_manifest *m = d->manifest;
    memset(d->pool, 3, sizeof d->pool);
    memset(d->psk[0], 4, sizeof d->psk[0]);
    d->n_psks = 1;
    d->rotated_s = test_now_s() - 10;
    memcpy(d->owner, d->identity.public_key, sizeof d->owner);
    m->number = 1;
    memcpy(m->pool, d->pool, sizeof m->pool);
    memcpy(m->owner, d->owner, sizeof m->owner);
    memcpy(m->founder, d->owner, sizeof m->founder);
    m->n_fragments = 1;
    m->n_floats[0] = 1000;
    m->codec = GSP_CODEC_FP32;
    gsp_manifest_key_hash(d->psk[0], &m->key);
    test_must(gsp_manifest_complete(m));
    gsp_manifest_sign(m, &d->identity);
    test_must(gsp_manifest_text(m, &d->manifest_text));
    d->has_manifest = true;
    test_must(gsp_door_save_keys(d));
    test_must(gsp_door_save_manifest(d));
    test_must(gsp_door_load_owner(d));
    test_must(gsp_door_new_ticket(d, &HOSTS, count, 1));
}

static inline void owner_close(owner *o)
{
    gsp_door_close(&o->door);
    scratch_close(&o->place);
}

/* A host with its ticket, in a directory of its own. */
static inline void guest_open(gsp_door *d, scratch *place, const char *text)
{
    gsp_ticket t;
    memset(d, 0, sizeof *d);
    test_must(gsp_door_open(d, scratch_open(place)->dir));
    test_must(gsp_ticket_parse(text, &t));
    test_must(gsp_door_take_ticket(d, &t));
}

static inline void guest_close(gsp_door *d, scratch *place)
{
    gsp_door_close(d);
    scratch_close(place);
}

/* Asks whoever admits with what the host holds now. */
static inline uint8_t ask_door(gsp_door *of, const gsp_door *d, gsp_word *answer)
{
    gsp_word m = {.kind = GSP_WORD_ASK_ADMISSION, .credential_bytes = d->credential_bytes};
    memcpy(m.key, d->identity.public_key, sizeof m.key);
    memcpy(m.credential, d->credential, d->credential_bytes);
    (void)gsp_door_admit(of, &m, answer);
    assert_memory_equal(answer->key, m.key, sizeof m.key);
    return answer->refusal;
}

static inline uint8_t ask(owner *o, const gsp_door *d, gsp_word *answer)
{
    return ask_door(&o->door, d, answer);
}

static inline bool take(gsp_door *d, const gsp_word *answer)
{
    return gsp_door_take_admission(d, answer->credential, answer->credential_bytes, test_now_s());
}

#endif
