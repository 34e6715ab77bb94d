/*
 * What the files of a member share: member.c (life, turns, events and actions), member_bytes.c
 * (contributions and results: freezing, taking in, reducing), member_apply.c (results into the
 * work), member_send.c (what goes out, and in which order), member_state.c (a donor's
 * state), member_lease.c (as it was), member_fetch.c (a joiner's). Nobody
 * else includes it.
 */
#ifndef GOSSIP_MEMBER_NODE_INNER_H
#define GOSSIP_MEMBER_NODE_INNER_H

#include "gossip/agree/wire.h"
#include "gossip/member/evidence.h"
#include "gossip/member/meter.h"
#include "gossip/member/node.h"
#include "gossip/member/results.h"
#include "gossip/member/transfer.h"
#include "gossip/member/votes.h"
#include "gossip/sum/merkle.h"
#include "gossip/sum/mix.h"

enum {
    MEMBER_CERTIFICATES = GSP_REPLAY_MAX,
    MEMBER_CONTROL_MAX = 256, /* messages that wait for one peer */
    MEMBER_BULK_MAX = 1024,   /* parts and results that wait for one peer */
    MEMBER_PIECES_MAX = 64,   /* of one part: bits of a uint64_t */
    MEMBER_STATE_MAX = 64,    /* chunks of the state that one peer may wait for */
    MEMBER_OLD = 8,
    MEMBER_EARLY_BYTES_MAX = 64 << 20,
};

/* The bytes of one part of a contribution or of a result. A part that came as one piece stays in
 * the transport's message; others are put together. */
typedef struct gsp_blob {
    const uint8_t *data;
    uint64_t bytes;
    gsp_hash root; /* the contribution's, or the result's hash */
    void *message; /* net's; or NULL */
    uint8_t *memory;
    uint64_t pieces; /* bits: here */
    uint32_t n_path;
    gsp_hash path[GSP_MERKLE_PATH_MAX];
    bool whole; /* and checked */
} gsp_blob;

typedef struct gsp_outgoing {
    bool is_result;
    uint32_t part;
    uint32_t sequence; /* the next piece */
    uint64_t version;
    gsp_hash root;
} gsp_outgoing;

/* First in, first out, in a ring. */
typedef struct gsp_queue {
    gsp_outgoing *item;
    uint32_t n, first;
} gsp_queue;

/* A chunk that a peer asked for. */
typedef struct gsp_wanted {
    uint32_t fragment, chunk;
    uint64_t version;
    gsp_hash root;
} gsp_wanted;

typedef struct gsp_letter {
    struct gsp_letter *next;
    size_t bytes;
    uint8_t data[];
} gsp_letter;

typedef struct gsp_friend {
    bool up;
    gsp_key key;
    bool busy[GSP_NET_CHANNEL_N];
    uint64_t bulk_ns; /* when its last piece came */
    uint32_t n_letters;
    gsp_letter *first, *last;
    gsp_queue contributions, results;
    uint64_t pace; /* bytes/s asked of its link; 0: none */
    bool wants_roots;
    uint64_t roots_ns;  /* when it last asked for them */
    gsp_wanted *wanted; /* a ring */
    uint32_t n_wanted, first_wanted;
    uint64_t fetch_version, fetch_ns; /* the state that it fetches, and when it last asked */
} gsp_friend;

/* What a donor knows of a fragment's state: the tree over its chunks, made when somebody asks. */
typedef struct gsp_shelf {
    gsp_tree tree;
    uint32_t next; /* chunk to hash */
    bool whole;    /* the tree is that of the state as it is */
} gsp_shelf;

/* The state that a fragment had before the newest version, for who is in the middle of it. */
typedef struct gsp_lease {
    bool on, copying;
    int fd;
    uint32_t copied; /* chunks */
    gsp_tree tree;
    uint64_t used_ns; /* when it was made, or read last */
} gsp_lease;

/* My contribution to the version applied last, for who checks what became of it. */
typedef struct gsp_brought {
    uint64_t version; /* 0: none */
    gsp_hash root;
    uint8_t *encoded;
    uint64_t offset[GSP_PARTS_MAX];
    gsp_hash leaf[GSP_PARTS_MAX];
} gsp_brought;

/* A part of an owner and what it was made of. */
typedef struct gsp_case {
    bool on, accused, hopeless; /* hopeless: more bytes than are held for it */
    gsp_claim claim;
    gsp_key accuser;
    gsp_blob *input[GSP_MEMBERS_MAX]; /* by contributor */
    uint64_t began_ns, asked_ns, news_ns;
    uint32_t turn;
} gsp_case;

typedef struct gsp_fetch gsp_fetch; /* member_fetch.c */

typedef struct gsp_freezing {
    bool on, done;
    bool later; /* the work was not ready; asked again */
    uint64_t version;
    uint32_t next; /* part to encode */
    const float *x;
    uint8_t *encoded; /* not fp32 */
    float *lost;      /* int8 */
    gsp_contribution contribution;
    gsp_hash leaf[GSP_PARTS_MAX];
    uint64_t began_ns;
} gsp_freezing;

