/*
 * Owns the methods. One idea: a table by name for each kind of object, each method a few lines over
 * text.h. Refuses those that change their object: templates run in a sandbox where nothing given to
 * them can be changed.
 */
#include "atom/text/jinja/method.h"

#include "atom/text/jinja/order.h"
#include "atom/text/jinja/print.h"
#include "atom/text/jinja/text.h"
#include "atom/text/utf8.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

typedef atom_status (*method_fn)(jinja_heap *h, jinja_value self, const jinja_args *args,
                                 jinja_value *out);

/* A text that may be missing, or None, as NULL. */
static atom_status optional_text(jinja_heap *h, const jinja_args *args, jinja_value v,
                                 jinja_text *room, const jinja_text **out)
{
    *out = NULL;
    if (jinja_missing(v) || v.kind == JINJA_NONE)
        return ATOM_OK;
    *out = room;
    return jinja_arg_text(h, args, v, "", room);
}

/* ---- of texts ---- */

static atom_status strip(jinja_heap *h, jinja_value self, const jinja_args *args, jinja_value *out)
{
    jinja_value v;
    jinja_text room, t;
    const jinja_text *set;
    ATOM_TRY(jinja_bind(h, args, "chars", 0, &v));
    ATOM_TRY(optional_text(h, args, v, &room, &set));
    ATOM_TRY(jinja_strip(h, *self.text, set, args->of[0] != 'r', args->of[0] != 'l', &t));
    return jinja_from_text(h, t, out);
}

static atom_status split(jinja_heap *h, jinja_value self, const jinja_args *args, jinja_value *out)
{
    jinja_value v[2];
    jinja_text room;
    const jinja_text *on;
    int64_t limit;
    ATOM_TRY(jinja_bind(h, args, "sep maxsplit", 0, v));
    ATOM_TRY(optional_text(h, args, v[0], &room, &on));
    ATOM_TRY(jinja_arg_int(h, args, v[1], -1, &limit));
    return jinja_split(h, *self.text, on, limit, args->of[0] == 'r', out);
}

static atom_status splitlines(jinja_heap *h, jinja_value self, const jinja_args *args,
                              jinja_value *out)
{
    jinja_value v;
    ATOM_TRY(jinja_bind(h, args, "keepends", 0, &v));
    return jinja_splitlines(h, *self.text, jinja_truth(v), out);
}

static atom_status replace(jinja_heap *h, jinja_value self, const jinja_args *args,
                           jinja_value *out)
{
    jinja_value v[3];
    jinja_text what, by, made;
    int64_t limit;
    ATOM_TRY(jinja_bind(h, args, "old new count", 2, v));
    ATOM_TRY(jinja_arg_text(h, args, v[0], "", &what));
    ATOM_TRY(jinja_arg_text(h, args, v[1], "", &by));
    ATOM_TRY(jinja_arg_int(h, args, v[2], -1, &limit));
    ATOM_TRY(jinja_replace(h, *self.text, what, by, limit, &made));
    return jinja_from_text(h, made, out);
}

static atom_status recase(jinja_heap *h, jinja_value self, const jinja_args *args, jinja_value *out)
{
    static const char letters[] = "ulct"; /* in the order of jinja_case */
    jinja_text made;
    ATOM_TRY(jinja_bind(h, args, "", 0, NULL));
    jinja_case how = (jinja_case)(strchr(letters, args->of[0]) - letters);
    ATOM_TRY(jinja_recase(h, *self.text, how, &made));
    return jinja_from_text(h, made, out);
}

