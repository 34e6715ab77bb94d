/*
 * Owns the transport without a gate: nanomsg's own tcp://, for a trusted LAN and as the measure of
 * what the gate costs. Its one idea: a REP socket at a known port hands out fresh ports, one PAIR
 * each, because a PAIR has one slot and says neither who is there nor when it left; a vanished
 * connection is found by asking nanomsg for its count ten times a second. It refuses to be safe
 * among strangers: keys are believed.
 */
#include "gossip/net/net_inner.h"

#include "atom/base/bytes.h"
#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <arpa/inet.h>
#include <nanomsg/nn.h>
#include <nanomsg/reqrep.h>
#include <stdio.h>
#include <string.h>

enum {
    MAGIC = 0x314e4c50, /* "PLN1" */
    REQUEST_BYTES = 4 + GSP_NET_KEY_BYTES + 8 + 8 + 2 + 2,
    REPLY_BYTES = 4 + GSP_NET_KEY_BYTES + 8 + 2 + 2 * LINK_STREAMS_MAX,
    BUFFER_DEFAULT = 4 << 20,
    CONTROL_BUFFER = 256 * 1024,
};
static const uint64_t ANSWER_NS = 5000000000ull;

/* "tcp://192.0.2.7:4400"; any address is "*". */
static void url_of(const gsp_address *a, uint16_t port, char out[GSP_ADDRESS_TEXT_BYTES + 8])
{
    static const uint8_t any[16];
    char text[GSP_ADDRESS_TEXT_BYTES];
    gsp_address with_port = *a;
    with_port.port = port;
    if (memcmp(a->ip, any, sizeof any) == 0)
        snprintf(out, GSP_ADDRESS_TEXT_BYTES + 8, "tcp://*:%u", port);
    else
        snprintf(out, GSP_ADDRESS_TEXT_BYTES + 8, "tcp://%s", gsp_address_text(&with_port, text));
}

/* nanomsg 1.1.5 aborts in its own code when IPv6 is allowed and a connection is retried. */
static bool is_v4(const gsp_address *a)
{
    static const uint8_t head[12] = {[10] = 0xff, [11] = 0xff}, any[16];
    return memcmp(a->ip, head, sizeof head) == 0 || memcmp(a->ip, any, sizeof any) == 0;
}

static void set_int(int socket, int option, int value)
{
    nn_setsockopt(socket, NN_SOL_SOCKET, option, &value, sizeof value);
}

static bool open_pair(const net_endpoint *e, uint32_t i, net_pair *out)
{
    int buffer = i == 0 ? CONTROL_BUFFER : e->buffer_bytes;
    return net_pair_open(i == 0 ? GSP_NET_CONTROL_BYTES_MAX + 1 : GSP_NET_BULK_BYTES_MAX, buffer,
                         out) == ATOM_OK;
}

/* Binds a fresh PAIR to the next free port; 0: none is free. */
static uint16_t bind_next(net_endpoint *e, net_pair *pair)
{
    char url[GSP_ADDRESS_TEXT_BYTES + 8];
    uint32_t n = (uint32_t)e->port_last - e->port_first + 1;
    for (uint32_t i = 0; i < n; i++) {
        uint16_t port = e->port_next;
        e->port_next = port == e->port_last ? e->port_first : (uint16_t)(port + 1);
        url_of(&e->listen, port, url);
        if (net_pair_bind(pair, url))
            return port;
    }
    return 0;
}

static void end_request(net_endpoint *e, uint32_t slot)
{
    if (e->request[slot] > 0)
        nn_close(e->request[slot] - 1);
    e->request[slot] = 0;
}

static bool carrier_dial(net_endpoint *e, net_link *link, uint32_t i)
{
    char url[GSP_ADDRESS_TEXT_BYTES + 8];
    uint8_t request[REQUEST_BYTES];
    uint32_t slot = (uint32_t)(link - e->link);
    if (i > 0)
        return true; /* the answer brings all streams at once */
    if (!is_v4(&link->address))
        return atom_fail(ATOM_E_UNSUPPORTED, "plain transport: IPv4 only") == ATOM_OK;
    end_request(e, slot);
    int socket = nn_socket(AF_SP, NN_REQ);
    e->request[slot] = socket + 1;
    e->request_end_ns[slot] = atom_clock_ns() + ANSWER_NS;
    if (socket < 0)
        return atom_fail(ATOM_E_RESOURCE, "nanomsg: %s", nn_strerror(nn_errno())) == ATOM_OK;
    set_int(socket, NN_RECONNECT_IVL, 100);
    url_of(&link->address, link->address.port, url);
    atom_writer w = atom_writer_make(request, sizeof request);
    atom_write_uint(&w, MAGIC, 4);
    atom_write_bytes(&w, e->net.key, GSP_NET_KEY_BYTES);
    atom_write_uint(&w, e->boot, 8);
    atom_write_uint(&w, link->id, 8);
    atom_write_uint(&w, link->n_streams, 2);
    atom_write_uint(&w, e->port, 2);
    if (nn_connect(socket, url) < 0 || nn_send(socket, request, sizeof request, NN_DONTWAIT) < 0)
        return atom_fail(ATOM_E_RUNTIME, "%s: %s", url, nn_strerror(nn_errno())) == ATOM_OK;
    return true;
}

