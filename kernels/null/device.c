/*
 * Owns the null device: the device vtable with no memory and no arithmetic behind it. One idea: the
 * executor cannot tell it from a real device, so that predicting a step and running it are the same
 * code. Callbacks are never called and pointers are never followed; bytes are counted and time is
 * virtual.
 */
#include "kernels/null/device_null.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <math.h>
#include <string.h>

static null_dev *of(dev *d)
{
    return (null_dev *)d;
}

static void *take_address(uint64_t *next, uint64_t bytes)
{
    void *at = (void *)(uintptr_t)*next;
    *next += atom_align(bytes) + ATOM_ALIGN_BYTES;
    return at;
}

static atom_status null_alloc(dev *d, uint64_t bytes, void **ptr)
{
    ATOM_ASSERT(bytes > 0);
    atom_status st = dev_budget_take(d, bytes);
    if (st == ATOM_OK)
        *ptr = take_address(&of(d)->next_device, bytes);
    return st;
}

static void null_free(dev *d, void *ptr, uint64_t bytes)
{
    if (ptr)
        dev_budget_give(d, bytes);
}

static atom_status null_host_alloc(dev *d, uint64_t bytes, void **ptr)
{
    ATOM_ASSERT(bytes > 0);
    dev_host_take(d, bytes);
    *ptr = take_address(&of(d)->next_host, bytes);
    return ATOM_OK;
}

static void null_host_free(dev *d, void *ptr, uint64_t bytes)
{
    if (ptr)
        dev_host_give(d, bytes);
}

static atom_status null_stream_open(dev *base, dev_stream_kind kind, const char *name,
                                    dev_stream **out)
{
    (void)kind;
    (void)name;
    null_dev *d = of(base);
    dev_stream *s = atom_alloc(1, sizeof *s);
    if (!s)
        return atom_fail_memory("a stream", sizeof *s);
    s->device = d->number;
    dev_stream **tail = &d->time->streams;
    while (*tail)
        tail = &(*tail)->after;
    *tail = s;
    *out = s;
    return ATOM_OK;
}

/* The struct stays for events that point into it;
 * only an empty stream costs nothing to simulate. */
static void null_stream_close(dev *d, dev_stream *s)
{
    if (!s)
        return;
    null_sim_run(of(d)->time, s, s->queued);
    atom_free(s->items);
    s->items = NULL;
    s->capacity = 0;
    s->first = s->queued;
}

static atom_status null_event_open(dev *d, dev_event **out)
{
    (void)d;
    dev_event *e = atom_alloc(1, sizeof *e);
    if (!e)
        return atom_fail_memory("an event", sizeof *e);
    *out = e;
    return ATOM_OK;
}

static void null_event_close(dev *d, dev_event *e)
{
    if (!e)
        return;
    /* queued records still write to it, on whatever streams they are */
    for (dev_stream *s = of(d)->time->streams; s && e->pending; s = s->after)
        null_sim_run(of(d)->time, s, s->queued);
    atom_free(e);
}

static atom_status push(dev_stream *s, const null_item *item)
{
    if (s->finished == s->queued)
        s->first = s->queued; /* empty: begin the array again */
    size_t used = (size_t)(s->queued - s->first);
    size_t dead = (size_t)(s->finished - s->first);
    if (used == s->capacity && dead > used / 2) {
        memmove(s->items, s->items + dead, (used - dead) * sizeof *s->items);
        s->first = s->finished;
        used -= dead;
    }
    ATOM_TRY(atom_grow(&s->items, used, &s->capacity, sizeof *s->items));
    s->items[used] = *item;
    s->queued++;
    return ATOM_OK;
}

static atom_status push_work(dev_stream *s, dev_cost cost, uint64_t bytes)
{
    ATOM_ASSERT(isfinite(cost.seconds) && cost.seconds >= 0);
    return push(s, &(null_item){.code = NULL_WORK, .cost = cost, .bytes = bytes});
}

static atom_status null_copy(dev *d, dev_stream *s, void *dst, const void *src, uint64_t bytes,
                             dev_cost cost)
{
    (void)d;
    (void)dst;
    (void)src;
    return push_work(s, cost, bytes);
}

