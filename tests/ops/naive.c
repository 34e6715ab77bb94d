/*
 * Owns the forward formula of every op, straight from ops.def and kernels.h, in f64, one element at
 * a time. One idea: so plain that reading it is checking it; written independently of ref. Refuses
 * speed.
 */
#include "tests/ops/checkop.h"

#include "atom/base/assert.h"

#include <math.h>

static double *at(const krn_args *a, int i)
{
    return a->buf[i];
}

static double mask(const krn_ctx *cx, const krn_args *a, uint64_t element)
{
    if (!cx->step->train || a->p == 0.0f)
        return 1.0;
    atom_rng_key key = {cx->step->seed, cx->step->step, cx->step->micro_batch, a->rng};
    double p = (double)a->p;
    return atom_rng_u32(key, element) < (uint32_t)(p * 4294967296.0) ? 0.0 : 1.0 / (1.0 - p);
}

/* Where the document of row n of all rows begins, within its sample. */
static int64_t begins(const krn_ctx *cx, int64_t n)
{
    return cx->step->starts ? cx->step->starts[n] : 0;
}

static double gelu(double x)
{
    return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * pow(x, 3))));
}

static void naive_embed(krn_ctx *cx, const krn_args *a)
{
    int64_t B = a->dim[0], T = a->dim[1], C = a->dim[2];
    const int32_t *tokens = a->buf[0];
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++)
            for (int64_t c = 0; c < C; c++)
                at(a, 3)[(b * T + t) * C + c] =
                    at(a, 1)[tokens[b * T + t] * C + c] +
                    (at(a, 2) ? at(a, 2)[(t - begins(cx, b * T + t)) * C + c] : 0);
}

static void naive_dropout(krn_ctx *cx, const krn_args *a)
{
    for (int64_t e = 0; e < a->dim[0]; e++)
        at(a, 1)[e] = at(a, 0)[e] * mask(cx, a, (uint64_t)e);
}

static void naive_layernorm(krn_ctx *cx, const krn_args *a)
{
    (void)cx;
    int64_t C = a->dim[1];
    for (int64_t n = 0; n < a->dim[0]; n++) {
        const double *x = at(a, 0) + n * C;
        double mean = 0, var = 0;
        for (int64_t c = 0; c < C; c++)
            mean += x[c] / (double)C;
        for (int64_t c = 0; c < C; c++)
            var += pow(x[c] - mean, 2) / (double)C;
        for (int64_t c = 0; c < C; c++)
            at(a, 3)[n * C + c] = (x[c] - mean) / sqrt(var + (double)a->eps) * at(a, 1)[c] +
                                  (a->buf[2] ? at(a, 2)[c] : 0);
        at(a, 4)[n] = mean;
        at(a, 5)[n] = 1 / sqrt(var + (double)a->eps);
    }
}

static double linear_at(const krn_args *a, int64_t n, int64_t o)
{
    int64_t I = a->dim[1];
    double y = a->buf[2] ? at(a, 2)[o] : 0;
    for (int64_t i = 0; i < I; i++)
        y += at(a, 0)[n * I + i] * at(a, 1)[o * I + i];
    return y;
}

static void naive_linear(krn_ctx *cx, const krn_args *a)
{
    (void)cx;
    for (int64_t n = 0; n < a->dim[0]; n++)
        for (int64_t o = 0; o < a->dim[2]; o++)
            at(a, 3)[n * a->dim[2] + o] = linear_at(a, n, o);
}

static void naive_linear_gelu(krn_ctx *cx, const krn_args *a)
{
    naive_linear(cx, a);
    for (int64_t e = 0; e < a->dim[0] * a->dim[2]; e++) {
        at(a, 4)[e] = at(a, 3)[e];
        at(a, 3)[e] = gelu(at(a, 4)[e]);
    }
}

static void naive_gelu(krn_ctx *cx, const krn_args *a)
{
    (void)cx;
    for (int64_t e = 0; e < a->dim[0]; e++)
        at(a, 1)[e] = gelu(at(a, 0)[e]);
}

static void naive_gelu_erf(krn_ctx *cx, const krn_args *a)
{
    (void)cx;
    for (int64_t e = 0; e < a->dim[0]; e++)
        at(a, 1)[e] = at(a, 0)[e] / 2 * erfc(-at(a, 0)[e] / sqrt(2));
}

static void naive_relu(krn_ctx *cx, const krn_args *a)
{
    (void)cx;
    for (int64_t e = 0; e < a->dim[0]; e++)
        at(a, 1)[e] = fmax(at(a, 0)[e], 0);
}

static void naive_relu2(krn_ctx *cx, const krn_args *a)
{
    (void)cx;
    for (int64_t e = 0; e < a->dim[0]; e++)
        at(a, 1)[e] = pow(fmax(at(a, 0)[e], 0), 2);
}

