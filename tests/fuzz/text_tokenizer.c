/* Any bytes as tokenizer.json: refused with the file's name, or a tokenizer that gives back a text. */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "atom/text/plain.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const text_tokenizer *t)
{
    static const char text[] =
        "It's 1984:\n\n\tthe \u00e9t\u00e9 \U0001f600 <|endoftext|> aaaaaaaaaaaaaaaaaaaaaaa";
    static const char named[] = " <|u|> \n<|l|>\u3000 <o> \u2003<|n|>  a<|u|>";
    text_specials specials = {0};
    text_named found = {0};
    text_encoder *e = NULL;
    text_ids ids = {0};
    char *back = NULL;
    size_t bytes = 0;
    ATOM_ASSERT(text_encoder_open(t, &e) == ATOM_OK);
    ATOM_ASSERT(text_encode(e, text, sizeof text, &ids, NULL) == ATOM_OK);
    ATOM_ASSERT(text_decode(t, ids.ids, ids.n, false, &back, &bytes) == ATOM_OK);
    /* A file may say that "a" and "b" become "x": then the text does not come back, but is as
     * valid. */
    ATOM_ASSERT(bytes > 0);
    ATOM_ASSERT(text_specials_init(&specials, t) == ATOM_OK);
    atom_status st =
        text_plain_encode(&specials, TEXT_SPECIAL_IDS, e, named, sizeof named - 1, &ids, &found);
    ATOM_ASSERT(st == ATOM_OK || (st == ATOM_E_FORMAT && found.n));
    text_specials_fini(&specials);
    atom_free(back);
    text_ids_fini(&ids);
    text_encoder_close(&e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    text_tokenizer *t = NULL;
    atom_status st = text_tokenizer_parse((const char *)data, size, "fuzz", &t);
    ATOM_ASSERT(st == ATOM_OK || st == ATOM_E_FORMAT || st == ATOM_E_UNSUPPORTED);
    if (st == ATOM_OK)
        use(t);
    else
        ATOM_ASSERT(!t && strncmp(atom_fail_message(), "fuzz", 4) == 0);
    text_tokenizer_close(&t);
    return 0;
}
