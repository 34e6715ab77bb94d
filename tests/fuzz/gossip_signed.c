/*
 * The agreement against a fuzzer that owns keys. Three to seven real machines run a pool; the input
 * is a script that lets time pass, loses messages, holds one back just before it arrives, changes
 * its fields, makes hashes and seals right again and delivers that. Every second kind of run has
 * all keys, the other ones those of fewer than half of the members.
 *
 * No message makes a machine assert, act without end, or certify what the oracle of forge_oracle.h
 * does not allow.
 */
#include "gossip/trust/identity.h"
#include "tests/fuzz/forge_offer.h"
#include "tests/fuzz/forge_operations.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OPERATIONS_MAX = 64, VICTIM = 0 };

static gsp_message forged;
static forge_keys keys;

/* In the order in which rosters are. */
static void sort_next(gsp_proposal *p)
{
    for (uint32_t i = 1; i < p->next.n; i++)
        for (uint32_t k = i;
             k > 0 && gsp_key_compare(&p->next.member[k - 1].key, &p->next.member[k].key) > 0;
             k--) {
            gsp_member member = p->next.member[k];
            uint8_t missed = p->missed[k], against = p->against[k];
            p->next.member[k] = p->next.member[k - 1];
            p->missed[k] = p->missed[k - 1];
            p->against[k] = p->against[k - 1];
            p->next.member[k - 1] = member;
            p->missed[k - 1] = missed;
            p->against[k - 1] = against;
        }
}

/* Hashes, seals, orders, weights and totals of what was changed, as far as the script says. */
static void make_whole(forge_script *s)
{
    const gsp_agree *victim = &forge.agree[VICTIM];
    const gsp_roster *roster = gsp_agree_roster(victim);
    gsp_proposal *p = forged.kind == GSP_PROPOSE   ? &forged.as.propose.proposal
                      : forged.kind == GSP_CERTIFY ? &forged.as.certify.certificate.proposal
                                                   : NULL;
    uint32_t how = forge_draw(s, 8);
    if (p && gsp_proposal_fits(p) && p->next.n < GSP_MEMBERS_MAX && forge_draw(s, 8) == 7) {
        uint32_t n = p->next.n++; /* one more, who may be a stranger */
        p->next.member[n] = forge_member(forge_draw(s, FORGE_KEYS));
        p->missed[n] = p->against[n] = 0;
    }
    if (p && (how & 2) && gsp_proposal_fits(p))
        sort_next(p);
    if (p && (how & 1) && gsp_proposal_fits(p)) {
        bool seats = true;
        for (uint32_t i = 0; i < p->n_contributors; i++)
            seats = seats && p->contributor[i].member < roster->n;
        if (seats)
            gsp_proposal_weigh(&victim->rules, &victim->certificate.proposal, p->contributor,
                               p->n_contributors);
        for (uint32_t k = 0; k < p->n_parts; k++)
            if (p->part[k].included)
                p->part[k].weight =
                    gsp_included_weight(p->contributor, p->n_contributors, p->part[k].included);
        gsp_proposal_totals(&victim->rules, &victim->certificate.proposal, p, &p->tokens,
                            &p->samples);
    }
    if (how < 7)
        forge_sign_message(&keys, roster, &victim->rules.owner, &victim->round.contributors,
                           &forged);
}

/* Changes some fields of `forged`, makes it whole and lets it arrive. */
static void deliver(forge_script *s)
{
    static forge_fields fields;
    static uint8_t bytes[GSP_WIRE_BYTES_MAX];
    static gsp_message arrives;
    uint32_t changes = forge_draw(s, 4);
    gsp_key from = forge_draw(s, 8) ? forged.from.key : forge_member(forge_draw(s, FORGE_KEYS)).key;
    if (changes && !forge_owns(&keys, &from)) /* over a link of its own */
        from = forge.key[forge.n - 1];
    for (uint32_t k = 0; k < changes; k++) {
        forge_message(&fields, &forged);
        forge_change(&fields, s);
    }
    make_whole(s);
    size_t n = gsp_wire_encode(&forged, bytes, sizeof bytes);
    if (n == 0 || !gsp_wire_decode(bytes, n, &from, &arrives, NULL, NULL))
        return;
    forge_step(VICTIM, (gsp_event){.kind = GSP_ON_MESSAGE, .message = &arrives});
}

/* Lets everything happen up to the next message of this kind to the victim, which is held back in
 * `forged`. False: there was none. */
