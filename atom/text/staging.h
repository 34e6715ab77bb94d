/*
 * How a data set comes into its directory whole or not at all:
 *
 *   DIR/.atom-staging   new files grow here; an older data set in DIR stays usable
 *   DIR/.atom-moving    the same directory, renamed, while files move up; readers refuse DIR
 */
#ifndef ATOM_TEXT_STAGING_H
#define ATOM_TEXT_STAGING_H

#include "atom/base/status.h"

#include <stdbool.h>

typedef struct text_staging {
    char *dir;    /* DIR */
    char *path;   /* DIR/.atom-staging: write here */
    char *moving; /* DIR/.atom-moving */
    int lock_fd;  /* of DIR, locked against a second prepare; -1: none */
    bool force;
    bool made; /* DIR was not there before: it goes again if nothing comes to lie in it */
} text_staging;

/* ATOM_E_FORMAT if dir was left in the middle of a move. */
ATOM_MUST atom_status text_staging_check(const char *dir);

/*
 * Makes dir and an empty staging directory in it. ATOM_E_USAGE if dir holds a data set (and not
 * force), or another process prepares there. Fini removes what was staged and not committed.
 */
ATOM_MUST atom_status text_staging_init(const char *dir, bool force, text_staging *out);
/* Removes the old data set (force) and moves every staged file up, dataset.json last. */
ATOM_MUST atom_status text_staging_commit(text_staging *s);
void text_staging_fini(text_staging *s);

#endif
