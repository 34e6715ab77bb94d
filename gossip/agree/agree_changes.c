/*
 * Owns why a next roster differs from this one: who asked to be let in and what it showed, who said
 * goodbye or is convicted. Its one idea: the reasons travel with the proposal, so that every voter
 * judges them for itself, now and in every later ballot. It refuses newcomers that nobody admitted
 * or that did not ask now, and goodbyes that were not said.
 */
#include "gossip/agree/agree_inner.h"

const char *gsp_entry_wrong(const gsp_agree *a, const gsp_member *who, const gsp_entry *e)
{
    const gsp_statement *s = &e->wish;
    uint32_t i = gsp_roster_find_key(gsp_agree_roster(a), &who->key);
    if (s->kind != GSP_SAYS_JOIN || !gsp_member_equal(&s->signer, who) || who->incarnation == 0 ||
        !gsp_hash_equal(&s->lineage, &a->lineage) || e->shown.bytes > GSP_SHOWN_BYTES_MAX)
        return "a joiner that did not ask";
    if (gsp_people_banned(a, &who->key))
        return "a joiner that is banned";
    if (i != GSP_NOBODY && gsp_agree_roster(a)->member[i].incarnation >= who->incarnation)
        return "a joiner that is a member";
    if (a->rules.admits && !a->rules.admits(a->rules.context, &who->key,
                                            i == GSP_NOBODY ? &e->shown : NULL, a->now_ns))
        return "a joiner that nobody admitted";
    return gsp_statement_verify(&a->seals, s) ? NULL : "a joiner that did not ask";
}

bool gsp_entry_is_now(const gsp_agree *a, const gsp_entry *e)
{
    return e->wish.version == a->certified && gsp_hash_equal(&e->wish.subject, &a->previous);
}

static bool is_new(const gsp_agree *a, const gsp_member *who)
{
    return gsp_roster_find(gsp_agree_roster(a), who) == GSP_NOBODY;
}

void gsp_changes_make(const gsp_agree *a, const gsp_proposal *p, gsp_changes *out)
{
    const gsp_roster *now = gsp_agree_roster(a);
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < p->next.n; i++)
        for (uint32_t k = 0; is_new(a, &p->next.member[i]) && k < a->n_waiting; k++)
            if (gsp_member_equal(&a->waiting[k].who, &p->next.member[i]))
                out->entry[out->n_entries++] = a->waiting[k].entry;
    for (uint32_t i = 0; i < now->n; i++)
        if (a->gone[i].first.kind &&
            gsp_roster_find_key(&p->next, &now->member[i].key) == GSP_NOBODY)
            out->exit[out->n_exits++] = a->gone[i];
}

const char *gsp_changes_wrong(const gsp_agree *a, const gsp_proposal *p, const gsp_changes *c)
{
    uint32_t at = 0;
    if (c->n_entries > GSP_MEMBERS_MAX || c->n_exits > gsp_agree_roster(a)->n)
        return "more reasons than there can be";
    for (uint32_t i = 0; i < p->next.n; i++) {
        if (!is_new(a, &p->next.member[i]))
            continue;
        if (at == c->n_entries || !gsp_entry_is_now(a, &c->entry[at]))
            return "a joiner that did not ask now";
        const char *wrong = gsp_entry_wrong(a, &p->next.member[i], &c->entry[at++]);
        if (wrong)
            return wrong;
    }
    return at == c->n_entries ? NULL : "a joiner that does not join";
}

bool gsp_changes_excuse(const gsp_agree *a, const gsp_changes *c, uint32_t i)
{
    const gsp_member *who = &gsp_agree_roster(a)->member[i];
    for (uint32_t k = 0; k < c->n_exits && k < GSP_MEMBERS_MAX; k++) {
        const gsp_statement *s = &c->exit[k].first;
        if (gsp_key_compare(&s->signer.key, &who->key) != 0)
            continue;
        if (c->exit[k].second.kind)
            return gsp_statements_convict(&a->seals, s, &c->exit[k].second);
        return s->kind == GSP_SAYS_LEAVE && gsp_member_equal(&s->signer, who) &&
               gsp_hash_equal(&s->lineage, &a->lineage) && gsp_statement_verify(&a->seals, s);
    }
    return false;
}

void gsp_changes_learn(gsp_agree *a, const gsp_changes *c)
{
    for (uint32_t k = 0; k < c->n_exits && k < GSP_MEMBERS_MAX; k++) {
        gsp_exit exit = c->exit[k];
        if (exit.second.kind)
            gsp_people_accuse(a, &exit.first, &exit.second);
        else
            gsp_people_leave(a, &exit.first);
    }
}
