/*
 * Owns reading of shards. One idea: the shards of a split are one long stream, read by position with
 * pread, so reading has no state and any thread may do it. Refuses ids that the vocabulary does not
 * have, when they are read.
 */
#include "atom/text/dataset.h"

#include "atom/base/assert.h"
#include "atom/base/bytes.h"
#include "atom/base/files.h"
#include "atom/base/hash.h"
#include "atom/base/json.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/text/mask.h"
#include "atom/text/names.h"
#include "atom/text/shard.h"
#include "atom/text/staging.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    OPEN_FILES_MAX = 256, /* further shards are opened for each read */
    READ_BYTES = 16384,
    START_TOKENS = 4096,
    COUNTS_BYTES_MAX = 1 << 20,
    VERIFY_BYTES = 1 << 30 /* takes a second or two */
};

typedef struct shard_file {
    char *path;
    int fd;         /* -1: not kept open */
    uint64_t first; /* its first token's place in the stream */
    uint64_t tokens;
    uint32_t header_bytes; /* before the first token */
    uint64_t contents;     /* hash of its tokens, or 0 */
    uint8_t *bits;         /* of its mask; NULL: all tokens count */
    uint64_t mask_hash;
    uint8_t *begins; /* NULL: its tokens say it */
    uint64_t begins_hash;
} shard_file;

struct text_shards {
    char *dir;
    shard_file *files;
    uint32_t n;
    uint32_t vocab, token_bytes;
    uint64_t tokens;
    uint64_t said;   /* by dataset.json; 0: it is not there, or does not say */
    uint32_t packed; /* by dataset.json: tokens of a sequence; 0: it does not say */
    text_split split;
    bool masked;
};

static int compare_files(const void *a, const void *b)
{
    return strcmp(((const shard_file *)a)->path, ((const shard_file *)b)->path);
}

/* Of the i-th shard, whose directory its name goes without. */
static text_numbered number_of(const text_shards *s, uint32_t i)
{
    return text_shard_number(strrchr(s->files[i].path, '/') + 1);
}

static atom_status check_numbers_of_files(const text_shards *s)
{
    text_numbered *all = atom_alloc(s->n, sizeof *all);
    if (!all)
        return atom_fail_memory("names of shards", s->n * sizeof *all);
    for (uint32_t i = 0; i < s->n; i++)
        all[i] = number_of(s, i);
    atom_status st = text_numbers_check(s->dir, all, s->n);
    atom_free(all);
    return st;
}

static atom_status list_files(text_shards *s, text_split split)
{
    atom_status st = ATOM_OK;
    size_t n = 0, capacity = 0;
    DIR *list = opendir(s->dir);
    if (!list && errno == ENOENT)
        return atom_fail(ATOM_E_FORMAT, "%s: no such directory; make it with 'atom data prepare'",
                         s->dir);
    if (!list && errno == ENOTDIR)
        return atom_fail(ATOM_E_FORMAT, "%s is not a directory of token shards", s->dir);
    if (!list)
        return atom_fail_errno(errno, "cannot open directory %s", s->dir);
    for (struct dirent *entry; (entry = readdir(list));) {
        if (!text_is_shard(entry->d_name, split))
            continue;
        ATOM_TRY_CLEAN(atom_grow(&s->files, n, &capacity, sizeof *s->files));
        char *path = atom_path_join(s->dir, entry->d_name);
        if (!path)
            ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
        s->files[n] = (shard_file){.path = path, .fd = -1};
        s->n = (uint32_t)++n;
    }
    if (n == 0)
        st =
            atom_fail(ATOM_E_FORMAT, "%s: no %s_*.bin here; make the data with 'atom data prepare'",
                      s->dir, text_split_name(split));
    else
        qsort(s->files, n, sizeof *s->files, compare_files);
cleanup:
    closedir(list);
    return st;
}

