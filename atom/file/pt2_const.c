/*
 * Owns numbers that are known before any token is: positions, masks, tables of angles. One idea:
 * compute them in double, element by element, through views. Refuses tables so large that they are
 * none.
 */
#include "atom/file/pt2_inner.h"

#include "atom/base/mem.h"

#include <math.h>
#include <string.h>

atom_status pt2_const_new(pt2_eval *e, int rank, const int64_t *sizes, pt2_value **out,
                          double **data)
{
    pt2_value *v = pt2_value_new(e);
    if (!v)
        return atom_fail_memory("a value", sizeof *v);
    if (!pt2_view_packed(rank, sizes, &v->v) || pt2_view_elements(&v->v) > PT2_CONST_MAX)
        return pt2_refuse(e,
                          "a table of numbers would be larger than 2^26, or has no shape; export "
                          "with a shorter example");
    int64_t n = pt2_view_elements(&v->v);
    e->const_numbers += n;
    if (e->const_numbers > PT2_CONSTS_MAX)
        return pt2_refuse(e, "its tables of numbers are larger than 2^28 together; export with a "
                             "shorter example");
    ATOM_TRY(atom_grow(&e->consts, e->n_consts, &e->consts_room, sizeof *e->consts));
    double *made = atom_alloc((size_t)n, sizeof *made);
    if (!made)
        return atom_fail_memory("a table of numbers", (uint64_t)n * sizeof *made);
    v->kind = PT2_CONST;
    v->base = (int32_t)e->n_consts;
    e->consts[e->n_consts++] = (pt2_const){made, n};
    *out = v;
    *data = made;
    return ATOM_OK;
}

double pt2_const_at(const pt2_eval *e, const pt2_value *v, const int64_t at[PT2_RANK_MAX])
{
    return e->consts[v->base].data[pt2_view_place(&v->v, at)];
}

atom_status pt2_const_pack(pt2_eval *e, const pt2_value *v, pt2_value **out)
{
    int64_t at[PT2_RANK_MAX] = {0}, i = 0;
    double *data;
    ATOM_TRY(pt2_const_new(e, v->v.rank, v->v.size, out, &data));
    do
        data[i++] = pt2_const_at(e, v, at);
    while (pt2_view_next(&v->v, at));
    return ATOM_OK;
}

/* --- one table -------------------------------------------------------------------------------- */

static double reciprocal(double x)
{
    return 1 / x;
}
static double rsqrt(double x)
{
    return 1 / sqrt(x);
}
static double negative(double x)
{
    return -x;
}
static double opposite(double x)
{
    return x == 0;
}

static const struct unary {
    const char *target;
    double (*f)(double x);
} unaries[] = {{"aten.cos.default", cos},
               {"aten.sin.default", sin},
               {"aten.exp.default", exp},
               {"aten.log.default", log},
               {"aten.sqrt.default", sqrt},
               {"aten.abs.default", fabs},
               {"aten.floor.default", floor},
               {"aten.rsqrt.default", rsqrt},
               {"aten.neg.default", negative},
               {"aten.reciprocal.default", reciprocal},
               {"aten.logical_not.default", opposite},
               {"aten.bitwise_not.default", opposite}};

/* The target without "torch.ops.". */
static const char *target_of(const pt2_eval *e)
{
    const char *t = json_string_value(json_object_get(e->node, "target"));
    return t && strncmp(t, "torch.ops.", 10) == 0 ? t + 10 : "";
}

atom_status pt2_const_unary(pt2_eval *e, const pt2_value *x)
{
    const char *target = target_of(e);
    int64_t at[PT2_RANK_MAX] = {0}, i = 0;
    pt2_value *v;
    double *data;
    for (size_t k = 0; k < sizeof unaries / sizeof *unaries; k++) {
        if (strcmp(unaries[k].target, target) != 0)
            continue;
        ATOM_TRY(pt2_const_new(e, x->v.rank, x->v.size, &v, &data));
        do
            data[i++] = unaries[k].f(pt2_const_at(e, x, at));
        while (pt2_view_next(&x->v, at));
        return pt2_result(e, 0, v);
    }
    return pt2_refuse(e, "atom does not compute this of known numbers");
}

