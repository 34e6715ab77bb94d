/*
 * Owns the two ends of the agreement's machine: the events that it is told, and the actions that it
 * orders. Its one idea: everything happens on one thread, in the machine's order. It refuses to let
 * anything out after its disk has failed.
 */
#include "gossip/member/node_inner.h"

#include "atom/base/assert.h"
#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>

uint64_t gsp_node_now(const gsp_node *n)
{
    return n->wall_ns + (atom_clock_ns() - n->mono_ns);
}

void gsp_node_die(gsp_node *n, atom_status why)
{
    if (n->dead != ATOM_OK)
        return;
    n->dead = why;
    snprintf(n->why, sizeof n->why, "%s", atom_fail_message());
}

/* ---- actions ---- */

/* The results that a vote names are on disk with it. */
static atom_status persist(gsp_node *n, const gsp_record *record)
{
    if (n->adopting)
        return ATOM_OK; /* goes to disk with the state, before anything is said */
    ATOM_TRY(gsp_recent_sync(&n->held, record));
    return gsp_votes_saved(n->votes) ? gsp_votes_record(n->votes, record) : ATOM_OK;
}

static void send_certificate(gsp_node *n, const gsp_action *action)
{
    const gsp_certificate *c = n->certificate[action->version % GSP_REPLAY_MAX];
    if (!c || c->proposal.version != action->version ||
        !gsp_hash_equal(&c->proposal.lineage, &n->agree.lineage))
        c = &n->agree.certificate;
    if (c->n_votes == 0)
        return;
    gsp_message *m = gsp_friends_draft(&n->friends, GSP_CERTIFY);
    m->version = c->proposal.version;
    m->ballot = c->ballot;
    m->as.certify.certificate = *c;
    gsp_friends_tell(&n->friends, gsp_friends_find(&n->friends, &action->peer), m);
}

static void send_result(gsp_node *n, const gsp_action *action)
{
    const gsp_roster *roster = gsp_agree_roster(&n->agree);
    gsp_friends_say(&n->friends, action, action->message);
    for (uint32_t i = 0; i < roster->n; i++)
        gsp_friends_send_result(gsp_friends_find(&n->friends, &roster->member[i].key),
                                action->version, action->part, &action->hash);
}

static uint64_t last_bulk_ns(gsp_node *n, const gsp_key *key)
{
    const gsp_friend *f = gsp_friends_find(&n->friends, key);
    return f ? f->bulk_ns : 0;
}

/* Asks for a result, unless it may still come by itself (pulls.h). */
static void pull(gsp_node *n, const gsp_action *action)
{
    const gsp_round *r = &n->agree.round;
    uint32_t p = action->part;
    uint64_t now = atom_clock_ns();
    gsp_friend *to = gsp_friends_find(&n->friends, &action->peer);
    if (to && !gsp_blame_may_ask(&n->blame, &action->hash, p, &to->key, now))
        to = NULL;
    gsp_pull_case facts = {.takes_part = n->freezing.version == action->version,
                           .last_ns = last_bulk_ns(n, gsp_pulls_last(&n->pulls, p))};
    if (action->version == r->version && r->ballot != 0 &&
        gsp_hash_equal(&r->known[p].hash, &action->hash) && r->begin.owner[p] != GSP_NOBODY) {
        const gsp_key *owner = &gsp_agree_roster(&n->agree)->member[r->begin.owner[p]].key;
        if (gsp_blame_may_ask(&n->blame, &action->hash, p, owner, now))
            facts.owner_ns = last_bulk_ns(n, owner);
    }
    if (!gsp_pulls_ask(&n->pulls, p, to ? &to->key : NULL, &facts, now))
        return;
    n->status.pulled++;
    gsp_message *m = gsp_friends_draft(&n->friends, GSP_PULL);
    m->version = action->version;
    m->as.pull = (gsp_pull){.root = action->hash, .is_result = true, .part = p};
    gsp_friends_tell(&n->friends, to, m);
}

static atom_status found(gsp_node *n, const gsp_genesis *genesis)
{
    bool resets = genesis->reset > n->saved.genesis.reset;
    ATOM_TRY(gsp_node_chain_found(n, genesis));
    memset(&n->saved, 0, sizeof n->saved);
    n->saved.genesis = *genesis;
    if (n->config.work.begins)
        n->config.work.begins(n->config.work.context, genesis);
    ATOM_TRY(gsp_votes_state(n->votes, &n->saved, n->agree.self.incarnation));
    return resets ? gsp_node_chain_turned(n) : ATOM_OK;
}

static void reduce_later(gsp_node *n, const gsp_action *a)
{
    n->n_reduce += n->reduce[a->part].ballot == 0;
    n->reduce[a->part].ballot = a->ballot;
    n->reduce[a->part].included = a->included;
}

