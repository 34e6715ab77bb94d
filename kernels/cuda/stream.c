/*
 * Owns what a stream of the CUDA device does with its items: its thread (dev_queue.h) hands them to
 * a CUDA stream, or runs them itself where it is a host or disk stream (device_cuda.h says why). One
 * idea: waits between threads are for a queue to pass a number, and waits between CUDA streams are
 * CUDA events. After open nothing is allocated but room for busy times.
 *
 * When the device has failed, items are taken and dropped, so that every sync still returns.
 */
#include "kernels/cuda/device_cuda.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>

static const uint64_t PIECE_BYTES = (uint64_t)4 << 20; /* of a throttled copy */

static bool on_card(dev_stream_kind kind)
{
    return kind == DEV_COMPUTE || kind == DEV_H2D || kind == DEV_D2H;
}

/* Holds the thread back until the link that is imitated would have carried n more bytes. */
static bool pace(dev_stream *s, uint64_t n, bool first)
{
    const dev_cuda_config *c = &s->owner->config;
    if (!cuda_dev_ok(s->owner, cudaStreamSynchronize(s->native), "a copy"))
        return false;
    uint64_t now = atom_clock_ns();
    if (first)
        s->ready_ns += (uint64_t)(c->link_latency_seconds * 1e9);
    if (c->link_bytes_per_second > 0)
        s->ready_ns += (uint64_t)((double)n / c->link_bytes_per_second * 1e9);
    if (now > s->ready_ns + 1000000) /* a copy slower than the link leaves no debt */
        s->ready_ns = now;
    dev_sleep_until(s->ready_ns);
    return true;
}

static enum cudaMemcpyKind direction(const dev_stream *s)
{
    return s->kind == DEV_H2D   ? cudaMemcpyHostToDevice
           : s->kind == DEV_D2H ? cudaMemcpyDeviceToHost
                                : cudaMemcpyDefault;
}

static void copy(dev_stream *s, const cuda_item *it)
{
    const dev_cuda_config *c = &s->owner->config;
    bool throttled = (s->kind == DEV_H2D || s->kind == DEV_D2H) &&
                     (c->link_bytes_per_second > 0 || c->link_latency_seconds > 0);
    if (!s->on_card) {
        memcpy(it->dst, it->src, it->bytes);
        return;
    }
    if (throttled && s->ready_ns < atom_clock_ns())
        s->ready_ns = atom_clock_ns();
    for (uint64_t done = 0; done < it->bytes;) {
        char *dst = (char *)it->dst + done;
        const char *src = (const char *)it->src + done;
        uint64_t n = cuda_slab_run(s->owner, dst, it->bytes - done);
        n = cuda_slab_run(s->owner, src, n);
        if (throttled && n > PIECE_BYTES)
            n = PIECE_BYTES;
        if (!cuda_dev_ok(s->owner, cudaMemcpyAsync(dst, src, n, direction(s), s->native), "a copy"))
            return;
        if (throttled && !pace(s, n, done == 0))
            return;
        done += n;
    }
}

static void zero(dev_stream *s, const cuda_item *it)
{
    if (s->on_card)
        (void)cuda_dev_ok(s->owner, cudaMemsetAsync(it->dst, 0, it->bytes, s->native), "a clear");
    else
        memset(it->dst, 0, it->bytes);
}

static void host_work(dev_stream *s, const cuda_item *it)
{
    if (s->on_card && !cuda_dev_ok(s->owner, cudaStreamSynchronize(s->native), s->name))
        return;
    atom_status st = it->host(it->arg);
    if (st != ATOM_OK)
        dev_fault_set(&s->owner->fault, st);
}

static void remember_pair(dev_stream *s, cudaEvent_t now)
{
    if (s->worked && s->last_record) {
        pthread_mutex_lock(&s->queue.lock);
        if (atom_grow(&s->pairs, s->n_pairs, &s->room_pairs, sizeof *s->pairs) == ATOM_OK)
            s->pairs[s->n_pairs++] = (cuda_pair){s->last_record, now};
        pthread_mutex_unlock(&s->queue.lock);
    }
    s->last_record = now;
    s->worked = false;
}

static void record(dev_stream *s, const cuda_item *it)
{
    if (s->on_card && !atomic_load(&s->owner->fault.failed)) {
        (void)cuda_dev_ok(s->owner, cudaEventRecord(it->mark->event, s->native), "an event");
        remember_pair(s, it->mark->event);
    }
    atomic_store(&it->event->host_ns, atom_clock_ns());
    atomic_fetch_sub(&it->mark->users, 1);
    atomic_fetch_sub(&it->event->pending, 1); /* the event may be gone from here on */
}

