/*
 * The file that says which pools a box takes part in, and with which shares (pools.yml):
 *
 *     slice_seconds: auto         # of a turn; auto follows from what a switch costs
 *     hours: 22:00-07:00          # when the box computes at all; left out: always
 *     pools:
 *       - dir: friends            # what `atom pool join -o` made; beside this file
 *         share: 2
 *       - dir: cats
 *         ticket: cats.txt        # joined where dir holds no membership yet
 *         hours: 00:00-06:00      # of this pool
 *         devices: 2              # that compute for it; left out: as dir remembers
 *
 * Ownership: _read and _parse give an object that _close frees. Thread: one caller.
 * Errors: ATOM_E_USAGE with path:line:column, what is wrong and the nearest word; ATOM_E_RESOURCE.
 */
#ifndef ATOM_HOST_POOLS_H
#define ATOM_HOST_POOLS_H

#include "atom/base/status.h"
#include "atom/host/schedule.h"

#include <stddef.h>

typedef struct host_pool {
    char *dir;    /* as a path from where the program runs */
    char *ticket; /* a file; NULL: none */
    char *name;   /* for people; the last part of dir where none was said */
    char *hours;  /* NULL: always */
    double share;
    int64_t devices; /* -1: nothing was said */
    uint32_t line;   /* in the file */
} host_pool;

typedef struct host_pools {
    char *path;
    double slice_seconds; /* -1: auto */
    char *hours;          /* NULL: always */
    host_pool *pool;
    uint32_t n;
} host_pools;

ATOM_MUST atom_status host_pools_read(const char *path, host_pools **out);
/* The same for a text in memory: paths in it are relative to the directory of `path`. */
ATOM_MUST atom_status host_pools_parse(const char *path, const char *text, size_t bytes,
                                       host_pools **out);
/*
 * Looks at the directories: each holds a membership or can be joined by a ticket, and no two are one.
 * Errors  ATOM_E_USAGE  and what to do
 */
ATOM_MUST atom_status host_pools_check(const host_pools *pools);
/* Does its directory hold a membership to come back to? */
bool host_pool_joined(const host_pool *pool);
/* Its user paused it (gsp_pool_is_paused). */
bool host_pool_is_paused(const host_pool *pool);
void host_pools_close(host_pools **pools);

#endif