static void naive_silu(krn_ctx *cx, const krn_args *a)
{
    (void)cx;
    for (int64_t e = 0; e < a->dim[0]; e++)
        at(a, 1)[e] = at(a, 0)[e] / (1 + exp(-at(a, 0)[e]));
}

static void naive_scale(krn_ctx *cx, const krn_args *a)
{
    (void)cx;
    for (int64_t e = 0; e < a->dim[0]; e++)
        at(a, 1)[e] = at(a, 0)[e] * (double)a->scale;
}

static double bent(const krn_args *a, double x)
{
    return a->cap > 0 ? (double)a->cap * tanh(x / (double)a->cap) : x;
}

static void naive_attention(krn_ctx *cx, const krn_args *a)
{
    double scale = a->scale > 0 ? (double)a->scale : 1 / sqrt((double)a->dim[3]);
    int64_t B = a->dim[0], T = a->dim[1], H = a->dim[2], D = a->dim[3], C = H * D;
    int64_t K = a->dim[4] ? a->dim[4] : H, R = C + 2 * K * D;
    const double *qkv = a->buf[0];
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t t = 0; t < T; t++) {
                const double *q = qkv + (b * T + t) * R + h * D;
                double sum = 0, *y = at(a, 1) + (b * T + t) * C + h * D;
                for (int64_t d = 0; d < D; d++)
                    y[d] = 0;
                for (int64_t s = begins(cx, b * T + t); s <= t; s++) {
                    if (a->dim[5] && t - s >= a->dim[5])
                        continue;
                    const double *k = qkv + (b * T + s) * R + C + h * K / H * D, *v = k + K * D;
                    double score = 0;
                    for (int64_t d = 0; d < D; d++)
                        score += q[d] * k[d] * scale;
                    double e = exp(bent(a, score)); /* scores of the tests are small */
                    sum += e;
                    e *= mask(cx, a, (uint64_t)(((b * H + h) * T + t) * T + s));
                    for (int64_t d = 0; d < D; d++)
                        y[d] += e * v[d];
                }
                for (int64_t d = 0; d < D; d++)
                    y[d] /= sum;
                at(a, 2)[(b * H + h) * T + t] = log(sum);
            }
}

/* y = x (lift + w) / sqrt(mean(x^2) + eps) of n numbers; gives 1 / sqrt(..). */
static double rms(const krn_args *a, const double *x, const double *w, double *y, int64_t n)
{
    double mean = 0;
    for (int64_t i = 0; i < n; i++)
        mean += x[i] * x[i] / (double)n;
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * ((double)a->lift + w[i]) / sqrt(mean + (double)a->eps);
    return 1 / sqrt(mean + (double)a->eps);
}

static void naive_rmsnorm(krn_ctx *cx, const krn_args *a)
{
    (void)cx;
    int64_t C = a->dim[1];
    for (int64_t n = 0; n < a->dim[0]; n++)
        at(a, 3)[n] = rms(a, at(a, 0) + n * C, at(a, 1), at(a, 2) + n * C, C);
}

static void naive_headnorm(krn_ctx *cx, const krn_args *a)
{
    (void)cx;
    int64_t H = a->dim[1], D = a->dim[2], K = a->dim[3] ? a->dim[3] : H;
    for (int64_t n = 0; n < a->dim[0]; n++)
        for (int64_t h = 0; h < H + 2 * K; h++) {
            const double *x = at(a, 0) + (n * (H + 2 * K) + h) * D;
            double *y = at(a, 3) + (n * (H + 2 * K) + h) * D;
            for (int64_t d = 0; d < D && h >= H + K; d++)
                y[d] = x[d];
            if (h < H + K)
                at(a, 4)[n * (H + K) + h] = rms(a, x, at(a, h < H ? 1 : 2), y, D);
        }
}

/* Frequency i of R channels, from the papers' definitions. */
static double turns_by(const atom_rope *r, double i, double R)
{
    double f = 1 / pow((double)r->theta, 2 * i / R), original = (double)r->original;
    double per_place = f / (2 * M_PI), keep = 0;
    if (r->divisors[0] > 0)
        return f / (double)r->divisors[(int)i];
    if (r->yarn) {
        /* f falls by theta^(-2/R) a channel: the channel that turns n times in original places */
        double step = -log((double)r->theta) * 2 / R;
        double a = floor(log((double)r->high * 2 * M_PI / original) / step);
        double b = ceil(log((double)r->low * 2 * M_PI / original) / step);
        a = a > 0 ? a : 0;
        b = b < R - 1 ? b : R - 1;
        keep = a == b ? i <= a : (b - i) / (b - a);
    } else if (original > 0) {
        keep = (original * per_place - (double)r->low) / (double)(r->high - r->low);
    }
    keep = fmin(fmax(keep, 0), 1);
    return keep * f + (1 - keep) * f / (double)r->factor;
}

