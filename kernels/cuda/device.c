/*
 * Owns the CUDA device: the promises of device.h on a card. One idea: device.h is modelled on CUDA,
 * so this is bookkeeping: budgets, events, faults; what waits for what is in stream.c, recorded
 * call lists in graph.c, pinned memory in slab.c.
 *
 * A fault of the card is sticky: the first call that notices says what happened, all later ones say
 * that the device is dead; the trainer goes on from its last checkpoint in a new process.
 */
#include "kernels/cuda/device_cuda.h"

#include "kernels/cuda/blas_lt.h"
#include "kernels/cuda/entry.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/plain.h"

#include "atom/base/assert.h"
#include "atom/base/clock.h"
#include "atom/base/mem.h"
#include "atom/base/size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CARDS_MAX = 16 };
/* Of each card: what devices of this process have. */
static _Atomic uint64_t taken[CARDS_MAX];

/* How long a zero of the clock is good: event times are floats. */
static const uint64_t CLOCK_NS = 1000000000;

static cuda_dev *of(dev *d)
{
    return (cuda_dev *)d;
}

static atom_status check(cuda_dev *d)
{
    return dev_fault_check(&d->fault);
}

static atom_status push(dev *d, dev_stream *s, const cuda_item *item)
{
    ATOM_TRY(check(of(d)));
    dev_queue_push(&s->queue, item);
    return ATOM_OK;
}

/* --- memory ----------------------------------------------------------------------------------- */

static atom_status no_memory(uint64_t bytes, cudaError_t error)
{
    size_t has = 0, all = 0;
    char need[24], there[24];
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&has, &all);
    return atom_fail(
        ATOM_E_RESOURCE,
        "device memory: the card cannot provide %s (%s): %s are free, %llu bytes are missing; "
        "lower --device-memory, or stop other programs that use it",
        atom_size_text(bytes, need), cudaGetErrorName(error), atom_size_text(has, there),
        (unsigned long long)(bytes > has ? bytes - has : 0));
}

/* Lets the stream's thread pass what is queued. */
static void settle(dev_stream *s)
{
    if (s->queue.started)
        dev_queue_drain(&s->queue);
}

/* Lets every stream's thread pass what is queued, and the card finish it. */
static void settle_all(cuda_dev *d)
{
    for (dev_stream *s = d->streams; s; s = s->after)
        settle(s);
    (void)cudaDeviceSynchronize();
}

static atom_status cuda_alloc(dev *d, uint64_t bytes, void **ptr)
{
    void *at = NULL;
    ATOM_TRY(check(of(d)));
    ATOM_ASSERT(bytes > 0);
    (void)cudaSetDevice(of(d)->card);
    settle_all(of(d)); /* a stream may be recording */
    ATOM_TRY(dev_budget_take(d, bytes));
    cudaError_t error = cudaMalloc(&at, bytes);
    if (error != cudaSuccess) {
        dev_budget_give(d, bytes);
        return no_memory(bytes, error);
    }
    error = cudaMemset(at, 0, bytes);
    if (error == cudaSuccess)
        error = cudaDeviceSynchronize();
    if (!cuda_dev_ok(of(d), error, "clearing memory")) {
        (void)cudaFree(at);
        dev_budget_give(d, bytes);
        return check(of(d));
    }
    *ptr = at;
    if (of(d)->card < CARDS_MAX)
        atomic_fetch_add(&taken[of(d)->card], bytes);
    return ATOM_OK;
}

static void cuda_free(dev *d, void *ptr, uint64_t bytes)
{
    if (!ptr)
        return;
    (void)cudaSetDevice(of(d)->card);
    settle_all(of(d));
    cuda_graphs_forget(of(d)); /* they may point there */
    (void)cudaFree(ptr);
    if (of(d)->card < CARDS_MAX)
        atomic_fetch_sub(&taken[of(d)->card], bytes);
    dev_budget_give(d, bytes);
}

static atom_status cuda_host_alloc(dev *d, uint64_t bytes, void **ptr)
{
    ATOM_ASSERT(bytes > 0);
    ATOM_TRY(check(of(d)));
    ATOM_TRY(cuda_slab_take(of(d), bytes, ptr));
    dev_host_take(d, bytes);
    return ATOM_OK;
}

