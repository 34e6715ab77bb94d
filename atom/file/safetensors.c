/*
 * Owns the reading side of safetensors. One idea: the header is a claim, checked in full before a
 * byte of data is touched; after that every read is a plain pread inside proven bounds. Refuses
 * mmap, unknown keys, holes, and names as anything but data.
 */
#include "atom/file/safetensors.h"

#include "atom/base/assert.h"
#include "atom/base/files.h"
#include "atom/base/json.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensor bytes are little-endian");

static const uint64_t DIM_MAX = (1ull << 48) - 1;

static const struct {
    const char *name;
    uint32_t bits;
} dtypes[FILE_DTYPE_N] = {
    [FILE_BOOL] = {"BOOL", 8},
    [FILE_F4] = {"F4", 4},
    [FILE_F6_E2M3] = {"F6_E2M3", 6},
    [FILE_F6_E3M2] = {"F6_E3M2", 6},
    [FILE_U8] = {"U8", 8},
    [FILE_I8] = {"I8", 8},
    [FILE_F8_E5M2] = {"F8_E5M2", 8},
    [FILE_F8_E4M3] = {"F8_E4M3", 8},
    [FILE_F8_E8M0] = {"F8_E8M0", 8},
    [FILE_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [FILE_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [FILE_I16] = {"I16", 16},
    [FILE_U16] = {"U16", 16},
    [FILE_F16] = {"F16", 16},
    [FILE_BF16] = {"BF16", 16},
    [FILE_I32] = {"I32", 32},
    [FILE_U32] = {"U32", 32},
    [FILE_F32] = {"F32", 32},
    [FILE_C64] = {"C64", 64},
    [FILE_F64] = {"F64", 64},
    [FILE_I64] = {"I64", 64},
    [FILE_U64] = {"U64", 64},
};

const char *file_dtype_name(file_dtype dtype)
{
    return dtypes[dtype].name;
}

uint32_t file_dtype_bits(file_dtype dtype)
{
    return dtypes[dtype].bits;
}

static atom_status bad(const char *path, const char *what)
{
    return atom_fail(ATOM_E_FORMAT, "%s: %s; the file is damaged or not safetensors", path, what);
}

static atom_status bad_tensor(const char *path, const char *name, const char *what)
{
    return atom_fail(ATOM_E_FORMAT, "%s: tensor '%.128s': %s", path, name, what);
}

static atom_status parse_dtype(const char *path, const char *name, const json_t *value,
                               file_dtype *out)
{
    const char *text = json_string_value(value);
    if (!text)
        return bad_tensor(path, name, "dtype is not a string");
    for (int i = 0; i < FILE_DTYPE_N; i++) {
        if (strcmp(text, dtypes[i].name) == 0) {
            *out = (file_dtype)i;
            return ATOM_OK;
        }
    }
    return atom_fail(ATOM_E_FORMAT, "%s: tensor '%.128s': unknown dtype '%.32s'", path, name, text);
}

static bool parse_uint(const json_t *value, uint64_t max, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > max)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static atom_status parse_shape(const char *path, const json_t *value, file_tensor *t)
{
    if (!json_is_array(value))
        return bad_tensor(path, t->name, "shape is not a list");
    if (json_array_size(value) > FILE_RANK_MAX)
        return bad_tensor(path, t->name, "more than 8 dimensions");
    t->rank = (uint32_t)json_array_size(value);
    t->elements = 1;
    for (uint32_t i = 0; i < t->rank; i++) {
        if (!parse_uint(json_array_get(value, i), DIM_MAX, &t->dims[i]))
            return bad_tensor(path, t->name, "a dimension is not a whole number below 2^48");
        if (__builtin_mul_overflow(t->elements, t->dims[i], &t->elements))
            return bad_tensor(path, t->name, "its shape overflows");
    }
    return ATOM_OK;
}

/* Offsets relative to the data; t->offset gets BEGIN, t->bytes the length. */
static atom_status parse_place(const char *path, const json_t *value, uint64_t data_bytes,
                               file_tensor *t)
{
    uint64_t begin, end, bits;
    if (json_array_size(value) != 2 || !parse_uint(json_array_get(value, 0), INT64_MAX, &begin) ||
        !parse_uint(json_array_get(value, 1), INT64_MAX, &end))
        return bad_tensor(path, t->name, "data_offsets is not [begin, end]");
    if (end < begin || end > data_bytes)
        return bad_tensor(path, t->name, "data_offsets lie outside the file; is it cut short?");
    if (__builtin_mul_overflow(t->elements, (uint64_t)file_dtype_bits(t->dtype), &bits))
        return bad_tensor(path, t->name, "its shape overflows");
    if (bits % 8 || bits / 8 != end - begin)
        return bad_tensor(path, t->name, "shape, dtype and data_offsets do not agree");
    t->offset = begin;
    t->bytes = end - begin;
    return ATOM_OK;
}

static atom_status parse_tensor(const char *path, const char *name, const json_t *value,
                                uint64_t data_bytes, file_tensor *t)
{
    const json_t *dtype = json_object_get(value, "dtype");
    const json_t *shape = json_object_get(value, "shape");
    const json_t *offsets = json_object_get(value, "data_offsets");
    if (strlen(name) > FILE_TENSOR_NAME_MAX)
        return bad_tensor(path, name, "its name is longer than 512 bytes");
    if (!dtype || !shape || !offsets || json_object_size(value) != 3)
        return bad_tensor(path, name, "is not exactly {dtype, shape, data_offsets}");
    t->name = atom_strdup(name);
    if (!t->name)
        return atom_fail_memory("a tensor name", strlen(name));
    ATOM_TRY(parse_dtype(path, name, dtype, &t->dtype));
    ATOM_TRY(parse_shape(path, shape, t));
    return parse_place(path, offsets, data_bytes, t);
}

static atom_status parse_metadata(file_safetensors *file, json_t *object)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return bad(file->path, "__metadata__ is not an object");
    file->metadata = atom_alloc(json_object_size(object) + 1, sizeof *file->metadata);
    if (!file->metadata)
        return atom_fail_memory(file->path, json_object_size(object) * sizeof *file->metadata);
    json_object_foreach(object, key, value)
    {
        if (!json_is_string(value))
            return bad(file->path, "a value of __metadata__ is not a string");
        file_pair *pair = &file->metadata[file->n_metadata++];
        pair->key = atom_strdup(key);
        pair->value = atom_strdup(json_string_value(value));
        if (!pair->key || !pair->value)
            return atom_fail_memory(file->path, json_string_length(value));
    }
    return ATOM_OK;
}

static int order_by_place(const void *a, const void *b)
{
    const file_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int order_by_name(const void *a, const void *b, void *ctx)
{
    const file_tensor *tensors = ctx;
    return strcmp(tensors[*(const uint32_t *)a].name, tensors[*(const uint32_t *)b].name);
}

atom_status file_st_sort(file_safetensors *file)
{
    qsort(file->tensors, file->n_tensors, sizeof *file->tensors, order_by_place);
    for (uint32_t i = 0; i < file->n_tensors; i++)
        file->by_name[i] = i;
    qsort_r(file->by_name, file->n_tensors, sizeof *file->by_name, order_by_name, file->tensors);
    for (uint32_t i = 1; i < file->n_tensors; i++) {
        const char *name = file->tensors[file->by_name[i]].name;
        if (strcmp(file->tensors[file->by_name[i - 1]].name, name) == 0)
            return bad_tensor(file->path, name, "appears twice");
    }
    return ATOM_OK;
}

/* Tensors tile the data exactly; offsets become absolute. */
static atom_status settle(file_safetensors *file)
{
    uint64_t at = 0, data = 8 + file->header_bytes;
    ATOM_TRY(file_st_sort(file));
    for (uint32_t i = 0; i < file->n_tensors; i++) {
        file_tensor *t = &file->tensors[i];
        if (t->offset != at)
            return bad_tensor(file->path, t->name,
                              t->offset < at ? "overlaps another tensor" : "has a hole before it");
        at += t->bytes;
        t->offset += data;
    }
    if (at != file->file_bytes - data)
        return atom_fail(ATOM_E_FORMAT, "%s: %llu bytes after the last tensor; copy the file again",
                         file->path, (unsigned long long)(file->file_bytes - data - at));
    return ATOM_OK;
}

static atom_status parse_object(file_safetensors *file, json_t *root)
{
    const char *key;
    json_t *value;
    uint64_t data_bytes = file->file_bytes - 8 - file->header_bytes;
    size_t n = json_object_size(root);
    file->tensors = atom_alloc(n + 1, sizeof *file->tensors);
    file->by_name = atom_alloc(n + 1, sizeof *file->by_name);
    if (!file->tensors || !file->by_name)
        return atom_fail_memory(file->path, n * sizeof *file->tensors);
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0)
            ATOM_TRY(parse_metadata(file, value));
        else
            ATOM_TRY(parse_tensor(file->path, key, value, data_bytes,
                                  &file->tensors[file->n_tensors++]));
    }
    return settle(file);
}

