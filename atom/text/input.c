/*
 * Owns reading of text files. One idea: a file is read in blocks that end where cutting does no
 * harm, so memory stays small and blocks can be worked on beside each other. Refuses files that are
 * missing, of unknown kind, not UTF-8, or not JSON, and says where.
 */
#include "atom/text/input.h"

#include "atom/base/json.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/text/parquet.h"
#include "atom/text/records.h"
#include "atom/text/split.h"
#include "atom/text/unpack.h"
#include "atom/text/utf8.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { BLOCK_BYTES = 1 << 20 };

typedef enum shape { PLAIN, LINES, ARRAY, TABLE } shape;

struct text_input {
    char **paths;
    shape shape;      /* of the open file */
    const char *name; /* of it, for messages: its path, or one of names */
    char **names;     /* [names_n] */
    size_t names_n, names_capacity;
    text_table table;
    uint32_t n, file; /* file: the one that is open or to be opened next */
    size_t block_bytes;
    text_cut cut;
    uint64_t bytes;
    text_unpack *stream; /* of the open file; NULL: none, or it is Parquet */
    text_parquet *rows;  /* of the open file, if it is */
    uint64_t used;       /* of its bytes, for the blocks given out */
    char *pending;       /* read, not yet given out */
    size_t pending_n, pending_capacity;
    uint64_t at_byte, at_line; /* of pending[0] */
    bool end_of_file;
    uint64_t empty_n; /* files without a byte */
    const char *empty_first;
};

void text_block_fini(text_block *b)
{
    atom_free(b->data);
    b->data = NULL;
}

/* Does the name end so, without .gz or .zst? */
static bool ends_with(const char *path, const char *suffix)
{
    size_t n = text_unpack_stem(path), suffix_n = strlen(suffix);
    return n > suffix_n && strncasecmp(path + n - suffix_n, suffix, suffix_n) == 0;
}

static bool is_parquet(const char *path)
{
    return ends_with(path, ".parquet");
}

bool text_input_is_lines(const char *path)
{
    return ends_with(path, ".jsonl") || ends_with(path, ".ndjson") || is_parquet(path);
}

