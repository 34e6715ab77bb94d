/*
 * What a box remembers of its pools: what each has used, what switches cost, and the process that
 * computes now, so that a box that was killed comes back with the same shares and beside no process
 * of its own. One small JSON file, replaced whole.
 *
 * Thread: one at a time. Errors: ATOM_E_FORMAT  the file is not what host_ledger_save writes, and
 * what to do; ATOM_E_RESOURCE, ATOM_E_RUNTIME  the disk.
 */
#ifndef ATOM_HOST_LEDGER_H
#define ATOM_HOST_LEDGER_H

#include "atom/host/pools.h"

#include <sys/types.h>

enum { HOST_BOOT_BYTES = 40 };

/* A process, and that it is no other one with the same number. */
typedef struct host_process {
    int64_t pid;                /* 0: none */
    uint64_t start;             /* in the kernel's ticks since the boot */
    char boot[HOST_BOOT_BYTES]; /* which boot */
} host_process;

/* Whose pid is this? pid 0 where there is no such process. */
void host_process_read(pid_t pid, host_process *out);
/* Does it live? A zombie does not. */
bool host_process_lives(const host_process *process);

/*
 * Fills turns, in the order of pools, with what was kept of them by name; a new one has level -1.
 * *passed_s: since it was written. No file: everything is new.
 */
ATOM_MUST atom_status host_ledger_read(const char *path, const host_pools *pools, host_turn *turns,
                                       host_process *process, double *passed_s);
/* The same for a text in memory, `now_s` since 1970. */
ATOM_MUST atom_status host_ledger_parse(const char *path, const char *text, size_t bytes,
                                        double now_s, const host_pools *pools, host_turn *turns,
                                        host_process *process, double *passed_s);
ATOM_MUST atom_status host_ledger_save(const char *path, const host_pools *pools,
                                       const host_turn *turns, const host_process *process);

#endif
