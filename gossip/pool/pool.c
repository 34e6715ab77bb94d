/*
 * Owns a host's membership while it runs: the object, its descriptors, its thread. Its one idea:
 * before the start everything happens on the caller's thread, after it everything happens on one
 * thread between two turns of the member; other threads leave numbers and orders behind. It refuses
 * two processes in one directory.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "gossip/member/node_look.h"
#include "gossip/member/shares.h"
#include "gossip/member/votes.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t TURN_NS = 50000000u, LINGER_NS = 700000000u;

/* ---- the object ---- */

static atom_status copy_texts(gsp_pool *p)
{
    gsp_pool_host *h = &p->host;
    h->directory = p->directory;
    bool ok = true;
    for (uint32_t i = 0; i < h->n_announce; i++)
        ok &= (h->announce[i] = atom_strdup(h->announce[i])) != NULL;
    for (uint32_t i = 0; i < h->n_bootstraps; i++)
        ok &= (h->bootstrap[i] = atom_strdup(h->bootstrap[i])) != NULL;
    char name[256] = "";
    if (h->name)
        snprintf(name, sizeof name, "%s", h->name);
    else if (gethostname(name, sizeof name - 1) != 0)
        name[0] = 0;
    for (size_t i = 0; i + 1 < sizeof p->name && name[i]; i++)
        p->name[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?';
    h->name = p->name;
    return ok ? ATOM_OK : atom_fail_memory("a pool", sizeof *p);
}

static atom_status take_directory(gsp_pool *p)
{
    char *lock = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(atom_dir_make(p->directory));
    if (chmod(p->directory, 0700) != 0)
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "%s", p->directory));
    lock = atom_path_join(p->directory, "lock");
    if (!lock)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 0));
    p->lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (p->lock_fd < 0)
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "%s", lock));
    if (flock(p->lock_fd, LOCK_EX | LOCK_NB) != 0)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE, "%s: another process takes part from this directory",
                                 p->directory));
cleanup:
    atom_free(lock);
    return st;
}

atom_status life_make(const gsp_pool_host *host, gsp_pool **out)
{
    char *path = NULL;
    atom_status st;
    gsp_pool *p = NULL;
    ATOM_TRY_CLEAN(gsp_crypto_start());
    if (host->n_listen > GSP_POOL_LISTEN_MAX || host->n_announce > GSP_TICKET_HOSTS_MAX ||
        host->n_bootstraps > GSP_POOL_BOOTSTRAPS_MAX)
        return atom_fail(ATOM_E_USAGE, "too many addresses to listen at, announce or begin with");
    p = atom_alloc(1, sizeof *p);
    if (!p)
        return atom_fail_memory("a pool", sizeof *p);
    p->lock_fd = -1;
    gsp_headline_open(&p->headline);
    p->has_lock =
        pthread_mutex_init(&p->lock, NULL) == 0 && pthread_cond_init(&p->answered, NULL) == 0;
    p->manifest = atom_alloc(1, sizeof *p->manifest);
    p->status = atom_alloc(1, sizeof *p->status);
    p->diary.directory = p->directory = atom_strdup(host->directory);
    p->host = *host;
    memset(p->host.announce, 0, sizeof p->host.announce);
    memset(p->host.bootstrap, 0, sizeof p->host.bootstrap);
    if (!p->has_lock || !p->manifest || !p->status || !p->directory)
        ATOM_TRY_CLEAN(atom_fail_memory("a pool", sizeof *p->manifest));
    memcpy(p->host.announce, host->announce, sizeof host->announce);
    memcpy(p->host.bootstrap, host->bootstrap, sizeof host->bootstrap);
    ATOM_TRY_CLEAN(copy_texts(p));
    ATOM_TRY_CLEAN(take_directory(p));
    path = atom_path_join(p->directory, "identity");
    if (!path)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 0));
    ATOM_TRY_CLEAN(gsp_identity_open(path, &p->identity));
    p->notes = gsp_notes_open(p->directory, p->identity.public_key, &p->links);
    if (!p->notes)
        ATOM_TRY_CLEAN(atom_fail_memory("notes", 0));
    life_month_open(p);
    *out = p;
