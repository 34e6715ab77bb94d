/*
 * Owns what is heard of others' chains (inquiry.h), and answers for its own. Its one idea: one
 * peer is asked at a time, everybody is answered, and a state is fetched only at the end of a chain
 * that was checked and wins. It refuses to move a member whose own chain is lost, as long as there
 * is somebody to get it from.
 */
#include "gossip/member/node_inner.h"

#include "atom/base/clock.h"

enum {
    ANSWERS_PER_S = 50,
    MATELESS =
        6, /* T_fork / so much without anybody of its lineage, and a lost chain is given up */
};
static const uint64_t MEND_NS = 5000000000u; /* between two questions for a lost chain */
static const uint64_t SECOND = 1000000000u;

/* What a chain is compared with: the one that is being followed already. */
static const gsp_trail *mine(const gsp_node *n, const gsp_saved **saved)
{
    bool hoping = n->fetch != NULL;
    *saved = hoping || gsp_hash_none(&n->agree.lineage) ? NULL : &n->saved;
    return hoping ? &n->hope : &n->trail;
}

static void tell(gsp_node *n, const gsp_key *key)
{
    const gsp_saved *saved;
    gsp_message *m = gsp_friends_draft(&n->friends, GSP_CHAIN_ASK);
    gsp_inquiry_ask(&n->inquiry, mine(n, &saved), &m->as.chain_ask);
    m->version = 0;
    gsp_friends_tell(&n->friends, gsp_friends_find(&n->friends, key), m);
}

/* False: it has no link. */
static bool asks(gsp_node *n, const gsp_key *key)
{
    if (!gsp_friends_find(&n->friends, key))
        return false;
    gsp_inquiry_begin(&n->inquiry, &n->chain_terms, key, atom_clock_ns());
    n->inquiry_hopes = n->fetch != NULL;
    tell(n, key);
    return true;
}

static atom_status want_state(gsp_node *n)
{
    const gsp_fetch_config use = {
        .friends = &n->friends,
        .work = &n->config.work,
        .n_fragments = n->terms.n_fragments,
        .directory = n->config.directory,
        .terms = &n->chain_terms,
        .counts = &n->fetched,
    };
    n->state_due = false;
    ATOM_TRY(gsp_trail_copy(&n->hope, &n->inquiry.theirs));
    if (n->fetch && gsp_fetch_follow(n->fetch, &n->hope.end))
        return ATOM_OK;
    gsp_fetch_close(&n->fetch);
    n->fetch = gsp_fetch_open(&use, &n->hope.end); /* without memory the machine asks again */
    return ATOM_OK;
}

/* It leads to where I am: it is mine as well. */
static atom_status mend(gsp_node *n)
{
    ATOM_TRY(gsp_trail_copy(&n->trail, &n->inquiry.theirs));
    if (!gsp_trail_back(&n->trail, &n->saved))
        gsp_trail_cut(&n->trail, 0);
    return n->trail.n ? gsp_trail_save(&n->trail, n->config.directory, 0) : ATOM_OK;
}

/* Without a chain of my own I cannot judge those of others. But the owner's reset stands by itself,
 * and where nobody is left who has mine, I am as good as new. */
static bool judges_as_newcomer(const gsp_node *n)
{
    return n->inquiry.theirs.end.reset > n->agree.genesis.reset ||
           atom_clock_ns() - n->mate_ns > n->config.rules.fork_ns / MATELESS;
}

static atom_status whole(gsp_node *n)
{
    gsp_event event = {.kind = GSP_ON_CHAIN, .peer = n->inquiry.of};
    const gsp_saved *saved;
    gsp_match match;
    bool lost = gsp_node_chain_is_lost(n);
    if (lost)
        ATOM_TRY(mend(n));
    if (!lost || (gsp_node_chain_is_lost(n) && judges_as_newcomer(n))) {
        const gsp_trail *here = mine(n, &saved);
        gsp_trail_match(here, saved, &n->inquiry.theirs, &match);
        event.match = &match;
    }
    gsp_node_step(n, &event);
    atom_status st = ATOM_OK;
    /* The chain of the state that is being fetched has grown: that is nothing to decide. */
    bool grown = event.match && n->fetch && !n->state_due &&
                 gsp_hash_equal(&match.theirs.chain.lineage, &n->hope.end.lineage) &&
                 gsp_match_judge(&match, n->config.rules.trust, (gsp_plight){0}) == GSP_GO;
    if (n->state_due || grown)
        st = want_state(n);
    gsp_inquiry_end(&n->inquiry);
    return st;
}

