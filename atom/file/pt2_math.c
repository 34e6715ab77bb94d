/*
 * Owns arithmetic: sums, products, powers. One idea: between known numbers it is computed; between
 * activations it is a residual sum, or one more word of a pattern (x * x, mean, + eps, rsqrt, * x,
 * * weight is an RMS norm; x * sigmoid(x) is SiLU; x cos + rotated x sin turns heads). Refuses what
 * continues no pattern.
 */
#include "atom/file/pt2_inner.h"

#include <math.h>
#include <string.h>

static bool is(const pt2_value *v, pt2_kind kind)
{
    return v && v->kind == kind;
}

/* The very same tensor? */
static bool same(const pt2_value *a, const pt2_value *b)
{
    return a == b || (a->kind == PT2_ACT && b->kind == PT2_ACT && a->base == b->base &&
                      a->norm == b->norm && pt2_view_same(&a->v, &b->v));
}

/* The next word of a pattern that began at `a`. */
static atom_status word(pt2_eval *e, pt2_kind kind, const pt2_value *like, const pt2_value *a)
{
    pt2_value *v;
    ATOM_TRY(pt2_value_copy(e, like, &v));
    v->kind = kind;
    v->a = a;
    return pt2_result(e, 0, v);
}

static atom_status no_pattern(const pt2_eval *e)
{
    return pt2_refuse(e, "on activations, this is not part of a pattern that atom knows (residual "
                         "sum, RMS norm, SwiGLU, rotary embedding, attention)");
}

/* Both sides; a plain number becomes a table of one. */
static atom_status take_two(pt2_eval *e, const pt2_value **a, const pt2_value **b)
{
    const char *const names[2] = {"self", pt2_arg(e, "exponent") ? "exponent" : "other"};
    const pt2_value **const to[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        pt2_value *made = NULL;
        double x;
        *to[i] = pt2_tensor_arg(e, names[i]);
        if (!*to[i] && pt2_number_arg(e, names[i], &x)) {
            ATOM_TRY(pt2_const_number(e, x, &made));
            *to[i] = made;
        }
        if (!*to[i])
            return pt2_refuse(e, "one of its sides is not known");
    }
    return ATOM_OK;
}

/* A table of one number. */
static bool number_of(const pt2_eval *e, const pt2_value *v, double *x)
{
    if (!is(v, PT2_CONST) || pt2_view_elements(&v->v) != 1)
        return false;
    *x = e->consts[v->base].data[v->v.offset];
    return true;
}

/* A number times whole rows, as of a scaled embedding or residual: not a step of a rotation. */
static bool scales_rows(const pt2_eval *e, const pt2_value *v)
{
    int64_t first, n;
    return is(v, PT2_ACT) && v->v.rank <= 3 && pt2_columns(e, v, &first, &n) &&
           n == e->bases[v->base].width;
}

static atom_status scale_rows(pt2_eval *e, const pt2_value *v, double by)
{
    if (!(by > 0 && by < 1e30))
        return pt2_refuse(e, "it multiplies activations by %g; only numbers above 0 are supported",
                          by);
    return pt2_map(e, ATOM_OP_scale, by, v);
}

static atom_status times_const(pt2_eval *e, const pt2_value *v, const pt2_value *c)
{
    double x = 0;
    pt2_value *out;
    bool number = number_of(e, c, &x);
    atom_status st;
    if (number && pt2_cubic_goes_on(v, '*', x))
        return pt2_cubic_step(e, v);
    if (is(v, PT2_MAP)) {
        ATOM_TRY(pt2_map_now(e, v, &out));
        v = out;
    }
    if (scales_rows(e, v) && number && x != 1)
        return scale_rows(e, v, x);
    if (is(v, PT2_SCORES) && number)
        return pt2_scale_scores(e, v, x);
    if (is(v, PT2_TANH) && number)
        return pt2_cap(e, v, x);
    if (!is(v, PT2_ACT) && !is(v, PT2_TURN))
        return no_pattern(e);
    st = number && x == 1 ? pt2_value_copy(e, v, &out) : pt2_turn_scale(e, v, c, &out);
    if (st == ATOM_OK && v->turn && !out->turn)
        st = pt2_turn_of(e, v, &out);
    return st == ATOM_OK ? pt2_result(e, 0, out) : st;
}

