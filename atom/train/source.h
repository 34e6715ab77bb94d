/*
 * Model files come through the disk tier's queues: direct reads, many in flight, while who asked
 * converts what is there (DESIGN D9); so are checkpoints written. Files that are small, or in the
 * kernel's memory already, are read the plain way.
 *
 * Ownership: *kind must outlive the value's readers. Thread: see file_source. Memory: TRAIN_SOURCE_
 * BYTES per open file.
 */
#ifndef ATOM_TRAIN_SOURCE_H
#define ATOM_TRAIN_SOURCE_H

#include "atom/file/source.h"
#include "swap/store.h"

enum { TRAIN_SOURCE_BYTES = STORE_DEPTH * STORE_CHUNK_BYTES, TRAIN_SOURCE_FILE_MIN = 64 << 20 };

/* kind: as of the store; NULL: what works. */
file_source train_file_source(const store_kind *kind);
/* Checkpoints are written likewise, where the file system lets the page cache be passed by. */
file_sink train_file_sink(const store_kind *kind);

#endif
