/*
 * The arguments of a call, and how they meet the names of parameters.
 *
 * Errors: heap.h; messages name what was called.
 */
#ifndef ATOM_TEXT_JINJA_ARGS_H
#define ATOM_TEXT_JINJA_ARGS_H

#include "atom/text/jinja/value.h"

typedef struct jinja_args {
    const char *of; /* the name of what is called */
    const jinja_value *places;
    size_t places_n;
    const char *const *names;
    const jinja_value *named;
    size_t named_n;
} jinja_args;

/* parameters: "a b c", of which the first `needed` must be given. out: [as many]; what is not given
 * is undefined with no name (jinja_missing). */
ATOM_MUST atom_status jinja_bind(const jinja_heap *h, const jinja_args *args,
                                 const char *parameters, size_t needed, jinja_value *out);
bool jinja_missing(jinja_value v);

/* Readings of a bound value, each with a default where it is missing. */
ATOM_MUST atom_status jinja_arg_text(const jinja_heap *h, const jinja_args *args, jinja_value v,
                                     const char *otherwise, jinja_text *out);
ATOM_MUST atom_status jinja_arg_int(const jinja_heap *h, const jinja_args *args, jinja_value v,
                                    int64_t otherwise, int64_t *out);

#endif
