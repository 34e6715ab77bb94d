/*
 * Owns attributes, items and slices. One idea: Jinja2 tries the attribute and then the item, or the
 * other way round, and what is found in neither is undefined. Refuses names that begin with _, as
 * the sandbox does.
 */
#include "atom/text/jinja/lookup.h"

#include "atom/text/jinja/method.h"
#include "atom/text/utf8.h"

#include <string.h>

static atom_status bound_method(jinja_heap *h, jinja_value v, const char *name, jinja_value *out)
{
    jinja_callable *made;
    ATOM_TRY(jinja_alloc(h, 1, sizeof *made, &made));
    *made = (jinja_callable){.name = name, .self = v};
    *out = (jinja_value){.kind = JINJA_CALLABLE, .callable = made};
    return ATOM_OK;
}

/* ---- the variable loop ---- */

static atom_status loop_attribute(jinja_heap *h, jinja_value v, const char *name, jinja_value *out)
{
    const jinja_loop *l = v.loop;
    const int64_t at = (int64_t)l->at, n = (int64_t)l->items->n;
    const struct {
        const char *name;
        jinja_value value;
    } known[] = {
        {"index", jinja_int(at + 1)},
        {"index0", jinja_int(at)},
        {"revindex", jinja_int(n - at)},
        {"revindex0", jinja_int(n - at - 1)},
        {"first", jinja_bool(at == 0)},
        {"last", jinja_bool(at + 1 == n)},
        {"length", jinja_int(n)},
        {"depth", jinja_int((int64_t)l->depth + 1)},
        {"depth0", jinja_int((int64_t)l->depth)},
        {"previtem", at > 0 ? l->items->items[at - 1] : jinja_undefined("loop.previtem")},
        {"nextitem", at + 1 < n ? l->items->items[at + 1] : jinja_undefined("loop.nextitem")},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0) {
            *out = known[i].value;
            return ATOM_OK;
        }
    if (strcmp(name, "cycle") == 0 || strcmp(name, "changed") == 0)
        return bound_method(h, v, name, out);
    *out = jinja_undefined(name);
    return ATOM_OK;
}

/* ---- names ---- */

static atom_status check_name(const jinja_heap *h, jinja_value v, const char *name)
{
    if (v.kind == JINJA_UNDEFINED)
        return jinja_fail(h, "'%.80s' is undefined, so it has no '%.80s'", v.name, name);
    return name[0] == '_'
               ? jinja_fail(h, "'%.80s': templates may not use names that begin with _", name)
               : ATOM_OK;
}

/* A method, or a member; *found says whether there is one. */
static atom_status member(jinja_heap *h, jinja_value v, const char *name, bool *found,
                          jinja_value *out)
{
    const jinja_value *value = NULL;
    *found = true;
    if (v.kind == JINJA_LOOP)
        return loop_attribute(h, v, name, out);
    if (v.kind == JINJA_NAMESPACE) {
        ATOM_TRY(jinja_get_name(h, v.dict, name, &value));
        *found = value != NULL;
        *out = value ? *value : jinja_undefined(name);
        return ATOM_OK;
    }
    *found = jinja_has_method(v, name);
    *out = jinja_undefined(name);
    return *found ? bound_method(h, v, name, out) : ATOM_OK;
}

atom_status jinja_attribute(jinja_heap *h, jinja_value v, const char *name, jinja_value *out)
{
    const jinja_value *value = NULL;
    bool found;
    ATOM_TRY(check_name(h, v, name));
    ATOM_TRY(member(h, v, name, &found, out));
    if (found || v.kind != JINJA_DICT)
        return ATOM_OK;
    ATOM_TRY(jinja_get_name(h, v.dict, name, &value));
    if (value)
        *out = *value;
    return ATOM_OK;
}

static atom_status name_of(jinja_heap *h, jinja_value key, const char **out)
{
    char *name;
    *out = "the item";
    if (key.kind != JINJA_TEXT)
        return ATOM_OK;
    ATOM_TRY(jinja_alloc(h, key.text->n + 1, 1, &name));
    if (key.text->n)
        memcpy(name, key.text->at, key.text->n);
    *out = name;
    return ATOM_OK;
}

/* ---- places ---- */

/* A whole number as a place among n, from the end if negative; n: outside. */
static size_t place(jinja_value key, int64_t n)
{
    int64_t at = key.kind == JINJA_BOOL ? key.truth : key.i;
    at += at < 0 ? n : 0;
    return (size_t)(at < 0 || at >= n ? n : at);
}

static atom_status character(jinja_heap *h, jinja_text t, size_t at, jinja_value *out)
{
    size_t from = text_utf8_offset(t.at, t.n, at);
    size_t n = text_utf8_offset(t.at + from, t.n - from, 1);
    ATOM_TRY(jinja_step(h, from / 4));
    return jinja_from_text(h, (jinja_text){t.at + from, t.marks + from, n}, out);
}

