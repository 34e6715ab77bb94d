/*
 * What the files of options share among themselves: options_value.c below, options_yaml.c,
 * options_document.c and options_help.c on it, options.c on top.
 */
#ifndef ATOM_OPTIONS_OPTIONS_INTERNAL_H
#define ATOM_OPTIONS_OPTIONS_INTERNAL_H

#include "atom/options/options.h"

#include <stdio.h>

/* A text being written. */
typedef struct opt_out {
    FILE *file;
    char *text;
    size_t bytes;
} opt_out;
ATOM_MUST atom_status opt_out_open(opt_out *out);
/* Gives the text, to be freed with atom_free, and closes in any case. */
ATOM_MUST atom_status opt_out_close(opt_out *out, char **text);

const char *opt_value_name(const opt_spec *spec);
void opt_write_value(FILE *f, const opt_spec *spec);

/* options_yaml.c: a parser of that text, and what is wrong where it stands. */
struct yaml_parser_s;
ATOM_MUST atom_status opt_yaml_begin(struct yaml_parser_s *parser, const char *text, size_t bytes);
ATOM_MUST atom_status opt_yaml_problem(const struct yaml_parser_s *parser, const char *path);

/* opt_find for the first `bytes` of a name. */
int32_t opt_find_part(const opt_command *command, const char *name, size_t bytes);
/* Like opt_set, without the option's name in the message. */
ATOM_MUST atom_status opt_set_value(const opt_spec *spec, const char *text, void *values);
/* Empties a LIST so that a later source replaces an earlier one. */
void opt_list_restart(const opt_command *command, uint32_t row, void *values);
/* Nearest name of the table to a misspelt one, or NULL. */
const char *opt_suggest(const opt_command *command, const char *word);
/* Logs a note when `name` is an alias of the row. */
void opt_note_alias(const opt_command *command, int32_t row, const char *name, size_t bytes);
/* "--device-memory" from "device_memory". Returns buf. */
char *opt_dashed(const char *name, char buf[64]);

#endif
