/*
 * Owns linear and linear_gelu. One idea: everything that a product needs re-ordered (weights, x and
 * dy' as panels or transposed) is written once into scratch by one parallel loop; then the products
 * run as one grid of panels each. What touches single elements (bias, gelu, its slope, column sums)
 * rides on a pass that has the panel in cache. Refuses to hold more
 * than linear_rows() rows.
 */
#include "kernels/cpu/linear.h"

#include "kernels/cpu/isa/matmul.h"
#include "kernels/cpu/isa/out.h"
#include "kernels/cpu/isa/pack.h"
#include "kernels/cpu/isa/span.h"
#include "kernels/cpu/isa/vecmath.h"

/* Rows of a re-ordering task. */
enum { BLOCK_ROWS = LINEAR_SUM_ROWS };

typedef struct linear_job {
    atom_dtype dtype;
    gemm_layout layout;
    int64_t N, I, O;
    const void *x, *w, *b, *u, *dy;
    void *y, *save_u, *dx;
    float *dw, *db;
    linear_space space;
    int64_t first, rows; /* of this block of N */
    bool add_dx;
    product y_product, dx_product, dw_product;
} linear_job;

static const void *row_at(const linear_job *j, const void *base, int64_t row, int64_t width)
{
    return (const char *)base + (uint64_t)(row * width) * atom_dtype_bytes(j->dtype);
}

/* The gradient of the product, [rows][O]: dy as it is, or du. */
static const void *d_rows(const linear_job *j)
{
    return j->u ? j->space.du : row_at(j, j->dy, j->first, j->O);
}

/* Left operands of y and of dx: rows as they are, or split. */
static const void *x_left(const linear_job *j)
{
    return j->layout == GEMM_SPLIT ? j->space.x_left : row_at(j, j->x, j->first, j->I);
}
static const void *d_left(const linear_job *j)
{
    return j->layout == GEMM_SPLIT ? j->space.dy_left : d_rows(j);
}

/* Panel i of w': 64 outputs, k = I. */
KRN_INLINE void pack_w_cols(atom_dtype dtype, const linear_job *j, uint32_t i)
{
    int64_t o = (int64_t)i * GEMM_PANEL, n = krn_min(GEMM_PANEL, j->O - o);
    pack_from m = pack_at(dtype, j->w, o * j->I, j->I, n, j->I);
    char *panels = j->space.w_panels;
    pack_cols(dtype, j->layout, panels + i * gemm_panel_bytes(j->layout, j->I), &m);
}

/* Forward, first loop: blocks of rows of x where they are split, then (first time only) of w'. */
KRN_INLINE void fwd_prepare(atom_dtype dtype, const linear_job *j, uint32_t i)
{
    uint32_t blocks = j->layout == GEMM_SPLIT ? (uint32_t)krn_ceil_div(j->rows, BLOCK_ROWS) : 0;
    int64_t r = (int64_t)i * BLOCK_ROWS;
    if (i >= blocks) {
        pack_w_cols(dtype, j, i - blocks);
        return;
    }
    pack_from m =
        pack_at(dtype, j->x, (j->first + r) * j->I, j->I, krn_min(BLOCK_ROWS, j->rows - r), j->I);
    split_left(j->space.x_left, gemm_round_k(j->I), r, 0, &m);
}

KRN_INLINE void y_strip(atom_dtype dtype, const linear_job *j, const float *strip, product_spot s)
{
    s.m0 += j->first;
    if (j->save_u)
        out_gelu(dtype, strip, s, j->save_u, j->y, j->O, j->b);
    else
        out_act(dtype, strip, s, j->y, j->O, j->b, false);
}

KRN_INLINE void dx_strip(atom_dtype dtype, const linear_job *j, const float *strip, product_spot s)
{
    s.m0 += j->first;
    out_act(dtype, strip, s, j->dx, j->I, NULL, j->add_dx);
}

KRN_INLINE void dw_strip(atom_dtype dtype, const linear_job *j, const float *strip, product_spot s)
{
    (void)dtype;
    out_sum(strip, s, j->dw, j->I);
}

#define STRIP(name, body, dtype)                                                                   \
    KRN_INLINE void name(const void *ctx, const float *strip, product_spot s)                      \
    {                                                                                              \
        body(dtype, ctx, strip, s);                                                                \
    }
STRIP(y_strip_f32, y_strip, ATOM_F32)
STRIP(y_strip_bf16, y_strip, ATOM_BF16)
STRIP(dx_strip_f32, dx_strip, ATOM_F32)
STRIP(dx_strip_bf16, dx_strip, ATOM_BF16)
STRIP(dw_strip_f32, dw_strip, ATOM_F32)
#undef STRIP

KRN_INLINE void fwd_product(atom_dtype dtype, const linear_job *j, uint32_t i)
{
    product_run(&j->y_product, i, x_left(j), j->space.w_panels,
                dtype == ATOM_F32 ? y_strip_f32 : y_strip_bf16, j);
}

