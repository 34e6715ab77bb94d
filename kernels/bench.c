/*
 * Owns the measurements of bench.h. One idea: a claim is a ratio of two medians taken in turn in
 * one run. Refuses fewer than three rounds: the first pass of each kind is thrown away.
 */
#include "kernels/bench.h"

#include "atom/base/assert.h"
#include "atom/base/clock.h"
#include "atom/base/mem.h"
#include "kernels/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 64, TRAIN = 32 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* times[0] is the pass that warmed up. Sorts the rest. */
static krn_bench median(double *times, uint32_t rounds, uint64_t bytes)
{
    qsort(times + 1, rounds - 1, sizeof *times, by_value);
    double seconds = times[1 + (rounds - 1) / 2];
    return (krn_bench){bytes, seconds, seconds > 0 ? (double)bytes / seconds : 0, times[1]};
}

static uint32_t clamp_rounds(uint32_t rounds)
{
    return rounds < 3 ? 3 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
}

/* Memory that a pass reads and writes, touched by all threads; `dev` gives it. */
typedef struct arrays {
    dev *d;
    float *at[4];
    uint64_t bytes[4];
} arrays;

static void arrays_close(arrays *a)
{
    for (int i = 0; i < 4; i++)
        if (a->d && a->at[i])
            a->d->ops->host_free(a->d, a->at[i], a->bytes[i]);
    dev_close(&a->d);
}

static atom_status arrays_open(arrays *a, atom_threads *threads, const uint64_t bytes[4])
{
    *a = (arrays){0};
    atom_status st = dev_cpu_open(&(dev_cpu_config){0}, threads, &a->d);
    for (int i = 0; i < 4 && st == ATOM_OK; i++) {
        void *at = NULL;
        if (bytes[i])
            st = a->d->ops->host_alloc(a->d, bytes[i], &at);
        a->at[i] = at;
        a->bytes[i] = bytes[i];
    }
    if (st != ATOM_OK)
        arrays_close(a);
    return st;
}

static double time_triad(atom_threads *threads, float *const at[3], uint64_t n)
{
    double begin = atom_clock_seconds();
    krn_cpu_vec_get(krn_cpu_isa_best())->triad(threads, at[0], at[1], at[2], n);
    return atom_clock_seconds() - begin;
}

atom_status dev_bench_triad(atom_threads *threads, uint64_t bytes, uint32_t rounds, krn_bench *out)
{
    rounds = clamp_rounds(rounds);
    uint64_t n = bytes / 12, each = atom_align(n * 4);
    arrays a;
    ATOM_TRY(arrays_open(&a, threads, (uint64_t[4]){each, each, each, 0}));
    double times[ROUNDS_MAX];
    for (uint32_t i = 0; i < rounds; i++)
        times[i] = time_triad(threads, a.at, n);
    arrays_close(&a);
    *out = median(times, rounds, n * 12);
    return ATOM_OK;
}

static krn_adamw_step plain_step(void)
{
    return (krn_adamw_step){.scale = 1,
                            .beta1 = 0.9f,
                            .one_minus_beta1 = 0.1f,
                            .beta2 = 0.95f,
                            .one_minus_beta2 = 0.05f,
                            .inv_bias1 = 1,
                            .inv_sqrt_bias2 = 1,
                            .eps = 1e-8f,
                            .lr = 1e-4f,
                            .decay = 0.1f};
}

/* Gradients of one size all over would be a matrix of rank one: tiny sums that nothing rounds. */
static void fill_gradient(atom_dtype wire, void *to, uint64_t n)
{
    const atom_rng_key key = {.seed = 1};
    for (uint64_t i = 0; i < n; i++) {
        float x = (float)atom_rng_u32(key, i) * 0x1p-31f - 1;
        if (wire == ATOM_F32)
            ((float *)to)[i] = x;
        else
            ((atom_bf16 *)to)[i] = atom_f32_to_bf16(x);
    }
}

