/* A small tokenizer.json like Llama 2's for tests: BPE with metaspaces and byte fallback. */
#ifndef TESTS_LIB_METASPACE_H
#define TESTS_LIB_METASPACE_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

/* Ids: <unk> <s> </s>, then 256 bytes, then these. */
enum {
    METASPACE_SPACE = 259, /* U+2581, which stands for a space */
    METASPACE_A,
    METASPACE_B,
    METASPACE_C,
    METASPACE_AB,        /* merged first */
    METASPACE_ABC,       /* second */
    METASPACE_SPACE_ABC, /* third */
    METASPACE_N
};

#define METASPACE_REPLACE                                                                          \
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\u2581\"}"

/* normalizer and pre_tokenizer: JSON. Free with json_decref. */
static inline json_t *metaspace_json(const char *normalizer, const char *pre_tokenizer)
{
    static const char *const tokens[] = {"\u2581", "a", "b", "c", "ab", "abc", "\u2581abc"};
    static const char *const special[] = {"<unk>", "<s>", "</s>"};
    json_t *vocab = json_object(), *added = json_array();
    char name[8];
    for (int i = 0; i < 3; i++) {
        json_object_set_new(vocab, special[i], json_integer(i));
        json_array_append_new(added, json_pack("{s:i, s:s, s:b, s:b}", "id", i, "content",
                                               special[i], "normalized", 0, "special", 1));
    }
    for (int i = 0; i < 256; i++) {
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        json_object_set_new(vocab, name, json_integer(3 + i));
    }
    for (int i = METASPACE_SPACE; i < METASPACE_N; i++)
        json_object_set_new(vocab, tokens[i - METASPACE_SPACE], json_integer(i));
    json_t *root =
        json_pack("{s:s, s:o, s:o, s:o, s:n, s:{s:s, s:[{s:s}, {s:s}]}, s:{s:s, s:s, s:b, s:o, "
                  "s:[s, s, [s, s]]}}",
                  "version", "1.0", "added_tokens", added, "normalizer",
                  json_loads(normalizer, JSON_DECODE_ANY, NULL), "pre_tokenizer",
                  json_loads(pre_tokenizer, JSON_DECODE_ANY, NULL), "post_processor", "decoder",
                  "type", "Sequence", "decoders", "type", "ByteFallback", "type", "Fuse", "model",
                  "type", "BPE", "unk_token", "<unk>", "byte_fallback", 1, "vocab", vocab, "merges",
                  "a b", "ab c", "\u2581", "abc");
    if (!root)
        abort();
    return root;
}

#endif
