/*
 * Owns the filters over lists, dicts and what else can be iterated over. One idea: take the items,
 * make a new list. Refuses what has no items.
 */
#include "atom/text/jinja/filter.h"

#include "atom/text/jinja/lookup.h"
#include "atom/text/jinja/order.h"
#include "atom/text/jinja/print.h"
#include "atom/text/jinja/text.h"

#include <string.h>

static atom_status list(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_list *items;
    ATOM_TRY(jinja_bind(h, args, "", 0, NULL));
    ATOM_TRY(jinja_items(h, v, &items));
    *out = (jinja_value){.kind = JINJA_LIST, .list = items};
    return ATOM_OK;
}

static atom_status length(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    int64_t n;
    ATOM_TRY(jinja_bind(h, args, "", 0, NULL));
    ATOM_TRY(jinja_length(h, v, &n));
    *out = jinja_int(n);
    return ATOM_OK;
}

static atom_status first(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_list *items;
    ATOM_TRY(jinja_bind(h, args, "", 0, NULL));
    *out = jinja_undefined("the first item");
    if (v.kind == JINJA_ITERATOR) {
        if (v.list->at < v.list->n)
            *out = v.list->items[v.list->at++];
        return ATOM_OK;
    }
    ATOM_TRY(jinja_items(h, v, &items));
    if (items->n)
        *out = items->items[0];
    return ATOM_OK;
}

static atom_status last(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_list *items;
    ATOM_TRY(jinja_bind(h, args, "", 0, NULL));
    if (v.kind == JINJA_ITERATOR)
        return jinja_fail(h, "last of an iterator is not supported; put |list before it");
    ATOM_TRY(jinja_items(h, v, &items));
    *out = items->n ? items->items[items->n - 1] : jinja_undefined("the last item");
    return ATOM_OK;
}

static atom_status reverse(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_list *items;
    jinja_writer w = {.h = h};
    bool text = v.kind == JINJA_TEXT;
    ATOM_TRY(jinja_bind(h, args, "", 0, NULL));
    ATOM_TRY(jinja_items(h, v, &items));
    ATOM_TRY(jinja_new_list(h, JINJA_ITERATOR, out));
    for (size_t i = items->n; i-- > 0;) {
        if (text)
            ATOM_TRY(jinja_put_text(&w, *items->items[i].text));
        else
            ATOM_TRY(jinja_append(h, out->list, items->items[i]));
    }
    return text ? jinja_from_text(h, jinja_written(&w), out) : ATOM_OK;
}

static atom_status pair(jinja_heap *h, jinja_value a, jinja_value b, jinja_value *out)
{
    ATOM_TRY(jinja_new_list(h, JINJA_TUPLE, out));
    ATOM_TRY(jinja_append(h, out->list, a));
    return jinja_append(h, out->list, b);
}

static atom_status items(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_value one;
    ATOM_TRY(jinja_bind(h, args, "", 0, NULL));
    ATOM_TRY(jinja_new_list(h, JINJA_ITERATOR, out));
    if (v.kind != JINJA_DICT && v.kind != JINJA_UNDEFINED)
        return jinja_fail(h, "items of '%s', which is not a dict", jinja_kind_name(v));
    for (size_t i = 0; v.kind == JINJA_DICT && i < v.dict->n; i++) {
        ATOM_TRY(pair(h, v.dict->keys[i], v.dict->values[i], &one));
        ATOM_TRY(jinja_append(h, out->list, one));
    }
    return ATOM_OK;
}

/* What an item is judged by: itself or what `attribute` finds in it, in lower case unless exact. */
static atom_status key_of(jinja_heap *h, jinja_value item, jinja_value attribute, bool exact,
                          jinja_value *out)
{
    jinja_text lower;
    *out = item;
    if (!jinja_missing(attribute) && attribute.kind != JINJA_NONE)
        ATOM_TRY(jinja_path(h, item, attribute, out));
    if (exact || out->kind != JINJA_TEXT)
        return ATOM_OK;
    ATOM_TRY(jinja_recase(h, *out->text, JINJA_LOWER, &lower));
    return jinja_from_text(h, lower, out);
}

