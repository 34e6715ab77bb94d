/*
 * Owns how values become text. One idea: the same walk over a value as Python makes it, with
 * Python's words, quotes and shortest numbers. Refuses what would print an address.
 */
#include "atom/text/jinja/print.h"

#include "atom/text/jinja/order.h"
#include "atom/text/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* The shortest digits that read back as r, as Python's repr lays them out. */
static atom_status print_real(jinja_heap *h, double r, char out[48])
{
    char digits[32];
    int precision = 1, exponent;
    if (isnan(r) || isinf(r)) {
        strcpy(out, isnan(r) ? "nan" : r < 0 ? "-inf" : "inf");
        return ATOM_OK;
    }
    do
        snprintf(digits, sizeof digits, "%.*e", precision - 1, r);
    while (strtod(digits, NULL) != r && ++precision <= 17);
    exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16) {
        *strchr(digits, 'e') = 0;
        snprintf(out, 48, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
    } else {
        int decimals = precision - 1 - exponent;
        snprintf(out, 48, "%.*f", decimals > 0 ? decimals : 1, r);
    }
    return jinja_step(h, JINJA_REAL_STEPS);
}

/* ---- repr ---- */

static atom_status put_escape(jinja_writer *w, uint32_t c, jinja_mark mark)
{
    char made[16];
    snprintf(made, sizeof made, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    return jinja_put(w, made, strlen(made), mark);
}

/* Does Python's str.isprintable deny it? */
static bool unprintable(uint32_t c)
{
    utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    return c != ' ' && (kind == UTF8PROC_CATEGORY_CN ||
                        (kind >= UTF8PROC_CATEGORY_ZS && kind <= UTF8PROC_CATEGORY_CO));
}

static atom_status repr_text(jinja_writer *w, jinja_text t)
{
    bool single = t.n && memchr(t.at, '\'', t.n), both = single && memchr(t.at, '"', t.n);
    char quote = single && !both ? '"' : '\'';
    ATOM_TRY(jinja_put(w, &quote, 1, 0));
    for (size_t at = 0, n; at < t.n; at += n) {
        utf8proc_int32_t c;
        jinja_mark mark = t.marks[at];
        n = text_utf8_offset(t.at + at, t.n - at, 1);
        (void)utf8proc_iterate((const utf8proc_uint8_t *)t.at + at, (utf8proc_ssize_t)n, &c);
        if (c == quote || c == '\\') {
            ATOM_TRY(jinja_put(w, "\\", 1, mark));
            ATOM_TRY(jinja_put(w, t.at + at, n, mark));
        } else if (c == '\n' || c == '\t' || c == '\r') {
            ATOM_TRY(jinja_put(w, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r", 2, mark));
        } else if (unprintable((uint32_t)c)) {
            ATOM_TRY(put_escape(w, (uint32_t)c, mark));
        } else {
            ATOM_TRY(jinja_put_text(w, (jinja_text){t.at + at, t.marks + at, n}));
        }
    }
    return jinja_put(w, &quote, 1, 0);
}

static atom_status repr(jinja_writer *w, jinja_value v);

static atom_status repr_list(jinja_writer *w, jinja_value v)
{
    bool tuple = v.kind == JINJA_TUPLE;
    ATOM_TRY(jinja_put_word(w, tuple ? "(" : "["));
    for (size_t i = 0; i < v.list->n; i++) {
        ATOM_TRY(jinja_put_word(w, i ? ", " : ""));
        ATOM_TRY(repr(w, v.list->items[i]));
    }
    return jinja_put_word(w, tuple && v.list->n == 1 ? ",)" : tuple ? ")" : "]");
}

static atom_status repr_dict(jinja_writer *w, const jinja_dict *d)
{
    ATOM_TRY(jinja_put_word(w, "{"));
    for (size_t i = 0; i < d->n; i++) {
        ATOM_TRY(jinja_put_word(w, i ? ", " : ""));
        ATOM_TRY(repr(w, d->keys[i]));
        ATOM_TRY(jinja_put_word(w, ": "));
        ATOM_TRY(repr(w, d->values[i]));
    }
    return jinja_put_word(w, "}");
}

static atom_status repr_any(jinja_writer *w, jinja_value v)
{
    char number[48];
    switch (v.kind) {
    case JINJA_UNDEFINED:
        return jinja_put_word(w, "Undefined");
    case JINJA_NONE:
        return jinja_put_word(w, "None");
    case JINJA_BOOL:
        return jinja_put_word(w, v.truth ? "True" : "False");
    case JINJA_INT:
        snprintf(number, sizeof number, "%lld", (long long)v.i);
        return jinja_put_word(w, number);
    case JINJA_REAL:
        ATOM_TRY(print_real(w->h, v.r, number));
        return jinja_put_word(w, number);
    case JINJA_TEXT:
        return v.safe
                   ? jinja_fail(w->h, "a text from the filter safe cannot be printed inside of a "
                                      "list or dict; leave out safe")
                   : repr_text(w, *v.text);
    case JINJA_LIST:
    case JINJA_TUPLE:
        return repr_list(w, v);
    case JINJA_DICT:
        return repr_dict(w, v.dict);
    default:
        return jinja_fail(w->h, "'%s' cannot be printed; use |list, or call it",
                          jinja_kind_name(v));
    }
}

static atom_status repr(jinja_writer *w, jinja_value v)
{
    atom_status st = jinja_enter(w->h);
    if (st == ATOM_OK)
        st = repr_any(w, v);
    jinja_leave(w->h);
    return st;
}

atom_status jinja_print(jinja_writer *w, jinja_value v)
{
    if (v.kind == JINJA_UNDEFINED)
        return ATOM_OK;
    return v.kind == JINJA_TEXT ? jinja_put_text(w, *v.text) : repr(w, v);
}

atom_status jinja_to_text(jinja_heap *h, jinja_value v, jinja_text *out)
{
    jinja_writer w = {.h = h};
    if (v.kind == JINJA_TEXT) {
        *out = *v.text;
        return ATOM_OK;
    }
    ATOM_TRY(jinja_print(&w, v));
    *out = jinja_written(&w);
    return ATOM_OK;
}

/* ---- JSON ---- */

static atom_status json_escape(jinja_writer *w, uint32_t c, jinja_mark mark)
{
    static const struct {
        char c;
        const char *as;
    } known[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\n', "\\n"}, {'\r', "\\r"},
                 {'\t', "\\t"}, {'\b', "\\b"},  {'\f', "\\f"}};
    char made[16];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (c == (uint32_t)known[i].c)
            return jinja_put(w, known[i].as, 2, mark);
    if (c < 0x10000)
        snprintf(made, sizeof made, "\\u%04x", c);
    else
        snprintf(made, sizeof made, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                 0xdc00 + ((c - 0x10000) & 0x3ff));
    return jinja_put(w, made, strlen(made), mark);
}

static atom_status json_text(jinja_writer *w, jinja_text t, bool ascii)
{
    size_t from = 0, n;
    ATOM_TRY(jinja_put_word(w, "\""));
    for (size_t at = 0; at <= t.n; at += n) {
        utf8proc_int32_t c = 0;
        n = 1;
        if (at < t.n) {
            n = text_utf8_offset(t.at + at, t.n - at, 1);
            (void)utf8proc_iterate((const utf8proc_uint8_t *)t.at + at, (utf8proc_ssize_t)n, &c);
            if (c >= ' ' && c != '"' && c != '\\' && (c < 0x7f || !ascii))
                continue;
        }
        ATOM_TRY(jinja_put_text(w, (jinja_text){t.at + from, t.marks + from, at - from}));
        from = at + n;
        if (at < t.n)
            ATOM_TRY(json_escape(w, (uint32_t)c, t.marks[at]));
    }
    return jinja_put_word(w, "\"");
}

static atom_status json_line(jinja_writer *w, const jinja_json_style *s, uint32_t depth)
{
    if (!s->indented)
        return ATOM_OK;
    ATOM_TRY(jinja_step(w->h, depth));
    ATOM_TRY(jinja_put_word(w, "\n"));
    for (uint32_t i = 0; i < depth; i++)
        ATOM_TRY(jinja_put_text(w, s->indent));
    return ATOM_OK;
}

static atom_status json_any(jinja_writer *w, jinja_value v, const jinja_json_style *s,
                            uint32_t depth);

static atom_status json_list(jinja_writer *w, const jinja_list *list, const jinja_json_style *s,
                             uint32_t depth)
{
    if (list->n == 0)
        return jinja_put_word(w, "[]");
    ATOM_TRY(jinja_put_word(w, "["));
    for (size_t i = 0; i < list->n; i++) {
        if (i)
            ATOM_TRY(jinja_put_text(w, s->comma));
        ATOM_TRY(json_line(w, s, depth + 1));
        ATOM_TRY(json_any(w, list->items[i], s, depth + 1));
    }
    ATOM_TRY(json_line(w, s, depth));
    return jinja_put_word(w, "]");
}

/* Keys that are no texts become such. */
static atom_status json_key(jinja_writer *w, jinja_value key, const jinja_json_style *s)
{
    jinja_writer name = {.h = w->h};
    if (key.kind == JINJA_TEXT)
        return json_text(w, *key.text, s->ascii);
    if (key.kind == JINJA_TUPLE)
        return jinja_fail(w->h, "tojson: a key of type 'tuple'");
    ATOM_TRY(json_any(&name, key, s, 0));
    return json_text(w, jinja_written(&name), s->ascii);
}

static atom_status json_dict(jinja_writer *w, const jinja_dict *d, const jinja_json_style *s,
                             uint32_t depth)
{
    size_t *order;
    if (d->n == 0)
        return jinja_put_word(w, "{}");
    ATOM_TRY(jinja_alloc(w->h, d->n, sizeof *order, &order));
    for (size_t i = 0; i < d->n; i++)
        order[i] = i;
    if (s->sorted)
        ATOM_TRY(jinja_sort(w->h, d->keys, d->n, false, order));
    ATOM_TRY(jinja_put_word(w, "{"));
    for (size_t i = 0; i < d->n; i++) {
        if (i)
            ATOM_TRY(jinja_put_text(w, s->comma));
        ATOM_TRY(json_line(w, s, depth + 1));
        ATOM_TRY(json_key(w, d->keys[order[i]], s));
        ATOM_TRY(jinja_put_text(w, s->colon));
        ATOM_TRY(json_any(w, d->values[order[i]], s, depth + 1));
    }
    ATOM_TRY(json_line(w, s, depth));
    return jinja_put_word(w, "}");
}

static atom_status json_plain(jinja_writer *w, jinja_value v, const jinja_json_style *s,
                              uint32_t depth)
{
    char number[48];
    switch (v.kind) {
    case JINJA_NONE:
        return jinja_put_word(w, "null");
    case JINJA_BOOL:
        return jinja_put_word(w, v.truth ? "true" : "false");
    case JINJA_REAL:
        ATOM_TRY(print_real(w->h, v.r, number));
        return jinja_put_word(w, isnan(v.r)   ? "NaN"
                                 : isinf(v.r) ? (v.r < 0 ? "-Infinity" : "Infinity")
                                              : number);
    case JINJA_INT:
        return jinja_print(w, v);
    case JINJA_TEXT:
        return json_text(w, *v.text, s->ascii);
    case JINJA_LIST:
    case JINJA_TUPLE:
        return json_list(w, v.list, s, depth);
    case JINJA_DICT:
        return json_dict(w, v.dict, s, depth);
    default:
        return jinja_fail(w->h, "tojson: '%s' is not a value of JSON", jinja_kind_name(v));
    }
}

static atom_status json_any(jinja_writer *w, jinja_value v, const jinja_json_style *s,
                            uint32_t depth)
{
    atom_status st = jinja_enter(w->h);
    if (st == ATOM_OK)
        st = json_plain(w, v, s, depth);
    jinja_leave(w->h);
    return st;
}

atom_status jinja_print_json(jinja_writer *w, jinja_value v, const jinja_json_style *style)
{
    return json_any(w, v, style, 0);
}
