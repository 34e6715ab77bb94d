/*
 * Small JSON files: writing, and why reading failed.
 */
#ifndef ATOM_TEXT_JSON_FILE_H
#define ATOM_TEXT_JSON_FILE_H

#include "atom/base/status.h"

#include <jansson.h>
#include <stdbool.h>

/* Writes root to path, whole or not at all, and lets go of it. root may be NULL: no memory. */
ATOM_MUST atom_status text_json_save(json_t *root, const char *path);

/* Did reading fail for want of memory? (Some ways leave no text at all.) */
bool text_json_starved(const json_error_t *error);

#endif