/* A header of our kind needs at least four bytes per comma; this bounds what the
 * JSON tree costs. */
static bool too_dense(const char *header, uint64_t bytes)
{
    uint64_t commas = 0;
    for (uint64_t i = 0; i < bytes; i++)
        commas += header[i] == ',';
    return commas > bytes / 4 + 16;
}

static atom_status parse_header(file_safetensors *file, const char *header)
{
    json_error_t error;
    uint64_t used = file->header_bytes;
    while (used && header[used - 1] == ' ')
        used--;
    if (used < 2 || header[0] != '{' || header[used - 1] != '}')
        return bad(file->path, "its header is not a JSON object padded with spaces");
    if (too_dense(header, used))
        return bad(file->path, "its header is not a list of tensors");
    json_t *root = json_loadb(header, (size_t)used, JSON_REJECT_DUPLICATES, &error);
    if (!root && atom_json_starved(&error))
        return atom_fail_memory(file->path, used);
    if (!root)
        return atom_fail(ATOM_E_FORMAT, "%s: header byte %d: %s; the file is damaged", file->path,
                         error.position, error.text);
    atom_status st = parse_object(file, root);
    json_decref(root);
    return st;
}

static atom_status check_lengths(const char *path, uint64_t header_bytes, uint64_t file_bytes)
{
    if (header_bytes > FILE_HEADER_BYTES_MAX)
        return bad(path, "its header claims more than 100 MB");
    if (header_bytes < 2 || file_bytes < 8 || header_bytes > file_bytes - 8)
        return bad(path, "its header is longer than the file");
    return ATOM_OK;
}

