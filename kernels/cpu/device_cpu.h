/*
 * Inner header of the CPU device: the stream, the event, the slab.
 *
 * An event is a point in a stream: the stream it was recorded in and how many items that stream
 * must have passed. A wait copies the point when it is issued, so it refers to the latest record
 * issued before it, as in CUDA, and later records do not move it.
 */
#ifndef KERNELS_CPU_DEVICE_CPU_H
#define KERNELS_CPU_DEVICE_CPU_H

#include "kernels/dev_common.h"
#include "kernels/dev_queue.h"

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
    dev_stream *of;   /* WAIT: until `of` has passed `until` items */
    uint64_t until;
} cpu_item;

typedef struct cpu_dev {
    dev base;
    dev_cpu_config config;
    atom_threads *threads;
    dev_stream *streams; /* every stream ever opened; freed at close, so that points stay valid */
    dev_fault fault;
} cpu_dev;

struct dev_stream {
    cpu_dev *owner;
    dev_stream *after;
    dev_stream_kind kind;
    dev_queue queue;
    _Atomic uint64_t busy_ns, bytes_copied;
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

/* slab.c: whole pages, zero, touched by all threads of the pool. `what` is for the message. */
ATOM_MUST atom_status cpu_slab_take(atom_threads *threads, const char *what, uint64_t bytes,
                                    void **out);
void cpu_slab_give(void *slab, uint64_t bytes);

#endif
