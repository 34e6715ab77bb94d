/*
 * The gate: the one port that strangers can reach (docs/design/pool.md#transport). It accepts and
 * dials TCP, shakes hands, and then carries bytes between the sealed stream and a local socket, as
 * a TLS tunnel does for HTTP. It does not read messages: of what members send, it checks only that
 * it is framed as nanomsg frames it (gate_frame.h says why). One thread, one epoll.
 *
 * A stream is one authenticated TCP connection, named by a number that is never used twice. The
 * gate tells its owner of a new stream (UP); the owner gives it the path of a local socket
 * (gsp_gate_bridge) or ends it; the gate tells when it is over (DOWN). Which streams make a link,
 * and which of two links is kept, is decided by net.h.
 *
 * Strangers: a connection that has proven nothing costs a few kilobytes, lives at most
 * handshake_ns, and gets no byte of answer unless it holds the ticket. There are at most
 * pending_max of them (no more than an eighth of the descriptors that the process may have), and
 * pending_per_host of one address. When one more comes, one of them is
 * closed at random, so that nobody can lock out members for long by holding connections open. At
 * most accepts_per_second are looked at; the rest wait in the kernel, and running streams come
 * first.
 *
 * Kernel: buffers are autotuned (their sizes are not set). Keepalive and user timeout notice a host
 * that vanished within about ten seconds. Packets do not wait to be filled.
 *
 * Thread: the functions below may be called from any thread but the gate's own; may_enter is called
 * on the gate's thread.
 */
#ifndef GOSSIP_GATE_GATE_H
#define GOSSIP_GATE_GATE_H

#include "gossip/gate/handshake.h"
#include "gossip/gate/net_address.h"

enum { GSP_GATE_LISTEN_MAX = 4, GSP_GATE_PATH_BYTES = 100, GSP_GATE_STREAMS_MAX = 2048 };

/* Why a stream ended where the peer closed it in the handshake, as it does to all who do not hold
 * its key. */
#define GSP_GATE_SHUT "the peer closed the connection in the handshake"

typedef struct gsp_gate_config {
    gsp_handshake_config handshake; /* copied; what self and ctx point to must outlive the gate */
    uint64_t boot;                  /* ours, sent in every hello */
    uint32_t n_listen;              /* 0: dials only */
    gsp_address listen[GSP_GATE_LISTEN_MAX]; /* port 0: any; "*" accepts IPv6 and IPv4 */
    /* Zeros mean the default in brackets. */
    uint32_t streams_max;                      /* [640] authenticated or being dialled */
    uint32_t pending_max;                      /* [128] */
    uint32_t pending_per_host;                 /* [64] */
    uint32_t accepts_per_second;               /* [400] and a burst of as many */
    uint64_t handshake_ns;                     /* [5 s] to prove oneself; also for dialling */
    uint64_t silence_ns;                       /* [10 s] user timeout of the kernel */
    uint64_t up_bytes_per_s, down_bytes_per_s; /* of all streams together [no caps] */
} gsp_gate_config;

typedef enum gsp_gate_kind {
    GSP_GATE_UP,     /* authenticated; wants gsp_gate_bridge or gsp_gate_end within handshake_ns */
    GSP_GATE_DOWN,   /* a stream that was UP is over: why */
    GSP_GATE_FAILED, /* a dial came to nothing: refusal, why */
} gsp_gate_kind;

typedef struct gsp_gate_event {
    gsp_gate_kind kind;
    bool old_key; /* UP, inbound: it dialled with a key that was replaced since */
    uint64_t stream;
    uint64_t tag; /* of the dial; 0: inbound */
    bool dialled;
    uint8_t key
        [GSP_PUBLIC_BYTES]; /* FAILED: whose verdict refusal is, where `proven`; else as dialled */
    gsp_role role;
    gsp_hello hello;     /* the dialler's: ours if we dialled, else the peer's */
    uint64_t peer_boot;  /* the peer's */
    uint16_t peer_port;  /* where the peer accepts; 0: nowhere */
    gsp_address address; /* the peer's end */
    uint32_t credential_bytes;
    uint8_t credential[GSP_CREDENTIAL_BYTES_MAX]; /* what the peer showed */
    gsp_refusal refusal; /* FAILED: the peer's verdict or ours; WELCOME: TCP failed */
    bool proven;         /* FAILED: it is the verdict of `key`, a member */
    uint64_t moved;      /* DOWN: as gsp_gate_moved */
    char why[96];
} gsp_gate_event;

typedef struct gsp_gate_stats {
    uint64_t wire_bytes_sent, wire_bytes_received; /* records and handshakes */
    uint64_t accepted;                             /* TCP connections */
    uint64_t strangers;                            /* of those: ended without a proof */
    uint64_t refused;         /* held the ticket, but no good credential, or were not welcome */
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
 * Starts to dial. peer: the key that must answer; NULL: anybody that proves to be a member. Of
 * hello, stream, n_streams and link are the caller's; the rest is filled in. Ends in UP or FAILED
 * with this tag (not 0).
 * Errors  ATOM_E_RESOURCE  streams_max are in use
 */
ATOM_MUST atom_status gsp_gate_dial(gsp_gate *gate, const uint8_t *peer, const gsp_address *address,
                                    const gsp_hello *hello, uint64_t tag);
/*
 * Connects an UP stream to nanomsg's local (ipc) socket at path, once the peer has done the same,
 * and lets bytes flow; if that fails, the stream is DOWN. A message of the peer that is larger than
 * bytes_max ends the stream.
 */
void gsp_gate_bridge(gsp_gate *gate, uint64_t stream, const char *path, uint64_t bytes_max);
/* The same with a connected socket of the caller in place of nanomsg's: bytes pass unchecked. Takes
 * ownership of fd. Two streams that are joined to the two ends of a socketpair relay each other. */
void gsp_gate_join(gsp_gate *gate, uint64_t stream, int fd);
/*
 * Makes a stream over a connected socket of the caller instead of TCP, and takes ownership of it:
 * as if it had been dialled (peer, hello and tag as for gsp_gate_dial) or, if tag is 0, accepted.
 * Errors  ATOM_E_RESOURCE  streams_max are in use; fd is closed
 */
ATOM_MUST atom_status gsp_gate_adopt(gsp_gate *gate, int fd, const uint8_t *peer,
                                     const gsp_hello *hello, uint64_t tag);
/* From now on the stream sends at most so many bytes per second, evenly; 0: without a limit. */
void gsp_gate_pace(gsp_gate *gate, uint64_t stream, uint64_t bytes_per_s);
/* How many plain bytes a stream that was bridged or joined has moved so far, both ways. False: it is
 * over; *bytes is set all the same until its DOWN is taken. */
bool gsp_gate_moved(gsp_gate *gate, uint64_t stream, uint64_t *bytes);
/* Ends a stream; no further event of it follows. A number that is unknown or over is fine. */
void gsp_gate_end(gsp_gate *gate, uint64_t stream);
/* Takes the oldest event; false: none. Events come in order, so a stream that was dialled after
 * another one was UP is told after it. Does not block. */
ATOM_MUST bool gsp_gate_next(gsp_gate *gate, gsp_gate_event *out);
/* New keys and credential for handshakes that begin from now on; running streams are kept. */
void gsp_gate_rekey(gsp_gate *gate, const uint8_t psk[][GSP_PSK_BYTES], uint32_t n_psks,
                    const void *credential, uint32_t credential_bytes);
void gsp_gate_read_stats(gsp_gate *gate, gsp_gate_stats *stats);

#endif
