/*
 * Owns the tubes that this host holds as a relay: pairs of streams that are joined back to back
 * (docs/design/pool.md#transport). Its one idea: a relay is a favour, so it is counted to its last
 * byte, has a size and an end, and whoever asks for much makes room for who asks for little. It
 * refuses to look inside, and to begin anything for whoever has used its hour up.
 */
#include "gossip/net/net_inner.h"

#include <string.h>

static bool same(const uint8_t *a, const uint8_t *b)
{
    return memcmp(a, b, GSP_NET_KEY_BYTES) == 0;
}

static uint32_t held_by(const net_tubes *t, const uint8_t *asker, const uint8_t *target)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < NET_TUBES_MAX; i++)
        n += t->tube[i].used && same(t->tube[i].asker, asker) &&
             (!target || same(t->tube[i].target, target));
    return n;
}

net_tube *net_tubes_place(net_tubes *t, const uint8_t *asker, const uint8_t *target)
{
    net_tube *most = NULL;
    uint32_t n_most = held_by(t, asker, NULL);
    if (n_most >= NET_TUBES_PER_MEMBER || held_by(t, asker, target) >= NET_TUBES_PER_PAIR)
        return NULL;
    for (uint32_t i = 0; i < NET_TUBES_MAX; i++)
        if (!t->tube[i].used)
            return &t->tube[i];
    /* Full: the most idle one of whoever holds most, if that is more than the asker does. */
    for (uint32_t i = 0; i < NET_TUBES_MAX; i++) {
        net_tube *x = &t->tube[i];
        uint32_t n = held_by(t, x->asker, NULL);
        if (n > n_most || (most && n == n_most && x->moved_ns < most->moved_ns)) {
            most = x;
            n_most = n;
        }
    }
    return most;
}

static gsp_tally *hour(net_tubes *t)
{
    t->bytes.window_ns = NET_TUBE_HOUR_NS;
    t->bytes.each_max = NET_TUBE_BYTES_EACH;
    t->bytes.all_max = NET_TUBE_BYTES_ALL;
    return &t->bytes;
}

/* The tube has moved so many bytes in all. False: that is more than its asker's hour has left, which
 * is all gone now. */
static bool count(net_endpoint *e, net_tube *x, uint64_t bytes, uint64_t now)
{
    gsp_tally *t = hour(&e->tubes);
    uint64_t fresh = bytes - x->bytes, left = gsp_tally_left(t, x->asker, now);
    if (fresh)
        x->moved_ns = now;
    x->bytes = bytes;
    return gsp_tally_take(t, x->asker, fresh < left ? fresh : left, now) && fresh <= left;
}

static void end(net_endpoint *e, net_tube *x, uint64_t now)
{
    uint64_t bytes = x->bytes;
    gsp_gate_moved(e->gate, x->stream[0], &bytes);
    count(e, x, bytes, now);
    for (int i = 0; i < 2; i++)
        gsp_gate_end(e->gate, x->stream[i]);
    *x = (net_tube){0};
}

bool net_tubes_add(net_endpoint *e, const uint8_t *asker, const uint8_t *target, uint64_t a,
                   uint64_t b, uint64_t now)
{
    bool right = !e->tubes.refuses && gsp_tally_left(hour(&e->tubes), asker, now) > 0;
    net_tube *x = right ? net_tubes_place(&e->tubes, asker, target) : NULL;
    if (!x)
        return false;
    if (x->used)
        end(e, x, now);
    *x = (net_tube){.used = true, .stream = {a, b}, .begun_ns = now, .moved_ns = now};
    memcpy(x->asker, asker, sizeof x->asker);
    memcpy(x->target, target, sizeof x->target);
    return true;
}

void net_tubes_down(net_endpoint *e, uint64_t stream, uint64_t moved, uint64_t now)
{
    for (uint32_t i = 0; i < NET_TUBES_MAX; i++) {
        net_tube *x = &e->tubes.tube[i];
        if (!x->used || (x->stream[0] != stream && x->stream[1] != stream))
            continue;
        if (x->stream[0] == stream)
            count(e, x, moved, now);
        end(e, x, now);
    }
}

void net_tubes_tick(net_endpoint *e, uint64_t now)
{
    net_tubes *t = &e->tubes;
    if (!e->gate || now < t->look_ns)
        return;
    t->look_ns = now + NET_TUBE_LOOK_NS;
    for (uint32_t i = 0; i < NET_TUBES_MAX; i++) {
        net_tube *x = &t->tube[i];
        uint64_t bytes = x->bytes;
        if (!x->used)
            continue;
        bool there = gsp_gate_moved(e->gate, x->stream[0], &bytes);
        bool within = count(e, x, bytes, now);
        if (!there || !within || t->refuses || now - x->moved_ns > NET_TUBE_IDLE_NS ||
            now - x->begun_ns > NET_TUBE_NS)
            end(e, x, now);
    }
}
