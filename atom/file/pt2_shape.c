/*
 * Owns the operators that rearrange: views, splits, joins along an axis, and those that do nothing
 * (contiguous, to the type it has, detach). One idea: only the view of the value changes. On sums
 * of columns (pt2_turn.c) the last axis is not the view's; it is cut and joined there. Refuses what
 * would move numbers.
 */
#include "atom/file/pt2_inner.h"

#include "atom/base/mem.h"

#include <string.h>

static bool has_view(const pt2_value *v)
{
    return v && (v->kind == PT2_CONST || v->kind == PT2_PARAM || v->kind == PT2_ACT ||
                 v->kind == PT2_TURN || v->kind == PT2_TOKENS || v->kind == PT2_TARGETS ||
                 v->kind == PT2_PLACES);
}

/* Axes that the program sees: not the hidden one of complex numbers. */
static int axes(const pt2_value *v)
{
    return v->v.rank - v->complex;
}

/* The argument `self`, as a copy that may be changed. */
static atom_status take_self(pt2_eval *e, pt2_value **out)
{
    const pt2_value *v = pt2_tensor_arg(e, "self");
    if (!has_view(v))
        return pt2_refuse(e, "what it rearranges is half of a pattern that it breaks (a norm, "
                             "scores of attention, a loss)");
    atom_status st = pt2_value_copy(e, v, out);
    if (st == ATOM_OK && v->turn)
        st = pt2_turn_of(e, v, out);
    return st;
}

static atom_status moves(const pt2_eval *e)
{
    return pt2_refuse(e, "it rearranges numbers in a way that no view can; atom's layers read rows "
                         "as other layers made them");
}

/* Reshapes but for the last axis, which sums of columns keep to themselves. */
static bool reshape_turn(const pt2_value *v, int rank, const int64_t *sizes, pt2_view *out)
{
    pt2_view front = v->v;
    int64_t last = front.size[front.rank - 1], want[PT2_RANK_MAX];
    if (rank < 1 || !pt2_sizes_complete(pt2_view_elements(&front), rank, sizes, want) ||
        want[rank - 1] != last)
        return false;
    front.rank--;
    if (!pt2_view_reshape(&front, rank - 1, want, out))
        return false;
    out->size[rank - 1] = last;
    out->stride[rank - 1] = out->rep[rank - 1] = 1;
    out->inner[rank - 1] = 0;
    out->rank = rank;
    return true;
}

/* (..., n, 2) of a stack of two -> (..., 2 n): the columns lie in that order already. */
static bool flatten_pairs(pt2_value *v, int rank, const int64_t *sizes)
{
    int old = v->v.rank;
    if (v->kind != PT2_TURN || old < 2 || rank != old - 1 ||
        (sizes[rank - 1] != -1 && sizes[rank - 1] != v->v.size[old - 2] * v->v.size[old - 1]) ||
        v->turn->n != v->v.size[old - 2] * v->v.size[old - 1])
        return false;
    for (int i = 0; i + 1 < rank; i++)
        if (sizes[i] != v->v.size[i] && sizes[i] != -1)
            return false;
    v->v.rank = rank;
    v->v.size[rank - 1] = v->turn->n;
    v->v.stride[rank - 1] = v->v.rep[rank - 1] = 1;
    v->v.inner[rank - 1] = 0;
    return true;
}

static atom_status reshape(pt2_eval *e, pt2_value *v, int rank, const int64_t *sizes)
{
    pt2_view made;
    bool fits;
    if (rank < 0)
        return pt2_refuse(e, "its sizes are not known");
    if (v->kind == PT2_TURN) {
        fits = flatten_pairs(v, rank, sizes);
        if (fits)
            return pt2_result(e, 0, v);
        fits = v->turn->n == v->v.size[v->v.rank - 1] && reshape_turn(v, rank, sizes, &made);
    } else {
        fits = pt2_view_reshape(&v->v, rank, sizes, &made);
    }
    if (!fits && v->kind == PT2_CONST) {
        pt2_value *packed;
        ATOM_TRY(pt2_const_pack(e, v, &packed));
        packed->complex = v->complex;
        v = packed;
        fits = pt2_view_reshape(&v->v, rank, sizes, &made);
    }
    if (!fits)
        return moves(e);
    v->v = made;
    return pt2_result(e, 0, v);
}

