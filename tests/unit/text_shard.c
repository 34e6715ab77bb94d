/* Files that stand where tokens should and are something else: every pair of bytes is a token of a large vocabulary. */
#include "atom/text/shard.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* nanoGPT's train.bin and val.bin have no header. */
static void other_files_without_a_header(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *says;
    } cases[] = {{"version https://git-lfs.github.com/spec/v1\noid sha256:12\n", "git lfs pull"},
                 {"\x93NUMPY\1", "tofile()"},
                 {"PK\3\4\24", "zip archive"},
                 {"\x1f\x8b\x08", "with gzip"},
                 {"\x28\xb5\x2f\xfd", "with zstd"},
                 {"PAR1", "parquet"},
                 {"ARROW1", "Arrow"},
                 {"\x89HDF\r\n\x1a\n", "HDF5"},
                 {"\x80\2X", "is a pickle"},
                 {"\x80\5\x95", "is a pickle"},
                 {"\x80\2\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.", "is a pickle"},
                 {"<!DOCTYPE html>\r\n\t", "is text"},
                 {"\xe4\xb8\xad\xe6\x96\x87", "is text"}};
    scratch s;
    char page[1300];
    text_shard_info info;
    scratch_open(&s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memset(page, 'x', sizeof page);
        memcpy(page, cases[i].begin, strlen(cases[i].begin));
        memcpy(page + 1023, "\xc3\xa9",
               2);                   /* a character that is cut by the part that is looked at */
        page[sizeof page - 1] = '.'; /* where a pickle ends */
        const char *path = scratch_write(&s, "train.bin", page, sizeof page);
        assert_int_equal(text_shard_probe(path, &info), ATOM_E_FORMAT);
        if (!strstr(atom_fail_message(), cases[i].says) ||
            !strstr(atom_fail_message(), "train.bin"))
            fail_msg("%s", atom_fail_message());
    }
    static const uint8_t torch[] = {0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20};
    memcpy(page, torch, sizeof torch); /* before PyTorch 1.6: numbers are behind the pickles */
    page[sizeof page - 1] = 'x';
    assert_int_equal(text_shard_probe(scratch_write(&s, "train.bin", page, sizeof page), &info),
                     ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "is a pickle"));
    memset(page, 'x', sizeof torch);
    static const char *const tokens[] = {"\1", "\x1b", "\x80\2X", "\x80\6.", "PAR2"};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) { /* what only looks like it */
        page[700] = 1;
        memcpy(page + (i < 2 ? 700 : 0), tokens[i], strlen(tokens[i]));
        page[sizeof page - 1] = i == 3 ? '.' : 'x';
        assert_int_equal(text_shard_probe(scratch_write(&s, "train.bin", page, sizeof page), &info),
                         ATOM_OK);
        assert_int_equal(info.tokens, sizeof page / 2);
    }
    assert_int_equal(text_shard_probe(scratch_write(&s, "train.bin", page, 1299), &info),
                     ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "train.bin has 1299 bytes, an odd number"));
    assert_int_equal(text_shard_probe(scratch_write(&s, "val.bin", "ab", 2), &info), ATOM_OK);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(other_files_without_a_header)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