cleanup:
    atom_free(path);
    if (st != ATOM_OK)
        (void)gsp_pool_close(&p);
    return st;
}

/* ---- the network ---- */

/* On the gate's thread, and the directory's. */
static gsp_refusal may_enter(void *context, const uint8_t key[GSP_PUBLIC_BYTES], gsp_role role,
                             const gsp_hello *hello)
{
    gsp_pool *p = context;
    (void)role, (void)hello;
    pthread_mutex_lock(&p->lock);
    bool banned = p->has_manifest && gsp_manifest_bans(p->manifest, key);
    pthread_mutex_unlock(&p->lock);
    return banned ? GSP_REFUSED_BANNED : atomic_load(&p->rests) ? GSP_REFUSED_FULL : GSP_WELCOME;
}

void life_who(gsp_pool *p, gsp_handshake_config *out)
{
    memset(out, 0, sizeof *out);
    out->self = &p->identity;
    memcpy(out->pool, p->pool, sizeof out->pool);
    memcpy(out->owner, p->owner, sizeof out->owner);
    memcpy(out->psk, p->psk, sizeof out->psk);
    out->n_psks = p->n_psks;
    memcpy(out->credential, p->credential, p->credential_bytes);
    out->credential_bytes = p->credential_bytes;
    out->may_enter = may_enter;
    out->ctx = p;
}

/* A short directory of ours for the gate's local sockets; NULL: one under /tmp serves. */
static char *socket_directory(gsp_pool *p)
{
    char *path = atom_path_join(p->directory, "links");
    char *real = path && atom_dir_make(path) == ATOM_OK ? path : NULL;
    if (real && strlen(real) > 70)
        real = NULL;
    if (real && (atom_dir_remove(real) != ATOM_OK || mkdir(real, 0700) != 0))
        real = NULL; /* what a killed process left is gone */
    if (!real)
        atom_free(path);
    return real;
}

static atom_status open_transport(gsp_pool *p)
{
    if (p->plain) {
        gsp_net_plain_config c = {.streams = p->host.streams};
        memcpy(c.key, p->identity.public_key, sizeof c.key);
        if (p->host.n_listen)
            c.listen = p->host.listen[0];
        if (p->host.n_listen && c.listen.port == 0)
            return atom_fail(ATOM_E_USAGE, "without a gate (transport: plain) the port to listen "
                                           "at must be named");
        return gsp_net_open_plain(&c, &p->net);
    }
    gsp_net_gate_config g = {.streams = p->host.streams, .gate.n_listen = p->host.n_listen};
    memcpy(g.gate.listen, p->host.listen, p->host.n_listen * sizeof *g.gate.listen);
    g.gate.up_bytes_per_s = p->host.up_bytes_per_s;
    g.gate.down_bytes_per_s = p->host.down_bytes_per_s;
    life_who(p, &g.gate.handshake);
    char *sockets = socket_directory(p);
    g.directory = sockets;
    atom_status st = gsp_net_open_gate(&g, &p->net);
    atom_free(sockets);
    sodium_memzero(&g, sizeof g);
    return st;
}

/* What helps to find members, and is done without where it cannot be had. */
static void open_finders(gsp_pool *p, const gsp_handshake_config *who)
{
    char *nodes = atom_path_join(p->directory, "nodes");
    gsp_lan_config lan = {.who = *who};
    gsp_directory_config directory = {
        .who = *who, .port = p->host.directory_port, .nodes_path = nodes};
    if (!p->host.no_lan && gsp_lan_open(&lan, &p->lan) != ATOM_OK)
        atom_log(ATOM_LOG_DEBUG, "no local discovery: %s", atom_fail_message());
    if (!p->host.no_directory && gsp_directory_open(&directory, &p->nodes) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "the pool does without the directory: %s", atom_fail_message());
    for (uint32_t i = 0; p->nodes && i < p->host.n_bootstraps; i++)
        if (gsp_directory_bootstrap(p->nodes, p->host.bootstrap[i]) != ATOM_OK)
            atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    atom_free(nodes);
}

