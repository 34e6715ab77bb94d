/*
 * A host of a pool in a process of its own (gossip/pool/pool.h), with a work that is a vector:
 * every version adds the average of what the members brought, which is made from key and version.
 * One idea: who watches compares a hash of the vector per version between all hosts. Refuses to end
 * by itself before its time is over, a signal, or the pool's wish.
 *
 *   pool_node create DIR LISTEN SECONDS [WAIT]          prints {"ticket":...}
 *   pool_node join   DIR LISTEN SECONDS TICKET
 *   pool_node open   DIR LISTEN SECONDS
 *
 * WAIT: samples are reported once so many members are on the roster. LISTEN "-": accepts nobody.
 * POOL_NODE_PLAIN=1: create without a gate. POOL_NODE_FILE=PATH: a file of the pool.
 * POOL_NODE_FINDERS=1: with LAN and directory. POOL_NODE_FORK_S: T_fork. POOL_NODE_DATA=FROM:
 * create: the files 0.bin, 1.bin, ... of FROM are the pool's data; join, open: it is fetched into
 * FROM. POOL_NODE_ANNOUNCE=A,B: what tickets name. POOL_NODE_DOWN, POOL_NODE_UP: bytes per second. Lines of JSON.
 */
#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "gossip/pool/pool.h"

#include <sodium.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FRAGMENTS = 2, FLOATS = 20000 };

typedef struct node {
    gsp_pool *pool;
    char *path;
    float anchor[FRAGMENTS][FLOATS], fresh[FRAGMENTS][FLOATS], sum[FLOATS], x[FLOATS];
    uint64_t version[FRAGMENTS]; /* that the anchor's fragment is of */
    uint64_t fresh_version[FRAGMENTS];
    unsigned wait;
} node;

static volatile sig_atomic_t ending;

static void on_term(int signal_number)
{
    ending = signal_number;
}

static void hash_of(const node *n, char out[33])
{
    uint8_t hash[16];
    crypto_generichash(hash, sizeof hash, (const uint8_t *)n->anchor, sizeof n->anchor, NULL, 0);
    sodium_bin2hex(out, 33, hash, sizeof hash);
}

static atom_status keep(const node *n)
{
    enum { BYTES = sizeof n->anchor + sizeof n->version };
    uint8_t *all = atom_alloc(BYTES, 1);
    if (!all)
        return atom_fail_memory("the vector", BYTES);
    memcpy(all, n->anchor, sizeof n->anchor);
    memcpy(all + sizeof n->anchor, n->version, sizeof n->version);
    atom_status st = atom_file_write(n->path, all, BYTES);
    atom_free(all);
    return st;
}

static void recall(node *n)
{
    char *all = NULL;
    uint64_t bytes = 0;
    if (atom_path_exists(n->path) && atom_file_read(n->path, 1 << 20, &all, &bytes) == ATOM_OK &&
        bytes == sizeof n->anchor + sizeof n->version) {
        memcpy(n->anchor, all, sizeof n->anchor);
        memcpy(n->version, all + sizeof n->anchor, sizeof n->version);
    }
    atom_free(all);
}

static gsp_freeze freeze(void *context, uint64_t version, const float **x, uint64_t *tokens,
                         uint64_t *samples)
{
    node *n = context;
    uint64_t word;
    memcpy(&word, gsp_pool_key(n->pool), sizeof word);
    word += version * 0x9e3779b97f4a7c15u;
    for (uint64_t k = 0; k < FLOATS; k++) {
        word = word * 6364136223846793005u + 1442695040888963407u;
        n->x[k] = (float)(word >> 40) * 0x1p-24f - 0.5f;
    }
    *x = n->x;
    *tokens = 100;
    *samples = 1;
    return GSP_FREEZE_READY;
}

static void part(void *context, uint64_t version, uint64_t first, const float *x, uint64_t n)
{
    (void)version;
    memcpy(((node *)context)->sum + first, x, n * sizeof *x);
}

static atom_status apply(void *context, const gsp_certificate *c, const gsp_hash *result)
{
    node *n = context;
    uint64_t v = c->proposal.version;
    uint32_t f = (uint32_t)(v % FRAGMENTS);
    char hash[33];
    (void)result;
    if (v > n->version[f]) { /* else it was applied before a crash */
        for (uint64_t k = 0; k < FLOATS && c->proposal.n_contributors; k++)
            n->anchor[f][k] += n->sum[k];
        n->version[f] = v;
    }
    hash_of(n, hash);
    printf("{\"version\":%llu,\"contributors\":%u,\"roster\":%u,\"hash\":\"%s\"}\n",
           (unsigned long long)v, c->proposal.n_contributors, c->proposal.next.n, hash);
    return keep(n);
}

