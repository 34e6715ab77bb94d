/* Bounded readers and writers, hexadecimal digits, element types, the op table. */
#include "atom/base/bytes.h"
#include "atom/base/dtype.h"
#include "atom/base/hex.h"
#include "atom/base/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void reads_little_endian(void **state)
{
    (void)state;
    static const uint8_t data[15] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    atom_reader r = atom_reader_make(data, sizeof data);
    assert_int_equal(atom_read_u8(&r), 1);
    assert_int_equal(atom_read_u16(&r), 0x0302);
    assert_int_equal(atom_read_u32(&r), 0x07060504);
    assert_int_equal(atom_reader_left(&r), 8);
    assert_int_equal(atom_read_u64(&r), 0x0f0e0d0c0b0a0908u);
    assert_true(atom_reader_ok(&r));
}

static void hexadecimal_is_strict(void **state)
{
    (void)state;
    static const uint8_t bytes[3] = {0x00, 0x9a, 0xff};
    static const char *const wrong[] = {"",       "009af",  "009aff0", "009aFF",
                                        "009ag0", " 09aff", "009affg", NULL};
    char text[7];
    uint8_t back[3] = {1, 1, 1};
    assert_string_equal(atom_hex(bytes, 3, text), "009aff");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(atom_unhex(wrong[i], back, 3));
    assert_int_equal(back[0], 1);
    assert_true(atom_unhex(text, back, 3));
    assert_memory_equal(back, bytes, 3);
}

static void never_reads_past_the_end(void **state)
{
    (void)state;
    static const uint8_t data[3] = {1, 2, 3};
    atom_reader r = atom_reader_make(data, sizeof data);
    assert_int_equal(atom_read_u32(&r), 0);
    assert_false(atom_reader_ok(&r));
    assert_int_equal(atom_read_u8(&r), 0); /* bad for good */
    uint8_t out[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    atom_read_bytes(&r, out, sizeof out);
    for (int i = 0; i < 8; i++)
        assert_int_equal(out[i], 0);
    r = atom_reader_make(data, sizeof data);
    atom_read_bytes(&r, out, SIZE_MAX > 8 ? 4 : 0);
    assert_false(atom_reader_ok(&r));
    r = atom_reader_make(NULL, 0);
    assert_true(atom_reader_ok(&r));
    assert_int_equal(atom_read_u8(&r), 0);
    assert_false(atom_reader_ok(&r));
}

static void never_writes_past_the_end(void **state)
{
    (void)state;
    uint8_t out[8] = {0, 0, 0, 0, 0, 0, 77, 77};
    atom_writer w = atom_writer_make(out, 6);
    atom_write_uint(&w, 0x04030201, 4);
    assert_false(w.bad);
    atom_write_uint(&w, 0x0a090807, 4);
    assert_true(w.bad);
    atom_write_uint(&w, 1, 1);
    static const uint8_t expected[8] = {1, 2, 3, 4, 0, 0, 77, 77};
    assert_memory_equal(out, expected, 8);
}

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        float f = atom_bf16_to_f32((atom_bf16)i);
        if (isnan(f))
            assert_true(isnan(atom_bf16_to_f32(atom_f32_to_bf16(f))));
        else
            assert_int_equal(atom_f32_to_bf16(f), i);
    }
    assert_int_equal(atom_f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);            /* tie: to even */
    assert_int_equal(atom_f32_to_bf16(1.0f + 0x3p-8f), 0x3f82);            /* tie: to even */
    assert_int_equal(atom_f32_to_bf16(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81); /* above the tie */
    assert_int_equal(atom_f32_to_bf16(3.4028235e38f), 0x7f80);             /* overflows */
    uint32_t bits = 0x7f800001u; /* a NaN whose upper half alone would be infinity */
    float nan_low;
    memcpy(&nan_low, &bits, 4);
    assert_true(isnan(atom_bf16_to_f32(atom_f32_to_bf16(nan_low))));
}

static void f16_decodes(void **state)
{
    (void)state;
    assert_true(atom_f16_to_f32(0x3c00) == 1.0f);
    assert_true(atom_f16_to_f32(0xc000) == -2.0f);
    assert_true(atom_f16_to_f32(0x7bff) == 65504.0f);
    assert_true(atom_f16_to_f32(0x0001) == 0x1p-24f);
    assert_true(atom_f16_to_f32(0x83ff) == -1023 * 0x1p-24f);
    assert_true(isinf(atom_f16_to_f32(0x7c00)));
    assert_true(isnan(atom_f16_to_f32(0x7e00)));
    assert_true(signbit(atom_f16_to_f32(0x8000)) != 0);
}

static void names_round_trip(void **state)
{
    (void)state;
    for (int i = 0; i < ATOM_DTYPE_N; i++) {
        atom_dtype back = ATOM_DTYPE_N;
        assert_int_equal(atom_dtype_parse(atom_dtype_name((atom_dtype)i), &back), 0);
        assert_int_equal(back, i);
    }
    atom_dtype untouched = ATOM_BF16;
    assert_int_equal(atom_dtype_parse("float", &untouched), -1);
    assert_int_equal(untouched, ATOM_BF16);
    for (int i = 0; i < ATOM_OP_N; i++) {
        const atom_op_info *info = atom_op_get((atom_op)i);
        assert_int_equal(atom_op_find(info->name), i);
        assert_true(info->params_min <= info->params_max);
    }
    assert_int_equal(atom_op_find("softmax"), ATOM_OP_N);
}

/* Up as often as the part that is cut off says, of all 2^16 draws. */
static void bf16_rounds_at_random(void **state)
{
    (void)state;
    static const uint32_t bits[] = {0x3f800000, 0x3f800001, 0x3f808000, 0xbf80ffff, 0x00004000,
                                    0x80001234, 0x7f7f0001, 0x7f800000, 0xff800000};
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        float f;
        uint32_t up = 0;
        memcpy(&f, &bits[i], sizeof f);
        for (uint32_t draw = 0; draw < 65536; draw++) {
            uint32_t got = atom_f32_to_bf16_drawn(f, draw), low = bits[i] >> 16;
            assert_true(got == low || got == low + 1);
            up += got != low;
        }
        assert_int_equal(up, bits[i] & 0xffff);
    }
    uint32_t nan = 0x7f800001, minus = 0xffffffff; /* stays one, and keeps its sign */
    float f;
    memcpy(&f, &nan, sizeof f);
    assert_int_equal(atom_f32_to_bf16_drawn(f, 0xffff), 0x7fc0);
    memcpy(&f, &minus, sizeof f);
    assert_int_equal(atom_f32_to_bf16_drawn(f, 0xffff), 0xffff);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_little_endian),
        cmocka_unit_test(hexadecimal_is_strict),
        cmocka_unit_test(never_reads_past_the_end),
        cmocka_unit_test(never_writes_past_the_end),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(f16_decodes),
        cmocka_unit_test(names_round_trip),
        cmocka_unit_test(bf16_rounds_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
