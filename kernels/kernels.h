/*
 * Kernels: one forward and one backward entry per op of atom/base/ops.def, per backend and dtype.
 * A NULL entry means "unsupported". The table of a backend is what its registry function returns;
 * faster code overwrites single entries.
 *
 * Every kernel has the same signature, so that call lists, generated code and tests treat all ops
 * alike. Buffers stand in this order, with NULL where an op does not have or need one:
 *
 *   forward   in.. params.. out.. saved..
 *   backward  in.. params.. out.. saved.. d_out.. d_in.. d_params..
 *
 * In both, each group has as many places as the op's row says (params: params_max). In backward,
 * `in` and `out` are present only where the row keeps them (KEEP_*), d_in only where the input has
 * a gradient. F_TERMINAL ops have no d_out; their backward writes `out` (the loss) as well, so
 * training never calls their forward; evaluation does.
 *
 * Every group keeps its places even where nothing stands there (NULL, "-" below): terminal ops have
 * a d_out place, integer inputs a d_in place. So, by index (b may be NULL where the layer has no
 * bias):
 *
 *   op             forward                    backward
 *   embed          tokens wte wpe x           tokens wte wpe - dx - dwte dwpe
 *   dropout        x y                        - - dy dx
 *   layernorm      x w b y mean rstd          x w b - mean rstd dy dx dw db
 *   linear         x w b y                    x w b - dy dx dw db
 *   gelu           x y                        x - dy dx
 *   attention      qkv y lse                  qkv y lse dy dqkv
 *   add            x r y                      - - - dy dx dr
 *   cross_entropy  logits targets loss        logits targets loss - dlogits -
 *   linear_gelu    x w b y u                  x w b - u dy dx dw db
 *   dropout_add    x r y                      - - - dy dx dr
 *   classifier     x targets w loss           x targets w loss - dx - dw
 *   rmsnorm        x w y rstd                 x w - rstd dy dx dw
 *   headnorm       qkv wq wk y rstd           qkv wq wk - rstd dy dqkv dwq dwk
 *   rope           qkv y                      - - dy dqkv
 *   swiglu, geglu  x y                        x - dy dx
 *   maxout         x y                        x - dy dx
 *   lora           x h b y                    - h b - dy dx dh db
 *   rownorm        w a b n                    (never runs)
 *   dora           x n m c y                  x n m c - dy dx - dm dc
 *   gelu_erf, relu, relu2, silu, scale: as gelu
 *   compress       x y                        - - dy dx
 *
 * Dtypes: act = the table's dtype (fp32 or bf16) for in/out/d_in/d_out and params; saved statistics
 * and losses f32; d_params f32, always *added to* (accumulators). All buffers 256-byte aligned, no
 * overlap.
 *
 *   op             dim[]
 *   embed          B T C V        (P is not needed: t < T <= P). V bounds the token ids. wpe may be
 *                                 NULL: no positions (KRN_CAN_NO_PLACES).
 *   dropout        n
 *   layernorm      N C            N = B T. b may be NULL: nothing is added.
 *   linear         N I O
 *   gelu           n
 *   attention      B T H D K W    K key heads, 0 stands for H; K < H: KRN_CAN_GROUPED. W: row t
 *                                 sees the W rows up to itself, 0: all; W > 0: KRN_CAN_WINDOW
 *   add            n
 *   cross_entropy  N V
 *   linear_gelu    N I O
 *   dropout_add    n
 *   classifier     N C V
 *   rmsnorm        N C            args.lift: added to the weights
 *   headnorm       N H D K        args.lift
 *   rope           B T H D K P    row t stands at place P + t; P is 0 in training. args.rope
 *   swiglu, geglu  N F            x is 2F wide
 *   maxout         N F K          x is F K wide
 *   lora           N W R O first  args.scale. b[O,R] adds to columns first .. first + O of W
 *   rownorm        O I R first    args.scale. Rows first .. first + O of w; n is f32
 *   dora           N W O first    n is f32. c[W] may be NULL: 0
 *   gelu_erf relu relu2 silu  n
 *   scale          n              args.scale
 *   compress       N C codec      atom_codec_kind; args.scale: its share. kernels/ref/codec.h
 *
 * Mathematics: matmul, norm, softmax and loss accumulate in f32 (ref: f64) and round once to act.
 * gelu: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Losses: loss[n] = lse(logits) -
 * logits[target], 0 where target < 0; gradient scaled by step->loss_scale. A cap bends scores (once
 * they are scaled) and logits. Dropout keeps element e
 * of node `rng` when atom_rng_u32(key, e) >= atom_rng_threshold(p), scaled by 1/(1-p); only when
 * step->train. attention's element index is ((b H + h) T + t) T + s.
 *
 * Determinism: a result depends only on arguments, build, device and ISA; never on the number of
 * threads, on addresses, or on what ran before.
 */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "atom/base/codec.h"
