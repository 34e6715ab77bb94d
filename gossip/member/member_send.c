/*
 * Owns what a member sends: letters of the agreement, and behind them queues of names of parts and
 * results, whose bytes are looked up when the link has room. Its one idea: contributions before
 * results, every peer in turn, one piece at a time. It refuses to queue without bound: what does
 * not fit is said again by the agreement, or pulled by who lacks it.
 */
#include "gossip/member/node_inner.h"
#include "gossip/member/node_look.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <string.h>

enum { PIECES_PER_PUMP = 16, CHUNKS_PER_PUMP = 4 };
static const uint64_t CHUNK_PATIENCE_NS = 1000000000u; /* of who joins, with rounds */

gsp_friend *gsp_friend_find(gsp_node *d, const gsp_key *key)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (d->friends[i].up && gsp_key_compare(&d->friends[i].key, key) == 0)
            return &d->friends[i];
    return NULL;
}

/* ---- queues ---- */

static bool queue_push(gsp_queue *q, const gsp_outgoing *item)
{
    if (!q->item)
        q->item = atom_alloc(MEMBER_BULK_MAX, sizeof *q->item);
    if (!q->item || q->n == MEMBER_BULK_MAX)
        return false;
    for (uint32_t k = 0; k < q->n; k++) {
        const gsp_outgoing *o = &q->item[(q->first + k) % MEMBER_BULK_MAX];
        if (o->part == item->part && o->version == item->version &&
            gsp_hash_equal(&o->root, &item->root))
            return true;
    }
    q->item[(q->first + q->n++) % MEMBER_BULK_MAX] = *item;
    return true;
}

static void queue_pop(gsp_queue *q)
{
    q->first = (q->first + 1) % MEMBER_BULK_MAX;
    q->n--;
}

void gsp_node_forget_parts(gsp_node *d)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        d->friends[i].contributions.n = 0;
}

void gsp_node_send_part(gsp_node *d, gsp_friend *to, uint32_t part)
{
    gsp_outgoing item = {
        .part = part, .version = d->agree.certified + 1, .root = d->freezing.contribution.root};
    if (to && to->up)
        (void)queue_push(&to->contributions, &item);
}

void gsp_node_send_result(gsp_node *d, gsp_friend *to, uint64_t version, uint32_t part,
                          const gsp_hash *hash)
{
    (void)d;
    gsp_outgoing item = {.is_result = true, .part = part, .version = version, .root = *hash};
    if (to && to->up)
        (void)queue_push(&to->results, &item);
}

void gsp_node_send_exhibit(gsp_node *d, gsp_friend *to, uint64_t version, uint32_t part,
                           const gsp_hash *root)
{
    (void)d;
    gsp_outgoing item = {.part = part, .version = version, .root = *root};
    if (to && to->up)
        (void)queue_push(&to->results, &item);
}

/* ---- letters ---- */

static bool letter_send(gsp_node *d, gsp_friend *to, const void *data, size_t bytes)
{
    if (to->busy[GSP_NET_CONTROL])
        return false;
    gsp_net_sent sent =
        gsp_net_send(d->config.net, to->key.byte, GSP_NET_CONTROL, data, bytes, NULL, 0);
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

/* Sends it now, or keeps it; the oldest goes where too many wait. */
static void letter_post(gsp_node *d, gsp_friend *to, const void *data, size_t bytes)
{
    if (!to->first && letter_send(d, to, data, bytes))
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
    if (++to->n_letters > MEMBER_CONTROL_MAX)
        letter_pop(to);
}

void gsp_node_tell(gsp_node *d, gsp_friend *to, const gsp_message *message)
{
    size_t bytes = gsp_wire_encode(message, d->scratch_wire, sizeof d->scratch_wire);
    if (bytes && to && to->up)
        letter_post(d, to, d->scratch_wire, bytes);
}

void gsp_node_say(gsp_node *d, const gsp_action *action, const gsp_message *message)
{
    if (action->to == GSP_TO_ONE) {
        gsp_node_tell(d, gsp_friend_find(d, &action->peer), message);
        return;
    }
    size_t bytes = gsp_wire_encode(message, d->scratch_wire, sizeof d->scratch_wire);
    const gsp_roster *roster = gsp_agree_roster(&d->agree);
    for (uint32_t i = 0; bytes && i < GSP_NET_PEERS_MAX; i++) {
        gsp_friend *f = &d->friends[i];
        if (f->up &&
            (action->to == GSP_TO_ALL || gsp_roster_find_key(roster, &f->key) != GSP_NOBODY))
            letter_post(d, f, d->scratch_wire, bytes);
    }
}

/* ---- links ---- */

/* What this peer should have of the round in progress, and what its last link may have lost. */
static void send_again(gsp_node *d, gsp_friend *to)
{
    const gsp_agree *a = &d->agree;
    const gsp_round *r = &a->round;
    uint32_t i = gsp_roster_find_key(gsp_agree_roster(a), &to->key);
    if (i == GSP_NOBODY || r->ballot == 0)
        return;
    for (uint32_t p = 0; p < r->begin.n_parts; p++) {
        if (r->begin.owner[p] == i && (r->sent[p] >> i & 1) && gsp_hash_none(&r->known[p].hash))
            gsp_node_send_part(d, to, p);
        if (r->begin.owner[p] == a->self_i && !gsp_hash_none(&r->known[p].hash))
            gsp_node_send_result(d, to, a->certified + 1, p, &r->known[p].hash);
    }
}

static void friend_clear(gsp_friend *f)
{
    while (f->first)
        letter_pop(f);
    atom_free(f->contributions.item);
    atom_free(f->results.item);
    atom_free(f->wanted);
    *f = (gsp_friend){0};
}

void gsp_friend_up(gsp_node *d, const gsp_key *key)
{
    gsp_friend_down(d, key);
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        gsp_friend *f = &d->friends[i];
        if (f->up)
            continue;
        f->up = true;
        f->key = *key;
        f->bulk_ns = atom_clock_ns();
        d->paced_ns = 0;
        send_again(d, f);
        return;
    }
}

