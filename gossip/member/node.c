/*
 * Owns a member's life: its turns, the events that the machine is told and the actions that it
 * orders. Its one idea: everything happens on one thread, in the machine's order; what takes long
 * (freezing, reducing, applying) is cut into slices between two looks at the network. It refuses to
 * let anything out after its disk has failed.
 */
#include "gossip/member/node_inner.h"

#include "atom/base/assert.h"
#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "gossip/trust/seals.h"

#include <stdio.h>
#include <string.h>

enum { EVENTS_PER_TURN = 32 };
static const uint64_t PATIENCE_NS = 3000000000u; /* with an owner whose result does not come */

uint64_t gsp_node_now(const gsp_node *d)
{
    return d->wall_ns + (atom_clock_ns() - d->mono_ns);
}

void gsp_node_die(gsp_node *d, atom_status why)
{
    if (d->dead != ATOM_OK)
        return;
    d->dead = why;
    snprintf(d->why, sizeof d->why, "%s", atom_fail_message());
}

/* ---- actions ---- */

/* The results that a vote names are on disk with it. */
static void persist(gsp_node *d, const gsp_record *record)
{
    atom_status st = ATOM_OK;
    if (d->adopting)
        return; /* goes to disk with the state, before anything is said */
    for (uint32_t p = 0; record->voted && p < record->proposal.n_parts && st == ATOM_OK; p++) {
        const gsp_hash *hash = &record->proposal.part[p].hash;
        const gsp_blob *b = gsp_hash_none(hash) ? NULL : gsp_node_result(d, p, hash);
        if (b)
            st = gsp_results_put(d->results, record->version, p, hash, b->data, b->bytes);
    }
    if (st == ATOM_OK && record->voted)
        st = gsp_results_sync(d->results, record->version);
    if (st == ATOM_OK && gsp_votes_saved(d->votes))
        st = gsp_votes_record(d->votes, record);
    if (st != ATOM_OK)
        gsp_node_die(d, st);
}

static void send_certificate(gsp_node *d, const gsp_action *action)
{
    const gsp_certificate *c = d->certificate[action->version % MEMBER_CERTIFICATES];
    if (!c || c->proposal.version != action->version ||
        !gsp_hash_equal(&c->proposal.lineage, &d->agree.lineage))
        c = &d->agree.certificate;
    if (c->n_votes == 0)
        return;
    gsp_message *m = &d->scratch_message;
    memset(m, 0, gsp_message_bytes(GSP_CERTIFY));
    m->kind = GSP_CERTIFY;
    m->from = d->agree.self;
    m->lineage = d->agree.lineage;
    m->version = c->proposal.version;
    m->ballot = c->ballot;
    m->as.certify.certificate = *c;
    gsp_node_tell(d, gsp_friend_find(d, &action->peer), m);
}

static void send_result(gsp_node *d, const gsp_action *action)
{
    const gsp_roster *roster = gsp_agree_roster(&d->agree);
    gsp_node_say(d, action, action->message);
    for (uint32_t i = 0; i < roster->n; i++)
        gsp_node_send_result(d, gsp_friend_find(d, &roster->member[i].key), action->version,
                             action->part, &action->hash);
}

