/*
 * Owns the search for the first member. Its one idea: the transport dials an address for ever, so
 * here only names are looked up again, for as long as nobody is linked. It refuses to give up:
 * whoever waits for it decides how long.
 */
#include "gossip/pool/seek.h"

#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "gossip/gate/gate.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const uint64_t PAUSE_FIRST_NS = 10u * 1000000000ull, PAUSE_MAX_NS = 120u * 1000000000ull;
static const char PLAIN[] = "plain+";

static const char *without_mark(const char *host)
{
    return strncmp(host, PLAIN, sizeof PLAIN - 1) == 0 ? host + sizeof PLAIN - 1 : host;
}

const char *gsp_seek_text(const gsp_seek *s, char *text, size_t bytes)
{
    uint32_t n = 0;
    bool long_way = s->look_ns && s->pause_ns > PAUSE_FIRST_NS;
    snprintf(text, bytes, "looking for a member%s",
             s->shut    ? "; whoever answers there does not know this ticket; ask for a new one, "
                          "but the run may also have ended"
             : long_way ? "; none answers: they may be off, or the run may have ended"
                        : "");
    for (uint32_t i = 0; i <= GSP_TICKET_HOSTS_MAX; i++) {
        const gsp_tried *t = &s->tried[i];
        size_t at = strlen(text);
        if (t->why[0])
            snprintf(text + at, bytes - at, "%s %s (%s)", n++ ? "," : "; tried", t->host, t->why);
    }
    return text;
}

static void note(gsp_seek *s, uint32_t i, const char *why)
{
    snprintf(s->tried[i].why, sizeof s->tried[i].why, "%s", why);
    s->news = true;
}

void gsp_seek_dial(gsp_seek *s)
{
    static const uint8_t anybody[GSP_PUBLIC_BYTES];
    for (uint32_t i = 0; i < s->hosts->n; i++) {
        gsp_tried *t = &s->tried[i];
        const char *host = without_mark(s->hosts->host[i]);
        gsp_address at[GSP_NET_ADDRESSES_MAX];
        size_t n = 0;
        snprintf(t->host, sizeof t->host, "%s", host);
        atom_status st = gsp_address_resolve(host, at, GSP_NET_ADDRESSES_MAX, &n);
        if (st == ATOM_OK) {
            memcpy(t->at, at, n * sizeof *at);
            t->n = (uint32_t)n;
            st = gsp_net_dial(s->net, anybody, at, n);
        }
        if (st != ATOM_OK) {
            atom_log(ATOM_LOG_DEBUG, "%s", atom_fail_message());
            note(s, i, atom_fail_message());
        }
    }
}

void gsp_seek_step(gsp_seek *s, bool linked, uint64_t now)
{
    if (linked) {
        for (uint32_t k = 0; s->look_ns && k <= GSP_TICKET_HOSTS_MAX; k++)
            s->tried[k].why[0] = 0;
        s->look_ns = 0;
        s->shut = false;
    } else if (s->look_ns == 0) {
        s->pause_ns = PAUSE_FIRST_NS;
        s->look_ns = now + s->pause_ns;
    } else if (now >= s->look_ns) {
        gsp_seek_dial(s);
        if (s->pause_ns < PAUSE_MAX_NS)
            s->pause_ns *= 2;
        s->news = true;
        s->look_ns = atom_clock_ns() + s->pause_ns;
    }
}

void gsp_seek_refused(gsp_seek *s, const gsp_net_event *e)
{
    char text[GSP_ADDRESS_TEXT_BYTES];
    for (uint32_t i = 0; i < s->hosts->n; i++)
        for (uint32_t k = 0; k < s->tried[i].n; k++)
            if (gsp_address_equal(&s->tried[i].at[k], &e->address)) {
                s->shut |= strcmp(e->why, GSP_GATE_SHUT) == 0;
                note(s, i, e->why);
                return;
            }
    /* Somebody that the LAN, the directory or the book named. */
    snprintf(s->tried[GSP_TICKET_HOSTS_MAX].host, sizeof s->tried[0].host, "%s",
             gsp_address_text(&e->address, text));
    note(s, GSP_TICKET_HOSTS_MAX, e->why);
}
