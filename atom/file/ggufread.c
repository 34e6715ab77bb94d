/*
 * Owns the reading side of GGUF. One idea: one bounded pass over the header makes two sorted
 * tables; whatever a table holds lies inside the file. Refuses nested arrays, big-endian files,
 * duplicates and overlaps; types that it cannot decode only when their numbers are wanted.
 */
#include "atom/file/ggufread.h"

#include "atom/base/assert.h"
#include "atom/base/bytes.h"
#include "atom/base/dtype.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_MAX = 65535, VALUES_MAX = 1 << 16, TENSORS_MAX = 1 << 20, ALIGN_MAX = 1 << 20 };
enum { FIRST_READ = 4 << 20, HEADER_MAX = 1 << 29, DECODE_ELEMENTS = 1 << 14 };

/* Elements and bytes of a block of each type that ggml may put into a file. */
static const struct {
    const char *name;
    uint32_t elements, bytes;
} types[] = {
    [0] = {"F32", 1, 4},       [1] = {"F16", 1, 2},       [2] = {"Q4_0", 32, 18},
    [3] = {"Q4_1", 32, 20},    [6] = {"Q5_0", 32, 22},    [7] = {"Q5_1", 32, 24},
    [8] = {"Q8_0", 32, 34},    [9] = {"Q8_1", 32, 36},    [10] = {"Q2_K", 256, 84},
    [11] = {"Q3_K", 256, 110}, [12] = {"Q4_K", 256, 144}, [13] = {"Q5_K", 256, 176},
    [14] = {"Q6_K", 256, 210}, [15] = {"Q8_K", 256, 292}, [24] = {"I8", 1, 1},
    [25] = {"I16", 1, 2},      [26] = {"I32", 1, 4},      [27] = {"I64", 1, 8},
    [28] = {"F64", 1, 8},      [30] = {"BF16", 1, 2},
};
enum { TYPES_N = sizeof types / sizeof types[0] };

const char *file_gguf_type_name(uint32_t type)
{
    return type < TYPES_N && types[type].name ? types[type].name : "?";
}

bool file_gguf_is(const void *head, size_t bytes)
{
    return bytes >= 4 && memcmp(head, "GGUF", 4) == 0;
}

bool file_gguf_is_file(const char *path)
{
    char head[4] = {0};
    struct stat s;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool is = fd >= 0 && fstat(fd, &s) == 0 && S_ISREG(s.st_mode) &&
              pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head &&
              file_gguf_is(head, sizeof head);
    if (fd >= 0)
        close(fd);
    return is;
}

/* --- the header ------------------------------------------------------------------------------ */

typedef struct parser {
    atom_reader r;
    const char *path;
    file_gguf_in *f;
    uint64_t align;
} parser;

