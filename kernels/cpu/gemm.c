/*
 * Owns the cache of oneDNN matmul primitives. One idea: a primitive is a pure function of its
 * shape, made under a lock, never freed, run by any number of threads at once with scratch on their
 * stacks. Refuses to thread: OpenMP is held at one thread for every thread that comes here, before
 * primitives are made too, because oneDNN blocks for the number of threads it sees.
 *
 * The cache lives as long as the process; it is the one piece of state of the CPU kernels, which
 * have no place to keep any (kernels.h).
 */
#include "kernels/cpu/gemm.h"

#include "kernels/cpu/cpu.h"

#include <oneapi/dnnl/dnnl.h>

#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { GEMM_BUCKETS = 256, GEMM_STACK_BYTES = 128 << 10, GEMM_ALIGN = 64 };

typedef struct gemm_entry {
    gemm_shape shape;
    struct gemm_entry *next;
    dnnl_primitive_t primitive; /* NULL: oneDNN has nothing good */
    dnnl_memory_desc_t a, b, bias, c, scratch;
    size_t scratch_bytes;
} gemm_entry;

typedef struct gemm_cache {
    pthread_once_t once;
    pthread_mutex_t lock;
    dnnl_engine_t engine; /* NULL: oneDNN is not usable */
    dnnl_stream_t stream;
    gemm_layout bf16_layout;
    gemm_plain_fn plain;
    gemm_entry *buckets[GEMM_BUCKETS];
} gemm_cache;

static gemm_cache cache = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void one_thread(void)
{
    static _Thread_local bool done;
    if (!done)
        omp_set_num_threads(1);
    done = true;
}

static dnnl_data_type_t type_of(atom_dtype dtype)
{
    return dtype == ATOM_F32 ? dnnl_f32 : dnnl_bf16;
}

static bool make_attr(const gemm_shape *s, dnnl_primitive_attr_t *attr)
{
    if (dnnl_primitive_attr_create(attr) != dnnl_success)
        return false;
    bool ok =
        dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user) == dnnl_success;
    if (ok && s->add) {
        dnnl_post_ops_t ops = NULL;
        ok = dnnl_post_ops_create(&ops) == dnnl_success &&
             dnnl_post_ops_append_sum(ops, 1.0f) == dnnl_success &&
             dnnl_primitive_attr_set_post_ops(*attr, ops) == dnnl_success;
        if (ops)
            dnnl_post_ops_destroy(ops);
    }
    if (!ok)
        dnnl_primitive_attr_destroy(*attr);
    return ok;
}

/* Descriptors of a, bias and c; b blocked as the header says, or plain with 64 columns. */
static bool make_descs(gemm_entry *e, bool blocked)
{
    const gemm_shape *s = &e->shape;
    dnnl_dims_t a = {s->m, s->k}, b = {s->k, s->n}, c = {s->m, s->n}, bias = {1, s->n};
    dnnl_dims_t a_step = {s->lda, 1}, b_step = {GEMM_PANEL, 1}, c_step = {s->ldc, 1};
    dnnl_dims_t bias_step = {s->n, 1};
    dnnl_data_type_t in = type_of(s->in);
    dnnl_format_tag_t tag = s->in == ATOM_F32 ? dnnl_BA16a64b : dnnl_BA16a64b2a;
    dnnl_status_t st = blocked ? dnnl_memory_desc_init_by_tag(&e->b, 2, b, in, tag)
                               : dnnl_memory_desc_init_by_strides(&e->b, 2, b, in, b_step);
    return st == dnnl_success &&
           dnnl_memory_desc_init_by_strides(&e->a, 2, a, in, a_step) == dnnl_success &&
           dnnl_memory_desc_init_by_strides(&e->bias, 2, bias, in, bias_step) == dnnl_success &&
           dnnl_memory_desc_init_by_strides(&e->c, 2, c, type_of(s->out), c_step) == dnnl_success;
}

