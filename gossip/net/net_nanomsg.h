/*
 * The two real transports of net.h. Both carry every message over nanomsg, one PAIR per stream; a
 * link has one stream for CONTROL and `streams` for BULK.
 *   gate   PAIRs are bound to local (ipc) sockets in a private directory, and the gate (gate.h)
 *          bridges them over the internet, authenticated and sealed
 *   plain  PAIRs use nanomsg's tcp:// directly, without authentication or secrecy: for a trusted
 * LAN,          and to measure what the gate costs
 */
#ifndef GOSSIP_NET_NET_NANOMSG_H
#define GOSSIP_NET_NET_NANOMSG_H

#include "gossip/gate/gate.h"
#include "gossip/net/net.h"

typedef struct gsp_net_gate_config {
    gsp_gate_config gate; /* boot is filled in */
    uint32_t streams;     /* bulk streams per link that we dial; 0: the default */
    /* Holders of an invite count as members: for a host that admits nobody and only answers probes
     * (probe.h). */
    bool guests_are_peers;
    const char *directory; /* for local sockets, short; NULL: a fresh one under TMPDIR or /tmp */
} gsp_net_gate_config;

/*
 * Opens the endpoint of config.gate.handshake.self. Raises the soft limit of open files to the hard
 * one (a stream takes about ten).
 * Errors  those of gsp_gate_open; ATOM_E_RESOURCE  descriptors, nanomsg sockets (512 per process)
 */
ATOM_MUST atom_status gsp_net_open_gate(const gsp_net_gate_config *config, gsp_net **out);

/* What the peer of an UP link showed at its gate. False: no such link, or not a gate's endpoint. */
ATOM_MUST bool gsp_net_peer_credential(gsp_net *net, const uint8_t *key, gsp_role *role,
                                       uint8_t credential[GSP_CREDENTIAL_BYTES_MAX],
                                       uint32_t *bytes);
/* When the peer's last message came, or its link came up. 0: no such link. Only for a gate's
 * endpoint. */
uint64_t gsp_net_heard_ns(gsp_net *net, const uint8_t *key);
/* New keys and credential for links from now on (gsp_gate_rekey): a guest that was admitted drops
 * its links and dials again. Only for a gate's endpoint. */
void gsp_net_rekey(gsp_net *net, const uint8_t psk[][GSP_PSK_BYTES], uint32_t n_psks,
                   const void *credential, uint32_t credential_bytes);
/* Whether this endpoint relays for others; it does until told otherwise, then it ends what it
 * relays. Not for net_sim.h's. */
void gsp_net_serve_relays(gsp_net *net, bool serve);
/* The gate's own counts. False: not a gate's endpoint. */
ATOM_MUST bool gsp_net_read_gate_stats(gsp_net *net, gsp_gate_stats *stats);

typedef struct gsp_net_plain_config {
    uint8_t key[GSP_NET_KEY_BYTES]; /* believed without proof */
    gsp_address listen;             /* an address of this host, or "*"; port 0: do not accept */
    uint16_t port_first, port_last; /* for streams; 0: the 2000 ports after listen's */
    uint32_t streams;               /* as above */
    uint32_t buffer_bytes;          /* SO_SNDBUF, SO_RCVBUF; 0: 4 MiB or what the host allows */
} gsp_net_plain_config;

/*
 * Opens an endpoint without a gate, IPv4 only. Answers on listen (nanomsg REP): a dialler asks
 * there for ports and connects its PAIRs to them.
 */
ATOM_MUST atom_status gsp_net_open_plain(const gsp_net_plain_config *config, gsp_net **out);

#endif
