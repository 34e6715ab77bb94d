/*
 * Owns strict reading of JSON objects. One idea: a field is asked for with its key and its range,
 * and either it is there and right or the message says where the file is wrong. Refuses defaults: a
 * file that leaves something out was not written by us.
 *
 * Values are read here and not by atom/base/json.h: a message names the place of an object within
 * others, and the rows that read a file also write it.
 */
#include "partition/json.h"

#include "atom/base/assert.h"
#include "atom/base/hex.h"
#include "atom/base/nearest.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "file: sub_models[3].first_node: what" */
ATOM_PRINTF(3, 4)
ATOM_MUST static atom_status wrong(const part_in *in, const char *key, const char *fmt, ...)
{
    char what[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return atom_fail(ATOM_E_FORMAT, "%s: %s%s%s: %s", in->file, in->where,
                     in->where[0] && key[0] ? "." : "", key, what);
}

enum { KEYS_MAX = 40 };

/* The first n_needed of n names must be there, the others may be, and nothing else. */
ATOM_MUST static atom_status only(const part_in *in, const char *const *names, size_t n_needed,
                                  size_t n)
{
    if (!json_is_object(in->object))
        return wrong(in, "", "expected an object");
    for (size_t i = 0; i < n_needed; i++)
        if (!json_object_get(in->object, names[i]))
            return wrong(in, names[i], "missing");
    for (void *it = json_object_iter((json_t *)in->object); it;
         it = json_object_iter_next((json_t *)in->object, it)) {
        const char *key = json_object_iter_key(it);
        size_t i = 0;
        while (i < n && strcmp(names[i], key) != 0)
            i++;
        if (i < n)
            continue;
        const char *near = atom_did_you_mean(key, names, n);
        return near ? wrong(in, key, "unknown key; did you mean \"%s\"?", near)
                    : wrong(in, key, "unknown key");
    }
    return ATOM_OK;
}

atom_status part_in_keys(const part_in *in, const char *const *keys, const char *const *optional)
{
    const char *names[KEYS_MAX] = {NULL};
    size_t n_needed = 0, n = 0;
    for (; keys[n_needed]; n_needed++) {
        ATOM_ASSERT(n < KEYS_MAX);
        names[n++] = keys[n_needed];
    }
    for (; optional && *optional; optional++) {
        ATOM_ASSERT(n < KEYS_MAX);
        names[n++] = *optional;
    }
    return only(in, names, n_needed, n);
}

atom_status part_in_version(const part_in *in, const char *key, int64_t version)
{
    const json_t *value = json_object_get(in->object, key);
    if (!json_is_integer(value))
        return atom_fail(ATOM_E_FORMAT, "%s: not a file of this kind: it has no \"%s\"", in->file,
                         key);
    if (json_integer_value(value) != version)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: \"%s\" is %lld, this program reads %lld; make the file again",
                         in->file, key, (long long)json_integer_value(value), (long long)version);
    return ATOM_OK;
}

atom_status part_in_i64(const part_in *in, const char *key, int64_t low, int64_t high, int64_t *out)
{
    const json_t *value = json_object_get(in->object, key);
    if (!json_is_integer(value))
        return wrong(in, key, "expected an integer");
    int64_t v = json_integer_value(value);
    if (v < low || v > high)
        return wrong(in, key, "%lld is not in %lld .. %lld", (long long)v, (long long)low,
                     (long long)high);
    *out = v;
    return ATOM_OK;
}

atom_status part_in_wrong(const part_in *in, const char *key, const char *what)
{
    return wrong(in, key, "%s", what);
}

atom_status part_in_i64_at(const part_in *in, const char *key, size_t i, int64_t low, int64_t high,
                           int64_t *out)
{
    const json_t *value = json_array_get(json_object_get(in->object, key), i);
    if (!json_is_integer(value))
        return wrong(in, key, "item %zu: expected an integer", i);
    int64_t v = json_integer_value(value);
    if (v < low || v > high)
        return wrong(in, key, "item %zu: %lld is not in %lld .. %lld", i, (long long)v,
                     (long long)low, (long long)high);
    *out = v;
    return ATOM_OK;
}

atom_status part_in_f64(const part_in *in, const char *key, double low, double high, double *out)
{
    const json_t *value = json_object_get(in->object, key);
    if (!json_is_number(value))
        return wrong(in, key, "expected a number");
    double v = json_number_value(value);
    if (!(v >= low && v <= high))
        return wrong(in, key, "%g is not in %g .. %g", v, low, high);
    *out = v;
    return ATOM_OK;
}

static atom_status read_bool(const part_in *in, const char *key, bool *out)
{
    const json_t *value = json_object_get(in->object, key);
    if (!json_is_boolean(value))
        return wrong(in, key, "expected true or false");
    *out = json_is_true(value);
    return ATOM_OK;
}

