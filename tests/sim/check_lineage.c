/*
 * Owns I14: who follows what. Its one idea: a lineage is the word of those who sign it, and one of
 * them must have been honest. It refuses to ask the machine why it went.
 */
#include "tests/sim/sim.h"

void sim_check_begun(sim_world *w, uint32_t host, const gsp_genesis *genesis)
{
    gsp_seals seals = sim_seals(w->host[host]);
    if (w->host[host]->hostility != SIM_HONEST || w->n_begun == SIM_BEGUN_MAX)
        return;
    gsp_genesis_hash(&seals, genesis, &w->begun[w->n_begun++]);
}

static bool in(const gsp_hash *list, uint32_t n, const gsp_hash *lineage)
{
    for (uint32_t i = 0; i < n; i++)
        if (gsp_hash_equal(&list[i], lineage))
            return true;
    return false;
}

void sim_check_consents(sim_world *w, uint32_t host, const gsp_hash *lineage)
{
    if (w->host[host]->hostility == SIM_HONEST && w->n_begun < SIM_BEGUN_MAX &&
        !in(w->begun, w->n_begun, lineage)) /* it is asked again where its answer was lost */
        w->begun[w->n_begun++] = *lineage;
}

bool sim_check_is_begun(const sim_world *w, const gsp_hash *lineage)
{
    return in(w->begun, w->n_begun, lineage);
}

bool sim_check_is_lost(const sim_world *w, const gsp_hash *lineage)
{
    return in(w->lost, w->n_lost, lineage);
}

void sim_check_followed(sim_world *w, uint32_t host, const gsp_roster *left, const gsp_hash *to,
                        bool gave_up)
{
    uint32_t liars = 0;
    if (w->host[host]->hostility != SIM_HONEST || in(w->begun, w->n_begun, to) ||
        sim_check_is_lost(w, to) || w->n_begun == SIM_BEGUN_MAX || w->n_lost == SIM_BEGUN_MAX)
        return;
    for (uint32_t i = 0; i < left->n; i++)
        liars += w->host[sim_host_of(w, &left->member[i].key)]->hostility != SIM_HONEST;
    if (left->n < 3 || gave_up || liars > gsp_liars_max(w->rules.trust, left->n))
        w->lost[w->n_lost++] = *to;
    else
        sim_violate(w, "I14", "host %u follows a lineage that nobody honest signed, out of %u",
                    host, left->n);
}
