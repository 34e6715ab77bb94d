/*
 * Owns the pool's thread: a host that takes part. Its one idea: everything happens on this thread
 * between two turns of the node; other threads leave numbers and orders behind. A host that has
 * used up its bytes of the month says nothing at all: links are ended, nobody is let in, the node's
 * clock stands still, so nothing is decided alone either; with the next month it comes back as if
 * it had slept. With a full disk the thread waits in the write that found it, so nothing is said that
 * is not on disk, and it comes back as if it had been stopped meanwhile. It refuses to rest before the
 * start: joining is a wish.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/base/size.h"
#include "gossip/member/node_look.h"
#include "gossip/member/shares.h"
#include "gossip/member/votes.h"

#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const uint64_t TURN_NS = 50000000u, LINGER_NS = 700000000u, REST_NS = 50000000u;

/* On a trusted network without a gate nobody shows anything. */
static bool admits(void *context, const gsp_key *key, const gsp_shown *shown, uint64_t now_ns)
{
    const gsp_pool *p = context;
    const gsp_door *d = &p->door;
    gsp_role role = GSP_GUEST;
    if (gsp_manifest_bans(d->manifest, key->byte))
        return false;
    if (!shown || d->plain)
        return true;
    if (gsp_door_voids(d, shown->data, shown->bytes))
        return false;
    return gsp_credential_check(shown->data, shown->bytes, d->pool, d->owner, key->byte,
                                now_ns / 1000000000u, &role) == GSP_WELCOME &&
           role != GSP_GUEST;
}

static void shows(void *context, gsp_shown *out)
{
    const gsp_door *d = &((const gsp_pool *)context)->door;
    out->bytes = gsp_door_shows(d, (uint64_t)atom_wall_seconds(), out->data);
}

_Static_assert((int)GSP_SHOWN_BYTES_MAX == (int)GSP_CREDENTIAL_BYTES_MAX, "a credential fits");

static bool other(void *context, gsp_net_event *event)
{
    gsp_pool *p = context;
    if (!gsp_pool_take(p, event))
        return false;
    gsp_net_free(p->net, event->data);
    return true;
}

/* Tells the node what the trainer reported. */
static void pass_reports(gsp_pool *p)
{
    uint64_t samples = atomic_load(&p->samples), tokens = gsp_pool_own_tokens(p);
    uint64_t fresh = samples - p->base_samples;
    if (fresh == p->said_samples && tokens == p->said_tokens)
        return;
    p->said_samples = fresh;
    p->said_tokens = tokens;
    gsp_node_report(p->node, fresh, tokens);
}

/* Who brought how many samples that counted: "key":7,"key":9. */
static void brought_text(const gsp_roster *roster, const gsp_proposal *c, uint32_t counted,
                         char *text, size_t room)
{
    size_t at = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < c->n_contributors && at < room; i++) {
        char key[GSP_PUBLIC_TEXT_BYTES];
        if (!(counted >> i & 1) || c->contributor[i].member >= roster->n)
            continue;
        gsp_public_text(roster->member[c->contributor[i].member].key.byte, key);
        at += (size_t)snprintf(text + at, room - at, "%s\"%.8s\":%llu", at ? "," : "", key,
                               (unsigned long long)c->contributor[i].samples);
    }
}

static void show_round(gsp_pool *p, const gsp_proposal *c, uint32_t counted)
{
    gsp_node_status s;
    char brought[GSP_MEMBERS_MAX * 40];
    gsp_node_read_status(p->node, &s);
    brought_text(&p->counted_roster, c, counted, brought, sizeof brought);
    gsp_pool_round r = {.version = c->version,
                        .n_contributors = c->n_contributors,
                        .n_roster = c->next.n,
                        .tokens = c->samples * p->door.manifest->tokens_per_sample,
                        .samples = c->samples,
                        .wall_s = atom_wall_seconds(),
                        .round_s = 1e-9 * (double)s.round_ns};
    pthread_mutex_lock(&p->lock);
    gsp_pool_status *st = p->status;
    memmove(st->round + 1, st->round, sizeof st->round - sizeof *st->round);
    st->round[0] = r;
    st->n_rounds += st->n_rounds < GSP_POOL_ROUNDS_SHOWN;
    pthread_mutex_unlock(&p->lock);
    gsp_event_log_add(&p->diary,
                      "\"event\":\"certified\",\"version\":%llu,\"contributors\":%u,\"roster\":%u,"
                      "\"tokens\":%llu,\"round_s\":%.3f,\"brought\":{%s}",
                      (unsigned long long)r.version, r.n_contributors, r.n_roster,
                      (unsigned long long)r.tokens, r.round_s, brought);
}

