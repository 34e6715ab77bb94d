/* The null device: virtual time, shared resources, waits, and the budget.
 * Everything here is exact. */
#include "atom/base/mem.h"
#include "kernels/device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

typedef struct world {
    dev *d;
    dev_stream *s[DEV_STREAM_N];
    dev_event *e[8];
} world;

static int up(void **state)
{
    world *w = atom_alloc(1, sizeof *w);
    if (!w || dev_null_open(1 << 20, &w->d) != ATOM_OK)
        return -1;
    for (int i = 0; i < DEV_STREAM_N; i++) {
        if (w->d->ops->stream_open(w->d, (dev_stream_kind)i, "s", &w->s[i]) != ATOM_OK)
            return -1;
    }
    for (int i = 0; i < 8; i++) {
        if (w->d->ops->event_open(w->d, &w->e[i]) != ATOM_OK)
            return -1;
    }
    *state = w;
    return 0;
}

static int down(void **state)
{
    world *w = *state;
    for (int i = 0; i < 8; i++)
        w->d->ops->event_close(w->d, w->e[i]);
    for (int i = 0; i < DEV_STREAM_N; i++)
        w->d->ops->stream_close(w->d, w->s[i]);
    dev_close(&w->d);
    atom_free(w);
    return 0;
}

static void must_not_run(krn_ctx *cx, void *arg)
{
    (void)cx;
    (void)arg;
    fail_msg("the null device ran a kernel");
}

/* Queues `seconds` of work that wants `share` of resource r. */
static void work(world *w, int stream, double seconds, dev_resource r, float share)
{
    dev_cost cost = {.seconds = seconds};
    cost.share[r] = share;
    assert_int_equal(w->d->ops->launch(w->d, w->s[stream], must_not_run, NULL, cost), ATOM_OK);
}

static void record(world *w, int stream, int event)
{
    assert_int_equal(w->d->ops->record(w->d, w->s[stream], w->e[event]), ATOM_OK);
}

static void wait_for(world *w, int stream, int event)
{
    assert_int_equal(w->d->ops->wait(w->d, w->s[stream], w->e[event]), ATOM_OK);
}

static void sync_all(world *w)
{
    for (int i = 0; i < DEV_STREAM_N; i++)
        assert_int_equal(w->d->ops->stream_sync(w->d, w->s[i]), ATOM_OK);
}

static void expect_at(world *w, int event, double seconds)
{
    double got = (double)w->d->ops->event_ns(w->d, w->e[event]) * 1e-9;
    if (fabs(got - seconds) > 2e-9)
        fail_msg("event %d at %.9f s, expected %.9f s", event, got, seconds);
}

static double busy(world *w, int stream)
{
    return w->d->ops->stream_stats(w->d, w->s[stream]).busy_seconds;
}

static void independent_work_overlaps(void **state)
{
    world *w = *state;
    work(w, 0, 3, DEV_R_GPU, 1);
    work(w, 1, 2, DEV_R_H2D, 1);
    record(w, 0, 0);
    record(w, 1, 1);
    sync_all(w);
    expect_at(w, 0, 3);
    expect_at(w, 1, 2);
}

static void a_stream_runs_in_order(void **state)
{
    world *w = *state;
    for (int i = 0; i < 8; i++) {
        work(w, 0, 1, DEV_R_CORES, 1);
        record(w, 0, i);
    }
    sync_all(w);
    for (int i = 0; i < 8; i++)
        expect_at(w, i, i + 1);
    assert_true(fabs(busy(w, 0) - 8) < 1e-9);
}

static void a_shared_resource_halves(void **state)
{
    world *w = *state;
    work(w, 0, 1, DEV_R_DRAM, 1);
    work(w, 1, 3, DEV_R_DRAM, 1);
    record(w, 0, 0);
    record(w, 1, 1);
    sync_all(w);
    /* both at half speed until 2, then 2 seconds of the second are left, alone */
    expect_at(w, 0, 2);
    expect_at(w, 1, 4);
    assert_true(fabs(busy(w, 0) - 2) < 1e-9);
    assert_true(fabs(busy(w, 1) - 4) < 1e-9);
}

static void shares_that_fit_do_not_slow(void **state)
{
    world *w = *state;
    work(w, 0, 2, DEV_R_DRAM, 0.5f);
    work(w, 1, 2, DEV_R_DRAM, 0.5f);
    record(w, 0, 0);
    record(w, 1, 1);
    sync_all(w);
    expect_at(w, 0, 2);
    expect_at(w, 1, 2);
}

