/*
 * Owns the search for merges. One idea: pair counts are corrected only where a merge changes a
 * word, and each pair remembers the words it was seen in; a heap holds, for every pair that occurs,
 * at least one entry with a count that is not too small, and entries that turn out too large are
 * put back corrected. A merge whose token exists already (it was made from other parts) shares that
 * token's id.
 */
#include "atom/text/bpe_train.h"

#include "atom/base/mem.h"
#include "atom/text/words_inner.h"

#include <string.h>

typedef struct pair_info {
    uint64_t pair; /* a << 32 | b */
    int64_t count;
    uint32_t *words; /* where it was seen; may name a word that has lost it */
    uint32_t words_n, words_capacity;
    bool touched; /* grew in the merge under way: is in trainer.touched */
} pair_info;

typedef struct heap_entry {
    int64_t count;
    uint64_t pair;
    uint32_t index; /* in trainer.pairs */
} heap_entry;

typedef struct train_word {
    uint64_t start; /* in trainer.symbols */
    uint32_t n;
    int64_t count;
} train_word;

typedef struct trainer {
    train_word *words;
    uint32_t words_n;
    uint32_t *symbols;
    pair_info *pairs;
    size_t pairs_n, pairs_capacity;
    uint32_t *slots; /* [slots_n]: 1 + index in pairs, by hash of the pair; 0: free */
    size_t slots_n;
    heap_entry *heap;
    size_t heap_n, heap_capacity;
    uint32_t *touched;
    size_t touched_n, touched_capacity;
    text_merge *merges;
    size_t merges_n, merges_capacity;
} trainer;

/* ---- pairs ---- */

static uint32_t *pair_slot(const trainer *t, uint64_t pair)
{
    size_t i = (size_t)((pair * 0x9e3779b97f4a7c15u) >> 20);
    for (;; i++) {
        uint32_t *slot = &t->slots[i & (t->slots_n - 1)];
        if (*slot == 0 || t->pairs[*slot - 1].pair == pair)
            return slot;
    }
}

static atom_status slots_grow(trainer *t)
{
    size_t larger = t->slots_n ? t->slots_n * 2 : 1 << 14;
    uint32_t *slots = atom_alloc(larger, sizeof *slots);
    if (!slots)
        return atom_fail_memory("a table of pairs", larger * sizeof *slots);
    atom_free(t->slots);
    t->slots = slots;
    t->slots_n = larger;
    for (uint32_t i = 0; i < t->pairs_n; i++)
        *pair_slot(t, t->pairs[i].pair) = i + 1;
    return ATOM_OK;
}

/* Adds `count` occurrences of (a, b) in word `word`; a negative count takes away. */
static atom_status pair_add(trainer *t, uint32_t a, uint32_t b, int64_t count, uint32_t word)
{
    uint64_t pair = (uint64_t)a << 32 | b;
    if (t->pairs_n * 2 >= t->slots_n)
        ATOM_TRY(slots_grow(t));
    uint32_t *slot = pair_slot(t, pair);
    if (*slot == 0) {
        ATOM_TRY(atom_grow(&t->pairs, t->pairs_n, &t->pairs_capacity, sizeof *t->pairs));
        t->pairs[t->pairs_n] = (pair_info){.pair = pair};
        *slot = (uint32_t)++t->pairs_n;
    }
    pair_info *p = &t->pairs[*slot - 1];
    p->count += count;
    if (count < 0)
        return ATOM_OK;
    if (!p->touched) {
        ATOM_TRY(atom_grow(&t->touched, t->touched_n, &t->touched_capacity, sizeof *t->touched));
        t->touched[t->touched_n++] = *slot - 1;
        p->touched = true;
    }
    if (p->words_n && p->words[p->words_n - 1] == word)
        return ATOM_OK;
    if (p->words_n == p->words_capacity) {
        uint32_t capacity = p->words_capacity ? 2 * p->words_capacity : 2;
        uint32_t *words = atom_realloc(p->words, capacity, sizeof *words);
        if (!words)
            return atom_fail_memory("places of a pair", capacity * sizeof *words);
        p->words = words;
        p->words_capacity = capacity;
    }
    p->words[p->words_n++] = word;
    return ATOM_OK;
}

/* ---- heap: largest count first, then smallest pair ---- */

static bool before(const heap_entry *x, const heap_entry *y)
{
    return x->count != y->count ? x->count > y->count : x->pair < y->pair;
}

static void sift_down(trainer *t, size_t at)
{
    heap_entry value = t->heap[at];
    for (size_t child; (child = 2 * at + 1) < t->heap_n; at = child) {
        if (child + 1 < t->heap_n && before(&t->heap[child + 1], &t->heap[child]))
            child++;
        if (!before(&t->heap[child], &value))
            break;
        t->heap[at] = t->heap[child];
    }
    t->heap[at] = value;
}

static atom_status heap_push(trainer *t, uint32_t index)
{
    ATOM_TRY(atom_grow(&t->heap, t->heap_n, &t->heap_capacity, sizeof *t->heap));
    const pair_info *p = &t->pairs[index];
    heap_entry value = {.count = p->count, .pair = p->pair, .index = index};
    size_t at = t->heap_n++;
    for (; at > 0 && before(&value, &t->heap[(at - 1) / 2]); at = (at - 1) / 2)
        t->heap[at] = t->heap[(at - 1) / 2];
    t->heap[at] = value;
    return ATOM_OK;
}