static atom_status act(gsp_node *n, const gsp_action *a)
{
    switch (a->kind) {
    case GSP_DO_PERSIST:
        return persist(n, a->record);
    case GSP_DO_SEND:
        if (a->message->kind == GSP_EVIDENCE)
            gsp_ban_files_statements(&n->bans, &a->message->as.evidence);
        gsp_friends_say(&n->friends, a, a->message);
        break;
    case GSP_DO_CERTIFICATE:
        send_certificate(n, a);
        break;
    case GSP_DO_FREEZE:
        return gsp_freezing_begin(&n->freezing, a->version);
    case GSP_DO_PART:
        gsp_friends_send_part(gsp_friends_find(&n->friends, &a->peer), n->agree.certified + 1,
                              a->part, &n->freezing.contribution.root);
        break;
    case GSP_DO_REDUCE:
        reduce_later(n, a);
        break;
    case GSP_DO_RESULT:
        send_result(n, a);
        break;
    case GSP_DO_PULL:
        pull(n, a);
        break;
    case GSP_DO_APPLY:
        gsp_apply_begin(&n->apply);
        break;
    case GSP_DO_CHAIN:
        n->chain_due = true;
        n->chain_of = a->peer;
        break;
    case GSP_DO_STATE:
        n->state_due = true;
        break;
    case GSP_DO_AUDIT:
        gsp_audit_cases_begin(&n->cases, a->claim, &a->peer, a->within_ns);
        break;
    case GSP_DO_INPUTS:
        gsp_questions_begin(&n->questions, a);
        break;
    case GSP_DO_FOUND:
        return found(n, a->genesis);
    }
    return ATOM_OK;
}

static void sink(void *context, const gsp_action *a)
{
    gsp_node *n = context;
    if (n->dead != ATOM_OK)
        return; /* nothing after a barrier that failed */
    atom_status st = act(n, a);
    if (st != ATOM_OK)
        gsp_node_die(n, st);
}

/* ---- events ---- */

/* The certified version grew (next: by one), or the lineage is another. */
static void rotate(gsp_node *n, bool next)
{
    if (!next)
        gsp_apply_take_back(&n->apply);
    gsp_inputs_clear(&n->inputs);
    gsp_recent_rotate(&n->held, next);
    gsp_pulls_clear(&n->pulls);
    for (uint32_t p = 0; p < GSP_PARTS_MAX; p++)
        n->reduce[p].ballot = n->said[p].ballot = 0;
    n->n_reduce = 0;
    gsp_friends_forget_parts(&n->friends);
    n->pace.turn_ns = 0; /* new members have a pace before anything goes to them */
}

/* What a member says that hastens: so much that a version is due when all who are here say it, so that nobody
 * is left out who is in the middle of something; and after a while, that it is due. */
static uint64_t samples_to_hasten(const gsp_node *n)
{
    enum { BEATS = 30 };
    const gsp_rules *rules = &n->agree.rules;
    uint32_t here = gsp_agree_here(&n->agree);
    bool enough = gsp_node_now(n) - n->agree.certified_ns >= BEATS * rules->heartbeat_ns;
    return enough || here < 2 ? rules->samples_due : (rules->samples_due + here - 1) / here;
}

static uint64_t samples_now(gsp_node *n)
{
    const gsp_work *w = &n->config.work;
    if (gsp_donor_holds(&n->donor, gsp_node_now(n)))
        return 0;
    if (gsp_agree_sums(&n->agree))
        return w->ready(w->context, n->agree.certified + 1);
    uint64_t said = w->hastens && w->hastens(w->context) ? samples_to_hasten(n) : 0;
    return said > n->samples ? said : n->samples;
}

void gsp_node_step(gsp_node *n, gsp_event *event)
{
    ATOM_ASSERT(!n->stepping);
    if (n->dead != ATOM_OK)
        return;
    n->stepping = true;
    uint32_t ballot = n->agree.round.ballot, attempt = n->agree.round.begin.attempt;
    uint64_t bans = n->agree.stats.bans;
    event->now_ns = gsp_node_now(n);
    event->samples = samples_now(n);
    event->tokens = n->tokens;
    event->rests = n->config.work.rests && n->config.work.rests(n->config.work.context);
    gsp_agree_step(&n->agree, event, sink, n);
    n->stepping = false;
    gsp_ban_files_follow(&n->bans, &n->agree, bans);
    uint64_t deadline = gsp_agree_deadline(&n->agree);
    if (event->kind == GSP_ON_TICK || deadline < n->tick_ns)
        n->tick_ns = deadline;
    if (n->agree.round.ballot > ballot) {
        n->status.begun_ns = atom_clock_ns() - n->freezing.began_ns;
        n->changed = true;
    }
    n->changed |= n->agree.round.begin.attempt > attempt; /* new owners */
    bool moved = !gsp_hash_equal(&n->lineage, &n->agree.lineage);
    if (!moved && n->version == n->agree.certified)
        return;
    rotate(n, !moved && n->agree.certified == n->version + 1);
    n->version = n->agree.certified;
    n->lineage = n->agree.lineage;
    gsp_ban_files_barred(&n->agree);
}