static atom_status state_read(void *context, uint32_t fragment, uint64_t first, uint64_t n,
                              float *out)
{
    memcpy(out, ((const node *)context)->anchor[fragment] + first, n * sizeof *out);
    return ATOM_OK;
}

static atom_status state_write(void *context, uint32_t fragment, uint64_t version, uint64_t first,
                               uint64_t n, const float *x)
{
    node *me = context;
    memcpy(me->fresh[fragment] + first, x, n * sizeof *x);
    me->fresh_version[fragment] = version;
    return ATOM_OK;
}

static atom_status state_adopt(void *context, const gsp_saved *saved)
{
    node *n = context;
    char hash[33];
    memcpy(n->anchor, n->fresh, sizeof n->anchor);
    memcpy(n->version, n->fresh_version, sizeof n->version);
    hash_of(n, hash);
    printf("{\"adopted\":%llu,\"hash\":\"%s\"}\n",
           (unsigned long long)(saved->has_certificate ? saved->certificate.proposal.version : 0),
           hash);
    return keep(n);
}

static bool watch(void *context, const gsp_pool_progress *progress)
{
    char *last = context;
    if (strcmp(last, progress->text) != 0) {
        printf("{\"progress\":\"%s\"}\n", progress->text);
        snprintf(last, 256, "%s", progress->text);
    }
    return !ending;
}

enum { DATA_FILES_MAX = 4 };

/* A pool's data: FROM/0.bin, FROM/1.bin, ... */
static uint32_t data_files(gsp_pool_file *file, char name[][16])
{
    const char *from = getenv("POOL_NODE_DATA");
    uint32_t n = 0;
    for (; from && n < DATA_FILES_MAX; n++) {
        snprintf(name[n], sizeof name[n], "%u.bin", n);
        char *path = atom_path_join(from, name[n]);
        if (!path || !atom_path_exists(path)) {
            atom_free(path);
            break;
        }
        file[n] = (gsp_pool_file){.name = name[n], .path = path, .later = true};
    }
    return n;
}

static atom_status bring_data(node *n, bool fetch)
{
    const char *from = getenv("POOL_NODE_DATA");
    char last[256] = "";
    gsp_pool_data data;
    if (!from)
        return ATOM_OK;
    ATOM_TRY(gsp_pool_data_look(n->pool, from, watch, last, &data));
    printf("{\"data\":%u,\"of\":%u,\"bytes\":%llu,\"of_bytes\":%llu,\"missing\":\"%s\","
           "\"wrong\":\"%s\"}\n",
           data.n_here, data.n_files, (unsigned long long)data.bytes_here,
           (unsigned long long)data.bytes, data.missing, data.wrong);
    return fetch ? gsp_pool_data_fetch(n->pool, from, 60, watch, last) : ATOM_OK;
}

static atom_status join(node *n, const gsp_pool_host *host, const char *ticket)
{
    char last[256] = "", *path = NULL;
    ATOM_TRY(gsp_pool_join(host, ticket, 60, watch, last, &n->pool));
    if (gsp_manifest_find(gsp_pool_manifest(n->pool), "config.json"))
        ATOM_TRY(gsp_pool_fetch(n->pool, "config.json", 60, watch, last, &path));
    atom_free(path);
    return ATOM_OK;
}

static atom_status begin(node *n, char **argv, int argc, const gsp_pool_host *host)
{
    if (strcmp(argv[1], "open") == 0)
        return gsp_pool_open(host, &n->pool);
    if (strcmp(argv[1], "join") == 0)
        return join(n, host, argc > 5 ? argv[5] : "");
    const char *path = getenv("POOL_NODE_FILE");
    char names[DATA_FILES_MAX][16];
    gsp_pool_file file[1 + DATA_FILES_MAX] = {{.name = "config.json", .path = path}};
    uint32_t n_files = path ? 1 : 0;
    gsp_manifest *m = atom_alloc(1, sizeof *m);
    if (!m)
        return atom_fail_memory("a manifest", sizeof *m);
    *m = (gsp_manifest){.name = "a pool of tests",
                        .n_fragments = FRAGMENTS,
                        .n_floats = {FLOATS, FLOATS},
                        .tokens_per_sample = 100,
                        .settings = "work: vector\n",
                        .samples_due = 3,
                        .time_due_s = 5,
                        .heartbeat_s = 0.2,
                        .round_s = 4,
                        .plain = getenv("POOL_NODE_PLAIN") != NULL};
    if (getenv("POOL_NODE_FORK_S"))
        m->fork_s = atof(getenv("POOL_NODE_FORK_S"));
    uint32_t n_data = data_files(file + n_files, names);
    atom_status st = gsp_pool_create(host, m, file, n_files + n_data, &n->pool);
    for (uint32_t i = 0; i < n_data; i++)
        atom_free((char *)file[n_files + i].path);
    atom_free(m);
    if (st == ATOM_OK)
        printf("{\"ticket\":\"%s\"}\n", gsp_pool_ticket(n->pool));
    return st;
}