/* path is freed. */
static atom_status read_bits(char *path, uint64_t tokens, uint8_t **bits, uint64_t *hash)
{
    atom_status st = ATOM_OK;
    if (!path)
        return atom_fail_memory("a path", 256);
    if (atom_path_exists(path))
        st = text_mask_read(path, tokens, bits, hash);
    atom_free(path);
    return st;
}

static atom_status read_masks(text_shards *s, shard_file *f)
{
    atom_status st = read_bits(text_mask_path(f->path), f->tokens, &f->bits, &f->mask_hash);
    s->masked = s->masked || f->bits;
    if (st == ATOM_OK)
        st = read_bits(text_begins_path(f->path), f->tokens, &f->begins, &f->begins_hash);
    return st;
}

static atom_status open_files(text_shards *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        shard_file *f = &s->files[i];
        text_shard_info info = {0};
        ATOM_TRY(i < OPEN_FILES_MAX ? text_shard_open(f->path, &f->fd, &info)
                                    : text_shard_probe(f->path, &info));
        if (i > 0 && info.token_bytes != s->token_bytes)
            return atom_fail(ATOM_E_FORMAT,
                             "%s: %u bytes per token, but %s has %u; do not mix data sets in one "
                             "directory",
                             f->path, info.token_bytes, s->files[0].path, s->token_bytes);
        if (i > 0 && info.header_bytes != s->files[0].header_bytes)
            return atom_fail(ATOM_E_FORMAT,
                             "%s: of this file and %s only one has llm.c's header; do not mix "
                             "data sets in one directory",
                             f->path, s->files[0].path);
        s->token_bytes = info.token_bytes;
        f->header_bytes = info.header_bytes;
        f->contents = info.contents;
        f->first = s->tokens;
        f->tokens = info.tokens;
        s->tokens += info.tokens;
        ATOM_TRY(read_masks(s, f));
    }
    return ATOM_OK;
}

/* Files beside the shards that were lost on the way, as where only *.bin was copied: without masks all of a
 * chat would be learned. Data with chats from before these files were counted say how many tokens of both
 * splits are learned. */
static atom_status check_beside(const text_shards *s, const json_t *root, const json_t *part)
{
    static const char *const kinds[] = {"mask", "begins"};
    const char *name = text_split_name(s->split);
    json_int_t targets = json_integer_value(json_object_get(root, "targets")),
               chats = json_integer_value(json_object_get(root, "chats"));
    for (size_t kind = 0; kind < 2; kind++) {
        uint64_t here = 0, all = (uint64_t)json_integer_value(json_object_get(part, kinds[kind]));
        for (uint32_t i = 0; i < s->n; i++)
            here += (kind == 0 ? s->files[i].bits : s->files[i].begins) != NULL;
        if (kind == 0 && s->split == TEXT_TRAIN && chats > 0 && targets > 0 &&
            (uint64_t)targets < s->said)
            all = all ? all : 1;
        /* where shards were left out, their files may be too */
        if (here < all && (s->tokens == s->said || here == 0))
            return atom_fail(
                ATOM_E_FORMAT,
                "%s: %s of the files %s_*.%s are missing, which say %s; copy them, too", s->dir,
                here ? "some" : "all", name, kinds[kind],
                kind == 0 ? "what is learned" : "where documents begin");
    }
    return ATOM_OK;
}

/* More than what was prepared here are shards of another data set, whose tokens may be those of another
 * tokenizer. Fewer are a part of it. */
static atom_status check_said(const text_shards *s, json_int_t said)
{
    if (said < 0 || (uint64_t)said >= s->tokens)
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT,
                     "%s: there are %llu tokens to %s, but dataset.json says %lld, so shards "
                     "of another data set are here too, perhaps with another tokenizer; move "
                     "them away, or remove dataset.json if they belong together",
                     s->dir, (unsigned long long)s->tokens,
                     s->split == TEXT_TRAIN ? "train on" : "validate", (long long)said);
}