static uint32_t value_bytes(uint32_t type)
{
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

/* A length and as many bytes, borrowed; NULL and a bad reader where they are not there. */
static const uint8_t *take_text(atom_reader *r, uint64_t *bytes)
{
    *bytes = atom_read_u64(r);
    if (!atom_reader_ok(r) || *bytes > atom_reader_left(r)) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *at = r->at;
    r->at += *bytes;
    return at;
}

static void skip(atom_reader *r, uint64_t bytes)
{
    if (r->bad || bytes > atom_reader_left(r))
        r->bad = true;
    else
        r->at += bytes;
}

static atom_status take_items(parser *p, file_gguf_value *v)
{
    atom_reader *r = &p->r;
    uint64_t ignored;
    v->item = atom_read_u32(r);
    v->n = atom_read_u64(r);
    v->at = r->at;
    uint32_t width = value_bytes(v->item);
    if (atom_reader_ok(r) && width == 0 && v->item != FILE_GGUF_VALUE_TEXT)
        return atom_fail(ATOM_E_FORMAT, "%s: key '%.80s': an array of type %u is not supported",
                         p->path, v->key, v->item);
    if (width && v->n > UINT64_MAX / width)
        return atom_fail(ATOM_E_FORMAT, "%s: key '%.80s': its array is too long", p->path, v->key);
    if (width)
        skip(r, v->n * width);
    for (uint64_t i = 0; !width && i < v->n && atom_reader_ok(r); i++)
        (void)take_text(r, &ignored);
    return ATOM_OK;
}

static atom_status take_value(parser *p, file_gguf_value *v)
{
    atom_reader *r = &p->r;
    uint64_t bytes;
    const uint8_t *key = take_text(r, &bytes);
    atom_status st = ATOM_OK;
    if (!key)
        return ATOM_OK; /* the reader says so */
    if (bytes == 0 || bytes > KEY_MAX || memchr(key, 0, bytes))
        return atom_fail(ATOM_E_FORMAT, "%s: a key of %llu bytes is not text", p->path,
                         (unsigned long long)bytes);
    v->key = atom_strndup((const char *)key, bytes);
    if (!v->key)
        return atom_fail_memory("a key", bytes);
    v->type = atom_read_u32(r);
    v->n = 1;
    v->at = r->at;
    if (v->type == FILE_GGUF_VALUE_TEXT)
        v->at = take_text(r, &v->n);
    else if (v->type == FILE_GGUF_VALUE_ARRAY)
        st = take_items(p, v);
    else if (value_bytes(v->type))
        skip(r, value_bytes(v->type));
    else if (atom_reader_ok(r))
        st = atom_fail(ATOM_E_FORMAT, "%s: key '%.80s' has type %u, which does not exist", p->path,
                       v->key, v->type);
    v->bytes = atom_reader_ok(r) ? (uint64_t)(r->at - v->at) : 0;
    return st;
}

static atom_status bad_tensor(const parser *p, const file_gguf_in_tensor *t, const char *what)
{
    return atom_fail(ATOM_E_FORMAT, "%s: tensor '%.64s' %s", p->path, t->name, what);
}

static atom_status take_dims(parser *p, file_gguf_in_tensor *t)
{
    atom_reader *r = &p->r;
    t->rank = atom_read_u32(r);
    if (atom_reader_ok(r) && (t->rank < 1 || t->rank > 4))
        return bad_tensor(p, t, "must have 1 to 4 dimensions");
    t->elements = 1;
    for (uint32_t i = t->rank; atom_reader_ok(r) && i-- > 0;) {
        t->dims[i] = atom_read_u64(r);
        if (atom_reader_ok(r) &&
            (t->dims[i] == 0 || __builtin_mul_overflow(t->elements, t->dims[i], &t->elements)))
            return bad_tensor(p, t, "has an impossible size");
    }
    return ATOM_OK;
}

/* offset stays relative to the data. */
static atom_status take_tensor(parser *p, file_gguf_in_tensor *t)
{
    atom_reader *r = &p->r;
    uint64_t bytes;
    const uint8_t *name = take_text(r, &bytes);
    if (!name)
        return ATOM_OK;
    if (bytes == 0 || bytes >= sizeof t->name || memchr(name, 0, bytes))
        return atom_fail(ATOM_E_FORMAT,
                         "%s: the name of a tensor has %llu bytes, 1 to %d are "
                         "allowed",
                         p->path, (unsigned long long)bytes, FILE_GGUF_NAME_MAX - 1);
    memcpy(t->name, name, bytes);
    ATOM_TRY(take_dims(p, t));
    t->type = atom_read_u32(r);
    t->offset = atom_read_u64(r);
    if (!atom_reader_ok(r))
        return ATOM_OK;
    if (t->type >= TYPES_N || !types[t->type].name)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: tensor '%s' has type %u, which atom does not know", p->path, t->name,
                         t->type);
    if (t->dims[t->rank - 1] % types[t->type].elements)
        return bad_tensor(p, t, "has rows that are not whole blocks of its type");
    if (__builtin_mul_overflow(t->elements / types[t->type].elements, types[t->type].bytes,
                               &t->bytes))
        return bad_tensor(p, t, "is too large");
    if (t->offset % p->align)
        return bad_tensor(p, t, "is not aligned");
    return ATOM_OK;
}

/* --- order ----------------------------------------------------------------------------------- */

static int by_key(const void *a, const void *b)
{
    return strcmp(((const file_gguf_value *)a)->key, ((const file_gguf_value *)b)->key);
}
static int by_name(const void *a, const void *b)
{
    return strcmp(((const file_gguf_in_tensor *)a)->name, ((const file_gguf_in_tensor *)b)->name);
}
static int by_offset(const void *a, const void *b)
{
    uint64_t x = ((const file_gguf_in_tensor *)a)->offset;
    uint64_t y = ((const file_gguf_in_tensor *)b)->offset;
    return (x > y) - (x < y);
}

