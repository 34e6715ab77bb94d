/*
 * Owns the thread of a stream. One idea: `passed` only grows, so an event, a sync and a full queue
 * all wait for it to pass a number. After open nothing is allocated: a full ring blocks the
 * producer. Refuses to know what an item is.
 */
#include "kernels/dev_queue.h"

#include "atom/base/assert.h"
#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <stdalign.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* --- the failure ------------------------------------------------------------------------------ */

void dev_fault_open(dev_fault *f)
{
    pthread_mutex_init(&f->lock, NULL);
}

void dev_fault_close(dev_fault *f)
{
    pthread_mutex_destroy(&f->lock);
}

void dev_fault_set(dev_fault *f, atom_status status)
{
    pthread_mutex_lock(&f->lock);
    if (!atomic_load(&f->failed)) {
        f->status = status;
        snprintf(f->message, sizeof f->message, "%s", atom_fail_message());
        atomic_store(&f->failed, 1);
    }
    pthread_mutex_unlock(&f->lock);
}

atom_status dev_fault_check(dev_fault *f)
{
    if (!atomic_load(&f->failed))
        return ATOM_OK;
    pthread_mutex_lock(&f->lock);
    bool first = !f->told;
    f->told = true;
    pthread_mutex_unlock(&f->lock);
    if (first)
        return atom_fail(f->status, "%s", f->message);
    bool diverged = f->status == ATOM_E_DIVERGED; /* the device is not to blame for that */
    return atom_fail(ATOM_E_DEAD, "%s%s",
                     diverged ? "" : "the device failed earlier: ", f->message);
}

/* --- the queue -------------------------------------------------------------------------------- */

static void *queue_main(void *arg)
{
    dev_queue *q = arg;
    alignas(max_align_t) char item[DEV_ITEM_MAX];
    bool was_idle = true;
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    q->begin(q->ctx);
    pthread_mutex_lock(&q->lock);
    for (;;) {
        if (q->queued == q->passed) {
            if (q->stop)
                break;
            pthread_cond_wait(&q->more, &q->lock);
            was_idle = true;
            continue;
        }
        memcpy(item, q->ring + q->passed % DEV_QUEUE_MAX * q->item_bytes, q->item_bytes);
        pthread_mutex_unlock(&q->lock);
        q->run(q->ctx, item, was_idle);
        was_idle = false;
        pthread_mutex_lock(&q->lock);
        q->passed++;
        pthread_cond_broadcast(&q->moved);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

atom_status dev_queue_open(dev_queue *q, const char *name)
{
    ATOM_ASSERT(q->item_bytes <= DEV_ITEM_MAX);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->more, NULL);
    pthread_cond_init(&q->moved, NULL);
    q->ring = atom_alloc(DEV_QUEUE_MAX, q->item_bytes);
    if (!q->ring)
        return atom_fail_memory("a stream's queue", DEV_QUEUE_MAX * q->item_bytes);
    int error = pthread_create(&q->thread, NULL, queue_main, q);
    if (error)
        return atom_fail_errno(error, "cannot start a thread for stream %s", name);
    q->started = true;
    return ATOM_OK;
}

void dev_queue_push(dev_queue *q, const void *item)
{
    pthread_mutex_lock(&q->lock);
    while (q->queued - q->passed == DEV_QUEUE_MAX)
        pthread_cond_wait(&q->moved, &q->lock);
    memcpy(q->ring + q->queued++ % DEV_QUEUE_MAX * q->item_bytes, item, q->item_bytes);
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->lock);
}

bool dev_queue_reach(dev_queue *q, uint64_t until)
{
    pthread_mutex_lock(&q->lock);
    bool waited = q->passed < until;
    while (q->passed < until)
        pthread_cond_wait(&q->moved, &q->lock);
    pthread_mutex_unlock(&q->lock);
    return waited;
}

void dev_queue_drain(dev_queue *q)
{
    dev_queue_reach(q, dev_queue_queued(q));
}

uint64_t dev_queue_queued(dev_queue *q)
{
    pthread_mutex_lock(&q->lock);
    uint64_t queued = q->queued;
    pthread_mutex_unlock(&q->lock);
    return queued;
}

bool dev_queue_is_idle(dev_queue *q)
{
    pthread_mutex_lock(&q->lock);
    bool idle = q->queued == q->passed;
    pthread_mutex_unlock(&q->lock);
    return idle;
}

void dev_queue_stop(dev_queue *q)
{
    if (q->started) {
        pthread_mutex_lock(&q->lock);
        q->stop = true;
        pthread_cond_signal(&q->more);
        pthread_mutex_unlock(&q->lock);
        pthread_join(q->thread, NULL);
        q->started = false;
    }
    atom_free(q->ring);
    q->ring = NULL;
}

void dev_queue_close(dev_queue *q)
{
    dev_queue_stop(q);
    pthread_cond_destroy(&q->moved);
    pthread_cond_destroy(&q->more);
    pthread_mutex_destroy(&q->lock);
}

void dev_sleep_until(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (atom_clock_ns() < ns)
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}
