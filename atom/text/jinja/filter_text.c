/*
 * Owns the filters over one text, number or value. One idea: each is Jinja2's own, argument by
 * argument. Refuses nothing that Jinja2 takes, but numbers of more than 64 bits.
 */
#include "atom/text/jinja/filter.h"

#include "atom/text/jinja/method.h"
#include "atom/text/jinja/order.h"
#include "atom/text/jinja/print.h"
#include "atom/text/jinja/text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atom_status recase(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_text t;
    ATOM_TRY(jinja_bind(h, args, "", 0, NULL));
    ATOM_TRY(jinja_to_text(h, v, &t));
    jinja_case how = args->of[0] == 'u'   ? JINJA_UPPER
                     : args->of[0] == 'l' ? JINJA_LOWER
                     : args->of[0] == 'c' ? JINJA_CAPITALIZE
                                          : JINJA_TITLE_WORDS;
    ATOM_TRY(jinja_recase(h, t, how, &t));
    ATOM_TRY(jinja_from_text(h, t, out));
    out->safe = v.safe;
    return ATOM_OK;
}

static atom_status trim(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_value chars;
    jinja_text t, set;
    ATOM_TRY(jinja_bind(h, args, "chars", 0, &chars));
    ATOM_TRY(jinja_to_text(h, v, &t));
    bool given = !jinja_missing(chars) && chars.kind != JINJA_NONE;
    ATOM_TRY(jinja_arg_text(h, args, given ? chars : jinja_undefined(NULL), "", &set));
    ATOM_TRY(jinja_strip(h, t, given ? &set : NULL, true, true, &t));
    ATOM_TRY(jinja_from_text(h, t, out));
    out->safe = v.safe;
    return ATOM_OK;
}

static atom_status replace(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_value a[3];
    jinja_text t, what, by;
    int64_t limit;
    ATOM_TRY(jinja_bind(h, args, "old new count", 2, a));
    ATOM_TRY(jinja_to_text(h, v, &t));
    ATOM_TRY(jinja_to_text(h, a[0], &what));
    ATOM_TRY(jinja_to_text(h, a[1], &by));
    if (a[2].kind == JINJA_NONE)
        a[2] = jinja_undefined(NULL);
    ATOM_TRY(jinja_arg_int(h, args, a[2], -1, &limit));
    ATOM_TRY(jinja_replace(h, t, what, by, limit, &t));
    return jinja_from_text(h, t, out);
}

static atom_status string(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_text t;
    ATOM_TRY(jinja_bind(h, args, "", 0, NULL));
    ATOM_TRY(jinja_to_text(h, v, &t));
    ATOM_TRY(jinja_from_text(h, t, out));
    out->safe = v.safe;
    return ATOM_OK;
}

static atom_status safe(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    ATOM_TRY(string(h, v, args, out));
    out->safe = true;
    return ATOM_OK;
}

/* A number of blanks, or the text itself. */
static atom_status indentation(jinja_heap *h, const jinja_args *args, jinja_value v,
                               int64_t otherwise, jinja_text *out)
{
    jinja_writer w = {.h = h};
    int64_t n;
    if (v.kind == JINJA_TEXT) {
        *out = *v.text;
        return ATOM_OK;
    }
    ATOM_TRY(jinja_arg_int(h, args, v, otherwise, &n));
    if (n > 1000)
        return jinja_fail(h, "%s by more than 1000", args->of);
    for (int64_t i = 0; i < n; i++)
        ATOM_TRY(jinja_put_word(&w, " "));
    *out = jinja_written(&w);
    return ATOM_OK;
}

static atom_status indent(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_value a[3], lines;
    jinja_text t, by;
    jinja_writer w = {.h = h}, whole = {.h = h};
    ATOM_TRY(jinja_bind(h, args, "width first blank", 0, a));
    ATOM_TRY(indentation(h, args, a[0], 4, &by));
    ATOM_TRY(jinja_to_text(h, v, &t));
    ATOM_TRY(jinja_put_text(&whole, t));
    ATOM_TRY(jinja_put_word(&whole, "\n"));
    ATOM_TRY(jinja_splitlines(h, jinja_written(&whole), false, &lines));
    if (jinja_truth(a[1]))
        ATOM_TRY(jinja_put_text(&w, by));
    for (size_t i = 0; i < lines.list->n; i++) {
        jinja_text line = *lines.list->items[i].text;
        if (i)
            ATOM_TRY(jinja_put_word(&w, "\n"));
        if (i && (line.n || jinja_truth(a[2])))
            ATOM_TRY(jinja_put_text(&w, by));
        ATOM_TRY(jinja_put_text(&w, line));
    }
    return jinja_from_text(h, jinja_written(&w), out);
}

