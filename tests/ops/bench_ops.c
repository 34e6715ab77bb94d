/*
 * bench_ops fp32|bf16 B T [steps [threads]]: times every kernel of one GPT-2 124M training step on
 * the CPU backend, in the order of a step, each layer with its own buffers, so that caches see what
 * they see in training. Prints per op milliseconds per step: median and least of the wall clock,
 * and of the process's CPU time divided by its threads, which a busy machine disturbs less; GFLOP/s
 * are for the median of the latter. No test: clocks are not asserted (docs/design/engine.md#tests).
 */
#include "atom/base/clock.h"
#include "atom/base/machine.h"
#include "atom/base/mem.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { L = 12, C = 768, H = 12, F = 3072, V = 50257, STEPS_MAX = 200 };

/* One op of a layer (or of the whole step): its dims and, per direction, which buffers it has. */
typedef enum bench_kind {
    K_EMBED,
    K_NORM,
    K_QKV,
    K_ATTENTION,
    K_PROJ,
    K_ADD,
    K_FC,
    K_FCPROJ,
    K_HEAD,
    K_N
} bench_kind;

static const char *const kind_names[K_N] = {
    "embed",   "layernorm x25",        "linear 768>2304", "attention", "linear 768>768",
    "add x24", "linear_gelu 768>3072", "linear 3072>768", "classifier"};

typedef struct bench {
    const krn_table *table;
    krn_ctx cx;
    krn_step step;
    int64_t B, T, N;
    uint64_t act;
    double ms[K_N][2][STEPS_MAX], total[STEPS_MAX];
    double cpu_ms[K_N][2][STEPS_MAX], cpu_total[STEPS_MAX]; /* of all threads, per thread */
    uint32_t threads;
    int at;
    char *wpool; /* weights and gradients */
    char *apool; /* activations */
    uint64_t wused, aused, wroom, aroom;
} bench;

typedef struct layer {
    void *x0, *ln1, *qkv, *att, *proj, *x1, *ln2, *u, *fc, *fcproj;
    float *mean1, *rstd1, *mean2, *rstd2, *lse;
    void *p[12];
    float *d[12];
} layer;

static void fail(const char *what)
{
    fprintf(stderr, "bench_ops: %s\n", what);
    exit(1);
}

static void *take(char *pool, uint64_t *used, uint64_t room, uint64_t bytes)
{
    void *p = pool + *used;
    *used += atom_align(bytes);
    if (*used > room)
        fail("pool too small");
    return p;
}
static void *take_a(bench *b, int64_t elements)
{
    return take(b->apool, &b->aused, b->aroom, (uint64_t)elements * b->act);
}
static float *take_f(bench *b, int64_t elements)
{
    return take(b->apool, &b->aused, b->aroom, (uint64_t)elements * 4);
}

/* As the device's slabs do: huge pages where the system has them (kernels/cpu/slab.c). */
static void *pages(uint64_t bytes)
{
    void *p = atom_pages_take(bytes);
    if (!p)
        fail("no memory");
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

static void fill(const bench *b, void *p, int64_t n, float size)
{
    uint32_t s = 12345u + (uint32_t)n;
    for (int64_t i = 0; i < n; i++) {
        s = s * 1664525u + 1013904223u;
        float x = size * ((float)(s >> 8) * 0x1p-23f - 1.0f);
        if (b->act == 4)
            ((float *)p)[i] = x;
        else
            ((atom_bf16 *)p)[i] = atom_f32_to_bf16(x);
    }
}

static void *param(bench *b, int64_t n, float **d)
{
    void *w = take(b->wpool, &b->wused, b->wroom, (uint64_t)n * b->act);
    *d = take(b->wpool, &b->wused, b->wroom, (uint64_t)n * 4);
    fill(b, w, n, 0.03f);
    return w;
}

static double cpu_seconds(const bench *b)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return ((double)t.tv_sec + (double)t.tv_nsec * 1e-9) / b->threads;
}

static void call(bench *b, bench_kind kind, atom_op op, int backward, krn_args args)
{
    krn_fn fn = backward ? b->table->bwd[op] : b->table->fwd[op];
    if (!fn)
        return;
    double t = atom_clock_seconds(), cpu = cpu_seconds(b);
    fn(&b->cx, &args);
    b->ms[kind][backward][b->at] += (atom_clock_seconds() - t) * 1e3;
    b->cpu_ms[kind][backward][b->at] += (cpu_seconds(b) - cpu) * 1e3;
}

