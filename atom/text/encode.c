/*
 * Owns the way from text to ids. One idea: text is cut into pieces (split.h), nearly all of which
 * were seen before, so a small direct-mapped cache of piece -> ids answers most of them; the others
 * are merged lowest rank first, leftmost first: short ones by scanning, long ones with a heap, so
 * that no text takes quadratic time. Refuses text that is not UTF-8.
 */
#include "atom/text/tokenizer.h"

#include "atom/base/mem.h"
#include "atom/text/normalize.h"
#include "atom/text/split.h"
#include "atom/text/tokenizer_inner.h"
#include "atom/text/utf8.h"

#include <string.h>

enum {
    CACHE_SLOTS = 1 << 15,
    CACHE_PIECE_BYTES_MAX = 31,
    CACHE_IDS_MAX = 7,
    SCAN_BYTES_MAX = 48 /* longer pieces use the heap */
};

typedef struct cache_slot {
    uint64_t key[4]; /* the piece, zeros, and its length in the last byte */
    uint32_t ids[CACHE_IDS_MAX];
    uint16_t n;       /* 0: free */
    uint16_t unknown; /* characters of the piece that have no token */
} cache_slot;

/* A symbol of a long piece; symbols are a linked list over the piece's bytes. */
typedef struct symbol {
    uint32_t id; /* TEXT_NO_ID: merged into the one before */
    uint32_t prev, next;
    uint32_t rank; /* of the merge with next */
} symbol;

struct text_encoder {
    const text_tokenizer *t;
    text_splitter *splitter; /* NULL for bytes */
    cache_slot *cache;
    symbol *symbols; /* [symbols_n], grown for the longest piece so far */
    uint64_t *heap;  /* rank << 32 | position; [3 * symbols_n] */
    size_t symbols_n;
    text_normal nfc, spaces, other;
    text_unigram_scratch ways;
    text_unknown unknown;
};

atom_status text_encoder_open(const text_tokenizer *t, text_encoder **out)
{
    atom_status st = ATOM_OK;
    text_encoder *e = atom_alloc(1, sizeof *e);
    if (!e)
        return atom_fail_memory("an encoder", sizeof *e);
    e->t = t;
    if (!t->bytes_only) {
        if (t->recipe.stages.n)
            ATOM_TRY_CLEAN(text_splitter_open(&t->recipe.stages, &e->splitter));
        e->cache = atom_alloc(CACHE_SLOTS, sizeof *e->cache);
        if (!e->cache)
            ATOM_TRY_CLEAN(atom_fail_memory("an encoder's cache", CACHE_SLOTS * sizeof *e->cache));
    }
    *out = e;
    return ATOM_OK;
cleanup:
    text_encoder_close(&e);
    return st;
}

void text_encoder_close(text_encoder **encoder)
{
    text_encoder *e = *encoder;
    if (!e)
        return;
    text_splitter_close(&e->splitter);
    atom_free(e->cache);
    atom_free(e->symbols);
    text_normal_fini(&e->nfc);
    text_normal_fini(&e->spaces);
    text_normal_fini(&e->other);
    text_unigram_scratch_fini(&e->ways);
    atom_free(e->heap);
    atom_free(e);
    *encoder = NULL;
}

void text_unknown_add(text_unknown *sum, const text_unknown *more)
{
    if (sum->n == 0)
        sum->first = more->first;
    sum->n += more->n;
    sum->characters += more->characters;
}

void text_encoder_unknown(text_encoder *e, text_unknown *sum)
{
    text_unknown_add(sum, &e->unknown);
    e->unknown = (text_unknown){0};
}

/* Makes room for `more` ids. */
static atom_status reserve(text_ids *out, size_t more)
{
    if (out->capacity - out->n >= more)
        return ATOM_OK;
    size_t capacity = out->capacity + out->capacity / 2 + 256;
    if (capacity < out->n + more)
        capacity = out->n + more;
    uint32_t *grown = atom_realloc(out->ids, capacity, sizeof *grown);
    if (!grown)
        return atom_fail_memory("token ids", (uint64_t)capacity * sizeof *grown);
    out->ids = grown;
    out->capacity = capacity;
    return ATOM_OK;
}

/* The symbols that merging starts with: ids[bytes] has room. Returns how many. A character without
 * a token becomes its bytes. */
