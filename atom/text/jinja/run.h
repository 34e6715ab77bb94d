/*
 * Statements: a tree is run, and what it prints is written.
 *
 * Thread: one per run. Errors: heap.h.
 */
#ifndef ATOM_TEXT_JINJA_RUN_H
#define ATOM_TEXT_JINJA_RUN_H

#include "atom/text/jinja/evaluate.h"

/* out: what was printed, in the heap. */
ATOM_MUST atom_status jinja_run_template(jinja_heap *h, const jinja_nodes *body,
                                         const jinja_dict *globals, int64_t now, jinja_text *out);

#endif