static void the_worst_resource_decides(void **state)
{
    world *w = *state;
    dev_cost a = {.seconds = 1}, b = {.seconds = 1}, c = {.seconds = 1};
    a.share[DEV_R_CORES] = 1;
    a.share[DEV_R_DRAM] = 0.75f;
    b.share[DEV_R_DRAM] = 0.75f; /* DRAM: 1.5 + 0.5 = 2 */
    c.share[DEV_R_DRAM] = 0.5f;
    c.share[DEV_R_CORES] = 0.25f; /* cores: 1.25 */
    dev_cost all[3] = {a, b, c};
    for (int i = 0; i < 3; i++)
        assert_int_equal(w->d->ops->launch(w->d, w->s[i], must_not_run, NULL, all[i]), ATOM_OK);
    for (int i = 0; i < 3; i++)
        record(w, i, i);
    sync_all(w);
    for (int i = 0; i < 3; i++)
        expect_at(w, i, 2);
}

static void waits_hold_back(void **state)
{
    world *w = *state;
    work(w, 1, 5, DEV_R_H2D, 1);
    record(w, 1, 0);
    work(w, 1, 5, DEV_R_H2D, 1);
    wait_for(w, 0, 0);
    work(w, 0, 1, DEV_R_GPU, 1);
    record(w, 0, 1);
    wait_for(w, 2, 1);
    record(w, 2, 2);
    sync_all(w);
    expect_at(w, 1, 6);
    expect_at(w, 2, 6);
    assert_true(fabs(busy(w, 0) - 1) < 1e-9);
    assert_true(busy(w, 2) == 0);
}

/* A wait means the latest record issued before it, not a later one. */
static void events_may_be_recorded_again(void **state)
{
    world *w = *state;
    work(w, 0, 1, DEV_R_GPU, 1);
    record(w, 0, 0);
    wait_for(w, 1, 0);
    record(w, 1, 1);
    work(w, 0, 1, DEV_R_GPU, 1);
    record(w, 0, 0);
    wait_for(w, 2, 0);
    record(w, 2, 2);
    sync_all(w);
    expect_at(w, 1, 1);
    expect_at(w, 2, 2);
    expect_at(w, 0, 2);
}

/* Work queued after a sync starts no earlier than the host returned from it. */
static void the_host_waits_in_virtual_time(void **state)
{
    world *w = *state;
    work(w, 0, 2, DEV_R_GPU, 1);
    record(w, 0, 0);
    work(w, 0, 8, DEV_R_GPU, 1);
    record(w, 0, 1);
    assert_int_equal(w->d->ops->event_sync(w->d, w->e[0]), ATOM_OK);
    work(w, 1, 1, DEV_R_GPU, 1); /* shares with the rest of stream 0 from 2 on */
    record(w, 1, 2);
    sync_all(w);
    expect_at(w, 0, 2);
    expect_at(w, 2, 4);
    expect_at(w, 1, 11);
}

static void waiting_for_nothing_is_refused(void **state)
{
    world *w = *state;
    assert_int_equal(w->d->ops->wait(w->d, w->s[0], w->e[0]), ATOM_E_RUNTIME);
    assert_non_null(strstr(atom_fail_message(), "never recorded"));
    assert_int_equal(w->d->ops->event_sync(w->d, w->e[0]), ATOM_E_RUNTIME);
}

static void bytes_are_counted(void **state)
{
    world *w = *state;
    dev *d = w->d;
    dev_cost cost = {.seconds = 1};
    for (int i = 0; i < 3; i++)
        assert_int_equal(d->ops->copy(d, w->s[1], NULL, NULL, 1000, cost), ATOM_OK);
    sync_all(w);
    assert_int_equal(d->ops->stream_stats(d, w->s[1]).bytes_copied, 3000);
}

static void the_budget_holds_to_the_byte(void **state)
{
    world *w = *state;
    dev *d = w->d;
    void *a = NULL, *b = NULL, *c = NULL;
    assert_int_equal(d->ops->alloc(d, (1 << 20) - 256, &a), ATOM_OK);
    assert_int_equal(d->ops->alloc(d, 257, &b), ATOM_E_RESOURCE);
    assert_null(b);
    assert_non_null(strstr(atom_fail_message(), "256 are missing"));
    assert_int_equal(d->ops->alloc(d, UINT64_MAX, &b), ATOM_E_RESOURCE);
    assert_int_equal(d->ops->alloc(d, 256, &b), ATOM_OK);
    assert_true(a && b && a != b);
    assert_int_equal(d->used_bytes, 1 << 20);
    d->ops->free(d, a, (1 << 20) - 256);
    assert_int_equal(d->ops->alloc(d, 512, &c), ATOM_OK);
    assert_int_equal(d->used_bytes, 768);
    assert_int_equal(d->peak_bytes, 1 << 20);
    d->ops->free(d, b, 256);
    d->ops->free(d, c, 512);
    assert_int_equal(d->used_bytes, 0);
    void *host = NULL;
    assert_int_equal(d->ops->host_alloc(d, (uint64_t)1 << 42, &host), ATOM_OK);
    assert_int_equal(d->host_bytes, (uint64_t)1 << 42);
    d->ops->host_free(d, host, (uint64_t)1 << 42);
    assert_int_equal(d->host_bytes, 0);
}

