/*
 * Owns the search for special tokens. One idea: a table of first bytes lets most places be passed
 * over at once. Refuses nothing.
 */
#include "atom/text/special.h"

#include "atom/base/mem.h"

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

uint32_t text_special_at(const text_specials *s, const char *text, size_t bytes, size_t *used)
{
    uint32_t found = TEXT_NOT_SPECIAL;
    *used = 0;
    if (!bytes || !s->begins[(uint8_t)text[0]])
        return found;
    for (size_t i = 0; i < s->n; i++) {
        size_t n;
        const char *piece = text_tokenizer_piece(s->tokenizer, s->ids[i], &n);
        if (n > *used && n <= bytes && memcmp(piece, text, n) == 0) {
            found = s->ids[i];
            *used = n;
        }
    }
    return found;
}

bool text_special_named(const text_specials *s, const char *name)
{
    size_t used, n = strlen(name);
    return text_special_at(s, name, n, &used) != TEXT_NOT_SPECIAL && used == n;
}
