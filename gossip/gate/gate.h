/*
 * The gate: the one port that strangers can reach (docs/design/pool.md#transport). It accepts and
 * dials TCP, shakes hands, and then carries bytes between the sealed stream and a local socket; it
 * is to nanomsg what a TLS tunnel is to HTTP. It does not read messages; of what members send it
 * only checks that it is cut as nanomsg cuts it (gate_frame.h says why). One thread, one epoll.
 *
 * A stream is one authenticated TCP connection, named by a number that is never used twice. The
 * owner of the gate hears of it (UP), gives it the path of a local socket (gsp_gate_bridge) or ends
 * it, and hears of its end (DOWN). Which streams make a link, and which of two is kept, is not the
 * gate's business.
 *
 * Strangers: an unproven connection costs a few kilobytes, lives at most handshake_ns, and gets no
 * byte of answer unless it holds the ticket. At most pending_max of them at once and
 * pending_per_host of one address: one more, and one of them, chosen at random, is closed, so that
 * holding connections open never locks out a member for long. At most accepts_per_second are looked
 * at; the rest wait in the kernel, and streams that run come first.
 *
 * Kernel: autotuned buffers (none are set), keepalive and user timeout, so that a host that
 * vanished is noticed in about ten seconds; no waiting to fill packets.
 *
 * Thread: the functions below may be called from any thread but the gate's own; may_enter is called
 * on the gate's thread.
 */
#ifndef GOSSIP_GATE_GATE_H
#define GOSSIP_GATE_GATE_H

#include "gossip/gate/handshake.h"
#include "gossip/gate/net_address.h"

enum { GSP_GATE_LISTEN_MAX = 4, GSP_GATE_PATH_BYTES = 100, GSP_GATE_STREAMS_MAX = 2048 };

typedef struct gsp_gate_config {
    gsp_handshake_config handshake; /* copied but for self and ctx, which must outlive the gate */
    uint64_t boot;                  /* ours, told in every hello */
    uint32_t n_listen;              /* 0: dials only */
    gsp_address listen[GSP_GATE_LISTEN_MAX]; /* port 0: any; "*" accepts IPv6 and IPv4 */
    /* Zeros mean the default in brackets. */
    uint32_t streams_max;                      /* [640] authenticated or being dialled */
    uint32_t pending_max;                      /* [128] */
    uint32_t pending_per_host;                 /* [64] */
    uint32_t accepts_per_second;               /* [400] with a burst of as many */
    uint64_t handshake_ns;                     /* [5 s] to prove oneself; also for dialling */
    uint64_t silence_ns;                       /* [10 s] user timeout of the kernel */
    uint64_t up_bytes_per_s, down_bytes_per_s; /* of all streams together [no caps] */
} gsp_gate_config;

typedef enum gsp_gate_kind {
    GSP_GATE_UP,     /* authenticated; wants gsp_gate_bridge or gsp_gate_end within handshake_ns */
    GSP_GATE_DOWN,   /* was UP, is over; why */
    GSP_GATE_FAILED, /* a dial came to nothing; refusal, why */
} gsp_gate_kind;

typedef struct gsp_gate_event {
    gsp_gate_kind kind;
    uint64_t stream;
    uint64_t tag; /* of the dial; 0 for inbound */
    bool dialled;
    uint8_t key[GSP_PUBLIC_BYTES];
    gsp_role role;
    gsp_hello hello;     /* the dialler's: ours where dialled, the peer's where not */
    uint64_t peer_boot;  /* the peer's */
    uint16_t peer_port;  /* where the peer accepts; 0: nowhere */
    gsp_address address; /* the peer's end */
    uint32_t credential_bytes;
    uint8_t credential[GSP_CREDENTIAL_BYTES_MAX]; /* what the peer showed */
    gsp_refusal refusal; /* FAILED: the peer's verdict or ours; WELCOME when TCP failed */
    char why[96];
} gsp_gate_event;

typedef struct gsp_gate_stats {
    uint64_t wire_bytes_sent, wire_bytes_received; /* records and handshakes */
    uint64_t accepted;                             /* TCP connections */
    uint64_t strangers;                            /* of those: ended without proof */
    uint64_t refused;         /* held the ticket, but no good credential, or not welcome */
    uint64_t records_refused; /* streams ended by a record that did not open or must not pass */
    uint64_t streams_opened;  /* UP events */
    uint64_t cpu_ns;          /* of the gate's thread */
    uint32_t streams, pending;
} gsp_gate_stats;

typedef struct gsp_gate gsp_gate;

/*
 * Binds, listens, starts the thread. Signals a fresh event by making event_fd readable.
 * Errors  ATOM_E_USAGE  an address is in use or not this host's (the message says which);
 *         ATOM_E_RESOURCE, ATOM_E_RUNTIME  no memory, descriptors or threads
 */
ATOM_MUST atom_status gsp_gate_open(const gsp_gate_config *config, gsp_gate **out);
/* Ends the thread and all streams. Sets *gate to NULL; NULL is fine. */
void gsp_gate_close(gsp_gate **gate);

uint16_t gsp_gate_port(const gsp_gate *gate); /* of the first listener; 0: none */
int gsp_gate_event_fd(const gsp_gate *gate);  /* readable: call gsp_gate_next until false */

/*
 * Starts to dial. peer NULL: whoever proves to be a member. hello: stream, n_streams and link are
 * the caller's; the rest is filled in. Ends in UP or FAILED with this tag (not 0).
 * Errors  ATOM_E_RESOURCE  streams_max are in use
 */
ATOM_MUST atom_status gsp_gate_dial(gsp_gate *gate, const uint8_t *peer, const gsp_address *address,
                                    const gsp_hello *hello, uint64_t tag);
/*
 * Connects an UP stream to nanomsg's local (ipc) socket at path, once the peer has done the same,
 * and lets bytes flow; failing that, DOWN. A message above bytes_max from the peer ends the stream.
 */
void gsp_gate_bridge(gsp_gate *gate, uint64_t stream, const char *path, uint64_t bytes_max);
/* The same with a connected socket of the caller's in nanomsg's place: bytes pass as they are.
 * Takes fd. Two streams that are joined to the ends of one socketpair are relayed to each other. */
void gsp_gate_join(gsp_gate *gate, uint64_t stream, int fd);
/*
 * A stream over a connected socket of the caller's instead of TCP, which it takes: as if it had
 * been dialled (peer, hello and tag as for gsp_gate_dial), or, where tag is 0, accepted. Errors
 * ATOM_E_RESOURCE  streams_max are in use; fd is closed
 */
ATOM_MUST atom_status gsp_gate_adopt(gsp_gate *gate, int fd, const uint8_t *peer,
                                     const gsp_hello *hello, uint64_t tag);
/* The stream's TCP sends at most so many bytes per second from now on, evenly; 0: as it likes. */
void gsp_gate_pace(gsp_gate *gate, uint64_t stream, uint64_t bytes_per_s);
/* Ends a stream; no further event of it follows. Unknown and ended ones are fine. */
void gsp_gate_end(gsp_gate *gate, uint64_t stream);
/* Takes the oldest event, so that a stream dialled after another one was UP is told after it;
 * false: none. Does not block. */
ATOM_MUST bool gsp_gate_next(gsp_gate *gate, gsp_gate_event *out);
/* New keys and credential for handshakes that begin from now on; running streams stay. */
void gsp_gate_rekey(gsp_gate *gate, const uint8_t psk[][GSP_PSK_BYTES], uint32_t n_psks,
                    const void *credential, uint32_t credential_bytes);
void gsp_gate_read_stats(gsp_gate *gate, gsp_gate_stats *stats);

#endif
