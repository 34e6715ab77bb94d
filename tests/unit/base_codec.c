/* Codecs' words and sizes: what is accepted, what is refused with all that there is, and bytes by
 * hand. */
#include "atom/base/codec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void words(void **state)
{
    static const char *const good[] = {"none",   "int8",     "int4",         "int2",
                                       "topk:1", "topk:0.1", "randomk:0.25", "topk:0.001"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        atom_codec codec;
        char text[ATOM_CODEC_TEXT_BYTES];
        assert_int_equal(atom_codec_parse(good[i], &codec), ATOM_OK);
        assert_string_equal(atom_codec_text(codec, text), good[i]);
    }
}

static void refusals(void **state)
{
    static const char *const bad[] = {"",          "int",     "int8:1",   "int16",      "topk",
                                      "topk:",     "topk:0",  "topk:1.1", "topk:-1",    "topk:nan",
                                      "topk:0.1x", "randomk", "INT8",     "topk:1e-60", "none:1"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        atom_codec codec = {ATOM_CODEC_N, 7};
        assert_int_equal(atom_codec_parse(bad[i], &codec), ATOM_E_USAGE);
        assert_int_equal(codec.kind, ATOM_CODEC_N);
        assert_non_null(strstr(atom_fail_message(), "int8, int4, int2, topk:SHARE"));
    }
}

static void bytes_by_hand(void **state)
{
    static const struct {
        const char *codec;
        int64_t n;
        uint64_t bytes;
    } rows[] = {
        {"int8", 768, 6 * (8 + 128)},
        {"int4", 768, 6 * (8 + 64)},
        {"int2", 768, 6 * (8 + 32)},
        {"int8", 129, 8 + 128 + 8 + 1},
        {"int4", 3, 8 + 2},
        {"int2", 5, 8 + 2},
        {"int2", 1, 9},
        {"randomk:0.1", 768, 2 * 77},
        {"randomk:0.0001", 768, 2},
        {"randomk:1", 768, 2 * 768},
        {"topk:0.1", 768, 2 * 77 + 96},                /* 768 bits are less than 77 numbers */
        {"topk:0.01", 768, 2 * 8 + 2 * 8},             /* 8 numbers are less than 768 bits */
        {"topk:0.1", 4100, 2 * 410 + 512 + 2 * 1 + 1}, /* the last four: one, and four bits */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        atom_codec codec;
        assert_int_equal(atom_codec_parse(rows[i].codec, &codec), ATOM_OK);
        assert_int_equal(atom_codec_row_bytes(codec, rows[i].n), rows[i].bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(words), cmocka_unit_test(refusals),
                                       cmocka_unit_test(bytes_by_hand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
