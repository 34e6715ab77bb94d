/*
 * Owns normalising text before it is split. One idea: nearly all text is NFC already; only the
 * stretch between two ASCII characters around one that might change goes through utf8proc, the rest
 * is copied. Refuses nothing; the text is valid UTF-8.
 */
#include "atom/text/normalize.h"

#include "atom/base/mem.h"
#include "atom/text/utf8.h"

#include <string.h>
#include <utf8proc.h>

void text_normal_fini(text_normal *n)
{
    atom_free(n->text);
    atom_free(n->points);
    *n = (text_normal){0};
}

atom_status text_normal_append(text_normal *n, const char *text, size_t bytes)
{
    if (n->capacity - n->bytes < bytes) {
        size_t capacity = n->capacity + n->capacity / 2 + bytes + 64;
        char *grown = atom_realloc(n->text, capacity, 1);
        if (!grown)
            return atom_fail_memory("normalised text", capacity);
        n->text = grown;
        n->capacity = capacity;
    }
    if (bytes)
        memcpy(n->text + n->bytes, text, bytes);
    n->bytes += bytes;
    return ATOM_OK;
}

/* One character of valid UTF-8 of more than one byte. */
static uint32_t decode(const char *text, size_t *bytes)
{
    const uint8_t *s = (const uint8_t *)text;
    if (s[0] < 0xe0) {
        *bytes = 2;
        return (s[0] & 0x1fu) << 6 | (s[1] & 0x3fu);
    }
    if (s[0] < 0xf0) {
        *bytes = 3;
        return (s[0] & 0xfu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
    }
    *bytes = 4;
    return (s[0] & 7u) << 18 | (s[1] & 0x3fu) << 12 | (s[2] & 0x3fu) << 6 | (s[3] & 0x3fu);
}

/* Characters that no normalisation changes unless a character outside of this list is near: no
 * combining class, and NFC_Quick_Check=Yes. */
static bool is_stable(uint32_t c)
{
    return c < 0x300 || (c >= 0x2010 && c <= 0x2027) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x4e00 && c <= 0x9fff) || (c >= 0xac00 && c <= 0xd7a3) ||
           (c >= 0x400 && c <= 0x482) || (c >= 0x3001 && c <= 0x3020) ||
           (c >= 0x3041 && c <= 0x3096) || (c >= 0x30a1 && c <= 0x30fa) ||
           (c >= 0xff01 && c <= 0xff60) || (c >= 0x1f300 && c <= 0x1faff);
}

/* The first character from `at` that may change, or `bytes`. */
static size_t find_unstable(text_form form, const char *text, size_t bytes, size_t at)
{
    while (at < bytes) {
        size_t n = 1;
        if ((uint8_t)text[at] >= 0x80 && (form != TEXT_NFC || !is_stable(decode(text + at, &n))))
            return at;
        at += n;
    }
    return bytes;
}

