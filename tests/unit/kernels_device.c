/* The CPU device: order, events, copies, budget, faults. Nothing here depends on how fast it is. */
#include "atom/base/clock.h"
#include "atom/base/mem.h"
#include "atom/base/rng.h"
#include "kernels/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const dev_cost FREE = {0};

typedef struct world {
    atom_threads *threads;
    dev *d;
    dev_stream *s[DEV_STREAM_N];
} world;

static world *world_open(dev_cpu_config config)
{
    world *w = atom_alloc(1, sizeof *w);
    assert_non_null(w);
    assert_int_equal(atom_threads_open(2, &w->threads), ATOM_OK);
    assert_int_equal(dev_cpu_open(&config, w->threads, &w->d), ATOM_OK);
    for (int i = 0; i < DEV_STREAM_N; i++)
        assert_int_equal(w->d->ops->stream_open(w->d, (dev_stream_kind)i, "s", &w->s[i]), ATOM_OK);
    return w;
}

static void world_close(world *w)
{
    for (int i = 0; i < DEV_STREAM_N; i++)
        w->d->ops->stream_close(w->d, w->s[i]);
    dev_close(&w->d);
    assert_null(w->d);
    atom_threads_close(&w->threads);
    atom_free(w);
}

/* A counter that only the streams' order protects: TSan and the final value both notice a miss. */
typedef struct bump {
    uint64_t *counter;
    uint64_t expect;
    _Atomic uint32_t wrong;
} bump;

static void bump_once(krn_ctx *cx, void *arg)
{
    bump *b = arg;
    if (!cx->threads || *b->counter != b->expect)
        atomic_fetch_add(&b->wrong, 1);
    (*b->counter)++;
}

/* A random walk over streams: each step waits for the one before, which ran elsewhere. More steps
 * than a queue holds, so that full queues block the producer, too. */
static void order_holds_across_streams(void **state)
{
    (void)state;
    enum { STEPS = 20000, EVENTS = 3 };
    world *w = world_open((dev_cpu_config){0});
    dev_event *e[EVENTS];
    for (int i = 0; i < EVENTS; i++)
        assert_int_equal(w->d->ops->event_open(w->d, &e[i]), ATOM_OK);
    bump *steps = atom_alloc(STEPS, sizeof *steps);
    assert_non_null(steps);
    uint64_t counter = 0;
    int last = -1;
    atom_rng_key key = {.seed = 7};
    for (int i = 0; i < STEPS; i++) {
        int s = (int)(atom_rng_u32(key, (uint64_t)i) % DEV_STREAM_N);
        if (last >= 0 && last != s) {
            dev_event *via = e[i % EVENTS]; /* recorded again and again */
            assert_int_equal(w->d->ops->record(w->d, w->s[last], via), ATOM_OK);
            assert_int_equal(w->d->ops->wait(w->d, w->s[s], via), ATOM_OK);
        }
        steps[i] = (bump){.counter = &counter, .expect = (uint64_t)i};
        assert_int_equal(w->d->ops->launch(w->d, w->s[s], bump_once, &steps[i], FREE), ATOM_OK);
        last = s;
    }
    assert_int_equal(w->d->ops->stream_sync(w->d, w->s[last]), ATOM_OK);
    assert_int_equal(counter, STEPS);
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(steps[i].wrong, 0);
    for (int i = 0; i < EVENTS; i++)
        w->d->ops->event_close(w->d, e[i]);
    atom_free(steps);
    world_close(w);
}

/* Two streams that can only finish if they really run beside each other. */
static void meet(krn_ctx *cx, void *arg)
{
    (void)cx;
    _Atomic int *here = arg;
    atomic_fetch_add(here, 1);
    while (atomic_load(here) < 2)
        ;
}

