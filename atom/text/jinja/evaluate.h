/*
 * Expressions: a node and the names around it become a value.
 *
 * Thread: one per run. Errors: heap.h, with the line of the statement.
 */
#ifndef ATOM_TEXT_JINJA_EVALUATE_H
#define ATOM_TEXT_JINJA_EVALUATE_H

#include "atom/text/jinja/args.h"
#include "atom/text/jinja/node.h"

typedef struct jinja_binding {
    struct jinja_binding *next;
    const char *name;
    jinja_value value;
} jinja_binding;

/* Names of a block, and what it stands in. */
typedef struct jinja_scope {
    struct jinja_scope *outer;
    jinja_binding *bindings;
} jinja_scope;

typedef enum jinja_jump { JINJA_STAY, JINJA_BREAK, JINJA_CONTINUE } jinja_jump;

/* One rendering. */
typedef struct jinja_run {
    jinja_heap *h;
    const jinja_dict *globals; /* messages, tools, bos_token ... */
    jinja_scope *scope;
    jinja_writer *out;
    jinja_jump jump;
    jinja_value piped; /* what the first filter of a block takes */
    int64_t now;       /* for strftime_now: seconds since 1970 */
    /* Runs a macro, or a recursive loop once more. The statements' part. */
    atom_status (*call)(struct jinja_run *r, const jinja_callable *callee, const jinja_args *args,
                        jinja_value *out);
} jinja_run;

ATOM_MUST atom_status jinja_evaluate(jinja_run *r, const jinja_node *node, jinja_value *out);
/* args of a call, a filter or a test. more: an argument `caller`, or NULL. */
ATOM_MUST atom_status jinja_evaluate_args(jinja_run *r, const jinja_node *node, const char *of,
                                          const jinja_value *caller, jinja_args *out);
ATOM_MUST atom_status jinja_call(jinja_run *r, jinja_value callee, const jinja_args *args,
                                 jinja_value *out);
/* Sets a name in the innermost scope. name: lives as long as the heap. */
ATOM_MUST atom_status jinja_define(jinja_run *r, const char *name, jinja_value value);

/* The functions that every template has: range, dict, namespace, raise_exception, strftime_now. */
bool jinja_has_function(const char *name);
ATOM_MUST atom_status jinja_call_function(jinja_heap *h, int64_t now, const jinja_args *args,
                                          jinja_value *out);

#endif