static void layer_open(bench *b, layer *l)
{
    static const int64_t sizes[12] = {C, C, 3 * C * C, 3 * C, C * C, C, C, C, C * F, F, C * F, C};
    int64_t N = b->N;
    for (int i = 0; i < 12; i++)
        l->p[i] = param(b, sizes[i], &l->d[i]);
    l->x0 = take_a(b, N * C);
    l->ln1 = take_a(b, N * C);
    l->qkv = take_a(b, N * 3 * C);
    l->att = take_a(b, N * C);
    l->proj = take_a(b, N * C);
    l->x1 = take_a(b, N * C);
    l->ln2 = take_a(b, N * C);
    l->u = take_a(b, N * F);
    l->fc = take_a(b, N * F);
    l->fcproj = take_a(b, N * C);
    l->mean1 = take_f(b, N);
    l->rstd1 = take_f(b, N);
    l->mean2 = take_f(b, N);
    l->rstd2 = take_f(b, N);
    l->lse = take_f(b, N * H);
}

static void layer_fwd(bench *b, layer *l, void *next)
{
    int64_t N = b->N;
    call(b, K_NORM, ATOM_OP_layernorm, 0,
         (krn_args){.buf = {l->x0, l->p[0], l->p[1], l->ln1, l->mean1, l->rstd1},
                    .dim = {N, C},
                    .eps = 1e-5f});
    call(b, K_QKV, ATOM_OP_linear, 0,
         (krn_args){.buf = {l->ln1, l->p[2], l->p[3], l->qkv}, .dim = {N, C, 3 * C}});
    call(b, K_ATTENTION, ATOM_OP_attention, 0,
         (krn_args){.buf = {l->qkv, l->att, l->lse}, .dim = {b->B, b->T, H, C / H}});
    call(b, K_PROJ, ATOM_OP_linear, 0,
         (krn_args){.buf = {l->att, l->p[4], l->p[5], l->proj}, .dim = {N, C, C}});
    call(b, K_ADD, ATOM_OP_dropout_add, 0,
         (krn_args){.buf = {l->proj, l->x0, l->x1}, .dim = {N * C}});
    call(b, K_NORM, ATOM_OP_layernorm, 0,
         (krn_args){.buf = {l->x1, l->p[6], l->p[7], l->ln2, l->mean2, l->rstd2},
                    .dim = {N, C},
                    .eps = 1e-5f});
    call(b, K_FC, ATOM_OP_linear_gelu, 0,
         (krn_args){.buf = {l->ln2, l->p[8], l->p[9], l->fc, l->u}, .dim = {N, C, F}});
    call(b, K_FCPROJ, ATOM_OP_linear, 0,
         (krn_args){.buf = {l->fc, l->p[10], l->p[11], l->fcproj}, .dim = {N, F, C}});
    call(b, K_ADD, ATOM_OP_dropout_add, 0,
         (krn_args){.buf = {l->fcproj, l->x1, next}, .dim = {N * C}});
}

/* g: gradients [N,C] x 4 and [N,F], [N,3C]; g[0] comes in and goes out. */
static void layer_bwd(bench *b, layer *l, void *const g[6])
{
    int64_t N = b->N;
    call(b, K_ADD, ATOM_OP_dropout_add, 1,
         (krn_args){.buf = {NULL, NULL, NULL, g[0], g[1], g[2]}, .dim = {N * C}});
    call(b, K_FCPROJ, ATOM_OP_linear, 1,
         (krn_args){.buf = {l->fc, l->p[10], l->p[11], NULL, g[1], g[4], l->d[10], l->d[11]},
                    .dim = {N, F, C}});
    call(b, K_FC, ATOM_OP_linear_gelu, 1,
         (krn_args){.buf = {l->ln2, l->p[8], l->p[9], NULL, l->u, g[4], g[1], l->d[8], l->d[9]},
                    .dim = {N, C, F}});
    call(b, K_NORM, ATOM_OP_layernorm, 1,
         (krn_args){
             {l->x1, l->p[6], l->p[7], NULL, l->mean2, l->rstd2, g[1], g[2], l->d[6], l->d[7]},
             .dim = {N, C},
             .flags = KRN_ADD_D_IN0});
    call(b, K_ADD, ATOM_OP_dropout_add, 1,
         (krn_args){.buf = {NULL, NULL, NULL, g[2], g[1], g[0]}, .dim = {N * C}});
    call(b, K_PROJ, ATOM_OP_linear, 1,
         (krn_args){.buf = {l->att, l->p[4], l->p[5], NULL, g[1], g[3], l->d[4], l->d[5]},
                    .dim = {N, C, C}});
    call(b, K_ATTENTION, ATOM_OP_attention, 1,
         (krn_args){.buf = {l->qkv, l->att, l->lse, g[3], g[5]}, .dim = {b->B, b->T, H, C / H}});
    call(b, K_QKV, ATOM_OP_linear, 1,
         (krn_args){.buf = {l->ln1, l->p[2], l->p[3], NULL, g[5], g[1], l->d[2], l->d[3]},
                    .dim = {N, C, 3 * C}});
    call(b, K_NORM, ATOM_OP_layernorm, 1,
         (krn_args){
             {l->x0, l->p[0], l->p[1], NULL, l->mean1, l->rstd1, g[1], g[0], l->d[0], l->d[1]},
             .dim = {N, C},
             .flags = KRN_ADD_D_IN0});
}