#include "atom/base/dtype.h"
#include "atom/base/ops.h"
#include "atom/base/rng.h"
#include "atom/base/status.h"
#include "atom/base/threads.h"

#include <math.h>
#include <stdint.h>

enum { KRN_BUF_MAX = 12, KRN_DIM_MAX = 6 };

enum {
    KRN_ADD_D_IN0 =
        1, /* backward: d_in[0] is added to instead of written (one rounding of the sum) */
    KRN_ADD_D_IN1 = 2
};

typedef struct krn_args {
    void *buf[KRN_BUF_MAX];
    int64_t dim[KRN_DIM_MAX];
    float eps;      /* norms */
    float p;        /* dropout */
    uint32_t flags; /* KRN_ADD_* */
    uint32_t rng;   /* canonical node id for random numbers */
    atom_rope rope; /* rope */
    float scale;    /* lora, rownorm, scale; attention: 0 stands for 1/sqrt(D); compress: share */
    float lift;     /* rmsnorm, headnorm */
    float cap;      /* attention, cross_entropy, classifier: x is cap tanh(x / cap); 0: x */
} krn_args;

/* K of attention, headnorm and rope. */
static inline int64_t krn_kv_heads(const int64_t dim[KRN_DIM_MAX], int heads_at, int kv_at)
{
    return dim[kv_at] ? dim[kv_at] : dim[heads_at];
}

/* What attention multiplies its scores by. */
static inline double krn_attention_scale(float scale, int64_t D)
{
    return scale > 0 ? (double)scale : 1.0 / sqrt((double)D);
}

/* Changes every step or micro-batch;
 * on a GPU it lives in device memory (a fixed argument block). */
typedef struct krn_step {
    uint64_t seed;
    uint32_t step;        /* counts from 1 */
    uint32_t micro_batch; /* 0 .. C-1 */
    float loss_scale;     /* 1 / number of target tokens of the whole step */
    uint32_t train;       /* 0: no dropout */
    /* i32[B,T] in host memory: where the document of each row begins, never falling within a
     * sample; rows of one document see no other and count their places from its start
     * (KRN_CAN_APART). NULL: a sample is one document. */
    const int32_t *starts;
} krn_step;

/* First row that row t of sample b belongs with, in samples of T. */
static inline int64_t krn_start(const krn_step *step, int64_t T, int64_t b, int64_t t)
{
    return step && step->starts ? step->starts[b * T + t] : 0;
}
/* Place of row n of B T rows in its document. */
static inline int64_t krn_place(const krn_step *step, int64_t T, int64_t n)
{
    return n % T - krn_start(step, T, n / T, n % T);
}
/* First row that row t of sample b sees in attention with these dims. Never falls as t grows. */
static inline int64_t krn_first_seen(const krn_step *step, const int64_t dim[KRN_DIM_MAX],
                                     int64_t b, int64_t t)
{
    int64_t W = dim[5], start = krn_start(step, dim[1], b, t), first = W > 0 ? t - W + 1 : 0;
    return first > start ? first : start;
}

typedef struct krn_ctx krn_ctx;
struct krn_ctx {
    atom_threads *threads; /* CPU backends: the pool */
    void *workspace;       /* at least what krn_workspace() said, 256-byte aligned */
    uint64_t workspace_bytes;
    const krn_step *step; /* set it with krn_ctx_step() where a device made the context */
    void *native_stream;  /* CUDA: cudaStream_t; CPU: NULL, the kernel has run when it returns */
    /* Set by devices whose kernels cannot read the caller's memory: puts *from, as it is now, where
     * they can, in stream order, and points step there. */
    void (*put_step)(krn_ctx *cx, const krn_step *from);
    void *device; /* the device's own */
};

