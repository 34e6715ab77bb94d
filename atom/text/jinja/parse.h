/*
 * Tokens to a tree. What transformers' environment does not have (include, import, extends, block
 * and so on) is refused by name.
 *
 * The tree lives in the heap of the parser. Errors: heap.h, with the line.
 */
#ifndef ATOM_TEXT_JINJA_PARSE_H
#define ATOM_TEXT_JINJA_PARSE_H

#include "atom/text/jinja/lex.h"
#include "atom/text/jinja/node.h"

typedef struct jinja_parser {
    jinja_heap *h;
    const jinja_tokens *tokens;
    size_t at;
    uint32_t loops;  /* around the place */
    bool generation; /* was there a {% generation %}? */
    bool caller;     /* was `caller` named since this was set to false? */
} jinja_parser;

/* The whole of a template: statements. */
ATOM_MUST atom_status jinja_parse(jinja_parser *p, jinja_nodes *out);

/* ---- for the parser's own two files ---- */

const jinja_token *jinja_peek(const jinja_parser *p);
const jinja_token *jinja_next(jinja_parser *p);
bool jinja_at_sign(const jinja_parser *p, const char *sign);
bool jinja_at_name(const jinja_parser *p, const char *name);
bool jinja_skip_sign(jinja_parser *p, const char *sign);
bool jinja_skip_name(jinja_parser *p, const char *name);
ATOM_MUST atom_status jinja_expect_sign(jinja_parser *p, const char *sign);
ATOM_MUST atom_status jinja_expect_name(jinja_parser *p, const char **name);
/* "expected X, but found Y" */
ATOM_MUST atom_status jinja_unexpected(const jinja_parser *p, const char *wanted);

ATOM_MUST atom_status jinja_new_node(jinja_parser *p, jinja_node_kind kind, jinja_node **out);
ATOM_MUST atom_status jinja_add_node(jinja_parser *p, jinja_nodes *list, jinja_node *node);
ATOM_MUST atom_status jinja_add_arg(jinja_parser *p, jinja_node *node, jinja_node_arg arg);

/* One expression; conditional: with `x if y`. */
ATOM_MUST atom_status jinja_parse_expression(jinja_parser *p, bool conditional, jinja_node **out);
/* One, or several with commas between: a tuple. end: a name that ends it, or NULL. */
ATOM_MUST atom_status jinja_parse_tuple(jinja_parser *p, bool conditional, const char *end,
                                        jinja_node **out);
/* A name, name.attribute, or a tuple of such. */
ATOM_MUST atom_status jinja_parse_target(jinja_parser *p, const char *end, jinja_node **out);
/* first: a filter's name comes next, without |; then `| name(args)` as often as there is one. */
ATOM_MUST atom_status jinja_parse_filters(jinja_parser *p, bool first, jinja_node *of,
                                          jinja_node **out);

#endif
