/*
 * Owns what a chain shows. Its one idea: each step is judged by the roster that the steps before it
 * led to, from the one thing that everybody knows. It refuses to believe numbers that no quorum of
 * the common roster stands behind.
 */
#include "gossip/agree/certificate_chain.h"

#include "gossip/agree/proposal.h"

#include <string.h>

void gsp_step_id(const gsp_seals *seals, const gsp_step *step, gsp_hash *out)
{
    if (step->is_genesis)
        gsp_genesis_hash(seals, &step->as.genesis, out);
    else
        gsp_head_hash(seals, &step->as.link.head, out);
}

void gsp_chain_link_of(const gsp_seals *seals, const gsp_certificate *c, gsp_chain_link *out)
{
    gsp_head_of(seals, &c->proposal, &out->head);
    out->ballot = c->ballot;
    out->n_votes = c->n_votes;
    memcpy(out->vote, c->vote, sizeof out->vote);
}

/* ---- one step ---- */

static bool votes_right(const gsp_chain_terms *t, const gsp_roster *roster, const gsp_hash *id,
                        const gsp_chain_link *link, bool known)
{
    uint32_t voters = 0;
    gsp_statement vote = {.kind = GSP_SAYS_VOTE,
                          .lineage = link->head.lineage,
                          .version = link->head.version,
                          .ballot = link->ballot,
                          .subject = *id};
    if (link->n_votes > roster->n)
        return false;
    for (uint32_t k = 0; k < link->n_votes; k++) {
        uint32_t m = link->vote[k].member;
        if (m >= roster->n || (voters >> m) != 0)
            return false;
        voters |= 1u << m;
    }
    if (!gsp_quorum(t->trust, roster->n, voters))
        return false;
    for (uint32_t k = 0; k < link->n_votes && !known; k++) {
        vote.signer = roster->member[link->vote[k].member];
        memcpy(vote.seal, link->vote[k].seal, sizeof vote.seal);
        if (!gsp_statement_verify(t->seals, &vote))
            return false;
    }
    return true;
}

static uint32_t joined(const gsp_roster *before, const gsp_roster *next)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < next->n; i++)
        n += gsp_roster_find_key(before, &next->member[i].key) == GSP_NOBODY;
    return n;
}

static const char *take_link(const gsp_chain_terms *t, gsp_chain *c, const gsp_chain_link *link,
                             bool known)
{
    const gsp_head *h = &link->head;
    gsp_hash id;
    if (c->n == 0)
        return "a chain that does not begin with the pool's first lineage";
    if (c->still)
        return "a certificate after one that changed nothing";
    if (!gsp_hash_equal(&h->lineage, &c->lineage) || h->version <= c->version ||
        h->version > GSP_VERSION_MAX || h->tokens > GSP_CERTIFIED_MAX ||
        h->samples > GSP_CERTIFIED_MAX)
        return "a certificate of another place";
    if (!gsp_roster_sane(&h->next) || joined(&c->roster, &h->next) > gsp_joiners_max(&c->roster))
        return "a roster that cannot follow";
    bool same = gsp_roster_equal(&c->roster, &h->next);
    if (h->since != c->made || h->made != (same ? c->made : h->version))
        return "a change of the roster that was left out";
    if (h->tokens < c->tokens || h->samples < c->samples)
        return "tokens or samples that shrink";
    gsp_head_hash(t->seals, h, &id);
    if (!votes_right(t, &c->roster, &id, link, known))
        return "a certificate without the votes of a quorum";
    c->still = same;
    c->made = h->made;
    c->version = h->version;
    c->tokens = h->tokens;
    c->samples = h->samples;
    c->newest = id;
    c->voters = c->roster;
    c->roster = h->next;
    return NULL;
}

/* The owner's own word, which needs nobody's votes before it: the founder is the owner, who signs
 * all of it, and the order is for the place that it names. */
