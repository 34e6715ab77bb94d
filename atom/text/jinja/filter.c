/*
 * Owns how filters are found, and those that apply another filter or test to each item. One idea:
 * map, select and their kin hand the rest of their arguments on. Refuses names that are not known.
 */
#include "atom/text/jinja/filter.h"

#include "atom/text/jinja/lookup.h"

#include <string.h>

/* The text that the first argument is, as a name; and the arguments behind it. */
static atom_status inner_call(jinja_heap *h, const jinja_args *args, size_t at, jinja_args *out)
{
    char *name;
    if (args->places_n <= at || args->places[at].kind != JINJA_TEXT)
        return jinja_fail(h, "%s needs the name of a filter or test", args->of);
    jinja_text t = *args->places[at].text;
    ATOM_TRY(jinja_alloc(h, t.n + 1, 1, &name));
    if (t.n)
        memcpy(name, t.at, t.n);
    *out = *args;
    out->of = name;
    out->places += at + 1;
    out->places_n -= at + 1;
    return ATOM_OK;
}

/* map(attribute='x', default=y), map('filter', ...) */
static atom_status map(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_value a[2], item;
    jinja_list *from, none = {0};
    jinja_args inner = {0};
    bool by_attribute = args->places_n == 0;
    if (by_attribute)
        ATOM_TRY(jinja_bind(h, args, "attribute default", 1, a));
    else
        ATOM_TRY(inner_call(h, args, 0, &inner));
    from = &none; /* of what is false, as None, Jinja2 takes no items */
    if (jinja_truth(v))
        ATOM_TRY(jinja_items(h, v, &from));
    ATOM_TRY(jinja_new_list(h, JINJA_ITERATOR, out));
    for (size_t i = 0; i < from->n; i++) {
        if (by_attribute) {
            ATOM_TRY(jinja_path(h, from->items[i], a[0], &item));
            if (item.kind == JINJA_UNDEFINED && !jinja_missing(a[1]))
                item = a[1];
        } else {
            ATOM_TRY(jinja_filter(h, from->items[i], &inner, &item));
        }
        ATOM_TRY(jinja_append(h, out->list, item));
    }
    return ATOM_OK;
}

/* select, reject, selectattr and rejectattr */
static atom_status choose(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    bool attr = strstr(args->of, "attr") != NULL, keep = args->of[0] == 's';
    jinja_list *from, none = {0};
    jinja_args inner = {0};
    jinja_value subject;
    if (attr && args->places_n == 0)
        return jinja_fail(h, "%s needs the name of an attribute", args->of);
    bool tested = args->places_n > attr;
    if (tested)
        ATOM_TRY(inner_call(h, args, attr, &inner));
    from = &none; /* of what is false, as None, Jinja2 takes no items */
    if (jinja_truth(v))
        ATOM_TRY(jinja_items(h, v, &from));
    ATOM_TRY(jinja_new_list(h, JINJA_ITERATOR, out));
    ATOM_TRY(jinja_step(h, from->n));
    for (size_t i = 0; i < from->n; i++) {
        subject = from->items[i];
        if (attr)
            ATOM_TRY(jinja_path(h, subject, args->places[0], &subject));
        bool yes = jinja_truth(subject);
        if (tested)
            ATOM_TRY(jinja_test(h, subject, &inner, &yes));
        if (yes == keep)
            ATOM_TRY(jinja_append(h, out->list, from->items[i]));
    }
    return ATOM_OK;
}

static jinja_filter_fn find(const char *name)
{
    static const jinja_filter_row own[] = {{"map", map},           {"select", choose},
                                           {"reject", choose},     {"selectattr", choose},
                                           {"rejectattr", choose}, {NULL, NULL}};
    const jinja_filter_row *const tables[] = {own, jinja_filters_of_text, jinja_filters_of_lists};
    for (size_t i = 0; i < 3; i++)
        for (const jinja_filter_row *row = tables[i]; row->name; row++)
            if (strcmp(row->name, name) == 0)
                return row->call;
    return NULL;
}

atom_status jinja_filter(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_filter_fn call = find(args->of);
    jinja_value made = jinja_none();
    atom_status st = jinja_enter(h);
    if (st == ATOM_OK)
        st = call ? call(h, v, args, &made)
                  : jinja_fail(h, "the filter '%.60s' is not one that atom has", args->of);
    jinja_leave(h);
    *out = made;
    return st;
}
