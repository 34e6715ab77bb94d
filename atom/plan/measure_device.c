/*
 * Owns the timing of one call, and of Muon's products, on a device whose memory is not the host's.
 * One idea: as on the CPU, the very call that the run will make, on buffers of the right size;
 * several runs between two events, so that the time is the card's and not the launch's. Refuses
 * nothing itself: the device says what does not fit on it.
 */
#include "atom/plan/measure.h"

#include "atom/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 9, ROUNDS_MIN = 3, EACH_MAX = 32 };
static const double ROUND_SECONDS = 2e-3, CALL_SECONDS = 0.25, ORTHO_SECONDS = 0.1;

struct plan_measure {
    dev *d;
    dev_stream *compute;
    dev_event *begin, *end;
};

typedef struct timed {
    krn_fn fn;
    krn_args args;
    krn_step step;
    void *workspace;
    uint64_t workspace_bytes;
    uint32_t runs;
    krn_ortho_fn ortho; /* instead of fn, on args.buf[0], with its space in args.buf[1] */
    int64_t rows, cols;
} timed;

static void run_timed(krn_ctx *cx, void *arg)
{
    timed *t = arg;
    cx->workspace = t->workspace;
    cx->workspace_bytes = t->workspace_bytes;
    krn_ctx_step(cx, &t->step);
    for (uint32_t i = 0; i < t->runs; i++) {
        if (t->ortho)
            t->ortho(cx, t->args.buf[0], t->rows, t->cols, t->args.buf[1]);
        else
            t->fn(cx, &t->args);
    }
}

atom_status plan_measure_open(const plan_workbench *bench, plan_measure **out)
{
    atom_status st;
    plan_measure *m = atom_alloc(1, sizeof *m);
    if (!m)
        return atom_fail_memory("profiling", sizeof *m);
    ATOM_TRY_CLEAN(plan_device_open(bench, 0, 0, &m->d));
    ATOM_TRY_CLEAN(m->d->ops->stream_open(m->d, DEV_COMPUTE, "profile", &m->compute));
    ATOM_TRY_CLEAN(m->d->ops->event_open(m->d, &m->begin));
    ATOM_TRY_CLEAN(m->d->ops->event_open(m->d, &m->end));
    *out = m;
    return ATOM_OK;
cleanup:
    plan_measure_close(&m);
    return st;
}

void plan_measure_close(plan_measure **ref)
{
    plan_measure *m = *ref;
    if (!m)
        return;
    if (m->d) {
        m->d->ops->stream_close(m->d, m->compute);
        m->d->ops->event_close(m->d, m->begin);
        m->d->ops->event_close(m->d, m->end);
    }
    dev_close(&m->d);
    atom_free(m);
    *ref = NULL;
}

