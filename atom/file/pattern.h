/*
 * Regular expressions as Python's re has them, as far as names of modules need it: PEFT chooses
 * modules of a model by them. Run by PCRE2, with a limit on how long one match may search.
 *
 * Ownership: file_pattern_close. Thread: one at a time.
 * Errors: ATOM_E_FORMAT for a pattern that PCRE2 refuses or that searches without end.
 */
#ifndef ATOM_FILE_PATTERN_H
#define ATOM_FILE_PATTERN_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct file_pattern file_pattern;

/* `where` begins messages: the file and the key. The text is copied. */
ATOM_MUST atom_status file_pattern_open(const char *where, const char *text, file_pattern **out);
void file_pattern_close(file_pattern **p);
/* Does the whole name match? */
ATOM_MUST atom_status file_pattern_whole(file_pattern *p, const char *name, bool *matches);
/* Does the beginning of the name match, and which number is its first group? -1: no match. */
ATOM_MUST atom_status file_pattern_number(file_pattern *p, const char *name, int64_t *number);

#endif
