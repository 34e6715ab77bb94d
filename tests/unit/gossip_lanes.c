/*
 * Eight lanes side by side against libsodium's BLAKE2b, one lane after the other: the same hashes
 * for every length around the edges of words, rows and blocks, and of nothing.
 */
#include "gossip/sum/lanes.h"

#include "atom/base/mem.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sodium.h>

enum { BYTES_MAX = 300000, ROW = 1024 };

/* By the header's words. */
static void plain(const uint8_t *data, size_t bytes, uint8_t out[GSP_LANES][GSP_LANE_HASH_BYTES])
{
    size_t rows = (bytes + ROW - 1) / ROW;
    uint8_t *lane = atom_alloc(rows + 1, ROW / GSP_LANES);
    assert_non_null(lane);
    for (size_t i = 0; i < GSP_LANES; i++) {
        for (size_t k = 0; k < rows * ROW / GSP_LANES; k++) {
            size_t at = (k / 8 * GSP_LANES + i) * 8 + k % 8;
            lane[k] = at < bytes ? data[at] : 0;
        }
        crypto_generichash(out[i], GSP_LANE_HASH_BYTES, lane, rows * ROW / GSP_LANES, NULL, 0);
    }
    atom_free(lane);
}

static void lanes_are_blake2b(void **state)
{
    (void)state;
    static const size_t sizes[] = {0,    1,    7,    8,     9,     63,    64,     65,    127,
                                   128,  1000, 1023, 1024,  1025,  2047,  2048,   2049,  3000,
                                   4096, 5000, 8192, 65535, 65536, 70001, 262144, 300000};
    uint8_t *data = atom_alloc(1, BYTES_MAX + 1), a[GSP_LANES][32], b[GSP_LANES][32];
    assert_non_null(data);
    for (size_t k = 0; k <= BYTES_MAX; k++)
        data[k] = (uint8_t)((k * 2654435761u) >> 13);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t off = 0; off < 2; off++) { /* aligned and not */
            gsp_lanes_hash(data + off, sizes[s], a);
            plain(data + off, sizes[s], b);
            assert_memory_equal(a, b, sizeof a);
        }
    atom_free(data);
}

static void every_bit_counts(void **state)
{
    (void)state;
    uint8_t data[2100] = {0}, was[GSP_LANES][32], is[GSP_LANES][32];
    gsp_lanes_hash(data, sizeof data, was);
    for (size_t k = 0; k < sizeof data; k++) {
        data[k] ^= (uint8_t)(1u << k % 8);
        gsp_lanes_hash(data, sizeof data, is);
        for (size_t i = 0; i < GSP_LANES; i++)
            assert_int_equal(memcmp(was[i], is[i], 32) != 0, k / 8 % GSP_LANES == i);
        data[k] = 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lanes_are_blake2b),
                                       cmocka_unit_test(every_bit_counts)};
    assert_true(sodium_init() >= 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