static atom_status check_file(const char *path, uint64_t *bytes)
{
    struct stat info;
    if (stat(path, &info) < 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? atom_fail(ATOM_E_FORMAT, "%s: no such file", path)
                   : atom_fail_errno(errno, "cannot read %s", path);
    if (S_ISDIR(info.st_mode))
        return atom_fail(ATOM_E_USAGE, "%s is a directory; name the files in it", path);
    if (!text_input_is_lines(path) && !ends_with(path, ".txt") && !ends_with(path, ".json") &&
        !ends_with(path, ".csv"))
        return atom_fail(
            ATOM_E_USAGE,
            "%s: input must be .txt (one document per file), .jsonl (one object per line), .json "
            "(an array of them) or .csv (with a header), each also as .gz or .zst, or .parquet; "
            "rename or convert it",
            path);
    if (!S_ISREG(info.st_mode))
        return atom_fail(ATOM_E_USAGE, "%s is not an ordinary file; save it to one first", path);
    if (is_parquet(path) && path[text_unpack_stem(path)])
        return atom_fail(ATOM_E_USAGE,
                         "%s: compressed .parquet files are not read; unpack it to "
                         ".parquet first",
                         path);
    *bytes += (uint64_t)info.st_size;
    return is_parquet(path) ? text_parquet_check(path, (uint64_t)info.st_size) : ATOM_OK;
}

atom_status text_input_open(const char *const *paths, uint32_t n, size_t block_bytes,
                            text_input **out)
{
    atom_status st = ATOM_OK;
    text_input *in = atom_alloc(1, sizeof *in);
    if (in)
        in->paths = atom_alloc(n + 1, sizeof *in->paths);
    if (!in || !in->paths)
        ATOM_TRY_CLEAN(atom_fail_memory("a list of inputs", n * sizeof *in->paths));
    in->block_bytes = block_bytes ? block_bytes : BLOCK_BYTES;
    for (uint32_t i = 0; i < n; i++) {
        ATOM_TRY_CLEAN(check_file(paths[i], &in->bytes));
        in->paths[i] = atom_strdup(paths[i]);
        if (!in->paths[i])
            ATOM_TRY_CLEAN(atom_fail_memory("a path", strlen(paths[i])));
        in->n = i + 1;
    }
    *out = in;
    return ATOM_OK;
cleanup:
    text_input_close(&in);
    return st;
}

void text_input_close(text_input **input)
{
    text_input *in = *input;
    if (!in)
        return;
    text_unpack_close(&in->stream);
    text_parquet_close(&in->rows);
    text_table_fini(&in->table);
    for (uint32_t i = 0; i < in->names_n; i++)
        atom_free(in->names[i]);
    atom_free(in->names);
    for (uint32_t i = 0; i < in->n; i++)
        atom_free(in->paths[i]);
    atom_free(in->paths);
    atom_free(in->pending);
    atom_free(in);
    *input = NULL;
}

typedef struct file_id {
    dev_t device;
    ino_t number;
    uint32_t at;
} file_id;

static int compare_ids(const void *a, const void *b)
{
    const file_id *x = a, *y = b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

void text_input_say_twice(const text_input *in)
{
    struct stat info;
    uint32_t n = 0;
    file_id *ids = in ? atom_alloc(in->n + 1, sizeof *ids) : NULL;
    for (uint32_t i = 0; ids && i < in->n; i++)
        if (stat(in->paths[i], &info) == 0)
            ids[n++] = (file_id){info.st_dev, info.st_ino, i};
    if (n)
        qsort(ids, n, sizeof *ids, compare_ids);
    for (uint32_t i = 1; i < n; i++)
        if (ids[i].device == ids[i - 1].device && ids[i].number == ids[i - 1].number)
            atom_log(ATOM_LOG_WARN,
                     "%s is the same file as %s, so its texts will be in the data "
                     "twice",
                     in->paths[ids[i].at], in->paths[ids[i - 1].at]);
    atom_free(ids);
}

void text_input_cut(text_input *in, text_cut cut)
{
    in->cut = cut;
}

bool text_input_has_records(const text_input *in)
{
    uint32_t i = 0;
    while (i < in->n && ends_with(in->paths[i], ".txt"))
        i++;
    return i < in->n;
}

uint64_t text_input_bytes(const text_input *in)
{
    return in->bytes;
}

/* Reads until `want` bytes are pending or the file ends. */
static atom_status fill(text_input *in, size_t want)
{
    static const char *const ends[] = {"a newline", "a line's end", "an element's end",
                                       "a row's end"};
    if (want > TEXT_UNCUT_MAX && (in->shape != PLAIN || text_unpack_packed(in->stream)))
        return atom_fail(ATOM_E_FORMAT,
                         "%s:%llu: there are more than %d MiB without a place to split (%s); "
                         "is it text?",
                         in->name, (unsigned long long)in->at_line, TEXT_UNCUT_MAX >> 20,
                         ends[in->shape]);
    if (in->pending_capacity < want) {
        char *grown = atom_realloc(in->pending, want, 1);
        if (!grown)
            return atom_fail_memory(in->name, want);
        in->pending = grown;
        in->pending_capacity = want;
    }
    while (in->pending_n < want && !in->end_of_file) {
        size_t n = 0, room = want - in->pending_n;
        char *end = in->pending + in->pending_n;
        ATOM_TRY(in->rows ? text_parquet_read(in->rows, end, room, &n)
                          : text_unpack_read(in->stream, end, room, &n));
        in->end_of_file = n == 0;
        in->pending_n += n;
    }
    return ATOM_OK;
}

static size_t last_line_end(const char *data, size_t bytes)
{
    const char *at = memrchr(data, '\n', bytes);
    return at ? (size_t)(at - data) + 1 : 0;
}

static bool has_utf16_mark(const text_block *b)
{
    return b->bytes >= 2 &&
           (memcmp(b->data, "\xff\xfe", 2) == 0 || memcmp(b->data, "\xfe\xff", 2) == 0);
}

/* Text of two bytes per character: with its mark, or without it, where Latin letters leave every
 * second byte empty, and NUL is a character of UTF-8. */
static bool is_utf16(const text_block *b)
{
    enum { LOOK_BYTES = 4096 };
    size_t n = b->bytes < LOOK_BYTES ? b->bytes : LOOK_BYTES, empty[2] = {0};
    if (!b->starts || n < 2)
        return false;
    if (has_utf16_mark(b))
        return true;
    for (size_t i = 0; i < n; i++)
        empty[i % 2] += b->data[i] == 0;
    return 4 * (empty[0] > empty[1] ? empty[0] : empty[1]) > n;
}

static atom_status fail_utf16(const text_block *b)
{
    if (has_utf16_mark(b))
        return atom_fail(ATOM_E_FORMAT,
                         "%s: this is UTF-16, and atom reads UTF-8; convert it, for example with "
                         "iconv -f UTF-16 -t UTF-8",
                         b->name);
    const char *nul = memchr(b->data, 0, b->bytes);
    return atom_fail(
        ATOM_E_FORMAT,
        "%s: about every second byte is NUL, as in UTF-16, and atom reads UTF-8; convert "
        "it with iconv -f UTF-16%s -t UTF-8, or, if it is another text, remove them "
        "with tr -d '\\000'",
        b->name, (nul - b->data) % 2 ? "LE" : "BE");
}

static atom_status check_utf8(const text_block *b)
{
    if (is_utf16(b))
        return fail_utf16(b);
    size_t good = text_utf8_check(b->data, b->bytes);
    uint64_t line = b->first_line;
    if (good == b->bytes)
        return ATOM_OK;
    for (size_t i = 0; i < good; i++)
        line += b->data[i] == '\n';
    return atom_fail(
        ATOM_E_FORMAT,
        "%s:%llu: not UTF-8 at byte %llu of the file (0x%02x); convert it, for example "
        "with iconv -f LATIN1 -t UTF-8",
        b->name, (unsigned long long)line, (unsigned long long)(b->first_byte + good),
        (uint8_t)b->data[good]);
}

/* The same before records are known, so that no number of one can be said. */
static atom_status check_records(const text_block *b)
{
    if (is_utf16(b))
        return fail_utf16(b);
    size_t good = text_utf8_check(b->data, b->bytes);
    if (good == b->bytes)
        return ATOM_OK;
    return text_fail_line(b->name, b->first_line,
                          "here or later it is not UTF-8: byte %llu of the file (0x%02x); "
                          "convert it, for example with iconv -f LATIN1 -t UTF-8",
                          (unsigned long long)(b->first_byte + good), (uint8_t)b->data[good]);
}

/* A block of an array or a table becomes lines, once its bytes are known to be text. */
static atom_status make_lines(text_input *in, text_block *b, bool last)
{
    const text_records_place at = {b->name, b->first_line, b->starts, last};
    char *lines = NULL;
    size_t bytes = 0;
    if (in->shape != ARRAY && in->shape != TABLE)
        return ATOM_OK;
    ATOM_TRY(check_records(b));
    if (in->shape == ARRAY)
        return text_array_lines(&at, b->data, b->bytes);
    ATOM_TRY(text_table_lines(&in->table, &at, b->data, b->bytes, &lines, &bytes));
    atom_free(b->data);
    b->data = lines ? lines : atom_strdup("");
    b->bytes = bytes;
    return b->data ? ATOM_OK : atom_fail_memory("rows of CSV", 1);
}

/* Hands out the first `cut` pending bytes; the rest moves to a fresh buffer. */
static atom_status hand_out(text_input *in, size_t cut, text_block *b)
{
    size_t left = in->pending_n - cut;
    char *rest = NULL;
    if (left) {
        rest = atom_alloc(left, 1);
        if (!rest)
            return atom_fail_memory("a block of text", left);
        memcpy(rest, in->pending + cut, left);
    }
    uint64_t used = in->rows ? text_parquet_used(in->rows) : text_unpack_used(in->stream);
    *b = (text_block){.name = in->name,
                      .data = in->pending,
                      .bytes = cut,
                      .file_bytes = used - in->used,
                      .first_byte = in->at_byte,
                      .first_line = in->at_line,
                      .lines = in->shape != PLAIN,
                      .starts = in->at_byte == 0};
    in->used = used;
    in->at_byte += cut;
    in->pending = rest;
    in->pending_n = in->pending_capacity = left;
    atom_status st = make_lines(in, b, in->end_of_file && left == 0);
    if (st != ATOM_OK) {
        text_block_fini(b);
        return st;
    }
    for (const char *at = b->data; (at = memchr(at, '\n', (size_t)(b->data + b->bytes - at))); at++)
        in->at_line++;
    return ATOM_OK;
}

static atom_status next_file(text_input *in)
{
    const char *path = in->paths[in->file];
    ATOM_TRY(is_parquet(path) ? text_parquet_open(path, &in->rows)
                              : text_unpack_open(path, &in->stream));
    in->used = 0;
    in->shape = PLAIN; /* until its first bytes are here */
    in->name = path;
    in->at_byte = 0;
    in->at_line = 1;
    in->pending_n = 0;
    in->end_of_file = false;
    return ATOM_OK;
}

/* "FILE, element" or "FILE, row": what the numbers behind it count. */
static atom_status name_records(text_input *in, const char *what)
{
    ATOM_TRY(atom_grow(&in->names, in->names_n, &in->names_capacity, sizeof *in->names));
    char *name = atom_format("%s, %s", in->paths[in->file], what);
    if (!name)
        return atom_fail_memory("a name", 256);
    in->name = in->names[in->names_n++] = name;
    return ATOM_OK;
}

/* By the name, and for .json by the first byte: some hold lines. */
static atom_status find_shape(text_input *in)
{
    const char *path = in->name = in->paths[in->file];
    size_t i = 0;
    in->shape = ends_with(path, ".txt") ? PLAIN : LINES;
    if (ends_with(path, ".csv"))
        in->shape = TABLE;
    if (in->shape == TABLE || in->rows)
        return name_records(in, "row");
    if (!ends_with(path, ".json"))
        return ATOM_OK;
    for (size_t want = in->block_bytes; i == in->pending_n && !in->end_of_file; want *= 2) {
        ATOM_TRY(fill(in, want));
        while (i < in->pending_n && in->pending[i] && strchr(" \t\r\n\xef\xbb\xbf", in->pending[i]))
            i++;
    }
    if (i == in->pending_n || in->pending[i] != '[')
        return ATOM_OK;
    in->shape = ARRAY;
    return name_records(in, "element");
}

uint64_t text_input_empty(const text_input *in, const char **first)
{
    *first = in->empty_first;
    return in->empty_n;
}

static size_t find_cut(const text_input *in)
{
    size_t cut;
    switch (in->shape) {
    case LINES:
        return last_line_end(in->pending, in->pending_n);
    case ARRAY: /* what follows the comma comes with a block: an array never ends with one */
        cut = text_array_cut(in->pending, in->pending_n, in->at_byte == 0);
        return cut < in->pending_n ? cut : 0;
    case TABLE:
        return text_table_cut(in->pending, in->pending_n);
    default:
        return text_cut_last(in->cut, in->pending, in->pending_n);
    }
}

atom_status text_input_next(text_input *in, text_block *b)
{
    while (in->file < in->n) {
        if (!in->stream && !in->rows) {
            ATOM_TRY(next_file(in));
            ATOM_TRY(find_shape(in));
        }
        for (size_t want = in->block_bytes;; want *= 2) {
            ATOM_TRY(fill(in, want));
            size_t cut = in->end_of_file ? in->pending_n : find_cut(in);
            if (cut)
                return hand_out(in, cut, b);
            if (in->end_of_file)
                break;
        }
        if (in->at_byte == 0 && in->empty_n++ == 0)
            in->empty_first = in->paths[in->file];
        text_unpack_close(&in->stream);
        text_parquet_close(&in->rows);
        in->file++;
    }
    *b = (text_block){0};
    return ATOM_OK;
}

/* ---- documents ---- */

/* How long the byte order mark is that a file may begin with, and that is not of its text. */
static size_t mark_bytes(const char *text, size_t bytes)
{
    return bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* With whole numbers of more than 64 bits, which then are no longer whole: a text has no use for
 * numbers, but a template would print others than those of the line. */
static json_t *load_large(const char *text, size_t bytes, json_error_t *error)
{
    json_t *root = json_loadb(
        text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, error);
    if (!json_object_get(root, "messages"))
        return root;
    json_decref(root);
    *error = (json_error_t){.text = "a whole number of more than 64 bits in a chat"};
    return NULL;
}

/* first: the line's first character. more: other lines follow. */
static atom_status fail_json(const text_block *b, uint64_t line, char first, bool more,
                             const json_error_t *error)
{
    bool opened = more && json_error_code(error) == json_error_premature_end_of_input;
    if (opened && first == '{')
        return text_fail_line(b->name, line,
                              "this object goes on in the next line; write each object on one "
                              "line (jq -c . does that), or all of them as an array into a .json");
    if (opened && first == '[')
        return text_fail_line(b->name, line,
                              "this array goes on in the next line, but this file has one JSON "
                              "object per line; rename it to .json, which may be an array");
    return atom_fail(ATOM_E_FORMAT, "%s:%llu:%d: %s; each line must be one JSON object", b->name,
                     (unsigned long long)line, error->column, error->text);
}

/* One line of JSONL without its newline. */
static atom_status object_line(const text_block *b, uint64_t line, const char *text, size_t bytes,
                               text_object_fn fn, void *ctx, bool *stop)
{
    json_error_t error;
    size_t blanks = 0;
    if (line == 1) {
        size_t mark = mark_bytes(text, bytes);
        text += mark;
        bytes -= mark;
    }
    while (blanks < bytes && strchr(" \t\r", text[blanks]) && text[blanks])
        blanks++;
    if (blanks == bytes)
        return ATOM_OK;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!root && json_error_code(&error) == json_error_numeric_overflow)
        root = load_large(text, bytes, &error);
    if (!root && atom_json_starved(&error))
        return atom_fail_memory("a line of JSON", bytes);
    if (!root)
        return fail_json(b, line, text[blanks], text + bytes < b->data + b->bytes, &error);
    atom_status st = fn(ctx, root, line, stop);
    json_decref(root);
    return st;
}

atom_status text_block_objects(const text_block *b, text_object_fn fn, void *ctx, bool *stop)
{
    uint64_t line = b->first_line;
    atom_status st = check_utf8(b);
    for (size_t at = 0; st == ATOM_OK && !*stop && at < b->bytes; line++) {
        const char *end = memchr(b->data + at, '\n', b->bytes - at);
        size_t bytes = end ? (size_t)(end - b->data) - at : b->bytes - at;
        st = object_line(b, line, b->data + at, bytes, fn, ctx, stop);
        at += bytes + 1;
    }
    return st;
}

/* What a block is walked with. */
typedef struct walk {
    text_block *b;
    text_format format;
    text_document_fn fn;
    void *ctx;
    text_chat chat;
} walk;

static void count_empty(text_block *b, uint64_t line)
{
    if (b->empty_n++ == 0)
        b->empty_line = line;
}

static atom_status walk_object(void *ctx, const json_t *root, uint64_t line, bool *stop)
{
    walk *w = ctx;
    const text_block *b = w->b;
    const json_t *value = NULL;
    (void)stop;
    atom_status st = text_chat_read(root, w->format, b->name, line, &w->chat, &value);
    text_document d = {.text = json_string_value(value),
                       .bytes = json_string_length(value),
                       .messages = w->chat.messages,
                       .messages_n = w->chat.n,
                       .tools = w->chat.tools,
                       .documents = w->chat.documents,
                       .variables = w->chat.variables,
                       .unused = w->chat.unused,
                       .starts = true,
                       .line = line,
                       .name = b->name};
    if (st != ATOM_OK)
        return st;
    if (d.bytes == 0 && d.messages_n == 0) {
        count_empty(w->b, line);
        return ATOM_OK;
    }
    return w->fn(w->ctx, &d);
}

atom_status text_block_walk(text_block *b, text_format format, text_document_fn fn, void *ctx)
{
    walk w = {.b = b, .format = format, .fn = fn, .ctx = ctx};
    bool stop = false;
    atom_status st;
    b->empty_n = 0;
    if (b->lines) {
        st = text_block_objects(b, walk_object, &w, &stop);
        text_chat_fini(&w.chat);
        return st;
    }
    st = check_utf8(b);
    size_t mark = b->starts ? mark_bytes(b->data, b->bytes) : 0;
    text_document d = {.text = b->data + mark,
                       .bytes = b->bytes - mark,
                       .starts = b->starts,
                       .line = b->first_line,
                       .name = b->name};
    if (st == ATOM_OK && d.bytes == 0)
        count_empty(b, b->first_line);
    return st == ATOM_OK && d.bytes ? fn(ctx, &d) : st;
}
