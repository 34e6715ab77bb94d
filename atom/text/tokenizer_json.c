/*
 * Owns tokenizer.json, in and out. One idea: reading checks everything that the rest of the folder
 * relies on (all bytes have a token, merges make known tokens, one end-of-text token) and turns
 * GPT-2's printable alphabet into raw bytes; writing turns it back. Refuses, by name, models and
 * steps that atom does not have, so that a text is never split in another way than the file says.
 */
#include "atom/text/tokenizer.h"

#include "atom/base/files.h"
#include "atom/base/json.h"
#include "atom/base/mem.h"
#include "atom/text/normalize.h"
#include "atom/text/tokenizer_inner.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 256 << 20 };
#define DEEPSEEK_END "<\uff5cend\u2581of\u2581sentence\uff5c>"

typedef struct reading {
    const char *name;           /* of the file, for messages */
    json_t *vocab;              /* ids by text, owned */
    json_t *added;              /* borrowed: added_tokens, may be NULL */
    const char **texts;         /* [t->vocab] content per id, borrowed; NULL: a hole */
    const char *begin, *finish; /* borrowed: tokens that a template puts around a text */
    bool source;                /* more than atom itself would write */
    text_tokenizer *t;
} reading;

/* ---- reading ---- */

/* Bytes of a shown token, or false if it has other characters. out may be NULL: then it only
 * counts. */
static bool take_shown(const char *text, char *out, size_t *bytes)
{
    size_t n = 0;
    for (const uint8_t *s = (const uint8_t *)text; *s; n++) {
        uint32_t cp = *s++;
        if (cp >= 0x80) {
            if (cp > 0xdf)
                return false;
            cp = (cp & 0x1f) << 6 | (*s++ & 0x3f);
        }
        uint8_t byte;
        if (cp >= 0x100 && cp < 0x100 + 68)
            byte = text_id_byte(188 + cp - 0x100);
        else if (cp < 0x100 && text_byte_id((uint8_t)cp) < 188)
            byte = (uint8_t)cp;
        else
            return false;
        if (out)
            out[n] = (char)byte;
    }
    *bytes = n;
    return true;
}

static atom_status wrong(const reading *r, const char *what)
{
    return atom_fail(ATOM_E_FORMAT, "%s: %s; is it a complete tokenizer.json?", r->name, what);
}

static atom_status unsupported(const reading *r, const char *key, const char *what)
{
    return atom_fail(ATOM_E_UNSUPPORTED,
                     "%s: \"%s\" is %s; make the tokenizer without it, or bring token shards",
                     r->name, key, what);
}

/* An id of the vocabulary or of added_tokens, checked. */
static atom_status read_id(const reading *r, const char *content, const json_t *value, uint32_t *id)
{
    json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;
    if (n < 0 || n >= TEXT_VOCAB_MAX)
        return atom_fail(ATOM_E_FORMAT, "%s: token \"%.40s\" has no id in 0..%d", r->name, content,
                         TEXT_VOCAB_MAX - 1);
    *id = (uint32_t)n;
    return ATOM_OK;
}

/* Size of the vocabulary: the largest id + 1; checks that the ids are not far apart. */
static atom_status measure(reading *r)
{
    const char *content;
    json_t *value;
    size_t i, tokens = json_object_size(r->vocab) + json_array_size(r->added);
    uint32_t id = 0, max = 0;
    json_object_foreach(r->vocab, content, value)
    {
        ATOM_TRY(read_id(r, content, value, &id));
        max = id > max ? id : max;
    }
    json_array_foreach(r->added, i, value)
    {
        content = json_string_value(json_object_get(value, "content"));
        if (!content || !*content)
            return wrong(r, "an entry of \"added_tokens\" has no \"content\"");
        ATOM_TRY(read_id(r, content, json_object_get(value, "id"), &id));
        r->source = r->source || !json_is_true(json_object_get(value, "special"));
        max = id > max ? id : max;
    }
    if (max >= 2 * tokens + 1024)
        return wrong(r, "the ids of the vocabulary have large gaps");
    r->t->vocab = max + 1;
    return ATOM_OK;
}

