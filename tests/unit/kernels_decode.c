/*
 * The decode kernels against ref on every instruction set of this machine, and what they promise
 * about bits: rows of a product do not depend on each other, tokens one by one equal tokens at
 * once, threads do not matter.
 */
#include "kernels/cpu/decode.h"

#include "atom/base/mem.h"
#include "atom/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int64_t N, past, H, D;
    int64_t K; /* key heads; 0: H */
    int64_t W; /* window; 0: none */
} shape;

static int64_t keys_of(const shape *s)
{
    return s->K ? s->K : s->H;
}
/* Elements of a row of qkv. */
static int64_t row_of(const shape *s)
{
    return (s->H + 2 * keys_of(s)) * s->D;
}

static void *take(uint64_t bytes)
{
    void *p = atom_pages_take(atom_align(bytes));
    assert_non_null(p);
    return p;
}

static void give(void *p, uint64_t bytes)
{
    atom_pages_give(p, atom_align(bytes));
}

static void fill(atom_dtype dtype, void *x, uint64_t n, uint32_t stream, float scale)
{
    atom_rng_key key = {.seed = 5, .node = stream};
    for (uint64_t i = 0; i < n; i++) {
        float v = (float)atom_rng_normal(key, i) * scale;
        if (dtype == ATOM_F32)
            ((float *)x)[i] = v;
        else
            ((atom_bf16 *)x)[i] = atom_f32_to_bf16(v);
    }
}

static double at(atom_dtype dtype, const void *x, uint64_t i)
{
    return dtype == ATOM_F32 ? (double)((const float *)x)[i]
                             : (double)atom_bf16_to_f32(((const atom_bf16 *)x)[i]);
}

/* ||a - b|| / ||b|| */
static double distance(atom_dtype dtype, const void *a, const void *b, uint64_t n)
{
    double diff = 0, norm = 0;
    for (uint64_t i = 0; i < n; i++) {
        double d = at(dtype, a, i) - at(dtype, b, i);
        diff += d * d;
        norm += at(dtype, b, i) * at(dtype, b, i);
    }
    return sqrt(diff / norm);
}

/* --- one row --- */

enum { ROW_LINEAR, ROW_GELU, ROW_LOGITS, ROW_N };

static krn_fn row_entry(const krn_decode_table *t, int kind)
{
    return kind == ROW_LINEAR ? t->linear : kind == ROW_GELU ? t->linear_gelu : t->logits;
}

static void run_row(const krn_decode_table *t, int kind, atom_threads *threads, void *const buf[4],
                    int64_t I, int64_t O, void *y)
{
    uint64_t bytes = t->row_workspace(I) + 1;
    krn_ctx cx = {.threads = threads, .workspace = take(bytes)};
    krn_args args = {.buf = {buf[0], buf[1], buf[2], y}, .dim = {1, I, O}};
    args.cap = kind == ROW_LOGITS && I % 2 ? 0.75f : 0;
    row_entry(t, kind)(&cx, &args);
    give(cx.workspace, bytes);
}

static void check_row(const krn_decode_table *t, atom_threads *threads, int64_t I, int64_t O)
{
    atom_dtype dtype = t->dtype;
    uint32_t w = atom_dtype_bytes(dtype);
    uint64_t x_bytes = (uint64_t)I * w, w_bytes = (uint64_t)(I * O) * w, y_bytes = (uint64_t)O * 4;
    void *buf[4] = {take(x_bytes), take(w_bytes), take((uint64_t)O * w)};
    char *y = take(y_bytes + 64), *want = take(y_bytes), *one = take(y_bytes);
    fill(dtype, buf[0], (uint64_t)I, 1, 1);
    fill(dtype, buf[1], (uint64_t)(I * O), 2, 1.0f / sqrtf((float)I));
    fill(dtype, buf[2], (uint64_t)O, 3, 1);
    for (int kind = 0; kind < ROW_N; kind++) {
        void *given[4] = {buf[0], buf[1], kind == ROW_LOGITS ? NULL : buf[2]};
        atom_dtype out = kind == ROW_LOGITS ? ATOM_F32 : dtype;
        double limit = out == ATOM_F32 ? 2e-6 : 5e-3;
        memset(y, 0x5a, y_bytes + 64);
        run_row(krn_ref_decode_table(dtype), kind, NULL, given, I, O, want);
        run_row(t, kind, threads, given, I, O, y);
        assert_true(distance(out, y, want, (uint64_t)O) < limit);
        for (uint64_t i = (uint64_t)O * atom_dtype_bytes(out); i < y_bytes + 64; i++)
            assert_int_equal(y[i], 0x5a);
        /* a single row of w alone: the same bits */
        for (int64_t o = 0; o < O; o += 1 + O / 5) {
            uint64_t y_at = (uint64_t)o * atom_dtype_bytes(out);
            void *piece[4] = {buf[0], (char *)buf[1] + (uint64_t)(o * I) * w,
                              given[2] ? (char *)given[2] + (uint64_t)o * w : NULL};
            run_row(t, kind, NULL, piece, I, 1, one);
            assert_memory_equal(one, y + y_at, atom_dtype_bytes(out));
        }
    }
    give(buf[0], x_bytes);
    give(buf[1], w_bytes);
    give(buf[2], (uint64_t)O * w);
    give(y, y_bytes + 64);
    give(want, y_bytes);
    give(one, y_bytes);
}

