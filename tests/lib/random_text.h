/*
 * Random UTF-8 for the tests of atom/text: characters of every plane, ASCII, controls and runs. A
 * given seed gives the same text everywhere.
 */
#ifndef TESTS_RANDOM_TEXT_H
#define TESTS_RANDOM_TEXT_H

#include "atom/base/rng.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct random_text {
    uint64_t seed, at;
} random_text;

static inline uint32_t random_below(random_text *r, uint32_t n)
{
    atom_rng_key key = {.seed = r->seed};
    return (uint32_t)(((uint64_t)atom_rng_u32(key, r->at++) * n) >> 32);
}

static inline size_t put_char(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

static inline uint32_t random_char(random_text *r)
{
    static const uint32_t odd[] = {
        0,      '\t',    '\n',   '\r',    ' ',    ' ',    0x85,  0xa0,   0x180e, 0x200b,  0x2028,
        0xfeff, 0x1f468, 0x200d, 0x1f600, 0xfffd, 0xffff, 0x301, 0xd7ff, 0xe000, 0x10000, 0x10ffff};
    switch (random_below(r, 6)) {
    case 0:
        return odd[random_below(r, sizeof odd / sizeof *odd)];
    case 1: {
        uint32_t c = random_below(r, 0x110000);
        return c >= 0xd800 && c < 0xe000 ? 'x' : c;
    }
    case 2:
        return (uint32_t)(uint8_t) "etaoin shrdlu'.\n1!"[random_below(r, 18)];
    case 3:
        return random_below(r, 128);
    default:
        return 'a' + random_below(r, 4);
    }
}

/* At most `bytes` bytes into out (room for bytes + 4); returns how many. */
static inline size_t random_utf8(random_text *r, char *out, size_t bytes)
{
    size_t n = 0;
    while (n < bytes) {
        uint32_t c = random_char(r), times = random_below(r, 12) ? 1 : 1 + random_below(r, 40);
        for (uint32_t i = 0; i < times && n < bytes; i++) {
            size_t more = put_char(c, out + n);
            if (n + more > bytes)
                return n;
            n += more;
        }
    }
    return n;
}

/* English-like words: few letters, spaces, some capitals and newlines. */
static inline size_t random_words(random_text *r, char *out, size_t bytes)
{
    static const char *const words[] = {"the",   "of",   "and",  "lord", "unto", "shall",
                                        "king",  "said", "they", "them", "he",   "be",
                                        "house", "day",  "came", "sons"};
    size_t n = 0;
    while (n + 10 < bytes) {
        const char *word = words[random_below(r, random_below(r, 16) + 1)];
        size_t word_n = strlen(word);
        memcpy(out + n, word, word_n);
        n += word_n;
        uint32_t end = random_below(r, 12);
        if (end == 0)
            out[n++] = ',';
        out[n++] = end == 1 ? '\n' : ' ';
    }
    return n;
}

#endif
