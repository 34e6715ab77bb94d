/*
 * Owns a member's life: it opens the parts, gives each its turn, and closes them. Its one idea: one
 * thread, one turn after the other, and the longest wait ends with the next event or the next tick.
 * It refuses to go on after its disk, its memory or its work has failed.
 */
#include "gossip/member/node_inner.h"
#include "gossip/member/node_look.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"
#include "gossip/trust/seals.h"

#include <stdio.h>
#include <string.h>

enum { EVENTS_PER_TURN = 32 };

/* ---- turns ---- */

/* Nobody waits for contributions of members without a link: the machine is told again whenever a
 * round begins, changes, or a part comes, because it forgets the members that are gone. */
static void tell_gone(gsp_node *n)
{
    const gsp_roster roster = *gsp_agree_roster(&n->agree);
    n->changed = false;
    for (uint32_t i = 0; i < roster.n && n->version == n->agree.certified; i++) {
        gsp_event event = {.kind = GSP_ON_DOWN, .peer = roster.member[i].key};
        if (gsp_key_compare(&event.peer, &n->agree.self.key) != 0 &&
            !gsp_friends_find(&n->friends, &event.peer))
            gsp_node_step(n, &event);
    }
}

static void tick(gsp_node *n)
{
    gsp_event event = {.kind = GSP_ON_TICK};
    gsp_node_step(n, &event);
}

/* A share of a sum that is ready now: a round may be due. */
static void look_ready(gsp_node *n)
{
    const gsp_work *work = &n->config.work;
    if (!gsp_agree_sums(&n->agree)) {
        n->samples = n->reported;
        return;
    }
    uint64_t samples = work->ready(work->context, n->agree.certified + 1);
    bool news = samples > n->samples;
    n->samples = samples;
    if (news)
        tick(n);
}

/* Answers members that fetch my state, also while I fetch another: their chains tell them whose
 * counts. */
static bool donate(gsp_node *n)
{
    const gsp_donor_word word = {
        .saved = &n->saved, .seals = &n->seals, .identity = n->config.identity};
    bool more;
    gsp_donor_tick(&n->donor);
    if (gsp_hash_none(&n->agree.lineage) || n->apply.on)
        return false;
    atom_status st = gsp_donor_work(&n->donor, &word, &more);
    if (st != ATOM_OK)
        gsp_node_die(n, st);
    return more;
}

atom_status gsp_node_turn(gsp_node *n, uint64_t timeout_ns)
{
    if (n->dead == ATOM_OK && gsp_node_now(n) >= n->tick_ns)
        tick(n);
    if (n->changed)
        tell_gone(n);
    if (n->config.work.ready)
        look_ready(n);
    bool more = gsp_node_work(n);
    if (n->dead == ATOM_OK)
        more |= gsp_node_audit(n);
    if (n->dead == ATOM_OK)
        more |= donate(n);
    if (n->dead == ATOM_OK)
        more |= gsp_node_fetch(n);
    if (n->dead == ATOM_OK)
        gsp_node_chain_turn(n);
    more |= gsp_node_pump(n);
    uint64_t now = gsp_node_now(n), until = n->tick_ns;
    uint64_t wait = until > now ? until - now : 0;
    wait = more ? 0 : wait < timeout_ns ? wait : timeout_ns;
    for (int i = 0; i < EVENTS_PER_TURN && n->dead == ATOM_OK; i++) {
        gsp_net_event event;
        atom_status st = gsp_net_next(n->config.net, wait, &event);
        if (st != ATOM_OK)
            gsp_node_die(n, st);
        if (st != ATOM_OK || event.kind == GSP_NET_NOTHING)
            break;
        gsp_node_hear(n, &event);
        wait = 0;
    }
    if (n->dead != ATOM_OK)
        return atom_fail(n->dead, "%s", n->why);
    return ATOM_OK;
}

/* ---- life ---- */

