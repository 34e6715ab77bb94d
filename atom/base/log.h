/*
 * The log on stderr. Results go to stdout and are printed by whoever makes them; everything else
 * that a user reads passes through here or through a command's progress line.
 */
#ifndef ATOM_BASE_LOG_H
#define ATOM_BASE_LOG_H

#include "atom/base/status.h"

typedef enum atom_log_level {
    ATOM_LOG_ERROR,
    ATOM_LOG_WARN,
    ATOM_LOG_INFO,
    ATOM_LOG_DEBUG
} atom_log_level;

/* Lines above this level are dropped; at first ATOM_LOG_INFO. */
void atom_log_set_level(atom_log_level level);
/* "atom: error: text\n" and so on; info has no such prefix. Thread-safe, one write per line. */
void atom_log(atom_log_level level, const char *fmt, ...) ATOM_PRINTF(2, 3);

#endif
