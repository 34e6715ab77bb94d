/*
 * A model as if its blocks were spread over hosts: codecs on the boundaries that a user names.
 */
#ifndef ATOM_PLAN_BOUNDARIES_H
#define ATOM_PLAN_BOUNDARIES_H

#include "atom/plan/workbench.h"

/*
 * Replaces *g by graph_compress of it where config names a codec, and says in *out what crosses;
 * else only *out is set, to nothing. ATOM_E_USAGE: no codec, no such boundary, or one key without
 * the other.
 */
ATOM_MUST atom_status plan_boundaries_cut(const plan_workbench_config *config, graph **g,
                                          plan_boundaries *out);

#endif