/* Gives kernels that follow on the context's stream their step. */
static inline void krn_ctx_step(krn_ctx *cx, const krn_step *step)
{
    if (cx->put_step)
        cx->put_step(cx, step);
    else
        cx->step = step;
}

typedef void (*krn_fn)(krn_ctx *cx, const krn_args *args);

/* dst[i] = (wire) src[i], n elements; src f32, dst act; may be the same address when act is f32. */
typedef void (*krn_round_fn)(krn_ctx *cx, void *dst, const float *src, uint64_t n);
/*
 * out[c] = sum of squares of chunk c (KRN_NORM_CHUNK elements, the last may be short) of x act[n].
 * Bits are the same in every implementation: squares in f64 (exact), KRN_NORM_LANES f64 sums per
 * chunk, element i of the chunk goes to lane i % KRN_NORM_LANES in ascending i; then the lanes are
 * folded in halves:
 *
 *   for (w = 8; w; w /= 2)
 *       for (i = 0; i < w; i++)
 *           lane[i] += lane[i + w];
 *   out[c] = lane[0];
 */
typedef void (*krn_sumsq_fn)(krn_ctx *cx, double *out, const void *x, uint64_t n);
enum { KRN_NORM_CHUNK = 65536, KRN_NORM_LANES = 16 };
/*
 * A finished gradient leaves its accumulators, in one pass over memory: dst = round(src), norms =
 * sumsq(dst), src = 0, with the bits of those two. norms: krn_norm_chunks(n) sums. dst and src do
 * not overlap.
 */
typedef void (*krn_settle_fn)(krn_ctx *cx, void *dst, float *src, double *norms, uint64_t n);
static inline uint64_t krn_norm_chunks(uint64_t n)
{
    return (n + KRN_NORM_CHUNK - 1) / KRN_NORM_CHUNK;
}

/* Scratch bytes an entry needs; a pure function of op, direction, dims; 0 is fine. */
typedef uint64_t (*krn_workspace_fn)(atom_op op, int backward, const int64_t dim[KRN_DIM_MAX]);

/* dst <- src on the stream; no overlap. */
typedef void (*krn_copy_fn)(krn_ctx *cx, void *dst, const void *src, uint64_t bytes);
/* The copy of every backend whose memory is the host's: chunks over the pool. */
void krn_copy_host(krn_ctx *cx, void *dst, const void *src, uint64_t bytes);

typedef struct krn_adamw_step krn_adamw_step;
/* AdamW where the table computes, in stream order: krn_adamw_fn's operations and bits, but the
 * gradient is read from grad act[n], which may be wire itself. *step is read at the call. */
typedef void (*krn_update_fn)(krn_ctx *cx, const krn_adamw_step *step, void *wire, const void *grad,
                              float *master, void *m, void *v, uint64_t n);

/* Five steps of Newton-Schulz on X act[rows][cols], in place and in stream order; space:
 * krn_ortho_space() bytes, 256-byte aligned. See krn_muon_begin_fn. */
typedef void (*krn_ortho_fn)(krn_ctx *cx, void *x, int64_t rows, int64_t cols, void *space);

/* Generated code is compiled against the fields up to bwd; a change there is a new ABI
 * (codegen/build.h). */
typedef struct krn_table {
    const char *backend; /* "ref", "cpu", "cuda" */
    atom_dtype dtype;
    const char *isa; /* "avx512+amx": part of profile and cache keys */
    krn_copy_fn copy;
    krn_fn fwd[ATOM_OP_N];
    krn_fn bwd[ATOM_OP_N];
    krn_round_fn round;
    krn_sumsq_fn sumsq;
    krn_settle_fn settle;
    krn_workspace_fn workspace;
    uint32_t can;         /* KRN_CAN_*: what an entry that is there may still lack */
    int64_t head_dim_max; /* of attention; 0: any */
    krn_update_fn update; /* NULL: AdamW runs on the host */
    krn_ortho_fn ortho;   /* NULL: so do Muon's products */
} krn_table;
enum {
    KRN_CAN_GROUPED = 1,   /* attention with fewer key heads than query heads */
    KRN_CAN_NO_PLACES = 2, /* embed without wpe */
    KRN_CAN_WINDOW = 4,    /* attention with W */
    KRN_CAN_APART = 8      /* krn_step.starts: attention, rope, embed */
};

