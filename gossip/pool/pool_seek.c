/*
 * Owns how a host finds its first member: the ticket's hosts, what came of dialling them, and the
 * one line that says so. Its one idea: the transport dials an address for ever, so here names are
 * looked up again, with longer and longer pauses, for as long as nobody is linked. It refuses to
 * give up: who waits ends it.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/log.h"

#include <stdarg.h>
#include <string.h>

static const uint64_t PAUSE_FIRST_NS = 10u * 1000000000ull, PAUSE_MAX_NS = 120u * 1000000000ull;
static const char PLAIN[] = "plain+";

static const char *without_mark(const char *host)
{
    return strncmp(host, PLAIN, sizeof PLAIN - 1) == 0 ? host + sizeof PLAIN - 1 : host;
}

/* Adds to text as much as fits. */
static void append(char text[GSP_POOL_WHY_BYTES], const char *fmt, ...)
{
    size_t at = strlen(text);
    va_list args;
    va_start(args, fmt);
    vsnprintf(text + at, GSP_POOL_WHY_BYTES - at, fmt, args);
    va_end(args);
}

void life_seek_say(gsp_pool *p)
{
    char text[GSP_POOL_WHY_BYTES] = "looking for a member";
    uint32_t n = 0;
    for (uint32_t i = 0; i <= GSP_TICKET_HOSTS_MAX; i++)
        if (p->tried[i].why[0])
            append(text, "%s %s (%s)", n++ ? "," : "; tried", p->tried[i].host, p->tried[i].why);
    gsp_headline_say(&p->headline, GSP_POOL_SEEKING, "%s", text);
}

static void note(gsp_pool *p, uint32_t i, const char *why)
{
    snprintf(p->tried[i].why, sizeof p->tried[i].why, "%s", why);
    if (p->headline.now == GSP_POOL_SEEKING)
        life_seek_say(p);
}

void life_seek(gsp_pool *p)
{
    static const uint8_t anybody[GSP_PUBLIC_BYTES];
    for (uint32_t i = 0; i < p->n_hosts; i++) {
        const char *host = without_mark(p->hosts[i]);
        gsp_address at[GSP_NET_ADDRESSES_MAX];
        size_t n = 0;
        snprintf(p->tried[i].host, sizeof p->tried[i].host, "%s", host);
        atom_status st = gsp_address_resolve(host, at, GSP_NET_ADDRESSES_MAX, &n);
        if (st == ATOM_OK) {
            memcpy(p->tried[i].at, at, n * sizeof *at);
            p->tried[i].n = (uint32_t)n;
            st = gsp_net_dial(p->net, anybody, at, n);
        }
        if (st != ATOM_OK) {
            atom_log(ATOM_LOG_DEBUG, "%s", atom_fail_message());
            note(p, i, atom_fail_message());
        }
    }
}

void life_seek_step(gsp_pool *p, uint64_t now)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        if (p->links.link[i].up) {
            for (uint32_t k = 0; p->seek_ns && k <= GSP_TICKET_HOSTS_MAX; k++)
                p->tried[k].why[0] = 0;
            p->seek_ns = 0;
            return;
        }
    }
    if (p->seek_ns == 0) {
        p->seek_pause_ns = PAUSE_FIRST_NS;
        p->seek_ns = now + p->seek_pause_ns;
    } else if (now >= p->seek_ns) {
        life_seek(p);
        if (p->seek_pause_ns < PAUSE_MAX_NS)
            p->seek_pause_ns *= 2;
        p->seek_ns = atom_clock_ns() + p->seek_pause_ns;
    }
}

void life_seek_refused(gsp_pool *p, const gsp_net_event *e)
{
    char text[GSP_ADDRESS_TEXT_BYTES];
    for (uint32_t i = 0; i < p->n_hosts; i++) {
        for (uint32_t k = 0; k < p->tried[i].n; k++) {
            if (gsp_address_equal(&p->tried[i].at[k], &e->address)) {
                note(p, i, e->why);
                return;
            }
        }
    }
    /* Somebody the LAN, the directory or the book told of; the last one is shown. */
    snprintf(p->tried[GSP_TICKET_HOSTS_MAX].host, sizeof p->tried[0].host, "%s",
             gsp_address_text(&e->address, text));
    note(p, GSP_TICKET_HOSTS_MAX, e->why);
}
