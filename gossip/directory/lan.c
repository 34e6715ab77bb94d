/*
 * Owns one UDP socket and its timetable. Its one idea: it speaks to the group and to nobody else,
 * so it can neither be made to flood somebody nor to answer a stranger. It refuses to judge more
 * than its rate: signatures cost, packets do not.
 */
#include "gossip/directory/lan.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

/* Packets that were judged: members have fewer that have not expired. */
enum { HEARD_MAX = 64, READS_PER_STEP = 256, SEEN_MAX = 1024 };
static const uint64_t SECOND_NS = 1000000000u, LOOK_NS = 10000000000u;
static const char GROUP[] = "239.255.44.0"; /* site-local; kept on the link by TTL 1 */

typedef struct heard_key {
    uint8_t key[GSP_PUBLIC_BYTES];
    uint64_t last_ns;
} heard_key;

struct gsp_lan {
    gsp_handshake_config who;
    int fd;
    struct sockaddr_in group;
    bool follows; /* whatever interfaces come and go */
    uint64_t looked_ns;
    uint32_t n_interfaces;
    unsigned interface[GSP_LAN_INTERFACES_MAX];
    uint64_t period_ns, due_ns, sent_ns; /* due: 0 is at once */
    bool has_contact;
    gsp_contact contact;
    uint64_t second; /* of the rate of judging */
    uint32_t judged;
    heard_key heard[HEARD_MAX];
    uint64_t seen[SEEN_MAX]; /* keyed hashes of packets, a ring */
    uint32_t seen_next;
    uint8_t seen_key[crypto_shorthash_KEYBYTES];
    gsp_lan_found found[GSP_LAN_FOUND_MAX];
    uint32_t first, n_found;
    gsp_lan_stats stats;
};

/* Joins on one interface; true when it worked. */
static bool join(gsp_lan *lan, unsigned interface)
{
    struct ip_mreqn at = {.imr_multiaddr = lan->group.sin_addr, .imr_ifindex = (int)interface};
    for (uint32_t i = 0; i < lan->n_interfaces; i++)
        if (lan->interface[i] == interface)
            return true;
    if (lan->n_interfaces == GSP_LAN_INTERFACES_MAX ||
        setsockopt(lan->fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &at, sizeof at) != 0)
        return false;
    lan->interface[lan->n_interfaces++] = interface;
    return true;
}

static void join_all(gsp_lan *lan)
{
    struct ifaddrs *all = NULL;
    const unsigned want = IFF_UP | IFF_RUNNING | IFF_MULTICAST;
    if (getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *a = all; a; a = a->ifa_next)
        if (a->ifa_addr && a->ifa_addr->sa_family == AF_INET && (a->ifa_flags & want) == want &&
            !(a->ifa_flags & (IFF_LOOPBACK | IFF_POINTOPOINT)))
            join(lan, if_nametoindex(a->ifa_name));
    freeifaddrs(all);
}

/* A laptop changes networks, and a service may start before there is one. Whoever is on a new network says so. */
static void follow(gsp_lan *lan, uint64_t now_ns)
{
    char name[IF_NAMESIZE];
    uint32_t kept = 0;
    if (!lan->follows || (lan->looked_ns && now_ns - lan->looked_ns < LOOK_NS))
        return;
    lan->looked_ns = now_ns;
    for (uint32_t i = 0; i < lan->n_interfaces; i++)
        if (if_indextoname(lan->interface[i], name))
            lan->interface[kept++] = lan->interface[i];
    lan->n_interfaces = kept;
    join_all(lan);
    if (lan->n_interfaces > kept)
        lan->due_ns = 0;
}

static atom_status join_some(gsp_lan *lan, const char *name)
{
    lan->follows = !name;
    if (!name) {
        join_all(lan);
        return ATOM_OK;
    }
    unsigned interface = if_nametoindex(name);
    if (!interface)
        return atom_fail(ATOM_E_USAGE, "LAN discovery: no interface '%.32s' here", name);
    return join(lan, interface)
               ? ATOM_OK
               : atom_fail_errno(errno, "LAN discovery: cannot join the multicast group on %.32s",
                                 name);
}

static atom_status set(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof value) == 0
               ? ATOM_OK
               : atom_fail_errno(errno, "LAN discovery: socket option %d", name);
}