/* What was applied since the last look. After a state of others was taken over, counting goes on
 * with the version after it. */
static void count_versions(gsp_pool *p, const gsp_agree *a, bool moved)
{
    while (moved || p->counted_version < a->applied) {
        uint32_t counted = 0;
        const gsp_certificate *c =
            moved ? NULL : gsp_node_certificate(p->node, p->counted_version + 1, &counted);
        if (!c) {
            p->counted_version = a->certified;
            p->counted_roster = *gsp_agree_roster(a);
            return;
        }
        gsp_credits_count(&p->credits, &p->counted_roster, &c->proposal, counted);
        show_round(p, &c->proposal, counted);
        p->counted_roster = c->proposal.next;
        p->counted_version++;
    }
}

static void watch_versions(gsp_pool *p)
{
    const gsp_agree *a = gsp_node_look(p->node);
    bool moved = !gsp_hash_equal(&a->lineage, &p->seen_lineage);
    if (moved) {
        char id[17];
        sodium_bin2hex(id, sizeof id, a->lineage.byte, 8);
        gsp_event_log_add(&p->diary, "\"event\":\"lineage\",\"lineage\":\"%s\",\"version\":%llu",
                          id, (unsigned long long)a->certified);
        p->seen_lineage = a->lineage;
    }
    count_versions(p, a, moved);
    if (!moved && a->certified == p->seen_version)
        return;
    p->seen_version = a->certified;
    p->base_samples = atomic_load(&p->samples);
    p->said_samples = UINT64_MAX; /* say it again, from zero */
    p->book.own_changed = true;
}

/* Members that a quorum lacks. */
static void missing_names(const gsp_pool *p, const gsp_agree *a, char text[GSP_POOL_WHY_BYTES])
{
    const gsp_roster *roster = gsp_agree_roster(a);
    size_t at = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < roster->n && at < GSP_POOL_WHY_BYTES; i++) {
        const uint8_t *key = roster->member[i].key.byte;
        char name[GSP_WORD_NAME_BYTES] = "", who[GSP_MEMBER_TEXT_BYTES];
        bool up = memcmp(key, p->door.identity.public_key, GSP_PUBLIC_BYTES) == 0;
        for (uint32_t k = 0; k < GSP_NET_PEERS_MAX; k++) {
            if (memcmp(p->links.link[k].key, key, GSP_PUBLIC_BYTES) == 0) {
                up |= p->links.link[k].up;
                memcpy(name, p->links.link[k].name, sizeof name);
            }
        }
        if (!up)
            at += (size_t)snprintf(text + at, GSP_POOL_WHY_BYTES - at, "%s%s", at ? ", " : "",
                                   gsp_member_text(name, key, who));
    }
}

static void watch_quorum(gsp_pool *p)
{
    const gsp_agree *a = gsp_node_look(p->node);
    uint64_t fork_in_ns;
    bool waits = gsp_agree_waits(a, 2 * a->rules.dead_ns, &fork_in_ns);
    if (waits == p->said_waits)
        return;
    p->said_waits = waits;
    if (!waits) {
        gsp_event_log_add(&p->diary, "\"event\":\"quorum\"");
        return;
    }
    char names[GSP_POOL_WHY_BYTES];
    unsigned long long seconds = fork_in_ns / 1000000000u;
    missing_names(p, a, names);
    gsp_event_log_add(&p->diary, "\"event\":\"no_quorum\",\"goes_on_in_s\":%llu", seconds);
    atom_log(ATOM_LOG_WARN,
             "the pool has no quorum; waiting for %s%sat most %llu s, then this host goes on "
             "by itself",
             names, names[0] ? ", " : "", seconds);
}

/* The node decides and keeps the evidence; here it is only told. */
static void watch_bans(gsp_pool *p)
{
    gsp_node_status *s = atom_alloc(1, sizeof *s);
    if (!s)
        return;
    gsp_node_read_status(p->node, s);
    for (; p->seen_bans < s->n_bans; p->seen_bans++) {
        char who[GSP_PUBLIC_TEXT_BYTES];
        const gsp_ban *b = &s->ban[p->seen_bans % GSP_BANS_SHOWN];
        json_t *file = json_string(b->file);
        char *text = file ? json_dumps(file, JSON_ENCODE_ANY) : NULL;
        gsp_event_log_add(
            &p->diary, "\"event\":\"banned\",\"key\":\"%s\",\"why\":\"%s\",\"evidence\":%s",
            gsp_public_text(b->key.byte, who), b->why, b->file[0] && text ? text : "null");
        json_decref(file);
        free(text);
    }
    atom_free(s);
}

