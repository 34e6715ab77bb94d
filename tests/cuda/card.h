/*
 * The cases of tests/ops on a card: a table whose entries run the CUDA backend's on the device and
 * wait, and memory that host and card both reach.
 */
#ifndef TESTS_CUDA_CARD_H
#define TESTS_CUDA_CARD_H

#include "kernels/kernels.h"

#include <stddef.h>

/* 0: good; 77: there is no card here, and a line says why; 1: the card does not start. */
int card_open(void);
/* 1 where the card failed meanwhile. */
int card_close(void);
const krn_table *card_table(atom_dtype dtype); /* NULL: the card has no such dtype */
const krn_host_table *card_host_table(void);

/* Stand in for the C library's in tests/ops (CMakeLists.txt). */
void *card_aligned_alloc(size_t align, size_t bytes);
void *card_calloc(size_t count, size_t bytes);
void card_free(void *at);

#endif
