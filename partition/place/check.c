/*
 * Owns what a problem may be. One idea: everything is looked at before anything is priced, so that
 * no cost is a division by zero. Refuses with one line that names the host, the pair or the layer.
 */
#include "partition/place/place.h"

#include <math.h>

static bool within(double x, double low, double high)
{
    return x >= low && x <= high;
}

static atom_status check_kind(const place_problem *p, uint32_t i)
{
    const place_kind *k = &p->kinds[i];
    if (!within(k->update_elements_per_second, 1e-3, 1e18) ||
        !within(k->load_bytes_per_second, 0, 1e18) || !within(k->disk_bytes_per_second, 0, 1e18))
        return atom_fail(ATOM_E_USAGE, "%s: its rates must be numbers above 0", k->name);
    for (uint32_t l = 0; l < p->n_layers; l++)
        if (!within(k->layer_seconds[l], 0, 1e9))
            return atom_fail(ATOM_E_USAGE, "%s: layer %u takes %g seconds", k->name, l,
                             k->layer_seconds[l]);
    if (k->whole &&
        (!within(k->whole_micro_seconds, 1e-12, 1e9) || !within(k->whole_update_seconds, 0, 1e9)))
        return atom_fail(ATOM_E_USAGE, "%s: a whole copy's times make no sense", k->name);
    return ATOM_OK;
}

static atom_status check_links(const place_problem *p, uint32_t i)
{
    const char *name = p->hosts[i].name;
    if (p->hosts[i].kind >= p->n_kinds)
        return atom_fail(ATOM_E_USAGE, "%s: of no known kind", name);
    if (p->up && (!within(p->up[i], 1, 1e15) || !within(p->down[i], 1, 1e15)))
        return atom_fail(ATOM_E_USAGE,
                         "%s has a connection without bandwidth; say how fast it is, or leave "
                         "the host out",
                         name);
    for (uint32_t j = 0; j < p->n_hosts; j++) {
        size_t at = (size_t)i * p->n_hosts + j;
        if (j == i)
            continue;
        if (!within(p->rate[at], 1, 1e15))
            return atom_fail(ATOM_E_USAGE,
                             "%s and %s are not connected: the bandwidth from the first to the "
                             "second is %g; leave one of them out",
                             name, p->hosts[j].name, p->rate[at]);
        if (!within(p->delay[at], 0, 1e3))
            return atom_fail(ATOM_E_USAGE,
                             "%s to %s: a delay of %g s; it must be between 0 and 1000", name,
                             p->hosts[j].name, p->delay[at]);
    }
    return ATOM_OK;
}

atom_status place_check(const place_problem *p)
{
    if (p->n_hosts < 1 || p->n_hosts > PLACE_HOSTS_MAX)
        return atom_fail(ATOM_E_USAGE, "%u hosts; there must be 1 to %d", p->n_hosts,
                         PLACE_HOSTS_MAX);
    if (p->n_kinds < 1 || p->n_kinds > PLACE_KINDS_MAX)
        return atom_fail(ATOM_E_USAGE, "%u kinds of host; there must be 1 to %d", p->n_kinds,
                         PLACE_KINDS_MAX);
    if (p->n_layers < 1 || p->n_layers > PLACE_LAYERS_MAX)
        return atom_fail(ATOM_E_USAGE, "%u layers; there must be 1 to %d", p->n_layers,
                         PLACE_LAYERS_MAX);
    if (p->micro_batches < 1 || p->micro_batches > 1 << 24 || !within(p->micro_tokens, 1, 1e12))
        return atom_fail(ATOM_E_USAGE, "a step of %u micro-batches of %g tokens makes no sense",
                         p->micro_batches, p->micro_tokens);
    if (!within(p->sync_bytes, 1e-6, 64) || !within(p->state_bytes, 0, 64) ||
        !within(p->wire_bytes, 0, 64))
        return atom_fail(ATOM_E_USAGE, "bytes per parameter must lie between 0 and 64");
    for (uint32_t i = 0; i < p->n_kinds; i++)
        ATOM_TRY(check_kind(p, i));
    for (uint32_t i = 0; i < p->n_hosts; i++)
        ATOM_TRY(check_links(p, i));
    return ATOM_OK;
}
