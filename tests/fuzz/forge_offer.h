/*
 * Chains that a fuzzer makes, and states that it offers at their ends: they begin as the victim's own,
 * and go on with forks, resets and certificates whose fields are changed and signed again.
 */
#ifndef TESTS_FUZZ_FORGE_OFFER_H
#define TESTS_FUZZ_FORGE_OFFER_H

#include "tests/fuzz/forge_pool.h"

enum { FORGE_STEPS_SAID = 4 };

typedef struct forge_offer {
    uint64_t after; /* what is certified there has a later version */
    gsp_chain end;  /* where the steps lead that follow each other */
    uint32_t n;
    gsp_step step[FORGE_STEPS_SAID];
    gsp_saved saved;
    forge_fields fields;
} forge_offer;

static inline void forge_change_some(forge_fields *fields, forge_script *s)
{
    uint32_t changes = forge_draw(s, 6);
    for (uint32_t k = 0; changes > 2 && k < changes - 2; k++)
        forge_change(fields, s);
}

static inline void forge_offer_genesis(forge_offer *o, const forge_keys *keys, forge_script *s)
{
    const gsp_chain *end = &o->end;
    uint32_t who = forge_draw(s, end->roster.n), mask = forge_draw(s, 256), how = forge_draw(s, 4);
    gsp_genesis g = {.pool = end->pool,
                     .reset = end->reset,
                     .order = end->order,
                     .generation = end->generation + 1,
                     .parent = end->lineage,
                     .version = end->version,
                     .previous = end->newest,
                     .tokens = end->tokens,
                     .samples = end->samples,
                     .founder = end->roster.member[who]};
    g.founder.incarnation++;
    for (uint32_t i = 0; how && i < end->roster.n; i++)
        if (i == who || how == 1 || (mask >> (i % 8) & 1)) {
            g.roster.member[g.roster.n] = end->roster.member[i];
            g.roster.member[g.roster.n++].incarnation++;
        }
    if (g.roster.n < 2)
        memset(&g.roster, 0, sizeof g.roster);
    if (how == 0 && (mask & 1)) {
        g.reset++;
        g.founder = (gsp_member){.key = forge.rules.owner, .incarnation = 2};
    }
    o->fields.n = 0;
    forge_genesis(&o->fields, &g);
    forge_change_some(&o->fields, s);
    if (g.reset != end->reset)
        forge_sign_genesis(keys, &forge.rules.owner, &g);
    else
        forge_sign_founders(keys, &g); /* it repeats the order */
    memset(&o->saved, 0, sizeof o->saved);
    o->saved.genesis = g;
    o->step[o->n].is_genesis = true;
    o->step[o->n++].as.genesis = g;
}

/* Votes of everybody, but for one now and then. */
static inline void forge_offer_certificate(forge_offer *o, const forge_keys *keys, forge_script *s)
{
    const gsp_chain *end = &o->end;
    const gsp_seals seals = forge_seals(NULL);
    gsp_certificate *c = &o->saved.certificate;
    gsp_proposal *p = &c->proposal;
    uint32_t how = forge_draw(s, 16), silent = forge_draw(s, 64);
    memset(c, 0, sizeof *c);
    *p = (gsp_proposal){.lineage = end->lineage,
                        .version = o->after + 1 + (how & 1 ? 0 : forge_draw(s, 64)),
                        .previous = end->newest,
                        .tokens = end->tokens + forge_draw(s, 64),
                        .samples = end->samples + forge_draw(s, 64),
                        .n_parts = FORGE_PARTS,
                        .since = end->made,
                        .next = end->roster};
    if ((how & 6) == 6 && p->next.n > 1) { /* the last one is gone */
        p->next.n--;
        memset(&p->next.member[p->next.n], 0, sizeof p->next.member[0]);
    } else if ((how & 6) == 4 && p->next.n < GSP_MEMBERS_MAX) { /* somebody new */
        p->next.member[p->next.n++] = forge_member(FORGE_KEYS + forge_draw(s, 8));
    }
    p->made = gsp_roster_equal(&p->next, &end->roster) ? end->made : p->version;
    c->ballot = 1;
    for (uint32_t i = 0; i < end->roster.n; i++)
        if (i != silent)
            c->vote[c->n_votes++].member = (uint8_t)i;
    o->fields.n = 0;
    forge_certificate(&o->fields, c);
    forge_change_some(&o->fields, s);
    if (!gsp_proposal_fits(p) || c->n_votes > GSP_MEMBERS_MAX)
        return;
    forge_sign_certificate(keys, &end->roster, c);
    o->saved.has_certificate = true;
    o->step[o->n].is_genesis = false;
    gsp_chain_link_of(&seals, c, &o->step[o->n++].as.link);
}

/* Steps after the first n of the victim's own, each of which follows the one before, but for changes
 * of its fields. */