/* Ties the parts to what they share. Each is as good as closed before. */
static atom_status open_parts(gsp_node *n)
{
    const gsp_node_config *c = &n->config;
    gsp_terms *t = &n->terms;
    *t = (gsp_terms){.pool = c->genesis.pool,
                     .codec = c->codec,
                     .robust = c->robust,
                     .n_parts = c->rules.n_parts,
                     .n_fragments = c->n_fragments,
                     .n_floats = c->n_floats};
    uint64_t most = gsp_terms_floats_max(t), largest = 0;
    if (gsp_codec_bytes(t->codec, most) > (uint64_t)GSP_BLOB_PIECES_MAX * GSP_BLOB_PIECE_BYTES)
        return atom_fail(ATOM_E_USAGE,
                         "a part of %llu floats is too large; use more parts or more fragments",
                         (unsigned long long)most);
    n->bans.directory = c->directory;
    n->pace.said = c->rates;
    gsp_friends_open(&n->friends, c->net, &n->agree, t->codec);
    for (uint32_t f = 0; f < t->n_fragments; f++)
        largest = gsp_terms_all_bytes(t, f) > largest ? gsp_terms_all_bytes(t, f) : largest;
    gsp_friends_bound(&n->friends, largest);
    n->config.rules.fragment_bytes = largest;
    gsp_freezing_open(&n->freezing, t, &c->work, c->directory);
    gsp_apply_open(&n->apply, t, &c->work, &n->mix);
    gsp_questions_open(&n->questions, t, &n->friends);
    gsp_audit_cases_open(&n->cases, t, &n->freezing, &n->kept, &n->questions, &n->friends, &n->mix);
    if (c->rules.audit_percent)
        ATOM_TRY(gsp_own_inputs_open(&n->kept, t, c->directory));
    ATOM_TRY(gsp_donor_open(&n->donor, &n->friends, &c->work, t->n_fragments, c->directory));
    ATOM_TRY(gsp_mix_open(&n->mix, t->codec, t->robust, most));
    ATOM_TRY(gsp_votes_open(c->directory, &n->votes));
    return gsp_recent_open(&n->held, c->directory,
                           c->results_kept ? c->results_kept : GSP_REPLAY_MAX);
}

static void stays_banned(void *context, const gsp_key *key)
{
    gsp_event event = {.kind = GSP_ON_PROVEN, .peer = *key};
    gsp_node_step(context, &event);
}

