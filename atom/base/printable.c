/*
 * Owns what may not reach a terminal. One idea: in place, byte for byte, so that it can be the last
 * thing that happens to any message. Refuses to judge letters: only what a terminal would obey goes.
 */
#include "atom/base/printable.h"

#include <stdbool.h>

void atom_make_printable(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        bool breaks = *c == '\n' || *c == '\t';
        if ((*c < 0x20 && !breaks) || *c == 0x7f)
            *c = '?';
        else if (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0)
            c[0] = c[1] = '?';
    }
}
