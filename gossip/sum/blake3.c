/*
 * Owns BLAKE3's compression, alone and several side by side, and the tree over chunks. Its one
 * idea: halving a level in place, where a node without a neighbour goes up as it is, gives BLAKE3's
 * tree; so a level is a row of equal jobs, and equal jobs fill a vector. It refuses to know any
 * instruction by name (isa.h), keys, other lengths of the result, and input that comes in pieces.
 */
#include "gossip/sum/blake3.h"

#include "gossip/sum/isa.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are read as they lie");

enum {
    BLOCK_BYTES = 64,
    CHUNK_BYTES = 1024,
    CHUNK_BLOCKS = CHUNK_BYTES / BLOCK_BYTES,
    TREE_CHUNKS = 256, /* of a tree whose levels are done one after the other */
    WIDTH_MAX = 16,
    KEY_WORDS = 8,
};
enum { CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8 };

typedef struct words {
    uint32_t word[KEY_WORDS];
} words;

static const uint32_t START[KEY_WORDS] = {
    0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
    0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u,
};

/* ---- a compression, on numbers or on vectors: v[16] state, m[16] message ---- */

#define TURN(x, n) ((x) >> (n) | (x) << (32 - (n)))
#define TURN16(x) TURN(x, 16)
#define TURN8(x) TURN(x, 8)
#define MIX(a, b, c, d, x, y)                                                                      \
    do {                                                                                           \
        v[a] = v[a] + m[x] + v[b]; /* what is there first, first */                                \
        v[d] = TURN16(v[d] ^ v[a]);                                                                \
        v[c] += v[d];                                                                              \
        v[b] = TURN(v[b] ^ v[c], 12);                                                              \
        v[a] = v[a] + m[y] + v[b];                                                                 \
        v[d] = TURN8(v[d] ^ v[a]);                                                                 \
        v[c] += v[d];                                                                              \
        v[b] = TURN(v[b] ^ v[c], 7);                                                               \
    } while (0)
#define ROUND(a, b, c, d, e, f, g, h, i, j, k, l, n, o, p, q)                                      \
    do {                                                                                           \
        MIX(0, 4, 8, 12, a, b);                                                                    \
        MIX(1, 5, 9, 13, c, d);                                                                    \
        MIX(2, 6, 10, 14, e, f);                                                                   \
        MIX(3, 7, 11, 15, g, h);                                                                   \
        MIX(0, 5, 10, 15, i, j);                                                                   \
        MIX(1, 6, 11, 12, k, l);                                                                   \
        MIX(2, 7, 8, 13, n, o);                                                                    \
        MIX(3, 4, 9, 14, p, q);                                                                    \
    } while (0)
#define ROUNDS                                                                                     \
    do {                                                                                           \
        ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);                               \
        ROUND(2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8);                               \
        ROUND(3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1);                               \
        ROUND(10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6);                               \
        ROUND(12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4);                               \
        ROUND(9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7);                               \
        ROUND(11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13);                               \
    } while (0)

/* One block of `bytes`, behind them zeros, into *h. */
static void compress(words *h, const uint8_t block[BLOCK_BYTES], uint64_t counter, uint32_t bytes,
                     uint32_t flags)
{
    uint32_t m[16], v[16];
    memcpy(m, block, sizeof m);
    memcpy(v, h, sizeof *h);
    memcpy(v + 8, START, 4 * sizeof *v);
    v[12] = (uint32_t)counter;
    v[13] = (uint32_t)(counter >> 32);
    v[14] = bytes;
    v[15] = flags;
    ROUNDS;
    for (int i = 0; i < KEY_WORDS; i++)
        h->word[i] = v[i] ^ v[i + 8];
}

/* ---- equal jobs side by side ---- */

/* Of up to WIDTH_MAX: `blocks` whole blocks each, the same flags; counters go up by `step`. */
typedef struct jobs {
    const uint8_t *at[WIDTH_MAX]; /* all set: an idle one repeats another's work */
    size_t blocks, ahead;         /* ahead: so far behind a block, memory is asked for */
    uint64_t counter;
    uint32_t step, flags, first, last; /* flags: in every block, in the first, in the last one */
} jobs;