static file_safetensors *new_file(const char *path, uint64_t header_bytes, uint64_t file_bytes)
{
    file_safetensors *file = atom_alloc(1, sizeof *file);
    if (!file)
        return NULL;
    file->fd = -1;
    file->header_bytes = header_bytes;
    file->file_bytes = file_bytes;
    file->path = atom_strdup(path);
    if (!file->path)
        file_st_close(&file);
    return file;
}

atom_status file_st_parse(const char *path, const char *header, uint64_t header_bytes,
                          uint64_t file_bytes, file_safetensors **out)
{
    atom_status st = ATOM_OK;
    ATOM_TRY(check_lengths(path, header_bytes, file_bytes));
    file_safetensors *file = new_file(path, header_bytes, file_bytes);
    if (!file)
        return atom_fail_memory(path, sizeof *file);
    ATOM_TRY_CLEAN(parse_header(file, header));
    *out = file;
    return ATOM_OK;
cleanup:
    file_st_close(&file);
    return st;
}

static atom_status read_at(int fd, const char *path, uint64_t offset, uint64_t bytes, void *out)
{
    int error = atom_fd_read(fd, offset, out, bytes);
    if (error == ENODATA)
        return atom_fail(ATOM_E_FORMAT, "%s became shorter while it was read", path);
    return error ? atom_fail_errno(error, "cannot read %s", path) : ATOM_OK;
}