/* items in the order of keys, both [n]. */
static atom_status sort_by(jinja_heap *h, const jinja_value *things, const jinja_value *keys,
                           size_t n, bool downwards, jinja_value *out)
{
    size_t *order;
    ATOM_TRY(jinja_alloc(h, n, sizeof *order, &order));
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    ATOM_TRY(jinja_sort(h, keys, n, downwards, order));
    ATOM_TRY(jinja_new_list(h, JINJA_LIST, out));
    for (size_t i = 0; i < n; i++)
        ATOM_TRY(jinja_append(h, out->list, things[order[i]]));
    return ATOM_OK;
}

static atom_status sort(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_value a[3], *keys;
    jinja_list *from;
    ATOM_TRY(jinja_bind(h, args, "reverse case_sensitive attribute", 0, a));
    if (a[2].kind == JINJA_TEXT && memchr(a[2].text->at, ',', a[2].text->n))
        return jinja_fail(h, "sort by several attributes is not supported");
    ATOM_TRY(jinja_items(h, v, &from));
    ATOM_TRY(jinja_alloc(h, from->n, sizeof *keys, &keys));
    for (size_t i = 0; i < from->n; i++)
        ATOM_TRY(key_of(h, from->items[i], a[2], jinja_truth(a[1]), &keys[i]));
    return sort_by(h, from->items, keys, from->n, jinja_truth(a[0]), out);
}

static atom_status dictsort(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_value a[3], *keys, *pairs;
    jinja_text by;
    ATOM_TRY(jinja_bind(h, args, "case_sensitive by reverse", 0, a));
    ATOM_TRY(jinja_arg_text(h, args, a[1], "key", &by));
    if (v.kind != JINJA_DICT)
        return jinja_fail(h, "dictsort of '%s', which is not a dict", jinja_kind_name(v));
    if (!jinja_text_is(by, "key") && !jinja_text_is(by, "value"))
        return jinja_fail(h, "dictsort goes by key or value");
    size_t n = v.dict->n;
    ATOM_TRY(jinja_alloc(h, n, sizeof *keys, &keys));
    ATOM_TRY(jinja_alloc(h, n, sizeof *pairs, &pairs));
    for (size_t i = 0; i < n; i++) {
        jinja_value key = by.at[0] == 'k' ? v.dict->keys[i] : v.dict->values[i];
        ATOM_TRY(key_of(h, key, jinja_none(), jinja_truth(a[0]), &keys[i]));
        ATOM_TRY(pair(h, v.dict->keys[i], v.dict->values[i], &pairs[i]));
    }
    return sort_by(h, pairs, keys, n, jinja_truth(a[2]), out);
}

static atom_status unique(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_value a[2], seen, key;
    jinja_list *from;
    ATOM_TRY(jinja_bind(h, args, "case_sensitive attribute", 0, a));
    ATOM_TRY(jinja_items(h, v, &from));
    ATOM_TRY(jinja_new_list(h, JINJA_LIST, &seen));
    ATOM_TRY(jinja_new_list(h, JINJA_ITERATOR, out));
    for (size_t i = 0; i < from->n; i++) {
        bool there;
        ATOM_TRY(key_of(h, from->items[i], a[1], jinja_truth(a[0]), &key));
        ATOM_TRY(jinja_contains(h, seen, key, &there));
        if (there)
            continue;
        ATOM_TRY(jinja_append(h, seen.list, key));
        ATOM_TRY(jinja_append(h, out->list, from->items[i]));
    }
    return ATOM_OK;
}

/* min and max */
static atom_status extreme(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_value a[2], best = jinja_none(), key;
    jinja_list *from;
    ATOM_TRY(jinja_bind(h, args, "case_sensitive attribute", 0, a));
    ATOM_TRY(jinja_items(h, v, &from));
    *out = jinja_undefined("the smallest or largest of nothing");
    ATOM_TRY(jinja_step(h, from->n));
    for (size_t i = 0; i < from->n; i++) {
        int order = 0;
        ATOM_TRY(key_of(h, from->items[i], a[1], jinja_truth(a[0]), &key));
        if (i)
            ATOM_TRY(jinja_compare(h, key, best, &order));
        if (i && (strcmp(args->of, "max") == 0 ? order <= 0 : order >= 0))
            continue;
        best = key;
        *out = from->items[i];
    }
    return ATOM_OK;
}