static atom_status claim(reading *r, const char *content, uint32_t id)
{
    if (r->texts[id] && strcmp(r->texts[id], content) != 0)
        return atom_fail(ATOM_E_FORMAT, "%s: tokens \"%.40s\" and \"%.40s\" have the same id %u",
                         r->name, r->texts[id], content, id);
    r->texts[id] = content;
    return ATOM_OK;
}

/* What an entry of added_tokens says about how it is found; TEXT_CHANGED where a normalizer may make
 * another text of it, or of what stands around it. */
static uint8_t read_manner(const text_recipe *r, const json_t *value)
{
    const char *content = json_string_value(json_object_get(value, "content"));
    bool prepends = r->prepend && !r->prepend_missing;
    uint8_t manner = 0;
    if (json_is_true(json_object_get(value, "lstrip")))
        manner |= TEXT_TAKES_LEFT;
    if (json_is_true(json_object_get(value, "rstrip")))
        manner |= TEXT_TAKES_RIGHT;
    if (json_is_true(json_object_get(value, "single_word")))
        manner |= TEXT_ALONE;
    bool taker = manner & (TEXT_TAKES_LEFT | TEXT_TAKES_RIGHT);
    bool spaced = (r->replaces_spaces && taker) ||
                  (r->metaspace && (strchr(content, ' ') || strstr(content, "\xe2\x96\x81")));
    if (json_is_true(json_object_get(value, "normalized")))
        manner |=
            r->nfc || r->normal_n || prepends || spaced ? TEXT_LATE | TEXT_CHANGED : TEXT_LATE;
    return manner;
}

/* What ids the library would give: the next free one, which some of its versions (0.21) count behind all added
 * tokens, and others (0.23) behind those that are not in the vocabulary. One of them must fit the whole file. */
typedef struct giving {
    json_t *entries; /* by content */
    json_int_t next, newer;
    bool not_next, not_newer;
} giving;

static atom_status fail_given(const reading *r, const giving *g, const char *content, json_int_t id)
{
    char other[32] = "";
    json_int_t gives = g->not_next ? g->newer : g->next;
    if (!g->not_next && !g->not_newer && g->next != g->newer)
        snprintf(other, sizeof other, " or %lld", (long long)g->newer);
    return atom_fail(ATOM_E_FORMAT,
                     "%s: the added token \"%.40s\" says that its id is %lld, but the "
                     "tokenizers library gives it %lld%s; "
                     "load the tokenizer with the library and save it again",
                     r->name, content, (long long)id, (long long)gives, other);
}

/* The library gives an added token the id of the vocabulary, else the next free one, whatever id its entry
 * says: the model would see another token than the file names. */
static atom_status check_given(const reading *r, giving *g, json_t *entry)
{
    const char *content = json_string_value(json_object_get(entry, "content"));
    const json_t *known = json_object_get(r->vocab, content), *twin;
    json_int_t id = json_integer_value(json_object_get(entry, "id"));
    twin = json_object_get(g->entries, content);
    if (twin && !json_equal(twin, entry))
        return atom_fail(ATOM_E_FORMAT,
                         "%s: the added token \"%.40s\" is there twice, and its entries differ; "
                         "remove one of them",
                         r->name, content);
    bool given = !known && !twin;
    if (given && (g->not_next || id != g->next) && (g->not_newer || id != g->newer))
        return fail_given(r, g, content, id);
    g->not_next |= given && id != g->next;
    g->not_newer |= given && id != g->newer;
    g->next = id >= g->next ? id + 1 : g->next;
    g->newer = !known && id >= g->newer ? id + 1 : g->newer;
    return json_object_set(g->entries, content, entry) ? atom_fail_memory("added tokens", 0)
                                                       : ATOM_OK;
}

static atom_status check_all_given(const reading *r, const json_t *model)
{
    const json_t *vocab = json_object_get(model, "vocab");
    json_int_t next = (json_int_t)(json_object_size(vocab) + json_array_size(vocab));
    giving g = {.entries = json_object(), .next = next, .newer = next};
    atom_status st = g.entries ? ATOM_OK : atom_fail_memory("added tokens", 0);
    json_t *entry;
    for (size_t i = 0; st == ATOM_OK && (entry = json_array_get(r->added, i)); i++)
        st = check_given(r, &g, entry);
    json_decref(g.entries);
    return st;
}

