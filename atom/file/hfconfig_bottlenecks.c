/*
 * Owns bottlenecks in a config.json. One idea: a program that does not know them must not load the
 * model as if they were not there, so the file's model_type is one that nobody else has, and the
 * family's stands inside of the object that describes them. Refuses objects that say less than
 * everything, but for the kind: without one it is two linear layers, as in files that were made
 * before there was another.
 */
#include "atom/file/hfconfig.h"

#include <stdint.h>
#include <string.h>

static const char MAXOUT[] = "maxout";
static const char OBJECT[] = "atom_bottlenecks", CLASS[] = "AtomBottlenecksForCausalLM";

const json_t *file_bottlenecks_names(const json_t *root)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    const json_t *object = json_object_get(root, OBJECT);
    return type && strcmp(type, OBJECT) == 0 && json_is_object(object) ? object : root;
}

static atom_status take_blocks(const char *path, const json_t *list, graph_bottlenecks *b)
{
    b->n = (uint32_t)json_array_size(list);
    if (json_array_size(list) < 1 || json_array_size(list) > GRAPH_BOTTLENECKS_MAX)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: %s: after_blocks must be an array of 1 to %d whole numbers", path,
                         OBJECT, GRAPH_BOTTLENECKS_MAX);
    for (uint32_t i = 0; i < b->n; i++) {
        const json_t *after = json_array_get(list, i);
        json_int_t blocks = json_integer_value(after);
        if (!json_is_integer(after) || blocks < 1 || blocks > INT32_MAX)
            return atom_fail(ATOM_E_FORMAT,
                             "%s: %s: after_blocks has something other than whole numbers above 0",
                             path, OBJECT);
        b->after[i] = (int32_t)blocks;
    }
    return ATOM_OK;
}

static atom_status take_kind(const char *path, const json_t *kind, graph_bottlenecks *b)
{
    const char *text = json_string_value(kind);
    b->maxout = text && strcmp(text, MAXOUT) == 0;
    if (!kind || b->maxout || (text && strcmp(text, "linear") == 0))
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT, "%s: %s: kind must be \"linear\" or \"%s\"", path, OBJECT,
                     MAXOUT);
}

atom_status file_bottlenecks_take(const char *path, const json_t *root, graph_config *c)
{
    const json_t *object = json_object_get(root, OBJECT);
    if (file_bottlenecks_names(root) == root && !object)
        return ATOM_OK;
    if (file_bottlenecks_names(root) == root)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: %s and model_type '%s' must be used together; it is an object with "
                         "the family's model_type, after_blocks and width",
                         path, OBJECT, OBJECT);
    ATOM_TRY(take_blocks(path, json_object_get(object, "after_blocks"), &c->bottlenecks));
    ATOM_TRY(atom_json_int(path, object, "width", 1, INT32_MAX, &c->bottlenecks.width));
    ATOM_TRY(take_kind(path, json_object_get(object, "kind"), &c->bottlenecks));
    atom_status st = graph_bottlenecks_check(c);
    return st == ATOM_OK ? st : atom_fail_in(st, "%s: ", path);
}

int file_bottlenecks_set(json_t *root, const graph_config *c)
{
    const graph_bottlenecks *b = &c->bottlenecks;
    if (b->n == 0) {
        json_object_del(root, OBJECT);
        return 0;
    }
    json_t *blocks = json_array();
    int failed = !blocks;
    for (uint32_t i = 0; i < b->n && !failed; i++)
        failed = json_array_append_new(blocks, json_integer(b->after[i])) < 0;
    json_t *ours = failed ? NULL
                          : json_pack("{s:[s], s:s, s:{s:s, s:O, s:I, s:s*}}", "architectures",
                                      CLASS, "model_type", OBJECT, OBJECT, "model_type",
                                      graph_family_name(c->family), "after_blocks", blocks, "width",
                                      (json_int_t)b->width, "kind", b->maxout ? MAXOUT : NULL);
    failed = !ours || json_object_update(root, ours) < 0;
    json_decref(ours);
    json_decref(blocks);
    return failed;
}