static atom_status push_touched(trainer *t)
{
    for (size_t i = 0; i < t->touched_n; i++) {
        t->pairs[t->touched[i]].touched = false;
        if (t->pairs[t->touched[i]].count > 0)
            ATOM_TRY(heap_push(t, t->touched[i]));
    }
    t->touched_n = 0;
    return ATOM_OK;
}

/* The most frequent pair; false when none is left. */
static bool heap_best(trainer *t, uint32_t *index)
{
    while (t->heap_n) {
        heap_entry *top = &t->heap[0];
        int64_t count = t->pairs[top->index].count;
        if (top->count == count && count > 0) {
            *index = top->index;
            *top = t->heap[--t->heap_n];
            if (t->heap_n)
                sift_down(t, 0);
            return true;
        }
        top->count = count;
        if (count <= 0)
            *top = t->heap[--t->heap_n];
        if (t->heap_n)
            sift_down(t, 0);
    }
    return false;
}

/* ---- training ---- */

/* Merges (a, b) into z in one word and corrects the counts of the pairs around each place. */
static atom_status merge_word(trainer *t, uint32_t word, uint32_t a, uint32_t b, uint32_t z)
{
    train_word *w = &t->words[word];
    uint32_t *s = t->symbols + w->start;
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        if (i + 1 == w->n || s[i] != a || s[i + 1] != b) {
            s[n++] = s[i];
            continue;
        }
        if (n > 0) {
            ATOM_TRY(pair_add(t, s[n - 1], a, -w->count, word));
            ATOM_TRY(pair_add(t, s[n - 1], z, w->count, word));
        }
        if (i + 2 < w->n) {
            ATOM_TRY(pair_add(t, b, s[i + 2], -w->count, word));
            ATOM_TRY(pair_add(t, z, s[i + 2], w->count, word));
        }
        s[n++] = z;
        i++;
    }
    w->n = n;
    return ATOM_OK;
}

static atom_status merge_pair(trainer *t, uint32_t index)
{
    atom_status st = ATOM_OK;
    pair_info *p = &t->pairs[index];
    uint32_t *words = p->words, words_n = p->words_n;
    text_merge m = {.a = (uint32_t)(p->pair >> 32),
                    .b = (uint32_t)p->pair,
                    .made = 256 + (uint32_t)t->merges_n};
    p->words = NULL;
    p->words_n = p->words_capacity = 0;
    ATOM_TRY_CLEAN(atom_grow(&t->merges, t->merges_n, &t->merges_capacity, sizeof *t->merges));
    t->merges[t->merges_n++] = m;
    for (uint32_t i = 0; i < words_n; i++)
        ATOM_TRY_CLEAN(merge_word(t, words[i], m.a, m.b, m.made));
    t->pairs[index].count = 0;
    ATOM_TRY_CLEAN(push_touched(t));
cleanup:
    atom_free(words);
    return st;
}

static atom_status load_words(trainer *t, const text_words *w)
{
    uint64_t at = 0;
    if (w->used >= UINT32_MAX)
        return atom_fail(ATOM_E_UNSUPPORTED, "more than 2^32 different words; train on less text");
    t->words = atom_alloc(w->used + 1, sizeof *t->words);
    t->symbols = atom_alloc(w->arena_n + 1, sizeof *t->symbols);
    if (!t->words || !t->symbols)
        return atom_fail_memory("words", w->used * sizeof *t->words + w->arena_n * 4);
    for (size_t i = 0; i < w->slots_n; i++) {
        const text_word *word = &w->slots[i];
        if (word->bytes == 0)
            continue;
        uint32_t id = t->words_n++, *s = t->symbols + at;
        t->words[id] = (train_word){.start = at, .n = word->bytes, .count = (int64_t)word->count};
        for (uint32_t k = 0; k < word->bytes; k++)
            s[k] = text_byte_id((uint8_t)w->arena[word->start + k]);
        for (uint32_t k = 0; k + 1 < word->bytes; k++)
            ATOM_TRY(pair_add(t, s[k], s[k + 1], (int64_t)word->count, id));
        at += word->bytes;
    }
    return push_touched(t);
}

static void trainer_fini(trainer *t)
{
    for (size_t i = 0; i < t->pairs_n; i++)
        atom_free(t->pairs[i].words);
    atom_free(t->pairs);
    atom_free(t->words);
    atom_free(t->symbols);
    atom_free(t->slots);
    atom_free(t->heap);
    atom_free(t->touched);
    atom_free(t->merges);
}

atom_status text_bpe_train(const text_words *w, uint32_t vocab, text_train_progress progress,
                           void *ctx, text_tokenizer **out)
{
    trainer t = {0};
    atom_status st = ATOM_OK;
    uint32_t index;
    if (vocab < TEXT_BYTES_VOCAB || vocab > TEXT_VOCAB_MAX)
        return atom_fail(ATOM_E_USAGE,
                         "bpe:%u: the vocabulary must be %d to %d (256 bytes and the "
                         "end-of-text token are part of it)",
                         vocab, TEXT_BYTES_VOCAB, TEXT_VOCAB_MAX);
    ATOM_TRY_CLEAN(load_words(&t, w));
    uint32_t merges_max = vocab - TEXT_BYTES_VOCAB;
    while (t.merges_n < merges_max && heap_best(&t, &index)) {
        ATOM_TRY_CLEAN(merge_pair(&t, index));
        if (progress && t.merges_n % 64 == 0)
            progress(ctx, (uint32_t)t.merges_n, merges_max);
    }
    st = text_tokenizer_bpe(t.merges, (uint32_t)t.merges_n, out);
cleanup:
    trainer_fini(&t);
    return st;
}
