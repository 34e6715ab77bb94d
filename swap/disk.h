/*
 * The optimizer's state on disk (docs/design/engine.md#state-on-disk): master weights and both Adam
 * moments in blocks over a store, three times. The updates of a step read the present generation
 * and write another; swap_disk_commit() makes that the present one, durably. So whenever the
 * process or the power dies, one generation is whole and known to be. The third lets a snapshot
 * keep a generation for as long as it takes to write a checkpoint of it, while training goes on
 * with the other two.
 *
 * How the canonical vector is cut into blocks (swap/blocks.h) does not depend on the plan, so that
 * a state outlives its plan.
 *
 * Thread: load() from one thread and save(), commit() from another (the tape's two disk streams);
 * a snapshot from a third; everything else between runs. Errors: those of the store.
 */
#ifndef SWAP_DISK_H
#define SWAP_DISK_H

#include "swap/blocks.h"

typedef struct swap_disk swap_disk;
typedef struct swap_snapshot swap_snapshot;
enum { SWAP_GENERATIONS = 3 };

typedef struct swap_disk_config {
    const char *path;
    store_kind kind;
    bool create;
    uint64_t run;      /* what the state belongs to; a file of something else is refused */
    uint64_t relative; /* store_config's */
    const char *relation;
    swap_blocks blocks;
    const swap_param *params; /* borrowed: those without second moments; NULL: all have them */
    uint32_t n_params;
    void *ring; /* memory of the tape's ring, STORE_ALIGN aligned; registered with the kernel */
    uint64_t ring_bytes;
    const struct store_engine *engine; /* tests; NULL: by kind */
} swap_disk_config;

typedef struct swap_disk_facts {
    store_facts store;         /* its `committed` is the disk's own affair */
    uint64_t step;             /* the newest that can be gone back to; 0: none */
    uint32_t generation, next; /* the present one, and the one that the next commit makes present */
} swap_disk_facts;

/* Is a block being loaded or stored at this moment? From any thread. */
bool swap_disk_is_busy(const swap_disk *disk);

ATOM_MUST atom_status swap_disk_open(const swap_disk_config *config, swap_disk **out);
/* NULL-safe, clears the pointer; the file stays. What put() wrote since the last flush is lost. */
void swap_disk_close(swap_disk **disk);
swap_disk_facts swap_disk_about(const swap_disk *disk);

/* A block of the present generation at `offset` of it; a block of the next one. Until done. */
ATOM_MUST atom_status swap_disk_load(swap_disk *disk, uint64_t offset, void *to, uint64_t bytes);
ATOM_MUST atom_status swap_disk_save(swap_disk *disk, uint64_t offset, const void *from,
                                     uint64_t bytes);
/* All blocks are saved: the next generation is the present one, and is that of `step`. */
ATOM_MUST atom_status swap_disk_commit(swap_disk *disk, uint64_t step);
/* No step is committed any more: before the present generation is replaced from outside. */
ATOM_MUST atom_status swap_disk_forget(swap_disk *disk);

/*
 * Elements [first, first + n) of one part of the present generation, between runs, through one
 * block of memory: cheap in ascending order, whatever the parts. A second moment that is not kept
 * is zero, whatever was put there. flush() writes what put() left.
 */
ATOM_MUST atom_status swap_disk_get(swap_disk *disk, swap_state part, uint64_t first, uint64_t n,
                                    float *to);
ATOM_MUST atom_status swap_disk_put(swap_disk *disk, swap_state part, uint64_t first, uint64_t n,
                                    const float *from);
ATOM_MUST atom_status swap_disk_flush(swap_disk *disk);

/* All that will be read of a state of which no step is committed is put anew, from the next put() to
 * the next flush(), each part from its first element to its last: in another generation where a snapshot
 * keeps the present one. Nothing that was there is read for it. */
void swap_disk_renew(swap_disk *disk);

/* Keeps the present generation as it is until closed; one at a time; between runs. get() is as
 * above, from one thread of its own. Close between runs too. */
ATOM_MUST atom_status swap_snapshot_open(swap_disk *disk, swap_snapshot **out);
ATOM_MUST atom_status swap_snapshot_get(swap_snapshot *snapshot, swap_state part, uint64_t first,
                                        uint64_t n, float *to);
void swap_snapshot_close(swap_snapshot **snapshot);

#endif
