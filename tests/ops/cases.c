/*
 * Owns what is tested: the shapes of every op, and which tensor of how many elements stands in
 * which place. One idea: places are derived from the op's row in ops.def, so a changed row changes
 * the test. Shapes are odd, prime, one, and around block sizes of the backends.
 */
#include "tests/ops/checkop.h"

#include "atom/base/assert.h"

#include <stdio.h>

static const op_shape shapes[] = {
    {ATOM_OP_embed, {1, 1, 1, 2}},
    {ATOM_OP_embed, {2, 5, 7, 11}},
    {ATOM_OP_embed, {3, 17, 33, 50}},
    {ATOM_OP_embed, {2, 64, 96, 5}},
    {ATOM_OP_embed, {1, 40, 9, 600}},
    {ATOM_OP_embed, {2, 2100, 3, 5}},
    {ATOM_OP_embed, {2, 5, 7, 11, 1}}, /* a fifth dim: without wpe */
    {ATOM_OP_embed, {3, 17, 33, 50, 1}},
    {ATOM_OP_embed, {2, 9, 64, 11, 1}},
    {ATOM_OP_embed, {3, 17, 33, 50, 0, 0, 1}},
    {ATOM_OP_dropout, {1}},
    {ATOM_OP_dropout, {13}},
    {ATOM_OP_dropout, {1024}},
    {ATOM_OP_dropout, {20011}},
    {ATOM_OP_layernorm, {1, 3}}, /* with 2 channels dx is 0 but for eps: all rounding error */
    {ATOM_OP_layernorm, {3, 7}},
    {ATOM_OP_layernorm, {5, 64}},
    {ATOM_OP_layernorm, {37, 129}},
    {ATOM_OP_layernorm, {67, 768}},
    {ATOM_OP_layernorm, {1031, 40}},
    {ATOM_OP_layernorm, {5, 2568}},
    {ATOM_OP_layernorm, {2, 4104}},
    {ATOM_OP_layernorm, {2, 8200}},
    {ATOM_OP_layernorm, {3, 7, 1}}, /* a third dim: without b */
    {ATOM_OP_layernorm, {37, 129, 1}},
    {ATOM_OP_layernorm, {5, 2568, 1}},
    {ATOM_OP_linear, {1, 1, 1}},
    {ATOM_OP_linear, {2, 3, 5}},
    {ATOM_OP_linear, {7, 16, 33}},
    {ATOM_OP_linear, {33, 67, 129}},
    {ATOM_OP_linear, {64, 64, 64}},
    {ATOM_OP_linear, {65, 131, 50}},
    {ATOM_OP_linear, {130, 96, 257}},
    {ATOM_OP_linear, {515, 301, 31}},
    {ATOM_OP_linear, {2051, 9, 17}},
    {ATOM_OP_gelu, {1}},
    {ATOM_OP_gelu, {29}},
    {ATOM_OP_gelu, {2048}},
    {ATOM_OP_gelu, {20011}},
    {ATOM_OP_attention, {1, 1, 1, 8}},
    {ATOM_OP_attention, {2, 5, 3, 4}},
    {ATOM_OP_attention, {1, 17, 2, 13}},
    {ATOM_OP_attention, {2, 33, 3, 16}},
    {ATOM_OP_attention, {1, 67, 2, 64}},
    {ATOM_OP_attention, {1, 130, 1, 80}},
    {ATOM_OP_attention, {1, 65, 2, 128}},
    {ATOM_OP_attention, {2, 257, 1, 8}},
    {ATOM_OP_attention, {2, 5, 4, 6, 2}},
    {ATOM_OP_attention, {1, 67, 3, 16, 1}},
    {ATOM_OP_attention, {2, 70, 6, 33, 3}},
    {ATOM_OP_attention, {1, 130, 4, 64, 2}},
    {ATOM_OP_attention, {1, 129, 2, 128, 1}},
    {ATOM_OP_attention, {1, 132, 2, 64, 1}}, /* dropout draws four at once */
    {ATOM_OP_attention, {1, 130, 3, 8}},     /* the shim: sections of two heads and of one */
    {ATOM_OP_attention, {2, 36, 1, 200}},
    {ATOM_OP_attention, {1, 37, 2, 90}},
    {ATOM_OP_attention, {1, 9, 1, 4, 1, 1}}, /* windows */
    {ATOM_OP_attention, {2, 17, 2, 8, 1, 5}},
    {ATOM_OP_attention, {1, 200, 2, 16, 2, 64}},
    {ATOM_OP_attention, {1, 261, 2, 40, 1, 65}},
    {ATOM_OP_attention, {1, 300, 1, 64, 1, 2}},
    {ATOM_OP_attention, {1, 33, 2, 200, 1, 7}},
    {ATOM_OP_attention, {1, 70, 1, 8, 1, 700}},
    {ATOM_OP_attention, {2, 21, 2, 6, 1, 0, 1}}, /* documents apart */
    {ATOM_OP_attention, {2, 261, 2, 16, 2, 0, 1}},
    {ATOM_OP_attention, {1, 300, 2, 64, 1, 50, 1}},
    {ATOM_OP_add, {1}},
    {ATOM_OP_add, {31}},
    {ATOM_OP_add, {20011}},
    {ATOM_OP_cross_entropy, {1, 2}},
    {ATOM_OP_cross_entropy, {5, 7}},
    {ATOM_OP_cross_entropy, {17, 257}},
    {ATOM_OP_cross_entropy, {33, 1031}},
    {ATOM_OP_cross_entropy, {3, 16391}},
    {ATOM_OP_cross_entropy, {2, 16400}},
    {ATOM_OP_linear_gelu, {1, 1, 1}},
    {ATOM_OP_linear_gelu, {3, 5, 7}},
    {ATOM_OP_linear_gelu, {33, 67, 129}},
    {ATOM_OP_linear_gelu, {64, 64, 256}},
    {ATOM_OP_linear_gelu, {130, 41, 83}},
    {ATOM_OP_linear_gelu, {517, 33, 70}},
    {ATOM_OP_dropout_add, {1}},
    {ATOM_OP_dropout_add, {17}},
    {ATOM_OP_dropout_add, {4096}},
    {ATOM_OP_dropout_add, {20011}},
    {ATOM_OP_classifier, {1, 1, 2}},
    {ATOM_OP_classifier, {3, 5, 7}},
    {ATOM_OP_classifier, {33, 17, 131}},
    {ATOM_OP_classifier, {70, 48, 517}},
    {ATOM_OP_classifier, {300, 24, 1031}},
    {ATOM_OP_classifier, {523, 31, 67}},
    {ATOM_OP_rmsnorm, {1, 2}}, /* with 1 channel dx is 0 but for eps: all rounding error */
    {ATOM_OP_rmsnorm, {3, 7}},
    {ATOM_OP_rmsnorm, {5, 64}},
    {ATOM_OP_rmsnorm, {37, 129}},
    {ATOM_OP_rmsnorm, {67, 768}},
    {ATOM_OP_rmsnorm, {1031, 40}},
    {ATOM_OP_rmsnorm, {2, 4104}},
    {ATOM_OP_rmsnorm, {1, 8328}},
    {ATOM_OP_headnorm, {1, 1, 4}},
    {ATOM_OP_headnorm, {5, 4, 6, 2}},
    {ATOM_OP_headnorm, {37, 3, 33, 1}},
    {ATOM_OP_headnorm, {131, 4, 64, 2}},
    {ATOM_OP_headnorm, {20, 2, 128}},
    {ATOM_OP_headnorm, {9, 5, 24, 2}},
    {ATOM_OP_headnorm, {35, 1, 8}},
    {ATOM_OP_headnorm, {3, 2, 256, 1}},
    {ATOM_OP_headnorm, {7, 1, 330}}, /* all heads as one (OLMo 2) */
    {ATOM_OP_rope, {1, 1, 1, 2}},
    {ATOM_OP_rope, {2, 5, 4, 6, 2}},
    {ATOM_OP_rope, {2, 67, 3, 34, 1, 61}},
    {ATOM_OP_rope, {1, 130, 4, 64, 2}},
    {ATOM_OP_rope, {1, 3, 2, 128, 2, 1000}},
    {ATOM_OP_rope, {2, 2, 1, 528, 1, 131000}},
    {ATOM_OP_rope, {2, 67, 2, 8, 1, 0, 1}},
    {ATOM_OP_swiglu, {1, 1}},
    {ATOM_OP_swiglu, {3, 7}},
    {ATOM_OP_swiglu, {37, 129}},
    {ATOM_OP_swiglu, {130, 96}},
    {ATOM_OP_swiglu, {3, 4104}},
    {ATOM_OP_maxout, {1, 1, 2}},
    {ATOM_OP_maxout, {3, 7, 3}},
    {ATOM_OP_maxout, {37, 129, 4}},
    {ATOM_OP_maxout, {130, 12, 8}},
    {ATOM_OP_maxout, {3, 1026, 16}},
    {ATOM_OP_geglu, {1, 1}},
    {ATOM_OP_geglu, {3, 7}},
    {ATOM_OP_geglu, {37, 129}},
    {ATOM_OP_geglu, {130, 96}},
    {ATOM_OP_geglu, {3, 4104}},
    {ATOM_OP_gelu_erf, {1}},
    {ATOM_OP_gelu_erf, {29}},
    {ATOM_OP_gelu_erf, {20011}},
    {ATOM_OP_relu, {1}},
    {ATOM_OP_relu, {29}},
    {ATOM_OP_relu, {20011}},
    {ATOM_OP_relu2, {1}},
    {ATOM_OP_relu2, {29}},
    {ATOM_OP_relu2, {20011}},
    {ATOM_OP_silu, {1}},
    {ATOM_OP_silu, {29}},
    {ATOM_OP_silu, {20011}},
    {ATOM_OP_scale, {1}},
    {ATOM_OP_scale, {29}},
    {ATOM_OP_scale, {20011}},
    {ATOM_OP_compress, {1, 1, ATOM_CODEC_INT8}},
    {ATOM_OP_compress, {5, 67, ATOM_CODEC_INT8}},
    {ATOM_OP_compress, {9, 300, ATOM_CODEC_INT8}},
    {ATOM_OP_compress, {7, 1, ATOM_CODEC_INT4}},
    {ATOM_OP_compress, {5, 67, ATOM_CODEC_INT4}},
    {ATOM_OP_compress, {9, 300, ATOM_CODEC_INT4}},
    {ATOM_OP_compress, {2, 2, ATOM_CODEC_INT2}},
    {ATOM_OP_compress, {5, 69, ATOM_CODEC_INT2}},
    {ATOM_OP_compress, {9, 384, ATOM_CODEC_INT2}},
    {ATOM_OP_compress, {1, 1, ATOM_CODEC_TOPK}},
    {ATOM_OP_compress, {9, 300, ATOM_CODEC_TOPK}},
    {ATOM_OP_compress, {3, 4200, ATOM_CODEC_TOPK}},
    {ATOM_OP_compress, {1, 1, ATOM_CODEC_RANDOMK}},
    {ATOM_OP_compress, {9, 301, ATOM_CODEC_RANDOMK}},
    {ATOM_OP_compress, {3, 4219, ATOM_CODEC_RANDOMK}},
    {ATOM_OP_lora, {1, 1, 1, 1}},
    {ATOM_OP_lora, {5, 7, 3, 7}},
    {ATOM_OP_lora, {37, 129, 5, 40, 33}},
    {ATOM_OP_lora, {130, 96, 8, 64, 32}},
    {ATOM_OP_lora, {67, 300, 17, 131, 169}},
    {ATOM_OP_rownorm, {1, 1, 1}},
    {ATOM_OP_rownorm, {7, 13, 3}},
    {ATOM_OP_rownorm, {37, 129, 5, 33}},
    {ATOM_OP_rownorm, {66, 300, 17, 8}},
    {ATOM_OP_dora, {1, 1, 1}},
    {ATOM_OP_dora, {5, 7, 7}},
    {ATOM_OP_dora, {37, 129, 40, 33}},
    {ATOM_OP_dora, {130, 96, 64, 32}},
    {ATOM_OP_dora, {67, 300, 131, 169}},
};

