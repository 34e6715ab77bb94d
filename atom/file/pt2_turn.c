/*
 * Owns rotary embedding, however it is spelled. One idea: follow each column of a head as a sum of
 * at most two columns of the product it came from, with a factor for each place; in the end the
 * sums are a rotation whose angles are place * frequency, or they are not. Which columns turn
 * together (i and i + D/2, or 2i and 2i + 1) is then only an order of the weight's rows. Refuses
 * rotations of a part of a head, and frequencies that atom's own rule cannot make. (Su et al. 2021,
 * RoFormer.)
 */
#include "atom/file/pt2_inner.h"

#include "atom/base/mem.h"

#include <math.h>
#include <string.h>

enum { COLUMNS_MAX = 4096 };

static atom_status turn_new(pt2_eval *e, const pt2_value *like, int64_t n, pt2_value **out)
{
    pt2_value *v;
    ATOM_TRY(pt2_value_copy(e, like, &v));
    if (n > COLUMNS_MAX)
        return pt2_refuse(e, "it multiplies rows of activations by known numbers, which atom "
                             "supports only for rotary embeddings of heads");
    v->turn = atom_alloc(1, sizeof *v->turn);
    if (!v->turn)
        return atom_fail_memory("a rotation", sizeof *v->turn);
    v->turn->n = n;
    v->turn->src = atom_alloc((size_t)(2 * n), sizeof *v->turn->src);
    v->turn->coef = atom_alloc((size_t)(2 * n * e->n_samples), sizeof *v->turn->coef);
    if (!v->turn->src || !v->turn->coef)
        return atom_fail_memory("a rotation", (uint64_t)(2 * n * e->n_samples) * 8);
    v->kind = PT2_TURN;
    *out = v;
    return ATOM_OK;
}

atom_status pt2_turn_of(pt2_eval *e, const pt2_value *v, pt2_value **out)
{
    int last = v->v.rank - 1;
    int64_t S = e->n_samples;
    if (v->kind != PT2_TURN &&
        (v->kind != PT2_ACT || v->complex || v->cap != 0 || last < 1 || v->v.rep[last] != 1))
        return pt2_refuse(e, "it mixes activations in a way that is not a rotary embedding");
    ATOM_TRY(turn_new(e, v, v->turn ? v->turn->n : v->v.size[last], out));
    pt2_turn *t = (*out)->turn;
    if (v->turn) {
        memcpy(t->src, v->turn->src, (size_t)(2 * t->n) * sizeof *t->src);
        memcpy(t->coef, v->turn->coef, (size_t)(2 * t->n * S) * sizeof *t->coef);
        return ATOM_OK;
    }
    for (int64_t i = 0; i < t->n; i++) {
        t->src[2 * i] = v->v.offset + i * v->v.stride[last];
        t->src[2 * i + 1] = -1;
        for (int64_t s = 0; s < S; s++)
            t->coef[2 * i * S + s] = 1;
    }
    (*out)->v.offset = 0;
    (*out)->v.stride[last] = 1;
    return ATOM_OK;
}

/* The axis of places; -1 if there is none. */
static int time_axis(const pt2_eval *e, const pt2_value *v)
{
    for (int i = 0; i + 1 < v->v.rank; i++)
        if (v->v.size[i] == e->T && v->v.stride[i] == e->bases[v->base].width && v->v.rep[i] == 1)
            return i;
    return -1;
}