/* dataset.json; NULL in *root: there is none. One that is damaged cannot say what is missing here. */
static atom_status read_counts(const char *dir, json_t **root)
{
    char *path = atom_path_join(dir, "dataset.json"), *text = NULL;
    uint64_t bytes = 0;
    atom_status st = path ? ATOM_OK : atom_fail_memory("a path", strlen(dir));
    *root = NULL;
    if (path && atom_path_exists(path))
        st = atom_file_read(path, COUNTS_BYTES_MAX, &text, &bytes);
    if (st == ATOM_OK && text)
        st = atom_json_parse(path, text, (size_t)bytes, JSON_REJECT_DUPLICATES, root);
    atom_free(text);
    atom_free(path);
    return st;
}

/* A count that is no number would be taken for none, and what is missing here for never made. */
static atom_status check_numbers(const char *dir, const json_t *root, const json_t *part)
{
    static const char *const keys[] = {"targets", "chats", "sequence_len",
                                       "tokens",  "mask",  "begins"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = atom_json_present(i < 3 ? root : part, keys[i]);
        if (value && (!json_is_integer(value) || json_integer_value(value) < 0))
            return atom_fail(ATOM_E_FORMAT,
                             "%s/dataset.json: %s must be a whole number of at least 0; copy the "
                             "file again, or run 'atom data prepare'",
                             dir, keys[i]);
    }
    return ATOM_OK;
}

bool text_shards_counted(const char *dir, text_split split)
{
    json_t *root = NULL;
    if (read_counts(dir, &root) != ATOM_OK)
        return false;
    const json_t *part = json_object_get(root, text_split_name(split));
    bool some = json_integer_value(json_object_get(part, "tokens")) > 0;
    json_decref(root);
    return some;
}

static atom_status check_counts(text_shards *s)
{
    json_t *root = NULL;
    atom_status st = read_counts(s->dir, &root);
    const json_t *part = json_object_get(root, text_split_name(s->split)),
                 *tokens = json_object_get(part, "tokens");
    json_int_t said = json_integer_value(tokens);
    json_int_t packed = json_integer_value(json_object_get(root, "sequence_len"));
    s->said = said > 0 ? (uint64_t)said : 0;
    s->packed = packed > 0 && packed <= UINT32_MAX ? (uint32_t)packed : 0;
    if (st == ATOM_OK)
        st = check_numbers(s->dir, root, part);
    if (st == ATOM_OK && json_is_integer(tokens))
        st = check_said(s, said);
    if (st == ATOM_OK)
        st = check_beside(s, root, part);
    json_decref(root);
    return st;
}

void text_shards_warn(const text_shards *s)
{
    if (s->tokens < s->said)
        atom_log(
            ATOM_LOG_WARN,
            "%s: of the %llu tokens to %s that dataset.json counts, only %llu are here; unless "
            "you left out shards on purpose, copy the data again",
            s->dir, (unsigned long long)s->said, s->split == TEXT_TRAIN ? "train on" : "validate",
            (unsigned long long)s->tokens);
    const text_numbered first = number_of(s, 0);
    for (uint32_t i = 1; s->said == 0 && i < s->n; i++) {
        const text_numbered other = number_of(s, i);
        if (text_same_series(&first, &other))
            continue;
        atom_log(ATOM_LOG_WARN,
                 "%s: %s and %s may be of two data sets; both are used, so their tokens must be "
                 "those of one tokenizer; if that is not what you want, move one of them away",
                 s->dir, first.name, other.name);
        break;
    }
}

atom_status text_shards_verify(const text_shards *s, bool all)
{
    bool small = s->tokens * s->token_bytes <= VERIFY_BYTES;
    for (uint32_t i = 0; i < s->n; i++)
        if (all || small || text_shard_has_hole(s->files[i].path))
            ATOM_TRY(text_shard_verify(s->files[i].path));
    return ATOM_OK;
}