static bool hold_next(gsp_message_kind kind)
{
    forge_item item;
    for (uint32_t t = 0; t < 60; t++) {
        while (forge_next(&item)) {
            bool found = item.message && item.message->kind == kind && item.to == VICTIM;
            if (found)
                memcpy(&forged, item.message, gsp_message_bytes(kind));
            else
                forge_step(item.to, item.event);
            free(item.message);
            if (found)
                return true;
        }
        forge_tick(250);
    }
    return false;
}

static void head(gsp_message_kind kind, uint32_t from, bool of_version)
{
    const gsp_agree *victim = &forge.agree[VICTIM];
    memset(&forged, 0, gsp_message_bytes(kind));
    forged.kind = kind;
    forged.from = forge_member(from);
    forged.lineage = victim->lineage;
    forged.version = of_version ? victim->certified + 1 : 0;
}

static gsp_statement statement(const gsp_agree *victim, gsp_statement_kind kind, uint32_t signer,
                               uint32_t ballot, uint8_t subject)
{
    return (gsp_statement){.kind = (uint8_t)kind,
                           .lineage = victim->lineage,
                           .version = kind == GSP_SAYS_LEAVE ? 0 : victim->certified + 1,
                           .ballot = ballot,
                           .subject =
                               kind == GSP_SAYS_LEAVE ? (gsp_hash){0} : (gsp_hash){{subject}},
                           .signer = forge_member(signer)};
}

/* A message that honest members seldom or never say. */
static bool invent(forge_script *s)
{
    const gsp_agree *victim = &forge.agree[VICTIM];
    uint32_t from = 1 + forge_draw(s, forge.n - 1), ballot = 1 + forge_draw(s, 3);
    switch (forge_draw(s, FORGE_INVENTIONS_N)) {
    case FORGE_SAYS_LEAVE:
        head(GSP_LEAVE, from, false);
        forged.as.leave.statement = statement(victim, GSP_SAYS_LEAVE, from, 0, 0);
        return true;
    case FORGE_SAYS_EVIDENCE:
        head(GSP_EVIDENCE, from, false);
        forged.as.evidence.first = statement(victim, GSP_SAYS_VOTE, from, ballot, 1);
        forged.as.evidence.second = statement(victim, GSP_SAYS_VOTE, from, ballot, 2);
        if (forge_draw(s, 2)) {
            forged.as.evidence.second.kind = GSP_SAYS_PROMISE;
            forged.as.evidence.second.ballot = ballot + 1;
            forged.as.evidence.second.root = (gsp_hash){{3}};
        }
        return true;
    case FORGE_SAYS_ACCUSE:
        head(GSP_ACCUSE, from, false);
        return gsp_claim_of(&victim->certificate, &victim->audits.roster,
                            forge_draw(s, FORGE_PARTS), &forged.as.accuse.claim);
    case FORGE_SAYS_LINEAGE:
        head(GSP_LINEAGE, from, false);
        forged.as.announce.genesis = victim->genesis;
        forged.as.announce.genesis.generation++;
        forged.as.announce.genesis.parent = victim->lineage;
        forged.as.announce.genesis.version = victim->applied;
        forged.as.announce.genesis.previous = victim->previous;
        forged.as.announce.genesis.founder = forge_member(from);
        forged.as.announce.genesis.reset += forge_draw(s, 2);
        return true;
    case FORGE_SAYS_REFUSE:
        head(GSP_REFUSE, from, true);
        forged.ballot = victim->ballot;
        forged.as.refuse.promised = victim->ballot + 1;
        return true;
    case FORGE_SAYS_WITHHELD:
        head(GSP_WITHHELD, from, false);
        forged.as.withheld = (gsp_missing){.version = victim->certified - forge_draw(s, 6),
                                           .part = forge_draw(s, FORGE_PARTS),
                                           .missing = 1u << forge_draw(s, forge.n)};
        return true;
    default:
        head(GSP_JOIN, from, false);
        forged.as.join.entry.wish = statement(victim, GSP_SAYS_JOIN, from, 0, 0);
        forged.as.join.entry.wish.version = victim->certified;
        forged.as.join.entry.wish.subject = victim->previous;
        return true;
    }
}

static void link_changes(uint32_t how, uint32_t whose)
{
    static const gsp_event_kind KINDS[] = {GSP_ON_DOWN, GSP_ON_UP, GSP_ON_PROVEN};
    forge_step(VICTIM, (gsp_event){.kind = KINDS[how], .peer = forge.key[whose]});
}