static atom_status sum(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_value a[2], one;
    jinja_list *from;
    ATOM_TRY(jinja_bind(h, args, "attribute start", 0, a));
    ATOM_TRY(jinja_items(h, v, &from));
    *out = jinja_missing(a[1]) ? jinja_int(0) : a[1];
    if (out->kind == JINJA_TEXT)
        return jinja_fail(h, "sum of texts is not supported; use join");
    ATOM_TRY(jinja_step(h, from->n));
    for (size_t i = 0; i < from->n; i++) {
        ATOM_TRY(key_of(h, from->items[i], a[0], true, &one));
        ATOM_TRY(jinja_operate(h, JINJA_ADD, *out, one, out));
    }
    return ATOM_OK;
}

static atom_status join(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_value a[2], all = {0};
    jinja_list *from;
    jinja_text between, made;
    ATOM_TRY(jinja_bind(h, args, "d attribute", 0, a));
    if (jinja_missing(a[0]))
        ATOM_TRY(jinja_from_bytes(h, "", 0, 0, &a[0]));
    ATOM_TRY(jinja_to_text(h, a[0], &between));
    ATOM_TRY(jinja_items(h, v, &from));
    ATOM_TRY(jinja_new_list(h, JINJA_LIST, &all));
    for (size_t i = 0; i < from->n; i++) {
        jinja_value item;
        ATOM_TRY(key_of(h, from->items[i], a[1], true, &item));
        ATOM_TRY(jinja_append(h, all.list, item));
    }
    ATOM_TRY(jinja_join(h, between, all.list, &made));
    return jinja_from_text(h, made, out);
}

/* Lists of n items each, the last one filled up if it is told with what. */
static atom_status batch(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_value a[2], one = {0};
    jinja_list *from;
    int64_t n;
    ATOM_TRY(jinja_bind(h, args, "linecount fill_with", 1, a));
    ATOM_TRY(jinja_arg_int(h, args, a[0], 1, &n));
    ATOM_TRY(jinja_items(h, v, &from));
    ATOM_TRY(jinja_new_list(h, JINJA_ITERATOR, out));
    if (n < 1)
        return jinja_fail(h, "batch of %lld items", (long long)n);
    bool fill = !jinja_missing(a[1]) && a[1].kind != JINJA_NONE;
    for (size_t i = 0; i < from->n; i++) {
        if (i % (uint64_t)n == 0) {
            ATOM_TRY(jinja_new_list(h, JINJA_LIST, &one));
            ATOM_TRY(jinja_append(h, out->list, one));
        }
        ATOM_TRY(jinja_append(h, one.list, from->items[i]));
    }
    while (fill && from->n && one.list->n < (uint64_t)n)
        ATOM_TRY(jinja_append(h, one.list, a[1]));
    return ATOM_OK;
}

static atom_status attribute(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_value a;
    jinja_text name;
    char *word;
    ATOM_TRY(jinja_bind(h, args, "name", 1, &a));
    ATOM_TRY(jinja_arg_text(h, args, a, "", &name));
    if (v.kind == JINJA_DICT) { /* Jinja2 looks for attributes only: not for keys */
        *out = jinja_undefined("attr");
        return ATOM_OK;
    }
    ATOM_TRY(jinja_alloc(h, name.n + 1, 1, &word));
    memcpy(word, name.at, name.n);
    return jinja_attribute(h, v, word, out);
}

const jinja_filter_row jinja_filters_of_lists[] = {
    {"list", list},      {"length", length}, {"count", length},
    {"first", first},    {"last", last},     {"reverse", reverse},
    {"items", items},    {"sort", sort},     {"dictsort", dictsort},
    {"unique", unique},  {"min", extreme},   {"max", extreme},
    {"sum", sum},        {"join", join},     {"batch", batch},
    {"attr", attribute}, {NULL, NULL}};
