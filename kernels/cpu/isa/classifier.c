/*
 * Owns classifier: the head's product, softmax, loss and their gradients in one. One idea: scores
 * are kept transposed, [word][row]. Then the weights are the left operand of the product as they
 * stand in memory, and 77 MB of them need no packing; sixteen rows share a vector, so softmax needs no
 * horizontal sums; and the left operand of dw is there as it is.
 *
 * Rows come in chunks (classifier.h); per chunk:
 *   1. per block of words: logits f32 in cache, their top per row, e = exp(logit - top) kept as act
 *   2. per row: lse, loss, and per block the factor that turns e into loss_scale * softmax
 *   3. per span of words: d = e * factor (- loss_scale at the target), and d transposed;
 *      dw += d x, dx += d w; dx sums in f32 over all spans and is rounded once.
 *
 * Logits with a cap are capped in step 1, where e takes the slope along; so the sum is of e before.
 *
 * Each exp is taken once, and what is rounded to act is a value near its own size, so that bf16
 * logits never cost the loss its precision. Refuses to hold logits of all rows.
 */
#include "kernels/cpu/classifier.h"

#include "kernels/cpu/isa/matmul.h"
#include "kernels/cpu/isa/out.h"
#include "kernels/cpu/isa/pack.h"
#include "kernels/cpu/isa/span.h"
#include "kernels/cpu/isa/vecmath.h"

#include <math.h>

enum { SCALE_WORDS = 64, ROUND_ROWS = 16 };

typedef struct head_job {
    atom_dtype dtype;
    gemm_layout layout;
    int64_t N, C, V, R;          /* R: rows per chunk, room */
    int64_t first, rows, padded; /* this chunk; padded: rows up to 32 */
    int64_t word, words;         /* this span */
    int64_t word_blocks;
    const void *x, *w;
    const int32_t *targets;
    float *loss, *dw;
    void *dx;
    bool add_dx, keep;
    float scale, cap;
    classifier_space space;
    product logits, dw_product, dx_product;
} head_job;

static char *bytes_at(const head_job *j, const void *base, int64_t element)
{
    return (char *)(uintptr_t)base + (uint64_t)element * atom_dtype_bytes(j->dtype);
}

KRN_INLINE void pack_chunk(atom_dtype dtype, const head_job *j, uint32_t i)
{
    uint32_t col_panels = (uint32_t)gemm_panels(j->padded);
    if (i < col_panels) {
        int64_t r = (int64_t)i * GEMM_PANEL;
        pack_from m = pack_at(dtype, j->x, (j->first + r) * j->C, j->C,
                              krn_min(GEMM_PANEL, j->rows - r), j->C);
        char *to = j->space.x_cols;
        pack_cols(dtype, j->layout, to + i * gemm_panel_bytes(j->layout, j->C), &m);
        return;
    }
    i -= col_panels;
    int64_t c = (int64_t)i * GEMM_PANEL;
    pack_from m =
        pack_at(dtype, j->x, j->first * j->C + c, j->C, j->rows, krn_min(GEMM_PANEL, j->C - c));
    char *to = j->space.x_rows;
    pack_rows(dtype, j->layout, to + i * gemm_panel_bytes(j->layout, j->padded), j->padded, 0, &m);
}

/* Before step 1, where left operands are split: SCALE_WORDS words of w. */
KRN_INLINE void split_words(atom_dtype dtype, const head_job *j, uint32_t i)
{
    int64_t v = (int64_t)i * SCALE_WORDS;
    pack_from m =
        pack_at(dtype, j->w, (j->word + v) * j->C, j->C, krn_min(SCALE_WORDS, j->words - v), j->C);
    split_left(j->space.w_left, gemm_round_k(j->C), v, 0, &m);
}

