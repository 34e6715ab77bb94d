/*
 * Owns kernels that are wrong on purpose: each must end the program under the shim, or be seen by
 * its own check. They show that the alarms of the other tests ring.
 */
#include "kernels/cuda/prim.cuh"
#include "tests/shim/shim.h"

#include <stdio.h>

enum { THREADS = 64 };

/* One thread never comes. */
static __global__ void barrier(float *x)
{
    if (threadIdx.x != 5)
        krn_sync();
    else
        krn_sync_warp();
    x[threadIdx.x] = 1.0f;
}

/* One lane is missing at a warp primitive. */
static __global__ void lanes(float *x)
{
    if (threadIdx.x != 3)
        x[threadIdx.x] = krn_warp_sum(1.0f);
}

/* Reads one element behind a shared array. */
static __global__ void shared(float *x)
{
    KRN_SHARED(float, fold, THREADS);
    fold[threadIdx.x] = 1.0f;
    krn_sync();
    x[threadIdx.x] = fold[threadIdx.x + 64];
}

static __global__ void aligned(float *x)
{
    krn_store16(x + 1, krn_load16(x));
}

static __global__ void overrun(float *x, int64_t n)
{
    x[n + threadIdx.x] = 0.0f;
}

/* No barrier between writing and reading: some thread sees the garbage of the start. */
static __global__ void race(float *x)
{
    KRN_SHARED(float, fold, THREADS);
    fold[threadIdx.x] = 1.0f;
    x[threadIdx.x] = fold[THREADS - 1 - threadIdx.x];
}

int shim_run_twisted(const char *name)
{
    static const char *const names[] = {"barrier", "lanes", "shared", "aligned", "overrun", "race"};
    krn_ctx cx = {};
    float *x = (float *)aligned_alloc(256, THREADS * sizeof(float));
    int which = 0;
    while (which < 6 && strcmp(names[which], name) != 0)
        which++;
    for (int i = 0; i < THREADS; i++)
        x[i] = 0.0f;
    if (which == 4)
        krn_launch(&cx, overrun, krn_grid(1), THREADS, 0, x, (int64_t)THREADS);
    else if (which < 6)
        krn_launch(&cx,
                   which == 0   ? barrier
                   : which == 1 ? lanes
                   : which == 2 ? shared
                   : which == 3 ? aligned
                                : race,
                   krn_grid(1), THREADS, 0, x);
    for (int i = 0; i < THREADS; i++) {
        if (x[i] != x[i]) {
            printf("caught: garbage of shared memory\n");
            break;
        }
    }
    free(x);
    return which < 6;
}
