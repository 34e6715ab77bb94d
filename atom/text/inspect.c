/*
 * Owns the summary of a data set. One idea: read every token once, so that a summary is also a
 * check of the whole directory.
 */
#include "atom/text/prepare.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/text/dataset.h"
#include "atom/text/shard.h"
#include "atom/text/tokenizer.h"
#include "atom/text/utf8.h"

#include <jansson.h>
#include <string.h>

enum {
    CHUNK_TOKENS = 1 << 16,
    PREVIEW_TOKENS = 1024,
    PREVIEW_CHARS = 200,
    COUNTS_BYTES_MAX = 1 << 20
};

typedef struct inspection {
    const text_tokenizer *tokenizer; /* may be NULL */
    uint64_t text_bytes;
    uint64_t text_tokens;
    text_summary *out;
} inspection;

static atom_status preview(const text_tokenizer *t, const int32_t *tokens, uint32_t n, char *out,
                           size_t out_bytes)
{
    uint32_t skip = n > 0 && (uint32_t)tokens[0] == text_tokenizer_start(t);
    char *raw = NULL, *good = NULL;
    size_t raw_bytes = 0, good_bytes = 0;
    atom_status st = ATOM_OK;
    n = n < PREVIEW_TOKENS ? n : PREVIEW_TOKENS;
    ATOM_TRY_CLEAN(
        text_decode(t, (const uint32_t *)tokens + skip, n - skip, true, &raw, &raw_bytes));
    ATOM_TRY_CLEAN(text_utf8_repair(raw, raw_bytes, &good, &good_bytes));
    size_t cut = text_utf8_offset(good, good_bytes, PREVIEW_CHARS);
    cut = cut < out_bytes ? cut : out_bytes - 1;
    memcpy(out, good, cut);
    out[cut] = 0;
    for (char *at = out; at < out + cut; at++)
        if (*at == 0)
            *at = ' '; /* a C string holds no NUL */
cleanup:
    atom_free(raw);
    atom_free(good);
    return st;
}

static void count_tokens(inspection *in, const int32_t *tokens, uint32_t n,
                         text_part_counts *counts)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = (uint32_t)tokens[i];
        size_t bytes = 0;
        in->out->id_max = id > in->out->id_max ? id : in->out->id_max;
        if (!in->tokenizer)
            continue;
        bool start = id == text_tokenizer_start(in->tokenizer);
        counts->documents += start;
        if (start || id == text_tokenizer_end(in->tokenizer))
            continue;
        text_tokenizer_piece(in->tokenizer, id, &bytes);
        in->text_bytes += bytes;
        in->text_tokens++;
    }
}

static atom_status inspect_split(inspection *in, const char *dir, text_split split,
                                 text_part_counts *counts)
{
    atom_status st = ATOM_OK;
    text_shards *s = NULL;
    uint32_t vocab = in->tokenizer ? text_tokenizer_vocab(in->tokenizer) : TEXT_VOCAB_MAX;
    int32_t *chunk = atom_alloc(CHUNK_TOKENS, sizeof *chunk);
    uint8_t *marks = atom_alloc(CHUNK_TOKENS, 1);
    if (!chunk || !marks)
        ATOM_TRY_CLEAN(atom_fail_memory("a chunk of tokens", CHUNK_TOKENS * (sizeof *chunk + 1)));
    ATOM_TRY_CLEAN(text_shards_open(dir, split, vocab, &s));
    text_shards_warn(s);
    ATOM_TRY_CLEAN(text_shards_verify(s, true));
    in->out->masked = in->out->masked || text_shards_masked(s);
    counts->tokens = text_shards_tokens(s);
    counts->shards = text_shards_count(s);
    in->out->token_bytes = text_shards_token_bytes(s);
    for (uint64_t at = 0; at < counts->tokens; at += CHUNK_TOKENS) {
        uint64_t left = counts->tokens - at;
        uint32_t n = left < CHUNK_TOKENS ? (uint32_t)left : CHUNK_TOKENS;
        ATOM_TRY_CLEAN(text_shards_read(s, at, n, chunk));
        count_tokens(in, chunk, n, counts);
        text_shards_marks(s, at, n, marks);
        for (uint32_t i = 0; i < n; i++)
            in->out->targets += marks[i];
        if (at == 0 && split == TEXT_TRAIN && in->tokenizer)
            ATOM_TRY_CLEAN(
                preview(in->tokenizer, chunk, n, in->out->preview, sizeof in->out->preview));
    }
cleanup:
    text_shards_close(&s);
    atom_free(chunk);
    atom_free(marks);
    return st;
}

/* The count of documents in dataset.json, if it is of these shards. */
static void trust_counts(const json_t *root, const char *split, text_part_counts *counts)
{
    const json_t *part = json_object_get(root, split);
    json_int_t documents = json_integer_value(json_object_get(part, "documents"));
    if (documents > 0 && (uint64_t)documents <= counts->tokens &&
        json_integer_value(json_object_get(part, "tokens")) == (json_int_t)counts->tokens)
        counts->documents = (uint64_t)documents;
}

static atom_status read_counts(const char *dir, text_summary *made)
{
    char *path = atom_path_join(dir, "dataset.json"), *data = NULL;
    uint64_t bytes = 0;
    atom_status st = path ? ATOM_OK : atom_fail_memory("a path", strlen(dir));
    if (path && atom_path_exists(path))
        st = atom_file_read(path, COUNTS_BYTES_MAX, &data, &bytes);
    json_t *root = data ? json_loadb(data, (size_t)bytes, JSON_REJECT_DUPLICATES, NULL) : NULL;
    trust_counts(root, "train", &made->train);
    trust_counts(root, "val", &made->val);
    json_decref(root);
    atom_free(data);
    atom_free(path);
    return st;
}

atom_status text_inspect(const char *dir, text_summary *out)
{
    atom_status st = ATOM_OK;
    text_tokenizer *t = NULL;
    text_summary made = {.tokenizer = "none"};
    inspection in = {.out = &made};
    char *path = atom_path_join(dir, "tokenizer.json");
    if (!path)
        return atom_fail_memory("a path", strlen(dir));
    if (atom_path_exists(path)) {
        ATOM_TRY_CLEAN(text_tokenizer_load(path, &t));
        in.tokenizer = t;
        made.vocab = text_tokenizer_vocab(t);
        made.end_of_text = text_tokenizer_end(t);
        made.tokenizer = text_tokenizer_kind(t);
    }
    if (text_shards_exist(dir, TEXT_VAL))
        ATOM_TRY_CLEAN(inspect_split(&in, dir, TEXT_VAL, &made.val));
    ATOM_TRY_CLEAN(inspect_split(&in, dir, TEXT_TRAIN, &made.train));
    ATOM_TRY_CLEAN(read_counts(dir, &made));
    if (in.text_tokens)
        made.bytes_per_token = (double)in.text_bytes / (double)in.text_tokens;
    *out = made;
cleanup:
    text_tokenizer_close(&t);
    atom_free(path);
    return st;
}