static void cuda_host_free(dev *d, void *ptr, uint64_t bytes)
{
    if (!ptr)
        return;
    (void)cudaSetDevice(of(d)->card);
    settle_all(of(d));
    cuda_slab_give(of(d), ptr);
    dev_host_give(d, bytes);
}

/* --- streams and events ----------------------------------------------------------------------- */

static atom_status stream_open(dev *d, dev_stream_kind kind, const char *name, dev_stream **out)
{
    ATOM_TRY(check(of(d)));
    (void)cudaSetDevice(of(d)->card);
    return cuda_stream_open(of(d), kind, name, out);
}

static void stream_close(dev *d, dev_stream *s)
{
    (void)d;
    if (s)
        cuda_stream_stop(s);
}

static atom_status event_open(dev *d, dev_event **out)
{
    ATOM_TRY(check(of(d)));
    dev_event *e = atom_alloc(1, sizeof *e);
    if (!e)
        return atom_fail_memory("an event", sizeof *e);
    *out = e;
    return ATOM_OK;
}

static void event_close(dev *d, dev_event *e)
{
    if (!e)
        return;
    for (dev_stream *s = of(d)->streams; s && atomic_load(&e->pending); s = s->after)
        settle(s);
    while (e->marks) {
        cuda_mark *m = e->marks;
        for (dev_stream *s = of(d)->streams; s && atomic_load(&m->users); s = s->after)
            settle(s);
        e->marks = m->after;
        (void)cudaEventDestroy(m->event);
        atom_free(m);
    }
    atom_free(e);
}

/* A mark that no queued item uses. */
static atom_status free_mark(cuda_dev *d, dev_event *e, cuda_mark **out)
{
    for (cuda_mark *m = e->marks; m; m = m->after) {
        if (atomic_load(&m->users) == 0) {
            *out = m;
            return ATOM_OK;
        }
    }
    cuda_mark *m = atom_alloc(1, sizeof *m);
    if (!m)
        return atom_fail_memory("an event", sizeof *m);
    (void)cudaSetDevice(d->card); /* a thread that drives several has another one current */
    cudaError_t error = cudaEventCreateWithFlags(&m->event, cudaEventBlockingSync);
    if (!cuda_dev_ok(d, error, "an event")) {
        atom_free(m);
        return check(d);
    }
    m->after = e->marks;
    e->marks = m;
    *out = m;
    return ATOM_OK;
}

static bool idle(cuda_dev *d)
{
    for (dev_stream *s = d->streams; s; s = s->after) {
        if (!dev_queue_is_idle(&s->queue))
            return false;
        if (s->native && cudaStreamQuery(s->native) != cudaSuccess) {
            (void)cudaGetLastError(); /* not ready is an answer, no fault */
            return false;
        }
    }
    return true;
}

/* The card's clock against the host's; times before it are no longer asked for. */
static cudaError_t set_zero(cuda_dev *d)
{
    cudaError_t error = cudaEventRecord(d->zero, d->clock);
    if (error == cudaSuccess)
        error = cudaEventSynchronize(d->zero);
    d->zero_ns = atom_clock_ns();
    return error;
}

static atom_status record(dev *base, dev_stream *s, dev_event *e)
{
    cuda_dev *d = of(base);
    cuda_mark *m = NULL;
    ATOM_TRY(check(d));
    if (atom_clock_ns() - d->zero_ns > CLOCK_NS && idle(d) &&
        !cuda_dev_ok(d, set_zero(d), "the clock"))
        return check(d);
    ATOM_TRY(free_mark(d, e, &m));
    /* only this thread queues, so the position is known before the push */
    e->of = s;
    e->until = dev_queue_queued(&s->queue) + 1;
    e->now = m;
    atomic_fetch_add(&m->users, 1);
    atomic_fetch_add(&e->pending, 1);
    dev_queue_push(&s->queue, &(cuda_item){.code = CUDA_RECORD, .event = e, .mark = m});
    return ATOM_OK;
}

static atom_status never_recorded(void)
{
    return atom_fail(ATOM_E_RUNTIME, "a stream would wait forever: its event was never recorded");
}

