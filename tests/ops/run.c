/*
 * Owns buffers: random content, copies in another dtype, and the call of one kernel between guards.
 * One idea: a kernel gets fresh copies with garbage around and in everything it must not read;
 * afterwards only what it may write may differ.
 */
#include "tests/ops/checkop.h"

#include "atom/base/assert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(at, bytes) __asan_poison_memory_region(at, bytes)
#define UNPOISON(at, bytes) __asan_unpoison_memory_region(at, bytes)
#else
#define POISON(at, bytes) ((void)0)
#define UNPOISON(at, bytes) ((void)0)
#endif

enum { GUARD_BYTES = 256, GUARD_BYTE = 0xa5, POOLS_MAX = 4 };

static atom_threads *pools[POOLS_MAX];

static atom_threads *pool_of(uint32_t threads)
{
    ATOM_ASSERT(threads < POOLS_MAX);
    if (threads && !pools[threads])
        ATOM_ASSERT(atom_threads_open(threads, &pools[threads]) == ATOM_OK);
    return pools[threads];
}

void run_close(void)
{
    for (int i = 0; i < POOLS_MAX; i++)
        atom_threads_close(&pools[i]);
}

double tensor_get(atom_dtype dtype, const void *x, int64_t i)
{
    if (dtype == ATOM_F32)
        return (double)((const float *)x)[i];
    if (dtype == ATOM_BF16)
        return (double)atom_bf16_to_f32(((const atom_bf16 *)x)[i]);
    if (dtype == ATOM_I32)
        return ((const int32_t *)x)[i];
    return ((const double *)x)[i];
}

/* The nearest bf16, ties to even, decided in f64: one rounding. */
static atom_bf16 nearest_bf16(double value)
{
    atom_bf16 best = atom_f32_to_bf16((float)value);
    for (int step = -1; step <= 1; step += 2) {
        atom_bf16 next = (atom_bf16)(best + step);
        double gain = fabs((double)atom_bf16_to_f32(best) - value) -
                      fabs((double)atom_bf16_to_f32(next) - value);
        if (gain > 0 || (gain == 0 && best % 2))
            return next;
    }
    return best;
}

void tensor_put(atom_dtype dtype, void *x, int64_t i, double value)
{
    if (dtype == ATOM_F32)
        ((float *)x)[i] = (float)value;
    else if (dtype == ATOM_BF16)
        ((atom_bf16 *)x)[i] = nearest_bf16(value);
    else if (dtype == ATOM_I32)
        ((int32_t *)x)[i] = (int32_t)value;
    else
        ((double *)x)[i] = value;
}

atom_dtype place_dtype(place_kind kind, atom_dtype act)
{
    if (kind == KIND_TOKEN || kind == KIND_TARGET)
        return ATOM_I32;
    return kind == KIND_ACT || act == ATOM_F64 ? act : ATOM_F32;
}

static void *tensor_new(size_t bytes)
{
    void *x = calloc(1, bytes ? bytes : 1);
    ATOM_ASSERT(x);
    return x;
}

void tensors_free(tensors *t)
{
    for (int i = 0; i < KRN_BUF_MAX; i++)
        free(t->at[i]);
    *t = (tensors){0};
}

