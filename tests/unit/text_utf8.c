/* UTF-8: every kind of wrong sequence is found where it starts, and nothing else is; a map of characters. */
#include "atom/base/mem.h"
#include "atom/text/charsmap.h"
#include "atom/text/utf8.h"
#include "tests/lib/random_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void every_code_point(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x120000; c++) {
        char text[8];
        size_t n = put_char(c, text);
        int good = c < 0x110000 && (c < 0xd800 || c >= 0xe000);
        assert_int_equal(text_utf8_check(text, n) == n, good);
        text[n] = 'x';
        assert_true(!good ||
                    (text_utf8_characters(text, n + 1) == 2 && text_utf8_first(text, n + 1) == c));
        for (size_t cut = 1; good && cut < n; cut++) {
            size_t where = 99;
            assert_int_equal(text_utf8_check(text, cut), 0);
            assert_int_equal(text_utf8_check_part(text, cut, &where), cut);
            assert_int_equal(where, 0);
        }
    }
}

static void wrong_sequences(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t at;
        const char *repaired;
    } cases[] = {
        {"a\x80z", 1, "a\ufffdz"},
        {"ab\xc0\xafz", 2, "ab\ufffd\ufffdz"},               /* overlong */
        {"\xe0\x80\x80", 0, "\ufffd\ufffd\ufffd"},           /* overlong */
        {"\xf0\x8f\xbf\xbf", 0, "\ufffd\ufffd\ufffd\ufffd"}, /* overlong */
        {"\xed\xa0\x80", 0, "\ufffd\ufffd\ufffd"},           /* surrogate */
        {"\xf4\x90\x80\x80", 0, "\ufffd\ufffd\ufffd\ufffd"}, /* above U+10FFFF */
        {"\xe2\x82z", 0, "\ufffdz"},                         /* cut: one mark per prefix */
        {"12345678\xe2\x82", 8, "12345678\ufffd"},
        {"\xf0\x9f\x98\xff", 0, "\ufffd\ufffd"},
        {"\xf8\x88\x80\x80\x80", 0, "\ufffd\ufffd\ufffd\ufffd\ufffd"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *out = NULL;
        size_t n = 0;
        assert_int_equal(text_utf8_check(cases[i].text, strlen(cases[i].text)), cases[i].at);
        assert_int_equal(text_utf8_repair(cases[i].text, strlen(cases[i].text), &out, &n), ATOM_OK);
        assert_string_equal(out, cases[i].repaired);
        assert_int_equal(n, strlen(cases[i].repaired));
        assert_int_equal(text_utf8_check(out, n), n);
        atom_free(out);
    }
}

static void wrong_byte_in_long_text(void **state)
{
    (void)state;
    random_text r = {.seed = 3};
    char text[404];
    for (int i = 0; i < 2000; i++) {
        size_t n = random_utf8(&r, text, 400), at = random_below(&r, (uint32_t)n);
        assert_int_equal(text_utf8_check(text, n), n);
        while (((uint8_t)text[at] & 0xc0) == 0x80)
            at--;
        text[at] = (char)0xff;
        assert_int_equal(text_utf8_check(text, n), at);
    }
}

static void offsets_of_characters(void **state)
{
    (void)state;
    const char *text = "a\u00e9\u20ac\U0001f600b";
    static const size_t want[] = {0, 1, 3, 6, 10, 11, 11};
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(text_utf8_offset(text, 11, i), want[i]);
}

/* Two bytes of texts behind a trie of three units: "A" becomes "bc", and everything else stays. */
static void map_of_characters(void **state)
{
    text_charsmap *m = NULL;
    text_normal n = {0};
    (void)state;
    assert_int_equal(text_charsmap_read("DAAAAAAAAQBBDQAAAAAAgGJj", "t.json", &m), ATOM_OK);
    assert_int_equal(text_charsmap_apply(m, &n, "aABA", 4), ATOM_OK);
    assert_int_equal(n.bytes, 6);
    assert_memory_equal(n.text, "abcBbc", 6);
    text_normal_fini(&n);
    text_charsmap_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(map_of_characters),     cmocka_unit_test(every_code_point),
        cmocka_unit_test(wrong_sequences),       cmocka_unit_test(wrong_byte_in_long_text),
        cmocka_unit_test(offsets_of_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