atom_status file_open_regular(const char *path, int *fd, uint64_t *bytes)
{
    struct stat info;
    /* A FIFO must not make us wait for ever. */
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0 && errno == ENOENT)
        return atom_fail(ATOM_E_FORMAT, "there is no file %s", path);
    if (opened < 0)
        return atom_fail_errno(errno, "cannot open %s", path);
    if (fstat(opened, &info) < 0 || !S_ISREG(info.st_mode)) {
        close(opened);
        return atom_fail(ATOM_E_FORMAT, "%s is not a regular file", path);
    }
    *fd = opened;
    *bytes = (uint64_t)info.st_size;
    return ATOM_OK;
}

atom_status file_st_open(const char *path, file_safetensors **out)
{
    int fd = -1;
    uint64_t file_bytes = 0, header_bytes = 0;
    char *header = NULL, first[24] = "";
    file_safetensors *file = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY(file_open_regular(path, &fd, &file_bytes));
    if (file_bytes < 8)
        ATOM_TRY_CLEAN(bad(path, "it is shorter than 8 bytes"));
    ATOM_TRY_CLEAN(
        read_at(fd, path, 0, file_bytes < sizeof first ? file_bytes : sizeof first, first));
    if (atom_is_lfs_pointer(first, sizeof first))
        ATOM_TRY_CLEAN(atom_fail_lfs(path));
    memcpy(&header_bytes, first, 8);
    ATOM_TRY_CLEAN(check_lengths(path, header_bytes, file_bytes));
    header = atom_alloc((size_t)header_bytes, 1);
    if (!header)
        ATOM_TRY_CLEAN(atom_fail_memory(path, header_bytes));
    ATOM_TRY_CLEAN(read_at(fd, path, 8, header_bytes, header));
    ATOM_TRY_CLEAN(file_st_parse(path, header, header_bytes, file_bytes, &file));
    atom_free(header);
    file->fd = fd;
    *out = file;
    return ATOM_OK;
cleanup:
    atom_free(header);
    close(fd);
    return st;
}

atom_status file_st_through(file_safetensors *file, const file_source *source)
{
    if (file->reader)
        file->source->close(file->reader);
    file->reader = NULL;
    file->source = source;
    return source ? source->open(source->ctx, file->path, file->fd, file->file_bytes, &file->reader)
                  : ATOM_OK;
}

void file_st_close(file_safetensors **file)
{
    file_safetensors *f = *file;
    if (!f)
        return;
    for (uint32_t i = 0; i < f->n_tensors; i++)
        atom_free(f->tensors[i].name);
    for (uint32_t i = 0; i < f->n_metadata; i++) {
        atom_free(f->metadata[i].key);
        atom_free(f->metadata[i].value);
    }
    if (f->reader)
        f->source->close(f->reader);
    if (f->fd >= 0)
        close(f->fd);
    file_sums_close(&f->sums);
    atom_free(f->tensors);
    atom_free(f->by_name);
    atom_free(f->metadata);
    atom_free(f->path);
    atom_free(f);
    *file = NULL;
}

