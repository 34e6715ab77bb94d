/*
 * Owns the tokenizer object: pieces, merges, and the way back from ids to bytes. One idea:
 * everything is kept as raw bytes; GPT-2's printable alphabet exists only in the file
 * (tokenizer_json.c). Refuses ids that no token has.
 */
#include "atom/text/tokenizer.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "atom/text/tokenizer_inner.h"

#include <jansson.h>
#include <string.h>

/* GPT-2's order: the 188 bytes that are visible in Latin-1 ('!'..'~', 0xa1..0xac, 0xae..0xff), then
 * the other 68; both in increasing order. */
uint32_t text_byte_id(uint8_t byte)
{
    if (byte >= 0xae)
        return byte - 0xaeu + 94 + 12;
    if (byte >= 0xa1 && byte <= 0xac)
        return byte - 0xa1u + 94;
    if (byte >= 0x21 && byte <= 0x7e)
        return byte - 0x21u;
    if (byte <= 0x20)
        return byte + 188u;
    return byte == 0xad ? 255 : byte - 0x7fu + 188 + 33;
}

uint8_t text_id_byte(uint32_t id)
{
    ATOM_ASSERT(id < 256);
    if (id < 94)
        return (uint8_t)(id + 0x21);
    if (id < 94 + 12)
        return (uint8_t)(id - 94 + 0xa1);
    if (id < 188)
        return (uint8_t)(id - 94 - 12 + 0xae);
    if (id < 188 + 33)
        return (uint8_t)(id - 188);
    return id == 255 ? 0xad : (uint8_t)(id - 188 - 33 + 0x7f);
}

atom_status text_tokenizer_index(text_tokenizer *t)
{
    uint32_t slots = 16;
    while (slots < 2 * (uint64_t)t->merges_n + 1)
        slots *= 2;
    t->slots = atom_alloc(slots, sizeof *t->slots);
    if (!t->slots)
        return atom_fail_memory("the table of merges", (uint64_t)slots * sizeof *t->slots);
    t->slots_mask = slots - 1;
    for (uint32_t i = 0; i < slots; i++)
        t->slots[i].pair = TEXT_NO_PAIR;
    for (uint32_t rank = 0; rank < t->merges_n; rank++) {
        uint64_t pair = text_pair(t->merges[rank].a, t->merges[rank].b);
        uint32_t i = text_pair_hash(pair) & t->slots_mask;
        while (t->slots[i].pair != TEXT_NO_PAIR && t->slots[i].pair != pair)
            i = (i + 1) & t->slots_mask;
        t->slots[i] = (text_pair_slot){.pair = pair, .rank = rank};
    }
    return ATOM_OK;
}

/* 256 byte pieces in the given order, then the merged ones, then end-of-text. */
static atom_status fill_pieces(text_tokenizer *t, bool gpt2_order)
{
    uint64_t total = 256 + sizeof TEXT_END_OF_TEXT - 1, at = 256;
    t->piece_ends = atom_alloc(t->vocab, sizeof *t->piece_ends);
    t->special = atom_alloc(t->vocab, 1);
    if (!t->piece_ends || !t->special)
        return atom_fail_memory("token pieces", 9 * (uint64_t)t->vocab);
    for (uint32_t id = 0; id < 256; id++)
        t->piece_ends[id] = id + 1;
    for (uint32_t i = 0; i < t->merges_n; i++) {
        const uint32_t parts[2] = {t->merges[i].a, t->merges[i].b};
        for (int p = 0; p < 2; p++)
            at += t->piece_ends[parts[p]] - (parts[p] ? t->piece_ends[parts[p] - 1] : 0);
        t->piece_ends[256 + i] = at;
    }
    total += at - 256;
    t->piece_bytes = atom_alloc(total + 1, 1);
    if (!t->piece_bytes)
        return atom_fail_memory("token pieces", total);
    for (uint32_t id = 0; id < 256; id++) {
        uint8_t byte = gpt2_order ? text_id_byte(id) : (uint8_t)id;
        t->piece_bytes[id] = (char)byte;
        t->byte_ids[byte] = id;
    }
    char *out = t->piece_bytes + 256;
    for (uint32_t i = 0; i < t->merges_n; i++) {
        size_t a_bytes, b_bytes;
        const char *a = text_tokenizer_piece(t, t->merges[i].a, &a_bytes);
        const char *b = text_tokenizer_piece(t, t->merges[i].b, &b_bytes);
        memcpy(out, a, a_bytes);
        memcpy(out + a_bytes, b, b_bytes);
        out += a_bytes + b_bytes;
    }
    memcpy(out, TEXT_END_OF_TEXT, sizeof TEXT_END_OF_TEXT - 1);
    t->piece_ends[t->end] = total;
    t->special[t->end] = 1;
    return ATOM_OK;
}