/* A file without a header does not say how wide its numbers are. Wider ones, taken for 16 bits, have their upper
 * halves behind them, which are hardly ever above 0. */
static atom_status check_width(const text_shards *s, const int32_t *tokens, uint32_t n)
{
    enum { ENOUGH = 256, VOCAB_MAX = 1 << 20 };
    const int32_t most = s->vocab && s->vocab <= VOCAB_MAX ? (int32_t)((s->vocab - 1) >> 16) : 0;
    bool wide = s->files[0].header_bytes == 0 && n >= ENOUGH, any = false;
    for (uint32_t i = 0; i + 1 < n && wide; i += 2) {
        wide = tokens[i + 1] <= most;
        any = any || tokens[i] > most;
    }
    if (!wide || !any)
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT,
                     "%s: every second number is at most %d, as in a file of uint32, but files in "
                     "nanoGPT's format have uint16; write it again with dtype=np.uint16, or, for "
                     "tokens above 65535, make the data with 'atom data prepare'",
                     s->files[0].path, most);
}

/* Tokens of another vocabulary show at once, before anything large is opened. */
static atom_status check_start(const text_shards *s)
{
    int32_t tokens[START_TOKENS];
    uint32_t n = s->files[0].tokens < START_TOKENS ? (uint32_t)s->files[0].tokens : START_TOKENS;
    ATOM_TRY(text_shards_read(s, 0, n, tokens));
    return check_width(s, tokens, n);
}

atom_status text_shards_open(const char *dir, text_split split, uint32_t vocab, text_shards **out)
{
    atom_status st = ATOM_OK;
    text_shards *s = atom_alloc(1, sizeof *s);
    if (s)
        s->dir = atom_strdup(dir);
    if (!s || !s->dir)
        ATOM_TRY_CLEAN(atom_fail_memory("a data set", sizeof *s));
    s->vocab = vocab;
    s->split = split;
    ATOM_TRY_CLEAN(text_staging_check(dir));
    ATOM_TRY_CLEAN(list_files(s, split));
    ATOM_TRY_CLEAN(check_numbers_of_files(s));
    ATOM_TRY_CLEAN(open_files(s));
    ATOM_TRY_CLEAN(check_counts(s));
    ATOM_TRY_CLEAN(check_start(s));
    *out = s;
    return ATOM_OK;
cleanup:
    text_shards_close(&s);
    return st;
}

void text_shards_close(text_shards **shards)
{
    text_shards *s = *shards;
    if (!s)
        return;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->files[i].fd >= 0)
            close(s->files[i].fd);
        atom_free(s->files[i].path);
        atom_free(s->files[i].bits);
        atom_free(s->files[i].begins);
    }
    atom_free(s->files);
    atom_free(s->dir);
    atom_free(s);
    *shards = NULL;
}

const char *text_shards_dir(const text_shards *s)
{
    return s->dir;
}

uint64_t text_shards_tokens(const text_shards *s)
{
    return s->tokens;
}

uint32_t text_shards_count(const text_shards *s)
{
    return s->n;
}

uint32_t text_shards_packed(const text_shards *s)
{
    return s->packed;
}

uint32_t text_shards_token_bytes(const text_shards *s)
{
    return s->token_bytes;
}

uint64_t text_shards_windows(const text_shards *s, uint32_t sequence_len)
{
    return s->tokens && sequence_len ? (s->tokens - 1) / sequence_len : 0;
}

uint64_t text_shards_hash(const text_shards *s)
{
    uint64_t hash = ATOM_HASH_SEED;
    for (uint32_t i = 0; i < s->n; i++) {
        const char *name = s->files[i].path + strlen(s->dir);
        hash = atom_hash(hash, name, strlen(name) + 1);
        hash = atom_hash(hash, &s->files[i].tokens, sizeof s->files[i].tokens);
        if (s->files[i].bits)
            hash = atom_hash(hash, &s->files[i].mask_hash, sizeof s->files[i].mask_hash);
        if (s->files[i].begins)
            hash = atom_hash(hash, &s->files[i].begins_hash, sizeof s->files[i].begins_hash);
    }
    return hash;
}