static const char *reset_wrong(const gsp_chain_terms *t, const gsp_chain *c, const gsp_genesis *g)
{
    if (g->generation <= c->generation || g->cell != 0 || !gsp_hash_equal(&g->pool, &c->pool) ||
        !gsp_hash_equal(&g->order.parent, &g->parent) || g->order.version != g->version ||
        gsp_key_compare(&g->founder.key, &t->owner) != 0 || g->roster.n)
        return "a reset that was not ordered for this place";
    return NULL;
}

/* A fork continues exactly where the chain is, under the same order. */
static const char *fork_wrong(const gsp_chain *c, const gsp_genesis *g)
{
    if (g->generation != c->generation + 1 || g->cell != 0 || !gsp_hash_equal(&g->pool, &c->pool) ||
        !gsp_hash_equal(&g->parent, &c->lineage) || g->version != c->version ||
        !gsp_hash_equal(&g->previous, &c->newest) || g->tokens != c->tokens ||
        g->samples != c->samples)
        return "a lineage that does not continue the one before";
    return g->reset == c->reset && memcmp(&g->order, &c->order, sizeof g->order) == 0
               ? NULL
               : "another order";
}

/* Whoever begins a fork was on the roster that it leaves, and is somebody new there. */
static bool founders_follow(const gsp_roster *left, const gsp_genesis *g)
{
    for (uint32_t i = 0; i < g->roster.n; i++) {
        uint32_t was = gsp_roster_find_key(left, &g->roster.member[i].key);
        if (was == GSP_NOBODY || g->roster.member[i].incarnation <= left->member[was].incarnation)
            return false;
    }
    return true;
}

static const char *take_genesis(const gsp_chain_terms *t, gsp_chain *c, const gsp_genesis *g,
                                bool known)
{
    gsp_hash id;
    if (g->roster.n > GSP_MEMBERS_MAX)
        return "a roster too large";
    gsp_genesis_hash(t->seals, g, &id);
    if (c->n == 0) {
        if (!gsp_hash_equal(&id, &t->first))
            return "the first lineage of another pool";
        const char *wrong = known ? NULL : gsp_genesis_wrong(t->seals, &t->owner, g);
        if (wrong)
            return wrong;
        c->pool = g->pool;
    } else {
        const char *wrong = g->reset > c->reset ? reset_wrong(t, c, g) : fork_wrong(c, g);
        if (!wrong && !founders_follow(&c->roster, g))
            wrong = "a fork of others than were on the roster";
        if (!wrong && !known)
            wrong = gsp_genesis_wrong(t->seals, &t->owner, g);
        if (wrong)
            return wrong;
    }
    c->lineage = c->newest = id;
    c->reset = g->reset;
    c->generation = g->generation;
    c->order = g->order;
    c->version = c->made = g->version;
    c->tokens = g->tokens;
    c->samples = g->samples;
    c->still = false;
    memset(&c->voters, 0, sizeof c->voters);
    gsp_genesis_roster(g, &c->roster);
    return NULL;
}

const char *gsp_chain_take(const gsp_chain_terms *t, gsp_chain *c, const gsp_step *step, bool known)
{
    if (c->n >= GSP_CHAIN_STEPS_MAX)
        return "a chain that is too long";
    const char *wrong = step->is_genesis ? take_genesis(t, c, &step->as.genesis, known)
                                         : take_link(t, c, &step->as.link, known);
    c->n += !wrong;
    return wrong;
}

bool gsp_chain_shows(const gsp_chain_terms *t, const gsp_chain *c, const gsp_certificate *what)
{
    gsp_step step = {.is_genesis = false};
    gsp_hash id;
    gsp_chain there = *c;
    if (c->n == 0 || !gsp_proposal_fits(&what->proposal))
        return false;
    gsp_chain_link_of(t->seals, what, &step.as.link);
    gsp_step_id(t->seals, &step, &id);
    if (gsp_hash_equal(&id, &c->newest))
        return votes_right(t, &c->voters, &id, &step.as.link, false);
    there.still = false;
    return !gsp_chain_take(t, &there, &step, false);
}

