/*
 * What is done to texts, by methods and filters alike: as Python's str does it, over characters.
 *
 * All of them keep each byte's mark. Errors: heap.h.
 */
#ifndef ATOM_TEXT_JINJA_TEXT_H
#define ATOM_TEXT_JINJA_TEXT_H

#include "atom/text/jinja/value.h"

/* Characters as numbers; t is valid UTF-8. *n: its bytes. */
uint32_t jinja_char(jinja_text t, size_t at, size_t *n);

typedef enum jinja_case {
    JINJA_UPPER,
    JINJA_LOWER,
    JINJA_CAPITALIZE,  /* the first character, the others lower */
    JINJA_TITLE,       /* str.title: after each character that is no letter */
    JINJA_TITLE_WORDS, /* the filter title: after blanks, -, ( and the like */
} jinja_case;
/* Characters that become several are refused (as the German sharp s in upper case). */
ATOM_MUST atom_status jinja_recase(jinja_heap *h, jinja_text t, jinja_case how, jinja_text *out);
/* str.isupper, str.islower */
ATOM_MUST atom_status jinja_is_cased(jinja_heap *h, jinja_text t, bool upper, bool *out);

/* Without the characters of `set` (NULL: blanks) at its ends. */
ATOM_MUST atom_status jinja_strip(jinja_heap *h, jinja_text t, const jinja_text *set, bool left,
                                  bool right, jinja_text *out);
/* limit: of replacements; negative: all. */
ATOM_MUST atom_status jinja_replace(jinja_heap *h, jinja_text t, jinja_text what, jinja_text by,
                                    int64_t limit, jinja_text *out);
/* Parts of t as a list. on: NULL: blanks. limit: of cuts; negative: all. from_right: as rsplit. */
ATOM_MUST atom_status jinja_split(jinja_heap *h, jinja_text t, const jinja_text *on, int64_t limit,
                                  bool from_right, jinja_value *out);
ATOM_MUST atom_status jinja_splitlines(jinja_heap *h, jinja_text t, bool keep, jinja_value *out);
/* Does t begin, or end, with what? */
ATOM_MUST atom_status jinja_has_end(jinja_heap *h, jinja_text t, jinja_text what, bool begins,
                                    bool *out);
ATOM_MUST atom_status jinja_join(jinja_heap *h, jinja_text between, const jinja_list *items,
                                 jinja_text *out);

#endif