static atom_status wait_event(dev *d, dev_stream *s, dev_event *e)
{
    if (!e->of)
        return never_recorded();
    ATOM_TRY(check(of(d)));
    atomic_fetch_add(&e->now->users, 1);
    dev_queue_push(&s->queue,
                   &(cuda_item){.code = CUDA_WAIT, .of = e->of, .until = e->until, .mark = e->now});
    return ATOM_OK;
}

static atom_status event_sync(dev *d, dev_event *e)
{
    if (!e->of)
        return never_recorded();
    dev_queue_reach(&e->of->queue, e->until);
    if (e->of->on_card && !atomic_load(&of(d)->fault.failed))
        (void)cuda_dev_ok(of(d), cudaEventSynchronize(e->now->event), e->of->name);
    return check(of(d));
}

static atom_status stream_sync(dev *d, dev_stream *s)
{
    dev_queue_drain(&s->queue);
    if (s->on_card && !atomic_load(&of(d)->fault.failed) &&
        cuda_dev_ok(of(d), cudaStreamSynchronize(s->native), s->name))
        cuda_stream_collect(s);
    return check(of(d));
}

static uint64_t event_ns(dev *d, dev_event *e)
{
    float ms = 0;
    if (!e->of || !e->of->on_card)
        return atomic_load(&e->host_ns);
    if (cudaEventElapsedTime(&ms, of(d)->zero, e->now->event) != cudaSuccess)
        return atomic_load(&e->host_ns);
    double ns = (double)of(d)->zero_ns + (double)ms * 1e6;
    return ns > 0 ? (uint64_t)ns : 0;
}

static dev_stats stream_stats(dev *d, dev_stream *s)
{
    (void)d;
    pthread_mutex_lock(&s->queue.lock);
    dev_stats stats = {.busy_seconds = (double)s->busy_ns * 1e-9,
                       .host_seconds = (double)s->host_ns * 1e-9,
                       .bytes_copied = s->bytes_copied};
    pthread_mutex_unlock(&s->queue.lock);
    return stats;
}

/* --- work ------------------------------------------------------------------------------------- */

static atom_status copy(dev *d, dev_stream *s, void *dst, const void *src, uint64_t bytes,
                        dev_cost cost)
{
    (void)cost;
    return push(d, s, &(cuda_item){.code = CUDA_COPY, .dst = dst, .src = src, .bytes = bytes});
}

static atom_status zero(dev *d, dev_stream *s, void *dst, uint64_t bytes, dev_cost cost)
{
    (void)cost;
    return push(d, s, &(cuda_item){.code = CUDA_ZERO, .dst = dst, .bytes = bytes});
}

static atom_status launch(dev *d, dev_stream *s, dev_launch_fn fn, void *arg, dev_cost cost)
{
    (void)cost;
    ATOM_ASSERT(s->kind == DEV_COMPUTE);
    return push(d, s, &(cuda_item){.code = CUDA_LAUNCH, .launch = fn, .arg = arg});
}

static atom_status launch_again(dev *d, dev_stream *s, uint64_t key, const krn_step *step,
                                dev_launch_fn fn, void *arg, dev_cost cost)
{
    (void)cost;
    ATOM_ASSERT(s->kind == DEV_COMPUTE);
    return push(
        d, s,
        &(cuda_item){.code = CUDA_AGAIN, .launch = fn, .arg = arg, .key = key, .step = *step});
}

static atom_status host_call(dev *d, dev_stream *s, dev_host_fn fn, void *arg, dev_cost cost)
{
    (void)cost;
    return push(d, s, &(cuda_item){.code = CUDA_HOST, .host = fn, .arg = arg});
}

/* --- life ------------------------------------------------------------------------------------- */

static void host_use(dev *base, const dev *owner, const void *at)
{
    cuda_dev *d = of(base);
    const cuda_dev *from = (const cuda_dev *)owner;
    for (uint32_t i = 0; i < from->n_slabs; i++) {
        ATOM_ASSERT(d->n_slabs < CUDA_SLABS_MAX);
        if (from->slabs[i].at == at) /* which it never gives back: it has not taken it */
            d->slabs[d->n_slabs++] = from->slabs[i];
    }
}

static bool has_failed(const dev *d)
{
    return atomic_load(&((const cuda_dev *)d)->fault.failed);
}