/* --- two tables ------------------------------------------------------------------------------- */

static double two(const char *op, double a, double b)
{
    switch (op[0]) {
    case 'a': /* add */
        return a + b;
    case '&':
        return (double)((int64_t)a & (int64_t)b);
    case '|':
        return (double)((int64_t)a | (int64_t)b);
    case 's': /* sub */
        return a - b;
    case 'm': /* mul */
        return a * b;
    case 'd': /* div */
        return a / b;
    case 'p': /* pow */
        return pow(a, b);
    case 'e': /* eq */
        return a == b;
    case 'n': /* ne */
        return a != b;
    case 'l': /* lt, le */
        return op[1] == 't' ? a < b : a <= b;
    default: /* gt, ge */
        return op[1] == 't' ? a > b : a >= b;
    }
}

/* The shape of both together. */
static bool shape_of_both(const pt2_view *a, const pt2_view *b, int *rank, int64_t *sizes)
{
    *rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 0; i < *rank; i++) {
        int ia = i - (*rank - a->rank), ib = i - (*rank - b->rank);
        int64_t na = ia >= 0 ? a->size[ia] : 1, nb = ib >= 0 ? b->size[ib] : 1;
        if (na != nb && na != 1 && nb != 1)
            return false;
        sizes[i] = na > nb ? na : nb;
    }
    return true;
}

atom_status pt2_const_number(pt2_eval *e, double x, pt2_value **out)
{
    double *data;
    atom_status st = pt2_const_new(e, 0, NULL, out, &data);
    if (st == ATOM_OK)
        *data = x;
    return st;
}

atom_status pt2_const_binary(pt2_eval *e, const pt2_value *a, const pt2_value *b)
{
    const char *op = target_of(e);
    int64_t sizes[PT2_RANK_MAX], at[PT2_RANK_MAX] = {0}, i = 0;
    double *data, alpha = pt2_real_arg(e, "alpha", 1);
    pt2_value *v;
    pt2_view va, vb;
    int rank;
    op += strncmp(op, "aten.", 5) == 0 ? 5 : 0;
    bool and = strstr(op, "and") != NULL, or = strstr(op, "_or") != NULL;
    op = and? "&" : or ? "|" : op;
    if (!shape_of_both(&a->v, &b->v, &rank, sizes) || !pt2_view_expand(&a->v, rank, sizes, &va) ||
        !pt2_view_expand(&b->v, rank, sizes, &vb))
        return pt2_refuse(e, "the shapes of its operands do not match");
    ATOM_TRY(pt2_const_new(e, rank, sizes, &v, &data));
    const double *x = e->consts[a->base].data, *y = e->consts[b->base].data;
    do
        data[i++] = two(op, x[pt2_view_place(&va, at)], alpha * y[pt2_view_place(&vb, at)]);
    while (pt2_view_next(&v->v, at));
    return pt2_result(e, 0, v);
}

/* --- tables out of nothing -------------------------------------------------------------------- */

static atom_status op_arange(pt2_eval *e)
{
    double start = pt2_real_arg(e, "start", 0), end = pt2_real_arg(e, "end", 0);
    double step = pt2_real_arg(e, "step", 1), length = ceil((end - start) / step);
    pt2_value *v;
    double *data;
    if (!(length >= 1 && length < (double)PT2_CONST_MAX))
        return pt2_refuse(e, "its range is empty or too large");
    int64_t n = (int64_t)length;
    ATOM_TRY(pt2_const_new(e, 1, &n, &v, &data));
    for (int64_t i = 0; i < n; i++)
        data[i] = start + (double)i * step;
    return pt2_result(e, 0, v);
}

