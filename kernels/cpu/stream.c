/*
 * Owns one stream of the CPU device: a thread that runs a bounded ring of items in order. One idea:
 * `finished` only grows, and everything that waits (an event, a sync, a full queue) waits for it to
 * pass a number. After open nothing is allocated: a full ring blocks the producer.
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
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

static void sleep_until(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (atom_clock_ns() < ns)
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

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
        sleep_until(s->ready_ns);
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
static uint64_t run(dev_stream *s, cpu_item *it)
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
            cpu_dev_fail(s->owner, st);
        break;
    }
    case CPU_RECORD:
    case CPU_WAIT:
        break;
    }
    s->ready_ns = atom_clock_ns();
    return 0;
}

/* Runs one item without the lock; adds to the counters of the caller. */
static void step(dev_stream *s, cpu_item *it, uint64_t *busy_ns, uint64_t *bytes)
{
    if (it->code == CPU_RECORD) {
        atomic_store(&it->event->ns, atom_clock_ns());
        atomic_fetch_sub(&it->event->pending, 1); /* the event may be gone from here on */
        return;
    }
    if (it->code == CPU_WAIT) {
        if (it->of != s && cpu_stream_reach(it->of, it->until))
            s->ready_ns = atom_clock_ns();
        return;
    }
    if (atomic_load(&s->owner->failed))
        return;
    uint64_t begin = atom_clock_ns();
    *bytes = run(s, it);
    *busy_ns = atom_clock_ns() - begin;
}

static void *stream_main(void *arg)
{
    dev_stream *s = arg;
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    omp_set_num_threads(1); /* oneDNN is an OpenMP build; our pool is the only team */
    pthread_mutex_lock(&s->lock);
    s->ready_ns = atom_clock_ns();
    for (;;) {
        if (s->queued == s->finished) {
            if (s->stop)
                break;
            pthread_cond_wait(&s->more, &s->lock);
            s->ready_ns = atom_clock_ns();
            continue;
        }
        cpu_item it = s->ring[s->finished % CPU_QUEUE_MAX];
        pthread_mutex_unlock(&s->lock);
        uint64_t busy_ns = 0, bytes = 0;
        step(s, &it, &busy_ns, &bytes);
        pthread_mutex_lock(&s->lock);
        s->busy_ns += busy_ns;
        s->bytes_copied += bytes;
        s->finished++;
        pthread_cond_broadcast(&s->moved);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

void cpu_stream_push(dev_stream *s, const cpu_item *item)
{
    pthread_mutex_lock(&s->lock);
    while (s->queued - s->finished == CPU_QUEUE_MAX)
        pthread_cond_wait(&s->moved, &s->lock);
    s->ring[s->queued++ % CPU_QUEUE_MAX] = *item;
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&s->lock);
}

bool cpu_stream_reach(dev_stream *s, uint64_t until)
{
    pthread_mutex_lock(&s->lock);
    bool waited = s->finished < until;
    while (s->finished < until)
        pthread_cond_wait(&s->moved, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return waited;
}

void cpu_stream_stop(dev_stream *s)
{
    if (s->started) {
        pthread_mutex_lock(&s->lock);
        s->stop = true;
        pthread_cond_signal(&s->more);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
        s->started = false;
    }
    atom_free(s->ring);
    s->ring = NULL;
}

atom_status cpu_stream_open(cpu_dev *d, dev_stream_kind kind, const char *name, dev_stream **out)
{
    dev_stream *s = atom_alloc(1, sizeof *s);
    if (!s)
        return atom_fail_memory("a stream", sizeof *s);
    s->owner = d;
    s->kind = kind;
    snprintf(s->name, sizeof s->name, "%s", name);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->more, NULL);
    pthread_cond_init(&s->moved, NULL);
    s->after = d->streams;
    d->streams = s; /* from here on the device frees it */
    s->ring = atom_alloc(CPU_QUEUE_MAX, sizeof *s->ring);
    if (!s->ring)
        return atom_fail_memory("a stream's queue", CPU_QUEUE_MAX * sizeof *s->ring);
    int error = pthread_create(&s->thread, NULL, stream_main, s);
    if (error)
        return atom_fail_errno(error, "cannot start a thread for stream %s", s->name);
    s->started = true;
    *out = s;
    return ATOM_OK;
}
