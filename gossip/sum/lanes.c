/*
 * Owns the compression of eight lanes at once. One idea: lanes take words in turn, so that a vector
 * of eight words in memory is already one word of each lane, and nothing is ever transposed. The
 * loop is RFC 7693's, on vectors; it refuses to know any instruction by name (isa.h).
 */
#include "gossip/sum/lanes.h"

#include "gossip/sum/isa.h"

#include <stdbool.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are read as they lie");

enum { BLOCK_BYTES = 128, ROW_BYTES = BLOCK_BYTES * GSP_LANES, ROUNDS = 12 };

typedef uint64_t lanes __attribute__((vector_size(64)));

static const uint64_t START[8] = {
    0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
    0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u,
};

static const uint8_t ORDER[ROUNDS][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
};

#define ROTATE(x, n) ((x) >> (n) | (x) << (64 - (n)))
#define MIX(a, b, c, d, x, y)                                                                      \
    do {                                                                                           \
        v[a] += v[b] + (x);                                                                        \
        v[d] = ROTATE(v[d] ^ v[a], 32);                                                            \
        v[c] += v[d];                                                                              \
        v[b] = ROTATE(v[b] ^ v[c], 24);                                                            \
        v[a] += v[b] + (y);                                                                        \
        v[d] = ROTATE(v[d] ^ v[a], 16);                                                            \
        v[c] += v[d];                                                                              \
        v[b] = ROTATE(v[b] ^ v[c], 63);                                                            \
    } while (0)

/* rows blocks of every lane at data; hashed: bytes of a lane before them; last: and no more. */
GSP_INLINE void compress_body(lanes *state, const uint8_t *data, size_t rows, uint64_t hashed,
                              uint64_t last)
{
    lanes h[8], v[16], m[16];
    memcpy(h, state, sizeof h);
    for (size_t row = 0; row < rows; row++) {
        const uint64_t final = last && row + 1 == rows ? UINT64_MAX : 0;
        hashed += BLOCK_BYTES;
        memcpy(m, data + row * ROW_BYTES, sizeof m);
        for (int i = 0; i < 8; i++) {
            v[i] = h[i];
            v[i + 8] = (lanes){0} + START[i];
        }
        v[12] ^= hashed;
        v[14] ^= final;
        for (int r = 0; r < ROUNDS; r++) {
            const uint8_t *s = ORDER[r];
            MIX(0, 4, 8, 12, m[s[0]], m[s[1]]);
            MIX(1, 5, 9, 13, m[s[2]], m[s[3]]);
            MIX(2, 6, 10, 14, m[s[4]], m[s[5]]);
            MIX(3, 7, 11, 15, m[s[6]], m[s[7]]);
            MIX(0, 5, 10, 15, m[s[8]], m[s[9]]);
            MIX(1, 6, 11, 12, m[s[10]], m[s[11]]);
            MIX(2, 7, 8, 13, m[s[12]], m[s[13]]);
            MIX(3, 4, 9, 14, m[s[14]], m[s[15]]);
        }
        for (int i = 0; i < 8; i++)
            h[i] ^= v[i] ^ v[i + 8];
    }
    memcpy(state, h, sizeof h);
}
GSP_FOR_ISAS(void, compress,
             (lanes * state, const uint8_t *data, size_t rows, uint64_t hashed, uint64_t last),
             (state, data, rows, hashed, last))

void gsp_lanes_hash(const void *data, size_t bytes, uint8_t out[GSP_LANES][GSP_LANE_HASH_BYTES])
{
    lanes state[8];
    uint8_t rest[ROW_BYTES] = {0};
    size_t whole = bytes / ROW_BYTES, left = bytes % ROW_BYTES;
    bool ends = left > 0 || whole == 0; /* in a block of zeros behind the whole ones */
    for (int i = 0; i < 8; i++)
        state[i] = (lanes){0} + START[i];
    state[0] ^= 0x01010000u ^ GSP_LANE_HASH_BYTES;
    if (whole)
        compress(state, data, whole, 0, !ends);
    if (left)
        memcpy(rest, (const uint8_t *)data + whole * ROW_BYTES, left);
    if (ends) /* of nothing at all, 0 bytes are hashed, and wrapping around says so */
        compress(state, rest, 1, whole * BLOCK_BYTES - (bytes ? 0u : BLOCK_BYTES), 1);
    for (int lane = 0; lane < GSP_LANES; lane++)
        for (int i = 0; i < GSP_LANE_HASH_BYTES / 8; i++) {
            uint64_t word = state[i][lane];
            memcpy(out[lane] + 8 * i, &word, sizeof word);
        }
}