static atom_status op_view(pt2_eval *e)
{
    int64_t sizes[PT2_RANK_MAX];
    const char *key = pt2_arg(e, "size") ? "size" : "shape";
    int rank = pt2_ints_arg(e, key, sizes, PT2_RANK_MAX - 1);
    pt2_value *v;
    ATOM_TRY(take_self(e, &v));
    if (rank >= 0 && v->complex)
        sizes[rank++] = 2;
    return reshape(e, v, rank, sizes);
}

/* One axis becomes several. */
static atom_status op_unflatten(pt2_eval *e)
{
    int64_t parts[PT2_RANK_MAX], sizes[PT2_RANK_MAX];
    int n = pt2_ints_arg(e, "sizes", parts, PT2_RANK_MAX), rank = 0;
    pt2_value *v;
    ATOM_TRY(take_self(e, &v));
    int dim = pt2_dim(pt2_int_arg(e, "dim", 0), v->v.rank);
    if (dim < 0 || n < 1 || v->v.rank + n - 1 > PT2_RANK_MAX)
        return pt2_refuse(e, "its sizes are not known");
    for (int i = 0; i < v->v.rank; i++) {
        if (i != dim)
            sizes[rank++] = v->v.size[i];
        for (int k = 0; i == dim && k < n; k++)
            sizes[rank++] = parts[k];
    }
    return reshape(e, v, rank, sizes);
}

static atom_status op_flatten(pt2_eval *e)
{
    int64_t sizes[PT2_RANK_MAX];
    int rank = 0;
    pt2_value *v;
    ATOM_TRY(take_self(e, &v));
    int a = pt2_dim(pt2_int_arg(e, "start_dim", 0), v->v.rank);
    int b = pt2_dim(pt2_int_arg(e, "end_dim", -1), v->v.rank);
    if (a < 0 || b < a)
        return pt2_refuse(e, "its axes are not known");
    for (int i = 0; i < v->v.rank; i++) {
        if (i > a && i <= b)
            sizes[rank - 1] *= v->v.size[i];
        else
            sizes[rank++] = v->v.size[i];
    }
    return reshape(e, v, rank, sizes);
}

/* May this axis be moved, cut or dropped by its view alone? */
static bool own_axis(const pt2_value *v, int dim)
{
    return v->kind != PT2_TURN ||
           dim < v->v.rank - (v->turn->n == v->v.size[v->v.rank - 1] ? 1 : 2);
}

static atom_status op_transpose(pt2_eval *e)
{
    pt2_value *v;
    ATOM_TRY(take_self(e, &v));
    int a = pt2_dim(pt2_int_arg(e, "dim0", 0), axes(v));
    int b = pt2_dim(pt2_int_arg(e, "dim1", 1), axes(v));
    if (a < 0 || b < 0)
        return pt2_refuse(e, "its axes are not known");
    if (v->kind == PT2_TURN && a + b == 2 * v->v.rank - 3 && a != b) {
        pt2_value *flip = pt2_value_new(e);
        if (!flip)
            return atom_fail_memory("a value", sizeof *flip);
        flip->kind = PT2_FLIP;
        flip->a = v;
        return pt2_result(e, 0, flip);
    }
    if (a != b && (!own_axis(v, a) || !own_axis(v, b)))
        return moves(e);
    pt2_view_swap(&v->v, a, b);
    return pt2_result(e, 0, v);
}

static atom_status op_t(pt2_eval *e)
{
    pt2_value *v;
    ATOM_TRY(take_self(e, &v));
    if (v->v.rank > 2 || v->kind == PT2_TURN)
        return moves(e);
    if (v->v.rank == 2)
        pt2_view_swap(&v->v, 0, 1);
    return pt2_result(e, 0, v);
}