static void carrier_end(net_endpoint *e, net_stream *stream)
{
    (void)e;
    (void)stream; /* closing the PAIR ends the connection */
}

/* Connects the PAIRs of a link that the other side has granted. */
static void connect_streams(net_endpoint *e, net_link *link, const uint16_t *ports)
{
    char url[GSP_ADDRESS_TEXT_BYTES + 8];
    for (uint32_t i = 0; i < link->n_streams; i++) {
        net_stream *stream = &link->stream[i];
        url_of(&link->address, ports[i], url);
        if (!open_pair(e, i, &stream->pair)) {
            net_link_lost(e, link, "no more nanomsg sockets");
            return;
        }
        stream->used = true;
        if (net_pair_connect(&stream->pair, url) != ATOM_OK) {
            net_link_lost(e, link, "nanomsg cannot connect");
            return;
        }
    }
    for (uint32_t i = 0; i < link->n_streams; i++)
        net_link_stream_added(e, link, i);
}

static bool answer_read(net_endpoint *e, net_link *link, const void *data, size_t bytes)
{
    uint16_t ports[LINK_STREAMS_MAX];
    uint8_t key[GSP_NET_KEY_BYTES];
    atom_reader r = atom_reader_make(data, bytes);
    bool right = atom_read_u32(&r) == MAGIC;
    atom_read_bytes(&r, key, sizeof key);
    uint64_t boot = atom_read_u64(&r);
    uint32_t n = atom_read_u16(&r);
    for (uint32_t i = 0; i < LINK_STREAMS_MAX; i++)
        ports[i] = atom_read_u16(&r);
    if (!right || !atom_reader_ok(&r) || n != link->n_streams ||
        memcmp(key, e->net.key, sizeof key) == 0 ||
        (link->known_key && memcmp(key, link->key, sizeof key) != 0))
        return false;
    net_arrival arrival = {.key = key,
                           .dialled = true,
                           .tag = link->dial_tag,
                           .n_streams = n,
                           .link = link->id,
                           .boot = boot,
                           .address = link->address,
                           .role = GSP_MEMBER};
    link = net_link_admit(e, &arrival);
    if (link)
        connect_streams(e, link, ports);
    return true;
}

/* A peer asks for ports. n_streams 0 in the answer: not wanted, we have a link already. */
static void request_read(net_endpoint *e, const void *data, size_t bytes, uint8_t *reply)
{
    uint8_t key[GSP_NET_KEY_BYTES];
    uint16_t ports[LINK_STREAMS_MAX] = {0};
    atom_reader r = atom_reader_make(data, bytes);
    bool right = atom_read_u32(&r) == MAGIC;
    atom_read_bytes(&r, key, sizeof key);
    net_arrival arrival = {.key = key, .role = GSP_MEMBER};
    arrival.boot = atom_read_u64(&r);
    arrival.link = atom_read_u64(&r);
    arrival.n_streams = atom_read_u16(&r);
    arrival.address.port = atom_read_u16(&r);
    right = right && atom_reader_ok(&r) && memcmp(key, e->net.key, sizeof key) != 0;
    net_link *link = right ? net_link_admit(e, &arrival) : NULL;
    uint32_t n = 0;
    for (; link && n < link->n_streams; n++) {
        net_stream *stream = &link->stream[n];
        if (!open_pair(e, n, &stream->pair))
            break;
        stream->used = true;
        ports[n] = bind_next(e, &stream->pair);
        if (!ports[n])
            break;
        net_link_stream_added(e, link, n);
    }
    if (link && n < link->n_streams) {
        net_link_lost(e, link, "no free port or nanomsg socket for a stream");
        n = 0;
    }
    atom_writer w = atom_writer_make(reply, REPLY_BYTES);
    atom_write_uint(&w, MAGIC, 4);
    atom_write_bytes(&w, e->net.key, GSP_NET_KEY_BYTES);
    atom_write_uint(&w, e->boot, 8);
    atom_write_uint(&w, n, 2);
    for (uint32_t i = 0; i < LINK_STREAMS_MAX; i++)
        atom_write_uint(&w, ports[i], 2);
}

