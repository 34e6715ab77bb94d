/*
 * Strict JSON in, stable JSON out. Internal to partition.
 *
 * Reading: every key must be known, present and of the right type and range; a message names the
 * file, the place in it and what was expected. Writing: keys in a fixed order, numbers in the
 * shortest form that reads back to the same bits, so equal objects give equal bytes.
 *
 * Source: RFC 8259; parsed by jansson with duplicate keys refused.
 */
#ifndef PARTITION_JSON_H
#define PARTITION_JSON_H

#include "partition/plan.h"

#include <jansson.h>

/* One object that is being read: `file` and `where` ("sub_models[3]", "" at the top) are for
 * messages. */
typedef struct part_in {
    const char *file;
    char where[64];
    const json_t *object;
} part_in;

enum { PART_FILE_BYTES_MAX = 64 << 20 };

/* Parses text; release with json_decref. ATOM_E_FORMAT: "file:line:column: reason". */
ATOM_MUST atom_status part_in_load(const char *file, const char *text, size_t bytes, json_t **root);
/* Is it an object with exactly these keys (NULL-terminated list)? */
ATOM_MUST atom_status part_in_keys(const part_in *in, const char *const *keys);
ATOM_MUST atom_status part_in_version(const part_in *in, const char *key, int64_t version);
/* Numbers must lie in [low, high]. */
ATOM_MUST atom_status part_in_i64(const part_in *in, const char *key, int64_t low, int64_t high,
                                  int64_t *out);
ATOM_MUST atom_status part_in_u32(const part_in *in, const char *key, uint32_t low, uint32_t high,
                                  uint32_t *out);
ATOM_MUST atom_status part_in_u64(const part_in *in, const char *key, uint64_t low, uint64_t high,
                                  uint64_t *out);
ATOM_MUST atom_status part_in_f64(const part_in *in, const char *key, double low, double high,
                                  double *out);
ATOM_MUST atom_status part_in_bool(const part_in *in, const char *key, bool *out);
/* A string of 1 .. size-1 bytes without control characters. */
ATOM_MUST atom_status part_in_text(const part_in *in, const char *key, char *out, size_t size);
/* "0x" and 16 hexadecimal digits. */
ATOM_MUST atom_status part_in_hash(const part_in *in, const char *key, uint64_t *out);
/* One of n names; *out is its index. */
ATOM_MUST atom_status part_in_choice(const part_in *in, const char *key, const char *const *names,
                                     int n, int *out);
ATOM_MUST atom_status part_in_dtype(const part_in *in, const char *key, atom_dtype *out);
/* The array at key, with low .. high items. */
ATOM_MUST atom_status part_in_array(const part_in *in, const char *key, size_t low, size_t high,
                                    json_t **out);
/* The object at key, or item i of an array: fills *child; its keys are not checked yet. */
ATOM_MUST atom_status part_in_child(const part_in *in, const char *key, part_in *child);
ATOM_MUST atom_status part_in_item(const part_in *in, const char *key, const json_t *array,
                                   size_t i, part_in *child);

/* Text that grows. All calls are no-ops once `bad`. */
typedef struct part_out {
    char *text;
    size_t n, room;
    uint32_t depth;
    bool flat;  /* inside an object that stays on one line */
    bool comma; /* something stands before the next item */
    bool bad;   /* want of memory */
} part_out;

/* bracket is '{' or '['; key may be NULL (top, or array item). flat: keep it all on one line. */
void part_out_begin(part_out *o, const char *key, char bracket, bool flat);
void part_out_end(part_out *o, char bracket);
void part_out_i64(part_out *o, const char *key, int64_t value);
void part_out_u64(part_out *o, const char *key, uint64_t value);
void part_out_f64(part_out *o, const char *key, double value);
void part_out_bool(part_out *o, const char *key, bool value);
void part_out_text(part_out *o, const char *key, const char *value);
void part_out_hash(part_out *o, const char *key, uint64_t value);
/* Ends the text with a newline and hands it over (free with atom_free), or fails. */
ATOM_MUST atom_status part_out_take(part_out *o, char **text);

/* The parsers themselves, for files and for fuzzing; `file` is for messages. */
ATOM_MUST atom_status part_profile_parse(const char *file, const char *text, size_t bytes,
                                         part_profile **out);
ATOM_MUST atom_status part_plan_parse(const char *file, const char *text, size_t bytes,
                                      part_plan **out);
ATOM_MUST atom_status part_device_parse(const char *file, const char *text, size_t bytes,
                                        part_device *out);
/* ATOM_E_USAGE names the figure that makes no sense; profile.c. */
ATOM_MUST atom_status part_device_check(const part_device *device);

#endif
