/*
 * Devices: memory, streams, events and asynchronous copies, with CUDA's semantics.
 *
 * A stream runs what it is given in order; different streams run beside each other; an event is a
 * point in a stream that others can wait for. The CPU device keeps these promises with one thread
 * per stream, so that a machine without a GPU runs the very same tape
 * (docs/design/engine.md#backends). The null device computes nothing and keeps virtual time.
 *
 * Thread: a device may be driven from one thread at a time (the executor's). Callbacks run on
 * stream threads. Errors: a fault is sticky. The first call that notices it returns the fault's own
 * status and message (so a diverged loss keeps its exit code); every later call returns
 * ATOM_E_DEAD with that message, behind "the device failed earlier" unless the loss diverged. Work
 * queued behind a fault is dropped, and syncs return.
 *
 * An event is a point in a stream. It may be recorded again; a wait or sync refers to the latest
 * record issued before it. Waiting for an event that was never recorded is refused
 * (ATOM_E_RUNTIME).
 */
#ifndef KERNELS_DEVICE_H
#define KERNELS_DEVICE_H

#include "atom/base/status.h"
#include "atom/base/threads.h"
#include "kernels/kernels.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct dev dev;
typedef struct dev_stream dev_stream;
typedef struct dev_event dev_event;

/*
 * What the device has. Streams of a tape (swap/tape.h) each get their own dev_stream.
 */
typedef enum dev_stream_kind {
    DEV_COMPUTE, /* kernels */
    DEV_H2D,     /* host to device copies */
    DEV_D2H,     /* device to host copies */
    DEV_HOST,    /* functions on the host (optimizer) */
    DEV_LOAD,    /* functions that read the disk */
    DEV_STORE,   /* functions that write it */
    DEV_STREAM_N
} dev_stream_kind;
/* The first kinds: each device of several has its own. The others are there once. */
enum { DEV_OWN_STREAMS = 3 };
static inline bool dev_stream_is_own(dev_stream_kind kind)
{
    return kind <= DEV_D2H;
}

/* Resources that concurrent work shares. Where the work asks for more than there is, the null
 * device slows it down. Links and GPUs are each device's own, everything else is the machine's. */
typedef enum dev_resource {
    DEV_R_CORES, /* of the host */
    DEV_R_DRAM,  /* bandwidth of host memory */
    DEV_R_H2D,
    DEV_R_D2H,
    DEV_R_LINK, /* what both directions of a link share */
    DEV_R_GPU,
    DEV_R_DISK, /* what reading and writing share */
    DEV_RESOURCE_N
} dev_resource;

/*
 * Predicted cost of one piece of work: seconds when it runs alone, and the share (0 .. 1) of each
 * resource it uses meanwhile. Real devices ignore it.
 */
typedef struct dev_cost {
    double seconds;
    float share[DEV_RESOURCE_N];
} dev_cost;

typedef struct dev_stats {
    double busy_seconds; /* time in which the stream had work running */
    double host_seconds; /* a GPU's: the host's time to hand its work over */
    uint64_t bytes_copied;
} dev_stats;

/* Work for a compute stream: called with a context whose native_stream and threads are set; the
 * callee fills in workspace and step before it calls kernels. On the CPU it runs on the stream's
 * thread; on CUDA it is called at once and launches asynchronously. `arg` must live until the
 * stream has run it. */
typedef void (*dev_launch_fn)(krn_ctx *cx, void *arg);
/* Work for a host stream; a failure makes the device dead and surfaces at the next sync. */
typedef atom_status (*dev_host_fn)(void *arg);

