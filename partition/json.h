/*
 * Strict JSON in, stable JSON out. Internal to partition.
 *
 * One table per kind of object (part_field) says what it holds, for both directions. Reading: every
 * key must be known, present and of the right type and range; a message names the file, the place
 * in it and what was expected. Writing: keys in the table's order, numbers in the shortest form
 * that reads back to the same bits, so equal objects give equal bytes.
 *
 * Source: RFC 8259; parsed by atom/base/json.h.
 */
#ifndef PARTITION_JSON_H
#define PARTITION_JSON_H

#include "atom/base/json.h"
#include "partition/plan.h"

#include <stdio.h>

/* --- reading --------------------------------------------------------------------------------- */

/* One object that is being read: `file` and `where` ("sub_models[3]", "" at the top) are for
 * messages. */
typedef struct part_in {
    const char *file;
    char where[64];
    const json_t *object;
} part_in;

enum { PART_FILE_BYTES_MAX = 64 << 20 };

/* Is it an object with all of these keys, perhaps some of the optional ones, and no others? Both lists
 * end with NULL; `optional` may be NULL. */
ATOM_MUST atom_status part_in_keys(const part_in *in, const char *const *keys,
                                   const char *const *optional);
ATOM_MUST atom_status part_in_version(const part_in *in, const char *key, int64_t version);
/* Numbers must lie in [low, high]. */
ATOM_MUST atom_status part_in_i64(const part_in *in, const char *key, int64_t low, int64_t high,
                                  int64_t *out);
ATOM_MUST atom_status part_in_f64(const part_in *in, const char *key, double low, double high,
                                  double *out);
/* A string of 1 .. size-1 bytes without control characters. */
ATOM_MUST atom_status part_in_text(const part_in *in, const char *key, char *out, size_t size);
/* Item i of the array at key, an integer. */
ATOM_MUST atom_status part_in_i64_at(const part_in *in, const char *key, size_t i, int64_t low,
                                     int64_t high, int64_t *out);
/* ATOM_E_FORMAT: the file, the key, and what is wrong with it. */
ATOM_MUST atom_status part_in_wrong(const part_in *in, const char *key, const char *what);
/* The array at key, with low .. high items. */
ATOM_MUST atom_status part_in_array(const part_in *in, const char *key, size_t low, size_t high,
                                    json_t **out);
/* The object at key, or item i of an array: fills *child; its keys are not checked yet. */
ATOM_MUST atom_status part_in_child(const part_in *in, const char *key, part_in *child);
ATOM_MUST atom_status part_in_item(const part_in *in, const char *key, const json_t *array,
                                   size_t i, part_in *child);

/* --- writing --------------------------------------------------------------------------------- */

/* One text. Want of memory shows at part_out_take(). */
typedef struct part_out {
    FILE *file;
    char *text; /* of file */
    size_t bytes;
    uint32_t depth;
    bool flat;  /* inside an object that stays on one line */
    bool comma; /* something stands before the next item */
} part_out;

ATOM_MUST atom_status part_out_open(part_out *o);
/* bracket is '{' or '['; key may be NULL (top, or array item). flat: keep it all on one line. */
void part_out_begin(part_out *o, const char *key, char bracket, bool flat);
void part_out_end(part_out *o, char bracket);
void part_out_i64(part_out *o, const char *key, int64_t value);
/* n bytes of text. */
void part_out_text(part_out *o, const char *key, const char *text, size_t n);
/* Ends the text with a newline and hands it over (free with atom_free), or fails. */
ATOM_MUST atom_status part_out_take(part_out *o, char **text);
/* Writes a text that was handed over to a file, and frees it. */
ATOM_MUST atom_status part_out_file(char *text, const char *path);

/* --- both ways ------------------------------------------------------------------------------- */

typedef enum part_field_kind {
    PART_FIELD_INTEGER, /* of 32 or 64 bits, never negative */
    PART_FIELD_F64,
    PART_FIELD_BOOL,
    PART_FIELD_TEXT,   /* char[size] */
    PART_FIELD_HASH,   /* uint64_t */
    PART_FIELD_DTYPE,  /* atom_dtype: fp32 or bf16 */
    PART_FIELD_CHOICE, /* an enum, or a bool: one of `names` by its value */
    PART_FIELD_INSIDE  /* the version, or what has brackets of its own: the caller's */
} part_field_kind;

/* A key of an object, and the member of a struct that it stands for. */
typedef struct part_field {
    const char *key;
    part_field_kind kind;
    bool optional;    /* may be missing; written where it is not zero */
    size_t at, size;  /* offset and bytes of the member */
    double low, high; /* of numbers */
    const char *const *names;
    int n_names;
} part_field;

/* A row of such a table: the key is the member's name, or another; what follows are other members
 * of part_field. low and high must be exact as doubles. */
#define PART_FIELD(type, member, kind, ...) PART_FIELD_AS(type, member, #member, kind, __VA_ARGS__)
#define PART_FIELD_AS(type, member, key_, kind_, ...)                                              \
    {                                                                                              \
        .key = (key_), .kind = PART_FIELD_##kind_, .at = offsetof(type, member),                   \
        .size = sizeof(((type *)0)->member), __VA_ARGS__                                           \
    }

/* n fields. The object's keys must be these, and the others that are not optional. */
ATOM_MUST atom_status part_in_fields(const part_in *in, const part_field *fields, size_t n,
                                     void *object);
void part_out_fields(part_out *o, const part_field *fields, size_t n, const void *object);

/* --- files ----------------------------------------------------------------------------------- */

/* The parsers themselves, for files and for fuzzing; `file` is for messages. */
ATOM_MUST atom_status part_profile_parse(const char *file, const char *text, size_t bytes,
                                         part_profile **out);
ATOM_MUST atom_status part_rates_parse(const char *file, const char *text, size_t bytes,
                                       part_device *rates);
ATOM_MUST atom_status part_plan_parse(const char *file, const char *text, size_t bytes,
                                      part_plan **out);
ATOM_MUST atom_status part_device_parse(const char *file, const char *text, size_t bytes,
                                        part_device *out);
/* ATOM_E_USAGE names the figure that makes no sense; profile.c. */
ATOM_MUST atom_status part_device_check(const part_device *device);

#endif
