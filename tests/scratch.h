/*
 * For tests that need files: a fresh directory under TMPDIR, gone at the end. Every caller removes
 * what it made with scratch_close.
 */
#ifndef TESTS_SCRATCH_H
#define TESTS_SCRATCH_H

#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct scratch {
    char dir[512];
    char path[4][640]; /* results of scratch_path, in turn */
    unsigned turn;
} scratch;

static inline scratch *scratch_open(scratch *s)
{
    const char *base = getenv("TMPDIR");
    memset(s, 0, sizeof *s);
    snprintf(s->dir, sizeof s->dir, "%s/atom-test-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(s->dir))
        abort();
    return s;
}

static inline void scratch_close(scratch *s)
{
    if (atom_dir_remove(s->dir) != ATOM_OK)
        abort();
}

/* dir/name; the last four results stay valid. */
static inline const char *scratch_path(scratch *s, const char *name)
{
    char *path = s->path[s->turn++ % 4];
    size_t dir_bytes = strlen(s->dir), name_bytes = strlen(name);
    if (dir_bytes + name_bytes + 2 > sizeof s->path[0])
        abort();
    memcpy(path, s->dir, dir_bytes);
    path[dir_bytes] = '/';
    memcpy(path + dir_bytes + 1, name, name_bytes + 1);
    return path;
}

static inline const char *scratch_write(scratch *s, const char *name, const void *data,
                                        size_t bytes)
{
    const char *path = scratch_path(s, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f))
        abort();
    return path;
}

#endif
