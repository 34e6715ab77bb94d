/*
 * A box that takes part in several pools, one at a time (docs/design/pool.md#several-pools-on-one-box):
 * a process for the pool whose turn it is, in turns by shares of what was really computed. What it
 * remembers is in the directory `host-state` beside the file: a lock, the ledger, a control socket.
 *
 * Thread: host_run on the program's main thread, since processes end with the thread that started
 * them; the rest on any.
 */
#ifndef ATOM_HOST_HOST_H
#define ATOM_HOST_HOST_H

#include "atom/host/pools.h"

/* How the caller hears of it, and stops it. Called on the thread of host_run; all must be there. */
typedef struct host_hooks {
    void *ctx;
    void (*note)(void *ctx, const char *text);                  /* what was decided, and why */
    void (*log)(void *ctx, const char *pool, const char *line); /* a line of a pool's process */
    void (*ready)(void *ctx, const char *status);               /* whose turn it is */
    bool (*stop)(void *ctx);                                    /* asked a few times a second */
} host_hooks;

typedef struct host_config {
    const char *file;    /* pools.yml */
    const char *program; /* what runs `pool join`: an executable's path */
    const host_hooks *hooks;
    bool quiet; /* processes show no progress */
} host_config;

/* file, or the pools.yml of a directory; NULL: that of the working directory. atom_free; NULL: no
 * memory. */
char *host_file_of(const char *file_or_dir);
/* Where a host that runs from this file keeps its state and is asked; atom_free. */
char *host_state_of(const char *file);

/*
 * Runs until it is stopped, or until no pool has anything left to do.
 * Errors  ATOM_E_USAGE  the file, or another host runs from it; ATOM_E_FORMAT  its ledger;
 *         ATOM_E_INTERRUPTED  a hook said stop, and the pool that computed is saved
 */
ATOM_MUST atom_status host_run(const host_config *config);

#endif