typedef uint32_t vec4 __attribute__((vector_size(16)));
typedef uint32_t vec8 __attribute__((vector_size(32)));
typedef uint32_t vec16 __attribute__((vector_size(64)));
typedef uint8_t bytes8 __attribute__((vector_size(32))); /* of a vec8 */

#define PICK __builtin_shufflevector

/* Pairs of words, then of double words, of neighbours: within 16 bytes what was a row is a column.
 * LOW and HIGH, LOW2 and HIGH2 are the vector's widths of it. */
#define TURN_QUARTERS(vec, r, LOW, HIGH, LOW2, HIGH2)                                              \
    do {                                                                                           \
        vec a = LOW((r)[0], (r)[1]), b = HIGH((r)[0], (r)[1]);                                     \
        vec c = LOW((r)[2], (r)[3]), d = HIGH((r)[2], (r)[3]);                                     \
        (r)[0] = LOW2(a, c);                                                                       \
        (r)[1] = HIGH2(a, c);                                                                      \
        (r)[2] = LOW2(b, d);                                                                       \
        (r)[3] = HIGH2(b, d);                                                                      \
    } while (0)

#define LOW_4(a, b) PICK(a, b, 0, 4, 1, 5)
#define HIGH_4(a, b) PICK(a, b, 2, 6, 3, 7)
#define LOW2_4(a, b) PICK(a, b, 0, 1, 4, 5)
#define HIGH2_4(a, b) PICK(a, b, 2, 3, 6, 7)

#define LOW_8(a, b) PICK(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define HIGH_8(a, b) PICK(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define LOW2_8(a, b) PICK(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define HIGH2_8(a, b) PICK(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define FRONT_8(a, b) PICK(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define BACK_8(a, b) PICK(a, b, 4, 5, 6, 7, 12, 13, 14, 15)

#define LOW_16(a, b) PICK(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define HIGH_16(a, b) PICK(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
#define LOW2_16(a, b) PICK(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define HIGH2_16(a, b) PICK(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
#define EVEN_16(a, b) PICK(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)
#define ODD_16(a, b) PICK(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31)

/* The 16 words of everybody's block, m[w][i] the word w of number i. */
GSP_INLINE void gather_4(vec4 m[16], const jobs *j, size_t offset)
{
    for (int k = 0; k < 16; k += 4) {
        for (int i = 0; i < 4; i++)
            memcpy(&m[k + i], j->at[i] + offset + k * 4, sizeof *m);
        TURN_QUARTERS(vec4, m + k, LOW_4, HIGH_4, LOW2_4, HIGH2_4);
    }
}

GSP_INLINE void gather_8(vec8 m[16], const jobs *j, size_t offset)
{
    for (int k = 0; k < 16; k += 8) {
        vec8 r[8];
        for (int i = 0; i < 8; i++)
            memcpy(&r[i], j->at[i] + offset + k * 4, sizeof *r);
        for (int i = 0; i < 8 && k == 0; i++)
            __builtin_prefetch(j->at[i] + offset + j->ahead, 0, 2); /* into the second cache */
        TURN_QUARTERS(vec8, r, LOW_8, HIGH_8, LOW2_8, HIGH2_8);
        TURN_QUARTERS(vec8, r + 4, LOW_8, HIGH_8, LOW2_8, HIGH2_8);
        for (int i = 0; i < 4; i++) {
            m[k + i] = FRONT_8(r[i], r[i + 4]);
            m[k + i + 4] = BACK_8(r[i], r[i + 4]);
        }
    }
}

GSP_INLINE void gather_16(vec16 m[16], const jobs *j, size_t offset)
{
    vec16 r[16];
    for (int i = 0; i < 16; i++) {
        memcpy(&r[i], j->at[i] + offset, sizeof *r);
        __builtin_prefetch(j->at[i] + offset + j->ahead, 0, 2); /* into the second cache */
    }
    for (int i = 0; i < 16; i += 4)
        TURN_QUARTERS(vec16, r + i, LOW_16, HIGH_16, LOW2_16, HIGH2_16);
    for (int i = 0; i < 4; i++) {
        vec16 even = EVEN_16(r[i], r[i + 4]), even_high = EVEN_16(r[i + 8], r[i + 12]);
        vec16 odd = ODD_16(r[i], r[i + 4]), odd_high = ODD_16(r[i + 8], r[i + 12]);
        m[i] = EVEN_16(even, even_high);
        m[i + 4] = EVEN_16(odd, odd_high);
        m[i + 8] = ODD_16(even, even_high);
        m[i + 12] = ODD_16(odd, odd_high);
    }
}