/* What an owner said of a part whose bytes are not here yet. */
typedef struct gsp_said {
    uint32_t ballot; /* 0: nothing */
    gsp_member from;
    gsp_reduced reduced;
} gsp_said;

struct gsp_node {
    gsp_node_config config;
    gsp_agree agree;
    gsp_votes *votes;
    gsp_results *results;
    gsp_saved saved; /* genesis and certificate of what is applied */
    uint64_t wall_ns, mono_ns;
    uint64_t tick_ns; /* the next tick; events may bring it forward, never put it off */
    uint64_t samples, tokens;
    atom_status dead; /* why, else ATOM_OK */
    char why[256];
    uint64_t given_version;           /* that these parts were given for, early */
    gsp_hash given[GSP_PARTS_MAX];    /* zero: not given */
    bool useless[GSP_PARTS_MAX];      /* it does not decode */
    bool stepping, applying, changed; /* changed: what is waited for, since the last turn */
    uint32_t apply_next;
    uint64_t version; /* certified, as the stores below know it */
    gsp_hash lineage;

    gsp_friend friends[GSP_NET_PEERS_MAX];
    uint32_t turn;
    uint64_t paced_ns;
    gsp_meter meter_up, meter_down;
    uint64_t metered_ns, told_version;

    gsp_freezing freezing;
    gsp_blob *brought[GSP_MEMBERS_MAX][GSP_PARTS_MAX];
    uint64_t early_bytes; /* of pieces that no BEGIN wants yet */
    struct {
        uint32_t ballot, included; /* ballot 0: nothing to do */
    } reduce[GSP_PARTS_MAX];
    uint32_t n_reduce;
    gsp_mix mix;
    gsp_blob *result[2][GSP_PARTS_MAX][GSP_HELD_MAX]; /* in progress; newest certified */
    gsp_blob *old[MEMBER_OLD];                        /* read from disk for who lags, in turn */
    uint32_t old_turn;
    float *residual[GSP_FRAGMENTS_MAX];
    uint64_t pulled_ns[GSP_PARTS_MAX], wanted_ns[GSP_PARTS_MAX];
    gsp_key pulled_from[GSP_PARTS_MAX];

    gsp_shelf shelf[GSP_FRAGMENTS_MAX];
    gsp_lease lease[GSP_FRAGMENTS_MAX];
    float *chunk;      /* GSP_CHUNK_FLOATS: on its way to a peer, or to be hashed */
    uint64_t state_ns; /* when a chunk last went out */
    gsp_fetch *fetch;  /* NULL: no state is wanted */
    bool adopting;     /* the machine is told of a state that is not on disk yet */

    gsp_brought kept;
    gsp_case audit, proof; /* in progress; the newest lie that was proven here */
    gsp_certificate *certificate[MEMBER_CERTIFICATES]; /* by version % */
    gsp_node_status status;
    gsp_said said[GSP_PARTS_MAX];
    gsp_message incoming, delayed, scratch_message;
    uint8_t scratch_wire[GSP_WIRE_BYTES_MAX];
    gsp_seals seals;
};

/* member.c */
uint64_t gsp_node_now(const gsp_node *d);
void gsp_node_step(gsp_node *d, gsp_event *event);
void gsp_node_die(gsp_node *d, atom_status why);
/* The bytes of a result are here: now the machine may hear what its owner said of it. */
void gsp_node_hear(gsp_node *d, uint32_t part, const gsp_hash *hash);

/* member_bytes.c */
uint64_t gsp_node_part_floats(const gsp_node *d, uint64_t version, uint32_t part, uint64_t *first);
uint64_t gsp_node_part_bytes(const gsp_node *d, uint64_t version, uint32_t part);
void gsp_node_freeze(gsp_node *d, uint64_t version);
/* One of my own parts; NULL: not frozen for this version and root. */
const uint8_t *gsp_node_own_part(const gsp_node *d, uint64_t version, const gsp_hash *root,
                                 uint32_t part);
/* A PIECE from peer; takes event->data where it returns true. */
bool gsp_node_piece(gsp_node *d, gsp_friend *from, const gsp_message *m, const void *body,
                    void *message);
/* Whole results of the two newest versions, or from disk; NULL: not here. */
gsp_blob *gsp_node_result(gsp_node *d, uint32_t part, const gsp_hash *hash);
/* After a restart: a result that a vote names, from disk; NULL: not here. */
gsp_blob *gsp_node_recall(gsp_node *d, uint32_t part, const gsp_hash *hash);
/* Does some of what is waiting: true when more is. */
bool gsp_node_work(gsp_node *d);
/* The certified version grew, or the lineage is another. */
void gsp_node_rotate(gsp_node *d, bool next);
void gsp_node_bytes_close(gsp_node *d);
void gsp_blob_close(gsp_node *d, gsp_blob **blob);
/* Whole, with memory of its own; NULL: no memory. */
gsp_blob *gsp_blob_copy(const gsp_hash *root, const gsp_exhibit *exhibit);

/* The state that the work had is replaced: contributions and what they left are worth nothing. */
void gsp_node_forget_work(gsp_node *d);

