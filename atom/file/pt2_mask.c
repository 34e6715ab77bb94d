/*
 * Owns what code that makes masks computes beside plain arithmetic: sums and differences along an
 * axis, and numbers looked up by place, as transformers writes its causal masks. One idea: it is all
 * known before any token is, so it is computed, and attention looks at the mask that comes out.
 * Refuses activations.
 */
#include "atom/file/pt2_inner.h"

#include <string.h>

static const pt2_value *known(const pt2_eval *e, const char *name)
{
    const pt2_value *v = pt2_tensor_arg(e, name);
    return v && v->kind == PT2_CONST ? v : NULL;
}

static atom_status not_known(const pt2_eval *e)
{
    return pt2_refuse(e, "supported only for numbers that are known before the tokens are");
}

static atom_status op_cumsum(pt2_eval *e)
{
    const pt2_value *x = known(e, "self");
    int dim = x ? pt2_dim(pt2_int_arg(e, "dim", 0), x->v.rank) : -1;
    int64_t at[PT2_RANK_MAX] = {0}, i = 0;
    pt2_value *v;
    double *data;
    if (dim < 0)
        return not_known(e);
    ATOM_TRY(pt2_const_new(e, x->v.rank, x->v.size, &v, &data));
    do {
        data[i] = pt2_const_at(e, x, at) + (at[dim] ? data[i - v->v.stride[dim]] : 0);
        i++;
    } while (pt2_view_next(&x->v, at));
    return pt2_result(e, 0, v);
}

/* What an axis that was put behind another says is one less than the one before it. */
static atom_status op_diff(pt2_eval *e)
{
    const pt2_value *x = known(e, "self"), *front = known(e, "prepend");
    int dim = x ? pt2_dim(pt2_int_arg(e, "dim", -1), x->v.rank) : -1;
    int64_t sizes[PT2_RANK_MAX], at[PT2_RANK_MAX] = {0}, i = 0;
    pt2_value *v;
    double *data;
    if (dim < 0 || (!front && pt2_arg(e, "prepend")))
        return not_known(e);
    bool fits = pt2_int_arg(e, "n", 1) == 1 && !pt2_arg(e, "append") &&
                (!front || (front->v.rank == x->v.rank && front->v.size[dim] == 1));
    memcpy(sizes, x->v.size, sizeof sizes);
    for (int k = 0; k < x->v.rank && fits && front; k++)
        fits = k == dim || front->v.size[k] == sizes[k];
    sizes[dim] -= !front;
    if (!fits)
        return pt2_refuse(e, "supported only once, behind at most one number of each row");
    ATOM_TRY(pt2_const_new(e, x->v.rank, sizes, &v, &data));
    do {
        int64_t to[PT2_RANK_MAX], from[PT2_RANK_MAX];
        memcpy(to, at, sizeof to);
        memcpy(from, at, sizeof from);
        to[dim] += !front;
        from[dim] -= front && at[dim] > 0;
        bool first = front && at[dim] == 0;
        data[i++] = pt2_const_at(e, x, to) - pt2_const_at(e, first ? front : x, from);
    } while (pt2_view_next(&v->v, at));
    return pt2_result(e, 0, v);
}

/* x[i, k, ..] of tables of places, one for each axis. */
static atom_status op_index(pt2_eval *e)
{
    const pt2_value *x = known(e, "self");
    int64_t sizes[PT2_RANK_MAX] = {0}, at[PT2_RANK_MAX] = {0}, i = 0;
    pt2_view places[PT2_RANK_MAX];
    const pt2_value *by[PT2_RANK_MAX];
    pt2_value *v;
    double *data;
    int rank = 0;
    bool fits = x && x->v.rank > 0;
    for (int k = 0; fits && k < x->v.rank; k++) {
        by[k] = pt2_list_arg(e, "indices", (size_t)k);
        fits = by[k] && by[k]->kind == PT2_CONST && !by[k]->complex && !x->complex;
        rank = fits && by[k]->v.rank > rank ? by[k]->v.rank : rank;
    }
    if (!fits)
        return pt2_refuse(e, "atom does not know this of activations; where forward keeps the last "
                             "position alone without targets, as nanoGPT's, export with tokens and "
                             "targets: torch.export.export(model, (ids, ids.clone()))");
    for (int k = 0; k < x->v.rank; k++)
        for (int n = 0; n < by[k]->v.rank; n++) {
            int64_t *size = &sizes[n + rank - by[k]->v.rank];
            *size = by[k]->v.size[n] > *size ? by[k]->v.size[n] : *size;
        }
    for (int k = 0; k < x->v.rank && fits; k++)
        fits = pt2_view_expand(&by[k]->v, rank, sizes, &places[k]);
    if (!fits)
        return pt2_refuse(e, "the shapes of its operands do not match");
    ATOM_TRY(pt2_const_new(e, rank, sizes, &v, &data));
    do {
        int64_t from[PT2_RANK_MAX] = {0};
        for (int k = 0; k < x->v.rank; k++) {
            double place = e->consts[by[k]->base].data[pt2_view_place(&places[k], at)];
            place += place < 0 ? (double)x->v.size[k] : 0;
            if (!(place >= 0 && place < (double)x->v.size[k]))
                return pt2_refuse(e, "its index is outside");
            from[k] = (int64_t)place;
        }
        data[i++] = pt2_const_at(e, x, from);
    } while (pt2_view_next(&v->v, at));
    return pt2_result(e, 0, v);
}

static atom_status op_both(pt2_eval *e)
{
    const pt2_value *a = known(e, "self"), *b = known(e, "other");
    return a && b ? pt2_const_binary(e, a, b) : not_known(e);
}

const pt2_op pt2_mask_ops[] = {
    {"aten.cumsum.default", op_cumsum},   {"aten.diff.default", op_diff},
    {"aten.index.Tensor", op_index},      {"aten.__and__.Tensor", op_both},
    {"aten.__or__.Tensor", op_both},      {"aten.bitwise_and.Tensor", op_both},
    {"aten.bitwise_or.Tensor", op_both},  {"aten.logical_and.default", op_both},
    {"aten.logical_or.default", op_both}, {NULL, NULL},
};