static bool enough(const node *n, gsp_pool_status *s)
{
    gsp_pool_read_status(n->pool, s);
    return s->member.is_member && s->member.n_roster >= n->wait;
}

static atom_status take_part(node *n, double seconds)
{
    gsp_pool_part p = {.work = {.context = n,
                                .freeze = freeze,
                                .part = part,
                                .apply = apply,
                                .n_state = {FLOATS, FLOATS},
                                .state_read = state_read,
                                .state_write = state_write,
                                .state_adopt = state_adopt},
                       .holds_genesis = gsp_pool_is_founder(n->pool),
                       .rates = {10000000, 10000000, true}};
    double until = atom_clock_seconds() + seconds;
    char why[GSP_POOL_WHY_BYTES];
    gsp_pool_status *s = atom_alloc(1, sizeof *s);
    if (!s)
        return atom_fail_memory("a status", sizeof *s);
    atom_status st = gsp_pool_start(n->pool, &p), end = ATOM_OK;
    printf("{\"started\":true,\"port\":%u,\"pid\":%d}\n", gsp_pool_port(n->pool), (int)getpid());
    gsp_pool_wish wish = GSP_POOL_GO;
    for (uint64_t k = 1; st == ATOM_OK && atom_clock_seconds() < until && !ending;) {
        usleep(100000);
        wish = gsp_pool_wishes(n->pool, why, &end);
        if (wish == GSP_POOL_STOP)
            break;
        if (wish == GSP_POOL_GO && enough(n, s)) {
            gsp_pool_report(n->pool, k, 100 * k);
            k++;
        }
    }
    if (wish == GSP_POOL_STOP) {
        printf("{\"stop\":\"%s\"}\n", why);
        if (end == ATOM_OK && strstr(why, "leaves"))
            st = gsp_pool_leave(n->pool, 10);
    }
    atom_free(s);
    return st == ATOM_OK && end != ATOM_OK ? atom_fail(end, "%s", why) : st;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 5)
        return 2;
    gsp_pool_host host = {.directory = argv[2], .no_lan = true, .no_directory = true};
    node *n = atom_alloc(1, sizeof *n);
    atom_status st = n ? ATOM_OK : atom_fail_memory("a node", sizeof *n);
    if (getenv("POOL_NODE_FINDERS"))
        host.no_lan = host.no_directory = false;
    if (getenv("POOL_NODE_DIRECTORY")) { /* UDP port of its node; 0: any */
        host.no_directory = false;
        host.directory_port = (uint16_t)atoi(getenv("POOL_NODE_DIRECTORY"));
    }
    if (getenv("POOL_NODE_BOOTSTRAP"))
        host.bootstrap[host.n_bootstraps++] = getenv("POOL_NODE_BOOTSTRAP");
    char *announce = getenv("POOL_NODE_ANNOUNCE"), *rest = NULL;
    for (char *at = announce ? strtok_r(announce, ",", &rest) : NULL;
         at && host.n_announce < GSP_TICKET_HOSTS_MAX; at = strtok_r(NULL, ",", &rest))
        host.announce[host.n_announce++] = at;
    if (getenv("POOL_NODE_UP"))
        host.up_bytes_per_s = (uint64_t)atoll(getenv("POOL_NODE_UP"));
    if (getenv("POOL_NODE_DOWN"))
        host.down_bytes_per_s = (uint64_t)atoll(getenv("POOL_NODE_DOWN"));
    signal(SIGTERM, on_term);
    if (st == ATOM_OK && strcmp(argv[3], "-") != 0) {
        host.n_listen = 1;
        st = gsp_address_parse(argv[3], &host.listen[0]);
    }
    if (st == ATOM_OK && !(n->path = atom_path_join(argv[2], "vector")))
        st = atom_fail_memory("a path", 0);
    if (st == ATOM_OK)
        st = begin(n, argv, argc, &host);
    if (st == ATOM_OK) {
        n->wait = argc > 5 && strcmp(argv[1], "create") == 0 ? (unsigned)atoi(argv[5]) : 0;
        recall(n);
        st = bring_data(n, strcmp(argv[1], "create") != 0);
    }
    if (st == ATOM_OK) {
        st = take_part(n, atof(argv[4]));
    }
    if (st != ATOM_OK)
        printf("{\"failed\":\"%s\"}\n", atom_fail_message());
    if (n) {
        (void)gsp_pool_close(&n->pool);
        atom_free(n->path);
        atom_free(n);
    }
    return atom_status_exit_code(st);
}