/* Starts from what is remembered, or from the pool's genesis. */
static atom_status start(gsp_node *n)
{
    bool newcomer =
        gsp_work_has_state(&n->config.work, n->config.n_fragments) && !n->config.holds_genesis;
    gsp_member self = {.incarnation = gsp_votes_incarnation(n->votes)};
    memcpy(self.key.byte, n->config.identity->public_key, sizeof self.key.byte);
    const gsp_saved *saved = gsp_votes_saved(n->votes);
    n->seals = gsp_seals_real(n->config.identity);
    if (saved) {
        n->saved = *saved;
    } else if (!newcomer) {
        n->saved.genesis = n->config.genesis;
        if (gsp_key_compare(&self.key, &n->config.genesis.founder.key) == 0)
            self.incarnation = n->config.genesis.founder.incarnation;
        ATOM_TRY(gsp_votes_state(n->votes, &n->saved, self.incarnation));
    }
    ATOM_TRY(gsp_node_chain_open(n, saved || !newcomer ? &n->saved : NULL));
    n->mono_ns = atom_clock_ns();
    n->wall_ns = gsp_votes_clock(n->votes);
    n->config.rules.summed = n->config.work.ready != NULL;
    n->config.rules.summed_samples = n->config.work.summed_samples;
    n->config.rules.robust = n->config.robust;
    n->config.rules.drifts = n->config.drifts;
    n->config.rules.lease = n->config.work.lease;
    n->config.rules.lease_context = n->config.work.context;
    n->config.rules.passes_on = n->config.passes_on && n->config.work.lease;
    gsp_agree_open(&n->agree, &n->config.rules, &n->seals, &self, &n->config.rates,
                   saved || !newcomer ? &n->saved : NULL, n->wall_ns);
    n->sums = gsp_agree_sums(&n->agree);
    n->version = n->agree.certified;
    n->lineage = n->agree.lineage;
    gsp_ban_files_recall(&n->bans, &n->terms, stays_banned, n);
    const gsp_record *record = &n->agree.record;
    for (uint32_t p = 0; record->voted && p < record->proposal.n_parts; p++) {
        const gsp_hash *hash = &record->proposal.part[p].hash;
        if (gsp_hash_none(hash) || !gsp_recent_recall(&n->held, &n->agree, p, hash))
            continue;
        gsp_event event = {
            .kind = GSP_ON_HELD, .version = record->version, .part = p, .hash = *hash};
        gsp_node_step(n, &event);
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
    ATOM_TRY(gsp_crypto_start());
    if (config->n_fragments == 0 || config->n_fragments > GSP_FRAGMENTS_MAX ||
        config->rules.n_parts == 0 || config->rules.n_parts > GSP_PARTS_MAX)
        return atom_fail(ATOM_E_USAGE, "a pool has 1 to %d fragments of 1 to %d parts",
                         GSP_FRAGMENTS_MAX, GSP_PARTS_MAX);
    ATOM_TRY(check_state(config));
    gsp_node *n = atom_alloc(1, sizeof *n);
    if (!n)
        return atom_fail_memory("a member", sizeof *n);
    n->config = *config;
    n->config.directory = n->directory = atom_strdup(config->directory);
    if (!n->directory)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", strlen(config->directory)));
    ATOM_TRY_CLEAN(open_parts(n));
    ATOM_TRY_CLEAN(start(n));
    *out = n;
    return ATOM_OK;
cleanup:
    gsp_node_close(&n);
    return st;
}

void gsp_node_close(gsp_node **node)
{
    gsp_node *n = *node;
    *node = NULL;
    if (!n)
        return;
    gsp_fetch_close(&n->fetch);
    gsp_node_chain_close(n);
    gsp_friends_close(&n->friends);
    gsp_audit_cases_close(&n->cases);
    gsp_questions_close(&n->questions);
    gsp_own_inputs_close(&n->kept);
    gsp_inputs_clear(&n->inputs);
    gsp_recent_close(&n->held);
    gsp_freezing_close(&n->freezing);
    gsp_donor_close(&n->donor);
    gsp_mix_close(&n->mix);
    for (uint32_t k = 0; k < GSP_REPLAY_MAX; k++)
        atom_free(n->certificate[k]);
    gsp_votes_close(&n->votes);
    atom_free(n->directory);
    atom_free(n);
}

void gsp_node_report(gsp_node *n, uint64_t samples, uint64_t tokens)
{
    bool sums = gsp_agree_sums(&n->agree), news = !sums && samples > n->samples;
    n->reported = samples;
    if (!sums)
        n->samples = samples;
    n->tokens = tokens;
    if (news)
        tick(n); /* a round may be due */
}

void gsp_node_leave(gsp_node *n)
{
    gsp_event event = {.kind = GSP_ON_LEAVE};
    gsp_node_step(n, &event);
}

atom_status gsp_node_reset(gsp_node *n)
{
    gsp_event event = {.kind = GSP_ON_RESET};
    const gsp_agree *a = &n->agree;
    uint32_t before = a->genesis.reset;
    if (gsp_key_compare(&a->self.key, &a->rules.owner) != 0)
        return atom_fail(ATOM_E_USAGE, "only the pool's owner can reset it");
    if (gsp_hash_none(&a->lineage))
        return atom_fail(ATOM_E_USAGE, "this host does not have the pool's state yet, so the "
                                       "pool cannot be reset to it");
    if (a->applying)
        return atom_fail(ATOM_E_USAGE, "a version is being applied at this moment; try again in "
                                       "a moment");
    gsp_node_step(n, &event);
    if (a->genesis.reset == before)
        return atom_fail(ATOM_E_USAGE, "the reset could not begin; try again");
    return ATOM_OK;
}

bool gsp_node_is_applying(const gsp_node *n)
{
    return n->agree.applying;
}

void gsp_node_read_status(const gsp_node *n, gsp_node_status *status)
{
    uint64_t fork_in_ns;
    *status = n->status;
    status->refused += n->agree.stats.refused;
    status->unanswered = n->agree.stats.unanswered;
    status->certified = n->agree.certified;
    status->audits = n->agree.stats.audits;
    status->audits_open = n->agree.stats.audits_open;
    status->false_claims = n->agree.stats.false_claims;
    status->applied = n->agree.applied;
    status->n_roster = gsp_agree_roster(&n->agree)->n;
    status->is_member = gsp_agree_is_member(&n->agree);
    status->lacks_quorum = gsp_agree_waits(&n->agree, 0, &fork_in_ns);
    status->alone = gsp_node_chain_is_alone(n);
    status->alone_from = status->alone ? n->agree.genesis.version : 0;
    status->lineage = n->agree.lineage;
    status->newest = n->agree.previous;
    status->rates = n->agree.rates;
    status->frozen_ns = n->freezing.took_ns;
    status->repeated_bytes += n->fetched.repeated_bytes;
    status->state_bytes = n->fetched.bytes;
    status->state_all_bytes = n->fetched.all_bytes;
    status->state_found = n->fetch != NULL;
    status->state_samples = n->fetch ? n->hope.end.samples : 0;
    status->state_wrong = n->fetched.wrong;
    status->state_sent_bytes = n->donor.sent_bytes;
    status->state_kept_bytes = n->donor.kept_bytes;
    status->n_bans = n->bans.n;
    memcpy(status->ban, n->bans.ban, sizeof status->ban);
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        status->n_links += n->friends.friend[i].up;
}

const char *gsp_node_explain(const gsp_node *n, char *text, size_t bytes)
{
    if (n->fetch)
        return gsp_fetch_explain(n->fetch, text, bytes);
    gsp_agree_explain(&n->agree, text, bytes);
    size_t at = strlen(text);
    if (gsp_node_chain_is_alone(n))
        snprintf(text + at, bytes - at,
                 "; alone from version %llu on, because no other member answered",
                 (unsigned long long)n->agree.genesis.version);
    return text;
}

/* ---- for the layer above ---- */

const gsp_agree *gsp_node_look(const gsp_node *n)
{
    return &n->agree;
}

const gsp_certificate *gsp_node_certificate(const gsp_node *n, uint64_t version, uint32_t *counted)
{
    const gsp_certificate *c = n->certificate[version % GSP_REPLAY_MAX];
    if (!c || c->proposal.version != version)
        return NULL;
    *counted = n->counted[version % GSP_REPLAY_MAX];
    return c;
}

bool gsp_node_is_busy(const gsp_node *n)
{
    return gsp_friends_is_busy(&n->friends);
}

static gsp_key key_of(const uint8_t bytes[GSP_KEY_BYTES])
{
    gsp_key key;
    memcpy(key.byte, bytes, sizeof key.byte);
    return key;
}

void gsp_node_was_full(gsp_node *n, const uint8_t key[GSP_KEY_BYTES])
{
    const gsp_key k = key_of(key);
    gsp_friend *f = gsp_friends_find(&n->friends, &k);
    if (f)
        f->busy[GSP_NET_BULK] = true;
}

bool gsp_node_is_full(gsp_node *n, const uint8_t key[GSP_KEY_BYTES])
{
    const gsp_key k = key_of(key);
    const gsp_friend *f = gsp_friends_find(&n->friends, &k);
    return f && f->busy[GSP_NET_BULK];
}

void gsp_node_link(gsp_node *n, const uint8_t key[GSP_KEY_BYTES])
{
    const gsp_key k = key_of(key);
    gsp_node_up(n, &k);
}

void gsp_node_unlink(gsp_node *n, const uint8_t key[GSP_KEY_BYTES])
{
    const gsp_key k = key_of(key);
    gsp_node_down(n, &k);
}
