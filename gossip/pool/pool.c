/*
 * Owns the object of a membership: its descriptors, opening and closing. Its one idea: the parts
 * are opened in the order in which they need each other and closed the other way round; a
 * half-built object is closed like a whole one. It refuses two processes in one directory.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE,
                                 "%s: another process already takes part with this "
                                 "directory",
                                 p->directory));
    gsp_dir_sweep(p->directory);
cleanup:
    atom_free(lock);
    return st;
}

/* What the host says of itself, for the parts that pass it on. */
static void open_parts(gsp_pool *p)
{
    const gsp_pool_host *h = &p->host;
    p->reach.n_listen = h->n_listen;
    memcpy(p->reach.listen, h->listen, sizeof p->reach.listen);
    p->reach.n_announce = h->n_announce;
    memcpy(p->reach.announce, h->announce, sizeof p->reach.announce);
    gsp_month_open(&p->month, p->directory, h->up_month_max, h->down_month_max);
    gsp_credits_open(&p->credits, p->directory);
}

atom_status gsp_pool_make(const gsp_pool_host *host, gsp_pool **out)
{
    atom_status st;
    gsp_pool *p = NULL;
    ATOM_TRY(gsp_crypto_start());
    if (host->n_listen > GSP_POOL_LISTEN_MAX || host->n_announce > GSP_TICKET_HOSTS_MAX ||
        host->n_bootstraps > GSP_POOL_BOOTSTRAPS_MAX)
        return atom_fail(ATOM_E_USAGE, "too many addresses to listen at, to announce or to ask "
                                       "first");
    p = atom_alloc(1, sizeof *p);
    if (!p)
        return atom_fail_memory("a pool", sizeof *p);
    p->lock_fd = -1;
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->changed, NULL);
    gsp_headline_open(&p->headline);
    gsp_control_orders_open(&p->errands);
    p->status = atom_alloc(1, sizeof *p->status);
    p->diary.directory = p->directory = atom_strdup(host->directory);
    p->host = *host;
    memset(p->host.announce, 0, sizeof p->host.announce);
    memset(p->host.bootstrap, 0, sizeof p->host.bootstrap);
    if (!p->status || !p->directory)
        ATOM_TRY_CLEAN(atom_fail_memory("a pool", sizeof *p->status));
    memcpy(p->host.announce, host->announce, sizeof host->announce);
    memcpy(p->host.bootstrap, host->bootstrap, sizeof host->bootstrap);
    ATOM_TRY_CLEAN(copy_texts(p));
    ATOM_TRY_CLEAN(take_directory(p));
    atomic_store(&p->paused, gsp_pause_is_kept(p->directory));
    ATOM_TRY_CLEAN(gsp_door_open(&p->door, p->directory));
    p->notes = gsp_notes_open(p->directory, p->door.identity.public_key, &p->links);
    p->data = (gsp_data){.directory = p->directory,
                         .manifest = p->door.manifest,
                         .links = &p->links,
                         .diary = &p->diary};
    p->files = gsp_files_open(p->directory, p->door.manifest, &p->links, &p->diary);
    if (!p->notes || !p->files)
        ATOM_TRY_CLEAN(atom_fail_memory("notes and files", 0));
    open_parts(p);
    *out = p;
cleanup:
    return st == ATOM_OK ? ATOM_OK : gsp_pool_close_after(&p, st);
}

/* ---- the network ---- */

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
    if (p->door.plain) {
        gsp_net_plain_config c = {.streams = p->host.streams};
        memcpy(c.key, p->door.identity.public_key, sizeof c.key);
        if (p->host.n_listen)
            c.listen = p->host.listen[0];
        if (p->host.n_listen && c.listen.port == 0)
            return atom_fail(ATOM_E_USAGE, "without encryption (transport: plain) the port to "
                                           "listen at must be given");
        return gsp_net_open_plain(&c, &p->net);
    }
    gsp_net_gate_config g = {.streams = p->host.streams, .gate.n_listen = p->host.n_listen};
    memcpy(g.gate.listen, p->host.listen, p->host.n_listen * sizeof *g.gate.listen);
    g.gate.up_bytes_per_s = p->host.up_bytes_per_s;
    g.gate.down_bytes_per_s = p->host.down_bytes_per_s;
    gsp_door_who(&p->door, &g.gate.handshake);
    char *sockets = socket_directory(p);
    g.directory = sockets;
    atom_status st = gsp_net_open_gate(&g, &p->net);
    atom_free(sockets);
    sodium_memzero(&g, sizeof g);
    return st;
}

static atom_status open_book(gsp_pool *p)
{
    gsp_handshake_config who;
    uint16_t ours = p->host.directory_port;
    if (!ours && p->host.n_listen > 0) /* the same after a restart, and known to whoever knows us */
        ours = gsp_net_port(p->net);
    const gsp_address_book_config config = {.who = &who,
                                            .directory = p->directory,
                                            .no_lan = p->host.no_lan,
                                            .no_directory = p->host.no_directory,
                                            .directory_port = ours,
                                            .n_bootstraps = p->host.n_bootstraps,
                                            .bootstrap = p->host.bootstrap};
    gsp_door_who(&p->door, &who);
    atom_status st = gsp_address_book_open(&p->book, &config);
    sodium_memzero(&who, sizeof who);
    return st;
}

