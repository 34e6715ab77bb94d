/*
 * Whom this host knows, and what it says of itself: one book of contacts (peers.h) that is fed by
 * greetings, the local network and the directory, and our own contact that goes out on all three.
 * The book is a file, saved a second after somebody new is in it, so that a host that is killed
 * finds the others by it.
 *
 * Thread: one at a time (the pool's). Errors: LAN and directory are done without where they cannot
 * be had, and what cannot be saved is logged.
 */
#ifndef GOSSIP_POOL_ADDRESS_BOOK_H
#define GOSSIP_POOL_ADDRESS_BOOK_H

#include "gossip/directory/directory.h"
#include "gossip/directory/heartbeats.h"
#include "gossip/directory/lan.h"
#include "gossip/directory/peers.h"

typedef struct gsp_address_book_config {
    const gsp_handshake_config
        *who;              /* judges contacts; copied, self and ctx must outlive the book */
    const char *directory; /* the pool's; borrowed */
    bool no_lan, no_directory;
    uint16_t directory_port; /* UDP, where it is free; 0: any */
    uint32_t n_bootstraps;   /* nodes of the directory, "name:port" */
    const char *const *bootstrap;
} gsp_address_book_config;

typedef struct gsp_address_book {
    char *path;
    gsp_peers *peers;
    gsp_lan *lan;         /* NULL: not spoken */
    gsp_directory *nodes; /* NULL: no part in it */
    gsp_heartbeats beats; /* what the directory says of progress: for people */
    gsp_contact own;      /* signed; a key of zeros: none yet */
    bool own_changed;     /* renew it soon */
    bool changed;         /* save it soon */
    uint64_t renewed_ns, saved_ns, lan_ns;
    uint64_t twin_sequence; /* of the newest contact with our key that is not ours */
    uint32_t n_twins;       /* how many of them */
} gsp_address_book;

ATOM_MUST atom_status gsp_address_book_open(gsp_address_book *book,
                                            const gsp_address_book_config *config);
/* Saves it. Half-built is fine. */
void gsp_address_book_close(gsp_address_book *book);
void gsp_address_book_rekey(gsp_address_book *book, const uint8_t psk[][GSP_PSK_BYTES],
                            uint32_t n_psks);

/* Our contact is old, or said to have changed. */
bool gsp_address_book_is_stale(const gsp_address_book *book, uint64_t now_ns);
/* Makes our contact anew and says it: sequence, times, port of the directory and the signature are
 * filled in; everything else is the draft's. */
void gsp_address_book_renew(gsp_address_book *book, const gsp_contact *draft,
                            const uint8_t pool[GSP_POOL_BYTES], const gsp_identity *self);

/*
 * A contact with our own key (GSP_CONTACT_SELF) that came from others. True: another process uses
 * the key, because contacts that are newer than ours, or others of the same number, keep coming,
 * although ours was made anew each time. One alone may be from before our clock was set back.
 */
ATOM_MUST bool gsp_address_book_has_twin(gsp_address_book *book, const gsp_contact *contact,
                                         const gsp_handshake_config *who, uint64_t now_s);
/* A contact that was judged GOOD; from: the host that sent it (NULL: found elsewhere). */
gsp_peers_added gsp_address_book_add(gsp_address_book *book, const gsp_contact *contact,
                                     const gsp_address *from);
/* A member's link came up. */
void gsp_address_book_answered(gsp_address_book *book, const uint8_t *key, const gsp_address *at);
typedef void gsp_address_book_found(void *context, const gsp_contact *contact,
                                    const gsp_address *from);
/* Shows what LAN and directory found since; then gsp_address_book_add it. */
void gsp_address_book_look(gsp_address_book *book, gsp_address_book_found *found, void *context,
                           uint64_t now_ns);
/* Saves it, where it changed and was not saved just now. */
void gsp_address_book_step(gsp_address_book *book, uint64_t now_ns);

#endif