/* Inside the file, none over another; then by name. */
static atom_status place_tensors(parser *p, uint64_t data)
{
    file_gguf_in *f = p->f;
    uint64_t end = 0, room = f->file_bytes > data ? f->file_bytes - data : 0;
    if (f->n_tensors)
        qsort(f->tensors, f->n_tensors, sizeof *f->tensors, by_offset);
    for (uint32_t i = 0; i < f->n_tensors; i++) {
        file_gguf_in_tensor *t = &f->tensors[i];
        if (t->offset < end)
            return bad_tensor(p, t, "overlaps another");
        if (t->offset > room || t->bytes > room - t->offset)
            return bad_tensor(p, t, "ends beyond the end of the file; copy the file again");
        end = t->offset + t->bytes;
        t->offset += data;
    }
    if (f->n_tensors)
        qsort(f->tensors, f->n_tensors, sizeof *f->tensors, by_name);
    for (uint32_t i = 1; i < f->n_tensors; i++) {
        if (by_name(&f->tensors[i - 1], &f->tensors[i]) == 0)
            return bad_tensor(p, &f->tensors[i], "appears twice");
    }
    return ATOM_OK;
}

static atom_status order_values(parser *p)
{
    file_gguf_in *f = p->f;
    if (f->n_values)
        qsort(f->values, f->n_values, sizeof *f->values, by_key);
    for (uint32_t i = 1; i < f->n_values; i++) {
        if (by_key(&f->values[i - 1], &f->values[i]) == 0)
            return atom_fail(ATOM_E_FORMAT, "%s: key '%.80s' appears twice", p->path,
                             f->values[i].key);
    }
    const file_gguf_value *align = file_gguf_find(f, "general.alignment");
    int64_t bytes = file_gguf_int(f, "general.alignment", align ? 0 : FILE_GGUF_ALIGN);
    if (bytes < 1 || bytes > ALIGN_MAX || (bytes & (bytes - 1)))
        return atom_fail(ATOM_E_FORMAT, "%s: general.alignment must be a power of two up to %d",
                         p->path, ALIGN_MAX);
    p->align = (uint64_t)bytes;
    return ATOM_OK;
}

static atom_status take_counts(parser *p, uint64_t *values, uint64_t *tensors)
{
    atom_reader *r = &p->r;
    char magic[4];
    atom_read_bytes(r, magic, sizeof magic);
    uint32_t version = atom_read_u32(r);
    *tensors = atom_read_u64(r);
    *values = atom_read_u64(r);
    if (!atom_reader_ok(r))
        return ATOM_OK;
    if (!file_gguf_is(magic, sizeof magic))
        return atom_fail(ATOM_E_FORMAT, "%s: not a GGUF file", p->path);
    if (version != 2 && version != 3)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: GGUF version %u; 2 and 3 are supported, in little-endian order",
                         p->path, version);
    if (*values > VALUES_MAX || *tensors > TENSORS_MAX)
        return atom_fail(ATOM_E_FORMAT, "%s: %llu keys and %llu tensors are too many", p->path,
                         (unsigned long long)*values, (unsigned long long)*tensors);
    return ATOM_OK;
}

/* A list that grows with what was really there, whatever the header claims. */
static atom_status take_all(parser *p)
{
    file_gguf_in *f = p->f;
    size_t values_room = 0, tensors_room = 0;
    uint64_t values = 0, tensors = 0;
    atom_status st = ATOM_OK;
    ATOM_TRY(take_counts(p, &values, &tensors));
    while (atom_reader_ok(&p->r) && f->n_values < values) {
        ATOM_TRY(atom_grow(&f->values, f->n_values, &values_room, sizeof *f->values));
        f->values[f->n_values] = (file_gguf_value){0};
        st = take_value(p, &f->values[f->n_values]);
        f->n_values += f->values[f->n_values].key != NULL;
        ATOM_TRY(st);
    }
    if (!atom_reader_ok(&p->r))
        return ATOM_OK;
    ATOM_TRY(order_values(p));
    while (atom_reader_ok(&p->r) && f->n_tensors < tensors) {
        ATOM_TRY(atom_grow(&f->tensors, f->n_tensors, &tensors_room, sizeof *f->tensors));
        f->tensors[f->n_tensors] = (file_gguf_in_tensor){0};
        ATOM_TRY(take_tensor(p, &f->tensors[f->n_tensors++]));
    }
    return st;
}

