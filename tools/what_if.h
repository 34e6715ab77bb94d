/*
 * The one screen of 'atom plan --what-if', for people and as JSON. All of it goes to stdout.
 *
 * Thread: the main thread only. Errors: statuses, as in cli.h. Ownership: nothing is kept.
 */
#ifndef TOOLS_WHAT_IF_H
#define TOOLS_WHAT_IF_H

#include "tools/cli.h"

/*
 * Says whether it fits, what is predicted, what binds, and what each change would give. plan is
 * NULL where `refused` says why there is none. Searches again for each change.
 */
ATOM_MUST atom_status what_if_print(const graph *g, const part_profile *profile,
                                    const plan_request *asked, const part_plan *plan,
                                    const char *refused, bool json);

#endif
