/*
 * The methods of texts, dicts and lists that do not change them, by name; and formatting of texts.
 *
 * Errors: heap.h.
 */
#ifndef ATOM_TEXT_JINJA_METHOD_H
#define ATOM_TEXT_JINJA_METHOD_H

#include "atom/text/jinja/args.h"

/* Has a value of this kind the method in Python? Also one that atom refuses when it is called. */
bool jinja_has_method(jinja_value self, const char *name);
ATOM_MUST atom_status jinja_call_method(jinja_heap *h, jinja_value self, const jinja_args *args,
                                        jinja_value *out);

/* text % value, where value is one, a tuple of several, or a dict: %s and %d only. */
ATOM_MUST atom_status jinja_percent(jinja_heap *h, jinja_text t, jinja_value value,
                                    jinja_value *out);

#endif
