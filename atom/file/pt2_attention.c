/*
 * Owns attention: the one operator of PyTorch, and the products, masks and softmax that it is made
 * of where somebody wrote it out. One idea: either way, three sets of heads are left, whose rows
 * are listed in the order that our attention reads: all heads of q, of k, of v. Refuses anything
 * but causal attention over the whole sequence, scaled by 1 / sqrt(head_dim).
 */
#include "atom/file/pt2_inner.h"

#include "atom/base/mem.h"

#include <math.h>
#include <string.h>

/* What a mask says of a place that is to be seen, or hidden. */
typedef enum mask_rule { MASK_ADDED, MASK_HIDES, MASK_SHOWS } mask_rule;

/* Is the mask causal: [.., T, T], hidden above the diagonal alone? */
static bool is_causal(const pt2_eval *e, const pt2_value *mask, mask_rule rule)
{
    int rank = mask->v.rank;
    if (mask->kind != PT2_CONST || rank < 2 || mask->v.size[rank - 1] != e->T ||
        mask->v.size[rank - 2] != e->T)
        return false;
    pt2_view each = mask->v; /* of equal ones, one */
    for (int i = 0; i < rank - 2; i++)
        if (each.stride[i] == 0 && (each.rep[i] == 1 || each.inner[i] == 0))
            each.size[i] = each.rep[i] = 1;
    int64_t at[PT2_RANK_MAX] = {0};
    do {
        bool later = at[rank - 1] > at[rank - 2];
        double x = e->consts[mask->base].data[pt2_view_place(&each, at)];
        bool hidden = rule == MASK_ADDED ? x < -1e4 : rule == MASK_HIDES ? x != 0 : x == 0;
        if (hidden != later || (rule == MASK_ADDED && !hidden && x != 0))
            return false;
    } while (pt2_view_next(&each, at));
    return true;
}

static atom_status not_causal(const pt2_eval *e)
{
    return pt2_refuse(e,
                      "its mask is not the causal one of the whole sequence; atom trains decoders "
                      "(is_causal=True)");
}

atom_status pt2_mask_scores(pt2_eval *e, const pt2_value *scores, const pt2_value *mask, bool added)
{
    pt2_value *v;
    if (scores->cap < 0)
        return pt2_refuse(
            e, "tanh of the scores is not multiplied by the cap that they were divided by");
    if (scores->masked || scores->soft || !is_causal(e, mask, added ? MASK_ADDED : MASK_HIDES))
        return not_causal(e);
    ATOM_TRY(pt2_value_copy(e, scores, &v));
    v->masked = true;
    return pt2_result(e, 0, v);
}

/* --- heads to a packed product ---------------------------------------------------------------- */

typedef struct packing {
    pt2_run *runs;
    uint32_t n;
} packing;

static void put_heads(packing *p, const pt2_heads *h, bool pairs)
{
    for (int64_t i = 0; i < h->heads; i++) {
        int64_t at = h->first + i * h->step;
        if (pairs) {
            p->runs[p->n++] = (pt2_run){h->base, at, 2, h->dim / 2};
            p->runs[p->n++] = (pt2_run){h->base, at + 1, 2, h->dim / 2};
        } else {
            p->runs[p->n++] = (pt2_run){h->base, at, 1, h->dim};
        }
    }
}

/* Do the heads lie in their product already as attention reads them? */
static bool is_packed(const pt2_eval *e, const pt2_heads *q, const pt2_heads *k, const pt2_heads *v)
{
    const pt2_heads *const all[3] = {q, k, v};
    int64_t at = 0;
    for (int i = 0; i < 3; i++) {
        const pt2_heads *h = all[i];
        if (h->base != q->base || h->first != at || h->step != h->dim || h->pairs)
            return false;
        at += h->heads * h->dim;
    }
    return at == e->bases[q->base].width;
}

static atom_status pack(pt2_eval *e, const pt2_heads *q, const pt2_heads *k, const pt2_heads *v,
                        int32_t *id)
{
    packing p = {0};
    int32_t made;
    atom_status st;
    if (is_packed(e, q, k, v)) {
        st = pt2_emit_base(e, q->base);
        if (st == ATOM_OK)
            *id = e->bases[q->base].tensor;
        return st;
    }
    int64_t heads = q->heads + k->heads + v->heads;
    p.runs = atom_alloc((size_t)(2 * heads), sizeof *p.runs);
    if (!p.runs)
        return atom_fail_memory("heads", (uint64_t)heads * 2 * sizeof *p.runs);
    put_heads(&p, q, q->pairs);
    put_heads(&p, k, k->pairs);
    put_heads(&p, v, false);
    st = pt2_join(e, p.runs, p.n, &made);
    if (st == ATOM_OK)
        *id = e->bases[made].tensor;
    atom_free(p.runs);
    return st;
}

