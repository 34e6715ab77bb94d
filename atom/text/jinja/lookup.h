/*
 * What stands behind a dot or in brackets: value.name, value[key], value[from:to:step].
 *
 * Errors: heap.h. What is not there is undefined, as in Jinja2; of something undefined nothing can
 * be asked.
 */
#ifndef ATOM_TEXT_JINJA_LOOKUP_H
#define ATOM_TEXT_JINJA_LOOKUP_H

#include "atom/text/jinja/value.h"

/* name: lives as long as the value. */
ATOM_MUST atom_status jinja_attribute(jinja_heap *h, jinja_value v, const char *name,
                                      jinja_value *out);
ATOM_MUST atom_status jinja_item(jinja_heap *h, jinja_value v, jinja_value key, jinja_value *out);
/* parts: from, to, step; none where they are not given. */
ATOM_MUST atom_status jinja_slice(jinja_heap *h, jinja_value v, const jinja_value parts[3],
                                  jinja_value *out);
/* "a.b.0": attributes and indices, as map(attribute=...) has them; or a number. */
ATOM_MUST atom_status jinja_path(jinja_heap *h, jinja_value v, jinja_value path, jinja_value *out);

#endif
