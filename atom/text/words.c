/*
 * Owns the table of words and their counts. One idea: a word's bytes are kept once, in one arena,
 * and the table holds only where they are, so that merging and growing copy no text. Refuses
 * nothing but text that is not UTF-8.
 */
#include "atom/text/bpe_train.h"

#include "atom/base/mem.h"
#include "atom/text/split.h"
#include "atom/text/utf8.h"
#include "atom/text/words_inner.h"

#include <string.h>

enum { SLOTS_MIN = 1 << 12 };

atom_status text_words_open(text_words **out)
{
    text_words *w = atom_alloc(1, sizeof *w);
    if (w)
        w->slots = atom_alloc(SLOTS_MIN, sizeof *w->slots);
    if (!w || !w->slots) {
        text_words_close(&w);
        return atom_fail_memory("a table of words", SLOTS_MIN * sizeof(text_word));
    }
    w->slots_n = SLOTS_MIN;
    *out = w;
    return ATOM_OK;
}

void text_words_close(text_words **words)
{
    text_words *w = *words;
    if (!w)
        return;
    text_splitter_close(&w->splitter);
    atom_free(w->slots);
    atom_free(w->arena);
    atom_free(w);
    *words = NULL;
}

static uint32_t hash_word(const char *word, uint32_t bytes)
{
    uint64_t hash = bytes, part;
    for (; bytes >= 8; bytes -= 8, word += 8) {
        memcpy(&part, word, 8);
        hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    part = 0;
    memcpy(&part, word, bytes);
    hash = (hash ^ part) * 0xff51afd7ed558ccdu;
    return (uint32_t)(hash >> 32 ^ hash);
}

static text_word *probe(const text_words *w, const char *word, uint32_t bytes, uint32_t hash)
{
    for (size_t i = hash;; i++) {
        text_word *slot = &w->slots[i & (w->slots_n - 1)];
        if (slot->bytes == 0 || (slot->hash == hash && slot->bytes == bytes &&
                                 memcmp(w->arena + slot->start, word, bytes) == 0))
            return slot;
    }
}

static atom_status grow(text_words *w)
{
    size_t larger = w->slots_n * 2;
    text_word *old = w->slots, *slots = atom_alloc(larger, sizeof *slots);
    if (!slots)
        return atom_fail_memory("a table of words", (uint64_t)larger * sizeof *slots);
    for (size_t i = 0; i < w->slots_n; i++) {
        if (old[i].bytes == 0)
            continue;
        size_t at = old[i].hash & (larger - 1);
        while (slots[at].bytes)
            at = (at + 1) & (larger - 1);
        slots[at] = old[i];
    }
    atom_free(old);
    w->slots = slots;
    w->slots_n = larger;
    return ATOM_OK;
}

static atom_status keep_bytes(text_words *w, const char *word, uint32_t bytes)
{
    if (w->arena_capacity - w->arena_n < bytes) {
        size_t capacity = w->arena_capacity * 2 + bytes + 4096;
        char *arena = atom_realloc(w->arena, capacity, 1);
        if (!arena)
            return atom_fail_memory("words", capacity);
        w->arena = arena;
        w->arena_capacity = capacity;
    }
    memcpy(w->arena + w->arena_n, word, bytes);
    w->arena_n += bytes;
    return ATOM_OK;
}

/* The slot of a word, made with count 0 if it was not there. Valid until the next call. */
static atom_status take_slot(text_words *w, const char *word, uint32_t bytes, text_word **out)
{
    uint32_t hash = hash_word(word, bytes);
    text_word *slot = probe(w, word, bytes, hash);
    if (slot->bytes == 0) {
        if (w->used * 2 >= w->slots_n) {
            ATOM_TRY(grow(w));
            slot = probe(w, word, bytes, hash);
        }
        uint64_t start = w->arena_n;
        ATOM_TRY(keep_bytes(w, word, bytes));
        *slot = (text_word){.start = start, .bytes = bytes, .hash = hash};
        w->used++;
    }
    *out = slot;
    return ATOM_OK;
}

/* A long word is counted in parts of whole characters. */
static atom_status count_word(text_words *w, const char *word, size_t bytes)
{
    while (bytes) {
        size_t part = bytes;
        if (part > TEXT_WORD_BYTES_MAX) {
            part = TEXT_WORD_BYTES_MAX;
            while (((uint8_t)word[part] & 0xc0) == 0x80)
                part--;
        }
        text_word *slot;
        ATOM_TRY(take_slot(w, word, (uint32_t)part, &slot));
        slot->count++;
        word += part;
        bytes -= part;
    }
    return ATOM_OK;
}

atom_status text_words_add(text_words *w, const char *text, size_t bytes, size_t *bad_byte)
{
    size_t good = text_utf8_check(text, bytes), start, end;
    if (good < bytes) {
        if (bad_byte)
            *bad_byte = good;
        return atom_fail(ATOM_E_FORMAT, "not UTF-8 at byte %zu (0x%02x); convert it to UTF-8", good,
                         (uint8_t)text[good]);
    }
    if (!w->splitter)
        ATOM_TRY(text_splitter_open(&(text_stages){{text_pattern_gpt2()}, 1}, &w->splitter));
    text_splitter_begin(w->splitter, text, bytes);
    for (;;) {
        ATOM_TRY(text_splitter_next(w->splitter, &start, &end));
        if (start == end)
            return ATOM_OK;
        ATOM_TRY(count_word(w, text + start, end - start));
    }
    return ATOM_OK;
}

atom_status text_words_merge(text_words *w, const text_words *from)
{
    for (size_t i = 0; i < from->slots_n; i++) {
        const text_word *word = &from->slots[i];
        text_word *slot;
        if (word->bytes == 0)
            continue;
        ATOM_TRY(take_slot(w, from->arena + word->start, word->bytes, &slot));
        slot->count += word->count;
    }
    return ATOM_OK;
}
