/*
 * Owns a port that a router forwards. Its one idea: a lease that is renewed is a lease that a crash
 * gives back by itself. It refuses to announce an address that only the router's own provider could
 * reach.
 */
#include "gossip/net/portmap.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <miniupnpc/miniupnpc.h>
#include <miniupnpc/upnpcommands.h>
#include <natpmp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    LIFETIME_S = 3600,
    AGAIN_S = 600,
    LOOK_S = 10, /* for a sleep of the host, in which its lease ran out */
    UPNP_TRIES = 8,
    UPNP_ONLY_PERMANENT = 725,
    UPNP_CONFLICT = 718
};
static const double NATPMP_PATIENCE_S = 2.5;

struct gsp_portmap {
    gsp_portmap_config config;
    char gateway[64], url[512];
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t moved;
    bool stop;
    gsp_portmap_status status;
    uint16_t outer_port; /* what the router gave; 0: nothing */
    uint32_t lease_s;
};

/* Addresses that mean nothing beyond a router or a provider. */
static bool is_public(struct in_addr a)
{
    uint32_t ip = ntohl(a.s_addr);
    return ip != 0 && ip >> 24 != 10 && ip >> 24 != 127 && ip >> 20 != 0xac1 &&
           ip >> 16 != 0xc0a8 && ip >> 16 != 0xa9fe && ip >> 22 != 0x191 && ip >> 28 != 0xe &&
           ip >> 28 != 0xf;
}

/* ---- NAT-PMP ---- */

static bool answer(natpmp_t *n, natpmpresp_t *out)
{
    double end = atom_clock_seconds() + NATPMP_PATIENCE_S;
    int r = NATPMP_TRYAGAIN;
    while (r == NATPMP_TRYAGAIN && atom_clock_seconds() < end) {
        struct timeval wait = {0};
        struct pollfd fd = {.fd = n->s, .events = POLLIN};
        getnatpmprequesttimeout(n, &wait);
        int ms = (int)(wait.tv_sec * 1000 + wait.tv_usec / 1000);
        (void)poll(&fd, 1, ms < 0 ? 0 : ms > 1000 ? 1000 : ms + 1);
        r = readnatpmpresponseorretry(n, out);
    }
    return r == 0;
}

/* lease_s 0 gives the mapping back. */
static bool ask_natpmp(const gsp_portmap *m, uint16_t wish, uint32_t lease_s, struct in_addr *ip,
                       uint16_t *port, uint32_t *leased_s)
{
    natpmp_t n;
    natpmpresp_t r;
    in_addr_t gateway = m->gateway[0] ? inet_addr(m->gateway) : 0;
    if (initnatpmp(&n, m->gateway[0] != 0, gateway) != 0)
        return false;
    bool good = sendpublicaddressrequest(&n) == 2 && answer(&n, &r) &&
                r.type == NATPMP_RESPTYPE_PUBLICADDRESS;
    if (good)
        *ip = r.pnu.publicaddress.addr;
    good =
        good &&
        sendnewportmappingrequest(&n, NATPMP_PROTOCOL_TCP, m->config.port, wish, lease_s) == 12 &&
        answer(&n, &r) && r.type == NATPMP_RESPTYPE_TCPPORTMAPPING;
    if (good) {
        *port = r.pnu.newportmapping.mappedpublicport;
        *leased_s = r.pnu.newportmapping.lifetime;
    }
    closenatpmp(&n);
    return good && (lease_s == 0 || (*port != 0 && *leased_s != 0));
}

/* ---- UPnP ---- */

typedef struct device {
    struct UPNPUrls urls;
    struct IGDdatas data;
    char lan[64]; /* our address, as the device sees it */
} device;

/* The router among them, as a version of the library answers; wan: its address outside, which we ask for later. */
static int find_router(struct UPNPDev *list, device *d)
{
#if MINIUPNPC_API_VERSION >= 18
    char wan[64];
    return UPNP_GetValidIGD(list, &d->urls, &d->data, d->lan, sizeof d->lan, wan, sizeof wan);
#else
    return UPNP_GetValidIGD(list, &d->urls, &d->data, d->lan, sizeof d->lan);
#endif
}