/* startswith and endswith: a text, or a tuple of several. */
static atom_status has_end(jinja_heap *h, jinja_value self, const jinja_args *args,
                           jinja_value *out)
{
    jinja_value v, one;
    jinja_text what;
    bool starts = args->of[0] == 's', has;
    ATOM_TRY(jinja_bind(h, args, "prefix", 1, &v));
    size_t n = v.kind == JINJA_TUPLE ? v.list->n : 1;
    ATOM_TRY(jinja_step(h, n));
    *out = jinja_bool(false);
    for (size_t i = 0; i < n; i++) {
        one = v.kind == JINJA_TUPLE ? v.list->items[i] : v;
        ATOM_TRY(jinja_arg_text(h, args, one, "", &what));
        ATOM_TRY(jinja_has_end(h, *self.text, what, starts, &has));
        out->truth = out->truth || has;
    }
    return ATOM_OK;
}

/* removeprefix and removesuffix */
static atom_status remove_end(jinja_heap *h, jinja_value self, const jinja_args *args,
                              jinja_value *out)
{
    jinja_value v;
    jinja_text what, t = *self.text;
    bool prefix = strcmp(args->of, "removeprefix") == 0, has;
    ATOM_TRY(jinja_bind(h, args, "prefix", 1, &v));
    ATOM_TRY(jinja_arg_text(h, args, v, "", &what));
    ATOM_TRY(jinja_has_end(h, t, what, prefix, &has));
    if (prefix && has)
        t = (jinja_text){t.at + what.n, t.marks + what.n, t.n - what.n};
    else if (has)
        t.n -= what.n;
    return jinja_from_text(h, t, out);
}

static atom_status join(jinja_heap *h, jinja_value self, const jinja_args *args, jinja_value *out)
{
    jinja_value v;
    jinja_list *items;
    jinja_text made;
    ATOM_TRY(jinja_bind(h, args, "iterable", 1, &v));
    ATOM_TRY(jinja_items(h, v, &items));
    for (size_t i = 0; i < items->n; i++)
        if (items->items[i].kind != JINJA_TEXT)
            return jinja_fail(h, "join needs texts, not '%s'", jinja_kind_name(items->items[i]));
    ATOM_TRY(jinja_join(h, *self.text, items, &made));
    return jinja_from_text(h, made, out);
}

/* find, rfind, index and count; places are counted in characters. */
static atom_status search(jinja_heap *h, jinja_value self, const jinja_args *args, jinja_value *out)
{
    jinja_value v, before;
    jinja_text what, t = *self.text;
    int64_t n = 0;
    size_t found;
    bool counts = args->of[0] == 'c', last = args->of[0] == 'r';
    ATOM_TRY(jinja_bind(h, args, "sub", 1, &v));
    ATOM_TRY(jinja_arg_text(h, args, v, "", &what));
    if (what.n == 0)
        return jinja_fail(h, "%s of an empty text", args->of);
    ATOM_TRY(last ? jinja_find_last(h, t, what, &found) : jinja_find(h, t, what, 0, &found));
    for (; counts && found <= t.n; n++)
        ATOM_TRY(jinja_find(h, t, what, found + what.n, &found));
    if (!counts && found > t.n) {
        if (strstr(args->of, "index"))
            return jinja_fail(h, "%s: the text is not there", args->of);
        n = -1;
    } else if (!counts) {
        ATOM_TRY(jinja_from_text(h, (jinja_text){t.at, t.marks, found}, &before));
        ATOM_TRY(jinja_length(h, before, &n));
    }
    *out = jinja_int(n);
    return ATOM_OK;
}

/* partition and rpartition */
static atom_status partition(jinja_heap *h, jinja_value self, const jinja_args *args,
                             jinja_value *out)
{
    jinja_value v, parts, item;
    jinja_text what, t = *self.text, none = {t.at, t.marks, 0};
    bool right = args->of[0] == 'r';
    ATOM_TRY(jinja_bind(h, args, "sep", 1, &v));
    ATOM_TRY(jinja_arg_text(h, args, v, "", &what));
    ATOM_TRY(jinja_split(h, t, &what, 1, right, &parts));
    jinja_text three[3] = {right ? none : t, none, right ? t : none};
    if (parts.list->n == 2) {
        three[0] = *parts.list->items[0].text;
        three[1] = what;
        three[2] = *parts.list->items[1].text;
    }
    ATOM_TRY(jinja_new_list(h, JINJA_TUPLE, out));
    for (int i = 0; i < 3; i++) {
        ATOM_TRY(jinja_from_text(h, three[i], &item));
        ATOM_TRY(jinja_append(h, out->list, item));
    }
    return ATOM_OK;
}