/* Compresses the jobs; the first n of `out` are theirs. */
#define WIDE(width, target)                                                                        \
    target static void wide_##width(const jobs *j, words *out, uint32_t n)                         \
    {                                                                                              \
        vec##width h[8], v[16], m[16], low = {0}, high = {0};                                      \
        uint32_t word[8][width];                                                                   \
        for (uint32_t i = 0; i < width; i++) {                                                     \
            low[i] = (uint32_t)(j->counter + (uint64_t)i * j->step);                               \
            high[i] = (uint32_t)((j->counter + (uint64_t)i * j->step) >> 32);                      \
        }                                                                                          \
        for (int i = 0; i < 8; i++)                                                                \
            h[i] = (vec##width){0} + START[i];                                                     \
        for (size_t b = 0, offset = 0; b < j->blocks; b++, offset += BLOCK_BYTES) {                \
            uint32_t flags = j->flags | (b ? 0 : j->first) | (b + 1 == j->blocks ? j->last : 0);   \
            gather_##width(m, j, offset);                                                          \
            for (int i = 0; i < 8; i++)                                                            \
                v[i] = h[i];                                                                       \
            for (int i = 0; i < 4; i++)                                                            \
                v[i + 8] = (vec##width){0} + START[i];                                             \
            v[12] = low;                                                                           \
            v[13] = high;                                                                          \
            v[14] = (vec##width){0} + BLOCK_BYTES;                                                 \
            v[15] = (vec##width){0} + flags;                                                       \
            ROUNDS;                                                                                \
            for (int i = 0; i < 8; i++)                                                            \
                h[i] = v[i] ^ v[i + 8];                                                            \
        }                                                                                          \
        memcpy(word, h, sizeof word);                                                              \
        for (uint32_t i = 0; i < n; i++)                                                           \
            for (int k = 0; k < 8; k++)                                                            \
                out[i].word[k] = word[k][i];                                                       \
    }

WIDE(4, )
WIDE(16, __attribute__((target(GSP_AVX512))))

/* AVX2 has no turn; by whole bytes, a pick is one. */
#undef TURN16
#undef TURN8
#define TURN16(x)                                                                                  \
    ((vec8)PICK((bytes8)(x), (bytes8)(x), 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13,    \
                18, 19, 16, 17, 22, 23, 20, 21, 26, 27, 24, 25, 30, 31, 28, 29))
#define TURN8(x)                                                                                   \
    ((vec8)PICK((bytes8)(x), (bytes8)(x), 1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12,    \
                17, 18, 19, 16, 21, 22, 23, 20, 25, 26, 27, 24, 29, 30, 31, 28))
WIDE(8, __attribute__((target("avx2"))))

static bool has_width(unsigned width)
{
    if (width == 16)
        return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq");
    return width == 8 ? __builtin_cpu_supports("avx2") : width == 4 || width == 1;
}

static void alone(const jobs *j, words *out)
{
    memcpy(out, START, sizeof *out);
    for (size_t b = 0; b < j->blocks; b++)
        compress(out, j->at[0] + b * BLOCK_BYTES, j->counter, BLOCK_BYTES,
                 j->flags | (b ? 0 : j->first) | (b + 1 == j->blocks ? j->last : 0));
}

/* n jobs at data, data + stride, ...; fills in j->at. */
static void side_by_side(unsigned width, jobs *j, const uint8_t *data, size_t stride, uint32_t n,
                         words *out)
{
    j->ahead = 4 * (size_t)width * stride; /* memory is farther away than one turn */
    for (uint32_t done = 0, now; done < n; done += now) {
        now = n - done < width ? n - done : width;
        for (uint32_t i = 0; i < WIDTH_MAX; i++)
            j->at[i] = data + (done + (i < now ? i : 0)) * stride;
        if (now == 1)
            alone(j, out + done);
        else if (width == 16)
            wide_16(j, out + done, now);
        else if (width == 8)
            wide_8(j, out + done, now);
        else
            wide_4(j, out + done, now);
        j->counter += (uint64_t)now * j->step;
    }
}

/* ---- the tree ---- */

/* 0 to CHUNK_BYTES of them, alone in the tree if root is ROOT. */
static void hash_chunk(const uint8_t *data, size_t bytes, uint64_t counter, uint32_t root,
                       words *out)
{
    uint32_t flags = CHUNK_START;
    uint8_t block[BLOCK_BYTES] = {0};
    memcpy(out, START, sizeof *out);
    for (; bytes > BLOCK_BYTES; data += BLOCK_BYTES, bytes -= BLOCK_BYTES, flags = 0)
        compress(out, data, counter, BLOCK_BYTES, flags);
    if (bytes)
        memcpy(block, data, bytes);
    compress(out, block, counter, (uint32_t)bytes, flags | CHUNK_END | root);
}

static void hash_parent(const words child[2], uint32_t root, words *out)
{
    uint8_t block[BLOCK_BYTES];
    memcpy(block, child, sizeof block);
    memcpy(out, START, sizeof *out);
    compress(out, block, 0, BLOCK_BYTES, PARENT | root);
}

/* Up to TREE_CHUNKS chunks, at least two. */
static void hash_tree(unsigned width, const uint8_t *data, size_t bytes, uint64_t counter,
                      uint32_t root, words *out)
{
    words level[2][TREE_CHUNKS];
    uint32_t n = (uint32_t)(bytes / CHUNK_BYTES), at = 0;
    jobs chunks = {.blocks = CHUNK_BLOCKS,
                   .counter = counter,
                   .step = 1,
                   .first = CHUNK_START,
                   .last = CHUNK_END};
    jobs parents = {.blocks = 1, .flags = PARENT};
    side_by_side(width, &chunks, data, CHUNK_BYTES, n, level[0]);
    if (bytes % CHUNK_BYTES) {
        hash_chunk(data + (size_t)n * CHUNK_BYTES, bytes % CHUNK_BYTES, counter + n, 0,
                   &level[0][n]);
        n++;
    }
    for (; n > 2; n = (n + 1) / 2, at = !at) {
        side_by_side(width, &parents, (const uint8_t *)level[at], 2 * sizeof(words), n / 2,
                     level[!at]);
        if (n % 2)
            level[!at][n / 2] = level[at][n - 1];
    }
    hash_parent(level[at], root, out);
}

static void hash(unsigned width, const uint8_t *data, size_t bytes, uint64_t counter, uint32_t root,
                 words *out)
{
    words child[2];
    size_t left = TREE_CHUNKS * CHUNK_BYTES;
    if (bytes <= CHUNK_BYTES) {
        hash_chunk(data, bytes, counter, root, out);
    } else if (bytes <= TREE_CHUNKS * CHUNK_BYTES) {
        hash_tree(width, data, bytes, counter, root, out);
    } else { /* on the left the most that a whole tree holds, and something on the right */
        while (left < bytes - left)
            left *= 2;
        hash(width, data, left, counter, 0, &child[0]);
        hash(width, data + left, bytes - left, counter + left / CHUNK_BYTES, 0, &child[1]);
        hash_parent(child, root, out);
    }
}

bool gsp_blake3_by(unsigned width, const void *data, size_t bytes, uint8_t out[GSP_BLAKE3_BYTES])
{
    words result;
    if (!has_width(width))
        return false;
    hash(width, data, bytes, 0, ROOT, &result);
    memcpy(out, &result, sizeof result);
    return true;
}

void gsp_blake3(const void *data, size_t bytes, uint8_t out[GSP_BLAKE3_BYTES])
{
    words result;
    hash(has_width(16) ? 16 : has_width(8) ? 8 : 4, data, bytes, 0, ROOT, &result);
    memcpy(out, &result, sizeof result);
}
