/*
 * Inside the gate, and for its files alone. One thread owns all of it, and each file is one thing
 * that this thread does, which is why they share the struct below: gate.c (the loop) calls
 * gate_mail.c (calls from other threads), gate_enter.c (how connections become streams) and
 * gate_pump.c (bytes); these stand on gate_slot.c (slots and events) and gate_rate.c (rates). No
 * call goes the other way.
 *
 * Thread: fields belong to the gate's thread, but those marked (lock) are read and written under
 * gate->lock by any thread.
 */
#ifndef GOSSIP_GATE_GATE_INNER_H
#define GOSSIP_GATE_GATE_INNER_H

#include "gossip/gate/gate.h"
#include "gossip/gate/gate_frame.h"
#include "gossip/gate/gate_record.h"

#include <pthread.h>
#include <stdatomic.h>

typedef enum stream_state {
    STREAM_FREE,
    STREAM_WANTED,     /* gsp_gate_dial was called */
    STREAM_CONNECTING, /* TCP is connecting */
    STREAM_SHAKING,    /* in the handshake; of the dialler and of the acceptor */
    STREAM_PARKED,     /* UP was told; waits for its bridge */
    STREAM_READYING,   /* told the peer that our bridge is there; waits for its word */
    STREAM_RUNNING,
    STREAM_OVER, /* closed; its last event waits to be taken */
} stream_state;

/* So many bytes a second; 0: as many as there are. */
typedef struct gate_cap {
    uint64_t rate;
    double left; /* bytes that may pass now; below 0: they passed before */
    uint64_t filled_ns;
} gate_cap;

/* One direction's buffer: head and body of one record, its tag, and the next record's head. */
enum { BUFFER_BYTES = GSP_RECORD_HEAD_BYTES * 2 + GSP_RECORD_BYTES_MAX + GSP_RECORD_TAG_BYTES };

typedef struct gate_stream {
    _Atomic(stream_state) state; /* (lock) to write */
    uint32_t generation;         /* (lock) */
    int tcp, host;               /* -1: none; tcp may be an adopted socket */
    bool dialled, any_peer;
    /* What epoll last said; false after EAGAIN. */
    bool tcp_in, tcp_out, host_in, host_out;
    bool tcp_end, host_end; /* the other side closed: read until it says so */
    uint64_t deadline_ns;   /* CONNECTING, SHAKING, PARKED */
    gsp_address address;
    gsp_hello hello; /* wanted, of a dial */
    gsp_handshake *shake;

    uint8_t *out, *in;          /* BUFFER_BYTES each, from PARKED on */
    size_t out_at, out_end;     /* sealed bytes on their way to tcp */
    size_t in_end;              /* bytes of the record that is being received */
    bool bulk;                  /* not a control stream: caps hold it up */
    const gate_cap *starves_of; /* which one; NULL: none */
    int low_water;              /* what tcp must hold before it wakes us; 0: the default, 1 */
    size_t plain_at, plain_end; /* opened bytes on their way to host */
    gsp_record_key seal, open;
    gsp_frames frames;      /* of the peer */
    _Atomic uint64_t moved; /* plain bytes, both ways */

    bool told, ended, bridge; /* (lock) UP was queued; gsp_gate_end; gsp_gate_bridge */
    bool paced;               /* (lock) gsp_gate_pace, at most `pace` bytes/s */
    uint32_t pace;
    bool event_waits;               /* (lock) UP is there to be taken */
    int join;                       /* (lock) until bridge is taken: host to be; -1: path */
    bool raw;                       /* (lock) as join: no frames, the peer of host is no nanomsg */
    char path[GSP_GATE_PATH_BYTES]; /* (lock) until bridge is taken; frames.bytes_max too */
    uint64_t event_turn;            /* (lock) its place among all events */
    gsp_gate_event event;           /* (lock) */
} gate_stream;

struct gsp_gate {
    gsp_gate_config config;
    gsp_replays replays;
    pthread_t thread;
    bool started;
    int epoll, wake, events;
    int listener[GSP_GATE_LISTEN_MAX];
    bool listener_in[GSP_GATE_LISTEN_MAX];
    uint16_t port;
    double tokens; /* connections that may be accepted now */
    uint64_t tokens_ns, scan_ns;

