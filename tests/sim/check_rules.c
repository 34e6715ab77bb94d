/*
 * Owns what must hold of every certificate's contents, however hostile its proposer was: who is on
 * the next roster, whose contributions are in it, how much anybody brought. Its one idea: it knows
 * the hosts, so it need not know what was shown or signed. It refuses to use the agreement's own
 * checks.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

/* I15 */
static void check_people(sim_world *w, const gsp_proposal *p)
{
    for (uint32_t i = 0; i < p->next.n; i++) {
        const gsp_member *who = &p->next.member[i];
        const sim_host *h = w->host[sim_host_of(w, &who->key)];
        uint64_t newest = h->self.incarnation;
        if (memcmp(&h->self.key, &who->key, sizeof who->key) != 0 || !h->started)
            sim_violate(w, "I15", "version %llu puts on the roster somebody who is nobody",
                        (unsigned long long)p->version);
        newest = h->agree.self.incarnation > newest ? h->agree.self.incarnation : newest;
        newest += sim_check_is_begun(w, &p->lineage); /* it may have signed a fork and gone since */
        if (h->hostility == SIM_HONEST && who->incarnation > newest)
            sim_violate(w, "I15", "version %llu knows host %u as incarnation %llu, and it is %llu",
                        (unsigned long long)p->version, h->index,
                        (unsigned long long)who->incarnation, (unsigned long long)newest);
    }
}

/* I15: nobody honest is off the roster that did not leave and was not silent for so long. */
static void check_dropped(sim_world *w, const gsp_proposal *before, const gsp_proposal *p)
{
    for (uint32_t i = 0; before && i < before->next.n; i++) {
        const gsp_key *key = &before->next.member[i].key;
        const sim_host *h = w->host[sim_host_of(w, key)];
        if (gsp_roster_find_key(&p->next, key) == GSP_NOBODY && h->hostility == SIM_HONEST &&
            !h->leaving && before->missed[i] + 1u < w->rules.silent_rounds)
            sim_violate(w, "I15", "version %llu drops host %u, which is honest and was not silent",
                        (unsigned long long)p->version, h->index);
    }
}

/* I16 */
static void check_parts(sim_world *w, const gsp_proposal *p)
{
    for (uint32_t k = 0; k < p->n_parts; k++) {
        uint32_t n = p->n_contributors, some = 0;
        for (uint32_t i = 0; i < n; i++)
            some += p->part[k].included >> i & 1;
        bool enough = w->rules.trust == GSP_STRANGERS ? 3 * some > 2 * n : 2 * some > n;
        if (!gsp_hash_none(&p->part[k].hash) && !enough)
            sim_violate(w, "I16", "part %u of version %llu is the sum of %u of %u", k,
                        (unsigned long long)p->version, some, n);
    }
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The count from which on a member that leans backwards weighs nothing. */
static uint32_t mutes(const sim_world *w)
{
    return w->rules.against_rounds * (w->rules.robust ? 8 : 1);
}

/* How many of the contributors had leant backwards too often before this version. */
static uint32_t backwards(const sim_world *w, const gsp_proposal *before, const gsp_proposal *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; mutes(w) && before && i < p->n_contributors; i++)
        n += before->against[p->contributor[i].member] >= mutes(w);
    return n;
}

/* I4: weights are min(tokens, 2 x lower median), and 0 for the few that lean backwards; parts and totals
 * are their exact sums. Where sums are clipped, tokens are all that the samples can have. */
static void check_sums(sim_world *w, const gsp_proposal *p)
{
    uint64_t sorted[GSP_MEMBERS_MAX] = {0}, total = 0;
    uint32_t anywhere = 0, n = p->n_contributors;
    for (uint32_t i = 0; i < n; i++)
        sorted[i] = p->contributor[i].tokens;
    qsort(sorted, n, sizeof *sorted, by_size);
    uint64_t median = n ? sorted[(n - 1) / 2] : 0;
    const gsp_certificate *last = sim_check_certificate(w, &p->lineage, p->version - 1);
    const gsp_proposal *before = last ? &last->proposal : NULL;
    uint32_t against = backwards(w, before, p);
    bool muting = against > 0 && 2 * against < n;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t tokens = p->contributor[i].tokens, cap = 2 * median;
        bool muted = muting && before->against[p->contributor[i].member] >= mutes(w);
        if (w->rules.robust && w->rules.summed && tokens != p->contributor[i].samples * w->rules.tokens_per_sample)
            sim_violate(w, "I4", "a clipped sum of version %llu weighs by a claim",
                        (unsigned long long)p->version);
        if (p->contributor[i].weight != (muted ? 0 : tokens < cap ? tokens : cap))
            sim_violate(w, "I4", "a weight of version %llu is wrong",
                        (unsigned long long)p->version);
    }
    for (uint32_t k = 0; k < p->n_parts; k++) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += p->part[k].included >> i & 1 ? p->contributor[i].weight : 0;
        if (sum != p->part[k].weight)
            sim_violate(w, "I4", "weights of part %u of version %llu sum to %llu, not %llu", k,
                        (unsigned long long)p->version, (unsigned long long)sum,
                        (unsigned long long)p->part[k].weight);
        anywhere |= p->part[k].included;
    }
    for (uint32_t i = 0; i < n; i++)
        total += anywhere >> i & 1 ? p->contributor[i].weight : 0;
    if (before && before->tokens + total != p->tokens)
        sim_violate(w, "I4", "the total of version %llu is wrong", (unsigned long long)p->version);
}

