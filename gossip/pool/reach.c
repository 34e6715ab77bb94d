/*
 * Owns what a host says of where it can be reached. Its one idea: the router's address is one more
 * of our own, and comes first; an address of zeros that is listened at stands for those of all
 * interfaces. It refuses to name addresses that mean nothing elsewhere, unless there are no others.
 */
#include "gossip/pool/reach.h"

#include "atom/base/log.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static const double PATIENCE_S = 4;
static const uint64_t LOOK_NS = 2000000000u;

static bool is_loopback(const gsp_address *a)
{
    static const uint8_t one[16] = {[15] = 1}, mapped[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(a->ip, one, 16) == 0 || (memcmp(a->ip, mapped, 12) == 0 && a->ip[12] == 127);
}

/* It means something to those on the same network, or behind the same provider, and to nobody else. */
static bool is_local(const gsp_address *a)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const uint8_t *v4 = a->ip + 12;
    if (memcmp(a->ip, mapped, sizeof mapped) != 0)
        return is_loopback(a) || (a->ip[0] & 0xfe) == 0xfc ||
               (a->ip[0] == 0xfe && (a->ip[1] & 0xc0) == 0x80);
    return v4[0] == 10 || v4[0] == 127 || (v4[0] == 172 && (v4[1] & 0xf0) == 16) ||
           (v4[0] == 192 && v4[1] == 168) || (v4[0] == 169 && v4[1] == 254) ||
           (v4[0] == 100 && (v4[1] & 0xc0) == 64);
}

/* ---- how others see it ---- */

bool gsp_reach_hear(gsp_reach *r, const gsp_address *said, uint32_t n)
{
    gsp_address best = r->seen;
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t votes = is_local(&said[i]) ? 0 : n;
        for (uint32_t k = 0; k < n; k++)
            votes += gsp_address_same_host(&said[i], &said[k]);
        if (gsp_address_is_any(&said[i]) || votes < most ||
            (votes == most && !gsp_address_same_host(&said[i], &r->seen)))
            continue;
        most = votes;
        best = said[i];
    }
    bool news = !gsp_address_same_host(&best, &r->seen);
    r->seen = best;
    return news;
}

/* ---- the router ---- */

static bool listens_everywhere(const gsp_reach *r)
{
    static const uint8_t any[16];
    for (uint32_t i = 0; i < r->n_listen; i++)
        if (memcmp(r->listen[i].ip, any, sizeof any) == 0)
            return true;
    return false;
}