atom_status gsp_lan_open(const gsp_lan_config *config, gsp_lan **out)
{
    atom_status st = ATOM_OK;
    ATOM_TRY(gsp_crypto_start());
    gsp_lan *lan = atom_alloc(1, sizeof *lan);
    if (!lan)
        return atom_fail_memory("LAN discovery", sizeof *lan);
    lan->who = config->who;
    randombytes_buf(lan->seen_key, sizeof lan->seen_key);
    lan->period_ns = config->period_ns ? config->period_ns : 60 * SECOND_NS;
    lan->group = (struct sockaddr_in){.sin_family = AF_INET,
                                      .sin_port = htons(config->port ? config->port : GSP_LAN_PORT),
                                      .sin_addr.s_addr = inet_addr(GROUP)};
    lan->fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (lan->fd < 0)
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "LAN discovery: no socket"));
    ATOM_TRY_CLEAN(set(lan->fd, SOL_SOCKET, SO_REUSEADDR, 1));
    ATOM_TRY_CLEAN(set(lan->fd, IPPROTO_IP, IP_MULTICAST_TTL, 1));
    ATOM_TRY_CLEAN(set(lan->fd, IPPROTO_IP, IP_MULTICAST_LOOP, 1)); /* two members on one host */
    ATOM_TRY_CLEAN(set(lan->fd, IPPROTO_IP, IP_MULTICAST_ALL, 0));  /* only what we joined */
    /* Bound to the group: unicast to this port does not arrive. */
    if (bind(lan->fd, (const struct sockaddr *)&lan->group, sizeof lan->group) != 0)
        ATOM_TRY_CLEAN(
            atom_fail_errno(errno, "LAN discovery: UDP port %u", ntohs(lan->group.sin_port)));
    ATOM_TRY_CLEAN(join_some(lan, config->interface));
    *out = lan;
    return ATOM_OK;
cleanup:
    gsp_lan_close(&lan);
    return st;
}

void gsp_lan_close(gsp_lan **lan)
{
    gsp_lan *l = *lan;
    *lan = NULL;
    if (!l)
        return;
    if (l->fd >= 0)
        close(l->fd);
    explicit_bzero(l->who.psk, sizeof l->who.psk);
    atom_free(l);
}

void gsp_lan_publish(gsp_lan *lan, const gsp_contact *contact)
{
    if (!lan->has_contact)
        lan->due_ns = 0; /* new here: say so */
    lan->contact = *contact;
    lan->has_contact = true;
}

void gsp_lan_rekey(gsp_lan *lan, const uint8_t psk[][GSP_PSK_BYTES], uint32_t n_psks)
{
    ATOM_ASSERT(n_psks >= 1 && n_psks <= GSP_PSKS_MAX);
    memcpy(lan->who.psk, psk, n_psks * sizeof *psk);
    lan->who.n_psks = n_psks;
}

/* When it may and should speak next. */
static uint64_t speak_ns(const gsp_lan *lan)
{
    uint64_t may = lan->sent_ns ? lan->sent_ns + SECOND_NS : 0;
    return lan->due_ns > may ? lan->due_ns : may;
}

uint64_t gsp_lan_wait_ns(const gsp_lan *lan, uint64_t now_ns)
{
    uint64_t at = speak_ns(lan);
    if (!lan->has_contact)
        return lan->period_ns;
    return at > now_ns ? at - now_ns : 0;
}

/* True for a key that was not heard for three periods. Takes the place of the quietest. */
static bool is_new(gsp_lan *lan, const uint8_t key[GSP_PUBLIC_BYTES], uint64_t now_ns)
{
    heard_key *place = &lan->heard[0];
    for (uint32_t i = 0; i < HEARD_MAX; i++) {
        heard_key *h = &lan->heard[i];
        if (h->last_ns && memcmp(h->key, key, sizeof h->key) == 0) {
            bool fresh = now_ns - h->last_ns > 3 * lan->period_ns;
            h->last_ns = now_ns;
            return fresh;
        }
        if (h->last_ns < place->last_ns)
            place = h;
    }
    memcpy(place->key, key, sizeof place->key);
    place->last_ns = now_ns;
    return true;
}

static bool is_seen(const gsp_lan *lan, uint64_t hash)
{
    for (uint32_t i = 0; i < SEEN_MAX; i++)
        if (lan->seen[i] == hash)
            return true;
    return false;
}

/* Anybody on the network can send again what members sent. Each packet is sealed anew, so one that comes again
 * says nothing, and must not cost what is left for others to be heard. */