/* All of the roster say goodbye at once: nobody is left to let anybody off it. */
static bool everybody_leaves(const gsp_pool *p)
{
    const gsp_agree *a = gsp_node_look(p->node);
    uint32_t n = gsp_agree_roster(a)->n;
    return n > 1 && a->left == (uint32_t)(((uint64_t)1 << n) - 1);
}

/* True: goodbye was said and heard, or there is nobody to say it to. */
static bool has_left(gsp_pool *p, uint64_t now)
{
    gsp_node_status s;
    if (!atomic_load(&p->leave))
        return false;
    gsp_node_read_status(p->node, &s);
    if (p->leaving_ns == 0) {
        p->leaving_ns = now;
        gsp_event_log_add(&p->diary, "\"event\":\"leaving\"");
        gsp_headline_say(&p->headline, GSP_POOL_RUNNING, "saying goodbye");
        if (s.is_member ? s.n_roster <= 1 : s.n_links == 0)
            return true;
        gsp_node_leave(p->node); /* a guest takes back that it wants to join */
        return false;
    }
    if (s.is_member && s.n_roster > 1 && !everybody_leaves(p))
        p->leaving_ns = now; /* linger from then on */
    return now - p->leaving_ns > LINGER_NS;
}

static void close_node(gsp_pool *p)
{
    p->data.node = NULL;
    gsp_node_close(&p->node);
}

