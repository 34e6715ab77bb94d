/* The pool: every index exactly once, from several callers at once. */
#include "atom/base/mem.h"
#include "atom/base/threads.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct counts {
    _Atomic uint32_t seen[1000];
    uint32_t slots;
} counts;

static void count(void *ctx, uint32_t index, uint32_t worker)
{
    counts *c = ctx;
    if (worker < c->slots)
        atomic_fetch_add(&c->seen[index], 1);
}

static void each_index_once(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 5; threads++) {
        atom_threads *pool = NULL;
        assert_int_equal(atom_threads_open(threads, &pool), ATOM_OK);
        for (uint32_t n = 0; n <= 1000; n += 37) {
            counts c = {.slots = atom_threads_slots(pool)};
            atom_parallel(pool, n, count, &c);
            for (uint32_t i = 0; i < 1000; i++)
                assert_int_equal(c.seen[i], i < n);
        }
        atom_threads_close(&pool);
        assert_null(pool);
    }
}

typedef struct caller {
    atom_threads *pool;
    uint32_t wrong;
} caller;

static void *call_many(void *arg)
{
    caller *c = arg;
    for (int round = 0; round < 300; round++) {
        counts n = {.slots = atom_threads_slots(c->pool)};
        atom_parallel(c->pool, 100, count, &n);
        for (uint32_t i = 0; i < 100; i++)
            c->wrong += n.seen[i] != 1;
    }
    return NULL;
}

static void many_callers(void **state)
{
    (void)state;
    atom_threads *pool = NULL;
    assert_int_equal(atom_threads_open(3, &pool), ATOM_OK);
    caller callers[ATOM_CALLERS_MAX];
    pthread_t ids[ATOM_CALLERS_MAX];
    for (int i = 0; i < ATOM_CALLERS_MAX; i++) {
        callers[i] = (caller){pool, 0};
        assert_int_equal(pthread_create(&ids[i], NULL, call_many, &callers[i]), 0);
    }
    for (int i = 0; i < ATOM_CALLERS_MAX; i++) {
        pthread_join(ids[i], NULL);
        assert_int_equal(callers[i].wrong, 0);
    }
    atom_threads_close(&pool);
}

static void survives_want_of_memory(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 10; n++) {
        uint64_t before = atom_mem_read().live_blocks;
        atom_threads *pool = NULL;
        atom_mem_fail_after(n);
        atom_status st = atom_threads_open(3, &pool);
        atom_mem_fail_after(0);
        if (st == ATOM_OK)
            atom_threads_close(&pool);
        assert_null(pool);
        assert_int_equal(atom_mem_read().live_blocks, before);
    }
}

typedef struct meeting {
    atom_threads *pool;
    pthread_barrier_t *together;
    uint32_t worker;
} meeting;

static void meet(void *ctx, uint32_t index, uint32_t worker)
{
    meeting *m = ctx;
    (void)index;
    m->worker = worker;
    pthread_barrier_wait(m->together);
}

static void *call_once(void *arg)
{
    meeting *m = arg;
    atom_parallel(m->pool, 1, meet, m);
    return NULL;
}

/* Callers that compute at the same time have numbers of their own, since scratch memory goes by them. */
static void callers_differ(void **state)
{
    (void)state;
    atom_threads *pool = NULL;
    pthread_barrier_t together;
    pthread_t ids[ATOM_CALLERS_MAX];
    meeting m[ATOM_CALLERS_MAX];
    bool taken[ATOM_CALLERS_MAX] = {false};
    assert_int_equal(atom_threads_open(1, &pool), ATOM_OK);
    assert_int_equal(pthread_barrier_init(&together, NULL, ATOM_CALLERS_MAX), 0);
    for (int i = 0; i < ATOM_CALLERS_MAX; i++) {
        m[i] = (meeting){.pool = pool, .together = &together};
        assert_int_equal(pthread_create(&ids[i], NULL, call_once, &m[i]), 0);
    }
    for (int i = 0; i < ATOM_CALLERS_MAX; i++)
        pthread_join(ids[i], NULL);
    for (int i = 0; i < ATOM_CALLERS_MAX; i++) {
        assert_true(m[i].worker < atom_threads_slots(pool) && !taken[m[i].worker]);
        taken[m[i].worker] = true;
    }
    pthread_barrier_destroy(&together);
    atom_threads_close(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_index_once),
        cmocka_unit_test(many_callers),
        cmocka_unit_test(callers_differ),
        cmocka_unit_test(survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
