/*
 * Owns the caps on what passes the gate in a second, up and down. Its one idea: a bucket per
 * direction; bulk streams that find it empty starve until it has been filled again, in turn;
 * control streams draw from it too, but never starve, so heartbeats pass whatever the bulk does.
 * What is not read stays in the sender's TCP, which slows down by itself. It refuses to slow what
 * controls.
 */
#include "gossip/gate/gate_inner.h"

enum { TICK_MS = 5, SECOND_NS = 1000000000 };

static uint64_t burst(const gate_cap *c)
{
    uint64_t tenth = c->rate / 10;
    return tenth > BUFFER_BYTES ? tenth : BUFFER_BYTES;
}

bool gate_cap_lets(gsp_gate *g, gate_stream *s, const gate_cap *c)
{
    if (c->rate == 0 || c->left > 0 || !s->bulk)
        return true;
    s->starves_of = c;
    g->starving = true;
    return false;
}

void gate_cap_take(gate_cap *c, size_t bytes)
{
    if (c->rate)
        c->left -= (double)bytes;
}

static void fill(gate_cap *c, uint64_t now)
{
    if (c->rate == 0)
        return;
    c->left += (double)c->rate * (double)(now - c->filled_ns) / SECOND_NS;
    if (c->left > (double)burst(c))
        c->left = (double)burst(c);
    c->filled_ns = now;
}

void gate_caps_fill(gsp_gate *g, uint64_t now)
{
    fill(&g->up, now);
    fill(&g->down, now);
    if (!g->starving)
        return;
    g->starving = false;
    uint32_t begin = g->fed, first = g->n_streams;
    for (uint32_t i = 0; i < g->n_streams; i++) {
        uint32_t at = (begin + i) % g->n_streams;
        gate_stream *s = &g->stream[at];
        if (!s->starves_of)
            continue;
        if (s->starves_of->left <= 0) {
            g->starving = true;
            continue;
        }
        if (first == g->n_streams)
            first = at;
        s->starves_of = NULL;
        gate_activate(g, s);
    }
    if (first < g->n_streams)
        g->fed = first + 1; /* the first one takes most: next time another is first */
}

int gate_caps_wait_ms(const gsp_gate *g, int otherwise)
{
    return g->starving && otherwise > TICK_MS ? TICK_MS : otherwise;
}
