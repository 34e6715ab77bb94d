/* Timing a call on a device whose clock the test turns: what warms up does not count, what is short is
 * run several times between two events, and the median of all rounds is what is told. */
#include "atom/plan/measure.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct dev_event {
    uint64_t ns;
};

static struct {
    uint64_t now_ns;
    const double *takes; /* seconds of each launch */
    unsigned n, launches, calls;
} card;

static void close_card(dev *d)
{
    (void)d;
}

static atom_status open_stream(dev *d, dev_stream_kind kind, const char *name, dev_stream **out)
{
    (void)d, (void)kind, (void)name;
    *out = NULL;
    return ATOM_OK;
}

static void close_stream(dev *d, dev_stream *s)
{
    (void)d, (void)s;
}

static atom_status open_event(dev *d, dev_event **out)
{
    static dev_event events[2];
    static unsigned n;
    (void)d;
    *out = &events[n++ % 2];
    return ATOM_OK;
}

static void close_event(dev *d, dev_event *e)
{
    (void)d, (void)e;
}

static atom_status record(dev *d, dev_stream *s, dev_event *e)
{
    (void)d, (void)s;
    e->ns = card.now_ns;
    return ATOM_OK;
}

static atom_status launch(dev *d, dev_stream *s, dev_launch_fn fn, void *arg, dev_cost cost)
{
    krn_ctx cx = {0};
    (void)d, (void)s, (void)cost;
    assert_true(card.launches < card.n);
    card.now_ns += (uint64_t)llround(card.takes[card.launches++] * 1e9);
    fn(&cx, arg);
    return ATOM_OK;
}

static atom_status sync_stream(dev *d, dev_stream *s)
{
    (void)d, (void)s;
    return ATOM_OK;
}

static uint64_t event_ns(dev *d, dev_event *e)
{
    (void)d;
    return e->ns;
}

static const dev_ops OPS = {.name = "a card",
                            .close = close_card,
                            .stream_open = open_stream,
                            .stream_close = close_stream,
                            .event_open = open_event,
                            .event_close = close_event,
                            .launch = launch,
                            .record = record,
                            .stream_sync = sync_stream,
                            .event_ns = event_ns};

atom_status __wrap_plan_device_open(const plan_workbench *bench, uint32_t number,
                                    uint64_t budget_bytes, dev **out);
atom_status __wrap_plan_device_open(const plan_workbench *bench, uint32_t number,
                                    uint64_t budget_bytes, dev **out)
{
    static dev d = {.ops = &OPS};
    (void)bench, (void)number, (void)budget_bytes;
    *out = &d;
    return ATOM_OK;
}

static void run(krn_ctx *cx, const krn_args *args)
{
    (void)cx, (void)args;
    card.calls++;
}

static double measure(const double *takes, unsigned n)
{
    static const krn_table table = {.fwd = {[ATOM_OP_linear] = run}};
    static const swap_call call = {.op = ATOM_OP_linear};
    static void *const host[KRN_BUF_MAX];
    plan_measure *m = NULL;
    double seconds = -1;
    card.takes = takes;
    card.n = n;
    card.launches = card.calls = 0;
    assert_int_equal(plan_measure_open(NULL, &m), ATOM_OK);
    assert_int_equal(plan_measure_call(m, &table, &call, host, &seconds), ATOM_OK);
    plan_measure_close(&m);
    assert_int_equal(card.launches, n);
    return seconds;
}

/* Three rounds at least, whatever they take; the one before says how often it is run in each. */
static void three_long_rounds(void **state)
{
    static const double takes[] = {9, 1e-3, 0.3, 0.1, 0.2};
    (void)state;
    assert_true(fabs(measure(takes, 5) - 0.1) < 1e-9);
    assert_int_equal(card.calls, 1 + 1 + 3 * 2);
}

/* More of what is short, until a quarter of a second is over or there are nine. */
static void more_rounds_of_what_is_short(void **state)
{
    static const double nine[] = {9, 1e-3, 9e-3, 1e-3, 8e-3, 2e-3, 7e-3, 3e-3, 6e-3, 4e-3, 5e-3};
    static const double four[] = {9, 4e-3, 0.08, 0.05, 0.07, 0.06};
    (void)state;
    assert_true(fabs(measure(nine, 11) - 2.5e-3) < 1e-9);
    assert_int_equal(card.calls, 1 + 1 + 9 * 2);
    assert_true(fabs(measure(four, 6) - 0.07) < 1e-9); /* of two in the middle, the slower one */
    assert_int_equal(card.calls, 1 + 1 + 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_long_rounds),
        cmocka_unit_test(more_rounds_of_what_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