static void end_thread(gsp_pool *p, atom_status st)
{
    gsp_node_status s = {0};
    bool left = p->leaving_ns != 0;
    if (st == ATOM_OK || left)
        gsp_node_read_status(p->node, &s);
    bool last = s.is_member && (s.n_roster <= 1 || everybody_leaves(p));
    pthread_mutex_lock(&p->lock);
    p->end = st;
    if (st != ATOM_OK)
        snprintf(p->end_text, sizeof p->end_text, "%s", atom_fail_message());
    pthread_mutex_unlock(&p->lock);
    if (st != ATOM_OK) {
        atom_log(ATOM_LOG_ERROR, "the pool: %s", p->end_text);
        gsp_event_log_add(&p->diary, "\"event\":\"dead\"");
        gsp_headline_say(&p->headline, GSP_POOL_DEAD, "%s", p->end_text);
    } else if (left) {
        gsp_event_log_add(&p->diary, "\"event\":\"left\"");
        gsp_headline_say(&p->headline, GSP_POOL_LEFT, "left the pool");
    }
    gsp_pool_snapshot(p);
    close_node(p);
    /* A host that said goodbye comes back as a new one; a host that was alone said nothing, and where all
     * went at once nobody else has what they agreed on. */
    if (left && !last && gsp_votes_forget(p->memory) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->ended, true);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

/* ---- the month's bytes ---- */

static void begin_rest(gsp_pool *p)
{
    char used[160], when[32] = "";
    const gsp_quota *q = &p->month.quota;
    time_t ends = (time_t)gsp_quota_ends(atom_wall_seconds());
    struct tm t;
    if (localtime_r(&ends, &t))
        (void)strftime(when, sizeof when, "%Y-%m-%d", &t);
    gsp_event_log_add(&p->diary, "\"event\":\"month_spent\",\"sent\":%llu,\"received\":%llu",
                      (unsigned long long)q->up, (unsigned long long)q->down);
    gsp_headline_say(&p->headline, GSP_POOL_RUNNING, "resting until %s: %s", when,
                     gsp_quota_text(q, used, sizeof used));
    atomic_store(&p->door.shut, true);
    gsp_pool_snapshot(p);
    gsp_pool_end_links(p);
    gsp_month_save(&p->month);
}

static bool rests(gsp_pool *p)
{
    bool spent = gsp_month_step(&p->month, p->net);
    if (spent && !atomic_load(&p->door.shut))
        begin_rest(p);
    if (!spent && atomic_load(&p->door.shut)) {
        atomic_store(&p->door.shut, false);
        gsp_event_log_add(&p->diary, "\"event\":\"month_begins\"");
        gsp_headline_say(&p->headline, GSP_POOL_RUNNING, "taking part");
    }
    return spent;
}

/* A turn while the host rests. */
static atom_status rest(gsp_pool *p)
{
    gsp_net_event event;
    ATOM_TRY(gsp_net_next(p->net, REST_NS, &event));
    if (event.kind == GSP_NET_UP)
        gsp_net_drop(p->net, event.key); /* it came in before it could know */
    gsp_net_free(p->net, event.data);
    gsp_pool_obey(p);
    gsp_pool_snapshot_step(p);
    return ATOM_OK;
}

/* ---- a full disk ---- */

/* A write finds the disk full: waits a little. False: somebody wants this host to end. */
static bool wait_for_room(void *context, int fd, uint64_t bytes)
{
    gsp_pool *p = context;
    char more[24];
    (void)fd;
    if (!atomic_load(&p->no_room)) {
        pthread_mutex_lock(&p->lock);
        snprintf(p->room_text, sizeof p->room_text,
                 "the disk that holds %.100s is full: %s more have to fit. This member contributes "
                 "nothing until there is room, and then goes on by itself",
                 p->directory, bytes ? atom_size_text(bytes, more) : "some bytes");
        pthread_mutex_unlock(&p->lock);
        p->no_room_s = atom_clock_seconds();
        atomic_store(&p->no_room, true);
    }
    for (int i = 0; i < 10; i++) {
        if (atomic_load(&p->stop) || atomic_load(&p->leave) || atomic_load(&p->asked_stop))
            return false;
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
    return true;
}

/* What waited has been written. */
static void found_room(gsp_pool *p)
{
    if (!atomic_load(&p->no_room))
        return;
    atomic_store(&p->no_room, false);
    gsp_event_log_add(&p->diary, "\"event\":\"room\",\"waited_s\":%.0f",
                      atom_clock_seconds() - p->no_room_s);
}

/* ---- the thread ---- */

static void *run(void *context)
{
    gsp_pool *p = context;
    atom_status st = ATOM_OK;
    atom_room_wait_by(wait_for_room, p);
    while (st == ATOM_OK && !atomic_load(&p->stop)) {
        found_room(p);
        if (rests(p)) {
            st = rest(p);
            if (st == ATOM_OK && atomic_load(&p->leave))
                break; /* nobody is there to hear a goodbye */
            continue;
        }
        pass_reports(p);
        st = gsp_node_turn(p->node, TURN_NS);
        if (st != ATOM_OK)
            break;
        watch_versions(p);
        watch_quorum(p);
        watch_bans(p);
        gsp_pool_step(p);
        st = gsp_headline_check(&p->headline);
        if (st == ATOM_OK && has_left(p, atom_clock_ns()))
            break;
    }
    end_thread(p, st);
    return NULL;
}

static void member_config(gsp_pool *p, const gsp_pool_part *part, gsp_node_config *c)
{
    const gsp_manifest *m = p->door.manifest;
    *c = (gsp_node_config){
        .net = p->net,
        .identity = &p->door.identity,
        .directory = p->memory,
        .rates = part->rates,
        .holds_genesis = part->holds_genesis,
        .n_fragments = m->n_fragments,
        .codec = m->codec,
        .robust = m->robust,
        .drifts = m->drifts,
        .passes_on = m->passes_on,
        .work = part->work,
        .other = other,
        .other_context = p,
    };
    if (p->host.up_bytes_per_s)
        c->rates.up_bytes_per_s = p->host.up_bytes_per_s;
    if (p->host.down_bytes_per_s)
        c->rates.down_bytes_per_s = p->host.down_bytes_per_s;
    c->rates.accepts = p->reach.port != 0;
    p->rates = c->rates;
    p->summed = part->work.ready != NULL;
    memcpy(c->n_floats, m->n_floats, sizeof c->n_floats);
    gsp_manifest_genesis(m, &c->genesis);
    gsp_manifest_rules(m, &c->rules);
    if (part->has_audit)
        c->rules.audit_percent = part->audit_percent;
    c->rules.admits = admits;
    c->rules.shows = shows;
    c->rules.assign = gsp_shares_assign;
    c->rules.context = p;
}

/* Links that came up before there was a node. */
static void introduce(gsp_pool *p)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (p->links.link[i].up && !p->links.link[i].guest)
            gsp_node_link(p->node, p->links.link[i].key);
}

/* ---- before the start ---- */

static atom_status reads_nothing(void *context, uint32_t fragment, uint64_t first, uint64_t n,
                                 float *out)
{
    (void)context, (void)fragment, (void)first, (void)n, (void)out;
    return atom_fail(ATOM_E_RUNTIME, "there is no state here yet");
}

static atom_status takes_nothing(void *context, uint32_t fragment, uint64_t version, uint64_t first,
                                 uint64_t n, const float *x)
{
    (void)context, (void)fragment, (void)version, (void)first, (void)n, (void)x;
    return atom_fail(ATOM_E_RUNTIME, "no state is taken yet");
}

static atom_status adopts_nothing(void *context, const gsp_saved *saved)
{
    (void)context, (void)saved;
    return atom_fail(ATOM_E_RUNTIME, "no state is taken yet");
}

/* Turns until a chain was checked: what would be fetched after that is for the member that is started. */
static atom_status hear_chain(gsp_pool *p, double patience_s, gsp_pool_watch *watch, void *context,
                              uint64_t *samples)
{
    double until = atom_clock_seconds() + patience_s;
    const gsp_pool_progress progress = {.stage = GSP_POOL_READING,
                                        .text = "asking how far the pool is"};
    gsp_node_status s = {0};
    while (!s.state_found && atom_clock_seconds() < until) {
        ATOM_TRY(gsp_node_turn(p->node, TURN_NS));
        gsp_pool_step(p);
        ATOM_TRY(gsp_headline_check(&p->headline));
        gsp_node_read_status(p->node, &s);
        if (watch && !watch(context, &progress))
            return atom_fail(ATOM_E_INTERRUPTED, "interrupted while joining");
    }
    *samples = s.state_samples;
    return ATOM_OK;
}

/* A pool has one member at a time, whose memory is in its directory. */
static atom_status begin_member(gsp_pool *p)
{
    if (p->has_thread || p->memory)
        return atom_fail(ATOM_E_USAGE, "the pool was started before");
    p->memory = atom_path_join(p->directory, "member");
    return p->memory ? ATOM_OK : atom_fail_memory("a path", 0);
}

/* A member for a moment, which is closed again before it takes part in anything. */
atom_status gsp_pool_ask_samples(gsp_pool *p, double patience_s, gsp_pool_watch *watch,
                                 void *context, uint64_t *samples)
{
    gsp_pool_part part = {.work = {.state_read = reads_nothing,
                                   .state_write = takes_nothing,
                                   .state_adopt = adopts_nothing}};
    gsp_node_config c;
    atom_status st;
    *samples = 0;
    ATOM_TRY(begin_member(p));
    memcpy(part.work.n_state, p->door.manifest->n_floats, sizeof p->door.manifest->n_floats);
    member_config(p, &part, &c);
    ATOM_TRY_CLEAN(gsp_node_open(&c, &p->node));
    introduce(p);
    if (gsp_hash_none(&gsp_node_look(p->node)->lineage))
        ATOM_TRY_CLEAN(hear_chain(p, patience_s, watch, context, samples));
cleanup:
    close_node(p);
    atom_free(p->memory);
    p->memory = NULL;
    return st;
}

/* ---- the start ---- */

atom_status gsp_pool_start(gsp_pool *p, const gsp_pool_part *part)
{
    gsp_node_config c;
    atom_status st;
    ATOM_TRY(begin_member(p));
    member_config(p, part, &c);
    ATOM_TRY_CLEAN(gsp_node_open(&c, &p->node));
    p->data.node = p->node;
    introduce(p);
    p->started_s = atom_clock_seconds();
    gsp_event_log_add(&p->diary, "\"event\":\"start\",\"port\":%u", p->reach.port);
    gsp_headline_say(&p->headline, GSP_POOL_RUNNING, "taking part");
    gsp_pool_renew_contact(p);
    gsp_pool_greet_all(p);
    int error = pthread_create(&p->thread, NULL, run, p);
    if (error)
        ATOM_TRY_CLEAN(atom_fail_errno(error, "a thread for the pool"));
    p->has_thread = true;
cleanup:
    if (st != ATOM_OK)
        close_node(p);
    return st;
}

/* ---- leaving ---- */

atom_status gsp_pool_leave(gsp_pool *p, double timeout_s)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until); /* nobody sets it meanwhile */
    until.tv_sec += (time_t)timeout_s + 1;
    if (!p->has_thread)
        return ATOM_OK;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->leave, true);
    int late = 0;
    while (!atomic_load(&p->ended) && late == 0)
        late = pthread_cond_clockwait(&p->changed, &p->lock, CLOCK_MONOTONIC, &until);
    atom_status end = p->end;
    pthread_mutex_unlock(&p->lock);
    atomic_store(&p->stop, true);
    gsp_net_wake(p->net);
    pthread_join(p->thread, NULL);
    p->has_thread = false;
    if (late)
        return atom_fail(ATOM_E_RUNTIME,
                         "too few members heard the goodbye in time; the others will notice that "
                         "this host is silent");
    return end == ATOM_OK ? ATOM_OK : atom_fail(end, "%s", p->end_text);
}