static uint32_t first_symbols(const text_tokenizer *t, const uint8_t *piece, size_t bytes,
                              uint32_t *ids)
{
    uint32_t n = 0;
    if (!t->recipe.metaspace) {
        for (size_t i = 0; i < bytes; i++)
            ids[i] = t->byte_ids[piece[i]];
        return (uint32_t)bytes;
    }
    for (size_t at = 0, end; at < bytes; at = end) {
        for (end = at + 1; end < bytes && (piece[end] & 0xc0) == 0x80;)
            end++;
        uint32_t id = text_whole_id(t, (const char *)piece + at, end - at);
        if (id != TEXT_NO_ID)
            ids[n++] = id;
        for (size_t i = at; id == TEXT_NO_ID && i < end; i++)
            ids[n++] = t->byte_ids[piece[i]];
    }
    return n;
}

/* Merges a short piece in place: n bytes, ids[n] has room. Returns the number of ids. */
static uint32_t merge_scan(const text_tokenizer *t, const uint8_t *piece, uint32_t n, uint32_t *ids)
{
    uint32_t ranks[SCAN_BYTES_MAX];
    n = first_symbols(t, piece, n, ids);
    for (uint32_t i = 0; i + 1 < n; i++)
        ranks[i] = text_pair_rank(t, ids[i], ids[i + 1]);
    while (n > 1) {
        uint32_t best = 0;
        for (uint32_t i = 1; i + 1 < n; i++)
            if (ranks[i] < ranks[best])
                best = i;
        if (ranks[best] == TEXT_NO_RANK)
            break;
        ids[best] = t->merges[ranks[best]].made;
        n--;
        for (uint32_t i = best + 1; i < n; i++) {
            ids[i] = ids[i + 1];
            ranks[i - 1] = ranks[i];
        }
        if (best > 0)
            ranks[best - 1] = text_pair_rank(t, ids[best - 1], ids[best]);
        if (best + 1 < n)
            ranks[best] = text_pair_rank(t, ids[best], ids[best + 1]);
    }
    return n;
}

static void heap_push(uint64_t *heap, size_t *n, uint64_t value)
{
    size_t at = (*n)++;
    while (at > 0 && heap[(at - 1) / 2] > value) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = value;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n)
{
    uint64_t top = heap[0], value = heap[--*n];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < *n; at = child) {
        if (child + 1 < *n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= value)
            break;
        heap[at] = heap[child];
    }
    heap[at] = value;
    return top;
}

/* Looks up the merge of symbol i with its next, and queues it. */
static void rank_symbol(text_encoder *e, uint32_t i, uint32_t n, size_t *heap_n)
{
    symbol *s = e->symbols;
    s[i].rank = s[i].next < n ? text_pair_rank(e->t, s[i].id, s[s[i].next].id) : TEXT_NO_RANK;
    if (s[i].rank != TEXT_NO_RANK)
        heap_push(e->heap, heap_n, (uint64_t)s[i].rank << 32 | i);
}

static atom_status symbols_reserve(text_encoder *e, size_t n)
{
    if (n >= UINT32_MAX)
        return atom_fail(ATOM_E_UNSUPPORTED, "a word of %zu bytes is too long; split the document",
                         n);
    if (n <= e->symbols_n)
        return ATOM_OK;
    symbol *symbols = atom_realloc(e->symbols, n, sizeof *symbols);
    if (symbols)
        e->symbols = symbols;
    uint64_t *heap = symbols ? atom_realloc(e->heap, 3 * n, sizeof *heap) : NULL;
    if (heap)
        e->heap = heap;
    if (!symbols || !heap) {
        e->symbols_n = 0;
        return atom_fail_memory("a long word", (uint64_t)n * (sizeof *symbols + 3 * sizeof *heap));
    }
    e->symbols_n = n;
    return ATOM_OK;
}

/* A long piece; out has room for its bytes. Each merge queues at most two new pairs, so the
 * heap holds at most 3n entries. An entry is stale when its symbol has gone or has another
 * rank by now. */
static atom_status merge_heap(text_encoder *e, const uint8_t *piece, size_t bytes, text_ids *out)
{
    size_t heap_n = 0;
    ATOM_TRY(symbols_reserve(e, bytes));
    uint32_t *ids = out->ids + out->n, n = first_symbols(e->t, piece, bytes, ids);
    symbol *s = e->symbols;
    for (uint32_t i = 0; i < n; i++)
        s[i] = (symbol){.id = ids[i], .prev = i - 1, .next = i + 1};
    for (uint32_t i = 0; i < n; i++)
        rank_symbol(e, i, n, &heap_n);
    while (heap_n) {
        uint64_t top = heap_pop(e->heap, &heap_n);
        uint32_t i = (uint32_t)top, rank = (uint32_t)(top >> 32);
        if (s[i].id == TEXT_NO_ID || s[i].rank != rank)
            continue;
        uint32_t gone = s[i].next;
        s[i].id = e->t->merges[rank].made;
        s[i].next = s[gone].next;
        s[gone].id = TEXT_NO_ID;
        if (s[i].next < n)
            s[s[i].next].prev = i;
        rank_symbol(e, i, n, &heap_n);
        if (i > 0)
            rank_symbol(e, s[i].prev, n, &heap_n);
    }
    for (uint32_t i = 0; i < n; i = s[i].next)
        out->ids[out->n++] = s[i].id;
    return ATOM_OK;
}

