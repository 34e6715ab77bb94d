/*
 * The bytes of one part of a contribution or of a result, on their way in or whole. They travel in
 * pieces of at most GSP_BLOB_PIECE_BYTES. A part that came as one piece stays in the transport's
 * message; others are put together in memory of their own, and who sent which piece is known until
 * the blob is whole. A whole blob was checked: a contribution against its Merkle root, a result
 * against its hash.
 *
 * Thread: the member's. Errors: NULL where memory is short.
 */
#ifndef GOSSIP_MEMBER_BLOB_H
#define GOSSIP_MEMBER_BLOB_H

#include "gossip/member/blame.h"
#include "gossip/member/parts.h"
#include "gossip/net/net.h"

enum {
    GSP_BLOB_PIECE_BYTES = 512 * 1024,
    GSP_BLOB_PIECES_MAX = GSP_BLAME_PIECES, /* of one part: bits of a uint64_t */
};

typedef struct gsp_blob {
    const uint8_t *data;
    uint64_t bytes;
    gsp_hash root; /* the contribution's root, or the result's hash */
    gsp_net *net;  /* where the message goes back to */
    void *message; /* the transport's; NULL: the data is in `memory` */
    uint8_t *memory;
    gsp_key *from; /* [GSP_BLOB_PIECES_MAX] senders of pieces; NULL: one sender, or all are right */
    uint64_t pieces; /* bits: these are here */
    uint32_t n_path;
    gsp_hash path[GSP_MERKLE_PATH_MAX];
    bool whole; /* and checked */
} gsp_blob;

typedef enum gsp_blob_news {
    GSP_BLOB_GROWS,
    GSP_BLOB_WHOLE,
    GSP_BLOB_FALSE, /* its bytes are not what its hash says: it is gone */
    GSP_BLOB_FULL,  /* no memory: the piece is lost */
} gsp_blob_news;

/* With room for so many bytes. */
gsp_blob *gsp_blob_open(uint64_t bytes, const gsp_hash *root);
/* Whole, with memory of its own. */
gsp_blob *gsp_blob_copy(const gsp_hash *root, const gsp_exhibit *exhibit);
/* NULL is fine; sets *blob to NULL. */
void gsp_blob_close(gsp_blob **blob);

/* True: the blob (NULL: none yet) lacks this piece. */
bool gsp_blob_lacks(const gsp_blob *blob, uint32_t sequence);
/*
 * Adds a piece that the blob lacks to *place, and makes the blob where it is the first one. The
 * piece has the right length and offset. *taken: `message` is the blob's from now on. GSP_BLOB_FALSE:
 * *spoiled says who sent which piece.
 */
ATOM_MUST gsp_blob_news gsp_blob_add(gsp_blob **place, const gsp_piece *piece, const gsp_key *from,
                                     uint32_t n_parts, const void *body, gsp_net *net,
                                     void *message, bool *taken, gsp_pieces_of *spoiled);
/* gsp_piece_hash of the pieces of a whole blob; returns how many there are. */
uint32_t gsp_blob_hashes(const gsp_blob *blob, gsp_hash out[GSP_BLOB_PIECES_MAX]);

#endif
