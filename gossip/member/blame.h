/*
 * Which peer sent the wrong bytes of a part that came as several pieces, and what follows
 * (docs/design/pool.md#hostile-members). One hash covers a whole part, so a wrong piece is seen only
 * when all are here, and the pieces may be of several senders.
 *
 *   - All pieces came from one peer: that peer sent wrong bytes.
 *   - They came from several: what each of them sent is remembered by its hash, and the part is
 *     fetched again from one peer at a time. Once it is right, whoever sent a piece that was another
 *     one is known, and nobody else is suspected.
 *   - A peer that sent wrong bytes of a part is not asked for it, or listened to about it, again. After
 *     GSP_BLAME_STRIKES of them nothing that comes in pieces is taken from it for a while.
 *
 * Pure: the clock is an argument. Tables have fixed sizes; what is in them was earned by wrong bytes,
 * and the oldest makes room. Thread: one at a time. Errors: none.
 */
#ifndef GOSSIP_MEMBER_BLAME_H
#define GOSSIP_MEMBER_BLAME_H

#include "gossip/agree/types.h"

#include "atom/base/status.h"

enum {
    GSP_BLAME_PEERS = 64,
    GSP_BLAME_PARTS = 32,
    GSP_BLAME_STRIKES = 3,  /* so many within an hour, and a peer is refused for ten minutes */
    GSP_BLAME_PIECES = 64,  /* of one part */
    GSP_BLAME_WRONG_MAX = 8 /* peers that are remembered for one part */
};

/* Who sent the pieces of a part that was wrong in the end, and what. */
typedef struct gsp_pieces_of {
    uint32_t n;
    gsp_key from[GSP_BLAME_PIECES];
    gsp_hash hash[GSP_BLAME_PIECES]; /* gsp_piece_hash */
} gsp_pieces_of;

/* A part that came with wrong bytes, until it comes with the right ones. */
typedef struct gsp_spoiled {
    uint64_t at_ns; /* when it came last; 0: free */
    gsp_hash root;
    uint32_t part;
    gsp_key only; /* listened to alone, if only_ns */
    uint64_t only_ns, news_ns;
    uint32_t n_wrong;
    gsp_key wrong[GSP_BLAME_WRONG_MAX];
    gsp_pieces_of mixed; /* n 0: no pieces of several peers were together */
} gsp_spoiled;

typedef struct gsp_blame {
    struct {
        gsp_key key;
        uint32_t strikes;            /* 0: free */
        uint64_t last_ns, refuse_ns; /* refused until then */
    } peer[GSP_BLAME_PEERS];
    gsp_spoiled part[GSP_BLAME_PARTS];
    uint64_t n_wrong; /* strikes in all */
} gsp_blame;

/* Of piece `number` of a part; the last one also stands for the path that came with it. */
void gsp_piece_hash(uint32_t number, const void *data, uint64_t bytes, const gsp_hash *path,
                    uint32_t n_path, gsp_hash *out);

/* Wrong bytes of this peer are certain. */
void gsp_blame_strike(gsp_blame *blame, const gsp_key *key, uint64_t now_ns);
/* Nothing in pieces is taken from this peer now. */
bool gsp_blame_refuses(const gsp_blame *blame, const gsp_key *key, uint64_t now_ns);

typedef enum gsp_blame_word {
    GSP_BLAME_TAKE,
    GSP_BLAME_TAKE_ANEW, /* from this peer alone: what others sent of it goes first */
    GSP_BLAME_LEAVE,
} gsp_blame_word;

/* A piece of a part comes. asked: this peer is the one that was asked for it, or it owns the part. */
gsp_blame_word gsp_blame_piece(gsp_blame *blame, const gsp_hash *root, uint32_t part,
                               const gsp_key *from, bool asked, uint64_t now_ns);
/* Whether to ask this peer for the part. */
bool gsp_blame_may_ask(const gsp_blame *blame, const gsp_hash *root, uint32_t part,
                       const gsp_key *key, uint64_t now_ns);
/* The part is not what its hash says. Returns the peer that is struck for it; NULL: it is not known
 * yet. Valid until the next call. */
const gsp_key *gsp_blame_false(gsp_blame *blame, const gsp_hash *root, uint32_t part,
                               const gsp_pieces_of *pieces, uint64_t now_ns);
/* The part came with wrong bytes, and has not come with the right ones. */
bool gsp_blame_awaits(const gsp_blame *blame, const gsp_hash *root, uint32_t part);
/* It is right: those that sent other pieces of it are struck, and their number is returned. */
uint32_t gsp_blame_right(gsp_blame *blame, const gsp_hash *root, uint32_t part,
                         const gsp_hash *pieces, uint32_t n, uint64_t now_ns);

#endif