/* Appends the normal form of a stretch. */
static atom_status append_form(text_normal *n, text_form form, const char *text, size_t bytes)
{
    const utf8proc_option_t options =
        UTF8PROC_STABLE |
        (form == TEXT_NFC || form == TEXT_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
        (form == TEXT_NFKC || form == TEXT_NFKD ? UTF8PROC_COMPAT : 0);
    for (size_t want = bytes + 16;;) {
        if (want > n->points_capacity) {
            int32_t *grown = atom_realloc(n->points, want, sizeof *grown);
            if (!grown)
                return atom_fail_memory("normalised text", want * sizeof *grown);
            n->points = grown;
            n->points_capacity = want;
        }
        /* One is left for the NUL that reencode adds. */
        utf8proc_ssize_t points =
            utf8proc_decompose((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes, n->points,
                               (utf8proc_ssize_t)(n->points_capacity - 1), options);
        if (points < 0)
            return atom_fail(ATOM_E_RUNTIME, "utf8proc: %s", utf8proc_errmsg(points));
        if ((size_t)points >= n->points_capacity) {
            want = (size_t)points + 16;
            continue;
        }
        utf8proc_ssize_t made = utf8proc_reencode(n->points, points, options);
        if (made < 0)
            return atom_fail(ATOM_E_RUNTIME, "utf8proc: %s", utf8proc_errmsg(made));
        return text_normal_append(n, (const char *)n->points, (size_t)made);
    }
}

static atom_status form_all(text_normal *n, text_form form, const char *text, size_t bytes,
                            bool *changed)
{
    size_t done = 0, at = find_unstable(form, text, bytes, 0);
    *changed = at < bytes;
    n->bytes = 0;
    while (at < bytes) {
        size_t end = at;
        while (at > done && (uint8_t)text[at] >= 0x80)
            at--;
        while (end < bytes && (uint8_t)text[end] >= 0x80)
            end++;
        ATOM_TRY(text_normal_append(n, text + done, at - done));
        ATOM_TRY(append_form(n, form, text + at, end - at));
        done = end;
        at = find_unstable(form, text, bytes, end);
    }
    if (*changed || form != TEXT_NFC)
        ATOM_TRY(text_normal_append(n, text + done, bytes - done));
    return ATOM_OK;
}

atom_status text_normal_nfc(text_normal *n, const char *text, size_t bytes, bool *changed)
{
    return form_all(n, TEXT_NFC, text, bytes, changed);
}

atom_status text_normal_form(text_normal *n, text_form form, const char *text, size_t bytes)
{
    bool changed;
    ATOM_TRY(form_all(n, form, text, bytes, &changed));
    return changed || form != TEXT_NFC ? ATOM_OK : text_normal_append(n, text, bytes);
}

/* Bytes of the character that text starts with. */
static size_t character(const char *text, uint32_t *c)
{
    size_t n = 1;
    *c = (uint8_t)*text < 0x80 ? (uint8_t)*text : decode(text, &n);
    return n;
}

bool text_is_mark(const char *text, size_t bytes)
{
    uint32_t c;
    if (bytes == 0)
        return false;
    character(text, &c);
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
           category == UTF8PROC_CATEGORY_ME;
}

atom_status text_normal_no_marks(text_normal *n, const char *text, size_t bytes)
{
    uint32_t c;
    n->bytes = 0;
    for (size_t at = 0, each; at < bytes; at += each) {
        each = character(text + at, &c);
        if (!text_is_mark(text + at, bytes - at))
            ATOM_TRY(text_normal_append(n, text + at, each));
    }
    return ATOM_OK;
}

atom_status text_normal_lower(text_normal *n, const char *text, size_t bytes)
{
    static const char dotted[] = "i\xcc\x87"; /* of U+0130, the only one that becomes two */
    uint32_t c;
    n->bytes = 0;
    for (size_t at = 0, each; at < bytes; at += each) {
        char lower[4];
        each = character(text + at, &c);
        size_t made = (size_t)utf8proc_encode_char(utf8proc_tolower((utf8proc_int32_t)c),
                                                   (utf8proc_uint8_t *)lower);
        if (c == 0x130)
            ATOM_TRY(text_normal_append(n, dotted, sizeof dotted - 1));
        else
            ATOM_TRY(text_normal_append(n, lower, made));
    }
    return ATOM_OK;
}

atom_status text_normal_replace(text_normal *n, const char *text, size_t bytes, const char *from,
                                const char *as)
{
    size_t each = strlen(from), end;
    n->bytes = 0;
    for (size_t at = 0; at < bytes; at = end + each) {
        const char *found = memmem(text + at, bytes - at, from, each);
        end = found ? (size_t)(found - text) : bytes;
        ATOM_TRY(text_normal_append(n, text + at, end - at));
        if (!found)
            break;
        ATOM_TRY(text_normal_append(n, as, strlen(as)));
    }
    return ATOM_OK;
}

atom_status text_normal_runs(text_normal *n, const char *text, size_t bytes, const char *as)
{
    n->bytes = 0;
    for (size_t at = 0, end; at < bytes; at = end) {
        bool space = text[at] == ' ';
        for (end = at + 1; end < bytes && (text[end] == ' ') == space;)
            end++;
        bool run = space && end - at > 1;
        ATOM_TRY(text_normal_append(n, run ? as : text + at, run ? strlen(as) : end - at));
    }
    return ATOM_OK;
}

size_t text_space_at(const char *text, size_t bytes)
{
    size_t n = 1, whole = 1;
    if (bytes == 0 || ((uint8_t)*text & 0xc0) == 0x80)
        return 0;
    if ((uint8_t)*text >= 0xc0)
        whole = (uint8_t)*text < 0xe0 ? 2 : (uint8_t)*text < 0xf0 ? 3 : 4;
    if (whole > bytes)
        return 0;
    uint32_t c = (uint8_t)*text < 0x80 ? (uint8_t)*text : decode(text, &n);
    bool space = (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
                 (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
                 c == 0x205f || c == 0x3000;
    return space ? n : 0;
}

void text_strip(const char **text, size_t *bytes, bool left, bool right)
{
    for (size_t n; left && (n = text_space_at(*text, *bytes)); *bytes -= n)
        *text += n;
    while (right && *bytes) {
        size_t at = *bytes - 1;
        while (at > 0 && ((uint8_t)(*text)[at] & 0xc0) == 0x80)
            at--;
        if (!text_space_at(*text + at, *bytes - at))
            break;
        *bytes = at;
    }
}

void text_widen(const char *text, size_t bytes, size_t floor, bool left, bool right, size_t *from,
                size_t *to)
{
    const char *before = text + floor, *behind = text + *to;
    size_t before_n = *from - floor, behind_n = bytes - *to;
    text_strip(&before, &before_n, false, left);
    text_strip(&behind, &behind_n, right, false);
    *from = floor + before_n;
    *to = bytes - behind_n;
}

atom_status text_normal_spaces(text_normal *n, const char *text, size_t bytes, bool prepend,
                               bool missing)
{
    static const char metaspace[3] = "\xe2\x96\x81";
    n->bytes = 0;
    if (prepend && missing && bytes)
        prepend = text[0] != ' ' && (bytes < 3 || memcmp(text, metaspace, 3) != 0);
    if (prepend && bytes)
        ATOM_TRY(text_normal_append(n, " ", 1));
    for (size_t at = 0; at < bytes;) {
        const char *found = memmem(text + at, bytes - at, metaspace, 3);
        size_t end = found ? (size_t)(found - text) : bytes;
        ATOM_TRY(text_normal_append(n, text + at, end - at));
        if (found)
            ATOM_TRY(text_normal_append(n, " ", 1));
        at = found ? end + 3 : bytes;
    }
    return ATOM_OK;
}