/* One number: what it is depends on the case, the place and the element only, not on the dtype. */
static double random_value(const op_case *c, const place *p, int place_i, int64_t e)
{
    atom_rng_key key = {.seed = 99 + (uint64_t)c->op * 16 + c->variant, .node = (uint32_t)place_i};
    double z = atom_rng_normal(key, (uint64_t)e);
    int64_t bound = c->op == ATOM_OP_embed        ? c->dim[3]
                    : c->op == ATOM_OP_classifier ? c->dim[2]
                                                  : c->dim[1];
    if (p->kind == KIND_TOKEN)
        return (double)(atom_rng_u32(key, (uint64_t)e) % (uint32_t)bound);
    if (p->kind == KIND_TARGET) {
        uint32_t word = atom_rng_u32(key, (uint64_t)e);
        bool missing = c->variant == 3 ? true : c->variant && word % 5 == 0;
        return missing ? -1.0 - (double)(word % 3) : (double)((word >> 8) % (uint32_t)bound);
    }
    bool product = c->op == ATOM_OP_linear || c->op == ATOM_OP_linear_gelu;
    if (product && strcmp(p->name, "w") == 0)
        return 1.5 * z / sqrt((double)c->dim[1]);
    if (c->op == ATOM_OP_classifier && strcmp(p->name, "w") == 0)
        return 2.0 * z / sqrt((double)c->dim[1]);
    if (c->op == ATOM_OP_layernorm || c->op == ATOM_OP_rmsnorm || c->op == ATOM_OP_headnorm)
        return p->name[0] == 'w'   ? 1.0 - (double)op_args(c).lift + 0.3 * z
               : p->name[0] == 'x' ? 3.0 + 2.0 * z
                                   : z;
    if (c->op == ATOM_OP_maxout && p->name[0] == 'x') /* far from ties, but in bf16 around 8 */
        return 0.5 * floor(2 * z) + 0.02 * (double)(e % c->dim[2]) + (c->variant == 1 ? 8 : 0);
    if (c->op == ATOM_OP_dora && p->kind == KIND_STAT && p->name[0] == 'n')
        return e % 7 == 3 ? 0 : 0.5 + fabs(z); /* lengths; some rows are 0 */
    if (c->op == ATOM_OP_cross_entropy && c->variant == 2)
        return 100.0 + 8.0 * z; /* far from zero: the largest must be taken out first */
    if (c->op == ATOM_OP_gelu || c->op == ATOM_OP_gelu_erf || c->op == ATOM_OP_silu ||
        c->op == ATOM_OP_relu2 || c->op == ATOM_OP_swiglu || c->op == ATOM_OP_geglu ||
        c->op == ATOM_OP_cross_entropy)
        return c->variant % 2 ? 4.0 * z : z;
    if (c->op ==
        ATOM_OP_compress) { /* equal values, rows of zeros, an offset that is no multiple */
        double x = c->variant == 2 ? rint(2 * z) : z + (c->variant == 1 ? 40.3 : 0);
        return c->variant == 3 && e / c->dim[1] % 3 == 1 ? 0 : x;
    }
    if (c->op == ATOM_OP_classifier || c->op == ATOM_OP_attention)
        return c->variant >= 2 ? 3.0 * z : z;
    return z;
}

tensors tensors_fill(const op_case *c, bool backward, atom_dtype act, const tensors *forward)
{
    place places[KRN_BUF_MAX];
    op_places(c, backward, places);
    tensors t = {0};
    for (int i = 0; i < KRN_BUF_MAX; i++) {
        const place *p = &places[i];
        if (p->kind == KIND_NONE)
            continue;
        atom_dtype dtype = place_dtype(p->kind, act);
        t.bytes[i] = (size_t)p->n * atom_dtype_bytes(dtype);
        t.at[i] = tensor_new(t.bytes[i]);
        if (p->from >= 0) {
            ATOM_ASSERT(forward->at[p->from] && forward->bytes[p->from] == t.bytes[i]);
            memcpy(t.at[i], forward->at[p->from], t.bytes[i]);
            continue;
        }
        for (int64_t e = 0; e < p->n; e++)
            tensor_put(dtype, t.at[i], e, random_value(c, p, i + 32 * backward, e));
    }
    return t;
}

tensors tensors_convert(const op_case *c, bool backward, const tensors *from, atom_dtype from_act,
                        atom_dtype to_act)
{
    place places[KRN_BUF_MAX];
    op_places(c, backward, places);
    tensors t = {0};
    for (int i = 0; i < KRN_BUF_MAX; i++) {
        if (!from->at[i])
            continue;
        atom_dtype in = place_dtype(places[i].kind, from_act);
        atom_dtype out = place_dtype(places[i].kind, to_act);
        t.bytes[i] = (size_t)places[i].n * atom_dtype_bytes(out);
        t.at[i] = tensor_new(t.bytes[i]);
        for (int64_t e = 0; e < places[i].n; e++)
            tensor_put(out, t.at[i], e, tensor_get(in, from->at[i], e));
    }
    return t;
}