atom_status pt2_turn_scale(pt2_eval *e, const pt2_value *v, const pt2_value *by, pt2_value **out)
{
    int64_t S = e->n_samples;
    pt2_view b;
    ATOM_TRY(pt2_turn_of(e, v, out));
    pt2_turn *t = (*out)->turn;
    const pt2_view *w = &(*out)->v;
    int time = time_axis(e, *out), last = w->rank - 1;
    bool fits = t->n == w->size[last] && by->kind == PT2_CONST && by->v.rank <= w->rank &&
                pt2_view_expand(&by->v, w->rank, w->size, &b);
    for (int i = 0; i < last && fits; i++)
        fits = i == time || (b.stride[i] == 0 && b.inner[i] == 0) || w->size[i] == 1;
    if (!fits)
        return pt2_refuse(e, "it multiplies activations by numbers that are not a table of the "
                             "places and columns of a head");
    for (int64_t c = 0; c < t->n; c++) {
        for (int64_t s = 0; s < S; s++) {
            int64_t at[PT2_RANK_MAX] = {0};
            at[last] = c;
            if (time >= 0)
                at[time] = e->samples[s];
            double x = e->consts[by->base].data[pt2_view_place(&b, at)];
            t->coef[2 * c * S + s] *= x;
            t->coef[(2 * c + 1) * S + s] *= x;
        }
    }
    return ATOM_OK;
}

/* Column 2i of the result is re x[2i] - im x[2i + 1], column 2i + 1 is im x[2i] + re x[2i + 1]. */
atom_status pt2_turn_complex(pt2_eval *e, const pt2_value *v, const pt2_value *by, pt2_value **out)
{
    int64_t S = e->n_samples;
    int last = v->v.rank - 1;
    pt2_view b;
    bool fits = v->kind == PT2_ACT && v->complex && by->kind == PT2_CONST && by->complex &&
                last >= 2 && v->v.rep[last - 1] == 1 && v->norm < 0 && by->v.rank <= v->v.rank &&
                pt2_view_expand(&by->v, v->v.rank, v->v.size, &b);
    int time = fits ? time_axis(e, v) : -1;
    for (int i = 0; i < last - 1 && fits; i++)
        fits = i == time || (b.stride[i] == 0 && b.inner[i] == 0) || v->v.size[i] == 1;
    if (!fits)
        return pt2_refuse(e, "complex numbers are known only as a rotary embedding: q or k as "
                             "complex heads times a table of the places and pairs of a head");
    ATOM_TRY(turn_new(e, v, 2 * v->v.size[last - 1], out));
    pt2_turn *t = (*out)->turn;
    for (int64_t c = 0; c < t->n; c++)
        for (int64_t k = 0; k < 2; k++) {
            t->src[2 * c + k] = v->v.offset + c / 2 * v->v.stride[last - 1] + k * v->v.stride[last];
            for (int64_t s = 0; s < S; s++) {
                int64_t at[PT2_RANK_MAX] = {0};
                at[last - 1] = c / 2;
                at[last] = k != c % 2;
                if (time >= 0)
                    at[time] = e->samples[s];
                double x = e->consts[by->base].data[pt2_view_place(&b, at)];
                t->coef[(2 * c + k) * S + s] = k == 1 && c % 2 == 0 ? -x : x;
            }
        }
    (*out)->v.offset = 0;
    (*out)->v.stride[last] = 1;
    return ATOM_OK;
}

/* The same rows in all but the columns? */
static bool same_front(const pt2_value *a, const pt2_value *b)
{
    bool same = a->base == b->base && a->norm == b->norm && a->v.rank == b->v.rank;
    for (int i = 0; same && i + 1 < a->v.rank; i++)
        same =
            a->v.size[i] == b->v.size[i] &&
            (a->v.size[i] == 1 || (a->v.stride[i] == b->v.stride[i] && a->v.rep[i] == b->v.rep[i] &&
                                   a->v.inner[i] == b->v.inner[i]));
    return same;
}

/* Adds a term to column c: to the one of the same source, or where there is room. */
static bool put_term(pt2_turn *t, int64_t c, int64_t src, const double *coef, double sign,
                     int64_t S)
{
    int64_t k = 2 * c;
    while (k < 2 * c + 2 && t->src[k] != src && t->src[k] >= 0)
        k++;
    if (k == 2 * c + 2)
        return false;
    t->src[k] = src;
    for (int64_t s = 0; s < S; s++)
        t->coef[k * S + s] += sign * coef[s];
    return true;
}