/* Columns c .. c+VF_LANES of a tile: top, sum of exp, and e where it is kept. */
KRN_INLINE void soft_columns(atom_dtype dtype, const head_job *j, float *tile, int64_t block,
                             int64_t words, int64_t r0, int64_t c)
{
    float *at = tile + c;
    for (int64_t v = 0; v < words && j->cap > 0; v++)
        vf_store(at + v * GEMM_PANEL, vf_capped(vf_load(at + v * GEMM_PANEL), j->cap));
    vf top = vf_load(at);
    for (int64_t v = 1; v < words; v++)
        top = vf_max(top, vf_load(at + v * GEMM_PANEL));
    vf sum = vf_all(0.0f);
    int64_t to = block * CLASSIFIER_BLOCK * j->padded + r0 + c;
    for (int64_t v = 0; v < words; v++) {
        vf e = vf_exp(vf_load(at + v * GEMM_PANEL) - top);
        sum += e;
        if (j->cap > 0)
            e *= vf_cap_slope(vf_load(at + v * GEMM_PANEL), j->cap);
        if (j->keep)
            vf_store_act(dtype, j->space.e, to + v * j->padded, e);
    }
    vf_store(j->space.top + block * j->R + r0 + c, top);
    vf_store(j->space.sum + block * j->R + r0 + c, sum);
}

/* Step 1 for block `at` of this span's words: all row panels, so that its weights stay in cache. */
KRN_INLINE void score_block(atom_dtype dtype, const head_job *j, uint32_t at)
{
    _Alignas(64) float tile[CLASSIFIER_BLOCK * GEMM_PANEL];
    int64_t i = j->word / CLASSIFIER_BLOCK + at;
    int64_t v0 = i * CLASSIFIER_BLOCK, words = krn_min(CLASSIFIER_BLOCK, j->V - v0);
    const void *left =
        j->layout == GEMM_SPLIT ? j->space.w_left : bytes_at(j, j->w, j->word * j->C);
    product_begin(&j->logits);
    for (int64_t r0 = 0; r0 < j->padded; r0 += GEMM_PANEL) {
        int64_t n = krn_min(GEMM_PANEL, j->padded - r0);
        product_tile(&j->logits, at, (uint32_t)(r0 / GEMM_PANEL), left, j->space.x_cols, tile);
        for (int64_t c = 0; c < n; c += VF_LANES)
            soft_columns(dtype, j, tile, i, words, r0, c);
        for (int64_t r = r0; r < r0 + n && r < j->rows; r++) {
            int64_t target = j->targets[j->first + r];
            if (target >= v0 && target < v0 + words)
                j->space.hit[r] = tile[(target - v0) * GEMM_PANEL + r - r0];
        }
    }
    product_end(&j->logits);
}

/* Step 2. Rows beyond the chunk's end and rows without a target get factor 0. */
static void finish_row(const head_job *j, int64_t r)
{
    const classifier_space *s = &j->space;
    bool real = r < j->rows && j->targets[j->first + r] >= 0;
    float top = -INFINITY;
    double sum = 0.0;
    for (int64_t b = 0; b < j->word_blocks; b++)
        top = s->top[b * j->R + r] > top ? s->top[b * j->R + r] : top;
    for (int64_t b = 0; b < j->word_blocks; b++)
        sum += (double)s->sum[b * j->R + r] * exp((double)(s->top[b * j->R + r] - top));
    double lse = (double)top + log(sum);
    s->lse[r] = (float)lse;
    if (r < j->rows)
        j->loss[j->first + r] = real ? (float)(lse - (double)s->hit[r]) : 0.0f;
    for (int64_t b = 0; b < j->word_blocks && j->keep; b++)
        s->factor[b * j->R + r] =
            real ? (float)(exp((double)s->top[b * j->R + r] - lse) * (double)j->scale) : 0.0f;
}

static void finish_rows(void *ctx, uint32_t i, uint32_t worker)
{
    (void)worker;
    const head_job *j = ctx;
    int64_t end = krn_min(((int64_t)i + 1) * ROUND_ROWS, j->padded);
    for (int64_t r = (int64_t)i * ROUND_ROWS; r < end; r++)
        finish_row(j, r);
}

