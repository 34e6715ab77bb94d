/* BPE: the trainer and the encoder equal their definitions; order and parts of the text do not
 * matter. */
#include "atom/base/mem.h"
#include "atom/text/bpe_train.h"
#include "atom/text/split.h"
#include "tests/lib/naive_bpe.h"
#include "tests/lib/random_text.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Pieces of a text, cut to what the naive arrays hold. */
static void naive_add(naive_bpe *b, const char *text, size_t bytes)
{
    text_splitter *s = NULL;
    size_t start, end;
    assert_int_equal(text_splitter_open(&(text_stages){{text_pattern_gpt2()}, 1}, &s), ATOM_OK);
    text_splitter_begin(s, text, bytes);
    while (text_splitter_next(s, &start, &end) == ATOM_OK && start < end) {
        assert_true(b->words_n < NAIVE_WORDS_MAX && end - start < NAIVE_SYMBOLS_MAX);
        naive_word_set(&b->words[b->words_n++], text + start, end - start);
    }
    text_splitter_close(&s);
}

static text_tokenizer *train(const char *text, size_t bytes, uint32_t vocab)
{
    text_words *words = NULL;
    text_tokenizer *t = NULL;
    assert_int_equal(text_words_open(&words), ATOM_OK);
    assert_int_equal(text_words_add(words, text, bytes, NULL), ATOM_OK);
    assert_int_equal(text_bpe_train(words, vocab, NULL, NULL, &t), ATOM_OK);
    text_words_close(&words);
    return t;
}

static void check_encoding(const naive_bpe *b, const text_tokenizer *t, random_text *r)
{
    text_encoder *e = NULL;
    text_ids ids = {0};
    assert_int_equal(text_encoder_open(t, &e), ATOM_OK);
    for (int i = 0; i < 60; i++) {
        char text[64];
        size_t n = 1 + random_below(r, 40);
        for (size_t k = 0; k < n; k++) /* letters only: one piece; above 48 bytes the heap */
            text[k] = (char)('a' + random_below(r, 3));
        naive_word want;
        naive_word_set(&want, text, n);
        naive_encode(b, &want);
        for (int again = 0; again < 2; again++) { /* the second time from the cache */
            ids.n = 0;
            assert_int_equal(text_encode(e, text, n, &ids, NULL), ATOM_OK);
            assert_int_equal(ids.n, want.n);
            assert_memory_equal(ids.ids, want.ids, want.n * sizeof *ids.ids);
        }
    }
    text_ids_fini(&ids);
    text_encoder_close(&e);
}

static void equals_the_definition(void **state)
{
    (void)state;
    random_text r = {.seed = 11};
    for (uint32_t round = 0; round < 24; round++) {
        char text[3004];
        size_t n = 0, bytes = 400 + random_below(&r, 2600);
        if (round % 3 == 2)
            n = random_words(&r, text, bytes);
        else
            for (; n < bytes; n++) /* few letters, so ties and equal tokens are common */
                text[n] =
                    random_below(&r, 7) ? (char)('a' + random_below(&r, 1 + round % 3 * 2)) : ' ';
        for (size_t i = 40; i < n; i += 40)
            text[i] = ' ';
        naive_bpe *b = naive_open();
        assert_non_null(b);
        naive_add(b, text, n);
        uint32_t vocab = 257 + random_below(&r, 160);
        naive_train(b, vocab);
        text_tokenizer *t = train(text, n, vocab), *want = NULL;
        assert_int_equal(text_tokenizer_bpe(b->merges, b->merges_n, &want), ATOM_OK);
        assert_int_equal(text_tokenizer_merges(t), b->merges_n);
        assert_true(text_tokenizer_equal(t, want));
        check_encoding(b, t, &r);
        text_tokenizer_close(&t);
        text_tokenizer_close(&want);
        free(b);
    }
}

/* Words longer than the scan's limit go through the heap. */
static void long_words_equal_the_definition(void **state)
{
    (void)state;
    random_text r = {.seed = 12};
    char text[2004];
    size_t n = random_words(&r, text, 2000);
    text_tokenizer *t = train(text, n, 330);
    text_encoder *e = NULL;
    assert_int_equal(text_encoder_open(t, &e), ATOM_OK);
    naive_bpe *b = naive_open();
    naive_add(b, text, n);
    naive_train(b, 330);
    for (int i = 0; i < 100; i++) {
        char word[64];
        text_ids ids = {0};
        naive_word want;
        size_t bytes = 49 + random_below(&r, 14);
        for (size_t k = 0; k < bytes; k++)
            word[k] = "thelordsaidunto"[random_below(&r, 15)];
        naive_word_set(&want, word, bytes);
        naive_encode(b, &want);
        assert_int_equal(text_encode(e, word, bytes, &ids, NULL), ATOM_OK);
        assert_int_equal(ids.n, want.n);
        assert_memory_equal(ids.ids, want.ids, want.n * sizeof *ids.ids);
        text_ids_fini(&ids);
    }
    free(b);
    text_encoder_close(&e);
    text_tokenizer_close(&t);
}

