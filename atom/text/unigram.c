/*
 * Owns Unigram models. One idea: all tokens are one tree of bytes, kept as a table of edges, and the
 * best way to each place of a text is known once all shorter ones are (Viterbi). The order of
 * additions and comparisons is that of the `tokenizers` library, so that ties fall as they fall there.
 * Refuses models without an unknown token.
 */
#include "atom/text/unigram.h"

#include "atom/base/mem.h"
#include "atom/text/utf8.h"

#include <float.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES_MAX = 1 << 24 }; /* an edge is a node and a byte in 32 bits */
static const double UNKNOWN_PENALTY = 10;
static const uint32_t NONE = UINT32_MAX;

typedef struct edge {
    uint32_t key; /* node << 8 | byte */
    uint32_t to;  /* 0: free, since no edge leads to the root */
} edge;

struct text_unigram {
    double *scores; /* [scores_n] by id */
    size_t scores_n;
    double unknown_score;
    uint32_t unknown;
    uint32_t byte_ids[256];
    uint32_t *ids; /* [capacity] by node */
    size_t n, capacity;
    edge *edges; /* [mask + 1] */
    uint32_t mask;
};

/* The best way to a place of the text. */
typedef struct text_unigram_node {
    double score;
    uint32_t id, from; /* from: NONE: there is no way yet */
} node;

static edge *edge_at(const text_unigram *u, uint32_t key)
{
    for (uint32_t i = (key * 0x9e3779b1u) >> 7;; i++) {
        edge *e = &u->edges[i & u->mask];
        if (e->to == 0 || e->key == key)
            return e;
    }
}

static uint32_t step(const text_unigram *u, uint32_t at, char byte)
{
    return edge_at(u, at << 8 | (uint8_t)byte)->to;
}

static atom_status grow_edges(text_unigram *u)
{
    text_unigram grown = {.mask = u->edges ? 2 * u->mask + 1 : 1023};
    grown.edges = atom_alloc((size_t)grown.mask + 1, sizeof *grown.edges);
    if (!grown.edges)
        return atom_fail_memory("a table of tokens", ((uint64_t)grown.mask + 1) * sizeof(edge));
    for (uint32_t i = 0; u->edges && i <= u->mask; i++)
        if (u->edges[i].to)
            *edge_at(&grown, u->edges[i].key) = u->edges[i];
    atom_free(u->edges);
    u->edges = grown.edges;
    u->mask = grown.mask;
    return ATOM_OK;
}

/* A node by itself; its number is u->n - 1. */
static atom_status add_node(text_unigram *u)
{
    if (u->n == NODES_MAX)
        return atom_fail(ATOM_E_FORMAT, "the vocabulary's texts are longer than 16 MiB together");
    ATOM_TRY(atom_grow(&u->ids, u->n, &u->capacity, sizeof *u->ids));
    u->ids[u->n++] = NONE;
    return !u->edges || u->mask < 2 * u->n ? grow_edges(u) : ATOM_OK;
}

atom_status text_unigram_add(text_unigram *u, const char *text, size_t bytes, uint32_t id, int byte)
{
    uint32_t at = 0;
    if (id >= u->scores_n || bytes == 0)
        return ATOM_OK; /* an added token beside the model's */
    if (byte >= 0)
        u->byte_ids[byte] = id;
    for (size_t i = 0; i < bytes; i++) {
        uint32_t key = at << 8 | (uint8_t)text[i];
        at = edge_at(u, key)->to;
        if (at)
            continue;
        ATOM_TRY(add_node(u));
        at = (uint32_t)u->n - 1;
        *edge_at(u, key) = (edge){key, at};
    }
    u->ids[at] = id;
    return ATOM_OK;
}

void text_unigram_close(text_unigram **unigram)
{
    text_unigram *u = *unigram;
    if (!u)
        return;
    atom_free(u->scores);
    atom_free(u->ids);
    atom_free(u->edges);
    atom_free(u);
    *unigram = NULL;
}

