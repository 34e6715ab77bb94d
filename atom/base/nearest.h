/*
 * The name that was probably meant, for "did you mean ...?" after an unknown word. Thread: any.
 */
#ifndef ATOM_BASE_NEAREST_H
#define ATOM_BASE_NEAREST_H

#include <stddef.h>

/* The nearest of n names by edit distance, or one that begins with `word`; NULL if none is near. */
const char *atom_did_you_mean(const char *word, const char *const *names, size_t n);

#endif
