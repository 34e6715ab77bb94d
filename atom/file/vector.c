/*
 * Owns the plainest place of a vector: memory. Refuses nothing; who calls knows the length.
 */
#include "atom/file/vector.h"

#include <string.h>

static atom_status memory_get(void *ctx, uint64_t first, uint64_t n, float *to)
{
    memcpy(to, (const float *)ctx + first, n * sizeof *to);
    return ATOM_OK;
}

static atom_status memory_put(void *ctx, uint64_t first, uint64_t n, const float *from)
{
    memcpy((float *)ctx + first, from, n * sizeof *from);
    return ATOM_OK;
}

file_vector file_vector_memory(float *floats)
{
    return (file_vector){.ctx = floats, .get = memory_get, .put = memory_put, .floats = floats};
}

void file_vector_done(file_vector v, uint64_t first, uint64_t n)
{
    if (v.done)
        v.done(v.ctx, first, n);
}