static void cuda_close(dev *base)
{
    cuda_dev *d = of(base);
    (void)cudaSetDevice(d->card);
    settle_all(d);
    cuda_graphs_forget(d);
    for (dev_stream *s = d->streams; s; s = s->after)
        cuda_stream_stop(s);
    while (d->streams) {
        dev_stream *s = d->streams;
        d->streams = s->after;
        dev_queue_close(&s->queue);
        atom_free(s);
    }
    if (d->zero)
        (void)cudaEventDestroy(d->zero);
    if (d->clock)
        (void)cudaStreamDestroy(d->clock);
    if (d->blas_open)
        krn_cuda_blas_close();
    dev_fault_close(&d->fault);
    atom_free(d->graphs);
    atom_free(d);
}

static const dev_ops OPS = {
    .name = "cuda",
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .stream_open = stream_open,
    .stream_close = stream_close,
    .event_open = event_open,
    .event_close = event_close,
    .copy = copy,
    .zero = zero,
    .launch = launch,
    .launch_again = launch_again,
    .host_call = host_call,
    .record = record,
    .wait = wait_event,
    .event_sync = event_sync,
    .stream_sync = stream_sync,
    .event_ns = event_ns,
    .stream_stats = stream_stats,
    .host_use = host_use,
    .has_failed = has_failed,
};

/* The calling thread's from here on. The host's cores belong to the optimizer: nobody spins while
 * the card works. */
static cudaError_t make_current(int card)
{
    if (cudaInitDevice(card, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid) !=
        cudaSuccess)
        (void)cudaGetLastError(); /* the card was started before, with other flags */
    return cudaSetDevice(card);
}

uint64_t krn_cuda_free_bytes(int card)
{
    size_t has = 0, all = 0;
    if (card < 0 || card >= CARDS_MAX || make_current(card) != cudaSuccess ||
        cudaMemGetInfo(&has, &all) != cudaSuccess) {
        (void)cudaGetLastError(); /* who opens the card says what is wrong with it */
        return 0;
    }
    return has + atomic_load(&taken[card]);
}

static cudaError_t start_card(cuda_dev *d)
{
    cudaError_t error = make_current(d->card);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&d->clock, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaEventCreateWithFlags(&d->zero, cudaEventBlockingSync);
    return error == cudaSuccess ? set_zero(d) : error;
}

atom_status krn_cuda_open(const dev_cuda_config *config, atom_threads *threads, dev **out)
{
    atom_status st;
    dev_cuda_info info;
    char identity[200];
    cuda_dev *d = NULL;
    ATOM_TRY_CLEAN(krn_cuda_describe(config->card, &info));
    d = atom_alloc(1, sizeof *d);
    if (!d)
        return atom_fail_memory("the CUDA device", sizeof *d);
    d->base = (dev){.ops = &OPS, .budget_bytes = config->budget_bytes};
    d->config = *config;
    d->card = config->card;
    d->threads = threads;
    dev_fault_open(&d->fault);
    const char *graphs = getenv("ATOM_CUDA_GRAPHS");
    d->graphs_off = graphs && strcmp(graphs, "0") == 0;
    d->graphs = atom_alloc(CUDA_GRAPHS_MAX, sizeof *d->graphs);
    if (!d->graphs)
        ATOM_TRY_CLEAN(
            atom_fail_memory("recorded call lists", CUDA_GRAPHS_MAX * sizeof *d->graphs));
    cudaError_t error = start_card(d);
    if (error != cudaSuccess)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_RUNTIME, "CUDA: card %d (%s) cannot be started: %s",
                                 d->card, info.name, cudaGetErrorString(error)));
    if (!krn_cuda_code_there())
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_UNSUPPORTED,
                                 "CUDA is not used: this build has no code for %s (compute "
                                 "capability %d.%d); configure it with -DATOM_CUDA_ARCHS=%d%d-real",
                                 info.name, info.major, info.minor, info.major, info.minor));
    snprintf(identity, sizeof identity, "%s sm_%d%d %d multiprocessors", info.name, info.major,
             info.minor, info.multiprocessors);
    ATOM_TRY_CLEAN(krn_cuda_blas_open(identity));
    d->blas_open = true;
    *out = &d->base;
    return ATOM_OK;
cleanup:
    if (d)
        cuda_close(&d->base);
    return st;
}