/* Asks for a result, unless its owner is still sending or somebody was asked a moment ago. */
static void pull(gsp_node *d, const gsp_action *action)
{
    const gsp_round *r = &d->agree.round;
    uint64_t now = atom_clock_ns();
    uint32_t p = action->part;
    gsp_friend *to = gsp_friend_find(d, &action->peer);
    if (d->wanted_ns[p] == 0)
        d->wanted_ns[p] = now;
    /* Whoever takes part in the round gets it unasked; a proposal may be faster than the bytes. */
    bool takes_part = d->freezing.version == action->version;
    if (takes_part && now - d->wanted_ns[p] < PATIENCE_NS / 3)
        return;
    if (action->version == r->version && r->ballot != 0 &&
        gsp_hash_equal(&r->known[p].hash, &action->hash) && r->begin.owner[p] != GSP_NOBODY) {
        const gsp_friend *owner =
            gsp_friend_find(d, &gsp_agree_roster(&d->agree)->member[r->begin.owner[p]].key);
        if (owner && now - owner->bulk_ns < PATIENCE_NS)
            return;
    }
    /* Who was asked last and sends something gets more time than who sends nothing at all. */
    const gsp_friend *last = gsp_friend_find(d, &d->pulled_from[p]);
    bool sends = last && last->bulk_ns > d->pulled_ns[p];
    if (!to || (d->pulled_ns[p] && now - d->pulled_ns[p] < PATIENCE_NS / (sends ? 2 : 10)))
        return;
    d->pulled_ns[p] = now;
    d->pulled_from[p] = action->peer;
    d->status.pulled++;
    gsp_message *m = &d->scratch_message;
    memset(m, 0, gsp_message_bytes(GSP_PULL));
    m->kind = GSP_PULL;
    m->from = d->agree.self;
    m->lineage = d->agree.lineage;
    m->version = action->version;
    m->as.pull = (gsp_pull){.root = action->hash, .is_result = true, .part = p};
    gsp_node_tell(d, to, m);
}

static void found(gsp_node *d, const gsp_action *action)
{
    memset(&d->saved, 0, sizeof d->saved);
    d->saved.genesis = *action->genesis;
    atom_status st = gsp_votes_state(d->votes, &d->saved, action->genesis->founder.incarnation);
    if (st != ATOM_OK)
        gsp_node_die(d, st);
}

static void sink(void *context, const gsp_action *a)
{
    gsp_node *d = context;
    if (d->dead != ATOM_OK)
        return; /* nothing after a barrier that failed */
    switch (a->kind) {
    case GSP_DO_PERSIST:
        persist(d, a->record);
        break;
    case GSP_DO_SEND:
        if (a->message->kind == GSP_EVIDENCE)
            gsp_audit_words(d, &a->message->as.evidence);
        gsp_node_say(d, a, a->message);
        break;
    case GSP_DO_CERTIFICATE:
        send_certificate(d, a);
        break;
    case GSP_DO_FREEZE:
        gsp_node_freeze(d, a->version);
        break;
    case GSP_DO_PART:
        gsp_node_send_part(d, gsp_friend_find(d, &a->peer), a->part);
        break;
    case GSP_DO_REDUCE:
        d->n_reduce += d->reduce[a->part].ballot == 0;
        d->reduce[a->part].ballot = a->ballot;
        d->reduce[a->part].included = a->included;
        break;
    case GSP_DO_RESULT:
        send_result(d, a);
        break;
    case GSP_DO_PULL:
        pull(d, a);
        break;
    case GSP_DO_APPLY:
        d->applying = true;
        d->apply_next = 0;
        break;
    case GSP_DO_STATE:
        gsp_fetch_want(d, &a->peer, &a->lineage);
        break;
    case GSP_DO_AUDIT:
        gsp_audit_start(d, a);
        break;
    case GSP_DO_FOUND:
        found(d, a);
        break;
    }
}

static uint64_t samples_now(const gsp_node *d)
{
    const gsp_work *w = &d->config.work;
    return w->ready ? w->ready(w->context, d->agree.certified + 1) : d->samples;
}

