/*
 * Makes node.c a host that fills rosters with members that nobody admitted: linked into a program of
 * its own with gsp_rules_next and gsp_changes_make wrapped (CMakeLists.txt). Wherever it proposes it
 * adds a key that it made up, with that key's own signed wish and with its own admission.
 */
#include "gossip/agree/agree_inner.h"
#include "gossip/trust/identity.h"
#include "gossip/trust/seals.h"

#include <stdio.h>

__typeof__(gsp_rules_next) __real_gsp_rules_next, __wrap_gsp_rules_next;
__typeof__(gsp_changes_make) __real_gsp_changes_make, __wrap_gsp_changes_make;

static gsp_identity invented;

void __wrap_gsp_rules_next(const gsp_agree *a, uint32_t promised, uint32_t out, gsp_proposal *p)
{
    static uint64_t count;
    uint8_t seed[GSP_SEED_BYTES] = "invented";
    gsp_member who = {.incarnation = 1};
    __real_gsp_rules_next(a, promised, out, p);
    count++;
    memcpy(seed + 8, &count, sizeof count);
    if (p->next.n < 2 || p->next.n == GSP_MEMBERS_MAX ||
        gsp_identity_from_seed(seed, &invented) != ATOM_OK)
        return;
    memcpy(who.key.byte, invented.public_key, sizeof who.key.byte);
    uint32_t at = p->next.n++;
    for (; at > 0 && gsp_key_compare(&p->next.member[at - 1].key, &who.key) > 0; at--) {
        p->next.member[at] = p->next.member[at - 1];
        p->missed[at] = p->missed[at - 1];
        p->against[at] = p->against[at - 1];
    }
    p->next.member[at] = who;
    p->missed[at] = p->against[at] = 0;
    p->made = p->version;
    printf("{\"invented\":%llu}\n", (unsigned long long)count);
}

void __wrap_gsp_changes_make(const gsp_agree *a, const gsp_proposal *p, gsp_changes *out)
{
    gsp_seals seals = gsp_seals_real(&invented);
    __real_gsp_changes_make(a, p, out);
    for (uint32_t i = 0; i < p->next.n; i++) {
        const gsp_member *who = &p->next.member[i];
        if (memcmp(who->key.byte, invented.public_key, sizeof who->key.byte) != 0)
            continue;
        gsp_entry entry = {.wish = {.kind = GSP_SAYS_JOIN,
                                    .lineage = a->lineage,
                                    .version = a->certified,
                                    .subject = a->previous,
                                    .signer = *who}};
        gsp_statement_seal(&seals, &entry.wish);
        a->rules.shows(a->rules.context, &entry.shown);
        uint32_t at = out->n_entries++;
        for (; at > 0 && gsp_key_compare(&out->entry[at - 1].wish.signer.key, &who->key) > 0; at--)
            out->entry[at] = out->entry[at - 1];
        out->entry[at] = entry;
    }
}