/* The result with this hash in a row of them; NULL: it is not there. */
gsp_blob *gsp_row_find(gsp_blob *const row[GSP_HELD_MAX], const gsp_hash *root);

/* member_apply.c */
/* Some parts of the newest certificate, and behind the last one all that a new version is. */
void gsp_apply_some(gsp_node *d);
/* Gives the work one part of the version in progress whose result is here and stands in this
 * ballot. False: there is none. */
bool gsp_apply_early(gsp_node *d);
/* What was given of a version that is not certified is as if it had not been. */
void gsp_apply_take_back(gsp_node *d);

/* member_audit.c */
/* A version is about to be applied by the work. */
void gsp_audit_keep(gsp_node *d, const gsp_certificate *certificate);
/* A part of a contribution that is here: mine of this version or the last one, or of a proof.
 * False: it is not. */
ATOM_MUST bool gsp_audit_exhibit(gsp_node *d, uint64_t version, const gsp_hash *root, uint32_t part,
                                 gsp_exhibit *out);
void gsp_audit_start(gsp_node *d, const gsp_action *action);
/* Where a PIECE of the case belongs; NULL: it is of no case. */
gsp_blob **gsp_audit_place(gsp_node *d, const gsp_message *m);
/* Does some of what is waiting: true when more is. */
bool gsp_audit_work(gsp_node *d);
/* Bans again whom the files in my directory convict. */
void gsp_audit_recall(gsp_node *d);
/* Somebody may have been banned since there were n_before. */
/* Two words that convict, about to be passed on: kept on disk. */
void gsp_audit_words(gsp_node *d, const gsp_evidence *evidence);
void gsp_audit_note(gsp_node *d, uint32_t n_before);
void gsp_audit_close(gsp_node *d);

/* member_state.c */
bool gsp_node_has_state(const gsp_node *d);
void gsp_state_asked(gsp_friend *from);
void gsp_state_pulled(gsp_node *d, gsp_friend *from, const gsp_message *m);
/* The state of this version's fragment is another now. */
void gsp_state_changed(gsp_node *d, uint64_t version);
void gsp_state_changed_all(gsp_node *d);
/* Somebody who fetches falls too far behind: the next version can wait a little. */
bool gsp_state_holds(const gsp_node *d);
/* Hashes some, answers who asked: true when more is to do. */
bool gsp_state_work(gsp_node *d);
/* Sends one chunk to a peer that waits for one; false: it waits for none, or its link is full. */
bool gsp_state_send(gsp_node *d, gsp_friend *to);
void gsp_state_close(gsp_node *d);

/* member_lease.c */
/* The fragment is about to change: keeps what it is, where somebody is fetching. False: call again.
 */
bool gsp_lease_copy(gsp_node *d, uint32_t fragment);
/* The tree of the kept state with this root; NULL: it is not kept. */
const gsp_tree *gsp_lease_find(const gsp_node *d, uint32_t fragment, const gsp_hash *root);
/* A chunk of n floats into d->chunk; false: it is gone. */
bool gsp_lease_read(gsp_node *d, uint32_t fragment, uint32_t chunk, uint64_t n);
/* Those that nobody wants any more go. */
void gsp_lease_tick(gsp_node *d);
void gsp_lease_drop_all(gsp_node *d);

/* member_fetch.c */
/* The machine wants the state of a lineage (zero: of any), and has heard of it from peer. */
void gsp_fetch_want(gsp_node *d, const gsp_key *peer, const gsp_hash *lineage);
void gsp_fetch_heard(gsp_node *d, gsp_friend *from, const gsp_message *m, const void *body);
void gsp_fetch_down(gsp_node *d, const gsp_key *key);
/* Does some of what is waiting: true when more is. */
bool gsp_fetch_work(gsp_node *d);
const char *gsp_fetch_explain(const gsp_node *d, char *text, size_t bytes);
void gsp_fetch_close(gsp_node *d);

/* member_send.c */
gsp_friend *gsp_friend_find(gsp_node *d, const gsp_key *key);
void gsp_friend_up(gsp_node *d, const gsp_key *key);
void gsp_friend_down(gsp_node *d, const gsp_key *key);
void gsp_node_say(gsp_node *d, const gsp_action *action, const gsp_message *message);
void gsp_node_tell(gsp_node *d, gsp_friend *to, const gsp_message *message);
void gsp_node_send_part(gsp_node *d, gsp_friend *to, uint32_t part);
/* A part that somebody checks, after everything that a round needs. */
void gsp_node_send_exhibit(gsp_node *d, gsp_friend *to, uint64_t version, uint32_t part,
                           const gsp_hash *root);
void gsp_node_send_result(gsp_node *d, gsp_friend *to, uint64_t version, uint32_t part,
                          const gsp_hash *hash);
/* True: more could be sent at once. */
bool gsp_node_pump(gsp_node *d);
/* member_pace.c: how fast to send to whom, now. */
void gsp_node_pace(gsp_node *d);
/* Learns what the link carries, and tells others with the next version. After each pump. */
void gsp_node_meter(gsp_node *d);
/* Contributions to versions that are over are worth nothing. */
void gsp_node_forget_parts(gsp_node *d);

#endif