static atom_status tojson(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_value a[4];
    jinja_writer w = {.h = h};
    jinja_json_style style = {0};
    ATOM_TRY(jinja_bind(h, args, "ensure_ascii indent separators sort_keys", 0, a));
    style.ascii = jinja_truth(a[0]);
    style.sorted = jinja_truth(a[3]);
    style.indented = !jinja_missing(a[1]) && a[1].kind != JINJA_NONE;
    if (style.indented)
        ATOM_TRY(indentation(h, args, a[1], 0, &style.indent));
    const jinja_value missing = jinja_undefined(NULL);
    bool given = !jinja_missing(a[2]) && a[2].kind != JINJA_NONE;
    if (given && (!jinja_is_sequence(a[2]) || a[2].list->n != 2))
        return jinja_fail(h, "tojson: separators are two texts");
    ATOM_TRY(jinja_arg_text(h, args, given ? a[2].list->items[0] : missing,
                            style.indented ? "," : ", ", &style.comma));
    ATOM_TRY(jinja_arg_text(h, args, given ? a[2].list->items[1] : missing, ": ", &style.colon));
    ATOM_TRY(jinja_print_json(&w, v, &style));
    return jinja_from_text(h, jinja_written(&w), out);
}

/* ---- numbers ---- */

/* A text as a number; *is: it is one. */
static atom_status read_number(jinja_heap *h, jinja_text t, double *real, int64_t *whole,
                               bool *is_whole, bool *is)
{
    char copy[64], *end;
    jinja_text s;
    *is = false;
    ATOM_TRY(jinja_strip(h, t, NULL, true, true, &s));
    if (s.n == 0 || s.n >= sizeof copy)
        return ATOM_OK;
    memcpy(copy, s.at, s.n);
    copy[s.n] = 0;
    if (strlen(copy) != s.n || strpbrk(copy, "xXpP(") || strchr(" \t\n\v\f\r", copy[0]))
        return ATOM_OK;
    *real = strtod(copy, &end);
    if (*end)
        return ATOM_OK;
    errno = 0;
    *whole = strtoll(copy, &end, 10);
    *is_whole = *end == 0 && errno == 0;
    *is = true;
    return ATOM_OK;
}

static atom_status to_int(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_value a[2];
    double real = 0;
    int64_t whole = 0;
    bool is_whole = false, is = v.kind == JINJA_REAL;
    ATOM_TRY(jinja_bind(h, args, "default base", 0, a));
    if (!jinja_missing(a[1]) && !(a[1].kind == JINJA_INT && a[1].i == 10))
        return jinja_fail(h, "int: only base 10 is supported");
    *out = jinja_missing(a[0]) ? jinja_int(0) : a[0];
    if (v.kind == JINJA_INT || v.kind == JINJA_BOOL) {
        *out = jinja_int(v.kind == JINJA_INT ? v.i : v.truth);
        return ATOM_OK;
    }
    if (is)
        real = v.r;
    else if (v.kind == JINJA_TEXT)
        ATOM_TRY(read_number(h, *v.text, &real, &whole, &is_whole, &is));
    if (!is)
        return ATOM_OK;
    if (!is_whole && !isfinite(real))
        return v.kind == JINJA_TEXT && isnan(real) ? ATOM_OK : jinja_fail(h, "int of an infinity");
    if (!is_whole && !(fabs(real) < 9.2e18))
        return jinja_fail(h, "int: a whole number of more than 64 bits");
    *out = jinja_int(is_whole ? whole : (int64_t)real);
    return ATOM_OK;
}

static atom_status to_float(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_value a;
    double real = 0;
    int64_t whole;
    bool is_whole, is = jinja_is_number(v);
    ATOM_TRY(jinja_bind(h, args, "default", 0, &a));
    *out = jinja_missing(a) ? jinja_real(0) : a;
    if (is)
        real = jinja_number(v);
    else if (v.kind == JINJA_TEXT)
        ATOM_TRY(read_number(h, *v.text, &real, &whole, &is_whole, &is));
    if (is)
        *out = jinja_real(real);
    return ATOM_OK;
}

