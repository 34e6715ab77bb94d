/*
 * What devices with threads share: the failure that makes them dead, and the thread of a stream with
 * its queue. Inner header of kernels/, also of the CUDA module.
 */
#ifndef KERNELS_DEV_QUEUE_H
#define KERNELS_DEV_QUEUE_H

#include "atom/base/status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first failure wins, and is returned once with its own status and message; after that the
 * device is dead. Any thread. */
typedef struct dev_fault {
    pthread_mutex_t lock; /* guards what follows, but for `failed` */
    _Atomic int failed;
    bool told;
    atom_status status;
    char message[1024];
} dev_fault;

void dev_fault_open(dev_fault *fault);
void dev_fault_close(dev_fault *fault);
/* Takes the calling thread's latest message. */
void dev_fault_set(dev_fault *fault, atom_status status);
ATOM_MUST atom_status dev_fault_check(dev_fault *fault);

enum { DEV_QUEUE_MAX = 4096, DEV_ITEM_MAX = 192 };

/* A thread that runs the items of a bounded queue in their order. `passed` only grows, and all
 * waits are for it to pass a number. */
typedef struct dev_queue {
    void (*begin)(void *ctx);                          /* on the thread, before the first item */
    void (*run)(void *ctx, void *item, bool was_idle); /* without the lock; its own copy of item */
    void *ctx;
    size_t item_bytes;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t more;  /* something was queued, or stop */
    pthread_cond_t moved; /* an item was passed */
    char *ring;           /* DEV_QUEUE_MAX; item i is at i % DEV_QUEUE_MAX */
    uint64_t queued, passed;
    bool stop;
} dev_queue;

/* Fill in begin, run, ctx and item_bytes before. Close it, also after a failure. */
ATOM_MUST atom_status dev_queue_open(dev_queue *q, const char *name);
/* Blocks while the queue is full. Never allocates. */
void dev_queue_push(dev_queue *q, const void *item);
/* Blocks until `until` items are passed; true if it had to wait. */
bool dev_queue_reach(dev_queue *q, uint64_t until);
/* Until everything that is queued now is passed. */
void dev_queue_drain(dev_queue *q);
uint64_t dev_queue_queued(dev_queue *q);
bool dev_queue_is_idle(dev_queue *q);
/* Runs what is queued and ends the thread; the numbers stay valid. */
void dev_queue_stop(dev_queue *q);
void dev_queue_close(dev_queue *q);

/* Blocks until the monotonic clock says so. */
void dev_sleep_until(uint64_t ns);

#endif
