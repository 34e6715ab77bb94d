/*
 * BLAKE3 without a key, 32 bytes long, of bytes in memory: what a part's leaf is made of
 * (merkle.h). "BLAKE3: one function, fast everywhere" (O'Connor, Aumasson, Neves, Wilcox-O'Hearn,
 * 2020), section 2.
 *
 * Chunks of 1 KiB, and the parents above them, lie side by side in a vector register, a word of
 * each: 16 with AVX-512, 8 with AVX2, 4 on any other processor. The width changes no bit of the
 * result.
 *
 * Thread: any; at most 20 KiB of stack, and some 200 bytes for every doubling of the input beyond
 * 256 KiB. Errors: none.
 */
#ifndef GOSSIP_SUM_BLAKE3_H
#define GOSSIP_SUM_BLAKE3_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GSP_BLAKE3_BYTES = 32 };

void gsp_blake3(const void *data, size_t bytes, uint8_t out[GSP_BLAKE3_BYTES]);
/* The same with 1, 4, 8 or 16 side by side, for tests; false: this processor has no such width. */
ATOM_MUST bool gsp_blake3_by(unsigned width, const void *data, size_t bytes,
                             uint8_t out[GSP_BLAKE3_BYTES]);

#endif
