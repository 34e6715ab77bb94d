/*
 * Owns the cache of oneDNN matmul primitives. One idea: a primitive is a pure function of its
 * shape, made under a lock, tried once beside plain code, never freed, run by any number of threads at once with
 * scratch on their stacks. Refuses to thread: OpenMP is held at one thread for every thread that comes here, before
 * primitives are made too, because oneDNN blocks for the number of threads it sees.
 *
 * The cache lives as long as the process; it is the one piece of state of the CPU kernels, which
 * have no place to keep any (kernels.h).
 */
#include "kernels/cpu/gemm.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/onednn.h"

#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { GEMM_BUCKETS = 256, GEMM_STACK_BYTES = 128 << 10, GEMM_ALIGN = 64 };
enum { GEMM_PARTS = 4, GEMM_HANDLES = 16 };

typedef struct gemm_entry {
    gemm shape; /* its entry is NULL */
    struct gemm_entry *next;
    dnnl_primitive_t primitive; /* NULL: oneDNN has nothing good */
    dnnl_memory_desc_t a, b, c, scratch;
    size_t scratch_bytes;
    uint32_t slot; /* of the threads' handles */
} gemm_entry;

/* oneDNN's names for a product's buffers; made once per thread and shape,
 * then pointed elsewhere. */
typedef struct gemm_handles {
    const gemm_entry *entry; /* NULL: an empty slot */
    dnnl_exec_arg_t args[GEMM_PARTS];
} gemm_handles;

typedef struct gemm_cache {
    pthread_once_t once;
    pthread_key_t handles; /* gemm_handles[GEMM_HANDLES] of each thread, by shape */
    pthread_mutex_t lock;
    dnnl_engine_t engine; /* NULL: oneDNN is not usable */
    dnnl_stream_t stream;
    gemm_layout bf16_layout;
    gemm_plain_fn plain;
    uint32_t entries;
    gemm_entry *buckets[GEMM_BUCKETS];
} gemm_cache;

static gemm_cache cache = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void handles_empty(gemm_handles *h)
{
    for (int i = 0; i < GEMM_PARTS && h->entry; i++)
        dnnl_memory_destroy(h->args[i].memory);
    h->entry = NULL;
}

/* A thread ends. */
static void handles_close(void *all)
{
    gemm_handles *h = all;
    for (int i = 0; i < GEMM_HANDLES; i++)
        handles_empty(&h[i]);
    free(all);
}

static void one_thread(void)
{
    static _Thread_local bool done;
    if (!done)
        omp_set_num_threads(1);
    done = true;
}

/* b blocked as the header says, or (fp32 only) the same bytes as a plain matrix of 64 columns. */
static bool make_descs(gemm_entry *e, bool blocked)
{
    const gemm *g = &e->shape;
    dnnl_dims_t a = {g->m, g->k}, b = {g->k, GEMM_PANEL}, c = {g->m, GEMM_PANEL};
    dnnl_data_type_t in = g->in == ATOM_F32 ? dnnl_f32 : dnnl_bf16;
    dnnl_format_tag_t tag = !blocked            ? dnnl_ab
                            : g->in == ATOM_F32 ? dnnl_BA16a64b
                                                : dnnl_BA16a64b2a;
    return onednn_desc(a, in, dnnl_ab, &e->a) == dnnl_success &&
           onednn_desc(b, in, tag, &e->b) == dnnl_success &&
           onednn_desc(c, dnnl_f32, dnnl_ab, &e->c) == dnnl_success;
}

static void forget(gemm_entry *e)
{
    if (e->primitive)
        dnnl_primitive_destroy(e->primitive);
    e->primitive = NULL;
    onednn_desc_free(&e->a);
    onednn_desc_free(&e->b);
    onednn_desc_free(&e->c);
    onednn_desc_free(&e->scratch);
}

/* The compiled code for this product, where oneDNN has some. */
static bool compile(gemm_entry *e, dnnl_primitive_desc_t desc)
{
    const char *name = "";
    if (dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name) != dnnl_success ||
        strncmp(name, "ref", 3) == 0 || onednn_scratch(desc, &e->scratch) != dnnl_success)
        return false;
    e->scratch_bytes = onednn_bytes(&e->scratch);
    return dnnl_primitive_create(&e->primitive, desc) == dnnl_success;
}

