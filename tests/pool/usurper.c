/*
 * Makes node.c a member that wants to be followed: linked into a program of its own with what says and
 * answers wrapped (CMakeLists.txt). Once four members are on the roster, it claims in heartbeats lineages
 * that it makes up, each with 2^60 tokens, one after another:
 *
 *   0  a fork from now, of itself alone, rightly signed
 *   1  a certificate of the pool's own lineage with votes of all that are random bytes, and itself alone
 *      on the next roster
 *   2  a fork from now of the whole roster, with consents and votes that are random bytes
 *   3  a fork of itself alone from the pool's beginning
 *
 * and says the same in its chain and in its state. USURPER_SILENT: it only claims, and answers nobody
 * who asks for a chain or a state. In all else it is an honest member. It prints how often it did what.
 */
#include "gossip/agree/agree_inner.h"
#include "gossip/member/node_inner.h"
#include "gossip/trust/identity.h"

#include "atom/base/clock.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__typeof__(gsp_friends_say) __real_gsp_friends_say, __wrap_gsp_friends_say;
__typeof__(gsp_friends_tell) __real_gsp_friends_tell, __wrap_gsp_friends_tell;
__typeof__(gsp_trail_answer) __real_gsp_trail_answer, __wrap_gsp_trail_answer;
__typeof__(gsp_node_chain_heard) __real_gsp_node_chain_heard, __wrap_gsp_node_chain_heard;
__typeof__(gsp_donor_asked) __real_gsp_donor_asked, __wrap_gsp_donor_asked;

enum { KINDS = 4, MEMBERS = 4 };
static const uint64_t TELLS_NS = 1500000000, TOKENS = (uint64_t)1 << 60;

static gsp_trail lie;
static gsp_saved lie_saved;
static uint64_t made_ns;
static unsigned n_made;

static bool silent(void)
{
    return getenv("USURPER_SILENT") != NULL;
}

static void note(const char *what, unsigned *n)
{
    printf("{\"%s\":%u}\n", what, ++*n);
}

/* A fork after where the lie ends: of itself alone, or of all with consents that nobody gave. */
static void fork_off(const gsp_node *n, bool of_all)
{
    gsp_step step = {.is_genesis = true};
    gsp_genesis *g = &step.as.genesis;
    const gsp_chain *end = &lie.end;
    gsp_hash id;
    *g = (gsp_genesis){.pool = end->pool,
                       .reset = end->reset,
                       .order = end->order,
                       .generation = end->generation + 1,
                       .parent = end->lineage,
                       .version = end->version,
                       .previous = end->newest,
                       .tokens = end->tokens,
                       .samples = end->samples,
                       .founder = n->agree.self};
    g->founder.incarnation += 1 + n_made;
    for (uint32_t i = 0; of_all && i < end->roster.n; i++) {
        gsp_member *who = &g->roster.member[g->roster.n++];
        *who = end->roster.member[i];
        who->incarnation++;
        if (gsp_key_compare(&who->key, &g->founder.key) == 0)
            g->founder = *who;
        else
            randombytes_buf(g->consent[i], sizeof g->consent[i]);
    }
    gsp_genesis_hash(&n->seals, g, &id);
    n->seals.seal(n->seals.context, id.byte, sizeof id.byte, g->seal);
    if (gsp_trail_add(&lie, &step, true) == ATOM_OK)
        lie_saved.genesis = *g;
}

/* A later version, by the votes of whoever is on the roster: its own, and random ones. */
static void certify(const gsp_node *n)
{
    const gsp_chain *end = &lie.end;
    gsp_certificate *c = &lie_saved.certificate;
    gsp_proposal *p = &c->proposal;
    *p = (gsp_proposal){.lineage = end->lineage,
                        .version = end->version + 20 + n_made, /* too far to ask for it alone */
                        .previous = end->newest,
                        .tokens = TOKENS,
                        .samples = TOKENS,
                        .n_parts = n->terms.n_parts,
                        .since = end->made,
                        .next = {.n = 1, .member = {n->agree.self}}};
    if (end->roster.n == 1)
        p->next = end->roster;
    p->made = gsp_roster_equal(&p->next, &end->roster) ? end->made : p->version;
    gsp_statement vote = {
        .kind = GSP_SAYS_VOTE, .lineage = p->lineage, .version = p->version, .ballot = 1};
    gsp_proposal_hash(&n->seals, p, &vote.subject);
    c->ballot = 1;
    c->n_votes = end->roster.n;
    for (uint32_t i = 0; i < end->roster.n; i++) {
        vote.signer = end->roster.member[i];
        randombytes_buf(vote.seal, sizeof vote.seal);
        if (gsp_key_compare(&vote.signer.key, &n->agree.self.key) == 0)
            gsp_statement_seal(&n->seals, &vote);
        c->vote[i].member = (uint8_t)i;
        memcpy(c->vote[i].seal, vote.seal, sizeof vote.seal);
    }
    lie_saved.has_certificate = true;
}

