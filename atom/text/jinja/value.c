/*
 * Owns how values are made, found and compared for equality. One idea: a value is small and copied,
 * what it points at is the heap's and immutable. Refuses numbers beyond 64 bits and nesting without
 * end.
 */
#include "atom/text/jinja/value.h"

#include "atom/text/utf8.h"

#include <string.h>

bool jinja_text_is(jinja_text t, const char *word)
{
    return t.n == strlen(word) && memcmp(t.at, word, t.n) == 0;
}

bool jinja_is_number(jinja_value v)
{
    return v.kind == JINJA_BOOL || v.kind == JINJA_INT || v.kind == JINJA_REAL;
}

double jinja_number(jinja_value v)
{
    return v.kind == JINJA_REAL ? v.r : v.kind == JINJA_INT ? (double)v.i : (double)v.truth;
}

bool jinja_is_sequence(jinja_value v)
{
    return v.kind == JINJA_LIST || v.kind == JINJA_TUPLE || v.kind == JINJA_VIEW ||
           v.kind == JINJA_ITERATOR;
}

const char *jinja_kind_name(jinja_value v)
{
    static const char *const names[] = {
        [JINJA_UNDEFINED] = "undefined", [JINJA_NONE] = "none",
        [JINJA_BOOL] = "bool",           [JINJA_INT] = "int",
        [JINJA_REAL] = "float",          [JINJA_TEXT] = "str",
        [JINJA_LIST] = "list",           [JINJA_TUPLE] = "tuple",
        [JINJA_VIEW] = "view",           [JINJA_ITERATOR] = "iterator",
        [JINJA_DICT] = "dict",           [JINJA_NAMESPACE] = "namespace",
        [JINJA_LOOP] = "loop",           [JINJA_CALLABLE] = "function",
    };
    return names[v.kind];
}

bool jinja_truth(jinja_value v)
{
    switch (v.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return v.truth;
    case JINJA_INT:
        return v.i != 0;
    case JINJA_REAL:
        return v.r < 0 || v.r > 0 || v.r != v.r;
    case JINJA_TEXT:
        return v.text->n > 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_VIEW:
        return v.list->n > 0;
    case JINJA_DICT:
        return v.dict->n > 0;
    default:
        return true;
    }
}

/* ---- making ---- */

atom_status jinja_from_text(jinja_heap *h, jinja_text t, jinja_value *out)
{
    jinja_text *made;
    ATOM_TRY(jinja_alloc(h, 1, sizeof *made, &made));
    *made = t;
    *out = (jinja_value){.kind = JINJA_TEXT, .text = made};
    return ATOM_OK;
}

atom_status jinja_from_bytes(jinja_heap *h, const char *at, size_t n, jinja_mark mark,
                             jinja_value *out)
{
    jinja_writer w = {.h = h};
    ATOM_TRY(jinja_put(&w, at, n, mark));
    return jinja_from_text(h, jinja_written(&w), out);
}

atom_status jinja_new_list(jinja_heap *h, jinja_kind kind, jinja_value *out)
{
    jinja_list *made;
    ATOM_TRY(jinja_alloc(h, 1, sizeof *made, &made));
    *out = (jinja_value){.kind = kind, .list = made};
    return ATOM_OK;
}

atom_status jinja_new_dict(jinja_heap *h, jinja_kind kind, jinja_value *out)
{
    jinja_dict *made;
    ATOM_TRY(jinja_alloc(h, 1, sizeof *made, &made));
    *out = (jinja_value){.kind = kind, .dict = made};
    return ATOM_OK;
}

static atom_status grow(jinja_heap *h, jinja_value **items, size_t n, size_t capacity)
{
    jinja_value *made;
    ATOM_TRY(jinja_alloc(h, capacity, sizeof *made, &made));
    if (n)
        memcpy(made, *items, n * sizeof *made);
    *items = made;
    return ATOM_OK;
}

atom_status jinja_append(jinja_heap *h, jinja_list *list, jinja_value item)
{
    ATOM_TRY(jinja_step(h, 1));
    if (list->n == list->capacity) {
        size_t capacity = list->n * 2 + 4;
        ATOM_TRY(grow(h, &list->items, list->n, capacity));
        list->capacity = capacity;
    }
    list->items[list->n++] = item;
    return ATOM_OK;
}

