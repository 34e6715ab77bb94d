/*
 * Owns the way from a plain text to ids. One idea: the names of control tokens are always looked
 * for and counted, and the rule decides what becomes of them, so that nobody has to guess what
 * happened. Refuses nothing.
 */
#include "atom/text/plain.h"

#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>

const char *text_special_rule_name(text_special_rule rule)
{
    return rule == TEXT_SPECIAL_IDS ? "ids" : "bytes";
}

/* Text behind a token, or at the very beginning. */
static atom_status put_run(text_encoder *e, const char *text, size_t from, size_t to, text_ids *out)
{
    if (from == to && from)
        return ATOM_OK;
    return from ? text_encode_behind(e, text + from, to - from, out)
                : text_encode(e, text, to, out, NULL);
}

atom_status text_plain_encode(const text_specials *s, text_special_rule rule, text_encoder *e,
                              const char *text, size_t bytes, text_ids *out, text_named *named)
{
    size_t run = 0, used;
    for (size_t at = 0; at < bytes; at += used ? used : 1) {
        uint32_t id = text_special_at(s, text + at, bytes - at, &used);
        if (id == TEXT_NOT_SPECIAL || !text_tokenizer_control(s->tokenizer, id))
            continue;
        if (named->n++ == 0)
            snprintf(named->first, sizeof named->first, "%.*s", (int)used, text + at);
        if (rule == TEXT_SPECIAL_BYTES)
            continue;
        size_t from = at, to = at + used;
        ATOM_TRY(text_special_take(s, id, text, bytes, run, &from, &to));
        ATOM_TRY(put_run(e, text, run, from, out));
        ATOM_TRY(atom_grow(&out->ids, out->n, &out->capacity, sizeof *out->ids));
        out->ids[out->n++] = id;
        run = to;
        used = to - at;
    }
    return put_run(e, text, run, bytes, out);
}