/*
 * AdamW (Loshchilov and Hutter 2019) on the host; the same fixed sequence of fp32 operations in
 * every implementation (docs/design/engine.md#the-same-bits), compiled without contraction, with
 * explicit fma:
 *
 *   g    = scale * grad                        grad is read from wire (act dtype)
 *   m    = fma(beta1, m, (1 - beta1) * g)      (1 - beta) computed on the host in f64, rounded once
 *   v    = fma(beta2, v, (1 - beta2) * (g * g))
 *   den  = sqrt(v) * inv_sqrt_bias2 + eps      inv_sqrt_bias2 = 1/sqrt(1 - beta2^step), from f64
 *   upd  = (m * inv_bias1) / den               inv_bias1 = 1/(1 - beta1^step)
 *   p    = fma(-lr, fma(decay, p, upd), p)     decay 0 where the parameter has none
 *   wire = (act) p
 *
 * Moments are stored in f32, or in bf16: then they are rounded stochastically, after p was made of
 * the unrounded ones. To nearest, v would stand still: with beta2 = 0.999 it moves by less than
 * half of bf16's last place. Element e of the canonical vector draws a half of
 * atom_rng_u32(rng, e / 2), the lower one where e is even; both its moments are rounded by that
 * (atom_f32_to_bf16_drawn). Source: Zamirai et al. 2020, Revisiting BFloat16 Training.
 */
struct krn_adamw_step {
    float scale; /* clip factor; 1 without clipping */
    float beta1, one_minus_beta1, beta2, one_minus_beta2;
    float inv_bias1, inv_sqrt_bias2;
    float eps, lr, decay;
    atom_dtype moments; /* of m and v: ATOM_F32 or ATOM_BF16 */
    /* With bf16: whose words are drawn, and which element comes first, a multiple of
     * KRN_DRAW_ALIGN. */
    atom_rng_key rng;
    uint64_t first;
};
enum {
    KRN_DRAW_ALIGN = 128,
    KRN_RNG_MOMENTS = 0x7fffffff /* the node of those words: none of a graph's */
};

/* n elements; master f32; m, v step->moments; wire act: holds the gradient, receives the parameter.
 * In place. Splits over the pool in fixed chunks. */
typedef void (*krn_adamw_fn)(atom_threads *threads, const krn_adamw_step *step,
                             atom_dtype wire_dtype, void *wire, float *master, void *m, void *v,
                             uint64_t n);

/*
 * Muon (Jordan et al. 2024; weight decay and the scale of steps as in Liu et al. 2025, Muon is
 * Scalable for LLM Training) on the host, for one matrix [rows][cols], row-major; the same bits in
 * every implementation, on every instruction set and number of threads:
 *
 *   g    = scale * grad                        grad is read from wire (act dtype)
 *   m    = momentum * m + g
 *   u    = momentum * m + g                    Nesterov
 *   sum  = u^2 in f64, each row in ascending order, then the rows in ascending order
 *   X    = op(u * inv)                         inv = 1 / max(sqrt(sum), 1e-7), from f64
 *   KRN_MUON_STEPS times, with X taken as [s][l], s <= l (transposed where rows > cols):
 *     A  = op(X X')
 *     B  = op(b * A + c * (A A))
 *     X  = op(a * X + B X)                     a, b, c: KRN_MUON_A, _B, _C
 *   p    = keep * p - rate * X                 keep = 1 - lr * decay, rate = lr * 0.2 * sqrt(l),
 *   wire = (act) p                             both from f64
 *
 * All other numbers are fp32, without fused operations. op() rounds to bf16 and makes 0 of what is
 * smaller than KRN_MUON_TINY: so the product of two operands is exact in fp32, fused or not, and a
 * sum has one value as long as it runs over k in ascending order from 0. Momentum is stored in f32,
 * or in bf16, rounded by the same draws as AdamW's moments, after u was made.
 */
