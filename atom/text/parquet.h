/*
 * Parquet files as JSONL. atom has no reader of its own: it starts Python, `python3` or what ATOM_PYTHON
 * names, with a short program over pyarrow (parquet_script.h), and reads its lines.
 *
 * A row is a line: an object with those of its columns that atom has a use for. Lists and structs are
 * arrays and objects, dictionaries their values, nulls null, bytes a text if they are UTF-8. Maps, and
 * values that JSON has no form for (other bytes, NaN, decimals, dates and times), are refused by their
 * column.
 *
 * Thread: one at a time for each file. The process ends with the text_parquet, and when ours ends.
 */
#ifndef ATOM_TEXT_PARQUET_H
#define ATOM_TEXT_PARQUET_H

#include "atom/base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct text_parquet text_parquet;

/* Does a file of so many bytes begin and end as Parquet does? Needs no Python. ATOM_E_FORMAT: no. */
ATOM_MUST atom_status text_parquet_check(const char *path, uint64_t bytes);

/*
 * Errors here and of text_parquet_read: ATOM_E_FORMAT for a damaged file or a value without a form, as
 * "FILE: what" or "FILE, row:N: what"; ATOM_E_UNSUPPORTED without Python or pyarrow, with the line that
 * installs them; ATOM_E_RESOURCE where Python has no memory; ATOM_E_RUNTIME where it ends otherwise.
 */
ATOM_MUST atom_status text_parquet_open(const char *path, text_parquet **out);
void text_parquet_close(text_parquet **p);
/* Up to `want` > 0 further bytes of JSONL; *got is 0 at the end only, when every row has come. */
ATOM_MUST atom_status text_parquet_read(text_parquet *p, char *data, size_t want, size_t *got);
/* The file's bytes by the share of its rows that have been read. */
uint64_t text_parquet_used(const text_parquet *p);

/* pyarrow's version; ATOM_E_UNSUPPORTED, with what to do, where Parquet cannot be read. */
ATOM_MUST atom_status text_parquet_version(char out[32]);

#endif
