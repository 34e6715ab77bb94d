/*
 * What somebody at the control socket wants done on the pool's thread: one order at a time, left
 * behind by the thread of the socket, which waits for the answer.
 *
 * Thread: gsp_errands_give from any one thread, gsp_errands_take and gsp_errands_answer from the
 * one that obeys. Everything in here is under `lock`.
 */
#ifndef GOSSIP_POOL_ERRANDS_H
#define GOSSIP_POOL_ERRANDS_H

#include "gossip/trust/ticket.h"

#include <pthread.h>

typedef enum gsp_errand_kind {
    GSP_ERRAND_NONE,
    GSP_ERRAND_INVITE, /* a ticket for `count` hosts, good for `days` */
    GSP_ERRAND_BAN,    /* `key` */
    GSP_ERRAND_ROTATE, /* the pre-shared key */
} gsp_errand_kind;

typedef struct gsp_errand {
    gsp_errand_kind kind;
    uint8_t key[GSP_PUBLIC_BYTES];
    uint32_t count;
    double days;
    bool done;
    atom_status st;
    char text[GSP_TICKET_TEXT_BYTES]; /* the answer: a ticket (a secret), or what is wrong */
} gsp_errand;

typedef struct gsp_errands {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    gsp_errand order;
} gsp_errands;

void gsp_errands_open(gsp_errands *errands);
void gsp_errands_close(gsp_errands *errands);
/* Leaves an order and waits for its answer. False: none came within `seconds`. */
ATOM_MUST bool gsp_errands_give(gsp_errands *errands, const gsp_errand *wanted, int seconds,
                                gsp_errand *answer);
/* The order that waits; false: none. Then gsp_errands_answer must follow. */
ATOM_MUST bool gsp_errands_take(gsp_errands *errands, gsp_errand *out);
/* text: the answer where st is ATOM_OK, else what is wrong. */
void gsp_errands_answer(gsp_errands *errands, atom_status st, const char *text);

#endif
