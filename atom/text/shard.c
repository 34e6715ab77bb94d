/*
 * Owns the format of one shard. One idea: a header says how many tokens follow, and the size of the
 * file must say the same, so a file that was cut or mixed up is noticed before its first token is
 * used; nanoGPT's files say nothing, and are known by their names. Refuses other magics.
 */
#include "atom/text/shard.h"

#include "atom/base/bytes.h"
#include "atom/base/files.h"
#include "atom/base/hash.h"
#include "atom/base/mem.h"
#include "atom/text/mask.h"
#include "atom/text/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 20 };

struct text_shard_writer {
    char *dir, *split;
    char *path; /* of the open file */
    int fd;
    uint32_t token_bytes, shard_tokens;
    uint32_t shards;  /* files begun */
    uint64_t in_file; /* tokens */
    uint64_t hash;    /* of the open file's tokens that are no longer in the buffer */
    uint64_t tokens;
    uint8_t *buffer;
    size_t buffered; /* bytes */
    uint8_t *bits;   /* of the open file's mask, [bits_n] bytes; ones where nothing was put */
    size_t bits_n;
    bool masked;     /* a token of the open file does not count */
    uint8_t *begins; /* of the open file: where documents begin, [begins_n] bytes */
    size_t begins_n;
    bool told, begin,
        unclear; /* is told of documents; the next token is a first one; .begins is needed */
    uint32_t start;
};

bool text_shard_is(const void *head, size_t bytes)
{
    atom_reader r = atom_reader_make(head, bytes);
    uint32_t magic = atom_read_u32(&r);
    return atom_reader_ok(&r) && (magic == TEXT_SHARD_MAGIC_U16 || magic == TEXT_SHARD_MAGIC_U32);
}

atom_status text_shard_parse(const void *head, uint64_t file_bytes, const char *name,
                             text_shard_info *out)
{
    atom_reader r = atom_reader_make(head, TEXT_SHARD_HEADER_BYTES);
    uint32_t magic = atom_read_u32(&r), version = atom_read_u32(&r);
    uint64_t tokens = atom_read_u32(&r), contents = atom_read_u64(&r);
    if (file_bytes < TEXT_SHARD_HEADER_BYTES)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: %llu bytes are too few for the header of a token shard (1024); copy "
                         "the file again or run 'atom data prepare'",
                         name, (unsigned long long)file_bytes);
    if (magic != TEXT_SHARD_MAGIC_U16 && magic != TEXT_SHARD_MAGIC_U32)
        return atom_fail(ATOM_E_FORMAT,
                         "%s is not a token shard in llm.c's format (it starts with %u, not %d "
                         "or %d); make one with 'atom data prepare'",
                         name, magic, TEXT_SHARD_MAGIC_U16, TEXT_SHARD_MAGIC_U32);
    bool wide = magic == TEXT_SHARD_MAGIC_U32;
    uint32_t want = wide ? TEXT_SHARD_VERSION_U32 : TEXT_SHARD_VERSION_U16;
    if (version != want)
        return atom_fail(ATOM_E_FORMAT,
                         "%s is a shard of version %u, but atom reads version %u; make the data "
                         "again",
                         name, version, want);
    uint32_t token_bytes = wide ? 4 : 2;
    uint64_t need = TEXT_SHARD_HEADER_BYTES + tokens * token_bytes;
    if (file_bytes != need)
        return atom_fail(
            ATOM_E_FORMAT,
            "%s: %s: it has %llu bytes, but its header says %llu tokens (%llu bytes); copy the "
            "file again or run 'atom data prepare'",
            name, file_bytes < need ? "truncated" : "too long", (unsigned long long)file_bytes,
            (unsigned long long)tokens, (unsigned long long)need);
    *out = (text_shard_info){.tokens = tokens,
                             .token_bytes = token_bytes,
                             .header_bytes = TEXT_SHARD_HEADER_BYTES,
                             .contents = contents};
    return ATOM_OK;
}

bool text_shard_is_raw_name(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return strcmp(name, "train.bin") == 0 || strcmp(name, "val.bin") == 0;
}

