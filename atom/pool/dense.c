/*
 * Owns the length of a pool's dense phase. One idea: it is a number of samples, so that certificates
 * alone say when it is over. Refuses a share that leaves nothing to the members.
 */
#include "atom/pool/dense.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

static atom_status refuse(void)
{
    return atom_fail(ATOM_E_USAGE,
                     "a share above 0%% and below 100%%, such as 10%%, or a number of steps from "
                     "1 to max_steps - 1");
}

atom_status pool_dense_read(const char *text, int64_t steps, int64_t *out)
{
    char *end = NULL;
    double x;
    bool starts = *text >= '0' && *text <= '9'; /* no sign, no infinity, no hexadecimal */
    errno = 0;
    x = starts ? strtod(text, &end) : 0;
    if (!starts || errno || text[1] == 'x' || text[1] == 'X' || !(x > 0) || x > 1e12)
        return refuse();
    if (*end == '%' && !end[1] && x < 100)
        x = steps ? ceil(x / 100 * (double)steps) : 1;
    else if (*end || floor(x) < x || floor(x) > x)
        return refuse();
    if (steps && x >= (double)steps)
        return refuse();
    *out = (int64_t)x;
    return ATOM_OK;
}

uint64_t pool_dense_samples(uint64_t dense_steps, uint64_t batch, uint64_t together)
{
    uint64_t samples = dense_steps * batch;
    return (samples + together - 1) / together * together;
}
