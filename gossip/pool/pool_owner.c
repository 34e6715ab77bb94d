/*
 * Owns what the control socket orders: tickets, bans, new keys, delegates, resets. Its one idea: the door makes the
 * change, here it is said to everybody and answered with the newest ticket. It refuses nothing
 * itself: the door knows who may.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "gossip/member/node_look.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Where newcomers begin: here; where nobody can dial this host, at others whom it knows. */
static atom_status hosts_of(const gsp_pool *p, gsp_hosts *out)
{
    const gsp_known *best[GSP_TICKET_HOSTS_MAX];
    ATOM_TRY(gsp_reach_hosts(&p->reach, out));
    if (out->n > 0 || p->door.plain || !p->book.peers)
        return ATOM_OK;
    uint32_t n = gsp_peers_best(p->book.peers, best, GSP_TICKET_HOSTS_MAX);
    for (uint32_t i = 0; i < n; i++)
        if (best[i]->contact.n_addresses > 0 && best[i]->contact.address[0].port != 0)
            (void)gsp_address_text(&best[i]->contact.address[0], out->host[out->n++]);
    return ATOM_OK;
}

atom_status gsp_pool_new_ticket(gsp_pool *p, uint32_t count, double days)
{
    gsp_hosts hosts;
    ATOM_TRY(hosts_of(p, &hosts));
    return gsp_door_new_ticket(&p->door, &hosts, count, days);
}

atom_status gsp_pool_usual_ticket(gsp_pool *p)
{
    const gsp_pool_host *h = &p->host;
    return gsp_pool_new_ticket(p, h->invite_count ? h->invite_count : GSP_INVITE_COUNT,
                               h->invite_days > 0 ? h->invite_days : GSP_INVITE_DAYS);
}

/* After a restart this host may have other addresses. */
atom_status gsp_pool_refresh_ticket(gsp_pool *p)
{
    gsp_hosts hosts;
    ATOM_TRY(hosts_of(p, &hosts));
    return gsp_door_refresh_ticket(&p->door, &hosts);
}

atom_status gsp_pool_load_owner(gsp_pool *p)
{
    const gsp_door *d = &p->door;
    bool admits = gsp_door_is_owner(d) ||
                  gsp_door_delegation(d, d->identity.public_key, (uint64_t)atom_wall_seconds());
    return admits ? gsp_door_load_owner(&p->door) : ATOM_OK;
}

void gsp_pool_renew_ticket(gsp_pool *p)
{
    atom_status st = gsp_pool_load_owner(p);
    if (st == ATOM_OK && gsp_door_admits(&p->door, (uint64_t)atom_wall_seconds()))
        st = gsp_pool_refresh_ticket(p);
    else if (st == ATOM_OK)
        gsp_door_forget_ticket(&p->door);
    if (st != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "this host is a delegate of the pool's owner, but: %s",
                 atom_fail_message());
}

/* A manifest was made, or it failed on the way: what is there is told, with a new ticket. */
static atom_status tell_new(gsp_pool *p, uint32_t number, atom_status st)
{
    if (gsp_door_number(&p->door) != number)
        gsp_pool_tell_manifest(p);
    return st == ATOM_OK ? gsp_pool_usual_ticket(p) : st;
}

/* Before a ban makes admissions void that a delegate signed, the owner admits again whom it knows and who is
 * here. What a member showed when its link was made may have changed since. */
static void readmit(gsp_pool *p, const uint8_t *banned)
{
    uint8_t shown[GSP_CREDENTIAL_BYTES_MAX];
    uint32_t bytes = 0;
    gsp_role role;
    gsp_word answer;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const gsp_link *l = &p->links.link[i];
        if (!l->up || l->guest || memcmp(l->key, banned, sizeof l->key) == 0 ||
            !gsp_net_peer_credential(p->net, l->key, &role, shown, &bytes))
            continue;
        const uint8_t *issuer = gsp_credential_issuer(shown, bytes);
        const bool owners = issuer && memcmp(issuer, p->door.owner, GSP_PUBLIC_BYTES) == 0;
        if ((!owners || p->door.n_delegations > 0) && gsp_door_readmit(&p->door, l->key, &answer))
            (void)gsp_links_tell(&p->links, l->key, &answer);
    }
}

static atom_status delegate(gsp_pool *p, const gsp_control_order *o,
                            char note[GSP_CONTROL_NOTE_BYTES])
{
    gsp_delegation given;
    char when[24] = "", who[GSP_PUBLIC_TEXT_BYTES];
    struct tm t;
    ATOM_TRY(gsp_door_delegate(&p->door, o->key, o->days, &given));
    const time_t until = (time_t)given.expires_s;
    if (gmtime_r(&until, &t))
        (void)strftime(when, sizeof when, "%Y-%m-%d %H:%M", &t);
    snprintf(note, GSP_CONTROL_NOTE_BYTES,
             "until %s (UTC) it admits newcomers, renews admissions and makes tickets while this "
             "host is away; %s",
             when,
             gsp_pool_tell_delegation(p, o->key)
                 ? "it has been told"
                 : "it is told as soon as both take part at the same time");
    gsp_event_log_add(&p->diary, "\"event\":\"delegate\",\"key\":\"%s\",\"until\":%llu",
                      gsp_public_text(o->key, who), (unsigned long long)given.expires_s);
    return ATOM_OK;
}