static bool is_of(const char *name, uint32_t c, const char *at, size_t n)
{
    utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    bool letter = kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
    bool digit = kind == UTF8PROC_CATEGORY_ND;
    if (strcmp(name, "isspace") == 0)
        return text_utf8_blank(at, n) > 0;
    return strcmp(name, "isalpha") == 0   ? letter
           : strcmp(name, "isdigit") == 0 ? digit
                                          : letter || digit;
}

/* isspace, isalpha, isdigit, isalnum; isupper, islower */
static atom_status is_all(jinja_heap *h, jinja_value self, const jinja_args *args, jinja_value *out)
{
    jinja_text t = *self.text;
    bool all = t.n > 0;
    ATOM_TRY(jinja_bind(h, args, "", 0, NULL));
    if (strcmp(args->of, "isupper") == 0 || strcmp(args->of, "islower") == 0) {
        ATOM_TRY(jinja_is_cased(h, t, args->of[2] == 'u', &all));
        *out = jinja_bool(all);
        return ATOM_OK;
    }
    ATOM_TRY(jinja_step(h, t.n / 2));
    for (size_t at = 0, n; at < t.n && all; at += n) {
        uint32_t c = jinja_char(t, at, &n);
        all = is_of(args->of, c, t.at + at, n);
    }
    *out = jinja_bool(all);
    return ATOM_OK;
}

/* "{}" with values by place or name; no further formatting. */
static atom_status format(jinja_heap *h, jinja_value self, const jinja_args *args, jinja_value *out)
{
    jinja_writer w = {.h = h};
    jinja_text t = *self.text;
    size_t next = 0;
    ATOM_TRY(jinja_step(h, t.n / 4));
    for (size_t at = 0; at < t.n; at++) {
        char c = t.at[at];
        if (c != '{' && c != '}') {
            ATOM_TRY(jinja_put(&w, &c, 1, t.marks[at]));
            continue;
        }
        if (at + 1 < t.n && t.at[at + 1] == c) {
            ATOM_TRY(jinja_put(&w, &c, 1, t.marks[at++]));
            continue;
        }
        const char *end = memchr(t.at + at, '}', t.n - at);
        size_t n = end ? (size_t)(end - t.at) - at - 1 : 0;
        jinja_text name = {t.at + at + 1, t.marks + at + 1, n};
        const jinja_value *value = NULL;
        ATOM_TRY(jinja_step(h, 1 + args->named_n));
        if (c == '{' && end && n == 0 && next < args->places_n)
            value = &args->places[next++];
        else if (c == '{' && end && n == 1 && (size_t)(name.at[0] - '0') < args->places_n)
            value = &args->places[name.at[0] - '0'];
        for (size_t i = 0; i < args->named_n && c == '{' && end; i++)
            value = jinja_text_is(name, args->names[i]) ? &args->named[i] : value;
        if (!value)
            return jinja_fail(h, "format knows {}, {0} and {name} with a value for each, only");
        ATOM_TRY(jinja_print(&w, *value));
        at += n + 1;
    }
    return jinja_from_text(h, jinja_written(&w), out);
}

/* ---- of dicts and lists ---- */

static atom_status get(jinja_heap *h, jinja_value self, const jinja_args *args, jinja_value *out)
{
    jinja_value v[2];
    const jinja_value *found;
    ATOM_TRY(jinja_bind(h, args, "key default", 1, v));
    ATOM_TRY(jinja_get(h, self.dict, v[0], &found));
    *out = found ? *found : jinja_missing(v[1]) ? jinja_none() : v[1];
    return ATOM_OK;
}

