/*
 * Owns the state of the caches in which a node is timed. One idea: between two runs in a step lies the
 * pass of a micro-batch through all other nodes, so as many bytes are written between two timed runs, but
 * no more than twice what the caches hold: beyond that nothing is left of the run before. Where a plan
 * runs one micro-batch after another through a small sub-model, less lies between, and the caches still hold
 * it: that is the second state. Refuses to guess which plan there will be: part_warm_share() mixes the two.
 */
#include "atom/plan/meanwhile.h"

#include "atom/base/mem.h"
#include "atom/base/size.h"

enum { LINE = 64, PIECE = 1 << 20 };
static const uint64_t CACHES_UNKNOWN = 32u << 20;

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

plan_meanwhile plan_meanwhile_open(atom_threads *threads, uint64_t pass_bytes, uint64_t cache_bytes,
                                   uint64_t warm_bytes, uint64_t available_bytes)
{
    uint64_t caches = cache_bytes ? cache_bytes : CACHES_UNKNOWN;
    uint64_t bytes = smaller(smaller(pass_bytes, 2 * caches), available_bytes / 4);
    plan_meanwhile m = {.threads = threads, .bytes = bytes / PIECE * PIECE};
    if (m.bytes)
        m.memory = atom_pages_take(m.bytes);
    if (!m.memory)
        m.bytes = 0;
    m.warm_bytes = smaller(m.bytes, warm_bytes / PIECE * PIECE);
    return m;
}

void plan_meanwhile_close(plan_meanwhile *m)
{
    atom_pages_give(m->memory, m->bytes);
    *m = (plan_meanwhile){0};
}

static void write_piece(void *ctx, uint32_t index, uint32_t worker)
{
    volatile unsigned char *piece = (unsigned char *)ctx + (uint64_t)index * PIECE;
    (void)worker;
    for (uint32_t i = 0; i < PIECE; i += LINE)
        piece[i]++;
}

void plan_meanwhile_pass(const plan_meanwhile *m, bool warm, const void *fresh,
                         uint64_t fresh_bytes)
{
    const uint64_t bytes = warm ? m->warm_bytes : m->bytes;
    volatile unsigned char sum = 0;
    const volatile unsigned char *at = fresh;
    if (bytes)
        atom_parallel(m->threads, (uint32_t)(bytes / PIECE), write_piece, m->memory);
    for (uint64_t i = 0; fresh && i < fresh_bytes; i += LINE)
        sum = (unsigned char)(sum + at[i]);
}
