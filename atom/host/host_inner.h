/*
 * What the files of a host share: host.c runs it, host_status.c reports on it. Internal to atom/host.
 */
#ifndef ATOM_HOST_HOST_INNER_H
#define ATOM_HOST_HOST_INNER_H

#include "atom/host/child.h"
#include "atom/host/host.h"
#include "atom/pool/limits.h"
#include "gossip/pool/control.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct host {
    host_hooks hooks;
    host_pools *pools;
    pool_limits *hours, *pool_hours[HOST_POOLS_MAX]; /* NULL: always */
    host_schedule schedule;
    host_child child;
    char *state, *ledger, *program;
    bool quiet;
    int lock;
    gsp_control *control;
    double began, saved, asked, published; /* when, by the clock of the schedule */
    host_phase published_phase;
    int64_t applied; /* the version when it was last looked at; -1: not yet in this turn */
    bool said_running, heard_status;
    char text[HOST_POOLS_MAX][HOST_WHY_BYTES];                /* what was last said of each pool */
    int64_t version[HOST_POOLS_MAX], members[HOST_POOLS_MAX]; /* then; 0: not known */
    bool paused[HOST_POOLS_MAX];                              /* by atom pool pause */
    atomic_bool asked_stop;
    pthread_mutex_t mutex; /* of status */
    char *status;          /* one line of JSON; free */
} host;

/* host_status.c */
void host_status_publish(host *h);
/* A gsp_control_answer. */
char *host_status_answer(void *context, const char *request);

#endif
