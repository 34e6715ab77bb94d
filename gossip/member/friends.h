/*
 * The peers that a member has a link to, and what waits to be sent to each: letters of the
 * agreement, on CONTROL, and behind them parts and results, on BULK. Of a part or result only the
 * name waits; its bytes are looked up when the link has room for the next piece.
 *
 * Contributions go before results, every peer has its turn, one piece at a time. Queues are
 * bounded: what does not fit is said again by the agreement, or pulled by the member that lacks it.
 *
 * Thread: the member's. Errors: none; what cannot be queued is dropped.
 */
#ifndef GOSSIP_MEMBER_FRIENDS_H
#define GOSSIP_MEMBER_FRIENDS_H

#include "gossip/agree/wire.h"
#include "gossip/member/blob.h"
#include "gossip/net/tally.h"

/* A part or a result that waits to be sent. */
typedef struct gsp_outgoing {
    bool is_result;
    uint32_t part;
    uint32_t sequence; /* the next piece */
    uint64_t version;
    gsp_hash root;
} gsp_outgoing;

/* First in, first out, in a ring of GSP_QUEUE_MAX. */
enum { GSP_QUEUE_MAX = 1024 };
typedef struct gsp_queue {
    gsp_outgoing *item;
    uint32_t n, first;
} gsp_queue;

typedef struct gsp_letter gsp_letter; /* an encoded message */

typedef struct gsp_friend {
    bool up;
    uint64_t link; /* its number, from 1: no two links of a process have the same one */
    gsp_key key;
    bool busy[GSP_NET_CHANNEL_N]; /* the link's queue is full, until its ROOM event */
    uint64_t bulk_ns;             /* when its last piece came */
    uint32_t n_letters;
    gsp_letter *first, *last;
    gsp_queue contributions, results;
    uint64_t pace;   /* bytes/s asked of its link; 0: none */
    uint64_t hidden; /* bytes handed to it that its pace has not carried away yet (pace.h) */
    bool waits;      /* in pace.h's last turn something waited for it */
} gsp_friend;

typedef struct gsp_friends {
    gsp_net *net;
    const gsp_agree *agree; /* who I am, of which lineage, and the roster */
    gsp_codec codec;
    gsp_friend friend[GSP_NET_PEERS_MAX];
    uint64_t n_links; /* that there have been */
    uint32_t turn;    /* whose turn it is */
    gsp_tally pulled; /* bytes of parts, by key; its window is a version */
    gsp_message draft;
    uint8_t wire[GSP_WIRE_BYTES_MAX];
} gsp_friends;

/* Looks up the bytes of what waits, with the proof of a contribution's part; false: they are worth
 * nothing any more, or gone. Valid until the next call. */
typedef bool gsp_friends_source(void *context, const gsp_outgoing *what, gsp_exhibit *out);

/* net and agree stay where they are for as long as it is used. */
void gsp_friends_open(gsp_friends *friends, gsp_net *net, const gsp_agree *agree, gsp_codec codec);
void gsp_friends_close(gsp_friends *friends);

/* NULL: there is no link. */
gsp_friend *gsp_friends_find(gsp_friends *friends, const gsp_key *key);
uint32_t gsp_friends_index(const gsp_friends *friends, const gsp_friend *of);
/* A new link, with empty queues; NULL: there are too many. */
gsp_friend *gsp_friends_up(gsp_friends *friends, const gsp_key *key);
void gsp_friends_down(gsp_friend *of);
/* Parts or results of a round wait to be sent. */
bool gsp_friends_is_busy(const gsp_friends *friends);

/* An empty message of this kind, from me and of my lineage; valid until the next call of draft or
 * pump. */
gsp_message *gsp_friends_draft(gsp_friends *friends, gsp_message_kind kind);
/* Sends a message, or lets it wait, and returns its bytes; to NULL: to nobody, 0. */
size_t gsp_friends_tell(gsp_friends *friends, gsp_friend *to, const gsp_message *message);
/* Sends it to those that the action names. */
void gsp_friends_say(gsp_friends *friends, const gsp_action *action, const gsp_message *message);

/* Queues a part of my contribution to the version in progress. */
void gsp_friends_send_part(gsp_friend *to, uint64_t version, uint32_t part, const gsp_hash *root);
/* False, as below: it waits already, or there is no room. */
bool gsp_friends_send_result(gsp_friend *to, uint64_t version, uint32_t part, const gsp_hash *hash);
/* A part that somebody checks goes after everything that a round needs. */
bool gsp_friends_send_exhibit(gsp_friend *to, uint64_t version, uint32_t part,
                              const gsp_hash *root);
/*
 * What a key may pull of parts and results while a version is the newest: many times what one that
 * lacks all of them needs. fragment_bytes: of the largest one, encoded. May: so many bytes more;
 * pulls: they were queued.
 */
void gsp_friends_bound(gsp_friends *friends, uint64_t fragment_bytes);
bool gsp_friends_may_pull(gsp_friends *friends, const gsp_friend *to, uint64_t bytes);
void gsp_friends_pulls(gsp_friends *friends, const gsp_friend *to, uint64_t bytes);
/* Contributions to versions that are over are worth nothing. */
void gsp_friends_forget_parts(gsp_friends *friends);

/* Sends letters, and pieces of what waits; true: more could be sent at once. */
bool gsp_friends_pump(gsp_friends *friends, gsp_friends_source *source, void *context);
/* Sends a message and the bytes that it heads on BULK, now or not at all. */
gsp_net_sent gsp_friends_send_bulk(gsp_friends *friends, gsp_friend *to, const gsp_message *message,
                                   const void *body, uint64_t bytes);

#endif