uint64_t text_shards_contents(const text_shards *s)
{
    uint64_t hash = ATOM_HASH_SEED;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!s->files[i].contents)
            return 0;
        hash = atom_hash(hash, &s->files[i].contents, sizeof s->files[i].contents);
    }
    return hash ? hash : 1;
}

/* The file that holds token `at` of the stream; empty files are passed over. */
static uint32_t find_file(const text_shards *s, uint64_t at)
{
    uint32_t low = 0, high = s->n;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (s->files[middle].first <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static atom_status read_bytes(const shard_file *f, int fd, uint64_t at, uint8_t *out, size_t bytes)
{
    int error = atom_fd_read(fd, at, out, bytes);
    if (error == ENODATA)
        return atom_fail(ATOM_E_FORMAT, "%s became shorter while it was open; copy it again",
                         f->path);
    return error ? atom_fail_errno(error, "cannot read %s", f->path) : ATOM_OK;
}

/* n tokens of one file, from its token `at`. */
static atom_status read_file(const text_shards *s, const shard_file *f, int fd, uint64_t at,
                             uint32_t n, int32_t *tokens)
{
    uint8_t raw[READ_BYTES];
    for (uint32_t done = 0; done < n;) {
        uint32_t part = READ_BYTES / s->token_bytes;
        part = part < n - done ? part : n - done;
        ATOM_TRY(read_bytes(f, fd, f->header_bytes + (at + done) * s->token_bytes, raw,
                            (size_t)part * s->token_bytes));
        atom_reader r = atom_reader_make(raw, sizeof raw);
        for (uint32_t i = 0; i < part; i++) {
            uint32_t id = s->token_bytes == 2 ? atom_read_u16(&r) : atom_read_u32(&r);
            if (id >= s->vocab || id > INT32_MAX)
                return atom_fail(ATOM_E_FORMAT,
                                 "%s: token %llu is %u, but the vocabulary has only %u tokens; "
                                 "the data was made with another tokenizer, or %s",
                                 f->path, (unsigned long long)(at + done + i), id, s->vocab,
                                 f->header_bytes ? "the file is damaged"
                                                 : "its tokens are not uint16 as nanoGPT's are");
            tokens[done + i] = (int32_t)id;
        }
        done += part;
    }
    return ATOM_OK;
}

atom_status text_shards_read(const text_shards *s, uint64_t first, uint32_t n, int32_t *tokens)
{
    ATOM_ASSERT(first <= s->tokens && n <= s->tokens - first);
    for (uint32_t i = n ? find_file(s, first) : 0; n; i++) {
        const shard_file *f = &s->files[i];
        uint64_t at = first - f->first;
        uint32_t part = f->tokens - at < n ? (uint32_t)(f->tokens - at) : n;
        text_shard_info info;
        atom_status st = ATOM_OK;
        int fd = f->fd;
        if (part == 0)
            continue;
        if (fd < 0)
            st = text_shard_open(f->path, &fd, &info);
        if (st == ATOM_OK)
            st = read_file(s, f, fd, at, part, tokens);
        if (f->fd < 0 && fd >= 0)
            close(fd);
        ATOM_TRY(st);
        first += part;
        tokens += part;
        n -= part;
    }
    return ATOM_OK;
}

bool text_shards_masked(const text_shards *s)
{
    return s->masked;
}

void text_shards_marks(const text_shards *s, uint64_t first, uint32_t n, uint8_t *marks)
{
    ATOM_ASSERT(first <= s->tokens && n <= s->tokens - first);
    memset(marks, 1, n);
    for (uint32_t i = n ? find_file(s, first) : 0; n; i++) {
        const shard_file *f = &s->files[i];
        uint64_t at = first - f->first;
        uint32_t part = f->tokens - at < n ? (uint32_t)(f->tokens - at) : n;
        for (uint32_t k = 0; f->bits && k < part; k++)
            marks[k] = f->bits[(at + k) / 8] >> (at + k) % 8 & 1;
        first += part;
        marks += part;
        n -= part;
    }
}

void text_shards_begins(const text_shards *s, uint64_t first, uint32_t n, const int32_t *tokens,
                        uint32_t start, uint8_t *begins)
{
    ATOM_ASSERT(first <= s->tokens && n <= s->tokens - first);
    for (uint32_t i = n ? find_file(s, first) : 0; n; i++) {
        const shard_file *f = &s->files[i];
        uint64_t at = first - f->first;
        uint32_t part = f->tokens - at < n ? (uint32_t)(f->tokens - at) : n;
        for (uint32_t k = 0; k < part; k++)
            begins[k] = (uint8_t)(f->begins ? f->begins[(at + k) / 8] >> (at + k) % 8 & 1
                                            : (uint32_t)tokens[k] == start);
        first += part;
        tokens += part;
        begins += part;
        n -= part;
    }
}

static void window_starts(const text_shards *s, uint32_t sequence_len, uint64_t window,
                          uint32_t start, const int32_t *tokens, int32_t *starts)
{
    uint8_t begins[READ_BYTES];
    int32_t last = 0;
    for (uint32_t at = 0; at < sequence_len; at += READ_BYTES) {
        uint32_t part = sequence_len - at < READ_BYTES ? sequence_len - at : READ_BYTES;
        text_shards_begins(s, window * sequence_len + at, part, tokens + at, start, begins);
        for (uint32_t i = 0; i < part; i++) {
            last = begins[i] ? (int32_t)(at + i) : last;
            starts[at + i] = last;
        }
    }
}

void text_windows_starts(const text_shards *s, uint32_t sequence_len, uint64_t first,
                         uint32_t count, uint32_t start, const int32_t *tokens, int32_t *starts)
{
    for (uint32_t i = 0; i < count; i++)
        window_starts(s, sequence_len, first + i, start, tokens + (size_t)i * sequence_len,
                      starts + (size_t)i * sequence_len);
}

/* -1 for those of targets [first, first + n) that do not count. */
static void mask_targets(const text_shards *s, uint64_t first, uint32_t n, int32_t *targets)
{
    uint8_t marks[READ_BYTES];
    for (uint32_t at = 0; at < n; at += READ_BYTES) {
        uint32_t part = n - at < READ_BYTES ? n - at : READ_BYTES;
        text_shards_marks(s, first + at, part, marks);
        for (uint32_t i = 0; i < part; i++)
            targets[at + i] = marks[i] ? targets[at + i] : -1;
    }
}

static atom_status read_window(const text_shards *s, uint32_t sequence_len, uint64_t window,
                               int32_t *tokens, int32_t *targets)
{
    uint64_t first = window * sequence_len;
    atom_status st = text_shards_read(s, first, sequence_len, tokens);
    if (st == ATOM_OK)
        st = text_shards_read(s, first + sequence_len, 1, &targets[sequence_len - 1]);
    if (st == ATOM_OK)
        memcpy(targets, tokens + 1, (sequence_len - 1) * sizeof *tokens);
    if (st == ATOM_OK && s->masked)
        mask_targets(s, first + 1, sequence_len, targets);
    return st;
}

atom_status text_windows_read(const text_shards *s, uint32_t sequence_len, uint64_t first,
                              uint32_t count, int32_t *tokens, int32_t *targets)
{
    for (uint32_t i = 0; i < count; i++) {
        size_t row = (size_t)i * sequence_len;
        ATOM_TRY(read_window(s, sequence_len, first + i, tokens + row, targets + row));
    }
    return ATOM_OK;
}