typedef struct model {
    layer layers[L + 1]; /* the last one has x0, ln1 and its norm's parameters only */
    void *wte, *wpe;
    float *dwte, *dwpe, *loss;
    int32_t *tokens, *targets;
    void *g[6];
} model;

static void model_open(bench *b, model *m)
{
    int64_t N = b->N;
    m->wte = param(b, (int64_t)V * C, &m->dwte);
    m->wpe = param(b, 1024 * C, &m->dwpe);
    for (int i = 0; i < L; i++)
        layer_open(b, &m->layers[i]);
    layer *last = &m->layers[L];
    last->x0 = take_a(b, N * C);
    last->ln1 = take_a(b, N * C);
    last->mean1 = take_f(b, N);
    last->rstd1 = take_f(b, N);
    for (int i = 0; i < 2; i++)
        last->p[i] = param(b, C, &last->d[i]);
    m->loss = take_f(b, N);
    m->tokens = (int32_t *)(void *)take_f(b, N);
    m->targets = (int32_t *)(void *)take_f(b, N);
    for (int64_t n = 0; n < N; n++) {
        m->tokens[n] = (int32_t)(n * 7919 % V);
        m->targets[n] = (int32_t)(n * 104729 % V);
    }
    for (int i = 0; i < 4; i++)
        m->g[i] = take_a(b, N * C);
    m->g[4] = take_a(b, N * F);
    m->g[5] = take_a(b, N * 3 * C);
}

static void run_step(bench *b, model *m)
{
    int64_t N = b->N;
    double t = atom_clock_seconds(), cpu = cpu_seconds(b);
    layer *last = &m->layers[L];
    call(
        b, K_EMBED, ATOM_OP_embed, 0,
        (krn_args){.buf = {m->tokens, m->wte, m->wpe, m->layers[0].x0}, .dim = {b->B, b->T, C, V}});
    for (int i = 0; i < L; i++)
        layer_fwd(b, &m->layers[i], m->layers[i + 1].x0);
    call(b, K_NORM, ATOM_OP_layernorm, 0,
         (krn_args){.buf = {last->x0, last->p[0], last->p[1], last->ln1, last->mean1, last->rstd1},
                    .dim = {N, C},
                    .eps = 1e-5f});
    call(b, K_HEAD, ATOM_OP_classifier, 1,
         (krn_args){.buf = {last->ln1, m->targets, m->wte, m->loss, NULL, m->g[1], NULL, m->dwte},
                    .dim = {N, C, V}});
    call(b, K_NORM, ATOM_OP_layernorm, 1,
         (krn_args){.buf = {last->x0, last->p[0], last->p[1], NULL, last->mean1, last->rstd1,
                            m->g[1], m->g[0], last->d[0], last->d[1]},
                    .dim = {N, C}});
    for (int i = L - 1; i >= 0; i--)
        layer_bwd(b, &m->layers[i], m->g);
    call(b, K_EMBED, ATOM_OP_embed, 1,
         (krn_args){.buf = {m->tokens, m->wte, m->wpe, NULL, m->g[0], NULL, m->dwte, m->dwpe},
                    .dim = {b->B, b->T, C, V}});
    b->total[b->at] = (atom_clock_seconds() - t) * 1e3;
    b->cpu_total[b->at] = (cpu_seconds(b) - cpu) * 1e3;
}