static void wait_for(dev_stream *s, const cuda_item *it)
{
    if (it->of != s) {
        dev_queue_reach(&it->of->queue, it->until);
        bool alive = !atomic_load(&s->owner->fault.failed);
        if (alive && it->of->on_card && s->on_card)
            (void)cuda_dev_ok(s->owner, cudaStreamWaitEvent(s->native, it->mark->event, 0),
                              "a wait");
        else if (alive && it->of->on_card)
            (void)cuda_dev_ok(s->owner, cudaEventSynchronize(it->mark->event), it->of->name);
    }
    atomic_fetch_sub(&it->mark->users, 1);
}

static void work(dev_stream *s, const cuda_item *it)
{
    switch (it->code) {
    case CUDA_COPY:
        copy(s, it);
        break;
    case CUDA_ZERO:
        zero(s, it);
        break;
    case CUDA_LAUNCH:
        cuda_graph_launch_plain(s, it->launch, it->arg);
        break;
    case CUDA_AGAIN:
        cuda_graph_run(s, it);
        break;
    case CUDA_HOST:
        host_work(s, it);
        break;
    case CUDA_RECORD:
    case CUDA_WAIT:
        break;
    }
    s->worked = true;
}

static void run(void *ctx, void *item, bool was_idle)
{
    dev_stream *s = ctx;
    const cuda_item *it = item;
    (void)was_idle;
    if (it->code == CUDA_RECORD) {
        record(s, it);
        return;
    }
    if (it->code == CUDA_WAIT) {
        wait_for(s, it);
        return;
    }
    if (atomic_load(&s->owner->fault.failed))
        return;
    uint64_t begin = atom_clock_ns();
    work(s, it);
    *(s->on_card ? &s->host_ns : &s->busy_ns) += atom_clock_ns() - begin; /* read between runs */
    if (it->code == CUDA_COPY)
        s->bytes_copied += it->bytes;
}

static void begin(void *ctx)
{
    dev_stream *s = ctx;
    (void)cuda_dev_ok(s->owner, cudaSetDevice(s->owner->card), "choosing the card");
}

void cuda_stream_collect(dev_stream *s)
{
    pthread_mutex_lock(&s->queue.lock);
    for (size_t i = 0; i < s->n_pairs && s->on_card; i++) {
        float ms = 0;
        if (cudaEventElapsedTime(&ms, s->pairs[i].from, s->pairs[i].to) == cudaSuccess && ms > 0)
            s->busy_ns += (uint64_t)((double)ms * 1e6);
    }
    s->n_pairs = 0;
    pthread_mutex_unlock(&s->queue.lock);
}

void cuda_stream_stop(dev_stream *s)
{
    dev_queue_stop(&s->queue);
    if (s->native) {
        (void)cudaStreamSynchronize(s->native);
        (void)cudaStreamDestroy(s->native);
    }
    if (s->block)
        (void)cudaFree(s->block);
    cuda_starts_close(s);
    s->native = NULL;
    s->block = NULL;
    atom_free(s->pairs);
    s->pairs = NULL;
    s->n_pairs = s->room_pairs = 0;
}

static atom_status open_native(dev_stream *s)
{
    cudaError_t error = cudaStreamCreateWithFlags(&s->native, cudaStreamNonBlocking);
    if (error == cudaSuccess && s->kind == DEV_COMPUTE)
        error = cudaMalloc((void **)&s->block, ATOM_ALIGN_BYTES);
    if (error != cudaSuccess)
        return atom_fail(ATOM_E_RUNTIME, "CUDA: stream %s cannot be opened: %s", s->name,
                         cudaGetErrorString(error));
    return ATOM_OK;
}

atom_status cuda_stream_open(cuda_dev *d, dev_stream_kind kind, const char *name, dev_stream **out)
{
    dev_stream *s = atom_alloc(1, sizeof *s);
    if (!s)
        return atom_fail_memory("a stream", sizeof *s);
    s->owner = d;
    s->kind = kind;
    s->on_card = on_card(kind);
    snprintf(s->name, sizeof s->name, "%s", name);
    s->queue = (dev_queue){.begin = begin, .run = run, .ctx = s, .item_bytes = sizeof(cuda_item)};
    s->after = d->streams;
    d->streams = s; /* from here on the device frees it */
    if (s->on_card)
        ATOM_TRY(open_native(s));
    ATOM_TRY(dev_queue_open(&s->queue, s->name));
    *out = s;
    return ATOM_OK;
}
