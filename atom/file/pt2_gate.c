/*
 * Owns functions of one number: GELU, ReLU, SiLU, a factor, a soft cap. One idea: each waits until it
 * is known what reads it, for only then is it an activation by itself, the gate of a product
 * (SwiGLU, GEGLU), a square, or one step of GELU's tanh form or of a soft cap written out. Refuses
 * gates and caps that atom has no operator for. (Hendrycks and Gimpel 2016; Shazeer 2020.)
 */
#include "atom/file/pt2_inner.h"

#include <math.h>
#include <string.h>

static bool is(const pt2_value *v, pt2_kind kind)
{
    return v && v->kind == kind;
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-5 * fabs(b);
}

/* The very same rows? */
static bool same(const pt2_value *a, const pt2_value *b)
{
    return is(a, PT2_ACT) && is(b, PT2_ACT) && a->base == b->base && a->norm == b->norm &&
           pt2_view_same(&a->v, &b->v);
}

/* --- what waits ------------------------------------------------------------------------------- */

atom_status pt2_map(pt2_eval *e, atom_op op, double scale, const pt2_value *x)
{
    pt2_value *v;
    if (!is(x, PT2_ACT))
        return pt2_refuse_rows(e, x);
    ATOM_TRY(pt2_value_copy(e, x, &v));
    v->kind = PT2_MAP;
    v->a = x;
    v->op = op;
    v->scale = scale;
    v->node = e->node;
    return pt2_result(e, 0, v);
}

atom_status pt2_map_now(pt2_eval *e, const pt2_value *map, pt2_value **out)
{
    graph_node node = {.op = map->op, .scale = (float)map->scale};
    const json_t *now = e->node;
    int32_t base;
    e->node = map->node;
    ATOM_TRY(pt2_force(e, map->a, &node.in[0]));
    ATOM_TRY(pt2_node(e, &node, &base));
    e->node = now;
    return pt2_whole(e, base, pt2_front(&map->a->v, e->bases[map->a->base].width), out);
}

atom_status pt2_settle_one(pt2_eval *e, const char *name)
{
    const pt2_value *v = pt2_named(e, name);
    pt2_value *out;
    if (!is(v, PT2_MAP))
        return ATOM_OK;
    ATOM_TRY(pt2_map_now(e, v, &out));
    return pt2_name(e, name, out);
}

atom_status pt2_settle(pt2_eval *e)
{
    const json_t *inputs = json_object_get(e->node, "inputs");
    const char *target = json_string_value(json_object_get(e->node, "target"));
    static const char *const go_on[] = {".mul.", ".pow.", ".square.", ".tanh."};
    for (size_t i = 0; target && i < sizeof go_on / sizeof *go_on; i++)
        if (strstr(target, go_on[i]))
            return ATOM_OK;
    for (size_t i = 0; i < json_array_size(inputs); i++) {
        const json_t *arg = json_object_get(json_array_get(inputs, i), "arg");
        const json_t *tensor = json_object_get(arg, "as_tensor");
        ATOM_TRY(pt2_settle_one(e, json_string_value(json_object_get(tensor, "name"))));
    }
    return ATOM_OK;
}

/* --- gates ------------------------------------------------------------------------------------ */

static atom_status gated(pt2_eval *e, atom_op op, const pt2_value *gate, const pt2_value *up)
{
    graph_node node = {.op = op};
    pt2_run runs[2] = {{gate->base, 0, 1, 0}, {up->base, 0, 1, 0}};
    int32_t base;
    if (!pt2_columns(e, gate, &runs[0].first, &runs[0].n) ||
        !pt2_columns(e, up, &runs[1].first, &runs[1].n) || runs[0].n != runs[1].n ||
        !pt2_same_rows(e, gate, up))
        return pt2_refuse(e,
                          "the two sides of a gated layer must be equally many columns of linear "
                          "layers");
    if (gate->base == up->base && runs[0].first == 0 && runs[1].first == runs[0].n &&
        2 * runs[0].n == e->bases[gate->base].width) {
        base = gate->base;
        ATOM_TRY(pt2_emit_base(e, base));
    } else {
        ATOM_TRY(pt2_join(e, runs, 2, &base));
    }
    node.in[0] = e->bases[base].tensor;
    ATOM_TRY(pt2_node(e, &node, &base));
    return pt2_whole_result(e, base, gate);
}

static atom_status no_gate(const pt2_eval *e, const pt2_value *map)
{
    return pt2_refuse(
        e,
        "%s is multiplied by other activations, which atom knows only as F.silu(gate) * up "
        "(SwiGLU) and F.gelu(gate, approximate=\"tanh\") * up (GEGLU)%s",
        atom_op_get(map->op)->name,
        map->op == ATOM_OP_gelu_erf ? "; write the gate with approximate=\"tanh\"" : "");
}