/* n rows from r0, columns o .. o+width of du = dy gelu'(u), rounded to act. */
KRN_INLINE void du_rows(atom_dtype dtype, const linear_job *j, int64_t r0, int64_t n, int64_t o,
                        int64_t width)
{
    for (int64_t r = r0; r < r0 + n; r++) {
        int64_t from = (j->first + r) * j->O + o, to = r * j->O + o, c = 0;
        pack_fetch(dtype, j->u, from + GEMM_PANEL);
        pack_fetch(dtype, j->dy, from + GEMM_PANEL);
        for (; c + VF_LANES <= width; c += VF_LANES) {
            vf slope = vf_gelu_slope(vf_load_act(dtype, j->u, from + c));
            vf_store_act(dtype, j->space.du, to + c, slope * vf_load_act(dtype, j->dy, from + c));
        }
        if (c < width) {
            vf slope = vf_gelu_slope(vf_get(dtype, j->u, from + c, width - c));
            vf_put(dtype, j->space.du, to + c, width - c,
                   slope * vf_get(dtype, j->dy, from + c, width - c));
        }
    }
}

/* Sums of n rows of `width` columns, `ld` apart. */
KRN_INLINE void column_sums(atom_dtype dtype, const void *d, int64_t at, int64_t ld, int64_t n,
                            int64_t width, float *sum)
{
    for (int64_t c = 0; c < width; c += VF_LANES) {
        int64_t k = krn_min(VF_LANES, width - c);
        vf s = vf_all(0.0f);
        for (int64_t r = 0; r < n; r++)
            s += vf_get(dtype, d, at + r * ld + c, k);
        vf_put(ATOM_F32, sum, c, k, s);
    }
}

/* 64 rows of dy: du where there is a gelu, the transpose, and the sums of columns. */
KRN_INLINE void turn_dy(atom_dtype dtype, const linear_job *j, int64_t r, int64_t n)
{
    int64_t padded = gemm_round_k(j->rows);
    const void *d = d_rows(j);
    char *turned = j->space.dy_turned;
    for (int64_t o = 0; o < j->O; o += GEMM_PANEL) {
        int64_t width = krn_min(GEMM_PANEL, j->O - o), from = r * j->O + o;
        if (j->u)
            du_rows(dtype, j, r, n, o, width);
        else
            for (int64_t i = 0; i < n; i++)
                pack_fetch(dtype, d, from + i * j->O + GEMM_PANEL);
        if (j->db)
            column_sums(dtype, d, from, j->O, n, width, j->space.sums + r / BLOCK_ROWS * j->O + o);
        pack_from m = pack_at(dtype, d, from, j->O, n, width);
        if (j->layout == GEMM_SPLIT) {
            if (j->dx)
                split_left(j->space.dy_left, gemm_round_k(j->O), r, o, &m);
            if (j->dw)
                split_left_turned(turned, padded, o, r, &m);
        } else if (j->dw) {
            uint64_t to = (uint64_t)(o * padded + r) * atom_dtype_bytes(dtype);
            pack_transpose(dtype, turned + to, padded, &m);
        }
    }
}

/* Backward, first loop: blocks of rows of dy, then of x, then (first time only) of w. */
KRN_INLINE void bwd_prepare(atom_dtype dtype, const linear_job *j, uint32_t i)
{
    int64_t blocks = krn_ceil_div(j->rows, BLOCK_ROWS), r = (int64_t)i * BLOCK_ROWS;
    if (i < blocks) {
        turn_dy(dtype, j, r, krn_min(BLOCK_ROWS, j->rows - r));
        return;
    }
    r -= blocks * BLOCK_ROWS;
    if (r < j->rows) {
        if (j->dw)
            pack_block(dtype, j->layout, j->space.x_panels, j->rows, r, j->x, (j->first + r) * j->I,
                       j->I, krn_min(BLOCK_ROWS, j->rows - r));
        return;
    }
    r -= blocks * BLOCK_ROWS;
    pack_block(dtype, j->layout, j->space.w_panels, j->O, r, j->w, r * j->I, j->I,
               krn_min(BLOCK_ROWS, j->O - r));
}

/* Backward, second loop: the products of dx, then of dw. */
KRN_INLINE void bwd_product(atom_dtype dtype, const linear_job *j, uint32_t i)
{
    uint32_t dx_tasks = j->dx ? product_tasks(&j->dx_product) : 0;
    if (i < dx_tasks)
        product_run(&j->dx_product, i, d_left(j), j->space.w_panels,
                    dtype == ATOM_F32 ? dx_strip_f32 : dx_strip_bf16, j);
    else
        product_run(&j->dw_product, i - dx_tasks, j->space.dy_turned, j->space.x_panels,
                    dw_strip_f32, j);
}

KRN_TASK(fwd_prepare, ATOM_F32, f32)
KRN_TASK(fwd_prepare, ATOM_BF16, bf16)
KRN_TASK(fwd_product, ATOM_F32, f32)
KRN_TASK(fwd_product, ATOM_BF16, bf16)
KRN_TASK(bwd_prepare, ATOM_F32, f32)
KRN_TASK(bwd_prepare, ATOM_BF16, bf16)
KRN_TASK(bwd_product, ATOM_F32, f32)
KRN_TASK(bwd_product, ATOM_BF16, bf16)

