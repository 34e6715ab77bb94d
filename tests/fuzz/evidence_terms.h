/*
 * What the pool agreed on, of which the fuzzer's files of evidence say that they are: four kinds, the
 * first of which is that of the seeds.
 */
#ifndef TESTS_FUZZ_EVIDENCE_TERMS_H
#define TESTS_FUZZ_EVIDENCE_TERMS_H

#include "gossip/member/parts.h"

enum { EVIDENCE_TERMS_N = 4 };

static inline gsp_terms evidence_terms(uint32_t k)
{
    static const uint64_t n_floats[2] = {5000, 9};
    return (gsp_terms){.pool = {{9}},
                       .codec = k & 1 ? GSP_CODEC_INT8 : GSP_CODEC_FP32,
                       .robust = k >> 1,
                       .n_parts = 3,
                       .n_fragments = 1 + (k & 1),
                       .n_floats = n_floats};
}

#endif
