/*
 * Owns the split of one long stream into training and validation. One idea: it works on the
 * finished shards, by tokens, so it is the same for every kind of input; it runs before the data
 * set is moved into place, so half of it is never seen.
 */
#include "atom/text/tail.h"

#include "atom/base/mem.h"
#include "atom/text/dataset.h"
#include "atom/text/mask.h"
#include "atom/text/shard.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK_TOKENS = 1 << 14 };

typedef enum cut_rank { CUT_NONE, CUT_CHARACTER, CUT_LINE, CUT_DOCUMENT } cut_rank;

static cut_rank rank_cut(const text_tokenizer *t, uint32_t id)
{
    size_t bytes;
    const char *piece = text_tokenizer_piece(t, id, &bytes);
    if (id == text_tokenizer_start(t))
        return CUT_DOCUMENT;
    if (bytes == 0 || ((uint8_t)piece[0] & 0xc0) == 0x80)
        return CUT_NONE;
    return piece[0] == '\n' ? CUT_LINE : CUT_CHARACTER;
}

/* The best place in the first half of the tail; of equals the first. */
static atom_status find_cut(const text_shards *s, const text_tokenizer *t, uint64_t from,
                            int32_t *chunk, uint64_t *cut)
{
    uint64_t tokens = text_shards_tokens(s), end = from + (tokens - from + 1) / 2;
    cut_rank best = CUT_NONE;
    *cut = from;
    for (uint64_t at = from; at < end && best < CUT_DOCUMENT; at += CHUNK_TOKENS) {
        uint32_t n = end - at < CHUNK_TOKENS ? (uint32_t)(end - at) : CHUNK_TOKENS;
        ATOM_TRY(text_shards_read(s, at, n, chunk));
        for (uint32_t i = 0; i < n; i++) {
            cut_rank rank = rank_cut(t, (uint32_t)chunk[i]);
            if (rank <= best)
                continue;
            best = rank;
            *cut = at + i;
        }
    }
    return ATOM_OK;
}

static atom_status copy_tail(const text_shards *s, const text_tokenizer *t, uint64_t cut,
                             int32_t *chunk, text_shard_writer *w, text_part_counts *val)
{
    uint64_t tokens = text_shards_tokens(s);
    const uint32_t end = text_tokenizer_start(t);
    uint8_t marks[CHUNK_TOKENS], begins[CHUNK_TOKENS];
    for (uint64_t at = cut; at < tokens; at += CHUNK_TOKENS) {
        uint32_t n = tokens - at < CHUNK_TOKENS ? (uint32_t)(tokens - at) : CHUNK_TOKENS;
        ATOM_TRY(text_shards_read(s, at, n, chunk));
        if (at == cut && (uint32_t)chunk[0] != end) {
            text_shard_writer_begin(w, end);
            ATOM_TRY(text_shard_writer_put(w, &end, 1));
            val->documents++;
        }
        for (uint32_t i = 0; i < n; i++)
            val->documents += (uint32_t)chunk[i] == end;
        text_shards_marks(s, at, n, marks);
        text_shards_begins(s, at, n, chunk, end, begins);
        for (uint32_t i = 0, next; i < n; i = next) {
            for (next = i + 1; next < n && !begins[next];)
                next++;
            if (begins[i])
                text_shard_writer_begin(w, end);
            ATOM_TRY(
                text_shard_writer_put_marked(w, (const uint32_t *)chunk + i, marks + i, next - i));
        }
    }
    ATOM_TRY(text_shard_writer_end(w));
    val->tokens = text_shard_writer_tokens(w);
    val->shards = text_shard_writer_shards(w);
    return ATOM_OK;
}

static atom_status remove_shard(const char *path)
{
    char *mask = text_mask_path(path), *begins = text_begins_path(path);
    atom_status st = ATOM_OK;
    if (!mask || !begins)
        st = atom_fail_memory("a path", strlen(path));
    else if (unlink(path) < 0 || (unlink(mask) < 0 && errno != ENOENT) ||
             (unlink(begins) < 0 && errno != ENOENT))
        st = atom_fail_errno(errno, "cannot remove %s", path);
    atom_free(mask);
    atom_free(begins);
    return st;
}

/* Shortens the train shards to `tokens` tokens in all. */
static atom_status cut_train(const char *dir, uint64_t tokens, uint32_t shards, uint32_t *kept)
{
    atom_status st = ATOM_OK;
    *kept = 0;
    for (uint32_t i = 0; st == ATOM_OK && i < shards; i++) {
        text_shard_info info = {0};
        char *path = atom_format("%s/train_%06u.bin", dir, i);
        if (!path)
            return atom_fail_memory("a path", strlen(dir) + 32);
        st = text_shard_probe(path, &info);
        if (st == ATOM_OK && tokens == 0)
            st = remove_shard(path);
        if (st == ATOM_OK && tokens && tokens < info.tokens)
            st = text_shard_cut(path, tokens);
        *kept += tokens > 0;
        tokens -= tokens < info.tokens ? tokens : info.tokens;
        atom_free(path);
    }
    return st;
}

atom_status text_tail_split(const char *dir, const text_tokenizer *t, double fraction,
                            text_part_counts *train, text_part_counts *val)
{
    atom_status st = ATOM_OK;
    text_shards *s = NULL;
    text_shard_writer *w = NULL;
    uint32_t vocab = text_tokenizer_vocab(t);
    text_part_counts made = {0};
    uint64_t cut = 0;
    int32_t *chunk = atom_alloc(CHUNK_TOKENS, sizeof *chunk);
    if (!chunk)
        return atom_fail_memory("a chunk of tokens", CHUNK_TOKENS * sizeof *chunk);
    ATOM_TRY_CLEAN(text_shards_open(dir, TEXT_TRAIN, vocab, &s));
    uint64_t tokens = text_shards_tokens(s), documents = train->documents;
    uint64_t tail = (uint64_t)((double)tokens * fraction);
    tail = tail < 1 ? 1 : tail;
    ATOM_TRY_CLEAN(find_cut(s, t, tokens - tail, chunk, &cut));
    ATOM_TRY_CLEAN(text_shard_writer_open(dir, text_split_name(TEXT_VAL), vocab, 0, &w));
    ATOM_TRY_CLEAN(copy_tail(s, t, cut, chunk, w, &made));
    bool whole = made.tokens == tokens - cut; /* cut at a document's start */
    ATOM_TRY_CLEAN(cut_train(dir, cut, train->shards, &train->shards));
    train->tokens = cut;
    train->documents = documents - made.documents + !whole;
    *val = made;
cleanup:
    text_shard_writer_close(&w);
    text_shards_close(&s);
    atom_free(chunk);
    return st;
}
