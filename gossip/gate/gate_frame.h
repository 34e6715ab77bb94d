/*
 * What a peer may send to our nanomsg through the gate: the greeting of a PAIR, then frames of one
 * kind, none empty and none too large. nanomsg 1.1.5 aborts the whole process on a frame of another
 * kind (sipc.c asserts on what it has read), so a member could stop every other one with a single
 * byte. This is the only thing that the gate looks at in what it carries.
 *
 *   greeting  0 'S' 'P' 0 | u16 protocol 16 (PAIR) | u16 0
 *   frame     u8 1 | u64 length, big-endian | the message
 *
 * Thread: one at a time per object.
 */
#ifndef GOSSIP_GATE_GATE_FRAME_H
#define GOSSIP_GATE_GATE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GSP_GREETING_BYTES = 8, GSP_FRAME_HEAD_BYTES = 9 };

typedef struct gsp_frames {
    uint64_t bytes_max; /* of one message */
    uint64_t left;      /* of the current message */
    uint32_t greeted;   /* bytes of the greeting so far */
    uint32_t n_head;    /* bytes of the current head so far */
    uint8_t head[GSP_FRAME_HEAD_BYTES];
} gsp_frames;

/* Looks at the next n bytes of the stream. False: they must not be passed on. */
bool gsp_frames_pass(gsp_frames *frames, const uint8_t *data, size_t n);

#endif
