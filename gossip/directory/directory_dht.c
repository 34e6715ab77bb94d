/*
 * Owns the directory's node in OpenDHT, its queues and its timetable. Its one idea: OpenDHT's
 * threads only copy bytes into a bounded queue; one thread of ours decides what is put and looked
 * for, judges what came, and is the only one that calls into OpenDHT between open and close. It
 * refuses to rely on OpenDHT for trust or for deadlines: a lookup that is late is cut off here.
 *
 * What OpenDHT's C API (2.4) cannot do shapes this: a get cannot be cancelled, so its callback asks
 * for the end; a value cannot be replaced, so the same bytes are put again and known ones are
 * skipped; values live ten minutes, so keys are made of ten-minute buckets and two are looked at.
 */
#include "gossip/directory/directory.h"

#include "atom/base/assert.h"
#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <opendht/opendht_c.h>
#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    RAW_MAX = GSP_DIRECTORY_JUDGED_MAX,
    /* Under way: two keys or four per turn. Those that began before a node was known may hang for
     * long; they must not keep later ones from beginning. */
    LOOKUPS = 24,
    SEEN_MAX = 1024,
    KEYS_MAX = 2 * GSP_PSKS_MAX,
    HOST_BYTES = 80,
    ALONE_SECONDS = 8,
    SHUTDOWN_SECONDS = 3,
};
static const uint64_t SECOND_NS = 1000000000u;

typedef struct raw_value {
    size_t bytes;
    uint8_t data[GSP_CONTACT_SEALED_BYTES_MAX];
} raw_value;

typedef struct lookup {
    gsp_directory *directory;
    bool busy;
    bool cut; /* late or closing: the next callback ends it */
    uint64_t deadline_ns;
    uint32_t left; /* values it may still bring */
} lookup;

struct gsp_directory {
    gsp_directory_config config; /* who.psk under the lock */
    dht_runner *runner;
    uint16_t port;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    bool lock_made, news_made, thread_made;

    /* Under the lock. */
    bool closing, down, answered;
    uint32_t n_hosts;
    char hosts[GSP_DIRECTORY_BOOTSTRAPS_MAX][HOST_BYTES]; /* not tried yet */
    bool has_contact, put_fresh;
    gsp_contact contact;
    uint64_t put_ns, get_ns;             /* when it is next due */
    uint64_t put_pause_ns, get_pause_ns; /* short at first, doubled up to the configured ones */
    lookup lookups[LOOKUPS];
    raw_value raw[RAW_MAX];
    uint32_t n_raw;
    gsp_contact found[GSP_DIRECTORY_FOUND_MAX];
    uint32_t found_first, n_found;
    uint64_t seen[SEEN_MAX]; /* keyed hashes of sealed values, a ring */
    uint32_t seen_next;
    uint8_t seen_key[crypto_shorthash_KEYBYTES];
    gsp_directory_stats stats;

    /* Our thread's. The sealed form stays the same while contact and key do, so that others know it
     * again. */
    char begun_at[GSP_DIRECTORY_BOOTSTRAPS_MAX][HOST_BYTES];
    uint32_t n_begun, begun_turn;
    size_t sealed_bytes;
    uint8_t sealed[GSP_CONTACT_SEALED_BYTES_MAX];
};

static uint64_t hash_value(const gsp_directory *d, const void *data, size_t bytes)
{
    uint64_t hash;
    _Static_assert(sizeof hash == crypto_shorthash_BYTES, "a short hash");
    crypto_shorthash((uint8_t *)&hash, data, bytes, d->seen_key);
    return hash ? hash : 1; /* 0 is an empty place */
}

/* True when it was there already. */
static bool remember(gsp_directory *d, const void *data, size_t bytes)
{
    uint64_t hash = hash_value(d, data, bytes);
    for (uint32_t i = 0; i < SEEN_MAX; i++)
        if (d->seen[i] == hash)
            return true;
    d->seen[d->seen_next] = hash;
    d->seen_next = (d->seen_next + 1) % SEEN_MAX;
    return false;
}

