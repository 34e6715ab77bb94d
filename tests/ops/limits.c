/*
 * The one table of limits, with the reason for each. An error is ||a - b|| / max(||b||, 1e-5
 * sqrt(n)); check.c also bounds each element by a multiple of it. One idea beside the table: on a
 * card the sums of matrix products are the library's, so there the limit grows with their terms.
 */
#include "tests/ops/checkop.h"

#include <math.h>

typedef struct limit {
    atom_op op;
    place_group group;
    float fp32, bf16;
    const char *reason;
} limit;

/* "once": the value is computed in f32 and rounded once; f32 noise flips few last bits of bf16. */
static const limit limits[] = {
    {ATOM_OP_embed, GROUP_OUT, 1e-7f, 1e-5f, "one addition, exact up to the rounding"},
    {ATOM_OP_embed, GROUP_D_PARAM, 1e-6f, 1e-6f, "f32 sums of act values"},
    {ATOM_OP_dropout, GROUP_OUT, 2e-7f, 1e-3f, "one product, once"},
    {ATOM_OP_dropout, GROUP_D_IN, 2e-7f, 2e-3f,
     "10/9 of bf16 plus bf16 is often a tie in f32, not in f64"},
    {ATOM_OP_layernorm, GROUP_OUT, 2e-6f, 1e-3f, "f32 sums of a row, once"},
    {ATOM_OP_layernorm, GROUP_SAVED, 2e-6f, 2e-6f, "f32 sums of a row, kept in f32"},
    {ATOM_OP_layernorm, GROUP_D_IN, 5e-6f, 1e-3f, "f32 sums of a row cancel, once"},
    {ATOM_OP_layernorm, GROUP_D_PARAM, 5e-6f, 5e-6f, "f32 sums over rows"},
    {ATOM_OP_linear, GROUP_OUT, 2e-6f, 1e-3f, "f32 sums, once"},
    {ATOM_OP_linear, GROUP_D_IN, 2e-6f, 1e-3f, "f32 sums, once"},
    {ATOM_OP_linear, GROUP_D_PARAM, 2e-6f, 2e-6f, "f32 sums, kept in f32"},
    {ATOM_OP_gelu, GROUP_OUT, 1e-6f, 1e-3f, "f32 tanh, once"},
    {ATOM_OP_gelu, GROUP_D_IN, 2e-6f, 1e-3f, "f32 tanh, once"},
    {ATOM_OP_attention, GROUP_OUT, 5e-6f, 5e-3f, "probabilities may be rounded to act"},
    {ATOM_OP_attention, GROUP_SAVED, 2e-6f, 2e-6f, "f32 scores and sums"},
    {ATOM_OP_attention, GROUP_D_IN, 1e-5f, 1e-2f, "P and dS may be rounded to act"},
    {ATOM_OP_add, GROUP_OUT, 1e-7f, 1e-5f, "one addition"},
    {ATOM_OP_add, GROUP_D_IN, 1e-7f, 1e-5f, "at most one addition"},
    {ATOM_OP_cross_entropy, GROUP_OUT, 2e-6f, 2e-6f, "f32 exp and log, kept in f32"},
    {ATOM_OP_cross_entropy, GROUP_D_IN, 5e-6f, 1e-3f, "f32 exp, once"},
    {ATOM_OP_linear_gelu, GROUP_OUT, 2e-6f, 5e-3f,
     "u is rounded first, and gelu's slope amplifies it"},
    {ATOM_OP_linear_gelu, GROUP_SAVED, 2e-6f, 1e-3f, "f32 sums, once"},
    {ATOM_OP_linear_gelu, GROUP_D_IN, 5e-6f, 5e-3f, "du may be rounded to act"},
    {ATOM_OP_linear_gelu, GROUP_D_PARAM, 5e-6f, 5e-3f, "du may be rounded to act"},
    {ATOM_OP_dropout_add, GROUP_OUT, 2e-7f, 2e-3f,
     "10/9 of bf16 plus bf16 is often a tie in f32, not in f64"},
    {ATOM_OP_dropout_add, GROUP_D_IN, 2e-7f, 2e-3f, "as its output"},
    {ATOM_OP_classifier, GROUP_OUT, 2e-6f, 2e-6f, "f32 logits, never rounded"},
    {ATOM_OP_classifier, GROUP_D_IN, 2e-5f, 1e-2f, "p - 1 cancels; dlogits may be rounded to act"},
    {ATOM_OP_classifier, GROUP_D_PARAM, 1e-5f, 1e-2f, "dlogits may be rounded to act"},
    {ATOM_OP_rmsnorm, GROUP_OUT, 2e-6f, 1e-3f, "f32 sums of a row, once"},
    {ATOM_OP_rmsnorm, GROUP_SAVED, 2e-6f, 2e-6f, "f32 sums of a row, kept in f32"},
    {ATOM_OP_rmsnorm, GROUP_D_IN, 5e-6f, 1e-3f, "f32 sums of a row cancel, once"},
    {ATOM_OP_rmsnorm, GROUP_D_PARAM, 5e-6f, 5e-6f, "f32 sums over rows"},
    {ATOM_OP_headnorm, GROUP_OUT, 2e-6f, 1e-3f, "f32 sums of a head, once"},
    {ATOM_OP_headnorm, GROUP_SAVED, 2e-6f, 2e-6f, "f32 sums of a head, kept in f32"},
    {ATOM_OP_headnorm, GROUP_D_IN, 5e-6f, 1e-3f, "f32 sums of a head cancel, once"},
    {ATOM_OP_headnorm, GROUP_D_PARAM, 5e-6f, 5e-6f, "f32 sums over rows and heads"},
    {ATOM_OP_rope, GROUP_OUT, 5e-7f, 1e-3f, "sine and cosine rounded to f32, once"},
    {ATOM_OP_rope, GROUP_D_IN, 5e-7f, 1e-3f, "as its output"},
    {ATOM_OP_swiglu, GROUP_OUT, 1e-6f, 1e-3f, "f32 exp, once"},
    {ATOM_OP_swiglu, GROUP_D_IN, 2e-6f, 1e-3f, "f32 exp, once"},
    {ATOM_OP_geglu, GROUP_OUT, 1e-6f, 1e-3f, "f32 tanh, once"},
    {ATOM_OP_geglu, GROUP_D_IN, 2e-6f, 1e-3f, "f32 tanh, once"},
    {ATOM_OP_maxout, GROUP_OUT, 1e-7f, 1e-5f, "exact"},
    {ATOM_OP_maxout, GROUP_D_IN, 1e-7f, 1e-5f, "at most one addition"},
    {ATOM_OP_gelu_erf, GROUP_OUT, 2e-6f, 1e-3f, "f32 erfc, once"},
    {ATOM_OP_gelu_erf, GROUP_D_IN, 3e-6f, 1e-3f, "f32 erfc and exp, once"},
    {ATOM_OP_relu, GROUP_OUT, 1e-7f, 1e-5f, "exact"},
    {ATOM_OP_relu, GROUP_D_IN, 1e-7f, 1e-5f, "at most one addition"},
    {ATOM_OP_relu2, GROUP_OUT, 2e-7f, 1e-3f, "one product"},
    {ATOM_OP_relu2, GROUP_D_IN, 3e-7f, 2e-3f, "two products, at most one addition"},
    {ATOM_OP_silu, GROUP_OUT, 1e-6f, 1e-3f, "f32 exp, once"},
    {ATOM_OP_silu, GROUP_D_IN, 2e-6f, 1e-3f, "f32 exp, once"},
    {ATOM_OP_scale, GROUP_OUT, 2e-7f, 2e-3f, "one product"},
    {ATOM_OP_scale, GROUP_D_IN, 3e-7f, 2e-3f, "one product, at most one addition"},
    {ATOM_OP_compress, GROUP_OUT, 1e-7f, 1e-5f, "the same f32 operations, once"},
    {ATOM_OP_compress, GROUP_D_IN, 1e-7f, 2e-3f, "as its output, at most one addition"},
    {ATOM_OP_lora, GROUP_OUT, 2e-6f, 1e-3f, "f32 sums, once"},
    {ATOM_OP_lora, GROUP_D_IN, 2e-6f, 1e-3f, "f32 sums, once"},
    {ATOM_OP_lora, GROUP_D_PARAM, 2e-6f, 2e-6f, "f32 sums, kept in f32"},
    {ATOM_OP_rownorm, GROUP_OUT, 2e-6f, 2e-6f, "f32 sums, kept in f32"},
    {ATOM_OP_dora, GROUP_OUT, 1e-6f, 1e-3f, "a quotient and a product, once"},
    {ATOM_OP_dora, GROUP_D_IN, 1e-6f, 1e-3f, "a quotient and a product, once"},
    {ATOM_OP_dora, GROUP_D_PARAM, 2e-6f, 2e-6f, "f32 sums, kept in f32"},
};

