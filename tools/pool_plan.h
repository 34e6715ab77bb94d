/*
 * `atom plan --pool`: who should do what, on one screen or as one JSON object.
 *
 * Thread: the main thread. Errors: ATOM_E_USAGE for what the file says; ATOM_E_RESOURCE, after the
 * screen was printed, where no host can hold a whole copy, since atom cannot train it there.
 */
#ifndef TOOLS_POOL_PLAN_H
#define TOOLS_POOL_PLAN_H

#include "tools/cli.h"

/* picture: an SVG to write as well, or NULL. */
ATOM_MUST atom_status pool_plan_print(const graph *g, const plan_pool_file *file,
                                      const char *picture, bool json);

#endif
