/*
 * Owns links and what waits for them. Its one idea: names wait, not bytes, so that what nobody
 * needs any more costs nothing. It refuses to queue without bound.
 */
#include "gossip/member/friends.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <string.h>

enum {
    PIECES_PER_PUMP = 16,
    LETTERS_MAX = 256, /* that wait for one peer */
    PULLED_TIMES = 16, /* a fragment, in a version */
};
static const uint64_t PULLED_LEAST = 64 << 20; /* bytes, of a fragment however small */

struct gsp_letter {
    gsp_letter *next;
    size_t bytes;
    uint8_t data[];
};

void gsp_friends_open(gsp_friends *fs, gsp_net *net, const gsp_agree *agree, gsp_codec codec)
{
    fs->net = net;
    fs->agree = agree;
    fs->codec = codec;
}

gsp_friend *gsp_friends_find(gsp_friends *fs, const gsp_key *key)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (fs->friend[i].up && gsp_key_compare(&fs->friend[i].key, key) == 0)
            return &fs->friend[i];
    return NULL;
}

uint32_t gsp_friends_index(const gsp_friends *fs, const gsp_friend *of)
{
    return (uint32_t)(of - fs->friend);
}

bool gsp_friends_is_busy(const gsp_friends *fs)
{
    bool waiting = false;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        waiting |= fs->friend[i].up && (fs->friend[i].contributions.n || fs->friend[i].results.n);
    return waiting;
}

/* ---- queues ---- */

static bool queue_push(gsp_queue *q, const gsp_outgoing *item)
{
    if (!q->item)
        q->item = atom_alloc(GSP_QUEUE_MAX, sizeof *q->item);
    if (!q->item || q->n == GSP_QUEUE_MAX)
        return false;
    for (uint32_t k = 0; k < q->n; k++) {
        const gsp_outgoing *o = &q->item[(q->first + k) % GSP_QUEUE_MAX];
        if (o->part == item->part && o->version == item->version &&
            gsp_hash_equal(&o->root, &item->root))
            return false; /* waits already */
    }
    q->item[(q->first + q->n++) % GSP_QUEUE_MAX] = *item;
    return true;
}

static void queue_pop(gsp_queue *q)
{
    q->first = (q->first + 1) % GSP_QUEUE_MAX;
    q->n--;
}

void gsp_friends_forget_parts(gsp_friends *fs)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        fs->friend[i].contributions.n = 0;
}

void gsp_friends_send_part(gsp_friend *to, uint64_t version, uint32_t part, const gsp_hash *root)
{
    gsp_outgoing item = {.part = part, .version = version, .root = *root};
    if (to)
        queue_push(&to->contributions, &item);
}

bool gsp_friends_send_result(gsp_friend *to, uint64_t version, uint32_t part, const gsp_hash *hash)
{
    gsp_outgoing item = {.is_result = true, .part = part, .version = version, .root = *hash};
    return to && queue_push(&to->results, &item);
}

bool gsp_friends_send_exhibit(gsp_friend *to, uint64_t version, uint32_t part, const gsp_hash *root)
{
    gsp_outgoing item = {.part = part, .version = version, .root = *root};
    return to && queue_push(&to->results, &item);
}

void gsp_friends_bound(gsp_friends *fs, uint64_t fragment_bytes)
{
    uint64_t most = PULLED_TIMES * fragment_bytes;
    fs->pulled = (gsp_tally){.window_ns = 1,
                             .each_max = most > PULLED_LEAST ? most : PULLED_LEAST,
                             .all_max = UINT64_MAX};
}

bool gsp_friends_may_pull(gsp_friends *fs, const gsp_friend *to, uint64_t bytes)
{
    return bytes <= gsp_tally_left(&fs->pulled, to->key.byte, fs->agree->certified);
}

void gsp_friends_pulls(gsp_friends *fs, const gsp_friend *to, uint64_t bytes)
{
    (void)gsp_tally_take(&fs->pulled, to->key.byte, bytes, fs->agree->certified);
}

/* ---- letters ---- */

static bool letter_send(gsp_friends *fs, gsp_friend *to, const void *data, size_t bytes)
{
    if (to->busy[GSP_NET_CONTROL])
        return false;
    gsp_net_sent sent = gsp_net_send(fs->net, to->key.byte, GSP_NET_CONTROL, data, bytes, NULL, 0);
    to->busy[GSP_NET_CONTROL] = sent == GSP_NET_BUSY;
    return sent != GSP_NET_BUSY;
}

static void letter_pop(gsp_friend *to)
{
    gsp_letter *l = to->first;
    to->first = l->next;
    to->last = to->first ? to->last : NULL;
    to->n_letters--;
    atom_free(l);
}

/* Sends it now, or keeps it; where too many wait the oldest goes. */
static void letter_post(gsp_friends *fs, gsp_friend *to, const void *data, size_t bytes)
{
    if (!to->first && letter_send(fs, to, data, bytes))
        return;
    gsp_letter *l = atom_alloc(1, sizeof *l + bytes);
    if (!l)
        return;
    memcpy(l->data, data, bytes);
    l->bytes = bytes;
    if (to->last)
        to->last->next = l;
    else
        to->first = l;
    to->last = l;
    if (++to->n_letters > LETTERS_MAX)
        letter_pop(to);
}