static void make_up(const gsp_node *n)
{
    unsigned kind = n_made++ % KINDS;
    gsp_step newest;
    if (gsp_trail_copy(&lie, &n->trail) != ATOM_OK)
        return;
    memset(&lie_saved, 0, sizeof lie_saved);
    lie_saved.genesis = n->saved.genesis;
    if (kind == 3)
        gsp_trail_cut(&lie, 1);
    else if (kind != 1 && gsp_trail_tail(&lie, &n->saved, &newest) &&
             gsp_trail_add(&lie, &newest, true) != ATOM_OK)
        return;
    if (kind != 1)
        fork_off(n, kind == 2);
    certify(n);
    printf("{\"made\":%u,\"kind\":%u}\n", n_made, kind);
}

void __wrap_gsp_friends_say(gsp_friends *fs, const gsp_action *action, const gsp_message *m)
{
    static gsp_message claim;
    const gsp_node *n =
        (const gsp_node *)(const void *)((const char *)fs - offsetof(gsp_node, friends));
    uint64_t now = atom_clock_ns();
    if (m->kind == GSP_HEARTBEAT && n->trail.n && now - made_ns > TELLS_NS &&
        (n_made || gsp_agree_roster(&n->agree)->n >= MEMBERS)) {
        made_ns = now;
        make_up(n);
    }
    if (m->kind != GSP_HEARTBEAT || lie.n == 0) {
        __real_gsp_friends_say(fs, action, m);
        return;
    }
    memcpy(&claim, m, gsp_message_bytes(m->kind));
    claim.lineage = lie.end.lineage;
    claim.version = claim.as.heartbeat.applied = lie_saved.certificate.proposal.version;
    claim.as.heartbeat.tokens = TOKENS;
    __real_gsp_friends_say(fs, action, &claim);
}

void __wrap_gsp_trail_answer(const gsp_trail *t, const gsp_saved *saved, const gsp_chain_ask *ask,
                             gsp_chain_said *out)
{
    static unsigned count;
    if (lie.n)
        note("told", &count);
    __real_gsp_trail_answer(lie.n ? &lie : t, lie.n ? &lie_saved : saved, ask, out);
}

/* The state's roots, as of the lineage that it made up. */
size_t __wrap_gsp_friends_tell(gsp_friends *fs, gsp_friend *to, const gsp_message *message)
{
    static gsp_message offer;
    static unsigned count;
    const gsp_node *n =
        (const gsp_node *)(const void *)((const char *)fs - offsetof(gsp_node, friends));
    gsp_state_roots *r = &offer.as.roots;
    if (message->kind != GSP_STATE_ROOTS || lie.n == 0)
        return __real_gsp_friends_tell(fs, to, message);
    memcpy(&offer, message, gsp_message_bytes(message->kind));
    r->genesis = lie_saved.genesis;
    r->has_certificate = true;
    r->certificate = lie_saved.certificate;
    for (uint32_t f = 0; f < r->n_fragments; f++)
        r->fragment[f].version =
            gsp_state_version(r->certificate.proposal.version, f, r->n_fragments);
    offer.lineage = lie.end.lineage;
    offer.from = r->genesis.founder;
    gsp_roots_seal(r, &n->seals, &offer.from, n->config.identity);
    note("offered", &count);
    return __real_gsp_friends_tell(fs, to, &offer);
}

void __wrap_gsp_node_chain_heard(gsp_node *n, gsp_friend *from, const gsp_message *m)
{
    static unsigned count;
    if (m->kind == GSP_CHAIN_ASK && lie.n && silent())
        note("kept silent", &count);
    else
        __real_gsp_node_chain_heard(n, from, m);
}

void __wrap_gsp_donor_asked(gsp_donor *donor, const gsp_friend *from)
{
    if (lie.n == 0 || !silent())
        __real_gsp_donor_asked(donor, from);
}
