/*
 * Owns the time that members had to answer. Its one idea: it adds up over links that come and go.
 * It refuses to count long gaps between two looks: then it was this member that was away.
 */
#include "gossip/member/patience.h"

static const uint64_t GAP_NS = 2000000000u;

void gsp_patience_look(gsp_patience *p, const uint64_t link[GSP_MEMBERS_MAX], uint64_t now)
{
    uint64_t passed = p->looked_ns && now > p->looked_ns ? now - p->looked_ns : 0;
    passed = passed < GAP_NS ? passed : GAP_NS;
    for (uint32_t i = 0; i < GSP_MEMBERS_MAX; i++) {
        if (link[i] == 0 || link[i] != p->link[i])
            p->asked &= ~(1u << i);
        else if (p->asked >> i & 1)
            p->had_ns[i] += passed;
        p->link[i] = link[i];
    }
    p->looked_ns = now;
}

static uint32_t linked(const gsp_patience *p)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < GSP_MEMBERS_MAX; i++)
        bits |= p->link[i] ? 1u << i : 0;
    return bits;
}

uint32_t gsp_patience_unasked(const gsp_patience *p)
{
    return linked(p) & ~p->asked;
}

void gsp_patience_asked(gsp_patience *p, uint32_t i)
{
    p->asked |= linked(p) & 1u << i;
}

bool gsp_patience_piece(gsp_patience *p, uint32_t i, uint32_t sequence)
{
    if (p->gave[i] >> sequence & 1)
        return false;
    p->gave[i] |= 1ull << sequence;
    p->had_ns[i] = 0;
    return true;
}

uint32_t gsp_patience_late(const gsp_patience *p, uint64_t within)
{
    uint32_t late = 0;
    for (uint32_t i = 0; i < GSP_MEMBERS_MAX; i++)
        if (p->link[i] && p->had_ns[i] >= within)
            late |= 1u << i;
    return late;
}