/* Vocabularies of GPT-2 (as it is and padded) and Qwen, sums of 8192 terms, sequences of 4096, chunks
 * of the classifier that are crossed. The other dimensions are small, so that ref is quick. */
static const op_shape real_shapes[] = {
    {ATOM_OP_embed, {8, 1024, 96, 50257}},
    {ATOM_OP_layernorm, {8192, 768}},
    {ATOM_OP_layernorm, {300, 1600}},
    {ATOM_OP_rmsnorm, {600, 4096}},
    {ATOM_OP_rmsnorm, {8192, 256}},
    {ATOM_OP_headnorm, {1024, 16, 128, 8}},
    {ATOM_OP_rope, {1, 4096, 4, 128, 1}},
    {ATOM_OP_swiglu, {256, 11008}},
    {ATOM_OP_linear, {8192, 64, 96}},
    {ATOM_OP_linear, {96, 8192, 64}},
    {ATOM_OP_linear, {64, 96, 8192}},
    {ATOM_OP_linear, {1024, 768, 264}},
    {ATOM_OP_linear_gelu, {8192, 64, 128}},
    {ATOM_OP_linear_gelu, {256, 768, 384}},
    {ATOM_OP_attention, {1, 4096, 1, 64}},
    {ATOM_OP_attention, {1, 1024, 2, 128, 1}},
    {ATOM_OP_attention, {1, 2048, 2, 64, 1, 512}},
    {ATOM_OP_cross_entropy, {32, 50257}},
    {ATOM_OP_cross_entropy, {16, 152064}},
    {ATOM_OP_classifier, {300, 32, 50257}},
    {ATOM_OP_classifier, {280, 32, 50304}},
    {ATOM_OP_classifier, {4500, 32, 1000}},
    {ATOM_OP_lora, {8192, 96, 16, 64, 32}},
};

