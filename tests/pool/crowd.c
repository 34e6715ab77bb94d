/*
 * A crowd of hostile newcomers with one ticket (test_door.py): N endpoints in one process, each
 * with a key made on the spot, dial the ticket's first host and stay as long as they are let. One
 * idea: they come from 127.0.0.2, so that who joins from 127.0.0.1 is somebody else to a host that
 * counts by addresses. They ask for nothing, or for admission again and again (ASK).
 *
 *   pool_crowd TICKET N SECONDS [ASK]
 *
 * Prints {"dialling":true}, then twice a second {"up":..., "most":..., "total":...}: links now, the
 * most at once so far, and UP events. Linked with --wrap=connect.
 */
#include "atom/base/clock.h"
#include "atom/base/mem.h"
#include "gossip/net/net_nanomsg.h"
#include "gossip/pool/words.h"
#include "gossip/trust/ticket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int __real_connect(int fd, const struct sockaddr *to, socklen_t bytes);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t bytes);

int __wrap_connect(int fd, const struct sockaddr *to, socklen_t bytes)
{
    struct sockaddr_in from = {.sin_family = AF_INET};
    from.sin_addr.s_addr = inet_addr("127.0.0.2");
    if (to->sa_family == AF_INET)
        (void)bind(fd, (const struct sockaddr *)&from, sizeof from);
    return __real_connect(fd, to, bytes);
}

typedef struct one {
    gsp_identity identity;
    gsp_net *net;
    bool up;
    uint64_t asked_ns;
} one;

static atom_status begin(one *o, const gsp_ticket *t, const gsp_address *at)
{
    static const uint8_t anybody[GSP_NET_KEY_BYTES];
    gsp_net_gate_config c = {.gate.handshake = {.self = &o->identity, .n_psks = 1}};
    gsp_handshake_config *h = &c.gate.handshake;
    ATOM_TRY(gsp_identity_make(&o->identity));
    memcpy(h->pool, t->pool, sizeof h->pool);
    memcpy(h->owner, t->owner, sizeof h->owner);
    memcpy(h->psk[0], t->psk, sizeof h->psk[0]);
    h->credential_bytes = (uint32_t)gsp_ticket_credential(t, h->credential);
    ATOM_TRY(gsp_net_open_gate(&c, &o->net));
    return gsp_net_dial(o->net, anybody, at, 1);
}

static void ask(one *o, const gsp_ticket *t, const uint8_t *whom)
{
    uint8_t head[GSP_WORD_HEAD_BYTES];
    gsp_word m = {.kind = GSP_WORD_ASK_ADMISSION};
    memcpy(m.key, o->identity.public_key, sizeof m.key);
    m.credential_bytes = (uint32_t)gsp_ticket_credential(t, m.credential);
    (void)!gsp_net_send(o->net, whom, GSP_NET_CONTROL, head, gsp_word_encode(&m, head), NULL, 0);
}

/* One look at one of them; the number of links that came up. */
static uint32_t look(one *o, const gsp_ticket *t, const gsp_address *at, bool asks)
{
    gsp_net_event e;
    if (gsp_net_next(o->net, 0, &e) != ATOM_OK)
        return 0;
    uint32_t came = e.kind == GSP_NET_UP;
    if (e.kind == GSP_NET_UP) {
        o->up = true;
        (void)!gsp_net_dial(o->net, e.key, at, 1); /* and again, when it ends */
        if (asks)
            ask(o, t, e.key);
    }
    if (e.kind == GSP_NET_DOWN)
        o->up = false;
    gsp_net_free(o->net, e.data);
    return came;
}

int main(int argc, char **argv)
{
    gsp_ticket t;
    gsp_address at;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 4 || gsp_crypto_start() != ATOM_OK || gsp_ticket_parse(argv[1], &t) != ATOM_OK ||
        t.n_hosts == 0 || gsp_address_parse(t.hosts[0], &at) != ATOM_OK)
        return 2;
    uint32_t n = (uint32_t)atoi(argv[2]), most = 0, total = 0;
    double end = atom_clock_seconds() + atof(argv[3]), said = 0;
    one *all = atom_alloc(n, sizeof *all);
    for (uint32_t i = 0; all && i < n; i++)
        if (begin(&all[i], &t, &at) != ATOM_OK) {
            printf("{\"failed\":\"%s\"}\n", atom_fail_message());
            return 1;
        }
    printf("{\"dialling\":true}\n");
    for (double now = 0; all && now < end; now = atom_clock_seconds()) {
        uint32_t up = 0;
        for (uint32_t i = 0; i < n; i++) {
            total += look(&all[i], &t, &at, argc > 4);
            up += all[i].up;
        }
        most = up > most ? up : most;
        if (now - said > 0.5) {
            said = now;
            printf("{\"up\":%u,\"most\":%u,\"total\":%u}\n", up, most, total);
        }
        usleep(2000);
    }
    for (uint32_t i = 0; all && i < n; i++)
        gsp_net_close(&all[i].net);
    atom_free(all);
    return 0;
}