static atom_status op_mul(pt2_eval *e)
{
    const pt2_value *a, *b, *swap;
    ATOM_TRY(take_two(e, &a, &b));
    if (is(a, PT2_CONST) && is(b, PT2_CONST) && !a->complex && !b->complex)
        return pt2_const_binary(e, a, b);
    if (a->kind < b->kind) { /* the later word of a pattern first */
        swap = a;
        a = b;
        b = swap;
    }
    if (a->complex || b->complex) {
        pt2_value *v;
        ATOM_TRY(pt2_turn_complex(e, a, b, &v));
        return pt2_result(e, 0, v);
    }
    if (is(b, PT2_CONST))
        return times_const(e, a, b);
    if (is(a, PT2_ACT) && is(b, PT2_ACT) && same(a, b))
        return word(e, PT2_SQUARE, a, a);
    if (is(a, PT2_RSTD) && is(b, PT2_ACT) && same(a->a, b)) {
        pt2_value *v;
        ATOM_TRY(pt2_value_copy(e, b, &v));
        v->kind = PT2_NORMED;
        v->a = b;
        v->eps = a->eps;
        return pt2_result(e, 0, v);
    }
    if (is(a, PT2_NORMED) && is(b, PT2_PARAM))
        return pt2_norm_weight(e, a, b);
    if (is(a, PT2_SIGMOID) && is(b, PT2_ACT) && same(a->a, b))
        return pt2_map(e, ATOM_OP_silu, 0, b);
    if (is(a, PT2_MAP) || is(a, PT2_CUBIC))
        return pt2_map_times(e, a, b);
    if (is(a, PT2_ACT) && is(b, PT2_ACT))
        return pt2_refuse(e, "it multiplies activations by others, which atom knows only as "
                             "F.silu(gate) * up (SwiGLU) and F.gelu(gate, approximate=\"tanh\") * "
                             "up (GEGLU); other gates are not supported");
    return no_pattern(e);
}

static atom_status op_div(pt2_eval *e)
{
    const pt2_value *a, *b;
    double x;
    ATOM_TRY(take_two(e, &a, &b));
    if (is(a, PT2_CONST) && is(b, PT2_CONST) && !pt2_arg(e, "rounding_mode"))
        return pt2_const_binary(e, a, b);
    if (is(a, PT2_SCORES) && number_of(e, b, &x))
        return pt2_scale_scores(e, a, 1 / x);
    if (scales_rows(e, a) && number_of(e, b, &x))
        return scale_rows(e, a, 1 / x);
    if (is(a, PT2_ACT) && is(b, PT2_ROOT) && same(b->a, a)) {
        pt2_value *v;
        ATOM_TRY(pt2_value_copy(e, a, &v));
        v->kind = PT2_NORMED;
        v->a = a;
        v->eps = b->eps;
        return pt2_result(e, 0, v);
    }
    return no_pattern(e);
}

static atom_status op_add(pt2_eval *e)
{
    const pt2_value *a, *b, *swap;
    double x;
    atom_status st = ATOM_OK;
    ATOM_TRY(take_two(e, &a, &b));
    if (is(a, PT2_CONST) && is(b, PT2_CONST))
        return pt2_const_binary(e, a, b);
    if (pt2_real_arg(e, "alpha", 1) != 1)
        return pt2_refuse(e, "alpha other than 1 is not supported");
    if (a->kind < b->kind) {
        swap = a;
        a = b;
        b = swap;
    }
    if (is(a, PT2_MEAN) && number_of(e, b, &x)) {
        pt2_value *v;
        ATOM_TRY(pt2_value_copy(e, a, &v));
        v->kind = PT2_MEANEPS;
        v->eps = x;
        return pt2_result(e, 0, v);
    }
    if (is(a, PT2_SCORES) && is(b, PT2_CONST))
        return pt2_mask_scores(e, a, b, true);
    if (number_of(e, b, &x)
            ? pt2_cubic_goes_on(a, '+', x)
            : is(b, PT2_ACT) && is(a, PT2_CUBIC) && same(a->a, b) && pt2_cubic_goes_on(a, 'x', 0))
        return pt2_cubic_step(e, a);
    if (is(a, PT2_ACT) && (is(b, PT2_PLACES) || is(b, PT2_PARAM)))
        return pt2_add_places(e, a, b);
    if (is(a, PT2_TURN) && (is(b, PT2_TURN) || is(b, PT2_ACT))) {
        pt2_value *v;
        st = pt2_turn_add(e, a, b, 1, &v);
        return st == ATOM_OK ? pt2_result(e, 0, v) : st;
    }
    if (is(a, PT2_ACT) && is(b, PT2_ACT))
        return pt2_residual(e, a, b);
    return no_pattern(e);
}