atom_status pt2_map_times(pt2_eval *e, const pt2_value *a, const pt2_value *b)
{
    pt2_value *now;
    if (is(a, PT2_CUBIC)) {
        bool half = is(b, PT2_MAP) && b->op == ATOM_OP_scale && b->scale == 0.5;
        if (a->step == 6 && half && same(a->a, b->a))
            return pt2_map(e, ATOM_OP_gelu, 0, a->a);
        if (a->step == 6 && same(a->a, b))
            return pt2_cubic_step(e, a);
        return pt2_refuse(e, "it goes on from a GELU that is written out in another way than "
                             "0.5 * x * (1 + tanh(..)); write F.gelu(x, approximate=\"tanh\")");
    }
    if (is(b, PT2_MAP) && a->op == ATOM_OP_relu && b->op == ATOM_OP_relu && same(a->a, b->a))
        return pt2_map(e, ATOM_OP_relu2, 0, a->a);
    if (is(b, PT2_MAP) && a->op == ATOM_OP_scale) { /* the gate first */
        const pt2_value *swap = a;
        a = b;
        b = swap;
    }
    if (is(b, PT2_MAP)) {
        ATOM_TRY(pt2_map_now(e, b, &now));
        b = now;
    }
    if (!is(b, PT2_ACT) || (a->op != ATOM_OP_silu && a->op != ATOM_OP_gelu))
        return no_gate(e, a);
    return gated(e, a->op == ATOM_OP_silu ? ATOM_OP_swiglu : ATOM_OP_geglu, a->a, b);
}

/* --- GELU's tanh form, written out: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) ----------- */

bool pt2_cubic_goes_on(const pt2_value *v, char how, double number)
{
    if (!is(v, PT2_CUBIC))
        return false;
    switch (v->step) {
    case 1: /* x^3 */
        return how == '*' && near(number, 0.044715);
    case 2:
        return how == 'x';
    case 3:
        return how == '*' && near(number, sqrt(M_2_PI));
    case 5: /* tanh(..) */
        return how == '+' && number == 1;
    case 7: /* x (1 + tanh(..)) */
        return how == '*' && number == 0.5;
    default:
        return false;
    }
}

atom_status pt2_cubic_step(pt2_eval *e, const pt2_value *v)
{
    pt2_value *next;
    if (v->step == 7)
        return pt2_map(e, ATOM_OP_gelu, 0, v->a);
    ATOM_TRY(pt2_value_copy(e, v, &next));
    next->a = is(v, PT2_ACT) ? v : v->a;
    next->step = is(v, PT2_ACT) ? 1 : v->step + 1;
    next->kind = PT2_CUBIC;
    return pt2_result(e, 0, next);
}

/* --- soft caps: cap tanh(x / cap) ------------------------------------------------------------- */

atom_status pt2_scale_scores(pt2_eval *e, const pt2_value *s, double by)
{
    pt2_value *v;
    if (s->masked || s->soft || s->cap > 0)
        return pt2_refuse(e, "scores of attention are scaled before they are capped and masked");
    if (!(by > 0 && by < 1e6))
        return pt2_refuse(e, "it scales scores of attention by %g, which must be above 0", by);
    ATOM_TRY(pt2_value_copy(e, s, &v));
    v->scale *= by;
    v->cap = s->cap < 0 ? by : 0;
    return pt2_result(e, 0, v);
}

atom_status pt2_cap(pt2_eval *e, const pt2_value *tanh, double by)
{
    pt2_value *v;
    if (!near(by * tanh->scale, 1))
        return pt2_refuse(e, "a soft cap is cap * tanh(x / cap), with the same number twice");
    ATOM_TRY(pt2_value_copy(e, tanh->a, &v));
    v->cap = by;
    return pt2_result(e, 0, v);
}

static atom_status op_tanh(pt2_eval *e)
{
    const pt2_value *x = pt2_tensor_arg(e, "self");
    pt2_value *v;
    if (is(x, PT2_CUBIC) && x->step == 4)
        return pt2_cubic_step(e, x);
    bool scores = is(x, PT2_SCORES) && !x->masked && !x->soft && x->cap == 0;
    if (!scores && !(is(x, PT2_MAP) && x->op == ATOM_OP_scale))
        return pt2_refuse(e, "atom knows it only as a soft cap of logits or scores, cap * tanh(x / "
                             "cap), and as GELU: write that as F.gelu(x, approximate=\"tanh\")");
    ATOM_TRY(pt2_value_copy(e, x, &v));
    if (scores)
        v->cap = -1;
    else
        v->kind = PT2_TANH;
    return pt2_result(e, 0, v);
}

/* --- the rest --------------------------------------------------------------------------------- */

static atom_status op_gelu(pt2_eval *e)
{
    bool tanh = strcmp(pt2_text_arg(e, "approximate", "none"), "tanh") == 0;
    return pt2_map(e, tanh ? ATOM_OP_gelu : ATOM_OP_gelu_erf, 0, pt2_tensor_arg(e, "self"));
}

static atom_status op_silu(pt2_eval *e)
{
    return pt2_map(e, ATOM_OP_silu, 0, pt2_tensor_arg(e, "self"));
}

static atom_status op_relu(pt2_eval *e)
{
    return pt2_map(e, ATOM_OP_relu, 0, pt2_tensor_arg(e, "self"));
}

static atom_status op_sigmoid(pt2_eval *e)
{
    const pt2_value *x = pt2_tensor_arg(e, "self");
    pt2_value *v;
    if (!is(x, PT2_ACT))
        return pt2_refuse(e, "atom knows it only as x * torch.sigmoid(x), which is SiLU");
    ATOM_TRY(pt2_value_copy(e, x, &v));
    v->kind = PT2_SIGMOID;
    v->a = x;
    return pt2_result(e, 0, v);
}

const pt2_op pt2_gate_ops[] = {
    {"aten.gelu.default", op_gelu},
    {"aten.silu.default", op_silu},
    {"aten.relu.default", op_relu},
    {"aten.relu_.default", op_relu},
    {"aten.sigmoid.default", op_sigmoid},
    {"aten.tanh.default", op_tanh},
    {NULL, NULL},
};