static void streams_run_beside_each_other(void **state)
{
    (void)state;
    world *w = world_open((dev_cpu_config){0});
    _Atomic int here = 0;
    assert_int_equal(w->d->ops->launch(w->d, w->s[0], meet, &here, FREE), ATOM_OK);
    assert_int_equal(w->d->ops->launch(w->d, w->s[1], meet, &here, FREE), ATOM_OK);
    assert_int_equal(w->d->ops->stream_sync(w->d, w->s[0]), ATOM_OK);
    assert_int_equal(w->d->ops->stream_sync(w->d, w->s[1]), ATOM_OK);
    world_close(w);
}

static void hold(krn_ctx *cx, void *arg)
{
    (void)cx;
    while (!atomic_load((_Atomic int *)arg))
        ;
}

/* The wait refers to the first record; the second, which is still held up, must not matter. */
static void a_wait_keeps_its_record(void **state)
{
    (void)state;
    world *w = world_open((dev_cpu_config){0});
    dev_event *e = NULL, *never = NULL;
    _Atomic int go = 0;
    assert_int_equal(w->d->ops->event_open(w->d, &e), ATOM_OK);
    assert_int_equal(w->d->ops->event_open(w->d, &never), ATOM_OK);
    assert_int_equal(w->d->ops->record(w->d, w->s[0], e), ATOM_OK);
    assert_int_equal(w->d->ops->wait(w->d, w->s[1], e), ATOM_OK);
    assert_int_equal(w->d->ops->launch(w->d, w->s[2], hold, &go, FREE), ATOM_OK);
    assert_int_equal(w->d->ops->record(w->d, w->s[2], e), ATOM_OK);
    assert_int_equal(w->d->ops->stream_sync(w->d, w->s[1]), ATOM_OK);
    atomic_store(&go, 1);
    assert_int_equal(w->d->ops->event_sync(w->d, e), ATOM_OK);
    assert_true(w->d->ops->event_ns(w->d, e) > 0);
    assert_int_equal(w->d->ops->wait(w->d, w->s[1], never), ATOM_E_RUNTIME);
    w->d->ops->event_close(w->d, e);
    w->d->ops->event_close(w->d, never);
    world_close(w);
}

/* Closing waits for every queued record of the event, not only for the latest. */
static void an_event_outlives_its_records(void **state)
{
    (void)state;
    world *w = world_open((dev_cpu_config){0});
    for (int i = 0; i < 200; i++) {
        dev_event *e = NULL;
        uint64_t counter = 0;
        bump b = {.counter = &counter};
        assert_int_equal(w->d->ops->event_open(w->d, &e), ATOM_OK);
        assert_int_equal(w->d->ops->launch(w->d, w->s[0], bump_once, &b, FREE), ATOM_OK);
        assert_int_equal(w->d->ops->record(w->d, w->s[0], e), ATOM_OK);
        assert_int_equal(w->d->ops->record(w->d, w->s[1], e), ATOM_OK);
        w->d->ops->event_close(w->d, e);
        assert_int_equal(counter, 1);
    }
    world_close(w);
}

