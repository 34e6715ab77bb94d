/*
 * Owns the card for the tests of its kernels. One idea: tests/ops calls kernels on its own buffers,
 * so the buffers are pinned memory, which the card reaches where it lies, and each entry of the
 * table is launched on the device and waited for.
 */
#include "tests/cuda/card.h"

#include "atom/base/assert.h"
#include "kernels/cuda_module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNKS_MAX = 64, EXIT_SKIP = 77 };

static struct {
    const krn_cuda_module *module;
    atom_threads *threads;
    dev *d;
    dev_stream *s;
    double *sums; /* shared memory: the tests' own are on the stack */
    krn_table table[2];
    const krn_table *real[2];
    krn_host_table host;
    int failed;
} card;

typedef struct job {
    krn_fn fn;
    const krn_args *args;
    const krn_ctx *from;
    const krn_table *table;
    void *dst;
    const void *src;
    double *norms;
    uint64_t n;
    int what;
    const krn_adamw_step *step;
    atom_dtype wire;
    float *master;
    void *m, *v;
    int64_t rows, cols; /* of dst, with space in m */
} job;
enum { DO_OP, DO_ROUND, DO_SUMSQ, DO_SETTLE, DO_ADAMW, DO_ORTHO };

static void run_job(krn_ctx *cx, void *arg)
{
    const job *j = arg;
    static const krn_step none = {.train = 1};
    cx->workspace = j->from ? j->from->workspace : NULL;
    cx->workspace_bytes = j->from ? j->from->workspace_bytes : 0;
    krn_ctx_step(cx, j->from && j->from->step ? j->from->step : &none);
    if (j->what == DO_OP)
        j->fn(cx, j->args);
    else if (j->what == DO_ROUND)
        j->table->round(cx, j->dst, j->src, j->n);
    else if (j->what == DO_SUMSQ)
        j->table->sumsq(cx, j->norms, j->src, j->n);
    else if (j->what == DO_SETTLE)
        j->table->settle(cx, j->dst, (float *)(uintptr_t)j->src, j->norms, j->n);
    else if (j->what == DO_ORTHO)
        j->table->ortho(cx, j->dst, j->rows, j->cols, j->m);
    else
        card.module->adamw(cx, j->step, j->wire, j->dst, j->master, j->m, j->v, j->n);
}

/* A failed card ends the program: nothing after it means anything. */
static void run(job *j)
{
    atom_status st = card.d->ops->launch(card.d, card.s, run_job, j, (dev_cost){0});
    if (st == ATOM_OK)
        st = card.d->ops->stream_sync(card.d, card.s);
    if (st == ATOM_OK)
        return;
    printf("%s\n", atom_fail_message());
    if (j->what == DO_OP)
        for (int i = 0; i < KRN_DIM_MAX; i++)
            printf("%s%lld", i ? " " : "dims ", (long long)j->args->dim[i]);
    printf("\n");
    exit(1);
}

static void run_op(krn_ctx *cx, const krn_args *args, krn_fn fn)
{
    bool apart = cx->step && cx->step->starts; /* of ops whose dims begin with B T */
    card.d->starts_n = apart ? (uint64_t)(args->dim[0] * args->dim[1]) : 0;
    run(&(job){.what = DO_OP, .fn = fn, .args = args, .from = cx});
}