static atom_status make(const text_merge *merges, uint32_t n, bool gpt2_order, text_tokenizer **out)
{
    atom_status st = ATOM_OK;
    text_tokenizer *t = atom_alloc(1, sizeof *t);
    if (!t)
        return atom_fail_memory("a tokenizer", sizeof *t);
    for (uint32_t i = 0; i < n; i++)
        ATOM_ASSERT(merges[i].made == 256 + i && merges[i].a < 256 + i && merges[i].b < 256 + i);
    t->vocab = TEXT_BYTES_VOCAB + n;
    t->end = t->start = t->vocab - 1;
    t->recipe.stages = (text_stages){{text_pattern_gpt2()}, 1};
    t->merges_n = n;
    t->bytes_only = !gpt2_order;
    t->merges = atom_alloc(n + 1, sizeof *t->merges);
    if (!t->merges)
        ATOM_TRY_CLEAN(atom_fail_memory("merges", (uint64_t)n * sizeof *t->merges));
    if (n)
        memcpy(t->merges, merges, n * sizeof *merges);
    ATOM_TRY_CLEAN(fill_pieces(t, gpt2_order));
    ATOM_TRY_CLEAN(text_tokenizer_index(t));
    *out = t;
    return ATOM_OK;
cleanup:
    text_tokenizer_close(&t);
    return st;
}

atom_status text_tokenizer_bytes(text_tokenizer **out)
{
    return make(NULL, 0, false, out);
}

atom_status text_tokenizer_bpe(const text_merge *merges, uint32_t n, text_tokenizer **out)
{
    return make(merges, n, true, out);
}

void text_tokenizer_close(text_tokenizer **tokenizer)
{
    text_tokenizer *t = *tokenizer;
    if (!t)
        return;
    atom_free(t->piece_ends);
    atom_free(t->piece_bytes);
    atom_free(t->special);
    atom_free(t->manners);
    atom_free(t->merges);
    atom_free(t->slots);
    atom_free(t->source);
    for (uint32_t i = 0; i < t->added_n; i++)
        atom_free(t->added[i].text);
    atom_free(t->added);
    atom_free(t->whole.ids);
    atom_free(t->joins);
    text_unigram_close(&t->unigram);
    text_charsmap_close(&t->recipe.charsmap);
    atom_free(t);
    *tokenizer = NULL;
}

uint32_t text_tokenizer_vocab(const text_tokenizer *t)
{
    return t->vocab;
}

uint32_t text_tokenizer_end(const text_tokenizer *t)
{
    return t->end;
}

uint32_t text_tokenizer_start(const text_tokenizer *t)
{
    return t->start;
}

bool text_tokenizer_leads(const text_tokenizer *t)
{
    return t->leads;
}

uint32_t text_tokenizer_manner(const text_tokenizer *t, uint32_t id)
{
    return t->manners && id < t->vocab ? t->manners[id] : 0;
}

text_cut text_tokenizer_cut(const text_tokenizer *t)
{
    size_t n;
    for (uint32_t id = 0; id < t->vocab; id++) {
        const char *piece = text_tokenizer_piece(t, id, &n);
        if (t->special[id] && (memchr(piece, '\n', n) || (text_tokenizer_manner(t, id) &
                                                          (TEXT_TAKES_LEFT | TEXT_TAKES_RIGHT))))
            return TEXT_CUT_NONE;
    }
    return text_stages_cut(&t->recipe.stages);
}

uint32_t text_tokenizer_merges(const text_tokenizer *t)
{
    return t->merges_n;
}

const char *text_tokenizer_kind(const text_tokenizer *t)
{
    return t->bytes_only ? "bytes" : t->unigram ? "unigram" : "bpe";
}

const char *text_tokenizer_piece(const text_tokenizer *t, uint32_t id, size_t *bytes)
{
    *bytes = 0;
    if (id >= t->vocab)
        return "";
    uint64_t start = id ? t->piece_ends[id - 1] : 0;
    *bytes = (size_t)(t->piece_ends[id] - start);
    return t->piece_bytes + start;
}

