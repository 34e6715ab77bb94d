/*
 * Owns reading the clocks. Refuses waiting and formatting of dates.
 */
#include "atom/base/clock.h"

#include <time.h>

static uint64_t now_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t atom_clock_ns(void)
{
    return now_ns(CLOCK_MONOTONIC);
}

double atom_clock_seconds(void)
{
    return (double)atom_clock_ns() * 1e-9;
}

double atom_wall_seconds(void)
{
    return (double)now_ns(CLOCK_REALTIME) * 1e-9;
}