void gsp_node_step(gsp_node *d, gsp_event *event)
{
    ATOM_ASSERT(!d->stepping);
    if (d->dead != ATOM_OK)
        return;
    d->stepping = true;
    uint32_t ballot = d->agree.round.ballot, attempt = d->agree.round.begin.attempt;
    uint32_t n_banned = d->agree.n_banned;
    event->now_ns = gsp_node_now(d);
    event->samples = gsp_state_holds(d) ? 0 : samples_now(d);
    event->tokens = d->tokens;
    gsp_agree_step(&d->agree, event, sink, d);
    d->stepping = false;
    if (d->agree.n_banned > n_banned)
        gsp_audit_note(d, n_banned);
    uint64_t deadline = gsp_agree_deadline(&d->agree);
    if (event->kind == GSP_ON_TICK || deadline < d->tick_ns)
        d->tick_ns = deadline;
    if (d->agree.round.ballot > ballot) {
        d->status.begun_ns = atom_clock_ns() - d->freezing.began_ns;
        d->changed = true;
    }
    d->changed |= d->agree.round.begin.attempt > attempt; /* new owners */
    bool moved = !gsp_hash_equal(&d->lineage, &d->agree.lineage);
    if (!moved && d->version == d->agree.certified)
        return;
    gsp_node_rotate(d, !moved && d->agree.certified == d->version + 1);
    d->version = d->agree.certified;
    d->lineage = d->agree.lineage;
    d->paced_ns = 0; /* who came in with it has a pace before anything goes to it */
}

/* ---- the network's events ---- */

/* Somebody lacks a result of a version, or checks one. Who asks for what is not here gets no
 * answer, and asks the next. */
static void on_pull(gsp_node *d, gsp_friend *from, const gsp_message *m)
{
    const gsp_pull *p = &m->as.pull;
    gsp_exhibit exhibit;
    if (!p->is_result && gsp_audit_exhibit(d, m->version, &p->root, p->part, &exhibit))
        gsp_node_send_exhibit(d, from, m->version, p->part, &p->root);
    if (p->is_result && gsp_node_result(d, p->part, &p->root))
        gsp_node_send_result(d, from, m->version, p->part, &p->root);
}

/* The machine hears of a part's result when its bytes are here: so a dead owner's word never stands
 * for bytes that nobody has, and no proposal names them. */
static bool too_early(gsp_node *d, const gsp_message *m)
{
    const gsp_reduced *r = &m->as.reduced;
    uint32_t part = r->statement.item;
    if (m->kind != GSP_REDUCED || m->version != d->agree.certified + 1 ||
        part >= d->config.rules.n_parts || m->ballot != d->agree.round.ballot ||
        gsp_round_holds(&d->agree.round, part, &r->part.hash))
        return false;
    d->said[part] = (gsp_said){.ballot = m->ballot, .from = m->from, .reduced = *r};
    return true;
}

void gsp_node_hear(gsp_node *d, uint32_t part, const gsp_hash *hash)
{
    gsp_said *said = &d->said[part];
    gsp_message *m = &d->delayed;
    if (said->ballot == 0 || !gsp_hash_equal(&said->reduced.part.hash, hash))
        return;
    memset(m, 0, gsp_message_bytes(GSP_REDUCED));
    m->kind = GSP_REDUCED;
    m->from = said->from;
    m->lineage = d->agree.lineage;
    m->version = d->agree.certified + 1;
    m->ballot = said->ballot;
    m->as.reduced = said->reduced;
    said->ballot = 0;
    gsp_event event = {.kind = GSP_ON_MESSAGE, .message = m};
    gsp_node_step(d, &event);
}

static void on_state(gsp_node *d, gsp_friend *from, const gsp_message *m, const void *body)
{
    if (m->kind == GSP_STATE_ASK)
        gsp_state_asked(from);
    else if (m->kind == GSP_STATE_PULL)
        gsp_state_pulled(d, from, m);
    else
        gsp_fetch_heard(d, from, m, body);
}

/* What is not a member's business. True: the message was taken. */
static bool other(gsp_node *d, gsp_net_event *e)
{
    return d->config.other && d->config.other(d->config.other_context, e);
}