atom_status pt2_turn_add(pt2_eval *e, const pt2_value *a, const pt2_value *b, double sign,
                         pt2_value **out)
{
    int64_t S = e->n_samples;
    pt2_value *other;
    ATOM_TRY(pt2_turn_of(e, a, out));
    ATOM_TRY(pt2_turn_of(e, b, &other));
    pt2_turn *to = (*out)->turn, *from = other->turn;
    bool fits = same_front(*out, other) && to->n == from->n;
    for (int64_t c = 0; c < to->n && fits; c++)
        for (int64_t k = 2 * c; k < 2 * c + 2 && fits; k++)
            fits = from->src[k] < 0 || put_term(to, c, from->src[k], from->coef + k * S, sign, S);
    return fits ? ATOM_OK
                : pt2_refuse(e, "it adds activations in a way that is neither a rotary embedding "
                                "nor a residual sum");
}

atom_status pt2_turn_cat(pt2_eval *e, const pt2_value *const *parts, size_t n, bool stacked,
                         pt2_value **out)
{
    int64_t S = e->n_samples, all = 0, at = 0;
    pt2_value *turned[64] = {NULL}, *v;
    for (size_t i = 0; i < n; i++) {
        ATOM_TRY(pt2_turn_of(e, parts[i], &turned[i]));
        if (!same_front(turned[0], turned[i]) ||
            (stacked && turned[i]->turn->n != turned[0]->turn->n) ||
            turned[i]->turn->n != turned[i]->v.size[turned[i]->v.rank - 1])
            return pt2_refuse(e, "it joins activations of different layers");
        all += turned[i]->turn->n;
    }
    ATOM_TRY(turn_new(e, turned[0], all, &v));
    for (size_t i = 0; i < n; i++) {
        const pt2_turn *from = turned[i]->turn;
        for (int64_t c = 0; c < from->n; c++) {
            int64_t to = stacked ? c * (int64_t)n + (int64_t)i : at + c;
            memcpy(v->turn->src + 2 * to, from->src + 2 * c, 2 * sizeof *from->src);
            memcpy(v->turn->coef + 2 * to * S, from->coef + 2 * c * S,
                   (size_t)(2 * S) * sizeof *from->coef);
        }
        at += from->n;
    }
    if (stacked) {
        if (!pt2_view_insert(&v->v, v->v.rank))
            return pt2_refuse(e, "it has too many axes");
        v->v.size[v->v.rank - 1] = (int64_t)n;
        v->v.stride[v->v.rank - 1] = 1;
    } else {
        v->v.size[v->v.rank - 1] = all;
    }
    *out = v;
    return ATOM_OK;
}

/* --- what the sums are in the end ------------------------------------------------------------- */

typedef struct angles {
    int64_t half;
    double *w; /* frequency of each pair */
} angles;

/* Term of column c whose factor is 1 at the first place, where nothing is turned yet; -1. */
static int64_t still_term(const pt2_eval *e, const pt2_turn *t, int64_t c)
{
    for (int64_t k = 2 * c; k < 2 * c + 2; k++)
        if (t->src[k] >= 0 && fabs(t->coef[k * e->n_samples] - 1) < 1e-6)
            return k;
    return -1;
}

/* Columns a and b as a rotation of their still columns by t * w; 0 < w < pi. */
static bool rotation(const pt2_eval *e, const pt2_turn *t, int64_t a, int64_t b, double *w)
{
    int64_t S = e->n_samples, ka = still_term(e, t, a), kb = still_term(e, t, b);
    if (ka < 0 || kb < 0)
        return false;
    int64_t sa = ka ^ 1, sb = kb ^ 1; /* the other term */
    if (t->src[sa] != t->src[kb] || t->src[sb] != t->src[ka])
        return false;
    *w = atan2(t->coef[sb * S + 1], t->coef[ka * S + 1]);
    for (int64_t s = 0; s < S; s++) {
        double place = (double)e->samples[s], near = 4e-6 + 6e-7 * place, angle = place * *w;
        /* what the program computed in float32 */
        if (fabs(t->coef[ka * S + s] - t->coef[kb * S + s]) > 1e-6 ||
            fabs(t->coef[sa * S + s] + t->coef[sb * S + s]) > 1e-6 ||
            fabs(t->coef[ka * S + s] - cos(angle)) > near ||
            fabs(t->coef[sb * S + s] - sin(angle)) > near)
            return false;
    }
    return *w > 0;
}

