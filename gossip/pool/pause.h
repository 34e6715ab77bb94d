/*
 * Whether the user of this host has paused its member: a file in the member's directory, because who
 * said `pause` to a host means it until `resume`, also after a reboot.
 *
 * Thread: any. Errors: status.h.
 */
#ifndef GOSSIP_POOL_PAUSE_H
#define GOSSIP_POOL_PAUSE_H

#include "atom/base/status.h"

#include <stdbool.h>

bool gsp_pause_is_kept(const char *directory);
/* Of a member that runs: its own process alone calls it. */
ATOM_MUST atom_status gsp_pause_keep(const char *directory, bool paused);
/* Of a member that does not run now. ATOM_E_USAGE: a process takes part with the directory. */
ATOM_MUST atom_status gsp_pause_keep_for_later(const char *directory, bool paused);

#endif