static const krn_decode_table *table_of(atom_dtype dtype, int isa)
{
    if (!krn_cpu_isa_can((krn_cpu_isa)isa))
        return NULL;
    return krn_cpu_decode_table_of(dtype, (krn_cpu_isa)isa);
}

static void test_rows(void **state)
{
    static const int64_t dims[][2] = {{1, 1},   {3, 7},     {16, 16},  {32, 5},   {33, 64},
                                      {63, 65}, {257, 300}, {640, 83}, {96, 1031}};
    atom_threads *threads;
    (void)state;
    assert_int_equal(atom_threads_open(3, &threads), ATOM_OK);
    for (int isa = 0; isa < KRN_CPU_ISA_N; isa++) {
        for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
            if (!table_of(ATOM_F32, isa))
                continue;
            check_row(table_of(ATOM_F32, isa), threads, dims[i][0], dims[i][1]);
            check_row(table_of(ATOM_BF16, isa), threads, dims[i][0], dims[i][1]);
        }
    }
    atom_threads_close(&threads);
}

/* --- attention --- */

typedef struct cache {
    void *keys, *values;
    uint64_t bytes;
    int64_t room;
} cache;

static cache cache_open(atom_dtype dtype, const shape *s, int64_t extra)
{
    cache c = {.room = krn_attend_room(s->past + s->N + extra)};
    c.bytes = (uint64_t)(keys_of(s) * c.room * s->D) * atom_dtype_bytes(dtype);
    c.keys = take(c.bytes);
    c.values = take(c.bytes);
    return c;
}

static void cache_close(cache *c)
{
    give(c->keys, c->bytes);
    give(c->values, c->bytes);
}

/* Some scores are capped. */
static float cap_of(const shape *s)
{
    return s->D % 2 ? 0 : 0.75f;
}

/* Feeds tokens first .. first + n of qkv. */
static void run_attend(const krn_decode_table *t, atom_threads *threads, const cache *c,
                       const shape *s, const void *qkv, int64_t first, int64_t n, void *y)
{
    uint64_t bytes = t->attend_workspace(threads, first + n, s->D);
    uint64_t w = atom_dtype_bytes(t->dtype);
    krn_ctx cx = {.threads = threads, .workspace = take(bytes)};
    krn_attend a = {.qkv = (const char *)qkv + (uint64_t)(first * row_of(s)) * w,
                    .keys = c->keys,
                    .values = c->values,
                    .y = (char *)y + (uint64_t)(first * s->H * s->D) * w,
                    .N = n,
                    .past = first,
                    .room = c->room,
                    .H = s->H,
                    .D = s->D,
                    .K = s->K,
                    .W = s->W,
                    .cap = cap_of(s)};
    t->attend(&cx, &a);
    give(cx.workspace, bytes);
}

static void check_attend(const krn_decode_table *t, atom_threads *threads, const shape *s)
{
    atom_dtype dtype = t->dtype;
    int64_t all = s->past + s->N;
    uint64_t n = (uint64_t)(all * s->H * s->D), bytes = n * atom_dtype_bytes(dtype);
    uint64_t rows = (uint64_t)(all * row_of(s)), rows_bytes = rows * atom_dtype_bytes(dtype);
    char *qkv = take(rows_bytes), *y = take(bytes), *want = take(bytes), *single = take(bytes);
    cache ours = cache_open(dtype, s, 0), theirs = cache_open(dtype, s, 0),
          slow = cache_open(dtype, s, 0);
    fill(dtype, qkv, rows, 4, 1.5f);
    run_attend(krn_ref_decode_table(dtype), NULL, &theirs, s, qkv, 0, all, want);
    if (s->past)
        run_attend(t, threads, &ours, s, qkv, 0, s->past, y);
    run_attend(t, threads, &ours, s, qkv, s->past, s->N, y);
    assert_true(distance(dtype, y, want, n) < (dtype == ATOM_F32 ? 3e-6 : 5e-3));
    assert_memory_equal(ours.keys, theirs.keys, ours.bytes);
    assert_memory_equal(ours.values, theirs.values, ours.bytes);
    for (int64_t i = 0; i < all; i++)
        run_attend(t, NULL, &slow, s, qkv, i, 1, single);
    assert_memory_equal(single, y, bytes);
    cache_close(&ours);
    cache_close(&theirs);
    cache_close(&slow);
    give(qkv, rows_bytes);
    give(y, bytes);
    give(want, bytes);
    give(single, bytes);
}

