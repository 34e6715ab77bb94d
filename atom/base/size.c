/*
 * Owns the units of sizes. One idea: what is written may be binary or decimal, what is printed is
 * binary.
 */
#include "atom/base/size.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

static double unit_bytes(const char *unit)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"kB", 1e3},
                 {"KB", 1e3},
                 {"MB", 1e6},
                 {"GB", 1e9},
                 {"TB", 1e12},
                 {"KiB", 1024.0},
                 {"MiB", 1048576.0},
                 {"GiB", 1073741824.0},
                 {"TiB", 1099511627776.0}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcasecmp(unit, units[i].name) == 0)
            return units[i].bytes;
    }
    return 0;
}

atom_status atom_size_parse(const char *text, uint64_t *bytes)
{
    char *end = NULL;
    errno = 0;
    double value = strtod(text, &end);
    bool number = end != text;
    while (isspace((unsigned char)*end))
        end++;
    double unit = number ? unit_bytes(end) : 0;
    double total = value * unit;
    if (unit == 0 || !isfinite(total) || total < 0 || total >= 0x1p63)
        return atom_fail(ATOM_E_USAGE, "'%s' is not a size; write for example 8GiB, 512MiB or 2GB",
                         text);
    *bytes = (uint64_t)total;
    return ATOM_OK;
}

char *atom_size_text(uint64_t bytes, char *buf)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024 && unit < 6) {
        value /= 1024;
        unit++;
    }
    snprintf(buf, 24, unit && value < 100 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return buf;
}
