/*
 * Owns what is done now and then: finding and dialling others, asking for admissions, forgetting
 * old keys, looking at the router. Its one idea: everything is looked at ten times a second and
 * does nothing until it is due. It refuses to keep a link whose admission has ended.
 */
#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "gossip/member/node_look.h"
#include "gossip/pool/pool_inner.h"

#include <string.h>

static const uint64_t SECOND_NS = 1000000000u;

/* ---- links ---- */

static void end_link(gsp_pool *p, gsp_link *l)
{
    gsp_links_end(&p->links, l);
    if (p->node && !l->guest)
        gsp_node_unlink(p->node, l->key);
}

/* As members we dial the same hosts again: the address of each link is where it accepts. */
static void redial(gsp_pool *p)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        gsp_link *l = &p->links.link[i];
        if (!l->up)
            continue;
        end_link(p, l);
        if (!l->inbound && !gsp_address_is_any(&l->address) &&
            gsp_net_dial(p->net, l->key, &l->address, 1) != ATOM_OK)
            atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    }
}

void gsp_pool_end_links(gsp_pool *p)
{
    for (uint32_t i = 0; i < GSP_NET_LINKS_MAX; i++)
        if (p->links.link[i].up)
            end_link(p, &p->links.link[i]);
    gsp_links_rest(&p->links);
}

/* Its admission ended while the link was up, and nobody has shown us another one of it. */
static bool expired(gsp_pool *p, const gsp_link *l, uint64_t now_s)
{
    gsp_role role;
    uint8_t shown[GSP_CREDENTIAL_BYTES_MAX];
    uint32_t bytes = 0;
    if (p->door.plain || l->guest || !gsp_net_peer_credential(p->net, l->key, &role, shown, &bytes))
        return false;
    uint64_t until = gsp_credential_ends(shown, bytes);
    if (!until || now_s <= until + GSP_SKEW_SECONDS)
        return false;
    const gsp_known *k = gsp_peers_find(p->book.peers, l->key);
    until = k ? gsp_credential_ends(k->contact.credential, k->contact.credential_bytes) : 0;
    return now_s > until + GSP_SKEW_SECONDS;
}

static void look_at_links(gsp_pool *p, uint64_t now)
{
    uint64_t now_s = (uint64_t)atom_wall_seconds();
    for (uint32_t i = 0; i < GSP_NET_LINKS_MAX; i++) {
        gsp_link *l = &p->links.link[i];
        if (!l->up)
            continue;
        if ((l->doomed_ns && now >= l->doomed_ns) || expired(p, l, now_s))
            end_link(p, l);
        else if (now >= l->hello_ns)
            gsp_pool_greet(p, l);
    }
}

/* ---- keys and admissions ---- */

static void ask_admission(gsp_pool *p)
{
    gsp_word ask = {.kind = GSP_WORD_ASK_ADMISSION};
    ask.credential_bytes = gsp_door_shows(&p->door, (uint64_t)atom_wall_seconds(), ask.credential);
    memcpy(ask.key, p->door.identity.public_key, sizeof ask.key);
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (p->links.link[i].up && !p->links.link[i].guest)
            (void)gsp_links_tell(&p->links, p->links.link[i].key, &ask);
}

/* Once a day; not before the owner had time to answer. */
static void warn_of_admission(gsp_pool *p, uint64_t now)
{
    const uint64_t answer_ns = 600 * SECOND_NS, day_ns = 24 * 3600 * SECOND_NS;
    char text[300];
    if (!gsp_door_lacks_admission(&p->door, (uint64_t)atom_wall_seconds(), text, sizeof text)) {
        p->warn_ns = 0;
        return;
    }
    if (p->warn_ns && now >= p->warn_ns)
        atom_log(ATOM_LOG_WARN, "pool: %s", text);
    if (!p->warn_ns || now >= p->warn_ns)
        p->warn_ns = now + (p->warn_ns ? day_ns : answer_ns);
}

static void ask_again(gsp_pool *p, uint64_t now)
{
    if (p->door.is_guest && now >= p->ask_ns) {
        p->ask_ns = now + 2 * SECOND_NS;
        ask_admission(p);
    } else if (!p->door.is_guest && now >= p->renew_ns) {
        /* Nothing hurries while ours is good, and where the owner comes back it is asked at once (on_up). */
        const bool is_void = gsp_door_voids(&p->door, p->door.credential, p->door.credential_bytes);
        const bool wants = gsp_door_wants_admission(&p->door, (uint64_t)atom_wall_seconds());
        p->renew_ns = now + (is_void ? 5 : wants ? 600 : 60) * SECOND_NS;
        if (wants)
            ask_admission(p);
        warn_of_admission(p, now);
    }
}

