/*
 * When a volunteer's host may compute (docs/design/pool.md#what-the-user-sees): its owner stays in
 * control. It is asked between steps; the answer is a sentence for people, or nothing.
 *
 *   hours        "22:00-07:00", local time; several with commas; "" or NULL: always
 *   mains_only   not on battery (/sys/class/power_supply)
 *   celsius_max  of the hottest sensor of processor or card (/sys/class/hwmon); 0: any. Computing
 *                goes on once it is 5 degrees below
 *   others_max   processor cores that other programs may use while we compute (/proc/stat less our
 *                own time, over the last seconds); 0: any. So a game gets the cores it needs
 *
 * Sensors that are not there never forbid anything; pool_limits_open says which are missing.
 * Thread: one at a time per object.
 */
#ifndef ATOM_POOL_LIMITS_H
#define ATOM_POOL_LIMITS_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { POOL_LIMITS_WHY_BYTES = 128, POOL_LIMITS_SPANS_MAX = 8 };

typedef struct pool_limits_config {
    const char *hours;
    bool mains_only;
    double celsius_max, others_max;
    const char *root; /* of /sys and /proc; NULL: "" (tests have one of their own) */
} pool_limits_config;

typedef struct pool_limits pool_limits;

/*
 * missing: set to a sentence about sensors that are asked for and not there, or to ""; may be NULL.
 * Errors  ATOM_E_USAGE  hours that are no spans of time
 */
ATOM_MUST atom_status pool_limits_open(const pool_limits_config *config,
                                       char missing[POOL_LIMITS_WHY_BYTES], pool_limits **out);
void pool_limits_close(pool_limits **limits);

/*
 * May we compute? minute: of the local day, 0 to 1439; now_s: of a clock that
 * only runs forwards; own_cpu_s: processor time of this process so far. False: why says what is
 * waited for. Looks at the files at most once a second.
 */
ATOM_MUST bool pool_limits_allow(pool_limits *limits, int minute, double now_s, double own_cpu_s,
                                 char why[POOL_LIMITS_WHY_BYTES]);
/* The same with the real clocks. */
ATOM_MUST bool pool_limits_now(pool_limits *limits, char why[POOL_LIMITS_WHY_BYTES]);

#endif