static int compare(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double kind_gflop(const bench *b, bench_kind k)
{
    double N = (double)b->N, T = (double)b->T;
    switch (k) {
    case K_QKV:
        return 2e-9 * N * C * 3 * C * L;
    case K_PROJ:
        return 2e-9 * N * C * C * L;
    case K_FC:
    case K_FCPROJ:
        return 2e-9 * N * C * F * L;
    case K_HEAD:
        return 2e-9 * N * C * V;
    case K_ATTENTION:
        return 2e-9 * N * (T + 1) * C * L; /* causal: half of two products */
    default:
        return 0.0;
    }
}

static void print_line(const char *name, const char *way, double *ms, double *cpu_ms, int steps,
                       double gflop)
{
    qsort(ms, (size_t)steps, sizeof *ms, compare);
    qsort(cpu_ms, (size_t)steps, sizeof *cpu_ms, compare);
    double median = ms[steps / 2], cpu = cpu_ms[steps / 2];
    printf("%-22s %s %9.2f %9.2f %9.2f %9.2f %9.0f\n", name, way, median, ms[0], cpu, cpu_ms[0],
           cpu > 0 ? gflop / cpu * 1e3 : 0.0);
}

static void print_all(bench *b, int steps)
{
    printf("%-22s     %9s %9s %9s %9s %9s\n", "ms per step", "median", "least", "cpu", "least cpu",
           "GFLOP/s");
    for (int k = 0; k < K_N; k++) {
        double gflop = kind_gflop(b, (bench_kind)k);
        double more = k == K_HEAD ? 3 : k == K_ATTENTION ? 2.5 : 2;
        if (k != K_HEAD)
            print_line(kind_names[k], "fwd", b->ms[k][0], b->cpu_ms[k][0], steps, gflop);
        print_line(kind_names[k], "bwd", b->ms[k][1], b->cpu_ms[k][1], steps, gflop * more);
    }
    print_line("step without AdamW", "   ", b->total, b->cpu_total, steps, 0.0);
    printf("%.0f tokens/s at the median\n", (double)b->N / b->total[steps / 2] * 1e3);
}

static uint64_t workspace_bytes(const bench *b)
{
    const struct {
        atom_op op;
        int64_t dim[KRN_DIM_MAX];
    } ops[] = {{ATOM_OP_embed, .dim = {b->B, b->T, C, V}},
               {ATOM_OP_layernorm, {b->N, C}},
               {ATOM_OP_linear, {b->N, C, 3 * C}},
               {ATOM_OP_attention, .dim = {b->B, b->T, H, C / H}},
               {ATOM_OP_linear, {b->N, C, C}},
               {ATOM_OP_dropout_add, {b->N * C}},
               {ATOM_OP_linear_gelu, {b->N, C, F}},
               {ATOM_OP_linear, {b->N, F, C}},
               {ATOM_OP_classifier, {b->N, C, V}}};
    uint64_t most = 0;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        for (int back = 0; back < 2; back++) {
            uint64_t bytes = b->table->workspace(ops[i].op, back, ops[i].dim);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

int main(int argc, char **argv)
{
    static bench b;
    static model m;
    atom_dtype dtype = ATOM_F32;
    if (argc < 4 || atom_dtype_parse(argv[1], &dtype))
        fail("usage: bench_ops fp32|bf16 B T [steps [threads]]");
    b.B = atol(argv[2]);
    b.T = atol(argv[3]);
    int steps = argc > 4 ? atoi(argv[4]) : 5;
    steps = steps < 1 ? 1 : steps > STEPS_MAX ? STEPS_MAX : steps;
    b.N = b.B * b.T;
    b.act = atom_dtype_bytes(dtype);
    b.table = krn_cpu_table(dtype);
    uint32_t threads = argc > 5 ? (uint32_t)atoi(argv[5]) : atom_cores();
    b.threads = threads;
    if (b.N < 1 || threads < 1 || !b.table || atom_threads_open(threads, &b.cx.threads) != ATOM_OK)
        fail("cannot start");
    b.wroom = (b.act + 4) * 125000000 + (1 << 20);
    b.aroom = (uint64_t)b.N * (L * (C * 10 + F * 2) + C * 6 + F + 16 * L * H) * b.act +
              (uint64_t)b.N * L * 128 + (8 << 20);
    b.wpool = pages(b.wroom);
    b.apool = pages(b.aroom);
    b.cx.workspace_bytes = workspace_bytes(&b);
    b.cx.workspace = pages(b.cx.workspace_bytes);
    b.step = (krn_step){.seed = 1, .step = 1, .loss_scale = 1.0f / (float)b.N, .train = 1};
    b.cx.step = &b.step;
    model_open(&b, &m);
    run_step(&b, &m); /* warms up: first touch, primitives */
    memset(b.ms, 0, sizeof b.ms);
    memset(b.cpu_ms, 0, sizeof b.cpu_ms);
    for (b.at = 0; b.at < steps; b.at++)
        run_step(&b, &m);
    printf("GPT-2 124M, %s, B=%ld T=%ld, %u threads, %s; workspace %.1f MiB; loss %.4f\n",
           atom_dtype_name(dtype), (long)b.B, (long)b.T, threads, b.table->isa,
           (double)b.cx.workspace_bytes / 1048576, (double)m.loss[0]);
    print_all(&b, steps);
    atom_threads_close(&b.cx.threads);
    return 0;
}
