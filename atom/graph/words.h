/*
 * Words of a line of graph text: a kind, a name and key=value fields. Not for other folders.
 * Spans point into the text, which is not trusted and not NUL-terminated.
 */
#ifndef ATOM_GRAPH_WORDS_H
#define ATOM_GRAPH_WORDS_H

#include "atom/graph/build.h"

enum { GRAPH_FIELDS_MAX = 18, GRAPH_SHOWN_MAX = 48 };

typedef struct graph_span {
    const char *s;
    size_t n;
} graph_span;

typedef struct graph_field {
    graph_span key, value;
    bool taken; /* somebody asked for it */
} graph_field;

typedef struct graph_line {
    graph_span kind; /* empty for a line without meaning */
    graph_span name;
    uint32_t n_fields;
    graph_field fields[GRAPH_FIELDS_MAX];
} graph_line;

bool graph_span_is(graph_span a, const char *text);
/* For messages: cut, and with what could disturb a terminal replaced. Returns buf. */
const char *graph_span_show(graph_span a, char buf[GRAPH_SHOWN_MAX]);
/* The next item of a comma list; false at the end. *list shrinks; an empty item is an item. */
bool graph_span_next(graph_span *list, graph_span *item);

/* Splits at..end, one line without its newline. ATOM_E_FORMAT for a word that is not key=value, a
 * key that appears twice, or too many of them. */
ATOM_MUST atom_status graph_line_split(const char *at, const char *end, graph_line *line);
/* ATOM_E_FORMAT when a field was never asked for. */
ATOM_MUST atom_status graph_line_done(const graph_line *line);

/* Values by key. A missing key is ATOM_E_FORMAT where `need`, else leaves *value alone. */
bool graph_field_find(graph_line *line, const char *key, graph_span *value);
ATOM_MUST atom_status graph_field_need(graph_line *line, const char *key, graph_span *value);
/* One of n words; *choice is its index. */
ATOM_MUST atom_status graph_field_choice(graph_line *line, const char *key,
                                         const char *const *words, int n, int *choice);
/* Decimal digits, 0 .. most. */
ATOM_MUST atom_status graph_field_int(graph_line *line, const char *key, bool need, int64_t most,
                                      int64_t *value);
/* "0x" hex digits "p" [-] digits, or "0"; exact as a float. */
ATOM_MUST atom_status graph_field_float(graph_line *line, const char *key, bool need, float *value);
/* Such floats with commas between, at most n of them. */
ATOM_MUST atom_status graph_field_floats(graph_line *line, const char *key, int n, float *values);
/* "dims": whole numbers below 2^31 with commas between. */
ATOM_MUST atom_status graph_field_dims(graph_line *line, int *rank, int64_t dims[GRAPH_RANK_MAX]);

#endif