/* ---- two chains ---- */

void gsp_match_begin(gsp_match *m, const gsp_chain *common)
{
    memset(m, 0, sizeof *m);
    m->common = *common;
    m->mine.chain = m->theirs.chain = *common;
    m->mine.common = m->theirs.common = common->roster;
}

static uint32_t bit_of(const gsp_roster *roster, const gsp_key *key)
{
    uint32_t i = gsp_roster_find_key(roster, key);
    return i == GSP_NOBODY ? 0 : 1u << i;
}

/* Who of the roster that was left are behind this step: its voters, or who begins with it. */
static uint32_t behind(const gsp_roster *left, const gsp_roster *voters, const gsp_step *step)
{
    const gsp_chain_link *link = &step->as.link;
    uint32_t bits = 0;
    for (uint32_t k = 0; step->is_genesis && k < voters->n; k++)
        bits |= bit_of(left, &voters->member[k].key);
    for (uint32_t k = 0; !step->is_genesis && k < link->n_votes; k++)
        bits |= bit_of(left, &voters->member[link->vote[k].member].key);
    return bits;
}

static uint32_t n_behind(const gsp_side *s)
{
    return (uint32_t)__builtin_popcount(s->behind);
}

const char *gsp_match_take(const gsp_chain_terms *t, gsp_side *s, const gsp_step *step, bool known)
{
    gsp_roster before = s->chain.roster;
    bool begins = s->chain.n == 0;
    uint32_t reset = s->chain.reset;
    const char *wrong = gsp_chain_take(t, &s->chain, step, known);
    if (wrong || begins) /* the first lineage is no fork */
        return wrong;
    if (s->chain.reset > reset) { /* from the owner's word on everything begins anew */
        *s = (gsp_side){.chain = s->chain, .reset = true, .first_id = s->chain.lineage};
        return NULL;
    }
    const gsp_roster *voters = step->is_genesis ? &s->chain.roster : &before;
    s->stood |= behind(&s->common, voters, step);
    if (!s->forked && step->is_genesis) {
        s->forked = true;
        s->before = before;
    }
    if (s->forked) {
        s->behind = behind(&s->before, voters, step);
        return NULL;
    }
    s->reach = s->chain.version;
    if (s->links++ == 0) {
        s->first = s->reach;
        s->first_id = s->chain.newest;
        s->still = s->chain.still;
    }
    return NULL;
}

/* Where a side left the common lineage, or is in it. */
static uint64_t place(const gsp_match *m, const gsp_side *s)
{
    return s->links ? s->reach : m->common.version;
}

/* a is on the way of b: it has certified nothing more, or one version that changed no roster, and b
 * goes on after it. */
static bool on_the_way(const gsp_side *a, const gsp_side *b)
{
    return a->links == 0 || (a->links == 1 && a->still && b->links && a->first < b->first);
}

static bool trusted(const gsp_side *s, gsp_trust trust)
{
    return n_behind(s) > gsp_liars_max(trust, s->before.n);
}

/* Of two forks, which of two that may both be trusted, or may not. */
static bool better(const gsp_side *theirs, const gsp_side *mine)
{
    const gsp_chain *a = &theirs->chain, *b = &mine->chain;
    if (n_behind(theirs) != n_behind(mine))
        return n_behind(theirs) > n_behind(mine);
    if (a->tokens != b->tokens)
        return a->tokens > b->tokens;
    if (a->generation != b->generation)
        return a->generation > b->generation;
    return memcmp(a->lineage.byte, b->lineage.byte, sizeof a->lineage.byte) < 0;
}

/* Both were left by few: only a member that gave up goes, to those that are more than itself. */
static bool goes_to_few(const gsp_side *mine, const gsp_side *theirs, gsp_plight plight)
{
    uint32_t here = mine->chain.roster.n, there = theirs->chain.roster.n;
    return plight.gave_up && (here != there ? there > here : better(theirs, mine));
}

