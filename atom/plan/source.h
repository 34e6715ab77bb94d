/*
 * Model files come through the disk tier's queues: direct reads, many in flight, while the caller
 * converts what has come (docs/design/engine.md#state-on-disk); so are checkpoints written. Files
 * that are small or already in the page cache are read the plain way.
 *
 * Memory: a window for each file that is open, SWAP_STREAM_BYTES to read and SWAP_WRITER_BYTES to
 * write. The plan counts them (part_window_bytes); a file whose window would exceed what it counts
 * is read and written the plain way, so that loading never takes more than the plan said.
 *
 * Ownership: *files must outlive the value's readers and writers. Thread: each as of file_source;
 * several threads may share *files.
 */
#ifndef ATOM_PLAN_SOURCE_H
#define ATOM_PLAN_SOURCE_H

#include "atom/file/source.h"
#include "swap/store.h"

enum { PLAN_SOURCE_FILE_MIN = 64 << 20 };

typedef struct plan_files {
    store_kind kind;
    uint64_t most;               /* bytes of windows at once */
    _Atomic(uint64_t) now, peak; /* that are and were */
} plan_files;

/* NULL: whatever kind works, and as many windows as files. */
file_source plan_file_source(plan_files *files);
/* Checkpoints are written likewise, where the file system lets the page cache be passed by. */
file_sink plan_file_sink(plan_files *files);

#endif