/* Weights of the norms of heads of q and k, in the order of their rows. */
static atom_status head_norms(pt2_eval *e, const pt2_heads *q, const pt2_heads *k, graph_node *node)
{
    const pt2_heads *const both[2] = {q, k};
    for (int i = 0; i < 2; i++) {
        const pt2_heads *h = both[i];
        pt2_piece pieces[2];
        memset(pieces, 0, sizeof pieces);
        for (int part = 0; part < 2; part++) {
            pieces[part].tensor = h->norm;
            pieces[part].row = h->pairs ? part : 0;
            pieces[part].rows = h->pairs ? h->dim / 2 : h->dim;
            pieces[part].step = h->pairs && h->dim > 2 ? 2 : 1;
        }
        ATOM_TRY(pt2_param(e, pieces, h->pairs ? 2 : 1, 1, 0, GRAPH_INIT_ONE,
                           &node->params[node->n_params++]));
    }
    node->eps = (float)q->eps;
    return ATOM_OK;
}

static atom_status check_heads(pt2_eval *e, const pt2_heads *q, const pt2_heads *k,
                               const pt2_heads *v, bool grouped, double scale)
{
    int64_t H = q->heads, K = k->heads;
    if (q->group != 1 || k->dim != q->dim || v->dim != q->dim || v->heads != K ||
        v->group != k->group || H % K != 0 || (K * k->group != H && !(grouped && k->group == 1)))
        return pt2_refuse(
            e,
            "q has %lld heads of %lld, k %lld of %lld, v %lld of %lld; k and v must have the same "
            "number of heads, which divides that of q, and all heads the same size",
            (long long)H, (long long)q->dim, (long long)(K * k->group), (long long)k->dim,
            (long long)(v->heads * v->group), (long long)v->dim);
    if (!(scale > 0 && scale < 1e6))
        return pt2_refuse(e, "its scale is %g; it must be above 0", scale);
    if (v->turned || v->factor != 1 || v->norm >= 0 || q->turned != k->turned ||
        q->pairs != k->pairs || (q->turned && memcmp(&q->rope, &k->rope, sizeof q->rope) != 0))
        return pt2_refuse(e,
                          "q and k must have the same rotary embedding, and v none, nor a factor");
    if ((q->norm >= 0) != (k->norm >= 0) || (q->norm >= 0 && q->eps != k->eps))
        return pt2_refuse(e, "either both q and k have their heads normalised, with one eps, or "
                             "neither");
    return ATOM_OK;
}

/* [B, H, T, D] -> [B H, T, D] */
static atom_status merge_batch(pt2_eval *e, pt2_value *v)
{
    int64_t sizes[3] = {-1, v->v.size[2], v->v.size[3]};
    pt2_view made;
    if (!pt2_view_reshape(&v->v, 3, sizes, &made))
        return pt2_refuse(e, "its heads are not those of whole sequences");
    v->v = made;
    return pt2_result(e, 0, v);
}

/* The whole of it; the result is [B, H, T, D], or [B H, T, D] as q was. */
static atom_status attend(pt2_eval *e, const pt2_value *qv, const pt2_value *kv,
                          const pt2_value *vv, bool grouped, double scale, double cap, float p)
{
    pt2_heads q, k, v;
    int32_t x = GRAPH_NONE, base;
    ATOM_TRY(pt2_heads_of(e, qv, &q));
    ATOM_TRY(pt2_heads_of(e, kv, &k));
    ATOM_TRY(pt2_heads_of(e, vv, &v));
    scale = (scale > 0 ? scale : 1 / sqrt((double)q.dim)) * q.factor * k.factor;
    ATOM_TRY(check_heads(e, &q, &k, &v, grouped, scale));
    ATOM_TRY(pack(e, &q, &k, &v, &x));
    graph_node node = {.heads = (int32_t)q.heads};
    bool usual = fabs(scale * sqrt((double)q.dim) - 1) < 1e-5;
    node.kv_heads = k.heads == q.heads ? 0 : (int32_t)k.heads;
    if (q.norm >= 0) {
        graph_node norm = node;
        norm.op = ATOM_OP_headnorm;
        norm.in[0] = x;
        ATOM_TRY(head_norms(e, &q, &k, &norm));
        ATOM_TRY(pt2_node_part(e, &norm, ".norm", &base));
        x = e->bases[base].tensor;
    }
    if (q.turned) {
        graph_node rope = node;
        rope.op = ATOM_OP_rope;
        rope.in[0] = x;
        rope.rope = q.rope;
        ATOM_TRY(pt2_node_part(e, &rope, ".rope", &base));
        x = e->bases[base].tensor;
    }
    node.op = ATOM_OP_attention;
    node.in[0] = x;
    node.p = p;
    node.scale = usual ? 0 : (float)scale;
    node.cap = (float)cap;
    ATOM_TRY(pt2_node(e, &node, &base));
    int64_t sizes[4] = {e->B, e->T, q.heads, q.dim};
    pt2_value *out = pt2_value_new(e);
    if (!out)
        return atom_fail_memory("a value", sizeof *out);
    out->kind = PT2_ACT;
    out->base = base;
    if (!pt2_view_packed(4, sizes, &out->v))
        return pt2_refuse(e, "its result is too large");
    pt2_view_swap(&out->v, 1, 2);
    return qv->v.rank == 4 ? pt2_result(e, 0, out) : merge_batch(e, out);
}