/* Who has which id; marks added tokens. */
static atom_status read_ids(reading *r)
{
    const char *content;
    json_t *value;
    size_t i;
    text_tokenizer *t = r->t;
    json_object_foreach(r->vocab, content, value)
    {
        ATOM_TRY(claim(r, content, (uint32_t)json_integer_value(value)));
    }
    json_array_foreach(r->added, i, value)
    {
        content = json_string_value(json_object_get(value, "content"));
        uint32_t id = (uint32_t)json_integer_value(json_object_get(value, "id"));
        const json_t *same = json_object_get(r->vocab, content);
        if (same && json_integer_value(same) != (json_int_t)id)
            return atom_fail(ATOM_E_FORMAT, "%s: token \"%.40s\" has two ids, %u and %lld", r->name,
                             content, id, (long long)json_integer_value(same));
        ATOM_TRY(claim(r, content, id));
        t->special[id] = json_is_true(json_object_get(value, "special")) ? 1 : 2;
        t->manners[id] = read_manner(&t->recipe, value);
        r->source = r->source || (t->manners[id] & ~TEXT_LATE);
    }
    return ATOM_OK;
}

static uint32_t find_special(const reading *r, const char *content)
{
    for (uint32_t id = 0; content && id < r->t->vocab; id++)
        if (r->t->special[id] == 1 && strcmp(r->texts[id], content) == 0)
            return id;
    return TEXT_NO_ID;
}

/* The tokens around documents: those of the template, else end-of-text. */
static atom_status read_ends(reading *r)
{
    static const char *const names[] = {TEXT_END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>",
                                        DEEPSEEK_END};
    text_tokenizer *t = r->t;
    t->start = find_special(r, r->begin);
    t->end = find_special(r, r->finish);
    t->leads = r->begin;
    if ((r->begin && t->start == TEXT_NO_ID) || (r->finish && t->end == TEXT_NO_ID))
        return unsupported(r, "post_processor", "a template of a token that is not special");
    for (size_t i = 0; t->end == TEXT_NO_ID && i < sizeof names / sizeof *names; i++)
        t->end = find_special(r, names[i]);
    if (t->end == TEXT_NO_ID)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: there is no added token " TEXT_END_OF_TEXT
                         " (nor <|end_of_text|>, </s>, <eos>, " DEEPSEEK_END
                         "), which atom puts between documents; add one of them",
                         r->name);
    if (t->start == TEXT_NO_ID)
        t->start = t->end;
    return ATOM_OK;
}