static atom_status op_sub(pt2_eval *e)
{
    const pt2_value *a, *b;
    pt2_value *v;
    atom_status st = ATOM_OK;
    ATOM_TRY(take_two(e, &a, &b));
    if (is(a, PT2_CONST) && is(b, PT2_CONST))
        return pt2_const_binary(e, a, b);
    if (!(is(a, PT2_TURN) || is(a, PT2_ACT)) || !(is(b, PT2_TURN) || is(b, PT2_ACT)) ||
        pt2_real_arg(e, "alpha", 1) != 1 || (is(a, PT2_ACT) && is(b, PT2_ACT)))
        return no_pattern(e);
    st = pt2_turn_add(e, a, b, -1, &v);
    return st == ATOM_OK ? pt2_result(e, 0, v) : st;
}

static atom_status op_pow(pt2_eval *e)
{
    const pt2_value *a, *b;
    double x;
    ATOM_TRY(take_two(e, &a, &b));
    if (is(a, PT2_CONST) && is(b, PT2_CONST))
        return pt2_const_binary(e, a, b);
    if (!number_of(e, b, &x))
        return no_pattern(e);
    if (is(a, PT2_ACT) && x == 2)
        return word(e, PT2_SQUARE, a, a);
    if (is(a, PT2_ACT) && x == 3)
        return pt2_cubic_step(e, a);
    if (is(a, PT2_MAP) && a->op == ATOM_OP_relu && x == 2)
        return pt2_map_times(e, a, a);
    if (is(a, PT2_MEANEPS) && x == -0.5)
        return word(e, PT2_RSTD, a, a->a);
    if (is(a, PT2_MEANEPS) && x == 0.5)
        return word(e, PT2_ROOT, a, a->a);
    return no_pattern(e);
}

/* eq, lt, ...: of known numbers. */
static atom_status op_compare(pt2_eval *e)
{
    const pt2_value *a, *b;
    ATOM_TRY(take_two(e, &a, &b));
    return is(a, PT2_CONST) && is(b, PT2_CONST) ? pt2_const_binary(e, a, b) : no_pattern(e);
}

static atom_status op_unary(pt2_eval *e)
{
    const pt2_value *x = pt2_tensor_arg(e, "self");
    const char *target = json_string_value(json_object_get(e->node, "target"));
    pt2_value *minus, *v;
    if (is(x, PT2_CONST))
        return pt2_const_unary(e, x);
    if (is(x, PT2_MEANEPS) && strstr(target, ".rsqrt."))
        return word(e, PT2_RSTD, x, x->a);
    if (is(x, PT2_MEANEPS) && strstr(target, ".sqrt."))
        return word(e, PT2_ROOT, x, x->a);
    if (is(x, PT2_ROOT) && strstr(target, ".reciprocal."))
        return word(e, PT2_RSTD, x, x->a);
    if ((is(x, PT2_ACT) || is(x, PT2_TURN)) && strstr(target, ".neg.")) {
        atom_status st = pt2_const_number(e, -1, &minus);
        if (st == ATOM_OK)
            st = pt2_turn_scale(e, x, minus, &v);
        return st == ATOM_OK ? pt2_result(e, 0, v) : st;
    }
    return no_pattern(e);
}

