/*
 * Sizes in bytes as people write them (docs/design/files.md#options). Thread: any.
 */
#ifndef ATOM_BASE_SIZE_H
#define ATOM_BASE_SIZE_H

#include "atom/base/status.h"

#include <stdint.h>

/* "8GiB", "1.5 GB", "4096": binary and decimal units. ATOM_E_USAGE for anything else. */
ATOM_MUST atom_status atom_size_parse(const char *text, uint64_t *bytes);
/* "7.9 GiB", "512 B". buf holds at least 24 bytes; returns buf. */
char *atom_size_text(uint64_t bytes, char *buf);

#endif
