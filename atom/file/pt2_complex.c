/*
 * Owns complex numbers, which models have for one thing: rotary embeddings as Llama's authors wrote
 * them, x * freqs_cis. One idea: a complex tensor is a real one with a last axis of 2, which
 * operators that know of it do not show; the product is the sum of columns that pt2_turn.c follows.
 * Refuses all other operators on complex numbers. (Su et al. 2021, RoFormer.)
 */
#include "atom/file/pt2_inner.h"

#include <math.h>
#include <string.h>

static bool is_complex(const pt2_eval *e, const json_t *tensor)
{
    const pt2_value *v = pt2_named(e, json_string_value(json_object_get(tensor, "name")));
    return v && v->complex;
}

atom_status pt2_check_complex(const pt2_eval *e)
{
    static const char *const know[] = {".slice.",
                                       ".view.",
                                       ".reshape.",
                                       ".unsqueeze.",
                                       ".expand.",
                                       ".mul.",
                                       ".to.",
                                       "._to_copy.",
                                       ".clone.",
                                       ".detach",
                                       ".alias.",
                                       ".contiguous.",
                                       ".type_as.",
                                       ".sym_size.",
                                       ".transpose.",
                                       ".lift_fresh_copy.",
                                       "._assert_tensor_metadata.",
                                       ".view_as_real."};
    const json_t *inputs = json_object_get(e->node, "inputs");
    const char *target = json_string_value(json_object_get(e->node, "target"));
    for (size_t i = 0; target && i < sizeof know / sizeof *know; i++)
        if (strstr(target, know[i]))
            return ATOM_OK;
    for (size_t i = 0; i < json_array_size(inputs); i++) {
        const json_t *arg = json_object_get(json_array_get(inputs, i), "arg");
        const json_t *list = json_object_get(arg, "as_tensors");
        bool met = is_complex(e, json_object_get(arg, "as_tensor"));
        for (size_t k = 0; k < json_array_size(list); k++)
            met |= is_complex(e, json_array_get(list, k));
        if (met)
            return pt2_refuse(e,
                              "atom does not know it of complex numbers, but only the rotary "
                              "embedding torch.view_as_real(torch.view_as_complex(x) * freqs_cis)");
    }
    return ATOM_OK;
}

/* The hidden axis is the last one, of real and imaginary parts side by side. */
static atom_status op_view_as_complex(pt2_eval *e)
{
    const pt2_value *x = pt2_tensor_arg(e, "self");
    pt2_value *v;
    int last = x ? x->v.rank - 1 : -1;
    if (!x || (x->kind != PT2_ACT && x->kind != PT2_CONST) || x->complex || last < 0 ||
        x->v.size[last] != 2 || x->v.rep[last] != 1)
        return pt2_refuse(e, "supported only on activations or known numbers [.., 2]");
    ATOM_TRY(pt2_value_copy(e, x, &v));
    v->complex = true;
    return pt2_result(e, 0, v);
}

static atom_status op_view_as_real(pt2_eval *e)
{
    const pt2_value *x = pt2_tensor_arg(e, "self");
    pt2_value *v;
    if (!x || !x->complex)
        return pt2_refuse(e, "what it takes is not complex");
    ATOM_TRY(pt2_value_copy(e, x, &v));
    if (x->turn)
        ATOM_TRY(pt2_turn_of(e, x, &v));
    v->complex = false;
    return pt2_result(e, 0, v);
}

/* polar(abs, angle) and complex(real, imag). */
static atom_status op_make(pt2_eval *e)
{
    bool polar = strstr(json_string_value(json_object_get(e->node, "target")), "polar") != NULL;
    const pt2_value *a = pt2_tensor_arg(e, polar ? "abs" : "real");
    const pt2_value *b = pt2_tensor_arg(e, polar ? "angle" : "imag");
    int64_t sizes[PT2_RANK_MAX], at[PT2_RANK_MAX] = {0}, i = 0;
    pt2_value *v;
    double *data;
    if (!a || !b || a->kind != PT2_CONST || b->kind != PT2_CONST || a->v.rank != b->v.rank ||
        a->v.rank == PT2_RANK_MAX ||
        memcmp(a->v.size, b->v.size, (size_t)a->v.rank * sizeof *a->v.size) != 0)
        return pt2_refuse(e, "supported only for two tables of known numbers of the same shape");
    memcpy(sizes, a->v.size, sizeof sizes);
    sizes[a->v.rank] = 2;
    ATOM_TRY(pt2_const_new(e, a->v.rank + 1, sizes, &v, &data));
    do {
        double x = pt2_const_at(e, a, at), y = pt2_const_at(e, b, at);
        data[i++] = polar ? x * cos(y) : x;
        data[i++] = polar ? x * sin(y) : y;
    } while (pt2_view_next(&a->v, at));
    v->complex = true;
    return pt2_result(e, 0, v);
}

const pt2_op pt2_complex_ops[] = {
    {"aten.view_as_complex.default", op_view_as_complex},
    {"aten.view_as_real.default", op_view_as_real},
    {"aten.polar.default", op_make},
    {"aten.complex.default", op_make},
    {NULL, NULL},
};
