/*
 * Owns the binding of arguments. One idea: a list of names in one text says all that a built-in
 * function takes. Refuses what it does not take, by name.
 */
#include "atom/text/jinja/args.h"

#include <string.h>

bool jinja_missing(jinja_value v)
{
    return v.kind == JINJA_UNDEFINED && !v.name;
}

/* The place of a name of n bytes in "a b c"; -1: not there. */
static int place_of(const char *parameters, const char *name)
{
    size_t n = strlen(name);
    int at = 0;
    for (const char *p = parameters; *p; at++) {
        size_t word = strcspn(p, " ");
        if (word == n && memcmp(p, name, n) == 0)
            return at;
        p += word + (p[word] == ' ');
    }
    return -1;
}

static size_t count_words(const char *parameters)
{
    size_t n = *parameters != 0;
    for (const char *p = parameters; *p; p++)
        n += *p == ' ';
    return n;
}

atom_status jinja_bind(const jinja_heap *h, const jinja_args *args, const char *parameters,
                       size_t needed, jinja_value *out)
{
    size_t n = count_words(parameters);
    for (size_t i = 0; i < n; i++)
        out[i] = jinja_undefined(NULL);
    if (args->places_n > n)
        return jinja_fail(h, "%s takes %zu arguments at most, not %zu", args->of, n,
                          args->places_n);
    for (size_t i = 0; i < args->places_n; i++)
        out[i] = args->places[i];
    for (size_t i = 0; i < args->named_n; i++) {
        int at = place_of(parameters, args->names[i]);
        if (at < 0)
            return jinja_fail(h, "%s takes no argument '%s'", args->of, args->names[i]);
        if ((size_t)at < args->places_n)
            return jinja_fail(h, "%s is given '%s' twice", args->of, args->names[i]);
        out[at] = args->named[i];
    }
    for (size_t i = 0; i < needed; i++)
        if (jinja_missing(out[i]))
            return jinja_fail(h, "%s needs its argument number %zu", args->of, i + 1);
    return ATOM_OK;
}

atom_status jinja_arg_text(const jinja_heap *h, const jinja_args *args, jinja_value v,
                           const char *otherwise, jinja_text *out)
{
    static const jinja_mark plain[16];
    if (jinja_missing(v)) {
        *out = (jinja_text){otherwise, plain, strlen(otherwise)};
        return ATOM_OK;
    }
    if (v.kind != JINJA_TEXT)
        return jinja_fail(h, "%s needs a text, not '%s'", args->of, jinja_kind_name(v));
    *out = *v.text;
    return ATOM_OK;
}

atom_status jinja_arg_int(const jinja_heap *h, const jinja_args *args, jinja_value v,
                          int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    if (jinja_missing(v))
        return ATOM_OK;
    if (v.kind != JINJA_INT && v.kind != JINJA_BOOL)
        return jinja_fail(h, "%s needs a whole number, not '%s'", args->of, jinja_kind_name(v));
    *out = v.kind == JINJA_INT ? v.i : v.truth;
    return ATOM_OK;
}