atom_status life_open_net(gsp_pool *p)
{
    gsp_handshake_config who;
    char *book = atom_path_join(p->directory, "peers");
    atom_status st;
    life_who(p, &who);
    if (!book)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 0));
    ATOM_TRY_CLEAN(open_transport(p));
    p->links.net = p->net;
    p->port = gsp_net_port(p->net);
    ATOM_TRY_CLEAN(gsp_probe_server_open(p->net, 0, &p->probe));
    ATOM_TRY_CLEAN(gsp_peers_open(&who, &p->peers));
    if (gsp_peers_load(p->peers, book, (uint64_t)atom_wall_seconds()) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s; its peers are forgotten", atom_fail_message());
    life_router_open(p);
    open_finders(p, &who);
    life_seek(p);
    ATOM_TRY_CLEAN(gsp_control_open(p->directory, life_answer, p, &p->control));
    p->started_s = atom_clock_seconds();
cleanup:
    sodium_memzero(&who, sizeof who);
    atom_free(book);
    return st;
}

void life_rekey(gsp_pool *p)
{
    if (!p->plain)
        gsp_net_rekey(p->net, p->psk, p->n_psks, p->credential, p->credential_bytes);
    if (p->lan)
        gsp_lan_rekey(p->lan, p->psk, p->n_psks);
    if (p->nodes)
        gsp_directory_rekey(p->nodes, p->psk, p->n_psks);
    life_contact_renew(p);
}

void life_step(gsp_pool *p)
{
    uint64_t now = atom_clock_ns();
    life_files_step(p, now);
    gsp_probe_server_step(p->probe);
    if (now < p->step_ns)
        return;
    p->step_ns = now + 100000000u;
    life_obey(p);
    life_links_step(p, now);
    if (!p->is_guest)
        gsp_notes_step(p->notes);
    life_snapshot_step(p);
}

/* ---- opening ---- */

bool gsp_pool_exists(const char *directory)
{
    char *keys = atom_path_join(directory, "keys");
    char *manifest = atom_path_join(directory, "manifest.json");
    bool both = keys && manifest && atom_path_exists(keys) && atom_path_exists(manifest);
    atom_free(keys);
    atom_free(manifest);
    return both;
}

/* Closes what failed to open, and keeps the message. */
static atom_status close_after(gsp_pool **pool, atom_status st)
{
    char why[512];
    snprintf(why, sizeof why, "%s", atom_fail_message());
    (void)gsp_pool_close(pool);
    return atom_fail(st, "%s", why);
}

static atom_status open_owner(gsp_pool *p)
{
    char *book = atom_path_join(p->directory, "invites"),
         *ticket = atom_path_join(p->directory, "ticket"), *text = NULL;
    uint64_t bytes = 0;
    atom_status st = book && ticket ? ATOM_OK : atom_fail_memory("a path", 0);
    if (st == ATOM_OK)
        st = gsp_ledger_open(book, &p->ledger);
    if (st == ATOM_OK && atom_path_exists(ticket) &&
        atom_file_read(ticket, GSP_TICKET_TEXT_BYTES, &text, &bytes) == ATOM_OK) {
        snprintf(p->ticket, sizeof p->ticket, "%s", text);
        p->ticket[strcspn(p->ticket, "\n")] = 0;
    }
    atom_free(text);
    atom_free(ticket);
    atom_free(book);
    return st;
}

atom_status gsp_pool_open(const gsp_pool_host *host, gsp_pool **out)
{
    gsp_pool *p = NULL;
    atom_status st;
    if (!gsp_pool_exists(host->directory))
        return atom_fail(ATOM_E_FORMAT, "%s: no pool here; join one with a ticket",
                         host->directory);
    ATOM_TRY_CLEAN(life_make(host, &p));
    ATOM_TRY_CLEAN(life_load_keys(p));
    ATOM_TRY_CLEAN(life_load_manifest(p));
    if (!life_load_admission(p))
        ATOM_TRY_CLEAN(
            atom_fail(ATOM_E_FORMAT,
                      "%s: this host's admission is missing or has expired; join again with "
                      "a ticket",
                      host->directory));
    if (gsp_manifest_bans(p->manifest, p->identity.public_key))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_RUNTIME, "the pool's owner has banned this host"));
    if (gsp_pool_is_owner(p))
        ATOM_TRY_CLEAN(open_owner(p));
    ATOM_TRY_CLEAN(life_open_net(p));
    if (gsp_pool_is_owner(p))
        ATOM_TRY_CLEAN(life_refresh_ticket(p));
    gsp_headline_say(&p->headline, GSP_POOL_READY, "ready");
    *out = p;
    return ATOM_OK;
