/*
 * Owns what the control socket orders: tickets, bans, new keys. Its one idea: the door makes the
 * change, here it is said to everybody and answered with the newest ticket. It refuses nothing
 * itself: the door knows who may.
 */
#include "gossip/pool/pool_inner.h"

#include <sodium.h>

atom_status gsp_pool_new_ticket(gsp_pool *p, uint32_t count, double days)
{
    gsp_hosts hosts;
    ATOM_TRY(gsp_reach_hosts(&p->reach, &hosts));
    return gsp_door_new_ticket(&p->door, &hosts, count, days);
}

/* After a restart this host may have other addresses. */
atom_status gsp_pool_refresh_ticket(gsp_pool *p)
{
    gsp_hosts hosts;
    ATOM_TRY(gsp_reach_hosts(&p->reach, &hosts));
    return gsp_door_refresh_ticket(&p->door, &hosts);
}

static atom_status rotate(gsp_pool *p, const uint8_t *ban)
{
    uint32_t number = gsp_door_number(&p->door);
    atom_status st = gsp_door_rotate(&p->door, ban);
    if (gsp_door_number(&p->door) != number)
        gsp_pool_tell_manifest(p);
    return st == ATOM_OK ? gsp_pool_new_ticket(p, GSP_INVITE_COUNT, GSP_INVITE_DAYS) : st;
}

static atom_status obey(gsp_pool *p, const gsp_control_order *o)
{
    switch (o->kind) {
    case GSP_CONTROL_ORDER_INVITE:
        return gsp_pool_new_ticket(p, o->count, o->days);
    case GSP_CONTROL_ORDER_BAN:
        return rotate(p, o->key);
    case GSP_CONTROL_ORDER_ROTATE:
        return rotate(p, NULL);
    case GSP_CONTROL_ORDER_NONE:
        break;
    }
    return ATOM_OK;
}

void gsp_pool_obey(gsp_pool *p)
{
    gsp_control_order order;
    if (!gsp_control_orders_take(&p->errands, &order))
        return;
    atom_status st = obey(p, &order);
    gsp_control_orders_answer(&p->errands, st,
                              st == ATOM_OK ? p->door.ticket : atom_fail_message());
}