typedef struct krn_muon_step {
    float scale; /* clip factor; 1 without clipping */
    float momentum;
    double lr, decay;   /* decay 0 where the parameter has none */
    atom_dtype moments; /* of m: ATOM_F32 or ATOM_BF16 */
    /* With bf16: whose words are drawn, and which element of the canonical vector comes first. */
    atom_rng_key rng;
    uint64_t first;
} krn_muon_step;
enum { KRN_MUON_STEPS = 5 };
#define KRN_MUON_A 3.4445f
#define KRN_MUON_B (-4.7750f)
#define KRN_MUON_C 2.0315f
#define KRN_MUON_TINY 0x1p-60f
#define KRN_MUON_NORM_MIN 1e-7

static inline int64_t krn_muon_short(int64_t rows, int64_t cols)
{
    return rows < cols ? rows : cols;
}
static inline int64_t krn_muon_long(int64_t rows, int64_t cols)
{
    return rows < cols ? cols : rows;
}
/* Floats from one line of a square or of a transposed X to the next: whole vectors, and never a
 * power of two, whose lines would push each other out of the caches. */
static inline int64_t krn_muon_line(int64_t rows, int64_t cols)
{
    return (krn_muon_short(rows, cols) + 15) / 16 * 16 + 16;
}
/* Scratch bytes for one matrix: X twice, two squares, and the rows' sums. */
static inline uint64_t krn_muon_space(int64_t rows, int64_t cols)
{
    int64_t line = krn_muon_line(rows, cols);
    return (uint64_t)(2 * krn_muon_long(rows, cols) * line + 2 * line * line) * sizeof(float) +
           (uint64_t)rows * sizeof(double);
}

/* master f32, m step->moments, wire act: holds the gradient, receives the parameter; [rows][cols]
 * each. In place. space: krn_muon_space() bytes, 64-byte aligned. */
typedef void (*krn_muon_fn)(atom_threads *threads, const krn_muon_step *step, atom_dtype wire_dtype,
                            void *wire, float *master, void *m, int64_t rows, int64_t cols,
                            void *space);

/*
 * The same in three parts, for a device that makes the products: momentum and weights stay on the
 * host, and only X crosses the link, once in each direction. Together they give the bits of
 * krn_muon_fn.
 *
 *   begin   m moves; wire, which holds the gradient, receives X = op(u * inv)
 *   ortho   in a krn_table: X becomes what KRN_MUON_STEPS steps make of it
 *   end     p = keep * p - rate * X; wire, which holds X, receives the parameter
 */
/* sums: double[rows], scratch. */
typedef void (*krn_muon_begin_fn)(atom_threads *threads, const krn_muon_step *step,
                                  atom_dtype wire_dtype, void *wire, void *m, int64_t rows,
                                  int64_t cols, double *sums);
typedef void (*krn_muon_end_fn)(atom_threads *threads, const krn_muon_step *step,
                                atom_dtype wire_dtype, void *wire, float *master, int64_t rows,
                                int64_t cols);
/* Scratch bytes of krn_ortho_fn: X twice and both squares, in bf16. */
static inline uint64_t krn_ortho_space(int64_t rows, int64_t cols)
{
    uint64_t s = (uint64_t)krn_muon_short(rows, cols), l = (uint64_t)krn_muon_long(rows, cols);
    return 2 * ((2 * s * l + 255) / 256 * 256) + 2 * ((2 * s * s + 255) / 256 * 256);
}

/* Host table: independent of the device (docs/design/engine.md#the-optimizer). */
typedef struct krn_host_table {
    krn_adamw_fn adamw;
    krn_muon_fn muon;
    krn_muon_begin_fn muon_begin;
    krn_muon_end_fn muon_end;
    krn_round_fn round[2]; /* by wire dtype: master f32 -> wire */
    krn_sumsq_fn sumsq[2];
} krn_host_table;

/* Registries. NULL when the dtype is not supported at all. For tests, ref also has ATOM_F64: the
 * same code with every float tensor (statistics, losses and accumulators too) in f64. */
const krn_table *krn_ref_table(atom_dtype dtype);
const krn_table *krn_cpu_table(atom_dtype dtype);
const krn_host_table *krn_ref_host_table(void);
const krn_host_table *krn_cpu_host_table(void);
/* oneDNN's, which multiplies matrices: 30501 is 3.5.1. */
uint32_t krn_cpu_library_version(void);

#endif
