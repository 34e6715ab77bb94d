/*
 * Owns comparing and computing. One idea: Python's rules over our few kinds of values. Refuses to
 * round or wrap a whole number that no longer fits.
 */
#include "atom/text/jinja/order.h"

#include <math.h>
#include <string.h>

static const char *const signs[] = {
    [JINJA_ADD] = "+",       [JINJA_SUB] = "-", [JINJA_MUL] = "*", [JINJA_DIV] = "/",
    [JINJA_FLOORDIV] = "//", [JINJA_MOD] = "%", [JINJA_POW] = "**"};

atom_status jinja_find(jinja_heap *h, jinja_text t, jinja_text what, size_t from, size_t *out)
{
    *out = t.n + 1;
    if (from > t.n || what.n > t.n - from)
        return ATOM_OK;
    const char *at = what.n ? memmem(t.at + from, t.n - from, what.at, what.n) : t.at + from;
    *out = at ? (size_t)(at - t.at) : t.n + 1;
    return jinja_step(h, 1 + ((at ? *out : t.n) - from + what.n) / 8);
}

atom_status jinja_find_last(jinja_heap *h, jinja_text t, jinja_text what, size_t *out)
{
    size_t left = what.n <= t.n ? t.n - what.n + 1 : 0; /* places that it may have */
    *out = what.n ? t.n + 1 : t.n;
    while (what.n && left > 0) {
        const char *at = memrchr(t.at, what.at[0], left);
        size_t place = at ? (size_t)(at - t.at) : 0;
        ATOM_TRY(jinja_step(h, 1 + (left - place) / 16 + (at ? what.n / 64 : 0)));
        if (at && memcmp(at, what.at, what.n) == 0) {
            *out = place;
            break;
        }
        left = place;
    }
    return ATOM_OK;
}

/* ---- order ---- */

