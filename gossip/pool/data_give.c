/*
 * Owns the giving of data to others: pieces of the manifest's data files, read from where this host
 * has them. Its one idea: a word names a root, and a root names one of the manifest's files or
 * nothing; no name or path ever comes from the wire. It refuses to stand in the way of a round, to
 * send what it would not believe itself, and to give one key the same again and again.
 */
#include "gossip/pool/data.h"

#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "gossip/member/node_look.h"

#include <string.h>

enum { GIVEN_PER_STEP = 24 };
static const uint64_t PATIENCE_NS = 1000000000u; /* of a joiner, while a round goes on */

static gsp_data_side *side_of(gsp_data *d, const gsp_link *link)
{
    gsp_data_side *s = &d->side[link - d->links->link];
    if (s->born != link->born)
        *s = (gsp_data_side){.born = link->born};
    return s;
}

char *gsp_data_tree_path(const gsp_data *d, const char *name)
{
    return atom_format("%s/trees/%s", d->directory, name);
}

static void say_none(gsp_data *d, const gsp_link *to, const gsp_hash *root, uint32_t piece)
{
    gsp_word m = {.kind = GSP_WORD_NO_PIECE, .hash = *root, .piece = piece};
    (void)gsp_links_tell(d->links, to->key, &m);
}

void gsp_data_asked(gsp_data *d, const gsp_link *from, const gsp_word *m)
{
    gsp_data_side *s = side_of(d, from);
    uint32_t f = 0;
    while (f < d->manifest->n_files &&
           !(d->whole[f] && gsp_hash_equal(&d->manifest->file[f].hash, &m->hash)))
        f++;
    if (f == d->manifest->n_files || m->piece >= gsp_piece_count(d->manifest->file[f].bytes)) {
        say_none(d, from, &m->hash, m->piece);
        return;
    }
    uint64_t n = gsp_piece_count(d->manifest->file[f].bytes);
    for (uint32_t k = 0; k < m->n_pieces && m->piece + k < n; k++) {
        if (s->n == GSP_DATA_ASKED_MAX)
            return; /* it asks again, or others */
        s->asked[s->n].file = f;
        s->asked[s->n++].piece = m->piece + k;
    }
}

/* The file is not what it was: nobody gets it from here any more. */
static void lost(gsp_data *d, uint32_t f)
{
    atom_log(ATOM_LOG_WARN, "%s/%s has changed; it is no longer given to others", d->place,
             d->manifest->file[f].name);
    d->whole[f] = false;
}

static gsp_pieces *open_of(gsp_data *d, uint32_t f, uint64_t now)
{
    const gsp_manifest_file *file = &d->manifest->file[f];
    uint32_t oldest = 0;
    for (uint32_t i = 0; i < GSP_DATA_OPEN_MAX; i++) {
        if (d->open[i].pieces && d->open[i].file == f) {
            d->open[i].used_ns = now;
            return d->open[i].pieces;
        }
        if (!d->open[i].pieces ||
            (d->open[oldest].pieces && d->open[i].used_ns < d->open[oldest].used_ns))
            oldest = i;
    }
    char *path = atom_path_join(d->place, file->name), *tree = gsp_data_tree_path(d, file->name);
    gsp_pieces_close(&d->open[oldest].pieces);
    if (path && tree &&
        gsp_pieces_open(path, tree, file->bytes, &file->hash, &d->open[oldest].pieces) == ATOM_OK) {
        d->open[oldest].file = f;
        d->open[oldest].used_ns = now;
    }
    atom_free(path);
    atom_free(tree);
    return d->open[oldest].pieces;
}

/* The member sends on the same links, and hears when there is room again. */
static bool has_room(gsp_data *d, const gsp_link *l)
{
    gsp_data_side *s = side_of(d, l);
    if (s->full && d->node)
        s->full = gsp_node_is_full(d->node, l->key);
    return !s->full;
}

void gsp_data_room(gsp_data *d, const gsp_link *link)
{
    side_of(d, link)->full = false;
}

/* False: the link is full. */
static bool give(gsp_data *d, const gsp_link *to, gsp_word *m, uint8_t *buffer, uint64_t now)
{
    gsp_data_side *s = side_of(d, to);
    uint32_t f = s->asked[0].file, k = s->asked[0].piece;
    const gsp_manifest_file *file = &d->manifest->file[f];
    uint64_t most = gsp_manifest_gives(d->manifest), bytes = gsp_piece_length(file->bytes, k);
    bool may = gsp_links_may_give(d->links, to->key, bytes, most, now);
    gsp_pieces *pieces = may && d->whole[f] ? open_of(d, f, now) : NULL;
    memset(m, 0, sizeof *m);
    *m = (gsp_word){.kind = GSP_WORD_PIECE, .hash = file->hash, .piece = k, .body = buffer};
    if (!pieces || !gsp_pieces_read(pieces, k, buffer, m->path, &m->n_path)) {
        if (may && d->whole[f])
            lost(d, f);
        say_none(d, to, &file->hash, k);
        return true;
    }
    m->body_bytes = bytes;
    d->given_ns = now;
    if (gsp_links_tell(d->links, to->key, m)) {
        gsp_links_give(d->links, to->key, bytes, most, now);
        return true;
    }
    s->full = true;
    if (d->node)
        gsp_node_was_full(d->node, to->key);
    return false;
}

/* One to each in turn, until all links are full. */
void gsp_data_give(gsp_data *d, uint64_t now)
{
    uint32_t left = GIVEN_PER_STEP, full = 0;
    uint8_t *buffer = NULL;
    gsp_word *m = NULL;
    bool any = false;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX && !any; i++)
        any = d->links->link[i].up && side_of(d, &d->links->link[i])->n;
    if (!any || (d->node && gsp_node_is_busy(d->node) && now - d->given_ns < PATIENCE_NS))
        return;
    buffer = atom_alloc(GSP_PIECE_BYTES, 1);
    m = atom_alloc(1, sizeof *m);
    for (; buffer && m && left && full < GSP_NET_PEERS_MAX; d->turn++) {
        const gsp_link *l = &d->links->link[d->turn % GSP_NET_PEERS_MAX];
        gsp_data_side *s = side_of(d, l);
        full++;
        if (!l->up || !s->n || !has_room(d, l) || !give(d, l, m, buffer, now))
            continue;
        memmove(s->asked, s->asked + 1, --s->n * sizeof *s->asked);
        full = 0;
        left--;
    }
    if (left == 0)
        gsp_net_wake(d->links->net); /* there may be more */
    atom_free(buffer);
    atom_free(m);
}

void gsp_data_close_open(gsp_data *d)
{
    for (uint32_t i = 0; i < GSP_DATA_OPEN_MAX; i++)
        gsp_pieces_close(&d->open[i].pieces);
}
