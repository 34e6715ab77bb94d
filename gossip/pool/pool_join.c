/*
 * Owns the way into a pool: from a ticket to a member with a manifest. Its one
 * idea: the same words and steps as later, turned on the caller's thread, until nothing is missing.
 * It refuses a directory of another pool, and to wait where waiting does not help.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <sodium.h>
#include <string.h>

static const uint64_t TURN_NS = 50000000u;

static void say_where(gsp_pool *p)
{
    if (!gsp_links_member(&p->links)) {
        if (p->headline.now != GSP_POOL_SEEKING)
            gsp_pool_say_seeking(p);
    } else if (p->door.is_guest) {
        if (p->headline.now != GSP_POOL_ASKING)
            gsp_headline_say(&p->headline, GSP_POOL_ASKING, "asking to be admitted");
    } else if (!p->door.has_manifest) {
        if (p->headline.now != GSP_POOL_READING)
            gsp_headline_say(&p->headline, GSP_POOL_READING, "reading the manifest");
    }
}

/* Each in turn, so that one who keeps silent costs a second. */
static const gsp_link *next_member(const gsp_links *links, uint32_t *turn)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const gsp_link *l = &links->link[(*turn)++ % GSP_NET_PEERS_MAX];
        if (l->up)
            return l;
    }
    return NULL;
}

static atom_status come_in(gsp_pool *p, double patience_s, gsp_pool_watch *watch, void *context)
{
    double until = atom_clock_seconds() + patience_s;
    uint32_t turn = 0;
    char text[GSP_POOL_WHY_BYTES];
    gsp_word ask = {.kind = GSP_WORD_ASK_MANIFEST};
    gsp_pool_say_seeking(p);
    /* A host that was admitted makes its links anew (gsp_pool_step): what is asked before is lost. */
    while (p->door.is_guest || !p->door.has_manifest || p->was_admitted ||
           gsp_door_awaits_manifest(&p->door)) {
        ATOM_TRY(gsp_pool_wait(p, TURN_NS, watch, context));
        say_where(p);
        bool lacks = !p->door.is_guest && !p->door.has_manifest && gsp_links_member(&p->links);
        if (lacks && gsp_manifest_ask_now(&p->manifest_ask, atom_clock_ns()))
            (void)gsp_links_tell(&p->links, next_member(&p->links, &turn)->key, &ask);
        if (p->door.is_guest && gsp_denials_are_all(&p->denials, &p->links, atom_clock_ns()))
            return atom_fail(ATOM_E_RUNTIME,
                             "not admitted; all members that can be reached "
                             "refuse: %s",
                             gsp_denials_text(&p->denials, text, sizeof text));
        if (patience_s > 0 && atom_clock_seconds() > until)
            return atom_fail(ATOM_E_RUNTIME, "could not join in time: %s", p->headline.text);
    }
    return ATOM_OK;
}

/* The transport that the ticket's hosts said is the manifest's. */
static atom_status check(const gsp_pool *p)
{
    gsp_hash hash;
    gsp_manifest_key_hash(p->door.psk[0], &hash);
    if (p->door.manifest->plain != p->door.plain)
        return atom_fail(ATOM_E_FORMAT, "ticket and manifest disagree about the transport");
    if (!gsp_hash_equal(&hash, &p->door.manifest->key))
        atom_log(ATOM_LOG_DEBUG, "the key is of another manifest; a newer one will come");
    return ATOM_OK;
}

atom_status gsp_pool_join(const gsp_pool_host *host, const char *text, double patience_s,
                          gsp_pool_watch *watch, void *context, gsp_pool **out)
{
    gsp_pool *p = NULL;
    gsp_ticket t = {0};
    atom_status st;
    ATOM_TRY_CLEAN(gsp_ticket_parse(text, &t));
    ATOM_TRY_CLEAN(gsp_ticket_check(&t, (uint64_t)atom_wall_seconds()));
    ATOM_TRY_CLEAN(gsp_pool_make(host, &p));
    ATOM_TRY_CLEAN(gsp_door_take_ticket(&p->door, &t));
    ATOM_TRY_CLEAN(gsp_pool_load_owner(p));
    ATOM_TRY_CLEAN(gsp_pool_open_net(p));
    ATOM_TRY_CLEAN(come_in(p, patience_s, watch, context));
    ATOM_TRY_CLEAN(check(p));
    gsp_event_log_add(&p->diary, "\"event\":\"joined\",\"manifest\":%u", p->door.manifest->number);
    gsp_headline_say(&p->headline, GSP_POOL_READY, "ready");
    *out = p;
    p = NULL;
cleanup:
    sodium_memzero(&t, sizeof t);
    if (st != ATOM_OK && p)
        return gsp_pool_close_after(&p, st);
    return st;
}