/* True: the message is kept. */
static bool on_message(gsp_node *d, gsp_net_event *e)
{
    gsp_key key;
    gsp_message *m = &d->incoming;
    const void *body;
    size_t body_bytes;
    memcpy(key.byte, e->key, sizeof key.byte);
    gsp_friend *from = gsp_friend_find(d, &key);
    if (!from || e->bytes == 0 || *(const uint8_t *)e->data != GSP_TYPES_VERSION)
        return other(d, e);
    bool decoded = gsp_wire_decode(e->data, e->bytes, &key, m, &body, &body_bytes);
    bool bulk = m->kind == GSP_PIECE || m->kind == GSP_STATE_CHUNK;
    if (!decoded || bulk != (e->channel == GSP_NET_BULK)) {
        d->status.refused++;
        return false;
    }
    if (m->kind == GSP_PIECE)
        return gsp_node_piece(d, from, m, body, e->data);
    if (m->kind >= GSP_STATE_ASK)
        on_state(d, from, m, body);
    if (m->kind == GSP_PULL)
        on_pull(d, from, m);
    if (m->kind >= GSP_PULL)
        return false;
    if (too_early(d, m))
        return false;
    gsp_event event = {.kind = GSP_ON_MESSAGE, .message = m};
    gsp_node_step(d, &event);
    return false;
}

static void on_link(gsp_node *d, gsp_net_event *e)
{
    (void)other(d, e);
    gsp_event event = {.kind = e->kind == GSP_NET_UP ? GSP_ON_UP : GSP_ON_DOWN};
    memcpy(event.peer.byte, e->key, sizeof event.peer.byte);
    if (e->kind == GSP_NET_UP && e->guest)
        return; /* only asks to be admitted */
    if (e->kind == GSP_NET_UP)
        gsp_friend_up(d, &event.peer);
    else
        gsp_friend_down(d, &event.peer);
    gsp_node_step(d, &event);
}

static void on_net(gsp_node *d, gsp_net_event *e)
{
    gsp_friend *f = NULL;
    gsp_key key;
    memcpy(key.byte, e->key, sizeof key.byte);
    switch (e->kind) {
    case GSP_NET_UP:
    case GSP_NET_DOWN:
        on_link(d, e);
        break;
    case GSP_NET_MESSAGE:
        if (!on_message(d, e))
            gsp_net_free(d->config.net, e->data);
        break;
    case GSP_NET_ROOM:
        f = gsp_friend_find(d, &key);
        if (f)
            f->busy[e->channel] = false;
        break;
    case GSP_NET_REFUSED:
        atom_log(ATOM_LOG_WARN, "a peer refuses: %s", e->why);
        (void)other(d, e);
        break;
    case GSP_NET_NOTHING:
        break;
    }
}

/* Nobody waits for contributions of members without a link: the machine is told again whenever a
 * round begins, changes, or a part comes, because it forgets who is gone. */
static void tell_gone(gsp_node *d)
{
    const gsp_roster roster = *gsp_agree_roster(&d->agree);
    d->changed = false;
    for (uint32_t i = 0; i < roster.n && d->version == d->agree.certified; i++) {
        gsp_event event = {.kind = GSP_ON_DOWN, .peer = roster.member[i].key};
        if (gsp_key_compare(&event.peer, &d->agree.self.key) != 0 &&
            !gsp_friend_find(d, &event.peer))
            gsp_node_step(d, &event);
    }
}

static void tick(gsp_node *d)
{
    gsp_event event = {.kind = GSP_ON_TICK};
    gsp_node_step(d, &event);
}

/* A share of a sum that is ready now: a round may be due. */
static void look_ready(gsp_node *d)
{
    uint64_t samples = samples_now(d);
    bool news = samples > d->samples;
    d->samples = samples;
    if (news)
        tick(d);
}

