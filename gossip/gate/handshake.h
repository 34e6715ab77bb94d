/*
 * The gate's handshake (docs/design/pool.md#who-gets-in): bytes in, bytes out; no sockets, no
 * clock, no allocation.
 *
 *   dialler                                       acceptor
 *   1  seal(psk: version, time, e)        ---->             a stranger ends here, unanswered
 *                                         <----   2  seal(psk: verdict, e') seal(k2: id', proof')
 *   3  seal(k3: id, proof)                ---->
 *                                         <----   4  seal(k4: verdict)
 *
 * e and e' are fresh X25519 keys; a key whose product is zero is refused. k2, k3 and k4 come from
 * their product, the pre-shared key and a hash of all bytes so far, so each message vouches for
 * those before it. A proof is an Ed25519 signature over that hash and the signer's own message:
 * identity, hello, credential. All messages have a fixed size and look like noise. A recorded first
 * message that is replayed gets a sealed refusal at most. Sessions stay sealed even if the
 * pre-shared key or an identity leaks later.
 *
 * Why our own, and not TLS or a Noise library: a stranger must get no sign of life, a credential
 * must travel inside, and tests must be able to drive it without sockets. The pattern is that of
 * SIGMA and of Noise's XXpsk0 (noiseprotocol.org); the primitives are libsodium's:
 * XChaCha20-Poly1305, X25519, BLAKE2b, Ed25519.
 *
 * Thread: one at a time per object.
 */
#ifndef GOSSIP_GATE_HANDSHAKE_H
#define GOSSIP_GATE_HANDSHAKE_H

#include "gossip/trust/admission.h"
#include "gossip/trust/ticket.h"

enum {
    GSP_HANDSHAKE_VERSION = 1,
    GSP_PSKS_MAX = 2, /* while a new key spreads, members may still show the one before */
    GSP_HANDSHAKE_KEY_BYTES = 32,
    GSP_HELLO_BYTES = 64,
    GSP_SEALED_FIRST_BYTES = 24 + 48 + 16,
    GSP_SEALED_PROOF_BYTES =
        32 + GSP_SIGNATURE_BYTES + GSP_HELLO_BYTES + 2 + GSP_CREDENTIAL_BYTES_MAX + 16,
    GSP_SEALED_VERDICT_BYTES = 16 + 16,
    GSP_HANDSHAKE_BYTES_MAX = GSP_SEALED_FIRST_BYTES + GSP_SEALED_PROOF_BYTES,
    GSP_REPLAYS_MAX = 4096,
};

/* First messages that were seen in the last minutes. Zero is an empty place. */
typedef struct gsp_replays {
    uint64_t seen[GSP_REPLAYS_MAX];
    uint32_t next;
} gsp_replays;

/* Values of hello.stream for streams that do not belong to a link between the two (net_relay.c). */
enum { GSP_RELAY_ASK = 0xff01, GSP_RELAY_TAKE = 0xff02 };

/* What each side says to the other about the stream, authenticated. */
typedef struct gsp_hello {
    uint16_t stream;    /* which stream of the link: 0 control, 1.. bulk; or a GSP_RELAY_ one */
    uint16_t n_streams; /* of the link, as the dialler wants it */
    uint16_t port;      /* where the sender accepts; 0: nowhere */
    uint64_t boot;      /* random for each process: tells a restarted peer from a live one */
    uint64_t link;      /* the dialler's number of this link; all streams of a link share it */
    uint8_t target[GSP_PUBLIC_BYTES]; /* relaying: whom the dialler wants to reach (net_relay.c) */
} gsp_hello;

