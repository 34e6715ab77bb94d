/*
 * Inner header of the CUDA device: streams, events, pinned slabs, recorded call lists.
 *
 * Every stream is a thread of the host with a queue. The thread of a compute or copy stream hands
 * its items to a CUDA stream and goes on; the thread of a host or disk stream runs them. A wait is
 * an item too: the waiting thread first lets the other stream's thread pass the point, then makes
 * its CUDA stream wait for the CUDA event there (or waits itself, where it is a host stream). So
 * host work can hold back the card and the other way round, and nothing on the card ever waits for
 * the host: no stream memory operations, no callbacks, nothing that a tool or an older driver could
 * turn into a standstill.
 *
 * An event may be recorded again while waits for its last point are still queued: each record takes
 * a CUDA event (mark) that no queued item uses.
 */
#ifndef KERNELS_CUDA_DEVICE_CUDA_H
#define KERNELS_CUDA_DEVICE_CUDA_H

#include "kernels/cuda_module.h"
#include "kernels/dev_common.h"
#include "kernels/dev_queue.h"

#include <cuda_runtime_api.h>

enum { CUDA_NAME_MAX = 32, CUDA_SLABS_MAX = 64, CUDA_GRAPHS_MAX = 4096, CUDA_STARTS_STAGES = 8 };

typedef enum cuda_code {
    CUDA_COPY,
    CUDA_ZERO,
    CUDA_LAUNCH,
    CUDA_AGAIN, /* launch_again */
    CUDA_HOST,
    CUDA_RECORD,
    CUDA_WAIT
} cuda_code;

typedef struct cuda_mark cuda_mark;
struct cuda_mark {
    cudaEvent_t event;
    _Atomic uint32_t users; /* items in queues that will use it */
    cuda_mark *after;
};

typedef struct cuda_item {
    cuda_code code;
    void *dst;
    const void *src;
    uint64_t bytes;
    dev_launch_fn launch;
    dev_host_fn host;
    void *arg;
    uint64_t key;
    krn_step step;
    dev_event *event; /* RECORD */
    cuda_mark *mark;  /* RECORD, WAIT */
    dev_stream *of;   /* WAIT: until `of` has passed `until` items */
    uint64_t until;
} cuda_item;

/* A host slab: registered in chunks, so a copy must not cross from one into the next. */
typedef struct cuda_slab {
    char *at;
    uint64_t bytes, room; /* pinned; of addresses */
} cuda_slab;

/* Work between two records of one stream: its time is known after a sync. */
typedef struct cuda_pair {
    cudaEvent_t from, to;
} cuda_pair;

typedef struct cuda_graph {
    uint64_t key;
    cudaGraphExec_t exec; /* NULL: not recorded yet, or never */
    uint32_t runs;
    bool never;
} cuda_graph;

typedef struct cuda_dev {
    dev base;
    dev_cuda_config config;
    atom_threads *threads;
    int card;
    dev_stream *streams; /* every stream ever opened; freed at close */
    cuda_slab slabs[CUDA_SLABS_MAX];
    uint32_t n_slabs;
    cuda_graph *graphs; /* CUDA_GRAPHS_MAX; the compute stream's thread only, or all idle */
    uint32_t n_graphs;
    bool graphs_off;    /* ATOM_CUDA_GRAPHS=0 */
    bool graphs_full;   /* no memory for more; as graphs */
    cudaStream_t clock; /* carries `zero` */
    cudaEvent_t zero;   /* when the host's clock said zero_ns */
    uint64_t zero_ns;
    bool blas_open;
    dev_fault fault;
} cuda_dev;

/* krn_step.starts on the card; a compute stream's thread only. */
typedef struct cuda_starts {
    int32_t *at;    /* device memory */
    uint64_t room;  /* elements that `at` and each stage hold */
    uint64_t n;     /* of the last copy */
    uint64_t turns; /* copies so far; copy i went through stage i % CUDA_STARTS_STAGES */
    int32_t *stage[CUDA_STARTS_STAGES]; /* pinned */
    cudaEvent_t sent[CUDA_STARTS_STAGES];
} cuda_starts;

struct dev_stream {
    cuda_dev *owner;
    dev_stream *after;
    dev_stream_kind kind;
    char name[CUDA_NAME_MAX];
    bool on_card;        /* has a CUDA stream */
    cudaStream_t native; /* on_card */
    krn_step *block;     /* compute: where kernels read their step; device memory */
    cuda_starts starts;  /* compute */
    dev_queue queue;
    uint64_t busy_ns, bytes_copied;
    uint64_t host_ns; /* the thread's, to hand work over; read when all is passed */
    cuda_pair *pairs; /* since the last sync; under the queue's lock */
    size_t n_pairs, room_pairs;
    cudaEvent_t last_record; /* stream thread only: nothing but this record came last */
    bool worked;             /* stream thread only: work came since last_record */
    uint64_t ready_ns;       /* stream thread only: the throttled link's schedule */
};

struct dev_event {
    dev_stream *of; /* NULL: never recorded */
    uint64_t until;
    cuda_mark *marks, *now;
    _Atomic uint64_t host_ns; /* of host streams */
    _Atomic uint32_t pending; /* records queued and not yet passed */
};

/* stream.c */
ATOM_MUST atom_status cuda_stream_open(cuda_dev *d, dev_stream_kind kind, const char *name,
                                       dev_stream **out);
/* Runs what is queued, ends the thread and gives back what is the card's. The numbers of its queue
 * stay valid: the device closes it. */
void cuda_stream_stop(dev_stream *s);
/* After the native stream is idle: adds the times of its pairs. */
void cuda_stream_collect(dev_stream *s);

/* fault.c: true when `error` is none; else the device is dead, and `what` is in the message. Any
 * thread. */
bool cuda_dev_ok(cuda_dev *d, cudaError_t error, const char *what);

/* graph.c: on the compute stream's thread. */
void cuda_graph_run(dev_stream *s, const cuda_item *item);
void cuda_graph_launch_plain(dev_stream *s, dev_launch_fn fn, void *arg);
void cuda_graphs_forget(cuda_dev *d); /* nothing is running */

/* document_starts.c: on the compute stream's thread. Brings n starts over, in stream order; their
 * address on the card, NULL for none, and where the device failed. `starts` is read at the call. */
const int32_t *cuda_starts_put(dev_stream *s, const int32_t *starts, uint64_t n);
void cuda_starts_close(dev_stream *s);

/* slab.c */
ATOM_MUST atom_status cuda_slab_take(cuda_dev *d, uint64_t bytes, void **out);
/* It stays pinned for the process's next device. */
void cuda_slab_give(cuda_dev *d, void *slab);
/* How many of `bytes` from `at` lie in one registered piece. */
uint64_t cuda_slab_run(const cuda_dev *d, const void *at, uint64_t bytes);

#endif