/* The string at key, without control characters, or NULL. */
static const char *plain_text(const part_in *in, const char *key)
{
    const json_t *value = json_object_get(in->object, key);
    if (!json_is_string(value))
        return NULL;
    const char *text = json_string_value(value);
    for (size_t i = 0; i < json_string_length(value); i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return NULL;
    return text;
}

atom_status part_in_text(const part_in *in, const char *key, char *out, size_t size)
{
    const char *text = plain_text(in, key);
    size_t n = text ? strlen(text) : 0;
    if (n < 1 || n >= size)
        return wrong(in, key, "expected a string of 1 to %zu printable bytes", size - 1);
    memset(out, 0, size);
    memcpy(out, text, n);
    return ATOM_OK;
}

static atom_status read_hash(const part_in *in, const char *key, uint64_t *out)
{
    const char *text = plain_text(in, key);
    if (!text || strlen(text) != 18 || memcmp(text, "0x", 2) != 0 ||
        strspn(text + 2, ATOM_HEX_DIGITS) != 16)
        return wrong(in, key, "expected \"0x\" and 16 hexadecimal digits");
    *out = strtoull(text, NULL, 16);
    return ATOM_OK;
}

static atom_status read_choice(const part_in *in, const char *key, const char *const *names, int n,
                               int *out)
{
    const char *text = plain_text(in, key);
    char all[256] = "";
    size_t used = 0;
    for (int i = 0; i < n; i++) {
        if (text && strcmp(text, names[i]) == 0) {
            *out = i;
            return ATOM_OK;
        }
        int more = snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", names[i]);
        used += more > 0 && (size_t)more < sizeof all - used ? (size_t)more : 0;
    }
    return wrong(in, key, "expected one of: %s", all);
}

static atom_status read_dtype(const part_in *in, const char *key, atom_dtype *out)
{
    const atom_dtype dtypes[] = {ATOM_F32, ATOM_BF16};
    const char *const names[] = {atom_dtype_name(dtypes[0]), atom_dtype_name(dtypes[1])};
    int i = 0;
    ATOM_TRY(read_choice(in, key, names, 2, &i));
    *out = dtypes[i];
    return ATOM_OK;
}

static atom_status read_integer(const part_in *in, const part_field *f, void *at)
{
    int64_t v = 0;
    ATOM_TRY(part_in_i64(in, f->key, (int64_t)f->low, (int64_t)f->high, &v));
    if (f->size == sizeof(uint32_t))
        *(uint32_t *)at = (uint32_t)v;
    else
        *(uint64_t *)at = (uint64_t)v;
    return ATOM_OK;
}

static atom_status read_chosen(const part_in *in, const part_field *f, void *at)
{
    int value = 0;
    ATOM_TRY(read_choice(in, f->key, f->names, f->n_names, &value));
    if (f->size == sizeof(bool))
        *(bool *)at = value;
    else
        *(int *)at = value;
    return ATOM_OK;
}

static atom_status read_field(const part_in *in, const part_field *f, void *at)
{
    switch (f->kind) {
    case PART_FIELD_INTEGER:
        return read_integer(in, f, at);
    case PART_FIELD_F64:
        return part_in_f64(in, f->key, f->low, f->high, at);
    case PART_FIELD_BOOL:
        return read_bool(in, f->key, at);
    case PART_FIELD_TEXT:
        return part_in_text(in, f->key, at, f->size);
    case PART_FIELD_HASH:
        return read_hash(in, f->key, at);
    case PART_FIELD_DTYPE:
        return read_dtype(in, f->key, at);
    case PART_FIELD_CHOICE:
        return read_chosen(in, f, at);
    case PART_FIELD_INSIDE:
        break;
    }
    return ATOM_OK;
}

atom_status part_in_fields(const part_in *in, const part_field *fields, size_t n, void *object)
{
    const char *names[KEYS_MAX] = {NULL};
    size_t n_needed = 0, used = 0;
    ATOM_ASSERT(n <= KEYS_MAX);
    for (size_t i = 0; i < n; i++)
        if (!fields[i].optional)
            names[n_needed++] = fields[i].key;
    used = n_needed;
    for (size_t i = 0; i < n; i++)
        if (fields[i].optional)
            names[used++] = fields[i].key;
    ATOM_TRY(only(in, names, n_needed, used));
    for (size_t i = 0; i < n; i++)
        if (json_object_get(in->object, fields[i].key))
            ATOM_TRY(read_field(in, &fields[i], (char *)object + fields[i].at));
    return ATOM_OK;
}

atom_status part_in_array(const part_in *in, const char *key, size_t low, size_t high, json_t **out)
{
    json_t *value = json_object_get(in->object, key);
    if (!json_is_array(value))
        return wrong(in, key, "expected a list");
    if (json_array_size(value) < low || json_array_size(value) > high)
        return wrong(in, key, "a list of %zu items; expected %zu to %zu", json_array_size(value),
                     low, high);
    *out = value;
    return ATOM_OK;
}

atom_status part_in_child(const part_in *in, const char *key, part_in *child)
{
    *child = (part_in){.file = in->file, .object = json_object_get(in->object, key)};
    snprintf(child->where, sizeof child->where, "%.20s%s%.40s", in->where, in->where[0] ? "." : "",
             key);
    return json_is_object(child->object) ? ATOM_OK : wrong(child, "", "expected an object");
}

atom_status part_in_item(const part_in *in, const char *key, const json_t *array, size_t i,
                         part_in *child)
{
    *child = (part_in){.file = in->file, .object = json_array_get(array, i)};
    snprintf(child->where, sizeof child->where, "%.40s[%zu]", key, i);
    return json_is_object(child->object) ? ATOM_OK : wrong(child, "", "expected an object");
}
