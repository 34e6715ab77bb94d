/*
 * Access to the canonical vector for code that fills or reads it: elements [first, first + n), in
 * pieces, wherever they are kept (in memory or on disk). It is cheap in ascending order.
 *
 * Ownership: ctx is the maker's and must outlive the value. Thread: one at a time.
 * Errors: those of the place.
 */
#ifndef ATOM_FILE_VECTOR_H
#define ATOM_FILE_VECTOR_H

#include "atom/file/source.h"

#include <stdint.h>

typedef struct file_vector {
    void *ctx;
    atom_status (*get)(void *ctx, uint64_t first, uint64_t n, float *to);
    atom_status (*put)(void *ctx, uint64_t first, uint64_t n, const float *from);
    /* The reader will not ask for these again; n = UINT64_MAX: for nothing any more. Pieces do not
     * overlap. May be NULL; call file_vector_done. */
    void (*done)(void *ctx, uint64_t first, uint64_t n);
    float *floats;             /* where all of it lies, for writing in place; or NULL */
    const file_source *source; /* how files are read that fill it; NULL: plain reads */
    const file_sink *sink;     /* how files are written that hold it; NULL: plain writes */
} file_vector;

void file_vector_done(file_vector v, uint64_t first, uint64_t n);

/* A vector that lies at `floats`. */
file_vector file_vector_memory(float *floats);

#endif