/* OpenDHT's thread: one value of a lookup. False ends the lookup. */
static bool on_value(const dht_value *value, void *ctx)
{
    lookup *l = ctx;
    gsp_directory *d = l->directory;
    dht_data_view view = dht_value_get_data(value);
    pthread_mutex_lock(&d->lock);
    bool more = !l->cut && !d->closing;
    if (more && l->left == 0) {
        d->stats.dropped++;
        more = false;
    }
    if (more) {
        l->left--;
        if (view.size == 0 || view.size > GSP_CONTACT_SEALED_BYTES_MAX) {
            d->stats.verdicts[GSP_CONTACT_NOISE]++;
        } else if (d->n_raw == RAW_MAX) {
            d->stats.dropped++;
        } else if (remember(d, view.data, view.size)) {
            d->stats.known++;
        } else {
            d->raw[d->n_raw].bytes = view.size;
            memcpy(d->raw[d->n_raw++].data, view.data, view.size);
            pthread_cond_signal(&d->news);
        }
    }
    pthread_mutex_unlock(&d->lock);
    return more;
}

static void on_got(bool ok, void *ctx)
{
    lookup *l = ctx;
    gsp_directory *d = l->directory;
    (void)ok;
    pthread_mutex_lock(&d->lock);
    if (l->busy && !l->cut)
        d->stats.gets_done++;
    l->busy = false;
    pthread_mutex_unlock(&d->lock);
}

/* Between two puts that no other node takes. */
static uint64_t alone_pause(const gsp_directory *d)
{
    return (uint64_t)((d->config.put_s < ALONE_SECONDS ? d->config.put_s : ALONE_SECONDS) * 1e9);
}

static void on_put(bool ok, void *ctx)
{
    gsp_directory *d = ctx;
    pthread_mutex_lock(&d->lock);
    if (ok) {
        d->put_pause_ns = (uint64_t)(d->config.put_s * 1e9);
        d->put_ns = atom_clock_ns() + d->put_pause_ns;
    } else { /* alone: whoever comes first should find something soon */
        uint64_t soon = atom_clock_ns() + alone_pause(d);
        d->stats.puts_failed++;
        d->put_ns = d->put_ns < soon ? d->put_ns : soon;
        d->put_pause_ns = d->put_pause_ns < alone_pause(d) ? d->put_pause_ns : alone_pause(d);
    }
    pthread_mutex_unlock(&d->lock);
}

static void on_down(void *ctx)
{
    gsp_directory *d = ctx;
    pthread_mutex_lock(&d->lock);
    d->down = true;
    pthread_cond_broadcast(&d->news);
    pthread_mutex_unlock(&d->lock);
}

static dht_infohash key_of(const uint8_t psk[GSP_PSK_BYTES], uint64_t bucket)
{
    dht_infohash key;
    _Static_assert(sizeof key.d == GSP_DIRECTORY_KEY_BYTES, "OpenDHT's keys");
    gsp_directory_key(psk, bucket, key.d);
    return key;
}

/* The functions below run on our thread, with the lock held; they give it up around OpenDHT. */

static void put(gsp_directory *d, uint64_t now_ns, uint64_t now_s)
{
    dht_infohash key = key_of(d->config.who.psk[0], now_s / GSP_DIRECTORY_BUCKET_SECONDS);
    if (d->put_fresh || d->sealed_bytes == 0)
        d->sealed_bytes = gsp_contact_seal(&d->contact, d->config.who.psk[0], d->sealed);
    d->put_fresh = false;
    d->stats.puts++;
    d->put_ns = now_ns + d->put_pause_ns; /* a success moves it further away */
    if (d->put_pause_ns < alone_pause(d))
        d->put_pause_ns *= 2;
    pthread_mutex_unlock(&d->lock);
    dht_value *value = dht_value_new(d->sealed, d->sealed_bytes);
    dht_runner_put(d->runner, &key, value, on_put, d, false);
    dht_value_unref(value);
    pthread_mutex_lock(&d->lock);
}

static void remember_host(gsp_directory *d, const char host[HOST_BYTES])
{
    uint32_t i = 0;
    while (i < d->n_begun && strcmp(d->begun_at[i], host) != 0)
        i++;
    if (i < d->n_begun)
        return;
    if (d->n_begun < GSP_DIRECTORY_BOOTSTRAPS_MAX)
        d->n_begun++;
    else
        i = d->begun_turn; /* the place of one of the old */
    memcpy(d->begun_at[i], host, HOST_BYTES);
}

static void bootstrap_one(gsp_directory *d)
{
    char host[HOST_BYTES];
    memcpy(host, d->hosts[--d->n_hosts], sizeof host);
    pthread_mutex_unlock(&d->lock);
    remember_host(d, host);
    char *colon = strrchr(host, ':'), *name = host;
    *colon = 0;
    if (host[0] == '[') { /* gsp_directory_bootstrap saw to the form */
        name++;
        colon[-1] = 0;
    }
    dht_runner_bootstrap(d->runner, name, colon + 1);
    pthread_mutex_lock(&d->lock);
    uint64_t soon = atom_clock_ns() + SECOND_NS / 4;
    if (d->put_ns > soon)
        d->put_ns = soon;
    if (d->get_ns > soon)
        d->get_ns = soon;
}