/* Whoever owns the pool is about to make a ticket, which should name the address outside. */
static void open_router(gsp_pool *p)
{
    if (p->host.no_router)
        return;
    gsp_reach_ask_router(&p->reach);
    if (!gsp_door_admits(&p->door, (uint64_t)atom_wall_seconds()))
        return;
    gsp_reach_wait(&p->reach);
    gsp_pool_look_at_router(p);
}

atom_status gsp_pool_open_net(gsp_pool *p)
{
    ATOM_TRY(open_transport(p));
    p->links.net = p->net;
    p->reach.port = gsp_net_port(p->net);
    p->reach.plain = p->door.plain;
    gsp_reach_look_up(&p->reach);
    gsp_reach_watch_names(&p->reach);
    ATOM_TRY(gsp_probe_server_open(p->net, 0, &p->probe));
    ATOM_TRY(open_book(p));
    open_router(p);
    p->seek.net = p->net;
    p->seek.hosts = &p->door.hosts;
    gsp_seek_dial(&p->seek);
    ATOM_TRY(gsp_control_open(p->directory, gsp_pool_answer, p, &p->control));
    uint8_t shown[GSP_CREDENTIAL_BYTES_MAX];
    p->shown_bytes = gsp_door_shows(&p->door, (uint64_t)atom_wall_seconds(), shown);
    p->started_s = atom_clock_seconds();
    return ATOM_OK;
}

/* ---- opening ---- */

bool gsp_pool_exists(const char *directory)
{
    return gsp_dir_has(directory, "keys") && gsp_dir_has(directory, "manifest.json");
}

bool gsp_pool_is_paused(const char *directory)
{
    return gsp_pause_is_kept(directory);
}

atom_status gsp_pool_check_rights(const char *directory)
{
    return gsp_dir_check_rights(directory);
}

atom_status gsp_pool_close_after(gsp_pool **pool, atom_status st)
{
    char why[512];
    snprintf(why, sizeof why, "%s", atom_fail_message());
    (void)gsp_pool_close(pool);
    return atom_fail(st, "%s", why);
}

atom_status gsp_pool_open(const gsp_pool_host *host, gsp_pool **out)
{
    gsp_pool *p = NULL;
    atom_status st;
    if (!gsp_pool_exists(host->directory))
        return atom_fail(ATOM_E_FORMAT, "%s: there is no pool here; join one with a ticket",
                         host->directory);
    ATOM_TRY_CLEAN(gsp_pool_make(host, &p));
    ATOM_TRY_CLEAN(gsp_door_load_keys(&p->door));
    ATOM_TRY_CLEAN(gsp_door_load_manifest(&p->door));
    ATOM_TRY_CLEAN(gsp_door_load_delegations(&p->door));
    if (!gsp_door_load_admission(&p->door))
        ATOM_TRY_CLEAN(gsp_door_fail_admission(&p->door, (uint64_t)atom_wall_seconds()));
    if (gsp_door_bans_us(&p->door))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_RUNTIME, "the pool's owner has banned this host"));
    ATOM_TRY_CLEAN(gsp_pool_load_owner(p));
    ATOM_TRY_CLEAN(gsp_pool_open_net(p));
    if (gsp_door_admits(&p->door, (uint64_t)atom_wall_seconds()))
        ATOM_TRY_CLEAN(gsp_pool_refresh_ticket(p));
    gsp_headline_say(&p->headline, GSP_POOL_READY, "ready");
    *out = p;
    return ATOM_OK;
cleanup:
    return gsp_pool_close_after(&p, st);
}

const gsp_manifest *gsp_pool_manifest(const gsp_pool *p)
{
    return p->door.manifest;
}

const uint8_t *gsp_pool_key(const gsp_pool *p)
{
    return p->door.identity.public_key;
}

bool gsp_pool_is_founder(const gsp_pool *p)
{
    return memcmp(p->door.identity.public_key, p->door.manifest->founder, GSP_PUBLIC_BYTES) == 0;
}

const char *gsp_pool_ticket(const gsp_pool *p)
{
    return p->door.ticket;
}

uint16_t gsp_pool_port(const gsp_pool *p)
{
    return p->reach.port;
}

/* ---- the end ---- */

static void close_parts(gsp_pool *p)
{
    gsp_control_close(&p->control);
    gsp_node_close(&p->node);
    gsp_notes_close(&p->notes);
    gsp_files_close(&p->files);
    gsp_data_close(&p->data);
    gsp_month_close(&p->month, p->net);
    if (p->credits.path)
        gsp_credits_close(&p->credits, gsp_pool_own_tokens(p));
    gsp_probe_server_close(&p->probe);
    gsp_address_book_close(&p->book);
    gsp_reach_close(&p->reach);
    gsp_net_close(&p->net);
    gsp_event_log_close(&p->diary);
}

atom_status gsp_pool_close(gsp_pool **pool)
{
    gsp_pool *p = *pool;
    atom_status end = ATOM_OK;
    if (!p)
        return ATOM_OK;
    if (p->has_thread) {
        atomic_store(&p->stop, true);
        gsp_net_wake(p->net);
        pthread_join(p->thread, NULL);
    }
    *pool = NULL; /* until here its thread may call those that look at it */
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
    gsp_door_close(&p->door);
    gsp_control_orders_close(&p->errands);
    gsp_headline_close(&p->headline);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    atom_free(p->status);
    atom_free(p->memory);
    atom_free(p->directory);
    atom_free(p);
    return end == ATOM_OK ? ATOM_OK : atom_fail(end, "%s", text);
}