static void nothing_came(gsp_node *n)
{
    gsp_event event = {.kind = GSP_ON_CHAIN, .peer = n->inquiry.of};
    gsp_inquiry_end(&n->inquiry);
    gsp_node_step(n, &event);
}

static void answer(gsp_node *n, gsp_friend *to, const gsp_chain_ask *what)
{
    uint32_t i = gsp_friends_index(&n->friends, to);
    uint64_t second = atom_clock_ns() / SECOND;
    const gsp_chain_ask known = *what; /* the draft may be where it lies */
    if (n->answered[i].second != second)
        n->answered[i].n = 0;
    n->answered[i].second = second;
    /* an empty chain is an answer, too */
    if (++n->answered[i].n > ANSWERS_PER_S || !gsp_donor_may_give(&n->donor, to))
        return;
    gsp_message *m = gsp_friends_draft(&n->friends, GSP_CHAIN);
    gsp_trail_answer(&n->trail, &n->saved, &known, &m->as.chain);
    m->version = 0;
    gsp_donor_gave(&n->donor, to, gsp_friends_tell(&n->friends, to, m));
}

void gsp_node_chain_heard(gsp_node *n, gsp_friend *from, const gsp_message *m)
{
    gsp_inquiry *q = &n->inquiry;
    const gsp_saved *saved;
    atom_status st = ATOM_OK;
    if (m->kind == GSP_CHAIN_ASK) {
        answer(n, from, &m->as.chain_ask);
        return;
    }
    if (!q->on || gsp_key_compare(&q->of, &from->key) != 0)
        return;
    if (n->inquiry_hopes != (n->fetch != NULL)) { /* it was compared with something else */
        nothing_came(n);
        return;
    }
    switch (gsp_inquiry_heard(q, mine(n, &saved), &m->as.chain, atom_clock_ns())) {
    case GSP_INQUIRY_GOES:
        tell(n, &from->key);
        break;
    case GSP_INQUIRY_WHOLE:
        st = whole(n);
        break;
    case GSP_INQUIRY_WRONG:
        n->status.refused++;
        nothing_came(n);
        break;
    }
    if (st != ATOM_OK)
        gsp_node_die(n, st);
}

void gsp_node_chain_down(gsp_node *n, const gsp_key *key)
{
    if (n->inquiry.on && gsp_key_compare(&n->inquiry.of, key) == 0)
        gsp_inquiry_end(&n->inquiry);
}

/* Whose heartbeat says that it is in my lineage, each time another. */
static const gsp_key *mate(gsp_node *n)
{
    for (uint32_t k = 0; k < GSP_PEERS_KNOWN_MAX; k++) {
        const gsp_peer *p = &n->agree.peer[n->mend_turn++ % GSP_PEERS_KNOWN_MAX];
        if (p->known && p->up && gsp_hash_equal(&p->lineage, &n->agree.lineage))
            return &p->who.key;
    }
    return NULL;
}

/* Asks another member of the lineage for a chain that was lost, once in MEND_NS. */
static bool asks_mate(gsp_node *n, uint64_t now)
{
    const gsp_key *of = gsp_node_chain_is_lost(n) ? mate(n) : NULL;
    if (!of)
        return false;
    n->mate_ns = now;
    if (now - n->mended_ns <= MEND_NS)
        return false;
    n->mended_ns = now;
    return asks(n, of);
}

void gsp_node_chain_turn(gsp_node *n)
{
    uint64_t now = atom_clock_ns();
    gsp_key key;
    if (gsp_inquiry_over(&n->inquiry, now))
        nothing_came(n);
    if (n->inquiry.on || n->dead != ATOM_OK)
        return;
    /* What this member looks for itself, and the machine's questions, take turns. */
    if (!(n->chain_due && n->chain_waits) &&
        (asks_mate(n, now) || (n->fetch && gsp_fetch_lags(n->fetch, &key) && asks(n, &key)))) {
        n->chain_waits = true;
    } else if (n->chain_due) {
        n->chain_due = n->chain_waits = false;
        asks(n, &n->chain_of);
    }
}
