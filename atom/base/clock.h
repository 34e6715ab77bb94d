/*
 * The two clocks: one that only goes forward, for measuring, and the calendar's.
 * Thread: any. Errors: none.
 */
#ifndef ATOM_BASE_CLOCK_H
#define ATOM_BASE_CLOCK_H

#include <stdint.h>

uint64_t atom_clock_ns(void);    /* monotonic */
double atom_clock_seconds(void); /* monotonic */
double atom_wall_seconds(void);  /* since 1970, UTC */

#endif