const file_tensor *file_st_find(const file_safetensors *file, const char *name)
{
    uint32_t low = 0, high = file->n_tensors;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        const file_tensor *t = &file->tensors[file->by_name[mid]];
        int order = strcmp(name, t->name);
        if (order == 0)
            return t;
        if (order < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return NULL;
}

const char *file_st_metadata(const file_safetensors *file, const char *key)
{
    for (uint32_t i = 0; i < file->n_metadata; i++) {
        if (strcmp(file->metadata[i].key, key) == 0)
            return file->metadata[i].value;
    }
    return NULL;
}

/* A reader that goes from front to back keeps the disk busy with what comes next while it converts:
 * enough requests at once, and far larger ones than the kernel's own reading ahead. */
static void look_ahead(const file_safetensors *file, uint64_t offset, uint64_t bytes)
{
    enum { STEP = 4 << 20, AHEAD = 32 << 20 };
    uint64_t end = offset + bytes;
    if (file->fd >= 0 && end / STEP != offset / STEP && end < file->file_bytes)
        (void)posix_fadvise(file->fd, (off_t)end, AHEAD, POSIX_FADV_WILLNEED);
}

static atom_status see(const file_safetensors *file, uint64_t offset, uint64_t bytes,
                       const void *data)
{
    return file->sums ? file_sums_see(file->sums, file->path, file->fd, offset, bytes, data)
                      : ATOM_OK;
}

atom_status file_st_read(const file_safetensors *file, const file_tensor *tensor, uint64_t first,
                         uint64_t bytes, void *out)
{
    uint64_t offset = tensor->offset + first;
    ATOM_ASSERT(first <= tensor->bytes && bytes <= tensor->bytes - first);
    if (file->reader) {
        ATOM_TRY(file_source_read(file->source, file->reader, offset, bytes, out));
    } else {
        look_ahead(file, offset, bytes);
        ATOM_TRY(read_at(file->fd, file->path, offset, bytes, out));
    }
    return see(file, offset, bytes, out);
}

static void widen_f16(float *out, const uint16_t *in, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = atom_f16_to_f32(in[i]);
}

static void widen_bf16(float *out, const uint16_t *in, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = atom_bf16_to_f32(in[i]);
}

static void widen(file_dtype dtype, float *out, const uint16_t *in, uint64_t count)
{
    if (dtype == FILE_BF16)
        widen_bf16(out, in, count);
    else
        widen_f16(out, in, count);
}

/* Straight from where a source has them; *done: how many; 0 where an element is not there whole. */
static atom_status widen_there(const file_safetensors *file, const file_tensor *tensor,
                               uint64_t first, uint64_t count, float *out, uint64_t *done)
{
    const void *at = NULL;
    uint64_t bytes = 0;
    *done = 0;
    if (!file->reader)
        return ATOM_OK;
    uint64_t offset = tensor->offset + first * 2;
    ATOM_TRY(file->source->view(file->reader, offset, count * 2, &at, &bytes));
    if ((uintptr_t)at % 2 || bytes < 2)
        return ATOM_OK;
    ATOM_TRY(see(file, offset, bytes / 2 * 2, at));
    *done = bytes / 2;
    widen(tensor->dtype, out, at, *done);
    return ATOM_OK;
}

/* 16-bit elements pass through a small buffer, or come from a source's. */
static atom_status read_half(const file_safetensors *file, const file_tensor *tensor,
                             uint64_t first, uint64_t count, float *out)
{
    enum { PIECE = 1 << 15 };
    uint16_t buffer[PIECE];
    while (count) {
        uint64_t some, piece = count < PIECE ? count : PIECE;
        ATOM_TRY(widen_there(file, tensor, first, count, out, &some));
        if (some == 0) {
            some = piece;
            ATOM_TRY(file_st_read(file, tensor, first * 2, some * 2, buffer));
            widen(tensor->dtype, out, buffer, some);
        }
        out += some;
        first += some;
        count -= some;
    }
    return ATOM_OK;
}

atom_status file_st_read_f32(const file_safetensors *file, const file_tensor *tensor,
                             uint64_t first, uint64_t count, float *out)
{
    ATOM_ASSERT(first <= tensor->elements && count <= tensor->elements - first);
    if (tensor->dtype == FILE_F32)
        return file_st_read(file, tensor, first * 4, count * 4, out);
    if (tensor->dtype == FILE_BF16 || tensor->dtype == FILE_F16)
        return read_half(file, tensor, first, count, out);
    bool quantised = file_dtype_bits(tensor->dtype) < 8 ||
                     (tensor->dtype >= FILE_F8_E5M2 && tensor->dtype <= FILE_F8_E5M2FNUZ);
    return atom_fail(ATOM_E_FORMAT, "%s: tensor '%.128s' is %s; %s", file->path, tensor->name,
                     file_dtype_name(tensor->dtype),
                     quantised ? "this checkpoint is quantised: dequantise it first"
                               : "only F32, F16 and BF16 can be weights");
}