#define OP(name, ...)                                                                              \
    static void name##_fwd_f32(krn_ctx *cx, const krn_args *args)                                  \
    {                                                                                              \
        run_op(cx, args, card.real[0]->fwd[ATOM_OP_##name]);                                       \
    }                                                                                              \
    static void name##_bwd_f32(krn_ctx *cx, const krn_args *args)                                  \
    {                                                                                              \
        run_op(cx, args, card.real[0]->bwd[ATOM_OP_##name]);                                       \
    }                                                                                              \
    static void name##_fwd_bf16(krn_ctx *cx, const krn_args *args)                                 \
    {                                                                                              \
        run_op(cx, args, card.real[1]->fwd[ATOM_OP_##name]);                                       \
    }                                                                                              \
    static void name##_bwd_bf16(krn_ctx *cx, const krn_args *args)                                 \
    {                                                                                              \
        run_op(cx, args, card.real[1]->bwd[ATOM_OP_##name]);                                       \
    }
#include "atom/base/ops.def"
#undef OP

static void round_on(int i, void *dst, const float *src, uint64_t n)
{
    run(&(job){.what = DO_ROUND, .table = card.real[i], .dst = dst, .src = src, .n = n});
}
static void round_f32(krn_ctx *cx, void *dst, const float *src, uint64_t n)
{
    (void)cx;
    round_on(0, dst, src, n);
}
static void round_bf16(krn_ctx *cx, void *dst, const float *src, uint64_t n)
{
    (void)cx;
    round_on(1, dst, src, n);
}

static void sumsq_on(int i, double *out, const void *x, uint64_t n)
{
    ATOM_ASSERT(krn_norm_chunks(n) <= CHUNKS_MAX);
    run(&(job){.what = DO_SUMSQ, .table = card.real[i], .norms = card.sums, .src = x, .n = n});
    memcpy(out, card.sums, krn_norm_chunks(n) * sizeof *out);
}
static void sumsq_f32(krn_ctx *cx, double *out, const void *x, uint64_t n)
{
    (void)cx;
    sumsq_on(0, out, x, n);
}
static void sumsq_bf16(krn_ctx *cx, double *out, const void *x, uint64_t n)
{
    (void)cx;
    sumsq_on(1, out, x, n);
}

static void settle_on(int i, void *dst, float *src, double *norms, uint64_t n)
{
    ATOM_ASSERT(krn_norm_chunks(n) <= CHUNKS_MAX);
    run(&(job){.what = DO_SETTLE,
               .table = card.real[i],
               .norms = card.sums,
               .dst = dst,
               .src = src,
               .n = n});
    memcpy(norms, card.sums, krn_norm_chunks(n) * sizeof *norms);
}
static void settle_f32(krn_ctx *cx, void *dst, float *src, double *norms, uint64_t n)
{
    (void)cx;
    settle_on(0, dst, src, norms, n);
}
static void settle_bf16(krn_ctx *cx, void *dst, float *src, double *norms, uint64_t n)
{
    (void)cx;
    settle_on(1, dst, src, norms, n);
}

static void ortho_on(int i, void *x, int64_t rows, int64_t cols, void *space)
{
    run(&(job){
        .what = DO_ORTHO, .table = card.real[i], .dst = x, .rows = rows, .cols = cols, .m = space});
}
static void ortho_f32(krn_ctx *cx, void *x, int64_t rows, int64_t cols, void *space)
{
    (void)cx;
    ortho_on(0, x, rows, cols, space);
}
static void ortho_bf16(krn_ctx *cx, void *x, int64_t rows, int64_t cols, void *space)
{
    (void)cx;
    ortho_on(1, x, rows, cols, space);
}

static void adamw(atom_threads *threads, const krn_adamw_step *step, atom_dtype wire_dtype,
                  void *wire, float *master, void *m, void *v, uint64_t n)
{
    (void)threads;
    run(&(job){.what = DO_ADAMW,
               .step = step,
               .wire = wire_dtype,
               .dst = wire,
               .master = master,
               .m = m,
               .v = v,
               .n = n});
}

static void fill(void)
{
    for (int i = 0; i < 2; i++) {
        if (card.real[i])
            card.table[i] = *card.real[i];
    }
#define OP(name, ...)                                                                              \
    if (card.table[0].fwd[ATOM_OP_##name])                                                         \
        card.table[0].fwd[ATOM_OP_##name] = name##_fwd_f32;                                        \
    if (card.table[0].bwd[ATOM_OP_##name])                                                         \
        card.table[0].bwd[ATOM_OP_##name] = name##_bwd_f32;                                        \
    if (card.table[1].fwd[ATOM_OP_##name])                                                         \
        card.table[1].fwd[ATOM_OP_##name] = name##_fwd_bf16;                                       \
    if (card.table[1].bwd[ATOM_OP_##name])                                                         \
        card.table[1].bwd[ATOM_OP_##name] = name##_bwd_bf16;
#include "atom/base/ops.def"
#undef OP
    card.table[0].round = round_f32;
    card.table[1].round = round_bf16;
    card.table[0].sumsq = sumsq_f32;
    card.table[1].sumsq = sumsq_bf16;
    card.table[0].settle = settle_f32;
    card.table[1].settle = settle_bf16;
    card.table[0].ortho = ortho_f32;
    card.table[1].ortho = ortho_bf16;
}

int card_open(void)
{
    const dev_cuda_config config = {0};
    dev_cuda_info info;
    if (dev_cuda_describe(0, &info) != ATOM_OK) {
        printf("skipped: %s\n", atom_fail_message());
        return EXIT_SKIP;
    }
    if (krn_cuda_module_get(&card.module) != ATOM_OK ||
        atom_threads_open(2, &card.threads) != ATOM_OK ||
        dev_cuda_open(&config, card.threads, &card.d) != ATOM_OK ||
        card.d->ops->stream_open(card.d, DEV_COMPUTE, "tests", &card.s) != ATOM_OK ||
        krn_cuda_table(0, ATOM_F32, &card.real[0]) != ATOM_OK) {
        printf("%s\n", atom_fail_message());
        return 1;
    }
    if (krn_cuda_table(0, ATOM_BF16, &card.real[1]) != ATOM_OK)
        card.real[1] = NULL;
    card.sums = card_calloc(CHUNKS_MAX, sizeof(double));
    ATOM_ASSERT(card.sums);
    fill();
    printf("%s, compute capability %d.%d\n", info.name, info.major, info.minor);
    return 0;
}

int card_close(void)
{
    card_free(card.sums);
    card.d->ops->stream_close(card.d, card.s);
    dev_close(&card.d);
    atom_threads_close(&card.threads);
    return card.failed;
}

const krn_table *card_table(atom_dtype dtype)
{
    return card.real[dtype == ATOM_BF16] ? &card.table[dtype == ATOM_BF16] : NULL;
}

const krn_host_table *card_host_table(void)
{
    card.host = (krn_host_table){.adamw = adamw,
                                 .round = {[ATOM_F32] = round_f32, [ATOM_BF16] = round_bf16},
                                 .sumsq = {[ATOM_F32] = sumsq_f32, [ATOM_BF16] = sumsq_bf16}};
    return &card.host;
}

/* Blocks are kept by the power of two they hold: pinning is slow. A block's size stands before it. */
enum { HEAD_BYTES = 4096, BINS = 40 };
static void *kept[BINS];

static int bin_of(size_t bytes)
{
    int bin = 12;
    while (((size_t)1 << bin) < bytes)
        bin++;
    return bin;
}

void *card_aligned_alloc(size_t align, size_t bytes)
{
    int bin = bin_of(bytes);
    ATOM_ASSERT(align <= 4096 && bin < BINS);
    char *at = kept[bin];
    if (at)
        memcpy(&kept[bin], at, sizeof(void *));
    else {
        char *block = card.module->shared_take(((size_t)1 << bin) + HEAD_BYTES);
        if (!block)
            return NULL;
        memcpy(block, &bin, sizeof bin);
        at = block + HEAD_BYTES;
    }
    return at;
}

void *card_calloc(size_t count, size_t bytes)
{
    void *at = card_aligned_alloc(16, count * bytes);
    if (at)
        memset(at, 0, count * bytes);
    return at;
}

void card_free(void *at)
{
    if (!at)
        return;
    int bin;
    memcpy(&bin, (char *)at - HEAD_BYTES, sizeof bin);
    memcpy(at, &kept[bin], sizeof(void *));
    kept[bin] = at;
}