const op_shape *op_shapes_real(size_t *n)
{
    *n = sizeof real_shapes / sizeof real_shapes[0];
    return real_shapes;
}

const op_shape *op_shapes(size_t *n)
{
    *n = sizeof shapes / sizeof shapes[0];
    return shapes;
}

int64_t op_work(const int64_t dim[KRN_DIM_MAX])
{
    int64_t work = 1;
    for (int i = 0; i < KRN_DIM_MAX; i++)
        work *= dim[i] ? dim[i] : 1;
    return work;
}

/* The tensors of an op by group; n = 0 ends a group. */
typedef struct op_tensor {
    const char *name;
    place_kind kind;
    int64_t n;
} op_tensor;

typedef struct op_tensors {
    op_tensor in[2], params[3], out[1], saved[2];
} op_tensors;

static bool has_bias(const op_case *c)
{
    return c->variant % 2 == 0;
}

static op_tensors elementwise(const op_case *c, bool two)
{
    op_tensor x = {"x", KIND_ACT, c->dim[0]}, r = {"r", KIND_ACT, two ? c->dim[0] : 0};
    return (op_tensors){.in = {x, r}, .out = {{"y", KIND_ACT, c->dim[0]}}};
}

static op_tensors linear_tensors(const op_case *c, bool saves_u)
{
    int64_t N = c->dim[0], I = c->dim[1], O = c->dim[2];
    return (op_tensors){
        .in = {{"x", KIND_ACT, N * I}},
        .params = {{"w", KIND_ACT, O * I}, {"b", KIND_ACT, has_bias(c) ? O : 0}},
        .out = {{"y", KIND_ACT, N * O}},
        .saved = {{"u", KIND_ACT, saves_u ? N * O : 0}},
    };
}

