/*
 * Owns the arithmetic of parts. Its one idea: every length follows from the manifest, so nobody has
 * to be believed about one.
 */
#include "gossip/member/parts.h"

#include "gossip/sum/mix.h"

static uint64_t fragment_floats(const gsp_terms *t, uint64_t version)
{
    return t->n_floats[gsp_terms_fragment(t, version)];
}

/* Encoded bytes of every part but the last ones. */
static uint64_t stride_bytes(const gsp_terms *t, uint64_t version)
{
    return gsp_codec_bytes(t->codec, gsp_part_stride(fragment_floats(t, version), t->n_parts));
}

uint64_t gsp_terms_floats(const gsp_terms *t, uint64_t version, uint32_t part, uint64_t *first)
{
    return gsp_part_cut(fragment_floats(t, version), t->n_parts, part, first);
}

uint64_t gsp_terms_floats_max(const gsp_terms *t)
{
    uint64_t most = 0, first;
    for (uint32_t f = 0; f < t->n_fragments; f++) {
        uint64_t n = gsp_terms_floats(t, f, 0, &first);
        most = n > most ? n : most;
    }
    return most;
}

uint64_t gsp_terms_bytes(const gsp_terms *t, uint64_t version, uint32_t part)
{
    uint64_t first;
    return gsp_codec_bytes(t->codec, gsp_terms_floats(t, version, part, &first));
}

uint64_t gsp_terms_offset(const gsp_terms *t, uint64_t version, uint32_t part)
{
    return gsp_terms_bytes(t, version, part) ? part * stride_bytes(t, version) : 0;
}

uint64_t gsp_terms_all_bytes(const gsp_terms *t, uint64_t version)
{
    return t->n_parts * stride_bytes(t, version);
}
