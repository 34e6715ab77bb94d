/*
 * BPE as its definition says it, in quadratic time and fixed arrays: the reference for atom/text's
 * trainer and encoder on small texts (Sennrich et al. 2016, algorithm 1).
 */
#ifndef TESTS_NAIVE_BPE_H
#define TESTS_NAIVE_BPE_H

#include "atom/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

enum { NAIVE_WORDS_MAX = 4096, NAIVE_SYMBOLS_MAX = 64, NAIVE_TOKENS_MAX = 1024 };

typedef struct naive_word {
    uint32_t ids[NAIVE_SYMBOLS_MAX];
    uint32_t n;
} naive_word;

typedef struct naive_bpe {
    naive_word words[NAIVE_WORDS_MAX]; /* occurrences, not counted: a word may be there twice */
    uint32_t words_n;
    char pieces[NAIVE_TOKENS_MAX][NAIVE_SYMBOLS_MAX];
    uint32_t piece_bytes[NAIVE_TOKENS_MAX];
    uint32_t tokens_n;
    text_merge merges[NAIVE_TOKENS_MAX];
    uint32_t merges_n;
} naive_bpe;

static inline naive_bpe *naive_open(void)
{
    naive_bpe *b = calloc(1, sizeof *b);
    for (uint32_t i = 0; b && i < 256; i++) {
        b->pieces[i][0] = (char)text_id_byte(i);
        b->piece_bytes[i] = 1;
    }
    if (b)
        b->tokens_n = 256;
    return b;
}

static inline void naive_word_set(naive_word *w, const char *text, size_t bytes)
{
    w->n = (uint32_t)bytes;
    for (size_t i = 0; i < bytes; i++)
        w->ids[i] = text_byte_id((uint8_t)text[i]);
}

static inline void naive_apply(naive_word *w, text_merge m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        if (i + 1 < w->n && w->ids[i] == m.a && w->ids[i + 1] == m.b) {
            w->ids[n++] = m.made;
            i++;
        } else {
            w->ids[n++] = w->ids[i];
        }
    }
    w->n = n;
}

/* The most frequent pair, ties to the smallest; 0 when there is none. */
static inline uint32_t naive_best(const naive_bpe *b, text_merge *best)
{
    static uint32_t counts[NAIVE_TOKENS_MAX][NAIVE_TOKENS_MAX];
    uint32_t most = 0;
    memset(counts, 0, sizeof counts);
    for (uint32_t w = 0; w < b->words_n; w++)
        for (uint32_t i = 0; i + 1 < b->words[w].n; i++)
            counts[b->words[w].ids[i]][b->words[w].ids[i + 1]]++;
    for (uint32_t x = 0; x < b->tokens_n; x++)
        for (uint32_t y = 0; y < b->tokens_n; y++)
            if (counts[x][y] > most) {
                most = counts[x][y];
                best->a = x;
                best->b = y;
            }
    return most;
}

static inline uint32_t naive_token(naive_bpe *b, uint32_t x, uint32_t y)
{
    char piece[2 * NAIVE_SYMBOLS_MAX];
    uint32_t n = b->piece_bytes[x] + b->piece_bytes[y];
    memcpy(piece, b->pieces[x], b->piece_bytes[x]);
    memcpy(piece + b->piece_bytes[x], b->pieces[y], b->piece_bytes[y]);
    for (uint32_t i = 0; i < b->tokens_n; i++)
        if (b->piece_bytes[i] == n && memcmp(b->pieces[i], piece, n) == 0)
            return i;
    memcpy(b->pieces[b->tokens_n], piece, n);
    b->piece_bytes[b->tokens_n] = n;
    return b->tokens_n++;
}

/* Until there are `vocab` - 1 tokens (end-of-text is not one of them) or no pair is left. */
static inline void naive_train(naive_bpe *b, uint32_t vocab)
{
    text_merge m;
    while (b->tokens_n < vocab - 1 && naive_best(b, &m)) {
        m.made = naive_token(b, m.a, m.b);
        b->merges[b->merges_n++] = m;
        for (uint32_t w = 0; w < b->words_n; w++)
            naive_apply(&b->words[w], m);
    }
}

/* One piece: the lowest rank first, leftmost first, one merge at a time. */
static inline void naive_encode(const naive_bpe *b, naive_word *w)
{
    for (;;) {
        uint32_t best = UINT32_MAX, at = 0;
        for (uint32_t i = 0; i + 1 < w->n; i++)
            for (uint32_t m = 0; m < b->merges_n && m < best; m++)
                if (b->merges[m].a == w->ids[i] && b->merges[m].b == w->ids[i + 1]) {
                    best = m;
                    at = i;
                }
        if (best == UINT32_MAX)
            return;
        w->ids[at] = b->merges[best].made;
        memmove(&w->ids[at + 1], &w->ids[at + 2], (w->n - at - 2) * sizeof *w->ids);
        w->n--;
    }
}

#endif
