/*
 * Values compared and computed with: <, in, +, *, %, and sorting. As in Python, with whole numbers
 * of 64 bits: what would be more is refused. Errors: heap.h.
 */
#ifndef ATOM_TEXT_JINJA_ORDER_H
#define ATOM_TEXT_JINJA_ORDER_H

#include "atom/text/jinja/value.h"

/* <0, 0, >0. Fails for types that have no order. */
ATOM_MUST atom_status jinja_compare(jinja_heap *h, jinja_value a, jinja_value b, int *out);
/* order: [n], a permutation that is sorted in place by keys, stably. */
ATOM_MUST atom_status jinja_sort(jinja_heap *h, const jinja_value *keys, size_t n, bool reverse,
                                 size_t *order);
/* Python's in. */
ATOM_MUST atom_status jinja_contains(jinja_heap *h, jinja_value in, jinja_value what, bool *out);

typedef enum jinja_operator {
    JINJA_ADD,
    JINJA_SUB,
    JINJA_MUL,
    JINJA_DIV,
    JINJA_FLOORDIV,
    JINJA_MOD,
    JINJA_POW,
} jinja_operator;
/* MOD does numbers only: formatting of texts is the filter format's. */
ATOM_MUST atom_status jinja_operate(jinja_heap *h, jinja_operator op, jinja_value a, jinja_value b,
                                    jinja_value *out);
ATOM_MUST atom_status jinja_negate(jinja_heap *h, jinja_value v, jinja_value *out);

/* *out: offset of the first `what` in t from `from` on, or of the last one in all of t; t.n + 1:
 * nowhere. */
ATOM_MUST atom_status jinja_find(jinja_heap *h, jinja_text t, jinja_text what, size_t from,
                                 size_t *out);
ATOM_MUST atom_status jinja_find_last(jinja_heap *h, jinja_text t, jinja_text what, size_t *out);

#endif
