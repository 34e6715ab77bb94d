/*
 * Owns the worker threads. One idea: a job is an index counter on its caller's stack, listed while
 * it has indices left; workers take from the oldest job. Refuses nesting and dynamic growth.
 *
 * Workers spin for a short while before they sleep, because kernels of one step follow each other
 * within microseconds.
 */
#include "atom/base/threads.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { SPIN_ROUNDS = 2000 };

typedef struct job {
    atom_task task;
    void *ctx;
    uint32_t count;
    _Atomic uint32_t next;
    uint32_t holders; /* workers that may still touch this job; under the lock */
    struct job *after;
} job;

/* A worker and what it is told. */
typedef struct pool_worker {
    atom_threads *pool;
    pthread_t thread;
    uint32_t id;
} pool_worker;

struct atom_threads {
    uint32_t count;
    pool_worker *workers;
    uint32_t started;
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_cond_t idle;
    job *first;
    _Atomic uint32_t posted; /* changes whenever a job is listed */
    _Atomic int stop;
    uint32_t caller_used; /* bit i: caller slot i is taken; under the lock */
    uint32_t sleeping;
};

static void run_indices(job *j, uint32_t worker)
{
    for (;;) {
        uint32_t i = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
        if (i >= j->count)
            return;
        j->task(j->ctx, i, worker);
    }
}

/* The oldest job with indices left; under the lock. */
static job *take_job(atom_threads *pool)
{
    for (job *j = pool->first; j; j = j->after) {
        if (atomic_load_explicit(&j->next, memory_order_relaxed) < j->count)
            return j;
    }
    return NULL;
}

static void spin_for_work(atom_threads *pool, uint32_t seen)
{
    for (int i = 0; i < SPIN_ROUNDS; i++) {
        if (atomic_load_explicit(&pool->posted, memory_order_acquire) != seen ||
            atomic_load_explicit(&pool->stop, memory_order_relaxed))
            return;
        __builtin_ia32_pause();
    }
}

static void *worker_main(void *arg)
{
    const pool_worker *me = arg; /* its `thread` may not be written yet */
    atom_threads *pool = me->pool;
    pthread_mutex_lock(&pool->lock);
    while (!atomic_load(&pool->stop)) {
        job *j = take_job(pool);
        if (j) {
            j->holders++;
            pthread_mutex_unlock(&pool->lock);
            run_indices(j, me->id);
            pthread_mutex_lock(&pool->lock);
            if (--j->holders == 0)
                pthread_cond_broadcast(&pool->idle);
            continue;
        }
        uint32_t seen = atomic_load(&pool->posted);
        pthread_mutex_unlock(&pool->lock);
        spin_for_work(pool, seen);
        pthread_mutex_lock(&pool->lock);
        if (atomic_load(&pool->posted) == seen && !atomic_load(&pool->stop)) {
            pool->sleeping++;
            pthread_cond_wait(&pool->work, &pool->lock);
            pool->sleeping--;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

atom_status atom_threads_open(uint32_t count, atom_threads **out)
{
    ATOM_ASSERT(count >= 1);
    atom_threads *pool = atom_alloc(1, sizeof *pool);
    if (!pool)
        return atom_fail_memory("the thread pool", sizeof *pool);
    pool->count = count;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->idle, NULL);
    pool->workers = atom_alloc(count, sizeof *pool->workers);
    if (!pool->workers)
        goto memory;
    for (uint32_t i = 0; i + 1 < count; i++) {
        pool_worker *w = &pool->workers[i];
        w->pool = pool;
        w->id = i;
        int error = pthread_create(&w->thread, NULL, worker_main, w);
        if (error) {
            atom_threads_close(&pool);
            return atom_fail_errno(error, "cannot start %u threads; use fewer with --threads",
                                   count);
        }
        pool->started++;
    }
    *out = pool;
    return ATOM_OK;
memory:
    atom_threads_close(&pool);
    return atom_fail_memory("the thread pool", count * sizeof(pool_worker));
}

void atom_threads_close(atom_threads **pool_ref)
{
    atom_threads *pool = *pool_ref;
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->stop, 1);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->idle);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    atom_free(pool->workers);
    atom_free(pool);
    *pool_ref = NULL;
}

uint32_t atom_threads_count(const atom_threads *pool)
{
    return pool->count;
}

uint32_t atom_threads_slots(const atom_threads *pool)
{
    return pool->count - 1 + ATOM_CALLERS_MAX;
}

static uint32_t take_caller_slot(atom_threads *pool)
{
    for (uint32_t i = 0; i < ATOM_CALLERS_MAX; i++) {
        if (!(pool->caller_used & (1u << i))) {
            pool->caller_used |= 1u << i;
            return i;
        }
    }
    ATOM_UNREACHABLE("at most ATOM_CALLERS_MAX concurrent parallel loops");
}

static void list_job(atom_threads *pool, job *j)
{
    job **tail = &pool->first;
    while (*tail)
        tail = &(*tail)->after;
    *tail = j;
    atomic_fetch_add_explicit(&pool->posted, 1, memory_order_release);
    if (pool->sleeping)
        pthread_cond_broadcast(&pool->work);
}

static void unlist_job(atom_threads *pool, job *j)
{
    job **at = &pool->first;
    while (*at != j)
        at = &(*at)->after;
    *at = j->after;
}

void atom_parallel(atom_threads *pool, uint32_t count, atom_task task, void *ctx)
{
    if (count == 0)
        return;
    job j = {.task = task, .ctx = ctx, .count = count};
    bool alone = count == 1 || pool->count == 1;
    pthread_mutex_lock(&pool->lock);
    uint32_t slot = take_caller_slot(pool);
    if (!alone)
        list_job(pool, &j);
    pthread_mutex_unlock(&pool->lock);
    run_indices(&j, pool->count - 1 + slot);
    pthread_mutex_lock(&pool->lock);
    if (!alone) {
        unlist_job(pool, &j);
        while (j.holders)
            pthread_cond_wait(&pool->idle, &pool->lock);
    }
    pool->caller_used &= ~(1u << slot);
    pthread_mutex_unlock(&pool->lock);
}
