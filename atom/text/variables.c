/*
 * Owns variables of templates from their text to a template that has them. One idea: a variable
 * that data were prepared with becomes the template's own word for what nobody says, so that every
 * program asks the model as it was taught. Refuses names that would change nothing.
 */
#include "atom/text/variables.h"

#include "atom/base/json.h"
#include "atom/base/mem.h"

#include <string.h>

atom_status text_variables_parse(const char *text, json_t **out)
{
    json_error_t error;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!root && atom_json_starved(&error))
        return atom_fail_memory("variables of a template", strlen(text));
    if (json_is_object(root)) {
        *out = root;
        return ATOM_OK;
    }
    atom_status st = atom_fail(
        ATOM_E_USAGE, "template_vars: %s; write a JSON object like {\"enable_thinking\": false}",
        root ? "this is not an object" : error.text);
    json_decref(root);
    return st;
}

static bool is_own(const char *name)
{
    size_t n = strlen(name);
    return strcmp(name, "messages") == 0 || strcmp(name, "add_generation_prompt") == 0 ||
           (n > 6 && strcmp(name + n - 6, "_token") == 0);
}

static bool is_name(const char *name)
{
    static const char begins[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    size_t n = strspn(name, begins);
    return n && name[n + strspn(name + n, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
                                          "0123456789")] == 0;
}

atom_status text_variables_check(const json_t *variables, const text_jinja *t, atom_status st)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)variables, name, value)
    {
        bool list = strcmp(name, "tools") == 0 || strcmp(name, "documents") == 0;
        if (is_own(name))
            return atom_fail(st,
                             "the template's variable \"%.60s\" is set by atom for every chat; "
                             "leave it out",
                             name);
        if (!is_name(name))
            return atom_fail(st, "the template's variable \"%.60s\": this is not a valid name",
                             name);
        if (json_is_null(value))
            return atom_fail(st, "the template's variable \"%.60s\" is null; leave it out", name);
        if (list && !json_is_array(value))
            return atom_fail(st, "the template's variable \"%.60s\" is not a list", name);
        if (!text_jinja_mentions(t, name))
            return atom_fail(st,
                             "the chat template has no variable \"%.60s\", so setting it has no "
                             "effect; leave it out, or look up the right name in the template",
                             name);
    }
    return ATOM_OK;
}

/* A value as Jinja writes it, which has none where JSON has null. */
static atom_status write_value(jinja_writer *w, const json_t *value)
{
    const char *key;
    json_t *one;
    size_t i;
    if (json_is_null(value))
        return jinja_put_word(w, "none");
    if (json_is_array(value)) {
        ATOM_TRY(jinja_put_word(w, "["));
        json_array_foreach(value, i, one)
        {
            ATOM_TRY(write_value(w, one));
            ATOM_TRY(jinja_put_word(w, ", "));
        }
        return jinja_put_word(w, "]");
    }
    if (json_is_object(value)) {
        ATOM_TRY(jinja_put_word(w, "{"));
        json_object_foreach((json_t *)(uintptr_t)value, key, one)
        {
            json_t *name = json_string(key);
            atom_status st = name ? write_value(w, name) : atom_fail_memory("a name", strlen(key));
            json_decref(name);
            ATOM_TRY(st);
            ATOM_TRY(jinja_put_word(w, ": "));
            ATOM_TRY(write_value(w, one));
            ATOM_TRY(jinja_put_word(w, ", "));
        }
        return jinja_put_word(w, "}");
    }
    char *text = NULL;
    ATOM_TRY(atom_json_text(json_incref((json_t *)(uintptr_t)value), JSON_ENCODE_ANY, "", &text));
    atom_status st = jinja_put_word(w, text);
    atom_free(text);
    return st;
}

static atom_status write_all(jinja_writer *w, const json_t *variables, const char *source)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)variables, name, value)
    {
        ATOM_TRY(jinja_put_word(w, "{%- if not "));
        ATOM_TRY(jinja_put_word(w, name));
        ATOM_TRY(jinja_put_word(w, " is defined or "));
        ATOM_TRY(jinja_put_word(w, name));
        ATOM_TRY(jinja_put_word(w, " is none %}{%- set "));
        ATOM_TRY(jinja_put_word(w, name));
        ATOM_TRY(jinja_put_word(w, " = "));
        ATOM_TRY(write_value(w, value));
        ATOM_TRY(jinja_put_word(w, " %}{%- endif %}\n"));
    }
    return jinja_put_word(w, source);
}

atom_status text_variables_settle(const json_t *variables, const char *source, char **out)
{
    jinja_heap h = {.name = "the template's variables"};
    jinja_writer w = {.h = &h};
    atom_status st;
    *out = NULL;
    ATOM_TRY_CLEAN(write_all(&w, variables, source));
    *out = atom_format("%.*s", (int)w.n, w.at);
    if (!*out)
        ATOM_TRY_CLEAN(atom_fail_memory("a chat template", w.n));
cleanup:
    jinja_heap_fini(&h);
    return st;
}
