/*
 * Owns what is done to texts. One idea: every part that is copied takes its marks along. Refuses
 * the few characters whose other case is more than one character, or depends on its place.
 */
#include "atom/text/jinja/text.h"

#include "atom/text/jinja/order.h"
#include "atom/text/jinja/print.h"
#include "atom/text/utf8.h"

#include <string.h>
#include <utf8proc.h>

static jinja_text part(jinja_text t, size_t from, size_t to)
{
    return (jinja_text){t.at + from, t.marks + from, to - from};
}

uint32_t jinja_char(jinja_text t, size_t at, size_t *n)
{
    utf8proc_int32_t c = 0;
    *n = text_utf8_offset(t.at + at, t.n - at, 1);
    (void)utf8proc_iterate((const utf8proc_uint8_t *)t.at + at, (utf8proc_ssize_t)*n, &c);
    return (uint32_t)c;
}

/* ---- case ---- */

/* Characters whose upper or title case is several (Unicode's SpecialCasing). */
static bool upper_is_special(uint32_t c)
{
    static const uint32_t ranges[][2] = {
        {0xdf, 0xdf},     {0x149, 0x149},   {0x1f0, 0x1f0},   {0x390, 0x390},   {0x3b0, 0x3b0},
        {0x587, 0x587},   {0x1e96, 0x1e9a}, {0x1f50, 0x1f56}, {0x1f80, 0x1faf}, {0x1fb2, 0x1fb4},
        {0x1fb6, 0x1fbc}, {0x1fc2, 0x1fc4}, {0x1fc6, 0x1fcc}, {0x1fd2, 0x1fd7}, {0x1fe2, 0x1fe7},
        {0x1ff2, 0x1ff4}, {0x1ff6, 0x1ffc}, {0xfb00, 0xfb06}, {0xfb13, 0xfb17}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return true;
    return false;
}

static bool is_cased(uint32_t c)
{
    utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
           kind == UTF8PROC_CATEGORY_LT;
}

static atom_status put_char(jinja_writer *w, uint32_t c, bool upper, bool title, jinja_mark mark)
{
    utf8proc_uint8_t bytes[4];
    utf8proc_int32_t to = (utf8proc_int32_t)c;
    if (upper ? upper_is_special(c) : c == 0x130 || c == 0x3a3)
        return jinja_fail(w->h, "the %s case of U+%04X is not supported", upper ? "upper" : "lower",
                          c);
    to = !upper ? utf8proc_tolower(to) : title ? utf8proc_totitle(to) : utf8proc_toupper(to);
    return jinja_put(w, (const char *)bytes, (size_t)utf8proc_encode_char(to, bytes), mark);
}

atom_status jinja_recase(jinja_heap *h, jinja_text t, jinja_case how, jinja_text *out)
{
    jinja_writer w = {.h = h};
    bool begins = true;
    for (size_t at = 0, n; at < t.n; at += n) {
        uint32_t c = jinja_char(t, at, &n);
        bool title = begins && how != JINJA_UPPER && how != JINJA_LOWER;
        bool upper = how == JINJA_UPPER || title;
        ATOM_TRY(jinja_step(h, 1));
        ATOM_TRY(put_char(&w, c, upper, title && how != JINJA_TITLE_WORDS, t.marks[at]));
        if (how == JINJA_TITLE)
            begins = !is_cased(c);
        else if (how == JINJA_TITLE_WORDS)
            begins = text_utf8_blank(t.at + at, t.n - at) || (c < 0x80 && strchr("-({[<", (int)c));
        else
            begins = false;
    }
    *out = jinja_written(&w);
    return ATOM_OK;
}

atom_status jinja_is_cased(jinja_heap *h, jinja_text t, bool upper, bool *out)
{
    *out = false;
    ATOM_TRY(jinja_step(h, t.n / 2));
    for (size_t at = 0, n; at < t.n; at += n) {
        utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)jinja_char(t, at, &n));
        utf8proc_category_t right = upper ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL;
        if (kind == right) {
            *out = true;
        } else if (kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
                   kind == UTF8PROC_CATEGORY_LT) {
            *out = false;
            break;
        }
    }
    return ATOM_OK;
}

/* ---- ends ---- */

/* Is the character of n bytes at `at` in the set, or a blank? */
static atom_status in_set(jinja_heap *h, jinja_text t, size_t at, size_t n, const jinja_text *set,
                          bool *out)
{
    size_t found;
    *out = text_utf8_blank(t.at + at, n) > 0;
    if (!set)
        return ATOM_OK;
    ATOM_TRY(jinja_find(h, *set, part(t, at, at + n), 0, &found));
    *out = found <= set->n;
    return ATOM_OK;
}

/* Where the character begins that ends at `to`. */
static size_t char_before(jinja_text t, size_t from, size_t to)
{
    size_t last = to - 1;
    while (last > from && ((uint8_t)t.at[last] & 0xc0) == 0x80)
        last--;
    return last;
}

atom_status jinja_strip(jinja_heap *h, jinja_text t, const jinja_text *set, bool left, bool right,
                        jinja_text *out)
{
    size_t from = 0, to = t.n, n;
    bool in = left;
    while (in && from < to) {
        (void)jinja_char(t, from, &n);
        ATOM_TRY(in_set(h, t, from, n, set, &in));
        from += in ? n : 0;
    }
    in = right;
    while (in && to > from) {
        size_t last = char_before(t, from, to);
        ATOM_TRY(in_set(h, t, last, to - last, set, &in));
        to = in ? last : to;
    }
    *out = part(t, from, to);
    return jinja_step(h, (t.n - out->n) / 2);
}

