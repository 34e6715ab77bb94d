/* Owns the last words of a broken program. Refuses to return. */
#include "atom/base/assert.h"

#include <stdio.h>
#include <stdlib.h>

void atom_assert_failed(const char *file, int line, const char *text)
{
    fprintf(stderr, "atom: bug: %s:%d: assertion failed: %s\n", file, line, text);
    fflush(stderr);
    abort();
}
