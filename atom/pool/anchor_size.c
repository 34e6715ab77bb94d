/*
 * Owns how a vector is cut into fragments, and what a pool takes of memory and disk for it. One idea:
 * both follow from sizes alone, so they are known before anything is taken. Refuses to allocate.
 */
#include "atom/pool/anchor_inner.h"

enum { BLOCK = 128 /* GRAPH_PARAM_ALIGN */ };

/* ---- geometry ---- */

uint32_t pool_fragments(uint64_t n_floats, uint32_t wanted)
{
    uint64_t most = n_floats / BLOCK;
    uint64_t n = wanted < most ? wanted : most;
    n = n < GSP_FRAGMENTS_MAX ? n : GSP_FRAGMENTS_MAX;
    return n ? (uint32_t)n : 1;
}

static uint64_t boundary(uint64_t n_floats, uint32_t n_fragments, uint32_t f)
{
    if (f >= n_fragments)
        return n_floats;
    uint64_t blocks = (n_floats + BLOCK - 1) / BLOCK;
    uint64_t at = (blocks / n_fragments * f + blocks % n_fragments * f / n_fragments) * BLOCK;
    return at < n_floats ? at : n_floats;
}

uint64_t pool_fragment_range(uint64_t n_floats, uint32_t n_fragments, uint32_t f, uint64_t *first)
{
    *first = boundary(n_floats, n_fragments, f);
    return boundary(n_floats, n_fragments, f + 1) - *first;
}

uint64_t pool_longest(uint64_t n_floats, uint32_t n_fragments)
{
    uint64_t first, most = 0;
    for (uint32_t f = 0; f < n_fragments; f++) {
        uint64_t n = pool_fragment_range(n_floats, n_fragments, f, &first);
        most = n > most ? n : most;
    }
    return most;
}

uint64_t pool_anchor_host_bytes(uint64_t n_floats, uint32_t n_fragments, pool_sync sync,
                                bool on_disk)
{
    uint64_t fragment = pool_longest(n_floats, n_fragments);
    /* Rooms for pieces, the trainer's among them; a contribution, and with a sum a second one. */
    uint64_t pieces = 4 * (POOL_ROOMS + 1) * (uint64_t)POOL_PIECE_FLOATS;
    if (on_disk && sync != POOL_SYNC_DENSE_FIRST)
        return pieces + 4 * fragment * (sync == POOL_SYNC_DELAYED ? 2 : 1);
    if (sync == POOL_SYNC_GRADIENTS) /* anchor, m, v, sum; contribution, average */
        return 4 * 6 * n_floats;
    if (sync == POOL_SYNC_DELAYED) /* that, the weights before, a second contribution */
        return 4 * (6 + 2) * n_floats;
    if (sync == POOL_SYNC_DENSE_FIRST) /* that, and for averages the version being made, a merge */
        return 4 * (6 + 2 + 1) * n_floats;
    if (sync == POOL_SYNC_SLICES) /* anchor; delta, the version being made, a merge */
        return 4 * (n_floats + (1 + 1 + 1) * fragment);
    /* anchor, momentum; delta and copy-out, the version being made, a merge */
    return 4 * (2 * n_floats + (2 + 2 + 2) * fragment);
}

uint64_t pool_anchor_state_bytes(uint64_t n_floats, pool_sync sync)
{
    static const uint64_t vectors[] = {[POOL_SYNC_PARAMETERS] = 2,
                                       [POOL_SYNC_GRADIENTS] = 4,
                                       [POOL_SYNC_SLICES] = 1,
                                       [POOL_SYNC_DENSE_FIRST] = 4,
                                       [POOL_SYNC_DELAYED] = 5};
    return 4 * vectors[sync] * n_floats;
}

uint64_t pool_anchor_disk_bytes(uint64_t n_floats, uint32_t n_fragments, pool_sync sync,
                                bool on_disk)
{
    uint64_t state = pool_anchor_state_bytes(n_floats, sync);
    /* Two of everything; and a third of what is being fetched (the member's state.F), or kept as it
     * was for a member that fetches (its lease.F). */
    uint64_t bytes = 3 * state + 4096 * 2 * (uint64_t)n_fragments;
    /* The version being made; copy-out and two merges, or with a sum what comes of it. */
    bool sums = sync == POOL_SYNC_GRADIENTS || sync == POOL_SYNC_DELAYED;
    uint64_t made = state / n_floats + (sums ? 4 : 12);
    return on_disk ? bytes + made * pool_longest(n_floats, n_fragments) : bytes;
}
