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
 *
 * Devices that are opened beside each other share one time and one list of streams; each has links
 * and a GPU of its own.
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

enum { NULL_DEVICES_MAX = 64 };

/* What devices that are beside each other share. */
typedef struct null_time {
    double now;          /* virtual seconds since open */
    dev_stream *streams; /* every stream ever opened; freed with the last device */
    uint32_t devices;    /* ever opened */
    uint32_t open;       /* not closed yet */
} null_time;

typedef struct null_dev {
    dev base;
    null_time *time;
    uint32_t number;                 /* among those beside it */
    uint64_t next_device, next_host; /* addresses to give out */
} null_dev;

struct dev_stream {
    uint32_t device; /* whose links and GPU it uses */
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
void null_sim_run(null_time *t, const dev_stream *s, uint64_t until);

#endif