/* full, ones, zeros, and those like another. */
static atom_status op_full(pt2_eval *e)
{
    const char *target = target_of(e);
    double with = strstr(target, "ones") ? 1 : pt2_real_arg(e, "fill_value", 0);
    const pt2_value *like = pt2_tensor_arg(e, "self");
    int64_t sizes[PT2_RANK_MAX];
    int rank = pt2_ints_arg(e, "size", sizes, PT2_RANK_MAX);
    pt2_value *v;
    double *data;
    if (rank < 0 && like) {
        rank = like->v.rank;
        memcpy(sizes, like->v.size, sizeof sizes);
    }
    if (rank < 0)
        return pt2_refuse(e, "its sizes are not known");
    ATOM_TRY(pt2_const_new(e, rank, sizes, &v, &data));
    for (int64_t i = 0; i < e->consts[v->base].n; i++)
        data[i] = with;
    return pt2_result(e, 0, v);
}

static atom_status op_scalar(pt2_eval *e)
{
    pt2_value *v;
    atom_status st = pt2_const_number(e, pt2_real_arg(e, "s", 0), &v);
    return st == ATOM_OK ? pt2_result(e, 0, v) : st;
}

/* tril and triu of the last two axes. */
static atom_status op_triangle(pt2_eval *e)
{
    bool lower = strstr(target_of(e), "tril") != NULL;
    const pt2_value *x = pt2_tensor_arg(e, "self");
    int64_t at[PT2_RANK_MAX] = {0}, i = 0, diagonal = pt2_int_arg(e, "diagonal", 0);
    pt2_value *v;
    double *data;
    if (!x || x->kind != PT2_CONST || x->v.rank < 2)
        return pt2_refuse(e, "supported only for a mask whose numbers are known");
    ATOM_TRY(pt2_const_new(e, x->v.rank, x->v.size, &v, &data));
    do {
        int64_t d = at[x->v.rank - 1] - at[x->v.rank - 2];
        data[i++] = (lower ? d <= diagonal : d >= diagonal) ? pt2_const_at(e, x, at) : 0;
    } while (pt2_view_next(&x->v, at));
    return pt2_result(e, 0, v);
}

/* x where the mask says so, else a number or another table. */
atom_status pt2_const_choose(pt2_eval *e, const pt2_value *mask, const pt2_value *yes,
                             const pt2_value *no)
{
    int64_t some[PT2_RANK_MAX], sizes[PT2_RANK_MAX], at[PT2_RANK_MAX] = {0}, i = 0;
    const pt2_value *const in[3] = {mask, yes, no};
    pt2_view v[3], both = {0};
    pt2_value *out;
    double *data;
    int rank;
    bool fits = shape_of_both(&yes->v, &no->v, &rank, some);
    fits =
        fits && pt2_view_packed(rank, some, &both) && shape_of_both(&both, &mask->v, &rank, sizes);
    for (int k = 0; k < 3 && fits; k++)
        fits = pt2_view_expand(&in[k]->v, rank, sizes, &v[k]);
    if (!fits)
        return pt2_refuse(e, "the shapes of its operands do not match");
    ATOM_TRY(pt2_const_new(e, rank, sizes, &out, &data));
    do {
        int k = e->consts[mask->base].data[pt2_view_place(&v[0], at)] != 0 ? 1 : 2;
        data[i++] = e->consts[in[k]->base].data[pt2_view_place(&v[k], at)];
    } while (pt2_view_next(&out->v, at));
    return pt2_result(e, 0, out);
}

/* Joins along an axis; stacked: along a new one. */
atom_status pt2_const_cat(pt2_eval *e, const pt2_value *const *parts, size_t n, int dim)
{
    int64_t sizes[PT2_RANK_MAX], offset = 0;
    pt2_value *v;
    double *data;
    memcpy(sizes, parts[0]->v.size, sizeof sizes);
    for (size_t k = 1; k < n; k++) {
        for (int i = 0; i < parts[0]->v.rank; i++)
            if (parts[k]->v.rank != parts[0]->v.rank ||
                (i != dim && parts[k]->v.size[i] != sizes[i]))
                return pt2_refuse(e, "the shapes of its operands do not match");
        sizes[dim] += parts[k]->v.size[dim];
    }
    ATOM_TRY(pt2_const_new(e, parts[0]->v.rank, sizes, &v, &data));
    for (size_t k = 0; k < n; k++) {
        int64_t at[PT2_RANK_MAX] = {0};
        do
            data[offset + pt2_view_place(&v->v, at)] = pt2_const_at(e, parts[k], at);
        while (pt2_view_next(&parts[k]->v, at));
        offset += parts[k]->v.size[dim] * v->v.stride[dim];
    }
    return pt2_result(e, 0, v);
}

