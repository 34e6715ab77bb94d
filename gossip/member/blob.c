/*
 * Owns blobs. Its one idea: a part stays where it arrived, and nothing is said of it before its
 * hash was checked. It refuses nothing by itself: whoever offers a place decides what is wanted.
 */
#include "gossip/member/blob.h"

#include "atom/base/mem.h"
#include "gossip/agree/lineage.h"

#include <string.h>

void gsp_blob_close(gsp_blob **blob)
{
    if (*blob) {
        if ((*blob)->message)
            gsp_net_free((*blob)->net, (*blob)->message);
        atom_free((*blob)->memory);
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

gsp_blob_news gsp_blob_add(gsp_blob **place, const gsp_piece *p, uint32_t n_parts, const void *body,
                           gsp_net *net, void *message, bool *taken)
{
    bool one = p->bytes == p->part_bytes && ((uintptr_t)body & 3) == 0;
    if (!*place)
        *place =
            one ? open_around(body, p->bytes, &p->root) : gsp_blob_open(p->part_bytes, &p->root);
    gsp_blob *b = *place;
    if (!b)
        return GSP_BLOB_FULL;
    if (one) {
        b->net = net;
        b->message = message;
    } else if (p->bytes) {
        memcpy(b->memory + p->offset, body, p->bytes);
    }
    *taken = one;
    if (p->n_path) {
        b->n_path = p->n_path;
        memcpy(b->path, p->path, sizeof b->path);
    }
    b->pieces |= 1ull << p->sequence;
    if (b->pieces != all_pieces(p->part_bytes))
        return GSP_BLOB_GROWS;
    b->whole = proven(b, p, n_parts);
    if (b->whole)
        return GSP_BLOB_WHOLE;
    b->message = NULL; /* the caller's again */
    *taken = false;
    gsp_blob_close(place);
    return GSP_BLOB_FALSE;
}
