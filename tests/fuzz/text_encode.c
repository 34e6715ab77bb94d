/* Any bytes as a document: refused at the right byte, or it comes back, whole and in parts between
 * safe cuts with the same ids; repaired text is UTF-8. */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "atom/text/bpe_train.h"
#include "atom/text/split.h"
#include "atom/text/tokenizer.h"
#include "atom/text/utf8.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static text_tokenizer *make_tokenizer(void)
{
    static const char text[] =
        "the theme of the other thing\n\n\n  and then    there \u00e9t\u00e9 12 123 '''s aaaa";
    text_words *words = NULL;
    text_tokenizer *t = NULL;
    ATOM_ASSERT(text_words_open(&words) == ATOM_OK);
    ATOM_ASSERT(text_words_add(words, text, sizeof text - 1, NULL) == ATOM_OK);
    ATOM_ASSERT(text_bpe_train(words, 300, NULL, NULL, &t) == ATOM_OK);
    text_words_close(&words);
    return t;
}

static void check_parts(text_encoder *e, const char *text, size_t size, const text_ids *whole)
{
    size_t cut = text_cut_next(TEXT_CUT_BEFORE_NEWLINE, text, size, size / 2);
    text_ids parts = {0};
    ATOM_ASSERT(text_encode(e, text, cut, &parts, NULL) == ATOM_OK);
    ATOM_ASSERT(text_encode(e, text + cut, size - cut, &parts, NULL) == ATOM_OK);
    ATOM_ASSERT(parts.n == whole->n);
    ATOM_ASSERT(parts.n == 0 || memcmp(parts.ids, whole->ids, parts.n * sizeof *parts.ids) == 0);
    text_ids_fini(&parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static text_tokenizer *t; /* the same for all inputs */
    if (!t)
        t = make_tokenizer();
    const char *text = (const char *)data;
    text_encoder *e = NULL;
    text_ids ids = {0};
    char *back = NULL;
    size_t bytes = 0, bad = size;
    ATOM_ASSERT(text_encoder_open(t, &e) == ATOM_OK);
    if (text_encode(e, text, size, &ids, &bad) == ATOM_OK) {
        ATOM_ASSERT(text_decode(t, ids.ids, ids.n, false, &back, &bytes) == ATOM_OK);
        ATOM_ASSERT(bytes == size && (size == 0 || memcmp(back, text, size) == 0));
        check_parts(e, text, size, &ids);
    } else {
        ATOM_ASSERT(bad < size && text_utf8_check(text, bad) == bad);
        ATOM_ASSERT(text_utf8_repair(text, size, &back, &bytes) == ATOM_OK);
        ATOM_ASSERT(text_utf8_check(back, bytes) == bytes && memcmp(back, text, bad) == 0);
    }
    atom_free(back);
    text_ids_fini(&ids);
    text_encoder_close(&e);
    return 0;
}