/* Does this rule make those frequencies? */
static bool makes(const atom_rope *rope, const angles *a)
{
    for (int64_t i = 0; i < a->half; i++) {
        double f = (double)atom_rope_frequency(rope, i, 2 * a->half);
        if (fabs(f - a->w[i]) > 2e-5 * f)
            return false;
    }
    return true;
}

/* theta and a linear factor from the first and the last frequency. */
static bool fit(const angles *a, atom_rope *rope)
{
    double D = 2 * (double)a->half, factor = 1 / a->w[0], theta = 1e4;
    if (fabs(factor - 1) < 1e-5)
        factor = 1;
    if (a->half > 1)
        theta = pow(a->w[a->half - 1] * factor, -D / (D - 2));
    double whole = nearbyint(theta), round = theta > 0 ? pow(10, floor(log10(theta)) - 3) : 1;
    double tidy[3] = {nearbyint(theta / round) * round, whole, theta};
    for (int i = 0; i < 3; i++) {
        *rope = (atom_rope){.theta = (float)tidy[i], .factor = (float)factor};
        if (isfinite(theta) && theta > 1 && factor > 0 && factor < 1e6 && makes(rope, a))
            return true;
    }
    return false;
}

/* Which columns turn together, in which order of rows, and by what. */
static bool read_turn(pt2_eval *e, const pt2_value *v, pt2_heads *h, double *w)
{
    const pt2_turn *t = v->turn;
    int64_t D = t->n, half = D / 2, first = INT64_MAX;
    for (int64_t k = 0; k < 2 * D; k++)
        if (t->src[k] >= 0 && t->src[k] < first)
            first = t->src[k];
    for (int apart = 0; apart < 2; apart++) { /* outputs i, i + D/2; or 2i, 2i + 1 */
        bool is = true, plain = true, pairs = true;
        for (int64_t i = 0; i < half && is; i++) {
            int64_t a = apart ? 2 * i : i, b = apart ? 2 * i + 1 : i + half;
            is = rotation(e, t, a, b, &w[i]);
            if (!is)
                break;
            int64_t from_a = t->src[still_term(e, t, a)] - first;
            int64_t from_b = t->src[still_term(e, t, b)] - first;
            plain &= from_a == i && from_b == i + half;
            pairs &= from_a == 2 * i && from_b == 2 * i + 1;
        }
        if (is && (plain || pairs)) {
            h->first = first;
            h->pairs = pairs && !plain;
            return true;
        }
    }
    return false;
}

/* Divides by what all columns are multiplied with at the first place. True: nothing else was done. */
static bool take_factor(const pt2_eval *e, pt2_turn *t, pt2_heads *h)
{
    int64_t S = e->n_samples;
    double f = t->src[0] >= 0 && t->coef[0] != 0 ? t->coef[0] : t->coef[S];
    bool plain = true;
    if (f > 0 && fabs(f - 1) > 1e-6)
        h->factor = f;
    for (int64_t k = 0; k < 2 * t->n; k++)
        for (int64_t s = 0; s < S; s++) {
            double *x = &t->coef[k * S + s];
            *x /= h->factor;
            plain &= k % 2 ? t->src[k] < 0 || *x == 0
                           : t->src[k] == t->src[0] + k / 2 && fabs(*x - 1) < 1e-6;
        }
    return plain;
}

