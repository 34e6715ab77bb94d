/*
 * Inner header of the null device: streams of predicted work, and the simulation that runs them in
 * virtual time.
 *
 * Fluid sharing: a running item has cost.seconds of work left when alone. It progresses at rate
 *   min over the resources r it uses of 1 / max(1, sum of share[r] over all running items),
 *
 * so two items that each want all of a link take twice as long, and two that want half of it do not
 * notice each other. Rates change only when an item starts or ends; between these moments
 * everything is linear, and the simulation jumps from one to the next.
 */
#ifndef KERNELS_NULL_DEVICE_NULL_H
#define KERNELS_NULL_DEVICE_NULL_H

#include "kernels/dev_common.h"

typedef enum null_code { NULL_WORK, NULL_RECORD, NULL_WAIT } null_code;

typedef struct null_item {
    null_code code;
    dev_cost cost;    /* WORK */
    uint64_t bytes;   /* WORK that copies */
    dev_event *event; /* RECORD */
    dev_stream *of;   /* WAIT: until `of` has finished `until` items */
    uint64_t until;
} null_item;

typedef struct null_dev {
    dev base;
    double now;                      /* virtual seconds since open */
    uint64_t next_device, next_host; /* addresses to give out */
    dev_stream *streams;             /* every stream ever opened */
} null_dev;

struct dev_stream {
    null_dev *owner;
    dev_stream *after;
    null_item *items; /* items[0] is item number `first` of the stream */
    size_t capacity;
    uint64_t first, queued, finished;
    bool running;
    double left; /* seconds of work left of the running item, alone */
    double rate; /* of the running item, now */
    double busy_seconds;
    uint64_t bytes_copied;
};

struct dev_event {
    dev_stream *of; /* NULL: never recorded */
    uint64_t until;
    double at;
    uint32_t pending; /* records queued and not yet run */
};

/* sim.c: advances virtual time until `s` has finished `until` items, and no further. Everything
 * that a wait refers to has been queued before it, so this always ends. */
void null_sim_run(null_dev *d, const dev_stream *s, uint64_t until);

#endif