static void carrier_read(net_endpoint *e)
{
    uint8_t request[REQUEST_BYTES], reply[REPLY_BYTES];
    int n;
    while ((n = nn_recv(e->reply, request, sizeof request, NN_DONTWAIT)) >= 0) {
        request_read(e, request, n < REQUEST_BYTES ? (size_t)n : sizeof request, reply);
        nn_send(e->reply, reply, sizeof reply, NN_DONTWAIT);
    }
    e->tick_ns = 0;
}

static void poll_request(net_endpoint *e, uint32_t slot, uint64_t now)
{
    uint8_t reply[REPLY_BYTES];
    net_link *link = &e->link[slot];
    uint64_t tag = link->dial_tag;
    if (!link->used || !tag || link->state != LINK_DIALLING) {
        end_request(e, slot); /* dropped, or the peer was faster */
        return;
    }
    int n = nn_recv(e->request[slot] - 1, reply, sizeof reply, NN_DONTWAIT);
    if (n >= 0) {
        end_request(e, slot);
        if (!answer_read(e, link, reply, n < REPLY_BYTES ? (size_t)n : sizeof reply))
            net_link_dial_failed(e, tag, GSP_WELCOME, "the peer does not want this link now");
    } else if (now > e->request_end_ns[slot]) {
        end_request(e, slot);
        net_link_dial_failed(e, tag, GSP_WELCOME, "nobody answered in time");
    }
}

static void carrier_tick(net_endpoint *e, uint64_t now)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        net_link *link = &e->link[i];
        if (e->request[i])
            poll_request(e, i, now);
        for (uint32_t s = 0; link->used && link->state == LINK_UP && s < link->n_streams; s++)
            if (net_pair_connections(&link->stream[s].pair) == 0)
                net_link_lost(e, link, "the connection ended");
    }
}

static void carrier_close(net_endpoint *e)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        end_request(e, i);
    if (e->reply >= 0)
        nn_close(e->reply);
}

static const net_carrier carrier = {carrier_dial, carrier_end, carrier_read, carrier_tick,
                                    carrier_close};

static atom_status open_reply(net_endpoint *e, uint16_t port)
{
    char url[GSP_ADDRESS_TEXT_BYTES + 8];
    int fd = -1;
    size_t bytes = sizeof fd;
    e->reply = nn_socket(AF_SP, NN_REP);
    if (e->reply < 0)
        return atom_fail(ATOM_E_RESOURCE, "nanomsg: %s", nn_strerror(nn_errno()));
    set_int(e->reply, NN_RCVMAXSIZE, 4096);
    url_of(&e->listen, port, url);
    if (nn_bind(e->reply, url) < 0)
        return atom_fail(ATOM_E_USAGE, "cannot accept on %s: %s; choose another port", url,
                         nn_strerror(nn_errno()));
    if (nn_getsockopt(e->reply, NN_SOL_SOCKET, NN_RCVFD, &fd, &bytes) != 0 ||
        !net_watch(e, fd, DATA_CARRIER))
        return atom_fail(ATOM_E_RESOURCE, "nanomsg gave no descriptor");
    e->port = port;
    return ATOM_OK;
}

atom_status gsp_net_open_plain(const gsp_net_plain_config *config, gsp_net **out)
{
    net_endpoint *e = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(net_endpoint_open(&carrier, config->key, config->streams, &e));
    uint16_t port = config->listen.port;
    if (!is_v4(&config->listen))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_UNSUPPORTED, "the plain transport is IPv4 only"));
    e->listen = config->listen;
    e->buffer_bytes = config->buffer_bytes ? (int)config->buffer_bytes : BUFFER_DEFAULT;
    e->port_first = config->port_first ? config->port_first : (uint16_t)(port + 1);
    e->port_last = config->port_last ? config->port_last
                   : port < 63000    ? (uint16_t)(port + 2000)
                                     : (uint16_t)65535;
    e->port_next = e->port_first;
    if (e->port_first > e->port_last || e->port_first == 0)
        ATOM_TRY_CLEAN(
            atom_fail(ATOM_E_USAGE, "no ports between %u and %u", e->port_first, e->port_last));
    if (port)
        ATOM_TRY_CLEAN(open_reply(e, port));
    *out = &e->net;
    return ATOM_OK;
cleanup:
    if (e)
        net_endpoint_close(&e->net);
    return st;
}