atom_status gsp_node_turn(gsp_node *d, uint64_t timeout_ns)
{
    if (d->dead == ATOM_OK && gsp_node_now(d) >= d->tick_ns)
        tick(d);
    if (d->changed)
        tell_gone(d);
    if (d->config.work.ready)
        look_ready(d);
    bool more = gsp_node_work(d);
    if (d->dead == ATOM_OK)
        more |= gsp_audit_work(d);
    if (d->dead == ATOM_OK)
        more |= gsp_state_work(d);
    if (d->dead == ATOM_OK)
        more |= gsp_fetch_work(d);
    more |= gsp_node_pump(d);
    uint64_t now = gsp_node_now(d), until = d->tick_ns;
    uint64_t wait = until > now ? until - now : 0;
    wait = more ? 0 : wait < timeout_ns ? wait : timeout_ns;
    for (int i = 0; i < EVENTS_PER_TURN && d->dead == ATOM_OK; i++) {
        gsp_net_event event;
        atom_status st = gsp_net_next(d->config.net, wait, &event);
        if (st != ATOM_OK)
            gsp_node_die(d, st);
        if (st != ATOM_OK || event.kind == GSP_NET_NOTHING)
            break;
        on_net(d, &event);
        wait = 0;
    }
    if (d->dead != ATOM_OK)
        return atom_fail(d->dead, "%s", d->why);
    return ATOM_OK;
}

/* ---- life ---- */

static atom_status buffers(gsp_node *d)
{
    uint64_t n = 0, first;
    for (uint32_t k = 0; k < d->config.n_fragments; k++) {
        uint64_t here = gsp_node_part_floats(d, k, 0, &first);
        n = here > n ? here : n;
    }
    if (gsp_codec_bytes(d->config.codec, n) > (uint64_t)MEMBER_PIECES_MAX * GSP_MEMBER_PIECE_BYTES)
        return atom_fail(ATOM_E_USAGE,
                         "a part of %llu floats is too large; use more parts or more fragments",
                         (unsigned long long)n);
    d->chunk = atom_alloc(GSP_CHUNK_FLOATS, sizeof(float));
    if (!d->chunk)
        return atom_fail_memory("a chunk", GSP_CHUNK_FLOATS * sizeof(float));
    return gsp_mix_open(&d->mix, d->config.codec, d->config.robust, n);
}

/* Starts from what is remembered, or from the pool's genesis. */
static atom_status start(gsp_node *d)
{
    bool newcomer = gsp_node_has_state(d) && !d->config.holds_genesis;
    gsp_member self = {.incarnation = gsp_votes_incarnation(d->votes)};
    memcpy(self.key.byte, d->config.identity->public_key, sizeof self.key.byte);
    const gsp_saved *saved = gsp_votes_saved(d->votes);
    d->seals = gsp_seals_real(d->config.identity);
    if (saved) {
        d->saved = *saved;
    } else if (!newcomer) {
        d->saved.genesis = d->config.genesis;
        if (gsp_key_compare(&self.key, &d->config.genesis.founder.key) == 0)
            self.incarnation = d->config.genesis.founder.incarnation;
        ATOM_TRY(gsp_votes_state(d->votes, &d->saved, self.incarnation));
    }
    d->mono_ns = atom_clock_ns();
    d->wall_ns = gsp_votes_clock(d->votes);
    d->config.rules.summed = d->config.work.ready != NULL;
    gsp_agree_open(&d->agree, &d->config.rules, &d->seals, &self, &d->config.rates,
                   saved || !newcomer ? &d->saved : NULL, d->wall_ns);
    d->version = d->agree.certified;
    d->lineage = d->agree.lineage;
    gsp_audit_recall(d);
    const gsp_record *record = &d->agree.record;
    for (uint32_t p = 0; record->voted && p < record->proposal.n_parts; p++) {
        const gsp_hash *hash = &record->proposal.part[p].hash;
        if (gsp_hash_none(hash) || !gsp_node_recall(d, p, hash))
            continue;
        gsp_event event = {
            .kind = GSP_ON_HELD, .version = record->version, .part = p, .hash = *hash};
        gsp_node_step(d, &event);
    }
    return ATOM_OK;
}