typedef struct dev_ops {
    const char *name; /* "cpu", "null", "cuda" */
    void (*close)(dev *d);

    /* Device memory, 256-byte aligned, zeroed. ATOM_E_RESOURCE beyond the budget, with bytes
     * missing. */
    atom_status (*alloc)(dev *d, uint64_t bytes, void **ptr);
    void (*free)(dev *d, void *ptr, uint64_t bytes);
    /* Pinned host memory: zeroed, touched in parallel. */
    atom_status (*host_alloc)(dev *d, uint64_t bytes, void **ptr);
    void (*host_free)(dev *d, void *ptr, uint64_t bytes);

    atom_status (*stream_open)(dev *d, dev_stream_kind kind, const char *name, dev_stream **out);
    void (*stream_close)(dev *d, dev_stream *s);
    atom_status (*event_open)(dev *d, dev_event **out);
    void (*event_close)(dev *d, dev_event *e);

    /* All asynchronous: they return at once and take effect in stream order. */
    atom_status (*copy)(dev *d, dev_stream *s, void *dst, const void *src, uint64_t bytes,
                        dev_cost cost);
    atom_status (*zero)(dev *d, dev_stream *s, void *dst, uint64_t bytes, dev_cost cost);
    atom_status (*launch)(dev *d, dev_stream *s, dev_launch_fn fn, void *arg, dev_cost cost);
    /* The same, for work that comes again: equal keys say equal kernels, arguments and buffers;
     * only *step differs, and is read before the call returns. A device may record the kernels of
     * one key and replay them without calling fn; freeing device memory makes it forget. NULL:
     * launch is all there is. */
    atom_status (*launch_again)(dev *d, dev_stream *s, uint64_t key, const krn_step *step,
                                dev_launch_fn fn, void *arg, dev_cost cost);
    atom_status (*host_call)(dev *d, dev_stream *s, dev_host_fn fn, void *arg, dev_cost cost);
    atom_status (*record)(dev *d, dev_stream *s, dev_event *e);
    atom_status (*wait)(dev *d, dev_stream *s, dev_event *e);

    /* Block the caller. */
    atom_status (*event_sync)(dev *d, dev_event *e);
    atom_status (*stream_sync)(dev *d, dev_stream *s);

    /* When the event was reached, in ns of the device's clock (null: virtual).
     * Valid after a sync. */
    uint64_t (*event_ns)(dev *d, dev_event *e);
    dev_stats (*stream_stats)(dev *d, dev_stream *s);

    /*
     * Several devices of one kind that work together: a stream may wait for events of the others',
     * and copy from and to pinned memory of any of them. host_use says where such memory is, before
     * the first copy: at == what host_alloc of `owner` gave; it must outlive d's streams. NULL:
     * there is nothing to know. has_failed: is the device dead? Any thread. NULL: it never is.
     */
    void (*host_use)(dev *d, const dev *owner, const void *at);
    bool (*has_failed)(const dev *d);
} dev_ops;

struct dev {
    const dev_ops *ops;
    uint64_t budget_bytes; /* 0: no limit */
    uint64_t used_bytes, peak_bytes;
    uint64_t host_bytes, host_peak_bytes; /* from host_alloc */
    bool unified; /* device memory is host memory: weights may be used in place (CPU) */
    /* Elements of krn_step.starts of what is launched: a device brings them to where its kernels
     * read. Set by the caller of launch, while nothing runs. */
    uint64_t starts_n;
};

typedef struct dev_cpu_config {
    uint64_t budget_bytes;        /* 0: no limit */
    double link_bytes_per_second; /* per direction; 0: not throttled */
    double link_latency_seconds;
} dev_cpu_config;

/* The pool must outlive the device. */
ATOM_MUST atom_status dev_cpu_open(const dev_cpu_config *config, atom_threads *threads, dev **out);
/* Virtual time; memory is counted, never touched:
 * pointers it gives out must not be dereferenced. */
ATOM_MUST atom_status dev_null_open(uint64_t budget_bytes, dev **out);
/* One more device in the same virtual time as that null device: with memory, links and a GPU of its
 * own, on the same host. Close them in any order. */
ATOM_MUST atom_status dev_null_open_beside(dev *first, uint64_t budget_bytes, dev **out);

/* Calls ops->close and clears the pointer. NULL-safe. */
void dev_close(dev **d);

#endif