atom_status krn_bench_muon(atom_threads *threads, const krn_host_table *table, atom_dtype wire,
                           int64_t rows, int64_t cols, uint32_t rounds, krn_bench *out)
{
    const krn_muon_step step = {.scale = 1, .momentum = 0.95f, .lr = 1e-3, .moments = ATOM_F32};
    uint64_t n = (uint64_t)(rows * cols), each = atom_align(n * 4);
    double times[ROUNDS_MAX];
    arrays a;
    rounds = clamp_rounds(rounds);
    ATOM_TRY(arrays_open(&a, threads,
                         (uint64_t[4]){each, each, each, atom_align(krn_muon_space(rows, cols))}));
    memset(a.at[1], 0, each);
    memset(a.at[2], 0, each);
    for (uint32_t i = 0; i < rounds; i++) {
        fill_gradient(wire, a.at[0], n);
        double begin = atom_clock_seconds();
        table->muon(threads, &step, wire, a.at[0], a.at[1], a.at[2], rows, cols, a.at[3]);
        times[i] = atom_clock_seconds() - begin;
    }
    arrays_close(&a);
    *out = median(times, rounds, 0);
    return ATOM_OK;
}

atom_status krn_bench_adamw(atom_threads *threads, const krn_host_table *table,
                            krn_adamw_kinds kinds, uint64_t n, uint32_t rounds, krn_bench *adamw,
                            krn_bench *triad)
{
    rounds = clamp_rounds(rounds);
    uint64_t each = atom_align(n * 4);
    uint64_t bytes = atom_dtype_bytes(kinds.wire) + atom_state_bytes(kinds.moments);
    arrays a;
    ATOM_TRY(arrays_open(&a, threads, (uint64_t[4]){each, each, each, each}));
    double updates[ROUNDS_MAX], triads[ROUNDS_MAX];
    krn_adamw_step step = plain_step();
    step.moments = kinds.moments;
    for (uint32_t i = 0; i < rounds; i++) {
        /* the triad leaves finite numbers everywhere: zeros stay zeros */
        triads[i] = time_triad(threads, a.at, n);
        double begin = atom_clock_seconds();
        table->adamw(threads, &step, kinds.wire, a.at[3], a.at[0], a.at[1], a.at[2], n);
        updates[i] = atom_clock_seconds() - begin;
    }
    arrays_close(&a);
    *adamw = median(updates, rounds, n * 2 * bytes);
    *triad = median(triads, rounds, n * 12);
    return ATOM_OK;
}

/* What a copy measurement holds. */
typedef struct copy_bench {
    dev *d;
    atom_threads *threads;
    uint64_t bytes;
    dev_stream *s[2]; /* H2D, D2H */
    dev_event *e[2];
    void *host[2], *device[2];
} copy_bench;

static void copy_close(copy_bench *c)
{
    const dev_ops *ops = c->d->ops;
    for (int i = 0; i < 2; i++) {
        ops->stream_close(c->d, c->s[i]);
        ops->event_close(c->d, c->e[i]);
        if (c->host[i])
            ops->host_free(c->d, c->host[i], c->bytes);
        if (c->device[i])
            ops->free(c->d, c->device[i], c->bytes);
    }
}

static atom_status copy_open(copy_bench *c)
{
    const dev_ops *ops = c->d->ops;
    atom_status st = ATOM_OK;
    for (int i = 0; i < 2; i++) {
        ATOM_TRY_CLEAN(ops->stream_open(c->d, i ? DEV_D2H : DEV_H2D, "bench", &c->s[i]));
        ATOM_TRY_CLEAN(ops->event_open(c->d, &c->e[i]));
        ATOM_TRY_CLEAN(ops->host_alloc(c->d, c->bytes, &c->host[i]));
        ATOM_TRY_CLEAN(ops->alloc(c->d, c->bytes, &c->device[i]));
    }
    return ATOM_OK;
cleanup:
    copy_close(c);
    return st;
}

