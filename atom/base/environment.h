/*
 * The environment variables of atom. All begin with ATOM_, so that one which atom does not read is a
 * misspelt one. Thread: before others start.
 */
#ifndef ATOM_BASE_ENVIRONMENT_H
#define ATOM_BASE_ENVIRONMENT_H

/* Warns of each variable of the environment (as in environ) that begins with ATOM_ and is not one that
 * atom reads. Those of its tests (ATOM_TEST_* and a few others) are left alone. */
void atom_environment_check(char *const *environment);

#endif
