/*
 * JSON files: parsing and writing them whole, and reading a number, flag or text of an object with
 * its range. `file` is for messages, which name it and the key.
 *
 * Ownership: a tree that is returned is released with json_decref, a text with atom_free. Thread:
 * no shared state. Errors: ATOM_E_FORMAT if a file is wrong, ATOM_E_RESOURCE if there is not enough
 * memory. Source: RFC 8259; parsed by jansson, duplicate keys refused.
 */
#ifndef ATOM_BASE_JSON_H
#define ATOM_BASE_JSON_H

#include "atom/base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An object. flags: more of jansson's, or 0. Errors: "file:line:column: what". */
ATOM_MUST atom_status atom_json_parse(const char *file, const char *text, size_t bytes,
                                      size_t flags, json_t **root);
/* Did jansson fail for want of memory? (Some ways leave no text at all.) */
bool atom_json_starved(const json_error_t *error);

/* The value at a key; NULL where there is none, or null. */
const json_t *atom_json_present(const json_t *object, const char *key);
/* The key must be there, and its number in [low, high]. */
ATOM_MUST atom_status atom_json_int(const char *file, const json_t *object, const char *key,
                                    int64_t low, int64_t high, int64_t *out);
ATOM_MUST atom_status atom_json_real(const char *file, const json_t *object, const char *key,
                                     double low, double high, double *out);
ATOM_MUST atom_status atom_json_flag(const char *file, const json_t *object, const char *key,
                                     bool *out);

/* The text of a tree (flags: jansson's) with `tail` after it. Releases root, which may be NULL: there
 * was no memory to make it. */
ATOM_MUST atom_status atom_json_text(json_t *root, size_t flags, const char *tail, char **text);
/* Writes that to a file, whole or not at all. */
ATOM_MUST atom_status atom_json_save(json_t *root, size_t flags, const char *tail,
                                     const char *path);

#endif
