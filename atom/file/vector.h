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

#include <stdbool.h>
#include <stdint.h>

/* The first tensor with numbers that are not finite, of all that readers put: "FILE: tensor 'NAME'"; ""
 * while there is none. */
typedef struct file_odd {
    char text[768];
} file_odd;

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
    file_odd *odd;             /* where readers note it; NULL: they only warn */
} file_vector;

void file_vector_done(file_vector v, uint64_t first, uint64_t n);

/* A reader has n numbers of a tensor: warns of the first that are not finite, once for a tensor (*warned:
 * false before its first numbers), and notes it. */
void file_vector_look(file_vector v, const char *path, const char *tensor, const float *x,
                      uint64_t n, bool *warned);
/* Where computing ended with numbers that are not finite (ATOM_E_DIVERGED), and the weights were not: fails
 * with that instead, since it is the cause. what: "step 1", or the model. Else returns st. */
ATOM_MUST atom_status file_odd_explain(const file_odd *odd, atom_status st, const char *what);

/* A vector that lies at `floats`. */
file_vector file_vector_memory(float *floats);

#endif