/* The place of a key, or n. */
static atom_status place_of(jinja_heap *h, const jinja_dict *d, jinja_value key, size_t *out)
{
    bool same = false;
    size_t i = 0;
    ATOM_TRY(jinja_step(h, d->n / 8));
    for (; i < d->n && !same; i++)
        ATOM_TRY(jinja_equal(h, d->keys[i], key, &same));
    *out = same ? i - 1 : d->n;
    return ATOM_OK;
}

static bool can_be_key(jinja_value key)
{
    return key.kind == JINJA_TEXT || key.kind == JINJA_NONE || jinja_is_number(key) ||
           key.kind == JINJA_TUPLE;
}

atom_status jinja_set(jinja_heap *h, jinja_dict *d, jinja_value key, jinja_value value)
{
    size_t at;
    if (!can_be_key(key))
        return jinja_fail(h, "a key of a dict cannot be of type '%s'", jinja_kind_name(key));
    ATOM_TRY(place_of(h, d, key, &at));
    if (at == d->capacity) {
        size_t capacity = d->n * 2 + 4;
        ATOM_TRY(grow(h, &d->keys, d->n, capacity));
        ATOM_TRY(grow(h, &d->values, d->n, capacity));
        d->capacity = capacity;
    }
    if (at == d->n) {
        d->keys[at] = key;
        d->n++;
    }
    d->values[at] = value;
    return ATOM_OK;
}

atom_status jinja_set_name(jinja_heap *h, jinja_dict *d, const char *name, jinja_value value)
{
    jinja_value key;
    ATOM_TRY(jinja_from_bytes(h, name, strlen(name), 0, &key));
    return jinja_set(h, d, key, value);
}

atom_status jinja_get(jinja_heap *h, const jinja_dict *d, jinja_value key, const jinja_value **out)
{
    size_t at;
    ATOM_TRY(place_of(h, d, key, &at));
    *out = at < d->n ? &d->values[at] : NULL;
    return ATOM_OK;
}

atom_status jinja_get_name(jinja_heap *h, const jinja_dict *d, const char *name,
                           const jinja_value **out)
{
    const size_t n = strlen(name);
    uint64_t steps = n / 64;
    *out = NULL;
    for (size_t i = 0; i < d->n && !*out; i++, steps++) {
        const jinja_value key = d->keys[i];
        bool alike = key.kind == JINJA_TEXT && key.text->n == n;
        steps += alike ? n / 64 : 0;
        if (alike && (n == 0 || memcmp(key.text->at, name, n) == 0))
            *out = &d->values[i];
    }
    return jinja_step(h, steps);
}

static atom_status from_json(jinja_heap *h, const json_t *json, jinja_mark mark, jinja_value *out)
{
    jinja_value item;
    size_t i;
    const char *key;
    size_t key_n;
    json_t *value;
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        ATOM_TRY(jinja_new_dict(h, JINJA_DICT, out));
        json_object_keylen_foreach((json_t *)(uintptr_t)json, key, key_n, value)
        {
            jinja_value name;
            ATOM_TRY(jinja_from_bytes(h, key, key_n, mark, &name));
            ATOM_TRY(jinja_from_json(h, value, mark, &item));
            ATOM_TRY(jinja_set(h, out->dict, name, item));
        }
        return ATOM_OK;
    case JSON_ARRAY:
        ATOM_TRY(jinja_new_list(h, JINJA_LIST, out));
        json_array_foreach(json, i, value)
        {
            ATOM_TRY(jinja_from_json(h, value, mark, &item));
            ATOM_TRY(jinja_append(h, out->list, item));
        }
        return ATOM_OK;
    case JSON_STRING:
        return jinja_from_bytes(h, json_string_value(json), json_string_length(json), mark, out);
    case JSON_INTEGER:
        *out = jinja_int(json_integer_value(json));
        return ATOM_OK;
    case JSON_REAL:
        *out = jinja_real(json_real_value(json));
        return ATOM_OK;
    case JSON_NULL:
        *out = jinja_none();
        return ATOM_OK;
    default:
        *out = jinja_bool(json_is_true(json));
        return ATOM_OK;
    }
}

atom_status jinja_from_json(jinja_heap *h, const json_t *json, jinja_mark mark, jinja_value *out)
{
    atom_status st = jinja_enter(h);
    if (st == ATOM_OK)
        st = from_json(h, json, mark, out);
    jinja_leave(h);
    return st;
}

/* ---- passing through ---- */