/* Of attention, rope (T tokens, sizes from d[2] on) and headnorm (from d[1] on). */
static int64_t qkv_heads(const op_case *c, bool with_values)
{
    bool headnorm = c->op == ATOM_OP_headnorm;
    int64_t H = c->dim[headnorm ? 1 : 2],
            K = krn_kv_heads(c->dim, headnorm ? 1 : 2, headnorm ? 3 : 4);
    return H + (with_values ? 2 : 1) * K;
}

static op_tensors llama_tensors(const op_case *c)
{
    const int64_t *d = c->dim;
    bool headnorm = c->op == ATOM_OP_headnorm;
    int64_t rows = headnorm ? d[0] : d[0] * d[1], D = d[headnorm ? 2 : 3];
    if (c->op == ATOM_OP_rmsnorm)
        return (op_tensors){.in = {{"x", KIND_ACT, d[0] * d[1]}},
                            .params = {{"w", KIND_ACT, d[1]}},
                            .out = {{"y", KIND_ACT, d[0] * d[1]}},
                            .saved = {{"rstd", KIND_STAT, d[0]}}};
    if (c->op == ATOM_OP_maxout)
        return (op_tensors){.in = {{"x", KIND_ACT, d[0] * d[1] * d[2]}},
                            .out = {{"y", KIND_ACT, d[0] * d[1]}}};
    if (c->op == ATOM_OP_swiglu || c->op == ATOM_OP_geglu)
        return (op_tensors){.in = {{"x", KIND_ACT, 2 * d[0] * d[1]}},
                            .out = {{"y", KIND_ACT, d[0] * d[1]}}};
    op_tensors t = {.in = {{"qkv", KIND_ACT, rows * qkv_heads(c, true) * D}},
                    .out = {{"y", KIND_ACT, rows * qkv_heads(c, true) * D}}};
    if (headnorm) {
        t.params[0] = (op_tensor){"wq", KIND_ACT, D};
        t.params[1] = (op_tensor){"wk", KIND_ACT, D};
        t.saved[0] = (op_tensor){"rstd", KIND_STAT, rows * qkv_heads(c, false)};
    }
    return t;
}