static int longer_first(const void *a, const void *b)
{
    const text_added *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static atom_status copy_added(const reading *r, const json_t *value, text_added *out)
{
    const char *content = json_string_value(json_object_get(value, "content"));
    text_normal normal = {0};
    bool changed = false;
    *out = (text_added){.id = (uint32_t)json_integer_value(json_object_get(value, "id")),
                        .normalized = json_is_true(json_object_get(value, "normalized")),
                        .skip = json_is_true(json_object_get(value, "special")),
                        .manner = read_manner(&r->t->recipe, value),
                        .bytes = strlen(content)};
    atom_status st = ATOM_OK;
    if (out->normalized && r->t->recipe.nfc)
        st = text_normal_nfc(&normal, content, out->bytes, &changed);
    if (changed)
        out->bytes = normal.bytes;
    out->text = st == ATOM_OK ? atom_alloc(out->bytes + 1, 1) : NULL;
    if (out->text)
        memcpy(out->text, changed ? normal.text : content, out->bytes);
    else
        st = atom_fail_memory("an added token", out->bytes);
    text_normal_fini(&normal);
    return st;
}

/* White space that one token takes must not be the beginning or the end of another. */
static atom_status check_takers(const reading *r)
{
    const char *taker = NULL;
    const json_t *value;
    size_t i;
    for (uint32_t id = 0; id < r->t->vocab && !taker; id++)
        if (r->t->manners[id] & (TEXT_TAKES_LEFT | TEXT_TAKES_RIGHT))
            taker = r->texts[id];
    json_array_foreach(r->added, i, value)
    {
        const char *content = json_string_value(json_object_get(value, "content")),
                   *inner = content;
        size_t n = strlen(content), all = n;
        text_strip(&inner, &n, true, true);
        if (taker && n < all)
            return atom_fail(
                ATOM_E_UNSUPPORTED,
                "%s: the added token \"%.40s\" takes white space (lstrip or rstrip), and "
                "the added token of id %lld begins or ends with some; make the tokenizer "
                "without one of them, or bring token shards",
                r->name, taker, (long long)json_integer_value(json_object_get(value, "id")));
    }
    return ATOM_OK;
}

/* Added tokens that are found in text; nothing to look for if all are special. */
static atom_status read_added(reading *r)
{
    text_tokenizer *t = r->t;
    json_t *value;
    size_t i;
    bool any = false;
    ATOM_TRY(check_takers(r));
    json_array_foreach(r->added, i, value)
    {
        bool special = json_is_true(json_object_get(value, "special"));
        if (t->recipe.metaspace &&
            strcmp(json_string_value(json_object_get(value, "content")), "\xe2\x96\x81") == 0)
            return unsupported(r, "added_tokens",
                               "a list with U+2581 alone, which is what a space becomes");
        if (!special && json_is_true(json_object_get(value, "single_word")))
            return unsupported(r, "single_word", "true for an added token that is not special");
        if (!special && t->recipe.metaspace && json_is_true(json_object_get(value, "normalized")))
            return unsupported(r, "normalized",
                               "true for an added token that is not special, with metaspaces");
        any = any || !special;
    }
    if (!any)
        return ATOM_OK;
    t->added = atom_alloc(json_array_size(r->added), sizeof *t->added);
    if (!t->added)
        return atom_fail_memory("added tokens", json_array_size(r->added) * sizeof *t->added);
    json_array_foreach(r->added, i, value)
    {
        text_added *a = &t->added[t->added_n];
        ATOM_TRY(copy_added(r, value, a));
        t->added_n++;
        t->added_first[(uint8_t)*a->text] |= a->normalized ? 2 : 1;
    }
    qsort(t->added, t->added_n, sizeof *t->added, longer_first);
    return ATOM_OK;
}

/* <0xHH>: the byte, or -1. */
static int byte_token(const char *content)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *high, *low;
    if (strlen(content) != 6 || memcmp(content, "<0x", 3) != 0 || content[5] != '>')
        return -1;
    high = strchr(digits, content[3]);
    low = strchr(digits, content[4]);
    return high && low ? (int)((high - digits) << 4 | (low - digits)) : -1;
}

/* U+2581 becomes a space. Gives how many bytes are written. */
static size_t take_spaced(const char *content, char *out)
{
    size_t bytes = 0;
    for (bool space; *content; content += space ? 3 : 1) {
        space = strncmp(content, "\xe2\x96\x81", 3) == 0;
        out[bytes++] = space ? ' ' : *content;
    }
    return bytes;
}

/* A token of characters: U+2581 becomes a space, a byte token its byte. */
static atom_status take_characters(reading *r, uint32_t id, const char *content, char *out,
                                   size_t *bytes)
{
    int byte = r->t->recipe.fallback ? byte_token(content) : -1;
    if (strchr(content, ' '))
        return unsupported(r, content, "a token with a plain space");
    size_t n = take_spaced(content, out);
    if (r->t->unigram) /* a byte's token is found by its name, too, as in the library */
        ATOM_TRY(text_unigram_add(r->t->unigram, out, n, id, byte));
    *bytes = n;
    if (byte >= 0) {
        r->t->byte_ids[byte] = id;
        out[0] = (char)byte;
        *bytes = 1;
    }
    return ATOM_OK;
}

