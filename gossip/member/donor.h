/*
 * A donor's side of the transfer of state (docs/design/pool.md#joining): the hashes of my own
 * state, the signed answer to members that ask for them, and the chunks on their way out. Only
 * hashes are kept; a chunk is read from the work, or from what lease.h kept, when the link has
 * room, and only while it is still what the joiner was told.
 *
 * Thread: the member's. Errors: the work's.
 */
#ifndef GOSSIP_MEMBER_DONOR_H
#define GOSSIP_MEMBER_DONOR_H

#include "gossip/member/friends.h"
#include "gossip/member/lease.h"
#include "gossip/net/tally.h"

/* A key gets so many whole states of one donor in so long: enough for a host that goes off every
 * hour, and no end of uploads for one that only takes. */
enum { GSP_STATES_GIVEN = 4, GSP_STATES_SECONDS = 3 * 3600 };

/* What is known of a fragment's state: the tree over its chunks, made when somebody asks. */
typedef struct gsp_shelf {
    gsp_tree tree;
    uint32_t next; /* chunk to hash */
    bool whole;    /* the tree is that of the state as it is */
} gsp_shelf;

/* A chunk that a joiner asked for. */
typedef struct gsp_wanted {
    uint32_t fragment, chunk;
    uint64_t version;
    gsp_hash root;
} gsp_wanted;

/* What a peer asked for. */
typedef struct gsp_joiner {
    bool wants_roots;
    uint64_t roots_ns;  /* when it last got them */
    gsp_wanted *wanted; /* a ring */
    uint32_t n_wanted, first_wanted;
    uint64_t fetch_version, fetch_ns; /* the state that it fetches, and when it was last given of it */
} gsp_joiner;

typedef struct gsp_donor {
    gsp_friends *friends;
    const gsp_work *work;
    uint32_t n_fragments;
    gsp_shelf shelf[GSP_FRAGMENTS_MAX];
    gsp_leases leases;
    gsp_joiner joiner[GSP_NET_PEERS_MAX]; /* by index of the friend */
    float *chunk;     /* GSP_CHUNK_FLOATS: on its way to a peer, or to be hashed */
    uint64_t sent_ns; /* when a chunk last went out */
    uint32_t flux;    /* this fragment is becoming another; GSP_FRAGMENTS_MAX: none is */
    uint64_t sent_bytes, kept_bytes; /* kept: of those, from a lease */
    gsp_tally given;                 /* bytes of chunks, roots and chains, by key */
    gsp_tally held;                  /* ns for which a version waited, by key */
    uint64_t held_ns;                /* when one last waited */
} gsp_donor;

/* What the answer to members that ask is made of. */
typedef struct gsp_donor_word {
    const gsp_saved *saved; /* what is applied */
    const gsp_seals *seals;
    const gsp_identity *identity;
} gsp_donor_word;

/* The pointers stay as they are for as long as it is used. */
ATOM_MUST atom_status gsp_donor_open(gsp_donor *donor, gsp_friends *friends, const gsp_work *work,
                                     uint32_t n_fragments, const char *directory);
void gsp_donor_close(gsp_donor *donor);

/* A peer asks for roots; for chunks (false: it asks for what there cannot be); is gone. */
void gsp_donor_asked(gsp_donor *donor, const gsp_friend *from);
ATOM_MUST bool gsp_donor_pulled(gsp_donor *donor, const gsp_friend *from,
                                const gsp_message *message);
void gsp_donor_down(gsp_donor *donor, const gsp_friend *of);
/* What else a peer is given for its join counts as chunks do. May: it has had less than its share. */
bool gsp_donor_may_give(gsp_donor *donor, const gsp_friend *to);
void gsp_donor_gave(gsp_donor *donor, const gsp_friend *to, uint64_t bytes);
/* Bytes that a peer waits for. */
uint64_t gsp_donor_owes(const gsp_donor *donor, uint32_t index);

/* A version is about to change its fragment: keeps what it is, where somebody is fetching it.
 * *done false: call again before it changes. */
ATOM_MUST atom_status gsp_donor_changes(gsp_donor *donor, uint32_t fragment, bool *done);
/* The fragment's state is another now. */
void gsp_donor_changed(gsp_donor *donor, uint32_t fragment);
void gsp_donor_changed_all(gsp_donor *donor);
/* A joiner falls too far behind: the next version can wait a little. Only for one that really gets chunks, and for no
 * longer than an hour in three for all together, and half of that for one: how far behind it is is its own word. */
bool gsp_donor_holds(gsp_donor *donor, uint64_t now_ns);

/* Nobody fetches any more: what was kept goes. With every turn. */
void gsp_donor_tick(gsp_donor *donor);
/* Hashes some of my state, and answers members that asked; *more: there is more to do. */
ATOM_MUST atom_status gsp_donor_work(gsp_donor *donor, const gsp_donor_word *word, bool *more);
/* Sends some chunks, where no part or result waits; *more: more could be sent at once. */
ATOM_MUST atom_status gsp_donor_pump(gsp_donor *donor, bool *more);

#endif
