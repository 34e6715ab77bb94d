/*
 * Owns the values of a run through an exported graph: making them, the names that the file gives
 * them, and refusing a node with its place in the user's program. One idea: a value lives until the
 * run ends, so nobody counts its users.
 */
#include "atom/file/pt2_inner.h"

#include "atom/base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The innermost frame that is not PyTorch's own: "model.py:12 (x = self.f(x))". */
static void user_line(const json_t *node, char *out, size_t room)
{
    const char *at =
        json_string_value(json_object_get(json_object_get(node, "metadata"), "stack_trace"));
    out[0] = 0;
    for (at = at ? strstr(at, "File \"") : NULL; at; at = strstr(at + 1, "File \"")) {
        const char *name = at + 6, *end = strchr(name, '"');
        const char *line = end ? strstr(end, "line ") : NULL;
        const char *code = line ? strchr(line, '\n') : NULL;
        const char *torch = strstr(name, "/torch/");
        if (!line || (torch && torch < end))
            continue;
        for (const char *c = name; c < end; c++)
            name = *c == '/' ? c + 1 : name;
        code = code ? code + 1 + strspn(code + 1, " ") : "";
        snprintf(out, room, ", at %.*s:%d (%.*s)", (int)(end - name), name,
                 (int)strspn(line + 5, "0123456789") > 0 ? (int)strtol(line + 5, NULL, 10) : 0,
                 (int)strcspn(code, "\n"), code);
    }
}

atom_status pt2_refuse(const pt2_eval *e, const char *fmt, ...)
{
    char why[512], where[256];
    const char *target = json_string_value(json_object_get(e->node, "target"));
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    user_line(e->node, where, sizeof where);
    if (target && strncmp(target, "torch.ops.", 10) == 0)
        target += 10;
    return atom_fail(ATOM_E_UNSUPPORTED, "%s: %.128s%s: %s", e->path, target ? target : "the model",
                     where, why);
}

atom_status pt2_refuse_rows(const pt2_eval *e, const pt2_value *v)
{
    static const char RMS[] =
        "an RMS norm that is not finished (x * rsqrt(mean(x^2) + eps) * weight)";
    static const char *const words[PT2_LOSS + 1] = {
        [PT2_INT] = "a whole number",
        [PT2_TOKENS] = "the tokens",
        [PT2_TARGETS] = "the targets",
        [PT2_CONST] = "a table of numbers",
        [PT2_PARAM] = "a parameter by itself",
        [PT2_PLACES] = "a table of positions that is not added to the embedding of the tokens",
        [PT2_TURN] = "activations that were multiplied by a table, or turned",
        [PT2_FLIP] = "heads that were turned and transposed",
        [PT2_SQUARE] = RMS,
        [PT2_MEAN] = RMS,
        [PT2_MEANEPS] = RMS,
        [PT2_ROOT] = RMS,
        [PT2_RSTD] = RMS,
        [PT2_NORMED] = RMS,
        [PT2_SIGMOID] = "a sigmoid, which atom knows only as x * torch.sigmoid(x)",
        [PT2_CUBIC] =
            "a power, or a GELU written out in another way than 0.5 * x * (1 + tanh(..)): "
            "write F.gelu(x, approximate=\"tanh\")",
        [PT2_TANH] = "a tanh that is not multiplied by a cap",
        [PT2_SCORES] = "scores of attention that are not masked, put through a softmax and "
                       "multiplied by v",
        [PT2_LOSS] = "a loss"};
    if (v && v->kind == PT2_ACT && v->cap != 0)
        return pt2_refuse(e, "it reads logits with a soft cap, which only the loss does");
    if (v && v->kind == PT2_ACT && v->norm >= 0)
        return pt2_refuse(e, "it reads heads that were normalised, which only attention does");
    if (v && words[v->kind])
        return pt2_refuse(e, "it reads %s", words[v->kind]);
    return pt2_refuse(e, "it reads something other than rows of activations as a layer made them");
}

pt2_value *pt2_value_new(pt2_eval *e)
{
    pt2_value *v = NULL;
    if (atom_grow(&e->values, e->n_values, &e->values_room, sizeof *e->values) == ATOM_OK)
        v = atom_alloc(1, sizeof *v);
    if (!v)
        return NULL;
    v->norm = -1;
    e->values[e->n_values++] = v;
    return v;
}

atom_status pt2_value_copy(pt2_eval *e, const pt2_value *v, pt2_value **out)
{
    pt2_value *made = pt2_value_new(e);
    if (!made)
        return atom_fail_memory("a value", sizeof *made);
    *made = *v;
    made->turn = NULL;
    *out = made;
    return ATOM_OK;
}

atom_status pt2_name(pt2_eval *e, const char *name, const pt2_value *v)
{
    size_t i = e->n_values;
    while (i > 0 && e->values[i - 1] != v)
        i--;
    if (!name || i == 0)
        return atom_fail(ATOM_E_FORMAT, "%s: a result has no name", e->path);
    if (json_object_set_new(e->names, name, json_integer((json_int_t)(i - 1))) < 0)
        return atom_fail_memory("names", strlen(name));
    return ATOM_OK;
}

atom_status pt2_result(pt2_eval *e, size_t i, pt2_value *v)
{
    const json_t *outputs = json_object_get(e->node, "outputs"), *it = json_array_get(outputs, 0);
    const json_t *list = json_object_get(it, "as_tensors");
    const json_t *named =
        list ? json_array_get(list, i) : json_object_get(json_array_get(outputs, i), "as_tensor");
    const json_t *symbol = json_object_get(json_array_get(outputs, i), "as_sym_int");
    if (!list && symbol)
        return pt2_name(e, json_string_value(json_object_get(symbol, "as_name")), v);
    return pt2_name(e, json_string_value(json_object_get(named, "name")), v);
}