static void naive_rope(krn_ctx *cx, const krn_args *a)
{
    int64_t B = a->dim[0], T = a->dim[1], H = a->dim[2], D = a->dim[3];
    int64_t K = a->dim[4] ? a->dim[4] : H;
    const atom_rope *r = &a->rope;
    int64_t R = r->width ? r->width : D;
    for (int64_t n = 0; n < B * T; n++)
        for (int64_t h = 0; h < H + 2 * K; h++)
            for (int64_t d = 0; d < D; d++) {
                const double *x = at(a, 0) + (n * (H + 2 * K) + h) * D;
                bool turned = h < H + K && d < R;
                double f =
                    turned ? (double)(float)turns_by(r, (double)(d % (R / 2)), (double)R) : 0;
                double angle = f * (double)(a->dim[5] + n % T - begins(cx, n));
                double other = !turned ? 0 : d < R / 2 ? -x[d + R / 2] : x[d - R / 2];
                double turn = x[d] * cos(angle) + other * sin(angle);
                at(a, 1)[(n * (H + 2 * K) + h) * D + d] = !turned       ? x[d]
                                                          : r->gain > 0 ? (double)r->gain * turn
                                                                        : turn;
            }
}

static void naive_geglu(krn_ctx *cx, const krn_args *a)
{
    (void)cx;
    int64_t F = a->dim[1];
    for (int64_t n = 0; n < a->dim[0]; n++)
        for (int64_t f = 0; f < F; f++) {
            const double *x = at(a, 0) + n * 2 * F + f;
            at(a, 1)[n * F + f] = gelu(x[0]) * x[F];
        }
}

static void naive_swiglu(krn_ctx *cx, const krn_args *a)
{
    (void)cx;
    int64_t F = a->dim[1];
    for (int64_t n = 0; n < a->dim[0]; n++)
        for (int64_t f = 0; f < F; f++) {
            const double *x = at(a, 0) + n * 2 * F + f;
            at(a, 1)[n * F + f] = x[0] / (1 + exp(-x[0])) * x[F];
        }
}

static void naive_maxout(krn_ctx *cx, const krn_args *a)
{
    (void)cx;
    int64_t K = a->dim[2];
    for (int64_t e = 0; e < a->dim[0] * a->dim[1]; e++) {
        at(a, 1)[e] = at(a, 0)[e * K];
        for (int64_t k = 1; k < K; k++)
            at(a, 1)[e] = fmax(at(a, 1)[e], at(a, 0)[e * K + k]);
    }
}

static void naive_lora(krn_ctx *cx, const krn_args *a)
{
    (void)cx;
    int64_t W = a->dim[1], R = a->dim[2], O = a->dim[3], first = a->dim[4];
    for (int64_t n = 0; n < a->dim[0]; n++)
        for (int64_t c = 0; c < W; c++) {
            double sum = 0;
            for (int64_t r = 0; r < R; r++)
                if (c >= first && c < first + O)
                    sum += at(a, 1)[n * R + r] * at(a, 2)[(c - first) * R + r];
            at(a, 3)[n * W + c] = at(a, 0)[n * W + c] + (double)a->scale * sum;
        }
}

static void naive_rownorm(krn_ctx *cx, const krn_args *a)
{
    (void)cx;
    int64_t I = a->dim[1], R = a->dim[2];
    for (int64_t o = 0; o < a->dim[0]; o++) {
        double squares = 0;
        for (int64_t i = 0; i < I; i++) {
            double x = at(a, 0)[(a->dim[3] + o) * I + i];
            for (int64_t r = 0; r < R; r++)
                x += (double)a->scale * at(a, 2)[o * R + r] * at(a, 1)[r * I + i];
            squares += x * x;
        }
        at(a, 3)[o] = sqrt(squares);
    }
}

static void naive_dora(krn_ctx *cx, const krn_args *a)
{
    (void)cx;
    int64_t W = a->dim[1], O = a->dim[2], first = a->dim[3];
    for (int64_t e = 0; e < a->dim[0] * W; e++) {
        int64_t o = e % W - first;
        double x = at(a, 0)[e], c = a->buf[3] ? at(a, 3)[e % W] : 0;
        if (o >= 0 && o < O)
            x = at(a, 1)[o] > 0 ? at(a, 2)[o] * (x - c) / at(a, 1)[o] + c : c;
        at(a, 4)[e] = x;
    }
}

static void naive_dropout_add(krn_ctx *cx, const krn_args *a)
{
    for (int64_t e = 0; e < a->dim[0]; e++)
        at(a, 2)[e] = at(a, 0)[e] * mask(cx, a, (uint64_t)e) + at(a, 1)[e];
}