cleanup:
    return close_after(&p, st);
}

const gsp_manifest *gsp_pool_manifest(const gsp_pool *p)
{
    return p->manifest;
}

const uint8_t *gsp_pool_key(const gsp_pool *p)
{
    return p->identity.public_key;
}

bool gsp_pool_is_owner(const gsp_pool *p)
{
    return memcmp(p->identity.public_key, p->owner, sizeof p->owner) == 0;
}

bool gsp_pool_is_founder(const gsp_pool *p)
{
    return memcmp(p->identity.public_key, p->manifest->founder, sizeof p->owner) == 0;
}

const char *gsp_pool_ticket(const gsp_pool *p)
{
    return p->ticket;
}

uint16_t gsp_pool_port(const gsp_pool *p)
{
    return p->port;
}

/* ---- taking part ---- */

static bool admitted(void *context, const gsp_key *key)
{
    const gsp_pool *p = context;
    return !gsp_manifest_bans(p->manifest, key->byte);
}

static bool other(void *context, gsp_net_event *event)
{
    gsp_pool *p = context;
    if (!life_take(p, event))
        return false;
    gsp_net_free(p->net, event->data);
    return true;
}

/* Tells the member what the trainer reported. */
static void pass_reports(gsp_pool *p)
{
    uint64_t samples = atomic_load(&p->samples), tokens = atomic_load(&p->tokens);
    uint64_t fresh = samples - p->base_samples;
    if (fresh == p->said_samples && tokens == p->said_tokens)
        return;
    p->said_samples = fresh;
    p->said_tokens = tokens;
    gsp_node_report(p->driver, fresh, tokens);
}

static void show_round(gsp_pool *p, const gsp_agree *a)
{
    gsp_node_status s;
    gsp_node_read_status(p->driver, &s);
    const gsp_proposal *c = &a->certificate.proposal;
    gsp_pool_round r = {.version = a->certified,
                        .n_contributors = c->n_contributors,
                        .n_roster = gsp_agree_roster(a)->n,
                        .tokens = c->samples * p->manifest->tokens_per_sample,
                        .samples = c->samples,
                        .wall_s = atom_wall_seconds(),
                        .round_s = 1e-9 * (double)s.round_ns};
    pthread_mutex_lock(&p->lock);
    gsp_pool_status *st = p->status;
    memmove(st->round + 1, st->round, sizeof st->round - sizeof *st->round);
    st->round[0] = r;
    st->n_rounds += st->n_rounds < GSP_POOL_ROUNDS_SHOWN;
    pthread_mutex_unlock(&p->lock);
    gsp_diary_add(&p->diary,
                  "\"event\":\"certified\",\"version\":%llu,\"contributors\":%u,\"roster\":%u,"
                  "\"tokens\":%llu,\"round_s\":%.3f",
                  (unsigned long long)r.version, r.n_contributors, r.n_roster,
                  (unsigned long long)r.tokens, r.round_s);
}

static void watch_versions(gsp_pool *p)
{
    const gsp_agree *a = gsp_node_look(p->driver);
    bool moved = !gsp_hash_equal(&a->lineage, &p->seen_lineage);
    if (moved) {
        char id[17];
        sodium_bin2hex(id, sizeof id, a->lineage.byte, 8);
        gsp_diary_add(&p->diary, "\"event\":\"lineage\",\"lineage\":\"%s\",\"version\":%llu", id,
                      (unsigned long long)a->certified);
        p->seen_lineage = a->lineage;
    }
    if (!moved && a->certified == p->seen_version)
        return;
    p->seen_version = a->certified;
    p->base_samples = atomic_load(&p->samples);
    p->said_samples = UINT64_MAX; /* say it again, from zero */
    p->contact_changed = true;
    if (a->certificate.n_votes)
        show_round(p, a);
}