/* Seconds of t->runs runs. */
static atom_status time_round(plan_measure *m, timed *t, double *seconds)
{
    const dev_ops *ops = m->d->ops;
    ATOM_TRY(ops->record(m->d, m->compute, m->begin));
    ATOM_TRY(ops->launch(m->d, m->compute, run_timed, t, (dev_cost){0}));
    ATOM_TRY(ops->record(m->d, m->compute, m->end));
    ATOM_TRY(ops->stream_sync(m->d, m->compute));
    *seconds = (double)(ops->event_ns(m->d, m->end) - ops->event_ns(m->d, m->begin)) * 1e-9;
    return ATOM_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static atom_status time_rounds(plan_measure *m, timed *t, double *seconds)
{
    double times[ROUNDS_MAX], one = 0, spent = 0;
    int n = 0;
    t->runs = 1;
    ATOM_TRY(time_round(m, t, &one)); /* libraries load, algorithms are chosen */
    ATOM_TRY(time_round(m, t, &one));
    double runs = one > 0 ? ROUND_SECONDS / one : EACH_MAX;
    t->runs = runs < 1 ? 1 : runs > EACH_MAX ? EACH_MAX : (uint32_t)runs;
    while (n < ROUNDS_MAX && (n < ROUNDS_MIN || spent < CALL_SECONDS)) {
        ATOM_TRY(time_round(m, t, &one));
        times[n++] = one / t->runs;
        spent += one;
    }
    qsort(times, (size_t)n, sizeof times[0], by_value);
    *seconds = times[n / 2];
    return ATOM_OK;
}

/* Through pinned memory, as every copy of a run. */
static atom_status upload(plan_measure *m, void *dst, const void *src, uint64_t bytes)
{
    void *pinned = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY(m->d->ops->host_alloc(m->d, bytes, &pinned));
    memcpy(pinned, src, bytes);
    st = m->d->ops->copy(m->d, m->compute, dst, pinned, bytes, (dev_cost){0});
    if (st == ATOM_OK)
        st = m->d->ops->stream_sync(m->d, m->compute);
    m->d->ops->host_free(m->d, pinned, bytes);
    return st;
}

atom_status plan_measure_call(plan_measure *m, const krn_table *table, const swap_call *call,
                              void *const host[KRN_BUF_MAX], double *seconds)
{
    const dev_ops *ops = m->d->ops;
    atom_status st = ATOM_OK;
    timed t = {.fn = call->backward ? table->bwd[call->op] : table->fwd[call->op],
               .args = {.eps = call->eps,
                        .p = call->p,
                        .flags = call->flags,
                        .rng = call->rng,
                        .rope = call->rope,
                        .scale = call->scale,
                        .lift = call->lift,
                        .cap = call->cap},
               .step = {.seed = 1, .step = 1, .loss_scale = 1e-3f, .train = 1}};
    memcpy(t.args.dim, call->dim, sizeof t.args.dim);
    t.workspace_bytes =
        table->workspace ? table->workspace(call->op, call->backward, call->dim) : 0;
    if (t.workspace_bytes)
        ATOM_TRY_CLEAN(ops->alloc(m->d, t.workspace_bytes, &t.workspace));
    for (int b = 0; b < call->n_buf; b++) {
        if (!host[b])
            continue;
        ATOM_TRY_CLEAN(ops->alloc(m->d, call->bytes[b], &t.args.buf[b]));
        ATOM_TRY_CLEAN(upload(m, t.args.buf[b], host[b], call->bytes[b]));
    }
    ATOM_TRY_CLEAN(time_rounds(m, &t, seconds));
cleanup:
    for (int b = 0; b < call->n_buf; b++) {
        if (t.args.buf[b])
            ops->free(m->d, t.args.buf[b], call->bytes[b]);
    }
    if (t.workspace)
        ops->free(m->d, t.workspace, t.workspace_bytes);
    return st;
}

/* A large clear of device memory: what the card's memory writes per second. */
atom_status plan_measure_memory(plan_measure *m, double *bytes_per_second)
{
    const dev_ops *ops = m->d->ops;
    const uint64_t bytes = (uint64_t)512 << 20;
    void *at = NULL;
    double best = 0;
    atom_status st;
    ATOM_TRY_CLEAN(ops->alloc(m->d, bytes, &at));
    for (int i = 0; i < ROUNDS_MIN; i++) {
        ATOM_TRY_CLEAN(ops->record(m->d, m->compute, m->begin));
        ATOM_TRY_CLEAN(ops->zero(m->d, m->compute, at, bytes, (dev_cost){0}));
        ATOM_TRY_CLEAN(ops->record(m->d, m->compute, m->end));
        ATOM_TRY_CLEAN(ops->stream_sync(m->d, m->compute));
        uint64_t ns = ops->event_ns(m->d, m->end) - ops->event_ns(m->d, m->begin);
        double rate = ns ? (double)bytes / (double)ns * 1e9 : 0;
        best = rate > best ? rate : best;
    }
    *bytes_per_second = best;
cleanup:
    if (at)
        ops->free(m->d, at, bytes);
    return st;
}

/* Numbers as Muon's first part leaves them, of norm below 1: the steps stay finite. */
static atom_status upload_matrix(plan_measure *m, atom_dtype dtype, void *to, int64_t n)
{
    const uint64_t bytes = (uint64_t)n * atom_dtype_bytes(dtype);
    const float scale = (float)(1 / sqrt((double)n));
    atom_status st;
    void *x = atom_pages_take(atom_align(bytes));
    if (!x)
        return atom_fail_memory("profiling Muon", bytes);
    for (int64_t i = 0; i < n; i++) {
        float value = scale * ((float)((uint64_t)i * 2654435761u >> 16 & 0xffff) * 0x1p-15f - 1);
        if (dtype == ATOM_F32)
            ((float *)x)[i] = value;
        else
            ((atom_bf16 *)x)[i] = atom_f32_to_bf16(value);
    }
    st = upload(m, to, x, bytes);
    atom_pages_give(x, atom_align(bytes));
    return st;
}

/* From small to large, each eight times the work of the one before, until it is the whole matrix or
 * the next would take too long. */
static atom_status grow_ortho(plan_measure *m, atom_dtype dtype, timed *t, int64_t rows,
                              int64_t cols)
{
    double one = 0;
    t->runs = 1;
    for (int halvings = 6; halvings >= 0 && 8 * one <= ORTHO_SECONDS; halvings--) {
        t->rows = rows >> halvings ? rows >> halvings : 1;
        t->cols = cols >> halvings ? cols >> halvings : 1;
        ATOM_TRY(upload_matrix(m, dtype, t->args.buf[0], t->rows * t->cols));
        ATOM_TRY(time_round(m, t, &one)); /* loads code */
        ATOM_TRY(time_round(m, t, &one));
    }
    return ATOM_OK;
}

atom_status plan_measure_ortho(plan_measure *m, const krn_table *table, int64_t *rows,
                               int64_t *cols, double *seconds)
{
    const dev_ops *ops = m->d->ops;
    const int64_t n = *rows * *cols;
    const uint64_t bytes[2] = {(uint64_t)n * atom_dtype_bytes(table->dtype),
                               krn_ortho_space(*rows, *cols)};
    timed t = {.ortho = table->ortho, .step = {.seed = 1, .step = 1, .train = 1}};
    atom_status st;
    for (int b = 0; b < 2; b++)
        ATOM_TRY_CLEAN(ops->alloc(m->d, bytes[b], &t.args.buf[b]));
    ATOM_TRY_CLEAN(grow_ortho(m, table->dtype, &t, *rows, *cols));
    ATOM_TRY_CLEAN(time_rounds(m, &t, seconds));
    *rows = t.rows;
    *cols = t.cols;
cleanup:
    for (int b = 0; b < 2; b++) {
        if (t.args.buf[b])
            ops->free(m->d, t.args.buf[b], bytes[b]);
    }
    return st;
}