static bool handles_fill(gemm_handles *h, const gemm_entry *e)
{
    const int what[GEMM_PARTS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                  DNNL_ARG_SCRATCHPAD};
    const dnnl_memory_desc_t *desc[GEMM_PARTS] = {&e->a, &e->b, &e->c, &e->scratch};
    for (int i = 0; i < GEMM_PARTS; i++) {
        h->args[i].arg = what[i];
        if (onednn_memory(desc[i], cache.engine, &h->args[i].memory) != dnnl_success) {
            while (i--)
                dnnl_memory_destroy(h->args[i].memory);
            return false;
        }
    }
    h->entry = e;
    return true;
}

static bool run_handles(const gemm_handles *h, void *scratch, const void *a, const void *b,
                        float *tile)
{
    void *data[GEMM_PARTS] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b, tile, scratch};
    for (int i = 0; i < GEMM_PARTS; i++) {
        if (dnnl_memory_set_data_handle(h->args[i].memory, data[i]) != dnnl_success)
            return false;
    }
    return dnnl_primitive_execute(h->entry->primitive, cache.stream, GEMM_PARTS, h->args) ==
           dnnl_success;
}

static size_t aligned(size_t bytes)
{
    return (bytes + GEMM_ALIGN - 1) / GEMM_ALIGN * GEMM_ALIGN;
}

/* Element i of an operand: so small and whole that every order of summing gives the same number. */
static void put(void *out, atom_dtype type, int64_t i, int64_t value)
{
    if (type == ATOM_F32)
        ((float *)out)[i] = (float)value;
    else
        ((atom_bf16 *)out)[i] = atom_f32_to_bf16((float)value);
}

static int64_t whole(int64_t i)
{
    return (int64_t)((uint64_t)i * 0x9e3779b97f4a7c15u >> 40) % 7 - 3;
}

/* Multiplies once what plain code multiplies, too: a library that is replaced may have mistakes of its own. */
static bool is_right(const gemm_entry *e)
{
    enum { A, B, OURS, THEIRS, SCRATCH, N };
    const gemm *g = &e->shape;
    gemm_layout layout = g->in == ATOM_F32 ? GEMM_WIDE : GEMM_PAIRS;
    size_t tile = (size_t)g->m * GEMM_PANEL * sizeof(float);
    size_t bytes[N] = {(size_t)(g->m * g->k) * 4, gemm_panel_bytes(layout, g->k), tile, tile,
                       e->scratch_bytes + 1};
    void *at[N] = {NULL};
    gemm_handles h = {0};
    bool ok = handles_fill(&h, e);
    for (int i = 0; i < N && ok; i++)
        ok = (at[i] = aligned_alloc(GEMM_ALIGN, aligned(bytes[i]))) != NULL;
    for (int64_t i = 0; i < g->m * g->k && ok; i++)
        put(at[A], g->in, i, whole(i));
    for (int64_t i = 0; i < gemm_round_k(g->k) * GEMM_PANEL && ok; i++) {
        int64_t row = layout == GEMM_WIDE ? i / GEMM_PANEL : i / (2 * GEMM_PANEL) * 2 + i % 2;
        put(at[B], g->in, i, row < g->k ? whole(i + 5) : 0);
    }
    if (ok) {
        cache.plain(g, layout, at[A], at[B], at[OURS]);
        ok = run_handles(&h, at[SCRATCH], at[A], at[B], at[THEIRS]);
    }
    for (int64_t i = 0; i < g->m * GEMM_PANEL && ok; i++) /* zeros may differ in their sign */
        ok = ((const float *)at[OURS])[i] == ((const float *)at[THEIRS])[i];
    for (int i = 0; i < N; i++)
        free(at[i]);
    handles_empty(&h);
    return ok;
}

/* Tries one form of b. */
static bool make_primitive(gemm_entry *e, bool blocked)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    bool ok = make_descs(e, blocked) && dnnl_primitive_attr_create(&attr) == dnnl_success;
    ok = ok &&
         dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success &&
         onednn_product(cache.engine, &e->a, &e->b, &e->c, attr, &desc) == dnnl_success &&
         compile(e, desc) && is_right(e);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    if (desc)
        dnnl_primitive_desc_destroy(desc);
    if (!ok)
        forget(e);
    return ok;
}

static void make_entry(gemm_entry *e)
{
    one_thread();
    if (!cache.engine || (e->shape.in == ATOM_BF16 && cache.bf16_layout == GEMM_WIDE))
        return;
    if (!(e->shape.in == ATOM_F32 && ONEDNN_BAD_BLOCKS) && make_primitive(e, true))
        return;
    if (e->shape.in == ATOM_F32)
        (void)make_primitive(e, false);
}