/* Is the piece a token by itself, whatever the merges say? */
static bool merge_whole(const text_tokenizer *t, const uint8_t *piece, size_t bytes, uint32_t *id)
{
    if (!t->recipe.ignore_merges)
        return false;
    uint32_t found = text_whole_id(t, (const char *)piece, bytes);
    if (found != TEXT_NO_ID)
        *id = found;
    return found != TEXT_NO_ID;
}

static atom_status run_unigram(text_encoder *e, const char *text, size_t n, uint32_t *ids,
                               uint32_t *made)
{
    text_unigram_scratch *w = &e->ways;
    ATOM_TRY(text_unigram_encode(e->t->unigram, w, e->t->recipe.fallback, text, n, ids, made));
    if (w->unknown && e->unknown.n == 0)
        e->unknown.first = text_utf8_first(text + w->first, n - w->first);
    e->unknown.n += w->unknown;
    return ATOM_OK;
}

/* ids has room for n. */
static atom_status encode_fresh(text_encoder *e, const uint8_t *piece, uint32_t n, uint32_t *ids,
                                uint32_t *made)
{
    if (e->t->unigram)
        return run_unigram(e, (const char *)piece, n, ids, made);
    *made = merge_whole(e->t, piece, n, ids) ? 1 : merge_scan(e->t, piece, n, ids);
    return ATOM_OK;
}

/* out has room for n ids. */
static atom_status encode_short(text_encoder *e, const uint8_t *piece, uint32_t n, text_ids *out)
{
    uint32_t ids[SCAN_BYTES_MAX];
    uint64_t key[4] = {0};
    cache_slot *slot = NULL;
    if (n <= CACHE_PIECE_BYTES_MAX) {
        memcpy(key, piece, n);
        key[3] |= (uint64_t)n << 56;
        uint64_t hash = (key[0] ^ key[1] * 0xff51afd7ed558ccdu) * 0x9e3779b97f4a7c15u;
        hash = (hash ^ hash >> 29 ^ key[2] ^ key[3] * 0xc4ceb9fe1a85ec53u) * 0x9e3779b97f4a7c15u;
        slot = &e->cache[(hash >> 32) % CACHE_SLOTS];
        bool says_first = slot->unknown == 0 || e->unknown.n > 0;
        if (slot->n && says_first && memcmp(slot->key, key, sizeof key) == 0) {
            e->unknown.n += slot->unknown;
            memcpy(out->ids + out->n, slot->ids, slot->n * sizeof *ids);
            out->n += slot->n;
            return ATOM_OK;
        }
    }
    ATOM_TRY(encode_fresh(e, piece, n, ids, &n));
    memcpy(out->ids + out->n, ids, n * sizeof *ids);
    out->n += n;
    if (slot && n <= CACHE_IDS_MAX) {
        memcpy(slot->key, key, sizeof key);
        memcpy(slot->ids, ids, n * sizeof *ids);
        slot->n = (uint16_t)n;
        slot->unknown = (uint16_t)e->ways.unknown;
    }
    return ATOM_OK;
}

static atom_status encode_unigram(text_encoder *e, const char *text, size_t n, text_ids *out)
{
    uint32_t made = 0;
    ATOM_TRY(run_unigram(e, text, n, out->ids + out->n, &made));
    out->n += made;
    return ATOM_OK;
}

static atom_status encode_piece(text_encoder *e, const char *text, size_t n, text_ids *out)
{
    const uint8_t *piece = (const uint8_t *)text;
    atom_status st = ATOM_OK;
    ATOM_TRY(reserve(out, n));
    if (e->t->unigram)
        e->unknown.characters += text_utf8_characters(text, n);
    if (n == 1 && !e->t->recipe.metaspace)
        out->ids[out->n++] = e->t->byte_ids[*piece];
    else if (n <= SCAN_BYTES_MAX)
        st = encode_short(e, piece, (uint32_t)n, out);
    else if (e->t->unigram)
        st = encode_unigram(e, text, n, out);
    else if (merge_whole(e->t, piece, n, out->ids + out->n))
        out->n++;
    else
        st = merge_heap(e, piece, n, out);
    return st;
}

