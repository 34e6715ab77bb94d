/*
 * Owns the global functions. One idea: those of Jinja2 that make values, and the two that
 * transformers adds. Refuses the toys that Jinja2 has beside them, by name.
 */
#include "atom/text/jinja/evaluate.h"

#include "atom/text/jinja/print.h"

#include <string.h>
#include <time.h>

enum { RANGE_MAX = 100000, WORDS_MAX = 400 };

static atom_status range(jinja_heap *h, const jinja_args *args, jinja_value *out)
{
    jinja_value a[3];
    int64_t from, to, step;
    ATOM_TRY(jinja_bind(h, args, "start stop step", 1, a));
    ATOM_TRY(jinja_arg_int(h, args, a[0], 0, &from));
    ATOM_TRY(jinja_arg_int(h, args, a[1], 0, &to));
    ATOM_TRY(jinja_arg_int(h, args, a[2], 1, &step));
    if (jinja_missing(a[1])) {
        to = from;
        from = 0;
    }
    ATOM_TRY(jinja_new_list(h, JINJA_VIEW, out));
    if (step == 0)
        return jinja_fail(h, "the step of a range must not be 0");
    for (int64_t at = from; step > 0 ? at < to : at > to;) {
        if (out->list->n == RANGE_MAX)
            return jinja_fail(h, "a range of more than %d numbers", RANGE_MAX);
        ATOM_TRY(jinja_append(h, out->list, jinja_int(at)));
        if (__builtin_add_overflow(at, step, &at))
            break;
    }
    return ATOM_OK;
}

static atom_status copy_pairs(jinja_heap *h, jinja_value from, jinja_dict *to)
{
    jinja_list *pairs, *pair;
    if (from.kind == JINJA_DICT) {
        for (size_t i = 0; i < from.dict->n; i++)
            ATOM_TRY(jinja_set(h, to, from.dict->keys[i], from.dict->values[i]));
        return ATOM_OK;
    }
    ATOM_TRY(jinja_items(h, from, &pairs));
    for (size_t i = 0; i < pairs->n; i++) {
        ATOM_TRY(jinja_items(h, pairs->items[i], &pair));
        if (pair->n != 2)
            return jinja_fail(h, "a dict is made of pairs");
        ATOM_TRY(jinja_set(h, to, pair->items[0], pair->items[1]));
    }
    return ATOM_OK;
}

/* dict and namespace: one of pairs, and names with values. */
static atom_status make_dict(jinja_heap *h, const jinja_args *args, jinja_value *out)
{
    bool space = args->of[0] == 'n';
    ATOM_TRY(jinja_new_dict(h, space ? JINJA_NAMESPACE : JINJA_DICT, out));
    if (args->places_n > 1)
        return jinja_fail(h, "%s takes one argument without a name at most", args->of);
    if (args->places_n)
        ATOM_TRY(copy_pairs(h, args->places[0], out->dict));
    for (size_t i = 0; i < args->named_n; i++)
        ATOM_TRY(jinja_set_name(h, out->dict, args->names[i], args->named[i]));
    return ATOM_OK;
}

static atom_status raise_exception(jinja_heap *h, const jinja_args *args, jinja_value *out)
{
    jinja_value message;
    jinja_text t;
    (void)out;
    ATOM_TRY(jinja_bind(h, args, "message", 1, &message));
    ATOM_TRY(jinja_to_text(h, message, &t));
    return jinja_fail(h, "the template refuses the chat: %.*s",
                      (int)(t.n < WORDS_MAX ? t.n : WORDS_MAX), t.n ? t.at : "");
}

static atom_status strftime_now(jinja_heap *h, int64_t now, const jinja_args *args,
                                jinja_value *out)
{
    jinja_value a;
    jinja_text format;
    char words[WORDS_MAX + 2], made[4 * WORDS_MAX];
    time_t at = (time_t)now;
    struct tm day;
    ATOM_TRY(jinja_bind(h, args, "format", 1, &a));
    ATOM_TRY(jinja_arg_text(h, args, a, "", &format));
    if (format.n > WORDS_MAX || (format.n && memchr(format.at, 0, format.n)) ||
        !localtime_r(&at, &day))
        return jinja_fail(h, "strftime_now cannot use its format");
    /* a byte behind it tells an empty result from one that did not fit */
    if (format.n)
        memcpy(words, format.at, format.n);
    words[format.n] = '.';
    words[format.n + 1] = 0;
    size_t n = strftime(made, sizeof made, words, &day);
    if (n == 0)
        return jinja_fail(h, "strftime_now cannot use its format");
    return jinja_from_bytes(h, made, n - 1, 0, out);
}

bool jinja_has_function(const char *name)
{
    static const char *const names[] = {"range",        "dict",   "namespace", "raise_exception",
                                        "strftime_now", "lipsum", "cycler",    "joiner"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

atom_status jinja_call_function(jinja_heap *h, int64_t now, const jinja_args *args,
                                jinja_value *out)
{
    if (strcmp(args->of, "range") == 0)
        return range(h, args, out);
    if (strcmp(args->of, "dict") == 0 || strcmp(args->of, "namespace") == 0)
        return make_dict(h, args, out);
    if (strcmp(args->of, "raise_exception") == 0)
        return raise_exception(h, args, out);
    if (strcmp(args->of, "strftime_now") == 0)
        return strftime_now(h, now, args, out);
    return jinja_fail(h, "the function '%.60s' is not one that atom has", args->of);
}