/* Copies in the directions of `mask` at once; seconds[i] from issue to the direction's event. */
static atom_status copy_once(copy_bench *c, unsigned mask, uint64_t bytes, double seconds[2])
{
    const dev_ops *ops = c->d->ops;
    dev_cost none = {0};
    uint64_t begin = atom_clock_ns();
    for (int i = 0; i < 2; i++) {
        if (!(mask & (1u << i)))
            continue;
        void *dst = i ? c->host[1] : c->device[0];
        const void *src = i ? c->device[1] : c->host[0];
        ATOM_TRY(ops->copy(c->d, c->s[i], dst, src, bytes, none));
        ATOM_TRY(ops->record(c->d, c->s[i], c->e[i]));
    }
    for (int i = 0; i < 2; i++) {
        if (mask & (1u << i))
            ATOM_TRY(ops->event_sync(c->d, c->e[i]));
    }
    double all = (double)(atom_clock_ns() - begin) * 1e-9;
    for (int i = 0; i < 2; i++) {
        seconds[i] = all;
        if (c->d->unified && (mask & (1u << i))) /* same clock as the host's: exact per direction */
            seconds[i] = (double)(ops->event_ns(c->d, c->e[i]) - begin) * 1e-9;
    }
    return ATOM_OK;
}

/* What one copy costs beside its bytes: of many small ones in a row, since in a step they follow each
 * other, too; to wait for a single one takes ten times as long. */
static atom_status time_latency(copy_bench *c, double *seconds)
{
    const dev_ops *ops = c->d->ops;
    dev_cost none = {0};
    double took[2] = {0, 0};
    for (int many = 0; many < 2; many++) {
        uint64_t begin = atom_clock_ns();
        for (int i = 0; i <= many * TRAIN; i++)
            ATOM_TRY(ops->copy(c->d, c->s[0], c->device[0], c->host[0],
                               c->bytes < 256 ? c->bytes : 256, none));
        ATOM_TRY(ops->record(c->d, c->s[0], c->e[0]));
        ATOM_TRY(ops->event_sync(c->d, c->e[0]));
        took[many] = (double)(atom_clock_ns() - begin) * 1e-9;
    }
    /* The first one waits for the stream to wake; where the clock shows no difference, the whole is it. */
    *seconds = took[1] > took[0] ? (took[1] - took[0]) / TRAIN : took[1] / (TRAIN + 1);
    return ATOM_OK;
}

static double time_memory(copy_bench *c)
{
    krn_ctx cx = {.threads = c->threads};
    double begin = atom_clock_seconds();
    krn_copy_host(&cx, c->device[0], c->host[0], c->bytes);
    return atom_clock_seconds() - begin;
}

static atom_status copy_rounds(copy_bench *c, uint32_t rounds, dev_copy_bench *out)
{
    double times[6][ROUNDS_MAX], both[2], ignored[2];
    for (uint32_t i = 0; i < rounds; i++) {
        ATOM_TRY(copy_once(c, 1, c->bytes, ignored));
        times[0][i] = ignored[0];
        ATOM_TRY(copy_once(c, 2, c->bytes, ignored));
        times[1][i] = ignored[1];
        ATOM_TRY(copy_once(c, 3, c->bytes, both));
        times[2][i] = both[0];
        times[3][i] = both[1];
        ATOM_TRY(time_latency(c, &times[4][i]));
        times[5][i] = c->d->unified ? time_memory(c) : 0;
    }
    *out = (dev_copy_bench){.h2d = median(times[0], rounds, c->bytes),
                            .d2h = median(times[1], rounds, c->bytes),
                            .h2d_both = median(times[2], rounds, c->bytes),
                            .d2h_both = median(times[3], rounds, c->bytes),
                            .memory = median(times[5], rounds, c->bytes),
                            .latency_seconds = median(times[4], rounds, 256).seconds};
    return ATOM_OK;
}

atom_status dev_bench_copy(dev *d, atom_threads *threads, uint64_t bytes, uint32_t rounds,
                           dev_copy_bench *out)
{
    copy_bench c = {.d = d, .threads = threads, .bytes = bytes};
    atom_status st = ATOM_OK;
    ATOM_TRY(copy_open(&c));
    st = copy_rounds(&c, clamp_rounds(rounds), out);
    copy_close(&c);
    return st;
}