/* ---- the first member, and the router ---- */

void gsp_pool_say_seeking(gsp_pool *p)
{
    char text[GSP_POOL_WHY_BYTES];
    p->seek.news = false;
    gsp_headline_say(&p->headline, GSP_POOL_SEEKING, "%s",
                     gsp_seek_text(&p->seek, text, sizeof text));
}

void gsp_pool_look_at_router(gsp_pool *p)
{
    if (!gsp_reach_step(&p->reach, atom_clock_ns()))
        return;
    p->book.own_changed = true;
    atom_log(ATOM_LOG_INFO, "%s", p->reach.routed.why);
    gsp_event_log_add(&p->diary, "\"event\":\"router\",\"text\":\"%s\"", p->reach.routed.why);
    if (p->door.ticket[0] && gsp_door_admits(&p->door, (uint64_t)atom_wall_seconds()) &&
        gsp_pool_refresh_ticket(p) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
}

/* The address of a home's line changes, and others should not dial the old one for ever. Tickets have the name. */
static void look_at_names(gsp_pool *p)
{
    char text[GSP_POOL_WHY_BYTES];
    if (!gsp_reach_moved(&p->reach, text, sizeof text))
        return;
    p->book.own_changed = true;
    atom_log(ATOM_LOG_INFO, "%s", text);
    gsp_event_log_add(&p->diary, "\"event\":\"announced\",\"text\":\"%s\"", text);
}

/* ---- favours ---- */

/* Relays and probes use the volunteer's bytes of the month, but not the last quarter of them. */
static void give_favours(gsp_pool *p, uint64_t now)
{
    uint8_t key[GSP_PUBLIC_BYTES];
    bool spare = gsp_quota_has_spare(&p->month.quota);
    if (spare == p->no_favours) {
        p->no_favours = !spare;
        gsp_probe_server_give_bytes(p->probe, spare);
        if (!p->door.plain)
            gsp_net_serve_relays(p->net, spare);
    }
    while (gsp_probe_server_greedy(p->probe, key)) {
        gsp_link *l = gsp_links_find(&p->links, key);
        if (l)
            gsp_links_shun(&p->links, l, now);
    }
}

/* ---- all of it ---- */

static void step_links(gsp_pool *p, uint64_t now)
{
    if (p->was_admitted) {
        p->was_admitted = false;
        gsp_pool_rekey(p);
        redial(p);
    }
    if (p->ticket_is_old) {
        p->ticket_is_old = false;
        gsp_pool_renew_ticket(p);
    }
    gsp_address_book_look(&p->book, gsp_pool_found, p, now);
    ask_again(p, now);
    look_at_links(p, now);
    gsp_links_dial(&p->links, p->book.peers, p->reach.port != 0, now);
    gsp_seek_step(&p->seek, gsp_links_member(&p->links) != NULL, now);
    if (p->seek.news && p->headline.now == GSP_POOL_SEEKING)
        gsp_pool_say_seeking(p);
    gsp_pool_look_at_router(p);
    look_at_names(p);
    gsp_address_book_step(&p->book, now);
    if (!p->door.is_guest && gsp_address_book_is_stale(&p->book, now))
        gsp_pool_renew_contact(p);
    if (now >= p->key_ns) {
        p->key_ns = now + 60 * SECOND_NS;
        const uint64_t now_s = (uint64_t)atom_wall_seconds();
        uint8_t shown[GSP_CREDENTIAL_BYTES_MAX];
        bool other =
            gsp_door_shows(&p->door, now_s, shown) != p->shown_bytes; /* a delegation ended */
        if (gsp_door_forget_old_key(&p->door, now_s) || other)
            gsp_pool_rekey(p);
        p->ticket_is_old |= other && !gsp_door_is_owner(&p->door);
    }
}

void gsp_pool_step(gsp_pool *p)
{
    uint64_t now = atom_clock_ns();
    gsp_files_step(p->files, now);
    gsp_data_give(&p->data, now);
    if (!p->door.is_guest)
        gsp_data_step(&p->data, now);
    gsp_probe_server_step(p->probe);
    if (now < p->step_ns)
        return;
    p->step_ns = now + SECOND_NS / 10;
    gsp_pool_obey(p);
    give_favours(p, now);
    step_links(p, now);
    gsp_pool_show_present(p);
    if (!p->door.is_guest)
        gsp_notes_step(p->notes);
    gsp_credits_step(&p->credits, gsp_pool_own_tokens(p));
    gsp_pool_snapshot_step(p);
}
