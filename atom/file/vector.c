/*
 * Owns the plainest place of a vector, memory, and what is said of numbers that are not finite. Refuses
 * nothing; who calls knows the length.
 */
#include "atom/file/vector.h"

#include "atom/base/log.h"

#include <stdio.h>
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

static bool all_finite(const float *x, uint64_t count)
{
    uint32_t bad = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !bad;
}

void file_vector_look(file_vector v, const char *path, const char *tensor, const float *x,
                      uint64_t n, bool *warned)
{
    if (*warned || all_finite(x, n))
        return;
    *warned = true;
    atom_log(ATOM_LOG_WARN, "%s: tensor '%.128s' has values that are not finite", path, tensor);
    if (v.odd && !v.odd->text[0])
        snprintf(v.odd->text, sizeof v.odd->text, "%.600s: tensor '%.128s'", path, tensor);
}

atom_status file_odd_explain(const file_odd *odd, atom_status st, const char *what)
{
    if (st != ATOM_E_DIVERGED || !odd->text[0])
        return st;
    return atom_fail(st,
                     "%s: the weights themselves are not finite: %s has values that are NaN or "
                     "infinite; the file is damaged, or the training that made it diverged; save "
                     "or download it again, or use an earlier checkpoint",
                     what, odd->text);
}