static atom_status op_permute(pt2_eval *e)
{
    int64_t dims[PT2_RANK_MAX];
    int n = pt2_ints_arg(e, "dims", dims, PT2_RANK_MAX);
    unsigned seen = 0;
    pt2_value *v;
    ATOM_TRY(take_self(e, &v));
    pt2_view old = v->v;
    if (n != old.rank)
        return pt2_refuse(e, "its axes are not known");
    for (int i = 0; i < n; i++) {
        int from = pt2_dim(dims[i], n);
        if (from < 0 || seen & 1u << from)
            return pt2_refuse(e, "its axes are not known");
        if (from != i && (!own_axis(v, from) || !own_axis(v, i)))
            return moves(e);
        seen |= 1u << from;
        v->v.size[i] = old.size[from];
        v->v.stride[i] = old.stride[from];
        v->v.rep[i] = old.rep[from];
        v->v.inner[i] = old.inner[from];
    }
    return pt2_result(e, 0, v);
}

static atom_status cut(pt2_eval *e, pt2_value *v, int dim, int64_t start, int64_t end, int64_t step)
{
    if (own_axis(v, dim))
        return pt2_view_slice(&v->v, dim, start, end, step)
                   ? ATOM_OK
                   : pt2_refuse(e, "it cuts nothing out, or repeated rows");
    if (step != 1 || dim != v->v.rank - 1 || v->turn->n != v->v.size[dim])
        return moves(e);
    int64_t n = v->turn->n, S = e->n_samples;
    start = start < 0 ? start + n : start;
    end = end < 0 ? end + n : end > n ? n : end;
    if (start < 0 || end <= start)
        return pt2_refuse(e, "it cuts nothing out");
    memmove(v->turn->src, v->turn->src + 2 * start,
            (size_t)(2 * (end - start)) * sizeof *v->turn->src);
    memmove(v->turn->coef, v->turn->coef + 2 * start * S,
            (size_t)(2 * (end - start) * S) * sizeof *v->turn->coef);
    v->turn->n = v->v.size[dim] = end - start;
    return ATOM_OK;
}

static atom_status op_slice(pt2_eval *e)
{
    pt2_value *v;
    ATOM_TRY(take_self(e, &v));
    int dim = pt2_dim(pt2_int_arg(e, "dim", 0), axes(v));
    int64_t start = pt2_int_arg(e, "start", 0), end = pt2_int_arg(e, "end", INT64_MAX);
    if (dim < 0)
        return pt2_refuse(e, "its axis is not known");
    ATOM_TRY(cut(e, v, dim, start, end, pt2_int_arg(e, "step", 1)));
    return pt2_result(e, 0, v);
}

static atom_status op_select(pt2_eval *e)
{
    pt2_value *v;
    ATOM_TRY(take_self(e, &v));
    int dim = pt2_dim(pt2_int_arg(e, "dim", 0), v->v.rank);
    int64_t i = pt2_int_arg(e, "index", 0);
    if (dim < 0 || !own_axis(v, dim))
        return moves(e);
    i = i < 0 ? i + v->v.size[dim] : i;
    if (i < 0 || i >= v->v.size[dim])
        return pt2_refuse(e, "its index is outside");
    v->v.offset += pt2_view_step(&v->v, dim, i);
    pt2_view_remove(&v->v, dim);
    return pt2_result(e, 0, v);
}

static atom_status op_unsqueeze(pt2_eval *e)
{
    pt2_value *v;
    ATOM_TRY(take_self(e, &v));
    int dim = pt2_dim(pt2_int_arg(e, "dim", 0), axes(v) + 1);
    if (dim < 0 || (v->kind == PT2_TURN && dim >= v->v.rank) || !pt2_view_insert(&v->v, dim))
        return moves(e);
    return pt2_result(e, 0, v);
}