typedef struct gsp_handshake_config {
    const gsp_identity *self;
    uint8_t pool[GSP_POOL_BYTES];
    uint8_t owner[GSP_PUBLIC_BYTES];
    /* [0] is used for dialling. The others opened the door before: they still do for members, who
     * come to learn the new one, and no longer for an invite. */
    uint8_t psk[GSP_PSKS_MAX][GSP_PSK_BYTES];
    uint32_t n_psks;
    uint32_t credential_bytes; /* 0: we are the owner */
    uint8_t credential[GSP_CREDENTIAL_BYTES_MAX];
    /* May this key, whose credential is good, was signed by `issuer` (NULL: the key is the owner or a
     * delegate) and who says this hello, come in? NULL: yes. Called on the thread that runs the
     * handshake. */
    gsp_refusal (*may_enter)(void *ctx, const uint8_t key[GSP_PUBLIC_BYTES], const uint8_t *issuer,
                             const gsp_hello *hello);
    void *ctx;
    gsp_replays *replays; /* the gate's; NULL: replays are not looked for */
} gsp_handshake_config;

typedef enum gsp_handshake_state {
    GSP_HANDSHAKE_GOES_ON, /* wants more bytes */
    GSP_HANDSHAKE_DONE,    /* peer_*, key_send and key_receive are valid */
    GSP_HANDSHAKE_REFUSED, /* `refusal` says why; send what is in `out`, then close */
} gsp_handshake_state;

typedef struct gsp_handshake {
    const gsp_handshake_config *config;
    bool dialled;
    bool any_peer; /* dialled without knowing the key */
    uint8_t step;
    uint64_t now_s;
    gsp_hello hello; /* ours */
    gsp_handshake_state state;
    gsp_refusal refusal;
    bool stranger; /* refused before anything proved that the peer holds the ticket */
    bool old_key;  /* acceptor: the dialler used a key that was replaced since */
    bool proven;   /* dialler: peer_key is a member that signed this handshake, so what refuses us
                      from here on is its own word */

    size_t in_bytes, out_bytes;
    uint8_t in[GSP_HANDSHAKE_BYTES_MAX];
    uint8_t out[GSP_HANDSHAKE_BYTES_MAX]; /* to be sent, then gsp_handshake_sent */

    uint8_t secret[32], ephemeral[32]; /* X25519 */
    uint8_t psk[GSP_PSK_BYTES];        /* the one that opened message 1 */
    uint8_t hash[64];                  /* of all bytes so far */
    uint8_t chain[64];

    uint8_t peer_key[GSP_PUBLIC_BYTES];
    gsp_role peer_role;
    gsp_hello peer_hello;
    uint32_t peer_credential_bytes;
    uint8_t peer_credential[GSP_CREDENTIAL_BYTES_MAX];
    uint8_t key_send[GSP_HANDSHAKE_KEY_BYTES], key_receive[GSP_HANDSHAKE_KEY_BYTES];
} gsp_handshake;

/*
 * Begins as dialler: h->out holds message 1 on return. peer: the key that must answer; NULL: any
 * with a good credential. config must outlive the object. Errors: no entropy.
 */
ATOM_MUST atom_status gsp_handshake_dial(gsp_handshake *h, const gsp_handshake_config *config,
                                         const gsp_hello *hello, const uint8_t *peer,
                                         uint64_t now_s);
/* Begins as acceptor, which waits for message 1. Of hello, port and boot are used; stream and link
 * are the dialler's. */
void gsp_handshake_accept(gsp_handshake *h, const gsp_handshake_config *config,
                          const gsp_hello *hello, uint64_t now_s);
/*
 * Takes bytes of the peer; *used says how many. It stops where a message is complete, so that what
 * follows the handshake is left to the caller. After each call, send out[0..out_bytes) and call
 * gsp_handshake_sent; call again while *used < bytes and the state is GOES_ON. It fails only by a
 * refusal.
 */
ATOM_MUST gsp_handshake_state gsp_handshake_feed(gsp_handshake *h, const void *data, size_t bytes,
                                                 size_t *used);
/* How many bytes the next message still lacks; 0 if the state is not GOES_ON. A caller that reads
 * no more than that from a socket leaves in it what follows the handshake. */
size_t gsp_handshake_wants(const gsp_handshake *h);
/* `out` was sent or copied: it is empty again. */
void gsp_handshake_sent(gsp_handshake *h);
/* Overwrites all secrets. */
void gsp_handshake_wipe(gsp_handshake *h);

#endif