static inline void forge_offer_make(forge_offer *o, const forge_keys *keys, uint32_t n,
                                    forge_script *s)
{
    static gsp_step step;
    const forge_driver *d = &forge.driver;
    uint32_t more = 1 + forge_draw(s, FORGE_STEPS_SAID), last = 0;
    memset(o, 0, sizeof *o);
    gsp_trail_lead(&d->trail, n, &o->end);
    o->after = o->end.version;
    if (n == d->trail.n && d->disk.has_certificate && forge_draw(s, 4))
        o->after = d->disk.certificate.proposal.version;
    for (uint32_t i = 0; i < n; i++) {
        gsp_trail_read(&d->trail, i, &step);
        if (step.is_genesis)
            o->saved.genesis = step.as.genesis;
    }
    for (uint32_t k = 0; k < more && o->n == last; k++) {
        if (o->end.still || forge_draw(s, 3) == 0) /* or nothing but a fork may follow */
            forge_offer_genesis(o, keys, s);
        else
            forge_offer_certificate(o, keys, s);
        if (o->n == last || gsp_chain_take(&d->terms, &o->end, &o->step[last], true))
            return; /* nothing follows that */
        o->after = o->end.version;
        last++;
    }
}

/* The steps as a message, and what the driver makes of it; false: no chain. */
static inline bool forge_offer_say(const forge_offer *o, const gsp_key *from, uint32_t n,
                                   forge_script *s)
{
    static uint8_t bytes[GSP_WIRE_BYTES_MAX];
    static gsp_message m, arrives;
    forge_driver *d = &forge.driver;
    memset(&m, 0, sizeof m);
    m.kind = GSP_CHAIN;
    m.lineage = o->end.lineage;
    m.as.chain.after = d->trail.step[n - 1].id;
    m.as.chain.n = o->n;
    memcpy(m.as.chain.step, o->step, sizeof o->step);
    m.as.chain.more = forge_draw(s, 16) == 15;
    size_t size = gsp_wire_encode(&m, bytes, sizeof bytes);
    gsp_inquiry_begin(&d->inquiry, &d->terms, from, forge.now_ns);
    return size && gsp_wire_decode(bytes, size, from, &arrives, NULL, NULL) &&
           gsp_inquiry_heard(&d->inquiry, &d->trail, &arrives.as.chain, forge.now_ns) ==
               GSP_INQUIRY_WHOLE;
}

/* Now and then the state is not the one where the chain ends, or its seals are others: no id tells. */
static inline void forge_offer_spoil(forge_offer *o, gsp_saved *saved, forge_script *s)
{
    const gsp_saved *mine = &forge.driver.disk;
    switch (forge_draw(s, 12)) {
    case 0:
        saved->has_certificate = false;
        break;
    case 1:
        saved->genesis = mine->genesis;
        break;
    case 2:
        saved->certificate = mine->certificate;
        saved->has_certificate = true;
        break;
    case 3:
        o->fields.n = 0;
        forge_genesis(&o->fields, &saved->genesis);
        forge_change(&o->fields, s);
        break;
    case 4:
    case 5:
        o->fields.n = 0;
        forge_certificate(&o->fields, &saved->certificate);
        forge_change(&o->fields, s);
        break;
    case 6:
        saved->certificate.vote[forge_draw(s, 4)].seal[0] ^= 1;
        break;
    case 7:
        saved->genesis.seal[0] ^= 1;
        break;
    case 8:
        saved->genesis.consent[forge_draw(s, 4)][0] ^= 1;
        break;
    default: /* as it is */
        break;
    }
}

/* A chain comes, and then the state at its end, or another one. */
static inline void forge_offer_state(const forge_keys *keys, uint32_t from, forge_script *s)
{
    static forge_offer offer;
    static uint8_t bytes[GSP_WIRE_SAVED_BYTES_MAX];
    static gsp_saved saved;
    forge_driver *d = &forge.driver;
    const gsp_agree *victim = &forge.agree[0];
    const gsp_key who = forge_member(from).key;
    uint32_t back = forge_draw(s, 4) ? 0 : forge_draw(s, 4);
    uint32_t n = d->trail.n - (back < d->trail.n ? back : 0);
    gsp_match match;
    uint32_t quiet = forge.many_keys ? forge_draw(s, 8) : 0;
    if (quiet > 5) /* so long without a quorum that it waits for one, or has given up */
        forge.now_ns += quiet == 7 ? 5 * forge.rules.fork_ns : forge.rules.fork_ns / 3 * 2;
    forge_offer_make(&offer, keys, n, s);
    bool whole = forge_offer_say(&offer, &who, n, s);
    if (whole)
        gsp_trail_match(&d->trail, &d->disk, &d->inquiry.theirs, &match);
    forge_step(0, (gsp_event){.kind = GSP_ON_CHAIN, .peer = who, .match = whole ? &match : NULL});
    if (!whole)
        return;
    saved = forge_draw(s, 8) ? offer.saved : d->disk;
    memset(&saved.record, 0, sizeof saved.record);
    forge_offer_spoil(&offer, &saved, s);
    if (!saved.has_certificate)
        memset(&saved.certificate, 0, sizeof saved.certificate);
    size_t size = gsp_wire_put_saved(&saved, bytes, sizeof bytes);
    if (size == 0 || !gsp_wire_get_saved(bytes, size, &saved))
        return;
    gsp_hash lineage = victim->lineage;
    uint64_t applied = victim->applied, reset = victim->genesis.reset;
    forge_step(0, (gsp_event){.kind = GSP_ON_STATE, .saved = &saved, .match = &match});
    if (!gsp_hash_equal(&lineage, &victim->lineage) || applied != victim->applied)
        forge_driver_adopt(d, &saved);
    /* Where the owner began anew, that is one of the fuzzer's keys. */
    forge.many_keys = forge.many_keys || victim->genesis.reset > reset;
}

#endif