static op_tensors lora_tensors(const op_case *c)
{
    int64_t N = c->dim[0], W = c->dim[1], R = c->dim[2], O = c->dim[3];
    return (op_tensors){.in = {{"x", KIND_ACT, N * W}, {"r", KIND_ACT, N * R}},
                        .params = {{"b", KIND_ACT, O * R}},
                        .out = {{"y", KIND_ACT, N * W}}};
}

static op_tensors rownorm_tensors(const op_case *c)
{
    int64_t O = c->dim[0], I = c->dim[1], R = c->dim[2], first = c->dim[3];
    return (op_tensors){.params = {{"w", KIND_ACT, (first + O + 3) * I},
                                   {"a", KIND_ACT, R * I},
                                   {"b", KIND_ACT, O * R}},
                        .out = {{"n", KIND_STAT, O}}};
}

static op_tensors dora_tensors(const op_case *c)
{
    int64_t N = c->dim[0], W = c->dim[1], O = c->dim[2];
    return (op_tensors){.in = {{"x", KIND_ACT, N * W}, {"n", KIND_STAT, O}},
                        .params = {{"m", KIND_ACT, O}, {"c", KIND_ACT, has_bias(c) ? W : 0}},
                        .out = {{"y", KIND_ACT, N * W}}};
}

static op_tensors tensors_of(const op_case *c)
{
    const int64_t *d = c->dim;
    switch (c->op) {
    case ATOM_OP_embed:
        return (op_tensors){.in = {{"tokens", KIND_TOKEN, d[0] * d[1]}},
                            .params = {{"wte", KIND_ACT, d[3] * d[2]},
                                       {"wpe", KIND_ACT, d[4] ? 0 : (d[1] + 2) * d[2]}},
                            .out = {{"x", KIND_ACT, d[0] * d[1] * d[2]}}};
    case ATOM_OP_layernorm:
        return (op_tensors){.in = {{"x", KIND_ACT, d[0] * d[1]}},
                            .params = {{"w", KIND_ACT, d[1]}, {"b", KIND_ACT, d[1]}},
                            .out = {{"y", KIND_ACT, d[0] * d[1]}},
                            .saved = {{"mean", KIND_STAT, d[0]}, {"rstd", KIND_STAT, d[0]}}};
    case ATOM_OP_attention:
        return (op_tensors){.in = {{"qkv", KIND_ACT, d[0] * d[1] * qkv_heads(c, true) * d[3]}},
                            .out = {{"y", KIND_ACT, d[0] * d[1] * d[2] * d[3]}},
                            .saved = {{"lse", KIND_STAT, d[0] * d[2] * d[1]}}};
    case ATOM_OP_cross_entropy:
        return (op_tensors){
            .in = {{"logits", KIND_ACT, d[0] * d[1]}, {"targets", KIND_TARGET, d[0]}},
            .out = {{"loss", KIND_STAT, d[0]}}};
    case ATOM_OP_classifier:
        return (op_tensors){.in = {{"x", KIND_ACT, d[0] * d[1]}, {"targets", KIND_TARGET, d[0]}},
                            .params = {{"w", KIND_ACT, d[2] * d[1]}},
                            .out = {{"loss", KIND_STAT, d[0]}}};
    case ATOM_OP_linear:
    case ATOM_OP_linear_gelu:
        return linear_tensors(c, c->op == ATOM_OP_linear_gelu);
    case ATOM_OP_dropout:
    case ATOM_OP_gelu:
    case ATOM_OP_gelu_erf:
    case ATOM_OP_relu:
    case ATOM_OP_relu2:
    case ATOM_OP_silu:
    case ATOM_OP_scale:
        return elementwise(c, false);
    case ATOM_OP_compress:
        return (op_tensors){.in = {{"x", KIND_ACT, d[0] * d[1]}},
                            .out = {{"y", KIND_ACT, d[0] * d[1]}}};
    case ATOM_OP_add:
    case ATOM_OP_dropout_add:
        return elementwise(c, true);
    case ATOM_OP_rmsnorm:
    case ATOM_OP_headnorm:
    case ATOM_OP_rope:
    case ATOM_OP_swiglu:
    case ATOM_OP_maxout:
    case ATOM_OP_geglu:
        return llama_tensors(c);
    case ATOM_OP_lora:
        return lora_tensors(c);
    case ATOM_OP_rownorm:
        return rownorm_tensors(c);
    case ATOM_OP_dora:
        return dora_tensors(c);
    case ATOM_OP_N:
        break;
    }
    ATOM_ASSERT(!"every op of ops.def has its tensors here");
    return (op_tensors){0};
}

