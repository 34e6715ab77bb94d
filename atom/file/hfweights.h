/*
 * What the files of hfdir share among themselves: hfweights.c, hfshards.c, hfweights_write.c.
 */
#ifndef ATOM_FILE_HFWEIGHTS_H
#define ATOM_FILE_HFWEIGHTS_H

#include "atom/file/hfdir.h"
#include "atom/file/safetensors.h"

/* Elements of the buffer through which tensors pass: 1 MiB. */
enum { FILE_BAND_ELEMENTS = 1 << 18 };

/* How a parameter was met so far. */
enum { SEEN = 1, SEEN_AS_HEAD = 2 };

typedef struct weights_reader {
    const graph *g;
    file_vector vector;
    file_safetensors *file; /* the one that is open now */
    float *buffer;          /* a band of a tensor */
    uint64_t buffer_elements;
    float *whole;  /* a transposed tensor, the largest there is */
    uint8_t *seen; /* by parameter */
} weights_reader;

/* All tensors of r->file into the vector. */
ATOM_MUST atom_status file_weights_take(weights_reader *r);
/* All shards that an index names, one after another. */
ATOM_MUST atom_status file_shards_take(weights_reader *r, const char *dir, const char *index_path);
/* Checks the text of an index by itself; for fuzzing. */
ATOM_MUST atom_status file_index_check(const char *path, const char *text, size_t bytes);
/* Elements of the largest parameter that is stored transposed; at least 1. */
uint64_t file_largest_transposed(const graph *g);
/* Shape of a parameter as files store it. */
void file_param_dims(const graph_param *param, uint64_t dims[GRAPH_RANK_MAX]);

#endif
