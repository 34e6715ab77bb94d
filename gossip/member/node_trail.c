/*
 * Owns the chain that led here (trail.h, trail_file.h): how a member finds it again, lets it grow and
 * takes another. Its one idea: whatever moment the member is killed at, the chain on disk leads to
 * the state on disk, or others have it. It refuses to stop the training for a chain that is full.
 */
#include "gossip/member/node_inner.h"

#include "atom/base/clock.h"
#include "atom/base/log.h"

atom_status gsp_node_chain_open(gsp_node *n, const gsp_saved *saved)
{
    gsp_trail *t = &n->trail;
    n->chain_terms = (gsp_chain_terms){
        .seals = &n->seals, .trust = n->config.rules.trust, .owner = n->config.rules.owner};
    gsp_genesis_hash(&n->seals, &n->config.genesis, &n->chain_terms.first);
    gsp_trail_open(t, &n->chain_terms);
    gsp_trail_open(&n->hope, &n->chain_terms);
    n->mate_ns = atom_clock_ns();
    if (!saved)
        return ATOM_OK;
    bool leads;
    ATOM_TRY(gsp_trail_recall(t, n->config.directory, saved, &leads));
    if (leads)
        return ATOM_OK;
    gsp_hash lineage;
    gsp_genesis_hash(&n->seals, &saved->genesis, &lineage);
    if (gsp_hash_equal(&lineage, &n->chain_terms.first) && !saved->has_certificate) {
        ATOM_TRY(gsp_trail_begin(t, NULL, &saved->genesis));
        return gsp_trail_save(t, n->config.directory, 0);
    }
    atom_log(
        ATOM_LOG_WARN,
        "%s: the chain of rosters that led to this state is lost or damaged; it will be fetched "
        "from others",
        n->config.directory);
    return ATOM_OK;
}

void gsp_node_chain_close(gsp_node *n)
{
    gsp_inquiry_close(&n->inquiry);
    gsp_trail_close(&n->hope);
    gsp_trail_close(&n->trail);
}

bool gsp_node_chain_is_lost(const gsp_node *n)
{
    return n->trail.n == 0 && !gsp_hash_none(&n->agree.lineage);
}

/* Whoever comes changes the roster, so the start of the lineage is the last step no more. */
bool gsp_node_chain_is_alone(const gsp_node *n)
{
    const gsp_genesis *g = &n->agree.genesis;
    bool ordered = g->reset && gsp_hash_equal(&g->order.parent, &g->parent);
    return g->generation > 0 && g->roster.n == 0 && !ordered && n->trail.n > 0 &&
           gsp_hash_equal(&n->trail.step[n->trail.n - 1].id, &n->agree.lineage);
}

/* The chain may have grown while the state came: only what leads to the state is looked at. */
void gsp_node_chain_reach(gsp_node *n, const gsp_saved *saved)
{
    gsp_step newest;
    bool known = gsp_trail_back(&n->hope, saved); /* false: its last step comes now, or never */
    (void)known;
    if (gsp_trail_tail(&n->hope, saved, &newest) &&
        gsp_trail_add(&n->hope, &newest, false) != ATOM_OK)
        atom_log(ATOM_LOG_WARN,
                 "the state that was received does not fit its chain of rosters: "
                 "%s",
                 atom_fail_message());
}

atom_status gsp_node_chain_adopt(gsp_node *n)
{
    ATOM_TRY(gsp_trail_copy(&n->trail, &n->hope));
    ATOM_TRY(gsp_trail_settle(&n->trail, &n->saved));
    return gsp_trail_save_next(&n->trail, n->config.directory);
}

atom_status gsp_node_chain_turned(gsp_node *n)
{
    return gsp_trail_turn(n->config.directory);
}

/* Training and averaging need no chain: only those who come do. */
static void say_full(gsp_node *n)
{
    if (!n->chain_full)
        atom_log(
            ATOM_LOG_WARN,
            "%s: the chain of rosters is full after %u changes. Training goes on, but nobody can "
            "join or come back until the pool's owner starts a new chain (atom pool reset)",
            n->config.directory, n->trail.n);
    n->chain_full = true;
}

atom_status gsp_node_chain_certify(gsp_node *n, const gsp_certificate *c)
{
    gsp_trail *t = &n->trail;
    uint32_t before = t->n;
    if (before == 0 || gsp_roster_equal(&c->proposal.next, &t->end.roster))
        return ATOM_OK;
    if (gsp_trail_is_full(t)) {
        say_full(n);
        return ATOM_OK;
    }
    ATOM_TRY(gsp_trail_certify(t, c));
    return gsp_trail_save(t, n->config.directory, before);
}

atom_status gsp_node_chain_found(gsp_node *n, const gsp_genesis *genesis)
{
    gsp_trail *t = &n->trail;
    const gsp_certificate *newest = n->saved.has_certificate ? &n->saved.certificate : NULL;
    uint32_t before = t->n;
    bool resets = genesis->reset > n->saved.genesis.reset;
    if (before == 0 && resets) /* what was lost before it needs not be shown any more */
        ATOM_TRY(gsp_trail_begin(t, NULL, &n->config.genesis));
    if (t->n == 0)
        return ATOM_OK;
    if (!resets && gsp_trail_is_full(t)) {
        say_full(n);
        return ATOM_OK;
    }
    ATOM_TRY(gsp_trail_begin(t, newest, genesis));
    n->chain_full &= !resets;
    return resets ? gsp_trail_save_next(t, n->config.directory)
                  : gsp_trail_save(t, n->config.directory, before);
}
