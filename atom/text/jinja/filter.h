/*
 * Filters (value | name(...)) and tests (value is name(...)), by name.
 *
 * Errors: heap.h; a name that is not known is refused with it.
 */
#ifndef ATOM_TEXT_JINJA_FILTER_H
#define ATOM_TEXT_JINJA_FILTER_H

#include "atom/text/jinja/args.h"

ATOM_MUST atom_status jinja_filter(jinja_heap *h, jinja_value v, const jinja_args *args,
                                   jinja_value *out);
ATOM_MUST atom_status jinja_test(jinja_heap *h, jinja_value v, const jinja_args *args, bool *out);

/* ---- for the files of filters only ---- */

typedef atom_status (*jinja_filter_fn)(jinja_heap *h, jinja_value v, const jinja_args *args,
                                       jinja_value *out);
typedef struct jinja_filter_row {
    const char *name;
    jinja_filter_fn call;
} jinja_filter_row;
extern const jinja_filter_row jinja_filters_of_text[]; /* ends with a row of NULLs */
extern const jinja_filter_row jinja_filters_of_lists[];

#endif