static void naive_add(krn_ctx *cx, const krn_args *a)
{
    (void)cx;
    for (int64_t e = 0; e < a->dim[0]; e++)
        at(a, 2)[e] = at(a, 0)[e] + at(a, 1)[e];
}

static void naive_cross_entropy(krn_ctx *cx, const krn_args *a)
{
    (void)cx;
    int64_t V = a->dim[1];
    const int32_t *targets = a->buf[1];
    for (int64_t n = 0; n < a->dim[0]; n++) {
        double sum = 0;
        for (int64_t v = 0; v < V; v++)
            sum += exp(bent(a, at(a, 0)[n * V + v]));
        at(a, 2)[n] = targets[n] < 0 ? 0 : log(sum) - bent(a, at(a, 0)[n * V + targets[n]]);
    }
}

static void naive_classifier(krn_ctx *cx, const krn_args *a)
{
    (void)cx;
    int64_t C = a->dim[1], V = a->dim[2];
    const int32_t *targets = a->buf[1];
    for (int64_t n = 0; n < a->dim[0]; n++) {
        double sum = 0, hit = 0;
        for (int64_t v = 0; v < V; v++) {
            double logit = 0;
            for (int64_t c = 0; c < C; c++)
                logit += at(a, 0)[n * C + c] * at(a, 2)[v * C + c];
            sum += exp(bent(a, logit));
            hit = v == targets[n] ? bent(a, logit) : hit;
        }
        at(a, 3)[n] = targets[n] < 0 ? 0 : log(sum) - hit;
    }
}

/* How many of the block's n values come before value e: those with a larger key, and of equal ones
 * those with a lower place. */
static int64_t before(const uint32_t *key, int64_t n, int64_t e)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += key[i] > key[e] || (key[i] == key[e] && i < e);
    return count;
}

static void naive_chosen(const krn_ctx *cx, const krn_args *a, int64_t first, int64_t n)
{
    const krn_step *s = cx->step;
    uint32_t key[4096];
    int64_t kept = (int64_t)(0.5 + (double)a->scale * (double)n);
    for (int64_t i = 0; i < n; i++) {
        float x = (float)fabs(at(a, 0)[first + i]);
        memcpy(&key[i], &x, 4);
        if (a->dim[2] == ATOM_CODEC_RANDOMK)
            key[i] = atom_rng_u32((atom_rng_key){s->seed, s->step, s->micro_batch, a->rng},
                                  (uint64_t)(first + i));
    }
    for (int64_t i = 0; i < n; i++) {
        float x = (float)at(a, 0)[first + i];
        bool sent = before(key, n, i) < (kept > 0 ? kept : 1);
        at(a, 1)[first + i] = sent ? (double)atom_bf16_to_f32(atom_f32_to_bf16(x)) : 0;
    }
}

static void naive_steps(const krn_args *a, int64_t first, int64_t n)
{
    static const float levels[] = {
        [ATOM_CODEC_INT8] = 255, [ATOM_CODEC_INT4] = 15, [ATOM_CODEC_INT2] = 3};
    float lo = INFINITY, hi = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        lo = fminf(lo, (float)at(a, 0)[first + i]);
        hi = fmaxf(hi, (float)at(a, 0)[first + i]);
    }
    float step = (hi - lo) / levels[a->dim[2]];
    for (int64_t i = 0; i < n; i++) {
        float above = (float)at(a, 0)[first + i] - lo;
        float up = step > 0 ? rintf(above * (1 / step)) * step : 0;
        at(a, 1)[first + i] = (double)(lo + up);
    }
}

static void naive_compress(krn_ctx *cx, const krn_args *a)
{
    bool steps = a->dim[2] <= ATOM_CODEC_INT2;
    int64_t C = a->dim[1], block = steps ? 128 : 4096;
    for (int64_t row = 0; row < a->dim[0]; row++)
        for (int64_t c = 0; c < C; c += block) {
            int64_t n = C - c < block ? C - c : block;
            if (steps)
                naive_steps(a, row * C + c, n);
            else
                naive_chosen(cx, a, row * C + c, n);
        }
}

static uint64_t no_workspace(atom_op op, int backward, const int64_t dim[KRN_DIM_MAX])
{
    (void)op, (void)backward, (void)dim;
    return 0;
}

const krn_table *naive_table(void)
{
    static const krn_table table = {
        .backend = "naive",
        .dtype = ATOM_F64,
        .isa = "scalar",
#define OP(name, ...) .fwd[ATOM_OP_##name] = naive_##name,
#include "atom/base/ops.def"
#undef OP
        .workspace = no_workspace,
    };
    return &table;
}
