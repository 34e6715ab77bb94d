/*
 * The book of peers that this host knows: the newest contact of each (contact.h), how dialling it
 * went, and a file of all of them, so that a host that comes back finds its pool without any
 * directory.
 *
 * It holds at most GSP_PEERS_MAX peers. A new one takes the place of the peer that was heard of
 * longest ago, but never of one that answered within the last day. A contact that is not newer (by
 * its sequence) than the one in the book is a replay and changes nothing.
 *
 * The file has a head, this host's own sequence number, the contacts with their signatures, and a
 * checksum. It is written under another name and renamed. It is only advice: a damaged file is
 * refused, and what it says is judged again. It belongs in a directory that only its user may read.
 *
 * Thread: one at a time per object.
 */
#ifndef GOSSIP_DIRECTORY_PEERS_H
#define GOSSIP_DIRECTORY_PEERS_H

#include "gossip/directory/contact.h"

enum {
    GSP_PEERS_MAX = 256,
    GSP_PEERS_FILE_BYTES_MAX = 64 + GSP_PEERS_MAX * (GSP_CONTACT_BODY_BYTES_MAX + 80),
    GSP_PEERS_DAYS_MAX = 30, /* a peer that is silent for longer is forgotten */
};

typedef struct gsp_known {
    gsp_contact contact;
    uint64_t heard_s;    /* when its contact came in */
    uint64_t answered_s; /* when a link to it was last up; 0: never */
    gsp_address answered_at;
    gsp_address from;  /* the host that sent the contact (LAN); zero: not known */
    uint32_t failures; /* dials that failed since then */
} gsp_known;

typedef struct gsp_peers gsp_peers;

/* An empty book. who: as for gsp_contact_judge; copied, self and ctx must outlive it. */
ATOM_MUST atom_status gsp_peers_open(const gsp_handshake_config *who, gsp_peers **out);
void gsp_peers_close(gsp_peers **peers);

typedef enum gsp_peers_added {
    GSP_PEERS_NEW,    /* a peer we did not know */
    GSP_PEERS_NEWER,  /* of one we knew */
    GSP_PEERS_REPLAY, /* not newer than what we have */
    GSP_PEERS_FULL,   /* all peers in the book are better */
} gsp_peers_added;
/* Takes a contact that was judged GOOD. from: the host that sent it; NULL: found elsewhere. */
gsp_peers_added gsp_peers_add(gsp_peers *peers, const gsp_contact *contact, const gsp_address *from,
                              uint64_t now_s);
/* A link was up, at this address; or dialling all its addresses failed. Unknown keys are fine. */
void gsp_peers_answered(gsp_peers *peers, const uint8_t key[GSP_PUBLIC_BYTES],
                        const gsp_address *at, uint64_t now_s);
void gsp_peers_failed(gsp_peers *peers, const uint8_t key[GSP_PUBLIC_BYTES]);
/* Forgets one (banned). */
void gsp_peers_forget(gsp_peers *peers, const uint8_t key[GSP_PUBLIC_BYTES]);

uint32_t gsp_peers_count(const gsp_peers *peers);
/* The peers to dial, best first: fewest failures, then answered most recently, then heard of most
 * recently. Writes at most n_max pointers, valid until the next change; returns how many. */
uint32_t gsp_peers_best(const gsp_peers *peers, const gsp_known **out, uint32_t n_max);
/* NULL: unknown. */
const gsp_known *gsp_peers_find(const gsp_peers *peers, const uint8_t key[GSP_PUBLIC_BYTES]);
/* Where to dial it: first the address that answered last time, then its others, none twice. Returns
 * how many; 0: it accepts nowhere. */
uint32_t gsp_known_addresses(const gsp_known *peer, gsp_address out[GSP_CONTACT_ADDRESSES_MAX + 1]);

/* The sequence number for our next contact: larger than any before, also than those of the file
 * and, if the clock is right, of a file that was lost. Save before anybody sees it. */
uint64_t gsp_peers_next_sequence(gsp_peers *peers, uint64_t now_s);
/* The next one will also be larger than this. */
void gsp_peers_raise_sequence(gsp_peers *peers, uint64_t sequence);

/*
 * Reads the file into an empty book. Without a file the book stays empty. Contacts that are too
 * old, badly signed, banned or not a member's any more are left out.
 * Errors  ATOM_E_FORMAT  damaged; the book stays empty and usable
 */
ATOM_MUST atom_status gsp_peers_load(gsp_peers *peers, const char *path, uint64_t now_s);
/* The same from memory. */
ATOM_MUST atom_status gsp_peers_read(gsp_peers *peers, const void *data, size_t bytes,
                                     uint64_t now_s);
/* Writes the file, whole or not at all. After ATOM_E_RUNTIME, ATOM_E_RESOURCE it is as before. */
ATOM_MUST atom_status gsp_peers_save(const gsp_peers *peers, const char *path);

#endif
