/*
 * Owns the CPU device: CUDA's semantics on threads (device.h). One idea: device memory is host
 * memory with a budget, so the same tape runs on a machine without a GPU, swaps included.
 *
 * A failing host function makes the device dead. The first call that notices returns the function's
 * own status and message, so that the reason (say, a diverged loss) keeps its exit code; every
 * later call returns ATOM_E_DEAD.
 */
#include "kernels/cpu/device_cpu.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

static cpu_dev *of(dev *d)
{
    return (cpu_dev *)d;
}

static atom_status check(dev *d)
{
    return dev_fault_check(&of(d)->fault);
}

static atom_status push(dev *d, dev_stream *s, const cpu_item *item)
{
    ATOM_TRY(check(d));
    dev_queue_push(&s->queue, item);
    return ATOM_OK;
}

static atom_status cpu_alloc(dev *d, uint64_t bytes, void **ptr)
{
    atom_status st = ATOM_OK;
    ATOM_TRY(check(d));
    ATOM_ASSERT(bytes > 0);
    ATOM_TRY(dev_budget_take(d, bytes));
    st = cpu_slab_take(of(d)->threads, "device memory", bytes, ptr);
    if (st != ATOM_OK)
        dev_budget_give(d, bytes);
    return st;
}

static void cpu_free(dev *d, void *ptr, uint64_t bytes)
{
    if (!ptr)
        return;
    cpu_slab_give(ptr, bytes);
    dev_budget_give(d, bytes);
}

static atom_status cpu_host_alloc(dev *d, uint64_t bytes, void **ptr)
{
    ATOM_ASSERT(bytes > 0);
    ATOM_TRY(check(d));
    ATOM_TRY(cpu_slab_take(of(d)->threads, "host memory", bytes, ptr));
    dev_host_take(d, bytes);
    return ATOM_OK;
}

static void cpu_host_free(dev *d, void *ptr, uint64_t bytes)
{
    if (!ptr)
        return;
    cpu_slab_give(ptr, bytes);
    dev_host_give(d, bytes);
}

static atom_status cpu_stream_open_checked(dev *d, dev_stream_kind kind, const char *name,
                                           dev_stream **out)
{
    ATOM_TRY(check(d));
    return cpu_stream_open(of(d), kind, name, out);
}

static void cpu_stream_close(dev *d, dev_stream *s)
{
    (void)d;
    if (s)
        dev_queue_stop(&s->queue);
}

static atom_status cpu_event_open(dev *d, dev_event **out)
{
    ATOM_TRY(check(d));
    dev_event *e = atom_alloc(1, sizeof *e);
    if (!e)
        return atom_fail_memory("an event", sizeof *e);
    *out = e;
    return ATOM_OK;
}

static void cpu_event_close(dev *d, dev_event *e)
{
    if (!e)
        return;
    /* queued records still write to it, on whatever streams they are */
    for (dev_stream *s = of(d)->streams; s && atomic_load(&e->pending); s = s->after)
        dev_queue_drain(&s->queue);
    atom_free(e);
}

static atom_status cpu_copy(dev *d, dev_stream *s, void *dst, const void *src, uint64_t bytes,
                            dev_cost cost)
{
    (void)cost;
    return push(d, s, &(cpu_item){.code = CPU_COPY, .dst = dst, .src = src, .bytes = bytes});
}

static atom_status cpu_zero(dev *d, dev_stream *s, void *dst, uint64_t bytes, dev_cost cost)
{
    (void)cost;
    return push(d, s, &(cpu_item){.code = CPU_ZERO, .dst = dst, .bytes = bytes});
}

static atom_status cpu_launch(dev *d, dev_stream *s, dev_launch_fn fn, void *arg, dev_cost cost)
{
    (void)cost;
    return push(d, s, &(cpu_item){.code = CPU_LAUNCH, .launch = fn, .arg = arg});
}

static atom_status cpu_host_call(dev *d, dev_stream *s, dev_host_fn fn, void *arg, dev_cost cost)
{
    (void)cost;
    return push(d, s, &(cpu_item){.code = CPU_HOST, .host = fn, .arg = arg});
}

static atom_status cpu_record(dev *d, dev_stream *s, dev_event *e)
{
    ATOM_TRY(check(d));
    /* only this thread queues, so the position is known before the push */
    e->of = s;
    e->until = dev_queue_queued(&s->queue) + 1;
    atomic_fetch_add(&e->pending, 1);
    dev_queue_push(&s->queue, &(cpu_item){.code = CPU_RECORD, .event = e});
    return ATOM_OK;
}

static atom_status never_recorded(void)
{
    return atom_fail(ATOM_E_RUNTIME, "a stream would wait forever: its event was never recorded");
}

static atom_status cpu_wait(dev *d, dev_stream *s, dev_event *e)
{
    if (!e->of)
        return never_recorded();
    return push(d, s, &(cpu_item){.code = CPU_WAIT, .of = e->of, .until = e->until});
}

static atom_status cpu_event_sync(dev *d, dev_event *e)
{
    if (!e->of)
        return never_recorded();
    dev_queue_reach(&e->of->queue, e->until);
    return check(d);
}

static atom_status cpu_stream_sync(dev *d, dev_stream *s)
{
    dev_queue_drain(&s->queue);
    return check(d);
}

static uint64_t cpu_event_ns(dev *d, dev_event *e)
{
    (void)d;
    return atomic_load(&e->ns);
}

static dev_stats cpu_stream_stats(dev *d, dev_stream *s)
{
    (void)d;
    return (dev_stats){.busy_seconds = (double)atomic_load(&s->busy_ns) * 1e-9,
                       .bytes_copied = atomic_load(&s->bytes_copied)};
}

static bool cpu_has_failed(const dev *d)
{
    return atomic_load(&((const cpu_dev *)d)->fault.failed);
}

static void cpu_close(dev *base)
{
    cpu_dev *d = of(base);
    for (dev_stream *s = d->streams; s; s = s->after)
        dev_queue_stop(&s->queue);
    while (d->streams) {
        dev_stream *s = d->streams;
        d->streams = s->after;
        dev_queue_close(&s->queue);
        atom_free(s);
    }
    dev_fault_close(&d->fault);
    atom_free(d);
}

static const dev_ops OPS = {
    .name = "cpu",
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .host_alloc = cpu_host_alloc,
    .host_free = cpu_host_free,
    .stream_open = cpu_stream_open_checked,
    .stream_close = cpu_stream_close,
    .event_open = cpu_event_open,
    .event_close = cpu_event_close,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .launch = cpu_launch,
    .host_call = cpu_host_call,
    .record = cpu_record,
    .wait = cpu_wait,
    .event_sync = cpu_event_sync,
    .stream_sync = cpu_stream_sync,
    .event_ns = cpu_event_ns,
    .stream_stats = cpu_stream_stats,
    .has_failed = cpu_has_failed,
};

atom_status dev_cpu_open(const dev_cpu_config *config, atom_threads *threads, dev **out)
{
    cpu_dev *d = atom_alloc(1, sizeof *d);
    if (!d)
        return atom_fail_memory("the CPU device", sizeof *d);
    d->base = (dev){.ops = &OPS, .budget_bytes = config->budget_bytes, .unified = true};
    d->config = *config;
    d->threads = threads;
    dev_fault_open(&d->fault);
    *out = &d->base;
    return ATOM_OK;
}