atom_status text_shard_parse_raw(uint64_t file_bytes, const char *name, text_shard_info *out)
{
    if (file_bytes % sizeof(uint16_t))
        return atom_fail(ATOM_E_FORMAT,
                         "%s has %llu bytes, an odd number; without llm.c's header it would be "
                         "in nanoGPT's format, with 2 bytes per token; copy the file again",
                         name, (unsigned long long)file_bytes);
    *out =
        (text_shard_info){.tokens = file_bytes / sizeof(uint16_t), .token_bytes = sizeof(uint16_t)};
    return ATOM_OK;
}

/* At least a line of it; a character may be cut at the end. */
static bool is_text(const uint8_t *head, size_t n)
{
    enum { LEAST = 64 };
    size_t cut = 0;
    for (size_t i = 0; i < n; i++)
        if (head[i] < ' ' && (head[i] < '\t' || head[i] > '\r'))
            return false;
    return n >= LEAST && text_utf8_check_part((const char *)head, n, &cut) == n;
}

/* Of any protocol that programs still write: it says its protocol first, and its last instruction is to stop. Behind
 * those of torch.save before 1.6 are numbers, but the first one is always the same. */
static bool is_pickle(const uint8_t *head, size_t n, uint8_t last)
{
    static const uint8_t TORCH[] = {0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20};
    bool torch = n > sizeof TORCH && memcmp(head, TORCH, sizeof TORCH) == 0;
    return torch || (n > 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5 && last == '.');
}

/* nanoGPT's numbers have no header, so any bytes would be some: not those of a file that says itself what it is, nor
 * text, which half a thousand tokens are not by chance. last: the file's last byte. */
static atom_status check_raw(const uint8_t *head, size_t n, uint8_t last, const char *name)
{
    static const struct {
        const char *begin, *what;
    } known[] = {
        {"\x93NUMPY", "begins as a file of numpy.save does; write the array with tofile()"},
        {"PK\3\4", "begins as a zip archive does; write the tokens with NumPy's tofile()"},
        {"\x1f\x8b\x08", "is compressed with gzip; unpack it"},
        {"\x28\xb5\x2f\xfd", "is compressed with zstd; unpack it"},
        {"PAR1", "begins as a parquet file does; make tokens of it with 'atom data prepare'"},
        {"ARROW1", "begins as a file of Arrow does; write the tokens with NumPy's tofile()"},
        {"\x89HDF\r\n", "begins as an HDF5 file does; write the tokens with NumPy's tofile()"}};
    const char *what = NULL;
    if (atom_is_lfs_pointer(head, n))
        return atom_fail_lfs(name);
    for (size_t i = 0; i < sizeof known / sizeof *known && !what; i++)
        if (n > strlen(known[i].begin) && memcmp(head, known[i].begin, strlen(known[i].begin)) == 0)
            what = known[i].what;
    if (!what && is_pickle(head, n, last))
        what = "is a pickle; write the tokens with NumPy's tofile()";
    else if (!what && is_text(head, n))
        what = "is text; make tokens of it with 'atom data prepare'";
    return what ? atom_fail(ATOM_E_FORMAT,
                            "%s should be uint16 numbers and nothing else, as nanoGPT writes it, "
                            "but it %s",
                            name, what)
                : ATOM_OK;
}

atom_status text_shard_open(const char *path, int *fd_out, text_shard_info *out)
{
    uint8_t head[TEXT_SHARD_HEADER_BYTES] = {0};
    struct stat info;
    atom_status st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return atom_fail(ATOM_E_FORMAT, "%s: no such file", path);
    if (fd < 0)
        return atom_fail_errno(errno, "cannot open %s", path);
    if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT, "%s is not a file", path));
    ssize_t n = pread(fd, head, sizeof head, 0);
    if (n < 0)
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "cannot read %s", path));
    if (!text_shard_is_raw_name(path) || text_shard_is(head, (size_t)n)) {
        ATOM_TRY_CLEAN(text_shard_parse(head, (uint64_t)info.st_size, path, out));
    } else {
        uint8_t last = 0;
        if (info.st_size > 0 && pread(fd, &last, 1, info.st_size - 1) < 0)
            ATOM_TRY_CLEAN(atom_fail_errno(errno, "cannot read %s", path));
        ATOM_TRY_CLEAN(check_raw(head, (size_t)n, last, path));
        ATOM_TRY_CLEAN(text_shard_parse_raw((uint64_t)info.st_size, path, out));
    }
    *fd_out = fd;
    return ATOM_OK;
