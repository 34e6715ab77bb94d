/*
 * Codecs for activations on a link between two hosts: their names and the size of what they send.
 * The bytes themselves are made by kernels (kernels/ref/codec.h has each format in full).
 *
 *   int8 int4 int2     each block of ATOM_CODEC_BLOCK values of a row has a lowest value and a step
 *                      (f32 each); a value is the number of steps above the lowest, in 8, 4 or 2
 *                      bits
 *   topk:SHARE         of each block of ATOM_CODEC_SPARSE_BLOCK values the given share with the
 *                      largest |x|, in bf16, with their places; the others are zeros
 *   randomk:SHARE      as many, at random; both ends draw the same places, so that none travel
 *
 * Blocks do not cross rows; the last one of a row may be shorter. Source: Bian et al. 2023, Does
 * compressing activations help model parallel training?, section 3.1; blockwise scales as in
 * Dettmers et al. 2022. Thread: any.
 */
#ifndef ATOM_BASE_CODEC_H
#define ATOM_BASE_CODEC_H

#include "atom/base/status.h"

#include <stdint.h>

typedef enum atom_codec_kind {
    ATOM_CODEC_NONE,
    ATOM_CODEC_INT8,
    ATOM_CODEC_INT4,
    ATOM_CODEC_INT2,
    ATOM_CODEC_TOPK,
    ATOM_CODEC_RANDOMK,
    ATOM_CODEC_N
} atom_codec_kind;

typedef struct atom_codec {
    atom_codec_kind kind;
    float share; /* topk, randomk: of the values that are sent, above 0, at most 1; others: 1 */
} atom_codec;

enum {
    ATOM_CODEC_BLOCK = 128,         /* values with a lowest value and a step of their own */
    ATOM_CODEC_HEAD_BYTES = 8,      /* those two */
    ATOM_CODEC_SPARSE_BLOCK = 4096, /* values of which topk and randomk choose */
    ATOM_CODEC_TEXT_BYTES = 32      /* room for atom_codec_text */
};

/* "none", "int8", ... by kind. */
extern const char *const atom_codec_names[ATOM_CODEC_N];

/* "int8", "topk:0.1", "none". ATOM_E_USAGE says which there are. */
ATOM_MUST atom_status atom_codec_parse(const char *text, atom_codec *out);
/* The same text again; returns it. */
const char *atom_codec_text(atom_codec codec, char text[ATOM_CODEC_TEXT_BYTES]);

/* Bits of a value that int8, int4 and int2 send; 0: another codec. */
int atom_codec_bits(atom_codec_kind kind);
/* Values of a block. */
int64_t atom_codec_block(atom_codec_kind kind);
/* How many of n values topk and randomk send: the share to the nearest number, at least one. */
int64_t atom_codec_kept(float share, int64_t n);
/* Bytes of the places of topk: a list of 16-bit numbers, or n bits where that is less. */
int64_t atom_codec_place_bytes(int64_t kept, int64_t n);
/* Bytes of a row of n values on the link. */
uint64_t atom_codec_row_bytes(atom_codec codec, int64_t n);

#endif