/* Tries one form of b; takes it only where oneDNN has compiled code for it. */
static bool make_primitive(gemm_entry *e, bool blocked)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_matmul_desc_t matmul;
    const char *name = "";
    if (!make_descs(e, blocked) || !make_attr(&e->shape, &attr))
        return false;
    bool ok = dnnl_matmul_desc_init(&matmul, &e->a, &e->b, e->shape.bias ? &e->bias : NULL,
                                    &e->c) == dnnl_success &&
              dnnl_primitive_desc_create(&desc, &matmul, attr, cache.engine, NULL) == dnnl_success;
    dnnl_primitive_attr_destroy(attr);
    if (!ok)
        return false;
    ok = dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name) == dnnl_success &&
         (blocked ? strncmp(name, "brg", 3) == 0 : strncmp(name, "ref", 3) != 0);
    if (ok) {
        e->scratch = *dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
        e->scratch_bytes = dnnl_memory_desc_get_size(&e->scratch);
        ok = dnnl_primitive_create(&e->primitive, desc) == dnnl_success;
    }
    dnnl_primitive_desc_destroy(desc);
    return ok;
}

static void make_entry(gemm_entry *e)
{
    one_thread();
    if (!cache.engine)
        return;
    if (e->shape.in == ATOM_BF16 && cache.bf16_layout == GEMM_WIDE)
        return;
    if (!make_primitive(e, true) && e->shape.in == ATOM_F32)
        (void)make_primitive(e, false);
}

/* Once per process: the engine, and whether bf16 has compiled code here. */
static void cache_open(void)
{
    static const gemm_plain_fn plain[KRN_CPU_ISA_N] = {
        krn_cpu_gemm_plain_base, krn_cpu_gemm_plain_avx2, krn_cpu_gemm_plain_avx512};
    cache.plain = plain[krn_cpu_isa_best()];
    cache.bf16_layout = GEMM_WIDE;
    if (dnnl_engine_create(&cache.engine, dnnl_cpu, 0) != dnnl_success)
        cache.engine = NULL;
    else if (dnnl_stream_create(&cache.stream, cache.engine, dnnl_stream_default_flags) !=
             dnnl_success)
        cache.engine = NULL;
    gemm_entry probe = {.shape = {64, 64, 64, 64, 64, ATOM_BF16, ATOM_F32, false, false}};
    cache.bf16_layout = GEMM_PAIRS;
    make_entry(&probe);
    if (!probe.primitive)
        cache.bf16_layout = GEMM_WIDE;
    else
        dnnl_primitive_destroy(probe.primitive);
}

static bool shape_equal(const gemm_shape *x, const gemm_shape *y)
{
    return x->m == y->m && x->n == y->n && x->k == y->k && x->lda == y->lda && x->ldc == y->ldc &&
           x->in == y->in && x->out == y->out && x->add == y->add && x->bias == y->bias;
}

static uint32_t shape_bucket(const gemm_shape *s)
{
    uint64_t h = 0;
    const int64_t parts[] = {s->m,   s->n,   s->k, s->lda, s->ldc, (int64_t)s->in, (int64_t)s->out,
                             s->add, s->bias};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        h = (h ^ (uint64_t)parts[i]) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 40) % GEMM_BUCKETS;
}

gemm gemm_get(const gemm_shape *shape)
{
    pthread_once(&cache.once, cache_open);
    gemm_entry **bucket = &cache.buckets[shape_bucket(shape)];
    pthread_mutex_lock(&cache.lock);
    gemm_entry *e = *bucket;
    while (e && !shape_equal(&e->shape, shape))
        e = e->next;
    if (!e && (e = calloc(1, sizeof *e))) {
        e->shape = *shape;
        make_entry(e);
        e->next = *bucket;
        *bucket = e;
    }
    pthread_mutex_unlock(&cache.lock);
    return (gemm){*shape, e && e->primitive ? e : NULL};
}

gemm_layout gemm_layout_of(atom_dtype dtype)
{
    pthread_once(&cache.once, cache_open);
    return dtype == ATOM_F32 ? GEMM_WIDE : cache.bf16_layout;
}

uint64_t gemm_panel_bytes(atom_dtype dtype, int64_t k)
{
    return gemm_panel_bytes_max(k) / (gemm_layout_of(dtype) == GEMM_PAIRS ? 2 : 1);
}