gsp_message *gsp_friends_draft(gsp_friends *fs, gsp_message_kind kind)
{
    gsp_message *m = &fs->draft;
    memset(m, 0, gsp_message_bytes(kind));
    m->kind = kind;
    m->from = fs->agree->self;
    m->lineage = fs->agree->lineage;
    return m;
}

size_t gsp_friends_tell(gsp_friends *fs, gsp_friend *to, const gsp_message *message)
{
    size_t bytes = to ? gsp_wire_encode(message, fs->wire, sizeof fs->wire) : 0;
    if (bytes)
        letter_post(fs, to, fs->wire, bytes);
    return bytes;
}

void gsp_friends_say(gsp_friends *fs, const gsp_action *action, const gsp_message *message)
{
    if (action->to == GSP_TO_ONE) {
        gsp_friends_tell(fs, gsp_friends_find(fs, &action->peer), message);
        return;
    }
    size_t bytes = gsp_wire_encode(message, fs->wire, sizeof fs->wire);
    const gsp_roster *roster = gsp_agree_roster(fs->agree);
    for (uint32_t i = 0; bytes && i < GSP_NET_PEERS_MAX; i++) {
        gsp_friend *f = &fs->friend[i];
        if (f->up &&
            (action->to == GSP_TO_ALL || gsp_roster_find_key(roster, &f->key) != GSP_NOBODY))
            letter_post(fs, f, fs->wire, bytes);
    }
}

/* ---- links ---- */

void gsp_friends_down(gsp_friend *f)
{
    while (f->first)
        letter_pop(f);
    atom_free(f->contributions.item);
    atom_free(f->results.item);
    *f = (gsp_friend){0};
}

gsp_friend *gsp_friends_up(gsp_friends *fs, const gsp_key *key)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        gsp_friend *f = &fs->friend[i];
        if (f->up)
            continue;
        *f = (gsp_friend){
            .up = true, .link = ++fs->n_links, .key = *key, .bulk_ns = atom_clock_ns()};
        return f;
    }
    return NULL;
}

void gsp_friends_close(gsp_friends *fs)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        gsp_friends_down(&fs->friend[i]);
}

/* ---- pump ---- */

gsp_net_sent gsp_friends_send_bulk(gsp_friends *fs, gsp_friend *to, const gsp_message *message,
                                   const void *body, uint64_t bytes)
{
    size_t head = gsp_wire_encode(message, fs->wire, sizeof fs->wire);
    gsp_net_sent sent =
        gsp_net_send(fs->net, to->key.byte, GSP_NET_BULK, fs->wire, head, body, bytes);
    to->busy[GSP_NET_BULK] |= sent == GSP_NET_BUSY;
    to->hidden += sent == GSP_NET_SENT ? head + bytes : 0;
    return sent;
}

/* Sends the next piece of the first item. False: the link is full. */
static bool piece_send(gsp_friends *fs, gsp_friend *to, gsp_queue *q, gsp_friends_source *source,
                       void *context)
{
    gsp_outgoing *o = &q->item[q->first];
    gsp_exhibit exhibit = {0};
    if (!source(context, o, &exhibit)) {
        queue_pop(q);
        return true;
    }
    gsp_message *m = gsp_friends_draft(fs, GSP_PIECE);
    gsp_piece *p = &m->as.piece;
    m->version = o->version;
    p->root = o->root;
    p->is_result = o->is_result;
    p->codec = (uint8_t)fs->codec;
    p->part = o->part;
    p->sequence = o->sequence;
    p->offset = (uint64_t)o->sequence * GSP_BLOB_PIECE_BYTES;
    p->part_bytes = exhibit.bytes;
    p->bytes = exhibit.bytes - p->offset;
    bool last = p->bytes <= GSP_BLOB_PIECE_BYTES;
    if (!last)
        p->bytes = GSP_BLOB_PIECE_BYTES;
    else if (!o->is_result)
        p->n_path = exhibit.n_path;
    memcpy(p->path, exhibit.path, p->n_path * sizeof p->path[0]);
    gsp_net_sent sent =
        gsp_friends_send_bulk(fs, to, m, (const uint8_t *)exhibit.data + p->offset, p->bytes);
    if (sent == GSP_NET_BUSY)
        return false;
    o->sequence++;
    if (last)
        queue_pop(q);
    return sent == GSP_NET_SENT;
}

bool gsp_friends_pump(gsp_friends *fs, gsp_friends_source *source, void *context)
{
    uint32_t left = PIECES_PER_PUMP;
    for (bool any = true; any && left;) {
        any = false;
        for (uint32_t k = 0; k < GSP_NET_PEERS_MAX && left; k++) {
            gsp_friend *f = &fs->friend[(fs->turn + k) % GSP_NET_PEERS_MAX];
            if (!f->up)
                continue;
            while (f->first && letter_send(fs, f, f->first->data, f->first->bytes))
                letter_pop(f);
            gsp_queue *q = f->contributions.n ? &f->contributions : &f->results;
            if (q->n == 0 || f->busy[GSP_NET_BULK])
                continue;
            left--;
            any |= piece_send(fs, f, q, source, context);
        }
        fs->turn = (fs->turn + 1) % GSP_NET_PEERS_MAX;
    }
    return left == 0;
}
