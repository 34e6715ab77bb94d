/* BPE with metaspaces: which tokens of a text may be another text's once it is normalised. */
#include "atom/text/tokenizer.h"
#include "tests/lib/metaspace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* How an added token is found that says "normalized". */
static uint32_t manner_of(const char *normalizer, const char *pre_tokenizer, const char *content)
{
    json_t *root = metaspace_json(normalizer, pre_tokenizer);
    text_tokenizer *t = NULL;
    json_array_append_new(json_object_get(root, "added_tokens"),
                          json_pack("{s:i, s:s, s:b, s:b}", "id", METASPACE_N, "content", content,
                                    "normalized", 1, "special", 1));
    char *text = json_dumps(root, 0);
    if (text_tokenizer_parse(text, strlen(text), "t.json", &t) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    uint32_t manner = text_tokenizer_manner(t, METASPACE_N);
    text_tokenizer_close(&t);
    free(text);
    json_decref(root);
    return manner;
}

/* Either is enough: a step that writes in front of every text, or a space in the token itself. */
static void who_may_become_another(void **state)
{
    static const char prepends[] = "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": "
                                   "\"Prepend\", \"prepend\": \"\u2581\"}, " METASPACE_REPLACE "]}";
    static const char metaspace[] =
        "{\"type\": \"Metaspace\", \"replacement\": \"\u2581\", \"prepend_scheme\": \"always\"}";
    (void)state;
    assert_int_equal(manner_of(prepends, "null", "<x>"), TEXT_LATE | TEXT_CHANGED);
    assert_int_equal(manner_of(METASPACE_REPLACE, "null", "<x y>"), TEXT_LATE | TEXT_CHANGED);
    assert_int_equal(manner_of(METASPACE_REPLACE, "null", "<x\u2581>"), TEXT_LATE | TEXT_CHANGED);
    assert_int_equal(manner_of(METASPACE_REPLACE, "null", "<x>"), TEXT_LATE);
    /* puts its space only where none is, and sees no token */
    assert_int_equal(manner_of("null", metaspace, "<x>"), TEXT_LATE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_may_become_another)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