static atom_status op_sdpa(pt2_eval *e)
{
    const pt2_value *mask = pt2_tensor_arg(e, "attn_mask");
    double p = pt2_real_arg(e, "dropout_p", 0);
    bool causal = pt2_bool_arg(e, "is_causal", false);
    double scale = pt2_real_arg(e, "scale", 0);
    if (pt2_arg(e, "scale") && !(scale > 0)) /* attend takes it for none */
        return pt2_refuse(e, "its scale is %g; it must be above 0", scale);
    if (pt2_arg(e, "attn_mask") && (causal || !mask))
        return not_causal(e);
    if (!causal && (!mask || !(is_causal(e, mask, MASK_ADDED) || is_causal(e, mask, MASK_SHOWS))))
        return not_causal(e);
    return attend(e, pt2_tensor_arg(e, "query"), pt2_tensor_arg(e, "key"),
                  pt2_tensor_arg(e, "value"), pt2_bool_arg(e, "enable_gqa", false), scale, 0,
                  (float)p);
}

/* --- written out ------------------------------------------------------------------------------ */

static atom_status scores(pt2_eval *e, const pt2_value *q, const pt2_value *kt, pt2_value **out)
{
    pt2_value *k, *v;
    if (kt->kind == PT2_FLIP) {
        ATOM_TRY(pt2_turn_of(e, kt->a, &k));
    } else {
        ATOM_TRY(pt2_value_copy(e, kt, &k));
        if (k->v.rank >= 2)
            pt2_view_swap(&k->v, k->v.rank - 1, k->v.rank - 2);
    }
    ATOM_TRY(pt2_value_copy(e, q, &v));
    v->kind = PT2_SCORES;
    v->a = q;
    v->b = k;
    v->scale = 1;
    *out = v;
    return ATOM_OK;
}

atom_status pt2_scores(pt2_eval *e, const pt2_value *q, const pt2_value *kt)
{
    pt2_value *v;
    atom_status st = scores(e, q, kt, &v);
    return st == ATOM_OK ? pt2_result(e, 0, v) : st;
}

/* mask + q k' */
static atom_status op_baddbmm(pt2_eval *e)
{
    const pt2_value *mask = pt2_tensor_arg(e, "self"), *q = pt2_tensor_arg(e, "batch1"),
                    *kt = pt2_tensor_arg(e, "batch2");
    pt2_value *v;
    if (!mask || mask->kind != PT2_CONST || !q || (q->kind != PT2_ACT && q->kind != PT2_TURN) ||
        !kt || (kt->kind != PT2_ACT && kt->kind != PT2_FLIP) || pt2_real_arg(e, "alpha", 1) != 1 ||
        pt2_real_arg(e, "beta", 1) != 1)
        return pt2_refuse(e, "supported only as the causal mask plus q k' of attention");
    ATOM_TRY(scores(e, q, kt, &v));
    return pt2_mask_scores(e, v, mask, true);
}

atom_status pt2_attend(pt2_eval *e, const pt2_value *s, const pt2_value *v)
{
    if (!s->soft || !s->masked)
        return pt2_refuse(e,
                          "the scores it multiplies by are not masked and put through a softmax");
    return attend(e, s->a, s->b, v, false, s->scale, s->cap, s->p);
}

static atom_status op_softmax(pt2_eval *e)
{
    const pt2_value *s = pt2_tensor_arg(e, "self");
    pt2_value *v;
    if (!s || s->kind != PT2_SCORES || s->soft || s->cap < 0 ||
        pt2_dim(pt2_int_arg(e, "dim", 0), s->v.rank) != s->v.rank - 1)
        return pt2_refuse(e, "supported only over the scores of attention, along the last axis");
    ATOM_TRY(pt2_value_copy(e, s, &v));
    v->soft = true;
    return pt2_result(e, 0, v);
}

const pt2_op pt2_attention_ops[] = {
    {"aten.scaled_dot_product_attention.default", op_sdpa},
    {"aten.softmax.int", op_softmax},
    {"aten.baddbmm.default", op_baddbmm},
    {"aten._softmax.default", op_softmax},
    {NULL, NULL},
};