void gsp_friend_down(gsp_node *d, const gsp_key *key)
{
    gsp_friend *f = gsp_friend_find(d, key);
    gsp_fetch_down(d, key);
    if (f)
        friend_clear(f);
}

/* ---- pump ---- */

/* The bytes that an outgoing item names; NULL: they are worth nothing any more. */
static const uint8_t *bytes_of(gsp_node *d, const gsp_outgoing *o, gsp_exhibit *out)
{
    if (o->is_result) {
        const gsp_blob *b = gsp_node_result(d, o->part, &o->root);
        *out = (gsp_exhibit){.data = b ? b->data : NULL, .bytes = b ? b->bytes : 0};
    } else if (!gsp_audit_exhibit(d, o->version, &o->root, o->part, out)) {
        return NULL;
    }
    return out->data;
}

/* Sends the next piece of the first item. False: the link is full. */
static bool piece_send(gsp_node *d, gsp_friend *to, gsp_queue *q)
{
    gsp_outgoing *o = &q->item[q->first];
    gsp_exhibit exhibit;
    const uint8_t *data = bytes_of(d, o, &exhibit);
    uint64_t bytes = exhibit.bytes;
    if (!data) {
        queue_pop(q);
        return true;
    }
    gsp_message *m = &d->scratch_message;
    gsp_piece *p = &m->as.piece;
    memset(m, 0, gsp_message_bytes(GSP_PIECE));
    m->kind = GSP_PIECE;
    m->from = d->agree.self;
    m->lineage = d->agree.lineage;
    m->version = o->version;
    p->root = o->root;
    p->is_result = o->is_result;
    p->codec = (uint8_t)d->config.codec;
    p->part = o->part;
    p->sequence = o->sequence;
    p->offset = (uint64_t)o->sequence * GSP_MEMBER_PIECE_BYTES;
    p->part_bytes = bytes;
    p->bytes = bytes - p->offset;
    bool last = p->bytes <= GSP_MEMBER_PIECE_BYTES;
    if (!last)
        p->bytes = GSP_MEMBER_PIECE_BYTES;
    else if (!o->is_result)
        p->n_path = exhibit.n_path;
    memcpy(p->path, exhibit.path, p->n_path * sizeof p->path[0]);
    size_t head = gsp_wire_encode(m, d->scratch_wire, sizeof d->scratch_wire);
    gsp_net_sent sent = gsp_net_send(d->config.net, to->key.byte, GSP_NET_BULK, d->scratch_wire,
                                     head, data + p->offset, p->bytes);
    if (sent == GSP_NET_BUSY) {
        to->busy[GSP_NET_BULK] = true;
        return false;
    }
    o->sequence++;
    if (last)
        queue_pop(q);
    return sent == GSP_NET_SENT;
}

/* Parts and results first; but whoever joins is not forgotten where they never end. */
static bool chunks_must_wait(const gsp_node *d)
{
    return gsp_node_is_busy(d) && atom_clock_ns() - d->state_ns < CHUNK_PATIENCE_NS;
}

/* True: more could be sent at once. */
static bool pump_state(gsp_node *d)
{
    uint32_t sent = 0;
    if (chunks_must_wait(d))
        return false;
    for (uint32_t k = 0; k < GSP_NET_PEERS_MAX && sent < CHUNKS_PER_PUMP; k++)
        sent += gsp_state_send(d, &d->friends[(d->turn + k) % GSP_NET_PEERS_MAX]);
    return sent == CHUNKS_PER_PUMP;
}

bool gsp_node_pump(gsp_node *d)
{
    uint32_t left = PIECES_PER_PUMP;
    gsp_node_pace(d);
    for (bool any = true; any && left;) {
        any = false;
        for (uint32_t k = 0; k < GSP_NET_PEERS_MAX && left; k++) {
            gsp_friend *f = &d->friends[(d->turn + k) % GSP_NET_PEERS_MAX];
            if (!f->up)
                continue;
            while (f->first && letter_send(d, f, f->first->data, f->first->bytes))
                letter_pop(f);
            gsp_queue *q = f->contributions.n ? &f->contributions : &f->results;
            if (q->n == 0 || f->busy[GSP_NET_BULK])
                continue;
            left--;
            any |= piece_send(d, f, q);
        }
        d->turn = (d->turn + 1) % GSP_NET_PEERS_MAX;
    }
    bool more = pump_state(d);
    gsp_node_meter(d);
    return left == 0 || more;
}