/* The mean over the last axis, which stays. */
static atom_status op_mean(pt2_eval *e)
{
    const pt2_value *x = pt2_tensor_arg(e, "self");
    int64_t dims[PT2_RANK_MAX];
    int n = pt2_ints_arg(e, "dim", dims, PT2_RANK_MAX);
    if (!is(x, PT2_SQUARE) || n != 1 || pt2_dim(dims[0], x->v.rank) != x->v.rank - 1 ||
        !pt2_bool_arg(e, "keepdim", false))
        return pt2_refuse(e, "supported only over the squares along the last axis (keepdim=True), "
                             "as in an RMS norm");
    return word(e, PT2_MEAN, x, x->a);
}

static atom_status op_square(pt2_eval *e)
{
    const pt2_value *x = pt2_tensor_arg(e, "self");
    if (is(x, PT2_MAP))
        return pt2_map_times(e, x, x);
    return is(x, PT2_ACT) ? word(e, PT2_SQUARE, x, x) : no_pattern(e);
}

/* Along an axis: known numbers, or columns of heads; stack makes the axis. */
static atom_status op_cat(pt2_eval *e)
{
    const pt2_value *parts[64];
    size_t n = 0;
    bool stacked = strstr(json_string_value(json_object_get(e->node, "target")), "stack") != NULL;
    bool known = true;
    while (n < 64 && (parts[n] = pt2_list_arg(e, "tensors", n)))
        known &= parts[n++]->kind == PT2_CONST;
    if (n == 0 || n == 64 || parts[0]->v.rank + stacked > PT2_RANK_MAX)
        return pt2_refuse(e, "what it joins is not known");
    int rank = parts[0]->v.rank + stacked, dim = pt2_dim(pt2_int_arg(e, "dim", 0), rank);
    pt2_value *v;
    atom_status st = ATOM_OK;
    if (dim < 0 || (!known && dim != rank - 1))
        return pt2_refuse(e, "its axis is not the last");
    if (!known) {
        st = pt2_turn_cat(e, parts, n, stacked, &v);
        return st == ATOM_OK ? pt2_result(e, 0, v) : st;
    }
    for (size_t i = 0; i < n && stacked; i++) {
        ATOM_TRY(pt2_value_copy(e, parts[i], &v));
        if (v->v.rank < dim || !pt2_view_insert(&v->v, dim))
            return pt2_refuse(e, "the shapes of its operands do not match");
        parts[i] = v;
    }
    return pt2_const_cat(e, parts, n, dim);
}

static atom_status op_where(pt2_eval *e)
{
    const pt2_value *mask = pt2_tensor_arg(e, "condition"), *a, *b;
    ATOM_TRY(take_two(e, &a, &b));
    if (is(mask, PT2_CONST) && is(a, PT2_CONST) && is(b, PT2_CONST))
        return pt2_const_choose(e, mask, a, b);
    return no_pattern(e);
}

/* masked_fill_: the numbers themselves change, for all that are views of them. */
static atom_status fill_in_place(pt2_eval *e, const pt2_value *x, const pt2_value *mask,
                                 double with)
{
    int64_t at[PT2_RANK_MAX] = {0};
    pt2_value *v;
    pt2_view m;
    if (!pt2_view_expand(&mask->v, x->v.rank, x->v.size, &m))
        return pt2_refuse(e, "the shapes of its operands do not match");
    do
        if (e->consts[mask->base].data[pt2_view_place(&m, at)] != 0)
            e->consts[x->base].data[pt2_view_place(&x->v, at)] = with;
    while (pt2_view_next(&x->v, at));
    ATOM_TRY(pt2_value_copy(e, x, &v));
    return pt2_result(e, 0, v);
}

static atom_status op_masked_fill(pt2_eval *e)
{
    const pt2_value *x = pt2_tensor_arg(e, "self"), *mask = pt2_tensor_arg(e, "mask");
    double with;
    pt2_value *v;
    if (!is(mask, PT2_CONST) || !pt2_number_arg(e, "value", &with))
        return pt2_refuse(e, "its mask is not known before the tokens are");
    if (is(x, PT2_SCORES) && with < -1e4)
        return pt2_mask_scores(e, x, mask, false);
    if (!is(x, PT2_CONST))
        return no_pattern(e);
    if (strstr(json_string_value(json_object_get(e->node, "target")), "fill_."))
        return fill_in_place(e, x, mask, with);
    atom_status st = pt2_const_number(e, with, &v);
    return st == ATOM_OK ? pt2_const_choose(e, mask, v, x) : st;
}