/* keys, values and items */
static atom_status views(jinja_heap *h, jinja_value self, const jinja_args *args, jinja_value *out)
{
    jinja_value pair;
    ATOM_TRY(jinja_bind(h, args, "", 0, NULL));
    ATOM_TRY(jinja_new_list(h, JINJA_VIEW, out));
    for (size_t i = 0; i < self.dict->n; i++) {
        pair = args->of[0] == 'k' ? self.dict->keys[i] : self.dict->values[i];
        if (args->of[0] == 'i') {
            ATOM_TRY(jinja_new_list(h, JINJA_TUPLE, &pair));
            ATOM_TRY(jinja_append(h, pair.list, self.dict->keys[i]));
            ATOM_TRY(jinja_append(h, pair.list, self.dict->values[i]));
        }
        ATOM_TRY(jinja_append(h, out->list, pair));
    }
    return ATOM_OK;
}

static atom_status copy(jinja_heap *h, jinja_value self, const jinja_args *args, jinja_value *out)
{
    ATOM_TRY(jinja_bind(h, args, "", 0, NULL));
    *out = self; /* nothing can change it */
    return ATOM_OK;
}

/* index and count of a list */
static atom_status search_list(jinja_heap *h, jinja_value self, const jinja_args *args,
                               jinja_value *out)
{
    jinja_value v;
    int64_t n = 0;
    ATOM_TRY(jinja_bind(h, args, "value", 1, &v));
    for (size_t i = 0; i < self.list->n; i++) {
        bool same;
        ATOM_TRY(jinja_equal(h, self.list->items[i], v, &same));
        n += same;
        if (same && args->of[0] == 'i') {
            *out = jinja_int((int64_t)i);
            return ATOM_OK;
        }
    }
    *out = jinja_int(n);
    return args->of[0] == 'i' ? jinja_fail(h, "index: the value is not in the list") : ATOM_OK;
}

/* Python has it, the sandbox or atom does not. */
static atom_status refuse(jinja_heap *h, jinja_value self, const jinja_args *args, jinja_value *out)
{
    (void)out;
    return jinja_fail(h, "the method %s of '%s' is not one that chat templates may call", args->of,
                      jinja_kind_name(self));
}

static const struct {
    const char *name;
    method_fn call;
} text_methods[] = {{"strip", strip},
                    {"lstrip", strip},
                    {"rstrip", strip},
                    {"split", split},
                    {"rsplit", split},
                    {"splitlines", splitlines},
                    {"replace", replace},
                    {"upper", recase},
                    {"lower", recase},
                    {"capitalize", recase},
                    {"title", recase},
                    {"startswith", has_end},
                    {"endswith", has_end},
                    {"removeprefix", remove_end},
                    {"removesuffix", remove_end},
                    {"join", join},
                    {"find", search},
                    {"rfind", search},
                    {"index", search},
                    {"rindex", search},
                    {"count", search},
                    {"partition", partition},
                    {"rpartition", partition},
                    {"isspace", is_all},
                    {"isalpha", is_all},
                    {"isdigit", is_all},
                    {"isalnum", is_all},
                    {"isupper", is_all},
                    {"islower", is_all},
                    {"format", format},
                    {"casefold", refuse},
                    {"center", refuse},
                    {"encode", refuse},
                    {"expandtabs", refuse},
                    {"format_map", refuse},
                    {"isascii", refuse},
                    {"isdecimal", refuse},
                    {"isidentifier", refuse},
                    {"isnumeric", refuse},
                    {"isprintable", refuse},
                    {"istitle", refuse},
                    {"ljust", refuse},
                    {"maketrans", refuse},
                    {"rjust", refuse},
                    {"swapcase", refuse},
                    {"translate", refuse},
                    {"zfill", refuse},
                    {NULL, NULL}},
  dict_methods[] = {{"get", get},           {"keys", views},      {"values", views},
                    {"items", views},       {"copy", copy},       {"pop", refuse},
                    {"popitem", refuse},    {"update", refuse},   {"clear", refuse},
                    {"setdefault", refuse}, {"fromkeys", refuse}, {NULL, NULL}},
  list_methods[] = {{"index", search_list}, {"count", search_list}, {"append", refuse},
                    {"extend", refuse},     {"insert", refuse},     {"pop", refuse},
                    {"remove", refuse},     {"reverse", refuse},    {"sort", refuse},
                    {"clear", refuse},      {"copy", refuse},       {NULL, NULL}};