void gsp_reach_ask_router(gsp_reach *r)
{
    gsp_portmap_config c = {.port = r->port};
    if (!r->port || r->plain || r->n_announce || !listens_everywhere(r))
        return;
    if (gsp_portmap_open(&c, &r->router) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
}

void gsp_reach_wait(gsp_reach *r)
{
    if (r->router)
        gsp_portmap_wait(r->router, PATIENCE_S);
}

bool gsp_reach_step(gsp_reach *r, uint64_t now)
{
    gsp_portmap_status s;
    if (!r->router || now < r->look_ns)
        return false;
    r->look_ns = now + LOOK_NS;
    gsp_portmap_read(r->router, &s);
    if (!s.asked || (r->routed.asked && s.changes == r->routed.changes))
        return false;
    r->routed = s;
    return true;
}

void gsp_reach_close(gsp_reach *r)
{
    gsp_portmap_close(&r->router);
    gsp_names_close(&r->names);
}

/* ---- addresses ---- */

typedef struct list {
    gsp_address *at;
    uint32_t n, n_max;
} list;

static void add(list *l, gsp_address a, uint16_t port)
{
    a.port = port;
    for (uint32_t i = 0; i < l->n; i++)
        if (gsp_address_equal(&l->at[i], &a))
            return;
    if (l->n < l->n_max)
        l->at[l->n++] = a;
}

/* Those of the interfaces; loopback only where there is nothing else. */
static void add_interfaces(list *l, uint16_t port)
{
    struct ifaddrs *interfaces = NULL;
    uint32_t before = l->n;
    gsp_address loopback = {0};
    if (getifaddrs(&interfaces) != 0)
        return;
    for (const struct ifaddrs *i = interfaces; i; i = i->ifa_next) {
        struct sockaddr_storage s = {0};
        gsp_address a;
        int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
        if (!(i->ifa_flags & IFF_UP) || (family != AF_INET && family != AF_INET6))
            continue;
        memcpy(&s, i->ifa_addr,
               family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
        if (!gsp_address_from_socket(&s, &a) || a.scope)
            continue; /* link-local: means nothing elsewhere */
        if (is_loopback(&a))
            loopback = a;
        else
            add(l, a, port);
    }
    freeifaddrs(interfaces);
    if (l->n == before && !gsp_address_is_any(&loopback))
        add(l, loopback, port);
}

void gsp_reach_look_up(gsp_reach *r)
{
    memset(r->named, 0, sizeof r->named);
    gsp_names_look(r->announce, r->n_announce, r->named);
    gsp_names_all(r->named, r->n_announce, &r->announced);
}

void gsp_reach_watch_names(gsp_reach *r)
{
    if (gsp_names_open(r->announce, r->n_announce, r->named, 0, &r->names) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
}

static void list_text(const gsp_meant *of, char *text, size_t bytes)
{
    char one[GSP_ADDRESS_TEXT_BYTES];
    snprintf(text, bytes, "%s", of->n ? "" : "nothing");
    for (uint32_t i = 0; i < of->n; i++) {
        size_t at = strlen(text);
        snprintf(text + at, bytes - at, "%s%s", i ? ", " : "", gsp_address_text(&of->at[i], one));
    }
}

bool gsp_reach_moved(gsp_reach *r, char *text, size_t bytes)
{
    enum { LIST_BYTES = GSP_TICKET_HOSTS_MAX * (GSP_ADDRESS_TEXT_BYTES + 2) };
    char before[LIST_BYTES], after[LIST_BYTES];
    const gsp_meant was = r->announced;
    if (!r->names || !gsp_names_changed(r->names, &r->announced))
        return false;
    list_text(&was, before, sizeof before);
    list_text(&r->announced, after, sizeof after);
    snprintf(text, bytes, "what this host announces is at %s now, no longer at %s", after, before);
    return true;
}

uint32_t gsp_reach_addresses(const gsp_reach *r, gsp_address *out, uint32_t n_max)
{
    list l = {.at = out, .n_max = n_max};
    if (!r->port)
        return 0;
    for (uint32_t i = 0; i < r->announced.n; i++)
        add(&l, r->announced.at[i], r->announced.at[i].port);
    if (!gsp_address_is_any(&r->routed.outside))
        add(&l, r->routed.outside, r->routed.outside.port);
    for (uint32_t i = 0; i < r->n_listen; i++) {
        const gsp_address *at = &r->listen[i];
        if (!gsp_address_is_any(at)) {
            add(&l, *at, at->port ? at->port : r->port);
            continue;
        }
        if (!gsp_address_is_any(&r->seen) && !is_loopback(&r->seen))
            add(&l, r->seen, r->port);
        add_interfaces(&l, r->port);
    }
    return l.n;
}

atom_status gsp_reach_hosts(const gsp_reach *r, gsp_hosts *out)
{
    const char *mark = r->plain ? "plain+" : "";
    gsp_address own[GSP_TICKET_HOSTS_MAX];
    char text[GSP_ADDRESS_TEXT_BYTES];
    memset(out, 0, sizeof *out);
    out->n = r->n_announce ? r->n_announce : gsp_reach_addresses(r, own, GSP_TICKET_HOSTS_MAX);
    for (uint32_t i = 0; i < out->n; i++) {
        const char *host = r->n_announce ? r->announce[i] : gsp_address_text(&own[i], text);
        int n = snprintf(out->host[i], sizeof out->host[i], "%s%s", mark, host);
        if (n < 0 || n >= (int)sizeof out->host[i])
            return atom_fail(ATOM_E_USAGE, "'%s' is too long for a ticket", host);
    }
    return ATOM_OK;
}
