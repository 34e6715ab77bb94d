/*
 * Owns SentencePiece's precompiled map of characters. One idea: the trie comes from a file that
 * nobody trusts, so every step in it is checked against its end. Refuses maps whose texts are not
 * UTF-8.
 */
#include "atom/text/charsmap.h"

#include "atom/base/bytes.h"
#include "atom/base/mem.h"
#include "atom/text/utf8.h"

#include <string.h>
#include <utf8proc.h>

/* No map of SentencePiece's has a longer text than 33 bytes; so a text cannot grow without bounds. */
enum { GRAPHEME_BYTES_MAX = 5, MADE_BYTES_MAX = 64 };

struct text_charsmap {
    uint32_t *units;
    size_t units_n;
    char *texts; /* NUL between them */
    size_t texts_bytes;
};

static int digit(char c)
{
    static const char all[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(all, c) : NULL;
    return at ? (int)(at - all) : -1;
}

/* Bytes of base64 in place of it; false: it is none. */
static bool decode(char *text, size_t *bytes)
{
    size_t n = strlen(text), out = 0, pad = 0;
    if (n % 4)
        return false;
    while (pad < 2 && pad < n && text[n - 1 - pad] == '=')
        pad++;
    n -= pad;
    uint32_t bits = 0;
    for (size_t i = 0; i < n; i++) {
        int d = digit(text[i]);
        if (d < 0)
            return false;
        bits = bits << 6 | (uint32_t)d;
        if (i % 4)
            text[out++] = (char)(bits >> (6 - 2 * (i % 4)));
    }
    *bytes = out;
    return true;
}

static atom_status take(text_charsmap *m, const char *data, size_t bytes, const char *name)
{
    atom_reader r = atom_reader_make(data, bytes);
    size_t trie = atom_read_u32(&r);
    if (!atom_reader_ok(&r) || trie % 4 || trie == 0 || trie > atom_reader_left(&r))
        return atom_fail(ATOM_E_FORMAT,
                         "%s: \"normalizer.precompiled_charsmap\" is cut off or damaged; copy or "
                         "download the file again",
                         name);
    m->units_n = trie / 4;
    m->texts_bytes = atom_reader_left(&r) - trie;
    m->units = atom_alloc(m->units_n, sizeof *m->units);
    m->texts = atom_alloc(m->texts_bytes + 1, 1);
    if (!m->units || !m->texts)
        return atom_fail_memory("a map of characters", bytes);
    for (size_t i = 0; i < m->units_n; i++)
        m->units[i] = atom_read_u32(&r);
    atom_read_bytes(&r, m->texts, m->texts_bytes);
    for (size_t at = 0, n = 0; at < m->texts_bytes; at++)
        if ((n = m->texts[at] ? n + 1 : 0) > MADE_BYTES_MAX)
            return atom_fail(ATOM_E_UNSUPPORTED,
                             "%s: \"normalizer.precompiled_charsmap\" makes a text of more than %d "
                             "bytes of one character",
                             name, MADE_BYTES_MAX);
    if (text_utf8_check(m->texts, m->texts_bytes) != m->texts_bytes)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: \"normalizer.precompiled_charsmap\" has texts that are not UTF-8",
                         name);
    return ATOM_OK;
}

atom_status text_charsmap_read(const char *base64, const char *name, text_charsmap **out)
{
    size_t bytes = strlen(base64);
    char *data = atom_strdup(base64);
    text_charsmap *m = atom_alloc(1, sizeof *m);
    atom_status st = ATOM_OK;
    if (!data || !m)
        ATOM_TRY_CLEAN(atom_fail_memory("a map of characters", bytes));
    if (!decode(data, &bytes))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT,
                                 "%s: \"normalizer.precompiled_charsmap\" is not base64", name));
    ATOM_TRY_CLEAN(take(m, data, bytes, name));
    *out = m;
    m = NULL;
cleanup:
    atom_free(data);
    text_charsmap_close(&m);
    return st;
}

void text_charsmap_close(text_charsmap **map)
{
    text_charsmap *m = *map;
    if (!m)
        return;
    atom_free(m->units);
    atom_free(m->texts);
    atom_free(m);
    *map = NULL;
}

static uint32_t offset(uint32_t unit)
{
    return (unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* What the shortest beginning of text that is in the trie becomes; NULL: none is. */
static const char *find(const text_charsmap *m, const char *text, size_t bytes)
{
    uint32_t at = offset(m->units[0]);
    for (size_t i = 0; i < bytes && text[i]; i++) {
        at ^= (uint8_t)text[i];
        uint32_t unit = at < m->units_n ? m->units[at] : 1u << 31;
        if ((unit & (1u << 31 | 0xff)) != (uint8_t)text[i])
            return NULL;
        at ^= offset(unit);
        if (!(unit >> 8 & 1))
            continue;
        uint32_t place = at < m->units_n ? m->units[at] & ~(1u << 31) : UINT32_MAX;
        bool inside = place <= m->texts_bytes &&
                      (place == m->texts_bytes || ((uint8_t)m->texts[place] & 0xc0) != 0x80);
        return inside ? m->texts + place : NULL;
    }
    return NULL;
}

/* Bytes of the character, and of the grapheme, that text starts with. */
static size_t grapheme_bytes(const char *text, size_t bytes, size_t *character)
{
    utf8proc_int32_t before, c, state = 0;
    const utf8proc_uint8_t *s = (const utf8proc_uint8_t *)text;
    size_t n = (size_t)utf8proc_iterate(s, (utf8proc_ssize_t)bytes, &before);
    *character = n;
    while (n < bytes) {
        utf8proc_ssize_t more = utf8proc_iterate(s + n, (utf8proc_ssize_t)(bytes - n), &c);
        if (utf8proc_grapheme_break_stateful(before, c, &state))
            break;
        before = c;
        n += (size_t)more;
    }
    return n;
}

atom_status text_charsmap_apply(const text_charsmap *m, text_normal *n, const char *text,
                                size_t bytes)
{
    n->bytes = 0;
    for (size_t at = 0, end; at < bytes; at = end) {
        size_t one, whole = grapheme_bytes(text + at, bytes - at, &one);
        const char *made = NULL;
        end = at + whole;
        if (whole <= GRAPHEME_BYTES_MAX)
            made = find(m, text + at, whole);
        if (made) {
            ATOM_TRY(text_normal_append(n, made, strlen(made)));
            continue;
        }
        for (; at < end; at += one) {
            one = 1;
            while (at + one < end && ((uint8_t)text[at + one] & 0xc0) == 0x80)
                one++;
            made = find(m, text + at, one);
            ATOM_TRY(text_normal_append(n, made ? made : text + at, made ? strlen(made) : one));
        }
    }
    return ATOM_OK;
}