atom_status jinja_item(jinja_heap *h, jinja_value v, jinja_value key, jinja_value *out)
{
    const jinja_value *value = NULL;
    const char *name;
    bool found, whole = key.kind == JINJA_INT || key.kind == JINJA_BOOL;
    int64_t n = 0;
    ATOM_TRY(name_of(h, key, &name));
    if (v.kind == JINJA_UNDEFINED)
        return check_name(h, v, name);
    *out = jinja_undefined(name);
    if (v.kind == JINJA_DICT) {
        ATOM_TRY(jinja_get(h, v.dict, key, &value));
        if (value) {
            *out = *value;
            return ATOM_OK;
        }
    } else if (whole && (v.kind == JINJA_LIST || v.kind == JINJA_TUPLE)) {
        if (place(key, (int64_t)v.list->n) < v.list->n)
            *out = v.list->items[place(key, (int64_t)v.list->n)];
        return ATOM_OK;
    } else if (whole && v.kind == JINJA_TEXT) {
        ATOM_TRY(jinja_length(h, v, &n));
        size_t at = place(key, n);
        return at < (size_t)n ? character(h, *v.text, at, out) : ATOM_OK;
    } else if (v.kind == JINJA_VIEW) {
        return jinja_fail(h, "a view of a dict or a range has no items by number; use |list");
    }
    if (key.kind != JINJA_TEXT)
        return ATOM_OK;
    ATOM_TRY(check_name(h, v, name));
    return member(h, v, name, &found, out);
}

/* ---- slices ---- */

typedef struct range {
    int64_t from, to, step;
} range;

static atom_status bound(const jinja_heap *h, jinja_value v, int64_t otherwise, int64_t low,
                         int64_t high, int64_t n, int64_t *out)
{
    *out = otherwise;
    if (v.kind == JINJA_NONE)
        return ATOM_OK;
    if (v.kind != JINJA_INT && v.kind != JINJA_BOOL)
        return jinja_fail(h, "a slice needs whole numbers, not '%s'", jinja_kind_name(v));
    int64_t at = v.kind == JINJA_INT ? v.i : v.truth;
    at = at < 0 ? (at < -n ? low : at + n) : at;
    *out = at < low ? low : at > high ? high : at;
    return ATOM_OK;
}

static atom_status read_range(const jinja_heap *h, const jinja_value parts[3], int64_t n,
                              range *out)
{
    int64_t step = 1;
    if (parts[2].kind == JINJA_INT)
        step = parts[2].i;
    else if (parts[2].kind != JINJA_NONE)
        return jinja_fail(h, "a slice needs whole numbers, not '%s'", jinja_kind_name(parts[2]));
    if (step == 0)
        return jinja_fail(h, "the step of a slice is 0");
    /* more than there is of anything: the same, and no overflow */
    step = step > INT32_MAX ? INT32_MAX : step < -INT32_MAX ? -INT32_MAX : step;
    out->step = step;
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    ATOM_TRY(bound(h, parts[0], step > 0 ? low : high, low, high, n, &out->from));
    return bound(h, parts[1], step > 0 ? high : low, low, high, n, &out->to);
}

static bool inside(const range *r, int64_t at)
{
    return r->step > 0 ? at < r->to : at > r->to;
}

static atom_status slice_text(jinja_heap *h, jinja_text t, const range *r, jinja_value *out)
{
    jinja_writer w = {.h = h};
    jinja_value all = {.kind = JINJA_TEXT, .text = &t};
    jinja_list *chars;
    if (r->step == 1) {
        size_t from = text_utf8_offset(t.at, t.n, (size_t)r->from);
        size_t to = text_utf8_offset(t.at, t.n, (size_t)r->to);
        to = to < from ? from : to;
        ATOM_TRY(jinja_step(h, (from + to) / 4));
        return jinja_from_text(h, (jinja_text){t.at + from, t.marks + from, to - from}, out);
    }
    ATOM_TRY(jinja_items(h, all, &chars));
    for (int64_t at = r->from; inside(r, at); at += r->step)
        ATOM_TRY(jinja_put_text(&w, *chars->items[at].text));
    return jinja_from_text(h, jinja_written(&w), out);
}

atom_status jinja_slice(jinja_heap *h, jinja_value v, const jinja_value parts[3], jinja_value *out)
{
    range r = {0};
    int64_t n;
    if (v.kind == JINJA_UNDEFINED)
        return check_name(h, v, "slice");
    if (v.kind != JINJA_TEXT && v.kind != JINJA_LIST && v.kind != JINJA_TUPLE) {
        *out = jinja_undefined("the slice");
        return ATOM_OK;
    }
    ATOM_TRY(jinja_length(h, v, &n));
    ATOM_TRY(read_range(h, parts, n, &r));
    if (v.kind == JINJA_TEXT) {
        ATOM_TRY(slice_text(h, *v.text, &r, out));
        out->safe = v.safe;
        return ATOM_OK;
    }
    ATOM_TRY(jinja_new_list(h, v.kind, out));
    for (int64_t at = r.from; inside(&r, at); at += r.step)
        ATOM_TRY(jinja_append(h, out->list, v.list->items[at]));
    return ATOM_OK;
}

/* ---- paths ---- */

atom_status jinja_path(jinja_heap *h, jinja_value v, jinja_value path, jinja_value *out)
{
    jinja_value key;
    *out = v;
    if (path.kind != JINJA_TEXT)
        return jinja_item(h, v, path, out);
    jinja_text t = *path.text;
    for (size_t from = 0, to; from <= t.n; from = to + 1) {
        int64_t number = 0;
        bool digits = true;
        for (to = from; to < t.n && t.at[to] != '.'; to++) {
            digits = digits && t.at[to] >= '0' && t.at[to] <= '9' && to - from < 9;
            number = digits ? number * 10 + (t.at[to] - '0') : 0;
        }
        ATOM_TRY(jinja_from_text(h, (jinja_text){t.at + from, t.marks + from, to - from}, &key));
        if (digits && to > from)
            key = jinja_int(number);
        ATOM_TRY(jinja_item(h, *out, key, out));
    }
    return ATOM_OK;
}