cleanup:
    close(fd);
    return st;
}

atom_status text_shard_probe(const char *path, text_shard_info *out)
{
    int fd = -1;
    atom_status st = text_shard_open(path, &fd, out);
    if (st == ATOM_OK)
        close(fd);
    return st;
}

static void fill_header(uint8_t head[TEXT_SHARD_HEADER_BYTES], uint32_t token_bytes,
                        uint64_t tokens, uint64_t hash)
{
    memset(head, 0, TEXT_SHARD_HEADER_BYTES);
    atom_writer w = atom_writer_make(head, TEXT_SHARD_HEADER_BYTES);
    bool wide = token_bytes == 4;
    atom_write_uint(&w, wide ? TEXT_SHARD_MAGIC_U32 : TEXT_SHARD_MAGIC_U16, 4);
    atom_write_uint(&w, wide ? TEXT_SHARD_VERSION_U32 : TEXT_SHARD_VERSION_U16, 4);
    atom_write_uint(&w, tokens, 4);
    atom_write_uint(&w, hash ? hash : 1, 8); /* 0 would say that there is none */
}

static atom_status write_all(int fd, const uint8_t *data, size_t bytes, const char *path)
{
    while (bytes) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return atom_fail_errno(errno, "cannot write %s", path);
        data += n;
        bytes -= (size_t)n;
    }
    return ATOM_OK;
}

/* The header, then everything on disk. */
static atom_status seal(int fd, uint32_t token_bytes, uint64_t tokens, uint64_t hash,
                        const char *path)
{
    uint8_t head[TEXT_SHARD_HEADER_BYTES];
    fill_header(head, token_bytes, tokens, hash);
    if (pwrite(fd, head, sizeof head, 0) != (ssize_t)sizeof head || fsync(fd) < 0)
        return atom_fail_errno(errno, "cannot write %s", path);
    return ATOM_OK;
}

/* mask: a path, which is freed. */
static atom_status cut_mask(char *mask, uint64_t old, uint64_t tokens)
{
    uint8_t *bits = NULL;
    uint64_t hash;
    atom_status st = mask ? ATOM_OK : atom_fail_memory("a path", 256);
    if (mask && atom_path_exists(mask))
        st = text_mask_read(mask, old, &bits, &hash);
    if (st == ATOM_OK && bits) {
        if (tokens % 8)
            bits[tokens / 8] &= (uint8_t)((1u << tokens % 8) - 1);
        st = text_mask_write(mask, bits, tokens);
    }
    atom_free(bits);
    atom_free(mask);
    return st;
}

static atom_status hash_tokens(int fd, uint64_t bytes, const char *path, uint64_t *hash)
{
    uint8_t chunk[1 << 14];
    *hash = ATOM_HASH_SEED;
    for (uint64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < sizeof chunk ? bytes - at : sizeof chunk;
        int error = atom_fd_read(fd, TEXT_SHARD_HEADER_BYTES + at, chunk, n);
        if (error)
            return atom_fail_errno(error, "cannot read %s", path);
        *hash = atom_hash(*hash, chunk, n);
    }
    return ATOM_OK;
}

atom_status text_shard_verify(const char *path)
{
    text_shard_info info = {0};
    uint64_t hash = 0;
    int fd = -1;
    ATOM_TRY(text_shard_open(path, &fd, &info));
    atom_status st =
        info.contents ? hash_tokens(fd, info.tokens * info.token_bytes, path, &hash) : ATOM_OK;
    close(fd);
    if (st == ATOM_OK && info.contents && (hash ? hash : 1) != info.contents)
        st = atom_fail(ATOM_E_FORMAT,
                       "%s: the file is damaged: its tokens are not those whose hash is in its "
                       "header; copy it again or run 'atom data prepare'",
                       path);
    return st;
}