static bool goes_to_fork(const gsp_side *mine, const gsp_side *theirs, gsp_trust trust,
                         gsp_plight plight)
{
    if (!trusted(mine, trust) && !trusted(theirs, trust))
        return goes_to_few(mine, theirs, plight);
    return trusted(theirs, trust) && (!trusted(mine, trust) || better(theirs, mine));
}

/* Two quorums of one roster signed two things, and nobody can tell which is right. For a newcomer
 * they differ by what cannot be made up without the keys of that roster, or else by what never
 * changes. */
static gsp_choice divided(const gsp_side *mine, const gsp_side *theirs, gsp_trust trust,
                          gsp_plight plight)
{
    bool here = !mine->forked || trusted(mine, trust);
    bool there = !theirs->forked || trusted(theirs, trust);
    int more = __builtin_popcount(theirs->stood) - __builtin_popcount(mine->stood);
    if (!plight.newcomer)
        return GSP_DIVIDED;
    if (here != there)
        return there ? GSP_GO : GSP_DIVIDED;
    if (more == 0)
        more = memcmp(theirs->first_id.byte, mine->first_id.byte, sizeof mine->first_id.byte) < 0;
    return more > 0 ? GSP_GO : GSP_DIVIDED;
}

/* Of two resets with one number everybody follows the same one, or the pool stays divided. */
static gsp_choice goes_to_twin(const gsp_side *mine, const gsp_side *theirs, gsp_trust trust)
{
    int order = memcmp(theirs->first_id.byte, mine->first_id.byte, sizeof mine->first_id.byte);
    if (order == 0)
        return GSP_DIVIDED;
    return order < 0 && (!theirs->forked || trusted(theirs, trust)) ? GSP_GO : GSP_STAY;
}

gsp_choice gsp_match_judge(const gsp_match *m, gsp_trust trust, gsp_plight plight)
{
    const gsp_side *mine = &m->mine, *theirs = &m->theirs;
    uint64_t here = place(m, mine), there = place(m, theirs);
    if (mine->chain.n == 0 || theirs->chain.n == 0) /* a newcomer follows the first that it meets */
        return theirs->chain.n ? GSP_GO : GSP_STAY;
    if (theirs->chain.reset > mine->chain.reset)
        return !theirs->forked || trusted(theirs, trust) ? GSP_GO : GSP_STAY;
    if (theirs->chain.reset < mine->chain.reset)
        return GSP_STAY;
    if (theirs->reset || mine->reset) /* two resets with one number: the owner forgot the first */
        return goes_to_twin(mine, theirs, trust);
    if (theirs->links == 0 && !theirs->forked)
        return GSP_STAY;
    bool few = !mine->forked || !trusted(mine, trust); /* or too few went on here */
    if (few && theirs->forked && plight.gave_up &&
        (trusted(theirs, trust) || (!mine->forked && there >= here)))
        return GSP_GO;
    bool same = mine->links && theirs->links && here == there && mine->links == 1 &&
                theirs->links == 1 && gsp_hash_equal(&mine->first_id, &theirs->first_id);
    if (!same && !on_the_way(mine, theirs) && !on_the_way(theirs, mine))
        return divided(mine, theirs, trust, plight);
    if (there < here)
        return GSP_STAY;
    if (!theirs->forked)
        return there > here ? GSP_GO : GSP_STAY;
    if (mine->forked && there > here)
        return trusted(theirs, trust) || goes_to_few(mine, theirs, plight) ? GSP_GO : GSP_STAY;
    if (mine->forked)
        return goes_to_fork(mine, theirs, trust, plight) ? GSP_GO : GSP_STAY;
    bool most = gsp_quorum(trust, theirs->before.n, theirs->behind);
    return trusted(theirs, trust) && (most || plight.waits) ? GSP_GO : GSP_STAY;
}