static gsp_contact_verdict judge(gsp_lan *lan, const uint8_t *data, size_t bytes, uint64_t now_s,
                                 gsp_contact *out)
{
    uint64_t hash;
    _Static_assert(sizeof hash == crypto_shorthash_BYTES, "a short hash");
    crypto_shorthash((uint8_t *)&hash, data, bytes, lan->seen_key);
    if (is_seen(lan, hash)) {
        lan->stats.dropped++;
        return GSP_CONTACT_VERDICT_N;
    }
    gsp_contact_verdict verdict = gsp_contact_open(data, bytes, &lan->who, now_s, out);
    lan->stats.verdicts[verdict]++;
    /* All others cost next to nothing: a flood of them must not keep members from being heard. */
    if (verdict == GSP_CONTACT_GOOD || verdict == GSP_CONTACT_FORGED ||
        verdict == GSP_CONTACT_STRANGER) {
        lan->judged++;
        lan->seen[lan->seen_next++ % SEEN_MAX] = hash;
    }
    return verdict;
}

static void take(gsp_lan *lan, const uint8_t *data, size_t bytes,
                 const struct sockaddr_storage *from, uint64_t now_ns, uint64_t now_s)
{
    gsp_lan_found found = {0};
    lan->stats.heard++;
    if (now_ns / SECOND_NS != lan->second) {
        lan->second = now_ns / SECOND_NS;
        lan->judged = 0;
    }
    if (lan->judged == GSP_LAN_JUDGED_PER_SECOND || !gsp_address_from_socket(from, &found.from)) {
        lan->stats.dropped++;
        return;
    }
    if (judge(lan, data, bytes, now_s, &found.contact) != GSP_CONTACT_GOOD)
        return;
    if (is_new(lan, found.contact.key, now_ns)) {
        /* Answer soon, but not all at the same moment. */
        uint64_t soon = now_ns + randombytes_uniform(500) * (SECOND_NS / 1000);
        if (lan->due_ns > soon)
            lan->due_ns = soon;
    }
    if (lan->n_found == GSP_LAN_FOUND_MAX) {
        lan->stats.dropped++;
        return;
    }
    lan->found[(lan->first + lan->n_found++) % GSP_LAN_FOUND_MAX] = found;
}

static void speak(gsp_lan *lan, uint64_t now_ns)
{
    uint8_t sealed[GSP_CONTACT_SEALED_BYTES_MAX];
    size_t bytes = gsp_contact_seal(&lan->contact, lan->who.psk[0], sealed);
    for (uint32_t i = 0; i < lan->n_interfaces; i++) {
        struct ip_mreqn at = {.imr_ifindex = (int)lan->interface[i]};
        bool gone = setsockopt(lan->fd, IPPROTO_IP, IP_MULTICAST_IF, &at, sizeof at) == 0 &&
                    sendto(lan->fd, sealed, bytes, 0, (const struct sockaddr *)&lan->group,
                           sizeof lan->group) == (ssize_t)bytes;
        lan->stats.sent += gone;
        lan->stats.send_failed += !gone;
    }
    lan->sent_ns = now_ns;
    /* A tenth of jitter, so that members do not fall into step. */
    lan->due_ns = now_ns + lan->period_ns - randombytes_uniform(100) * (lan->period_ns / 1000);
}

void gsp_lan_step(gsp_lan *lan, uint64_t now_ns, uint64_t now_s)
{
    uint8_t data[GSP_CONTACT_SEALED_BYTES_MAX + 1];
    struct sockaddr_storage from;
    for (int i = 0; i < READS_PER_STEP; i++) {
        socklen_t bytes_from = sizeof from;
        ssize_t n = recvfrom(lan->fd, data, sizeof data, 0, (struct sockaddr *)&from, &bytes_from);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        take(lan, data, (size_t)n, &from, now_ns, now_s);
    }
    follow(lan, now_ns);
    if (!lan->has_contact || now_ns < speak_ns(lan))
        return;
    if (lan->contact.expires_s > now_s)
        speak(lan, now_ns);
    else
        lan->due_ns = now_ns + lan->period_ns; /* nobody would believe it */
}

bool gsp_lan_next(gsp_lan *lan, gsp_lan_found *out)
{
    if (lan->n_found == 0)
        return false;
    *out = lan->found[lan->first];
    lan->first = (lan->first + 1) % GSP_LAN_FOUND_MAX;
    lan->n_found--;
    return true;
}

void gsp_lan_read_stats(const gsp_lan *lan, gsp_lan_stats *stats)
{
    *stats = lan->stats;
    stats->interfaces = lan->n_interfaces;
}
