/* Owns first-fit scratch. One idea: blocks are sorted, so the first gap wide enough ends the search. */
#include "codegen/scratch.h"

#include "atom/base/assert.h"

#include <stddef.h>
#include <string.h>

uint64_t gen_scratch_take(gen_scratch *s, int32_t tensor, bool gradient, uint64_t bytes)
{
    uint64_t at = 0;
    uint32_t i = 0;
    for (; i < s->n && s->blocks[i].offset < at + bytes; i++)
        at = s->blocks[i].offset + s->blocks[i].bytes;
    ATOM_ASSERT(s->n < LIVE_MAX);
    memmove(&s->blocks[i + 1], &s->blocks[i], (s->n - i) * sizeof s->blocks[0]);
    s->blocks[i] = (gen_live_block){tensor, gradient, at, bytes};
    s->n++;
    if (at + bytes > s->peak)
        s->peak = at + bytes;
    return at;
}

gen_live_block *gen_scratch_find(gen_scratch *s, int32_t tensor, bool gradient)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->blocks[i].tensor == tensor && s->blocks[i].gradient == gradient)
            return &s->blocks[i];
    }
    return NULL;
}

void gen_scratch_give(gen_scratch *s, int32_t tensor, bool gradient)
{
    gen_live_block *b = gen_scratch_find(s, tensor, gradient);
    if (!b)
        return;
    uint32_t i = (uint32_t)(b - s->blocks);
    memmove(b, b + 1, (s->n - i - 1) * sizeof *b);
    s->n--;
}