/* As the library reads it: the digits as one whole number, then divided by a power of ten. That may miss the nearest
 * number by its last bit, which decides between ways that are equally good: runs of one character have many. The file's
 * own digits are gone by now: they are taken to be the shortest ones that mean this number, as the library writes them. */
static double as_read(double score)
{
    enum { DIGITS_MAX = 17 };
    char text[40], power[16];
    int64_t whole = 0;
    for (int n = 1; n <= DIGITS_MAX; n += n == 1 ? DIGITS_MAX - 3 : 1) {
        snprintf(text, sizeof text, "%.*e", n - 1, score);
        if (strtod(text, NULL) == score)
            break;
    }
    const char *exponent = strchr(text, 'e');
    int places = exponent ? -atoi(exponent + 1) : 0;
    bool behind = false;
    for (const char *c = text; exponent && c < exponent; c++) {
        behind |= *c == '.';
        if (*c < '0' || *c > '9')
            continue;
        whole = 10 * whole + (*c - '0');
        places += behind;
    }
    for (; whole && whole % 10 == 0; places--)
        whole /= 10;
    if (!exponent || places <= 0 || places > DBL_MAX_10_EXP)
        return score;
    snprintf(power, sizeof power, "1e%d", places);
    double read = (double)whole / strtod(power, NULL);
    return score < 0 ? -read : read;
}

static atom_status read_scores(text_unigram *u, const json_t *list, const char *name, json_t *vocab)
{
    double lowest = 0;
    for (size_t i = 0; i < u->scores_n; i++) {
        const json_t *entry = json_array_get(list, i), *score = json_array_get(entry, 1);
        const char *text = json_string_value(json_array_get(entry, 0));
        if (!text || json_array_size(entry) != 2 || !json_is_number(score))
            return atom_fail(ATOM_E_FORMAT, "%s: model.vocab[%zu] is not a token and its score",
                             name, i);
        u->scores[i] = as_read(json_number_value(score));
        lowest = i == 0 || u->scores[i] < lowest ? u->scores[i] : lowest;
        if (json_object_set_new(vocab, text, json_integer((json_int_t)i)) < 0)
            return atom_fail_memory("a vocabulary", strlen(text));
    }
    u->unknown_score = lowest - UNKNOWN_PENALTY;
    return ATOM_OK;
}

atom_status text_unigram_read(const json_t *model, const char *name, json_t **vocab,
                              text_unigram **out)
{
    const json_t *list = json_object_get(model, "vocab"), *id = json_object_get(model, "unk_id");
    size_t n = json_array_size(list);
    json_t *made = NULL;
    text_unigram *u = NULL;
    atom_status st = ATOM_OK;
    if (n == 0)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: \"model.vocab\" is missing or not a list; is it a complete "
                         "tokenizer.json?",
                         name);
    if (!json_is_integer(id) || json_integer_value(id) < 0 ||
        json_integer_value(id) >= (json_int_t)n)
        return atom_fail(
            ATOM_E_UNSUPPORTED,
            "%s: \"model.unk_id\" is not a token of the vocabulary; atom needs one for "
            "characters that have no token",
            name);
    u = atom_alloc(1, sizeof *u);
    if (u)
        u->scores = atom_alloc(n, sizeof *u->scores);
    made = json_object();
    if (!u || !u->scores || !made)
        ATOM_TRY_CLEAN(atom_fail_memory("a vocabulary", n * sizeof(double)));
    u->scores_n = n;
    u->unknown = (uint32_t)json_integer_value(id);
    memset(u->byte_ids, 0xff, sizeof u->byte_ids);
    ATOM_TRY_CLEAN(read_scores(u, list, name, made));
    ATOM_TRY_CLEAN(add_node(u));
    *vocab = made;
    *out = u;
    return ATOM_OK;
cleanup:
    json_decref(made);
    text_unigram_close(&u);
    return st;
}

