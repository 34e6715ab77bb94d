/* What shards are called: whether one of them is missing, and whether they are of one data set. */
#include "atom/text/dataset.h"
#include "atom/text/shard.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/lib/said.h"

/* n of them, of ten tokens each. */
static void write_shards(const char *dir, const char *series, uint32_t n)
{
    text_shard_writer *w = NULL;
    assert_int_equal(text_shard_writer_open(dir, series, 100, 10, &w), ATOM_OK);
    for (uint32_t id = 0; id < 10 * n; id++)
        assert_int_equal(text_shard_writer_put(w, &id, 1), ATOM_OK);
    assert_int_equal(text_shard_writer_end(w), ATOM_OK);
    text_shard_writer_close(&w);
}

static void rename_shard(const scratch *s, const char *from, const char *to)
{
    char was[640], is[640];
    snprintf(was, sizeof was, "%s/%s", s->dir, from);
    snprintf(is, sizeof is, "%s/%s", s->dir, to);
    assert_int_equal(rename(was, is), 0);
}

/* A shard that was not copied is missed, wherever its series begins and however its numbers are written. */
static void numbers_without_a_gap(void **state)
{
    (void)state;
    static const struct {
        const char *name[3], *says; /* NULL: they are used */
    } cases[] = {{{"train_000000.bin", "train_000001.bin", "train_000002.bin"}, NULL},
                 {{"x_train_000007.bin", "x_train_000008.bin", "x_train_000009.bin"}, NULL},
                 {{"train_9.bin", "train_10.bin", "train_11.bin"}, NULL},
                 {{"train.bin", "train_wiki2.bin", "train_wiki4.bin"}, NULL},
                 {{"a_train_000004.bin", "train_000001.bin", "train_000002.bin"}, NULL},
                 {{"train_000000.bin", "train_000001.bin", "train_000003.bin"},
                  "between train_000001.bin and train_000003.bin there is no train_000002.bin"},
                 {{"train_8.bin", "train_10.bin", "train_11.bin"}, "there is no train_9.bin"},
                 {{"a_train_1.bin", "b_train_1.bin", "b_train_3.bin"}, "there is no b_train_2.bin"},
                 {{"train_1.bin", "train_01.bin", "train_000002.bin"}, "have the same number"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scratch s;
        text_shards *shards = NULL;
        scratch_open(&s);
        write_shards(s.dir, "tmp", 3);
        rename_shard(&s, "tmp_000000.bin", cases[i].name[0]);
        rename_shard(&s, "tmp_000001.bin", cases[i].name[1]);
        rename_shard(&s, "tmp_000002.bin", cases[i].name[2]);
        atom_status st = text_shards_open(s.dir, TEXT_TRAIN, 100, &shards);
        assert_int_equal(st, cases[i].says ? ATOM_E_FORMAT : ATOM_OK);
        if (cases[i].says && !strstr(atom_fail_message(), cases[i].says))
            fail_msg("%s", atom_fail_message());
        text_shards_close(&shards);
        scratch_close(&s);
    }
}

/* Nobody can know whether shards of other names belong together; whoever mixed them by mistake reads it. */
static void series_that_are_mixed(void **state)
{
    (void)state;
    scratch s;
    text_shards *shards = NULL;
    scratch_open(&s);
    write_shards(s.dir, "a_train", 2);
    for (int mixed = 0; mixed < 2; mixed++) {
        if (mixed)
            write_shards(s.dir, "b_train", 2);
        assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 100, &shards), ATOM_OK);
        said_begin(&s);
        text_shards_warn(shards);
        assert_int_equal(said_times(&s, "a_train_000000.bin and b_train_000000.bin may be of two"),
                         mixed);
        text_shards_close(&shards);
    }
    /* whoever prepared them counted them as one */
    scratch_write(&s, "dataset.json", "{\"train\": {\"tokens\": 40}}", 25);
    assert_int_equal(text_shards_open(s.dir, TEXT_TRAIN, 100, &shards), ATOM_OK);
    said_begin(&s);
    text_shards_warn(shards);
    assert_int_equal(said_times(&s, "warning"), 0);
    text_shards_close(&shards);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_without_a_gap),
                                       cmocka_unit_test(series_that_are_mixed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