static bool run_primitive(const gemm_entry *e, void *scratch, const void *a, const void *b,
                          const void *bias, void *c)
{
    const struct {
        int what;
        const dnnl_memory_desc_t *desc;
        void *data;
    } parts[] = {{DNNL_ARG_SRC, &e->a, (void *)(uintptr_t)a},
                 {DNNL_ARG_WEIGHTS, &e->b, (void *)(uintptr_t)b},
                 {DNNL_ARG_DST, &e->c, c},
                 {DNNL_ARG_SCRATCHPAD, &e->scratch, scratch},
                 {DNNL_ARG_BIAS, &e->bias, (void *)(uintptr_t)bias}};
    dnnl_exec_arg_t args[5];
    int want = e->shape.bias ? 5 : 4, have = 0;
    for (; have < want; have++) {
        args[have].arg = parts[have].what;
        if (dnnl_memory_create(&args[have].memory, parts[have].desc, cache.engine,
                               parts[have].data) != dnnl_success)
            break;
    }
    bool ok = have == want &&
              dnnl_primitive_execute(e->primitive, cache.stream, have, args) == dnnl_success;
    for (int i = 0; i < have; i++)
        dnnl_memory_destroy(args[i].memory);
    return ok;
}

static __attribute__((noinline)) bool run_on_stack(const gemm_entry *e, const void *a,
                                                   const void *b, const void *bias, void *c)
{
    _Alignas(GEMM_ALIGN) char scratch[GEMM_STACK_BYTES];
    return run_primitive(e, scratch, a, b, bias, c);
}

/* Odd k makes oneDNN copy a: more scratch than a stack should hold. */
static bool run_on_heap(const gemm_entry *e, const void *a, const void *b, const void *bias,
                        void *c)
{
    size_t bytes = (e->scratch_bytes + GEMM_ALIGN - 1) / GEMM_ALIGN * GEMM_ALIGN;
    void *scratch = aligned_alloc(GEMM_ALIGN, bytes);
    bool ok = scratch && run_primitive(e, scratch, a, b, bias, c);
    free(scratch);
    return ok;
}

void gemm_run(const gemm *g, const void *a, const void *b, const void *bias, void *c)
{
    const gemm_entry *e = g->entry;
    one_thread();
    bool ok = e && (e->scratch_bytes <= GEMM_STACK_BYTES ? run_on_stack(e, a, b, bias, c)
                                                         : run_on_heap(e, a, b, bias, c));
    if (!ok)
        cache.plain(&g->shape, gemm_layout_of(g->shape.in), a, b, bias, c);
}

void gemm_grid_open(gemm_grid *grid, const gemm_shape *shape, int64_t row_step)
{
    int64_t blocks = (shape->m + row_step - 1) / row_step, panels = gemm_panels(shape->n);
    *grid = (gemm_grid){*shape, row_step, (uint32_t)blocks, (uint32_t)panels, {{{.entry = NULL}}}};
    for (int last_row = 0; last_row < 2 && blocks > 0; last_row++) {
        for (int last_panel = 0; last_panel < 2; last_panel++) {
            gemm_shape part = *shape;
            part.m = last_row ? shape->m - (blocks - 1) * row_step : row_step;
            part.n = last_panel ? shape->n - (panels - 1) * GEMM_PANEL : GEMM_PANEL;
            if ((last_row || blocks > 1) && (last_panel || panels > 1))
                grid->parts[last_row][last_panel] = gemm_get(&part);
        }
    }
}

gemm_spot gemm_grid_spot(const gemm_grid *grid, uint32_t i)
{
    uint32_t block = i / grid->panels, panel = i % grid->panels;
    const gemm *part = &grid->parts[block + 1 == grid->row_blocks][panel + 1 == grid->panels];
    return (gemm_spot){.m0 = block * grid->row_step,
                       .m = part->shape.m,
                       .n0 = (int64_t)panel * GEMM_PANEL,
                       .n = part->shape.n};
}

void gemm_grid_run(const gemm_grid *grid, uint32_t i, const void *a, const void *b,
                   const void *bias, void *c)
{
    uint32_t block = i / grid->panels, panel = i % grid->panels;
    const gemm *part = &grid->parts[block + 1 == grid->row_blocks][panel + 1 == grid->panels];
    int64_t m0 = block * grid->row_step, n0 = (int64_t)panel * GEMM_PANEL;
    const gemm_shape *s = &grid->shape;
    uint64_t in = atom_dtype_bytes(s->in), out = atom_dtype_bytes(s->out);
    gemm_run(part, (const char *)a + (uint64_t)(m0 * s->lda) * in,
             (const char *)b + panel * gemm_panel_bytes(s->in, s->k),
             bias ? (const char *)bias + (uint64_t)n0 * in : NULL,
             (char *)c + (uint64_t)(m0 * s->ldc + n0) * out);
}