static bool find_device(const gsp_portmap *m, device *d)
{
    if (m->url[0])
        return UPNP_GetIGDFromUrl(m->url, &d->urls, &d->data, d->lan, sizeof d->lan) == 1;
    int error = 0;
    struct UPNPDev *list = upnpDiscover(2000, NULL, NULL, 0, 0, 2, &error);
    int found = list ? find_router(list, d) : 0;
    freeUPNPDevlist(list);
    if (found > 1)
        FreeUPNPUrls(&d->urls); /* not connected, or something else */
    return found == 1;
}

static int add_mapping(const device *d, uint16_t outer, uint16_t inner, uint32_t lease_s)
{
    char out[8], in[8], lease[16];
    snprintf(out, sizeof out, "%u", outer);
    snprintf(in, sizeof in, "%u", inner);
    snprintf(lease, sizeof lease, "%u", lease_s);
    return UPNP_AddPortMapping(d->urls.controlURL, d->data.first.servicetype, out, in, d->lan,
                               "atom pool", "TCP", NULL, lease);
}

static bool ask_upnp(const gsp_portmap *m, uint16_t wish, uint32_t lease_s, struct in_addr *ip,
                     uint16_t *port, uint32_t *leased_s)
{
    device d = {0};
    char text[40] = "";
    int error = UPNP_CONFLICT;
    if (!find_device(m, &d))
        return false;
    *leased_s = lease_s;
    for (uint32_t k = 0; k < UPNP_TRIES && error == UPNP_CONFLICT; k++) {
        if (wish + k > UINT16_MAX)
            break; /* 0 would be any port */
        *port = (uint16_t)(wish + k);
        error = add_mapping(&d, *port, m->config.port, lease_s);
        if (error == UPNP_ONLY_PERMANENT)
            error = add_mapping(&d, *port, m->config.port, 0);
    }
    bool good = error == 0 &&
                UPNP_GetExternalIPAddress(d.urls.controlURL, d.data.first.servicetype, text) == 0 &&
                inet_pton(AF_INET, text, ip) == 1;
    FreeUPNPUrls(&d.urls);
    return good;
}

static void end_upnp(const gsp_portmap *m, uint16_t outer)
{
    device d = {0};
    char port[8];
    if (!find_device(m, &d))
        return;
    snprintf(port, sizeof port, "%u", outer);
    UPNP_DeletePortMapping(d.urls.controlURL, d.data.first.servicetype, port, "TCP", NULL);
    FreeUPNPUrls(&d.urls);
}

/* ---- the lease ---- */

static void note(gsp_portmap *m, gsp_portmap_way way, struct in_addr ip, uint16_t port)
{
    static const char *const names[] = {"", "NAT-PMP", "UPnP"};
    char text[INET_ADDRSTRLEN];
    gsp_address outside = {0};
    gsp_portmap_status *s = &m->status;
    if (way != GSP_PORTMAP_NONE && is_public(ip)) {
        struct sockaddr_storage at = {0};
        memcpy(
            &at,
            &(struct sockaddr_in){.sin_family = AF_INET, .sin_addr = ip, .sin_port = htons(port)},
            sizeof(struct sockaddr_in));
        if (!gsp_address_from_socket(&at, &outside))
            memset(&outside, 0, sizeof outside);
    }
    inet_ntop(AF_INET, &ip, text, sizeof text);
    pthread_mutex_lock(&m->lock);
    s->changes += !gsp_address_equal(&outside, &s->outside);
    s->asked = true;
    s->way = way;
    s->outside = outside;
    m->outer_port = way == GSP_PORTMAP_NONE ? 0 : port;
    if (way == GSP_PORTMAP_NONE)
        snprintf(s->why, sizeof s->why,
                 "no router opened port %u (NAT-PMP, UPnP); forward it by hand, or let other "
                 "members relay connections",
                 m->config.port);
    else if (!is_public(ip))
        snprintf(s->why, sizeof s->why,
                 "the router opened a port (%s), but is itself behind another router (%s)",
                 names[way], text);
    else
        snprintf(s->why, sizeof s->why, "the router forwards %s:%u to this host (%s)", text, port,
                 names[way]);
    pthread_cond_broadcast(&m->moved);
    pthread_mutex_unlock(&m->lock);
}

