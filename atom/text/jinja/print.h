/*
 * Values as text: as {{ }} prints them, as Python's repr writes them inside lists, and as JSON.
 *
 * Texts inside keep their marks; what stands around them is the template's. Errors: heap.h.
 */
#ifndef ATOM_TEXT_JINJA_PRINT_H
#define ATOM_TEXT_JINJA_PRINT_H

#include "atom/text/jinja/value.h"

/* Python's str(). What has no lasting text (an iterator, a macro) is refused. */
ATOM_MUST atom_status jinja_print(jinja_writer *w, jinja_value v);
ATOM_MUST atom_status jinja_to_text(jinja_heap *h, jinja_value v, jinja_text *out);

/* Python's json.dumps. */
typedef struct jinja_json_style {
    bool indented, ascii, sorted;
    jinja_text indent;       /* of one level; with indented */
    jinja_text comma, colon; /* between items, behind a key */
} jinja_json_style;
ATOM_MUST atom_status jinja_print_json(jinja_writer *w, jinja_value v,
                                       const jinja_json_style *style);

#endif