static atom_status take_turn(pt2_eval *e, const pt2_value *v, pt2_heads *h)
{
    int64_t D = v->turn->n;
    pt2_value *own;
    ATOM_TRY(pt2_turn_of(e, v, &own));
    if (take_factor(e, own->turn, h)) {
        h->first = own->turn->src[0];
        return ATOM_OK;
    }
    double *w = atom_alloc((size_t)D, sizeof *w);
    atom_status st = ATOM_OK;
    if (!w)
        return atom_fail_memory("frequencies", (uint64_t)D * sizeof *w);
    angles a = {D / 2, w};
    h->turned = true;
    if (D < 2 || D % 2 != 0 || !read_turn(e, own, h, w))
        st = pt2_refuse(e, "the heads of q or k are multiplied by numbers that are not a rotary "
                           "embedding of whole heads (angle = place * frequency)");
    else if (!fit(&a, &h->rope))
        st = pt2_refuse(e,
                        "the frequencies of its rotary embedding are not theta^(-2i/D), nor those "
                        "divided by one number");
    atom_free(w);
    return st;
}

/* [batch x heads, T, D] -> [batch, heads, T, D] */
static bool part_batch(const pt2_eval *e, pt2_view *w)
{
    int last = w->rank - 1;
    pt2_view front = *w;
    if (last != 2 || w->size[0] % e->B != 0)
        return false;
    front.rank = 2;
    int64_t sizes[3] = {e->B, w->size[0] / e->B, w->size[1]};
    pt2_view made;
    if (!pt2_view_reshape(&front, 3, sizes, &made))
        return false;
    made.rank = 4;
    made.size[3] = w->size[last];
    made.stride[3] = w->stride[last];
    made.rep[3] = w->rep[last];
    made.inner[3] = w->inner[last];
    *w = made;
    return true;
}

atom_status pt2_heads_of(pt2_eval *e, const pt2_value *v, pt2_heads *h)
{
    pt2_view heads, *w = &heads;
    bool known = v && (v->kind == PT2_ACT || v->kind == PT2_TURN) && !v->complex && v->cap == 0;
    if (known)
        heads = v->v;
    if (!known || (v->kind == PT2_TURN && v->turn->n != w->size[w->rank - 1]) ||
        (w->rank != 4 && !part_batch(e, w)))
        return pt2_refuse(e,
                          "q, k and v must be heads [batch, heads, sequence, head_dim] of linear "
                          "layers");
    int64_t W = e->bases[v->base].width, D = w->size[3];
    if (w->stride[1] == 0 && w->rep[1] == 1) /* one head for all */
        w->rep[1] = w->size[1];
    *h = (pt2_heads){.base = v->base,
                     .norm = v->norm,
                     .eps = v->eps,
                     .dim = D,
                     .factor = 1,
                     .heads = w->size[1] / w->rep[1],
                     .group = w->rep[1],
                     .first = w->offset,
                     .step = w->size[1] / w->rep[1] > 1 ? w->stride[1] : D};
    if (w->size[0] != e->B || (e->B > 1 && w->stride[0] != e->T * W) || w->size[2] != e->T ||
        w->stride[2] != W || w->rep[0] != 1 || (w->rep[1] != 1 && w->inner[1] != 0) ||
        w->rep[2] != 1 || (D > 1 && (w->stride[3] != 1 || w->rep[3] != 1)) || w->offset >= W)
        return pt2_refuse(e,
                          "q, k and v must be heads [batch, heads, sequence, head_dim] of linear "
                          "layers");
    if (h->step < 1 || h->first + (h->heads - 1) * h->step + D > W)
        return pt2_refuse(e, "its heads lie outside the product that they belong to");
    if (v->kind == PT2_TURN) {
        ATOM_TRY(take_turn(e, v, h));
        if (h->first + (h->heads - 1) * h->step + D > W)
            return pt2_refuse(e, "its heads lie outside the product that they belong to");
    }
    return ATOM_OK;
}
