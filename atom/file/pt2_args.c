/*
 * Owns how arguments of an exported node are read: each is a JSON object whose one key says what it
 * is. One idea: absent, None and of another kind are the same to a caller with a fallback. Refuses
 * nothing; a caller that needs an argument says so.
 */
#include "atom/file/pt2_inner.h"

#include <math.h>
#include <string.h>

const json_t *pt2_arg(const pt2_eval *e, const char *name)
{
    const json_t *inputs = json_object_get(e->node, "inputs");
    for (size_t i = 0; i < json_array_size(inputs); i++) {
        const json_t *in = json_array_get(inputs, i);
        const char *has = json_string_value(json_object_get(in, "name"));
        const json_t *arg = json_object_get(in, "arg");
        if (has && strcmp(has, name) == 0)
            return json_object_get(arg, "as_none") ? NULL : arg;
    }
    return NULL;
}

const pt2_value *pt2_named(const pt2_eval *e, const char *name)
{
    const json_t *index = name ? json_object_get(e->names, name) : NULL;
    return index ? e->values[json_integer_value(index)] : NULL;
}

static const char *name_in(const json_t *object)
{
    return json_string_value(json_object_get(object, "name"));
}

const pt2_value *pt2_tensor_arg(const pt2_eval *e, const char *name)
{
    const json_t *arg = pt2_arg(e, name);
    const json_t *optional =
        json_object_get(json_object_get(arg, "as_optional_tensor"), "as_tensor");
    const json_t *tensor = json_object_get(arg, "as_tensor");
    return pt2_named(e, name_in(tensor ? tensor : optional));
}

const pt2_value *pt2_list_arg(const pt2_eval *e, const char *name, size_t i)
{
    return pt2_named(e,
                     name_in(json_array_get(json_object_get(pt2_arg(e, name), "as_tensors"), i)));
}

/* A number, or a symbol that some node computed. */
static bool whole(const pt2_eval *e, const json_t *it, int64_t *out)
{
    const json_t *number = json_is_integer(it) ? it : json_object_get(it, "as_int");
    const pt2_value *v = pt2_named(e, json_string_value(json_object_get(it, "as_name")));
    if (!json_is_integer(number) && (!v || v->kind != PT2_INT))
        return false;
    *out = json_is_integer(number) ? json_integer_value(number) : v->number;
    return true;
}

int64_t pt2_int_arg(const pt2_eval *e, const char *name, int64_t fallback)
{
    const json_t *arg = pt2_arg(e, name), *symbol = json_object_get(arg, "as_sym_int");
    int64_t out = fallback;
    return arg && whole(e, symbol ? symbol : arg, &out) ? out : fallback;
}

double pt2_real_arg(const pt2_eval *e, const char *name, double fallback)
{
    double out = fallback;
    return pt2_number_arg(e, name, &out) ? out : fallback;
}

bool pt2_number_arg(const pt2_eval *e, const char *name, double *out)
{
    const json_t *arg = pt2_arg(e, name), *real = json_object_get(arg, "as_float"),
                 *truth = json_object_get(arg, "as_bool"),
                 *symbol = json_object_get(arg, "as_sym_int");
    const char *word = json_string_value(real); /* what JSON has no number for */
    int64_t n;
    if (json_is_number(real))
        *out = json_number_value(real);
    else if (word && strstr(word, "nf"))
        *out = word[0] == '-' ? -HUGE_VAL : HUGE_VAL;
    else if (truth)
        *out = json_is_true(truth);
    else if (arg && whole(e, symbol ? symbol : arg, &n))
        *out = (double)n;
    else
        return false;
    return true;
}

bool pt2_bool_arg(const pt2_eval *e, const char *name, bool fallback)
{
    const json_t *truth = json_object_get(pt2_arg(e, name), "as_bool");
    return truth ? json_is_true(truth) : fallback;
}

const char *pt2_text_arg(const pt2_eval *e, const char *name, const char *fallback)
{
    const char *text = json_string_value(json_object_get(pt2_arg(e, name), "as_string"));
    return text ? text : fallback;
}

int pt2_ints_arg(const pt2_eval *e, const char *name, int64_t *out, int room)
{
    const json_t *arg = pt2_arg(e, name), *list = json_object_get(arg, "as_ints");
    if (!list)
        list = json_object_get(arg, "as_sym_ints");
    size_t n = json_array_size(list);
    if (!list || n > (size_t)room)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (!whole(e, json_array_get(list, i), &out[i]))
            return -1;
    return (int)n;
}
