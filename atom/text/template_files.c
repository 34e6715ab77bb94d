/*
 * Owns the search for a model's own template. One idea: the files that transformers looks into, in
 * its order, the first that has a template. Refuses files that are damaged, and lists of templates
 * of which none is the default one.
 */
#include "atom/text/template_files.h"

#include "atom/base/files.h"
#include "atom/base/json.h"
#include "atom/base/mem.h"

#include <string.h>

static const uint64_t FILE_MAX = 16 << 20;

void text_template_files_fini(text_template_files *b)
{
    atom_free(b->source);
    atom_free(b->with_tools);
    atom_free(b->where);
    json_decref(b->names);
    *b = (text_template_files){0};
}

/* *text stays NULL where there is no such file. */
static atom_status read_file(const char *dir, const char *name, char **text, uint64_t *bytes,
                             char **path)
{
    *path = atom_path_join(dir, name);
    if (!*path)
        return atom_fail_memory("a path", strlen(dir));
    return atom_path_exists(*path) ? atom_file_read(*path, FILE_MAX, text, bytes) : ATOM_OK;
}

/* *root stays NULL where there is no such file. */
static atom_status read_json(const char *dir, const char *name, json_t **root, char **path)
{
    char *text = NULL;
    uint64_t bytes = 0;
    json_error_t error;
    atom_status st = read_file(dir, name, &text, &bytes, path);
    if (st != ATOM_OK || !text)
        return st;
    /* transformers writes model_max_length as 10^30: an integer for nobody else */
    *root = json_loadb(text, (size_t)bytes, JSON_DECODE_INT_AS_REAL, &error);
    atom_free(text);
    if (*root)
        return ATOM_OK;
    if (atom_json_starved(&error))
        return atom_fail_memory(name, (size_t)bytes);
    return atom_fail(ATOM_E_FORMAT,
                     "%s is not JSON (line %d: %s); copy the model again, or choose a --template",
                     *path, error.line, error.text);
}

static atom_status keep(const char *text, char **out)
{
    if (!text)
        return ATOM_OK;
    *out = atom_strdup(text);
    return *out ? ATOM_OK : atom_fail_memory("a chat template", strlen(text));
}

static const char *named(const json_t *list, const char *want)
{
    const json_t *entry;
    size_t i;
    json_array_foreach(list, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && strcmp(name, want) == 0)
            return json_string_value(json_object_get(entry, "template"));
    }
    return NULL;
}

/* The value of chat_template: a text, or a list of {name, template}. */
static atom_status take_template(const json_t *value, const char *path, text_template_files *out)
{
    if (!value || json_is_null(value))
        return ATOM_OK;
    if (json_is_string(value)) {
        ATOM_TRY(keep(json_string_value(value), &out->source));
    } else {
        ATOM_TRY(keep(named(value, "default"), &out->source));
        ATOM_TRY(keep(named(value, "tool_use"), &out->with_tools));
    }
    if (!out->source)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: its chat_template is neither a text nor a list with one named "
                         "default; choose a --template",
                         path);
    return keep(path, &out->where);
}

/* Each "x_token" that is a text, or an object with its content; a name that is there stays. */
static atom_status take_names(const json_t *root, json_t *names)
{
    const char *key;
    json_t *value;
    int failed = 0;
    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        size_t n = strlen(key);
        const json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
        bool token = n > 6 && strcmp(key + n - 6, "_token") == 0;
        if (token && json_is_string(text) && !json_object_get(names, key))
            failed |= json_object_set_new(names, key, json_copy((json_t *)(uintptr_t)text));
    }
    return failed ? atom_fail_memory("names of tokens", 0) : ATOM_OK;
}

static atom_status take_all_names(const json_t *config, const json_t *map, text_template_files *out)
{
    if (!config && !map)
        return ATOM_OK;
    out->names = json_object();
    if (!out->names)
        return atom_fail_memory("names of tokens", 0);
    ATOM_TRY(take_names(config, out->names));
    return take_names(map, out->names);
}

/* A template inside of another: without the last line end, as each is by itself. */
static int inner_bytes(const char *source)
{
    size_t n = strlen(source);
    return (int)(n && source[n - 1] == '\n' ? n - 1 : n);
}

atom_status text_template_files_join(text_template_files *b)
{
    if (!b->with_tools)
        return ATOM_OK;
    /* the line ends behind the tags are theirs; + keeps the blanks before them */
    char *both =
        atom_format("{%% if tools %%}\n%.*s{%%+ else %%}\n%.*s{%%+ endif %%}",
                    inner_bytes(b->with_tools), b->with_tools, inner_bytes(b->source), b->source);
    if (!both)
        return atom_fail_memory("a chat template", strlen(b->source));
    atom_free(b->source);
    atom_free(b->with_tools);
    b->source = both;
    b->with_tools = NULL;
    return ATOM_OK;
}

atom_status text_template_files_read(const char *dir, text_template_files *out)
{
    atom_status st = ATOM_OK;
    char *paths[5] = {NULL};
    json_t *config = NULL, *processor = NULL, *map = NULL;
    uint64_t bytes;
    ATOM_TRY_CLEAN(read_file(dir, "chat_template.jinja", &out->source, &bytes, &paths[0]));
    if (out->source) {
        ATOM_TRY_CLEAN(keep(paths[0], &out->where));
        ATOM_TRY_CLEAN(read_file(dir, "additional_chat_templates/tool_use.jinja", &out->with_tools,
                                 &bytes, &paths[4]));
    }
    ATOM_TRY_CLEAN(read_json(dir, "chat_template.json", &processor, &paths[1]));
    if (!out->source)
        ATOM_TRY_CLEAN(take_template(json_object_get(processor, "chat_template"), paths[1], out));
    ATOM_TRY_CLEAN(read_json(dir, "tokenizer_config.json", &config, &paths[2]));
    if (!out->source)
        ATOM_TRY_CLEAN(take_template(json_object_get(config, "chat_template"), paths[2], out));
    ATOM_TRY_CLEAN(read_json(dir, "special_tokens_map.json", &map, &paths[3]));
    st = take_all_names(config, map, out);
cleanup:
    for (int i = 0; i < 5; i++)
        atom_free(paths[i]);
    json_decref(config);
    json_decref(processor);
    json_decref(map);
    if (st != ATOM_OK)
        text_template_files_fini(out);
    return st;
}
