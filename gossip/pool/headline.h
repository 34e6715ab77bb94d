/*
 * How far a host has come on its way into the pool, and the sentence that says so: what the part
 * that is at work says, and what other threads read.
 *
 * Thread: one thread says (the caller's before gsp_pool_start, the pool's after it) and may read
 * `now`, `text` and `refused` as they are; others read a copy (gsp_headline_read).
 */
#ifndef GOSSIP_POOL_HEADLINE_H
#define GOSSIP_POOL_HEADLINE_H

#include "gossip/pool/status.h"

#include <pthread.h>

typedef struct gsp_headline {
    pthread_mutex_t lock; /* of now and text */
    gsp_pool_stage now;
    char text[GSP_POOL_WHY_BYTES];
    bool refused; /* the pool does not want this host: waiting does not help */
} gsp_headline;

void gsp_headline_open(gsp_headline *headline);
void gsp_headline_close(gsp_headline *headline);

void gsp_headline_say(gsp_headline *headline, gsp_pool_stage now, const char *fmt, ...)
    ATOM_PRINTF(3, 4);
/* The same, and it is the last word: gsp_headline_check fails from now on. */
void gsp_headline_refuse(gsp_headline *headline, gsp_pool_stage now, const char *fmt, ...)
    ATOM_PRINTF(3, 4);
/* Errors  ATOM_E_RUNTIME  the pool refused this host; the text says why */
ATOM_MUST atom_status gsp_headline_check(const gsp_headline *headline);
/* Any thread. */
gsp_pool_stage gsp_headline_read(gsp_headline *headline, char text[GSP_POOL_WHY_BYTES]);

#endif
