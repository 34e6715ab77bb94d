/*
 * What tests of pools train: a GPT-2 of two layers and width 48, and words of a small language, which
 * it learns something of within a few hundred steps.
 */
#ifndef TESTS_LIB_LITTLE_GPT2_H
#define TESTS_LIB_LITTLE_GPT2_H

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/text/shard.h"

#include <stdio.h>

/* Its config.json. */
static inline atom_status little_gpt2_write(const char *path, unsigned vocab, unsigned positions,
                                            double dropout)
{
    char text[512];
    int n = snprintf(text, sizeof text,
                     "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],"
                     "\"vocab_size\":%u,\"n_positions\":%u,\"n_embd\":48,\"n_layer\":2,"
                     "\"n_head\":3,\"n_inner\":192,\"activation_function\":\"gelu_new\","
                     "\"layer_norm_epsilon\":1e-5,\"initializer_range\":0.02,\"resid_pdrop\":%.1f,"
                     "\"embd_pdrop\":%.1f,\"attn_pdrop\":0.0}",
                     vocab, positions, dropout, dropout);
    return atom_file_write(path, text, (size_t)n);
}

/* Ids as shards of a directory: split "train" or "val". */
static inline atom_status little_shards_write(const char *dir, const char *split, uint32_t vocab,
                                              const uint32_t *ids, uint32_t n)
{
    text_shard_writer *out;
    ATOM_TRY(text_shard_writer_open(dir, split, vocab, 0, &out));
    atom_status st = text_shard_writer_put(out, ids, n);
    st = st == ATOM_OK ? text_shard_writer_end(out) : st;
    text_shard_writer_close(&out);
    return st;
}

/* So many bytes of the language, to train on. */
static inline atom_status little_words_write(const char *dir, uint32_t tokens)
{
    static const char *const words[] = {"the ", "cat ", "sat ", "on ",  "a ",   "mat ",
                                        "and ", "saw ", "red ", "dog ", "run ", "far ",
                                        "to ",  "see ", "it ",  "\n"};
    uint32_t *ids = atom_alloc(tokens, sizeof *ids), x = 12345, n = 0;
    if (!ids)
        return atom_fail_memory("words", tokens * sizeof *ids);
    while (n < tokens) {
        x = x * 1664525u + 1013904223u;
        for (const char *c = words[x >> 28]; *c && n < tokens; c++)
            ids[n++] = (unsigned char)*c;
    }
    atom_status st = little_shards_write(dir, "train", 257, ids, tokens);
    atom_free(ids);
    return st;
}

#endif
