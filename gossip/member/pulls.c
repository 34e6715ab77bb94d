/*
 * Owns the patience with results that do not come. Its one idea: bytes that arrive earn a peer more
 * time than silence does. It refuses to ask two peers for one part at once.
 */
#include "gossip/member/pulls.h"

static const uint64_t PATIENCE_NS = 3000000000u; /* with an owner whose result does not come */

const gsp_key *gsp_pulls_last(const gsp_pulls *p, uint32_t part)
{
    return &p->part[part].from;
}

bool gsp_pulls_ask(gsp_pulls *p, uint32_t part, const gsp_key *from, const gsp_pull_case *facts,
                   uint64_t now)
{
    uint64_t *wanted = &p->part[part].wanted_ns, *asked = &p->part[part].asked_ns;
    if (*wanted == 0)
        *wanted = now;
    if (facts->takes_part && now - *wanted < PATIENCE_NS / 3)
        return false;
    if (facts->owner_ns && now - facts->owner_ns < PATIENCE_NS)
        return false;
    bool sends = facts->last_ns > *asked;
    if (!from || (*asked && now - *asked < PATIENCE_NS / (sends ? 2 : 10)))
        return false;
    *asked = now;
    p->part[part].from = *from;
    return true;
}

void gsp_pulls_asked(gsp_pulls *p, uint32_t part, const gsp_key *from, uint64_t now)
{
    p->part[part].asked_ns = now;
    p->part[part].from = *from;
}

void gsp_pulls_clear(gsp_pulls *p)
{
    for (uint32_t k = 0; k < GSP_PARTS_MAX; k++)
        p->part[k].wanted_ns = p->part[k].asked_ns = 0;
}