static void copy_round_trip(dev_cpu_config config, uint64_t bytes)
{
    world *w = world_open(config);
    dev *d = w->d;
    void *host = NULL, *on_device = NULL, *back = NULL;
    dev_event *e = NULL;
    assert_int_equal(d->ops->event_open(d, &e), ATOM_OK);
    assert_int_equal(d->ops->host_alloc(d, bytes, &host), ATOM_OK);
    assert_int_equal(d->ops->host_alloc(d, bytes, &back), ATOM_OK);
    assert_int_equal(d->ops->alloc(d, bytes, &on_device), ATOM_OK);
    uint8_t *h = host, *b = back, *v = on_device;
    for (uint64_t i = 0; i < bytes; i++) {
        assert_int_equal(h[i] | b[i] | v[i], 0); /* zeroed */
        h[i] = (uint8_t)(i * 31 + i / 251);
    }
    assert_int_equal(d->ops->copy(d, w->s[DEV_H2D], v, h, bytes, FREE), ATOM_OK);
    assert_int_equal(d->ops->record(d, w->s[DEV_H2D], e), ATOM_OK);
    assert_int_equal(d->ops->wait(d, w->s[DEV_D2H], e), ATOM_OK);
    assert_int_equal(d->ops->copy(d, w->s[DEV_D2H], b, v, bytes, FREE), ATOM_OK);
    assert_int_equal(d->ops->stream_sync(d, w->s[DEV_D2H]), ATOM_OK);
    assert_memory_equal(h, b, bytes);
    assert_int_equal(d->ops->zero(d, w->s[DEV_COMPUTE], v + 1, bytes - 2, FREE), ATOM_OK);
    assert_int_equal(d->ops->stream_sync(d, w->s[DEV_COMPUTE]), ATOM_OK);
    assert_int_equal(v[0], h[0]);
    assert_int_equal(v[bytes - 1], h[bytes - 1]);
    for (uint64_t i = 1; i + 1 < bytes; i++)
        assert_int_equal(v[i], 0);
    assert_int_equal(d->ops->stream_stats(d, w->s[DEV_H2D]).bytes_copied, bytes);
    assert_int_equal(d->ops->stream_stats(d, w->s[DEV_D2H]).bytes_copied, bytes);
    d->ops->host_free(d, host, bytes);
    d->ops->host_free(d, back, bytes);
    d->ops->free(d, on_device, bytes);
    assert_int_equal(d->used_bytes + d->host_bytes, 0);
    d->ops->event_close(d, e);
    world_close(w);
}

static void copies_arrive(void **state)
{
    (void)state;
    copy_round_trip((dev_cpu_config){0}, 3);
    copy_round_trip((dev_cpu_config){0}, ((uint64_t)5 << 20) + 13);
}

/* A throttle never lets bytes through faster than asked: true however slow the machine is. */
static void the_link_is_never_too_fast(void **state)
{
    (void)state;
    const double rate = 400e6;
    const uint64_t bytes = 2000000;
    copy_round_trip((dev_cpu_config){.link_bytes_per_second = rate}, bytes + 1);
    world *w =
        world_open((dev_cpu_config){.link_bytes_per_second = rate, .link_latency_seconds = 1e-3});
    uint8_t *from = atom_alloc(bytes, 1), *to = atom_alloc(bytes, 1);
    assert_true(from && to);
    uint64_t begin = atom_clock_ns();
    for (int i = 0; i < 3; i++)
        assert_int_equal(w->d->ops->copy(w->d, w->s[DEV_H2D], to, from, bytes, FREE), ATOM_OK);
    assert_int_equal(w->d->ops->stream_sync(w->d, w->s[DEV_H2D]), ATOM_OK);
    double seconds = (double)(atom_clock_ns() - begin) * 1e-9;
    assert_true(seconds >= 3 * ((double)bytes / rate + 1e-3) * 0.999);
    assert_true(w->d->ops->stream_stats(w->d, w->s[DEV_H2D]).busy_seconds <= seconds);
    atom_free(from);
    atom_free(to);
    world_close(w);
}

static void the_budget_holds_to_the_byte(void **state)
{
    (void)state;
    world *w = world_open((dev_cpu_config){.budget_bytes = 1 << 20});
    dev *d = w->d;
    void *a = NULL, *b = NULL;
    assert_true(d->unified);
    assert_int_equal(d->ops->alloc(d, 1 << 20, &a), ATOM_OK);
    assert_int_equal((uintptr_t)a % ATOM_ALIGN_BYTES, 0);
    assert_int_equal(d->ops->alloc(d, 1, &b), ATOM_E_RESOURCE);
    assert_null(b);
    assert_non_null(strstr(atom_fail_message(), "budget is 1048576; 256 are missing"));
    d->ops->free(d, a, 1 << 20);
    assert_int_equal(d->ops->alloc(d, 1, &b), ATOM_OK);
    d->ops->free(d, b, 1);
    assert_int_equal(d->peak_bytes, 1 << 20);
    world_close(w);
}