static void lease(gsp_portmap *m)
{
    struct in_addr ip = {0};
    uint16_t wish = m->outer_port ? m->outer_port : m->config.port, port = 0;
    gsp_portmap_way way = GSP_PORTMAP_NONE;
    uint32_t wanted = m->config.lifetime_s;
    if (!m->url[0] && ask_natpmp(m, wish, wanted, &ip, &port, &m->lease_s))
        way = GSP_PORTMAP_NATPMP;
    else if (!m->gateway[0] && ask_upnp(m, wish, wanted, &ip, &port, &m->lease_s))
        way = GSP_PORTMAP_UPNP;
    note(m, way, ip, port);
}

static void give_back(gsp_portmap *m)
{
    struct in_addr ip;
    uint16_t port;
    uint32_t leased_s;
    if (m->status.way == GSP_PORTMAP_NATPMP)
        (void)ask_natpmp(m, 0, 0, &ip, &port, &leased_s);
    if (m->status.way == GSP_PORTMAP_UPNP)
        end_upnp(m, m->outer_port);
}

/* Nobody sets this clock, and it counts while the host sleeps, as the router's does. */
static time_t lived_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return t.tv_sec;
}

/* With the lock held. True: something moved before so many seconds were over. */
static bool sleeps(gsp_portmap *m, time_t seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    return pthread_cond_clockwait(&m->moved, &m->lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT;
}

static void *run(void *arg)
{
    gsp_portmap *m = arg;
    for (bool stop = false; !stop;) {
        lease(m);
        const uint32_t half = m->lease_s / 2 ? m->lease_s / 2 : 1;
        const time_t due = lived_s() + (m->status.way == GSP_PORTMAP_NONE ? AGAIN_S : half);
        pthread_mutex_lock(&m->lock);
        for (time_t left; !m->stop && (left = due - lived_s()) > 0;)
            (void)sleeps(m, left < LOOK_S ? left : LOOK_S);
        stop = m->stop;
        pthread_mutex_unlock(&m->lock);
    }
    give_back(m);
    return NULL;
}

atom_status gsp_portmap_open(const gsp_portmap_config *config, gsp_portmap **out)
{
    gsp_portmap *m = atom_alloc(1, sizeof *m);
    if (!m)
        return atom_fail_memory("a port mapping", sizeof *m);
    m->config = *config;
    m->config.lifetime_s = config->lifetime_s ? config->lifetime_s : LIFETIME_S;
    snprintf(m->gateway, sizeof m->gateway, "%s", config->gateway ? config->gateway : "");
    snprintf(m->url, sizeof m->url, "%s", config->description_url ? config->description_url : "");
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->moved, NULL);
    int error = pthread_create(&m->thread, NULL, run, m);
    if (error) {
        pthread_cond_destroy(&m->moved);
        pthread_mutex_destroy(&m->lock);
        atom_free(m);
        return atom_fail_errno(error, "a thread for the router");
    }
    *out = m;
    return ATOM_OK;
}

void gsp_portmap_close(gsp_portmap **map)
{
    gsp_portmap *m = *map;
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    m->stop = true;
    pthread_cond_broadcast(&m->moved);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    pthread_cond_destroy(&m->moved);
    pthread_mutex_destroy(&m->lock);
    atom_free(m);
    *map = NULL;
}

void gsp_portmap_wait(gsp_portmap *m, double seconds)
{
    pthread_mutex_lock(&m->lock);
    while (!m->status.asked && sleeps(m, (time_t)seconds + 1))
        ;
    pthread_mutex_unlock(&m->lock);
}

void gsp_portmap_read(gsp_portmap *m, gsp_portmap_status *out)
{
    pthread_mutex_lock(&m->lock);
    *out = m->status;
    pthread_mutex_unlock(&m->lock);
}