static linear_job job_open(krn_ctx *cx, const krn_args *args, atom_dtype dtype, int gelu,
                           int backward)
{
    krn_carve carve = {.base = cx->workspace};
    return (linear_job){.dtype = dtype,
                        .layout = product_layout(dtype),
                        .N = args->dim[0],
                        .I = args->dim[1],
                        .O = args->dim[2],
                        .x = args->buf[0],
                        .w = args->buf[1],
                        .space = linear_space_carve(&carve, dtype, gelu, backward, args->dim)};
}

static void run_fwd(krn_ctx *cx, const krn_args *args, atom_dtype dtype, int gelu)
{
    linear_job j = job_open(cx, args, dtype, gelu, 0);
    j.b = args->buf[2];
    j.y = args->buf[3];
    j.save_u = gelu ? args->buf[4] : NULL;
    /* in one go where rows need no scratch */
    int64_t rows = j.layout == GEMM_SPLIT ? linear_rows(dtype, j.N) : j.N;
    for (j.first = 0; j.first < j.N; j.first += rows) {
        j.rows = krn_min(rows, j.N - j.first);
        int64_t prepare = j.layout == GEMM_SPLIT ? krn_ceil_div(j.rows, BLOCK_ROWS) : 0;
        prepare += j.first == 0 ? gemm_panels(j.O) : 0;
        j.y_product = product_open(dtype, j.rows, j.O, j.I);
        krn_each(cx->threads, prepare, dtype == ATOM_F32 ? fwd_prepare_f32 : fwd_prepare_bf16, &j);
        krn_each(cx->threads, product_tasks(&j.y_product),
                 dtype == ATOM_F32 ? fwd_product_f32 : fwd_product_bf16, &j);
    }
}

/* db += the sums of each block of rows, in order. */
static void add_db(const linear_job *j)
{
    for (int64_t b = 0; b < krn_ceil_div(j->rows, BLOCK_ROWS) && j->db; b++) {
        for (int64_t o = 0; o < j->O; o++)
            j->db[o] += j->space.sums[b * j->O + o];
    }
}

static void run_bwd_block(krn_ctx *cx, linear_job *j)
{
    int64_t padded = gemm_round_k(j->rows), prepare = 2 * krn_ceil_div(j->rows, BLOCK_ROWS);
    uint32_t products = 0;
    if (j->dx) {
        j->dx_product = product_open(j->dtype, j->rows, j->I, j->O);
        products += product_tasks(&j->dx_product);
        prepare += j->first == 0 ? krn_ceil_div(j->O, BLOCK_ROWS) : 0;
    }
    if (j->dw) {
        j->dw_product = product_open(j->dtype, j->O, j->I, padded);
        products += product_tasks(&j->dw_product);
    }
    bool f32 = j->dtype == ATOM_F32;
    krn_each(cx->threads, prepare, f32 ? bwd_prepare_f32 : bwd_prepare_bf16, j);
    krn_each(cx->threads, products, f32 ? bwd_product_f32 : bwd_product_bf16, j);
    add_db(j);
}

static void run_bwd(krn_ctx *cx, const krn_args *args, atom_dtype dtype, int gelu)
{
    linear_job j = job_open(cx, args, dtype, gelu, 1);
    void *const *buf = args->buf + (gelu ? 1 : 0);
    j.u = gelu ? args->buf[4] : NULL;
    j.dy = buf[4];
    j.dx = buf[5];
    j.dw = buf[6];
    j.db = buf[7];
    j.add_dx = args->flags & KRN_ADD_D_IN0;
    int64_t rows = linear_rows(dtype, j.N);
    for (j.first = 0; j.first < j.N; j.first += rows) {
        j.rows = krn_min(rows, j.N - j.first);
        run_bwd_block(cx, &j);
    }
}

#define ENTRIES(op, gelu)                                                                          \
    void KRN_ISA(krn_cpu_##op##_fwd_f32)(krn_ctx * cx, const krn_args *args)                       \
    {                                                                                              \
        run_fwd(cx, args, ATOM_F32, gelu);                                                         \
    }                                                                                              \
    void KRN_ISA(krn_cpu_##op##_fwd_bf16)(krn_ctx * cx, const krn_args *args)                      \
    {                                                                                              \
        run_fwd(cx, args, ATOM_BF16, gelu);                                                        \
    }                                                                                              \
    void KRN_ISA(krn_cpu_##op##_bwd_f32)(krn_ctx * cx, const krn_args *args)                       \
    {                                                                                              \
        run_bwd(cx, args, ATOM_F32, gelu);                                                         \
    }                                                                                              \
    void KRN_ISA(krn_cpu_##op##_bwd_bf16)(krn_ctx * cx, const krn_args *args)                      \
    {                                                                                              \
        run_bwd(cx, args, ATOM_BF16, gelu);                                                        \
    }
ENTRIES(linear, 0)
ENTRIES(linear_gelu, 1)
#undef ENTRIES
