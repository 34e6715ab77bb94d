/*
 * Owns how JSON is read and written everywhere. One idea: a key is asked for with its range, and
 * either its value is right or the message names file and key. Refuses defaults, which belong to
 * whoever knows what the key means.
 */
#include "atom/base/json.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>

bool atom_json_starved(const json_error_t *error)
{
    return error->text[0] == 0 || json_error_code(error) == json_error_out_of_memory;
}

atom_status atom_json_parse(const char *file, const char *text, size_t bytes, size_t flags,
                            json_t **root)
{
    json_error_t error;
    if (atom_is_lfs_pointer(text, bytes))
        return atom_fail_lfs(file);
    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) /* Python's json refuses it, too */
        return atom_fail(ATOM_E_FORMAT,
                         "%s: it begins with a byte order mark, which is not allowed in JSON; "
                         "remove it: sed -i '1s/^\\xef\\xbb\\xbf//' %s",
                         file, file);
    json_t *parsed = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | flags, &error);
    if (!parsed && atom_json_starved(&error))
        return atom_fail_memory(file, bytes);
    if (!parsed)
        return atom_fail(ATOM_E_FORMAT, "%s:%d:%d: not JSON: %s", file, error.line, error.column,
                         error.text);
    if (!json_is_object(parsed)) {
        json_decref(parsed);
        return atom_fail(ATOM_E_FORMAT, "%s:1:1: not a JSON object", file);
    }
    *root = parsed;
    return ATOM_OK;
}

const json_t *atom_json_present(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static atom_status missing(const char *file, const char *key)
{
    return atom_fail(ATOM_E_FORMAT, "%s: %s is missing", file, key);
}

atom_status atom_json_int(const char *file, const json_t *object, const char *key, int64_t low,
                          int64_t high, int64_t *out)
{
    const json_t *value = atom_json_present(object, key);
    if (!value)
        return missing(file, key);
    int64_t number = json_integer_value(value);
    if (json_is_integer(value) && number >= low && number <= high) {
        *out = number;
        return ATOM_OK;
    }
    if (high == INT64_MAX)
        return atom_fail(ATOM_E_FORMAT, "%s: %s must be a whole number of at least %lld", file, key,
                         (long long)low);
    return atom_fail(ATOM_E_FORMAT, "%s: %s must be a whole number from %lld to %lld", file, key,
                     (long long)low, (long long)high);
}

/* For messages: what stands where something else should. */
static const char *what_is(const json_t *value, char out[64])
{
    if (json_is_string(value))
        snprintf(out, 64, "the text \"%.40s\"", json_string_value(value));
    else if (json_is_number(value))
        snprintf(out, 64, "%g", json_number_value(value));
    else
        return json_is_array(value)    ? "a list"
               : json_is_object(value) ? "an object"
               : json_is_true(value)   ? "true"
                                       : "false";
    return out;
}

atom_status atom_json_real(const char *file, const json_t *object, const char *key, double low,
                           double high, double *out)
{
    const json_t *value = atom_json_present(object, key);
    if (!value)
        return missing(file, key);
    char is[64];
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= low && number <= high))
        return atom_fail(ATOM_E_FORMAT, "%s: %s must be a number from %g to %g, but it is %s", file,
                         key, low, high, what_is(value, is));
    *out = number;
    return ATOM_OK;
}

atom_status atom_json_flag(const char *file, const json_t *object, const char *key, bool *out)
{
    const json_t *value = atom_json_present(object, key);
    if (!value)
        return missing(file, key);
    if (!json_is_boolean(value))
        return atom_fail(ATOM_E_FORMAT, "%s: %s must be true or false", file, key);
    *out = json_is_true(value);
    return ATOM_OK;
}

atom_status atom_json_text(json_t *root, size_t flags, const char *tail, char **text)
{
    size_t n = root ? json_dumpb(root, NULL, 0, flags) : 0;
    char *made = n ? atom_alloc(n + strlen(tail) + 1, 1) : NULL;
    bool whole = made && json_dumpb(root, made, n, flags) == n;
    json_decref(root);
    if (!whole) {
        atom_free(made);
        return atom_fail_memory("JSON", n);
    }
    memcpy(made + n, tail, strlen(tail));
    *text = made;
    return ATOM_OK;
}

atom_status atom_json_save(json_t *root, size_t flags, const char *tail, const char *path)
{
    char *text = NULL;
    ATOM_TRY(atom_json_text(root, flags, tail, &text));
    atom_status st = atom_file_write(path, text, strlen(text));
    atom_free(text);
    return st;
}
