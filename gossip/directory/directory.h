/*
 * The directory: where members that have never met find each other's addresses
 * (docs/design/pool.md#directory). It serves bootstrap and the slow heartbeat only: contacts
 * (contact.h) are put every few minutes and looked up about once a minute; anything urgent goes
 * directly between members.
 *
 * A contact is put under H(pre-shared key, time bucket), sealed, so without the ticket nobody can
 * find or read it. What a lookup finds is judged before it is handed on: seal, age, signature,
 * admission. A holder of the ticket can still fill the directory with noise, so there are limits to
 * what one lookup reads and to what waits for the caller; the rest is dropped and counted.
 *
 * The implementation is directory_dht.c, over OpenDHT with a network id of the pool's own; a build without
 * OpenDHT has directory_none.c, which cannot be opened. It joins
 * nothing by itself: without a bootstrap node it is alone until it is given one, or another node
 * bootstraps from it.
 *
 * Nothing blocks the caller: the directory has threads of its own for the network, for resolving
 * names and for signatures. Thread: all functions from any thread; close from one.
 */
#ifndef GOSSIP_DIRECTORY_DIRECTORY_H
#define GOSSIP_DIRECTORY_DIRECTORY_H

#include "gossip/directory/contact.h"

enum {
    GSP_DIRECTORY_BOOTSTRAPS_MAX = 16, /* waiting to be tried; more are refused */
    GSP_DIRECTORY_FOUND_MAX = 128,     /* contacts that wait for the caller; more are dropped */
    GSP_DIRECTORY_JUDGED_MAX = 256,    /* looked at per lookup */
    GSP_DIRECTORY_BUCKET_SECONDS = 600,
    GSP_DIRECTORY_KEY_BYTES = 20,
};

typedef struct gsp_directory_config {
    gsp_handshake_config who; /* pool, owner, keys, may_enter (called on the directory's thread);
                                 copied, self and ctx must outlive the directory */
    uint16_t port;            /* UDP; 0: any */
    const char *nodes_path;   /* where the nodes that were met are remembered; NULL: nowhere */
    /* Zeros mean the default in brackets; seconds. Tests shorten them. */
    double put_s;      /* [240] between two puts of the same contact */
    double get_s;      /* [60] between two lookups */
    double deadline_s; /* [20] of a lookup */
} gsp_directory_config;

typedef struct gsp_directory_stats {
    uint64_t puts, puts_failed;
    uint64_t gets, gets_done, gets_late; /* late: cut off at the deadline */
    uint64_t verdicts[GSP_CONTACT_VERDICT_N];
    uint64_t dropped; /* values above GSP_DIRECTORY_JUDGED_MAX, contacts above _FOUND_MAX */
    uint64_t known;   /* contacts that were handed on before */
} gsp_directory_stats;

typedef struct gsp_directory gsp_directory;

/* Where the contacts of a bucket of time are put, and the id of a pool's network, which is never 0: that is the public
 * one. Members of different versions find each other only as long as both stay as they are. */
void gsp_directory_key(const uint8_t psk[GSP_PSK_BYTES], uint64_t bucket,
                       uint8_t out[GSP_DIRECTORY_KEY_BYTES]);
uint32_t gsp_directory_network(const uint8_t pool[GSP_POOL_BYTES]);

/*
 * Opens a node. Errors  ATOM_E_RUNTIME  the port is taken, no threads; ATOM_E_RESOURCE  no memory;
 * ATOM_E_UNSUPPORTED  built without OpenDHT
 */
ATOM_MUST atom_status gsp_directory_open(const gsp_directory_config *config, gsp_directory **out);
/* Waits at most a few seconds for the network to end, and for a resolver that is being asked. NULL
 * and half-built are fine; sets NULL. */
void gsp_directory_close(gsp_directory **directory);

/*
 * Names a node to begin with: "host.example:4222", "192.0.2.7:4222", "[2001:db8::7]:4222". Names
 * are resolved later, on another thread. Each node is asked again from time to time, for ever, so
 * two halves of a broken network grow together if one of them knows a node of the other.
 * Errors  ATOM_E_USAGE  not host:port; ATOM_E_RESOURCE  too many wait to be tried
 */
ATOM_MUST atom_status gsp_directory_bootstrap(gsp_directory *directory, const char *host);
/* What to put from now on, signed (gsp_contact_sign): every put_s until it expires or is replaced,
 * and at once if it is the first or its addresses are new. NULL: nothing more is put, and what was
 * put expires by itself. */
void gsp_directory_publish(gsp_directory *directory, const gsp_contact *contact);
/* Looks up now instead of at the next turn, at most once a second. */
void gsp_directory_look(gsp_directory *directory);
/* Takes a contact that was found; false: none. Does not block. */
ATOM_MUST bool gsp_directory_next(gsp_directory *directory, gsp_contact *out);
/* New pre-shared keys: [0] to put under, all to look under. */
void gsp_directory_rekey(gsp_directory *directory, const uint8_t psk[][GSP_PSK_BYTES],
                         uint32_t n_psks);
void gsp_directory_read_stats(gsp_directory *directory, gsp_directory_stats *stats);
uint16_t gsp_directory_port(const gsp_directory *directory);

#endif
