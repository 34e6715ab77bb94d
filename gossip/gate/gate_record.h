/*
 * Records: how an authenticated stream is cut, sealed and opened again
 * (docs/design/pool.md#who-gets-in, #transport).
 *
 *   u32 n, little-endian | n bytes sealed | 16 bytes tag        1 <= n <= GSP_RECORD_BYTES_MAX
 *
 * ChaCha20-Poly1305 (IETF) with one key per direction. The nonce is the record's number, and the
 * length is authenticated too. So a record that was changed, repeated, left out, moved, or taken
 * from another stream does not open, and the stream ends there. Thread: one at a time per object.
 */
#ifndef GOSSIP_GATE_GATE_RECORD_H
#define GOSSIP_GATE_GATE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GSP_RECORD_HEAD_BYTES = 4,
    GSP_RECORD_TAG_BYTES = 16,
    GSP_RECORD_BYTES_MAX = 64 * 1024,
};

typedef struct gsp_record_key {
    uint8_t key[32];
    uint64_t count; /* records so far */
} gsp_record_key;

/*
 * Seals n bytes in place: record + GSP_RECORD_HEAD_BYTES holds the plain bytes, and the head and
 * tag are written around them. record holds n + head + tag bytes. Returns the record's size.
 */
size_t gsp_record_seal(gsp_record_key *key, uint8_t *record, size_t n);
/* The n of a head; 0 if no peer may send that. */
size_t gsp_record_length(const uint8_t head[GSP_RECORD_HEAD_BYTES]);
/* Opens a whole record in place; the plain bytes are at record + GSP_RECORD_HEAD_BYTES. False: end
 * the stream and do not look at them. */
bool gsp_record_open(gsp_record_key *key, uint8_t *record, size_t n);

#endif
