/*
 * Owns the list of keys that stay out. Its one idea: it follows from the list before and from who
 * is newly out, so everybody computes it again. It refuses a roster with a key that is on it.
 */
#include "gossip/agree/kept_out.h"

#include "gossip/agree/signed.h"

#include <string.h>

uint32_t gsp_kept_out_versions(uint64_t withheld_ns, uint64_t time_due_ns)
{
    enum { LEAST = 16, MOST = 4096 };
    uint64_t n = time_due_ns ? withheld_ns / time_due_ns : MOST;
    return n < LEAST ? LEAST : n > MOST ? MOST : (uint32_t)n;
}

uint32_t gsp_kept_out_left(const gsp_proposal *p, const gsp_key *key)
{
    for (uint32_t k = 0; k < p->n_barred; k++)
        if (gsp_key_compare(&p->barred[k].key, key) == 0)
            return p->barred[k].versions;
    return 0;
}

static void add(gsp_proposal *p, const gsp_key *key, uint32_t versions)
{
    if (p->n_barred == GSP_BARRED_MAX)
        memmove(&p->barred[0], &p->barred[1], --p->n_barred * sizeof p->barred[0]);
    p->barred[p->n_barred].key = *key;
    p->barred[p->n_barred++].versions = versions;
}

void gsp_kept_out_next(const gsp_proposal *before, uint32_t out, uint32_t versions, gsp_proposal *p)
{
    p->n_barred = 0;
    for (uint32_t k = 0; k < before->n_barred; k++)
        if (before->barred[k].versions > 1)
            add(p, &before->barred[k].key, before->barred[k].versions - 1);
    for (uint32_t i = 0; i < before->next.n; i++)
        if (out >> i & 1)
            add(p, &before->next.member[i].key, versions);
    memset(&p->barred[p->n_barred], 0, (GSP_BARRED_MAX - p->n_barred) * sizeof p->barred[0]);
}

const char *gsp_kept_out_wrong(const gsp_proposal *before, uint32_t versions, const gsp_proposal *p,
                               uint32_t *out)
{
    gsp_proposal right;
    *out = 0;
    if (p->n_barred > GSP_BARRED_MAX)
        return "more keys that stay out than there can be";
    for (uint32_t k = 0; k < p->n_barred; k++) {
        uint32_t i = gsp_roster_find_key(&before->next, &p->barred[k].key);
        if (gsp_roster_find_key(&p->next, &p->barred[k].key) != GSP_NOBODY)
            return "a member that is to stay out";
        if (i != GSP_NOBODY)
            *out |= 1u << i;
    }
    gsp_kept_out_next(before, *out, versions, &right);
    bool same = right.n_barred == p->n_barred;
    for (uint32_t k = 0; same && k < p->n_barred; k++)
        same = right.barred[k].versions == p->barred[k].versions &&
               gsp_key_compare(&right.barred[k].key, &p->barred[k].key) == 0;
    return same ? NULL : "other keys that stay out than follow";
}
