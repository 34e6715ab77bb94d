/*
 * BLAKE3 without a key, of bytes in memory, to 32 bytes: the hash of a part's data, from which its
 * leaf is made (merkle.h). Source: "BLAKE3: one function, fast everywhere" (O'Connor, Aumasson,
 * Neves, Wilcox-O'Hearn, 2020), section 2.
 *
 * A vector register holds one word of each of several chunks of 1 KiB (or of the parents above
 * them): 16 with AVX-512, 8 with AVX2, 4 on any other processor. The width changes no bit of the
 * result.
 *
 * Why our own: every byte of a round is hashed on its critical path, and this is 1.5 times as fast
 * with AVX-512, and 3 times with AVX2, as what it replaced
 * (docs/measurements/2026-11-21-pool.md); libsodium has no BLAKE3.
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
/* The same with 1, 4, 8 or 16 chunks side by side, for tests. False: this processor cannot. */
ATOM_MUST bool gsp_blake3_by(unsigned width, const void *data, size_t bytes,
                             uint8_t out[GSP_BLAKE3_BYTES]);

#endif
