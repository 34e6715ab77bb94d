/*
 * The disk tier's file: master weights and moments that do not fit in host memory
 * (docs/design/engine.md#state-on-disk).
 *
 * A store is one file that one run owns. Its data area is read and written in aligned ranges,
 * asynchronously, through lanes: a lane is one queue to the kernel for one thread, so a loader and
 * a writer each have their own and never wait for each other's locks. Ranges are cut into chunks,
 * a fixed number of which is in flight; short transfers are continued; the kernel's page cache is
 * passed by (O_DIRECT) where the file system can.
 *
 * What moves the bytes (store_kind) is chosen once, at open, by trying: io_uring with registered
 * file and buffers, else libaio, else positioned reads and writes on threads. All give the same
 * bytes.
 *
 * A file that is cut while it is in use ends the run at the next commit at the latest.
 *
 * Durability: store_commit(step) makes everything written before it survive a loss of power, then
 * says so in one of two alternating, checksummed records. A caller that writes step s only where
 * step s - 2 stood can always go back to the last committed step.
 *
 * Units: bytes. Offsets count from the start of the data area. Offsets, sizes and buffers are
 * multiples of STORE_ALIGN.
 *
 * Thread: open, commit and close from one thread with no lane writing; each lane from one thread at
 * a time.
 *
 * Errors: ATOM_E_RESOURCE when the disk is full (exit 4), ATOM_E_RUNTIME when it fails to read or
 * write (exit 1), ATOM_E_FORMAT for a file that is not ours (exit 3), ATOM_E_USAGE when another run
 * has it open. A lane's failure is sticky: later calls give ATOM_E_DEAD.
 */
#ifndef SWAP_STORE_H
#define SWAP_STORE_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct store store;
typedef struct store_lane store_lane;
struct store_engine;

typedef enum store_kind {
    STORE_AUTO,
    STORE_URING,
    STORE_AIO,
    STORE_THREADS,
    STORE_KIND_N
} store_kind;

enum {
    STORE_ALIGN = 4096,
    STORE_CHUNK_BYTES = 1 << 20, /* of one request */
    STORE_DEPTH = 16,            /* requests in flight per lane */
    STORE_DEPTH_MAX = 256,
    STORE_RANGES_MAX = 64 /* ranges of a lane that were submitted and not waited for */
};

typedef struct store_config {
    const char *path;
    store_kind kind;
    bool create;          /* make it, or take over one of the same owner; false: it must exist */
    uint64_t owner;       /* the run; a store of another run is refused */
    uint64_t relative;    /* an owner related to this one, ... */
    const char *relation; /* ... whose store is refused with these words; may be NULL */
    uint64_t bytes; /* of the data area; rounded up to STORE_ALIGN; reserved on disk at once */
    uint32_t depth; /* 0: STORE_DEPTH */
    uint32_t chunk_bytes; /* 0: STORE_CHUNK_BYTES; a multiple of STORE_ALIGN */
    /* The memory that ranges come from, or NULL: registered with the kernel where that is possible.
     * Ranges outside it work too. Must outlive the store. */
    void *ring;
    uint64_t ring_bytes;
    const struct store_engine *engine; /* tests put one of their own here; NULL: by `kind` */
} store_config;

typedef struct store_facts {
    const char *engine; /* "io_uring", "libaio", "threads" */
    bool direct;        /* false: the file system refused O_DIRECT */
    bool registered;    /* the ring is known to the kernel */
    uint64_t bytes;     /* of the data area */
    uint64_t committed; /* step; 0: none yet */
    bool made;          /* there was no such file: open made it */
    bool lost;          /* seen at a commit: the name is gone, or another file has it; the open file
                           goes on working, but nobody will find it again */
} store_facts;

/* ATOM_E_RESOURCE with the bytes missing when the disk has no room for config->bytes. */
ATOM_MUST atom_status store_open(const store_config *config, store **out);
/* Closes the file and keeps it. NULL-safe, clears the pointer. Lanes must be closed before. */
void store_close(store **s);
store_facts store_about(const store *s);

ATOM_MUST atom_status store_lane_open(store *s, store_lane **out);
/* Waits for what is in flight. NULL-safe, clears the pointer. */
void store_lane_close(store_lane **lane);

/*
 * Starts to read (or write) `bytes` bytes at `offset` of the data area; the buffer is the lane's
 * until store_wait(ticket) returns. Ranges of one lane may overtake each other: two that overlap
 * are the caller's to order. Blocks only while STORE_RANGES_MAX ranges are not waited for.
 */
ATOM_MUST atom_status store_read(store_lane *lane, void *buffer, uint64_t offset, uint64_t bytes,
                                 uint64_t *ticket);
ATOM_MUST atom_status store_write(store_lane *lane, const void *buffer, uint64_t offset,
                                  uint64_t bytes, uint64_t *ticket);
/* Until that range, and every one submitted before it, is done. */
ATOM_MUST atom_status store_wait(store_lane *lane, uint64_t ticket);

/* All that finished writes wrote, and this fact, are on the medium when it returns. step > the last
 * committed one. */
ATOM_MUST atom_status store_commit(store *s, uint64_t step);

/* No step is committed any more: what is in the data area is about to be replaced. */
ATOM_MUST atom_status store_forget(store *s);

/* "auto", "io_uring", "libaio", "threads". */
const char *store_kind_name(store_kind kind);
/* ATOM_OK when this machine can do it, else ATOM_E_UNSUPPORTED with the reason; for doctor. */
ATOM_MUST atom_status store_probe(store_kind kind);

#endif