/* Step 3a for n <= SCALE_WORDS words from v (in the span): d in place of e, then transposed. */
KRN_INLINE void scale_words(atom_dtype dtype, const head_job *j, int64_t v, int64_t n)
{
    const float *factor = j->space.factor + (j->word + v) / CLASSIFIER_BLOCK * j->R;
    int64_t at = (j->word + v) * j->padded, k = gemm_round_k(j->words);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t r = 0; r < j->padded; r += VF_LANES) {
            vf e = vf_load_act(dtype, j->space.e, at + i * j->padded + r);
            vf_store_act(dtype, j->space.e, at + i * j->padded + r, e * vf_load(factor + r));
        }
    }
    for (int64_t r = 0; r < j->rows; r++) {
        int64_t i = j->targets[j->first + r] - j->word - v;
        if (j->targets[j->first + r] < 0 || i < 0 || i >= n)
            continue;
        float d = (expf(j->space.hit[r] - j->space.lse[r]) - 1.0f) * j->scale;
        float share = j->cap > 0 ? j->space.hit[r] / j->cap : 0;
        d *= 1 - share * share;
        if (dtype == ATOM_F32)
            ((float *)j->space.e)[at + i * j->padded + r] = d;
        else
            ((atom_bf16 *)j->space.e)[at + i * j->padded + r] = atom_f32_to_bf16(d);
    }
    pack_from m = pack_at(dtype, j->space.e, at, j->padded, n, j->rows);
    if (j->layout == GEMM_SPLIT) {
        split_left(j->space.e_left, j->padded, v, 0, &m);
        split_left_turned(j->space.d_turned, k, 0, v, &m);
        return;
    }
    pack_transpose(dtype, bytes_at(j, j->space.d_turned, v), k, &m);
}

/* Step 3a: blocks of words: of d, then of w, whose rows go to their places in all panels. */
KRN_INLINE void prepare_span(atom_dtype dtype, const head_job *j, uint32_t i)
{
    uint32_t blocks = (uint32_t)krn_ceil_div(j->words, SCALE_WORDS);
    int64_t v = (int64_t)(i % blocks) * SCALE_WORDS, n = krn_min(SCALE_WORDS, j->words - v);
    if (i < blocks) {
        scale_words(dtype, j, v, n);
        return;
    }
    pack_block(dtype, j->layout, j->space.w_rows, j->words, v, j->w, (j->word + v) * j->C, j->C, n);
}

KRN_INLINE void dx_strip(const void *ctx, const float *strip, product_spot s)
{
    const head_job *j = ctx;
    out_act(ATOM_F32, strip, s, j->space.dx, j->C, NULL, j->word > 0);
}
KRN_INLINE void dw_strip(const void *ctx, const float *strip, product_spot s)
{
    const head_job *j = ctx;
    out_sum(strip, s, j->dw + j->word * j->C, j->C);
}

/* Step 3b: products of dx, then of dw. */
static void multiply_span(void *ctx, uint32_t i, uint32_t worker)
{
    (void)worker;
    const head_job *j = ctx;
    uint32_t dx_tasks = j->dx ? product_tasks(&j->dx_product) : 0;
    if (i < dx_tasks)
        product_run(&j->dx_product, i, j->space.d_turned, j->space.w_rows, dx_strip, j);
    else
        product_run(&j->dw_product, i - dx_tasks,
                    j->layout == GEMM_SPLIT ? j->space.e_left
                                            : bytes_at(j, j->space.e, j->word * j->padded),
                    j->space.x_rows, dw_strip, j);
}

/* dx of ROUND_ROWS rows of the chunk, rounded once. */
KRN_INLINE void round_dx(atom_dtype dtype, const head_job *j, uint32_t i)
{
    int64_t from = (int64_t)i * ROUND_ROWS, to = krn_min(from + ROUND_ROWS, j->rows);
    int64_t at = j->first * j->C;
    for (int64_t e = from * j->C; e < to * j->C; e += VF_LANES) {
        int64_t k = krn_min(VF_LANES, to * j->C - e);
        vf d = vf_get(ATOM_F32, j->space.dx, e, k);
        if (j->add_dx)
            d += vf_get(dtype, j->dx, at + e, k);
        vf_put(dtype, j->dx, at + e, k, d);
    }
}

KRN_TASK(pack_chunk, ATOM_F32, f32)
KRN_TASK(pack_chunk, ATOM_BF16, bf16)
KRN_TASK(split_words, ATOM_F32, f32)
KRN_TASK(score_block, ATOM_F32, f32)
KRN_TASK(score_block, ATOM_BF16, bf16)
KRN_TASK(prepare_span, ATOM_F32, f32)
KRN_TASK(prepare_span, ATOM_BF16, bf16)
KRN_TASK(round_dx, ATOM_F32, f32)
KRN_TASK(round_dx, ATOM_BF16, bf16)