static void put_place(place **at, const op_tensor *t, place_use use, place_group group, int from)
{
    **at = (place){.name = t->name,
                   .kind = t->n ? t->kind : KIND_NONE,
                   .use = use,
                   .group = group,
                   .n = t->n,
                   .from = from};
    (*at)++;
}

static const op_tensor nothing = {"-", KIND_NONE, 0};

/* Gradients of in and params get their names with a d in front. */
static const char *d_name(const char *name)
{
    static const char *const names[][2] = {
        {"x", "dx"},     {"r", "dr"},     {"w", "dw"},     {"b", "db"},           {"y", "dy"},
        {"qkv", "dqkv"}, {"wte", "dwte"}, {"wpe", "dwpe"}, {"logits", "dlogits"}, {"wq", "dwq"},
        {"wk", "dwk"},   {"m", "dm"},     {"c", "dc"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i][0][0] == name[0] && names[i][0][1] == name[1] &&
            (name[1] == 0 || names[i][0][2] == name[2]))
            return names[i][1];
    }
    return name;
}

static op_tensor gradient_of(const op_tensor *t, place_kind kind)
{
    bool real = t->kind == KIND_ACT;
    return (op_tensor){real ? d_name(t->name) : "-", real ? kind : KIND_NONE, real ? t->n : 0};
}

void op_places(const op_case *c, bool backward, place places[KRN_BUF_MAX])
{
    const atom_op_info *row = atom_op_get(c->op);
    op_tensors t = tensors_of(c);
    bool terminal = row->flags & ATOM_OP_TERMINAL;
    uint32_t flags = op_args(c).flags;
    place *at = places;
    for (int i = 0; i < KRN_BUF_MAX; i++)
        places[i] = (place){.name = "-", .from = -1};
    for (int i = 0; i < row->ins; i++) {
        bool kept = !backward || (row->keeps & (i == 0 ? ATOM_KEEP_IN0 : ATOM_KEEP_IN1));
        put_place(&at, kept ? &t.in[i] : &nothing, USE_READ, GROUP_GIVEN, backward ? i : -1);
    }
    for (int i = 0; i < row->params_max; i++)
        put_place(&at, &t.params[i], USE_READ, GROUP_GIVEN, backward ? row->ins + i : -1);
    int out = row->ins + row->params_max;
    if (!backward || terminal)
        put_place(&at, &t.out[0], USE_WRITE, GROUP_OUT, -1);
    else
        put_place(&at, row->keeps & ATOM_KEEP_OUT ? &t.out[0] : &nothing, USE_READ, GROUP_GIVEN,
                  out);
    for (int i = 0; i < row->saved; i++)
        put_place(&at, &t.saved[i], backward ? USE_READ : USE_WRITE,
                  backward ? GROUP_GIVEN : GROUP_SAVED, backward ? out + 1 + i : -1);
    if (!backward)
        return;
    op_tensor d = gradient_of(&t.out[0], KIND_ACT);
    put_place(&at, terminal ? &nothing : &d, USE_READ, GROUP_GIVEN, -1);
    for (int i = 0; i < row->ins; i++) {
        d = gradient_of(&t.in[i], KIND_ACT);
        put_place(&at, &d, flags & (i == 0 ? KRN_ADD_D_IN0 : KRN_ADD_D_IN1) ? USE_ADD : USE_WRITE,
                  GROUP_D_IN, -1);
    }
    for (int i = 0; i < row->params_max; i++) {
        d = gradient_of(&t.params[i], KIND_STAT);
        put_place(&at, &d, USE_ADD, GROUP_D_PARAM, -1);
    }
}