static int compare_texts(jinja_text a, jinja_text b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n ? memcmp(a.at, b.at, n) : 0;
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

static atom_status compare(jinja_heap *h, jinja_value a, jinja_value b, int *out)
{
    ATOM_TRY(jinja_step(h, 1));
    if (jinja_is_number(a) && jinja_is_number(b)) {
        double x = jinja_number(a), y = jinja_number(b);
        *out = a.kind == JINJA_INT && b.kind == JINJA_INT ? (a.i > b.i) - (a.i < b.i)
                                                          : (x > y) - (x < y);
        return ATOM_OK;
    }
    if (a.kind == JINJA_TEXT && b.kind == JINJA_TEXT) {
        *out = compare_texts(*a.text, *b.text);
        return jinja_step(h, (a.text->n < b.text->n ? a.text->n : b.text->n) / 64);
    }
    if (a.kind == b.kind && (a.kind == JINJA_LIST || a.kind == JINJA_TUPLE)) {
        const jinja_list *x = a.list, *y = b.list;
        *out = 0;
        for (size_t i = 0; i < x->n && i < y->n && *out == 0; i++)
            ATOM_TRY(jinja_compare(h, x->items[i], y->items[i], out));
        *out = *out ? *out : (x->n > y->n) - (x->n < y->n);
        return ATOM_OK;
    }
    return jinja_fail(h, "'%s' and '%s' cannot be ordered", jinja_kind_name(a), jinja_kind_name(b));
}

atom_status jinja_compare(jinja_heap *h, jinja_value a, jinja_value b, int *out)
{
    atom_status st = jinja_enter(h);
    if (st == ATOM_OK)
        st = compare(h, a, b, out);
    jinja_leave(h);
    return st;
}

/* Merges two sorted runs of order[from, to), cut at mid. */
static atom_status merge(jinja_heap *h, const jinja_value *keys, bool reverse, size_t *order,
                         size_t *spare, size_t from, size_t mid, size_t to)
{
    size_t i = from, j = mid, k = from;
    while (i < mid && j < to) {
        int c;
        ATOM_TRY(jinja_compare(h, keys[order[i]], keys[order[j]], &c));
        bool left = reverse ? c >= 0 : c <= 0;
        spare[k++] = left ? order[i++] : order[j++];
    }
    while (i < mid)
        spare[k++] = order[i++];
    while (j < to)
        spare[k++] = order[j++];
    memcpy(order + from, spare + from, (to - from) * sizeof *order);
    return ATOM_OK;
}

atom_status jinja_sort(jinja_heap *h, const jinja_value *keys, size_t n, bool reverse,
                       size_t *order)
{
    size_t *spare;
    ATOM_TRY(jinja_alloc(h, n, sizeof *spare, &spare));
    for (size_t width = 1; width < n; width *= 2)
        for (size_t from = 0; from + width < n; from += 2 * width) {
            size_t to = from + 2 * width < n ? from + 2 * width : n;
            ATOM_TRY(merge(h, keys, reverse, order, spare, from, from + width, to));
        }
    return ATOM_OK;
}

atom_status jinja_contains(jinja_heap *h, jinja_value in, jinja_value what, bool *out)
{
    const jinja_value *found;
    jinja_list *items;
    size_t at;
    *out = false;
    if (in.kind == JINJA_TEXT) {
        if (what.kind != JINJA_TEXT)
            return jinja_fail(h, "'in' a text needs a text, not '%s'", jinja_kind_name(what));
        ATOM_TRY(jinja_find(h, *in.text, *what.text, 0, &at));
        *out = at <= in.text->n;
        return ATOM_OK;
    }
    if (in.kind == JINJA_DICT) {
        ATOM_TRY(jinja_get(h, in.dict, what, &found));
        *out = found != NULL;
        return ATOM_OK;
    }
    ATOM_TRY(jinja_items(h, in, &items));
    for (size_t i = 0; i < items->n && !*out; i++)
        ATOM_TRY(jinja_equal(h, items->items[i], what, out));
    return ATOM_OK;
}

/* ---- arithmetic ---- */

static atom_status too_large(const jinja_heap *h)
{
    return jinja_fail(h, "a whole number of more than 64 bits");
}

static atom_status whole(jinja_heap *h, jinja_operator op, int64_t a, int64_t b, jinja_value *out)
{
    int64_t r = 0;
    bool over = false;
    if ((op == JINJA_FLOORDIV || op == JINJA_MOD || op == JINJA_DIV) && b == 0)
        return jinja_fail(h, "division by zero");
    switch (op) {
    case JINJA_ADD:
        over = __builtin_add_overflow(a, b, &r);
        break;
    case JINJA_SUB:
        over = __builtin_sub_overflow(a, b, &r);
        break;
    case JINJA_MUL:
        over = __builtin_mul_overflow(a, b, &r);
        break;
    case JINJA_DIV:
        *out = jinja_real((double)a / (double)b);
        return ATOM_OK;
    case JINJA_FLOORDIV:
    case JINJA_MOD: {
        if (b == -1) {
            over = op == JINJA_FLOORDIV && a == INT64_MIN;
            r = op == JINJA_MOD || over ? 0 : -a;
            break;
        }
        int64_t left = a % b;
        bool down = left != 0 && (left < 0) != (b < 0);
        r = op == JINJA_MOD ? left + (down ? b : 0) : a / b - down;
        break;
    }
    case JINJA_POW:
        if (b < 0) {
            *out = jinja_real(pow((double)a, (double)b));
            return a ? ATOM_OK : jinja_fail(h, "division by zero");
        }
        r = 1;
        if (a == 0 || a == 1 || a == -1)
            r = b == 0 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : a;
        else
            for (int64_t i = 0; i < b && !over; i++)
                over = __builtin_mul_overflow(r, a, &r);
        break;
    }
    *out = jinja_int(r);
    return over ? too_large(h) : ATOM_OK;
}

static atom_status real(jinja_heap *h, jinja_operator op, double a, double b, jinja_value *out)
{
    double r = 0;
    if ((op == JINJA_DIV || op == JINJA_FLOORDIV || op == JINJA_MOD) && !(b < 0 || b > 0))
        return jinja_fail(h, "division by zero");
    switch (op) {
    case JINJA_ADD:
        r = a + b;
        break;
    case JINJA_SUB:
        r = a - b;
        break;
    case JINJA_MUL:
        r = a * b;
        break;
    case JINJA_DIV:
        r = a / b;
        break;
    case JINJA_FLOORDIV:
    case JINJA_MOD:
        r = fmod(a, b);
        if ((r < 0 || r > 0) && (r < 0) != (b < 0))
            r += b;
        r = op == JINJA_MOD ? r : floor((a - r) / b + 0.5);
        break;
    case JINJA_POW:
        r = pow(a, b);
        break;
    }
    *out = jinja_real(r);
    return ATOM_OK;
}

/* As Python's Markup does it to what is added to a text of the filter safe. */
static atom_status put_escaped(jinja_writer *w, jinja_text t)
{
    static const struct {
        char c;
        const char *as;
    } known[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
    for (size_t i = 0; i < t.n; i++) {
        size_t k = 0;
        while (k < sizeof known / sizeof *known && known[k].c != t.at[i])
            k++;
        if (k < sizeof known / sizeof *known)
            ATOM_TRY(jinja_put(w, known[k].as, strlen(known[k].as), t.marks[i]));
        else
            ATOM_TRY(jinja_put(w, t.at + i, 1, t.marks[i]));
    }
    return ATOM_OK;
}

static atom_status add_texts(jinja_heap *h, jinja_value a, jinja_value b, jinja_value *out)
{
    jinja_writer w = {.h = h};
    bool safe = a.safe || b.safe;
    ATOM_TRY(safe && !a.safe ? put_escaped(&w, *a.text) : jinja_put_text(&w, *a.text));
    ATOM_TRY(safe && !b.safe ? put_escaped(&w, *b.text) : jinja_put_text(&w, *b.text));
    ATOM_TRY(jinja_from_text(h, jinja_written(&w), out));
    out->safe = safe;
    return ATOM_OK;
}

static atom_status add_lists(jinja_heap *h, jinja_value a, jinja_value b, jinja_value *out)
{
    ATOM_TRY(jinja_new_list(h, a.kind, out));
    for (size_t i = 0; i < a.list->n; i++)
        ATOM_TRY(jinja_append(h, out->list, a.list->items[i]));
    for (size_t i = 0; i < b.list->n; i++)
        ATOM_TRY(jinja_append(h, out->list, b.list->items[i]));
    return ATOM_OK;
}

static atom_status repeat(jinja_heap *h, jinja_value what, int64_t times, jinja_value *out)
{
    jinja_writer w = {.h = h};
    jinja_value list;
    if (what.kind == JINJA_TEXT) {
        for (int64_t i = 0; i < times && what.text->n; i++) {
            ATOM_TRY(jinja_step(h, 1));
            ATOM_TRY(jinja_put_text(&w, *what.text));
        }
        return jinja_from_text(h, jinja_written(&w), out);
    }
    ATOM_TRY(jinja_new_list(h, what.kind, &list));
    for (int64_t i = 0; i < times && what.list->n; i++)
        for (size_t k = 0; k < what.list->n; k++)
            ATOM_TRY(jinja_append(h, list.list, what.list->items[k]));
    *out = list;
    return ATOM_OK;
}

static bool repeats(jinja_value a, jinja_value b)
{
    return (a.kind == JINJA_TEXT || a.kind == JINJA_LIST || a.kind == JINJA_TUPLE) &&
           (b.kind == JINJA_INT || b.kind == JINJA_BOOL);
}

atom_status jinja_operate(jinja_heap *h, jinja_operator op, jinja_value a, jinja_value b,
                          jinja_value *out)
{
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if (a.kind == JINJA_REAL || b.kind == JINJA_REAL)
            return real(h, op, jinja_number(a), jinja_number(b), out);
        return whole(h, op, a.kind == JINJA_BOOL ? a.truth : a.i,
                     b.kind == JINJA_BOOL ? b.truth : b.i, out);
    }
    if (op == JINJA_ADD && a.kind == JINJA_TEXT && b.kind == JINJA_TEXT)
        return add_texts(h, a, b, out);
    if (op == JINJA_ADD && a.kind == b.kind && (a.kind == JINJA_LIST || a.kind == JINJA_TUPLE))
        return add_lists(h, a, b, out);
    if (op == JINJA_MUL && (repeats(a, b) || repeats(b, a))) {
        jinja_value what = repeats(a, b) ? a : b, n = repeats(a, b) ? b : a;
        return repeat(h, what, n.kind == JINJA_BOOL ? n.truth : n.i, out);
    }
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED) {
        const char *name = a.kind == JINJA_UNDEFINED ? a.name : b.name;
        return jinja_fail(h, "'%s' is undefined, so it cannot be used with %s", name, signs[op]);
    }
    return jinja_fail(h, "%s does not work with '%s' and '%s'", signs[op], jinja_kind_name(a),
                      jinja_kind_name(b));
}

atom_status jinja_negate(jinja_heap *h, jinja_value v, jinja_value *out)
{
    return jinja_operate(h, JINJA_SUB, jinja_int(0), v, out);
}
