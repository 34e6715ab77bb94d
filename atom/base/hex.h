/*
 * Bytes as hexadecimal digits, both ways: two lowercase digits per byte, in order. Not for secrets:
 * the time it takes depends on the digits.
 */
#ifndef ATOM_BASE_HEX_H
#define ATOM_BASE_HEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ATOM_HEX_DIGITS "0123456789abcdef"

/* text: 2 n digits and the end; is given back. */
static inline char *atom_hex(const uint8_t *bytes, size_t n, char *text)
{
    for (size_t i = 0; i < n; i++) {
        text[2 * i] = ATOM_HEX_DIGITS[bytes[i] >> 4];
        text[2 * i + 1] = ATOM_HEX_DIGITS[bytes[i] & 15];
    }
    text[2 * n] = 0;
    return text;
}

/* False, and nothing is written, unless text is exactly 2 n lowercase digits. It may be NULL. */
static inline bool atom_unhex(const char *text, uint8_t *bytes, size_t n)
{
    if (!text || strlen(text) != 2 * n || strspn(text, ATOM_HEX_DIGITS) != 2 * n)
        return false;
    for (size_t i = 0; i < 2 * n; i++) {
        unsigned nibble = (unsigned)(strchr(ATOM_HEX_DIGITS, text[i]) - ATOM_HEX_DIGITS);
        bytes[i / 2] = (uint8_t)(i % 2 ? bytes[i / 2] | nibble : nibble << 4);
    }
    return true;
}

#endif
