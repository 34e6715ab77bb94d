/*
 * The configuration of a member's run in two texts (docs/design/pool.md#what-a-pool-decides): run.yml,
 * which the pool publishes, and local.yml, which is of one host alone. What may stand in run.yml is a
 * closed list: the rows of train_command that are OPT_SHARED.
 *
 * Ownership: texts with atom_free. Thread: none of its own. Errors: options.h.
 */
#ifndef ATOM_POOL_RUN_TEXT_H
#define ATOM_POOL_RUN_TEXT_H

#include "atom/train/config.h"

/* What of a run its joiners need to know, as the text of a run.yml; and with `local` what is of one
 * host alone (data, device, memory, logs). */
ATOM_MUST atom_status pool_run_text(const train_config *config, bool local, char **text);
/* Refuses a local.yml that says more than pool_run_text writes into it: everything else is the pool's,
 * and this host alone would train something else than the others. ATOM_E_USAGE. */
ATOM_MUST atom_status pool_run_check_local(const char *path, const char *text, bool adapters);
/* What was said and does not go into run.yml, as "data, threads"; "": nothing. */
ATOM_MUST atom_status pool_run_withheld(const opt_parsed *parsed, char **keys);
/*
 * Reads the run.yml of a pool, of whose owner nothing is believed, into *config. path: for messages.
 * Errors  ATOM_E_FORMAT  it has a key that a pool may not decide, or is not a configuration;
 *         nothing but memory was touched then
 */
ATOM_MUST atom_status pool_run_read(const char *path, const char *text, train_config *config,
                                    opt_parsed *parsed);

#endif