/* Whom a quorum lacks, by name where one was said. */
static void missing_names(const gsp_pool *p, const gsp_agree *a, char text[GSP_POOL_WHY_BYTES])
{
    const gsp_roster *roster = gsp_agree_roster(a);
    size_t at = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < roster->n && at < GSP_POOL_WHY_BYTES; i++) {
        const uint8_t *key = roster->member[i].key.byte;
        char name[GSP_WORD_NAME_BYTES] = "";
        bool up = memcmp(key, p->identity.public_key, GSP_PUBLIC_BYTES) == 0;
        for (uint32_t k = 0; k < GSP_NET_PEERS_MAX; k++) {
            if (memcmp(p->links.link[k].key, key, GSP_PUBLIC_BYTES) == 0) {
                up |= p->links.link[k].up;
                memcpy(name, p->links.link[k].name, sizeof name);
            }
        }
        if (!name[0])
            sodium_bin2hex(name, sizeof name < 13 ? sizeof name : 13, key, 6);
        if (!up)
            at +=
                (size_t)snprintf(text + at, GSP_POOL_WHY_BYTES - at, "%s%s", at ? ", " : "", name);
    }
}

static void watch_quorum(gsp_pool *p)
{
    const gsp_agree *a = gsp_node_look(p->driver);
    uint64_t fork_in_ns;
    bool waits = gsp_agree_waits(a, 2 * a->rules.dead_ns, &fork_in_ns);
    if (waits == p->said_waits)
        return;
    p->said_waits = waits;
    if (!waits) {
        gsp_diary_add(&p->diary, "\"event\":\"quorum\"");
        return;
    }
    char names[GSP_POOL_WHY_BYTES];
    unsigned long long seconds = fork_in_ns / 1000000000u;
    missing_names(p, a, names);
    gsp_diary_add(&p->diary, "\"event\":\"no_quorum\",\"goes_on_in_s\":%llu", seconds);
    atom_log(ATOM_LOG_WARN,
             "the pool: no quorum; waiting for %s%sfor %llu s at most, then this host goes on by "
             "itself",
             names, names[0] ? ", " : "", seconds);
}

/* True: goodbye was said and heard, or there is nobody to say it to. */
static bool has_left(gsp_pool *p, uint64_t now)
{
    gsp_node_status s;
    if (!atomic_load(&p->leave))
        return false;
    gsp_node_read_status(p->driver, &s);
    if (p->leaving_ns == 0) {
        p->leaving_ns = now;
        gsp_diary_add(&p->diary, "\"event\":\"leaving\"");
        gsp_headline_say(&p->headline, GSP_POOL_RUNNING, "saying goodbye");
        if (s.is_member ? s.n_roster <= 1 : s.n_links == 0)
            return true;
        gsp_node_leave(p->driver); /* who is no member takes back that it wants to be one */
        return false;
    }
    if (s.is_member && s.n_roster > 1)
        p->leaving_ns = now; /* linger from then on */
    return now - p->leaving_ns > LINGER_NS;
}

static void end_thread(gsp_pool *p, atom_status st)
{
    gsp_node_status s = {0};
    bool left = p->leaving_ns != 0;
    if (st == ATOM_OK || left)
        gsp_node_read_status(p->driver, &s);
    pthread_mutex_lock(&p->lock);
    p->end = st;
    if (st != ATOM_OK)
        snprintf(p->end_text, sizeof p->end_text, "%s", atom_fail_message());
    pthread_mutex_unlock(&p->lock);
    if (st != ATOM_OK) {
        atom_log(ATOM_LOG_ERROR, "the pool: %s", p->end_text);
        gsp_diary_add(&p->diary, "\"event\":\"dead\"");
        gsp_headline_say(&p->headline, GSP_POOL_DEAD, "%s", p->end_text);
    } else if (left) {
        gsp_diary_add(&p->diary, "\"event\":\"left\"");
        gsp_headline_say(&p->headline, GSP_POOL_LEFT, "left the pool");
    }
    life_snapshot(p);
    gsp_node_close(&p->driver);
    /* Who said goodbye comes back as somebody new; who was alone said nothing. */
    if (left && !(s.is_member && s.n_roster <= 1) && gsp_votes_forget(p->memory) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->ended, true);
    pthread_cond_broadcast(&p->answered);
    pthread_mutex_unlock(&p->lock);
}