    uint32_t n_streams; /* slots: streams_max + pending_max */
    gate_stream *stream;
    uint32_t *active; /* slots with something to do */
    bool *is_active;  /* of each slot: it is in active */
    uint32_t n_active;
    uint32_t pending; /* accepted, not proven */

    gate_cap up, down;
    bool starving; /* some stream is starved */
    uint32_t fed;  /* where the next turn begins among those that starve */

    pthread_mutex_t lock;
    bool closing;        /* (lock) */
    bool mail;           /* (lock) some slot has a call for us */
    bool rekey;          /* (lock) */
    uint64_t event_turn; /* (lock) of the newest event */
    uint8_t psk[GSP_PSKS_MAX][GSP_PSK_BYTES];
    uint32_t n_psks, credential_bytes;            /* (lock) */
    uint8_t credential[GSP_CREDENTIAL_BYTES_MAX]; /* (lock) */
    uint32_t used;                                /* (lock) slots that are not FREE */

    _Atomic uint64_t sent_bytes, received_bytes, accepted, strangers, refused, records_refused,
        opened;
};

/* gate_slot.c */
/* What epoll's data says: a slot's socket, or one of these; the number above the two lowest
 * bits. */
enum { DATA_TCP = 0, DATA_HOST = 1, DATA_LISTENER = 2, DATA_WAKE = 3 };
bool gate_watch(gsp_gate *g, int fd, uint64_t kind, uint64_t i);
/* Makes an eventfd readable. */
void gate_ring(int fd);
/* The stream gets a turn, now and until it has nothing more to do. */
void gate_activate(gsp_gate *g, gate_stream *s);
/* A free slot, or NULL when `limit` are in use. With the lock held. */
gate_stream *gate_slot_take(gsp_gate *g, stream_state state, uint32_t limit);
void gate_slot_give(gsp_gate *g, gate_stream *s);
/* The peer has proven itself: the owner of the gate hears of it. */
void gate_stream_up(gsp_gate *g, gate_stream *s);
/* Closes a stream and tells its owner, if it was told of it before or dialled it. */
void gate_stream_over(gsp_gate *g, gate_stream *s, gsp_refusal refusal, const char *why);

/* gate_enter.c */
atom_status gate_listen(gsp_gate *g);
void gate_accept_some(gsp_gate *g, uint64_t now);
void gate_dial_begin(gsp_gate *g, gate_stream *s);
/* TCP is connected, or failed: begins the handshake. */
void gate_dial_connected(gsp_gate *g, gate_stream *s);
/* Our local socket is known: tell the peer, and wait for the same from it. */
void gate_bridge_begin(gsp_gate *g, gate_stream *s);
/* Both sides have their local socket: connects ours and lets bytes flow. */
void gate_bridge(gsp_gate *g, gate_stream *s);

/* gate_mail.c */
/* Does what gsp_gate_dial, _bridge, _end and _rekey asked for. False: the gate closes. */
bool gate_mail_read(gsp_gate *g);

/* gate_rate.c */
/* Whether a stream may move bytes now; if not, it is activated again when it may. */
bool gate_cap_lets(gsp_gate *g, gate_stream *s, const gate_cap *cap);
void gate_cap_take(gate_cap *cap, size_t bytes);
void gate_caps_fill(gsp_gate *g, uint64_t now_ns);
/* How long to sleep, that would sleep `otherwise` ms. */
int gate_caps_wait_ms(const gsp_gate *g, int otherwise);

/* gate_pump.c */
typedef enum pump_result { PUMP_WAITS, PUMP_MORE, PUMP_OVER } pump_result;
/* Moves bytes both ways until both wait or a fair share is done. PUMP_OVER: *why is set. */
pump_result gate_pump(gsp_gate *g, gate_stream *s, const char **why);
/* Sends our word that a bridge is there, and looks for the peer's: *ready. */
pump_result gate_pump_ready(gsp_gate *g, gate_stream *s, bool *ready, const char **why);
/* The handshake's part of the same. */
pump_result gate_pump_shake(gsp_gate *g, gate_stream *s, const char **why);

#endif