bool text_shard_has_hole(const char *path)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false; /* reading it will say why */
    off_t hole = lseek(fd, 0, SEEK_HOLE);
    bool has = hole >= 0 && fstat(fd, &info) == 0 && hole < info.st_size;
    close(fd);
    return has;
}

atom_status text_shard_cut(const char *path, uint64_t tokens)
{
    text_shard_info info = {0};
    uint64_t hash = 0;
    atom_status st = ATOM_OK;
    ATOM_TRY(text_shard_probe(path, &info));
    if (info.header_bytes == 0)
        return atom_fail(ATOM_E_FORMAT, "%s: a file in nanoGPT's format cannot be shortened", path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return atom_fail_errno(errno, "cannot open %s", path);
    if (ftruncate(fd, (off_t)(TEXT_SHARD_HEADER_BYTES + tokens * info.token_bytes)) < 0)
        st = atom_fail_errno(errno, "cannot shorten %s", path);
    if (st == ATOM_OK)
        st = hash_tokens(fd, tokens * info.token_bytes, path, &hash);
    if (st == ATOM_OK)
        st = seal(fd, info.token_bytes, tokens, hash, path);
    close(fd);
    if (st == ATOM_OK)
        st = cut_mask(text_mask_path(path), info.tokens, tokens);
    return st == ATOM_OK ? cut_mask(text_begins_path(path), info.tokens, tokens) : st;
}

atom_status text_shard_writer_open(const char *dir, const char *split, uint32_t vocab,
                                   uint32_t shard_tokens, text_shard_writer **out)
{
    text_shard_writer *w = atom_alloc(1, sizeof *w);
    if (w) {
        w->fd = -1;
        w->dir = atom_strdup(dir);
        w->split = atom_strdup(split);
        w->buffer = atom_alloc(BUFFER_BYTES, 1);
        w->token_bytes = vocab > 65536 ? 4 : 2;
        w->shard_tokens = shard_tokens ? shard_tokens : TEXT_SHARD_TOKENS_MAX;
    }
    if (!w || !w->dir || !w->split || !w->buffer) {
        text_shard_writer_close(&w);
        return atom_fail_memory("a shard writer", BUFFER_BYTES);
    }
    *out = w;
    return ATOM_OK;
}

void text_shard_writer_close(text_shard_writer **writer)
{
    text_shard_writer *w = *writer;
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    atom_free(w->dir);
    atom_free(w->split);
    atom_free(w->path);
    atom_free(w->buffer);
    atom_free(w->bits);
    atom_free(w->begins);
    atom_free(w);
    *writer = NULL;
}

static atom_status begin_file(text_shard_writer *w)
{
    static const uint8_t blank[TEXT_SHARD_HEADER_BYTES];
    atom_free(w->path);
    w->path = atom_format("%s/%s_%06u.bin", w->dir, w->split, w->shards);
    if (!w->path)
        return atom_fail_memory("a path", strlen(w->dir) + 32);
    w->fd = open(w->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (w->fd < 0)
        return atom_fail_errno(errno, "cannot create %s", w->path);
    w->shards++;
    w->in_file = 0;
    w->hash = ATOM_HASH_SEED;
    return write_all(w->fd, blank, sizeof blank, w->path);
}

static atom_status flush(text_shard_writer *w)
{
    size_t bytes = w->buffered;
    w->buffered = 0;
    w->hash = atom_hash(w->hash, w->buffer, bytes);
    return write_all(w->fd, w->buffer, bytes, w->path);
}

static atom_status write_mask(text_shard_writer *w)
{
    char *path = text_mask_path(w->path);
    if (!path)
        return atom_fail_memory("a path", strlen(w->path));
    if (w->in_file % 8)
        w->bits[w->in_file / 8] &= (uint8_t)((1u << w->in_file % 8) - 1);
    atom_status st = text_mask_write(path, w->bits, w->in_file);
    atom_free(path);
    memset(w->bits, 0xff, w->bits_n);
    w->masked = false;
    return st;
}

static atom_status write_begins(text_shard_writer *w)
{
    char *path = text_begins_path(w->path);
    if (!path)
        return atom_fail_memory("a path", strlen(w->path));
    atom_status st = text_mask_write(path, w->begins, w->in_file);
    atom_free(path);
    return st;
}

static atom_status finish_file(text_shard_writer *w)
{
    atom_status st = flush(w);
    if (st == ATOM_OK)
        st = seal(w->fd, w->token_bytes, w->in_file, w->hash, w->path);
    if (close(w->fd) < 0 && st == ATOM_OK)
        st = atom_fail_errno(errno, "cannot write %s", w->path);
    w->fd = -1;
    if (st == ATOM_OK && w->masked)
        st = write_mask(w);
    if (st == ATOM_OK && w->unclear)
        st = write_begins(w);
    if (w->begins)
        memset(w->begins, 0, w->begins_n);
    w->unclear = false;
    return st;
}

static atom_status grow_bits(uint8_t **bits, size_t *n, uint64_t index, int fill)
{
    size_t want = index / 8 + 1;
    if (want <= *n)
        return ATOM_OK;
    size_t bytes = want + want / 2 + 4096;
    uint8_t *grown = atom_realloc(*bits, bytes, 1);
    if (!grown)
        return atom_fail_memory("a mask", bytes);
    memset(grown + *n, fill, bytes - *n);
    *bits = grown;
    *n = bytes;
    return ATOM_OK;
}

/* The bit of the token that is put next. */
static atom_status set_mark(text_shard_writer *w, bool counts)
{
    ATOM_TRY(grow_bits(&w->bits, &w->bits_n, w->in_file, 0xff));
    uint8_t bit = (uint8_t)(1u << w->in_file % 8), *byte = &w->bits[w->in_file / 8];
    *byte = counts ? *byte | bit : *byte & (uint8_t)~bit;
    w->masked = w->masked || !counts;
    return ATOM_OK;
}

void text_shard_writer_begin(text_shard_writer *w, uint32_t start)
{
    w->told = w->begin = true;
    w->start = start;
}

/* Of the token that is put next, in a writer that is told of documents. */
static atom_status set_begin(text_shard_writer *w, uint32_t id)
{
    atom_status st = grow_bits(&w->begins, &w->begins_n, w->in_file, 0);
    if (st == ATOM_OK && w->begin)
        w->begins[w->in_file / 8] |= (uint8_t)(1u << w->in_file % 8);
    w->unclear = w->unclear || w->begin != (id == w->start);
    w->begin = false;
    return st;
}

static void put_token(text_shard_writer *w, uint32_t id)
{
    uint8_t *at = w->buffer + w->buffered;
    at[0] = (uint8_t)id;
    at[1] = (uint8_t)(id >> 8);
    if (w->token_bytes == 4) {
        at[2] = (uint8_t)(id >> 16);
        at[3] = (uint8_t)(id >> 24);
    }
    w->buffered += w->token_bytes;
    w->in_file++;
    w->tokens++;
}

atom_status text_shard_writer_put_marked(text_shard_writer *w, const uint32_t *ids,
                                         const uint8_t *marks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (w->fd >= 0 && w->in_file == w->shard_tokens)
            ATOM_TRY(finish_file(w));
        if (w->fd < 0)
            ATOM_TRY(begin_file(w));
        /* Without a mask so far, tokens that count need no bit: new bits are ones. */
        if ((marks && !marks[i]) || w->masked)
            ATOM_TRY(set_mark(w, !marks || marks[i]));
        if (w->told)
            ATOM_TRY(set_begin(w, ids[i]));
        put_token(w, ids[i]);
        if (w->buffered == BUFFER_BYTES)
            ATOM_TRY(flush(w));
    }
    return ATOM_OK;
}

atom_status text_shard_writer_put(text_shard_writer *w, const uint32_t *ids, size_t n)
{
    return text_shard_writer_put_marked(w, ids, NULL, n);
}

atom_status text_shard_writer_end(text_shard_writer *w)
{
    return w->fd >= 0 ? finish_file(w) : ATOM_OK;
}

uint64_t text_shard_writer_tokens(const text_shard_writer *w)
{
    return w->tokens;
}

uint32_t text_shard_writer_shards(const text_shard_writer *w)
{
    return w->shards;
}