/* The first answer of a bootstrap node: what was tried alone is tried again now. */
static void on_ping(bool ok, void *ctx)
{
    gsp_directory *d = ctx;
    pthread_mutex_lock(&d->lock);
    if (ok && !d->answered) {
        d->answered = true;
        d->put_ns = d->get_ns = atom_clock_ns();
        d->put_pause_ns = d->get_pause_ns = SECOND_NS;
        pthread_cond_signal(&d->news);
    }
    pthread_mutex_unlock(&d->lock);
}

/*
 * Once OpenDHT knows any node, it may never again ask a bootstrap node that was silent at first,
 * and then two halves do not meet (seen in one of four runs of the test halves_grow_together). So
 * the bootstrap nodes are pinged in turn, for ever.
 */
static void ping_one(gsp_directory *d)
{
    gsp_address at;
    size_t n = 0;
    struct sockaddr_storage to;
    if (d->n_begun == 0)
        return;
    d->begun_turn = (d->begun_turn + 1) % d->n_begun;
    if (gsp_address_resolve(d->begun_at[d->begun_turn], &at, 1, &n) != ATOM_OK || n == 0)
        return;
    socklen_t bytes = gsp_address_to_socket(&at, &to);
    dht_runner_ping(d->runner, (struct sockaddr *)&to, bytes, on_ping, d);
}

static lookup *take_lookup(gsp_directory *d, uint64_t now_ns)
{
    for (uint32_t i = 0; i < LOOKUPS; i++) {
        lookup *l = &d->lookups[i];
        /* One that OpenDHT never ended is given up after a while: what it may still say is judged
         * like everything else. */
        if (!l->busy || (l->cut && now_ns > l->deadline_ns + 60 * SECOND_NS)) {
            *l = (lookup){.directory = d,
                          .busy = true,
                          .deadline_ns = now_ns + (uint64_t)(d->config.deadline_s * 1e9),
                          .left = GSP_DIRECTORY_JUDGED_MAX};
            return l;
        }
    }
    return NULL;
}

static void look(gsp_directory *d, uint64_t now_ns, uint64_t now_s)
{
    /* The neighbour in whose time a member with a clock five minutes off may have put. */
    uint64_t bucket = now_s / GSP_DIRECTORY_BUCKET_SECONDS;
    bool early = now_s % GSP_DIRECTORY_BUCKET_SECONDS < GSP_DIRECTORY_BUCKET_SECONDS / 2;
    dht_infohash keys[KEYS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->config.who.n_psks; i++) {
        keys[n++] = key_of(d->config.who.psk[i], bucket);
        keys[n++] = key_of(d->config.who.psk[i], early ? bucket - 1 : bucket + 1);
    }
    d->get_ns = now_ns + d->get_pause_ns;
    if (d->get_pause_ns < (uint64_t)(d->config.get_s * 1e9))
        d->get_pause_ns *= 2;
    pthread_mutex_unlock(&d->lock);
    ping_one(d);
    pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < n && !d->closing; i++) {
        lookup *l = take_lookup(d, now_ns);
        if (!l)
            return;
        d->stats.gets++;
        pthread_mutex_unlock(&d->lock);
        dht_runner_get(d->runner, &keys[i], on_value, on_got, l);
        pthread_mutex_lock(&d->lock);
    }
}

static void cut_late(gsp_directory *d, uint64_t now_ns)
{
    for (uint32_t i = 0; i < LOOKUPS; i++) {
        lookup *l = &d->lookups[i];
        if (l->busy && !l->cut && now_ns > l->deadline_ns) {
            l->cut = true;
            d->stats.gets_late++;
        }
    }
}

/* Judges one value that came, without the lock. */
static void judge_one(gsp_directory *d, uint64_t now_s)
{
    gsp_contact contact;
    raw_value value = d->raw[--d->n_raw];
    gsp_handshake_config who = d->config.who;
    pthread_mutex_unlock(&d->lock);
    gsp_contact_verdict verdict = gsp_contact_open(value.data, value.bytes, &who, now_s, &contact);
    explicit_bzero(who.psk, sizeof who.psk);
    pthread_mutex_lock(&d->lock);
    d->stats.verdicts[verdict]++;
    if (verdict != GSP_CONTACT_GOOD)
        return;
    d->get_pause_ns = (uint64_t)(d->config.get_s * 1e9); /* not alone: no hurry any more */
    if (d->n_found == GSP_DIRECTORY_FOUND_MAX) {
        d->stats.dropped++;
        return;
    }
    d->found[(d->found_first + d->n_found++) % GSP_DIRECTORY_FOUND_MAX] = contact;
}