/* I10: an owner that lies about its parts is on the roster for no more than ten such versions
 * (docs/design/pool.md#hostile-members). One that withholds is found by members that remember whom
 * they asked: ten in calm. */
/* I4: how much each may bring, and what of it moves the schedule. */
static void check_amounts(sim_world *w, const gsp_proposal *before, const gsp_proposal *p)
{
    uint64_t sorted[GSP_MEMBERS_MAX], moved = 0;
    uint32_t n = p->n_contributors, anywhere = 0;
    for (uint32_t i = 0; i < n; i++) {
        const gsp_contributor *c = &p->contributor[i];
        uint32_t at = i;
        if (c->samples == 0 || c->tokens == 0 || c->samples > w->rules.samples_max ||
            c->tokens > c->samples * w->rules.tokens_per_sample)
            sim_violate(w, "I4", "version %llu counts %llu tokens of %llu samples",
                        (unsigned long long)p->version, (unsigned long long)c->tokens,
                        (unsigned long long)c->samples);
        for (; at > 0 && sorted[at - 1] > c->samples; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = c->samples;
    }
    for (uint32_t k = 0; k < p->n_parts; k++)
        anywhere |= p->part[k].included;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t most = 2 * sorted[(n - 1) / 2], brought = p->contributor[i].samples;
        if ((anywhere >> i & 1) && p->contributor[i].weight)
            moved += brought < most || w->rules.summed ? brought : most; /* there it is leased */
    }
    if (before && p->samples - before->samples > moved)
        sim_violate(w, "I4", "version %llu moves the schedule by %llu samples, and not by %llu",
                    (unsigned long long)p->version,
                    (unsigned long long)(p->samples - before->samples), (unsigned long long)moved);
}

void sim_check_contents(sim_world *w, const gsp_proposal *p)
{
    const gsp_certificate *last = sim_check_certificate(w, &p->lineage, p->version - 1);
    check_people(w, p);
    check_dropped(w, last ? &last->proposal : NULL, p);
    check_parts(w, p);
    check_sums(w, p);
    check_amounts(w, last ? &last->proposal : NULL, p);
}

/* Every promise of somebody honest that brings something is in the proposal that stands on it. */
bool sim_check_whole(const sim_world *w, const gsp_propose *p)
{
    gsp_seals seals = sim_seals(w->host[0]);
    for (uint32_t k = 0; k < p->n_promises; k++) {
        const gsp_statement *s = &p->promise[k];
        bool in = gsp_hash_none(&s->root) ||
                  w->host[sim_host_of(w, &s->signer.key)]->hostility != SIM_HONEST;
        for (uint32_t i = 0; i < p->proposal.n_contributors && !in; i++) {
            const gsp_contributor *c = &p->proposal.contributor[i];
            gsp_contribution brought = {
                .root = c->root, .tokens = c->tokens, .samples = c->samples};
            gsp_hash hash;
            gsp_contribution_hash(&seals, &brought, &hash);
            in = gsp_hash_equal(&hash, &s->root);
        }
        if (!in)
            return false;
    }
    return true;
}

/* A liar alone founded it. */
static bool founded_by_liar(const sim_world *w, const gsp_hash *lineage)
{
    for (uint32_t i = 0; i < w->n_hosts; i++) {
        const gsp_agree *a = &w->host[i]->agree;
        if (gsp_hash_equal(&a->lineage, lineage) && a->genesis.generation > 0 &&
            w->host[sim_host_of(w, &a->genesis.founder.key)]->hostility != SIM_HONEST)
            return true;
    }
    return false;
}

bool sim_check_promised(const sim_world *w, const gsp_proposal *p)
{
    if (founded_by_liar(w, &p->lineage))
        return false;
    for (uint64_t back = 1; back <= p->version; back++) {
        const gsp_certificate *c = sim_check_certificate(w, &p->lineage, p->version - back);
        uint32_t liars = 0;
        for (uint32_t i = 0; c && i < c->proposal.next.n; i++) {
            const gsp_key *key = &c->proposal.next.member[i].key;
            liars += w->host[sim_host_of(w, key)]->hostility != SIM_HONEST;
        }
        if (c && liars > gsp_liars_max(w->rules.trust, c->proposal.next.n))
            return false;
    }
    return true;
}