/* ---- encoding ---- */

void text_unigram_scratch_fini(text_unigram_scratch *s)
{
    atom_free(s->nodes);
    *s = (text_unigram_scratch){0};
}

static void offer(node *to, double score, uint32_t id, size_t from)
{
    if (to->from == NONE || score > to->score)
        *to = (node){score, id, (uint32_t)from};
}

static size_t character_bytes(const char *text, size_t left)
{
    size_t n = 1;
    while (n < left && ((uint8_t)text[n] & 0xc0) == 0x80)
        n++;
    return n;
}

static void find_ways(const text_unigram *u, node *best, const char *text, size_t bytes)
{
    best[0].score = 0;
    for (size_t i = 0; i <= bytes; i++)
        best[i].from = NONE;
    for (size_t from = 0, one; from < bytes; from += one) {
        double here = best[from].score;
        bool single = false;
        uint32_t at = 0;
        one = character_bytes(text + from, bytes - from);
        for (size_t end = from; end < bytes && (at = step(u, at, text[end]));) {
            uint32_t id = u->ids[at];
            end++;
            if (id == NONE)
                continue;
            offer(&best[end], u->scores[id] + here, id, from);
            single = single || end - from == one;
        }
        if (!single)
            offer(&best[from + one], u->unknown_score + here, u->unknown, from);
    }
}

static uint32_t find(const text_unigram *u, const char *text, size_t bytes)
{
    uint32_t at = 0;
    for (size_t i = 0; i < bytes; i++)
        if (!(at = step(u, at, text[i])))
            return NONE;
    return u->ids[at];
}

/* Text that the best way leaves unknown: a token by another way, its bytes, or the unknown token.
 * Written from the back. Returns whether it is the unknown token. */
static bool put_unknown(const text_unigram *u, bool fallback, const char *text, size_t bytes,
                        uint32_t *ids, uint32_t *n)
{
    uint32_t id = find(u, text, bytes);
    for (size_t i = 0; fallback && i < bytes; i++)
        fallback = u->byte_ids[(uint8_t)text[i]] != NONE;
    if (id != NONE || !fallback) {
        ids[(*n)++] = id != NONE ? id : u->unknown;
        return id == NONE;
    }
    for (size_t i = bytes; i > 0; i--)
        ids[(*n)++] = u->byte_ids[(uint8_t)text[i - 1]];
    return false;
}

atom_status text_unigram_encode(const text_unigram *u, text_unigram_scratch *s, bool fallback,
                                const char *text, size_t bytes, uint32_t *ids, uint32_t *n)
{
    *n = 0;
    s->unknown = 0;
    if (bytes >= UINT32_MAX)
        return atom_fail(ATOM_E_UNSUPPORTED, "a text of %zu bytes is too long; split the document",
                         bytes);
    if (bytes >= s->n) {
        node *nodes = atom_realloc(s->nodes, bytes + 1, sizeof *nodes);
        if (!nodes)
            return atom_fail_memory("a long text", (uint64_t)bytes * sizeof *nodes);
        s->nodes = nodes;
        s->n = bytes + 1;
    }
    find_ways(u, s->nodes, text, bytes);
    for (size_t end = bytes, from; end > 0; end = from) {
        uint32_t id = s->nodes[end].id;
        from = s->nodes[end].from;
        if (id != u->unknown) {
            ids[(*n)++] = id;
            continue;
        }
        while (from > 0 && s->nodes[from].id == u->unknown) /* neighbours are one */
            from = s->nodes[from].from;
        if (put_unknown(u, fallback, text + from, end - from, ids, n)) {
            s->unknown += text_utf8_characters(text + from, end - from);
            s->first = from;
        }
    }
    for (uint32_t i = 0; i < *n / 2; i++) {
        uint32_t id = ids[i];
        ids[i] = ids[*n - 1 - i];
        ids[*n - 1 - i] = id;
    }
    return ATOM_OK;
}