/* Members of the roster that may still come in are too few to certify a version. */
static bool lacks_quorum(gsp_pool *p)
{
    uint32_t left = 0; /* bits */
    uint8_t invite[GSP_INVITE_ID_BYTES];
    if (!p->node)
        return false;
    const gsp_roster *roster = gsp_agree_roster(gsp_node_look(p->node));
    for (uint32_t i = 0; i < roster->n; i++) {
        const uint8_t *key = roster->member[i].key.byte;
        const gsp_known *k = gsp_peers_find(p->book.peers, key);
        const gsp_contact *c = k ? &k->contact : NULL;
        const bool known = p->door.ledger && gsp_links_find(&p->links, key) &&
                           gsp_ledger_invite_of(p->door.ledger, key, invite);
        bool out = gsp_manifest_bans(p->door.manifest, key) ||
                   (!known && c && gsp_door_voids(&p->door, c->credential, c->credential_bytes));
        left |= (uint32_t)!out << i;
    }
    return !gsp_quorum(p->door.manifest->trust, roster->n, left);
}

static atom_status ban(gsp_pool *p, const gsp_control_order *o, char note[GSP_CONTROL_NOTE_BYTES])
{
    gsp_door_ban done;
    char invite[2 * GSP_INVITE_ID_BYTES + 1];
    uint32_t number = gsp_door_number(&p->door);
    if (gsp_door_is_owner(&p->door) && !p->door.plain)
        readmit(p, o->key);
    atom_status st = gsp_door_ban_key(&p->door, o->key, o->with_others, &done);
    if (st == ATOM_OK && done.already) {
        snprintf(note, GSP_CONTROL_NOTE_BYTES,
                 "it was already banned, so nothing was changed and the newest ticket stays valid");
        return ATOM_OK;
    }
    ATOM_TRY(tell_new(p, number, st));
    const char *void_note = done.delegate
                                ? "; hosts that it admitted as a delegate and that this host does "
                                  "not know need a new ticket"
                                : "";
    sodium_bin2hex(invite, sizeof invite, done.invite, sizeof done.invite);
    if (!done.has_invite)
        snprintf(note, GSP_CONTROL_NOTE_BYTES, "it is not known which invite it came with%s",
                 void_note);
    else
        snprintf(note, GSP_CONTROL_NOTE_BYTES,
                 "it came with invite %.8s, which admits nobody any more; %u other%s came with the "
                 "same invite%s%s",
                 invite, done.n_others, done.n_others == 1 ? "" : "s",
                 done.n_others == 0 ? ""
                 : o->with_others   ? " and are banned too"
                                    : " and stay (--whole-invite bans them too)",
                 void_note);
    if (lacks_quorum(p)) {
        size_t n = strlen(note);
        snprintf(note + n, GSP_CONTROL_NOTE_BYTES - n,
                 "; the members that are left are too few to decide anything: atom pool reset lets "
                 "them go on");
    }
    gsp_event_log_add(&p->diary, "\"event\":\"invite_ended\",\"invite\":\"%s\",\"others\":%u",
                      done.has_invite ? invite : "", done.n_others);
    return ATOM_OK;
}

static atom_status reset(gsp_pool *p, char note[GSP_CONTROL_NOTE_BYTES])
{
    gsp_node_status s;
    if (!p->node)
        return atom_fail(ATOM_E_USAGE, "the pool is not running yet; try again");
    ATOM_TRY(gsp_node_reset(p->node));
    gsp_node_read_status(p->node, &s);
    snprintf(note, GSP_CONTROL_NOTE_BYTES,
             "the pool continues from version %llu of this host; the others follow and are "
             "admitted again",
             (unsigned long long)s.certified);
    gsp_event_log_add(&p->diary, "\"event\":\"reset\",\"version\":%llu",
                      (unsigned long long)s.certified);
    return ATOM_OK;
}

static atom_status obey(gsp_pool *p, const gsp_control_order *o, char note[GSP_CONTROL_NOTE_BYTES])
{
    uint32_t number = gsp_door_number(&p->door);
    switch (o->kind) {
    case GSP_CONTROL_ORDER_INVITE:
        return gsp_pool_new_ticket(p, o->count, o->days);
    case GSP_CONTROL_ORDER_BAN:
        return ban(p, o, note);
    case GSP_CONTROL_ORDER_ROTATE:
        return tell_new(p, number, gsp_door_rotate(&p->door, NULL));
    case GSP_CONTROL_ORDER_DELEGATE:
        return delegate(p, o, note);
    case GSP_CONTROL_ORDER_RESET:
        return reset(p, note);
    case GSP_CONTROL_ORDER_NONE:
        break;
    }
    return ATOM_OK;
}

void gsp_pool_obey(gsp_pool *p)
{
    gsp_control_order order;
    char note[GSP_CONTROL_NOTE_BYTES] = "";
    if (!gsp_control_orders_take(&p->errands, &order))
        return;
    if (order.kind == GSP_CONTROL_ORDER_RESET && p->node && gsp_node_is_applying(p->node))
        return; /* it waits until the version is here */
    atom_status st = obey(p, &order, note);
    const bool tickets =
        order.kind != GSP_CONTROL_ORDER_RESET && order.kind != GSP_CONTROL_ORDER_DELEGATE;
    const char *ticket = tickets ? p->door.ticket : "";
    gsp_control_orders_answer(&p->errands, &order, st, st == ATOM_OK ? ticket : atom_fail_message(),
                              note);
}