static atom_status read_pieces(reading *r)
{
    text_tokenizer *t = r->t;
    uint64_t total = 0, at = 0;
    for (uint32_t id = 0; id < t->vocab; id++)
        total += r->texts[id] ? strlen(r->texts[id]) : 0;
    t->piece_bytes = atom_alloc(total + 1, 1);
    if (!t->piece_bytes)
        return atom_fail_memory("token pieces", total);
    for (uint32_t b = 0; b < 256; b++)
        t->byte_ids[b] = TEXT_NO_ID;
    for (uint32_t id = 0; id < t->vocab; id++) {
        const char *content = r->texts[id] ? r->texts[id] : "";
        size_t n = 0;
        if (t->special[id] == 2 && t->recipe.metaspace) { /* as the decoder shows every token */
            n = take_spaced(content, t->piece_bytes + at);
        } else if (t->special[id]) {
            memcpy(t->piece_bytes + at, content, n = strlen(content));
        } else if (t->recipe.metaspace) {
            ATOM_TRY(take_characters(r, id, content, t->piece_bytes + at, &n));
        } else if (!take_shown(content, t->piece_bytes + at, &n)) {
            return unsupported(r, content, "not written in GPT-2's byte alphabet");
        }
        if (n == 1 && !t->special[id] && !t->recipe.metaspace)
            t->byte_ids[(uint8_t)t->piece_bytes[at]] = id;
        at += n;
        t->piece_ends[id] = at;
    }
    for (uint32_t b = 0; b < 256 && !t->unigram; b++)
        if (t->byte_ids[b] == TEXT_NO_ID)
            return atom_fail(ATOM_E_UNSUPPORTED,
                             "%s has no token for byte 0x%02x; train the tokenizer with the full "
                             "byte alphabet",
                             r->name, b);
    return ATOM_OK;
}

static uint32_t find(const reading *r, const char *content)
{
    const json_t *id = json_object_get(r->vocab, content);
    return id ? (uint32_t)json_integer_value(id) : TEXT_NO_ID;
}

/* "a b" (to 0.19) or ["a", "b"] (from 0.20): fresh "a\0b" and where b is; NULL if it is neither. */
static char *merge_parts(const json_t *entry, const char **b, bool *no_memory)
{
    const char *first = json_string_value(json_is_array(entry) ? json_array_get(entry, 0) : entry);
    const char *second = json_string_value(json_array_get(entry, 1));
    *no_memory = false;
    if (!first || (json_is_array(entry) && (json_array_size(entry) != 2 || !second)))
        return NULL;
    size_t cut = json_is_array(entry) ? strlen(first) : strcspn(first, " ");
    if (!json_is_array(entry)) {
        if (!first[cut])
            return NULL;
        second = first + cut + 1;
        if (strchr(second, ' '))
            return NULL;
    }
    size_t tail = strlen(second);
    char *parts = atom_alloc(cut + tail + 2, 1);
    *no_memory = !parts;
    if (parts) {
        memcpy(parts, first, cut);
        memcpy(parts + cut + 1, second, tail);
        *b = parts + cut + 1;
    }
    return parts;
}

static atom_status read_merges(reading *r, const json_t *merges)
{
    text_tokenizer *t = r->t;
    size_t n = json_array_size(merges);
    if (n >= TEXT_VOCAB_MAX)
        return wrong(r, "there are too many merges");
    t->merges_n = (uint32_t)n;
    t->merges = atom_alloc(n + 1, sizeof *t->merges);
    if (!t->merges)
        return atom_fail_memory("merges", n * sizeof *t->merges);
    for (size_t i = 0; i < n; i++) {
        const char *b = NULL;
        bool no_memory;
        char *parts = merge_parts(json_array_get(merges, i), &b, &no_memory);
        if (no_memory)
            return atom_fail_memory("a merge", 64);
        if (!parts)
            return atom_fail(ATOM_E_FORMAT, "%s: model.merges[%zu] is not a pair of tokens",
                             r->name, i);
        text_merge m = {.a = find(r, parts), .b = find(r, b)};
        memmove(parts + (b - parts) - 1, b, strlen(b) + 1);
        m.made = find(r, parts);
        bool known = m.a != TEXT_NO_ID && m.b != TEXT_NO_ID && m.made != TEXT_NO_ID;
        atom_free(parts);
        if (!known)
            return atom_fail(ATOM_E_FORMAT,
                             "%s: model.merges[%zu] uses or makes a token that is not in the "
                             "vocabulary",
                             r->name, i);
        t->merges[i] = m;
    }
    return ATOM_OK;
}

