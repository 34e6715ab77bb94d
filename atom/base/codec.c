/*
 * Owns names and sizes of codecs. One idea: what a codec costs on the link follows from its name
 * and the row's width alone, so a plan, a report and an encoder all say the same. Refuses to know
 * values.
 */
#include "atom/base/codec.h"

#include "atom/base/assert.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const atom_codec_names[ATOM_CODEC_N] = {"none", "int8", "int4",
                                                    "int2", "topk", "randomk"};

static bool chooses(atom_codec_kind kind)
{
    return kind == ATOM_CODEC_TOPK || kind == ATOM_CODEC_RANDOMK;
}

static atom_status refuse(const char *text)
{
    return atom_fail(ATOM_E_USAGE,
                     "'%s' is not a codec; use int8, int4, int2, topk:SHARE, randomk:SHARE "
                     "(SHARE of the values is above 0 and at most 1: topk:0.1) or none",
                     text);
}

atom_status atom_codec_parse(const char *text, atom_codec *out)
{
    const char *colon = strchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : strlen(text);
    atom_codec codec = {.kind = ATOM_CODEC_N, .share = 1};
    for (int k = 0; k < ATOM_CODEC_N; k++)
        if (strlen(atom_codec_names[k]) == n && strncmp(text, atom_codec_names[k], n) == 0)
            codec.kind = (atom_codec_kind)k;
    if (codec.kind == ATOM_CODEC_N || chooses(codec.kind) != (colon != NULL))
        return refuse(text);
    if (colon) {
        char *end;
        double share = strtod(colon + 1, &end);
        if (end == colon + 1 || *end || !(share > 0 && share <= 1) || !((float)share > 0))
            return refuse(text);
        codec.share = (float)share;
    }
    *out = codec;
    return ATOM_OK;
}

const char *atom_codec_text(atom_codec codec, char text[ATOM_CODEC_TEXT_BYTES])
{
    if (chooses(codec.kind))
        snprintf(text, ATOM_CODEC_TEXT_BYTES, "%s:%.6g", atom_codec_names[codec.kind],
                 (double)codec.share);
    else
        snprintf(text, ATOM_CODEC_TEXT_BYTES, "%s", atom_codec_names[codec.kind]);
    return text;
}

int atom_codec_bits(atom_codec_kind kind)
{
    static const int bits[ATOM_CODEC_N] = {
        [ATOM_CODEC_INT8] = 8, [ATOM_CODEC_INT4] = 4, [ATOM_CODEC_INT2] = 2};
    return bits[kind];
}

int64_t atom_codec_block(atom_codec_kind kind)
{
    return chooses(kind) ? ATOM_CODEC_SPARSE_BLOCK : ATOM_CODEC_BLOCK;
}

int64_t atom_codec_kept(float share, int64_t n)
{
    int64_t kept = (int64_t)floor((double)share * (double)n + 0.5);
    return kept < 1 ? 1 : kept > n ? n : kept;
}

int64_t atom_codec_place_bytes(int64_t kept, int64_t n)
{
    int64_t list = 2 * kept, bits = (n + 7) / 8;
    return list < bits ? list : bits;
}

static int64_t block_bytes(atom_codec codec, int64_t n)
{
    int64_t kept = atom_codec_kept(codec.share, n);
    if (codec.kind == ATOM_CODEC_TOPK)
        return 2 * kept + atom_codec_place_bytes(kept, n);
    if (codec.kind == ATOM_CODEC_RANDOMK)
        return 2 * kept;
    return ATOM_CODEC_HEAD_BYTES + (n * atom_codec_bits(codec.kind) + 7) / 8;
}

uint64_t atom_codec_row_bytes(atom_codec codec, int64_t n)
{
    int64_t block = atom_codec_block(codec.kind), whole = n / block, rest = n % block;
    ATOM_ASSERT(codec.kind != ATOM_CODEC_NONE);
    return (uint64_t)(whole * block_bytes(codec, block) + (rest ? block_bytes(codec, rest) : 0));
}
