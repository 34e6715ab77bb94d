/*
 * The picture of `atom plan --pool --picture FILE.svg`: hosts, the links between them, and stages;
 * first the way that is recommended, then the prediction for stages.
 *
 * Thread: the main thread. Errors: ATOM_E_USAGE where FILE is something else than such a picture;
 * ATOM_E_RESOURCE.
 */
#ifndef TOOLS_POOL_PICTURE_H
#define TOOLS_POOL_PICTURE_H

#include "tools/cli.h"

/* May FILE be written? To be asked before anything is planned. */
ATOM_MUST atom_status pool_picture_check(const char *path);
ATOM_MUST atom_status pool_picture_write(const plan_pool *p, const char *path);

#endif
