/*
 * Owns what a stream of the CPU device does with its items (dev_queue.h has the thread). One idea:
 * device memory is host memory, so a copy is a memcpy and a launch is a call.
 *
 * A throttled copy is a memcpy in pieces, each finished no earlier than the link would have. The
 * schedule starts where the previous item of the stream was due, not where it woke up, so that late
 * wake-ups do not add up and the average rate holds.
 *
 * When the device has failed, items are taken and dropped, so that every sync still returns.
 */
#include "kernels/cpu/device_cpu.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <omp.h>
#include <string.h>

static uint64_t piece_bytes(double rate)
{
    const double least = 64 << 10, most = 1 << 20;
    double ms = rate * 1e-3;
    return (uint64_t)(ms < least ? least : ms > most ? most : ms) & ~(uint64_t)4095;
}

static void copy_throttled(dev_stream *s, const cpu_item *it)
{
    double rate = s->owner->config.link_bytes_per_second;
    double begin = (double)s->ready_ns + s->owner->config.link_latency_seconds * 1e9;
    uint64_t done = 0, piece = rate > 0 ? piece_bytes(rate) : it->bytes;
    while (done < it->bytes) {
        uint64_t n = it->bytes - done < piece ? it->bytes - done : piece;
        memcpy((char *)it->dst + done, (const char *)it->src + done, n);
        done += n;
        double due = begin + (rate > 0 ? (double)done / rate * 1e9 : 0);
        s->ready_ns = (uint64_t)due;
        dev_sleep_until(s->ready_ns);
    }
}

static void copy(dev_stream *s, const cpu_item *it)
{
    const dev_cpu_config *c = &s->owner->config;
    bool link = s->kind == DEV_H2D || s->kind == DEV_D2H;
    if (link && (c->link_bytes_per_second > 0 || c->link_latency_seconds > 0)) {
        copy_throttled(s, it);
        /* a copy slower than the link leaves no debt to later ones */
        uint64_t now = atom_clock_ns();
        if (now > s->ready_ns + 1000000)
            s->ready_ns = now;
        return;
    }
    memcpy(it->dst, it->src, it->bytes);
    s->ready_ns = atom_clock_ns();
}

static const uint64_t ZERO_BYTES = (uint64_t)1 << 20; /* per index of a parallel clear */

static void zero_chunk(void *ctx, uint32_t index, uint32_t worker)
{
    (void)worker;
    const cpu_item *it = ctx;
    uint64_t from = index * ZERO_BYTES, left = it->bytes - from;
    memset((char *)it->dst + from, 0, left < ZERO_BYTES ? left : ZERO_BYTES);
}

/* Returns the bytes copied. */
static uint64_t work(dev_stream *s, cpu_item *it)
{
    switch (it->code) {
    case CPU_COPY:
        copy(s, it);
        return it->bytes;
    case CPU_ZERO:
        atom_parallel(s->owner->threads, (uint32_t)((it->bytes + ZERO_BYTES - 1) / ZERO_BYTES),
                      zero_chunk, it);
        break;
    case CPU_LAUNCH: {
        krn_ctx cx = {.threads = s->owner->threads};
        it->launch(&cx, it->arg);
        break;
    }
    case CPU_HOST: {
        atom_status st = it->host(it->arg);
        if (st != ATOM_OK)
            dev_fault_set(&s->owner->fault, st);
        break;
    }
    case CPU_RECORD:
    case CPU_WAIT:
        break;
    }
    s->ready_ns = atom_clock_ns();
    return 0;
}

static void run(void *ctx, void *item, bool was_idle)
{
    dev_stream *s = ctx;
    cpu_item *it = item;
    if (was_idle)
        s->ready_ns = atom_clock_ns();
    if (it->code == CPU_RECORD) {
        atomic_store(&it->event->ns, atom_clock_ns());
        atomic_fetch_sub(&it->event->pending, 1); /* the event may be gone from here on */
        return;
    }
    if (it->code == CPU_WAIT) {
        if (it->of != s && dev_queue_reach(&it->of->queue, it->until))
            s->ready_ns = atom_clock_ns();
        return;
    }
    if (atomic_load(&s->owner->fault.failed))
        return;
    uint64_t begin = atom_clock_ns(), bytes = work(s, it);
    atomic_fetch_add(&s->busy_ns, atom_clock_ns() - begin);
    atomic_fetch_add(&s->bytes_copied, bytes);
}

static void begin(void *ctx)
{
    (void)ctx;
    omp_set_num_threads(1); /* oneDNN is an OpenMP build; our pool is the only team */
}

atom_status cpu_stream_open(cpu_dev *d, dev_stream_kind kind, const char *name, dev_stream **out)
{
    dev_stream *s = atom_alloc(1, sizeof *s);
    if (!s)
        return atom_fail_memory("a stream", sizeof *s);
    s->owner = d;
    s->kind = kind;
    s->queue = (dev_queue){.begin = begin, .run = run, .ctx = s, .item_bytes = sizeof(cpu_item)};
    s->after = d->streams;
    d->streams = s; /* from here on the device frees it */
    ATOM_TRY(dev_queue_open(&s->queue, name));
    *out = s;
    return ATOM_OK;
}
