/*
 * Turns files of records that are not JSONL into JSONL: a JSON array of objects, and CSV with a
 * header. Each block of such a file becomes lines with one object each, one line per record.
 *
 * Blocks end after a record, so that each can be read by itself. Thread: one per text_table; no
 * other state. Errors: ATOM_E_FORMAT "NAME:N: what", N being the record, from 1.
 */
#ifndef ATOM_TEXT_RECORDS_H
#define ATOM_TEXT_RECORDS_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a block is of its file. */
typedef struct text_records_place {
    const char *name;
    uint64_t record; /* number of its first one */
    bool first, last;
} text_records_place;

/* How many bytes of data end behind an element, with its comma; 0: none is whole. */
size_t text_array_cut(const char *data, size_t bytes, bool first);
/* In place: brackets and line ends become blanks, and the commas between elements line ends. The
 * elements themselves are left to whoever reads the lines. */
ATOM_MUST atom_status text_array_lines(const text_records_place *at, char *data, size_t bytes);

/* CSV as in RFC 4180: commas, quotes, a header with the keys; all values are texts. Zero it first. */
typedef struct text_table {
    char **keys; /* [n] */
    size_t n, capacity;
} text_table;
void text_table_fini(text_table *t);
/* How many bytes of data end behind a row; 0: none is whole. */
size_t text_table_cut(const char *data, size_t bytes);
/* The header is the first row, in the first block that has one. lines: fresh memory, *lines_bytes of it. */
ATOM_MUST atom_status text_table_lines(text_table *t, const text_records_place *at,
                                       const char *data, size_t bytes, char **lines,
                                       size_t *lines_bytes);

#endif
