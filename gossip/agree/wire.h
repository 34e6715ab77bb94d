/*
 * Messages of the agreement as bytes, and back (types.h). The encoding is canonical: a message has
 * exactly one, and all other bytes are refused, so encode(decode(b)) == b whenever decode succeeds.
 * Only the used parts of arrays travel.
 *
 *   head, 56 bytes
 *     u8  GSP_TYPES_VERSION
 *     u8  kind
 *     u16 0
 *     u32 ballot
 *     u64 incarnation of the sender
 *     u64 version
 *     32 bytes of lineage
 *   then the fields of the kind, in the order of types.h, counts before what they count
 *
 * Integers are little endian, floats are their bits, bools are 0 or 1. A PIECE and a STATE_CHUNK
 * are followed by the bytes that they are the head of, at a multiple of 8 from their start; all
 * others end with their fields.
 *
 * What is checked here: version, kind, counts within their limits, floats finite and not negative,
 * lengths. What a message means is checked in agree.h. The same encodings serve for files (votes.h)
 * and for the transfer of state.
 *
 * Thread: any. Errors: none; no input makes it assert.
 */
#ifndef GOSSIP_AGREE_WIRE_H
#define GOSSIP_AGREE_WIRE_H

#include "gossip/agree/agree.h"

#include <stddef.h>

enum {
    GSP_WIRE_HEAD_BYTES = 56,
    GSP_WIRE_BYTES_MAX = 96 * 1024,              /* one message, without a piece's bytes: a PROPOSE
                                                    has 41 KiB of proposal, 14 of promises and echoes,
                                                    33 of what changes the roster */
    GSP_WIRE_PIECE_BYTES_MAX = 56 + 72 + 8 * 32, /* a PIECE's head */
    GSP_WIRE_SAVED_BYTES_MAX = 168 * 1024,
    GSP_WIRE_STEP_BYTES_MAX = 5 * 1024,
};

/* Writes the message into out[room] and returns its size. 0: an unknown kind, a count above its
 * limit, a float that may not be sent, or too little room. `from.key` does not travel. */
ATOM_MUST size_t gsp_wire_encode(const gsp_message *message, void *out, size_t room);

/*
 * Reads exactly data[bytes], which came over the link of `from`. Unused parts of *out that belong
 * to the kind are zero. *body, *body_bytes: what follows a PIECE or a STATE_CHUNK (as many as its
 * `bytes`), else NULL and 0. A caller that passes NULL for both gets no PIECE and no STATE_CHUNK:
 * they are refused.
 */
ATOM_MUST bool gsp_wire_decode(const void *data, size_t bytes, const gsp_key *from,
                               gsp_message *out, const void **body, size_t *body_bytes);

/* The same for what is kept in files: a claim with its genesis, a record, and what a member starts
 * from (gsp_saved). Sizes, 0 and false as above. */
ATOM_MUST size_t gsp_wire_put_claim(const gsp_genesis *genesis, const gsp_claim *claim, void *out,
                                    size_t room);
ATOM_MUST bool gsp_wire_get_claim(const void *data, size_t bytes, gsp_genesis *genesis,
                                  gsp_claim *claim);
ATOM_MUST size_t gsp_wire_put_record(const gsp_record *record, void *out, size_t room);
ATOM_MUST bool gsp_wire_get_record(const void *data, size_t bytes, gsp_record *out);
ATOM_MUST size_t gsp_wire_put_saved(const gsp_saved *saved, void *out, size_t room);
ATOM_MUST bool gsp_wire_get_saved(const void *data, size_t bytes, gsp_saved *out);
/* A step of a chain: at most GSP_WIRE_STEP_BYTES_MAX. */
ATOM_MUST size_t gsp_wire_put_step(const gsp_step *step, void *out, size_t room);
ATOM_MUST bool gsp_wire_get_step(const void *data, size_t bytes, gsp_step *out);

#endif
