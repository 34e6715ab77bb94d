/*
 * Owns blobs. Its one idea: a part stays where it arrived, and nothing is said of it before its
 * hash was checked. It refuses nothing by itself: whoever offers a place decides what is wanted.
 */
#include "gossip/member/blob.h"

#include "atom/base/mem.h"
#include "gossip/agree/signed.h"

#include <string.h>

void gsp_blob_close(gsp_blob **blob)
{
    if (*blob) {
        if ((*blob)->message)
            gsp_net_free((*blob)->net, (*blob)->message);
        atom_free((*blob)->memory);
        atom_free((*blob)->from);
        atom_free(*blob);
    }
    *blob = NULL;
}

gsp_blob *gsp_blob_open(uint64_t bytes, const gsp_hash *root)
{
    gsp_blob *b = atom_alloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->root = *root;
    b->memory = atom_alloc(1, bytes ? bytes : 1);
    b->data = b->memory;
    b->bytes = bytes;
    if (!b->memory)
        gsp_blob_close(&b);
    return b;
}

/* Its data is a message's. */
static gsp_blob *open_around(const void *body, uint64_t bytes, const gsp_hash *root)
{
    gsp_blob *b = atom_alloc(1, sizeof *b);
    if (b)
        *b = (gsp_blob){.data = body, .bytes = bytes, .root = *root};
    return b;
}

gsp_blob *gsp_blob_copy(const gsp_hash *root, const gsp_exhibit *exhibit)
{
    gsp_blob *b = gsp_blob_open(exhibit->bytes, root);
    if (!b)
        return NULL;
    memcpy(b->memory, exhibit->data, exhibit->bytes);
    b->n_path = exhibit->n_path;
    memcpy(b->path, exhibit->path, sizeof b->path);
    b->whole = true;
    return b;
}

bool gsp_blob_lacks(const gsp_blob *b, uint32_t sequence)
{
    return !b || (!b->whole && !(b->pieces >> sequence & 1));
}

/* Bits of all pieces of a part. */
static uint64_t all_pieces(uint64_t part_bytes)
{
    uint64_t n = part_bytes ? (part_bytes + GSP_BLOB_PIECE_BYTES - 1) / GSP_BLOB_PIECE_BYTES : 1;
    return n == 64 ? UINT64_MAX : (1ull << n) - 1;
}

static bool proven(const gsp_blob *b, const gsp_piece *p, uint32_t n_parts)
{
    gsp_hash leaf;
    gsp_merkle_leaf(p->part, b->data, b->bytes, &leaf);
    if (p->is_result)
        return gsp_hash_equal(&leaf, &b->root);
    return gsp_merkle_check(&b->root, n_parts, p->part, &leaf, b->path, b->n_path);
}

/* What the piece was put into: the message itself, or memory for all of them. */
static gsp_blob *open_for(const gsp_piece *p, const void *body, bool one)
{
    gsp_blob *b =
        one ? open_around(body, p->bytes, &p->root) : gsp_blob_open(p->part_bytes, &p->root);
    if (b && !one && !(b->from = atom_alloc(GSP_BLOB_PIECES_MAX, sizeof *b->from)))
        gsp_blob_close(&b);
    return b;
}

uint32_t gsp_blob_hashes(const gsp_blob *b, gsp_hash out[GSP_BLOB_PIECES_MAX])
{
    uint32_t n = 0;
    uint64_t at = 0;
    do {
        uint64_t left = b->bytes - at;
        bool last = left <= GSP_BLOB_PIECE_BYTES;
        gsp_piece_hash(n, b->data + at, last ? left : GSP_BLOB_PIECE_BYTES, b->path,
                       last ? b->n_path : 0, &out[n]);
        at += GSP_BLOB_PIECE_BYTES;
    } while (++n < GSP_BLOB_PIECES_MAX && at < b->bytes);
    return n;
}

/* Its bytes are not what its hash says: from whom they are, for the caller, and the end of it. */
static void spoil(gsp_blob **place, const gsp_key *from, gsp_pieces_of *out)
{
    gsp_blob *b = *place;
    out->n = 1;
    out->from[0] = *from;
    if (b->from) {
        out->n = gsp_blob_hashes(b, out->hash);
        memcpy(out->from, b->from, out->n * sizeof *out->from);
    }
    b->message = NULL; /* the caller's again */
    gsp_blob_close(place);
}

gsp_blob_news gsp_blob_add(gsp_blob **place, const gsp_piece *p, const gsp_key *from,
                           uint32_t n_parts, const void *body, gsp_net *net, void *message,
                           bool *taken, gsp_pieces_of *spoiled)
{
    bool one = p->bytes == p->part_bytes && ((uintptr_t)body & 3) == 0;
    if (!*place)
        *place = open_for(p, body, one);
    gsp_blob *b = *place;
    if (!b)
        return GSP_BLOB_FULL;
    if (one) {
        b->net = net;
        b->message = message;
    } else {
        if (p->bytes)
            memcpy(b->memory + p->offset, body, p->bytes);
        b->from[p->sequence] = *from;
    }
    *taken = one;
    if (p->offset + p->bytes == p->part_bytes) { /* no other piece has a word in the proof */
        b->n_path = p->n_path;
        memcpy(b->path, p->path, sizeof b->path);
    }
    b->pieces |= 1ull << p->sequence;
    if (b->pieces != all_pieces(p->part_bytes))
        return GSP_BLOB_GROWS;
    b->whole = proven(b, p, n_parts);
    if (b->whole) {
        atom_free(b->from);
        b->from = NULL;
        return GSP_BLOB_WHOLE;
    }
    *taken = false;
    spoil(place, from, spoiled);
    return GSP_BLOB_FALSE;
}