/* [.., n, k] [.., k, m], the same axes in front. */
atom_status pt2_const_matmul(pt2_eval *e, const pt2_value *a, const pt2_value *b)
{
    int rank = a->v.rank, r = rank - 1;
    int64_t sizes[PT2_RANK_MAX], at[PT2_RANK_MAX] = {0}, i = 0;
    pt2_value *v;
    double *data;
    bool fits = rank >= 2 && b->v.rank == rank && a->v.size[r] == b->v.size[r - 1];
    memcpy(sizes, a->v.size, sizeof sizes);
    for (int k = 0; k + 2 < rank && fits; k++)
        fits = a->v.size[k] == b->v.size[k];
    if (!fits)
        return pt2_refuse(e, "the shapes of its operands do not match");
    sizes[r] = b->v.size[r];
    ATOM_TRY(pt2_const_new(e, rank, sizes, &v, &data));
    if (pt2_view_elements(&v->v) > PT2_CONST_MAX / a->v.size[r])
        return pt2_refuse(e, "its tables are too large; export with a shorter example");
    do {
        int64_t ia[PT2_RANK_MAX], ib[PT2_RANK_MAX];
        double sum = 0;
        memcpy(ia, at, sizeof ia);
        memcpy(ib, at, sizeof ib);
        for (int64_t k = 0; k < a->v.size[r]; k++) {
            ia[r] = ib[r - 1] = k;
            sum += pt2_const_at(e, a, ia) * pt2_const_at(e, b, ib);
        }
        data[i++] = sum;
    } while (pt2_view_next(&v->v, at));
    return pt2_result(e, 0, v);
}

static atom_status op_outer(pt2_eval *e)
{
    const pt2_value *a = pt2_tensor_arg(e, "self"), *b = pt2_tensor_arg(e, "vec2");
    pt2_value *v;
    double *data;
    if (!a || !b || a->kind != PT2_CONST || b->kind != PT2_CONST || a->v.rank != 1 ||
        b->v.rank != 1)
        return pt2_refuse(e, "supported only for two lists of known numbers");
    int64_t sizes[2] = {a->v.size[0], b->v.size[0]};
    if (sizes[0] > PT2_CONST_MAX / sizes[1])
        return pt2_refuse(e, "its table is too large");
    ATOM_TRY(pt2_const_new(e, 2, sizes, &v, &data));
    int64_t i[PT2_RANK_MAX] = {0}, k[PT2_RANK_MAX] = {0};
    for (; i[0] < sizes[0]; i[0]++)
        for (k[0] = 0; k[0] < sizes[1]; k[0]++)
            data[i[0] * sizes[1] + k[0]] = pt2_const_at(e, a, i) * pt2_const_at(e, b, k);
    return pt2_result(e, 0, v);
}

const pt2_op pt2_const_ops[] = {
    {"aten.arange.default", op_arange},
    {"aten.arange.start", op_arange},
    {"aten.arange.start_step", op_arange},
    {"aten.full.default", op_full},
    {"aten.ones.default", op_full},
    {"aten.zeros.default", op_full},
    {"aten.ones_like.default", op_full},
    {"aten.zeros_like.default", op_full},
    {"aten.new_ones.default", op_full},
    {"aten.new_zeros.default", op_full},
    {"aten.new_full.default", op_full},
    {"aten.full_like.default", op_full},
    {"aten.scalar_tensor.default", op_scalar},
    {"aten.tril.default", op_triangle},
    {"aten.triu.default", op_triangle},
    {"aten.outer.default", op_outer},
    {NULL, NULL},
};