static atom_status absolute(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    ATOM_TRY(jinja_bind(h, args, "", 0, NULL));
    if (!jinja_is_number(v))
        return jinja_fail(h, "abs of '%s'", jinja_kind_name(v));
    if (v.kind == JINJA_REAL)
        *out = jinja_real(fabs(v.r));
    else if (v.kind == JINJA_INT && v.i < 0)
        return jinja_negate(h, v, out);
    else
        *out = jinja_int(v.kind == JINJA_INT ? v.i : v.truth);
    return ATOM_OK;
}

static atom_status round_number(jinja_heap *h, jinja_value v, const jinja_args *args,
                                jinja_value *out)
{
    jinja_value a[2];
    jinja_text method;
    int64_t places;
    char digits[400];
    ATOM_TRY(jinja_bind(h, args, "precision method", 0, a));
    ATOM_TRY(jinja_arg_int(h, args, a[0], 0, &places));
    ATOM_TRY(jinja_arg_text(h, args, a[1], "common", &method));
    if (!jinja_is_number(v) || places < 0 || places > 15)
        return jinja_fail(h, "round takes a number and 0 to 15 places");
    ATOM_TRY(jinja_step(h, JINJA_REAL_STEPS));
    double x = jinja_number(v), scale = pow(10, (double)places);
    if (jinja_text_is(method, "ceil") || jinja_text_is(method, "floor")) {
        *out = jinja_real((method.at[0] == 'c' ? ceil(x * scale) : floor(x * scale)) / scale);
        return ATOM_OK;
    }
    if (!jinja_text_is(method, "common"))
        return jinja_fail(h, "round: the method is common, ceil or floor");
    if (v.kind != JINJA_REAL) {
        *out = jinja_int(v.kind == JINJA_INT ? v.i : v.truth);
        return ATOM_OK;
    }
    snprintf(digits, sizeof digits, "%.*f", (int)places, x); /* half to even, of the exact value */
    *out = jinja_real(strtod(digits, NULL));
    return ATOM_OK;
}

/* ---- the rest ---- */

static atom_status otherwise(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_value a[2];
    ATOM_TRY(jinja_bind(h, args, "default_value boolean", 0, a));
    if (jinja_missing(a[0]))
        ATOM_TRY(jinja_from_bytes(h, "", 0, 0, &a[0]));
    *out = v.kind == JINJA_UNDEFINED || (jinja_truth(a[1]) && !jinja_truth(v)) ? a[0] : v;
    return ATOM_OK;
}

static atom_status format(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_value all;
    jinja_text t;
    ATOM_TRY(jinja_to_text(h, v, &t));
    if (args->named_n)
        return jinja_fail(h, "format with names is not supported; write %%s");
    ATOM_TRY(jinja_new_list(h, JINJA_TUPLE, &all));
    for (size_t i = 0; i < args->places_n; i++)
        ATOM_TRY(jinja_append(h, all.list, args->places[i]));
    return jinja_percent(h, t, all, out);
}

static atom_status wordcount(jinja_heap *h, jinja_value v, const jinja_args *args, jinja_value *out)
{
    jinja_text t;
    int64_t n = 0;
    bool word = false;
    ATOM_TRY(jinja_bind(h, args, "", 0, NULL));
    ATOM_TRY(jinja_to_text(h, v, &t));
    ATOM_TRY(jinja_step(h, t.n / 4));
    for (size_t i = 0; i < t.n; i++) {
        char c = t.at[i];
        bool part =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        if ((uint8_t)c >= 0x80)
            return jinja_fail(h, "wordcount of text that is not ASCII is not supported");
        n += part && !word;
        word = part;
    }
    *out = jinja_int(n);
    return ATOM_OK;
}

const jinja_filter_row jinja_filters_of_text[] = {
    {"upper", recase},  {"lower", recase},       {"capitalize", recase},
    {"title", recase},  {"trim", trim},          {"replace", replace},
    {"string", string}, {"safe", safe},          {"indent", indent},
    {"tojson", tojson}, {"int", to_int},         {"float", to_float},
    {"abs", absolute},  {"round", round_number}, {"default", otherwise},
    {"d", otherwise},   {"format", format},      {"wordcount", wordcount},
    {NULL, NULL}};