/* Plain; a part of every head, divided, by one number or by one each, with a gain; llama3 with
 * frequencies on all three sides of its limits; YaRN likewise. */
static atom_rope rope_of(const op_case *c)
{
    static const atom_rope ropes[VARIANT_N] = {
        {.theta = 1e4f, .factor = 1},
        {.theta = 1e4f, .factor = 4, .gain = 1.25f},
        {.theta = 5e5f, .factor = 8, .low = 1, .high = 4, .original = 64},
        {.theta = 1e4f,
         .factor = 4,
         .low = 1,
         .high = 8,
         .original = 256,
         .gain = 1.1f,
         .yarn = 1}};
    atom_rope rope = ropes[c->variant];
    int64_t D = c->dim[3];
    if (c->variant == 1 && D > 2) {
        rope.width = (int32_t)(D * 3 / 8 * 2);
        rope.factor = rope.width / 2 > ATOM_ROPE_DIVISORS_MAX ? 4 : 1;
        for (int i = 0; rope.factor == 1 && i < rope.width / 2; i++)
            rope.divisors[i] = 1 + 0.25f * (float)i;
    }
    return rope;
}

krn_args op_args(const op_case *c)
{
    static const uint32_t flags[VARIANT_N] = {0, KRN_ADD_D_IN0 | KRN_ADD_D_IN1, KRN_ADD_D_IN1,
                                              KRN_ADD_D_IN0};
    static const float ps[VARIANT_N] = {0.0f, 0.1f, 0.3f, 0.75f};
    krn_args args = {.eps = 1e-5f, .flags = flags[c->variant], .rng = 7 + c->variant};
    bool random = atom_op_get(c->op)->flags & ATOM_OP_RANDOM;
    args.p = random && c->op != ATOM_OP_compress ? ps[c->variant] : 0.0f;
    if (c->op == ATOM_OP_rope)
        args.rope = rope_of(c);
    static const float scales[VARIANT_N] = {1, 2, 0.3f, 16};
    if (c->op == ATOM_OP_lora || c->op == ATOM_OP_rownorm || c->op == ATOM_OP_scale)
        args.scale = scales[c->variant];
    if (c->op == ATOM_OP_scale && c->variant == 1)
        args.scale = -1;
    if (c->op == ATOM_OP_attention && c->variant == 2) /* the others: 1/sqrt(D) */
        args.scale = 0.15f;
    if (c->op == ATOM_OP_rmsnorm || c->op == ATOM_OP_headnorm)
        args.lift = c->variant % 2 ? 1.0f : 0.0f;
    static const float score_caps[VARIANT_N] = {0, 1.5f, 0, 4},
                       logit_caps[VARIANT_N] = {0, 6, 0, 3};
    if (c->op == ATOM_OP_attention)
        args.cap = score_caps[c->variant];
    if (c->op == ATOM_OP_cross_entropy || c->op == ATOM_OP_classifier)
        args.cap = logit_caps[c->variant];
    static const float shares[VARIANT_N] = {0.1f, 0.5f, 0.01f, 1};
    if (c->op == ATOM_OP_compress)
        args.scale = shares[c->variant];
    for (int i = 0; i < KRN_DIM_MAX; i++)
        args.dim[i] = c->dim[i];
    return args;
}

krn_step op_step(const op_case *c)
{
    return (krn_step){.seed = 0x1234567890abcdefu + c->variant,
                      .step = 1 + 3 * c->variant,
                      .micro_batch = c->variant,
                      .loss_scale = c->variant ? 1.0f / 37.0f : 1.0f,
                      .train = c->variant != 2};
}

const char *op_case_name(const op_case *c, char *text, size_t bytes)
{
    int used = snprintf(text, bytes, "%s ", atom_op_get(c->op)->name);
    for (int i = 0; i < KRN_DIM_MAX && c->dim[i]; i++)
        used += snprintf(text + used, bytes - (size_t)used, "%s%lld", i ? "x" : "",
                         (long long)c->dim[i]);
    snprintf(text + used, bytes - (size_t)used, "%s v%u", c->apart ? " apart" : "", c->variant);
    return text;
}
