/*
 * The device specs that are compiled in (partition/specs.cmake makes the table from
 * presets/devices/).
 */
#ifndef PARTITION_SPECS_H
#define PARTITION_SPECS_H

typedef struct part_spec {
    const char *name; /* "rtx-4090": the file's name without .json */
    const char *text; /* the file */
} part_spec;

/* In alphabetical order; ends with a name that is NULL. */
extern const part_spec part_specs[];
/* The same names, NULL-terminated. */
extern const char *const part_spec_names[];

#endif