static void *run(void *context)
{
    gsp_pool *p = context;
    atom_status st = ATOM_OK;
    while (st == ATOM_OK && !atomic_load(&p->stop)) {
        if (life_month_step(p)) {
            st = life_month_rest(p);
            if (st == ATOM_OK && atomic_load(&p->leave))
                break; /* nobody is there to hear a goodbye */
            continue;
        }
        pass_reports(p);
        st = gsp_node_turn(p->driver, TURN_NS);
        if (st != ATOM_OK)
            break;
        watch_versions(p);
        watch_quorum(p);
        life_watch_bans(p);
        life_step(p);
        st = gsp_headline_check(&p->headline);
        if (st == ATOM_OK && has_left(p, atom_clock_ns()))
            break;
    }
    end_thread(p, st);
    return NULL;
}

static void member_config(gsp_pool *p, const gsp_pool_part *part, gsp_node_config *c)
{
    const gsp_manifest *m = p->manifest;
    *c = (gsp_node_config){
        .net = p->net,
        .identity = &p->identity,
        .directory = p->memory,
        .rates = part->rates,
        .holds_genesis = part->holds_genesis,
        .n_fragments = m->n_fragments,
        .codec = m->codec,
        .robust = m->robust,
        .work = part->work,
        .other = other,
        .other_context = p,
    };
    if (p->host.up_bytes_per_s)
        c->rates.up_bytes_per_s = p->host.up_bytes_per_s;
    if (p->host.down_bytes_per_s)
        c->rates.down_bytes_per_s = p->host.down_bytes_per_s;
    c->rates.accepts = p->port != 0;
    p->rates = c->rates;
    memcpy(c->n_floats, m->n_floats, sizeof c->n_floats);
    gsp_manifest_genesis(m, &c->genesis);
    gsp_manifest_rules(m, &c->rules);
    if (part->has_audit)
        c->rules.audit_percent = part->audit_percent;
    c->rules.admitted = admitted;
    c->rules.assign = gsp_shares_assign;
    c->rules.context = p;
}

/* Links that came up before there was a member. */
static void introduce(gsp_pool *p)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (p->links.link[i].up && !p->links.link[i].guest)
            gsp_node_link(p->driver, p->links.link[i].key);
}

atom_status gsp_pool_start(gsp_pool *p, const gsp_pool_part *part)
{
    gsp_node_config c;
    atom_status st;
    if (p->has_thread || p->memory)
        return atom_fail(ATOM_E_USAGE, "the pool was started before");
    p->memory = atom_path_join(p->directory, "member");
    if (!p->memory)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 0));
    member_config(p, part, &c);
    ATOM_TRY_CLEAN(gsp_node_open(&c, &p->driver));
    introduce(p);
    p->started_s = atom_clock_seconds();
    gsp_diary_add(&p->diary, "\"event\":\"start\",\"port\":%u", p->port);
    gsp_headline_say(&p->headline, GSP_POOL_RUNNING, "taking part");
    life_contact_renew(p);
    life_greet_all(p);
    int error = pthread_create(&p->thread, NULL, run, p);
    if (error)
        ATOM_TRY_CLEAN(atom_fail_errno(error, "a thread for the pool"));
    p->has_thread = true;
cleanup:
    if (st != ATOM_OK)
        gsp_node_close(&p->driver);
    return st;
}

void gsp_pool_report(gsp_pool *p, uint64_t samples, uint64_t tokens)
{
    atomic_store(&p->tokens, tokens);
    atomic_store(&p->samples, samples);
}

