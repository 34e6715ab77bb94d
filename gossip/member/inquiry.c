/*
 * Owns the talk with one peer about its chain. Its one idea: what both have is not sent and not
 * checked again, and everything else is checked before the next question. It refuses a peer that
 * takes long: others wait for their turn.
 */
#include "gossip/member/inquiry.h"

#include "atom/base/mem.h"

#include <string.h>

static const uint64_t PAGE_NS = 5000000000u;    /* for one answer */
static const uint64_t WHOLE_NS = 120000000000u; /* for all of them */

void gsp_inquiry_begin(gsp_inquiry *q, const gsp_chain_terms *terms, const gsp_key *of,
                       uint64_t now_ns)
{
    gsp_inquiry_end(q);
    *q = (gsp_inquiry){.on = true, .of = *of, .began_ns = now_ns, .heard_ns = now_ns};
    gsp_trail_open(&q->theirs, terms);
}

void gsp_inquiry_end(gsp_inquiry *q)
{
    if (q->on)
        gsp_trail_close(&q->theirs);
    memset(q, 0, sizeof *q);
}

void gsp_inquiry_ask(const gsp_inquiry *q, const gsp_trail *mine, gsp_chain_ask *out)
{
    gsp_trail_ask(mine, out);
    if (q->begun)
        *out = (gsp_chain_ask){.n = 1, .known = {q->last}};
}

/* What both have is taken from mine. */
static bool begin(gsp_inquiry *q, const gsp_trail *mine, const gsp_hash *after)
{
    gsp_trail shared = *mine;
    uint32_t n = gsp_hash_none(after) ? 0 : gsp_trail_find(mine, after) + 1;
    if (n > mine->n)
        return false;
    shared.n = n; /* the steps are not copied twice, and not given away */
    gsp_trail_lead(mine, n, &shared.end);
    q->begun = true;
    q->shared = n;
    return gsp_trail_copy(&q->theirs, &shared) == ATOM_OK;
}

/* Of what both have, mine is kept: an id says nothing of the signatures that come with a step. */
static bool take(gsp_inquiry *q, const gsp_trail *mine, const gsp_step *step)
{
    uint32_t at = q->theirs.n;
    gsp_step own;
    if (step->is_genesis ? step->as.genesis.roster.n > GSP_MEMBERS_MAX
                         : step->as.link.head.next.n > GSP_MEMBERS_MAX)
        return false;
    gsp_step_id(mine->terms->seals, step, &q->last);
    bool known = at == q->shared && at < mine->n && gsp_hash_equal(&mine->step[at].id, &q->last);
    if (!known)
        return gsp_trail_add(&q->theirs, step, false) == ATOM_OK;
    q->shared++;
    gsp_trail_read(mine, at, &own);
    return gsp_trail_add(&q->theirs, &own, true) == ATOM_OK;
}

gsp_inquiry_news gsp_inquiry_heard(gsp_inquiry *q, const gsp_trail *mine,
                                   const gsp_chain_said *said, uint64_t now_ns)
{
    q->heard_ns = now_ns;
    if (said->n > GSP_CHAIN_SAID_MAX || (said->more && said->n == 0))
        return GSP_INQUIRY_WRONG;
    if (!q->begun && !begin(q, mine, &said->after))
        return GSP_INQUIRY_WRONG;
    if (!gsp_hash_none(&q->last) && !gsp_hash_equal(&q->last, &said->after))
        return GSP_INQUIRY_WRONG;
    for (uint32_t k = 0; k < said->n; k++)
        if (!take(q, mine, &said->step[k]))
            return GSP_INQUIRY_WRONG;
    return said->more ? GSP_INQUIRY_GOES : GSP_INQUIRY_WHOLE;
}

bool gsp_inquiry_over(const gsp_inquiry *q, uint64_t now_ns)
{
    return q->on && (now_ns - q->heard_ns > PAGE_NS || now_ns - q->began_ns > WHOLE_NS);
}