/* Would atom write such a file itself? */
static bool is_plain(const reading *r)
{
    const text_recipe *x = &r->t->recipe;
    return x->stages.n == 1 && x->stages.at[0] == text_pattern_gpt2() && !x->nfc &&
           !x->ignore_merges && !r->begin && !r->finish;
}

static atom_status read_all(reading *r, const json_t *root)
{
    text_tokenizer *t = r->t;
    json_t *model = json_object_get(root, "model");
    if (!json_is_object(root))
        return wrong(r, "it is not a JSON object");
    ATOM_TRY(text_steps_read(root, r->name, &t->recipe, &r->begin, &r->finish));
    if (t->recipe.unigram) {
        ATOM_TRY(text_unigram_read(model, r->name, &r->vocab, &t->unigram));
    } else {
        r->vocab = json_incref(json_object_get(model, "vocab"));
        if (!json_is_object(r->vocab))
            return wrong(r, "\"model.vocab\" is missing");
        if (!json_is_array(json_object_get(model, "merges")))
            return wrong(r, "\"model.merges\" is missing");
    }
    r->source = !is_plain(r);
    r->added = json_object_get(root, "added_tokens");
    ATOM_TRY(measure(r));
    r->texts = atom_alloc(t->vocab, sizeof *r->texts);
    t->special = atom_alloc(t->vocab, 1);
    t->manners = atom_alloc(t->vocab, 1);
    t->piece_ends = atom_alloc(t->vocab, sizeof *t->piece_ends);
    if (!r->texts || !t->special || !t->manners || !t->piece_ends)
        return atom_fail_memory("a vocabulary", (uint64_t)t->vocab * 18);
    ATOM_TRY(read_ids(r));
    ATOM_TRY(check_all_given(r, model));
    ATOM_TRY(read_ends(r));
    ATOM_TRY(read_added(r));
    ATOM_TRY(read_pieces(r));
    ATOM_TRY(read_merges(r, json_object_get(model, "merges")));
    ATOM_TRY(text_tokenizer_index(t));
    if (!t->unigram)
        ATOM_TRY(text_tokenizer_index_pieces(t));
    t->bytes_only = t->merges_n == 0 && !r->source;
    for (uint32_t b = 0; b < 256; b++)
        t->bytes_only = t->bytes_only && t->byte_ids[b] == b;
    return ATOM_OK;
}

atom_status text_tokenizer_parse(const char *json, size_t bytes, const char *name,
                                 text_tokenizer **out)
{
    reading r = {.name = name};
    json_t *root = NULL;
    ATOM_TRY(atom_json_parse(name, json, bytes, 0, &root));
    r.t = atom_alloc(1, sizeof *r.t);
    atom_status st = r.t ? read_all(&r, root) : atom_fail_memory("a tokenizer", sizeof *r.t);
    if (st == ATOM_OK && r.source) {
        r.t->source = atom_alloc(bytes, 1);
        r.t->source_bytes = bytes;
        if (r.t->source)
            memcpy(r.t->source, json, bytes);
        else
            st = atom_fail_memory("a tokenizer", bytes);
    }
    atom_free(r.texts);
    json_decref(r.vocab);
    json_decref(root);
    if (st == ATOM_OK)
        *out = r.t;
    else
        text_tokenizer_close(&r.t);
    return st;
}

atom_status text_tokenizer_load(const char *path, text_tokenizer **out)
{
    char *json = NULL;
    uint64_t bytes = 0;
    atom_status st = atom_file_read(path, FILE_BYTES_MAX, &json, &bytes);
    if (st == ATOM_OK)
        st = text_tokenizer_parse(json, bytes, path, out);
    atom_free(json);
    return st;
}