/* Total work on one resource takes its sum, however it is spread and queued: 100,000 items. */
static void work_is_conserved(void **state)
{
    world *w = *state;
    double total = 0;
    uint32_t x = 1;
    for (int i = 0; i < 100000; i++) {
        x = x * 1664525u + 1013904223u;
        double seconds = (double)(x >> 20) * 1e-9;
        total += seconds;
        work(w, (int)(x >> 8) % DEV_STREAM_N, seconds, DEV_R_GPU, 1);
    }
    sync_all(w);
    double last = 0;
    for (int i = 0; i < DEV_STREAM_N; i++) {
        record(w, i, i);
        sync_all(w);
        last = fmax(last, (double)w->d->ops->event_ns(w->d, w->e[i]) * 1e-9);
    }
    assert_true(fabs(last - total) < 1e-7);
}

/* Each has links and a GPU of its own; the host's memory is shared, and so is the time. */
static void devices_beside_each_other(void **state)
{
    (void)state;
    dev *d[2] = {NULL};
    dev_stream *s[2] = {NULL};
    dev_event *e = NULL;
    assert_int_equal(dev_null_open(1 << 20, &d[0]), ATOM_OK);
    assert_int_equal(dev_null_open_beside(d[0], 1 << 20, &d[1]), ATOM_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(d[i]->ops->stream_open(d[i], DEV_H2D, "s", &s[i]), ATOM_OK);
    assert_int_equal(d[0]->ops->event_open(d[0], &e), ATOM_OK);
    dev_cost link = {.seconds = 1, .share = {[DEV_R_H2D] = 1, [DEV_R_GPU] = 1, [DEV_R_LINK] = 1}};
    dev_cost memory = {.seconds = 1, .share = {[DEV_R_DRAM] = 1}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(d[i]->ops->copy(d[i], s[i], NULL, NULL, 1, link), ATOM_OK); /* to 1 s */
    for (int i = 0; i < 2; i++)
        assert_int_equal(d[i]->ops->copy(d[i], s[i], NULL, NULL, 1, memory), ATOM_OK); /* 3 s */
    assert_int_equal(d[0]->ops->record(d[0], s[0], e), ATOM_OK);
    assert_int_equal(d[1]->ops->wait(d[1], s[1], e), ATOM_OK);
    assert_int_equal(d[1]->ops->copy(d[1], s[1], NULL, NULL, 1, link), ATOM_OK); /* to 4 s */
    assert_int_equal(d[1]->ops->record(d[1], s[1], e), ATOM_OK);
    assert_int_equal(d[1]->ops->stream_sync(d[1], s[1]), ATOM_OK);
    assert_int_equal(d[0]->ops->event_ns(d[0], e), 4000000000u);
    assert_true(fabs(d[0]->ops->stream_stats(d[0], s[0]).busy_seconds - 3) < 1e-9);
    void *at[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(d[i]->ops->alloc(d[i], 1 << 20, &at[i]), ATOM_OK); /* a budget each */
    assert_ptr_not_equal(at[0], at[1]);
    for (int i = 0; i < 2; i++) {
        d[i]->ops->free(d[i], at[i], 1 << 20);
        d[i]->ops->stream_close(d[i], s[i]);
    }
    d[0]->ops->event_close(d[0], e);
    dev_close(&d[0]); /* in any order */
    dev_close(&d[1]);
}

static void survives_want_of_memory(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 12; n++) {
        uint64_t before = atom_mem_read().live_blocks;
        atom_mem_fail_after(n);
        dev *d = NULL;
        dev_stream *s = NULL;
        atom_status st = dev_null_open(0, &d);
        if (st == ATOM_OK)
            st = d->ops->stream_open(d, DEV_COMPUTE, "s", &s);
        for (int i = 0; i < 40 && st == ATOM_OK; i++)
            st = d->ops->launch(d, s, must_not_run, NULL, (dev_cost){.seconds = 1});
        atom_mem_fail_after(0);
        assert_true(st == (n <= 6 ? ATOM_E_RESOURCE : ATOM_OK));
        dev_close(&d);
        assert_int_equal(atom_mem_read().live_blocks, before);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(independent_work_overlaps),
        TEST(a_stream_runs_in_order),
        TEST(a_shared_resource_halves),
        TEST(shares_that_fit_do_not_slow),
        TEST(the_worst_resource_decides),
        TEST(waits_hold_back),
        TEST(events_may_be_recorded_again),
        TEST(the_host_waits_in_virtual_time),
        TEST(waiting_for_nothing_is_refused),
        TEST(bytes_are_counted),
        TEST(the_budget_holds_to_the_byte),
        TEST(work_is_conserved),
        cmocka_unit_test(devices_beside_each_other),
        cmocka_unit_test(survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