/* One buffer between guards: block = guard, bytes, guard. */
typedef struct guarded {
    uint8_t *block;
    size_t bytes;
} guarded;

static guarded guarded_new(size_t bytes, uint8_t fill)
{
    size_t all = (bytes + 2 * GUARD_BYTES + 255) & ~(size_t)255;
    guarded g = {aligned_alloc(256, all), bytes};
    ATOM_ASSERT(g.block);
    memset(g.block, GUARD_BYTE, all);
    memset(g.block + GUARD_BYTES, fill, bytes);
    POISON(g.block, GUARD_BYTES);
    POISON(g.block + GUARD_BYTES + bytes, GUARD_BYTES);
    return g;
}

static void *guarded_at(const guarded *g)
{
    return g->block + GUARD_BYTES;
}

static bool guarded_free(guarded *g)
{
    bool whole = true;
    UNPOISON(g->block, GUARD_BYTES);
    UNPOISON(g->block + GUARD_BYTES + g->bytes, GUARD_BYTES);
    for (size_t i = 0; i < GUARD_BYTES; i++)
        whole &= g->block[i] == GUARD_BYTE && g->block[GUARD_BYTES + g->bytes + i] == GUARD_BYTE;
    free(g->block);
    return whole;
}

/* After the call: guards whole, what is only read unchanged; the rest is copied out. */
static void take_results(const place *places, guarded *buffers, const tensors *given, tensors *out,
                         const char **broken)
{
    for (int i = 0; i < KRN_BUF_MAX; i++) {
        if (!given->at[i])
            continue;
        out->bytes[i] = given->bytes[i];
        out->at[i] = tensor_new(given->bytes[i]);
        memcpy(out->at[i], guarded_at(&buffers[i]), given->bytes[i]);
        if (places[i].use == USE_READ && memcmp(out->at[i], given->at[i], given->bytes[i]) != 0)
            *broken = "wrote into a tensor that it may only read";
        if (!guarded_free(&buffers[i]))
            *broken = "wrote outside of a tensor";
    }
}

/* Documents of random lengths: some of one row, some of more than a block. */
static int32_t *starts_new(const op_case *c)
{
    static const uint32_t usual[VARIANT_N] = {40, 3, 97, 11};
    int64_t B = c->dim[0], T = c->dim[1];
    int32_t *starts = calloc((size_t)(B * T), sizeof *starts);
    atom_rng_key key = {.seed = 99};
    ATOM_ASSERT(starts);
    for (int64_t n = 0; n < B * T; n++) {
        bool begins = n % T == 0 || atom_rng_u32(key, (uint64_t)n) % usual[c->variant] == 0;
        starts[n] = begins ? (int32_t)(n % T) : starts[n - 1];
    }
    return starts;
}

tensors run_kernel(const krn_table *table, const op_case *c, bool backward, const tensors *given,
                   uint32_t threads, uint8_t garbage, const char **broken)
{
    place places[KRN_BUF_MAX];
    op_places(c, backward, places);
    guarded buffers[KRN_BUF_MAX] = {{0}};
    krn_args args = op_args(c);
    krn_step step = op_step(c);
    int32_t *starts = c->apart ? starts_new(c) : NULL;
    step.starts = starts;
    for (int i = 0; i < KRN_BUF_MAX; i++) {
        if (!given->at[i])
            continue;
        buffers[i] = guarded_new(given->bytes[i], garbage);
        args.buf[i] = guarded_at(&buffers[i]);
        if (places[i].use != USE_WRITE)
            memcpy(args.buf[i], given->at[i], given->bytes[i]);
    }
    uint64_t workspace_bytes = table->workspace(c->op, backward, c->dim);
    guarded workspace = guarded_new(workspace_bytes, garbage);
    krn_ctx cx = {.threads = pool_of(threads),
                  .workspace = workspace_bytes ? guarded_at(&workspace) : NULL,
                  .workspace_bytes = workspace_bytes,
                  .step = &step};
    (backward ? table->bwd : table->fwd)[c->op](&cx, &args);
    tensors out = {0};
    take_results(places, buffers, given, &out, broken);
    if (!guarded_free(&workspace))
        *broken = "wrote outside of its workspace";
    free(starts);
    return out;
}
