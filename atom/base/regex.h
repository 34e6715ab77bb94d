/*
 * Opens a regular expression of PCRE2, with memory that is counted; matching is PCRE2's own.
 *
 * Ownership: atom_regex_close, which accepts a zeroed struct. Thread: one regex per thread, because a match
 * writes into it. Errors: ATOM_E_RESOURCE.
 */
#ifndef ATOM_BASE_REGEX_H
#define ATOM_BASE_REGEX_H

#include "atom/base/status.h"

#include <stdint.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

typedef struct atom_regex {
    pcre2_general_context *memory;
    pcre2_code *code;
    pcre2_match_data *match;
} atom_regex;

/* what: for the message when memory is short. flags: of pcre2_compile. Lines end with LF. *refused: PCRE2's
 * number if it does not take the text, which leaves nothing to match with; else 0. */
ATOM_MUST atom_status atom_regex_open(const char *what, const char *text, uint32_t flags,
                                      atom_regex *out, int *refused);
void atom_regex_close(atom_regex *r);

#endif
