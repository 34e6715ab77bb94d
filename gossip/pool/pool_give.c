/*
 * Owns the giving of data to others: pieces of the manifest's data files, read from where this host
 * has them. Its one idea: a word names a root, and a root names one of the manifest's files or
 * nothing; no name or path ever comes from the wire. It refuses to stand in the way of a round, and
 * to send what it would not believe itself.
 */
#include "gossip/pool/whole.h"

#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "gossip/member/node_look.h"

#include <string.h>

enum { GIVEN_PER_STEP = 24 };
static const uint64_t PATIENCE_NS =
    1000000000u; /* of those that ask, while a round is in progress */

char *gsp_pool_tree_path(const gsp_pool *p, const char *name)
{
    return atom_format("%s/trees/%s", p->directory, name);
}

static void say_none(gsp_pool *p, const gsp_link *to, const gsp_hash *root, uint32_t piece)
{
    gsp_word m = {.kind = GSP_WORD_NO_PIECE, .hash = *root, .piece = piece};
    (void)gsp_links_tell(&p->links, to->key, &m);
}

void gsp_pool_pieces_asked(gsp_pool *p, gsp_link *from, const gsp_word *m)
{
    uint32_t f = 0;
    while (p->door.has_manifest && f < p->door.manifest->n_files &&
           !(p->data_whole[f] && gsp_hash_equal(&p->door.manifest->file[f].hash, &m->hash)))
        f++;
    if (!p->door.has_manifest || f == p->door.manifest->n_files ||
        m->piece >= gsp_piece_count(p->door.manifest->file[f].bytes)) {
        say_none(p, from, &m->hash, m->piece);
        return;
    }
    uint64_t n = gsp_piece_count(p->door.manifest->file[f].bytes);
    for (uint32_t k = 0; k < m->n_pieces && m->piece + k < n; k++) {
        if (from->n_pieces == POOL_PIECES_MAX)
            return; /* it asks again, or others */
        from->piece[from->n_pieces].file = f;
        from->piece[from->n_pieces++].piece = m->piece + k;
    }
}

/* The file is not what it was: nobody gets it from here any more. */
static void lost(gsp_pool *p, uint32_t f)
{
    atom_log(ATOM_LOG_WARN, "%s/%s is not what it was; it is not given to others any more",
             p->data_dir, p->door.manifest->file[f].name);
    p->data_whole[f] = false;
}

static gsp_pieces *open_of(gsp_pool *p, uint32_t f, uint64_t now)
{
    const gsp_manifest_file *file = &p->door.manifest->file[f];
    uint32_t oldest = 0;
    for (uint32_t i = 0; i < POOL_OPEN_MAX; i++) {
        if (p->open[i].pieces && p->open[i].file == f) {
            p->open[i].used_ns = now;
            return p->open[i].pieces;
        }
        if (!p->open[i].pieces ||
            (p->open[oldest].pieces && p->open[i].used_ns < p->open[oldest].used_ns))
            oldest = i;
    }
    char *path = atom_path_join(p->data_dir, file->name), *tree = gsp_pool_tree_path(p, file->name);
    gsp_pieces_close(&p->open[oldest].pieces);
    if (path && tree &&
        gsp_pieces_open(path, tree, file->bytes, &file->hash, &p->open[oldest].pieces) == ATOM_OK) {
        p->open[oldest].file = f;
        p->open[oldest].used_ns = now;
    }
    atom_free(path);
    atom_free(tree);
    return p->open[oldest].pieces;
}

/* The member sends on the same links, and hears when there is room again. */
static bool has_room(const gsp_pool *p, gsp_link *l)
{
    if (l->full && p->node)
        l->full = gsp_node_is_full(p->node, l->key);
    return !l->full;
}

/* False: the link is full. */
static bool give(gsp_pool *p, gsp_link *to, gsp_word *m, uint8_t *buffer, uint64_t now)
{
    uint32_t f = to->piece[0].file, k = to->piece[0].piece;
    const gsp_manifest_file *file = &p->door.manifest->file[f];
    gsp_pieces *pieces = p->data_whole[f] ? open_of(p, f, now) : NULL;
    memset(m, 0, sizeof *m);
    *m = (gsp_word){.kind = GSP_WORD_PIECE, .hash = file->hash, .piece = k, .body = buffer};
    if (!pieces || !gsp_pieces_read(pieces, k, buffer, m->path, &m->n_path)) {
        if (p->data_whole[f])
            lost(p, f);
        say_none(p, to, &file->hash, k);
        return true;
    }
    m->body_bytes = gsp_piece_length(file->bytes, k);
    p->piece_ns = now;
    if (gsp_links_tell(&p->links, to->key, m))
        return true;
    to->full = true;
    if (p->node)
        gsp_node_was_full(p->node, to->key);
    return false;
}

static void pop(gsp_link *l)
{
    memmove(l->piece, l->piece + 1, --l->n_pieces * sizeof *l->piece);
}

/* One to each in turn, until all links are full. */
void gsp_pool_give_pieces(gsp_pool *p, uint64_t now)
{
    uint32_t left = GIVEN_PER_STEP, full = 0;
    uint8_t *buffer = NULL;
    gsp_word *m = NULL;
    bool any = false;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX && !any; i++)
        any = p->links.link[i].up && p->links.link[i].n_pieces;
    if (!any || (p->node && gsp_node_is_busy(p->node) && now - p->piece_ns < PATIENCE_NS))
        return;
    buffer = atom_alloc(GSP_PIECE_BYTES, 1);
    m = atom_alloc(1, sizeof *m);
    for (; buffer && m && left && full < GSP_NET_PEERS_MAX; p->give_turn++) {
        gsp_link *l = &p->links.link[p->give_turn % GSP_NET_PEERS_MAX];
        full++;
        if (!l->up || !l->n_pieces || !has_room(p, l) || !give(p, l, m, buffer, now))
            continue;
        pop(l);
        full = 0;
        left--;
    }
    if (left == 0)
        gsp_net_wake(p->net); /* there may be more */
    atom_free(buffer);
    atom_free(m);
}

void gsp_pool_close_pieces(gsp_pool *p)
{
    for (uint32_t i = 0; i < POOL_OPEN_MAX; i++)
        gsp_pieces_close(&p->open[i].pieces);
}
