/*
 * Owns the one order that waits for the pool's thread. Its one idea: the thread that gives it
 * sleeps until it is done, so nothing of the pool is ever touched by two threads. It refuses to
 * wait for ever: a pool that does not run yet obeys nothing.
 */
#include "gossip/pool/control_orders.h"

#include <sodium.h>
#include <stdio.h>
#include <time.h>

void gsp_control_orders_open(gsp_control_orders *o)
{
    *o = (gsp_control_orders){.order.kind = GSP_CONTROL_ORDER_NONE};
    (void)pthread_mutex_init(&o->lock, NULL);
    (void)pthread_cond_init(&o->answered, NULL);
}

void gsp_control_orders_close(gsp_control_orders *o)
{
    pthread_cond_destroy(&o->answered);
    pthread_mutex_destroy(&o->lock);
    sodium_memzero(&o->order, sizeof o->order);
}

bool gsp_control_orders_give(gsp_control_orders *o, const gsp_control_order *wanted, int seconds,
                             gsp_control_order *answer)
{
    struct timespec until;
    int late = 0;
    clock_gettime(CLOCK_MONOTONIC, &until); /* nobody sets it meanwhile */
    until.tv_sec += seconds;
    pthread_mutex_lock(&o->lock);
    o->order = *wanted;
    o->order.number = ++o->n_given;
    while (!o->order.done && late == 0)
        late = pthread_cond_clockwait(&o->answered, &o->lock, CLOCK_MONOTONIC, &until);
    *answer = o->order;
    sodium_memzero(&o->order, sizeof o->order);
    pthread_mutex_unlock(&o->lock);
    return late == 0;
}

bool gsp_control_orders_take(gsp_control_orders *o, gsp_control_order *out)
{
    pthread_mutex_lock(&o->lock);
    bool waits = o->order.kind != GSP_CONTROL_ORDER_NONE && !o->order.done;
    if (waits)
        *out = o->order;
    pthread_mutex_unlock(&o->lock);
    return waits;
}

void gsp_control_orders_answer(gsp_control_orders *o, const gsp_control_order *of, atom_status st,
                               const char *text, const char *note)
{
    pthread_mutex_lock(&o->lock);
    if (o->order.number == of->number) {
        o->order.st = st;
        snprintf(o->order.text, sizeof o->order.text, "%s", text);
        snprintf(o->order.note, sizeof o->order.note, "%s", note ? note : "");
        o->order.done = true;
        pthread_cond_broadcast(&o->answered);
    }
    pthread_mutex_unlock(&o->lock);
}