static void *serve(void *ctx)
{
    gsp_directory *d = ctx;
    pthread_mutex_lock(&d->lock);
    while (!d->closing) {
        uint64_t now_ns = atom_clock_ns(), now_s = (uint64_t)atom_wall_seconds();
        cut_late(d, now_ns);
        if (d->n_hosts) {
            bootstrap_one(d);
        } else if (d->n_raw) {
            judge_one(d, now_s);
        } else if (d->has_contact && now_ns >= d->put_ns && d->contact.expires_s > now_s) {
            put(d, now_ns, now_s);
        } else if (now_ns >= d->get_ns) {
            look(d, now_ns, now_s);
        } else {
            /* Half a second is fine enough for deadlines and due times. */
            struct timespec until;
            uint64_t at = now_ns + SECOND_NS / 2;
            at = at < d->get_ns ? at : d->get_ns;
            until = (struct timespec){.tv_sec = (time_t)(at / SECOND_NS),
                                      .tv_nsec = (long)(at % SECOND_NS)};
            pthread_cond_timedwait(&d->news, &d->lock, &until);
        }
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static atom_status start_node(gsp_directory *d)
{
    dht_runner_config c;
    dht_runner_config_default(&c);
    c.dht_config.node_config.network = gsp_directory_network(d->config.who.pool);
    c.dht_config.node_config.persist_path = d->config.nodes_path;
    c.dht_config.node_config.maintain_storage = false;
    c.threaded = true;
    c.peer_discovery = c.peer_publish = c.log = false;
    d->runner = dht_runner_new();
    if (!d->runner)
        return atom_fail_memory("a directory node", 0);
    if (dht_runner_run_config(d->runner, d->config.port, &c) != 0)
        return atom_fail(ATOM_E_RUNTIME,
                         "directory: cannot open UDP port %u; is another node running there?",
                         d->config.port);
    d->port = dht_runner_get_bound_port(d->runner, AF_INET);
    if (d->port == 0)
        d->port = dht_runner_get_bound_port(d->runner, AF_INET6);
    if (d->port == 0 || (d->config.port && d->port != d->config.port))
        return atom_fail(ATOM_E_RUNTIME, "directory: UDP port %u is taken; choose another (0: any)",
                         d->config.port);
    return ATOM_OK;
}

static atom_status start_thread(gsp_directory *d)
{
    pthread_condattr_t attr;
    int error = pthread_mutex_init(&d->lock, NULL);
    d->lock_made = error == 0;
    if (!error && !(error = pthread_condattr_init(&attr))) {
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        error = pthread_cond_init(&d->news, &attr);
        d->news_made = error == 0;
        pthread_condattr_destroy(&attr);
    }
    return error ? atom_fail_errno(error, "directory: no lock") : ATOM_OK;
}

atom_status gsp_directory_open(const gsp_directory_config *config, gsp_directory **out)
{
    atom_status st = ATOM_OK;
    ATOM_TRY(gsp_crypto_start());
    gsp_directory *d = atom_alloc(1, sizeof *d);
    if (!d)
        return atom_fail_memory("the directory", sizeof *d);
    ATOM_ASSERT(config->who.n_psks >= 1 && config->who.n_psks <= GSP_PSKS_MAX);
    d->config = *config;
    if (d->config.put_s <= 0)
        d->config.put_s = 240;
    if (d->config.get_s <= 0)
        d->config.get_s = 60;
    if (d->config.deadline_s <= 0)
        d->config.deadline_s = 20;
    d->put_pause_ns = d->get_pause_ns = SECOND_NS;
    randombytes_buf(d->seen_key, sizeof d->seen_key);
    ATOM_TRY_CLEAN(start_thread(d));
    ATOM_TRY_CLEAN(start_node(d));
    int error = pthread_create(&d->thread, NULL, serve, d);
    if (error)
        ATOM_TRY_CLEAN(atom_fail_errno(error, "directory: no thread"));
    d->thread_made = true;
    *out = d;
    return ATOM_OK;
cleanup:
    gsp_directory_close(&d);
    return st;
}

static void stop_node(gsp_directory *d)
{
    struct timespec until;
    if (dht_runner_is_running(d->runner)) {
        dht_runner_shutdown(d->runner, on_down, d);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += SHUTDOWN_SECONDS;
        pthread_mutex_lock(&d->lock);
        while (!d->down && pthread_cond_timedwait(&d->news, &d->lock, &until) != ETIMEDOUT) {
        }
        pthread_mutex_unlock(&d->lock);
    }
    dht_runner_delete(d->runner); /* joins its threads: no callback comes after this */
}

void gsp_directory_close(gsp_directory **directory)
{
    gsp_directory *d = *directory;
    *directory = NULL;
    if (!d)
        return;
    if (d->thread_made) {
        pthread_mutex_lock(&d->lock);
        d->closing = true;
        pthread_cond_broadcast(&d->news);
        pthread_mutex_unlock(&d->lock);
        pthread_join(d->thread, NULL);
    }
    if (d->runner)
        stop_node(d);
    if (d->news_made)
        pthread_cond_destroy(&d->news);
    if (d->lock_made)
        pthread_mutex_destroy(&d->lock);
    explicit_bzero(d, sizeof *d);
    atom_free(d);
}

atom_status gsp_directory_bootstrap(gsp_directory *d, const char *host)
{
    atom_status st = ATOM_OK;
    ATOM_TRY(gsp_address_check(host, HOST_BYTES));
    pthread_mutex_lock(&d->lock);
    if (d->n_hosts == GSP_DIRECTORY_BOOTSTRAPS_MAX) {
        st = atom_fail(ATOM_E_RESOURCE,
                       "%d directory nodes are still waiting to be tried; try "
                       "again later",
                       GSP_DIRECTORY_BOOTSTRAPS_MAX);
    } else {
        memset(d->hosts[d->n_hosts], 0, HOST_BYTES);
        memcpy(d->hosts[d->n_hosts++], host, strlen(host));
        pthread_cond_signal(&d->news);
    }
    pthread_mutex_unlock(&d->lock);
    return st;
}

void gsp_directory_publish(gsp_directory *d, const gsp_contact *contact)
{
    pthread_mutex_lock(&d->lock);
    if (contact) {
        /* New progress waits for its turn; a new place is told at once. */
        bool moved = !d->has_contact || d->contact.n_addresses != contact->n_addresses ||
                     memcmp(d->contact.address, contact->address, sizeof contact->address) != 0;
        uint64_t soon = atom_clock_ns() + (d->stats.puts ? SECOND_NS : 0);
        d->contact = *contact;
        d->put_fresh = true;
        if (moved) {
            d->put_ns = !d->has_contact || d->put_ns > soon ? soon : d->put_ns;
            d->put_pause_ns = SECOND_NS;
        }
    }
    d->has_contact = contact != NULL;
    pthread_cond_signal(&d->news);
    pthread_mutex_unlock(&d->lock);
}

void gsp_directory_look(gsp_directory *d)
{
    pthread_mutex_lock(&d->lock);
    uint64_t soon = atom_clock_ns() + SECOND_NS;
    if (d->get_ns > soon)
        d->get_ns = soon;
    pthread_cond_signal(&d->news);
    pthread_mutex_unlock(&d->lock);
}

bool gsp_directory_next(gsp_directory *d, gsp_contact *out)
{
    pthread_mutex_lock(&d->lock);
    bool some = d->n_found > 0;
    if (some) {
        *out = d->found[d->found_first];
        d->found_first = (d->found_first + 1) % GSP_DIRECTORY_FOUND_MAX;
        d->n_found--;
    }
    pthread_mutex_unlock(&d->lock);
    return some;
}

void gsp_directory_rekey(gsp_directory *d, const uint8_t psk[][GSP_PSK_BYTES], uint32_t n_psks)
{
    ATOM_ASSERT(n_psks >= 1 && n_psks <= GSP_PSKS_MAX);
    pthread_mutex_lock(&d->lock);
    memcpy(d->config.who.psk, psk, n_psks * sizeof *psk);
    d->config.who.n_psks = n_psks;
    d->put_fresh = true;
    d->put_ns = d->get_ns = atom_clock_ns();
    pthread_cond_signal(&d->news);
    pthread_mutex_unlock(&d->lock);
}

void gsp_directory_read_stats(gsp_directory *d, gsp_directory_stats *stats)
{
    pthread_mutex_lock(&d->lock);
    *stats = d->stats;
    pthread_mutex_unlock(&d->lock);
}

uint16_t gsp_directory_port(const gsp_directory *d)
{
    return d->port;
}
