/*
 * Lets jansson allocate through atom's counted memory, so that a test can make its allocations fail
 * and see its leaks. Call once, before the first use of jansson.
 */
#ifndef TESTS_COUNT_JANSSON_H
#define TESTS_COUNT_JANSSON_H

#include "atom/base/mem.h"

#include <jansson.h>

static void *count_jansson_take(size_t bytes)
{
    return atom_alloc(bytes, 1);
}

static inline void count_jansson(void)
{
    json_object_seed(1);
    json_set_alloc_funcs(count_jansson_take, atom_free);
}

#endif
