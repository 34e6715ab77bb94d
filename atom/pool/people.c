/*
 * Owns the news of who came and who went. One idea: two looks at the roster are compared; what
 * differs is news. Refuses to tell of this host itself, and of those that were there when it came.
 */
#include "atom/pool/people.h"

#include <string.h>

static pool_person *person_of(pool_people *people, const gsp_pool_peer *p)
{
    for (uint32_t i = 0; i < people->n; i++)
        if (memcmp(people->person[i].key, p->key, sizeof p->key) == 0)
            return &people->person[i];
    if (people->n == GSP_POOL_SHOWN_MAX)
        return NULL;
    pool_person *x = &people->person[people->n++];
    *x = (pool_person){.here = false};
    memcpy(x->key, p->key, sizeof x->key);
    return x;
}

void pool_people_look(pool_people *people, const gsp_pool_status *status, const pool_hooks *hooks)
{
    bool first = !people->looked;
    for (uint32_t i = 0; i < people->n; i++)
        people->person[i].seen = false;
    for (uint32_t i = 0; i < status->n_peers; i++) {
        const gsp_pool_peer *p = &status->peer[i];
        pool_person *x = p->self ? NULL : person_of(people, p);
        if (!x)
            continue;
        x->seen = p->on_roster;
        if (p->name[0])
            memcpy(x->name, p->name, sizeof x->name);
    }
    for (uint32_t i = 0; i < people->n; i++) {
        pool_person *x = &people->person[i];
        if (x->seen != x->here && !first) {
            char key[GSP_PUBLIC_TEXT_BYTES];
            gsp_public_text(x->key, key);
            pool_note(hooks, "pool: %s (%.8s) %s", x->name[0] ? x->name : "a member", key,
                      x->seen ? "is a member now" : "is no longer a member");
        }
        x->here = x->seen;
    }
    people->looked = true;
}