static atom_status encode_pieces(text_encoder *e, const char *text, size_t bytes, text_ids *out)
{
    text_splitter_begin(e->splitter, text, bytes);
    for (;;) {
        size_t start, end;
        ATOM_TRY(text_splitter_next(e->splitter, &start, &end));
        if (start == end)
            return ATOM_OK;
        ATOM_TRY(encode_piece(e, text + start, end - start, out));
    }
    return ATOM_OK;
}

/* Characters with spaces for metaspaces, cut wherever no token goes across. */
static atom_status encode_metaspace(text_encoder *e, const char *text, size_t bytes, bool first,
                                    text_ids *out)
{
    const text_recipe *r = &e->t->recipe;
    ATOM_TRY(text_normal_spaces(&e->spaces, text, bytes, r->prepend && (r->prepend_every || first),
                                r->prepend_missing));
    const char *s = e->spaces.text;
    for (size_t at = 0, end; at < e->spaces.bytes; at = end) {
        uint32_t before = text_class((uint8_t)s[at]);
        for (end = at + 1; end < e->spaces.bytes; end++) {
            if (((uint8_t)s[end] & 0xc0) == 0x80)
                continue;
            uint32_t class = text_class((uint8_t)s[end]);
            bool joins = e->t->unigram || text_joins(e->t, before, class);
            if (!joins || (r->hard_split && s[end] == ' '))
                break;
            before = class;
        }
        ATOM_TRY(encode_piece(e, s + at, end - at, out));
    }
    return ATOM_OK;
}

static bool has_several(const char *characters)
{
    size_t n = 0;
    for (const char *c = characters; *c; c++)
        n += ((uint8_t)*c & 0xc0) != 0x80;
    return n > 1;
}

/* Does step i leave nothing of the text's first character? The library thinks so, too, of a replacement of several. */
static bool drops_first(const text_recipe *r, uint32_t i, const char *text, size_t bytes)
{
    const text_normal_step *step = &r->normal[i];
    switch (step->kind) {
    case TEXT_NORMAL_STRIP_LEFT:
        return text_space_at(text, bytes) > 0;
    case TEXT_NORMAL_NO_MARKS:
        return text_is_mark(text, bytes);
    case TEXT_NORMAL_REPLACE:
        return bytes >= strlen(step->from) && memcmp(text, step->from, strlen(step->from)) == 0 &&
               (!*step->as || has_several(step->from));
    case TEXT_NORMAL_RUNS_TO_METASPACE:
    case TEXT_NORMAL_RUNS_TO_SPACE:
        return bytes >= 2 && text[0] == ' ' && text[1] == ' ';
    default: /* of a map of characters that drops it the library keeps its place */
        return false;
    }
}

/* The steps of a Unigram tokenizer; *text becomes one of two buffers that take turns. *first: does what is left begin
 * where the text began? Only then the library puts a space before it where prepend_scheme is "first". */
static atom_status normalize(text_encoder *e, const char **text, size_t *bytes, bool *first)
{
    const text_recipe *r = &e->t->recipe;
    text_normal *turns[2] = {&e->nfc, &e->other};
    for (uint32_t i = 0, turn = 0; i < r->normal_n; i++) {
        text_normal *to = turns[turn];
        bool changed = true;
        *first = *first && !drops_first(r, i, *text, *bytes);
        switch (r->normal[i].kind) {
        case TEXT_NORMAL_NFC:
            ATOM_TRY(text_normal_nfc(to, *text, *bytes, &changed));
            break;
        case TEXT_NORMAL_NFKC:
            ATOM_TRY(text_normal_form(to, TEXT_NFKC, *text, *bytes));
            break;
        case TEXT_NORMAL_NFD:
            ATOM_TRY(text_normal_form(to, TEXT_NFD, *text, *bytes));
            break;
        case TEXT_NORMAL_NFKD:
            ATOM_TRY(text_normal_form(to, TEXT_NFKD, *text, *bytes));
            break;
        case TEXT_NORMAL_NO_MARKS:
            ATOM_TRY(text_normal_no_marks(to, *text, *bytes));
            break;
        case TEXT_NORMAL_LOWER:
            ATOM_TRY(text_normal_lower(to, *text, *bytes));
            break;
        case TEXT_NORMAL_REPLACE:
            ATOM_TRY(text_normal_replace(to, *text, *bytes, r->normal[i].from, r->normal[i].as));
            break;
        case TEXT_NORMAL_CHARSMAP:
            ATOM_TRY(text_charsmap_apply(r->charsmap, to, *text, *bytes));
            break;
        case TEXT_NORMAL_RUNS_TO_METASPACE:
        case TEXT_NORMAL_RUNS_TO_SPACE:
            ATOM_TRY(text_normal_runs(
                to, *text, *bytes,
                r->normal[i].kind == TEXT_NORMAL_RUNS_TO_SPACE ? " " : "\xe2\x96\x81"));
            break;
        case TEXT_NORMAL_STRIP_LEFT:
        case TEXT_NORMAL_STRIP_RIGHT:
            text_strip(text, bytes, r->normal[i].kind == TEXT_NORMAL_STRIP_LEFT,
                       r->normal[i].kind == TEXT_NORMAL_STRIP_RIGHT);
            changed = false;
            break;
        }
        if (changed) {
            *text = to->text;
            *bytes = to->bytes;
            turn = !turn;
        }
    }
    return ATOM_OK;
}