static atom_status op_squeeze(pt2_eval *e)
{
    pt2_value *v;
    ATOM_TRY(take_self(e, &v));
    int dim = pt2_dim(pt2_int_arg(e, "dim", 0), v->v.rank);
    if (dim < 0 || !own_axis(v, dim))
        return moves(e);
    if (v->v.size[dim] == 1)
        pt2_view_remove(&v->v, dim);
    return pt2_result(e, 0, v);
}

static atom_status op_expand(pt2_eval *e)
{
    int64_t sizes[PT2_RANK_MAX];
    int rank = pt2_ints_arg(e, "size", sizes, PT2_RANK_MAX - 1);
    pt2_view made;
    pt2_value *v;
    ATOM_TRY(take_self(e, &v));
    if (rank >= 0 && v->complex)
        sizes[rank++] = 2;
    if (rank < 0 || !pt2_view_expand(&v->v, rank, sizes, &made))
        return pt2_refuse(e, "its sizes do not match");
    v->v = made;
    return pt2_result(e, 0, v);
}

/* Grouped heads: each element of an axis so many times. */
static atom_status op_repeat_interleave(pt2_eval *e)
{
    int64_t times = pt2_int_arg(e, "repeats", 0);
    pt2_value *v;
    ATOM_TRY(take_self(e, &v));
    int dim = pt2_dim(pt2_int_arg(e, "dim", v->v.rank), v->v.rank);
    if (dim < 0 || !own_axis(v, dim) || times < 1 || times > (1 << 20) || v->v.rep[dim] != 1 ||
        v->v.size[dim] > (1 << 20))
        return moves(e);
    v->v.size[dim] *= times;
    v->v.rep[dim] = times;
    v->v.inner[dim] = 0;
    return pt2_result(e, 0, v);
}

/* Pieces of an axis, each `size` long or as long as sizes[] says. */
static atom_status pieces(pt2_eval *e, int dim, int64_t size, const int64_t *sizes, int n)
{
    const pt2_value *self = pt2_tensor_arg(e, "self");
    int64_t all = self->v.size[dim];
    atom_status st = ATOM_OK;
    for (int64_t at = 0, i = 0; at < all && st == ATOM_OK; i++) {
        int64_t some = sizes ? (i < n ? sizes[i] : 0) : size;
        some = some < all - at ? some : all - at;
        if (some < 1)
            return pt2_refuse(e, "its pieces do not match");
        pt2_value *v;
        ATOM_TRY(take_self(e, &v));
        ATOM_TRY(cut(e, v, dim, at, at + some, 1));
        ATOM_TRY(pt2_result(e, (size_t)i, v));
        at += some;
    }
    return st;
}

static atom_status op_split(pt2_eval *e)
{
    int64_t sizes[64];
    const pt2_value *self = pt2_tensor_arg(e, "self");
    if (!has_view(self))
        return pt2_refuse(e, "it splits something that is not a view");
    int n = pt2_ints_arg(e, "split_sizes", sizes, 64);
    n = n < 0 ? pt2_ints_arg(e, "split_size", sizes, 64) : n;
    int dim = pt2_dim(pt2_int_arg(e, "dim", 0), self->v.rank);
    int64_t chunks = pt2_int_arg(e, "chunks", 0), size = pt2_int_arg(e, "split_size", 0);
    if (dim < 0)
        return pt2_refuse(e, "its axis is not known");
    if (chunks > 0)
        size = (self->v.size[dim] + chunks - 1) / chunks;
    if (n < 0 && size < 1)
        return pt2_refuse(e, "its pieces are not known");
    return pieces(e, dim, size, n < 0 ? NULL : sizes, n);
}