static atom_status check_state(const gsp_node_config *config)
{
    const gsp_work *work = &config->work;
    bool any = false;
    for (uint32_t f = 0; f < config->n_fragments; f++) {
        any |= work->n_state[f] != 0;
        if (gsp_chunks(work->n_state[f]) > GSP_CHUNKS_MAX)
            return atom_fail(ATOM_E_USAGE,
                             "the state of fragment %u has %llu floats; use more fragments", f,
                             (unsigned long long)work->n_state[f]);
    }
    if (any && (!work->state_read || !work->state_write || !work->state_adopt))
        return atom_fail(ATOM_E_USAGE, "a work with a state reads, writes and adopts it");
    return ATOM_OK;
}

atom_status gsp_node_open(const gsp_node_config *config, gsp_node **out)
{
    atom_status st;
    gsp_node *d = NULL;
    ATOM_TRY_CLEAN(gsp_crypto_start());
    if (config->n_fragments == 0 || config->n_fragments > GSP_FRAGMENTS_MAX ||
        config->rules.n_parts == 0 || config->rules.n_parts > GSP_PARTS_MAX)
        return atom_fail(ATOM_E_USAGE, "a pool has 1 to %d fragments of 1 to %d parts",
                         GSP_FRAGMENTS_MAX, GSP_PARTS_MAX);
    d = atom_alloc(1, sizeof *d);
    if (!d)
        return atom_fail_memory("a member", sizeof *d);
    d->config = *config;
    ATOM_TRY_CLEAN(check_state(config));
    if (!d->config.results_kept)
        d->config.results_kept = GSP_REPLAY_MAX;
    ATOM_TRY_CLEAN(buffers(d));
    ATOM_TRY_CLEAN(gsp_votes_open(config->directory, &d->votes));
    ATOM_TRY_CLEAN(gsp_results_open(config->directory, d->config.results_kept, &d->results));
    ATOM_TRY_CLEAN(start(d));
    *out = d;
    return ATOM_OK;
cleanup:
    gsp_node_close(&d);
    return st;
}

void gsp_node_close(gsp_node **node)
{
    gsp_node *d = *node;
    *node = NULL;
    if (!d)
        return;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (d->friends[i].up)
            gsp_friend_down(d, &d->friends[i].key);
    gsp_audit_close(d);
    gsp_node_bytes_close(d);
    gsp_fetch_close(d);
    gsp_state_close(d);
    gsp_results_close(&d->results);
    gsp_votes_close(&d->votes);
    atom_free(d);
}

void gsp_node_report(gsp_node *d, uint64_t samples, uint64_t tokens)
{
    bool news = !d->config.work.ready && samples > d->samples;
    if (!d->config.work.ready)
        d->samples = samples;
    d->tokens = tokens;
    if (news)
        tick(d); /* a round may be due */
}

void gsp_node_leave(gsp_node *d)
{
    gsp_event event = {.kind = GSP_ON_LEAVE};
    gsp_node_step(d, &event);
}

void gsp_node_reset(gsp_node *d)
{
    gsp_event event = {.kind = GSP_ON_RESET};
    gsp_node_step(d, &event);
}

void gsp_node_read_status(const gsp_node *d, gsp_node_status *status)
{
    *status = d->status;
    status->refused += d->agree.stats.refused;
    status->certified = d->agree.certified;
    status->audits = d->agree.stats.audits;
    status->audits_open = d->agree.stats.audits_open;
    status->false_claims = d->agree.stats.false_claims;
    status->applied = d->agree.applied;
    status->n_roster = gsp_agree_roster(&d->agree)->n;
    status->is_member = gsp_agree_is_member(&d->agree);
    status->lineage = d->agree.lineage;
    status->newest = d->agree.previous;
    status->rates = d->agree.rates;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        status->n_links += d->friends[i].up;
}

const char *gsp_node_explain(const gsp_node *d, char *text, size_t bytes)
{
    if (d->fetch)
        return gsp_fetch_explain(d, text, bytes);
    return gsp_agree_explain(&d->agree, text, bytes);
}
