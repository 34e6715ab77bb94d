/*
 * Owns the talk with one peer about its chain. Its one idea: what both have is not sent and not
 * checked again, and everything else is checked before the next question, so it stays right when the
 * peer turns out to be slow or a liar. It refuses a peer that brings little in its time: others
 * wait for their turn.
 */
#include "gossip/member/inquiry.h"

#include "atom/base/mem.h"

#include <string.h>

static const uint64_t SECOND = 1000000000u;
static const uint64_t PAGE_NS = 5000000000u;    /* for one answer */
static const uint64_t TURN_NS = 20000000000u;   /* in which it need not be quick */
static const uint64_t KEPT_NS = 3600000000000u; /* how long what came is kept */
enum { STEPS_PER_S = 4 };                       /* that it must bring after that */

void gsp_inquiry_begin(gsp_inquiry *q, const gsp_chain_terms *terms, const gsp_key *of,
                       uint64_t now_ns)
{
    gsp_inquiry_end(q);
    if (q->kept.n && now_ns - q->kept_ns > KEPT_NS)
        gsp_trail_close(&q->kept);
    gsp_trail kept = q->kept;
    *q = (gsp_inquiry){.on = true,
                       .of = *of,
                       .began_ns = now_ns,
                       .heard_ns = now_ns,
                       .kept = kept,
                       .kept_ns = q->kept_ns};
    gsp_trail_open(&q->theirs, terms);
    if (!q->kept.terms)
        gsp_trail_open(&q->kept, terms);
}

/* The longer one: each of its steps has the votes that it needs, whoever sent it. */
static void keep(gsp_inquiry *q)
{
    gsp_trail shorter = q->kept;
    if (q->whole || q->theirs.n <= q->shared || q->theirs.n <= q->kept.n)
        return;
    q->kept = q->theirs;
    q->theirs = shorter;
    q->kept_ns = q->heard_ns;
}

/* The chain that came says all that the kept one does. */
static bool outdated(const gsp_inquiry *q)
{
    return q->whole && q->kept.n &&
           gsp_trail_find(&q->theirs, &q->kept.step[q->kept.n - 1].id) < q->theirs.n;
}

void gsp_inquiry_end(gsp_inquiry *q)
{
    if (!q->on)
        return;
    keep(q);
    if (outdated(q))
        gsp_trail_close(&q->kept);
    gsp_trail_close(&q->theirs);
    *q = (gsp_inquiry){.kept = q->kept, .kept_ns = q->kept_ns};
}

void gsp_inquiry_close(gsp_inquiry *q)
{
    if (q->on)
        gsp_trail_close(&q->theirs);
    gsp_trail_close(&q->kept);
    memset(q, 0, sizeof *q);
}

void gsp_inquiry_ask(const gsp_inquiry *q, const gsp_trail *mine, gsp_chain_ask *out)
{
    gsp_chain_ask more;
    gsp_trail_ask(mine, out);
    gsp_trail_ask(&q->kept, &more);
    for (uint32_t k = 0; k < more.n && out->n < GSP_LOCATOR_MAX; k++)
        out->known[out->n++] = more.known[k];
    if (q->begun)
        *out = (gsp_chain_ask){.n = 1, .known = {q->last}};
}

/* What both have is taken from mine, or from what an earlier talk brought. */
static bool begin(gsp_inquiry *q, const gsp_trail *mine, const gsp_hash *after)
{
    uint32_t at = gsp_trail_find(mine, after), kept = gsp_trail_find(&q->kept, after);
    bool earlier = at == mine->n && kept < q->kept.n;
    gsp_trail shared = earlier ? q->kept : *mine;
    uint32_t n = gsp_hash_none(after) ? 0 : 1 + (earlier ? kept : at);
    if (n > shared.n)
        return false;
    shared.n = n; /* the steps are not copied twice, and not given away */
    gsp_trail_lead(&shared, n, &shared.end);
    q->begun = true;
    q->shared = 0;
    while (q->shared < n && q->shared < mine->n &&
           gsp_hash_equal(&mine->step[q->shared].id, &shared.step[q->shared].id))
        q->shared++;
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
    q->n_came++;
    if (!known) {
        bool taken = gsp_trail_add(&q->theirs, step, false) == ATOM_OK;
        if (taken && q->theirs.n <= at) /* a reset took the place of what was there */
            q->shared = 1;
        return taken;
    }
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
    q->whole = !said->more;
    return said->more ? GSP_INQUIRY_GOES : GSP_INQUIRY_WHOLE;
}

bool gsp_inquiry_over(const gsp_inquiry *q, uint64_t now_ns)
{
    uint64_t took_ns = now_ns - q->began_ns;
    return q->on && (now_ns - q->heard_ns > PAGE_NS ||
                     (took_ns > TURN_NS && q->n_came < took_ns / SECOND * STEPS_PER_S));
}