atom_status file_gguf_parse(const char *path, const void *data, uint64_t bytes, uint64_t file_bytes,
                            bool *more, file_gguf_in **out)
{
    parser p = {.path = path, .f = atom_alloc(1, sizeof *p.f)};
    atom_status st = ATOM_OK;
    *more = false;
    if (p.f) {
        p.f->fd = -1;
        p.f->file_bytes = file_bytes;
        p.f->path = atom_strdup(path);
        p.f->header = atom_alloc(bytes ? bytes : 1, 1);
    }
    if (!p.f || !p.f->path || !p.f->header)
        ATOM_TRY_CLEAN(atom_fail_memory(path, bytes));
    if (bytes)
        memcpy(p.f->header, data, bytes);
    p.r = atom_reader_make(p.f->header, bytes);
    ATOM_TRY_CLEAN(take_all(&p));
    if (!atom_reader_ok(&p.r)) {
        *more = bytes < file_bytes;
        st = atom_fail(ATOM_E_FORMAT, "%s: truncated: its header ends beyond the end of the file",
                       path);
        goto cleanup;
    }
    uint64_t at = (uint64_t)(p.r.at - p.f->header);
    ATOM_TRY_CLEAN(place_tensors(&p, (at + p.align - 1) / p.align * p.align));
    *out = p.f;
    return ATOM_OK;
cleanup:
    file_gguf_in_close(&p.f);
    return st;
}

void file_gguf_in_close(file_gguf_in **ref)
{
    file_gguf_in *f = *ref;
    if (!f)
        return;
    if (f->reader)
        f->source->close(f->reader);
    if (f->fd >= 0)
        close(f->fd);
    for (uint32_t i = 0; i < f->n_values; i++)
        atom_free(f->values[i].key);
    atom_free(f->values);
    atom_free(f->tensors);
    atom_free(f->header);
    atom_free(f->path);
    atom_free(f);
    *ref = NULL;
}

static atom_status read_at(const char *path, int fd, uint64_t at, void *out, uint64_t bytes)
{
    int error = atom_fd_read(fd, at, out, bytes);
    if (error == ENODATA)
        return atom_fail(ATOM_E_FORMAT, "%s became shorter while it was open", path);
    return error ? atom_fail_errno(error, "cannot read %s", path) : ATOM_OK;
}

/* The header says only at its end where that is: more and more of the file is tried. */
static atom_status parse_file(const char *path, int fd, uint64_t file_bytes, file_gguf_in **out)
{
    atom_status st = ATOM_E_FORMAT;
    bool more = true;
    for (uint64_t want = FIRST_READ; more; want *= 2) {
        uint64_t bytes = want < file_bytes ? want : file_bytes;
        char *data = atom_alloc(bytes ? bytes : 1, 1);
        if (!data)
            return atom_fail_memory(path, bytes);
        st = read_at(path, fd, 0, data, bytes);
        more = false;
        if (st == ATOM_OK)
            st = file_gguf_parse(path, data, bytes, file_bytes, &more, out);
        atom_free(data);
        if (more && want >= HEADER_MAX)
            return atom_fail(ATOM_E_FORMAT, "%s: its header is larger than %d bytes", path,
                             HEADER_MAX);
    }
    return st;
}

atom_status file_gguf_open(const char *path, file_gguf_in **out)
{
    struct stat s;
    atom_status st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return atom_fail(ATOM_E_FORMAT, "cannot open %s: %s", path, strerror(errno));
    if (fstat(fd, &s) < 0 || !S_ISREG(s.st_mode))
        st = atom_fail(ATOM_E_FORMAT, "%s is not a file", path);
    else
        st = parse_file(path, fd, (uint64_t)s.st_size, out);
    if (st == ATOM_OK)
        (*out)->fd = fd;
    else
        close(fd);
    return st;
}

atom_status file_gguf_through(file_gguf_in *f, const file_source *source)
{
    ATOM_ASSERT(!f->reader);
    f->source = source;
    return source ? source->open(source->ctx, f->path, f->fd, f->file_bytes, &f->reader) : ATOM_OK;
}

/* --- values ---------------------------------------------------------------------------------- */

const file_gguf_value *file_gguf_find(const file_gguf_in *f, const char *key)
{
    file_gguf_value wanted = {.key = (char *)(uintptr_t)key};
    return f->n_values ? bsearch(&wanted, f->values, f->n_values, sizeof wanted, by_key) : NULL;
}

const file_gguf_in_tensor *file_gguf_find_tensor(const file_gguf_in *f, const char *name)
{
    file_gguf_in_tensor wanted = {0};
    if (strlen(name) >= sizeof wanted.name || f->n_tensors == 0)
        return NULL;
    strcpy(wanted.name, name);
    return bsearch(&wanted, f->tensors, f->n_tensors, sizeof wanted, by_name);
}