static atom_status null_zero(dev *d, dev_stream *s, void *dst, uint64_t bytes, dev_cost cost)
{
    (void)d;
    (void)dst;
    (void)bytes;
    return push_work(s, cost, 0);
}

static atom_status null_launch(dev *d, dev_stream *s, dev_launch_fn fn, void *arg, dev_cost cost)
{
    (void)d;
    (void)fn;
    (void)arg;
    return push_work(s, cost, 0);
}

static atom_status null_host_call(dev *d, dev_stream *s, dev_host_fn fn, void *arg, dev_cost cost)
{
    (void)d;
    (void)fn;
    (void)arg;
    return push_work(s, cost, 0);
}

static atom_status null_record(dev *d, dev_stream *s, dev_event *e)
{
    (void)d;
    atom_status st = push(s, &(null_item){.code = NULL_RECORD, .event = e});
    if (st == ATOM_OK) {
        e->of = s;
        e->until = s->queued;
        e->pending++;
    }
    return st;
}

static atom_status never_recorded(void)
{
    return atom_fail(ATOM_E_RUNTIME, "a stream would wait forever: its event was never recorded");
}

static atom_status null_wait(dev *d, dev_stream *s, dev_event *e)
{
    (void)d;
    if (!e->of)
        return never_recorded();
    return push(s, &(null_item){.code = NULL_WAIT, .of = e->of, .until = e->until});
}

static atom_status null_event_sync(dev *d, dev_event *e)
{
    if (!e->of)
        return never_recorded();
    null_sim_run(of(d)->time, e->of, e->until);
    return ATOM_OK;
}

static atom_status null_stream_sync(dev *d, dev_stream *s)
{
    null_sim_run(of(d)->time, s, s->queued);
    return ATOM_OK;
}

static uint64_t null_event_ns(dev *d, dev_event *e)
{
    (void)d;
    return (uint64_t)llround(e->at * 1e9);
}

static dev_stats null_stream_stats(dev *d, dev_stream *s)
{
    (void)d;
    return (dev_stats){.busy_seconds = s->busy_seconds, .bytes_copied = s->bytes_copied};
}

static void null_close(dev *base)
{
    null_time *t = of(base)->time;
    atom_free(base);
    if (--t->open > 0)
        return;
    while (t->streams) {
        dev_stream *s = t->streams;
        t->streams = s->after;
        atom_free(s->items);
        atom_free(s);
    }
    atom_free(t);
}

static const dev_ops OPS = {
    .name = "null",
    .close = null_close,
    .alloc = null_alloc,
    .free = null_free,
    .host_alloc = null_host_alloc,
    .host_free = null_host_free,
    .stream_open = null_stream_open,
    .stream_close = null_stream_close,
    .event_open = null_event_open,
    .event_close = null_event_close,
    .copy = null_copy,
    .zero = null_zero,
    .launch = null_launch,
    .host_call = null_host_call,
    .record = null_record,
    .wait = null_wait,
    .event_sync = null_event_sync,
    .stream_sync = null_stream_sync,
    .event_ns = null_event_ns,
    .stream_stats = null_stream_stats,
};

static atom_status open_in(null_time *t, uint64_t budget_bytes, dev **out)
{
    null_dev *d = atom_alloc(1, sizeof *d);
    if (!d)
        return atom_fail_memory("the null device", sizeof *d);
    ATOM_ASSERT(t->devices < NULL_DEVICES_MAX);
    d->base = (dev){.ops = &OPS, .budget_bytes = budget_bytes};
    d->time = t;
    d->number = t->devices++;
    t->open++;
    d->next_device = (uint64_t)(d->number + 1) << 40;
    d->next_host = (uint64_t)(d->number + 1) << 48;
    *out = &d->base;
    return ATOM_OK;
}

atom_status dev_null_open(uint64_t budget_bytes, dev **out)
{
    null_time *t = atom_alloc(1, sizeof *t);
    if (!t)
        return atom_fail_memory("the null device", sizeof *t);
    atom_status st = open_in(t, budget_bytes, out);
    if (st != ATOM_OK)
        atom_free(t);
    return st;
}

atom_status dev_null_open_beside(dev *first, uint64_t budget_bytes, dev **out)
{
    return open_in(of(first)->time, budget_bytes, out);
}
