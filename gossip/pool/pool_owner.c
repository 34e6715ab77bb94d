/*
 * Owns what the control socket orders: tickets, bans, new keys, resets. Its one idea: the door makes the
 * change, here it is said to everybody and answered with the newest ticket. It refuses nothing
 * itself: the door knows who may.
 */
#include "gossip/pool/pool_inner.h"

#include <sodium.h>
#include <stdio.h>

atom_status gsp_pool_new_ticket(gsp_pool *p, uint32_t count, double days)
{
    gsp_hosts hosts;
    ATOM_TRY(gsp_reach_hosts(&p->reach, &hosts));
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
    ATOM_TRY(gsp_reach_hosts(&p->reach, &hosts));
    return gsp_door_refresh_ticket(&p->door, &hosts);
}

/* A manifest was made, or it failed on the way: what is there is told, with a new ticket. */
static atom_status tell_new(gsp_pool *p, uint32_t number, atom_status st)
{
    if (gsp_door_number(&p->door) != number)
        gsp_pool_tell_manifest(p);
    return st == ATOM_OK ? gsp_pool_usual_ticket(p) : st;
}

static atom_status ban(gsp_pool *p, const gsp_control_order *o, char note[GSP_CONTROL_NOTE_BYTES])
{
    gsp_door_ban done;
    char invite[2 * GSP_INVITE_ID_BYTES + 1];
    uint32_t number = gsp_door_number(&p->door);
    atom_status st = gsp_door_ban_key(&p->door, o->key, o->with_others, &done);
    if (st == ATOM_OK && done.already) {
        snprintf(note, GSP_CONTROL_NOTE_BYTES,
                 "it was already banned, so nothing was changed and the newest ticket stays valid");
        return ATOM_OK;
    }
    ATOM_TRY(tell_new(p, number, st));
    sodium_bin2hex(invite, sizeof invite, done.invite, sizeof done.invite);
    if (!done.has_invite)
        snprintf(note, GSP_CONTROL_NOTE_BYTES, "it is not known which invite it came with");
    else
        snprintf(note, GSP_CONTROL_NOTE_BYTES,
                 "it came with invite %.8s, which admits nobody any more; %u other%s came with the "
                 "same invite%s",
                 invite, done.n_others, done.n_others == 1 ? "" : "s",
                 done.n_others == 0 ? ""
                 : o->with_others   ? " and are banned too"
                                    : " and stay (--whole-invite bans them too)");
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
    const char *ticket = order.kind == GSP_CONTROL_ORDER_RESET ? "" : p->door.ticket;
    gsp_control_orders_answer(&p->errands, &order, st, st == ATOM_OK ? ticket : atom_fail_message(),
                              note);
}