int64_t file_gguf_int(const file_gguf_in *f, const char *key, int64_t fallback)
{
    const file_gguf_value *v = file_gguf_find(f, key);
    if (!v)
        return fallback;
    atom_reader r = atom_reader_make(v->at, v->bytes);
    switch (v->type) {
    case FILE_GGUF_VALUE_U8:
    case FILE_GGUF_VALUE_BOOL:
        return atom_read_u8(&r);
    case FILE_GGUF_VALUE_I8:
        return (int8_t)atom_read_u8(&r);
    case FILE_GGUF_VALUE_U16:
        return atom_read_u16(&r);
    case FILE_GGUF_VALUE_I16:
        return (int16_t)atom_read_u16(&r);
    case FILE_GGUF_VALUE_U32:
        return atom_read_u32(&r);
    case FILE_GGUF_VALUE_I32:
        return (int32_t)atom_read_u32(&r);
    case FILE_GGUF_VALUE_U64:
    case FILE_GGUF_VALUE_I64: {
        uint64_t x = atom_read_u64(&r);
        return v->type == FILE_GGUF_VALUE_U64 && x > INT64_MAX ? fallback : (int64_t)x;
    }
    default:
        return fallback;
    }
}

double file_gguf_real(const file_gguf_in *f, const char *key, double fallback)
{
    const file_gguf_value *v = file_gguf_find(f, key);
    float single;
    double twice;
    if (v && v->type == FILE_GGUF_VALUE_F32) {
        memcpy(&single, v->at, sizeof single);
        return (double)single;
    }
    if (v && v->type == FILE_GGUF_VALUE_F64) {
        memcpy(&twice, v->at, sizeof twice);
        return twice;
    }
    return fallback;
}

char *file_gguf_text(const file_gguf_in *f, const char *key)
{
    const file_gguf_value *v = file_gguf_find(f, key);
    return v && v->type == FILE_GGUF_VALUE_TEXT ? atom_strndup((const char *)v->at, v->n) : NULL;
}

const char *file_gguf_next_text(const uint8_t **at, uint64_t *bytes)
{
    memcpy(bytes, *at, sizeof *bytes);
    const char *text = (const char *)*at + sizeof *bytes;
    *at = (const uint8_t *)text + *bytes;
    return text;
}

/* --- numbers --------------------------------------------------------------------------------- */

static void decode(uint32_t type, const uint8_t *from, uint64_t n, float *out)
{
    uint16_t half;
    for (uint64_t i = 0; type == FILE_GGUF_Q8_0 && i < n; i++) {
        const uint8_t *block = from + i / FILE_GGUF_Q8_BLOCK * (2 + FILE_GGUF_Q8_BLOCK);
        memcpy(&half, block, sizeof half);
        out[i] = atom_f16_to_f32(half) * (float)(int8_t)block[2 + i % FILE_GGUF_Q8_BLOCK];
    }
    for (uint64_t i = 0; (type == FILE_GGUF_F16 || type == FILE_GGUF_BF16) && i < n; i++) {
        memcpy(&half, from + 2 * i, sizeof half);
        out[i] = type == FILE_GGUF_F16 ? atom_f16_to_f32(half) : atom_bf16_to_f32(half);
    }
    if (type == FILE_GGUF_F32)
        memcpy(out, from, n * sizeof *out);
}

atom_status file_gguf_read_f32(const file_gguf_in *f, const file_gguf_in_tensor *t, uint64_t first,
                               uint64_t count, float *out)
{
    uint8_t raw[DECODE_ELEMENTS * 4];
    bool known = t->type == FILE_GGUF_F32 || t->type == FILE_GGUF_F16 ||
                 t->type == FILE_GGUF_BF16 || t->type == FILE_GGUF_Q8_0;
    uint32_t block = types[t->type].elements, bytes = types[t->type].bytes;
    ATOM_ASSERT(first <= t->elements && count <= t->elements - first);
    ATOM_ASSERT(first % block == 0 && count % block == 0);
    if (!known)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: tensor '%s' is %s; atom reads F32, F16, BF16 and Q8_0", f->path,
                         t->name, file_gguf_type_name(t->type));
    for (uint64_t at = 0, some; at < count; at += some) {
        some = count - at < DECODE_ELEMENTS ? count - at : DECODE_ELEMENTS;
        uint64_t from = t->offset + (first + at) / block * bytes, size = some / block * bytes;
        ATOM_TRY(f->reader ? file_source_read(f->source, f->reader, from, size, raw)
                           : read_at(f->path, f->fd, from, raw, size));
        decode(t->type, raw, some, out + at);
    }
    return ATOM_OK;
}
