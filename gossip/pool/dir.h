/*
 * Small files in a pool's directory, which only its user can read. A file is written beside its
 * place and renamed, so a host that is killed at any moment finds the old one or the new one.
 *
 * Thread: any. Errors: status.h.
 */
#ifndef GOSSIP_POOL_DIR_H
#define GOSSIP_POOL_DIR_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ATOM_E_USAGE where this user may not look into it. */
ATOM_MUST atom_status gsp_dir_check_rights(const char *directory);
/* Replaces directory/name, readable by its user alone. The bytes may be a secret. */
ATOM_MUST atom_status gsp_dir_save(const char *directory, const char *name, const void *data,
                                   size_t bytes);
/* Reads a file of at most 1 MiB into fresh memory (atom_free) with a NUL behind it. */
ATOM_MUST atom_status gsp_dir_read(const char *directory, const char *name, char **data,
                                   uint64_t *bytes);
bool gsp_dir_has(const char *directory, const char *name);
/* Is so much free on its disk? ATOM_E_RESOURCE: no; what: for the message. */
ATOM_MUST atom_status gsp_dir_room(const char *directory, uint64_t bytes, const char *what);
/* Makes a directory within it. */
ATOM_MUST atom_status gsp_dir_make(const char *directory, const char *name);
/* Removes what killed processes did not get into its place. For whoever holds the directory's lock. */
void gsp_dir_sweep(const char *directory);

#endif