/* To another type: known numbers are cut to whole ones, activations stay what they are. */
static atom_status op_to(pt2_eval *e)
{
    const pt2_value *x = pt2_tensor_arg(e, "self");
    const json_t *type = json_object_get(pt2_arg(e, "dtype"), "as_scalar_type");
    const json_t *like = pt2_arg(e, "other");
    json_int_t to = json_integer_value(type);
    pt2_value *v;
    if (!x)
        return pt2_refuse(e, "what it takes is not known");
    if (!is(x, PT2_CONST) && type && to != PT2_F32 && !like)
        return pt2_refuse(e, "it changes the type of activations; leave precision to atom "
                             "(--dtype), and export the model in float32");
    if (x->complex && type && to != PT2_C64 && to != PT2_C128)
        return pt2_refuse(e, "it makes complex numbers real; write torch.view_as_real");
    atom_status st = is(x, PT2_CONST) ? pt2_const_pack(e, x, &v) : pt2_value_copy(e, x, &v);
    if (st == ATOM_OK)
        v->complex = x->complex;
    if (st == ATOM_OK && x->turn)
        st = pt2_turn_of(e, x, &v);
    for (int64_t i = 0; st == ATOM_OK && is(v, PT2_CONST) && i < e->consts[v->base].n; i++) {
        double *at = &e->consts[v->base].data[i];
        *at = to == PT2_BOOL ? *at != 0 : type && to < PT2_F16 ? trunc(*at) : *at;
    }
    return st == ATOM_OK ? pt2_result(e, 0, v) : st;
}

const pt2_op pt2_math_ops[] = {
    {"aten.mul.Tensor", op_mul},
    {"aten.mul.Scalar", op_mul},
    {"aten.div.Tensor", op_div},
    {"aten.div.Scalar", op_div},
    {"aten.add.Tensor", op_add},
    {"aten.add.Scalar", op_add},
    {"aten.add_.Tensor", op_add},
    {"aten.sub.Tensor", op_sub},
    {"aten.sub.Scalar", op_sub},
    {"aten.pow.Tensor_Scalar", op_pow},
    {"aten.pow.Tensor_Tensor", op_pow},
    {"aten.pow.Scalar", op_pow},
    {"aten.square.default", op_square},
    {"aten.eq.Scalar", op_compare},
    {"aten.eq.Tensor", op_compare},
    {"aten.ne.Scalar", op_compare},
    {"aten.lt.Tensor", op_compare},
    {"aten.lt.Scalar", op_compare},
    {"aten.le.Tensor", op_compare},
    {"aten.le.Scalar", op_compare},
    {"aten.gt.Tensor", op_compare},
    {"aten.gt.Scalar", op_compare},
    {"aten.ge.Tensor", op_compare},
    {"aten.ge.Scalar", op_compare},
    {"aten.cos.default", op_unary},
    {"aten.sin.default", op_unary},
    {"aten.exp.default", op_unary},
    {"aten.log.default", op_unary},
    {"aten.sqrt.default", op_unary},
    {"aten.abs.default", op_unary},
    {"aten.floor.default", op_unary},
    {"aten.rsqrt.default", op_unary},
    {"aten.neg.default", op_unary},
    {"aten.reciprocal.default", op_unary},
    {"aten.logical_not.default", op_unary},
    {"aten.bitwise_not.default", op_unary},
    {"aten.mean.dim", op_mean},
    {"aten.cat.default", op_cat},
    {"aten.concat.default", op_cat},
    {"aten.stack.default", op_cat},
    {"aten.where.self", op_where},
    {"aten.where.ScalarSelf", op_where},
    {"aten.where.ScalarOther", op_where},
    {"aten.where.Scalar", op_where},
    {"aten.masked_fill.Scalar", op_masked_fill},
    {"aten.masked_fill_.Scalar", op_masked_fill},
    {"aten.to.dtype", op_to},
    {"aten.to.dtype_layout", op_to},
    {"aten.to.device", op_to},
    {"aten.to.other", op_to},
    {"aten._to_copy.default", op_to},
    {"aten.type_as.default", op_to},
    {NULL, NULL},
};