atom_status jinja_has_end(jinja_heap *h, jinja_text t, jinja_text what, bool begins, bool *out)
{
    *out = false;
    if (what.n > t.n)
        return ATOM_OK;
    *out = what.n == 0 || memcmp(t.at + (begins ? 0 : t.n - what.n), what.at, what.n) == 0;
    return jinja_step(h, what.n / 64);
}

/* ---- parts ---- */

atom_status jinja_replace(jinja_heap *h, jinja_text t, jinja_text what, jinja_text by,
                          int64_t limit, jinja_text *out)
{
    jinja_writer w = {.h = h};
    size_t at = 0, n, found;
    for (; limit; limit--) {
        ATOM_TRY(jinja_find(h, t, what, at, &found));
        if (found > t.n)
            break;
        ATOM_TRY(jinja_put_text(&w, part(t, at, found)));
        ATOM_TRY(jinja_put_text(&w, by));
        at = found + what.n;
        if (what.n)
            continue;
        if (at == t.n) /* nothing, replaced between all characters */
            break;
        (void)jinja_char(t, at, &n);
        ATOM_TRY(jinja_put_text(&w, part(t, at, at + n)));
        at += n;
    }
    ATOM_TRY(jinja_put_text(&w, part(t, at, t.n)));
    *out = jinja_written(&w);
    return ATOM_OK;
}

static atom_status append(jinja_heap *h, jinja_list *list, jinja_text t)
{
    jinja_value item;
    ATOM_TRY(jinja_from_text(h, t, &item));
    return jinja_append(h, list, item);
}

static void turn_round(jinja_list *list)
{
    for (size_t i = 0; i < list->n / 2; i++) {
        jinja_value other = list->items[i];
        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = other;
    }
}

static atom_status split_on(jinja_heap *h, jinja_text t, jinja_text on, int64_t limit,
                            bool from_right, jinja_list *list)
{
    size_t found;
    for (; limit; limit--) {
        ATOM_TRY(from_right ? jinja_find_last(h, t, on, &found) : jinja_find(h, t, on, 0, &found));
        if (found > t.n)
            break;
        ATOM_TRY(append(h, list, from_right ? part(t, found + on.n, t.n) : part(t, 0, found)));
        t = from_right ? part(t, 0, found) : part(t, found + on.n, t.n);
    }
    ATOM_TRY(append(h, list, t));
    if (from_right)
        turn_round(list);
    return ATOM_OK;
}

/* Bytes of the word that t begins with, or ends with. */
static size_t word_at_end(jinja_text t, bool right)
{
    size_t n = 0;
    while (n < t.n) {
        size_t from = right ? char_before(t, 0, t.n - n) : n;
        size_t one = right ? t.n - n - from : text_utf8_offset(t.at + n, t.n - n, 1);
        if (text_utf8_blank(t.at + from, one) > 0)
            break;
        n += one;
    }
    return n;
}

/* Words between blanks; after `limit` cuts the rest as it is. */
static atom_status split_blanks(jinja_heap *h, jinja_text t, int64_t limit, bool from_right,
                                jinja_list *list)
{
    for (;;) {
        ATOM_TRY(jinja_strip(h, t, NULL, !from_right, from_right, &t));
        if (t.n == 0)
            break;
        size_t n = limit-- == 0 ? t.n : word_at_end(t, from_right);
        ATOM_TRY(jinja_step(h, n / 4));
        ATOM_TRY(append(h, list, from_right ? part(t, t.n - n, t.n) : part(t, 0, n)));
        t = from_right ? part(t, 0, t.n - n) : part(t, n, t.n);
    }
    if (from_right)
        turn_round(list);
    return ATOM_OK;
}

atom_status jinja_split(jinja_heap *h, jinja_text t, const jinja_text *on, int64_t limit,
                        bool from_right, jinja_value *out)
{
    ATOM_TRY(jinja_new_list(h, JINJA_LIST, out));
    if (!on)
        return split_blanks(h, t, limit, from_right, out->list);
    return on->n ? split_on(h, t, *on, limit, from_right, out->list)
                 : jinja_fail(h, "split at an empty text");
}

/* Bytes of the line's end at `at`; 0: none. */
static size_t line_end(jinja_text t, size_t at)
{
    static const char *const wide[] = {"\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"};
    char c = t.at[at];
    if (c == '\r' && at + 1 < t.n && t.at[at + 1] == '\n')
        return 2;
    if ((c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e))
        return 1;
    for (size_t i = 0; i < 3; i++)
        if (t.n - at >= strlen(wide[i]) && memcmp(t.at + at, wide[i], strlen(wide[i])) == 0)
            return strlen(wide[i]);
    return 0;
}

atom_status jinja_splitlines(jinja_heap *h, jinja_text t, bool keep, jinja_value *out)
{
    size_t from = 0;
    ATOM_TRY(jinja_step(h, t.n / 4));
    ATOM_TRY(jinja_new_list(h, JINJA_LIST, out));
    for (size_t at = 0; at < t.n;) {
        size_t end = line_end(t, at);
        at += end ? 0 : 1;
        if (!end)
            continue;
        ATOM_TRY(append(h, out->list, part(t, from, at + (keep ? end : 0))));
        from = at += end;
    }
    return from < t.n ? append(h, out->list, part(t, from, t.n)) : ATOM_OK;
}

atom_status jinja_join(jinja_heap *h, jinja_text between, const jinja_list *items, jinja_text *out)
{
    jinja_writer w = {.h = h};
    for (size_t i = 0; i < items->n; i++) {
        ATOM_TRY(jinja_step(h, 1));
        if (i)
            ATOM_TRY(jinja_put_text(&w, between));
        ATOM_TRY(jinja_print(&w, items->items[i]));
    }
    *out = jinja_written(&w);
    return ATOM_OK;
}
