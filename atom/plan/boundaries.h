/*
 * A model as if its blocks were spread over hosts: codecs on the boundaries that a user names, or
 * bottlenecks that become a part of the model.
 */
#ifndef ATOM_PLAN_BOUNDARIES_H
#define ATOM_PLAN_BOUNDARIES_H

#include "atom/plan/workbench.h"

/*
 * What stands on the model's boundaries, in *out: what config names, else the model's own
 * bottlenecks, else nothing. New bottlenecks go into *model. ATOM_E_USAGE: no codec, one key without
 * the other, or something else than the bottlenecks that the model has.
 */
ATOM_MUST atom_status plan_boundaries_choose(const plan_workbench_config *config,
                                             graph_config *model, plan_boundaries *out);
/* Replaces *g by graph_compress of it where there is a codec, and completes *b with what crosses.
 * ATOM_E_USAGE: no such boundary. */
ATOM_MUST atom_status plan_boundaries_cut(graph **g, plan_boundaries *b);

#endif
