/*
 * BLAKE2b-256 eight times side by side, for parts: several times as fast as one long hash, because
 * a vector register holds one word of each lane.
 *
 * data is a row of 64-bit words. Lane i hashes the words i, i + 8, i + 16, ... ; behind the end
 * come zeros, until every lane has the same number of whole blocks (128 bytes). So n bytes are
 * ceil(n / 1024) blocks per lane, and whoever uses the lanes says n beside them (merkle.h). Each
 * lane is plain BLAKE2b-256 without a key (RFC 7693) of those words.
 *
 * Thread: any. Errors: none.
 */
#ifndef GOSSIP_SUM_LANES_H
#define GOSSIP_SUM_LANES_H

#include <stddef.h>
#include <stdint.h>

enum { GSP_LANES = 8, GSP_LANE_HASH_BYTES = 32 };

void gsp_lanes_hash(const void *data, size_t bytes, uint8_t out[GSP_LANES][GSP_LANE_HASH_BYTES]);

#endif
