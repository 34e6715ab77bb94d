/*
 * What the driver of one machine does with chains: it keeps the one that led to where the machine is,
 * hears those of others step by step, and hands over the states at their ends. All of it by the
 * driver's own code (gossip/member/trail.h, inquiry.h).
 */
#ifndef TESTS_FUZZ_FORGE_DRIVER_H
#define TESTS_FUZZ_FORGE_DRIVER_H

#include "gossip/agree/agree.h"
#include "gossip/member/inquiry.h"
#include "tests/fuzz/forge_fields.h"
#include "tests/fuzz/forge_seals.h"

#include "atom/base/assert.h"

typedef struct forge_driver {
    gsp_seals seals;
    gsp_chain_terms terms;
    gsp_trail trail;
    gsp_inquiry inquiry;
    gsp_saved disk; /* what was applied last */
} forge_driver;

static inline void forge_must(atom_status st)
{
    ATOM_ASSERT(st == ATOM_OK);
}

/* A first lineage of host 0 alone, which lets the others in: at most as many at once as may be. Fills
 * in genesis and certificate of version 5 with n members on the roster; all of it is signed. */
static inline void forge_driver_open(forge_driver *d, const gsp_rules *rules, uint32_t n,
                                     gsp_saved *saved)
{
    static const forge_keys all = {UINT64_MAX};
    const gsp_key founder = forge_member(0).key;
    gsp_certificate *c = &saved->certificate;
    gsp_step step = {.is_genesis = true};
    gsp_roster roster = {.n = 1, .member = {forge_member(0)}};
    d->seals = forge_seals(NULL);
    d->terms = (gsp_chain_terms){.seals = &d->seals, .trust = rules->trust, .owner = rules->owner};
    saved->genesis.founder = forge_member(0);
    saved->has_certificate = true;
    forge_sign_genesis(&all, &founder, &saved->genesis);
    gsp_genesis_hash(&d->seals, &saved->genesis, &c->proposal.lineage);
    d->terms.first = c->proposal.lineage;
    gsp_trail_open(&d->trail, &d->terms);
    step.as.genesis = saved->genesis;
    forge_must(gsp_trail_add(&d->trail, &step, true)); /* whoever is the owner of this pool */
    for (uint64_t version = n > 4 ? 4 : 5; version <= 5; version++) {
        uint32_t next = version == 4 ? 4 : n;
        c->proposal.version = version;
        c->proposal.since = d->trail.end.made;
        c->proposal.made = version;
        c->ballot = 1;
        c->n_votes = roster.n;
        for (uint32_t i = 0; i < roster.n; i++)
            c->vote[i].member = (uint8_t)i;
        c->proposal.next.n = next;
        for (uint32_t i = 0; i < next; i++)
            c->proposal.next.member[i] = forge_member(i);
        forge_sign_certificate(&all, &roster, c);
        forge_must(gsp_trail_certify(&d->trail, c));
        roster = c->proposal.next;
    }
    d->disk = *saved;
}

static inline void forge_driver_close(forge_driver *d)
{
    gsp_inquiry_end(&d->inquiry);
    gsp_trail_close(&d->trail);
}

static inline void forge_driver_apply(forge_driver *d, const gsp_certificate *c)
{
    forge_must(gsp_trail_certify(&d->trail, c));
    d->disk.has_certificate = true;
    d->disk.certificate = *c;
}

static inline void forge_driver_found(forge_driver *d, const gsp_genesis *g)
{
    forge_must(
        gsp_trail_begin(&d->trail, d->disk.has_certificate ? &d->disk.certificate : NULL, g));
    d->disk.genesis = *g;
    d->disk.has_certificate = false;
    memset(&d->disk.certificate, 0, sizeof d->disk.certificate);
}

static inline void forge_driver_adopt(forge_driver *d, const gsp_saved *saved)
{
    forge_must(gsp_trail_copy(&d->trail, &d->inquiry.theirs));
    forge_must(gsp_trail_settle(&d->trail, saved));
    d->disk = *saved;
}

#endif
