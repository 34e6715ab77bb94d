/*
 * What somebody at the control socket wants done on the pool's thread: one order at a time, left
 * behind by the thread of the socket, which waits for the answer.
 *
 * Thread: gsp_control_orders_give from any one thread, gsp_control_orders_take and gsp_control_orders_answer from the
 * one that obeys. Everything in here is under `lock`.
 */
#ifndef GOSSIP_POOL_CONTROL_ORDERS_H
#define GOSSIP_POOL_CONTROL_ORDERS_H

#include "gossip/trust/ticket.h"

#include <pthread.h>

enum { GSP_CONTROL_NOTE_BYTES = 512 };

typedef enum gsp_control_order_kind {
    GSP_CONTROL_ORDER_NONE,
    GSP_CONTROL_ORDER_INVITE,   /* a ticket for `count` hosts, good for `days` */
    GSP_CONTROL_ORDER_BAN,      /* `key`, and all of its invite where `with_others` */
    GSP_CONTROL_ORDER_ROTATE,   /* the pre-shared key */
    GSP_CONTROL_ORDER_DELEGATE, /* `key`, for `days` */
    GSP_CONTROL_ORDER_RESET,    /* a new lineage from here */
} gsp_control_order_kind;

typedef struct gsp_control_order {
    gsp_control_order_kind kind;
    uint8_t key[GSP_PUBLIC_BYTES];
    bool with_others;
    uint32_t count;
    double days;
    uint64_t number; /* of no other order; who gives one leaves it alone */
    bool done;
    atom_status st;
    char text[GSP_TICKET_TEXT_BYTES];  /* the answer: a ticket (a secret) or "", or what is wrong */
    char note[GSP_CONTROL_NOTE_BYTES]; /* what else there is to say; "": nothing */
} gsp_control_order;

typedef struct gsp_control_orders {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    gsp_control_order order;
    uint64_t n_given;
} gsp_control_orders;

void gsp_control_orders_open(gsp_control_orders *errands);
void gsp_control_orders_close(gsp_control_orders *errands);
/* Leaves an order and waits for its answer. False: none came within `seconds`. */
ATOM_MUST bool gsp_control_orders_give(gsp_control_orders *errands, const gsp_control_order *wanted,
                                       int seconds, gsp_control_order *answer);
/* The order that waits; false: none. It waits, and is given again, until gsp_control_orders_answer or
 * until whoever gave it has gone. */
ATOM_MUST bool gsp_control_orders_take(gsp_control_orders *errands, gsp_control_order *out);
/* of: what was taken; nobody hears the answer if whoever gave it has gone, or has given another meanwhile. text: the
 * answer where st is ATOM_OK, else what is wrong. note: NULL or a sentence more. */
void gsp_control_orders_answer(gsp_control_orders *errands, const gsp_control_order *of,
                               atom_status st, const char *text, const char *note);

#endif
