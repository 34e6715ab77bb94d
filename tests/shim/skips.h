/*
 * Attention leaves alone what nobody sees (skips.c).
 */
#ifndef TESTS_SHIM_SKIPS_H
#define TESTS_SHIM_SKIPS_H

#include "kernels/kernels.h"

/* Numbers that rows out of sight have changed, forward and backward, by a window and by documents
 * apart; 0: good. */
int shim_check_skips(const krn_table *table);

#endif
