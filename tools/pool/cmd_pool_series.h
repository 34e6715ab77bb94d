/*
 * A series of a few numbers per line of a growing JSONL file, thinned so that it always fits a
 * screen: when it is full, every second point goes, and from then on only every second line is
 * taken. Each reading takes up where the last one ended. Of a file that shrank, the points stay
 * where it is a diary of events, which goes on in a new file; else it is read anew.
 *
 * Thread: one at a time. Errors: none: a file that is not there is an empty series, a line that
 * does not parse is not a point.
 */
#ifndef TOOLS_POOL_CMD_POOL_SERIES_H
#define TOOLS_POOL_CMD_POOL_SERIES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { POOL_SERIES_MAX = 4096, POOL_SERIES_KEYS = 6 };

typedef struct pool_series {
    const char *path;                   /* not owned */
    const char *event;                  /* only lines whose "event" this is; NULL: all */
    const char *key[POOL_SERIES_KEYS];  /* in the lines; all must be numbers */
    const char *name[POOL_SERIES_KEYS]; /* in the answer; NULL: key */
    double point[POOL_SERIES_MAX][POOL_SERIES_KEYS];
    uint32_t n;
    uint64_t offset, lines, stride;
} pool_series;

/* The file and its length; -1: there is none, or it is not a regular file. Never waits: a FIFO there would
 * hold up whoever reads it. */
int pool_series_open(const char *path, uint64_t *bytes);
/* Reads what is new, at most 8 MiB at a time. */
void pool_series_read(pool_series *series);
/* [{name: number, ...}, ...]; NULL without memory. */
json_t *pool_series_json(const pool_series *series);

#endif
