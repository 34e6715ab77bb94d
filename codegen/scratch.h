/*
 * First-fit scratch for what lives only inside a call list: values and gradients of tensors. Inner
 * header of codegen.
 *
 * Thread: any, one at a time. Owner: the caller, who begins with zeros; nothing is allocated.
 */
#ifndef CODEGEN_SCRATCH_H
#define CODEGEN_SCRATCH_H

#include <stdbool.h>
#include <stdint.h>

enum { LIVE_MAX = 64 };

typedef struct gen_live_block {
    int32_t tensor;
    bool gradient;
    uint64_t offset, bytes;
} gen_live_block;

/* The live blocks, sorted by offset, and the most bytes they ever took. */
typedef struct gen_scratch {
    uint32_t n;
    gen_live_block blocks[LIVE_MAX];
    uint64_t peak;
} gen_scratch;

/* Returns the offset of a new block. */
uint64_t gen_scratch_take(gen_scratch *s, int32_t tensor, bool gradient, uint64_t bytes);
/* NULL: not there. Valid until the next call. */
gen_live_block *gen_scratch_find(gen_scratch *s, int32_t tensor, bool gradient);
/* Nothing happens where it is not there. */
void gen_scratch_give(gen_scratch *s, int32_t tensor, bool gradient);

#endif