static void test_attend(void **state)
{
    static const shape shapes[] = {
        {1, 0, 1, 1, 0, 0},    {1, 0, 2, 16, 0, 0},  {4, 0, 3, 7, 0, 0},    {5, 3, 2, 64, 0, 0},
        {66, 0, 2, 24, 0, 0},  {1, 63, 1, 65, 0, 0}, {7, 60, 3, 5, 0, 0},   {3, 127, 2, 80, 0, 0},
        {1, 0, 4, 16, 2, 0},   {66, 0, 3, 24, 1, 0}, {1, 63, 6, 33, 3, 0},  {7, 60, 4, 6, 2, 0},
        {5, 3, 2, 64, 0, 1},   {66, 3, 2, 24, 0, 5}, {1, 63, 2, 65, 1, 64}, {7, 130, 4, 6, 2, 66},
        {3, 200, 2, 16, 0, 65}};
    atom_threads *threads;
    (void)state;
    assert_int_equal(atom_threads_open(3, &threads), ATOM_OK);
    for (int isa = 0; isa < KRN_CPU_ISA_N; isa++) {
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            if (!table_of(ATOM_F32, isa))
                continue;
            check_attend(table_of(ATOM_F32, isa), threads, &shapes[i]);
            check_attend(table_of(ATOM_BF16, isa), threads, &shapes[i]);
        }
    }
    atom_threads_close(&threads);
}

/* ref's attend is ref's attention op, which PyTorch has checked: same numbers. */
static void check_ref(shape s)
{
    uint64_t n = (uint64_t)(s.N * s.H * s.D), rows = (uint64_t)(s.N * row_of(&s)), workspace;
    uint64_t stats = (uint64_t)(4 * s.N * s.H);
    const krn_table *ref = krn_ref_table(ATOM_F32);
    float *qkv = take(rows * 4), *y = take(n * 4), *want = take(n * 4), *lse = take(stats);
    cache c = cache_open(ATOM_F32, &s, 100);
    fill(ATOM_F32, qkv, rows, 6, 1);
    krn_step step = {.seed = 1};
    krn_args args = {
        .buf = {qkv, want, lse}, .dim = {1, s.N, s.H, s.D, s.K, s.W}, .cap = cap_of(&s)};
    workspace = ref->workspace(ATOM_OP_attention, 0, args.dim);
    krn_ctx cx = {.workspace = take(workspace), .step = &step};
    ref->fwd[ATOM_OP_attention](&cx, &args);
    run_attend(krn_ref_decode_table(ATOM_F32), NULL, &c, &s, qkv, 0, 4, y);
    run_attend(krn_ref_decode_table(ATOM_F32), NULL, &c, &s, qkv, 4, 5, y);
    assert_true(distance(ATOM_F32, y, want, n) < 1e-7);
    cache_close(&c);
    give(cx.workspace, workspace);
    give(qkv, rows * 4);
    give(y, n * 4);
    give(want, n * 4);
    give(lse, stats);
}

static void test_ref_is_attention(void **state)
{
    (void)state;
    check_ref((shape){9, 0, 3, 10, 0, 0});
    check_ref((shape){9, 0, 4, 10, 2, 0});
    check_ref((shape){9, 0, 4, 10, 2, 3});
}

static void test_tables(void **state)
{
    (void)state;
    assert_ptr_equal(krn_cpu_decode_table(ATOM_BF16),
                     krn_cpu_decode_table_of(ATOM_BF16, krn_cpu_isa_best()));
    assert_null(krn_cpu_decode_table(ATOM_F16));
    assert_null(krn_ref_decode_table(ATOM_F64));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_attend),
        cmocka_unit_test(test_ref_is_attention),
        cmocka_unit_test(test_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
