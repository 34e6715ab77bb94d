/*
 * Owns the tables that encoding with tokenizers of others looks into: ids by their piece, which
 * characters may follow each other inside a token, and added tokens in a text. One idea of the
 * second: where no token holds two characters side by side, no merge ever crosses between them, so
 * a metaspace text can be cut there into short pieces with the ids of the whole.
 */
#include "atom/base/mem.h"
#include "atom/text/tokenizer_inner.h"

/* Is this token made and found by merging? */
static bool is_ordinary(const text_tokenizer *t, uint32_t id, const char *piece, size_t bytes)
{
    if (bytes == 0 || t->special[id])
        return false;
    return !t->recipe.metaspace || bytes > 1 || t->byte_ids[(uint8_t)*piece] != id;
}

static atom_status index_whole(text_tokenizer *t)
{
    uint32_t slots = 16;
    while (slots < 2 * (uint64_t)t->vocab + 1)
        slots *= 2;
    t->whole.ids = atom_alloc(slots, sizeof *t->whole.ids);
    if (!t->whole.ids)
        return atom_fail_memory("a table of tokens", (uint64_t)slots * sizeof *t->whole.ids);
    t->whole.mask = slots - 1;
    memset(t->whole.ids, 0xff, slots * sizeof *t->whole.ids);
    for (uint32_t id = 0; id < t->vocab; id++) {
        size_t bytes;
        const char *piece = text_tokenizer_piece(t, id, &bytes);
        if (!is_ordinary(t, id, piece, bytes))
            continue;
        uint32_t i = text_bytes_hash(piece, bytes) & t->whole.mask;
        while (t->whole.ids[i] != TEXT_NO_ID)
            i = (i + 1) & t->whole.mask;
        t->whole.ids[i] = id;
    }
    return ATOM_OK;
}

static bool is_byte_token(const text_tokenizer *t, uint32_t id)
{
    size_t bytes;
    const char *piece = text_tokenizer_piece(t, id, &bytes);
    return bytes == 1 && t->byte_ids[(uint8_t)*piece] == id;
}

static atom_status index_joins(text_tokenizer *t)
{
    t->joins = atom_alloc(128, sizeof *t->joins);
    if (!t->joins)
        return atom_fail_memory("a table of characters", 128 * sizeof *t->joins);
    for (uint32_t i = 0; i < t->merges_n; i++)
        if (is_byte_token(t, t->merges[i].a) || is_byte_token(t, t->merges[i].b) ||
            t->special[t->merges[i].a] || t->special[t->merges[i].b] ||
            t->special[t->merges[i].made]) {
            memset(t->joins, 0xff, 128 * sizeof *t->joins);
            return ATOM_OK;
        }
    for (uint32_t id = 0; id < t->vocab; id++) {
        size_t bytes;
        const char *piece = text_tokenizer_piece(t, id, &bytes);
        if (!is_ordinary(t, id, piece, bytes))
            continue;
        uint32_t before = text_class((uint8_t)piece[0]);
        for (size_t at = 1; at < bytes; at++) {
            if (((uint8_t)piece[at] & 0xc0) == 0x80)
                continue;
            uint32_t class = text_class((uint8_t)piece[at]);
            t->joins[before][class / 8] |= (uint8_t)(1u << class % 8);
            before = class;
        }
    }
    return ATOM_OK;
}

atom_status text_tokenizer_index_pieces(text_tokenizer *t)
{
    atom_status st = ATOM_OK;
    if (t->recipe.metaspace || t->recipe.ignore_merges)
        st = index_whole(t);
    if (st == ATOM_OK && t->recipe.metaspace)
        st = index_joins(t);
    return st;
}

const text_added *text_added_find(const text_tokenizer *t, bool normalized, const char *text,
                                  size_t bytes, size_t *at)
{
    const uint8_t which = normalized ? 2 : 1;
    for (size_t i = *at; i < bytes; i++) {
        if (!(t->added_first[(uint8_t)text[i]] & which))
            continue;
        for (uint32_t k = 0; k < t->added_n; k++) {
            const text_added *a = &t->added[k];
            if (a->normalized != normalized || a->bytes > bytes - i ||
                memcmp(a->text, text + i, a->bytes) != 0)
                continue;
            if (!a->skip) {
                *at = i;
                return a;
            }
            i += a->bytes - 1;
            break;
        }
    }
    *at = bytes;
    return NULL;
}