static method_fn find(jinja_value self, const char *name)
{
    for (size_t i = 0; self.kind == JINJA_TEXT && text_methods[i].name; i++)
        if (strcmp(text_methods[i].name, name) == 0)
            return text_methods[i].call;
    for (size_t i = 0; self.kind == JINJA_DICT && dict_methods[i].name; i++)
        if (strcmp(dict_methods[i].name, name) == 0)
            return dict_methods[i].call;
    bool list = self.kind == JINJA_LIST || self.kind == JINJA_TUPLE;
    for (size_t i = 0; list && list_methods[i].name; i++)
        if (strcmp(list_methods[i].name, name) == 0)
            return list_methods[i].call;
    return NULL;
}

bool jinja_has_method(jinja_value self, const char *name)
{
    return find(self, name) != NULL;
}

atom_status jinja_call_method(jinja_heap *h, jinja_value self, const jinja_args *args,
                              jinja_value *out)
{
    if (self.safe)
        return jinja_fail(h,
                          "the method %s of a text from the filter safe is not supported; leave "
                          "out safe",
                          args->of);
    return find(self, args->of)(h, self, args, out);
}

/* ---- % ---- */

/* %(name)s: the value of that name, and the place behind it. */
static atom_status percent_name(jinja_heap *h, jinja_text t, size_t *at, jinja_value from,
                                const jinja_value **out)
{
    const char *end = memchr(t.at + *at, ')', t.n - *at);
    jinja_value key;
    if (!end || from.kind != JINJA_DICT)
        return jinja_fail(h, "%% with a name needs a dict");
    size_t n = (size_t)(end - t.at) - *at - 1;
    ATOM_TRY(jinja_from_bytes(h, t.at + *at + 1, n, 0, &key));
    *at += n + 2;
    return jinja_get(h, from.dict, key, out);
}

atom_status jinja_percent(jinja_heap *h, jinja_text t, jinja_value value, jinja_value *out)
{
    jinja_writer w = {.h = h};
    size_t used = 0, n = value.kind == JINJA_TUPLE ? value.list->n : 1;
    ATOM_TRY(jinja_step(h, t.n / 4));
    for (size_t at = 0; at < t.n; at++) {
        const jinja_value *one = NULL;
        if (t.at[at] != '%') {
            ATOM_TRY(jinja_put(&w, t.at + at, 1, t.marks[at]));
            continue;
        }
        at++;
        if (at < t.n && t.at[at] == '%') {
            ATOM_TRY(jinja_put(&w, "%", 1, t.marks[at]));
            continue;
        }
        if (at < t.n && t.at[at] == '(')
            ATOM_TRY(percent_name(h, t, &at, value, &one));
        else if (used < n)
            one = value.kind == JINJA_TUPLE ? &value.list->items[used++] : (used++, &value);
        if (at >= t.n || !one || (t.at[at] != 's' && !(t.at[at] == 'd' && one->kind == JINJA_INT)))
            return jinja_fail(h, "%% knows %%s, %%d and %%(name)s with a value for each, only");
        ATOM_TRY(jinja_print(&w, *one));
    }
    if (used < n && value.kind != JINJA_DICT)
        return jinja_fail(h, "%% has more values than its text has places");
    return jinja_from_text(h, jinja_written(&w), out);
}