/* The whole text, or each word of it by itself. */
static atom_status encode_words(text_encoder *e, const char *text, size_t bytes, bool first,
                                text_ids *out)
{
    size_t n = 0;
    ATOM_TRY(normalize(e, &text, &bytes, &first));
    if (!e->t->recipe.words)
        return encode_metaspace(e, text, bytes, first, out);
    for (size_t at = 0, end; at < bytes; at = end + n) {
        for (end = at; end < bytes && !(n = text_space_at(text + end, bytes - end)); end++)
            ;
        if (end > at)
            ATOM_TRY(encode_metaspace(e, text + at, end - at, first && at == 0, out));
    }
    return ATOM_OK;
}

static atom_status encode_ordinary(text_encoder *e, const char *text, size_t bytes, bool first,
                                   text_ids *out)
{
    if (bytes == 0)
        return ATOM_OK;
    if (e->t->recipe.metaspace)
        return encode_words(e, text, bytes, first, out);
    return encode_pieces(e, text, bytes, out);
}

/* Text between added tokens that are looked for before normalising (normalized: after it). */
static atom_status encode_parts(text_encoder *e, bool normalized, const char *text, size_t bytes,
                                bool first, text_ids *out)
{
    for (size_t from = 0, at = 0; from < bytes || at < bytes; from = at) {
        const text_added *a =
            e->t->added_n ? text_added_find(e->t, normalized, text, bytes, &at) : NULL;
        size_t end = a ? at : bytes, behind = a ? at + a->bytes : bytes;
        if (a)
            text_widen(text, bytes, from, a->manner & TEXT_TAKES_LEFT, a->manner & TEXT_TAKES_RIGHT,
                       &end, &behind);
        size_t part = end - from;
        const char *s = text + from;
        bool changed = false;
        if (!normalized && e->t->recipe.nfc)
            ATOM_TRY(text_normal_nfc(&e->nfc, s, part, &changed));
        if (changed) {
            s = e->nfc.text;
            part = e->nfc.bytes;
        }
        if (normalized || e->t->recipe.metaspace)
            ATOM_TRY(encode_ordinary(e, s, part, first && from == 0, out));
        else
            ATOM_TRY(encode_parts(e, true, s, part, false, out));
        if (!a)
            break;
        ATOM_TRY(reserve(out, 1));
        out->ids[out->n++] = a->id;
        at = behind;
    }
    return ATOM_OK;
}

static atom_status encode(text_encoder *e, const char *text, size_t bytes, bool first,
                          text_ids *out, size_t *bad_byte)
{
    size_t before = out->n;
    size_t good = text_utf8_check(text, bytes);
    atom_status st = ATOM_OK;
    if (good < bytes) {
        if (bad_byte)
            *bad_byte = good;
        return atom_fail(ATOM_E_FORMAT, "not UTF-8 at byte %zu (0x%02x); convert it to UTF-8", good,
                         (uint8_t)text[good]);
    }
    if (e->t->bytes_only) {
        ATOM_TRY_CLEAN(reserve(out, bytes));
        for (size_t i = 0; i < bytes; i++)
            out->ids[out->n++] = (uint8_t)text[i];
        return ATOM_OK;
    }
    ATOM_TRY_CLEAN(encode_parts(e, false, text, bytes, first, out));
    return ATOM_OK;
cleanup:
    out->n = before;
    return st;
}

atom_status text_encode(text_encoder *e, const char *text, size_t bytes, text_ids *out,
                        size_t *bad_byte)
{
    return encode(e, text, bytes, true, out, bad_byte);
}

atom_status text_encode_behind(text_encoder *e, const char *text, size_t bytes, text_ids *out)
{
    return encode(e, text, bytes, false, out, NULL);
}
