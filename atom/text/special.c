/*
 * Owns the search for special tokens. One idea: a table of first bytes lets most places be passed
 * over at once. Refuses tokens that are found by rules that atom does not have.
 */
#include "atom/text/special.h"

#include "atom/base/mem.h"
#include "atom/text/normalize.h"

#include <string.h>

atom_status text_specials_init(text_specials *s, const text_tokenizer *t)
{
    *s = (text_specials){.tokenizer = t};
    for (uint32_t id = 0; id < text_tokenizer_vocab(t); id++) {
        size_t n;
        if (!text_tokenizer_special(t, id))
            continue;
        ATOM_TRY(atom_grow(&s->ids, s->n, &s->capacity, sizeof *s->ids));
        s->ids[s->n++] = id;
        const char *piece = text_tokenizer_piece(t, id, &n);
        s->late = s->late || (text_tokenizer_manner(t, id) & TEXT_LATE);
        if (n)
            s->begins[(uint8_t)piece[0]] = true;
    }
    return ATOM_OK;
}

void text_specials_fini(text_specials *s)
{
    atom_free(s->ids);
    s->ids = NULL;
}

/* The longest one, of those that are late or of the others. */
static uint32_t longest_at(const text_specials *s, bool late, const char *text, size_t bytes,
                           size_t *used)
{
    uint32_t found = TEXT_NOT_SPECIAL;
    *used = 0;
    if (!bytes || !s->begins[(uint8_t)text[0]])
        return found;
    for (size_t i = 0; i < s->n; i++) {
        size_t n;
        const char *piece = text_tokenizer_piece(s->tokenizer, s->ids[i], &n);
        bool is_late = text_tokenizer_manner(s->tokenizer, s->ids[i]) & TEXT_LATE;
        if (is_late == late && n > *used && n <= bytes && memcmp(piece, text, n) == 0) {
            found = s->ids[i];
            *used = n;
        }
    }
    return found;
}

uint32_t text_special_at(const text_specials *s, const char *text, size_t bytes, size_t *used)
{
    uint32_t found = longest_at(s, false, text, bytes, used);
    size_t other, limit = bytes;
    while (found == TEXT_NOT_SPECIAL && s->late) {
        found = longest_at(s, true, text, limit, used);
        for (size_t at = 1; found != TEXT_NOT_SPECIAL && at < *used; at++)
            if (longest_at(s, false, text + at, bytes - at, &other) != TEXT_NOT_SPECIAL) {
                found = TEXT_NOT_SPECIAL;
                limit = at;
            }
        if (limit == bytes || found != TEXT_NOT_SPECIAL)
            break;
        bytes = limit;
    }
    return found;
}

atom_status text_special_take(const text_specials *s, uint32_t id, const char *text, size_t bytes,
                              size_t floor, size_t *from, size_t *to)
{
    const uint32_t manner = text_tokenizer_manner(s->tokenizer, id);
    if (manner & (TEXT_ALONE | TEXT_CHANGED))
        return atom_fail(
            ATOM_E_FORMAT,
            "the special token %.*s has \"%s\" in tokenizer.json, so atom cannot tell where in a "
            "text the model would see it; set that to false there",
            (int)(*to - *from), text + *from, manner & TEXT_ALONE ? "single_word" : "normalized");
    text_widen(text, bytes, floor, manner & TEXT_TAKES_LEFT, manner & TEXT_TAKES_RIGHT, from, to);
    return ATOM_OK;
}

bool text_special_named(const text_specials *s, const char *name)
{
    size_t used, n = strlen(name);
    return text_special_at(s, name, n, &used) != TEXT_NOT_SPECIAL && used == n;
}
