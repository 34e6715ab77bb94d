/*
 * A file that travels in pieces (docs/design/pool.md#joining): a shard of a data set, whose Merkle
 * root the manifest names, and beside it, in a file of its own, the tree over its pieces. A piece
 * comes with the hashes that prove it, so it may come from anybody, in any order, and a wrong one
 * is seen at once.
 *
 * Piece k is bytes [k * GSP_PIECE_BYTES, ...) of the file and leaf k of the tree (merkle.h,
 * transfer.h). The tree's file, integers little endian:
 *
 *   8 bytes "atomtre2", u32 pieces, u32 whole, u64 bytes, u64 modified (ns since 1970, of the file
 *   when it was hashed; 0 while it comes), 32 bytes root, 32 bytes BLAKE2b of the nodes (zero while
 *   it comes), 32 bytes BLAKE2b of all this; then the nodes: leaves (zero: not here), those above
 *
 * Nothing is synced while a file comes: what a former run left is hashed again before it counts.
 *
 * What the messages of a peer can fill, wherever bytes come in pieces, and what happens then. A peer
 * that fills a table pushes out what is its own:
 *
 *   what                                     limit                      when it is full
 *   pieces of a contribution, from its       one blob a part; before    the blob of another root goes;
 *   contributor alone (inputs.h)             BEGIN 64 MiB / members,    early pieces of that member are
 *                                            8 MiB at least             dropped
 *   results of a part (recent_results.h)     GSP_HELD_MAX; 8 a ballot   the least needed goes; no more
 *                                            before the owner's word    are taken from that owner
 *   an owner's word that waits for its       one a part, the owner's    its next word takes its place
 *   bytes (node_inner.h)
 *   bytes of an audited part                 one case of 1 GiB          the case stays open
 *   (audit_cases.h)
 *   parts that came wrong (blame.h)          GSP_BLAME_PARTS            the oldest is forgotten
 *   peers that sent wrong bytes (blame.h)    GSP_BLAME_PEERS            the oldest is forgotten
 *   what waits to be sent to a peer          GSP_QUEUE_MAX parts, and   that peer's next question is
 *   (friends.h)                              letters                    dropped; its oldest letter goes
 *   chunks that a joiner waits for (donor.h) a ring for each peer       its questions are dropped
 *   donors of a download (swarm.h)           one place a link           one that is gone, then one that
 *                                                                       is gone and barred, is forgotten
 *   chunks of a small file (pool/files.c)    24 ahead, 16 questions     dropped; a peer's oldest
 *                                            of each peer               question goes
 *   pieces of data that a peer waits for     GSP_DATA_ASKED_MAX         its questions are dropped
 *   (pool/data.h)
 *   notes (pool/notes.c)                     two of each peer           its oldest goes; of those that
 *                                                                       are gone, the oldest of all
 *
 * Thread: one at a time per object. Memory: the tree, 64 bytes per piece.
 */
#ifndef GOSSIP_MEMBER_PIECES_H
#define GOSSIP_MEMBER_PIECES_H

#include "gossip/member/transfer.h"

enum { GSP_PIECE_BYTES = 256 * 1024, GSP_PIECES_MAX = GSP_CHUNKS_MAX };

static inline uint64_t gsp_piece_count(uint64_t bytes)
{
    return bytes / GSP_PIECE_BYTES + (bytes % GSP_PIECE_BYTES != 0);
}
/* Of one piece of a file of so many bytes. */
static inline uint32_t gsp_piece_length(uint64_t bytes, uint32_t piece)
{
    uint64_t left = bytes - (uint64_t)piece * GSP_PIECE_BYTES;
    return left < GSP_PIECE_BYTES ? (uint32_t)left : GSP_PIECE_BYTES;
}

/*
 * Hashes the file at path and writes its tree to `tree`.
 * Errors  ATOM_E_FORMAT  it cannot be read, is empty, or has more than GSP_PIECES_MAX pieces
 */
ATOM_MUST atom_status gsp_pieces_make(const char *path, const char *tree, uint64_t *bytes,
                                      gsp_hash *root);
/*
 * Is the file at path, whole, what bytes and root say? Quick where the tree was made of it since it
 * was last written to; else it is hashed, and the tree written anew. *same is false where it is
 * not there (*there false) or another.
 */
ATOM_MUST atom_status gsp_pieces_check(const char *path, const char *tree, uint64_t bytes,
                                       const gsp_hash *root, bool *there, bool *same);

typedef struct gsp_pieces gsp_pieces;

/* A whole file, to be read from. ATOM_E_FORMAT: not the one that gsp_pieces_check approved. */
ATOM_MUST atom_status gsp_pieces_open(const char *path, const char *tree, uint64_t bytes,
                                      const gsp_hash *root, gsp_pieces **out);
/* A file on its way in; goes on where one of the same root ended, else begins anew. */
ATOM_MUST atom_status gsp_pieces_begin(const char *path, const char *tree, uint64_t bytes,
                                       const gsp_hash *root, gsp_pieces **out);
/* NULL is fine. The files stay. */
void gsp_pieces_close(gsp_pieces **pieces);

uint32_t gsp_pieces_n(const gsp_pieces *pieces);
uint32_t gsp_pieces_here(const gsp_pieces *pieces); /* checked, and on disk */
bool gsp_pieces_has(const gsp_pieces *pieces, uint32_t piece);
/* Of a file on its way in: looks at up to n pieces that a former run left; true: all were. */
ATOM_MUST bool gsp_pieces_recheck(gsp_pieces *pieces, uint32_t n);

/*
 * Reads a piece into out[GSP_PIECE_BYTES], with its proof. False: it is not what it was: the file
 * was written to.
 */
ATOM_MUST bool gsp_pieces_read(gsp_pieces *pieces, uint32_t piece, void *out,
                               gsp_hash path[GSP_STATE_PATH_MAX], uint32_t *n_path);
/* Takes a piece that somebody sent. *good is false, and nothing is taken, where it does not prove
 * itself; numbers may be anything. Errors: the disk's. */
ATOM_MUST atom_status gsp_pieces_put(gsp_pieces *pieces, uint32_t piece, const void *data,
                                     size_t bytes, const gsp_hash *path, uint32_t n_path,
                                     bool *good);
/*
 * All pieces are here: the file is synced and renamed to `path`. ATOM_E_FORMAT: what lies here
 * together is not the file after all (the disk lost something); it begins anew.
 */
ATOM_MUST atom_status gsp_pieces_finish(gsp_pieces *pieces, const char *path);

#endif
