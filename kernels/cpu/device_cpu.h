/*
 * Inner header of the CPU device: the stream with its thread and queue, the event, the slab.
 *
 * An event is a point in a stream: the stream it was recorded in and how many items that stream
 * must have finished. A wait copies the point when it is issued, so it refers to the latest record
 * issued before it, as in CUDA, and later records do not move it.
 */
#ifndef KERNELS_CPU_DEVICE_CPU_H
#define KERNELS_CPU_DEVICE_CPU_H

#include "kernels/dev_common.h"

#include <pthread.h>
#include <stdatomic.h>

enum { CPU_QUEUE_MAX = 4096, CPU_MESSAGE_MAX = 1024, CPU_NAME_MAX = 32 };

typedef enum cpu_code { CPU_COPY, CPU_ZERO, CPU_LAUNCH, CPU_HOST, CPU_RECORD, CPU_WAIT } cpu_code;

typedef struct cpu_item {
    cpu_code code;
    void *dst;
    const void *src;
    uint64_t bytes;
    dev_launch_fn launch;
    dev_host_fn host;
    void *arg;
    dev_event *event; /* RECORD */
    dev_stream *of;   /* WAIT: until `of` has finished `until` items */
    uint64_t until;
} cpu_item;

typedef struct cpu_dev {
    dev base;
    dev_cpu_config config;
    atom_threads *threads;
    dev_stream *streams;  /* every stream ever opened; freed at close, so that points stay valid */
    pthread_mutex_t lock; /* guards the failure */
    _Atomic int failed;
    bool told; /* the failure has been returned once */
    atom_status failure;
    char message[CPU_MESSAGE_MAX];
} cpu_dev;

struct dev_stream {
    cpu_dev *owner;
    dev_stream *after;
    dev_stream_kind kind;
    char name[CPU_NAME_MAX];
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t more;  /* something was queued, or stop */
    pthread_cond_t moved; /* an item was finished */
    cpu_item *ring;       /* CPU_QUEUE_MAX; item i is at i % CPU_QUEUE_MAX */
    uint64_t queued, finished;
    bool stop;
    uint64_t busy_ns, bytes_copied;
    uint64_t ready_ns; /* stream thread only: when the next item could have started (throttle) */
};

struct dev_event {
    dev_stream *of; /* NULL: never recorded */
    uint64_t until;
    _Atomic uint64_t ns;
    _Atomic uint32_t pending; /* records queued and not yet run */
};

/* stream.c */
ATOM_MUST atom_status cpu_stream_open(cpu_dev *d, dev_stream_kind kind, const char *name,
                                      dev_stream **out);
/* Runs what is queued, ends the thread, keeps the struct for the device's list. */
void cpu_stream_stop(dev_stream *s);
/* Blocks while the queue is full. Never allocates. */
void cpu_stream_push(dev_stream *s, const cpu_item *item);
/* Blocks until `until` items of s are finished; true if it had to wait. */
bool cpu_stream_reach(dev_stream *s, uint64_t until);

/* device.c: the first failure wins; any thread. */
void cpu_dev_fail(cpu_dev *d, atom_status status);

/* slab.c: whole pages, zero, touched by all threads of the pool. `what` is for the message. */
ATOM_MUST atom_status cpu_slab_take(atom_threads *threads, const char *what, uint64_t bytes,
                                    void **out);
void cpu_slab_give(void *slab, uint64_t bytes);

#endif