/* The victim itself is honest. */
static void fault(uint32_t what, uint32_t which)
{
    uint32_t others = which & ~(1u << VICTIM);
    if (what == FORGE_VERDICT)
        forge.verdict = (gsp_verdict)(which % 3);
    else if (what == FORGE_WITHHOLDS)
        forge.withholds = others;
    else
        forge.lies = others;
}

static void operate(forge_script *s)
{
    static const gsp_message_kind KINDS[] = {
        GSP_HEARTBEAT, GSP_PREPARE, GSP_PROMISE, GSP_BEGIN,   GSP_REDUCED, GSP_PROPOSE, GSP_ECHO,
        GSP_VOTE,      GSP_CERTIFY, GSP_PROPOSE, GSP_PROMISE, GSP_JOIN,    GSP_ASK};
    uint32_t what = forge_draw(s, FORGE_OPERATIONS_N), which;
    switch (what) {
    case FORGE_PASS:
        which = 1 + forge_draw(s, 64);
        for (uint32_t k = 0; k < which && forge.steps < FORGE_STEPS; k++) {
            forge_tick(250);
            forge_pump();
        }
        break;
    case FORGE_JUMP:
        forge_tick((uint64_t)1 << forge_draw(s, forge.many_keys ? 23 : 14));
        forge_pump();
        break;
    case FORGE_LOSE:
        which = forge_draw(s, 16);
        forge.dropped = which < 12 ? 1u << KINDS[which] : 0;
        break;
    case FORGE_LINK:
        link_changes(forge_draw(s, 3), forge_draw(s, forge.n));
        break;
    case FORGE_FAULT:
        fault(forge_draw(s, FORGE_FAULTS_N), forge_draw(s, 256));
        break;
    case FORGE_DEPART:
        which = 1 + forge_draw(s, forge.n - 1);
        forge_step(which, (gsp_event){.kind = forge_draw(s, 4) ? GSP_ON_LEAVE : GSP_ON_RESET});
        break;
    case FORGE_OFFER:
    case FORGE_OFFER_TOO:
        forge_offer_state(&keys, 1 + forge_draw(s, forge.n - 1), s);
        break;
    case FORGE_INVENT:
    case FORGE_INVENT_TOO:
        if (invent(s))
            deliver(s);
        break;
    case FORGE_AGAIN:
        if (forged.kind)
            deliver(s);
        break;
    case FORGE_RESTART:
        forge_restart(1 + forge_draw(s, forge.n - 1));
        break;
    default:
        if (hold_next(KINDS[forge_draw(s, 12)]))
            deliver(s);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    forge_script script = {data, size}, *s = &script;
    if (!ready) {
        ready = gsp_crypto_start() == ATOM_OK &&
                gsp_mix_open(&forge.mix, GSP_CODEC_FP32, false, FORGE_FLOATS) == ATOM_OK;
        ATOM_ASSERT(ready);
    }
    uint32_t members = 3 + forge_draw(s, 5), joiners = forge_draw(s, 2),
             options = forge_draw(s, 256);
    gsp_agree_defaults(&forge.rules);
    forge.rules.time_due_ns = 3000 * FORGE_MS;
    forge.rules.samples_due = UINT64_MAX;
    forge.rules.round_ns = 8000 * FORGE_MS;
    forge.rules.n_parts = FORGE_PARTS;
    forge.rules.audit_percent = options & 1 ? 100 : 25;
    forge.rules.summed = options & 2;
    forge.rules.against_rounds = options & 4 ? 2 : 0;
    forge.rules.trust = options & 32 ? GSP_STRANGERS : GSP_FRIENDS;
    forge.rules.owner = forge_member(options & 8 ? 1 : FORGE_KEYS).key;
    forge.rules.admits = forge_admits;
    forge.many_keys = options & 16;
    keys.owned = UINT64_MAX;
    forge.honest = 1;
    memset(&forged, 0, sizeof forged);
    forge_open(members, members + joiners < FORGE_HOSTS ? joiners : 0, 0);
    if (!forge.many_keys) { /* those of the last ones, fewer than half */
        keys.owned <<= members - (members - 1) / 2;
        forge.rules.fork_ns = UINT64_MAX / 64;
        for (uint32_t i = 0; i < forge.n; i++)
            forge.agree[i].rules.fork_ns = forge.rules.fork_ns;
    }
    for (uint32_t k = 0; k < OPERATIONS_MAX && s->left && forge.steps < FORGE_STEPS; k++)
        operate(s);
    forge_close();
    return 0;
}
