/*
 * Makes node.c a host that accuses with claims beyond belief: linked into a program of its own with
 * gsp_audit_tick wrapped (CMakeLists.txt). Of every certificate it takes the contributions, gives
 * them weights whose sum wraps, signs that as its own word about a part, and accuses itself of it.
 * Whoever believed it would sum with those weights.
 */
#include "gossip/agree/agree_inner.h"

void __wrap_gsp_audit_tick(gsp_agree *a);
void __real_gsp_audit_tick(gsp_agree *a);

void __wrap_gsp_audit_tick(gsp_agree *a)
{
    static uint64_t said;
    const gsp_proposal *p = &a->certificate.proposal;
    __real_gsp_audit_tick(a);
    if (p->n_contributors < 2 || a->certified == said || !gsp_agree_is_member(a))
        return;
    said = a->certified;
    gsp_message *m = gsp_agree_compose(a, GSP_ACCUSE, 0);
    gsp_claim *c = &m->as.accuse.claim;
    gsp_hash contributors;
    gsp_statement word;
    m->version = 0;
    *c = (gsp_claim){.version = p->version, .owner = a->self, .n_contributors = p->n_contributors};
    memcpy(c->contributor, p->contributor, sizeof c->contributor);
    c->contributor[0].weight = UINT64_MAX;
    c->contributor[1].weight = 3;
    c->part = (gsp_part){.hash = {{1}}, .included = 3, .weight = 2, .norm = 1};
    gsp_contributors_hash(&a->seals, c->contributor, c->n_contributors, &contributors);
    gsp_reduced_statement(&a->seals, &a->lineage, c->version, c->number, &c->part, &contributors,
                          &a->self, &word);
    gsp_statement_seal(&a->seals, &word);
    memcpy(c->part.seal, word.seal, sizeof word.seal);
    gsp_agree_say(a, GSP_TO_ALL, m);
}