double op_limit(atom_op op, place_group group, atom_dtype dtype)
{
    if (dtype == ATOM_F64)
        return 1e-12; /* the same sums in another order */
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        if (limits[i].op == op && limits[i].group == group)
            return (double)(dtype == ATOM_F32 ? limits[i].fp32 : limits[i].bf16);
    }
    return -1.0;
}

/* How many products one element of a tensor is the sum of; 0: it is not a matrix product's. */
static int64_t terms_of(const op_case *c, place_group group)
{
    const int64_t *dim = c->dim; /* linear: N I O; classifier: N C V; lora: N W R O */
    bool linear = c->op == ATOM_OP_linear || c->op == ATOM_OP_linear_gelu;
    bool lora = c->op == ATOM_OP_lora;
    if (!linear && !lora && c->op != ATOM_OP_classifier)
        return 0;
    if (group == GROUP_D_PARAM)
        return dim[0];
    if (group == GROUP_D_IN)
        return lora ? dim[3] : dim[2];
    return lora ? dim[2] : dim[1];
}

/*
 * fp32: K terms one after the other. Partial sums grow as sqrt(i), each addition rounds by 2^-25 of
 * its sum on average, so the error is 2^-25 sqrt(K / 2) of the result: four times that. bf16, kept in
 * f32: tensor cores cut off what they align. Simulated (16 products at a time, cut to 24 bits):
 * 2.5e-6 at K 2051, 1.1e-5 at K 8192, so 1.3e-9 K: three times that. What is rounded to bf16 once
 * needs no more room. Where it is added to something, cuBLASLt's kernels for Hopper round the product
 * to bf16 before they add it, and then the sum (seen on an H200: up to 2.5e-3).
 */
double op_limit_on_card(const op_case *c, place_group group, atom_dtype dtype, bool added)
{
    double usual = op_limit(c->op, group, dtype), K = (double)terms_of(c, group);
    if (dtype == ATOM_F32)
        return fmax(usual, 4 * 0x1p-25 * sqrt(K / 2));
    bool kept = group == GROUP_D_PARAM || (c->op == ATOM_OP_classifier && group == GROUP_OUT);
    if (kept)
        return fmax(usual, 4e-9 * K);
    added = added || (c->op == ATOM_OP_lora && group == GROUP_OUT); /* to the base's output */
    return added && K > 0 ? fmax(usual, 4e-3) : usual;
}