static void more_than_the_machine_has_is_refused(void **state)
{
    (void)state;
    world *w = world_open((dev_cpu_config){0});
    void *a = NULL;
    assert_int_equal(w->d->ops->host_alloc(w->d, (uint64_t)1 << 50, &a), ATOM_E_RESOURCE);
    assert_int_equal(w->d->ops->alloc(w->d, (uint64_t)1 << 50, &a), ATOM_E_RESOURCE);
    assert_null(a);
    assert_int_equal(w->d->used_bytes + w->d->host_bytes, 0);
    world_close(w);
}

static atom_status diverge(void *arg)
{
    (*(uint64_t *)arg)++;
    return atom_fail(ATOM_E_DIVERGED, "the loss is not finite");
}

static void count_launch(krn_ctx *cx, void *arg)
{
    (void)cx;
    (*(uint64_t *)arg)++;
}

/* First the reason, then "dead"; what was queued behind the fault does not run. */
static void a_fault_is_sticky(void **state)
{
    (void)state;
    world *w = world_open((dev_cpu_config){0});
    dev *d = w->d;
    uint64_t failures = 0, after = 0;
    _Atomic int go = 0;
    dev_stream *host = w->s[DEV_HOST];
    assert_int_equal(d->ops->launch(d, host, hold, &go, FREE), ATOM_OK);
    assert_int_equal(d->ops->host_call(d, host, diverge, &failures, FREE), ATOM_OK);
    assert_int_equal(d->ops->host_call(d, host, diverge, &failures, FREE), ATOM_OK);
    assert_int_equal(d->ops->launch(d, host, count_launch, &after, FREE), ATOM_OK);
    atomic_store(&go, 1);
    assert_int_equal(d->ops->stream_sync(d, host), ATOM_E_DIVERGED);
    assert_string_equal(atom_fail_message(), "the loss is not finite");
    assert_int_equal(d->ops->stream_sync(d, host), ATOM_E_DEAD);
    assert_string_equal(atom_fail_message(), "the loss is not finite"); /* no fault of the device */
    assert_int_equal(d->ops->launch(d, w->s[0], count_launch, &after, FREE), ATOM_E_DEAD);
    void *a = NULL;
    assert_int_equal(d->ops->alloc(d, 1, &a), ATOM_E_DEAD);
    assert_int_equal(failures, 1);
    assert_int_equal(after, 0);
    world_close(w);
}

static void survives_want_of_memory(void **state)
{
    (void)state;
    int opened = 0;
    for (uint64_t n = 1; n < 12; n++) {
        uint64_t before = atom_mem_read().live_blocks;
        atom_threads *threads = NULL;
        dev *d = NULL;
        dev_stream *s = NULL;
        dev_event *e = NULL;
        void *a = NULL;
        assert_int_equal(atom_threads_open(1, &threads), ATOM_OK);
        atom_mem_fail_after(n);
        atom_status st = dev_cpu_open(&(dev_cpu_config){0}, threads, &d);
        if (st == ATOM_OK)
            st = d->ops->stream_open(d, DEV_COMPUTE, "s", &s);
        if (st == ATOM_OK)
            st = d->ops->event_open(d, &e);
        if (st == ATOM_OK)
            st = d->ops->alloc(d, 100, &a);
        atom_mem_fail_after(0);
        assert_true(st == ATOM_OK || st == ATOM_E_RESOURCE);
        opened += st == ATOM_OK;
        if (d) {
            d->ops->free(d, a, 100);
            d->ops->event_close(d, e);
            d->ops->stream_close(d, s);
        }
        dev_close(&d);
        atom_threads_close(&threads);
        assert_int_equal(atom_mem_read().live_blocks, before);
    }
    assert_in_range(opened, 1, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_holds_across_streams),
        cmocka_unit_test(streams_run_beside_each_other),
        cmocka_unit_test(a_wait_keeps_its_record),
        cmocka_unit_test(an_event_outlives_its_records),
        cmocka_unit_test(copies_arrive),
        cmocka_unit_test(the_link_is_never_too_fast),
        cmocka_unit_test(the_budget_holds_to_the_byte),
        cmocka_unit_test(more_than_the_machine_has_is_refused),
        cmocka_unit_test(a_fault_is_sticky),
        cmocka_unit_test(survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