/* Once per process: the engine, and whether bf16 has compiled code here. */
static void cache_open(void)
{
    static const gemm_plain_fn plain[KRN_CPU_ISA_N] = {
        krn_cpu_gemm_plain_base, krn_cpu_gemm_plain_avx2, krn_cpu_gemm_plain_avx512};
    cache.plain = plain[krn_cpu_isa_best()];
    if (pthread_key_create(&cache.handles, handles_close) ||
        dnnl_engine_create(&cache.engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&cache.stream, cache.engine, dnnl_stream_default_flags) != dnnl_success)
        cache.engine = NULL;
    gemm_entry probe = {.shape = {.m = 64, .k = 64, .in = ATOM_BF16}};
    cache.bf16_layout = GEMM_PAIRS;
    make_entry(&probe);
    if (!probe.primitive)
        cache.bf16_layout = GEMM_WIDE;
    forget(&probe);
}

static bool shape_equal(const gemm *x, const gemm *y)
{
    return x->m == y->m && x->k == y->k && x->in == y->in;
}

static uint32_t shape_bucket(const gemm *g)
{
    uint64_t h = (uint64_t)g->m * 0x9e3779b97f4a7c15u;
    h = (h ^ (uint64_t)g->k) * 0x9e3779b97f4a7c15u;
    h = (h ^ (uint64_t)g->in) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 40) % GEMM_BUCKETS;
}

gemm gemm_get(atom_dtype in, int64_t m, int64_t k)
{
    pthread_once(&cache.once, cache_open);
    gemm g = {.m = m, .k = k, .in = in};
    gemm_entry **bucket = &cache.buckets[shape_bucket(&g)];
    pthread_mutex_lock(&cache.lock);
    gemm_entry *e = *bucket;
    while (e && !shape_equal(&e->shape, &g))
        e = e->next;
    if (!e && (e = calloc(1, sizeof *e))) {
        e->shape = g;
        e->slot = cache.entries++ % GEMM_HANDLES;
        make_entry(e);
        e->next = *bucket;
        *bucket = e;
    }
    pthread_mutex_unlock(&cache.lock);
    g.entry = e && e->primitive ? e : NULL;
    return g;
}

gemm_layout gemm_layout_of(atom_dtype dtype)
{
    pthread_once(&cache.once, cache_open);
    return dtype == ATOM_F32 ? GEMM_WIDE : cache.bf16_layout;
}

/* This thread's handles for a shape; NULL for want of memory. */
static gemm_handles *handles_get(const gemm_entry *e)
{
    gemm_handles *all = pthread_getspecific(cache.handles);
    if (!all) {
        all = calloc(GEMM_HANDLES, sizeof *all);
        if (!all || pthread_setspecific(cache.handles, all)) {
            free(all);
            return NULL;
        }
    }
    gemm_handles *h = &all[e->slot];
    if (h->entry == e)
        return h;
    handles_empty(h);
    return handles_fill(h, e) ? h : NULL;
}

static bool run_primitive(const gemm_entry *e, void *scratch, const void *a, const void *b,
                          float *tile)
{
    gemm_handles *h = handles_get(e);
    return h && run_handles(h, scratch, a, b, tile);
}

static __attribute__((noinline)) bool run_on_stack(const gemm_entry *e, const void *a,
                                                   const void *b, float *tile)
{
    _Alignas(GEMM_ALIGN) char scratch[GEMM_STACK_BYTES];
    return run_primitive(e, scratch, a, b, tile);
}

/* Odd k makes oneDNN copy a: more scratch than a stack should hold. */
static bool run_on_heap(const gemm_entry *e, const void *a, const void *b, float *tile)
{
    void *scratch = aligned_alloc(GEMM_ALIGN, aligned(e->scratch_bytes));
    bool ok = scratch && run_primitive(e, scratch, a, b, tile);
    free(scratch);
    return ok;
}

void gemm_run(const gemm *g, const void *a, const void *b, float *tile)
{
    const gemm_entry *e = g->entry;
    one_thread();
    bool ok = e && (e->scratch_bytes <= GEMM_STACK_BYTES ? run_on_stack(e, a, b, tile)
                                                         : run_on_heap(e, a, b, tile));
    if (!ok)
        cache.plain(g, gemm_layout_of(g->in), a, b, tile);
}

uint32_t krn_cpu_library_version(void)
{
    const dnnl_version_t *v = dnnl_version();
    return (uint32_t)(10000 * v->major + 100 * v->minor + v->patch);
}