static atom_status characters(jinja_heap *h, jinja_text t, jinja_list *list)
{
    for (size_t at = 0, n; at < t.n; at += n) {
        jinja_value item;
        n = text_utf8_offset(t.at + at, t.n - at, 1);
        ATOM_TRY(jinja_from_text(h, (jinja_text){t.at + at, t.marks + at, n}, &item));
        ATOM_TRY(jinja_append(h, list, item));
    }
    return ATOM_OK;
}

atom_status jinja_items(jinja_heap *h, jinja_value v, jinja_list **out)
{
    jinja_value made;
    if (v.kind == JINJA_LIST || v.kind == JINJA_TUPLE || v.kind == JINJA_VIEW) {
        *out = v.list;
        return ATOM_OK;
    }
    ATOM_TRY(jinja_new_list(h, JINJA_LIST, &made));
    *out = made.list;
    switch (v.kind) {
    case JINJA_ITERATOR:
        if (v.list->items)
            made.list->items = v.list->items + v.list->at;
        made.list->n = made.list->capacity = v.list->n - v.list->at;
        v.list->at = v.list->n;
        return ATOM_OK;
    case JINJA_DICT:
        made.list->items = v.dict->keys;
        made.list->n = made.list->capacity = v.dict->n;
        return ATOM_OK;
    case JINJA_TEXT:
        return characters(h, *v.text, made.list);
    case JINJA_UNDEFINED:
        return ATOM_OK;
    default:
        return jinja_fail(h, "'%s' cannot be iterated over", jinja_kind_name(v));
    }
}

atom_status jinja_length(jinja_heap *h, jinja_value v, int64_t *out)
{
    size_t n = 0;
    switch (v.kind) {
    case JINJA_TEXT:
        for (size_t i = 0; i < v.text->n; i++)
            n += ((uint8_t)v.text->at[i] & 0xc0) != 0x80;
        ATOM_TRY(jinja_step(h, v.text->n / 64));
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_VIEW:
        n = v.list->n;
        break;
    case JINJA_DICT:
        n = v.dict->n;
        break;
    case JINJA_UNDEFINED:
        break;
    default:
        return jinja_fail(h, "'%s' has no length", jinja_kind_name(v));
    }
    *out = (int64_t)n;
    return ATOM_OK;
}

/* ---- equality ---- */

static atom_status equal_lists(jinja_heap *h, const jinja_list *a, const jinja_list *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; i < a->n && *out; i++)
        ATOM_TRY(jinja_equal(h, a->items[i], b->items[i], out));
    return ATOM_OK;
}

static atom_status equal_dicts(jinja_heap *h, const jinja_dict *a, const jinja_dict *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; i < a->n && *out; i++) {
        const jinja_value *other;
        ATOM_TRY(jinja_get(h, b, a->keys[i], &other));
        *out = other != NULL;
        if (other)
            ATOM_TRY(jinja_equal(h, a->values[i], *other, out));
    }
    return ATOM_OK;
}

static atom_status equal(jinja_heap *h, jinja_value a, jinja_value b, bool *out)
{
    ATOM_TRY(jinja_step(h, 1));
    *out = false;
    if (jinja_is_number(a) && jinja_is_number(b)) {
        double x = jinja_number(a), y = jinja_number(b);
        *out = a.kind == JINJA_INT && b.kind == JINJA_INT ? a.i == b.i : x <= y && x >= y;
        return ATOM_OK;
    }
    if (a.kind != b.kind)
        return ATOM_OK;
    switch (a.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        *out = true;
        return ATOM_OK;
    case JINJA_TEXT:
        if (a.text->n != b.text->n)
            return ATOM_OK;
        *out = a.text->n == 0 || memcmp(a.text->at, b.text->at, a.text->n) == 0;
        return jinja_step(h, a.text->n / 64);
    case JINJA_LIST:
    case JINJA_TUPLE:
        return equal_lists(h, a.list, b.list, out);
    case JINJA_DICT:
        return equal_dicts(h, a.dict, b.dict, out);
    case JINJA_VIEW:
        return jinja_fail(h, "views of dicts and ranges cannot be compared; use |list");
    case JINJA_CALLABLE:
        *out = a.callable == b.callable;
        return ATOM_OK;
    default:
        *out = a.list == b.list;
        return ATOM_OK;
    }
}

atom_status jinja_equal(jinja_heap *h, jinja_value a, jinja_value b, bool *out)
{
    atom_status st = jinja_enter(h);
    if (st == ATOM_OK)
        st = equal(h, a, b, out);
    jinja_leave(h);
    return st;
}
