/*
 * Questions to a member that runs on this host (gossip/pool/control.h). Thread: the main thread
 * only.
 */
#ifndef TOOLS_POOL_CMD_POOL_ASK_H
#define TOOLS_POOL_CMD_POOL_ASK_H

#include "tools/cli.h"

/* What a model is where its member went on by itself (gsp_node_status.alone); of a version. */
#define POOL_ALONE                                                                                 \
    "this member trained alone from version %llu on, because no other member answered. If others " \
    "went on meanwhile, they have another model, and this one has nothing of theirs since then"

/*
 * Asks the member that runs from dir, an output directory or the pool's in it; takes the request.
 * The answer's "ok" is true.
 * Errors  ATOM_E_USAGE  no member runs there; ATOM_E_RUNTIME  it refused, and the message says why
 */
ATOM_MUST atom_status pool_ask(const char *dir, json_t *request, json_t **answer);

#endif
