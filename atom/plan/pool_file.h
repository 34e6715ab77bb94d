/*
 * The file that describes a group of hosts to `atom plan --pool`: who they are, by name or by class
 * with a count, and what is between them, as classes of lines, delays between regions, or two
 * matrices. What the keys mean: docs/guide/plan.md#a-group-of-hosts.
 *
 * Units: as the keys say (Mbit/s, ms, bytes). Thread: one caller. Ownership: _read and _parse give
 * an object that _close frees. Errors: ATOM_E_USAGE with path:line:column for what is wrong with the
 * file, and the nearest name for a word that is nearly right; ATOM_E_RESOURCE.
 */
#ifndef ATOM_PLAN_POOL_FILE_H
#define ATOM_PLAN_POOL_FILE_H

#include "atom/options/options.h"

typedef struct plan_pool_entry {
    char *name;    /* of the host, or of its class; never NULL once read */
    char *device;  /* a spec's name or file; NULL where a profile is named */
    char *profile; /* a file of `atom profile`, or NULL */
    char *link;    /* a class of lines; NULL with matrices */
    char *region;  /* NULL: everybody without one is in the same place */
    uint64_t device_memory, host_memory, disk; /* 0: all of it; what the device says; none */
    int64_t devices; /* of that kind in the host, each with device_memory */
    int64_t count;
    uint32_t line; /* in the file */
} plan_pool_entry;

typedef struct plan_pool_line {
    char *name;
    double down_mbit, up_mbit, delay_ms; /* delay: one way, from the host to the net */
} plan_pool_line;

typedef struct plan_pool_between {
    opt_list between; /* two regions */
    double delay_ms;  /* one way, beside the delays of both lines */
    uint32_t line;
} plan_pool_between;

typedef enum plan_pool_codec { PLAN_POOL_FP32, PLAN_POOL_BF16, PLAN_POOL_INT8 } plan_pool_codec;

typedef struct plan_pool_file {
    char *path; /* for messages */
    int64_t step_tokens;
    int32_t codec;               /* plan_pool_codec */
    char *delays_csv, *mbit_csv; /* both or neither */
    plan_pool_entry *entries;
    plan_pool_line *lines;
    plan_pool_between *regions;
    uint32_t n_entries, n_lines, n_regions;
} plan_pool_file;

ATOM_MUST atom_status plan_pool_file_read(const char *path, plan_pool_file **out);
/* The same for a text in memory; `path` is for messages. */
ATOM_MUST atom_status plan_pool_file_parse(const char *path, const char *text, size_t bytes,
                                           plan_pool_file **out);
void plan_pool_file_close(plan_pool_file **file);

uint32_t plan_pool_hosts(const plan_pool_file *file);
double plan_pool_codec_bytes(int32_t codec); /* per parameter on the wire */
const char *plan_pool_codec_name(int32_t codec);

#endif
