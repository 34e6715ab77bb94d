/*
 * Owns what is and is not UTF-8. One idea: step() looks at one character and says how long it is
 * and whether it is whole, wrong or cut off by the end; everything else is a loop over it, with a
 * fast lane for ASCII. Refuses surrogates, overlong forms and code points above U+10FFFF.
 */
#include "atom/text/utf8.h"

#include "atom/base/mem.h"

#include <stdint.h>
#include <string.h>

typedef enum step_kind { STEP_GOOD, STEP_WRONG, STEP_CUT } step_kind;

/* How many bytes a character that starts with `lead` has, and the range of its second byte. */
static size_t shape(uint8_t lead, uint8_t *low, uint8_t *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2)
        return 0;
    if (lead < 0xe0)
        return 2;
    if (lead < 0xf0) {
        if (lead == 0xe0)
            *low = 0xa0;
        if (lead == 0xed)
            *high = 0x9f;
        return 3;
    }
    if (lead < 0xf5) {
        if (lead == 0xf0)
            *low = 0x90;
        if (lead == 0xf4)
            *high = 0x8f;
        return 4;
    }
    return 0;
}

/* left > 0. *n: bytes of the character, or of the longest prefix that could have become
 * one (>= 1). */
static step_kind step(const uint8_t *s, size_t left, size_t *n)
{
    uint8_t low, high;
    size_t want = shape(s[0], &low, &high);
    *n = 1;
    if (want == 0)
        return STEP_WRONG;
    for (size_t i = 1; i < want; i++) {
        if (i == left)
            return STEP_CUT;
        if (s[i] < low || s[i] > high)
            return STEP_WRONG;
        low = 0x80;
        high = 0xbf;
        *n = i + 1;
    }
    return STEP_GOOD;
}

static size_t skip_ascii(const uint8_t *s, size_t at, size_t bytes)
{
    for (; at + 8 <= bytes; at += 8) {
        uint64_t word;
        memcpy(&word, s + at, 8);
        if (word & 0x8080808080808080u)
            break;
    }
    while (at < bytes && s[at] < 0x80)
        at++;
    return at;
}

size_t text_utf8_check_part(const char *text, size_t bytes, size_t *cut)
{
    const uint8_t *s = (const uint8_t *)text;
    *cut = bytes;
    for (size_t at = 0, n;; at += n) {
        at = skip_ascii(s, at, bytes);
        if (at == bytes)
            return bytes;
        switch (step(s + at, bytes - at, &n)) {
        case STEP_GOOD:
            break;
        case STEP_CUT:
            *cut = at;
            return bytes;
        case STEP_WRONG:
            return at;
        }
    }
}

size_t text_utf8_check(const char *text, size_t bytes)
{
    size_t cut;
    size_t wrong = text_utf8_check_part(text, bytes, &cut);
    return cut < wrong ? cut : wrong;
}

size_t text_utf8_characters(const char *text, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n += ((uint8_t)text[i] & 0xc0) != 0x80;
    return n;
}

uint32_t text_utf8_first(const char *text, size_t bytes)
{
    uint32_t c = bytes ? (uint8_t)*text : 0;
    if (c >= 0xc0)
        c &= c >= 0xf0 ? 0x07 : c >= 0xe0 ? 0x0f : 0x1f;
    for (size_t i = 1; i < bytes && ((uint8_t)text[i] & 0xc0) == 0x80; i++)
        c = c << 6 | ((uint8_t)text[i] & 0x3f);
    return c;
}

size_t text_utf8_offset(const char *text, size_t bytes, size_t chars)
{
    size_t at = 0;
    for (; at < bytes; at++)
        if (((uint8_t)text[at] & 0xc0) != 0x80 && chars-- == 0)
            break;
    return at;
}

atom_status text_utf8_repair(const char *text, size_t bytes, char **out, size_t *out_bytes)
{
    const uint8_t *s = (const uint8_t *)text;
    char *copy = bytes > SIZE_MAX / 4 ? NULL : atom_alloc(3 * bytes + 1, 1);
    size_t written = 0;
    if (!copy)
        return atom_fail_memory("repaired text", (uint64_t)bytes * 3);
    for (size_t at = 0, n; at < bytes; at += n) {
        if (step(s + at, bytes - at, &n) == STEP_GOOD) {
            memcpy(copy + written, text + at, n);
            written += n;
        } else {
            memcpy(copy + written, "\xef\xbf\xbd", 3);
            written += 3;
        }
    }
    *out = copy;
    *out_bytes = written;
    return ATOM_OK;
}

size_t text_utf8_blank(const char *at, size_t left)
{
    static const char *const wide[] = {"\xc2\x85", "\xc2\xa0", "\u1680", "\u2028",
                                       "\u2029",   "\u202f",   "\u205f", "\u3000"};
    if (left && (*at == ' ' || (*at >= '\t' && *at <= '\r') || (*at >= 0x1c && *at <= 0x1f)))
        return 1;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        size_t n = strlen(wide[i]);
        if (n <= left && memcmp(at, wide[i], n) == 0)
            return n;
    }
    /* U+2000 to U+200A */
    return left >= 3 && memcmp(at, "\xe2\x80", 2) == 0 && (uint8_t)at[2] >= 0x80 &&
                   (uint8_t)at[2] <= 0x8a
               ? 3
               : 0;
}

void text_utf8_trim(const char **text, size_t *bytes, bool left, bool right)
{
    const char *at = *text, *end = at + *bytes;
    for (size_t n; left && (n = text_utf8_blank(at, (size_t)(end - at)));)
        at += n;
    for (bool more = right; more && end > at;) {
        const char *last = end - 1;
        while (last > at && ((uint8_t)*last & 0xc0) == 0x80)
            last--;
        more = text_utf8_blank(last, (size_t)(end - last)) > 0;
        end = more ? last : end;
    }
    *text = at;
    *bytes = (size_t)(end - at);
}