static void order_and_parts_do_not_matter(void **state)
{
    (void)state;
    random_text r = {.seed = 13};
    static char text[60004];
    size_t n = random_words(&r, text, 30000);
    n += random_utf8(&r, text + n, 30000);
    text_tokenizer *whole = train(text, n, 600), *other = NULL;
    text_words *parts[3] = {0};
    for (int i = 0; i < 3; i++)
        assert_int_equal(text_words_open(&parts[i]), ATOM_OK);
    size_t cut = text_cut_next(TEXT_CUT_BEFORE_NEWLINE, text, n, n / 2);
    size_t cut2 = text_cut_last(TEXT_CUT_BEFORE_NEWLINE, text, n / 3);
    assert_true(cut2 > 0 && cut2 < cut && cut < n);
    assert_int_equal(text_words_add(parts[0], text + cut, n - cut, NULL), ATOM_OK);
    assert_int_equal(text_words_add(parts[1], text + cut2, cut - cut2, NULL), ATOM_OK);
    assert_int_equal(text_words_add(parts[2], text, cut2, NULL), ATOM_OK);
    assert_int_equal(text_words_merge(parts[1], parts[0]), ATOM_OK);
    assert_int_equal(text_words_merge(parts[1], parts[2]), ATOM_OK);
    assert_int_equal(text_bpe_train(parts[1], 600, NULL, NULL, &other), ATOM_OK);
    assert_int_equal(text_tokenizer_vocab(whole), 600);
    assert_true(text_tokenizer_equal(whole, other));
    for (int i = 0; i < 3; i++)
        text_words_close(&parts[i]);
    text_tokenizer_close(&whole);
    text_tokenizer_close(&other);
}

static void limits(void **state)
{
    (void)state;
    text_tokenizer *t = train("abab abab", 9, 1000);
    assert_true(text_tokenizer_vocab(t) < 265); /* no more pairs */
    text_tokenizer_close(&t);
    t = train("", 0, 300);
    assert_int_equal(text_tokenizer_vocab(t), 257);
    text_tokenizer_close(&t);
    text_words *words = NULL;
    assert_int_equal(text_words_open(&words), ATOM_OK);
    assert_int_equal(text_bpe_train(words, 256, NULL, NULL, &t), ATOM_E_USAGE);
    assert_null(t);
    size_t bad = 0;
    assert_int_equal(text_words_add(words, "ab\xff", 3, &bad), ATOM_E_FORMAT);
    assert_int_equal(bad, 2);
    text_words_close(&words);
}

/* One endless word must not take quadratic time nor be refused. */
static void endless_words(void **state)
{
    (void)state;
    enum { BYTES = 300000 };
    char *text = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++)
        text[i] = "\xe6\x88\x91"[i % 3];
    text_tokenizer *t = train(text, BYTES, 400);
    text_encoder *e = NULL;
    text_ids ids = {0};
    assert_int_equal(text_encoder_open(t, &e), ATOM_OK);
    assert_int_equal(text_encode(e, text, BYTES, &ids, NULL), ATOM_OK);
    assert_true(ids.n < BYTES / 100);
    char *back = NULL;
    size_t bytes = 0;
    assert_int_equal(text_decode(t, ids.ids, ids.n, false, &back, &bytes), ATOM_OK);
    assert_int_equal(bytes, BYTES);
    assert_memory_equal(back, text, BYTES);
    atom_free(back);
    text_ids_fini(&ids);
    text_encoder_close(&e);
    text_tokenizer_close(&t);
    free(text);
}

static void survives_want_of_memory(void **state)
{
    (void)state;
    random_text r = {.seed = 14};
    static char text[20004];
    size_t n = random_words(&r, text, 4000);
    n += random_utf8(&r, text + n, 8000);
    bool done = false;
    for (uint64_t k = 1; !done; k += 1 + k / 8) {
        uint64_t before = atom_mem_read().live_blocks;
        text_words *words = NULL;
        text_tokenizer *t = NULL;
        atom_mem_fail_after(k);
        atom_status st = text_words_open(&words);
        if (st == ATOM_OK)
            st = text_words_add(words, text, n, NULL);
        if (st == ATOM_OK)
            st = text_bpe_train(words, 500, NULL, NULL, &t);
        atom_mem_fail_after(0);
        done = st == ATOM_OK;
        assert_true(done || st == ATOM_E_RESOURCE);
        assert_true(done || !t);
        text_words_close(&words);
        text_tokenizer_close(&t);
        assert_int_equal(atom_mem_read().live_blocks, before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_definition),
        cmocka_unit_test(long_words_equal_the_definition),
        cmocka_unit_test(order_and_parts_do_not_matter),
        cmocka_unit_test(limits),
        cmocka_unit_test(endless_words),
        cmocka_unit_test(survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