gsp_pool_wish gsp_pool_wishes(gsp_pool *p, char why[GSP_POOL_WHY_BYTES], atom_status *status)
{
    gsp_pool_wish wish = GSP_POOL_GO;
    const char *text = "";
    char resting[GSP_POOL_WHY_BYTES];
    pthread_mutex_lock(&p->lock);
    if (atomic_load(&p->ended) || atomic_load(&p->leave) || atomic_load(&p->asked_stop)) {
        wish = GSP_POOL_STOP;
        text = p->end != ATOM_OK        ? p->end_text
               : atomic_load(&p->leave) ? "this host leaves the pool"
                                        : "asked to stop";
    } else if (atomic_load(&p->paused)) {
        wish = GSP_POOL_PAUSE;
        text = "paused";
    } else if (atomic_load(&p->rests)) {
        wish = GSP_POOL_REST;
        (void)gsp_headline_read(&p->headline, resting);
        text = resting;
    }
    if (why)
        snprintf(why, GSP_POOL_WHY_BYTES, "%s", text);
    if (status)
        *status = p->end;
    pthread_mutex_unlock(&p->lock);
    return wish;
}

void gsp_pool_pause(gsp_pool *p, bool paused)
{
    atomic_store(&p->paused, paused);
}

/* ---- the end ---- */

atom_status gsp_pool_leave(gsp_pool *p, double timeout_s)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)timeout_s + 1;
    if (!p->has_thread)
        return ATOM_OK;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->leave, true);
    int late = 0;
    while (!atomic_load(&p->ended) && late == 0)
        late = pthread_cond_timedwait(&p->answered, &p->lock, &until);
    atom_status end = p->end;
    pthread_mutex_unlock(&p->lock);
    atomic_store(&p->stop, true);
    gsp_net_wake(p->net);
    pthread_join(p->thread, NULL);
    p->has_thread = false;
    if (late)
        return atom_fail(ATOM_E_RUNTIME,
                         "no quorum heard the goodbye in time; the others will notice by silence");
    return end == ATOM_OK ? ATOM_OK : atom_fail(end, "%s", p->end_text);
}

static void close_parts(gsp_pool *p)
{
    char *book = atom_path_join(p->directory, "peers");
    gsp_control_close(&p->control);
    gsp_node_close(&p->driver);
    gsp_notes_close(&p->notes);
    life_pieces_close(p);
    life_month_close(p);
    if (p->peers && book && gsp_peers_save(p->peers, book) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    atom_free(book);
    gsp_probe_server_close(&p->probe);
    gsp_lan_close(&p->lan);
    gsp_directory_close(&p->nodes);
    gsp_portmap_close(&p->router);
    gsp_net_close(&p->net);
    gsp_peers_close(&p->peers);
    gsp_ledger_close(&p->ledger);
    gsp_diary_close(&p->diary);
}

atom_status gsp_pool_close(gsp_pool **pool)
{
    gsp_pool *p = *pool;
    atom_status end = ATOM_OK;
    *pool = NULL;
    if (!p)
        return ATOM_OK;
    if (p->has_thread) {
        atomic_store(&p->stop, true);
        gsp_net_wake(p->net);
        pthread_join(p->thread, NULL);
    }
    end = p->end;
    char text[GSP_POOL_WHY_BYTES];
    memcpy(text, p->end_text, sizeof text);
    if (p->directory)
        close_parts(p);
    if (p->lock_fd >= 0)
        close(p->lock_fd);
    for (uint32_t i = 0; i < GSP_TICKET_HOSTS_MAX; i++)
        atom_free((char *)p->host.announce[i]);
    for (uint32_t i = 0; i < GSP_POOL_BOOTSTRAPS_MAX; i++)
        atom_free((char *)p->host.bootstrap[i]);
    if (p->has_lock) {
        pthread_cond_destroy(&p->answered);
        pthread_mutex_destroy(&p->lock);
    }
    sodium_memzero(p->psk, sizeof p->psk);
    sodium_memzero(p->ticket, sizeof p->ticket);
    gsp_identity_wipe(&p->identity);
    gsp_headline_close(&p->headline);
    atom_free(p->manifest_text);
    atom_free(p->manifest);
    atom_free(p->status);
    atom_free(p->memory);
    atom_free(p->data_dir);
    atom_free(p->directory);
    atom_free(p);
    return end == ATOM_OK ? ATOM_OK : atom_fail(end, "%s", text);
}