bool text_tokenizer_special(const text_tokenizer *t, uint32_t id)
{
    return id < t->vocab && t->special[id] != 0;
}

bool text_tokenizer_control(const text_tokenizer *t, uint32_t id)
{
    return id < t->vocab && t->special[id] == 1;
}

bool text_tokenizer_agrees(const text_tokenizer *a, const text_tokenizer *b)
{
    uint32_t n = a->vocab < b->vocab ? a->vocab : b->vocab;
    return memcmp(a->piece_ends, b->piece_ends, n * sizeof *a->piece_ends) == 0 &&
           memcmp(a->piece_bytes, b->piece_bytes, a->piece_ends[n - 1]) == 0;
}

/* Of a tokenizer of others: its file without what changes no id, and without the merges, which have been written in two
 * ways and are compared by themselves. */
static json_t *source_of(const text_tokenizer *t)
{
    json_t *root = json_loadb(t->source, (size_t)t->source_bytes, 0, NULL);
    json_t *model = json_object_get(root, "model");
    json_object_del(root, "truncation");
    json_object_del(root, "padding");
    json_object_del(model, "merges");
    if (json_is_false(json_object_get(model, "ignore_merges")))
        json_object_del(model, "ignore_merges");
    return root;
}

/* The library has written one tokenizer in several ways: with other white space, and with other words for its merges. */
static bool same_source(const text_tokenizer *a, const text_tokenizer *b)
{
    if (!a->source || !b->source)
        return a->source == b->source;
    if (a->source_bytes == b->source_bytes && memcmp(a->source, b->source, a->source_bytes) == 0)
        return true;
    json_t *one = source_of(a), *other = source_of(b);
    bool same = one && other && json_equal(one, other);
    json_decref(one);
    json_decref(other);
    return same;
}

bool text_tokenizer_equal(const text_tokenizer *a, const text_tokenizer *b)
{
    if (!same_source(a, b))
        return false;
    if (a->vocab != b->vocab || a->end != b->end || a->merges_n != b->merges_n)
        return false;
    uint64_t bytes = a->piece_ends[a->vocab - 1];
    return memcmp(a->piece_ends, b->piece_ends, a->vocab * sizeof *a->piece_ends) == 0 &&
           memcmp(a->piece_bytes, b->piece_bytes, bytes) == 0 &&
           memcmp(a->byte_ids, b->byte_ids, sizeof a->byte_ids) == 0 &&
           memcmp(a->special, b->special, a->vocab) == 0 &&
           (a->merges_n == 0 || memcmp(a->merges, b->merges, a->merges_n * sizeof *a->merges) == 0);
}

void text_ids_fini(text_ids *list)
{
    atom_free(list->ids);
    *list = (text_ids){0};
}

atom_status text_decode(const text_tokenizer *t, const uint32_t *ids, size_t n, bool show_end,
                        char **text, size_t *bytes)
{
    size_t total = 0, at = 0, piece_bytes;
    bool first = true;
    for (size_t i = 0; i < n; i++) {
        text_tokenizer_piece(t, ids[i], &piece_bytes);
        if (piece_bytes == 0)
            return atom_fail(ATOM_E_FORMAT, "token %u is not in the tokenizer's vocabulary of %u",
                             ids[i], t->vocab);
        total += piece_bytes;
    }
    char *out = atom_alloc(total + 1, 1);
    if (!out)
        return atom_fail_memory("decoded text", total);
    for (size_t i = 0; i < n; i++) {
        const char *piece = text_tokenizer_piece(t, ids[i], &piece_bytes);
        if (t->special[ids[i]] == 1 && !show_end)
            continue;
        bool drop = t->recipe.drop_first && first && !t->special[ids[i]];
        first = false;
        for (size_t k = 0; drop && k < piece_bytes; k++)
            if (piece[k] != ' ')
                out[at++] = piece[k];
        if (drop)
            continue;
        memcpy(out + at, piece, piece_bytes);
        at += piece_bytes;
    }
    if (t->recipe.prepend && !t->recipe.drop_first && at && out[0] == ' ')
        memmove(out, out + 1, --at);
    out[at] = 0;
    *text = out;
    *bytes = at;
    return ATOM_OK;
}