static atom_status op_unbind(pt2_eval *e)
{
    const pt2_value *self = pt2_tensor_arg(e, "self");
    int dim = has_view(self) ? pt2_dim(pt2_int_arg(e, "dim", 0), self->v.rank) : -1;
    atom_status st = ATOM_OK;
    if (dim < 0 || !own_axis(self, dim) || self->v.size[dim] > 1024)
        return moves(e);
    for (int64_t i = 0; i < self->v.size[dim] && st == ATOM_OK; i++) {
        pt2_value *v;
        ATOM_TRY(take_self(e, &v));
        v->v.offset += pt2_view_step(&v->v, dim, i);
        pt2_view_remove(&v->v, dim);
        st = pt2_result(e, (size_t)i, v);
    }
    return st;
}

static atom_status op_same(pt2_eval *e)
{
    const pt2_value *v = pt2_tensor_arg(e, "self");
    pt2_value *out;
    if (v && !has_view(v)) { /* half of a pattern may pass through */
        atom_status st = pt2_value_copy(e, v, &out);
        return st == ATOM_OK ? pt2_result(e, 0, out) : st;
    }
    ATOM_TRY(take_self(e, &out));
    if (out->kind == PT2_CONST && !strstr(json_string_value(json_object_get(e->node, "target")),
                                          "detach")) { /* a copy, in case one is changed in place */
        ATOM_TRY(pt2_const_pack(e, v, &out));
        out->complex = v->complex;
    }
    if (out->kind == PT2_ACT &&
        strstr(json_string_value(json_object_get(e->node, "target")), "clone"))
        out->copy = ++e->n_copies;
    return pt2_result(e, 0, out);
}

/* Of what is known before the tokens are, nothing is trained. */
static atom_status op_detach(pt2_eval *e)
{
    const pt2_value *v = pt2_tensor_arg(e, "self");
    if (v && (v->kind == PT2_CONST || v->kind == PT2_TOKENS || v->kind == PT2_TARGETS))
        return op_same(e);
    return pt2_refuse(e, "it stops a gradient, which atom does not do; leave detach() out");
}

static atom_status op_nothing(pt2_eval *e)
{
    (void)e;
    return ATOM_OK;
}

static atom_status op_size(pt2_eval *e)
{
    const pt2_value *self = pt2_tensor_arg(e, "self");
    pt2_value *v = pt2_value_new(e);
    int dim = has_view(self) ? pt2_dim(pt2_int_arg(e, "dim", 0), axes(self)) : -1;
    if (!v)
        return atom_fail_memory("a value", sizeof *v);
    if (dim < 0)
        return pt2_refuse(e, "it asks for the size of something that is not a view");
    v->kind = PT2_INT;
    v->number = self->v.size[dim];
    return pt2_result(e, 0, v);
}

const pt2_op pt2_shape_ops[] = {
    {"aten.view.default", op_view},
    {"aten.reshape.default", op_view},
    {"aten._unsafe_view.default", op_view},
    {"aten.unflatten.int", op_unflatten},
    {"aten.flatten.using_ints", op_flatten},
    {"aten.transpose.int", op_transpose},
    {"aten.t.default", op_t},
    {"aten.numpy_T.default", op_t},
    {"aten.permute.default", op_permute},
    {"aten.slice.Tensor", op_slice},
    {"aten.select.int", op_select},
    {"aten.unsqueeze.default", op_unsqueeze},
    {"aten.squeeze.dim", op_squeeze},
    {"aten.expand.default", op_expand},
    {"aten.repeat_interleave.self_int", op_repeat_interleave},
    {"aten.split.Tensor", op_split},
    {"aten.split.sizes", op_split},
    {"aten.split_with_sizes.default", op_split},
    {"aten.chunk.default", op_split},
    {"aten.unbind.int", op_unbind},
    {"aten.contiguous.default", op_same},
    {"aten.clone.default", op_same},
    {"aten.alias.default", op_same},
    {"aten.detach.default", op_detach},
    {"aten.detach_.default", op_detach},
    {"aten.lift_fresh_copy.default", op_same},
    {"aten.sym_size.int", op_size},
    {"aten._assert_tensor_metadata.default", op_nothing},
    {"aten._assert_scalar.default", op_nothing},
    {"aten.sym_constrain_range_for_size.default", op_nothing},
    {NULL, NULL},
};
