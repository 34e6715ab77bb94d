/*
 * Owns which tensors of an exported program share their numbers, so that changing one in place changes the others. One
 * idea: what an operator of views returns is its argument under another name, and so is what an operator that changes
 * something in place returns. Where PyTorch copies in some cases and not in others (reshape, contiguous, to), they
 * are taken to share. Refuses a change that somebody sees later who was not told of it.
 */
#include "atom/file/pt2_inner.h"

#include "atom/base/mem.h"

#include <string.h>

/* Those like __and__ change nothing. */
bool pt2_in_place(const json_t *node)
{
    const char *target = json_string_value(json_object_get(node, "target"));
    const char *dot = target ? strrchr(target, '.') : NULL;
    return dot && dot - target > 1 && dot[-1] == '_' && dot[-2] != '_';
}

/* "view" of "torch.ops.aten.view.default" */
static bool is_called(const json_t *node, const char *word)
{
    const char *target = json_string_value(json_object_get(node, "target"));
    const char *at = target ? strstr(target, "aten.") : NULL;
    size_t n = strlen(word);
    return at && strncmp(at + 5, word, n) == 0 && at[5 + n] == '.';
}

static bool shares(const json_t *node)
{
    static const char *const words[] = {"view",
                                        "reshape",
                                        "_unsafe_view",
                                        "unflatten",
                                        "flatten",
                                        "transpose",
                                        "t",
                                        "numpy_T",
                                        "permute",
                                        "slice",
                                        "select",
                                        "unsqueeze",
                                        "squeeze",
                                        "expand",
                                        "split",
                                        "split_with_sizes",
                                        "chunk",
                                        "unbind",
                                        "contiguous",
                                        "alias",
                                        "detach",
                                        "to",
                                        "dropout",
                                        "type_as",
                                        "view_as_real",
                                        "view_as_complex"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is_called(node, words[i]))
            return true;
    return pt2_in_place(node);
}

/* Every name that stands in a node's outputs means the numbers of `root`. */
static bool name_all(json_t *roots, const json_t *outputs, const char *root)
{
    const char *key;
    const json_t *it;
    size_t i;
    bool fine = true;
    json_array_foreach((json_t *)(uintptr_t)outputs, i, it) fine &= name_all(roots, it, root);
    json_object_foreach((json_t *)(uintptr_t)outputs, key, it)
    {
        const char *name = strcmp(key, "name") == 0 ? json_string_value(it) : NULL;
        fine &= name ? json_object_set_new(roots, name, json_string(root)) == 0
                     : name_all(roots, it, root);
    }
    return fine;
}

const char *pt2_root(const json_t *roots, const char *name)
{
    const char *root = json_string_value(json_object_get(roots, name));
    return root ? root : name;
}

const char *pt2_self(const json_t *node)
{
    const json_t *self = json_array_get(json_object_get(node, "inputs"), 0);
    const json_t *arg = json_object_get(json_object_get(self, "arg"), "as_tensor");
    return json_string_value(json_object_get(arg, "name"));
}

atom_status pt2_roots(const pt2_archive *a, json_t **out)
{
    const json_t *nodes = json_object_get(a->graph, "nodes");
    json_t *roots = json_object();
    bool fine = roots;
    for (size_t i = 0; fine && i < json_array_size(nodes); i++) {
        const json_t *node = json_array_get(nodes, i);
        const char *self = shares(node) ? pt2_self(node) : NULL;
        if (self)
            fine = name_all(roots, json_object_get(node, "outputs"), pt2_root(roots, self));
    }
    if (!fine) {
        json_decref(roots);
        return atom_fail_memory("names", 64);
    }
    *out = roots;
    return ATOM_OK;
}

atom_status pt2_refuse_shared(const pt2_eval *e, const char *name, const char *other)
{
    return pt2_refuse(e,
                      "it changes %.64s in place and so %.64s, a view of the same, which is read "
                      "later; write it without the underscore",
                      name, other);
}

/* Of known numbers masked_fill_ changes those that all views see. */
static bool follows(const pt2_eval *e, const pt2_value *was, const pt2_value *v)
{
    return is_called(e->node, "masked_fill_") && was->kind == PT2_CONST && v->kind == PT2_CONST &&
           v->base == was->base;
}

atom_status pt2_check_shared(pt2_eval *e, const char *name, const json_t *later)
{
    const pt2_value *was = pt2_named(e, name);
    const char *other, *found = NULL;
    json_t *roots = NULL, *index;
    const json_t *out = json_array_get(json_object_get(e->node, "outputs"), 0);
    const char *made =
        json_string_value(json_object_get(json_object_get(out, "as_tensor"), "name"));
    if (is_called(e->node, "detach_")) /* which changes no number */
        return ATOM_OK;
    ATOM_TRY(pt2_roots(e->archive, &roots));
    json_object_foreach(e->names, other, index)
    {
        bool result = made && strcmp(other, made) == 0;
        if (!result && strcmp(other, name) != 0 && json_object_get(later, other) &&
            strcmp(pt2_root(roots, other), pt2_root(roots, name)) == 0 &&
            !follows(e, was, pt2_named(e, other)))
            found = other;
    }
    json_decref(roots);
    return found ? pt2_refuse_shared(e, name, found) : ATOM_OK;
}