/* Steps 1 and 2 for the chunk at j->first. */
static void score_chunk(krn_ctx *cx, head_job *j)
{
    bool f32 = j->dtype == ATOM_F32;
    int64_t packs = gemm_panels(j->padded) + (j->keep ? gemm_panels(j->C) : 0);
    krn_each(cx->threads, packs, f32 ? pack_chunk_f32 : pack_chunk_bf16, j);
    int64_t span = j->layout == GEMM_SPLIT ? CLASSIFIER_SCORE_SPAN : j->V;
    for (j->word = 0; j->word < j->V; j->word += span) {
        j->words = krn_min(span, j->V - j->word);
        j->logits = product_open(j->dtype, j->words, j->padded, j->C);
        if (j->layout == GEMM_SPLIT)
            krn_each(cx->threads, krn_ceil_div(j->words, SCALE_WORDS), split_words_f32, j);
        krn_each(cx->threads, krn_ceil_div(j->words, CLASSIFIER_BLOCK),
                 f32 ? score_block_f32 : score_block_bf16, j);
    }
    krn_each(cx->threads, krn_ceil_div(j->padded, ROUND_ROWS), finish_rows, j);
}

/* Step 3 for the span at j->word. */
static void back_span(krn_ctx *cx, head_job *j)
{
    int64_t k = gemm_round_k(j->words);
    uint32_t products = 0;
    if (j->dx) {
        j->dx_product = product_open(j->dtype, j->rows, j->C, k);
        products += product_tasks(&j->dx_product);
    }
    if (j->dw) {
        j->dw_product = product_open(j->dtype, j->words, j->C, j->padded);
        products += product_tasks(&j->dw_product);
    }
    int64_t prepare = krn_ceil_div(j->words, SCALE_WORDS) * (j->dx ? 2 : 1);
    krn_each(cx->threads, prepare, j->dtype == ATOM_F32 ? prepare_span_f32 : prepare_span_bf16, j);
    krn_each(cx->threads, products, multiply_span, j);
}

static void back_chunk(krn_ctx *cx, head_job *j)
{
    for (j->word = 0; j->word < j->V; j->word += CLASSIFIER_SPAN) {
        j->words = krn_min(CLASSIFIER_SPAN, j->V - j->word);
        back_span(cx, j);
    }
    if (j->dx)
        krn_each(cx->threads, krn_ceil_div(j->rows, ROUND_ROWS),
                 j->dtype == ATOM_F32 ? round_dx_f32 : round_dx_bf16, j);
}

static void run(krn_ctx *cx, const krn_args *args, atom_dtype dtype, int backward)
{
    uint64_t bytes = atom_dtype_bytes(dtype);
    krn_carve carve = {.base = cx->workspace};
    void *const *buf = args->buf;
    head_job j = {.dtype = dtype,
                  .layout = product_layout(dtype),
                  .N = args->dim[0],
                  .C = args->dim[1],
                  .V = args->dim[2],
                  .x = buf[0],
                  .targets = buf[1],
                  .w = buf[2],
                  .loss = buf[3],
                  .keep = backward != 0,
                  .cap = args->cap,
                  .space = classifier_space_carve(&carve, dtype, backward, args->dim)};
    j.R = classifier_rows(j.N, j.V, bytes);
    j.word_blocks = krn_ceil_div(j.V, CLASSIFIER_BLOCK);
    if (backward) {
        j.scale = cx->step->loss_scale;
        j.dx = buf[5];
        j.dw = buf[7];
        j.add_dx = args->flags & KRN_ADD_D_IN0;
    }
    for (j.first = 0; j.first < j.N; j.first += j.R) {
        j.rows = krn_min(j.R, j.N - j.first);
        j.padded = gemm_round_k(j.rows);
        score_chunk(cx, &j);
        if (backward)
            back_chunk(cx, &j);
    }
}

void KRN_ISA(krn_cpu_classifier_fwd_f32)(krn_ctx *cx, const krn_args *args)
{
    run(cx, args, ATOM_F32, 0);
}
void KRN_ISA(krn_cpu_classifier_fwd_bf16)(krn_ctx *cx, const krn_args *args)
{
    run(cx, args, ATOM_BF16, 0);
}
void KRN_ISA(krn_cpu_classifier_bwd_f32)(krn_ctx *cx, const krn_args *args)
{
    run(cx, args, ATOM_F32, 1);
}
void KRN_ISA(krn_cpu_classifier_bwd_bf16)(krn_ctx *cx, const krn_args *args)
{
    run(cx, args, ATOM_BF16, 1);
}
